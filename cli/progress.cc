// The bar, the rate and the remaining time.
#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "files/system.h"
#include "terminal.h"

namespace {

std::string size_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<long>(std::min(seconds + 0.5, 1e9));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::function<std::uint64_t()> position, std::optional<std::uint64_t> size, bool wanted)
    : position_(std::move(position)), size_(size), wanted_(wanted && files::sys::is_terminal(files::sys::standard_error)) {}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::update() {
  if (!wanted_) return;
  const Clock::time_point now = Clock::now();
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  if (seconds(now - start_) < 1 || (shown_ && seconds(now - last_) < 0.1)) return;
  last_ = now;
  shown_ = true;
  const double elapsed = seconds(now - start_), done = static_cast<double>(position_()), rate = done / elapsed;
  // A line that is wider than the terminal continues in the next, and \r does not return to its start.
  const std::size_t columns = files::sys::terminal_columns(files::sys::standard_error);
  const std::size_t width = columns == 0 ? 79 : columns - 1;
  std::string text;
  if (!size_) {
    text = fmt::format("{}  {}/s  {}", size_text(done), size_text(rate), time_text(elapsed));
  } else {
    const double part = std::min(1.0, done / static_cast<double>(std::max<std::uint64_t>(1, *size_)));
    text = fmt::format("{:3.0f} %", 100 * part);
    const std::string left = fmt::format("  {} left", time_text(elapsed * (1 - part) / std::max(part, 1e-9)));
    const std::string speed = fmt::format("  {}/s", size_text(rate));
    const std::size_t used = text.size() + speed.size() + left.size(), around_bar = 3;
    if (width >= used + around_bar + 8) {
      const std::size_t bar_width = std::min<std::size_t>(24, width - used - around_bar);
      text += fmt::format(" [{}]", bar_text(part, bar_width, locale_is_utf8()));
    }
    if (width >= used) text += speed;
    text += left;
  }
  // Everything but the bar is ASCII, and the bar is never where the text is cut.
  if (text.size() > width && display_width(text) > width) text.resize(width);
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
}

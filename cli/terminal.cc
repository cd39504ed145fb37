// Asks the terminal and the locale, and measures text as they would show it.
#include "terminal.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "files/system.h"
#include "files/text.h"

namespace sys = files::sys;

namespace {

// The number of a character in UTF-8: all bits of the bytes, without the first bits of each, which say how many bytes there
// are.
char32_t code_point(std::string_view character) {
  char32_t code = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) code &= 0x7Fu >> character.size();
  for (const char next : character.substr(1)) code = code << 6 | (next & 0x3F);
  return code;
}

// Calls f(character, width) for each character of `text`; ? replaces a character that cannot be shown.
template <class F>
void for_each_character(std::string_view text, F f) {
  while (!text.empty()) {
    const std::size_t length = files::utf8_length(text);
    const char32_t code = length > 0 ? code_point(text.substr(0, length)) : 0;
    const int width = code != 0 ? sys::character_width(code) : -1;
    f(width < 0 ? std::string_view("?") : text.substr(0, length), width < 0 ? 1 : width);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

}  // namespace

std::size_t terminal_width(std::size_t most) {
  std::size_t width = 0;
  if (const char* columns = std::getenv("COLUMNS")) std::from_chars(columns, columns + std::strlen(columns), width);
  if (width == 0) width = sys::terminal_columns(sys::standard_output);
  return width == 0 ? 80 : std::clamp<std::size_t>(width, 40, most);
}

bool wants_color(int descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool plain = (refused && *refused) || !terminal || std::strcmp(terminal, "dumb") == 0;
  return !plain && sys::is_terminal(descriptor);
}

std::string with_colored_bars(std::string_view text) {
  std::string result;
  bool in_bar = false;
  while (!text.empty()) {
    // U+2580 to U+259F are the bytes E2 96 80 to E2 96 9F.
    const bool block = text.size() >= 3 && text.starts_with("\xE2\x96") && static_cast<unsigned char>(text[2]) < 0xA0;
    if (block != in_bar) result += block ? "\x1b[34m" : "\x1b[0m";
    in_bar = block;
    result += text.substr(0, block ? 3 : 1);
    text.remove_prefix(block ? 3 : 1);
  }
  return in_bar ? result + "\x1b[0m" : result;
}

bool locale_is_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    std::string name = value;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name.find("utf-8") != name.npos || name.find("utf8") != name.npos;
  }
  return sys::kTerminalIsUtf8;
}

std::size_t display_width(std::string_view text) {
  std::size_t total = 0;
  for_each_character(text, [&](std::string_view, int width) { total += static_cast<std::size_t>(width); });
  return total;
}

std::string fit(std::string_view text, std::size_t width) {
  const bool cut = display_width(text) > width;
  const std::size_t room = cut && width > 2 ? width - 2 : width;
  std::string shown;
  std::size_t used = 0;
  bool full = false;
  for_each_character(text, [&](std::string_view character, int columns) {
    full = full || used + static_cast<std::size_t>(columns) > room;
    if (full) return;
    shown += character;
    used += static_cast<std::size_t>(columns);
  });
  if (cut && width > 2) {
    shown += "..";
    used += 2;
  }
  return shown.append(width - used, ' ');
}

std::string bar(double part, std::size_t width, bool utf8) {
  if (!(part > 0)) return "";
  const double length = part * static_cast<double>(width);
  if (!utf8) {
    const auto full = static_cast<std::size_t>(std::lround(length));
    return full == 0 ? "." : std::string(full, '#');
  }
  static constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<std::size_t>(std::max(1L, std::lround(8 * length)));
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  return text.append(kEighths[eighths % 8]);
}

std::string bar_text(double part, std::size_t width, bool utf8) { return fit(bar(part, width, utf8), width); }

std::string folded(std::string_view text) {
  const std::size_t width = terminal_width(text.size() + 40);
  constexpr std::size_t kFarthest = 30;  // column where a meaning may begin
  std::string result;
  while (!text.empty()) {
    std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const bool example = line.starts_with("Example:") || line.substr(indent).starts_with("isentropic ");
    if (const std::size_t gap = line.find("  ", indent); gap < kFarthest) indent = line.find_first_not_of(' ', gap);
    for (std::size_t start = 0; !example && line.size() - start > width;) {
      const std::size_t at = line.rfind(' ', start + width);
      if (at == line.npos || at <= start + indent) break;  // a word that is too long
      line.replace(at, 1, '\n' + std::string(indent, ' '));
      start = at + 1;
    }
    result += line + '\n';
  }
  return result;
}

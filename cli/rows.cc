// Which format, read by what, written by what.
#include "rows.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "file.h"
#include "format.h"

namespace {

// The format that the name of a file ends in, or nullptr.
const Format* format_by_ending(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == path.npos) return nullptr;
  std::string ending(path.substr(dot + 1));
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.name == ending; });
  return found == std::end(kFormats) ? nullptr : found;
}

const Format& output_format(const Files& files) {
  if (is_stream(files.out)) return kFormats[0];
  const Format* format = format_by_ending(files.out);
  if (format == nullptr) bad_input("{}: the name must end in one of {}", files.out, format_endings());
  return *format;
}

}  // namespace

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::string format_endings() { return fmt::format(".{}", fmt::join(format_names(), ", .")); }

Table read_table(const Files& files) {
  if (is_standard(files.in) && !files.quiet && ::isatty(STDIN_FILENO)) {
    fmt::print(stderr, "entropic: reading scores from the keyboard; Ctrl-D ends them\n");
  }
  const std::string bytes = read_bytes(files.in);
  const Format* format = !files.in_format.empty() ? format_by_ending("." + files.in_format) : format_by_ending(files.in);
  if (format == nullptr && is_stream(files.in)) format = &kFormats[0];
  if (format == nullptr) {
    bad_input("{}: the name ends in none of {}; say which it is with --format-in", files.in, format_endings());
  }
  return format->read(bytes, input_name(files.in), files.reading);
}

void stream_rows(const Files& files, const std::function<Table(Table)>& result) {
  const Format& format = output_format(files);
  const Table table = result(read_table(files));
  write_output(files.out, [&](const Sink& sink) { format.write(table, sink); });
}

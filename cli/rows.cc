// Reading with the user at the keyboard, and with a bar that shows how far it is.
#include "rows.h"

#include <unistd.h>

#include <charconv>
#include <memory>
#include <stdexcept>
#include <string>

#include "files/stream.h"
#include "progress.h"

namespace {

std::shared_ptr<files::Input> opened(const Files& files) {
  if (files::is_standard(files.in) && !files.quiet && ::isatty(STDIN_FILENO)) {
    fmt::print(stderr, "entropic: reading scores from the keyboard; Ctrl-D ends them\n");
  }
  return std::make_shared<files::Input>(files.in);
}

// result(table), whose messages count rows from the first of the part: here they count from the first of the file.
Table with_rows_of_file(const std::function<Table(Table)>& result, Table table) {
  const std::size_t first_row = table.first_row;
  try {
    return result(std::move(table));
  } catch (const std::invalid_argument& error) {
    static constexpr std::string_view kRow = "row ";
    std::string message = error.what();
    const std::size_t at = message.find(kRow);
    if (first_row == 0 || at == message.npos) throw;
    const char* const number = message.data() + at + kRow.size();
    std::size_t row = 0;
    const auto [end, failure] = std::from_chars(number, message.data() + message.size(), row);
    if (failure != std::errc()) throw;
    message.replace(at + kRow.size(), static_cast<std::size_t>(end - number), fmt::format("{}", first_row + row));
    throw std::invalid_argument(message);
  }
}

}  // namespace

Table read_table(const Files& files) {
  const files::Format& format = files::input_format(files.in, files.in_format);
  return files::read_all(format.open(opened(files), files.reading));
}

Table read_other(const Files& files, const std::string& path) {
  if (path == files.in) return read_table(files);
  Files other;
  other.in = path;
  other.quiet = files.quiet;
  const bool alike = &files::input_format(files.in, files.in_format) == &files::input_format(path, "");
  if (alike) other.reading.key = files.reading.key;
  return read_table(other);
}

void stream_rows(const Files& files, const std::function<Table(Table)>& result,
                 const std::function<void(std::size_t rows)>& at_end) {
  const files::Format& to = files::output_format(files.out);
  const files::Format& from = files::input_format(files.in, files.in_format);
  const std::shared_ptr<files::Input> input = opened(files);
  Progress progress(*input, !files.quiet && !(files::is_standard(files.out) && ::isatty(STDOUT_FILENO)));
  const auto calculate = [&](Table table) { return with_rows_of_file(result, std::move(table)); };
  files::stream(
      from.open(input, files.reading), to, files.out, calculate, entropic::get_num_threads(), [&] { progress.update(); },
      at_end);
}

void write_table(const Files& files, Table table) {
  bool read = false;
  files::Reader from;
  from.counted = true;
  from.take = [&](files::Piece& piece, std::size_t) {
    if (read) return false;
    piece.table = std::move(table);
    return read = true;
  };
  files::stream(std::move(from), files::output_format(files.out), files.out, std::identity(), 1, [] {});
}

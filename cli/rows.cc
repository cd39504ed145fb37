// Reading and writing rows, with a note to a user at the keyboard and a progress bar.
#include "rows.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <system_error>

#include "files/join.h"
#include "files/stream.h"
#include "files/system.h"
#include "files/text.h"
#include "progress.h"

namespace {

void greet_keyboard(const Files& files) {
  if (files::is_standard(files.in) && files::sys::is_terminal(files::sys::standard_input)) {
    note(files, "reading scores from the keyboard; Ctrl-D ends the input");
  }
}

// The rows of FILE and of the files that follow, and the position of the reader.
struct Source {
  files::Reader reader;
  std::function<std::uint64_t()> position;
  std::optional<std::uint64_t> size;
};

Source source_of(const Files& files) {
  if (files.more.empty()) {
    const files::Format& format = files::input_format(files.in, files.in_format, files.reading.advised.format);
    greet_keyboard(files);
    const auto input = std::make_shared<files::Input>(files.in);
    return {files::open(format, input, files.reading), [input] { return input->position(); }, input->size()};
  }
  std::vector<std::string> paths = {files.in};
  paths.insert(paths.end(), files.more.begin(), files.more.end());
  const auto join = std::make_shared<files::Join>(std::move(paths), files.in_format, files.reading);
  return {join->reader(), [join] { return join->position(); }, join->size()};
}

}  // namespace

Origin::Origin(const Table& table, const std::string& path)
    : file_(table.file.empty() ? files::input_name(path) : table.file),
      places_(table.places),
      first_row_(table.first_row - table.rows_before),
      rows_(table.rows),
      cols_(table.cols) {}

void Origin::refuse(const isentropic::RowError& error, std::size_t row, bool label) const {
  isentropic::ErrorPlace place = error.place();
  place.row = row;
  refuse(error.what_alone(), place, as_options(error.advice()), label);
}

void Origin::refuse(const isentropic::ArgumentError& error) const {
  refuse(error.what_alone(), error.place(), as_options(error.advice()));
}

void Origin::refuse(std::string_view what, const isentropic::ErrorPlace& place, std::string_view advice, bool label) const {
  std::optional<std::size_t> row = place.row, cell = place.entry;
  if (!places_) {
    isentropic::ErrorPlace of_file = place;
    if (row && !place.row_first) of_file.row = first_row_ + *row;
    bad_input("{}: {}{}{}", file_, what, of_file.text(), advice);
  }
  if (!row && !cell) bad_input("{}: {}{}", file_, what, advice);
  // Masses may stand in a column, and a line may have several rows.
  std::size_t at = row.value_or(0);
  const std::size_t lines = places_->rows.size(), per_line = rows_ / std::max<std::size_t>(1, lines);
  if (cell && *cell >= cols_) at += *cell / cols_, cell = *cell % cols_;
  if (per_line > 1) cell = at % per_line, at /= per_line;
  if (!cell && cols_ == 1) cell = 0;
  if (label) cell = places_->cells.size() > cols_ ? std::optional(cols_) : std::nullopt;
  bad_input("{}{}: {}{}", file_, at < lines ? places_->text(at, cell) : "", what, advice);
}

std::string as_options(std::string_view advice) {
  if (advice.empty()) return "";
  const bool by_sum = advice.find("normalize") != advice.npos;
  return fmt::format("{}; --input scores takes scores", by_sum ? "; --normalize divides by the sum" : "");
}

void note(const Files& files, std::string_view what) {
  if (files.quiet) return;
  try {
    fmt::print(stderr, "isentropic: {}\n", what);
  } catch (const std::system_error&) {  // standard error is closed or full
  }
}

Table read_table(const Files& files) { return files::read_all(source_of(files).reader); }

Table read_other(const Files& files, const std::string& path, Holds holds, std::size_t width, const std::string& key) {
  Files other;
  if (path == files.in) {
    other = files;
    if (!key.empty()) other.reading.key = key;
    other.reading.first_row = 0;
    other.reading.end_row = files::kAllRows;
    return read_table(other);
  }
  other.in = path;
  other.quiet = files.quiet;
  const files::ReadOptions& given = files.reading;
  files::ReadOptions& reading = other.reading;
  reading.scores = given.scores;
  reading.advised = {.header = true, .delimiter = false, .columns = false, .missing = false, .key = false, .format = false};
  if (holds == Holds::alone) {
    const std::string_view format = files::input_format(path, "", false).name;
    if (format == "csv" || format == "tsv") reading.header = given.header;
    return read_table(other);
  }
  const bool same = holds == Holds::same;
  const files::Format* const ending = files::format_by_ending(path);
  // A pipe has a format without an ending.
  reading.advised.format =
      ending == nullptr ? same || !files::is_stream(path) : same && ending == files::format_by_ending(files.in);
  if (reading.advised.format) other.in_format = files.in_format;
  const files::Format& format = files::input_format(path, other.in_format, reading.advised.format);
  const bool alike = &files::input_format(files.in, files.in_format) == &format;
  reading.advised.header = reading.advised.delimiter = reading.advised.missing = reading.advised.key = alike;
  if (alike) {
    reading.key = given.key;
    reading.header = given.header;
    reading.delimiter = given.delimiter;
    reading.missing = given.missing;
    reading.na = given.na;
    reading.thousands = given.thousands;
  }
  if (alike && same) {
    reading.advised.columns = reading.shared = true;
    reading.label = given.label;
    reading.columns = given.columns;
    reading.exclude = given.exclude;
    reading.width = width;
  }
  if (!same) reading.first_label = given.label;
  if (!key.empty()) reading.key = key;
  return read_table(other);
}

const Table& SecondFile::table(const Files& files, const Table& rows, const std::function<void(Table&)>& prepare) {
  std::call_once(once_, [&] {
    try {
      if (files::is_standard(path) && files::is_standard(files.in)) {
        bad_input("standard input can be only one of the files");
      }
      table_ = read_other(files, path, holds, rows.width, key);
      prepare(table_);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
  if (failure_) std::rethrow_exception(failure_);
  return table_;
}

void check_order(const Files& files, const Table& rows, const std::string& path, const Table& other) {
  if (rows.header == other.header) return;
  const std::set<std::string_view> names(rows.header.begin(), rows.header.end());
  for (std::size_t c = 0; c < std::min(rows.header.size(), other.header.size()); ++c) {
    if (rows.header[c] == other.header[c] || !names.contains(other.header[c])) continue;
    bad_input("{}: the column {} is not where {} has it; columns are compared in their order", files::input_name(path),
              files::in_quotes(other.header[c]), files::input_name(files.in));
  }
}

void check_axes(const Files& files, const Table& rows, const std::string& path, const Table& other) {
  // The number of rows is checked elsewhere, and may not be known yet. It decides the first axis.
  const auto between = [](const Table& table) { return std::vector(table.shape.begin() + 1, table.shape.end() - 1); };
  if (rows.shape.size() <= 2 || other.shape.size() <= 2 || between(rows) == between(other)) return;
  bad_input("{}: its shape is ({}), and that of {} is ({})", files::input_name(path), fmt::join(other.shape, ", "),
            files::input_name(files.in), fmt::join(rows.shape, ", "));
}

void check_labels(const Files& files, const Table& rows, const std::string& path, const Table& other) {
  if (!rows.label_column || !other.label_column) return;
  for (std::size_t r = 0; r < rows.rows; ++r) {
    const std::size_t at = rows.first_row + r;
    if (rows.labels[r] == other.labels[at]) continue;
    const std::string place = rows.places ? rows.places->text(r, std::nullopt) : "";
    Origin(other, path)
        .refuse(fmt::format("the label is {}, and {}{} has {}", files::in_quotes(other.labels[at]), files::input_name(files.in),
                            place, files::in_quotes(rows.labels[r])),
                {.row = at}, "; rows are compared in their order", true);
  }
}

void SecondFile::check_columns(const Files& files, const Table& rows) const {
  if (table_.cols == rows.cols) {
    if (!beside_all()) check_axes(files, rows, path, table_);
    return check_order(files, rows, path, table_);
  }
  bad_input("{}: it has {} columns, and {} has {}", files::input_name(path), table_.cols, files::input_name(files.in),
            rows.cols);
}

void SecondFile::check_rows(const Files& files, const Table& rows) const {
  if (beside_all()) return;
  if (table_.rows >= rows.first_row + rows.rows) return check_labels(files, rows, path, table_);
  bad_input("{}: it has {} rows, fewer than {}{}", files::input_name(path), table_.rows, files::input_name(files.in), advice());
}

void SecondFile::check_end(const Files& files, std::size_t rows) const {
  // After a part of FILE there may be more rows.
  if (path.empty() || beside_all() || files.reading.end_row != files::kAllRows) return;
  rows += files.reading.first_row;
  if (table_.rows == rows) return;
  bad_input("{}: it has {} rows, and {} has {}{}", files::input_name(path), table_.rows, files::input_name(files.in), rows,
            advice());
}

void SecondFile::check_missing(const Files& files, std::string_view prefix) const {
  if (beside_all() || files.reading.missing != files::Missing::skip) return;
  bad_input("{}--missing skip leaves out rows of {}, and the others would no longer match those of {}", prefix,
            files::input_name(files.in), name_);
}

namespace {

// Refuses a result that would give a name twice. `made`: its names are not those of the file. A kept column gives way to one
// of the result, unless --keep names it.
void check_names(const Files& files, const files::Format& to, bool made, Table& table) {
  using Names = files::Format::Names;
  const bool lines = to.names == Names::keys;
  if (to.names == Names::none || (!lines && table.header.empty())) return;
  const std::vector<std::string> names = files::result_keys(table);
  const std::string file = table.file.empty() ? files::input_name(files.in) : table.file;
  if (lines) {
    std::vector<std::string_view> sorted(names.begin(), names.end());
    std::ranges::sort(sorted);
    if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
      bad_input("{}: two columns are called {}, and a .jsonl has each name once; --columns or --exclude leaves one out", file,
                files::in_quotes(*twice));
    }
  }
  if (!lines && !made) return;
  const auto taken = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  if (table.label_column && taken(table.label_header)) {
    const std::string_view from = files::input_format(files.in, files.in_format).name;
    const bool columns = from == "csv" || from == "tsv";
    bad_input("{}: the labels and a column of the result are both called {}; {}", file, files::in_quotes(table.label_header),
              columns ? "--exclude " + table.label_header + " leaves the labels out" : "rename the labels");
  }
  std::erase_if(table.kept, [&](const Table::Kept& column) {
    if (taken(column.name) && !files.reading.keep.empty()) {
      bad_input("{}: a column of the result is called {} too; leave it out of --keep", file, files::in_quotes(column.name));
    }
    return taken(column.name);
  });
}

// The format of the result. Bytes of arrays would spoil a terminal.
const files::Format& result_format(const Files& files) {
  const files::Format& to = files::output_format(files.out, files.out_format);
  const bool shown = files::is_standard(files.out) && files::sys::is_terminal(files::sys::standard_output);
  if (shown && to.encode == files::encode_binary) {
    bad_input("--format-out {}: standard output is a terminal; -o writes a file", to.name);
  }
  if (files.digits != 0 && to.encode == files::encode_binary) {
    bad_input("--precision is for numbers in text; a .{} keeps all their digits", to.name);
  }
  return to;
}

}  // namespace

void stream_rows(const Files& files, const std::function<Table(Table)>& result,
                 const std::function<void(std::size_t rows)>& at_end) {
  const files::Format& to = result_format(files);
  const Source from = source_of(files);
  Progress progress(from.position, from.size,
                    !files.quiet && !(files::is_standard(files.out) && files::sys::is_terminal(files::sys::standard_output)));
  const auto calculate = [&](Table table) {
    const Origin origin(table, files.in);
    const std::vector<std::string> names = table.header;
    try {
      table = result(std::move(table));
      check_names(files, to, table.header != names, table);
      table.digits = table.whole ? 0 : files.digits;
      return table;
    } catch (const isentropic::RowError& error) {
      origin.refuse(error, error.row());
    }
  };
  files::stream(
      from.reader, to, files.out, calculate, isentropic::get_num_threads(), [&] { progress.update(); }, at_end);
}

Table widened(Table table) {
  std::vector<float> wide;
  std::visit(
      [&]<class T>(const std::vector<T>& values) {
        if constexpr (isentropic::kIsHalf<T>) {
          wide.resize(values.size());
          std::transform(values.begin(), values.end(), wide.begin(), [](T value) { return static_cast<float>(value); });
        }
      },
      table.values);
  if (sizeof_number(table) == 2) table.values = std::move(wide);
  return table;
}

std::vector<double> as_doubles(const Table& table) {
  return std::visit(
      []<class T>(const std::vector<T>& values) {
        std::vector<double> numbers(values.size());
        std::transform(values.begin(), values.end(), numbers.begin(), as_double<T>);
        return numbers;
      },
      table.values);
}

double sum_tolerance(const Table& table) {
  return std::visit([]<class T>(const std::vector<T>&) { return isentropic::kSumTolerance<T>; }, table.values);
}

std::vector<double> as_distributions(const Table& table) {
  std::vector<double> numbers = as_doubles(table);
  const double tolerance = sum_tolerance(table);
  for (std::size_t r = 0; r < table.rows; ++r) {
    const std::span<double> row(numbers.data() + r * table.cols, table.cols);
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    if (std::abs(sum - 1) > tolerance) continue;
    for (double& p : row) p /= sum;
  }
  return numbers;
}

void write_table(const Files& files, Table table) {
  table.digits = table.whole ? 0 : files.digits;
  const files::Format& to = result_format(files);
  check_names(files, to, true, table);
  bool read = false;
  files::Reader from;
  from.counted = true;
  from.take = [&](files::Piece& piece, std::size_t) {
    if (read) return false;
    piece.table = std::move(table);
    return read = true;
  };
  files::stream(std::move(from), to, files.out, std::identity(), 1, [] {});
}

// Reads a file of rows and writes a file of results: the part that all commands share.
#pragma once

#include <isentropic/isentropic.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "options.h"

// Where a table comes from, for messages. It may outlive the table.
class Origin {
 public:
  // The file at `path`, or the one that the table names.
  Origin(const Table& table, const std::string& path);

  // Refuses row `row` of the table with the library's reason and the command line's advice. `label`: its label is wrong.
  [[noreturn]] void refuse(const isentropic::RowError& error, std::size_t row, bool label = false) const;

  // Refuses the argument that the table is, at the error's place.
  [[noreturn]] void refuse(const isentropic::ArgumentError& error) const;

  // Refuses the table at a place of it, whose name in the file follows.
  [[noreturn]] void refuse(std::string_view what, const isentropic::ErrorPlace& place, std::string_view advice = "",
                           bool label = false) const;

 private:
  std::string file_;
  std::shared_ptr<const files::Places> places_;
  std::size_t first_row_, rows_, cols_;
};

// The library's advice as options.
std::string as_options(std::string_view advice);

// Says something on standard error that is not an error, unless --quiet asks for silence.
void note(const Files& files, std::string_view what);

// All of the input.
Table read_table(const Files& files);

// What a file other than FILE holds: the same as FILE, such as distributions to compare with, or something else, such as
// classes or weights; or the command has no FILE.
enum class Holds { same, other, alone };

// All of such a file. --format-in applies to it if its name has no ending of a format or, if it holds the same, FILE's ending.
// If it then has FILE's format, --key, --header, --delimiter and --missing apply and, if it holds the same, --labels, --columns
// and --exclude, as far as it has these columns; `width` is Table::width of FILE. If it holds something else, the first column
// has labels if --labels names it. A command without FILE has only --header. Messages advise no other options.
Table read_other(const Files& files, const std::string& path, Holds holds, std::size_t width = 0, const std::string& key = {});

// Refuses a file, `path`, with a column that stands at another place than in FILE, whose rows are `rows`: the columns of both
// are compared in their order. Different names are fine.
void check_order(const Files& files, const Table& rows, const std::string& path, const Table& other);

// Refuse a file, `path`, whose rows are paired with those of FILE, if both are arrays of more than two axes that differ in one
// before the last, or if both have labels and a row has another one.
void check_axes(const Files& files, const Table& rows, const std::string& path, const Table& other);
void check_labels(const Files& files, const Table& rows, const std::string& path, const Table& other);

// A second file whose rows are matched with those of FILE. All of it is read when the first row is wanted.
class SecondFile {
 public:
  // `name` is its name in messages: Q, TARGET. `one_for_all`: a single row is matched with every row of FILE.
  explicit SecondFile(std::string_view name, bool one_for_all = false) : name_(name), one_for_all_(one_for_all) {}

  std::string path;
  std::string key;  // which of its arrays, if it is not the one of --key
  Holds holds = Holds::other;

  // Its rows, after prepare(them) has been called once. Several threads may ask. `rows` are those of FILE.
  const Table& table(const Files& files, const Table& rows, const std::function<void(Table&)>& prepare);

  // Its rows, which have been read.
  const Table& all() const { return table_; }

  // Refuse the file, once it is read, if it does not fit these rows of FILE, or FILE as a whole, which has `rows` rows.
  void check_columns(const Files& files, const Table& rows) const;
  void check_rows(const Files& files, const Table& rows) const;
  void check_end(const Files& files, std::size_t rows) const;

  // Refuses --missing skip, in a message after `prefix`: the remaining rows would be counted anew.
  void check_missing(const Files& files, std::string_view prefix = "") const;

 private:
  bool beside_all() const { return one_for_all_ && table_.rows == 1; }
  std::string_view advice() const { return one_for_all_ ? "; only a single row is compared with all" : ""; }

  std::string_view name_;
  bool one_for_all_;
  std::once_flag once_;
  Table table_;
  std::exception_ptr failure_;  // of the one attempt to read it
};

// Reads the input and writes result(its rows) to the output; writes no file if anything fails. A file larger than memory comes
// in parts, and several threads call result at once. So the result of a row may depend only on the row and its number
// (first_row for the first of a table), and all results must have the same names, type and number of columns. at_end may still
// refuse all of them.
void stream_rows(const Files& files, const std::function<Table(Table)>& result,
                 const std::function<void(std::size_t rows)>& at_end = {});

// Writes the table to the output.
void write_table(const Files& files, Table table);

template <class T>
isentropic::MatrixView<T> view(std::vector<T>& values, std::size_t rows, std::size_t cols) {
  return {values.data(), rows, cols};
}

template <class T>
double as_double(T number) {
  if constexpr (isentropic::kIsHalf<T>) {
    return static_cast<float>(number);
  } else {
    return number;
  }
}

// Bytes of a number.
inline std::size_t sizeof_number(const Table& table) {
  return std::visit([]<class T>(const std::vector<T>&) { return sizeof(T); }, table.values);
}

// All numbers of a table.
std::vector<double> as_doubles(const Table& table);

// The largest distance from 1 of the sum of a distribution in the table's type.
double sum_tolerance(const Table& table);

// All numbers of a table of distributions. A row whose sum is 1 within the tolerance of its own type is divided by that sum; it
// then passes the tolerance of every type.
std::vector<double> as_distributions(const Table& table);

// The table with float16 and bfloat16 as float: measures and sums of such numbers need more digits than the numbers.
Table widened(Table table);

// Calls f(values) with float16 and bfloat16 as float, for operations without these types.
void visit_wide(Table& table, const auto& f) {
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        if constexpr (isentropic::kIsHalf<T>) {
          std::vector<float> wide;
          wide.reserve(values.size());
          for (const T value : values) wide.push_back(static_cast<float>(value));
          f(wide);
          values.clear();
          for (const float value : wide) values.push_back(T(value));
        } else {
          f(values);
        }
      },
      table.values);
}

// The table after calculate(x, x) has replaced its rows x.
Table in_place(Table table, const auto& calculate) {
  std::visit(
      [&](auto& values) {
        const auto x = view(values, table.rows, table.cols);
        calculate(x, x);
      },
      table.values);
  return table;
}

// The table with one number for each row, as a column called `name`: calculate(x, y) writes the numbers y of the rows x. For
// float16 and bfloat16, y is float.
Table one_per_row(Table table, std::string_view name, const auto& calculate) {
  std::vector<float> results;
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        using Y = std::conditional_t<isentropic::kIsHalf<T>, float, T>;
        std::vector<Y> y(table.rows);
        calculate(isentropic::MatrixView<const T>(view(values, table.rows, table.cols)), view(y, table.rows, 1));
        if constexpr (isentropic::kIsHalf<T>) {
          results = std::move(y);
        } else {
          values.assign(y.begin(), y.end());  // in the memory that the next part will want
        }
      },
      table.values);
  if (sizeof_number(table) == 2) table.values = std::move(results);
  table.cols = 1;
  table.shape.pop_back();
  if (!table.header.empty()) table.header = {std::string(name)};
  return table;
}

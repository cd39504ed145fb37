// Measures as commands: one number for each row, for each pair of rows, for each table, or for each entry.

#include <memory>
#include <mutex>

#include "commands.h"
#include "operation.h"

namespace {

// One number for each row, in the precision of the file.
template <class T>
std::vector<T> narrowed(const std::vector<double>& numbers) {
  std::vector<T> result;
  result.reserve(numbers.size());
  for (const double number : numbers) {
    if constexpr (entropic::kIsHalf<T>) {
      result.push_back(T(static_cast<float>(number)));
    } else {
      result.push_back(static_cast<T>(number));
    }
  }
  return result;
}

template <class Op>
Table of_rows(const Op& op, Table table) {
  return one_per_row(std::move(table), Op::kDescription.name, [&]<class T>(entropic::MatrixView<const T> x, auto y) {
    std::vector<double> value(x.rows);
    entropic::measure(op, x, std::span<double>(value));
    const std::vector<T> numbers = narrowed<T>(value);
    std::copy(numbers.begin(), numbers.end(), y.data);
  });
}

template <class Op>
Table of_entries(const Op& op, Table table) {
  return in_place(std::move(table), [&]<class T>(entropic::MatrixView<T> x, entropic::MatrixView<T> y) {
    entropic::measure(op, entropic::MatrixView<const T>(x), y);
  });
}

// The rows that P is compared with, read when the first of P is.
struct Others {
  std::string path;
  std::once_flag once;
  Table table;
  std::exception_ptr failure;  // of the one attempt to read them
};

// Compares rows of P with those of Q.
struct Pairs {
  std::shared_ptr<Others> others;
  const Files& files;

  template <class Op>
  Table operator()(const Op& op, Table p) const;

  void at_end(std::size_t rows) const {
    const Table& q = others->table;
    if (q.rows == 1 || q.rows == rows) return;
    files::bad_input("{}: {} rows, and {} has {}; one row is compared with all", files::input_name(others->path), q.rows,
                     files::input_name(files.in), rows);
  }
};

template <class Op>
Table Pairs::operator()(const Op& op, Table p) const {
  std::call_once(others->once, [&] {
    try {
      if (others->path.empty()) files::bad_input("{}: Q is missing, the file that P is compared with", Op::kDescription.name);
      others->table = read_other(files, others->path);
      if (others->table.values.index() != p.values.index()) others->table.values = as_doubles(others->table);
    } catch (...) {
      others->failure = std::current_exception();
    }
  });
  if (others->failure) std::rethrow_exception(others->failure);
  const Table& q = others->table;
  if (q.cols != p.cols) {
    files::bad_input("{}: {} columns, and {} has {}", files::input_name(others->path), q.cols, files::input_name(files.in),
                     p.cols);
  }
  if (q.rows != 1 && q.rows < p.first_row + p.rows) {
    files::bad_input("{}: {} rows, fewer than {}; one row is compared with all", files::input_name(others->path), q.rows,
                     files::input_name(files.in));
  }
  if (p.values.index() != q.values.index()) p.values = as_doubles(p);
  const std::size_t first_row = p.first_row;
  return one_per_row(std::move(p), Op::kDescription.name, [&]<class T>(entropic::MatrixView<const T> x, auto y) {
    const T* const all = std::get<std::vector<T>>(q.values).data();
    const entropic::MatrixView<const T> rows(all + (q.rows == 1 ? 0 : first_row * q.cols), q.rows == 1 ? 1 : x.rows, q.cols);
    std::vector<double> value(x.rows);
    try {
      entropic::measure(op, x, rows, std::span<double>(value));
    } catch (const entropic::RowError& error) {
      if (error.argument() != "q") throw;
      refuse_row(others->path, error, (q.rows == 1 ? 0 : first_row) + error.row());
    }
    const std::vector<T> numbers = narrowed<T>(value);
    std::copy(numbers.begin(), numbers.end(), y.data);
  });
}

// The last two axes are a table.
template <class Op>
Table of_table(const Op& op, Table table) {
  const std::size_t rows = table.shape.size() < 2 ? table.rows : table.shape[table.shape.size() - 2];
  const std::size_t tables = rows == 0 ? 0 : table.rows / rows;
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        std::vector<double> numbers;
        for (std::size_t t = 0; t < tables; ++t) {
          const entropic::MatrixView<const T> pxy(values.data() + t * rows * table.cols, rows, table.cols);
          numbers.push_back(entropic::measure(op, pxy));
        }
        values = narrowed<T>(numbers);
      },
      table.values);
  table.shape.resize(table.shape.size() - std::min<std::size_t>(table.shape.size(), 2));
  table.rows = tables;
  table.cols = 1;
  if (!table.header.empty()) table.header = {std::string(Op::kDescription.name)};
  table.label_column.reset();
  table.labels.clear();
  return table;
}

}  // namespace

void add_measures(CLI::App& app, Program& program) {
  using entropic::for_each_operation;
  const std::string_view group = kMeasures.name;
  for_each_operation<entropic::Measure>([&]<class Op>(std::type_identity<Op>) {
    add_operation<Op>(app, group, program, of_rows<Op>,
                      {.input = "probabilities", .holds = "Probabilities", .output = "result.csv"});
  });
  for_each_operation<entropic::Divergence>([&]<class Op>(std::type_identity<Op>) {
    const auto others = std::make_shared<Others>();
    CLI::App& command =
        add_operation<Op>(app, group, program, Pairs{others, program.files},
                          {.input = "p.csv q",
                           .holds = "P, distributions",
                           .output = "result.csv",
                           .remark = "A Q with one row is compared with every row of FILE, otherwise row by row.\n"});
    add_path(command, "Q", others->path, "standard input", "Q, distributions to compare them with")->option_text(" ");
  });
  for_each_operation<entropic::TableMeasure>([&]<class Op>(std::type_identity<Op>) {
    add_operation<Op>(app, group, program, of_table<Op>,
                      {.input = "table",
                       .holds = "Joint probabilities",
                       .output = "result.csv",
                       .remark = "All of the file is one table, x in rows; of an array with more axes the last two are.\n",
                       .whole = true});
  });
  for_each_operation<entropic::EntryMeasure>([&]<class Op>(std::type_identity<Op>) {
    add_operation<Op>(app, group, program, of_entries<Op>,
                      {.input = "probabilities", .holds = "Probabilities", .output = "result.csv"});
  });
}

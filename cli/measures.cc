// Measures as commands: one number for each row, for each pair of rows, for each table, or for each entry.

#include <memory>

#include "commands.h"
#include "operation.h"

namespace {

// Compares rows of P with those of Q.
struct Pairs {
  std::shared_ptr<SecondFile> others;
  const Files& files;

  Table compared(const isentropic::OperationInfo& info, const isentropic::Divergence& op, Table p) const;
};

Table Pairs::compared(const isentropic::OperationInfo& info, const isentropic::Divergence& op, Table p) const {
  const std::string_view name = info.name;
  const std::vector<isentropic::ParamValue> values = isentropic::values_of(op);
  const SecondFile& from = *others;
  const bool of_distributions = std::visit([](const auto& one) { return one.input == isentropic::Input::probs; }, op);
  const auto as_numbers = of_distributions ? as_distributions : as_doubles;
  if (others->path.empty()) files::bad_input("{}: Q is missing; it is the file that P is compared with", name);
  const Table& q = others->table(files, p, [&](Table& table) {
    if (table.values.index() != p.values.index()) table.values = as_numbers(table);
  });
  others->check_columns(files, p);
  others->check_rows(files, p);
  if (p.values.index() != q.values.index()) p.values = as_numbers(p);
  others->check_missing(files, fmt::format("{}: ", name));
  const std::size_t first_row = p.first_row;
  return one_per_row(std::move(p), name, [&]<class T>(isentropic::MatrixView<const T> x, auto y) {
    const T* const all = std::get<std::vector<T>>(q.values).data();
    ArrayOf of_q = numbers_of(isentropic::MatrixView<const T>(all + (q.rows == 1 ? 0 : first_row * q.cols), x.rows, q.cols));
    of_q.is_one_row = q.rows == 1;
    try {
      call(info, values, {{numbers_of(x), of_q, column_of(y)}});
    } catch (const isentropic::RowError& error) {
      if (error.argument() != "q") throw;
      Origin(q, from.path).refuse(error, (q.rows == 1 ? 0 : first_row) + error.row());
    }
  });
}

// The last two axes are a table.
Table of_table(const isentropic::OperationInfo& info, const std::vector<isentropic::ParamValue>& values, const Files& files,
               Table table) {
  const std::size_t rows = table.shape.size() < 2 ? table.rows : table.shape[table.shape.size() - 2];
  const std::size_t tables = rows == 0 ? 0 : table.rows / rows;
  std::vector<double> numbers;
  std::visit(
      [&]<class T>(std::vector<T>& of_tables) {
        for (std::size_t t = 0; t < tables; ++t) {
          const isentropic::MatrixView<const T> pxy(of_tables.data() + t * rows * table.cols, rows, table.cols);
          try {
            double& number = numbers.emplace_back();
            call(info, values, {{numbers_of(pxy), column_of(isentropic::MatrixView<double>(&number, 1, 1))}});
          } catch (const isentropic::RowError& error) {
            Origin(table, files.in).refuse(error, t * rows + error.row());
          } catch (const isentropic::ArgumentError& error) {
            Origin(table, files.in).refuse(error);
          }
        }
      },
      table.values);
  if (sizeof_number(table) == sizeof(double)) {
    table.values = std::move(numbers);
  } else {
    table.values = std::vector<float>(numbers.begin(), numbers.end());
  }
  table.shape.resize(table.shape.size() - std::min<std::size_t>(table.shape.size(), 2));
  table.rows = tables;
  table.cols = 1;
  if (!table.header.empty()) table.header = {std::string(info.name)};
  table.label_column.reset();
  table.labels.clear();
  return table;
}

}  // namespace

void add_measures(CLI::App& app, Program& program) {
  using isentropic::OperationInfo;
  const Footnotes probabilities = {.input = "probabilities", .holds = "Probabilities", .output = "result.csv"};
  add_rows<isentropic::Measure>(app, program, probabilities);
  for (const OperationInfo& info : isentropic::family_info<isentropic::Divergence>().operations) {
    const auto others = std::make_shared<SecondFile>("Q", true);
    others->holds = Holds::same;
    const auto evaluate = [others, &program](const Arguments& arguments) -> Evaluation {
      const Pairs pairs = {others, program.files};
      return {[pairs, &info = arguments.info, op = made<isentropic::Divergence>(arguments)](Table p) {
                return pairs.compared(info, op, std::move(p));
              },
              [pairs](std::size_t rows) { pairs.others->check_end(pairs.files, rows); }};
    };
    CLI::App& command = add_operation(app, program, info, evaluate,
                                      {.input = "p.csv q",
                                       .holds = "P, distributions",
                                       .output = "result.csv",
                                       .remark = "A Q with one row is compared with every row of FILE, otherwise row by row.\n",
                                       .second = true});
    add_path(command, "Q", others->path, "standard input", "The distributions that P is compared with")
        ->option_text(std::string(kRequired));
  }
  const auto evaluate_table = [&program](const auto& op, const OperationInfo& info) -> Evaluation {
    return {[&info, values = isentropic::values_of(op), &files = program.files](Table table) {
      return of_table(info, values, files, std::move(table));
    }};
  };
  Footnotes tables = {
      .input = "table",
      .holds = "Joint probabilities",
      .output = "result.csv",
      .remark = "The whole file is one table, x in rows; in an array with more axes, the last two are a table.\n",
      .whole = true};
  add_family<isentropic::TableMeasure>(app, program, evaluate_table, tables);
  tables.input = "count_table", tables.holds = "Counts of pairs";
  add_family<isentropic::CountTableMeasure>(app, program, evaluate_table, tables);
  add_rows<isentropic::CountMeasure>(app, program, {.input = "counts", .holds = "Counts", .output = "result.csv"});
  add_rows<isentropic::EntryMeasure>(app, program, probabilities, true);
}

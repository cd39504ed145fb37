// Maps of tables as commands.
#include "commands.h"
#include "operation.h"

void add_table_maps(CLI::App& app, Program& program) {
  const auto evaluate = [](const isentropic::TableMap& op, const isentropic::OperationInfo& info) -> Evaluation {
    return {[&info, values = isentropic::values_of(op)](Table table) {
      table = widened(std::move(table));
      const std::size_t rows = table.shape.size() < 2 ? table.rows : table.shape[table.shape.size() - 2];
      return in_place(std::move(table), [&]<class T>(isentropic::MatrixView<T> x, isentropic::MatrixView<T> y) {
        for (std::size_t first = 0; rows > 0 && first < x.rows; first += rows) {
          const auto of = [&](isentropic::MatrixView<T> all) {
            return numbers_of(isentropic::MatrixView<T>(all.row(first), rows, all.cols));
          };
          call(info, values, {{of(x), of(y)}});
        }
      });
    }};
  };
  add_family<isentropic::TableMap>(
      app, program, evaluate,
      {.remark = "The whole file is one table; in an array with more axes, the last two are a table.\n", .whole = true});
}

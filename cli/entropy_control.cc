// Entropy control as commands: the gamma of each row, and powers of distributions.
#include "commands.h"
#include "operation.h"

namespace {

// gamma, the entropy reached and the status. The result has a header even if the scores have none.
Table evaluated(const isentropic::GammaForEntropy& options, Table table) {
  std::vector<double> gamma(table.rows), entropy(table.rows), columns;
  std::vector<isentropic::GammaStatus> status(table.rows);
  visit_wide(table, [&]<class T>(std::vector<T>& values) {
    const isentropic::MatrixView<const T> x = view(values, table.rows, table.cols);
    isentropic::gamma_for_entropy(options, x, gamma, entropy, status);
  });
  for (std::size_t r = 0; r < table.rows; ++r) {
    columns.push_back(gamma[r]);
    columns.push_back(entropy[r]);
    table.notes.emplace_back(isentropic::kGammaStatusNames[static_cast<std::size_t>(status[r])]);
  }
  table.values = std::move(columns);
  table.cols = table.shape.back() = 2;
  if (table.header.empty() && table.label_column && table.label_header.empty()) table.label_header = "label";
  table.header = {"gamma", "entropy"};
  table.note_header = "status";
  return table;
}

Table evaluated(const isentropic::PowerTransform& options, Table table) {
  visit_wide(table, [&](auto& values) {
    const auto p = view(values, table.rows, table.cols);
    isentropic::power_transform(options, p, p);
  });
  return table;
}

}  // namespace

void add_entropy_control(CLI::App& app, Program& program) {
  const auto add = [&]<class Op>(std::type_identity<Op>, const Footnotes& footnotes) {
    const isentropic::FamilyInfo& family = isentropic::family_info<isentropic::EntropyControl>();
    const auto evaluate = [](const Arguments& arguments) -> Evaluation {
      return {[op = std::get<Op>(made<isentropic::EntropyControl>(arguments))](Table table) {
        return evaluated(op, std::move(table));
      }};
    };
    add_operation(app, program, *find_operation(family, isentropic::Described<Op>::kDescription.name), evaluate, footnotes);
  };
  add(std::type_identity<isentropic::GammaForEntropy>{},
      {.output = "result.csv",
       .remark = "The output has gamma, the entropy reached and a status.\nAn .npy leaves the status out.\n"});
  add(std::type_identity<isentropic::PowerTransform>{}, {.input = "probabilities", .holds = "Probabilities"});
}

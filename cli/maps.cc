// The maps as commands, and softmax's logarithms.
#include "commands.h"
#include "operation.h"

namespace {

// Results stand where the scores stood, unless they have another shape.
Table evaluated(const entropic::Map& map, Table table) {
  return in_place(std::move(table), [&](auto x, auto p) { entropic::apply(map, x, p); });
}

Table evaluated(const entropic::LogSoftmax& options, Table table) {
  return in_place(std::move(table), [&](auto x, auto y) { entropic::log_softmax(x, y, options); });
}

Table evaluated(const entropic::LogSumExp& options, Table table) {
  return one_per_row(std::move(table), options.kDescription.name, [&](auto x, auto y) { entropic::logsumexp(x, y, options); });
}

}  // namespace

void add_maps(CLI::App& app, Program& program) {
  const auto evaluate = [](const auto& op, Table table) { return evaluated(op, std::move(table)); };
  entropic::for_each_operation<entropic::Map>(
      [&]<class Op>(std::type_identity<Op>) { add_operation<Op>(app, kMaps.name, program, evaluate); });
  entropic::for_each_operation<Logarithms>(
      [&]<class Op>(std::type_identity<Op>) { add_operation<Op>(app, kLogarithms.name, program, evaluate); });
}

// The maps as commands, and softmax's logarithms.
#include "commands.h"
#include "operation.h"

namespace {

// Results take the place of the scores, unless they have another shape.
Evaluation of_map(const isentropic::Map& map, const isentropic::OperationInfo& /*info*/) {
  return {[map](Table table) { return in_place(std::move(table), [&](auto x, auto p) { isentropic::apply(map, x, p); }); }};
}

Evaluation of_logarithm(const isentropic::Logarithm& logarithm, const isentropic::OperationInfo& info) {
  if (const auto* const log_sum_exp = std::get_if<isentropic::LogSumExp>(&logarithm)) {
    return {[op = *log_sum_exp, &info](Table table) {
      return one_per_row(widened(std::move(table)), info.name, [&]<class T>(isentropic::MatrixView<const T> x, auto y) {
        if constexpr (!isentropic::kIsHalf<T>) isentropic::logsumexp(op, x, y);
      });
    }};
  }
  return {[op = std::get<isentropic::LogSoftmax>(logarithm)](Table table) {
    return in_place(std::move(table), [&](auto x, auto y) { isentropic::log_softmax(op, x, y); });
  }};
}

}  // namespace

void add_maps(CLI::App& app, Program& program) {
  add_family<isentropic::Map>(app, program, of_map);
  add_family<isentropic::Logarithm>(app, program, of_logarithm);
}

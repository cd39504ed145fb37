// The maps as commands, and softmax's logarithms.
#include "commands.h"
#include "operation.h"

namespace {

// Results take the place of the scores, unless they have another shape.
Evaluation of_map(const entropic::Map& map, const entropic::OperationInfo& /*info*/) {
  return {[map](Table table) { return in_place(std::move(table), [&](auto x, auto p) { entropic::apply(map, x, p); }); }};
}

Evaluation of_logarithm(const entropic::Logarithm& logarithm, const entropic::OperationInfo& info) {
  if (const auto* const log_sum_exp = std::get_if<entropic::LogSumExp>(&logarithm)) {
    return {[op = *log_sum_exp, &info](Table table) {
      return one_per_row(widened(std::move(table)), info.name, [&]<class T>(entropic::MatrixView<const T> x, auto y) {
        if constexpr (!entropic::kIsHalf<T>) entropic::logsumexp(op, x, y);
      });
    }};
  }
  return {[op = std::get<entropic::LogSoftmax>(logarithm)](Table table) {
    return in_place(std::move(table), [&](auto x, auto y) { entropic::log_softmax(op, x, y); });
  }};
}

}  // namespace

void add_maps(CLI::App& app, Program& program) {
  add_family<entropic::Map>(app, program, of_map);
  add_family<entropic::Logarithm>(app, program, of_logarithm);
}

// Calls on tables, which are an array's last two axes, without gaps.

#include <span>
#include <stdexcept>
#include <string>
#include <variant>

#include "src/call/arguments.h"

namespace isentropic::inline ISENTROPIC_ABI::call {
namespace {

template <class T>
double measure_table(const TableMeasure& op, MatrixView<const T> table, MatrixView<T> gradient) {
  return measure<T>(op, table, gradient);
}
template <class T>
double measure_table(const CountTableMeasure& op, MatrixView<const T> table, MatrixView<T> /*none*/) {
  return mutual_information_of_counts<T>(std::get<MutualInformationOfCounts>(op), table);
}

template <class Family>
void run_table(Arguments& call) {
  const auto op = call.make<Family>();
  const bool has_gradient = call.call().operation.arrays.size() > 2;
  const CallArray &pxy = call.array(0), &value = call.array(1), none = {}, &dp = has_gradient ? call.array(2) : none;
  for (const CallArray* one : {&pxy, &dp}) {
    if (one->given() && (one->shape.size() < 2 || !without_gaps(*one) || one->type != pxy.type)) {
      fail("{}: {} must have no gaps, and the type of {}", call.where(), one == &pxy ? call.name(0) : call.name(2),
           call.name(0));
    }
  }
  call.check_numbers(call.name(1), value);
  const auto rows = static_cast<std::size_t>(pxy.shape[pxy.shape.size() - 2]),
             cols = static_cast<std::size_t>(pxy.shape.back());
  std::size_t tables = 1;
  for (const std::ptrdiff_t size : pxy.shape.first(pxy.shape.size() - 2)) tables *= static_cast<std::size_t>(size);
  if (count_of(value) != tables) {
    fail("{}: value must have one number for each of {} tables, got shape {}", call.where(), tables, shape_text(value.shape));
  }
  const std::span<double> found = call.room<double>(value, tables);
  on_type<!kSmall>(call, call.name(0), pxy, [&]<class T>(std::type_identity<T>) {
    for (std::size_t t = 0; t < tables; ++t) {
      const std::size_t begin = t * rows * cols;
      const MatrixView<const T> table(reinterpret_cast<const T*>(pxy.data) + begin, rows, cols);
      MatrixView<T> gradient;
      if (dp.given()) gradient = {reinterpret_cast<T*>(dp.data) + begin, rows, cols};
      try {
        found[t] = measure_table<T>(op, table, gradient);
      } catch (const std::invalid_argument& error) {
        if (tables == 1) throw;
        throw std::invalid_argument(std::string(error.what()) + ", in table " + std::to_string(t));
      }
    }
  });
  if (!Arguments::in_place<double>(value)) store<double>(value, found);
}

}  // namespace

void run_table_measure(Arguments& call) { run_table<TableMeasure>(call); }
void run_count_table(Arguments& call) { run_table<CountTableMeasure>(call); }

// All arrays have the shape of the first.
void run_table_map(Arguments& call) {
  const auto op = std::get<DoublyStochastic>(call.make<TableMap>());
  const CallArray& x = call.first();
  for (std::size_t i = 0; i < call.infos().size(); ++i) {
    const CallArray& one = call.array(i);
    if (one.shape.size() < 2 || !without_gaps(one) || one.type != x.type || !std::ranges::equal(one.shape, x.shape)) {
      fail("{}: {} must have no gaps, and the type and shape of {}, {}, with two axes at least", call.where(), call.name(i),
           call.name(0), shape_text(x.shape));
    }
  }
  const auto cols = static_cast<std::size_t>(x.shape.back());
  std::size_t tables = 1;
  for (const std::ptrdiff_t size : x.shape.first(x.shape.size() - 2)) tables *= static_cast<std::size_t>(size);
  const std::size_t rows = tables * static_cast<std::size_t>(x.shape[x.shape.size() - 2]);
  on_type<true, false>(call, call.name(0), x, [&]<class T>(std::type_identity<T>) {
    const auto in = [&](std::size_t i) {
      return MatrixView<const T>(reinterpret_cast<const T*>(call.array(i).data), rows, cols);
    };
    const auto out = [&](std::size_t i) { return MatrixView<T>(reinterpret_cast<T*>(call.array(i).data), rows, cols); };
    if (call.call().vjp) return doubly_stochastic_vjp<T>(op, in(0), in(1), in(2), out(3), tables);
    doubly_stochastic<T>(op, in(0), out(1), tables);
  });
}

}  // namespace isentropic::inline ISENTROPIC_ABI::call

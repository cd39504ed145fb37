// Calls of transport: arrays of one type, float32 or float64, with rows whose numbers have no gaps.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "src/call/arguments.h"

namespace isentropic::inline ISENTROPIC_ABI::call {
namespace {

// An array of two axes in place; no rows if it was left out.
template <class T>
MatrixView<T> matrix_of(const Arguments& call, std::string_view name) {
  const CallArray* const a = call.find(name);
  if (a == nullptr) return {};
  call.check_type_of_first(name, *a);
  if (a->shape.size() != 2) fail("{}: {} must have two axes, got shape {}", call.where(), name, shape_text(a->shape));
  constexpr auto kItem = static_cast<std::ptrdiff_t>(sizeof(T));
  if ((a->shape[1] > 1 && a->strides[1] * a->unit != kItem) || (a->shape[0] > 1 && a->strides[0] < 0)) {
    fail("{}: {} must have a col_stride of 1 and a row_stride of at least 0, got {} and {}", call.where(), name,
         a->strides[1] * a->unit / kItem, a->strides[0] * a->unit / kItem);
  }
  const auto cols = static_cast<std::size_t>(a->shape[1]);
  const std::size_t stride = a->shape[0] > 1 ? static_cast<std::size_t>(a->strides[0] * a->unit / kItem) : cols;
  return {reinterpret_cast<T*>(a->data), static_cast<std::size_t>(a->shape[0]), cols, stride};
}

// The numbers of an array as Number; as a rule it has one row or one column.
template <class Number>
std::vector<Number> numbers_of(const Arguments& call, std::string_view name, bool one = true) {
  const CallArray* const a = call.find(name);
  if (a == nullptr) return {};
  if (one && std::ranges::count_if(a->shape, [](std::ptrdiff_t size) { return size != 1; }) > 1) {
    fail("{}: {} must have one row or one column, got shape {}", call.where(), name, shape_text(a->shape));
  }
  call.check_numbers(name, *a);
  std::vector<double> wide(count_of(*a));
  load<double>(*a, wide);
  return {wide.begin(), wide.end()};
}

template <class Number>
void check_column(const Arguments& call, std::string_view name, const CallArray& a, std::size_t count) {
  if (!std::is_integral_v<Number> || a.type != NumberType::boolean) call.check_type<Number>(name, a);  // whether it converged
  if (count_of(a) == count) return;
  fail("{}: {} must have one number for each of {} problems, got shape {}", call.where(), name, count, shape_text(a.shape));
}

// Stores of(i) for each problem i, if the array is wanted. toward: as for store().
template <class Number, class Of>
void column_of(const Arguments& call, std::string_view name, std::size_t count, const Of& of, int toward = 0) {
  const CallArray* const a = call.find(name);
  if (a == nullptr) return;
  check_column<Number>(call, name, *a, count);
  std::vector<Number> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<Number>(of(i));
  store<Number>(*a, numbers, toward);
}

// Calls run(numbers) and stores them as `value`.
template <class Run>
void with_values(Arguments& call, std::size_t count, const Run& run) {
  const CallArray& value = call["value"];
  check_column<double>(call, "value", value, count);
  const std::span<double> numbers = call.room<double>(value, count);
  run(numbers);
  if (!Arguments::in_place<double>(value)) store<double>(value, numbers);
}

template <class Result>
double cost_in(const Result& result) {
  if constexpr (requires { result.cost; }) {
    return result.cost;
  } else {
    return result.value;
  }
}

// A cost as it is stored: the array may be float32.
inline double stored(const Arguments& call, double cost) {
  return call["value"].type == NumberType::float32 ? static_cast<float>(cost) : cost;
}

// The gaps, including what rounding the costs to float32 changes.
template <class Result>
void gaps_of(const Arguments& call, std::span<const Result> results) {
  const auto gap = [&](std::size_t i) {
    const double cost = cost_in(results[i]), off = std::isfinite(cost) ? std::abs(cost - stored(call, cost)) : 0;
    return off == 0 ? results[i].gap : std::nextafter(results[i].gap + off, std::numeric_limits<double>::infinity());
  };
  column_of<double>(call, "gap", results.size(), gap, 1);
}

template <class T, class Result, class Options>
void plans(const Arguments& call, const Options& options, const auto& run, const auto& store) {
  const auto a = matrix_of<const T>(call, "a"), b = matrix_of<const T>(call, "b");
  const auto cost = matrix_of<const T>(call, "cost");
  auto f = matrix_of<T>(call, "f"), g = matrix_of<T>(call, "g");
  std::vector<T> kept_f, kept_g;
  const auto or_own = [](MatrixView<T>& view, std::vector<T>& kept, MatrixView<const T> like) {
    if (view.data != nullptr || like.rows == 0) return;
    kept.resize(like.rows * like.cols);
    view = {kept.data(), like.rows, like.cols};
  };
  or_own(f, kept_f, a), or_own(g, kept_g, b);
  std::vector<Result> results(a.rows);
  run(options, a, b, cost, matrix_of<T>(call, "plan"), f, g, std::span(results));
  for (const Result& one : results) {
    if (std::isfinite(cost_in(one)) && !std::isfinite(stored(call, cost_in(one)))) {
      fail("{}: the cost of the plan, {}, is beyond float32; pass value in float64", call.where(), cost_in(one));
    }
  }
  column_of<double>(call, "value", a.rows, [&](std::size_t i) { return cost_in(results[i]); });
  store(std::span<const Result>(results));
}

template <class T>
void transport(Arguments& call) {
  const Transport op = call.make<Transport>();
  if (const auto* const exact = std::get_if<OptimalTransport>(&op)) {
    return plans<T, TransportResult>(
        call, *exact, [](const auto&... arguments) { optimal_transport<T>(arguments...); },
        [&](std::span<const TransportResult> results) {
          gaps_of(call, results);
          column_of<std::int64_t>(call, "status", results.size(), [&](std::size_t i) { return results[i].status; });
        });
  }
  const auto matrix = [&](std::string_view name) { return matrix_of<const T>(call, name); };
  const auto slope = [&](std::string_view name) { return matrix_of<T>(call, name); };
  if (const auto* const line = std::get_if<Wasserstein1d>(&op)) {
    const auto u = matrix("u");
    return with_values(call, u.rows, [&](std::span<double> value) {
      wasserstein_1d<T>(*line, u, matrix("v"), matrix("u_weights"), matrix("v_weights"), value, slope("du"), slope("dv"));
    });
  }
  if (const auto* const line = std::get_if<WassersteinHistogram>(&op)) {
    const auto p = matrix("p");
    std::vector<double> support = numbers_of<double>(call, "support");
    if (call.find("support") == nullptr) {
      for (std::size_t i = 0; i < p.cols; ++i) support.push_back(static_cast<double>(i));
    }
    return with_values(call, p.rows, [&](std::span<double> value) {
      wasserstein_histogram<T>(*line, p, matrix("q"), support, value, slope("dp"), slope("dq"));
    });
  }
  if constexpr (!kSmall) {
    if (const auto* const part = std::get_if<PartialTransport>(&op)) {
      return plans<T, PartialTransportResult>(
          call, *part, [](const auto&... arguments) { partial_transport<T>(arguments...); },
          [&](std::span<const PartialTransportResult> results) {
            column_of<double>(call, "multiplier", results.size(), [&](std::size_t i) { return results[i].multiplier; });
            gaps_of(call, results);
            column_of<std::int64_t>(call, "status", results.size(), [&](std::size_t i) { return results[i].status; });
          });
    }
    if (const auto* const smooth = std::get_if<Sinkhorn>(&op)) {
      return plans<T, SinkhornResult>(
          call, *smooth, [](const auto&... arguments) { sinkhorn<T>(arguments...); },
          [&](std::span<const SinkhornResult> all) {
            column_of<double>(call, "marginal_error", all.size(), [&](std::size_t i) { return all[i].marginal_error; });
            column_of<double>(
                call, "lower_bound", all.size(), [&](std::size_t i) { return all[i].lower_bound; }, -1);
            column_of<double>(
                call, "upper_bound", all.size(), [&](std::size_t i) { return all[i].upper_bound; }, 1);
            column_of<std::int64_t>(call, "iterations", all.size(), [&](std::size_t i) { return all[i].iterations; });
            column_of<std::int64_t>(call, "converged", all.size(), [&](std::size_t i) { return all[i].converged; });
          });
    }
    if (const auto* const unequal = std::get_if<UnbalancedSinkhorn>(&op)) {
      return plans<T, UnbalancedSinkhornResult>(
          call, *unequal, [](const auto&... arguments) { unbalanced_sinkhorn<T>(arguments...); },
          [&](std::span<const UnbalancedSinkhornResult> all) {
            gaps_of(call, all);
            column_of<std::int64_t>(call, "iterations", all.size(), [&](std::size_t i) { return all[i].iterations; });
            column_of<std::int64_t>(call, "converged", all.size(), [&](std::size_t i) { return all[i].converged; });
          });
    }
    if (const auto* const many = std::get_if<SinkhornBarycenter>(&op)) {
      const auto p = matrix("p"), cost = matrix("cost");
      const MatrixView<T> q = slope("q");
      if (q.rows != 1) fail("{}: q must have one row, got {}", call.where(), q.rows);
      const std::vector<T> weights = numbers_of<T>(call, "weights");
      const SinkhornBarycenterResult result =
          sinkhorn_barycenter<T>(*many, p, weights, cost, std::span(q.row(0), q.cols), slope("f"), slope("g"));
      column_of<double>(call, "marginal_error", 1, [&](std::size_t) { return result.marginal_error; });
      column_of<std::int64_t>(call, "iterations", 1, [&](std::size_t) { return result.iterations; });
      column_of<std::int64_t>(call, "converged", 1, [&](std::size_t) { return result.converged; });
      return;
    }
    const auto x = matrix("x"), y = matrix("y");
    const std::vector<T> a = numbers_of<T>(call, "a"), b = numbers_of<T>(call, "b");
    if (const auto* const sliced = std::get_if<SlicedWasserstein>(&op)) {
      const std::vector<double> directions = numbers_of<double>(call, "directions", false);
      const std::span<const std::ptrdiff_t> shape = call["directions"].shape;
      const MatrixView<const double> along(directions.data(), static_cast<std::size_t>(shape[0]),
                                           directions.size() / std::max<std::size_t>(static_cast<std::size_t>(shape[0]), 1));
      const SlicedWassersteinResult result = sliced_wasserstein<T>(*sliced, x, y, a, b, along);
      column_of<double>(call, "value", 1, [&](std::size_t) { return result.distance; });
      column_of<double>(call, "error", 1, [&](std::size_t) { return result.error; });
      return;
    }
    double value;
    if (const auto* const points = std::get_if<Wasserstein>(&op)) {
      value = wasserstein<T>(*points, x, y, a, b, slope("plan"));
    } else if (const auto* const balanced = std::get_if<SinkhornDivergence>(&op)) {
      value = sinkhorn_divergence<T>(*balanced, x, y, a, b);
    } else {
      value = unbalanced_sinkhorn_divergence<T>(std::get<UnbalancedSinkhornDivergence>(op), x, y, a, b);
    }
    column_of<double>(call, "value", 1, [&](std::size_t) { return value; });
  }
}

}  // namespace

void run_transport(Arguments& call) {
  on_type<!kSmall, false>(call, call.name(0), call.first(), [&]<class T>(std::type_identity<T>) { transport<T>(call); });
}

}  // namespace isentropic::inline ISENTROPIC_ABI::call

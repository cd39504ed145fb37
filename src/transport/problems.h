// Batches of transportation problems: their shapes, masses and costs, checked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "isentropic/input.h"
#include "isentropic/matrix_view.h"
#include "src/check.h"
#include "src/transport/kernels.h"
#include "src/transport/masses.h"

namespace isentropic::inline ISENTROPIC_ABI {

// "in problem 3", if there are several problems.
inline std::string in_problem(std::size_t problem, std::size_t problems) {
  return problems == 1 ? "" : fmt::format(" in problem {}", problem);
}

// The cost of one problem: its own part, or the common cost of all.
template <class T>
MatrixView<const T> cost_of(const MatrixView<const T>& cost, std::size_t problem, std::size_t n) {
  const std::size_t first = cost.rows == n ? 0 : problem * n;
  return {cost.data + first * cost.row_stride, n, cost.cols, cost.row_stride};
}

// The plan of one problem: its own part, or no rows if no plan is wanted.
template <class T>
MatrixView<T> plan_of(const MatrixView<T>& plan, std::size_t problem, std::size_t n) {
  return plan.rows == 0 ? plan : MatrixView<T>(plan.row(problem * n), n, plan.cols, plan.row_stride);
}

// Refuses a result that overflowed: a status never says that such a number is right.
inline void check_finite_cost(std::string_view name, double cost, double gap, std::size_t problem, std::size_t problems) {
  if (std::isfinite(cost) && std::isfinite(gap)) return;
  fail("{}: the cost of the plan overflows; scale cost or the masses down{}", name, in_problem(problem, problems));
}

struct MassSums {
  double a, b;
};

// Checks all arguments, and returns the sums of each problem's masses.
template <class T>
std::vector<MassSums> check_problems(std::string_view name, const MatrixView<const T>& a, const MatrixView<const T>& b,
                                     const MatrixView<const T>& cost, const MatrixView<T>& plan, const MatrixView<T>& f,
                                     const MatrixView<T>& g, std::size_t results, std::optional<double> mass_tolerance) {
  const std::size_t problems = a.rows, n = a.cols, m = b.cols;
  check_layout(name, "a", a);
  check_layout(name, "b", b);
  check_layout(name, "cost", cost);
  if (b.rows != problems) fail_at(name, "b", {}, "b must have one row for each of {} problems, got {}", problems, b.rows);
  if (cost.cols != m || (cost.rows != n && cost.rows != problems * n)) {
    const std::string each = problems > 1 ? formatted(", or that for each of {} problems", problems) : "";
    fail_at(name, "cost", {}, "cost must be {} x {}{}, got {} x {}", n, m, each, cost.rows, cost.cols);
  }
  if (n > (1u << 30) || m > (1u << 30)) {
    fail_at(name, "a and b", {}, "a and b must have at most 2^30 entries, got {} and {}", n, m);
  }
  if (plan.rows != 0) check_shape(name, "plan", plan, "cost for each problem", problems * n, m);
  check_shape(name, "f", f, "a", problems, n);
  check_shape(name, "g", g, "b", problems, m);
  for (const auto& [in_name, in] : {std::pair("a", a), std::pair("b", b), std::pair("cost", cost)}) {
    check_apart(name, "plan", plan, in_name, in);
    check_apart(name, "f", f, in_name, in);
    check_apart(name, "g", g, in_name, in);
  }
  check_apart(name, "f", f, "plan", plan);
  check_apart(name, "g", g, "plan", plan);
  check_apart(name, "g", g, "f", f);
  if (results != problems)
    fail_at(name, "result", {}, "result must have one entry for each of {} problems, got {}", problems, results);
  std::vector<MassSums> sums(problems);
  if (problems == 0) return sums;
  const TransportKernels<T> kernels = transport_kernels<T>();
  for (std::size_t r = 0; r < cost.rows; ++r) {
    const std::size_t wrong = kernels.find_invalid(cost.row(r), m);
    if (wrong != m) {
      throw ArgumentError(name, "cost", formatted("cost must be finite or +inf, got {}", cost.row(r)[wrong]),
                          in_matrix(r % n, wrong), in_problem(r / n, cost.rows / n));
    }
  }
  const double tolerance = mass_tolerance.value_or(kSumTolerance<T>);
  for (std::size_t k = 0; k < problems; ++k) {
    const auto sum = [&](std::string_view which, const MatrixView<const T>& masses) {
      return sum_of_masses(masses.row(k), masses.cols, [&](const std::string& wrong, std::optional<std::size_t> entry) {
        throw ArgumentError(name, which, formatted("{} {}", which, wrong), {.entry = entry}, in_problem(k, problems));
      });
    };
    sums[k] = {sum("a", a), sum("b", b)};
    if (std::abs(sums[k].a - sums[k].b) > tolerance * std::max(sums[k].a, sums[k].b)) {
      fail_at(name, "a and b", {}, "a and b must have equal sums within {} of them, got {} and {}{}", tolerance, sums[k].a,
              sums[k].b, in_problem(k, problems));
    }
  }
  return sums;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

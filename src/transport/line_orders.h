// Orders of rows and columns, for costs that are nearly those of points on a line.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "src/transport/cost_rows.h"

namespace isentropic::inline ISENTROPIC_ABI {

struct LineOrders {
  std::vector<int> rows, columns;  // empty if there are none
};

// Less what depends on the row or the column alone, the cost of points on a line, or of a product i j, is about -u_i v_j. In
// rising order of u and v the plan that fills both from the first on is then the best (Hoffman 1963: Monge's condition). u is
// the leading singular vector of the costs of a few columns, v what it says of the columns by a few rows: no pass over the
// matrix.
template <class T>
LineOrders line_orders(const CostRows<T>& cost, std::span<const int> rows, std::span<const int> columns) {
  constexpr std::size_t kSample = 32, kSteps = 8;
  const std::size_t n = rows.size(), m = columns.size();
  const std::size_t few_rows = std::min(kSample, n), few_columns = std::min(kSample, m);
  const auto at = [](std::span<const int> all, std::size_t k, std::size_t few) {
    return static_cast<std::size_t>(all[(2 * k + 1) * all.size() / (2 * few)]);
  };
  const auto cost_of = [&](std::size_t i, std::size_t j) { return cost.at(i, j); };

  std::vector<std::array<double, kSample>> sample(n);
  std::array<double, kSample> mean = {}, side = {};
  double largest = 0;
  for (std::size_t r = 0; r < n; ++r) {
    double own = 0;
    for (std::size_t k = 0; k < few_columns; ++k) {
      sample[r][k] = cost_of(static_cast<std::size_t>(rows[r]), at(columns, k, few_columns));
      own += sample[r][k] / static_cast<double>(few_columns);
    }
    for (std::size_t k = 0; k < few_columns; ++k) sample[r][k] -= own, mean[k] += sample[r][k] / static_cast<double>(n);
  }
  for (auto& row : sample) {
    double size = 0;
    for (std::size_t k = 0; k < few_columns; ++k) row[k] -= mean[k], size += std::abs(row[k]);
    if (size > largest) largest = size, side = row;
  }
  if (!(largest > 0) || !std::isfinite(largest)) return {};  // costs that tell no order, or a forbidden one
  std::vector<double> u(n);
  for (std::size_t step = 0; step < kSteps; ++step) {
    double size = 0;
    for (const double x : side) size = std::max(size, std::abs(x));
    if (!(size > 0)) return {};
    for (double& x : side) x /= size;
    for (std::size_t r = 0; r < n; ++r) {
      double sum = 0;
      for (std::size_t k = 0; k < few_columns; ++k) sum += sample[r][k] * side[k];
      u[r] = sum / largest;
    }
    side = {};
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t k = 0; k < few_columns; ++k) side[k] += sample[r][k] * u[r];
    }
  }
  // -v_j, but for a constant.
  std::vector<double> v(m);
  double middle = 0;
  for (std::size_t k = 0; k < few_rows; ++k) middle += u[(2 * k + 1) * n / (2 * few_rows)] / static_cast<double>(few_rows);
  for (std::size_t c = 0; c < m; ++c) {
    for (std::size_t k = 0; k < few_rows; ++k) {
      const std::size_t r = (2 * k + 1) * n / (2 * few_rows);
      v[c] += (u[r] - middle) * cost_of(static_cast<std::size_t>(rows[r]), static_cast<std::size_t>(columns[c]));
    }
    if (!std::isfinite(v[c])) return {};
  }
  const auto ordered = [](std::span<const int> all, const std::vector<double>& by, bool falls) {
    std::vector<int> order(all.size());
    for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int>(k);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
      return falls ? by[x] > by[y] : by[x] < by[y];
    });
    for (int& k : order) k = all[static_cast<std::size_t>(k)];
    return order;
  };
  return {ordered(rows, u, false), ordered(columns, v, true)};
}

}  // namespace isentropic::inline ISENTROPIC_ABI

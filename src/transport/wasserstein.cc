// Wasserstein distances of points in any dimension, by the network simplex.

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "isentropic/transport.h"
#include "src/check.h"
#include "src/transport/masses.h"
#include "src/transport/network_simplex.h"
#include "src/transport/points.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

// Costs of more pairs than this are made again in every pass: no memory for all of them.
constexpr std::size_t kStored = std::size_t{1} << 24;

}  // namespace

template <class T>
double wasserstein(const Wasserstein& options, MatrixView<const T> x, MatrixView<const std::type_identity_t<T>> y,
                   std::span<const std::type_identity_t<T>> a, std::span<const std::type_identity_t<T>> b,
                   std::type_identity_t<MatrixView<T>> plan) {
  constexpr std::string_view kName = Described<Wasserstein>::kDescription.name;
  check_params(options);
  const std::size_t n = x.rows, m = y.rows;
  check_points(kName, x, y);
  const auto check = [&](std::string_view name, std::span<const T> weights, std::size_t count) {
    return weights.empty() ? static_cast<double>(count) : check_weights(kName, name, weights, count);
  };
  const double sum_a = check("a", a, n), sum_b = check("b", b, m);
  if (plan.rows != 0) check_shape(kName, "plan", plan, "points of x by points of y", n, m);
  if (x.cols == 1 && plan.rows == 0 && options.metric != Metric::cosine) {
    const bool squared = options.metric == Metric::sqeuclidean;
    std::vector<T> u(n), v(m);
    for (std::size_t i = 0; i < n; ++i) u[i] = x.row(i)[0];
    for (std::size_t j = 0; j < m; ++j) v[j] = y.row(j)[0];
    double distance;
    wasserstein_1d<T>({.order = (squared ? 2 : 1) * options.order}, {u.data(), 1, n}, {v.data(), 1, m},
                      {a.data(), a.empty() ? 0u : 1u, a.size()}, {b.data(), b.empty() ? 0u : 1u, b.size()}, {&distance, 1});
    return squared ? distance * distance : distance;
  }

  std::vector<T> ones_a(a.empty() ? n : 0, T(1)), ones_b(b.empty() ? m : 0, T(1));
  if (a.empty()) a = ones_a;
  if (b.empty()) b = ones_b;
  WholeMasses masses;
  masses.set<T>(a, sum_a, b, sum_b);
  const PointDistances<T> distance(kName, options.metric, x, y);
  std::vector<double> stored(n * m <= kStored ? n * m : 0);
  std::vector<double> row(m);
  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    distance.row(i, row.data());
    largest = std::max(largest, *std::max_element(row.begin(), row.end()));
  }
  // Relative distances to a power. A plan of cost 1 never uses a cost beyond 1e250.
  const auto costs = [&](double order, double unit) {
    const auto one = [order, unit](double r) { return std::min(1e250, power(r / unit, order)); };
    const auto make = [&distance, m, one](std::size_t i, double* to) {
      distance.row(i, to);
      for (std::size_t j = 0; j < m; ++j) to[j] = one(to[j]);
    };
    if (stored.empty()) {
      return CostRows<double>(n, m, make, [&distance, one](std::size_t i, std::size_t j) { return one(distance.at(i, j)); });
    }
    for (std::size_t i = 0; i < n; ++i) make(i, stored.data() + i * m);
    return CostRows<double>(MatrixView<const double>(stored.data(), n, m));
  };
  NetworkSimplex<double> simplex;
  double total = 0;
  // Powers of distances are relative to the largest that a plan used. A plan for a lower order finds it: with masses of at
  // least m it uses no distance beyond m^(-1 / order) times the least possible largest one, whose power is then at least m^4
  // for four times that order.
  for (double order = std::min(options.order, 32.0); largest > 0;) {
    const CostRows<double> cost = costs(order, largest);
    simplex.solve(cost, masses.a, masses.b);
    double used = 0;
    CompensatedSum sum;
    simplex.for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
      used = std::max(used, distance.at(i, j));
      sum.add_product(masses.number(flow) / sum_a, cost.at(i, j));
    });
    total = sum.value();
    if (used == 0) break;
    if (power(used / largest, order) > 1e-150) {  // otherwise again, relative to what this plan used, which is less
      if (order == options.order) break;
      order = used == largest ? options.order : std::min(4 * order, options.order);
    }
    largest = used;
  }
  for (std::size_t i = 0; i < plan.rows; ++i) std::fill(plan.row(i), plan.row(i) + m, T(0));
  if (plan.rows != 0) {
    if (largest == 0) simplex.solve(costs(1, 1), masses.a, masses.b);
    simplex.for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
      if (masses.is_rounding(i, j, flow)) return;
      plan.row(i)[j] = static_cast<T>(masses.number(flow) / sum_a);
    });
  }
  return largest * (options.order == 1 ? total : std::pow(total, 1 / options.order)) * distance.unit();
}

template double wasserstein(const Wasserstein&, MatrixView<const float>, MatrixView<const float>, std::span<const float>,
                            std::span<const float>, MatrixView<float>);
template double wasserstein(const Wasserstein&, MatrixView<const double>, MatrixView<const double>, std::span<const double>,
                            std::span<const double>, MatrixView<double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

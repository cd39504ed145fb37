// Exact transport of a part of the masses: one more row and column take the mass that stays where it is.

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "isentropic/transport.h"
#include "src/check.h"
#include "src/parallel.h"
#include "src/transport/bounds.h"
#include "src/transport/masses.h"
#include "src/transport/network_simplex.h"
#include "src/transport/problems.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr std::string_view kName = Described<PartialTransport>::kDescription.name;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The workspace of one thread, for one problem after the other.
struct Worker {
  NetworkSimplex<double> simplex;
  WholeMasses masses;
  std::vector<double> cost;
};

template <class T>
PartialTransportResult solve(Worker& worker, double mass, MatrixView<const T> a, MatrixView<const T> b, MassSums sums,
                             MatrixView<const T> cost, MatrixView<T> plan, T* f, T* g) {
  using Status = NetworkSimplex<double>::Status;
  const std::size_t n = cost.rows, m = cost.cols;
  WholeMasses& masses = worker.masses;
  const double moved = masses.set_part(std::span(a.data, n), std::span(b.data, m), std::max(sums.a, sums.b), mass);
  const double largest = largest_size(transport_kernels<T>(), cost);
  const int exponent = largest == 0 ? 0 : -std::ilogb(largest);
  // Mass that stays costs nothing, and must not go from the additional row to the additional column.
  std::vector<double>& wide = worker.cost;
  wide.assign((n + 1) * (m + 1), 0);
  wide.back() = kInfinity;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) {
      wide[i * (m + 1) + j] = std::ldexp(static_cast<double>(cost.row(i)[j]), exponent);
    }
  }
  const Status status = worker.simplex.solve(MatrixView<const double>(wide.data(), n + 1, m + 1), masses.a, masses.b);
  const bool infeasible = status == Status::infeasible;
  for (std::size_t i = 0; i < plan.rows; ++i) {
    std::fill(plan.row(i), plan.row(i) + m, infeasible ? std::numeric_limits<T>::quiet_NaN() : T(0));
  }
  if (infeasible) {
    std::fill(f, f + n, std::numeric_limits<T>::quiet_NaN());
    std::fill(g, g + m, std::numeric_limits<T>::quiet_NaN());
    return {kInfinity, std::numeric_limits<double>::quiet_NaN(), kInfinity, TransportStatus::infeasible};
  }

  SizedSum paid;
  double dropped = 0;
  worker.simplex.for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
    if (i == n || j == m) return;
    const double amount = masses.number(flow), c = wide[i * (m + 1) + j];
    if (masses.is_rounding(i, j, flow)) {
      dropped += std::abs(amount * c);
      return;
    }
    paid.add_product(amount, c);
    if (plan.rows != 0) plan.row(i)[j] = static_cast<T>(amount);
  });
  // The solver's potentials may exceed a cost by its tolerance. f from g does not, but for one rounding. Then they are relative
  // to those of the mass that stays; rounding may leave them above these.
  const TransportKernels<double> kernels = transport_kernels<double>();
  std::vector<double> minus_g(m + 1), own_f(n + 1);
  for (std::size_t j = 0; j <= m; ++j) minus_g[j] = masses.b[j] == 0 && j < m ? kInfinity : -worker.simplex.g()[j];
  for (std::size_t i = 0; i <= n; ++i) {
    own_f[i] = std::min(worker.simplex.f()[i], kernels.least({}, wide.data() + i * (m + 1), minus_g.data(), m + 1));
  }
  const double f_stays = own_f[n], g_stays = worker.simplex.g()[m], multiplier = -(f_stays + g_stays);
  SizedSum dual;
  double size = std::abs(f_stays) + std::abs(g_stays);
  for (std::size_t i = 0; i < n; ++i) {
    const double own = std::min(0.0, own_f[i] + g_stays);
    dual.add_product(masses.number(masses.a[i]), own);
    if (masses.a[i] != 0) size = std::max(size, std::abs(own_f[i]) + std::abs(g_stays));
    f[i] = static_cast<T>(std::ldexp(own, -exponent));
  }
  for (std::size_t j = 0; j < m; ++j) {
    const double own = std::min(0.0, worker.simplex.g()[j] + f_stays);
    dual.add_product(masses.number(masses.b[j]), own);
    if (masses.b[j] != 0) size = std::max(size, std::abs(worker.simplex.g()[j]) + std::abs(f_stays));
    g[j] = static_cast<T>(std::ldexp(own, -exponent));
  }
  dual.add_product(moved, multiplier);
  // What rounding may have changed in the cost, the potentials and the masses.
  const double rounding = 8 * kRounding * (paid.size() + dual.size() + (2 * moved) * size) + dropped;
  const double gap = std::max(0.0, paid.value() - dual.value()) + rounding;
  return {std::ldexp(paid.value(), -exponent), std::ldexp(multiplier, -exponent), above(std::ldexp(gap, -exponent)),
          status == Status::optimal ? TransportStatus::optimal : TransportStatus::pivot_limit};
}

}  // namespace

template <class T>
void partial_transport(const PartialTransport& options, MatrixView<const std::type_identity_t<T>> a,
                       MatrixView<const std::type_identity_t<T>> b, MatrixView<const std::type_identity_t<T>> cost,
                       MatrixView<std::type_identity_t<T>> plan, MatrixView<T> f, MatrixView<T> g,
                       std::span<PartialTransportResult> result) {
  check_params(options);
  const std::vector<MassSums> sums = check_problems<T>(kName, a, b, cost, plan, f, g, result.size(), kInfinity);
  const std::size_t problems = a.rows, n = a.cols, m = b.cols;
  for (std::size_t k = 0; k < problems; ++k) {
    const double least = std::min(sums[k].a, sums[k].b);
    if (options.mass > least * (1 + kSumTolerance<T>)) {
      fail_at(kName, "mass", {}, "mass must be at most the sum of a and that of b, {}, got {}{}", least, options.mass,
              in_problem(k, problems));
    }
  }
  parallel_rows(problems, 64 * n * m, [&](std::size_t begin, std::size_t end) {
    Worker worker;
    for (std::size_t k = begin; k < end; ++k) {
      result[k] = solve<T>(worker, options.mass, {a.row(k), 1, n}, {b.row(k), 1, m}, sums[k], cost_of(cost, k, n),
                           plan_of(plan, k, n), f.row(k), g.row(k));
    }
  });
  for (std::size_t k = 0; k < problems; ++k) {
    if (result[k].status != TransportStatus::infeasible) check_finite_cost(kName, result[k].cost, result[k].gap, k, problems);
  }
}

template void partial_transport(const PartialTransport&, MatrixView<const float>, MatrixView<const float>,
                                MatrixView<const float>, MatrixView<float>, MatrixView<float>, MatrixView<float>,
                                std::span<PartialTransportResult>);
template void partial_transport(const PartialTransport&, MatrixView<const double>, MatrixView<const double>,
                                MatrixView<const double>, MatrixView<double>, MatrixView<double>, MatrixView<double>,
                                std::span<PartialTransportResult>);

}  // namespace isentropic::inline ISENTROPIC_ABI

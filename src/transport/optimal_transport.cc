// Exact optimal transport: checks, masses as whole numbers, and the network simplex for each problem of a batch.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
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

constexpr std::string_view kName = Described<OptimalTransport>::kDescription.name;

// With costs beyond these, potentials might overflow in sums along the tree, or lose digits as subnormal numbers.
constexpr double kLargestCost = 0x1p+900, kLeastCost = 0x1p-900;

// The network simplex for matrices of any shape, with its interface. Its short lists are those of rows, so it is slow if these
// have few columns: a tall problem is transposed. A single row has only one plan.
template <class T>
class AnyShape {
 public:
  using Status = typename NetworkSimplex<T>::Status;

  Status solve(MatrixView<const T> cost, std::span<const Mass> row_masses, std::span<const Mass> column_masses) {
    transposed_ = cost.rows > 2 * cost.cols;
    if (transposed_) {
      costs_.resize(cost.rows * cost.cols);
      for (std::size_t i = 0; i < cost.rows; ++i) {
        for (std::size_t j = 0; j < cost.cols; ++j) costs_[j * cost.rows + i] = cost.row(i)[j];
      }
      cost = MatrixView<const T>(costs_.data(), cost.cols, cost.rows);
      std::swap(row_masses, column_masses);
    }
    single_ = cost.rows == 1;
    return single_ ? solve_single(cost.row(0), column_masses) : simplex_.solve(cost, row_masses, column_masses);
  }

  std::span<const double> f() const { return transposed_ ? of_columns() : of_rows(); }
  std::span<const double> g() const { return transposed_ ? of_rows() : of_columns(); }

  template <class Visit>
  void for_each_flow(Visit&& visit) const {
    const auto visit_arc = [&](std::size_t i, std::size_t j, Mass flow) {
      transposed_ ? visit(j, i, flow) : visit(i, j, flow);
    };
    if (!single_) return simplex_.for_each_flow(visit_arc);
    for (std::size_t j = 0; j < single_masses_.size(); ++j) {
      if (single_masses_[j] != 0) visit_arc(0, j, single_masses_[j]);
    }
  }

 private:
  std::span<const double> of_rows() const { return single_ ? std::span(&single_f_, 1) : simplex_.f(); }
  std::span<const double> of_columns() const { return single_ ? std::span(single_g_) : simplex_.g(); }

  Status solve_single(const T* cost, std::span<const Mass> column_masses) {
    single_masses_ = column_masses;
    single_g_.assign(cost, cost + column_masses.size());
    double largest = std::numeric_limits<double>::lowest();
    for (std::size_t j = 0; j < column_masses.size(); ++j) {
      if (column_masses[j] != 0) largest = std::max(largest, single_g_[j]);
    }
    // As in the simplex, an expensive column without mass has a lower potential.
    for (double& potential : single_g_) potential = std::min(potential, largest);
    return largest < std::numeric_limits<double>::infinity() ? Status::optimal : Status::infeasible;
  }

  NetworkSimplex<T> simplex_;
  bool transposed_ = false, single_ = false;
  std::vector<T> costs_;
  std::span<const Mass> single_masses_;
  double single_f_ = 0;
  std::vector<double> single_g_;
};

// The workspace of one thread, for one problem after the other.
template <class T>
struct Worker {
  AnyShape<T> simplex;
  AnyShape<double> scaled_simplex;
  WholeMasses masses;
  std::vector<double> scaled;
};

// Blocks of a matrix of costs that only forbidden arcs join may have sums that are equal up to rounding in float64. The simplex
// has found the least flow over such arcs. If rounding of the masses explains it, which leaves most of each mass where it is
// allowed, both masses give it up. Returns whether they do. Masses of float32 differ by more than may be given up without a
// word.
template <class Simplex, class Cost>
bool forgive_rounding(const Simplex& simplex, MatrixView<const Cost> cost, WholeMasses& masses) {
  struct Flow {
    std::size_t i, j;
    Mass amount;
  };
  std::vector<Flow> forbidden;
  Mass amount = 0;
  simplex.for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
    if (!std::isinf(cost.row(i)[j])) return;
    forbidden.push_back({i, j, flow});
    amount += flow;
  });
  const Mass sum = std::accumulate(masses.a.begin(), masses.a.end(), Mass{0});
  if (static_cast<double>(amount) > 8 * std::numeric_limits<double>::epsilon() * static_cast<double>(sum)) return false;
  const auto is_most = [&](const Flow& flow) { return 2 * flow.amount > std::min(masses.a[flow.i], masses.b[flow.j]); };
  if (std::any_of(forbidden.begin(), forbidden.end(), is_most)) return false;
  for (const Flow& flow : forbidden) {
    masses.a[flow.i] -= flow.amount;
    masses.b[flow.j] -= flow.amount;
  }
  return true;
}

// cost: the same numbers as `original`, times 2^exponent.
template <class Simplex, class Cost, class T>
TransportResult solve(Simplex& simplex, WholeMasses& masses, MatrixView<const Cost> cost, int exponent, double sum,
                      MatrixView<T> plan, T* f, T* g) {
  using Status = typename Simplex::Status;
  const std::size_t n = cost.rows, m = cost.cols;
  Status status = simplex.solve(cost, masses.a, masses.b);
  if (status == Status::infeasible && forgive_rounding(simplex, cost, masses)) {
    status = simplex.solve(cost, masses.a, masses.b);
  }
  for (std::size_t i = 0; i < plan.rows; ++i) {
    std::fill(plan.row(i), plan.row(i) + m, status == Status::infeasible ? std::numeric_limits<T>::quiet_NaN() : T(0));
  }
  if (status == Status::infeasible) {
    std::fill(f, f + n, std::numeric_limits<T>::quiet_NaN());
    std::fill(g, g + m, std::numeric_limits<T>::quiet_NaN());
    return {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), TransportStatus::infeasible};
  }

  SizedSum paid;
  double dropped = 0;
  simplex.for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
    const double amount = masses.number(flow);
    if (masses.is_rounding(i, j, flow)) {
      dropped += std::abs(amount * cost.row(i)[j]);
      return;
    }
    paid.add_product(amount, cost.row(i)[j]);
    if (plan.rows != 0) plan.row(i)[j] = static_cast<T>(amount);
  });
  // The solver's potentials may exceed a cost by its tolerance. f from g does not, but for one rounding.
  SizedSum of_f, of_g;
  std::vector<double> minus_g(m), own_f(simplex.f().begin(), simplex.f().end());
  for (std::size_t j = 0; j < m; ++j) {
    of_g.add_product(masses.number(masses.b[j]), simplex.g()[j]);
    minus_g[j] = masses.b[j] == 0 ? std::numeric_limits<double>::infinity() : -simplex.g()[j];
  }
  const auto kernels = transport_kernels<Cost>();
  for (std::size_t i = 0; i < n; ++i) {
    if (masses.a[i] == 0) continue;
    own_f[i] = std::min(own_f[i], kernels.least({}, cost.row(i), minus_g.data(), m));
    of_f.add_product(masses.number(masses.a[i]), own_f[i]);
  }
  const double centre = 0.5 * (of_f.value() - of_g.value()) / sum;
  const ByPowerOf2 unscaled(-exponent);
  SizedSum dual;
  for (std::size_t i = 0; i < n; ++i) {
    dual.add_product(masses.number(masses.a[i]), own_f[i] - centre);
    f[i] = static_cast<T>(unscaled(own_f[i] - centre));
  }
  for (std::size_t j = 0; j < m; ++j) {
    dual.add_product(masses.number(masses.b[j]), simplex.g()[j] + centre);
    g[j] = static_cast<T>(unscaled(simplex.g()[j] + centre));
  }
  // What rounding may have changed: masses have up to three errors, f two and centred potentials one more, each sum one.
  const double rounding = kRounding * (4 * paid.size() + 2 * of_f.size() + 6 * dual.size()) + dropped;
  const double gap = std::max(0.0, paid.value() - dual.value()) + rounding;
  return {std::ldexp(paid.value(), -exponent), above(std::ldexp(gap, -exponent)),
          status == Status::optimal ? TransportStatus::optimal : TransportStatus::pivot_limit};
}

}  // namespace

template <class T>
void optimal_transport(const OptimalTransport& options, MatrixView<const std::type_identity_t<T>> a,
                       MatrixView<const std::type_identity_t<T>> b, MatrixView<const std::type_identity_t<T>> cost,
                       MatrixView<std::type_identity_t<T>> plan, MatrixView<T> f, MatrixView<T> g,
                       std::span<TransportResult> result) {
  check_params(options);
  const std::vector<MassSums> sums = check_problems<T>(kName, a, b, cost, plan, f, g, result.size(), options.mass_tolerance);
  const std::size_t problems = a.rows, n = a.cols, m = b.cols;
  const TransportKernels<T> kernels = transport_kernels<T>();
  parallel_rows(problems, 64 * n * m, [&](std::size_t begin, std::size_t end) {
    Worker<T> worker;
    for (std::size_t k = begin; k < end; ++k) {
      worker.masses.set(std::span(a.row(k), n), sums[k].a, std::span(b.row(k), m), sums[k].b);
      const MatrixView<const T> own = cost_of(cost, k, n);
      const MatrixView<T> own_plan = plan_of(plan, k, n);
      const double largest = largest_size(kernels, own);
      if (largest == 0 || (largest >= kLeastCost && largest <= kLargestCost)) {
        result[k] = solve(worker.simplex, worker.masses, own, 0, sums[k].a, own_plan, f.row(k), g.row(k));
      } else {
        // The largest stays as large as it may be, so that small costs beside it keep their digits.
        const int exponent = (largest > kLargestCost ? std::ilogb(kLargestCost) - 1 : 0) - std::ilogb(largest);
        const auto solve_scaled = [&](int power) {
          worker.scaled.resize(n * m);
          for (std::size_t i = 0; i < n; ++i) {
            std::transform(own.row(i), own.row(i) + m, worker.scaled.data() + i * m, [&](double c) {
              return std::isinf(c) ? c : std::clamp(std::ldexp(c, power), -kLargestCost, kLargestCost);
            });
          }
          result[k] = solve(worker.scaled_simplex, worker.masses, MatrixView<const double>(worker.scaled.data(), n, m), power,
                            sums[k].a, own_plan, f.row(k), g.row(k));
        };
        solve_scaled(exponent);
        // If the plan needs only costs that vanish beside the largest, they become about 1, and those beyond kLargestCost
        // remain out of the question.
        double used = 0;
        worker.scaled_simplex.for_each_flow(
            [&](std::size_t i, std::size_t j, Mass) { used = std::max(used, std::abs(static_cast<double>(own.row(i)[j]))); });
        if (result[k].status != TransportStatus::infeasible && used > 0 && std::ldexp(used, exponent) < kLeastCost) {
          solve_scaled(-std::ilogb(used));
        }
      }
    }
  });
  for (std::size_t k = 0; k < problems; ++k) {
    if (result[k].status != TransportStatus::infeasible) check_finite_cost(kName, result[k].cost, result[k].gap, k, problems);
  }
}

template void optimal_transport(const OptimalTransport&, MatrixView<const float>, MatrixView<const float>,
                                MatrixView<const float>, MatrixView<float>, MatrixView<float>, MatrixView<float>,
                                std::span<TransportResult>);
template void optimal_transport(const OptimalTransport&, MatrixView<const double>, MatrixView<const double>,
                                MatrixView<const double>, MatrixView<double>, MatrixView<double>, MatrixView<double>,
                                std::span<TransportResult>);

}  // namespace isentropic::inline ISENTROPIC_ABI

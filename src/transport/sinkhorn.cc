// Entropy-regularised optimal transport: Sinkhorn's iteration on potentials, bounds of the optimum without entropy, the
// divergence.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "isentropic/transport.h"
#include "src/check.h"
#include "src/parallel.h"
#include "src/transport/bounds.h"
#include "src/transport/column_sums.h"
#include "src/transport/kernels.h"
#include "src/transport/laplacian.h"
#include "src/transport/masses.h"
#include "src/transport/points.h"
#include "src/transport/problems.h"
#include "src/transport/sinkhorn.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double kStageError = 0.05;  // of the marginals, at which a stage ends

// If sweeps are slow, as they are at an epsilon that leaves few entries in the plan, Newton's method takes over.
constexpr double kDamping = 1e-15;   // relative to the columns' masses
constexpr int kWindow = 8;           // sweeps that tell how the error falls
constexpr double kNewtonSteps = 8;   // that it usually takes, each of about m / 24 sweeps
constexpr double kShorter = 0.25;    // of a step that went too far
constexpr double kHeavy = 1e-3;      // of the mass that columns lack
constexpr double kSteady = 0.5;      // of the slope: above this, a step has changed nothing
constexpr double kLeastGain = 1e-6;  // of epsilon for each unit of mass, in a step of Newton's method that is no standstill

template <class T>
class Solver {
 public:
  Solver(MatrixView<const T> cost, std::vector<double> a, std::vector<double> b, double mass)
      : kernels_(transport_kernels<T>()),
        cost_(cost),
        a_(std::move(a)),
        b_(std::move(b)),
        mass_(mass),
        column_sums_(cost.rows, cost.cols) {
    const std::size_t n = cost.rows, m = cost.cols;
    f_.assign(n, 0);
    g_.assign(m, 0);
    p_.resize(m);
    closed_.assign(n, false);
    for (std::size_t i = 0; i < n; ++i) {
      closed_[i] = a_[i] == 0;
      for (std::size_t j = 0; closed_[i] && j < m; ++j) closed_[i] = b_[j] == 0 || cost.row(i)[j] == kInfinity;
    }
    symmetric_ = a_ == b_;
    for (std::size_t i = 0; symmetric_ && i < n; ++i) {
      for (std::size_t j = 0; symmetric_ && j < i; ++j) symmetric_ = cost.row(i)[j] == cost.row(j)[i];
    }
  }

  SinkhornResult run(const Sinkhorn& options) {
    SinkhornResult result = {};
    double epsilon = std::max(options.epsilon, largest_size(kernels_, cost_));
    std::int64_t in_stage = 0;
    double error = 0;
    bool known = false;  // whether the error is known, after a sweep with these potentials
    bool began = false;  // whether Newton's method did, in this stage
    std::array<double, kWindow> errors = {};
    double least_error = kInfinity;
    int stalled = 0;
    for (;;) {
      epsilon_ = epsilon;
      if (!known) {
        error = sweep();
        ++result.iterations;
      }
      known = false;
      const bool last_stage = epsilon == options.epsilon;
      result.marginal_error = error;
      if (last_stage && error <= options.tolerance) {
        result.converged = true;
        break;
      }
      if (result.iterations >= options.max_iterations) break;
      double& earlier = errors[static_cast<std::size_t>(++in_stage) % errors.size()];  // of as many sweeps ago
      const bool slow = began || !last_stage || !nearly_there(earlier, error, options.tolerance);
      earlier = error;
      if (in_stage > sweeps_before_newton(cost_.cols) && (last_stage || error > kStageError) && stalled < kStalled && slow) {
        began = true;
        const double before = error, value_before = dual_value();
        const bool helped = newton(value_before, options.max_iterations, result.iterations, error);
        // Where no entry joins parts of the plan that lack and have mass, their potentials must first meet: the error stays.
        const bool nearer = dual_value() - value_before > kLeastGain * epsilon * mass_;
        stalled = error < least_error || nearer ? 0 : stalled + 1;
        least_error = std::min({least_error, before, error});
        // If a step did not help, the potentials of single columns may be far off. Those a sweep corrects at once.
        known = (helped && error < before) || error <= options.tolerance || result.iterations >= options.max_iterations;
        if (!known) correct_columns();
        continue;
      }
      if (symmetric_) {
        correct_symmetric();
      } else {
        correct_columns();
      }
      if (!last_stage && (error <= kStageError || in_stage > kStageIterations)) {
        epsilon = std::max(options.epsilon, epsilon / kStageFactor);
        in_stage = 0;
        began = false;
        stalled = 0;
        least_error = kInfinity;
      }
    }
    if (epsilon_ != options.epsilon) {  // stopped early: the plan uses the wanted epsilon
      epsilon_ = options.epsilon;
      result.marginal_error = sweep();
    }
    return result;
  }

  // Calculates the cost of the plan and the bounds of the optimum, and writes the plan.
  void finish(SinkhornResult& result, MatrixView<T> plan) {
    const std::size_t n = cost_.rows, m = cost_.cols;
    // This rounds to a feasible plan: columns that are too full are reduced, then the mass that rows and columns lack is spread
    // over both.
    std::vector<double> keep(m), lack(m), row(m);
    CompensatedSum lacking;
    for (std::size_t j = 0; j < m; ++j) {
      keep[j] = column_sums_[j] > b_[j] ? b_[j] / column_sums_[j] : 1;
      lack[j] = std::max(0.0, b_[j] - column_sums_[j]);
      lacking.add(lack[j]);
    }
    CompensatedSum cost, kept, spread;
    for (std::size_t i = 0; i < n; ++i) {
      const T* const c = cost_.row(i);
      if (closed_[i]) {
        if (plan.rows != 0) std::fill(plan.row(i), plan.row(i) + m, T(0));
        continue;
      }
      double sum;
      kernels_.exponentials(c, p_.data(), m, epsilon_, row.data(), &sum);
      const double factor = a_[i] / sum;
      double paid = 0, paid_kept = 0, amount = 0, spread_cost = 0;
      for (std::size_t j = 0; j < m; ++j) {
        const double x = factor * row[j];
        if (plan.rows != 0) plan.row(i)[j] = static_cast<T>(x);
        amount += x * keep[j];
        if (x > 0) paid += x * c[j], paid_kept += x * keep[j] * c[j];
        if (lack[j] > 0) spread_cost += lack[j] / lacking.value() * c[j];
      }
      cost.add(paid);
      kept.add(paid_kept);
      const double missing = std::max(0.0, a_[i] - amount);
      // Less than the rounding error is no reason to use a forbidden entry.
      if (missing > 0x1p-50 * a_[i] && lacking.value() > 0) spread.add(missing * spread_cost);
    }
    result.cost = cost.value();
    result.upper_bound = kept.value() + spread.value();
    // Sums of up to n or m numbers have moved the plan, and so its cost. A plan of exactly these masses costs at most so much
    // more.
    const double terms = static_cast<double>(n + m + 20);
    result.upper_bound = above(result.upper_bound + 8 * kRounding * terms * mass_ * largest_size(kernels_, cost_));
    result.value = dual_value();

    // Potentials with f_i + g_j <= C_ij: g from f, and f from that g.
    SizedSum lower;
    std::vector<double> g(m, kInfinity);
    for (std::size_t i = 0; i < n; ++i) {
      if (a_[i] > 0) kernels_.column_minima(cost_.row(i), f_[i], m, g.data());
    }
    for (std::size_t j = 0; j < m; ++j) {
      if (b_[j] > 0) lower.add_product(b_[j], g[j]);
      g[j] = b_[j] > 0 ? -g[j] : kInfinity;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (a_[i] > 0) lower.add_product(a_[i], kernels_.least({}, cost_.row(i), g.data(), m));
    }
    // f is rounded, and so are the masses, times a potential.
    result.lower_bound = std::min(below(lower.value() - 8 * kRounding * lower.size()), result.upper_bound);
    for (std::size_t j = 0; j < m; ++j) {
      if (b_[j] == 0) g_[j] = column_potential(j);
    }
  }

  const std::vector<double>& f() const { return f_; }
  const std::vector<double>& g() const { return g_; }

 private:
  // Whether sweeps will end sooner than a few steps of Newton's method, if the error goes on falling as it does.
  bool nearly_there(double earlier, double error, double tolerance) const {
    const double sweeps = kNewtonSteps * static_cast<double>(cost_.cols) / 24;
    return earlier > error && std::log(error / tolerance) * kWindow < std::log(earlier / error) * sweeps;
  }

  // Calculates f from g, so that row sums are exact, and the resulting column sums; returns their error.
  double sweep() {
    const std::size_t m = cost_.cols;
    for (std::size_t j = 0; j < m; ++j) p_[j] = b_[j] > 0 ? g_[j] + epsilon_ * std::log(b_[j]) : -kInfinity;
    column_sums_.compute([&](std::size_t i, double* e, double* sums) {
      if (closed_[i]) {
        f_[i] = kInfinity;
        return;
      }
      double sum;
      const double max = kernels_.exponentials(cost_.row(i), p_.data(), m, epsilon_, e, &sum);
      f_[i] = -(max + epsilon_ * std::log(sum));
      if (a_[i] > 0) kernels_.accumulate(e, a_[i] / sum, m, sums);
    });
    CompensatedSum error;
    for (std::size_t j = 0; j < m; ++j) error.add(std::abs(column_sums_[j] - b_[j]));
    return error.value() / mass_;
  }

  // The sum of a f and b g, which the solution maximises.
  double dual_value() const {
    CompensatedSum value;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (a_[i] > 0) value.add_product(a_[i], f_[i]);
    }
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (b_[j] > 0) value.add_product(b_[j], g_[j]);
    }
    return value.value();
  }

  // One step of Newton's method for g after a sweep, where f makes the rows' sums exact. With q_ij the rows of the plan over
  // their sums, the columns' sums change by (diag(sums) - sum_i a_i q_i q_i^T) dg / epsilon. The method maximises the dual
  // value. Returns whether the whole step did not decrease it.
  //
  // Parts of the plan that no entry joins get steps without bounds: of those that lack mass only the direction is known, and
  // parts of tiny masses, which may lack all of their mass, have the largest steps. So each entry of the step above epsilon
  // counts by its logarithm: then the steps of parts with tiny masses do not shorten those of the others.
  bool newton(double value, std::int64_t max_iterations, std::int64_t& iterations, double& error) {
    find_step();
    const std::vector<double> whole = step_;
    const double range = range_of_step();
    for (double& one : step_) {
      if (std::abs(one) > 1) one = std::copysign(1 + std::log(std::abs(one)), one);
    }
    // Two parts alone surely come nearer by a step of the range log(1 + r): see below.
    const double shorter = std::min(1.0, (1 + std::log1p(range)) / range_of_step());
    for (double& one : step_) one *= epsilon_ * shorter;
    const auto sweep_moved = [&](double factor) {
      move(factor);
      error = sweep();
      ++iterations;
    };
    // Whether the step moves much of the mass that columns lack. Otherwise it is for tiny masses, which sweeps set right.
    const double slope_before = slope();
    const bool heavy = slope_before > kHeavy * error * mass_ * range_of_step();
    // The dual value is concave: it did not fall if it still rises.
    const auto fell = [&] { return range > 0.5 && slope() < 0 && dual_value() < value && iterations < max_iterations; };
    sweep_moved(1);
    if (!fell()) {
      // Where parts of the plan have yet to meet, nothing changes on the way, and the step is doubled.
      for (double factor = 1; heavy && range > 1 && slope() > kSteady * slope_before && iterations + 2 <= max_iterations;
           factor *= 2) {
        sweep_moved(factor);
        if (slope() >= 0) continue;
        sweep_moved(-factor);
        break;
      }
      return true;
    }
    sweep_moved(kShorter - 1);
    if (!fell()) return false;
    // The dual value is the sum of g b and of f, which is a logarithm of a sum of exponentials with a minus sign: a step whose
    // entries have the range r, times log(1 + r) / r, increases it from any start (Sun and Tran-Dinh 2019).
    move(-kShorter);
    for (std::size_t j = 0; j < step_.size(); ++j) step_[j] = epsilon_ * std::log1p(range) / range * whole[j];
    sweep_moved(1);
    return false;
  }

  // How far the entries of the step are apart, at columns with mass.
  double range_of_step() const {
    double least = kInfinity, largest = -kInfinity;
    for (std::size_t j = 0; j < step_.size(); ++j) {
      if (b_[j] > 0) least = std::min(least, step_[j]), largest = std::max(largest, step_[j]);
    }
    return largest - least;
  }

  // Newton's step in units of epsilon, with a mean of 0.
  void find_step() {
    const std::size_t n = cost_.rows, m = cost_.cols;
    weights_.assign(m * m, 0);
    std::vector<double> q(m);
    std::vector<std::size_t> some;
    for (std::size_t i = 0; i < n; ++i) {
      if (a_[i] == 0) continue;
      double sum;
      kernels_.exponentials(cost_.row(i), p_.data(), m, epsilon_, q.data(), &sum);
      add_products(q, sum, a_[i], some, weights_);
    }
    std::vector<double> lacks(m), leak(m);
    for (std::size_t j = 0; j < m; ++j) lacks[j] = b_[j] > 0 ? b_[j] - column_sums_[j] : 0;
    for (std::size_t j = 0; j < m; ++j) leak[j] = kDamping * b_[j];
    step_ = solve_laplacian(weights_, std::move(lacks), std::move(leak), true);
    double mean = 0;
    for (std::size_t j = 0; j < m; ++j) mean += b_[j] / mass_ * step_[j];
    for (double& one : step_) one -= mean;
  }

  // Moves g by a multiple of the step, along which the dual value has this slope after a sweep.
  void move(double factor) {
    for (std::size_t j = 0; j < g_.size(); ++j) g_[j] += factor * step_[j];
  }
  double slope() const {
    CompensatedSum slope;
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (b_[j] > 0) slope.add_product(b_[j] - column_sums_[j], step_[j]);
    }
    return slope.value();
  }

  void correct_columns() {
    for (std::size_t j = 0; j < cost_.cols; ++j) {
      if (b_[j] == 0) continue;
      // A column whose sum has vanished, because its g is far too low, is computed by itself.
      if (column_sums_[j] > 1e-280 * b_[j]) {
        g_[j] -= epsilon_ * std::log(column_sums_[j] / b_[j]);
      } else {
        g_[j] = column_potential(j);
      }
    }
  }

  // For problems with f = g at the solution. An error e of g becomes -lambda e in f and lambda^2 e in the next g, where lambda
  // is an eigenvalue of the plan's transitions. The mean of f and this g is nearer if lambda > 0, as for plans with much mass
  // on the diagonal, and farther otherwise. With r = f - g and d the correction of g, d r is (1 - lambda) r^2.
  void correct_symmetric() {
    const std::vector<double> before = g_;
    correct_columns();
    double along = 0, own = 0;
    for (std::size_t j = 0; j < g_.size(); ++j) {
      if (b_[j] == 0) continue;
      const double r = f_[j] - before[j];
      along += b_[j] * (g_[j] - before[j]) * r;
      own += b_[j] * r * r;
    }
    if (along > own) return;
    for (std::size_t j = 0; j < g_.size(); ++j) g_[j] = 0.5 * (g_[j] + f_[j]);
  }

  // +inf if the column has no allowed entry, which is only possible without mass.
  double column_potential(std::size_t j) const {
    return -log_sum_exp(cost_.rows, epsilon_, [&](std::size_t i) {
      return a_[i] > 0 ? f_[i] + epsilon_ * std::log(a_[i]) - cost_.row(i)[j] : -kInfinity;
    });
  }

  TransportKernels<T> kernels_;
  MatrixView<const T> cost_;
  std::vector<double> a_, b_;
  std::vector<char> closed_;  // rows without mass whose entries are all forbidden
  double mass_, epsilon_ = 0;
  ColumnSums column_sums_;
  std::vector<double> f_, g_, p_;
  std::vector<double> weights_;  // of the columns' Laplacian, below its diagonal
  std::vector<double> step_;     // of Newton's method
  bool symmetric_;  // a = b and C is its own transpose, as in the terms of a divergence that compare a distribution with itself
};

// Checks that every row and column with mass has an allowed entry.
template <class T>
void check_arcs(std::string_view name, const MatrixView<const T>& cost, const T* a, const T* b, std::size_t problem,
                std::size_t problems) {
  std::vector<char> column(cost.cols);
  for (std::size_t i = 0; i < cost.rows; ++i) {
    bool any = false;
    for (std::size_t j = 0; j < cost.cols; ++j) {
      if (cost.row(i)[j] > std::numeric_limits<T>::max()) continue;
      any |= b[j] > 0;
      column[j] |= a[i] > 0;
    }
    if (!any && a[i] > 0) {
      fail_at(name, "cost", {}, "cost must be below +inf somewhere in row {}, which has mass{}", i,
              in_problem(problem, problems));
    }
  }
  for (std::size_t j = 0; j < cost.cols; ++j) {
    if (!column[j] && b[j] > 0) {
      fail_at(name, "cost", {}, "cost must be below +inf somewhere in column {}, which has mass{}", j,
              in_problem(problem, problems));
    }
  }
}

}  // namespace

template <class T>
void sinkhorn(const Sinkhorn& options, MatrixView<const std::type_identity_t<T>> a, MatrixView<const std::type_identity_t<T>> b,
              MatrixView<const std::type_identity_t<T>> cost, MatrixView<std::type_identity_t<T>> plan, MatrixView<T> f,
              MatrixView<T> g, std::span<SinkhornResult> result) {
  constexpr std::string_view kName = Described<Sinkhorn>::kDescription.name;
  check_params(options);
  const std::vector<MassSums> sums = check_problems<T>(kName, a, b, cost, plan, f, g, result.size(), options.mass_tolerance);
  const std::size_t problems = a.rows, n = a.cols, m = b.cols;
  for (std::size_t k = 0; k < problems; ++k) check_arcs(kName, cost_of(cost, k, n), a.row(k), b.row(k), k, problems);
  parallel_rows(problems, 1000 * n * m, [&](std::size_t begin, std::size_t end) {
    for (std::size_t k = begin; k < end; ++k) {
      std::vector<double> masses_a(a.row(k), a.row(k) + n), masses_b(b.row(k), b.row(k) + m);
      for (double& mass : masses_b) mass *= sums[k].a / sums[k].b;
      Solver<T> solver(cost_of(cost, k, n), std::move(masses_a), std::move(masses_b), sums[k].a);
      result[k] = solver.run(options);
      solver.finish(result[k], plan_of(plan, k, n));
      for (std::size_t i = 0; i < n; ++i) f.row(k)[i] = static_cast<T>(solver.f()[i]);
      for (std::size_t j = 0; j < m; ++j) g.row(k)[j] = static_cast<T>(solver.g()[j]);
    }
  });
  for (std::size_t k = 0; k < problems; ++k) {
    const bool finite = std::isfinite(result[k].cost) && std::isfinite(result[k].lower_bound);
    if (finite && std::isfinite(result[k].upper_bound)) continue;
    const MatrixView<const T> own = cost_of(cost, k, n);
    bool forbidden = false;
    for (std::size_t i = 0; i < n; ++i) forbidden |= std::find(own.row(i), own.row(i) + m, kInfinity) != own.row(i) + m;
    // To have the masses exactly, the plan would need a forbidden entry: then the cheapest plan, if there is one, is the bound.
    if (forbidden) {
      std::vector<T> exact_f(n), exact_g(m);
      TransportResult exact;
      const auto row = [&](const MatrixView<const T>& all) { return MatrixView<const T>(all.row(k), 1, all.cols); };
      optimal_transport<T>({.mass_tolerance = options.mass_tolerance}, row(a), row(b), own, {},
                           MatrixView<T>(exact_f.data(), 1, n), MatrixView<T>(exact_g.data(), 1, m), std::span(&exact, 1));
      result[k].upper_bound = above(exact.cost + exact.gap);
      if (exact.status == TransportStatus::infeasible) {
        if (!finite) fail("{}: infeasible: every plan needs an entry of cost inf{}", kName, in_problem(k, problems));
        result[k].converged = false;
      }
    }
    check_finite_cost(kName, result[k].cost, result[k].lower_bound, k, problems);
  }
}

template <class T>
double sinkhorn_divergence(const SinkhornDivergence& options, MatrixView<const T> x,
                           MatrixView<const std::type_identity_t<T>> y, std::span<const std::type_identity_t<T>> a,
                           std::span<const std::type_identity_t<T>> b) {
  constexpr std::string_view kName = Described<SinkhornDivergence>::kDescription.name;
  check_params(options);
  check_points(kName, x, y);
  const auto weights = [&](std::string_view name, std::span<const T> given, std::size_t count) {
    std::vector<double> normal(count, 1 / static_cast<double>(count));
    if (given.empty()) return normal;
    const double sum = check_weights(kName, name, given, count);
    for (std::size_t i = 0; i < count; ++i) normal[i] = given[i] / sum;
    return normal;
  };
  const std::vector<double> weights_x = weights("a", a, x.rows), weights_y = weights("b", b, y.rows);
  std::vector<double> cost;
  const auto value = [&](const MatrixView<const T>& u, const MatrixView<const T>& v, const std::vector<double>& from,
                         const std::vector<double>& to) {
    powers_of_distances(kName, options.order, u, v, cost);
    Solver<double> solver({cost.data(), u.rows, v.rows}, from, to, 1);
    SinkhornResult result = solver.run({.epsilon = options.epsilon,
                                        .tolerance = options.tolerance,
                                        .max_iterations = options.max_iterations,
                                        .mass_tolerance = {}});
    solver.finish(result, {});
    return result.value;
  };
  const double between = value(x, y, weights_x, weights_y);
  const double found = between - 0.5 * (value(x, x, weights_x, weights_x) + value(y, y, weights_y, weights_y));
  // Up to order 2 only rounding can make it negative; beyond, exp(-|x - y|^order / epsilon) is not positive definite.
  return options.order <= 2 ? std::max(0.0, found) : found;
}

template void sinkhorn(const Sinkhorn&, MatrixView<const float>, MatrixView<const float>, MatrixView<const float>,
                       MatrixView<float>, MatrixView<float>, MatrixView<float>, std::span<SinkhornResult>);
template void sinkhorn(const Sinkhorn&, MatrixView<const double>, MatrixView<const double>, MatrixView<const double>,
                       MatrixView<double>, MatrixView<double>, MatrixView<double>, std::span<SinkhornResult>);
template double sinkhorn_divergence(const SinkhornDivergence&, MatrixView<const float>, MatrixView<const float>,
                                    std::span<const float>, std::span<const float>);
template double sinkhorn_divergence(const SinkhornDivergence&, MatrixView<const double>, MatrixView<const double>,
                                    std::span<const double>, std::span<const double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

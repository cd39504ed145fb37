// Entropy-regularised transport of masses that need not be equal: Sinkhorn's iteration on potentials.

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
#include "src/transport/column_sums.h"
#include "src/transport/kernels.h"
#include "src/transport/laplacian.h"
#include "src/transport/masses.h"
#include "src/transport/points.h"
#include "src/transport/problems.h"
#include "src/transport/sinkhorn.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr std::string_view kName = Described<UnbalancedSinkhorn>::kDescription.name;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double kStageChange = 0.05;  // of potentials, as a share of epsilon, at which a stage ends

// p log(p / q) - p + q, for near numbers from their relative difference: a large penalty multiplies what rounding leaves.
double divergence(double p, double q) {
  const double off = p / q - 1;
  return std::abs(off) < 0.5 ? q * ((1 + off) * std::log1p(off) - off) : p > 0 ? p * std::log(p / q) - p + q : q;
}

// With L_i = epsilon log sum_j b_j exp((g_j - C_ij) / epsilon), the best f for g is -rho / (rho + epsilon) L_i, and the row's
// sum is a_i exp(-f_i / rho) = a_i exp(L_i / (rho + epsilon)). g follows from f in the same way. A row or column without an
// allowed entry to a mass keeps its mass, with a potential of +inf.
template <class T>
class Solver {
 public:
  Solver(MatrixView<const T> cost, const T* a, const T* b, const UnbalancedSinkhorn& options)
      : kernels_(transport_kernels<T>()),
        cost_(cost),
        a_(a, a + cost.rows),
        b_(b, b + cost.cols),
        options_(options),
        rho_(options.penalty),
        column_sums_(cost.rows, cost.cols) {
    const std::size_t n = cost.rows, m = cost.cols;
    f_.assign(n, kInfinity);
    g_.assign(m, kInfinity);
    factor_.assign(n, 0);
    row_sums_.assign(n, 0);
    p_.resize(m);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; a_[i] > 0 && j < m; ++j) {
        if (b_[j] > 0 && cost.row(i)[j] <= std::numeric_limits<T>::max()) f_[i] = g_[j] = 0;
      }
    }
  }

  UnbalancedSinkhornResult run(double sum_a, double sum_b) {
    epsilon_ = std::max(options_.epsilon, largest_size(kernels_, cost_));
    std::int64_t in_stage = 0;
    double least = kInfinity;
    int stalled = 0;
    bool known = false;  // whether the result is known, after a sweep with these potentials
    UnbalancedSinkhornResult result = {};
    for (;;) {
      const bool last = epsilon_ == options_.epsilon;
      if (!known) {
        sweep();
        measure(result, sum_a, sum_b);
        ++result.iterations;
      }
      known = false;
      if (last && result.gap <= options_.tolerance * size_) {
        result.converged = true;
        break;
      }
      if (result.iterations >= options_.max_iterations) break;
      if (last && ++in_stage > sweeps_before_newton(cost_.cols) && stalled < kStalled &&
          result.iterations + 3 <= options_.max_iterations) {
        stalled = result.gap < least ? 0 : stalled + 1;
        least = std::min(least, result.gap);
        newton();
        const std::vector<double> before = g_;
        const double dual = result.value - result.gap;
        // Whole components may have to move far while plans change little, so the safe step comes last.
        for (const double part : {1.0, std::sqrt(safe_), safe_}) {
          for (std::size_t j = 0; j < g_.size(); ++j) {
            if (g_[j] < kInfinity) g_[j] = before[j] + epsilon_ * part * step_[j];
          }
          sweep();
          measure(result, sum_a, sum_b);
          ++result.iterations;
          if (part == safe_ || result.value - result.gap >= dual) break;
        }
        known = true;
        continue;
      }
      const double change = correct_columns();
      if (!last && (change <= kStageChange * epsilon_ || ++in_stage >= kStageIterations)) {
        epsilon_ = std::max(options_.epsilon, epsilon_ / kStageFactor);
        in_stage = 0;
      }
    }
    if (epsilon_ != options_.epsilon) {  // stopped early: the plan uses the wanted epsilon
      epsilon_ = options_.epsilon;
      sweep();
      measure(result, sum_a, sum_b);
    }
    return result;
  }

  void finish(UnbalancedSinkhornResult& result, MatrixView<T> plan, T* f, T* g) {
    const std::size_t n = cost_.rows, m = cost_.cols;
    result.gap = above(result.gap + rounding());
    std::vector<double> row(m);
    for (std::size_t i = 0; i < plan.rows; ++i) {
      std::fill(plan.row(i), plan.row(i) + m, T(0));
      if (f_[i] == kInfinity || a_[i] == 0) continue;
      double sum;
      kernels_.exponentials(cost_.row(i), p_.data(), m, epsilon_, row.data(), &sum);
      for (std::size_t j = 0; j < m; ++j) plan.row(i)[j] = static_cast<T>(factor_[i] * row[j]);
    }
    // A row or column without mass gets the potential that it would have with a little mass.
    for (std::size_t i = 0; i < n; ++i) {
      if (a_[i] == 0) f_[i] = -share() * row_logarithm(i);
    }
    for (std::size_t j = 0; j < m; ++j) {
      if (b_[j] == 0) g_[j] = -share() * column_logarithm(j);
    }
    for (std::size_t i = 0; i < n; ++i) f[i] = static_cast<T>(f_[i]);
    for (std::size_t j = 0; j < m; ++j) g[j] = static_cast<T>(g_[j]);
  }

 private:
  double share() const { return rho_ / (rho_ + epsilon_); }

  // What rounding may have changed in the value. Its terms have some errors of their sizes. That of a potential is one of the
  // largest cost or potential, and the exponentials multiply it by 1 / epsilon; the value is nearly stationary in the plan, so
  // that of this only epsilon times the change of the mass is left.
  double rounding() const {
    double largest = largest_size(kernels_, cost_), moved = 0;
    for (std::size_t j = 0; j < g_.size(); ++j) {
      if (g_[j] < kInfinity) largest = std::max(largest, std::abs(g_[j]));
      moved += column_sums_[j];
    }
    const double terms = static_cast<double>(a_.size() + b_.size() + 20);
    return 8 * kRounding * (size_ + moved * (largest + terms * epsilon_));
  }

  // Calculates f from g, the matching row sums, and the resulting column sums.
  void sweep() {
    const std::size_t m = cost_.cols;
    for (std::size_t j = 0; j < m; ++j) p_[j] = g_[j] < kInfinity ? g_[j] + epsilon_ * std::log(b_[j]) : -kInfinity;
    column_sums_.compute([&](std::size_t i, double* e, double* sums) {
      if (f_[i] == kInfinity) return;
      double sum;
      const double max = kernels_.exponentials(cost_.row(i), p_.data(), m, epsilon_, e, &sum);
      const double logarithm = max + epsilon_ * std::log(sum);
      f_[i] = -share() * logarithm;
      row_sums_[i] = a_[i] * std::exp(logarithm / (rho_ + epsilon_));
      factor_[i] = row_sums_[i] / sum;
      kernels_.accumulate(e, factor_[i], m, sums);
    });
  }

  // The values of the plan and of the potentials. Their difference is rho (KL(rows | a exp(-f / rho)) + KL(columns | b exp(-g /
  // rho))), where the rows' term is 0.
  void measure(UnbalancedSinkhornResult& result, double sum_a, double sum_b) {
    CompensatedSum paid, moved, marginals, gap;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (row_sums_[i] > 0) paid.add(row_sums_[i] * f_[i]);
      moved.add(row_sums_[i]);
      if (a_[i] > 0) marginals.add(divergence(row_sums_[i], a_[i]));
    }
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (b_[j] == 0) continue;
      if (column_sums_[j] > 0) paid.add(column_sums_[j] * g_[j]);
      marginals.add(divergence(column_sums_[j], b_[j]));
      if (g_[j] == kInfinity) continue;
      const double right = b_[j] * std::exp(-g_[j] / rho_);
      if (right < 1e-290) {  // the ratio of the two says nothing
        const double sum = column_sums_[j];
        gap.add(sum > 0 ? sum * (std::log(sum) - std::log(b_[j]) + g_[j] / rho_) - sum + right : right);
        continue;
      }
      gap.add(divergence(column_sums_[j], right));
    }
    const double total = sum_a * sum_b;
    result.value = paid.value() + options_.epsilon * (total - moved.value()) + rho_ * marginals.value();
    result.gap = std::max(0.0, rho_ * gap.value());
    // Relative to the actual terms: the penalty times the masses would let it end with marginals that are far from a and b.
    size_ = std::abs(paid.value()) + options_.epsilon * total + rho_ * marginals.value();
  }

  // Calculates g from f, then the best shift of f against g; returns the largest change of g.
  double correct_columns() {
    next_ = g_;
    for (std::size_t j = 0; j < g_.size(); ++j) {
      if (g_[j] == kInfinity) continue;
      // A column whose sum has vanished, because its g is far too low, is computed by itself.
      const double ratio = column_sums_[j] / b_[j];
      const double logarithm = ratio > 1e-280 && ratio < kInfinity ? epsilon_ * std::log(ratio) - g_[j] : column_logarithm(j);
      next_[j] = -share() * logarithm;
    }
    const double shift = 0.5 * rho_ * (mean_exponential(f_, a_) - mean_exponential(next_, b_));
    double change = 0;
    for (std::size_t j = 0; j < g_.size(); ++j) {
      if (g_[j] == kInfinity) continue;
      const double moved = next_[j] - (std::isfinite(shift) ? shift : 0);
      change = std::max(change, std::abs(moved - g_[j]));
      g_[j] = moved;
    }
    return change;
  }

  // One step of Newton's method for g after a sweep, where f is the best for g. The dual is then, up to a constant, -(rho +
  // epsilon) sum_i a_i exp(L_i / (rho + epsilon)) - rho sum_j b_j exp(-g_j / rho). With q_ij the rows of the plan over their
  // sums r_i, its Hessian times -epsilon is diag(columns) - rho / (rho + epsilon) sum_i r_i q_i q_i^T + epsilon / rho diag(b
  // exp(-g / rho)): a Laplacian and leaks. The part of the step that surely does not make it worse is that for a sum of
  // exponentials (Sun and Tran-Dinh 2019).
  void newton() {
    const std::size_t n = cost_.rows, m = cost_.cols;
    weights_.assign(m * m, 0);
    std::vector<double> q(m), lacks(m), leak(m);
    std::vector<std::size_t> some;
    for (std::size_t i = 0; i < n; ++i) {
      if (f_[i] == kInfinity || row_sums_[i] == 0) continue;
      double sum;
      kernels_.exponentials(cost_.row(i), p_.data(), m, epsilon_, q.data(), &sum);
      add_products(q, sum, share() * row_sums_[i], some, weights_);
    }
    for (std::size_t j = 0; j < m; ++j) {
      if (g_[j] == kInfinity) continue;
      const double right = b_[j] * std::exp(-g_[j] / rho_);
      lacks[j] = right - column_sums_[j];
      leak[j] = epsilon_ / (rho_ + epsilon_) * column_sums_[j] + epsilon_ / rho_ * right;
    }
    step_ = solve_laplacian(weights_, std::move(lacks), std::move(leak), false);
    double low = kInfinity, high = -kInfinity;
    for (std::size_t j = 0; j < m; ++j) {
      if (g_[j] < kInfinity) low = std::min(low, step_[j]), high = std::max(high, step_[j]);
    }
    const double size = high - low + epsilon_ / rho_ * std::max(std::abs(low), std::abs(high));
    safe_ = size > 0.5 ? std::log1p(size) / size : 1;
  }

  // log sum_i masses_i exp(-potentials_i / rho), over the finite potentials.
  double mean_exponential(const std::vector<double>& potentials, const std::vector<double>& masses) const {
    const bool rows = &masses == &a_;
    return log_sum_exp(masses.size(), 1, [&](std::size_t i) {
      const bool counts = masses[i] > 0 && (rows ? f_[i] : g_[i]) < kInfinity;
      return counts ? std::log(masses[i]) - potentials[i] / rho_ : -kInfinity;
    });
  }

  // epsilon log sum exp of the entries of a row or column, -inf if there are none.
  double row_logarithm(std::size_t i) const {
    return log_sum_exp(b_.size(), epsilon_, [&](std::size_t j) {
      return g_[j] < kInfinity && b_[j] > 0 ? g_[j] + epsilon_ * std::log(b_[j]) - cost_.row(i)[j] : -kInfinity;
    });
  }
  double column_logarithm(std::size_t j) const {
    return log_sum_exp(a_.size(), epsilon_, [&](std::size_t i) {
      return f_[i] < kInfinity && a_[i] > 0 ? f_[i] + epsilon_ * std::log(a_[i]) - cost_.row(i)[j] : -kInfinity;
    });
  }

  TransportKernels<T> kernels_;
  MatrixView<const T> cost_;
  std::vector<double> a_, b_;
  UnbalancedSinkhorn options_;
  double rho_, epsilon_ = 0, size_ = 0;
  ColumnSums column_sums_;
  std::vector<double> f_, g_, p_, factor_, row_sums_, next_;
  std::vector<double> step_;     // Newton's step, in units of epsilon
  double safe_ = 1;              // the part of it that does not make it worse
  std::vector<double> weights_;  // of the columns' Laplacian, below its diagonal
};

}  // namespace

template <class T>
void unbalanced_sinkhorn(const UnbalancedSinkhorn& options, MatrixView<const std::type_identity_t<T>> a,
                         MatrixView<const std::type_identity_t<T>> b, MatrixView<const std::type_identity_t<T>> cost,
                         MatrixView<std::type_identity_t<T>> plan, MatrixView<T> f, MatrixView<T> g,
                         std::span<UnbalancedSinkhornResult> result) {
  check_params(options);
  const std::vector<MassSums> sums = check_problems<T>(kName, a, b, cost, plan, f, g, result.size(), kInfinity);
  const std::size_t problems = a.rows, n = a.cols, m = b.cols;
  for (std::size_t k = 0; k < problems; ++k) {
    if (!std::isfinite(sums[k].a * sums[k].b)) {
      fail("{}: the product of the sums of a and b must be finite, got {} and {}{}", kName, sums[k].a, sums[k].b,
           in_problem(k, problems));
    }
  }
  parallel_rows(problems, 1000 * n * m, [&](std::size_t begin, std::size_t end) {
    for (std::size_t k = begin; k < end; ++k) {
      Solver<T> solver(cost_of(cost, k, n), a.row(k), b.row(k), options);
      result[k] = solver.run(sums[k].a, sums[k].b);
      solver.finish(result[k], plan_of(plan, k, n), f.row(k), g.row(k));
    }
  });
  for (std::size_t k = 0; k < problems; ++k) check_finite_cost(kName, result[k].value, result[k].gap, k, problems);
}

template <class T>
double unbalanced_sinkhorn_divergence(const UnbalancedSinkhornDivergence& options, MatrixView<const T> x,
                                      MatrixView<const std::type_identity_t<T>> y, std::span<const std::type_identity_t<T>> a,
                                      std::span<const std::type_identity_t<T>> b) {
  constexpr std::string_view kDivergence = Described<UnbalancedSinkhornDivergence>::kDescription.name;
  check_params(options);
  check_points(kDivergence, x, y);
  const auto masses = [&](std::string_view name, std::span<const T> given, std::size_t count) {
    if (!given.empty()) check_weights(kDivergence, name, given, count);
    return given.empty() ? std::vector<double>(count, 1 / static_cast<double>(count))
                         : std::vector<double>(given.begin(), given.end());
  };
  const std::vector<double> of_x = masses("a", a, x.rows), of_y = masses("b", b, y.rows);
  const auto sum = [](const std::vector<double>& all) { return std::accumulate(all.begin(), all.end(), 0.0); };
  const double sum_x = sum(of_x), sum_y = sum(of_y);
  if (!std::isfinite(sum_x * sum_x) || !std::isfinite(sum_y * sum_y)) {
    fail("{}: the squares of the sums of a and b must be finite, got sums {} and {}", kDivergence, sum_x, sum_y);
  }
  const UnbalancedSinkhorn one = {.epsilon = options.epsilon,
                                  .penalty = options.penalty,
                                  .tolerance = options.tolerance,
                                  .max_iterations = options.max_iterations};
  std::vector<double> cost;
  const auto minimum = [&](const MatrixView<const T>& u, const MatrixView<const T>& v, const std::vector<double>& from,
                           const std::vector<double>& to, double sum_from, double sum_to) {
    powers_of_distances(kDivergence, options.order, u, v, cost);
    Solver<double> solver({cost.data(), u.rows, v.rows}, from.data(), to.data(), one);
    return solver.run(sum_from, sum_to).value;
  };
  const double found = minimum(x, y, of_x, of_y, sum_x, sum_y) -
                       0.5 * (minimum(x, x, of_x, of_x, sum_x, sum_x) + minimum(y, y, of_y, of_y, sum_y, sum_y)) +
                       0.5 * options.epsilon * (sum_x - sum_y) * (sum_x - sum_y);
  return options.order <= 2 ? std::max(0.0, found) : found;  // as sinkhorn_divergence
}

template double unbalanced_sinkhorn_divergence(const UnbalancedSinkhornDivergence&, MatrixView<const float>,
                                               MatrixView<const float>, std::span<const float>, std::span<const float>);
template double unbalanced_sinkhorn_divergence(const UnbalancedSinkhornDivergence&, MatrixView<const double>,
                                               MatrixView<const double>, std::span<const double>, std::span<const double>);
template void unbalanced_sinkhorn(const UnbalancedSinkhorn&, MatrixView<const float>, MatrixView<const float>,
                                  MatrixView<const float>, MatrixView<float>, MatrixView<float>, MatrixView<float>,
                                  std::span<UnbalancedSinkhornResult>);
template void unbalanced_sinkhorn(const UnbalancedSinkhorn&, MatrixView<const double>, MatrixView<const double>,
                                  MatrixView<const double>, MatrixView<double>, MatrixView<double>, MatrixView<double>,
                                  std::span<UnbalancedSinkhornResult>);

}  // namespace isentropic::inline ISENTROPIC_ABI

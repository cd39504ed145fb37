// Barycenters on a fixed support: a plan from each distribution; the column sums of all plans are their geometric mean.

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "isentropic/transport.h"
#include "src/check.h"
#include "src/parallel.h"
#include "src/transport/kernels.h"
#include "src/transport/masses.h"
#include "src/transport/sinkhorn.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr std::string_view kName = Described<SinkhornBarycenter>::kDescription.name;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double kStageError = 0.05;  // of the rows' sums, at which a stage ends

// A range of costs, in units of epsilon, for which the stored kernel and its sums are normal numbers: these are between
// e^-kStored and e^kStored, but for the number of columns. Factors of columns may underflow; those add nothing that counts.
constexpr double kStored = 600;

// exp((min_j C_ij - C_ij) / epsilon), in rows, of which four go together; what is lacking at the end is 0.
struct StoredKernel {
  double epsilon = 0;
  std::vector<double> rows, least;

  template <class T>
  void make(const TransportKernels<T>& kernels, const MatrixView<const T>& cost, double new_epsilon) {
    const std::size_t n = cost.rows, m = cost.cols;
    epsilon = new_epsilon;
    rows.assign((n + 3) / 4 * 4 * m, 0);
    least.resize(n);
    const std::vector<double> nothing(m, 0);
    parallel_rows(n, 16 * m, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        double sum;
        least[i] = -kernels.exponentials(cost.row(i), nothing.data(), m, epsilon, rows.data() + i * m, &sum);
      }
    });
  }
};

// A plan from one distribution.
template <class T>
struct Plan {
  std::vector<double> p, f, g, sums, exponentials;
  std::vector<double> factors;  // of the stored kernel's columns: exp((g - max g) / epsilon)
  std::vector<double> totals;   // of its rows: their products with the factors; 0 before the first sweep
  double top = 0;               // max g

  // As sweep, with the stored kernel, four rows at a time: `error` counts those of the rows so far.
  void start(const TransportKernels<T>& kernels, const std::vector<T>& nothing, double epsilon) {
    factors.resize(g.size());
    double sum;
    top = kernels.exponentials(nothing.data(), g.data(), g.size(), epsilon, factors.data(), &sum);
    std::fill(sums.begin(), sums.end(), 0);
  }
  void sweep_four(const TransportKernels<T>& kernels, const StoredKernel& kernel, std::size_t i, double scale,
                  CompensatedSum& error) {
    const std::size_t m = g.size();
    double found[4], shares[4];
    kernels.four_products(kernel.rows.data() + i * m, factors.data(), m, found);
    for (std::size_t r = 0; r < 4; ++r) {
      shares[r] = 0;
      if (i + r >= p.size()) continue;
      const double mass = p[i + r], before = totals[i + r];
      totals[i + r] = found[r];
      if (mass == 0) continue;
      error.add(before > 0 ? mass * std::abs(found[r] / before * scale - 1) : kInfinity);
      shares[r] = mass / found[r];
    }
    kernels.accumulate_four(kernel.rows.data() + i * m, shares, m, sums.data());
  }
  // f, from the totals of the stored kernel.
  void finish(const StoredKernel& kernel) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      f[i] = kernel.least[i] - top - kernel.epsilon * std::log(totals[i]) + (p[i] > 0 ? kernel.epsilon * std::log(p[i]) : 0);
    }
  }

  // Calculates f from g, so that the row sums are right, and the column sums; returns the error of the rows with the previous
  // f.
  double sweep(const TransportKernels<T>& kernels, const MatrixView<const T>& cost, double epsilon) {
    const std::size_t m = g.size();
    std::fill(sums.begin(), sums.end(), 0);
    CompensatedSum error;
    for (std::size_t i = 0; i < p.size(); ++i) {
      double sum;
      const double max = kernels.exponentials(cost.row(i), g.data(), m, epsilon, exponentials.data(), &sum);
      const double before = f[i];
      f[i] = -(max + epsilon * std::log(sum));
      if (p[i] == 0) continue;
      error.add(p[i] * std::abs(std::expm1((before - f[i]) / epsilon - std::log(p[i]))));
      f[i] += epsilon * std::log(p[i]);
      kernels.accumulate(exponentials.data(), p[i] / sum, m, sums.data());
    }
    return error.value();
  }

  // epsilon log sum_i exp((f_i - C_ij) / epsilon).
  double reached(const MatrixView<const T>& cost, double epsilon, std::size_t j) const {
    // A column whose sum has vanished, because its g is far too low, is computed by itself.
    if (sums[j] > 1e-280) return epsilon * std::log(sums[j]) - g[j];
    return log_sum_exp(p.size(), epsilon, [&](std::size_t i) { return p[i] > 0 ? f[i] - cost.row(i)[j] : -kInfinity; });
  }
};

template <class T>
void check_shapes_and_cost(const MatrixView<const T>& p, const MatrixView<const T>& cost, std::span<const T> barycenter,
                           const MatrixView<T>& f, const MatrixView<T>& g) {
  const std::size_t count = p.rows, n = p.cols, m = cost.cols;
  check_layout(kName, "p", p);
  check_layout(kName, "cost", cost);
  if (count == 0) fail_at(kName, "p", {}, "p must have at least one row");
  if (cost.rows != n || m == 0) {
    fail_at(kName, "cost", {}, "cost must have a row for each of {} columns of p and at least one column, got {} x {}", n,
            cost.rows, m);
  }
  if (barycenter.size() != m) fail_at(kName, "barycenter", {}, "barycenter must have {} entries, got {}", m, barycenter.size());
  if (f.rows != 0) check_shape(kName, "f", f, "p", count, n);
  if (g.rows != 0) check_shape(kName, "g", g, "p by columns of cost", count, m);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) {
      if (!std::isfinite(cost.row(i)[j])) {
        fail_at(kName, "cost", in_matrix(i, j), "cost must be finite, got {}", cost.row(i)[j]);
      }
    }
  }
}

// Weights of sum 1.
template <class T>
std::vector<double> check_shares(std::span<const T> weights, std::size_t count) {
  std::vector<double> share(count, 1 / static_cast<double>(count));
  if (weights.empty()) return share;
  const double sum = check_weights(kName, "weights", weights, count);
  for (std::size_t k = 0; k < count; ++k) share[k] = weights[k] / sum;
  return share;
}

// Plans of potentials g of 0, from distributions of sum 1.
template <class T>
std::vector<Plan<T>> first_plans(const MatrixView<const T>& p, std::size_t m) {
  const std::size_t n = p.cols;
  std::vector<Plan<T>> plans(p.rows);
  for (std::size_t k = 0; k < p.rows; ++k) {
    const double sum = check_masses(kName, "p", p, k);
    Plan<T>& plan = plans[k];
    plan.p.resize(n);
    for (std::size_t i = 0; i < n; ++i) plan.p[i] = p.row(k)[i] / sum;
    plan.f.assign(n, kInfinity);
    plan.g.assign(m, 0);
    plan.sums.resize(m);
    plan.exponentials.resize(m);
  }
  return plans;
}

// Calculates the potentials of all plans, and the logarithm of the barycenter times epsilon, up to a constant.
template <class T>
SinkhornBarycenterResult iterate(const SinkhornBarycenter& options, const MatrixView<const T>& cost,
                                 const std::vector<double>& share, std::vector<Plan<T>>& plans,
                                 std::vector<double>& logarithm) {
  const std::size_t count = plans.size(), n = cost.rows, m = cost.cols;
  const TransportKernels<T> kernels = transport_kernels<T>();
  double epsilon = std::max(options.epsilon, largest_size(kernels, cost));
  SinkhornBarycenterResult result = {};
  std::vector<double> errors(count), reached(count * m);
  std::int64_t in_stage = 0;
  double lowest = kInfinity, highest = -kInfinity;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) {
      lowest = std::min(lowest, static_cast<double>(cost.row(i)[j]));
      highest = std::max(highest, static_cast<double>(cost.row(i)[j]));
    }
  }
  StoredKernel kernel;
  const std::vector<T> nothing(m, 0);
  for (;;) {
    const bool stored = highest - lowest <= kStored * epsilon;
    if (stored && kernel.epsilon != epsilon) {
      kernel.make(kernels, cost, epsilon);
      for (Plan<T>& plan : plans) plan.totals.assign(n, 0);
    }
    parallel_rows(count, (stored ? 2 : 16) * n * m, [&](std::size_t begin, std::size_t end) {
      if (stored) {
        std::vector<CompensatedSum> error(end - begin);
        std::vector<double> scales(end - begin);
        for (std::size_t k = begin; k < end; ++k) {
          const double before = plans[k].top;
          plans[k].start(kernels, nothing, epsilon);
          scales[k - begin] = std::exp((plans[k].top - before) / epsilon);
        }
        for (std::size_t i = 0; i < n; i += 4) {
          for (std::size_t k = begin; k < end; ++k) {
            plans[k].sweep_four(kernels, kernel, i, scales[k - begin], error[k - begin]);
          }
        }
        for (std::size_t k = begin; k < end; ++k) {
          errors[k] = error[k - begin].value();
          for (std::size_t j = 0; j < m; ++j) reached[k * m + j] = epsilon * std::log(plans[k].sums[j]) - plans[k].top;
        }
        return;
      }
      for (std::size_t k = begin; k < end; ++k) {
        errors[k] = plans[k].sweep(kernels, cost, epsilon);
        for (std::size_t j = 0; j < m; ++j) reached[k * m + j] = plans[k].reached(cost, epsilon, j);
      }
    });
    result.iterations = std::min(result.iterations + 1, options.max_iterations);
    const double error = *std::max_element(errors.begin(), errors.end());
    const bool last = epsilon == options.epsilon, over = result.iterations >= options.max_iterations;
    if (last) result.marginal_error = error;
    const auto finish = [&] {
      if (!stored) return;
      for (Plan<T>& plan : plans) plan.finish(kernel);
    };
    if (last && error <= options.tolerance) {
      result.converged = true;
      finish();
      return result;
    }
    if (over && last) finish();
    // The geometric mean of the column sums, and the g that gives each plan these column sums.
    for (std::size_t j = 0; j < m; ++j) {
      double mean = 0;
      for (std::size_t k = 0; k < count; ++k) mean += share[k] * reached[k * m + j];
      logarithm[j] = mean;
      for (std::size_t k = 0; k < count; ++k) plans[k].g[j] = mean - reached[k * m + j];
    }
    if (over && last) return result;
    if (!last && (over || error <= kStageError || ++in_stage >= kStageIterations)) {
      epsilon = over ? options.epsilon : std::max(options.epsilon, epsilon / kStageFactor);
      in_stage = 0;
      for (Plan<T>& plan : plans) std::fill(plan.f.begin(), plan.f.end(), kInfinity);
    }
  }
}

}  // namespace

template <class T>
SinkhornBarycenterResult sinkhorn_barycenter(const SinkhornBarycenter& options, MatrixView<const T> p,
                                             std::span<const std::type_identity_t<T>> weights,
                                             std::type_identity_t<MatrixView<const T>> cost,
                                             std::span<std::type_identity_t<T>> barycenter,
                                             std::type_identity_t<MatrixView<T>> f, std::type_identity_t<MatrixView<T>> g) {
  check_params(options);
  check_shapes_and_cost<T>(p, cost, barycenter, f, g);
  const std::size_t n = p.cols, m = cost.cols;
  const std::vector<double> share = check_shares<T>(weights, p.rows);
  std::vector<Plan<T>> plans = first_plans(p, m);
  std::vector<double> logarithm(m);
  const SinkhornBarycenterResult result = iterate(options, cost, share, plans, logarithm);

  const double top = *std::max_element(logarithm.begin(), logarithm.end());
  double sum = 0;
  for (double& one : logarithm) sum += one = std::exp((one - top) / options.epsilon);
  for (std::size_t j = 0; j < m; ++j) barycenter[j] = static_cast<T>(logarithm[j] / sum);
  for (std::size_t k = 0; k < f.rows; ++k) {
    for (std::size_t i = 0; i < n; ++i)
      f.row(k)[i] = plans[k].p[i] > 0 ? static_cast<T>(plans[k].f[i]) : -std::numeric_limits<T>::infinity();
  }
  for (std::size_t k = 0; k < g.rows; ++k) {
    for (std::size_t j = 0; j < m; ++j) g.row(k)[j] = static_cast<T>(plans[k].g[j]);
  }
  return result;
}

template SinkhornBarycenterResult sinkhorn_barycenter(const SinkhornBarycenter&, MatrixView<const float>,
                                                      std::span<const float>, MatrixView<const float>, std::span<float>,
                                                      MatrixView<float>, MatrixView<float>);
template SinkhornBarycenterResult sinkhorn_barycenter(const SinkhornBarycenter&, MatrixView<const double>,
                                                      std::span<const double>, MatrixView<const double>, std::span<double>,
                                                      MatrixView<double>, MatrixView<double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

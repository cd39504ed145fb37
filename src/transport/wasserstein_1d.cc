// Wasserstein distances on the line: of samples and of histograms, with their gradients.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "isentropic/input.h"
#include "isentropic/transport.h"
#include "src/check.h"
#include "src/parallel.h"
#include "src/transport/line.h"
#include "src/transport/masses.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

// The weights of samples; 1 without weights.
template <class T>
class Weights {
 public:
  Weights(std::string_view operation, std::string_view name, const MatrixView<const T>& weights, std::string_view samples_name,
          const MatrixView<const T>& samples)
      : weights_(weights), count_(static_cast<double>(samples.cols)) {
    if (weights.rows == 0) return;
    check_shape(operation, name, weights, samples_name, weights.rows == 1 ? 1 : samples.rows, samples.cols);
    for (std::size_t r = 0; r < weights.rows; ++r) sums_.push_back(check_masses(operation, name, weights, r));
  }

  // The weights of row r, by sample.
  auto of(std::size_t r) const {
    const T* const row = sums_.empty() ? nullptr : weights_.row(weights_.rows == 1 ? 0 : r);
    return [row](std::size_t i) { return row == nullptr ? T(1) : row[i]; };
  }
  double sum(std::size_t r) const { return sums_.empty() ? count_ : sums_[weights_.rows == 1 ? 0 : r]; }

 private:
  MatrixView<const T> weights_;
  std::vector<double> sums_;
  double count_;
};

template <class T>
bool has_nan(const T* x, std::size_t n) {
  bool found = false;
  for (std::size_t i = 0; i < n; ++i) found |= x[i] != x[i];
  return found;
}

}  // namespace

template <class T>
void wasserstein_1d(const Wasserstein1d& options, MatrixView<const T> u, MatrixView<const std::type_identity_t<T>> v,
                    std::type_identity_t<MatrixView<const T>> u_weights, std::type_identity_t<MatrixView<const T>> v_weights,
                    std::span<double> distance, std::type_identity_t<MatrixView<T>> du,
                    std::type_identity_t<MatrixView<T>> dv) {
  constexpr std::string_view kName = Described<Wasserstein1d>::kDescription.name;
  check_params(options);
  check_layout(kName, "u", u);
  check_layout(kName, "v", v);
  const std::size_t rows = u.rows, n = u.cols, m = v.cols;
  if (v.rows != rows) fail_at(kName, "v", {}, "v must have as many rows as u, {}, got {}", rows, v.rows);
  check_size(kName, "distance", distance.size(), rows);
  if (rows == 0) return;
  if (n == 0 || m == 0) fail_at(kName, "u and v", {}, "u and v must have at least one sample, got {} and {}", n, m);
  if (n >= 1u << 31 || m >= 1u << 31)
    fail_at(kName, "u and v", {}, "u and v must have less than 2^31 samples, got {} and {}", n, m);
  const Weights<T> weights_u(kName, "u_weights", u_weights, "u", u), weights_v(kName, "v_weights", v_weights, "v", v);
  if (du.rows != 0) check_shape(kName, "du", du, "u", rows, n);
  if (dv.rows != 0) check_shape(kName, "dv", dv, "v", rows, m);
  for (const auto& [in_name, in] :
       {std::pair("u", u), std::pair("v", v), std::pair("u_weights", u_weights), std::pair("v_weights", v_weights)}) {
    check_apart(kName, "du", du, in_name, in);
    check_apart(kName, "dv", dv, in_name, in);
  }
  check_apart(kName, "dv", dv, "du", du);
  const bool wanted = du.rows != 0 || dv.rows != 0, weighted = u_weights.rows != 0 || v_weights.rows != 0;

  parallel_rows(rows, 32 * (n + m), [&](std::size_t begin, std::size_t end) {
    Line<T> line;
    std::vector<double> gradient_u, gradient_v;
    for (std::size_t r = begin; r < end; ++r) {
      const auto fill = [&](T value) {
        if (du.rows != 0) std::fill(du.row(r), du.row(r) + n, value);
        if (dv.rows != 0) std::fill(dv.row(r), dv.row(r) + m, value);
      };
      if (has_nan(u.row(r), n) || has_nan(v.row(r), m)) {
        distance[r] = kNaN;
        fill(std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      if (wanted) {
        const auto index = [](std::size_t i) { return static_cast<std::uint32_t>(i); };
        sort_samples<T>(line.indexed, line.more_indexed, u.row(r), n, line.x, line.x_at, index);
        sort_samples<T>(line.indexed, line.more_indexed, v.row(r), m, line.y, line.y_at, index);
        gradient_u.assign(n, 0);
        gradient_v.assign(m, 0);
      } else if (weighted) {
        sort_samples<T>(line.weighted, line.more_weighted, u.row(r), n, line.x, line.a, weights_u.of(r));
        sort_samples<T>(line.weighted, line.more_weighted, v.row(r), m, line.y, line.b, weights_v.of(r));
      } else {
        sort_samples(line, u.row(r), n, line.x);
        sort_samples(line, v.row(r), m, line.y);
      }
      const auto gradient = [&](std::size_t i, std::size_t j, double slope) {
        gradient_u[line.x_at[i]] += slope;
        gradient_v[line.y_at[j]] -= slope;
      };
      if (weighted) {
        const auto in_order = [](const auto& weight, const std::vector<std::uint32_t>& at, std::vector<T>& to) {
          to.resize(at.size());
          for (std::size_t i = 0; i < at.size(); ++i) to[i] = weight(at[i]);
        };
        if (wanted) {
          in_order(weights_u.of(r), line.x_at, line.a);
          in_order(weights_v.of(r), line.y_at, line.b);
        }
        const double sum_a = weights_u.sum(r), sum_b = weights_v.sum(r);
        line.masses.template set<T>(line.a, sum_a, line.b, sum_b);
        distance[r] = line_distance(
            line.x, line.y, [&](std::size_t i) { return line.masses.a[i]; }, [&](std::size_t j) { return line.masses.b[j]; },
            line.masses.fraction(sum_a), options.order, wanted, gradient);
      } else if (n == m) {
        const auto one = [](std::size_t) { return Mass{1}; };
        distance[r] = line_distance(line.x, line.y, one, one, 1.0 / static_cast<double>(n), options.order, wanted, gradient);
      } else {
        distance[r] = line_distance(
            line.x, line.y, [&](std::size_t) { return static_cast<Mass>(m); },
            [&](std::size_t) { return static_cast<Mass>(n); }, 1.0 / (static_cast<double>(n) * static_cast<double>(m)),
            options.order, wanted, gradient);
      }
      if (!wanted) continue;
      if (distance[r] == kInfinity) {
        fill(std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      if (du.rows != 0)
        std::transform(gradient_u.begin(), gradient_u.end(), du.row(r), [](double x) { return static_cast<T>(x); });
      if (dv.rows != 0)
        std::transform(gradient_v.begin(), gradient_v.end(), dv.row(r), [](double x) { return static_cast<T>(x); });
    }
  });
}

template <class T>
void wasserstein_histogram(const WassersteinHistogram& options, MatrixView<const T> p,
                           MatrixView<const std::type_identity_t<T>> q, std::span<const double> support,
                           std::span<double> distance, std::type_identity_t<MatrixView<T>> dp,
                           std::type_identity_t<MatrixView<T>> dq) {
  constexpr std::string_view kName = Described<WassersteinHistogram>::kDescription.name;
  check_params(options);
  check_layout(kName, "p", p);
  check_shape(kName, "q", q, "p", p.rows, p.cols);
  const std::size_t rows = p.rows, n = p.cols;
  check_size(kName, "distance", distance.size(), rows);
  if (support.size() != n) {
    fail_at(kName, "support", {}, "support must have one point for each of {} columns, got {}", n, support.size());
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(support[i])) fail_at(kName, "support", {.entry = i}, "support must be finite, got {}", support[i]);
  }
  if (dp.rows != 0) check_shape(kName, "dp", dp, "p", rows, n);
  if (dq.rows != 0) check_shape(kName, "dq", dq, "q", rows, n);
  for (const auto& [in_name, in] : {std::pair("p", p), std::pair("q", q)}) {
    check_apart(kName, "dp", dp, in_name, in);
    check_apart(kName, "dq", dq, in_name, in);
  }
  check_apart(kName, "dq", dq, "dp", dp);
  if (rows == 0) return;
  const double tolerance = options.sum_tolerance.value_or(kSumTolerance<T>);
  std::vector<double> sums_p(rows), sums_q(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto check = [&](std::string_view name, const MatrixView<const T>& masses) {
      const double sum = check_masses(kName, name, masses, r);
      if (std::abs(sum - 1) > tolerance) {
        fail_in_row(kName, name, r, "{} must sum to 1 within {}, got {}", name, tolerance, sum);
      }
      return sum;
    };
    sums_p[r] = check("p", p);
    sums_q[r] = check("q", q);
  }
  std::vector<std::uint32_t> at(n);
  std::iota(at.begin(), at.end(), 0);
  std::stable_sort(at.begin(), at.end(), [&](std::uint32_t i, std::uint32_t j) { return support[i] < support[j]; });
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = support[at[i]];
  const bool wanted = dp.rows != 0 || dq.rows != 0;

  parallel_rows(rows, 64 * n, [&](std::size_t begin, std::size_t end) {
    Line<T> line;
    line.a.resize(n);
    line.b.resize(n);
    line.f.resize(n);
    line.g.resize(n);
    for (std::size_t r = begin; r < end; ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        line.a[i] = p.row(r)[at[i]];
        line.b[i] = q.row(r)[at[i]];
      }
      line.masses.template set<T>(line.a, sums_p[r], line.b, sums_q[r]);
      const auto mass_a = [&](std::size_t i) { return line.masses.a[i]; };
      const auto mass_b = [&](std::size_t j) { return line.masses.b[j]; };
      const double unit = line.masses.fraction(sums_p[r]);
      const double w = line_distance(x, x, mass_a, mass_b, unit, options.order, false, [](std::size_t, std::size_t, double) {});
      distance[r] = w;
      if (!wanted) continue;
      // Potentials of the cost (|x - y| / W)^order along the monotone plan; where the plan leaves row and column at once, both
      // orders give potentials, and so does their mean.
      const double order = options.order;
      const bool flat = (w == 0 && order > 1) || order == kInfinity || n == 0;
      const double scale = w == 0 ? 1 : w;
      const auto cost = [&](std::size_t i, std::size_t j) { return power(std::abs(x[i] - x[j]) / scale, order); };
      double *const f = line.f.data(), *const g = line.g.data();
      if (!flat) {
        f[0] = 0;
        g[0] = cost(0, 0);
        walk(n, n, mass_a, mass_b, [&](std::size_t i, std::size_t j, Mass, int step) {
          if (step == 1) f[i + 1] = cost(i + 1, j) - g[j];
          if (step == 2) g[j + 1] = cost(i, j + 1) - f[i];
          if (step == 3) {
            f[i + 1] = f[i] + 0.5 * ((cost(i + 1, j) - cost(i, j)) + (cost(i + 1, j + 1) - cost(i, j + 1)));
            g[j + 1] = cost(i + 1, j + 1) - f[i + 1];
          }
        });
      }
      const auto write = [&](const double* potential, const std::vector<Mass>& mass, T* to) {
        CompensatedSum mean;
        for (std::size_t i = 0; i < n; ++i) {
          if (!flat) mean.add_product(static_cast<double>(mass[i]) * unit, potential[i]);
        }
        for (std::size_t i = 0; i < n; ++i) {
          to[at[i]] = flat ? T(0) : static_cast<T>((potential[i] - mean.value()) * scale / order);
        }
      };
      if (dp.rows != 0) write(f, line.masses.a, dp.row(r));
      if (dq.rows != 0) write(g, line.masses.b, dq.row(r));
    }
  });
}

template void wasserstein_1d(const Wasserstein1d&, MatrixView<const float>, MatrixView<const float>, MatrixView<const float>,
                             MatrixView<const float>, std::span<double>, MatrixView<float>, MatrixView<float>);
template void wasserstein_1d(const Wasserstein1d&, MatrixView<const double>, MatrixView<const double>, MatrixView<const double>,
                             MatrixView<const double>, std::span<double>, MatrixView<double>, MatrixView<double>);
template void wasserstein_histogram(const WassersteinHistogram&, MatrixView<const float>, MatrixView<const float>,
                                    std::span<const double>, std::span<double>, MatrixView<float>, MatrixView<float>);
template void wasserstein_histogram(const WassersteinHistogram&, MatrixView<const double>, MatrixView<const double>,
                                    std::span<const double>, std::span<double>, MatrixView<double>, MatrixView<double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

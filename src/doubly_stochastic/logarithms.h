// Tables for which sums of products are not enough: numbers far apart, and limits that sweeps find slowly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isentropic/transport.h"
#include "src/doubly_stochastic/kernels.h"
#include "src/doubly_stochastic/support.h"

namespace isentropic::inline ISENTROPIC_ABI {

// One table by logarithms: l = (x - max of its row) / T, and potentials f and g of rows and columns, for numbers of any size.
class Logarithms {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

 public:
  template <class T>
  Logarithms(const Sweeps& s, MatrixView<const T> x) : s_(s), l_(s.n * s.m) {
    std::vector<char> column(s.m);
    std::vector<double> most(s.n, -kInfinity);
    double widest = 0;  // a quarter of it, because a difference may overflow
    for (std::size_t i = 0; i < s.n; ++i) {
      double least = kInfinity;
      for (std::size_t j = 0; j < s.m; ++j) {
        const auto one = static_cast<double>(x.row(i)[j]);
        if (!(one < kInfinity)) good_ = false;  // NaN too
        most[i] = std::max(most[i], one);
        if (one > -kInfinity) least = std::min(least, one), column[j] = true;
        forbids_ |= one == -kInfinity;
      }
      if (!std::isfinite(most[i])) good_ = false;
      widest = std::max(widest, most[i] / 4 - least / 4);
    }
    const double temperature = std::max(s.temperature / 4, widest / kMostTemperatures);
    for (std::size_t i = 0; i < s.n; ++i) {
      for (std::size_t j = 0; j < s.m; ++j) {
        const auto one = static_cast<double>(x.row(i)[j]);
        at(i, j) = one == -kInfinity ? one : (one / 4 - most[i] / 4) / temperature;
      }
    }
    good_ &= std::find(column.begin(), column.end(), false) == column.end();
    f_.assign(s.n, 0);
    g_.assign(s.m, 0);
  }

  bool good() const { return good_; }
  bool forbids() const { return forbids_; }

  // Takes away the entries that no table can use; false if there is no table.
  bool restrict_to_support() {
    const Support support(s_.n, s_.m, [&](std::size_t i, std::size_t j) { return at(i, j) > -kInfinity; });
    if (!support.feasible()) return false;
    for (std::size_t i = 0; i < s_.n; ++i) {
      for (std::size_t j = 0; j < s_.m; ++j) {
        if (!support.usable(i, j)) at(i, j) = -kInfinity;
      }
    }
    return true;
  }

  MatrixView<const double> scores() const { return {l_.data(), s_.n, s_.m}; }

  void row_step() {
    for (std::size_t i = 0; i < s_.n; ++i) {
      f_[i] = -log_of_sum(s_.m, [&](std::size_t j) { return at(i, j) + g_[j]; });
    }
  }
  void column_step() {
    for (std::size_t j = 0; j < s_.m; ++j) {
      g_[j] = std::log(s_.column_sum()) - log_of_sum(s_.n, [&](std::size_t i) { return at(i, j) + f_[i]; });
    }
  }

  // The limit: potentials of optimal transport with entropy, whose solver has stages and Newton's method; then the column's
  // sums exactly.
  void solve() {
    const double n = static_cast<double>(s_.n), m = static_cast<double>(s_.m);
    std::vector<double> cost(l_.size()), a(s_.n, 1 / n), b(s_.m, 1 / m), f(s_.n), g(s_.m);
    for (std::size_t k = 0; k < l_.size(); ++k) cost[k] = -l_[k];
    SinkhornResult result;
    const double tolerance = std::log(s_.high);
    sinkhorn<double>({.epsilon = 1, .tolerance = tolerance / (2 * m), .max_iterations = kMostIterations, .mass_tolerance = {}},
                     MatrixView<const double>(a.data(), 1, s_.n), MatrixView<const double>(b.data(), 1, s_.m),
                     MatrixView<const double>(cost.data(), s_.n, s_.m), {}, MatrixView<double>(f.data(), 1, s_.n),
                     MatrixView<double>(g.data(), 1, s_.m), std::span(&result, 1));
    f_ = f;
    column_step();
    // The sums of rows are means of what columns were off, so they are off by less.
    double before = kInfinity;
    for (std::size_t t = 0; t < kMostSweeps; ++t) {
      const double error = row_error();
      if (error <= tolerance || error >= before) break;
      before = error;
      row_step();
      column_step();
    }
  }

  // Rounding of large potentials has lost digits of the columns' sums; these restore them.
  template <class T>
  void write(MatrixView<T> y) const {
    std::vector<double> lost(s_.m);
    for (std::size_t j = 0; j < s_.m; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < s_.n; ++i) sum += std::exp(at(i, j) + f_[i] + g_[j]);
      lost[j] = std::log(sum / s_.column_sum());
    }
    for (std::size_t i = 0; i < s_.n; ++i) {
      for (std::size_t j = 0; j < s_.m; ++j) y.row(i)[j] = static_cast<T>(std::exp(at(i, j) + f_[i] + g_[j] - lost[j]));
    }
  }

  // The gradient of a number of sweeps, with all potentials kept; see LanesVjp.
  template <class T>
  void vjp(MatrixView<const T> gradient, MatrixView<T> dx) {
    const std::size_t n = s_.n, m = s_.m;
    std::vector<std::vector<double>> fs, gs = {g_};
    for (std::size_t t = 0; t < s_.iterations; ++t) {
      row_step(), column_step();
      fs.push_back(f_), gs.push_back(g_);
    }
    std::vector<double> slopes(n * m), rows(n), columns(m);
    const auto each = [&](const std::vector<double>& f, const std::vector<double>& g, const auto& use) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < m; ++j) use(i, j, std::exp(at(i, j) + f[i] + g[j]));
      }
    };
    each(f_, g_, [&](std::size_t i, std::size_t j, double y) {
      const double slope = slopes[i * m + j] = y * static_cast<double>(gradient.row(i)[j]);
      rows[i] += slope, columns[j] += slope;
    });
    for (std::size_t t = s_.iterations; t-- > 0;) {
      each(fs[t], gs[t + 1], [&](std::size_t i, std::size_t j, double y) {
        const double part = y / s_.column_sum() * columns[j];
        slopes[i * m + j] -= part, rows[i] -= part;
      });
      std::fill(columns.begin(), columns.end(), 0.0);
      each(fs[t], gs[t], [&](std::size_t i, std::size_t j, double y) {
        const double part = y * rows[i];
        slopes[i * m + j] -= part, columns[j] -= part;
      });
      std::fill(rows.begin(), rows.end(), 0.0);
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < m; ++j) dx.row(i)[j] = static_cast<T>(slopes[i * m + j] / s_.temperature);
    }
  }

 private:
  // A range of scores in units of T beyond which digits of a sum of potentials are lost; T is raised to it.
  static constexpr double kMostTemperatures = 0x1p40;
  static constexpr std::int64_t kMostIterations = 20000;

  double& at(std::size_t i, std::size_t j) { return l_[i * s_.m + j]; }
  double at(std::size_t i, std::size_t j) const { return l_[i * s_.m + j]; }

  template <class Term>
  static double log_of_sum(std::size_t count, const Term& term) {
    double max = -kInfinity, sum = 0;
    for (std::size_t k = 0; k < count; ++k) max = std::max(max, term(k));
    for (std::size_t k = 0; k < count; ++k) sum += std::exp(term(k) - max);
    return max + std::log(sum);
  }

  double row_error() const {
    double error = 0;
    for (std::size_t i = 0; i < s_.n; ++i) {
      error = std::max(error, std::abs(f_[i] + log_of_sum(s_.m, [&](std::size_t j) { return at(i, j) + g_[j]; })));
    }
    return error;
  }

  Sweeps s_;
  std::vector<double> l_, f_, g_;
  bool good_ = true, forbids_ = false;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

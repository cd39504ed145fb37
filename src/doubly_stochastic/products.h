// Tables that are too large for a lane, by sums of products.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "src/doubly_stochastic/kernels.h"
#include "src/transport/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Rows of numbers in groups of four, the last of which may have rows of zeros.
class FourRows {
 public:
  FourRows(std::size_t rows, std::size_t cols)
      : kernels_(transport_kernels<double>()), groups_((rows + 3) / 4), cols_(cols), numbers_(4 * groups_ * cols) {}
  double* row(std::size_t i) { return numbers_.data() + i * cols_; }
  const double* row(std::size_t i) const { return numbers_.data() + i * cols_; }
  std::size_t padded() const { return 4 * groups_; }
  // to += sum_i factors_i row i
  void add(const double* factors, double* to) const {
    for (std::size_t k = 0; k < groups_; ++k) kernels_.accumulate_four(row(4 * k), factors + 4 * k, cols_, to);
  }
  // Both in one pass: factor(i, product of row i) is what a row is added with.
  template <class Factor>
  void times_and_add(const double* v, const Factor& factor, double* to) const {
    double four[4];
    for (std::size_t k = 0; k < groups_; ++k) {
      kernels_.four_products(row(4 * k), v, cols_, four);
      for (std::size_t r = 0; r < 4; ++r) four[r] = factor(4 * k + r, four[r]);
      kernels_.accumulate_four(row(4 * k), four, cols_, to);
    }
  }

 private:
  TransportKernels<double> kernels_;
  std::size_t groups_, cols_;
  std::vector<double> numbers_;
};

// One table by sums of products: K = exp((x - max of its row) / T), and factors of rows and columns.
class Products {
 public:
  template <class T>
  Products(const Sweeps& s, MatrixView<const T> x) : s_(s), k_(s.n, s.m) {
    const TableKernels<T> kernels = table_kernels<T>();
    for (std::size_t i = 0; i < s.n && good_; ++i) good_ = kernels.exponentials(x.row(i), s.m, s.temperature, k_.row(i));
  }

  // Makes the sweeps, with the factors of all kept or of the last alone; false if this table needs another way.
  bool run(bool keep) {
    const std::size_t n = s_.n, m = s_.m, most = s_.iterations == 0 ? kMostSweeps : s_.iterations;
    r_.assign((keep ? most : 1) * k_.padded(), 0);
    c_.assign((keep ? most + 1 : 1) * m, 1);
    std::vector<double> u(m);
    for (std::size_t t = 0; t < most && good_; ++t) {
      double* const r = row_factors(keep ? t : 0);
      const double* const before = column_factors(keep ? t : 0);
      double* const c = column_factors(keep ? t + 1 : 0);
      std::fill(u.begin(), u.end(), 0.0);
      bool right = t > 0 && s_.iterations == 0;
      k_.times_and_add(
          before,
          [&](std::size_t i, double sum) {
            if (i >= n) return 0.0;
            right = right && sum * r[i] >= s_.low && sum * r[i] <= s_.high;
            good_ &= near_one(sum);
            return next_[i] = 1 / sum;
          },
          u.data());
      if (right) return true;  // r and c are still those of the sweep before
      std::copy(next_.begin(), next_.end(), r);
      for (std::size_t j = 0; j < m; ++j) {
        good_ &= near_one(u[j]);
        c[j] = s_.column_sum() / u[j];
      }
    }
    return good_ && s_.iterations > 0;
  }

  template <class T>
  void write(MatrixView<T> y) const {
    const double *const r = r_.data(), *const c = c_.data();
    for (std::size_t i = 0; i < s_.n; ++i) {
      for (std::size_t j = 0; j < s_.m; ++j) y.row(i)[j] = static_cast<T>(k_.row(i)[j] * r[i] * c[j]);
    }
  }

  // As LanesVjp. What an entry loses is a sum over sweeps of two products each, which is left to the end.
  template <class T>
  void vjp(MatrixView<const T> g, MatrixView<T> dx) const {
    const std::size_t n = s_.n, m = s_.m, last = s_.iterations;
    FourRows lost(2 * last, m);
    std::vector<double> of_cells(n * lost.padded()), rows(k_.padded()), next(m), gy(m);
    const double* const c = column_factors(last);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < m; ++j) {
        const double slope = k_.row(i)[j] * row_factors(last - 1)[i] * c[j] * static_cast<double>(g.row(i)[j]);
        rows[i] += slope, next[j] += slope;
      }
    }
    for (std::size_t t = last; t-- > 0;) {
      double* const h = lost.row(2 * t);
      const double *const r = row_factors(t), *const after = column_factors(t + 1), *const before = column_factors(t);
      for (std::size_t j = 0; j < m; ++j) h[j] = next[j] * after[j] / s_.column_sum();
      std::copy(before, before + m, lost.row(2 * t + 1));
      std::fill(next.begin(), next.end(), 0.0);
      k_.times_and_add(
          h,
          [&](std::size_t i, double product) {
            if (i >= n) return 0.0;
            const double q = (rows[i] - r[i] * product) * r[i];
            of_cells[i * lost.padded() + 2 * t] = r[i], of_cells[i * lost.padded() + 2 * t + 1] = q;
            rows[i] = 0;
            return q;
          },
          next.data());
      for (std::size_t j = 0; j < m; ++j) next[j] *= -before[j];
    }
    for (std::size_t i = 0; i < n; ++i) {
      std::fill(gy.begin(), gy.end(), 0.0);
      lost.add(of_cells.data() + i * lost.padded(), gy.data());
      for (std::size_t j = 0; j < m; ++j) {
        const double k = k_.row(i)[j], y = k * row_factors(last - 1)[i] * c[j];
        dx.row(i)[j] = static_cast<T>((y * static_cast<double>(g.row(i)[j]) - k * gy[j]) / s_.temperature);
      }
    }
  }

 private:
  static bool near_one(double sum) { return sum >= 1 / kFarthest && sum <= kFarthest; }
  double* row_factors(std::size_t t) { return r_.data() + t * k_.padded(); }
  const double* row_factors(std::size_t t) const { return r_.data() + t * k_.padded(); }
  double* column_factors(std::size_t t) { return c_.data() + t * s_.m; }
  const double* column_factors(std::size_t t) const { return c_.data() + t * s_.m; }

  Sweeps s_;
  FourRows k_;
  std::vector<double> r_, c_, next_ = std::vector<double>(k_.padded());
  bool good_ = true;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

// What fits and scores of calibration share: sums, the weights of rows, and the checks of labels.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "isentropic/matrix_view.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The sum of term(i) over i < n, in lanes that the compiler can vectorise.
template <class Term>
double sum_of(std::size_t n, const Term& term) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
  }
  for (std::size_t k = 0; i + k < n; ++k) lanes[k] += term(i + k);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

// The weights of the rows; without weights each is 1.
class SampleWeights {
 public:
  SampleWeights(std::string_view name, std::string_view matrix, std::size_t rows, std::span<const double> values)
      : values_(values) {
    if (rows == 0) fail("{}: {} must have at least one row", name, matrix);
    if (values.empty()) return;
    check_size(name, "sample_weight", values.size(), rows);
    double largest = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      if (!(values[r] >= 0 && values[r] <= std::numeric_limits<double>::max())) {
        fail_in_row(name, "sample_weight", r, "sample_weight must be at least 0 and finite, got {}", values[r]);
      }
      largest = std::max(largest, values[r]);
    }
    if (largest == 0) fail("{}: sample_weight must be above 0 in some row, got 0 in all {}", name, rows);
    unit_ = std::ldexp(1.0, std::max(std::ilogb(largest), -1000));
  }
  // The weight in units of unit(), a power of 2, so that sums do not overflow.
  double operator[](std::size_t r) const { return values_.empty() ? 1 : values_[r] / unit_; }
  double unit() const { return unit_; }

 private:
  std::span<const double> values_;
  double unit_ = 1;
};

// Only checks rows that count: a row of weight 0 is not read.
template <class T>
SampleWeights check_labels(std::string_view name, std::string_view matrix, MatrixView<const T> x,
                           std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  check_layout(name, matrix, x);
  const SampleWeights weights(name, matrix, x.rows, sample_weight);
  check_size(name, "labels", labels.size(), x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    if (weights[r] == 0) continue;
    if (labels[r] < 0 || static_cast<std::uint64_t>(labels[r]) >= x.cols) {
      fail_in_row(name, "labels", r, "labels must be at least 0 and below the number of classes, {}, got {}", x.cols,
                  labels[r]);
    }
  }
  return weights;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

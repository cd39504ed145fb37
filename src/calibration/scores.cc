// How well the confidences of predictions agree with labels.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "isentropic/calibration.h"
#include "isentropic/input.h"
#include "src/calibration/labels.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

// Checks that a row of p is a distribution.
template <class T>
void check_distribution(std::string_view name, MatrixView<const T> p, std::size_t r, std::optional<double> sum_tolerance) {
  const T* row = p.row(r);
  const double tolerance = sum_tolerance.value_or(kSumTolerance<T>);
  for (std::size_t i = 0; i < p.cols; ++i) {
    if (!(row[i] >= 0 && row[i] <= std::numeric_limits<T>::max())) {
      fail_in_row(name, "p", r, i, "p must be at least 0 and finite, got {}", row[i]);
    }
  }
  const double sum = sum_of(p.cols, [&](std::size_t i) { return static_cast<double>(row[i]); });
  if (!(std::abs(sum - 1) <= tolerance)) fail_in_row(name, "p", r, "p must sum to 1 within {}, got {}", tolerance, sum);
}

// The confidence of a row of p, its largest entry, and whether its prediction is right.
struct Judged {
  double confidence, weight;
  bool right;
};

// Sums over the rows of a bin.
struct Bin {
  double weight = 0, confidence = 0, right = 0;
  double excess = 0;  // sum of 1[right] - confidence
  double least = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  void add(const Judged& row) {
    weight += row.weight, confidence += row.weight * row.confidence, right += row.right ? row.weight : 0;
    excess += row.weight * ((row.right ? 1 : 0) - row.confidence);
    least = std::min(least, row.confidence), largest = std::max(largest, row.confidence);
  }
};

// The bins; weights are in units of `unit`.
struct Bins {
  std::vector<Bin> bins;
  double total, unit;
};
template <class T>
Bins bins_of(std::string_view name, const ExpectedCalibrationError& options, MatrixView<const T> p,
             std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  check_params(options);
  const SampleWeights weights = check_labels(name, "p", p, labels, sample_weight);
  std::vector<Judged> rows;
  rows.reserve(p.rows);
  double total = 0;
  for (std::size_t r = 0; r < p.rows; ++r) {
    if (weights[r] == 0) continue;
    check_distribution(name, p, r, options.sum_tolerance);
    const auto prediction = std::max_element(p.row(r), p.row(r) + p.cols) - p.row(r);
    rows.push_back({static_cast<double>(p.row(r)[prediction]), weights[r], labels[r] == prediction});
    total += weights[r];
  }

  const auto count = static_cast<std::size_t>(options.bins);
  const double width = static_cast<double>(options.bins);
  std::vector<Bin> bins(count);
  if (options.strategy == ExpectedCalibrationError::Strategy::uniform) {
    for (const Judged& row : rows) {
      auto bin = std::min(count - 1, static_cast<std::size_t>(row.confidence * width));
      // The product is rounded, but the edges of the bins are the quotients b / bins.
      if (row.confidence < static_cast<double>(bin) / width) --bin;
      if (bin + 1 < count && row.confidence >= static_cast<double>(bin + 1) / width) ++bin;
      bins[bin].add(row);
    }
  } else {
    // Rows of equal confidence are sorted by their terms, so that the sum does not depend on the order of the rows.
    std::ranges::sort(rows, {}, [](const Judged& row) { return std::tuple(row.confidence, row.right, row.weight); });
    double before = 0, lower = 0;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (k > 0 && rows[k].confidence > rows[k - 1].confidence) lower = before;
      bins[std::min(count - 1, static_cast<std::size_t>(lower * width / total))].add(rows[k]);
      before += rows[k].weight;
    }
  }
  return {std::move(bins), total, weights.unit()};
}

}  // namespace

template <class T>
double expected_calibration_error(const ExpectedCalibrationError& options, MatrixView<const T> p,
                                  std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  const Bins found = bins_of(ExpectedCalibrationError::kDescription.name, options, p, labels, sample_weight);
  double sum = 0;
  for (const Bin& bin : found.bins) sum += std::abs(bin.excess);
  return sum / found.total;
}

template <class T>
std::vector<ReliabilityBin> reliability_bins(const ExpectedCalibrationError& options, MatrixView<const T> p,
                                             std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  const auto [bins, total, unit] = bins_of("reliability_bins", options, p, labels, sample_weight);
  const bool uniform = options.strategy == ExpectedCalibrationError::Strategy::uniform;
  const double width = static_cast<double>(options.bins);
  std::vector<ReliabilityBin> result;
  for (std::size_t b = 0; b < bins.size(); ++b) {
    const Bin& bin = bins[b];
    if (bin.weight == 0) continue;
    result.push_back({.lower = uniform ? static_cast<double>(b) / width : bin.least,
                      .upper = uniform ? static_cast<double>(b + 1) / width : bin.largest,
                      .weight = bin.weight * unit,
                      .confidence = bin.confidence / bin.weight,
                      .accuracy = bin.right / bin.weight});
  }
  return result;
}

template <class T>
double brier_score(MatrixView<const T> p, std::span<const std::int64_t> labels, std::span<const double> sample_weight,
                   std::optional<double> sum_tolerance) {
  const SampleWeights weights = check_labels("brier_score", "p", p, labels, sample_weight);
  double sum = 0, total = 0;
  for (std::size_t r = 0; r < p.rows; ++r) {
    if (weights[r] == 0) continue;
    check_distribution("brier_score", p, r, sum_tolerance);
    const auto label = static_cast<std::size_t>(labels[r]);
    sum += weights[r] * sum_of(p.cols, [&](std::size_t i) {
             const double d = static_cast<double>(p.row(r)[i]) - (i == label ? 1 : 0);
             return d * d;
           });
    total += weights[r];
  }
  return sum / total;
}

template double expected_calibration_error(const ExpectedCalibrationError&, MatrixView<const float>,
                                           std::span<const std::int64_t>, std::span<const double>);
template std::vector<ReliabilityBin> reliability_bins(const ExpectedCalibrationError&, MatrixView<const float>,
                                                      std::span<const std::int64_t>, std::span<const double>);
template double brier_score(MatrixView<const float>, std::span<const std::int64_t>, std::span<const double>,
                            std::optional<double>);
template double expected_calibration_error(const ExpectedCalibrationError&, MatrixView<const double>,
                                           std::span<const std::int64_t>, std::span<const double>);
template std::vector<ReliabilityBin> reliability_bins(const ExpectedCalibrationError&, MatrixView<const double>,
                                                      std::span<const std::int64_t>, std::span<const double>);
template double brier_score(MatrixView<const double>, std::span<const std::int64_t>, std::span<const double>,
                            std::optional<double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

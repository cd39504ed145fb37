// How well the confidences of predictions agree with labels.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "isentropic/calibration.h"
#include "isentropic/input.h"
#include "src/calibration/labels.h"
#include "src/check.h"
#include "src/transport/compensated_sum.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

// Checks that a row of p is a distribution, or with `binary` a probability.
template <class T>
void check_probability(std::string_view name, MatrixView<const T> p, std::size_t r) {
  const T one = p.row(r)[0];
  if (!(one >= 0 && one <= 1)) fail_in_row(name, "p", r, "p must be a probability, in [0, 1], got {}", one);
}
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
  double excess = 0;   // sum of 1[right] - confidence
  double squares = 0;  // of weights
  double least = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  void add(const Judged& row) {
    weight += row.weight, confidence += row.weight * row.confidence, right += row.right ? row.weight : 0;
    squares += row.weight * row.weight;
    excess += row.weight * ((row.right ? 1 : 0) - row.confidence);
    least = std::min(least, row.confidence), largest = std::max(largest, row.confidence);
  }
};

// The bins; weights are in units of `unit`.
struct Bins {
  std::vector<Bin> bins;
  double total, unit;
};
// Puts judged rows into bins.
Bins bins_of(const ExpectedCalibrationError& options, std::vector<Judged> rows, double unit) {
  CompensatedSum weights;
  for (const Judged& row : rows) weights.add(row.weight);
  const double total = weights.value();

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
    // Weights that are equal, or were divided by their sum, are rounded: without the last factor a row at the edge of two bins
    // would be in the lower one.
    constexpr double kRounded = 1 + 4 * std::numeric_limits<double>::epsilon();
    CompensatedSum before;
    double lower = 0;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (k > 0 && rows[k].confidence > rows[k - 1].confidence) lower = before.value();
      bins[std::min(count - 1, static_cast<std::size_t>(lower * width / total * kRounded))].add(rows[k]);
      before.add(rows[k].weight);
    }
  }
  return {std::move(bins), total, unit};
}

// The rows of p by their predictions, or by the probability of class `of`.
template <class T>
std::vector<Judged> judged(std::string_view name, const ExpectedCalibrationError& options, MatrixView<const T> p,
                           std::span<const std::int64_t> labels, const SampleWeights& weights,
                           std::optional<std::size_t> of = {}) {
  std::vector<Judged> rows;
  rows.reserve(p.rows);
  for (std::size_t r = 0; r < p.rows; ++r) {
    if (weights[r] == 0) continue;
    if (options.binary) {
      check_probability(name, p, r);
      rows.push_back({static_cast<double>(p.row(r)[0]), weights[r], labels[r] == 1});
      continue;
    }
    if (of.value_or(0) == 0) check_distribution(name, p, r, options.sum_tolerance);
    const auto first = static_cast<std::size_t>(std::max_element(p.row(r), p.row(r) + p.cols) - p.row(r));
    const std::size_t shown = of.value_or(first);
    rows.push_back({static_cast<double>(p.row(r)[shown]), weights[r], static_cast<std::size_t>(labels[r]) == shown});
  }
  return rows;
}

// The labels' classes: two with `binary`, whose p has one column.
template <class T>
SampleWeights checked(std::string_view name, const ExpectedCalibrationError& options, MatrixView<const T> p,
                      std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  check_params(options);
  if (!options.binary) return check_labels(name, "p", p, labels, sample_weight);
  if (p.cols != 1) fail_at(name, "p", {}, "p must have one column, the probability of class 1, got {}", p.cols);
  return check_labels(name, "p", MatrixView<const T>{p.data, p.rows, 2, std::max<std::size_t>(p.row_stride, 2)}, labels,
                      sample_weight);
}

// E|N(d, s^2)|.
double mean_size(double d, double s) {
  if (s == 0) return std::abs(d);
  const double z = d / s;
  return s * std::sqrt(2 / std::numbers::pi) * std::exp(-z * z / 2) + d * std::erf(z / std::numbers::sqrt2);
}

double error_of(const ExpectedCalibrationError& options, const Bins& found) {
  using Norm = ExpectedCalibrationError::Norm;
  double sum = 0;
  for (const Bin& bin : found.bins) {
    if (bin.weight == 0) continue;
    const double d = bin.excess / bin.weight, share = bin.weight / found.total;
    const double accuracy = bin.right / bin.weight, variance = accuracy * (1 - accuracy);
    const double rows = bin.weight * bin.weight / bin.squares;  // as many of equal weight would tell as much
    switch (options.norm) {
      case Norm::l1:
        sum += options.debiased ? share * (2 * std::abs(d) - mean_size(d, std::sqrt(variance / rows)))
                                : std::abs(bin.excess) / found.total;
        break;
      case Norm::l2:
        sum += share * (d * d - (options.debiased && rows > 1 ? variance / (rows - 1) : 0));
        break;
      case Norm::max:
        sum = std::max(sum, std::abs(d));
        break;
    }
  }
  sum = std::max(sum, 0.0);
  return options.norm == Norm::l2 ? std::sqrt(sum) : sum;
}

}  // namespace

template <class T>
double expected_calibration_error(const ExpectedCalibrationError& options, MatrixView<const T> p,
                                  std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  constexpr std::string_view kName = Described<ExpectedCalibrationError>::kDescription.name;
  const SampleWeights weights = checked(kName, options, p, labels, sample_weight);
  const auto error = [&](std::optional<std::size_t> of) {
    return error_of(options, bins_of(options, judged(kName, options, p, labels, weights, of), weights.unit()));
  };
  if (!options.classwise) return error({});
  double sum = 0;
  for (std::size_t k = 0; k < p.cols; ++k) sum += error(k);
  return sum / static_cast<double>(p.cols);
}

template <class T>
std::vector<ReliabilityBin> reliability_bins(const ExpectedCalibrationError& options, MatrixView<const T> p,
                                             std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  constexpr std::string_view kName = "reliability_bins";
  const SampleWeights weights = checked(kName, options, p, labels, sample_weight);
  if (options.classwise || options.debiased || options.norm != ExpectedCalibrationError::Norm::l1) {
    fail("{}: norm, classwise and debiased have no effect on bins", kName);
  }
  const auto [bins, total, unit] = bins_of(options, judged(kName, options, p, labels, weights), weights.unit());
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

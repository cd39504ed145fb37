// Chooses the entropy or the temperature: by labels, by a reference, or by the length of the row. Measures calibration.
//
//   const std::vector<double> x = {2, 0, 0, 2, 1, 0};  // three rows of two scores
//   const std::vector<std::int64_t> labels = {0, 1, 1};
//   const auto fitted = isentropic::fit_temperature(isentropic::MatrixView(x, 3, 2), labels);  // fitted.temperature = 1.27
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/matrix_view.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Labels are std::int64_t, one for each row. sample_weight is the weight of each row in means and sums over rows; without it
// all rows weigh the same. Weights must be at least 0, finite and not all 0, otherwise std::invalid_argument. A row of weight 0
// is left out, and may hold anything.

inline constexpr double kLeastTemperature = 1e-3, kLargestTemperature = 1e3;

struct FittedTemperature {
  double temperature;
  bool clamped;  // the temperature is at an end of [1e-3, 1e3], and the loss still falls beyond it
};

// The T at which softmax(x / T) has the least mean negative log-likelihood of the labels, mean_r -log softmax(x_r / T)_{y_r}.
// This is convex in the inverse temperature beta = 1/T: a safeguarded Newton iteration finds its only minimum. If no row has
// two different finite scores, every T is equally good and T = 1. A -inf score is an absent class.
//
// Shapes: x rows x cols, labels rows, each in [0, cols). Error of T: about 1e-14 relative, times the condition of the problem.
// The scores are computed in float64; the result does not depend on threads.
// Throws: std::invalid_argument naming the row: NaN or +inf among its scores, a label that is no class or has score -inf.
// Source: Guo, Pleiss, Sun, Weinberger, ICML 2017.
template <class T>
ISENTROPIC_API FittedTemperature fit_temperature(MatrixView<const T> x, std::span<const std::int64_t> labels,
                                                 std::span<const double> sample_weight = {});

// The entropy H in [0, log cols] at which p = entropy_normalize(x, entropy = H) has the least mean negative log-likelihood of
// the labels. This is not convex in H. The search tries 65 values of H and those at which rows may become uniform. It narrows
// every interval in which the slope turns from falling to rising by bracketed root finding, and takes the best minimum, of
// equal ones the largest H. With more than 8192 rows, 4096 of them select at most four intervals, which are searched with all
// rows. A minimum between two of the 65 values, at most log(cols) / 40 apart, may be missed if the slope turns twice there.
//
// Shapes, Throws: as fit_temperature. Units: nats. Error of H: 1e-12 log cols, times the condition of the problem.
template <class T>
ISENTROPIC_API double fit_target_entropy(MatrixView<const T> x, std::span<const std::int64_t> labels,
                                         std::span<const double> sample_weight = {});

// The mean over rows of the entropy of softmax(x). As a target it gives other scores the entropy of these.
//
// Shapes: x rows x cols. Units: nats. Error: 1e-14 max(1, log cols).
// Throws: std::invalid_argument naming a row with NaN or without a score above -inf; no rows.
template <class T>
ISENTROPIC_API double match_entropy(MatrixView<const T> x_reference, std::span<const double> sample_weight = {});

//   sum_b |sum_{r in b} (1[argmax p_r = y_r] - max p_r)| / rows
struct ExpectedCalibrationError {
  enum class Strategy { uniform, quantile };
  enum class Norm { l1, l2, max };

  std::int64_t bins = 15;                    // number of bins
  Strategy strategy = Strategy::uniform;     // bins of equal width, or of equally many rows
  std::optional<double> sum_tolerance = {};  // how far a row's sum may be from 1; 1e-4 for float, 1e-6 for double
  Norm norm = Norm::l1;                      // how the distances of bins are combined: mean, root mean square, or largest
  bool classwise = false;                    // the mean over classes of the error of each class's probability
  bool debiased = false;  // subtract the mean error that a perfectly calibrated model has because bins have few rows
  bool binary = false;    // p has one column, the probability of class 1 of two

  std::string_view check() const {
    if (debiased && norm == Norm::max) return "debiased must not go with norm max, whose bias is not known";
    return classwise && binary ? "classwise must not go with binary, which has one probability" : "";
  }
};

// sum_b (n_b / rows) |accuracy in b - mean confidence in b|. The confidence of a row is its largest entry; its prediction is
// the first entry with that value.
//   uniform   bin b holds confidences in [b/bins, (b+1)/bins), the last one also 1
//   quantile  a row goes by the number k of rows with a lower confidence into bin floor(k bins / rows): equally many in each,
//             but equal confidences stay together; weights, if given, count in place of rows, and rounding is forgiven
// Empty bins add nothing. In place of the mean of these distances, norm l2 takes the root of their mean square, max the
// largest.
//   binary     p is one column, the probability of class 1 against labels 0 and 1: in bins of p, its mean beside the share of
//              labels 1
//   classwise  the mean over classes k of the binary error of p_rk against 1[y_r = k]
//   debiased   with d the distance of a bin of n rows and v = accuracy (1 - accuracy): l2 takes v / (n - 1) from d^2, l1 the
//              excess of the mean of |N(d, v / n)| over |d| from |d|; a sum below 0 is 0
//
// Shapes: p rows x cols, labels rows, each in [0, cols), or with binary 0 or 1.
// Throws: std::invalid_argument naming row and entry where p is no distribution (negative, NaN, infinite, sum not 1).
template <class T>
ISENTROPIC_API double expected_calibration_error(const ExpectedCalibrationError& options, MatrixView<const T> p,
                                                 std::span<const std::int64_t> labels,
                                                 std::span<const double> sample_weight = {});

// A bin of this sum and of a reliability diagram.
struct ReliabilityBin {
  double lower, upper;  // the edges of the bin; with quantiles its least and largest confidence
  double weight;        // weight of its rows
  double confidence;    // mean confidence
  double accuracy;      // the share of rows whose prediction is the label
};

// The bins that have rows, in the order of confidence. Arguments and errors as expected_calibration_error; norm, classwise and
// debiased are refused.
template <class T>
ISENTROPIC_API std::vector<ReliabilityBin> reliability_bins(const ExpectedCalibrationError& options, MatrixView<const T> p,
                                                            std::span<const std::int64_t> labels,
                                                            std::span<const double> sample_weight = {});

// mean_r sum_i (p_ri - 1[i = y_r])^2, between 0 and 2. For two classes it is twice the score that some define.
//
// Shapes, Throws: as expected_calibration_error. Source: Brier, Monthly Weather Review 1950.
template <class T>
ISENTROPIC_API double brier_score(MatrixView<const T> p, std::span<const std::int64_t> labels,
                                  std::span<const double> sample_weight = {}, std::optional<double> sum_tolerance = {});

//   log n / (log(train_length) sqrt(d)), or where kappa is given kappa log n / d
struct EntropyInvariantScale {
  double train_length = 512;         // the n at which the scale is 1/sqrt(d); not used where kappa is given
  std::optional<double> kappa = {};  // factor of log n / d
};

// log n / (log(train_length) sqrt(d)), which is the usual 1/sqrt(d) at n = train_length; if kappa is given, kappa log n / d. It
// is 0 at n = 1, where the only key gets everything at any scale.
//
// Throws: std::invalid_argument unless n >= 1 and d > 0, both finite.
ISENTROPIC_API double entropy_invariant_scale(const EntropyInvariantScale& options, double n, double d);

// The scale of each entry of n. n and scale have the same size and may be the same memory.
ISENTROPIC_API void entropy_invariant_scale(const EntropyInvariantScale& options, std::span<const double> n, double d,
                                            std::span<double> scale);

// The same for views that may write.
template <WritableView X>
FittedTemperature fit_temperature(const X& x, std::span<const std::int64_t> labels,
                                  std::span<const double> sample_weight = {}) {
  return fit_temperature(read_only(x), labels, sample_weight);
}
template <WritableView X>
double fit_target_entropy(const X& x, std::span<const std::int64_t> labels, std::span<const double> sample_weight = {}) {
  return fit_target_entropy(read_only(x), labels, sample_weight);
}
template <WritableView X>
double match_entropy(const X& x_reference, std::span<const double> sample_weight = {}) {
  return match_entropy(read_only(x_reference), sample_weight);
}
template <WritableView P>
double expected_calibration_error(const ExpectedCalibrationError& options, const P& p, std::span<const std::int64_t> labels,
                                  std::span<const double> sample_weight = {}) {
  return expected_calibration_error(options, read_only(p), labels, sample_weight);
}
template <WritableView P>
std::vector<ReliabilityBin> reliability_bins(const ExpectedCalibrationError& options, const P& p,
                                             std::span<const std::int64_t> labels, std::span<const double> sample_weight = {}) {
  return reliability_bins(options, read_only(p), labels, sample_weight);
}
template <WritableView P>
double brier_score(const P& p, std::span<const std::int64_t> labels, std::span<const double> sample_weight = {},
                   std::optional<double> sum_tolerance = {}) {
  return brier_score(read_only(p), labels, sample_weight, sum_tolerance);
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

inline constexpr ArrayInfo kCalibrationErrorArrays[] = {{.name = "p"},
                                                        {.name = "labels", .kind = ArrayKind::integer},
                                                        {.name = "sample_weight", .kind = ArrayKind::number, .optional = true},
                                                        {.name = "value", .kind = ArrayKind::scalar, .output = true}};
inline constexpr ArrayInfo kScaleArrays[] = {{.name = "n", .kind = ArrayKind::integer},
                                             {.name = "value", .kind = ArrayKind::number, .output = true}};
inline constexpr Absence kCalibrationErrorNotIn[] = {{Door::c, "bins are counted where the labels are"},
                                                     {Door::device, "bins are counted on the host"},
                                                     {Door::ranks, "it is not written in sums over parts of a row"}};
inline constexpr Absence kScaleNotIn[] = {{Door::c, "it is one number, without an array"},
                                          {Door::command_line, "it is one number, without a file"},
                                          {Door::device, "it is one number, without an array"},
                                          {Door::ranks, "it is one number, without an array"}};

template <>
struct Described<ExpectedCalibrationError> {
  static constexpr std::string_view kStrategies[] = {"uniform", "quantile"};
  static constexpr std::string_view kNorms[] = {"l1", "l2", "max"};
  static constexpr Description kDescription = {
      .name = "expected_calibration_error",
      .summary = "The mean distance between confidence and accuracy, over bins of confidence.",
      .formula = "sum_b |sum_{r in b} (1[argmax p_r = y_r] - max p_r)| / rows",
      .gradient = "none: a sum over bins",
      .source =
          "Naeini, Cooper, Hauskrecht, AAAI 2015; classwise: Kull et al., NeurIPS 2019; debiased: Kumar, Liang, Ma, NeurIPS "
          "2019",
      .arrays = kCalibrationErrorArrays,
      .not_in = kCalibrationErrorNotIn,
  };
  static constexpr auto kParams =
      Params{Param<ExpectedCalibrationError, std::int64_t>{.name = "bins",
                                                           .meaning = "number of bins",
                                                           .member = &ExpectedCalibrationError::bins,
                                                           .above = 0,
                                                           .up_to = 1'000'000},
             Param<ExpectedCalibrationError, ExpectedCalibrationError::Strategy>{
                 .name = "strategy",
                 .meaning = "bins of equal width, or of equally many rows",
                 .member = &ExpectedCalibrationError::strategy,
                 .names = kStrategies},
             Param<ExpectedCalibrationError, std::optional<double>>{
                 .name = "sum_tolerance",
                 .meaning = "how far a row's sum may be from 1; 1e-4 for float, 1e-6 for double",
                 .member = &ExpectedCalibrationError::sum_tolerance,
                 .at_least = 0},
             Param<ExpectedCalibrationError, ExpectedCalibrationError::Norm>{
                 .name = "norm",
                 .meaning = "how the distances of bins are combined: mean, root mean square, or largest",
                 .member = &ExpectedCalibrationError::norm,
                 .names = kNorms},
             Param<ExpectedCalibrationError, bool>{.name = "classwise",
                                                   .meaning = "the mean over classes of the error of each class's probability",
                                                   .member = &ExpectedCalibrationError::classwise},
             Param<ExpectedCalibrationError, bool>{
                 .name = "debiased",
                 .meaning = "subtract the mean error that a perfectly calibrated model has because bins have few rows",
                 .member = &ExpectedCalibrationError::debiased},
             Param<ExpectedCalibrationError, bool>{.name = "binary",
                                                   .meaning = "p has one column, the probability of class 1 of two",
                                                   .member = &ExpectedCalibrationError::binary}};
};

template <>
struct Described<EntropyInvariantScale> {
  static constexpr Description kDescription = {
      .name = "entropy_invariant_scale",
      .summary = "The scale of the scores q.k at which the entropy of attention grows less with the number n of keys.",
      .formula = "log n / (log(train_length) sqrt(d)), or where kappa is given kappa log n / d",
      .gradient = "1 / (n log(train_length) sqrt(d)), or kappa / (n d)",
      .source = "Su, kexue.fm 8823, 2021, and 9034, 2022",
      .arrays = kScaleArrays,
      .not_in = kScaleNotIn,
  };
  static constexpr auto kParams =
      Params{Param<EntropyInvariantScale>{.name = "train_length",
                                          .meaning = "the n at which the scale is 1/sqrt(d); not used where kappa is given",
                                          .member = &EntropyInvariantScale::train_length,
                                          .above = 1},
             Param<EntropyInvariantScale, std::optional<double>>{
                 .name = "kappa", .meaning = "factor of log n / d", .member = &EntropyInvariantScale::kappa, .above = 0}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

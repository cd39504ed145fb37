// The scale of scores that gives softmax a chosen entropy, and other operations that change a scale.
//
//   const std::vector<double> x = {2, 1, 0.1};
//   const auto found = isentropic::gamma_for_entropy({.entropy = 0.5}, x);  // found.gamma = 1.86
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/input.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Whether a row meets its target.
enum class GammaStatus {
  ok,
  clamped_low,   // the target is below the reach of every allowed gamma
  clamped_high,  // the target is above it
  constant,      // equal scores, or +inf present: the same distribution for every gamma
  invalid,       // NaN in the row, or no score above -inf; for probs also a negative entry or +inf
};
inline constexpr std::array<std::string_view, 5> kGammaStatusNames = {"ok", "clamped_low", "clamped_high", "constant",
                                                                      "invalid"};

//   gamma > 0 such that -sum p log p, p = softmax(gamma x), is the entropy, or exp of it the perplexity
struct GammaForEntropy {
  std::optional<double> entropy = {};                          // in nats; if it cannot be reached, the nearest
  std::optional<double> perplexity = {};                       // exp(entropy)
  double min_gamma = 0;                                        // least gamma allowed
  double max_gamma = std::numeric_limits<double>::infinity();  // largest gamma allowed
  std::int64_t max_iterations = 100;                           // most evaluations of the entropy; few give a rough gamma
  Input input = Input::scores;

  constexpr std::string_view check() const {
    if (entropy.has_value() == perplexity.has_value()) return "exactly one of entropy and perplexity must be given";
    return min_gamma <= max_gamma ? "" : "min_gamma must be at most max_gamma";
  }
};

// gamma, the entropy that softmax(gamma x) has, and the status, for each row. A target out of reach gives gamma = infinity
// (clamped_low) or 0 (clamped_high), or the nearest end of the range. A constant row gives gamma 1, an invalid row NaN.
//
// Shapes: x rows x cols; gamma, entropy and status: rows. Units: nats. Error of the entropy: 1e-12 max(1, H).
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void gamma_for_entropy(const GammaForEntropy& options, MatrixView<const T> x, std::span<double> gamma,
                                      std::span<double> entropy, std::span<GammaStatus> status,
                                      std::span<const PerRow> per_row = {});

// gamma, entropy and status of one row.
struct FoundGamma {
  double gamma;
  double entropy;
  GammaStatus status;
};
template <RowOfNumbers X>
FoundGamma gamma_for_entropy(const GammaForEntropy& options, const X& x) {
  FoundGamma found;
  gamma_for_entropy(options, MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), std::span(&found.gamma, 1),
                    std::span(&found.entropy, 1), std::span(&found.status, 1));
  return found;
}

//   q_i = p_i^gamma / sum_j p_j^gamma
struct PowerTransform {
  double gamma = 1;  // exponent; 0 is uniform over p > 0, inf over its maxima
};

// q = p^gamma / sum p^gamma for each row. p need not sum to 1; a row with a negative entry, NaN, +inf or no mass gives NaN.
//
// Shapes: p and q rows x cols; q may be p itself, other overlaps are refused.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void power_transform(const PowerTransform& options, MatrixView<const std::type_identity_t<T>> p, MatrixView<T> q,
                                    std::span<const PerRow> per_row = {});
template <RowOfNumbers P, RowOfNumbers Q>
void power_transform(const PowerTransform& options, const P& p, Q&& q) {
  power_transform(options, row_view(p), row_view(q));
}

// How a density or a table meets its target: its power `gamma` has the entropy `entropy`. Its powers reach the entropies
// [least, most]. clamped_low and clamped_high give the nearer end of that range; constant means that both ends are equal, with
// gamma 1. An invalid row or table has NaN throughout.
struct Normalized {
  double gamma, entropy;
  double least, most;
  GammaStatus status;
};

//   q_i = p_i^gamma / sum_j w_j p_j^gamma, gamma > 0 such that -sum w q log q is the entropy
struct NormalizeDensity {
  double entropy = std::numeric_limits<double>::quiet_NaN();  // in nats; of a density it may be negative
};

// q = p^gamma / sum w p^gamma for each row, with the target entropy. p need not be normalised; a row with a negative entry,
// NaN, +inf or no mass gives NaN and status invalid. Powers reach the entropies from the log of the weight at the maximum (its
// sum over equal maxima) to log sum w over p > 0. A node of weight 0 is left out: q is 0 there.
//
// Shapes: p and q rows x cols, q may be p itself; weights rows x cols or 1 x cols; result: rows. Units: nats.
// Error of the entropy: 1e-12 max(1, |H|), plus the effect of rounding q to T.
// Throws: std::invalid_argument naming the argument, also for a weight that is negative, infinite or NaN, or a row of
// nothing but 0, before anything is written.
template <class T>
ISENTROPIC_API void normalize_density(const NormalizeDensity& options, MatrixView<const std::type_identity_t<T>> p,
                                      MatrixView<const double> weights, MatrixView<T> q, std::span<Normalized> result,
                                      std::span<const PerRow> per_row = {});
template <RowOfNumbers P, RowOfNumbers W, RowOfNumbers Q>
Normalized normalize_density(const NormalizeDensity& options, const P& p, const W& weights, Q&& q) {
  Normalized result;
  normalize_density(options, row_view(p), row_view(weights), row_view(q), std::span(&result, 1));
  return result;
}

//   joint: p(x,y)^gamma / Z; marginal: p(x)^gamma / Z p(y|x); conditional: p(x) p(y|x)^gamma / Z(x), one gamma
struct NormalizeJoint {
  std::optional<double> joint = {};        // H(X, Y) in nats
  std::optional<double> marginal = {};     // H(X) in nats, p(y|x) kept
  std::optional<double> conditional = {};  // H(Y|X) in nats, p(x) kept

  constexpr std::string_view check() const {
    return joint.has_value() + marginal.has_value() + conditional.has_value() == 1
               ? ""
               : "exactly one of joint, marginal and conditional must be given";
  }
};

// The table with the target entropy; its sum is 1 and zeros stay zeros. pxy need not sum to 1; a table with a negative entry,
// NaN, +inf or no mass gives NaN and status invalid. For a target out of reach the result is the nearest table, and its status
// says so. H(Y|X) reaches from sum p(x) log(number of y at the maximum of p(y|x)) to sum p(x) log(number of y with p(y|x) > 0).
//
// Shapes: pxy and table rows (x) x cols (y); table may be pxy itself, other overlaps are refused. Units: nats.
// Error of the entropy: 1e-12 max(1, H), plus the effect of rounding the table to T.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API Normalized normalize_joint(const NormalizeJoint& options, MatrixView<const std::type_identity_t<T>> pxy,
                                          MatrixView<T> table);

//   H = log n - gamma (max x - mean x), over the n finite scores
struct MeanFieldEntropy {
  double gamma = 1;  // scale of the scores, 1/T
};

// The estimate for each row: 0 <= H - estimate <= gamma^2 R^2 / 8 + min(gamma (max x - mean x), log n), where H is the entropy
// of softmax(gamma x) and R the range of the finite scores. It may be negative. +inf scores share the mass: the log of their
// number. A row with NaN, or without a score above -inf, gives NaN.
//
// Shapes: x rows x cols; estimate: rows. Units: nats.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void mean_field_entropy(const MeanFieldEntropy& options, MatrixView<const T> x, std::span<double> estimate);
template <RowOfNumbers X>
double mean_field_entropy(const MeanFieldEntropy& options, const X& x) {
  double estimate;
  mean_field_entropy(options, MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), std::span(&estimate, 1));
  return estimate;
}

// The same for views that may write.
template <WritableView X>
void gamma_for_entropy(const GammaForEntropy& options, const X& x, std::span<double> gamma, std::span<double> entropy,
                       std::span<GammaStatus> status, std::span<const PerRow> per_row = {}) {
  gamma_for_entropy(options, read_only(x), gamma, entropy, status, per_row);
}
template <WritableView X>
void mean_field_entropy(const MeanFieldEntropy& options, const X& x, std::span<double> estimate) {
  mean_field_entropy(options, read_only(x), estimate);
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

inline constexpr ArrayInfo kGammaArrays[] = {{.name = "x"},
                                             {.name = "gamma", .kind = ArrayKind::number, .output = true},
                                             {.name = "reached", .kind = ArrayKind::number, .output = true},
                                             {.name = "status", .kind = ArrayKind::integer, .output = true}};
inline constexpr ArrayInfo kPowerArrays[] = {{.name = "p"}, {.name = "q", .output = true}};
inline constexpr ArrayInfo kDensityArrays[] = {{.name = "density"}, {.name = "result", .output = true}};
inline constexpr ArrayInfo kJointArrays[] = {{.name = "pxy", .kind = ArrayKind::table},
                                             {.name = "result", .kind = ArrayKind::table, .output = true}};
inline constexpr ArrayInfo kEstimateArrays[] = {{.name = "x"}, {.name = "value", .kind = ArrayKind::number, .output = true}};
inline constexpr Absence kPowerNotIn[] = {{Door::device, "there is no kernel for it"},
                                          {Door::web, "left out, because each page loads the library"},
                                          {Door::ranks, "it is not written in sums over parts of a row"}};
inline constexpr Absence kDensityNotIn[] = {{Door::c, "its arrays are not rows of one type"},
                                            {Door::command_line, "it is a step of a program"},
                                            {Door::device, "there is no kernel for it"},
                                            {Door::ranks, "it is not written in sums over parts of a row"}};
inline constexpr Absence kEstimateNotIn[] = {{Door::command_line, "gamma gives the exact entropy as fast"},
                                             {Door::device, "there is no kernel for it"},
                                             {Door::ranks, "it is not written in sums over parts of a row"}};

template <>
struct Described<GammaForEntropy> {
  static constexpr Description kDescription = {
      .name = "gamma_for_entropy",
      .summary = "The gamma = 1/T at which softmax has a chosen entropy.",
      .formula = "gamma > 0 such that -sum p log p, p = softmax(gamma x), is the entropy, or exp of it the perplexity",
      .gradient = "d gamma / dx = -gamma u / Var x, d gamma / d entropy = -1 / (gamma Var x), u = p (x - <x,p>)",
      .source = "see entropy_normalize",
      .arrays = kGammaArrays,
      .command = "gamma",
  };
  static constexpr auto kParams =
      Params{Param<GammaForEntropy, std::optional<double>>{.name = "entropy",
                                                           .meaning = "in nats; if it cannot be reached, the nearest",
                                                           .member = &GammaForEntropy::entropy,
                                                           .at_least = 0,
                                                           .typical = 1,
                                                           .per_row = true},
             Param<GammaForEntropy, std::optional<double>>{.name = "perplexity",
                                                           .meaning = "exp(entropy)",
                                                           .member = &GammaForEntropy::perplexity,
                                                           .at_least = 1,
                                                           .per_row = true},
             Param<GammaForEntropy>{
                 .name = "min_gamma", .meaning = "least gamma allowed", .member = &GammaForEntropy::min_gamma, .at_least = 0},
             Param<GammaForEntropy>{.name = "max_gamma",
                                    .meaning = "largest gamma allowed",
                                    .member = &GammaForEntropy::max_gamma,
                                    .above = 0,
                                    .up_to = std::numeric_limits<double>::infinity()},
             Param<GammaForEntropy, std::int64_t>{.name = "max_iterations",
                                                  .meaning = "most evaluations of the entropy; few give a rough gamma",
                                                  .member = &GammaForEntropy::max_iterations,
                                                  .above = 0,
                                                  .up_to = 1000},
             Param<GammaForEntropy, Input>{
                 .name = "input",
                 .meaning = "what x holds; probabilities q stand for scores log q, so that gamma is an exponent of q",
                 .member = &GammaForEntropy::input,
                 .names = kInputs}};
};

template <>
struct Described<PowerTransform> {
  static constexpr Description kDescription = {
      .name = "power_transform",
      .summary = "A distribution sharpened (gamma > 1) or flattened (gamma < 1); zeros stay zeros.",
      .formula = "q_i = p_i^gamma / sum_j p_j^gamma",
      .gradient = "gamma q / p (g - <g,q>)",
      .source = "Su, kexue.fm 8829, 2021",
      .arrays = kPowerArrays,
      .not_in = kPowerNotIn,
  };
  static constexpr auto kParams =
      Params{Param<PowerTransform>{.name = "gamma",
                                   .meaning = "exponent; 0 is uniform over p > 0, inf over its maxima",
                                   .member = &PowerTransform::gamma,
                                   .at_least = 0,
                                   .up_to = std::numeric_limits<double>::infinity(),
                                   .required = true,
                                   .typical = 2,
                                   .per_row = true}};
};

template <>
struct Described<NormalizeDensity> {
  static constexpr Description kDescription = {
      .name = "normalize_density",
      .summary =
          "A density, known at the nodes of a quadrature, raised to the power that gives it a chosen differential entropy.",
      .formula = "q_i = p_i^gamma / sum_j w_j p_j^gamma, gamma > 0 such that -sum w q log q is the entropy",
      .gradient = "with u = w q (log p - sum w q log p): d gamma / d entropy = -1 / (gamma sum u log p)",
      .source = "Su, kexue.fm 8829, 2021, for a sum in place of the integral",
      .arrays = kDensityArrays,
      .not_in = kDensityNotIn,
  };
  static constexpr auto kParams = Params{Param<NormalizeDensity>{.name = "entropy",
                                                                 .meaning = "in nats; of a density it may be negative",
                                                                 .member = &NormalizeDensity::entropy,
                                                                 .required = true,
                                                                 .typical = 0,
                                                                 .per_row = true}};
};

template <>
struct Described<NormalizeJoint> {
  static constexpr Description kDescription = {
      .name = "normalize_joint",
      .summary = "A joint table p(x, y), x in rows, with a chosen entropy H(X, Y), H(X) or H(Y|X).",
      .formula = "joint: p(x,y)^gamma / Z; marginal: p(x)^gamma / Z p(y|x); conditional: p(x) p(y|x)^gamma / Z(x), one gamma",
      .gradient = "joint and marginal: power_transform's; conditional: that for each p(y|x)",
      .source = "Su, kexue.fm 8829, 2021; the entropies of Shannon 1948",
      .arrays = kJointArrays,
      .not_in = kDensityNotIn,
  };
  static constexpr auto kParams = Params{
      Param<NormalizeJoint, std::optional<double>>{
          .name = "joint", .meaning = "H(X, Y) in nats", .member = &NormalizeJoint::joint, .at_least = 0, .typical = 1},
      Param<NormalizeJoint, std::optional<double>>{
          .name = "marginal", .meaning = "H(X) in nats, p(y|x) kept", .member = &NormalizeJoint::marginal, .at_least = 0},
      Param<NormalizeJoint, std::optional<double>>{.name = "conditional",
                                                   .meaning = "H(Y|X) in nats, p(x) kept",
                                                   .member = &NormalizeJoint::conditional,
                                                   .at_least = 0}};
};

template <>
struct Described<MeanFieldEntropy> {
  static constexpr Description kDescription = {
      .name = "mean_field_entropy",
      .summary = "A lower bound of the entropy of softmax(gamma x), from the largest score and the mean only.",
      .formula = "H = log n - gamma (max x - mean x), over the n finite scores",
      .gradient = "gamma (1 / n - 1[i = argmax])",
      .source = "Su, kexue.fm 9034, 2022",
      .arrays = kEstimateArrays,
      .not_in = kEstimateNotIn,
  };
  static constexpr auto kParams = Params{Param<MeanFieldEntropy>{
      .name = "gamma", .meaning = "scale of the scores, 1/T", .member = &MeanFieldEntropy::gamma, .at_least = 0}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// The scale of scores that gives softmax a chosen entropy, and what else follows from changing a scale.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "entropic/input.h"
#include "entropic/matrix_view.h"
#include "entropic/operation.h"

namespace entropic {

// How a row met its target.
enum class GammaStatus {
  kOk,
  kClampedLow,   // the target is below what any gamma reaches, or any that is allowed
  kClampedHigh,  // above
  kConstant,     // equal scores, or +inf present: the same distribution for every gamma
  kInvalid,      // NaN in the row, or no finite score; of probs also a negative entry or +inf
};
inline constexpr std::array<std::string_view, 5> kGammaStatusNames = {"ok", "clamped_low", "clamped_high", "constant",
                                                                      "invalid"};

struct GammaForEntropy {
  std::optional<double> entropy = {}, perplexity = {};  // exactly one
  double min_gamma = 0;
  double max_gamma = std::numeric_limits<double>::infinity();
  std::int64_t max_iterations = 100;
  Input input = Input::scores;

  static constexpr Description kDescription = {
      .name = "gamma_for_entropy",
      .summary = "The gamma = 1/T at which softmax has a chosen entropy.",
      .formula = "gamma > 0 such that -sum p log p, p = softmax(gamma x), is the entropy, or exp of it the perplexity",
      .gradient = "d gamma / dx = -gamma u / Var x, d gamma / d entropy = -1 / (gamma Var x), u = p (x - <x,p>)",
      .source = "see entropy_normalize",
  };
  static constexpr auto kParams = std::tuple{
      Param<GammaForEntropy, std::optional<double>>{.name = "entropy",
                                                    .meaning = "in nats; out of reach, the nearest",
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
                                           .meaning = "evaluations of the entropy; fewer give a rough gamma",
                                           .member = &GammaForEntropy::max_iterations,
                                           .above = 0,
                                           .up_to = 1000},
      Param<GammaForEntropy, Input>{.name = "input",
                                    .meaning = "what x is; the scores of probs q are log q, so that gamma is an exponent of q",
                                    .member = &GammaForEntropy::input,
                                    .names = kInputs}};
  constexpr std::string_view check() const {
    if (entropy.has_value() == perplexity.has_value()) return "exactly one of entropy and perplexity must be given";
    return min_gamma <= max_gamma ? "" : "min_gamma must be at most max_gamma";
  }
};

// gamma, the entropy that softmax(gamma x) has, and the status, for each row. A target out of reach gives gamma = infinity
// (clamped_low) or 0 (clamped_high), or the end of the range that is nearest; a constant row 1, an invalid one NaN.
//
// Shapes: x rows x cols; gamma, entropy and status: rows. Units: nats. Error of the entropy: 1e-12 max(1, H).
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
void gamma_for_entropy(MatrixView<const T> x, std::span<double> gamma, std::span<double> entropy, std::span<GammaStatus> status,
                       const GammaForEntropy& options, std::span<const PerRow> per_row = {});

struct PowerTransform {
  double gamma = 1;

  static constexpr Description kDescription = {
      .name = "power_transform",
      .summary = "A distribution sharpened (gamma > 1) or flattened (gamma < 1); zeros stay zeros.",
      .formula = "q_i = p_i^gamma / sum_j p_j^gamma",
      .gradient = "gamma q / p (g - <g,q>)",
      .source = "Su, kexue.fm 8829, 2021",
      .shift = false,
  };
  static constexpr auto kParams = std::tuple{Param<PowerTransform>{
      .name = "gamma", .meaning = "exponent; 0 is uniform over p > 0", .member = &PowerTransform::gamma, .at_least = 0}};
};

// q = p^gamma / sum p^gamma for each row. p need not sum to 1; a row with a negative entry, NaN, +inf or no mass gives NaN.
//
// Shapes: p and q rows x cols; q may be p itself, other overlaps are refused.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
void power_transform(MatrixView<const std::type_identity_t<T>> p, MatrixView<T> q, const PowerTransform& options);

}  // namespace entropic

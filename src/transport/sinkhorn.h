// What Sinkhorn's iterations share: stages of a falling epsilon, the start of Newton's method, log-sum-exp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "isentropic/version.h"
#include "src/transport/laplacian.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Each stage divides epsilon by this factor and ends when its potentials are about right, or after about this many sweeps.
constexpr double kStageFactor = 4;
constexpr std::int64_t kStageIterations = 20;

// The sweeps at one epsilon before Newton's method. One of its steps costs about as much as m / 24 sweeps.
inline std::int64_t sweeps_before_newton(std::size_t m) {
  if (m > kNewtonColumns) return std::numeric_limits<std::int64_t>::max();
  return kStageIterations * std::max<std::int64_t>(1, static_cast<std::int64_t>(m) / 64);
}

// epsilon log sum_i exp(exponent(i) / epsilon), i below count; -inf if every exponent is.
template <class Exponent>
double log_sum_exp(std::size_t count, double epsilon, const Exponent& exponent) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  double max = kNone, sum = 0;
  for (std::size_t i = 0; i < count; ++i) max = std::max(max, exponent(i));
  if (max == kNone) return kNone;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp((exponent(i) - max) / epsilon);
  return max + epsilon * std::log(sum);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

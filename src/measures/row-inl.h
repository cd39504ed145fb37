// What a measure gives for one row, or for two.

#if defined(ISENTROPIC_MEASURES_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_ROW_INL_H_
#undef ISENTROPIC_MEASURES_ROW_INL_H_
#else
#define ISENTROPIC_MEASURES_ROW_INL_H_
#endif

#include <cmath>
#include <optional>

#include "src/measures/divergences-inl.h"
#include "src/measures/entropies-inl.h"
#include "src/measures/narrow-inl.h"
#include "src/rows/near_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The logarithm of op's base; 1 for nats, and for measures without a unit.
template <class Op>
HWY_INLINE double LogBaseOf(const Op& op) {
  if constexpr (requires { op.base; }) {
    const double log = op.base ? LogNumber(*op.base) : 1;
    return std::is_same_v<Op, Varentropy> ? log * log : log;
  }
  (void)op;
  return 1;
}
// A division, so that log 2 is 1 in base 2.
template <class Op>
HWY_INLINE double InUnit(double nats, const Op& op) {
  return nats / LogBaseOf(op);
}

// The measure that is computed; the value may be its exponential.
template <class Op>
HWY_INLINE auto NatsOf(const Op& op) {
  if constexpr (std::is_same_v<Op, Perplexity>) {
    return Entropy{};
  } else if constexpr (std::is_same_v<Op, HillNumber>) {
    return RenyiEntropy{.alpha = op.order};
  } else {
    return op;
  }
}
template <class Op>
inline constexpr bool kIsExponential = std::is_same_v<Op, Perplexity> || std::is_same_v<Op, HillNumber>;

template <class Kernel>
HWY_NOINLINE void WriteGradientOf(const Kernel& kernel, const Distribution& row, double nats, Through through, double factor,
                                  GradientOut out) {
  if constexpr (std::is_same_v<Kernel, RenyiEntropy>) {
    const Powers powers = row.exists && kernel.alpha > 0 ? PowersOf(kernel.alpha, row) : Powers{0, 0};
    WriteGradient(
        through, row, factor, 0,
        [&](size_t i, size_t count) HWY_ATTR { return PartialOf(kernel, row, nats, powers, i, count); }, out);
  } else {
    const double known = std::is_same_v<Kernel, Varentropy> && row.exists ? MeanLog(row) : nats;
    const double lacking = std::is_same_v<Kernel, Entropy> ? -1 : 0;
    WriteGradient(
        through, row, factor, lacking, [&](size_t i, size_t count) HWY_ATTR { return PartialOf(kernel, row, known, i, count); },
        out);
  }
}

template <class Op>
HWY_NOINLINE void OneRow(const Op& op, const Distribution& row, double* value, GradientOut dp, double* slope = nullptr) {
  const auto kernel = NatsOf(op);
  double nats = kNaN<double>, factor = 1 / LogBaseOf(op);
  if (row.exists) nats = ValueOf(kernel, row);
  *value = InUnit(nats, op);
  if constexpr (kIsExponential<Op>) {
    *value = factor = ExpNumber(nats);
    if constexpr (std::is_same_v<Op, HillNumber>) {
      if (op.order == 0 && row.exists) *value = CountSupport(row);
    }
  }
  if (slope != nullptr) *slope = row.exists ? InUnit(OrderSlope(kernel, row, nats), op) : kNaN<double>;
  if (dp.wanted()) WriteGradientOf(kernel, row, nats, ThroughOf(op.input, op.normalize), factor, dp);
}

// Whether the distribution is the softmax of the given numbers.
template <class Op>
HWY_INLINE bool IsOfScores(const Op& op) {
  return op.input == Input::scores || (op.input == Input::log_probs && op.normalize);
}

// Shannon's entropy of a row of float from terms in float. It is 0 if such terms would lose digits, or for other operations.
template <class Op, class T>
HWY_INLINE double EntropyInFloat(const Op& op, const T* p, size_t n) {
  if constexpr (std::is_same_v<Op, Entropy> && sizeof(T) == 4) {
    if (IsOfScores(op)) return EntropyOfScores(p, n);
    const double nats = op.input == Input::probs && !op.normalize ? RowEntropy(RowTag<float>(), p, n) : 0;
    if (nats > 0x1p-60) return nats;
  }
  (void)op, (void)p, (void)n;
  return 0;
}

// The divergence of softmax rows of float, and its gradients if they are not null. It is 0, without gradients, if KlOfScores
// gives none, or for other operations. p_terms and q_terms are a workspace of n numbers each.
template <class Op, class T>
HWY_INLINE double KlInFloat(const Op& op, const T* p, const T* q, size_t n, T* dp, T* dq, double* p_terms, double* q_terms) {
  if constexpr (std::is_same_v<Op, KlDivergence> && sizeof(T) == 4) {
    if (IsOfScores(op)) return KlOfScores(p, q, n, 1 / LogBaseOf(op), dp, dq, p_terms, q_terms);
  }
  (void)op, (void)p, (void)q, (void)n, (void)dp, (void)dq, (void)p_terms, (void)q_terms;
  return 0;
}

// The divergence that is computed; the value may be a multiple of it, or the root of one.
template <class Op>
HWY_INLINE auto Rooted(const Op& op) {
  if constexpr (std::is_same_v<Op, JsDistance>) {
    return JsDivergence{};
  } else if constexpr (std::is_same_v<Op, HellingerDistance>) {
    return AmariOf(0.5);
  } else if constexpr (std::is_same_v<Op, ChiSquaredDivergence>) {
    return AmariOf(2);
  } else if constexpr (std::is_same_v<Op, AlphaDivergence>) {
    return AmariOf(op.alpha);
  } else {
    return op;
  }
}
template <class Op>
inline constexpr bool kIsRoot = std::is_same_v<Op, JsDistance> || std::is_same_v<Op, HellingerDistance>;
template <class Op>
inline constexpr double kMultiple = std::is_same_v<Op, HellingerDistance>      ? 0.25
                                    : std::is_same_v<Op, ChiSquaredDivergence> ? 2
                                                                               : 1;

// The divergence of the distributions, by their quotient or by their logarithms.
template <class Op>
inline constexpr Logs kLogsOf = std::is_same_v<Op, CrossEntropy> ? Logs::inaccurate : Logs::none;

// What the gradient of the kernel is multiplied by.
template <class Op>
HWY_INLINE double FactorOf(const Op& op, double value) {
  const double factor = kMultiple<Op> / LogBaseOf(op);
  if (kIsRoot<Op>) return value > 0 ? factor / (2 * value) : 0;
  return factor;
}

// The value in the unit of op's base, from the sum of its terms. Sums that are not quite 1 give no more than the bound.
template <class Op>
HWY_INLINE double OfNats(const Op& op, double nats) {
  if constexpr (std::is_same_v<Op, JsDivergence> || std::is_same_v<Op, JsDistance>) {
    nats = std::min(nats, 0x1.62e42fefa39efp-1);  // log 2, or NaN
  } else if constexpr (std::is_same_v<Op, TotalVariation> || std::is_same_v<Op, HellingerDistance>) {
    nats = std::min(nats, 1 / kMultiple<Op>);
  }
  const double value = InUnit(kMultiple<Op> * nats, op);
  return kIsRoot<Op> ? std::sqrt(value) : value;
}

template <class Kernel>
HWY_NOINLINE void WriteGradientsOf(const Kernel& kernel, const Pair& rows, Through through, double factor, GradientOut dp,
                                   GradientOut dq) {
  Distribution p = rows.p, q = rows.q;
  p.exists = q.exists = p.exists && q.exists;
  if (dp.wanted()) {
    WriteGradient(
        through, p, factor, 0, [&](size_t i, size_t count) HWY_ATTR { return FirstPartialOf(kernel, rows, i, count); }, dp);
  }
  if (dq.wanted()) {
    WriteGradient(
        through, q, factor, 0, [&](size_t i, size_t count) HWY_ATTR { return SecondPartialOf(kernel, rows, i, count); }, dq);
  }
}

template <class Op>
HWY_NOINLINE void TwoRow(const Op& op, const Pair& rows, double* value, GradientOut dp, GradientOut dq) {
  const bool exists = rows.p.exists && rows.q.exists;
  *value = OfNats(op, exists ? ValueOf(Rooted(op), rows) : kNaN<double>);
  WriteGradientsOf(Rooted(op), rows, ThroughOf(op.input, op.normalize), FactorOf(op, *value), dp, dq);
}

// Whether p and q are nearly equal and given by the scores x and y; `ratios` then becomes log q - log p.
template <class T>
HWY_NOINLINE bool IsNearSoftmax(const Pair& rows, const T* x, const T* y, double* ratios) {
  const Distribution &p = rows.p, &q = rows.q;
  // Logarithms that were given have no shift, and differ exactly. Those of weights are not x and y.
  const bool of_scores = rows.has_logs() && (p.shift != 0 || q.shift != 0) && !NeedLogs(p, q);
  if (!of_scores || !p.exists || !q.exists || p.constant || q.constant) return false;
  return LogRatiosOfNearSoftmax(
      1, y, x, p.n, q.shift - p.shift, [&](size_t i, size_t count) HWY_ATTR { return q.P(D64(), i, count); },
      [&](size_t i, size_t count) HWY_ATTR { return p.P(D64(), i, count); }, ratios);
}

// The distribution copied to p, so that a gradient may be written over its scores.
HWY_INLINE Distribution Apart(Distribution row, double* p) {
  if (row.p != p) CopyRow(row.p, row.n, p);
  row.p = p;
  return row;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_ROW_INL_H_

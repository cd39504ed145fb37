// Each measure of distributions: its value, and its partial derivatives.

#if defined(ISENTROPIC_MEASURES_ENTROPIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_ENTROPIES_INL_H_
#undef ISENTROPIC_MEASURES_ENTROPIES_INL_H_
#else
#define ISENTROPIC_MEASURES_ENTROPIES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "isentropic/measures.h"
#include "src/measures/distribution-inl.h"
#include "src/rows/entropy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

HWY_INLINE V64 ZeroWhere(hn::Mask<D64> mask, V64 v) { return hn::IfThenZeroElse(mask, v); }
HWY_INLINE V64 InfinityWhere(D64 d, hn::Mask<D64> mask, V64 v) {
  return hn::IfThenElse(mask, hn::Set(d, kInfinity<double>), v);
}

// A partial derivative g in p, and weight = p g, which is 0 where p is 0.
struct Partial {
  V64 g, weight;
};

HWY_INLINE Partial WeightedPartial(D64 d, V64 p, V64 g) { return {g, ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, g))}; }

// Measures of one distribution.

inline HWY_NOINLINE double ValueOf(const Entropy&, const Distribution& row) {
  const D64 d;
  if (row.z == nullptr) {
    return Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR { return Surprise(d, row.P(d, i, count)); });
  }
  const V64 shift = hn::Set(d, row.shift);
  return Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = row.P(d, i, count);
    return ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, hn::Sub(shift, row.Z(d, i, count))));
  });
}

HWY_INLINE Partial PartialOf(const Entropy&, const Distribution& row, double, size_t i, size_t count) {
  const D64 d;
  return WeightedPartial(d, row.P(d, i, count), hn::Sub(hn::Zero(d), row.LogP(d, i, count)));
}

// The distance of an order from 1 below which sums of p^alpha - p replace sums of p^alpha, because the two sums are nearly
// equal.
//
// There log(sum p^alpha) / (1 - alpha) would magnify the distance of the sum of p from 1. sum (p^alpha - p), each term by a
// series, does not depend on it, and tends to -sum p log p.
constexpr double kVeryNear = 0x1p-10;
HWY_INLINE bool IsNear(double alpha, double sum) {
  const double distance = std::abs(alpha - 1);
  return distance < kVeryNear || (distance < 0.125 && std::abs(sum - 1) < 1e-12);
}

// p^alpha - p for 0 < alpha < infinity, with a small relative error if alpha or p is near 1. The power of a p that underflows
// may be a number.
HWY_INLINE V64 PowerDifference(D64 d, double alpha, V64 p, V64 log_p) {
  const V64 z = hn::Mul(hn::Set(d, alpha - 1), log_p);
  const V64 near = hn::Mul(p, Expm1NearZero(d, z));
  const V64 far = hn::Sub(Exp(d, hn::Mul(hn::Set(d, alpha), log_p)), p);
  return ZeroWhere(hn::Eq(log_p, hn::Set(d, -kInfinity<double>)), hn::IfThenElse(IsNearZero(d, z), near, far));
}

inline HWY_NOINLINE double SumOfPowerDifferences(double alpha, const Distribution& row) {
  const D64 d;
  return Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    return PowerDifference(d, alpha, row.P(d, i, count), row.LogP(d, i, count));
  });
}

inline HWY_NOINLINE double CountSupport(const Distribution& row) {
  const D64 d;
  const double absent = -kInfinity<double>;
  return Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 z = row.z == nullptr ? row.P(d, i, count) : row.Z(d, i, count);
    return hn::IfThenElseZero(hn::Gt(z, hn::Set(d, row.z == nullptr ? 0.0 : absent)), hn::Set(d, 1.0));
  });
}

// log max p, and log sum (p / max p)^alpha for alpha > 0: these powers do not overflow, and their sum does not vanish.
struct Powers {
  double log_max, log_sum;
};

inline HWY_NOINLINE double LogMax(const Distribution& row) {
  return row.z == nullptr ? LogNumber(RowMax(D64(), row.p, row.n)) : RowMax(D64(), row.z, row.n) - row.shift;
}

// alpha log(p / max p), -inf if p is 0.
HWY_INLINE V64 ScaledLog(D64 d, double alpha, double log_max, V64 log_p) {
  return hn::Mul(hn::Set(d, alpha), hn::Sub(log_p, hn::Set(d, log_max)));
}

inline HWY_NOINLINE Powers PowersOf(double alpha, const Distribution& row) {
  const D64 d;
  const double log_max = LogMax(row);
  // An infinite order keeps only the maxima: 0 times infinity counts as 0 there.
  const double finite = std::min(alpha, std::numeric_limits<double>::max());
  // The largest one's own term, 1, is kept apart, as in OfScores.
  double sums[2];
  Sums(d, row.n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 z = ScaledLog(d, finite, log_max, row.LogP(d, i, count));
    const auto top = hn::Ge(z, hn::Zero(d));
    terms[0] = ZeroWhere(top, Exp(d, z));
    terms[1] = hn::IfThenElseZero(top, hn::Set(d, 1.0));
  });
  return {log_max, Log1pNumber(sums[0] + (sums[1] - 1))};
}

inline HWY_NOINLINE double ValueOf(const RenyiEntropy& op, const Distribution& row) {
  const double alpha = op.alpha;
  if (alpha == 1) return ValueOf(Entropy{}, row);
  if (alpha == 0) return LogNumber(CountSupport(row));
  if (IsNear(alpha, row.sum)) return 0 + Log1pNumber(SumOfPowerDifferences(alpha, row)) / (1 - alpha);  // not -0
  if (alpha == kInfinity<double>) return 0 - LogMax(row);
  const Powers powers = PowersOf(alpha, row);
  return 0 + (alpha / (1 - alpha) * powers.log_max + powers.log_sum / (1 - alpha));
}

inline HWY_NOINLINE double ValueOf(const TsallisEntropy& op, const Distribution& row) {
  const double alpha = op.alpha;
  if (alpha == 1) return ValueOf(Entropy{}, row);
  if (alpha == 0) return CountSupport(row) - 1;
  if (alpha == kInfinity<double>) return 0;
  const double lacking = IsNear(alpha, row.sum) || std::abs(row.sum - 1) < 1e-12 ? 0 : 1 - row.sum;
  return 0 + (lacking - SumOfPowerDifferences(alpha, row)) / (alpha - 1);  // not -0
}

// -(p^(alpha - 1) alpha - 1) / (alpha - 1) for alpha near 1; at alpha = 1 it is -log p - 1. Only one term grows with the power,
// which is infinite at p = 0 if alpha < 1.
HWY_INLINE V64 NearPartial(D64 d, double alpha, V64 log_p) {
  const V64 z = hn::Mul(hn::Set(d, alpha - 1), log_p);
  return hn::NegMulAdd(hn::Set(d, alpha / (alpha - 1)), Expm1(d, z, Exp(d, z)), hn::Set(d, -1.0));
}

HWY_INLINE Partial PartialOf(const TsallisEntropy& op, const Distribution& row, double value, size_t i, size_t count) {
  const D64 d;
  const double alpha = op.alpha;
  const V64 p = row.P(d, i, count), log_p = row.LogP(d, i, count);
  if (alpha == 1) {
    const Partial partial = PartialOf(Entropy{}, row, value, i, count);
    return {hn::Sub(partial.g, hn::Set(d, 1.0)), hn::Sub(partial.weight, p)};
  }
  if (alpha == 0 || alpha == kInfinity<double>) return {hn::Zero(d), hn::Zero(d)};
  if (std::abs(alpha - 1) < kVeryNear) return WeightedPartial(d, p, NearPartial(d, alpha, log_p));
  const V64 factor = hn::Set(d, alpha / (1 - alpha));
  return {hn::Mul(factor, Exp(d, hn::Mul(hn::Set(d, alpha - 1), log_p))),
          hn::Mul(factor, Exp(d, hn::Mul(hn::Set(d, alpha), log_p)))};
}

HWY_INLINE Partial PartialOf(const RenyiEntropy& op, const Distribution& row, double value, const Powers& powers, size_t i,
                             size_t count) {
  const D64 d;
  const double alpha = op.alpha;
  const V64 p = row.P(d, i, count), log_p = row.LogP(d, i, count);
  if (alpha == 0) return {hn::Zero(d), hn::Zero(d)};
  if (alpha == 1) return PartialOf(TsallisEntropy{.alpha = 1}, row, value, i, count);
  if (std::abs(alpha - 1) < kVeryNear) {
    // The sum of powers, from the value.
    const V64 sum = Exp(d, hn::Set(d, (1 - alpha) * value));
    return WeightedPartial(d, p, hn::Div(NearPartial(d, alpha, log_p), sum));
  }
  const double finite = std::min(alpha, std::numeric_limits<double>::max());
  const V64 factor = hn::Set(d, 1 / (1 / alpha - 1));
  const V64 power = Exp(d, hn::Sub(ScaledLog(d, finite, powers.log_max, log_p), hn::Set(d, powers.log_sum)));
  // p^(alpha - 1); p^alpha / p would lose it for small p.
  const V64 less =
      Exp(d, hn::Sub(ScaledLog(d, finite - 1, powers.log_max, log_p), hn::Set(d, powers.log_sum + powers.log_max)));
  return {hn::Mul(factor, less), hn::Mul(factor, power)};
}

// Derivatives in the order; measures without an order have none.

template <class Op>
inline HWY_NOINLINE double OrderSlope(const Op& /*op*/, const Distribution& /*row*/, double /*value*/) {
  return 0;
}

// With b = alpha - 1, y = b log p and p^alpha = p e^y it is -sum p (y e^y - e^y + 1) / b^2, and y e^y - e^y + 1, which is y^2
// e^y phi_2(-y), does not cancel; if the value includes 1 - sum p, so does this.
inline HWY_NOINLINE double OrderSlope(const TsallisEntropy& op, const Distribution& row, double /*value*/) {
  const D64 d;
  const double alpha = op.alpha, b = alpha - 1;
  if (alpha == kInfinity<double>) return 0;
  const V64 zero = hn::Zero(d), one = hn::Set(d, 1.0), inverse = hn::Set(d, 1 / (b * b));
  const double sum = Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = row.P(d, i, count), log_p = row.LogP(d, i, count), y = hn::Mul(hn::Set(d, b), log_p);
    const V64 power = Exp(d, hn::Mul(hn::Set(d, alpha), log_p));
    const V64 near = hn::Mul(hn::Mul(p, hn::Mul(log_p, log_p)), hn::Mul(Exp(d, y), Phi2NearZero(d, hn::Neg(y))));
    const V64 rest = hn::IfThenZeroElse(hn::Eq(power, zero), hn::Mul(power, hn::Sub(y, one)));
    const V64 term = hn::IfThenElse(IsNearZero(d, y), near, hn::Mul(hn::Add(rest, p), inverse));
    return hn::IfThenZeroElse(hn::Eq(log_p, hn::Set(d, -kInfinity<double>)), term);
  });
  const bool near_1 = alpha == 1 || IsNear(alpha, row.sum) || std::abs(row.sum - 1) < 1e-12;
  return -sum - (near_1 ? 0 : (1 - row.sum) / (b * b));
}

// With q = p^alpha / sum p^alpha it is -KL(q, p) / b^2 = -sum p (y e^y - e^y + 1) / b^2, y = log q - log p = b (log p + H),
// where no term is negative. If p sums to 1 + e and the value depends on e, e / b^2 is added; near order 1, where the value
// does not, e (c e^c - e^c + 1) / b^2 with c = b H.
inline HWY_NOINLINE double OrderSlope(const RenyiEntropy& op, const Distribution& row, double value) {
  const D64 d;
  const double alpha = op.alpha, b = alpha - 1;
  if (alpha == kInfinity<double>) return 0;
  const bool near_1 = std::abs(b) < 0.125;
  const Powers powers = near_1 || alpha == 0 ? Powers{0, 0} : PowersOf(alpha, row);
  const V64 zero = hn::Zero(d), one = hn::Set(d, 1.0), inverse = hn::Set(d, 1 / (b * b));
  const double sum = Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = row.P(d, i, count), log_p = row.LogP(d, i, count);
    V64 w, y, log_q;  // w = y / b
    if (near_1) {
      w = hn::Add(log_p, hn::Set(d, value));
      y = hn::Mul(hn::Set(d, b), w);
      log_q = hn::Add(log_p, y);
    } else {
      log_q = alpha == 0 ? hn::Set(d, -value) : hn::Sub(ScaledLog(d, alpha, powers.log_max, log_p), hn::Set(d, powers.log_sum));
      y = hn::Sub(log_q, log_p);
      w = hn::Div(y, hn::Set(d, b));
    }
    const V64 q = Exp(d, log_q), near = hn::Mul(hn::Mul(p, hn::Mul(w, w)), hn::Mul(Exp(d, y), Phi2NearZero(d, hn::Neg(y))));
    const V64 rest = hn::IfThenZeroElse(hn::Eq(q, zero), hn::Mul(q, hn::Sub(y, one)));
    const V64 term = hn::IfThenElse(IsNearZero(d, y), near, hn::Mul(hn::Add(rest, p), inverse));
    return hn::IfThenZeroElse(hn::Eq(log_p, hn::Set(d, -kInfinity<double>)), term);
  });
  const double excess = row.sum - 1;
  if (std::abs(excess) < 1e-12) return -sum;
  if (alpha == 1 || !IsNear(alpha, row.sum)) return -sum + (alpha == 1 ? excess * value * value / 2 : excess / (b * b));
  const V64 c = hn::Set(d, b * value);
  return -sum + excess * value * value * hn::GetLane(hn::Mul(Exp(d, c), Phi2NearZero(d, hn::Neg(c))));
}

// Measures of two distributions. For scores and logarithms log q - log p is known; the quotient of exponentials would round it.

struct Pair {
  const Distribution &p, &q;
  const double* ratios = nullptr;  // log q - log p times `sign`, for nearly equal rows of scores
  double sign = 1;

  HWY_INLINE bool has_logs() const { return p.z != nullptr && q.z != nullptr; }
  // log q - log p. The difference of the z comes first: it is exact if they are near each other.
  HWY_INLINE V64 Difference(D64 d, size_t i, size_t count) const {
    if (ratios != nullptr) return hn::Mul(LoadUpTo(d, ratios + i, count, 0.0), hn::Set(d, sign));
    return hn::Sub(hn::Sub(q.Z(d, i, count), p.Z(d, i, count)), hn::Set(d, q.shift - p.shift));
  }
  // p > 0 = q, also if p is too small for a double.
  HWY_INLINE hn::Mask<D64> Missing(D64 d, size_t i, size_t count) const {
    const V64 absent = hn::Set(d, -kInfinity<double>);
    return hn::And(hn::Gt(p.Z(d, i, count), absent), hn::Eq(q.Z(d, i, count), absent));
  }
  HWY_INLINE Pair Swapped() const { return {q, p, ratios, -sign}; }
};

// Whether a quotient of p and q loses what their logarithms keep.
HWY_INLINE bool NeedLogs(const Distribution& p, const Distribution& q) { return p.underflows || q.underflows; }

inline HWY_NOINLINE double ValueOf(const CrossEntropy&, const Pair& rows) {
  const D64 d;
  return Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = rows.p.P(d, i, count);
    const V64 surprise = hn::Sub(hn::Zero(d), rows.q.LogP(d, i, count));
    const V64 term = ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, surprise));
    return rows.has_logs() ? InfinityWhere(d, rows.Missing(d, i, count), term) : term;
  });
}

inline HWY_NOINLINE double ValueOf(const KlDivergence&, const Pair& rows) {
  const D64 d;
  if (!rows.has_logs()) {
    return Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
      return QuotientOf(d, rows.p.P(d, i, count), rows.q.P(d, i, count)).term;
    });
  }
  return Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = rows.p.P(d, i, count), q = rows.q.P(d, i, count), z = rows.Difference(d, i, count);
    const V64 near = hn::Mul(p, ExpTailNearZero(d, z));
    const V64 far = hn::NegMulAdd(p, z, hn::Sub(q, p));
    const V64 term = hn::IfThenElse(hn::Eq(p, hn::Zero(d)), q, hn::IfThenElse(IsNearZero(d, z), near, far));
    return InfinityWhere(d, rows.Missing(d, i, count), term);
  });
}

// (q - p) / (p + q), which is tanh((log q - log p) / 2).
HWY_INLINE V64 ContrastOf(D64 d, const Pair& rows, size_t i, size_t count) {
  const V64 s = Contrast(d, rows.p.P(d, i, count), rows.q.P(d, i, count));
  if (!rows.has_logs()) return s;
  const V64 z = rows.Difference(d, i, count), e = Expm1NearZero(d, z);
  return hn::IfThenElse(IsNearZero(d, z), hn::Div(e, hn::Add(e, hn::Set(d, 2.0))), s);
}

inline HWY_NOINLINE double ValueOf(const JsDivergence&, const Pair& rows) {
  const D64 d;
  return Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 mass = hn::Add(rows.p.P(d, i, count), rows.q.P(d, i, count));
    return JensenShannonTerm(d, ContrastOf(d, rows, i, count), mass);
  });
}

// Partial derivatives in the first distribution and in the second. An entry that is 0 in both has none.

// An entry that is 0 in both.
HWY_INLINE hn::Mask<D64> IsNothing(D64 d, const Pair& rows, size_t i, size_t count) {
  const V64 absent = hn::Set(d, -kInfinity<double>), zero = hn::Zero(d);
  if (NeedLogs(rows.p, rows.q)) {
    return hn::And(hn::Eq(rows.p.Z(d, i, count), absent), hn::Eq(rows.q.Z(d, i, count), absent));
  }
  return hn::And(hn::Eq(rows.p.P(d, i, count), zero), hn::Eq(rows.q.P(d, i, count), zero));
}

HWY_INLINE Partial FirstPartialOf(const CrossEntropy&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const V64 surprise = hn::Sub(hn::Zero(d), rows.q.LogP(d, i, count));
  return WeightedPartial(d, rows.p.P(d, i, count), ZeroWhere(IsNothing(d, rows, i, count), surprise));
}

// p/q where one of them may underflow; 0 if p is 0.
HWY_INLINE V64 RatioByLogs(D64 d, const Pair& rows, size_t i, size_t count) {
  const auto nothing = hn::Eq(rows.p.Z(d, i, count), hn::Set(d, -kInfinity<double>));
  return ZeroWhere(nothing, Exp(d, hn::Neg(rows.Difference(d, i, count))));
}

HWY_INLINE Partial SecondPartialOf(const CrossEntropy&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const V64 p = rows.p.P(d, i, count), q = rows.q.P(d, i, count);
  const V64 minus = hn::Sub(hn::Zero(d), p);
  if (NeedLogs(rows.p, rows.q)) return {hn::Neg(RatioByLogs(d, rows, i, count)), minus};
  return {ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Div(minus, hn::Abs(q))), minus};  // q may be -0
}

// log(p/q).
HWY_INLINE V64 LogQuotientOf(D64 d, const Pair& rows, size_t i, size_t count) {
  const V64 p = rows.p.P(d, i, count), q = rows.q.P(d, i, count);
  const V64 z = rows.has_logs() ? rows.Difference(d, i, count) : QuotientOf(d, p, q).log;
  return ZeroWhere(IsNothing(d, rows, i, count), hn::Sub(hn::Zero(d), z));
}

HWY_INLINE Partial FirstPartialOf(const KlDivergence&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  return WeightedPartial(d, rows.p.P(d, i, count), LogQuotientOf(d, rows, i, count));
}

HWY_INLINE Partial SecondPartialOf(const KlDivergence&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const V64 p = rows.p.P(d, i, count), q = rows.q.P(d, i, count), difference = hn::Sub(q, p);
  if (NeedLogs(rows.p, rows.q)) return {hn::Sub(hn::Set(d, 1.0), RatioByLogs(d, rows, i, count)), difference};
  return {ZeroWhere(IsNothing(d, rows, i, count), hn::Div(difference, hn::Abs(q))), difference};
}

// log(p/m) / 2, m the mean: log(1 - s) / 2, where 1 - s is 2 p / (p + q).
HWY_INLINE Partial FirstPartialOf(const JsDivergence&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const V64 p = rows.p.P(d, i, count), q = rows.q.P(d, i, count), sum = hn::Add(p, q), half = hn::Set(d, 0.5);
  const V64 s = ContrastOf(d, rows, i, count);
  const V64 near = Log1p(d, hn::Neg(hn::Min(s, half))), far = LogOfRatio(d, hn::Add(p, p), sum);
  const V64 g = hn::Mul(half, hn::IfThenElse(hn::Lt(s, half), near, far));
  const auto nothing = IsNothing(d, rows, i, count);
  if (!NeedLogs(rows.p, rows.q)) return WeightedPartial(d, p, ZeroWhere(nothing, g));
  // Where p underflows: with z = log(q/p) it is (log 2 - log(1 + e^z)) / 2.
  const V64 z = rows.Difference(d, i, count), zero = hn::Zero(d);
  const V64 growth = hn::Add(hn::Max(z, zero), Log1p(d, Exp(d, hn::Neg(hn::Abs(z)))));
  const V64 by_logs = hn::Mul(half, hn::Sub(hn::Set(d, 0x1.62e42fefa39efp-1), growth));
  const auto is_tiny = hn::Lt(p, hn::Set(d, std::numeric_limits<double>::min()));
  return WeightedPartial(d, p, ZeroWhere(nothing, hn::IfThenElse(is_tiny, by_logs, g)));
}

HWY_INLINE Partial SecondPartialOf(const JsDivergence& op, const Pair& rows, size_t i, size_t count) {
  return FirstPartialOf(op, rows.Swapped(), i, count);
}

// The numbers that gradients refer to; the chain rule follows from p, g and p g.
enum class Through { probs, log_probs, softmax, division };

HWY_INLINE Through ThroughOf(Input input, bool normalize) {
  if (input == Input::probs) return normalize ? Through::division : Through::probs;
  return input == Input::log_probs && !normalize ? Through::log_probs : Through::softmax;
}

// v, but 0 at scores of -inf.
HWY_INLINE V64 WhereScored(D64 d, const Distribution& row, size_t i, size_t count, V64 v) {
  return ZeroWhere(hn::Eq(row.Z(d, i, count), hn::Set(d, -kInfinity<double>)), v);
}

// The gradient of factor f. partial(i, count) is the derivative of f in p without the constant `lacking`, which is added if the
// sum of p is free and drops out if it is not.
template <class T, class PartialAt>
HWY_NOINLINE void WriteGradient(Through through, const Distribution& row, double factor, double lacking, PartialAt&& partial,
                                T* out) {
  const D64 d;
  if (!row.exists || row.constant) {
    FillRow(RowTag<T>(), row.exists ? T(0) : kNaN<T>, row.n, out);
    return;
  }
  const bool fixed = through == Through::softmax || through == Through::division;
  const double mean = fixed ? Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR { return partial(i, count).weight; }) : 0;
  const V64 level = hn::Set(d, fixed ? mean : -lacking);
  const double divisor = through == Through::division ? row.divisor : 1;
  factor *= row.unit;
  const V64 scale = hn::Set(d, factor / divisor);
  const bool tiny = std::isinf(factor / divisor);  // the divisor is subnormal; 0 times infinity would be NaN
  const bool weighted = through == Through::softmax || through == Through::log_probs;
  ForEachVector(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const Partial at = partial(i, count);
    const V64 p = row.P(d, i, count);
    const V64 own = ZeroWhere(hn::Eq(p, hn::Zero(d)), level);  // an infinite level is none where p is 0
    const V64 centred = weighted ? WhereScored(d, row, i, count, hn::NegMulAdd(p, own, at.weight)) : hn::Sub(at.g, level);
    StoreNarrow(tiny ? hn::Div(hn::Mul(hn::Set(d, factor), centred), hn::Set(d, divisor)) : hn::Mul(scale, centred), d, count,
                out + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_ENTROPIES_INL_H_

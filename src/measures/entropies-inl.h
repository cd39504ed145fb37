// Measures of one distribution: their values and partial derivatives.

#if defined(ISENTROPIC_MEASURES_ENTROPIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_ENTROPIES_INL_H_
#undef ISENTROPIC_MEASURES_ENTROPIES_INL_H_
#else
#define ISENTROPIC_MEASURES_ENTROPIES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "src/measures/gradient-inl.h"
#include "src/rows/entropy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

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

// log p + H, as the distance of log p, or of z, from its mean. Not -0: whether z is 0 or -0 depends on which of 0 and -0 the
// target takes for the larger.
HWY_INLINE V64 Centred(D64 d, const Distribution& row, double mean, size_t i, size_t count) {
  const V64 log = row.z == nullptr ? row.LogP(d, i, count) : row.Z(d, i, count);
  return hn::Add(hn::Sub(log, hn::Set(d, mean)), hn::Zero(d));
}

inline HWY_NOINLINE double MeanLog(const Distribution& row) {
  const D64 d;
  return Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = row.P(d, i, count);
    return ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, Centred(d, row, 0, i, count)));
  });
}

inline HWY_NOINLINE double ValueOf(const Varentropy&, const Distribution& row) {
  const D64 d;
  const double mean = MeanLog(row);
  return Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = row.P(d, i, count), c = Centred(d, row, mean, i, count);
    return ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, hn::Mul(c, c)));
  });
}

// Where p does not sum to 1, the mean of c = log p - mean is not 0, and its square changes with the mean.
HWY_INLINE Partial PartialOf(const Varentropy&, const Distribution& row, double mean, size_t i, size_t count) {
  const D64 d;
  const V64 p = row.P(d, i, count), c = Centred(d, row, mean, i, count);
  const V64 rest = hn::Set(d, 2 * mean * (row.sum - 1));
  const V64 own = hn::MulAdd(hn::Add(c, hn::Set(d, 2.0)), c, hn::Mul(rest, hn::Add(row.LogP(d, i, count), hn::Set(d, 1.0))));
  return WeightedPartial(d, p, InfinityWhere(d, hn::Eq(c, hn::Set(d, -kInfinity<double>)), own));
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

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_ENTROPIES_INL_H_

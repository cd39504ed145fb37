// Measures of two distributions: their values and partial derivatives.

#if defined(ISENTROPIC_MEASURES_DIVERGENCES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_DIVERGENCES_INL_H_
#undef ISENTROPIC_MEASURES_DIVERGENCES_INL_H_
#else
#define ISENTROPIC_MEASURES_DIVERGENCES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "src/measures/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// log q - log p is known for scores and logarithms; the quotient of exponentials would round it.

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

// An entry that is 0 in both, not only too small for a double.
HWY_INLINE hn::Mask<D64> IsNothing(D64 d, const Pair& rows, size_t i, size_t count) {
  const V64 absent = hn::Set(d, -kInfinity<double>), zero = hn::Zero(d);
  if (rows.has_logs()) {
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
  return {ZeroWhere(hn::Eq(difference, hn::Zero(d)), hn::Div(difference, hn::Abs(q))), difference};
}

// log(p/m) / 2, m the mean: log(1 - s) / 2, where 1 - s is 2 p / (p + q).
HWY_INLINE Partial FirstPartialOf(const JsDivergence&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const V64 p = rows.p.P(d, i, count), q = rows.q.P(d, i, count), sum = hn::Add(p, q), half = hn::Set(d, 0.5);
  const V64 s = ContrastOf(d, rows, i, count);
  const V64 near = Log1p(d, hn::Neg(hn::Min(s, half))), far = LogOfRatio(d, hn::Add(p, p), sum);
  const V64 g = hn::Mul(half, hn::IfThenElse(hn::Lt(s, half), near, far));
  const auto nothing = IsNothing(d, rows, i, count);
  if (!rows.has_logs()) return WeightedPartial(d, p, ZeroWhere(nothing, g));
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

// q - p. The difference of the logarithms keeps digits that p and q have rounded.
HWY_INLINE V64 ExcessOf(D64 d, const Pair& rows, size_t i, size_t count) {
  const V64 p = rows.p.P(d, i, count), excess = hn::Sub(rows.q.P(d, i, count), p);
  if (!rows.has_logs()) return excess;
  const V64 z = rows.Difference(d, i, count);
  return hn::IfThenElse(IsNearZero(d, z), hn::Mul(p, Expm1NearZero(d, z)), excess);
}

inline HWY_NOINLINE double ValueOf(const TotalVariation&, const Pair& rows) {
  const D64 d;
  return Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR { return hn::Abs(ExcessOf(d, rows, i, count)); }) / 2;
}

HWY_INLINE Partial FirstPartialOf(const TotalVariation&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const V64 excess = ExcessOf(d, rows, i, count), zero = hn::Zero(d);
  const V64 half = hn::IfThenElse(hn::Lt(excess, zero), hn::Set(d, 0.5), hn::Set(d, -0.5));
  return WeightedPartial(d, rows.p.P(d, i, count), ZeroWhere(hn::Eq(excess, zero), half));
}

inline HWY_NOINLINE double ValueOf(const JeffreysDivergence&, const Pair& rows) {
  const D64 d;
  return Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 excess = ExcessOf(d, rows, i, count);
    const V64 term = ZeroWhere(hn::Eq(excess, hn::Zero(d)), hn::Neg(hn::Mul(excess, LogQuotientOf(d, rows, i, count))));
    if (!rows.has_logs()) return term;
    return InfinityWhere(d, hn::Or(rows.Missing(d, i, count), rows.Swapped().Missing(d, i, count)), term);
  });
}

// log(p/q) - (q - p)/p.
HWY_INLINE Partial FirstPartialOf(const JeffreysDivergence&, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const V64 p = rows.p.P(d, i, count), log = LogQuotientOf(d, rows, i, count), z = hn::Neg(log);
  const V64 weight = hn::Sub(ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, log)), ExcessOf(d, rows, i, count));
  return {hn::Sub(log, Expm1(d, z, Exp(d, z))), weight};
}

// Amari's divergence of order alpha, b = 1 - alpha, each of which may be small, and what follows from it: Hellinger's,
// Pearson's and Renyi's. With z = log(q/p) its term is p (1 - b + b e^z - e^(bz)) / (b (1 - b)) = (q - p - p (e^(bz) - 1) / b)
// / (1 - b).

// Entries where p is 0; other p may be too small for a double.
HWY_INLINE hn::Mask<D64> Absent(D64 d, const Pair& rows, V64 p, size_t i, size_t count) {
  if (!rows.has_logs()) return hn::Eq(p, hn::Zero(d));
  return hn::Eq(rows.p.Z(d, i, count), hn::Set(d, -kInfinity<double>));
}

// p e^y, y = bz, where e^y by itself may overflow and p underflow.
HWY_INLINE V64 PowerOf(D64 d, double b, const Pair& rows, V64 p, V64 z, V64 y, size_t i, size_t count) {
  if (!rows.has_logs()) {
    const V64 root = Exp(d, hn::Mul(hn::Set(d, 0.5), y));
    return hn::Mul(hn::Mul(p, root), root);
  }
  const V64 power = Exp(d, hn::Add(rows.p.LogP(d, i, count), y));
  // The difference of two logarithms may overflow.
  return b < 1 ? ZeroWhere(hn::Eq(z, hn::Set(d, kInfinity<double>)), power) : power;
}

// p (e^(bz) - 1) / b, p z at b = 0: it is 0 where p is.
HWY_INLINE V64 GrowthOf(D64 d, double b, const Pair& rows, V64 p, V64 z, size_t i, size_t count) {
  const auto nothing = Absent(d, rows, p, i, count);
  if (b == 0) return ZeroWhere(hn::Or(nothing, hn::Eq(p, hn::Zero(d))), hn::Mul(p, z));
  const V64 y = hn::Mul(hn::Set(d, b), z), power = PowerOf(d, b, rows, p, z, y, i, count);
  const V64 near = hn::Mul(hn::Mul(p, z), hn::MulAdd(y, Phi2NearZero(d, y), hn::Set(d, 1.0)));
  const V64 far = hn::Div(hn::Sub(power, p), hn::Set(d, b));
  return ZeroWhere(nothing, hn::IfThenElse(IsNearZero(d, y), near, far));
}

struct Amari {
  double alpha, b;

  HWY_INLINE Amari Swapped() const { return {b, alpha}; }
};
HWY_INLINE Amari AmariOf(double alpha) { return {alpha, 1 - alpha}; }

inline HWY_NOINLINE double ValueOf(const Amari& op, const Pair& rows) {
  // p and q are in the order for which b is at most 1/2, so that 1 - b does not cancel: there phi_2(z) is above b phi_2(bz).
  if (op.alpha < 0.5) return ValueOf(op.Swapped(), rows.Swapped());
  const D64 d;
  const double b = op.b;
  const V64 scale = hn::Set(d, b), rest = hn::Set(d, op.alpha);
  return Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = rows.p.P(d, i, count), z = hn::Neg(LogQuotientOf(d, rows, i, count)), y = hn::Mul(scale, z);
    const V64 tails = hn::NegMulAdd(scale, Phi2NearZero(d, y), Phi2NearZero(d, z));
    const V64 near = hn::Mul(hn::Mul(p, hn::Mul(z, z)), tails);
    const V64 far = hn::Sub(ExcessOf(d, rows, i, count), GrowthOf(d, b, rows, p, z, i, count));
    const auto is_near = hn::And(IsNearZero(d, z), b == 0 ? IsNearZero(d, z) : IsNearZero(d, y));
    const V64 term = hn::Div(hn::IfThenElse(is_near, near, far), rest);
    if (b > 0 || !rows.has_logs()) return term;
    return InfinityWhere(d, rows.Missing(d, i, count), term);
  });
}

// p (y e^y - e^y + 1) / b^2, y = bz, the derivative of GrowthOf in b. Near 0 it is p z^2 e^y phi_2(-y), where nothing cancels.
HWY_INLINE V64 GrowthSlopeOf(D64 d, double b, const Pair& rows, V64 p, V64 z, size_t i, size_t count) {
  const V64 zero = hn::Zero(d), y = hn::Mul(hn::Set(d, b), z), power = PowerOf(d, b, rows, p, z, y, i, count);
  const V64 near = hn::Mul(hn::Mul(p, hn::Mul(z, z)), hn::Mul(Exp(d, y), Phi2NearZero(d, hn::Neg(y))));
  const V64 rest = ZeroWhere(hn::Eq(power, zero), hn::Mul(power, hn::Sub(y, hn::Set(d, 1.0))));
  const V64 far = hn::Div(hn::Div(hn::Add(rest, p), hn::Set(d, b)), hn::Set(d, b));
  const auto is_near = b == 0 ? hn::Eq(zero, zero) : IsNearZero(d, y);
  return ZeroWhere(Absent(d, rows, p, i, count), hn::IfThenElse(is_near, near, far));
}

// The derivative in alpha, where the value is finite. That of a term in b is (term - GrowthSlopeOf) / (1 - b), in which only
// the leading digits of nearly equal rows cancel, because both are of the order of z^2.
inline HWY_NOINLINE double OrderSlope(const Amari& op, const Pair& rows) {
  if (op.alpha < 0.5) return -OrderSlope(op.Swapped(), rows.Swapped());
  const D64 d;
  const double b = op.b;
  const V64 scale = hn::Set(d, b), rest = hn::Set(d, op.alpha);
  return -Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = rows.p.P(d, i, count), z = hn::Neg(LogQuotientOf(d, rows, i, count)), y = hn::Mul(scale, z);
    const V64 tails = hn::Div(hn::NegMulAdd(scale, Phi2NearZero(d, y), Phi2NearZero(d, z)), rest);
    const V64 bend = hn::Mul(Exp(d, y), Phi2NearZero(d, hn::Neg(y)));
    const V64 near = hn::Mul(hn::Mul(p, hn::Mul(z, z)), hn::Sub(tails, bend));
    const V64 term = hn::Div(hn::Sub(ExcessOf(d, rows, i, count), GrowthOf(d, b, rows, p, z, i, count)), rest);
    const V64 far = hn::Sub(term, GrowthSlopeOf(d, b, rows, p, z, i, count));
    const auto is_near = hn::And(IsNearZero(d, z), b == 0 ? IsNearZero(d, z) : IsNearZero(d, y));
    return hn::Div(hn::IfThenElse(is_near, near, far), rest);
  });
}

// -(e^(bz) - 1) / b.
HWY_INLINE Partial FirstPartialOf(const Amari& op, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const double b = op.b;
  const V64 p = rows.p.P(d, i, count), z = hn::Neg(LogQuotientOf(d, rows, i, count));
  const V64 weight = hn::Neg(GrowthOf(d, b, rows, p, z, i, count));
  if (b == 0) return {hn::Neg(z), weight};
  const V64 y = hn::Mul(hn::Set(d, b), z);
  const V64 near = hn::Mul(z, hn::MulAdd(y, Phi2NearZero(d, y), hn::Set(d, 1.0)));
  const V64 far = hn::Div(hn::Sub(Exp(d, y), hn::Set(d, 1.0)), hn::Set(d, b));
  return {hn::Neg(hn::IfThenElse(IsNearZero(d, y), near, far)), weight};
}

// Renyi's: with S = sum p^alpha q^(1 - alpha) = 1 - alpha (1 - alpha) A, A Amari's, it is log(S) / (alpha - 1). Where S is
// small or overflows, its logarithm comes from the logarithms of the terms.
struct Affinity {
  double value;        // of the divergence
  bool by_logs;        // or by A
  double log_sum = 0;  // log S
  double count = 0;    // of infinite order: entries with the largest quotient
};

// log of p^alpha q^(1 - alpha), -inf where p is 0.
HWY_INLINE V64 LogTermOf(D64 d, double b, const Pair& rows, size_t i, size_t count) {
  const V64 log_p = rows.p.LogP(d, i, count), log_q = rows.q.LogP(d, i, count), absent = hn::Set(d, -kInfinity<double>);
  // Large orders use the quotient, which may be near 1; others use both logarithms, one of which may be far from 0.
  const V64 by_quotient = hn::NegMulAdd(hn::Set(d, b), LogQuotientOf(d, rows, i, count), log_p);
  const V64 by_logs = hn::MulAdd(hn::Set(d, b), log_q, hn::Mul(hn::Set(d, 1 - b), log_p));
  // Where q is 0 and p is not, however far log p is below 0.
  const V64 without_q = hn::Set(d, b < 0 ? kInfinity<double> : -kInfinity<double>);
  const V64 log = hn::IfThenElse(hn::Eq(log_q, absent), without_q, b < -1 ? by_quotient : by_logs);
  return hn::IfThenElse(hn::Eq(log_p, absent), absent, log);
}

// log(p/q), -inf where p is 0.
HWY_INLINE V64 LogQuotientOrNone(D64 d, const Pair& rows, size_t i, size_t count) {
  const V64 absent = hn::Set(d, -kInfinity<double>);
  const V64 given = rows.p.z == nullptr ? rows.p.P(d, i, count) : rows.p.Z(d, i, count);
  const auto nothing = hn::Eq(given, rows.p.z == nullptr ? hn::Zero(d) : absent);
  return hn::IfThenElse(nothing, absent, LogQuotientOf(d, rows, i, count));
}

template <class At>
HWY_INLINE double LargestOf(D64 d, size_t n, At&& at) {
  V64 most = hn::Set(d, -kInfinity<double>);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR { most = hn::Max(most, at(i, count)); });
  return MaxLane(d, most);
}

inline HWY_NOINLINE Affinity AffinityOf(const RenyiDivergence& op, const Pair& rows) {
  const D64 d;
  const double alpha = op.alpha, b = 1 - alpha;
  const size_t n = rows.p.n;
  const V64 one = hn::Set(d, 1.0);
  const auto quotient = [&](size_t i, size_t count) HWY_ATTR { return LogQuotientOrNone(d, rows, i, count); };
  if (alpha == kInfinity<double>) {
    const double most = LargestOf(d, n, quotient);
    const double ties = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      return hn::IfThenElseZero(hn::Eq(quotient(i, count), hn::Set(d, most)), one);
    });
    return {std::max(most, 0.0), true, 0, ties};
  }
  if (alpha == 0) {
    double sums[2];  // of q where p is 0, and elsewhere
    Sums(d, n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
      const auto nothing = hn::Eq(quotient(i, count), hn::Set(d, -kInfinity<double>));
      const V64 q = rows.q.P(d, i, count);
      terms[0] = hn::IfThenElseZero(nothing, q);
      terms[1] = ZeroWhere(nothing, q);
    });
    const bool by_logs = sums[0] > 0.5;
    const double log_sum = by_logs ? LogNumber(sums[1]) : Log1pNumber(-sums[0]);
    return {0 - log_sum, by_logs, log_sum};
  }
  if (alpha == 1) return {ValueOf(KlDivergence{}, rows), false};
  const double lack = alpha * b * ValueOf(AmariOf(alpha), rows);
  if (lack <= 0.5 && lack >= -1e200) {
    const double log_sum = Log1pNumber(-lack);
    return {std::max(0.0, -log_sum / b), false, log_sum};
  }
  const auto term = [&](size_t i, size_t count) HWY_ATTR { return LogTermOf(d, b, rows, i, count); };
  const double most = LargestOf(d, n, term);
  double log_sum = most;
  if (std::isfinite(most)) {
    log_sum += LogNumber(Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const V64 log = term(i, count);
      return ZeroWhere(hn::Eq(log, hn::Set(d, -kInfinity<double>)), Exp(d, hn::Sub(log, hn::Set(d, most))));
    }));
  }
  return {log_sum == kInfinity<double> ? log_sum : std::max(0.0, -log_sum / b), true, log_sum};
}

// The kernel of Renyi's divergence knows S.
struct RenyiKernel {
  double alpha;
  Affinity of;
};

inline double ValueOf(const RenyiKernel& kernel, const Pair& /*rows*/) { return kernel.of.value; }

HWY_INLINE Partial Times(D64 d, double factor, const Partial& partial) {
  const V64 scale = hn::Set(d, factor);
  return {hn::Mul(scale, partial.g), hn::Mul(scale, partial.weight)};
}

HWY_INLINE Partial FirstPartialOf(const RenyiKernel& kernel, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const double alpha = kernel.alpha, b = 1 - alpha;
  const V64 p = rows.p.P(d, i, count);
  if (alpha == kInfinity<double>) {
    const auto top = hn::Ge(LogQuotientOrNone(d, rows, i, count), hn::Set(d, kernel.of.value));
    const V64 weight = hn::IfThenElseZero(top, hn::Set(d, 1 / kernel.of.count));
    return {ZeroWhere(hn::Eq(weight, hn::Zero(d)), hn::Div(weight, p)), weight};
  }
  if (alpha == 0) return {hn::Zero(d), hn::Zero(d)};
  if (!kernel.of.by_logs) {
    return Times(d, alpha / ExpNumber(kernel.of.log_sum), FirstPartialOf(AmariOf(alpha), rows, i, count));
  }
  const V64 log_sum = hn::Set(d, kernel.of.log_sum), z = hn::Neg(LogQuotientOf(d, rows, i, count));
  return Times(d, -alpha / b,
               {Exp(d, hn::MulSub(hn::Set(d, b), z, log_sum)), Exp(d, hn::Sub(LogTermOf(d, b, rows, i, count), log_sum))});
}

HWY_INLINE Partial SecondPartialOf(const RenyiKernel& kernel, const Pair& rows, size_t i, size_t count) {
  const D64 d;
  const double alpha = kernel.alpha;
  const V64 q = rows.q.P(d, i, count);
  if (alpha == kInfinity<double>) {
    const auto top = hn::Ge(LogQuotientOrNone(d, rows, i, count), hn::Set(d, kernel.of.value));
    const V64 weight = hn::IfThenElseZero(top, hn::Set(d, -1 / kernel.of.count));
    return {ZeroWhere(hn::Eq(weight, hn::Zero(d)), hn::Div(weight, q)), weight};
  }
  if (alpha == 0) {
    const auto nothing = hn::Eq(LogQuotientOrNone(d, rows, i, count), hn::Set(d, -kInfinity<double>));
    const V64 inside = hn::Set(d, kernel.of.by_logs ? -1.0 : 0.0), outside = hn::Set(d, kernel.of.by_logs ? 0.0 : 1.0);
    const V64 g = hn::Div(hn::IfThenElse(nothing, outside, inside), hn::Set(d, ExpNumber(kernel.of.log_sum)));
    return WeightedPartial(d, q, ZeroWhere(IsNothing(d, rows, i, count), g));
  }
  if (!kernel.of.by_logs) {
    const Partial partial = FirstPartialOf(AmariOf(alpha).Swapped(), rows.Swapped(), i, count);
    return Times(d, alpha / ExpNumber(kernel.of.log_sum), partial);
  }
  const V64 log_sum = hn::Set(d, kernel.of.log_sum), z = LogQuotientOf(d, rows, i, count);
  return Times(
      d, -1,
      {Exp(d, hn::MulSub(hn::Set(d, alpha), z, log_sum)), Exp(d, hn::Sub(LogTermOf(d, 1 - alpha, rows, i, count), log_sum))});
}

// The derivative in alpha, where the value D is finite: with r = p^alpha q^b / S it is KL(r, p) / b^2 = sum p (y e^y - e^y + 1)
// / b^2, y = log(r/p) = b (log(q/p) + D), where no term is negative. If the rows do not quite sum to 1, what the value has of
// that is added.
inline HWY_NOINLINE double OrderSlope(const RenyiKernel& kernel, const Pair& rows) {
  const D64 d;
  const double b = 1 - kernel.alpha, value = kernel.of.value, log_sum = kernel.of.log_sum;
  if (kernel.alpha == kInfinity<double>) return 0;
  const bool by_logs = kernel.of.by_logs;
  const V64 zero = hn::Zero(d), one = hn::Set(d, 1.0), scale = hn::Set(d, b);
  const double sum = Sum(d, rows.p.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = rows.p.P(d, i, count), z = hn::Neg(LogQuotientOf(d, rows, i, count));
    V64 w, y, r;  // w = y / b
    if (by_logs) {
      y = hn::MulSub(scale, z, hn::Set(d, log_sum));
      w = hn::Div(y, scale);
      r = Exp(d, hn::Sub(LogTermOf(d, b, rows, i, count), hn::Set(d, log_sum)));
    } else {
      w = hn::Add(z, hn::Set(d, value));
      y = hn::Mul(scale, w);
      r = PowerOf(d, b, rows, p, w, y, i, count);
    }
    const V64 near = hn::Mul(hn::Mul(p, hn::Mul(w, w)), hn::Mul(Exp(d, y), Phi2NearZero(d, hn::Neg(y))));
    const V64 rest = ZeroWhere(hn::Eq(r, zero), hn::Mul(r, hn::Sub(y, one)));
    const V64 far = hn::Div(hn::Div(hn::Add(rest, p), scale), scale);
    const auto is_near = b == 0 ? hn::Eq(zero, zero) : IsNearZero(d, y);
    return ZeroWhere(Absent(d, rows, p, i, count), hn::IfThenElse(is_near, near, far));
  });
  const double p_excess = rows.p.sum - 1, q_excess = rows.q.sum - 1;
  if (std::max(std::abs(p_excess), std::abs(q_excess)) < 1e-12) return sum;
  if (by_logs) return sum - p_excess / b / b;
  const double c = b * value;
  const V64 growth = Exp(d, hn::Set(d, c)), bend = hn::Mul(growth, Phi2NearZero(d, hn::Set(d, -c)));
  const double e = hn::GetLane(growth);
  const double rest = std::abs(c) <= 1 ? value * value * hn::GetLane(bend) : (c * e - e + 1) / b / b;
  return sum - p_excess * rest + (p_excess - q_excess) * value * e;
}

// The derivative in q: that in p of the same divergence, or of another one, with p and q exchanged.
HWY_INLINE Partial SecondPartialOf(const TotalVariation& op, const Pair& rows, size_t i, size_t count) {
  return FirstPartialOf(op, rows.Swapped(), i, count);
}
HWY_INLINE Partial SecondPartialOf(const JeffreysDivergence& op, const Pair& rows, size_t i, size_t count) {
  return FirstPartialOf(op, rows.Swapped(), i, count);
}
HWY_INLINE Partial SecondPartialOf(const Amari& op, const Pair& rows, size_t i, size_t count) {
  return FirstPartialOf(op.Swapped(), rows.Swapped(), i, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_DIVERGENCES_INL_H_

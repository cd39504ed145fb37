// Measures of two distributions: their values and partial derivatives.

#if defined(ISENTROPIC_MEASURES_DIVERGENCES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_DIVERGENCES_INL_H_
#undef ISENTROPIC_MEASURES_DIVERGENCES_INL_H_
#else
#define ISENTROPIC_MEASURES_DIVERGENCES_INL_H_
#endif

#include "src/measures/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// For scores and logarithms log q - log p is known; the quotient of exponentials would round it.

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

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_DIVERGENCES_INL_H_

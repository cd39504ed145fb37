// The terms that measures sum, each with a small relative error.

#if defined(ISENTROPIC_MEASURES_TERMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_TERMS_INL_H_
#undef ISENTROPIC_MEASURES_TERMS_INL_H_
#else
#define ISENTROPIC_MEASURES_TERMS_INL_H_
#endif

#include <limits>

#include "src/rows/expm1-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// x = 2^k m with m in [sqrt(1/2), sqrt 2), for normal x > 0.
struct Scaled {
  V64 k, m;
};

// As in Log.
HWY_INLINE Scaled ScaledOf(D64 d, V64 x) {
  using L = LogConstants<double>;
  using E = ExpConstants<double>;
  const hn::RebindToSigned<D64> di;
  const hn::RebindToUnsigned<D64> du;
  const auto moved = hn::Add(hn::BitCast(di, x), hn::Set(di, L::kOneBits - L::kSqrtHalfBits));
  const auto exponent = hn::BitCast(di, hn::ShiftRight<52>(hn::BitCast(du, moved)));
  const V64 m = hn::BitCast(d, hn::Add(hn::And(moved, hn::Set(di, L::kMantissaMask)), hn::Set(di, L::kSqrtHalfBits)));
  const V64 magic = hn::Set(d, E::kMagic);
  const V64 k = hn::Sub(hn::BitCast(d, hn::Add(exponent, hn::BitCast(di, magic))), hn::Set(d, E::kMagic + E::kBias));
  return {k, m};
}

// log(x) for normal x > 0. Log spends a third of its time on other numbers.
HWY_INLINE V64 LogNormal(D64 d, V64 x) {
  using E = ExpConstants<double>;
  const Scaled of = ScaledOf(d, x);
  const V64 f = hn::Sub(of.m, hn::Set(d, 1.0));
  const V64 tail = hn::MulAdd(of.k, hn::Set(d, E::kLn2Low), LogTail(d, f));
  return hn::MulAdd(of.k, hn::Set(d, E::kLn2High), hn::Add(f, tail));
}

// -p log p for 0 <= p. A p that the processor takes for 0 counts as 0: the threads of JAX flush subnormal numbers.
HWY_INLINE V64 Surprise(D64 d, V64 p) {
  const V64 least = hn::Set(d, std::numeric_limits<double>::min());
  const auto small = hn::Lt(p, least);
  V64 log = LogNormal(d, hn::Max(p, least));
  if (HWY_UNLIKELY(!hn::AllFalse(d, small))) {
    log = hn::IfThenElse(small, hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), Log(d, p)), log);
  }
  return hn::Mul(p, hn::Sub(hn::Zero(d), log));
}

// log(q/p) for p, q >= 0 and the term p log(p/q) - p + q of their divergence.
struct Quotient {
  V64 log, term;
};

// With s = (q - p) / (q + p), log(q/p) = 2 artanh s = 2 s + s z Q(z), z = s^2, Q(z) = 2 (1/3 + z/5 + z^2/7 + ...).
//
// Where q/p is in [sqrt(1/2), sqrt 2) the term is s (q - p - p z Q): q - p is exact, and s (q - p) is about six times the rest,
// so that nothing cancels and the term, like (q - p)^2, is never negative. Elsewhere q/p = 2^k m is split as in Log, with s of
// m, and the formula is evaluated directly: the term is then at least 0.05 p.
HWY_INLINE Quotient QuotientOf(D64 d, V64 p, V64 q) {
  using E = ExpConstants<double>;
  constexpr double kOdd[] = {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const V64 one = hn::Set(d, 1.0);
  const V64 difference = hn::Sub(q, p), sum = hn::Add(q, p);
  const V64 ratio = hn::Min(hn::Div(q, p), hn::Set(d, std::numeric_limits<double>::max()));

  const auto [k, m] = ScaledOf(d, ratio);
  const auto near = hn::Eq(k, hn::Zero(d));

  const V64 s = hn::Div(hn::IfThenElse(near, difference, hn::Sub(m, one)), hn::IfThenElse(near, sum, hn::Add(m, one)));
  const V64 z = hn::Mul(s, s);
  const V64 tail = hn::Mul(z, Polynomial(d, z, kOdd));
  const V64 low = hn::MulAdd(s, tail, hn::Mul(k, hn::Set(d, E::kLn2Low)));
  V64 log = hn::MulAdd(k, hn::Set(d, E::kLn2High), hn::Add(hn::Add(s, s), low));
  // Rare: q = 0, and quotients that are not normal numbers. p = 0 is common, and comes below.
  constexpr double kLogOfScale = 600 * 0x1.62e42fefa39efp-1;
  const auto nothing = hn::Eq(p, hn::Zero(d));
  const auto times = [&](double scale) HWY_ATTR { return Log(d, hn::Div(hn::Mul(q, hn::Set(d, scale)), p)); };
  const auto tiny = hn::Lt(ratio, hn::Set(d, 0x1p-1000));
  if (HWY_UNLIKELY(!hn::AllFalse(d, tiny))) {
    log = hn::IfThenElse(tiny, hn::Sub(times(0x1p600), hn::Set(d, kLogOfScale)), log);
  }
  const auto huge = hn::AndNot(nothing, hn::Gt(ratio, hn::Set(d, 0x1p1000)));
  if (HWY_UNLIKELY(!hn::AllFalse(d, huge))) {
    log = hn::IfThenElse(huge, hn::Add(times(0x1p-600), hn::Set(d, kLogOfScale)), log);
  }
  const V64 near_term = hn::Mul(s, hn::NegMulAdd(p, tail, difference));
  V64 term = hn::IfThenElse(near, near_term, hn::NegMulAdd(p, log, difference));
  term = hn::IfThenElse(nothing, q, term);
  log = hn::IfThenElse(nothing, hn::IfThenElseZero(hn::Gt(q, hn::Zero(d)), hn::Set(d, kInfinity<double>)), log);
  return {log, term};
}

// ((1 + s) log(1 + s) + (1 - s) log(1 - s)) / 2 for |s| <= 1: times (p + q) / 2, with s = (q - p) / (p + q), the term of the
// divergence of Jensen and Shannon. Near 0 by z / 2 + z^2 / 12 + z^3 / 30 + ..., z = s^2.
HWY_INLINE V64 JensenShannon(D64 d, V64 s) {
  constexpr double kEven[] = {1.0 / 2,   1.0 / 12,  1.0 / 30,  1.0 / 56,  1.0 / 90,  1.0 / 132,
                              1.0 / 182, 1.0 / 240, 1.0 / 306, 1.0 / 380, 1.0 / 462, 1.0 / 552};
  const V64 z = hn::Mul(s, s), one = hn::Set(d, 1.0);
  const V64 series = hn::Mul(z, Polynomial(d, z, kEven));
  const auto near = hn::Le(hn::Abs(s), hn::Set(d, 0.25));
  if (hn::AllTrue(d, near)) return series;
  const V64 more = hn::Add(one, hn::Abs(s)), less = hn::Sub(one, hn::Abs(s));
  // `less` is 0 or at least 2^-53; at 0 any finite logarithm will do.
  const V64 log_less = LogNormal(d, hn::Max(less, hn::Set(d, 0x1p-60)));
  const V64 sum = hn::MulAdd(more, LogNormal(d, more), hn::Mul(less, log_less));
  return hn::IfThenElse(near, series, hn::Mul(hn::Set(d, 0.5), sum));
}

HWY_INLINE V64 JensenShannonTerm(D64 d, V64 s, V64 sum) { return hn::Mul(hn::Mul(hn::Set(d, 0.5), sum), JensenShannon(d, s)); }

// (q - p) / (p + q), 0 if both are 0.
HWY_INLINE V64 Contrast(D64 d, V64 p, V64 q) {
  const V64 sum = hn::Add(p, q);
  return hn::Div(hn::Sub(q, p), hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Set(d, 1.0), sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_TERMS_INL_H_

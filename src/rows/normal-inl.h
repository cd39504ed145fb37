// The standard normal distribution of a vector, over the whole line: its CDF and density over CDF.
//
// Largest relative error, measured by tests/rows_test.cc: NormalCdf 2e-15 down to t = -37 (below that its value is subnormal),
// InverseMills 2e-15 up to t = 37.5, its end. Without FMA, exp(-t^2/2) has a further error of t^2/2 eps.

#if defined(ISENTROPIC_ROWS_NORMAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_NORMAL_INL_H_
#undef ISENTROPIC_ROWS_NORMAL_INL_H_
#else
#define ISENTROPIC_ROWS_NORMAL_INL_H_
#endif

#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Mills' ratio at s >= 0, (1 - Phi(s)) / phi(s), as a numerator and a denominator: P(y) and s + 4 with y = (s - 4)/(s + 4). It
// falls like 1/s, so the product with s + 4 is smooth on all of y in [-1, 1], infinity included: one polynomial, the truncated
// Chebyshev series, is enough for the whole half-line.
struct MillsRatio {
  V64 numerator, denominator;
};

HWY_INLINE MillsRatio Mills(D64 d, V64 s) {
  constexpr double kCoefficients[25] = {
      0x1.e4aa012912ddep+0,   -0x1.8615d9b49165fp+0,  0x1.f0d9856bc3b10p-1,   -0x1.dec30ee679054p-2,  0x1.360ce26020419p-3,
      -0x1.35aa3c952a44cp-6,  -0x1.1dcfea7978eabp-7,  0x1.0be6d67626502p-8,   0x1.5e7b1b211cd4cp-12,  -0x1.2fb435c097a94p-11,
      -0x1.40ffdab014dc6p-18, 0x1.71801234b62e4p-14,  0x1.e237785e90992p-20,  -0x1.f20ec8ce0ecf6p-17, -0x1.a7cc0323f20c4p-20,
      0x1.58c5c2ab3ae68p-19,  0x1.6ea9c5cbe15c1p-21,  -0x1.ae06eeda28ac4p-22, -0x1.d398e72f00fffp-23, 0x1.803ba179e4c38p-25,
      0x1.cd5fd224e8805p-25,  -0x1.94b3e4fc98a2bp-30, -0x1.414f42abde6e4p-27, -0x1.4aaaba2ef263cp-32, 0x1.d4fce22b76cf8p-31};
  const auto denominator = hn::Add(s, hn::Set(d, 4.0));
  const auto y = hn::NegMulAdd(hn::Set(d, 8.0), hn::Div(hn::Set(d, 1.0), denominator), hn::Set(d, 1.0));
  // Horner's scheme in y^4 for four interleaved parts: a quarter of the latency.
  const auto y2 = hn::Mul(y, y), y4 = hn::Mul(y2, y2);
  V64 part[4] = {hn::Set(d, kCoefficients[24]), hn::Set(d, kCoefficients[21]), hn::Set(d, kCoefficients[22]),
                 hn::Set(d, kCoefficients[23])};
  for (int i = 20; i >= 0; i -= 4) {
    part[0] = hn::MulAdd(part[0], y4, hn::Set(d, kCoefficients[i]));
    if (i == 0) break;
    for (int k = 1; k < 4; ++k) part[k] = hn::MulAdd(part[k], y4, hn::Set(d, kCoefficients[i - 4 + k]));
  }
  const auto even = hn::MulAdd(part[2], y2, part[0]), odd = hn::MulAdd(part[3], y2, part[1]);
  return {hn::MulAdd(odd, y, even), denominator};
}

// phi(s) for s >= 0. The rounding error of s^2 would be an absolute error of the exponent, so its low part is kept.
HWY_INLINE V64 NormalDensity(D64 d, V64 s) {
  constexpr double kInverseSqrtTwoPi = 0x1.9884533d43651p-2;
  // Beyond 40 exp is 0, and the square of infinity has no low part.
  const auto near = hn::Min(s, hn::Set(d, 40.0));
  const auto half = hn::Mul(near, hn::Set(d, -0.5));
  const auto exponent = hn::Mul(half, near);
  const auto low = hn::MulSub(half, near, exponent);
  const auto e = Exp(d, exponent);
  return hn::Mul(hn::MulAdd(e, low, e), hn::Set(d, kInverseSqrtTwoPi));
}

// Phi(t).
HWY_INLINE V64 NormalCdf(D64 d, V64 t) {
  const auto s = hn::Abs(t);
  const MillsRatio mills = Mills(d, s);
  const auto tail = hn::Div(hn::Mul(NormalDensity(d, s), mills.numerator), mills.denominator);
  return hn::IfThenElse(hn::Lt(t, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0), tail));
}

// phi(t) / Phi(t): the inverse of Mills' ratio at -t, about -t for t far below 0. From this t on it is 0, because subnormal
// numbers would no longer fall as t rises.
inline constexpr double kInverseMillsEnd = 37.5;
HWY_INLINE V64 InverseMills(D64 d, V64 t) {
  const auto s = hn::Abs(t);
  const MillsRatio mills = Mills(d, s);
  // For t >= 0 it is phi / (1 - phi P/(s + 4)), multiplied through.
  const auto density = NormalDensity(d, s);
  const auto below = hn::Lt(t, hn::Zero(d));
  const auto numerator = hn::IfThenElse(below, mills.denominator, hn::Mul(density, mills.denominator));
  const auto denominator = hn::IfThenElse(below, mills.numerator, hn::NegMulAdd(density, mills.numerator, mills.denominator));
  return hn::IfThenElse(hn::Gt(t, hn::Set(d, kInverseMillsEnd)), hn::Zero(d), hn::Div(numerator, denominator));
}

// log Phi(t) and phi(t) / Phi(t) together, for t above -38, where Phi is a normal number.
struct NormalLogCdf {
  V64 log_cdf, inverse_mills;
};

HWY_INLINE NormalLogCdf NormalLogCdfOf(D64 d, V64 t) {
  const auto s = hn::Abs(t);
  const MillsRatio mills = Mills(d, s);
  const auto density = NormalDensity(d, s);
  const auto tail = hn::Div(hn::Mul(density, mills.numerator), mills.denominator);
  const auto cdf = hn::IfThenElse(hn::Lt(t, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0), tail));
  return {Log(d, cdf), hn::Div(density, cdf)};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_NORMAL_INL_H_

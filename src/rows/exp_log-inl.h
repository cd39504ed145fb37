// exp and log of a vector, correct for every input: NaN, infinities, overflow, subnormals.
//
// They are written here because Highway's contrib versions return 0 for exp(NaN) and exp(200), and -105 for log(0). Largest
// error in units of the last place, measured by tests/exp_log_exhaustive.cc over every float32 and 2^28 float64:
//   Exp        float32 1.04, float64 1.01
//   ExpScaled  2 + |x|/T; measured at T = 1: float32 21 (at x = -86.6), float64 92 (at -707)
//   Log        float32 0.88, float64 0.90
// Without FMA, measured on every 16th block of inputs: ExpScaled 2 + 2 |x|/T, Exp 0.98, Log 0.91.
// The polynomials are minimax (Remez, coefficients rounded to the type one by one) on the reduced interval.

#if defined(ISENTROPIC_ROWS_EXP_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_EXP_LOG_INL_H_
#undef ISENTROPIC_ROWS_EXP_LOG_INL_H_
#else
#define ISENTROPIC_ROWS_EXP_LOG_INL_H_
#endif

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Constants of the two precisions.
template <class T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr float kMagic = 0x1.8p23f;  // adding it rounds to the nearest integer, which appears in the low bits
  static constexpr int kMantissaBits = 23;
  static constexpr int kBias = 127;
  static constexpr float kLog2e = 0x1.715476p+0f;
  // ln 2 with so few bits that its product with any exponent is exact, even without FMA, and the remaining bits.
  static constexpr float kLn2High = 0x1.62e4p-1f;
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kOverflow = 89.0f;
  static constexpr float kUnderflow = -176.0f;
};

template <>
struct ExpConstants<double> {
  static constexpr double kMagic = 0x1.8p52;
  static constexpr int kMantissaBits = 52;
  static constexpr int kBias = 1023;
  static constexpr double kLog2e = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefa38p-1;
  static constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  static constexpr double kOverflow = 710.0;
  static constexpr double kUnderflow = -1418.0;
};

// exp(r) for |r| <= ln(2)/2. The last step adds the small part r + r^2 q to 1, so that only the rounding of this step matters.
HWY_INLINE hn::Vec<RowTag<float>> ExpReduced(RowTag<float> d, hn::Vec<RowTag<float>> r) {
  const auto r2 = hn::Mul(r, r);
  const auto low = hn::MulAdd(hn::Set(d, 0x1.555492p-3f), r, hn::Set(d, 0x1.fffffap-2f));
  auto q = hn::MulAdd(hn::Set(d, 0x1.12397cp-7f), r, hn::Set(d, 0x1.555a26p-5f));
  q = hn::MulAdd(hn::Set(d, 0x1.694c86p-10f), r2, q);
  q = hn::MulAdd(q, r2, low);
  q = hn::MulAdd(r2, q, r);
  return hn::Add(q, hn::Set(d, 1.0f));
}

HWY_INLINE V64 ExpReduced(D64 d, V64 r) {
  auto q = hn::Set(d, 0x1.ad92c5db98d61p-26);
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.28adf7b4c048cp-22));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.71df18fd0c532p-19));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.a0199963bc125p-16));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.a01a012febae3p-13));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.6c16c18475a3ep-10));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.1111111126b38p-7));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.55555555506cp-5));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.55555555554fep-3));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.000000000000ap-1));
  q = hn::MulAdd(hn::Mul(r, r), q, r);
  return hn::Add(q, hn::Set(d, 1.0));
}

// 2^r for |r| <= 1/2, as 1 + r (ln 2 + r q(r)), q in Estrin's order: half the latency of Horner's for as many operations.
HWY_INLINE hn::Vec<RowTag<float>> Exp2Reduced(RowTag<float> d, hn::Vec<RowTag<float>> r) {
  const auto r2 = hn::Mul(r, r);
  const auto q0 = hn::MulAdd(hn::Set(d, 0x1.c6af72p-5f), r, hn::Set(d, 0x1.ebfbd8p-3f));
  const auto q2 = hn::MulAdd(hn::Set(d, 0x1.5f0e1p-10f), r, hn::Set(d, 0x1.3b309p-7f));
  const auto q = hn::MulAdd(hn::MulAdd(hn::Set(d, 0x1.3fb5e6p-13f), r2, q2), r2, q0);
  return hn::MulAdd(hn::MulAdd(q, r, hn::Set(d, 0x1.62e43p-1f)), r, hn::Set(d, 1.0f));
}

HWY_INLINE V64 Exp2Reduced(D64 d, V64 r) {
  const auto r2 = hn::Mul(r, r);
  const auto r4 = hn::Mul(r2, r2);
  const auto q0 = hn::MulAdd(hn::Set(d, 0x1.c6b08d704a128p-5), r, hn::Set(d, 0x1.ebfbdff82c5a6p-3));
  const auto q2 = hn::MulAdd(hn::Set(d, 0x1.5d87fe789f8b8p-10), r, hn::Set(d, 0x1.3b2ab6fb9fd4dp-7));
  const auto q4 = hn::MulAdd(hn::Set(d, 0x1.ffcbfc61b6f63p-17), r, hn::Set(d, 0x1.4309130f8a928p-13));
  const auto q6 = hn::MulAdd(hn::Set(d, 0x1.b5252c8b2c6fdp-24), r, hn::Set(d, 0x1.62bfc5f76660cp-20));
  const auto q8 = hn::MulAdd(hn::Set(d, 0x1.e9651a8abab3dp-32), r, hn::Set(d, 0x1.e61e0cd88f2dbp-28));
  const auto low = hn::MulAdd(q2, r2, q0);
  const auto high = hn::MulAdd(q8, r4, hn::MulAdd(q6, r2, q4));
  const auto q = hn::MulAdd(high, r4, low);
  return hn::MulAdd(hn::MulAdd(q, r, hn::Set(d, 0x1.62e42fefa39efp-1)), r, hn::Set(d, 1.0));
}

// exp(x / T) for x <= 0 and one T for a whole row, which every shifted softmax needs. Results below about 2^-126 (2^-1022 in
// float64) are 0. It never falls as x rises, and T costs no operation.
//
// exp(x/T) = 2^(c x) with c = log2(e)/T, rounded once; k = round(c x) and the remainder r = c x - k come from two FMAs. The
// error is (2 + |x|/T) eps: c's rounding, and that of r, of the polynomial and of the result.
//
// r is rounded to multiples of 2 eps (2^-23 in float32). From one to the next 2^r grows by at least 0.98 eps, while the
// factor of r in Exp2Reduced is wrong by at most 0.67 eps (a rounding in [1/2, 1), q's below 1/4), so that two products with
// |r| <= 1/2 that should rise differ by at most 0.67 eps too much: they never fall, nor does what is rounded from them. From
// one k to the next, r jumps from 1/2 to -1/2, and Exp2Reduced(1/2) <= 2 Exp2Reduced(-1/2).
template <class D, class T = hn::TFromD<D>>
class ExpScaled {
 public:
  HWY_INLINE ExpScaled(D d, double temperature) {
    constexpr double kLog2e = 0x1.71547652b82fep+0;
    c_ = hn::Set(d, static_cast<T>(kLog2e / temperature));
    // At c x = -bias the exponent field of 2^k is 0, and so is the number.
    lowest_ = hn::Set(d, static_cast<T>(-ExpConstants<T>::kBias / kLog2e * temperature));
  }

  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    using C = ExpConstants<T>;
    const hn::RebindToSigned<D> di;
    x = MaxKeepNaN(lowest_, x);
    // The rounding constant contains the exponent bias: shifted left, the sum is the number 2^k itself.
    const auto magic = hn::Set(d, C::kMagic + C::kBias);
    const auto t = hn::MulAdd(x, c_, magic);
    // 1.5 + r lies in [1, 2], where numbers are 2 eps apart.
    const auto grid = hn::Set(d, T(1.5));
    const auto r = hn::Sub(hn::MulAdd(x, c_, hn::Sub(grid, hn::Sub(t, magic))), grid);
    const auto power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, r), power);
  }

 private:
  hn::Vec<D> c_, lowest_;
};

// exp(x) for x from kUnderflow to kOverflow.
template <class D>
HWY_INLINE hn::Vec<D> ExpOfClamped(D d, hn::Vec<D> clamped) {
  using C = ExpConstants<hn::TFromD<D>>;
  const hn::RebindToSigned<D> di;
  const auto magic = hn::Set(d, C::kMagic);
  const auto t = hn::MulAdd(clamped, hn::Set(d, C::kLog2e), magic);
  const auto k = hn::Sub(t, magic);
  auto r = hn::NegMulAdd(k, hn::Set(d, C::kLn2High), clamped);
  r = hn::NegMulAdd(k, hn::Set(d, C::kLn2Low), r);
  // 2^k in two factors, each a normal number, so that overflow and subnormal results round once, in the last product.
  const auto ki = hn::Sub(hn::BitCast(di, t), hn::BitCast(di, magic));
  // There is no 64-bit arithmetic shift before AVX-512: halve k as a number, rounded to an integer the same way.
  const auto half = hn::Sub(hn::BitCast(di, hn::MulAdd(k, hn::Set(d, hn::TFromD<D>(0.5)), magic)), hn::BitCast(di, magic));
  const auto bias = hn::Set(di, C::kBias);
  const auto a = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::Add(half, bias)));
  const auto b = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::Add(hn::Sub(ki, half), bias)));
  return hn::Mul(hn::Mul(ExpReduced(d, r), a), b);
}

// At kUnderflow both factors of 2^k above are 0 itself. Smaller numbers (scores of masked classes) thus cost no more than
// others; a product that is rounded to 0 takes a processor some 100 cycles.
template <class D>
HWY_INLINE hn::Vec<D> ClampForExp(D d, hn::Vec<D> x) {
  return hn::Max(x, hn::Set(d, ExpConstants<hn::TFromD<D>>::kUnderflow));
}

// exp(x) for any x.
template <class D>
HWY_INLINE hn::Vec<D> Exp(D d, hn::Vec<D> x) {
  const auto below = hn::Min(x, hn::Set(d, ExpConstants<hn::TFromD<D>>::kOverflow));
  return hn::IfThenElse(hn::IsNaN(x), x, ExpOfClamped(d, ClampForExp(d, below)));
}

// log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1], in Estrin's order as Exp2Reduced.
HWY_INLINE hn::Vec<RowTag<float>> LogTail(RowTag<float> d, hn::Vec<RowTag<float>> f) {
  const auto f2 = hn::Mul(f, f);
  const auto f4 = hn::Mul(f2, f2);
  const auto q0 = hn::MulAdd(hn::Set(d, -0x1.ffffe6p-3f), f, hn::Set(d, 0x1.555554p-2f));
  const auto q2 = hn::MulAdd(hn::Set(d, -0x1.5562acp-3f), f, hn::Set(d, 0x1.999d36p-3f));
  const auto q4 = hn::MulAdd(hn::Set(d, -0x1.fbb3a8p-4f), f, hn::Set(d, 0x1.23dc44p-3f));
  const auto q6 = hn::MulAdd(hn::Set(d, -0x1.de2032p-4f), f, hn::Set(d, 0x1.dc979ep-4f));
  const auto high = hn::MulAdd(hn::Set(d, 0x1.2cdbf8p-4f), f4, hn::MulAdd(q6, f2, q4));
  const auto q = hn::MulAdd(high, f4, hn::MulAdd(q2, f2, q0));
  return hn::MulAdd(hn::Mul(f2, f), q, hn::Mul(hn::Set(d, -0.5f), f2));
}

// With s = f / (2 + f): log(1 + f) = log((1 + s) / (1 - s)) = 2 s + s^3 Q(s^2), and 2 s = f - s f. In the form f - (f^2/2 - s
// (f^2/2 + s^2 Q)) the rounding of s only affects the small second part.
HWY_INLINE V64 LogTail(D64 d, V64 f) {
  const auto s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0)));
  const auto z = hn::Mul(s, s);
  auto q = hn::Set(d, 0x1.101e9893d4cedp-3);
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.0f4a9b2809151p-3));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.3b2153daf11dbp-3));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.745cdb900e522p-3));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.c71c725c1a37p-3));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.249249242f0a2p-2));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.9999999999d58p-2));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.5555555555555p-1));
  const auto half_square = hn::Mul(hn::Mul(hn::Set(d, 0.5), f), f);
  return hn::MulSub(s, hn::MulAdd(z, q, half_square), half_square);
}

template <class T>
struct LogConstants;

template <>
struct LogConstants<float> {
  static constexpr int32_t kSqrtHalfBits = 0x3f3504f3;
  static constexpr int32_t kOneBits = 0x3f800000;
  static constexpr int32_t kMantissaMask = 0x007fffff;
  static constexpr float kTwoToMantissa = 0x1p23f;
  static constexpr float kSmallestNormal = 0x1p-126f;
};

template <>
struct LogConstants<double> {
  static constexpr int64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  static constexpr int64_t kOneBits = 0x3ff0000000000000;
  static constexpr int64_t kMantissaMask = 0x000fffffffffffff;
  static constexpr double kTwoToMantissa = 0x1p52;
  static constexpr double kSmallestNormal = 0x1p-1022;
};

// log(x) - (bias - kBias) log 2 for a positive normal number x.
template <class D>
HWY_INLINE hn::Vec<D> LogOfNormal(D d, hn::Vec<D> normal, hn::Vec<D> bias) {
  using T = hn::TFromD<D>;
  using C = LogConstants<T>;
  constexpr int kMantissaBits = ExpConstants<T>::kMantissaBits;
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;

  // x = 2^k m with m in [sqrt(1/2), sqrt(2)): the exponent now changes at sqrt(1/2) instead of 1. The sum is non-negative for x
  // > 0, so the shift may be unsigned, which exists for 64 bits on all targets.
  const auto moved = hn::Add(hn::BitCast(di, normal), hn::Set(di, C::kOneBits - C::kSqrtHalfBits));
  const auto exponent = hn::BitCast(di, hn::ShiftRight<kMantissaBits>(hn::BitCast(du, moved)));
  const auto m = hn::BitCast(d, hn::Add(hn::And(moved, hn::Set(di, C::kMantissaMask)), hn::Set(di, C::kSqrtHalfBits)));
  // Small integer to floating point through the rounding constant: exact, and the same on every target.
  const auto magic = hn::Set(d, ExpConstants<T>::kMagic);
  auto k = hn::Sub(hn::BitCast(d, hn::Add(exponent, hn::BitCast(di, magic))), magic);
  k = hn::Sub(k, bias);

  const auto f = hn::Sub(m, hn::Set(d, T(1)));
  const auto tail = hn::MulAdd(k, hn::Set(d, ExpConstants<T>::kLn2Low), LogTail(d, f));
  return hn::MulAdd(k, hn::Set(d, ExpConstants<T>::kLn2High), hn::Add(f, tail));
}
template <class D>
HWY_INLINE hn::Vec<D> LogOfNormal(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  return LogOfNormal(d, x, hn::Set(d, T(ExpConstants<T>::kBias)));
}

// log(x) for any x: -inf at 0, NaN below.
template <class D>
HWY_INLINE hn::Vec<D> Log(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using C = LogConstants<T>;
  constexpr T kBias = ExpConstants<T>::kBias, kMantissaBits = ExpConstants<T>::kMantissaBits;
  const auto subnormal = hn::Lt(x, hn::Set(d, C::kSmallestNormal));
  const auto normal = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, C::kTwoToMantissa)), x);
  auto y = LogOfNormal(d, normal, hn::IfThenElse(subnormal, hn::Set(d, kBias + kMantissaBits), hn::Set(d, kBias)));
  y = hn::IfThenElse(hn::Eq(x, hn::Set(d, kInfinity<T>)), x, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, -kInfinity<T>), y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, kNaN<T>), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// log(1 + v) for v > -1, with a small relative error; +inf gives a number above the logarithm of every finite v. It never falls
// as v rises.
//
// As in Log, 1 + v = 2^k (1 + f). If k = 0, f is v itself, which 1 + v would round. f is a multiple of half the last place of 1
// + v, so from one value to the next f grows by at least 2^-25 (in float32), while what is added to it, LogTail of at most 0.07
// in size, is rounded to multiples of 2^-27 and less: the sum cannot fall. From one k to the next the roundings are 2^-26 at
// most on either side, the growth again at least 2^-25.
template <class D>
HWY_INLINE hn::Vec<D> Log1p(D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  using C = LogConstants<T>;
  constexpr int kMantissaBits = ExpConstants<T>::kMantissaBits;
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;
  const auto one = hn::Set(d, T(1));
  const auto moved = hn::Add(hn::BitCast(di, hn::Add(v, one)), hn::Set(di, C::kOneBits - C::kSqrtHalfBits));
  const auto exponent = hn::BitCast(di, hn::ShiftRight<kMantissaBits>(hn::BitCast(du, moved)));
  const auto m = hn::BitCast(d, hn::Add(hn::And(moved, hn::Set(di, C::kMantissaMask)), hn::Set(di, C::kSqrtHalfBits)));
  const auto magic = hn::Set(d, ExpConstants<T>::kMagic);
  auto k = hn::Sub(hn::BitCast(d, hn::Add(exponent, hn::BitCast(di, magic))), magic);
  k = hn::Sub(k, hn::Set(d, T(ExpConstants<T>::kBias)));
  const auto f = hn::IfThenElse(hn::Eq(k, hn::Zero(d)), v, hn::Sub(m, one));
  const auto tail = hn::MulAdd(k, hn::Set(d, ExpConstants<T>::kLn2Low), LogTail(d, f));
  const auto y = hn::MulAdd(k, hn::Set(d, ExpConstants<T>::kLn2High), hn::Add(f, tail));
  return hn::IfThenElse(hn::IsNaN(v), v, y);
}

// exp of one number, by the vector function: it has the same bits on all targets whose kernels do.
HWY_INLINE double ExpNumber(double x) { return hn::GetLane(Exp(D64(), hn::Set(D64(), x))); }
HWY_INLINE double LogNumber(double x) { return hn::GetLane(Log(D64(), hn::Set(D64(), x))); }
HWY_INLINE double Log1pNumber(double x) { return hn::GetLane(Log1p(D64(), hn::Set(D64(), x))); }
// base^exponent for base > 0.
HWY_INLINE double Power(double base, double exponent) { return ExpNumber(exponent * LogNumber(base)); }

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_EXP_LOG_INL_H_

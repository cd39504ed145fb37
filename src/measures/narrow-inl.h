// Measures of rows of float32 scores in one pass after the maximum, by exponentials with the digits that float32 can use.

#if defined(ISENTROPIC_MEASURES_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_NARROW_INL_H_
#undef ISENTROPIC_MEASURES_NARROW_INL_H_
#else
#define ISENTROPIC_MEASURES_NARROW_INL_H_
#endif

#include <cmath>

#include "src/rows/narrow_moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The entropy of softmax(x) by exponentials in float32. It is 0 if it is below 2^-60, or if the row has no entropy.
//
// With z = x - max it is log sum e^z - (sum z e^z) / sum e^z: two parts of one sign, so that it is as accurate as they are.
inline HWY_NOINLINE double EntropyOfScores(const float* x, size_t n) {
  const RowTag<float> d;
  using V = hn::Vec<RowTag<float>>;
  const float max = RowMax(d, x, n);
  if (!std::isfinite(max)) return 0;
  const ExpOfGamma exp(1);
  // Scores of -inf count as e^-87, which is nothing beside 2^-60.
  const V top = hn::Set(d, max), lowest = hn::Set(d, -87.0f);
  const auto relative = [&](size_t i, size_t count)
                            HWY_ATTR { return MaxKeepNaN(lowest, hn::Sub(LoadUpTo(d, x + i, count, max), top)); };
  double sums[2];
  Sums(d, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V z = relative(i, count);
    terms[0] = exp(z);
    terms[1] = hn::Mul(terms[0], z);
  });
  if (!(sums[0] >= 1)) return 0;
  double log_sum;
  if (sums[0] < 2) {
    // There is one maximum. Its own term is kept apart, so that the logarithm is accurate relative to itself.
    const double others = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const V z = relative(i, count);
      return hn::IfThenZeroElse(hn::Eq(z, hn::Zero(d)), exp(z));
    });
    log_sum = Log1pNumber(others);
  } else {
    log_sum = LogNumber(sums[0]);
  }
  const double nats = log_sum - sums[1] / sums[0];
  return nats > 0x1p-60 ? nats : 0;
}

// exp(z) for -700 <= z <= 0 within 2.5e-10 of itself: enough for a quotient of float32, in two thirds of the time.
HWY_INLINE V64 ExpOfNarrow(D64 d, V64 z) {
  using C = ExpConstants<double>;
  const hn::RebindToSigned<D64> di;
  const V64 log2e = hn::Set(d, C::kLog2e), magic = hn::Set(d, C::kMagic + C::kBias);
  const V64 t = hn::MulAdd(z, log2e, magic);
  const V64 r = hn::MulSub(z, log2e, hn::Sub(t, magic)), r2 = hn::Mul(r, r);
  const V64 q0 = hn::MulAdd(hn::Set(d, 0x1.ebfbe045705a1p-3), r, hn::Set(d, 0x1.62e4300b9dab4p-1));
  const V64 q2 = hn::MulAdd(hn::Set(d, 0x1.3b2a1bf5b7f04p-7), r, hn::Set(d, 0x1.c6b0551d56c6dp-5));
  const V64 q4 = hn::MulAdd(hn::Set(d, 0x1.443f95e689c5dp-13), r, hn::Set(d, 0x1.5dc05149ba9cap-10));
  const V64 q = hn::MulAdd(hn::MulAdd(hn::MulAdd(hn::Set(d, 0x1.c04815415f25ep-17), r2, q4), r2, q2), r2, q0);
  const V64 power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
  return hn::Mul(hn::MulAdd(q, r, hn::Set(d, 1.0)), power);
}

// KL(softmax(x), softmax(y)), if it is finite and at least 1/64: below, these exponentials would lose its digits. Otherwise the
// result is 0, and no gradient is written. dp and dq, if they are not null, get `factor` times the gradients in the scores, p
// (log(p/q) - KL) and q - p; they may be x and y. p_terms and q_terms are a workspace.
inline HWY_NOINLINE double KlOfScores(const float* x, const float* y, size_t n, double factor, float* dp, float* dq,
                                      double* p_terms, double* q_terms) {
  const D64 d;
  constexpr double kLeast = 1.0 / 64;
  const float x_max = RowMax(RowTag<float>(), x, n), y_max = RowMax(RowTag<float>(), y, n);
  if (!std::isfinite(x_max) || !std::isfinite(y_max)) return 0;
  const V64 x_top = hn::Set(d, static_cast<double>(x_max)), y_top = hn::Set(d, static_cast<double>(y_max));
  const V64 lowest = hn::Set(d, -700.0), absent = hn::Set(d, -kInfinity<double>);
  const auto relative = [&](const float* scores, size_t i, size_t count, float max, V64 top)
                            HWY_ATTR { return hn::Sub(LoadWide(d, scores + i, count, max), top); };
  auto cut = hn::Lt(lowest, lowest);  // where y is too small for its logarithm, and x is not, or y is absent, and x is not
  double sums[3];
  Sums(d, n, sums, [&](size_t i, size_t count, V64* parts) HWY_ATTR {
    const V64 u = relative(x, i, count, x_max, x_top), v = relative(y, i, count, y_max, y_top);
    const V64 u_cut = MaxKeepNaN(lowest, u), v_cut = MaxKeepNaN(lowest, v);
    const V64 least = hn::IfThenElse(hn::Eq(v, absent), absent, lowest);
    cut = hn::Or(cut, hn::And(hn::Lt(v, lowest), hn::Gt(u, least)));
    parts[0] = ExpOfNarrow(d, u_cut);
    parts[1] = ExpOfNarrow(d, v_cut);
    parts[2] = hn::Mul(parts[0], hn::Sub(u_cut, v_cut));
    if (dp != nullptr || dq != nullptr) StoreUpTo(parts[0], d, count, p_terms + i);
    if (dq != nullptr) StoreUpTo(parts[1], d, count, q_terms + i);
  });
  const double mean = sums[2] / sums[0], shift = LogNumber(sums[1]) - LogNumber(sums[0]), nats = mean + shift;
  if (!(hn::AllFalse(d, cut) && nats >= kLeast)) return 0;
  if (dp == nullptr && dq == nullptr) return nats;
  // What was cut is 0 in float.
  const V64 p_scale = hn::Set(d, factor / sums[0]), q_scale = hn::Set(d, factor / sums[1]), mean_difference = hn::Set(d, mean);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 p = hn::Mul(LoadUpTo(d, p_terms + i, count, 0.0), p_scale);
    const V64 u = MaxKeepNaN(lowest, relative(x, i, count, x_max, x_top));
    const V64 v = MaxKeepNaN(lowest, relative(y, i, count, y_max, y_top));
    if (dq != nullptr) {
      StoreNarrow(hn::MulSub(LoadUpTo(d, q_terms + i, count, 0.0), q_scale, p), d, count, dq + i);
    }
    // log(p/q) - KL. The logarithms of the two sums are in both terms, and cancel.
    if (dp != nullptr) StoreNarrow(hn::Mul(p, hn::Sub(hn::Sub(u, v), mean_difference)), d, count, dp + i);
  });
  return nats;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_NARROW_INL_H_

// sparsemax of one row.

#if defined(ENTROPIC_MAPS_SPARSEMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_SPARSEMAX_INL_H_
#undef ENTROPIC_MAPS_SPARSEMAX_INL_H_
#else
#define ENTROPIC_MAPS_SPARSEMAX_INL_H_
#endif

#include "entropic/maps.h"
#include "src/maps/scores-inl.h"
#include "src/rows/threshold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Only scores within 1 of the maximum can have mass: one sweep packs those few, the threshold is solved on them, one
// sweep writes. z - tau is taken in two steps, tau's upper part being exact in T: near the threshold the first
// difference is exact, so p has a relative error of two roundings and the row sums to 1 for any n.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRow(D d, const Sparsemax& op, const T* x, size_t n, T max, T* p, double* scratch) {
  const RelativeScores<D> relative(d, max, op.temperature);
  const size_t kept = FilterAbove(d, relative, x, n, T(-1), scratch);
  const Threshold tau = SimplexThreshold(scratch, kept);
  if (tau.low != tau.low) return FillRow(d, kNaN<T>, n, p);
  const T high = static_cast<T>(tau.high);
  const auto tau_high = hn::Set(d, high);
  const auto tau_low = hn::Set(d, static_cast<T>((tau.high - static_cast<double>(high)) + tau.low));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto z = relative(LoadUpTo(d, x + i, count, max));
    StoreUpTo(hn::Max(hn::Sub(hn::Sub(z, tau_high), tau_low), hn::Zero(d)), d, count, p + i);
  });
}

// On the support dx = (g - mean of g there) / T, elsewhere 0: the Jacobian projects onto vectors of sum 0.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void VjpRow(D d, const Sparsemax& op, const T* p, const T* g, size_t n, T* dx) {
  double sums[2];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    const auto out = hn::Eq(pi, hn::Zero(d));
    // 0 p carries a NaN row into the mean.
    terms[0] = hn::IfThenZeroElse(out, hn::MulAdd(pi, hn::Zero(d), LoadUpTo(d, g + i, count, T(0))));
    terms[1] = hn::IfThenZeroElse(out, hn::Set(d, T(1)));
  });
  const auto mean = hn::Set(d, static_cast<T>(sums[0] / sums[1]));
  const auto inverse = hn::Set(d, ClampedInverse<T>(op.temperature));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto out = hn::Eq(LoadUpTo(d, p + i, count, T(0)), hn::Zero(d));
    const auto v = hn::Mul(hn::Sub(LoadUpTo(d, g + i, count, T(0)), mean), inverse);
    StoreUpTo(hn::IfThenZeroElse(out, v), d, count, dx + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_SPARSEMAX_INL_H_

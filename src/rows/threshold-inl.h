// The threshold tau of a sparse map: the root of sum p(tau) = 1.

#if defined(ENTROPIC_ROWS_THRESHOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_THRESHOLD_INL_H_
#undef ENTROPIC_ROWS_THRESHOLD_INL_H_
#else
#define ENTROPIC_ROWS_THRESHOLD_INL_H_
#endif

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// tau = high + low, twice the precision of float64: with n entries in the support an error of tau enters the sum n times.
struct Threshold {
  double high, low;
};

// tau with sum max(z_i - tau, 0) = 1, for z <= 0 with maximum 0, filled up with -inf to a multiple of 16, from a start that is
// not above it; -1 never is.
//
// Newton's iteration on that sum, which is convex, decreasing and piecewise linear: from the start, where the sum is at
// least 1, it ascends to the root and reaches it in finitely many steps, the support shrinking (Michelot 1986). The
// residual is summed, not the scores: near the root it is small, and so is its rounding. The last step, which no longer
// changes the support, is kept apart as the low part. The order of the sums is that of 16 lanes, on every target.
template <class T>
HWY_INLINE Threshold SimplexThreshold(const T* z, size_t n, double start = -1) {
  const D64 d;
  constexpr size_t kVectors = 16 / hn::MaxLanes(D64());
  double tau = start;
  double support = static_cast<double>(n) + 1;
  for (;;) {
    const V64 threshold = hn::Set(d, tau);
    Totals sum, count;
    for (size_t i = 0; i < n; i += 16) {
      for (size_t v = 0; v < kVectors; ++v) {
        const V64 above = hn::Sub(LoadWide(d, z + i + v * hn::Lanes(d), hn::Lanes(d), T(0)), threshold);
        sum.Add(d, v, MaxKeepNaN(hn::Zero(d), above));
        count.Add(d, v, hn::IfThenElseZero(hn::Gt(above, hn::Zero(d)), hn::Set(d, 1.0)));
      }
    }
    const double left = count.Fold();
    const double step = (sum.Fold() - 1) / left;
    if (!(left < support)) return {tau, step};
    support = left;
    tau += step;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_THRESHOLD_INL_H_

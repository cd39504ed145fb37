// The threshold tau of a sparse map: the root of sum p(tau) = 1.

#if defined(ENTROPIC_ROWS_THRESHOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_THRESHOLD_INL_H_
#undef ENTROPIC_ROWS_THRESHOLD_INL_H_
#else
#define ENTROPIC_ROWS_THRESHOLD_INL_H_
#endif

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Writes the scores z = relative(x) that are above `bound` to `survivors` as float64, in order, and returns how many.
// NaN survives, so that whatever is computed from the survivors is NaN. 64 numbers `bound`
// follow the last. Needs room for n + 64.
template <class T, class Relative>
HWY_INLINE size_t FilterAbove(RowTag<T> d, const Relative& relative, const T* x, size_t n, T bound, double* survivors) {
  const auto limit = hn::Set(d, bound);
  const RowTag<double> d64;
  size_t kept = 0;
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto z = relative(LoadUpTo(d, x + i, count, -std::numeric_limits<T>::infinity()));
    const auto out = hn::Le(z, limit);
    if (hn::AllTrue(d, out)) return;
    const auto in = hn::Not(out);
    const auto packed = CompressLanes(d, z, in);
    if constexpr (sizeof(T) == 8) {
      hn::StoreU(packed, d64, survivors + kept);
    } else {
#if HWY_TARGET == HWY_SCALAR
      hn::StoreU(hn::PromoteTo(d64, packed), d64, survivors + kept);
#else
      const hn::Half<RowTag<T>> half;
      hn::StoreU(hn::PromoteTo(d64, hn::LowerHalf(half, packed)), d64, survivors + kept);
      hn::StoreU(hn::PromoteTo(d64, hn::UpperHalf(half, packed)), d64, survivors + kept + hn::Lanes(d64));
#endif
    }
    kept += hn::CountTrue(d, in);
  });
  const auto filler = hn::Set(d64, static_cast<double>(bound));
  for (size_t i = 0; i < 64; i += hn::Lanes(d64)) hn::StoreU(filler, d64, survivors + kept + i);
  return kept;
}

// The largest of 64 parts of the row: maxima[l] of the scores x[i] with i mod 64 = l, NaN left out.
template <class T>
HWY_INLINE void PartMaxima(RowTag<T> d, const T* x, size_t n, T* maxima) {
  constexpr size_t kVectors = 64 / hn::MaxLanes(RowTag<T>());
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  const size_t N = hn::Lanes(d);
  hn::Vec<RowTag<T>> max[kVectors];
  for (auto& v : max) v = hn::Set(d, kLowest);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (size_t v = 0; v < kVectors; ++v) max[v] = hn::Max(hn::LoadU(d, x + i + v * N), max[v]);
  }
  for (size_t v = 0; i + v * N < n; ++v) max[v] = hn::Max(LoadUpTo(d, x + i + v * N, n - i - v * N, kLowest), max[v]);
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(max[v], d, maxima + v * N);
}

// tau = high + low, twice the precision of float64: with n entries in the support an error of tau enters the sum n times.
struct Threshold {
  double high, low;
};

// tau with sum max(z_i - tau, 0) = 1, for z <= 0 with maximum 0, filled up with -1 to a multiple of 16, from a start that is
// not above it; -1 never is.
//
// Newton's iteration on that sum, which is convex, decreasing and piecewise linear: from the start, where the sum is at
// least 1, it ascends to the root and reaches it in finitely many steps, the support shrinking (Michelot 1986). The
// residual is summed, not the scores: near the root it is small, and so is its rounding. The last step, which no longer
// changes the support, is kept apart as the low part. The order of the sums is that of 16 lanes, on every target.
HWY_INLINE Threshold SimplexThreshold(const double* z, size_t n, double start = -1) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  constexpr size_t kVectors = 16 / hn::MaxLanes(RowTag<double>());
  double tau = start;
  double support = static_cast<double>(n) + 1;
  for (;;) {
    const V threshold = hn::Set(d, tau);
    Totals sum, count;
    for (size_t i = 0; i < n; i += 16) {
      for (size_t v = 0; v < kVectors; ++v) {
        const V above = hn::Sub(hn::LoadU(d, z + i + v * hn::Lanes(d)), threshold);
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
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_THRESHOLD_INL_H_

// Many sums along a row at once, for searches: a little less exact than those of reduce-inl.h, and faster.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/rough_sums-inl.h"
#elif defined(ISENTROPIC_ROWS_ROUGH_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_ROUGH_SUMS_INL_H_
#undef ISENTROPIC_ROWS_ROUGH_SUMS_INL_H_
#else
#define ISENTROPIC_ROWS_ROUGH_SUMS_INL_H_
#endif

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// sums[k] = a sum over the row, for many k. Because registers are few, each sum and lane has one accumulator, which takes 16
// terms before it is added in float64; Sums has four, which take four terms each. The order is that of 16 lanes, and of groups
// of a long row, on every target. add(xi, acc) adds the terms of some entries to the K accumulators, by fused operations where
// a term is a product; in lanes beyond the end xi is `fill`, and their terms are ignored. Its results are only start values, or
// are confirmed later.
template <size_t K, class D, class Add, class T = hn::TFromD<D>>
HWY_INLINE void RoughSums(D d, const T* x, size_t n, T fill, double (&sums)[K], Add&& add) {
  using V = hn::Vec<D>;
  constexpr size_t N = hn::MaxLanes(D());
  Totals totals[K];
  GroupTotals groups[K];
  const bool grouped = n > kGroup;
  if (HWY_UNLIKELY(grouped)) {
    for (GroupTotals& group : groups) group.Clear();
  }
  for (size_t base = 0; base < n; base += 256) {
    const size_t rest = HWY_MIN(n - base, size_t{256});
    for (size_t g = 0; g < 16 / N; ++g) {
      V acc[K];
      for (size_t k = 0; k < K; ++k) acc[k] = hn::Zero(d);
      size_t i = g * N;
      for (; i + N <= rest; i += 16) add(LoadUpTo(d, x + base + i, N, fill), acc);
      if (i < rest) {
        V more[K];
        for (size_t k = 0; k < K; ++k) more[k] = acc[k];
        add(LoadUpTo(d, x + base + i, rest - i, fill), more);
        const auto exists = hn::FirstN(d, rest - i);
        for (size_t k = 0; k < K; ++k) acc[k] = hn::IfThenElse(exists, more[k], acc[k]);
      }
      for (size_t k = 0; k < K; ++k) totals[k].Add(d, g, acc[k]);
    }
    if (HWY_UNLIKELY(grouped && ((base + 256) % kGroup == 0 || base + 256 >= n))) {
      for (size_t k = 0; k < K; ++k) groups[k].Add(base / kGroup, totals[k].Fold()), totals[k].Clear();
    }
  }
  for (size_t k = 0; k < K; ++k) sums[k] = grouped ? groups[k].Fold() : totals[k].Fold();
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_ROUGH_SUMS_INL_H_

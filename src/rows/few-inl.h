// Sums of few numbers, and the largest of parts of a row.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/few-inl.h"
#elif defined(ISENTROPIC_ROWS_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_FEW_INL_H_
#undef ISENTROPIC_ROWS_FEW_INL_H_
#else
#define ISENTROPIC_ROWS_FEW_INL_H_
#endif

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Two sums of kCount numbers, in registers, in D's type: lane i with lane i + kCount/2, + kCount/4 and so on.
template <size_t kCount, class D, class Terms, class N = hn::TFromD<D>>
HWY_INLINE void PowerSumsOf(D d, const Terms& terms_at, N (&sums)[2]) {
  constexpr size_t kVectors = HWY_MAX(kCount / hn::MaxLanes(D()), 1);
  hn::Vec<D> terms[kVectors][2];
  for (size_t v = 0; v < kVectors; ++v) terms_at(v * hn::Lanes(d), terms[v]);
  for (size_t half = kVectors / 2; half > 0; half /= 2) {
    for (size_t v = 0; v < half; ++v) {
      for (size_t k = 0; k < 2; ++k) terms[v][k] = hn::Add(terms[v][k], terms[v + half][k]);
    }
  }
  for (size_t k = 0; k < 2; ++k) sums[k] = FoldLanes(d, terms[0][k], [](auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
}

// The largest of 64 parts of the row: mapped[l] = map(max) for the scores x[i] with i mod 64 = l, without NaN.
template <class T, class Map>
HWY_INLINE void PartMaxima(RowTag<T> d, const T* x, size_t n, const Map& map, T* mapped) {
  constexpr size_t kVectors = 64 / hn::MaxLanes(RowTag<T>());
  constexpr T kLowest = -kInfinity<T>;
  const size_t N = hn::Lanes(d);
  hn::Vec<RowTag<T>> max[kVectors];
  for (auto& v : max) v = hn::Set(d, kLowest);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (size_t v = 0; v < kVectors; ++v) max[v] = hn::Max(hn::LoadU(d, x + i + v * N), max[v]);
  }
  for (size_t v = 0; i + v * N < n; ++v) max[v] = hn::Max(LoadUpTo(d, x + i + v * N, n - i - v * N, kLowest), max[v]);
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(map(max[v]), d, mapped + v * N);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_FEW_INL_H_

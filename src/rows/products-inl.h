// Products over a row, in an order that depends on its length alone.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/products-inl.h"
#elif defined(ISENTROPIC_ROWS_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_PRODUCTS_INL_H_
#undef ISENTROPIC_ROWS_PRODUCTS_INL_H_
#else
#define ISENTROPIC_ROWS_PRODUCTS_INL_H_
#endif

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The number of entries whose factors are multiplied in 16 lanes, which are then folded as lane i times lane i + half. The
// products of such groups are multiplied in their order.
inline constexpr size_t kProductGroup = 1024;

// Four products over a row, whose length is a multiple of 16. factors(i, f) finds the four vectors of factors at i.
template <class Factors>
HWY_INLINE void FourProducts(size_t n, double (&products)[4], Factors&& factors) {
  const D64 d;
  constexpr size_t N = hn::MaxLanes(D64()), kVectors = 16 / N;
  for (double& product : products) product = 1;
  for (size_t begin = 0; begin < n; begin += kProductGroup) {
    const size_t end = HWY_MIN(begin + kProductGroup, n);
    V64 folded[4][kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      V64 p0 = hn::Set(d, 1.0), p1 = p0, p2 = p0, p3 = p0;
      for (size_t i = begin + v * N; i < end; i += 16) {
        V64 f[4];
        factors(i, f);
        p0 = hn::Mul(p0, f[0]), p1 = hn::Mul(p1, f[1]), p2 = hn::Mul(p2, f[2]), p3 = hn::Mul(p3, f[3]);
      }
      folded[0][v] = p0, folded[1][v] = p1, folded[2][v] = p2, folded[3][v] = p3;
    }
    const auto times = [](auto a, auto b) HWY_ATTR { return hn::Mul(a, b); };
    for (size_t k = 0; k < 4; ++k) {
      for (size_t half = kVectors / 2; half > 0; half /= 2) {
        for (size_t v = 0; v < half; ++v) folded[k][v] = times(folded[k][v], folded[k][v + half]);
      }
      products[k] *= FoldLanes(d, folded[k][0], times);
    }
  }
}

// The number of entries that a walk has counted. On a device each thread counts those that it visits.
HWY_INLINE size_t TotalCount(size_t count) { return count; }

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_PRODUCTS_INL_H_

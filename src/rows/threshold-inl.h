// The threshold tau of sparsemax: the root of sum max(z - tau, 0) = 1.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/threshold-inl.h"
#elif defined(ISENTROPIC_ROWS_THRESHOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_THRESHOLD_INL_H_
#undef ISENTROPIC_ROWS_THRESHOLD_INL_H_
#else
#define ISENTROPIC_ROWS_THRESHOLD_INL_H_
#endif

#include "src/rows/reduce-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// tau = high + low, with twice the precision of float64: with n entries in the support, an error of tau enters the sum n times.
struct Threshold {
  double high, low;
};

// tau with sum max(z_i - tau, 0) = 1, for z <= 0 with maximum 0, padded with -inf to a multiple of 16, from a start that is not
// above tau; -1 never is. The order of the sums is that of 16 lanes, on every target.
template <class T>
HWY_INLINE Threshold SimplexThreshold(const T* z, size_t n, double start = -1) {
  const D64 d;
  constexpr size_t kVectors = 16 / hn::MaxLanes(D64());
  SimplexSearch<double> search;
  search.Begin(start, static_cast<double>(n) + 1);
  while (search.asks()) {
    const V64 threshold = hn::Set(d, search.tau());
    Totals sum, count;
    for (size_t i = 0; i < n; i += 16) {
      for (size_t v = 0; v < kVectors; ++v) {
        const V64 above = hn::Sub(LoadWide(d, z + i + v * hn::Lanes(d), hn::Lanes(d), T(0)), threshold);
        sum.Add(d, v, MaxKeepNaN(hn::Zero(d), above));
        count.Add(d, v, hn::IfThenElseZero(hn::Gt(above, hn::Zero(d)), hn::Set(d, 1.0)));
      }
    }
    search.Take(sum.Fold(), count.Fold());
  }
  return {search.tau(), search.step()};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_THRESHOLD_INL_H_

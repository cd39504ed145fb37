// The gradient of a map whose Jacobian is (diag(s) - s s^T / sum s)/T, as of sparsemax and entmax, for short rows side by side.

#if defined(ENTROPIC_MAPS_SHORT_VJP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_SHORT_VJP_INL_H_
#undef ENTROPIC_MAPS_SHORT_VJP_INL_H_
#else
#define ENTROPIC_MAPS_SHORT_VJP_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// dx = s (g - <s, g>/sum s)/T with s = slope(p) in [0, 1]; 0 where p is 0. It overwrites p with s.
template <class T, class Slope>
HWY_INLINE void ShortVjpBySlope(double temperature, ShortRows<T>* p, ShortRows<T>* g, T* const* dx, size_t count,
                                const Slope& slope) {
  using V = hn::Vec<RowTag<T>>;
  constexpr size_t kRows = ShortRows<T>::kRows;
  const RowTag<T> d;
  const V zero = hn::Zero(d);
  const DividedBy<RowTag<T>> divided(temperature);
  for (size_t group = 0; group * kRows < count; ++group) {
    double sums[2][16];
    p[group].SumsInto(g[group], p[group], sums, [&](V pi, V gi, V* terms) HWY_ATTR {
      const auto out = hn::Eq(pi, zero);
      // 0 p carries a NaN row into s.
      const V s = hn::MulAdd(pi, zero, slope(pi));
      terms[0] = hn::IfThenZeroElse(out, s);
      terms[1] = hn::IfThenZeroElse(out, hn::Mul(s, gi));
    });
    HWY_ALIGN T means[kRows];
    for (size_t r = 0; r < kRows; ++r) means[r] = static_cast<T>(sums[1][r] / sums[0][r]);
    const V mean = p[group].Spread(means);
    p[group].Store(dx + group * kRows, HWY_MIN(kRows, count - group * kRows), g[group], [&](V s, V gi) HWY_ATTR {
      return hn::IfThenZeroElse(hn::Eq(s, zero), divided(hn::Mul(s, hn::Sub(gi, mean))));
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_SHORT_VJP_INL_H_

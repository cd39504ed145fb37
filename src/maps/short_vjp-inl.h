// The gradient of a map whose Jacobian is (diag(s) - s s^T / sum s)/T, as of sparsemax and entmax, for short rows side by side.

#if defined(ISENTROPIC_MAPS_SHORT_VJP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SHORT_VJP_INL_H_
#undef ISENTROPIC_MAPS_SHORT_VJP_INL_H_
#else
#define ISENTROPIC_MAPS_SHORT_VJP_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
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

// dx with s = p^(1 - b) for b > 1, in which the lowest mass, the pivot, has the largest s and may outweigh all others. So s and
// g are taken relative to the pivot's: relative(p, lowest) is (lowest/p)^(b - 1). Where the relative s of a mass 1 would lose
// digits, alone(g, r, dx) finds dx of row r of group g.
template <class Relative, class Alone>
HWY_INLINE void ShortVjpByPivot(double b, double temperature, ShortRows<float>* p, ShortRows<float>* g, float* const* dx,
                                size_t count, const Relative& relative, const Alone& alone) {
  using V = hn::Vec<RowTag<float>>;
  constexpr size_t kRows = ShortRows<float>::kRows;
  const RowTag<float> d;
  const V zero = hn::Zero(d), none = hn::Set(d, -kInfinity<float>);
  const DividedBy<RowTag<float>> divided(temperature);
  const double least = ExpNumber(-60 * 0x1.62e42fefa39efp-1 / (b - 1));  // its power is 2^-60
  for (size_t group = 0; group * kRows < count; ++group) {
    const size_t in_group = HWY_MIN(kRows, count - group * kRows);
    const V lowest =
        hn::Neg(p[group].Largest([&](V pi) HWY_ATTR { return hn::IfThenElse(hn::Gt(pi, zero), hn::Neg(pi), none); }));
    HWY_ALIGN float lowest_of[ShortRows<float>::kLanes], scales[kRows], means[kRows];
    hn::Store(lowest, d, lowest_of);
    // Copied after the others are stored. (nvcc 13.0 drops a store through a pointer that is either dx or a local array.)
    float found[kRows][ShortRows<float>::kLongest];
    bool is_alone[kRows] = {};
    for (size_t r = 0; r < in_group; ++r) {
      is_alone[r] = static_cast<double>(lowest_of[r]) < least;
      if (is_alone[r]) alone(group, r, found[r]);
    }
    const V pivot =
        p[group].Largest(g[group], [&](V pi, V gi) HWY_ATTR { return hn::IfThenElse(hn::Eq(pi, lowest), gi, none); });
    double sums[2][16];
    p[group].SumsInto(g[group], p[group], sums, [&](V pi, V gi, V* terms) HWY_ATTR {
      const auto absent = hn::Eq(pi, zero);
      terms[0] = hn::IfThenZeroElse(absent, relative(pi, lowest));
      terms[1] = hn::IfThenZeroElse(absent, hn::Mul(terms[0], hn::Sub(gi, pivot)));
    });
    for (size_t r = 0; r < kRows; ++r) {
      means[r] = static_cast<float>(sums[1][r] / sums[0][r]);
      scales[r] = static_cast<float>(Power(static_cast<double>(lowest_of[r]), 1 - b));
    }
    const V mean = p[group].Spread(means), scale = p[group].Spread(scales);
    float* const* const out = dx + group * kRows;
    const size_t n = p[group].size();
    p[group].Store(out, in_group, g[group], [&](V s, V gi) HWY_ATTR {
      const V v = hn::Mul(divided(hn::Mul(s, hn::Sub(hn::Sub(gi, pivot), mean))), scale);
      return hn::IfThenZeroElse(hn::Eq(s, zero), v);
    });
    for (size_t r = 0; r < in_group; ++r) {
      for (size_t i = 0; is_alone[r] && i < n; ++i) out[r][i] = found[r][i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SHORT_VJP_INL_H_

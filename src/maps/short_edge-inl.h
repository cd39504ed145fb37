// entmax of float32 rows of at most ShortRows::kLongest entries for alpha > 2, rows side by side.
//
// Few scores have mass: of 64 normal ones 2 for alpha = 3, and 11 if they differ by a hundredth. So the 16 largest of each row
// are sorted, and the search reads only these, see EdgeOfSorted. A row with more mass than that goes alone.

#if defined(ISENTROPIC_MAPS_SHORT_EDGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SHORT_EDGE_INL_H_
#undef ISENTROPIC_MAPS_SHORT_EDGE_INL_H_
#else
#define ISENTROPIC_MAPS_SHORT_EDGE_INL_H_
#endif

#include "src/maps/edge_entmax-inl.h"
#include "src/rows/short_largest-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The entries of the groups are u = b (x - max)/T. alone(g, r) maps row r of group g.
template <class Alone>
HWY_NOINLINE HWY_FLATTEN void ShortByEdge(double b, const ShortRows<float>* u, float* const* p, size_t count,
                                          const Alone& alone) {
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  constexpr size_t kCount = LargestOfShort<>::kCount, kRows = ShortRows<float>::kRows;
  constexpr size_t kBlocks = ShortRows<float>::kLanes / kRows;
  const D d;
  const RootOf<D> root(d, b);
  // Each block of a vector has the rows of another group.
  for (size_t first = 0; first * kRows < count; first += kBlocks) {
    const size_t groups = HWY_MIN(kBlocks, (count + kRows - 1) / kRows - first);
    V largest[kCount], nan;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kBlocks > 1) {
      LargestOfShort<> of[kBlocks];
      for (size_t g = 0; g < kBlocks; ++g) of[g].Take(u[first + (g < groups ? g : 0)]);
      for (size_t i = 0; i < kCount; ++i) {
        largest[i] = hn::OddEvenBlocks(of[1][i], of[0][i]);
        if constexpr (kBlocks == 4) largest[i] = hn::ConcatUpperLower(d, hn::OddEvenBlocks(of[3][i], of[2][i]), largest[i]);
      }
      nan = hn::OddEvenBlocks(of[1].nan(), of[0].nan());
      if constexpr (kBlocks == 4) nan = hn::ConcatUpperLower(d, hn::OddEvenBlocks(of[3].nan(), of[2].nan()), nan);
    } else
#endif
    {
      LargestOfShort<> of;
      of.Take(u[first]);
      for (size_t i = 0; i < kCount; ++i) largest[i] = of[i];
      nan = of.nan();
    }
    const EdgeOfSorted<D, kCount> found(root, largest);
    HWY_ALIGN float edges[kBlocks * kRows], lifts[kBlocks * kRows], leasts[kBlocks * kRows], scales[kBlocks * kRows],
        last[kBlocks * kRows];
    hn::Store(found.edge, d, edges);
    hn::Store(found.lift, d, lifts);
    hn::Store(found.least, d, leasts);
    hn::Store(hn::Add(found.scale, nan), d, scales);
    hn::Store(largest[kCount - 1], d, last);
    for (size_t g = 0; g < groups; ++g) {
      const ShortRows<float>& rows = u[first + g];
      const size_t begin = (first + g) * kRows, in_group = HWY_MIN(kRows, count - begin);
      const V edge = rows.Spread(edges + g * kRows), lift = rows.Spread(lifts + g * kRows);
      const V least = rows.Spread(leasts + g * kRows), scale = rows.Spread(scales + g * kRows);
      rows.Store(p + begin, in_group, [&](V ui) HWY_ATTR {
        // 0 times the scale carries a NaN to all entries.
        return hn::Mul(MassAboveEdge(d, root, ui, edge, lift, least), scale);
      });
      if (rows.size() <= kCount) continue;
      for (size_t r = 0; r < in_group; ++r) {
        if (HWY_UNLIKELY(edges[g * kRows + r] == last[g * kRows + r])) alone(first + g, r);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SHORT_EDGE_INL_H_

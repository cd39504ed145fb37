// entmax of float32 rows of at most ShortRows::kLongest entries for alpha > 2, rows side by side.
//
// Few scores have mass: of 64 normal ones 2 for alpha = 3, and 11 if they differ by a hundredth. So the 16 largest of each row
// are sorted, and the search reads only these. The edge of the support is found by bisection, then p there by Newton's
// iteration, see EdgeSearch. A row with more mass than that goes alone.

#if defined(ENTROPIC_MAPS_SHORT_EDGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_SHORT_EDGE_INL_H_
#undef ENTROPIC_MAPS_SHORT_EDGE_INL_H_
#else
#define ENTROPIC_MAPS_SHORT_EDGE_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/rows/short_largest-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// For b > 1, rows in the lanes of `largest`: where the support ends and what is there.
template <template <class> class Root>
class ShortEdgeSearch {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  static constexpr size_t kCount = LargestOfShort<>::kCount;

  HWY_INLINE ShortEdgeSearch(const Root<D>& root, const V (&largest)[kCount]) {
    const D d;
    const V zero = hn::Zero(d), one = hn::Set(d, 1.0f), end = hn::Set(d, -1.0f);
    // Entries of at most -1 have no mass. In most groups they are nearly all.
    size_t reach = 1;
    while (reach < kCount && !hn::AllFalse(d, hn::Gt(largest[reach], end))) ++reach;

    // The lowest entry above which the masses sum to at most 1. Its place is found from the highest bit on.
    edge = zero;
    hn::Mask<D> bit[4];
    for (size_t step = kCount / 2, known = 0; step > 0; step /= 2, ++known) {
      V options[kCount / 2];
      size_t count = kCount / (2 * step);
      for (size_t i = 0; i < count; ++i) options[i] = largest[step + i * 2 * step];
      for (size_t k = known; k-- > 0; count /= 2) {
        for (size_t i = 0; i < count / 2; ++i) options[i] = hn::IfThenElse(bit[k], options[2 * i + 1], options[2 * i]);
      }
      const V candidate = options[0];
      V sum = zero;
      for (size_t i = 0; i < reach; ++i) sum = hn::Add(sum, root(d, hn::Max(hn::Sub(largest[i], candidate), zero)));
      // Below -1 the largest entry has more than all the mass, which rounds to all of it if b is large.
      bit[known] = hn::And(hn::Le(sum, one), hn::Gt(candidate, end));
      edge = hn::IfThenElse(bit[known], candidate, edge);
    }

    V with_mass = zero, at_edge = zero;
    for (size_t i = 0; i < reach; ++i) {
      with_mass = hn::Add(with_mass, hn::IfThenElseZero(hn::Ge(largest[i], edge), one));
      at_edge = hn::Add(at_edge, hn::IfThenElseZero(hn::Eq(largest[i], edge), one));
    }
    const size_t most = static_cast<size_t>(MaxLane(d, with_mass));
    // The lowest mass is at most the mean.
    least = hn::Div(one, with_mass);
    V sum;
    for (int evaluations = 0;; ++evaluations) {
      lift = root.Inverse(d, least);
      V slope = zero;
      sum = hn::Mul(at_edge, least);
      for (size_t i = 0; i < most; ++i) {
        const auto above = hn::Gt(largest[i], edge);
        const V q = hn::Add(hn::Sub(largest[i], edge), lift), mass = hn::IfThenElseZero(above, hn::Max(root(d, q), least));
        sum = hn::Add(sum, mass);
        slope = hn::Add(slope, hn::IfThenElseZero(above, hn::Div(mass, q)));
      }
      if (evaluations == 20) break;
      const V step = hn::Div(hn::Sub(sum, one), hn::MulAdd(slope, hn::Div(lift, least), at_edge));
      const auto far = hn::And(hn::Gt(step, hn::Set(d, 0x1p-22f)), hn::Gt(least, zero));
      if (hn::AllFalse(d, far)) break;
      least = hn::IfThenElse(far, hn::Max(hn::Sub(least, step), zero), least);
    }
    scale = hn::Div(one, sum);
  }

  // p = scale least at the edge, scale max(root(u - edge + lift), least) above it.
  V edge, lift, least, scale;
};

// Root(d, b)(d, q) is q^(1/b). The entries of the groups are u = b (x - max)/T. alone(g, r) maps row r of group g.
template <template <class> class Root, class Alone>
HWY_NOINLINE HWY_FLATTEN void ShortByEdge(double b, const ShortRows<float>* u, float* const* p, size_t count,
                                          const Alone& alone) {
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  constexpr size_t kCount = LargestOfShort<>::kCount, kRows = ShortRows<float>::kRows;
  constexpr size_t kBlocks = ShortRows<float>::kLanes / kRows;
  const D d;
  const Root<D> root(d, b);
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
    const ShortEdgeSearch<Root> found(root, largest);
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
        const auto in = hn::Ge(ui, edge);
        if (Root<D>::kIsSlow && hn::AllFalse(d, in)) return hn::Mul(hn::Zero(d), scale);
        // 0 times the scale carries a NaN to all entries.
        // The root of the lift is not quite `least`, and if the lift is subnormal far from it.
        const V above = hn::Max(root(d, hn::Add(hn::Sub(ui, edge), lift)), least);
        const V mass = hn::IfThenElseZero(in, hn::IfThenElse(hn::Eq(ui, edge), least, above));
        return hn::Mul(mass, scale);
      });
      if (rows.size() <= kCount) continue;
      for (size_t r = 0; r < in_group; ++r) {
        if (HWY_UNLIKELY(edges[g * kRows + r] == last[g * kRows + r])) alone(first + g, r);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_SHORT_EDGE_INL_H_

// entmax of rows for alpha > 2, b = alpha - 1. There (c + u)^(1/b), u = b (x - max)/T, is infinitely steep at the edge of the
// support: solved in p at the edge.
//
// Few scores have mass: of 1,024 normal ones 2 for alpha = 3, and 14 if they differ by a hundredth. In float32 at most 32 that
// may have some are sorted, rows side by side, and their masses put in their places in a row of zeros.

#if defined(ISENTROPIC_MAPS_EDGE_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_EDGE_ENTMAX_INL_H_
#undef ISENTROPIC_MAPS_EDGE_ENTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_EDGE_ENTMAX_INL_H_
#endif

#include "src/maps/threshold_start-inl.h"
#include "src/rows/short_largest-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// For b > 1: the root as p at the edge of the support. Entries equal to `edge`, the lowest that have mass, get `p`; those
// above it (u - edge + p^b)^(1/b).
struct Edge {
  double edge, p;
};

// Where the sum of (c + u)^(1/b) is certainly at most 1, and where certainly more.
struct Bracket {
  double low, high;
};

// A narrow bracket, by sums in T. c/sum^b never falls, since as c rises more terms join: from any c it leads below the root.
// Between the two, lines through sum^b, which is nearly straight, as in regula falsi; an end that stays twice counts half
// (Illinois).
template <class T>
HWY_NOINLINE HWY_FLATTEN Bracket EdgeBracket(double b, const T* u, size_t n) {
  const RowTag<T> d;
  // Above what the sum of T may be off: q = c + u is rounded once, its root by 90 eps at most.
  constexpr double kUnsure = sizeof(T) == 4 ? 0x1p-16 : 0x1p-40;
  const double narrow = 0.25 / static_cast<double>(n);
  Bracket bracket = {0, 1};
  auto lowest = hn::Zero(d);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR { lowest = hn::Min(LoadUpTo(d, u + i, count, T(0)), lowest); });
  double c = -static_cast<double>(MinLane(d, lowest)), below = -1, above = 0;
  bool was_below = true, first = true;
  if (!(c > 0 && c <= 1)) return bracket;
  const RootOf<RowTag<T>> root(d, b);
  for (int evaluations = 0; evaluations < 12; ++evaluations) {
    const T rounded = static_cast<T>(c);
    c = static_cast<double>(rounded);
    const auto at = hn::Set(d, rounded);
    const double sum = Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return root(d, hn::Add(hn::LoadU(d, u + i), at)); });
    if (!(std::abs(sum - 1) > kUnsure)) return bracket;
    const double norm = Power(sum, b);
    const bool is_below = sum < 1;
    if (is_below) {
      bracket.low = c, below = norm - 1;
      if (first) return bracket;  // all have mass
      if (was_below) above /= 2;
    } else {
      bracket.high = c, above = norm - 1;
      const double least = c / norm * (1 - 0x1p-12);
      if (first || least > bracket.low) {
        bracket.low = c = least;
        first = was_below = false;
        continue;
      }
      if (!was_below) below /= 2;
    }
    was_below = is_below;
    const double width = bracket.high - bracket.low;
    if (width <= narrow * bracket.high) return bracket;
    c = bracket.low + width * HWY_MAX(0x1p-5, HWY_MIN(below / (below - above), 1 - 0x1p-5));
  }
  return bracket;
}

// sum_i (u_i - edge + p^b)^(1/b) = 1, for the u that may have mass.
template <class T>
HWY_NOINLINE HWY_FLATTEN Edge EdgeThreshold(double b, Bracket bracket, const T* u, size_t n) {
  using Stage = EdgeSearch::Stage;
  const D64 d;
  const RootOf<D64> root(d, b);
  EdgeSearch search;
  search.Begin(b);
  search.Between(bracket.low, bracket.high);
  while (search.stage() != Stage::kMet) {
    if (search.stage() == Stage::kCandidates) {
      const V64 from = hn::Set(d, search.from()), to = hn::Set(d, search.to());
      double sums[2];
      Sums(d, n, sums, [&](size_t i, size_t, V64* terms) HWY_ATTR {
        const V64 ui = LoadAs(d, u + i);
        const auto inside = hn::And(hn::Gt(ui, from), hn::Lt(ui, to));
        terms[0] = hn::IfThenElseZero(inside, ui);
        terms[1] = hn::IfThenElseZero(inside, hn::Set(d, 1.0));
      });
      search.Candidates(sums[0], sums[1]);
    } else if (search.stage() == Stage::kSum) {
      const V64 at = hn::Set(d, search.c());
      search.Sum(Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return root(d, hn::Add(LoadAs(d, u + i), at)); }));
    } else if (search.stage() == Stage::kLowest) {
      const V64 bound = hn::Set(d, search.from());
      V64 lowest = hn::Zero(d);
      ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
        const V64 ui = LoadWide(d, u + i, count, T(0));
        lowest = hn::Min(lowest, hn::IfThenElseZero(hn::Ge(ui, bound), ui));
      });
      search.Lowest(MinLane(d, lowest));
      // The lowest of all masses is at most their mean, and c at most the bracket's end.
      const bool all = bracket.high == 1 && bracket.low > 0;
      const double most = all ? 1 / static_cast<double>(n) : Power(bracket.high + search.edge(), 1 / b);
      if (most > 0 && most < 1) search.StartAt(most);
    } else {
      const V64 at_edge = hn::Set(d, search.edge()), lift = hn::Set(d, search.lift());
      double sums[3];
      Sums(d, n, sums, [&](size_t i, size_t, V64* terms) HWY_ATTR {
        const V64 ui = LoadAs(d, u + i);
        const auto above = hn::Not(hn::Le(ui, at_edge));  // or NaN
        const V64 q = hn::Add(hn::Sub(ui, at_edge), lift);
        terms[0] = hn::IfThenElseZero(above, root(d, q));
        terms[1] = hn::IfThenElseZero(above, hn::Div(terms[0], q));
        terms[2] = hn::IfThenElseZero(hn::Eq(ui, at_edge), hn::Set(d, 1.0));
      });
      search.Masses(sums[0], sums[1], sums[2]);
    }
  }
  return {search.edge(), search.p()};
}

// For b > 1, rows in the lanes of `largest`, sorted: where the support ends and what is there. The edge of the support is found
// by bisection, then p there by Newton's iteration, see EdgeSearch. A row gets the same whatever the others are, and for every
// kCount that holds its support.
template <class D, size_t kCount>
class EdgeOfSorted {
 public:
  using V = hn::Vec<D>;

  HWY_INLINE EdgeOfSorted(const RootOf<D>& root, const V (&largest)[kCount]) {
    const D d;
    const V zero = hn::Zero(d), one = hn::Set(d, 1.0f), end = hn::Set(d, -1.0f);
    // Entries of at most -1 have no mass. In most groups they are nearly all.
    size_t reach = 1;
    while (reach < kCount && !hn::AllFalse(d, hn::Gt(largest[reach], end))) ++reach;

    // The lowest entry above which the masses sum to at most 1. Its place is found from the highest bit on.
    edge = zero;
    hn::Mask<D> bit[6];
    for (size_t step = kCount / 2, known = 0; step > 0; step /= 2, ++known) {
      V options[kCount / 2];
      size_t count = kCount / (2 * step);
      for (size_t i = 0; i < count; ++i) options[i] = largest[step + i * 2 * step];
      for (size_t k = known; k-- > 0; count /= 2) {
        for (size_t i = 0; i < count / 2; ++i) options[i] = hn::IfThenElse(bit[k], options[2 * i + 1], options[2 * i]);
      }
      const V candidate = options[0];
      V above = zero;
      for (size_t i = 0; i < reach; ++i) above = hn::Add(above, root(d, hn::Max(hn::Sub(largest[i], candidate), zero)));
      // Below -1 the largest entry has more than all the mass, which rounds to all of it if b is large.
      bit[known] = hn::And(hn::Le(above, one), hn::Gt(candidate, end));
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
    auto far = hn::Eq(with_mass, with_mass);
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
      far = hn::And(far, hn::Gt(least, zero));
      if (evaluations == 20 || hn::AllFalse(d, far)) break;
      const V step = hn::Div(hn::Sub(sum, one), hn::MulAdd(slope, hn::Div(lift, least), at_edge));
      // A small step is the last, and is taken: it is the error of each of the equal masses at the edge.
      least = hn::IfThenElse(far, hn::Max(hn::Sub(least, step), zero), least);
      far = hn::And(far, hn::Gt(hn::Abs(step), hn::Set(d, 0x1p-22f)));
    }
    scale = hn::Div(one, sum);
  }

  // p = least / sum at the edge, max(root(u - edge + lift), least) / sum above it; scale is 1 / sum.
  V edge, lift, least, sum, scale;
};

// The mass of u, before it is divided by the sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V MassAboveEdge(D d, const RootOf<D>& root, V u, V edge, V lift, V least) {
  const auto in = hn::Ge(u, edge);
  if (hn::AllFalse(d, in)) return hn::Zero(d);
  // The root of the lift is not quite `least`, and if the lift is subnormal far from it.
  const V above = hn::Max(root(d, hn::Add(hn::Sub(u, edge), lift)), least);
  return hn::IfThenElseZero(in, hn::IfThenElse(hn::Eq(u, edge), least, above));
}

// A lower bound of -c for b > 1, at least -1: LeastThreshold's for b = 1, and for b >= 2, if many may still have mass, one by
// square roots. No term q^(1/b), q <= 1, is less than with a smaller b.
template <class D, class Relative, class T = hn::TFromD<D>>
HWY_INLINE T LeastThresholdOfEdge(D d, double b, const Relative& relative, const T* x, size_t n) {
  constexpr double kFew = 20;
  const T least = LeastThreshold(d, 1, relative, x, n);
  if (b < 2 || n < 256) return least;
  HWY_ALIGN T u[64];
  PartMaxima(d, x, n, relative, u);
  // The sum of square roots at c, and how many there are.
  T sums[2];
  const auto sum_at = [&](T c) HWY_ATTR {
    const auto at = hn::Set(d, c);
    PowerSumsOf<64>(
        d,
        [&](size_t i, hn::Vec<D>* terms) HWY_ATTR {
          const auto q = hn::Add(hn::LoadU(d, u + i), at);
          terms[0] = hn::Sqrt(hn::Max(hn::Zero(d), q));
          terms[1] = hn::IfThenElseZero(hn::Gt(q, hn::Zero(d)), hn::Set(d, T(1)));
        },
        sums);
  };
  T low = 0, high = -least;
  sum_at(high);
  if (!(sums[1] > kFew)) return least;
  for (int i = 0; i < 5; ++i) {
    const T c = (low + high) / 2;
    sum_at(c);
    (sums[0] > T(1 + 0x1p-12) ? high : low) = c;  // by more than the rounding error of the sum
  }
  return -high;
}

// For rows of at most kCount survivors: u becomes the mass, and their sum, 1 but for rounding, is left in `sums`. Four rows are
// sorted side by side.
template <size_t kCount>
HWY_NOINLINE HWY_FLATTEN void MassesByEdge(double b, const Filtered<float>* filtered, size_t rows, float* sums) {
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  constexpr size_t kLanes = hn::MaxLanes(D()), kRows = HWY_MIN(kLanes, kSearches<float>);
  const D d;
  const size_t N = hn::Lanes(d);
  const RootOf<D> root(d, b);
  for (size_t first = 0; first < rows; first += kRows) {
    const size_t count = HWY_MIN(kRows, rows - first);
    HWY_ALIGN float lanes[kCount * kLanes];
    // Lanes without a row have one score.
    for (size_t i = 0; i < kCount; ++i) hn::Store(hn::Set(d, i == 0 ? 0 : -kInfinity<float>), d, lanes + i * N);
    for (size_t r = 0; r < count; ++r) {
      for (size_t i = 0; i < kCount; ++i) lanes[i * N + r] = filtered[first + r].survivors.z[i];
    }
    V largest[kCount], nan = hn::Zero(d);
    for (size_t i = 0; i < kCount; ++i) {
      largest[i] = hn::Load(d, lanes + i * N);
      nan = hn::IfThenElse(hn::IsNaN(largest[i]), largest[i], nan);
    }
    SortLanes<kCount>(largest);
    const EdgeOfSorted<D, kCount> found(root, largest);
    HWY_ALIGN float edges[kLanes], lifts[kLanes], leasts[kLanes], sum[kLanes];
    hn::Store(found.edge, d, edges);
    hn::Store(found.lift, d, lifts);
    hn::Store(found.least, d, leasts);
    hn::Store(hn::Add(found.sum, nan), d, sum);
    AwaitReaders();
    for (size_t r = 0; r < count; ++r) {
      float* const u = filtered[first + r].survivors.z;
      const V edge = hn::Set(d, edges[r]), lift = hn::Set(d, lifts[r]), least = hn::Set(d, leasts[r]);
      ForEachVector(d, filtered[first + r].kept, [&](size_t i, size_t in_vector) HWY_ATTR {
        StoreUpTo(MassAboveEdge(d, root, LoadUpTo(d, u + i, in_vector, -kInfinity<float>), edge, lift, least), d, in_vector,
                  u + i);
      });
      sums[first + r] = sum[r];
    }
  }
}

// The sum is taken once more: p^b may be so small a number that it has lost digits.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void WriteAboveEdge(D d, double b, const RelativeScores<D>& relative, Edge edge, const T* x, size_t n, T max, T* p) {
  if (edge.p != edge.p) return FillRow(d, kNaN<T>, n, p);
  // The edge is one of the u, exact in T.
  const auto at_edge = hn::Set(d, static_cast<T>(edge.edge)), p_edge = hn::Set(d, static_cast<T>(edge.p));
  const auto lift = hn::Set(d, static_cast<T>(edge.p > 0 ? Power(edge.p, b) : 0));
  const RootOf<D> root(d, b);
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto u = relative(LoadUpTo(d, x + i, count, max));
    const auto out = hn::Lt(u, at_edge);
    auto v = hn::Zero(d);
    if (!hn::AllTrue(d, out)) {
      const auto above = hn::Max(root(d, hn::Add(hn::Sub(u, at_edge), lift)), p_edge);
      v = hn::IfThenZeroElse(out, hn::IfThenElse(hn::Eq(u, at_edge), p_edge, above));
    }
    StoreUpTo(v, d, count, p + i);
    return v;
  });
  ScaleRow(d, static_cast<T>(1 / sum), n, p);
}

template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE HWY_FLATTEN void MapRowByEdge(D d, double b, double temperature, const Filtered<T>& filtered, const T* x, size_t n,
                                           T max, T* p) {
  const RelativeScores<D> relative(hn::Set(d, max), temperature / b);
  const Survivors<T>& survivors = filtered.survivors;
  size_t kept = filtered.kept;
  Bracket bracket = {0, 1};
  // If few are kept, the search takes less time without a bracket.
  if (kept > 24) {
    bracket = EdgeBracket(b, survivors.z, kept);
    if (bracket.high < 1) kept = FilterAbove<false>(d, relative, x, n, static_cast<T>(-bracket.high), survivors);
  }
  WriteAboveEdge(d, b, relative, EdgeThreshold(b, bracket, survivors.z, kept), x, n, max, p);
}

// alpha > 2.
template <class T>
HWY_NOINLINE HWY_FLATTEN void MapRowsByEdge(double b, double temperature, const T* const* x, size_t n, const T* max,
                                            T* const* p, size_t rows, Workspace workspace) {
  const RowTag<T> d;
  Filtered<T> filtered[kSearches<T>] = {};
  FilterRows<sizeof(T) == 4>(b, temperature, x, n, max, rows, workspace.memory, filtered,
                             [&](const auto& relative, const T* row)
                                 HWY_ATTR { return LeastThresholdOfEdge(d, b, relative, row, n); });
  if constexpr (sizeof(T) == 4) {
    float sums[kSearches<T>];
    if (MostKept(filtered, rows) <= 32) {
      MassesByEdge<32>(b, filtered, rows, sums);
      for (size_t r = 0; r < rows; ++r) WriteFew(filtered[r], sums[r], n, p[r], workspace.stream);
      return;
    }
    for (size_t r = 0; r < rows; ++r) {
      if (filtered[r].kept <= 32) {
        MassesByEdge<32>(b, filtered + r, 1, sums);
        WriteFew(filtered[r], sums[0], n, p[r], workspace.stream);
      } else {
        MapRowByEdge(d, b, temperature, filtered[r], x[r], n, max[r], p[r]);
      }
    }
  } else {
    for (size_t r = 0; r < rows; ++r) MapRowByEdge(d, b, temperature, filtered[r], x[r], n, max[r], p[r]);
  }
}

// Rows of at most ShortRows::kLongest, side by side: the 16 largest of each are sorted, and the search reads only these. Of 64
// normal scores 2 have mass for alpha = 3, and 11 if they differ by a hundredth. A row with more mass goes alone.
HWY_NOINLINE HWY_FLATTEN inline void ShortByEdge(double b, double temperature, const hn::Vec<RowTag<float>>* max,
                                                 ShortRows<float>* u, float* const* p, size_t count) {
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  constexpr size_t kCount = LargestOfShort<>::kCount, kRows = ShortRows<float>::kRows;
  constexpr size_t kBlocks = ShortRows<float>::kLanes / kRows;
  const D d;
  const RootOf<D> root(d, b);
  for (size_t g = 0; g * kRows < count; ++g) {
    const RelativeScores<D> relative(max[g], temperature / b);
    u[g].Transform([&](V x) HWY_ATTR { return relative(x); });
  }
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
        if (HWY_LIKELY(edges[g * kRows + r] != last[g * kRows + r])) continue;
        HWY_ALIGN float row[ShortRows<float>::kLongest];
        HWY_ALIGN uint8_t memory[16 * ShortRows<float>::kLongest + 1024];
        for (size_t i = 0; i < rows.size(); ++i) row[i] = rows.At(r, i);
        const float *const x = row, top = 0;
        // The scores u at the temperature b are u again.
        MapRowsByEdge(b, b, &x, rows.size(), &top, p + begin + r, 1, {Arena(memory, sizeof(memory)), false});
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_EDGE_ENTMAX_INL_H_

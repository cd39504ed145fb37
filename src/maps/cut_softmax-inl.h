// Softmax after truncation: top_k_softmax, top_p_softmax and min_p_softmax of one row.

#if defined(ISENTROPIC_MAPS_CUT_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#undef ISENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/softmax-inl.h"
#include "src/rows/candidates-inl.h"
#include "src/rows/filter-inl.h"
#include "src/rows/mass_cut-inl.h"
#include "src/rows/short_keys-inl.h"
#include "src/rows/short_largest-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// On the support the gradient is softmax's.
template <class Op, class T>
struct SoftmaxGradient {
  static HWY_INLINE void VjpRow(const Op& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Op>* /*slopes*/,
                                Workspace workspace) {
    KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
  }
  static HWY_INLINE bool VjpFour(const Op& op, const T* const (&p)[4], const T* const (&g)[4], size_t n, T* const (&dx)[4]) {
    return KernelsOf<Softmax, T>::VjpFour({.temperature = op.temperature}, p, g, n, dx);
  }
};

template <class T>
struct KernelsOf<TopKSoftmax, T> : SoftmaxGradient<TopKSoftmax, T> {
  static constexpr ScoreParams<TopKSoftmax> kScores = {.divisor = &TopKSoftmax::temperature};
  static void MapRow(const TopKSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static size_t MostInfinite(const TopKSoftmax& op, size_t infinite);
  static size_t Memory(size_t n) {
    return Arena::room<T>(LargestKScratch(n)) + (hn::MaxLanes(RowTag<T>()) > 1 ? room_of<Survivors<T>>(n) : 0);
  }
  struct Short {
    static constexpr size_t kGroups = hn::MaxLanes(RowTag<T>()) > 1 ? 4 : 1;
    static HWY_INLINE bool Takes(const TopKSoftmax& /*op*/) { return true; }
    static void Map(const TopKSoftmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
    static constexpr NotOffered Vjp = {};
  };
  using Several = NotOffered;
};

template <class T>
struct KernelsOf<TopPSoftmax, T> : SoftmaxGradient<TopPSoftmax, T> {
  static constexpr ScoreParams<TopPSoftmax> kScores = {.divisor = &TopPSoftmax::temperature};
  static void MapRow(const TopPSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static size_t MostInfinite(const TopPSoftmax& op, size_t infinite);
  static size_t Memory(size_t n) { return Arena::room<T>(MassCutScratch(n)) + Arena::room<T>(n); }
  struct Short {
    static constexpr size_t kGroups = hn::MaxLanes(RowTag<T>()) > 1 ? 4 : 1;
    static HWY_INLINE bool Takes(const TopPSoftmax& op) { return op.p < 1; }
    static void Map(const TopPSoftmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
    static constexpr NotOffered Vjp = {};
  };
  using Several = NotOffered;
};

template <class T>
struct KernelsOf<MinPSoftmax, T> : SoftmaxGradient<MinPSoftmax, T> {
  static constexpr ScoreParams<MinPSoftmax> kScores = {.divisor = &MinPSoftmax::temperature};
  static void MapRow(const MinPSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static constexpr NotOffered MostInfinite = {}, Memory = {};
  using Short = NotOffered;
  using Several = NotOffered;
};

// Softmax over the scores that `cut` keeps. If these are few, a vector without any costs a comparison instead of an exp, and is
// written once. If every other vector has some, a branch that cannot be predicted costs more than an exp. A vector with a NaN
// does not compare as below, so it is processed, and the NaN makes the sum NaN.
template <bool kFew, class D, class T = hn::TFromD<D>>
HWY_INLINE void SoftmaxOfKept(D d, double temperature, Cut<T> cut, const T* x, size_t n, T max, T* p) {
  const ExpScaled<D> exp(d, temperature);
  const auto shift = hn::Set(d, max), least = hn::Set(d, cut.least);
  const bool ties = cut.end < n;
  const auto term = [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    auto e = hn::Zero(d);
    if (!kFew || !hn::AllTrue(d, hn::Lt(xi, least))) {
      const auto kept = ties ? hn::Or(cut.Keeps(d, xi, i), hn::IsNaN(xi)) : hn::Not(hn::Lt(xi, least));
      e = hn::IfThenElseZero(kept, exp(d, hn::Sub(xi, shift)));
    }
    StoreUpTo(e, d, count, p + i);
    return e;
  };
  const double sum = kFew ? QuickSum(d, n, term) : Sum(d, n, term);
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  const auto inverse = hn::Set(d, static_cast<T>(1 / sum));
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto e = LoadUpTo(d, p + i, count, T(0));
    if (!kFew || !hn::AllTrue(d, hn::Eq(e, hn::Zero(d)))) StoreUpTo(hn::Mul(e, inverse), d, count, p + i);
  });
}

// p is the softmax of the m scores in `kept` at their places, and 0 elsewhere. The bits are those of SoftmaxOfKept: the sum is
// that of the row, whose other terms are 0.
template <class T>
HWY_NOINLINE void WriteFew(double temperature, const Survivors<T>& kept, size_t m, size_t n, T max, T* p, bool stream) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, temperature);
  const auto shift = hn::Set(d, max);
  for (size_t j = 0; j < m; j += hn::Lanes(d)) hn::StoreU(exp(d, hn::Sub(hn::LoadU(d, kept.z + j), shift)), d, kept.z + j);
  double sum;
  if (m < n / 64) {
    QuickWriteRow(d, stream, n, p, [&](size_t /*i*/, size_t /*count*/) HWY_ATTR { return hn::Zero(d); });
    sum = SumOfFew(d, kept.z, kept.places, m, n);
  } else {
    FillRow(d, T(0), n, p);
    for (size_t j = 0; j < m; ++j) p[kept.places[j]] = kept.z[j];
    sum = SumRow(d, p, n);
  }
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  const T inverse = static_cast<T>(1 / sum);
  for (size_t j = 0; j < m; ++j) p[kept.places[j]] = kept.z[j] * inverse;
}

// The cut in the scores x that agrees with the cut `found` in their terms e. Of the scores with the term `found.least` the
// largest are kept, of equal ones those with the lower index. It needs MassCutScratch(n) of scratch.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE Cut<T> LargestOfEqualMass(D d, const T* x, const T* e, size_t n, MassCut<T> found, T* scratch) {
  const auto least = hn::Set(d, found.least);
  const size_t m = PackChosen(d, x, n, scratch, [&](size_t i, size_t count, hn::Vec<D>) HWY_ATTR {
    return hn::Eq(LoadUpTo(d, e + i, count, T(0)), least);
  });
  T low = scratch[0], high = scratch[0];
  RowRange(d, scratch, m, low, high);
  const T kth = KthLargest(d, scratch, m, found.kept, low, high);
  const size_t above = kth < high ? CountAtLeast(d, scratch, m, std::nextafter(kth, high)) : 0;
  return {kth, EndOfFirst(d, x, n, kth, found.kept - above)};
}

// The terms of softmax are kept in e, which may be p unless that is streamed, and the cut is found among them. Terms of
// different scores may be equal: if only some of those at the cut are kept, the scores decide. The rest of the work is one
// product.
template <class T>
HWY_NOINLINE HWY_FLATTEN void TopPRow(const TopPSoftmax& op, const T* x, size_t n, T max, T* p, T* e, T* scratch, bool stream,
                                      const T* next) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  const auto shift = hn::Set(d, max);
  const double total = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    if (next != nullptr) FetchLine(next, i);
    const auto ei = exp(d, hn::Sub(LoadUpTo(d, x + i, count, max), shift));
    StoreUpTo(ei, d, count, e + i);
    return ei;
  });
  if (total != total) return FillRow(d, kNaN<T>, n, p);

  const MassCut<T> found = CutRowByMass(d, e, n, total, op.p, scratch);
  const double sum = found.above + static_cast<double>(found.kept) * static_cast<double>(found.least);
  const auto inverse = hn::Set(d, static_cast<T>(1 / sum));
  if (found.kept == found.equal) {
    const auto least = hn::Set(d, found.least);
    QuickWriteRow(d, stream, n, p, [&](size_t i, size_t count) HWY_ATTR {
      const auto ei = LoadUpTo(d, e + i, count, T(0));
      return hn::IfThenElseZero(hn::Ge(ei, least), hn::Mul(ei, inverse));
    });
  } else {
    const Cut<T> cut = LargestOfEqualMass(d, x, e, n, found, scratch);
    QuickWriteRow(d, stream, n, p, [&](size_t i, size_t count) HWY_ATTR {
      const auto kept = cut.Keeps(d, LoadUpTo(d, x + i, count, -kInfinity<T>), i);
      return hn::IfThenElseZero(kept, hn::Mul(LoadUpTo(d, e + i, count, T(0)), inverse));
    });
  }
}

// Short rows side by side: each has its own interval of thresholds and its own step, and all continue until the last is done.
//
// A threshold is good as soon as it keeps the right number of scores; any number between two scores will do. So a few halvings
// are enough, while the exact kth score would take all bits. If scores tie at the cut, no threshold is good; such rows go to
// the kernels of one row. Which rows these are depends only on the row itself.
constexpr int kShortSteps = 24;

// Processes rows for which the search found no cut, one by one: map(x, p) writes p of the scores x.
template <class T, class F>
HWY_INLINE void MapLeftRows(const ShortRows<T>& scores, hn::Mask<RowTag<T>> done, T* const* p, size_t count, F&& map) {
  const RowTag<T> d;
  if (HWY_LIKELY(hn::AllTrue(d, done))) return;
  HWY_ALIGN T is_done[ShortRows<T>::kLanes], x[ShortRows<T>::kLongest];
  hn::Store(hn::IfThenElseZero(done, hn::Set(d, T(1))), d, is_done);
  for (size_t r = 0; r < count; ++r) {
    if (is_done[r] != T(0)) continue;
    for (size_t i = 0; i < scores.size(); ++i) x[i] = scores.At(r, i);
    map(x, p[r]);
  }
}

// A short row by itself.
template <class T>
HWY_NOINLINE void TopKRow(const TopKSoftmax& op, const T* x, size_t n, size_t k, T* p) {
  const RowTag<T> d;
  T scratch[LargestKScratch(ShortRows<T>::kLongest) + 1] = {};
  SoftmaxOfKept<false>(d, op.temperature, LargestK(d, x, n, k, scratch), x, n, RowMax(d, x, n), p);
}

// The interval is between two scores and halved by value. Every other step splits it where the count would be right if its
// scores were evenly spread.
template <class T>
HWY_INLINE void TopKGroup(const TopKSoftmax& op, const hn::Vec<RowTag<T>>* group_max, ShortRows<T>* group, T* const* p,
                          size_t count) {
  const RowTag<T> d;
  using V = hn::Vec<RowTag<T>>;
  ShortRows<T>& rows = *group;
  const size_t n = rows.size(), k = static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(n)));
  const V max = *group_max, wanted = hn::Set(d, static_cast<T>(k)), one = hn::Set(d, T(1)), half = hn::Set(d, T(0.5));
  const V absent = hn::Set(d, -kInfinity<T>);
  // Fewer finite scores than k: all of them.
  const V lowest = hn::Neg(rows.Largest([&](V x) HWY_ATTR { return hn::Neg(hn::IfThenElse(hn::Eq(x, absent), max, x)); }));
  V low = lowest, high = max, at = max, cut = lowest, count_low = hn::Set(d, static_cast<T>(n)), count_high = one;
  auto done = hn::Ne(max, max);
  for (int step = 0; step < kShortSteps && !hn::AllTrue(d, done); ++step) {
    V sums[1];
    rows.FusedSums(sums, [&](V x, V(&acc)[1]) HWY_ATTR { acc[0] = hn::Add(acc[0], hn::IfThenElseZero(hn::Ge(x, at), one)); });
    const V reached = sums[0];
    auto right = hn::Eq(reached, wanted);
    if (step == 1) right = hn::Or(right, hn::Lt(reached, wanted));
    const auto now = hn::AndNot(done, right);
    cut = hn::IfThenElse(now, at, cut);
    done = hn::Or(done, now);
    const auto enough = hn::Ge(reached, wanted);
    if (step == 0) {
      count_high = reached;
      at = lowest;
      continue;
    }
    low = hn::IfThenElse(enough, at, low), count_low = hn::IfThenElse(enough, reached, count_low);
    high = hn::IfThenElse(enough, high, at), count_high = hn::IfThenElse(enough, count_high, reached);
    const V middle = hn::MulAdd(half, low, hn::Mul(half, high));
    if (step % 2 == 0) {
      at = middle;
    } else {
      const V share = hn::Div(hn::Sub(count_low, hn::Add(wanted, half)), hn::Sub(count_low, count_high));
      at = hn::MulAdd(share, high, hn::NegMulAdd(share, low, low));
      at = hn::IfThenElse(hn::And(hn::Gt(at, low), hn::Lt(at, high)), at, middle);
    }
  }
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  ShortRows<T> terms(n);
  double totals[1][16];
  rows.SumsInto(terms, totals, [&](V x, V(&term)[1]) HWY_ATTR {
    term[0] = hn::IfThenElseZero(hn::Or(hn::Ge(x, cut), hn::IsNaN(x)), exp(d, hn::Sub(x, max)));
  });
  StoreQuotients(terms, totals[0], p, count);
  MapLeftRows(rows, done, p, count, [&](const T* x, T* out) HWY_ATTR { TopKRow(op, x, n, k, out); });
}

// The softmax of a group without the scores that `drops`. Rows that are not `done` go one by one.
template <class T, class Drops>
HWY_INLINE void SoftmaxOfGroup(const TopKSoftmax& op, ShortRows<T>& group, hn::Vec<RowTag<T>> max, hn::Mask<RowTag<T>> done,
                               const Drops& drops, T* const* p, size_t count) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  ShortRows<T> scores;
  const bool left = HWY_UNLIKELY(!hn::AllTrue(d, done));
  if (left) scores = group;
  double sums[ShortRows<T>::kRows];
  // A NaN is not dropped, and makes the sum NaN.
  group.TransformAndSum(sums,
                        [&](hn::Vec<RowTag<T>> x) HWY_ATTR { return hn::IfThenZeroElse(drops(x), exp(d, hn::Sub(x, max))); });
  StoreQuotients(group, sums, p, count);
  if (!left) return;
  const size_t n = scores.size(), k = static_cast<size_t>(op.k);
  MapLeftRows(scores, done, p, count, [&](const T* x, T* to) HWY_ATTR { TopKRow(op, x, n, k, to); });
}

// SoftmaxOfGroup where the kth largest scores, and the next ones, are known.
template <class T>
HWY_INLINE void SoftmaxOfSorted(const TopKSoftmax& op, ShortRows<T>& group, hn::Vec<RowTag<T>> max, hn::Vec<RowTag<T>> least,
                                hn::Vec<RowTag<T>> next, T* const* p, size_t count) {
  const RowTag<T> d;
  // Some of the scores that tie at the cut are dropped, by their places: such rows are not done. Ties of -inf have no mass
  // either way, and a row with NaN has no order.
  const auto done = hn::Or(hn::Or(hn::Lt(next, least), hn::Eq(least, hn::Set(d, -kInfinity<T>))), hn::Ne(max, max));
  SoftmaxOfGroup(
      op, group, max, done, [&](hn::Vec<RowTag<T>> x) HWY_ATTR { return hn::Lt(x, least); }, p, count);
}

template <class T>
HWY_INLINE void KernelsOf<TopKSoftmax, T>::Short::Map(const TopKSoftmax& op, const hn::Vec<RowTag<T>>* group_max,
                                                      ShortRows<T>* group, T* const* p, size_t count) {
  constexpr size_t kRows = ShortRows<T>::kRows;
  const size_t n = group->size(), groups = (count + kRows - 1) / kRows;
  const auto for_each_group = [&](auto&& map) HWY_ATTR {
    for (size_t g = 0; g < groups; ++g) map(g, p + g * kRows, HWY_MIN(kRows, count - g * kRows));
  };
  if (op.k >= static_cast<std::int64_t>(n)) {
    return for_each_group([&](size_t g, T* const* out, size_t rows) HWY_ATTR {
      KernelsOf<Softmax, T>::Short::Map({.temperature = op.temperature}, group_max + g, group + g, out, rows);
    });
  }
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    const size_t k = static_cast<size_t>(op.k);
    constexpr size_t kSorted = LargestOfShort<>::kCount;
    const size_t dropped = (n + 15) / 16 * 16 - k;  // or absent
    if (k < kSorted) {
      return for_each_group([&](size_t g, T* const* out, size_t rows) HWY_ATTR {
        LargestOfShort<> largest;
        largest.Take(group[g]);
        SoftmaxOfSorted(op, group[g], group_max[g], largest[k - 1], largest[k], out, rows);
      });
    }
    if (dropped < kSorted) {
      return for_each_group([&](size_t g, T* const* out, size_t rows) HWY_ATTR {
        LargestOfShort<true> smallest;
        smallest.Take(group[g]);
        SoftmaxOfSorted(op, group[g], group_max[g], hn::Neg(smallest[dropped]), hn::Neg(smallest[dropped - 1]), out, rows);
      });
    }
    ShortKeys keys;
    keys.Find(group, group_max, groups, k);
    return for_each_group([&](size_t g, T* const* out, size_t rows) HWY_ATTR {
      const ShortKeys::Keeper keeper = keys.KeeperOf(g);
      const auto drops = [&](hn::Vec<RowTag<T>> x) HWY_ATTR { return keeper.Drops(x); };
      SoftmaxOfGroup(op, group[g], group_max[g], keys.Done(g), drops, out, rows);
    });
  }
#endif
  for_each_group([&](size_t g, T* const* out, size_t rows) HWY_ATTR { TopKGroup(op, group_max + g, group + g, out, rows); });
}

// The interval is one of masses and halved by their bits, because exponentials of scores are spread like these. The search ends
// when only one score is in it; the first steps, which are seldom enough, do not count. Masses below (1 - p) total / n are less
// than 1 - p together, so the cut is above them, and above the smallest. A step waits for its own sums, so some groups take it
// together.
template <class T>
HWY_INLINE void KernelsOf<TopPSoftmax, T>::Short::Map(const TopPSoftmax& op, const hn::Vec<RowTag<T>>* group_max,
                                                      ShortRows<T>* group, T* const* p, size_t count) {
  const RowTag<T> d;
  const hn::RebindToUnsigned<RowTag<T>> du;
  using V = hn::Vec<RowTag<T>>;
  constexpr size_t kRows = ShortRows<T>::kRows;
  constexpr int kMassSteps = 7;
  const size_t n = group->size(), groups = (count + kRows - 1) / kRows;
  const V one = hn::Set(d, T(1));
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  ShortRows<T> terms[kGroups];
  V target[kGroups], count_low[kGroups], count_high[kGroups];
  hn::Vec<decltype(du)> low[kGroups], high[kGroups];
  hn::Mask<RowTag<T>> done[kGroups];
  for (size_t g = 0; g < groups; ++g) {
    const V max = group_max[g];
    terms[g].Resize(n);
    double totals[1][16];
    V smallest = one;
    group[g].SumsInto(terms[g], totals, [&](V x, V(&term)[1]) HWY_ATTR {
      term[0] = exp(d, hn::Sub(x, max));
      smallest = hn::Min(hn::IfThenElse(hn::Gt(term[0], hn::Zero(d)), term[0], one), smallest);
    });
    HWY_ALIGN T targets[kRows], least[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      targets[r] = static_cast<T>(op.p * totals[0][r]);
      least[r] = static_cast<T>(0.99 * (1 - op.p) * totals[0][r] / static_cast<double>(n));
    }
    target[g] = group[g].Spread(targets);
    const V above = hn::Max(ShortRows<T>::SpreadMin(smallest), group[g].Spread(least));
    low[g] = hn::BitCast(du, above), high[g] = hn::Add(hn::BitCast(du, one), hn::Set(du, 1));
    done[g] = hn::Ne(one, one);
  }
  const auto count_from = [&](const ShortRows<T>& of, V from) HWY_ATTR {
    V sums[1];
    of.FusedSums(sums, [&](V e, V(&acc)[1]) HWY_ATTR { acc[0] = hn::Add(acc[0], hn::IfThenElseZero(hn::Ge(e, from), one)); });
    return sums[0];
  };
  for (int step = 0; step < kMassSteps; ++step) {
    for (size_t g = 0; g < groups; ++g) {
      const auto middle = hn::ShiftRight<1>(hn::Add(low[g], high[g]));
      const V at = hn::BitCast(d, middle);
      V sums[1];
      terms[g].FusedSums(sums,
                         [&](V e, V(&acc)[1]) HWY_ATTR { acc[0] = hn::Add(acc[0], hn::IfThenElseZero(hn::Ge(e, at), e)); });
      const auto enough = hn::RebindMask(du, hn::Ge(sums[0], target[g]));
      low[g] = hn::IfThenElse(enough, middle, low[g]);
      high[g] = hn::IfThenElse(enough, high[g], middle);
    }
  }
  for (size_t g = 0; g < groups; ++g) {
    count_low[g] = count_from(terms[g], hn::BitCast(d, low[g]));
    count_high[g] = count_from(terms[g], hn::BitCast(d, high[g]));
    done[g] = hn::Eq(hn::Sub(count_low[g], count_high[g]), one);
  }
  for (int step = kMassSteps; step < kShortSteps; ++step) {
    bool all = true;
    for (size_t g = 0; g < groups; ++g) {
      if (hn::AllTrue(d, done[g])) continue;
      all = false;
      const auto middle = hn::ShiftRight<1>(hn::Add(low[g], high[g]));
      const V at = hn::BitCast(d, middle);
      V sums[2];
      terms[g].FusedSums(sums, [&](V e, V(&acc)[2]) HWY_ATTR {
        const auto in = hn::Ge(e, at);
        acc[0] = hn::Add(acc[0], hn::IfThenElseZero(in, e));
        acc[1] = hn::Add(acc[1], hn::IfThenElseZero(in, one));
      });
      const auto enough = hn::AndNot(done[g], hn::Ge(sums[0], target[g]));
      const auto few = hn::AndNot(done[g], hn::Lt(sums[0], target[g]));
      low[g] = hn::IfThenElse(hn::RebindMask(du, enough), middle, low[g]);
      high[g] = hn::IfThenElse(hn::RebindMask(du, few), middle, high[g]);
      count_low[g] = hn::IfThenElse(enough, sums[1], count_low[g]);
      count_high[g] = hn::IfThenElse(few, sums[1], count_high[g]);
      done[g] = hn::Or(done[g], hn::Eq(hn::Sub(count_low[g], count_high[g]), one));
    }
    if (all) break;
  }
  for (size_t g = 0; g < groups; ++g) {
    T* const* const out = p + g * kRows;
    const size_t rows = HWY_MIN(kRows, count - g * kRows);
    const V cut = hn::BitCast(d, low[g]);
    double sums[kRows];
    terms[g].TransformAndSum(sums, [&](V e) HWY_ATTR { return hn::IfThenElseZero(hn::Or(hn::Ge(e, cut), hn::IsNaN(e)), e); });
    StoreQuotients(terms[g], sums, out, rows);
    MapLeftRows(group[g], done[g], out, rows, [&](const T* x, T* to) HWY_ATTR {
      HWY_ASSUME(n <= ShortRows<T>::kLongest);  // g++ would see loops over blocks of 256 run beyond the arrays
      T e[ShortRows<T>::kLongest], scratch[MassCutScratch(ShortRows<T>::kLongest) + 1];
      TopPRow(op, x, n, RowMax(d, x, n), to, e, scratch, false, static_cast<const T*>(nullptr));
    });
  }
}

template <class T>
HWY_INLINE void KernelsOf<TopKSoftmax, T>::MapRow(const TopKSoftmax& op, const T* x, size_t n, T max, T* p,
                                                  Workspace workspace) {
  const RowTag<T> d;
  const size_t k = static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(n)));
  T* const scratch = workspace.memory.take<T>(LargestKScratch(n));
  // On a GPU, threads share a row.
  constexpr bool kOneThread = hn::MaxLanes(RowTag<T>()) > 1;
  Survivors<T> kept;
  if constexpr (kOneThread) {
    kept = Survivors<T>(workspace.memory, n);
    size_t m = CandidatesForLargest(x, n, k, scratch, kept);
    if (m == 0) m = CandidatesByColumns(x, n, k, scratch, kept);
    if (m > 0) {
      if (m > k) {
        Cut<T> cut = CutThrough(d, kept.z, m, k, LowestFinite(d, kept.z, m, max), max, scratch, kept.z, m);
        cut.end = cut.end < m ? static_cast<size_t>(kept.places[cut.end]) : n;
        m = DropBelow(cut, kept, m, n);
      }
      return WriteFew(op.temperature, kept, m, n, max, p, workspace.stream);
    }
  }
  const Cut<T> cut = LargestK(d, x, n, k, scratch);
  if constexpr (kOneThread) {
    if (k < n / 8 && k >= n / 128) {
      size_t m = PackFrom(x, n, cut.least, kept);
      if (cut.end < n) m = DropBelow(cut, kept, m, n);
      return WriteFew(op.temperature, kept, m, n, max, p, workspace.stream);
    }
  }
  if (k < n / 64) return SoftmaxOfKept<true>(d, op.temperature, cut, x, n, max, p);
  SoftmaxOfKept<false>(d, op.temperature, cut, x, n, max, p);
}

template <class T>
HWY_INLINE size_t KernelsOf<TopKSoftmax, T>::MostInfinite(const TopKSoftmax& op, size_t infinite) {
  return static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(infinite)));
}

template <class T>
HWY_INLINE void KernelsOf<TopPSoftmax, T>::MapRow(const TopPSoftmax& op, const T* x, size_t n, T max, T* p,
                                                  Workspace workspace) {
  if (op.p == 1) return KernelsOf<Softmax, T>::MapRow({.temperature = op.temperature}, x, n, max, p, workspace);
  T* const scratch = workspace.memory.take<T>(MassCutScratch(n));
  const T* const next = static_cast<const T*>(workspace.next);
  const bool stream = next != nullptr && workspace.stream;
  TopPRow(op, x, n, max, p, p == x || stream ? workspace.memory.take<T>(n) : p, scratch, stream, next);
}

// ceil(p m), exactly, because the sign of an FMA is exact. p <= 1, and m fits a double.
template <class T>
HWY_INLINE size_t KernelsOf<TopPSoftmax, T>::MostInfinite(const TopPSoftmax& op, size_t infinite) {
  const double m = static_cast<double>(infinite);
  double count = std::ceil(op.p * m);
  if (std::fma(op.p, m, -count) > 0) count += 1;
  if (std::fma(op.p, m, 1 - count) <= 0) count -= 1;
  return static_cast<size_t>(HWY_MAX(count, 1.0));
}

// exp((x - max)/T) >= p is x - max >= T log p: no exp decides.
template <class T>
HWY_INLINE void KernelsOf<MinPSoftmax, T>::MapRow(const MinPSoftmax& op, const T* x, size_t n, T max, T* p,
                                                  Workspace /*workspace*/) {
  const RowTag<T> d;
  const double reach = op.temperature * LogNumber(op.p);
  SoftmaxOfKept<true>(d, op.temperature, Within(max, reach), x, n, max, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_CUT_SOFTMAX_INL_H_

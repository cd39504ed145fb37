// Softmax after truncation: top_k_softmax, top_p_softmax and min_p_softmax of one row.

#if defined(ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#undef ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#else
#define ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#endif

#include "entropic/maps.h"
#include "src/maps/softmax-inl.h"
#include "src/rows/mass_cut-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct KernelsOf<TopKSoftmax, T> {
  static constexpr ScoreParams<TopKSoftmax> kScores = {.divisor = &TopKSoftmax::temperature};
  static void MapRow(const TopKSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const TopKSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<TopKSoftmax>* slopes, Workspace workspace);
  static size_t MostInfinite(const TopKSoftmax& op, size_t infinite);
  static size_t Memory(size_t n) { return Arena::room<T>(LargestKScratch(n)); }
  struct Short {
    static constexpr size_t kGroups = 1;
    static HWY_INLINE bool Takes(const TopKSoftmax& /*op*/) { return true; }
    static void Map(const TopKSoftmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
  };
  using Several = NotOffered;
};

template <class T>
struct KernelsOf<TopPSoftmax, T> {
  static constexpr ScoreParams<TopPSoftmax> kScores = {.divisor = &TopPSoftmax::temperature};
  static void MapRow(const TopPSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const TopPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<TopPSoftmax>* slopes, Workspace workspace);
  static size_t MostInfinite(const TopPSoftmax& op, size_t infinite);
  static size_t Memory(size_t n) { return Arena::room<T>(MassCutScratch(n)) + Arena::room<T>(n); }
  struct Short {
    static constexpr size_t kGroups = 1;
    static HWY_INLINE bool Takes(const TopPSoftmax& op) { return op.p < 1; }
    static void Map(const TopPSoftmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
  };
  using Several = NotOffered;
};

template <class T>
struct KernelsOf<MinPSoftmax, T> {
  static constexpr ScoreParams<MinPSoftmax> kScores = {.divisor = &MinPSoftmax::temperature};
  static void MapRow(const MinPSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const MinPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<MinPSoftmax>* slopes, Workspace workspace);
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
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    auto e = hn::Zero(d);
    if (!kFew || !hn::AllTrue(d, hn::Lt(xi, least))) {
      const auto kept = ties ? hn::Or(cut.Keeps(d, xi, i), hn::IsNaN(xi)) : hn::Not(hn::Lt(xi, least));
      e = hn::IfThenElseZero(kept, exp(d, hn::Sub(xi, shift)));
    }
    StoreUpTo(e, d, count, p + i);
    return e;
  });
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  const auto inverse = hn::Set(d, static_cast<T>(1 / sum));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto e = LoadUpTo(d, p + i, count, T(0));
    if (!kFew || !hn::AllTrue(d, hn::Eq(e, hn::Zero(d)))) StoreUpTo(hn::Mul(e, inverse), d, count, p + i);
  });
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

// The terms of softmax are kept in e, which may be p, and the cut is found among them. Terms of different scores may be equal:
// if only some of those at the cut are kept, the scores decide. The rest of the work is one product.
template <class T>
HWY_INLINE void TopPRow(const TopPSoftmax& op, const T* x, size_t n, T max, T* p, T* e, T* scratch) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  const auto shift = hn::Set(d, max);
  const double total = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
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
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto ei = LoadUpTo(d, e + i, count, T(0));
      StoreUpTo(hn::IfThenElseZero(hn::Ge(ei, least), hn::Mul(ei, inverse)), d, count, p + i);
    });
  } else {
    const Cut<T> cut = LargestOfEqualMass(d, x, e, n, found, scratch);
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto kept = cut.Keeps(d, LoadUpTo(d, x + i, count, -kInfinity<T>), i);
      StoreUpTo(hn::IfThenElseZero(kept, hn::Mul(LoadUpTo(d, e + i, count, T(0)), inverse)), d, count, p + i);
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

// The interval is between two scores and halved by value. Every other step splits it where the count would be right if its
// scores were evenly spread.
template <class T>
HWY_INLINE void KernelsOf<TopKSoftmax, T>::Short::Map(const TopKSoftmax& op, const hn::Vec<RowTag<T>>* group_max,
                                                      ShortRows<T>* group, T* const* p, size_t count) {
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
  MapLeftRows(rows, done, p, count, [&](const T* x, T* out) HWY_ATTR {
    T scratch[LargestKScratch(ShortRows<T>::kLongest) + 1] = {};
    SoftmaxOfKept<false>(d, op.temperature, LargestK(d, x, n, k, scratch), x, n, RowMax(d, x, n), out);
  });
}

// The interval is one of masses and halved by their bits, because exponentials of scores are spread like these. The search ends
// when only one score is in it. Masses below (1 - p) total / n are less than 1 - p together, so the cut is above them.
template <class T>
HWY_INLINE void KernelsOf<TopPSoftmax, T>::Short::Map(const TopPSoftmax& op, const hn::Vec<RowTag<T>>* group_max,
                                                      ShortRows<T>* group, T* const* p, size_t count) {
  const RowTag<T> d;
  const hn::RebindToUnsigned<RowTag<T>> du;
  using V = hn::Vec<RowTag<T>>;
  const ShortRows<T>& rows = *group;
  const size_t n = rows.size();
  const V max = *group_max, one = hn::Set(d, T(1));
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  ShortRows<T> terms(n);
  double totals[1][16];
  rows.SumsInto(terms, totals, [&](V x, V(&term)[1]) HWY_ATTR { term[0] = exp(d, hn::Sub(x, max)); });
  HWY_ALIGN T targets[ShortRows<T>::kRows], least[ShortRows<T>::kRows];
  for (size_t r = 0; r < ShortRows<T>::kRows; ++r) {
    targets[r] = static_cast<T>(op.p * totals[0][r]);
    least[r] = static_cast<T>(0.99 * (1 - op.p) * totals[0][r] / static_cast<double>(n));
  }
  const V target = rows.Spread(targets);
  auto low = hn::BitCast(du, rows.Spread(least)), high = hn::Add(hn::BitCast(du, one), hn::Set(du, 1));
  V count_low = hn::Set(d, kInfinity<T>), count_high = hn::Zero(d);
  auto done = hn::Ne(one, one);
  for (int step = 0; step < kShortSteps && !hn::AllTrue(d, done); ++step) {
    const auto middle = hn::ShiftRight<1>(hn::Add(low, high));
    const V at = hn::BitCast(d, middle);
    V sums[2];
    terms.FusedSums(sums, [&](V e, V(&acc)[2]) HWY_ATTR {
      const auto in = hn::Ge(e, at);
      acc[0] = hn::Add(acc[0], hn::IfThenElseZero(in, e));
      acc[1] = hn::Add(acc[1], hn::IfThenElseZero(in, one));
    });
    const auto enough = hn::AndNot(done, hn::Ge(sums[0], target)), few = hn::AndNot(done, hn::Lt(sums[0], target));
    low = hn::IfThenElse(hn::RebindMask(du, enough), middle, low);
    high = hn::IfThenElse(hn::RebindMask(du, few), middle, high);
    count_low = hn::IfThenElse(enough, sums[1], count_low);
    count_high = hn::IfThenElse(few, sums[1], count_high);
    done = hn::Or(done, hn::Eq(hn::Sub(count_low, count_high), one));
  }
  const V cut = hn::BitCast(d, low);
  double sums[ShortRows<T>::kRows];
  terms.TransformAndSum(sums, [&](V e) HWY_ATTR { return hn::IfThenElseZero(hn::Or(hn::Ge(e, cut), hn::IsNaN(e)), e); });
  StoreQuotients(terms, sums, p, count);
  MapLeftRows(rows, done, p, count, [&](const T* x, T* out) HWY_ATTR {
    T e[ShortRows<T>::kLongest], scratch[MassCutScratch(ShortRows<T>::kLongest) + 1];
    TopPRow(op, x, n, RowMax(d, x, n), out, e, scratch);
  });
}

template <class T>
HWY_INLINE void KernelsOf<TopKSoftmax, T>::MapRow(const TopKSoftmax& op, const T* x, size_t n, T max, T* p,
                                                  Workspace workspace) {
  const RowTag<T> d;
  const size_t k = static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(n)));
  const Cut<T> cut = LargestK(d, x, n, k, workspace.memory.take<T>(LargestKScratch(n)));
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
  TopPRow(op, x, n, max, p, p == x ? workspace.memory.take<T>(n) : p, scratch);
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

// On the support it is softmax's gradient.
template <class T>
HWY_INLINE void KernelsOf<TopKSoftmax, T>::VjpRow(const TopKSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                  ParamValues<TopKSoftmax>* /*slopes*/, Workspace workspace) {
  KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
}

template <class T>
HWY_INLINE void KernelsOf<TopPSoftmax, T>::VjpRow(const TopPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                  ParamValues<TopPSoftmax>* /*slopes*/, Workspace workspace) {
  KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
}

template <class T>
HWY_INLINE void KernelsOf<MinPSoftmax, T>::VjpRow(const MinPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                  ParamValues<MinPSoftmax>* /*slopes*/, Workspace workspace) {
  KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_

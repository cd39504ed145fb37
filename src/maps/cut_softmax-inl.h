// Softmax over the scores that a cut leaves: top_k_softmax, top_p_softmax and min_p_softmax of one row.

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
  static void VjpRow(const TopKSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace workspace);
  static size_t MostInfinite(const TopKSoftmax& op, size_t infinite);
  static size_t Memory(size_t n) { return Arena::room<T>(LargestKScratch(n)); }
  static constexpr NotOffered ParamVjpRow = {};
  using Short = NotOffered;
  using Several = NotOffered;
};

template <class T>
struct KernelsOf<TopPSoftmax, T> {
  static constexpr ScoreParams<TopPSoftmax> kScores = {.divisor = &TopPSoftmax::temperature};
  static void MapRow(const TopPSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const TopPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace workspace);
  static size_t MostInfinite(const TopPSoftmax& op, size_t infinite);
  static size_t Memory(size_t n) { return Arena::room<T>(MassCutScratch(n)) + Arena::room<T>(n); }
  static constexpr NotOffered ParamVjpRow = {};
  using Short = NotOffered;
  using Several = NotOffered;
};

template <class T>
struct KernelsOf<MinPSoftmax, T> {
  static constexpr ScoreParams<MinPSoftmax> kScores = {.divisor = &MinPSoftmax::temperature};
  static void MapRow(const MinPSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const MinPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace workspace);
  static constexpr NotOffered ParamVjpRow = {}, MostInfinite = {}, Memory = {};
  using Short = NotOffered;
  using Several = NotOffered;
};

// Softmax over the scores that `cut` keeps. A vector without any costs a comparison instead of an exp, and is written once.
// One with a NaN does not compare as below: it is looked at, and the NaN makes the sum NaN.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void SoftmaxOfKept(D d, double temperature, Cut<T> cut, const T* x, size_t n, T max, T* p) {
  const ExpScaled<D> exp(d, temperature);
  const auto shift = hn::Set(d, max), least = hn::Set(d, cut.least);
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    auto e = hn::Zero(d);
    if (!hn::AllTrue(d, hn::Lt(xi, least))) {
      const auto kept = hn::Or(cut.Keeps(d, xi, i), hn::IsNaN(xi));
      e = hn::IfThenElseZero(kept, exp(d, hn::Sub(xi, shift)));
    }
    StoreUpTo(e, d, count, p + i);
    return e;
  });
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  const auto inverse = hn::Set(d, static_cast<T>(1 / sum));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto e = LoadUpTo(d, p + i, count, T(0));
    if (!hn::AllTrue(d, hn::Eq(e, hn::Zero(d)))) StoreUpTo(hn::Mul(e, inverse), d, count, p + i);
  });
}

// The cut in the scores x that agrees with `found` in their terms e: of the scores whose term is `found.least` the largest
// stay, of equal ones those with the lower index. MassCutScratch(n) of scratch.
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

template <class T>
HWY_INLINE void KernelsOf<TopKSoftmax, T>::MapRow(const TopKSoftmax& op, const T* x, size_t n, T max, T* p,
                                                  Workspace workspace) {
  const RowTag<T> d;
  const size_t k = static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(n)));
  const Cut<T> cut = LargestK(d, x, n, k, workspace.memory.take<T>(LargestKScratch(n)));
  SoftmaxOfKept(d, op.temperature, cut, x, n, max, p);
}

template <class T>
HWY_INLINE size_t KernelsOf<TopKSoftmax, T>::MostInfinite(const TopKSoftmax& op, size_t infinite) {
  return static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(infinite)));
}

// The terms of softmax wait in p, or in memory where p is x; the cut is found among them. Terms of different scores may be
// equal: where some of those at the cut stay and some go, the scores decide. The rest of the work is one product.
template <class T>
HWY_INLINE void KernelsOf<TopPSoftmax, T>::MapRow(const TopPSoftmax& op, const T* x, size_t n, T max, T* p,
                                                  Workspace workspace) {
  if (op.p == 1) return KernelsOf<Softmax, T>::MapRow({.temperature = op.temperature}, x, n, max, p, workspace);
  const RowTag<T> d;
  T* const scratch = workspace.memory.take<T>(MassCutScratch(n));
  T* const e = p == x ? workspace.memory.take<T>(n) : p;
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

// ceil(p m), exactly: the sign of an FMA is right. p <= 1 and m fits a double.
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
  SoftmaxOfKept(d, op.temperature, Within(max, reach), x, n, max, p);
}

// On the support, softmax's.
template <class T>
HWY_INLINE void KernelsOf<TopKSoftmax, T>::VjpRow(const TopKSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                  Workspace workspace) {
  KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, workspace);
}

template <class T>
HWY_INLINE void KernelsOf<TopPSoftmax, T>::VjpRow(const TopPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                  Workspace workspace) {
  KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, workspace);
}

template <class T>
HWY_INLINE void KernelsOf<MinPSoftmax, T>::VjpRow(const MinPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                  Workspace workspace) {
  KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, workspace);
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_

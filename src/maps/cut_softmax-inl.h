// Softmax over the scores that a cut leaves: top_k_softmax and min_p_softmax of one row.

#if defined(ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#undef ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#else
#define ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_
#endif

#include "entropic/maps.h"
#include "src/maps/softmax-inl.h"
#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

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

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRow(D d, const TopKSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  const size_t k = static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(n)));
  SoftmaxOfKept(d, op.temperature, LargestK(d, x, n, k, reinterpret_cast<T*>(workspace.scratch)), x, n, max, p);
}

HWY_INLINE size_t MostInfinite(const TopKSoftmax& op, size_t n) {
  return static_cast<size_t>(HWY_MIN(op.k, static_cast<std::int64_t>(n)));
}

// exp((x - max)/T) >= p is x - max >= T log p: no exp decides.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRow(D d, const MinPSoftmax& op, const T* x, size_t n, T max, T* p, Workspace /*workspace*/) {
  const RowTag<double> d64;
  const double reach = op.temperature * hn::GetLane(Log(d64, hn::Set(d64, op.p)));
  SoftmaxOfKept(d, op.temperature, Within(max, reach), x, n, max, p);
}

// On the support, softmax's.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void VjpRow(D d, const TopKSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace workspace) {
  VjpRow(d, Softmax{.temperature = op.temperature}, x, p, g, n, dx, workspace);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void VjpRow(D d, const MinPSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace workspace) {
  VjpRow(d, Softmax{.temperature = op.temperature}, x, p, g, n, dx, workspace);
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_CUT_SOFTMAX_INL_H_

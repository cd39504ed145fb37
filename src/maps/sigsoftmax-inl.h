// sigsoftmax of one row.

#if defined(ISENTROPIC_MAPS_SIGSOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SIGSOFTMAX_INL_H_
#undef ISENTROPIC_MAPS_SIGSOFTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_SIGSOFTMAX_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct KernelsOf<SigSoftmax, T> {
  static constexpr ScoreParams<SigSoftmax> kScores = {};
  static void MapRow(const SigSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const SigSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<SigSoftmax>* slopes,
                     Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {}, Memory = {};
  using Short = NotOffered;
  using Several = NotOffered;
};

// exp(x) s(x) relative to the largest: exp(x - max) / (exp(b) + exp(b - x)), b = min(max, 0). Neither factor overflows, and the
// largest term is between 1/2 and 1. The rounded numerator never falls with x and the rounded divisor never rises, so the order
// of the scores is kept. exp of a number that may be positive is the reciprocal of exp of its negative.
template <class T>
HWY_INLINE void KernelsOf<SigSoftmax, T>::MapRow(const SigSoftmax& /*op*/, const T* x, size_t n, T max, T* p,
                                                 Workspace /*workspace*/) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, 1);
  const auto shift = hn::Set(d, max), one = hn::Set(d, T(1));
  const auto base = hn::Set(d, HWY_MIN(max, T(0)));
  const auto exp_base = exp(d, base);
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max);
    const auto rise = hn::Sub(base, xi);
    const auto fallen = exp(d, hn::Neg(hn::Abs(rise)));
    const auto grown = hn::IfThenElse(hn::Gt(rise, hn::Zero(d)), hn::Div(one, fallen), fallen);
    const auto e = hn::Div(exp(d, hn::Sub(xi, shift)), hn::Add(exp_base, grown));
    StoreUpTo(e, d, count, p + i);
    return e;
  });
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  // The largest term is not 1: if it is the only one, a product with a rounded reciprocal would not make it 1.
  const T total = static_cast<T>(sum);
  if (hn::GetLane(hn::Div(one, hn::Add(exp_base, exp(d, hn::Sub(base, shift))))) == total) {
    return ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      StoreUpTo(hn::Div(LoadUpTo(d, p + i, count, T(0)), hn::Set(d, total)), d, count, p + i);
    });
  }
  ScaleRow(d, static_cast<T>(1 / sum), n, p);
}

// dx = (2 - s(x)) p (g - <g, p>), and 2 - s(x) = 1 + s(-x).
template <class T>
HWY_INLINE void KernelsOf<SigSoftmax, T>::VjpRow(const SigSoftmax& /*op*/, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                 ParamValues<SigSoftmax>* /*slopes*/, Workspace workspace) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, 1);
  const auto one = hn::Set(d, T(1));
  const auto mean = hn::Set(d, static_cast<T>(DotWithDistribution(d, p, g, n)));
  WriteRow(d, workspace.stream, n, dx, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, T(0));
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    const auto fallen = exp(d, hn::Neg(hn::Abs(xi)));
    // s(-x) = e/(1 + e) for x >= 0 and 1/(1 + e) below, e = exp(-|x|).
    const auto s = hn::Div(hn::IfThenElse(hn::Lt(xi, hn::Zero(d)), one, fallen), hn::Add(one, fallen));
    const auto v = hn::Mul(hn::Mul(pi, hn::Sub(LoadUpTo(d, g + i, count, T(0)), mean)), hn::Add(one, s));
    return hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d)), v);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SIGSOFTMAX_INL_H_

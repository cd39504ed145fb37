// sparsemax of one row.

#if defined(ISENTROPIC_MAPS_SPARSEMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SPARSEMAX_INL_H_
#undef ISENTROPIC_MAPS_SPARSEMAX_INL_H_
#else
#define ISENTROPIC_MAPS_SPARSEMAX_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/contract-inl.h"
#include "src/maps/short_vjp-inl.h"
#include "src/maps/threshold_start-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct KernelsOf<Sparsemax, T> {
  static constexpr ScoreParams<Sparsemax> kScores = {.divisor = &Sparsemax::temperature};
  static void MapRow(const Sparsemax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const Sparsemax& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Sparsemax>* slopes,
                     Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  static size_t Memory(size_t n) { return room_of<Survivors<T>>(n); }
  struct Short {
    static constexpr size_t kGroups = 1;
    static HWY_INLINE bool Takes(const Sparsemax& /*op*/) { return true; }
    static void Map(const Sparsemax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
    static HWY_INLINE bool TakesVjp(const Sparsemax& /*op*/) { return true; }
    static void Vjp(const Sparsemax& op, ShortRows<T>* p, ShortRows<T>* g, T* const* dx, size_t count);
  };
  using Several = NotOffered;
};

// The mass max(z - tau, 0). It takes two steps, in which tau's upper part is exact in T: near the threshold the first
// difference is exact, so p has a relative error of two roundings and the row sums to 1 for any n.
template <class D, class T = hn::TFromD<D>>
class AboveThreshold {
 public:
  HWY_INLINE AboveThreshold(D d, Threshold tau) : high_(hn::Set(d, static_cast<T>(tau.high))) {
    const double high = static_cast<double>(static_cast<T>(tau.high));
    low_ = hn::Set(d, static_cast<T>((tau.high - high) + tau.low));
  }
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> z) const { return hn::Max(hn::Sub(hn::Sub(z, high_), low_), hn::Zero(d)); }

 private:
  hn::Vec<D> high_, low_;
};

// Only scores within 1 of the maximum can have mass. One sweep packs these few, the threshold is solved for them, and one sweep
// writes.
template <class T>
HWY_NOINLINE HWY_FLATTEN void KernelsOf<Sparsemax, T>::MapRow(const Sparsemax& op, const T* x, size_t n, T max, T* p,
                                                              Workspace workspace) {
  const RowTag<T> d;
  const RelativeScores<RowTag<T>> relative(hn::Set(d, max), op.temperature);
  const T least = LeastThreshold(d, 1, relative, x, n);
  const Survivors<T> survivors(workspace.memory, n);
  const size_t kept = FilterAbove<false>(d, relative, x, n, least, survivors);
  const Threshold tau = SimplexThreshold(survivors.z, kept, least);
  if (tau.low != tau.low) return FillRow(d, kNaN<T>, n, p);
  const AboveThreshold<RowTag<T>> mass(d, tau);
  QuickWriteRow(d, workspace.stream, n, p,
                [&](size_t i, size_t count) HWY_ATTR { return mass(d, relative(LoadUpTo(d, x + i, count, max))); });
}

// sparsemax of a group of rows of at most ShortRows::kLongest: all entries start as survivors, and it ends when no row's
// support shrinks. So few terms can be summed in T: near the root they sum to 1, and the last step, a residual, corrects the
// rounding of tau.
template <class T>
HWY_NOINLINE HWY_FLATTEN void KernelsOf<Sparsemax, T>::Short::Map(const Sparsemax& op, const hn::Vec<RowTag<T>>* max,
                                                                  ShortRows<T>* group, T* const* p, size_t count) {
  using V = hn::Vec<RowTag<T>>;
  const RowTag<T> d;
  ShortRows<T>& rows = *group;
  const RelativeScores<RowTag<T>> relative(*max, op.temperature);
  rows.Transform([&](V x) HWY_ATTR { return relative(x); });

  const V one = hn::Set(d, T(1));
  SimplexSearch<Lanes<RowTag<T>>> search;
  search.Begin(T(-1), T(ShortRows<T>::kLongest + 1));
  while (!AllFalse(search.asks())) {
    V sums[2];
    const V tau = search.tau().v;
    rows.template Sums<2>(sums, [&](V z, V* terms) HWY_ATTR {
      const auto above = hn::Sub(z, tau);
      terms[0] = MaxKeepNaN(hn::Zero(d), above);
      terms[1] = hn::IfThenElseZero(hn::Gt(above, hn::Zero(d)), one);
    });
    search.Take(sums[0], sums[1]);
  }

  HWY_ALIGN T high[ShortRows<T>::kLanes], low[ShortRows<T>::kLanes];
  hn::Store(search.tau().v, d, high);
  hn::Store(search.step().v, d, low);
  const auto tau_high = rows.Spread(high), tau_low = rows.Spread(low);
  rows.Store(p, count, [&](V z) HWY_ATTR { return MaxKeepNaN(hn::Zero(d), hn::Sub(hn::Sub(z, tau_high), tau_low)); });
}

// On the support dx = (g - mean of g there) / T, elsewhere 0: the Jacobian projects onto vectors of sum 0.
template <class T>
HWY_NOINLINE HWY_FLATTEN void KernelsOf<Sparsemax, T>::VjpRow(const Sparsemax& op, const T* /*x*/, const T* p, const T* g,
                                                              size_t n, T* dx, ParamValues<Sparsemax>* /*slopes*/,
                                                              Workspace workspace) {
  const RowTag<T> d;
  double sums[2];
  QuickSums(d, n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    const auto out = hn::Eq(pi, hn::Zero(d));
    terms[0] = terms[1] = hn::Zero(d);
    if (hn::AllTrue(d, out)) return;
    // 0 p carries a NaN row into the mean.
    terms[0] = hn::IfThenZeroElse(out, hn::MulAdd(pi, hn::Zero(d), LoadUpTo(d, g + i, count, T(0))));
    terms[1] = hn::IfThenZeroElse(out, hn::Set(d, T(1)));
  });
  const auto mean = hn::Set(d, static_cast<T>(sums[0] / sums[1]));
  const DividedBy<RowTag<T>> divided(op.temperature);
  QuickWriteRow(d, workspace.stream, n, dx, [&](size_t i, size_t count) HWY_ATTR {
    const auto out = hn::Eq(LoadUpTo(d, p + i, count, T(0)), hn::Zero(d));
    if (hn::AllTrue(d, out)) return hn::Zero(d);
    const auto v = divided(hn::Sub(LoadUpTo(d, g + i, count, T(0)), mean));
    return hn::IfThenZeroElse(out, v);
  });
}

template <class T>
HWY_INLINE void KernelsOf<Sparsemax, T>::Short::Vjp(const Sparsemax& op, ShortRows<T>* p, ShortRows<T>* g, T* const* dx,
                                                    size_t count) {
  const auto one = hn::Set(RowTag<T>(), T(1));
  ShortVjpBySlope(op.temperature, p, g, dx, count, [=](auto /*p*/) HWY_ATTR { return one; });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SPARSEMAX_INL_H_

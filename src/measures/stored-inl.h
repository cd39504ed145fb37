// Divergences whose partial derivatives are stored before they become gradients: smoothed ones, and those that are rarely
// trained. Their code is there once for all types and inputs.

#if defined(ISENTROPIC_MEASURES_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_STORED_INL_H_
#undef ISENTROPIC_MEASURES_STORED_INL_H_
#else
#define ISENTROPIC_MEASURES_STORED_INL_H_
#endif

#include <algorithm>

#include "src/measures/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Whether TwoRow does not compute it.
template <class Op>
inline constexpr bool kIsStored = !std::is_same_v<Op, CrossEntropy> && !std::is_same_v<Op, KlDivergence> &&
                                  !std::is_same_v<Op, JsDivergence> && !std::is_same_v<Op, JsDistance>;

// The kernel of a divergence, with what it must know of the rows.
template <class Op>
HWY_INLINE auto KernelOf(const Op& op, const Pair& rows, bool exists) {
  if constexpr (std::is_same_v<Op, RenyiDivergence>) {
    // Beyond 2^53 the order differs from infinity by less than rounding.
    const RenyiDivergence kernel = {.alpha = op.alpha < 0x1p53 ? op.alpha : kInfinity<double>};
    return RenyiKernel{kernel.alpha, exists ? AffinityOf(kernel, rows) : Affinity{kNaN<double>, false}};
  } else {
    (void)rows, (void)exists;
    return Rooted(op);
  }
}

// Partial derivatives g in the first or the second distribution, and p g.
struct Partials {
  double *g, *weight;

  HWY_INLINE Partial At(size_t i, size_t count) const {
    const D64 d;
    return {LoadUpTo(d, g + i, count, 0.0), LoadUpTo(d, weight + i, count, 0.0)};
  }
};

template <class Kernel>
HWY_NOINLINE void StorePartials(const Kernel& kernel, const Pair& rows, bool second, Partials to) {
  const D64 d;
  const size_t n = rows.p.n, lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t count = std::min(lanes, n - i);
    const Partial at = second ? SecondPartialOf(kernel, rows, i, count) : FirstPartialOf(kernel, rows, i, count);
    StoreUpTo(at.g, d, count, to.g + i);
    StoreUpTo(at.weight, d, count, to.weight + i);
  }
}

// A distribution, and the one that is compared: the same, or with a number added to every class.
struct Compared {
  Distribution original, row;
  bool is_smoothed = false;
};

// p and z are a workspace as for DistributionOf, `smooth` one for the smoothed probabilities.
template <class Op, class T>
HWY_NOINLINE Compared SmoothedOf(const Op& op, const T* x, size_t n, double sum, double* p, double* z, double* smooth) {
  const D64 d;
  const Distribution of = DistributionOf(op.input, op.normalize, x, n, sum, Logs::none, p, z);
  // What is added to the numbers given is added to p in its unit.
  double added = op.smoothing * of.unit / of.divisor;
  if (op.input == Input::log_probs && op.normalize && n > 0) {
    added *= ExpNumber(-of.shift - static_cast<double>(RowMax(RowTag<T>(), x, n)));
  }
  added = std::min(added, 1e280);  // where it overflows p is lost, and the row uniform
  const double total = of.sum + static_cast<double>(n) * added;
  const V64 more = hn::Set(d, added), divisor = hn::Set(d, total);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(hn::Div(hn::Add(of.P(d, i, count), more), divisor), d, count, smooth + i);
  });
  return {of, {smooth, nullptr, 0, 1, total, n, of.exists, false}, true};
}

// The gradient in the numbers given, from partial derivatives: of a smoothed row through the division by the sum to those in
// the probabilities before, and from there as of any distribution.
HWY_NOINLINE inline void WriteStored(Input input, bool normalize, const Compared& of, bool exists, double factor,
                                     Partials partials, GradientOut out) {
  Distribution row = of.original;
  row.exists = exists;
  Through through = ThroughOf(input, normalize);
  if (of.is_smoothed) {
    const D64 d;
    Distribution smoothed = of.row;
    smoothed.exists = exists;
    const auto at = [&](size_t i, size_t count) HWY_ATTR { return partials.At(i, count); };
    const V64 level = hn::Set(d, WriteGradient(Through::division, smoothed, factor, 0, at, partials.g));
    const V64 scale = hn::Set(d, factor * smoothed.unit / smoothed.divisor);
    ForEachVector(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
      const V64 p = row.P(d, i, count), g = LoadUpTo(d, partials.g + i, count, 0.0), s = smoothed.P(d, i, count);
      // Where g overflows, p g may not: then it is taken from the weight s g of the smoothed row, as p is not far above s.
      const V64 centred = hn::NegMulAdd(s, level, at(i, count).weight);
      const V64 by_weight = ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(hn::Mul(scale, centred), hn::Div(p, s)));
      StoreUpTo(hn::IfThenElse(hn::IsFinite(g), WeightedPartial(d, p, g).weight, by_weight), d, count, partials.weight + i);
    });
    factor = 1 / row.divisor;
    if (input == Input::probs) through = Through::probs;
    if (input == Input::log_probs) through = Through::log_probs;
  }
  WriteGradient(
      through, row, factor, 0, [&](size_t i, size_t count) HWY_ATTR { return partials.At(i, count); }, out);
}

// As TwoRow. `slope`, if it is not null, becomes the derivative in the order; `partials` are a workspace.
template <class Op>
HWY_NOINLINE void StoredTwoRow(const Op& op, const Compared& p, const Compared& q, const double* ratios, double* value,
                               GradientOut dp, GradientOut dq, double* slope, Partials partials) {
  const Pair rows = {p.row, q.row, ratios};
  const bool exists = rows.p.exists && rows.q.exists;
  const auto kernel = KernelOf(op, rows, exists);
  const double nats = exists ? ValueOf(kernel, rows) : kNaN<double>;
  *value = OfNats(op, nats);
  if constexpr (requires { op.alpha; }) {
    if (slope != nullptr) *slope = !exists ? kNaN<double> : std::isinf(nats) ? 0 : InUnit(OrderSlope(kernel, rows), op);
  }
  const double factor = FactorOf(op, *value);
  if (dp.wanted()) {
    StorePartials(kernel, rows, false, partials);
    WriteStored(op.input, op.normalize, p, exists, factor, partials, dp);
  }
  if (dq.wanted()) {
    StorePartials(kernel, rows, true, partials);
    WriteStored(op.input, op.normalize, q, exists, factor, partials, dq);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_STORED_INL_H_

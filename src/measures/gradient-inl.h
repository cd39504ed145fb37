// Partial derivatives of measures, and the gradient in what a row is given by.

#if defined(ISENTROPIC_MEASURES_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_GRADIENT_INL_H_
#undef ISENTROPIC_MEASURES_GRADIENT_INL_H_
#else
#define ISENTROPIC_MEASURES_GRADIENT_INL_H_
#endif

#include <cmath>
#include <limits>

#include "isentropic/measures.h"
#include "src/measures/distribution-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

HWY_INLINE V64 ZeroWhere(hn::Mask<D64> mask, V64 v) { return hn::IfThenZeroElse(mask, v); }
HWY_INLINE V64 InfinityWhere(D64 d, hn::Mask<D64> mask, V64 v) {
  return hn::IfThenElse(mask, hn::Set(d, kInfinity<double>), v);
}

// A partial derivative g in p, and weight = p g, which is 0 where p is 0.
struct Partial {
  V64 g, weight;
};

HWY_INLINE Partial WeightedPartial(D64 d, V64 p, V64 g) { return {g, ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, g))}; }

// Where a gradient goes: to numbers of either type, or nowhere. What computes it, in float64, is compiled once for both.
class GradientOut {
 public:
  HWY_INLINE GradientOut(std::nullptr_t) {}
  HWY_INLINE GradientOut(float* out) : narrow_(out) {}
  HWY_INLINE GradientOut(double* out) : wide_(out) {}
  HWY_INLINE bool wanted() const { return narrow_ != nullptr || wide_ != nullptr; }
  HWY_INLINE void Store(V64 v, size_t i, size_t count) const {
    narrow_ != nullptr ? StoreNarrow(v, D64(), count, narrow_ + i) : StoreUpTo(v, D64(), count, wide_ + i);
  }
  HWY_INLINE void Fill(double value, size_t n) const {
    narrow_ != nullptr ? FillRow(RowTag<float>(), static_cast<float>(value), n, narrow_) : FillRow(D64(), value, n, wide_);
  }

 private:
  float* narrow_ = nullptr;
  double* wide_ = nullptr;
};

// The numbers that gradients refer to; the chain rule follows from p, g and p g.
enum class Through { probs, log_probs, softmax, division };

HWY_INLINE Through ThroughOf(Input input, bool normalize) {
  if (input == Input::probs) return normalize ? Through::division : Through::probs;
  return input == Input::log_probs && !normalize ? Through::log_probs : Through::softmax;
}

// v, but 0 at scores of -inf.
HWY_INLINE V64 WhereScored(D64 d, const Distribution& row, size_t i, size_t count, V64 v) {
  return ZeroWhere(hn::Eq(row.Z(d, i, count), hn::Set(d, -kInfinity<double>)), v);
}

// The gradient of factor f; returns the mean of the partial derivatives where the sum of p is fixed. partial(i, count) is the
// derivative of f in p without the constant `lacking`, which is added if the sum of p is free and drops out if it is not.
template <class PartialAt>
HWY_NOINLINE double WriteGradient(Through through, const Distribution& row, double factor, double lacking, PartialAt&& partial,
                                  GradientOut out) {
  const D64 d;
  if (!row.exists || row.constant) {
    out.Fill(row.exists ? 0 : kNaN<double>, row.n);
    return 0;
  }
  const bool fixed = through == Through::softmax || through == Through::division;
  const double mean = fixed ? Sum(d, row.n, [&](size_t i, size_t count) HWY_ATTR { return partial(i, count).weight; }) : 0;
  const V64 level = hn::Set(d, fixed ? mean : -lacking);
  const double divisor = through == Through::division ? row.divisor : 1;
  factor *= row.unit;
  const V64 scale = hn::Set(d, factor / divisor);
  const bool tiny = std::isinf(factor / divisor);  // the divisor is subnormal; 0 times infinity would be NaN
  const bool weighted = through == Through::softmax || through == Through::log_probs;
  ForEachVector(d, row.n, [&](size_t i, size_t count) HWY_ATTR {
    const Partial at = partial(i, count);
    const V64 p = row.P(d, i, count);
    const V64 own = ZeroWhere(hn::Eq(p, hn::Zero(d)), level);  // an infinite level is none where p is 0
    const V64 centred = weighted ? WhereScored(d, row, i, count, hn::NegMulAdd(p, own, at.weight)) : hn::Sub(at.g, level);
    out.Store(tiny ? hn::Div(hn::Mul(hn::Set(d, factor), centred), hn::Set(d, divisor)) : hn::Mul(scale, centred), i, count);
  });
  return mean;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_GRADIENT_INL_H_

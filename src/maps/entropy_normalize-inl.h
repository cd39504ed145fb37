// entropy_normalize and entropy_clip of one row.

#if defined(ENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_
#undef ENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_
#else
#define ENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_
#endif

#include <cstring>

#include "entropic/maps.h"
#include "src/maps/softmax-inl.h"
#include "src/per_row.h"
#include "src/rows/entropy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

HWY_INLINE EntropyTarget TargetOf(const EntropyNormalize& op) {
  const double target = op.entropy ? *op.entropy : LogOf(*op.perplexity);
  return {target, target};
}
HWY_INLINE EntropyTarget TargetOf(const EntropyClip& op) {
  return {op.min_entropy.value_or(0), op.max_entropy.value_or(kInfinity<double>)};
}

// Equal shares for the scores that are at least `least`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void UniformRow(D d, const T* x, size_t n, T least, double count, T* p) {
  const auto limit = hn::Set(d, least), share = hn::Set(d, static_cast<T>(1 / count));
  ForEachVector(d, n, [&](size_t i, size_t m) HWY_ATTR {
    StoreUpTo(hn::IfThenElseZero(hn::Ge(LoadUpTo(d, x + i, m, least), limit), share), d, m, p + i);
  });
}

// softmax(gamma x). A target that cannot be met, or only by gamma = 0 or infinity, is met by the limits: uniform over the
// finite scores or over those at the maximum.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void EntropyRow(D d, EntropyTarget target, const T* x, size_t n, T max, T* p, Workspace workspace) {
  RowSurvey<T> row = {};
  if constexpr (sizeof(T) == 4) {
    T* const memory = reinterpret_cast<T*>(workspace.scratch);
    T* const out = p == x ? memory : p;
    Condensed few = {memory, 0, nullptr, 0, 0};
    if (n >= kLongRow) few = Condense(x, n, max, memory + n, &row);
    if (few.top_count == 0) row = Survey(d, x, n, max);
    if (!row.nan && row.least < max && target.low < LogOf(row.finite) && target.high > LogOf(row.ties) &&
        FindGammaNarrow(row, few, x, n, target, out).status == EntropyStatus::kOk) {
      if (p == x) std::memcpy(p, memory, n * sizeof(T));
      return;
    }
  }
  row = Survey(d, x, n, max);
  if (row.nan) return FillRow(d, kNaN<T>, n, p);
  if (row.least == max || target.low >= LogOf(row.finite)) return UniformRow(d, x, n, row.least, row.finite, p);
  if (target.high <= LogOf(row.ties)) return UniformRow(d, x, n, max, row.ties, p);
  double sum;
  FindGammaWide(row, x, n, target, {}, workspace.scratch, &sum);
  const double inverse = 1 / sum;
  for (size_t i = 0; i < n; ++i) p[i] = static_cast<T>(workspace.scratch[i] * inverse);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRow(D d, const EntropyNormalize& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  EntropyRow(d, TargetOf(op), x, n, max, p, workspace);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRow(D d, const EntropyClip& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  EntropyRow(d, TargetOf(op), x, n, max, p, workspace);
}

// What the gradients need of a row, in float64.
struct EntropyGradient {
  double gamma;           // times 2^exponent of the relative scores
  double mean_z, mean_g;  // under p
  double slope;           // the regression of g on gamma z: -d <g, p> / d H
  bool fixed;             // p does not change with x: the target is out of reach, or the scores are equal
};

// gamma is the regression of log p on z under p: a rounding of p changes it by eps / sd(log p), which is as well as p knows
// it. Means first, then centred products: the scores may lie far from 0 against their spread. log p waits in scratch.
template <class T>
HWY_INLINE EntropyGradient GradientOf(const WideScores<T>& relative, const T* x, const T* p, const T* g, size_t n,
                                      double* scratch) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  const V zero = hn::Zero(d);
  const auto z_of = [&](size_t i, size_t count, hn::Mask<RowTag<double>> absent)
                        HWY_ATTR { return hn::IfThenZeroElse(absent, relative(LoadWide(x + i, count, T(0)))); };
  double means[4];
  Sums(d, n, means, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V pi = LoadWide(p + i, count, T(0));
    const auto absent = hn::Eq(pi, zero);
    const V log_p = hn::IfThenZeroElse(absent, Log(d, pi));
    StoreUpTo(log_p, d, count, scratch + i);
    terms[0] = pi;
    terms[1] = hn::Mul(pi, z_of(i, count, absent));
    terms[2] = hn::Mul(pi, log_p);
    terms[3] = hn::IfThenZeroElse(absent, hn::Mul(pi, LoadWide(g + i, count, T(0))));
  });
  const double mean_z = means[1] / means[0], mean_log = means[2] / means[0], mean_g = means[3] / means[0];
  const V center_z = hn::Set(d, mean_z), center_log = hn::Set(d, mean_log), center_g = hn::Set(d, mean_g);
  double products[3];
  Sums(d, n, products, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V pi = LoadWide(p + i, count, T(0));
    const auto absent = hn::Eq(pi, zero);
    const V z = hn::Sub(z_of(i, count, absent), center_z);
    const V weighted = hn::IfThenZeroElse(absent, hn::Mul(pi, z));
    terms[0] = hn::Mul(weighted, z);
    terms[1] = hn::Mul(weighted, hn::Sub(LoadUpTo(d, scratch + i, count, 0.0), center_log));
    terms[2] = hn::IfThenZeroElse(absent, hn::Mul(weighted, hn::Sub(LoadWide(g + i, count, T(0)), center_g)));
  });
  const double gamma = products[1] / products[0];
  return {gamma, mean_z, mean_g, products[2] / products[0] / gamma, !(products[0] > 0)};
}

// The smallest and largest p > 0, and the smallest score that has one.
template <class T>
struct SupportRange {
  T least_p, most_p, least_x;
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE SupportRange<T> RangeOfSupport(D d, const T* x, const T* p, size_t n) {
  auto least_p = hn::Set(d, T(2)), most_p = hn::Zero(d), least_x = hn::Set(d, kInfinity<T>);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    const auto in = hn::Gt(pi, hn::Zero(d));
    least_p = hn::Min(hn::IfThenElse(in, pi, least_p), least_p);
    most_p = hn::Max(pi, most_p);
    least_x = hn::Min(hn::IfThenElse(in, LoadUpTo(d, x + i, count, T(0)), least_x), least_x);
  });
  const auto min = [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); };
  const auto max = [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); };
  return {FoldLanes(d, least_p, min), FoldLanes(d, most_p, max), FoldLanes(d, least_x, min)};
}

// dx = gamma p ((g - mean g) - slope gamma (z - mean z)).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void EntropyVjpRow(D d, const T* x, const T* p, const T* g, size_t n, T* dx, double* scratch) {
  const RowTag<double> d64;
  using V = hn::Vec<RowTag<double>>;
  if (p[0] != p[0]) return FillRow(d, kNaN<T>, n, dx);
  const SupportRange<T> range = RangeOfSupport(d, x, p, n);
  const T max = RowMax(d, x, n);
  if (!(range.least_p < range.most_p) || !(range.least_x < max)) return FillRow(d, T(0), n, dx);
  const WideScores<T> relative(max, range.least_x);
  const EntropyGradient row = GradientOf(relative, x, p, g, n, scratch);
  if (row.fixed) return FillRow(d, T(0), n, dx);
  const V gamma = hn::Set(d64, row.gamma), slope = hn::Set(d64, row.slope * row.gamma);
  const V mean_z = hn::Set(d64, row.mean_z), mean_g = hn::Set(d64, row.mean_g);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const V pi = LoadWide(p + i, count, T(0));
    const V z = hn::Sub(relative(LoadWide(x + i, count, T(0))), mean_z);
    const V rest = hn::NegMulAdd(slope, z, hn::Sub(LoadWide(g + i, count, T(0)), mean_g));
    const V v = relative.Scale(hn::Mul(gamma, hn::Mul(pi, rest)));
    StoreUpTo(hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d64)), v), d64, count, scratch + i);
  });
  for (size_t i = 0; i < n; ++i) dx[i] = static_cast<T>(scratch[i]);
}

// d <g, p> / dH; dp / dH = -u / (gamma Var x).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double EntropyTargetVjpRow(D d, const T* x, const T* p, const T* g, size_t n, double* scratch) {
  if (p[0] != p[0]) return kNaN<double>;
  const SupportRange<T> range = RangeOfSupport(d, x, p, n);
  const T max = RowMax(d, x, n);
  if (!(range.least_p < range.most_p) || !(range.least_x < max)) return 0;
  const EntropyGradient row = GradientOf(WideScores<T>(max, range.least_x), x, p, g, n, scratch);
  return row.fixed ? 0 : -row.slope;
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void VjpRow(D d, const EntropyNormalize& /*op*/, const T* x, const T* p, const T* g, size_t n, T* dx,
                       Workspace workspace) {
  EntropyVjpRow(d, x, p, g, n, dx, workspace.scratch);
}

// dH / d perplexity = 1 / perplexity.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE ParamValues<EntropyNormalize> ParamVjpRow(D d, const EntropyNormalize& op, const T* x, const T* p, const T* g,
                                                     size_t n, Workspace workspace) {
  const double by_entropy = EntropyTargetVjpRow(d, x, p, g, n, workspace.scratch);
  if (op.perplexity) return {0, by_entropy / *op.perplexity};
  return {by_entropy, 0};
}

enum class IntervalEnd { kNone, kMin, kMax };

// Which end of the interval holds the entropy of p, as far as its tolerance tells.
template <class T>
HWY_INLINE IntervalEnd HoldingEnd(const EntropyClip& op, const T* p, size_t n) {
  const RowTag<double> d;
  const double entropy = -Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto pi = LoadWide(p + i, count, T(0));
    return hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d)), hn::Mul(pi, Log(d, pi)));
  });
  constexpr double kTolerance = sizeof(T) == 4 ? 1e-6 : 1e-12;
  if (op.min_entropy && entropy <= *op.min_entropy + kTolerance * HWY_MAX(1.0, *op.min_entropy)) return IntervalEnd::kMin;
  if (op.max_entropy && entropy >= *op.max_entropy - kTolerance * HWY_MAX(1.0, *op.max_entropy)) return IntervalEnd::kMax;
  return IntervalEnd::kNone;
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void VjpRow(D d, const EntropyClip& op, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace workspace) {
  if (HoldingEnd(op, p, n) == IntervalEnd::kNone) return VjpRow(d, Softmax{}, x, p, g, n, dx, workspace);
  EntropyVjpRow(d, x, p, g, n, dx, workspace.scratch);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE ParamValues<EntropyClip> ParamVjpRow(D d, const EntropyClip& op, const T* x, const T* p, const T* g, size_t n,
                                                Workspace workspace) {
  const IntervalEnd end = HoldingEnd(op, p, n);
  if (end == IntervalEnd::kNone) return {};
  const double by_entropy = EntropyTargetVjpRow(d, x, p, g, n, workspace.scratch);
  if (end == IntervalEnd::kMin) return {by_entropy, 0};
  return {0, by_entropy};
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_

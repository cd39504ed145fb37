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
HWY_NOINLINE void EntropyRow(D d, EntropyTarget target, const T* x, size_t n, T max, T* p, Workspace workspace) {
  RowSurvey<T> row = {};
  if constexpr (sizeof(T) == 4) {
    T* const memory = reinterpret_cast<T*>(workspace.scratch);
    T* const out = p == x ? memory : p;
    Condensed few = {memory + n, 0, nullptr, 0, 0};
    if (n >= kLongRow) few = Condense(x, n, max, memory + n, &row);
    if (few.top_count == 0) row = Survey(d, x, n, max);
    if (!row.nan && row.least < max && target.low < LogOf(row.finite) && target.high > LogOf(row.ties) &&
        FindGammaNarrow(row, few, x, n, target, out).status == GammaStatus::kOk) {
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

// Probabilities become scores row by row.
HWY_INLINE bool HasShortRows(const EntropyNormalize& op) { return op.input != Input::probs; }
HWY_INLINE bool HasShortRows(const EntropyClip& op) { return op.input != Input::probs; }

// Side by side, the rows' searches wait for each other's results and not for their own.
template <>
inline constexpr size_t kShortGroups<EntropyNormalize> = 4;
template <>
inline constexpr size_t kShortGroups<EntropyClip> = 4;

// The same for groups of rows of at most ShortRows::kLongest in float32. A row that has its entropy keeps its gamma while the
// others go on. One that is out of the ordinary is done alone afterwards.
class EntropyShortRows {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  using D64 = RowTag<double>;
  using V64 = hn::Vec<D64>;
  static constexpr size_t kGroup = ShortRows<float>::kRows, kLanes = hn::MaxLanes(D64());
  static constexpr size_t kRows = 4 * kGroup;
  static constexpr size_t kSearches = (kRows + kLanes - 1) / kLanes;

  HWY_INLINE EntropyShortRows(const V* max, const ShortRows<float>* rows, size_t count)
      : max_(max), rows_(rows), groups_((count + kGroup - 1) / kGroup), count_(count) {
    for (size_t g = 0; g < groups_; ++g) masses_[g].Resize(rows[g].size());
  }

  HWY_NOINLINE void Map(EntropyTarget target, float* const* p) {
    const D64 d64;
    HWY_ALIGN double survey[4][kStride] = {}, log_n[kStride], log_ties[kStride], goal[kStride], next[kStride], entropy[kStride];
    bool done[kRows], alone[kRows];
    Survey(survey);
    for (size_t r = 0; r < kRows; r += kLanes) {
      hn::Store(Log(d64, hn::Load(d64, survey[0] + r)), d64, log_n + r);
      hn::Store(Log(d64, hn::Load(d64, survey[1] + r)), d64, log_ties + r);
    }
    for (size_t r = 0; r < kStride; ++r) goal[r] = target.low, gamma_[r] = 1;
    for (size_t r = 0; r < kRows; ++r) {
      done[r] = alone[r] = r < count_ && !(target.low < log_n[r] && target.high > log_ties[r]);
      done[r] |= r >= count_;
    }
    const bool clips = target.low < target.high;
    if (clips) {
      for (size_t g = 0; g < groups_; ++g) Evaluate(g);
      for (size_t r = 0; r < count_; ++r) {
        const double h = LogOf(sums_[0][r]) - sums_[1][r] / sums_[0][r];
        done[r] |= h >= target.low && h <= target.high;
        if (h > target.high) goal[r] = target.high;
      }
    }
    EntropySearch search[kSearches];
    for (size_t s = 0; s < kSearches; ++s) {
      const size_t r = s * kLanes;
      const V64 finite = hn::Load(d64, survey[0] + r), mean = hn::Div(hn::Load(d64, survey[2] + r), finite);
      const V64 variance = hn::NegMulAdd(mean, mean, hn::Div(hn::Load(d64, survey[3] + r), finite));
      search[s] = EntropySearch(hn::Load(d64, goal + r), hn::Load(d64, log_ties + r), hn::Load(d64, log_n + r));
      hn::Store(search[s].Start(variance, hn::Zero(d64)), d64, next + r);
    }
    // What stays out of reach of so many evaluations is done alone.
    for (int evaluations = 0; evaluations < 20; ++evaluations) {
      bool all = true, fresh[kRows / kGroup] = {};
      for (size_t r = 0; r < count_; ++r) {
        if (done[r]) continue;
        gamma_[r] = next[r];
        // Where gamma, or a square of a score, leaves float32's range; NaN too.
        if (!(gamma_[r] > 0x1p-30 && gamma_[r] < 0x1p30)) {
          gamma_[r] = 1, done[r] = alone[r] = true;
          continue;
        }
        all = false, fresh[r / kGroup] = true;
      }
      if (all) break;
      for (size_t g = 0; g < groups_; ++g) {
        if (fresh[g]) Evaluate(g);
      }
      for (size_t s = 0; s < kSearches; ++s) {
        const size_t r = s * kLanes;
        const V64 at[4] = {hn::Load(d64, sums_[0] + r), hn::Load(d64, sums_[1] + r), hn::Load(d64, sums_[2] + r),
                           hn::Load(d64, sums_[3] + r)};
        hn::Store(search[s].Next(hn::Load(d64, gamma_ + r), at), d64, next + r);
        hn::Store(search[s].entropy(), d64, entropy + r);
      }
      for (size_t r = 0; r < count_; ++r) done[r] |= std::abs(entropy[r] - goal[r]) <= NarrowTolerance(goal[r], 1);
    }
    for (size_t g = 0; g < groups_; ++g) {
      HWY_ALIGN float inverse[16];
      for (size_t r = 0; r < kGroup; ++r) inverse[r] = static_cast<float>(1 / sums_[0][g * kGroup + r]);
      const V factor = rows_[g].Spread(inverse);
      masses_[g].Store(p + g * kGroup, HWY_MIN(kGroup, count_ - g * kGroup), [&](V e) HWY_ATTR { return hn::Mul(e, factor); });
    }
    for (size_t r = 0; r < count_; ++r) {
      if (!done[r] || alone[r]) MapAlone(target, r, p[r]);
    }
  }

 private:
  // Rows and what a vector of the last ones may reach beyond.
  static constexpr size_t kStride = 32;

  HWY_INLINE void Survey(double (&survey)[4][kStride]) {
    const V absent = hn::Set(D(), -kInfinity<float>), one = hn::Set(D(), 1.0f);
    for (size_t g = 0; g < groups_; ++g) {
      const V max = max_[g];
      V least = hn::Zero(D());
      double sums[4][16];
      rows_[g].SumsInto<4>(masses_[g], sums, [&](V x, V* terms) HWY_ATTR {
        const auto finite = hn::Ne(x, absent);
        const V z = hn::Sub(x, max);
        least = hn::Min(z, least);
        terms[0] = hn::IfThenElseZero(finite, one);
        terms[1] = hn::IfThenElseZero(hn::Eq(x, max), one);
        terms[2] = hn::IfThenElseZero(finite, z);
        terms[3] = hn::Mul(terms[2], terms[2]);
      });
      range_[g] = -FoldLanes(D(), least, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
      for (size_t k = 0; k < 4; ++k) {
        for (size_t r = 0; r < kGroup; ++r) survey[k][g * kGroup + r] = sums[k][r];
      }
    }
  }

  // The masses of a group at gamma_, and their moments. Where none comes near 2^-126, comparisons with that are left out; the
  // results are the same.
  HWY_INLINE void Evaluate(size_t g) {
    double most = 0;
    for (size_t r = 0; r < kGroup; ++r) most = HWY_MAX(most, gamma_[g * kGroup + r]);
    most* range_[g] < kNearReach ? Evaluate<false>(g) : Evaluate<true>(g);
  }

  template <bool kFar>
  HWY_INLINE void Evaluate(size_t g) {
    HWY_ALIGN float high[16], low[16], factor[16], lowest[16];
    for (size_t r = 0; r < kGroup; ++r) {
      const double gamma = gamma_[g * kGroup + r];
      ExpOfGamma::Split(gamma, high + r, low + r);
      factor[r] = static_cast<float>(gamma);
      if constexpr (kFar) lowest[r] = static_cast<float>(-kSmallestNormal / gamma);
    }
    const ShortRows<float>& rows = rows_[g];
    const ExpOfGamma exp(rows.Spread(high), rows.Spread(low));
    const V scale = rows.Spread(factor), bound = kFar ? rows.Spread(lowest) : scale, max = max_[g];
    double sums[4][16];
    rows.SumsInto<4>(masses_[g], sums, [&](V x, V* terms) HWY_ATTR {
      V z = hn::Sub(x, max);
      if constexpr (kFar) {
        const auto out = hn::Lt(z, bound);
        z = MaxKeepNaN(bound, z);
        terms[0] = hn::IfThenZeroElse(out, exp(z));
      } else {
        terms[0] = exp(z);
      }
      const V a = hn::Mul(z, scale);
      terms[1] = hn::Mul(terms[0], a);
      terms[2] = hn::Mul(terms[1], a);
      terms[3] = hn::Mul(terms[2], a);
    });
    for (size_t k = 0; k < 4; ++k) {
      for (size_t r = 0; r < kGroup; ++r) sums_[k][g * kGroup + r] = sums[k][r];
    }
  }

  HWY_NOINLINE void MapAlone(EntropyTarget target, size_t r, float* p) const {
    constexpr size_t kLongest = ShortRows<float>::kLongest;
    const D d;
    const ShortRows<float>& rows = rows_[r / kGroup];
    HWY_ALIGN float row_max[16];
    hn::Store(max_[r / kGroup], d, row_max);
    float x[kLongest];
    double scratch[2 * kLongest + 1];
    for (size_t i = 0; i < rows.size(); ++i) x[i] = rows.At(r % kGroup, i);
    EntropyRow(d, target, x, rows.size(), row_max[r % kGroup], p, {scratch, false});
  }

  const V* max_;
  const ShortRows<float>* rows_;
  size_t groups_, count_;
  ShortRows<float> masses_[kRows / kGroup];
  double range_[kRows / kGroup];  // of the scores, infinite where one is absent
  HWY_ALIGN double gamma_[kStride], sums_[4][kStride] = {};
};

HWY_INLINE void MapShortRows(const EntropyNormalize& op, const hn::Vec<RowTag<float>>* max, ShortRows<float>* rows,
                             float* const* p, size_t count) {
  EntropyShortRows(max, rows, count).Map(TargetOf(op), p);
}

HWY_INLINE void MapShortRows(const EntropyClip& op, const hn::Vec<RowTag<float>>* max, ShortRows<float>* rows, float* const* p,
                             size_t count) {
  EntropyShortRows(max, rows, count).Map(TargetOf(op), p);
}

// What the gradients need of a row, in float64.
struct EntropyGradient {
  double gamma;           // times 2^exponent of the relative scores
  double mean_z, mean_g;  // under p, of g less that at the maximum
  double top_g;           // g there
  double slope;           // the regression of g on gamma z: -d <g, p> / d H
  bool fixed;             // p does not change with x: the target is out of reach, or the scores are equal
};

// gamma is the regression of log p on z under p: a rounding of p changes it by eps / sd(log p), which is as well as p knows
// it. Means first, then centred products: the scores may lie far from 0 against their spread. Where nearly all mass is at the
// maximum, z and g relative to it keep the digits of the little that remains. log p waits in scratch.
template <class T>
HWY_INLINE EntropyGradient GradientOf(const WideScores<T>& relative, const T* x, const T* p, const T* g, size_t n, double top_g,
                                      double* scratch) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  const V zero = hn::Zero(d), shift_g = hn::Set(d, top_g);
  const auto z_of = [&](size_t i, size_t count, hn::Mask<RowTag<double>> absent) HWY_ATTR {
    return hn::IfThenZeroElse(absent, relative(LoadWide(RowTag<double>(), x + i, count, T(0))));
  };
  double means[4];
  Sums(d, n, means, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V pi = LoadWide(RowTag<double>(), p + i, count, T(0));
    const auto absent = hn::Eq(pi, zero);
    const V log_p = hn::IfThenZeroElse(absent, Log(d, pi));
    StoreUpTo(log_p, d, count, scratch + i);
    terms[0] = pi;
    terms[1] = hn::Mul(pi, z_of(i, count, absent));
    terms[2] = hn::Mul(pi, log_p);
    terms[3] = hn::IfThenZeroElse(absent, hn::Mul(pi, hn::Sub(LoadWide(RowTag<double>(), g + i, count, T(0)), shift_g)));
  });
  const double mean_z = means[1] / means[0], mean_log = means[2] / means[0], mean_g = means[3] / means[0];
  const V center_z = hn::Set(d, mean_z), center_log = hn::Set(d, mean_log), center_g = hn::Set(d, mean_g);
  double products[3];
  Sums(d, n, products, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V pi = LoadWide(RowTag<double>(), p + i, count, T(0));
    const auto absent = hn::Eq(pi, zero);
    const V z = hn::Sub(z_of(i, count, absent), center_z);
    const V weighted = hn::IfThenZeroElse(absent, hn::Mul(pi, z));
    terms[0] = hn::Mul(weighted, z);
    terms[1] = hn::Mul(weighted, hn::Sub(LoadUpTo(d, scratch + i, count, 0.0), center_log));
    terms[2] = hn::IfThenZeroElse(
        absent, hn::Mul(weighted, hn::Sub(hn::Sub(LoadWide(RowTag<double>(), g + i, count, T(0)), shift_g), center_g)));
  });
  const double gamma = products[1] / products[0];
  return {gamma, mean_z, mean_g, top_g, products[2] / products[0] / gamma, !(products[0] > 0)};
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

// g at the first score that equals the maximum.
template <class T>
HWY_INLINE double GradientAtMax(const T* x, const T* g, size_t n, T max) {
  for (size_t i = 0; i < n; ++i) {
    if (x[i] == max) return static_cast<double>(g[i]);
  }
  return 0;
}

// The gradients' numbers, 0 where p is. Where x = log q is given as q, they become gradients in q: divided by it.
template <class T>
HWY_INLINE void StoreGradient(const T* p, const T* q, const double* gradient, size_t n, T* dx) {
  for (size_t i = 0; i < n; ++i) {
    const double divided = q == nullptr ? gradient[i] : gradient[i] / static_cast<double>(q[i]);
    dx[i] = p[i] == 0 ? T(0) : static_cast<T>(divided);
  }
}

// dx = gamma p ((g - mean g) - slope gamma (z - mean z)), by q if it is given.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void EntropyVjpRow(D d, const T* x, const T* q, const T* p, const T* g, size_t n, T* dx, double* scratch) {
  const RowTag<double> d64;
  using V = hn::Vec<RowTag<double>>;
  if (p[0] != p[0]) return FillRow(d, kNaN<T>, n, dx);
  const SupportRange<T> range = RangeOfSupport(d, x, p, n);
  const T max = RowMax(d, x, n);
  if (!(range.least_p < range.most_p) || !(range.least_x < max)) return FillRow(d, T(0), n, dx);
  const WideScores<T> relative(max, range.least_x);
  const EntropyGradient row = GradientOf(relative, x, p, g, n, GradientAtMax(x, g, n, max), scratch);
  if (row.fixed) return FillRow(d, T(0), n, dx);
  const V gamma = hn::Set(d64, row.gamma), slope = hn::Set(d64, row.slope * row.gamma);
  const V mean_z = hn::Set(d64, row.mean_z), mean_g = hn::Set(d64, row.mean_g), top_g = hn::Set(d64, row.top_g);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const V pi = LoadWide(RowTag<double>(), p + i, count, T(0));
    const V z = hn::Sub(relative(LoadWide(RowTag<double>(), x + i, count, T(0))), mean_z);
    const V rest = hn::NegMulAdd(slope, z, hn::Sub(hn::Sub(LoadWide(RowTag<double>(), g + i, count, T(0)), top_g), mean_g));
    StoreUpTo(relative.Scale(hn::Mul(gamma, hn::Mul(pi, rest))), d64, count, scratch + i);
  });
  StoreGradient(p, q, scratch, n, dx);
}

// d <g, p> / dH; dp / dH = -u / (gamma Var x).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double EntropyTargetVjpRow(D d, const T* x, const T* p, const T* g, size_t n, double* scratch) {
  if (p[0] != p[0]) return kNaN<double>;
  const SupportRange<T> range = RangeOfSupport(d, x, p, n);
  const T max = RowMax(d, x, n);
  if (!(range.least_p < range.most_p) || !(range.least_x < max)) return 0;
  const EntropyGradient row = GradientOf(WideScores<T>(max, range.least_x), x, p, g, n, GradientAtMax(x, g, n, max), scratch);
  return row.fixed ? 0 : -row.slope;
}

// The scores of a row, which wait behind the scratch of the gradients where x holds probabilities: q is then x, else null.
template <class T>
struct GradientInput {
  const T *x, *q;

  template <class Op>
  HWY_INLINE GradientInput(const Op& op, const T* given, size_t n, Workspace workspace) : x(given), q(nullptr) {
    if (op.input != Input::probs) return;
    T* const scores = reinterpret_cast<T*>(workspace.scratch + n + 16);
    ScoresOfProbs(given, n, scores);
    x = scores, q = given;
  }
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void VjpRow(D d, const EntropyNormalize& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                       Workspace workspace) {
  const GradientInput<T> in(op, x, n, workspace);
  EntropyVjpRow(d, in.x, in.q, p, g, n, dx, workspace.scratch);
}

// dH / d perplexity = 1 / perplexity.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE ParamValues<EntropyNormalize> ParamVjpRow(D d, const EntropyNormalize& op, const T* x, const T* p, const T* g,
                                                     size_t n, Workspace workspace) {
  const double by_entropy = EntropyTargetVjpRow(d, GradientInput<T>(op, x, n, workspace).x, p, g, n, workspace.scratch);
  if (op.perplexity) return {0, by_entropy / *op.perplexity};
  return {by_entropy, 0};
}

enum class IntervalEnd { kNone, kMin, kMax };

// Which end of the interval holds the entropy of p, as far as its tolerance tells.
template <class T>
HWY_INLINE IntervalEnd HoldingEnd(const EntropyClip& op, const T* p, size_t n) {
  const RowTag<double> d;
  const double entropy = -Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto pi = LoadWide(RowTag<double>(), p + i, count, T(0));
    return hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d)), hn::Mul(pi, Log(d, pi)));
  });
  constexpr double kTolerance = sizeof(T) == 4 ? 1e-6 : 1e-12;
  if (op.min_entropy && entropy <= *op.min_entropy + kTolerance * HWY_MAX(1.0, *op.min_entropy)) return IntervalEnd::kMin;
  if (op.max_entropy && entropy >= *op.max_entropy - kTolerance * HWY_MAX(1.0, *op.max_entropy)) return IntervalEnd::kMax;
  return IntervalEnd::kNone;
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void VjpRow(D d, const EntropyClip& op, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace workspace) {
  const bool free = HoldingEnd(op, p, n) == IntervalEnd::kNone;
  if (free && op.input != Input::probs) return VjpRow(d, Softmax{}, x, p, g, n, dx, workspace);
  const GradientInput<T> in(op, x, n, workspace);
  if (!free) return EntropyVjpRow(d, in.x, in.q, p, g, n, dx, workspace.scratch);
  const double mean = DotWithDistribution(d, p, g, n);
  for (size_t i = 0; i < n; ++i) workspace.scratch[i] = static_cast<double>(p[i]) * (static_cast<double>(g[i]) - mean);
  StoreGradient(p, in.q, workspace.scratch, n, dx);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE ParamValues<EntropyClip> ParamVjpRow(D d, const EntropyClip& op, const T* x, const T* p, const T* g, size_t n,
                                                Workspace workspace) {
  const IntervalEnd end = HoldingEnd(op, p, n);
  if (end == IntervalEnd::kNone) return {};
  const double by_entropy = EntropyTargetVjpRow(d, GradientInput<T>(op, x, n, workspace).x, p, g, n, workspace.scratch);
  if (end == IntervalEnd::kMin) return {by_entropy, 0};
  return {0, by_entropy};
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_

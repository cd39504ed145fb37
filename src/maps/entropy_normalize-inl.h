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
#include "src/rows/narrow_entropy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

HWY_INLINE EntropyTarget TargetOf(const EntropyNormalize& op) {
  const double target = op.entropy ? *op.entropy : LogNumber(*op.perplexity);
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

// softmax(gamma x) by sums in float64. A target that cannot be met, or only by gamma = 0 or infinity, is met by the limits:
// uniform over the finite scores or over those at the maximum.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void WideEntropyRow(D d, EntropyTarget target, const T* x, size_t n, T max, T* p, Workspace workspace) {
  const RowSurvey<T> row = Survey(d, x, n, max);
  if (row.nan) return FillRow(d, kNaN<T>, n, p);
  if (row.least == max || target.low >= LogNumber(row.finite)) return UniformRow(d, x, n, row.least, row.finite, p);
  if (target.high <= LogNumber(row.ties)) return UniformRow(d, x, n, max, row.ties, p);
  double sum;
  FindGammaWide(row, x, n, target, {}, workspace.scratch, &sum);
  const double inverse = 1 / sum;
  for (size_t i = 0; i < n; ++i) p[i] = static_cast<T>(workspace.scratch[i] * inverse);
}

// Up to NarrowRows::kRows rows with finite maxima; p[r] may be x[r] where there is one.
HWY_INLINE void NarrowEntropyRows(EntropyTarget target, const float* const* x, size_t n, const float* max, float* const* p,
                                  size_t count, Workspace workspace) {
  const RowTag<float> d;
  float* const memory = reinterpret_cast<float*>(workspace.scratch);
  const bool in_place = p[0] == x[0];
  NarrowRow rows[NarrowRows::kRows];
  for (size_t r = 0; r < count; ++r) {
    NarrowRow& row = rows[r];
    row.x = x[r], row.p = in_place ? memory : p[r], row.memory = count == 1 ? memory + n : p[r];
    row.few = {row.memory, 0, nullptr, 0, 0};
    if (n >= kLongRow) row.few = Condense(x[r], n, max[r], row.memory, &row.survey);
    if (row.few.top_count == 0) row.survey = Survey(d, x[r], n, max[r]);
    row.survey.variance = row.survey.nan ? -1 : row.survey.variance;  // not for them
  }
  NarrowRows(rows, count, n).Map(target);
  for (size_t r = 0; r < count; ++r) {
    if (rows[r].stage != NarrowRow::Stage::kDone) {
      WideEntropyRow(d, target, x[r], n, max[r], p[r], workspace);
    } else if (in_place) {
      std::memcpy(p[r], memory, n * sizeof(float));
    }
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void EntropyRow(D d, EntropyTarget target, const T* x, size_t n, T max, T* p, Workspace workspace) {
  if constexpr (sizeof(T) == 4) {
    (void)d;
    NarrowEntropyRows(target, &x, n, &max, &p, 1, workspace);
  } else {
    WideEntropyRow(d, target, x, n, max, p, workspace);
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRow(D d, const EntropyNormalize& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  EntropyRow(d, TargetOf(op), x, n, max, p, workspace);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRow(D d, const EntropyClip& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  EntropyRow(d, TargetOf(op), x, n, max, p, workspace);
}

// Long rows gain nothing by others.
template <class T, class Op>
requires std::is_same_v<Op, EntropyNormalize> || std::is_same_v<Op, EntropyClip> HWY_INLINE size_t RowsAtOnce(const Op& op,
                                                                                                              size_t n) {
  return n < kLongRow && op.input != Input::probs ? NarrowRows::kRows : 1;
}

HWY_INLINE void MapRowsAtOnce(const EntropyNormalize& op, const float* const* x, size_t n, const float* max, float* const* p,
                              size_t count, Workspace workspace) {
  NarrowEntropyRows(TargetOf(op), x, n, max, p, count, workspace);
}

HWY_INLINE void MapRowsAtOnce(const EntropyClip& op, const float* const* x, size_t n, const float* max, float* const* p,
                              size_t count, Workspace workspace) {
  NarrowEntropyRows(TargetOf(op), x, n, max, p, count, workspace);
}

// Probabilities become scores row by row.
HWY_INLINE bool HasShortRows(const EntropyNormalize& op) { return op.input != Input::probs; }
HWY_INLINE bool HasShortRows(const EntropyClip& op) { return op.input != Input::probs; }

// Side by side, the rows' searches wait for each other's results and not for their own.
template <>
inline constexpr size_t kShortGroups<EntropyNormalize> = 4;
template <>
inline constexpr size_t kShortGroups<EntropyClip> = 4;

// The same for groups of rows of at most ShortRows::kLongest in float32, in step: first evaluations for the moments, rounded
// as float32 sums are, until every row is near; then those that confirm the entropy. A row that is there keeps its gamma while
// the others go on. One that is out of the ordinary is done alone afterwards.
class EntropyShortRows {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  static constexpr size_t kGroup = ShortRows<float>::kRows, kLanes = hn::MaxLanes(D64());
  static constexpr size_t kGroups = 4, kRows = kGroups * kGroup;
  static constexpr size_t kSearches = (kRows + kLanes - 1) / kLanes;

  HWY_INLINE EntropyShortRows(const V* max, const ShortRows<float>* rows, size_t count)
      : max_(max), rows_(rows), groups_((count + kGroup - 1) / kGroup), count_(count) {
    for (size_t g = 0; g < groups_; ++g) masses_[g].Resize(rows[g].size());
  }

  HWY_NOINLINE void Map(EntropyTarget target, float* const* p) {
    Survey();
    Begin(target);
    if (target.low < target.high) Try(target);
    Start();
    // What stays out of reach of so many evaluations is done alone.
    for (int evaluations = 0; evaluations < 20 && FindMoments(); ++evaluations) Approach();
    for (int evaluations = 0; evaluations < 6 && FindMasses(); ++evaluations) Confirm();
    for (size_t g = 0; g < groups_; ++g) {
      HWY_ALIGN float inverse[16];
      for (size_t r = 0; r < kGroup; ++r) inverse[r] = static_cast<float>(1 / sums_[0][g * kGroup + r]);
      const V factor = rows_[g].Spread(inverse);
      masses_[g].Store(p + g * kGroup, RowsOf(g), [&](V e) HWY_ATTR { return hn::Mul(e, factor); });
    }
    for (size_t r = 0; r < count_; ++r) {
      if (state_[r] != kThere) MapAlone(target, r, p[r]);
    }
  }

 private:
  // Where a row's search stands; a number, for it is kept in lanes.
  static constexpr double kAlone = 0, kFar = 1, kNear = 2, kThere = 3;

  static HWY_INLINE V64 At(const double* values, size_t s) { return hn::Load(D64(), values + s * kLanes); }
  static HWY_INLINE V64 Wide(const float* values, size_t s) {
    return hn::PromoteTo(D64(), hn::LoadU(hn::Rebind<float, D64>(), values + s * kLanes));
  }
  static HWY_INLINE void Put(V64 v, double* values, size_t s) { hn::Store(v, D64(), values + s * kLanes); }
  static HWY_INLINE void PutNarrow(V64 v, float* values, size_t s) {
    hn::StoreU(hn::DemoteTo(hn::Rebind<float, D64>(), v), hn::Rebind<float, D64>(), values + s * kLanes);
  }
  static HWY_INLINE V64 Number(double x) { return hn::Set(D64(), x); }

  // Sums of a group to rough_. Every block of 128 bits has all rows: what is stored beyond them is the next group's to replace.
  template <size_t K>
  HWY_INLINE void Keep(const V (&sums)[K], size_t g) {
    for (size_t k = 0; k < K; ++k) hn::StoreU(sums[k], D(), rough_[k] + g * kGroup);
  }

  // A row's finite scores, those equal to the maximum, and sums of powers.
  HWY_INLINE void Survey() {
    for (size_t g = 0; g < groups_; ++g) {
      const bool whole = rows_[g].size() % 16 == 0;
      double least = whole ? Survey<false>(g) : Survey<true>(g);
      if (least == -kInfinity<double> && whole) least = Survey<true>(g);
      range_[g] = -least;
    }
  }

  template <bool kAbsent>
  HWY_INLINE double Survey(size_t g) {
    const D d;
    const V absent = hn::Set(d, -kInfinity<float>), one = hn::Set(d, 1.0f), max = max_[g], zero = hn::Zero(d);
    V least = zero, sums[5];
    rows_[g].FusedSums(sums, [&](V x, V* acc) HWY_ATTR {
      V z = hn::Sub(x, max);
      least = hn::Min(z, least);
      if constexpr (kAbsent) {
        const auto out = hn::Eq(x, absent);
        z = hn::IfThenZeroElse(out, z);
        acc[4] = hn::Add(acc[4], hn::IfThenZeroElse(out, one));
      }
      const V z2 = hn::Mul(z, z);
      acc[0] = hn::Add(acc[0], z);
      acc[1] = hn::Add(acc[1], z2);
      acc[2] = hn::MulAdd(z2, z, acc[2]);
      acc[3] = hn::Add(acc[3], hn::IfThenElseZero(hn::Eq(x, max), one));
    });
    if constexpr (!kAbsent) sums[4] = hn::Set(d, static_cast<float>(rows_[g].size()));
    Keep(sums, g);
    return static_cast<double>(MinLane(d, least));
  }

  HWY_INLINE void Begin(EntropyTarget target) {
    const D64 d;
    const V64 low = Number(target.low), high = Number(target.high);
    for (size_t s = 0; s < kSearches; ++s) {
      const V64 n = Wide(rough_[4], s), inverse = hn::Div(Number(1), n), mean = hn::Mul(Wide(rough_[0], s), inverse);
      const V64 square = hn::Mul(Wide(rough_[1], s), inverse), cube = hn::Mul(Wide(rough_[2], s), inverse);
      const V64 rest = hn::NegMulAdd(hn::Mul(Number(2), mean), mean, hn::Mul(Number(3), square));
      const V64 log_n = Log(d, n), log_ties = Log(d, Wide(rough_[3], s));
      Put(hn::NegMulAdd(mean, mean, square), variance_, s);
      Put(hn::NegMulAdd(mean, rest, cube), third_, s);
      Put(log_n, log_n_, s);
      Put(log_ties, log_ties_, s);
      Put(low, goal_, s);
      Put(Number(1), gamma_, s);
      const auto inside = hn::And(hn::Lt(low, log_n), hn::Gt(high, log_ties));
      Put(hn::IfThenElse(inside, Number(kFar), Number(kAlone)), state_, s);
    }
    // Rows that are not there take no part.
    for (size_t r = count_; r < kRows; ++r) state_[r] = kThere, sums_[0][r] = 1, sums_[1][r] = 0;
  }

  // What has an entropy in the interval as it is, is there.
  HWY_INLINE void Try(EntropyTarget target) {
    for (size_t s = 0; s < kSearches; ++s) Split(At(gamma_, s), s);
    for (size_t g = 0; g < groups_; ++g) Masses(g);
    for (size_t r = 0; r < count_; ++r) {
      const double h = LogNumber(sums_[0][r]) - sums_[1][r] / sums_[0][r];
      if (h >= target.low && h <= target.high && state_[r] == kFar) state_[r] = kThere;
      if (h > target.high) goal_[r] = target.high;
    }
  }

  HWY_INLINE void Start() {
    for (size_t s = 0; s < kSearches; ++s) {
      search_[s] = EntropySearch(At(goal_, s), At(log_ties_, s), At(log_n_, s));
      const V64 start = search_[s].Start(At(variance_, s), At(third_, s));
      Put(hn::IfThenElse(hn::Eq(At(state_, s), Number(kFar)), start, At(gamma_, s)), gamma_, s);
    }
  }

  // gamma log2(e) in two parts, see ExpOfGamma. Returns that of the upper alone.
  HWY_INLINE V64 Split(V64 gamma, size_t s) {
    const V64 c = hn::Mul(gamma, Number(0x1.71547652b82fep+0));
    PutNarrow(hn::Mul(c, Number(1 - 0x1p-24)), high_, s);
    const V64 high = Wide(high_, s);
    PutNarrow(hn::Sub(c, high), low_, s);
    PutNarrow(gamma, narrow_gamma_, s);
    return hn::Mul(high, Number(0x1.62e42fefa39efp-1));
  }

  HWY_INLINE size_t RowsOf(size_t g) const { return HWY_MIN(kGroup, count_ - g * kGroup); }

  HWY_INLINE bool AnyIs(double state, size_t g) const {
    bool any = false;
    for (size_t r = 0; r < kGroup; ++r) any |= state_[g * kGroup + r] == state;
    return any;
  }

  // Moments of the groups with a row that is far; false if none is.
  HWY_INLINE bool FindMoments() {
    for (size_t s = 0; s < kSearches; ++s) {
      // Where gamma, or a power of a score, leaves float32's range; NaN too.
      const V64 gamma = At(gamma_, s), state = At(state_, s);
      const auto good = hn::And(hn::Gt(gamma, Number(0x1p-30)), hn::Lt(gamma, Number(0x1p30)));
      const V64 used = hn::IfThenElse(good, gamma, Number(1));
      Put(hn::IfThenElse(good, state, Number(kAlone)), state_, s);
      Put(used, gamma_, s);
      Put(Split(used, s), rough_gamma_, s);
    }
    bool found = false;
    for (size_t g = 0; g < groups_; ++g) {
      if (!AnyIs(kFar, g)) continue;
      found = true;
      scores_read += RowsOf(g) * rows_[g].size();
      Reach(g) < kNearReach ? Moments<false>(g) : Moments<true>(g);
    }
    return found;
  }

  // The largest |gamma z| of a group. Where none comes near 2^-126, comparisons with that are left out; the results are the
  // same.
  HWY_INLINE double Reach(size_t g) const {
    double most = 0;
    for (size_t r = 0; r < kGroup; ++r) most = HWY_MAX(most, gamma_[g * kGroup + r]);
    return most * range_[g];
  }

  // As MomentsNarrow.
  template <bool kBounded>
  HWY_INLINE void Moments(size_t g) {
    const ShortRows<float>& rows = rows_[g];
    const V high = rows.Spread(high_ + g * kGroup), max = max_[g];
    const ExpOfGamma exp(high, high);
    V lowest = max;
    if constexpr (kBounded) lowest = hn::Div(hn::Set(D(), static_cast<float>(-kNearReach * 0x1.71547652b82fep+0)), high);
    V sums[4];
    rows.FusedSums(sums, [&](V x, V* acc) HWY_ATTR { AddMoments<kBounded>(exp, hn::Sub(x, max), lowest, acc); });
    Keep(sums, g);
  }

  // The next gamma of every row that was far.
  HWY_INLINE void Approach() {
    for (size_t s = 0; s < kSearches; ++s) {
      const V64 gamma = At(rough_gamma_, s), gamma2 = hn::Mul(gamma, gamma), state = At(state_, s);
      const V64 at[4] = {Wide(rough_[0], s), hn::Mul(Wide(rough_[1], s), gamma), hn::Mul(Wide(rough_[2], s), gamma2),
                         hn::Mul(Wide(rough_[3], s), hn::Mul(gamma2, gamma))};
      const V64 next = search_[s].Next(gamma, at);
      const auto far = hn::Eq(state, Number(kFar)), close = hn::Le(hn::Abs(search_[s].residual()), Number(0.015));
      const auto near = hn::Or(close, search_[s].IsLost());
      Put(hn::IfThenElse(hn::And(far, hn::Or(close, hn::Not(near))), next, At(gamma_, s)), gamma_, s);
      Put(hn::IfThenElse(far, search_[s].variance(), At(variance_, s)), variance_, s);
      Put(hn::IfThenElse(hn::And(far, near), Number(kNear), state), state_, s);
    }
  }

  // Masses of the groups with a row that is near; false if none is.
  HWY_INLINE bool FindMasses() {
    for (size_t s = 0; s < kSearches; ++s) Split(At(gamma_, s), s);
    bool found = false;
    for (size_t g = 0; g < groups_; ++g) {
      if (!AnyIs(kNear, g)) continue;
      found = true;
      Masses(g);
    }
    return found;
  }

  HWY_INLINE void Masses(size_t g) {
    scores_read += RowsOf(g) * rows_[g].size();
    Reach(g) < kNearReach ? Masses<false>(g) : Masses<true>(g);
  }

  template <bool kBounded>
  HWY_INLINE void Masses(size_t g) {
    const ShortRows<float>& rows = rows_[g];
    const ExpOfGamma exp(rows.Spread(high_ + g * kGroup), rows.Spread(low_ + g * kGroup));
    const V gamma = rows.Spread(narrow_gamma_ + g * kGroup), max = max_[g];
    V bound = max;
    if constexpr (kBounded) bound = hn::Div(hn::Set(D(), static_cast<float>(-kSmallestNormal)), gamma);
    double sums[2][16];
    rows.SumsInto<2>(masses_[g], sums, [&](V x, V* terms) HWY_ATTR {
      V z = hn::Sub(x, max);
      if constexpr (kBounded) {
        const auto out = hn::Lt(z, bound);
        z = MaxKeepNaN(bound, z);
        terms[0] = hn::IfThenZeroElse(out, exp(z));
      } else {
        terms[0] = exp(z);
      }
      terms[1] = hn::Mul(terms[0], hn::Mul(z, gamma));
    });
    for (size_t k = 0; k < 2; ++k) {
      for (size_t r = 0; r < kGroup; ++r) sums_[k][g * kGroup + r] = sums[k][r];
    }
  }

  // Accepts the masses of a row that was near, or takes a last small step.
  HWY_INLINE void Confirm() {
    const D64 d;
    for (size_t s = 0; s < kSearches; ++s) {
      const V64 gamma = At(gamma_, s), state = At(state_, s), sum = At(sums_[0], s), goal = At(goal_, s);
      const V64 excess = hn::Sub(hn::Sub(Log(d, sum), hn::Div(At(sums_[1], s), sum)), goal);
      const V64 step = hn::Div(excess, At(variance_, s)), tolerance = hn::Mul(Number(2e-7), hn::Max(goal, Number(1)));
      const auto near = hn::Eq(state, Number(kNear)), there = hn::Le(hn::Abs(excess), tolerance);
      const auto small = hn::Lt(hn::Abs(step), Number(0.5));
      const V64 after = hn::IfThenElse(there, Number(kThere), hn::IfThenElse(small, state, Number(kAlone)));
      Put(hn::IfThenElse(near, after, state), state_, s);
      Put(hn::IfThenElse(hn::Eq(after, Number(kNear)), hn::MulAdd(gamma, step, gamma), gamma), gamma_, s);
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
    WideEntropyRow(d, target, x, rows.size(), row_max[r % kGroup], p, {scratch, false});
  }

  const V* max_;
  const ShortRows<float>* rows_;
  size_t groups_, count_;
  ShortRows<float> masses_[kGroups];
  double range_[kGroups];  // of the scores, infinite where one is absent
  EntropySearch search_[kSearches];
  HWY_ALIGN double gamma_[kRows], rough_gamma_[kRows], goal_[kRows], log_n_[kRows], log_ties_[kRows];
  HWY_ALIGN double variance_[kRows], third_[kRows], state_[kRows], sums_[2][kRows] = {};
  HWY_ALIGN float high_[kRows], low_[kRows], narrow_gamma_[kRows];
  HWY_ALIGN float rough_[5][kRows + 16] = {};
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
  const D64 d;
  const V64 zero = hn::Zero(d), shift_g = hn::Set(d, top_g);
  const auto z_of = [&](size_t i, size_t count, hn::Mask<D64> absent)
                        HWY_ATTR { return hn::IfThenZeroElse(absent, relative(LoadWide(D64(), x + i, count, T(0)))); };
  double means[4];
  Sums(d, n, means, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 pi = LoadWide(D64(), p + i, count, T(0));
    const auto absent = hn::Eq(pi, zero);
    const V64 log_p = hn::IfThenZeroElse(absent, Log(d, pi));
    StoreUpTo(log_p, d, count, scratch + i);
    terms[0] = pi;
    terms[1] = hn::Mul(pi, z_of(i, count, absent));
    terms[2] = hn::Mul(pi, log_p);
    terms[3] = hn::IfThenZeroElse(absent, hn::Mul(pi, hn::Sub(LoadWide(D64(), g + i, count, T(0)), shift_g)));
  });
  const double mean_z = means[1] / means[0], mean_log = means[2] / means[0], mean_g = means[3] / means[0];
  const V64 center_z = hn::Set(d, mean_z), center_log = hn::Set(d, mean_log), center_g = hn::Set(d, mean_g);
  double products[3];
  Sums(d, n, products, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 pi = LoadWide(D64(), p + i, count, T(0));
    const auto absent = hn::Eq(pi, zero);
    const V64 z = hn::Sub(z_of(i, count, absent), center_z);
    const V64 weighted = hn::IfThenZeroElse(absent, hn::Mul(pi, z));
    terms[0] = hn::Mul(weighted, z);
    terms[1] = hn::Mul(weighted, hn::Sub(LoadUpTo(d, scratch + i, count, 0.0), center_log));
    terms[2] =
        hn::IfThenZeroElse(absent, hn::Mul(weighted, hn::Sub(hn::Sub(LoadWide(D64(), g + i, count, T(0)), shift_g), center_g)));
  });
  const double gamma = products[1] / products[0];
  return {gamma, mean_z, mean_g, top_g, products[2] / products[0] / gamma, !(products[0] > 0 && gamma > 0)};
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
  return {MinLane(d, least_p), MaxLane(d, most_p), MinLane(d, least_x)};
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
  const D64 d64;
  if (p[0] != p[0]) return FillRow(d, kNaN<T>, n, dx);
  const SupportRange<T> range = RangeOfSupport(d, x, p, n);
  const T max = RowMax(d, x, n);
  if (!(range.least_p < range.most_p) || !(range.least_x < max)) return FillRow(d, T(0), n, dx);
  if (!IsFinite(range.least_x) || !IsFinite(max)) return FillRow(d, kNaN<T>, n, dx);  // a p that is not of this x
  const WideScores<T> relative(max, range.least_x);
  const EntropyGradient row = GradientOf(relative, x, p, g, n, GradientAtMax(x, g, n, max), scratch);
  if (row.fixed) return FillRow(d, T(0), n, dx);
  const V64 gamma = hn::Set(d64, row.gamma), slope = hn::Set(d64, row.slope * row.gamma);
  const V64 mean_z = hn::Set(d64, row.mean_z), mean_g = hn::Set(d64, row.mean_g), top_g = hn::Set(d64, row.top_g);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 pi = LoadWide(D64(), p + i, count, T(0));
    const V64 z = hn::Sub(relative(LoadWide(D64(), x + i, count, T(0))), mean_z);
    const V64 rest = hn::NegMulAdd(slope, z, hn::Sub(hn::Sub(LoadWide(D64(), g + i, count, T(0)), top_g), mean_g));
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
  if (!IsFinite(range.least_x) || !IsFinite(max)) return kNaN<double>;
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
  const double entropy = RowEntropy(D64(), p, n);
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

// entropy_normalize and entropy_clip of one row.

#if defined(ISENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_
#undef ISENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_
#else
#define ISENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/contract-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/rows/narrow_entropy-inl.h"
#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// In float32 several rows are also searched together, each in a lane.
template <class Op>
struct ShortEntropyRows {
  // Side by side, the search of one row runs while another waits for its results.
  static constexpr size_t kGroups = 4;
  static HWY_INLINE bool Takes(const Op& /*op*/) { return true; }
  static void Map(const Op& op, const hn::Vec<RowTag<float>>* max, ShortRows<float>* rows, float* const* p, size_t count);
  static constexpr NotOffered Vjp = {};
};
template <class Op>
struct SeveralEntropyRows {
  static constexpr size_t kMost = kRowsAtOnce;
  // Several long rows at once are not faster.
  static size_t Count(const Op& /*op*/, size_t n) { return n < kLongRow ? kMost : 1; }
  static void Map(const Op& op, const float* const* x, size_t n, const float* max, float* const* p, size_t count,
                  Workspace workspace);
};

// The workspace. In float32: the distribution, if it may not be in its place yet, and the row's replacement. Otherwise a row in
// float64, and for gradients also the scores.
template <class T>
size_t EntropyMemory(size_t n) {
  const size_t wide = Arena::room<double>(n) + Arena::room<T>(n);
  return sizeof(T) == 4 ? HWY_MAX(Arena::room<float>(n) + Arena::room<float>(NarrowRow::Room(n)), wide) : wide;
}

template <class T>
struct KernelsOf<EntropyNormalize, T> {
  static constexpr ScoreParams<EntropyNormalize> kScores = {.input = &EntropyNormalize::input};
  static size_t Memory(size_t n) { return EntropyMemory<T>(n); }
  static void MapRow(const EntropyNormalize& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const EntropyNormalize& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<EntropyNormalize>* slopes, Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  using Short = std::conditional_t<sizeof(T) == 4, ShortEntropyRows<EntropyNormalize>, NotOffered>;
  using Several = std::conditional_t<sizeof(T) == 4, SeveralEntropyRows<EntropyNormalize>, NotOffered>;
};

template <class T>
struct KernelsOf<EntropyClip, T> {
  static constexpr ScoreParams<EntropyClip> kScores = {.input = &EntropyClip::input};
  static size_t Memory(size_t n) { return EntropyMemory<T>(n); }
  static void MapRow(const EntropyClip& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const EntropyClip& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<EntropyClip>* slopes, Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  using Short = std::conditional_t<sizeof(T) == 4, ShortEntropyRows<EntropyClip>, NotOffered>;
  using Several = std::conditional_t<sizeof(T) == 4, SeveralEntropyRows<EntropyClip>, NotOffered>;
};

HWY_INLINE EntropyTarget TargetOf(const EntropyNormalize& op) {
  const double target = op.entropy ? *op.entropy : LogNumber(*op.perplexity);
  return {target, target};
}
HWY_INLINE EntropyTarget TargetOf(const EntropyClip& op) {
  return {op.min_entropy ? *op.min_entropy : 0, op.max_entropy ? *op.max_entropy : kInfinity<double>};
}

// Equal shares for the scores that are at least `least`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void UniformRow(D d, const T* x, size_t n, T least, double count, T* p) {
  const auto limit = hn::Set(d, least), share = hn::Set(d, static_cast<T>(1 / count));
  ForEachVector(d, n, [&](size_t i, size_t m) HWY_ATTR {
    StoreUpTo(hn::IfThenElseZero(hn::Ge(LoadUpTo(d, x + i, m, least), limit), share), d, m, p + i);
  });
}

// softmax(gamma x) with sums in float64. A target that cannot be met, or only by gamma = 0 or infinity, gives the limits:
// uniform over the finite scores or over those at the maximum.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void WideEntropyRow(D d, EntropyTarget target, const T* x, size_t n, T max, T* p, Workspace workspace) {
  RowSurvey<T> row = Survey(d, x, n, max);
  if (row.nan) return FillRow(d, kNaN<T>, n, p);
  if (row.least == max || target.low >= LogNumber(row.finite)) return UniformRow(d, x, n, row.least, row.finite, p);
  if (target.high <= LogNumber(row.ties)) return UniformRow(d, x, n, max, row.ties, p);
  LeaveOutFar(d, x, n, target, kInfinity<double>, &row);
  double sum;
  double* const e = workspace.memory.take<double>(n);
  FindGammaWide(row, x, n, target, {}, e, &sum);
  const double inverse = 1 / sum;
  const D64 d64;
  const V64 factor = hn::Set(d64, inverse);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreNarrow(hn::Mul(LoadUpTo(d64, e + i, count, 0.0), factor), d64, count, p + i);
  });
}

// Up to kRowsAtOnce rows with finite maxima; p[r] may be x[r] if there is only one.
HWY_INLINE void NarrowEntropyRows(EntropyTarget target, const float* const* x, size_t n, const float* max, float* const* p,
                                  size_t count, Workspace workspace) {
  const RowTag<float> d;
  Arena memory = workspace.memory;  // used again for rows that are not done
  const bool in_place = p[0] == x[0];
  float* const apart = in_place ? memory.take<float>(n) : nullptr;
  NarrowRow rows[kRowsAtOnce];
  for (size_t r = 0; r < count; ++r) {
    NarrowRow& row = rows[r];
    row.x = x[r], row.p = in_place ? apart : p[r];
    row.memory = count == 1 ? memory.take<float>(NarrowRow::Room(n)) : p[r];
    row.few = {row.memory, 0, nullptr, 0, 0};
    if (n >= kLongRow) row.few = Condense(x[r], n, max[r], row.memory, &row.survey);
    if (row.few.top_count == 0) row.survey = Survey(d, x[r], n, max[r]);
    if (!IsNarrow(row.survey, n)) LeaveOutFar(d, x[r], n, target, kInfinity<double>, &row.survey);
  }
  NarrowRows(rows, count, n).Map(target);
  for (size_t r = 0; r < count; ++r) {
    if (!rows[r].done) {
      WideEntropyRow(d, target, x[r], n, max[r], p[r], workspace);
    } else if (in_place) {
      ForEachVector(d, n, [&](size_t i, size_t m) HWY_ATTR { StoreUpTo(LoadUpTo(d, apart + i, m, 0.0f), d, m, p[r] + i); });
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

template <class T>
HWY_INLINE void KernelsOf<EntropyNormalize, T>::MapRow(const EntropyNormalize& op, const T* x, size_t n, T max, T* p,
                                                       Workspace workspace) {
  EntropyRow(RowTag<T>(), TargetOf(op), x, n, max, p, workspace);
}

template <class T>
HWY_INLINE void KernelsOf<EntropyClip, T>::MapRow(const EntropyClip& op, const T* x, size_t n, T max, T* p,
                                                  Workspace workspace) {
  EntropyRow(RowTag<T>(), TargetOf(op), x, n, max, p, workspace);
}

template <class Op>
HWY_INLINE void SeveralEntropyRows<Op>::Map(const Op& op, const float* const* x, size_t n, const float* max, float* const* p,
                                            size_t count, Workspace workspace) {
  NarrowEntropyRows(TargetOf(op), x, n, max, p, count, workspace);
}

// The search for groups of rows of at most ShortRows::kLongest in float32, all in step. First it evaluates moments, with
// float32 rounding, until every row is near its target; then it confirms the entropy. A row at its target keeps its gamma while
// the others continue. An exceptional row is processed alone afterwards.
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
    if (target.low < target.high) AnswerMasses(Search::kTry);
    while (AnswerMoments()) continue;
    while (AnswerMasses(Search::kMasses)) continue;
    for (size_t g = 0; g < groups_; ++g) {
      HWY_ALIGN float inverse[16];
      for (size_t r = 0; r < kGroup; ++r) inverse[r] = static_cast<float>(1 / sums_[0][g * kGroup + r]);
      const V factor = rows_[g].Spread(inverse);
      masses_[g].Store(p + g * kGroup, RowsOf(g), [&](V e) HWY_ATTR { return hn::Mul(e, factor); });
    }
    for (size_t r = 0; r < count_; ++r) {
      if (stage_[r] != Search::kMet) MapAlone(target, r, p[r]);
    }
  }

 private:
  using L = Lanes<D64>;
  using Search = GammaSearch<L>;

  static HWY_INLINE L At(const double* values, size_t s) { return hn::Load(D64(), values + s * kLanes); }
  static HWY_INLINE L At(const float* values, size_t s) {
    return hn::PromoteTo(D64(), hn::LoadU(hn::Rebind<float, D64>(), values + s * kLanes));
  }
  static HWY_INLINE void Put(L x, double* values, size_t s) { hn::Store(x.v, D64(), values + s * kLanes); }
  static HWY_INLINE void Put(L x, float* values, size_t s) {
    hn::StoreU(hn::DemoteTo(hn::Rebind<float, D64>(), x.v), hn::Rebind<float, D64>(), values + s * kLanes);
  }

  // Stores the sums of a group in rough_. Every block of 128 bits has all rows; the next group overwrites what is stored beyond
  // them.
  template <size_t K>
  HWY_INLINE void Keep(const V (&sums)[K], size_t g) {
    for (size_t k = 0; k < K; ++k) hn::StoreU(sums[k], D(), rough_[k] + g * kGroup);
  }

  // Counts a row's finite scores and those equal to the maximum, and sums powers.
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
    // Lanes without a row are left out.
    HWY_ALIGN double first[kRows];
    for (size_t r = 0; r < kRows; ++r) first[r] = r < count_ ? Search::kMoments : Search::kMet;
    for (size_t s = 0; s < kSearches; ++s) {
      const L n = At(rough_[4], s), inverse = 1.0 / n, mean = At(rough_[0], s) * inverse;
      const L square = At(rough_[1], s) * inverse, cube = At(rough_[2], s) * inverse;
      const L variance = NegMulAdd(mean, mean, square);
      const L third = NegMulAdd(mean, NegMulAdd(2.0 * mean, mean, 3.0 * square), cube);
      const GammaReach<L> reach = {Log(At(rough_[3], s)), Log(n), variance, third};
      search_[s].Begin(target, {0x1p-30, 0x1p30}, NarrowTolerance(1, 0.015), reach, At(first, s));
    }
    for (size_t r = count_; r < kRows; ++r) sums_[0][r] = 1, sums_[1][r] = 0;
  }

  // Sets the questions: gamma log2(e) in two parts (see ExpOfGamma), and its value from the upper part only.
  HWY_INLINE void Ask() {
    for (size_t s = 0; s < kSearches; ++s) {
      const L gamma = search_[s].gamma(), c = gamma * 0x1.71547652b82fep+0;
      Put(search_[s].stage(), stage_, s);
      Put(gamma, gamma_, s);
      Put(gamma, narrow_gamma_, s);
      Put(c * (1 - 0x1p-24), high_, s);
      const L high = At(high_, s);
      Put(c - high, low_, s);
      Put(high * 0x1.62e42fefa39efp-1, rough_gamma_, s);
    }
  }

  HWY_INLINE size_t RowsOf(size_t g) const { return HWY_MIN(kGroup, count_ - g * kGroup); }

  HWY_INLINE bool AnyIs(double stage, size_t g) const {
    bool any = false;
    for (size_t r = 0; r < kGroup; ++r) any |= stage_[g * kGroup + r] == stage;
    return any;
  }

  // Moments of the groups with a row that asks for them; false if none does.
  HWY_INLINE bool AnswerMoments() {
    Ask();
    bool found = false;
    for (size_t g = 0; g < groups_; ++g) {
      if (!AnyIs(Search::kMoments, g)) continue;
      found = true;
      Reach(g) < kNearReach ? Moments<false>(g) : Moments<true>(g);
    }
    if (!found) return false;
    for (size_t s = 0; s < kSearches; ++s) {
      const L gamma = At(rough_gamma_, s), gamma2 = gamma * gamma;
      search_[s].Rough(
          gamma, {At(rough_[0], s), At(rough_[1], s) * gamma, At(rough_[2], s) * gamma2, At(rough_[3], s) * (gamma2 * gamma)});
    }
    return true;
  }

  // The largest |gamma z| of a group. If no exponential comes near 2^-126, comparisons with that are left out; the results are
  // the same.
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

  // Masses of the groups with a row that asks for them; false if none does.
  HWY_INLINE bool AnswerMasses(double stage) {
    Ask();
    bool found = false;
    for (size_t g = 0; g < groups_; ++g) {
      if (!AnyIs(stage, g)) continue;
      found = true;
      Reach(g) < kNearReach ? Masses<false>(g) : Masses<true>(g);
    }
    if (!found) return false;
    for (size_t s = 0; s < kSearches; ++s) search_[s].Masses({At(sums_[0], s), At(sums_[1], s)});
    return true;
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

  HWY_NOINLINE void MapAlone(EntropyTarget target, size_t r, float* p) const {
    constexpr size_t kLongest = ShortRows<float>::kLongest;
    const D d;
    const ShortRows<float>& rows = rows_[r / kGroup];
    HWY_ALIGN float row_max[16];
    hn::Store(max_[r / kGroup], d, row_max);
    float x[kLongest];
    HWY_ALIGN double memory[kLongest];
    for (size_t i = 0; i < rows.size(); ++i) x[i] = rows.At(r % kGroup, i);
    WideEntropyRow(d, target, x, rows.size(), row_max[r % kGroup], p, {Arena(memory, sizeof memory), false});
  }

  const V* max_;
  const ShortRows<float>* rows_;
  size_t groups_, count_;
  ShortRows<float> masses_[kGroups];
  double range_[kGroups];  // range of the scores, infinite if one is absent
  Search search_[kSearches];
  HWY_ALIGN double stage_[kRows], gamma_[kRows], rough_gamma_[kRows], sums_[2][kRows] = {};
  HWY_ALIGN float high_[kRows], low_[kRows], narrow_gamma_[kRows];
  HWY_ALIGN float rough_[5][kRows + 16] = {};
};

template <class Op>
HWY_INLINE void ShortEntropyRows<Op>::Map(const Op& op, const hn::Vec<RowTag<float>>* max, ShortRows<float>* rows,
                                          float* const* p, size_t count) {
  EntropyShortRows(max, rows, count).Map(TargetOf(op), p);
}

// The numbers of a row that the gradients need, in float64.
struct EntropyGradient {
  double gamma;           // times 2^exponent of the relative scores
  double mean_z, mean_g;  // means under p; g is relative to its value at the maximum
  double top_g;           // g there
  double slope;           // the regression of g on gamma z: -d <g, p> / d H
  bool fixed;             // p does not change with x: the target is out of reach, or all scores are equal
};

// gamma is the regression of log p on z under p. Rounding p changes it by eps / sd(log p), which is the best accuracy that p
// allows. Means come first, then centred products, because the scores may be far from 0 compared with their spread. If nearly
// all mass is at the maximum, z and g relative to it keep the digits of the small rest. log p is kept in scratch.
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

// The smallest and largest p > 0, and the smallest score with p > 0.
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
  const size_t first = EndOfFirst(RowTag<T>(), x, n, max, 1) - 1;
  return x[first] == max ? static_cast<double>(g[first]) : 0;
}

// The gradients, 0 where p is 0. If x = log q is given as q, they are divided by q and become gradients in q.
template <class T>
HWY_INLINE void StoreGradient(const T* p, const T* q, const double* gradient, size_t n, T* dx) {
  ForEachVector(D64(), n, [&](size_t begin, size_t count) HWY_ATTR {
    for (size_t i = begin; i < begin + count; ++i) {
      const double divided = q == nullptr ? gradient[i] : gradient[i] / static_cast<double>(q[i]);
      dx[i] = p[i] == 0 ? T(0) : static_cast<T>(divided);
    }
  });
}

// dx = gamma p ((g - mean g) - slope gamma (z - mean z)), divided by q if q is given. Returns d <g, p> / dH, from dp / dH = -u
// / (gamma Var x).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double EntropyVjpRow(D d, const T* x, const T* q, const T* p, const T* g, size_t n, T* dx, double* scratch) {
  const D64 d64;
  const auto fill = [&](T value) HWY_ATTR {
    AwaitReaders();
    FillRow(d, value, n, dx);
    return static_cast<double>(value);
  };
  if (p[0] != p[0]) return fill(kNaN<T>);
  const SupportRange<T> range = RangeOfSupport(d, x, p, n);
  const T max = RowMax(d, x, n);
  if (!(range.least_p < range.most_p) || !(range.least_x < max)) return fill(T(0));
  if (!IsFinite(range.least_x) || !IsFinite(max)) return fill(kNaN<T>);  // p does not belong to this x
  const WideScores<T> relative(max, range.least_x);
  const EntropyGradient row = GradientOf(relative, x, p, g, n, GradientAtMax(x, g, n, max), scratch);
  if (row.fixed) return fill(T(0));
  const V64 gamma = hn::Set(d64, row.gamma), slope = hn::Set(d64, row.slope * row.gamma);
  const V64 mean_z = hn::Set(d64, row.mean_z), mean_g = hn::Set(d64, row.mean_g), top_g = hn::Set(d64, row.top_g);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 pi = LoadWide(D64(), p + i, count, T(0));
    const V64 z = hn::Sub(relative(LoadWide(D64(), x + i, count, T(0))), mean_z);
    const V64 rest = hn::NegMulAdd(slope, z, hn::Sub(hn::Sub(LoadWide(D64(), g + i, count, T(0)), top_g), mean_g));
    StoreUpTo(relative.Scale(hn::Mul(gamma, hn::Mul(pi, rest))), d64, count, scratch + i);
  });
  StoreGradient(p, q, scratch, n, dx);
  return -row.slope;
}

// The scores of a row. If x holds probabilities, the scores are in the workspace and q is x; otherwise q is null.
template <class T>
struct GradientInput {
  const T *x, *q;

  template <class Op>
  HWY_INLINE GradientInput(const Op& op, const T* given, size_t n, Workspace& workspace) : x(given), q(nullptr) {
    if (op.input != Input::probs) return;
    T* const scores = workspace.memory.take<T>(n);
    ScoresOfProbs(given, n, scores);
    x = scores, q = given;
  }
};

template <class T>
HWY_INLINE void KernelsOf<EntropyNormalize, T>::VjpRow(const EntropyNormalize& op, const T* x, const T* p, const T* g, size_t n,
                                                       T* dx, ParamValues<EntropyNormalize>* slopes, Workspace workspace) {
  const GradientInput<T> in(op, x, n, workspace);
  const double by_entropy = EntropyVjpRow(RowTag<T>(), in.x, in.q, p, g, n, dx, workspace.memory.take<double>(n));
  if (slopes == nullptr) return;
  if (op.perplexity) {
    *slopes = {0, by_entropy / *op.perplexity};  // dH / d perplexity = 1 / perplexity
  } else {
    *slopes = {by_entropy, 0};
  }
}

enum class IntervalEnd { kNone, kMin, kMax };

// The end of the interval that the entropy of p is at, within its tolerance.
template <class T>
HWY_INLINE IntervalEnd HoldingEnd(const EntropyClip& op, const T* p, size_t n) {
  const double entropy = RowEntropy(D64(), p, n);
  constexpr double kTolerance = sizeof(T) == 4 ? 1e-6 : 1e-12;
  if (op.min_entropy && entropy <= *op.min_entropy + kTolerance * HWY_MAX(1.0, *op.min_entropy)) return IntervalEnd::kMin;
  if (op.max_entropy && entropy >= *op.max_entropy - kTolerance * HWY_MAX(1.0, *op.max_entropy)) return IntervalEnd::kMax;
  return IntervalEnd::kNone;
}

template <class T>
HWY_INLINE void KernelsOf<EntropyClip, T>::VjpRow(const EntropyClip& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                  ParamValues<EntropyClip>* slopes, Workspace workspace) {
  const RowTag<T> d;
  const IntervalEnd end = HoldingEnd(op, p, n);
  const bool free = end == IntervalEnd::kNone;
  if (slopes != nullptr) *slopes = {static_cast<double>(p[0]) * 0, static_cast<double>(p[0]) * 0};  // NaN of a row that is NaN
  if (free && op.input != Input::probs) return KernelsOf<Softmax, T>::VjpRow({}, x, p, g, n, dx, nullptr, workspace);
  const GradientInput<T> in(op, x, n, workspace);
  double* const row = workspace.memory.take<double>(n);
  if (!free) {
    const double by_entropy = EntropyVjpRow(d, in.x, in.q, p, g, n, dx, row);
    if (slopes != nullptr) (*slopes)[end == IntervalEnd::kMin ? 0 : 1] = by_entropy;
    return;
  }
  const double mean = DotWithDistribution(d, p, g, n);
  ForEachVector(D64(), n, [&](size_t begin, size_t count) HWY_ATTR {
    for (size_t i = begin; i < begin + count; ++i) row[i] = static_cast<double>(p[i]) * (static_cast<double>(g[i]) - mean);
  });
  StoreGradient(p, in.q, row, n, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_ENTROPY_NORMALIZE_INL_H_

// The gamma at which softmax(gamma x) has a given entropy, for most rows of float32: terms in float32, their sums in float64. A
// long row is first solved on a few scores that represent it.

#if defined(ENTROPIC_ROWS_NARROW_ENTROPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_NARROW_ENTROPY_INL_H_
#undef ENTROPIC_ROWS_NARROW_ENTROPY_INL_H_
#else
#define ENTROPIC_ROWS_NARROW_ENTROPY_INL_H_
#endif

#include <cmath>
#include <limits>

#include "src/rows/entropy-inl.h"
#include "src/rows/few-inl.h"
#include "src/rows/filter-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// exp(gamma z) in float32 for z <= 0, with more digits of gamma than float32 has.
//
// As ExpScaled, with gamma log2(e) in two parts. The upper part is rounded towards 0, so that both have the same sign: z high +
// z low, each rounded, then never falls as z rises. r may be a little below -1/2, in steps of 2^-22: 3 + r is in [2, 4). From
// one k to the next the result can only fall if r is 6 such steps below, which needs |z gamma| > 8, where two z differ by more.
class ExpOfGamma {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;

  HWY_INLINE explicit ExpOfGamma(double gamma) {
    float high, low;
    Split(gamma, &high, &low);
    high_ = hn::Set(D(), high);
    low_ = hn::Set(D(), low);
  }
  // A gamma for each lane, from Split.
  HWY_INLINE ExpOfGamma(V high, V low) : high_(high), low_(low) {}

  // gamma log2(e) = high + low, rounded towards 0, so that a smaller gamma never gives more.
  static HWY_INLINE void Split(double gamma, float* high, float* low) {
    const double c = gamma * 0x1.71547652b82fep+0;
    *high = static_cast<float>(c * (1 - 0x1p-24));
    *low = static_cast<float>(c - static_cast<double>(*high));
  }

  // For z gamma > -87, where the result is a normal number.
  HWY_INLINE V operator()(V z) const {
    using C = ExpConstants<float>;
    const D d;
    const hn::RebindToSigned<D> di;
    const V magic = hn::Set(d, C::kMagic + C::kBias), grid = hn::Set(d, 3.0f);
    const V t = hn::MulAdd(z, high_, magic);
    const V r = hn::Sub(hn::MulAdd(z, low_, hn::MulAdd(z, high_, hn::Sub(grid, hn::Sub(t, magic)))), grid);
    const V power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, r), power);
  }

  // exp(gamma z) from only the upper part; it does not keep the order of z.
  HWY_INLINE V Rough(V z) const {
    using C = ExpConstants<float>;
    const D d;
    const hn::RebindToSigned<D> di;
    const V magic = hn::Set(d, C::kMagic + C::kBias);
    const V t = hn::MulAdd(z, high_, magic);
    const V r = hn::MulSub(z, high_, hn::Sub(t, magic));
    const V power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, r), power);
  }

  // The gamma that Rough uses.
  HWY_INLINE double RoughGamma() const { return static_cast<double>(hn::GetLane(high_)) * 0x1.62e42fefa39efp-1; }

 private:
  V high_, low_;
};

// 2^-126 = exp(-87.33654...).
inline constexpr double kSmallestNormal = 87.33654;

// From this length on a row is condensed before its first pass.
inline constexpr size_t kLongRow = 8192;

// The accepted error of the entropy in float32, as a part of the allowed error: a fifth, so that large entries keep their last
// digits; half if another pass is expensive and entries are small. If `rough` moments are near, their step leaves less than
// that.
HWY_INLINE GammaTolerance NarrowTolerance(size_t n, double rough) {
  return {.met = n < kLongRow ? 2e-7 : 5e-7, .rough = rough};
}

// The largest |gamma z| for which MomentsNarrow and WriteNarrow leave out the comparison with their bounds.
inline constexpr double kNearReach = 69;

// Adds e^(gamma z) z^k to acc[k]. kFar: z may be below `lowest`, which is -69 / gamma: there e is taken as 2^-100, which is
// negligible beside 1. Smaller ones have subnormal products, which slow the processor down.
template <bool kFar, class V>
HWY_INLINE void AddMoments(const ExpOfGamma& exp, V z, V lowest, V* acc) {
  if constexpr (kFar) z = MaxKeepNaN(lowest, z);
  const V e = exp.Rough(z), ez = hn::Mul(e, z), z2 = hn::Mul(z, z);
  acc[0] = hn::Add(acc[0], e);
  acc[1] = hn::Add(acc[1], ez);
  acc[2] = hn::MulAdd(e, z2, acc[2]);
  acc[3] = hn::MulAdd(ez, z2, acc[3]);
}

// sums[k] = sum of e a^k for scores z = x - shift, a = gamma z; gamma becomes the rounded gamma of these sums.
template <bool kFar>
HWY_NOINLINE void MomentsNarrow(const float* x, size_t n, float shift, double& gamma, double (&sums)[4]) {
  const RowTag<float> d;
  using V = hn::Vec<RowTag<float>>;
  const V top = hn::Set(d, shift), lowest = hn::Set(d, static_cast<float>(-kNearReach / gamma));
  const ExpOfGamma exp(gamma);
  RoughSums(d, x, n, shift, sums, [&](V xi, V* acc) HWY_ATTR { AddMoments<kFar>(exp, hn::Sub(xi, top), lowest, acc); });
  gamma = exp.RoughGamma();
  double power = 1;
  for (size_t k = 0; k < 4; ++k, power *= gamma) sums[k] *= power;
}

// p = e / s, for an s and its logarithm, and the sums of e and e a. kFar: gamma z may be below -69, and a p that is not a
// normal number becomes 0.
template <bool kFar>
HWY_NOINLINE void WriteNarrow(const float* x, size_t n, float shift, double gamma, double inverse_s, double log_s, float* p,
                              double (&sums)[4]) {
  const RowTag<float> d;
  using V = hn::Vec<RowTag<float>>;
  // At this distance e / s = 2^-126.
  const double reach = kSmallestNormal - log_s;
  const V top = hn::Set(d, shift), scale = hn::Set(d, static_cast<float>(inverse_s));
  const V lowest = hn::Set(d, static_cast<float>(-reach / gamma));
  const ExpOfGamma exp(gamma);
  double found[2];
  SumsOfRow(d, x, n, shift, found, [&](size_t i, size_t count, V xi, V* terms) HWY_ATTR {
    V z = hn::Sub(xi, top);
    if constexpr (kFar) {
      const auto out = hn::Lt(z, lowest);
      z = MaxKeepNaN(lowest, z);
      terms[0] = hn::IfThenZeroElse(out, exp(z));
    } else {
      terms[0] = exp(z);
    }
    StoreUpTo(hn::Mul(terms[0], scale), d, count, p + i);
    terms[1] = hn::Mul(terms[0], z);
  });
  sums[0] = found[0], sums[1] = found[1] * gamma;
}

// A few scores that represent a row, to find an approximate gamma: all of the most important ones, and a sample of the others,
// each with a weight. Scores are relative to the maximum.
struct Condensed {
  float* top;
  size_t top_count;
  float* bulk;
  size_t bulk_count;
  double weight;

  // gamma becomes the rounded gamma of the sums, which is the same for both parts.
  HWY_INLINE void Moments(double& gamma, double (&sums)[4]) const {
    MomentsNarrow<true>(top, top_count, 0, gamma, sums);
    if (bulk_count == 0) return;
    double rest[4];
    MomentsNarrow<true>(bulk, bulk_count, 0, gamma, rest);
    for (int k = 0; k < 4; ++k) sums[k] += weight * rest[k];
  }
};

// The 8th largest of 16.
HWY_INLINE float MiddleOf16(const float* v) {
  for (size_t i = 0; i < 16; ++i) {
    size_t above = 0, equal = 0;
    for (size_t j = 0; j < 16; ++j) above += v[j] > v[i], equal += v[j] == v[i];
    if (above < 8 && above + equal >= 8) return v[i];
  }
  return v[0];
}

// Condenses a long row, and surveys it. A sample of every 16th score or fewer, in vectors of 16, represents the bulk. The
// threshold of the top is the median of the maxima of the sample's 16 columns: with m scores in a column about 0.7 / m of the
// row is above it. The result is empty if that is more than a quarter of the row.
inline HWY_NOINLINE Condensed Condense(const float* x, size_t n, float max, float* memory, RowSurvey<float>* row) {
  const RowTag<float> d;
  constexpr float kAbsent = -kInfinity<float>;
  const size_t blocks = HWY_MIN(n / 256, size_t{256}), bulk_count = 16 * blocks;
  float* const bulk = memory;
  ForEachVector(d, bulk_count, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(LoadUpTo(d, x + i / 16 * (n / 16) / blocks * 16 + i % 16, count, kAbsent), d, count, bulk + i);
  });
  HWY_ALIGN float column_max[64];
  PartMaxima(
      d, bulk, bulk_count, [](auto part) HWY_ATTR { return part; }, column_max);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t k = i + 16; k < 64; k += 16) column_max[i] = HWY_MAX(column_max[i], column_max[k]);
  }
  const float least = MiddleOf16(column_max);
  Condensed few = {bulk + bulk_count, 0, bulk, bulk_count, 0};
  const size_t most = n / 4;
  few.top_count = PackAbove(x, n, HWY_MAX(least, -std::numeric_limits<float>::max()), max, most, few.top, &row->least);

  // Scores that are in the top are absent from the bulk.
  const auto limit = hn::Set(d, least), top = hn::Set(d, max), absent = hn::Set(d, kAbsent), one = hn::Set(d, 1.0f);
  double sums[4];
  Sums(d, bulk_count, sums, [&](size_t i, size_t count, hn::Vec<RowTag<float>>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, bulk + i, count, max);
    const auto z = hn::Sub(xi, top);
    const auto finite = hn::Ne(xi, absent), below = hn::Lt(xi, limit);
    terms[0] = hn::IfThenElseZero(below, one);
    terms[1] = hn::IfThenElseZero(finite, one);
    terms[2] = hn::IfThenElseZero(finite, z);
    terms[3] = hn::Mul(terms[2], terms[2]);
    StoreUpTo(hn::IfThenElse(below, z, absent), d, count, bulk + i);
  });
  const double mean = sums[2] / sums[1];
  row->max = max;
  row->variance = sums[3] / sums[1] - mean * mean;
  row->third = 0;
  row->nan = sums[2] != sums[2];
  row->ties = 0;
  row->finite = static_cast<double>(n);
  if (few.top_count > most || few.top_count == 0) return {memory, 0, nullptr, 0, 0};
  few.weight = sums[0] > 0 ? static_cast<double>(n - few.top_count) / sums[0] : 0;
  row->ties = Sum(d, few.top_count, [&](size_t i, size_t count) HWY_ATTR {
    return hn::IfThenElseZero(hn::Eq(LoadUpTo(d, few.top + i, count, -1.0f), hn::Zero(d)), one);
  });
  if (row->least == kAbsent) {
    row->finite = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      return hn::IfThenElseZero(hn::Ne(LoadUpTo(d, x + i, count, kAbsent), absent), one);
    });
  }
  return few;
}

// Whether all differences of scores and their powers stay in float32's range.
HWY_INLINE bool IsNarrow(const RowSurvey<float>& row, size_t n) {
  const float lowest = row.finite < static_cast<double>(n) ? 0 : row.least;  // the least is -inf if scores are absent
  return row.max - lowest <= std::numeric_limits<float>::max() && row.variance < 0x1p60 && row.variance > 0x1p-60;
}

// gamma from sums in float, first over the few scores that represent a long row; 0 if float is not enough. If log(rest / goal)
// is within 0.01, the third order step leaves less than the error of the sums, about 2e-7.
inline HWY_NOINLINE double NarrowGamma(const RowSurvey<float>& row, const Condensed& few, const float* x, size_t n,
                                       double entropy) {
  using Search = GammaSearch<double>;
  if (!IsNarrow(row, n)) return 0;
  Search search;
  search.Begin({entropy, entropy}, {0x1p-60, 0x1p60}, NarrowTolerance(n, 0.01),
               {LogNumber(row.ties), LogNumber(row.finite), row.variance, row.third},
               few.top_count > 0 ? Search::kFew : Search::kMoments);
  while (search.stage() < Search::kMasses) {
    double gamma = search.gamma(), sums[4];
    if (search.stage() == Search::kFew) {
      few.Moments(gamma, sums);
    } else {
      MomentsNarrow<true>(x, n, row.max, gamma, sums);
    }
    search.Rough(gamma, sums);
  }
  return search.stage() == Search::kMasses ? search.gamma() : 0;
}

// One row in the search for its entropy.
struct NarrowRow {
  const float* x;
  float* p;       // the distribution; it must not be x
  float* memory;  // Room(n) numbers, for scores that represent the row; it may be p if n > 32
  RowSurvey<float> survey;
  Condensed few;       // scores that represent the row, and later its relevant scores
  double range;        // range of the scores, infinite if one is absent
  bool told, matters;  // told: the search got moments of all scores; matters: from now on those of the relevant scores suffice
  bool done;           // p has the entropy

  // Room for the condensed row, or for the relevant scores, at most half of the row, packed a vector at a time.
  static constexpr size_t Room(size_t n) { return n / 2 + 16; }
};

// Distributions of a given entropy in float32, with sums in float64, for rows where no difference of scores overflows and
// gamma stays in float32's range.
//
// The costs are the passes over a row and, for short rows, the search between two passes: a chain of divisions and logarithms
// that takes as long as a pass over 300 scores. So a few rows wait for it together, each in a lane, with the same results as
// alone. For a long row gamma is first found on a few scores. Then comes a pass for the moments, whose third order step leaves
// the third power of the error, or several passes, over only the relevant scores if these are few; and a pass that writes p and
// confirms its entropy.
class NarrowRows {
 public:
  // With one lane in a vector, several rows at once are not faster.
  static constexpr size_t kRows = hn::MaxLanes(D64()) == 1 ? 1 : 8;

  HWY_INLINE NarrowRows(NarrowRow* rows, size_t count, size_t n) : rows_(rows), count_(count), n_(n) {}

  // The rows must have x, p, memory, survey and few.
  HWY_NOINLINE void Map(EntropyTarget target) {
    Begin(target);
    while (Ask()) Answer();
    for (size_t r = 0; r < count_; ++r) rows_[r].done = stage_[r] == Search::kMet;
  }

 private:
  using L = Lanes<D64>;
  using Search = GammaSearch<L>;
  static constexpr size_t kLanes = hn::MaxLanes(D64()), kSearches = (kRows + kLanes - 1) / kLanes;

  static HWY_INLINE L At(const double* values, size_t s) { return hn::Load(D64(), values + s * kLanes); }
  static HWY_INLINE void Put(L x, double* values, size_t s) { hn::Store(x.v, D64(), values + s * kLanes); }

  HWY_INLINE void Begin(EntropyTarget target) {
    HWY_ALIGN double finite[kRows], ties[kRows], variance[kRows], third[kRows], first[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      finite[r] = static_cast<double>(n_), ties[r] = variance[r] = third[r] = 1, first[r] = Search::kMet;
      gamma_[r] = 1, log_s_[r] = restart_[r] = 0, sums_[0][r] = 1, sums_[1][r] = sums_[2][r] = sums_[3][r] = 0;
    }
    for (size_t r = 0; r < count_; ++r) {
      NarrowRow& row = rows_[r];
      const RowSurvey<float>& survey = row.survey;
      const bool all_finite = survey.finite == static_cast<double>(n_);
      finite[r] = survey.finite, ties[r] = survey.ties, variance[r] = survey.variance, third[r] = survey.third;
      row.range = all_finite ? static_cast<double>(survey.max - survey.least) : kInfinity<double>;
      row.told = row.matters = false;
      first[r] = n_ > size_t{1} << 18 || !IsNarrow(survey, n_) ? Search::kLost
                 : row.few.top_count > 0                       ? Search::kFew
                                                               : Search::kMoments;
    }
    for (size_t s = 0; s < kSearches; ++s) {
      const GammaReach<L> reach = {Log(At(ties, s)), Log(At(finite, s)), At(variance, s), At(third, s)};
      Put(reach.log_n, log_n_, s);
      search_[s].Begin(target, {0x1p-30, 0x1p30}, NarrowTolerance(n_, n_ < kLongRow ? 0.03 : 0.1), reach, At(first, s));
    }
  }

  // Finds the rows' questions, and returns whether there is one.
  HWY_INLINE bool Ask() {
    bool asks = false;
    for (size_t s = 0; s < kSearches; ++s) {
      Put(search_[s].stage(), stage_, s);
      Put(search_[s].gamma(), gamma_, s);
      asks |= !All(!search_[s].asks());
    }
    return asks;
  }

  // Answers each row's question.
  HWY_INLINE void Answer() {
    bool moments = false, masses = false, restarts = false;
    for (size_t r = 0; r < count_; ++r) {
      const bool writes = stage_[r] == Search::kTry || stage_[r] == Search::kMasses;
      masses |= writes, moments |= stage_[r] < Search::kMet && !writes;
    }
    if (masses) {
      for (size_t s = 0; s < kSearches; ++s) Put(Exp(D64(), hn::Neg(At(log_s_, s).v)), inverse_s_, s);
    }
    for (size_t r = 0; r < count_; ++r) {
      if (stage_[r] == Search::kTry || stage_[r] == Search::kMasses) Write(r);
      if (stage_[r] == Search::kFew) Tell(r, [&](auto& sums) HWY_ATTR { rows_[r].few.Moments(gamma_[r], sums); });
      if (stage_[r] == Search::kMoments) restarts |= Moments(r);
    }
    for (size_t s = 0; s < kSearches; ++s) {
      L log_s = At(log_s_, s);
      if (restarts) search_[s].Restart(At(restart_, s) > 0.0);
      if (masses) search_[s].Masses({At(sums_[0], s), At(sums_[1], s)}, &log_s);
      if (moments) {
        search_[s].Rough(At(gamma_, s), {At(sums_[0], s), At(sums_[1], s), At(sums_[2], s), At(sums_[3], s)}, &log_s);
      }
      Put(log_s, log_s_, s);
    }
    // An accepted row sums to 1 up to rounding.
    if (masses) {
      HWY_ALIGN double after[kRows];
      for (size_t s = 0; s < kSearches; ++s) Put(search_[s].stage(), after, s);
      for (size_t r = 0; r < count_; ++r) {
        const double total = sums_[0][r] * inverse_s_[r];
        if (stage_[r] < Search::kMet && after[r] == Search::kMet && std::abs(total - 1) > 1e-7) ScaleBy(rows_[r], 1 / total);
      }
    }
  }

  template <class Moments>
  HWY_INLINE void Tell(size_t r, const Moments& moments) {
    double sums[4];
    moments(sums);
    for (size_t k = 0; k < 4; ++k) sums_[k][r] = sums[k];
  }

  // Moments of all scores, or of the relevant ones; returns whether that begins now. gamma_ becomes their rounded gamma.
  HWY_INLINE bool Moments(size_t r) {
    NarrowRow& row = rows_[r];
    const bool begins = row.told && !row.matters && PackRest(row, r);
    row.told = true, row.matters |= begins, restart_[r] = begins;
    Tell(r, [&](auto& sums) HWY_ATTR {
      if (row.matters) {
        row.few.Moments(gamma_[r], sums);
      } else if (gamma_[r] * row.range < kNearReach) {
        MomentsNarrow<false>(row.x, n_, row.survey.max, gamma_[r], sums);
      } else {
        MomentsNarrow<true>(row.x, n_, row.survey.max, gamma_[r], sums);
      }
    });
    return begins;
  }

  HWY_INLINE void Write(size_t r) {
    const NarrowRow& row = rows_[r];
    double sums[4];
    gamma_[r] * row.range < kNearReach
        ? WriteNarrow<false>(row.x, n_, row.survey.max, gamma_[r], inverse_s_[r], log_s_[r], row.p, sums)
        : WriteNarrow<true>(row.x, n_, row.survey.max, gamma_[r], inverse_s_[r], log_s_[r], row.p, sums);
    sums_[0][r] = sums[0], sums_[1][r] = sums[1];
  }

  HWY_INLINE void ScaleBy(const NarrowRow& row, double factor) const {
    const RowTag<float> d;
    const auto f = hn::Set(d, static_cast<float>(factor));
    ForEachVector(d, n_, [&](size_t i, size_t count) HWY_ATTR {
      StoreUpTo(hn::Mul(LoadUpTo(d, row.p + i, count, 0.0f), f), d, count, row.p + i);
    });
  }

  // Scores with less than e^-17 / n of the largest mass are left out until the end, if they are most of the row.
  HWY_INLINE bool PackRest(NarrowRow& row, size_t r) const {
    const double reach = (log_n_[r] + 17) / gamma_[r];
    if (!(reach < 0.6 * row.range)) return false;
    float lowest;
    row.few = {row.memory, 0, nullptr, 0, 0};
    row.few.top_count =
        PackAbove(row.x, n_, static_cast<float>(row.survey.max - reach), row.survey.max, n_ / 2, row.few.top, &lowest);
    return row.few.top_count > row.survey.ties && row.few.top_count <= n_ / 2;
  }

  NarrowRow* rows_;
  size_t count_, n_;
  Search search_[kSearches];
  HWY_ALIGN double stage_[kRows], gamma_[kRows], log_s_[kRows], inverse_s_[kRows], sums_[4][kRows];
  HWY_ALIGN double log_n_[kRows], restart_[kRows];
};

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_NARROW_ENTROPY_INL_H_

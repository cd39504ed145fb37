// Moments and masses of exp(gamma x) in float32, of a row and of a few scores that represent it: terms in float32, their sums
// in float64.

#if defined(ISENTROPIC_ROWS_NARROW_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_NARROW_MOMENTS_INL_H_
#undef ISENTROPIC_ROWS_NARROW_MOMENTS_INL_H_
#else
#define ISENTROPIC_ROWS_NARROW_MOMENTS_INL_H_
#endif

#include <limits>

#include "src/rows/entropy-inl.h"
#include "src/rows/few-inl.h"
#include "src/rows/filter-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
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

// The sums of e z^k for scores z = x - shift, one score at a time; Finish turns them into those of e a^k, where a = gamma z,
// and gamma becomes the rounded gamma of these sums.
template <bool kFar>
class NarrowMoments {
 public:
  using V = hn::Vec<RowTag<float>>;
  HWY_INLINE NarrowMoments(float shift, double gamma) : NarrowMoments(shift, ExpOfGamma(gamma), LowestOf(gamma)) {}
  HWY_INLINE NarrowMoments(float shift, const ExpOfGamma& exp, float lowest)
      : exp_(exp), top_(hn::Set(RowTag<float>(), shift)), lowest_(hn::Set(RowTag<float>(), lowest)) {}
  static HWY_INLINE float LowestOf(double gamma) { return static_cast<float>(-kNearReach / gamma); }
  HWY_INLINE void operator()(V x, V* acc) const { AddMoments<kFar>(exp_, hn::Sub(x, top_), lowest_, acc); }
  HWY_INLINE void Finish(double& gamma, double (&sums)[4]) const {
    gamma = exp_.RoughGamma();
    double power = 1;
    for (size_t k = 0; k < 4; ++k, power *= gamma) sums[k] *= power;
  }

 private:
  ExpOfGamma exp_;
  V top_, lowest_;
};

template <bool kFar>
HWY_NOINLINE void MomentsNarrow(const float* x, size_t n, float shift, double& gamma, double (&sums)[4]) {
  using V = hn::Vec<RowTag<float>>;
  const NarrowMoments<kFar> moments(shift, gamma);
  RoughSums(RowTag<float>(), x, n, shift, sums, [&](V xi, V* acc) HWY_ATTR { moments(xi, acc); });
  moments.Finish(gamma, sums);
}

// e = exp(gamma z) and e z for a score x = z + shift. kFar: gamma z may be below -69, and e becomes 0 where p = e / s, for an s
// with this logarithm, is not a normal number.
template <bool kFar>
class NarrowMasses {
 public:
  using V = hn::Vec<RowTag<float>>;
  HWY_INLINE NarrowMasses(float shift, double gamma, double log_s)
      : NarrowMasses(shift, ExpOfGamma(gamma), LowestOf(gamma, log_s)) {}
  HWY_INLINE NarrowMasses(float shift, const ExpOfGamma& exp, float lowest)
      : exp_(exp), top_(hn::Set(RowTag<float>(), shift)), lowest_(hn::Set(RowTag<float>(), lowest)) {}
  // At this distance e / s = 2^-126.
  static HWY_INLINE float LowestOf(double gamma, double log_s) {
    return static_cast<float>(-(kSmallestNormal - log_s) / gamma);
  }
  HWY_INLINE void operator()(V x, V* terms) const {
    V z = hn::Sub(x, top_);
    if constexpr (kFar) {
      const auto out = hn::Lt(z, lowest_);
      z = MaxKeepNaN(lowest_, z);
      terms[0] = hn::IfThenZeroElse(out, exp_(z));
    } else {
      terms[0] = exp_(z);
    }
    terms[1] = hn::Mul(terms[0], z);
  }

 private:
  ExpOfGamma exp_;
  V top_, lowest_;
};

// p = e / s, and the sums of e and e a.
template <bool kFar>
HWY_NOINLINE void WriteNarrow(const float* x, size_t n, float shift, double gamma, double inverse_s, double log_s, float* p,
                              double (&sums)[2]) {
  const RowTag<float> d;
  using V = hn::Vec<RowTag<float>>;
  const V scale = hn::Set(d, static_cast<float>(inverse_s));
  const NarrowMasses<kFar> masses(shift, gamma, log_s);
  SumsOfRow(d, x, n, shift, sums, [&](size_t i, size_t count, V xi, V* terms) HWY_ATTR {
    masses(xi, terms);
    StoreUpTo(hn::Mul(terms[0], scale), d, count, p + i);
  });
  sums[1] *= gamma;
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

// A sample of a long row: every 16th score or fewer, in vectors of 16.
HWY_INLINE size_t SampleSize(size_t n) { return 16 * HWY_MIN(n / 256, size_t{256}); }
template <class I>
HWY_INLINE I SampleIndex(I i, I size, I n) {
  return i / 16 * (n / 16) / (size / 16) * 16 + i % 16;
}

// The top of a row has at most this many scores.
HWY_INLINE size_t MostOfTop(size_t n) { return n / 4; }

// Weighs the sample, in few.bulk, beside the top, and surveys the row but for its least score. `least`: the threshold of the
// top. The result is empty if more than MostOfTop scores are above that, or none.
HWY_INLINE Condensed WeighSample(Condensed few, size_t n, float least, float max, RowSurvey<float>* row) {
  const RowTag<float> d;
  constexpr float kAbsent = -kInfinity<float>;
  float* const bulk = few.bulk;
  // Scores that are in the top are absent from the bulk.
  const auto limit = hn::Set(d, least), top = hn::Set(d, max), absent = hn::Set(d, kAbsent), one = hn::Set(d, 1.0f);
  double sums[4];
  Sums(d, few.bulk_count, sums, [&](size_t i, size_t count, hn::Vec<RowTag<float>>* terms) HWY_ATTR {
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
  if (few.top_count > MostOfTop(n) || few.top_count == 0) return {bulk, 0, nullptr, 0, 0};
  few.weight = sums[0] > 0 ? static_cast<double>(n - few.top_count) / sums[0] : 0;
  row->ties = Sum(d, few.top_count, [&](size_t i, size_t count) HWY_ATTR {
    return hn::IfThenElseZero(hn::Eq(LoadUpTo(d, few.top + i, count, -1.0f), hn::Zero(d)), one);
  });
  return few;
}

// Condenses a long row, and surveys it. A sample represents the bulk. The threshold of the top is the median of the maxima of
// the sample's 16 columns: with m scores in a column about 0.7 / m of the row is above it. The result is empty if the top is
// too large.
inline HWY_NOINLINE Condensed Condense(const float* x, size_t n, float max, float* memory, RowSurvey<float>* row) {
  const RowTag<float> d;
  constexpr float kAbsent = -kInfinity<float>;
  const size_t size = SampleSize(n);
  float* const bulk = memory;
  ForEachVector(d, size, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(LoadUpTo(d, x + SampleIndex(i, size, n), count, kAbsent), d, count, bulk + i);
  });
  HWY_ALIGN float column_max[64];
  PartMaxima(
      d, bulk, size, [](auto part) HWY_ATTR { return part; }, column_max);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t k = i + 16; k < 64; k += 16) column_max[i] = HWY_MAX(column_max[i], column_max[k]);
  }
  const float least = MiddleOf16(column_max), lowest = HWY_MAX(least, -std::numeric_limits<float>::max());
  Condensed few = {bulk + size, 0, bulk, size, 0};
  few.top_count = PackAbove(x, n, lowest, max, MostOfTop(n), few.top, &row->least);
  few = WeighSample(few, n, least, max, row);
  if (few.top_count > 0 && row->least == kAbsent) {
    row->finite = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      return hn::IfThenElseZero(hn::Ne(LoadUpTo(d, x + i, count, kAbsent), hn::Set(d, kAbsent)), hn::Set(d, 1.0f));
    });
  }
  return few;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_NARROW_MOMENTS_INL_H_

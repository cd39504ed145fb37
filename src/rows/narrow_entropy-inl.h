// The gamma at which softmax(gamma x) has a given entropy, for most rows of float32. A long row is first solved on a few scores
// that represent it.

#if defined(ISENTROPIC_ROWS_NARROW_ENTROPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_NARROW_ENTROPY_INL_H_
#undef ISENTROPIC_ROWS_NARROW_ENTROPY_INL_H_
#else
#define ISENTROPIC_ROWS_NARROW_ENTROPY_INL_H_
#endif

#include <cmath>
#include <limits>

#include "src/rows/narrow_moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The accepted error of the entropy in float32, as a part of the allowed error: a fifth, so that large entries keep their last
// digits; half if another pass is expensive and entries are small. If `rough` moments are near, their step leaves less than
// that.
HWY_INLINE GammaTolerance NarrowTolerance(size_t n, double rough) {
  return {.met = n < kLongRow ? 2e-7 : 5e-7, .rough = rough};
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
struct SearchedRow {
  float* memory;  // Room(n) numbers, for scores that represent the row; it may be p if n > 32
  RowSurvey<float> survey;
  Condensed few;       // scores that represent the row, and later its relevant scores
  double range;        // range of the scores, infinite if one is absent
  bool told, matters;  // told: the search got moments of all scores; matters: from now on those of the relevant scores suffice
  bool done;           // p has the entropy

  // Room for the condensed row, or for the relevant scores, at most half of the row, packed a vector at a time.
  static constexpr size_t Room(size_t n) { return n / 2 + 16; }
};

// What the search asks of a row in memory. `far`: |gamma z| may be above kNearReach.
struct NarrowRow : SearchedRow {
  const float* x;
  float* p;  // the distribution; it must not be x

  // The moments of all scores; gamma becomes their rounded gamma.
  HWY_INLINE void Moments(size_t n, bool far, double& gamma, double (&sums)[4]) const {
    far ? MomentsNarrow<true>(x, n, survey.max, gamma, sums) : MomentsNarrow<false>(x, n, survey.max, gamma, sums);
  }
  // p for a sum s of e, with its logarithm, and the sums of e and e a.
  HWY_INLINE void Write(size_t n, bool far, double gamma, double inverse_s, double log_s, double (&sums)[2]) const {
    far ? WriteNarrow<true>(x, n, survey.max, gamma, inverse_s, log_s, p, sums)
        : WriteNarrow<false>(x, n, survey.max, gamma, inverse_s, log_s, p, sums);
  }
  HWY_INLINE void ScaleBy(size_t n, double factor) const {
    const RowTag<float> d;
    const auto f = hn::Set(d, static_cast<float>(factor));
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      StoreUpTo(hn::Mul(LoadUpTo(d, p + i, count, 0.0f), f), d, count, p + i);
    });
  }
  // Packs the scores from `least` on, relative to the maximum, into memory if there are at most `most`; returns their number.
  HWY_INLINE size_t Pack(size_t n, float least, size_t most) const {
    float lowest;
    return PackAbove(x, n, least, survey.max, most, memory, &lowest);
  }
};

// The rows of one search. With one lane in a vector, several rows at once are not faster.
inline constexpr size_t kRowsAtOnce = hn::MaxLanes(D64()) == 1 ? 1 : 8;

// Distributions of a given entropy in float32, with sums in float64, for rows where no difference of scores overflows and
// gamma stays in float32's range.
//
// The costs are the passes over a row and, for short rows, the search between two passes: a chain of divisions and logarithms
// that takes as long as a pass over 300 scores. So a few rows wait for it together, each in a lane, with the same results as
// alone. For a long row gamma is first found on a few scores. Then comes a pass for the moments, whose third order step leaves
// the third power of the error, or several passes, over only the relevant scores if these are few; and a pass that writes p and
// confirms its entropy.
//
// Row is a SearchedRow that answers as NarrowRow does.
template <class Row>
class NarrowRows {
 public:
  // The rows must have memory, survey and few, and what Row needs to answer.
  HWY_INLINE NarrowRows(Row* rows, size_t count, size_t n) : rows_(rows), count_(count), n_(n) {}
  // Continues the search of `other`, on copies of its rows.
  HWY_INLINE NarrowRows(Row* rows, const NarrowRows& other) : NarrowRows(other) { rows_ = rows; }

  HWY_NOINLINE void Map(EntropyTarget target) {
    Begin(target);
    while (Ask()) {
      for (size_t r = 0; r < count_; ++r) Answer(r);
      Continue();
    }
    for (size_t r = 0; r < count_; ++r) rows_[r].done = IsMet(r);
  }

  // The steps of Map, for callers that answer the questions themselves.
  HWY_INLINE void Begin(EntropyTarget target) {
    HWY_ALIGN double finite[kRows], ties[kRows], variance[kRows], third[kRows], first[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      finite[r] = static_cast<double>(n_), ties[r] = variance[r] = third[r] = 1, first[r] = Search::kMet;
      gamma_[r] = 1, log_s_[r] = restart_[r] = 0, sums_[0][r] = 1, sums_[1][r] = sums_[2][r] = sums_[3][r] = 0;
    }
    for (size_t r = 0; r < count_; ++r) {
      SearchedRow& row = rows_[r];
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
    bool asks = false, masses = false;
    for (size_t s = 0; s < kSearches; ++s) {
      Put(search_[s].stage(), stage_, s);
      Put(search_[s].gamma(), gamma_, s);
      asks |= !All(!search_[s].asks());
    }
    for (size_t r = 0; r < count_; ++r) masses |= AsksForMasses(r);
    if (masses) {
      for (size_t s = 0; s < kSearches; ++s) Put(Exp(D64(), hn::Neg(At(log_s_, s).v)), inverse_s_, s);
    }
    return asks;
  }

  // What a row asks for at its gamma: moments of the scores that represent it, or of all, or masses. For masses it also has the
  // presumable sum s, as its logarithm and inverse.
  enum class Question { none, few, moments, masses };
  HWY_INLINE Question QuestionOf(size_t r) {
    if (AsksForMasses(r)) return Question::masses;
    if (stage_[r] == Search::kFew) return Question::few;
    if (stage_[r] != Search::kMoments) return Question::none;
    SearchedRow& row = rows_[r];
    const bool begins = row.told && !row.matters && PackRest(rows_[r], r);
    row.told = true, row.matters |= begins, restart_[r] = begins;
    return row.matters ? Question::few : Question::moments;
  }
  // Whether it will ask for moments of the sample; unlike QuestionOf this changes nothing.
  HWY_INLINE bool AsksForSample(size_t r) const { return stage_[r] == Search::kFew; }
  HWY_INLINE double gamma(size_t r) const { return gamma_[r]; }
  HWY_INLINE double log_s(size_t r) const { return log_s_[r]; }
  HWY_INLINE double inverse_s(size_t r) const { return inverse_s_[r]; }

  // Take the answers to Ask(); `gamma` is the rounded gamma of the moments.
  HWY_INLINE void TellMoments(size_t r, double gamma, const double (&sums)[4]) {
    gamma_[r] = gamma;
    for (size_t k = 0; k < 4; ++k) sums_[k][r] = sums[k];
  }
  HWY_INLINE void TellMasses(size_t r, const double (&sums)[2]) { sums_[0][r] = sums[0], sums_[1][r] = sums[1]; }

  // Continues once all rows are answered.
  HWY_INLINE void Continue() {
    bool moments = false, masses = false, restarts = false;
    for (size_t r = 0; r < count_; ++r) {
      masses |= AsksForMasses(r), moments |= stage_[r] < Search::kMet && !AsksForMasses(r);
      restarts |= stage_[r] == Search::kMoments && restart_[r] > 0;
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
        if (stage_[r] < Search::kMet && after[r] == Search::kMet && std::abs(total - 1) > 1e-7) rows_[r].ScaleBy(n_, 1 / total);
      }
    }
  }

  // After the last question: whether p has the entropy.
  HWY_INLINE bool IsMet(size_t r) const { return stage_[r] == Search::kMet; }

 private:
  static constexpr size_t kRows = kRowsAtOnce;
  using L = Lanes<D64>;
  using Search = GammaSearch<L>;
  static constexpr size_t kLanes = hn::MaxLanes(D64()), kSearches = (kRows + kLanes - 1) / kLanes;

  static HWY_INLINE L At(const double* values, size_t s) { return hn::Load(D64(), values + s * kLanes); }
  static HWY_INLINE void Put(L x, double* values, size_t s) { hn::Store(x.v, D64(), values + s * kLanes); }

  HWY_INLINE bool AsksForMasses(size_t r) const { return stage_[r] == Search::kTry || stage_[r] == Search::kMasses; }
  HWY_INLINE bool IsFar(size_t r) const { return !(gamma_[r] * rows_[r].range < kNearReach); }

  HWY_INLINE void Answer(size_t r) {
    Row& row = rows_[r];
    const Question question = QuestionOf(r);
    if (question == Question::none) return;
    if (question == Question::masses) {
      double sums[2];
      row.Write(n_, IsFar(r), gamma_[r], inverse_s_[r], log_s_[r], sums);
      return TellMasses(r, sums);
    }
    double gamma = gamma_[r], sums[4];
    question == Question::few ? row.few.Moments(gamma, sums) : row.Moments(n_, IsFar(r), gamma, sums);
    TellMoments(r, gamma, sums);
  }

  // Scores with less than e^-17 / n of the largest mass are left out until the end, if they are most of the row.
  HWY_INLINE bool PackRest(Row& row, size_t r) const {
    const double reach = (log_n_[r] + 17) / gamma_[r];
    if (!(reach < 0.6 * row.range)) return false;
    row.few = {row.memory, 0, nullptr, 0, 0};
    row.few.top_count = row.Pack(n_, static_cast<float>(row.survey.max - reach), n_ / 2);
    return row.few.top_count > row.survey.ties && row.few.top_count <= n_ / 2;
  }

  Row* rows_;
  size_t count_, n_;
  Search search_[kSearches];
  HWY_ALIGN double stage_[kRows], gamma_[kRows], log_s_[kRows], inverse_s_[kRows], sums_[4][kRows];
  HWY_ALIGN double log_n_[kRows], restart_[kRows];
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_NARROW_ENTROPY_INL_H_

// The entropy of a distribution, and the gamma (inverse temperature) at which softmax(gamma x) has a given entropy, all in
// float64.

#if defined(ISENTROPIC_ROWS_ENTROPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_ENTROPY_INL_H_
#undef ISENTROPIC_ROWS_ENTROPY_INL_H_
#else
#define ISENTROPIC_ROWS_ENTROPY_INL_H_
#endif

#include <cmath>
#include <limits>
#include <type_traits>

#include "isentropic/entropy_control.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/reduce-inl.h"
#include "src/rows/rough_sums-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// -sum p log p in nats, by terms of d's type, T or double; 0, not -0, if all mass is in one place.
template <class D, class T>
HWY_INLINE double RowEntropy(D d, const T* p, size_t n) {
  return 0 - Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
           hn::Vec<D> pi;
           if constexpr (std::is_same_v<hn::TFromD<D>, T>) {
             pi = LoadUpTo(d, p + i, count, T(0));
           } else {
             pi = LoadWide(d, p + i, count, T(0));
           }
           return hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d)), hn::Mul(pi, Log(d, pi)));
         });
}

// z = x - max in float64, times 2^-exponent so that the smallest finite one is in (-2, -1]: differences above the largest
// number or below the smallest normal one are not lost. It rounds only if T is double. -inf stays -inf.
template <class T>
class WideScores {
 public:
  using D = D64;
  using V = hn::Vec<D>;

  // Requires least < max.
  HWY_INLINE WideScores(T max, T least) {
    const D d;
    // If the difference overflows, it uses half of each score, which is exact.
    const double range = static_cast<double>(max) - static_cast<double>(least);
    const bool large = range > std::numeric_limits<double>::max();
    const double factor = large ? 0.5 : 1.0;
    const int rest = std::ilogb(large ? static_cast<double>(max) * 0.5 - static_cast<double>(least) * 0.5 : range);
    exponent = rest + large;
    factor_ = hn::Set(d, factor);
    max_ = hn::Set(d, static_cast<double>(max) * factor);
    // 2^-exponent itself may overflow.
    first_ = hn::Set(d, std::ldexp(1.0, -(rest / 2)));
    second_ = hn::Set(d, std::ldexp(1.0, rest / 2 - rest));
  }

  HWY_INLINE V operator()(V x) const { return hn::Mul(hn::Mul(hn::Sub(hn::Mul(x, factor_), max_), first_), second_); }

  // v 2^-exponent.
  HWY_INLINE V Scale(V v) const { return hn::Mul(hn::Mul(v, first_), hn::Mul(second_, factor_)); }

  int exponent;

 private:
  V factor_, max_, first_, second_;
};

struct GammaOfRow {
  double gamma, entropy;
  GammaStatus status;
  int evaluations;
};

// Calls evaluate(gamma, moments) until the entropy meets the target, which must be in reach. The last call is at the returned
// gamma. gamma is in units in which `one` stands for 1.
template <class Evaluate>
HWY_INLINE GammaOfRow FindGamma(EntropyTarget target, GammaLimits limits, GammaTolerance tolerance,
                                const GammaReach<double>& reach, double one, Evaluate&& evaluate) {
  using Search = GammaSearch<double>;
  Search search;
  search.Begin(target, limits, tolerance, reach, Search::kMoments, one);
  while (search.asks()) {
    double sums[4];
    evaluate(search.gamma(), sums);
    search.Exact(sums);
  }
  const auto status = search.stage() == Search::kTooLow    ? GammaStatus::clamped_low
                      : search.stage() == Search::kTooHigh ? GammaStatus::clamped_high
                                                           : GammaStatus::ok;
  return {search.gamma(), search.entropy(), status, search.evaluations()};
}

// The results of a first sweep over a row with a finite maximum.
template <class T>
struct RowSurvey {
  T max, least;            // largest and smallest finite score
  double finite, ties;     // the number of finite scores, and of those equal to the maximum
  double variance, third;  // central moments of the finite scores; not finite if powers overflow T
  bool nan;
};

// The sums of a survey, some scores at a time. kAbsent: there may be scores of -inf, or below `lowest`, which are left out.
template <bool kAbsent, class D, class T = hn::TFromD<D>>
class SurveySums {
 public:
  using V = hn::Vec<D>;
  static constexpr size_t kCount = kAbsent ? 5 : 4;

  HWY_INLINE explicit SurveySums(T max, T lowest = std::numeric_limits<T>::lowest()) : max_(max), lowest_(lowest) {}
  HWY_INLINE void operator()(V x, V* acc, V* least) const {
    const D d;
    const V top = hn::Set(d, max_), one = hn::Set(d, T(1));
    if constexpr (kAbsent) {
      const auto out = hn::Lt(x, hn::Set(d, lowest_));
      x = hn::IfThenElse(out, top, x);
      acc[4] = hn::Add(acc[4], hn::IfThenElseZero(out, one));
    }
    *least = hn::Min(x, *least);
    const V z = hn::Sub(x, top), z2 = hn::Mul(z, z);
    acc[0] = hn::Add(acc[0], z);
    acc[1] = hn::Add(acc[1], z2);
    acc[2] = hn::MulAdd(z2, z, acc[2]);
    acc[3] = hn::Add(acc[3], hn::IfThenElseZero(hn::Eq(x, top), one));
  }
  HWY_INLINE RowSurvey<T> Row(const double (&sums)[kCount], T least, size_t n) const {
    const double out = kAbsent ? sums[kCount - 1] : 0, finite = static_cast<double>(n) - out;
    const double mean = sums[0] / finite, square = sums[1] / finite;
    // Absent scores were counted as the maximum.
    return {max_,
            least,
            finite,
            sums[3] - out,
            square - mean * mean,
            sums[2] / finite - mean * (3 * square - 2 * mean * mean),
            sums[0] != sums[0]};
  }

 private:
  T max_, lowest_;
};

template <bool kAbsent, class D, class T = hn::TFromD<D>>
HWY_NOINLINE RowSurvey<T> SurveyRow(D d, const T* x, size_t n, T max, T lowest = std::numeric_limits<T>::lowest()) {
  const SurveySums<kAbsent, D> survey(max, lowest);
  hn::Vec<D> least = hn::Set(d, max);
  double sums[SurveySums<kAbsent, D>::kCount];
  RoughSums(d, x, n, max, sums, [&](hn::Vec<D> xi, hn::Vec<D>* acc) HWY_ATTR { survey(xi, acc, &least); });
  return survey.Row(sums, MinLane(d, least), n);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE RowSurvey<T> Survey(D d, const T* x, size_t n, T max) {
  const RowSurvey<T> row = SurveyRow<false>(d, x, n, max);
  return row.least == -kInfinity<T> ? SurveyRow<true>(d, x, n, max) : row;
}

// Leaves scores out of a survey that are so far below the others that they have no mass, such as those of masked classes, -1e9
// or the lowest float32: a search that begins with their variance needs dozens of evaluations. The target must be in reach;
// max_gamma is the limit of the search.
//
// Let K scores be within R of the maximum, and the others at least M below it. As gamma rises from 0, the entropy of the K
// alone falls by gamma times their variance, which is at most R^2 / 4. So at gamma = sqrt(8 (log K - H)) / R it is still at
// least H. If gamma M is 800 there, the others have no mass, nor at the gamma of H, which is not smaller.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void LeaveOutFar(D d, const T* x, size_t n, EntropyTarget target, double max_gamma, RowSurvey<T>* row) {
  constexpr double kNoMass = 800;
  const T max = row->max;
  for (;;) {
    const T middle = max * T(0.5) + row->least * T(0.5);
    const auto limit = hn::Set(d, middle), one = hn::Set(d, T(1)), top = hn::Set(d, max);
    auto least_near = top;
    const double near = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
      const auto is_near = hn::Gt(xi, limit);
      least_near = hn::Min(hn::IfThenElse(is_near, xi, top), least_near);
      return hn::IfThenElseZero(is_near, one);
    });
    const T least = MinLane(d, least_near);
    const double log_near = LogNumber(near), entropy = target.high < log_near ? target.high : target.low;
    if (!(least > row->least && least < max && entropy < log_near)) return;
    // Halves, because a difference may overflow.
    const double half = static_cast<double>(max) * 0.5, r = half - static_cast<double>(least) * 0.5;
    const double m = half - static_cast<double>(middle) * 0.5;
    const double given = target.low < target.high ? HWY_MIN(1.0, max_gamma) : max_gamma;
    if (!(std::sqrt(8 * (log_near - entropy)) * (m / r) >= kNoMass && given * m >= kNoMass / 2)) return;
    *row = SurveyRow<true>(d, x, n, max, least);
  }
}

// The moments at gamma, in the units of `relative`; e takes exp(gamma z).
template <class T>
HWY_NOINLINE HWY_FLATTEN void MomentsWide(WideScores<T> relative, T max, const T* x, size_t n, double gamma, double* e,
                                          double (&sums)[4]) {
  const D64 d;
  const ExpScaled<D64> exp(d, 1);
  const V64 factor = hn::Set(d, gamma), lowest = hn::Set(d, -800.0);
  Sums(d, n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    // Below -800 exp is 0, and 0 times the bound is 0.
    const V64 a = hn::Max(hn::Mul(relative(LoadWide(D64(), x + i, count, max)), factor), lowest);
    terms[0] = exp(d, a);
    StoreUpTo(terms[0], d, count, e + i);
    terms[1] = hn::Mul(terms[0], a);
    terms[2] = hn::Mul(terms[1], a);
    terms[3] = hn::Mul(terms[2], a);
  });
}

// gamma of a row with a finite maximum, all in float64, for any scores. Scores below those of the survey have no mass. e has
// room for n and gets exp(gamma (x - max)); `sum` gets their sum.
template <class T>
HWY_NOINLINE GammaOfRow FindGammaWide(const RowSurvey<T>& row, const T* x, size_t n, EntropyTarget target, GammaLimits limits,
                                      double* e, double* sum) {
  const D64 d;
  const WideScores<T> relative(row.max, row.least);
  const V64 lowest = hn::Set(d, -2.0);  // the survey counts nothing below it
  double moments[3];
  Sums(d, n, moments, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 z = relative(LoadWide(D64(), x + i, count, row.max));
    terms[0] = hn::IfThenZeroElse(hn::Lt(z, lowest), z);
    terms[1] = hn::Mul(terms[0], terms[0]);
    terms[2] = hn::Mul(terms[1], terms[0]);
  });
  const double mean = moments[0] / row.finite, square = moments[1] / row.finite;
  const double variance = square - mean * mean, third = moments[2] / row.finite - mean * (3 * square - 2 * mean * mean);
  const auto evaluate = [&](double gamma, double(&sums)[4]) HWY_ATTR {
    MomentsWide(relative, row.max, x, n, gamma, e, sums);
    *sum = sums[0];
  };
  const double one = HWY_MIN(std::ldexp(1.0, relative.exponent), std::numeric_limits<double>::max());
  const GammaLimits scaled = {std::ldexp(limits.low, relative.exponent), std::ldexp(limits.high, relative.exponent),
                              limits.evaluations};
  const GammaReach<double> reach = {LogNumber(row.ties), LogNumber(row.finite), variance, third};
  GammaOfRow found = FindGamma(target, scaled, {2e-15, 1e-5, 2e-13}, reach, one, evaluate);
  // Undo the scaling of bounds, which may have lost digits as subnormal numbers.
  found.gamma = HWY_MAX(limits.low, HWY_MIN(std::ldexp(found.gamma, -relative.exponent), limits.high));
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_ENTROPY_INL_H_

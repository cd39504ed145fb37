// What a chain calculates of the scores x that are left, n of them with maximum max, at a temperature.

#if defined(ISENTROPIC_SAMPLING_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_STEPS_INL_H_
#undef ISENTROPIC_SAMPLING_STEPS_INL_H_
#else
#define ISENTROPIC_SAMPLING_STEPS_INL_H_
#endif

#include <cmath>

#include "src/rows/entropy-inl.h"
#include "src/rows/narrow_entropy-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

HWY_INLINE V64 LoadIn(D64 d, const float* x, size_t count, float fill) { return LoadWide(d, x, count, fill); }
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadIn(D d, const T* x, size_t count, T fill) {
  return LoadUpTo(d, x, count, fill);
}

// e = exp((x - max) / temperature), in the type of the scores or in float64, and the sum.
template <class D, class T>
HWY_INLINE double TermsOf(D d, const T* x, size_t n, T max, double temperature, hn::TFromD<D>* e) {
  const ExpScaled<D> exp(d, temperature);
  const auto shift = hn::Set(d, static_cast<hn::TFromD<D>>(max));
  return Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto ei = exp(d, hn::Sub(LoadIn(d, x + i, count, max), shift));
    StoreUpTo(ei, d, count, e + i);
    return ei;
  });
}

// The sum of e (x - max).
template <class T>
HWY_INLINE double MeanScoreOf(const T* x, size_t n, T max, const T* e) {
  const D64 d;
  const V64 shift = hn::Set(d, static_cast<double>(max));
  return QuickSum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 ei = LoadWide(d, e + i, count, T(0));
    return hn::IfThenZeroElse(hn::Eq(ei, hn::Zero(d)), hn::Mul(ei, hn::Sub(LoadIn(d, x + i, count, max), shift)));
  });
}

// The sums of e = exp((x - max) / temperature) and of e (x - max) / temperature.
template <class T>
HWY_INLINE void EntropySums(const T* x, size_t n, T max, double temperature, double (&sums)[2]) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, temperature);
  const auto shift = hn::Set(d, max), scale = hn::Set(d, static_cast<T>(1 / temperature));
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
    const auto z = hn::Sub(LoadUpTo(d, x + i, count, max), shift);
    terms[0] = exp(d, z);
    terms[1] = hn::IfThenZeroElse(hn::Eq(terms[0], hn::Zero(d)), hn::Mul(terms[0], hn::Mul(z, scale)));
  });
}
HWY_INLINE double EntropyOf(const double (&sums)[2]) { return LogNumber(sums[0]) - sums[1] / sums[0]; }

template <class T>
HWY_INLINE double EntropyAt(const T* x, size_t n, T max, double temperature) {
  double sums[2];
  EntropySums(x, n, max, temperature, sums);
  return EntropyOf(sums);
}

// The sums of e = exp((x - max) / temperature) and of their squares.
template <class T>
HWY_INLINE void MassSums(const T* x, size_t n, T max, double temperature, double (&sums)[2]) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, temperature);
  const auto shift = hn::Set(d, max);
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
    terms[0] = exp(d, hn::Sub(LoadUpTo(d, x + i, count, -kInfinity<T>), shift));
    terms[1] = hn::Mul(terms[0], terms[0]);
  });
}
template <class T>
HWY_INLINE double MassOf(const T* x, size_t n, T max, double temperature) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, temperature);
  const auto shift = hn::Set(d, max);
  return Sum(d, n,
             [&](size_t i, size_t count) HWY_ATTR { return exp(d, hn::Sub(LoadUpTo(d, x + i, count, -kInfinity<T>), shift)); });
}

// The standard deviation of the finite scores. With m of them, of which the largest is the origin, it is at least the mean over
// sqrt(m): so little cancels that one pass is enough.
template <class T>
HWY_INLINE double DeviationOf(const T* x, size_t n, T max) {
  const D64 d;
  double scale = 1;
  for (;;) {
    const V64 factor = hn::Set(d, scale), shift = hn::Set(d, static_cast<double>(max) * scale);
    double sums[3];
    Sums(d, n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
      const V64 xi = LoadIn(d, x + i, count, -kInfinity<T>);
      const auto there = hn::Gt(xi, hn::Set(d, -kInfinity<double>));
      const V64 away = hn::IfThenElseZero(there, hn::Sub(hn::Mul(xi, factor), shift));
      terms[0] = hn::IfThenElseZero(there, hn::Set(d, 1.0));
      terms[1] = away;
      terms[2] = hn::Mul(away, away);
    });
    const double mean = sums[1] / sums[0], square = sums[2] / sums[0];
    if (sizeof(T) == 8 && scale == 1 && !(square < 0x1p1000)) {
      scale = 0x1p-600;
    } else if (sizeof(T) == 8 && scale == 1 && sums[1] != 0 && square < 0x1p-900) {
      scale = 0x1p500;
    } else {
      return std::sqrt(HWY_MAX(square - mean * mean, 0.0)) / scale;
    }
  }
}

// What gives the scores an entropy: a factor gamma; or, if differences of scores are not normal numbers, or nearly not, log e
// in place of the scores. Or the nearest possible distribution: equal scores, or only the largest.
struct ChainTarget {
  enum Kind : int { as_it_is, equal_scores, only_largest, scaled, replaced } kind;
  double gamma = 1;
  const double* e = nullptr;
};

// Memory: a row of float64, and NarrowRow::Room(n) numbers of T.
template <class T>
HWY_NOINLINE ChainTarget TargetOf(const T* x, size_t n, T max, double entropy, Arena memory) {
  const RowTag<T> d;
  RowSurvey<T> row;
  Condensed few = {nullptr, 0, nullptr, 0, 0};
  if constexpr (sizeof(T) == 4) {
    if (n >= kLongRow) few = Condense(x, n, max, memory.take<float>(NarrowRow::Room(n)), &row);
  }
  if (few.top_count == 0) row = Survey(d, x, n, max);
  if (row.least == max) return {ChainTarget::as_it_is};
  if (entropy >= LogNumber(row.finite)) return {ChainTarget::equal_scores};
  if (entropy <= LogNumber(row.ties)) return {ChainTarget::only_largest};
  double gamma = 0;
  if constexpr (sizeof(T) == 4) {
    if (!IsNarrow(row, n)) LeaveOutFar(d, x, n, {entropy, entropy}, kInfinity<double>, &row);
    gamma = NarrowGamma(row, few, x, n, entropy);
  }
  double* const e = memory.take<double>(n);
  if (gamma == 0) {
    if (few.top_count != 0) row = Survey(d, x, n, max);
    LeaveOutFar(d, x, n, {entropy, entropy}, kInfinity<double>, &row);
    double sum;
    gamma = FindGammaWide(row, x, n, {entropy, entropy}, {}, e, &sum).gamma;
    if (!(gamma > 0x1p-1000 && gamma < 0x1p1000)) return {ChainTarget::replaced, 1, e};
  }
  return {ChainTarget::scaled, gamma};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_STEPS_INL_H_

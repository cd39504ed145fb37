// The logarithm of the ratio of two softmax rows that are nearly equal.

#if defined(ISENTROPIC_ROWS_NEAR_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_NEAR_SOFTMAX_INL_H_
#undef ISENTROPIC_ROWS_NEAR_SOFTMAX_INL_H_
#else
#define ISENTROPIC_ROWS_NEAR_SOFTMAX_INL_H_
#endif

#include <cmath>

#include "src/rows/expm1-inl.h"
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// x - y = high + low, exact unless a step overflows: Knuth 4.2.2.
struct ExactDifference {
  V64 high, low;

  HWY_INLINE ExactDifference(V64 x, V64 y) : high(hn::Sub(x, y)) {
    const V64 of_y = hn::Sub(high, x);
    const V64 rest = hn::Sub(hn::Sub(x, hn::Sub(high, of_y)), hn::Add(y, of_y));
    low = hn::IfThenElseZero(hn::IsFinite(rest), rest);
  }
};

// What LogRatiosOfNearSoftmax needs of a score of both rows.
struct NearSoftmaxTerms {
  V64 high, low;  // max x - max y

  // (x - y) - (max x - max y), NaN where both are absent.
  HWY_INLINE V64 Relative(V64 x, V64 y) const {
    const ExactDifference apart(x, y);
    return hn::Add(hn::Sub(apart.high, high), hn::Sub(apart.low, low));
  }
  // t (e^d - 1). t e^d = s e^(sums apart), whose last factor is level_of_s, also if e^d overflows or underflows.
  static HWY_INLINE V64 Excess(V64 di, V64 s, V64 t, V64 level_of_s) {
    const D64 d;
    return hn::IfThenElse(IsNearZero(d, di), hn::Mul(t, Expm1NearZero(d, di)), hn::MulSub(s, level_of_s, t));
  }
};

// ratios[i] = T log(s_i / t_i), which is finite for any T, for s = softmax(x / T) and t = softmax(y / T), with a small relative
// error; s(i, count) and t(i, count) return the masses.
//
// The difference of the two logarithms has their rounding error, however near they are. With d_i = ((x_i - y_i) - (max x - max
// y)) / T, whose inner differences are exact,
//   log(s_i / t_i) = d_i - log(sum t e^d) = d_i - log(1 + sum t (e^d - 1)),
// in which no large number is rounded. Returns false, without ratios, if the sum is not small or NaN: the difference of
// logarithms loses nothing then. Most rows that are not near are recognised without a pass by `sums_apart`, the difference of
// their log sum e^((x - max x) / T). If a score is absent in both rows, its ratio is undefined.
template <class T, class StudentMasses, class TeacherMasses>
HWY_INLINE bool LogRatiosOfNearSoftmax(double temperature, const T* x, const T* y, size_t n, double sums_apart,
                                       const StudentMasses& s, const TeacherMasses& t, double* ratios) {
  if (!(std::abs(sums_apart) < 0.0625)) return false;
  const D64 d;
  const RowTag<T> narrow;
  const ExactDifference of_maxima(hn::Set(d, static_cast<double>(RowMax(narrow, x, n))),
                                  hn::Set(d, static_cast<double>(RowMax(narrow, y, n))));
  if (!IsFinite(hn::GetLane(of_maxima.high))) return false;
  const NearSoftmaxTerms terms = {of_maxima.high, of_maxima.low};
  const V64 factor = hn::Set(d, temperature), absent = hn::Set(d, -kInfinity<double>);
  const V64 level_of_s = hn::Set(d, ExpNumber(sums_apart));
  const double excess = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 xi = LoadWide(d, x + i, count, T(0)), yi = LoadWide(d, y + i, count, T(0));
    const auto none = hn::And(hn::Eq(xi, absent), hn::Eq(yi, absent));
    const V64 scaled = hn::IfThenZeroElse(none, terms.Relative(xi, yi));
    StoreUpTo(scaled, d, count, ratios + i);
    return hn::IfThenZeroElse(none, terms.Excess(hn::Div(scaled, factor), s(i, count), t(i, count), level_of_s));
  });
  if (!(std::abs(excess) <= 0.5)) return false;
  const V64 level = hn::Set(d, temperature * Log1pNumber(excess));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(hn::Sub(LoadUpTo(d, ratios + i, count, 0.0), level), d, count, ratios + i);
  });
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_NEAR_SOFTMAX_INL_H_

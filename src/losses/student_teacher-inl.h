// A student's softmax beside a teacher's. Masses and terms are of the scores' type, and log s - log t, which decides how
// accurate losses are where s and t are nearly equal, comes from differences in float64.

#if defined(ISENTROPIC_LOSSES_STUDENT_TEACHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_STUDENT_TEACHER_INL_H_
#undef ISENTROPIC_LOSSES_STUDENT_TEACHER_INL_H_
#else
#define ISENTROPIC_LOSSES_STUDENT_TEACHER_INL_H_
#endif

#include "src/losses/batch-inl.h"
#include "src/rows/near_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// A vector of type D of the float64 numbers that of(i, count) returns.
template <class Of>
HWY_INLINE V64 FromDouble(D64 /*d*/, size_t i, size_t count, const Of& of) {
  return of(i, count);
}
template <class Of>
HWY_INLINE hn::Vec<RowTag<float>> FromDouble(RowTag<float> d, size_t i, size_t count, const Of& of) {
#if HWY_TARGET == HWY_SCALAR
  return hn::DemoteTo(d, of(i, count));
#else
  constexpr size_t N = hn::MaxLanes(D64());
  const hn::Half<decltype(d)> half;
  return hn::Combine(d, hn::DemoteTo(half, of(i + N, count > N ? count - N : 0)), hn::DemoteTo(half, of(i, HWY_MIN(count, N))));
#endif
}

// A row of scores without +inf, its maximum, the terms e^((x - max)/T), and the logarithm and the inverse of their sum.
template <class T>
struct SoftmaxRow {
  const T* x;
  T max;
  const T* terms;
  double log_sum;
  T inverse;

  template <class D>
  HWY_INLINE hn::Vec<D> Masses(D d, size_t i, size_t count) const {
    return hn::Mul(LoadUpTo(d, terms + i, count, T(0)), hn::Set(d, inverse));
  }
  HWY_INLINE V64 WideMasses(D64 d, size_t i, size_t count) const {
    return hn::Mul(LoadWide(d, terms + i, count, T(0)), hn::Set(d, static_cast<double>(inverse)));
  }
  // x - max, finite for every score.
  HWY_INLINE V64 BelowMax(D64 d, size_t i, size_t count) const {
    const V64 xi = LoadWide(d, x + i, count, -kInfinity<T>);
    return hn::Max(hn::Sub(xi, hn::Set(d, static_cast<double>(max))), hn::Set(d, std::numeric_limits<double>::lowest()));
  }
};

// log_sum is NaN if the row has no distribution.
template <class T>
HWY_INLINE SoftmaxRow<T> SoftmaxRowOf(double temperature, const T* x, size_t n, Arena& memory) {
  const RowTag<T> d;
  T* const terms = memory.template take<T>(n);
  T max = RowMax(d, x, n);
  if (max == kInfinity<T> && !FindNonFinite(x, n).nan) {
    T* const canonical = memory.template take<T>(n);
    Canonical(x, n, canonical);
    x = canonical, max = 0;
  }
  SoftmaxRow<T> row = {x, max, terms, kNaN<double>, T(0)};
  if (!IsFinite(max)) return row;
  const ExpScaled<RowTag<T>> exp(d, 1);
  const DividedBy<RowTag<T>> divided(temperature);
  const auto shift = hn::Set(d, max);
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto term = exp(d, divided(hn::Sub(LoadUpTo(d, x + i, count, -kInfinity<T>), shift)));
    StoreUpTo(term, d, count, terms + i);
    return term;
  });
  row.log_sum = LogNumber(sum);
  row.inverse = static_cast<T>(1 / sum);
  return row;
}

template <class T>
struct StudentAndTeacher {
  SoftmaxRow<T> student, teacher;
  double temperature;
  const double* ratios;  // T (log s - log t), if they are nearly equal; or nullptr
  size_t n;
  double sign = 1;  // of these ratios: -1 if they are those of swapped()

  // Each in the place of the other.
  HWY_INLINE StudentAndTeacher swapped() const { return {teacher, student, temperature, ratios, n, -sign}; }

  // T (log s - log t), which is finite for any T. Where s and t are both 0 it has no meaning.
  HWY_INLINE V64 ScaledLogRatios(D64 d, size_t i, size_t count) const {
    if (ratios != nullptr) return hn::Mul(LoadUpTo(d, ratios + i, count, 0.0), hn::Set(d, sign));
    const V64 level = hn::Set(d, temperature * (student.log_sum - teacher.log_sum));
    return hn::Sub(hn::Sub(student.BelowMax(d, i, count), teacher.BelowMax(d, i, count)), level);
  }
  // log s - log t.
  HWY_INLINE V64 LogRatios(D64 d, size_t i, size_t count) const {
    const V64 scaled = ScaledLogRatios(d, i, count);
    return temperature == 1 ? scaled : hn::Div(scaled, hn::Set(d, temperature));
  }
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Mask<D> IsAbsent(D d, const T* x, size_t count) {
  return hn::Eq(LoadUpTo(d, x, count, T(0)), hn::Set(d, -kInfinity<T>));
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_STUDENT_TEACHER_INL_H_

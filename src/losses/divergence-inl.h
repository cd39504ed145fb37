// Losses between a student's softmax and a teacher's. Masses and terms are of the scores' type, and log s - log t, which
// decides how accurate they are where s and t are nearly equal, comes from differences in float64.

#if defined(ISENTROPIC_LOSSES_DIVERGENCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_DIVERGENCE_INL_H_
#undef ISENTROPIC_LOSSES_DIVERGENCE_INL_H_
#else
#define ISENTROPIC_LOSSES_DIVERGENCE_INL_H_
#endif

#include <array>

#include "src/losses/fenchel_young-inl.h"
#include "src/rows/near_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// r^3/3 + r^5/5 + ..., the end of artanh(r), for |r| <= 1/3. With r = u / (2 + u), log(1 + u) = 2 artanh(r) = 2 r + 2 tail and
// u - log(1 + u) = u r - 2 tail.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ArtanhTail(D d, V r) {
  using T = hn::TFromD<D>;
  constexpr int kLast = sizeof(T) == 4 ? 17 : 37;
  const V r2 = hn::Mul(r, r);
  V series = hn::Set(d, T(1.0 / kLast));
  for (int k = kLast - 2; k >= 3; k -= 2) series = hn::MulAdd(series, r2, hn::Set(d, static_cast<T>(1.0 / k)));
  return hn::Mul(hn::Mul(r, r2), series);
}

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

  // T (log s - log t), which is finite for any T. Where s and t are both 0 it has no meaning.
  HWY_INLINE V64 ScaledLogRatios(D64 d, size_t i, size_t count) const {
    if (ratios != nullptr) return LoadUpTo(d, ratios + i, count, 0.0);
    const V64 level = hn::Set(d, temperature * (student.log_sum - teacher.log_sum));
    return hn::Sub(hn::Sub(student.BelowMax(d, i, count), teacher.BelowMax(d, i, count)), level);
  }
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Mask<D> IsAbsent(D d, const T* x, size_t count) {
  return hn::Eq(LoadUpTo(d, x, count, T(0)), hn::Set(d, -kInfinity<T>));
}

// T^2 sum t (e^y - 1 - y), y = log s - log t: for small y by its series, in T y so that a large T loses no digits; otherwise as
// T (T (s - t) - t T y).
template <class T>
HWY_INLINE double PairRow(const DistillationLoss& op, const StudentAndTeacher<T>& rows, T* dx) {
  const RowTag<T> d;
  const auto factor = hn::Set(d, static_cast<T>(op.temperature)), zero = hn::Zero(d), infinity = hn::Set(d, kInfinity<T>);
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto absent = IsAbsent(d, rows.student.x + i, count), no_target = IsAbsent(d, rows.teacher.x + i, count);
    const auto s = rows.student.Masses(d, i, count), t = rows.teacher.Masses(d, i, count);
    const auto scaled =
        FromDouble(d, i, count, [&](size_t at, size_t some) HWY_ATTR { return rows.ScaledLogRatios(D64(), at, some); });
    const auto near = hn::Le(hn::Abs(scaled), factor);
    const auto near_scaled = hn::IfThenElseZero(near, scaled), near_y = hn::Div(near_scaled, factor);
    const auto phi2 = Phi2NearZero(d, near_y);
    const auto small = hn::Mul(t, hn::Mul(hn::Mul(near_scaled, near_scaled), phi2));
    const auto far = hn::Mul(factor, hn::Sub(s, t)), t_scaled = hn::Mul(t, hn::IfThenZeroElse(hn::Eq(t, zero), scaled));
    const auto large = hn::Mul(factor, hn::Sub(far, t_scaled));
    if (dx != nullptr) {
      const auto close = hn::Mul(t, hn::MulAdd(hn::Mul(near_scaled, near_y), phi2, near_scaled));
      StoreUpTo(hn::IfThenZeroElse(absent, hn::IfThenElse(near, close, far)), d, count, dx + i);
    }
    // A class that only the teacher has, with any small probability: t itself may have underflowed.
    const auto term = hn::IfThenElse(near, small, hn::Max(large, zero));
    return hn::IfThenElse(hn::AndNot(no_target, absent), infinity, term);
  });
}

// d loss / dT. With g = e^y - 1 - y, KL is sum t g; with u = z - <t, z>, z of the teacher, and w = u + y, z of the student but
// for a constant, the derivative is
//   T sum (2 t g + t y u - (s - t) w) = T sum t (h - g u), h = 2 (e^y - 1) - y (1 + e^y) = sum_{k >= 3} (2 - k) y^k / k!,
// in which the series is used for small y, because nothing cancels in it. For other y there are T w and T y, which are finite
// for any T.
HWY_INLINE double PairSlope(const DistillationLoss& op, const StudentAndTeacher<double>& rows) {
  const D64 d;
  const V64 zero = hn::Zero(d), two = hn::Set(d, 2.0), factor = hn::Set(d, op.temperature);
  // T z where the row has mass.
  const auto scaled_score = [&](const SoftmaxRow<double>& row, V64 mass, size_t i, size_t count)
                                HWY_ATTR { return hn::IfThenZeroElse(hn::Eq(mass, zero), row.BelowMax(d, i, count)); };
  const double mean = Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 t = rows.teacher.Masses(d, i, count);
    return hn::Mul(t, scaled_score(rows.teacher, t, i, count));
  });
  // (2 - k) / k! from k = 3 on.
  constexpr auto kSeries = [] {
    std::array<double, kInverseFactorials.size() - 1> c = {};
    for (size_t i = 0; i < c.size(); ++i) c[i] = -static_cast<double>(i + 1) * kInverseFactorials[i + 1];
    return c;
  }();
  const V64 level_t = hn::Set(d, mean);
  const V64 level_s = hn::Set(d, mean + op.temperature * (rows.student.log_sum - rows.teacher.log_sum));
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 s = rows.student.Masses(d, i, count), t = rows.teacher.Masses(d, i, count);
    const V64 t_y = rows.ScaledLogRatios(d, i, count);
    const auto near = hn::Le(hn::Abs(t_y), factor), no_student = hn::Eq(s, zero), no_target = hn::Eq(t, zero);
    const V64 t_u = hn::IfThenZeroElse(no_target, hn::Sub(scaled_score(rows.teacher, t, i, count), level_t));
    const V64 y = hn::Div(hn::IfThenElseZero(near, t_y), factor), y2 = hn::Mul(y, y);
    const V64 h = hn::Mul(factor, hn::Mul(hn::Mul(y2, y), Polynomial(d, y, kSeries)));
    const V64 small = hn::Mul(t, hn::NegMulAdd(hn::Mul(y2, Phi2NearZero(d, y)), t_u, h));
    const V64 far_t_y = hn::IfThenZeroElse(no_target, t_y), weighted = hn::Mul(t, far_t_y), apart = hn::Sub(s, t);
    const V64 of_s = hn::IfThenZeroElse(no_student, hn::Sub(scaled_score(rows.student, s, i, count), level_s));
    const V64 t_w = hn::IfThenElse(no_target, of_s, hn::Add(t_u, far_t_y));
    const V64 twice = hn::Mul(two, hn::NegMulAdd(t, far_t_y, hn::Mul(factor, apart)));
    const V64 large = hn::NegMulAdd(apart, t_w, hn::MulAdd(weighted, hn::Div(t_u, factor), twice));
    return hn::IfThenElse(near, small, large);
  });
}

// e^-a is 0 from here on.
template <class T>
inline constexpr T kVanishes = sizeof(T) == 4 ? T(200) : T(1500);

// The terms of KL(t, m) and KL(s, m) at a class, m - p + p log(p/m), neither of which is negative, and log(s/m).
//
// p is the larger of s and t, q = p e^-a the other one, and m = p M = p (w_p + w_q e^-a). With U = m/p - 1 = -w_q (1 - e^-a)
// and V = m/q - 1 = w_p (1 - e^-a) / e^-a the terms are p (U - log(1 + U)) and q (V - log(1 + V)), neither of which is
// negative; log(1 + U) = log M and log(1 + V) = log M + a. One logarithm serves both, no number overflows, and M is a sum of
// positive numbers, with all its digits for the smallest weights. U and V up to 1/2 have series.
template <class D>
struct JsdTerms {
  hn::Vec<D> of_s, of_t, log_ratio;

  HWY_INLINE JsdTerms(D d, double beta, hn::Vec<D> s, hn::Vec<D> t, hn::Vec<D> y) {
    using T = hn::TFromD<D>;
    using V = hn::Vec<D>;
    const V half = hn::Set(d, T(0.5)), two = hn::Set(d, T(2));
    const V of_teacher = hn::Set(d, static_cast<T>(beta)), of_student = hn::Set(d, static_cast<T>(1 - beta));
    const auto ahead = hn::Ge(y, hn::Zero(d));
    const V p = hn::IfThenElse(ahead, s, t);
    const V w_p = hn::IfThenElse(ahead, of_student, of_teacher), w_q = hn::IfThenElse(ahead, of_teacher, of_student);
    const V a = hn::Min(hn::Abs(y), hn::Set(d, kVanishes<T>)), minus_a = hn::Neg(a);
    const V e = ExpOfClamped(d, ClampForExp(d, minus_a));
    const V fallen = hn::Neg(Expm1(d, minus_a, e)), u = hn::Neg(hn::Mul(w_q, fallen)), e_v = hn::Mul(w_p, fallen);
    const V log_u = LogOfMean(d, hn::MulAdd(w_q, e, w_p)), log_v = hn::Add(log_u, a);
    const auto near_u = hn::Le(hn::Neg(u), half), near_v = hn::Le(e_v, hn::Mul(half, e));
    const V r_u = hn::IfThenElseZero(near_u, hn::Div(u, hn::Add(two, u))), tail_u = ArtanhTail(d, r_u);
    const V r_v = hn::IfThenElseZero(near_v, hn::Div(e_v, hn::MulAdd(two, e, e_v))), tail_v = ArtanhTail(d, r_v);
    const V of_p = hn::Mul(p, hn::IfThenElse(near_u, hn::NegMulAdd(two, tail_u, hn::Mul(u, r_u)), hn::Sub(u, log_u)));
    const V of_q = hn::Mul(
        p, hn::IfThenElse(near_v, hn::NegMulAdd(hn::Mul(two, e), tail_v, hn::Mul(e_v, r_v)), hn::NegMulAdd(e, log_v, e_v)));
    of_s = hn::IfThenElse(ahead, of_p, of_q);
    of_t = hn::IfThenElse(ahead, of_q, of_p);
    const V of_u = hn::IfThenElse(near_u, hn::Mul(two, hn::Add(r_u, tail_u)), log_u);
    const V of_v = hn::IfThenElse(near_v, hn::Mul(two, hn::Add(r_v, tail_v)), log_v);
    log_ratio = hn::Neg(hn::IfThenElse(ahead, of_u, of_v));
  }

 private:
  // log M: with weights that fit float, M is a normal number there; in float64 it may be subnormal.
  static HWY_INLINE hn::Vec<D> LogOfMean(D d, hn::Vec<D> mean) {
    if constexpr (sizeof(hn::TFromD<D>) == 4) return LogOfNormal(d, mean);
    return Log(d, mean);
  }
};

// log(1 + w (e^z - 1)) for 0 <= w <= 1, rest = 1 - w, with a small relative error. It is log(1 + u) with u = w (e^z - 1) or,
// above 0, z + log(1 + u) with u = rest (e^-z - 1), where u lies between -1 and 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LogOfMixture(D d, V w, V rest, V z) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d), half = hn::Set(d, T(0.5)), two = hn::Set(d, T(2));
  const auto above = hn::Gt(z, zero);
  const V minus_a = hn::Max(hn::Neg(hn::Abs(z)), hn::Set(d, -kVanishes<T>)), e = Exp(d, minus_a);
  const V fallen = hn::Neg(Expm1(d, minus_a, e));
  const V moved = hn::IfThenElse(above, rest, w), kept = hn::IfThenElse(above, w, rest);
  const V far = hn::Add(Log(d, hn::MulAdd(moved, e, kept)), hn::IfThenElseZero(above, hn::Neg(minus_a)));
  // w (e^z - 1) for either sign of z, as a quotient by 1 or e^-z.
  const V rise = hn::Mul(w, hn::IfThenElse(above, fallen, hn::Neg(fallen))), unit = hn::IfThenElse(above, e, hn::Set(d, T(1)));
  const auto near = hn::Le(hn::Abs(rise), hn::Mul(half, unit));
  const V r = hn::IfThenElseZero(near, hn::Div(rise, hn::MulAdd(two, unit, rise)));
  return hn::IfThenElse(near, hn::Mul(two, hn::Add(r, ArtanhTail(d, r))), far);
}

// The reference of RelativeLogRatios: y_0, and the parts of the teacher and of the student in m.
template <class T>
struct JsdReference {
  double y_0;
  T w, rest;

  // The terms of both sums, of which y_0 is the quotient, from e^(x - max x) and y.
  static HWY_INLINE void Add(V64 student, V64 y, V64* sum) {
    const D64 d;
    const V64 one = hn::Set(d, 1.0), most = hn::Set(d, 40.0);
    const auto largest = hn::Eq(student, one);
    sum[0] = hn::IfThenElseZero(largest, hn::Min(y, most));
    sum[1] = hn::IfThenElseZero(largest, one);
  }
  HWY_INLINE JsdReference(double beta, const double (&sums)[2]) : y_0(sums[0] / sums[1]) {
    const double teacher_0 = beta * ExpNumber(-y_0), m_0 = 1 - beta + teacher_0;
    w = static_cast<T>(teacher_0 / m_0), rest = static_cast<T>((1 - beta) / m_0);
  }
};

// dx = l, log(s/m) less its value at a reference with log s - log t = y_0. Returns <s, l>. With w the part of the teacher in m
// at the reference,
//   l = -log((m/s) / (m/s)_0) = -log(1 + w (e^(y_0 - y) - 1)),
// which keeps its digits where log(s/m) is nearly the same for all classes with mass. The reference is the student's largest
// score; y_0 may be any number, and has a limit, at which the teacher has no mass there.
//
// `rows` is passed by value, so that the caller may keep its own in registers.
template <class T>
HWY_NOINLINE double RelativeLogRatios(double beta, StudentAndTeacher<T> rows, T* dx) {
  const RowTag<T> d;
  const D64 wide;
  double sums[2];
  Sums(wide, rows.n, sums, [&](size_t i, size_t count, V64* sum) HWY_ATTR {
    JsdReference<T>::Add(LoadWide(wide, rows.student.terms + i, count, T(0)), rows.ScaledLogRatios(wide, i, count), sum);
  });
  const JsdReference<T> reference(beta, sums);
  const double y_0 = reference.y_0;
  const auto w = hn::Set(d, reference.w), rest = hn::Set(d, reference.rest);
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto z = FromDouble(d, i, count, [&](size_t at, size_t some) HWY_ATTR {
      return hn::Sub(hn::Set(D64(), y_0), rows.ScaledLogRatios(D64(), at, some));
    });
    const auto l = hn::Neg(LogOfMixture(d, w, rest, z));
    StoreUpTo(l, d, count, dx + i);
    return hn::Mul(rows.student.Masses(d, i, count), l);
  });
}

// What PairRow adds up of a class: the loss; log(s/m) and 1 where the student's score is its largest, and s where s and t are
// not nearly equal. `student` is e^(x - max x). Returns log(s/m).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AddJsd(D d, double beta, V student, V s, V t, V y, V* sum) {
  using T = hn::TFromD<D>;
  const V bt = hn::Set(d, static_cast<T>(beta)), bs = hn::Set(d, static_cast<T>(1 - beta)), one = hn::Set(d, T(1));
  const JsdTerms<D> terms(d, beta, s, t, y);
  const auto largest = hn::Eq(student, one);
  sum[0] = hn::MulAdd(bt, terms.of_t, hn::Mul(bs, terms.of_s));
  sum[1] = hn::IfThenElseZero(largest, terms.log_ratio);
  sum[2] = hn::IfThenElseZero(largest, one);
  sum[3] = hn::IfThenElseZero(hn::Gt(hn::Abs(y), hn::Set(d, T(0.4))), s);
  return terms.log_ratio;
}

// Whether <s, l> has too few digits, where `constant` has been subtracted from l and `apart` is sum 3 of AddJsd.
HWY_INLINE bool JsdCancels(double constant, double apart, double mean) {
  const double rounding = HWY_MAX(std::abs(constant), apart);
  return !(32 * std::abs(mean) >= rounding);
}

// beta KL(t, m) + (1 - beta) KL(s, m), and its gradient (1 - beta) s (l - <s, l>), where l is log(s/m) or differs from it by a
// constant: its value at the student's largest score, so that nothing cancels if that class has nearly all of the mass. The
// rounding error of l is eps times that constant, and eps for the mass of classes that are not nearly equal. The largest entry
// of the gradient is <s, l> times the largest mass or more. Where <s, l> is less than a 32nd of these factors of eps, l is
// computed again, from differences.
template <class T>
HWY_INLINE double PairRow(const JsdLoss& op, const StudentAndTeacher<T>& rows, T* dx) {
  const RowTag<T> d;
  const auto bs = hn::Set(d, static_cast<T>(1 - op.beta));
  double sums[4];
  Sums(d, rows.n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* sum) HWY_ATTR {
    const auto y =
        FromDouble(d, i, count, [&](size_t at, size_t some) HWY_ATTR { return rows.ScaledLogRatios(D64(), at, some); });
    const auto log_ratio = AddJsd(d, op.beta, LoadUpTo(d, rows.student.terms + i, count, T(0)),
                                  rows.student.Masses(d, i, count), rows.teacher.Masses(d, i, count), y, sum);
    if (dx != nullptr) StoreUpTo(log_ratio, d, count, dx + i);
  });
  if (dx == nullptr) return sums[0];
  T constant = static_cast<T>(sums[1] / sums[2]);
  double mean = Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto l = hn::Sub(LoadUpTo(d, dx + i, count, T(0)), hn::Set(d, constant));
    return hn::Mul(rows.student.Masses(d, i, count), l);
  });
  if (JsdCancels(static_cast<double>(constant), sums[3], mean)) {
    mean = RelativeLogRatios(op.beta, rows, dx);
    constant = 0;
  }
  const auto level = hn::Set(d, constant), rest = hn::Set(d, static_cast<T>(mean));
  ForEachVector(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto s = hn::Mul(bs, rows.student.Masses(d, i, count)), l = hn::Sub(LoadUpTo(d, dx + i, count, T(0)), level);
    StoreUpTo(hn::Mul(s, hn::Sub(l, rest)), d, count, dx + i);
  });
  return sums[0];
}

// d loss / d beta = KL(t, m) - KL(s, m): to first order the change of m with beta has no effect.
HWY_INLINE double PairSlope(const JsdLoss& op, const StudentAndTeacher<double>& rows) {
  const D64 d;
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const JsdTerms<D64> terms(d, op.beta, rows.student.Masses(d, i, count), rows.teacher.Masses(d, i, count),
                              rows.ScaledLogRatios(d, i, count));
    return hn::Sub(terms.of_t, terms.of_s);
  });
}

HWY_INLINE double TemperatureOf(const DistillationLoss& op) { return op.temperature; }
HWY_INLINE double TemperatureOf(const JsdLoss& /*op*/) { return 1; }

// Whether products with the parameter neither overflow nor vanish in float.
HWY_INLINE bool FitsFloat(const DistillationLoss& op) { return op.temperature >= 0x1p-10 && op.temperature <= 0x1p10; }
HWY_INLINE bool FitsFloat(const JsdLoss& op) { return op.beta >= 0x1p-40 && 1 - op.beta >= 0x1p-40; }

// The memory of a row for PairRowOf.
template <class T>
size_t PairMemory(size_t n) {
  return sizeof(T) == 4 ? 8 * Arena::room<double>(n) : 5 * Arena::room<double>(n);
}

template <class Op, class T>
HWY_INLINE double PairRowOf(const Op& op, const T* x, const T* target, size_t n, Arena memory, T* dx, double* slope);

// As PairRowOf for float, in float64.
template <class Op>
HWY_NOINLINE double WidePairRowOf(const Op& op, const float* x, const float* target, size_t n, Arena memory, float* dx,
                                  double* slope) {
  const D64 d;
  double *const wide_x = memory.template take<double>(n), *const wide_target = memory.template take<double>(n);
  double* const wide_dx = dx == nullptr ? nullptr : memory.template take<double>(n);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(LoadWide(d, x + i, count, 0.0f), d, count, wide_x + i);
    StoreUpTo(LoadWide(d, target + i, count, 0.0f), d, count, wide_target + i);
  });
  const double value = PairRowOf(op, wide_x, wide_target, n, memory, wide_dx, slope);
  if (dx != nullptr) {
    ForEachVector(
        d, n, [&](size_t i, size_t count) HWY_ATTR { StoreNarrow(LoadUpTo(d, wide_dx + i, count, 0.0), d, count, dx + i); });
  }
  return value;
}

// The value of a row, its gradient in x in dx, if there is one, and its derivative in the loss's parameter in *slope, likewise.
template <class Op, class T>
HWY_INLINE double PairRowOf(const Op& op, const T* x, const T* target, size_t n, Arena memory, T* dx, double* slope) {
  if constexpr (sizeof(T) == 4) {
    if (!FitsFloat(op)) return WidePairRowOf(op, x, target, n, memory, dx, slope);
    // The derivative in the parameter is a sum of either sign, in float64.
    if (slope != nullptr) WidePairRowOf(op, x, target, n, memory, static_cast<float*>(nullptr), slope);
  }
  const D64 d;
  const double temperature = TemperatureOf(op);
  const SoftmaxRow<T> student = SoftmaxRowOf(temperature, x, n, memory), teacher = SoftmaxRowOf(temperature, target, n, memory);
  const bool infinite = student.x != x;
  if (student.log_sum != student.log_sum || teacher.log_sum != teacher.log_sum) {
    if (dx != nullptr) FillRow(RowTag<T>(), kNaN<T>, n, dx);
    if (slope != nullptr) *slope = kNaN<double>;
    return kNaN<double>;
  }
  double* const ratios = memory.template take<double>(n);
  const bool near = !infinite && LogRatiosOfNearSoftmax(
                                     temperature, x, teacher.x, n, student.log_sum - teacher.log_sum,
                                     [&](size_t i, size_t count) HWY_ATTR { return student.WideMasses(d, i, count); },
                                     [&](size_t i, size_t count) HWY_ATTR { return teacher.WideMasses(d, i, count); }, ratios);
  const StudentAndTeacher<T> rows = {student, teacher, temperature, near ? ratios : nullptr, n};
  if constexpr (sizeof(T) == 8) {
    if (slope != nullptr) *slope = PairSlope(op, rows);
  }
  const double value = PairRow(op, rows, dx);
  if (infinite && dx != nullptr) FillRow(RowTag<T>(), T(0), n, dx);
  return value;
}

template <class Op, class T>
void PairRows(const Op& common, const LossBatch<T>& batch, LossScratch<T> scratch) {
  for (size_t r = 0; r < batch.x.rows; ++r) {
    double slope = 0;
    batch.value[r] =
        PairRowOf(at_row(common, batch.per_row, r), batch.x.row(r), batch.target.row(r), batch.x.cols, scratch.memory,
                  batch.dx.data == nullptr ? nullptr : batch.dx.row(r), batch.gradients.empty() ? nullptr : &slope);
    PutSlope(batch, r, std::get<0>(Op::kParams).name, slope);
  }
}

template <class T>
void FusedRows(const DistillationLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  PairRows(op, batch, scratch);
}
template <class T>
void FusedRows(const JsdLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  PairRows(op, batch, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_DIVERGENCE_INL_H_

// The generalised Jensen-Shannon divergence of a student's softmax and a teacher's.

#if defined(ISENTROPIC_LOSSES_JSD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_JSD_INL_H_
#undef ISENTROPIC_LOSSES_JSD_INL_H_
#else
#define ISENTROPIC_LOSSES_JSD_INL_H_
#endif

#include "src/losses/student_teacher-inl.h"

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
    JsdReference<T>::Add(LoadWide(wide, rows.student.terms + i, count, T(0)), rows.LogRatios(wide, i, count), sum);
  });
  const JsdReference<T> reference(beta, sums);
  const double y_0 = reference.y_0;
  const auto w = hn::Set(d, reference.w), rest = hn::Set(d, reference.rest);
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto z = FromDouble(d, i, count, [&](size_t at, size_t some) HWY_ATTR {
      return hn::Sub(hn::Set(D64(), y_0), rows.LogRatios(D64(), at, some));
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
// computed again, from differences. The gradient is that times T.
template <class T>
HWY_NOINLINE double JsdRow(double beta, StudentAndTeacher<T> rows, T* dx) {
  const RowTag<T> d;
  const auto bs = hn::Set(d, static_cast<T>((1 - beta) * rows.temperature));
  double sums[4];
  Sums(d, rows.n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* sum) HWY_ATTR {
    const auto y = FromDouble(d, i, count, [&](size_t at, size_t some) HWY_ATTR { return rows.LogRatios(D64(), at, some); });
    const auto log_ratio = AddJsd(d, beta, LoadUpTo(d, rows.student.terms + i, count, T(0)), rows.student.Masses(d, i, count),
                                  rows.teacher.Masses(d, i, count), y, sum);
    if (dx != nullptr) StoreUpTo(log_ratio, d, count, dx + i);
  });
  if (dx == nullptr) return sums[0];
  T constant = static_cast<T>(sums[1] / sums[2]);
  double mean = Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto l = hn::Sub(LoadUpTo(d, dx + i, count, T(0)), hn::Set(d, constant));
    return hn::Mul(rows.student.Masses(d, i, count), l);
  });
  if (JsdCancels(static_cast<double>(constant), sums[3], mean)) {
    mean = RelativeLogRatios(beta, rows, dx);
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
HWY_NOINLINE inline double JsdSlope(double beta, StudentAndTeacher<double> rows) {
  const D64 d;
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const JsdTerms<D64> terms(d, beta, rows.student.Masses(d, i, count), rows.teacher.Masses(d, i, count),
                              rows.LogRatios(d, i, count));
    return hn::Sub(terms.of_t, terms.of_s);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_JSD_INL_H_

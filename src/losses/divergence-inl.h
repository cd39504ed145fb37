// Losses between a student's softmax and a teacher's.

#if defined(ISENTROPIC_LOSSES_DIVERGENCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_DIVERGENCE_INL_H_
#undef ISENTROPIC_LOSSES_DIVERGENCE_INL_H_
#else
#define ISENTROPIC_LOSSES_DIVERGENCE_INL_H_
#endif

#include <array>

#include "src/losses/fenchel_young-inl.h"
#include "src/losses/jsd-inl.h"
#include "src/per_row.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// A function of a row serves several losses, so that it is not inlined. It gets its rows by value, so that a store to dx, which
// might be one to them, does not make it read them again.

// T^2 sum t (e^y - 1 - y), y = log s - log t: for small y by its series, in T y so that a large T loses no digits; otherwise as
// T (T (s - t) - t T y).
template <class T>
HWY_NOINLINE double ForwardKlRow(StudentAndTeacher<T> rows, T* dx) {
  const RowTag<T> d;
  const auto factor = hn::Set(d, static_cast<T>(rows.temperature)), zero = hn::Zero(d), infinity = hn::Set(d, kInfinity<T>);
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

// T u and T w of ForwardKlSlope and its like: u = z - <t, z>, z = x / T of the teacher, and w = u + log s - log t, which is z
// of the student but for a constant.
struct ScaledScores {
  const StudentAndTeacher<double>& rows;
  double mean;

  HWY_INLINE explicit ScaledScores(const StudentAndTeacher<double>& pair) : rows(pair), mean(0) {
    const D64 d;
    mean = Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
      const V64 t = rows.teacher.Masses(d, i, count);
      return hn::Mul(t, Score(rows.teacher, t, i, count));
    });
  }
  HWY_INLINE V64 OfTeacher(V64 t, size_t i, size_t count) const {
    const D64 d;
    return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Sub(Score(rows.teacher, t, i, count), hn::Set(d, mean)));
  }
  HWY_INLINE V64 OfStudent(V64 s, V64 t, V64 t_u, V64 t_y, size_t i, size_t count) const {
    const D64 d;
    const V64 zero = hn::Zero(d);
    const V64 level = hn::Set(d, mean + rows.temperature * (rows.student.log_sum - rows.teacher.log_sum));
    const V64 own = hn::IfThenZeroElse(hn::Eq(s, zero), hn::Sub(Score(rows.student, s, i, count), level));
    return hn::IfThenElse(hn::Eq(t, zero), own, hn::Add(t_u, t_y));
  }

 private:
  // T z where the row has mass.
  static HWY_INLINE V64 Score(const SoftmaxRow<double>& row, V64 mass, size_t i, size_t count) {
    const D64 d;
    return hn::IfThenZeroElse(hn::Eq(mass, hn::Zero(d)), row.BelowMax(d, i, count));
  }
};

// d loss / dT. With g = e^y - 1 - y, KL is sum t g; with u = z - <t, z>, z of the teacher, and w = u + y, z of the student but
// for a constant, the derivative is
//   T sum (2 t g + t y u - (s - t) w) = T sum t (h - g u), h = 2 (e^y - 1) - y (1 + e^y) = sum_{k >= 3} (2 - k) y^k / k!,
// in which the series is used for small y, because nothing cancels in it. For other y there are T w and T y, which are finite
// for any T.
HWY_NOINLINE inline double ForwardKlSlope(StudentAndTeacher<double> rows) {
  const D64 d;
  const V64 zero = hn::Zero(d), two = hn::Set(d, 2.0), factor = hn::Set(d, rows.temperature);
  const ScaledScores scores(rows);
  // (2 - k) / k! from k = 3 on.
  constexpr auto kSeries = [] {
    std::array<double, kInverseFactorials.size() - 1> c = {};
    for (size_t i = 0; i < c.size(); ++i) c[i] = -static_cast<double>(i + 1) * kInverseFactorials[i + 1];
    return c;
  }();
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 s = rows.student.Masses(d, i, count), t = rows.teacher.Masses(d, i, count);
    const V64 t_y = rows.ScaledLogRatios(d, i, count);
    const auto near = hn::Le(hn::Abs(t_y), factor), no_target = hn::Eq(t, zero);
    const V64 t_u = scores.OfTeacher(t, i, count), t_w = scores.OfStudent(s, t, t_u, t_y, i, count);
    const V64 y = hn::Div(hn::IfThenElseZero(near, t_y), factor), y2 = hn::Mul(y, y);
    const V64 h = hn::Mul(factor, hn::Mul(hn::Mul(y2, y), Polynomial(d, y, kSeries)));
    const V64 small = hn::Mul(t, hn::NegMulAdd(hn::Mul(y2, Phi2NearZero(d, y)), t_u, h));
    const V64 far_t_y = hn::IfThenZeroElse(no_target, t_y), weighted = hn::Mul(t, far_t_y), apart = hn::Sub(s, t);
    const V64 twice = hn::Mul(two, hn::NegMulAdd(t, far_t_y, hn::Mul(factor, apart)));
    const V64 large = hn::NegMulAdd(apart, t_w, hn::MulAdd(weighted, hn::Div(t_u, factor), twice));
    return hn::IfThenElse(near, small, large);
  });
}

// Where dx is l less its value at the student's largest score: dx = factor s (dx - <s, dx>).
template <class T>
HWY_INLINE void CentreGradient(const SoftmaxRow<T>& student, size_t n, double factor, T* dx) {
  const RowTag<T> d;
  const double mean = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    return hn::Mul(student.Masses(d, i, count), LoadUpTo(d, dx + i, count, T(0)));
  });
  const auto times = hn::Set(d, static_cast<T>(factor)), rest = hn::Set(d, static_cast<T>(mean));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto l = hn::Sub(LoadUpTo(d, dx + i, count, T(0)), rest);
    StoreUpTo(hn::Mul(times, hn::Mul(student.Masses(d, i, count), l)), d, count, dx + i);
  });
}

// The mean over the student's largest scores of what of(i, count) gives in float64. There may be 2^32 of them, whose sum leaves
// the range.
template <class T, class Of>
HWY_INLINE double AtLargest(const SoftmaxRow<T>& student, size_t n, const Of& of) {
  const D64 d;
  double sums[2];
  Sums(d, n, sums, [&](size_t i, size_t count, V64* sum) HWY_ATTR {
    const auto largest = hn::Eq(LoadWide(d, student.terms + i, count, T(0)), hn::Set(d, 1.0));
    sum[0] = hn::IfThenElseZero(largest, hn::Mul(of(i, count), hn::Set(d, 0x1p-32)));
    sum[1] = hn::IfThenElseZero(largest, hn::Set(d, 0x1p-32));
  });
  return sums[0] / sums[1];
}

// T^2 KL(s, t), and its gradient s (l - <s, l>), l = T (log s - log t) less its value at the student's largest score, so that
// nothing cancels. An infinite value has gradient 0.
template <class T>
HWY_NOINLINE double ReverseKlRow(StudentAndTeacher<T> rows, T* dx) {
  const RowTag<T> d;
  const double value = ForwardKlRow<T>(rows.swapped(), nullptr);
  if (dx == nullptr) return value;
  if (value == kInfinity<double>) {
    FillRow(d, T(0), rows.n, dx);
    return value;
  }
  // Differences of ratios, and of these from their mean, leave the range of T by up to 16 times.
  constexpr double kDown = 1.0 / 16;
  const double level = kDown * AtLargest(rows.student, rows.n, [&](size_t i, size_t count) HWY_ATTR {
                         return rows.ScaledLogRatios(D64(), i, count);
                       });
  const auto zero = hn::Zero(d);
  ForEachVector(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto l = FromDouble(d, i, count, [&](size_t at, size_t some) HWY_ATTR {
      return hn::MulSub(rows.ScaledLogRatios(D64(), at, some), hn::Set(D64(), kDown), hn::Set(D64(), level));
    });
    const auto none = hn::Eq(rows.student.Masses(d, i, count), zero);
    StoreUpTo(hn::IfThenZeroElse(none, l), d, count, dx + i);
  });
  CentreGradient(rows.student, rows.n, 1 / kDown, dx);
  return value;
}

// The terms |s - t| of total variation, and sign(s - t). Where s and t are not nearly equal, a log s - log t of a few roundings
// has no known sign, which is 0 then.
template <class T>
struct VariationTerms {
  hn::Vec<RowTag<T>> apart, sign;

  HWY_INLINE VariationTerms(const StudentAndTeacher<T>& rows, size_t i, size_t count) {
    const RowTag<T> d;
    const V64 unknown = hn::Set(D64(), rows.ratios == nullptr ? 0x1p-50 : 0.0);
    const auto s = rows.student.Masses(d, i, count), t = rows.teacher.Masses(d, i, count), zero = hn::Zero(d);
    const auto one = hn::Set(d, T(1));
    const auto y = FromDouble(d, i, count, [&](size_t at, size_t some) HWY_ATTR {
      const D64 wide;
      const V64 ratio = hn::Min(hn::Max(rows.LogRatios(wide, at, some), hn::Set(wide, -2.0)), hn::Set(wide, 2.0));
      return hn::IfThenZeroElse(hn::Le(hn::Abs(ratio), unknown), ratio);
    });
    const auto none = hn::And(hn::Eq(s, zero), hn::Eq(t, zero));
    const auto near = IsNearZero(d, y), ahead = hn::Gt(y, zero), behind = hn::Lt(y, zero);
    apart = hn::Abs(hn::IfThenElse(near, hn::Mul(t, Expm1NearZero(d, hn::IfThenElseZero(near, y))), hn::Sub(s, t)));
    sign = hn::IfThenZeroElse(none, hn::IfThenElse(ahead, one, hn::IfThenElse(behind, hn::Neg(one), zero)));
  }
};

// Half of the sum of |s - t|, and T times the gradient s (l - <s, l>), l = sign(s - t) / 2.
template <class T>
HWY_NOINLINE double VariationRow(StudentAndTeacher<T> rows, T* dx) {
  const RowTag<T> d;
  const double value = Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const VariationTerms<T> terms(rows, i, count);
    if (dx != nullptr) StoreUpTo(terms.sign, d, count, dx + i);
    return terms.apart;
  });
  if (dx == nullptr) return value / 2;
  const double level =
      AtLargest(rows.student, rows.n, [&](size_t i, size_t count) HWY_ATTR { return LoadWide(D64(), dx + i, count, T(0)); });
  const auto reference = hn::Set(d, static_cast<T>(level));
  ForEachVector(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(hn::Sub(LoadUpTo(d, dx + i, count, T(0)), reference), d, count, dx + i);
  });
  CentreGradient(rows.student, rows.n, rows.temperature / 2, dx);
  return value / 2;
}

// What jsd and total variation D say of a class, for d (T^2 D) / dT: its term of D; G_s, the gradient in the student's score
// over T, G_t that in the teacher's; and G_s + G_t, in which terms of first order in s - t would cancel.
struct ClassTerms {
  V64 value, of_student, of_teacher, of_both;
};

// d (T^2 D) / dT = T (2 D - <G_s, x/T> - <G_t, teacher/T>), of_class(i, count) being ClassTerms. With u and w of ScaledScores
// the products are G_s w + G_t u, where s and t are nearly equal (G_s + G_t) u + G_s (w - u).
template <class OfClass>
HWY_INLINE double SlopeInTemperature(const StudentAndTeacher<double>& rows, const OfClass& of_class) {
  const D64 d;
  const V64 zero = hn::Zero(d), factor = hn::Set(d, rows.temperature);
  const ScaledScores scores(rows);
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 s = rows.student.Masses(d, i, count), t = rows.teacher.Masses(d, i, count);
    const V64 t_y = rows.ScaledLogRatios(d, i, count);
    const V64 t_u = scores.OfTeacher(t, i, count), t_w = scores.OfStudent(s, t, t_u, t_y, i, count);
    const ClassTerms of = of_class(i, count);
    const auto near = hn::Le(hn::Abs(t_y), factor);
    const V64 close = hn::MulAdd(of.of_both, t_u, hn::Mul(of.of_student, hn::IfThenElseZero(near, t_y)));
    const V64 by_student = hn::IfThenZeroElse(hn::Eq(of.of_student, zero), hn::Mul(of.of_student, t_w));
    const V64 far = hn::MulAdd(of.of_teacher, t_u, by_student);
    return hn::Sub(hn::Mul(hn::Add(factor, factor), of.value), hn::IfThenElse(near, close, far));
  });
}

HWY_NOINLINE inline double JsdSlopeInTemperature(double beta, StudentAndTeacher<double> rows) {
  const D64 d;
  const V64 zero = hn::Zero(d), bt = hn::Set(d, beta), bs = hn::Set(d, 1 - beta);
  const auto terms_of = [&](size_t i, size_t count) HWY_ATTR {
    return JsdTerms<D64>(d, beta, rows.student.Masses(d, i, count), rows.teacher.Masses(d, i, count),
                         rows.LogRatios(d, i, count));
  };
  double sums[2];
  Sums(d, rows.n, sums, [&](size_t i, size_t count, V64* sum) HWY_ATTR {
    const auto terms = terms_of(i, count);
    sum[0] = terms.of_s, sum[1] = terms.of_t;
  });
  const V64 kl_s = hn::Set(d, sums[0]), kl_t = hn::Set(d, sums[1]);
  return SlopeInTemperature(rows, [&](size_t i, size_t count) HWY_ATTR {
    const auto terms = terms_of(i, count);
    const V64 s = hn::Mul(bs, rows.student.Masses(d, i, count)), t = hn::Mul(bt, rows.teacher.Masses(d, i, count));
    // As far apart as JsdTerms takes them to be.
    const V64 most = hn::Set(d, kVanishes<double>), y = hn::Min(hn::Max(rows.LogRatios(d, i, count), hn::Neg(most)), most);
    const V64 log_t = hn::IfThenZeroElse(hn::Eq(t, zero), hn::Sub(terms.log_ratio, y));
    const V64 log_s = hn::IfThenZeroElse(hn::Eq(s, zero), terms.log_ratio);
    const V64 value = hn::MulAdd(bt, terms.of_t, hn::Mul(bs, terms.of_s));
    return ClassTerms{value, hn::Mul(s, hn::Sub(log_s, kl_s)), hn::Mul(t, hn::Sub(log_t, kl_t)),
                      hn::NegMulAdd(t, kl_t, hn::NegMulAdd(s, kl_s, value))};
  });
}

HWY_NOINLINE inline double VariationSlopeInTemperature(StudentAndTeacher<double> rows) {
  const D64 d;
  const V64 half = hn::Set(d, 0.5);
  double sums[3];
  Sums(d, rows.n, sums, [&](size_t i, size_t count, V64* sum) HWY_ATTR {
    const VariationTerms<double> terms(rows, i, count);
    sum[0] = terms.apart;
    sum[1] = hn::Mul(rows.student.Masses(d, i, count), terms.sign);
    sum[2] = hn::Mul(rows.teacher.Masses(d, i, count), terms.sign);
  });
  const V64 value = hn::Set(d, sums[0] / 2), mean_s = hn::Set(d, sums[1]), mean_t = hn::Set(d, sums[2]);
  return SlopeInTemperature(rows, [&](size_t i, size_t count) HWY_ATTR {
    const VariationTerms<double> terms(rows, i, count);
    const V64 s = rows.student.Masses(d, i, count), t = rows.teacher.Masses(d, i, count);
    const V64 apart = hn::Mul(half, hn::NegMulAdd(hn::Mul(terms.apart, terms.sign), mean_s, terms.apart));
    return ClassTerms{hn::Mul(half, terms.apart), hn::Mul(hn::Mul(half, s), hn::Sub(terms.sign, mean_s)),
                      hn::Mul(hn::Mul(half, t), hn::Sub(mean_t, terms.sign)), hn::NegMulAdd(t, value, apart)};
  });
}

HWY_INLINE double BetaOf(const DistillationLoss& op) { return op.beta.value_or(0.5); }

// The value of a row and its gradient in the student's scores.
template <class T>
HWY_INLINE double PairRow(const JsdLoss& op, const StudentAndTeacher<T>& rows, T* dx) {
  return JsdRow(op.beta, rows, dx);
}
template <class T>
HWY_INLINE double PairRow(const DistillationLoss& op, const StudentAndTeacher<T>& rows, T* dx) {
  switch (op.divergence) {
    case TeacherDivergence::forward_kl:
      return ForwardKlRow(rows, dx);
    case TeacherDivergence::reverse_kl:
      return ReverseKlRow(rows, dx);
    case TeacherDivergence::jsd:
      return op.temperature * (op.temperature * JsdRow(BetaOf(op), rows, dx));
    case TeacherDivergence::total_variation:
      return op.temperature * (op.temperature * VariationRow(rows, dx));
  }
  return kNaN<double>;
}

// Its derivatives in the parameters, in their order.
HWY_INLINE void PairSlopes(const JsdLoss& op, const StudentAndTeacher<double>& rows, double* slopes) {
  slopes[0] = JsdSlope(op.beta, rows);
}
HWY_INLINE void PairSlopes(const DistillationLoss& op, const StudentAndTeacher<double>& rows, double* slopes) {
  slopes[2] = 0;
  switch (op.divergence) {
    case TeacherDivergence::forward_kl:
      slopes[0] = ForwardKlSlope(rows);
      break;
    case TeacherDivergence::reverse_kl:
      slopes[0] = ForwardKlSlope(rows.swapped());
      break;
    case TeacherDivergence::jsd:
      slopes[0] = JsdSlopeInTemperature(BetaOf(op), rows);
      slopes[2] = op.temperature * (op.temperature * JsdSlope(BetaOf(op), rows));
      break;
    case TeacherDivergence::total_variation:
      slopes[0] = VariationSlopeInTemperature(rows);
      break;
  }
}

HWY_INLINE double TemperatureOf(const DistillationLoss& op) { return op.temperature; }
HWY_INLINE double TemperatureOf(const JsdLoss& /*op*/) { return 1; }

// Whether products with the parameter neither overflow nor vanish in float.
HWY_INLINE bool FitsFloat(double beta) { return beta >= 0x1p-40 && 1 - beta >= 0x1p-40; }
HWY_INLINE bool FitsFloat(const JsdLoss& op) { return FitsFloat(op.beta); }
HWY_INLINE bool FitsFloat(const DistillationLoss& op) {
  return op.temperature >= 0x1p-10 && op.temperature <= 0x1p10 && FitsFloat(BetaOf(op));
}

// The memory of a row for PairRowOf.
template <class T>
size_t PairMemory(size_t n) {
  return sizeof(T) == 4 ? 8 * Arena::room<double>(n) : 6 * Arena::room<double>(n);
}

template <class Op, class T>
HWY_NOINLINE double PairRowOf(const Op& op, const T* x, const T* target, size_t n, Arena memory, T* dx, double* slopes);

// As PairRowOf for float, in float64.
template <class Op>
HWY_NOINLINE double WidePairRowOf(const Op& op, const float* x, const float* target, size_t n, Arena memory, float* dx,
                                  double* slopes) {
  const D64 d;
  double *const wide_x = memory.template take<double>(n), *const wide_target = memory.template take<double>(n);
  double* const wide_dx = dx == nullptr ? nullptr : memory.template take<double>(n);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(LoadWide(d, x + i, count, 0.0f), d, count, wide_x + i);
    StoreUpTo(LoadWide(d, target + i, count, 0.0f), d, count, wide_target + i);
  });
  const double value = PairRowOf(op, wide_x, wide_target, n, memory, wide_dx, slopes);
  if (dx != nullptr) {
    ForEachVector(
        d, n, [&](size_t i, size_t count) HWY_ATTR { StoreNarrow(LoadUpTo(d, wide_dx + i, count, 0.0), d, count, dx + i); });
  }
  return value;
}

// The value of a row, its gradient in x in dx, if there is one, and its derivatives in the loss's parameters in slopes,
// likewise.
template <class Op, class T>
HWY_NOINLINE double PairRowOf(const Op& op, const T* x, const T* target, size_t n, Arena memory, T* dx, double* slopes) {
  if constexpr (sizeof(T) == 4) {
    if (!FitsFloat(op)) return WidePairRowOf(op, x, target, n, memory, dx, slopes);
    // The derivatives in parameters are sums of either sign, in float64.
    if (slopes != nullptr) WidePairRowOf(op, x, target, n, memory, static_cast<float*>(nullptr), slopes);
  }
  const D64 d;
  const double temperature = TemperatureOf(op);
  if (dx == x) {  // jsd may read the scores again after it has written to dx
    const RowTag<T> own;
    T* const kept = memory.template take<T>(n);
    ForEachVector(own, n,
                  [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(LoadUpTo(own, x + i, count, T(0)), own, count, kept + i); });
    x = kept;
  }
  const SoftmaxRow<T> student = SoftmaxRowOf(temperature, x, n, memory), teacher = SoftmaxRowOf(temperature, target, n, memory);
  const bool infinite = student.x != x;
  if (student.log_sum != student.log_sum || teacher.log_sum != teacher.log_sum) {
    if (dx != nullptr) FillRow(RowTag<T>(), kNaN<T>, n, dx);
    for (size_t i = 0; slopes != nullptr && i < count_of(Described<Op>::kParams); ++i) slopes[i] = kNaN<double>;
    return kNaN<double>;
  }
  double* const ratios = memory.template take<double>(n);
  const bool near = !infinite && LogRatiosOfNearSoftmax(
                                     temperature, x, teacher.x, n, student.log_sum - teacher.log_sum,
                                     [&](size_t i, size_t count) HWY_ATTR { return student.WideMasses(d, i, count); },
                                     [&](size_t i, size_t count) HWY_ATTR { return teacher.WideMasses(d, i, count); }, ratios);
  const StudentAndTeacher<T> rows = {student, teacher, temperature, near ? ratios : nullptr, n};
  if constexpr (sizeof(T) == 8) {
    if (slopes != nullptr) PairSlopes(op, rows, slopes);
  }
  const double value = PairRow(op, rows, dx);
  if (infinite && dx != nullptr) FillRow(RowTag<T>(), T(0), n, dx);
  return value;
}

template <class Op, class T>
void PairRows(const Op& common, const LossBatch<T>& batch, LossScratch<T> scratch) {
  for (size_t r = 0; r < batch.x.rows; ++r) {
    ParamValues<Op> slopes = {};
    batch.value[r] =
        PairRowOf(at_row(common, batch.per_row, r), batch.x.row(r), batch.target.row(r), batch.x.cols, scratch.memory,
                  batch.dx.data == nullptr ? nullptr : batch.dx.row(r), batch.gradients.empty() ? nullptr : slopes.data());
    for (const ParamGradient& gradient : batch.gradients) gradient.values[r] = value_of<Op>(slopes, gradient.parameter);
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

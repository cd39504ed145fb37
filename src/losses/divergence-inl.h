// Losses between a student's softmax and a teacher's, in float64: nearly equal distributions need accurate small differences.

#if defined(ENTROPIC_LOSSES_DIVERGENCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_LOSSES_DIVERGENCE_INL_H_
#undef ENTROPIC_LOSSES_DIVERGENCE_INL_H_
#else
#define ENTROPIC_LOSSES_DIVERGENCE_INL_H_
#endif

#include <array>

#include "src/losses/fenchel_young-inl.h"
#include "src/rows/near_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// u - log(1 + u) for u >= -1, by log(1 + u) = 2 artanh(s), s = u / (2 + u), where u is small: u s - 2 (s^3/3 + s^5/5 + ...).
HWY_INLINE V64 LogGap(D64 d, V64 u) {
  const auto near = hn::Le(hn::Abs(u), hn::Set(d, 0.5));
  const V64 s = hn::Div(u, hn::Add(u, hn::Set(d, 2.0))), s2 = hn::Mul(s, s);
  V64 series = hn::Set(d, 1.0 / 37);
  for (int k = 35; k >= 3; k -= 2) series = hn::MulAdd(series, s2, hn::Set(d, 1.0 / k));
  const V64 small = hn::NegMulAdd(hn::Mul(hn::Set(d, 2.0), hn::Mul(s, s2)), series, hn::Mul(u, s));
  return hn::IfThenElse(near, small, hn::Sub(u, Log1p(d, u)));
}

// z = (x - max)/T of a row with a finite maximum, or only of its +inf scores, and the log of the sum of e^z, which is NaN if
// the row has no distribution.
template <class T>
HWY_INLINE double LogTermsRow(double temperature, const T* x, size_t n, double* z) {
  const D64 d;
  const T max = RowMax(RowTag<T>(), x, n);
  const bool infinite = max == kInfinity<T>;
  if (!infinite && !IsFinite(max)) return kNaN<double>;
  const V64 shift = hn::Set(d, infinite ? 0.0 : static_cast<double>(max)), factor = hn::Set(d, temperature);
  const V64 positive = hn::Set(d, kInfinity<double>), absent = hn::Set(d, -kInfinity<double>);
  const V64 lowest = hn::Set(d, std::numeric_limits<double>::lowest());
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 xi = LoadWide(d, x + i, count, -kInfinity<T>);
    // A finite score stays finite for any small T.
    V64 zi = hn::Div(hn::Sub(xi, shift), factor);
    zi = hn::IfThenElse(hn::Eq(xi, absent), absent, MaxKeepNaN(lowest, zi));
    if (infinite) {
      zi = hn::IfThenElse(hn::Eq(xi, positive), hn::Zero(d), hn::IfThenElse(hn::IsNaN(xi), xi, absent));
    }
    StoreUpTo(zi, d, count, z + i);
    return Exp(d, zi);
  });
  return LogNumber(sum);
}

// Two rows of n: the results of LogTermsRow for the student and the teacher and, if they are nearly equal, also log s - log t.
struct StudentAndTeacher {
  const double *zs, *zt;
  double log_s, log_t;
  const double* ratios;  // or nullptr
  size_t n;
};

// One pass over both: visit(i, count, log s, log t, y) with y = log s - log t, which is +inf if only t is 0 and undefined if
// both are.
template <class Visit>
HWY_INLINE double PairSum(const StudentAndTeacher& rows, const Visit& visit) {
  const D64 d;
  const V64 shift_s = hn::Set(d, rows.log_s), shift_t = hn::Set(d, rows.log_t), absent = hn::Set(d, -kInfinity<double>);
  return Sum(d, rows.n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 s = LoadUpTo(d, rows.zs + i, count, -kInfinity<double>), t = LoadUpTo(d, rows.zt + i, count, -kInfinity<double>);
    V64 y;
    if (rows.ratios != nullptr) {
      y = LoadUpTo(d, rows.ratios + i, count, 0.0);
    } else {
      const auto none = hn::And(hn::Eq(s, absent), hn::Eq(t, absent));
      y = hn::IfThenZeroElse(none, hn::Sub(hn::Sub(s, t), hn::Sub(shift_s, shift_t)));
    }
    return visit(i, count, hn::Sub(s, shift_s), hn::Sub(t, shift_t), y);
  });
}

// T^2 sum t (e^y - 1 - y): for small y by its series, in T y so that a large T loses no digits; otherwise as s - t - t y.
HWY_INLINE double DistillationRow(double temperature, const StudentAndTeacher& rows, double* dx) {
  const D64 d;
  const V64 factor = hn::Set(d, temperature);
  const V64 infinity = hn::Set(d, kInfinity<double>), none = hn::Set(d, -kInfinity<double>);
  return PairSum(rows, [&](size_t i, size_t count, V64 ls, V64 lt, V64 y) HWY_ATTR {
    const V64 s = Exp(d, ls), t = Exp(d, lt);
    const auto near = IsNearZero(d, y), no_target = hn::Eq(t, hn::Zero(d));
    const V64 near_y = hn::IfThenElseZero(near, y), scaled = hn::Mul(factor, near_y);
    const V64 phi2 = Phi2NearZero(d, near_y);
    const V64 small = hn::Mul(t, hn::Mul(hn::Mul(scaled, scaled), phi2));
    const V64 t_y = hn::IfThenZeroElse(no_target, hn::Mul(t, hn::IfThenZeroElse(no_target, y)));
    const V64 large = hn::Mul(factor, hn::Mul(factor, hn::Sub(hn::Sub(s, t), t_y)));
    const auto absent = hn::Eq(ls, none);
    if (dx != nullptr) {
      const V64 close = hn::Mul(t, hn::MulAdd(hn::Mul(scaled, near_y), phi2, scaled));
      const V64 far = hn::Mul(factor, hn::Sub(s, t));
      StoreUpTo(hn::IfThenZeroElse(absent, hn::IfThenElse(near, close, far)), d, count, dx + i);
    }
    // A class that only the teacher has, with any small probability: t itself may have underflowed.
    const V64 term = hn::IfThenElse(near, small, hn::Max(large, hn::Zero(d)));
    return hn::IfThenElse(hn::AndNot(hn::Eq(lt, none), absent), infinity, term);
  });
}

// d loss / dT. With g = e^y - 1 - y, KL is sum t g; with u = z - <t, z>, z of the teacher, and w = u + y, z of the student but
// for a constant, the derivative is
//   T sum (2 t g + t y u - (s - t) w) = T sum t (h - g u), h = 2 (e^y - 1) - y (1 + e^y) = sum_{k >= 3} (2 - k) y^k / k!,
// in which the series is used for small y, because nothing cancels in it.
HWY_INLINE double DistillationSlope(double temperature, const StudentAndTeacher& rows) {
  const D64 d;
  const V64 zero = hn::Zero(d), two = hn::Set(d, 2.0), none = hn::Set(d, -kInfinity<double>);
  const double mean = PairSum(rows, [&](size_t i, size_t count, V64 /*ls*/, V64 lt, V64 /*y*/) HWY_ATTR {
    const V64 t = Exp(d, lt);
    return hn::IfThenZeroElse(hn::Eq(t, zero), hn::Mul(t, LoadUpTo(d, rows.zt + i, count, 0.0)));
  });
  // (2 - k) / k! from k = 3 on.
  constexpr auto kSeries = [] {
    std::array<double, kInverseFactorials.size() - 1> c = {};
    for (size_t i = 0; i < c.size(); ++i) c[i] = -static_cast<double>(i + 1) * kInverseFactorials[i + 1];
    return c;
  }();
  const V64 level_t = hn::Set(d, mean - rows.log_t);
  return temperature * PairSum(rows, [&](size_t /*i*/, size_t /*count*/, V64 ls, V64 lt, V64 y) HWY_ATTR {
           const V64 s = Exp(d, ls), t = Exp(d, lt);
           const auto near = IsNearZero(d, y), no_student = hn::Eq(s, zero), no_target = hn::Eq(t, zero);
           const V64 u = hn::IfThenZeroElse(no_target, hn::Sub(lt, level_t)), yn = hn::IfThenElseZero(near, y),
                     y2 = hn::Mul(yn, yn);
           const V64 h = hn::Mul(hn::Mul(y2, yn), Polynomial(d, yn, kSeries));
           const V64 small = hn::Mul(t, hn::NegMulAdd(hn::Mul(y2, Phi2NearZero(d, yn)), u, h));
           const V64 y_t = hn::IfThenZeroElse(no_target, y), t_y = hn::Mul(t, y_t), apart = hn::Sub(s, t);
           const V64 w = hn::IfThenElse(no_target, hn::IfThenZeroElse(no_student, hn::Sub(ls, level_t)), hn::Add(u, y_t));
           const V64 large = hn::NegMulAdd(apart, w, hn::MulAdd(t_y, u, hn::Mul(two, hn::Sub(apart, t_y))));
           return hn::IfThenZeroElse(hn::Eq(hn::Max(ls, lt), none), hn::IfThenElse(near, small, large));
         });
}

// p (w - log(1 + w)), where p w = mixed - p holds also for p = 0 or an infinite w. `ratio` is 1 + w, by a sum of positive
// numbers: near w = -1 it has digits that w has not.
HWY_INLINE V64 JsdHalf(D64 d, V64 p, V64 w, V64 p_w, V64 ratio) {
  const auto near = hn::Le(hn::Abs(w), hn::Set(d, 0.5)), none = hn::Eq(p, hn::Zero(d));
  const V64 bounded = hn::Min(hn::IfThenElse(none, hn::Set(d, 1.0), ratio), hn::Set(d, std::numeric_limits<double>::max()));
  return hn::IfThenElse(near, hn::Mul(p, LogGap(d, hn::IfThenElseZero(near, w))),
                        hn::Max(hn::NegMulAdd(p, Log(d, bounded), p_w), hn::Zero(d)));
}

// The terms of beta KL(t, m) and of (1 - beta) KL(s, m) without these factors, and v.
struct JsdTerms {
  V64 of_t, of_s, v;
};
HWY_INLINE JsdTerms JsdTermsOf(D64 d, double beta, V64 s, V64 t, V64 y) {
  const V64 bt = hn::Set(d, beta), bs = hn::Set(d, 1 - beta), minus_y = hn::Neg(y), difference = hn::Sub(s, t);
  const V64 e = Exp(d, y), inverse = Exp(d, minus_y), u = hn::Mul(bs, Expm1(d, y, e)),
            v = hn::Mul(bt, Expm1(d, minus_y, inverse));
  return {JsdHalf(d, t, u, hn::Mul(bs, difference), hn::MulAdd(bs, e, bt)),
          JsdHalf(d, s, v, hn::Mul(bt, hn::Neg(difference)), hn::MulAdd(bt, inverse, bs)), v};
}

// beta sum t (u - log(1 + u)) + (1 - beta) sum s (v - log(1 + v)), u = m/t - 1 = (1 - beta)(s/t - 1), v = m/s - 1 = beta (t/s -
// 1), where no term is negative. log(s/m) = -log(1 + v) is kept in dx until its mean is known.
HWY_INLINE double JsdRow(double beta, const StudentAndTeacher& rows, double* dx) {
  const D64 d;
  const size_t n = rows.n;
  const V64 zero = hn::Zero(d), bt = hn::Set(d, beta), bs = hn::Set(d, 1 - beta);
  const double value = PairSum(rows, [&](size_t i, size_t count, V64 ls, V64 lt, V64 y) HWY_ATTR {
    const V64 s = Exp(d, ls), t = Exp(d, lt);
    const JsdTerms terms = JsdTermsOf(d, beta, s, t, y);
    if (dx != nullptr) StoreUpTo(hn::IfThenZeroElse(hn::Eq(s, zero), hn::Neg(Log1p(d, terms.v))), d, count, dx + i);
    return hn::MulAdd(bt, terms.of_t, hn::Mul(bs, terms.of_s));
  });
  if (dx == nullptr) return value;
  const V64 shift = hn::Set(d, rows.log_s);
  const auto student = [&](size_t i, size_t count)
                           HWY_ATTR { return Exp(d, hn::Sub(LoadUpTo(d, rows.zs + i, count, -kInfinity<double>), shift)); };
  const V64 mean = hn::Set(d, Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
                             return hn::Mul(student(i, count), LoadUpTo(d, dx + i, count, 0.0));
                           }));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 s = hn::Mul(bs, student(i, count));
    StoreUpTo(hn::Mul(s, hn::Sub(LoadUpTo(d, dx + i, count, 0.0), mean)), d, count, dx + i);
  });
  return value;
}

// d loss / d beta = KL(t, m) - KL(s, m): to first order the change of m with beta has no effect.
HWY_INLINE double JsdSlope(double beta, const StudentAndTeacher& rows) {
  const D64 d;
  return PairSum(rows, [&](size_t /*i*/, size_t /*count*/, V64 ls, V64 lt, V64 y) HWY_ATTR {
    const JsdTerms terms = JsdTermsOf(d, beta, Exp(d, ls), Exp(d, lt), y);
    return hn::Sub(terms.of_t, terms.of_s);
  });
}

HWY_INLINE double PairRow(const DistillationLoss& op, const StudentAndTeacher& rows, double* dx) {
  return DistillationRow(op.temperature, rows, dx);
}
HWY_INLINE double PairRow(const JsdLoss& op, const StudentAndTeacher& rows, double* dx) { return JsdRow(op.beta, rows, dx); }
HWY_INLINE double PairSlope(const DistillationLoss& op, const StudentAndTeacher& rows) {
  return DistillationSlope(op.temperature, rows);
}
HWY_INLINE double PairSlope(const JsdLoss& op, const StudentAndTeacher& rows) { return JsdSlope(op.beta, rows); }
HWY_INLINE double TemperatureOf(const DistillationLoss& op) { return op.temperature; }
HWY_INLINE double TemperatureOf(const JsdLoss& /*op*/) { return 1; }

// The result of one row: its value and its derivative in the loss's parameter. The gradient in x goes to dx, if there is one.
// `wide`: a workspace of four rows.
struct PairResult {
  double value, slope;
};

template <class Op, class T>
HWY_INLINE PairResult PairRowOf(const Op& op, const T* x, const T* target, size_t n, double* const (&wide)[4], T* dx,
                                bool slope) {
  const D64 d;
  double *const zs = wide[0], *const zt = wide[1];
  const double log_s = LogTermsRow(TemperatureOf(op), x, n, zs);
  const double log_t = LogTermsRow(TemperatureOf(op), target, n, zt);
  if (log_s != log_s || log_t != log_t) {
    if (dx != nullptr) FillRow(RowTag<T>(), kNaN<T>, n, dx);
    return {kNaN<double>, kNaN<double>};
  }
  const bool infinite = RowMax(RowTag<T>(), x, n) == kInfinity<T>;
  const V64 shift = hn::Set(d, log_t);
  const auto teacher = [&](size_t i, size_t count)
                           HWY_ATTR { return Exp(d, hn::Sub(LoadUpTo(d, zt + i, count, -kInfinity<double>), shift)); };
  const bool near = !infinite && LogRatiosOfNearSoftmax(TemperatureOf(op), x, target, n, log_s - log_t, teacher, wide[2]);
  const StudentAndTeacher rows = {zs, zt, log_s, log_t, near ? wide[2] : nullptr, n};
  PairResult result = {PairRow(op, rows, dx == nullptr ? nullptr : wide[3]), 0};
  if (slope) result.slope = PairSlope(op, rows);
  if (dx == nullptr) return result;
  if (infinite) {
    FillRow(RowTag<T>(), T(0), n, dx);
  } else {
    ForEachVector(
        d, n, [&](size_t i, size_t count) HWY_ATTR { StoreNarrow(LoadUpTo(d, wide[3] + i, count, 0.0), d, count, dx + i); });
  }
  return result;
}

template <class Op, class T>
void PairRows(const Op& common, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const size_t n = batch.x.cols;
  Arena& memory = scratch.memory;
  double* const wide[4] = {memory.template take<double>(n), memory.template take<double>(n), memory.template take<double>(n),
                           memory.template take<double>(n)};
  for (size_t r = 0; r < batch.x.rows; ++r) {
    const PairResult result = PairRowOf(at_row(common, batch.per_row, r), batch.x.row(r), batch.target.row(r), n, wide,
                                        batch.dx.data == nullptr ? nullptr : batch.dx.row(r), !batch.gradients.empty());
    batch.value[r] = result.value;
    PutSlope(batch, r, std::get<0>(Op::kParams).name, result.slope);
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
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_LOSSES_DIVERGENCE_INL_H_

// Losses of softmax, fused with their gradients: cross-entropy, cosines with a margin, many labels.

#if defined(ENTROPIC_LOSSES_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_LOSSES_SOFTMAX_INL_H_
#undef ENTROPIC_LOSSES_SOFTMAX_INL_H_
#else
#define ENTROPIC_LOSSES_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <numbers>

#include "entropic/losses.h"
#include "src/maps/scores-inl.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// What a row is compared with: probabilities q, or where there are none the class t.
template <class T>
struct TargetOfRow {
  const T* q;
  size_t t;
};

// v with 0 for the element t of the row, where it is one of the `count` from i on.
template <class D>
HWY_INLINE hn::Vec<D> WithoutElement(D d, hn::Vec<D> v, size_t t, size_t i) {
  if (HWY_LIKELY(t - i >= hn::Lanes(d))) return v;  // also where t < i
  using T = hn::TFromD<D>;
  return hn::IfThenZeroElse(hn::Eq(hn::Iota(d, T(0)), hn::Set(d, static_cast<T>(t - i))), v);
}

// How far the scores of a row are below its maximum, on the mean, for label smoothing.
struct Spread {
  double total, present;
  double Mean() const { return total / present; }
};

// An absent class among the terms that wait in dx: no term is negative.
template <class T>
inline constexpr T kAbsent = T(-1);

// Cross-entropy against a class. Sweeps: the maximum, which the caller took; the terms e^(x - max), which wait in dx, and their
// sum; the quotients.
//
// The target's own term is kept out of the sum: what the others sum to, R, is 1 - p_t but for its factor, and log1p(R) the
// loss of a target at the maximum, both right however small they are.
template <bool kSmooth, class D, class T = hn::TFromD<D>>
HWY_INLINE double SoftmaxClassRow(D d, double smoothing, const T* x, size_t n, T max, size_t t, T* dx) {
  const ExpScaled<D> exp(d, 1);
  const auto shift = hn::Set(d, max), absent = hn::Set(d, -kInfinity<T>);
  const T own = x[t];
  double sums[kSmooth ? 3 : 1];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max);
    const auto e = exp(d, hn::Sub(xi, shift));
    auto kept = e;
    if constexpr (kSmooth) {
      const auto out = hn::Eq(xi, absent);
      terms[1] = hn::IfThenZeroElse(out, hn::Sub(shift, xi));
      terms[2] = hn::IfThenZeroElse(out, hn::Set(d, T(1)));
      kept = hn::IfThenElse(out, hn::Set(d, kAbsent<T>), e);
    }
    if (dx != nullptr) StoreUpTo(kept, d, count, dx + i);
    terms[0] = WithoutElement(d, e, t, i);
  });
  const double others = sums[0], own_term = static_cast<double>(hn::GetLane(exp(d, hn::Set(d, static_cast<T>(own - max)))));
  const double total = others + own_term;
  if (total != total) {
    if (dx != nullptr) FillRow(d, kNaN<T>, n, dx);
    return kNaN<double>;
  }
  const bool is_absent = own == -kInfinity<T>;
  const double behind = static_cast<double>(max) - static_cast<double>(own);
  const double log_total = own == max ? Log1pNumber(others) : LogNumber(total);
  double value = behind + log_total;
  double even = 0;
  if constexpr (kSmooth) {
    const Spread spread = {sums[1], sums[2]};
    const double rest = smoothing * (log_total + spread.Mean());
    value = smoothing == 1 ? rest : (1 - smoothing) * value + rest;
    even = smoothing / spread.present;
  }
  if (dx == nullptr) return value;
  const auto inverse = hn::Set(d, static_cast<T>(1 / total)), share = hn::Set(d, static_cast<T>(even));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto e = LoadUpTo(d, dx + i, count, T(0));
    auto v = hn::Mul(e, inverse);
    if constexpr (kSmooth) v = hn::IfThenZeroElse(hn::Lt(e, hn::Zero(d)), hn::Sub(v, share));
    StoreUpTo(v, d, count, dx + i);
  });
  dx[t] = is_absent ? T(0) : static_cast<T>((kSmooth ? smoothing - even : 0) - others / total);
  return value;
}

// The same for a group of rows of at most ShortRows::kLongest: `others` are their scores with -inf in the place of the class
// t[r], own[r] is the score that was there, `max` the maxima with it. Writes value[r] of all kRows; to dx where gradients are
// wanted.
template <class T>
HWY_INLINE void SoftmaxClassShortRows(ShortRows<T>& others, const size_t* t, const T* own, hn::Vec<RowTag<T>> max,
                                      double* value, T* const* dx, size_t count) {
  using D = RowTag<T>;
  constexpr size_t kRows = ShortRows<T>::kRows;
  const D d;
  const D64 d64;
  const ExpScaled<D> exp(d, 1);
  HWY_ALIGN T own_exp[ShortRows<T>::kLanes], row_max[ShortRows<T>::kLanes];
  hn::Store(exp(d, hn::Sub(others.Spread(own), max)), d, own_exp);
  hn::Store(max, d, row_max);
  double rest[kRows], total[kRows], behind[kRows];
  others.TransformAndSum(rest, [&](hn::Vec<D> x) HWY_ATTR { return exp(d, hn::Sub(x, max)); });
  for (size_t r = 0; r < kRows; ++r) {
    total[r] = rest[r] + static_cast<double>(own_exp[r]);
    behind[r] = static_cast<double>(row_max[r]) - static_cast<double>(own[r]);
  }
  for (size_t r = 0; r < kRows; r += hn::Lanes(d64)) {
    const auto far = LoadUpTo(d64, behind + r, kRows - r, 0.0);
    const auto leads = Log1p(d64, LoadUpTo(d64, rest + r, kRows - r, 0.0));
    const auto trails = Log(d64, LoadUpTo(d64, total + r, kRows - r, 1.0));
    const auto log = hn::IfThenElse(hn::Eq(far, hn::Zero(d64)), leads, trails);
    StoreUpTo(hn::Add(far, log), d64, kRows - r, value + r);
  }
  if (dx == nullptr) return;
  HWY_ALIGN T inverse[kRows];
  for (size_t r = 0; r < kRows; ++r) inverse[r] = static_cast<T>(1 / total[r]);
  const auto factor = others.Spread(inverse);
  others.Store(dx, count, [&](hn::Vec<D> e) HWY_ATTR { return hn::Mul(e, factor); });
  for (size_t r = 0; r < count; ++r) {
    if (own[r] != -kInfinity<T>) dx[r][t[r]] = static_cast<T>(0 - rest[r] / total[r]);
  }
}

// What label smoothing does to the loss: it is linear in the share, and this its slope, the mean of max - x over the classes
// that are there less that over the target.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double SmoothingSlope(D d, const T* x, size_t n, T max, TargetOfRow<T> target) {
  const auto shift = hn::Set(d, max), absent = hn::Set(d, -kInfinity<T>), zero = hn::Zero(d);
  double sums[3];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    const auto qi = target.q == nullptr ? zero : LoadUpTo(d, target.q + i, count, T(0));
    const auto out = hn::Eq(xi, absent);
    const auto below = hn::Sub(shift, xi);
    terms[0] = hn::IfThenZeroElse(out, below);
    terms[1] = hn::IfThenZeroElse(out, hn::Set(d, T(1)));
    terms[2] = hn::IfThenZeroElse(hn::Eq(qi, zero), hn::Mul(qi, below));
  });
  const double behind = static_cast<double>(max) - static_cast<double>(x[target.t]);
  return Spread{sums[0], sums[1]}.Mean() - (target.q == nullptr ? behind : sums[2]);
}

// log of the sum of e^(x - max) over a row, from how many entries are at the maximum and what the rest sums to: right, relative
// to itself, also where one entry has nearly all.
HWY_INLINE double LogOfTies(double ties, double rest) { return ties == 1 ? Log1pNumber(rest) : LogNumber(ties + rest); }

// Cross-entropy against probabilities q: log sum + sum q (max - x).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double SoftmaxDistributionRow(D d, double smoothing, const T* x, size_t n, T max, const T* q, T* dx) {
  const ExpScaled<D> exp(d, 1);
  const auto shift = hn::Set(d, max), absent = hn::Set(d, -kInfinity<T>), one = hn::Set(d, T(1));
  double sums[5];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max), qi = LoadUpTo(d, q + i, count, T(0));
    const auto e = exp(d, hn::Sub(xi, shift));
    const auto tie = hn::Eq(xi, shift), out = hn::Eq(xi, absent);
    const auto below = hn::Sub(shift, xi);
    terms[0] = hn::IfThenZeroElse(tie, e);
    terms[1] = hn::IfThenElseZero(tie, one);
    terms[2] = hn::IfThenZeroElse(hn::Eq(qi, hn::Zero(d)), hn::Mul(qi, below));
    terms[3] = hn::IfThenZeroElse(out, below);
    terms[4] = hn::IfThenZeroElse(out, one);
    if (dx != nullptr) StoreUpTo(hn::IfThenElse(out, hn::Set(d, kAbsent<T>), e), d, count, dx + i);
  });
  const double total = sums[0] + sums[1];
  if (total != total) {
    if (dx != nullptr) FillRow(d, kNaN<T>, n, dx);
    return kNaN<double>;
  }
  const double log_total = LogOfTies(sums[1], sums[0]);
  const double mean = Spread{sums[3], sums[4]}.Mean();
  const double value = log_total + (smoothing == 0   ? sums[2]
                                    : smoothing == 1 ? mean
                                                     : (1 - smoothing) * sums[2] + smoothing * mean);
  if (dx == nullptr) return value;
  const auto inverse = hn::Set(d, static_cast<T>(1 / total)), share = hn::Set(d, static_cast<T>(smoothing / sums[4]));
  const auto kept = hn::Set(d, static_cast<T>(1 - smoothing));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto e = LoadUpTo(d, dx + i, count, T(0));
    const auto v = hn::Sub(hn::NegMulAdd(LoadUpTo(d, q + i, count, T(0)), kept, hn::Mul(e, inverse)), share);
    StoreUpTo(hn::IfThenZeroElse(hn::Lt(e, hn::Zero(d)), v), d, count, dx + i);
  });
  return value;
}

// psi of a target's cosine, its derivative, and that of -psi in the margin.
struct Psi {
  double value, slope, of_margin;
};

// cos(theta + m) = c cos m - sin(theta) sin m, and likewise the sine; theta > pi - m is c < -cos m.
inline Psi ArcPsi(double c, double m, double least_sine) {
  const double sine = std::sqrt((1 - c) * (1 + c));
  const double cos_sum = c * std::cos(m) - sine * std::sin(m), sin_sum = sine * std::cos(m) + c * std::sin(m);
  const double slope = sin_sum / std::max(sine, least_sine);
  if (c < -std::cos(m)) return {-2 - cos_sum, -slope, -sin_sum};
  return {cos_sum, slope, sin_sum};
}

// With phi = pi - theta for c < 0, where theta itself would have lost the digits of small phi: cos(m theta) is
// (-1)^m cos(m phi), sin(m theta) / sin(theta) is (-1)^(m-1) sin(m phi) / sin(phi). At its ends that ratio is m, the slope m^2.
inline Psi SpherePsi(double c, double m) {
  const double angle = std::acos(std::abs(c)), sine = std::sqrt((1 - c) * (1 + c));
  const double turns = std::min(std::floor(m * angle / std::numbers::pi), m - 1);
  const double k = c < 0 ? std::max(m - 1 - turns, 0.0) : turns;
  const auto sign = [](double power) { return std::fmod(power, 2) == 0 ? 1.0 : -1.0; };
  const double ratio = sine > 0 ? std::sin(m * angle) / sine : m;
  const double cosine = sign(k + (c < 0 ? m : 0)) * std::cos(m * angle);
  return {cosine - 2 * k, std::max(m * sign(k + (c < 0 ? m - 1 : 0)) * ratio, 0.0), 0};
}

template <class T>
Psi PsiOf(const MarginSoftmaxLoss& op, T cosine) {
  const double c = std::clamp(static_cast<double>(cosine), -1.0, 1.0);
  const double m = op.margin.value_or(MarginSoftmaxLoss::kMargins[static_cast<size_t>(op.kind)]);
  switch (op.kind) {
    case MarginSoftmaxLoss::Kind::am:
      return {static_cast<double>(cosine) - m, 1, 1};
    case MarginSoftmaxLoss::Kind::arc:
      return ArcPsi(c, m, sizeof(T) == 4 ? 0x1p-10 : 0x1p-24);
    case MarginSoftmaxLoss::Kind::sphere:
      return SpherePsi(c, m);
  }
  return {};
}

// Derivatives of a row's value in its parameters.
struct MarginSlopes {
  double margin = 0, scale = 0;
};

// Softmax among the other classes, and then the target against their logsumexp: log(1 + e^(others - target)). `row` is dx, or
// where none is wanted room for n numbers; `slopes` may be null.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double MarginRow(D d, const MarginSoftmaxLoss& op, const T* x, size_t n, size_t t, T* row, bool gradient,
                            MarginSlopes* slopes) {
  const T cosine = x[t];
  if (row != x) std::copy(x, x + n, row);
  row[t] = -kInfinity<T>;
  const T max = RowMax(d, row, n);
  const auto fill = [&](T with, double value) HWY_ATTR {
    FillRow(d, with, n, row);
    return value;
  };
  if (cosine != cosine || max != max) return fill(kNaN<T>, kNaN<double>);
  const bool is_absent = cosine == -kInfinity<T>;
  if (max == -kInfinity<T>) {
    for (size_t i = 0; i < n; ++i) {
      if (row[i] != row[i]) return fill(kNaN<T>, kNaN<double>);
    }
    return is_absent ? fill(kNaN<T>, kNaN<double>) : fill(T(0), 0);
  }
  // Beyond these limits a scale does no more, or nothing.
  const ExpScaled<D> exp(d, 1 / std::clamp(op.scale, 1e-30, 1e30));
  const auto shift = hn::Set(d, max);
  double below = 0;  // how far the others are below their maximum, times `sum`
  if (slopes != nullptr) {
    below = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto z = hn::Sub(LoadUpTo(d, row + i, count, -kInfinity<T>), shift), e = exp(d, z);
      return hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), hn::Mul(e, hn::Neg(z)));
    });
  }
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto e = exp(d, hn::Sub(LoadUpTo(d, row + i, count, -kInfinity<T>), shift));
    StoreUpTo(e, d, count, row + i);
    return e;
  });
  if (sum != sum) return fill(kNaN<T>, kNaN<double>);
  const Psi psi = is_absent ? Psi{-kInfinity<double>, 0, 0} : PsiOf(op, cosine);
  const double ahead = op.scale * (static_cast<double>(max) - psi.value) + LogNumber(sum);  // of the others
  const double small = ExpNumber(-std::abs(ahead));
  const double missing = ahead > 0 ? 1 / (1 + small) : small / (1 + small);  // 1 - p_t
  if (gradient) {
    const auto factor = hn::Set(d, static_cast<T>(op.scale * missing / sum));
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto e = LoadUpTo(d, row + i, count, T(0));
      StoreUpTo(hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), hn::Mul(e, factor)), d, count, row + i);
    });
    row[t] = static_cast<T>(-op.scale * psi.slope * missing);
  }
  if (slopes != nullptr) {
    *slopes = {op.scale * missing * psi.of_margin, missing * ((static_cast<double>(max) - psi.value) - below / sum)};
  }
  return std::max(ahead, 0.0) + Log1pNumber(small);
}

// Two logsumexps with a 0 among their terms: of x where there is no label, of -x where there is one.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double MultilabelRow(D d, const T* x, size_t n, const T* labels, T* dx) {
  const auto zero = hn::Zero(d), absent = hn::Set(d, -kInfinity<T>), one = hn::Set(d, T(1));
  auto highest = zero, label_highest = zero, odd = zero;  // odd: 1 for a label that is absent, 2 for a NaN
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    const auto label = hn::Ne(LoadUpTo(d, labels + i, count, T(0)), zero);
    const auto out = hn::Eq(xi, absent), nan = hn::IsNaN(xi);
    odd = hn::Max(odd, hn::IfThenElseZero(hn::And(label, out), one));
    odd = hn::Max(odd, hn::IfThenElseZero(nan, hn::Set(d, T(2))));
    const auto safe = hn::IfThenElse(nan, absent, xi);
    highest = hn::Max(highest, hn::IfThenElse(label, absent, safe));
    label_highest = hn::Max(label_highest, hn::IfThenElseZero(hn::AndNot(out, label), hn::Neg(xi)));
  });
  const T oddest = MaxLane(d, odd);
  if (oddest == T(2)) {
    if (dx != nullptr) FillRow(d, kNaN<T>, n, dx);
    return kNaN<double>;
  }
  const bool masked_label = oddest == T(1);
  const T max[2] = {MaxLane(d, highest), MaxLane(d, label_highest)};
  // A class of +inf that is no label: the value is +inf and no gradient comes from it or beside it.
  const bool infinite = max[0] == kInfinity<T>;
  const ExpScaled<D> exp(d, 1);
  const auto shift = hn::Set(d, infinite ? T(0) : max[0]), label_shift = hn::Set(d, max[1]);
  double sums[2];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    const auto label = hn::Ne(LoadUpTo(d, labels + i, count, T(0)), zero);
    const auto y = hn::IfThenElse(label, hn::Sub(hn::Neg(xi), label_shift), hn::Sub(xi, shift));
    const auto out = infinite ? hn::Or(hn::Eq(xi, absent), hn::Not(label)) : hn::Eq(xi, absent);
    const auto e = hn::IfThenZeroElse(out, exp(d, hn::IfThenZeroElse(out, y)));
    terms[0] = hn::IfThenZeroElse(label, e);
    terms[1] = hn::IfThenElseZero(label, e);
    if (dx != nullptr) StoreUpTo(e, d, count, dx + i);
  });
  const auto log_of = [](double shifted_by, double sum) {
    return shifted_by == 0 ? Log1pNumber(sum) : shifted_by + LogNumber(ExpNumber(-shifted_by) + sum);
  };
  const double totals[2] = {ExpNumber(-static_cast<double>(infinite ? T(0) : max[0])) + sums[0],
                            ExpNumber(-static_cast<double>(max[1])) + sums[1]};
  if (dx != nullptr) {
    const auto factor = hn::Set(d, static_cast<T>(1 / totals[0])), label_factor = hn::Set(d, static_cast<T>(-1 / totals[1]));
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto label = hn::Ne(LoadUpTo(d, labels + i, count, T(0)), zero);
      const auto e = LoadUpTo(d, dx + i, count, T(0));
      const auto v = hn::Mul(e, hn::IfThenElse(label, label_factor, factor));
      StoreUpTo(hn::IfThenZeroElse(hn::Eq(e, zero), v), d, count, dx + i);
    });
  }
  if (infinite || masked_label) return kInfinity<double>;
  return log_of(static_cast<double>(max[0]), sums[0]) + log_of(static_cast<double>(max[1]), sums[1]);
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_LOSSES_SOFTMAX_INL_H_

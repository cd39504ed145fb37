// Softmax of cosines with a margin for the class.

#if defined(ISENTROPIC_LOSSES_MARGIN_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_MARGIN_SOFTMAX_INL_H_
#undef ISENTROPIC_LOSSES_MARGIN_SOFTMAX_INL_H_
#else
#define ISENTROPIC_LOSSES_MARGIN_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/losses/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// psi of a target's cosine, its derivative, and the derivative of -psi in the margin.
struct Psi {
  double value, slope, of_margin;
};

// cos(theta + m) = c cos m - sin(theta) sin m, and likewise the sine; theta > pi - m is c < -cos m.
HWY_INLINE Psi ArcPsi(double c, double m, double least_sine) {
  const double sine = std::sqrt((1 - c) * (1 + c));
  const double cos_sum = c * std::cos(m) - sine * std::sin(m), sin_sum = sine * std::cos(m) + c * std::sin(m);
  const double slope = sin_sum / std::max(sine, least_sine);
  if (c < -std::cos(m)) return {-2 - cos_sum, -slope, -sin_sum};
  return {cos_sum, slope, sin_sum};
}

// For c < 0 it uses phi = pi - theta, because theta loses the digits of a small phi: cos(m theta) is (-1)^m cos(m phi), sin(m
// theta) / sin(theta) is (-1)^(m-1) sin(m phi) / sin(phi). At its ends that ratio is m, the slope m^2.
HWY_INLINE Psi SpherePsi(double c, double m) {
  const double angle = std::acos(std::abs(c)), sine = std::sqrt((1 - c) * (1 + c));
  const double turns = std::min(std::floor(m * angle / std::numbers::pi), m - 1);
  const double k = c < 0 ? std::max(m - 1 - turns, 0.0) : turns;
  const auto sign = [](double power) { return std::fmod(power, 2) == 0 ? 1.0 : -1.0; };
  const double ratio = sine > 0 ? std::sin(m * angle) / sine : m;
  const double cosine = sign(k + (c < 0 ? m : 0)) * std::cos(m * angle);
  return {cosine - 2 * k, std::max(m * sign(k + (c < 0 ? m - 1 : 0)) * ratio, 0.0), 0};
}

template <class T>
HWY_INLINE Psi PsiOf(const MarginSoftmaxLoss& op, T cosine) {
  const double c = std::clamp(static_cast<double>(cosine), -1.0, 1.0);
  using Kind = MarginSoftmaxLoss::Kind;
  // Constants, because a device cannot read the table.
  constexpr double kAm = MarginSoftmaxLoss::kMargins[0], kArc = MarginSoftmaxLoss::kMargins[1],
                   kSphere = MarginSoftmaxLoss::kMargins[2];
  const double m = op.margin.value_or(op.kind == Kind::am ? kAm : op.kind == Kind::arc ? kArc : kSphere);
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

// Softmax of the other classes, and then the target against their logsumexp: log(1 + e^(others - target)). `row` is dx or, if
// no gradient is wanted, room for n numbers; `slopes` may be null.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double MarginRow(D d, const MarginSoftmaxLoss& op, const T* x, size_t n, size_t t, T* row, bool gradient,
                            MarginSlopes* slopes) {
  const T cosine = x[t];
  if (row != x) CopyRow(x, n, row);
  SetEntry(row, t, -kInfinity<T>);
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
    AwaitReaders();
    return is_absent ? fill(kNaN<T>, kNaN<double>) : fill(T(0), 0);
  }
  // Beyond these limits a larger scale changes nothing more, and a smaller one has no effect.
  const ExpScaled<D> exp(d, 1 / std::clamp(op.scale, 1e-30, 1e30));
  const auto shift = hn::Set(d, max);
  double below = 0;  // mean distance of the others below their maximum, times `sum`
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
  const double ahead = op.scale * (static_cast<double>(max) - psi.value) + LogNumber(sum);  // lead of the others
  const double small = ExpNumber(-std::abs(ahead));
  const double missing = ahead > 0 ? 1 / (1 + small) : small / (1 + small);  // 1 - p_t
  if (gradient) {
    const auto factor = hn::Set(d, static_cast<T>(op.scale * missing / sum));
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto e = LoadUpTo(d, row + i, count, T(0));
      StoreUpTo(hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), hn::Mul(e, factor)), d, count, row + i);
    });
    SetEntry(row, t, static_cast<T>(-op.scale * psi.slope * missing));
  }
  if (slopes != nullptr) {
    *slopes = {op.scale * missing * psi.of_margin, missing * ((static_cast<double>(max) - psi.value) - below / sum)};
  }
  return std::max(ahead, 0.0) + Log1pNumber(small);
}

template <class T>
void FusedRows(const MarginSoftmaxLoss& common, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const RowTag<T> d;
  T* const terms = scratch.memory.template take<T>(batch.x.cols);
  for (size_t r = 0; r < batch.x.rows; ++r) {
    if (batch.is_ignored(r)) {
      Settle(batch, r, 0);
      continue;
    }
    const bool gradient = batch.dx.data != nullptr;
    T* const row = gradient ? batch.dx.row(r) : terms;
    MarginSlopes slopes;
    batch.value[r] =
        MarginRow(d, at_row(common, batch.per_row, r), batch.x.row(r), batch.x.cols, static_cast<size_t>(batch.classes[r]), row,
                  gradient, batch.gradients.empty() ? nullptr : &slopes);
    PutSlope(batch, r, "margin", slopes.margin);
    PutSlope(batch, r, "scale", slopes.scale);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_MARGIN_SOFTMAX_INL_H_

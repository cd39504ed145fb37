// Cross-entropy of softmax, fused with its gradient.

#if defined(ISENTROPIC_LOSSES_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_SOFTMAX_INL_H_
#undef ISENTROPIC_LOSSES_SOFTMAX_INL_H_
#else
#define ISENTROPIC_LOSSES_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/losses/batch-inl.h"
#include "src/maps/scores-inl.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// v with 0 for the element t of the row, if that is one of the `count` from i on.
template <class D>
HWY_INLINE hn::Vec<D> WithoutElement(D d, hn::Vec<D> v, size_t t, size_t i) {
  if (HWY_LIKELY(t - i >= hn::Lanes(d))) return v;  // also if t < i
  using T = hn::TFromD<D>;
  return hn::IfThenZeroElse(hn::Eq(hn::Iota(d, T(0)), hn::Set(d, static_cast<T>(t - i))), v);
}

// Distances of scores below the maximum are summed times this power of 2, which changes no bit: a whole distance, or the sum of
// them all, may overflow although its share of the loss does not.
inline constexpr double kPart = 0x1p-40;

// The mean distance of a row's scores below its maximum, for label smoothing.
struct Spread {
  double total, present;
  constexpr double Mean() const { return total / present; }
};

// (max - x) kPart, from part_of_max = max kPart.
template <class D>
HWY_INLINE hn::Vec<D> PartBelow(D d, hn::Vec<D> part_of_max, hn::Vec<D> x) {
  return hn::NegMulAdd(x, hn::Set(d, static_cast<hn::TFromD<D>>(kPart)), part_of_max);
}

// Marks an absent class among the terms that are kept in dx: no term is negative.
template <class T>
inline constexpr T kAbsent = T(-1);

// Cross-entropy against a class. Sweeps: the maximum, which the caller finds; the terms e^(x - max), which are kept in dx, and
// their sum; the quotients.
//
// The target's own term is left out of the sum. The sum R of the others is 1 - p_t up to a factor, and log1p(R) is the loss of
// a target at the maximum; both are accurate however small they are.
template <bool kSmooth, class D, class T = hn::TFromD<D>>
HWY_INLINE double SoftmaxClassRow(D d, double smoothing, const T* x, size_t n, T max, size_t t, T* dx) {
  const ExpScaled<D> exp(d, 1);
  const auto shift = hn::Set(d, max), part_of_max = hn::Set(d, max * static_cast<T>(kPart)), absent = hn::Set(d, -kInfinity<T>);
  const T own = x[t];
  double sums[kSmooth ? 3 : 1];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max);
    const auto e = exp(d, hn::Sub(xi, shift));
    auto kept = e;
    if constexpr (kSmooth) {
      const auto out = hn::Eq(xi, absent);
      terms[1] = hn::IfThenZeroElse(out, PartBelow(d, part_of_max, xi));
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
  const double log_total = own == max ? Log1pNumber(others) : LogNumber(total);
  double value = (static_cast<double>(max) - static_cast<double>(own)) + log_total;
  double even = 0;
  if constexpr (kSmooth) {
    const Spread spread = {sums[1], sums[2]};
    const double part = static_cast<double>(max) * kPart - static_cast<double>(own) * kPart + log_total * kPart;
    const double rest = smoothing * (log_total * kPart + spread.Mean());
    value = (smoothing == 1 ? rest : (1 - smoothing) * part + rest) / kPart;
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
  SetEntry(dx, t, is_absent ? T(0) : static_cast<T>((kSmooth ? smoothing - even : 0) - others / total));
  return value;
}

// Cross-entropy against classes for a group of rows of at most ShortRows::kLongest. `others` are their scores with -inf at the
// class t[r], own[r] is the score of that class, `max` the maxima with it. Writes value[r] of all kRows, and dx if gradients
// are wanted.
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

// The slope of the loss in the share of label smoothing, in which it is linear: the mean of max - x over the present classes,
// minus max - x at the target.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double SmoothingSlope(D d, const T* x, size_t n, T max, TargetOfRow<T> target) {
  const auto part_of_max = hn::Set(d, max * static_cast<T>(kPart)), absent = hn::Set(d, -kInfinity<T>), zero = hn::Zero(d);
  const double own = target.q == nullptr ? static_cast<double>(x[target.t]) : 0;
  double sums[3];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    const auto qi = target.q == nullptr ? zero : LoadUpTo(d, target.q + i, count, T(0));
    const auto out = hn::Eq(xi, absent);
    const auto below = PartBelow(d, part_of_max, xi);
    terms[0] = hn::IfThenZeroElse(out, below);
    terms[1] = hn::IfThenZeroElse(out, hn::Set(d, T(1)));
    terms[2] = hn::IfThenZeroElse(hn::Eq(qi, zero), hn::Mul(qi, below));
  });
  const double behind = target.q == nullptr ? static_cast<double>(max) * kPart - own * kPart : sums[2];
  return (Spread{sums[0], sums[1]}.Mean() - behind) / kPart;
}

// log of the sum of e^(x - max) over a row, from the number of entries at the maximum and the sum of the rest. Its relative
// error is small, even if one entry has nearly all the mass.
HWY_INLINE double LogOfTies(double ties, double rest) { return ties == 1 ? Log1pNumber(rest) : LogNumber(ties + rest); }

// Cross-entropy against probabilities q: log sum + sum q (max - x).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double SoftmaxDistributionRow(D d, double smoothing, const T* x, size_t n, T max, const T* q, T* dx) {
  const ExpScaled<D> exp(d, 1);
  const auto shift = hn::Set(d, max), part_of_max = hn::Set(d, max * static_cast<T>(kPart));
  const auto absent = hn::Set(d, -kInfinity<T>), one = hn::Set(d, T(1));
  double sums[5];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max), qi = LoadUpTo(d, q + i, count, T(0));
    const auto e = exp(d, hn::Sub(xi, shift));
    const auto tie = hn::Eq(xi, shift), out = hn::Eq(xi, absent);
    const auto below = PartBelow(d, part_of_max, xi);
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
  const double mean = Spread{sums[3], sums[4]}.Mean();
  const double behind = smoothing == 0 ? sums[2] : smoothing == 1 ? mean : (1 - smoothing) * sums[2] + smoothing * mean;
  const double value = LogOfTies(sums[1], sums[0]) + behind / kPart;
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

// The value of one row with a finite maximum; its gradient goes to dx, if there is one.

template <class T>
HWY_INLINE double LossRow(const SoftmaxLoss& op, const T* x, size_t n, T max, TargetOfRow<T> target, T* dx) {
  const RowTag<T> d;
  if (target.q != nullptr) return SoftmaxDistributionRow(d, op.label_smoothing, x, n, max, target.q, dx);
  if (op.label_smoothing == 0) return SoftmaxClassRow<false>(d, 0, x, n, max, target.t, dx);
  return SoftmaxClassRow<true>(d, op.label_smoothing, x, n, max, target.t, dx);
}

template <class T>
HWY_INLINE bool HasFinite(const T* x, size_t n) {
  const RowTag<T> d;
  return AnyEntry(d, n, [&](size_t i, size_t count) HWY_ATTR { return hn::IsFinite(LoadUpTo(d, x + i, count, kInfinity<T>)); });
}

// The value of one row with any maximum. `canonical`: room for n numbers.
template <class T>
HWY_INLINE double AnyLossRow(const SoftmaxLoss& op, const T* x, size_t n, T max, TargetOfRow<T> target, T* dx, T* canonical) {
  if (IsFinite(max)) return LossRow(op, x, n, max, target, dx);
  const RowTag<T> d;
  const bool infinite = NonFiniteLogSumExp(x, n) == kInfinity<T>;
  double value = kNaN<double>;
  if (infinite) {
    Canonical(x, n, canonical);
    value = LossRow<T>(op, canonical, n, T(0), target, nullptr);
    if (op.label_smoothing > 0 && HasFinite(x, n)) value = kInfinity<double>;  // a class without mass has a share
  }
  if (dx != nullptr) FillRow(d, infinite ? T(0) : kNaN<T>, n, dx);
  return value;
}

// One row of any kind with a known maximum.
template <class T>
void SoftmaxLossRow(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch, size_t r, T max) {
  const size_t n = batch.x.cols;
  const T* const x = batch.x.row(r);
  if (batch.is_ignored(r)) {
    Settle(batch, r, 0);
    return;
  }
  T* const dx = batch.dx.data == nullptr ? nullptr : batch.dx.row(r);
  batch.value[r] = AnyLossRow(op, x, n, max, TargetOf(batch, r), dx, scratch.memory.template take<T>(n));
}

// Short rows against a class, a group at a time. Ignored rows and rows without a finite maximum are handled first; their
// results in the group are dropped.
template <class T>
void SoftmaxLossShortRows(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  constexpr size_t kRows = ShortRows<T>::kRows;
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  const bool gradient = batch.dx.data != nullptr;
  ShortRows<T> others(n);
  T *const copies = scratch.memory.template take<T>(kRows * n), *const nowhere = scratch.memory.template take<T>(n);
  for (size_t begin = 0; begin < batch.x.rows; begin += kRows) {
    const size_t count = HWY_MIN(kRows, batch.x.rows - begin);
    const T* in[kRows];
    T* out[kRows];
    size_t t[kRows];
    HWY_ALIGN T own[kRows], row_max[ShortRows<T>::kLanes];
    for (size_t i = 0; i < kRows; ++i) {
      const size_t r = begin + HWY_MIN(i, count - 1);
      T* const copy = copies + i * n;
      std::copy(batch.x.row(r), batch.x.row(r) + n, copy);
      t[i] = batch.is_ignored(r) ? 0 : static_cast<size_t>(batch.classes[r]);
      own[i] = copy[t[i]];
      copy[t[i]] = -kInfinity<T>;
      in[i] = copy;
      out[i] = gradient ? batch.dx.row(r) : nowhere;
    }
    const auto max = hn::Max(others.Load(in, -kInfinity<T>), others.Spread(own));
    hn::Store(max, d, row_max);
    bool done[kRows] = {};
    for (size_t i = 0; i < count; ++i) {
      if (IsFinite(row_max[i]) && !batch.is_ignored(begin + i)) continue;
      SoftmaxLossRow(op, batch, scratch, begin + i, row_max[i]);
      done[i] = true, out[i] = nowhere;
    }
    double value[kRows];
    SoftmaxClassShortRows(others, t, own, max, value, gradient ? out : nullptr, count);
    for (size_t i = 0; i < count; ++i) {
      if (!done[i]) batch.value[begin + i] = value[i];
    }
  }
}

template <class T>
void SoftmaxLossRows(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const size_t n = batch.x.cols;
  if (n <= ShortRows<T>::kLongest && op.label_smoothing == 0 && batch.target.data == nullptr) {
    return SoftmaxLossShortRows(op, batch, scratch);
  }
  for (size_t r = 0; r < batch.x.rows; ++r) {
    SoftmaxLossRow(op, batch, scratch, r, batch.is_ignored(r) ? T(0) : RowMax(RowTag<T>(), batch.x.row(r), n));
  }
}

// Rows of scores for losses that contain softmax: no map is called.
template <class T>
void FusedRows(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  Arena memory = scratch.memory;
  T* const canonical = memory.take<T>(n);
  for (size_t r = 0; !batch.gradients.empty() && r < batch.x.rows; ++r) {  // before dx overwrites x
    if (batch.is_ignored(r)) continue;
    const T* x = batch.x.row(r);
    T max = RowMax(d, x, n);
    if (max == kInfinity<T>) {
      Canonical(x, n, canonical);
      x = canonical, max = T(0);
    }
    PutSlope(batch, r, "label_smoothing", SmoothingSlope(d, x, n, max, TargetOf(batch, r)));
  }
  if (batch.per_row.empty()) return SoftmaxLossRows(op, batch, scratch);
  for (size_t r = 0; r < batch.x.rows; ++r) SoftmaxLossRows(at_row(op, batch.per_row, r), batch.rows(r, 1), scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_SOFTMAX_INL_H_

// The loss of several labels against the other classes.

#if defined(ISENTROPIC_LOSSES_MULTILABEL_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_MULTILABEL_SOFTMAX_INL_H_
#undef ISENTROPIC_LOSSES_MULTILABEL_SOFTMAX_INL_H_
#else
#define ISENTROPIC_LOSSES_MULTILABEL_SOFTMAX_INL_H_
#endif

#include <algorithm>

#include "src/losses/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Two logsumexps with an additional term 0: of x for classes without a label, of -x for labels.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double MultilabelRow(D d, const T* x, size_t n, const T* labels, T* dx) {
  const auto zero = hn::Zero(d), absent = hn::Set(d, -kInfinity<T>), one = hn::Set(d, T(1));
  auto highest = zero, label_highest = zero, odd = zero;  // odd: 1 for an absent label, 2 for a NaN
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
  // A score of +inf that is not a label: the value is +inf, and the gradient is 0 for all classes without a label.
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

template <class T>
void FusedRows(const MultilabelSoftmaxLoss& /*op*/, const LossBatch<T>& batch, LossScratch<T> /*scratch*/) {
  const RowTag<T> d;
  for (size_t r = 0; r < batch.x.rows; ++r) {
    T* const dx = batch.dx.data == nullptr ? nullptr : batch.dx.row(r);
    batch.value[r] = MultilabelRow(d, batch.x.row(r), batch.x.cols, batch.target.row(r), dx);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_MULTILABEL_SOFTMAX_INL_H_

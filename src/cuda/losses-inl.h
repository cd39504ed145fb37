// A loss of one row with its gradient, and the kernel of the losses that start from scores.
#pragma once

#include "src/cuda/launch.h"
#include "src/losses/all-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The target of a row, and whether it is valid: the host cannot look at it.
template <class T>
struct CheckedTarget {
  TargetOfRow<T> of;
  bool good, ignored;
};

template <class Op, class T>
HWY_INLINE bool IsGoodMatrixRow(const cuda::LossCall<Op>& call, const T* q, size_t n) {
  const RowTag<T> d;
  if constexpr (Op::kTarget == TargetKind::labels) {
    return Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return hn::Set(d, q[i] == T(0) || q[i] == T(1) ? T(0) : T(1)); }) == 0;
  } else if constexpr (Op::kTarget == TargetKind::classes_or_distributions) {
    const double sum = Sum(D64(), n, [&](size_t i, size_t) HWY_ATTR {
      return hn::Set(D64(), q[i] >= T(0) ? static_cast<double>(q[i]) : kNaN<double>);
    });
    return fabs(sum - 1) <= call.tolerance;
  } else {
    return true;
  }
}

template <class Op, class T>
HWY_INLINE CheckedTarget<T> CheckedTargetOf(const cuda::LossCall<Op>& call, size_t r, Arena& memory) {
  const size_t n = call.cols;
  if (call.classes == nullptr) {
    const T* const q = ReadRow<T>(call.in[1], r, n, memory);
    return {{q, 0}, IsGoodMatrixRow(call, q, n), false};
  }
  const int64_t t = call.classes[r];
  const bool ignored = call.ignores && t == call.ignored, good = t >= 0 && static_cast<uint64_t>(t) < n;
  return {{nullptr, good ? static_cast<size_t>(t) : 0}, good, ignored};
}

// Stores a row's value and its gradients in parameters: NaN if the value is NaN, 0 for an ignored row or an infinite loss.
template <class Op>
HWY_INLINE void WriteLoss(const cuda::LossCall<Op>& call, size_t r, double value, bool ignored, ParamValues<Op> slopes) {
  for (double& slope : slopes) {
    if (value != value) slope = value;
    if (value == kInfinity<double> || ignored) slope = 0;
  }
  WriteSlopes(call, slopes, r);
  if (Team::Rank() == 0) call.value[r] = value;
}

template <class Op>
HWY_INLINE bool WantsSlopes(const cuda::Call<Op>& call) {
  bool wanted = false;
  for (const double* values : call.slopes.of) wanted |= values != nullptr;
  return wanted;
}

// The value of one row. dx is null if no gradient is wanted; it is not x. kShort: one thread has the row, and its sums have the
// order of short rows.

template <bool kShort, class T>
HWY_INLINE double LossOneRow(const SoftmaxLoss& op, const T* x, size_t n, TargetOfRow<T> target, T* dx,
                             ParamValues<SoftmaxLoss>& slopes, bool wants_slopes, Arena memory) {
  const RowTag<T> d;
  T* const other = memory.take<T>(n);
  if (wants_slopes) {
    const T max = RowMax(d, x, n);
    const bool infinite = max == kInfinity<T>;
    if (infinite) Canonical(x, n, other);
    slopes[0] = SmoothingSlope(d, infinite ? other : x, n, infinite ? T(0) : max, target);
  }
  if (kShort && target.q == nullptr && op.label_smoothing == 0) {
    const T own = x[target.t];
    for (size_t i = 0; i < n; ++i) other[i] = i == target.t ? -kInfinity<T> : x[i];
    ShortRows<T> others(n);
    const T* const row = other;
    const auto max = hn::Max(others.Load(&row, -kInfinity<T>), others.Spread(&own));
    if (IsFinite(hn::GetLane(max))) {
      double value;
      SoftmaxClassShortRows(others, &target.t, &own, max, &value, dx == nullptr ? nullptr : &dx, 1);
      return value;
    }
  }
  return AnyLossRow(op, x, n, RowMax(d, x, n), target, dx, other);
}

template <bool kShort, class T>
HWY_INLINE double LossOneRow(const MarginSoftmaxLoss& op, const T* x, size_t n, TargetOfRow<T> target, T* dx,
                             ParamValues<MarginSoftmaxLoss>& slopes, bool wants_slopes, Arena memory) {
  MarginSlopes found;
  T* const row = dx == nullptr ? memory.take<T>(n) : dx;
  const double value = MarginRow(RowTag<T>(), op, x, n, target.t, row, dx != nullptr, wants_slopes ? &found : nullptr);
  slopes[1] = found.margin, slopes[2] = found.scale;
  return value;
}

template <bool kShort, class T>
HWY_INLINE double LossOneRow(const MultilabelSoftmaxLoss& /*op*/, const T* x, size_t n, TargetOfRow<T> target, T* dx,
                             ParamValues<MultilabelSoftmaxLoss>& /*slopes*/, bool /*wants_slopes*/, Arena /*memory*/) {
  return MultilabelRow(RowTag<T>(), x, n, target.q, dx);
}

template <bool kShort, class Op, class T>
HWY_INLINE double LossOneRow(const Op& op, const T* x, size_t n, TargetOfRow<T> target, T* dx, ParamValues<Op>& slopes,
                             bool wants_slopes, Arena memory) {
  return PairRowOf(op, x, target.q, n, memory, dx, wants_slopes ? &slopes[0] : nullptr);
}

// A row without a distribution or a target, or an ignored row.
template <class Op, class T>
HWY_INLINE void SettleRow(const cuda::LossCall<Op>& call, size_t r, double value, Arena memory) {
  WriteLoss(call, r, value, value == 0, {});
  if (call.out.data != nullptr) FillResult(call.out, r, call.cols, static_cast<T>(value), memory);
  Team::Barrier();
}

template <class Op, class T, bool kShort>
__global__ void __launch_bounds__(kShort ? 128 : 512, 1) LossKernel(const __grid_constant__ cuda::LossCall<Op> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Op& op, bool good, Arena memory) HWY_ATTR {
    const CheckedTarget<T> target = CheckedTargetOf<Op, T>(call, r, memory);
    if (target.ignored) return SettleRow<Op, T>(call, r, 0, memory);
    if constexpr (std::is_same_v<Op, JsdLoss>) good = good && op.beta > 0 && op.beta < 1;
    if constexpr (std::is_same_v<Op, DistillationLoss>) good = good && BetaOf(op) < 1;
    if (!good || !target.good) return SettleRow<Op, T>(call, r, kNaN<double>, memory);
    const T* x = ReadRow<T>(call.in[0], r, n, memory);
    T* const dx = call.out.data == nullptr ? nullptr : ResultRow<T>(call.out, r, n, memory);
    if (dx == x) {
      T* const copy = memory.take<T>(n);
      CopyRow(x, n, copy);
      x = copy;
    }
    ParamValues<Op> slopes = {};
    const double value = LossOneRow<kShort>(op, x, n, target.of, dx, slopes, WantsSlopes(call), memory);
    WriteLoss(call, r, value, false, slopes);
    if (dx != nullptr) FinishRow(dx, call.out, r, n);
    Team::Barrier();
  });
}

// Memory for a 16-bit row: five rows of the working type, and what a pair of rows takes.
template <class T>
size_t TeamMemoryOfLosses(size_t n) {
  return 5 * Arena::room<T>(n) + PairMemory<T>(n);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

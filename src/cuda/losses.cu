// Kernels of the losses, each with its gradient in the same pass.

#include "src/cuda/launch.h"
#include "src/losses/all-inl.h"

namespace entropic::inline ENTROPIC_ABI {
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

// Sets the gradients in parameters of rows that have none.
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
  double* const wide[4] = {memory.take<double>(n), memory.take<double>(n), memory.take<double>(n), memory.take<double>(n)};
  const PairResult result = PairRowOf(op, x, target.q, n, wide, dx, wants_slopes);
  slopes[0] = result.slope;
  return result.value;
}

// A row without a distribution or a target, or an ignored row.
template <class Op, class T>
HWY_INLINE void SettleRow(const cuda::LossCall<Op>& call, size_t r, double value, Arena memory) {
  WriteLoss(call, r, value, value == 0, {});
  if (call.out.data != nullptr) FillResult(call.out, r, call.cols, static_cast<T>(value), memory);
  Team::Barrier();
}

template <class Op, class T, bool kShort>
__global__ void __launch_bounds__(256) LossKernel(cuda::LossCall<Op> call) {
  if constexpr (!kShort) Team::IsManyThreads();
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Op& op, bool good, Arena memory) HWY_ATTR {
    const CheckedTarget<T> target = CheckedTargetOf<Op, T>(call, r, memory);
    if (target.ignored) return SettleRow<Op, T>(call, r, 0, memory);
    if constexpr (std::is_same_v<Op, JsdLoss>) good = good && op.beta < 1;
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

// -<q, p>; stores the vector for the map's gradient in g, if g is given.
template <class T>
HWY_INLINE double AccuracyOneRow(const T* p, size_t n, TargetOfRow<T> target, T* g) {
  const RowTag<T> d;
  const double value = target.q == nullptr
                           ? 0 - static_cast<double>(p[target.t])
                           : 0 - Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return hn::Set(d, p[i] * target.q[i]); });
  if (g == nullptr) return value;
  ForEachVector(d, n, [&](size_t i, size_t) HWY_ATTR {
    g[i] = target.q != nullptr ? -target.q[i] : i == target.t ? T(-1) : T(0);
  });
  return value;
}

// The loss from p of the map. p is overwritten and may be the place of the gradient. Smooth accuracy writes g instead of a
// gradient; `settle` later sets entries that must be 0 or NaN.
template <class T>
__global__ void __launch_bounds__(256) MappedLossKernel(cuda::LossCall<EntmaxLoss> call, cuda::FromMap kind) {
  Team::IsManyThreads();
  const size_t n = call.cols;
  const RowTag<T> d;
  ForTeamRows(call, [&](size_t r, const EntmaxLoss& op, bool /*good*/, Arena memory) HWY_ATTR {
    const CheckedTarget<T> target = CheckedTargetOf<EntmaxLoss, T>(call, r, memory);
    T* const p = static_cast<T*>(call.in[2].data) + r * call.in[2].stride;
    if (kind == cuda::FromMap::settle) {
      const double value = call.value[r];
      Team::Barrier();
      if (!target.ignored && value == value) return;
      for (double* const slopes : call.of_map) {
        if (slopes != nullptr && Team::Rank() == 0) slopes[r] = value;
      }
      return SettleRow<EntmaxLoss, T>(call, r, value, memory);
    }
    const bool nan = p[0] != p[0];
    Team::Barrier();
    if (target.ignored) return SettleRow<EntmaxLoss, T>(call, r, 0, memory);
    if (nan || !target.good) return SettleRow<EntmaxLoss, T>(call, r, kNaN<double>, memory);
    if (kind == cuda::FromMap::smooth_accuracy) {
      const double value =
          AccuracyOneRow(p, n, target.of, call.out.data == nullptr ? nullptr : ResultRow<T>(call.out, r, n, memory));
      WriteLoss(call, r, value, false, {});
      Team::Barrier();
      return;
    }
    const T* x = ReadRow<T>(call.in[0], r, n, memory);
    const bool infinite = !IsFinite(RowMax(d, x, n));
    if (infinite) {
      T* const canonical = memory.take<T>(n);
      Canonical(x, n, canonical);
      x = canonical;
    }
    const T max = RowMax(d, x, n);
    ParamValues<EntmaxLoss> slopes = {};
    double value;
    if (kind == cuda::FromMap::entmax) {
      if (WantsSlopes(call) && !infinite) {
        slopes[0] = EntropySlope(op.alpha, p, n) - (target.of.q == nullptr ? 0 : EntropySlope(op.alpha, target.of.q, n));
      }
      value = MappedRow(op, x, n, max, target.of, p);
    } else {
      value = kind == cuda::FromMap::cut ? CutRow(x, n, max, target.of, p) : SurrogateRow(x, n, max, target.of, p);
    }
    WriteLoss(call, r, value, false, slopes);
    if (call.out.data == nullptr) return Team::Barrier();
    T* const dx = ResultRow<T>(call.out, r, n, memory);
    if (infinite) {
      FillRow(d, T(0), n, dx);
    } else if (target.of.q != nullptr) {
      SubtractTarget(d, x, n, target.of.q, p, dx);
    } else if (dx != p) {
      CopyRow(p, n, dx);
    }
    FinishRow(dx, call.out, r, n);
    Team::Barrier();
  });
}

// Memory for a 16-bit row: a copy, and four rows of float64.
template <class T>
size_t TeamMemoryOfLosses(size_t n) {
  return 5 * Arena::room<T>(n) + 4 * Arena::room<double>(n);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class Op, class T>
std::size_t LossKernels<Op, T>::memory(std::size_t rows, std::size_t n) {
  const std::size_t team = HWY_NAMESPACE::TeamMemoryOfLosses<T>(n);
  return std::max(memory_of_grid(rows, n, team, false), memory_of_grid(rows, n, team, true));
}

// One thread has each short row of softmax_loss against classes, because these sums have their own order.
template <class Op, class T>
void LossKernels<Op, T>::run(LossCall<Op> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamMemoryOfLosses<T>(call.cols);
  if constexpr (std::is_same_v<Op, SoftmaxLoss>) {
    if (call.classes != nullptr && call.cols <= ShortRows<T>::kLongest) {
      return launch(LossKernel<Op, T, true>, call, true, stream);
    }
  }
  launch(LossKernel<Op, T, false>, call, false, stream);
}

template <class T>
std::size_t MappedLossKernels<T>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLosses<T>(n), false);
}

template <class T>
void MappedLossKernels<T>::run(LossCall<EntmaxLoss> call, FromMap kind, Stream stream) {
  call.memory_of_team = HWY_NAMESPACE::TeamMemoryOfLosses<T>(call.cols);
  launch(HWY_NAMESPACE::MappedLossKernel<T>, call, false, stream, kind);
}

template struct LossKernels<SoftmaxLoss, float>;
template struct LossKernels<SoftmaxLoss, double>;
template struct LossKernels<MarginSoftmaxLoss, float>;
template struct LossKernels<MarginSoftmaxLoss, double>;
template struct LossKernels<MultilabelSoftmaxLoss, float>;
template struct LossKernels<MultilabelSoftmaxLoss, double>;
template struct LossKernels<DistillationLoss, float>;
template struct LossKernels<DistillationLoss, double>;
template struct LossKernels<JsdLoss, float>;
template struct LossKernels<JsdLoss, double>;
template struct MappedLossKernels<float>;
template struct MappedLossKernels<double>;

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

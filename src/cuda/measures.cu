// Kernels of the measures of one distribution and of two, each with its gradients in the same pass.

#include "src/cuda/launch.h"
#include "src/measures/row-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Whether a row is a distribution by the host's rules.
template <class Op>
HWY_INLINE bool IsDistribution(const cuda::MeasureCall<Op>& call, double sum) {
  return call.op.normalize ? sum > 0 : fabs(sum - 1) <= call.tolerance;
}

template <class Op, class T>
HWY_INLINE double SumOf(const Op& op, const T* x, size_t n) {
  return op.input == Input::scores ? 1 : GivenSum(op.input, op.normalize, x, n);
}

template <class Op>
HWY_INLINE void WriteValue(const cuda::MeasureCall<Op>& call, size_t r, double value) {
  if (Team::Rank() == 0) call.value[r] = value;
}

template <class Op, class T>
__global__ void __launch_bounds__(512, 1) MeasureKernel(const __grid_constant__ cuda::MeasureCall<Op> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Op& op, bool good, Arena memory) HWY_ATTR {
    const bool gradient = call.out.data != nullptr;
    double *const own = memory.take<double>(n), *const logs = memory.take<double>(n);
    const T* const p = ReadRow<T>(call.in[0], r, n, memory);
    T* const dp = gradient ? ResultRow<T>(call.out, r, n, memory) : nullptr;
    const double sum = SumOf(op, p, n);
    ParamValues<Op> slopes = {};
    if (!good || !IsDistribution(call, sum)) {
      for (double& slope : slopes) slope = kNaN<double>;
      WriteSlopes(call, slopes, r);
      WriteValue(call, r, kNaN<double>);
      if (gradient) FillRow(RowTag<T>(), kNaN<T>, n, dp);
    } else if (const double nats = gradient ? 0 : EntropyInFloat(op, p, n); nats > 0) {
      WriteValue(call, r, InUnit(nats, op));
    } else {
      double value;
      double* slope = nullptr;
      if constexpr (requires { op.alpha; }) slope = call.slopes.of[0] != nullptr ? &slopes[0] : nullptr;  // alpha comes first
      OneRow(op, DistributionOf(op.input, op.normalize, p, n, sum, Logs::inaccurate, own, logs), &value, dp, slope);
      WriteSlopes(call, slopes, r);
      WriteValue(call, r, value);
    }
    if (gradient) FinishRow(dp, call.out, r, n);
    Team::Barrier();
  });
}

// The value, at most the largest possible divergence, which rounding to T could exceed.
template <class T, class Op>
HWY_INLINE double Kept(const cuda::MeasureCall<Op>& call, double value) {
  return static_cast<double>(static_cast<T>(value)) > call.bound ? call.below_bound : value;
}

template <class Op, class T>
__global__ void __launch_bounds__(512, 1) DivergenceKernel(const __grid_constant__ cuda::MeasureCall<Op> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Op& op, bool /*good*/, Arena memory) HWY_ATTR {
    double *const own = memory.take<double>(n), *const logs = memory.take<double>(n);
    double *const q_own = memory.take<double>(n), *const q_logs = memory.take<double>(n);
    double* const ratios = memory.take<double>(n);
    const T* const p = ReadRow<T>(call.in[0], r, n, memory);
    const T* const q = ReadRow<T>(call.in[1], call.one_for_all ? 0 : r, n, memory);
    T* const dp = call.out.data == nullptr ? nullptr : ResultRow<T>(call.out, r, n, memory);
    T* const dq = call.second.data == nullptr ? nullptr : ResultRow<T>(call.second, r, n, memory);
    const bool gradients = dp != nullptr || dq != nullptr;
    const double p_sum = SumOf(op, p, n), q_sum = SumOf(op, q, n);
    if (!IsDistribution(call, p_sum) || !IsDistribution(call, q_sum)) {
      WriteValue(call, r, kNaN<double>);
      if (dp != nullptr) FillRow(RowTag<T>(), kNaN<T>, n, dp);
      if (dq != nullptr) FillRow(RowTag<T>(), kNaN<T>, n, dq);
    } else if (const double nats = KlInFloat(op, p, q, n, dp, dq, own, logs); nats > 0) {
      WriteValue(call, r, Kept<T>(call, InUnit(nats, op)));
    } else {
      Distribution first, second;
      for (const Logs needed : {kLogsOf<Op>, Logs::all}) {
        first = DistributionOf(op.input, op.normalize, p, n, p_sum, needed, own, logs);
        second = DistributionOf(op.input, op.normalize, q, n, q_sum, needed, q_own, q_logs);
        if (!NeedLogs(first, second)) break;
      }
      if (gradients) first = Apart(first, own), second = Apart(second, q_own);
      Pair rows = {first, second};
      if (kLogsOf<Op> == Logs::none && IsNearSoftmax(rows, p, q, ratios)) rows.ratios = ratios;
      double value;
      TwoRow(op, rows, &value, dp, dq);
      WriteValue(call, r, Kept<T>(call, value));
    }
    if (dp != nullptr) FinishRow(dp, call.out, r, n);
    if (dq != nullptr) FinishRow(dq, call.second, r, n);
    Team::Barrier();
  });
}

// Memory: five rows of float64, and copies of two 16-bit rows and of two results.
template <class T>
size_t TeamMemoryOfMeasures(size_t n) {
  return 5 * Arena::room<double>(n) + 4 * Arena::room<T>(n);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class Op, class T>
std::size_t MeasureKernels<Op, T>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfMeasures<T>(n), false);
}

template <class Op, class T>
void MeasureKernels<Op, T>::run(MeasureCall<Op> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamMemoryOfMeasures<T>(call.cols);
  if constexpr (std::is_constructible_v<Divergence, Op>) {
    launch(DivergenceKernel<Op, T>, call, false, stream);
  } else {
    launch(MeasureKernel<Op, T>, call, false, stream);
  }
}

template struct MeasureKernels<Entropy, float>;
template struct MeasureKernels<Entropy, double>;
template struct MeasureKernels<RenyiEntropy, float>;
template struct MeasureKernels<RenyiEntropy, double>;
template struct MeasureKernels<TsallisEntropy, float>;
template struct MeasureKernels<TsallisEntropy, double>;
template struct MeasureKernels<Perplexity, float>;
template struct MeasureKernels<Perplexity, double>;
template struct MeasureKernels<CrossEntropy, float>;
template struct MeasureKernels<CrossEntropy, double>;
template struct MeasureKernels<KlDivergence, float>;
template struct MeasureKernels<KlDivergence, double>;
template struct MeasureKernels<JsDivergence, float>;
template struct MeasureKernels<JsDivergence, double>;
template struct MeasureKernels<JsDistance, float>;
template struct MeasureKernels<JsDistance, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

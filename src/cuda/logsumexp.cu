// Kernels of log_softmax and logsumexp, and of gamma_for_entropy.

#include "src/cuda/launch.h"
#include "src/entropy_control/gamma-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class Op>
HWY_INLINE void WriteSlope(const cuda::Call<Op>& call, size_t r, double slope) {
  if (call.slopes.of[0] != nullptr && Team::Rank() == 0) call.slopes.of[0][r] = slope;
}

template <class T>
HWY_INLINE void LogSoftmaxOneRow(const LogSoftmax& op, const T* x, size_t n, T* y, Arena memory) {
  const RowTag<T> d;
  constexpr auto kScores = kLogSoftmaxScores;
  const auto row = PrepareRow(d, kScores, op, x, n, memory.take<T>(n));
  if (IsFinite(row.max)) return LogSoftmaxRow(d, row.op, row.x, n, row.max, y, false, static_cast<const T*>(nullptr));
  WriteNonFinite(x, n, n, y);
  ForEachVector(d, n, [&](size_t i, size_t) HWY_ATTR { y[i] = hn::GetLane(Log(d, hn::Set(d, y[i]))); });
}

template <class T>
__global__ void __launch_bounds__(512, 1) LogSoftmaxKernel(const __grid_constant__ cuda::Call<LogSoftmax> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const LogSoftmax& op, bool good, Arena memory) HWY_ATTR {
    if (!good) return FillResult(call.out, r, n, kNaN<T>, memory);
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    T* const y = ResultRow<T>(call.out, r, n, memory);
    LogSoftmaxOneRow(op, x, n, y, memory);
    FinishRow(y, call.out, r, n);
  });
}

// in: x, y, g.
template <class T>
__global__ void __launch_bounds__(512, 1) LogSoftmaxVjpKernel(const __grid_constant__ cuda::Call<LogSoftmax> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const LogSoftmax& op, bool good, Arena memory) HWY_ATTR {
    const RowTag<T> d;
    if (!good) return WriteSlope(call, r, kNaN<double>), FillResult(call.out, r, n, kNaN<T>, memory);
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    const T* const g = ReadRow<T>(call.in[2], r, n, memory);
    T* const dx = ResultRow<T>(call.out, r, n, memory);
    const T* y = dx;
    if (call.in[1].stored == cuda::Stored::as_worked_on) {
      y = static_cast<const T*>(call.in[1].data) + r * call.in[1].stride;
    } else {
      LogSoftmaxOneRow(op, x, n, dx, memory);
    }
    if (IsInfiniteRow(x, y, n, -kInfinity<T>)) {
      WriteSlope(call, r, 0);
      FillRow(d, T(0), n, dx);
    } else {
      if (call.slopes.of[0] != nullptr) {
        // In units of 1/T, which may overflow.
        T* const slopes_in_x = memory.take<T>(n);
        LogSoftmaxVjpRow(d, LogSoftmax{}, x, y, g, n, slopes_in_x, false);
        const T max = RowMax(d, x, n);
        WriteSlope(call, r, SlopeInDivisor(x, max, slopes_in_x, n) / op.temperature / op.temperature);
      }
      LogSoftmaxVjpRow(d, op, x, y, g, n, dx, false);
    }
    FinishRow(dx, call.out, r, n);
  });
}

// For a row whose maximum is not finite: that maximum, or NaN if the row has a NaN.
template <class T>
HWY_INLINE T MaximumOrNaN(const T* x, size_t n) {
  return FindNonFinite(x, n).nan ? kNaN<T> : RowMax(RowTag<T>(), x, n);
}

template <class T>
__global__ void __launch_bounds__(512, 1) LogSumExpKernel(const __grid_constant__ cuda::Call<LogSumExp> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const LogSumExp& op, bool good, Arena memory) HWY_ATTR {
    const RowTag<T> d;
    if (!good) return FillResult(call.out, r, 1, kNaN<T>, memory);
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    constexpr auto kScores = kLogSumExpScores;
    const auto row = PrepareRow(d, kScores, op, x, n, memory.take<T>(n));
    const T value =
        IsFinite(row.max)
            ? static_cast<T>(static_cast<double>(row.original_max) +
                             op.temperature * LogSumExpRow(d, row.op, row.x, n, row.max, static_cast<const T*>(nullptr)))
            : MaximumOrNaN(x, n);
    FillResult(call.out, r, 1, value, memory);
  });
}

// in: x, nothing, g.
template <class T>
__global__ void __launch_bounds__(512, 1) LogSumExpVjpKernel(const __grid_constant__ cuda::Call<LogSumExp> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const LogSumExp& op, bool good, Arena memory) HWY_ATTR {
    const RowTag<T> d;
    if (!good) return WriteSlope(call, r, kNaN<double>), FillResult(call.out, r, n, kNaN<T>, memory);
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    const T g = *ReadRow<T>(call.in[2], r, 1, memory);
    T* const dx = ResultRow<T>(call.out, r, n, memory);
    constexpr auto kScores = KernelsOf<Softmax, T>::kScores;
    const auto row = PrepareRow(d, kScores, Softmax{.temperature = op.temperature}, x, n, memory.take<T>(n));
    if (IsFinite(row.max)) {
      KernelsOf<Softmax, T>::MapRow(row.op, row.x, n, row.max, dx, {memory, false});
      if (call.slopes.of[0] != nullptr) WriteSlope(call, r, static_cast<double>(g) * RowEntropy(D64(), dx, n));
      ScaleRow(d, g, n, dx);
    } else {
      // The gradient is 0 at -inf scores and in rows with +inf.
      const T slope = MaximumOrNaN(x, n) == row.max ? T(0) : kNaN<T>;
      WriteSlope(call, r, static_cast<double>(slope));
      FillRow(d, slope, n, dx);
    }
    FinishRow(dx, call.out, r, n);
  });
}

template <class T>
__global__ void __launch_bounds__(512, 1) GammaKernel(const __grid_constant__ cuda::Call<GammaForEntropy> call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const GammaForEntropy& op, bool good, Arena memory) HWY_ATTR {
    GammaOfRow found = {kNaN<double>, kNaN<double>, GammaStatus::invalid, 0};
    if (good) {
      const T* const x = ReadRow<T>(call.in[0], r, n, memory);
      found = GammaRow(op, x, n, memory.take<double>(n));
    }
    if (Team::Rank() == 0) {
      call.gamma[r] = found.gamma, call.entropy[r] = found.entropy, call.status[r] = static_cast<int>(found.status);
    }
    Team::Barrier();
  });
}

// Copies of rows of 16 bits and of their result, a prepared row, and one in float64.
template <class T>
size_t TeamMemoryOfLogs(size_t n) {
  return 5 * Arena::room<T>(n) + Arena::room<double>(n);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class T, class Op>
void run(void (*kernel)(Call<Op>), Call<Op> call, Stream stream) {
  call.memory_of_team = HWY_NAMESPACE::TeamMemoryOfLogs<T>(call.cols);
  launch(kernel, call, false, stream);
}

template <>
std::size_t Kernels<LogSoftmax, float>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLogs<float>(n), false);
}
template <>
void Kernels<LogSoftmax, float>::map(Call<LogSoftmax> call, Stream stream) {
  run<float, LogSoftmax>(HWY_NAMESPACE::LogSoftmaxKernel<float>, call, stream);
}
template <>
void Kernels<LogSoftmax, float>::vjp(Call<LogSoftmax> call, Stream stream) {
  run<float, LogSoftmax>(HWY_NAMESPACE::LogSoftmaxVjpKernel<float>, call, stream);
}
template <>
std::size_t Kernels<LogSumExp, float>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLogs<float>(n), false);
}
template <>
void Kernels<LogSumExp, float>::map(Call<LogSumExp> call, Stream stream) {
  run<float, LogSumExp>(HWY_NAMESPACE::LogSumExpKernel<float>, call, stream);
}
template <>
void Kernels<LogSumExp, float>::vjp(Call<LogSumExp> call, Stream stream) {
  run<float, LogSumExp>(HWY_NAMESPACE::LogSumExpVjpKernel<float>, call, stream);
}
template <>
std::size_t Kernels<GammaForEntropy, float>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLogs<float>(n), false);
}
template <>
void Kernels<GammaForEntropy, float>::map(Call<GammaForEntropy> call, Stream stream) {
  run<float, GammaForEntropy>(HWY_NAMESPACE::GammaKernel<float>, call, stream);
}

template <>
std::size_t Kernels<LogSoftmax, double>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLogs<double>(n), false);
}
template <>
void Kernels<LogSoftmax, double>::map(Call<LogSoftmax> call, Stream stream) {
  run<double, LogSoftmax>(HWY_NAMESPACE::LogSoftmaxKernel<double>, call, stream);
}
template <>
void Kernels<LogSoftmax, double>::vjp(Call<LogSoftmax> call, Stream stream) {
  run<double, LogSoftmax>(HWY_NAMESPACE::LogSoftmaxVjpKernel<double>, call, stream);
}
template <>
std::size_t Kernels<LogSumExp, double>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLogs<double>(n), false);
}
template <>
void Kernels<LogSumExp, double>::map(Call<LogSumExp> call, Stream stream) {
  run<double, LogSumExp>(HWY_NAMESPACE::LogSumExpKernel<double>, call, stream);
}
template <>
void Kernels<LogSumExp, double>::vjp(Call<LogSumExp> call, Stream stream) {
  run<double, LogSumExp>(HWY_NAMESPACE::LogSumExpVjpKernel<double>, call, stream);
}
template <>
std::size_t Kernels<GammaForEntropy, double>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLogs<double>(n), false);
}
template <>
void Kernels<GammaForEntropy, double>::map(Call<GammaForEntropy> call, Stream stream) {
  run<double, GammaForEntropy>(HWY_NAMESPACE::GammaKernel<double>, call, stream);
}

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

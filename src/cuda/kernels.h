// The interface between the kernels' files and the file with the checks.
#pragma once

#include <cstddef>

#include "isentropic/cuda.h"
#include "isentropic/losses.h"
#include "isentropic/measures.h"
#include "src/cuda/calls.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// The kernels of an operation for rows that are computed in T. call.memory has memory() bytes.
template <class Op, class T>
struct Kernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void map(Call<Op> call, Stream stream);
  static void vjp(Call<Op> call, Stream stream);
};

// The same for short rows, with one thread for each: those that the host's kernels process side by side.
template <class Op, class T>
struct ShortKernels {
  static void map(Call<Op> call, Stream stream);
  static void vjp(Call<Op> call, Stream stream);
};

// The kernels of a loss. All losses that start from a map's p share one kernel; `kind` selects the rest.
enum class FromMap : int { entmax, cut, surrogate, smooth_accuracy, settle };
template <class Op, class T>
struct LossKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void run(LossCall<Op> call, Stream stream);
};
template <class Op, class T>
struct ShortLossKernels {
  static void run(LossCall<Op> call, Stream stream);
};
template <class T>
struct MappedLossKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void run(LossCall<EntmaxLoss> call, FromMap kind, Stream stream);
};

// The kernels of a measure of one distribution or of two.
template <class Op, class T>
struct MeasureKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void run(MeasureCall<Op> call, Stream stream);
};

template <class T>
struct SamplingKernels {
  static std::size_t memory(const SampleCall& call);
  static void sample(SampleCall call, Stream stream);
  static void add_noise(SampleCall call, Stream stream);
};

// token_statistics. in: x; for gradients also the statistics and their gradients, rows of 4 numbers of Working<S>.
struct TokenCall : Call<TokenStatistics> {
  const std::int64_t* target = nullptr;
  std::int64_t* top = nullptr;
  std::size_t top_stride = 0, tops = 0;
};
template <class S>
struct TokenKernels {
  static std::size_t memory(std::size_t rows, std::size_t n, std::size_t top);
  static void map(TokenCall call, Stream stream);
  static void vjp(TokenCall call, Stream stream);
};

// What calibration asks of each row, which gets four numbers: see cuda.h.
struct CalibrationCall : Call<GammaForEntropy> {
  enum Asked : int { facts, slopes, loss } asked = facts;
  const std::int64_t* labels = nullptr;
  double at = 1;
  double* found = nullptr;
};
template <class S>
struct CalibrationKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void run(CalibrationCall call, Stream stream);
};

// Throws std::runtime_error, with the runtime's message, for a failed launch.
void check_launch(int error);
// Waits for what the stream has to do, and then for the bytes.
void copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream);

// The threads that a large device runs at once. Further threads would only wait, so a team takes one row after another.
#ifdef __CUDACC__
inline constexpr std::size_t threads_at_once = std::size_t{1} << 17;
// Rows of a sparse map that one kernel leaves to another at once: enough to keep a device busy.
inline constexpr std::size_t rows_apart = 4096;
#else
// Only tests change them. The last one is an H100's shared memory of a block.
inline std::size_t threads_at_once = std::size_t{1} << 17, rows_apart = 4096, shared_at_most = 232448;
// Only tests set it: the threads of a row, instead of those for its length.
inline Shape forced_shape = {0, 0, 0};
#endif

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

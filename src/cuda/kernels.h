// What the kernels' files offer to the file that checks.
#pragma once

#include <cstddef>

#include "entropic/cuda.h"
#include "entropic/losses.h"
#include "entropic/measures.h"
#include "src/cuda/calls.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

// Bytes of working memory of a call with `rows` rows of n, `bytes_of_team(n)` for each team.
std::size_t memory_of(std::size_t rows, std::size_t n, std::size_t memory_of_team);

// What an operation has for rows that are worked on as T. call.memory has memory() bytes.
template <class Op, class T>
struct Kernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void map(Call<Op> call, Stream stream);
  static void vjp(Call<Op> call, Stream stream);
};

// The same of a loss. That with a map's p to start from has one kernel for all: `kind` says how it goes on.
enum class FromMap : int { entmax, cut, surrogate, smooth_accuracy, settle };
template <class Op, class T>
struct LossKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void run(LossCall<Op> call, Stream stream);
};
template <class T>
struct MappedLossKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void run(LossCall<EntmaxLoss> call, FromMap kind, Stream stream);
};

// The same of a measure, of one distribution or of two.
template <class Op, class T>
struct MeasureKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void run(MeasureCall<Op> call, Stream stream);
};

template <class T>
struct SamplingKernels {
  static std::size_t memory(std::size_t rows, std::size_t n);
  static void sample(SampleCall call, Stream stream);
  static void add_noise(SampleCall call, Stream stream);
};

// A failed launch is a std::runtime_error; the kernels' files report what the runtime says.
void check_launch(int error);

// Tests alone set it: which threads have a row, in place of what its length says.
#ifndef __CUDACC__
inline Shape forced_shape = {0, 0, 0};
#endif

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

// The arguments of a kernel: numbers and addresses. Host and device read them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "isentropic/describe.h"
#include "isentropic/sampling.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// The type of rows in memory: the type of the computation, or a 16-bit one.
enum class Stored : int { as_worked_on, float16, bfloat16 };

// Rows in device memory.
struct Rows {
  void* data = nullptr;
  std::size_t stride = 0;
  Stored stored = Stored::as_worked_on;
};

// One address for each parameter of Op, or null.
template <class Op, class T>
struct ForParams {
  static constexpr std::size_t kCount = count_of(Described<Op>::kParams);
  std::array<T*, kCount> of = {};
};

// An operation on rows: inputs, output, further results for each row, and a team's share of the workspace.
template <class Op>
struct Call {
  Op op;
  std::size_t rows, cols;
  Rows in[3], out;
  ForParams<Op, const double> per_row = {};
  ForParams<Op, double> slopes = {};
  double *gamma = nullptr, *entropy = nullptr;
  int* status = nullptr;
  const std::uint8_t* done = nullptr;  // which rows have their result already, or null
  std::uint8_t* memory = nullptr;
  std::size_t memory_of_team = 0;
};

// A loss. in: x, the matrix of targets or nothing, and p of the loss's map or nothing; out may be nothing.
template <class Op>
struct LossCall : Call<Op> {
  const std::int64_t* classes = nullptr;
  std::int64_t ignored = 0;
  bool ignores = false;
  double* value = nullptr;
  double tolerance = 0;    // for the sum of a distribution
  double* of_map[4] = {};  // gradients in the parameters of the loss's map
};

// A measure. in: one distribution or two; out, second: gradients in them, or nothing.
template <class Op>
struct MeasureCall : Call<Op> {
  Rows second = {};
  bool one_for_all = false;  // the second distribution has one row
  double* value = nullptr;
  double tolerance = 0;               // of a distribution's sum
  double bound = 0, below_bound = 0;  // upper bound of the value, and the largest stored number up to it
};

// A step of a chain.
struct ChainStep {
  enum Kind : int {
    temperature,
    top_k,
    top_p,
    min_p,
    typical_p,
    entropy,
    entropy_clip,
    epsilon,
    eta,
    top_n_sigma,
    top_h,
    p_less
  };
  Kind kind;
  double first, second;
  std::int64_t count;
};

// Draws, or the distribution after the steps (out), or both. The noise is that of isentropic::Noise; a number on the device, if
// given, replaces the number here.
struct SampleCall : Call<Sample> {
  static constexpr int kMostSteps = 16;
  ChainStep step[kMostSteps] = {};
  int steps = 0;
  std::uint64_t seed = 0, stream = 0, position = 0;
  const std::uint64_t *streams = nullptr, *positions = nullptr, *seed_at = nullptr, *position_at = nullptr;
  std::int64_t* indices = nullptr;
  std::size_t indices_stride = 0, draws = 0;
  bool hard = false;  // out is 1 at the drawn index
};

// The threads of a row: the number of blocks in a cluster and of threads in a block; and the number of rows, if a block has
// several.
struct Shape {
  unsigned blocks, threads, rows;
};

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// What a call hands to a kernel: numbers and addresses. Host and device read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "entropic/describe.h"
#include "entropic/sampling.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

// What rows hold in memory: numbers as they are worked on, or 16 bits of float.
enum class Stored : int { as_worked_on, float16, bfloat16 };

// Rows in device memory.
struct Rows {
  void* data = nullptr;
  std::size_t stride = 0;
  Stored stored = Stored::as_worked_on;
};

// One address for each parameter of Op, null where there is nothing.
template <class Op, class T>
struct ForParams {
  static constexpr std::size_t kCount = std::tuple_size_v<decltype(Op::kParams)>;
  T* of[kCount] = {};
};

// An operation on rows: inputs, output, what else it gives for each row, and a team's share of working memory.
template <class Op>
struct Call {
  Op op;
  std::size_t rows, cols;
  Rows in[3], out;
  ForParams<Op, const double> per_row = {};
  ForParams<Op, double> slopes = {};
  double *gamma = nullptr, *entropy = nullptr;
  int* status = nullptr;
  std::uint8_t* memory = nullptr;
  std::size_t memory_of_team = 0;
};

// A loss. in: x, what it is compared with or nothing, and p of the map that it starts from or nothing; out may be nothing.
template <class Op>
struct LossCall : Call<Op> {
  const std::int64_t* classes = nullptr;
  std::int64_t ignored = 0;
  bool ignores = false;
  double* value = nullptr;
  double tolerance = 0;    // of a distribution's sum
  double* of_map[4] = {};  // gradients in the parameters of the map that it starts from
};

// A measure. in: one distribution or two; out, second: gradients in them, or nothing.
template <class Op>
struct MeasureCall : Call<Op> {
  Rows second = {};
  bool one_for_all = false;  // the second distribution has one row
  double* value = nullptr;
  double tolerance = 0;               // of a distribution's sum
  double bound = 0, below_bound = 0;  // of the value, and the largest number that is stored up to it
};

// A step of a chain, as src/cuda/chain-inl.h takes it.
struct ChainStep {
  enum Kind : int { temperature, top_k, top_p, min_p, typical_p, entropy, entropy_clip };
  Kind kind;
  double first, second;
  std::int64_t count;
};

// Draws, or the distribution that steps leave (out), or both. Noise as entropic::Noise says; what is read on the device takes
// the place of a number.
struct SampleCall : Call<Sample> {
  static constexpr int kMostSteps = 16;
  ChainStep step[kMostSteps] = {};
  int steps = 0;
  std::uint64_t seed = 0, stream = 0, position = 0;
  const std::uint64_t *streams = nullptr, *seed_at = nullptr, *position_at = nullptr;
  std::int64_t* indices = nullptr;
  std::size_t indices_stride = 0, draws = 0;
  bool hard = false;  // out is 1 at what is drawn
};

// Which threads have a row: so many blocks of a cluster with so many threads each; rows, where a block has several.
struct Shape {
  unsigned blocks, threads, rows;
  constexpr unsigned teams_per_cluster() const { return rows; }
};

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

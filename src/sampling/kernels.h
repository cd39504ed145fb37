// What the targets' part of sampling offers to the dispatching part, for one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "entropic/sampling.h"
#include "src/sampling/philox.h"

namespace entropic::inline ENTROPIC_ABI {

// How many numbers of working memory a row takes: scores and indices that are packed, maxima of blocks, and 3 n + 64 of the
// searches.
constexpr std::size_t sampling_memory(std::size_t n) { return 5 * n + n / 64 + 256; }

template <class T>
struct SamplingKernels {
  // indices[c] is the draw at position + c.
  void (*draw)(std::span<const Step>, const T* x, std::size_t n, std::uint64_t seed, std::uint64_t stream,
               std::uint64_t position, std::int64_t* indices, std::size_t count, double* memory);
  void (*probs)(std::span<const Step>, const T* x, std::size_t n, T* p, double* memory);
  // y = x - max x + G. x may be null for G alone.
  void (*add_noise)(const T* x, std::size_t n, NoiseKey, T* y);
};

}  // namespace entropic::inline ENTROPIC_ABI

// The interface between the kernels of sampling and the code that dispatches them, for one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isentropic/sampling.h"
#include "src/sampling/philox.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class T>
struct SamplingKernels {
  // indices[c] is the draw at position + c.
  void (*draw)(std::span<const Step>, const T* x, std::size_t n, std::uint64_t seed, std::uint64_t stream,
               std::uint64_t position, std::int64_t* indices, std::size_t count, Arena memory);
  void (*probs)(std::span<const Step>, const T* x, std::size_t n, T* p, Arena memory);
  // Bytes of memory that these need for a row of n.
  std::size_t (*memory)(std::size_t n);
  // y = x - max x + G. x may be null for only G.
  void (*add_noise)(const T* x, std::size_t n, NoiseKey, T* y);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

// The interface between the kernels of sampling and the code that dispatches them, for one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isentropic/sampling.h"
#include "src/sampling/philox.h"
#include "src/sampling/row_text.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class T>
struct SamplingKernels {
  // indices[c] is the draw at position + c; bound, if given, gets mirostat's after them, and p the distribution that was drawn
  // from, or the last of them.
  void (*draw)(std::span<const Step>, const T* x, std::size_t n, std::uint64_t seed, std::uint64_t stream,
               std::uint64_t position, std::int64_t* indices, std::size_t count, const RowText& text, double* bound, T* p,
               Arena memory);
  // Draws without replacement, at one position; -1 where nothing is left.
  void (*draw_different)(std::span<const Step>, const T* x, std::size_t n, NoiseKey, std::int64_t* indices, std::size_t count,
                         Arena memory);
  void (*probs)(std::span<const Step>, const T* x, std::size_t n, const RowText& text, bool logarithm, T* p, Arena memory);
  // Bytes of memory that these need for a row of n.
  std::size_t (*memory)(std::size_t n);
  std::size_t (*memory_of_different)(std::size_t n, std::size_t count);
  // y = x - max x + G. x may be null for only G.
  void (*add_noise)(const T* x, std::size_t n, NoiseKey, T* y);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

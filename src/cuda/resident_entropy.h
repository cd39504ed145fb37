// entropy_normalize and entropy_clip of rows that stay in registers.
#pragma once

#include "src/cuda/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// The bytes that launch_entropy needs of a call's workspace.
std::size_t memory_of_entropy(std::size_t rows, std::size_t n);

// Launches kernels for all rows if there are some for them. They take their bytes from the beginning of call.memory, and
// call.done then says which rows have their result: an exceptional one is left to MapKernel.
void launch_entropy(Call<EntropyNormalize>& call, Stream stream);
void launch_entropy(Call<EntropyClip>& call, Stream stream);

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// sparsemax and entmax of rows that stay in registers.
#pragma once

#include "src/cuda/kernels.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

// The number of teams that take the rows; 0 if rows of n do not stay in registers.
std::size_t teams_of_sparse(std::size_t rows, std::size_t n);

// Launches a kernel for all rows, and returns whether there is one. Each team has call.memory_of_team bytes, as TeamMemory
// says.
bool launch_sparse(const Call<Sparsemax>& call, Stream stream);
bool launch_sparse(const Call<Entmax>& call, Stream stream);

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

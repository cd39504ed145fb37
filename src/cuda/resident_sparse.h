// sparsemax and entmax of rows that stay in registers.
#pragma once

#include "src/cuda/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// The bytes that launch_sparse needs of a call's workspace if each team has of_team; 0 if rows of n do not stay in registers.
std::size_t memory_of_sparse(std::size_t rows, std::size_t n, std::size_t of_team);

// Launches kernels for all rows, and returns whether there are some. Each team has call.memory_of_team bytes, as TeamBytes
// says.
bool launch_sparse(const Call<Sparsemax>& call, Stream stream);
bool launch_sparse(const Call<Entmax>& call, Stream stream);

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// jsd_loss of rows that stay in shared memory.
#pragma once

#include "src/cuda/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// The bytes that launch_jsd needs of a call's workspace.
std::size_t memory_of_jsd(std::size_t rows, std::size_t n);

// Launches a kernel for all rows if there is one for them. It takes its bytes from the beginning of call.memory, and call.done
// then says which rows have their result: an exceptional one is left to LossKernel.
void launch_jsd(LossCall<JsdLoss>& call, Stream stream);

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// Turns an error of the CUDA runtime into an exception.

#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

#include "src/cuda/kernels.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

void check_launch(int error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // otherwise the next call would report it again
  std::string message = "cuda: ";
  // Without a driver the runtime says that the driver is too old.
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) message += "there is no CUDA device that can be used: ";
  throw std::runtime_error(message + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

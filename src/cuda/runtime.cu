// What the host asks of the CUDA runtime beside launches: errors as exceptions, and numbers from the device.

#ifdef __CUDACC__
#include <stdexcept>
#include <string>

#include <cuda_runtime.h>
#else
#include <cstring>
#endif

#include "src/cuda/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

#ifdef __CUDACC__

void check_launch(int error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // otherwise the next call would report it again
  std::string message = "cuda: ";
  // Without a driver the runtime says that the driver is too old.
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver)
    message += "there is no CUDA device that can be used: ";
  throw std::runtime_error(message + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

void copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream) {
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  check_launch(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handle));
  check_launch(cudaStreamSynchronize(handle));
}

#else

void copy_to_host(void* to, const void* from, std::size_t bytes, Stream /*stream*/) { std::memcpy(to, from, bytes); }

#endif

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

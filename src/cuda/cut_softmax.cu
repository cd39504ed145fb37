// Kernels of softmax after truncation.

#include "src/cuda/launch.h"
#include "src/maps/cut_softmax-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template struct Kernels<TopKSoftmax, float>;
template struct Kernels<TopKSoftmax, double>;
template struct Kernels<TopPSoftmax, float>;
template struct Kernels<TopPSoftmax, double>;
template struct Kernels<MinPSoftmax, float>;
template struct Kernels<MinPSoftmax, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// Kernels of softmax after truncation for short rows.

#include "src/cuda/short_rows.h"
#include "src/maps/cut_softmax-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template struct ShortKernels<TopKSoftmax, float>;
template struct ShortKernels<TopKSoftmax, double>;
template struct ShortKernels<TopPSoftmax, float>;
template struct ShortKernels<TopPSoftmax, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

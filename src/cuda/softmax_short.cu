// Kernels of softmax for short rows.

#include "src/cuda/short_rows.h"
#include "src/maps/softmax-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template struct ShortKernels<Softmax, float>;
template struct ShortKernels<Softmax, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

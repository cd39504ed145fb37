// Kernels of softmax, sigsoftmax and taylor_softmax.

#include "src/cuda/launch.h"
#include "src/maps/sigsoftmax-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/maps/taylor_softmax-inl.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

template struct Kernels<Softmax, float>;
template struct Kernels<Softmax, double>;
template struct Kernels<SigSoftmax, float>;
template struct Kernels<SigSoftmax, double>;
template struct Kernels<TaylorSoftmax, float>;
template struct Kernels<TaylorSoftmax, double>;

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

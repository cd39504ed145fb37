// Kernels of softmax_loss against classes for short rows.

#define ISENTROPIC_ONE_THREAD

#include "src/cuda/losses-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template <class Op, class T>
void ShortLossKernels<Op, T>::run(LossCall<Op> call, Stream stream) {
  launch(HWY_NAMESPACE::LossKernel<Op, T, true>, call, true, stream);
}

template struct ShortLossKernels<SoftmaxLoss, float>;
template struct ShortLossKernels<SoftmaxLoss, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

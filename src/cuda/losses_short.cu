// Kernels of softmax_loss against classes for short rows.

#define ENTROPIC_ONE_THREAD

#include "src/cuda/losses-inl.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

template <class Op, class T>
void ShortLossKernels<Op, T>::run(LossCall<Op> call, Stream stream) {
  launch(HWY_NAMESPACE::LossKernel<Op, T, true>, call, true, stream);
}

template struct ShortLossKernels<SoftmaxLoss, float>;
template struct ShortLossKernels<SoftmaxLoss, double>;

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

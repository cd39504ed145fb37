// The kernels for short rows of an operation, for a file that instantiates them. One thread has a row there, see Team::IsOne.
#pragma once

#define ISENTROPIC_ONE_THREAD

#include "src/cuda/launch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template <class Op, class T>
void ShortKernels<Op, T>::map(Call<Op> call, Stream stream) {
  launch(HWY_NAMESPACE::MapKernel<Op, T, true>, call, true, stream);
}

template <class Op, class T>
void ShortKernels<Op, T>::vjp(Call<Op> call, Stream stream) {
  if constexpr (sizeof(T) == 4 || HWY_NAMESPACE::MapContract<Op, T>::kHasShortVjp)
    launch(HWY_NAMESPACE::VjpKernel<Op, T, true>, call, true, stream);
}

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

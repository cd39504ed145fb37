// The kernels of transport, compiled for every SIMD target, and the choice of one.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/transport/kernels.cc"
#include "src/transport/kernels.h"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/transport/scan-inl.h"
#include "src/transport/sinkhorn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
TransportKernels<T> Transport() {
  return {LeastSum<T>,     FindSum<T>, SumsBelow<T>, Price,          ColumnMinima<T>, LargestSize<T>,
          Exponentials<T>, Accumulate, FourProducts, AccumulateFour, FindInvalid<T>};
}

ISENTROPIC_KERNELS(Transport);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isentropic::inline ISENTROPIC_ABI {

ISENTROPIC_KERNELS_BY(transport_kernels, Transport);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

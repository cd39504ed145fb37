// The maps of double, for every SIMD target. A file of its own, since it takes minutes to compile.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/double.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Highway's tables hold functions, not templates.
MapKernels<double> KernelsOfDouble() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace entropic::inline ENTROPIC_ABI {

HWY_EXPORT(KernelsOfDouble);

template <>
MapKernels<double> map_kernels() {
  return HWY_DYNAMIC_DISPATCH(KernelsOfDouble)();
}

}  // namespace entropic::inline ENTROPIC_ABI

#endif  // HWY_ONCE

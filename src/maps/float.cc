// The maps of float, for every SIMD target. A file of its own, since it takes minutes to compile.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/float.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Highway's tables hold functions, not templates.
MapKernels<float> KernelsOfFloat() { return Kernels<float>(); }

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace entropic::inline ENTROPIC_ABI {

HWY_EXPORT(KernelsOfFloat);

template <>
MapKernels<float> map_kernels() {
  return HWY_DYNAMIC_DISPATCH(KernelsOfFloat)();
}

}  // namespace entropic::inline ENTROPIC_ABI

#endif  // HWY_ONCE

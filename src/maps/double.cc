// The maps of double, for every SIMD target. It is a separate file because it takes minutes to compile.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/double.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/maps/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS_OF(MakeMaps, double);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isentropic::inline ISENTROPIC_ABI {

ISENTROPIC_KERNELS_BY_OF(map_kernels, MakeMaps, double);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

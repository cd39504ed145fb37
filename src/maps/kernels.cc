// The table of the maps' kernels, for every SIMD target. The files of the maps compile them.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/kernels.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/maps/all-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS(MakeMaps);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isentropic::inline ISENTROPIC_ABI {

ISENTROPIC_KERNELS_BY(map_kernels, MakeMaps);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

// Compiles entropy_normalize and entropy_clip.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/entropy_normalize.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/entropy_normalize-inl.h"
#include "src/maps/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// softmax.cc compiles these.
extern template struct KernelsOf<Softmax, float>;
extern template struct KernelsOf<Softmax, double>;
ISENTROPIC_COMPILE_MAP(EntropyNormalize);
ISENTROPIC_COMPILE_MAP(EntropyClip);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// Compiles perturb_max, also with the caller's noise.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/perturb_max.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/perturb_max-inl.h"
#include "src/maps/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// softmax.cc compiles these.
extern template struct KernelsOf<Softmax, float>;
extern template struct KernelsOf<Softmax, double>;
ISENTROPIC_COMPILE_MAP(PerturbMax);
ISENTROPIC_COMPILE_MAP(CustomPerturbMax);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

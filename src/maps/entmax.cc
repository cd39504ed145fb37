// Compiles sparsemax and entmax.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/entmax.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/entmax-inl.h"
#include "src/maps/rows-inl.h"
#include "src/maps/sparsemax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// softmax.cc compiles these.
extern template struct KernelsOf<Softmax, float>;
extern template struct KernelsOf<Softmax, double>;
ISENTROPIC_COMPILE_MAP(Sparsemax);
ISENTROPIC_COMPILE_MAP(Entmax);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

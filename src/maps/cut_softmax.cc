// Compiles top_k_softmax, top_p_softmax, min_p_softmax and soft_top_k.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/cut_softmax.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/cut_softmax-inl.h"
#include "src/maps/rows-inl.h"
#include "src/maps/soft_top_k-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// softmax.cc compiles these.
extern template struct KernelsOf<Softmax, float>;
extern template struct KernelsOf<Softmax, double>;
ISENTROPIC_COMPILE_MAP(TopKSoftmax);
ISENTROPIC_COMPILE_MAP(TopPSoftmax);
ISENTROPIC_COMPILE_MAP(MinPSoftmax);
template struct CompiledSelection<float>;
template struct CompiledSelection<double>;

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

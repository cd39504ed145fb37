// Compiles softmax, taylor_softmax, sigsoftmax, log_softmax and logsumexp.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/softmax.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/log_rows-inl.h"
#include "src/maps/rows-inl.h"
#include "src/maps/sigsoftmax-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/maps/taylor_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template struct KernelsOf<Softmax, float>;
template struct KernelsOf<Softmax, double>;
ISENTROPIC_COMPILE_MAP(Softmax);
ISENTROPIC_COMPILE_MAP(TaylorSoftmax);
ISENTROPIC_COMPILE_MAP(SigSoftmax);
template struct CompiledLogs<float>;
template struct CompiledLogs<double>;

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// Kernels of perturb_max for short rows.

#include "src/cuda/short_rows.h"
#include "src/maps/perturb_max-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template struct ShortKernels<PerturbMax, float>;
template struct ShortKernels<PerturbMax, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

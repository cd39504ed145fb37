// Kernels of perturb_max.

#include "src/cuda/launch.h"
#include "src/maps/perturb_max-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template struct Kernels<PerturbMax, float>;
template struct Kernels<PerturbMax, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

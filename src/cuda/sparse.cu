// Kernels of sparsemax and entmax.

#include "src/cuda/launch.h"
#include "src/maps/entmax-inl.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

template struct Kernels<Sparsemax, float>;
template struct Kernels<Sparsemax, double>;
template struct Kernels<Entmax, float>;
template struct Kernels<Entmax, double>;

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

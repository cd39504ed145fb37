// Kernels of entropy_normalize and entropy_clip for short rows.

#include "src/cuda/short_rows.h"
#include "src/maps/entropy_normalize-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template struct ShortKernels<EntropyNormalize, float>;
template struct ShortKernels<EntropyClip, float>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// Kernels of entropy_normalize and entropy_clip.

#include "src/cuda/launch.h"
#include "src/maps/entropy_normalize-inl.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

template struct Kernels<EntropyNormalize, float>;
template struct Kernels<EntropyNormalize, double>;
template struct Kernels<EntropyClip, float>;
template struct Kernels<EntropyClip, double>;

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

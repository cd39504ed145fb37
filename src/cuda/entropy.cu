// Kernels of entropy_normalize and entropy_clip.

#include "src/cuda/launch.h"
#include "src/cuda/resident_entropy.h"
#include "src/maps/entropy_normalize-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template <>
std::size_t Kernels<EntropyNormalize, float>::memory(std::size_t rows, std::size_t n) {
  return memory_of_entropy(rows, n) + memory_of_map<EntropyNormalize, float>(rows, n);
}
template <>
std::size_t Kernels<EntropyClip, float>::memory(std::size_t rows, std::size_t n) {
  return memory_of_entropy(rows, n) + memory_of_map<EntropyClip, float>(rows, n);
}
template <>
void Kernels<EntropyNormalize, float>::map(Call<EntropyNormalize> call, Stream stream) {
  launch_entropy(call, stream);
  launch_map<EntropyNormalize, float>(call, stream);
}
template <>
void Kernels<EntropyClip, float>::map(Call<EntropyClip> call, Stream stream) {
  launch_entropy(call, stream);
  launch_map<EntropyClip, float>(call, stream);
}

template struct Kernels<EntropyNormalize, float>;
template struct Kernels<EntropyNormalize, double>;
template struct Kernels<EntropyClip, float>;
template struct Kernels<EntropyClip, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

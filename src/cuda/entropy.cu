// Kernels of entropy_normalize and entropy_clip.

#include "src/cuda/launch.h"
#include "src/cuda/resident_entropy.h"
#include "src/maps/entropy_normalize-inl.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

// The workspace has the bytes of launch_entropy, and behind them those of the teams.
template <class Op>
std::size_t entropy_memory(std::size_t rows, std::size_t n) {
  using namespace HWY_NAMESPACE;
  const std::size_t team = TeamMemory<Op, float>(n);
  const std::size_t teams = SideBySide<Op, float>(n)
                                ? std::max(memory_of_grid(rows, n, team, true), memory_of_grid(rows, n, team, false))
                                : memory_of_grid(rows, n, team, false);
  return memory_of_entropy(rows, n) + teams;
}
template <>
std::size_t Kernels<EntropyNormalize, float>::memory(std::size_t rows, std::size_t n) {
  return entropy_memory<EntropyNormalize>(rows, n);
}
template <>
std::size_t Kernels<EntropyClip, float>::memory(std::size_t rows, std::size_t n) {
  return entropy_memory<EntropyClip>(rows, n);
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
}  // namespace entropic::inline ENTROPIC_ABI

// Kernels of sparsemax and entmax.

#include <algorithm>

#include "src/cuda/launch.h"
#include "src/cuda/resident_sparse.h"
#include "src/maps/entmax-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template <class Op>
std::size_t sparse_memory(std::size_t rows, std::size_t n) {
  return std::max(memory_of_map<Op, float>(rows, n), memory_of_sparse(rows, n, HWY_NAMESPACE::TeamBytes<Op, float>(n)));
}
template <>
std::size_t Kernels<Sparsemax, float>::memory(std::size_t rows, std::size_t n) {
  return sparse_memory<Sparsemax>(rows, n);
}
template <>
std::size_t Kernels<Entmax, float>::memory(std::size_t rows, std::size_t n) {
  return sparse_memory<Entmax>(rows, n);
}

template <class Op>
void map_sparse(Call<Op> call, Stream stream) {
  call.memory_of_team = HWY_NAMESPACE::TeamBytes<Op, float>(call.cols);
  if (!launch_sparse(call, stream)) launch_map<Op, float>(call, stream);
}
template <>
void Kernels<Sparsemax, float>::map(Call<Sparsemax> call, Stream stream) {
  map_sparse(call, stream);
}
template <>
void Kernels<Entmax, float>::map(Call<Entmax> call, Stream stream) {
  map_sparse(call, stream);
}

template struct Kernels<Sparsemax, float>;
template struct Kernels<Sparsemax, double>;
template struct Kernels<Entmax, float>;
template struct Kernels<Entmax, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// From a call to a grid of threads: by nvcc on a device, by other compilers on the host (emulate.h).
#pragma once

#include "src/cuda/kernels.h"
#include "src/cuda/rows-inl.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

// The threads of a row. They depend only on n, and no bit of a result depends on them.
inline Shape shape_of(std::size_t n, bool side_by_side) {
#ifndef __CUDACC__
  if (forced_shape.threads > 0 && !side_by_side) return forced_shape;
#endif
  if (side_by_side) return {1, 1, 128};
  if (n <= 1024) return {1, 32, 4};
  if (n <= 16384) return {1, 256, 1};
#ifdef __CUDACC__
  int device = 0, major = 0;
  check_launch(cudaGetDevice(&device));
  check_launch(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major < 9) return {1, 256, 1};  // without clusters
#endif
  return {8, 256, 1};
}

// The number of clusters of a grid, or of blocks if a team has at most a block. A grid has as many teams as a large device runs
// at once; each team takes further rows.
inline std::size_t clusters_of(const Shape& shape, std::size_t rows) {
  constexpr std::size_t kThreads = std::size_t{1} << 18;
  const std::size_t most = kThreads / (shape.threads == 1 ? 4 * shape.rows : shape.blocks * shape.threads * shape.rows);
  const std::size_t wanted = (rows + shape.rows - 1) / shape.rows;
  return wanted < most ? wanted : most;
}

inline std::size_t memory_of_grid(std::size_t rows, std::size_t n, std::size_t of_team, bool side_by_side) {
  const Shape shape = shape_of(n, side_by_side);
  return clusters_of(shape, rows) * shape.rows * of_team;
}

// `more`: the kernel's further arguments after the call.
template <class AnyCall, class... More>
void launch(void (*kernel)(AnyCall, More...), const AnyCall& call, bool side_by_side, Stream stream, More... more) {
  if (call.rows == 0 || call.cols == 0) return;
  using Memory = HWY_NAMESPACE::Team::Memory;
  const Shape shape = shape_of(call.cols, side_by_side);
  const unsigned blocks = static_cast<unsigned>(clusters_of(shape, call.rows)) * shape.blocks;
  const std::size_t shared = shape.threads > 32 ? sizeof(Memory) : 0;
#ifdef __CUDACC__
  if (shared > 0) {
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(shape.threads, shape.rows);
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = shape.blocks, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = shape.blocks > 1;
  check_launch(cudaLaunchKernelEx(&config, kernel, call, more...));
#else
  (void)stream;
  entropic_emulate::launch(blocks, {shape.threads, shape.rows}, shape.blocks, shared, [&] { kernel(call, more...); });
#endif
}

}  // namespace cuda

namespace HWY_NAMESPACE {

template <class Op, class T, bool kShort>
__global__ void __launch_bounds__(256) MapKernel(cuda::Call<Op> call) {
  MapTeamRows<Op, T, kShort>(call);
}
template <class Op, class T, bool kShort>
__global__ void __launch_bounds__(256) VjpKernel(cuda::Call<Op> call) {
  VjpTeamRows<Op, T, kShort>(call);
}

// Whether one thread has a row of n. These are the rows that the host's kernels process side by side.
template <class Op, class T>
bool SideBySide(size_t n) {
  if constexpr (MapContract<Op, T>::kHasShort) return n <= ShortRows<T>::kLongest;
  return false;
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class Op, class T>
std::size_t Kernels<Op, T>::memory(std::size_t rows, std::size_t n) {
  using namespace HWY_NAMESPACE;
  // For some gradients a warp has a row even if it is short.
  const std::size_t team = TeamMemory<Op, T>(n), alone = memory_of_grid(rows, n, team, false);
  const std::size_t short_rows = SideBySide<Op, T>(n) ? memory_of_grid(rows, n, team, true) : 0;
  return alone > short_rows ? alone : short_rows;
}

template <class Op, class T>
void Kernels<Op, T>::map(Call<Op> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamMemory<Op, T>(call.cols);
  if constexpr (MapContract<Op, T>::kHasShort) {
    if (SideBySide<Op, T>(call.cols)) return ShortKernels<Op, T>::map(call, stream);
  }
  launch(MapKernel<Op, T, false>, call, false, stream);
}

// Rows that the host takes side by side have a thread each, and so have those whose 16-bit p is computed again, by the kernel
// that wrote it; otherwise a warp or more has a row.
template <class Op, class T>
void Kernels<Op, T>::vjp(Call<Op> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamMemory<Op, T>(call.cols);
  constexpr bool kBeside = MapContract<Op, T>::kHasShortVjp;
  if constexpr (kBeside || (MapContract<Op, T>::kHasShort && sizeof(T) == 4)) {
    if (SideBySide<Op, T>(call.cols) && (kBeside || call.in[1].stored != Stored::as_worked_on)) {
      return ShortKernels<Op, T>::vjp(call, stream);
    }
  }
  launch(VjpKernel<Op, T, false>, call, false, stream);
}

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

// From a call to a grid of threads: by nvcc on a device, by other compilers on the host (emulate.h).
#pragma once

#include <algorithm>

#include "src/cuda/kernels.h"
#include "src/cuda/rows-inl.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

#ifdef __CUDACC__
inline int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check_launch(cudaGetDevice(&device));
  check_launch(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}
// From Hopper on.
inline bool has_clusters() { return attribute_of_device(cudaDevAttrComputeCapabilityMajor) >= 9; }
// The shared memory that a block of `threads` can have, so that a multiprocessor has 512 threads.
inline std::size_t shared_memory_of(unsigned threads) {
  constexpr int kReserved = 1024;
  const int most = attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const int all = attribute_of_device(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const int blocks = threads >= 512 ? 1 : 512 / static_cast<int>(threads);
  return static_cast<std::size_t>(std::min(most, all / blocks - kReserved));
}
#else
inline bool has_clusters() { return true; }
inline std::size_t shared_memory_of(unsigned threads) {
  return threads >= 512 ? shared_at_most : (shared_at_most + 1024) / (512 / threads) - 1024;
}
#endif

inline constexpr std::size_t kLongestInBlock = 49152;  // longer rows have no room in a block's shared memory

// The threads of a row; no bit of a result depends on them. With fewer threads a row takes longer, but more rows are under way,
// and one goes on while another waits: so rows have fewer if there are many. A cluster's threads wait longer for each other
// than a block's, and have no shared memory for arrays. So a cluster has long rows only where they are few.
inline Shape shape_of(std::size_t rows, std::size_t n, bool side_by_side) {
#ifndef __CUDACC__
  if (forced_shape.threads > 0 && !side_by_side) return forced_shape;
#endif
  constexpr std::size_t kManyRows = 96;  // their blocks keep most of the 132 multiprocessors of a large device busy
  if (side_by_side) return {1, 1, 128};
  if (n <= 1024) return {1, 32, 4};
  if (n <= 8192 && rows >= 4 * kManyRows) return {1, n <= 2048 ? 64u : 128u, 1};
  if (n <= 16384) return {1, 256, 1};
  if (n <= kLongestInBlock || rows >= kManyRows || !has_clusters()) return {1, 512, 1};
  return {8, 256, 1};
}

// The number of clusters of a grid, or of blocks if a team has at most a block. A grid has as many teams as a large device
// runs at once; each team takes further rows. Kernels of blocks have so many registers that half of the threads run at
// once.
inline std::size_t clusters_of(const Shape& shape, std::size_t rows) {
  const std::size_t threads = shape.threads > 32 ? threads_at_once / 2 : threads_at_once;
  const std::size_t most = shape.threads == 1 ? 512 : threads / (shape.blocks * shape.threads * shape.rows);
  const std::size_t wanted = (rows + shape.rows - 1) / shape.rows;
  return wanted < most ? wanted : most;
}

inline std::size_t memory_of_grid(const Shape& shape, std::size_t rows, std::size_t of_team) {
  return clusters_of(shape, rows) * shape.rows * of_team;
}
inline std::size_t memory_of_grid(std::size_t rows, std::size_t n, std::size_t of_team, bool side_by_side) {
  return memory_of_grid(shape_of(rows, n, side_by_side), rows, of_team);
}

// The bytes of shared memory of a block of a team of at least a block. If the team is a block, it has room for arrays of a row.
inline std::size_t shared_bytes_of(const Shape& shape, std::size_t memory_of_team, std::size_t n) {
  using HWY_NAMESPACE::Team;
  if (shape.threads <= 32) return 0;
  constexpr std::size_t kNearOfLong = std::size_t{16} << 10;
  const std::size_t own = offsetof(Team::Memory, partial) + Team::PartialBytes(shape.blocks * shape.threads / 32);
  if (shape.blocks > 1) return own;
  // Most operations use less than half of their memory at once; what has no room is elsewhere. If the row has no room, the rest
  // of the memory is better used as the first level of cache, which has the threads' stacks.
  const std::size_t most = shared_memory_of(shape.threads), near = most > own ? most - own : 0;
  const std::size_t room = n > kLongestInBlock ? std::min(near, kNearOfLong) : near;
  const std::size_t wanted = (memory_of_team / 2 + 127) / 128 * 128;
  return own + (wanted < room ? wanted : room);
}

// The call of `count` rows from `first` on, of a map in float32 without results for each row.
template <class AnyCall>
AnyCall some_rows(const AnyCall& call, std::size_t first, std::size_t count) {
  AnyCall part = call;
  part.rows = count;
  for (Rows* rows : {&part.in[0], &part.out}) {
    const std::size_t bytes = rows->stored == Stored::as_worked_on ? sizeof(float) : sizeof(float16);
    rows->data = static_cast<std::uint8_t*>(rows->data) + first * rows->stride * bytes;
  }
  for (const double*& values : part.per_row.of) values += values == nullptr ? 0 : first;
  return part;
}

// `more`: the kernel's further arguments after the call.
template <class AnyCall, class... More>
void launch_as(const Shape& shape, std::size_t clusters, std::size_t shared, void (*kernel)(AnyCall, More...),
               const AnyCall& call, Stream stream, More... more) {
  if (call.rows == 0 || call.cols == 0) return;
  const unsigned blocks = static_cast<unsigned>(clusters) * shape.blocks;
#ifdef __CUDACC__
  if (shared > 0) {
    // The same limit in every call, since another thread of the host may set it before this one launches.
    const int most = attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
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
  isentropic_emulate::launch(blocks, {shape.threads, shape.rows}, shape.blocks, shared, [&] { kernel(call, more...); });
#endif
}

// The threads of a row for draws: they read a row once, then look at a few scores, again and again. A cluster would wait for
// its blocks most of the time.
inline Shape draw_shape(std::size_t rows, std::size_t n) {
  const Shape shape = shape_of(rows, n, false);
#ifndef __CUDACC__
  if (forced_shape.threads > 0) return shape;
#endif
  if (n <= 1024) return shape;
  if (n <= 16384) return {1, rows >= 528 ? 64u : 256u, 1};
  return {1, rows >= 192 ? 256u : 512u, 1};
}

template <class AnyCall, class... More>
void launch(void (*kernel)(AnyCall, More...), const AnyCall& call, bool side_by_side, Stream stream, More... more) {
  const Shape shape = shape_of(call.rows, call.cols, side_by_side);
  launch_as(shape, clusters_of(shape, call.rows), shared_bytes_of(shape, call.memory_of_team, call.cols), kernel, call, stream,
            more...);
}

}  // namespace cuda

namespace HWY_NAMESPACE {

// The launch bounds say that one block of 512 threads on a multiprocessor is enough. Without them ptxas limits some kernels to
// 64 registers, half of what there is, and they spill thousands of bytes.
template <class Op, class T, bool kShort>
__global__ void __launch_bounds__(kShort ? 128 : 512, 1) MapKernel(const __grid_constant__ cuda::Call<Op> call) {
  MapTeamRows<Op, T, kShort>(call);
}
template <class Op, class T, bool kShort>
__global__ void __launch_bounds__(kShort ? 128 : 512, 1) VjpKernel(const __grid_constant__ cuda::Call<Op> call) {
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

// The workspace of MapKernel and VjpKernel.
template <class Op, class T>
std::size_t memory_of_map(std::size_t rows, std::size_t n) {
  using namespace HWY_NAMESPACE;
  // For some gradients a warp has a row even if it is short.
  const std::size_t team = TeamBytes<Op, T>(n), alone = memory_of_grid(rows, n, team, false);
  const std::size_t short_rows = SideBySide<Op, T>(n) ? memory_of_grid(rows, n, team, true) : 0;
  return alone > short_rows ? alone : short_rows;
}

template <class Op, class T>
std::size_t Kernels<Op, T>::memory(std::size_t rows, std::size_t n) {
  return memory_of_map<Op, T>(rows, n);
}

template <class Op, class T>
void launch_map(Call<Op> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamBytes<Op, T>(call.cols);
  if constexpr (MapContract<Op, T>::kHasShort) {
    if (SideBySide<Op, T>(call.cols)) return ShortKernels<Op, T>::map(call, stream);
  }
  launch(MapKernel<Op, T, false>, call, false, stream);
}

template <class Op, class T>
void Kernels<Op, T>::map(Call<Op> call, Stream stream) {
  launch_map<Op, T>(call, stream);
}

// Rows that the host takes side by side have a thread each, and so have those whose 16-bit p is computed again, by the kernel
// that wrote it; otherwise a warp or more has a row.
template <class Op, class T>
void Kernels<Op, T>::vjp(Call<Op> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamBytes<Op, T>(call.cols);
  constexpr bool kBeside = MapContract<Op, T>::kHasShortVjp;
  if constexpr (kBeside || (MapContract<Op, T>::kHasShort && sizeof(T) == 4)) {
    if (SideBySide<Op, T>(call.cols) && (kBeside || call.in[1].stored != Stored::as_worked_on)) {
      return ShortKernels<Op, T>::vjp(call, stream);
    }
  }
  launch(VjpKernel<Op, T, false>, call, false, stream);
}

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

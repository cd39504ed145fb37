// The grid of a device on the host, for tests.
#pragma once

#define ISENTROPIC_UNROLL
#define ISENTROPIC_ROLLED

#include "src/device/emulate.h"
#include "src/device/team_memory.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct Grid : TeamMemory {
  static unsigned Blocks() { return isentropic_emulate::cluster_size(); }
  static unsigned BlockRank() { return isentropic_emulate::block_rank(); }
  static Memory& Shared() {
    return *reinterpret_cast<Memory*>(isentropic_emulate::cluster().shared[isentropic_emulate::block_rank()].get());
  }
  static size_t SharedBytes() { return isentropic_emulate::device.shared_bytes; }
  template <class T>
  static T* In(unsigned block, T* at) {
    if (block != BlockRank()) isentropic_emulate::require_all_begun();
    const auto& shared = isentropic_emulate::cluster().shared;
    return reinterpret_cast<T*>(shared[block].get() + (reinterpret_cast<char*>(at) - shared[BlockRank()].get()));
  }

  static HWY_INLINE bool IsOne() { return Threads() == 1; }
  static HWY_INLINE bool IsNarrow() { return isentropic_emulate::cluster().narrow[isentropic_emulate::block_rank()]; }
  static HWY_INLINE void SetNarrow(bool narrow) {
    isentropic_emulate::cluster().narrow[isentropic_emulate::block_rank()] = narrow;
  }
  static HWY_INLINE unsigned Thread() { return threadIdx.x; }
  static HWY_INLINE unsigned BlockThreads() { return blockDim.x; }
  static HWY_INLINE unsigned Threads() { return IsNarrow() ? 32 : blockDim.x; }
  static HWY_INLINE size_t Number() { return size_t{blockIdx.x} / Blocks() * blockDim.y + threadIdx.y; }
  static HWY_INLINE size_t Teams() { return size_t{gridDim.x} / Blocks() * blockDim.y; }

  static HWY_INLINE void WarpBarrier() { __syncwarp(); }
  static void BlockBarrier() { __syncthreads(); }
  static void Barrier() {
    if (blockDim.x == 1) return;
    if (Blocks() > 1) return isentropic_emulate::meet(isentropic_emulate::Wait::cluster);
    Threads() == 32 ? __syncwarp() : __syncthreads();
  }
  static HWY_INLINE void BeginCluster() { isentropic_emulate::wait(isentropic_emulate::Wait::cluster); }

  template <class T>
  static HWY_INLINE T FromLane(T value, unsigned lane) {
    return __shfl_sync(kAll, value, lane);
  }
  template <class T>
  static HWY_INLINE T FromXor(T value, unsigned mask) {
    return __shfl_xor_sync(kAll, value, mask);
  }
  static HWY_INLINE unsigned Ballot(bool set) { return __ballot_sync(kAll, set); }
  static HWY_INLINE unsigned Count(unsigned bits) { return static_cast<unsigned>(__popc(bits)); }

  static HWY_INLINE void Forget(float& /*value*/) {}

  static HWY_INLINE bool CountTo(unsigned* number, unsigned all) {
    isentropic_emulate::tell(number);
    const unsigned before = __atomic_fetch_add(number, 1u, __ATOMIC_RELAXED);
    isentropic_emulate::know(number);
    if (before + 1 == all) __atomic_store_n(number, 0u, __ATOMIC_RELAXED);
    return before + 1 == all;
  }
  static HWY_INLINE void Increment(unsigned* number) { __atomic_fetch_add(number, 1u, __ATOMIC_RELAXED); }
  static HWY_INLINE void RaiseTo(int* number, int value) {
    if (value > __atomic_load_n(number, __ATOMIC_RELAXED)) __atomic_store_n(number, value, __ATOMIC_RELAXED);
  }

  template <class T>
  static HWY_INLINE void CopyAhead(T* near, const T* from) {
    *near = *from;
  }
  static HWY_INLINE void AwaitCopies() {}
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI

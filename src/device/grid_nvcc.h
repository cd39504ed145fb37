// The grid of a GPU, in code that nvcc compiles for it.
#pragma once

#define ISENTROPIC_UNROLL _Pragma("unroll")
#define ISENTROPIC_ROLLED _Pragma("unroll 1")

#include <cooperative_groups.h>

#include "src/device/team_memory.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct Grid : TeamMemory {
  static HWY_INLINE unsigned Blocks() {
#if __CUDA_ARCH__ >= 900
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    return blocks;
#else
    return 1;
#endif
  }
  static HWY_INLINE unsigned BlockRank() {
#if __CUDA_ARCH__ >= 900
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
    return rank;
#else
    return 0;
#endif
  }
  static HWY_INLINE Memory& Shared() {
    extern __shared__ __align__(16) unsigned char isentropic_shared[];
    return *reinterpret_cast<Memory*>(isentropic_shared);
  }
  static HWY_INLINE unsigned SharedAddress(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }
  static HWY_INLINE unsigned SharedBytes() {
    unsigned bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes;
  }
  template <class T>
  static HWY_INLINE T* In(unsigned block, T* at) {
#if __CUDA_ARCH__ >= 900
    if (Blocks() > 1) return cooperative_groups::this_cluster().map_shared_rank(at, block);
#endif
    return at;
  }

  static HWY_INLINE bool IsOne() { return kOneThread; }
  static HWY_INLINE bool IsNarrow() { return kNarrows && Shared().narrow != 0; }
  static HWY_INLINE void SetNarrow(bool narrow) { Shared().narrow = narrow; }
  static HWY_INLINE unsigned Thread() { return threadIdx.x; }
  static HWY_INLINE unsigned BlockThreads() { return blockDim.x; }
  static HWY_INLINE unsigned Threads() { return IsNarrow() ? 32 : blockDim.x; }
  static HWY_INLINE size_t Number() { return size_t{blockIdx.x} / Blocks() * blockDim.y + threadIdx.y; }
  static HWY_INLINE size_t Teams() { return size_t{gridDim.x} / Blocks() * blockDim.y; }

  static HWY_INLINE void WarpBarrier() { __syncwarp(); }
  static HWY_INLINE void BlockBarrier() { __syncthreads(); }
  static HWY_INLINE void Barrier() {
    if (IsOne()) return;
    if (Threads() == 32) return __syncwarp();
#if __CUDA_ARCH__ >= 900
    if (Blocks() > 1) return cooperative_groups::this_cluster().sync();
#endif
    __syncthreads();
  }
  static HWY_INLINE void BeginCluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

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

  static HWY_INLINE void Forget(float& value) { asm volatile("" : "+f"(value)); }

  static HWY_INLINE bool CountTo(unsigned* number, unsigned all) {
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    const bool last = atomicInc(number, all - 1) == all - 1;
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    return last;
  }
  static HWY_INLINE void Increment(unsigned* number) { atomicAdd(number, 1u); }
  static HWY_INLINE void RaiseTo(int* number, int value) { atomicMax(number, value); }

  template <class T>
  static HWY_INLINE void CopyAhead(T* near, const T* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(SharedAddress(near)), "l"(__cvta_generic_to_global(from)),
                 "n"(sizeof(T))
                 : "memory");
  }
  static HWY_INLINE void AwaitCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI

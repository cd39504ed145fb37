// Exchanges of numbers between the blocks of a cluster.
#pragma once

#include "src/device/team.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// An exchange gives each block numbers of every block: block b's k-th is at [k Team::Blocks() + b]. The threads wait for these
// numbers alone: a barrier of the cluster would also wait for all that they have written to memory. Numbers stay until the next
// exchange but one; so other warps than the first must have read them at a barrier of the block before the next exchange. All
// threads of a block count the exchanges, or only its first warp has the object.
class Exchanges {
 public:
  // Comes before Team::Begin in every kernel with exchanges.
  static HWY_INLINE void Begin() {
    if (Team::Thread() > 0 || Team::Blocks() == 1) return;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    for (auto& barrier : Team::Shared().arrived) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Team::SharedAddress(&barrier)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
    for (auto& count : Team::Shared().arrived) __atomic_store_n(&count, 0ull, __ATOMIC_RELAXED);
#endif
  }

  // The numbers of each block's first warp, for all threads.
  template <size_t K>
  HWY_INLINE const double* Exchange(const double (&own)[K]) {
    const double* const numbers = Numbers();
    // If the other warps polled too, they would take issue slots from the warps of other rows.
    if (Team::Thread() < 32) {
      ExchangeInWarp(own);
    } else {
      ++count_;
    }
    Team::BlockBarrier();
    return numbers;
  }

  // Called by the first warp alone.
  template <size_t K>
  HWY_INLINE const double* ExchangeInWarp(const double (&own)[K]) {
    static_assert(K * 8 <= kMost);
    double* const numbers = Numbers();
    unsigned long long* const arrived = Team::Shared().arrived + count_ % 2;
    const unsigned thread = Team::Thread(), blocks = Team::Blocks();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const unsigned barrier = Team::SharedAddress(arrived);
    if (thread == 0) {
      asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(static_cast<unsigned>(sizeof(double) * K) * blocks)
                   : "memory");
    }
    if (thread < blocks) {
      ISENTROPIC_UNROLL
      for (size_t k = 0; k < K; ++k) {
        asm volatile(
            "{\n"
            ".reg .b32 number, barrier;\n"
            "mapa.shared::cluster.u32 number, %0, %2;\n"
            "mapa.shared::cluster.u32 barrier, %1, %2;\n"
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [number], %3, [barrier];\n"
            "}\n" ::"r"(Team::SharedAddress(numbers + k * blocks + Team::BlockRank())),
            "r"(barrier), "r"(thread), "l"(__double_as_longlong(own[k]))
            : "memory");
      }
    }
    // The numbers to wait for are in this block's shared memory. A wider acquire would invalidate the L1 cache, which holds the
    // threads' stacks.
    unsigned done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred done;\n"
          "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n"
          "selp.u32 %0, 1, 0, done;\n"
          "}\n"
          : "=r"(done)
          : "r"(barrier), "r"(count_ / 2 % 2)
          : "memory");
    }
#elif !defined(__CUDACC__)
    if (thread < blocks) {
      for (size_t k = 0; k < K; ++k) {
        isentropic_emulate::send(Team::In(thread, numbers + k * blocks + Team::BlockRank()), own[k], Team::In(thread, arrived),
                                 1);
      }
    }
    isentropic_emulate::wait_for(arrived, K * blocks);
    if (thread == 0) __atomic_store_n(arrived, 0ull, __ATOMIC_RELAXED);
#endif
    ++count_;
    return numbers;
  }

 private:
  static constexpr size_t kMost = Team::kMostSums * Team::kMostBlocks / 2;

  // Two exchanges take turns with the numbers and the barriers.
  HWY_INLINE double* Numbers() const { return Team::Shared().groups + kMost * (count_ % 2); }

  unsigned count_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI

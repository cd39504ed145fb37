// A grid of one thread, for nvcc's pass over the host's code: it has to compile there, and none of it runs.
#pragma once

#define ISENTROPIC_UNROLL
#define ISENTROPIC_ROLLED

#include "src/device/team_memory.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct Grid : TeamMemory {
  static HWY_INLINE unsigned Blocks() { return 1; }
  static HWY_INLINE unsigned BlockRank() { return 0; }
  static HWY_INLINE Memory& Shared() { return *static_cast<Memory*>(nullptr); }
  static HWY_INLINE size_t SharedBytes() { return 0; }
  template <class T>
  static HWY_INLINE T* In(unsigned, T* at) {
    return at;
  }

  static HWY_INLINE bool IsOne() { return kOneThread; }
  static HWY_INLINE bool IsNarrow() { return false; }
  static HWY_INLINE void SetNarrow(bool) {}
  static HWY_INLINE unsigned Thread() { return 0; }
  static HWY_INLINE unsigned BlockThreads() { return 1; }
  static HWY_INLINE unsigned Threads() { return 1; }
  static HWY_INLINE size_t Number() { return 0; }
  static HWY_INLINE size_t Teams() { return 1; }

  static HWY_INLINE void WarpBarrier() {}
  static HWY_INLINE void BlockBarrier() {}
  static HWY_INLINE void Barrier() {}
  static HWY_INLINE void BeginCluster() {}

  template <class T>
  static HWY_INLINE T FromLane(T value, unsigned) {
    return value;
  }
  template <class T>
  static HWY_INLINE T FromXor(T value, unsigned) {
    return value;
  }
  static HWY_INLINE unsigned Ballot(bool set) { return set; }
  static HWY_INLINE unsigned Count(unsigned bits) { return bits; }

  static HWY_INLINE void Forget(float&) {}

  static HWY_INLINE bool CountTo(unsigned* number, unsigned all) { return *number == all; }
  static HWY_INLINE void Increment(unsigned*) {}
  static HWY_INLINE void RaiseTo(int*, int) {}

  template <class T>
  static HWY_INLINE void CopyAhead(T*, const T*) {}
  static HWY_INLINE void AwaitCopies() {}
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI

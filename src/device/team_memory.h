// What a block of a team has in shared memory, and which teams the kernels of a file have.
#pragma once

#include <cstddef>

#include "isentropic/version.h"
#include "src/device/lane.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct TeamMemory {
  static constexpr unsigned kAll = 0xffffffff;
  static constexpr size_t kMostWarps = 64, kMostBlocks = 16, kMostSums = 8, kPartialBytes = 49152, kLeastPartialBytes = 16384;

  // The shared memory of a block, if a team has a block or more. A block gets PartialBytes of `partial`; if the team is a
  // block, the arrays of Near follow.
  struct Memory {
    double groups[kMostSums * kMostBlocks];
    unsigned long long folds[2 * kMostWarps];          // rows in registers have twice as many
    unsigned long long arrived[2];                     // barriers of exchanges
    unsigned narrow, counts[32];                       // of blocks that narrow to a warp
    alignas(16) unsigned char partial[kPartialBytes];  // results of warps, before they are summed
  };
  static constexpr HWY_INLINE size_t PartialBytes(size_t warps) {
    const size_t bytes = warps * (kPartialBytes / kMostWarps);
    return bytes < kLeastPartialBytes ? kLeastPartialBytes : bytes;
  }

  // What nvcc knows of a team when it compiles a file. Kernels for short rows, which one thread has, are in files of their own
  // that define ISENTROPIC_ONE_THREAD: so what the other kind of team needs takes neither registers nor stack, nor the
  // compiler's time. Files of which a kernel narrows a block to a warp define ISENTROPIC_NARROW.
#ifdef ISENTROPIC_ONE_THREAD
  static constexpr bool kOneThread = true;
#else
  static constexpr bool kOneThread = false;
#endif
#ifdef ISENTROPIC_NARROW
  static constexpr bool kNarrows = true;
#else
  static constexpr bool kNarrows = false;
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI

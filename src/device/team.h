// A team is the threads of one row: one thread, a warp, a block, or the blocks of a cluster. This file has the operations that
// a row's arithmetic needs of its team.
//
// A block's first dimension runs along the row; if a row has less than a block, the second one counts rows. All threads of a
// team call these functions together and get the same result. Unless a function says that it distributes the work, every thread
// does all of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isentropic/version.h"
#include "src/device/lane.h"

// Grid is what threads ask of the hardware. There are three of them, one for each place where this code is compiled, with the
// same functions; nothing else about a team depends on the place:
//
//   Blocks, BlockRank               the blocks of the team's cluster, and which of them this one is
//   Shared, SharedBytes             the block's shared memory
//   In(block, at)                   the address in another block's memory of `at` in this block's
//   IsOne                           whether one thread has a row
//   IsNarrow, SetNarrow             whether a block has become a warp: see Team::Narrow
//   Thread, Threads, BlockThreads   in this block along a row: the thread's number, the team's threads, and all
//   Number, Teams                   the number of this team in the grid, and how many there are
//   WarpBarrier, BlockBarrier, Barrier     of the warp, the block and the team
//   BeginCluster                    waits until all blocks of the cluster have begun
//   FromLane, FromXor, Ballot       values of the other threads of the warp
//   Count                           the number of bits that are set
//   Forget(value)                   the compiler forgets what it knows of a value, and so keeps nothing in registers that it
//                                   could calculate from it again
//   CountTo(number, all)            counts in a number of the block's up to `all`, and returns whether this thread is the last;
//                                   then the number is 0 again. What the other threads have read and written before comes
//                                   before what this one does next.
//   Increment, RaiseTo              add 1 to a number of the block's, or raise it to `value` if that is larger; many threads
//                                   may do so at once
//   CopyAhead, AwaitCopies          copies into the block's shared memory while the thread goes on; waits for all that it has
//                                   begun
//
// UNROLL stands before a loop whose arrays must be in registers. ROLLED stands before one that is rarely run: a single copy of
// its body keeps the kernel short, and a long kernel waits for its instructions.
#if defined(__CUDA_ARCH__)
#include "src/device/grid_nvcc.h"
#elif defined(__CUDACC__)
#include "src/device/grid_host.h"
#else
#include "src/device/grid_emulated.h"
#endif

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct Team : Grid {
  // Whether the team is only the block's first warp, while the others wait or do something else: for few numbers a warp is
  // faster, because it waits for no other. All threads of a block call it. Between Narrow(true) and Narrow(false) only the
  // first warp calls what waits for the team or asks for its size.
  static HWY_INLINE void Narrow(bool narrow) {
    BlockBarrier();
    if (Thread() == 0) SetNarrow(narrow);
    BlockBarrier();
  }
  // Each warp of a block has a count. Returns the sum of the counts of the warps before it; `all` gets the sum of all. There is
  // a barrier between two calls.
  static HWY_INLINE unsigned SumBeforeInBlock(unsigned count, unsigned* all) {
    const unsigned warp = Thread() / 32;
    unsigned* const counts = Shared().counts;
    if (Lane() == 0) counts[warp] = count;
    BlockBarrier();
    unsigned total = Lane() <= (BlockThreads() - 1) / 32 ? counts[Lane()] : 0, before = Lane() < warp ? total : 0;
    for (unsigned mask = 16; mask > 0; mask /= 2) before += FromXor(before, mask), total += FromXor(total, mask);
    *all = total;
    return before;
  }
  // Every kernel calls it first: another block's memory is there only when that block has begun. Nothing has been written that
  // another block reads, so it does not wait for what has been written.
  static HWY_INLINE void Begin() {
    if (Blocks() > 1) BeginCluster();
  }

  static HWY_INLINE size_t Size() { return size_t{Threads()} * Blocks(); }
  static HWY_INLINE size_t Rank() { return size_t{BlockRank()} * Threads() + Thread(); }
  static HWY_INLINE bool IsWarp() { return Threads() == 32; }
  static HWY_INLINE bool IsBlock() { return !IsOne() && Threads() > 32 && Blocks() == 1; }
  static HWY_INLINE unsigned Lane() { return Thread() % 32; }
  static HWY_INLINE size_t Warp() { return Rank() / 32; }
  static HWY_INLINE size_t Warps() { return Size() / 32; }

  // The rest of a block's shared memory, for arrays of a row: none if several blocks have a row, because they would not see
  // them.
  struct Bytes {
    void* begin;
    size_t count;
  };
  static HWY_INLINE Bytes Near() {
    if (!IsBlock()) return {nullptr, 0};
    const size_t before = offsetof(Memory, partial) + PartialBytes(Threads() / 32);
    return {reinterpret_cast<unsigned char*>(&Shared()) + before, SharedBytes() - before};
  }

  // fold of all threads' values; `neutral` changes nothing. T has at most 8 bytes. It is a barrier of the team, which lets
  // threads write what others have read before; a shuffle alone is none.
  template <class T, class F>
  static HWY_INLINE T Fold(T value, T neutral, const F& fold) {
    if (IsOne()) return value;
    for (unsigned mask = 16; mask > 0; mask /= 2) value = fold(value, FromXor(value, mask));
    if (IsWarp()) {
      WarpBarrier();
      return value;
    }
    Tell(value);
    T all = neutral;
    for (size_t w = Lane(); w < Warps(); w += 32) all = fold(all, Told<T>(w));
    for (unsigned mask = 16; mask > 0; mask /= 2) all = fold(all, FromXor(all, mask));
    Barrier();
    return all;
  }
  static HWY_NOINLINE size_t Sum(size_t value) {
    return Fold(value, size_t{0}, [](size_t a, size_t b) { return a + b; });
  }

  static HWY_NOINLINE size_t SumOfWarp(size_t value) {
    for (unsigned mask = 16; mask > 0; mask /= 2) value += FromXor(value, mask);
    return value;
  }
  static HWY_NOINLINE uint64_t OrOfWarp(uint64_t value) {
    for (unsigned mask = 16; mask > 0; mask /= 2) value |= FromXor(value, mask);
    return value;
  }

  // Each warp has a count, equal in all its threads. Returns the sum of the counts of the warps before it; `all` gets the sum
  // of all. It is a barrier, as Fold.
  static HWY_NOINLINE size_t SumBefore(size_t count, size_t* all) {
    if (IsOne() || IsWarp()) {
      if (IsWarp()) WarpBarrier();
      *all = count;
      return 0;
    }
    Tell(count);
    size_t before = 0, total = 0;
    for (size_t w = Lane(); w < Warps(); w += 32) {
      const size_t of_warp = Told<size_t>(w);
      total += of_warp, before += w < Warp() ? of_warp : 0;
    }
    for (unsigned mask = 16; mask > 0; mask /= 2) before += FromXor(before, mask), total += FromXor(total, mask);
    Barrier();
    *all = total;
    return before;
  }

  // Calls put(place, i) for each i < n with chosen(i, x[i]), in order, and returns their number. chosen must not read what put
  // writes, because each warp has a part of the row. chosen is called at least once for each i, and may be called again.
  template <class T, class Chosen, class Put>
  static HWY_INLINE size_t Pack(const T* x, size_t n, const Chosen& chosen, const Put& put) {
    return PackRead(
        n, [&](size_t i) HWY_ATTR { return x[i]; }, chosen, put);
  }
  // The same with chosen(i).
  template <class Chosen, class Put>
  static HWY_INLINE size_t Pack(size_t n, const Chosen& chosen, const Put& put) {
    return PackRead(
        n, [](size_t i) { return i; }, [&](size_t i, size_t) HWY_ATTR { return chosen(i); }, put);
  }

  // The same with chosen(i, read(i)).
  template <class Read, class Chosen, class Put>
  static HWY_INLINE size_t PackRead(size_t n, const Read& read, const Chosen& chosen, const Put& put) {
    if (IsOne()) {
      size_t m = 0;
      for (size_t i = 0; i < n; ++i) {
        if (chosen(i, read(i))) put(m++, i);
      }
      return m;
    }
    Barrier();
    const size_t part = (n + 32 * Warps() - 1) / (32 * Warps()) * 32;
    const size_t begin = HWY_MIN(Warp() * part, n), end = HWY_MIN(begin + part, n);
    // A thread issues kAtOnce loads before it uses the first, so that their latencies overlap. A bit of `which` stands for
    // 2^shift entries of the part.
    constexpr size_t kAtOnce = 8;
    unsigned shift = 8;
    while (part >> shift >= 64) ++shift;
    uint64_t which = ~uint64_t{0};
    // Calls visit(first, in, bit): bit k of `in` says whether the thread's entry at first + 32 k is chosen.
    const auto walk = [&](const auto& visit) HWY_ATTR {
      for (size_t base = begin; base < end; base += 32 * kAtOnce) {
        const uint64_t bit = uint64_t{1} << ((base - begin) >> shift);
        if ((which & bit) == 0) continue;
        const size_t first = base + Lane();
        unsigned in = 0;
        if (base + 32 * kAtOnce <= end) {
          decltype(read(first)) values[kAtOnce];
          ISENTROPIC_UNROLL
          for (unsigned k = 0; k < kAtOnce; ++k) values[k] = read(first + 32 * k);
          ISENTROPIC_UNROLL
          for (unsigned k = 0; k < kAtOnce; ++k) in |= unsigned{chosen(first + 32 * k, values[k])} << k;
        } else {
          ISENTROPIC_ROLLED
          for (unsigned k = 0; first + 32 * k < end; ++k) in |= unsigned{chosen(first + 32 * k, read(first + 32 * k))} << k;
        }
        visit(first, in, bit);
      }
    };
    size_t mine = 0, all;
    uint64_t with_chosen = 0;
    walk([&](size_t, unsigned in, uint64_t bit) HWY_ATTR {
      mine += Count(in);
      if (in != 0) with_chosen |= bit;
    });
    which = OrOfWarp(with_chosen);  // where the second walk goes
    size_t place = SumBefore(SumOfWarp(mine), &all);
    walk([&](size_t first, unsigned in, uint64_t) HWY_ATTR {
      ISENTROPIC_ROLLED
      for (unsigned k = 0; k < kAtOnce; ++k) {
        const bool chosen_here = (in >> k & 1) != 0;
        const unsigned bits = Ballot(chosen_here);
        if (chosen_here) put(place + Count(bits & ((1u << Lane()) - 1)), first + 32 * k);
        place += Count(bits);
      }
    });
    Barrier();
    return all;
  }

  // Packs chosen values into `packed`, which may be the array that is read: all values are read before any is written.
  template <class T, class Chosen>
  static HWY_INLINE size_t PackInPlace(const T* x, size_t n, T* packed, const Chosen& chosen) {
    size_t m = 0;
    Barrier();
    for (size_t first = 0; first < n; first += Size()) {
      const size_t i = first + Rank();
      const T value = i < n ? x[i] : T(0);
      const bool in = i < n && chosen(i, value);
      size_t place = 0, all = in;
      if (!IsOne()) {
        const unsigned bits = Ballot(in);
        place = SumBefore(Count(bits), &all) + Count(bits & ((1u << Lane()) - 1));
      }
      if (in) packed[m + place] = value;
      m += all;
    }
    Barrier();
    return m;
  }

  // sums[k] of terms in lanes that were summed in blocks, in the order of Totals: for each lane the terms of the blocks one
  // after the other in float64, then lane i and lane i + half. This is done for kPerGroup blocks at a time, a multiple of
  // kPerWarp, and the groups' sums are added in the order of GroupTotals. In find(block, terms) a warp finds the terms of
  // kPerWarp blocks from `block` on: thread t finds those of lane t mod 16, in the first block or, from thread 16 on, in the
  // second if there are two.
  //
  // A block of threads has a group alone, so that a cluster waits for all its blocks only once: for the groups' sums. It ends
  // with a barrier, after which all threads may read what find has written.
  template <size_t kPerWarp, size_t kPerGroup, class T, size_t K, class Find>
  static HWY_INLINE void SumBlocks(size_t blocks, double (&sums)[K], const Find& find) {
    static_assert(K <= kMostSums && kMostWarps * kPerWarp * K * 16 * sizeof(T) <= kPartialBytes);
    for (double& sum : sums) sum = 0;
    if (blocks == 0) return;
    const unsigned lane = Lane() % 16;
    const bool one_warp = IsWarp();
    T* const partial = reinterpret_cast<T*>(Shared().partial);
    const size_t warps = Threads() / 32, warp = Thread() / 32, all_groups = (blocks - 1) / kPerGroup + 1;
    double groups[K] = {};
    for (size_t first_group = 0; first_group < all_groups; first_group += Blocks()) {
      const size_t group = first_group + BlockRank();
      double totals[K] = {};
      if (group < all_groups) {
        const size_t begin = group * kPerGroup, end = HWY_MIN(begin + kPerGroup, blocks);
        const size_t round = warps * kPerWarp;
        const size_t at_once = one_warp ? kPerGroup : round * (PartialBytes(warps) / (round * K * 16 * sizeof(T)));
        for (size_t first = begin; first < end; first += at_once) {
          const size_t last = HWY_MIN(first + at_once, end);
          for (size_t block = first + warp * kPerWarp; block < last; block += round) {
            T terms[K];
            find(block, terms);
            if (one_warp) {
              for (size_t k = 0; k < K; ++k) {
                totals[k] += static_cast<double>(FromLane(terms[k], lane));
                if (kPerWarp == 2 && block + 1 < last) totals[k] += static_cast<double>(FromLane(terms[k], lane + 16));
              }
              continue;
            }
            const size_t mine = block + Lane() / 16;
            if (mine < HWY_MIN(block + kPerWarp, last)) {
              for (size_t k = 0; k < K; ++k) partial[((mine - first) * K + k) * 16 + lane] = terms[k];
            }
          }
          if (one_warp) break;
          BlockBarrier();
          AddPartial(partial, last - first, totals);
          if (last < end) BlockBarrier();
        }
      }
      AddGroups(first_group, all_groups, totals, groups);
    }
    for (size_t k = 0; k < K; ++k) sums[k] = FoldHalfWarp(groups[k]);
  }

  static HWY_INLINE double FoldHalfWarp(double total) {
    for (unsigned mask = 8; mask > 0; mask /= 2) total += FromXor(total, mask);
    return total;
  }

 private:
  // Two steps of SumBlocks that are the same whatever is summed. They are called, not inlined: there are hundreds of sums in a
  // kernel, and a kernel that is too long for the cache of instructions waits for them.
  //
  // Adds the sums of `blocks` blocks to totals. Half a warp has the sums k = half + turn halves, in totals[turn].
  template <class T, size_t K>
  static HWY_NOINLINE void AddPartial(const T* partial, size_t blocks, double (&totals)[K]) {
    const size_t half = Thread() / 16, halves = Threads() / 16;
    const unsigned lane = Lane() % 16;
    for (size_t k = half, turn = 0; k < K; k += halves, ++turn) {
      double total = totals[turn];
      for (size_t b = 0; b < blocks; ++b) total += static_cast<double>(partial[(b * K + k) * 16 + lane]);
      totals[turn] = total;
    }
  }
  // The groups from first_group on, one of each block: adds the sums of their totals to those of all groups, in lane
  // `group % 16` of every warp.
  template <size_t K>
  static HWY_NOINLINE void AddGroups(size_t first_group, size_t all_groups, const double (&totals)[K], double (&groups)[K]) {
    const unsigned lane = Lane() % 16;
    if (IsWarp()) {
      for (size_t k = 0; k < K; ++k) {
        const double sum = FoldHalfWarp(totals[k]);
        if (lane == first_group % 16) groups[k] += sum;
      }
      return Barrier();
    }
    Memory& memory = Shared();
    const size_t half = Thread() / 16, halves = Threads() / 16;
    for (size_t k = half, turn = 0; k - half < K; k += halves, ++turn) {
      const double sum = FoldHalfWarp(totals[turn]);
      if (k < K && lane < Blocks() && first_group + BlockRank() < all_groups) {
        In(lane, memory.groups)[k * kMostBlocks + BlockRank()] = sum;
      }
    }
    Barrier();
    const size_t of_lane = (lane - first_group) % 16;
    if (of_lane < Blocks() && first_group + of_lane < all_groups) {
      for (size_t k = 0; k < K; ++k) groups[k] += memory.groups[k * kMostBlocks + of_lane];
    }
    Barrier();
  }

  // Gives a warp's value to all blocks.
  template <class T>
  static HWY_INLINE void Tell(T value) {
    static_assert(sizeof(T) <= sizeof(unsigned long long));
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    for (unsigned block = Lane(); block < Blocks(); block += 32) In(block, Shared().folds)[Warp()] = bits;
    Barrier();
  }
  template <class T>
  static HWY_INLINE T Told(size_t warp) {
    T value;
    memcpy(&value, &Shared().folds[warp], sizeof value);
    return value;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI

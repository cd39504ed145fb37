// A team is the threads of one row: one thread, a warp, a block, or the blocks of a cluster. This file has the operations that
// a row's arithmetic needs of its team.
//
// A block's first dimension runs along the row; if a row has less than a block, the second one counts rows. All threads of a
// team call these functions together and get the same result. Unless a function says that it distributes the work, every thread
// does all of it.
#pragma once

#include <cstddef>
#include <cstdint>

// UNROLL stands before a loop whose arrays must be in registers. ROLLED stands before one that is rarely run: a single copy of
// its body keeps the kernel short, and a long kernel waits for its instructions.
#ifdef __CUDACC__
#define ISENTROPIC_UNROLL _Pragma("unroll")
#define ISENTROPIC_ROLLED _Pragma("unroll 1")
#include <cooperative_groups.h>
#else
#define ISENTROPIC_UNROLL
#define ISENTROPIC_ROLLED
#include "src/cuda/emulate.h"
#endif

#include "hwy/highway.h"
#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct Team {
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

#if defined(__CUDA_ARCH__)
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
  static HWY_INLINE void BlockBarrier() { __syncthreads(); }
  // The address in another block's memory of `at` in this block's.
  template <class T>
  static HWY_INLINE T* In(unsigned block, T* at) {
#if __CUDA_ARCH__ >= 900
    if (Blocks() > 1) return cooperative_groups::this_cluster().map_shared_rank(at, block);
#endif
    return at;
  }
  static HWY_INLINE void Barrier() {
    if (IsOne()) return;
    if (Threads() == 32) return __syncwarp();
#if __CUDA_ARCH__ >= 900
    if (Blocks() > 1) return cooperative_groups::this_cluster().sync();
#endif
    __syncthreads();
  }
#elif !defined(__CUDACC__)
  static unsigned Blocks() { return isentropic_emulate::cluster_size(); }
  static unsigned BlockRank() { return isentropic_emulate::block_rank(); }
  static Memory& Shared() {
    return *reinterpret_cast<Memory*>(isentropic_emulate::cluster().shared[isentropic_emulate::block_rank()].get());
  }
  static size_t SharedBytes() { return isentropic_emulate::device.shared_bytes; }
  static void BlockBarrier() { __syncthreads(); }
  template <class T>
  static T* In(unsigned block, T* at) {
    if (block != BlockRank()) isentropic_emulate::require_all_begun();
    const auto& shared = isentropic_emulate::cluster().shared;
    return reinterpret_cast<T*>(shared[block].get() + (reinterpret_cast<char*>(at) - shared[BlockRank()].get()));
  }
  static void Barrier() {
    if (blockDim.x == 1) return;
    if (Blocks() > 1) return isentropic_emulate::meet(isentropic_emulate::Wait::cluster);
    Threads() == 32 ? __syncwarp() : __syncthreads();
  }
#else  // nvcc's pass over the host's code, which runs none of this
  static HWY_INLINE unsigned Blocks() { return 1; }
  static HWY_INLINE unsigned BlockRank() { return 0; }
  static HWY_INLINE Memory& Shared() { return *static_cast<Memory*>(nullptr); }
  static HWY_INLINE size_t SharedBytes() { return 0; }
  static HWY_INLINE void BlockBarrier() {}
  template <class T>
  static HWY_INLINE T* In(unsigned, T* at) {
    return at;
  }
  static HWY_INLINE void Barrier() {}
#endif

#if defined(__CUDACC__) && !defined(__CUDA_ARCH__)
  static HWY_INLINE unsigned Thread() { return 0; }
  static HWY_INLINE unsigned Threads() { return 1; }
  static HWY_INLINE unsigned BlockThreads() { return 1; }
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
  static HWY_INLINE size_t Number() { return 0; }
  static HWY_INLINE size_t Teams() { return 1; }
#else
  static HWY_INLINE unsigned Thread() { return threadIdx.x; }
  static HWY_INLINE unsigned BlockThreads() { return blockDim.x; }
  static HWY_INLINE unsigned Threads() { return IsNarrow() ? 32 : blockDim.x; }  // threads of a block along a row
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
  // The number of this team in the grid, and how many there are.
  static HWY_INLINE size_t Number() { return size_t{blockIdx.x} / Blocks() * blockDim.y + threadIdx.y; }
  static HWY_INLINE size_t Teams() { return size_t{gridDim.x} / Blocks() * blockDim.y; }
#endif

  // Whether the team is only the block's first warp, while the others wait or do something else: for few numbers a warp is
  // faster, because it waits for no other. In kernels of files that define ISENTROPIC_NARROW.
  static HWY_INLINE bool IsNarrow() {
#if !defined(__CUDACC__)
    return isentropic_emulate::cluster().narrow[isentropic_emulate::block_rank()];
#elif defined(ISENTROPIC_NARROW)
    return Shared().narrow != 0;
#else
    return false;
#endif
  }
  // All threads of a block call it. Between Narrow(true) and Narrow(false) only the first warp calls what waits for the team or
  // asks for its size.
  static HWY_INLINE void Narrow(bool narrow) {
    BlockBarrier();
    if (Thread() == 0) {
#if defined(__CUDACC__)
      Shared().narrow = narrow;
#else
      isentropic_emulate::cluster().narrow[isentropic_emulate::block_rank()] = narrow;
#endif
    }
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
    if (Blocks() == 1) return;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
    isentropic_emulate::wait(isentropic_emulate::Wait::cluster);
#endif
  }

  // The compiler forgets what it knows of a value, and so keeps nothing in registers that it could calculate from it again.
  static HWY_INLINE void Forget(float& value) {
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+f"(value));
#else
    (void)value;
#endif
  }

  static HWY_INLINE void WarpBarrier() {
#if defined(__CUDA_ARCH__) || !defined(__CUDACC__)
    __syncwarp();
#endif
  }

  // Counts in a number of the block's up to `all`, and returns whether this thread is the last. The number is then 0 again.
  // What the other threads have read and written before comes before what this one does next.
  static HWY_INLINE bool CountTo(unsigned* number, unsigned all) {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    const bool last = atomicInc(number, all - 1) == all - 1;
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    return last;
#elif !defined(__CUDACC__)
    isentropic_emulate::tell(number);
    const unsigned before = __atomic_fetch_add(number, 1u, __ATOMIC_RELAXED);
    isentropic_emulate::know(number);
    if (before + 1 == all) __atomic_store_n(number, 0u, __ATOMIC_RELAXED);
    return before + 1 == all;
#else
    return *number == all;
#endif
  }

  // Adds 1 to a number of the block's, which many threads may do at once.
  static HWY_INLINE void Increment(unsigned* number) {
#if defined(__CUDA_ARCH__)
    atomicAdd(number, 1u);
#else
    __atomic_fetch_add(number, 1u, __ATOMIC_RELAXED);
#endif
  }

  // Raises a number of the block's to `value` if that is larger, which many threads may do at once.
  static HWY_INLINE void RaiseTo(int* number, int value) {
#if defined(__CUDA_ARCH__)
    atomicMax(number, value);
#else
    if (value > __atomic_load_n(number, __ATOMIC_RELAXED)) __atomic_store_n(number, value, __ATOMIC_RELAXED);
#endif
  }

  // Copies into the block's shared memory while the thread goes on; AwaitCopies waits for all that it has begun.
  template <class T>
  static HWY_INLINE void CopyAhead(T* near, const T* from) {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(SharedAddress(near)), "l"(__cvta_generic_to_global(from)),
                 "n"(sizeof(T))
                 : "memory");
#else
    *near = *from;
#endif
  }
  static HWY_INLINE void AwaitCopies() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }

  static HWY_INLINE size_t Size() { return size_t{Threads()} * Blocks(); }
  static HWY_INLINE size_t Rank() { return size_t{BlockRank()} * Threads() + Thread(); }
  // Whether one thread has a row. nvcc knows it when it compiles a file: kernels for short rows are in files of their own,
  // which define ISENTROPIC_ONE_THREAD. So what the other kind of team needs takes neither registers nor stack, nor the
  // compiler's time.
  static HWY_INLINE bool IsOne() {
#if !defined(__CUDACC__)
    return Threads() == 1;
#elif defined(ISENTROPIC_ONE_THREAD)
    return true;
#else
    return false;
#endif
  }
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
    // A thread reads kAtOnce entries before it looks at the first, so that the reads do not wait for one another. A bit of
    // `which` stands for 2^shift entries of the part.
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

// A row that its team keeps in registers: it is read once and written once, in the order of Sums.
//
// A warp has whole blocks of 256 numbers, and a block of threads at most one group of 16,384: for longer rows each block of the
// cluster has a group. Reading row by row from memory into registers keeps the memory busy, because all loads of a thread are
// under way before the first is used.
#pragma once

#include "src/cuda/exchange.h"
#include "src/cuda/launch.h"
#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

inline constexpr std::size_t kGroup = 16384, kMostGroups = 8;

// The shared memory of a block for folds over its threads, and for the sums of 64 blocks of 256.
inline constexpr std::size_t kResidentBytes = offsetof(HWY_NAMESPACE::Team::Memory, partial) + 64 * 16 * sizeof(float);

// A warp has 1024 numbers, 32 in each thread: the overhead of a row is the same for each warp.
inline Shape resident_shape(std::size_t n) {
  if (n <= 1024) return {1, 32, 4};
  const std::size_t warps = ((n < kGroup ? n : kGroup) + 1023) / 1024;
  return {static_cast<unsigned>((n + kGroup - 1) / kGroup), static_cast<unsigned>(32 * warps), 1};
}

// Calls use(s, kEach) with an entry of the type of the rows in memory, and a constant for the number of blocks of 256 that each
// warp has in a row. Returns false if the result has another type, or if rows are too long: there is a group for each block of
// a cluster, before Hopper one group.
template <class AnyCall, class Use>
bool use_resident(const AnyCall& call, const Use& use) {
  if (call.out.data != nullptr && call.out.stored != call.in[0].stored) return false;
  const auto with_each = [&](auto each) {
    const Stored stored = call.in[0].stored;
    stored == Stored::float16 ? use(float16(), each) : stored == Stored::bfloat16 ? use(bfloat16(), each) : use(float(), each);
    return true;
  };
  const std::size_t n = call.cols;
  const Shape shape = resident_shape(n);
  if (n == 0 || shape.blocks > (has_clusters() ? kMostGroups : 1)) return false;
#ifndef __CUDACC__
  if (forced_shape.threads > 0) return false;
#endif
  const std::size_t of_block = n < kGroup ? n : kGroup, warps = shape.threads / 32;
  const std::size_t each = ((of_block + 255) / 256 + warps - 1) / warps;
  if (each <= 1) return with_each(std::integral_constant<unsigned, 1>());
  if (each <= 2) return with_each(std::integral_constant<unsigned, 2>());
  return with_each(std::integral_constant<unsigned, 4>());
}

}  // namespace cuda

namespace HWY_NAMESPACE {

// fold of the values of a warp's threads; the largest and the least of them, without NaN.
template <class T, class F>
HWY_INLINE T FoldOfWarp(T value, const F& fold) {
  ISENTROPIC_UNROLL
  for (unsigned mask = 16; mask > 0; mask /= 2) value = fold(value, Team::FromXor(value, mask));
  return value;
}
HWY_INLINE float MaxOfWarp(float value) {
  return FoldOfWarp(value, [](float a, float b) { return fmaxf(a, b); });
}
HWY_INLINE float MinOfWarp(float value) {
  return FoldOfWarp(value, [](float a, float b) { return fminf(a, b); });
}

// kEach: the blocks of 256 that a warp has, one after the other. A number beyond the end of the row is -inf. Thread t of a warp
// has the numbers 2t and 2t + 1 of each 64: two lanes of one of the four accumulators of Sums.
template <class S, unsigned kEach>
class ResidentRow {
 public:
  using T = Working<S>;
  static_assert(sizeof(T) == 4);

  // `own`: the bytes of shared memory that are not for LoadAhead.
  HWY_INLINE ResidentRow(const cuda::Rows& rows, unsigned n, unsigned own = cuda::kResidentBytes)
      : own_(own),
        begin_(Team::BlockRank() * kGroupSize + Team::Thread() / 32 * (256 * kEach) + 2 * Team::Lane()),
        n_(n),
        whole_(begin_ - 2 * Team::Lane() + 256 * kEach <= n) {
    paired_ = whole_ && InPairs(rows);
    ahead_ = paired_ && Team::SharedBytes() > own;
    Exchanges::Begin();
  }

  // Reads row r. LoadAhead also prefetches row `next`, if there is one, while the team works on r.
  HWY_INLINE void Load(const cuda::Rows& rows, size_t r) {
    const auto block = EntriesOf<S>(rows, r).From(begin_);  // what is added to its address is known to the compiler
    if (paired_) {
      LoadPairs([&](unsigned j, unsigned m) HWY_ATTR { return *block.NeighboursAt(256 * j + 64 * m); });
    } else {
      ForAll([&](unsigned j, unsigned m) HWY_ATTR {
        const unsigned at = 256 * j + Offset(m);
        values_[j][m] = begin_ + at < n_ ? block(at) : -kInfinity<T>;
      });
    }
  }
  HWY_INLINE void LoadAhead(const cuda::Rows& rows, size_t r, size_t next, size_t all) {
    if (!ahead_) return Load(rows, r);
    if (r < Team::Teams()) Ask(rows, r);
    Team::AwaitCopies();
    LoadPairs([&](unsigned j, unsigned m) HWY_ATTR { return *Near(j, m); });
    if (next < all) Ask(rows, next);
  }

  // The largest number; NaN is left out.
  HWY_INLINE T Max() {
    T max = -kInfinity<T>;
    ForAll([&](unsigned j, unsigned m) HWY_ATTR { max = fmaxf(values_[j][m], max); });
    max = MaxOfWarp(max);
    if (Team::IsWarp()) return max;
    unsigned long long* const folds = Team::Shared().folds;
    const unsigned lane = Team::Lane();
    if (lane == 0) reinterpret_cast<T*>(folds)[Team::Thread() / 32] = max;
    Team::BlockBarrier();
    max = MaxOfWarp(lane < Team::Threads() / 32 ? reinterpret_cast<const T*>(folds)[lane] : -kInfinity<T>);
    if (Team::Blocks() == 1) return max;
    const double own[] = {static_cast<double>(max)};
    const double* const all = exchanges_.Exchange(own);
    return MaxOfWarp(lane < Team::Blocks() ? static_cast<T>(all[lane]) : -kInfinity<T>);
  }

  // The largest of this thread's numbers at even places, and at odd ones. NaN is left out.
  HWY_INLINE void OwnMaxima(T (&max)[2]) const {
    max[0] = max[1] = -kInfinity<T>;
    ForAll([&](unsigned j, unsigned m) HWY_ATTR { max[m % 2] = fmaxf(values_[j][m], max[m % 2]); });
  }

  // Calls visit(i, v) for each number of this thread.
  template <class Visit>
  HWY_INLINE void ForOwn(const Visit& visit) const {
    ForAll([&](unsigned j, unsigned m) HWY_ATTR {
      const unsigned i = begin_ + 256 * j + Offset(m);
      if (i < n_) visit(i, values_[j][m]);
    });
  }

  // Counts the numbers with is(v), by a block: in this warp, in the warps before it, and in the row.
  struct Chosen {
    unsigned of_warp, before, all;
  };
  template <class Is>
  HWY_INLINE Chosen Choose(const Is& is) const {
    Chosen chosen = {};
    ForAll([&](unsigned j, unsigned m) HWY_ATTR { chosen.of_warp += is(values_[j][m]) ? 1 : 0; });
    for (unsigned mask = 16; mask > 0; mask /= 2) chosen.of_warp += Team::FromXor(chosen.of_warp, mask);
    chosen.before = Team::SumBeforeInBlock(chosen.of_warp, &chosen.all);
    return chosen;
  }
  // Calls put(place, i, v) for each chosen number, where `place` counts them in their order. A bit for each would have to be
  // kept until all are counted, and registers have no room for that.
  template <class Is, class Put>
  HWY_INLINE void PutChosen(const Chosen& chosen, const Is& is, const Put& put) const {
    if (chosen.of_warp == 0) return;
    unsigned place = chosen.before;
    const unsigned lower = (1u << Team::Lane()) - 1;
    ISENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 8; m += 2) {
        const bool even = is(values_[j][m]), odd = is(values_[j][m + 1]);
        const unsigned evens = Team::Ballot(even), odds = Team::Ballot(odd);
        if ((evens | odds) == 0) continue;
        const unsigned mine = place + Team::Count(evens & lower) + Team::Count(odds & lower);
        const unsigned i = begin_ + 256 * j + Offset(m);
        if (even) put(mine, i, values_[j][m]);
        if (odd) put(mine + even, i + 1, values_[j][m + 1]);
        place += Team::Count(evens) + Team::Count(odds);
      }
    }
  }

  // Numbers of every block of a cluster, see Exchanges.
  template <size_t K>
  HWY_INLINE const double* Exchange(const double (&own)[K]) {
    return exchanges_.Exchange(own);
  }

  // As FindNonFinite of a row in memory.
  HWY_INLINE NonFinite FindNonFinite() const {
    Team::Barrier();  // a thread may still read the folds of the maximum
    size_t infinite = 0, nan = 0;
    ForAll([&](unsigned j, unsigned m)
               HWY_ATTR { infinite += values_[j][m] == kInfinity<T>, nan += values_[j][m] != values_[j][m]; });
    const auto sum = [](size_t a, size_t b) { return a + b; };  // a call would cost all rows registers
    return {Team::Fold(infinite, size_t{0}, sum), Team::Fold(nan, size_t{0}, sum) > 0};
  }

  // Replaces each number v of the row by of(v).
  template <class Of>
  HWY_INLINE void Replace(const Of& of) {
    ForAll([&](unsigned j, unsigned m) HWY_ATTR { values_[j][m] = of(values_[j][m]); });
  }

  // The sum of term(v, i), which is 0 beyond the end of the row, in the order of Sums.
  template <class Term>
  HWY_INLINE double Sum(const Term& term) {
    T found[kEach][2];
    SumBlocks(term, found);
    const unsigned lane = Team::Lane() % 16, first = Team::BlockRank() * kGroupSize;
    const unsigned blocks = first < n_ ? (HWY_MIN(n_ - first, kGroupSize) + 255) / 256 : 0;
    double total = 0;
    if (Team::IsWarp()) {
      ISENTROPIC_UNROLL
      for (unsigned j = 0; j < kEach; ++j) {
        const T even = Team::FromLane(found[j][0], lane / 2), odd = Team::FromLane(found[j][1], lane / 2);
        if (j < blocks) total += static_cast<double>(lane % 2 == 0 ? even : odd);
      }
      return Team::FoldHalfWarp(total);
    }
    Team::Memory& memory = Team::Shared();
    const T* const partial = Partial();
    StorePartial(found);
    Team::BlockBarrier();
    // One warp adds: the instructions of the others would delay other rows.
    if (Team::Thread() < 32) {
      for (unsigned b = 0; b < blocks; ++b) total += static_cast<double>(partial[b * 16 + lane]);
      total = Team::FoldHalfWarp(total);
      if (Team::Blocks() == 1 && Team::Thread() == 0) memory.groups[0] = total;
    }
    if (Team::Blocks() == 1) {
      Team::BlockBarrier();
      return memory.groups[0];
    }
    const double own[] = {total};
    const double* const all = exchanges_.Exchange(own);
    return Team::FoldHalfWarp(lane < Team::Blocks() ? all[lane] : 0.0);
  }

  // Writes of(v, i) for each number v of the row, whose index is i.
  template <class Of>
  HWY_INLINE void Write(const cuda::Rows& rows, size_t r, const Of& of) const {
    const auto block = EntriesOf<S>(rows, r).From(begin_);
    if (whole_ && InPairs(rows)) {
      ISENTROPIC_UNROLL
      for (unsigned j = 0; j < kEach; ++j) {
        ISENTROPIC_UNROLL
        for (unsigned m = 0; m < 8; m += 2) {
          const unsigned at = 256 * j + Offset(m);
          *block.NeighboursAt(at) = block.Narrowed(of(values_[j][m], begin_ + at), of(values_[j][m + 1], begin_ + at + 1));
        }
      }
      return;
    }
    ForAll([&](unsigned j, unsigned m) HWY_ATTR {
      const unsigned at = 256 * j + Offset(m);
      if (begin_ + at < n_) block.Put(at, of(values_[j][m], begin_ + at));
    });
  }

  // The result for a row whose largest score is not finite: scores of +inf share the mass, without one or with NaN all is NaN.
  HWY_INLINE void WriteNonFinite(const cuda::Rows& rows, size_t r) const {
    const auto [infinite, nan] = FindNonFinite();
    const bool shared = !nan && infinite > 0;
    const T share = shared ? static_cast<T>(1.0 / static_cast<double>(infinite)) : kNaN<T>;
    Write(rows, r, [&](T v, unsigned) HWY_ATTR { return shared && v != kInfinity<T> ? T(0) : share; });
  }

 protected:
  static constexpr unsigned kGroupSize = 16384;

  static constexpr unsigned Offset(unsigned m) { return m / 2 * 64 + m % 2; }

  // The sums of each of the warp's blocks in two lanes: thread t < 8 has those of lanes 2t and 2t + 1.
  template <class Term>
  HWY_INLINE void SumBlocks(const Term& term, T (&found)[kEach][2]) const {
    ISENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      const unsigned at = begin_ + 256 * j;
      T acc[2] = {};
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 8; ++m) acc[m % 2] = acc[m % 2] + term(values_[j][m], at + Offset(m));
      ISENTROPIC_UNROLL
      for (unsigned e = 0; e < 2; ++e) {
        const T sum = acc[e] + Team::FromXor(acc[e], 16);
        found[j][e] = sum + Team::FromXor(sum, 8);
      }
    }
  }
  // Puts them into shared memory: 16 lanes for each block.
  static HWY_INLINE T* Partial() { return reinterpret_cast<T*>(Team::Shared().partial); }
  static HWY_INLINE void StorePartial(const T (&found)[kEach][2]) {
    ISENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      T* const of_block = Partial() + (Team::Thread() / 32 * kEach + j) * 16;
      if (Team::Lane() < 8) reinterpret_cast<Neighbours<T>*>(of_block)[Team::Lane()] = {{found[j][0], found[j][1]}};
    }
  }

  template <class Pair>
  HWY_INLINE void LoadPairs(const Pair& pair_at) {
    ISENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 4; ++m) {
        const Neighbours<S> pair = pair_at(j, m);
        values_[j][2 * m] = EntriesOf<S>::Widened(pair.of[0]), values_[j][2 * m + 1] = EntriesOf<S>::Widened(pair.of[1]);
      }
    }
  }
  template <class Visit>
  static HWY_INLINE void ForAll(const Visit& visit) {
    ISENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 8; ++m) visit(j, m);
    }
  }

 private:
  // Whether a pair of entries begins at a multiple of its size in each row.
  static HWY_INLINE bool InPairs(const cuda::Rows& rows) {
    return reinterpret_cast<uintptr_t>(rows.data) % sizeof(Neighbours<S>) == 0 && rows.stride % 2 == 0;
  }

  // This thread's own place in shared memory for a pair.
  HWY_INLINE Neighbours<S>* Near(unsigned j, unsigned m) const {
    return reinterpret_cast<Neighbours<S>*>(reinterpret_cast<unsigned char*>(&Team::Shared()) + own_) +
           Team::Thread() / 32 * (128 * kEach) + Team::Lane() + 32 * (4 * j + m);
  }
  HWY_INLINE void Ask(const cuda::Rows& rows, size_t r) const {
    const auto block = EntriesOf<S>(rows, r).From(begin_);
    ISENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 4; ++m) Team::CopyAhead(Near(j, m), block.NeighboursAt(256 * j + 64 * m));
    }
  }

  unsigned own_;
  Exchanges exchanges_;
  bool paired_;  // entries are read in pairs
  bool ahead_;   // the next row is prefetched

 protected:
  unsigned begin_, n_;
  bool whole_;  // no number of the warp is beyond the end
  T values_[kEach][8];
};

}  // namespace HWY_NAMESPACE

namespace cuda {

// Launches a kernel of resident rows with one team for each row, on which the kernels rely: this is faster than teams that take
// row after row, even with prefetching.
template <class AnyCall>
void launch_resident(void (*kernel)(AnyCall), const AnyCall& call, Stream stream) {
  const Shape shape = resident_shape(call.cols);
  const std::size_t teams = (call.rows + shape.rows - 1) / shape.rows;
  launch_as(shape, teams, shape.threads > 32 ? kResidentBytes : 0, kernel, call, stream);
}

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

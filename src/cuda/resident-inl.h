// A row that its team keeps in registers: it is read once and written once, in the order of Sums.
//
// A warp has whole blocks of 256 numbers, and a block of threads at most one group of 16,384: for longer rows each block of the
// cluster has a group. Reading row by row from memory into registers keeps the memory busy, because all loads of a thread are
// under way before the first is used.
#pragma once

#include "src/cuda/launch.h"
#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

inline constexpr std::size_t kGroup = 16384, kMostGroups = 8;

// A warp has 1024 numbers, 32 in each thread: what a row costs beside its numbers is the same for each warp.
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

// kEach: the blocks of 256 that a warp has. A number beyond the end of the row is -inf.
template <class S, unsigned kEach>
class ResidentRow {
 public:
  using T = Working<S>;
  static_assert(sizeof(T) == 4);

  HWY_INLINE explicit ResidentRow(unsigned n)
      : begin_(Team::BlockRank() * kGroupSize + Team::Thread() / 32 * 256 + Team::Lane()),
        n_(n),
        step_(Team::Threads() / 32 * 256) {}

  HWY_INLINE void Load(const EntriesOf<S>& entries) {
    ENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      const unsigned at = begin_ + j * step_;
      const auto block = entries.From(at);  // what is added to its address is known to the compiler
      if (IsFull(at)) {
        ENTROPIC_UNROLL
        for (unsigned m = 0; m < 8; ++m) values_[j][m] = block(32 * m);
      } else {
        ENTROPIC_UNROLL
        for (unsigned m = 0; m < 8; ++m) values_[j][m] = at + 32 * m < n_ ? block(32 * m) : -kInfinity<T>;
      }
    }
  }

  // The largest number; NaN is left out.
  HWY_INLINE T Max() const {
    T max = -kInfinity<T>;
    ForAll([&](unsigned j, unsigned m) HWY_ATTR { max = fmaxf(values_[j][m], max); });
    return Team::Fold(max, -kInfinity<T>, [](T a, T b) { return a > b ? a : b; });
  }

  // As FindNonFinite of a row in memory.
  HWY_INLINE NonFinite FindNonFinite() const {
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
  HWY_INLINE double Sum(const Term& term) const {
    T found[kEach];
    ENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      const unsigned at = begin_ + j * step_;
      T acc[2] = {};
      ENTROPIC_UNROLL
      for (unsigned m = 0; m < 8; ++m) acc[m % 2] = acc[m % 2] + term(values_[j][m], at + 32 * m);
      const T sum = acc[0] + acc[1];
      found[j] = sum + Team::FromXor(sum, 16);
    }
    const unsigned lane = Team::Lane() % 16, first = Team::BlockRank() * kGroupSize;
    const unsigned blocks = first < n_ ? (HWY_MIN(n_ - first, kGroupSize) + 255) / 256 : 0;
    double total = 0;
    if (Team::IsWarp()) {
      ENTROPIC_UNROLL
      for (unsigned j = 0; j < kEach; ++j) {
        if (j < blocks) total += static_cast<double>(found[j]);
      }
      return Team::FoldHalfWarp(total);
    }
    Team::Memory& memory = Team::Shared();
    T* const partial = reinterpret_cast<T*>(memory.partial);
    ENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      if (Team::Lane() < 16) partial[(Team::Thread() / 32 + j * (Team::Threads() / 32)) * 16 + lane] = found[j];
    }
    Team::BlockBarrier();
    // One warp adds, because the others' instructions would take the time of other rows.
    if (Team::Thread() < 32) {
      for (unsigned b = 0; b < blocks; ++b) total += static_cast<double>(partial[b * 16 + lane]);
      total = Team::FoldHalfWarp(total);
      if (Team::Lane() < Team::Blocks()) Team::In(Team::Lane(), memory.groups)[Team::BlockRank()] = total;
    }
    Team::Barrier();
    if (Team::Blocks() == 1) return memory.groups[0];
    return Team::FoldHalfWarp(lane < Team::Blocks() ? memory.groups[lane] : 0.0);
  }

  // Writes of(v, i) for each number v of the row, whose index is i.
  template <class Of>
  HWY_INLINE void Write(const EntriesOf<S>& entries, const Of& of) const {
    ENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      const unsigned at = begin_ + j * step_;
      const auto block = entries.From(at);
      if (IsFull(at)) {
        ENTROPIC_UNROLL
        for (unsigned m = 0; m < 8; ++m) block.Put(32 * m, of(values_[j][m], at + 32 * m));
      } else {
        ENTROPIC_UNROLL
        for (unsigned m = 0; m < 8; ++m) {
          if (at + 32 * m < n_) block.Put(32 * m, of(values_[j][m], at + 32 * m));
        }
      }
    }
  }

 private:
  static constexpr unsigned kGroupSize = 16384;

  template <class Visit>
  static HWY_INLINE void ForAll(const Visit& visit) {
    ENTROPIC_UNROLL
    for (unsigned j = 0; j < kEach; ++j) {
      ENTROPIC_UNROLL
      for (unsigned m = 0; m < 8; ++m) visit(j, m);
    }
  }

  HWY_INLINE bool IsFull(unsigned at) const { return at - Team::Lane() + 256 <= n_; }

  unsigned begin_, n_, step_;
  T values_[kEach][8];
};

}  // namespace HWY_NAMESPACE

namespace cuda {

// Launches a kernel of resident rows. A block needs the memory of folds over its threads, and of the sums of 64 blocks of 256.
template <class AnyCall>
void launch_resident(void (*kernel)(AnyCall), const AnyCall& call, Stream stream) {
  const Shape shape = resident_shape(call.cols);
  const std::size_t shared = offsetof(HWY_NAMESPACE::Team::Memory, partial) + 64 * 16 * sizeof(float);
  const std::size_t wanted = (call.rows + shape.rows - 1) / shape.rows;
  const std::size_t most =
      (std::size_t{1} << 18) / (shape.blocks * shape.threads * shape.rows);  // what a large device runs at once
  launch_as(shape, wanted < most ? wanted : most, shape.threads > 32 ? shared : 0, kernel, call, stream);
}

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

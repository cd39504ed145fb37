// A row that its team keeps in shared memory by lanes: a thread has the 16 numbers of one lane of a block of 256, so it adds
// their terms by itself, in the order of Sums or of RoughSums. As in ResidentRow a warp has 1024 numbers, and a block of
// threads at most a group of 16,384; only the first warp has none, because it collects sums. Registers have no room for the
// numbers beside the terms.
#pragma once

#include "src/cuda/resident-inl.h"
#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class S>
class LaneRow {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;

  // Bytes of shared memory for a block with this number of threads, the first warp included.
  static constexpr HWY_INLINE size_t Bytes(unsigned threads) { return (threads - 32) * (kOfWarp / 32) * sizeof(float); }

  // `warp`: this warp's number among those that have the row. `memory`: the block's. A thread has a column of it, so that no
  // other one has to be waited for, and neighbours have neighbouring places.
  HWY_INLINE LaneRow(unsigned n, unsigned warp, float* memory)
      : warp_(warp),
        first_(Team::BlockRank() * kGroup + warp * kOfWarp + Team::Lane() / 16 * 256 + Team::Lane() % 16),
        n_(n),
        mine_(memory + warp * kOfWarp + Team::Lane()) {}

  HWY_INLINE void Load(const cuda::Rows& rows, size_t r) {
    const auto row = EntriesOf<S>(rows, r).From(first_);
    const bool whole = IsWhole();
    if constexpr (sizeof(S) == sizeof(float)) {
      // All loads are issued before the thread waits.
      ForAll([&](unsigned j, unsigned m) HWY_ATTR {
        const unsigned at = Offset(j, m);
        if (whole || first_ + at < n_) {
          Team::CopyAhead(&At(j, m), row.AddressOf(at));
        } else {
          At(j, m) = -kInfinity<float>;
        }
      });
      return Team::AwaitCopies();
    }
    ForBlocks([&](unsigned j) HWY_ATTR {
      float read[16];
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 16; ++m) {
        const unsigned at = Offset(j, m);
        read[m] = whole || first_ + at < n_ ? row(at) : -kInfinity<float>;
      }
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 16; ++m) At(j, m) = read[m];
    });
  }

  // The largest number of this block, without NaN, and the least of what its threads tell: told by the warps of the row, and
  // known to all after a barrier.
  HWY_INLINE void TellMax() const {
    float max = -kInfinity<float>;
    ForAll([&](unsigned j, unsigned m) HWY_ATTR { max = fmaxf(At(j, m), max); });
    max = MaxOfWarp(max);
    if (Team::Lane() == 0) Folds()[warp_] = max;
  }
  static HWY_INLINE float MaxTold() { return MaxOfWarp(Team::Lane() < Warps() ? Folds()[Team::Lane()] : -kInfinity<float>); }
  HWY_INLINE void TellLeast(float least) const {
    least = MinOfWarp(least);
    if (Team::Lane() == 0) Folds()[warp_] = least;
  }
  static HWY_INLINE float LeastTold() { return MinOfWarp(Team::Lane() < Warps() ? Folds()[Team::Lane()] : kInfinity<float>); }

  // Adds terms in the order of RoughSums, or of Sums. add(v, acc) adds those of a number to K sums; terms_of(v, terms) finds
  // them. After a barrier the first warp collects the sums.
  template <size_t K, class Add>
  HWY_INLINE void AddRoughly(const Add& add) const {
    ForBlocks([&](unsigned j) HWY_ATTR {
      V acc[K];
      for (V& sum : acc) sum = hn::Zero(D());
      ForNumbers(j, [&](unsigned m, unsigned) HWY_ATTR { add(hn::Set(D(), At(j, m)), acc); });
      Keep(j, acc);
    });
  }
  template <size_t K, class TermsOf>
  HWY_INLINE void AddTerms(const TermsOf& terms_of) const {
    ForBlocks([&](unsigned j) HWY_ATTR {
      V acc[4][K], sums[K];
      for (auto& of_four : acc) {
        for (V& sum : of_four) sum = hn::Zero(D());
      }
      ForNumbers(j, [&](unsigned m, unsigned of_four) HWY_ATTR {
        V terms[K];
        terms_of(hn::Set(D(), At(j, m)), terms);
        for (size_t k = 0; k < K; ++k) acc[of_four][k] = hn::Add(acc[of_four][k], terms[k]);
      });
      for (size_t k = 0; k < K; ++k) sums[k] = hn::Add(hn::Add(acc[0][k], acc[2][k]), hn::Add(acc[1][k], acc[3][k]));
      Keep(j, sums);
    });
  }

  // Writes of(v) for each number v.
  template <class Of>
  HWY_INLINE void Write(const cuda::Rows& rows, size_t r, const Of& of) const {
    const auto row = EntriesOf<S>(rows, r).From(first_);
    const bool whole = IsWhole();
    ForAll([&](unsigned j, unsigned m) HWY_ATTR {
      const unsigned at = Offset(j, m);
      if (whole || first_ + at < n_) row.Put(at, hn::GetLane(of(hn::Set(D(), At(j, m)))));
    });
  }

 private:
  static constexpr unsigned kOfWarp = 1024, kGroup = static_cast<unsigned>(cuda::kGroup);

  static HWY_INLINE unsigned Warps() { return Team::BlockThreads() / 32 - 1; }
  static HWY_INLINE float* Folds() { return reinterpret_cast<float*>(Team::Shared().folds); }

  static constexpr unsigned Offset(unsigned j, unsigned m) { return 512 * j + 16 * m; }
  // Whether no number of this warp is beyond the end.
  HWY_INLINE bool IsWhole() const { return first_ - Team::Lane() / 16 * 256 - Team::Lane() % 16 + kOfWarp <= n_; }

  // Loops that are not unrolled as a whole: a kernel with all numbers' terms one after the other, for each question, is too
  // long for the cache of instructions.
  template <class Visit>
  static HWY_INLINE void ForBlocks(const Visit& visit) {
    ISENTROPIC_ROLLED
    for (unsigned j = 0; j < 2; ++j) visit(j);
  }
  template <class Visit>
  static HWY_INLINE void ForAll(const Visit& visit) {
    ForBlocks([&](unsigned j) HWY_ATTR {
      ISENTROPIC_ROLLED
      for (unsigned m = 0; m < 16; m += 4) {
        ISENTROPIC_UNROLL
        for (unsigned k = 0; k < 4; ++k) visit(j, m + k);
      }
    });
  }
  // Calls visit(m, m mod 4) for the numbers of a block that are not beyond the end.
  template <class Visit>
  HWY_INLINE void ForNumbers(unsigned j, const Visit& visit) const {
    const unsigned end = IsWhole()                     ? 16
                         : first_ + Offset(j, 0) >= n_ ? 0
                                                       : HWY_MIN((n_ - first_ - Offset(j, 0) + 15) / 16, 16u);
    unsigned m = 0;
    ISENTROPIC_ROLLED
    for (; m + 4 <= end; m += 4) {
      ISENTROPIC_UNROLL
      for (unsigned k = 0; k < 4; ++k) visit(m + k, k);
    }
    ISENTROPIC_UNROLL
    for (unsigned k = 0; k < 3; ++k) {
      if (m + k < end) visit(m + k, k);
    }
  }

  template <size_t K>
  HWY_INLINE void Keep(unsigned j, const V (&sums)[K]) const {
    const unsigned block = warp_ * 4 + 2 * j + Team::Lane() / 16;
    float* const partial = reinterpret_cast<float*>(Team::Shared().partial);
    for (size_t k = 0; k < K; ++k) partial[(block * K + k) * 16 + Team::Lane() % 16] = hn::GetLane(sums[k]);
  }

  HWY_INLINE float& At(unsigned j, unsigned m) const { return mine_[32 * (16 * j + m)]; }

  unsigned warp_, first_, n_;
  float* mine_;
};

// By the first warp, after a barrier that follows LaneRow's sums: the sums of all, of terms of type T. `least` becomes the
// least of the blocks' leasts.
template <class T = float, size_t K>
HWY_INLINE void CollectSums(unsigned n, double (&sums)[K], float* least, Exchanges& exchanges) {
  const unsigned half = Team::Lane() / 16, lane = Team::Lane() % 16, group = static_cast<unsigned>(cuda::kGroup);
  const unsigned first = Team::BlockRank() * group, blocks = (HWY_MIN(n - first, group) + 255) / 256;
  const T* const partial = reinterpret_cast<const T*>(Team::Shared().partial);
  // Two sums are added at once, by half a warp each, and so are all pairs of them: each sum waits for its own terms alone.
  constexpr size_t kPairs = (K + 1) / 2;
  double totals[kPairs] = {};
  for (unsigned b = 0; b < blocks; ++b) {
    ISENTROPIC_UNROLL
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const size_t k = HWY_MIN(2 * pair + half, K - 1);
      totals[pair] += static_cast<double>(partial[(b * K + k) * 16 + lane]);
    }
  }
  double own[K + 1];
  ISENTROPIC_UNROLL
  for (size_t pair = 0; pair < kPairs; ++pair) {
    const double total = Team::FoldHalfWarp(totals[pair]);
    own[2 * pair] = Team::FromLane(total, 0);
    if (2 * pair + 1 < K) own[2 * pair + 1] = Team::FromLane(total, 16);
  }
  own[K] = static_cast<double>(*least);
  if (Team::Blocks() == 1) {
    for (size_t k = 0; k < K; ++k) sums[k] = own[k];
    return;
  }
  const double* const all = exchanges.ExchangeInWarp(own);
  for (size_t k = 0; k < K; ++k) sums[k] = Team::FoldHalfWarp(lane < Team::Blocks() ? all[k * Team::Blocks() + lane] : 0.0);
  for (unsigned b = 0; b < Team::Blocks(); ++b) {
    const float of_block = static_cast<float>(all[K * Team::Blocks() + b]);
    *least = of_block < *least ? of_block : *least;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

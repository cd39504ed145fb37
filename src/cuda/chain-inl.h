// A chain of steps over one row, and draws from the result, by a team of threads. src/sampling/chain-inl.h does this on the
// host, where the order of sums depends on whether survivors are packed. So survivors are packed here exactly when they are
// packed there.
#pragma once

#include <limits>

#include "src/cuda/block_maxima-inl.h"
#include "src/cuda/calls.h"
#include "src/maps/cut_softmax-inl.h"
#include "src/rows/entry-inl.h"
#include "src/rows/mass_cut-inl.h"
#include "src/sampling/noise-inl.h"
#include "src/sampling/steps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
class Chain {
 public:
  using D = RowTag<T>;
  using Index = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

  // Bytes for a row: the survivors, twice, and what the steps, the distribution after them and the draws need one after the
  // other.
  static size_t Memory(const cuda::SampleCall& call) {
    const size_t n = call.cols, blocks = MostBlocks(n), row = Arena::room<T>(n), wide = Arena::room<double>(n);
    size_t most = call.out.data == nullptr || call.hard ? 0 : wide;
    most = HWY_MAX(most, Arena::room<size_t>(blocks + 1) + Arena::room<double>(blocks));
    for (int s = 0; s < call.steps; ++s) most = HWY_MAX(most, MemoryOf(call.step[s].kind, n, row, wide));
    const size_t ahead = Arena::room<double>(blocks) + Arena::room<T>(blocks) + Arena::room<Index>(blocks);
    return 2 * (row + Arena::room<Index>(n)) + Arena::room<T>(blocks) + Arena::room<Index>(blocks) + ahead + most;
  }

  HWY_INLINE Chain(const T* x, size_t n, Arena memory) : Chain(x, n, &memory) { Survey(FindBlockMaxima()); }
  // For draws of which `noise` is that of the first. It is found while the row is read: it does not depend on the scores, and
  // the threads have nothing else to do then.
  HWY_INLINE Chain(const T* x, size_t n, Arena memory, const DrawNoise& noise) : Chain(x, n, &memory) {
    if (n > kFew) {
      ahead_ = {memory_.take<double>(most_blocks_), memory_.take<T>(most_blocks_), memory_.take<Index>(most_blocks_), x};
      Survey(BlockMaxima<true>(x, n, block_max_, ahead_, noise));
    } else {
      Survey(FindBlockMaxima());
    }
  }

  HWY_INLINE bool exist() const { return n_ > 0; }

  HWY_INLINE void Apply(const cuda::ChainStep& step) {
    switch (step.kind) {
      case cuda::ChainStep::temperature:
        return ApplyTemperature(step.first);
      case cuda::ChainStep::top_k:
        return TopK(static_cast<size_t>(step.count));
      case cuda::ChainStep::top_p:
        return TopP(step.first);
      case cuda::ChainStep::min_p:
        return Keep(Within(max_, temperature_ * LogNumber(step.first)));
      case cuda::ChainStep::typical_p:
        return TypicalP(step.first);
      case cuda::ChainStep::entropy:
        return Normalize(step.first);
      case cuda::ChainStep::entropy_clip: {
        const double entropy = EntropyAt(x_, n_, max_, temperature_);
        if (entropy < step.first) return Normalize(step.first);
        if (entropy > step.second) return Normalize(step.second);
      }
    }
  }

  HWY_INLINE void ApplyTemperature(double temperature) {
    temperature_ *= temperature;
    Rescale();
  }

  HWY_INLINE void Write(size_t n, T* p) {
    Arena memory = memory_;
    double* const e = memory.take<double>(n_);
    const double inverse = 1 / TermsOf(D64(), x_, n_, max_, temperature_, e);
    if (index_ != nullptr) FillRow(D(), T(0), n, p);
    ForEachVector(D(), n_,
                  [&](size_t i, size_t) HWY_ATTR { p[index_ == nullptr ? i : index_[i]] = static_cast<T>(e[i] * inverse); });
  }

  // Called before draws.
  HWY_INLINE void FindBlocks() {
    if (index_ == nullptr || n_ <= kFew) return;
    size_t* const begin = memory_.take<size_t>(most_blocks_ + 1);
    blocks_ = Team::Pack(
        n_, [&](size_t i) HWY_ATTR { return i == 0 || index_[i] / kNoiseBlock != index_[i - 1] / kNoiseBlock; },
        [&](size_t place, size_t i) HWY_ATTR { begin[place] = i; });
    SetEntry(begin, blocks_, n_);
    ForEachVector(D(), blocks_, [&](size_t b, size_t) HWY_ATTR {
      T max = x_[begin[b]];
      for (size_t i = begin[b] + 1; i < begin[b + 1]; ++i) max = HWY_MAX(max, x_[i]);
      block_max_[b] = max;
    });
    block_begin_ = begin;
  }

  // is_first: the noise is what was found while the row was read, if it was.
  HWY_NOINLINE int64_t Draw(const DrawNoise& noise, bool is_first) const {
    const D64 d;
    const double inverse = 1 / temperature_;
    const auto relative = [&](T x) HWY_ATTR { return Relative(x, inverse); };
    Best best;
    if (n_ <= kFew) {
      for (size_t i = Team::Rank(); i < n_; i += Team::Size()) Look(noise, inverse, i, best);
      return OfTeam(best).index;
    }
    const size_t blocks = index_ == nullptr ? MostBlocks(n_) : blocks_;
    Arena memory = memory_;
    const bool ahead = is_first && index_ == nullptr && x_ == ahead_.of;
    double* const bounds = ahead ? ahead_.smallest : memory.take<double>(blocks);
    // What wins has nearly always the smallest noise of its block. A score that is read is looked at when the noise of the next
    // block is known, because reading takes as long.
    if (ahead) {
      ForEachVector(d, blocks, [&](size_t b, size_t) HWY_ATTR {
        const double smallest = bounds[b];
        bounds[b] = relative(block_max_[b]) - smallest;
        if (ahead_.drawn[b] < n_) Consider(relative(ahead_.x[b]) - smallest, ahead_.drawn[b], best);
      });
    } else {
      T read = 0;
      double smallest = 0;
      size_t drawn = n_;
      ForEachVector(d, blocks, [&](size_t b, size_t) HWY_ATTR {
        size_t next_drawn;
        const double next = SmallestOf(noise, index_ == nullptr ? b : index_[block_begin_[b]] / kNoiseBlock, &next_drawn);
        bounds[b] = relative(block_max_[b]) - next;
        if (drawn < n_) Consider(relative(read) - smallest, drawn, best);
        if (index_ != nullptr) return;
        smallest = next, drawn = next_drawn;
        if (drawn < n_) read = x_[drawn];
      });
      if (drawn < n_) Consider(relative(read) - smallest, drawn, best);
    }
    size_t first = blocks;
    if (index_ != nullptr) {
      // The scores with the smallest noise may be gone. The most promising block shows what can win.
      first = FindEntry(bounds, blocks, RowMax(d, bounds, blocks));
      const size_t end = EndOf(first);
      for (size_t i = BeginOf(first) + Team::Rank(); i < end; i += Team::Size()) Look(noise, inverse, i, best);
    }
    best = OfTeam(best);
    const double least = best.key - 1e-12 * (1 + fabs(best.key));
    const size_t others = Team::Pack(
        blocks, [&](size_t b) HWY_ATTR { return b != first && bounds[b] >= least; },
        [&](size_t place, size_t b) HWY_ATTR { left_blocks_[place] = static_cast<Index>(b); });
    // A score's noise is at most the largest of its block.
    const auto index_of = [&](size_t j) HWY_ATTR { return BeginOf(left_blocks_[j / kNoiseBlock]) + j % kNoiseBlock; };
    Index* const looked_at = packed_index_[other_];
    struct Candidate {
      T x;
      double noise;
    };
    const size_t scores = Team::PackRead(
        others * kNoiseBlock,
        [&](size_t j) HWY_ATTR {
          const size_t b = left_blocks_[j / kNoiseBlock], at = index_of(j);
          return Candidate{at < EndOf(b) ? x_[at] : kNaN<T>, bounds[b] - relative(block_max_[b])};
        },
        [&](size_t, const Candidate& candidate) HWY_ATTR { return relative(candidate.x) + candidate.noise >= least; },
        [&](size_t place, size_t j) HWY_ATTR { looked_at[place] = static_cast<Index>(index_of(j)); });
    for (size_t j = Team::Rank(); j < scores; j += Team::Size()) Look(noise, inverse, looked_at[j], best);
    return OfTeam(best).index;
  }

 private:
  static constexpr size_t kFew = 256;

  static size_t MemoryOf(cuda::ChainStep::Kind kind, size_t n, size_t row, size_t wide) {
    switch (kind) {
      case cuda::ChainStep::top_k:
        return Arena::room<T>(LargestKScratch(n));
      case cuda::ChainStep::top_p:
        return Arena::room<T>(MassCutScratch(n)) + row;
      case cuda::ChainStep::typical_p:
        return 5 * row;
      case cuda::ChainStep::entropy:
      case cuda::ChainStep::entropy_clip:
        return Arena::room<T>(NarrowRow::Room(n)) + wide;
      default:
        return 0;
    }
  }

  HWY_INLINE Chain(const T* x, size_t n, Arena* memory) : x_(x), n_(n), most_blocks_(MostBlocks(n)) {
    for (size_t k = 0; k < 2; ++k) packed_[k] = memory->take<T>(n), packed_index_[k] = memory->take<Index>(n);
    block_max_ = memory->take<T>(most_blocks_);
    left_blocks_ = memory->take<Index>(most_blocks_);
    memory_ = *memory;
  }

  struct Best {
    double key = -kInfinity<double>;
    int64_t index = std::numeric_limits<int64_t>::max();
  };

  // The best of all threads; of equal ones, the one with the lowest index.
  static HWY_INLINE Best OfTeam(Best best) {
    const double key = Team::Fold(best.key, -kInfinity<double>, [](double a, double b) { return a > b ? a : b; });
    const int64_t mine = best.key == key ? best.index : std::numeric_limits<int64_t>::max();
    return {key, Team::Fold(mine, std::numeric_limits<int64_t>::max(), [](int64_t a, int64_t b) { return a < b ? a : b; })};
  }

  HWY_INLINE double Relative(T x, double inverse) const {
    return (static_cast<double>(x) - static_cast<double>(max_)) * inverse;
  }

  HWY_INLINE void Look(const DrawNoise& noise, double inverse, size_t i, Best& best) const {
    const uint64_t at = index_ == nullptr ? i : index_[i];
    Consider(Relative(x_[i], inverse) - LogOf(noise, at), at, best);
  }
  static HWY_NOINLINE double LogOf(const DrawNoise& noise, uint64_t at) {
    return hn::GetLane(Log(D64(), noise.Of(hn::Set(hn::RebindToUnsigned<D64>(), at))));
  }
  static HWY_INLINE void Consider(double key, uint64_t at, Best& best) {
    const int64_t index = static_cast<int64_t>(at);
    if (key > best.key || (key == best.key && index < best.index)) best = {key, index};
  }

  HWY_INLINE size_t BeginOf(size_t block) const { return index_ == nullptr ? block * kNoiseBlock : block_begin_[block]; }
  HWY_INLINE size_t EndOf(size_t block) const {
    return index_ == nullptr ? HWY_MIN((block + 1) * kNoiseBlock, n_) : block_begin_[block + 1];
  }

  HWY_INLINE bool FindBlockMaxima() { return BlockMaxima<false>(x_, n_, block_max_, ahead_, DrawNoise({})); }
  HWY_INLINE void Survey(bool nan) {
    max_ = RowMax(D(), block_max_, most_blocks_);
    if (!nan && IsFinite(max_)) return;
    if (nan || max_ < 0) {
      n_ = 0;
    } else {
      // +inf scores are equally likely, so they become equal scores.
      max_ = 0;
      PackAs(T(0), [&](size_t i) HWY_ATTR { return x_[i] == kInfinity<T>; });
    }
  }

  // Packs the chosen scores, unchanged or all with one value.
  template <class Chosen>
  HWY_INLINE void PackAs(T value, const Chosen& chosen, bool as_they_are = false) {
    T* const to = packed_[other_];
    Index* const to_index = packed_index_[other_];
    n_ = Team::Pack(n_, chosen, [&](size_t place, size_t i) HWY_ATTR {
      to[place] = as_they_are ? x_[i] : value;
      to_index[place] = index_ == nullptr ? static_cast<Index>(i) : index_[i];
    });
    x_ = to, index_ = to_index, other_ = 1 - other_;
  }

  // Packs the scores that `keeps` chooses, all of which are at least `least`. Only blocks with such scores are read.
  template <class Keeps>
  HWY_INLINE void PackOfBlocks(T least, const Keeps& keeps) {
    const size_t blocks = Team::Pack(
        most_blocks_, [&](size_t b) HWY_ATTR { return block_max_[b] >= least; },
        [&](size_t place, size_t b) HWY_ATTR { left_blocks_[place] = static_cast<Index>(b); });
    T* const to = packed_[other_];
    Index* const to_index = packed_index_[other_];
    const auto index_of = [&](size_t j) HWY_ATTR { return left_blocks_[j / kNoiseBlock] * kNoiseBlock + j % kNoiseBlock; };
    n_ = Team::Pack(
        blocks * kNoiseBlock,
        [&](size_t j) HWY_ATTR {
          const size_t i = index_of(j);
          return i < n_ && keeps(i);
        },
        [&](size_t place, size_t j) HWY_ATTR {
          const size_t i = index_of(j);
          to[place] = x_[i], to_index[place] = static_cast<Index>(i);
        });
    x_ = to, index_ = to_index, other_ = 1 - other_;
  }

  HWY_NOINLINE void Flatten() {
    max_ = 0, temperature_ = 1;
    PackAs(T(0), [&](size_t i) HWY_ATTR { return x_[i] != -kInfinity<T>; });
  }

  // As on the host: if many scores of a row survive, they stay in their places and the others become absent.
  template <class Keeps>
  HWY_INLINE void Keep(T least, const Keeps& keeps) {
    const D d;
    const size_t blocks = MostBlocks(n_);
    if (index_ != nullptr) return PackAs(T(0), keeps, true);
    const bool few = n_ <= kFew || CountAtLeast(d, block_max_, blocks, least) <= blocks / 2;
    if (few || CountAtLeast(d, x_, n_, least) <= n_ / 8) return PackOfBlocks(least, keeps);
    T* const to = packed_[other_];
    ForEachVector(d, n_, [&](size_t i, size_t) HWY_ATTR { to[i] = keeps(i) ? x_[i] : -kInfinity<T>; });
    x_ = to, other_ = 1 - other_;
    FindBlockMaxima();
  }

  HWY_NOINLINE void Keep(Cut<T> cut) {
    Keep(cut.least, [&](size_t i) HWY_ATTR { return cut.Keeps(D(), hn::LoadU(D(), x_ + i), i).raw; });
  }

  HWY_INLINE void Rescale() {
    if (IsExtremeTemperature<T>(temperature_)) RescaleExtreme();
  }
  HWY_NOINLINE void RescaleExtreme() {
    temperature_ =
        HWY_MAX(std::numeric_limits<double>::denorm_min(), HWY_MIN(temperature_, std::numeric_limits<double>::max()));
    constexpr auto kScores = KernelsOf<Softmax, T>::kScores;
    const auto row = PrepareRow(D(), kScores, Softmax{.temperature = temperature_}, x_, n_, packed_[other_]);
    if (row.x == packed_[other_]) {
      // The scores move to the free buffer, their indices stay where they are.
      T* const free = packed_[1 - other_];
      packed_[1 - other_] = packed_[other_], packed_[other_] = free;
    }
    x_ = row.x, max_ = row.max, temperature_ = row.op.temperature;
    if (index_ == nullptr) FindBlockMaxima();
  }

  // Each of the k blocks with the largest maxima has a score that reaches the least of these maxima. So the k largest scores
  // reach it too, and a few blocks have all that do: the rest of the row is not read again.
  HWY_INLINE void PackCandidates(size_t k) {
    const size_t blocks = MostBlocks(n_);
    if (index_ != nullptr || n_ <= kFew || k >= blocks) return;
    Arena memory = memory_;
    const T least = LargestK(D(), block_max_, blocks, k, memory.take<T>(LargestKScratch(blocks))).least;
    if (CountAtLeast(D(), block_max_, blocks, least) > blocks / 2) return;  // the host may leave the survivors in their places
    PackOfBlocks(least, [&](size_t i) HWY_ATTR { return x_[i] >= least; });
  }

  HWY_INLINE void TopK(size_t k) {
    PackCandidates(k);
    if (k >= n_) return;
    Arena memory = memory_;
    Keep(LargestK(D(), x_, n_, k, memory.take<T>(LargestKScratch(n_))));
  }

  HWY_INLINE void TopP(double p) {
    if (p == 1) return;
    Arena memory = memory_;
    T *const scratch = memory.take<T>(MassCutScratch(n_)), *const e = memory.take<T>(n_);
    const double total = TermsOf(D(), x_, n_, max_, temperature_, e);
    const MassCut<T> found = CutRowByMass(D(), e, n_, total, p, scratch);
    if (found.kept > 0) Keep(LargestOfEqualMass(D(), x_, e, n_, found, scratch));
  }

  HWY_NOINLINE void TypicalP(double p) {
    if (p == 1) return;
    Arena memory = memory_;
    T* const all = memory.take<T>(n_);
    T* const mass[2] = {memory.take<T>(n_), memory.take<T>(n_)};
    T* const distance[2] = {memory.take<T>(n_), memory.take<T>(n_)};
    const double total = TermsOf(D(), x_, n_, max_, temperature_, mass[0]), mean = MeanScoreOf(x_, n_, max_, mass[0]) / total;
    const double center = static_cast<double>(max_) + mean;
    ForEachVector(D(), n_,
                  [&](size_t i, size_t) HWY_ATTR { all[i] = static_cast<T>(fabs(static_cast<double>(x_[i]) - center)); });
    CopyRow(all, n_, distance[0]);
    size_t ties;
    const T within = WithinMass(mass, distance, p * total, &ties);
    const size_t end = EndOfFirst(D(), all, n_, within, ties);
    Keep(-kInfinity<T>,
         [&](size_t i) HWY_ATTR { return (all[i] < within || (all[i] == within && i < end)) && x_[i] > -kInfinity<T>; });
    max_ = RowMax(D(), x_, n_);
  }

  HWY_INLINE T WithinMass(T* const (&masses)[2], T* const (&distances)[2], double target, size_t* ties) const {
    const D d;
    using O = Ordered<T>;
    double reached = 0;
    size_t n = n_, now = 0;
    const auto pack = [&](T low, T high) HWY_ATTR {
      const T *const mass = masses[now], *const distance = distances[now];
      T *const to_mass = masses[1 - now], *const to_distance = distances[1 - now];
      n = Team::Pack(
          n, [&](size_t i) HWY_ATTR { return mass[i] > T(0) && distance[i] > low && distance[i] <= high; },
          [&](size_t place, size_t i) HWY_ATTR { to_mass[place] = mass[i], to_distance[place] = distance[i]; });
      now = 1 - now;
    };
    pack(-1, std::numeric_limits<T>::max());
    for (;;) {
      const T *const mass = masses[now], *const distance = distances[now];
      T low = distance[0], high = distance[0];
      RowRange(d, distance, n, low, high);
      if (low == high) {
        *ties = 0;
        while (*ties < n && (*ties == 0 || reached < target)) reached += static_cast<double>(mass[(*ties)++]);
        return low;
      }
      auto from = O::From(low) - 1, to = O::From(high);
      double nearer = 0;
      for (int step = 0; step < 3 && to - from > 1; ++step) {
        const auto middle = from + (to - from) / 2;
        const T limit = O::To(middle);
        const double inside =
            Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return hn::Set(d, distance[i] <= limit ? mass[i] : T(0)); });
        if (reached + inside >= target) {
          to = middle;
        } else {
          nearer = inside;
          from = middle;
        }
      }
      reached += nearer;
      pack(O::To(from), O::To(to));
    }
  }

  HWY_NOINLINE void Normalize(double entropy) {
    const ChainTarget target = TargetOf(x_, n_, max_, entropy, memory_);
    if (target.kind == ChainTarget::as_it_is) return;
    if (target.kind == ChainTarget::equal_scores) return Flatten();
    if (target.kind == ChainTarget::only_largest) return Keep(Cut<T>{max_, n_});
    if (target.kind == ChainTarget::replaced) {
      T* const to = packed_[other_];
      Index* const to_index = packed_index_[other_];
      ForEachVector(D(), n_, [&](size_t i, size_t) HWY_ATTR {
        to_index[i] = index_ == nullptr ? static_cast<Index>(i) : index_[i];
        to[i] = static_cast<T>(LogNumber(target.e[i]));
      });
      x_ = to, index_ = to_index, other_ = 1 - other_;
      max_ = 0;
    }
    temperature_ = 1 / target.gamma;
    Rescale();
  }

  const T* x_;
  const Index* index_ = nullptr;  // null: all of the row
  size_t n_, most_blocks_;
  T max_;
  double temperature_ = 1;
  T* packed_[2];
  Index* packed_index_[2];
  size_t other_ = 0;  // the free one of the two buffers
  T* block_max_;
  Index* left_blocks_;
  Arena memory_;  // the rest of the memory
  const size_t* block_begin_ = nullptr;
  size_t blocks_ = 0;
  NoiseAhead<T, Index> ahead_ = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// A chain of steps over one row. After each step the distribution is softmax(x / temperature) over the surviving scores, so a
// step changes the temperature or packs the survivors closer. Survivors stay in the order of their indices, so that of equal
// scores the first has the lowest index, and every step treats them as a row. The order of sums depends on whether survivors
// are packed, which is decided here for the host and for devices.

#if defined(ISENTROPIC_SAMPLING_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_CHAIN_INL_H_
#undef ISENTROPIC_SAMPLING_CHAIN_INL_H_
#else
#define ISENTROPIC_SAMPLING_CHAIN_INL_H_
#endif

#include <limits>

#include "isentropic/sampling.h"
#include "src/maps/cut_softmax-inl.h"
#include "src/maps/scores-inl.h"
#include "src/rows/entry-inl.h"
#include "src/rows/mass_cut-inl.h"
#include "src/sampling/blocks-inl.h"
#include "src/sampling/noise-inl.h"
#include "src/sampling/steps-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Draws look at all of so few scores, and at blocks of more.
inline constexpr size_t kFewScores = 256;

// What a chain leaves to draws.
template <class T>
struct LeftScores {
  // An index has the width of a score, so that both are packed in the same way.
  using Index = hwy::MakeUnsigned<T>;

  const T* x;
  const Index* index;  // null: all of the row
  size_t n;
  T max;
  double temperature;
  size_t blocks;  // of more than kFewScores
  const T* block_max;
  const size_t* block_begin;        // where packed survivors of a block begin
  Index *free_blocks, *free_index;  // room for numbers of blocks; and, if there are two buffers, for indices
  Arena memory;

  HWY_INLINE size_t IndexOf(size_t i) const { return index == nullptr ? i : index[i]; }
  HWY_INLINE size_t BeginOf(size_t block) const { return index == nullptr ? block * kNoiseBlock : block_begin[block]; }
  HWY_INLINE size_t EndOf(size_t block) const {
    return index == nullptr ? HWY_MIN((block + 1) * kNoiseBlock, n) : block_begin[block + 1];
  }
};

template <class T>
class Chain {
 public:
  using D = RowTag<T>;
  using U = hn::RebindToUnsigned<D>;
  using Index = typename LeftScores<T>::Index;

  // Bytes for a row of n: the packed scores, a vector at a time, and the memory of the steps, the distribution and the draws,
  // which share it. `most`: the most that one of the first two needs.
  static size_t Memory(size_t n, size_t most) {
    const size_t blocks = NoiseBlocks(n), draws = Arena::room<size_t>(blocks + 1) + Arena::room<double>(blocks);
    return kChainBuffers * (Arena::room<T>(n + 16) + Arena::room<Index>(n + 16)) + Arena::room<T>(blocks) +
           Arena::room<Index>(blocks) + HWY_MAX(most, draws);
  }
  static HWY_INLINE size_t MemoryOfWrite(size_t n) { return Arena::room<double>(n); }
  template <class Step>
  static HWY_INLINE size_t MemoryOf(const Step& /*op*/, size_t /*n*/) {
    return 0;
  }
  static HWY_INLINE size_t MemoryOf(const step::TopK& /*op*/, size_t n) { return Arena::room<T>(LargestKScratch(n)); }
  static HWY_INLINE size_t MemoryOf(const step::TopP& /*op*/, size_t n) {
    return Arena::room<T>(MassCutScratch(n)) + Arena::room<T>(n);
  }
  static HWY_INLINE size_t MemoryOf(const step::TypicalP& /*op*/, size_t n) {
    return (1 + 2 * kChainBuffers) * Arena::room<T>(n + 16);
  }
  static HWY_INLINE size_t MemoryOf(const step::Entropy& /*op*/, size_t n) {
    return Arena::room<double>(n) + Arena::room<T>(NarrowRow::Room(n));
  }
  static HWY_INLINE size_t MemoryOf(const step::EntropyClip& /*op*/, size_t n) { return MemoryOf(step::Entropy(), n); }

  // A chain over all n scores of a row. find_maxima(x, n, block_max) is BlockMaxima, and may find more in the same pass.
  template <class FindMaxima>
  HWY_INLINE Chain(const T* x, size_t n, Arena memory, const FindMaxima& find_maxima)
      : x_(x), n_(n), most_blocks_(NoiseBlocks(n)) {
    for (size_t k = 0; k < kChainBuffers; ++k) {
      packed_[k] = memory.take<T>(n + 16);
      packed_index_[k] = memory.take<Index>(n + 16);
    }
    block_max_ = memory.take<T>(most_blocks_);
    left_blocks_ = memory.take<Index>(most_blocks_);
    memory_ = memory;
    const bool nan = find_maxima(x, n, block_max_);
    max_ = RowMax(D(), block_max_, most_blocks_);
    if (HWY_LIKELY(!nan && IsFinite(max_))) return;
    if (nan || max_ < 0) {
      n_ = 0;
    } else {
      // +inf scores are equally likely.
      PackEqual([](T xi) HWY_ATTR { return xi == kInfinity<T>; });
    }
  }

  // Whether there is a distribution.
  HWY_INLINE bool exist() const { return n_ > 0; }

  HWY_INLINE void Apply(const step::Temperature& op) {
    temperature_ *= op.temperature;
    Rescale();
  }

  HWY_INLINE void Apply(const step::TopK& op) {
    if (static_cast<uint64_t>(op.k) >= n_) return;
    const size_t k = static_cast<size_t>(op.k);
    PackCandidates(k);
    if (k == n_) return;
    Keep(Largest(x_, n_, k));
  }

  HWY_INLINE void Apply(const step::TopP& op) {
    if (op.p == 1) return;
    Arena memory = memory_;
    T *const scratch = memory.take<T>(MassCutScratch(n_)), *const e = memory.take<T>(n_);
    const double total = TermsOf(D(), x_, n_, max_, temperature_, e);
    const MassCut<T> found = CutRowByMass(D(), e, n_, total, op.p, scratch);
    if (found.kept > 0) Keep(LargestOfEqualMass(D(), x_, e, n_, found, scratch));
  }

  HWY_INLINE void Apply(const step::MinP& op) { Keep(Within(max_, temperature_ * LogNumber(op.p))); }

  // |-log p - H| is the distance of a score from the mean score under p, divided by the temperature. The least distance within
  // which the mass lies is found by bisection; of the scores at exactly that distance the first few are kept.
  HWY_NOINLINE void Apply(const step::TypicalP& op) {
    if (op.p == 1) return;
    const D d;
    const D64 d64;
    Arena memory = memory_;
    T* const all = memory.take<T>(n_ + 16);  // distances, for use after the search has packed the others
    Buffers masses, distances;
    for (size_t k = 0; k < kChainBuffers; ++k) {
      masses.of[k] = memory.take<T>(n_ + 16);
      distances.of[k] = memory.take<T>(n_ + 16);
    }
    const double total = TermsOf(d, x_, n_, max_, temperature_, masses.of[0]);
    const double mean = MeanScoreOf(x_, n_, max_, masses.of[0]) / total;
    const V64 center = hn::Set(d64, static_cast<double>(max_) + mean);
    ForEachVector(d64, n_, [&](size_t i, size_t count) HWY_ATTR {
      const V64 away = hn::Abs(hn::Sub(LoadIn(d64, x_ + i, count, T(0)), center));
      StoreNarrow(away, d64, count, all + i);
    });
    CopyRow(all, n_, distances.of[0]);
    const auto [within, ties] = WithinMass(masses, distances, n_, op.p * total);
    // The end of the kept scores at that distance.
    const size_t end = EndOfFirst(d, all, n_, within, ties);
    const auto limit = hn::Set(d, within);
    Keep(-kInfinity<T>, [&](hn::Vec<D> x, size_t i, size_t count) HWY_ATTR {
      const auto away = LoadUpTo(d, all + i, count, kInfinity<T>);
      const auto tie = hn::And(hn::Eq(away, limit), hn::FirstN(d, i < end ? HWY_MIN(end - i, hn::Lanes(d)) : 0));
      return hn::And(hn::Or(hn::Lt(away, limit), tie), hn::Gt(x, hn::Set(d, -kInfinity<T>)));
    });
    max_ = RowMax(d, x_, n_);
  }

  HWY_INLINE void Apply(const step::Entropy& op) { Normalize(op.entropy); }

  HWY_INLINE void Apply(const step::EntropyClip& op) {
    const double entropy = EntropyAt(x_, n_, max_, temperature_);
    if (entropy < op.min_entropy) {
      Normalize(op.min_entropy);
    } else if (entropy > op.max_entropy) {
      Normalize(op.max_entropy);
    }
  }

  // The distribution over the row of n scores.
  HWY_INLINE void Write(size_t n, T* p) {
    Arena memory = memory_;
    double* const e = memory.take<double>(n_);
    const double inverse = 1 / TermsOf(D64(), x_, n_, max_, temperature_, e);
    const Index* const index = index_;
    if (index == nullptr) return ForEachEntry(n, [&](size_t i) HWY_ATTR { p[i] = static_cast<T>(e[i] * inverse); });
    FillRow(D(), T(0), n, p);
    ForEachEntry(n_, [&](size_t i) HWY_ATTR { p[index[i]] = static_cast<T>(e[i] * inverse); });
  }

  // What is left, for draws: the packed survivors of a block of noise are represented by their maximum.
  HWY_INLINE LeftScores<T> Left() {
    const bool packed = index_ != nullptr && n_ > kFewScores;
    size_t* const begin = packed ? memory_.take<size_t>(most_blocks_ + 1) : nullptr;
    size_t blocks = NoiseBlocks(n_);
    if (packed) {
      blocks = PackEntries(
          n_, [&](size_t i) HWY_ATTR { return i == 0 || index_[i] / kNoiseBlock != index_[i - 1] / kNoiseBlock; },
          [&](size_t place, size_t i) HWY_ATTR { begin[place] = i; });
      SetEntry(begin, blocks, n_);
      ForEachEntry(blocks, [&](size_t b) HWY_ATTR {
        T max = x_[begin[b]];
        for (size_t i = begin[b] + 1; i < begin[b + 1]; ++i) max = HWY_MAX(max, x_[i]);
        block_max_[b] = max;
      });
    }
    return {x_, index_, n_, max_, temperature_, blocks, block_max_, begin, left_blocks_, packed_index_[other_], memory_};
  }

 private:
  // From here on the survivors are those that have been packed into the free buffer.
  HWY_INLINE void TakePacked(size_t kept) {
    x_ = packed_[other_], index_ = packed_index_[other_], n_ = kept;
    other_ = Next(other_);
  }
  static HWY_INLINE size_t Next(size_t buffer) { return (buffer + 1) % kChainBuffers; }

  // Packs the scores with chosen(x) and makes them equal.
  template <class Chosen>
  HWY_NOINLINE void PackEqual(const Chosen& chosen) {
    const T* const x = x_;
    const Index* const index = index_;
    T* const to = packed_[other_];
    Index* const to_index = packed_index_[other_];
    max_ = 0;
    TakePacked(PackEntries(
        n_, [&](size_t i) HWY_ATTR { return chosen(x[i]); },
        [&](size_t place, size_t i) HWY_ATTR {
          to_index[place] = index == nullptr ? static_cast<Index>(i) : index[i];
          to[place] = 0;
        }));
  }

  // Packs the scores in the mask keeps(x, i, count) of each vector. Scores below `least` are never kept.
  //
  // If many scores of a row survive, they stay in their places and the others become absent; then no index is needed.
  template <class Keeps>
  HWY_INLINE void Keep(T least, const Keeps& keeps) {
    const D d;
    const size_t blocks = NoiseBlocks(n_);
    const bool few = index_ != nullptr || n_ <= kFewScores || CountAtLeast(d, block_max_, blocks, least) <= blocks / 2;
    if (few || CountAtLeast(d, x_, n_, least) <= n_ / 8) return Pack(least, keeps);
    T* const to = packed_[other_];
    ForEachVector(d, n_, [&](size_t i, size_t count) HWY_ATTR {
      const auto xi = LoadUpTo(d, x_ + i, count, -kInfinity<T>);
      StoreUpTo(hn::IfThenElse(keeps(xi, i, count), xi, hn::Set(d, -kInfinity<T>)), d, count, to + i);
    });
    x_ = to, other_ = Next(other_);
    BlockMaxima(x_, n_, block_max_);
  }

  HWY_NOINLINE void Keep(Cut<T> cut) {
    Keep(cut.least, [&](hn::Vec<D> x, size_t i, size_t /*count*/) HWY_ATTR { return cut.Keeps(D(), x, i); });
  }

  template <class Keeps>
  HWY_INLINE void Pack(T least, const Keeps& keeps) {
    const D d;
    const U u;
    T* const to = packed_[other_];
    Index* const to_index = packed_index_[other_];
    if (index_ == nullptr) {
      return TakePacked(PackOfBlocks(d, u, n_, block_max_, least, left_blocks_, to, to_index,
                                     [&](size_t i, size_t count, hn::Vec<D>& x, hn::Vec<U>& index) HWY_ATTR {
                                       x = LoadUpTo(d, x_ + i, count, -kInfinity<T>);
                                       index = hn::Add(hn::Iota(u, Index{0}), hn::Set(u, static_cast<Index>(i)));
                                       return keeps(x, i, count);
                                     }));
    }
    TakePacked(PackPairs(d, u, n_, to, to_index, [&](size_t i, size_t count, hn::Vec<D>& x, hn::Vec<U>& index) HWY_ATTR {
      x = LoadUpTo(d, x_ + i, count, -kInfinity<T>);
      index = LoadUpTo(u, index_ + i, count, Index{0});
      return keeps(x, i, count);
    }));
  }

  HWY_NOINLINE Cut<T> Largest(const T* x, size_t n, size_t k) const {
    Arena memory = memory_;
    return LargestK(D(), x, n, k, memory.take<T>(LargestKScratch(n)));
  }

  // Each of the k blocks with the largest maxima has a score that reaches the least of these maxima. So the k largest scores
  // reach it too, and a few blocks have all that do: the rest of the row is not read again.
  HWY_INLINE void PackCandidates(size_t k) {
    const D d;
    const size_t blocks = NoiseBlocks(n_);
    if (index_ != nullptr || n_ <= kFewScores || k >= blocks) return;
    const T least = Largest(block_max_, blocks, k).least;
    if (CountAtLeast(d, block_max_, blocks, least) > blocks / 2) return;  // the survivors may stay in their places
    const auto limit = hn::Set(d, least);
    Pack(least, [&](hn::Vec<D> x, size_t /*i*/, size_t /*count*/) HWY_ATTR { return hn::Ge(x, limit); });
  }

  // Scales scores that the temperature would take out of T's range.
  HWY_INLINE void Rescale() {
    if (HWY_UNLIKELY(IsExtremeTemperature<T>(temperature_))) RescaleExtreme();
  }
  HWY_NOINLINE void RescaleExtreme() {
    temperature_ =
        HWY_MAX(std::numeric_limits<double>::denorm_min(), HWY_MIN(temperature_, std::numeric_limits<double>::max()));
    constexpr auto kScores = KernelsOf<Softmax, T>::kScores;
    T* const to = packed_[other_];
    const auto row = PrepareRow(D(), kScores, Softmax{.temperature = temperature_}, x_, n_, to);
    if (row.x == to) {
      // The scores have moved to the free buffer; their indices stay where they are.
      packed_[other_] = packed_[Next(other_)], packed_[Next(other_)] = to;
    }
    x_ = row.x, max_ = row.max, temperature_ = row.op.temperature;
    if (index_ == nullptr) BlockMaxima(x_, n_, block_max_);
  }

  struct Buffers {
    T* of[kChainBuffers];
  };
  struct Distance {
    T within;
    size_t ties;  // number of scores needed at that distance, in order
  };

  // The least distance within which masses reach `target`, and the number of scores needed at it. All arrays are overwritten
  // and have room for n + 16.
  static HWY_INLINE Distance WithinMass(const Buffers& masses, const Buffers& distances, size_t n, double target) {
    const D d;
    using O = Ordered<T>;
    double reached = 0;
    size_t now = 0;
    // Packs those with a mass and a distance in (low, high].
    const auto pack = [&](T low, T high) HWY_ATTR {
      const T *const mass = masses.of[now], *const distance = distances.of[now];
      const auto above = hn::Set(d, low), limit = hn::Set(d, high);
      now = Next(now);
      n = PackPairs(d, d, n, masses.of[now], distances.of[now],
                    [&](size_t i, size_t count, hn::Vec<D>& m, hn::Vec<D>& away) HWY_ATTR {
                      m = LoadUpTo(d, mass + i, count, T(0)), away = LoadUpTo(d, distance + i, count, T(0));
                      return hn::And(hn::Gt(m, hn::Zero(d)), hn::And(hn::Gt(away, above), hn::Le(away, limit)));
                    });
    };
    // Scores without mass are not needed.
    pack(-1, std::numeric_limits<T>::max());
    for (;;) {
      const T *const mass = masses.of[now], *const distance = distances.of[now];
      T low = distance[0], high = distance[0];
      RowRange(d, distance, n, low, high);
      if (low == high) {
        size_t ties = 0;
        while (ties < n && (ties == 0 || reached < target)) reached += static_cast<double>(mass[ties++]);
        return {low, ties};
      }
      auto from = O::From(low) - 1, to = O::From(high);
      double nearer = 0;
      for (int step = 0; step < 3 && to - from > 1; ++step) {
        const auto middle = from + (to - from) / 2;
        const auto limit = hn::Set(d, O::To(middle));
        const double inside = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
          const auto m = LoadUpTo(d, mass + i, count, T(0));
          return hn::IfThenElseZero(hn::Le(LoadUpTo(d, distance + i, count, T(0)), limit), m);
        });
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

  // Sets the temperature that gives the entropy, or takes the nearest possible distribution.
  HWY_NOINLINE void Normalize(double entropy) {
    const ChainTarget target = TargetOf(x_, n_, max_, entropy, memory_);
    if (target.kind == ChainTarget::as_it_is) return;
    if (target.kind == ChainTarget::equal_scores) {
      temperature_ = 1;
      return PackEqual([](T xi) HWY_ATTR { return xi != -kInfinity<T>; });
    }
    if (target.kind == ChainTarget::only_largest) return Keep(Cut<T>{max_, n_});
    if (target.kind == ChainTarget::replaced) {
      T* const to = packed_[other_];
      Index* const to_index = packed_index_[other_];
      ForEachEntry(n_, [&](size_t i) HWY_ATTR {
        to_index[i] = index_ == nullptr ? static_cast<Index>(i) : index_[i];
        to[i] = static_cast<T>(LogNumber(target.e[i]));
      });
      max_ = 0;
      TakePacked(n_);
    }
    temperature_ = 1 / target.gamma;
    Rescale();
  }

  const T* x_;
  const Index* index_ = nullptr;  // null: all of the row
  size_t n_, most_blocks_;
  T max_;
  double temperature_ = 1;
  T *packed_[kChainBuffers], *block_max_;
  Index *packed_index_[kChainBuffers], *left_blocks_;
  size_t other_ = 0;  // the free buffer
  Arena memory_;      // the rest of the memory
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_CHAIN_INL_H_

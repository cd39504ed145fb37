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

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "isentropic/sampling.h"
#include "src/maps/cut_softmax-inl.h"
#include "src/maps/scores-inl.h"
#include "src/rows/entry-inl.h"
#include "src/rows/mass_cut-inl.h"
#include "src/sampling/blocks-inl.h"
#include "src/sampling/noise-inl.h"
#include "src/sampling/row_text.h"
#include "src/sampling/steps-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Draws look at all scores up to this number, and at blocks of more.
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

  // Bytes for a row of n: the packed scores, a vector at a time, the memory of the draws, and that of the steps and the
  // distribution, which share it. `most`: the most that one of these needs.
  static size_t Memory(size_t n, size_t most) {
    const size_t blocks = NoiseBlocks(n), draws = Arena::room<size_t>(blocks + 1) + Arena::room<double>(blocks);
    return kChainBuffers * (Arena::room<T>(n + 16) + Arena::room<Index>(n + 16)) + Arena::room<T>(blocks) +
           Arena::room<Index>(blocks) + most + draws;
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
  static HWY_INLINE size_t MemoryOf(const step::Xtc& /*op*/, size_t n) {
    return Arena::room<T>(n + 16) + Arena::room<Index>(n + 16);
  }
  static HWY_INLINE size_t MemoryOf(const step::TopH& /*op*/, size_t n) {
    return (1 + 2 * kChainBuffers) * Arena::room<T>(n + 16) + Arena::room<Index>(n + 16);
  }
  static HWY_INLINE size_t MemoryOf(const step::Penalties& /*op*/, size_t n) { return Arena::room<uint32_t>(n); }
  static HWY_INLINE size_t MemoryOf(const step::Dry& /*op*/, size_t n) { return Arena::room<uint32_t>(n); }

  // A chain over all n scores of a row. find_maxima(x, n, block_max) is BlockMaxima, and may find more in the same pass.
  template <class FindMaxima>
  HWY_INLINE Chain(const T* x, size_t n, Arena memory, const FindMaxima& find_maxima)
      : x_(x), n_(n), row_(n), most_blocks_(NoiseBlocks(n)) {
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
      // +inf scores are equally likely, whatever is subtracted from them.
      infinite_ = true;
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

  HWY_INLINE void Apply(const step::Epsilon& op) { KeepAbove(LogNumber(op.epsilon), MassOf(x_, n_, max_, temperature_)); }

  HWY_INLINE void Apply(const step::Eta& op) {
    double sums[2];
    EntropySums(x_, n_, max_, temperature_, sums);
    const double log = LogNumber(op.epsilon);
    KeepAbove(HWY_MIN(log, 0.5 * log - EntropyOf(sums)), sums[0]);
  }

  HWY_INLINE void Apply(const step::PLess& /*op*/) {
    double sums[2];
    MassSums(x_, n_, max_, temperature_, sums);
    KeepAbove(LogNumber(sums[1]) - 2 * LogNumber(sums[0]), sums[0]);
  }

  HWY_INLINE void Apply(const step::TopNSigma& op) { Keep(Within(max_, -op.n * DeviationOf(x_, n_, max_))); }

  // The largest scores are packed, those within a distance that is doubled until their entropy exceeds the target: then the cut
  // is among them. It is found by bisection over the numbers between the smallest and the largest.
  HWY_NOINLINE void Apply(const step::TopH& op) {
    if (op.share == 1) return;
    const D d;
    const double target = op.share * EntropyAt(x_, n_, max_, temperature_);
    Arena memory = memory_;
    Buffers scores, masses;
    for (size_t k = 0; k < kChainBuffers; ++k) {
      scores.of[k] = memory.take<T>(n_ + 16);
      masses.of[k] = memory.take<T>(n_ + 16);
    }
    Index* const places = memory.take<Index>(n_ + 16);
    size_t m = 0;
    double sums[2], reach = 4;
    do {
      if (reach > 4096) return;  // what is farther has no mass
      m = PackReaching(Within(max_, -reach * temperature_).least, scores.of[0], places);
      EntropySums(scores.of[0], m, max_, temperature_, sums);
      reach *= 2;
    } while (!(EntropyOf(sums) > target));
    TermsOf(d, scores.of[0], m, max_, temperature_, masses.of[0]);
    Keep(CutByEntropy(scores, masses, m, target));
  }

  HWY_NOINLINE void Apply(const step::Xtc& op) {
    if (!Acts(op.probability)) return;
    const D d;
    const double reach = temperature_ * LogNumber(op.threshold * MassOf(x_, n_, max_, temperature_));
    if (!(reach <= 0)) return;  // none reaches the threshold
    const T least = Within(max_, reach).least;
    Arena memory = memory_;
    T* const top = memory.take<T>(n_ + 16);
    Index* const places = memory.take<Index>(n_ + 16);
    const size_t m = PackReaching(least, top, places);
    if (m == 1) return;
    T low = top[0], high = top[0];
    RowRange(d, top, m, low, high);
    const size_t ties = m - CountAtLeast(d, top, m, Ordered<T>::To(Ordered<T>::From(low) + 1));
    const size_t stays = places[EndOfFirst(d, top, m, low, ties) - 1];  // of equal ones the last counts as less probable
    const auto limit = hn::Set(d, least);
    Keep(-kInfinity<T>, [&](hn::Vec<D> x, size_t i, size_t /*count*/) HWY_ATTR {
      const auto up_to = hn::FirstN(d, stays < i ? 0 : HWY_MIN(stays - i + 1, hn::Lanes(d)));
      const auto before = hn::FirstN(d, stays < i ? 0 : HWY_MIN(stays - i, hn::Lanes(d)));
      const auto it = hn::AndNot(before, up_to);
      return hn::And(hn::Or(hn::Lt(x, limit), it), hn::Gt(x, hn::Set(d, -kInfinity<T>)));
    });
    max_ = RowMax(d, x_, n_);
  }

  HWY_INLINE void Apply(const step::Mirostat& op) { KeepAbove(-BoundOf(op), MassOf(x_, n_, max_, temperature_)); }
  // The bound after a token was drawn.
  HWY_INLINE double Learnt(const step::Mirostat& op, size_t drawn) const {
    const double z = (static_cast<double>(x_[PlaceOf(drawn)]) - static_cast<double>(max_)) / temperature_;
    const double surprise = LogNumber(MassOf(x_, n_, max_, temperature_)) - z;
    return BoundOf(op) - op.rate * (surprise - op.surprise);
  }

#ifndef ISENTROPIC_DEVICE
  HWY_NOINLINE void Apply(const step::Penalties& op) {
    const std::span<const int64_t> text = LastOf(op.last);
    Arena memory = memory_;
    uint32_t* const counts = memory.take<uint32_t>(row_);
    std::fill(counts, counts + row_, 0);
    for (const int64_t token : text) {
      if (IsToken(token)) ++counts[token];
    }
    ChangeScores(text, [&](int64_t token, double score) {
      const double count = counts[token];
      if (count == 0) return score;  // it has been changed
      counts[token] = 0;
      return (score > 0 ? score / op.repetition : score * op.repetition) - op.presence - count * op.frequency;
    });
  }

  HWY_NOINLINE void Apply(const step::Dry& op) {
    const std::span<const int64_t> text = LastOf(op.last);
    if (text.size() < 2) return;
    const auto is_breaker = [&](int64_t token) { return std::ranges::find(op.breakers, token) != op.breakers.end(); };
    size_t most = 0;  // tokens after the last breaker
    while (most < text.size() && !is_breaker(text[text.size() - 1 - most])) ++most;
    if (most == 0) return;
    CommonSuffixes(text, text_.room);
    Arena memory = memory_;
    uint32_t* const longest = memory.take<uint32_t>(row_);
    std::fill(longest, longest + row_, 0);
    for (size_t at = 0; at + 1 < text.size(); ++at) {
      const auto length = static_cast<uint32_t>(HWY_MIN(size_t{text_.room[at]}, most));
      if (length == 0 || !IsToken(text[at + 1]) || is_breaker(text[at + 1])) continue;
      longest[text[at + 1]] = HWY_MAX(longest[text[at + 1]], length);
    }
    ChangeScores(text, [&](int64_t token, double score) {
      const int64_t beyond = int64_t{longest[token]} - op.allowed_length;
      longest[token] = 0;
      if (beyond < 0) return score;
      return score - HWY_MIN(op.multiplier * std::pow(op.base, static_cast<double>(beyond)), 1e30);
    });
  }
#endif

  // What steps may know beside the scores; xtc draws by `side`.
  HWY_INLINE void Know(const RowText& text, const NoiseKey& side) { text_ = text, side_ = side; }

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

#ifndef ISENTROPIC_DEVICE
  // The logarithms of the distribution over the row of n scores.
  void WriteLogarithms(size_t n, T* y) {
    const D64 d;
    const V64 shift = hn::Set(d, static_cast<double>(max_)), scale = hn::Set(d, 1 / temperature_),
              log = hn::Set(d, LogNumber(MassOf(x_, n_, max_, temperature_)));
    const auto value = [&](size_t i, size_t count) HWY_ATTR {
      return hn::Sub(hn::Mul(hn::Sub(LoadIn(d, x_ + i, count, -kInfinity<T>), shift), scale), log);
    };
    if (index_ == nullptr) {
      return ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR { StoreNarrow(value(i, count), d, count, y + i); });
    }
    // Packed scores that another row holds: the row of the result may be that of the scores.
    FillRow(D(), -kInfinity<T>, n, y);
    ForEachVector(d, n_, [&](size_t i, size_t count) HWY_ATTR {
      HWY_ALIGN double values[hn::MaxLanes(D64())];
      hn::Store(value(i, count), d, values);
      for (size_t k = 0; k < count; ++k) y[index_[i + k]] = static_cast<T>(values[k]);
    });
  }
#endif

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

  // Keeps the scores whose probability, with this sum of exponentials, has at least a logarithm; or else the largest.
  HWY_INLINE void KeepAbove(double log, double sum) { Keep(Within(max_, HWY_MIN(0.0, temperature_ * (log + LogNumber(sum))))); }

  // Packs the scores that reach `least`, and their places; there is one.
  HWY_INLINE size_t PackReaching(T least, T* to, Index* places) {
    const D d;
    const U u;
    const auto limit = hn::Set(d, least);
    const auto entry = [&](size_t i, size_t count, hn::Vec<D>& x, hn::Vec<U>& place) HWY_ATTR {
      x = LoadUpTo(d, x_ + i, count, -kInfinity<T>);
      place = hn::Add(hn::Iota(u, Index{0}), hn::Set(u, static_cast<Index>(i)));
      return hn::And(hn::Ge(x, limit), hn::Gt(x, hn::Set(d, -kInfinity<T>)));
    };
    if (index_ == nullptr) return PackOfBlocks(d, u, n_, block_max_, least, left_blocks_, to, places, entry);
    return PackPairs(d, u, n_, to, places, entry);
  }

  // Whether a step of this probability acts: the larger of log p and log(1 - p) with Gumbel noise.
  HWY_INLINE bool Acts(double probability) const {
    if (probability == 0 || probability == 1) return probability == 1;
    const hn::RebindToUnsigned<D64> u;
    const DrawNoise noise(side_);
    const double first = hn::GetLane(noise.Of(hn::Zero(u))), second = hn::GetLane(noise.Of(hn::Set(u, 1)));
    return probability * second >= (1 - probability) * first;
  }

  HWY_INLINE double BoundOf(const step::Mirostat& op) const {
    return text_.bound != text_.bound ? 2 * op.surprise : text_.bound;
  }

  // Where the score of a token is; n_ if it has been dropped.
  HWY_INLINE size_t PlaceOf(size_t token) const {
    if (index_ == nullptr) return token;
    size_t low = 0, high = n_;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      index_[middle] < token ? low = middle + 1 : high = middle;
    }
    return low < n_ && index_[low] == token ? low : n_;
  }

#ifndef ISENTROPIC_DEVICE
  std::span<const int64_t> LastOf(int64_t last) const {
    const std::span<const int64_t> text(text_.tokens, text_.length);
    return last < 0 || static_cast<uint64_t>(last) >= text.size() ? text : text.last(static_cast<size_t>(last));
  }
  bool IsToken(int64_t token) const { return token >= 0 && static_cast<uint64_t>(token) < row_; }

  // For each place of a text the number of tokens up to it that equal the end of the text: Gusfield's Z, from the end.
  static void CommonSuffixes(std::span<const int64_t> text, uint32_t* lengths) {
    const size_t n = text.size();
    size_t left = 0, right = 0;  // counted from the end
    lengths[n - 1] = static_cast<uint32_t>(n);
    for (size_t at = 1; at < n; ++at) {
      size_t length = at < right ? HWY_MIN(right - at, size_t{lengths[n - 1 - (at - left)]}) : 0;
      while (at + length < n && text[n - 1 - length] == text[n - 1 - at - length]) ++length;
      lengths[n - 1 - at] = static_cast<uint32_t>(length);
      if (at + length > right) left = at, right = at + length;
    }
  }

  // Gives each finite score of a token of the text, which may come several times, the score changed(token, score). Scores stay
  // finite.
  template <class Changed>
  void ChangeScores(std::span<const int64_t> text, const Changed& changed) {
    if (infinite_) return;
    T* const to = packed_[other_];
    if (x_ != to) CopyRow(x_, n_, to);
    x_ = to;
    for (const int64_t token : text) {
      const size_t i = IsToken(token) ? PlaceOf(static_cast<size_t>(token)) : n_;
      if (i >= n_ || !(to[i] > -kInfinity<T>)) continue;
      const double score = static_cast<double>(to[i]) / temperature_, now = changed(token, score);
      if (now == score) continue;
      constexpr double kMost = std::numeric_limits<T>::max();
      to[i] = static_cast<T>(HWY_MAX(-kMost, HWY_MIN(now * temperature_, kMost)));
    }
    max_ = RowMax(D(), x_, n_);
    if (index_ == nullptr) BlockMaxima(x_, n_, block_max_);
  }
#endif

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

  // The cut that keeps the most of the largest scores whose entropy is at most the target, which that of all exceeds. masses:
  // e = exp((x - max) / T). All arrays are overwritten and have room for n + 16; equal scores are kept by index.
  HWY_INLINE Cut<T> CutByEntropy(const Buffers& scores, const Buffers& masses, size_t n, double target) const {
    const D d;
    using O = Ordered<T>;
    using Distances = std::make_unsigned_t<typename O::Bits>;
    const auto shift = hn::Set(d, max_), scale = hn::Set(d, static_cast<T>(1 / temperature_));
    double above[2] = {0, 0};  // the sums of e, and of e (x - max) / T, of the scores that are kept for sure
    size_t now = 0;
    for (;;) {
      const T *const x = scores.of[now], *const e = masses.of[now];
      T low = x[0], high = x[0];
      RowRange(d, x, n, low, high);
      if (low == high) {
        const double mass = static_cast<double>(e[0]);
        const double moment = mass == 0 ? 0 : mass * ((static_cast<double>(low) - static_cast<double>(max_)) / temperature_);
        const double sure[2] = {above[0], above[1]};
        // The entropy rises with the number of ties that are kept.
        size_t kept = 0, beyond = n;
        while (kept + 1 < beyond) {
          const size_t middle = kept + (beyond - kept) / 2;
          const auto count = static_cast<double>(middle);
          const double sums[2] = {sure[0] + count * mass, sure[1] + count * moment};
          (EntropyOf(sums) > target ? beyond : kept) = middle;
        }
        if (kept == 0 && sure[0] == 0) kept = 1;
        if (kept == 0) return {O::To(O::From(low) + 1), row_};
        return {low, EndOfFirst(d, x_, n_, low, kept)};
      }
      auto from = O::From(low) - 1, to = O::From(high);
      double nearer[2] = {0, 0};
      for (int step = 0; step < 3 && static_cast<Distances>(to) - static_cast<Distances>(from) > 1; ++step) {
        const auto middle =
            from + static_cast<typename O::Bits>((static_cast<Distances>(to) - static_cast<Distances>(from)) / 2);
        const auto limit = hn::Set(d, O::To(middle));
        double inside[2];
        Sums(d, n, inside, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
          const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
          const auto ei = hn::IfThenElseZero(hn::Gt(xi, limit), LoadUpTo(d, e + i, count, T(0)));
          terms[0] = ei;
          terms[1] = hn::IfThenZeroElse(hn::Eq(ei, hn::Zero(d)), hn::Mul(ei, hn::Mul(hn::Sub(xi, shift), scale)));
        });
        const double sums[2] = {above[0] + inside[0], above[1] + inside[1]};
        if (sums[0] > 0 && EntropyOf(sums) > target) {
          from = middle;
        } else {
          nearer[0] = inside[0], nearer[1] = inside[1];
          to = middle;
        }
      }
      above[0] += nearer[0], above[1] += nearer[1];
      const auto lowest = hn::Set(d, O::To(from)), highest = hn::Set(d, O::To(to));
      now = Next(now);
      n = PackPairs(d, d, n, scores.of[now], masses.of[now],
                    [&](size_t i, size_t count, hn::Vec<D>& xi, hn::Vec<D>& ei) HWY_ATTR {
                      xi = LoadUpTo(d, x + i, count, -kInfinity<T>), ei = LoadUpTo(d, e + i, count, T(0));
                      return hn::And(hn::Gt(xi, lowest), hn::Le(xi, highest));
                    });
    }
  }

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
  size_t n_, row_, most_blocks_;  // row_: the length of the row
  T max_;
  bool infinite_ = false;  // what is left are scores of +inf
  double temperature_ = 1;
  T *packed_[kChainBuffers], *block_max_;
  Index *packed_index_[kChainBuffers], *left_blocks_;
  size_t other_ = 0;  // the free buffer
  RowText text_;
  NoiseKey side_ = {};
  Arena memory_;  // the rest of the memory
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_CHAIN_INL_H_

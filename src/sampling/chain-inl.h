// A chain of steps over one row. After each step the distribution is softmax(x / temperature) over the surviving scores, so a
// step changes the temperature or packs the survivors closer. Survivors stay in the order of their indices, so that of equal
// scores the first has the lowest index, and every step treats them as a row.

#if defined(ISENTROPIC_SAMPLING_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_CHAIN_INL_H_
#undef ISENTROPIC_SAMPLING_CHAIN_INL_H_
#else
#define ISENTROPIC_SAMPLING_CHAIN_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "isentropic/sampling.h"
#include "src/maps/cut_softmax-inl.h"
#include "src/maps/scores-inl.h"
#include "src/rows/mass_cut-inl.h"
#include "src/sampling/kernels.h"
#include "src/sampling/noise-inl.h"
#include "src/sampling/steps-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
class Chain {
 public:
  using D = RowTag<T>;
  // An index has the width of a score, so that both are packed in the same way.
  using Index = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

  // Bytes for a row of n: the packed scores, a vector at a time, and the memory of the steps and draws, which share it.
  static size_t Memory(size_t n) {
    const size_t blocks = MostBlocks(n);
    const size_t steps[] = {Arena::room<T>(LargestKScratch(n)), Arena::room<T>(MassCutScratch(n)) + Arena::room<T>(n),
                            3 * Arena::room<T>(n + 16), Arena::room<double>(n) + Arena::room<T>(NarrowRow::Room(n)),
                            Arena::room<size_t>(blocks + 1) + Arena::room<double>(blocks)};
    return Arena::room<T>(n + 16) + Arena::room<Index>(n + 16) + Arena::room<T>(blocks) +
           *std::max_element(std::begin(steps), std::end(steps));
  }

  // A chain over all n scores of a row.
  HWY_INLINE Chain(const T* x, size_t n, Arena memory) : x_(x), n_(n), most_blocks_(MostBlocks(n)) {
    packed_ = memory.take<T>(n + 16);
    packed_index_ = memory.take<Index>(n + 16);
    block_max_ = memory.take<T>(most_blocks_);
    memory_ = memory;
    Survey();
  }

  // Whether there is a distribution.
  HWY_INLINE bool exist() const { return n_ > 0; }

  HWY_INLINE void Apply(const step::Temperature& op) {
    temperature_ *= op.temperature;
    Rescale();
  }

  HWY_INLINE void Apply(const step::TopK& op) {
    if (static_cast<uint64_t>(op.k) >= n_) return;
    Arena memory = memory_;
    Keep(LargestK(D(), x_, n_, static_cast<size_t>(op.k), memory.take<T>(LargestKScratch(n_))));
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
    Arena memory = memory_;
    T *const mass = memory.take<T>(n_ + 16), *const distance = memory.take<T>(n_ + 16);
    T* const all = memory.take<T>(n_);  // distances, for use after the search has packed the other array
    const double total = TermsOf(d, x_, n_, max_, temperature_, mass), mean = MeanScoreOf(x_, n_, max_, mass) / total;
    const D64 d64;
    const V64 center = hn::Set(d64, static_cast<double>(max_) + mean);
    ForEachVector(d64, n_, [&](size_t i, size_t count) HWY_ATTR {
      const V64 away = hn::Abs(hn::Sub(LoadIn(d64, x_ + i, count, T(0)), center));
      StoreNarrow(away, d64, count, all + i);
    });
    std::copy(all, all + n_, distance);
    const auto [within, ties] = WithinMass(mass, distance, n_, op.p * total);
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
    if (index_ == nullptr) {
      for (size_t i = 0; i < n; ++i) p[i] = static_cast<T>(e[i] * inverse);
      return;
    }
    FillRow(D(), T(0), n, p);
    for (size_t i = 0; i < n_; ++i) p[index_[i]] = static_cast<T>(e[i] * inverse);
  }

  // Called before draws: the survivors of a block of noise are represented by their maximum.
  HWY_INLINE void FindBlocks() {
    if (index_ == nullptr || n_ <= kFew) return;
    block_begin_ = memory_.take<size_t>(most_blocks_ + 1);
    blocks_ = 0;
    for (size_t i = 0; i < n_; ++i) {
      if (blocks_ == 0 || index_[i] / kNoiseBlock != index_[i - 1] / kNoiseBlock) {
        block_begin_[blocks_] = i;
        block_max_[blocks_++] = x_[i];
      } else {
        block_max_[blocks_ - 1] = HWY_MAX(block_max_[blocks_ - 1], x_[i]);
      }
    }
    block_begin_[blocks_] = n_;
  }

  // The index of the largest x / temperature - log E, of equal ones the lowest index. A block's least E and its largest score
  // bound its keys, so most blocks are skipped, and their noise is never calculated.
  HWY_INLINE int64_t Draw(NoiseKey key) const {
    const DrawNoise noise(key);
    Best best;
    if (n_ <= kFew) {
      Look(noise, 0, n_, best);
      return best.index;
    }
    const size_t blocks = index_ == nullptr ? (n_ + kNoiseBlock - 1) / kNoiseBlock : blocks_;
    Arena memory = memory_;
    double* const bounds = memory.take<double>(blocks);
    const V64 max = hn::Set(D64(), static_cast<double>(max_)), scale = hn::Set(D64(), 1 / temperature_);
    const hn::RebindToUnsigned<D64> u;
    ForEachVector(D64(), blocks, [&](size_t i, size_t count) HWY_ATTR {
      HWY_ALIGN uint64_t number[hn::MaxLanes(D64())] = {};
      auto block = hn::Add(hn::Iota(u, 0), hn::Set(u, i));
      if (index_ != nullptr) {
        for (size_t k = 0; k < count; ++k) number[k] = index_[block_begin_[i + k]] / kNoiseBlock;
        block = hn::Load(u, number);
      }
      const V64 z = hn::Mul(hn::Sub(LoadWide(D64(), block_max_ + i, count, -kInfinity<T>), max), scale);
      StoreUpTo(hn::Sub(z, Log(D64(), noise.SmallestOf(block))), D64(), count, bounds + i);
    });
    const auto look = [&](size_t block) HWY_ATTR {
      const size_t begin = index_ == nullptr ? block * kNoiseBlock : block_begin_[block];
      const size_t end = index_ == nullptr ? HWY_MIN(begin + kNoiseBlock, n_) : block_begin_[block + 1];
      Look(noise, begin, end, best);
    };
    // The most promising block comes first: it leaves few others.
    const double highest = RowMax(D64(), bounds, blocks);
    const size_t first = static_cast<size_t>(std::find(bounds, bounds + blocks, highest) - bounds);
    look(first);
    for (size_t b = 0; b < blocks; ++b) {
      // Logarithms are rounded, so a bound that is a little too low must not decide.
      if (b != first && bounds[b] >= best.key - 1e-12 * (1 + std::abs(best.key))) look(b);
    }
    return best.index;
  }

 private:
  static constexpr size_t kFew = 256;

  static size_t MostBlocks(size_t n) { return (n + kNoiseBlock - 1) / kNoiseBlock; }

  struct Best {
    double key = -kInfinity<double>;
    int64_t index = -1;
  };

  // Finds the maximum of the row, and its special cases.
  HWY_INLINE void Survey() {
    const bool nan = BlockMaxima();
    max_ = RowMax(D(), block_max_, (n_ + kNoiseBlock - 1) / kNoiseBlock);
    if (HWY_UNLIKELY(nan || !IsFinite(max_))) {
      if (nan || max_ < 0) {
        n_ = 0;
      } else {
        KeepInfinite();
      }
    }
  }

  // Finds the maximum of each block, and returns whether there is a NaN.
  HWY_INLINE bool BlockMaxima() {
    const D d;
    auto nan = hn::Lt(hn::Zero(d), hn::Zero(d));
    for (size_t b = 0, begin = 0; begin < n_; ++b, begin += kNoiseBlock) {
      auto max = hn::Set(d, -kInfinity<T>);
      ForEachVector(d, HWY_MIN(kNoiseBlock, n_ - begin), [&](size_t i, size_t count) HWY_ATTR {
        const auto xi = LoadUpTo(d, x_ + begin + i, count, -kInfinity<T>);
        nan = hn::Or(nan, hn::IsNaN(xi));
        max = hn::Max(xi, max);
      });
      block_max_[b] = MaxLane(d, max);
    }
    return !hn::AllFalse(d, nan);
  }

  // +inf scores are equally likely, so they become equal scores.
  HWY_NOINLINE void KeepInfinite() {
    size_t kept = 0;
    for (size_t i = 0; i < n_; ++i) {
      if (x_[i] != kInfinity<T>) continue;
      packed_index_[kept] = static_cast<Index>(i);
      packed_[kept++] = 0;
    }
    max_ = 0;
    Pack(kept);
  }

  // Makes all finite scores equal.
  HWY_NOINLINE void Flatten() {
    size_t kept = 0;
    for (size_t i = 0; i < n_; ++i) {
      if (x_[i] == -kInfinity<T>) continue;
      packed_index_[kept] = index_ == nullptr ? static_cast<Index>(i) : index_[i];
      packed_[kept++] = 0;
    }
    max_ = 0;
    temperature_ = 1;
    Pack(kept);
  }

  // From here on the survivors are packed.
  HWY_INLINE void Pack(size_t kept) {
    x_ = packed_;
    index_ = packed_index_;
    n_ = kept;
  }

  // Packs the scores in the mask keeps(x, i) of each vector. Scores below `least` are never kept.
  //
  // If many scores of a row survive, they stay in their places and the others become absent; then no index is needed.
  template <class Keeps>
  HWY_INLINE void Keep(T least, Keeps&& keeps) {
    const D d;
    const hn::RebindToUnsigned<D> u;
    size_t kept = 0;
    const auto pack = [&](size_t begin, size_t size) HWY_ATTR {
      ForEachVector(d, size, [&](size_t offset, size_t count) HWY_ATTR {
        const size_t i = begin + offset;
        const auto xi = LoadUpTo(d, x_ + i, count, -kInfinity<T>);
        const auto in = keeps(xi, i, count);
        if (hn::AllFalse(d, in)) return;
        const auto at = index_ == nullptr ? hn::Add(hn::Iota(u, Index{0}), hn::Set(u, static_cast<Index>(i)))
                                          : LoadUpTo(u, index_ + i, count, Index{0});
        hn::StoreU(CompressLanes(d, xi, in), d, packed_ + kept);
        hn::StoreU(hn::BitCast(u, CompressLanes(d, hn::BitCast(d, at), in)), u, packed_index_ + kept);
        kept += hn::CountTrue(d, in);
      });
    };
    if (index_ != nullptr) {
      pack(0, n_);
      return Pack(kept);
    }
    const size_t blocks = (n_ + kNoiseBlock - 1) / kNoiseBlock;
    const size_t alive = n_ <= kFew ? 0 : CountAtLeast(d, block_max_, blocks, least);
    if (alive > blocks / 2 && CountAtLeast(d, x_, n_, least) > n_ / 8) {
      for (size_t b = 0, begin = 0; b < blocks; ++b, begin += kNoiseBlock) {
        auto max = hn::Set(d, -kInfinity<T>);
        ForEachVector(d, HWY_MIN(kNoiseBlock, n_ - begin), [&](size_t offset, size_t count) HWY_ATTR {
          const size_t i = begin + offset;
          const auto xi = LoadUpTo(d, x_ + i, count, -kInfinity<T>);
          const auto left = hn::IfThenElse(keeps(xi, i, count), xi, hn::Set(d, -kInfinity<T>));
          max = hn::Max(left, max);
          StoreUpTo(left, d, count, packed_ + i);
        });
        block_max_[b] = MaxLane(d, max);
      }
      x_ = packed_;
      return;
    }
    for (size_t b = 0, begin = 0; b < blocks; ++b, begin += kNoiseBlock) {
      if (block_max_[b] >= least) pack(begin, HWY_MIN(kNoiseBlock, n_ - begin));
    }
    Pack(kept);
  }

  HWY_INLINE void Keep(Cut<T> cut) {
    Keep(cut.least, [&](hn::Vec<D> x, size_t i, size_t /*count*/) HWY_ATTR { return cut.Keeps(D(), x, i); });
  }

  // Scales scores that the temperature would take out of T's range.
  HWY_INLINE void Rescale() {
    if (HWY_LIKELY(!IsExtremeTemperature<T>(temperature_))) return;
    temperature_ =
        HWY_MAX(std::numeric_limits<double>::denorm_min(), HWY_MIN(temperature_, std::numeric_limits<double>::max()));
    const auto row = PrepareRow(D(), KernelsOf<Softmax, T>::kScores, {.temperature = temperature_}, x_, n_, packed_);
    x_ = row.x;
    max_ = row.max;
    temperature_ = row.op.temperature;
    if (index_ == nullptr) BlockMaxima();
  }

  struct Distance {
    T within;
    size_t ties;  // number of scores needed at that distance, in order
  };

  // The least distance within which masses reach `target`, and the number of scores needed at it. Both arrays are overwritten
  // and have room for n + 16.
  static HWY_INLINE Distance WithinMass(T* mass, T* distance, size_t n, double target) {
    const D d;
    using O = Ordered<T>;
    double reached = 0;
    // Scores without mass are not needed.
    n = PackPairs(mass, distance, n, -1, std::numeric_limits<T>::max());
    for (;;) {
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
      n = PackPairs(mass, distance, n, O::To(from), O::To(to));
    }
  }

  // Moves those with a mass and a distance in (low, high] to the front, and returns their number.
  static HWY_INLINE size_t PackPairs(T* mass, T* distance, size_t n, T low, T high) {
    const D d;
    const auto above = hn::Set(d, low), limit = hn::Set(d, high);
    size_t kept = 0;
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto m = LoadUpTo(d, mass + i, count, T(0)), away = LoadUpTo(d, distance + i, count, T(0));
      const auto in = hn::And(hn::Gt(m, hn::Zero(d)), hn::And(hn::Gt(away, above), hn::Le(away, limit)));
      if (hn::AllFalse(d, in)) return;
      hn::StoreU(CompressLanes(d, m, in), d, mass + kept);
      hn::StoreU(CompressLanes(d, away, in), d, distance + kept);
      kept += hn::CountTrue(d, in);
    });
    return kept;
  }

  // Sets the temperature that gives the entropy, or takes the nearest possible distribution.
  HWY_NOINLINE void Normalize(double entropy) {
    const ChainTarget target = TargetOf(x_, n_, max_, entropy, memory_);
    if (target.kind == ChainTarget::as_it_is) return;
    if (target.kind == ChainTarget::equal_scores) return Flatten();
    if (target.kind == ChainTarget::only_largest) return Keep({max_, n_});
    if (target.kind == ChainTarget::replaced) {
      for (size_t i = 0; i < n_; ++i) {
        packed_index_[i] = index_ == nullptr ? static_cast<Index>(i) : index_[i];
        packed_[i] = static_cast<T>(LogNumber(target.e[i]));
      }
      max_ = 0;
      Pack(n_);
    }
    temperature_ = 1 / target.gamma;
    Rescale();
  }

  HWY_INLINE hn::Vec<hn::RebindToUnsigned<D64>> IndexOf(size_t i, size_t count) const {
    const hn::RebindToUnsigned<D64> u;
    if (index_ == nullptr) return hn::Add(hn::Iota(u, 0), hn::Set(u, i));
    if constexpr (sizeof(T) == 8) {
      return LoadUpTo(u, index_ + i, count, Index{0});
    } else {
      return hn::PromoteTo(u, LoadUpTo(hn::Rebind<uint32_t, D64>(), index_ + i, count, Index{0}));
    }
  }

  // Finds the best of the survivors [begin, end).
  HWY_INLINE void Look(const DrawNoise& noise, size_t begin, size_t end, Best& best) const {
    const D64 d;
    const V64 max = hn::Set(d, static_cast<double>(max_)), scale = hn::Set(d, 1 / temperature_);
    ForEachVector(d, end - begin, [&](size_t offset, size_t count) HWY_ATTR {
      const size_t i = begin + offset;
      const auto index = IndexOf(i, count);
      const V64 z = hn::Mul(hn::Sub(LoadWide(d, x_ + i, count, -kInfinity<T>), max), scale);
      HWY_ALIGN double keys[hn::MaxLanes(D64())];
      hn::Store(hn::Sub(z, Log(d, noise.Of(index))), d, keys);
      for (size_t k = 0; k < count; ++k) {
        const auto at = static_cast<int64_t>(index_ == nullptr ? i + k : index_[i + k]);
        if (keys[k] > best.key || (keys[k] == best.key && at < best.index)) best = {keys[k], at};
      }
    });
  }

  const T* x_;
  const Index* index_ = nullptr;  // null: all of the row
  size_t n_, most_blocks_;
  T max_;
  double temperature_ = 1;
  T *packed_, *block_max_;
  Index* packed_index_;
  Arena memory_;  // the rest of the memory
  size_t* block_begin_ = nullptr;
  size_t blocks_ = 0;
};

template <class T>
HWY_INLINE Chain<T> ChainOf(std::span<const Step> steps, const T* x, size_t n, Arena memory) {
  Chain<T> left(x, n, memory);
  for (const Step& step : steps) {
    if (!left.exist()) break;
    std::visit([&](const auto& op) HWY_ATTR { left.Apply(op); }, step);
  }
  return left;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_CHAIN_INL_H_

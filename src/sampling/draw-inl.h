// A draw from the scores that a chain leaves, on the host.

#if defined(ISENTROPIC_SAMPLING_DRAW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_DRAW_INL_H_
#undef ISENTROPIC_SAMPLING_DRAW_INL_H_
#else
#define ISENTROPIC_SAMPLING_DRAW_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "src/sampling/chain-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct BestKey {
  double key = -kInfinity<double>;
  int64_t index = -1;
};

template <class T>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D64>> IndicesAt(const LeftScores<T>& left, size_t i, size_t count) {
  const hn::RebindToUnsigned<D64> u;
  if (left.index == nullptr) return hn::Add(hn::Iota(u, 0), hn::Set(u, i));
  if constexpr (sizeof(T) == 8) {
    return LoadUpTo(u, left.index + i, count, uint64_t{0});
  } else {
    return hn::PromoteTo(u, LoadUpTo(hn::Rebind<uint32_t, D64>(), left.index + i, count, uint32_t{0}));
  }
}

// Finds the best of the survivors [begin, end).
template <class T>
HWY_INLINE void Look(const LeftScores<T>& left, const DrawNoise& noise, size_t begin, size_t end, BestKey& best) {
  const D64 d;
  const V64 max = hn::Set(d, static_cast<double>(left.max)), scale = hn::Set(d, 1 / left.temperature);
  ForEachVector(d, end - begin, [&](size_t offset, size_t count) HWY_ATTR {
    const size_t i = begin + offset;
    const auto index = IndicesAt(left, i, count);
    const V64 z = hn::Mul(hn::Sub(LoadWide(d, left.x + i, count, -kInfinity<T>), max), scale);
    HWY_ALIGN double keys[hn::MaxLanes(D64())];
    hn::Store(hn::Sub(z, Log(d, noise.Of(index))), d, keys);
    for (size_t k = 0; k < count; ++k) {
      const auto at = static_cast<int64_t>(left.IndexOf(i + k));
      if (keys[k] > best.key || (keys[k] == best.key && at < best.index)) best = {keys[k], at};
    }
  });
}

// The index of the largest x / temperature - log E, of equal ones the lowest index. A block's least E and its largest score
// bound its keys, so most blocks are skipped, and their noise is never calculated.
template <class T>
HWY_INLINE int64_t Draw(const LeftScores<T>& left, NoiseKey key) {
  const DrawNoise noise(key);
  BestKey best;
  if (left.n <= kFewScores) {
    Look(left, noise, 0, left.n, best);
    return best.index;
  }
  Arena memory = left.memory;
  double* const bounds = memory.take<double>(left.blocks);
  const V64 max = hn::Set(D64(), static_cast<double>(left.max)), scale = hn::Set(D64(), 1 / left.temperature);
  const hn::RebindToUnsigned<D64> u;
  ForEachVector(D64(), left.blocks, [&](size_t i, size_t count) HWY_ATTR {
    HWY_ALIGN uint64_t number[hn::MaxLanes(D64())] = {};
    auto block = hn::Add(hn::Iota(u, 0), hn::Set(u, i));
    if (left.index != nullptr) {
      for (size_t k = 0; k < count; ++k) number[k] = left.index[left.block_begin[i + k]] / kNoiseBlock;
      block = hn::Load(u, number);
    }
    const V64 z = hn::Mul(hn::Sub(LoadWide(D64(), left.block_max + i, count, -kInfinity<T>), max), scale);
    StoreUpTo(hn::Sub(z, Log(D64(), noise.SmallestOf(block))), D64(), count, bounds + i);
  });
  const auto look = [&](size_t block) HWY_ATTR { Look(left, noise, left.BeginOf(block), left.EndOf(block), best); };
  // The most promising block comes first: it leaves few others.
  const double highest = RowMax(D64(), bounds, left.blocks);
  const size_t first = static_cast<size_t>(std::find(bounds, bounds + left.blocks, highest) - bounds);
  look(first);
  for (size_t b = 0; b < left.blocks; ++b) {
    // Logarithms are rounded, so a bound that is a little too low must not decide.
    if (b != first && bounds[b] >= best.key - 1e-12 * (1 + std::abs(best.key))) look(b);
  }
  return best.index;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_DRAW_INL_H_

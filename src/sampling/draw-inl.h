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
struct KeyAndNoise {
  double key, e;
  int64_t index;
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

// Calls visit(key, E, index) for the survivors [begin, end).
template <class T, class Visit>
HWY_INLINE void ForEachKey(const LeftScores<T>& left, const DrawNoise& noise, size_t begin, size_t end, const Visit& visit) {
  const D64 d;
  const V64 max = hn::Set(d, static_cast<double>(left.max)), scale = hn::Set(d, 1 / left.temperature);
  ForEachVector(d, end - begin, [&](size_t offset, size_t count) HWY_ATTR {
    const size_t i = begin + offset;
    const auto index = IndicesAt(left, i, count);
    const V64 z = hn::Mul(hn::Sub(LoadWide(d, left.x + i, count, -kInfinity<T>), max), scale);
    const V64 e = noise.Of(index);
    HWY_ALIGN double keys[hn::MaxLanes(D64())], numbers[hn::MaxLanes(D64())];
    hn::Store(hn::Sub(z, Log(d, e)), d, keys);
    hn::Store(e, d, numbers);
    for (size_t k = 0; k < count; ++k) visit(keys[k], numbers[k], static_cast<int64_t>(left.IndexOf(i + k)));
  });
}

// Finds the best of the survivors [begin, end).
template <class T>
HWY_INLINE void Look(const LeftScores<T>& left, const DrawNoise& noise, size_t begin, size_t end, BestKey& best) {
  ForEachKey(left, noise, begin, end, [&](double key, double, int64_t at) HWY_ATTR {
    if (key > best.key || (key == best.key && at < best.index)) best = {key, at};
  });
}

// The largest that a key of each block may be: that of its largest score with its least E.
template <class T>
HWY_INLINE double* BoundsOf(const LeftScores<T>& left, const DrawNoise& noise, Arena& memory) {
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
  return bounds;
}
// Logarithms are rounded, so a bound that is a little too low must not decide.
HWY_INLINE bool MayReach(double bound, double key) { return bound >= key - 1e-12 * (1 + std::abs(key)); }

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
  const double* const bounds = BoundsOf(left, noise, memory);
  const auto look = [&](size_t block) HWY_ATTR { Look(left, noise, left.BeginOf(block), left.EndOf(block), best); };
  // The most promising block comes first: it leaves few others.
  const double highest = RowMax(D64(), bounds, left.blocks);
  const size_t first = static_cast<size_t>(std::find(bounds, bounds + left.blocks, highest) - bounds);
  look(first);
  for (size_t b = 0; b < left.blocks; ++b) {
    if (b != first && MayReach(bounds[b], best.key)) look(b);
  }
  return best.index;
}

// The indices of the `count` largest x / temperature - log E in falling order; returns how many there are. Blocks are looked at
// in the order of their bounds, until one cannot reach the last of the largest. x is the row before any step.
template <class T>
HWY_NOINLINE size_t DrawDifferent(const LeftScores<T>& left, const T* x, NoiseKey key, int64_t* indices, size_t count) {
  const DrawNoise noise(key);
  Arena memory = left.memory;
  const size_t most = HWY_MIN(count, left.n);
  if (most == 0) return 0;
  KeyAndNoise* const best = memory.take<KeyAndNoise>(most);  // a heap, the least of the largest on top
  // Far below the maximum, keys are too coarse for the noise, and then are -inf: there the scores decide, of equal ones E.
  const auto is_better = [x](const KeyAndNoise& a, const KeyAndNoise& b) {
    if (a.key != b.key) return a.key > b.key;
    if (x[a.index] != x[b.index]) return x[a.index] > x[b.index];
    return a.e < b.e || (a.e == b.e && a.index < b.index);
  };
  size_t found = 0;
  const auto look = [&](size_t begin, size_t end) HWY_ATTR {
    ForEachKey(left, noise, begin, end, [&](double one, double e, int64_t index) HWY_ATTR {
      if (!(x[index] > -kInfinity<T>)) return;
      const KeyAndNoise here = {one, e, index};
      if (found == most) {
        if (!is_better(here, best[0])) return;
        std::pop_heap(best, best + found--, is_better);
      }
      best[found++] = here;
      std::push_heap(best, best + found, is_better);
    });
  };
  if (left.n <= kFewScores) {
    look(0, left.n);
  } else {
    size_t* const order = memory.take<size_t>(left.blocks);
    const double* const bounds = BoundsOf(left, noise, memory);
    for (size_t b = 0; b < left.blocks; ++b) order[b] = b;
    std::sort(order, order + left.blocks, [&](size_t a, size_t b) { return bounds[a] > bounds[b]; });
    for (size_t b = 0; b < left.blocks; ++b) {
      if (found == most && !MayReach(bounds[order[b]], best[0].key)) break;
      look(left.BeginOf(order[b]), left.EndOf(order[b]));
    }
  }
  std::sort_heap(best, best + found, is_better);
  for (size_t i = 0; i < found; ++i) indices[i] = best[i].index;
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_DRAW_INL_H_

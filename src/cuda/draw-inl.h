// A draw from the scores that a chain leaves, by a team of threads: its index is the host's (src/sampling/draw-inl.h).
#pragma once

#include <limits>

#include "src/sampling/chain-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct BestKey {
  double key = -kInfinity<double>;
  int64_t index = std::numeric_limits<int64_t>::max();

  HWY_INLINE void Consider(double other, uint64_t at) {
    const int64_t index_of_other = static_cast<int64_t>(at);
    if (other > key || (other == key && index_of_other < index)) key = other, index = index_of_other;
  }
};

// The best of all threads; of equal ones, the one with the lowest index.
HWY_INLINE BestKey OfTeam(BestKey best) {
  const double key = Team::Fold(best.key, -kInfinity<double>, [](double a, double b) { return a > b ? a : b; });
  const int64_t mine = best.key == key ? best.index : std::numeric_limits<int64_t>::max();
  return {key, Team::Fold(mine, std::numeric_limits<int64_t>::max(), [](int64_t a, int64_t b) { return a < b ? a : b; })};
}

HWY_NOINLINE double LogOfNoise(const DrawNoise& noise, uint64_t at) {
  return hn::GetLane(Log(D64(), noise.Of(hn::Set(hn::RebindToUnsigned<D64>(), at))));
}

// ahead: its noise is that of this draw, if it was found for scores that are still the same; or null.
template <class T>
HWY_NOINLINE int64_t Draw(const LeftScores<T>& left, const DrawNoise& noise,
                          const NoiseAhead<T, typename LeftScores<T>::Index>* ahead) {
  using Index = typename LeftScores<T>::Index;
  const RowTag<T> d;
  const size_t n = left.n, blocks = left.blocks;
  const double inverse = 1 / left.temperature;
  const auto relative = [&](T x) HWY_ATTR { return (static_cast<double>(x) - static_cast<double>(left.max)) * inverse; };
  BestKey best;
  const auto look = [&](size_t i) HWY_ATTR {
    const size_t at = left.IndexOf(i);
    best.Consider(relative(left.x[i]) - LogOfNoise(noise, at), at);
  };
  if (n <= kFewScores) {
    for (size_t i = Team::Rank(); i < n; i += Team::Size()) look(i);
    return OfTeam(best).index;
  }
  Arena memory = left.memory;
  const bool is_ahead = ahead != nullptr && left.index == nullptr && left.x == ahead->of;
  double* const bounds = is_ahead ? ahead->smallest : memory.take<double>(blocks);
  // The winner nearly always has the smallest noise of its block. A loaded score is used only when the noise of the next block
  // has been computed, which hides the latency of the load.
  if (is_ahead) {
    ForEachEntry(blocks, [&](size_t b) HWY_ATTR {
      const double smallest = bounds[b];
      bounds[b] = relative(left.block_max[b]) - smallest;
      if (ahead->drawn[b] < n) best.Consider(relative(ahead->x[b]) - smallest, ahead->drawn[b]);
    });
  } else {
    T read = 0;
    double smallest = 0;
    size_t drawn = n;
    ForEachEntry(blocks, [&](size_t b) HWY_ATTR {
      size_t next_drawn;
      const double next = SmallestOf(noise, left.IndexOf(left.BeginOf(b)) / kNoiseBlock, &next_drawn);
      bounds[b] = relative(left.block_max[b]) - next;
      if (drawn < n) best.Consider(relative(read) - smallest, drawn);
      if (left.index != nullptr) return;
      smallest = next, drawn = next_drawn;
      if (drawn < n) read = left.x[drawn];
    });
    if (drawn < n) best.Consider(relative(read) - smallest, drawn);
  }
  size_t first = blocks;
  if (left.index != nullptr) {
    // The scores with the smallest noise may be gone. The most promising block shows what can win.
    first = FindEntry(bounds, blocks, RowMax(d, bounds, blocks));
    const size_t end = left.EndOf(first);
    for (size_t i = left.BeginOf(first) + Team::Rank(); i < end; i += Team::Size()) look(i);
  }
  best = OfTeam(best);
  const double least = best.key - 1e-12 * (1 + fabs(best.key));
  Index *const open = left.free_blocks, *const looked_at = left.free_index;
  const size_t others = Team::Pack(
      blocks, [&](size_t b) HWY_ATTR { return b != first && bounds[b] >= least; },
      [&](size_t place, size_t b) HWY_ATTR { open[place] = static_cast<Index>(b); });
  // A score's noise is at most the largest of its block.
  const auto index_of = [&](size_t j) HWY_ATTR { return left.BeginOf(open[j / kNoiseBlock]) + j % kNoiseBlock; };
  struct Candidate {
    T x;
    double noise;
  };
  const size_t scores = Team::PackRead(
      others * kNoiseBlock,
      [&](size_t j) HWY_ATTR {
        const size_t b = open[j / kNoiseBlock], at = index_of(j);
        return Candidate{at < left.EndOf(b) ? left.x[at] : kNaN<T>, bounds[b] - relative(left.block_max[b])};
      },
      [&](size_t, const Candidate& candidate) HWY_ATTR { return relative(candidate.x) + candidate.noise >= least; },
      [&](size_t place, size_t j) HWY_ATTR { looked_at[place] = static_cast<Index>(index_of(j)); });
  for (size_t j = Team::Rank(); j < scores; j += Team::Size()) look(looked_at[j]);
  return OfTeam(best).index;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// On a device: blocks of scores. With their maxima the noise of a draw may be found: it does not depend on the scores, and the
// threads have nothing else to do while they read.
#pragma once

#include "src/rows/select-inl.h"
#include "src/sampling/noise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

inline constexpr size_t kChainBuffers = 2;

// What draws need of each block: the logarithm of its smallest noise, and the score and index there. `of`: the scores.
template <class T, class Index>
struct NoiseAhead {
  double* smallest;
  T* x;
  Index* drawn;
  const T* of;
};

// The logarithm of a block's smallest noise, and the index that has it.
HWY_INLINE double SmallestOf(const DrawNoise& noise, uint64_t block, size_t* index) {
  hn::Vec<hn::RebindToUnsigned<D64>> place;
  const double log = hn::GetLane(Log(D64(), noise.SmallestOf(hn::Set(hn::RebindToUnsigned<D64>(), block), &place)));
  *index = block * kNoiseBlock + hn::GetLane(place);
  return log;
}

// 16 bytes of a row.
template <class T>
struct alignas(16) Numbers {
  T of[16 / sizeof(T)];
} __attribute__((may_alias));

// The larger of two, and NaN if one is NaN.
template <class T>
HWY_INLINE T LargerOrNaN(T a, T b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 4) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
  return b > a || b != b ? b : a;
}

// Finds the maximum of each block, and returns whether there is a NaN; then the maxima may be NaN. kAhead: also finds the
// noise ahead. A score that it reads is kept when the noise of the next block is known.
template <bool kAhead, class T, class Index>
HWY_NOINLINE bool BlockMaxima(const T* x, size_t n, T* block_max, NoiseAhead<T, Index> ahead, DrawNoise noise) {
  const size_t blocks = NoiseBlocks(n);
  size_t nan = 0, noisy = Team::Rank(), last = blocks;
  T read_last = 0;
  const auto find_noise = [&] {
    if constexpr (kAhead) {
      size_t drawn = n;
      if (noisy < blocks) {
        ahead.smallest[noisy] = SmallestOf(noise, noisy, &drawn);
        ahead.drawn[noisy] = static_cast<Index>(drawn);
      }
      if (last < blocks) ahead.x[last] = read_last;
      last = noisy;
      if (drawn < n) read_last = x[drawn];
      noisy += Team::Size();
    }
  };
  if (Team::IsOne()) {
    for (size_t b = 0; b < blocks; ++b) {
      T max = -kInfinity<T>;
      for (size_t i = b * kNoiseBlock; i < HWY_MIN((b + 1) * kNoiseBlock, n); ++i) max = LargerOrNaN(max, x[i]);
      nan += max != max, block_max[b] = max;
    }
    if constexpr (kAhead) {
      while (last < blocks || noisy < blocks) find_noise();
    }
    return nan > 0;
  }
  // A thread reads 16 bytes at once, so a warp has one block or two; and much before it looks at the first of its numbers.
  constexpr size_t kEach = 16 / sizeof(T), kLanes = kNoiseBlock / kEach, kAtOnce = 8;
  const size_t step = Team::Warps() * (32 / kLanes);
  size_t first = Team::Warp() * (32 / kLanes) + Team::Lane() / kLanes;
  const auto tell = [&](size_t block, T max) HWY_ATTR {
    for (unsigned mask = kLanes / 2; mask > 0; mask /= 2) max = LargerOrNaN(max, Team::FromXor(max, mask));
    if (Team::Lane() % kLanes == 0 && block < blocks) nan += max != max, block_max[block] = max;
  };
  const auto walk = [&](const auto& read) HWY_ATTR {
    // All blocks of the warp are whole.
    for (; (first - Team::Lane() / kLanes + (kAtOnce - 1) * step + 32 / kLanes) * kNoiseBlock <= n; first += kAtOnce * step) {
      Numbers<T> scores[kAtOnce];
      ISENTROPIC_UNROLL
      for (size_t k = 0; k < kAtOnce; ++k) {
        scores[k] = read(x + (first + k * step) * kNoiseBlock + Team::Lane() % kLanes * kEach);
      }
      if (last < blocks || noisy < blocks) find_noise();
      ISENTROPIC_UNROLL
      for (size_t k = 0; k < kAtOnce; ++k) {
        T max = scores[k].of[0];
        ISENTROPIC_UNROLL
        for (size_t e = 1; e < kEach; ++e) max = LargerOrNaN(max, scores[k].of[e]);
        tell(first + k * step, max);
      }
    }
  };
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    walk([](const T* from) HWY_ATTR { return *reinterpret_cast<const Numbers<T>*>(from); });
  } else {
    walk([](const T* from) HWY_ATTR {
      Numbers<T> read;
      ISENTROPIC_UNROLL
      for (size_t e = 0; e < kEach; ++e) read.of[e] = from[e];
      return read;
    });
  }
  ISENTROPIC_ROLLED
  for (; first - Team::Lane() / kLanes < blocks; first += step) {
    T max = -kInfinity<T>;
    const size_t begin = first * kNoiseBlock + Team::Lane() % kLanes * kEach;
    for (size_t i = begin; i < HWY_MIN(begin + kEach, n); ++i) max = LargerOrNaN(max, x[i]);
    tell(first, max);
  }
  if constexpr (kAhead) {
    while (last < blocks || noisy < blocks) find_noise();
  }
  Team::Barrier();
  return Team::Sum(nan) > 0;
}

template <class T>
HWY_INLINE bool BlockMaxima(const T* x, size_t n, T* block_max) {
  return BlockMaxima<false>(x, n, block_max, NoiseAhead<T, hwy::MakeUnsigned<T>>(), DrawNoise({}));
}

template <class D, class U, class Entry, class T = hn::TFromD<D>, class Index = hn::TFromD<U>>
HWY_INLINE size_t PackOfBlocks(D d, U u, size_t n, const T* block_max, T least, Index* left, T* to, Index* to_index,
                               const Entry& entry) {
  const size_t blocks = Team::Pack(
      NoiseBlocks(n), [&](size_t b) HWY_ATTR { return block_max[b] >= least; },
      [&](size_t place, size_t b) HWY_ATTR { left[place] = static_cast<Index>(b); });
  return PackPairs(d, u, blocks * kNoiseBlock, to, to_index,
                   [&](size_t j, size_t count, hn::Vec<D>& score, hn::Vec<U>& index) HWY_ATTR {
                     const size_t i = left[j / kNoiseBlock] * kNoiseBlock + j % kNoiseBlock;
                     return i < n ? entry(i, count, score, index) : hn::Mask<D>(false);
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

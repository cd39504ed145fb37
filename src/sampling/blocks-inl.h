// Blocks of a row's scores, those that share their noise: their maxima tell which blocks a step or a draw has to read.

#ifdef ISENTROPIC_DEVICE
#include "src/sampling/device/blocks-inl.h"
#elif defined(ISENTROPIC_SAMPLING_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_BLOCKS_INL_H_
#undef ISENTROPIC_SAMPLING_BLOCKS_INL_H_
#else
#define ISENTROPIC_SAMPLING_BLOCKS_INL_H_
#endif

#include "src/rows/select-inl.h"
#include "src/sampling/noise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// A chain packs the scores that are left in place. A device's threads write while others read: there it needs two buffers.
inline constexpr size_t kChainBuffers = 1;

// Finds the maximum of each block, and returns whether there is a NaN.
template <class T>
HWY_NOINLINE bool BlockMaxima(const T* x, size_t n, T* block_max) {
  const RowTag<T> d;
  auto nan = hn::Lt(hn::Zero(d), hn::Zero(d));
  for (size_t b = 0, begin = 0; begin < n; ++b, begin += kNoiseBlock) {
    auto max = hn::Set(d, -kInfinity<T>);
    ForEachVector(d, HWY_MIN(kNoiseBlock, n - begin), [&](size_t i, size_t count) HWY_ATTR {
      const auto xi = LoadUpTo(d, x + begin + i, count, -kInfinity<T>);
      nan = hn::Or(nan, hn::IsNaN(xi));
      max = hn::Max(xi, max);
    });
    block_max[b] = MaxLane(d, max);
  }
  return !hn::AllFalse(d, nan);
}

// PackPairs of the scores and indices in the blocks whose maxima are at least `least`. `left` has room for their numbers.
template <class D, class U, class Entry, class T = hn::TFromD<D>, class Index = hn::TFromD<U>>
HWY_INLINE size_t PackOfBlocks(D d, U u, size_t n, const T* block_max, T least, Index* /*left*/, T* to, Index* to_index,
                               const Entry& entry) {
  size_t m = 0;
  for (size_t b = 0, begin = 0; begin < n; ++b, begin += kNoiseBlock) {
    if (!(block_max[b] >= least)) continue;
    m += PackPairs(d, u, HWY_MIN(kNoiseBlock, n - begin), to + m, to_index + m,
                   [&](size_t i, size_t count, hn::Vec<D>& score, hn::Vec<U>& index)
                       HWY_ATTR { return entry(begin + i, count, score, index); });
  }
  return m;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_BLOCKS_INL_H_

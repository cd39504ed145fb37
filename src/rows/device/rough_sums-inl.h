// On a device: half a warp has a block of 256, each thread a lane of it.
#pragma once

#include "src/rows/device/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <size_t K, class D, class Add, class T = hn::TFromD<D>>
HWY_INLINE void RoughSums(D d, const T* x, size_t n, T /*fill*/, double (&sums)[K], Add&& add) {
  using V = hn::Vec<D>;
  const auto of_lane = [&](size_t block, size_t lane, T(&found)[K]) HWY_ATTR {
    V acc[K];
    for (size_t k = 0; k < K; ++k) acc[k].raw = 0;
    const size_t begin = block * 256 + lane;
    if (block * 256 + 256 <= n) {
      // Several loads are issued before the first is added, so that they overlap; register pressure sets the number.
      T own[16];
      ISENTROPIC_UNROLL
      for (size_t t = 0; t < 16; ++t) own[t] = x[begin + 16 * t];
      ISENTROPIC_UNROLL
      for (size_t t = 0; t < 16; ++t) add(hn::Set(d, own[t]), acc);
    } else {
      ISENTROPIC_ROLLED
      for (size_t i = begin; i < n; i += 16) add(hn::LoadU(d, x + i), acc);
    }
    for (size_t k = 0; k < K; ++k) found[k] = hn::GetLane(acc[k]);
  };
  constexpr size_t kPerGroup = 64;
  const size_t blocks = (n + 255) / 256;
  if (Team::IsOne()) {
    double totals[K][16] = {}, groups[K][16] = {};
    const auto fold = [](double(&lanes)[16]) HWY_ATTR {
      for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
      }
      return lanes[0];
    };
    for (size_t block = 0; block < blocks; ++block) {
      for (size_t lane = 0; lane < 16; ++lane) {
        T found[K];
        of_lane(block, lane, found);
        for (size_t k = 0; k < K; ++k) totals[k][lane] += static_cast<double>(found[k]);
      }
      if ((block + 1) % kPerGroup != 0 && block + 1 < blocks) continue;
      for (size_t k = 0; k < K; ++k) {
        groups[k][block / kPerGroup % 16] += fold(totals[k]);
        for (double& total : totals[k]) total = 0;
      }
    }
    for (size_t k = 0; k < K; ++k) sums[k] = fold(groups[k]);
    return;
  }
  // In float64 there is room for one block of each warp.
  constexpr size_t kPerWarp = sizeof(T) == 4 ? 2 : 1;
  Team::SumBlocks<kPerWarp, kPerGroup, T>(blocks, sums, [&](size_t block, T(&found)[K]) HWY_ATTR {
    of_lane(kPerWarp == 2 ? block + Team::Lane() / 16 : block, Team::Lane() % 16, found);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

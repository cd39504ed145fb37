// On a device: half a warp has a group, each thread a lane of it.
#pragma once

#include "src/rows/device/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

inline constexpr size_t kProductGroup = 1024;

template <class Factors>
HWY_INLINE void FourProducts(size_t n, double (&products)[4], Factors&& factors) {
  const size_t groups = (n + kProductGroup - 1) / kProductGroup;
  const auto of_lane = [&](size_t group, size_t lane, double(&found)[4]) HWY_ATTR {
    for (double& product : found) product = 1;
    for (size_t i = group * kProductGroup + lane; i < HWY_MIN((group + 1) * kProductGroup, n); i += 16) {
      V64 f[4];
      factors(i, f);
      for (size_t k = 0; k < 4; ++k) found[k] = found[k] * f[k].raw;
    }
  };
  for (double& product : products) product = 1;
  if (Team::IsOne()) {
    for (size_t group = 0; group < groups; ++group) {
      double lanes[16][4];
      for (size_t lane = 0; lane < 16; ++lane) of_lane(group, lane, lanes[lane]);
      for (size_t k = 0; k < 4; ++k) {
        for (size_t half = 8; half > 0; half /= 2) {
          for (size_t i = 0; i < half; ++i) lanes[i][k] = lanes[i][k] * lanes[i + half][k];
        }
        products[k] = products[k] * lanes[0][k];
      }
    }
    return;
  }
  const size_t at_once = 2 * Team::Warps(), mine = 2 * Team::Warp() + Team::Lane() / 16;
  static_assert(2 * Team::kMostWarps * 4 * sizeof(double) <= Team::kPartialBytes);
  double* const all = Team::IsWarp() ? nullptr : Team::In(0, reinterpret_cast<double*>(Team::Shared().partial));
  for (size_t first = 0; first < groups; first += at_once) {
    double found[4];
    of_lane(first + mine, Team::Lane() % 16, found);  // 1 beyond the last group
    for (unsigned mask = 8; mask > 0; mask /= 2) {
      for (size_t k = 0; k < 4; ++k) found[k] = found[k] * Team::FromXor(found[k], mask);
    }
    if (Team::IsWarp()) {
      for (size_t k = 0; k < 4; ++k) products[k] = products[k] * Team::FromLane(found[k], 0) * Team::FromLane(found[k], 16);
      continue;
    }
    if (Team::Lane() % 16 == 0) {
      for (size_t k = 0; k < 4; ++k) all[4 * mine + k] = found[k];
    }
    Team::Barrier();
    for (size_t group = 0; group < HWY_MIN(at_once, groups - first); ++group) {
      for (size_t k = 0; k < 4; ++k) products[k] = products[k] * all[4 * group + k];
    }
    Team::Barrier();
  }
}

HWY_INLINE size_t TotalCount(size_t count) { return Team::Sum(count); }

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// On a device: the threshold of sparsemax, from sums that half a warp calculates each, in the host's order.
#pragma once

#include "src/rows/device/reduce-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

struct Threshold {
  double high, low;
};

template <class T>
HWY_INLINE Threshold SimplexThreshold(const T* z, size_t n, double start = -1) {
  SimplexSearch<double> search;
  search.Begin(start, static_cast<double>(n) + 1);
  while (search.asks()) {
    const double tau = search.tau();
    double sum = 0, count = 0;
    const auto add = [&](size_t i, double& total, double& above_tau) HWY_ATTR {
      const double above = static_cast<double>(z[i]) - tau;
      total = total + (0.0 > above ? 0.0 : above);
      above_tau = above_tau + (above > 0 ? 1.0 : 0.0);
    };
    if (Team::IsOne()) {
      double totals[16] = {};
      for (size_t i = 0; i < n; ++i) add(i, totals[i % 16], count);
      for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) totals[i] = totals[i] + totals[i + half];
      }
      sum = totals[0];
    } else {
      // Every warp, since to wait for another takes longer; counts are exact in any order.
      for (size_t i = Team::Lane() % 16; i < n; i += 16) add(i, sum, count);
      sum = Team::FoldHalfWarp(sum), count = Team::FoldHalfWarp(count);
    }
    search.Take(sum, count);
  }
  return {search.tau(), search.step()};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

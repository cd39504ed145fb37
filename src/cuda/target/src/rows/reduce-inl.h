// On a device: maxima of a row, and sums in the host's order, which is that of 16 lanes and of blocks of 256.
#pragma once

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The maximum of the numbers of all threads.
template <class D>
HWY_INLINE hn::TFromD<D> MaxLane(D /*d*/, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  return Team::Fold(hn::GetLane(v), -kInfinity<T>, [](T a, T b) { return a > b ? a : b; });
}
template <class D>
HWY_INLINE hn::TFromD<D> MinLane(D /*d*/, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  return Team::Fold(hn::GetLane(v), kInfinity<T>, [](T a, T b) { return a < b ? a : b; });
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE T RowMax(D d, const T* x, size_t n) {
  T max = -kInfinity<T>;
  ForOwn(x, n, [&](T xi) HWY_ATTR { max = xi > max ? xi : max; });
  return MaxLane(d, hn::Set(d, max));
}

// A warp has a block of 256: thread t the lane t mod 16 of accumulators 0 and 2, or from thread 16 on of 1 and 3.
template <size_t K, class D, class Visit>
HWY_INLINE void Sums(D /*d*/, size_t n, double (&sums)[K], Visit&& visit) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  constexpr size_t kGroup = 16384;
  if (Team::IsOne()) {
    double totals[K][16] = {}, groups[K][16] = {};
    const auto fold = [](double(&lanes)[16]) HWY_ATTR {
      for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
      }
      return lanes[0];
    };
    const auto end_group = [&](size_t base) HWY_ATTR {
      for (size_t k = 0; k < K; ++k) {
        groups[k][base / kGroup % 16] += fold(totals[k]);
        for (double& total : totals[k]) total = 0;
      }
    };
    for (size_t base = 0; base < n; base += 256) {
      for (size_t lane = 0; lane < HWY_MIN(n - base, size_t{16}); ++lane) {
        T acc[4][K] = {};
        for (size_t i = base + lane, at = 0; i < HWY_MIN(n, base + 256); i += 16, ++at) {
          V terms[K];
          visit(i, size_t{1}, terms);
          for (size_t k = 0; k < K; ++k) acc[at % 4][k] = acc[at % 4][k] + hn::GetLane(terms[k]);
        }
        for (size_t k = 0; k < K; ++k) {
          totals[k][lane] += static_cast<double>((acc[0][k] + acc[2][k]) + (acc[1][k] + acc[3][k]));
        }
      }
      if ((base + 256) % kGroup == 0) end_group(base);
    }
    end_group(n);
    for (size_t k = 0; k < K; ++k) sums[k] = fold(groups[k]);
    return;
  }
  Team::SumBlocks<1, kGroup / 256, T>((n + 255) / 256, sums, [&](size_t block, T(&found)[K]) HWY_ATTR {
    T acc[2][K] = {};
    const size_t begin = block * 256 + Team::Lane();
    const auto add = [&](size_t term, size_t a) HWY_ATTR {
      V terms[K];
      visit(begin + 64 * term + 32 * a, size_t{1}, terms);
      for (size_t k = 0; k < K; ++k) acc[a][k] = acc[a][k] + hn::GetLane(terms[k]);
    };
    if (block * 256 + 256 <= n) {
      for (size_t term = 0; term < 4; ++term) add(term, 0), add(term, 1);
    } else {
      for (size_t term = 0; term < 4; ++term) {
        for (size_t a = 0; a < 2; ++a) {
          if (begin + 64 * term + 32 * a < n) add(term, a);
        }
      }
    }
    for (size_t k = 0; k < K; ++k) {
      const T sum = acc[0][k] + acc[1][k];
      found[k] = sum + Team::FromXor(sum, 16);
    }
  });
}

template <class D, class Term>
HWY_INLINE double Sum(D d, size_t n, Term&& term) {
  double sums[1];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* t) HWY_ATTR { t[0] = term(i, count); });
  return sums[0];
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE double SumRow(D d, const T* x, size_t n) {
  return Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return hn::LoadU(d, x + i); });
}

struct NonFinite {
  size_t infinite;
  bool nan;
};

template <class T>
HWY_INLINE NonFinite FindNonFinite(const T* x, size_t n) {
  size_t infinite = 0, nan = 0;
  ForOwn(x, n, [&](T xi) HWY_ATTR { infinite += xi == kInfinity<T>, nan += xi != xi; });
  return {Team::Sum(infinite), Team::Sum(nan) > 0};
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

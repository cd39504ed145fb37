// On a device: maxima of a row, and sums in the host's order, which is that of 16 lanes and of blocks of 256.
#pragma once

#include "src/rows/device/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The maximum of the numbers of all threads.
template <class D>
HWY_NOINLINE hn::TFromD<D> MaxLane(D /*d*/, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  return Team::Fold(hn::GetLane(v), -kInfinity<T>, [](T a, T b) { return a > b ? a : b; });
}
template <class D>
HWY_NOINLINE hn::TFromD<D> MinLane(D /*d*/, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  return Team::Fold(hn::GetLane(v), kInfinity<T>, [](T a, T b) { return a < b ? a : b; });
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE T RowMax(D d, const T* x, size_t n) {
  T max = -kInfinity<T>;
  ForOwn(x, n, [&](T xi) HWY_ATTR { max = xi > max ? xi : max; });
  return MaxLane(d, hn::Set(d, max));
}

// Sums of the terms that visit(i, load(i), terms) finds. A thread loads all its numbers of a block before the first visit. If a
// visit stores something, the compiler could not move later loads before it.
//
// A warp has a block of 256: thread t the lane t mod 16 of accumulators 0 and 2, or from thread 16 on of 1 and 3.
template <size_t K, class D, class Load, class Visit>
HWY_INLINE void SumsOfLoaded(D /*d*/, size_t n, double (&sums)[K], const Load& load, const Visit& visit) {
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
          visit(i, load(i), terms);
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
    constexpr size_t kOwn = 8;
    T acc[2][K] = {};
    const size_t begin = block * 256 + Team::Lane();
    const auto add = [&](size_t a, size_t i, const auto& loaded) HWY_ATTR {
      V terms[K];
      visit(i, loaded, terms);
      for (size_t k = 0; k < K; ++k) acc[a][k] = acc[a][k] + hn::GetLane(terms[k]);
    };
    if (block * 256 + 256 <= n) {
      decltype(load(begin)) own[kOwn];
      ISENTROPIC_UNROLL
      for (size_t j = 0; j < kOwn; ++j) own[j] = load(begin + 32 * j);
      ISENTROPIC_UNROLL
      for (size_t j = 0; j < kOwn; ++j) add(j % 2, begin + 32 * j, own[j]);
    } else {
      ISENTROPIC_ROLLED
      for (size_t j = 0; j < kOwn; j += 2) {
        if (begin + 32 * j < n) add(0, begin + 32 * j, load(begin + 32 * j));
        if (begin + 32 * j + 32 < n) add(1, begin + 32 * j + 32, load(begin + 32 * j + 32));
      }
    }
    for (size_t k = 0; k < K; ++k) {
      const T sum = acc[0][k] + acc[1][k];
      found[k] = sum + Team::FromXor(sum, 16);
    }
  });
}

template <size_t K, class D, class Visit>
HWY_INLINE void Sums(D d, size_t n, double (&sums)[K], Visit&& visit) {
  struct Nothing {};
  SumsOfLoaded(
      d, n, sums, [](size_t) { return Nothing(); },
      [&](size_t i, Nothing, hn::Vec<D>* terms) HWY_ATTR { visit(i, size_t{1}, terms); });
}

template <size_t K, class D, class Visit, class T = hn::TFromD<D>>
HWY_INLINE void SumsOfRow(D d, const T* x, size_t n, T /*fill*/, double (&sums)[K], Visit&& visit) {
  SumsOfLoaded(
      d, n, sums, [&](size_t i) HWY_ATTR { return hn::LoadU(d, x + i); },
      [&](size_t i, hn::Vec<D> xi, hn::Vec<D>* terms) HWY_ATTR { visit(i, size_t{1}, xi, terms); });
}

template <class D, class Term>
HWY_INLINE double Sum(D d, size_t n, Term&& term) {
  double sums[1];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* t) HWY_ATTR { t[0] = term(i, count); });
  return sums[0];
}

// A device's threads wait for nothing here.
template <size_t K, class D, class Visit>
HWY_INLINE void QuickSums(D d, size_t n, double (&sums)[K], const Visit& visit) {
  Sums(d, n, sums, visit);
}
template <class D, class Term>
HWY_INLINE double QuickSum(D d, size_t n, const Term& term) {
  return Sum(d, n, term);
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
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

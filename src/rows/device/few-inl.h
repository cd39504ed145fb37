// On a device: a thread has one or two of the numbers, every warp all of them.
#pragma once

#include "src/rows/device/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Thread t finds the terms of the i that ForEachVector gives it in a row of kCount.
template <size_t kCount, class D, class Terms, class N = hn::TFromD<D>>
HWY_INLINE void PowerSumsOf(D d, const Terms& terms_at, N (&sums)[2]) {
  hn::Vec<D> terms[2];
  if (Team::IsOne()) {
    N all[2][kCount];
    for (size_t i = 0; i < kCount; ++i) {
      terms_at(i, terms);
      for (size_t k = 0; k < 2; ++k) all[k][i] = hn::GetLane(terms[k]);
    }
    for (size_t k = 0; k < 2; ++k) {
      for (size_t half = kCount / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) all[k][i] = all[k][i] + all[k][i + half];
      }
      sums[k] = all[k][0];
    }
    return;
  }
  (void)d;
  static_assert(kCount == 16 || kCount == 32 || kCount == 64);
  constexpr unsigned kThreads = HWY_MIN(kCount, 32);
  const unsigned lane = Team::Lane() % kThreads;
  terms_at(lane, terms);
  for (size_t k = 0; k < 2; ++k) sums[k] = hn::GetLane(terms[k]);
  if constexpr (kCount == 64) {
    terms_at(lane + 32, terms);
    for (size_t k = 0; k < 2; ++k) sums[k] = sums[k] + hn::GetLane(terms[k]);
  }
  for (unsigned mask = kThreads / 2; mask > 0; mask /= 2) {
    for (size_t k = 0; k < 2; ++k) sums[k] = sums[k] + Team::FromXor(sums[k], mask);
  }
}

// Every thread gets all 64.
template <class T, class Map>
HWY_INLINE void PartMaxima(RowTag<T> d, const T* x, size_t n, const Map& map, T* mapped) {
  if (Team::IsOne()) {
    for (size_t l = 0; l < 64; ++l) mapped[l] = -kInfinity<T>;
    for (size_t i = 0; i < n; ++i) mapped[i % 64] = x[i] > mapped[i % 64] ? x[i] : mapped[i % 64];
    for (size_t l = 0; l < 64; ++l) mapped[l] = hn::GetLane(map(hn::Set(d, mapped[l])));
    return;
  }
  const unsigned lane = Team::Lane();
  constexpr size_t kAtOnce = 8;  // independent loads
  T max[2] = {-kInfinity<T>, -kInfinity<T>};
  for (size_t base = Team::Warp() * 64 + lane; base < n; base += kAtOnce / 2 * Team::Warps() * 64) {
    T read[kAtOnce];
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kAtOnce; ++k) {
      const size_t i = base + k / 2 * Team::Warps() * 64 + 32 * (k % 2);
      read[k] = i < n ? x[i] : -kInfinity<T>;
    }
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kAtOnce; ++k) max[k % 2] = read[k] > max[k % 2] ? read[k] : max[k % 2];
  }
  if (!Team::IsWarp()) {
    T* const all = reinterpret_cast<T*>(Team::Shared().partial);
    for (unsigned block = 0; block < Team::Blocks(); ++block) {
      for (size_t h = 0; h < 2; ++h) Team::In(block, all)[Team::Warp() * 64 + lane + 32 * h] = max[h];
    }
    Team::Barrier();
    for (size_t w = 0; w < Team::Warps(); ++w) {
      for (size_t h = 0; h < 2; ++h) {
        const T other = all[w * 64 + lane + 32 * h];
        max[h] = other > max[h] ? other : max[h];
      }
    }
    Team::Barrier();
  }
  for (T& part : max) part = hn::GetLane(map(hn::Set(d, part)));
  for (unsigned l = 0; l < 32; ++l) mapped[l] = Team::FromLane(max[0], l), mapped[l + 32] = Team::FromLane(max[1], l);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

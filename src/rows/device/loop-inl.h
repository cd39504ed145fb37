// On a device: a walk along a row distributes its entries over the threads of the team.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/device/lane.h"
#include "src/device/team.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using RowTag = hn::CappedTag<T, 16>;
using D64 = RowTag<double>;
using V64 = hn::Vec<D64>;

template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <class T>
HWY_INLINE bool IsFinite(T value) {
  return value - value == T(0);
}

// `low` is not NaN.
template <class V>
HWY_INLINE V MaxKeepNaN(V low, V x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(V) == 4) {
    float max;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(max) : "f"(low.raw), "f"(x.raw));
    return {max};
  }
#endif
  return hn::Max(low, x);  // the second operand if either is NaN
}

HWY_INLINE void AwaitReaders() { Team::Barrier(); }

template <class T>
HWY_INLINE void FetchLine(const T* /*x*/, size_t /*i*/) {}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadUpTo(D d, const T* x, size_t /*count*/, T /*fill*/) {
  return hn::LoadU(d, x);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreUpTo(hn::Vec<D> v, D d, size_t /*count*/, T* p) {
  hn::StoreU(v, d, p);
}

template <class T>
HWY_INLINE V64 LoadWide(D64 d, const T* x, size_t /*count*/, T /*fill*/) {
  return hn::Set(d, static_cast<double>(*x));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const hn::TFromD<D>* x) {
  return hn::LoadU(d, x);
}
HWY_INLINE V64 LoadAs(D64 d, const float* x) { return LoadWide(d, x, 1, 0.0f); }

template <class T>
HWY_INLINE void StoreNarrow(V64 v, D64 /*d*/, size_t /*count*/, T* p) {
  *p = static_cast<T>(hn::GetLane(v));
}

// Calls visit(i), or visit(i, 1), for each entry of a row of n, in one of the threads.
template <class Visit>
HWY_INLINE void ForEachEntry(size_t n, Visit&& visit) {
  for (size_t i = Team::Rank(); i < n; i += Team::Size()) visit(i);
  Team::Barrier();
}
template <class D, class Visit>
HWY_INLINE void ForEachVector(D /*d*/, size_t n, Visit&& visit) {
  for (size_t i = Team::Rank(); i < n; i += Team::Size()) visit(i, size_t{1});
  Team::Barrier();
}

// 16 bytes, which a thread reads at once.
struct alignas(16) Quad {
  uint32_t of[4];
} __attribute__((may_alias));

// Calls take(x_i) for the numbers of this thread, in any order. It issues several loads before it uses the first, because a
// load takes as long as hundreds of operations.
template <class T, class Take>
HWY_INLINE void ForOwn(const T* x, size_t n, const Take& take) {
  constexpr size_t kAtOnce = 4, kEach = sizeof(Quad) / sizeof(T);
  const size_t step = Team::Size();
  size_t i = 0;
  if (reinterpret_cast<uintptr_t>(x) % sizeof(Quad) == 0) {
    const Quad* const quads = reinterpret_cast<const Quad*>(x) + Team::Rank();
    const auto take_quad = [&](const Quad& quad) HWY_ATTR {
      T numbers[kEach];
      memcpy(numbers, &quad, sizeof quad);
      ISENTROPIC_UNROLL
      for (size_t e = 0; e < kEach; ++e) take(numbers[e]);
    };
    for (; i + kAtOnce * kEach * step <= n; i += kAtOnce * kEach * step) {
      Quad read[kAtOnce];
      ISENTROPIC_UNROLL
      for (size_t k = 0; k < kAtOnce; ++k) read[k] = quads[i / kEach + k * step];
      ISENTROPIC_UNROLL
      for (size_t k = 0; k < kAtOnce; ++k) take_quad(read[k]);
    }
    ISENTROPIC_ROLLED
    for (; i + kEach * step <= n; i += kEach * step) take_quad(quads[i / kEach]);
  }
  i += Team::Rank();
  constexpr size_t kSingly = 8;
  for (; i + (kSingly - 1) * step < n; i += kSingly * step) {
    T read[kSingly];
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kSingly; ++k) read[k] = x[i + k * step];
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kSingly; ++k) take(read[k]);
  }
  ISENTROPIC_ROLLED
  for (; i < n; i += step) take(x[i]);
}

// A thread computes several values before it stores them, so that its loads overlap.
template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void WriteRow(D d, bool /*stream*/, size_t n, T* p, Value&& value) {
  constexpr size_t kAtOnce = 4;
  const size_t step = Team::Size();
  size_t i = Team::Rank();
  for (; i + (kAtOnce - 1) * step < n; i += kAtOnce * step) {
    hn::Vec<D> values[kAtOnce];
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kAtOnce; ++k) values[k] = value(i + k * step, size_t{1});
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kAtOnce; ++k) hn::StoreU(values[k], d, p + i + k * step);
  }
  for (; i < n; i += step) hn::StoreU(value(i, size_t{1}), d, p + i);
  Team::Barrier();
}

// A device's loops are alike for few and many operations.
template <class D, class Visit>
HWY_INLINE void QuickForEachVector(D d, size_t n, Visit&& visit) {
  ForEachVector(d, n, visit);
}
template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void QuickWriteRow(D d, bool stream, size_t n, T* p, Value&& value) {
  WriteRow(d, stream, n, p, value);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void FillRow(D d, T value, size_t n, T* p) {
  ForEachVector(d, n, [&](size_t i, size_t) HWY_ATTR { p[i] = value; });
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void ScaleRow(D d, T factor, size_t n, T* p) {
  ForEachVector(d, n, [&](size_t i, size_t) HWY_ATTR { p[i] = p[i] == T(0) ? T(0) : p[i] * factor; });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// Loops along a row: whole vectors, and one partial vector for the remainder.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/loop-inl.h"
#elif defined(ISENTROPIC_ROWS_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_LOOP_INL_H_
#undef ISENTROPIC_ROWS_LOOP_INL_H_
#else
#define ISENTROPIC_ROWS_LOOP_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "isentropic/version.h"

// Kernels without SIMD are for processors from before 2013. At -O2 they take 40 % less room; at -O3 they would be a third of a
// library for every target. Other targets are compiled as the command line says.
#if defined(__GNUC__) && !defined(__clang__)
#if HWY_TARGET == HWY_SCALAR && HWY_TARGETS != HWY_SCALAR
#pragma GCC optimize("O2")
#else
#pragma GCC reset_options
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The vector type of every kernel. At most 16 lanes, because the order of sums is defined on 16 (reduce-inl.h).
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

// The lanes that are set in 8 mask bits, in order.
struct alignas(8) LaneList {
  uint8_t lane[8];
};
inline constexpr auto kCompressedLanes = [] {
  std::array<LaneList, 256> lists = {};
  for (size_t bits = 0; bits < 256; ++bits) {
    size_t count = 0;
    for (uint8_t lane = 0; lane < 8; ++lane) {
      if (bits >> lane & 1) lists[bits].lane[count++] = lane;
    }
  }
  return lists;
}();

// max(low, x), but NaN if x is. On x86 the instruction returns its second operand if either is NaN.
template <class V>
HWY_INLINE V MaxKeepNaN(V low, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
  return hn::Max(low, x);
#else
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Max(low, x));
#endif
}

// Loads x[0, count) and `fill` beyond; never touches memory beyond x[count - 1]. Kernels pass count = Lanes(d) for whole
// vectors, and the compiler uses this.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadUpTo(D d, const T* HWY_RESTRICT x, size_t count, T fill) {
  if (count >= hn::Lanes(d)) return hn::LoadU(d, x);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const auto exists = hn::FirstN(d, count);
  return hn::IfThenElse(exists, hn::MaskedLoad(exists, d, x), hn::Set(d, fill));
#else
  // Without masked instructions MaskedLoad reads the whole vector, which could cross into an unmapped page.
  HWY_ALIGN T buffer[16];
  hn::Store(hn::Set(d, fill), d, buffer);
  for (size_t i = 0; i < count; ++i) buffer[i] = x[i];
  return hn::Load(d, buffer);
#endif
}

// Stores the first `count` lanes.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreUpTo(hn::Vec<D> v, D d, size_t count, T* p) {
  if (count >= hn::Lanes(d)) return hn::StoreU(v, d, p);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, count), d, p);
#else
  HWY_ALIGN T buffer[16];
  hn::Store(v, d, buffer);
  for (size_t i = 0; i < count; ++i) p[i] = buffer[i];
#endif
}

// Loads as float64 from a row of any type.
template <class T>
HWY_INLINE V64 LoadWide(D64 d, const T* HWY_RESTRICT x, size_t count, T fill) {
  const hn::Rebind<T, D64> narrow;
  if constexpr (sizeof(T) == 8) {
    return LoadUpTo(d, x, count, fill);
  } else {
    return hn::PromoteTo(d, LoadUpTo(narrow, x, count, fill));
  }
}

// A whole vector as it is, or as float64.
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const hn::TFromD<D>* x) {
  return hn::LoadU(d, x);
}
HWY_INLINE V64 LoadAs(D64 d, const float* x) { return LoadWide(d, x, hn::Lanes(d), 0.0f); }

template <class T>
HWY_INLINE void StoreNarrow(V64 v, D64 d, size_t count, T* p) {
  const hn::Rebind<T, D64> narrow;
  if constexpr (sizeof(T) == 8) {
    StoreUpTo(v, d, count, p);
  } else {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // On this target DemoteTo turns an infinity into the largest number.
    HWY_ALIGN double wide[hn::MaxLanes(D64())];
    hn::Store(v, d, wide);
    for (size_t i = 0; i < HWY_MIN(count, hn::Lanes(d)); ++i) p[i] = static_cast<T>(wide[i]);
    (void)narrow;
#else
    StoreUpTo(hn::DemoteTo(narrow, v), narrow, count, p);
#endif
  }
}

// The lanes of v that are in `mask`, moved to the front in order; the lanes after them are undefined.
template <class D>
HWY_INLINE hn::Vec<D> CompressLanes(D d, hn::Vec<D> v, hn::Mask<D> mask) {
#if HWY_TARGET == HWY_AVX2
  // With g++, Highway's own function copies its table to the stack in every call, which takes longer than everything else. A
  // number of 64 bits is moved as two of 32.
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) == 32) {
    const hn::Repartition<float, D> halves;
    const hn::Rebind<uint8_t, decltype(halves)> d8;
    const hn::Rebind<uint32_t, decltype(halves)> d32;
    uint8_t bits[8] = {};
    hn::StoreMaskBits(halves, hn::MaskFromVec(hn::BitCast(halves, hn::VecFromMask(d, mask))), bits);
    const auto lanes = hn::IndicesFromVec(halves, hn::PromoteTo(d32, hn::Load(d8, kCompressedLanes[bits[0]].lane)));
    return hn::BitCast(d, hn::TableLookupLanes(hn::BitCast(halves, v), lanes));
  }
#endif
  (void)d;
  return hn::Compress(v, mask);
}

// Calls visit(i, count) for each vector of a row of n, with the elements i .. i + count - 1.
template <class D, class Visit>
HWY_INLINE void ForEachVector(D d, size_t n, Visit&& visit) {
  const size_t N = hn::Lanes(d);
  size_t i = 0;
  for (; i + N <= n; i += N) visit(i, N);
  if (i < n) visit(i, n - i);
}

// The same for a visitor of a few operations, beside which the loop's overhead would be large: four vectors per iteration, with
// three times as many copies of the visitor's code.
template <class D, class Visit>
HWY_INLINE void QuickForEachVector(D d, size_t n, Visit&& visit) {
  const size_t N = hn::Lanes(d);
  size_t i = 0;
  for (; i + 4 * N <= n; i += 4 * N) {
    visit(i, N);
    visit(i + N, N);
    visit(i + 2 * N, N);
    visit(i + 3 * N, N);
  }
  for (; i + N <= n; i += N) visit(i, N);
  if (i < n) visit(i, n - i);
}

// Calls visit(i) for each entry of a row of n.
template <class Visit>
HWY_INLINE void ForEachEntry(size_t n, Visit&& visit) {
  for (size_t i = 0; i < n; ++i) visit(i);
}

// p[i] = value(i, count) for each vector of a row of n, past the caches.
//
// An ordinary store first reads the line that it will overwrite. If the batch is too large for the cache, this read is a third
// of the traffic. Streaming stores need aligned vectors, so the first vector is partial.
template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void StreamRow(D d, size_t n, T* p, const Value& value) {
  const size_t N = hn::Lanes(d);
  const size_t past = reinterpret_cast<uintptr_t>(p) / sizeof(T) % N;
  for (size_t i = 0, most = N - past, count; i < n; i += count, most = N) {
    count = HWY_MIN(most, n - i);
    const auto v = value(i, count);
    if (count == N) {
      hn::Stream(v, d, p + i);
    } else {
      StoreUpTo(v, d, count, p + i);
    }
  }
}

// p[i] = value(i, count) for each vector of a row of n; `stream` bypasses the caches.
template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void WriteRow(D d, bool stream, size_t n, T* p, const Value& value) {
  if (stream) return StreamRow(d, n, p, value);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(value(i, count), d, count, p + i); });
}
template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void QuickWriteRow(D d, bool stream, size_t n, T* p, const Value& value) {
  if (stream) return StreamRow(d, n, p, value);
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(value(i, count), d, count, p + i); });
}

// Comes before a step that overwrites numbers which every warp of a device has read: one of them may still be reading. Here one
// thread does everything.
HWY_INLINE void AwaitReaders() {}

// Prefetches the cache line of x[i], if x[i] is about the first of its line. The visitor of a loop along one row does this for
// the next row, which the hardware prefetcher does not anticipate.
template <class T>
HWY_INLINE void FetchLine(const T* x, size_t i) {
  if (i % (64 / sizeof(T)) == 0) __builtin_prefetch(x + i, 0, 2);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void FillRow(D d, T value, size_t n, T* p) {
  const auto v = hn::Set(d, value);
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(v, d, count, p + i); });
}

// p *= factor, but 0 stays 0 for any factor.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void ScaleRow(D d, T factor, size_t n, T* p) {
  const auto f = hn::Set(d, factor);
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    StoreUpTo(hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d)), hn::Mul(pi, f)), d, count, p + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_LOOP_INL_H_

// Which scores a cut keeps: the k largest, or those near the maximum. Nothing is sorted.

#if defined(ENTROPIC_ROWS_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_SELECT_INL_H_
#undef ENTROPIC_ROWS_SELECT_INL_H_
#else
#define ENTROPIC_ROWS_SELECT_INL_H_
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Keeps scores above `least`, and those equal to it at an index below `end`.
template <class T>
struct Cut {
  T least;
  size_t end;

  template <class D>
  HWY_INLINE hn::Mask<D> Keeps(D d, hn::Vec<D> x, size_t i) const {
    const auto limit = hn::Set(d, least);
    const auto tie = hn::And(hn::Eq(x, limit), hn::FirstN(d, i < end ? HWY_MIN(end - i, hn::Lanes(d)) : 0));
    return hn::Or(hn::Gt(x, limit), tie);
  }
};

// The scores x with x - max >= reach, reach <= 0.
template <class T>
HWY_INLINE Cut<T> Within(T max, double reach) {
  // The smallest number of T that is not below the exact bound, where T is float; in float64 the bound is rounded.
  T least = static_cast<T>(static_cast<double>(max) + reach);
  if (static_cast<double>(least) < static_cast<double>(max) + reach) least = std::nextafter(least, max);
  return {least, ~size_t{0}};
}

// How many scores are at least `least`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t CountAtLeast(D d, const T* x, size_t n, T least) {
  const auto limit = hn::Set(d, least);
  size_t count = 0;
  ForEachVector(d, n, [&](size_t i, size_t m) HWY_ATTR {
    count += hn::CountTrue(d, hn::Ge(LoadUpTo(d, x + i, m, -std::numeric_limits<T>::infinity()), limit));
  });
  return count;
}

// Floating point numbers in their order as integers: a bisection over all of them ends after 32 or 64 steps.
template <class T>
struct Ordered {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  static HWY_INLINE Bits From(T x) {
    Bits bits;
    std::memcpy(&bits, &x, sizeof(T));
    return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
  }
  static HWY_INLINE T To(Bits ordered) {
    const Bits bits = ordered < 0 ? std::numeric_limits<Bits>::min() - ordered : ordered;
    T x;
    std::memcpy(&x, &bits, sizeof(T));
    return x;
  }
};

// The kth largest of x, k from 1 to n, with a finite maximum: the largest number that k scores reach. NaN counts as none.
// Each halving of the interval is one sweep that counts.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T KthLargest(D d, const T* x, size_t n, size_t k, T least, T max) {
  using O = Ordered<T>;
  auto low = O::From(least), high = O::From(max);
  if (CountAtLeast(d, x, n, max) >= k) return max;
  while (high - 1 > low) {
    // The distance may exceed the signed type.
    using Distance = std::make_unsigned_t<typename O::Bits>;
    const auto middle = low + static_cast<typename O::Bits>((static_cast<Distance>(high) - static_cast<Distance>(low)) / 2);
    (CountAtLeast(d, x, n, O::To(middle)) >= k ? low : high) = middle;
  }
  return O::To(low);
}

// The k largest of n scores, of equal ones those with the lower index, NaN as if it were not there. A finite maximum. Scratch
// for n + n / 256 + 32.
//
// Where k is small against n, blocks of 256 are looked at through their maxima: the kth largest of these is reached by k
// scores at least, so the blocks whose maximum is below it hold none of the k largest, and the others few that reach it.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE Cut<T> LargestK(D d, const T* x, size_t n, size_t k, T* scratch) {
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  constexpr size_t kBlock = 256;
  if (k >= n) return {kLowest, 0};
  const T* candidates = x;
  size_t m = n;
  const size_t blocks = (n + kBlock - 1) / kBlock;
  T max = kLowest, least = std::numeric_limits<T>::lowest();
  if (k <= blocks / 4) {
    for (size_t b = 0; b < blocks; ++b) {
      scratch[b] = RowMax(d, x + b * kBlock, HWY_MIN(kBlock, n - b * kBlock));
      max = HWY_MAX(max, scratch[b]);
    }
    const T bound = KthLargest(d, scratch, blocks, k, kLowest, max);
    T* const packed = scratch + blocks;
    m = 0;
    const auto limit = hn::Set(d, bound);
    for (size_t b = 0; b < blocks && bound > kLowest; ++b) {
      if (scratch[b] < bound) continue;
      const T* const block = x + b * kBlock;
      ForEachVector(d, HWY_MIN(kBlock, n - b * kBlock), [&](size_t i, size_t count) HWY_ATTR {
        const auto xi = LoadUpTo(d, block + i, count, kLowest);
        const auto in = hn::Ge(xi, limit);
        if (hn::AllFalse(d, in)) return;
        hn::StoreU(hn::Compress(xi, in), d, packed + m);
        m += hn::CountTrue(d, in);
      });
    }
    if (bound > kLowest) {
      candidates = packed;
      least = bound;
    } else {
      m = n;
    }
  } else {
    max = RowMax(d, x, n);
  }
  // Fewer than k finite scores: all of them.
  if (CountAtLeast(d, candidates, m, least) < k) return {kLowest, 0};
  const T kth = KthLargest(d, candidates, m, k, least, max);

  // Of those equal to the kth, the first few.
  size_t left = k;
  const auto limit = hn::Set(d, kth);
  size_t equal = 0;
  ForEachVector(d, m, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, candidates + i, count, kLowest);
    left -= hn::CountTrue(d, hn::Gt(xi, limit));
    equal += hn::CountTrue(d, hn::Eq(xi, limit));
  });
  if (equal <= left) return {kth, n};
  size_t end = 0;
  while (end < n && left > 0) left -= x[end++] == kth;
  return {kth, end};
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_SELECT_INL_H_

// Which scores a cut keeps: the k largest, those near the maximum, or the largest that have a given mass. Nothing is sorted.

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

// Lowers `low` and raises `high` to the smallest and the largest entry.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void RowRange(D d, const T* x, size_t n, T& low, T& high) {
  auto least = hn::Set(d, low), most = hn::Set(d, high);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, x[i]);
    least = hn::Min(least, xi);
    most = hn::Max(most, xi);
  });
  low = FoldLanes(d, least, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
  high = FoldLanes(d, most, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
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

// The end of the shortest beginning of x that has `count` entries equal to `value`, n if there are no more.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t EndOfFirst(D d, const T* x, size_t n, T value, size_t count) {
  const size_t N = hn::Lanes(d);
  const auto v = hn::Set(d, value);
  size_t i = 0;
  for (; i + N <= n; i += N) {
    const size_t here = hn::CountTrue(d, hn::Eq(hn::LoadU(d, x + i), v));
    if (here >= count) break;
    count -= here;
  }
  while (i < n && count > 0) count -= x[i++] == value;
  return i;
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
  return {kth, EndOfFirst(d, x, n, kth, left)};
}

// Copies the entries in (low, high], 0 <= low, to `packed` in order and returns how many. `packed` may be e; room for n + 16.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t PackBetween(D d, const T* e, size_t n, T low, T high, T* packed) {
  const auto above = hn::Set(d, low), limit = hn::Set(d, high);
  size_t m = 0;
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto ei = LoadUpTo(d, e + i, count, T(0));
    const auto in = hn::And(hn::Gt(ei, above), hn::Le(ei, limit));
    if (hn::AllFalse(d, in)) return;
    hn::StoreU(hn::Compress(ei, in), d, packed + m);
    m += hn::CountTrue(d, in);
  });
  return m;
}

// The mass of the entries above `low`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double MassAbove(D d, const T* e, size_t n, T low) {
  const auto limit = hn::Set(d, low);
  return Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto ei = LoadUpTo(d, e + i, count, T(0));
    return hn::IfThenElseZero(hn::Gt(ei, limit), ei);
  });
}

// A cut through masses: entries above `least` stay, they have mass `above`; of the `equal` entries equal to it `kept` stay.
template <class T>
struct MassCut {
  T least;
  size_t equal, kept;
  double above;
};

// The cut that keeps the fewest of the largest masses e such that `above` and theirs reach `target`, or all. Masses are
// positive; e is overwritten; room for n + 16.
//
// Every sweep decides one half of the interval of numbers that is left and drops the other's entries: with masses that are
// exponentials of scores, whose bits are nearly linear in the score, about half of them. It ends when all that are left are
// equal.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE MassCut<T> CutByMass(D d, T* e, size_t n, double above, double target) {
  using O = Ordered<T>;
  for (;;) {
    T low = e[0], high = e[0];
    RowRange(d, e, n, low, high);
    if (low == high) {
      const double needed = std::ceil((target - above) / static_cast<double>(low));
      const size_t kept = needed < 1 ? 1 : needed < static_cast<double>(n) ? static_cast<size_t>(needed) : n;
      return {low, n, kept, above};
    }
    const T middle = O::To(O::From(low) + (O::From(high) - O::From(low)) / 2);
    const double upper = MassAbove(d, e, n, middle);
    if (above + upper >= target) {
      low = middle;
    } else {
      above += upper;
      high = middle;
      low = T(0);
    }
    n = PackBetween(d, e, n, low, high, e);
  }
}

// The same for all masses of a row with sum `total` and maximum 1, of which the part p < 1 is to stay. Leaves e as it is;
// scratch for n + 16.
//
// A long row is first looked at through a sample, 16 entries of every 512: what it says of the small masses that are to go,
// many and none of them large, brackets the cut well, and only the few masses in the bracket are compared closely. One sweep
// of the row finds them, and whether the bracket was right.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE MassCut<T> CutRowByMass(D d, const T* e, size_t n, double total, double p, T* scratch) {
  constexpr size_t kChunk = 4096, kSampled = 16, kEvery = 512;
  const double target = p * total;
  T low = 0, high = 1;
  if (n >= 4 * kChunk) {
    const auto sample = [&]() HWY_ATTR {
      size_t m = 0;
      for (size_t i = 0; i + kSampled <= n; i += kEvery, m += kSampled) {
        for (size_t j = 0; j < kSampled; j += hn::Lanes(d)) hn::StoreU(hn::LoadU(d, e + i + j), d, scratch + m + j);
      }
      return PackBetween(d, scratch, m, T(0), T(1), scratch);
    };
    const double tail = (1 - p) * total * static_cast<double>(kSampled) / static_cast<double>(kEvery);
    size_t m = sample();
    if (m > 0) {
      const double sampled = MassAbove(d, scratch, m, T(0));
      const double margin = tail / 8;
      if (sampled > tail + margin) high = CutByMass(d, scratch, m, 0, sampled - tail - margin).least;
      m = sample();
      if (sampled > tail - margin) low = CutByMass(d, scratch, m, 0, sampled - tail + margin).least;
    }
  }
  double above = 0;
  size_t m = 0;
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t count = HWY_MIN(kChunk, n - i);
    if (high < T(1)) above += MassAbove(d, e + i, count, high);
    m += PackBetween(d, e + i, count, low, high, scratch + m);
  }
  if (above >= target) {
    // The cut is above the bracket.
    low = high, high = 1, above = 0;
    m = PackBetween(d, e, n, low, high, scratch);
  } else if (low > T(0)) {
    const double reached = above + (m > 0 ? MassAbove(d, scratch, m, T(0)) : 0);
    if (reached < target) {
      // It is below.
      above = reached, high = low, low = 0;
      m = PackBetween(d, e, n, low, high, scratch);
    }
  }
  // By rounding, all that there is does not quite reach the target.
  if (m == 0) return {std::numeric_limits<T>::min(), 0, 0, above};
  return CutByMass(d, scratch, m, above, target);
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_SELECT_INL_H_

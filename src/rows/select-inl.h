// The scores that a cut keeps: the k largest, or those near the maximum. Nothing is sorted. Also: packing chosen entries of a
// row.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/select-inl.h"
#elif defined(ISENTROPIC_ROWS_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_SELECT_INL_H_
#undef ISENTROPIC_ROWS_SELECT_INL_H_
#else
#define ISENTROPIC_ROWS_SELECT_INL_H_
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
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
  // For float, the smallest number that is not below the exact bound; in float64 the bound is rounded.
  T least = static_cast<T>(static_cast<double>(max) + reach);
  if (static_cast<double>(least) < static_cast<double>(max) + reach) least = std::nextafter(least, max);
  // Not -inf, which no score below the type's range reaches, but the padding after a row does.
  return {HWY_MAX(least, std::numeric_limits<T>::lowest()), ~size_t{0}};
}

// Lowers `low` and raises `high` to the smallest and the largest entry.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void RowRange(D d, const T* x, size_t n, T& low, T& high) {
  auto least = hn::Set(d, low), most = hn::Set(d, high);
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, x[i]);
    least = hn::Min(least, xi);
    most = hn::Max(most, xi);
  });
  low = MinLane(d, least);
  high = MaxLane(d, most);
}

// The number of scores that are at least `least`. It is counted in lanes, which is exact, and in four vectors at a time: adding
// is cheaper than examining every mask, and no sum waits for the one before.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t CountAtLeast(D d, const T* x, size_t n, T least) {
  const size_t N = hn::Lanes(d);
  const auto limit = hn::Set(d, least), one = hn::Set(d, T(1));
  size_t count = 0, i = 0;
  while (i + 4 * N <= n) {
    const size_t end = HWY_MIN(n, i + 65536);
    auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (; i + 4 * N <= end; i += 4 * N) {
      sum0 = hn::Add(sum0, hn::IfThenElseZero(hn::Ge(hn::LoadU(d, x + i), limit), one));
      sum1 = hn::Add(sum1, hn::IfThenElseZero(hn::Ge(hn::LoadU(d, x + i + N), limit), one));
      sum2 = hn::Add(sum2, hn::IfThenElseZero(hn::Ge(hn::LoadU(d, x + i + 2 * N), limit), one));
      sum3 = hn::Add(sum3, hn::IfThenElseZero(hn::Ge(hn::LoadU(d, x + i + 3 * N), limit), one));
    }
    sum0 = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
    count += static_cast<size_t>(hn::GetLane(hn::SumOfLanes(d, sum0)));
  }
  QuickForEachVector(d, n - i, [&](size_t j, size_t m) HWY_ATTR {
    count += hn::CountTrue(d, hn::Ge(LoadUpTo(d, x + i + j, m, -kInfinity<T>), limit));
  });
  return count;
}

// The lowest of n scores above -inf, `max` if there is none.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T LowestFinite(D d, const T* x, size_t n, T max) {
  const auto none = hn::Set(d, -kInfinity<T>), most = hn::Set(d, max);
  auto least = most;
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max);
    least = hn::Min(least, hn::IfThenElse(hn::Eq(xi, none), most, xi));
  });
  return MinLane(d, least);
}

// Floating-point numbers as integers in the same order: a bisection over all of them ends after 32 or 64 steps.
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

// The kth largest of x, k from 1 to n, with a finite maximum: the largest number that k scores reach. NaN does not count. Each
// halving of the interval is one sweep that counts.
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

// The end of the shortest prefix of x with `count` entries equal to `value`; n if there are not more.
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

// The cut that keeps the k largest of a row. All of these are among m candidates, of which more than k reach `least`.
//
// Any number between the kth score and the next will do, so the search ends as soon as k scores reach the middle of its
// interval. The middle is that of the values and of the bits in turn: halving values suits scores, and halving bits guarantees
// an end. After every third step the remaining candidates are packed to `room`.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE Cut<T> CutThrough(D d, const T* candidates, size_t m, size_t k, T least, T max, T* room, const T* row, size_t n) {
  using O = Ordered<T>;
  T low = least, high = O::To(O::From(max) + 1);
  size_t above = 0, packed_away = 0;
  for (int step = 1; O::From(high) - 1 > O::From(low); ++step) {
    using Distance = std::make_unsigned_t<typename O::Bits>;
    T middle = T(0.5) * low + T(0.5) * high;
    if (step % 2 == 0 || !(middle > low && middle < high)) {
      const auto from = O::From(low);
      middle =
          O::To(from + static_cast<typename O::Bits>((static_cast<Distance>(O::From(high)) - static_cast<Distance>(from)) / 2));
    }
    const size_t reached = packed_away + CountAtLeast(d, candidates, m, middle);
    if (reached == k) return {middle, n};
    if (reached > k) {
      low = middle;
    } else {
      high = middle, above = reached;
    }
    if (step % 3 == 0 && m > 64) {
      const auto from = hn::Set(d, low), to = hn::Set(d, high);
      size_t left = 0;
      QuickForEachVector(d, m, [&](size_t i, size_t count) HWY_ATTR {
        const auto xi = LoadUpTo(d, candidates + i, count, -kInfinity<T>);
        const auto in = hn::And(hn::Ge(xi, from), hn::Lt(xi, to));
        hn::StoreU(CompressLanes(d, xi, in), d, room + left);
        left += hn::CountTrue(d, in);
      });
      candidates = room, m = left, packed_away = above;
    }
  }
  return {low, EndOfFirst(d, row, n, low, k - above)};  // more than k reach it: they tie
}

// The number of columns when a row is split into lines.
inline constexpr size_t kColumns = 128;

// Numbers of scratch that LargestK needs: maxima of blocks, and scores, packed a vector at a time.
constexpr size_t LargestKScratch(size_t n) { return n + HWY_MAX(n / 64, n < 2 * kColumns ? 0 : kColumns) + 32; }

// Scores of at least `least`, of which `largest` is the largest.
template <class T>
struct ScoreRange {
  T least, largest;
};

// For k <= kColumns / 2: a range that k of the maxima of columns reach, and few more, so that few scores of the row do. It
// begins at -inf if fewer columns have a finite score. It is not inlined, because that makes the rest of LargestK slower.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE ScoreRange<T> RangeByColumns(D d, const T* x, size_t n, size_t k, T* scratch) {
  constexpr T kLowest = -kInfinity<T>;
  constexpr size_t N = hn::MaxLanes(D()), kAtOnce = HWY_MIN(kColumns / N, size_t{8});
  auto most = hn::Set(d, kLowest);
  for (size_t part = 0; part < kColumns; part += kAtOnce * N) {
    hn::Vec<D> maxima[kAtOnce];
    for (auto& maximum : maxima) maximum = hn::Set(d, kLowest);
    size_t i = part;
    for (; i + kAtOnce * N <= n; i += kColumns) {
      for (size_t v = 0; v < kAtOnce; ++v) maxima[v] = hn::Max(hn::LoadU(d, x + i + v * N), maxima[v]);
    }
    for (size_t v = 0; v < kAtOnce && i + v * N < n; ++v) {
      maxima[v] = hn::Max(LoadUpTo(d, x + i + v * N, n - i - v * N, kLowest), maxima[v]);
    }
    for (size_t v = 0; v < kAtOnce; ++v) {
      hn::StoreU(maxima[v], d, scratch + part + v * N);
      most = hn::Max(maxima[v], most);
    }
  }
  const T largest = MaxLane(d, most);
  T low = LowestFinite(d, scratch, kColumns, largest), high = largest;
  if (CountAtLeast(d, scratch, kColumns, low) < k) return {kLowest, largest};
  // The exact kth maximum is not needed: after a few halvings only a few columns are left over, after some more also beside a
  // score that is far above all others.
  size_t left = kColumns;
  for (int step = 0; step < 5 || (step < 12 && left > k + k / 2); ++step) {
    const T middle = T(0.5) * low + T(0.5) * high;
    const size_t reached = CountAtLeast(d, scratch, kColumns, middle);
    if (reached >= k) {
      low = middle, left = reached;
      if (left < k + k / 8) break;
    } else {
      high = middle;
    }
  }
  return {low, largest};
}

// The cut of LargestK by the maxima of columns, if RangeByColumns finds a range.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE bool CutByColumns(D d, const T* x, size_t n, size_t k, T* scratch, Cut<T>& cut) {
  const ScoreRange<T> range = RangeByColumns(d, x, n, k, scratch);
  if (range.least == -kInfinity<T>) return false;
  const auto limit = hn::Set(d, range.least);
  T* const packed = scratch + kColumns;
  size_t m = 0;
  // A branch that cannot be predicted costs more than packing a vector without any, if this is a few instructions.
  const bool few = sizeof(T) == 8 || k < n / 32;
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    const auto in = hn::Ge(xi, limit);
    if (few && hn::AllFalse(d, in)) return;
    hn::StoreU(CompressLanes(d, xi, in), d, packed + m);
    m += hn::CountTrue(d, in);
  });
  cut = m == k ? Cut<T>{range.least, n} : CutThrough(d, packed, m, k, range.least, range.largest, packed, x, n);
  return true;
}

// The k largest of n scores, of equal ones those with the lower index, ignoring NaN. The maximum must be finite.
//
// If k is much smaller than n, the search uses the maxima of blocks of 256 or 64. At least k scores reach the kth largest of
// these maxima, so blocks whose maximum is below it have none of the k largest, and the other blocks have few candidates. For
// larger k it uses the maxima of columns.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE Cut<T> LargestK(D d, const T* x, size_t n, size_t k, T* scratch) {
  constexpr T kLowest = -kInfinity<T>;
  if (k >= n) return {kLowest, 0};
  const size_t size = k <= n / 256 / 4 ? 256 : 64;
  const T* candidates = x;
  size_t m = n;
  const size_t blocks = (n + size - 1) / size;
  if (k <= kColumns / 2 && n >= 2 * kColumns && k > blocks / 4) {
    if (Cut<T> cut; CutByColumns(d, x, n, k, scratch, cut)) return cut;
  }
  T max = kLowest, least = std::numeric_limits<T>::lowest();
  if (k <= blocks / 4) {
    for (size_t b = 0; b < blocks; ++b) {
      scratch[b] = RowMax(d, x + b * size, HWY_MIN(size, n - b * size));
      max = HWY_MAX(max, scratch[b]);
    }
    const T bound = KthLargest(d, scratch, blocks, k, kLowest, max);
    T* const packed = scratch + blocks;
    m = 0;
    const auto limit = hn::Set(d, bound);
    for (size_t b = 0; b < blocks && bound > kLowest; ++b) {
      if (scratch[b] < bound) continue;
      const T* const block = x + b * size;
      QuickForEachVector(d, HWY_MIN(size, n - b * size), [&](size_t i, size_t count) HWY_ATTR {
        const auto xi = LoadUpTo(d, block + i, count, kLowest);
        const auto in = hn::Ge(xi, limit);
        if (hn::AllFalse(d, in)) return;
        hn::StoreU(CompressLanes(d, xi, in), d, packed + m);
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
    least = LowestFinite(d, x, n, max);
  }
  // Fewer than k finite scores: all of them.
  const size_t there = CountAtLeast(d, candidates, m, least);
  if (there < k) return {kLowest, 0};
  if (there == k) return {least, n};
  T* const room = scratch + blocks;
  return CutThrough(d, candidates, m, k, least, max, room, x, n);
}

// Copies the chosen ones of n scores to `packed`, in order, and returns their number. chosen(i, count, scores) is the mask for
// the vector at i; it must not choose the lanes beyond count, which are 0. `packed` may be x; it has room for n + 16.
template <class D, class Chosen, class T = hn::TFromD<D>>
HWY_INLINE size_t PackChosen(D d, const T* x, size_t n, T* packed, Chosen&& chosen) {
  size_t m = 0;
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, T(0));
    const auto in = chosen(i, count, xi);
    hn::StoreU(CompressLanes(d, xi, in), d, packed + m);
    m += hn::CountTrue(d, in);
  });
  return m;
}

// Packs pairs of numbers of the same width, and returns how many. entry(i, count, first, second) finds those at i and the mask
// of the chosen ones, which has no lanes beyond count. `firsts` and `seconds` have room for n + 16, and may be what entry
// reads, but not on a device.
template <class D, class E, class Entry>
HWY_INLINE size_t PackPairs(D d, E e, size_t n, hn::TFromD<D>* firsts, hn::TFromD<E>* seconds, const Entry& entry) {
  size_t m = 0;
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    hn::Vec<D> first;
    hn::Vec<E> second;
    const auto in = entry(i, count, first, second);
    if (hn::AllFalse(d, in)) return;
    hn::StoreU(CompressLanes(d, first, in), d, firsts + m);
    hn::StoreU(hn::BitCast(e, CompressLanes(d, hn::BitCast(d, second), in)), e, seconds + m);
    m += hn::CountTrue(d, in);
  });
  return m;
}

// Packs the masses in (low, high], 0 <= low.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t Pack(D d, const T* e, size_t n, T low, T high, T* packed) {
  const auto above = hn::Set(d, low), limit = hn::Set(d, high);
  return PackChosen(d, e, n, packed, [&](size_t /*i*/, size_t /*count*/, hn::Vec<D> ei) HWY_ATTR {
    return hn::And(hn::Gt(ei, above), hn::Le(ei, limit));
  });
}

// Packs the few masses of a long row in (low, high], and returns the mass above `high`, with the same sum as MassAbove. Most
// groups of 64 have none in the interval, and one branch skips them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double PackFew(D d, const T* e, size_t n, T low, T high, T* packed, size_t& m) {
  constexpr size_t N = hn::MaxLanes(D()), kVectors = 64 / N, kPart = kVectors / 4;
  const auto above = hn::Set(d, low), limit = hn::Set(d, high);
  Totals total;
  GroupTotals of_groups;
  of_groups.Clear();
  size_t packed_count = 0;
  const auto block = [&](const T* at, size_t groups) HWY_ATTR {
    hn::Vec<D> acc[kVectors];
    for (auto& sum : acc) sum = hn::Zero(d);
    for (size_t g = 0; g < groups; ++g, at += 64) {
      auto any = hn::Gt(limit, limit);
      for (size_t v = 0; v < kVectors; ++v) {
        const auto ei = hn::LoadU(d, at + v * N);
        acc[v] = hn::Add(acc[v], hn::IfThenElseZero(hn::Gt(ei, limit), ei));
        any = hn::Or(any, hn::And(hn::Gt(ei, above), hn::Le(ei, limit)));
      }
      if (hn::AllFalse(d, any)) continue;
      for (size_t v = 0; v < kVectors; ++v) {
        const auto ei = hn::LoadU(d, at + v * N);
        const auto in = hn::And(hn::Gt(ei, above), hn::Le(ei, limit));
        hn::StoreU(CompressLanes(d, ei, in), d, packed + packed_count);
        packed_count += hn::CountTrue(d, in);
      }
    }
    for (size_t v = 0; v < kPart; ++v) {
      total.Add(d, v, hn::Add(hn::Add(acc[v], acc[v + 2 * kPart]), hn::Add(acc[v + kPart], acc[v + 3 * kPart])));
    }
  };
  size_t i = 0;
  for (; i + 256 <= n; i += 256) {
    block(e + i, 4);
    if ((i + 256) % kGroup == 0) of_groups.Add(i / kGroup, total.Fold()), total.Clear();
  }
  if (const size_t left = n % 256; left > 0) {
    HWY_ALIGN T rest[256] = {};
    std::memcpy(rest, e + i, left * sizeof(T));
    block(rest, (left + 63) / 64);
  }
  m = packed_count;
  of_groups.Add(i / kGroup, total.Fold());
  return of_groups.Fold();
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_SELECT_INL_H_

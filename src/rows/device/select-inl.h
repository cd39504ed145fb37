// On a device: the scores that a cut keeps, by counting instead of sorting.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "src/rows/device/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct Cut {
  T least;
  size_t end;

  template <class D>
  HWY_INLINE hn::Mask<D> Keeps(D /*d*/, hn::Vec<D> x, size_t i) const {
    return hn::GetLane(x) > least || (hn::GetLane(x) == least && i < end);
  }
};

template <class T>
HWY_INLINE Cut<T> Within(T max, double reach) {
  T least = static_cast<T>(static_cast<double>(max) + reach);
  if (static_cast<double>(least) < static_cast<double>(max) + reach) least = std::nextafter(least, max);
  // Not -inf, which no score below the type's range reaches, but the padding after a row does.
  return {HWY_MAX(least, std::numeric_limits<T>::lowest()), ~size_t{0}};
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void RowRange(D d, const T* x, size_t n, T& low, T& high) {
  T least = low, most = high;
  ForOwn(x, n, [&](T xi) HWY_ATTR { least = xi < least ? xi : least, most = xi > most ? xi : most; });
  low = MinLane(d, hn::Set(d, least));
  high = MaxLane(d, hn::Set(d, most));
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t CountAtLeast(D /*d*/, const T* x, size_t n, T least) {
  size_t count = 0;
  ForOwn(x, n, [&](T xi) HWY_ATTR { count += xi >= least; });
  return Team::Sum(count);
}

template <class T>
struct Ordered {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  static HWY_INLINE Bits From(T x) {
    Bits bits;
    memcpy(&bits, &x, sizeof(T));
    return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
  }
  static HWY_INLINE T To(Bits ordered) {
    const Bits bits = ordered < 0 ? std::numeric_limits<Bits>::min() - ordered : ordered;
    T x;
    memcpy(&x, &bits, sizeof(T));
    return x;
  }
};

// Each pass counts the scores that reach each of 7 numbers, so that an eighth of the interval is left.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T KthLargest(D d, const T* x, size_t n, size_t k, T least, T max) {
  using O = Ordered<T>;
  using Distance = std::make_unsigned_t<typename O::Bits>;
  auto low = O::From(least), high = O::From(max);
  if (!Team::IsOne() && n * ((n - 1) / Team::Size() + 1) <= 2048) {
    // Each thread ranks its numbers: no thread waits for another until the end.
    T found = -kInfinity<T>;
    for (size_t i = Team::Rank(); i < n; i += Team::Size()) {
      size_t above = 0, equal = 0;
      for (size_t j = 0; j < n; ++j) above += x[j] > x[i], equal += x[j] == x[i];
      if (above < k && k <= above + equal) found = x[i];
    }
    return MaxLane(d, hn::Set(d, found));
  }
  if (CountAtLeast(d, x, n, max) >= k) return max;
  while (high - 1 > low) {
    constexpr size_t kParts = 8;
    const Distance distance = static_cast<Distance>(high) - static_cast<Distance>(low);
    typename O::Bits at[kParts + 1];
    T bounds[kParts];
    size_t counts[kParts] = {};
    for (size_t part = 0; part < kParts; ++part) {
      const Distance beyond = distance / kParts * part + distance % kParts * part / kParts;
      at[part] = static_cast<typename O::Bits>(static_cast<Distance>(low) + beyond);
      bounds[part] = O::To(at[part]);
    }
    at[kParts] = high;
    ForOwn(x, n, [&](T xi) HWY_ATTR {
      ISENTROPIC_UNROLL
      for (size_t part = 1; part < kParts; ++part) counts[part] += xi >= bounds[part];
    });
    size_t reached = 0;
    for (size_t part = 1; part < kParts; ++part) {
      if (Team::Sum(counts[part]) >= k) reached = part;
    }
    low = at[reached], high = at[reached + 1];
  }
  return O::To(low);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t EndOfFirst(D /*d*/, const T* x, size_t n, T value, size_t count) {
  if (count == 0) return 0;
  size_t end = n;
  Team::Pack(
      n, [&](size_t i) HWY_ATTR { return x[i] == value; },
      [&](size_t place, size_t i) HWY_ATTR {
        if (place + 1 == count) end = i + 1;
      });
  return Team::Fold(end, n, [](size_t a, size_t b) { return a < b ? a : b; });
}

constexpr size_t LargestKScratch(size_t n) { return n; }  // for a block or more; it also selects among few numbers

// The scores whose leading bits are those of the kth largest, and the number of scores above all of them.
template <class T>
struct KthBin {
  T least, end;  // the scores from `least` on and below `end`
  size_t above, inside;
};

// Counts scores by their leading bits, which are 2048 bins in the order of numbers. Returns false if fewer than k are finite.
// For blocks and clusters, whose shared memory holds the counts.
template <class T>
HWY_INLINE bool FindKthBin(const T* x, size_t n, size_t k, KthBin<T>& found) {
  using O = Ordered<T>;
  using Unsigned = std::make_unsigned_t<typename O::Bits>;
  constexpr unsigned kShift = 8 * sizeof(T) - 11, kBins = 2048, kEach = kBins / 32;
  constexpr Unsigned kSign = Unsigned{1} << (8 * sizeof(T) - 1);
  constexpr T kLowest = std::numeric_limits<T>::lowest(), kHighest = std::numeric_limits<T>::max();
  static_assert(2 * kBins * sizeof(unsigned) <= Team::kPartialBytes);
  const auto key_of = [](T value) HWY_ATTR { return static_cast<Unsigned>(O::From(value)) ^ kSign; };
  unsigned* const own = reinterpret_cast<unsigned*>(Team::Shared().partial);
  unsigned* const all = own + kBins;
  for (unsigned bin = Team::Thread(); bin < kBins; bin += Team::Threads()) own[bin] = 0;
  Team::Barrier();
  ForOwn(x, n, [&](T xi) HWY_ATTR {
    if (xi >= kLowest) Team::Increment(&own[key_of(xi) >> kShift]);
  });
  Team::Barrier();
  for (unsigned bin = Team::Thread(); bin < kBins; bin += Team::Threads()) {
    unsigned total = 0;
    for (unsigned block = 0; block < Team::Blocks(); ++block) total += Team::In(block, own)[bin];
    all[bin] = total;
  }
  Team::Barrier();
  // Every warp searches: each thread has 64 bins, then two of the 64 where the kth largest is. The highest bins come first.
  const auto search = [&](size_t mine, size_t wanted, size_t* before) HWY_ATTR {
    size_t up_to = mine;
    for (unsigned step = 1; step < 32; step *= 2) {
      const size_t other = Team::FromLane(up_to, (Team::Lane() - step) % 32);
      up_to += Team::Lane() >= step ? other : 0;
    }
    const unsigned reached = Team::Ballot(up_to >= wanted);
    unsigned lane = 0;
    while (lane < 32 && (reached >> lane & 1) == 0) ++lane;
    *before = Team::FromLane(up_to - mine, lane % 32);
    return lane;
  };
  const unsigned lane = Team::Lane();
  size_t mine = 0, before, more;
  for (unsigned j = 0; j < kEach; ++j) mine += all[kBins - 1 - (lane * kEach + (j + lane) % kEach)];
  const unsigned part = search(mine, k, &before);
  const bool there = part < 32;
  const unsigned first = kBins - 1 - (part % 32) * kEach - 2 * lane;
  const unsigned pair = search(size_t{all[first]} + all[first - 1], k - HWY_MIN(before, k), &more) % 32;
  unsigned bin = kBins - 1 - (part % 32) * kEach - 2 * pair;
  size_t above = before + more;
  if (above + all[bin] < k) above += all[bin--];
  found.above = above, found.inside = all[bin];
  const auto from = static_cast<typename O::Bits>((Unsigned{bin} << kShift) ^ kSign);
  const auto to = static_cast<typename O::Bits>(((Unsigned{bin} << kShift) | ((Unsigned{1} << kShift) - 1)) ^ kSign);
  found.least = from <= O::From(kLowest) ? kLowest : O::To(from);
  found.end = to >= O::From(kHighest) ? kInfinity<T> : O::To(to + 1);
  Team::Barrier();
  return there;
}

// The k largest: of all finite scores, or of those above a number, `above` of which are certain, packed in `candidates`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE Cut<T> CutAmong(D d, const T* candidates, size_t m, size_t k, T least, T max, const T* x, size_t n) {
  const T kth = KthLargest(d, candidates, m, k, least, max);
  size_t above = 0, equal = 0;
  for (size_t i = Team::Rank(); i < m; i += Team::Size()) above += candidates[i] > kth, equal += candidates[i] == kth;
  const size_t left = k - Team::Sum(above);
  if (Team::Sum(equal) <= left) return {kth, n};
  return {kth, EndOfFirst(d, x, n, kth, left)};
}

template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE Cut<T> LargestK(D d, const T* x, size_t n, size_t k, T* scratch) {
  constexpr T kLowest = -kInfinity<T>;
  if (k >= n) return {kLowest, 0};
  if (!Team::IsOne() && !Team::IsWarp()) {
    KthBin<T> bin;
    if (!FindKthBin(x, n, k, bin)) return {kLowest, 0};
    if (bin.above + bin.inside == k) return {bin.least, n};
    const size_t m = Team::Pack(
        x, n, [&](size_t, T xi) HWY_ATTR { return xi >= bin.least && xi < bin.end; },
        [&](size_t place, size_t i) HWY_ATTR { scratch[place] = x[i]; });
    return CutAmong(d, scratch, m, k - bin.above, bin.least, RowMax(d, scratch, m), x, n);
  }
  const T least = std::numeric_limits<T>::lowest();
  if (CountAtLeast(d, x, n, least) < k) return {kLowest, 0};
  return CutAmong(d, x, n, k, least, RowMax(d, x, n), x, n);
}

template <class D, class Chosen, class T = hn::TFromD<D>>
HWY_INLINE size_t PackChosen(D d, const T* x, size_t n, T* packed, Chosen&& chosen) {
  return Team::PackInPlace(x, n, packed, [&](size_t i, T xi) HWY_ATTR { return chosen(i, size_t{1}, hn::Set(d, xi)).raw; });
}

template <class D, class E, class Entry>
HWY_INLINE size_t PackPairs(D /*d*/, E /*e*/, size_t n, hn::TFromD<D>* firsts, hn::TFromD<E>* seconds, const Entry& entry) {
  return Team::Pack(
      n,
      [&](size_t i) HWY_ATTR {
        hn::Vec<D> first;
        hn::Vec<E> second;
        return entry(i, size_t{1}, first, second).raw;
      },
      [&](size_t place, size_t i) HWY_ATTR {
        hn::Vec<D> first;
        hn::Vec<E> second;
        entry(i, size_t{1}, first, second);
        firsts[place] = first.raw, seconds[place] = second.raw;
      });
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE size_t Pack(D d, const T* e, size_t n, T low, T high, T* packed) {
  return PackChosen(d, e, n, packed, [&](size_t, size_t, hn::Vec<D> ei) HWY_ATTR {
    return hn::Mask<D>(hn::GetLane(ei) > low && hn::GetLane(ei) <= high);
  });
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE double PackFew(D d, const T* e, size_t n, T low, T high, T* packed, size_t& m) {
  m = Team::Pack(
      e, n, [&](size_t, T ei) HWY_ATTR { return ei > low && ei <= high; },
      [&](size_t place, size_t i) HWY_ATTR { packed[place] = e[i]; });
  return Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return hn::Set(d, e[i] > high ? e[i] : T(0)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

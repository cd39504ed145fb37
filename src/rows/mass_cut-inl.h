// The largest entries of a row that have a given mass. Nothing is sorted.

#if defined(ISENTROPIC_ROWS_MASS_CUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_MASS_CUT_INL_H_
#undef ISENTROPIC_ROWS_MASS_CUT_INL_H_
#else
#define ISENTROPIC_ROWS_MASS_CUT_INL_H_
#endif

#include <cmath>
#include <limits>

#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The mass of the entries above `low`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double MassAbove(D d, const T* e, size_t n, T low) {
  const auto limit = hn::Set(d, low);
  return QuickSum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto ei = LoadUpTo(d, e + i, count, T(0));
    return hn::IfThenElseZero(hn::Gt(ei, limit), ei);
  });
}

// A cut through masses: it keeps the entries above `least`, whose mass is `above`, and `kept` of the `equal` entries equal to
// `least`.
template <class T>
struct MassCut {
  T least;
  size_t equal, kept;
  double above;
};

// Three halvings of the interval (from, to] with the cut, by the masses above its middle. Returns the mass above the last `to`
// that was lowered, or 0.
template <class D, class T = hn::TFromD<D>, class Bits = typename Ordered<T>::Bits>
HWY_INLINE double HalveByMass(D d, const T* e, size_t n, double above, double target, Bits& from, Bits& to) {
  using O = Ordered<T>;
  double dropped = 0;
  for (int step = 0; step < 3 && to - from > 1; ++step) {
    const auto middle = from + (to - from) / 2;
    const double upper = MassAbove(d, e, n, O::To(middle));
    // A branch instead of a select: continuing with a predicted result, even if half of the predictions are wrong, is faster
    // than waiting for the sum.
    if (HWY_UNLIKELY(above + upper >= target)) {
      from = middle;
    } else {
      dropped = upper;
      to = middle;
    }
  }
  return dropped;
}

// The cut that keeps the fewest of the largest masses e such that these and `above` together reach `target`, or keeps all.
// Those at most `least` are not looked at. It leaves e as it is unless that is also `room`, which has room for n + 16.
//
// A bisection over the numbers between the smallest and the largest: with masses that are exponentials of scores, whose bits
// are nearly linear in the score, every step about halves the entries left. A sum is cheap and packing is not, so entries
// outside the interval are only dropped after every third step. The bisection ends when all remaining entries are equal.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE MassCut<T> CutByMass(D d, const T* e, size_t n, T* room, double above, double target, T least = T(0)) {
  using O = Ordered<T>;
  const auto lowest = O::From(least);
  for (; n > 0; e = room) {
    T low = e[0], high = e[0];
    RowRange(d, e, n, low, high);
    if (low == high) {
      const double needed = std::ceil((target - above) / static_cast<double>(low));
      const size_t kept = needed < 1 ? 1 : needed < static_cast<double>(n) ? static_cast<size_t>(needed) : n;
      return {low, n, kept, above};
    }
    auto from = HWY_MAX(O::From(low) - 1, lowest), to = O::From(high);
    above += HalveByMass(d, e, n, above, target, from, to);
    n = Pack(d, e, n, O::To(from), O::To(to), room);
  }
  // Because of rounding, all masses together do not quite reach the target.
  return {std::numeric_limits<T>::min(), 0, 0, above};
}

// An interval of masses (low, high], as ordered integers.
template <class T>
struct MassBracket {
  typename Ordered<T>::Bits low, high;
};

// A guess of the interval with the cut of CutRowByMass, from a sample of 16 of every 1024 entries and one sweep; (0, 1] without
// a guess.
//
// The dropped masses are many, and none of them is large. So the sample knows well how much of them is below a given mass, even
// if a few large ones that it missed make most of the total. It gives the cut up to an eighth of the dropped mass; a sum over
// the whole row, in the middle of that interval, corrects it; and a few hundred entries are left.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE MassBracket<T> GuessBracket(D d, const T* e, size_t n, double total, double p, T* scratch) {
  using O = Ordered<T>;
  constexpr size_t kSampled = 16, kEvery = 1024;
  MassBracket<T> bracket = {0, O::From(T(1))};
  size_t m = 0;
  m = (n + kEvery - kSampled) / kEvery * kSampled;
  QuickForEachVector(d, m, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(LoadUpTo(d, e + i / kSampled * kEvery + i % kSampled, count, T(0)), d, count, scratch + i);
  });
  m = Pack(d, scratch, m, T(0), T(1), scratch);
  if (m == 0) return bracket;
  const double sampled = MassAbove(d, scratch, m, T(0));
  const double tail = (1 - p) * total * static_cast<double>(kSampled) / static_cast<double>(kEvery), margin = tail / 8;
  T* const copy = scratch + m + 16;
  if (sampled > tail - margin) {
    QuickForEachVector(
        d, m, [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(LoadUpTo(d, scratch + i, count, T(0)), d, count, copy + i); });
    bracket.low = O::From(CutByMass(d, copy, m, copy, 0, sampled - tail + margin).least) - 1;
  }
  if (sampled > tail + margin) {
    bracket.high = O::From(CutByMass(d, scratch, m, scratch, 0, sampled - tail - margin).least);
    const auto middle = bracket.low + (bracket.high - bracket.low) / 2;
    const double missing = p * total - MassAbove(d, e, n, O::To(middle));
    // The distance of the cut from the middle, if the mass between the ends is evenly spread.
    const double between = 2 * margin * static_cast<double>(kEvery) / static_cast<double>(kSampled);
    const double width = static_cast<double>(bracket.high - bracket.low);
    const double shift = -missing / between * width, doubt = std::abs(shift) / 4 + width / 64;
    if (std::abs(shift) < width / 2) {
      bracket.low = HWY_MAX(bracket.low, middle + static_cast<typename O::Bits>(shift - doubt) - 1);
      bracket.high = HWY_MIN(bracket.high, middle + static_cast<typename O::Bits>(shift + doubt) + 1);
    }
  }
  return bracket;
}

// Numbers of scratch that CutRowByMass needs: masses, packed a vector at a time.
constexpr size_t MassCutScratch(size_t n) { return n + 16; }

// The cut through the masses e of a row with sum `total` and maximum 1 that keeps the part p < 1. It does not change e.
//
// A long row is swept for the few masses in a guessed bracket, and only these are searched closely. The sweep also shows
// whether the guess is right and, if not, on which side to search with a wider one.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE MassCut<T> CutRowByMass(D d, const T* e, size_t n, double total, double p, T* scratch) {
  using O = Ordered<T>;
  const double target = p * total;
  const auto one = O::From(T(1));
  MassBracket<T> bracket = {0, one};
  if (n >= 16384) bracket = GuessBracket(d, e, n, total, p, scratch);
  size_t m = 0;
  double above = 0;
  int moved = 0;  // a bracket only moves one way: rounding must not send it back
  for (auto width = bracket.high - bracket.low; bracket.low > 0 || bracket.high < one;) {
    above = PackFew(d, e, n, O::To(bracket.low), O::To(bracket.high), scratch, m);
    if (moved >= 0 && above >= target) {
      moved = 1;
    } else if (moved <= 0 && bracket.low > 0 && above + MassAbove(d, scratch, m, T(0)) < target) {
      moved = -1;
    } else {
      break;
    }
    width = width < one / 8 ? width * 8 : one;
    if (moved > 0) {
      bracket.low = bracket.high;
      bracket.high = one - bracket.low > width ? bracket.low + width : one;
    } else {
      bracket.high = bracket.low;
      bracket.low = bracket.high > width ? bracket.high - width : 0;
    }
  }
  if (bracket.low > 0 || bracket.high < one) return CutByMass(d, scratch, m, scratch, above, target);
  // The dropped masses are at most 1 - p of all; with the cut they are more, and none is larger than the cut. So n times the
  // cut is more than that part, up to the sum's rounding.
  const double least = p < 1 - 0x1p-12 ? 0.9 * (1 - p) * total / static_cast<double>(n) : 0;
  return CutByMass(d, e, n, scratch, 0, target, static_cast<T>(least));
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_MASS_CUT_INL_H_

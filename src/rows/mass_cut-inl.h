// The largest entries of a row that have a given mass. Nothing is sorted.

#if defined(ENTROPIC_ROWS_MASS_CUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_MASS_CUT_INL_H_
#undef ENTROPIC_ROWS_MASS_CUT_INL_H_
#else
#define ENTROPIC_ROWS_MASS_CUT_INL_H_
#endif

#include <cmath>
#include <limits>

#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

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
// A bisection over the numbers between the smallest and the largest: with masses that are exponentials of scores, whose bits
// are nearly linear in the score, every step about halves the entries left. A sum is cheap and packing is not, so the entries
// that have fallen out are dropped after every third step. It ends when all that are left are equal.
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
    auto from = O::From(low) - 1, to = O::From(high);
    double dropped = 0;
    for (int step = 0; step < 3 && to - from > 1; ++step) {
      const auto middle = from + (to - from) / 2;
      const double upper = MassAbove(d, e, n, O::To(middle));
      // A branch, not a choice: to go on by a guess, though every other one is wrong, is faster than to wait for the sum.
      if (HWY_UNLIKELY(above + upper >= target)) {
        from = middle;
      } else {
        dropped = upper;
        to = middle;
      }
    }
    above += dropped;
    n = Pack(d, e, n, O::To(from), O::To(to), e);
  }
}

// An interval of masses (low, high], as ordered integers.
template <class T>
struct MassBracket {
  typename Ordered<T>::Bits low, high;
};

// Where the cut of CutRowByMass is, by a sample of 16 entries of every 1024 and one sweep: a guess, and (0, 1] without one.
//
// The masses that are to go are many and none of them is large: so the sample knows well how much of them is below a given
// mass, also where a few large ones that it missed make most of the total. It says where the cut is to an eighth of what is
// to go, the sum over the whole row in the middle of that corrects it, and what is left is a few hundred entries.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE MassBracket<T> GuessBracket(D d, const T* e, size_t n, double total, double p, T* scratch) {
  using O = Ordered<T>;
  constexpr size_t kSampled = 16, kEvery = 1024;
  MassBracket<T> bracket = {0, O::From(T(1))};
  size_t m = 0;
  m = (n + kEvery - kSampled) / kEvery * kSampled;
  ForEachVector(d, m, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(LoadUpTo(d, e + i / kSampled * kEvery + i % kSampled, count, T(0)), d, count, scratch + i);
  });
  m = Pack(d, scratch, m, T(0), T(1), scratch);
  if (m == 0) return bracket;
  const double sampled = MassAbove(d, scratch, m, T(0));
  const double tail = (1 - p) * total * static_cast<double>(kSampled) / static_cast<double>(kEvery), margin = tail / 8;
  T* const copy = scratch + m + 16;
  if (sampled > tail - margin) {
    ForEachVector(
        d, m, [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(LoadUpTo(d, scratch + i, count, T(0)), d, count, copy + i); });
    bracket.low = O::From(CutByMass(d, copy, m, 0, sampled - tail + margin).least) - 1;
  }
  if (sampled > tail + margin) {
    bracket.high = O::From(CutByMass(d, scratch, m, 0, sampled - tail - margin).least);
    const auto middle = bracket.low + (bracket.high - bracket.low) / 2;
    const double missing = p * total - MassAbove(d, e, n, O::To(middle));
    // How far from the middle the cut is if the mass between the ends is spread evenly.
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

// Numbers of scratch that CutRowByMass wants: masses, packed a vector at a time.
constexpr size_t MassCutScratch(size_t n) { return n + 16; }

// The cut through the masses e of a row with sum `total` and maximum 1, of which the part p < 1 is to stay. Leaves e as it is.
//
// A long row is swept for the few masses in a bracket that was guessed. Only these are compared closely. The sweep shows also
// whether the guess was right, and if not on which side to look, with a wider one.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE MassCut<T> CutRowByMass(D d, const T* e, size_t n, double total, double p, T* scratch) {
  using O = Ordered<T>;
  const double target = p * total;
  const auto one = O::From(T(1));
  MassBracket<T> bracket = {0, one};
  if (n >= 16384) bracket = GuessBracket(d, e, n, total, p, scratch);
  size_t m = 0;
  double above = 0;
  int moved = 0;  // a bracket that has moved moves on the same way: rounding must not send it back
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
  if (bracket.low == 0 && bracket.high == one) m = Pack(d, e, n, T(0), T(1), scratch);
  // By rounding, all that there is does not quite reach the target.
  if (m == 0) return {std::numeric_limits<T>::min(), 0, 0, above};
  return CutByMass(d, scratch, m, above, target);
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_MASS_CUT_INL_H_

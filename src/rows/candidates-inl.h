// The scores of a row that may be among its k largest, packed with their places.

#if defined(ISENTROPIC_ROWS_CANDIDATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_CANDIDATES_INL_H_
#undef ISENTROPIC_ROWS_CANDIDATES_INL_H_
#else
#define ISENTROPIC_ROWS_CANDIDATES_INL_H_
#endif

#include "src/rows/filter-inl.h"
#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Packs the scores that may be among the k largest, with their places, for k much smaller than n: all that reach a number that
// the maxima of k blocks reach. So the other blocks are not read again. Returns how many scores it packs, or 0 if they are many
// or fewer blocks have a finite score. In a row with NaN it packs only a NaN.
template <class T>
HWY_NOINLINE size_t CandidatesForLargest(const T* x, size_t n, size_t k, T* scratch, const Survivors<T>& kept) {
  using TI = hwy::MakeSigned<T>;
  const RowTag<T> d;
  const hn::RebindToSigned<RowTag<T>> di;
  constexpr T kLowest = -kInfinity<T>;
  const size_t N = hn::Lanes(d), size = k <= n / 256 / 4 ? 256 : 64, blocks = (n + size - 1) / size;
  if (k > blocks / 4) return 0;
  auto most = hn::Set(d, kLowest);
  auto nan = hn::IsNaN(most);
  for (size_t b = 0; b < blocks; ++b) {
    hn::Vec<RowTag<T>> max[4];
    for (auto& one : max) one = hn::Set(d, kLowest);
    const auto take = [&](size_t a, hn::Vec<RowTag<T>> scores) HWY_ATTR {
      max[a] = hn::Max(scores, max[a]);
      nan = hn::Or(nan, hn::IsNaN(scores));
    };
    size_t i = b * size;
    const size_t end = HWY_MIN(n, i + size);
    for (; i + 4 * N <= end; i += 4 * N) {
      for (size_t a = 0; a < 4; ++a) take(a, hn::LoadU(d, x + i + a * N));
    }
    for (; i < end; i += N) take(0, LoadUpTo(d, x + i, HWY_MIN(N, end - i), kLowest));
    const auto of_block = hn::Max(hn::Max(max[0], max[1]), hn::Max(max[2], max[3]));
    scratch[b] = MaxLane(d, of_block);
    most = hn::Max(most, of_block);
  }
  if (HWY_UNLIKELY(!hn::AllFalse(d, nan))) {
    kept.z[0] = kNaN<T>, kept.places[0] = 0;
    return 1;
  }
  const T bound = KthLargest(d, scratch, blocks, k, kLowest, MaxLane(d, most));
  if (bound == kLowest) return 0;
  const auto limit = hn::Set(d, bound);
  const auto lane = hn::Iota(di, 0);
  size_t m = 0;
  for (size_t b = 0; b < blocks; ++b) {
    if (scratch[b] < bound) continue;
    for (size_t i = b * size; i < HWY_MIN(n, (b + 1) * size); i += N) {
      const auto scores = LoadUpTo(d, x + i, HWY_MIN(N, n - i), kLowest);
      const auto in = hn::Ge(scores, limit);
      if (hn::AllFalse(d, in)) continue;
      const auto places = hn::BitCast(d, hn::Add(lane, hn::Set(di, static_cast<TI>(i))));
      hn::StoreU(CompressLanes(d, scores, in), d, kept.z + m);
      StoreUpTo(CompressLanes(d, places, in), d, HWY_MIN(N, n - m), reinterpret_cast<T*>(kept.places) + m);
      m += hn::CountTrue(d, in);
    }
  }
  for (size_t i = 0; i < 64; i += N) hn::StoreU(hn::Set(d, kLowest), d, kept.z + m + i);
  return m <= n / 8 ? m : 0;
}

// Packs the finite scores of at least `least`, with their places, and NaN; returns their number.
template <class T>
HWY_INLINE size_t PackFrom(const T* x, size_t n, T least, const Survivors<T>& kept) {
  const T below = least > -kInfinity<T> ? Ordered<T>::To(Ordered<T>::From(least) - 1) : least;
  return FilterAbove<true>(
      RowTag<T>(), [](hn::Vec<RowTag<T>> score) HWY_ATTR { return score; }, x, n, below, kept);
}

#if HWY_TARGET != HWY_SCALAR  // on a device threads share a row, and there are no columns
// As CandidatesForLargest, by the maxima of columns, for k that is not so small: all scores that reach a number that k columns
// reach. Returns 0 if fewer columns have a finite score, or if packing that many would take longer than the exponentials that
// it saves.
template <class T>
HWY_INLINE size_t CandidatesByColumns(const T* x, size_t n, size_t k, T* scratch, const Survivors<T>& kept) {
  if (k > kColumns / 2 || k >= n / 8 || n < 2 * kColumns) return 0;
  const ScoreRange<T> range = RangeByColumns(RowTag<T>(), x, n, k, scratch);
  return range.least > -kInfinity<T> ? PackFrom(x, n, range.least, kept) : 0;
}
#endif

// Leaves of the m packed scores of a row of n those that `cut` keeps, and NaN; returns their number.
template <class T>
HWY_INLINE size_t DropBelow(Cut<T> cut, const Survivors<T>& kept, size_t m, size_t n) {
  using TI = hwy::MakeSigned<T>;
  const RowTag<T> d;
  const hn::RebindToSigned<RowTag<T>> di;
  const auto least = hn::Set(d, cut.least);
  const auto last = hn::Set(di, static_cast<TI>(HWY_MIN(cut.end, n)) - 1);
  T* const places = reinterpret_cast<T*>(kept.places);
  size_t left = 0;
  QuickForEachVector(d, m, [&](size_t j, size_t count) HWY_ATTR {
    const auto z = LoadUpTo(d, kept.z + j, count, -kInfinity<T>), place = LoadUpTo(d, places + j, count, T(0));
    const auto late = hn::RebindMask(d, hn::Gt(hn::BitCast(di, place), last));
    const auto dropped = hn::Or(hn::Lt(z, least), hn::And(hn::Eq(z, least), late));
    const auto in = hn::AndNot(dropped, hn::FirstN(d, count));
    hn::StoreU(CompressLanes(d, z, in), d, kept.z + left);
    StoreUpTo(CompressLanes(d, place, in), d, HWY_MIN(hn::Lanes(d), n - left), places + left);
    left += hn::CountTrue(d, in);
  });
  return left;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_CANDIDATES_INL_H_

// The threshold tau of a sparse map: the root of sum p(tau) = 1.

#if defined(ENTROPIC_ROWS_THRESHOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_THRESHOLD_INL_H_
#undef ENTROPIC_ROWS_THRESHOLD_INL_H_
#else
#define ENTROPIC_ROWS_THRESHOLD_INL_H_
#endif

#include <cstring>

#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Room for what FilterAbove finds in a row of n.
template <class T>
struct Survivors {
  T* z;                        // n + 64
  hwy::MakeSigned<T>* places;  // n in whole vectors
  uint8_t* above;              // a bit for each score

  // In float64 numbers, at most 5 n + 256 for 16 / sizeof(T) rows.
  static constexpr size_t Room(size_t n) { return ((2 * n + 68) * sizeof(T) + n + 16 + 127) / 128 * 16; }

  Survivors() = default;
  HWY_INLINE Survivors(double* scratch, size_t n) : z(reinterpret_cast<T*>(scratch)) {
    places = reinterpret_cast<hwy::MakeSigned<T>*>(z + n + 64);
    above = reinterpret_cast<uint8_t*>(places + n + 4);
  }
};

// Writes the scores z = relative(x) that are above `bound` to `survivors`, in order, with their places in the row if those are
// wanted, and -inf 64 times behind them. Returns how many. NaN survives, so that whatever is computed from the survivors is
// NaN.
//
// One sweep without a branch notes a bit for each score. Survivors are few: they are taken one by one where the bits are set,
// which costs less than to pack vectors, until some 10 of 64 survive.
template <bool kPlaces, class T, class Relative>
HWY_INLINE size_t FilterAbove(RowTag<T> d, const Relative& relative, const T* x, size_t n, T bound,
                              const Survivors<T>& survivors) {
  using TI = hwy::MakeSigned<T>;
  const hn::RebindToSigned<RowTag<T>> di;
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  // A byte has the bits of 8 lanes, or of all that there are.
  constexpr size_t kLanes = hn::MaxLanes(RowTag<T>()), kBits = HWY_MIN(kLanes, 8);
  const auto limit = hn::Set(d, bound);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto in = hn::Not(hn::Le(relative(LoadUpTo(d, x + i, count, kLowest)), limit));
    hn::StoreMaskBits(d, in, survivors.above + i / kBits);
  });
  const size_t bytes = (n + kLanes - 1) / kLanes * (kLanes / kBits);
  std::memset(survivors.above + bytes, 0, 8);

  T* const z = survivors.z;
  const auto lane = hn::Iota(di, 0);
  size_t kept = 0;
  for (size_t byte = 0; byte < bytes; byte += 8) {
    uint64_t bits;
    std::memcpy(&bits, survivors.above + byte, 8);
    const size_t begin = byte * kBits, end = begin + 8 * kBits;
    if (hwy::PopCount(bits) > 10 && end <= n) {
      for (size_t i = begin; i < end; i += kLanes) {
        const auto in = hn::LoadMaskBits(d, survivors.above + i / kBits);
        hn::StoreU(CompressLanes(d, hn::LoadU(d, x + i), in), d, z + kept);
        if constexpr (kPlaces) {
          const auto at = hn::BitCast(d, hn::Add(lane, hn::Set(di, static_cast<TI>(i))));
          hn::StoreU(hn::BitCast(di, CompressLanes(d, at, in)), di, survivors.places + kept);
        }
        kept += hn::CountTrue(d, in);
      }
    } else {
      for (; bits != 0; bits &= bits - 1, ++kept) {
        const size_t bit = hwy::Num0BitsBelowLS1Bit_Nonzero64(bits);
        const size_t at = begin + bit / 8 * kBits + bit % 8;
        if constexpr (kPlaces) survivors.places[kept] = static_cast<TI>(at);
        z[kept] = x[at];
      }
    }
  }
  for (size_t i = 0; i < 64; i += kLanes) hn::StoreU(hn::Set(d, kLowest), d, z + kept + i);
  for (size_t i = 0; i < kept + 64 - kLanes; i += kLanes) hn::StoreU(relative(hn::LoadU(d, z + i)), d, z + i);
  return kept;
}

// The largest of 64 parts of the row: maxima[l] of the scores x[i] with i mod 64 = l, NaN left out.
template <class T>
HWY_INLINE void PartMaxima(RowTag<T> d, const T* x, size_t n, T* maxima) {
  constexpr size_t kVectors = 64 / hn::MaxLanes(RowTag<T>());
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  const size_t N = hn::Lanes(d);
  hn::Vec<RowTag<T>> max[kVectors];
  for (auto& v : max) v = hn::Set(d, kLowest);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (size_t v = 0; v < kVectors; ++v) max[v] = hn::Max(hn::LoadU(d, x + i + v * N), max[v]);
  }
  for (size_t v = 0; i + v * N < n; ++v) max[v] = hn::Max(LoadUpTo(d, x + i + v * N, n - i - v * N, kLowest), max[v]);
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(max[v], d, maxima + v * N);
}

// tau = high + low, twice the precision of float64: with n entries in the support an error of tau enters the sum n times.
struct Threshold {
  double high, low;
};

// tau with sum max(z_i - tau, 0) = 1, for z <= 0 with maximum 0, filled up with -inf to a multiple of 16, from a start that is
// not above it; -1 never is.
//
// Newton's iteration on that sum, which is convex, decreasing and piecewise linear: from the start, where the sum is at
// least 1, it ascends to the root and reaches it in finitely many steps, the support shrinking (Michelot 1986). The
// residual is summed, not the scores: near the root it is small, and so is its rounding. The last step, which no longer
// changes the support, is kept apart as the low part. The order of the sums is that of 16 lanes, on every target.
template <class T>
HWY_INLINE Threshold SimplexThreshold(const T* z, size_t n, double start = -1) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  constexpr size_t kVectors = 16 / hn::MaxLanes(RowTag<double>());
  double tau = start;
  double support = static_cast<double>(n) + 1;
  for (;;) {
    const V threshold = hn::Set(d, tau);
    Totals sum, count;
    for (size_t i = 0; i < n; i += 16) {
      for (size_t v = 0; v < kVectors; ++v) {
        const V above = hn::Sub(LoadWide(d, z + i + v * hn::Lanes(d), hn::Lanes(d), T(0)), threshold);
        sum.Add(d, v, MaxKeepNaN(hn::Zero(d), above));
        count.Add(d, v, hn::IfThenElseZero(hn::Gt(above, hn::Zero(d)), hn::Set(d, 1.0)));
      }
    }
    const double left = count.Fold();
    const double step = (sum.Fold() - 1) / left;
    if (!(left < support)) return {tau, step};
    support = left;
    tau += step;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_THRESHOLD_INL_H_

// The scores of a row that are above a bound, packed.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/filter-inl.h"
#elif defined(ISENTROPIC_ROWS_FILTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_FILTER_INL_H_
#undef ISENTROPIC_ROWS_FILTER_INL_H_
#else
#define ISENTROPIC_ROWS_FILTER_INL_H_
#endif

#include <cstring>

#include "src/rows/reduce-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Room for the results of FilterAbove in a row of n.
template <class T>
struct Survivors {
  // A byte has the bits of 8 lanes, or of all lanes if there are fewer.
  static constexpr size_t kLanes = hn::MaxLanes(RowTag<T>()), kBits = HWY_MIN(kLanes, 8);

  T* z;                        // n + 64
  hwy::MakeSigned<T>* places;  // n
  uint8_t* above;              // a bit for each score, and 8 bytes

  Survivors() = default;
  Survivors(Arena& arena, size_t n)
      : z(arena.take<T>(n + 64)), places(arena.take<hwy::MakeSigned<T>>(n)), above(arena.take<uint8_t>(Bytes(n) + 8)) {}

  // Bytes with the bits of n scores, in whole vectors.
  static constexpr size_t Bytes(size_t n) { return (n + kLanes - 1) / kLanes * (kLanes / kBits); }
};

// Writes the scores z = relative(x) that are above `bound` to `survivors`, in order, with their places in the row if wanted,
// and 64 times -inf after them. Returns their number. NaN survives, so that whatever is computed from the survivors is NaN.
//
// One sweep without a branch notes a bit for each score. Survivors are usually few, and each set bit is processed by itself.
// This costs less than packing vectors, as long as fewer than about 10 of 64 survive.
template <bool kPlaces, class T, class Relative>
HWY_INLINE size_t FilterAbove(RowTag<T> d, const Relative& relative, const T* x, size_t n, T bound,
                              const Survivors<T>& survivors) {
  using TI = hwy::MakeSigned<T>;
  const hn::RebindToSigned<RowTag<T>> di;
  constexpr T kLowest = -kInfinity<T>;
  constexpr size_t kLanes = Survivors<T>::kLanes, kBits = Survivors<T>::kBits;
  const auto limit = hn::Set(d, bound);
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto in = hn::Not(hn::Le(relative(LoadUpTo(d, x + i, count, kLowest)), limit));
    hn::StoreMaskBits(d, in, survivors.above + i / kBits);
  });
  const size_t bytes = Survivors<T>::Bytes(n);
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

// Packs x - shift for the scores x >= least, at most `most` and one more vector. Returns their number, or the first number
// above `most`. `lowest` becomes the least of all scores.
inline HWY_NOINLINE size_t PackAbove(const float* x, size_t n, float least, float shift, size_t most, float* packed,
                                     float* lowest) {
  const RowTag<float> d;
  const auto limit = hn::Set(d, least), top = hn::Set(d, shift);
  auto min = top;
  size_t kept = 0;
  QuickForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, shift);
    min = hn::Min(xi, min);
    auto in = hn::Ge(xi, limit);
    if (hn::AllFalse(d, in) || kept > most) return;
    if (count < hn::Lanes(d)) in = hn::And(in, hn::FirstN(d, count));
    hn::StoreU(CompressLanes(d, hn::Sub(xi, top), in), d, packed + kept);
    kept += hn::CountTrue(d, in);
  });
  *lowest = MinLane(d, min);
  return kept;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_FILTER_INL_H_

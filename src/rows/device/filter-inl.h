// On a device: the scores of a row that are above a bound, packed in their order.
#pragma once

#include "src/device/arena.h"
#include "src/rows/device/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct Survivors {
  T* z;                        // n + 64
  hwy::MakeSigned<T>* places;  // n

  Survivors() = default;
  HWY_INLINE Survivors(Arena& arena, size_t n) : z(arena.take<T>(n + 64)), places(arena.take<hwy::MakeSigned<T>>(n)) {}
};

template <bool kPlaces, class T, class Relative>
HWY_INLINE size_t FilterAbove(RowTag<T> d, const Relative& relative, const T* x, size_t n, T bound,
                              const Survivors<T>& survivors) {
  const auto z_of = [&](T xi) HWY_ATTR { return hn::GetLane(relative(hn::Set(d, xi))); };
  const size_t kept = Team::Pack(
      x, n, [&](size_t, T xi) HWY_ATTR { return !(z_of(xi) <= bound); },
      [&](size_t place, size_t i) HWY_ATTR {
        survivors.z[place] = z_of(x[i]);
        if constexpr (kPlaces) survivors.places[place] = static_cast<hwy::MakeSigned<T>>(i);
      });
  FillRow(d, -kInfinity<T>, 64, survivors.z + kept);
  return kept;
}

HWY_INLINE size_t PackAbove(const float* x, size_t n, float least, float shift, size_t most, float* packed, float* lowest) {
  const RowTag<float> d;
  float min = shift;
  const size_t kept = Team::Pack(
      x, n,
      [&](size_t, float xi) HWY_ATTR {
        min = xi < min ? xi : min;
        return xi >= least;
      },
      [&](size_t place, size_t i) HWY_ATTR {
        if (place < most) packed[place] = x[i] - shift;
      });
  *lowest = MinLane(d, hn::Set(d, min));
  return kept;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

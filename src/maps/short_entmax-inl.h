// entmax of float32 rows of at most ShortRows::kLongest entries for 1.2 <= alpha < 2 and 0 < alpha <= 0.8, rows side by side.
//
// A power costs as much as the rest of a softmax, and Newton's iteration needs one of every entry in each step. So the search
// starts near the root, by whole powers, which are a few multiplications; then two evaluations by UnitPower are enough for most
// rows, and the last of them also gives the masses.

#if defined(ISENTROPIC_MAPS_SHORT_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SHORT_ENTMAX_INL_H_
#undef ISENTROPIC_MAPS_SHORT_ENTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_SHORT_ENTMAX_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/maps/short_vjp-inl.h"
#include "src/maps/whole_powers-inl.h"
#include "src/rows/short-inl.h"
#include "src/rows/unit_power-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// b = alpha - 1 in [1/5, 1), or in [-1, -1/5] if not kRising. The entries of the groups are the scores.
template <bool kRising, class D>
HWY_NOINLINE HWY_FLATTEN void ShortEntmax(D d, double b, double temperature, const hn::Vec<D>* max, ShortRows<float>* group,
                                          float* const* p, size_t count) {
  using V = hn::Vec<D>;
  using L = Lanes<D>;
  constexpr size_t kRows = ShortRows<float>::kRows;
  const double e = 1 / std::abs(b);
  const UnitPower power(e - 1);
  const WholePowers whole_powers(b);
  // For b < 0 a mass changes by less than the part e (e + 1)/2 of the square of a step.
  const UntilStep enough = {kRising ? SmallStep(b, static_cast<double>(group->size()), 0x1p-24)
                                    : std::sqrt(0x1p-23 / (e * (e + 1)))};
  const int starts = kRising && b <= 0.5 ? 2 : 3;
  ShortRows<float> powers(group->size());
  for (size_t g = 0; g * kRows < count; ++g) {
    ShortRows<float>& u = group[g];
    const RelativeScores<D> relative(max[g], temperature / b);
    u.Transform([&](V x) HWY_ATTR { return relative(x); });

    V start = hn::Set(d, 1.0f);
    for (int i = 0; i < starts; ++i) {
      V sums[WholePowers::kPowers];
      u.FusedSums(sums, [&](V ui, V* acc) HWY_ATTR {
        V terms[WholePowers::kPowers];
        whole_powers.Terms(EntmaxBase<kRising>(d, ui, start, 0), terms);
        for (size_t k = 0; k < WholePowers::kPowers; ++k) acc[k] = hn::Add(acc[k], terms[k]);
      });
      start = whole_powers.Next(start, sums);
    }
    NormSearch<L, BoundNorm, UntilStep> search;
    search.Begin(b, start, enough);
    while (!AllFalse(search.asks())) {
      V sums[2];
      const V c = search.c().v;
      u.SumsInto(powers, sums, [&](V ui, V* acc) HWY_ATTR {
        const V y = EntmaxBase<kRising>(d, ui, c, UnitPower::kLeast), at_y = power(y);
        if constexpr (kRising) {
          acc[0] = hn::MulAdd(at_y, y, acc[0]);
          acc[1] = hn::Add(at_y, acc[1]);
        } else {
          const V mass = hn::Mul(at_y, y);
          acc[0] = hn::Add(mass, acc[0]);
          acc[1] = hn::MulAdd(mass, y, acc[1]);
        }
        return at_y;
      });
      search.Take(sums[0], sums[1]);
    }
    // The last step along each mass's slope: (q - step)^(1/b) is q^(1/b - 1) (q - step/b) but for the square of the step. As
    // y rises, so does the product, also after rounding.
    const V c = search.c().v, rest = hn::Mul(search.step().v, hn::Set(d, static_cast<float>(1 / b)));
    u.Store(p + g * kRows, HWY_MIN(kRows, count - g * kRows), powers, [&](V ui, V at_y) HWY_ATTR {
      const V y = EntmaxBase<kRising>(d, ui, c, 0);
      if constexpr (kRising) {
        return hn::Mul(at_y, MaxKeepNaN(hn::Zero(d), hn::Sub(y, rest)));
      } else {
        return hn::Mul(at_y, hn::NegMulAdd(hn::Mul(rest, y), y, y));
      }
    });
  }
}

// s = p^(1 - b) of masses p, for b < 1; of 0 it is some number.
class SlopePower {
 public:
  using V = hn::Vec<RowTag<float>>;
  HWY_INLINE explicit SlopePower(double b)
      : power_(1 - b, UnitPower::Order::any), exponent_(hn::Set(RowTag<float>(), static_cast<float>(1 - b))) {}
  HWY_INLINE V operator()(V p) const {
    const RowTag<float> d;
    const V least = hn::Set(d, UnitPower::kLeastExact), s = power_(hn::Max(p, least));
    const auto small = hn::Lt(p, least);
    if (HWY_LIKELY(hn::AllFalse(d, hn::And(small, hn::Gt(p, hn::Zero(d)))))) return s;
    return hn::IfThenElse(small, Exp(d, hn::Mul(exponent_, Log(d, p))), s);
  }

 private:
  UnitPower power_;
  V exponent_;
};

// dx for b < 1.
HWY_NOINLINE HWY_FLATTEN inline void ShortEntmaxVjp(double b, double temperature, ShortRows<float>* p, ShortRows<float>* g,
                                                    float* const* dx, size_t count) {
  const SlopePower power(b);
  ShortVjpBySlope(temperature, p, g, dx, count, [&](auto pi) HWY_ATTR { return power(pi); });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SHORT_ENTMAX_INL_H_

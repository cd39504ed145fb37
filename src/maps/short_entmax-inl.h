// entmax of float32 rows of at most ShortRows::kLongest entries for 1.2 <= alpha < 2, rows side by side.
//
// A power costs as much as the rest of a softmax, and Newton's iteration needs one of every entry in each step. So the search
// starts near the root, by whole powers, which are a few multiplications; then two evaluations by UnitPower are enough for most
// rows, and the last of them also gives the masses.

#if defined(ENTROPIC_MAPS_SHORT_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_SHORT_ENTMAX_INL_H_
#undef ENTROPIC_MAPS_SHORT_ENTMAX_INL_H_
#else
#define ENTROPIC_MAPS_SHORT_ENTMAX_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/maps/whole_powers-inl.h"
#include "src/rows/short-inl.h"
#include "src/rows/unit_power-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// b = alpha - 1 in [1/5, 1). The entries of the groups are the scores.
template <class D>
HWY_NOINLINE HWY_FLATTEN void ShortEntmax(D d, double b, double temperature, const hn::Vec<D>* max, ShortRows<float>* group,
                                          float* const* p, size_t count) {
  using V = hn::Vec<D>;
  using L = Lanes<D>;
  constexpr size_t kRows = ShortRows<float>::kRows;
  const V zero = hn::Zero(d), least = hn::Set(d, UnitPower::kLeast);
  const UnitPower power(1 / b - 1);
  const WholePowers whole_powers(1 / b);
  const UntilStep enough = {SmallStep(b, static_cast<double>(group->size()), 0x1p-24)};
  const V inverse_b = hn::Set(d, static_cast<float>(1 / b));
  ShortRows<float> slopes(group->size());
  for (size_t g = 0; g * kRows < count; ++g) {
    ShortRows<float>& u = group[g];
    const RelativeScores<D> relative(max[g], temperature / b);
    u.Transform([&](V x) HWY_ATTR { return relative(x); });

    V start = hn::Set(d, 1.0f);
    for (int steps = b > 0.5 ? 3 : 2; steps > 0; --steps) {
      V sums[WholePowers::kPowers];
      u.FusedSums(sums, [&](V ui, V* acc) HWY_ATTR {
        V terms[WholePowers::kPowers];
        whole_powers.Terms(MaxKeepNaN(zero, hn::Add(ui, start)), terms);
        for (size_t k = 0; k < WholePowers::kPowers; ++k) acc[k] = hn::Add(acc[k], terms[k]);
      });
      start = whole_powers.Next(start, sums);
    }
    NormSearch<L, BoundNorm, UntilStep> search;
    search.Begin(b, start, enough);
    while (!AllFalse(search.asks())) {
      V sums[2];
      const V c = search.c().v;
      u.SumsInto(slopes, sums, [&](V ui, V* acc) HWY_ATTR {
        const V q = MaxKeepNaN(least, hn::Add(ui, c));
        const V slope = power(q);
        acc[0] = hn::MulAdd(q, slope, acc[0]);
        acc[1] = hn::Add(acc[1], slope);
        return slope;
      });
      search.Take(sums[0], sums[1]);
    }
    // The last step along each mass's slope: (q - step)^(1/b) is q^(1/b - 1) (q - step/b) but for the square of the step.
    const V c = search.c().v, rest = hn::Mul(search.step().v, inverse_b);
    u.Store(p + g * kRows, HWY_MIN(kRows, count - g * kRows), slopes, [&](V ui, V slope) HWY_ATTR {
      const V q = MaxKeepNaN(zero, hn::Add(ui, c));
      return hn::Mul(slope, MaxKeepNaN(zero, hn::Sub(q, rest)));
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_SHORT_ENTMAX_INL_H_

// entmax of float32 rows for 0 < alpha <= 0.8, where every score has mass: p = y^e with y = 1/(c + u) <= 1, e = 1/(1 - alpha)
// and u = (1 - alpha)(max - x)/T >= 0.

#if defined(ISENTROPIC_MAPS_HEAVY_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_HEAVY_ENTMAX_INL_H_
#undef ISENTROPIC_MAPS_HEAVY_ENTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_HEAVY_ENTMAX_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/maps/whole_powers-inl.h"
#include "src/rows/unit_power-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// b = alpha - 1. p may be x.
HWY_NOINLINE HWY_FLATTEN inline void MapHeavyRow(double b, double temperature, const float* x, size_t n, float max, float* p,
                                                 Workspace workspace) {
  using V = hn::Vec<RowTag<float>>;
  const RowTag<float> d;
  const double e = -1 / b;
  const RelativeScores<RowTag<float>> relative(hn::Set(d, max), temperature / b);
  const auto load = [&](size_t i, size_t count) HWY_ATTR { return relative(LoadUpTo(d, x + i, count, -kInfinity<float>)); };

  // Where there are many, a few of them say first where the root is.
  const WholePowers whole_powers(b);
  constexpr size_t kSample = 256;
  float start = 1;
  if (n >= 2 * kSample) {
    HWY_ALIGN float sample[kSample];
    for (size_t k = 0; k < kSample; ++k) sample[k] = x[k * (n / kSample)];
    start = WholePowerSteps<false>(whole_powers, start, kSample, static_cast<double>(n) / static_cast<double>(kSample),
                                   [&](size_t i, size_t) HWY_ATTR { return relative(hn::Load(d, sample + i)); });
  }
  start = WholePowerSteps<false>(whole_powers, start, n, 1, load);

  const UnitPower power(e - 1);
  float* const slopes = x == p ? workspace.memory.take<float>(n) : p;
  NormSearch<double, PowerNorm, UntilPart<double>, float> search;
  // A mass changes by less than the part e (e + 1)/2 of the square of a step's part of c.
  search.Begin(b, start, {std::sqrt(0x1p-23 / (e * (e + 1)))});
  double sums[2] = {};
  while (search.asks()) {
    const auto c = hn::Set(d, search.c());
    Sums(d, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
      const V y = EntmaxBase<false>(d, load(i, count), c, UnitPower::kLeast), at_y = power(y);
      StoreUpTo(at_y, d, count, slopes + i);
      terms[0] = hn::Mul(at_y, y);
      terms[1] = hn::Mul(terms[0], y);
    });
    search.Take(sums[0], sums[1]);
  }
  if (sums[0] != sums[0]) return FillRow(d, kNaN<float>, n, p);
  // The last step along each mass's slope, as in ShortEntmax.
  const auto c = hn::Set(d, search.c()), rest = hn::Set(d, static_cast<float>(search.step() / -b));
  WriteRow(d, workspace.stream, n, p, [&](size_t i, size_t count) HWY_ATTR {
    const V y = EntmaxBase<false>(d, load(i, count), c, 0);
    return hn::Mul(LoadUpTo(d, slopes + i, count, 0.0f), hn::MulAdd(hn::Mul(rest, y), y, y));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_HEAVY_ENTMAX_INL_H_

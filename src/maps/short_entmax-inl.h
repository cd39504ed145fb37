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
#include "src/rows/short-inl.h"
#include "src/rows/unit_power-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Approximates the logarithm of the sum of q^e from the sums of four whole powers. As a function of e it is smooth (the cumulants of
// log q are its derivatives), and the cubic through four of its values is off by less than a hundredth for 1 < e <= 5.
class WholePowers {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;

  HWY_INLINE explicit WholePowers(double e) : squares_(e > 3), e_(e) {
    Interpolate(e, at_e_);
    Interpolate(e - 1, below_e_);
  }

  // Steps of Newton's iteration on the norm, from c = 1.
  HWY_INLINE V Start(const ShortRows<float>& u) const {
    V c = hn::Set(D(), 1.0f);
    for (int steps = e_ < 2 ? 3 : 2; steps > 0; --steps) c = squares_ ? Step<true>(u, c) : Step<false>(u, c);
    return c;
  }

 private:
  static constexpr size_t kPowers = 4;

  // The factors of four values of a cubic in its value at `at`.
  HWY_INLINE void Interpolate(double at, V* factors) const {
    for (size_t i = 0; i < kPowers; ++i) {
      double factor = 1;
      for (size_t j = 0; j < kPowers; ++j) {
        if (j != i) factor *= (at - Node(j)) / (Node(i) - Node(j));
      }
      factors[i] = hn::Set(D(), static_cast<float>(factor));
    }
  }
  HWY_INLINE double Node(size_t i) const { return static_cast<double>(i) + (squares_ ? 2 : 1); }

  template <bool kSquares>
  HWY_INLINE V Step(const ShortRows<float>& u, V c) const {
    const D d;
    const V zero = hn::Zero(d);
    V sums[kPowers];
    u.template FusedSums<kPowers>(sums, [&](V ui, V* acc) HWY_ATTR {
      const V q = MaxKeepNaN(zero, hn::Add(ui, c));
      V power = kSquares ? hn::Mul(q, q) : q;
      acc[0] = hn::Add(acc[0], power);
      for (size_t k = 1; k + 1 < kPowers; ++k) {
        acc[k] = hn::MulAdd(power, q, acc[k]);
        power = hn::Mul(power, q);
      }
      acc[kPowers - 1] = hn::MulAdd(power, q, acc[kPowers - 1]);
    });
    V sum = zero, slope = zero;  // logarithms
    for (size_t k = 0; k < kPowers; ++k) {
      const V log = RoughLog2(sums[k]);
      sum = hn::MulAdd(log, at_e_[k], sum);
      slope = hn::MulAdd(log, below_e_[k], slope);
    }
    const V inverse_norm = Exp2(hn::Mul(sum, hn::Set(d, static_cast<float>(-1 / e_))));
    return hn::NegMulAdd(hn::Sub(hn::Set(d, 1.0f), inverse_norm), Exp2(hn::Sub(sum, slope)), c);
  }

  // The binary logarithm of a normal number above 0, within 2^-17: the polynomial interpolates at Chebyshev nodes.
  static HWY_INLINE V RoughLog2(V x) {
    const D d;
    const hn::RebindToSigned<D> di;
    using C = LogConstants<float>;
    const auto moved = hn::Sub(hn::BitCast(di, x), hn::Set(di, C::kSqrtHalfBits));
    const auto m = hn::Add(hn::And(moved, hn::Set(di, C::kMantissaMask)), hn::Set(di, C::kSqrtHalfBits));
    const auto magic = hn::Set(d, ExpConstants<float>::kMagic);
    const V k = hn::Sub(hn::BitCast(d, hn::Add(hn::ShiftRight<23>(moved), hn::BitCast(di, magic))), magic);
    const V f = hn::Sub(hn::BitCast(d, m), hn::Set(d, 1.0f));
    V y = hn::MulAdd(hn::Set(d, -0x1.9e49d6p-3f), f, hn::Set(d, 0x1.4480f6p-2f));
    for (const float coefficient : {-0x1.77bb64p-2f, 0x1.eb719cp-2f, -0x1.714092p-1f, 0x1.7154d0p+0f}) {
      y = hn::MulAdd(y, f, hn::Set(d, coefficient));
    }
    return hn::MulAdd(y, f, k);
  }

  // 2^x for |x| < 126.
  static HWY_INLINE V Exp2(V x) {
    using C = ExpConstants<float>;
    const D d;
    const hn::RebindToSigned<D> di;
    const auto magic = hn::Set(d, C::kMagic + C::kBias);
    const V t = hn::Add(x, magic);
    const V power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, hn::Sub(x, hn::Sub(t, magic))), power);
  }

  bool squares_;
  double e_;
  V at_e_[kPowers], below_e_[kPowers];
};

// b = alpha - 1 in [1/5, 1). The entries of the groups are the scores.
template <class D>
HWY_NOINLINE HWY_FLATTEN void ShortEntmax(D d, double b, double temperature, const hn::Vec<D>* max, ShortRows<float>* group,
                                          float* const* p, size_t count) {
  using V = hn::Vec<D>;
  using L = Lanes<D>;
  constexpr size_t kRows = ShortRows<float>::kRows;
  const V zero = hn::Zero(d);
  const UnitPower power(1 / b - 1);
  const WholePowers whole_powers(1 / b);
  const L enough(static_cast<float>(SmallStep(b, static_cast<double>(group->size()), 0x1p-24)));
  const V inverse_b = hn::Set(d, static_cast<float>(1 / b));
  ShortRows<float> slopes(group->size());
  for (size_t g = 0; g * kRows < count; ++g) {
    ShortRows<float>& u = group[g];
    const RelativeScores<D> relative(max[g], temperature / b);
    u.Transform([&](V x) HWY_ATTR { return relative(x); });

    // The search comes from below the root once at most; then c falls until rounding makes it rise or stay.
    L c = whole_powers.Start(u), step;
    typename L::Mask asks = L(0) < L(1), may_rise = asks;
    for (;;) {
      V sums[2];
      u.SumsInto(slopes, sums, [&](V ui, V* acc) HWY_ATTR {
        const V q = MaxKeepNaN(zero, hn::Add(ui, c.v));
        const V slope = power(q);
        acc[0] = hn::MulAdd(q, slope, acc[0]);
        acc[1] = hn::Add(acc[1], slope);
        return slope;
      });
      step = BoundNorm::Step(b, L(sums[0]), L(sums[1]));
      const L next = c - step;
      asks = asks & (Abs(step) > enough) & (may_rise | (next < c));
      if (AllFalse(asks)) break;
      c = Select(asks, next, c);
      may_rise = L(1) < L(0);
    }
    // The last step along each mass's slope: (q - step)^(1/b) is q^(1/b - 1) (q - step/b) but for the square of the step.
    const V rest = hn::Mul(step.v, inverse_b);
    u.Store(p + g * kRows, HWY_MIN(kRows, count - g * kRows), slopes, [&](V ui, V slope) HWY_ATTR {
      const V q = MaxKeepNaN(zero, hn::Add(ui, c.v));
      return hn::Mul(slope, MaxKeepNaN(zero, hn::Sub(q, rest)));
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_SHORT_ENTMAX_INL_H_

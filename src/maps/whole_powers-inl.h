// A start for the search of entmax' threshold, by whole powers.
//
// The search needs the sum of q^e for e = 1/b, and a power costs as much as the rest of a softmax. Whole powers are a
// multiplication each. As a function of e the logarithm of the sum is smooth (the cumulants of log q are its derivatives), and
// the cubic through its values at four whole e is off by less than a hundredth for 1 < e <= 5, in most rows by a thousandth. At
// a whole e it is exact.

#if defined(ISENTROPIC_MAPS_WHOLE_POWERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_WHOLE_POWERS_INL_H_
#undef ISENTROPIC_MAPS_WHOLE_POWERS_INL_H_
#else
#define ISENTROPIC_MAPS_WHOLE_POWERS_INL_H_
#endif

#include "src/rows/exp_log-inl.h"
#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// What is raised to a power: q = c + u for b > 0, and 1/q for b < 0, where q >= 1 and so 1/q <= 1 as well. `least` stands for
// all below it.
template <bool kRising, class D, class V = hn::Vec<D>>
HWY_INLINE V EntmaxBase(D d, V u, V c, hn::TFromD<D> least) {
  const V q = hn::Add(u, c);
  return MaxKeepNaN(hn::Set(d, least), kRising ? q : hn::Div(hn::Set(d, hn::TFromD<D>(1)), q));
}

// Newton's iteration on the norm of NormSearch, near enough for a start.
class WholePowers {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  static constexpr size_t kPowers = 4;

  // 1/5 <= |b| < 1.
  HWY_INLINE explicit WholePowers(double b) : b_(b) {
    const double e = 1 / std::abs(b);
    first_ = e <= 3 ? 1 : e <= 4 || b > 0 ? 2 : 3;
    Interpolate(e, masses_);
    Interpolate(b > 0 ? e - 1 : e + 1, slopes_);
  }

  // The terms whose sums over a row Next() takes, of q >= 0 or 1/q.
  template <class W>
  HWY_INLINE void Terms(W q, W* terms) const {
    terms[0] = first_ == 1 ? q : hn::Mul(q, q);
    if (first_ == 3) terms[0] = hn::Mul(terms[0], q);
    for (size_t k = 1; k < kPowers; ++k) terms[k] = hn::Mul(terms[k - 1], q);
  }

  // The next c. Whatever the cubic says, it is on the root's side of 1, and not at its end.
  HWY_INLINE V Next(V c, const V (&sums)[kPowers]) const {
    const D d;
    V sum = hn::Zero(d), slope = hn::Zero(d);  // logarithms
    for (size_t k = 0; k < kPowers; ++k) {
      const V log = RoughLog2(sums[k]);
      sum = hn::MulAdd(log, masses_[k], sum);
      slope = hn::MulAdd(log, slopes_[k], slope);
    }
    const V one = hn::Set(d, 1.0f), inverse_norm = Exp2(hn::Mul(sum, hn::Set(d, static_cast<float>(-b_))));
    const V next = hn::NegMulAdd(hn::Sub(one, inverse_norm), Exp2(hn::Sub(sum, slope)), c);
    const V far = hn::Mul(c, hn::Set(d, b_ > 0 ? 0.125f : 8.0f)), low = b_ > 0 ? far : one, high = b_ > 0 ? one : far;
    return hn::IfThenElse(hn::Gt(next, high), high, MaxKeepNaN(low, next));
  }

 private:
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
  HWY_INLINE double Node(size_t i) const { return static_cast<double>(first_ + i); }

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

  size_t first_;
  double b_;
  V masses_[kPowers], slopes_[kPowers];
};

// Steps by whole powers from c towards the root, for n numbers that count `weight` times each; load(i, count) gives u, and
// beyond the end what has no mass. kRising: b > 0.
template <bool kRising, class T, class Load>
HWY_INLINE T WholePowerSteps(const WholePowers& whole_powers, T c, size_t n, double weight, const Load& load) {
  const RowTag<T> d;
  for (int steps = 0; steps < 6; ++steps) {
    const auto at = hn::Set(d, c);
    double sums[WholePowers::kPowers];
    Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
      whole_powers.Terms(EntmaxBase<kRising>(d, load(i, count), at, 0), terms);
    });
    const RowTag<float> df;
    hn::Vec<RowTag<float>> rounded[WholePowers::kPowers];
    for (size_t k = 0; k < WholePowers::kPowers; ++k) rounded[k] = hn::Set(df, static_cast<float>(weight * sums[k]));
    if (sums[WholePowers::kPowers - 1] == 0) return c;  // a sample without mass
    const T last = c;
    c = static_cast<T>(hn::GetLane(whole_powers.Next(hn::Set(df, static_cast<float>(c)), rounded)));
    // A step is followed by an error of about its square.
    if (!(std::abs(c - last) > last / 32)) break;
  }
  return c;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_WHOLE_POWERS_INL_H_

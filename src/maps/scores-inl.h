// What the maps share: scores relative to their maximum, and rows that have no finite maximum.

#if defined(ENTROPIC_MAPS_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_SCORES_INL_H_
#undef ENTROPIC_MAPS_SCORES_INL_H_
#else
#define ENTROPIC_MAPS_SCORES_INL_H_
#endif

#include <cmath>
#include <limits>

#include "entropic/input.h"
#include "src/rows/input-inl.h"
#include "src/rows/split-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// What a kernel is given besides its row.
struct Workspace {
  Arena memory;  // as much as KernelsOf<Op, T>::Memory says
  bool stream;   // the output is too large for the cache: write around it
};

// z = (x - max) / T. Subtracting first loses nothing that the scores still had, whatever their common offset; the product
// with the rounded 1/T adds two roundings, and none at T = 1. -inf stays -inf.
template <class D, class T = hn::TFromD<D>>
class RelativeScores {
 public:
  HWY_INLINE RelativeScores(hn::Vec<D> max, double temperature)
      : max_(max), inverse_(hn::Set(D(), static_cast<T>(1 / temperature))) {}

  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> x) const { return hn::Mul(hn::Sub(x, max_), inverse_); }

 private:
  hn::Vec<D> max_, inverse_;
};

// Which parameters of an operation say what its scores are; null: none does.
template <class Op>
struct ScoreParams {
  double Op::*divisor = nullptr;  // T of x/T
  Input Op::*input = nullptr;
};

// Beyond this, and below its inverse, 1/T is no normal number of type T, or nearly so.
template <class T>
inline constexpr double kExtremeTemperature = sizeof(T) == 4 ? 0x1p100 : 0x1p900;

template <class T>
HWY_INLINE bool IsExtremeTemperature(double temperature) {
  return temperature > kExtremeTemperature<T> || temperature < 1 / kExtremeTemperature<T>;
}

// Whether PrepareRow does more than to find the maximum.
template <class T, class Op>
HWY_INLINE bool NeedsPreparing(const ScoreParams<Op>& params, const Op& op) {
  if (params.divisor != nullptr && IsExtremeTemperature<T>(op.*params.divisor)) return true;
  return params.input != nullptr && op.*params.input == Input::probs;
}

// v / T for gradients, as two products: 1/T may be no normal number where the quotient is one.
template <class D, class T = hn::TFromD<D>>
class DividedBy {
 public:
  HWY_INLINE explicit DividedBy(double temperature) {
    T factors[2] = {T(1), static_cast<T>(1 / temperature)};
    if (HWY_UNLIKELY(IsExtremeTemperature<T>(temperature))) Split(temperature, factors);
    power_ = hn::Set(D(), factors[0]);
    rest_ = hn::Set(D(), factors[1]);
  }

  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> v) const { return hn::Mul(hn::Mul(v, power_), rest_); }

 private:
  // 1/T as a power of two and the rest, each half of the exponent, or as much of it as a normal number has.
  static HWY_NOINLINE void Split(double temperature, T* factors) {
    int exponent;
    const double mantissa = std::frexp(temperature, &exponent);
    constexpr int kMost = std::numeric_limits<T>::max_exponent - 2;
    const auto power = [](int e) { return static_cast<T>(std::ldexp(1.0, e < -kMost ? -kMost : e > kMost ? kMost : e)); };
    const int half = exponent / 2;
    factors[0] = power(-half);
    factors[1] = static_cast<T>(power(half - exponent) / mantissa);
  }

  hn::Vec<D> power_, rest_;
};

// A row as its kernel wants it: scores, an operation to match whose 1/T is a normal number of type T, their maximum.
template <class Op, class T>
struct PreparedRow {
  Op op;
  const T* x;
  T max, original_max;
};

// x/T is (s x)/(s T) for any s. Where 1/T would overflow or lose digits, s is a power of two that prevents it. Temperatures
// beyond s^-2 and s^2 act like these: already there every score that is not the maximum is infinitely far, or none is.
// Probabilities become scores.
template <class D, class Op, class T = hn::TFromD<D>>
HWY_INLINE PreparedRow<Op, T> PrepareRow(D d, const ScoreParams<Op>& params, const Op& op, const T* x, size_t n, T* rescaled) {
  const T max = SplitRowMax(d, x, n);
  PreparedRow<Op, T> row = {op, x, max, max};
  if (params.divisor != nullptr) {
    const double temperature = op.*params.divisor;
    if (HWY_UNLIKELY(IsExtremeTemperature<T>(temperature) && IsFinite(max))) {
      constexpr double kLimit = kExtremeTemperature<T>;
      const bool hot = temperature > 1;
      const T s = static_cast<T>(hot ? 1 / kLimit : kLimit);
      for (size_t i = 0; i < n; ++i) rescaled[i] = hot ? x[i] * s : (x[i] - max) * s;
      row.op.*params.divisor = hot ? HWY_MIN(temperature / kLimit, kLimit) : HWY_MAX(temperature * kLimit, 1 / kLimit);
      row.x = rescaled;
      row.max = hot ? max * s : T(0);
    }
  }
  if (params.input != nullptr && op.*params.input == Input::probs) {
    row.max = row.original_max = ScoresOfProbs(x, n, rescaled);
    row.x = rescaled;
  }
  return row;
}

// The distribution of a row whose maximum is not finite: +inf scores share the mass, the first `most` of them; without them
// there is none.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void NonFiniteRow(D d, const T* x, size_t n, size_t most, T* p) {
  const auto [infinite, nan] = FindNonFinite(x, n);
  if (nan || infinite == 0) return FillRow(d, kNaN<T>, n, p);
  size_t left = HWY_MIN(infinite, most);
  const T share = static_cast<T>(1.0 / static_cast<double>(left));
  for (size_t i = 0; i < n; ++i) {
    const bool has_mass = x[i] == kInfinity<T> && left > 0;
    left -= has_mass;
    p[i] = has_mass ? share : T(0);
  }
}

// logsumexp of a row whose maximum is not finite: that maximum, unless a NaN hides behind it.
template <class T>
HWY_NOINLINE T NonFiniteLogSumExp(const T* x, size_t n) {
  T max = -kInfinity<T>;
  for (size_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return kNaN<T>;
    if (x[i] > max) max = x[i];
  }
  return max;
}

// d/dT of sum g f(x/T) is -<dx, x> / T, since x and T enter as x/T: this is -<dx, x>. f does not change with a constant in x,
// so that dx sums to 0 and the maximum may be subtracted: what dx lost in rounding at large scores then counts little. A
// product with 0 is 0, also where the other factor is infinite.
template <class T>
HWY_NOINLINE double SlopeInDivisor(const T* x, T x_max, const T* dx, size_t n) {
  const D64 d;
  const V64 half = hn::Set(d, 0.5), max = hn::Set(d, 0.5 * static_cast<double>(x_max));
  double sum = 0;
  // Half of each score: differences do not overflow. Where products or their sum do, much less of them.
  for (const double factor : {0.5, 0x1p-600}) {
    const V64 rest = hn::Set(d, 2 * factor);
    sum = Sum(d, n,
              [&](size_t i, size_t count) HWY_ATTR {
                const V64 slope = LoadWide(d, dx + i, count, T(0));
                const V64 distance = hn::Mul(hn::Sub(max, hn::Mul(half, LoadWide(d, x + i, count, T(0)))), rest);
                const V64 zero = hn::Zero(d);
                return hn::IfThenZeroElse(hn::Or(hn::Eq(slope, zero), hn::Eq(distance, zero)), hn::Mul(slope, distance));
              }) /
          factor;
    if (std::isfinite(sum)) break;
  }
  return sum;
}

// Whether the row has a +inf score and no NaN, told from one entry: the first that has mass is +inf or none is. A NaN row is
// NaN in y from the first. The scores of +inf share the mass equally: where two entries differ x need not be fetched, which
// for a gradient would be a fourth array.
template <class T>
HWY_INLINE bool HasInfiniteScore(const T* x, const T* y, size_t n, T no_mass) {
  if (HWY_LIKELY(n > 1 && y[0] != y[1] && y[0] != no_mass && y[1] != no_mass)) return false;
  for (size_t i = 0; i < n; ++i) {
    if (y[i] != no_mass) return x[i] == kInfinity<T> && y[i] == y[i];
  }
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_SCORES_INL_H_

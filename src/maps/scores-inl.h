// Functions that the maps share: scores relative to their maximum, and rows without a finite maximum.

#if defined(ISENTROPIC_MAPS_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SCORES_INL_H_
#undef ISENTROPIC_MAPS_SCORES_INL_H_
#else
#define ISENTROPIC_MAPS_SCORES_INL_H_
#endif

#include <cmath>
#include <limits>

#include "isentropic/input.h"
#include "src/rows/input-inl.h"
#include "src/rows/split-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The memory of a kernel, besides its row.
struct Workspace {
  Arena memory;                // KernelsOf<Op, T>::Memory bytes
  bool stream;                 // the output is too large for the cache: bypass it
  const void* next = nullptr;  // the next row, if prefetching it pays
};

// z = (x - max) / T. Subtracting first loses no digits of the scores, for any common offset; the product with the rounded 1/T
// adds two rounding errors, and none at T = 1. -inf stays -inf.
template <class D, class T = hn::TFromD<D>>
class RelativeScores {
 public:
  HWY_INLINE RelativeScores(hn::Vec<D> max, double temperature)
      : max_(max), inverse_(hn::Set(D(), static_cast<T>(1 / temperature))) {}

  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> x) const { return hn::Mul(hn::Sub(x, max_), inverse_); }

 private:
  hn::Vec<D> max_, inverse_;
};

// The parameters of an operation that define its scores; null: none.
template <class Op>
struct ScoreParams {
  double Op::*divisor = nullptr;  // T of x/T
  Input Op::*input = nullptr;
};

// Above this limit, and below its inverse, 1/T is not a normal number of type T, or nearly not.
template <class T>
inline constexpr double kExtremeTemperature = sizeof(T) == 4 ? 0x1p100 : 0x1p900;

template <class T>
HWY_INLINE bool IsExtremeTemperature(double temperature) {
  return temperature > kExtremeTemperature<T> || temperature < 1 / kExtremeTemperature<T>;
}

// Whether PrepareRow does more than find the maximum.
template <class T, class Op>
HWY_INLINE bool NeedsPreparing(const ScoreParams<Op>& params, const Op& op) {
  if (params.divisor != nullptr && IsExtremeTemperature<T>(op.*params.divisor)) return true;
  return params.input != nullptr && op.*params.input == Input::probs;
}

// v / T for gradients, as two products: the quotient may be a normal number though 1/T is not.
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
  // Splits 1/T into a power of two and the rest, each with half of the exponent, as far as normal numbers allow.
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

// A row prepared for its kernel: scores, their maximum, and a matching operation whose 1/T is a normal number of type T.
template <class Op, class T>
struct PreparedRow {
  Op op;
  const T* x;
  T max, original_max;
};

// x/T is (s x)/(s T) for any s. If 1/T would overflow or lose digits, s is a power of two that prevents this. Temperatures
// beyond s^-2 and s^2 act like these limits, at which all scores below the maximum are already infinitely far, or all equal.
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
      const auto factor = hn::Set(d, s), shift = hn::Set(d, hot ? T(0) : max);
      ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
        StoreUpTo(hn::Mul(hn::Sub(LoadUpTo(d, x + i, count, T(0)), shift), factor), d, count, rescaled + i);
      });
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

// logsumexp of a row whose maximum is not finite: that maximum, or NaN if the row has a NaN.
template <class T>
HWY_NOINLINE T NonFiniteLogSumExp(const T* x, size_t n) {
  T max = -kInfinity<T>;
  for (size_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return kNaN<T>;
    if (x[i] > max) max = x[i];
  }
  return max;
}

// -<dx, x>. d/dT of sum g f(x/T) is -<dx, x> / T, because x and T enter as x/T. f does not change with a constant in x, so dx
// sums to 0 and the maximum may be subtracted; rounding errors of dx at large scores then have little effect. A product with 0
// is 0, also if the other factor is infinite.
template <class T>
HWY_NOINLINE double SlopeInDivisor(const T* x, T x_max, const T* dx, size_t n) {
  const D64 d;
  const V64 half = hn::Set(d, 0.5), max = hn::Set(d, 0.5 * static_cast<double>(x_max));
  double sum = 0;
  // Halved scores have differences that do not overflow. If products or their sum overflow, a much smaller factor is used.
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

// Whether the row has a +inf score and no NaN. One entry decides: the first with mass is +inf, or none is. A NaN row is NaN in
// y from its first entry. +inf scores share the mass equally, so if two entries differ, x need not be loaded; for a gradient it
// would be a fourth array.
template <class T>
HWY_INLINE bool HasInfiniteScore(const T* x, const T* y, size_t n, T no_mass) {
  if (HWY_LIKELY(n > 1 && y[0] != y[1] && y[0] != no_mass && y[1] != no_mass)) return false;
  const RowTag<T> d;
  size_t i = 0;
  while (i + hn::Lanes(d) <= n && hn::AllTrue(d, hn::Eq(hn::LoadU(d, y + i), hn::Set(d, no_mass)))) i += hn::Lanes(d);
  for (; i < n; ++i) {
    if (y[i] != no_mass) return x[i] == kInfinity<T> && y[i] == y[i];
  }
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SCORES_INL_H_

// Rows of every kind of input as distributions in double: the probabilities p and, if the input gives them, their logarithms.

#if defined(ISENTROPIC_MEASURES_DISTRIBUTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_DISTRIBUTION_INL_H_
#undef ISENTROPIC_MEASURES_DISTRIBUTION_INL_H_
#else
#define ISENTROPIC_MEASURES_DISTRIBUTION_INL_H_
#endif

#include <limits>

#include "isentropic/input.h"
#include "src/measures/terms-inl.h"
#include "src/rows/entry-inl.h"
#include "src/rows/input-inl.h"
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// log p is z - shift if z is not null, otherwise the logarithm of p.
struct Distribution {
  const double* p;
  const double* z;
  double shift;
  double sum;      // sum of p; 1 up to rounding unless p was taken as given
  double divisor;  // p is the given numbers times unit / divisor
  size_t n;
  bool exists = true;       // false: the row is NaN
  bool constant = false;    // +inf scores: no gradient
  double unit = 1;          // a power of two, so that the divisor is finite
  bool underflows = false;  // a given number is positive and its p is not a normal number

  HWY_INLINE V64 P(D64 d, size_t i, size_t count) const { return LoadUpTo(d, p + i, count, 0.0); }
  HWY_INLINE V64 Z(D64 d, size_t i, size_t count) const { return LoadUpTo(d, z + i, count, -kInfinity<double>); }
  // -inf where p is 0.
  HWY_INLINE V64 LogP(D64 d, size_t i, size_t count) const {
    return z == nullptr ? Log(d, P(d, i, count)) : hn::Sub(Z(d, i, count), hn::Set(d, shift));
  }
};

// The sum of the distribution x as given; NaN if an entry is invalid. For log_probs with normalize: the largest exp(x).
template <class T>
HWY_NOINLINE double GivenSum(Input input, bool normalize, const T* x, size_t n) {
  const D64 d;
  constexpr double kMax = std::numeric_limits<double>::max();
  const V64 nan = hn::Set(d, kNaN<double>), zero = hn::Zero(d), largest = hn::Set(d, kMax);
  if (input == Input::probs) {
    return Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const V64 p = LoadWide(d, x + i, count, T(0));
      return hn::IfThenElse(hn::And(hn::Ge(p, zero), hn::Le(p, largest)), p, nan);
    });
  }
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 l = LoadWide(d, x + i, count, T(0));
    const V64 value = normalize ? zero : Exp(d, l);
    return hn::IfThenElse(hn::Le(l, largest), value, nan);
  });
  if (!normalize || sum != sum) return sum;
  return RowMax(RowTag<T>(), x, n) > -kInfinity<T> ? 1 : 0;
}

// softmax(x): z = x - max, p = exp(z) / sum, shift = log sum. The largest score's own term, 1, is kept apart, so that shift =
// log(1 + the others), and with it every logarithm, has a small relative error.
template <class T>
HWY_NOINLINE Distribution OfScores(const T* x, size_t n, double* p, double* z) {
  const D64 d;
  const double max = static_cast<double>(RowMax(RowTag<T>(), x, n));
  Distribution row = {p, z, 0, 1, 1, n};
  if (max == kInfinity<double>) {
    const auto [infinite, nan] = FindNonFinite(x, n);
    const double ties = static_cast<double>(infinite);
    const V64 share = hn::Set(d, 1 / ties), none = hn::Set(d, -kInfinity<double>), top = hn::Set(d, kInfinity<double>);
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto is_top = hn::Eq(LoadWide(d, x + i, count, T(0)), top);
      StoreUpTo(hn::IfThenZeroElse(is_top, none), d, count, z + i);
      StoreUpTo(hn::IfThenElseZero(is_top, share), d, count, p + i);
    });
    row.shift = LogNumber(ties);
    row.exists = !nan;
    row.constant = true;
    return row;
  }
  if (!(max > -kInfinity<double>)) {
    row.exists = false;
    return row;
  }
  const V64 top = hn::Set(d, max), absent = hn::Set(d, -kInfinity<double>),
            lowest = hn::Set(d, std::numeric_limits<double>::lowest());
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    // A finite score stays finite.
    const V64 xi = LoadWide(d, x + i, count, T(0));
    const V64 zi = hn::IfThenElse(hn::Eq(xi, absent), absent, MaxKeepNaN(lowest, hn::Sub(xi, top)));
    StoreUpTo(zi, d, count, z + i);
    StoreUpTo(Exp(d, zi), d, count, p + i);
  });
  const size_t first = FindEntry(x, n, static_cast<T>(max));
  const double own = p[first];
  SetEntry(p, first, 0.0);
  const double others = SumRow(d, p, n);
  SetEntry(p, first, own);
  if (!(others >= 0 && own == 1)) {
    row.exists = false;
    return row;
  }
  row.shift = Log1pNumber(others);
  const V64 total = hn::Set(d, 1 + others);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(hn::Div(LoadUpTo(d, p + i, count, 0.0), total), d, count, p + i);
  });
  return row;
}

// Whose logarithms a distribution gets that comes without them: none, those of a row where logarithms of p are inaccurate, or
// all.
enum class Logs { none, inaccurate, all };

// p / sum. If one entry holds more than half of the sum, or a quotient underflows, the logarithm of the quotient is inaccurate;
// logarithms then come from the scores log(p / max).
template <class T>
HWY_NOINLINE Distribution OfWeights(const T* x, size_t n, double sum, Logs logs, double* p, double* z) {
  const D64 d;
  // The sum may overflow a double.
  const double unit = sum <= std::numeric_limits<double>::max() ? 1 : 0x1p-64;
  const V64 factor = hn::Set(d, unit);
  if (unit != 1) {
    sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR { return hn::Mul(LoadWide(d, x + i, count, T(0)), factor); });
  }
  const V64 total = hn::Set(d, sum);
  bool underflows = false;
  if constexpr (sizeof(T) == 8) {
    const V64 least = hn::Set(d, std::numeric_limits<double>::min() * sum / unit);
    underflows = AnyEntry(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const V64 xi = LoadWide(d, x + i, count, T(0));
      return hn::And(hn::Gt(xi, hn::Zero(d)), hn::Lt(xi, least));
    });
  }
  Distribution row = {p, nullptr, 0, 1, sum, n};
  const bool inaccurate = underflows || static_cast<double>(RowMax(RowTag<T>(), x, n)) * unit > 0.5 * sum;
  if (logs == Logs::all || (logs == Logs::inaccurate && inaccurate)) {
    ScoresOfProbs(x, n, z);
    row = OfScores(z, n, p, z);
    row.divisor = sum;
  }
  row.unit = unit;
  row.underflows = underflows;
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(hn::Div(hn::Mul(LoadWide(d, x + i, count, T(0)), factor), total), d, count, p + i);
  });
  return row;
}

// The row as a distribution. `sum` is its GivenSum; p and z are a workspace of n numbers each; x may be z.
template <class T>
HWY_NOINLINE Distribution DistributionOf(Input input, bool normalize, const T* x, size_t n, double sum, Logs logs, double* p,
                                         double* z) {
  const D64 d;
  if (n == 0) return {p, z, 0, 0, 1, 0, false};
  if (input == Input::scores || (input == Input::log_probs && normalize)) return OfScores(x, n, p, z);
  if (input == Input::probs && normalize) return OfWeights(x, n, sum, logs, p, z);
  if (input == Input::probs) {
    if constexpr (sizeof(T) == 8) {
      return {x, nullptr, 0, sum, 1, n};
    } else {
      ForEachVector(d, n,
                    [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(LoadWide(d, x + i, count, T(0)), d, count, p + i); });
      return {p, nullptr, 0, sum, 1, n};
    }
  }
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 zi = LoadWide(d, x + i, count, T(0));
    StoreUpTo(zi, d, count, z + i);
    StoreUpTo(Exp(d, zi), d, count, p + i);
  });
  return {p, z, 0, sum, 1, n};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_DISTRIBUTION_INL_H_

// Rows of probabilities as rows of scores.

#if defined(ISENTROPIC_ROWS_INPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_INPUT_INL_H_
#undef ISENTROPIC_ROWS_INPUT_INL_H_
#else
#define ISENTROPIC_ROWS_INPUT_INL_H_
#endif

#include <limits>

#include "src/rows/exp_log-inl.h"
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// log(p / max) for 0 <= p <= max, with a small relative error; it never falls as p rises.
//
// A large gamma multiplies this number, not log p. Near the maximum it is small, and the difference of two logarithms would
// lose it; there p - max is exact, and log(1 + (p - max) / max) is accurate. Further down the quotient's rounding error is
// small compared with the logarithm, as long as the quotient is a normal number. Below 2^-1000 the difference of logarithms is
// used, and it stays below.
HWY_INLINE V64 LogOfRatio(D64 d, V64 p, V64 max) {
  const auto ratio = hn::Div(p, max), tiny = hn::Set(d, 0x1p-1000);
  auto z = Log(d, ratio);
  const auto is_tiny = hn::Lt(ratio, tiny);
  if (HWY_UNLIKELY(!hn::AllFalse(d, is_tiny))) {
    z = hn::IfThenElse(is_tiny, hn::Min(hn::Sub(Log(d, p), Log(d, max)), Log(d, tiny)), z);
  }
  return hn::IfThenElse(hn::Ge(ratio, hn::Set(d, 0.5)), Log1p(d, hn::Div(hn::Sub(p, max), max)), z);
}

// z = log(p / max) as LogOfRatio. z may be p.
template <class T, class Z>
HWY_INLINE void LogsOfRatios(const T* p, size_t n, double max, Z* z) {
  const D64 d;
  const V64 top = hn::Set(d, max);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreNarrow(LogOfRatio(d, LoadWide(d, p + i, count, static_cast<T>(max)), top), d, count, z + i);
  });
}

// z = log(p / max p), which are p's scores up to a common shift. Returns their maximum, 0. If p is not a distribution times a
// factor, it returns NaN and z is NaN throughout. z is float or double, and not p itself.
template <class T, class Z>
HWY_NOINLINE Z ScoresOfProbs(const T* p, size_t n, Z* z) {
  const D64 d;
  const V64 zero = hn::Zero(d), largest = hn::Set(d, std::numeric_limits<double>::max());
  const double valid = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 pi = LoadWide(D64(), p + i, count, T(0));
    return hn::IfThenElseZero(hn::And(hn::Ge(pi, zero), hn::Le(pi, largest)), hn::Set(d, 1.0));
  });
  const T max = RowMax(RowTag<T>(), p, n);
  if (valid != static_cast<double>(n) || !(max > 0)) {
    for (size_t i = 0; i < n; ++i) z[i] = kNaN<Z>;
    return kNaN<Z>;
  }
  LogsOfRatios(p, n, static_cast<double>(max), z);
  return Z(0);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_INPUT_INL_H_

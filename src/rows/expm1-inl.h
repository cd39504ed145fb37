// e^x - 1 and the rest of its series, for cases in which differences would cancel.

#if defined(ISENTROPIC_ROWS_EXPM1_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_EXPM1_INL_H_
#undef ISENTROPIC_ROWS_EXPM1_INL_H_
#else
#define ISENTROPIC_ROWS_EXPM1_INL_H_
#endif

#include <array>
#include <iterator>

#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// c[0] + c[1] x + ..., one step after another: the loops over rows process four vectors at once.
template <class D, class Coefficients>
HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D> x, const Coefficients& c) {
  using T = hn::TFromD<D>;
  size_t k = std::size(c) - 1;
  auto y = hn::Set(d, static_cast<T>(c[k]));
  while (k-- > 0) y = hn::MulAdd(y, x, hn::Set(d, static_cast<T>(c[k])));
  return y;
}

template <class D>
HWY_INLINE hn::Mask<D> IsNearZero(D d, hn::Vec<D> x) {
  return hn::Le(hn::Abs(x), hn::Set(d, hn::TFromD<D>(1)));
}

// 1/2!, 1/3!, ... 1/18!: the factorials are whole doubles.
inline constexpr auto kInverseFactorials = [] {
  std::array<double, 17> inverse = {};
  double factorial = 1;
  for (size_t k = 0; k < inverse.size(); ++k) inverse[k] = 1 / (factorial *= static_cast<double>(k + 2));
  return inverse;
}();

// phi_2(x) = (e^x - 1 - x) / x^2 if IsNearZero(x), by its Taylor series with a relative error of 2^-55, 2^-27 in float.
template <class D>
HWY_INLINE hn::Vec<D> Phi2NearZero(D d, hn::Vec<D> x) {
  // A device only has constants inside functions.
  constexpr auto kCoefficients = [] {
    std::array<double, sizeof(hn::TFromD<D>) == 4 ? 10 : 17> first = {};
    for (size_t k = 0; k < first.size(); ++k) first[k] = kInverseFactorials[k];
    return first;
  }();
  return Polynomial(d, x, kCoefficients);
}

// e^x - 1 - x and e^x - 1 near 0.
template <class D>
HWY_INLINE hn::Vec<D> ExpTailNearZero(D d, hn::Vec<D> x) {
  return hn::Mul(hn::Mul(x, x), Phi2NearZero(d, x));
}
template <class D>
HWY_INLINE hn::Vec<D> Expm1NearZero(D d, hn::Vec<D> x) {
  return hn::Add(x, ExpTailNearZero(d, x));
}

// e^x - 1, phi_1(x) = (e^x - 1) / x and phi_2(x) for every x, from exp_x = e^x.
template <class D>
HWY_INLINE hn::Vec<D> Expm1(D d, hn::Vec<D> x, hn::Vec<D> exp_x) {
  return hn::IfThenElse(IsNearZero(d, x), Expm1NearZero(d, x), hn::Sub(exp_x, hn::Set(d, hn::TFromD<D>(1))));
}
HWY_INLINE V64 Phi1(D64 d, V64 x, V64 exp_x) {
  const V64 one = hn::Set(d, 1.0);
  return hn::IfThenElse(IsNearZero(d, x), hn::MulAdd(x, Phi2NearZero(d, x), one), hn::Div(hn::Sub(exp_x, one), x));
}
template <class D>
HWY_INLINE hn::Vec<D> Phi2(D d, hn::Vec<D> x, hn::Vec<D> exp_x) {
  const auto far = hn::Div(hn::Sub(hn::Sub(exp_x, hn::Set(d, hn::TFromD<D>(1))), x), hn::Mul(x, x));
  return hn::IfThenElse(IsNearZero(d, x), Phi2NearZero(d, x), far);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_EXPM1_INL_H_

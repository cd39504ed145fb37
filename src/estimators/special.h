// Psi, its derivative, and quotients of gamma functions, for x > 0, to a few units in the last place.
#pragma once

#include <cmath>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// psi(x), and psi'(x) if `slope` is not null: the first terms of psi(x) = psi(x + 1) - 1/x, then the asymptotic series.
inline double psi(double x, double* slope = nullptr) {
  double before = 0, before_slope = 0;
  for (; x < 10; x += 1) {
    const double inverse = 1 / x;
    before -= inverse;
    before_slope += inverse * inverse;
  }
  const double inverse = 1 / x, z = inverse * inverse;
  if (slope != nullptr) {
    // B_2k / x^(2k + 1)
    const double series =
        z * (1.0 / 6 +
             z * (-1.0 / 30 +
                  z * (1.0 / 42 + z * (-1.0 / 30 + z * (5.0 / 66 + z * (-691.0 / 2730 + z * (7.0 / 6 - z * 3617.0 / 510)))))));
    *slope = before_slope + inverse * (1 + inverse / 2 + series);
  }
  // B_2k / (2k x^2k)
  const double series =
      z *
      (1.0 / 12 +
       z * (-1.0 / 120 +
            z * (1.0 / 252 + z * (-1.0 / 240 + z * (1.0 / 132 + z * (-691.0 / 32760 + z * (1.0 / 12 - z * 3617.0 / 8160)))))));
  return before + (std::log(x) - inverse / 2 - series);
}

// log(Gamma(x + n) / Gamma(x)) for whole n >= 0, also where the two are nearly equal or overflow.
inline double log_rising(double x, double n) {
  if (n == 0) return 0;
  if (x > 1e15) return n * std::log(x) + n * (n - 1) / (2 * x);
  double product = 1;
  int steps = 0;
  for (; steps < 12 && n > 0; ++steps, x += 1, n -= 1) product *= x;
  const double first = std::log(product);
  if (n == 0) return first;
  // Stirling's series, each part as a difference.
  const auto tail = [](double y) {
    const double z = 1 / (y * y);
    return (1.0 / 12 + z * (-1.0 / 360 + z * (1.0 / 1260 + z * (-1.0 / 1680 + z * (1.0 / 1188 - z * 691.0 / 360360))))) / y;
  };
  return first + ((x - 0.5) * std::log1p(n / x) + n * (std::log(x + n) - 1) + (tail(x + n) - tail(x)));
}

}  // namespace isentropic::inline ISENTROPIC_ABI

// Generated batches for property tests: every shape and kind of score that is known to break a softmax.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace support {

// One row of scores and its description for failure messages.
template <class T>
struct Case {
  std::string name;
  std::vector<T> x;
};

// Around every vector width, one block of 256 and the change from short rows to long ones.
inline const std::vector<std::size_t> kLengths = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17,  31,   32,   33,  47,
                                                  48, 63, 64, 65, 79, 100, 127, 128, 255, 256, 257, 1000, 1031, 4099};

inline const std::vector<double> kScales = {1e-3, 1, 30, 1e4};

template <class T>
std::vector<T> normal_row(std::size_t n, double scale, double offset, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, 1);
  std::vector<T> x(n);
  for (T& score : x) score = static_cast<T>(offset + scale * normal(generator));
  return x;
}

template <class T>
std::vector<Case<T>> make_finite_cases() {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  std::vector<Case<T>> cases;
  for (const std::size_t n : kLengths) {
    const std::string length = " n=" + std::to_string(n);
    for (const double scale : kScales) {
      cases.push_back({"normal scale=" + std::to_string(scale) + length, normal_row<T>(n, scale, 0, static_cast<unsigned>(n))});
    }
    cases.push_back({"offset 1e6" + length, normal_row<T>(n, 1, 1e6, 7)});
    cases.push_back({"offset -3e4" + length, normal_row<T>(n, 5, -3e4, 8)});
    cases.push_back({"equal" + length, std::vector<T>(n, T(2.5))});

    std::vector<T> ties = normal_row<T>(n, 2, 0, 9);
    for (T& score : ties) score = std::round(score);
    cases.push_back({"ties" + length, ties});

    std::vector<T> masked = normal_row<T>(n, 1, 0, 10);
    for (std::size_t i = 0; i < n; ++i) {
      if (i % 3 != 1 && n > 1) masked[i] = -kInfinity;
    }
    cases.push_back({"masked" + length, masked});

    std::vector<T> spike(n, T(-20));
    spike[n / 2] = 40;
    cases.push_back({"spike" + length, spike});

    std::vector<T> steps(n);
    for (std::size_t i = 0; i < n; ++i) steps[i] = static_cast<T>(-std::log1p(static_cast<double>(i)));
    cases.push_back({"zipf" + length, steps});

    std::vector<T> extreme(n, -std::numeric_limits<T>::max());
    extreme[0] = std::numeric_limits<T>::max();
    cases.push_back({"largest and smallest" + length, extreme});

    // Neighbours, where exp's argument reduction goes from one exponent to the next: rounding must not swap them.
    std::vector<T> neighbours(n, T(-0.34657359027997264));
    neighbours[0] = 0;
    for (std::size_t i = 2; i < n; ++i) neighbours[i] = std::nextafter(neighbours[i - 1], T(i % 64 == 0 ? -10 : 0));
    cases.push_back({"neighbours" + length, neighbours});

    std::vector<T> tiny(n, std::numeric_limits<T>::denorm_min());
    tiny[n - 1] = 0;
    cases.push_back({"subnormal" + length, tiny});
  }
  return cases;
}

// Finite scores and -inf, at least one finite: rows that have a distribution.
template <class T>
const std::vector<Case<T>>& finite_cases() {
  static const std::vector<Case<T>> cases = make_finite_cases<T>();
  return cases;
}

}  // namespace support

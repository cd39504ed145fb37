// Points in any dimension: checked, and their distances.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "isentropic/matrix_view.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Checks that both have at least one point, of the same dimension, with finite coordinates.
template <class T>
void check_points(std::string_view operation, const MatrixView<const T>& x, const MatrixView<const T>& y) {
  check_layout(operation, "x", x);
  check_layout(operation, "y", y);
  if (x.cols != y.cols)
    fail_at(operation, "y", {}, "y must have points of as many coordinates as x, {}, got {}", x.cols, y.cols);
  if (x.rows == 0 || y.rows == 0) {
    fail_at(operation, "x and y", {}, "x and y must have at least one point, got {} and {}", x.rows, y.rows);
  }
  const auto finite = [&](std::string_view name, const MatrixView<const T>& points) {
    for (std::size_t i = 0; i < points.rows; ++i) {
      for (std::size_t k = 0; k < points.cols; ++k) {
        if (!std::isfinite(points.row(i)[k])) {
          fail_at(operation, name, {i, k, " at point ", ", coordinate ", true}, "{} must be finite, got {}", name,
                  points.row(i)[k]);
        }
      }
    }
  };
  finite("x", x);
  finite("y", y);
}

// The largest size of a coordinate of x and y.
template <class T>
double largest_coordinate(const MatrixView<const T>& x, const MatrixView<const T>& y) {
  double largest = 0;
  for (const auto& points : {x, y}) {
    for (std::size_t i = 0; i < points.rows; ++i) {
      for (std::size_t k = 0; k < points.cols; ++k) {
        largest = std::max(largest, std::abs(static_cast<double>(points.row(i)[k])));
      }
    }
  }
  return largest;
}

// The middle of the range of x and y in each coordinate.
template <class T>
std::vector<double> centre_of(const MatrixView<const T>& x, const MatrixView<const T>& y) {
  std::vector<double> centre(x.cols);
  for (std::size_t k = 0; k < x.cols; ++k) {
    double least = x.row(0)[k], largest = least;
    for (const auto& points : {x, y}) {
      for (std::size_t i = 0; i < points.rows; ++i) {
        least = std::min(least, static_cast<double>(points.row(i)[k]));
        largest = std::max(largest, static_cast<double>(points.row(i)[k]));
      }
    }
    centre[k] = 0.5 * least + 0.5 * largest;
  }
  return centre;
}

// A distance to the power `order`.
inline double power(double r, double order) { return order == 1 ? r : order == 2 ? r * r : std::pow(r, order); }

// The Euclidean distances of x's points (rows) and y's (columns), in units of the number returned, a power of 2: their squares
// neither overflow nor vanish.
template <class T>
double distances(const MatrixView<const T>& x, const MatrixView<const T>& y, double* to) {
  const double largest = largest_coordinate(x, y);
  const int exponent = largest > 0x1p400 || (largest > 0 && largest < 0x1p-400) ? std::ilogb(largest) : 0;
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < y.rows; ++j) {
      const auto square = [&](int shift) {
        double sum = 0;
        for (std::size_t k = 0; k < x.cols; ++k) {
          double u = x.row(i)[k], v = y.row(j)[k];
          if (shift != 0) u = std::ldexp(u, shift), v = std::ldexp(v, shift);
          sum += (u - v) * (u - v);
        }
        return sum;
      };
      const double sum = square(-exponent);
      // Squares that underflow though others do not.
      to[i * y.rows + j] = sum < 0x1p-900 ? std::ldexp(std::sqrt(square(400 - exponent)), -400) : std::sqrt(sum);
    }
  }
  return std::ldexp(1.0, exponent);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

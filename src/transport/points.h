// Points in any dimension: checked, and their distances.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "isentropic/matrix_view.h"
#include "isentropic/transport.h"
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

// The directions of points from 0, in rows.
template <class T>
std::vector<double> directions_of(std::string_view operation, std::string_view name, const MatrixView<const T>& points) {
  std::vector<double> found(points.rows * points.cols);
  for (std::size_t i = 0; i < points.rows; ++i) {
    double* const to = found.data() + i * points.cols;
    double largest = 0, sum = 0;
    for (std::size_t k = 0; k < points.cols; ++k) largest = std::max(largest, std::abs(static_cast<double>(points.row(i)[k])));
    if (largest == 0) fail_at(operation, name, {i}, "{} must have no point at 0, which has no cosine", name);
    const int exponent = std::ilogb(largest);
    for (std::size_t k = 0; k < points.cols; ++k) {
      to[k] = std::ldexp(static_cast<double>(points.row(i)[k]), -exponent);
      sum += to[k] * to[k];
    }
    for (std::size_t k = 0; k < points.cols; ++k) to[k] /= std::sqrt(sum);
  }
  return found;
}

// The distances of x's points (rows) and y's (columns), in units of the number returned, a power of 2: squares neither overflow
// nor vanish.
template <class T>
double distances(std::string_view operation, Metric metric, const MatrixView<const T>& x, const MatrixView<const T>& y,
                 double* to) {
  if (metric == Metric::cosine) {  // half the square of the distance of directions, which keeps its digits where that is small
    const std::vector<double> u = directions_of(operation, "x", x), v = directions_of(operation, "y", y);
    const MatrixView<const double> of_x(u.data(), x.rows, x.cols), of_y(v.data(), y.rows, y.cols);
    distances(operation, Metric::sqeuclidean, of_x, of_y, to);
    for (std::size_t k = 0; k < x.rows * y.rows; ++k) to[k] *= 0.5;
    return 1;
  }
  const double largest = largest_coordinate(x, y);
  const int exponent = largest > 0x1p400 || (largest > 0 && largest < 0x1p-400) ? std::ilogb(largest) : 0;
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < y.rows; ++j) {
      if (metric == Metric::cityblock) {
        double sum = 0;
        for (std::size_t k = 0; k < x.cols; ++k) {
          sum += std::abs(std::ldexp(static_cast<double>(x.row(i)[k]), -exponent) -
                          std::ldexp(static_cast<double>(y.row(j)[k]), -exponent));
        }
        to[i * y.rows + j] = sum;
        continue;
      }
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
      const double root = sum < 0x1p-900 ? std::ldexp(std::sqrt(square(400 - exponent)), -400) : std::sqrt(sum);
      to[i * y.rows + j] = metric == Metric::sqeuclidean ? root * root : root;
    }
  }
  return std::ldexp(1.0, metric == Metric::sqeuclidean ? 2 * exponent : exponent);
}

// Euclidean distances to a power, which must be finite.
template <class T>
void powers_of_distances(std::string_view operation, double order, const MatrixView<const T>& x, const MatrixView<const T>& y,
                         std::vector<double>& cost) {
  cost.resize(x.rows * y.rows);
  const double unit = distances(operation, Metric::euclidean, x, y, cost.data());
  for (double& c : cost) {
    c = power(c * unit, order);
    if (!std::isfinite(c)) fail("{}: distances to the power {} must be finite", operation, order);
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI

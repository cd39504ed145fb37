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

// The distances of x's points (rows) and y's (columns), in units of unit(), a power of 2: squares neither overflow nor vanish.
template <class T>
class PointDistances {
 public:
  PointDistances(std::string_view operation, Metric metric, const MatrixView<const T>& x, const MatrixView<const T>& y)
      : metric_(metric), given_x_(x), given_y_(y), d_(x.cols), m_(y.rows) {
    const double largest = largest_coordinate(x, y);
    const bool extreme = largest > 0x1p400 || (largest > 0 && largest < 0x1p-400);
    exponent_ = extreme && metric != Metric::cosine ? std::ilogb(largest) : 0;
    x_ = metric == Metric::cosine ? directions_of(operation, "x", x) : scaled(x);
    const std::vector<double> rows = metric == Metric::cosine ? directions_of(operation, "y", y) : scaled(y);
    y_.resize(rows.size());
    for (std::size_t j = 0; j < m_; ++j) {
      for (std::size_t k = 0; k < d_; ++k) y_[k * m_ + j] = rows[j * d_ + k];
    }
  }

  double unit() const { return std::ldexp(1.0, metric_ == Metric::sqeuclidean ? 2 * exponent_ : exponent_); }

  void row(std::size_t i, double* to) const {
    std::fill(to, to + m_, 0.0);
    const bool sizes = metric_ == Metric::cityblock;
    for (std::size_t k = 0; k < d_; ++k) {
      const double u = x_[i * d_ + k];
      const double* const v = y_.data() + k * m_;
      if (sizes) {
        for (std::size_t j = 0; j < m_; ++j) to[j] += std::abs(u - v[j]);
      } else {
        for (std::size_t j = 0; j < m_; ++j) to[j] += (u - v[j]) * (u - v[j]);
      }
    }
    if (sizes) return;
    for (std::size_t j = 0; j < m_; ++j) to[j] = of_square(i, j, to[j]);
  }
  double at(std::size_t i, std::size_t j) const {
    double sum = 0;
    for (std::size_t k = 0; k < d_; ++k) {
      const double apart = x_[i * d_ + k] - y_[k * m_ + j];
      sum += metric_ == Metric::cityblock ? std::abs(apart) : apart * apart;
    }
    return metric_ == Metric::cityblock ? sum : of_square(i, j, sum);
  }

 private:
  std::vector<double> scaled(const MatrixView<const T>& points) const {
    std::vector<double> found(points.rows * points.cols);
    for (std::size_t i = 0; i < points.rows; ++i) {
      for (std::size_t k = 0; k < points.cols; ++k) {
        const double u = points.row(i)[k];
        found[i * points.cols + k] = exponent_ != 0 ? std::ldexp(u, -exponent_) : u;
      }
    }
    return found;
  }
  double of_square(std::size_t i, std::size_t j, double sum) const {
    // Half the square of the distance of directions keeps the digits of a small cosine.
    if (metric_ == Metric::cosine) return 0.5 * sum;
    const double root = sum < 0x1p-900 ? small(i, j) : std::sqrt(sum);
    return metric_ == Metric::sqeuclidean ? root * root : root;
  }
  // The distance of points whose squares underflow, though others do not.
  double small(std::size_t i, std::size_t j) const {
    double sum = 0;
    for (std::size_t k = 0; k < d_; ++k) {
      const double u = std::ldexp(static_cast<double>(given_x_.row(i)[k]), 400 - exponent_);
      const double v = std::ldexp(static_cast<double>(given_y_.row(j)[k]), 400 - exponent_);
      sum += (u - v) * (u - v);
    }
    return std::ldexp(std::sqrt(sum), -400);
  }

  Metric metric_;
  MatrixView<const T> given_x_, given_y_;
  std::size_t d_, m_;
  int exponent_ = 0;
  std::vector<double> x_, y_;  // y_ has a coordinate of all points in each row
};

// Euclidean distances to a power, which must be finite.
template <class T>
void powers_of_distances(std::string_view operation, double order, const MatrixView<const T>& x, const MatrixView<const T>& y,
                         std::vector<double>& cost) {
  cost.resize(x.rows * y.rows);
  const PointDistances<T> distances(operation, Metric::euclidean, x, y);
  const double unit = distances.unit();
  for (std::size_t i = 0; i < x.rows; ++i) distances.row(i, cost.data() + i * y.rows);
  for (double& c : cost) {
    c = power(c * unit, order);
    if (!std::isfinite(c)) fail("{}: distances to the power {} must be finite", operation, order);
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI

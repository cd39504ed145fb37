// Wasserstein distances along directions, and directions that are uniform on the sphere.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "isentropic/transport.h"
#include "src/check.h"
#include "src/sampling/philox.h"
#include "src/transport/masses.h"
#include "src/transport/points.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr std::string_view kName = Described<SlicedWasserstein>::kDescription.name;
constexpr std::size_t kProjected = std::size_t{1} << 21;  // numbers in memory at a time

// The directions, each of length 1.
std::vector<double> units(const MatrixView<const double>& directions) {
  const std::size_t d = directions.cols;
  std::vector<double> all(directions.rows * d);
  for (std::size_t r = 0; r < directions.rows; ++r) {
    double largest = 0, sum = 0;
    for (std::size_t k = 0; k < d; ++k) {
      const double one = std::abs(directions.row(r)[k]);
      if (!std::isfinite(one)) fail_in_row(kName, "directions", r, "directions must be finite, got {}", directions.row(r)[k]);
      largest = std::max(largest, one);
    }
    if (largest == 0) fail_in_row(kName, "directions", r, "directions must not be 0, got 0 everywhere");
    for (std::size_t k = 0; k < d; ++k) {
      const double one = all[r * d + k] = directions.row(r)[k] / largest;
      sum += one * one;
    }
    for (std::size_t k = 0; k < d; ++k) all[r * d + k] /= std::sqrt(sum);
  }
  return all;
}

}  // namespace

template <class T>
SlicedWassersteinResult sliced_wasserstein(const SlicedWasserstein& options, MatrixView<const T> x,
                                           MatrixView<const std::type_identity_t<T>> y,
                                           std::span<const std::type_identity_t<T>> a,
                                           std::span<const std::type_identity_t<T>> b, MatrixView<const double> directions) {
  check_params(options);
  check_points(kName, x, y);
  check_layout(kName, "directions", directions);
  const std::size_t n = x.rows, m = y.rows, d = x.cols, count = directions.rows;
  if (directions.cols != d || count == 0) {
    fail_at(kName, "directions", {}, "directions must be at least one row of {} coordinates, got {} x {}", d, count,
            directions.cols);
  }
  const auto weights = [&](std::string_view name, std::span<const T> given, std::size_t points) {
    if (!given.empty()) check_weights(kName, name, given, points);
    return std::vector<double>(given.begin(), given.end());
  };
  const std::vector<double> weights_x = weights("a", a, n), weights_y = weights("b", b, m);
  const std::vector<double> theta = units(directions);

  // Centred, so that what is common to all points does not round away what they differ by. The centre lies between them: this
  // neither overflows nor rounds differences that are small beside it.
  const auto centred = [d, centre = centre_of(x, y)](const MatrixView<const T>& points) {
    std::vector<double> all(points.rows * d);
    for (std::size_t i = 0; i < points.rows; ++i) {
      for (std::size_t k = 0; k < d; ++k) all[i * d + k] = static_cast<double>(points.row(i)[k]) - centre[k];
    }
    return all;
  };
  std::vector<double> from = centred(x), to = centred(y);
  const double largest =
      largest_coordinate<double>(MatrixView<const double>(from.data(), n, d), MatrixView<const double>(to.data(), m, d));
  const int exponent = largest == 0 ? 0 : std::ilogb(largest);
  for (std::vector<double>* const all : {&from, &to}) {
    for (double& one : *all) one = std::ldexp(one, -exponent);
  }
  const std::size_t block = std::clamp(kProjected / (n + m), std::size_t{1}, count);
  std::vector<double> u(block * n), v(block * m), distance(count);
  const auto project = [&](const std::vector<double>& points, std::size_t many, std::size_t first, std::size_t rows,
                           std::vector<double>& onto) {
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < many; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < d; ++k) sum += theta[(first + r) * d + k] * points[i * d + k];
        onto[r * many + i] = sum;
      }
    }
  };
  const auto as_row = [](const std::vector<double>& all) {
    return MatrixView<const double>(all.data(), all.empty() ? 0 : 1, all.size());
  };
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t rows = std::min(block, count - first);
    project(from, n, first, rows, u);
    project(to, m, first, rows, v);
    wasserstein_1d<double>({.order = options.order}, MatrixView<const double>(u.data(), rows, n),
                           MatrixView<const double>(v.data(), rows, m), as_row(weights_x), as_row(weights_y),
                           std::span(distance).subspan(first, rows));
  }

  // Powers relative to the largest neither overflow nor vanish together.
  const double unit = *std::max_element(distance.begin(), distance.end());
  const double one_direction = d == 1 ? 0 : count == 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
  if (unit == 0) return {0, one_direction * 0};
  CompensatedSum sum, squares;
  for (double& one : distance) {
    one = power(one / unit, options.order);
    sum.add(one);
  }
  const double number = static_cast<double>(count), mean = sum.value() / number;
  for (const double one : distance) squares.add((one - mean) * (one - mean));
  const double root = options.order == 1 ? mean : std::pow(mean, 1 / options.order);
  double spread = one_direction;
  if (spread > 0) spread = std::sqrt(squares.value() / (number - 1) / number);
  const double scale = std::ldexp(unit, exponent);
  return {root * scale, spread * (root / (options.order * mean)) * scale};
}

void random_directions(MatrixView<double> directions, std::uint64_t seed) {
  check_layout("random_directions", "directions", directions);
  for (std::size_t r = 0; r < directions.rows; ++r) {
    double* const row = directions.row(r);
    const NoiseKey key = NoiseKey::Of(seed, r, 0);
    double sum = 0;
    // Two normal numbers from each pair of uniform ones: Box and Muller 1958.
    for (std::size_t k = 0; k < directions.cols; k += 2) {
      const std::uint64_t pair = k / 2;
      const Philox::Counter bits = Philox::Bits(
          {static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32), key.upper0, key.upper1}, key.key);
      const auto uniform = [&](std::size_t i) {  // in (0, 1]
        return static_cast<double>((std::uint64_t{bits[i]} << 32 | bits[i + 1]) >> 11) * 0x1p-53 + 0x1p-53;
      };
      const double radius = std::sqrt(-2 * std::log(uniform(0))), angle = 2 * std::numbers::pi * uniform(2);
      row[k] = radius * std::cos(angle);
      if (k + 1 < directions.cols) row[k + 1] = radius * std::sin(angle);
    }
    for (std::size_t k = 0; k < directions.cols; ++k) sum += row[k] * row[k];
    // A radius is 0 if its uniform number is 1.
    if (sum == 0 && directions.cols > 0) row[0] = sum = 1;
    for (std::size_t k = 0; k < directions.cols; ++k) row[k] /= std::sqrt(sum);
  }
}

template SlicedWassersteinResult sliced_wasserstein(const SlicedWasserstein&, MatrixView<const float>, MatrixView<const float>,
                                                    std::span<const float>, std::span<const float>, MatrixView<const double>);
template SlicedWassersteinResult sliced_wasserstein(const SlicedWasserstein&, MatrixView<const double>,
                                                    MatrixView<const double>, std::span<const double>, std::span<const double>,
                                                    MatrixView<const double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

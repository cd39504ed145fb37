// Tests of what calibration asks of each row, on devices, emulated.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entropic/cuda.h"
#include "entropic/entropic.h"
#include "tests/support/device.h"
#include "tests/support/expect_error.h"

namespace {

using namespace entropic;
using namespace support::device;

// Rows without NaN and +inf, which a calibration refuses, and labels with finite scores.
template <class T>
struct Labelled {
  Grid<T> x;
  std::vector<std::int64_t> labels;

  explicit Labelled(std::size_t n, unsigned seed = 5) : x(scores<T>(n, seed)), labels(x.rows) {
    for (const std::size_t r : {1, 2, 3}) {
      for (std::size_t i = 0; i < n; ++i) x.row(r)[i] = x.row(0)[n - 1 - i];
    }
    for (std::size_t i = 0; i < n; ++i) x.row(7)[i] = T(static_cast<float>(x.row(0)[i]) * 3.0f);
    for (std::size_t r = 0; r < x.rows; ++r) {
      labels[r] = static_cast<std::int64_t>((5 * r + 1) % n);
      if (static_cast<float>(x.row(r)[labels[r]]) == -INFINITY) x.row(r)[labels[r]] = T(0.5f);
    }
  }
};

// The rows in float64, and what the definition says of each, in long double.
struct Row {
  std::vector<long double> z;
  long double label = 0;

  template <class T>
  Row(const T* x, std::size_t n, std::int64_t own) {
    long double max = -INFINITY;
    for (std::size_t i = 0; i < n; ++i) z.push_back(static_cast<long double>(static_cast<Working<T>>(x[i])));
    for (const long double v : z) max = std::max(max, v);
    for (long double& v : z) v -= max;
    label = z[static_cast<std::size_t>(own)];
  }
  // Loss, mean and variance of z, at a factor.
  struct At {
    long double loss, mean, variance;
  };
  At at(long double beta) const {
    long double sum = 0, mean = 0, variance = 0;
    for (const long double v : z) sum += std::exp(beta * v);
    for (const long double v : z) mean += v > -INFINITY ? std::exp(beta * v) * v / sum : 0;
    for (const long double v : z) variance += v > -INFINITY ? std::exp(beta * v) * (v - mean) * (v - mean) / sum : 0;
    return {std::log(sum) - beta * label, mean, variance};
  }

  template <class T>
  using Working = std::conditional_t<kIsHalf<T>, float, T>;
};

constexpr Shape kTeams[] = {kByLength, {1, 32, 2}, {2, 64, 1}, {3, 96, 1}};

template <class T>
class CudaCalibration : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaCalibration, Types);

TYPED_TEST(CudaCalibration, RowsAreThoseOfTheDefinition) {
  using T = TypeParam;
  for (const std::size_t n : {1, 5, 70, 300, 1100}) {
    if (kIsHalf<T> && n > 100) continue;
    Labelled<T> data(n);
    const auto asked = [&](auto&& ask) {
      std::vector<double> found(4 * data.x.rows), other(4 * data.x.rows);
      ask(MatrixView<double>(found.data(), data.x.rows, 4), Memory(cuda::memory_for_calibration<T>(data.x.rows, n)));
      for (const Shape& shape : kTeams) {
        const Forced forced(shape, shape.threads == 64);
        ask(MatrixView<double>(other.data(), data.x.rows, 4), Memory(cuda::memory_for_calibration<T>(data.x.rows, n)));
        expect_same(other, found, "rows of " + std::to_string(n));
      }
      return found;
    };
    const auto facts =
        asked([&](auto to, const Memory& memory) { cuda::calibration_facts<T>(data.x, data.labels, to, memory); });
    for (std::size_t r = 0; r < data.x.rows; ++r) {
      const Row row(data.x.row(r), n, data.labels[r]);
      double ties = 0, present = 0;
      for (const long double z : row.z) ties += z == 0, present += z > -INFINITY;
      EXPECT_EQ(facts[4 * r + 1], ties);
      EXPECT_EQ(facts[4 * r + 2], present);
      EXPECT_EQ(facts[4 * r + 3], static_cast<double>(row.label));
    }
    for (const double beta : {0.001, 0.6, 1.0, 30.0}) {
      const auto found =
          asked([&](auto to, const Memory& memory) { cuda::temperature_slopes<T>(beta, data.x, data.labels, to, memory); });
      for (std::size_t r = 0; r < data.x.rows; ++r) {
        const Row row(data.x.row(r), n, data.labels[r]);
        const Row::At want = row.at(beta);
        const long double size = std::abs(want.mean) + std::abs(row.label) + 1e-300L;
        ASSERT_NEAR(found[4 * r], want.mean - row.label, 1e-13L * size) << r;
        ASSERT_NEAR(found[4 * r + 1], want.variance, 1e-13L * (want.variance + want.mean * want.mean) + 1e-300L) << r;
        ASSERT_NEAR(found[4 * r + 2], -want.mean - row.label, 1e-13L * size) << r;
      }
    }
    for (const double entropy : {0.05, 0.7, 1.5, 3.0}) {
      const auto found = asked(
          [&](auto to, const Memory& memory) { cuda::target_entropy_losses<T>(entropy, data.x, data.labels, to, memory); });
      for (std::size_t r = 0; r < data.x.rows; ++r) {
        const Row row(data.x.row(r), n, data.labels[r]);
        std::vector<double> x(row.z.begin(), row.z.end()), gamma(1), reached(1);
        std::vector<GammaStatus> status(1);
        gamma_for_entropy({.entropy = entropy}, MatrixView<const double>(x.data(), 1, n), gamma, reached, status);
        const double loss = found[4 * r], slope = found[4 * r + 1];
        const bool moves = status[0] == GammaStatus::ok && gamma[0] > 0 && std::isfinite(gamma[0]);
        if (!moves) {
          const bool lost = std::isinf(gamma[0]) && row.label < 0;
          ASSERT_EQ(loss, lost ? INFINITY : reached[0]) << r;
          ASSERT_EQ(slope, lost ? -INFINITY : 0) << r;
          continue;
        }
        const Row::At want = row.at(gamma[0]);
        ASSERT_NEAR(loss, want.loss, 1e-11L * (1 + want.loss)) << r;
        const long double exact = (row.label - want.mean) / (gamma[0] * want.variance);
        ASSERT_NEAR(slope, exact, 1e-9L * (1 + std::abs(exact))) << r;
      }
    }
  }
}

// At the temperature that the library fits, the sum of the slopes is 0 up to rounding.
TEST(CudaCalibration, TheFittedTemperatureIsWhereTheSlopesVanish) {
  Labelled<float> data(40);
  for (std::size_t r = 0; r < data.x.rows; r += 2) {  // right in every second row
    data.labels[r] = std::max_element(data.x.row(r), data.x.row(r) + 40) - data.x.row(r);
  }
  const FittedTemperature fitted = fit_temperature<float>(data.x, data.labels);
  ASSERT_FALSE(fitted.clamped);
  const Memory memory(cuda::memory_for_calibration<float>(data.x.rows, 40));
  std::vector<double> found(4 * data.x.rows);
  cuda::temperature_slopes<float>(1 / fitted.temperature, data.x, data.labels, {found.data(), data.x.rows, 4}, memory);
  double slope = 0, size = 0;
  for (std::size_t r = 0; r < data.x.rows; ++r) slope += found[4 * r], size += found[4 * r + 2];
  EXPECT_NEAR(slope, 0, 1e-12 * size);
}

TEST(CudaCalibration, RefusesWhatIsWrong) {
  Labelled<float> data(8);
  std::vector<double> found(4 * data.x.rows);
  const MatrixView<double> to(found.data(), data.x.rows, 4);
  const Memory memory(cuda::memory_for_calibration<float>(data.x.rows, 8));
  support::expect_error("temperature_slopes: beta must be above 0 and finite, got 0",
                        [&] { cuda::temperature_slopes<float>(0, data.x, data.labels, to, memory); });
  const std::vector<std::int64_t> few(2);
  support::expect_error("calibration_facts: labels must have one entry for each of 9 rows, got 2",
                        [&] { cuda::calibration_facts<float>(data.x, few, to, memory); });
  data.labels[4] = 8;
  cuda::calibration_facts<float>(data.x, data.labels, to, memory);
  EXPECT_TRUE(std::isnan(found[16]) && !std::isnan(found[0]));
}

}  // namespace

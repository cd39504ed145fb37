// Tests of what calibration asks of each row, on devices, emulated.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "isentropic/cuda.h"
#include "isentropic/isentropic.h"
#include "tests/support/device.h"
#include "tests/support/expect_error.h"

namespace {

using namespace isentropic;
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

// The fits on a device are those of the host, up to the rounding of sums: for every type, with weights, and without the rows of
// a label.
TYPED_TEST(CudaCalibration, FitsAreThoseOfTheHost) {
  using T = TypeParam;
  for (const std::size_t n : {3, 40}) {
    Labelled<T> data(n);
    for (std::size_t r = 0; r < data.x.rows; r += 2) {  // right in every second row
      for (std::size_t i = 0; i < n; ++i) {
        if (static_cast<float>(data.x.row(r)[i]) > static_cast<float>(data.x.row(r)[data.labels[r]])) data.labels[r] = i;
      }
    }
    std::vector<double> wide, weights(data.x.rows, 1);
    for (std::size_t r = 0; r < data.x.rows; ++r) {
      weights[r] = r == 4 ? 0 : 0.25 * static_cast<double>(r + 1);
      for (std::size_t i = 0; i < n; ++i) wide.push_back(static_cast<double>(static_cast<Row::Working<T>>(data.x.row(r)[i])));
    }
    const MatrixView<const double> x(wide.data(), data.x.rows, n);
    const Memory memory(cuda::memory_for_calibration<T>(data.x.rows, n));
    for (const bool weighted : {false, true}) {
      const std::span<const double> given = weighted ? std::span<const double>(weights) : std::span<const double>();
      const FittedTemperature want = fit_temperature<double>(x, data.labels, given);
      const FittedTemperature got = cuda::fit_temperature<T>(data.x, data.labels, memory, {}, given);
      EXPECT_EQ(got.clamped, want.clamped);
      EXPECT_NEAR(got.temperature, want.temperature, 1e-11 * want.temperature);
      EXPECT_NEAR(cuda::fit_target_entropy<T>(data.x, data.labels, memory, {}, given),
                  fit_target_entropy<double>(x, data.labels, given), 1e-8);
      EXPECT_NEAR(cuda::match_entropy<T>(data.x, memory, {}, given), match_entropy<double>(x, given),
                  kIsHalf<T> || sizeof(T) == 4 ? 1e-6 : 1e-13);
    }
    std::vector<double> without(data.x.rows, 1);
    std::vector<std::int64_t> labels = data.labels;
    for (const std::size_t r : {1, 6}) without[r] = 0, labels[r] = -100;
    EXPECT_NEAR(cuda::fit_temperature<T>(data.x, labels, memory, {}, {}, -100).temperature,
                fit_temperature<double>(x, data.labels, without).temperature, 1e-9);
  }
}

// The sums over rows go in blocks of 1,024. A row of weight 0 is not read.
TEST(CudaCalibration, FitsOfManyRows) {
  const std::size_t rows = 2500, n = 3;
  std::vector<float> scores(rows * n);
  std::vector<std::int64_t> labels(rows);
  std::vector<double> weights(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) scores[r * n + i] = static_cast<float>(std::sin(3.0 * static_cast<double>(r * n + i)));
    labels[r] = static_cast<std::int64_t>(r * r % 7 % n), weights[r] = static_cast<double>(r % 5);
    if (r % 5 == 0) scores[r * n] = NAN, labels[r] = 9;
    if (r % 2 == 0 && r % 5 != 0) labels[r] = std::max_element(&scores[r * n], &scores[r * n] + n) - &scores[r * n];
  }
  const MatrixView<const float> x(scores.data(), rows, n);
  const Memory memory(cuda::memory_for_calibration<float>(rows, n));
  const FittedTemperature want = fit_temperature<float>(x, labels, weights);
  EXPECT_FALSE(want.clamped);
  EXPECT_NEAR(cuda::fit_temperature<float>(x, labels, memory, {}, weights).temperature, want.temperature,
              1e-11 * want.temperature);
  EXPECT_NEAR(cuda::match_entropy<float>(x, memory, {}, weights), match_entropy<float>(x, weights), 1e-6);
}

TEST(CudaCalibration, FitsRefuseWhatTheHostRefuses) {
  Labelled<float> data(8);
  const Memory memory(cuda::memory_for_calibration<float>(data.x.rows, 8));
  const std::string name = "fit_temperature: ";
  const auto refused = [&](const std::string& why, std::span<const double> weights = {},
                           std::optional<std::int64_t> ignored = {}) {
    std::string host;
    try {
      fit_temperature<float>(data.x, data.labels, weights);
    } catch (const std::invalid_argument& error) {
      host = error.what();
    }
    if (!ignored) {
      EXPECT_EQ(host, name + why);
    }
    support::expect_error(name + why, [&] { cuda::fit_temperature<float>(data.x, data.labels, memory, {}, weights, ignored); });
  };
  const std::vector<double> nothing(data.x.rows, 0.0), few(2, 1.0);
  refused("sample_weight must be above 0 in some row, got 0 in all 9", nothing);
  refused("sample_weight must have one entry for each of 9 rows, got 2", few);
  const std::vector<std::int64_t> labels = data.labels;
  data.labels[4] = 8;
  refused("labels must be at least 0 and below the number of classes, 8, got 8 in row 4");
  data.labels.assign(data.x.rows, -1);
  refused("some label must be other than ignore_index, got -1 in all 9 rows", {}, -1);
  data.labels = labels;
  data.x.row(5)[2] = NAN;
  refused("scores must not be NaN, got one in row 5");
  support::expect_error("match_entropy: scores must not be NaN, got one in row 5",
                        [&] { cuda::match_entropy<float>(data.x, memory); });
  data.x.row(5)[2] = INFINITY;
  refused("scores must be finite or -inf, got +inf in row 5");
  EXPECT_NEAR(cuda::match_entropy<float>(data.x, memory), match_entropy<float>(data.x), 1e-6);  // all mass on that score
  data.x.row(5)[2] = 0, data.x.row(6)[data.labels[6]] = -INFINITY;
  refused("labels must be classes with a score above -inf, otherwise the loss is infinite, got " +
          std::to_string(data.labels[6]) + " in row 6");
  std::fill(data.x.row(7), data.x.row(7) + 8, -INFINITY);
  support::expect_error("match_entropy: scores must not all be -inf, got nothing else in row 7",
                        [&] { cuda::match_entropy<float>(data.x, memory); });
  const MatrixView<const float> no_classes(data.x.row(0), 3, 0);
  support::expect_error("match_entropy: scores must not all be -inf, got nothing else in row 0",
                        [&] { cuda::match_entropy<float>(no_classes, {}); });
  std::vector<double> of_ignored(data.x.rows, 0.0);
  of_ignored[2] = 1;
  data.labels.assign(data.x.rows, 1), data.labels[2] = 3;
  refused("sample_weight must be above 0 in some row that ignore_index keeps, got 0 in all 8", of_ignored, 3);
  const std::span<std::byte> all = memory;
  std::vector<std::byte> odd(all.size() + 256);
  const auto at = reinterpret_cast<std::uintptr_t>(odd.data());
  const std::span<std::byte> unaligned = std::span(odd).subspan((128 - at % 128) % 128 + 8, all.size());
  support::expect_error(fmt::format("fit_temperature: memory must be aligned to 128 bytes, got {}", fmt::ptr(unaligned.data())),
                        [&] { cuda::fit_temperature<float>(data.x, data.labels, unaligned); });
  const Memory small(128);
  const std::string bytes = std::to_string(cuda::memory_for_calibration<float>(data.x.rows, 8));
  support::expect_error("fit_temperature: memory must have " + bytes + " bytes, as memory_for_calibration() says, got 128",
                        [&] { cuda::fit_temperature<float>(data.x, data.labels, small); });
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

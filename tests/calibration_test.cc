// Calibration: the temperature and the entropy that fit labels, against the definitions in long double and dense grids.

#include "isentropic/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "isentropic/maps.h"
#include "isentropic/threads.h"
#include "tests/oracle/maps.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/share.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

using support::expect_error;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Data {
  std::size_t rows, cols;
  std::vector<double> x;
  std::vector<std::int64_t> labels;

  MatrixView<const double> view() const { return {x.data(), rows, cols}; }
  oracle::Row row(std::size_t r) const {
    return {x.begin() + static_cast<std::ptrdiff_t>(r * cols), x.begin() + static_cast<std::ptrdiff_t>((r + 1) * cols)};
  }
  FittedTemperature temperature() const { return fit_temperature(view(), labels); }
  double target() const { return fit_target_entropy(view(), labels); }
};

// Scores at which the labels have the law softmax(x / temperature).
Data drawn(std::size_t rows, std::size_t cols, double scale, double temperature, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Data data{rows, cols, std::vector<double>(rows * cols), {}};
  for (double& score : data.x) score = scale * normal(random);
  for (std::size_t r = 0; r < rows; ++r) {
    const oracle::Row p = oracle::map(Softmax{.temperature = temperature}, data.row(r));
    std::vector<double> weights(p.begin(), p.end());
    data.labels.push_back(std::discrete_distribution<std::int64_t>(weights.begin(), weights.end())(random));
  }
  return data;
}

// Data of every kind that is known to break fits.
Data generated(std::mt19937& random, std::size_t most_rows, std::size_t most_cols) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  const std::size_t rows = 1 + random() % most_rows, cols = 1 + random() % most_cols;
  const double scale = std::pow(10, uniform(-3, 3));
  Data data = drawn(rows, cols, scale, scale * std::pow(10, uniform(-2, 2)), static_cast<unsigned>(random()));
  const auto label = [&](std::size_t r) -> double& { return data.x[r * cols + static_cast<std::size_t>(data.labels[r])]; };
  switch (random() % 7) {
    case 0:  // labels that have nothing to do with the scores
      for (auto& y : data.labels) y = static_cast<std::int64_t>(random() % cols);
      break;
    case 1:  // far from 0
      for (double& score : data.x) score += 1e6;
      break;
    case 2:  // masked classes
      for (std::size_t r = 0; r < rows; ++r) {
        const double kept = label(r);
        for (std::size_t i = 0; i < cols; ++i) {
          if (random() % 3 == 0) data.x[r * cols + i] = -kInfinity;
        }
        label(r) = kept;
      }
      break;
    case 3:  // ties
      for (double& score : data.x) score = std::round(score / scale);
      break;
    case 4:  // two scores far above the others
      for (std::size_t i = 0; i < data.x.size(); ++i) data.x[i] += i % cols < 2 ? 1e4 : 0;
      break;
    case 5:  // most rows constant
      for (std::size_t r = 0; r + 1 < rows; ++r) std::fill_n(data.x.begin() + static_cast<std::ptrdiff_t>(r * cols), cols, 3.0);
      break;
    default:
      break;
  }
  return data;
}

struct Slope {
  long double first = 0, second = 0, size = 0;
};

Slope slope_at(const Data& data, long double beta) {
  Slope slope;
  for (std::size_t r = 0; r < data.rows; ++r) {
    const oracle::Row x = data.row(r);
    const long double max = *std::max_element(x.begin(), x.end());
    long double sum = 0, mean = 0, square = 0;
    for (const long double score : x) {
      if (std::isinf(score)) continue;
      const long double mass = std::exp(beta * (score - max));
      sum += mass, mean += mass * (score - max), square += mass * (score - max) * (score - max);
    }
    mean /= sum;
    const long double label = x[static_cast<std::size_t>(data.labels[r])] - max;
    slope.first += mean - label, slope.second += square / sum - mean * mean, slope.size -= mean + label;
  }
  return slope;
}

TEST(FitTemperature, IsWhereTheSlopeVanishes) {
  std::mt19937 random(1);
  int clamped = 0, constant = 0;
  for (int set = 0; set < 3000; ++set) {
    const Data data = generated(random, 60, 30);
    const FittedTemperature fitted = data.temperature();
    const Slope low = slope_at(data, 1e-3L), high = slope_at(data, 1e3L);
    if (low.first == 0 && low.size == 0) {
      EXPECT_EQ(fitted.temperature, 1);
      EXPECT_FALSE(fitted.clamped);
      ++constant;
      continue;
    }
    const Slope slope = slope_at(data, 1 / static_cast<long double>(fitted.temperature));
    const double rounding = 1e-14;
    if (fitted.clamped) {
      EXPECT_TRUE(fitted.temperature == kLeastTemperature || fitted.temperature == kLargestTemperature);
      const Slope& end = fitted.temperature == kLeastTemperature ? high : low;
      EXPECT_LE((fitted.temperature == kLeastTemperature ? 1 : -1) * end.first, rounding * end.size) << set;
      ++clamped;
    } else {
      EXPECT_LE(std::abs(slope.first), rounding * (slope.size + slope.second / fitted.temperature)) << set;
      EXPECT_LE(low.first, 0) << set;
      EXPECT_GE(high.first, 0) << set;
    }
  }
  EXPECT_GT(clamped, 100);
  EXPECT_LT(clamped, 2000);
  EXPECT_GT(constant, 10);
}

TEST(FitTemperature, FindsTheTemperatureOfTheLabels) {
  for (const double temperature : {0.02, 0.3, 1.0, 20.0, 300.0}) {
    const FittedTemperature fitted = drawn(20000, 10, 2 * temperature, temperature, 2).temperature();
    EXPECT_NEAR(fitted.temperature / temperature, 1, 0.05);
    EXPECT_FALSE(fitted.clamped);
  }
}

TEST(FitTemperature, OffsetsChangeNothingAndScalesAreTheTemperatures) {
  const Data data = drawn(500, 10, 3, 2, 3);
  Data far = data, wide = data, bits = data;
  for (double& score : far.x) score = std::round(score * 1024) / 1024 + 1e6;
  for (double& score : bits.x) score = std::round(score * 1024) / 1024;
  for (double& score : wide.x) score *= 8;
  EXPECT_EQ(far.temperature().temperature, bits.temperature().temperature);
  EXPECT_NEAR(wide.temperature().temperature / data.temperature().temperature, 8, 1e-12);
}

TEST(FitTemperature, Edges) {
  const auto check = [](Data data, double temperature, bool clamped) {
    const FittedTemperature fitted = data.temperature();
    EXPECT_NEAR(fitted.temperature, temperature, 1e-13 * temperature);
    EXPECT_EQ(fitted.clamped, clamped);
  };
  check({2, 3, {0, 1, 2, 5, 4, 3}, {2, 0}}, 1e-3, true);            // all right
  check({2, 3, {0, 1e4, 2e4, 2e4, 0, 0}, {2, 0}}, 1e-3, true);      // all right, by more than exp can tell
  check({2, 2, {0, 1e7, 1e7, 0}, {1, 0}}, 1e-3, true);              // at every temperature of the range
  check({2, 3, {0, 1, 2, 5, 4, 3}, {0, 2}}, 1e3, true);             // all at the minimum
  check({2, 3, {0, 1, 2, 5, 4, 3}, {1, 1}}, 1e3, true);             // as likely as by chance at best
  check({2, 3, {7, 7, 7, -2, -2, -2}, {0, 2}}, 1, false);           // constant
  check({2, 2, {-kInfinity, 1, 3, -kInfinity}, {1, 0}}, 1, false);  // one class each
  check({3, 1, {1, 2, 3}, {0, 0, 0}}, 1, false);
  // Of four scores (1, 0) three labels are right: p = 3/4, so 1/T = log 3; and a constant row has no influence.
  check({4, 2, {1, 0, 1, 0, 1, 0, 1, 0}, {0, 0, 0, 1}}, 1 / std::log(3), false);
  check({5, 2, {1, 0, 1, 0, 1, 0, 1, 0, 5, 5}, {0, 0, 0, 1, 1}}, 1 / std::log(3), false);
  check({4, 3, {1, 0, -kInfinity, 1, 0, -kInfinity, 1, 0, -kInfinity, 1, 0, -kInfinity}, {0, 0, 0, 1}}, 1 / std::log(3), false);
  check({4, 2, {1e3, 0, 1e3, 0, 1e3, 0, 1e3, 0}, {0, 0, 0, 1}}, 1e3 / std::log(3), false);
  check({4, 2, {1e4, 0, 1e4, 0, 1e4, 0, 1e4, 0}, {0, 0, 0, 1}}, 1e3, true);
  check({4, 2, {2e-3, 0, 2e-3, 0, 2e-3, 0, 2e-3, 0}, {0, 0, 0, 1}}, 2e-3 / std::log(3), false);
  check({4, 2, {1e-4, 0, 1e-4, 0, 1e-4, 0, 1e-4, 0}, {0, 0, 0, 1}}, 1e-3, true);
  const double most = std::numeric_limits<double>::max();
  check({2, 3, {most, -most, 0, 1, 2, 3}, {0, 2}}, 1e-3, true);
  check({2, 3, {most, -most, 0, 1, 2, 3}, {1, 2}}, 1e3, true);
  check({5, 2, {1, 0, 1, 0, 1, 0, 1, 0, most, -most}, {0, 0, 0, 1, 0}}, 1 / std::log(3), false);
}

template <class Fit>
void check_doors(const Fit& fit) {
  const std::size_t rows = 1500 / support::kShare, cols = 100, stride = 103;
  const Data data = drawn(rows, cols, 3, 2, 4);
  std::vector<float> narrow(rows * stride, 1e9f);
  std::vector<double> wide(rows * cols);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    wide[i] = narrow[i / cols * stride + i % cols] = static_cast<float>(data.x[i]);
  }
  const double want = fit(MatrixView<const double>(wide.data(), rows, cols), data.labels);
  EXPECT_EQ(fit(MatrixView<const float>(narrow.data(), rows, cols, stride), data.labels), want);
  for (const std::size_t threads : {1, 3, 8}) {
    set_num_threads(threads);
    EXPECT_EQ(fit(MatrixView<const double>(wide.data(), rows, cols), data.labels), want);
  }
  set_num_threads(0);
  const auto exact = support::fma_targets();
  support::for_each_target([&](const std::string& target) {
    const double got = fit(MatrixView<const double>(wide.data(), rows, cols), data.labels);
    const bool same = exact.empty() || std::find(exact.begin(), exact.end(), target) != exact.end();
    EXPECT_NEAR(got, want, same ? 0 : 1e-9);
  });
}

TEST(FitTemperature, TheSameForFloatsStridesThreadsAndTargets) {
  check_doors([](auto x, auto labels) { return fit_temperature(x, labels).temperature; });
}

TEST(FitTargetEntropy, TheSameForFloatsStridesThreadsAndTargets) {
  check_doors([](auto x, auto labels) { return fit_target_entropy(x, labels); });
}

TEST(MatchEntropy, TheSameForFloatsStridesThreadsAndTargets) {
  check_doors([](auto x, auto) { return match_entropy(x); });
}

long double loss_at(const Data& data, long double entropy) {
  long double loss = 0;
  for (std::size_t r = 0; r < data.rows; ++r) {
    loss -= std::log(oracle::normalize_entropy(data.row(r), entropy).p[static_cast<std::size_t>(data.labels[r])]);
  }
  return loss / static_cast<long double>(data.rows);
}

TEST(FitTargetEntropy, NoEntropyOfADenseGridIsBetter) {
  std::mt19937 random(5);
  double worst = 0;
  for (std::size_t set = 0; set < 250 / support::kShare; ++set) {
    const Data data = generated(random, 12, 8);
    const double top = std::log(static_cast<double>(data.cols)), got = data.target();
    ASSERT_TRUE(got >= 0 && got <= top);
    // log n is rounded in double. Near it the loss behaves like sqrt(log n - H), and the oracle would show the difference.
    const auto loss_of = [&](long double h) { return loss_at(data, h >= top ? 2 * top + 1 : h); };
    const long double loss = loss_of(got);
    for (int k = 0; k <= 300; ++k) {
      const long double other = loss_of(k == 300 ? top : top * k / 300.0L);
      worst = std::max(worst, static_cast<double>(loss - other));
      ASSERT_LE(loss, other + 1e-10L * std::max(1.0L, other)) << "set " << set << " got " << got << " at " << k;
    }
  }
  std::printf("most that a grid point is better by: %.2g\n", worst);
}

TEST(FitTargetEntropy, IsWhereTheSlopeVanishes) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const Data data = drawn(200, 10, 3, 2, seed);
    const double got = data.target(), h = 1e-6;
    const auto slope = [&](double at) { return static_cast<double>(loss_at(data, at + h) - loss_at(data, at - h)) / (2 * h); };
    const double curvature = (slope(got + 1e-3) - slope(got - 1e-3)) / 2e-3;
    EXPECT_NEAR(slope(got) / curvature, 0, 1e-10);
  }
}

// The minimum is close to where rows become uniform over the classes they have.
TEST(FitTargetEntropy, MaskedRows) {
  std::mt19937 random(7);
  for (std::size_t set = 0; set < 30 / support::kShare; ++set) {
    Data data = drawn(40, 50, 1e-3, 8e-3, static_cast<unsigned>(set));
    for (std::size_t r = 0; r < data.rows; ++r) {
      for (std::size_t i = 0, masked = 0; masked < 20; i = random() % 50) {
        double& score = data.x[r * 50 + i];
        if (i == static_cast<std::size_t>(data.labels[r]) || score == -kInfinity) continue;
        score = -kInfinity;
        ++masked;
      }
    }
    const long double loss = loss_at(data, data.target());
    for (int k = 1; k <= 50; ++k) EXPECT_LE(loss, loss_at(data, std::log(30.0L) - 1e-3L * k) + 1e-10L) << set << " " << k;
  }
}

// More rows than the survey takes, with one wrong label: one that the survey does not see, and one that it sees and overrates.
TEST(FitTargetEntropy, ManyRows) {
  const Data common = drawn(9000, 4, 3, 2, 9);
  std::vector<Data> all = {common, common, common};
  for (const std::size_t wrong : {4321, 0}) {
    Data& data = all[wrong == 0 ? 1 : 2];
    for (std::size_t r = 0; r < data.rows; ++r) {
      const oracle::Row x = data.row(r);
      data.labels[r] = std::max_element(x.begin(), x.end()) - x.begin();
    }
    data.labels[wrong] = (data.labels[wrong] + 1) % 4;
    EXPECT_LT(data.target(), 0.1);
    EXPECT_GT(data.target(), 0);
  }
  for (const Data& data : all) {
    const double top = std::log(4), got = data.target(), h = got / 100;
    const long double loss = loss_at(data, got);
    for (std::size_t k = 0; k < 8; k += support::kShare) EXPECT_LE(loss, loss_at(data, top * k / 8.0L)) << k;
    EXPECT_LE(loss, loss_at(data, got - h));
    EXPECT_LE(loss, loss_at(data, got + h));
  }
}

TEST(FitTargetEntropy, Edges) {
  const auto check = [](Data data, double want) { EXPECT_NEAR(data.target(), want, 1e-12); };
  check({2, 3, {0, 1, 2, 5, 4, 3}, {2, 0}}, 0);  // all right
  check({2, 3, {0, 1e4, 2e4, 2e4, 0, 0}, {2, 0}}, 0);
  check({2, 3, {0, 1, 2, 5, 4, 3}, {0, 2}}, std::log(3));     // all at the minimum
  check({2, 3, {0, 2, 2, 5, 5, 3}, {2, 0}}, std::log(2));     // right up to ties
  check({2, 3, {7, 7, 7, -2, -2, -2}, {0, 2}}, std::log(3));  // every entropy as good: the largest
  check({3, 1, {1, 2, 3}, {0, 0, 0}}, 0);
  check({2, 2, {-kInfinity, 1, 3, -kInfinity}, {1, 0}}, std::log(2));
  // p = 3/4 for any scale of each row, and its entropy.
  const double quarter = std::log(4) - 0.75 * std::log(3);
  check({4, 2, {1, 0, 50, 0, 1e-3, 0, 1e300, 0}, {0, 0, 0, 1}}, quarter);
  const double most = std::numeric_limits<double>::max();
  check({4, 2, {1e6 + 1, 1e6, most, -most, 1e-300, 0, -1e6, -1e6 - 1}, {0, 1, 0, 0}}, quarter);
}

TEST(MatchEntropy, IsTheMeanOfTheEntropies) {
  for (const support::Case<double>& c : support::finite_cases<double>()) {
    const long double want = oracle::entropy(oracle::map(Softmax{}, oracle::Row(c.x.begin(), c.x.end())));
    const double got = match_entropy(MatrixView<const double>(c.x.data(), 1, c.x.size()));
    EXPECT_NEAR(got, static_cast<double>(want), 1e-14 * std::max(1.0, std::log(static_cast<double>(c.x.size())))) << c.name;
  }
  const std::vector<double> x = {0, 0, -kInfinity, 1, -kInfinity, -kInfinity, kInfinity, 3, kInfinity, 1000, 0, 0};
  EXPECT_NEAR(match_entropy(MatrixView<const double>(x.data(), 4, 3)), std::log(2) / 2, 1e-15);
}

// Bin after bin, by the definition.
double calibration_error(const Data& data, std::size_t bins, bool quantile) {
  std::vector<double> confidence;
  std::vector<bool> right;
  for (std::size_t r = 0; r < data.rows; ++r) {
    const oracle::Row p = data.row(r);
    const auto largest = std::max_element(p.begin(), p.end());
    confidence.push_back(static_cast<double>(*largest));
    right.push_back(largest - p.begin() == data.labels[r]);
  }
  const double width = static_cast<double>(bins);
  double error = 0;
  for (std::size_t b = 0; b < bins; ++b) {
    double accuracy = 0, sum = 0;
    for (std::size_t r = 0; r < data.rows; ++r) {
      std::size_t rank = 0;
      for (const double other : confidence) rank += other < confidence[r];
      const double low = static_cast<double>(b) / width, high = static_cast<double>(b + 1) / width;
      const bool inside =
          quantile ? rank * bins / data.rows == b : confidence[r] >= low && (confidence[r] < high || b + 1 == bins);
      if (!inside) continue;
      accuracy += right[r];
      sum += confidence[r];
    }
    error += std::abs(accuracy - sum) / static_cast<double>(data.rows);
  }
  return error;
}

TEST(ExpectedCalibrationError, IsTheDefinition) {
  std::mt19937 random(6);
  using enum ExpectedCalibrationError::Strategy;
  for (int set = 0; set < 500; ++set) {
    const std::size_t bins = 1 + random() % 20;
    Data data = drawn(1 + random() % 300, 2, 2, 1, set);
    for (std::size_t r = 0; r < data.rows; ++r) {
      // Often just on an edge between two bins, or one of a few values.
      double p = std::uniform_real_distribution<double>(0, 1)(random);
      if (set % 3 == 0) p = static_cast<double>(random() % (bins + 1)) / static_cast<double>(bins);
      if (set % 3 == 1) p = std::round(4 * p) / 4;
      data.x[2 * r] = p;
      data.x[2 * r + 1] = 1 - p;
    }
    for (const auto strategy : {uniform, quantile}) {
      const auto count = static_cast<std::int64_t>(bins);
      EXPECT_NEAR(expected_calibration_error({.bins = count, .strategy = strategy}, data.view(), data.labels),
                  calibration_error(data, bins, strategy == quantile), 1e-13)
          << set;
    }
  }
}

TEST(ExpectedCalibrationError, Edges) {
  const auto check = [](Data data, const ExpectedCalibrationError& options, double want) {
    EXPECT_NEAR(expected_calibration_error(options, data.view(), data.labels), want, 1e-15);
  };
  using enum ExpectedCalibrationError::Strategy;
  check({2, 2, {1, 0, 0, 1}, {0, 1}}, {}, 0);
  check({2, 2, {1, 0, 0, 1}, {1, 0}}, {}, 1);
  check({2, 2, {1, 0, 0.96, 0.04}, {1, 0}}, {}, std::abs(1 - 1.96) / 2);  // 1 is in the bin of 0.96, [14/15, 1]
  check({2, 2, {0.5, 0.5, 0.5, 0.5}, {0, 1}}, {}, 0);                     // the first of two equal entries is the prediction
  check({2, 2, {0.5, 0.5, 0.75, 0.25}, {0, 1}}, {.bins = 2}, (1.25 - 1) / 2);
  check({2, 2, {0.5, 0.5, 0.75, 0.25}, {0, 1}}, {.bins = 2, .strategy = quantile}, (0.5 + 0.75) / 2);
  // 15/22 begins a bin, although its product with 22 is rounded to less than 15.
  check({2, 2, {15.0 / 22, 7.0 / 22, 0.7, 0.3}, {0, 1}}, {.bins = 22}, (0.7 - (1 - 15.0 / 22)) / 2);
  check({3, 2, {0.75, 0.25, 0.75, 0.25, 0.75, 0.25}, {0, 0, 1}}, {.strategy = quantile}, 0.25 / 3);  // ties in one bin
  // Within a float's tolerance, taken as it is given.
  const std::vector<float> p = {1.00005f, 0};
  const std::vector<std::int64_t> label = {0};
  EXPECT_NEAR(expected_calibration_error(ExpectedCalibrationError{}, MatrixView<const float>(p.data(), 1, 2), label), 5e-5,
              1e-7);
}

TEST(EntropyInvariantScale, IsTheFormula) {
  EXPECT_NEAR(entropy_invariant_scale(EntropyInvariantScale{}, 512, 64), 0.125, 1e-16);
  EXPECT_NEAR(entropy_invariant_scale(EntropyInvariantScale{}, 512 * 512, 64), 0.25, 1e-16);
  EXPECT_EQ(entropy_invariant_scale(EntropyInvariantScale{}, 1, 64), 0);
  EXPECT_NEAR(entropy_invariant_scale({.train_length = 10}, 100, 16), 0.5, 1e-15);
  EXPECT_NEAR(entropy_invariant_scale({.kappa = 2}, 100, 16), std::log(100) / 8, 1e-15);
  std::vector<double> n = {1, 2, 131072}, scale(3);
  entropy_invariant_scale({.kappa = 3}, n, 32, scale);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(scale[i], entropy_invariant_scale({.kappa = 3}, n[i], 32));
  entropy_invariant_scale({.kappa = 3}, n, 32, n);
  EXPECT_EQ(n, scale);
}

TEST(Calibration, RefusesBadArguments) {
  const std::vector<std::int64_t> labels = {0, 1, 0};
  const std::vector<double> good = {1, 2, 3, 4, 5, 6};
  const auto with = [&](std::size_t i, double value) {
    std::vector<double> x = good;
    x[i] = value;
    return x;
  };
  const auto both = [&](const std::string& what, const std::vector<double>& x, const std::vector<std::int64_t>& y,
                        std::size_t rows = 3, std::size_t cols = 2) {
    const MatrixView<const double> view(x.data(), rows, cols);
    expect_error("fit_temperature: " + what, [&] { fit_temperature(view, y); });
    expect_error("fit_target_entropy: " + what, [&] { fit_target_entropy(view, y); });
  };
  both("x must have at least one row", good, {}, 0);
  both("labels must have one entry for each of 3 rows, got 2", good, {0, 1});
  both("labels must be at least 0 and below the number of classes, 2, got 2 in row 1", good, {0, 2, 5});
  both("labels must be at least 0 and below the number of classes, 2, got -1 in row 2", good, {0, 1, -1});
  both("labels must be at least 0 and below the number of classes, 0, got 0 in row 0", good, labels, 3, 0);
  both("scores must not be NaN, got one in row 1", with(2, kNaN), labels);
  both("scores must be finite or -inf, got +inf in row 2", with(5, kInfinity), labels);
  both("labels must be classes with a score above -inf, otherwise the loss is infinite, got 1 in row 1", with(3, -kInfinity),
       labels);
  expect_error("fit_temperature: row_stride of x must be at least its cols, 2, got 1",
               [&] { fit_temperature(MatrixView<const double>(good.data(), 3, 2, 1), labels); });
  expect_error("fit_temperature: x must point to 3 x 2 numbers, got a null pointer",
               [&] { fit_temperature(MatrixView<const double>(nullptr, 3, 2), labels); });

  const auto match = [](std::vector<double> x, std::size_t rows) {
    match_entropy(MatrixView<const double>(x.data(), rows, 2));
  };
  expect_error("match_entropy: x_reference must have at least one row", [&] { match({0, 1}, 0); });
  expect_error("match_entropy: scores must not be NaN, got one in row 1", [&] { match({0, 1, 0, kNaN}, 2); });
  expect_error("match_entropy: scores must not all be -inf, got nothing else in row 0", [&] {
    match({-kInfinity, -kInfinity}, 1);
  });

  const auto error = [&](std::vector<double> p, const ExpectedCalibrationError& options = {}) {
    expected_calibration_error(options, MatrixView<const double>(p.data(), p.size() / 2, 2),
                               std::span(labels).first(p.size() / 2));
  };
  const std::string name = "expected_calibration_error: ";
  expect_error(name + "p must have at least one row", [&] { error({}); });
  expect_error(name + "p must be at least 0 and finite, got -0.5 at entry 1 in row 1", [&] { error({1, 0, 1.5, -0.5}); });
  expect_error(name + "p must be at least 0 and finite, got nan at entry 0 in row 0", [&] { error({kNaN, 0}); });
  expect_error(name + "p must be at least 0 and finite, got inf at entry 0 in row 0", [&] { error({kInfinity, 0}); });
  expect_error(name + "p must sum to 1 within 1e-06, got 0.9375 in row 1", [&] { error({1, 0, 0.5, 0.4375}); });
  error({1, 0, 0.5, 0.4375}, {.sum_tolerance = 0.1});
  expect_error(name + "bins must be above 0 and at most 1000000, got 0", [&] { error({1, 0}, {.bins = 0}); });
  expect_error(name + "strategy must be one of uniform, quantile, got number 7", [&] {
    error({1, 0}, {.strategy = static_cast<ExpectedCalibrationError::Strategy>(7)});
  });
  expect_error(name + "labels must be at least 0 and below the number of classes, 2, got 2 in row 0", [&] {
    const std::vector<double> p = {1, 0};
    const std::vector<std::int64_t> label = {2};
    expected_calibration_error(ExpectedCalibrationError{}, MatrixView<const double>(p.data(), 1, 2), label);
  });

  const std::string scale = "entropy_invariant_scale: ";
  expect_error(scale + "n must be at least 1 and finite, got 0.5",
               [] { entropy_invariant_scale(EntropyInvariantScale{}, 0.5, 64); });
  expect_error(scale + "n must be at least 1 and finite, got nan",
               [] { entropy_invariant_scale(EntropyInvariantScale{}, kNaN, 64); });
  expect_error(scale + "d must be above 0 and finite, got 0", [] { entropy_invariant_scale(EntropyInvariantScale{}, 2, 0); });
  expect_error(scale + "train_length must be above 1 and finite, got 1",
               [] { entropy_invariant_scale({.train_length = 1}, 2, 64); });
  expect_error(scale + "kappa must be above 0 and finite, got -1", [] { entropy_invariant_scale({.kappa = -1}, 2, 64); });
  std::vector<double> n = {4, 0}, out = {7, 7, 7};
  expect_error(scale + "scale must have the size of n, 2, got 3",
               [&] { entropy_invariant_scale(EntropyInvariantScale{}, n, 64, out); });
  expect_error(scale + "n must be at least 1 and finite, got 0",
               [&] { entropy_invariant_scale(EntropyInvariantScale{}, n, 64, std::span(out).first(2)); });
  EXPECT_EQ(out, std::vector<double>(3, 7.0));
}

// A whole weight counts a row that many times, and a row of weight 0 is not read.
TEST(Calibration, weights_repeat_rows) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    const Data data = drawn(40, 5, 2, 1.5, static_cast<unsigned>(random()));
    std::vector<double> p(data.x.size());
    apply(Softmax{}, data.view(), MatrixView<double>(p.data(), data.rows, data.cols));
    Data weighted = data, repeated{0, data.cols, {}, {}};
    std::vector<double> weights, weighted_p = p, repeated_p;
    for (std::size_t r = 0; r < data.rows; ++r) {
      const std::size_t count = random() % 3;
      weights.push_back(static_cast<double>(count));
      repeated.rows += count;
      for (std::size_t k = 0; k < count; ++k) {
        for (std::size_t i = 0; i < data.cols; ++i) {
          repeated.x.push_back(data.x[r * data.cols + i]);
          repeated_p.push_back(p[r * data.cols + i]);
        }
        repeated.labels.push_back(data.labels[r]);
      }
      if (count == 0) weighted.labels[r] = -100, weighted.x[r * data.cols] = weighted_p[r * data.cols] = kNaN;
    }
    EXPECT_NEAR(fit_temperature(weighted.view(), weighted.labels, weights).temperature, repeated.temperature().temperature,
                1e-9 * repeated.temperature().temperature);
    EXPECT_NEAR(fit_target_entropy(weighted.view(), weighted.labels, weights), repeated.target(), 1e-6);
    EXPECT_NEAR(match_entropy(weighted.view(), weights), match_entropy(repeated.view()), 1e-12);
    const MatrixView<const double> some(weighted_p.data(), data.rows, data.cols);
    const MatrixView<const double> all(repeated_p.data(), repeated.rows, data.cols);
    EXPECT_NEAR(brier_score(some, weighted.labels, weights), brier_score(all, repeated.labels), 1e-13);
    using enum ExpectedCalibrationError::Strategy;
    for (const auto strategy : {uniform, quantile}) {
      const ExpectedCalibrationError options{.bins = 7, .strategy = strategy};
      const double error = expected_calibration_error(options, some, weighted.labels, weights);
      EXPECT_NEAR(error, expected_calibration_error(options, all, repeated.labels), 1e-13);
      double sum = 0, total = 0;
      for (const ReliabilityBin& bin : reliability_bins(options, some, weighted.labels, weights)) {
        EXPECT_LE(bin.lower, bin.confidence);
        EXPECT_GE(bin.upper + 1e-15, bin.confidence);
        sum += bin.weight * std::abs(bin.accuracy - bin.confidence), total += bin.weight;
      }
      EXPECT_NEAR(sum / total, error, 1e-13);
    }
  }
}

TEST(Calibration, weights_are_checked) {
  const Data data = drawn(3, 4, 1, 1, 0);
  const auto fit = [&](const std::vector<double>& weights) { fit_temperature(data.view(), data.labels, weights); };
  const std::string name = "fit_temperature: ";
  expect_error(name + "sample_weight must be at least 0 and finite, got -1 in row 1", [&] { fit({1, -1, 1}); });
  expect_error(name + "sample_weight must be at least 0 and finite, got nan in row 2", [&] { fit({1, 1, kNaN}); });
  expect_error(name + "sample_weight must be above 0 in some row, got 0 in all 3", [&] { fit({0, 0, 0}); });
}

}  // namespace
}  // namespace isentropic

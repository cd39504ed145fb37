// Entropy control: the entropy that rows reach, whatever the scores, and the gamma that does it.

#include "entropic/entropy_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "entropic/maps.h"
#include "tests/oracle/maps.h"
#include "tests/support/cases.h"
#include "tests/support/targets.h"

namespace entropic {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr double kTolerance = sizeof(T) == 4 ? 1e-6 : 1e-12;

template <class T>
long double entropy_of(const std::vector<T>& p) {
  return oracle::entropy(oracle::Row(p.begin(), p.end()));
}

// Scores of every kind that has broken an entropy normalisation somewhere.
template <class T>
std::vector<T> generated_row(std::mt19937& random, std::size_t length = 0) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  std::normal_distribution<double> normal;
  const int size = std::uniform_int_distribution<int>(0, 1999)(random);
  const std::size_t n = length > 0    ? length
                        : size < 1000 ? 1 + random() % 64
                        : size < 1900 ? 65 + random() % 300
                        : size < 1980 ? 500 + random() % 3000
                        : size < 1999 ? 8192 + random() % 10000
                                      : 131072 + random() % 131073;
  const double scale = std::pow(10, uniform(-6, 6));
  std::vector<T> x(n);
  switch (random() % 11) {
    case 0:  // normal, perhaps far from 0
      for (T& score : x) score = static_cast<T>(scale * normal(random) + (size % 2 == 0 ? 0 : 1e6));
      break;
    case 9:  // nearly uniform: equal but for the last digits
      for (T& score : x) score = 1 + std::numeric_limits<T>::epsilon() * static_cast<T>(random() % 3);
      break;
    case 10:  // ties at the top, the rest a little below or far
      for (T& score : x) score = static_cast<T>(random() % 5 == 0 ? 3 : 3 - std::pow(10, uniform(-5, 3)));
      break;
    case 1:  // a few large, a long tail
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(i < 4 ? 5 + 4 * normal(random) : -5 + 2 * normal(random));
      break;
    case 2:  // Zipf
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(-uniform(0.5, 2) * std::log1p(static_cast<double>(i)));
      break;
    case 3:  // ties everywhere, at the top too
      for (T& score : x) score = static_cast<T>(std::round(normal(random)));
      break;
    case 4:  // masked
      for (T& score : x) score = random() % 3 == 0 ? static_cast<T>(normal(random)) : -kInfinity<T>;
      x[random() % n] = 1;
      break;
    case 5:  // one spike
      for (T& score : x) score = static_cast<T>(1e-3 * normal(random));
      x[random() % n] = static_cast<T>(uniform(0, 1e4));
      break;
    case 6:  // magnitudes of every size
      for (T& score : x) score = static_cast<T>((random() % 2 == 0 ? 1 : -1) * std::pow(10, uniform(-30, 30)));
      break;
    case 7:  // two values
      for (T& score : x) score = static_cast<T>(random() % 2 == 0 ? 0 : -scale);
      break;
    default:  // subnormal differences
      for (T& score : x) score = std::numeric_limits<T>::denorm_min() * static_cast<T>(random() % 50);
  }
  return x;
}

// The entropy of softmax(gamma x).
template <class T>
double entropy_at(double gamma, const std::vector<T>& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  long double sum = 0, mean = 0;
  for (const T score : x) {
    const long double a = gamma * (score - max);
    if (!(a > -11000)) continue;
    sum += std::exp(a), mean += std::exp(a) * a;
  }
  return static_cast<double>(std::log(sum) - mean / sum);
}

struct Reach {
  double low, high;
};

template <class T>
Reach reach_of(const std::vector<T>& x) {
  const T max = *std::max_element(x.begin(), x.end());
  double ties = 0, finite = 0;
  for (const T score : x) ties += score == max, finite += std::isfinite(score);
  return {std::log(ties), std::log(finite)};
}

// Any entropy, and often one that is hard: near an end of the reach, or beyond.
double generated_target(std::mt19937& random, Reach reach) {
  std::uniform_real_distribution<double> uniform(0, 1);
  const double width = reach.high - reach.low, small = std::pow(10, -14 * uniform(random));
  switch (random() % 6) {
    case 0:
      return std::max(0.0, reach.low + width * small);
    case 1:
      return std::max(0.0, reach.high - width * small);
    case 2:
      return 1.2 * reach.high * uniform(random);
    default:
      return reach.low + width * uniform(random);
  }
}

template <class T>
void check_generated_rows(unsigned seed, int rows) {
  std::mt19937 random(seed);
  double worst = 0;
  for (int row = 0; row < rows; ++row) {
    const std::vector<T> x = generated_row<T>(random);
    const std::size_t n = x.size();
    const Reach reach = reach_of(x);
    const double target = generated_target(random, reach), goal = std::clamp(target, reach.low, reach.high);
    const EntropyNormalize op = random() % 8 == 0 ? EntropyNormalize{.perplexity = std::max(1.0, std::exp(target))}
                                                  : EntropyNormalize{.entropy = target};
    const auto view = [&](const std::vector<T>& v) { return MatrixView<const T>(v.data(), 1, n); };
    std::vector<T> p(n), dx(n), g(n);
    apply(op, view(x), MatrixView<T>(p.data(), 1, n));
    const double error = static_cast<double>(std::abs(entropy_of(p) - goal)) / std::max(1.0, goal);
    worst = std::max(worst, error);
    ASSERT_LE(error, kTolerance<T>) << "row " << row << " n " << n << " target " << target;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      ASSERT_TRUE(x[i] == x[i + 1] ? p[i] == p[i + 1] : (x[i] < x[i + 1]) == (p[i] < p[i + 1]) || p[i] == p[i + 1]) << row;
    }

    // J 1 = 0 and J x = 0, and so for g, J being symmetric.
    std::normal_distribution<double> normal;
    for (T& entry : g) entry = static_cast<T>(normal(random));
    apply_vjp(op, view(x), view(p), view(g), MatrixView<T>(dx.data(), 1, n));
    double gamma, reached;
    GammaStatus status;
    gamma_for_entropy(view(x), {&gamma, 1}, {&reached, 1}, {&status, 1}, {.entropy = op.entropy, .perplexity = op.perplexity});
    ASSERT_LE(std::abs(reached - goal), 1e-12 * std::max(1.0, goal)) << "row " << row << " n " << n << " target " << target;
    if (status == GammaStatus::kOk && gamma > 0 && gamma < 1e300) {
      ASSERT_NEAR(entropy_at(gamma, x), reached, 1e-12 * std::max(1.0, goal))
          << "row " << row << " n " << n << " target " << target;
    }
    if (status == GammaStatus::kOk && gamma == kInfinity<double>) continue;  // beyond float64
    if (status != GammaStatus::kOk || gamma == 0) {
      for (const T entry : dx) ASSERT_EQ(entry, T(0));
      continue;
    }
    // Against the terms whose difference J g is: it may vanish.
    double sum = 0, product = 0, size = 0, length = 0, mean = 0;
    const double max = *std::max_element(x.begin(), x.end());
    for (std::size_t i = 0; i < n; ++i) mean += static_cast<double>(p[i]) * g[i];
    for (std::size_t i = 0; i < n; ++i) {
      if (p[i] == 0) {
        ASSERT_EQ(dx[i], T(0));
        continue;
      }
      const double z = x[i] / 4 - max / 4, term = gamma * p[i] * std::abs(g[i] - mean);
      sum += dx[i], size += term, product += dx[i] * z, length += term * std::abs(z);
    }
    constexpr double kLeast = std::numeric_limits<T>::min() * 1e9, kMost = std::numeric_limits<T>::max() / 1e9;
    if (!(size > kLeast && size < kMost)) continue;
    ASSERT_LE(std::abs(sum), 32 * std::numeric_limits<T>::epsilon() * size)
        << "row " << row << " n " << n << " target " << target;
    if (!(length > kLeast && length < kMost)) continue;
    ASSERT_LE(std::abs(product), 64 * std::numeric_limits<T>::epsilon() * length)
        << "row " << row << " n " << n << " target " << target;
  }
  std::printf("%d rows of float%zu: largest error of the entropy %.2g\n", rows, 8 * sizeof(T), worst);
}

TEST(EntropyNormalize, ReachesTheEntropy) {
  check_generated_rows<float>(1, 20000);
  check_generated_rows<double>(2, 20000);
}

TEST(EntropyNormalize, FewRowsOnEveryTarget) {
  support::for_each_target([](const std::string&) {
    check_generated_rows<float>(3, 300);
    check_generated_rows<double>(4, 300);
  });
}

// Rows that are searched together are as they are alone, whatever the others are.
TEST(EntropyNormalize, HardRowsTogether) {
  std::mt19937 random(8);
  support::for_each_target([&](const std::string&) {
    const auto check = [&]<class T>(T) {
      for (const std::size_t n : {2, 33, 64, 65, 100, 1000}) {
        const std::size_t rows = 50;
        std::vector<T> x, p(rows * n), q(n);
        for (std::size_t r = 0; r < rows; ++r) {
          const std::vector<T> row = generated_row<T>(random, n);
          x.insert(x.end(), row.begin(), row.end());
        }
        for (const Map& op :
             {Map(EntropyNormalize{.entropy = 0.3 * std::log(n)}), Map(EntropyNormalize{.entropy = 0.999 * std::log(n)}),
              Map(EntropyClip{.min_entropy = 0.3 * std::log(n), .max_entropy = 0.7 * std::log(n)})}) {
          apply(op, MatrixView<const T>(x.data(), rows, n), MatrixView<T>(p.data(), rows, n));
          for (std::size_t r = 0; r < rows; ++r) {
            apply(op, MatrixView<const T>(x.data() + r * n, 1, n), MatrixView<T>(q.data(), 1, n));
            ASSERT_TRUE(std::equal(q.begin(), q.end(), p.begin() + static_cast<std::ptrdiff_t>(r * n))) << n << " row " << r;
          }
        }
      }
    };
    check(float{});
    check(double{});
  });
}

// The gradient in the target against differences of the definition.
TEST(EntropyNormalize, GradientsInTheTarget) {
  const std::vector<double> x = support::normal_row<double>(20, 1, 0, 1), g = support::normal_row<double>(20, 1, 0, 2);
  std::vector<double> p(20), dx(20);
  const MatrixView<const double> scores(x.data(), 1, 20), weights(g.data(), 1, 20);
  const auto mean = [&](const Map& map) {
    std::vector<double> q(20);
    apply(map, scores, MatrixView<double>(q.data(), 1, 20));
    double sum = 0;
    for (int i = 0; i < 20; ++i) sum += q[i] * g[i];
    return sum;
  };
  const auto gradient = [&](const Map& map, std::string_view name) {
    double value = -1;
    const ParamGradient asked = {name, {&value, 1}};
    apply(map, scores, MatrixView<double>(p.data(), 1, 20));
    apply_vjp(map, scores, MatrixView<const double>(p.data(), 1, 20), weights, MatrixView<double>(dx.data(), 1, 20), {},
              {&asked, 1});
    return value;
  };
  const double h = 1e-5;
  for (const double t : {0.2, 1.0, 2.5}) {
    EXPECT_NEAR(gradient(EntropyNormalize{.entropy = t}, "entropy"),
                (mean(EntropyNormalize{.entropy = t + h}) - mean(EntropyNormalize{.entropy = t - h})) / (2 * h), 1e-7);
    EXPECT_NEAR(gradient(EntropyNormalize{.perplexity = 1 + t}, "perplexity"),
                (mean(EntropyNormalize{.perplexity = 1 + t + h}) - mean(EntropyNormalize{.perplexity = 1 + t - h})) / (2 * h),
                1e-7);
  }
  EXPECT_EQ(gradient(EntropyNormalize{.entropy = 1}, "perplexity"), 0);
  EXPECT_EQ(gradient(EntropyNormalize{.entropy = 50}, "entropy"), 0);
  const double own = static_cast<double>(oracle::entropy(oracle::map(Softmax{}, oracle::Row(x.begin(), x.end()))));
  const auto by_entropy = [&](double t) { return gradient(EntropyNormalize{.entropy = t}, "entropy"); };
  EXPECT_EQ(gradient(EntropyClip{.min_entropy = own - 1, .max_entropy = own + 1}, "min_entropy"), 0);
  EXPECT_EQ(gradient(EntropyClip{.min_entropy = own + 0.2}, "min_entropy"), by_entropy(own + 0.2));
  EXPECT_EQ(gradient(EntropyClip{.max_entropy = own - 1}, "max_entropy"), by_entropy(own - 1));
  EXPECT_EQ(gradient(EntropyClip{.max_entropy = own - 1}, "min_entropy"), 0);
}

TEST(EntropyNormalize, TargetsForEachRow) {
  const std::vector<float> x = support::normal_row<float>(5 * 40, 1, 0, 3);
  const std::vector<double> targets = {0.1, 1, 2, 3, 9};
  std::vector<float> p(x.size()), q(40);
  const PerRow per_row = {"entropy", targets};
  apply(EntropyNormalize{}, MatrixView<const float>(x.data(), 5, 40), MatrixView<float>(p.data(), 5, 40), {&per_row, 1});
  for (std::size_t r = 0; r < 5; ++r) {
    apply(EntropyNormalize{.entropy = targets[r]}, MatrixView<const float>(x.data() + r * 40, 1, 40),
          MatrixView<float>(q.data(), 1, 40));
    EXPECT_TRUE(std::equal(q.begin(), q.end(), p.begin() + static_cast<std::ptrdiff_t>(r) * 40));
  }
}

TEST(EntropyClip, LeavesWhatIsInside) {
  const std::vector<float> x = support::normal_row<float>(300, 1, 0, 4);
  std::vector<float> p(300), q(300);
  const MatrixView<const float> view(x.data(), 1, 300);
  apply(Softmax{}, view, MatrixView<float>(p.data(), 1, 300));
  for (const EntropyClip& op :
       {EntropyClip{}, EntropyClip{.min_entropy = 1}, EntropyClip{.min_entropy = 1, .max_entropy = 5.6}}) {
    apply(op, view, MatrixView<float>(q.data(), 1, 300));
    for (std::size_t i = 0; i < 300; ++i) EXPECT_NEAR(q[i] / p[i], 1, 1e-6);
  }
  apply(EntropyClip{.max_entropy = 2}, view, MatrixView<float>(q.data(), 1, 300));
  EXPECT_NEAR(static_cast<double>(entropy_of(q)), 2, 2e-6);
}

template <class T>
struct Gammas {
  std::vector<double> gamma, entropy;
  std::vector<GammaStatus> status;

  Gammas(const std::vector<T>& x, std::size_t cols, const GammaForEntropy& options)
      : gamma(x.size() / cols), entropy(gamma.size()), status(gamma.size()) {
    gamma_for_entropy(MatrixView<const T>(x.data(), gamma.size(), cols), gamma, entropy, status, options);
  }
};

TEST(GammaForEntropy, AgreesWithTheDefinition) {
  support::for_each_target([](const std::string&) {
    for (const std::size_t n : {2, 5, 64, 300, 5000}) {
      for (const double scale : {1e-5, 1.0, 1e5}) {
        const std::vector<double> x = support::normal_row<double>(n, scale, 3 * scale, 5);
        for (const double share : {0.1, 0.5, 0.9}) {
          const double target = share * std::log(n);
          const Gammas<double> got(x, n, {.entropy = target});
          const long double want = oracle::normalize_entropy(oracle::Row(x.begin(), x.end()), target).gamma;
          EXPECT_EQ(got.status[0], GammaStatus::kOk);
          EXPECT_NEAR(got.entropy[0], target, 1e-12 * std::max(1.0, target));
          EXPECT_NEAR(static_cast<double>(got.gamma[0] / want), 1, 1e-11) << n << " " << scale << " " << share;
        }
      }
    }
  });
}

TEST(GammaForEntropy, Statuses) {
  const double inf = kInfinity<double>, nan = std::nan("");
  const std::vector<double> x = {1,    1,    0,    -inf,  // two at the maximum, three finite
                                 2,    2,    2,    -inf,  // equal
                                 inf,  0,    inf,  1,     // +inf
                                 0,    nan,  1,    2,     // NaN
                                 -inf, -inf, -inf, -inf};
  const auto check = [&](double target, std::vector<GammaStatus> status, double gamma, double entropy) {
    const Gammas<double> got(x, 4, {.entropy = target});
    EXPECT_EQ(got.status, status);
    EXPECT_EQ(got.gamma[0], gamma);
    EXPECT_NEAR(got.entropy[0], entropy, 1e-15);
    EXPECT_EQ(got.gamma[1], 1);
    EXPECT_NEAR(got.entropy[1], std::log(3), 1e-15);
    EXPECT_EQ(got.gamma[2], 1);
    EXPECT_NEAR(got.entropy[2], std::log(2), 1e-15);
    EXPECT_TRUE(std::isnan(got.gamma[3]) && std::isnan(got.entropy[4]));
  };
  using enum GammaStatus;
  check(0.5, {kClampedLow, kConstant, kConstant, kInvalid, kInvalid}, inf, std::log(2));
  check(1.2, {kClampedHigh, kConstant, kConstant, kInvalid, kInvalid}, 0, std::log(3));
  check(std::log(3), {kOk, kConstant, kConstant, kInvalid, kInvalid}, 0, std::log(3));
  EXPECT_EQ(Gammas<float>({1, 1, 0}, 3, {.perplexity = 3}).status[0], kOk);
}

// gamma is an exponent of the distribution, also where its entries differ in the last digits only.
TEST(GammaForEntropy, OfProbabilities) {
  support::for_each_target([](const std::string&) {
    const auto check = []<class T>(T) {
      for (const std::size_t n : {5, 64, 300, 5000}) {
        for (const double spread : {1.0, 1e-3, sizeof(T) == 4 ? 1e-5 : 1e-9}) {
          std::vector<T> q = support::normal_row<T>(n, spread, 0, 7);
          for (T& mass : q) mass = static_cast<T>(std::exp(static_cast<double>(mass)) / static_cast<double>(n));
          const double target = 0.6 * std::log(n);
          const Gammas<T> got(q, n, {.entropy = target, .input = Input::probs});
          const oracle::EntropyNormalized want =
              oracle::solve(EntropyNormalize{.entropy = target, .input = Input::probs}, oracle::Row(q.begin(), q.end()));
          EXPECT_EQ(got.status[0], GammaStatus::kOk);
          EXPECT_NEAR(got.entropy[0], target, 1e-12 * std::max(1.0, target));
          EXPECT_NEAR(static_cast<double>(got.gamma[0] / want.gamma), 1, 1e-11) << n << " " << spread;
        }
      }
      const T nan = std::numeric_limits<T>::quiet_NaN();
      const std::vector<T> bad = {T(0.5), T(-0.1), T(1), nan, T(1), kInfinity<T>, 0, 0, T(0.5), T(0.5), T(0.7), 0};
      using enum GammaStatus;
      const Gammas<T> got(bad, 2, {.entropy = 0.1, .input = Input::probs});
      EXPECT_EQ(got.status, (std::vector<GammaStatus>{kInvalid, kInvalid, kInvalid, kInvalid, kConstant, kConstant}));
      const Gammas<T> logs({0, -1, T(0.5), T(0.25)}, 2, {.entropy = 0.3, .input = Input::log_probs});
      const Gammas<T> scores({0, -1, T(0.5), T(0.25)}, 2, {.entropy = 0.3});
      EXPECT_EQ(logs.gamma, scores.gamma);
    };
    check(float{});
    check(double{});
  });
}

TEST(GammaForEntropy, LimitsAndRoughness) {
  const std::vector<double> x = support::normal_row<double>(100, 1, 0, 6);
  const double gamma = Gammas<double>(x, 100, {.entropy = 3}).gamma[0];
  const Gammas<double> low(x, 100, {.entropy = 3, .max_gamma = gamma / 2}),
      high(x, 100, {.entropy = 3, .min_gamma = 2 * gamma});
  EXPECT_EQ(low.status[0], GammaStatus::kClampedLow);
  EXPECT_NEAR(low.gamma[0], gamma / 2, 1e-15 * gamma);
  EXPECT_GT(low.entropy[0], 3.01);
  EXPECT_EQ(high.status[0], GammaStatus::kClampedHigh);
  EXPECT_NEAR(high.gamma[0], 2 * gamma, 1e-15 * gamma);
  EXPECT_LT(high.entropy[0], 2.99);
  EXPECT_EQ(Gammas<double>(x, 100, {.entropy = 0, .max_gamma = 8}).gamma[0], 8);
  EXPECT_EQ(Gammas<double>(x, 100, {.entropy = 9, .min_gamma = 0.25}).gamma[0], 0.25);
  EXPECT_NEAR(Gammas<double>(x, 100, {.entropy = 3, .max_iterations = 1}).entropy[0], 3, 0.5);
}

template <class Call>
void expect_error(const std::string& text, Call call) {
  try {
    call();
    FAIL() << "accepted, expected: " << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), text);
  }
}

TEST(EntropyControl, RefusesBadArguments) {
  std::vector<double> x(8, 1.0), p(8, 5.0), gamma(2), entropy(2);
  std::vector<GammaStatus> status(2);
  const MatrixView<const double> view(x.data(), 2, 4);
  const MatrixView<double> out(p.data(), 2, 4);
  expect_error("entropy_normalize: exactly one of entropy and perplexity must be given",
               [&] { apply(EntropyNormalize{}, view, out); });
  expect_error("entropy_normalize: exactly one of entropy and perplexity must be given",
               [&] { apply(EntropyNormalize{.entropy = 1, .perplexity = 2}, view, out); });
  expect_error("entropy_normalize: entropy must be at least 0 and finite, got -1",
               [&] { apply(EntropyNormalize{.entropy = -1}, view, out); });
  expect_error("entropy_normalize: perplexity must be at least 1 and finite, got 0.5",
               [&] { apply(EntropyNormalize{.perplexity = 0.5}, view, out); });
  expect_error("entropy_clip: min_entropy must be at most max_entropy",
               [&] { apply(EntropyClip{.min_entropy = 2, .max_entropy = 1}, view, out); });
  const std::vector<double> targets = {1, -2};
  const PerRow per_row = {"entropy", targets};
  expect_error("entropy_normalize: entropy of row 1 must be at least 0 and finite, got -2", [&] {
    apply(EntropyNormalize{}, view, out, {&per_row, 1});
  });
  expect_error("gamma_for_entropy: gamma must have one entry for each of 2 rows, got 1",
               [&] { gamma_for_entropy(view, std::span(gamma).first(1), entropy, status, {.entropy = 1}); });
  expect_error("gamma_for_entropy: min_gamma must be at most max_gamma",
               [&] { gamma_for_entropy(view, gamma, entropy, status, {.entropy = 1, .min_gamma = 2, .max_gamma = 1}); });
  expect_error("power_transform: gamma must be at least 0 and finite, got -1",
               [&] { power_transform(view, out, {.gamma = -1}); });
  EXPECT_EQ(p, std::vector<double>(8, 5.0));
}

TEST(PowerTransform, IsThePower) {
  support::for_each_target([](const std::string&) {
    const auto check = [&]<class T>(T) {
      const std::vector<T> p = {T(0.5), T(0), T(0.25), T(0.25)};
      std::vector<T> q(4);
      const auto run = [&](double gamma) {
        power_transform(MatrixView<const T>(p.data(), 1, 4), MatrixView<T>(q.data(), 1, 4), {.gamma = gamma});
      };
      const double epsilon = std::numeric_limits<T>::epsilon();
      for (const double gamma : {0.0, 0.5, 1.0, 3.0, 40.0, 1e300}) {
        run(gamma);
        const double half = std::pow(2, -gamma), sum = 1 + 2 * half;
        EXPECT_NEAR(q[0], 1 / sum, epsilon) << gamma;
        EXPECT_EQ(q[1], T(0));
        EXPECT_NEAR(q[2], half / sum, 4 * epsilon * half) << gamma;
        EXPECT_EQ(q[2], q[3]);
      }
      for (const T bad : {T(-0.5), std::numeric_limits<T>::quiet_NaN(), kInfinity<T>}) {
        const std::vector<T> row = {T(0.5), bad};
        std::vector<T> out(2);
        power_transform(MatrixView<const T>(row.data(), 1, 2), MatrixView<T>(out.data(), 1, 2), {.gamma = 2});
        EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1])) << bad;
      }
      std::vector<T> zeros(3);
      power_transform(MatrixView<const T>(zeros.data(), 1, 3), MatrixView<T>(zeros.data(), 1, 3), {});
      EXPECT_TRUE(std::isnan(zeros[0]));
    };
    check(float{});
    check(double{});
  });
}

}  // namespace
}  // namespace entropic

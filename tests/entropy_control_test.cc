// Entropy control: the entropy that rows reach, for any scores, and its gamma.

#include "isentropic/entropy_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "isentropic/maps.h"
#include "tests/oracle/maps.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/share.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

using support::expect_error;

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr double kTolerance = sizeof(T) == 4 ? 1e-6 : 1e-12;

template <class T>
long double entropy_of(const std::vector<T>& p) {
  return oracle::entropy(oracle::Row(p.begin(), p.end()));
}

// Scores of every kind that is known to break an entropy normalisation.
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
    case 4: {  // masked, by -inf or any distance below
      const T mask = size % 2 == 0 ? -kInfinity<T> : -static_cast<T>(std::pow(10, size % 38));
      for (T& score : x) score = random() % 3 == 0 ? static_cast<T>(normal(random)) : mask;
      x[random() % n] = 1;
      break;
    }
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

    // J 1 = 0 and J x = 0, and so for g, because J is symmetric.
    std::normal_distribution<double> normal;
    for (T& entry : g) entry = static_cast<T>(normal(random));
    apply_vjp(op, view(x), view(p), view(g), MatrixView<T>(dx.data(), 1, n));
    double gamma, reached;
    GammaStatus status;
    gamma_for_entropy({.entropy = op.entropy, .perplexity = op.perplexity}, view(x), {&gamma, 1}, {&reached, 1}, {&status, 1});
    ASSERT_LE(std::abs(reached - goal), 1e-12 * std::max(1.0, goal)) << "row " << row << " n " << n << " target " << target;
    if (status == GammaStatus::ok && gamma > 0 && gamma < 1e300) {
      ASSERT_NEAR(entropy_at(gamma, x), reached, 1e-12 * std::max(1.0, goal))
          << "row " << row << " n " << n << " target " << target;
    }
    if (status == GammaStatus::ok && gamma == kInfinity<double>) continue;  // beyond float64
    if (status != GammaStatus::ok || gamma == 0) {
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
  check_generated_rows<float>(1, 20000 / support::kShare);
  check_generated_rows<double>(2, 20000 / support::kShare);
}

TEST(EntropyNormalize, FewRowsOnEveryTarget) {
  support::for_each_target([](const std::string&) {
    check_generated_rows<float>(3, 300);
    check_generated_rows<double>(4, 300);
  });
}

// Rows that are searched together give the same results as alone, whatever the other rows are.
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

// Neighbours are so near that p does not show which is larger.
TEST(EntropyNormalize, GradientsOfNeighboursAreNumbers) {
  std::vector<double> x(12, -0.13465537021639334);
  for (std::size_t i = 1; i < x.size(); ++i) x[i] = i % 3 == 0 ? std::nextafter(x[i - 1], -1) : x[i - 1];
  const double most = std::log(12.0);
  std::vector<double> p(12), dx(12), slope(1);
  const MatrixView<double> xs(x.data(), 1, 12), ps(p.data(), 1, 12), out(dx.data(), 1, 12);
  for (const double target : {most, std::nextafter(most, 0), most - 1e-15, most - 1e-13}) {
    const std::vector<double> targets = {target};
    const Map maps[] = {EntropyNormalize{.entropy = target}, EntropyClip{.max_entropy = target}};
    for (const Map& map : maps) {
      const bool clips = std::holds_alternative<EntropyClip>(map);
      const std::string_view parameter = clips ? "max_entropy" : "entropy";
      apply<double>(map, xs, ps);
      const std::vector<PerRow> given = {{parameter, targets}};
      const std::vector<ParamGradient> asked = {{parameter, slope}};
      apply_vjp<double>(map, xs, ps, xs, out, given, asked);
      for (const double entry : dx) EXPECT_TRUE(std::isfinite(entry)) << parameter << " " << most - target;
      EXPECT_FALSE(std::isnan(slope[0])) << parameter << " " << most - target;
    }
  }
}

TEST(EntropyNormalize, GradientsOfAnotherRowsResultAreNaN) {
  const std::vector<double> x = {1, -kInfinity<double>, 0}, p = {0.5, 0.25, 0.25}, g = {1, 2, 4};
  std::vector<double> dx(3), slope(1);
  const std::vector<ParamGradient> asked = {{"entropy", slope}};
  apply_vjp<double>(EntropyNormalize{.entropy = 0.5}, {x.data(), 1, 3}, {p.data(), 1, 3}, {g.data(), 1, 3}, {dx.data(), 1, 3},
                    {}, asked);
  for (const double d : dx) EXPECT_TRUE(std::isnan(d)) << d;
  EXPECT_TRUE(std::isnan(slope[0]));
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
    gamma_for_entropy(options, MatrixView<const T>(x.data(), gamma.size(), cols), gamma, entropy, status);
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
          EXPECT_EQ(got.status[0], GammaStatus::ok);
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
  check(0.5, {clamped_low, constant, constant, invalid, invalid}, inf, std::log(2));
  check(1.2, {clamped_high, constant, constant, invalid, invalid}, 0, std::log(3));
  check(std::log(3), {ok, constant, constant, invalid, invalid}, 0, std::log(3));
  check(std::log(2), {ok, constant, constant, invalid, invalid}, inf, std::log(2));
  EXPECT_EQ(Gammas<float>({1, 1, 0}, 3, {.perplexity = 3}).status[0], ok);
}

// gamma is an exponent of the distribution, also if its entries differ only in the last digits.
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
          EXPECT_EQ(got.status[0], GammaStatus::ok);
          EXPECT_NEAR(got.entropy[0], target, 1e-12 * std::max(1.0, target));
          EXPECT_NEAR(static_cast<double>(got.gamma[0] / want.gamma), 1, 1e-11) << n << " " << spread;
        }
      }
      const T nan = std::numeric_limits<T>::quiet_NaN();
      const std::vector<T> bad = {T(0.5), T(-0.1), T(1), nan, T(1), kInfinity<T>, 0, 0, T(0.5), T(0.5), T(0.7), 0};
      using enum GammaStatus;
      const Gammas<T> got(bad, 2, {.entropy = 0.1, .input = Input::probs});
      EXPECT_EQ(got.status, (std::vector<GammaStatus>{invalid, invalid, invalid, invalid, constant, constant}));
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
  EXPECT_EQ(low.status[0], GammaStatus::clamped_low);
  EXPECT_NEAR(low.gamma[0], gamma / 2, 1e-15 * gamma);
  EXPECT_GT(low.entropy[0], 3.01);
  EXPECT_EQ(high.status[0], GammaStatus::clamped_high);
  EXPECT_NEAR(high.gamma[0], 2 * gamma, 1e-15 * gamma);
  EXPECT_LT(high.entropy[0], 2.99);
  EXPECT_EQ(Gammas<double>(x, 100, {.entropy = 0, .max_gamma = 8}).gamma[0], 8);
  EXPECT_EQ(Gammas<double>(x, 100, {.entropy = 9, .min_gamma = 0.25}).gamma[0], 0.25);
  EXPECT_NEAR(Gammas<double>(x, 100, {.entropy = 3, .max_iterations = 1}).entropy[0], 3, 0.5);
}

// Scores without mass do not lead the search astray: it needs as few evaluations as if they were -inf.
TEST(GammaForEntropy, MaskedScores) {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    for (const double mask : {-1e6, -1e9, -1e30, static_cast<double>(std::numeric_limits<T>::lowest())}) {
      std::vector<T> x = support::normal_row<T>(3000, 1, 0, 6), absent = x;
      for (std::size_t i = 0; i < 3000; i += 3) x[i] = static_cast<T>(mask), absent[i] = -kInfinity<T>;
      x[999] = absent[999] = -100;
      x[300] = absent[300] = -kInfinity<T>;
      for (const double entropy : {0.5, 3.0, 7.5}) {
        const Gammas<T> with(x, 3000, {.entropy = entropy, .max_iterations = 6}), without(absent, 3000, {.entropy = entropy});
        EXPECT_NEAR(with.gamma[0] / without.gamma[0], 1, 1e-9) << mask << " " << entropy;
        EXPECT_NEAR(with.entropy[0], entropy, 1e-12 * std::max(1.0, entropy));
      }
    }
  };
  check(float{});
  check(double{});
}

// Where gamma is limited, or 1 is tried first, scores far below the others may have mass.
TEST(EntropyControl, ScoresFarBelowTheOthers) {
  std::mt19937 random(7);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  int limited = 0, inside = 0, normalised = 0;
  for (int row = 0; row < 3000; ++row) {
    const std::size_t n = 4 + random() % 60, near = 2 + random() % (n - 3);
    const double spread = std::pow(10, uniform(-12, 2)), distance = std::pow(10, uniform(-8, 12));
    std::vector<double> x(n), p(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = (i < near ? 0 : -distance) - spread * uniform(0, 1);
    const double low = std::log(static_cast<double>(near)) * uniform(0, 1), high = low + uniform(0, 2);

    GammaForEntropy op{.entropy = low, .min_gamma = std::pow(10, uniform(-14, 4))};
    op.max_gamma = op.min_gamma * std::pow(10, uniform(0, 9));
    const Gammas<double> gamma(x, n, op);
    ASSERT_NEAR(gamma.entropy[0], entropy_at(gamma.gamma[0], x), 1e-12 * std::max(1.0, gamma.entropy[0])) << row;
    if (gamma.status[0] == GammaStatus::ok) {
      ASSERT_NEAR(gamma.entropy[0], low, 1e-12 * std::max(1.0, low)) << row;
    } else {
      ++limited;
      ASSERT_EQ(gamma.status[0] == GammaStatus::clamped_low, gamma.entropy[0] > low) << row;
    }

    apply(EntropyClip{.min_entropy = low, .max_entropy = high}, MatrixView<const double>(x.data(), 1, n),
          MatrixView<double>(p.data(), 1, n));
    const double as_it_is = entropy_at(1, x), most = std::log(static_cast<double>(n));
    const bool is_inside = low <= as_it_is && as_it_is <= high;
    ++(is_inside ? inside : normalised);
    const double expected = std::min(std::clamp(as_it_is, low, high), most);
    ASSERT_NEAR(static_cast<double>(entropy_of(p)), expected, 1e-12 * std::max(1.0, expected)) << row;
  }
  EXPECT_GT(std::min({limited, inside, normalised}), 100) << limited << " " << inside << " " << normalised;
}

// Limits times the scale of these scores overflow or underflow.
TEST(GammaForEntropy, LimitsOfExtremeScores) {
  const double most = std::numeric_limits<double>::max();
  for (const std::vector<double>& x : {std::vector<double>{-most, 6e307, most}, std::vector<double>{2e-323, 4e-323, -4e-323}}) {
    for (const std::int64_t evaluations : {1, 5, 100}) {
      double gamma, entropy;
      GammaStatus status;
      gamma_for_entropy({.entropy = 0.33, .min_gamma = 1.75, .max_gamma = 4.3, .max_iterations = evaluations},
                        MatrixView<const double>(x.data(), 1, 3), {&gamma, 1}, {&entropy, 1}, {&status, 1});
      EXPECT_GE(gamma, 1.75);
      EXPECT_LE(gamma, 4.3);
      EXPECT_NEAR(entropy, x[0] < -1 ? 0 : std::log(3.0), 1e-12);
    }
  }
}

TEST(EntropyControl, RefusesBadArguments) {
  std::vector<double> x(8, 1.0), p(8, 5.0), gamma(2), entropy(2);
  std::vector<GammaStatus> status(2);
  const MatrixView<const double> view(x.data(), 2, 4);
  const MatrixView<double> out(p.data(), 2, 4);
  expect_error("entropy_normalize: exactly one of entropy and perplexity must be given",
               [&] { apply(EntropyNormalize{}, view, out); });
  expect_error("entropy_normalize: exactly one of entropy and perplexity must be given, got entropy 1, perplexity 2",
               [&] { apply(EntropyNormalize{.entropy = 1, .perplexity = 2}, view, out); });
  expect_error("entropy_normalize: entropy must be at least 0 and finite, got -1",
               [&] { apply(EntropyNormalize{.entropy = -1}, view, out); });
  expect_error("entropy_normalize: perplexity must be at least 1 and finite, got 0.5",
               [&] { apply(EntropyNormalize{.perplexity = 0.5}, view, out); });
  expect_error("entropy_clip: min_entropy must be at most max_entropy, got min_entropy 2, max_entropy 1",
               [&] { apply(EntropyClip{.min_entropy = 2, .max_entropy = 1}, view, out); });
  const std::vector<double> targets = {1, -2};
  const PerRow per_row = {"entropy", targets};
  expect_error("entropy_normalize: entropy of row 1 must be at least 0 and finite, got -2", [&] {
    apply(EntropyNormalize{}, view, out, {&per_row, 1});
  });
  expect_error("gamma_for_entropy: gamma must have one entry for each of 2 rows, got 1",
               [&] { gamma_for_entropy({.entropy = 1}, view, std::span(gamma).first(1), entropy, status); });
  expect_error("gamma_for_entropy: min_gamma must be at most max_gamma, got min_gamma 2, max_gamma 1",
               [&] { gamma_for_entropy({.entropy = 1, .min_gamma = 2, .max_gamma = 1}, view, gamma, entropy, status); });
  expect_error("power_transform: gamma must be at least 0 (inf is allowed), got -1",
               [&] { power_transform({.gamma = -1}, view, out); });
  EXPECT_EQ(p, std::vector<double>(8, 5.0));
}

TEST(PowerTransform, IsThePower) {
  support::for_each_target([](const std::string&) {
    const auto check = [&]<class T>(T) {
      const std::vector<T> p = {T(0.5), T(0), T(0.25), T(0.25)};
      std::vector<T> q(4);
      const auto run = [&](double gamma) {
        power_transform({.gamma = gamma}, MatrixView<const T>(p.data(), 1, 4), MatrixView<T>(q.data(), 1, 4));
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
        power_transform({.gamma = 2}, MatrixView<const T>(row.data(), 1, 2), MatrixView<T>(out.data(), 1, 2));
        EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1])) << bad;
      }
      std::vector<T> zeros(3);
      power_transform({}, MatrixView<const T>(zeros.data(), 1, 3), MatrixView<T>(zeros.data(), 1, 3));
      EXPECT_TRUE(std::isnan(zeros[0]));
    };
    check(float{});
    check(double{});
  });
}

// Tests differences that the logarithm of a rounded quotient, or of p itself, would lose.
TEST(PowerTransform, NearlyUniform) {
  support::for_each_target([](const std::string&) {
    for (const double scale : {1.0, 0x1p-900, 0x1p900, 0.7}) {
      const std::vector<double> p = {scale, scale * (1 - 0x1p-50), scale * (1 - 0x1p-51), scale};
      std::vector<double> q(4);
      power_transform({.gamma = 0x1p50}, MatrixView<const double>(p.data(), 1, 4), MatrixView<double>(q.data(), 1, 4));
      for (std::size_t i = 0; i < 3; ++i) {
        const long double difference = static_cast<long double>(p[i]) - scale;
        EXPECT_NEAR(q[i] / q[3], static_cast<double>(std::exp(0x1p50L * difference / scale)), 1e-14);
      }
    }
  });
}

TEST(PowerTransform, KeepsTheOrder) {
  support::for_each_target([](const std::string&) {
    std::mt19937 random(11);
    const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
    for (int trial = 0; trial < 2000; ++trial) {
      const double top = std::pow(10, uniform(-300, 300));
      // Neighbours around the places where another formula takes over, and anything.
      const double start = trial % 3 == 0 ? top / 2 : trial % 3 == 1 ? top * 0x1p-1000 : top * uniform(0, 1);
      std::vector<double> p(40, start), q(40);
      for (std::size_t i = 1; i < 39; ++i) p[i] = std::nextafter(p[i - 1], top);
      for (std::size_t i = 0; i < 10; ++i) p[i] = start - static_cast<double>(10 - i) * (p[20] - p[19]);
      p[39] = std::max(top, p[38]);
      if (p[0] < 0) continue;
      power_transform({.gamma = std::pow(10, uniform(-3, 3))}, MatrixView<const double>(p.data(), 1, 40),
                      MatrixView<double>(q.data(), 1, 40));
      for (std::size_t i = 0; i + 1 < 40; ++i) ASSERT_TRUE(p[i] == p[i + 1] ? q[i] == q[i + 1] : q[i] <= q[i + 1]) << trial;
    }
  });
}

TEST(PowerTransform, GammaForEachRow) {
  const std::vector<float> p = {1, 2, 3, 1, 2, 3};
  const std::vector<double> gammas = {0.5, 3};
  std::vector<float> q(6), one(3);
  const PerRow per_row = {"gamma", gammas};
  power_transform({}, MatrixView<const float>(p.data(), 2, 3), MatrixView<float>(q.data(), 2, 3), {&per_row, 1});
  for (std::size_t r = 0; r < 2; ++r) {
    power_transform({.gamma = gammas[r]}, MatrixView<const float>(p.data(), 1, 3), MatrixView<float>(one.data(), 1, 3));
    EXPECT_TRUE(std::equal(one.begin(), one.end(), q.begin() + static_cast<std::ptrdiff_t>(r) * 3));
  }
}

long double entropy_of(const std::vector<double>& q, const std::vector<double>& weights) {
  long double sum = 0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    if (q[i] > 0) sum -= static_cast<long double>(weights[i]) * q[i] * std::log(static_cast<long double>(q[i]));
  }
  return sum;
}

struct Density {
  std::vector<double> q;
  Normalized found;

  Density(const std::vector<double>& p, const std::vector<double>& weights, double target) : q(p.size()) {
    normalize_density({.entropy = target}, MatrixView<const double>(p.data(), 1, p.size()),
                      MatrixView<const double>(weights.data(), 1, weights.size()), MatrixView<double>(q.data(), 1, q.size()),
                      {&found, 1});
  }
};

// A target beyond an end is met there within 1e-12 max(1, |H|), whatever the logarithm of the weights is.
TEST(NormalizeDensity, TargetsNearTheEndsOfTheReach) {
  std::vector<double> p(1000), w(1000, 0x1p-10);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = 1 + std::sin(static_cast<double>(i));
  const double most = std::log(1000 * 0x1p-10);
  EXPECT_EQ(Density(p, w, most + 5e-13).found.status, GammaStatus::ok);
  EXPECT_EQ(Density(p, w, most + 2e-12).found.status, GammaStatus::clamped_high);
  std::fill(w.begin(), w.end(), 0x1p10);
  const double large = std::log(1000 * 0x1p10);
  EXPECT_EQ(Density(p, w, large + 5e-12).found.status, GammaStatus::ok);
  EXPECT_EQ(Density(p, w, large + 2e-11).found.status, GammaStatus::clamped_high);
}

// Densities and weights of every kind, targets near the ends and far from them.
TEST(NormalizeDensity, ReachesTheEntropy) {
  std::mt19937 random(7);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  std::normal_distribution<double> normal;
  double worst = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    const std::size_t n = 1 + random() % 80;
    std::vector<double> p(n), w(n);
    const int kind = static_cast<int>(random() % 7), weights = static_cast<int>(random() % 4);
    const double scale = std::pow(10, uniform(-6, 2));
    for (std::size_t i = 0; i < n; ++i) {
      switch (kind) {
        case 0:
          p[i] = std::exp(scale * normal(random));
          break;
        case 1:  // nearly uniform, to the last digits
          p[i] = 1 + std::pow(10, uniform(-16, -6));
          break;
        case 2:  // one spike
          p[i] = i == n / 2 ? 1e6 : uniform(0, 1e-6);
          break;
        case 3:  // ties at the maximum, zeros
          p[i] = static_cast<double>(random() % 4);
          break;
        case 4:  // magnitudes of every size
          p[i] = std::pow(10, uniform(-300, 300));
          break;
        case 5:  // subnormal
          p[i] = std::numeric_limits<double>::denorm_min() * static_cast<double>(random() % 1000);
          break;
        default:  // a normal density
          p[i] = std::exp(-0.5 * (static_cast<double>(i) - 30) * (static_cast<double>(i) - 30) / (1 + scale));
      }
      w[i] = weights == 0   ? 1
             : weights == 1 ? uniform(1e-3, 1)
                            : std::pow(10, weights == 2 ? uniform(-8, 8) : uniform(-60, 60));
    }
    p[random() % n] = std::max(*std::max_element(p.begin(), p.end()), std::numeric_limits<double>::denorm_min());
    const double top = *std::max_element(p.begin(), p.end());
    double ties = 0, sum = 0;
    bool equal = true;
    for (std::size_t i = 0; i < n; ++i) {
      ties += p[i] == top ? w[i] : 0, sum += p[i] > 0 ? w[i] : 0;
      equal &= p[i] == top || p[i] == 0;
    }
    const double low = std::log(ties), high = std::log(sum), small = std::pow(10, uniform(-13, -1));
    const double share = trial % 3 == 0 ? small : trial % 3 == 1 ? 1 - small : uniform(-0.2, 1.2);
    const double target = low + share * (high - low), goal = std::clamp(target, low, high);
    const Density got(p, w, target);
    const auto describe = [&] { return ::testing::Message() << "trial " << trial << " kind " << kind << " n " << n; };
    const double size = std::max({1.0, std::abs(target), std::abs(low), std::abs(high)});
    ASSERT_NEAR(got.found.least, low, 1e-13 * size) << describe();
    ASSERT_NEAR(got.found.most, high, 1e-13 * size) << describe();
    long double mass = 0;
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(got.q[i] == 0 && p[i] > 0 && got.found.gamma < 0.1, false) << describe();
      ASSERT_TRUE(p[i] > 0 || got.q[i] == 0) << describe();
      mass += static_cast<long double>(w[i]) * got.q[i];
    }
    ASSERT_NEAR(static_cast<double>(mass), 1, 1e-14 * std::max(1.0, std::log2(n))) << describe();
    if (equal) {
      ASSERT_EQ(got.found.status, GammaStatus::constant) << describe();
      ASSERT_EQ(got.found.gamma, 1) << describe();
      continue;
    }
    const double error = static_cast<double>(std::abs(entropy_of(got.q, w) - goal)) / size;
    worst = std::max(worst, error);
    ASSERT_LE(error, 1e-12) << describe() << " target " << target << " of " << low << " to " << high;
    ASSERT_NEAR(got.found.entropy, goal, 1e-12 * size) << describe();
    const auto expected = target > high + 1e-11 * size  ? GammaStatus::clamped_high
                          : target < low - 1e-11 * size ? GammaStatus::clamped_low
                                                        : GammaStatus::ok;
    if (std::min(std::abs(target - low), std::abs(target - high)) > 1e-11 * size) {
      ASSERT_EQ(got.found.status, expected) << describe();
    }
  }
  std::printf("densities: largest error of the entropy %.2g\n", worst);
}

// gamma against closed forms, by quadrature fine enough for 1e-10.
TEST(NormalizeDensity, ClosedForms) {
  const std::size_t n = 4001;
  const double step = 0.03;
  std::vector<double> t(n), w(n, step), p(n);
  for (std::size_t i = 0; i < n; ++i) t[i] = step * (static_cast<double>(i) - 2000);
  const auto normal_entropy = [](double s) { return std::log(s) + 0.5 * std::log(2 * 3.141592653589793) + 0.5; };
  for (const double s : {1.0, 3.0}) {
    for (const double wanted : {0.15, 0.5, 4.0}) {
      for (std::size_t i = 0; i < n; ++i) p[i] = 17 * std::exp(-0.5 * t[i] * t[i] / (s * s));  // normalised by itself
      const Density got(p, w, normal_entropy(wanted));
      EXPECT_EQ(got.found.status, GammaStatus::ok);
      EXPECT_NEAR(got.found.gamma * wanted * wanted / (s * s), 1, 1e-10) << s << " " << wanted;
      EXPECT_NEAR(got.q[2000] * wanted * std::sqrt(2 * 3.141592653589793), 1, 1e-10);
    }
  }
  // The exponential density: entropy 1 - log rate, and its power is one of rate gamma. Simpson's rule.
  std::vector<double> e(n), simpson(n);
  const double h = 0.005;
  for (std::size_t i = 0; i < n; ++i) {
    e[i] = std::exp(-2 * h * static_cast<double>(i));
    simpson[i] = h / 3 * (i == 0 || i == n - 1 ? 1 : i % 2 == 1 ? 4 : 2);
  }
  EXPECT_NEAR(Density(e, simpson, 1 - std::log(5.0)).found.gamma, 2.5, 1e-6);
  // A mixture, whose power has no closed form: the target is the entropy of a power by finer quadrature in long double.
  const double gamma = 0.6;
  const auto mixture = [](long double x) {
    return 0.3L * std::exp(-0.5L * (x + 3) * (x + 3)) + 0.7L * std::exp(-0.5L * (x - 2) * (x - 2) / 4) / 2;
  };
  long double sum = 0, mean = 0;
  for (int i = -24000; i <= 24000; ++i) {
    const long double x = 0.0025L * i, power = std::pow(mixture(x), static_cast<long double>(gamma));
    sum += 0.0025L * power;
    mean += 0.0025L * power * gamma * std::log(mixture(x));
  }
  for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<double>(mixture(t[i]));
  const Density got(p, w, static_cast<double>(std::log(sum) - mean / sum));
  EXPECT_NEAR(got.found.gamma, gamma, 1e-11);
}

TEST(NormalizeDensity, RowsOfBothTypesOnEveryTarget) {
  std::vector<double> want;
  support::for_each_target([&](const std::string& target) {
    const std::vector<double> x = support::normal_row<double>(3 * 37, 1, 0, 8);
    std::vector<double> p(x.size()), w(37), q(x.size(), -1);
    for (std::size_t i = 0; i < x.size(); ++i) p[i] = std::exp(x[i]);
    for (std::size_t i = 0; i < 37; ++i) w[i] = 0.1 + 0.01 * static_cast<double>(i);
    const std::vector<double> targets = {0.5, -0.5, 1.5};
    std::vector<Normalized> found(3);
    const PerRow per_row = {"entropy", targets};
    // 35 of 37 columns: the numbers beside them do not change.
    normalize_density({}, MatrixView<const double>(p.data(), 3, 35, 37), MatrixView<const double>(w.data(), 1, 35),
                      MatrixView<double>(q.data(), 3, 35, 37), found, {&per_row, 1});
    std::vector<float> p32(p.begin(), p.end()), q32 = p32;
    normalize_density({}, MatrixView<const float>(q32.data(), 3, 35, 37), MatrixView<const double>(w.data(), 1, 35),
                      MatrixView<float>(q32.data(), 3, 35, 37), found, {&per_row, 1});  // in place
    for (std::size_t r = 0; r < 3; ++r) {
      const std::vector<double> row(q.begin() + r * 37, q.begin() + r * 37 + 35);
      EXPECT_NEAR(static_cast<double>(entropy_of(row, w)), targets[r], 1e-12) << target;
      EXPECT_EQ(q[r * 37 + 35], -1);
      EXPECT_EQ(q32[r * 37 + 36], p32[r * 37 + 36]);
      for (std::size_t i = 0; i < 35; ++i) EXPECT_NEAR(q32[r * 37 + i] / q[r * 37 + i], 1, 1e-6);
    }
    const std::vector<std::string> same_bits = support::fma_targets();
    if (std::find(same_bits.begin(), same_bits.end(), target) != same_bits.end()) {
      if (want.empty()) want = q;
      EXPECT_EQ(q, want) << target;
    }
  });
}

TEST(NormalizeDensity, NodesOfNoWeightAreLeftOut) {
  const Density got({1, 9, 2, 3, 0}, {1, 0, 0.5, 2, 1}, 1.1), without({1, 2, 3, 0}, {1, 0.5, 2, 1}, 1.1);
  EXPECT_EQ(got.q[1], 0);
  EXPECT_NEAR(got.q[3], without.q[2], 1e-12);
  EXPECT_NEAR(got.found.gamma, without.found.gamma, 1e-11);
  EXPECT_NEAR(got.found.most, without.found.most, 1e-15);
}

struct Joint {
  std::vector<double> q;
  Normalized found;

  Joint(const std::vector<double>& p, std::size_t rows, const NormalizeJoint& options) : q(p.size()) {
    const std::size_t cols = p.size() / rows;
    found = normalize_joint(options, MatrixView<const double>(p.data(), rows, cols), MatrixView<double>(q.data(), rows, cols));
  }
  long double marginal(std::size_t rows) const {
    std::vector<double> sums(rows);
    for (std::size_t i = 0; i < q.size(); ++i) sums[i / (q.size() / rows)] += q[i];
    return entropy_of(sums);
  }
};

TEST(NormalizeJoint, ReachesTheEntropy) {
  std::mt19937 random(9);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  double worst = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const std::size_t rows = 1 + random() % 9, cols = 1 + random() % 9;
    std::vector<double> p(rows * cols);
    const int kind = static_cast<int>(random() % 6);
    const double scale = std::pow(10, uniform(-12, 2.5));
    for (double& entry : p) {
      entry = kind == 0   ? uniform(0, 1)
              : kind == 1 ? std::exp(scale * uniform(-1, 1))
              : kind == 2 ? static_cast<double>(random() % 3)
              : kind == 3 ? std::pow(10, uniform(-300, 300))
              : kind == 4 ? std::numeric_limits<double>::denorm_min() * static_cast<double>(random() % 9)
                          : std::exp(static_cast<double>(&entry - p.data() < 4 ? 1e-9 : 300) * uniform(-1, 1));
    }
    if (kind == 2 && rows > 1) std::fill(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(cols), 0.0);
    p[p.size() - 1] = std::max(p[p.size() - 1], std::numeric_limits<double>::denorm_min());
    for (int which = 0; which < 3; ++which) {
      const auto target = [&](double entropy) {
        return which == 0   ? NormalizeJoint{.joint = entropy}
               : which == 1 ? NormalizeJoint{.marginal = entropy}
                            : NormalizeJoint{.conditional = entropy};
      };
      const Normalized reach = Joint(p, rows, target(1)).found;
      const double share = trial % 3 == 0 ? std::pow(10, uniform(-13, 0)) : uniform(-0.1, 1.1);
      const double wanted = std::max(0.0, reach.least + share * (reach.most - reach.least));
      const double goal = std::clamp(wanted, reach.least, reach.most);
      const Joint got(p, rows, target(wanted));
      long double mass = 0;
      for (std::size_t i = 0; i < p.size(); ++i) {
        ASSERT_TRUE(got.q[i] >= 0 && (p[i] > 0 || got.q[i] == 0));
        mass += got.q[i];
      }
      ASSERT_NEAR(static_cast<double>(mass), 1, 1e-14);
      const long double of_all = entropy_of(got.q), of_rows = got.marginal(rows);
      const double error = std::abs(static_cast<double>((which == 0   ? of_all
                                                         : which == 1 ? of_rows
                                                                      : of_all - of_rows) -
                                                        goal));
      worst = std::max(worst, error / std::max(1.0, goal));
      ASSERT_LE(error, 1e-12 * std::max(1.0, goal)) << "trial " << trial << " kind " << kind << " which " << which;
      ASSERT_EQ(got.found.least == got.found.most, got.found.status == GammaStatus::constant) << trial;
    }
  }
  std::printf("tables: largest error of the entropy %.2g\n", worst);
}

// H(Y|X) by one gamma: the target is its value at a given gamma.
TEST(NormalizeJoint, OneGammaForAllRows) {
  support::for_each_target([](const std::string&) {
    const std::vector<double> p = {0.4, 0.1, 0, 0.02, 0.03, 0.05, 0, 0, 0, 0.1, 0.1, 0.2};
    for (const double gamma : {0.01, 0.5, 1.0, 3.0, 50.0}) {
      long double target = 0;
      std::vector<long double> want(12);
      for (std::size_t x = 0; x < 4; ++x) {
        long double mass = 0, sum = 0;
        for (std::size_t y = 0; y < 3; ++y) mass += p[3 * x + y];
        if (mass == 0) continue;
        for (std::size_t y = 0; y < 3; ++y)
          sum += want[3 * x + y] = p[3 * x + y] == 0 ? 0 : std::pow(p[3 * x + y] / mass, gamma);
        for (std::size_t y = 0; y < 3; ++y) {
          long double& entry = want[3 * x + y];
          entry /= sum;
          if (entry > 0) target -= mass * entry * std::log(entry);
          entry *= mass;
        }
      }
      const Joint got(p, 4, {.conditional = static_cast<double>(target)});
      EXPECT_NEAR(got.found.gamma / gamma, 1, gamma < 10 ? 1e-11 : 1e-5);
      for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(got.q[i], static_cast<double>(want[i]), 1e-11);
    }
    EXPECT_NEAR(Joint(p, 4, {.conditional = 0.1}).found.least, 0, 1e-15);
    const std::vector<double> ties = {2, 2, 1, 3, 1, 1};  // p(x) = 1/2, 1/2
    const Normalized low = Joint(ties, 2, {.conditional = 0.1}).found;
    EXPECT_EQ(low.status, GammaStatus::clamped_low);
    EXPECT_NEAR(low.least, 0.5 * std::log(2), 1e-15);
    EXPECT_NEAR(low.most, std::log(3), 1e-15);
    EXPECT_EQ(low.gamma, kInfinity<double>);
    EXPECT_EQ(Joint(ties, 2, {.conditional = 2}).found.status, GammaStatus::clamped_high);
    EXPECT_EQ(Joint(ties, 2, {.marginal = 0.2}).found.status, GammaStatus::constant);
    EXPECT_EQ(Joint({1, -1, 2, 2}, 2, {.joint = 1}).found.status, GammaStatus::invalid);
    EXPECT_TRUE(std::isnan(Joint({1, -1, 2, 2}, 2, {.joint = 1}).q[3]));
    EXPECT_TRUE(std::isnan(Joint({0, 0, 0, 0}, 2, {.marginal = 1}).q[0]));
  });
}

TEST(NormalizeJoint, MassesFarApart) {
  constexpr double kMost = std::numeric_limits<double>::max();
  for (const NormalizeJoint& to : {NormalizeJoint{.joint = 1.2}, {.marginal = 0.65}, {.conditional = 0.6}}) {
    // Sums that overflow; only ratios matter.
    const Joint large({kMost, 0.4 * kMost, 0.5 * kMost, 0.1 * kMost}, 2, to), plain({1, 0.4, 0.5, 0.1}, 2, to);
    const Joint tiny({1000 * 0x1p-1074, 400 * 0x1p-1074, 500 * 0x1p-1074, 100 * 0x1p-1074}, 2, to);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(large.q[i], plain.q[i], 1e-14);
      EXPECT_NEAR(tiny.q[i], plain.q[i], 1e-14);
    }
  }
  // A row whose share is below the least number is empty.
  EXPECT_EQ(Joint({1e200, 3e200, 1e-300, 2e-300}, 2, {.conditional = 0.6}).q[3], 0);
  EXPECT_NEAR(Joint({1e200, 3e200, 1e-300, 2e-300}, 2, {.conditional = 0.6}).found.entropy, 0.6, 1e-14);
}

TEST(MeanFieldEntropy, IsBelowByLessThanTheBound) {
  support::for_each_target([](const std::string&) {
    std::mt19937 random(10);
    for (int trial = 0; trial < 3000; ++trial) {
      const std::vector<double> x = generated_row<double>(random);
      const double gamma = std::pow(10, std::uniform_real_distribution<double>(-8, 1)(random));
      double estimate;
      mean_field_entropy({.gamma = gamma}, MatrixView<const double>(x.data(), 1, x.size()), {&estimate, 1});
      const long double max = *std::max_element(x.begin(), x.end());
      long double least = max, sum = 0, count = 0, normalizer = 0, first = 0;
      for (const double score : x) {
        if (!std::isfinite(score)) continue;
        least = std::min(least, static_cast<long double>(score)), sum += max - score, ++count;
        const long double a = gamma * (score - max), e = std::exp(a);
        normalizer += e, first += e * a;
      }
      const long double distance = gamma * (sum / count), entropy = std::log(normalizer) - first / normalizer;
      const long double gap = entropy - estimate, range = gamma * (max - least), rounding = 1e-13L * (10 + distance);
      ASSERT_GE(gap, -rounding) << trial;
      ASSERT_LE(gap, range * range / 8 + std::min(distance, std::log(count)) + rounding) << trial;
      ASSERT_NEAR(static_cast<double>(std::log(count) - distance), estimate, static_cast<double>(rounding)) << trial;
    }
  });
}

TEST(MeanFieldEntropy, SpecialRows) {
  const double inf = kInfinity<double>, nan = std::nan("");
  const std::vector<double> x = {2,   2, -inf, 2, 0,     nan,    1,     2,     -inf, -inf, -inf, -inf,
                                 inf, 0, inf,  1, 1e308, -1e308, 1e308, 1e308, 7,    -inf, -inf, -inf};
  std::vector<double> estimate(6);
  mean_field_entropy({.gamma = 1e-308}, MatrixView<const double>(x.data(), 6, 4), estimate);
  EXPECT_NEAR(estimate[0], std::log(3), 1e-15);
  EXPECT_TRUE(std::isnan(estimate[1]) && std::isnan(estimate[2]));
  EXPECT_NEAR(estimate[3], std::log(2), 1e-15);
  EXPECT_NEAR(estimate[4], std::log(4) - 0.5, 1e-15);
  EXPECT_EQ(estimate[5], 0);
}

TEST(EntropyControl, RefusesBadDensitiesAndTables) {
  std::vector<double> p(8, 1.0), q(8, 5.0), w(8, 1.0), estimate(2, 5.0);
  std::vector<Normalized> found(2, Normalized{5, 5, 5, 5, GammaStatus::ok});
  const MatrixView<const double> view(p.data(), 2, 4), weights(w.data(), 1, 4);
  const MatrixView<double> out(q.data(), 2, 4);
  const auto density = [&](double entropy) { normalize_density({.entropy = entropy}, view, weights, out, found); };
  expect_error("normalize_density: entropy must be finite, got nan", [&] { density(std::nan("")); });
  expect_error("normalize_density: weights must have the shape of p, or one row for all, 1 x 4, got 1 x 3", [&] {
    normalize_density({.entropy = 1}, view, {w.data(), 1, 3}, out, found);
  });
  expect_error("normalize_density: q must have the shape of p, 2 x 4, got 1 x 4",
               [&] { normalize_density({.entropy = 1}, view, weights, MatrixView<double>(q.data(), 1, 4), found); });
  expect_error("normalize_density: result must have one entry for each of 2 rows, got 1",
               [&] { normalize_density({.entropy = 1}, view, weights, out, std::span(found).first(1)); });
  expect_error("normalize_density: q must be p itself or share no memory with it, got views that overlap in part", [&] {
    normalize_density({.entropy = 1}, MatrixView<const double>(p.data(), 2, 3, 4), {w.data(), 1, 3},
                      MatrixView<double>(p.data() + 1, 2, 3, 4), found);
  });
  expect_error("normalize_density: q must share no memory with weights, got views that overlap",
               [&] { normalize_density({.entropy = 1}, view, weights, MatrixView<double>(w.data(), 2, 4), found); });
  const std::vector<double> targets = {1, std::nan("")};
  const PerRow per_row = {"entropy", targets};
  expect_error("normalize_density: entropy of row 1 must be finite, got nan", [&] {
    normalize_density({.entropy = 1}, view, weights, out, found, {&per_row, 1});
  });
  w[2] = -1;
  expect_error("normalize_density: weights must be at least 0 and finite, got -1 at entry 2", [&] { density(1); });
  w[2] = 1, w[5] = kInfinity<double>;
  expect_error("normalize_density: weights must be at least 0 and finite, got inf at entry 1 in row 1", [&] {
    normalize_density({.entropy = 1}, view, {w.data(), 2, 4}, out, found);
  });
  std::fill(w.begin(), w.end(), 0.0);
  expect_error("normalize_density: weights must not all be 0, got 0 everywhere", [&] { density(1); });

  expect_error("normalize_joint: exactly one of joint, marginal and conditional must be given, got joint 1, conditional 1",
               [&] { normalize_joint({.joint = 1, .conditional = 1}, view, out); });
  expect_error("normalize_joint: marginal must be at least 0 and finite, got -1",
               [&] { normalize_joint({.marginal = -1}, view, out); });
  expect_error("normalize_joint: table must have the shape of pxy, 2 x 4, got 4 x 2",
               [&] { normalize_joint({.joint = 1}, view, MatrixView<double>(q.data(), 4, 2)); });
  expect_error("mean_field_entropy: gamma must be at least 0 and finite, got -1",
               [&] { mean_field_entropy({.gamma = -1}, view, estimate); });
  expect_error("mean_field_entropy: estimate must have one entry for each of 2 rows, got 1",
               [&] { mean_field_entropy({}, view, std::span(estimate).first(1)); });
  EXPECT_EQ(q, std::vector<double>(8, 5.0));
  EXPECT_EQ(p, std::vector<double>(8, 1.0));
  EXPECT_EQ(estimate, std::vector<double>(2, 5.0));
  EXPECT_EQ(found[0].gamma, 5);
}

}  // namespace
}  // namespace isentropic

// log_softmax and logsumexp.

#include "tests/support/maps.h"

#include <cmath>
#include <cstring>

namespace isentropic {
namespace {

TEST(Logarithms, AgreeWithTheDefinition) {
  support::for_each_target([&](const std::string&) {
    const auto check = [&]<class T>(T) {
      for (const Case<T>& c : support::finite_cases<T>()) {
        for (const double temperature : {1.0, 0.3, 20.0}) {
          const oracle::Row x = wide(c.x);
          const std::size_t n = x.size();
          const long double max = *std::max_element(x.begin(), x.end());
          const MatrixView<const T> view(c.x.data(), 1, n);
          std::vector<T> y(n);
          log_softmax({.temperature = temperature}, view, MatrixView<T>(y.data(), 1, n));
          const oracle::Row want = oracle::log_softmax({.temperature = temperature}, x);
          for (std::size_t i = 0; i < n; ++i) {
            if ((max - x[i]) / temperature > std::numeric_limits<T>::max()) {
              ASSERT_EQ(y[i], -kInfinity<T>) << c.name;
            } else {
              const long double bound = (4 + 3 * (max - x[i]) / temperature + 2 * std::abs(want[i])) * kEpsilon<T>;
              ASSERT_NEAR(y[i], want[i], bound) << c.name << " entry " << i;
            }
          }
          T sum;
          logsumexp({.temperature = temperature}, view, MatrixView<T>(&sum, 1, 1));
          const long double want_sum = oracle::logsumexp({.temperature = temperature}, x);
          ASSERT_NEAR(sum, want_sum, 2 * kEpsilon<T> * std::abs(want_sum) + 8 * kEpsilon<T> * temperature) << c.name;
        }
      }
    };
    check(float{});
    check(double{});
  });
}

// A confident row: log p of the winner is -1e-10, not 0.
TEST(Logarithms, KeepSmallDigits) {
  std::vector<double> x(300, -60.0), y(300);
  x[200] = 0;
  const std::vector<std::string> exact = support::fma_targets();
  support::for_each_target([&](const std::string& target) {
    log_softmax(LogSoftmax{}, MatrixView<const double>(x.data(), 1, 300), MatrixView<double>(y.data(), 1, 300));
    // Without FMA the product of x and 1/log 2 is rounded: exp may have the error of softmax, (8 + 3 d) eps.
    const bool fma = std::find(exact.begin(), exact.end(), target) != exact.end();
    EXPECT_NEAR(y[200] / (299 * std::exp(-60.0)), -1, fma ? 1e-15 : (8 + 3 * 60) * 0x1p-53);
  });
}

TEST(Logarithms, Gradients) {
  support::for_each_target([&](const std::string&) {
    for (const double temperature : {1.0, 0.3}) {
      for (const std::size_t n : support::kLengths) {
        std::vector<double> x = support::normal_row<double>(n, 1, 0, 20), g = support::normal_row<double>(n, 1, 0, 21);
        if (n > 3) x[1] = -kInfinity<double>, g[1] = kNaN<double>;
        std::vector<double> y(n), dx(n);
        const auto view = [&](std::vector<double>& v) { return MatrixView<double>(v.data(), 1, n); };
        log_softmax({.temperature = temperature}, view(x), view(y));
        log_softmax_vjp({.temperature = temperature}, view(x), view(y), view(g), view(dx));
        double total = 0;
        for (std::size_t i = 0; i < n; ++i) total += x[i] == -kInfinity<double> ? 0 : g[i];
        for (std::size_t i = 0; i < n; ++i) {
          const double want = x[i] == -kInfinity<double> ? 0 : (g[i] - std::exp(y[i]) * total) / temperature;
          ASSERT_NEAR(dx[i], want, 1e-13 * (1 + std::abs(total))) << n;
        }
        double sum, weight = 2.5;
        logsumexp({.temperature = temperature}, view(x), MatrixView<double>(&sum, 1, 1));
        logsumexp_vjp({.temperature = temperature}, view(x), MatrixView<const double>(&sum, 1, 1),
                      MatrixView<const double>(&weight, 1, 1), view(dx));
        for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(dx[i], weight * std::exp(y[i]), 1e-14 * weight) << n;
      }
    }
  });
}

TEST(Logarithms, ExtremeTemperatures) {
  support::for_each_target([&](const std::string&) {
    const auto check = [&]<class T>(T) {
      const std::vector<T> x = {T(-7), T(3), T(3), T(-2)};
      const MatrixView<const T> view(x.data(), 1, x.size());
      for (const double temperature : {1e-300, 1e-39, 1e-31, 1e31, 1e37}) {
        const oracle::Row want = oracle::log_softmax({.temperature = temperature}, wide(x));
        std::vector<T> y(x.size());
        log_softmax({.temperature = temperature}, view, MatrixView<T>(y.data(), 1, x.size()));
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (std::abs(want[i]) < std::numeric_limits<T>::max()) {
            ASSERT_NEAR(y[i] / want[i], 1, 8 * kEpsilon<T>) << temperature;
          } else {
            ASSERT_LE(y[i], -std::numeric_limits<T>::max() / 8) << temperature;
          }
        }
        T sum;
        logsumexp({.temperature = temperature}, view, MatrixView<T>(&sum, 1, 1));
        ASSERT_NEAR(sum / oracle::logsumexp({.temperature = temperature}, wide(x)), 1, 8 * kEpsilon<T>) << temperature;
      }
    };
    check(float{});
    check(double{});
  });
}

// Differences that overflow to -inf are not scores of -inf.
TEST(Logarithms, GradientOfOverflow) {
  std::vector<float> x = {3e38f, -3e38f}, y(2), g = {0, 1e-3f}, dx(2);
  const auto view = [](std::vector<float>& v) { return MatrixView<float>(v.data(), 1, v.size()); };
  log_softmax(LogSoftmax{}, view(x), view(y));
  log_softmax_vjp(LogSoftmax{}, view(x), view(y), view(g), view(dx));
  EXPECT_EQ(dx, (std::vector<float>{-1e-3f, 1e-3f}));
}

TEST(Logarithms, Infinities) {
  constexpr float inf = kInfinity<float>;
  std::vector<float> x = {1, inf, -inf, inf}, y(4), dx(4), g = {1, 2, 3, 4};
  const auto view = [](std::vector<float>& v) { return MatrixView<float>(v.data(), 1, v.size()); };
  log_softmax(LogSoftmax{}, view(x), view(y));
  EXPECT_EQ(y, (std::vector<float>{-inf, std::log(0.5f), -inf, std::log(0.5f)}));
  log_softmax_vjp(LogSoftmax{}, view(x), view(y), view(g), view(dx));
  EXPECT_EQ(dx, std::vector<float>(4, 0));

  const auto sum_of = [&](std::vector<float> row) {
    float sum = 7;
    logsumexp(LogSumExp{}, view(row), MatrixView<float>(&sum, 1, 1));
    return sum;
  };
  EXPECT_EQ(sum_of({1, inf}), inf);
  EXPECT_EQ(sum_of({-inf, -inf}), -inf);
  EXPECT_TRUE(std::isnan(sum_of({inf, kNaN<float>})));
  EXPECT_TRUE(std::isnan(sum_of({-inf, kNaN<float>})));
  EXPECT_TRUE(std::isnan(sum_of({1, kNaN<float>})));
  float empty = 7;
  logsumexp(LogSumExp{}, MatrixView<const float>(nullptr, 1, 0), MatrixView<float>(&empty, 1, 1));
  EXPECT_EQ(empty, -inf);

  std::vector<float> masked(5, -inf), lonely(5);
  log_softmax(LogSoftmax{}, view(masked), view(lonely));
  for (const float entry : lonely) EXPECT_TRUE(std::isnan(entry));
}

}  // namespace
}  // namespace isentropic

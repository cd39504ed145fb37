// soft_top_k: values and gradients beside the definition, for each target and type, and what is special.

#include "tests/support/maps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace isentropic {
namespace {

template <class T>
MatrixView<const T> row_of(const std::vector<T>& x) {
  return {x.data(), 1, x.size()};
}
template <class T>
MatrixView<T> row_of(std::vector<T>& x) {
  return {x.data(), 1, x.size()};
}

// The parameters for rows of n.
std::vector<SoftTopK> choices(std::size_t n) {
  std::vector<SoftTopK> all;
  const double size = static_cast<double>(n);
  if (n > 1000) return {{.k = 1, .temperature = 0.05}, {.k = size / 2, .temperature = 20}};
  for (const double k : {0.3, 1.0, 2.5}) {
    for (const double temperature : {1.0, 0.05}) all.push_back({.k = k, .temperature = temperature});
  }
  all.push_back({.k = size - 0.01, .temperature = 0.2});
  all.push_back({.k = size / 2, .temperature = 20});
  return all;
}

template <class T>
void check(const SoftTopK& op, const Case<T>& c, const oracle::SoftTopK& want) {
  const std::size_t n = c.x.size();
  const std::string what = c.name + ", k " + std::to_string(op.k) + ", T " + std::to_string(op.temperature);
  const std::vector<T> g = support::normal_row<T>(n, 1, 0, 20);
  std::vector<T> p(n), dx(n);
  double by_k = 7;
  const ParamGradient asked = {"k", {&by_k, 1}};
  soft_top_k<T>(op, row_of(std::as_const(c.x)), row_of(p));
  soft_top_k_vjp<T>(op, row_of(std::as_const(c.x)), row_of(std::as_const(p)), row_of(g), row_of(dx), {}, {&asked, 1});
  long double total = 0, mean = 0, range = 0, sum = 0, want_sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_NEAR(p[i], want.p[i], 4 * kEpsilon<T>) << what << " entry " << i;
    total += want.slopes[i], mean += want.slopes[i] * g[i], sum += p[i], want_sum += want.p[i];
    range = std::max<long double>(range, std::abs(g[i]));
  }
  // Without FMA the error of ExpScaled is twice as large.
  const bool has_fma = std::ranges::count(support::fma_targets(), simd_target()) > 0;
  ASSERT_NEAR(sum, want_sum, (has_fma ? 4 : 8) * kEpsilon<T> * (1 + op.k)) << what;
  if (total > 0) mean /= total;
  if (total > 0 || op.k >= static_cast<double>(n)) {
    ASSERT_NEAR(by_k, mean, 1e-6 * range) << what;
  }
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_NEAR(dx[i], want.slopes[i] * (g[i] - mean) / op.temperature, 16 * kEpsilon<T> * range / op.temperature)
        << what << " entry " << i;
  }
}

TEST(SoftTopK, AgreesWithTheDefinition) {
  const auto all = [&]<class T>(T) {
    for (const Case<T>& c : support::finite_cases<T>()) {
      for (const SoftTopK& op : choices(c.x.size())) {
        const oracle::SoftTopK want = oracle::soft_top_k(op, wide(c.x));
        support::for_each_target([&](const std::string&) { check<T>(op, c, want); });
      }
    }
  };
  all(float{});
  all(double{});
}

TEST(SoftTopK, GradientInTemperature) {
  for (const std::size_t n : {2, 7, 65}) {
    const std::vector<double> x = support::normal_row<double>(n, 1, 0, 20), g = support::normal_row<double>(n, 1, 0, 21);
    const SoftTopK op = {.k = 1.5, .temperature = 0.7};
    std::vector<double> p(n), dx(n);
    double slope = 0;
    const ParamGradient asked = {"temperature", {&slope, 1}};
    soft_top_k_vjp<double>(op, row_of(x), row_of(x), row_of(g), row_of(dx), {}, {&asked, 1});
    const auto at = [&](double temperature) {
      soft_top_k<double>({.k = op.k, .temperature = temperature}, row_of(x), row_of(p));
      double value = 0;
      for (std::size_t i = 0; i < n; ++i) value += g[i] * p[i];
      return value;
    };
    EXPECT_NEAR(slope, (at(0.7 + 1e-5) - at(0.7 - 1e-5)) / 2e-5, 1e-9) << n;
  }
}

// Between two scores that are far apart all shares are 0 and 1 to rounding, and k still moves both alike.
TEST(SoftTopK, AGapHasTheGradientInK) {
  const std::vector<double> x = {300, 0}, g = {1, 3};
  std::vector<double> p(2), dx(2);
  double by_k = 0;
  const ParamGradient asked = {"k", {&by_k, 1}};
  soft_top_k<double>({.k = 1}, row_of(x), row_of(p));
  soft_top_k_vjp<double>({.k = 1}, row_of(x), row_of(std::as_const(p)), row_of(g), row_of(dx), {}, {&asked, 1});
  EXPECT_EQ(p[0], 1);
  EXPECT_NEAR(p[1] * std::exp(150), 1, 1e-12);
  EXPECT_NEAR(by_k, 2, 1e-12);
  const std::vector<double> far = {1e5, 0, -1e9};
  std::vector<double> three(3);
  soft_top_k_vjp<double>({.k = 1}, row_of(far), row_of(far), row_of(std::vector<double>{1, 3, 7}), row_of(three), {},
                         {&asked, 1});
  EXPECT_NEAR(by_k, 2, 1e-12);  // where nothing but the ratio of slopes is a number
  EXPECT_EQ(three, std::vector<double>(3));
}

TEST(SoftTopK, SpecialRows) {
  constexpr double inf = kInfinity<double>;
  struct Special {
    std::vector<double> x;
    double k;
    std::vector<double> p;
  };
  for (const Special& one : std::vector<Special>{{{1, 2, 3}, 3, {1, 1, 1}},
                                                 {{1, 2, 3}, 1e300, {1, 1, 1}},
                                                 {{1, -inf, 3}, 2, {1, 0, 1}},
                                                 {{0, -inf, 0}, 1, {0.5, 0, 0.5}},
                                                 {{inf, 0, 0}, 2, {1, 0.5, 0.5}},
                                                 {{inf, inf, 2}, 1, {0.5, 0.5, 0}},
                                                 {{inf, inf, 2}, 2, {1, 1, 0}},
                                                 {{-inf, -inf}, 1, {0, 0}},
                                                 {{1e308, -1e308, 0}, 1, {1, 0, 0}},
                                                 {{1e308, 1e308, -1e308}, 1, {0.5, 0.5, 0}},
                                                 {{4, 4, 4, 4}, 1.5, {0.375, 0.375, 0.375, 0.375}}}) {
    std::vector<double> p(one.x.size()), dx(one.x.size());
    const std::vector<double> g(one.x.size(), 1);
    soft_top_k<double>({.k = one.k}, row_of(one.x), row_of(p));
    for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], one.p[i], 1e-15) << one.x[0] << " " << one.k;
    soft_top_k_vjp<double>({.k = one.k}, row_of(one.x), row_of(std::as_const(p)), row_of(g), row_of(dx));
    for (const double slope : dx) EXPECT_NEAR(slope, 0, 1e-15);  // their sum is k
  }
  std::vector<float> x = {1, kNaN<float>, 2}, p(3);
  soft_top_k<float>({.k = 1}, row_of(std::as_const(x)), row_of(p));
  for (const float one : p) EXPECT_TRUE(std::isnan(one));
}

// In place, with values for each row, and for any number of rows in a batch the same bits.
TEST(SoftTopK, Rows) {
  const std::size_t rows = 5, n = 70, stride = 73;
  const std::vector<float> x = support::normal_row<float>(rows * stride, 2, 0, 3);
  std::vector<float> p = x;
  const std::vector<double> ks = {0.5, 1, 7, 69.5, 100}, heats = {1, 0.1, 3, 1, 1};
  const PerRow values[] = {{"k", ks}, {"temperature", heats}};
  soft_top_k<float>({.k = 1}, MatrixView<const float>(p.data(), rows, n, stride), MatrixView<float>(p.data(), rows, n, stride),
                    values);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::vector<float> one(x.begin() + static_cast<std::ptrdiff_t>(r * stride),
                                 x.begin() + static_cast<std::ptrdiff_t>(r * stride + n));
    std::vector<float> alone(n);
    soft_top_k<float>({.k = ks[r], .temperature = heats[r]}, row_of(one), row_of(alone));
    EXPECT_EQ(std::memcmp(alone.data(), p.data() + r * stride, n * sizeof(float)), 0) << r;
    EXPECT_EQ(std::memcmp(x.data() + r * stride + n, p.data() + r * stride + n, 3 * sizeof(float)), 0) << r;
  }
}

TEST(SoftTopK, WhatIsRefused) {
  std::vector<double> x = {1, 2}, p(2);
  const auto run = [&](const SoftTopK& op) { return [&, op] { soft_top_k<double>(op, row_of(x), row_of(p)); }; };
  support::expect_error("soft_top_k: k must be above 0 and finite, got 0", run({}));
  support::expect_error("soft_top_k: k must be above 0 and finite, got nan", run({.k = kNaN<double>}));
  support::expect_error("soft_top_k: temperature must be above 0 and finite, got 0", run({.k = 1, .temperature = 0}));
}

}  // namespace
}  // namespace isentropic

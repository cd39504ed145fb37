// Tables with fixed sums of rows and columns: each way of computing them, in views with gaps, in place, and what is refused.
// tests/python/test_doubly_stochastic.py compares values and gradients with the definition.

#include "isentropic/doubly_stochastic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Tables below each other, with gaps after their rows.
struct Tables {
  std::size_t n, m, count, stride;
  std::vector<double> numbers;

  Tables(std::size_t rows, std::size_t cols, std::size_t tables, double spread)
      : n(rows), m(cols), count(tables), stride(cols + 3), numbers(tables * rows * stride, -7) {
    std::mt19937 generator(static_cast<unsigned>(rows * 100 + cols));
    std::normal_distribution<double> normal(0, spread);
    for (std::size_t i = 0; i < count * n; ++i) {
      for (std::size_t j = 0; j < m; ++j) at(i, j) = normal(generator);
    }
  }
  double& at(std::size_t i, std::size_t j) { return numbers[i * stride + j]; }
  MatrixView<double> view() { return {numbers.data(), count * n, m, stride}; }
  MatrixView<const double> read() const { return {numbers.data(), count * n, m, stride}; }
};

TEST(DoublyStochastic, SumsOfEachWay) {
  support::for_each_target([](const std::string& target) {
    for (const auto& [n, m, spread] :
         {std::tuple{4, 4, 1.0}, {3, 5, 20.0}, {1, 7, 2.0}, {7, 1, 2.0}, {20, 30, 1.0}, {5, 4, 1000.0}, {21, 30, 500.0}}) {
      for (const std::int64_t iterations : {0, 3}) {
        Tables x(static_cast<std::size_t>(n), static_cast<std::size_t>(m), 5, spread), y = x, dx = x;
        const DoublyStochastic op{.iterations = iterations};
        doubly_stochastic<double>(op, x.read(), y.view(), 5);
        for (std::size_t t = 0; t < 5; ++t) {
          for (std::size_t j = 0; j < x.m; ++j) {
            double sum = 0;
            for (std::size_t i = 0; i < x.n; ++i) sum += y.at(t * x.n + i, j);
            ASSERT_NEAR(sum * m / n, 1, 1e-12) << target << " " << n << " x " << m << " " << spread;
          }
          for (std::size_t i = 0; i < x.n && iterations == 0; ++i) {
            double sum = 0;
            for (std::size_t j = 0; j < x.m; ++j) sum += y.at(t * x.n + i, j);
            ASSERT_NEAR(sum, 1, 2e-6) << target << " " << n << " x " << m << " " << spread;
          }
        }
        EXPECT_EQ(y.numbers[x.m], -7);  // what is between rows
        Tables in_place = x;
        doubly_stochastic<double>(op, in_place.read(), in_place.view(), 5);
        EXPECT_EQ(in_place.numbers, y.numbers);
        // A constant gradient has no effect: all sums stay.
        const Tables one(x.n, x.m, 5, 0);
        doubly_stochastic_vjp<double>(op, x.read(), y.read(), one.read(), dx.view(), 5);
        for (std::size_t i = 0; i < 5 * x.n; ++i) {
          for (std::size_t j = 0; j < x.m; ++j) ASSERT_NEAR(dx.at(i, j), 0, 1e-9);
        }
      }
    }
  });
}

TEST(DoublyStochastic, TablesWithoutAResultAreNaNAlone) {
  Tables x(3, 3, 4, 1.0), y = x, dx = x;
  x.at(3, 1) = std::nan("");
  for (std::size_t i = 6; i < 8; ++i) x.at(i, 0) = x.at(i, 1) = -kInfinity;  // two rows need all of one column
  for (std::size_t i = 9; i < 12; ++i) x.at(i, 2) = -kInfinity;              // a column of nothing
  doubly_stochastic<double>({}, x.read(), y.view(), 4);
  doubly_stochastic_vjp<double>({}, x.read(), y.read(), x.read(), dx.view(), 4);
  for (std::size_t i = 0; i < 12; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(std::isnan(y.at(i, j)), i >= 3) << i << " " << j;
      EXPECT_EQ(std::isnan(dx.at(i, j)), i >= 3) << i << " " << j;
    }
  }
  // Of [[1, 1], [0, 1]] only the diagonal is left.
  std::vector<float> two = {0, 0, -std::numeric_limits<float>::infinity(), 0};
  doubly_stochastic<float>({}, MatrixView<const float>(two.data(), 2, 2), MatrixView<float>(two.data(), 2, 2));
  EXPECT_EQ(two, (std::vector<float>{1, 0, 0, 1}));
}

TEST(DoublyStochastic, WhatIsRefused) {
  Tables x(2, 3, 2, 1.0), y = x;
  const auto run = [&](const DoublyStochastic& op, std::size_t tables) {
    return [&, op, tables] { doubly_stochastic<double>(op, x.read(), y.view(), tables); };
  };
  support::expect_error("doubly_stochastic: temperature must be above 0 and finite, got 0", run({.temperature = 0}, 2));
  support::expect_error("doubly_stochastic: iterations must be at least 0 and at most 1000000, got -1",
                        run({.iterations = -1}, 2));
  support::expect_error("doubly_stochastic: tolerance must not be given beside iterations, got iterations 2, tolerance 0.1",
                        run({.iterations = 2, .tolerance = 0.1}, 2));
  support::expect_error("doubly_stochastic: x must have equally many rows for each of 3 tables, got 4", run({}, 3));
  support::expect_error("doubly_stochastic: y must have the shape of x, 4 x 3, got 2 x 3",
                        [&] { doubly_stochastic<double>({}, x.read(), MatrixView<double>(y.numbers.data(), 2, 3), 2); });
}

}  // namespace
}  // namespace isentropic

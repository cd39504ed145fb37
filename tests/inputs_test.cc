// Maps of probabilities and of their logarithms instead of scores.

#include "tests/support/maps.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace isentropic {
namespace {

// Distributions of every kind: from scores; nearly uniform, with a large gamma; with entries down to the smallest number; with
// any sum.
template <class T>
std::vector<Case<T>> distribution_cases() {
  std::vector<Case<T>> cases;
  for (const Case<T>& c : support::finite_cases<T>()) {
    if (c.x.size() < 300) cases.push_back({"softmax of " + c.name, run(Softmax{}, c.x)});
  }
  std::mt19937 generator(41);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(generator); };
  for (const std::size_t n : {2, 3, 17, 64, 65, 100, 300, 1000}) {
    const std::string length = " n=" + std::to_string(n);
    for (const double spread : {1e-2, 1e-4, 1e-6}) {
      std::vector<T> even(n);
      for (T& q : even) q = static_cast<T>((1 + spread * uniform(-1, 1)) / static_cast<double>(n));
      cases.push_back({"uniform but for " + std::to_string(spread) + length, even});
    }
    for (const double size : {1.0, 1e-30, 1e30}) {
      std::vector<T> sized(n);
      for (T& q : sized) q = static_cast<T>(size * uniform(0, 1));
      cases.push_back({"sum of " + std::to_string(size) + length, sized});
    }
    std::vector<T> small(n), wide_range(n);
    for (std::size_t i = 0; i < n; ++i) {
      small[i] = std::numeric_limits<T>::denorm_min() * static_cast<T>(i % 7 == 3 ? 0 : generator() % 1000 + (i == 0));
      const double lowest = std::log(static_cast<double>(std::numeric_limits<T>::denorm_min()));
      wide_range[i] = static_cast<T>(i == 1 ? 1 : std::exp(uniform(lowest, 0)));
    }
    cases.push_back({"subnormal" + length, small});
    cases.push_back({"of every size" + length, wide_range});
  }
  return cases;
}

// Runs body(op, type tag) for every map that takes distributions, with targets in and out of reach.
template <class Body>
void for_each_input(Body&& body) {
  for_each_variant([&]<class T>(Map op, T type) {
    if (input_of(op)) body(op, type);
  });
}

// The scores of a distribution are its logarithms without rounding errors.
TEST(Inputs, ProbabilitiesAgreeWithTheDefinition) {
  for_each_input([]<class T>(Map op, T) {
    *input_of(op) = Input::probs;
    for (const Case<T>& c : distribution_cases<T>()) {
      const Expected want = expected<T>(op, wide(c.x));
      support::for_each_target([&](const std::string&) {
        const std::vector<T> got = run(op, c.x);
        ASSERT_TRUE(is_one_of(want, got)) << c.name;
        for (std::size_t i = 0; i + 1 < got.size(); ++i) {
          ASSERT_TRUE(c.x[i] == c.x[i + 1] ? got[i] == got[i + 1]
                                           : (c.x[i] < c.x[i + 1]) == (got[i] < got[i + 1]) || got[i] == got[i + 1])
              << c.name;
          ASSERT_TRUE(c.x[i] > 0 || got[i] == 0) << c.name;
        }
      });
    }
  });
}

TEST(Inputs, GradientsInProbabilities) {
  for_each_input([]<class T>(Map op, T) {
    *input_of(op) = Input::probs;
    for (const Case<T>& c : distribution_cases<T>()) {
      const oracle::Row q = wide(c.x), p = oracle::map(op, q);
      const std::vector<T> y(p.begin(), p.end());
      std::vector<T> g = support::normal_row<T>(c.x.size(), 1, 0, 42);
      const oracle::Row want = oracle::vjp(op, q, wide(g));
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = y[i] == 0 ? kNaN<T> : g[i];  // not read
      const long double gamma = oracle::gamma(op, q);
      // In units of gamma / q, as the scores' gradients are in units of gamma.
      long double largest = 1;
      for (std::size_t i = 0; i < q.size(); ++i) largest = std::max(largest, std::abs(want[i]) * q[i] / gamma);
      support::for_each_target([&](const std::string&) {
        const std::vector<T> got = run_vjp(op, c.x, y, g);
        for (std::size_t i = 0; i < want.size(); ++i) {
          if (y[i] == 0) {
            ASSERT_EQ(got[i], T(0)) << c.name << " entry " << i;
          } else if (std::abs(want[i]) < std::numeric_limits<T>::max() / 2) {
            ASSERT_LE(std::abs(got[i] - want[i]) * q[i], 40 * kEpsilon<T> * largest * gamma) << c.name << " entry " << i;
          } else {
            ASSERT_FALSE(std::isnan(got[i])) << c.name << " entry " << i;
          }
        }
      });
    }
  });
}

// The gradient in q, against central differences of the definition.
TEST(Inputs, OracleGradientsAreDerivatives) {
  for_each_input([]<class T>(Map op, T) {
    const oracle::Row q = oracle::map(Softmax{}, wide(support::normal_row<double>(7, 0.6, 0, 43)));
    const oracle::Row g = wide(support::normal_row<double>(7, 1, 0, 44));
    *input_of(op) = Input::probs;
    const oracle::Row dq = oracle::vjp(op, q, g);
    for (std::size_t i = 0; i < q.size(); ++i) {
      oracle::Row up = q, down = q;
      up[i] += 1e-8L, down[i] -= 1e-8L;
      const oracle::Row above = oracle::map(op, up), below = oracle::map(op, down);
      long double slope = 0;
      for (std::size_t j = 0; j < q.size(); ++j) slope += g[j] * (above[j] - below[j]) / 2e-8L;
      ASSERT_NEAR(slope, dq[i], 1e-8);
    }
  });
}

// Logarithms are scores; probabilities are their softmax, where that rounds little.
TEST(Inputs, AreScoresInOtherWords) {
  for_each_input([]<class T>(const Map& op, T) {
    const Map logs = with_input(op, Input::log_probs), probs = with_input(op, Input::probs);
    for (const std::size_t n : support::kLengths) {
      const std::vector<T> x = support::normal_row<T>(n, 1, 0, 45), g = support::normal_row<T>(n, 1, 0, 46);
      const std::vector<T> p = run(op, x), q = run(Softmax{}, x), from_probs = run(probs, q);
      ASSERT_EQ(run(logs, x), p);
      ASSERT_EQ(run_vjp(logs, x, p, g), run_vjp(op, x, p, g));
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(from_probs[i], p[i], sizeof(T) == 4 ? 4e-6 : 4e-12) << n;
    }
  });
}

TEST(Inputs, NoDistribution) {
  for_each_input([]<class T>(Map op, T) {
    *input_of(op) = Input::probs;
    support::for_each_target([&](const std::string&) {
      for (const std::size_t n : {1, 5, 64, 65, 300}) {
        for (const T bad : {T(-0.5), -std::numeric_limits<T>::denorm_min(), kNaN<T>, kInfinity<T>, -kInfinity<T>}) {
          // The middle one of three rows.
          std::vector<T> q(3 * n, static_cast<T>(0.5)), p(3 * n), g(n, 1);
          q[n + n / 2] = bad;
          apply(op, MatrixView<const T>(q.data(), 3, n), MatrixView<T>(p.data(), 3, n));
          for (std::size_t i = 0; i < 3 * n; ++i) ASSERT_EQ(std::isnan(p[i]), i / n == 1) << bad;
          const std::vector<T> row(q.begin() + n, q.begin() + 2 * n), y(p.begin() + n, p.begin() + 2 * n);
          for (const T slope : run_vjp(op, row, y, g)) ASSERT_TRUE(std::isnan(slope)) << bad;
        }
        for (const T mass : run(op, std::vector<T>(n, T(0)))) ASSERT_TRUE(std::isnan(mass));
      }
      EXPECT_EQ(run(op, std::vector<T>{T(0), T(3), -T(0)}), (std::vector<T>{0, 1, 0}));
    });
  });
}

// The bits are equal on every target with FMA and at any place; the output may be the input.
TEST(Inputs, BitsOfProbabilities) {
  for_each_input([]<class T>(Map op, T) {
    *input_of(op) = Input::probs;
    for (const std::size_t n : {2, 33, 64, 100, 700, 9000}) {
      std::vector<T> q = support::normal_row<T>(5 * n, 1, 0, 47), g = support::normal_row<T>(n, 1, 0, 48);
      for (T& mass : q) mass = mass < T(-1.5) ? T(0) : std::exp(mass);
      const std::vector<T> row(q.begin(), q.begin() + n), want = run(op, row), slopes = run_vjp(op, row, want, g);
      for (const std::string& target : support::fma_targets()) {
        force_simd_target(target);
        ASSERT_EQ(run(op, row), want) << target << " n=" << n;
        ASSERT_EQ(run_vjp(op, row, want, g), slopes) << target << " n=" << n;
      }
      force_simd_target("");
      apply(op, MatrixView<const T>(q.data(), 5, n), MatrixView<T>(q.data(), 5, n));
      ASSERT_TRUE(std::equal(want.begin(), want.end(), q.begin())) << n;
      std::vector<T> in_place = row;
      apply_vjp(op, MatrixView<const T>(in_place.data(), 1, n), MatrixView<const T>(want.data(), 1, n),
                MatrixView<const T>(g.data(), 1, n), MatrixView<T>(in_place.data(), 1, n));
      ASSERT_EQ(in_place, slopes) << n;
    }
  });
}

}  // namespace
}  // namespace isentropic

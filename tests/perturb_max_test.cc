// perturb_max beyond the tests of every map: long rows, closed forms, the caller's own noise.

#include "isentropic/perturb_max.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numbers>
#include <vector>

#include "isentropic/maps.h"
#include "tests/oracle/maps.h"
#include "tests/support/cases.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

using Noise = PerturbMax::Noise;
constexpr Noise kNoises[] = {Noise::gumbel, Noise::normal, Noise::logistic, Noise::laplace, Noise::exponential, Noise::uniform};

template <class T>
MatrixView<const T> view(const std::vector<T>& v) {
  return {v.data(), 1, v.size()};
}
template <class T>
MatrixView<T> view(std::vector<T>& v) {
  return {v.data(), 1, v.size()};
}

template <class T>
std::vector<T> masses(const Map& map, const std::vector<T>& x) {
  std::vector<T> p(x.size());
  apply(map, view(x), view(p));
  return p;
}

template <class T>
std::vector<T> gradient(const Map& map, const std::vector<T>& x, const std::vector<T>& g) {
  std::vector<T> p = masses(map, x), dx(x.size());
  apply_vjp(map, view(x), view(std::as_const(p)), view(g), view(dx));
  return dx;
}

// body(noise, type tag) on every target.
template <class Body>
void for_each_noise(Body&& body) {
  support::for_each_target([&](const std::string&) {
    for (const Noise noise : kNoises) {
      SCOPED_TRACE(std::string(Described<PerturbMax>::kNoises[static_cast<std::size_t>(noise)]));
      body(noise, float{});
      body(noise, double{});
    }
  });
}

TEST(PerturbMax, WithGumbelNoiseIsSoftmax) {
  support::for_each_target([](const std::string&) {
    for (const double scale : {5e-324, 1e-3, 0.7, 1.0, 1e30, 1.7e308}) {
      for (const std::size_t n : {1, 5, 64, 1000}) {
        const std::vector<float> x = support::normal_row<float>(n, 2, 0, 1), g = support::normal_row<float>(n, 1, 0, 2);
        EXPECT_EQ(masses(PerturbMax{.scale = scale}, x), masses(Softmax{.temperature = scale}, x));
        EXPECT_EQ(gradient(PerturbMax{.scale = scale}, x, g), gradient(Softmax{.temperature = scale}, x, g));
      }
    }
  });
}

// P(e_1 - e_2 < d), the distribution function of the difference of two.
double two_scores(Noise noise, double d) {
  switch (noise) {
    case Noise::gumbel:
      return 1 / (1 + std::exp(-d));
    case Noise::normal:
      return std::erfc(-d / 2) / 2;
    case Noise::logistic:
      return d == 0 ? 0.5 : 1 / -std::expm1(-d) - d / (4 * std::pow(std::sinh(d / 2), 2));
    case Noise::laplace:
      return 1 - std::exp(-d) * (2 + d) / 4;
    case Noise::exponential:
      return 1 - std::exp(-d) / 2;
    case Noise::uniform:
      return d < 1 ? 1 - (1 - d) * (1 - d) / 2 : 1;
  }
  return NAN;
}

TEST(PerturbMax, OfTwoScoresIsTheLawOfADifference) {
  for_each_noise([]<class T>(Noise noise, T) {
    for (const double difference : {0.0, 0.01, 0.3, 1.0, 2.5, 9.0}) {
      for (const double scale : {0.125, 1.0, 32.0}) {
        const std::vector<T> p =
            masses(PerturbMax{noise, scale}, std::vector<T>{static_cast<T>(-difference * scale), T(0), T(-HUGE_VAL)});
        const double d = static_cast<T>(difference * scale) / scale;
        EXPECT_NEAR(p[1], two_scores(noise, d), sizeof(T) == 4 ? 1e-7 : 1e-11) << difference << " scale " << scale;
      }
    }
  });
}

// All equal, one far above the others, one above a crowd, two crowds: in rows of 100,000.
TEST(PerturbMax, LongRowsOfFewDifferentScores) {
  constexpr std::size_t n = 100000;
  for_each_noise([]<class T>(Noise noise, T) {
    const PerturbMax op{.noise = noise};
    const double bound = sizeof(T) == 4 ? 1e-6 : 1e-10;
    const auto start = std::chrono::steady_clock::now();
    for (const T mass : masses(op, std::vector<T>(n, T(3)))) ASSERT_NEAR(mass, 1e-5, 1e-12);
    for (const double below : {1e4, 12.0, 4.0, 0.5, 1e-3}) {
      for (const std::size_t above : {std::size_t{1}, n / 2}) {
        std::vector<T> x(n, static_cast<T>(-below));
        std::fill_n(x.begin() + 7, above, T(0));
        const oracle::Row want = oracle::map(op, oracle::Row(x.begin(), x.end()));
        const std::vector<T> p = masses(op, x);
        for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(p[i], want[i], bound) << below << " " << above << " entry " << i;
      }
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    // There is no promise, but a row must not take minutes. Sanitizers and scalar code are a hundred times slower than a
    // second.
    EXPECT_LT(elapsed.count(), 200);
  });
}

TEST(PerturbMax, LongRowsOfManyDifferentScores) {
  constexpr std::size_t n = 10000;
  for (const Noise noise : {Noise::normal, Noise::logistic, Noise::laplace, Noise::exponential, Noise::uniform}) {
    for (const double spread : {1e-6, 0.02, 1.0}) {
      const std::vector<double> x = support::normal_row<double>(n, spread, 0, 3), g = support::normal_row<double>(n, 1, 0, 4);
      const PerturbMax op{.noise = noise};
      oracle::Row want, want_dx;
      oracle::perturb_max(op, oracle::Row(x.begin(), x.end()), oracle::Row(g.begin(), g.end()), want, want_dx);
      const double bound = noise == Noise::uniform ? 1e-6 : 1e-10;
      support::for_each_target([&](const std::string&) {
        const std::vector<double> p = masses(op, x), dx = gradient(op, x, g);
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_NEAR(p[i], want[i], bound) << Described<PerturbMax>::kNoises[static_cast<std::size_t>(noise)] << " " << spread;
          ASSERT_NEAR(dx[i], want_dx[i], 100 * bound)
              << Described<PerturbMax>::kNoises[static_cast<std::size_t>(noise)] << " " << spread;
        }
      });
    }
  }
}

// Scores that are closer together than the rounding errors of numbers computed from them.
TEST(PerturbMax, KeepsTheOrderOfScoresThatAreNearlyEqual) {
  for_each_noise([]<class T>(Noise noise, T) {
    for (const double start : {0.0, -0.1, -0.7, -1.0, -3.0, -8.0}) {
      for (const double step : {0x1p-53, 0x1p-50, 3e-15, 0x1p-45, 1e-13, 1e-12, 3e-11}) {
        std::vector<T> x = {0};
        for (int i = 0; i < 800; ++i) x.push_back(static_cast<T>(start - step * i));
        const std::vector<T> p = masses(PerturbMax{.noise = noise}, x);
        for (std::size_t i = 1; i < x.size(); ++i) ASSERT_LE(p[i], p[i - 1]) << start << " " << step << " entry " << i;
      }
    }
    // In short rows the points lie where the noise's functions are flattest.
    for (const double step : {0x1p-53, 0x1p-50, 3e-15, 1e-14}) {
      constexpr std::size_t rows = 2000;
      std::vector<T> x, p(3 * rows);
      for (std::size_t r = 0; r < rows; ++r) {
        const double start = -1.5 * static_cast<double>(r) / rows;
        x.insert(x.end(), {T(0), static_cast<T>(start), static_cast<T>(start - step)});
      }
      apply(PerturbMax{.noise = noise}, MatrixView<const T>(x.data(), rows, 3), MatrixView<T>(p.data(), rows, 3));
      for (std::size_t r = 0; r < rows; ++r) ASSERT_LE(p[3 * r + 2], p[3 * r + 1]) << x[3 * r + 1] << " " << step;
    }
  });
}

// The Jacobian's columns sum to 0, so even a large constant in g has no effect.
TEST(PerturbMax, GradientsSumToZero) {
  for_each_noise([]<class T>(Noise noise, T) {
    for (const std::size_t n : {2, 30, 500}) {
      const std::vector<T> x = support::normal_row<T>(n, 0.3, 0, 5);
      std::vector<T> g = support::normal_row<T>(n, 1, 0, 6);
      for (T& slope : g) slope = std::round(slope * 64) / 64;
      const std::vector<T> dx = gradient(PerturbMax{noise, 0.5}, x, g);
      double sum = 0, size = 0;
      for (const T slope : dx) sum += slope, size += std::abs(slope);
      ASSERT_GT(size, 0.1) << n;
      ASSERT_LE(std::abs(sum), 4 * std::numeric_limits<T>::epsilon() * size) << n;
      for (T& slope : g) slope += 1024;
      const std::vector<T> moved = gradient(PerturbMax{noise, 0.5}, x, g);
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(moved[i], dx[i], 2e4 * std::numeric_limits<T>::epsilon()) << n;
    }
  });
}

TEST(PerturbMax, RefusesBadParameters) {
  std::vector<double> x = {1, 2}, p = {7, 7};
  const auto message = [&](const PerturbMax& op) -> std::string {
    try {
      apply(op, view(std::as_const(x)), view(p));
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.scale = 0}), "perturb_max: scale must be above 0 and finite, got 0");
  EXPECT_EQ(message({.noise = static_cast<Noise>(6)}),
            "perturb_max: noise must be one of gumbel, normal, logistic, laplace, exponential, uniform, got number 6");
  EXPECT_EQ(p, (std::vector<double>{7, 7}));
}

// Noises as a caller would write them.

struct MyLogistic {
  double log_cdf(double t) const { return t > -700 ? -std::log1p(std::exp(-t)) : t; }
  double pdf(double t) const {
    const double e = std::exp(-std::abs(t));
    return e / ((1 + e) * (1 + e));
  }
};

struct MyLaplace {
  std::vector<double> kinks = {0};
  double log_cdf(double t) const { return t < 0 ? t - std::log(2) : std::log1p(-std::exp(-t) / 2); }
  double pdf(double t) const { return std::exp(-std::abs(t)) / 2; }
};

// On [begin, begin + length].
struct MyUniform {
  double begin = 0, length = 1;
  std::vector<double> kinks = {begin, begin + length};
  double log_cdf(double t) const {
    const double part = (t - begin) / length;
    return part <= 0 ? -HUGE_VAL : part >= 1 ? 0 : std::log(part);
  }
  double pdf(double t) const { return t < begin || t > begin + length ? 0 : 1 / length; }
};

// Its tails are long: the largest of two lies below 10^12 times its scale in all but 10^-12 of draws.
struct MyCauchy {
  double log_cdf(double t) const {
    return t < 0 ? std::log(std::atan(-1 / t) / std::numbers::pi) : std::log1p(-std::atan2(1, t) / std::numbers::pi);
  }
  double pdf(double t) const { return 1 / (std::numbers::pi * (1 + t * t)); }
};

template <class T>
void expect_same(const auto& mine, double scale, const PerturbMax& op, std::size_t n, double spread) {
  std::vector<T> x = support::normal_row<T>(n, spread, 3, 7);
  const std::vector<T> g = support::normal_row<T>(n, 1, 0, 8);
  if (n > 5) x[4] = T(-HUGE_VAL);
  std::vector<T> p(n), dx(n);
  perturb_max(mine, scale, view(std::as_const(x)), view(p));
  perturb_max_vjp(mine, scale, view(std::as_const(x)), view(std::as_const(p)), view(g), view(dx));
  const std::vector<T> want = masses(op, x), want_dx = gradient(op, x, g);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_NEAR(p[i], want[i], sizeof(T) == 4 ? 1e-6 : 1e-10) << n << " entry " << i;
    ASSERT_NEAR(dx[i] * op.scale, want_dx[i] * op.scale, sizeof(T) == 4 ? 4e-5 : 4e-9) << n << " entry " << i;
    sum += p[i];
  }
  ASSERT_NEAR(sum, 1, sizeof(T) == 4 ? 1e-6 : 1e-13);
  if (n > 5) {
    ASSERT_EQ(p[4], T(0));
    ASSERT_EQ(dx[4], T(0));
  }
}

TEST(PerturbMax, WithTheCallersNoise) {
  support::for_each_target([](const std::string&) {
    const auto check = []<class T>(T) {
      for (const std::size_t n : {1, 2, 7, 40, 300}) {
        for (const double spread : {1e-3, 1.0, 20.0}) {
          expect_same<T>(MyLogistic(), 1, PerturbMax{.noise = Noise::logistic}, n, spread);
          expect_same<T>(MyLogistic(), 4, PerturbMax{Noise::logistic, 4}, n, spread);
          expect_same<T>(MyLaplace(), 0.5, PerturbMax{Noise::laplace, 0.5}, n, spread);
        }
        expect_same<T>(MyUniform(), 1, PerturbMax{.noise = Noise::uniform}, n, 1.0);
        // Where the noise lies does not matter; its width is a scale.
        expect_same<T>(MyUniform{.begin = -50, .length = 4}, 1, PerturbMax{Noise::uniform, 4}, n, 1.0);
        expect_same<T>(MyUniform{.begin = 3, .length = 1e-3}, 1e3, PerturbMax{.noise = Noise::uniform}, n, 1.0);
      }
    };
    check(float{});
    check(double{});
  });
}

// The difference of two is Cauchy's distribution of twice the scale.
TEST(PerturbMax, WithNoiseOfLongTails) {
  support::for_each_target([](const std::string&) {
    for (const double difference : {0.0, 0.01, 1.0, 30.0, 1e4, 1e7}) {
      const auto check = [&]<class T>(T) {
        const std::vector<T> x = {T(0), static_cast<T>(-difference)};
        std::vector<T> p(2), dx(2);
        perturb_max(MyCauchy(), 1, view(std::as_const(x)), view(p));
        EXPECT_NEAR(p[1], std::atan2(2, difference) / std::numbers::pi, sizeof(T) == 4 ? 1e-6 : 1e-10) << difference;
        perturb_max_vjp(MyCauchy(), 1, view(std::as_const(x)), view(std::as_const(p)), view(std::vector<T>{1, 0}), view(dx));
        const double density = 2 / (std::numbers::pi * (4 + difference * difference));
        EXPECT_NEAR(dx[0], density, sizeof(T) == 4 ? 1e-6 : 1e-9) << difference;
      };
      check(float{});
      check(double{});
    }
  });
}

TEST(PerturbMax, WithTheCallersNoiseRefusesBadArguments) {
  std::vector<double> x = {1, 2}, p = {7, 7, 7};
  EXPECT_THROW(perturb_max(MyLogistic(), 0, view(std::as_const(x)), MatrixView<double>(p.data(), 1, 2)), std::invalid_argument);
  EXPECT_THROW(perturb_max(MyLogistic(), 1, view(std::as_const(x)), view(p)), std::invalid_argument);
  EXPECT_EQ(p, (std::vector<double>{7, 7, 7}));
}

}  // namespace
}  // namespace isentropic

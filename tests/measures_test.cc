// Measures: each with every input against its definition; exact properties; refused arguments.

#include "isentropic/measures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "isentropic/threads.h"
#include "tests/oracle/measures.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/guarded.h"
#include "tests/support/targets.h"
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace isentropic {
namespace {

using oracle::Numbers;
using support::expect_error;

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kAlphas[] = {0, 0.01, 0.5, 0.95, 1 - 1e-5, 1, 1 + 1e-9, 1.0005, 1.05, 2, 7, 1e3, kInfinity};

template <class T>
MatrixView<const T> row(const std::vector<T>& x) {
  return {x.data(), 1, x.size()};
}
template <class T>
MatrixView<T> row(std::vector<T>& x) {
  return {x.data(), 1, x.size()};
}
template <class T>
Numbers wide(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}

template <class Op, class T>
double value_of(const Op& op, const std::vector<T>& p) {
  double value = -7;
  measure(op, row(p), {&value, 1});
  return value;
}
template <class Op, class T>
double value_of(const Op& op, const std::vector<T>& p, const std::vector<T>& q) {
  double value = -7;
  measure(op, row(p), row(q), {&value, 1});
  return value;
}

// Orders of a divergence: Amari's may be any.
constexpr double kOrders[] = {-3, -0.5, 0, 1e-9, 0.01, 0.5, 0.95, 1 - 1e-5, 1, 1 + 1e-9, 1.05, 2, 7, kInfinity};

// Calls f(op) for every measure of the family with every input, with and without normalize, in nats and bits, at each order,
// with and without smoothing.
template <class Family, class F>
void for_each_variant(F&& f) {
  for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
    for (const Input input : {Input::probs, Input::log_probs, Input::scores}) {
      for (const bool normalize : {false, true}) {
        Op op;
        op.input = input;
        op.normalize = normalize;
        if constexpr (requires { op.base; }) {
          if (normalize) op.base = 2;
        }
        if constexpr (requires { op.alpha; }) {
          constexpr bool kOfTwo = std::is_same_v<Family, Divergence>;
          for (const double alpha : kOfTwo ? std::span<const double>(kOrders) : std::span<const double>(kAlphas)) {
            if (std::is_same_v<Op, AlphaDivergence> ? std::isinf(alpha) : alpha < 0) continue;
            op.alpha = alpha;
            f(op);
          }
        } else if constexpr (requires { op.order; }) {
          for (const double order : {0.0, 0.5, 1.0, 2.0, 7.0}) {
            op.order = order;
            f(op);
          }
        } else if constexpr (requires { op.given; }) {
          for (const Given given : {Given::x, Given::y}) {
            op.given = given;
            f(op);
          }
        } else if constexpr (requires { op.average; }) {
          for (const Average average : {Average::arithmetic, Average::geometric, Average::min, Average::max}) {
            op.average = average;
            f(op);
          }
        } else {
          f(op);
        }
        if constexpr (requires { op.smoothing; }) {
          if constexpr (requires { op.alpha; }) op.alpha = 0.7;
          op.smoothing = 0.01;
          f(op);
        }
      }
    }
  });
}

// Weights of very different sizes, some 0. They are a distribution, or not quite if `normalize` may be set.
template <class T>
std::vector<T> weights(std::mt19937& random, std::size_t n) {
  std::uniform_real_distribution<double> uniform(0, 1);
  const double spread = std::pow(10, 3 * uniform(random) - 2);
  std::vector<double> x(n);
  for (double& xi : x) xi = random() % 5 == 0 ? 0 : std::exp(spread * std::normal_distribution<double>()(random));
  x[random() % n] = 1;
  const double sum = std::accumulate(x.begin(), x.end(), 0.0);
  std::vector<T> p(n);
  for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<T>(x[i] / sum);
  return p;
}

// A row in the form of an input.
template <class Op, class T>
std::vector<T> given(const Op& op, std::vector<T> p) {
  for (T& pi : p) {
    if (op.input != Input::probs) pi = std::log(pi);
    if (op.input == Input::scores) pi += T(3);
    if (op.input == Input::probs && op.normalize) pi *= T(5);
  }
  return p;
}

// The oracle gets the rounded numbers of the row. Values near 0 are compared relative to `scale`.
void expect_near(double got, long double want, double scale = 0, double relative = 2e-14) {
  if (std::isinf(static_cast<double>(want))) {
    EXPECT_EQ(got, static_cast<double>(want));
  } else {
    EXPECT_LE(std::abs(got - want), relative * std::max<long double>(std::abs(want), scale) + 1e-300L) << got << " " << want;
  }
}

template <class Op, class T>
void check_one(const Op& op, const std::vector<T>& p, const std::string& what) {
  SCOPED_TRACE(std::string(Described<Op>::kDescription.name) + " input " + std::string(kInputs[static_cast<int>(op.input)]) +
               (op.normalize ? " normalized " : " ") + what);
  const std::vector<T> x = given(op, p);
  // If the sum of powers is nearly 1, the definition itself loses digits.
  double scale = 1e-4;
  if constexpr (requires { op.alpha; }) {
    scale = 1;
    // The oracle's own cancellation.
    if (op.alpha != 1) scale = std::max(scale, 1e-4 / std::abs(op.alpha - 1));
    // Near alpha = 1, numbers that do not quite sum to 1 (float, logarithms) are treated as if they did.
    const Numbers given_p = oracle::distribution(op.input, op.normalize, wide(x));
    const long double off = std::abs(std::accumulate(given_p.begin(), given_p.end(), -1.0L));
    if (op.alpha != 1) scale += static_cast<double>(off) * 1e14 / std::abs(op.alpha - 1) * (off < 1e-12L);
  }
  constexpr bool kFloatTerms = std::is_same_v<Op, Entropy> && sizeof(T) == 4;
  expect_near(value_of(op, x), oracle::value(op, wide(x)), scale, kFloatTerms ? 5e-7 : 2e-14);
}

TEST(Measures, OfOneDistribution) {
  support::for_each_target([&](const std::string&) {
    std::mt19937 random(1);
    for (const std::size_t n : support::kLengths) {
      if (n > 300) continue;
      const auto p = weights<double>(random, n);
      const auto q = weights<float>(random, n);
      for_each_variant<Measure>([&](const auto& op) {
        check_one(op, p, "double n=" + std::to_string(n));
        check_one(op, q, "float n=" + std::to_string(n));
      });
    }
  });
}

#ifdef __x86_64__
// The threads of JAX take subnormal numbers for 0, as others do after torch.set_flush_denormal.
TEST(Measures, ZerosCountForNothingWhereSubnormalNumbersAreFlushed) {
  constexpr unsigned kFlush = 0x8040;
  const unsigned before = _mm_getcsr();
  support::for_each_target([&](const std::string&) {
    const auto check = [&]<class T>(const std::vector<T>& p) {
      for_each_variant<Measure>([&](const auto& op) {
        if (op.input != Input::probs) return;
        const double want = value_of(op, p);
        _mm_setcsr(before | kFlush);
        const double got = value_of(op, p);
        _mm_setcsr(before);
        EXPECT_EQ(got, want) << description_of(op).name << " of " << p.size();
      });
    };
    check(std::vector<double>{0.5, 0.5, 0, 0});
    check(std::vector<float>{0, 1});
    std::vector<double> many(300);
    for (std::size_t i = 0; i < 300; i += 3) many[i] = 0.01;
    check(many);
    check(std::vector<float>(many.begin(), many.end()));
  });
}
#endif

TEST(Measures, OfTwoDistributions) {
  support::for_each_target([&](const std::string&) {
    std::mt19937 random(2);
    std::normal_distribution<double> normal;
    for (const std::size_t n : support::kLengths) {
      if (n > 300) continue;
      for (const double distance : {0.0, 1e-6, 1e-2, 1.0, 100.0}) {
        const auto check = [&]<class T>(T) {
          const std::vector<T> p = weights<T>(random, n);
          std::vector<T> q = p;
          if (distance == 100) q = weights<T>(random, n);
          if (distance > 0 && distance <= 1) {
            for (T& qi : q) qi *= static_cast<T>(std::exp(distance * normal(random)));
            const double sum = std::accumulate(q.begin(), q.end(), 0.0);
            for (T& qi : q) qi = static_cast<T>(qi / sum);
          }
          for_each_variant<Divergence>([&]<class Op>(const Op& op) {
            SCOPED_TRACE(std::string(Described<Op>::kDescription.name) + " input " +
                         std::to_string(static_cast<int>(op.input)) + " n=" + std::to_string(n) + " distance " +
                         std::to_string(distance));
            const std::vector<T> x = given(op, p), y = given(op, q);
            const double value = value_of(op, x, y);
            constexpr bool kCross = std::is_same_v<Op, CrossEntropy>;
            double alpha = 1;
            if constexpr (requires { op.alpha; }) alpha = std::abs(op.alpha);
            SCOPED_TRACE("alpha " + std::to_string(alpha) + " of " + std::to_string(sizeof(T)) + " bytes");
            if (distance == 0 && !kCross) {
              EXPECT_EQ(value, 0);
              return;
            }
            EXPECT_GE(value, 0);
            const long double want = oracle::value(op, wide(x), wide(y));
            // Near distributions from rounded scores or a rounded sum.
            double relative = op.input == Input::probs && !op.normalize ? 1e-14 : distance <= 1e-5 ? 1e-8 : 1e-11;
            if constexpr (requires { op.smoothing; }) {
              if (op.smoothing > 0) relative = distance <= 1e-5 ? 1e-6 : 1e-11;
            }
            if (alpha < 1e3) relative *= std::max(1.0, alpha);
            if (std::isinf(static_cast<double>(want))) {
              EXPECT_EQ(value, kInfinity);
            } else if (!kCross) {
              // Differences of divided rows; most divergences are squares of such.
              constexpr bool kIsDifference =
                  std::is_same_v<Op, TotalVariation> || std::is_same_v<Op, HellingerDistance> || std::is_same_v<Op, JsDistance>;
              const long double least = kIsDifference ? 1e-16L : 1e-28L;
              EXPECT_LE(std::abs(value - want), (sizeof(T) == 4 ? std::max(1e-7, relative) : relative) * want + least);
            } else {
              expect_near(value, want, 1e-2);
            }
          });
        };
        check(double{});
        check(float{});
      }
    }
  });
}

// Rows of float32 scores have their own kernels. This tests absent scores, wide and narrow rows, and divergences on both sides
// of the switch between kernels.
TEST(Measures, OfFloatScores) {
  support::for_each_target([&](const std::string&) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    for (const std::size_t n : {1, 2, 10, 64, 1000}) {
      for (const double scale : {0.01, 0.1, 0.2, 1.0, 10.0, 300.0, 1e30}) {
        for (const bool masked : {false, true}) {
          SCOPED_TRACE("n=" + std::to_string(n) + " scale " + std::to_string(scale) + (masked ? " masked" : ""));
          std::vector<float> x(n), y(n);
          for (std::size_t i = 0; i < n; ++i) {
            x[i] = static_cast<float>(scale * normal(random) + 3);
            y[i] = static_cast<float>(scale * normal(random));
            if (masked && i % 3 == 1) x[i] = -kInfinity;
            if (masked && i % 6 == 1) y[i] = -kInfinity;
          }
          const Entropy entropy{.input = Input::scores};
          expect_near(value_of(entropy, x), oracle::value(entropy, wide(x)), 1e-4, 5e-7);
          const KlDivergence kl{.input = Input::scores};
          const long double want = oracle::value(kl, wide(x), wide(y));
          const double value = value_of(kl, x, y);
          EXPECT_LE(std::abs(value - want), 1e-7 * want + 1e-28L) << value << " " << want;
          if (n <= 2) continue;
          y[0] = -kInfinity;
          EXPECT_EQ(value_of(kl, x, y), kInfinity);
          y[0] = std::numeric_limits<float>::quiet_NaN();
          EXPECT_TRUE(std::isnan(value_of(kl, x, y)));
          x[0] = y[0];
          EXPECT_TRUE(std::isnan(value_of(entropy, x)));
        }
      }
    }
  });
}

// Rows of float32 have separate code, which must use the known sums.
TEST(Measures, OfFloatLogarithmsThatAreNormalised) {
  const std::vector<float> p = {-3, -1, -2}, q = {-1, -5, -1};
  double of_scores, of_logs;
  measure<float>(KlDivergence{.input = Input::scores}, row(p), row(q), {&of_scores, 1});
  measure<float>(KlDivergence{.input = Input::log_probs, .normalize = true}, row(p), row(q), {&of_logs, 1});
  EXPECT_EQ(of_logs, of_scores);
}

TEST(Measures, OfTables) {
  support::for_each_target([&](const std::string&) {
    std::mt19937 random(3);
    for (const std::size_t rows : {1, 2, 5, 17}) {
      for (const std::size_t cols : {1, 3, 16, 33}) {
        const auto check = [&]<class T>(T) {
          const std::vector<T> p = weights<T>(random, rows * cols);
          for_each_variant<TableMeasure>([&]<class Op>(const Op& op) {
            SCOPED_TRACE(std::string(Described<Op>::kDescription.name) + std::to_string(static_cast<int>(op.input)));
            const std::vector<T> x = given(op, p);
            const double value = measure(op, MatrixView<const T>(x.data(), rows, cols));
            EXPECT_GE(value, 0);
            // A quotient by a small entropy, of marginals that are rounded.
            const double relative = std::is_same_v<Op, NormalizedMutualInformation> ? 5e-13 : 2e-14;
            expect_near(value, oracle::table_value(op, wide(x), cols), 1e-2, relative);
          });
        };
        check(double{});
        check(float{});
      }
    }
  });
}

TEST(Measures, OfEntries) {
  support::for_each_target([&](const std::string&) {
    const std::vector<double> p = {0, 5e-324, 1e-300, 1e-9, 0.1, 0.25, 0.4999, 0.5, 0.5 + 1e-9, 0.75, 0.9, 1 - 1e-12, 1};
    for_each_operation<EntryMeasure>([&]<class Op>(std::type_identity<Op>) {
      for (const Input input : {Input::probs, Input::log_probs, Input::scores}) {
        Op op;
        op.input = input;
        if (std::is_same_v<Op, SelfInformation> && input == Input::scores) continue;
        std::vector<double> x = p, value(p.size()), slope(p.size());
        for (double& xi : x) {
          if (input == Input::log_probs) xi = std::log(xi);
          if (input == Input::scores) xi = std::clamp(std::log(xi / (1 - xi)), -700.0, 700.0);
        }
        measure(op, row(std::as_const(x)), row(value), row(slope));
        Op in_bits = op;
        in_bits.base = 2;
        std::vector<double> bits(p.size()), slope_in_bits(p.size());
        measure(in_bits, row(std::as_const(x)), row(bits), row(slope_in_bits));
        for (std::size_t i = 0; i < x.size(); ++i) {
          SCOPED_TRACE(std::string(Described<Op>::kDescription.name) + " " + std::to_string(x[i]));
          expect_near(value[i], oracle::value(op, static_cast<long double>(x[i])), 1e-300);
          if (p[i] < 1e-200 || p[i] > 1 - 1e-6) continue;
          EXPECT_NEAR(bits[i], value[i] / std::log(2), 1e-15 * value[i]);
          EXPECT_NEAR(slope_in_bits[i], slope[i] / std::log(2), 1e-15 * std::abs(slope[i]));
          const long double h = 1e-4L * (input == Input::scores ? 1 : std::min(std::abs(x[i]), 1 - p[i]));
          const long double difference = (oracle::value(op, x[i] + h) - oracle::value(op, x[i] - h)) / (2 * h);
          EXPECT_NEAR(slope[i], static_cast<double>(difference), 1e-6 * std::abs(slope[i]) + 1e-8);
        }
      }
    });
    const std::vector<double> scores = {1, 2, -kInfinity};
    std::vector<double> value(3);
    measure(SelfInformation{.input = Input::scores}, row(scores), row(value));
    EXPECT_NEAR(value[0], 1 + std::log1p(std::exp(-1)), 1e-15);
    EXPECT_EQ(value[2], kInfinity);
    measure(SelfInformation{.base = 2, .normalize = true}, row(std::vector<double>{3, 1, 4}), row(value));
    EXPECT_EQ(value[1], 3);
  });
}

// Against differences of the oracle, in the numbers given.
template <class Op, class T, class ValueAt>
void check_gradient(const Op& op, const std::vector<T>& x, const std::vector<T>& gradient, ValueAt&& value_at) {
  SCOPED_TRACE(std::string(Described<Op>::kDescription.name) + " input " + std::to_string(static_cast<int>(op.input)) +
               (op.normalize ? " normalized" : ""));
  double largest = 0;
  for (const T entry : gradient) largest = std::max(largest, std::abs(static_cast<double>(entry)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    long double step = 1e-5L;
    if constexpr (requires { op.alpha; }) step = op.alpha > 100 ? 1e-6L : step;
    const long double h = step * (op.input == Input::probs ? std::abs(static_cast<long double>(x[i])) : 1);
    Numbers above = wide(x), below = wide(x);
    above[i] += h;
    below[i] -= h;
    const long double difference = (value_at(above) - value_at(below)) / (2 * h);
    EXPECT_LE(std::abs(gradient[i] - difference), (sizeof(T) == 4 ? 1e-6L : 1e-8L) * largest + 3e-8L) << "entry " << i;
  }
}

TEST(Measures, Gradients) {
  support::for_each_target([&](const std::string&) {
    std::mt19937 random(4);
    std::uniform_real_distribution<double> uniform(0.2, 1);
    const std::size_t n = 21;
    const auto check = [&]<class T>(T) {
      std::vector<T> p(n), q(n), dp(n), dq(n);
      double p_sum = 0, q_sum = 0, value;
      for (std::size_t i = 0; i < n; ++i) {
        p_sum += p[i] = static_cast<T>(uniform(random));
        q_sum += q[i] = static_cast<T>(uniform(random));
      }
      for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<T>(p[i] / p_sum), q[i] = static_cast<T>(q[i] / q_sum);
      for_each_variant<Measure>([&]<class Op>(const Op& op) {
        if constexpr (requires { op.alpha; }) {
          if (op.alpha == kInfinity) return;  // the oracle has a kink there
          if (op.alpha == 1 + 1e-9) {         // and here no digits left
            const std::vector<T> x = given(op, p);
            Op at_one = op;
            at_one.alpha = 1;
            measure(op, row(x), {&value, 1}, row(dp));
            measure(at_one, row(x), {&value, 1}, row(dq));
            for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(dp[i], dq[i], 1e-6 * std::abs(dq[i]) + 1e-7);
            return;
          }
        }
        const std::vector<T> x = given(op, p);
        measure(op, row(x), {&value, 1}, row(dp));
        check_gradient(op, x, dp, [&](const Numbers& at) { return oracle::value(op, at); });
      });
      for_each_variant<Divergence>([&]<class Op>(const Op& op) {
        if constexpr (requires { op.alpha; }) {
          if (op.alpha == kInfinity) return;  // the oracle has a kink there
        }
        const std::vector<T> x = given(op, p), y = given(op, q);
        measure(op, row(x), row(y), {&value, 1}, row(dp), row(dq));
        check_gradient(op, x, dp, [&](const Numbers& at) { return oracle::value(op, at, wide(y)); });
        check_gradient(op, y, dq, [&](const Numbers& at) { return oracle::value(op, wide(x), at); });
      });
      for_each_variant<TableMeasure>([&]<class Op>(const Op& op) {
        const std::vector<T> x = given(op, p);
        measure(op, MatrixView<const T>(x.data(), 3, 7), MatrixView<T>(dp.data(), 3, 7));
        check_gradient(op, x, dp, [&](const Numbers& at) { return oracle::table_value(op, at, 7); });
      });
    };
    check(double{});
    check(float{});
  });
}

// Finite where the derivative is: at zeros and absent scores, and of a row with one outcome. Gradients in the order: against
// differences of the definition, alone and together with the gradient in p, each row with its own order.
template <class Op, class T>
void check_order_gradients(Op op) {
  std::mt19937 random(3);
  for (const std::size_t n : {1, 2, 5, 33, 100}) {
    for (const double alpha : kAlphas) {
      const std::vector<T> p = given(op, weights<T>(random, n));
      std::vector<T> two(p), dp(2 * n);
      two.insert(two.end(), p.begin(), p.end());
      const std::vector<double> alphas = {alpha, 2};
      std::vector<double> value(2), slope(2), alone(2);
      const PerRow per_row[] = {{"alpha", alphas}};
      measure(Measure(op), MatrixView<const T>(two.data(), 2, n), value, {dp.data(), 2, n}, per_row,
              std::vector<ParamGradient>{{"alpha", slope}});
      measure(Measure(op), MatrixView<const T>(two.data(), 2, n), value, {}, per_row,
              std::vector<ParamGradient>{{"alpha", alone}});
      ASSERT_EQ(slope, alone);
      op.alpha = alpha;
      ASSERT_EQ(value[0], value_of(op, p));
      if (std::isinf(alpha)) {
        ASSERT_EQ(slope[0], 0);
        continue;
      }
      long double differences[2];
      for (const int half : {0, 1}) {
        const double step = std::ldexp(std::max(alpha, 1.0), -13 - half);
        Op ends[2] = {op, op};
        ends[0].alpha -= step, ends[1].alpha += step;
        differences[half] =
            (oracle::value(ends[1], wide(p)) - oracle::value(ends[0], wide(p))) / (2 * static_cast<long double>(step));
      }
      const long double want = (4 * differences[1] - differences[0]) / 3;
      const double lack = sizeof(T) == 4 && op.input != Input::scores && !op.normalize ? 1e-6 : 0;  // sums that are not quite 1
      ASSERT_LE(std::abs(slope[0] - want), (1e-8 + lack) * (1 + std::abs(static_cast<double>(want))))
          << Described<Op>::kDescription.name << " alpha " << alpha << " n " << n << " input " << static_cast<int>(op.input)
          << ": " << slope[0] << ", not " << static_cast<double>(want);
    }
  }
}

TEST(Measures, GradientsInTheOrder) {
  support::for_each_target([&](const std::string&) {
    for (const Input input : {Input::probs, Input::log_probs, Input::scores}) {
      for (const bool normalize : {false, true}) {
        const std::optional<double> base = normalize ? std::optional<double>(2) : std::nullopt;
        check_order_gradients<RenyiEntropy, double>({.alpha = 1, .base = base, .input = input, .normalize = normalize});
        check_order_gradients<TsallisEntropy, double>({.alpha = 1, .base = base, .input = input, .normalize = normalize});
        check_order_gradients<RenyiEntropy, float>({.alpha = 1, .base = base, .input = input, .normalize = normalize});
        check_order_gradients<TsallisEntropy, float>({.alpha = 1, .base = base, .input = input, .normalize = normalize});
      }
    }
  });
  // Rows with infinities and NaN, and refused arguments.
  std::vector<double> x = {1, kInfinity, kInfinity, 0, kNaN, 1}, value(2), slope(2);
  measure(Measure(TsallisEntropy{.alpha = 2, .input = Input::scores}), MatrixView<const double>(x.data(), 2, 3), value, {}, {},
          std::vector<ParamGradient>{{"alpha", slope}});
  EXPECT_NEAR(slope[0], -(1 - 0.5 - 0.5 * std::log(2.0)), 1e-15);  // (1 - 2^(1 - a)) / (a - 1)
  EXPECT_TRUE(std::isnan(slope[1]));
  expect_error("entropy: there is no parameter 'alpha' with a value for each row", [&] {
    measure(Measure(Entropy{.input = Input::scores}), MatrixView<const double>(x.data(), 2, 3), value, {}, {},
            std::vector<ParamGradient>{{"alpha", slope}});
  });
}

// Derivatives of divergences in their orders by their definitions, which lose digits near 0 and 1: where long double has not
// enough of them, their limits.
long double order_slope(const AlphaDivergence& op, const Numbers& p, const Numbers& q) {
  const long double a = op.alpha, value = oracle::value(AlphaDivergence{.alpha = op.alpha}, p, q);
  if (std::isinf(value)) return 0;
  const auto bend = [](const Numbers& of, const Numbers& other) {
    long double sum = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const long double log = of[i] == 0 ? 0 : std::log(of[i] / other[i]);
      sum += of[i] * log * log / 2;
    }
    return sum;
  };
  if (std::abs(op.alpha - 1) < 1e-6) return bend(p, q) - value;
  if (std::abs(op.alpha) < 1e-6) return value - bend(q, p);
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const bool both = p[i] > 0 && q[i] > 0;
    sum += p[i] - q[i] - (both ? std::pow(p[i], a) * std::pow(q[i], 1 - a) * std::log(p[i] / q[i]) : 0);
  }
  return (sum - (1 - 2 * a) * value) / (a * (1 - a));
}
// KL(r, p) / (1 - alpha)^2, r = p^alpha q^(1 - alpha) / S.
long double order_slope(const RenyiDivergence& op, const Numbers& p, const Numbers& q) {
  const long double a = op.alpha;
  if (std::isinf(a) || std::isinf(oracle::value(RenyiDivergence{.alpha = op.alpha}, p, q))) return 0;
  long double sum = 0, mean = 0, mean_square = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    const long double log = q[i] == 0 ? 0 : std::log(p[i] / q[i]);
    sum += q[i] == 0 ? 0 : std::pow(p[i], a) * std::pow(q[i], 1 - a);
    mean += p[i] * log, mean_square += p[i] * log * log;
  }
  if (std::abs(op.alpha - 1) < 1e-6) return (mean_square - mean * mean) / 2;
  long double kl = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0 || q[i] == 0) continue;
    const long double r = std::pow(p[i], a) * std::pow(q[i], 1 - a) / sum;
    kl += r == 0 ? 0 : r * std::log(r / p[i]);
  }
  return kl / ((1 - a) * (1 - a));
}

template <class Op, class T>
void check_order_gradients_of_two(Op op) {
  std::mt19937 random(5);
  for (const std::size_t n : {1, 2, 5, 33, 100}) {
    for (const double alpha : kOrders) {
      if (std::is_same_v<Op, AlphaDivergence> ? std::isinf(alpha) : alpha < 0) continue;
      const std::vector<T> p = given(op, weights<T>(random, n));
      for (const std::vector<T>& q : {given(op, weights<T>(random, n)), p}) {
        const std::vector<double> alphas = {alpha, 2};
        std::vector<T> two(p), other(q), dp(2 * n), dq(2 * n);
        two.insert(two.end(), p.begin(), p.end()), other.insert(other.end(), q.begin(), q.end());
        std::vector<double> value(2), slope(2), alone(2);
        const PerRow per_row[] = {{"alpha", alphas}};
        const MatrixView<const T> x(two.data(), 2, n), y(other.data(), 2, n), one(q.data(), 1, n);
        measure(Divergence(op), x, y, value, {dp.data(), 2, n}, {dq.data(), 2, n}, per_row,
                std::vector<ParamGradient>{{"alpha", slope}});
        measure(Divergence(op), x, one, value, {}, {}, per_row, std::vector<ParamGradient>{{"alpha", alone}});
        ASSERT_EQ(slope, alone);
        op.alpha = alpha;
        ASSERT_EQ(value[0], value_of(op, p, q));
        if (p == q) {
          ASSERT_EQ(slope[0], 0);
          continue;
        }
        const auto of = [&](const std::vector<T>& row) {
          return oracle::distribution(Input::probs, true, oracle::distribution(op.input, op.normalize, wide(row)));
        };
        const double unit = op.base ? std::log(*op.base) : 1;
        const long double want = order_slope(op, of(p), of(q)) / unit;
        // Sums that are not quite 1; orders nearly 0 or 1, where the definition cancels.
        const double lack = sizeof(T) == 4 && op.input != Input::scores && !op.normalize ? 1e-5 : 0;
        const double cancelled = std::abs(alpha - 1) < 1e-4 || std::abs(alpha) < 1e-4 ? 1e-7 : 1e-9;
        ASSERT_LE(std::abs(slope[0] - want), (cancelled + lack) * (1 + std::abs(static_cast<double>(want))))
            << Described<Op>::kDescription.name << " alpha " << alpha << " n " << n << " input " << static_cast<int>(op.input)
            << ": " << slope[0] << ", not " << static_cast<double>(want);
      }
    }
  }
}

TEST(Measures, GradientsInTheOrderOfADivergence) {
  support::for_each_target([&](const std::string&) {
    for (const Input input : {Input::probs, Input::log_probs, Input::scores}) {
      for (const bool normalize : {false, true}) {
        const std::optional<double> base = normalize ? std::optional<double>(2) : std::nullopt;
        check_order_gradients_of_two<RenyiDivergence, double>({.base = base, .input = input, .normalize = normalize});
        check_order_gradients_of_two<AlphaDivergence, double>({.base = base, .input = input, .normalize = normalize});
        check_order_gradients_of_two<RenyiDivergence, float>({.base = base, .input = input, .normalize = normalize});
        check_order_gradients_of_two<AlphaDivergence, float>({.base = base, .input = input, .normalize = normalize});
      }
    }
  });
}

TEST(Measures, GradientsAtZeros) {
  const std::vector<double> p = {0.5, 0.5, 0}, q = {0.25, 0.75, 0}, x = {1, 2, -kInfinity}, y = {0, 3, -kInfinity};
  std::vector<double> dp(3), dq(3);
  double value;
  for_each_operation<Divergence>([&]<class Op>(std::type_identity<Op>) {
    Op op;
    measure(op, row(p), row(q), {&value, 1}, row(dp), row(dq));
    EXPECT_EQ(dp[2], 0) << Described<Op>::kDescription.name;
    EXPECT_EQ(dq[2], 0) << Described<Op>::kDescription.name;
    op.input = Input::scores;
    measure(op, row(x), row(y), {&value, 1}, row(dp), row(dq));
    EXPECT_EQ(dp[2], 0) << Described<Op>::kDescription.name;
    EXPECT_EQ(dq[2], 0) << Described<Op>::kDescription.name;
    EXPECT_NEAR(dp[0] + dp[1], 0, 1e-15) << Described<Op>::kDescription.name;
    measure(op, row(x), row(x), {&value, 1}, row(dp), row(dq));
    if (!std::is_same_v<Op, CrossEntropy>) {
      EXPECT_EQ(value, 0) << Described<Op>::kDescription.name;
    }
    for (const double entry : dp) {
      EXPECT_TRUE((entry == 0 || std::is_same_v<Op, CrossEntropy>)) << Described<Op>::kDescription.name;
    }
  });
  for_each_variant<Measure>([&](auto op) {
    if (op.input != Input::scores) return;
    for (const std::vector<double>& scores :
         {x, std::vector<double>{0, -800, 1e4}, std::vector<double>{kInfinity, 0, kInfinity}}) {
      measure(op, row(scores), {&value, 1}, row(dp));
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(dp[i])) << description_of(op).name;
    }
    EXPECT_EQ(dp, std::vector<double>(3, 0.0));
  });
  measure(Entropy{}, row(p), {&value, 1}, row(dp));
  EXPECT_EQ(dp[2], kInfinity);  // so it is
  measure(Entropy{.input = Input::log_probs}, row(std::vector<double>{std::log(0.5), std::log(0.5), -kInfinity}), {&value, 1},
          row(dp));
  EXPECT_EQ(dp[2], 0);
}

// At a small order a probability that underflows counts, if its logarithm is known.
TEST(Measures, OrdersOfProbabilitiesThatUnderflow) {
  for (const Input input : {Input::scores, Input::log_probs}) {
    for (const double low : {-744.0, -746.0, -1000.0, -1e5}) {
      const std::vector<double> x = {0, low, low};
      for (const double alpha : {1e-3, 0.02, 0.5}) {
        const double sum = 1 + 2 * std::exp(alpha * low);
        EXPECT_NEAR(value_of(TsallisEntropy{.alpha = alpha, .input = input}, x), (sum - 1) / (1 - alpha), 1e-14) << low;
        EXPECT_NEAR(value_of(RenyiEntropy{.alpha = alpha, .input = input}, x), std::log(sum) / (1 - alpha), 1e-14) << low;
      }
    }
  }
  EXPECT_FALSE(std::signbit(value_of(TsallisEntropy{.alpha = 0.5}, std::vector<double>{1, 0})));
}

// Just below alpha = 1 the derivative at a zero is infinite, as it is at 1.
TEST(Measures, GradientsAtZerosNearOrderOne) {
  for (const double alpha : {1 - 1e-4, 1 - 1e-9, 1 - 1e-13}) {
    const auto check = [&](const auto& op) {
      const std::vector<double> p = {0.25, 0, 0.75};
      std::vector<double> dp(3);
      double value;
      measure(op, row(p), {&value, 1}, row(dp));
      EXPECT_EQ(dp[1], kInfinity) << alpha;
      for (const std::size_t i : {0, 2}) EXPECT_NEAR(dp[i], -std::log(p[i]) - 1, 2e-3) << alpha;
    };
    check(TsallisEntropy{.alpha = alpha});
    check(RenyiEntropy{.alpha = alpha});
  }
}

TEST(Measures, JensenShannonIsBounded) {
  const auto check = [&]<class T>(T) {
    const std::vector<T> p = {1, 0}, q = {0, 1};
    EXPECT_LE(static_cast<double>(static_cast<T>(value_of(JsDivergence{}, p, q))), std::log(2.0));
    EXPECT_NEAR(value_of(JsDivergence{}, p, q), std::log(2.0), sizeof(T) == 4 ? 1e-7 : 1e-16);
    EXPECT_EQ(value_of(JsDivergence{.base = 2}, p, q), 1);
    EXPECT_EQ(value_of(JsDistance{.base = 2}, p, q), 1);
  };
  check(float{});
  check(double{});
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const auto p = weights<double>(random, 50), q = weights<double>(random, 50);
    const double js = value_of(JsDivergence{}, p, q);
    EXPECT_LE(js, std::log(2.0));
    EXPECT_EQ(js, value_of(JsDivergence{}, q, p));
  }
}

TEST(Measures, ProductsSayNothing) {
  std::mt19937 random(6);
  for (const std::size_t rows : {2, 10, 300}) {
    for (const std::size_t cols : {3, 64, 500}) {
      const auto x = weights<double>(random, rows), y = weights<double>(random, cols);
      std::vector<double> table(rows * cols), scores(rows * cols);
      for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = x[i / cols] * y[i % cols];
        scores[i] = std::log(x[i / cols]) + std::log(y[i % cols]);
      }
      const double information = measure(MutualInformation{}, MatrixView<const double>(table.data(), rows, cols));
      EXPECT_GE(information, 0);
      EXPECT_LT(information, 1e-28);
      const double of_scores =
          measure(MutualInformation{.input = Input::scores}, MatrixView<const double>(scores.data(), rows, cols));
      EXPECT_LT(of_scores, 1e-28);
    }
  }
  // Mass in one corner whose marginals' product is below any double.
  const std::vector<double> corner = {1, 0, 0, 1e-200};
  EXPECT_NEAR(measure(MutualInformation{}, MatrixView<const double>(corner.data(), 2, 2)) / (1e-200 * (std::log(1e200) + 1)), 1,
              1e-12);
}

// The same bits on every target with FMA, for any batch, number of threads, and one q for all.
TEST(Measures, Reproducible) {
  std::mt19937 random(7);
  const std::size_t rows = 40, n = 1031;
  std::vector<double> p, q = weights<double>(random, n);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto one = weights<double>(random, n);
    p.insert(p.end(), one.begin(), one.end());
  }
  std::vector<double> repeated;
  for (std::size_t r = 0; r < rows; ++r) repeated.insert(repeated.end(), q.begin(), q.end());
  const MatrixView<const double> all(p.data(), rows, n), others(repeated.data(), rows, n);
  std::vector<std::vector<double>> first;
  for (const std::string& target : support::fma_targets()) {
    force_simd_target(target);
    std::vector<std::vector<double>> results;
    for_each_variant<Measure>([&](auto op) {
      op.input = Input::probs;
      op.normalize = true;
      std::vector<double> value(rows);
      measure(op, all, value);
      for (std::size_t r : {0, 17}) {
        const std::vector<double> alone(p.begin() + r * n, p.begin() + (r + 1) * n);
        EXPECT_EQ(value_of(op, alone), value[r]);
      }
      results.push_back(value);
    });
    for_each_variant<Divergence>([&](auto op) {
      op.input = op.input == Input::log_probs ? Input::scores : op.input;
      std::vector<double> value(rows), same(rows), dp(rows * n), dq(rows * n);
      set_num_threads(1);
      measure(op, all, row(std::as_const(q)), value, MatrixView<double>(dp.data(), rows, n));
      set_num_threads(4);
      measure(op, all, others, same, {}, MatrixView<double>(dq.data(), rows, n));
      set_num_threads(0);
      EXPECT_TRUE(value == same);
      results.insert(results.end(), {value, dp, dq});
    });
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(std::memcmp(results[i].data(), first[i].data(), 8 * results[i].size()), 0) << target << " result " << i;
    }
  }
  force_simd_target("");
}

TEST(Measures, ScoresThatAreNone) {
  for_each_variant<Measure>([&](auto op) {
    op.input = Input::scores;
    EXPECT_TRUE(std::isnan(value_of(op, std::vector<double>{1, kNaN, 2})));
    EXPECT_TRUE(std::isnan(value_of(op, std::vector<double>{1, kNaN, kInfinity})));
    EXPECT_TRUE(std::isnan(value_of(op, std::vector<double>(3, -kInfinity))));
    EXPECT_TRUE(std::isnan(value_of(op, std::vector<double>())));
    const std::vector<double> ties = {kInfinity, 0, kInfinity, -kInfinity}, two = {3, 3};
    EXPECT_NEAR(value_of(op, ties), value_of(op, two), 1e-15);
  });
  for (const Divergence& op :
       {Divergence(KlDivergence{.input = Input::scores}), Divergence(JsDistance{.input = Input::scores})}) {
    EXPECT_TRUE(std::isnan(value_of(op, std::vector<double>{1, kNaN}, std::vector<double>{1, 2})));
    EXPECT_TRUE(std::isnan(value_of(op, std::vector<double>{1, 2}, std::vector<double>{kNaN, 2})));
  }
  // p > 0 = q, although p is too small for a double.
  const std::vector<double> x = {0, -1e5}, y = {0, -kInfinity};
  EXPECT_EQ(value_of(KlDivergence{.input = Input::scores}, x, y), kInfinity);
  EXPECT_EQ(value_of(CrossEntropy{.input = Input::scores}, x, y), kInfinity);
  EXPECT_EQ(value_of(KlDivergence{.input = Input::scores}, y, x), 0);
  EXPECT_EQ(value_of(CrossEntropy{.input = Input::scores}, std::vector<double>{0, 0}, std::vector<double>{0, -1e300}), 5e299);
}

TEST(Measures, HalvesAreFloats) {
  const std::vector<float> p = {0.5f, 0.25f, 0.125f, 0.125f}, q = {0.25f, 0.25f, 0.25f, 0.25f};
  const auto check = [&]<class H>(H) {
    std::vector<H> hp, hq, dp(4), dq(4);
    for (const float pi : p) hp.emplace_back(pi);
    for (const float qi : q) hq.emplace_back(qi);
    EXPECT_NEAR(value_of(Entropy{.base = 2}, hp), 1.75, 1e-6);
    double value;
    measure(KlDivergence{.base = 2}, row(std::as_const(hp)), row(std::as_const(hq)), {&value, 1}, row(dp), row(dq));
    EXPECT_DOUBLE_EQ(value, 0.25);
    EXPECT_EQ(static_cast<float>(dp[0]), 1);
    EXPECT_EQ(measure(JointEntropy{.base = 2}, MatrixView<const H>(hp.data(), 2, 2)), 1.75);
    measure(SelfInformation{.base = 2}, row(std::as_const(hp)), row(dp));
    EXPECT_EQ(static_cast<float>(dp[2]), 3);
    hp[0] = H(0.507f);  // within 1e-2
    EXPECT_GT(value_of(Entropy{}, hp), 1);
    hp[0] = H(0.53f);
    EXPECT_THROW(value_of(Entropy{}, hp), std::invalid_argument);
  };
  check(float16{});
  check(bfloat16{});
}

TEST(Measures, InPlaceAndAtTheEndOfMemory) {
  for (const std::size_t n : {1, 5, 16, 33}) {
    std::mt19937 random(8);
    const auto p = weights<float>(random, n), q = weights<float>(random, n);
    support::Guarded<float> a(n), b(n);
    std::vector<float> dp(n), dq(n);
    double value, same;
    measure(JsDivergence{}, row(p), row(q), {&value, 1}, row(dp), row(dq));
    std::copy(p.begin(), p.end(), a.data());
    std::copy(q.begin(), q.end(), b.data());
    const MatrixView<float> in_a(a.data(), 1, n), in_b(b.data(), 1, n);
    measure(JsDivergence{}, MatrixView<const float>(in_a), in_b, {&same, 1}, in_a, in_b);
    EXPECT_EQ(value, same);
    EXPECT_TRUE(std::equal(dp.begin(), dp.end(), a.data()));
    EXPECT_TRUE(std::equal(dq.begin(), dq.end(), b.data()));
  }
  std::vector<double> p = {0.5, 0.25, 0.25}, dp(3);
  double value;
  measure(Entropy{}, row(std::as_const(p)), {&value, 1}, row(dp));
  measure(Entropy{}, row(std::as_const(p)), {&value, 1}, row(p));
  EXPECT_EQ(p, dp);
}

TEST(Measures, Refused) {
  const auto of = [](std::vector<double> p) { return [p] { value_of(Entropy{}, p); }; };
  expect_error("entropy: p must be at least 0 and finite, got -0.5 at entry 1 in row 0 (input scores takes scores)",
               of({1.5, -0.5}));
  expect_error("entropy: p must be at least 0 and finite, got nan at entry 0 in row 0 (input scores takes scores)",
               of({kNaN, 1}));
  expect_error("entropy: p must be at least 0 and finite, got inf at entry 1 in row 0 (input scores takes scores)",
               of({1, kInfinity}));
  expect_error("entropy: p must sum to 1 within 1e-06, got 0.75 in row 0 (normalize divides by the sum)", of({0.5, 0.25}));
  expect_error("entropy: base must be above 1 and finite, got 1",
               [&] { value_of(Entropy{.base = 1}, std::vector<double>{1}); });
  expect_error("entropy: p must have an entry above 0, got none in row 0", [&] {
    value_of(Entropy{.normalize = true}, std::vector<double>{0, 0});
  });
  expect_error("entropy: exp of p must sum to 1 within 1e-06, got 2 in row 0 (normalize divides by the sum)", [&] {
    value_of(Entropy{.input = Input::log_probs}, std::vector<double>{0, 0});
  });
  expect_error("entropy: p must be a logarithm below inf, got inf at entry 1 in row 0", [&] {
    value_of(Entropy{.input = Input::log_probs}, std::vector<double>{0, kInfinity});
  });
  expect_error("renyi_entropy: alpha must be at least 0 (inf is allowed), got -1",
               [&] { value_of(RenyiEntropy{.alpha = -1}, std::vector<double>{1}); });
  expect_error("kl_divergence: q must be at least 0 and finite, got -1 at entry 0 in row 0 (input scores takes scores)", [&] {
    value_of(KlDivergence{}, std::vector<double>{0.5, 0.5}, std::vector<double>{-1, 2});
  });
  expect_error("kl_divergence: dp must share no memory with dq, got views that overlap", [&] {
    const std::vector<double> p = {0.5, 0.5}, q = {0.25, 0.75};
    std::vector<double> both(3), value(1);
    measure(KlDivergence{}, row(p), row(q), value, MatrixView<double>(both.data(), 1, 2),
            MatrixView<double>(both.data() + 1, 1, 2));
  });
  expect_error("kl_divergence: q must have the shape of p, or one row for all, 1 x 2, got 1 x 1", [&] {
    value_of(KlDivergence{}, std::vector<double>{0.5, 0.5}, std::vector<double>{1});
  });
  const std::vector<double> table = {0.5, 0.5, -0.25, 0.25}, p = {1.5};
  expect_error("mutual_information: pxy must be at least 0 and finite, got -0.25 at column 0 in row 1",
               [&] { measure(MutualInformation{}, MatrixView<const double>(table.data(), 2, 2)); });
  std::vector<double> value(1), two(2);
  expect_error("binary_entropy: p must be in [0, 1], got 1.5 at entry 0 in row 0",
               [&] { measure(BinaryEntropy{}, row(p), row(value)); });
  expect_error("entropy: value must have one entry for each of 1 rows, got 2", [&] { measure(Entropy{}, row(p), two); });
  // Nothing is written.
  const std::vector<double> rows = {0.5, 0.5, 0.5, 0.6};
  std::vector<double> values = {7, 7}, dp(4, 7.0);
  EXPECT_THROW(measure(Entropy{}, MatrixView<const double>(rows.data(), 2, 2), values, MatrixView<double>(dp.data(), 2, 2)),
               std::invalid_argument);
  EXPECT_EQ(values, (std::vector<double>{7, 7}));
  EXPECT_EQ(dp, std::vector<double>(4, 7.0));
}

TEST(Counts, ChunksAddUp) {
  Counts a(3), b(3), all(3);
  const std::vector<std::int64_t> first = {0, 2, 2}, second = {1, 0, 2, 2};
  a.add(first);
  b.add(second);
  all.add(first);
  all.add(second);
  a.merge(b);
  EXPECT_TRUE(std::equal(a.weights().data, a.weights().data + 3, all.weights().data));
  double value;
  measure(Entropy{.normalize = true}, a.weights(), {&value, 1});
  const std::vector<double> p = {2.0 / 7, 1.0 / 7, 4.0 / 7};
  EXPECT_NEAR(value, value_of(Entropy{.normalize = true}, p), 1e-15);
  Counts table(2, 2);
  const std::vector<std::int64_t> x = {0, 1, 0, 1}, y = {1, 0, 1, 0};
  table.add(x, y);
  EXPECT_EQ(measure(MutualInformation{.base = 2, .normalize = true}, table.weights()), 1);
  expect_error("Counts: outcomes must be at least 0 and below 3, got 3", [&] { a.add(std::vector<std::int64_t>{1, 3}); });
  const std::vector<std::int64_t> zeros(4), beyond = {0, 1, 2, 0};
  EXPECT_THROW(Counts(std::size_t{1} << 40, std::size_t{1} << 40), std::invalid_argument);  // 2^80 weights
  expect_error("Counts: x must be at least 0 and below 2, got 2", [&] { table.add(beyond, zeros); });
  expect_error("Counts: y must be at least 0 and below 2, got 2", [&] { table.add(zeros, beyond); });
  expect_error("Counts: y must have as many outcomes as x, 4, got 3", [&] { table.add(x, first); });
  expect_error("Counts: other must have the same outcomes, 1 x 3, got 2 x 2", [&] { a.merge(table); });
  Counts wide(2, 3), high(3, 2);
  expect_error("Counts: other must have the same outcomes, 2 x 3, got 3 x 2", [&] { wide.merge(high); });
  EXPECT_TRUE(std::equal(a.weights().data, a.weights().data + 3, all.weights().data));
}

}  // namespace
}  // namespace isentropic

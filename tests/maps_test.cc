// Properties of every map, for every element type, SIMD target and generated row.

#include "entropic/maps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "entropic/operation.h"
#include "entropic/threads.h"
#include "tests/oracle/maps.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/guarded.h"
#include "tests/support/targets.h"

namespace entropic {
namespace {

using support::Case;
using support::expect_error;

template <class T>
constexpr double kEpsilon = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// The family as its tables list it.
std::span<const OperationInfo> maps() { return family_info<Map>().operations; }

Map typical(const OperationInfo& info) { return make<Map>(info, typical_values(info)); }

bool is_input(const ParamInfo& param) { return param.name == "input"; }

// Values of every declared parameter: the default and others across its range. A parameter that a kernel ignores, or
// that only its default tests, would show in the comparison with the oracle. What says that x is no scores is left to the tests
// of Inputs: the rows here are scores.
std::vector<Map> variants(const OperationInfo& info) {
  const std::vector<ParamValue> initial = typical_values(info);
  std::vector<Map> ops = {typical(info)};
  const auto words = [&](std::size_t i) { return is_input(info.params[i]) ? 0 : info.params[i].choices.size(); };
  for (std::size_t i = 0; i < info.params.size(); ++i) {
    for (std::size_t word = 1; word < words(i); ++word) {
      std::vector<ParamValue> values = initial;
      values[i] = std::string(info.params[i].choices[word]);
      ops.push_back(make<Map>(info, values));
    }
    if (info.params[i].kind == ParamKind::choice) continue;
    std::size_t turn = 0;
    for (const double value : {0.25, 0.7, 1.0, 3.0, 6.0, 150.0}) {
      std::vector<ParamValue> values = initial;
      // Each with another word of the parameters that are words: a number may be ignored after some of them.
      for (std::size_t j = 0; j < info.params.size(); ++j) {
        if (words(j) > 0) values[j] = std::string(info.params[j].choices[++turn % words(j)]);
      }
      values[i] = info.params[i].kind == ParamKind::integer ? ParamValue(static_cast<std::int64_t>(value)) : ParamValue(value);
      const Map op = make<Map>(info, values);
      bool accepted = true;
      try {
        apply(op, MatrixView<const float>(), MatrixView<float>());
      } catch (const std::invalid_argument&) {
        accepted = false;
      }
      if (accepted && to_text(values[i]) != to_text(initial[i])) ops.push_back(op);
    }
  }
  return ops;
}

// The member of a map that it has by one of these names, or null.
double* divisor(Map& map) {  // of the scores
  return std::visit(
      [](auto& op) -> double* {
        if constexpr (requires { op.temperature; }) {
          return &op.temperature;
        } else if constexpr (requires { op.scale; }) {
          return &op.scale;
        } else {
          return nullptr;
        }
      },
      map);
}
double temperature_of(Map map) { return divisor(map) ? *divisor(map) : 1; }
double alpha_of(const Map& map) {
  const Entmax* const entmax = std::get_if<Entmax>(&map);
  return entmax ? entmax->alpha : 1;
}
Input* input_of(Map& map) {
  return std::visit(
      [](auto& op) -> Input* {
        if constexpr (requires { op.input; }) {
          return &op.input;
        } else {
          return nullptr;
        }
      },
      map);
}
Map with_input(Map map, Input input) {
  *input_of(map) = input;
  return map;
}

std::string_view name_of(const Map& map) { return description_of(map).name; }

// The error that the map's method has, beside rounding.
template <class T>
double method_error(const Map& map, std::size_t n) {
  return sizeof(T) == 4 || n > 1000 ? laws_of(map).float_error : laws_of(map).double_error;
}

// body(op, type tag) for every map, variant and element type.
template <class Body>
void for_each_variant(Body&& body) {
  for (const OperationInfo& info : maps()) {
    SCOPED_TRACE(std::string(info.name));
    for (const Map& op : variants(info)) {
      body(op, float{});
      body(op, double{});
    }
  }
}

// The same on every target.
template <class Body>
void for_each_map(Body&& body) {
  support::for_each_target([&](const std::string&) { for_each_variant(body); });
}

template <class T>
std::vector<T> run(const Map& op, const std::vector<T>& x) {
  support::Guarded<T> in(x.size()), out(x.size());
  std::copy(x.begin(), x.end(), in.data());
  apply(op, MatrixView<const T>(in.data(), 1, x.size()), MatrixView<T>(out.data(), 1, x.size()));
  EXPECT_TRUE(std::equal(x.begin(), x.end(), in.data(), [](T a, T b) { return a == b || (a != a && b != b); }))
      << "input changed";
  return {out.data(), out.data() + x.size()};
}

template <class T>
std::vector<T> run_vjp(const Map& op, const std::vector<T>& x, const std::vector<T>& p, const std::vector<T>& g) {
  support::Guarded<T> dx(x.size());
  const auto view = [](const std::vector<T>& v) { return MatrixView<const T>(v.data(), 1, v.size()); };
  apply_vjp(op, view(x), view(p), view(g), MatrixView<T>(dx.data(), 1, x.size()));
  return {dx.data(), dx.data() + x.size()};
}

oracle::Row wide(const auto& x) { return oracle::Row(x.begin(), x.end()); }

// The stated error of each entry, see Description.
template <class T>
oracle::Row tolerances(const Map& op, const oracle::Row& p) {
  const long double log_max = std::log(*std::max_element(p.begin(), p.end()));
  const auto distance = [&](std::size_t i) { return p[i] > 0 ? log_max - std::log(p[i]) : 0; };
  long double mean = 0;
  for (std::size_t i = 0; i < p.size(); ++i) mean += p[i] * distance(i);
  oracle::Row bounds;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const long double relative = (8 + 3 * (distance(i) + mean)) * p[i] + std::numeric_limits<T>::min() / kEpsilon<T>;
    const long double rounding = (laws_of(op).absolute_error > 0 ? laws_of(op).absolute_error : relative) * kEpsilon<T>;
    const long double method = method_error<T>(op, p.size());
    bounds.push_back(method > 0 ? method : rounding);
  }
  if (laws_of(op).entropy_target) {
    // p ~ p^(1 + c): dH = -c Var(log p) to first order, and near the uniform distribution H = log n - Var(log p) / 2.
    const long double h = oracle::entropy(p), error = (sizeof(T) == 4 ? 1e-6L : 1e-12L) * std::max(1.0L, h);
    long double variance = 0;
    for (const long double mass : p) variance += mass > 0 ? mass * (std::log(mass) + h) * (std::log(mass) + h) : 0;
    for (std::size_t i = 0; i < p.size() && variance > 0; ++i) {
      const long double c = std::min(error / variance, std::sqrt(2 * error / variance));
      if (p[i] > 0) bounds[i] += c * std::abs(std::log(p[i]) + h) * p[i];
    }
  }
  return bounds;
}

// The results that agree with the definition, several where rounding may decide, and how far entries may be from each.
struct Expected {
  std::vector<oracle::Row> rows, bounds;
};

template <class T>
Expected expected(const Map& op, const oracle::Row& x) {
  Expected result = {oracle::conforming(op, x, sizeof(T) == 4 ? 0x1p-20L : 0x1p-40L), {}};
  const oracle::Row spread = oracle::spread(op, x, kEpsilon<T>);
  for (const oracle::Row& want : result.rows) {
    result.bounds.push_back(tolerances<T>(op, want));
    for (std::size_t i = 0; i < x.size(); ++i) result.bounds.back()[i] += spread[i];
  }
  return result;
}

// Whether every entry of `got` is within the stated error of one of them; if not, where it leaves the first.
template <class T>
testing::AssertionResult is_one_of(const Expected& results, const std::vector<T>& got) {
  testing::AssertionResult result = testing::AssertionSuccess();
  for (std::size_t r = 0; r < results.rows.size(); ++r) {
    const oracle::Row &want = results.rows[r], &bounds = results.bounds[r];
    std::size_t i = 0;
    while (i < want.size() && std::abs(got[i] - want[i]) <= bounds[i]) ++i;
    if (i == want.size()) return testing::AssertionSuccess();
    if (result) {
      result = testing::AssertionFailure() << "entry " << i << " is " << got[i] << ", should be " << want[i] << ", off by "
                                           << std::abs(got[i] - want[i]) / bounds[i] << " of the stated error";
    }
  }
  return result;
}

// Calls body(op, case) for every variant and case a definition is asked for. Definitions of long rows take most of the time:
// variants take turns with them, and those that cost much are left to the tests of their map.
template <class Body>
void for_each_definition(Body&& body) {
  std::size_t turn = 0;
  for_each_variant([&]<class T>(const Map& op, T) {
    for (const Case<T>& c : support::finite_cases<T>()) {
      const bool costly = description_of(op).cost > 1;
      if (costly ? c.x.size() > 100 : c.x.size() > 300 && turn++ % 5 != 0) continue;
      body(op, c);
    }
  });
}

TEST(Maps, AgreeWithTheDefinition) {
  for_each_definition([]<class T>(const Map& op, const Case<T>& c) {
    const Expected want = expected<T>(op, wide(c.x));
    support::for_each_target([&](const std::string&) { ASSERT_TRUE(is_one_of(want, run(op, c.x))) << c.name; });
  });
}

TEST(Maps, AreDistributions) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const Case<T>& c : support::finite_cases<T>()) {
      long double sum = 0;  // the sum's own rounding is not the map's
      for (const T mass : run(op, c.x)) {
        ASSERT_GE(mass, T(0)) << c.name;
        ASSERT_FALSE(std::signbit(mass)) << c.name;
        sum += mass;
      }
      const double bound = sizeof(T) == 4 ? 1e-6 : 1e-14 * std::max(1.0, std::log2(c.x.size()));
      ASSERT_LE(std::abs(sum - 1), bound) << c.name;
    }
  });
}

TEST(Maps, KeepWhatTheirLawsSay) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const Case<T>& c : support::finite_cases<T>()) {
      const std::vector<T> p = run(op, c.x);
      if (laws_of(op).order) {
        for (std::size_t i = 0; i + 1 < p.size(); ++i) {
          const T lower = c.x[i] < c.x[i + 1] ? p[i] : p[i + 1], higher = c.x[i] < c.x[i + 1] ? p[i + 1] : p[i];
          ASSERT_LE(lower, higher) << c.name << " entry " << i;
        }
      }
      for (std::size_t i = 0; i + 1 < p.size() && !laws_of(op).ties_by_index; ++i) {
        ASSERT_TRUE(c.x[i] != c.x[i + 1] || p[i] == p[i + 1]) << c.name << " entry " << i;
      }
      if (laws_of(op).shift) {
        // A shift that is exact in T: multiples of 1/16 below 2^12, moved by 2^10.
        std::vector<T> coarse = c.x, moved;
        for (T& score : coarse)
          score = std::isfinite(score) ? std::round(std::clamp(score, T(-2048), T(2048)) * 16) / 16 : score;
        for (const T score : coarse) moved.push_back(score + 1024);
        ASSERT_EQ(run(op, coarse), run(op, moved)) << c.name;
      }
    }
  });
}

TEST(Maps, PermuteWithTheirInput) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : support::kLengths) {
      std::vector<T> x = support::normal_row<T>(n, 1, 0, 3), reversed(x.rbegin(), x.rend());
      const std::vector<T> p = run(op, x), q = run(op, reversed);
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(p[i], q[n - 1 - i], 4 * kEpsilon<T>) << n;
    }
  });
}

// A power of two, so that x / T is exact.
TEST(Maps, TemperatureDividesTheScores) {
  for_each_map([]<class T>(Map op, T) {
    if (divisor(op)) {
      for (const double value : {0.25, 8.0}) {
        Map hot = op, plain = op;
        *divisor(hot) = value;
        *divisor(plain) = 1;
        const std::vector<T> x = support::normal_row<T>(300, 3, 0, 4);
        std::vector<T> divided;
        for (const T score : x) divided.push_back(static_cast<T>(score / value));
        ASSERT_EQ(run(hot, x), run(plain, divided));
      }
    }
  });
}

TEST(Maps, ExtremeTemperatures) {
  for_each_map([]<class T>(Map op, T) {
    // Where the limit of equal scores is one for any shape of the map.
    if (alpha_of(op) > 2) return;
    if (divisor(op)) {
      const T big = std::numeric_limits<T>::max();
      for (const double value : {5e-324, 1e-300, 1e-200, 1e-39, 1e-30, 1e30, 1e39, 1e200, 1e300, 1.7e308}) {
        *divisor(op) = value;
        // The last row's difference overflows T, its quotient by the temperature need not.
        for (const std::vector<T>& x :
             {std::vector<T>{1, 3, 3, T(2.999)}, std::vector<T>{1, -2, 3}, std::vector<T>{-big, big}}) {
          const oracle::Row want = oracle::map(op, wide(x));
          const std::vector<T> got = run(op, x);
          const double bound = 40 * kEpsilon<T> + method_error<T>(op, x.size());
          for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << value;
        }
      }
    }
  });
}

TEST(Maps, NaNStaysInItsRow) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : support::kLengths) {
      for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
        // Three rows, the middle one with a NaN of each sign and another payload.
        std::vector<T> x = support::normal_row<T>(3 * n, 1, 0, 5), p(3 * n);
        x[n + at] = at % 2 == 0 ? kNaN<T> : -std::numeric_limits<T>::signaling_NaN();
        apply(op, MatrixView<const T>(x.data(), 3, n), MatrixView<T>(p.data(), 3, n));
        for (std::size_t i = 0; i < 3 * n; ++i) {
          if (i / n == 1) {
            ASSERT_TRUE(std::isnan(p[i])) << n << " entry " << i;
          } else {
            ASSERT_TRUE(std::isfinite(p[i])) << n << " entry " << i;
          }
        }
        const std::vector<T> row(x.begin() + n, x.begin() + 2 * n), y(p.begin() + n, p.begin() + 2 * n), g(n, 1);
        for (const T entry : run_vjp(op, row, y, g)) ASSERT_TRUE(std::isnan(entry)) << n;
      }
    }
  });
}

// +inf scores are as if only they were there, and equal.
TEST(Maps, Infinities) {
  for_each_map([]<class T>(const Map& op, T) {
    constexpr T inf = kInfinity<T>;
    const std::vector<T> two = {1, inf, -inf, inf, 2};
    const oracle::Row want = oracle::map(op, {-HUGE_VALL, 0, -HUGE_VALL, 0, -HUGE_VALL});
    EXPECT_EQ(run(op, two), std::vector<T>(want.begin(), want.end()));
    EXPECT_EQ(run_vjp(op, two, run(op, two), {1, 2, 3, 4, 5}), std::vector<T>(5, 0));
    EXPECT_EQ(run(op, std::vector<T>{inf}), std::vector<T>{1});
    for (const T mass : run(op, std::vector<T>{inf, kNaN<T>, 0})) EXPECT_TRUE(std::isnan(mass));
    for (const std::size_t n : {1, 2, 20, 70, 300}) {
      for (const T mass : run(op, std::vector<T>(n, -inf))) EXPECT_TRUE(std::isnan(mass));
    }
  });
}

// NaN wins over +inf, also where +inf comes first.
TEST(Maps, GradientsOfRowsWithInfinityAndNaN) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : {2, 3, 72, 300}) {
      std::vector<T> x(n, T(1));
      x[0] = kInfinity<T>, x[n - 1] = kNaN<T>;
      for (const T entry : run_vjp(op, x, run(op, x), std::vector<T>(n, 1))) ASSERT_TRUE(std::isnan(entry)) << n;
    }
  });
}

// 1/T is no normal number, the gradient is one: in units of 1/T it does not depend on T where the scores are equal.
TEST(Maps, GradientsAtExtremeTemperatures) {
  for_each_map([]<class T>(Map op, T) {
    if (divisor(op)) {
      const std::vector<T> x = {2, 2, 2};
      for (const double value : {1e-44, 1e-40, 1e40, 1e44, 1e46}) {
        *divisor(op) = value;
        const std::vector<T> p = run(op, x);
        const T unit = static_cast<T>(value > 1 ? 1e20 : 1e-20);
        const std::vector<T> dx = run_vjp(op, x, p, {unit, 2 * unit, 5 * unit});
        const oracle::Row want = oracle::vjp(op, {2, 2, 2}, {unit, 2 * unit, 5 * unit});
        for (std::size_t i = 0; i < 3; ++i) {
          const T nearest = static_cast<T>(want[i]);
          ASSERT_TRUE(dx[i] == nearest || std::abs(dx[i] - nearest) <= 1e-5 * std::abs(want[i])) << value;
        }
      }
    }
  });
}

// A -inf score acts as if its entry were not there: same bits for the rest would need the same sums, so to rounding.
TEST(Maps, MinusInfinityIsAbsent) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : support::kLengths) {
      const std::vector<T> x = support::normal_row<T>(n, 1, 0, 6), g = support::normal_row<T>(n, 1, 0, 7);
      std::vector<T> masked(2 * n, -kInfinity<T>), masked_g(2 * n, kNaN<T>);
      for (std::size_t i = 0; i < n; ++i) masked[2 * i] = x[i], masked_g[2 * i] = g[i];
      const std::vector<T> p = run(op, x), q = run(op, masked);
      const std::vector<T> dx = run_vjp(op, x, p, g), dq = run_vjp(op, masked, q, masked_g);
      const double gamma = static_cast<double>(oracle::gamma(op, wide(x)));
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(q[2 * i], p[i], 4 * kEpsilon<T>) << n;
        ASSERT_EQ(q[2 * i + 1], T(0)) << n;
        ASSERT_NEAR(dq[2 * i], dx[i], 16 * kEpsilon<T> * gamma) << n;
        ASSERT_EQ(dq[2 * i + 1], T(0)) << n;
      }
    }
  });
}

TEST(Maps, OneScoreHasAllTheMass) {
  for_each_map([]<class T>(const Map& op, T) {
    std::vector<T> scores = support::normal_row<T>(200, 3, 0, 17);
    scores.insert(scores.end(), {T(0), T(-1e30), T(1e30), T(3.7), T(0.5)});
    for (const T score : scores) {
      ASSERT_EQ(run(op, std::vector<T>{score}), std::vector<T>{1}) << score;
      if (score < T(1e20)) {
        ASSERT_EQ(run(op, std::vector<T>{-kInfinity<T>, score})[1], T(1)) << score;
      }
    }
  });
}

TEST(Maps, GradientsAgreeWithTheDefinition) {
  for_each_definition([]<class T>(const Map& op, const Case<T>& c) {
    const std::vector<T> g = support::normal_row<T>(c.x.size(), 1, 0, 11);
    const oracle::Row x = wide(c.x), p = oracle::map(op, x);
    const std::vector<T> y(p.begin(), p.end());
    const oracle::Row want = oracle::vjp(op, x, wide(y), wide(g));
    const long double gamma = oracle::gamma(op, x);
    if (gamma > std::numeric_limits<T>::max() / 16) return;  // and so would be the gradient
    long double largest = 1;
    for (const long double entry : want) largest = std::max(largest, std::abs(entry) / gamma);
    largest *= std::max(alpha_of(op), 1.0);  // the error of p^(2 - alpha)
    support::for_each_target([&](const std::string&) {
      // Given the oracle's p, so that only the gradient's own error shows: each is at most |g| <= 5 away from the mean.
      const std::vector<T> got = run_vjp(op, c.x, y, g);
      const double bound = 40 * std::max(kEpsilon<T>, method_error<T>(op, c.x.size()));
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(static_cast<T>(want[i])) && got[i] == static_cast<T>(want[i])) continue;
        ASSERT_LE(std::abs(got[i] - want[i]), bound * largest * gamma) << c.name << " entry " << i;
      }
    });
  });
}

// The definition's gradient itself, against central differences of the definition.
TEST(Maps, OracleGradientsAreDerivatives) {
  for (const OperationInfo& info : maps()) {
    for (const Map& op : variants(info)) {
      const oracle::Row x = wide(support::normal_row<double>(7, 0.4 * temperature_of(op), 0, 12));
      const oracle::Row g = wide(support::normal_row<double>(7, 1, 0, 13));
      const oracle::Row dx = oracle::vjp(op, x, g);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const long double h = 1e-7L * temperature_of(op);
        oracle::Row up = x, down = x;
        up[i] += h, down[i] -= h;
        const oracle::Row p = oracle::map(op, up), q = oracle::map(op, down);
        long double slope = 0;
        for (std::size_t j = 0; j < x.size(); ++j) slope += g[j] * (p[j] - q[j]) / (2 * h);
        ASSERT_NEAR(slope * temperature_of(op), dx[i] * temperature_of(op), 1e-9) << name_of(op);
      }
    }
  }
}

// Padding stays as it was, views may interleave, the output may be the input.
TEST(Maps, Layouts) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : {1, 5, 16, 64, 67, 300}) {
      const std::size_t rows = 19, stride = 2 * n + 3;
      std::vector<T> memory = support::normal_row<T>(rows * stride, 1, 0, 14);
      const std::vector<T> before = memory;
      const MatrixView<T> x(memory.data(), rows, n, stride), p(memory.data() + n + 1, rows, n, stride);
      apply(op, x, p);
      for (std::size_t r = 0; r < rows; ++r) {
        const std::vector<T> want = run(op, std::vector<T>(before.begin() + r * stride, before.begin() + r * stride + n));
        for (std::size_t i = 0; i < stride; ++i) {
          const bool written = i >= n + 1 && i < 2 * n + 1;
          ASSERT_EQ(memory[r * stride + i], written ? want[i - n - 1] : before[r * stride + i])
              << "row " << r << " column " << i;
        }
      }
      std::vector<T> in_place = before;
      apply(op, MatrixView<const T>(in_place.data(), rows, n, stride), MatrixView<T>(in_place.data(), rows, n, stride));
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(in_place[r * stride + i], memory[r * stride + n + 1 + i]);
      }
      // The gradient over g, over p and over x.
      const std::vector<T> px(memory.begin() + n + 1, memory.begin() + 2 * n + 1), row(before.begin(), before.begin() + n);
      const std::vector<T> g = support::normal_row<T>(n, 1, 0, 15), want = run_vjp(op, row, px, g);
      for (int which = 0; which < 3; ++which) {
        std::vector<T> xs = row, ps = px, gs = g;
        std::vector<T>& out = which == 0 ? xs : which == 1 ? ps : gs;
        const auto view = [&](std::vector<T>& v) { return MatrixView<T>(v.data(), 1, n); };
        apply_vjp(op, view(xs), view(ps), view(gs), view(out));
        ASSERT_EQ(out, want) << "dx over argument " << which;
      }
    }
  });
}

template <class T>
std::vector<T> reproducibility_batch(std::size_t rows, std::size_t n) {
  std::vector<T> x = support::normal_row<T>(rows * n, 2, 0, 16);
  for (std::size_t i = 0; i < x.size(); i += 37) x[i] = -kInfinity<T>;
  return x;
}

// The same bits for any number of threads, any batch, any place in it, and every target with FMA.
TEST(Maps, BitsDependOnTheRowAlone) {
  const std::vector<std::string> targets = support::fma_targets();
  for (const OperationInfo& info : maps()) {
    for (const Map& op : variants(info)) {
      const auto check = [&]<class T>(T) {
        for (const std::size_t n : {2, 3, 10, 16, 33, 64, 65, 100, 256, 700, 5000}) {
          // What takes long enough in shorter rows is shared out in them.
          if (n * description_of(op).cost > 100000) continue;
          const std::size_t rows = 23;
          const std::vector<T> x = reproducibility_batch<T>(rows, n);
          const std::vector<T> g = support::normal_row<T>(rows * n, 1, 0, 17);
          std::vector<T> want(rows * n), want_dx(rows * n);
          force_simd_target("");
          for (std::size_t r = 0; r < rows; ++r) {
            const MatrixView<const T> row(x.data() + r * n, 1, n), gr(g.data() + r * n, 1, n);
            const MatrixView<T> p(want.data() + r * n, 1, n);
            apply(op, row, p);
            apply_vjp(op, row, p, gr, MatrixView<T>(want_dx.data() + r * n, 1, n));
          }
          // Enough rows that they are shared out: the batch again and again, at another place each time.
          const std::size_t copies = 1 + 200000 / description_of(op).cost / (rows * n);
          std::vector<T> many, many_g, p(copies * rows * n), dx(copies * rows * n);
          for (std::size_t c = 0; c < copies; ++c) {
            many.insert(many.end(), x.begin(), x.end());
            many_g.insert(many_g.end(), g.begin(), g.end());
          }
          for (const std::string& target : targets) {
            force_simd_target(target);
            for (const std::size_t threads : {1, 5}) {
              set_num_threads(threads);
              std::fill(p.begin(), p.end(), T(-1));
              std::fill(dx.begin(), dx.end(), T(-1));
              apply(op, MatrixView<const T>(many.data(), copies * rows, n), MatrixView<T>(p.data(), copies * rows, n));
              apply_vjp(op, MatrixView<const T>(many.data(), copies * rows, n), MatrixView<const T>(p.data(), copies * rows, n),
                        MatrixView<const T>(many_g.data(), copies * rows, n), MatrixView<T>(dx.data(), copies * rows, n));
              for (std::size_t c = 0; c < copies; ++c) {
                ASSERT_EQ(std::memcmp(&p[c * rows * n], want.data(), rows * n * sizeof(T)), 0)
                    << name_of(op) << " n=" << n << " " << target << " threads=" << threads;
                ASSERT_EQ(std::memcmp(&dx[c * rows * n], want_dx.data(), rows * n * sizeof(T)), 0)
                    << name_of(op) << "_vjp n=" << n << " " << target << " threads=" << threads;
              }
            }
          }
        }
      };
      check(float{});
      check(double{});
    }
  }
  set_num_threads(0);
  force_simd_target("");
}

TEST(Maps, LongRows) {
  for (const OperationInfo& info : maps()) {
    const Map op = typical(info);
    for (const double scale : {0.0, 1e-2, 1.0, 8.0}) {
      const std::vector<float> x = support::normal_row<float>(131072, scale, 0, 18);
      const std::vector<float> got = run(op, x);
      EXPECT_TRUE(is_one_of(expected<float>(op, wide(x)), got));
      EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), 1, 1e-6) << name_of(op) << " scale " << scale;
    }
  }
}

// Batches that are written around the caches, at every alignment of a row, against the same rows alone.
TEST(Maps, LargeBatches) {
  for (const OperationInfo& info : maps()) {
    const Map op = typical(info);
    const std::size_t rows = 1100, n = 4099;
    const std::vector<float> x = support::normal_row<float>(rows * n, 1, 0, 22),
                             g = support::normal_row<float>(rows * n, 1, 0, 23);
    std::vector<float> p(rows * n), dx(rows * n), row(n);
    apply(op, MatrixView<const float>(x.data(), rows, n), MatrixView<float>(p.data(), rows, n));
    apply_vjp(op, MatrixView<const float>(x.data(), rows, n), MatrixView<const float>(p.data(), rows, n),
              MatrixView<const float>(g.data(), rows, n), MatrixView<float>(dx.data(), rows, n));
    for (std::size_t r = 0; r < rows; r += 7) {
      const auto at = [&](const std::vector<float>& batch) { return MatrixView<const float>(batch.data() + r * n, 1, n); };
      apply(op, at(x), MatrixView<float>(row.data(), 1, n));
      ASSERT_TRUE(std::equal(row.begin(), row.end(), p.begin() + r * n)) << name_of(op) << " row " << r;
      apply_vjp(op, at(x), at(p), at(g), MatrixView<float>(row.data(), 1, n));
      ASSERT_TRUE(std::equal(row.begin(), row.end(), dx.begin() + r * n)) << name_of(op) << "_vjp row " << r;
    }
  }
}

// The same with rows of every kind among each other, and columns between them that belong to others.
TEST(Maps, LargeBatchesOfSpecialRows) {
  for (const std::size_t n : {65, 250, 256, 258, 263, 513, 4099}) {
    const std::size_t rows = (std::size_t{16} << 20) / (sizeof(float) * n) + 1, stride = n + n % 3;
    std::vector<float> x = support::normal_row<float>(rows * stride, 1, 0, 28);
    std::mt19937 generator(29);
    for (std::size_t r = 0; r < rows; ++r) {
      float* const row = x.data() + r * stride;
      const auto any = [&] { return generator() % n; };
      switch (generator() % 8) {
        case 0:
          row[any()] = kNaN<float>;
          break;
        case 1:
          row[any()] = row[any()] = kInfinity<float>;
          break;
        case 2:
          std::fill(row, row + n, -kInfinity<float>);
          if (generator() % 2 == 0) row[any()] = 3;
          break;
        case 3:
          for (std::size_t i = 0; i < n; ++i) row[i] += 1e6f;
          break;
        default:
          break;
      }
    }
    support::for_each_target([&](const std::string& target) {
      std::vector<float> p(rows * stride, -1), row(n);
      apply(Softmax{}, MatrixView<const float>(x.data(), rows, n, stride), MatrixView<float>(p.data(), rows, n, stride));
      for (std::size_t r = 0; r < rows; ++r) {
        apply(Softmax{}, MatrixView<const float>(x.data() + r * stride, 1, n), MatrixView<float>(row.data(), 1, n));
        ASSERT_EQ(std::memcmp(row.data(), p.data() + r * stride, n * sizeof(float)), 0) << target << " n " << n << " row " << r;
        for (std::size_t i = n; i < stride; ++i) ASSERT_EQ(p[r * stride + i], -1);
      }
    });
  }
}

// Random rows full of ties, and long ones that mislead whoever looks at a part of them.
TEST(TopPSoftmax, KeepsTheFewestThatReachP) {
  const auto check = [&]<class T>(T) {
    const auto expect = [](const std::vector<T>& x, double temperature, const std::string& name) {
      for (const double p : {1e-9, 0.1, 0.5, 0.9, 0.95, 0.999999, 1.0}) {
        const TopPSoftmax op = {.p = p, .temperature = temperature};
        const Expected want = expected<T>(op, wide(x));
        support::for_each_target([&](const std::string& target) {
          ASSERT_TRUE(is_one_of(want, run(op, x))) << name << " n=" << x.size() << " p=" << p << " " << target;
        });
        std::set<std::vector<T>> results;
        for (const std::string& target : support::fma_targets()) {
          force_simd_target(target);
          results.insert(run(op, x));
        }
        force_simd_target("");
        ASSERT_LE(results.size(), 1u) << name << " n=" << x.size() << " p=" << p;
      }
    };
    std::mt19937 generator(24);
    for (int round = 0; round < 400; ++round) {
      const std::size_t n = 1 + generator() % (round % 8 == 0 ? 700 : 40);
      const double step = round % 3 == 0 ? 1 : round % 3 == 1 ? 0.25 : 1e-5;
      std::vector<T> x(n);
      for (T& score : x) score = static_cast<T>(std::round(std::normal_distribution<double>(0, 2)(generator) / step) * step);
      expect(x, round % 5 == 0 ? 1e30 : 1, "ties of " + std::to_string(step));
    }
    for (const std::size_t n : {16384, 20001, 33000}) {
      const std::vector<T> normal = support::normal_row<T>(n, 1, 0, 25);
      std::vector<T> sorted = normal, rounded = normal, hidden = normal, shown = normal, two(n, -4), wide_range = normal;
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 0; i < n; ++i) {
        rounded[i] = std::round(rounded[i] * 4) / 4;
        // The sample sees none of the large ones, or only these.
        hidden[i] += i % 1024 >= 16 ? 8 : 0;
        shown[i] += i % 1024 < 16 ? 8 : 0;
        two[i] = i % 7 == 3 ? 0 : -4;
        wide_range[i] *= 60;
      }
      expect(normal, 1, "normal");
      expect(normal, 1e30, "hot");
      expect(sorted, 1, "sorted");
      expect(std::vector<T>(sorted.rbegin(), sorted.rend()), 3, "falling");
      expect(rounded, 1, "rounded");
      expect(hidden, 1, "hidden");
      expect(shown, 1, "shown");
      expect(two, 1, "two values");
      expect(wide_range, 1, "wide range");
      std::vector<T> spike = support::normal_row<T>(n, 0.1, -3, 26);
      spike[n / 2 + 20] = 8;
      expect(spike, 1, "spike");
    }
  };
  check(float{});
  check(double{});
}

// Of m infinite scores the first ceil(p m) stay: of 10, with a p that is a little more than 1/10 in binary, 2.
TEST(TopPSoftmax, CutsInfiniteScores) {
  std::vector<double> x(10, kInfinity<double>), want(10, 0.0);
  want[0] = want[1] = 0.5;
  EXPECT_EQ(run(TopPSoftmax{.p = 0.1}, x), want);
  want[1] = 0, want[0] = 1;
  EXPECT_EQ(run(TopPSoftmax{.p = std::nextafter(0.1, 0)}, x), want);
  EXPECT_EQ(run(TopPSoftmax{.p = 5e-324}, x), want);
  EXPECT_EQ(run(TopPSoftmax{.p = 0.5}, std::vector<double>(4, kInfinity<double>)), (std::vector<double>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(run(TopPSoftmax{.p = 1}, x), std::vector<double>(10, 0.1));
}

// The ends that have names of their own, and no jump on the way through them.
TEST(Entmax, IsSoftmaxAtOneAndSparsemaxAtTwo) {
  support::for_each_target([](const std::string&) {
    const auto check = [&]<class T>(T) {
      for (const Case<T>& c : support::finite_cases<T>()) {
        for (const double temperature : {1.0, 0.3}) {
          const std::vector<T> softmax = run(Softmax{temperature}, c.x), sparsemax = run(Sparsemax{temperature}, c.x);
          ASSERT_EQ(run(Entmax{1, temperature}, c.x), softmax) << c.name;
          ASSERT_EQ(run(Entmax{2, temperature}, c.x), sparsemax) << c.name;
          for (const double off : {-1e-7, -1e-12, 1e-12, 1e-7}) {
            const std::vector<T> near_softmax = run(Entmax{1 + off, temperature}, c.x);
            const std::vector<T> near_sparsemax = run(Entmax{2 + off, temperature}, c.x);
            for (std::size_t i = 0; i < c.x.size(); ++i) {
              ASSERT_NEAR(near_softmax[i], softmax[i], 1e-6) << c.name << " alpha - 1 = " << off;
              ASSERT_NEAR(near_sparsemax[i], sparsemax[i], 1e-5) << c.name << " alpha - 2 = " << off;
            }
          }
        }
      }
    };
    check(float{});
    check(double{});
  });
}

// Rows on which published code for alpha = 1.5 finds no threshold, as it compares strictly where scores lie on it: [2, 0],
// [4, 2, 0] and rows of half-integers. And the same rows far from 0, where it loses its digits by not moving the maximum to 0.
TEST(Entmax, ScoresOnTheThreshold) {
  support::for_each_target([](const std::string&) {
    EXPECT_EQ(run(Entmax{}, std::vector<double>{2, 0}), (std::vector<double>{1, 0}));
    EXPECT_EQ(run(Entmax{}, std::vector<double>{4, 2, 0}), (std::vector<double>{1, 0, 0}));
    std::mt19937 generator(31);
    for (int round = 0; round < 2000; ++round) {
      std::vector<float> x(2 + generator() % 10);
      for (float& score : x) score = static_cast<float>(generator() % 17) / 2 - 4;
      const oracle::Row want = oracle::map(Entmax{}, wide(x));
      for (const float offset : {0.0f, 1e4f, 1e6f}) {
        std::vector<float> moved = x;
        for (float& score : moved) score += offset;
        const std::vector<float> got = run(Entmax{}, moved);
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i], want[i], 4 * kEpsilon<float>) << "offset " << offset;
      }
    }
  });
}

// Neighbours, many of them equal: their mean rounds to one of them, or past it.
TEST(Entmax, NeighboursEndTheSearch) {
  support::for_each_target([](const std::string&) {
    std::mt19937 generator(32);
    for (int round = 0; round < 300; ++round) {
      std::vector<double> x(20 + generator() % 200);
      double score = -1 - std::ldexp(static_cast<double>(generator() % 1000), -10);
      for (double& entry : x) {
        entry = score;
        if (generator() % 3 != 0) score = std::nextafter(score, -2.0);
      }
      long double sum = 0;
      for (const double mass : run(Entmax{.alpha = 2 + static_cast<double>(generator() % 100)}, x)) sum += mass;
      ASSERT_NEAR(sum, 1, 1e-13) << round;
    }
  });
}

// p^(2 - alpha) is infinite, what it multiplies 0: g is the same wherever there is mass.
TEST(Entmax, InfiniteSlopesOfNothingAreNothing) {
  support::for_each_target([](const std::string&) {
    const auto check = [&]<class T>(T) {
      const Entmax op = {.alpha = 4e17, .temperature = 54};
      const std::vector<T> x = {0, T(-24.25), T(-0.03125), 0, T(-418.5)}, p = run(op, x);
      for (const T g : {T(0), T(-3)}) {
        EXPECT_EQ(run_vjp(op, x, p, std::vector<T>{g, 1, 2, g, 3}), std::vector<T>(5, 0));
      }
      const std::vector<T> q = {T(0.25), T(0.375), T(0.375)}, g = {1, 2, -2};
      for (const T slope : run_vjp(op, q, q, g)) EXPECT_FALSE(std::isnan(slope));
    };
    check(float{});
    check(double{});
  });
}

// Distributions of every kind: those of scores, nearly uniform ones, whose gamma is large, entries down to the smallest number
// there is, and any sum.
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

// body(op, type tag) for every map that takes distributions, with targets in and out of reach.
template <class Body>
void for_each_input(Body&& body) {
  for_each_variant([&]<class T>(Map op, T type) {
    if (input_of(op)) body(op, type);
  });
}

// The scores of a distribution are its logarithms, whatever rounding would do to these.
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

// The same bits on every target with FMA and at any place; the output may be the input.
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

// Below x = -1 a lower score gets more mass: what the description says by order = false.
TEST(TaylorSoftmax, IsNotMonotone) {
  const std::vector<double> p = run(TaylorSoftmax{}, std::vector<double>{-1, -3});
  EXPECT_LT(p[0], p[1]);
}

TEST(PerRow, RefusesBadValues) {
  std::vector<double> x(6, 1), p(6, 7), alphas = {1, -1, 2}, few = {1, 2};
  const auto message = [&](const Map& map, PerRow given) {
    try {
      apply(map, MatrixView<const double>(x.data(), 3, 2), MatrixView<double>(p.data(), 3, 2), std::span(&given, 1));
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message(Entmax{}, {"alpha", alphas}), "entmax: alpha of row 1 must be above 0 and finite, got -1");
  EXPECT_EQ(message(Entmax{}, {"alpha", few}), "entmax: alpha must have one value for each of 3 rows, got 2");
  EXPECT_EQ(message(Softmax{}, {"alpha", alphas}), "softmax: there is no parameter 'alpha' with a value for each row");
  EXPECT_EQ(p, std::vector<double>(6, 7));
}

TEST(Maps, EmptyBatches) {
  for_each_map([]<class T>(const Map& op, T) {
    apply(op, MatrixView<const T>(nullptr, 0, 5), MatrixView<T>(nullptr, 0, 5));
    apply(op, MatrixView<const T>(nullptr, 5, 0), MatrixView<T>(nullptr, 5, 0));
    apply_vjp(op, MatrixView<const T>(nullptr, 5, 0), MatrixView<const T>(nullptr, 5, 0), MatrixView<const T>(nullptr, 5, 0),
              MatrixView<T>(nullptr, 5, 0));
  });
}

TEST(Maps, RefusesBadArguments) {
  std::vector<double> memory(64, 3.0);
  const auto view = [&](std::size_t at, std::size_t rows, std::size_t cols, std::size_t stride) {
    return MatrixView<double>(memory.data() + at, rows, cols, stride);
  };
  const auto x = view(0, 2, 4, 4), p = view(16, 2, 4, 4);
  expect_error("softmax: temperature must be above 0 and finite, got 0", [&] { apply(Softmax{.temperature = 0}, x, p); });
  expect_error("softmax: temperature must be above 0 and finite, got -1", [&] { apply(Softmax{.temperature = -1}, x, p); });
  expect_error("sparsemax: temperature must be above 0 and finite, got nan",
               [&] { apply(Sparsemax{.temperature = std::nan("")}, x, p); });
  expect_error("sparsemax: temperature must be above 0 and finite, got inf",
               [&] { apply(Sparsemax{.temperature = kInfinity<double>}, x, p); });
  expect_error("softmax: p must have the shape of x, 2 x 4, got 2 x 3", [&] { apply(Softmax{}, x, view(16, 2, 3, 4)); });
  expect_error("softmax: row_stride of x must be at least its cols, 4, got 3", [&] { apply(Softmax{}, view(0, 2, 4, 3), p); });
  expect_error("softmax: p must be x itself or share no memory with it, got views that overlap in part",
               [&] { apply(Softmax{}, x, view(1, 2, 4, 4)); });
  expect_error("softmax: p must be x itself or share no memory with it, got views that overlap in part",
               [&] { apply(Softmax{}, x, view(0, 2, 4, 5)); });
  // Columns 3 and 4 of one row, 0 and 1 of the next: views of one stride, of which one wraps around into the other.
  expect_error("softmax: p must be x itself or share no memory with it, got views that overlap in part",
               [&] { apply(Softmax{}, view(0, 3, 2, 5), view(4, 3, 2, 5)); });
  apply(Softmax{}, MatrixView<const double>(memory.data(), 3, 2, 5), view(2, 3, 2, 5));  // side by side
  memory.assign(64, 3.0);
  expect_error("top_k_softmax: k must be above 0, got 0", [&] { apply(TopKSoftmax{}, x, p); });
  expect_error("top_p_softmax: p must be above 0 and at most 1, got 0", [&] { apply(TopPSoftmax{}, x, p); });
  expect_error("min_p_softmax: p must be above 0 and at most 1, got 1.5", [&] { apply(MinPSoftmax{.p = 1.5}, x, p); });
  expect_error("taylor_softmax: order must be above 0 and at most 64 and a multiple of 2, got 3",
               [&] { apply(TaylorSoftmax{.order = 3}, x, p); });
  expect_error("softmax: x must point to 2 x 4 numbers, got a null pointer",
               [&] { apply(Softmax{}, MatrixView<const double>(nullptr, 2, 4), p); });
  expect_error("sparsemax: g must have the shape of x, 2 x 4, got 1 x 4",
               [&] { apply_vjp(Sparsemax{}, x, p, view(32, 1, 4, 4), p); });
  expect_error("log_softmax: y must have the shape of x, 2 x 4, got 1 x 4",
               [&] { log_softmax(LogSoftmax{}, x, view(16, 1, 4, 4)); });
  expect_error("logsumexp: y must have the shape of a column with x's rows, 2 x 1, got 2 x 4",
               [&] { logsumexp(LogSumExp{}, x, p); });
  EXPECT_EQ(memory, std::vector<double>(64, 3.0));
}

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
            if (max - x[i] > std::numeric_limits<T>::max()) {  // the difference alone overflows T
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
  log_softmax(LogSoftmax{}, MatrixView<const double>(x.data(), 1, 300), MatrixView<double>(y.data(), 1, 300));
  EXPECT_NEAR(y[200] / (299 * std::exp(-60.0)), -1, 1e-15);
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
}  // namespace entropic

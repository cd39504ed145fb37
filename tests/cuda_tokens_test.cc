// Tests of token_statistics on devices, emulated. The library has no such function for the host, so that results are compared
// with the definition in long double; their bits do not depend on the threads.

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isentropic/cuda.h"
#include "isentropic/isentropic.h"
#include "tests/support/device.h"
#include "tests/support/expect_error.h"

namespace {

using namespace isentropic;
using namespace support::device;
using cuda::StatisticsOf;
using cuda::TokenStatistics;
using Long = long double;

template <class T>
Long wide(T x) {
  if constexpr (kIsHalf<T>) {
    return static_cast<Long>(static_cast<float>(x));
  } else {
    return static_cast<Long>(x);
  }
}

template <class T>
constexpr Long kEps = std::numeric_limits<StatisticsOf<T>>::epsilon();
// That of the gradient, which is in the type of the logits.
template <class T>
constexpr Long kEpsOfRow = std::is_same_v<T, float16>    ? 0x1p-10L
                           : std::is_same_v<T, bfloat16> ? 0x1p-7L
                                                         : kEps<T>;

// The definition. `spread` is the mean of |z|: an exponential has an error of (2 + |z|) eps.
struct Row {
  std::vector<Long> p, z;
  Long log_p = 0, entropy = 0, max_p = 0, spread = 0;
};

template <class T>
Row row_of(const T* x, std::size_t n, std::size_t target, Long temperature) {
  Row row;
  Long max = -INFINITY, sum = 0;
  for (std::size_t i = 0; i < n; ++i) max = std::max(max, wide(x[i]));
  for (std::size_t i = 0; i < n; ++i) {
    row.z.push_back(max == INFINITY ? (wide(x[i]) == max ? 0 : -INFINITY) : (wide(x[i]) - max) / temperature);
    row.p.push_back(std::exp(row.z[i]));
  }
  std::vector<Long> rest = row.p;
  *std::find(rest.begin(), rest.end(), 1.0L) = 0;
  std::sort(rest.begin(), rest.end());
  for (const Long e : rest) sum += e;
  const Long log = std::log1p(sum);
  for (std::size_t i = 0; i < n; ++i) {
    row.p[i] /= 1 + sum;
    if (row.p[i] > 0) row.spread -= row.p[i] * row.z[i];
  }
  row.log_p = row.z[target] - log, row.entropy = log + row.spread, row.max_p = 1 / (1 + sum);
  return row;
}

// Teams of one thread are for other kernels.
constexpr Shape kTeams[] = {kByLength, {1, 32, 2}, {1, 64, 1}, {2, 64, 1}, {3, 96, 1}};

std::vector<std::int64_t> targets_for(std::size_t rows, std::size_t n) {
  std::vector<std::int64_t> targets(rows);
  for (std::size_t r = 0; r < rows; ++r) targets[r] = static_cast<std::int64_t>((r * 7 + n / 3) % n);
  return targets;
}

template <class T>
class CudaTokens : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaTokens, Types);

// Results of a call, forward and backward.
template <class T>
struct Results {
  Grid<StatisticsOf<T>> statistics;
  Grid<std::int64_t> top;
  Grid<T> dx;
  std::vector<double> slopes;
};

template <class T>
Results<T> results_of(const Grid<T>& x, const std::vector<std::int64_t>& targets, const std::vector<double>& temperatures,
                      std::size_t top, const Grid<StatisticsOf<T>>& g) {
  using W = StatisticsOf<T>;
  Results<T> found = {{x.rows, 4}, {x.rows, top}, {x.rows, x.cols}, std::vector<double>(x.rows)};
  const Memory memory(cuda::memory_for<T>(TokenStatistics{}, x.rows, x.cols, top));
  const PerRow per_row = {"temperature", temperatures};
  const ParamGradient slopes = {"temperature", found.slopes};
  cuda::token_statistics<T>({}, x, targets, found.statistics,
                            top > 0 ? MatrixView<std::int64_t>(found.top) : MatrixView<std::int64_t>(), memory, {},
                            {&per_row, 1});
  const Memory again(cuda::memory_for<T>(TokenStatistics{}, x.rows, x.cols, 0));
  cuda::token_statistics_vjp<T>({}, x, targets, MatrixView<const W>(found.statistics), MatrixView<const W>(g), found.dx, again,
                                {}, {&per_row, 1}, {&slopes, 1});
  return found;
}

TYPED_TEST(CudaTokens, AreThoseOfTheDefinition) {
  using T = TypeParam;
  using W = StatisticsOf<T>;
  std::size_t numbers = 0;
  for (const std::size_t n : {1, 2, 33, 300, 1100, 5000}) {
    if (kIsHalf<T> && n > 300) continue;  // calculated as rows of float
    if (sizeof(T) == 8 && n > 2000) continue;
    const Grid<T> x = scores<T>(n, static_cast<unsigned>(n));
    const std::vector<std::int64_t> targets = targets_for(x.rows, n);
    const std::vector<double> temperatures = {1, 0.7, 1, 1, 2.5, 1e-40, 1e40, 1, 0.01};
    Grid<W> g(x.rows, 4);
    for (std::size_t r = 0; r < x.rows; ++r) g.row(r)[0] = W(0.3) * W(r), g.row(r)[1] = W(1) - W(0.4) * W(r);
    const std::size_t top = std::min<std::size_t>(n, n == 300 ? 300 : 5);
    const Results<T> found = results_of(x, targets, temperatures, top, g);
    for (const Shape& shape : kTeams) {
      for (const bool last_first : {false, true}) {
        if (n > 100 && last_first != (shape.threads == 64)) continue;
        if (n > 2000 && shape.blocks != 2) continue;
        const Forced forced(shape, last_first);
        const Results<T> other = results_of(x, targets, temperatures, top, g);
        const std::string what =
            std::to_string(n) + " by " + std::to_string(shape.blocks) + " x " + std::to_string(shape.threads);
        expect_same(other.statistics.numbers, found.statistics.numbers, "statistics of " + what);
        expect_same(other.dx.numbers, found.dx.numbers, "gradient of " + what);
        expect_same(other.slopes, found.slopes, "gradient in T of " + what);
        ASSERT_EQ(other.top.numbers, found.top.numbers) << what;
      }
    }
    Results<T> got = found;
    Grid<T> rows = x;
    for (std::size_t r = 0; r < x.rows; ++r) {
      SCOPED_TRACE("row " + std::to_string(r) + " of " + std::to_string(n));
      const T* const row = rows.row(r);
      const W* const statistics = got.statistics.row(r);
      std::vector<std::int64_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      const auto key = [&](std::int64_t i) { return is_nan(row[i]) ? INFINITY : wide(row[i]); };
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return key(a) > key(b); });
      order.resize(top);
      ASSERT_EQ(std::vector<std::int64_t>(got.top.row(r), got.top.row(r) + top), order);
      const bool none = r == 3 || (r == 2 && n > 0);
      const std::size_t target = static_cast<std::size_t>(targets[r]);
      if (none) {
        for (std::size_t k = 0; k < 4; ++k) ASSERT_TRUE(std::isnan(statistics[k]));
        for (std::size_t i = 0; i < n; ++i) ASSERT_TRUE(is_nan(got.dx.row(r)[i]));
        ASSERT_TRUE(std::isnan(got.slopes[r]));
        continue;
      }
      const Row want = row_of(row, n, target, temperatures[r]);
      const Long eps = kEps<T>, error = 4 * eps * (2 + want.spread);
      ASSERT_EQ(wide(statistics[3]), key(order[0]));
      if (std::isinf(static_cast<W>(want.log_p))) {
        ASSERT_EQ(statistics[0], static_cast<W>(want.log_p));
      } else {
        ASSERT_NEAR(statistics[0], want.log_p, error * std::min(1.0L, std::abs(want.log_p)) + eps * std::abs(want.log_p));
      }
      ASSERT_NEAR(statistics[1], want.entropy, error * std::min(1.0L, want.entropy + want.spread) + eps * want.entropy);
      ASSERT_NEAR(statistics[2], want.max_p, error * want.max_p);
      Long slope = 0, size = 0;
      const Long a = g.row(r)[0], b = g.row(r)[1];
      for (std::size_t i = 0; i < n; ++i) {
        const Long p = want.p[i], z = want.z[i], log_p = z + std::log(want.max_p);
        const Long own = i == target && wide(row[i]) > -INFINITY ? a : 0;
        Long d = p > 0 ? own - p * (a + b * (log_p + want.entropy)) : own;
        if (r == 1) d = 0;  // +inf
        const Long scale =
            std::abs(own) + (p > 0 ? p * (std::abs(a) + std::abs(b) * (std::abs(log_p) + want.entropy)) * (4 - z) : 0);
        const Long dx = wide(got.dx.row(r)[i]), most = temperatures[r] < 1e-30 || temperatures[r] > 1e30 ? 1e-4L : 0;
        // A probability below the normal numbers is 0.
        const Long tiny = std::numeric_limits<W>::min() * (std::abs(a) + (p > 0 ? std::abs(b * log_p) : 0)) / temperatures[r];
        const Long least = 2 * tiny + (sizeof(T) == 2 ? 0x1p-24L : std::numeric_limits<W>::min());
        const Long exact = d / temperatures[r], rounded = wide(static_cast<T>(static_cast<W>(exact)));
        if (std::isinf(rounded)) {
          ASSERT_EQ(dx, rounded) << i;
        } else {
          ASSERT_NEAR(dx, exact, (most + kEpsOfRow<T>)*std::abs(exact) + 8 * eps * scale / temperatures[r] + least) << i;
        }
        if (p > 0 && d != 0) slope -= d * z / temperatures[r], size += scale * std::abs(z) / temperatures[r];
      }
      if (r != 5 && r != 6) {
        ASSERT_NEAR(got.slopes[r], slope, 16 * eps * size);
      }
      numbers += 4 + n;
    }
  }
  std::printf("%zu numbers compared with the definition\n", numbers);
}

// 1 - p and H are far below the rounding error of 1.
TEST(CudaTokens, SmallEntropiesKeepTheirDigits) {
  const std::vector<float> x = {0, -30, -31};
  const std::vector<std::int64_t> target = {0};
  std::vector<float> found(4);
  const Memory memory(cuda::memory_for<float>(TokenStatistics{}, 1, 3, 0));
  cuda::token_statistics<float>({}, {x.data(), 1, 3}, target, {found.data(), 1, 4}, {}, memory);
  const Row want = row_of(x.data(), 3, 0, 1);
  EXPECT_NEAR(found[0] / want.log_p, 1, 40 * kEps<float>);
  EXPECT_NEAR(found[1] / want.entropy, 1, 40 * kEps<float>);
}

TEST(CudaTokens, ATargetThatIsNoIndexMakesARowNaN) {
  const Grid<float> x = scores<float>(20, 1);
  std::vector<std::int64_t> targets = targets_for(x.rows, 20);
  targets[0] = 20, targets[8] = -1;
  Grid<float> g(x.rows, 4);
  Results<float> found = results_of(x, targets, std::vector<double>(x.rows, 1.0), 3, g);
  for (const std::size_t r : {0, 8}) {
    EXPECT_TRUE(std::isnan(found.statistics.row(r)[0]) && std::isnan(found.statistics.row(r)[3])) << r;
    EXPECT_TRUE(std::isnan(found.dx.row(r)[5])) << r;
  }
  EXPECT_FALSE(std::isnan(found.statistics.row(4)[0]));
}

TEST(CudaTokens, RefuseWhatIsWrong) {
  Grid<float> x(2, 8), statistics(2, 4), three(2, 3);
  const std::vector<std::int64_t> targets = {0, 0}, one = {0};
  Grid<std::int64_t> top(2, 9);
  const Memory memory(1 << 20);
  const auto run = [&](double temperature, const std::vector<std::int64_t>& target, MatrixView<float> to,
                       MatrixView<std::int64_t> tops) {
    cuda::token_statistics<float>({.temperature = temperature}, x, target, to, tops, memory);
  };
  support::expect_error("token_statistics: temperature must be above 0 and finite, got 0",
                        [&] { run(0, targets, statistics, {}); });
  support::expect_error("token_statistics: target must have one entry for each of 2 rows, got 1",
                        [&] { run(1, one, statistics, {}); });
  support::expect_error("token_statistics: statistics must have the shape of four numbers for each row of x, 2 x 4, got 2 x 3",
                        [&] { run(1, targets, three, {}); });
  support::expect_error("token_statistics: top must have at most one column for each of 8 tokens, got 9",
                        [&] { run(1, targets, statistics, top); });
}

}  // namespace

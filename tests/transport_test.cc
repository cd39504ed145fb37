// Transport: against LEMON in whole numbers, by proofs of the optimum, and by changes that must not affect it.

#include "isentropic/transport.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "isentropic/threads.h"
#include "tests/oracle/transport.h"
#include "tests/support/expect_error.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

using support::expect_error;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
struct Problem {
  std::size_t n, m;
  std::vector<T> a, b, cost;
};

template <class T>
struct Solution {
  std::vector<T> plan, f, g;
  std::vector<TransportResult> results;

  const TransportResult& only() const { return results.front(); }
};

// Problems one after the other in a, b and cost.
template <class T>
Solution<T> solve(const Problem<T>& p, std::size_t problems = 1, const OptimalTransport& options = {}) {
  Solution<T> s = {std::vector<T>(problems * p.n * p.m, T(7)), std::vector<T>(problems * p.n), std::vector<T>(problems * p.m),
                   std::vector<TransportResult>(problems)};
  const std::size_t cost_rows = p.m == 0 ? p.n : p.cost.size() / p.m;
  optimal_transport<T>(options, {p.a.data(), problems, p.n}, {p.b.data(), problems, p.m}, {p.cost.data(), cost_rows, p.m},
                       {s.plan.data(), problems * p.n, p.m}, {s.f.data(), problems, p.n}, {s.g.data(), problems, p.m},
                       s.results);
  return s;
}

// A plan with the masses, potentials below the costs, and equal values of both prove the optimum.
template <class T>
void expect_optimal(const Problem<T>& p, const Solution<T>& s) {
  ASSERT_EQ(s.only().status, TransportStatus::optimal);
  constexpr double kEps = std::numeric_limits<T>::epsilon();
  long double cost = 0, dual = 0, sum = 0, used = 0, potential = 0;
  for (std::size_t i = 0; i < p.n; ++i) {
    long double mass = 0;
    for (std::size_t j = 0; j < p.m; ++j) {
      const T x = s.plan[i * p.m + j];
      ASSERT_GE(x, 0);
      if (x == 0) continue;
      mass += x;
      cost += static_cast<long double>(x) * p.cost[i * p.m + j];
      used = std::max<long double>(used, std::abs(p.cost[i * p.m + j]));
    }
    sum += p.a[i];
    ASSERT_NEAR(mass, p.a[i], kEps * p.a[i] * std::sqrt(p.m) + 1e-300) << i;
    dual += static_cast<long double>(p.a[i]) * s.f[i];
    potential = std::max<long double>(potential, std::abs(s.f[i]));
  }
  long double sum_b = 0;
  for (std::size_t j = 0; j < p.m; ++j) sum_b += p.b[j];
  for (std::size_t j = 0; j < p.m; ++j) {
    long double mass = 0;
    for (std::size_t i = 0; i < p.n; ++i) mass += s.plan[i * p.m + j];
    const long double wanted = p.b[j] * sum / sum_b;
    ASSERT_NEAR(mass, wanted, 2 * kEps * wanted * std::sqrt(p.n) + 1e-300) << j;
    dual += wanted * s.g[j];
    potential = std::max<long double>(potential, std::abs(s.g[j]));
  }
  const long double rounding = 4 * kEps * potential;
  for (std::size_t i = 0; i < p.n; ++i) {
    for (std::size_t j = 0; j < p.m; ++j) {
      ASSERT_LE(static_cast<long double>(s.f[i]) + s.g[j], p.cost[i * p.m + j] + rounding) << i << " " << j;
    }
  }
  ASSERT_GE(s.only().gap, 0);
  ASSERT_LE(s.only().gap, 1e-9L * used * sum);
  ASSERT_NEAR(s.only().cost, cost, 8 * kEps * used * sum);
  ASSERT_NEAR(dual, cost, 1e-9L * used * sum + 4 * rounding * sum);
}

// Whole masses of equal sums, in which `zeros` of ten are 0, and whole costs, of which `forbidden` of ten are +inf.
Problem<double> whole_problem(std::mt19937& random, std::size_t n, std::size_t m, int largest, int zeros, int forbidden) {
  Problem<double> p = {n, m, std::vector<double>(n), std::vector<double>(m), std::vector<double>(n * m)};
  const int mass = random() % 3 == 0 ? 1 : 20;
  double left = 0;
  for (double& x : p.a) left += x = static_cast<int>(random() % 10) < zeros ? 0 : static_cast<double>(1 + random() % mass);
  if (left == 0) left = p.a[0] = 5;
  while (left > 0) {
    const double more = std::min(left, static_cast<double>(1 + random() % mass));
    if (static_cast<int>(random() % 10) >= zeros) p.b[random() % m] += more, left -= more;
  }
  for (double& c : p.cost) {
    c = static_cast<int>(random() % 10) < forbidden ? kInfinity : static_cast<double>(random() % (largest + 1));
  }
  return p;
}

std::optional<std::int64_t> exact_cost(const Problem<double>& p) {
  std::vector<std::int64_t> cost;
  for (const double c : p.cost) cost.push_back(c == kInfinity ? -1 : static_cast<std::int64_t>(c));
  return oracle::transport({p.a.begin(), p.a.end()}, {p.b.begin(), p.b.end()}, cost);
}

template <class T>
Problem<T> as(const Problem<double>& p) {
  return {p.n, p.m, {p.a.begin(), p.a.end()}, {p.b.begin(), p.b.end()}, {p.cost.begin(), p.cost.end()}};
}

TEST(OptimalTransport, WholeNumbersHaveTheOptimumOfWholeNumbers) {
  support::for_each_target([](const std::string&) {
    std::mt19937 random(1);
    int infeasible = 0;
    for (int k = 0; k < 600; ++k) {
      const bool large = k % 100 == 0;
      const std::size_t n = large ? 100 + random() % 60 : 1 + random() % 24, m = large ? 1 + random() % 200 : 1 + random() % 24;
      const int largest = std::vector<int>{0, 1, 5, 1000, 1'000'000}[random() % 5];
      const auto p = whole_problem(random, n, m, largest, k % 4 == 0 ? 3 : 0, k % 3 == 0 ? static_cast<int>(random() % 10) : 0);
      SCOPED_TRACE(testing::Message() << "problem " << k << ", " << n << " x " << m);
      const auto exact = exact_cost(p);
      const auto s = solve(p);
      if (!exact) {
        ++infeasible;
        ASSERT_EQ(s.only().status, TransportStatus::infeasible);
        ASSERT_EQ(s.only().cost, kInfinity);
        ASSERT_TRUE(std::isnan(s.plan[0]) && std::isnan(s.f[0]) && std::isnan(s.g[0]));
        continue;
      }
      ASSERT_EQ(s.only().cost, static_cast<double>(*exact));
      expect_optimal(p, s);
      const auto single = as<float>(p);
      const auto t = solve(single);
      ASSERT_EQ(t.only().cost, static_cast<double>(*exact));
      expect_optimal(single, t);
    }
    EXPECT_GT(infeasible, 20);
  });
}

template <class T>
Problem<T> points_problem(std::mt19937& random, std::size_t n, std::size_t m, bool equal, double order) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  Problem<T> p = {n, m, std::vector<T>(n), std::vector<T>(m), std::vector<T>(n * m)};
  double sum = 0;
  std::vector<double> a(n), b(m), x(2 * n), y(2 * m);
  for (double& v : a) sum += v = equal ? 1 : uniform(random);
  for (std::size_t i = 0; i < n; ++i) p.a[i] = static_cast<T>(a[i] / sum);
  sum = 0;
  for (double& v : b) sum += v = equal ? 1 : uniform(random);
  for (std::size_t j = 0; j < m; ++j) p.b[j] = static_cast<T>(b[j] / sum);
  for (double& v : x) v = normal(random);
  for (double& v : y) v = normal(random);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) {
      p.cost[i * m + j] = static_cast<T>(std::pow(std::hypot(x[2 * i] - y[2 * j], x[2 * i + 1] - y[2 * j + 1]), order));
    }
  }
  return p;
}

template <class T>
class OptimalTransportOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(OptimalTransportOf, Types);

TYPED_TEST(OptimalTransportOf, PointsAreProvedOptimal) {
  std::mt19937 random(2);
  for (const auto& [n, m] : std::vector<std::pair<std::size_t, std::size_t>>{
           {1, 1}, {1, 50}, {50, 1}, {2, 3}, {17, 17}, {64, 64}, {300, 300}, {30, 700}, {700, 30}, {9, 3}}) {
    for (const bool equal : {true, false}) {
      for (const double order : {1.0, 2.0, 10.0}) {
        SCOPED_TRACE(testing::Message() << n << " x " << m << ", equal " << equal << ", order " << order);
        const auto p = points_problem<TypeParam>(random, n, m, equal, order);
        expect_optimal(p, solve(p));
      }
    }
  }
}

TYPED_TEST(OptimalTransportOf, EveryTargetAndAnyNumberOfThreadsGivesTheSameBits) {
  std::mt19937 random(3);
  // 40 problems, at once and one by one.
  Problem<TypeParam> all = {20, 25, {}, {}, {}};
  std::vector<Problem<TypeParam>> each;
  for (int k = 0; k < 40; ++k) {
    each.push_back(points_problem<TypeParam>(random, 20, 25, k % 2 == 0, 2));
    all.a.insert(all.a.end(), each.back().a.begin(), each.back().a.end());
    all.b.insert(all.b.end(), each.back().b.begin(), each.back().b.end());
    all.cost.insert(all.cost.end(), each.back().cost.begin(), each.back().cost.end());
  }
  const auto first = solve(all, 40);
  for (std::size_t k = 0; k < 40; ++k) {
    const auto one = solve(each[k]);
    EXPECT_EQ(one.only().cost, first.results[k].cost);
    EXPECT_EQ(one.only().gap, first.results[k].gap);
    EXPECT_TRUE(std::equal(one.plan.begin(), one.plan.end(), first.plan.begin() + static_cast<std::ptrdiff_t>(k * 500)));
    EXPECT_TRUE(std::equal(one.f.begin(), one.f.end(), first.f.begin() + static_cast<std::ptrdiff_t>(k * 20)));
  }
  support::for_each_target([&](const std::string&) {
    for (const std::size_t threads : {1, 3}) {
      set_num_threads(threads);
      const auto again = solve(all, 40);
      set_num_threads(0);
      EXPECT_EQ(again.plan, first.plan);
      EXPECT_EQ(again.f, first.f);
      EXPECT_EQ(again.g, first.g);
    }
  });
}

TEST(OptimalTransport, OneCostForManyProblems) {
  std::mt19937 random(4);
  auto p = points_problem<double>(random, 12, 9, false, 1);
  const auto q = points_problem<double>(random, 12, 9, false, 1);
  const auto first = solve(p);
  auto second = q;
  second.cost = p.cost;
  const auto alone = solve(second);
  p.a.insert(p.a.end(), q.a.begin(), q.a.end());
  p.b.insert(p.b.end(), q.b.begin(), q.b.end());
  const auto both = solve(p, 2);
  EXPECT_EQ(both.results[0].cost, first.only().cost);
  EXPECT_EQ(both.results[1].cost, alone.only().cost);
}

TEST(OptimalTransport, ScaleOfCostsChangesNothing) {
  std::mt19937 random(5);
  for (const bool equal : {true, false}) {
    const auto p = points_problem<double>(random, 120, 120, equal, 2);
    const auto s = solve(p);
    for (const double scale : {1e-300, 1e-200, 1e-30, 1e-14, 1e14, 1e200, 1e298}) {
      SCOPED_TRACE(scale);
      auto scaled = p;
      for (double& c : scaled.cost) c *= scale;
      const auto t = solve(scaled);
      expect_optimal(scaled, t);
      EXPECT_NEAR(t.only().cost / scale, s.only().cost, 1e-14 * s.only().cost);
    }
    for (const int power : {-960, -300, 300, 960}) {
      auto scaled = p;
      for (double& c : scaled.cost) c = std::ldexp(c, power);
      EXPECT_EQ(std::ldexp(solve(scaled).only().cost, -power), s.only().cost);
      EXPECT_EQ(solve(scaled).plan, s.plan);
    }
    // One number more for every arc of a row or a column changes the cost and nothing else.
    auto shifted = p;
    for (std::size_t k = 0; k < shifted.cost.size(); ++k) shifted.cost[k] -= 3 + 0.25 * static_cast<double>(k % 120 % 7);
    expect_optimal(shifted, solve(shifted));
  }
}

TEST(OptimalTransport, ScaleOfMassesChangesNothing) {
  std::mt19937 random(6);
  const auto p = points_problem<double>(random, 60, 50, false, 2);
  const auto s = solve(p);
  for (const int power : {-1000, -100, 100, 900}) {
    auto scaled = p;
    for (double& v : scaled.a) v = std::ldexp(v, power);
    for (double& v : scaled.b) v = std::ldexp(v, power);
    EXPECT_EQ(std::ldexp(solve(scaled).only().cost, -power), s.only().cost);
  }
}

// Costs of the size that others use for forbidden entries, and one huge cost: the result is as exact as without them.
TEST(OptimalTransport, MinusZeroIsNoMass) {
  const std::vector<double> u = {0, 1, 2}, v = {0, 1, 5}, weights = {-0.0, 1, 1};
  std::vector<double> distance(1);
  const auto row = [](const std::vector<double>& x) { return MatrixView<const double>(x.data(), 1, x.size()); };
  wasserstein_1d<double>(Wasserstein1d{}, row(u), row(v), row(weights), {}, distance);
  EXPECT_DOUBLE_EQ(distance[0], 1.5);
  const std::vector<double> p = {-0.0, 0.5, 0.5}, q = {0.2, 0.3, 0.5}, support = {0, 1, 2};
  wasserstein_histogram<double>(WassersteinHistogram{}, row(p), row(q), support, distance);
  EXPECT_DOUBLE_EQ(distance[0], 0.2);
}

TEST(OptimalTransport, DearArcsThatAreNotNeededCostNoAccuracy) {
  std::mt19937 random(7);
  for (const double dear : {1e9, 1e12, 1e15, 1e18, 1e100, 1e290}) {
    for (int k = 0; k < 60; ++k) {
      SCOPED_TRACE(testing::Message() << dear << ", problem " << k);
      const std::size_t n = 2 + random() % 30, m = 2 + random() % 30;
      const int tenths = k % 4 == 0 ? 0 : k % 10;
      auto p = whole_problem(random, n, m, 1000, 0, tenths);
      for (double& c : p.cost) c += c < kInfinity ? 1 : 0;  // no cost 0: they would be left alone
      if (tenths == 0) p.cost[random() % p.cost.size()] = kInfinity;
      const auto exact = exact_cost(p);
      if (!exact) continue;
      for (double& c : p.cost) c = c == kInfinity ? dear : c;
      const auto s = solve(p);
      ASSERT_EQ(s.only().cost, static_cast<double>(*exact));
      ASSERT_EQ(s.only().status, TransportStatus::optimal);
      ASSERT_LE(s.only().gap, 1e-9 * 1001 * std::accumulate(p.a.begin(), p.a.end(), 0.0));
    }
  }
}

// Costs so far apart that the small ones have no digits in units of the largest.
TEST(OptimalTransport, SmallCostsBesideHugeOnesThatAreNotNeeded) {
  std::mt19937 random(17);
  for (const double small : {1e-300, 1e-250, 1e-17, 1.0}) {
    for (int k = 0; k < 40; ++k) {
      const std::size_t n = 2 + random() % 6;
      auto p = whole_problem(random, n, n, 1000, 0, 0);
      for (double& c : p.cost) c += 1;
      const auto exact = exact_cost(p);
      if (!exact) continue;
      const double sum = std::accumulate(p.a.begin(), p.a.end(), 0.0);
      // A second block whose masses never go to the first.
      Problem<double> both = {n + 1, n + 1, p.a, p.b, std::vector<double>((n + 1) * (n + 1), 1e300)};
      both.a.push_back(1), both.b.push_back(1);
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) both.cost[i * (n + 1) + j] = p.cost[i * n + j] * small;
      }
      both.cost.back() = small;
      const auto s = solve(both);
      ASSERT_EQ(s.only().status, TransportStatus::optimal);
      ASSERT_NEAR(s.only().cost / small, static_cast<double>(*exact) + 1, 1e-9 * 1001 * sum) << small << ", problem " << k;
      ASSERT_LE(s.only().gap / small, 1e-9 * 1001 * sum);
    }
  }
}

// The first row may send to every column, and only it to the last, at the largest of all costs: beyond its short list, so that
// the scan of whole rows has to find it.
TEST(OptimalTransport, TheDearestArcIsUsedWhereItIsTheOnlyOne) {
  support::for_each_target([](const std::string&) {
    for (const std::size_t n : {2, 30, 41, 100}) {
      Problem<double> p = {n, n, std::vector<double>(n, 1), std::vector<double>(n, 1), std::vector<double>(n * n, kInfinity)};
      for (std::size_t i = 1; i < n; ++i) p.cost[i * n + i - 1] = 1;
      for (std::size_t j = 0; j < n; ++j) p.cost[j] = j + 1 < n ? 0.0 : 7.0;
      const auto s = solve(p);
      ASSERT_EQ(s.only().cost, static_cast<double>(n - 1) + 7);
      expect_optimal(p, s);
    }
    // Half of the allowed entries have the largest cost.
    std::mt19937 random(12);
    for (int k = 0; k < 40; ++k) {
      const auto p = whole_problem(random, 100, 100 + k % 20, 1, 0, 5 + k % 4);
      const auto exact = exact_cost(p);
      const auto s = solve(p);
      ASSERT_EQ(s.only().cost, exact ? static_cast<double>(*exact) : kInfinity) << k;
      if (exact) expect_optimal(p, s);
    }
  });
}

TEST(OptimalTransport, EqualMassesGiveAPermutation) {
  std::mt19937 random(8);
  for (const std::size_t n : {3, 7, 49, 201}) {
    auto p = points_problem<double>(random, n, n, true, 1);
    const auto s = solve(p);
    for (std::size_t i = 0; i < n; ++i) {
      int taken = 0;
      for (std::size_t j = 0; j < n; ++j) {
        if (s.plan[i * n + j] == 0) continue;
        ++taken;
        EXPECT_EQ(s.plan[i * n + j], p.a[i]);
      }
      EXPECT_EQ(taken, 1);
    }
  }
}

// On a line the plan in the order of the points is optimal for convex costs. Without arcs that are too expensive for any
// optimal plan, costs of 1e30 do not hide those of 1.
TEST(OptimalTransport, CostsOfManySizes) {
  for (const unsigned seed : {1, 2, 3, 4, 5, 6}) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform;
    const std::size_t n = 20 + 5 * seed;
    std::vector<double> u(n), v(n);
    for (std::size_t i = 0; i < n; ++i) u[i] = 1000 * uniform(random), v[i] = u[i] + uniform(random);
    const std::vector<double> masses(n, 1.0 / static_cast<double>(n));
    std::vector<double> cost(n * n), f(n), g(n), plan(n * n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) cost[i * n + j] = std::pow(std::abs(u[i] - v[j]), 10);
    }
    TransportResult result;
    optimal_transport<double>({}, {masses.data(), 1, n}, {masses.data(), 1, n}, {cost.data(), n, n}, {plan.data(), n, n},
                              {f.data(), 1, n}, {g.data(), 1, n}, {&result, 1});
    std::sort(u.begin(), u.end());
    std::sort(v.begin(), v.end());
    double best = 0, largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double own = std::pow(std::abs(u[i] - v[i]), 10);
      best += own / static_cast<double>(n), largest = std::max(largest, own);
    }
    EXPECT_EQ(result.status, TransportStatus::optimal);
    EXPECT_NEAR(result.cost, best, 1e-12 * best);
    EXPECT_LE(result.gap, 1e-9 * largest);
  }
}

TEST(OptimalTransport, OrderOfRowsAndColumnsChangesTheCostNotAtAll) {
  std::mt19937 random(9);
  const auto p = points_problem<double>(random, 40, 55, false, 1);
  std::vector<std::size_t> rows(p.n), columns(p.m);
  std::iota(rows.begin(), rows.end(), 0);
  std::iota(columns.begin(), columns.end(), 0);
  std::shuffle(rows.begin(), rows.end(), random);
  std::shuffle(columns.begin(), columns.end(), random);
  auto q = p;
  Problem<double> transposed = {p.m, p.n, p.b, p.a, std::vector<double>(p.cost.size())};
  for (std::size_t i = 0; i < p.n; ++i) {
    q.a[i] = p.a[rows[i]];
    for (std::size_t j = 0; j < p.m; ++j) {
      q.cost[i * p.m + j] = p.cost[rows[i] * p.m + columns[j]];
      transposed.cost[j * p.n + i] = p.cost[i * p.m + j];
    }
  }
  for (std::size_t j = 0; j < p.m; ++j) q.b[j] = p.b[columns[j]];
  const double cost = solve(p).only().cost;
  EXPECT_NEAR(solve(q).only().cost, cost, 1e-14 * cost);
  EXPECT_NEAR(solve(transposed).only().cost, cost, 1e-14 * cost);
}

// Only the largest distance is left, and rounding its quotient by itself must not lose it.
TEST(Wasserstein1d, HighOrdersTendToTheMaximum) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> u(1 + random() % 9), v(1 + random() % 9), du(u.size()), dv(v.size());
    for (double& sample : u) sample = normal(random);
    for (double& sample : v) sample = normal(random);
    double most, high;
    const MatrixView<const double> us(u.data(), 1, u.size()), vs(v.data(), 1, v.size());
    wasserstein_1d<double>({.order = kInfinity}, us, vs, {}, {}, {&most, 1});
    for (const double order : {1e6, 1e17, 1e20}) {
      wasserstein_1d<double>({.order = order}, us, vs, {}, {}, {&high, 1}, {du.data(), 1, u.size()}, {dv.data(), 1, v.size()});
      EXPECT_NEAR(high, most, 1e-5 * most);
      for (const double slope : du) EXPECT_LE(std::abs(slope), 1);
    }
  }
}

// The same distribution, points and masses cut into parts, whatever the sums. At a high order a mass of one rounding error that
// has to go elsewhere is seen.
TEST(Wasserstein1d, EqualFractionsOfDifferentSumsAreEqual) {
  std::mt19937 random(31);
  for (int round = 0; round < 300; ++round) {
    const std::size_t n = 2 + random() % 5;
    const double unit = round % 3 == 0 ? 0.1 : round % 3 == 1 ? 1 : 3e-200, factor = round % 2 == 0 ? 0x1p-3 : 0x1p20;
    std::vector<double> u, v, a, b;
    for (std::size_t i = 0; i < n; ++i) {
      const int weight = 1 + static_cast<int>(random() % 7);
      const double point = static_cast<double>(i) * 100;
      u.push_back(point), a.push_back(weight * unit);
      const int parts = 1 + static_cast<int>(random() % 3);
      for (int part = 0; part < parts; ++part) v.push_back(point), b.push_back(a.back() * factor);
      for (int part = 1; part < parts; ++part) u.push_back(point), a.push_back(a.back());
    }
    // Each three times: so the sums are no multiples of each other by a power of 2.
    for (const std::size_t count = v.size(); v.size() < 3 * count;) {
      v.push_back(v[v.size() - count]), b.push_back(b[b.size() - count]);
    }
    const MatrixView<const double> us(u.data(), 1, u.size()), vs(v.data(), 1, v.size());
    const MatrixView<const double> as(a.data(), 1, a.size()), bs(b.data(), 1, b.size());
    for (const double order : {1.0, 3.0, kInfinity}) {
      double there, back;
      wasserstein_1d<double>({.order = order}, us, vs, as, bs, {&there, 1});
      wasserstein_1d<double>({.order = order}, vs, us, bs, as, {&back, 1});
      ASSERT_EQ(there, 0) << round;
      ASSERT_EQ(back, 0) << round;
    }
    // The same points in a plane.
    std::vector<double> x, y;
    for (const double point : u) x.push_back(point), x.push_back(1);
    for (const double point : v) y.push_back(point), y.push_back(1);
    ASSERT_EQ(wasserstein<double>({.order = 2}, {x.data(), u.size(), 2}, {y.data(), v.size(), 2}, a, b), 0) << round;
  }
}

// The mean of differences that all round to the largest number is at most that number.
TEST(Wasserstein1d, FarAsNumbersGo) {
  constexpr double kMost = std::numeric_limits<double>::max();
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> far = {kMost}, near(2 + random() % 200), weights(near.size()), one = {1};
    for (double& sample : near) sample = static_cast<double>(random() % 1000) / 500 - 1;
    for (double& weight : weights) weight = static_cast<double>(random() % 1000 + 1);
    const MatrixView<const double> u(far.data(), 1, 1), v(near.data(), 1, near.size());
    const MatrixView<const double> a(one.data(), 1, 1), b(weights.data(), 1, weights.size());
    for (const double order : {1.0, 1.5, 3.0}) {
      double there, back;
      wasserstein_1d<double>({.order = order}, u, v, a, b, {&there, 1});
      wasserstein_1d<double>({.order = order}, v, u, b, a, {&back, 1});
      EXPECT_NEAR(there / kMost, 1, 1e-15);  // an infinite one fails
      EXPECT_NEAR(back / kMost, 1, 1e-15);
    }
  }
}

TEST(OptimalTransport, PlanIsOptional) {
  const Problem<double> p = {2, 2, {0.5, 0.5}, {0.25, 0.75}, {0, 1, 2, 0}};
  std::vector<double> f(2), g(2);
  std::vector<TransportResult> result(1);
  optimal_transport<double>(OptimalTransport{}, {p.a.data(), 1, 2}, {p.b.data(), 1, 2}, {p.cost.data(), 2, 2}, {},
                            {f.data(), 1, 2}, {g.data(), 1, 2}, result);
  EXPECT_EQ(result[0].cost, 0.25);
}

TEST(OptimalTransport, RefusesWhatIsNoProblem) {
  const Problem<double> good = {2, 2, {0.5, 0.5}, {0.25, 0.75}, {0, 1, 2, 0}};
  const auto refuse = [&](const std::string& text, auto change) {
    auto bad = good;
    change(bad);
    expect_error("optimal_transport: " + text, [&] { solve(bad); });
  };
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  refuse("a must be at least 0 and finite, got -0.5 at entry 1", [](auto& p) { p.a[1] = -0.5; });
  refuse("b must be at least 0 and finite, got nan at entry 0", [](auto& p) { p.b[0] = kNaN; });
  refuse("a must be at least 0 and finite, got inf at entry 0", [](auto& p) { p.a[0] = kInfinity; });
  refuse("a must have a finite sum above 0, got 0", [](auto& p) { p.a = {0, 0}; });
  refuse("cost must be finite or +inf, got nan at row 1, column 0", [](auto& p) { p.cost[2] = kNaN; });
  refuse("cost must be finite or +inf, got -inf at row 0, column 1", [](auto& p) { p.cost[1] = -kInfinity; });
  refuse("a and b must have equal sums within 1e-06 of them, got 1 and 1.25", [](auto& p) { p.b[1] = 1; });
  refuse("cost must be 2 x 2, got 3 x 2", [](auto& p) { p.cost.resize(6); });
  expect_error("optimal_transport: mass_tolerance must be at least 0 and at most 1, got 2",
               [&] { solve(good, 1, {.mass_tolerance = 2}); });
  double cost = 3, one[] = {1, 1, 1};
  std::vector<TransportResult> result(1);
  const auto number = [](double& x) { return MatrixView<double>(&x, 1, 1); };
  const auto solve_in = [&](double& plan, double& f) {
    optimal_transport<double>(OptimalTransport{}, number(one[0]), number(one[0]), number(cost), number(plan), number(f),
                              number(one[2]), result);
  };
  expect_error("optimal_transport: plan must share no memory with cost, got views that overlap",
               [&] { solve_in(cost, one[1]); });
  double plan;
  expect_error("optimal_transport: f must share no memory with a, got views that overlap", [&] { solve_in(plan, one[0]); });
  EXPECT_EQ(cost, 3);
  auto looser = good;
  looser.b[1] = 1;
  EXPECT_EQ(solve(looser, 1, {.mass_tolerance = 0.5}).only().cost, 0.5 * 1 + 0.25 * 0 - 0.2);
}

// A part: a plan within the masses, potentials of the dual, one value of both. Moving all of the lesser masses is the whole
// problem.
TYPED_TEST(OptimalTransportOf, PartsAreProvedOptimal) {
  using T = TypeParam;
  std::mt19937 random(31);
  for (const auto& [n, m] : {std::pair<std::size_t, std::size_t>{1, 1}, {1, 5}, {7, 4}, {30, 45}}) {
    const auto whole = points_problem<T>(random, n, m, false, 2);
    const double sum = std::accumulate(whole.a.begin(), whole.a.end(), 0.0);
    for (const double scale : {1.0, 1e-30, 1e30}) {
      for (const double share : {0.0, 1e-3, 0.4, 0.9, 1.0}) {
        auto p = whole;
        for (T& c : p.cost) c = static_cast<T>(c * scale);
        for (T& x : p.b) x *= 2;
        std::vector<T> plan(n * m), f(n), g(m);
        std::vector<PartialTransportResult> result(1);
        partial_transport<T>({.mass = share * sum}, {p.a.data(), 1, n}, {p.b.data(), 1, m}, {p.cost.data(), n, m},
                             {plan.data(), n, m}, {f.data(), 1, n}, {g.data(), 1, m}, result);
        const PartialTransportResult& r = result[0];
        ASSERT_EQ(r.status, TransportStatus::optimal);
        const double eps = 100 * std::numeric_limits<T>::epsilon();
        double moved = 0, paid = 0, dual = r.multiplier * share * sum;
        std::vector<double> columns(m);
        for (std::size_t i = 0; i < n; ++i) {
          double row = 0;
          for (std::size_t j = 0; j < m; ++j) {
            const double x = plan[i * m + j], c = p.cost[i * m + j];
            ASSERT_GE(x, 0);
            ASSERT_LE(static_cast<double>(f[i]) + g[j] + r.multiplier, c + eps * 10 * scale);
            row += x, columns[j] += x, paid += x * c;
          }
          ASSERT_LE(row, p.a[i] + eps);
          ASSERT_LE(f[i], 0);
          moved += row;
          dual += static_cast<double>(p.a[i]) * f[i];
        }
        for (std::size_t j = 0; j < m; ++j) {
          ASSERT_LE(columns[j], p.b[j] + eps);
          ASSERT_LE(g[j], 0);
          dual += static_cast<double>(p.b[j]) * g[j];
        }
        EXPECT_NEAR(moved, share * sum, eps * sum);
        EXPECT_NEAR(paid, r.cost, eps * 10 * scale * sum);
        EXPECT_NEAR(dual, r.cost, eps * 100 * scale * sum);
        EXPECT_GE(r.gap, 0);
        EXPECT_LE(r.gap, 1e-12 * scale * sum);
        if (share == 1) {
          p.b = whole.b;
          partial_transport<T>({.mass = sum}, {p.a.data(), 1, n}, {p.b.data(), 1, m}, {p.cost.data(), n, m}, {},
                               {f.data(), 1, n}, {g.data(), 1, m}, result);
          EXPECT_NEAR(result[0].cost, solve(p).only().cost, 1e-5 * scale * sum);
        }
      }
    }
  }
}

TEST(OptimalTransport, PartsThatNoArcsTake) {
  const std::vector<double> a = {1, 2}, b = {2, 2}, cost = {kInfinity, kInfinity, 1, 3};
  std::vector<double> plan(4), f(2), g(2);
  std::vector<PartialTransportResult> result(1);
  const auto run = [&](double mass) {
    partial_transport<double>({.mass = mass}, {a.data(), 1, 2}, {b.data(), 1, 2}, {cost.data(), 2, 2}, {plan.data(), 2, 2},
                              {f.data(), 1, 2}, {g.data(), 1, 2}, result);
    return result[0];
  };
  EXPECT_EQ(run(0).cost, 0);
  EXPECT_EQ(run(1.5).cost, 1.5);
  EXPECT_EQ(plan, (std::vector<double>{0, 0, 1.5, 0}));
  EXPECT_EQ(run(2).cost, 2);
  EXPECT_EQ(run(2.5).status, TransportStatus::infeasible);
  EXPECT_TRUE(std::isnan(plan[0]) && std::isnan(f[0]) && std::isnan(g[1]));
  EXPECT_EQ(run(0).status, TransportStatus::optimal);
  expect_error("partial_transport: mass must be at most the sum of a and that of b, 3, got 3.1", [&] { run(3.1); });
  expect_error("partial_transport: mass must be at least 0 and finite, got -1", [&] { run(-1); });
  expect_error("partial_transport: mass must be at least 0 and finite, got nan", [&] { run(std::nan("")); });
}

// Unequal masses: the value is that of the plan, and the gap is the distance to the potentials' value, each by its definition.
TYPED_TEST(OptimalTransportOf, UnbalancedPlansAreCertified) {
  using T = TypeParam;
  std::mt19937 random(41);
  for (const auto& [n, m] : {std::pair<std::size_t, std::size_t>{1, 1}, {1, 5}, {7, 4}, {130, 45}}) {
    const auto p = points_problem<T>(random, n, m, false, 2);
    for (const double epsilon : {1.0, 0.05}) {
      for (const double penalty : {0.01, 1.0, 1000.0}) {
        std::vector<T> plan(n * m), f(n), g(m), b = p.b;
        for (T& x : b) x *= T(1.5);
        std::vector<UnbalancedSinkhornResult> result(1);
        const UnbalancedSinkhorn op = {.epsilon = epsilon, .penalty = penalty};
        unbalanced_sinkhorn<T>(op, {p.a.data(), 1, n}, {b.data(), 1, m}, {p.cost.data(), n, m}, {plan.data(), n, m},
                               {f.data(), 1, n}, {g.data(), 1, m}, result);
        ASSERT_TRUE(result[0].converged) << n << " " << m << " " << epsilon << " " << penalty;
        const auto divergence = [](double x, double y) { return x > 0 ? x * std::log(x / y) - x + y : y; };
        double value = 0, dual = 0, size = 0;
        std::vector<double> columns(m);
        for (std::size_t i = 0; i < n; ++i) {
          double row = 0;
          for (std::size_t j = 0; j < m; ++j) {
            const double x = plan[i * m + j], ab = static_cast<double>(p.a[i]) * b[j];
            row += x, columns[j] += x;
            value += x * p.cost[i * m + j] + epsilon * divergence(x, ab);
            dual += epsilon * (ab - x), size += epsilon * ab;
          }
          value += penalty * divergence(row, p.a[i]);
          dual += penalty * p.a[i] * -std::expm1(-f[i] / penalty);
          size += penalty * p.a[i];
        }
        for (std::size_t j = 0; j < m; ++j) {
          value += penalty * divergence(columns[j], b[j]);
          dual += penalty * b[j] * -std::expm1(-g[j] / penalty);
          size += penalty * b[j];
        }
        const double rounding = (sizeof(T) == 4 ? 2e-5 : 1e-12) * size;
        EXPECT_NEAR(result[0].value, value, rounding);
        EXPECT_NEAR(result[0].value - result[0].gap, dual, rounding);
        EXPECT_GE(result[0].gap, 0);
        EXPECT_LE(result[0].gap, 2e-9 * (size + std::abs(value)));
      }
    }
  }
}

TYPED_TEST(OptimalTransportOf, FurtherTransportHasTheSameBitsOnTargetsWithFma) {
  using T = TypeParam;
  std::mt19937 random(42);
  const std::size_t n = 70, m = 45;
  auto p = points_problem<T>(random, n, m, false, 2);
  const auto run = [&] {
    std::vector<T> plan(n * m), f(n), g(m), q(m);
    std::vector<UnbalancedSinkhornResult> unbalanced(1);
    unbalanced_sinkhorn<T>({.epsilon = 0.1, .penalty = 1, .tolerance = 1e-14}, {p.a.data(), 1, n}, {p.b.data(), 1, m},
                           {p.cost.data(), n, m}, {plan.data(), n, m}, {f.data(), 1, n}, {g.data(), 1, m}, unbalanced);
    EXPECT_TRUE(unbalanced[0].converged);
    const auto barycenter = sinkhorn_barycenter<T>({.epsilon = 0.1, .tolerance = 1e-12}, MatrixView<const T>(p.a.data(), 1, n),
                                                   {}, {p.cost.data(), n, m}, q);
    EXPECT_TRUE(barycenter.converged);
    std::vector<double> theta(8 * 5);
    random_directions({theta.data(), 8, 5}, 3);
    const auto sliced =
        sliced_wasserstein<T>({}, MatrixView<const T>(p.cost.data(), n, 5), MatrixView<const T>(p.cost.data() + 400, m, 5), {},
                              {}, MatrixView<const double>(theta.data(), 8, 5));
    plan.insert(plan.end(), q.begin(), q.end());
    plan.push_back(static_cast<T>(sliced.distance));
    plan.push_back(static_cast<T>(sliced.error));
    return plan;
  };
  const auto expected = run();
  for (const std::size_t threads : {1, 2, 5}) {
    set_num_threads(threads);
    EXPECT_EQ(run(), expected) << threads;
  }
  set_num_threads(0);
  for (const std::string& target : support::fma_targets()) {
    force_simd_target(target);
    EXPECT_EQ(run(), expected) << target;
  }
  support::for_each_target([&](const std::string&) {
    const auto found = run();
    for (std::size_t k = 0; k < found.size(); ++k) ASSERT_NEAR(found[k], expected[k], 1e-6);
  });
}

TEST(RandomDirections, AreUniformUnitVectorsOfTheirRow) {
  constexpr std::size_t kRows = 20000;
  for (const std::size_t d : {1, 2, 3, 8}) {
    std::vector<double> all(kRows * d), first(10 * d);
    random_directions({all.data(), kRows, d}, 7);
    random_directions({first.data(), 10, d}, 7);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
    std::vector<double> mean(d), square(d * d);
    for (std::size_t r = 0; r < kRows; ++r) {
      double length = 0;
      for (std::size_t k = 0; k < d; ++k) {
        const double x = all[r * d + k];
        length += x * x, mean[k] += x / kRows;
        for (std::size_t l = 0; l < d; ++l) square[k * d + l] += x * all[r * d + l] / kRows;
      }
      ASSERT_NEAR(length, 1, 1e-14);
    }
    const double dimension = static_cast<double>(d), five = 5 / std::sqrt(static_cast<double>(kRows));  // deviations
    for (std::size_t k = 0; k < d; ++k) {
      EXPECT_NEAR(mean[k], 0, five);
      for (std::size_t l = 0; l < d; ++l) EXPECT_NEAR(square[k * d + l], k == l ? 1 / dimension : 0, five);
    }
    std::vector<double> others(10 * d);
    random_directions({others.data(), 10, d}, 8);
    EXPECT_NE(others, first) << d;
  }
}

TEST(OptimalTransport, FurtherTransportRefuses) {
  std::vector<double> one = {1, 1}, cost = {0, 1, 1, 0}, f(2), g(2), q(2), zero = {0, 0}, large = {1e200, 1e200};
  std::vector<UnbalancedSinkhornResult> result(1);
  const auto unbalanced = [&](const UnbalancedSinkhorn& op, std::vector<double>& a) {
    unbalanced_sinkhorn<double>(op, {a.data(), 1, 2}, {a.data(), 1, 2}, {cost.data(), 2, 2}, {}, {f.data(), 1, 2},
                                {g.data(), 1, 2}, result);
  };
  expect_error("unbalanced_sinkhorn: epsilon must be above 0 and finite, got 0",
               [&] { unbalanced({.epsilon = 0, .penalty = 1}, one); });
  expect_error("unbalanced_sinkhorn: penalty must be above 0 and finite, got inf",
               [&] { unbalanced({.epsilon = 1, .penalty = kInfinity}, one); });
  expect_error("unbalanced_sinkhorn: a must have a finite sum above 0, got 0",
               [&] { unbalanced({.epsilon = 1, .penalty = 1}, zero); });
  expect_error("unbalanced_sinkhorn: the product of the sums of a and b must be finite, got 2e+200 and 2e+200",
               [&] { unbalanced({.epsilon = 1, .penalty = 1}, large); });
  const auto barycenter = [&](std::vector<double>& p, std::vector<double> weights, std::size_t rows) {
    sinkhorn_barycenter<double>({.epsilon = 1}, MatrixView<const double>(p.data(), 1, 2), weights, {cost.data(), rows, 2}, q);
  };
  expect_error("sinkhorn_barycenter: cost must have a row for each of 2 columns of p and at least one column, got 1 x 2",
               [&] { barycenter(one, {}, 1); });
  expect_error("sinkhorn_barycenter: weights must have one weight for each of 1 points, got 2", [&] {
    barycenter(one, {1, 2}, 2);
  });
  cost[1] = kInfinity;
  expect_error("sinkhorn_barycenter: cost must be finite, got inf at row 0, column 1", [&] { barycenter(one, {}, 2); });
  const auto sliced = [&](std::vector<double> directions, std::size_t cols) {
    sliced_wasserstein<double>({}, MatrixView<const double>(one.data(), 1, 2), MatrixView<const double>(one.data(), 1, 2), {},
                               {}, MatrixView<const double>(directions.data(), directions.size() / cols, cols));
  };
  expect_error("sliced_wasserstein: directions must not be 0, got 0 everywhere in row 1", [&] { sliced({1, 1, 0, 0}, 2); });
  expect_error("sliced_wasserstein: directions must be finite, got nan in row 0", [&] { sliced({1, std::nan("")}, 2); });
  expect_error("sliced_wasserstein: directions must be at least one row of 2 coordinates, got 1 x 1", [&] { sliced({1}, 1); });
}

// Masses far above 1: what columns lack, times the cost, times what a row misses, would overflow.
TEST(OptimalTransport, SinkhornUpperBoundOfLargeMasses) {
  const std::vector<double> a = {1e200, 3e200}, b = {2e200, 2e200}, cost = {1, 2, 4, 3};
  std::vector<double> f(2), g(2);
  std::vector<SinkhornResult> result(1);
  sinkhorn<double>({.epsilon = 0.5}, {a.data(), 1, 2}, {b.data(), 1, 2}, {cost.data(), 2, 2}, {}, {f.data(), 1, 2},
                   {g.data(), 1, 2}, result);
  EXPECT_TRUE(result[0].converged);
  EXPECT_GE(result[0].upper_bound, 1.1e201 * (1 - 1e-12));
  EXPECT_LE(result[0].upper_bound, 1.3e201);
  EXPECT_LE(result[0].lower_bound, 1.1e201 * (1 + 1e-12));
}

// The other functions, whose values tests/python/test_transport.py compares with definitions: the same on every target.

TYPED_TEST(OptimalTransportOf, SinkhornPlansHaveTheSameBitsOnTargetsWithFma) {
  std::mt19937 random(10);
  const std::size_t n = 70, m = 45;
  auto p = points_problem<TypeParam>(random, n, m, false, 2);
  p.cost[7] = std::numeric_limits<TypeParam>::infinity();
  const auto run = [&] {
    Solution<TypeParam> s = {std::vector<TypeParam>(n * m), std::vector<TypeParam>(n), std::vector<TypeParam>(m), {}};
    std::vector<SinkhornResult> result(1);
    sinkhorn<TypeParam>({.epsilon = 0.1}, {p.a.data(), 1, n}, {p.b.data(), 1, m}, {p.cost.data(), n, m}, {s.plan.data(), n, m},
                        {s.f.data(), 1, n}, {s.g.data(), 1, m}, result);
    EXPECT_TRUE(result[0].converged);
    const double exact = solve(p).only().cost;
    EXPECT_LE(result[0].lower_bound, exact * (1 + 1e-6));
    EXPECT_GE(result[0].upper_bound, exact * (1 - 1e-6));
    // <P, C> + epsilon KL is what the potentials say it is.
    double objective = 0;
    for (std::size_t k = 0; k < n * m; ++k) {
      const double x = s.plan[k];
      if (x > 0) objective += x * (p.cost[k] + 0.1 * std::log(x / (static_cast<double>(p.a[k / m]) * p.b[k % m])));
    }
    EXPECT_NEAR(result[0].value, objective, 1e-5);
    return s.plan;
  };
  const auto expected = run();
  for (const std::string& target : support::fma_targets()) {
    force_simd_target(target);
    EXPECT_EQ(run(), expected) << target;
  }
  support::for_each_target([&](const std::string&) {
    const auto plan = run();
    for (std::size_t k = 0; k < plan.size(); ++k) ASSERT_NEAR(plan[k], expected[k], 1e-7);
  });
}

// A distribution against itself: with nearly diagonal plans, alternating rows and columns did not converge in 10,000 steps.
TYPED_TEST(OptimalTransportOf, SymmetricProblemsConvergeInAFewSteps) {
  using T = TypeParam;
  std::mt19937 random(12);
  const std::size_t n = 30;
  auto p = points_problem<T>(random, n, n, false, 2);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      // Points on a line, and masses that differ.
      const double x = std::sin(3.0 * static_cast<double>(i)), y = std::sin(3.0 * static_cast<double>(j));
      p.cost[i * n + j] = p.cost[j * n + i] = static_cast<T>((x - y) * (x - y));
    }
    p.b[i] = p.a[i];
  }
  for (const double epsilon : {1.0, 0.1, 0.01, 0.001}) {
    std::vector<T> plan(n * n), f(n), g(n);
    std::vector<SinkhornResult> result(1);
    sinkhorn<T>({.epsilon = epsilon, .tolerance = 1e-12}, {p.a.data(), 1, n}, {p.b.data(), 1, n}, {p.cost.data(), n, n},
                {plan.data(), n, n}, {f.data(), 1, n}, {g.data(), 1, n}, result);
    EXPECT_TRUE(result[0].converged) << epsilon;
    EXPECT_LT(result[0].iterations, 60) << epsilon;
    // f = g, and the plan is symmetric.
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(f[i], g[i], 1e-7) << epsilon;
      for (std::size_t j = 0; j < i; ++j) ASSERT_NEAR(plan[i * n + j], plan[j * n + i], 1e-7);
    }
  }
  // A symmetric cost for which everything has to move: the mean would take 87 passes, alternating takes 65.
  const std::vector<T> half = {T(0.45), T(0.55)}, away = {1, 0, 0, 1};
  std::vector<T> plan(4), f(2), g(2);
  std::vector<SinkhornResult> result(1);
  sinkhorn<T>({.epsilon = 0.1, .tolerance = 1e-9}, {half.data(), 1, 2}, {half.data(), 1, 2}, {away.data(), 2, 2},
              {plan.data(), 2, 2}, {f.data(), 1, 2}, {g.data(), 1, 2}, result);
  EXPECT_TRUE(result[0].converged);
  EXPECT_LE(result[0].iterations, 72);
  EXPECT_NEAR(plan[1], plan[2], 1e-7);
}

// Equal masses do not suffice for a symmetric problem: f and g may differ.
TYPED_TEST(OptimalTransportOf, EqualMassesUnderAnyCost) {
  using T = TypeParam;
  std::mt19937 random(13);
  const std::size_t n = 12;
  auto p = points_problem<T>(random, n, n, false, 2);
  p.b = p.a;
  std::vector<T> plan(n * n), f(n), g(n);
  std::vector<SinkhornResult> result(1);
  sinkhorn<T>({.epsilon = 0.5, .tolerance = 1e-9}, {p.a.data(), 1, n}, {p.b.data(), 1, n}, {p.cost.data(), n, n},
              {plan.data(), n, n}, {f.data(), 1, n}, {g.data(), 1, n}, result);
  EXPECT_TRUE(result[0].converged);
  EXPECT_LE(result[0].iterations, 45);  // 30; taken for a symmetric problem it needs 76
  for (std::size_t j = 0; j < n; ++j) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += plan[i * n + j];
    EXPECT_NEAR(sum, p.b[j], 1e-6) << j;
  }
}

// Found by the soak test: sums of masses that differ by rounding times potentials as large as epsilon.
TYPED_TEST(OptimalTransportOf, LowerBoundIsNotAboveTheCostOfAPlan) {
  using T = TypeParam;
  const std::vector<T> a = {1}, b = {T(0.3333333321828705), T(0.6666666678171295)}, cost = {0, 0};
  for (const double epsilon : {0.1, 17.670705822005388, 59686.27912257404, 1e9}) {
    std::vector<T> plan(2), f(1), g(2);
    std::vector<SinkhornResult> result(1);
    sinkhorn<T>({.epsilon = epsilon}, {a.data(), 1, 1}, {b.data(), 1, 2}, {cost.data(), 1, 2}, {plan.data(), 1, 2},
                {f.data(), 1, 1}, {g.data(), 1, 2}, result);
    EXPECT_EQ(result[0].upper_bound, 0);
    EXPECT_LE(result[0].lower_bound, 0) << epsilon;
  }
}

TYPED_TEST(OptimalTransportOf, LinePointsAndDualityAgreeOnEveryTarget) {
  using T = TypeParam;
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  std::vector<T> u(3000), v(3000);
  for (T& x : u) x = static_cast<T>(normal(random));
  for (T& x : v) x = static_cast<T>(normal(random) + 0.5);
  support::for_each_target([&](const std::string&) {
    double whole, distance;
    wasserstein_1d<T>(Wasserstein1d{}, {u.data(), 1, u.size()}, {v.data(), 1, v.size()}, {}, {}, {&whole, 1});
    auto a = u, b = v;
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    long double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<long double>(a[i]) - b[i]);
    EXPECT_NEAR(whole, sum / a.size(), 1e-15);

    const std::size_t n = 40, m = 60;
    wasserstein_1d<T>({.order = 2}, {u.data(), 1, n}, {v.data(), 1, m}, {}, {}, {&distance, 1});
    std::vector<T> x(2 * n), y(2 * m), plan(n * m);
    for (std::size_t i = 0; i < n; ++i) x[2 * i] = u[i];
    for (std::size_t j = 0; j < m; ++j) y[2 * j] = v[j];
    EXPECT_NEAR(wasserstein<T>({.order = 2}, {x.data(), n, 2}, {y.data(), m, 2}, {}, {}, {plan.data(), n, m}), distance, 1e-12);
    EXPECT_NEAR(std::accumulate(plan.begin(), plan.end(), 0.0), 1, 1e-6);

    std::vector<T> cost(n * m), f(n), g(m);
    for (std::size_t k = 0; k < n * m; ++k) cost[k] = std::abs(u[k / m] - v[k % m]);
    for (std::size_t i = 0; i < n; ++i) f[i] = u[i];
    c_transform<T>(f, {cost.data(), n, m}, g);
    for (std::size_t j = 0; j < m; ++j) {
      T least = std::numeric_limits<T>::infinity();
      for (std::size_t i = 0; i < n; ++i) least = std::min(least, static_cast<T>(static_cast<double>(cost[i * m + j]) - f[i]));
      ASSERT_EQ(g[j], least);
    }
  });
}

}  // namespace
}  // namespace isentropic

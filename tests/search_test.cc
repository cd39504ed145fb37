// Tests of the searches with moments and sums in long double.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/search_test.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/search/search-inl.h"

#ifndef ISENTROPIC_TESTS_SEARCH_TEST_CC_
#define ISENTROPIC_TESTS_SEARCH_TEST_CC_

#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

namespace isentropic::inline ISENTROPIC_ABI {

// Rows whose moments at gamma are calculated outside the search.
struct GammaProblem {
  double low, high;                         // of the target
  double log_ties, log_n, variance, third;  // of the row
  std::function<void(double gamma, double (&sums)[4])> moments;
};
struct GammaFound {
  double gamma, stage;
};

// Scores u <= 0 with maximum 0, in parts whose sums are added.
struct ThresholdRow {
  std::vector<long double> u;
  double norm_b, edge_b, bent_b;
  std::size_t parts = 1;

  using Pair = std::pair<double, double>;

  // The sums of the pair terms(u).
  template <class Terms>
  Pair Add(const Terms& terms) const {
    Pair all = {0, 0};
    for (std::size_t part = 0; part < parts; ++part) {
      long double first = 0, second = 0;
      for (std::size_t i = part; i < u.size(); i += parts) {
        const auto [a, b] = terms(u[i]);
        first += a, second += b;
      }
      all.first += static_cast<double>(first), all.second += static_cast<double>(second);
    }
    return all;
  }

  using Terms = std::pair<long double, long double>;
  static Terms Power(double b, long double q) {
    if (!(q > 0)) return {0, 0};
    const long double p = std::pow(q, 1 / static_cast<long double>(b));
    return {p, p / q};
  }

  Pair Above(double tau) const {
    return Add([&](long double x) { return x > tau ? Terms(x - tau, 1) : Terms(0, 0); });
  }
  Pair Powers(double b, double c) const {
    return Add([&](long double x) { return Power(b, x + c); });
  }
  Pair Between(double from, double to) const {
    return Add([&](long double x) { return x > from && x < to ? Terms(x, 1) : Terms(0, 0); });
  }
  Pair PowersAbove(double b, double edge, double lift) const {
    return Add([&](long double x) { return x > edge ? Power(b, x - edge + lift) : Terms(0, 0); });
  }
  // The sums of s w^k and s w^(k + 1), see BentSeries.
  Pair Bent(double b, double c, int k) const {
    return Add([&](long double x) {
      const long double v = x / c * (b > 0 ? 1 : -1), s = Power(b, 1 + v).first, w = s > 0 ? v / (b * (1 + v)) : 0;
      return Terms(s * std::pow(w, k), s * std::pow(w, k + 1));
    });
  }
  double Equal(double edge) const {
    return Add([&](long double x) { return Terms(x == edge, 0); }).first;
  }
  double Least(double from) const {
    long double least = 0;
    for (const long double x : u) least = x >= from && x < least ? x : least;
    return static_cast<double>(least);
  }
};

// The results of the searches, as numbers.
struct ThresholdsFound {
  double tau, tau_low, c, c_low, rough, square, square_low, edge, p, bent;
  auto operator<=>(const ThresholdsFound&) const = default;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // ISENTROPIC_TESTS_SEARCH_TEST_CC_

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

inline constexpr GammaTolerance kExact = {2e-15, 1e-5, 2e-13};

// One after the other, as numbers.
void FindOneByOne(const GammaProblem* problems, size_t count, GammaFound* found) {
  for (size_t r = 0; r < count; ++r) {
    const GammaProblem& row = problems[r];
    GammaSearch<double> search;
    search.Begin({row.low, row.high}, {}, kExact, {row.log_ties, row.log_n, row.variance, row.third});
    while (search.asks()) {
      double sums[4];
      row.moments(search.gamma(), sums);
      search.Exact(sums);
    }
    found[r] = {search.gamma(), search.stage()};
  }
}

// Side by side, a row in each lane, all with the same target.
void FindInLanes(const GammaProblem* problems, size_t count, GammaFound* found) {
  using L = Lanes<D64>;
  constexpr size_t kLanes = hn::MaxLanes(D64());
  for (size_t begin = 0; begin < count; begin += kLanes) {
    HWY_ALIGN double values[4][kLanes], stage[kLanes];
    const auto row = [&](size_t r) -> const GammaProblem& { return problems[HWY_MIN(begin + r, count - 1)]; };
    const auto load = [&](size_t k) HWY_ATTR { return L(hn::Load(D64(), values[k])); };
    for (size_t r = 0; r < kLanes; ++r) {
      values[0][r] = row(r).log_ties, values[1][r] = row(r).log_n, values[2][r] = row(r).variance, values[3][r] = row(r).third;
    }
    GammaSearch<L> search;
    search.Begin({row(0).low, row(0).high}, {}, kExact, {load(0), load(1), load(2), load(3)});
    HWY_ALIGN double gamma[kLanes];
    for (;;) {
      hn::Store(search.gamma().v, D64(), gamma);
      hn::Store(search.stage().v, D64(), stage);
      if (All(!search.asks())) break;
      for (size_t r = 0; r < kLanes; ++r) {
        double sums[4];
        row(r).moments(gamma[r], sums);
        for (size_t k = 0; k < 4; ++k) values[k][r] = sums[k];
      }
      search.Exact({load(0), load(1), load(2), load(3)});
    }
    for (size_t r = 0; r < kLanes && begin + r < count; ++r) found[begin + r] = {gamma[r], stage[r]};
  }
}

double LogOf(double x) { return LogNumber(x); }
double PowerOf(double x, double exponent) { return Power(x, exponent); }

#include "tests/support/thresholds.inc"

void FindThresholdsOneByOne(const ThresholdRow* rows, size_t count, ThresholdsFound* found) {
  for (size_t r = 0; r < count; ++r) found[r] = FindThresholds(rows[r]);
}

// Side by side: what rows have in lanes, tau and c of squares.
void FindThresholdsInLanes(const ThresholdRow* rows, size_t count, ThresholdsFound* found) {
  using L = Lanes<D64>;
  constexpr size_t kLanes = hn::MaxLanes(D64());
  for (size_t begin = 0; begin < count; begin += kLanes) {
    const auto row = [&](size_t r) -> const ThresholdRow& { return rows[HWY_MIN(begin + r, count - 1)]; };
    HWY_ALIGN double at[kLanes], low[kLanes], sums[2][kLanes];
    SimplexSearch<L> simplex;
    simplex.Begin(-1.0, 1e9);
    while (!AllFalse(simplex.asks())) {
      hn::Store(simplex.tau().v, D64(), at);
      for (size_t r = 0; r < kLanes; ++r) std::tie(sums[0][r], sums[1][r]) = row(r).Above(at[r]);
      simplex.Take(hn::Load(D64(), sums[0]), hn::Load(D64(), sums[1]));
    }
    hn::Store(simplex.tau().v, D64(), at);
    hn::Store(simplex.step().v, D64(), low);
    for (size_t r = 0; r < kLanes && begin + r < count; ++r) found[begin + r].tau = at[r], found[begin + r].tau_low = low[r];

    NormSearch<L, QuickSquareNorm, UntilPart<L>> square;
    square.Begin(0.5, 1.0, {0x1p-29});
    while (!AllFalse(square.asks())) {
      hn::Store(square.c().v, D64(), at);
      for (size_t r = 0; r < kLanes; ++r) std::tie(sums[0][r], sums[1][r]) = row(r).Powers(0.5, at[r]);
      square.Take(hn::Load(D64(), sums[0]), hn::Load(D64(), sums[1]));
    }
    hn::Store(square.c().v, D64(), at);
    hn::Store(square.step().v, D64(), low);
    for (size_t r = 0; r < kLanes && begin + r < count; ++r) {
      found[begin + r].square = at[r], found[begin + r].square_low = -low[r];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "src/search/search.h"
#include "tests/support/cases.h"
#include "tests/support/targets.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace search {
#include "tests/support/thresholds.inc"
}  // namespace search

namespace {

HWY_EXPORT(FindOneByOne);
HWY_EXPORT(FindInLanes);
HWY_EXPORT(LogOf);
HWY_EXPORT(PowerOf);
HWY_EXPORT(FindThresholdsOneByOne);
HWY_EXPORT(FindThresholdsInLanes);

using search::EntropyTarget;
using search::GammaLimits;
using search::GammaReach;
using search::GammaTolerance;
using Search = search::GammaSearch<double>;

constexpr GammaTolerance kExact = {2e-15, 1e-5, 2e-13};

bool has_fma(const std::string& target) {
  const auto names = support::fma_targets();
  return std::find(names.begin(), names.end(), target) != names.end();
}

// A row for an outside evaluator: finite scores relative to the maximum, in units of their range.
struct Outside {
  std::string name;
  std::vector<long double> z;

  template <class Number>
  void moments(double gamma, Number (&sums)[4]) const {
    for (Number& sum : sums) sum = 0;
    for (const long double score : z) {
      const long double a = gamma * score, e = std::exp(a);
      const long double terms[4] = {e, e * a, e * a * a, e * a * a * a};
      for (int k = 0; k < 4; ++k) sums[k] += static_cast<Number>(terms[k]);
    }
  }
  long double entropy(double gamma) const {
    long double sums[4];
    moments(gamma, sums);
    return std::log(sums[0]) - sums[1] / sums[0];
  }
  GammaReach<double> reach() const {
    long double mean = 0, variance = 0, third = 0;
    const auto n = static_cast<long double>(z.size());
    for (const long double score : z) mean += score / n;
    for (const long double score : z) {
      const long double d = score - mean;
      variance += d * d / n, third += d * d * d / n;
    }
    const auto ties = static_cast<double>(std::count(z.begin(), z.end(), 0.0L));
    return {std::log(ties), std::log(static_cast<double>(z.size())), static_cast<double>(variance), static_cast<double>(third)};
  }
};

std::vector<Outside> outside_rows() {
  std::vector<Outside> rows;
  for (const auto& entry : support::make_finite_cases<double>()) {
    std::vector<long double> z;
    for (const double score : entry.x) {
      if (score > -INFINITY) z.push_back(score);
    }
    const auto [least, most] = std::minmax_element(z.begin(), z.end());
    const long double max = *most, range = *most - *least;
    if (!(range > 0)) continue;
    for (long double& score : z) score = (score - max) / range;
    rows.push_back({entry.name, z});
  }
  return rows;
}

// A target between the ends of a row's reach.
double target_at(const GammaReach<double>& reach, double part) {
  return reach.log_ties + part * (reach.log_n - reach.log_ties);
}

TEST(GammaSearch, FindsGammaByMomentsFromOutside) {
  int most = 0, rows = 0;
  long total = 0;
  for (const Outside& row : outside_rows()) {
    const auto reach = row.reach();
    for (const double part : {1e-6, 0.01, 0.2, 0.5, 0.8, 0.99, 0.999999}) {
      SCOPED_TRACE(row.name + " part " + std::to_string(part));
      const double target = target_at(reach, part);
      Search search;
      double gamma = search.Begin({target, target}, {}, kExact, reach);
      while (search.asks()) {
        double sums[4];
        row.moments(gamma, sums);
        search.Exact(sums);
        gamma = search.gamma();
      }
      ASSERT_EQ(search.stage(), Search::kMet);
      ASSERT_LE(std::abs(row.entropy(gamma) - target), 1e-12L * std::max(1.0, target));
      ASSERT_LE(std::abs(search.entropy() - target), 1e-12 * std::max(1.0, target));
      most = std::max(most, search.evaluations()), total += search.evaluations(), ++rows;
    }
  }
  EXPECT_GT(rows, 1000);
  EXPECT_LE(most, 40);
  EXPECT_LE(static_cast<double>(total) / rows, 8);
}

// In three parts, each with its own sum, the questions and answers are those of the whole up to rounding.
TEST(GammaSearch, TakesSumsOfParts) {
  for (const Outside& row : outside_rows()) {
    if (row.z.size() < 3) continue;
    const auto reach = row.reach();
    const double target = target_at(reach, 0.4);
    Outside parts[3];
    for (std::size_t i = 0; i < row.z.size(); ++i) parts[i % 3].z.push_back(row.z[i]);
    Search search;
    search.Begin({target, target}, {}, kExact, reach);
    while (search.asks()) {
      double sums[4] = {};
      for (const Outside& part : parts) {
        double of_part[4];
        part.moments(search.gamma(), of_part);
        for (int k = 0; k < 4; ++k) sums[k] += of_part[k];
      }
      search.Exact(sums);
    }
    ASSERT_LE(std::abs(row.entropy(search.gamma()) - target), 1e-12L * std::max(1.0, target)) << row.name;
  }
}

// As float32 evaluators answer: moments of a few scores, rounded moments at a rounded gamma, then masses.
TEST(GammaSearch, FindsGammaByRoughMomentsAndMasses) {
  int rows = 0, lost = 0;
  for (const Outside& row : outside_rows()) {
    const auto reach = row.reach();
    for (const bool few : {false, true}) {
      if (few && row.z.size() < 1000) continue;
      Outside sample = {"", {}};
      for (std::size_t i = 0; i < row.z.size(); i += row.z[i] < -0.1L ? 4 : 1) sample.z.push_back(row.z[i]);
      for (const double part : {0.05, 0.3, 0.6, 0.95}) {
        SCOPED_TRACE(row.name + " part " + std::to_string(part));
        const double target = target_at(reach, part);
        const GammaTolerance tolerance = {.met = 2e-7, .rough = 0.03};
        Search search;
        search.Begin({target, target}, {0x1p-30, 0x1p30}, tolerance, reach, few ? Search::kFew : Search::kMoments);
        double log_sum = 0, asked_few = 0;
        for (int questions = 0; search.asks(); ++questions) {
          ASSERT_LT(questions, 70);
          const double stage = search.stage();
          asked_few += stage == Search::kFew;
          if (stage == Search::kMasses) {
            double sums[4];
            row.moments(search.gamma(), sums);
            ASSERT_LE(std::abs(log_sum - std::log(sums[0])), 0.01);
            search.Masses({sums[0], sums[1]}, &log_sum);
          } else {
            const double at = static_cast<float>(search.gamma());
            float rounded[4];
            (stage == Search::kFew ? sample : row).moments(at, rounded);
            search.Rough(at, {rounded[0], rounded[1], rounded[2], rounded[3]}, &log_sum);
          }
        }
        ++rows;
        ASSERT_EQ(few, asked_few > 0);
        if (search.stage() == Search::kLost) {
          ++lost;
          continue;
        }
        ASSERT_EQ(search.stage(), Search::kMet);
        ASSERT_LE(std::abs(row.entropy(search.gamma()) - target), 2.1e-7L * std::max(1.0, target));
      }
    }
  }
  EXPECT_GT(rows, 500);
  EXPECT_LE(lost, rows / 10);
}

TEST(GammaSearch, LeavesAnEntropyThatIsInTheInterval) {
  for (const Outside& row : outside_rows()) {
    const auto reach = row.reach();
    const double own = static_cast<double>(row.entropy(1)), least = reach.log_ties, most = reach.log_n;
    if (!(own > least + 1e-9 && own < most - 1e-9)) continue;
    const auto answer = [&](EntropyTarget target) {
      Search search;
      search.Begin(target, {}, kExact, reach);
      EXPECT_EQ(search.gamma(), 1);
      while (search.asks()) {
        double sums[4];
        row.moments(search.gamma(), sums);
        search.Exact(sums);
      }
      return search;
    };
    const double below = 0.5 * (own + least), above = 0.5 * (own + most);
    const Search inside = answer({below, above}), raised = answer({above, most}), lowered = answer({0, below});
    ASSERT_EQ(inside.gamma(), 1) << row.name;
    ASSERT_EQ(inside.evaluations(), 1) << row.name;
    ASSERT_LE(std::abs(row.entropy(raised.gamma()) - above), 1e-12L * std::max(1.0, above)) << row.name;
    ASSERT_LE(std::abs(row.entropy(lowered.gamma()) - below), 1e-12L * std::max(1.0, below)) << row.name;
  }
}

TEST(GammaSearch, EndsAtOnceWhereTheTargetIsOutOfReach) {
  const GammaReach<double> reach = {std::log(2.0), std::log(7.0), 1, 0};
  Search search;
  EXPECT_EQ(search.Begin({2, 2}, {}, kExact, reach), 0);
  EXPECT_EQ(search.stage(), Search::kTooHigh);
  EXPECT_EQ(search.entropy(), reach.log_n);
  EXPECT_EQ(search.Begin({0.5, 0.5}, {}, kExact, reach), INFINITY);
  EXPECT_EQ(search.stage(), Search::kTooLow);
  EXPECT_EQ(search.entropy(), reach.log_ties);
  EXPECT_EQ(search.Begin({2, 3}, {0.25, 4}, kExact, reach), 0.25);
  EXPECT_FALSE(search.asks());
}

TEST(GammaSearch, StaysInItsLimits) {
  for (const Outside& row : outside_rows()) {
    const auto reach = row.reach();
    const double target = target_at(reach, 0.5);
    Search search;
    const auto find = [&](GammaLimits limits) {
      search.Begin({target, target}, limits, kExact, reach);
      while (search.asks()) {
        ASSERT_GE(search.gamma(), limits.low);
        ASSERT_LE(search.gamma(), limits.high);
        double sums[4];
        row.moments(search.gamma(), sums);
        search.Exact(sums);
      }
    };
    find({});
    const double free = search.gamma();
    find({0, free / 2});
    ASSERT_EQ(search.stage(), Search::kTooLow) << row.name;
    ASSERT_EQ(search.gamma(), free / 2) << row.name;
    find({free * 2, INFINITY});
    ASSERT_EQ(search.stage(), Search::kTooHigh) << row.name;
    ASSERT_EQ(search.gamma(), free * 2) << row.name;
    find({0, INFINITY, 2});
    ASSERT_LE(search.evaluations(), 2) << row.name;
  }
}

// The plain search, and for each target the search of numbers and the search in lanes.
TEST(GammaSearch, HasTheSameBitsHoweverItIsCompiled) {
  const std::vector<Outside> rows = outside_rows();
  for (const double target : {0.05, 0.7, 1.5, 4.0}) {
    std::vector<GammaProblem> problems;
    std::vector<GammaFound> plain;
    for (const Outside& row : rows) {
      const auto reach = row.reach();
      const auto moments = [&row](double gamma, double(&sums)[4]) {
        long double exact[4] = {};
        if (std::isfinite(gamma)) row.moments(gamma, exact);
        for (int k = 0; k < 4; ++k) sums[k] = static_cast<double>(exact[k]);
      };
      problems.push_back({target, target, reach.log_ties, reach.log_n, reach.variance, reach.third, moments});
      Search search;
      search.Begin({target, target}, {}, kExact, reach);
      while (search.asks()) {
        double sums[4];
        moments(search.gamma(), sums);
        search.Exact(sums);
      }
      plain.push_back({search.gamma(), search.stage()});
    }
    support::for_each_target([&](const std::string& name) {
      std::vector<GammaFound> one(rows.size()), lanes(rows.size());
      HWY_DYNAMIC_DISPATCH(FindOneByOne)(problems.data(), problems.size(), one.data());
      HWY_DYNAMIC_DISPATCH(FindInLanes)(problems.data(), problems.size(), lanes.data());
      for (std::size_t r = 0; r < rows.size(); ++r) {
        ASSERT_EQ(one[r].gamma, lanes[r].gamma) << rows[r].name << " target " << target;
        ASSERT_EQ(one[r].stage, lanes[r].stage) << rows[r].name << " target " << target;
        if (!has_fma(name)) continue;
        ASSERT_EQ(one[r].gamma, plain[r].gamma) << rows[r].name << " target " << target;
      }
    });
  }
}

std::vector<ThresholdRow> threshold_rows(std::size_t parts = 1) {
  std::vector<ThresholdRow> rows;
  constexpr double kNormB[] = {0.25, 0.3, 0.5, 0.7, 0.95}, kEdgeB[] = {1.01, 1.5, 2, 9, 100},
                   kBentB[] = {-0.9, -0.2, 1e-6, 0.1, 0.2};
  for (const auto& entry : support::make_finite_cases<double>()) {
    ThresholdRow row = {{}, kNormB[rows.size() % 5], kEdgeB[rows.size() % 5], kBentB[rows.size() % 5], parts};
    const double max = *std::max_element(entry.x.begin(), entry.x.end());
    for (const double score : entry.x) {
      if (score > -INFINITY && score - max > -1e6) row.u.push_back(score - max);
    }
    rows.push_back(row);
  }
  return rows;
}

// Checks that the masses sum to 1 at the results of the searches.
void check_thresholds(const ThresholdRow& row, const ThresholdsFound& found, long double tolerance) {
  const auto sum = [&](const auto& mass) {
    long double total = 0;
    for (const long double x : row.u) total += mass(x);
    return total;
  };
  const long double tau = static_cast<long double>(found.tau) + found.tau_low;
  ASSERT_NEAR(sum([&](long double x) { return std::max(x - tau, 0.0L); }), 1, tolerance);
  const long double c = static_cast<long double>(found.c) + found.c_low;
  ASSERT_NEAR(sum([&](long double x) { return ThresholdRow::Power(row.norm_b, x + c).first; }), 1, tolerance);
  ASSERT_NEAR(found.rough, c, 1e-4);
  const long double square = static_cast<long double>(found.square) + found.square_low;
  ASSERT_NEAR(sum([&](long double x) { return ThresholdRow::Power(0.5, x + square).first; }), 1, tolerance);
  const long double lift = std::pow(static_cast<long double>(found.p), static_cast<long double>(row.edge_b));
  ASSERT_NEAR(sum([&](long double x) {
                if (x < found.edge) return 0.0L;
                if (x == found.edge) return static_cast<long double>(found.p);
                return ThresholdRow::Power(row.edge_b, x - found.edge + lift).first;
              }),
              1, tolerance);
  // p_max = c^(1/b), of which c is rounded.
  const long double of_max = std::pow(static_cast<long double>(found.bent), 1 / static_cast<long double>(row.bent_b));
  const long double bent =
      sum([&](long double x) { return ThresholdRow::Power(row.bent_b, 1 + x / found.bent * (row.bent_b > 0 ? 1 : -1)).first; });
  ASSERT_NEAR(of_max * bent, 1, tolerance * 4 / std::abs(row.bent_b));
}

TEST(ThresholdSearch, FindsThresholdsBySumsFromOutside) {
  int rows = 0;
  for (const ThresholdRow& row : threshold_rows()) {
    SCOPED_TRACE("row " + std::to_string(rows++) + " of " + std::to_string(row.u.size()));
    ASSERT_NO_FATAL_FAILURE(check_thresholds(row, search::FindThresholds(row), 1e-12L));
  }
  EXPECT_GT(rows, 150);
}

// In three parts, each with its own sums, the questions and answers are those of the whole up to rounding.
TEST(ThresholdSearch, TakesSumsOfParts) {
  for (const ThresholdRow& row : threshold_rows(3)) {
    SCOPED_TRACE("row of " + std::to_string(row.u.size()));
    ASSERT_NO_FATAL_FAILURE(check_thresholds(row, search::FindThresholds(row), 1e-12L));
  }
}

TEST(ThresholdSearch, EndsWhereASumIsNaN) {
  search::SimplexSearch<double> simplex;
  simplex.Begin(-1.0, 10.0);
  for (int i = 0; i < 10 && simplex.asks(); ++i) simplex.Take(NAN, 0);
  ASSERT_FALSE(simplex.asks());
  ASSERT_TRUE(std::isnan(simplex.step()));
  search::NormSearch<double, search::PowerNorm, search::UntilStep> norm;
  norm.Begin(0.5, 1.0, {1e-9});
  norm.Take(NAN, NAN);
  ASSERT_FALSE(norm.asks());
  ASSERT_TRUE(std::isnan(norm.step()));
  search::EdgeSearch edge;
  edge.Begin(2);
  edge.Candidates(-1, 2);
  edge.Sum(NAN);
  ASSERT_EQ(edge.stage(), search::EdgeSearch::Stage::kMet);
  ASSERT_TRUE(std::isnan(edge.p()));
  search::BentSeries bent;
  bent.Begin(0.1, 1, 1, 0x1p-53);
  bent.Take(NAN, NAN, NAN, NAN);
  ASSERT_FALSE(bent.asks());
  ASSERT_TRUE(std::isnan(bent.sum()));
}

TEST(ThresholdSearch, HasTheSameBitsHoweverItIsCompiled) {
  const std::vector<ThresholdRow> rows = threshold_rows();
  std::vector<ThresholdsFound> plain;
  for (const ThresholdRow& row : rows) plain.push_back(search::FindThresholds(row));
  support::for_each_target([&](const std::string& name) {
    std::vector<ThresholdsFound> one(rows.size());
    HWY_DYNAMIC_DISPATCH(FindThresholdsOneByOne)(rows.data(), rows.size(), one.data());
    std::vector<ThresholdsFound> lanes = one;
    HWY_DYNAMIC_DISPATCH(FindThresholdsInLanes)(rows.data(), rows.size(), lanes.data());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      ASSERT_TRUE(one[r] == lanes[r]) << "row " << r;
      ASSERT_TRUE(one[r] == plain[r] || !has_fma(name)) << "row " << r;
    }
  });
}

TEST(Power, HasTheBitsOfTheVectors) {
  std::mt19937_64 generator(5);
  std::vector<std::pair<double, double>> numbers = {{1, 0},   {1, 7},   {0.5, 2000},     {2, 2000},
                                                    {NAN, 1}, {1, NAN}, {0x1p-1074, 0.5}};
  for (int i = 0; i < 200000; ++i) {
    const double exponent = std::ldexp(static_cast<double>(generator()), -64) * 8 - 4;
    numbers.emplace_back(std::bit_cast<double>(generator() >> 1), exponent);
    numbers.emplace_back(std::ldexp(static_cast<double>(generator()), -62), exponent);
  }
  support::for_each_target([&](const std::string& name) {
    if (!has_fma(name)) return;
    for (const auto& [x, exponent] : numbers) {
      const double want = HWY_DYNAMIC_DISPATCH(PowerOf)(x, exponent), got = search::Power(x, exponent);
      ASSERT_TRUE(std::bit_cast<std::uint64_t>(want) == std::bit_cast<std::uint64_t>(got) || (want != want && got != got))
          << x << " to the " << exponent;
    }
  });
}

TEST(Log, HasTheBitsOfTheVectors) {
  std::mt19937_64 generator(3);
  std::vector<double> numbers = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 0x1p-1074, 0x1p-1022, DBL_MAX, std::sqrt(0.5)};
  for (int i = 0; i < 200000; ++i) numbers.push_back(std::bit_cast<double>(generator() >> 1));
  for (int i = 0; i < 200000; ++i) numbers.push_back(std::ldexp(static_cast<double>(generator()), -64) * 2 + 0.5);
  support::for_each_target([&](const std::string& name) {
    if (!has_fma(name)) return;
    for (const double x : numbers) {
      const double want = HWY_DYNAMIC_DISPATCH(LogOf)(x), got = search::Log(x);
      ASSERT_TRUE(std::bit_cast<std::uint64_t>(want) == std::bit_cast<std::uint64_t>(got) || (want != want && got != got)) << x;
    }
  });
}

}  // namespace
}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

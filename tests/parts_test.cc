// Parts of rows: the bits do not depend on the number of parts or where they are split, and agree with the row in one piece
// within the operation's error.

#include <gtest/gtest.h>
#include <isentropic/isentropic.h>
#include <isentropic/parts.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace isentropic {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
struct Batch {
  std::size_t rows, n;
  std::vector<T> x;
  MatrixView<const T> view() const { return {x.data(), rows, n}; }
};

// The result of all parts together, and its cost.
template <class T>
struct Outcome {
  std::vector<T> y;
  std::vector<double> values;
  std::vector<std::int64_t> indices;
  std::vector<std::uint8_t> kept;
  std::size_t rounds = 0, words = 0;
};

using Cuts = std::vector<std::size_t>;

template <class T>
Outcome<T> Joined(const Batch<T>& batch, const Cuts& cuts, const std::function<Part<T>(MatrixView<const T>, Extent)>& make,
                  bool writes, bool cuts_scores = false) {
  std::vector<Part<T>> parts;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    parts.push_back(make({batch.x.data() + cuts[i], batch.rows, cuts[i + 1] - cuts[i], batch.n}, {cuts[i], batch.n}));
  }
  Outcome<T> out;
  for (;;) {
    const Question asked = parts[0].question();
    for (const Part<T>& part : parts) {
      EXPECT_EQ(part.question().join, asked.join);
      EXPECT_EQ(part.question().words, asked.words);
    }
    if (asked.join == Join::none) break;
    ++out.rounds, out.words += asked.words;
    const std::size_t each = batch.rows * asked.words;
    std::vector<std::int64_t> all(each * parts.size()), joined(each);
    for (std::size_t p = 0; p < parts.size(); ++p) parts[p].answer({all.data() + p * each, each});
    if (asked.join == Join::gather) {
      joined = all;
    } else {
      joined.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(each));
      // In reverse order, as a backend may do it.
      for (std::size_t p = parts.size() - 1; p > 0; --p) {
        for (std::size_t i = 0; i < each; ++i) {
          std::int64_t& to = joined[i];
          to = asked.join == Join::sum ? to + all[p * each + i] : std::max(to, all[p * each + i]);
        }
      }
    }
    for (Part<T>& part : parts) part.take(joined);
  }
  if (writes) {
    out.y.resize(batch.x.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      parts[p].write({out.y.data() + cuts[p], batch.rows, cuts[p + 1] - cuts[p], batch.n});
    }
  }
  if (cuts_scores) {
    out.kept.resize(batch.x.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const std::size_t m = cuts[p + 1] - cuts[p];
      std::vector<std::uint8_t> kept(batch.rows * m);
      parts[p].keeps(kept);
      for (std::size_t r = 0; r < batch.rows; ++r) {
        std::copy_n(kept.begin() + static_cast<std::ptrdiff_t>(r * m), m,
                    out.kept.begin() + static_cast<std::ptrdiff_t>(r * batch.n + cuts[p]));
      }
    }
  }
  const auto values = parts[0].values();
  for (std::size_t r = 0; r < values.rows; ++r) out.values.insert(out.values.end(), values.row(r), values.row(r) + values.cols);
  out.indices.assign(parts[0].indices().begin(), parts[0].indices().end());
  for (const Part<T>& part : parts) {
    for (std::size_t r = 0; r < values.rows; ++r) {
      EXPECT_EQ(std::memcmp(part.values().row(r), values.row(r), values.cols * sizeof(double)), 0);
    }
  }
  return out;
}

template <class V>
bool Same(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

std::vector<Cuts> CutsOf(std::size_t n) {
  return {{0, n},
          {0, n / 2, n},
          {0, n / 7, n / 7 + 3, n},
          {0, n / 4, n / 2, 3 * n / 4, n},
          {0, 0, 1, n / 3, n / 3, n / 2 + 1, n - 5, n, n}};
}

// Rows of every kind: with fully masked stretches, ties, infinities and NaN.
template <class T>
Batch<T> Rows(std::size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Batch<T> batch = {13, n, std::vector<T>(13 * n)};
  const auto fill = [&](std::size_t r, const std::function<double(std::size_t)>& f) {
    for (std::size_t i = 0; i < n; ++i) batch.x[r * n + i] = static_cast<T>(f(i));
  };
  fill(0, [&](std::size_t) { return normal(random); });
  fill(1, [&](std::size_t) { return 4 * normal(random); });
  fill(2, [&](std::size_t) { return std::round(3 * normal(random)); });
  fill(3, [&](std::size_t i) { return i < n / 2 ? -kInf : normal(random); });
  fill(4, [&](std::size_t i) { return i == n - 2 ? 30 : 0.01 * normal(random); });
  fill(5, [&](std::size_t) { return 2.5; });
  fill(6, [&](std::size_t i) { return i % 5 == 3 ? -kInf : 1e6 + 2 * normal(random); });
  fill(7, [&](std::size_t) { return -kInf; });
  fill(8, [&](std::size_t i) { return i == n / 3 ? std::nan("") : normal(random); });
  fill(9, [&](std::size_t i) { return i % 11 == 7 ? kInf : normal(random); });
  fill(10, [&](std::size_t i) { return i == 4 ? 1 : -kInf; });
  fill(11, [&](std::size_t) { return -std::abs(5 * normal(random)) * std::abs(normal(random)); });
  fill(12, [&](std::size_t) { return 1e-5 * normal(random); });
  return batch;
}

template <class T>
class Parts : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Parts, Types);

std::vector<Map> Maps() {
  std::vector<Map> maps = {Softmax{}, Softmax{.temperature = 0.3}, Sparsemax{}, Sparsemax{.temperature = 5}};
  for (const double alpha : {0.5, 1.0, 1.1, 1.3, 1.5, 1.7, 2.0, 2.5, 4.0}) maps.push_back(Entmax{.alpha = alpha});
  for (const int k : {1, 5, 200}) maps.push_back(TopKSoftmax{.k = k});
  for (const double p : {0.3, 0.9, 1.0}) maps.push_back(TopPSoftmax{.p = p});
  for (const double p : {0.01, 0.5}) maps.push_back(MinPSoftmax{.p = p});
  for (const double h : {0.0, 0.5, 2.0, 5.0, 20.0}) maps.push_back(EntropyNormalize{.entropy = h});
  maps.push_back(EntropyClip{.min_entropy = 1, .max_entropy = 3});
  return maps;
}

std::string NameOf(const Map& map) {
  return std::visit(
      []<class Op>(const Op& op) {
        std::string name(Op::kDescription.name);
        for_each_param<Op>([&]<class Value>(const Param<Op, Value>& param) {
          if constexpr (std::is_same_v<Value, double>) name += " " + std::to_string(op.*param.member);
          if constexpr (std::is_same_v<Value, std::optional<double>>)
            name += " " + std::to_string((op.*param.member).value_or(-1));
        });
        return name;
      },
      map);
}

TYPED_TEST(Parts, MapsHaveTheSameBitsHoweverTheyAreCut) {
  for (const std::size_t n : {40, 600}) {
    const Batch<TypeParam> batch = Rows<TypeParam>(n, 1);
    for (const Map& map : Maps()) {
      const auto make = [&](auto x, Extent extent) { return part_of<TypeParam>(map, x, extent); };
      std::vector<Outcome<TypeParam>> all;
      for (const Cuts& cuts : CutsOf(n)) all.push_back(Joined<TypeParam>(batch, cuts, make, true));
      for (std::size_t i = 1; i < all.size(); ++i) {
        for (std::size_t r = 0; r < batch.rows; ++r) {
          EXPECT_EQ(std::memcmp(all[i].y.data() + r * n, all[0].y.data() + r * n, n * sizeof(TypeParam)), 0)
              << NameOf(map) << " n " << n << " cuts " << i << " row " << r;
        }
        EXPECT_TRUE(Same(all[i].values, all[0].values)) << NameOf(map) << " cuts " << i;
      }
    }
  }
}

TYPED_TEST(Parts, MapsAreThoseOfAWholeRow) {
  using T = TypeParam;
  constexpr double kEps = std::numeric_limits<T>::epsilon();
  for (const std::size_t n : {40, 600}) {
    const Batch<T> batch = Rows<T>(n, 2);
    for (const Map& map : Maps()) {
      const auto make = [&](auto x, Extent extent) { return part_of<T>(map, x, extent); };
      const Outcome<T> found = Joined<T>(batch, {0, n / 3, n / 2, n}, make, true);
      std::vector<T> p(batch.x.size());
      apply(map, batch.view(), MatrixView<T>(p.data(), batch.rows, n));
      const bool solves = std::holds_alternative<EntropyNormalize>(map) || std::holds_alternative<EntropyClip>(map);
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double want = static_cast<double>(p[i]), got = static_cast<double>(found.y[i]);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got)) << NameOf(map) << " n " << n << " row " << i / n;
          continue;
        }
        const bool steep = std::holds_alternative<Entmax>(map) && std::get<Entmax>(map).alpha > 2;
        const double allowed = solves ? (sizeof(T) == 4 ? 1e-5 : 1e-9) : steep ? 1e3 * kEps : 8 * kEps;
        EXPECT_NEAR(got, want, allowed) << NameOf(map) << " n " << n << " row " << i / n << " at " << i % n;
        if (std::holds_alternative<Softmax>(map) && want > 1e-30) {
          EXPECT_LE(std::abs(got - want), 3 * kEps * want) << "row " << i / n << " at " << i % n;
        }
      }
      if (!std::holds_alternative<TopKSoftmax>(map) && !std::holds_alternative<TopPSoftmax>(map)) continue;
      for (std::size_t i = 0; i < p.size(); ++i) EXPECT_EQ(p[i] == 0, found.y[i] == 0) << NameOf(map) << " row " << i / n;
    }
  }
}

TYPED_TEST(Parts, EntropiesAreMet) {
  using T = TypeParam;
  const std::size_t n = 600;
  const Batch<T> batch = Rows<T>(n, 3);
  for (const double h : {0.5, 2.0, 4.0, 6.0}) {
    const auto make = [&](auto x, Extent extent) { return part_of<T>(GammaForEntropy{.entropy = h}, x, extent); };
    const Outcome<T> found = Joined<T>(batch, {0, n / 3, n}, make, true);
    for (const std::size_t r : {0, 1, 3, 6, 11}) {
      if (static_cast<GammaStatus>(found.values[5 * r + 2]) != GammaStatus::ok) continue;
      double entropy = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double p = static_cast<double>(found.y[r * n + i]);
        if (p > 0) entropy -= p * std::log(p);
      }
      EXPECT_NEAR(entropy, h, (sizeof(T) == 4 ? 1e-6 : 1e-12) * std::max(1.0, h)) << "row " << r;
    }
    EXPECT_LE(found.rounds, sizeof(T) == 4 ? 4u : 6u);
  }
}

TYPED_TEST(Parts, OthersHaveTheSameBitsHoweverTheyAreCut) {
  using T = TypeParam;
  const std::size_t n = 600;
  const Batch<T> batch = Rows<T>(n, 4);
  std::vector<std::int64_t> classes(batch.rows);
  for (std::size_t r = 0; r < classes.size(); ++r) classes[r] = r == 3 ? -100 : static_cast<std::int64_t>(47 * r);
  const std::vector<std::pair<bool, std::function<Part<T>(MatrixView<const T>, Extent)>>> makers = {
      {true, [&](auto x, Extent extent) { return part_of<T>(RowStatistics{.entropy = true}, x, extent, classes); }},
      {true, [&](auto x, Extent extent) { return part_of<T>(GammaForEntropy{.entropy = 2, .max_gamma = 0.5}, x, extent); }},
      {true, [&](auto x, Extent extent) { return part_of<T>(step::TypicalP{0.7}, 0.8, x, extent); }},
      {false, [&](auto x, Extent extent) { return part_of<T>(Sample{0.7}, x, extent, Noise{.seed = 3}, 4); }},
  };
  for (std::size_t m = 0; m < makers.size(); ++m) {
    const Outcome<T> whole = Joined<T>(batch, {0, n}, makers[m].second, makers[m].first);
    for (const Cuts& cuts : CutsOf(n)) {
      const Outcome<T> cut = Joined<T>(batch, cuts, makers[m].second, makers[m].first);
      EXPECT_TRUE(Same(cut.y, whole.y)) << m;
      EXPECT_TRUE(Same(cut.values, whole.values)) << m;
      EXPECT_TRUE(Same(cut.indices, whole.indices)) << m;
    }
  }
}

// The numbers of a row at any temperature are those of the functions of whole rows, in float64.
TYPED_TEST(Parts, StatisticsAreThoseOfAWholeRow) {
  using T = TypeParam;
  const std::size_t n = 600;
  const Batch<T> batch = Rows<T>(n, 9);
  std::vector<std::int64_t> classes(batch.rows);
  for (std::size_t r = 0; r < classes.size(); ++r) classes[r] = static_cast<std::int64_t>(41 * r);
  for (const double temperature : {0.3, 1.0, 4.0}) {
    const auto make = [&](auto x, Extent extent) {
      return part_of<T>(RowStatistics{.temperature = temperature, .entropy = true}, x, extent, classes);
    };
    const Outcome<T> found = Joined<T>(batch, {0, n / 3, n / 2, n}, make, true);
    for (std::size_t r = 0; r < batch.rows; ++r) {
      const auto near = [&](double got, double want, const char* what) {
        const double error = 8 * std::numeric_limits<T>::epsilon() * std::max(1.0, std::abs(want));
        const bool same = std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= error;
        EXPECT_TRUE(same) << what << " row " << r << " T " << temperature << ": " << got << ", not " << want;
      };
      const std::vector<double> x(batch.x.data() + r * n, batch.x.data() + (r + 1) * n);
      std::vector<double> log_p(n);
      log_softmax(LogSoftmax{temperature}, x, log_p);
      long double entropy = 0;
      double largest = -kInf;
      for (std::size_t i = 0; i < n; ++i) {
        near(static_cast<double>(found.y[r * n + i]), log_p[i], "log_softmax");
        if (log_p[i] != -kInf) entropy -= std::exp(log_p[i]) * static_cast<long double>(log_p[i]);
        largest = std::isnan(log_p[i]) ? log_p[i] : std::max(largest, log_p[i]);
      }
      const double* const values = found.values.data() + RowStatistics::kValues * r;
      near(values[2], logsumexp(LogSumExp{temperature}, x), "logsumexp");
      near(values[3], log_p[static_cast<std::size_t>(classes[r])], "log p");
      near(values[4], static_cast<double>(entropy), "entropy");
      near(values[5], std::exp(largest), "max p");
    }
  }
}

TYPED_TEST(Parts, DrawsAndChainsAreThoseOfAWholeRow) {
  using T = TypeParam;
  const std::size_t n = 600;
  const Batch<T> batch = Rows<T>(n, 5);
  std::vector<std::int64_t> want(batch.rows * 50);
  const Noise noise = {.seed = 9, .stream = 4, .position = 2};
  sample(Sample{0.7}, batch.view(), MatrixView<std::int64_t>(want.data(), batch.rows, 50), noise);
  const auto make = [&](auto x, Extent extent) { return part_of<T>(Sample{0.7}, x, extent, noise, 50); };
  EXPECT_EQ((Joined<T>(batch, {0, 100, 101, 333, n}, make, false).indices), want);
  std::vector<std::uint64_t> streams;
  for (std::size_t r = 0; r < batch.rows; ++r) streams.push_back(100 - 7 * r);
  const Noise chosen = {.seed = 9, .streams = streams};
  sample(Sample{}, batch.view(), MatrixView<std::int64_t>(want.data(), batch.rows, 50), chosen);
  const auto by_streams = [&](auto x, Extent extent) { return part_of<T>(Sample{}, x, extent, chosen, 50); };
  EXPECT_EQ((Joined<T>(batch, {0, 100, 101, 333, n}, by_streams, false).indices), want);
  std::vector<T> p(batch.x.size());
  Sampler({step::TypicalP{0.7}}).probs<T>(batch.view(), MatrixView<T>(p.data(), batch.rows, n));
  const auto typical = [&](auto x, Extent extent) { return part_of<T>(step::TypicalP{0.7}, 1.0, x, extent); };
  const Outcome<T> found = Joined<T>(batch, {0, 100, 101, 333, n}, typical, true);
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] != p[i]) continue;
    EXPECT_NEAR(static_cast<double>(found.y[i]), static_cast<double>(p[i]), 1e-6) << i / n << " at " << i % n;
  }
}

// x / T may be so large that it swallows the noise, or infinite: equal scores are drawn equally often all the same.
TYPED_TEST(Parts, DrawsOfAnySize) {
  using T = TypeParam;
  const std::size_t n = 90, draws = 200;
  const T most = std::numeric_limits<T>::max();
  const auto inf = static_cast<T>(kInf);
  const Noise noise = {.seed = 2};
  for (const double temperature : {1.0, 1e-9, 1e-300, 5e-324}) {
    Batch<T> batch = {6, n, std::vector<T>(6 * n)};
    for (std::size_t i = 0; i < n; ++i) {
      batch.x[i] = i % 3 == 1 ? T(1e30) : -most;
      batch.x[n + i] = i % 4 == 0 ? -most : -inf;
      batch.x[2 * n + i] = i % 5 == 2 ? T(0) : T(-1);
      batch.x[3 * n + i] = i % 2 == 0 ? T(1e9) : T(1e9) - T(128);
      batch.x[4 * n + i] = i % 7 == 3 ? most : T(0);
      batch.x[5 * n + i] = static_cast<T>(i % 3);
    }
    std::vector<std::int64_t> want(batch.rows * draws);
    sample(Sample{temperature}, batch.view(), MatrixView<std::int64_t>(want.data(), batch.rows, draws), noise);
    const auto make = [&](auto x, Extent extent) { return part_of<T>(Sample{temperature}, x, extent, noise, draws); };
    for (const Cuts& cuts : CutsOf(n)) EXPECT_EQ((Joined<T>(batch, cuts, make, false).indices), want) << temperature;
  }
}

TEST(PartSums, AreExact) {
  const std::size_t n = 500;
  std::mt19937_64 random(6);
  std::normal_distribution<double> normal;
  for (const double size : {1e-300, 1.0, 1e200}) {
    Batch<double> batch = {3, n, {}};
    for (std::size_t i = 0; i < 3 * n; ++i) batch.x.push_back(size * normal(random));
    const auto make = [&](auto x, Extent extent) { return part_of(RowSum{}, x, extent); };
    const auto whole = Joined<double>(batch, {0, n}, make, false);
    for (const Cuts& cuts : CutsOf(n)) EXPECT_TRUE(Same(Joined<double>(batch, cuts, make, false).values, whole.values));
    for (std::size_t r = 0; r < 3; ++r) {
      long double sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += batch.x[r * n + i];
      EXPECT_NEAR(whole.values[r], static_cast<double>(sum), 1e-15 * size);
    }
  }
}

TEST(PartSums, OfWhatIsTooLargeOrNoNumber) {
  const std::size_t n = 40;
  for (const double odd : {kInf, 0x1p41, std::nan("")}) {
    Batch<double> batch = {2, n, std::vector<double>(2 * n, 0.5)};
    batch.x[17] = odd;
    for (const bool bounded : {false, true}) {
      const auto make = [&](auto x, Extent extent) { return part_of(RowSum{.bounded = bounded}, x, extent); };
      const std::vector<double> sums = Joined<double>(batch, {0, 10, 20, n}, make, false).values;
      if (bounded) {
        EXPECT_EQ(sums[0], kInf) << odd;
      } else if (std::isfinite(odd)) {
        EXPECT_EQ(sums[0], odd + 0.5 * (n - 1));
      } else {
        EXPECT_TRUE(std::isnan(sums[0])) << odd << " gives " << sums[0];
      }
      EXPECT_EQ(sums[1], 0.5 * n);
    }
  }
}

TEST(PartSums, DivergencesOfNearRowsKeepTheirDigits) {
  const std::size_t n = 300;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (const double away : {1e-8, 1e-4, 1.0}) {
    std::vector<double> log_p(n), log_q(n);
    const auto normalized = [&](std::vector<double>& l) {
      long double sum = 0;
      for (const double v : l) sum += std::exp(static_cast<long double>(v));
      for (double& v : l) v -= static_cast<double>(std::log(sum));
    };
    for (std::size_t i = 0; i < n; ++i) log_p[i] = normal(random), log_q[i] = log_p[i] + away * normal(random);
    normalized(log_p), normalized(log_q);
    Batch<double> terms = {1, n, std::vector<double>(n)};
    divergence_terms(log_p, log_q, terms.x);
    long double want = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const long double r = static_cast<long double>(log_q[i]) - log_p[i];
      want += std::exp(static_cast<long double>(log_p[i])) * (std::expm1(r) - r);
    }
    const auto make = [&](auto x, Extent extent) { return part_of(RowSum{.bounded = true}, x, extent); };
    EXPECT_NEAR(Joined<double>(terms, {0, 100, n}, make, false).values[0] / static_cast<double>(want), 1, 1e-12) << away;
  }
}

// Questions and bytes per row for float32.
TEST(PartQuestions, AreFew) {
  const std::size_t n = 8192;
  std::mt19937_64 random(8);
  std::normal_distribution<double> normal;
  Batch<float> batch = {4, n, std::vector<float>(4 * n)};
  for (std::size_t i = 0; i < batch.x.size(); ++i)
    batch.x[i] = static_cast<float>((1 + static_cast<double>(i / n)) * normal(random));
  const Cuts cuts = {0, 2000, 4096, 8000, n};
  const auto cost = [&](const Map& map) {
    return Joined<float>(
        batch, cuts, [&](auto x, Extent extent) { return part_of<float>(map, x, extent); }, true);
  };
  const std::vector<std::int64_t> classes = {1, 2, 3, 8191};
  const auto statistics = Joined<float>(
      batch, cuts, [&](auto x, Extent extent) { return part_of<float>(RowStatistics{.entropy = true}, x, extent, classes); },
      true);
  EXPECT_EQ(statistics.rounds, 2u);
  EXPECT_LE(8 * statistics.words, 40u);
  for (const double h : {1.0, 3.0, 6.0}) {
    const auto found = cost(EntropyNormalize{.entropy = h});
    EXPECT_EQ(found.rounds, 3u) << h;
    EXPECT_LE(8 * found.words, 830u) << h;
  }
  EXPECT_EQ(cost(TopKSoftmax{.k = 50}).rounds, 1u);
  EXPECT_LE(cost(TopPSoftmax{.p = 0.9}).rounds, 7u);
  EXPECT_EQ(cost(Sparsemax{}).rounds, 2u);
  EXPECT_EQ(cost(Entmax{.alpha = 1.5}).rounds, 2u);
  for (float& x : batch.x) x *= 0.01f;
  for (const double alpha : {1.3, 1.5, 2.0}) EXPECT_LT(cost(Entmax{.alpha = alpha}).rounds, 9u) << alpha;
  for (const float scale : {1e-2f, 1e-4f, 1e-3f}) {
    for (float& x : batch.x) x *= scale;
    for (const double alpha : {2.1, 2.5, 3.0, 5.0, 20.0}) EXPECT_LE(cost(Entmax{.alpha = alpha}).rounds, 14u) << alpha;
  }
  const auto draw = Joined<float>(
      batch, cuts, [&](auto x, Extent extent) { return part_of<float>(Sample{}, x, extent, Noise{.seed = 1}); }, false);
  EXPECT_EQ(draw.rounds, 1u);
  EXPECT_EQ(8 * draw.words, 16u);
}

TEST(PartArguments, AreChecked) {
  const std::vector<float> x(8);
  const MatrixView<const float> view(x.data(), 2, 4);
  EXPECT_THROW(part_of<float>(Map{Softmax{}}, view, {2, 4}), std::invalid_argument);
  EXPECT_THROW(part_of<float>(Map{Softmax{.temperature = 0}}, view, {0, 4}), std::invalid_argument);
  EXPECT_THROW(part_of<float>(Map{SigSoftmax{}}, view, {0, 4}), std::invalid_argument);
  const std::vector<std::int64_t> classes = {0, 4};
  EXPECT_THROW(part_of<float>(RowStatistics{}, view, {0, 4}, classes), std::invalid_argument);
  auto part = part_of<float>(Map{Softmax{}}, view, {0, 4});
  std::vector<std::int64_t> words(3);
  EXPECT_THROW(part.answer(words), std::logic_error);
}

}  // namespace
}  // namespace isentropic

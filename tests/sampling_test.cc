// Sampling: the law of every chain, draws with that law, and draws that only depend on their noise and their row.

#include "isentropic/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "isentropic/isentropic.h"
#include "tests/oracle/sampling.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/guarded.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

using support::expect_error;

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// A text with repetitions and padding for rows of n scores, of tokens that have one.
const std::vector<std::int64_t>& text(std::size_t n) {
  static std::map<std::size_t, std::vector<std::int64_t>> texts;
  std::vector<std::int64_t>& found = texts[n];
  if (found.empty()) {
    found = {-1, 1, 0, 2, 5, 1, 0, 2, 7, 3, -1, 9, 1, 0, 1030, 2, 1, 0};
    for (std::int64_t& token : found) token = token < static_cast<std::int64_t>(n) ? token : -1;
  }
  return found;
}
std::vector<std::int64_t> tokens_of_text(std::size_t n) {
  std::vector<std::int64_t> tokens = text(n);
  std::erase(tokens, -1);
  return tokens;
}
bool reads_text(const Step& step) { return isentropic::reads_text(description_of(step)); }
bool reads_text(const std::vector<Step>& steps) {
  return std::ranges::any_of(steps, [](const Step& step) { return reads_text(step); });
}
// The text for each of some rows of n scores, if a step reads it.
Texts texts_of(const std::vector<Step>& steps, std::size_t rows, std::size_t n) {
  static std::map<std::size_t, std::vector<std::int64_t>> repeated;
  if (!reads_text(steps)) return {};
  std::vector<std::int64_t>& all = repeated[n];
  for (int r = 0; r < 100 && all.size() < 100 * text(n).size(); ++r) all.insert(all.end(), text(n).begin(), text(n).end());
  return {.tokens = {all.data(), rows, text(n).size()}};
}

// mirostat's distribution is asked of a draw.
template <class T>
std::vector<T> probs_of(const std::vector<Step>& steps, const std::vector<T>& x) {
  std::vector<T> p(x.size());
  const MatrixView<const T> row(x.data(), 1, x.size());
  const MatrixView<T> out(p.data(), 1, x.size());
  if (!steps.empty() && std::holds_alternative<step::Mirostat>(steps.back())) {
    std::int64_t index;
    Sampler(steps).sample(row, MatrixView<std::int64_t>(&index, 1, 1), {}, texts_of(steps, 1, x.size()), out);
  } else {
    Sampler(steps).probs(row, out, texts_of(steps, 1, x.size()));
  }
  return p;
}

template <class T>
std::vector<std::int64_t> draws_of(const std::vector<Step>& steps, const std::vector<T>& x, std::size_t count, Noise noise = {},
                                   std::uint64_t seed = 1) {
  std::vector<std::int64_t> indices(count);
  Sampler(steps, seed)
      .sample(MatrixView<const T>(x.data(), 1, x.size()), MatrixView<std::int64_t>(indices.data(), 1, count), noise,
              texts_of(steps, 1, x.size()));
  return indices;
}

// One of each step, with values that have an effect.
std::vector<Step> every_step(std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  return {step::Temperature{std::exp(2 * uniform(random) - 1)},
          step::TopK{static_cast<std::int64_t>(1 + random() % 60)},
          step::TopP{0.3 + 0.69 * uniform(random)},
          step::MinP{std::pow(10, -3 * uniform(random))},
          step::TypicalP{0.3 + 0.69 * uniform(random)},
          step::Entropy{3 * uniform(random)},
          step::EntropyClip{1, 1 + 2 * uniform(random)},
          step::Epsilon{std::pow(10, -1 - 3 * uniform(random))},
          step::Eta{std::pow(10, -1 - 3 * uniform(random))},
          step::TopNSigma{0.5 + 2 * uniform(random)},
          step::TopH{0.1 + 0.8 * uniform(random)},
          step::PLess{},
          step::Xtc{1, std::pow(10, -1 - 2 * uniform(random))},
          step::Penalties{0.5 + uniform(random), uniform(random) - 0.5, uniform(random) - 0.5,
                          static_cast<std::int64_t>(random() % 20) - 1},
          step::Dry{uniform(random),
                    1 + uniform(random),
                    static_cast<std::int64_t>(1 + random() % 3),
                    {7, 9},
                    static_cast<std::int64_t>(random() % 20) - 1},
          step::Mirostat{1 + 2 * uniform(random), 0.1}};
}

TEST(Philox, KnownAnswers) {  // kat_vectors of Random123
  using Counter = Philox::Counter;
  EXPECT_EQ(Philox::Bits({}, {}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox::Bits({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::Bits({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Noise, IsWhatTheDocumentSays) {
  const Noise noise = {.seed = 0x123456789abcdef0, .stream = 77, .position = std::uint64_t{1} << 40};
  const NoiseKey key = NoiseKey::Of(noise.seed, noise.stream, noise.position);
  support::for_each_target([&](const std::string&) {
    for (const std::size_t n : {1, 3, 64, 65, 1000}) {
      const support::Guarded<double> memory(n);
      gumbel_noise(MatrixView<double>(memory.data(), 1, n), noise);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(memory.data()[i], -std::log(static_cast<double>(oracle::exponential(key, i))), 1e-13) << i;
      }
    }
  });
}

// Tests for Exp(1): single numbers, neighbours, and the least of a block.
TEST(Noise, IsExponentialAndIndependent) {
  const std::size_t rows = 400, n = 640;
  std::vector<double> g(rows * n);
  gumbel_noise(MatrixView<double>(g.data(), rows, n), {.seed = 5});
  const auto uniform = [&](std::size_t i) { return std::exp(-std::exp(-g[i])); };
  std::vector<double> alone(256), together(256), least(64), place(64);
  for (std::size_t i = 0; i < g.size(); ++i) alone[static_cast<std::size_t>(256 * uniform(i))] += 1;
  for (std::size_t i = 0; i < g.size(); i += 2) {
    together[16 * static_cast<std::size_t>(16 * uniform(i)) + static_cast<std::size_t>(16 * uniform(i + 1))] += 1;
  }
  for (std::size_t i = 0; i < g.size(); i += 64) {
    const auto largest =
        std::max_element(g.begin() + static_cast<std::ptrdiff_t>(i), g.begin() + static_cast<std::ptrdiff_t>(i) + 64);
    least[static_cast<std::size_t>(64 * std::exp(-64 * std::exp(-*largest)))] += 1;
    place[static_cast<std::size_t>(largest - g.begin()) - i] += 1;
  }
  for (const auto& counts : {alone, together, least, place}) {
    double total = 0, chi = 0;
    for (const double count : counts) total += count;
    const double expected = total / static_cast<double>(counts.size());
    for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
    const double freedom = static_cast<double>(counts.size()) - 1;
    EXPECT_LT(std::abs(chi - freedom), 4 * std::sqrt(2 * freedom));
  }
}

template <class T>
void check_law(const std::vector<Step>& steps, const std::vector<T>& x) {
  const oracle::Row expected = oracle::chain(steps, oracle::Row(x.begin(), x.end()), tokens_of_text(x.size()));
  const std::vector<T> p = probs_of(steps, x);
  double sum = 0;
  // A step that sets an entropy meets the entropy, not the scale, within 1e-6 or 1e-12. Scores of 100 show that in a step that
  // acts on scores.
  const double scale = reads_text(steps) ? 100 : 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(p[i], static_cast<double>(expected[i]), (sizeof(T) == 4 ? 3e-6 : 1e-10) * scale) << i << " of " << x.size();
    const bool certain = expected[i] > (sizeof(T) == 4 ? 1e-37 : 1e-300);
    ASSERT_TRUE(certain ? p[i] > 0 : expected[i] > 0 || p[i] == 0) << i << " of " << x.size();
    sum += static_cast<double>(p[i]);
  }
  ASSERT_NEAR(sum, 1, sizeof(T) == 4 ? 1e-6 : 1e-13);
}

template <class T>
void check_laws() {
  std::mt19937 random(sizeof(T));
  for (const std::size_t n : {1, 2, 17, 64, 300, 1000, 9000, 20000}) {
    for (int round = 0; round < (n < 1000 ? 4 : 1); ++round) {
      std::vector<T> x = support::normal_row<T>(n, round % 3 == 2 ? 0.5 : 2.5, round % 4 == 0 ? 100 : 0, random());
      if (round % 4 == 1) {
        for (T& score : x) score = random() % 3 == 0 ? -kInfinity<T> : score;
        x[n / 2] = 1;
      }
      if (round % 4 == 3) {
        for (T& score : x) score = std::round(2 * score) / 2;  // ties
      }
      const std::vector<Step> steps = every_step(random);
      for (std::size_t a = 0; a < steps.size(); ++a) {
        SCOPED_TRACE("n " + std::to_string(n) + " round " + std::to_string(round) + " first " + std::to_string(a));
        check_law<T>({steps[a]}, x);
        if (a + 1 == steps.size()) break;  // mirostat is the last step
        // All pairs of steps in short rows, some in long ones.
        for (std::size_t b = n < 300 ? 0 : random() % 7; b < (n < 9000 ? steps.size() : 2); b += n < 300 ? 1 : 7) {
          SCOPED_TRACE("second " + std::to_string(b));
          check_law<T>({steps[a], steps[b]}, x);
          if (::testing::Test::HasFatalFailure()) return;
        }
        std::vector<Step> all = {steps.begin(), steps.end() - 1};
        std::shuffle(all.begin(), all.end(), random);
        all.resize(4);
        check_law(all, x);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Sampler, LawIsTheDefinitionsFloat) { check_laws<float>(); }
TEST(Sampler, LawIsTheDefinitionsDouble) { check_laws<double>(); }

// Steps that are equal to maps.
TEST(Sampler, StepsAreMaps) {
  for (const auto& [name, x] : support::finite_cases<double>()) {
    SCOPED_TRACE(name);
    const std::pair<Step, Map> pairs[] = {{step::Temperature{0.7}, Softmax{0.7}},
                                          {step::TopK{5}, TopKSoftmax{.k = 5}},
                                          {step::TopP{0.8}, TopPSoftmax{.p = 0.8}},
                                          {step::MinP{0.1}, MinPSoftmax{.p = 0.1}},
                                          {step::Entropy{0.5}, EntropyNormalize{.entropy = 0.5}},
                                          {step::EntropyClip{0.5, 1}, EntropyClip{.min_entropy = 0.5, .max_entropy = 1}}};
    for (const auto& [step, map] : pairs) {
      std::vector<double> p(x.size());
      apply<double>(map, MatrixView<const double>(x.data(), 1, x.size()), MatrixView<double>(p.data(), 1, x.size()));
      const std::vector<double> q = probs_of({step}, x);
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(p[i], q[i], 1e-10) << i;
    }
  }
}

template <class T>
void check_entropies() {
  for (const auto& [name, x] : support::finite_cases<T>()) {
    SCOPED_TRACE(name);
    for (const double target : {0.01, 0.5, 1.0, 3.0}) {
      std::vector<T> q(x.size());
      apply<T>(EntropyNormalize{.entropy = target}, MatrixView<const T>(x.data(), 1, x.size()),
               MatrixView<T>(q.data(), 1, x.size()));
      const std::vector<T> p = probs_of<T>({step::Entropy{target}}, x);
      const long double reached = oracle::entropy(oracle::Row(q.begin(), q.end()));
      ASSERT_NEAR(static_cast<double>(oracle::entropy(oracle::Row(p.begin(), p.end()))), static_cast<double>(reached),
                  (sizeof(T) == 4 ? 2e-6 : 2e-12) * std::max(1.0, target));
    }
  }
}

TEST(Sampler, EntropyIsMetFloat) { check_entropies<float>(); }
TEST(Sampler, EntropyIsMetDouble) { check_entropies<double>(); }

// Pearson's statistic of draws against the law, neighbours with little mass together.
void check_draws(const std::vector<double>& p, const std::vector<std::int64_t>& draws) {
  std::vector<double> counts(p.size());
  for (const std::int64_t i : draws) {
    ASSERT_GE(i, 0);
    ASSERT_GT(p[static_cast<std::size_t>(i)], 0) << "drawn with probability 0";
    counts[static_cast<std::size_t>(i)] += 1;
  }
  double chi = 0, freedom = -1, mass = 0, count = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    mass += p[i] * static_cast<double>(draws.size()), count += counts[i];
    if (mass < 10) continue;
    chi += (count - mass) * (count - mass) / mass;
    freedom += 1;
    mass = count = 0;
  }
  ASSERT_LT(chi, freedom + 4.5 * std::sqrt(2 * std::max(1.0, freedom)) + 8);
}

TEST(Sampler, DrawsHaveTheLaw) {
  std::mt19937 random(7);
  for (const std::size_t n : {2, 30, 1000}) {
    const std::vector<Step> steps = every_step(random);
    const std::vector<float> x = support::normal_row<float>(n, 1.5, 3, static_cast<unsigned>(n));
    const auto check = [&](const std::vector<Step>& chain) {
      const std::vector<float> p = probs_of(chain, x);
      check_draws(std::vector<double>(p.begin(), p.end()), draws_of(chain, x, n == 1000 ? 8000 : 20000));
    };
    check({});
    for (std::size_t a = 0; a < steps.size(); ++a) {
      SCOPED_TRACE(a);
      if (!std::holds_alternative<step::Mirostat>(steps[a])) check({steps[a]});  // its draws change the law
      if (n != 1000 && a + 1 < steps.size()) {
        for (std::size_t b = 0; b + 1 < steps.size(); ++b) check({steps[a], steps[b]});
      }
    }
  }
}

// One draw from each of many streams, seeds or positions: none may resemble another.
TEST(Sampler, StreamsAndSeedsAreIndependent) {
  const std::size_t n = 7, count = 20000;
  const std::vector<double> x = support::normal_row<double>(n, 1, 0, 3), p = probs_of<double>({}, x);
  std::vector<double> batch;
  for (std::size_t r = 0; r < count; ++r) batch.insert(batch.end(), x.begin(), x.end());
  std::vector<std::int64_t> rows(count), seeds;
  sample(Sample{}, MatrixView<const double>(batch.data(), count, n), MatrixView<std::int64_t>(rows.data(), count, 1), Noise{});
  check_draws(p, rows);
  for (std::size_t s = 0; s < count; ++s) seeds.push_back(draws_of({}, x, 1, {}, s)[0]);
  check_draws(p, seeds);
  std::size_t same = 0;
  double likely = 0;
  for (std::size_t s = 0; s < count; ++s) same += rows[s] == seeds[s];
  for (const double mass : p) likely += mass * mass;
  EXPECT_NEAR(static_cast<double>(same) / count, likely, 0.02);
}

// Skipped blocks could not have won: the draw is the largest of all, also after truncation.
template <class T>
void check_against_all_noise() {
  for (const std::size_t n : {1, 63, 64, 300, 5000, 70000}) {
    const std::vector<T> x = support::normal_row<T>(n, 2, 0, static_cast<unsigned>(n));
    for (const std::vector<Step>& steps :
         {std::vector<Step>{}, {step::Temperature{0.3}}, {step::Temperature{30}}, {step::TopP{0.97}}, {step::MinP{0.01}}}) {
      const std::vector<T> p = probs_of(steps, x);
      // Two keys are rarely nearly equal: the shortest rows that have blocks are drawn from most often.
      const std::uint64_t draws = n == 300 ? 1000 : n < 5000 ? 40 : 5;
      for (std::uint64_t position = 0; position < draws; ++position) {
        std::vector<double> g(n);
        gumbel_noise(MatrixView<double>(g.data(), 1, n), {.seed = 1, .stream = 9, .position = position});
        const double temperature =
            steps.empty() || steps[0].index() != 0 ? 1 : std::get<step::Temperature>(steps[0]).temperature;
        std::int64_t best = -1;
        double key = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const double here = static_cast<double>(x[i]) / temperature + g[i];
          if (p[i] > 0 && (best < 0 || here > key)) best = static_cast<std::int64_t>(i), key = here;
        }
        ASSERT_EQ(draws_of(steps, x, 1, {.stream = 9, .position = position})[0], best) << n << " at " << position;
      }
    }
  }
}

TEST(Sampler, DrawIsTheLargestFloat) { check_against_all_noise<float>(); }
TEST(Sampler, DrawIsTheLargestDouble) { check_against_all_noise<double>(); }

TEST(Sampler, DrawsDependOnTheirRowAlone) {
  const std::size_t rows = 40, cols = 3000, count = 3;
  std::vector<float> x;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = support::normal_row<float>(cols, 2, 0, static_cast<unsigned>(r / 2));  // pairs of equal rows
    x.insert(x.end(), row.begin(), row.end());
  }
  std::mt19937 random(3);
  const std::vector<Step> every = every_step(random);
  std::vector<std::vector<Step>> chains = {
      {}, {step::Temperature{0.8}, step::TopK{50}, step::TopP{0.95}}, every, {step::Xtc{0.5, 0.01}}};
  for (const Step& step : every) {
    if (!std::holds_alternative<step::Mirostat>(step)) chains.push_back({step});  // it knows the draws before
  }
  std::erase_if(chains[2], [](const Step& step) { return std::holds_alternative<step::Mirostat>(step); });
  for (const auto& steps : chains) {
    const Sampler sampler(steps, 11);
    const MatrixView<const float> batch(x.data(), rows, cols);
    std::vector<std::int64_t> first(rows * count), other(rows * count);
    const Noise noise = {.stream = 5, .position = 100};
    const Texts texts = texts_of(steps, rows, cols), one = texts_of(steps, 1, cols);
    sampler.sample(batch, MatrixView<std::int64_t>(first.data(), rows, count), noise, texts);
    support::for_each_target([&](const std::string&) {
      for (const std::size_t threads : {1, 3}) {
        set_num_threads(threads);
        sampler.sample(batch, MatrixView<std::int64_t>(other.data(), rows, count), noise, texts);
        ASSERT_EQ(other, first);
      }
    });
    set_num_threads(0);
    // Row by row, position by position, and by streams of their own.
    std::size_t differ = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < count; ++c) {
        std::int64_t alone;
        sampler.sample(MatrixView<const float>(batch.row(r), 1, cols), MatrixView<std::int64_t>(&alone, 1, 1),
                       {.stream = 5 + r, .position = 100 + c}, one);
        ASSERT_EQ(alone, first[r * count + c]);
      }
      if (r % 2 == 1) differ += first[r * count] != first[(r - 1) * count];
    }
    if (steps.empty()) {
      EXPECT_GT(differ, rows / 4);
    }
    std::vector<std::uint64_t> streams(rows);
    for (std::size_t r = 0; r < rows; ++r) streams[r] = 5 + r;
    Noise own = noise;
    own.streams = streams;
    sampler.sample(batch, MatrixView<std::int64_t>(other.data(), rows, count), own, texts);
    ASSERT_EQ(other, first);
  }
}

TEST(Sampler, SameLawOnEveryTarget) {
  std::mt19937 random(5);
  const std::vector<Step> every = every_step(random);
  const std::vector<float> x = support::normal_row<float>(9000, 2, 0, 4);
  for (const Step& step : every) {
    const std::vector<float> best = probs_of({step}, x);
    for (const std::string& target : support::fma_targets()) {
      force_simd_target(target);
      ASSERT_EQ(probs_of({step}, x), best) << target;
    }
    force_simd_target("");
  }
}

TEST(Sampler, RowsOutOfTheOrdinary) {
  const float inf = kInfinity<float>, nan = kNaN<float>;
  std::mt19937 random(9);
  std::vector<std::vector<Step>> chains = {{}};
  for (const Step& step : every_step(random)) chains.push_back({step});
  for (const auto& steps : chains) {
    SCOPED_TRACE(steps.empty() ? 0 : steps[0].index() + 1);
    for (const std::vector<float>& x : {std::vector<float>{1, nan, 2}, {nan}, {-inf, -inf}, {inf, nan}, {}, {-inf, nan}}) {
      ASSERT_EQ(draws_of(steps, x, 2), (std::vector<std::int64_t>{-1, -1}));
      for (const float p : probs_of(steps, x)) ASSERT_TRUE(std::isnan(p));
    }
    ASSERT_EQ(draws_of<float>(steps, {-inf, 3, -inf}, 1)[0], 1);
    ASSERT_EQ(draws_of<float>(steps, {2}, 1)[0], 0);
    ASSERT_EQ(probs_of<float>(steps, {-inf, 3, -inf}), (std::vector<float>{0, 1, 0}));
    // Differences beyond the largest number.
    ASSERT_EQ(draws_of<float>({step::Temperature{1e-30}}, {-3e38f, 3e38f, 2.9e38f}, 1)[0], 1);
  }
  EXPECT_EQ(probs_of<float>({}, {1, inf, 0, inf}), (std::vector<float>{0, 0.5, 0, 0.5}));
  EXPECT_EQ(probs_of<float>({step::TopK{1}}, {1, inf, 0, inf}), (std::vector<float>{0, 1, 0, 0}));
  EXPECT_EQ(probs_of<float>({step::TopP{0.6}}, {inf, inf, 0, inf}), (std::vector<float>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(probs_of<float>({step::TypicalP{0.6}}, {inf, inf, 0, inf}), (std::vector<float>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(probs_of<float>({step::MinP{1}}, {inf, 2, inf}), (std::vector<float>{0.5, 0, 0.5}));
  EXPECT_EQ(probs_of<float>({step::Entropy{0.1}}, {inf, 2, inf}), (std::vector<float>{0.5, 0, 0.5}));
  // Ties at a cut: the lower index. p = 1 and k beyond n keep all.
  EXPECT_EQ(probs_of<float>({step::TopK{2}}, {1, 2, 2, 2}), (std::vector<float>{0, 0.5, 0.5, 0}));
  EXPECT_EQ(probs_of<float>({step::TopP{0.5}}, {2, 2, 2, 2}), (std::vector<float>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(probs_of<float>({step::TypicalP{0.5}}, {2, 2, 2, 2}), (std::vector<float>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(probs_of<float>({step::TopK{9}, step::TopP{1}, step::TypicalP{1}}, {2, 2, -inf}),
            (std::vector<float>{0.5, 0.5, 0}));
  // An entropy out of reach: all scores become equal, and truncation then keeps the lower index.
  EXPECT_EQ(probs_of<float>({step::Entropy{9}, step::TopK{2}}, {1, 5, 3, -inf}), (std::vector<float>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(probs_of<float>({step::Entropy{0}}, {1, 5, 5, -inf}), (std::vector<float>{0, 0.5, 0.5, 0}));
}

TEST(Sampler, ExtremeTemperatures) {
  const auto check = [&]<class T>(const std::vector<T>& x, double temperature, const std::vector<double>& expected) {
    const std::vector<T> p = probs_of<T>({step::Temperature{temperature}}, x);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(p[i], expected[i], 1e-6) << temperature;
    EXPECT_GE(draws_of<T>({step::Temperature{temperature}}, x, 1)[0], 0);
  };
  check(std::vector<float>{1, 2, 1}, 1e-300, {0, 1, 0});
  check(std::vector<float>{1, 2, 1}, 1e300, {1 / 3.0, 1 / 3.0, 1 / 3.0});
  check(std::vector<double>{1, 2, 1}, 5e-324, {0, 1, 0});
  check(std::vector<double>{1, 2, 1}, 1.7e308, {1 / 3.0, 1 / 3.0, 1 / 3.0});
  const double e = std::exp(1.0);
  check(std::vector<float>{1e-40f, 0}, static_cast<double>(1e-40f), {e / (1 + e), 1 / (1 + e)});
  check(std::vector<double>{1e-310, 0}, 1e-310, {e / (1 + e), 1 / (1 + e)});
  const std::vector<float> p = probs_of<float>({step::Temperature{1e-200}, step::Temperature{1e200}}, {0, 0});
  EXPECT_EQ(p, (std::vector<float>{0.5, 0.5}));
}

// A draw has all its tail: 40 nats below, where a float's noise ends.
TEST(Sampler, TailsAreReached) {
  const std::size_t tail = 1 << 17;
  std::vector<float> x(tail + 1, -20.5f);
  x[0] = 0;
  const double likely = static_cast<double>(tail) * std::exp(-20.5);
  const std::size_t count = 30000;
  std::size_t found = 0;
  for (const std::int64_t i : draws_of<float>({}, x, count / 10)) found += i != 0;
  EXPECT_NEAR(static_cast<double>(found), likely * count / 10, 4 * std::sqrt(likely * count / 10) + 1);
}

TEST(GumbelSoftmax, IsSoftmaxOfNoisyScores) {
  const std::size_t rows = 3, n = 500;
  std::vector<double> x, g(rows * n), p(rows * n), q(rows * n);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = support::normal_row<double>(n, 2, 7, static_cast<unsigned>(r));
    x.insert(x.end(), row.begin(), row.end());
  }
  const Noise noise = {.seed = 4, .stream = 8};
  const auto view = [&](std::vector<double>& v) { return MatrixView<double>(v.data(), rows, n); };
  gumbel_noise(view(g), noise);
  gumbel_softmax({.temperature = 0.5}, view(x), view(p), noise);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] += x[i];
  apply(Softmax{0.5}, view(g), view(q));
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(p[i], q[i], 1e-13);

  std::vector<std::int64_t> drawn(rows);
  sample(Sample{}, MatrixView<const double>(x.data(), rows, n), MatrixView<std::int64_t>(drawn.data(), rows, 1), noise);
  gumbel_softmax({.hard = true}, view(x), view(q), noise);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(q[r * n + i], static_cast<std::int64_t>(i) == drawn[r]);
    const auto largest = std::max_element(p.data() + r * n, p.data() + (r + 1) * n) - (p.data() + r * n);
    ASSERT_EQ(largest, drawn[r]);
  }
  // In place, and rows without a distribution or with +inf.
  gumbel_softmax({.temperature = 0.5}, view(x), view(x), noise);
  ASSERT_EQ(x, p);
  const float inf = kInfinity<float>;
  std::vector<float> odd = {1, kNaN<float>, 2, -inf, -inf, -inf, 1, inf, inf}, out(9);
  gumbel_softmax({}, MatrixView<const float>(odd.data(), 3, 3), MatrixView<float>(out.data(), 3, 3), noise);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(out[i]));
  EXPECT_EQ(out[6], 0);
  EXPECT_NEAR(out[7] + out[8], 1, 1e-6);
}

// One entry of 1 where sample draws it, for rows of any kind; NaN everywhere where it draws nothing.
template <class T>
void check_hard() {
  const T inf(kInfinity<float>), none(-kInfinity<float>), nan(kNaN<float>), zero(0.0f);
  const std::size_t n = 6;
  const std::vector<std::vector<T>> kinds = {{zero, zero, zero, zero, zero, zero}, {none, none, zero, none, zero, none},
                                             {zero, inf, zero, none, inf, zero},   {none, none, none, none, none, none},
                                             {zero, zero, zero, zero, zero, nan},  {none, none, none, none, nan, inf}};
  std::vector<T> x;
  for (const auto& row : kinds) x.insert(x.end(), row.begin(), row.end());
  const std::size_t rows = kinds.size();
  std::vector<T> p(rows * n);
  std::vector<std::int64_t> drawn(rows);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Noise noise = {.seed = seed};
    sample(Sample{}, MatrixView<const T>(x.data(), rows, n), MatrixView<std::int64_t>(drawn.data(), rows, 1), noise);
    gumbel_softmax({.hard = true}, MatrixView<const T>(x.data(), rows, n), MatrixView<T>(p.data(), rows, n), noise);
    for (std::size_t r = 0; r < rows; ++r) {
      EXPECT_EQ(drawn[r] < 0, r >= 3) << r;
      for (std::size_t i = 0; i < n; ++i) {
        const auto got = static_cast<float>(p[r * n + i]);
        if (drawn[r] < 0) {
          EXPECT_TRUE(std::isnan(got)) << r << " at " << i << ": " << got;
        } else {
          EXPECT_EQ(got, static_cast<std::int64_t>(i) == drawn[r]) << r << " at " << i;
        }
      }
    }
  }
}

TEST(GumbelSoftmax, HardIsTheDraw) {
  check_hard<float>();
  check_hard<double>();
  check_hard<float16>();
  check_hard<bfloat16>();
}

template <class T>
void check_half() {
  const std::size_t rows = 3, n = 200;
  std::vector<float> wide(rows * n);
  std::vector<T> x(rows * n), p(rows * n);
  std::mt19937 random(4);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<T>(std::normal_distribution<float>(0, 3)(random));
    wide[i] = static_cast<float>(x[i]);
  }
  const Sampler sampler({step::TopP{0.9}, step::Entropy{2}}, 3);
  std::vector<std::int64_t> a(rows), b(rows);
  std::vector<float> q(rows * n);
  sampler.sample(MatrixView<const T>(x.data(), rows, n), MatrixView<std::int64_t>(a.data(), rows, 1));
  sampler.sample(MatrixView<const float>(wide.data(), rows, n), MatrixView<std::int64_t>(b.data(), rows, 1));
  EXPECT_EQ(a, b);
  sampler.probs(MatrixView<const T>(x.data(), rows, n), MatrixView<T>(p.data(), rows, n));
  sampler.probs(MatrixView<const float>(wide.data(), rows, n), MatrixView<float>(q.data(), rows, n));
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(p[i].bits, T(q[i]).bits);
  gumbel_softmax({}, MatrixView<const T>(x.data(), rows, n), MatrixView<T>(p.data(), rows, n), {});
  gumbel_softmax({}, MatrixView<const float>(wide.data(), rows, n), MatrixView<float>(q.data(), rows, n), {});
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(p[i].bits, T(q[i]).bits);
}

TEST(Sampler, HalfTypes) {
  check_half<float16>();
  check_half<bfloat16>();
}

TEST(Sampler, TokensHaveAScore) {
  const std::vector<float> x = {0, 1, 2};
  const std::vector<std::int64_t> tokens = {-1, 2, 0, 3};
  std::vector<float> p(3);
  const Texts texts = {.tokens = {tokens.data(), 1, 4}};
  expect_error("Sampler::probs: tokens must be below 3, the number of scores of a row, got 3 at entry 3 in row 0", [&] {
    Sampler({step::Penalties{}}).probs({x.data(), 1, 3}, MatrixView<float>(p.data(), 1, 3), texts);
  });
}

TEST(Sampler, ReadsNothingBehindARow) {
  std::mt19937 random(2);
  const std::vector<Step> every = every_step(random);
  support::for_each_target([&](const std::string&) {
    for (const std::size_t n : {1, 7, 63, 65, 300, 1031}) {
      const support::Guarded<float> x(n), p(n);
      const auto row = support::normal_row<float>(n, 2, 0, 1);
      std::copy(row.begin(), row.end(), x.data());
      std::int64_t index;
      for (const Step& step : every) {
        const Sampler sampler({step});
        const Texts texts = texts_of({step}, 1, n);
        const MatrixView<const float> in(x.data(), 1, n);
        if (!std::holds_alternative<step::Mirostat>(step)) {
          sampler.log_probs(in, MatrixView<float>(p.data(), 1, n), texts);
          sampler.probs(in, MatrixView<float>(p.data(), 1, n), texts);
        }
        sampler.sample(in, MatrixView<std::int64_t>(&index, 1, 1), {}, texts, MatrixView<float>(p.data(), 1, n));
        ASSERT_TRUE(index >= 0 && index < static_cast<std::int64_t>(n));
      }
      gumbel_softmax({}, MatrixView<const float>(x.data(), 1, n), MatrixView<float>(p.data(), 1, n), {});
    }
  });
}

TEST(Sampler, InPlaceAndPadded) {
  const std::size_t rows = 2, n = 70, stride = 80;
  std::vector<float> x(rows * stride, -7), expected(rows * n);
  std::mt19937 random(6);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) x[r * stride + i] = std::normal_distribution<float>(0, 2)(random);
  }
  for (const Step& step : every_step(random)) {
    std::vector<float> in = x;
    const MatrixView<float> view(in.data(), rows, n, stride);
    const Texts texts = texts_of({step}, rows, n);
    std::vector<std::int64_t> indices(rows);
    const MatrixView<std::int64_t> drawn(indices.data(), rows, 1);
    Sampler({step}).sample(MatrixView<const float>(view), drawn, {}, texts, MatrixView<float>(expected.data(), rows, n));
    Sampler({step}).sample(MatrixView<const float>(view), drawn, {}, texts, view);
    if (!std::holds_alternative<step::Mirostat>(step)) {
      std::vector<float> other(rows * n);
      in = x;
      Sampler({step}).probs(view, MatrixView<float>(other.data(), rows, n), texts);
      ASSERT_EQ(other, expected);
      Sampler({step}).log_probs(view, MatrixView<float>(other.data(), rows, n), texts);
      for (std::size_t i = 0; i < other.size(); ++i) {
        ASSERT_NEAR(std::exp(other[i]), expected[i], 1e-6);
        ASSERT_EQ(other[i] == -kInfinity<float>, expected[i] == 0);
      }
      Sampler({step}).log_probs(view, view, texts);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(in[r * stride + i], other[r * n + i]);
      }
      in = x;
      Sampler({step}).probs(view, view, texts);
    }
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < stride; ++i) ASSERT_EQ(in[r * stride + i], i < n ? expected[r * n + i] : -7);
    }
  }
}

// Far below the smallest number of the type.
TEST(Sampler, LogarithmsReachFar) {
  std::vector<float> x = {0, -60, -110, -700, -1e30f, -kInfinity<float>}, y(6);
  Sampler({}).log_probs(MatrixView<const float>(x.data(), 1, 6), MatrixView<float>(y.data(), 1, 6));
  EXPECT_EQ(y, x);
  Sampler({step::Temperature{0.01}, step::TopNSigma{50}, step::Temperature{100}})
      .log_probs(MatrixView<const float>(x.data(), 1, 3), MatrixView<float>(y.data(), 1, 3));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(y[i], x[i], 1e-5);
}

// Without putting back: the largest scores with noise, in falling order.
template <class T>
void check_different() {
  for (const std::size_t n : {1, 5, 64, 300, 9000}) {
    std::vector<T> x = support::normal_row<T>(n, 2, 0, static_cast<unsigned>(n));
    if (n > 1) x[1] = -kInfinity<T>;
    std::vector<double> g(n);
    const Noise noise = {.seed = 3, .stream = 5, .position = 7};
    gumbel_noise(MatrixView<double>(g.data(), 1, n), noise);
    std::vector<std::int64_t> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<std::int64_t>(i), g[i] += static_cast<double>(x[i]);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return g[static_cast<std::size_t>(a)] > g[static_cast<std::size_t>(b)];
    });
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{4}, n, n + 3}) {
      std::vector<std::int64_t> indices(count);
      sample(Sample{.replace = false}, MatrixView<const T>(x.data(), 1, n), MatrixView<std::int64_t>(indices.data(), 1, count),
             noise);
      for (std::size_t c = 0; c < count; ++c) {
        ASSERT_EQ(indices[c], c + (n > 1) < n ? order[c] : -1) << n << " " << count << " " << c;
      }
    }
  }
}
TEST(Sample, WithoutPuttingBackFloat) { check_different<float>(); }
TEST(Sample, WithoutPuttingBackDouble) { check_different<double>(); }

// Scores so far below the maximum that the noise is lost in x / T, or x / T is out of range: larger scores come first, and
// equal ones in any order. A -inf is never drawn.
template <class T>
void check_different_far() {
  constexpr T kMost = std::numeric_limits<T>::max();
  for (const double temperature : {1.0, 1e-5, 1e-29, 1e-300}) {
    for (const std::size_t n : {std::size_t{7}, std::size_t{700}}) {
      std::vector<T> x(n, -kInfinity<T>);
      const std::vector<T> scores = {-kMost, kMost, kMost / 2, -kMost, 0, -kInfinity<T>, -kMost};
      for (std::size_t i = 0; i < scores.size(); ++i) x[i * (n / 7)] = scores[i];
      std::vector<std::int64_t> last(3);
      for (std::uint64_t seed = 0; seed < 60; ++seed) {
        std::vector<std::int64_t> indices(7);
        sample(Sample{.temperature = temperature, .replace = false}, MatrixView<const T>(x.data(), 1, n),
               MatrixView<std::int64_t>(indices.data(), 1, 7), {.seed = seed});
        for (std::size_t c = 0; c < 6; ++c) {
          ASSERT_GE(indices[c], 0) << temperature << " " << n << " " << c;
          const T drawn = x[static_cast<std::size_t>(indices[c])];
          ASSERT_EQ(drawn, (std::vector<T>{kMost, kMost / 2, 0, -kMost, -kMost, -kMost}[c]));
        }
        ASSERT_EQ(indices[6], -1);
        ++last[static_cast<std::size_t>(indices[5]) / (n / 7) / 3];
      }
      for (const std::int64_t count : last) EXPECT_GT(count, 5) << temperature << " " << n;
    }
  }
}
TEST(Sample, WithoutPuttingBackFarFloat) { check_different_far<float>(); }
TEST(Sample, WithoutPuttingBackFarDouble) { check_different_far<double>(); }

// A cut below the type's range keeps all scores, and nothing that vectors hold beyond a row.
template <class T>
void check_cuts_below_the_range() {
  const T most = std::numeric_limits<T>::max();
  const std::vector<Step> cuts = {step::MinP{1e-300}, step::Epsilon{1e-300}, step::Eta{1e-300}, step::TopNSigma{1e300}};
  for (const Step& cut : cuts) {
    for (const std::size_t n : {3, 5, 7, 65, 700}) {
      std::vector<T> x(n, -kInfinity<T>);
      x[0] = most, x[1] = -most, x[n - 1] = most / 2;
      for (const bool packed : {false, true}) {
        std::vector<Step> steps;
        if (packed) steps.push_back(step::TopK{.k = static_cast<std::int64_t>(n - 1)});
        steps.push_back(step::Temperature{static_cast<double>(most) / 64});
        const std::vector<T> all = probs_of<T>(steps, x);
        steps.push_back(cut);
        std::vector<T> p(n + 64, T(7));
        Sampler(steps).probs(MatrixView<const T>(x.data(), 1, n), MatrixView<T>(p.data(), 1, n));
        for (std::size_t i = 0; i < p.size(); ++i)
          EXPECT_EQ(p[i], i < n ? all[i] : T(7)) << description_of(cut).name << " " << n << " " << packed << " " << i;
      }
    }
  }
}
TEST(Sampler, CutsBelowTheRangeFloat) { check_cuts_below_the_range<float>(); }
TEST(Sampler, CutsBelowTheRangeDouble) { check_cuts_below_the_range<double>(); }

// Standard deviations of numbers whose squares leave the type.
TEST(Sampler, TopNSigmaOfExtremeScores) {
  for (const double scale : {1e-170, 1.0, 1e160, 1e307}) {
    const std::vector<double> x = {0, 1 * scale, 2 * scale, 9 * scale, -kInfinity<double>};
    // The deviation of 0, 1, 2, 9 is 3.54.
    std::vector<double> p = probs_of<double>({step::TopNSigma{2}, step::Temperature{scale}}, x);
    EXPECT_TRUE(p[2] > 0 && p[1] == 0 && p[0] == 0 && p[3] > 0) << scale;
  }
}

TEST(Sampler, MirostatsBound) {
  const std::vector<double> x = support::normal_row<double>(50, 2, 0, 3), p = probs_of<double>({}, x);
  const Sampler sampler({step::Mirostat{1.5, 0.25}}, 4);
  double bound = kNaN<double>, expected = 3;
  const Texts texts = {.bounds = {&bound, 1}};
  for (std::uint64_t position = 0; position < 30; ++position) {
    std::int64_t index;
    std::vector<double> q(50);
    sampler.sample(MatrixView<const double>(x.data(), 1, 50), MatrixView<std::int64_t>(&index, 1, 1), {.position = position},
                   texts, MatrixView<double>(q.data(), 1, 50));
    const double least = std::min(std::exp(-expected), *std::max_element(p.begin(), p.end()));
    for (std::size_t i = 0; i < 50; ++i) ASSERT_EQ(q[i] > 0, p[i] >= least);
    expected -= 0.25 * (-std::log(q[static_cast<std::size_t>(index)]) - 1.5);
    ASSERT_NEAR(bound, expected, 1e-12);
  }
}

TEST(Sampler, Refusals) {
  expect_error("temperature: temperature must be above 0 and finite, got 0", [] { Sampler({step::Temperature{0}}); });
  expect_error("top_k: k must be above 0, got 0", [] { Sampler({step::TopK{0}}); });
  expect_error("top_p: p must be above 0 and at most 1, got 1.5", [] { Sampler({step::TopK{1}, step::TopP{1.5}}); });
  expect_error("min_p: p must be above 0 and at most 1, got 0", [] { Sampler({step::MinP{0}}); });
  expect_error("typical_p: p must be above 0 and at most 1, got nan", [] { Sampler({step::TypicalP{kNaN<double>}}); });
  expect_error("entropy: entropy must be at least 0 and finite, got -1", [] { Sampler({step::Entropy{-1}}); });
  expect_error("entropy_clip: min_entropy must be at most max_entropy, got min_entropy 2, max_entropy 1", [] {
    Sampler({step::EntropyClip{2, 1}});
  });

  expect_error("Sampler: mirostat must be the last step", [] { Sampler({step::Mirostat{1}, step::TopK{1}}); });
  expect_error("penalties: last must be at least -1, got -2", [] { Sampler({step::Penalties{.last = -2}}); });
  expect_error("dry: allowed_length must be above 0, got 0", [] { Sampler({step::Dry{.allowed_length = 0}}); });

  std::vector<float> x(6), p(6, 5);
  std::vector<std::int64_t> indices(4, 5);
  const MatrixView<const float> in(x.data(), 2, 3);
  const auto out = [&](std::size_t rows) { return MatrixView<std::int64_t>(indices.data(), rows, 1); };
  expect_error("sample: temperature must be above 0 and finite, got -1", [&] { sample(Sample{-1}, in, out(2), {}); });
  expect_error("sample: indices must have a row for each of 2 rows, got 3", [&] { sample(Sample{}, in, out(3), {}); });
  const std::uint64_t stream = 1;
  expect_error("sample: streams must have one entry for each of 2 rows, got 1",
               [&] { sample(Sample{}, in, out(2), {.streams = std::span(&stream, 1)}); });
  expect_error("Sampler::probs: p must have the shape of x, 2 x 3, got 3 x 2",
               [&] { Sampler({}).probs(in, MatrixView<float>(p.data(), 3, 2)); });
  expect_error("gumbel_softmax: temperature must be above 0 and finite, got 0",
               [&] { gumbel_softmax({.temperature = 0}, in, MatrixView<float>(p.data(), 2, 3), {}); });
  EXPECT_EQ(indices, std::vector<std::int64_t>(4, 5));
  EXPECT_EQ(p, std::vector<float>(6, 5));
}

TEST(Draws, RefuseOverlap) {
  std::vector<double> memory(20, 1.0);
  const std::vector<double> before = memory;
  const MatrixView<const double> x(memory.data(), 4, 3);
  auto* const inside = reinterpret_cast<std::int64_t*>(memory.data() + 3);
  expect_error("Sampler::sample: indices must share no memory with x, got views that overlap",
               [&] { Sampler({step::TopK{1}}).sample(x, MatrixView<std::int64_t>(inside, 4, 1), {}); });
  EXPECT_EQ(memory, before);
  std::vector<std::int64_t> places(8, 0);
  const std::span<const std::uint64_t> streams(reinterpret_cast<const std::uint64_t*>(places.data()) + 1, 4);
  expect_error("sample: indices must share no memory with streams, got views that overlap",
               [&] { sample(Sample{}, x, MatrixView<std::int64_t>(places.data(), 4, 2), {.streams = streams}); });
  sample(Sample{}, x, MatrixView<std::int64_t>(places.data() + 1, 4, 1), {.streams = streams});  // in their place
}

// inf - 1 = inf: equal shares, whatever the text.
TEST(Chains, TextsDoNotChangeInfinity) {
  const std::vector<double> x = {kInfinity<double>, kInfinity<double>, 0};
  const std::vector<std::int64_t> tokens = {0, 2, 0};
  const Texts texts = {.tokens = {tokens.data(), 1, tokens.size()}};
  const std::vector<double> want = {0.5, 0.5, 0};
  for (const Step& step : {Step(step::Penalties{.repetition = 2, .presence = 1}), Step(step::Dry{.allowed_length = 1})}) {
    for (const std::vector<Step>& steps : {std::vector<Step>{step}, {step::Temperature{2}, step, step::TopP{0.9}}}) {
      std::vector<double> p(3);
      Sampler(steps).probs(MatrixView<const double>(x.data(), 1, 3), MatrixView<double>(p.data(), 1, 3), texts);
      EXPECT_EQ(p, want);
    }
  }
}

}  // namespace
}  // namespace isentropic

// The functions that take one row in a container give the same results as those of views.

#include <gtest/gtest.h>
#include <isentropic/isentropic.h>

#include <array>
#include <span>
#include <vector>

namespace isentropic {
namespace {

const std::vector<double> kScores = {2.0, 1.0, 0.1, -1.0, 1.8};
const std::vector<double> kTarget = {0.5, 0.25, 0, 0, 0.25};

template <class Numbers>
auto view(Numbers& numbers) {
  return MatrixView(numbers.data(), 1, numbers.size());
}

TEST(Row, MapsOfContainers) {
  std::vector<double> p(5), want(5), dx(5), want_dx(5);
  apply(Entmax{}, kScores, p);
  apply(Entmax{}, view(kScores), view(want));
  EXPECT_EQ(p, want);
  apply_vjp(Entmax{}, kScores, p, kTarget, dx);
  apply_vjp(Entmax{}, view(kScores), view(p), view(kTarget), view(want_dx));
  EXPECT_EQ(dx, want_dx);

  // Spans of a part, arrays, other types, and a row that is its own result.
  std::vector<double> two(2);
  apply(Softmax{}, std::span<const double>(kScores).first(2), std::span(two));
  EXPECT_NEAR(two[0] + two[1], 1, 1e-15);
  std::array<float, 3> row = {1, 2, 3};
  apply(Sparsemax{}, row, row);
  EXPECT_EQ(row, (std::array<float, 3>{0, 0, 1}));
  const std::vector<float16> half = {float16(1), float16(1)};
  std::vector<float16> halves(2);
  apply(Softmax{}, half, halves);
  EXPECT_EQ(static_cast<float>(halves[1]), 0.5f);

  log_softmax(LogSoftmax{}, kScores, p);
  log_softmax(LogSoftmax{}, view(kScores), view(want));
  EXPECT_EQ(p, want);
  log_softmax_vjp(LogSoftmax{}, kScores, p, kTarget, dx);
  log_softmax_vjp(LogSoftmax{}, view(kScores), view(p), view(kTarget), view(want_dx));
  EXPECT_EQ(dx, want_dx);
  double sum;
  logsumexp(LogSumExp{.temperature = 2}, view(kScores), MatrixView(&sum, 1, 1));
  EXPECT_EQ(logsumexp({.temperature = 2}, kScores), sum);
}

TEST(Row, LossesAndMeasures) {
  std::vector<double> value(1), dx(5), want(5);
  const std::vector<std::int64_t> classes = {1};
  loss(SparsemaxLoss{}, view(kScores), classes, value, view(want));
  EXPECT_EQ(loss(SparsemaxLoss{}, kScores, 1), value[0]);
  EXPECT_EQ(loss(SparsemaxLoss{}, kScores, 1, dx), value[0]);
  EXPECT_EQ(dx, want);
  loss(SoftmaxLoss{}, view(kScores), view(kTarget), value, view(want));
  EXPECT_EQ(loss(SoftmaxLoss{}, kScores, kTarget), value[0]);
  EXPECT_EQ(loss(SoftmaxLoss{}, kScores, kTarget, dx), value[0]);
  EXPECT_EQ(dx, want);
  // A batch without the gradient.
  const double with_gradient = value[0];
  loss(SoftmaxLoss{}, view(kScores), view(kTarget), value);
  EXPECT_EQ(value[0], with_gradient);

  measure(Entropy{.base = 2}, view(kTarget), value);
  EXPECT_EQ(measure(Entropy{.base = 2}, kTarget), value[0]);
  const std::vector<double> even(5, 0.2);
  measure(KlDivergence{}, view(kTarget), view(even), value);
  EXPECT_EQ(measure(KlDivergence{}, kTarget, even), value[0]);
}

TEST(Row, OfOneSize) {
  std::vector<double> few(4, 7);
  EXPECT_THROW(apply(Softmax{}, kScores, few), std::invalid_argument);
  EXPECT_EQ(few, std::vector<double>(4, 7));
}

TEST(Row, EntropyControl) {
  std::vector<double> q(5), want(5), gamma(1), entropy(1);
  std::vector<GammaStatus> status(1);
  gamma_for_entropy({.entropy = 0.5}, view(kScores), gamma, entropy, status);
  const FoundGamma found = gamma_for_entropy({.entropy = 0.5}, kScores);
  EXPECT_EQ(found.gamma, gamma[0]);
  EXPECT_EQ(found.entropy, entropy[0]);
  EXPECT_EQ(found.status, status[0]);
  power_transform({.gamma = 2}, kTarget, q);
  power_transform({.gamma = 2}, view(kTarget), view(want));
  EXPECT_EQ(q, want);
  const std::vector<double> weights = {1, 0.5, 1, 1, 2};
  std::vector<Normalized> result(1);
  normalize_density({.entropy = 0.9}, view(kTarget), view(weights), view(want), result);
  EXPECT_EQ(normalize_density({.entropy = 0.9}, kTarget, weights, q).gamma, result[0].gamma);
  EXPECT_EQ(q, want);
  mean_field_entropy({}, view(kScores), entropy);
  EXPECT_EQ(mean_field_entropy({}, kScores), entropy[0]);
}

TEST(Row, Draws) {
  const Noise noise = {.seed = 3, .stream = 1};
  std::int64_t index;
  sample({}, view(kScores), MatrixView(&index, 1, 1), noise);
  EXPECT_EQ(sample({}, kScores, noise), index);
  std::vector<double> p(5), want(5);
  gumbel_softmax({}, kScores, p, noise);
  gumbel_softmax({}, view(kScores), view(want), noise);
  EXPECT_EQ(p, want);
  const Sampler sampler({step::Temperature{.temperature = 0.5}}, 3);
  sampler.sample(view(kScores), MatrixView(&index, 1, 1), noise);
  EXPECT_EQ(sampler.sample(kScores, noise), index);
  sampler.probs(kScores, p);
  sampler.probs(view(kScores), view(want));
  EXPECT_EQ(p, want);
}

}  // namespace
}  // namespace isentropic

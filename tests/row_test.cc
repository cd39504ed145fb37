// What the functions take in place of a view that only reads: one row in a container, a view that may write. Results are equal.

#include <gtest/gtest.h>
#include <isentropic/isentropic.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/expect_error.h"

namespace isentropic {
namespace {

using support::expect_error;

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

// The kinds of matrix that a caller may have; each stands for the same numbers.
struct Kinds {
  std::vector<double> numbers;
  std::size_t rows, cols;

  template <class Use>
  void with(const Use& use) {
    use(MatrixView<const double>(numbers.data(), rows, cols));
    use(MatrixView<double>(numbers.data(), rows, cols));
    use(MatrixView(numbers, rows, cols));
    use(MatrixView(std::as_const(numbers), rows, cols, cols));
    use(MatrixView(std::span(numbers), rows, cols));
  }
  // Calls use(x, y) for every two kinds.
  template <class Use>
  void with_two(const Use& use) {
    with([&](const auto& x) { with([&](const auto& y) { use(x, y); }); });
  }
};

// Checks that all results are equal.
struct Same {
  std::vector<double> first;
  void operator()(std::initializer_list<double> found) {
    if (first.empty()) first = found;
    EXPECT_EQ(std::vector<double>(found), first);
  }
};

TEST(Views, ThatMayWriteAreTakenWhereOthersAre) {
  Kinds scores = {{2, 1, 0.1, -1, 0.5, 0.4}, 2, 3}, masses = {{0.5, 0.25, 0.25, 0.2, 0.2, 0.6}, 2, 3};
  const std::vector<std::int64_t> classes = {0, 2};
  std::vector<double> value(2), entropy(2), dx(6);
  std::vector<GammaStatus> status(2);
  const MatrixView gradient(dx, 2, 3);
  Same softmax_loss, entmax_loss, sparse, of_one, of_two, of_table, of_entries, gamma, rough, temperature, target, reference,
      error, bins, brier, counts, table, drawn, chain, density;
  scores.with_two([&](const auto& x, const auto& y) {
    loss(SoftmaxLoss{}, x, classes, value, gradient);
    softmax_loss({value[0], value[1], dx[5]});
    loss(DistillationLoss{}, x, y, value, gradient);
    entmax_loss({value[0], value[1], dx[5]});
    gamma_for_entropy({.entropy = 0.5}, x, value, entropy, status);
    gamma({value[0], value[1], entropy[1]});
    mean_field_entropy({}, x, value);
    rough({value[0], value[1]});
    temperature({fit_temperature(x, classes).temperature});
    target({fit_target_entropy(x, classes)});
    reference({match_entropy(x)});
    std::vector<std::int64_t> indices_drawn(4);
    sample({}, x, MatrixView(indices_drawn, 2, 2), {.seed = 1});
    drawn({static_cast<double>(indices_drawn[0]), static_cast<double>(indices_drawn[3])});
    const Sampler sampler({step::TopK{.k = 2}}, 3);
    sampler.sample(x, MatrixView(indices_drawn, 2, 2), {}, {});
    chain({static_cast<double>(indices_drawn[0]), static_cast<double>(indices_drawn[3])});
  });
  Kinds logs = {{-1, -2, -3, -2, -2, -2}, 2, 3};
  const std::vector<std::int64_t> indices = {0, 1, 2, 0, 1, 2};
  logs.with_two([&](const auto& x, const auto& log_probs) {
    loss(SparseDistillationLoss{.tail = SparseDistillationLoss::Tail::renormalize}, x, MatrixView(indices, 2, 3), log_probs,
         value, gradient);
    sparse({value[0], value[1], dx[5]});
  });
  masses.with_two([&](const auto& p, const auto& q) {
    measure(Entropy{}, p, value, gradient);
    of_one({value[0], value[1], dx[5]});
    measure(JsDivergence{}, p, q, value, gradient);
    of_two({value[0], value[1], dx[5]});
    of_table({measure(MutualInformation{.normalize = true}, p), measure(MutualInformation{.normalize = true}, p, gradient)});
    measure(BinaryEntropy{}, p, gradient);
    of_entries({dx[0], dx[5]});
    error({expected_calibration_error({}, p, classes)});
    bins({reliability_bins({.bins = 1}, p, classes)[0].confidence});
    brier({brier_score(p, classes)});
    std::vector<double> result(6);
    std::vector<Normalized> found(2);
    normalize_density({.entropy = 0.5}, p, q, MatrixView(result, 2, 3), found);
    density({result[0], result[5]});
  });
  Kinds whole = {{1, 2, 3, 4, 5, 6}, 2, 3};
  whole.with([&](const auto& n) {
    entropy_of_counts({}, n, value);
    counts({value[0], value[1]});
    table({mutual_information_of_counts({}, n)});
  });
  EXPECT_EQ(entropy_of_counts({}, std::vector<double>{1, 2, 3}), counts.first[0]);
  EXPECT_EQ(entropy_of_counts({}, std::vector<std::int64_t>{1, 2, 3}), counts.first[0]);
}

TEST(Views, OfPointsAndMasses) {
  Kinds points = {{0, 0, 1, 0, 2, 1}, 3, 2};
  const std::vector<double> masses = {0.5, 0.25, 0.25}, other = {0.2, 0.2, 0.6}, support = {0, 1, 3};
  const std::vector<double> cost = {0, 1, 9, 1, 0, 4, 9, 4, 0};
  std::vector<double> distance(3), plan(9), f(3), g(3), center(2);
  Same line, histogram, exact, sliced, smooth, unbalanced, barycenter, transform, constant;
  const std::vector<double> directions = {1, 0, 0, 1};
  points.with_two([&](const auto& x, const auto& y) {
    wasserstein_1d({}, x, y, {}, {}, distance);
    line({distance[0], distance[2]});
    exact({wasserstein({}, x, y), wasserstein({}, x, y, masses, other, MatrixView(plan, 3, 3))});
    sliced({sliced_wasserstein({}, x, y, {}, {}, MatrixView(directions, 2, 2)).distance});
    smooth({sinkhorn_divergence({.epsilon = 1}, x, y), sinkhorn_divergence({.epsilon = 1}, x, y, masses, other)});
    unbalanced({unbalanced_sinkhorn_divergence({.epsilon = 1, .penalty = 1}, x, y)});
  });
  Kinds rows = {{0.5, 0.5, 0.25, 0.75}, 2, 2};
  rows.with_two([&](const auto& p, const auto& q) {
    std::vector<double> two(2);
    wasserstein_histogram({}, p, q, std::vector<double>{0, 1}, two);
    histogram({two[0], two[1]});
    sinkhorn_barycenter({.epsilon = 1}, p, {}, q, center);
    barycenter({center[0], center[1]});
    c_transform(std::vector<double>{0, 1}, q, two);
    transform({two[0], two[1]});
    constant({lipschitz_constant(std::vector<double>{0, 1}, q)});
  });

  EXPECT_NEAR(wasserstein_1d({}, std::vector<double>{0, 1}, std::vector<double>{1, 2}), 1, 1e-15);
  EXPECT_NEAR(wasserstein_histogram({}, masses, other, support), 1, 1e-15);
  const MatrixView c(cost, 3, 3);
  const MatrixView p(plan, 3, 3);
  const TransportResult found = optimal_transport({}, masses, other, c, p, f, g);
  EXPECT_NEAR(dual_value(f, g, masses, other), found.cost, 1e-12);
  EXPECT_LE(partial_transport({.mass = 0.5}, masses, other, c, p, f, g).cost, found.cost);
  EXPECT_LE(sinkhorn({.epsilon = 0.1}, masses, other, c, p, f, g).lower_bound, found.cost);
  EXPECT_TRUE(unbalanced_sinkhorn({.epsilon = 0.5, .penalty = 1}, masses, other, c, p, f, g).converged);
}

TEST(Views, OfArraysAndHeads) {
  std::vector<double> numbers = {2, 1, 0.1, -1, 0.5, 0.4}, p(6), value(2);
  const ArrayView x(numbers, {2, 3}), y(p, {2, 3}), v(value, {2});
  apply(Softmax{}, x, y, 1);
  measure(Entropy{}, y, v, 1);
  const double entropy = value[1];
  measure(KlDivergence{}, y, y, v, 1);
  EXPECT_EQ(value[1], 0);
  measure(BinaryEntropy{}, y, x, 1);
  const std::vector<std::int64_t> classes = {0, 2};
  loss(SoftmaxLoss{}, y, ArrayView(classes, {2}), v, 1);
  loss(DistillationLoss{}, y, y, v, 1);
  EXPECT_EQ(value[0], 0);
  std::vector<double> one(1);
  measure(Entropy{}, MatrixView(p.data() + 3, 1, 3), one);
  EXPECT_EQ(one[0], entropy);
  EXPECT_THROW(ArrayView(numbers, {2, 4}), std::invalid_argument);

  const HeadsView q(numbers, 1, 1, 3, 2), out(p, 1, 1, 3, 2);
  attention({}, q, q, q, out);
  linear_attention({}, q, q, q, out);
  EXPECT_THROW(HeadsView(numbers, 1, 2, 3, 2), std::invalid_argument);
}

TEST(Views, OfContainers) {
  std::vector<double> numbers(6);
  static_assert(std::is_same_v<decltype(MatrixView(numbers, 2, 3)), MatrixView<double>>);
  static_assert(std::is_same_v<decltype(MatrixView(std::as_const(numbers), 2, 3)), MatrixView<const double>>);
  static_assert(!std::is_constructible_v<MatrixView<double>, const std::vector<double>&>);
  static_assert(!std::is_constructible_v<MatrixView<const float>, std::vector<double>&>);
  // A temporary would be gone before the view is used, except as an argument that is only read.
  static_assert(!std::is_constructible_v<MatrixView<double>, std::vector<double>>);
  static_assert(std::is_constructible_v<MatrixView<const double>, std::vector<double>>);
  const MatrixView<double> row = numbers;
  EXPECT_EQ(row.rows, 1u);
  EXPECT_EQ(row.cols, 6u);
  EXPECT_EQ(MatrixView(numbers, 2, 2, 4).row(1), numbers.data() + 4);
  EXPECT_NO_THROW(MatrixView(numbers, 0, 9));
  expect_error("MatrixView: numbers must hold 2 x 4 numbers with row_stride 4, got 6", [&] { MatrixView(numbers, 2, 4); });
  expect_error("MatrixView: numbers must hold 3 x 2 numbers with row_stride 3, got 6", [&] { MatrixView(numbers, 3, 2, 3); });
  EXPECT_THROW(MatrixView(numbers, std::size_t{1} << 63, 2), std::invalid_argument);
}

TEST(Row, EntriesNoiseAndOwnNoise) {
  std::vector<double> q(5), want(5);
  measure(BinaryEntropy{}, kTarget, q);
  measure(BinaryEntropy{}, view(kTarget), view(want));
  EXPECT_EQ(q, want);
  gumbel_noise(q, {.seed = 2});
  gumbel_noise(view(want), {.seed = 2});
  EXPECT_EQ(q, want);
  const Sampler sampler({step::TopK{.k = 2}});
  sampler.log_probs(kScores, q);
  sampler.log_probs(view(kScores), view(want));
  EXPECT_EQ(q, want);
  struct Logistic {
    double log_cdf(double t) const { return -std::log1p(std::exp(-t)); }
    double pdf(double t) const { return 1 / (2 + std::exp(t) + std::exp(-t)); }
  };
  perturb_max(Logistic{}, 1, kScores, q);
  perturb_max(Logistic{}, 1, view(kScores), view(want));
  EXPECT_EQ(q, want);
  std::vector<double> dx(5), want_dx(5);
  perturb_max_vjp(Logistic{}, 1, kScores, q, kTarget, dx);
  perturb_max_vjp(Logistic{}, 1, view(kScores), view(q), view(kTarget), view(want_dx));
  EXPECT_EQ(dx, want_dx);
}

}  // namespace
}  // namespace isentropic

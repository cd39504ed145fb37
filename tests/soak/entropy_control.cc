// Entropy control.

#include "tests/soak/soak.h"

namespace isentropic {
namespace {

template <class T>
void soak_gamma(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const Rows<T> x = rows_of_scores<T>(random, 100000);
    const std::size_t rows = x.rows, cols = x.cols;
    GammaForEntropy op = random_op<GammaForEntropy>(random, cols);
    const bool limited = random.chance(0.2);
    if (!limited) op.min_gamma = 0, op.max_gamma = kInf, op.max_iterations = 100;
    report.next(rows, cols, [&](std::size_t r) { return text_of(op) + " " + text_of(x.row(r)); });
    std::vector<double> gamma(rows), h(rows);
    std::vector<GammaStatus> status(rows);
    gamma_for_entropy<T>(op, x, gamma, h, status);
    for (std::size_t r = 0; r < rows; ++r) {
      const Present of = present(x.row(r));
      const double goal = op.entropy ? *op.entropy : std::log(*op.perplexity);
      const double low = std::log(static_cast<double>(of.ties)), high = std::log(static_cast<double>(of.count));
      report.expect(status[r] != GammaStatus::invalid, r, "invalid");
      if (!report.expect(!std::isnan(gamma[r]) && !std::isnan(h[r]), r, "NaN")) continue;
      report.expect(gamma[r] >= 0, r, "gamma below 0", gamma[r]);
      const double slack = 1e-12 * std::max(1.0, high);
      report.expect(h[r] >= low - slack && h[r] <= high + slack, r, "entropy out of reach", h[r]);
      if (limited) {
        report.expect(status[r] == GammaStatus::constant || (gamma[r] >= op.min_gamma && gamma[r] <= op.max_gamma), r,
                      "gamma out of its range", gamma[r]);
        continue;
      }
      if (status[r] == GammaStatus::ok)
        report.expect_at_most(std::abs(h[r] - goal), 1e-12 * std::max(1.0, goal), r, "target missed");
      if (goal > low + slack && goal < high - slack)
        report.expect(status[r] == GammaStatus::ok, r, "in reach, and not ok", static_cast<double>(status[r]));
    }
    const std::size_t r = random.below(rows);
    double g = 0, e = 0;
    GammaStatus s = {};
    gamma_for_entropy<T>(op, x.one(r), std::span(&g, 1), std::span(&e, 1), std::span(&s, 1));
    report.expect(same_bits(g, gamma[r]) && same_bits(e, h[r]) && s == status[r], r, "other bits in a batch");
  }
}

template <class T>
Rows<T> rows_of_distributions(Random& random, std::size_t rows, std::size_t cols) {
  Rows<T> p(rows, cols);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::vector<double> q = support::random_distribution(random, cols);
    const double scale = random.chance(0.3) ? random.power_of_10(-20, 20) : 1;
    for (std::size_t i = 0; i < cols; ++i) p.row(r)[i] = to<T>(q[i] * scale);
  }
  return p;
}

template <class T>
void soak_power(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const auto [rows, cols] = shape_of_batch<T>(random);
    const Rows<T> p = rows_of_distributions<T>(random, rows, cols);
    const PowerTransform op = random_op<PowerTransform>(random, cols);
    report.next(rows, cols, [&](std::size_t r) { return text_of(op) + " " + text_of(p.row(r)); });
    Rows<T> q(rows, cols);
    power_transform<T>(op, p, q);
    for (std::size_t r = 0; r < rows; ++r) {
      if (!check_distribution(report, p.row(r), std::as_const(q).row(r), r)) continue;
      check_order(report, Described<Softmax>::kLaws, p.row(r), std::as_const(q).row(r), r);
      bool zeros = true;
      for (std::size_t i = 0; i < cols; ++i) zeros &= p.row(r)[i] != 0 || q.row(r)[i] == 0;
      report.expect(zeros, r, "mass where there was none");
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    power_transform<T>(op, p.one(r), alone);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(q).row(r)), r, "other bits in a batch");
  }
}

template <class T>
void soak_density(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const auto [rows, cols] = shape_of_batch<T>(random);
    const Rows<T> p = rows_of_distributions<T>(random, rows, cols);
    const double width = random.power_of_10(-3, 3);
    Rows<double> w(1, cols), h(1, 1);
    for (double& weight : w.data) weight = width * (random.chance(0.05) ? 0 : random.uniform(0.5, 1.5));
    w.data[random.below(cols)] = width;
    const NormalizeDensity op = {std::log(width) + random.uniform(-0.1, 1.1) * std::log(static_cast<double>(cols) + 1)};
    report.next(rows, cols, [&](std::size_t r) {
      return fmt::format("{} {}, weights {}", text_of(op), text_of(p.row(r)), text_of(std::as_const(w).row(0)));
    });
    Rows<T> q(rows, cols);
    std::vector<Normalized> result(rows);
    normalize_density<T>(op, p, w, q, result);
    for (std::size_t r = 0; r < rows; ++r) {
      long double sum = 0, reached = 0, mass = 0;
      bool numbers = true, positive = true;
      for (std::size_t i = 0; i < cols; ++i) {
        const long double density = q.row(r)[i];
        numbers &= density == density;
        positive &= density >= 0;
        sum += density * w.data[i];
        if (density > 0) reached -= w.data[i] * density * std::log(density);
        if (w.data[i] > 0) mass += p.row(r)[i];
      }
      if (mass == 0) continue;  // all of it where weights are 0
      if (!report.expect(numbers, r, "NaN")) continue;
      report.expect(positive, r, "below 0");
      report.sum(std::abs(static_cast<double>(sum) - 1), sum_bound<T>(cols), r);
      const double slack = 1e-12 * std::max(1.0, std::abs(op.entropy));
      const double rounding = slack + 16 * kEps<T> * (std::abs(std::log(width)) + std::log(static_cast<double>(cols)) + 1);
      const Normalized& of = result[r];
      report.expect(of.gamma >= 0, r, "gamma below 0", of.gamma);
      report.expect_at_most(std::abs(static_cast<double>(reached) - of.entropy), rounding, r, "has not the entropy it says");
      if (of.status == GammaStatus::ok) report.expect_at_most(std::abs(of.entropy - op.entropy), slack, r, "target missed");
      if (op.entropy > of.least + slack && op.entropy < of.most - slack)
        report.expect(of.status == GammaStatus::ok, r, "in reach, and not ok");
    }
  }
}

template <class T>
void soak_joint(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const std::size_t rows = 1 + random.below(random.chance(0.05) ? 60 : 9),
                      cols = 1 + random.below(random.chance(0.05) ? 60 : 9);
    Rows<T> p(rows, cols), table(rows, cols);
    const std::vector<double> q = support::random_distribution(random, rows * cols);
    for (std::size_t i = 0; i < q.size(); ++i) p.data[i] = to<T>(q[i]);
    const NormalizeJoint op = random_op<NormalizeJoint>(random, rows * cols);
    report.next(1, rows * cols, [&](std::size_t) {
      return fmt::format("{} x {} {} {}", rows, cols, text_of(op), text_of(std::span<const T>(p.data)));
    });
    const Normalized of = normalize_joint<T>(op, p, table);
    if (!check_distribution<T>(report, p.data, table.data, 0)) continue;
    const double goal = op.joint      ? *op.joint
                        : op.marginal ? *op.marginal
                                      : *op.conditional,
                 slack = 1e-12 * std::max(1.0, goal);
    report.expect(of.gamma >= 0, 0, "gamma below 0", of.gamma);
    if (of.status == GammaStatus::ok) report.expect_at_most(std::abs(of.entropy - goal), slack, 0, "target missed");
    if (goal > of.least + slack && goal < of.most - slack)
      report.expect(of.status == GammaStatus::ok, 0, "in reach, and not ok");
    std::vector<double> wide(table.data.begin(), table.data.end());
    const MatrixView<const double> view(wide.data(), rows, cols);
    double h = measure<double>(TableMeasure(JointEntropy{.normalize = true}), view);
    if (!op.joint) {
      const double given = measure<double>(TableMeasure(ConditionalEntropy{.given = Given::x, .normalize = true}), view);
      h = op.conditional ? given : h - given;
    }
    report.expect_at_most(std::abs(h - of.entropy),
                          slack + 1e-11 + (kWide<T> ? 0 : 1e-6) * (1 + std::log(static_cast<double>(rows * cols))), 0,
                          "has not the entropy it says");
  }
}

template <class T>
void soak_mean_field(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const Rows<T> x = rows_of_scores<T>(random, 100000);
    const MeanFieldEntropy op = random_op<MeanFieldEntropy>(random, x.cols);
    report.next(x.rows, x.cols, [&](std::size_t r) { return text_of(op) + " " + text_of(x.row(r)); });
    std::vector<double> estimate(x.rows);
    mean_field_entropy<T>(op, x, estimate);
    for (std::size_t r = 0; r < x.rows; ++r) {
      const Present of = present(x.row(r));
      const double most = std::log(static_cast<double>(of.count));
      if (!report.expect(!std::isnan(estimate[r]), r, "NaN")) continue;
      report.expect(estimate[r] <= most * (1 + 1e-14), r, "above log n", estimate[r]);
      long double sum = 0, mean = 0;  // of exp(gamma (x - max)); its scores
      for (const T score : x.row(r)) {
        const long double z = op.gamma * (static_cast<long double>(score) - of.high);
        if (score == -kInf) continue;
        sum += std::exp(z);
        if (z > -11000) mean += std::exp(z) * z;
      }
      const double h = static_cast<double>(std::log(sum) - mean / sum);
      report.expect(estimate[r] <= h + 1e-12 * std::max(1.0, h), r, "above the entropy", estimate[r] - h);
    }
  }
}

}  // namespace

void soak_entropy_control(Soak& soak) {
  soak.run<float, double>("gamma_for_entropy",
                          [&]<class T>(T, Random& random, Report& report) { soak_gamma<T>(random, report, soak.rows()); });
  soak.run<float, double>("power_transform",
                          [&]<class T>(T, Random& random, Report& report) { soak_power<T>(random, report, soak.rows()); });
  soak.run<float, double>("normalize_density",
                          [&]<class T>(T, Random& random, Report& report) { soak_density<T>(random, report, soak.rows()); });
  soak.run<float, double>("normalize_joint",
                          [&]<class T>(T, Random& random, Report& report) { soak_joint<T>(random, report, soak.rows()); });
  soak.run<float, double>("mean_field_entropy",
                          [&]<class T>(T, Random& random, Report& report) { soak_mean_field<T>(random, report, soak.rows()); });
}

}  // namespace isentropic

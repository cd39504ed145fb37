// Transport.

#include "tests/soak/soak.h"

namespace isentropic {
namespace {

template <class T>
std::vector<T> masses(Random& random, std::size_t n) {
  const std::vector<double> p = support::random_distribution(random, n);
  return {p.begin(), p.end()};
}

template <class T>
void soak_plans(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const std::size_t n = 1 + random.below(random.chance(0.1) ? 60 : 10), m = 1 + random.below(random.chance(0.1) ? 60 : 10);
    const std::vector<T> a = masses<T>(random, n), b = masses<T>(random, m);
    const double scale = random.power_of_10(-6, 6), forbidden = random.chance(0.2) ? random.uniform(0, 0.3) : 0,
                 grid = random.chance(0.3);
    std::vector<T> cost(n * m), plan(n * m), f(n), g(m);
    double used = 0;
    for (T& c : cost) {
      c = static_cast<T>(
          random.chance(forbidden) ? kInf : scale * (grid ? static_cast<double>(random.below(4)) : random.uniform(-0.2, 1)));
      if (c < kInf) used = std::max<double>(used, std::abs(c));
    }
    Sinkhorn isentropic = {
        .epsilon = scale * random.power_of_10(-2, 1), .tolerance = 1e-6, .max_iterations = 1000, .mass_tolerance = {}};
    report.next(1, n * m, [&](std::size_t) {
      return fmt::format("epsilon {}, a {}, b {}, cost {}", isentropic.epsilon, text_of(std::span<const T>(a)),
                         text_of(std::span<const T>(b)), text_of(std::span<const T>(cost)));
    });
    TransportResult exact;
    const MatrixView<const T> costs(cost.data(), n, m);
    optimal_transport<T>({.mass_tolerance = 1e-3}, {a.data(), 1, n}, {b.data(), 1, m}, costs, {plan.data(), n, m},
                         MatrixView<T>(f.data(), 1, n), MatrixView<T>(g.data(), 1, m), std::span(&exact, 1));
    report.expect(exact.status != TransportStatus::pivot_limit, 0, "pivot limit");
    report.expect(forbidden > 0 || exact.status == TransportStatus::optimal, 0, "infeasible without forbidden arcs");
    double mass_a = 0, mass_b = 0;
    for (const T mass : a) mass_a += mass;
    for (const T mass : b) mass_b += mass;
    if (exact.status == TransportStatus::optimal) {
      report.expect(exact.gap >= 0 && exact.gap <= 1e-9 * used * mass_a, 0, "gap", exact.gap);
      bool positive = true;
      for (const T mass : plan) positive &= mass >= 0;
      report.expect(positive, 0, "plan below 0");
      for (std::size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < m; ++j) sum += plan[i * m + j];
        report.expect_at_most(std::abs(sum - a[i]), 64 * kEps<T> * mass_a, 0, "row of the plan has another mass");
      }
      for (std::size_t j = 0; j < m; ++j) {
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += plan[i * m + j];
        report.expect_at_most(std::abs(sum - b[j] * mass_a / mass_b), 64 * kEps<T> * mass_a, 0,
                              "column of the plan has another mass");
      }
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < m; ++j) {
          report.expect(!std::isnan(f[i]) && !std::isnan(g[j]), 0, "potential is NaN");
          // Of masses that are there; rounding of each potential to T.
          const double over = static_cast<double>(f[i]) + g[j] - cost[i * m + j];
          report.expect(!(over > 8 * kEps<T> * (std::abs(f[i]) + std::abs(g[j]) + used)), 0, "potentials above the cost", over);
        }
      }
    }
    try {
      SinkhornResult soft;
      sinkhorn<T>(
          [&] {
            Sinkhorn o = isentropic;
            o.mass_tolerance = 1e-3;
            return o;
          }(),
          {a.data(), 1, n}, {b.data(), 1, m}, costs, {plan.data(), n, m}, MatrixView<T>(f.data(), 1, n),
          MatrixView<T>(g.data(), 1, m), std::span(&soft, 1));
      bool good = true;
      for (const T mass : plan) good &= mass >= 0;
      if (exact.status == TransportStatus::optimal) {
        report.expect(good, 0, "sinkhorn: plan is NaN or below 0");
        const double slack = 1e-6 * used * mass_a * (kWide<T> ? 1e-3 : 10);
        report.expect(soft.lower_bound <= exact.cost + slack, 0, "sinkhorn: lower bound above the optimum",
                      soft.lower_bound - exact.cost);
        report.expect(soft.upper_bound >= exact.cost - slack, 0, "sinkhorn: upper bound below the optimum",
                      soft.upper_bound - exact.cost);
        if (soft.converged) report.expect_at_most(soft.marginal_error, 1e-5, 0, "sinkhorn: marginal error");
      }
    } catch (const std::invalid_argument& error) {
      report.expect(forbidden > 0, 0, std::string("sinkhorn: ") + error.what());
    }
  }
}

template <class T>
void soak_wasserstein(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const std::size_t rows = 1 + random.below(8), n = support::random_length(random, 1000),
                      m = support::random_length(random, 1000);
    Rows<T> u(rows, n), v(rows, m), du(rows, n), dv(rows, m);
    for (Rows<T>* const samples : {&u, &v}) {
      for (std::size_t r = 0; r < rows; ++r) {
        support::random_scores(random, samples->row(r).data(), samples->cols);
        for (T& sample : samples->row(r)) {
          if (sample == -kInf) sample = 0;
        }
      }
    }
    const bool weighted = random.chance(0.5);
    Rows<T> a(rows, n), b(rows, m);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::vector<T> x = masses<T>(random, n), y = masses<T>(random, m);
      std::copy(x.begin(), x.end(), a.row(r).begin());
      std::copy(y.begin(), y.end(), b.row(r).begin());
    }
    const Wasserstein1d op = random_op<Wasserstein1d>(random, n);
    report.next(rows, n + m, [&](std::size_t r) {
      return fmt::format(
          "{} {} and {}{}", text_of(op), text_of(std::as_const(u).row(r)), text_of(std::as_const(v).row(r)),
          weighted ? fmt::format(", weights {} and {}", text_of(std::as_const(a).row(r)), text_of(std::as_const(b).row(r)))
                   : "");
    });
    std::vector<double> w(rows), back(rows), self(rows), mean(rows);
    const MatrixView<const T> no_weights, wa = weighted ? MatrixView<const T>(a) : no_weights,
                                          wb = weighted ? MatrixView<const T>(b) : no_weights;
    wasserstein_1d<T>(op, MatrixView<const T>(u), MatrixView<const T>(v), wa, wb, w, du, dv);
    wasserstein_1d<T>(op, MatrixView<const T>(v), MatrixView<const T>(u), wb, wa, back);
    wasserstein_1d<T>(op, MatrixView<const T>(u), MatrixView<const T>(u), wa, wa, self);
    wasserstein_1d<T>(Wasserstein1d{}, MatrixView<const T>(u), MatrixView<const T>(v), wa, wb, mean);
    for (std::size_t r = 0; r < rows; ++r) {
      const Present x = present(std::as_const(u).row(r)), y = present(std::as_const(v).row(r));
      const double most = std::max(x.high, y.high) - std::min(x.low, y.low);
      if (!report.expect(!std::isnan(w[r]), r, "NaN")) continue;
      report.expect(w[r] >= 0, r, "below 0", w[r]);
      report.expect(w[r] <= most * (1 + 1e-14), r, "above the range of the samples", w[r] / most);
      report.expect(self[r] == 0, r, "to itself not 0", self[r]);
      report.expect(w[r] >= mean[r] * (1 - 1e-9) - 1e-300 || mean[r] == kInf, r, "below that of order 1", w[r] / mean[r]);
      // The rounding error of weights, which a high order magnifies.
      const double rounding = 1e-12 * w[r] + (weighted ? most * std::pow(1e-17, 1 / op.order) : 0) + 1e-300;
      report.expect(std::abs(back[r] - w[r]) <= rounding || w[r] == kInf, r, "not symmetric", back[r] - w[r]);
      bool numbers = true;
      for (const T slope : du.row(r)) numbers &= !std::isnan(slope);
      for (const T slope : dv.row(r)) numbers &= !std::isnan(slope);
      report.expect(numbers || w[r] == kInf, r, "gradient is NaN");
    }
  }
}

template <class T>
void soak_points(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const std::size_t n = 1 + random.below(12), m = 1 + random.below(12), d = 1 + random.below(3);
    const double scale = random.power_of_10(-6, 6);
    std::vector<T> x(n * d), y(m * d);
    for (T& c : x) c = static_cast<T>(scale * random.normal());
    for (T& c : y) c = static_cast<T>(scale * random.normal());
    const std::vector<T> a = masses<T>(random, n), b = masses<T>(random, m);
    const double order = random.one_of(std::vector{1.0, 2.0, 1.5, 3.0});
    const SinkhornDivergence smooth = {.epsilon = std::pow(scale, order) * random.power_of_10(-1, 1),
                                       .order = order,
                                       .tolerance = 1e-6,
                                       .max_iterations = 500};
    report.next(1, n * m, [&](std::size_t) {
      return fmt::format("d {}, order {}, epsilon {}, x {}, y {}, a {}, b {}", d, order, smooth.epsilon,
                         text_of(std::span<const T>(x)), text_of(std::span<const T>(y)), text_of(std::span<const T>(a)),
                         text_of(std::span<const T>(b)));
    });
    const MatrixView<const T> xs(x.data(), n, d), ys(y.data(), m, d);
    const double w = wasserstein<T>({.order = order}, xs, ys, a, b), self = wasserstein<T>({.order = order}, xs, xs, a, a);
    double most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < m; ++j) {
        double square = 0;
        for (std::size_t c = 0; c < d; ++c) square += std::pow(static_cast<double>(x[i * d + c]) - y[j * d + c], 2);
        most = std::max(most, std::sqrt(square));
      }
    }
    report.expect(w >= 0 && w <= most * (1 + 1e-12), 0, "distance out of range", w);
    report.expect_at_most(self, 1e-9 * most, 0, "distance to itself");
    const double s = sinkhorn_divergence<T>(smooth, xs, ys, a, b);
    report.expect((s >= 0 || order > 2) && std::isfinite(s), 0, "sinkhorn divergence below 0", s);
    report.expect(sinkhorn_divergence<T>(smooth, xs, xs, a, a) == 0, 0, "sinkhorn divergence to itself");
    const UnbalancedSinkhornDivergence unequal = {.epsilon = smooth.epsilon, .penalty = most + 1, .order = smooth.order};
    const double u = unbalanced_sinkhorn_divergence<T>(unequal, xs, ys, a, b);
    report.expect((u >= 0 || order > 2) && std::isfinite(u), 0, "unbalanced sinkhorn divergence below 0", u);
    report.expect(unbalanced_sinkhorn_divergence<T>(unequal, xs, xs, a, a) == 0, 0, "unbalanced sinkhorn divergence to itself");
  }
}

}  // namespace

void soak_transport(Soak& soak) {
  soak.run<float, double>("wasserstein_1d", [&]<class T>(T, Random& random, Report& report) {
    soak_wasserstein<T>(random, report, soak.rows() / 10);
  });
  // Problems; each takes as long as many rows.
  soak.run<float, double>(
      "transport", [&]<class T>(T, Random& random, Report& report) { soak_plans<T>(random, report, soak.rows() / 100); });
  soak.run<float, double>(
      "points", [&]<class T>(T, Random& random, Report& report) { soak_points<T>(random, report, soak.rows() / 100); });
}

}  // namespace isentropic

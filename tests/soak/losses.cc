// Losses.

#include "tests/soak/soak.h"

namespace isentropic {
namespace {

// A distribution of T over the entries of x that are above -inf.
template <class T>
void random_target(Random& random, std::span<const T> x, std::span<T> q) {
  std::vector<std::size_t> classes;
  for (std::size_t i = 0; i < x.size(); ++i) {
    q[i] = to<T>(0);
    if (number(x[i]) != -kInf) classes.push_back(i);
  }
  const std::vector<double> p = support::random_distribution(random, classes.size());
  for (std::size_t k = 0; k < classes.size(); ++k) q[classes[k]] = to<T>(p[k]);
}

template <class T>
void soak_loss(Random& random, Report& report, std::size_t index, std::size_t wanted) {
  while (report.rows() < wanted) {
    Loss op = support::random_of<Loss>(random, index, 1);
    const std::size_t map_index = random.below(std::variant_size_v<Map>);
    const bool has_map = std::visit(
        [](const auto& o) {
          return requires { o.map; };
        },
        op);
    const Map probe = support::random_of<Map>(random, map_index, 1);
    const bool costly = has_map && description_of(probe).cost > 1;
    Rows<T> x = rows_of_scores<T>(random, costly ? 300 : 100000);
    const std::size_t rows = x.rows, cols = x.cols;
    op = support::random_of<Loss>(random, index, cols);
    bool good = true;  // a margin has limits of its own
    double temperature = 1;
    std::visit(
        [&](auto& o) {
          if constexpr (requires { o.map; }) o.map = support::random_of<Map>(random, map_index, cols);
          if constexpr (requires { o.temperature; }) temperature = o.temperature;
          if constexpr (requires { o.margin; }) {
            using Kind = MarginSoftmaxLoss::Kind;
            if (o.margin && o.kind == Kind::arc) o.margin = std::fmod(*o.margin, M_PI);
            if (o.margin && o.kind == Kind::sphere) o.margin = std::min(std::ceil(*o.margin) + (*o.margin == 0), 1e6);
            good = o.scale < 1e20;
            for (T& entry : x.data) {  // cosines
              const double score = number(entry);
              entry = to<T>(std::abs(score) > 1 && score != -kInf ? 1 / score : score);
            }
          }
        },
        op);
    if (!good) continue;
    const TargetKind kind = std::visit([](const auto& o) { return o.kTarget; }, op);
    const bool soft = kind != TargetKind::classes && (kind != TargetKind::classes_or_distributions || random.chance(0.5));
    Rows<T> target(rows, cols), dx(rows, cols, x.stride);
    std::vector<std::int64_t> classes(rows);
    std::vector<double> value(rows, -7);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const T> xs = std::as_const(x).row(r);
      do {
        classes[r] = static_cast<std::int64_t>(random.below(cols));
      } while (number(xs[static_cast<std::size_t>(classes[r])]) == -kInf);
      if (kind == TargetKind::scores) {
        support::random_scores(random, target.row(r).data(), cols);
        bool any = false;
        for (std::size_t i = 0; i < cols; ++i) {  // what the student does not know
          if (number(xs[i]) == -kInf) target.row(r)[i] = xs[i];
          any |= number(target.row(r)[i]) != -kInf;
        }
        if (!any) target.row(r)[static_cast<std::size_t>(classes[r])] = to<T>(0);
      } else if (kind == TargetKind::labels) {
        for (std::size_t i = 0; i < cols; ++i) target.row(r)[i] = to<T>(number(xs[i]) != -kInf && random.chance(0.3));
      } else {
        random_target(random, xs, target.row(r));
      }
    }
    report.next(rows, cols, [&](std::size_t r) {
      return fmt::format("{} {}, target {}", text_of(op), text_of(std::as_const(x).row(r)),
                         soft ? text_of(std::as_const(target).row(r)) : fmt::format("{}", classes[r]));
    });
    const auto run = [&](std::size_t begin, std::size_t count, std::span<double> values, MatrixView<T> gradient) {
      const MatrixView<const T> some(x.data.data() + begin * x.stride, count, cols, x.stride);
      if (soft) {
        loss<T>(op, some, MatrixView<const T>(target.data.data() + begin * cols, count, cols), values, gradient);
      } else {
        loss<T>(op, some, std::span<const std::int64_t>(classes).subspan(begin, count), values, gradient);
      }
    };
    try {
      run(0, rows, value, dx);
    } catch (const std::invalid_argument&) {
      if (!kIsHalf<T> || !soft) throw;  // a long distribution of halves may not sum to 1
      continue;
    }
    report.expect(dx.gaps_untouched(), 0, "gradient wrote between rows");

    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const T> xs = std::as_const(x).row(r), slopes = std::as_const(dx).row(r);
      const Present of = present(xs);
      const double spread = of.high - of.low, v = value[r];
      if (!report.expect(!std::isnan(v), r, "NaN")) continue;
      const bool surrogate = std::holds_alternative<SurrogateLoss>(op);
      // Of a larger spread T does not hold the sum of differences.
      const bool measurable =
          spread * static_cast<double>(cols) < std::min(support::largest<T>(), 1e300) || (kIsHalf<T> && spread < 1e30);
      if (measurable && temperature < 1e100 && kind != TargetKind::scores) report.expect(std::abs(v) < kInf, r, "infinite", v);
      const bool cut = std::holds_alternative<TopKSoftmaxLoss>(op) || std::holds_alternative<TopPSoftmaxLoss>(op);
      if (std::holds_alternative<SmoothAccuracyLoss>(op)) {
        report.expect(v <= 0 && v >= -1 - sum_bound<float>(cols) - (soft ? 1e-2 : 0) * kIsHalf<T>, r, "not in [-1, 0]", v);
      } else if (!surrogate && !cut) {
        report.expect(v >= 0, r, "below 0", v);
      }
      if (const JsdLoss* const jsd = std::get_if<JsdLoss>(&op)) {
        const double b = jsd->beta, most = -b * std::log(b) - (1 - b) * std::log1p(-b);
        report.expect_at_most(v, most * (1 + 1e-6) + 1e-15, r, "above the entropy of beta");
      }
      bool zero_sum = kind != TargetKind::classes && kind != TargetKind::labels;
      double unit = temperature;
      if constexpr (kIsHalf<T>) zero_sum &= !soft || kind == TargetKind::scores;  // its sum is not quite 1
      std::visit(
          [&](const auto& o) {
            if constexpr (requires { o.map; }) {
              if (surrogate) return;
              zero_sum &= laws_of(o.map).shift && !laws_of(o.map).entropy_target;
              const std::vector<double> none(1, 0.0);
              unit = unit_of_gradient(o.map, none, none);
              if (std::visit(
                      [](const auto& m) {
                        return requires { m.alpha; };
                      },
                      o.map))
                unit = largest<T>();
              zero_sum &= std::visit(
                  [](const auto& m) {
                    return !requires { m.input; };
                  },
                  o.map);
              if (laws_of(o.map).entropy_target) unit = largest<T>();
            }
            if constexpr (requires { o.scale; }) unit = o.scale * 2e6;
            if constexpr (requires { o.divergence; }) {
              if (o.divergence != TeacherDivergence::reverse_kl) return;
              const Present of_teacher = present(std::as_const(target).row(r));
              unit += spread + of_teacher.high - of_teacher.low;  // of log ratios, which the gradient weighs
            }
          },
          op);
      check_gradient(report, slopes, zero_sum && (measurable || kind != TargetKind::scores), unit, r);
      const bool differences =
          zero_sum && kind == TargetKind::classes_or_distributions && !std::holds_alternative<SmoothAccuracyLoss>(op);
      if (differences) report.expect_at_most(largest_of(slopes), 1 + sum_bound<T>(1), r, "gradient p - q beyond 1");
      bool masked = true;
      for (std::size_t i = 0; i < cols; ++i) masked &= number(xs[i]) != -kInf || number(slopes[i]) == 0;
      report.expect(masked, r, "gradient at -inf");
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    double v = 0;
    run(r, 1, {&v, 1}, alone);
    report.expect(same_bits(v, value[r]), r, "other bits in a batch");
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(dx).row(r)), r, "other bits of the gradient in a batch");
  }
}

}  // namespace

void soak_losses(Soak& soak) {
  std::size_t index = 0;
  for_each_operation<Loss>([&]<class Op>(std::type_identity<Op>) {
    soak.run<float, double, float16, bfloat16>(
        Described<Op>::kDescription.name,
        [&]<class T>(T, Random& random, Report& report) { soak_loss<T>(random, report, index, soak.rows()); });
    ++index;
  });
}

}  // namespace isentropic

// Maps and logarithms.

#include "tests/soak/soak.h"

namespace isentropic {

double unit_of_gradient(const Map& map, std::span<const double> x, std::span<const double> p) {
  return std::visit(
      [&]<class Op>(const Op& op) {
        if constexpr (requires { op.alpha; }) {
          if (p.empty() && op.alpha > 2) return kInf;
          double largest = 1;  // p^(2 - alpha) is not bounded
          for (const double mass : p) largest = std::max(largest, mass > 0 ? std::pow(mass, 2 - op.alpha) : 0);
          return largest / op.temperature;
        } else if constexpr (requires { op.temperature; }) {
          return 1 / op.temperature;
        } else if constexpr (requires { op.scale; }) {
          return 1 / op.scale;
        } else if constexpr (Described<Op>::kLaws.entropy_target) {
          const double inf = std::numeric_limits<double>::infinity();
          double target = inf;
          if constexpr (requires { op.entropy; }) {
            target = op.entropy ? *op.entropy : std::log(*op.perplexity);
          } else {
            double h = 0;
            measure(Entropy{.input = op.input, .normalize = true}, MatrixView<const double>(x.data(), 1, x.size()),
                    std::span(&h, 1));
            // Within rounding the entropy may be either side of an end.
            const double near = 1e-12 * (1 + h);
            target = op.min_entropy && h < *op.min_entropy + near   ? *op.min_entropy
                     : op.max_entropy && h > *op.max_entropy - near ? *op.max_entropy
                                                                    : -1;
            if (target < 0) return 1.0;
          }
          double gamma = 0, reached = 0;
          GammaStatus status = {};
          gamma_for_entropy({.entropy = std::max(target, 0.0)}, MatrixView<const double>(x.data(), 1, x.size()),
                            std::span(&gamma, 1), std::span(&reached, 1), std::span(&status, 1));
          return status == GammaStatus::ok ? std::max(gamma, 1.0) : 1.0;
        } else {
          return 1.0;
        }
      },
      map);
}

namespace {

// One value of a parameter that is per_row for each row, and the map with that of one row.
struct PerRowValues {
  std::string_view parameter;
  std::vector<double> values;
};
PerRowValues random_per_row(Random& random, const Map& map, std::size_t rows, std::size_t cols) {
  PerRowValues result;
  std::visit(
      [&]<class Op>(const Op& op) {
        for_each_param<Op>([&]<class Value>(const Param<Op, Value>& param) {
          if constexpr (!std::is_enum_v<Value>) {
            if (!param.per_row || !result.values.empty()) return;
            if constexpr (std::is_same_v<Value, std::optional<double>>) {
              if (!(op.*param.member)) return;
            }
            result.parameter = param.name;
            for (std::size_t r = 0; r < rows; ++r) {
              double value = random_number(random, param.name, param.above, param.at_least, param.up_to, cols);
              // An interval stays one.
              if constexpr (requires { op.max_entropy; }) {
                if (param.name == "min_entropy" && op.max_entropy) value = std::min(value, *op.max_entropy);
                if (param.name == "max_entropy" && op.min_entropy) value = std::max(value, *op.min_entropy);
              }
              result.values.push_back(value);
            }
          }
        });
      },
      map);
  return result;
}
Map with_value(const Map& map, const PerRowValues& per_row, std::size_t r) {
  Map one = map;
  std::visit(
      [&]<class Op>(Op& op) {
        for_each_param<Op>([&](const auto& param) {
          if constexpr (requires { op.*param.member = 1.5; }) {
            if (param.name == per_row.parameter) op.*param.member = per_row.values[r];
          }
        });
      },
      one);
  return one;
}

Input input_of(const Map& map) {
  return std::visit(
      [](const auto& op) {
        if constexpr (requires { op.input; }) return op.input;
        return Input::scores;
      },
      map);
}

// Rows that are not scores, for maps that take others.
template <class T>
void make_input(Random& random, Map& map, Rows<T>& x) {
  std::visit(
      [&](auto& op) {
        if constexpr (requires { op.input; }) {
          if (!random.chance(0.3)) return;
          op.input = random.chance(0.5) ? Input::probs : Input::log_probs;
          for (std::size_t r = 0; r < x.rows; ++r) {
            const std::vector<double> p = support::random_distribution(random, x.cols);
            bool mass = false;
            for (std::size_t i = 0; i < x.cols; ++i) {
              x.row(r)[i] = to<T>(op.input == Input::probs ? p[i] : std::log(p[i]));
              mass |= number(x.row(r)[i]) > (op.input == Input::probs ? 0 : -kInf);
            }
            if (!mass) x.row(r)[0] = to<T>(op.input == Input::probs ? 1 : 0);
          }
        }
      },
      map);
}

template <class T>
void check_entropy_target(Report& report, const Map& map, std::span<const T> x, std::span<const T> p, std::size_t r) {
  if (kIsHalf<T>) return;
  std::visit(
      [&]<class Op>(const Op& op) {
        if constexpr (Described<Op>::kLaws.entropy_target) {
          Present of;
          if (op.input == Input::probs) {
            std::vector<double> q;
            for (const T mass : x) q.push_back(number(mass) > 0 ? number(mass) : -kInf);
            of = present<double>(q);
          } else {
            of = present(x);
          }
          if (of.high == kInf) return;
          const double low = std::log(static_cast<double>(of.ties)), high = std::log(static_cast<double>(of.count));
          double least = 0, most = high;
          if constexpr (requires { op.entropy; }) {
            least = most = op.entropy ? *op.entropy : std::log(*op.perplexity);
          } else {
            least = op.min_entropy.value_or(0), most = op.max_entropy.value_or(high);
          }
          const double h = entropy_of(p), bound = kWide<T> ? 1e-12 : 1e-6;
          report.expect_at_most(std::min(least, high) - h, bound * std::max(1.0, least), r, "entropy below its target");
          report.expect_at_most(h - std::max(most, low), bound * std::max(1.0, h), r, "entropy above its target");
        }
      },
      map);
}

template <class T>
void soak_map(Random& random, Report& report, std::size_t index, std::size_t wanted) {
  const Description& description = description_of(support::random_of<Map>(random, index, 1));
  while (report.rows() < wanted) {
    Rows<T> x = rows_of_scores<T>(random, description.cost > 1 ? 2000 : 100000);
    const std::size_t rows = x.rows, cols = x.cols;
    Map map = support::random_of<Map>(random, index, cols);
    make_input(random, map, x);
    const PerRowValues per_row = random.chance(0.3) ? random_per_row(random, map, rows, cols) : PerRowValues{};
    std::vector<PerRow> views;
    if (!per_row.values.empty()) views.push_back({per_row.parameter, per_row.values});
    const auto map_of_row = [&](std::size_t r) { return views.empty() ? map : with_value(map, per_row, r); };
    report.next(rows, cols, [&](std::size_t r) { return text_of(map_of_row(r)) + " " + text_of(std::as_const(x).row(r)); });

    Rows<T> p(rows, cols, x.stride), dx(rows, cols, x.stride), g = rows_of_gradients(random, x);
    for (std::size_t r = 0; r < rows; ++r) {  // where there is no mass by -inf, g is not read
      for (std::size_t i = 0; i < cols; ++i) {
        if (number(x.row(r)[i]) == -kInf) g.row(r)[i] = to<T>(std::numeric_limits<double>::quiet_NaN());
      }
    }
    const bool in_place = random.chance(0.3);
    if (in_place) p = x;
    apply<T>(map, in_place ? MatrixView<const T>(p) : x, p, views);
    std::vector<double> slope(rows, 0);
    std::vector<ParamGradient> gradients;
    if (!views.empty()) gradients.push_back({per_row.parameter, slope});
    apply_vjp<T>(map, x, p, g, dx, views, gradients);
    report.expect(in_place || p.gaps_untouched(), 0, "wrote between rows");
    report.expect(dx.gaps_untouched(), 0, "gradient wrote between rows");

    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const T> xs = std::as_const(x).row(r), ps = std::as_const(p).row(r), gs = std::as_const(g).row(r);
      const Map one = map_of_row(r);
      if (!check_distribution(report, xs, ps, r)) continue;
      check_order(report, laws_of(map), xs, ps, r);
      check_entropy_target(report, one, xs, ps, r);
      std::vector<double> wide, masses;
      for (const T score : xs) wide.push_back(number(score));
      for (const T mass : ps) masses.push_back(number(mass));
      double size = 0;
      for (std::size_t i = 0; i < cols; ++i) size = std::max(size, std::isnan(number(gs[i])) ? 0 : std::abs(number(gs[i])));
      // In probabilities q it is that in log q over q: of any size.
      const bool shift = laws_of(map).shift && input_of(map) != Input::probs;
      const double unit = input_of(map) == Input::probs
                              ? kInf
                              : size * unit_of_gradient(one, wide, kIsHalf<T> ? std::span<const double>() : masses);
      check_gradient(report, std::as_const(dx).row(r), shift, unit, r);
      bool masked = true;
      for (std::size_t i = 0; i < cols; ++i) masked &= number(xs[i]) != -kInf || number(dx.row(r)[i]) == 0;
      report.expect(masked, r, "gradient at -inf");
      report.expect(!std::isnan(slope[r]), r, "gradient in a parameter is NaN");
    }

    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    apply<T>(map_of_row(r), x.one(r), alone);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(p).row(r)), r, "other bits in a batch");
    apply_vjp<T>(map_of_row(r), x.one(r), p.one(r), g.one(r), alone);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(dx).row(r)), r, "other bits of the gradient in a batch");

    if (laws_of(map).shift && rows > 1) {  // an exact shift: multiples of 1/16, moved by 1024
      if (input_of(map) != Input::scores || kIsHalf<T>) continue;
      Rows<T> coarse(1, cols), moved(1, cols), q(1, cols);
      for (std::size_t i = 0; i < cols; ++i) {
        const double score = number(x.row(r)[i]);
        coarse.row(0)[i] = to<T>(score == -kInf ? score : std::round(std::clamp(score, -2048.0, 2048.0) * 16) / 16);
        moved.row(0)[i] = to<T>(number(coarse.row(0)[i]) + 1024);
      }
      apply<T>(map_of_row(r), coarse, alone);
      apply<T>(map_of_row(r), moved, q);
      report.expect(same_bits(std::as_const(alone).row(0), std::as_const(q).row(0)), r, "changed by a shift");
    }
  }
}

template <class T>
void soak_log_softmax(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const Rows<T> x = rows_of_scores<T>(random, 100000), g = rows_of_gradients(random, x);
    const std::size_t rows = x.rows, cols = x.cols;
    const LogSoftmax op = random_op<LogSoftmax>(random, cols);
    report.next(rows, cols, [&](std::size_t r) { return text_of(op) + " " + text_of(x.row(r)); });
    Rows<T> y(rows, cols, x.stride), dx(rows, cols, x.stride);
    log_softmax<T>(op, x, y);
    log_softmax_vjp<T>(op, x, y, g, dx);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const T> ys = std::as_const(y).row(r);
      long double sum = 0;
      bool numbers = true, negative = true;
      for (const T entry : ys) {
        sum += std::exp(static_cast<long double>(number(entry)));
        numbers &= !std::isnan(number(entry));
        negative &= number(entry) <= 0;
      }
      if (!report.expect(numbers, r, "NaN")) continue;
      report.expect(negative, r, "above 0");
      // Each has its own rounding error.
      const double size = std::log(static_cast<double>(cols)) + 8;
      report.expect_at_most(static_cast<double>(std::abs(sum - 1)), sum_bound<T>(cols) + 4 * kEps<T> * size, r, "sum is not 1");
      check_order(report, Described<Softmax>::kLaws, x.row(r), ys, r);
      const double unit = largest_of(g.row(r)) / op.temperature;
      check_gradient(report, std::as_const(dx).row(r), false, unit * static_cast<double>(cols), r);
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    log_softmax<T>(op, x.one(r), alone);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(y).row(r)), r, "other bits in a batch");
  }
}

template <class T>
void soak_soft_top_k(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const Rows<T> x = rows_of_scores<T>(random, 100000), g = rows_of_gradients(random, x);
    const std::size_t rows = x.rows, cols = x.cols;
    const SoftTopK op = random_op<SoftTopK>(random, cols);
    report.next(rows, cols, [&](std::size_t r) { return text_of(op) + " " + text_of(x.row(r)); });
    Rows<T> p(rows, cols, x.stride), dx(rows, cols, x.stride);
    soft_top_k<T>(op, x, p);
    soft_top_k_vjp<T>(op, x, p, g, dx);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const T> shares = std::as_const(p).row(r);
      const double most = std::min(op.k, static_cast<double>(present(x.row(r)).count));
      report.expect_at_most(std::abs(sum_of(shares) - most), sum_bound<T>(cols) * std::max(most, 1.0) + 4 * kEps<T> * most, r,
                            "sum is not k");
      const double unit = largest_of(g.row(r)) / op.temperature;
      check_gradient(report, std::as_const(dx).row(r), false, unit * static_cast<double>(cols), r);
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    soft_top_k<T>(op, x.one(r), alone);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(p).row(r)), r, "other bits in a batch");
  }
}

template <class T>
void soak_logsumexp(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const Rows<T> x = rows_of_scores<T>(random, 100000);
    const std::size_t rows = x.rows, cols = x.cols;
    const LogSumExp op = random_op<LogSumExp>(random, cols);
    report.next(rows, cols, [&](std::size_t r) { return text_of(op) + " " + text_of(x.row(r)); });
    Rows<T> y(rows, 1), g(rows, 1), dx(rows, cols, x.stride);
    for (T& entry : g.data) entry = to<T>(random.normal());
    logsumexp<T>(op, x, y);
    logsumexp_vjp<T>(op, x, y, g, dx);
    for (std::size_t r = 0; r < rows; ++r) {
      const Present of = present(x.row(r));
      const double value = number(y.data[r]), most = op.temperature * std::log(static_cast<double>(of.count));
      if (!report.expect(!std::isnan(value), r, "NaN")) continue;
      report.expect(value >= of.high, r, "below the maximum", value);
      const double bound = of.high + most;
      if (bound < largest<T>())
        report.expect_at_most(value, bound + 8 * kEps<T> * (std::abs(of.high) + most) + kTiny<T>, r, "above maximum + T log n");
      const double sum = sum_of(std::as_const(dx).row(r)), want = number(g.data[r]);
      report.expect_at_most(std::abs(sum - want),
                            2 * sum_bound<T>(cols) * std::abs(want) + kTiny<T> * static_cast<double>(cols), r,
                            "gradient's sum is not g");
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, 1);
    logsumexp<T>(op, x.one(r), alone);
    report.expect(same_bits(number(alone.data[0]), number(y.data[r])), r, "other bits in a batch");
  }
}

}  // namespace

void soak_maps(Soak& soak) {
  std::size_t index = 0;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    soak.run<float, double, float16, bfloat16>(
        Described<Op>::kDescription.name,
        [&]<class T>(T, Random& random, Report& report) { soak_map<T>(random, report, index, soak.rows()); });
    ++index;
  });
  soak.run<float, double, float16, bfloat16>(
      "log_softmax", [&]<class T>(T, Random& random, Report& report) { soak_log_softmax<T>(random, report, soak.rows()); });
  soak.run<float, double, float16, bfloat16>(
      "soft_top_k", [&]<class T>(T, Random& random, Report& report) { soak_soft_top_k<T>(random, report, soak.rows()); });
  soak.run<float, double, float16, bfloat16>(
      "logsumexp", [&]<class T>(T, Random& random, Report& report) { soak_logsumexp<T>(random, report, soak.rows()); });
}

}  // namespace isentropic

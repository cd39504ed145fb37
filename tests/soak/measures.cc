// Measures: of rows, of two, of tables, of entries.

#include "tests/soak/soak.h"

namespace isentropic {
namespace {

// Rows for the measure, and the distance of each sum from 1.
template <class T, class Op>
Rows<T> rows_of_input(Random& random, Op& op, std::size_t rows, std::size_t cols, bool one_distribution,
                      std::vector<double>& off) {
  op.input = random.one_of(std::vector{Input::probs, Input::probs, Input::log_probs, Input::scores});
  // Halves are too coarse for their sum to be 1 in long rows, or where they are logarithms.
  if constexpr (requires { op.normalize; }) op.normalize = random.chance(0.3) || kIsHalf<T>;
  Rows<T> p(rows, cols);
  off.assign(rows, 0);
  const std::size_t n = one_distribution ? rows * cols : cols;
  for (std::size_t begin = 0; begin < rows * cols; begin += n) {
    const std::span<T> row(p.data.data() + begin, n);
    if (op.input == Input::scores) {
      support::random_scores(random, row.data(), n);
      continue;
    }
    long double sum = 0;
    const std::vector<double> q = support::random_distribution(random, n);
    for (std::size_t i = 0; i < n; ++i) {
      row[i] = to<T>(op.input == Input::probs ? q[i] : std::log(q[i]));
      const long double entry = number(row[i]);
      sum += op.input == Input::probs ? entry : std::exp(entry);
    }
    if constexpr (requires { op.normalize; }) {
      if (!op.normalize) off[begin / cols] = static_cast<double>(std::abs(sum - 1));
      if (op.normalize && sum == 0) row[0] = to<T>(op.input == Input::probs ? 1 : 0);
    }
  }
  return p;
}

// One over the logarithm of the base; 1 of measures without a unit.
double unit_of(const auto& op) {
  if constexpr (requires { op.base; }) return op.base ? 1 / std::log(*op.base) : 1;
  return 1;
}

template <class T, class Op>
void soak_measure(Random& random, Report& report, std::type_identity<Op>, std::size_t wanted) {
  while (report.rows() < wanted) {
    const auto [rows, cols] = shape_of_batch<T>(random);
    Op op = random_op<Op>(random, cols);
    std::vector<double> off, value(rows, -7);
    const Rows<T> p = rows_of_input<T>(random, op, rows, cols, false, off);
    Rows<T> dp(rows, cols);
    report.next(rows, cols, [&](std::size_t r) { return text_of(op) + " " + text_of(p.row(r)); });
    measure<T>(op, MatrixView<const T>(p), value, dp);
    const double unit = unit_of(op), n = static_cast<double>(cols);
    for (std::size_t r = 0; r < rows; ++r) {
      const double v = value[r];
      if (!report.expect(!std::isnan(v), r, "NaN")) continue;
      double least = 0, most = std::log(n) * unit;
      double alpha = 1;
      if constexpr (requires { op.alpha; }) alpha = op.alpha;
      if constexpr (std::is_same_v<Op, TsallisEntropy>) {
        most = (alpha == 1 ? std::log(n) : alpha == kInf ? 0 : -std::expm1((1 - alpha) * std::log(n)) / (alpha - 1)) * unit;
      }
      if constexpr (requires { op.order; }) alpha = op.order;
      if constexpr (std::is_same_v<Op, Perplexity> || std::is_same_v<Op, HillNumber>) least = 1, most = n;
      if constexpr (std::is_same_v<Op, Varentropy>) most = (1 + std::log(n) * std::log(n)) * unit * unit;
      // Near alpha = 1 powers magnify the error of a sum that is not 1.
      const double near = alpha == 1 ? 1 : std::max(1.0, 1 / std::abs(alpha - 1));
      const double slack = (sizeof(T) == 8 ? 1e-13 : 1e-6) * std::max(most, 0.0) +
                           off[r] * near * (2 + std::abs(std::log(n))) * (1 + most) * 4 * std::max(unit, 1.0);
      const double below = op.normalize || op.input == Input::scores ? 0 : 1e-14 + 4 * off[r] * near * (2 + std::log(n));
      report.expect(v >= least - below * std::max(unit, 1.0), r, fmt::format("below {}", least), v);
      report.expect(v <= most + slack + 1e-300, r, "above that of equal entries", v - most);
      bool numbers = true, finite = true;
      for (const T slope : std::as_const(dp).row(r))
        numbers &= !std::isnan(number(slope)), finite &= std::abs(number(slope)) < kInf;
      report.expect(numbers, r, "gradient is NaN");
      const double largest_unit = std::is_same_v<Op, Varentropy> ? unit * unit : unit;
      if (op.input == Input::scores && largest_unit < 1e3) report.expect(finite, r, "gradient in scores is infinite");
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    double v = 0;
    measure<T>(op, p.one(r), std::span(&v, 1), alone);
    report.expect(same_bits(v, value[r]), r, "other bits in a batch");
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(dp).row(r)), r, "other bits of the gradient in a batch");
  }
}

template <class T, class Op>
void soak_divergence(Random& random, Report& report, std::type_identity<Op>, std::size_t wanted) {
  while (report.rows() < wanted) {
    const auto [rows, cols] = shape_of_batch<T>(random);
    Op op = random_op<Op>(random, cols);
    std::vector<double> off, off_q, value(rows, -7), other(rows);
    const Rows<T> p = rows_of_input<T>(random, op, rows, cols, false, off);
    Op same = op;
    Rows<T> q = p;
    if (!random.chance(0.1)) {
      do q = rows_of_input<T>(random, same, rows, cols, false, off_q);
      while (same.input != op.input);
      if constexpr (requires { op.normalize; }) same.normalize = op.normalize = op.normalize || same.normalize;
    }
    const bool equal = q.data.size() == p.data.size() && same_bits<T>(p.data, q.data);
    report.next(rows, cols, [&](std::size_t r) {
      return fmt::format("{} {} and {}", text_of(op), text_of(p.row(r)), text_of(std::as_const(q).row(r)));
    });
    Rows<T> dp(rows, cols), dq(rows, cols);
    measure<T>(op, MatrixView<const T>(p), q, value, dp, dq);
    const double unit = unit_of(op);
    for (std::size_t r = 0; r < rows; ++r) {
      const double v = value[r];
      if (!report.expect(!std::isnan(v), r, "NaN")) continue;
      // Terms of entries that round to above 1 are negative.
      const bool cross = std::is_same_v<Op, CrossEntropy>;
      const double slack = cross && !op.normalize && op.input != Input::scores ? 1e-5 * std::max(unit, 1.0) : 0;
      report.expect(v >= -slack, r, "below 0", v);
      if (equal && !cross) report.expect(v == 0, r, "of equal rows not 0", v);
      double most = kInf;
      if constexpr (std::is_same_v<Op, JsDivergence>) most = std::log(2.0) * unit;
      if constexpr (std::is_same_v<Op, JsDistance>) most = std::sqrt(std::log(2.0) * unit);
      constexpr bool kRoot = std::is_same_v<Op, JsDistance> || std::is_same_v<Op, HellingerDistance>;
      if constexpr (std::is_same_v<Op, TotalVariation> || std::is_same_v<Op, HellingerDistance>) most = 1;
      const double rounding = kWide<T> || op.normalize || op.input == Input::scores ? 1e-13 : 1e-4;
      report.expect(v <= most * (1 + rounding), r, "above its largest value", v - most);
      if (v == kInf) continue;
      bool numbers = true, finite = true;
      for (const auto* slopes : {&dp, &dq}) {
        for (const T slope : slopes->row(r)) numbers &= !std::isnan(number(slope)), finite &= std::abs(number(slope)) < kInf;
      }
      report.expect(numbers, r, "gradient is NaN");
      // The root of a number near 0 is steep.
      if (op.input == Input::scores && unit < 1e3 && !kIsHalf<T> && !kRoot && v < 1e30)
        report.expect(finite, r, "gradient in scores is infinite");
    }
    constexpr bool kSymmetric = std::is_same_v<Op, JsDivergence> || std::is_same_v<Op, JsDistance> ||
                                std::is_same_v<Op, TotalVariation> || std::is_same_v<Op, HellingerDistance> ||
                                std::is_same_v<Op, JeffreysDivergence>;
    if constexpr (kSymmetric) {
      measure<T>(op, MatrixView<const T>(q), p, other);
      for (std::size_t r = 0; r < rows; ++r) {
        report.expect(other[r] == value[r] || std::abs(other[r] - value[r]) <= 1e-12 * value[r], r, "not symmetric",
                      other[r] - value[r]);
      }
    }
    const std::size_t r = random.below(rows);
    double v = 0;
    measure<T>(op, p.one(r), std::as_const(q).one(r), std::span(&v, 1));
    report.expect(same_bits(v, value[r]), r, "other bits in a batch");
  }
}

// Tables: all measures of one table, and the equations between them.
template <class T>
void soak_tables(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const std::size_t rows = 1 + random.below(random.chance(0.05) ? 60 : 9),
                      cols = 1 + random.below(random.chance(0.05) ? 60 : 9);
    JointEntropy joint = random_op<JointEntropy>(random, cols);
    std::vector<double> off;
    const Rows<T> p = rows_of_input<T>(random, joint, rows, cols, true, off);
    const double unit = joint.base ? 1 / std::log(*joint.base) : 1;
    report.next(1, rows * cols, [&](std::size_t) {
      return fmt::format("{} x {} {} {}", rows, cols, text_of(joint), text_of(std::span<const T>(p.data)));
    });
    Rows<T> dp(rows, cols);
    bool numbers = true;
    const auto value_of = [&](auto op) {
      op.base = joint.base, op.input = joint.input, op.normalize = joint.normalize;
      const double value = measure<T>(TableMeasure(op), MatrixView<const T>(p), dp);
      for (const T slope : dp.data) numbers &= !std::isnan(number(slope));
      return value;
    };
    const double h = value_of(joint), y_x = value_of(ConditionalEntropy{.given = Given::x}),
                 x_y = value_of(ConditionalEntropy{.given = Given::y}), i = value_of(MutualInformation{});
    if (!report.expect(!std::isnan(h + y_x + x_y + i), 0, "NaN")) continue;
    report.expect(numbers, 0, "gradient is NaN");
    const double x_count = static_cast<double>(rows), y_count = static_cast<double>(cols);
    const double slack = (1e-12 + 8 * off[0] * (1 + std::log(x_count * y_count))) * std::max(unit, 1.0);
    const double float_terms = slack + (kWide<T> ? 0 : 2e-6) * std::log(x_count * y_count) * unit;
    report.expect(h >= -slack && h <= std::log(x_count * y_count) * unit + float_terms, 0, "joint entropy out of range", h);
    report.expect(y_x >= -slack && y_x <= std::log(y_count) * unit + float_terms, 0, "H(Y|X) out of range", y_x);
    report.expect(x_y >= -slack && x_y <= std::log(x_count) * unit + float_terms, 0, "H(X|Y) out of range", x_y);
    report.expect(i >= 0 && i <= std::log(std::min(x_count, y_count)) * unit + float_terms, 0, "information out of range", i);
    report.expect_at_most(std::abs(h - (y_x + x_y + i)), 4 * float_terms, 0, "H(X,Y) is not H(Y|X) + H(X|Y) + I");
  }
}

template <class T>
void soak_entries(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const auto [rows, cols] = shape_of_batch<T>(random);
    SelfInformation self = random_op<SelfInformation>(random, cols);
    BinaryEntropy binary = random_op<BinaryEntropy>(random, cols);
    std::vector<double> off;
    const Rows<T> p = rows_of_input<T>(random, self, rows, cols, false, off);
    binary.input = self.input;
    const double unit = binary.base ? 1 / std::log(*binary.base) : 1;
    report.next(rows, cols,
                [&](std::size_t r) { return fmt::format("{}, {} {}", text_of(self), text_of(binary), text_of(p.row(r))); });
    Rows<T> value(rows, cols), dp(rows, cols), h(rows, cols), dh(rows, cols);
    const bool with_gradient = self.input != Input::scores && !self.normalize;
    measure<T>(self, MatrixView<const T>(p), value, with_gradient ? MatrixView<T>(dp) : MatrixView<T>());
    measure<T>(binary, MatrixView<const T>(p), h, dh);
    for (std::size_t r = 0; r < rows; ++r) {
      bool numbers = true, positive = true, bounded = true, slopes = true;
      for (std::size_t i = 0; i < cols; ++i) {
        const double surprise = number(value.row(r)[i]), coin = number(h.row(r)[i]);
        numbers &= !std::isnan(surprise) && !std::isnan(coin);
        positive &= surprise >= 0 && coin >= 0;
        const double most = std::log(2.0) * unit;
        bounded &= most > largest<T>() / 2 || coin <= most * (1 + 1e-7 + 2 * kEps<T>);
        slopes &= !std::isnan(number(dh.row(r)[i])) && (!with_gradient || !std::isnan(number(dp.row(r)[i])));
      }
      report.expect(numbers, r, "NaN");
      report.expect(positive, r, "below 0");
      report.expect(bounded, r, "binary entropy above log 2");
      report.expect(slopes, r, "gradient is NaN");
    }
  }
}

}  // namespace

void soak_measures(Soak& soak) {
  for_each_operation<Measure>([&]<class Op>(std::type_identity<Op> op) {
    soak.run<float, double, float16, bfloat16>(
        Described<Op>::kDescription.name,
        [&]<class T>(T, Random& random, Report& report) { soak_measure<T>(random, report, op, soak.rows()); });
  });
  for_each_operation<Divergence>([&]<class Op>(std::type_identity<Op> op) {
    soak.run<float, double, float16, bfloat16>(
        Described<Op>::kDescription.name,
        [&]<class T>(T, Random& random, Report& report) { soak_divergence<T>(random, report, op, soak.rows()); });
  });
  soak.run<float, double, float16, bfloat16>(
      "tables", [&]<class T>(T, Random& random, Report& report) { soak_tables<T>(random, report, soak.rows()); });
  soak.run<float, double, float16, bfloat16>(
      "entries", [&]<class T>(T, Random& random, Report& report) { soak_entries<T>(random, report, soak.rows()); });
}

}  // namespace isentropic

// Rows at random through every operation, with every parameter at random: what must hold for each of them.
//
// soak [ROWS [SEED [NAME]]]: ROWS for each operation and element type, of the operations whose name begins with NAME. Prints a
// line for each and what it found, with the shortest row that shows it; fails if there is any.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "entropic/entropic.h"
#include "tests/support/random.h"

namespace entropic {
namespace {

using support::largest;
using support::number;
using support::Random;
using support::random_op;
using support::to;

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
constexpr bool kWide = std::is_same_v<T, double>;
// Half a unit in the last place, relative, and half the smallest number.
template <class T>
constexpr double kEps = kWide<T>                     ? 0x1p-53
                        : sizeof(T) == 4             ? 0x1p-24
                        : std::is_same_v<T, float16> ? 0x1p-11
                                                     : 0x1p-8;
template <class T>
constexpr double kTiny = kWide<T>                     ? 0
                         : std::is_same_v<T, float16> ? 0x1p-25
                                                      : 0x1p-134;
template <class T>
constexpr std::string_view kTypeName = kWide<T>                     ? "double"
                                       : sizeof(T) == 4             ? "float"
                                       : std::is_same_v<T, float16> ? "float16"
                                                                    : "bfloat16";

// How far the sum of a distribution of T may be from 1.
template <class T>
double sum_bound(std::size_t n) {
  if (kWide<T>) return 1e-14 * std::max(1.0, std::log2(static_cast<double>(n)));
  return 1e-6 + (kIsHalf<T> ? kEps<T> + kTiny<T> * static_cast<double>(n) : 0);
}

// The parameters of an operation as text.
template <class Op>
std::string text_of(const Op& op) {
  std::string text;
  for_each_param<Op>([&](const auto& param) {
    const auto value = op.*param.member;
    using Value = std::remove_const_t<decltype(value)>;
    text += text.empty() ? "" : ", ";
    text += fmt::format("{} = ", param.name);
    if constexpr (std::is_enum_v<Value>) {
      text += param.names[static_cast<std::size_t>(value)];
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      text += value ? fmt::format("{}", *value) : "none";
    } else {
      text += fmt::format("{}", value);
    }
  });
  std::string map;
  if constexpr (requires { op.map; }) map = " of " + std::visit([](const auto& m) { return text_of(m); }, op.map);
  return fmt::format("{}({}){}", Op::kDescription.name, text, map);
}
std::string text_of(const auto& variant) requires requires { variant.index(); }
{
  return std::visit([](const auto& op) { return text_of(op); }, variant);
}

template <class T>
std::string text_of(std::span<const T> x) {
  std::vector<double> shown;
  for (std::size_t i = 0; i < std::min<std::size_t>(x.size(), 40); ++i) shown.push_back(number(x[i]));
  return fmt::format("{} numbers: {}{}", x.size(), fmt::join(shown, ", "), x.size() > shown.size() ? " ..." : "");
}

// What was found of one operation and type.
class Report {
 public:
  Report(std::string_view name, std::string_view type) : name_(name), type_(type) {}

  // `describe(row)` says what the next rows, of `cols` numbers, are.
  void next(std::size_t rows, std::size_t cols, std::function<std::string(std::size_t)> describe) {
    rows_ += rows;
    batch_ = rows, cols_ = cols;
    describe_ = std::move(describe);
    running = this;
    alarm(120);
  }
  // An endless loop, or nearly one.
  static void give_up(int) {
    fmt::print("{} {}: NOT DONE after two minutes:\n", running->name_, running->type_);
    for (std::size_t row = 0; row < running->batch_; ++row) fmt::print("  {}\n", running->describe_(row));
    std::fflush(stdout);
    std::_Exit(1);
  }
  std::size_t rows() const { return rows_; }

  bool expect(bool good, std::size_t row, std::string_view what) { return expect(good, row, what, 0); }
  bool expect(bool good, std::size_t row, std::string_view what, double got) {
    if (good) return true;
    Fault& fault = faults_[std::string(what)];
    if (fault.count++ == 0 || cols_ < fault.cols) fault.cols = cols_, fault.row = fmt::format("{}: {}", got, describe_(row));
    return false;
  }
  void expect_at_most(double got, double most, std::size_t row, std::string_view what) { expect(got <= most, row, what, got); }

  // A sum that should be 1.
  void sum(double error, double bound, std::size_t row) {
    worst_sum_ = std::max(worst_sum_, error);
    expect_at_most(error, bound, row, "sum is not 1");
  }

  // Whether nothing was found.
  bool print() const {
    fmt::print("{} {}: {} rows", name_, type_, rows_);
    if (worst_sum_ >= 0) fmt::print(", sums within {:.1e} of 1", worst_sum_);
    fmt::print("{}", faults_.empty() ? ", nothing found\n" : "\n");
    for (const auto& [what, fault] : faults_) fmt::print("  FOUND {} times: {}; {}\n", fault.count, what, fault.row);
    std::fflush(stdout);
    return faults_.empty();
  }

 private:
  struct Fault {
    std::size_t count = 0, cols = 0;
    std::string row;
  };
  std::string name_, type_;
  std::size_t rows_ = 0, batch_ = 0, cols_ = 0;
  static inline const Report* running = nullptr;
  double worst_sum_ = -1;
  std::function<std::string(std::size_t)> describe_;
  std::map<std::string, Fault> faults_;
};

// Rows of equal length, perhaps with gaps between them, which nothing may write into.
template <class T>
struct Rows {
  std::size_t rows, cols, stride;
  std::vector<T> data;

  Rows(std::size_t rows, std::size_t cols, std::size_t stride)
      : rows(rows), cols(cols), stride(stride), data(rows * stride, to<T>(-7)) {}
  Rows(std::size_t rows, std::size_t cols) : Rows(rows, cols, cols) {}
  operator MatrixView<T>() { return {data.data(), rows, cols, stride}; }
  operator MatrixView<const T>() const { return {data.data(), rows, cols, stride}; }
  std::span<T> row(std::size_t r) { return {data.data() + r * stride, cols}; }
  std::span<const T> row(std::size_t r) const { return {data.data() + r * stride, cols}; }
  MatrixView<const T> one(std::size_t r) const { return {data.data() + r * stride, 1, cols}; }

  bool gaps_untouched() const {
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = cols; i < stride; ++i) {
        if (number(data[r * stride + i]) != -7) return false;
      }
    }
    return true;
  }
};

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
bool same_bits(double a, double b) { return same_bits<double>({&a, 1}, {&b, 1}); }

template <class T>
Rows<T> rows_of_scores(Random& random, std::size_t longest) {
  const std::size_t cols = support::random_length(random, longest),
                    rows = 1 + random.below(std::max<std::size_t>(8192 / cols, 1));
  Rows<T> x(std::min<std::size_t>(rows, 40), cols, cols + (random.chance(0.3) ? random.below(9) : 0));
  for (std::size_t r = 0; r < x.rows; ++r) support::random_scores(random, x.row(r).data(), cols);
  return x;
}

template <class T>
Rows<T> rows_of_gradients(Random& random, const Rows<T>& x) {
  Rows<T> g(x.rows, x.cols, x.stride);
  for (std::size_t r = 0; r < x.rows; ++r) {
    const double scale = random.chance(0.7) ? 1 : random.power_of_10(-3, 3);
    for (T& entry : g.row(r)) entry = to<T>(scale * random.normal());
  }
  return g;
}

template <class T>
double sum_of(std::span<const T> row) {
  long double sum = 0;
  for (const T entry : row) sum += number(entry);
  return static_cast<double>(sum);
}

template <class T>
double largest_of(std::span<const T> row) {
  double most = 0;
  for (const T entry : row) most = std::max(most, std::abs(number(entry)));
  return most;
}

// The scores of a row that are not -inf.
struct Present {
  double low = kInf, high = -kInf;
  std::size_t count = 0, ties = 0;  // ties: how many are the largest
};
template <class T>
Present present(std::span<const T> x) {
  Present of;
  for (const T entry : x) {
    const double score = number(entry);
    if (score == -kInf) continue;
    of.ties = score > of.high ? 1 : of.ties + (score == of.high);
    of.low = std::min(of.low, score), of.high = std::max(of.high, score);
    ++of.count;
  }
  return of;
}

template <class T>
double entropy_of(std::span<const T> p) {
  long double h = 0;
  for (const T entry : p) {
    const long double mass = number(entry);
    if (mass > 0) h -= mass * std::log(mass);
  }
  return static_cast<double>(h);
}

// What every map's row, and everything that is a distribution, must be. False: it is none, and needs no further look.
template <class T>
bool check_distribution(Report& report, std::span<const T> x, std::span<const T> p, std::size_t r) {
  bool numbers = true, positive = true, masked = true;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double mass = number(p[i]);
    numbers &= mass == mass;
    positive &= mass >= 0 && !std::signbit(mass);
    masked &= number(x[i]) != -kInf || mass == 0;
  }
  if (!report.expect(numbers, r, "NaN")) return false;
  report.expect(positive, r, "below 0");
  report.expect(masked, r, "mass at -inf");
  report.sum(std::abs(sum_of(p) - 1), sum_bound<T>(p.size()), r);
  return true;
}

template <class T>
void check_order(Report& report, const Description& description, std::span<const T> x, std::span<const T> p, std::size_t r) {
  if (!description.order) return;
  static thread_local std::vector<std::size_t> order;
  order.resize(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    const double a = number(x[i]), b = number(x[j]);
    return a != b ? a < b : i > j;
  });
  bool rises = true, ties = true;
  for (std::size_t k = 1; k < order.size(); ++k) {
    const double low = number(p[order[k - 1]]), high = number(p[order[k]]);
    rises &= low <= high;
    ties &= description.ties_by_index || number(x[order[k - 1]]) != number(x[order[k]]) || low == high;
  }
  report.expect(rises, r, "order broken");
  report.expect(ties, r, "equal scores, different mass");
}

// A gradient whose entries sum to 0, computed from numbers of the size of `unit`.
template <class T>
void check_gradient(Report& report, std::span<const T> dx, bool sums_to_0, double unit, std::size_t r) {
  double size = 0;
  bool numbers = true;
  for (const T entry : dx) {
    size += std::abs(number(entry));
    numbers &= !std::isnan(number(entry));
  }
  if (!report.expect(numbers, r, "gradient is NaN")) return;
  if (unit * 64 < largest<T>()) report.expect(size < kInf, r, "gradient is infinite");
  if (!sums_to_0 || size == kInf) return;
  const double n = static_cast<double>(dx.size()), sum = std::abs(sum_of(dx));
  const double eps = std::max(kEps<T>, kIsHalf<T> ? kEps<float> : 0);
  report.expect_at_most(
      sum, unit * (sum_bound<float>(1) * !kWide<T> + sum_bound<T>(dx.size()) + n * eps) + 16 * eps * size + n * kTiny<T>, r,
      "gradient's sum is not 0");
}

// Maps.

// The size of what a map's gradient is made of, for a g of 1.
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
        } else if constexpr (Op::kDescription.entropy_target) {
          const double inf = std::numeric_limits<double>::infinity();
          double target = inf;
          if constexpr (requires { op.entropy; }) {
            target = op.entropy ? *op.entropy : std::log(*op.perplexity);
          } else {
            double h = 0;
            measure(Entropy{.input = op.input, .normalize = true}, MatrixView<const double>(x.data(), 1, x.size()),
                    std::span(&h, 1));
            target = op.min_entropy && h < *op.min_entropy   ? *op.min_entropy
                     : op.max_entropy && h > *op.max_entropy ? *op.max_entropy
                                                             : -1;
            if (target < 0) return 1.0;
          }
          double gamma = 0, reached = 0;
          GammaStatus status = {};
          gamma_for_entropy(MatrixView<const double>(x.data(), 1, x.size()), std::span(&gamma, 1), std::span(&reached, 1),
                            std::span(&status, 1), {.entropy = std::max(target, 0.0)});
          return status == GammaStatus::kOk ? std::max(gamma, 1.0) : 1.0;
        } else {
          return 1.0;
        }
      },
      map);
}

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
        if constexpr (Op::kDescription.entropy_target) {
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
      check_order(report, description, xs, ps, r);
      check_entropy_target(report, one, xs, ps, r);
      std::vector<double> wide, masses;
      for (const T score : xs) wide.push_back(number(score));
      for (const T mass : ps) masses.push_back(number(mass));
      double size = 0;
      for (std::size_t i = 0; i < cols; ++i) size = std::max(size, std::isnan(number(gs[i])) ? 0 : std::abs(number(gs[i])));
      // In probabilities q it is that in log q over q: of any size.
      const bool shift = description.shift && input_of(map) != Input::probs;
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

    if (description.shift && rows > 1) {  // an exact shift: multiples of 1/16, moved by 1024
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
    log_softmax<T>(x, y, op);
    log_softmax_vjp<T>(x, y, g, dx, op);
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
      // Each is off by its own rounding.
      const double size = std::log(static_cast<double>(cols)) + 8;
      report.expect_at_most(static_cast<double>(std::abs(sum - 1)), sum_bound<T>(cols) + 4 * kEps<T> * size, r, "sum is not 1");
      check_order(report, LogSoftmax::kDescription, x.row(r), ys, r);
      const double unit = largest_of(g.row(r)) / op.temperature;
      check_gradient(report, std::as_const(dx).row(r), false, unit * static_cast<double>(cols), r);
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    log_softmax<T>(x.one(r), alone, op);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(y).row(r)), r, "other bits in a batch");
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
    logsumexp<T>(x, y, op);
    logsumexp_vjp<T>(x, y, g, dx, op);
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
    logsumexp<T>(x.one(r), alone, op);
    report.expect(same_bits(number(alone.data[0]), number(y.data[r])), r, "other bits in a batch");
  }
}

// Losses.

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
    const bool soft = kind != TargetKind::kClass && (kind != TargetKind::kClassOrDistribution || random.chance(0.5));
    Rows<T> target(rows, cols), dx(rows, cols, x.stride);
    std::vector<std::int64_t> classes(rows);
    std::vector<double> value(rows, -7);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const T> xs = std::as_const(x).row(r);
      do {
        classes[r] = static_cast<std::int64_t>(random.below(cols));
      } while (number(xs[static_cast<std::size_t>(classes[r])]) == -kInf);
      if (kind == TargetKind::kScores) {
        support::random_scores(random, target.row(r).data(), cols);
        bool any = false;
        for (std::size_t i = 0; i < cols; ++i) {  // what the student does not know
          if (number(xs[i]) == -kInf) target.row(r)[i] = xs[i];
          any |= number(target.row(r)[i]) != -kInf;
        }
        if (!any) target.row(r)[static_cast<std::size_t>(classes[r])] = to<T>(0);
      } else if (kind == TargetKind::kLabels) {
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
      if (measurable && temperature < 1e100 && kind != TargetKind::kScores) report.expect(std::abs(v) < kInf, r, "infinite", v);
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
      bool zero_sum = kind != TargetKind::kClass && kind != TargetKind::kLabels;
      double unit = temperature;
      if constexpr (kIsHalf<T>) zero_sum &= !soft || kind == TargetKind::kScores;  // its sum is not quite 1
      std::visit(
          [&](const auto& o) {
            if constexpr (requires { o.map; }) {
              if (surrogate) return;
              zero_sum &= description_of(o.map).shift && !description_of(o.map).entropy_target;
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
              if (description_of(o.map).entropy_target) unit = largest<T>();
            }
            if constexpr (requires { o.scale; }) unit = o.scale * 2e6;
          },
          op);
      check_gradient(report, slopes, zero_sum && (measurable || kind != TargetKind::kScores), unit, r);
      const bool differences =
          zero_sum && kind == TargetKind::kClassOrDistribution && !std::holds_alternative<SmoothAccuracyLoss>(op);
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

// Measures.

// Rows as the measure wants them, and how far the sum of each is from 1.
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

template <class T>
std::pair<std::size_t, std::size_t> shape_of_batch(Random& random) {
  const std::size_t cols = support::random_length(random, 20000);
  return {std::min<std::size_t>(1 + random.below(std::max<std::size_t>(8192 / cols, 1)), 40), cols};
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
    const double unit = op.base ? 1 / std::log(*op.base) : 1, n = static_cast<double>(cols);
    for (std::size_t r = 0; r < rows; ++r) {
      const double v = value[r];
      if (!report.expect(!std::isnan(v), r, "NaN")) continue;
      double least = 0, most = std::log(n) * unit;
      double alpha = 1;
      if constexpr (requires { op.alpha; }) alpha = op.alpha;
      if constexpr (std::is_same_v<Op, TsallisEntropy>) {
        most = (alpha == 1 ? std::log(n) : alpha == kInf ? 0 : -std::expm1((1 - alpha) * std::log(n)) / (alpha - 1)) * unit;
      }
      if constexpr (std::is_same_v<Op, Perplexity>) least = 1, most = n;
      // Of a sum that is not 1 the powers near alpha = 1 make what they will.
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
      if (op.input == Input::scores && unit < 1e3) report.expect(finite, r, "gradient in scores is infinite");
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
    const double unit = op.base ? 1 / std::log(*op.base) : 1;
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
      const double rounding = kWide<T> || op.normalize || op.input == Input::scores ? 1e-13 : 1e-4;
      report.expect(v <= most * (1 + rounding), r, "above its largest value", v - most);
      if (v == kInf) continue;
      bool numbers = true, finite = true;
      for (const auto* slopes : {&dp, &dq}) {
        for (const T slope : slopes->row(r)) numbers &= !std::isnan(number(slope)), finite &= std::abs(number(slope)) < kInf;
      }
      report.expect(numbers, r, "gradient is NaN");
      // The root of a number near 0 is steep.
      if (op.input == Input::scores && unit < 1e3 && !kIsHalf<T> && !std::is_same_v<Op, JsDistance> && v < 1e30)
        report.expect(finite, r, "gradient in scores is infinite");
    }
    if constexpr (!std::is_same_v<Op, CrossEntropy> && !std::is_same_v<Op, KlDivergence>) {
      measure<T>(op, MatrixView<const T>(q), p, other);
      for (std::size_t r = 0; r < rows; ++r) {
        report.expect(std::abs(other[r] - value[r]) <= 1e-12 * value[r], r, "not symmetric", other[r] - value[r]);
      }
    }
    const std::size_t r = random.below(rows);
    double v = 0;
    measure<T>(op, p.one(r), std::as_const(q).one(r), std::span(&v, 1));
    report.expect(same_bits(v, value[r]), r, "other bits in a batch");
  }
}

// Tables: all measures of one, as they hang together.
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

// Entropy control.

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
    gamma_for_entropy<T>(x, gamma, h, status, op);
    for (std::size_t r = 0; r < rows; ++r) {
      const Present of = present(x.row(r));
      const double goal = op.entropy ? *op.entropy : std::log(*op.perplexity);
      const double low = std::log(static_cast<double>(of.ties)), high = std::log(static_cast<double>(of.count));
      report.expect(status[r] != GammaStatus::kInvalid, r, "invalid");
      if (!report.expect(!std::isnan(gamma[r]) && !std::isnan(h[r]), r, "NaN")) continue;
      report.expect(gamma[r] >= 0, r, "gamma below 0", gamma[r]);
      const double slack = 1e-12 * std::max(1.0, high);
      report.expect(h[r] >= low - slack && h[r] <= high + slack, r, "entropy out of reach", h[r]);
      if (limited) {
        report.expect(status[r] == GammaStatus::kConstant || (gamma[r] >= op.min_gamma && gamma[r] <= op.max_gamma), r,
                      "gamma out of its range", gamma[r]);
        continue;
      }
      if (status[r] == GammaStatus::kOk)
        report.expect_at_most(std::abs(h[r] - goal), 1e-12 * std::max(1.0, goal), r, "target missed");
      if (goal > low + slack && goal < high - slack)
        report.expect(status[r] == GammaStatus::kOk, r, "in reach, and not ok", static_cast<double>(status[r]));
    }
    const std::size_t r = random.below(rows);
    double g = 0, e = 0;
    GammaStatus s = {};
    gamma_for_entropy<T>(x.one(r), std::span(&g, 1), std::span(&e, 1), std::span(&s, 1), op);
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
    power_transform<T>(p, q, op);
    for (std::size_t r = 0; r < rows; ++r) {
      if (!check_distribution(report, p.row(r), std::as_const(q).row(r), r)) continue;
      check_order(report, Softmax::kDescription, p.row(r), std::as_const(q).row(r), r);
      bool zeros = true;
      for (std::size_t i = 0; i < cols; ++i) zeros &= p.row(r)[i] != 0 || q.row(r)[i] == 0;
      report.expect(zeros, r, "mass where there was none");
    }
    const std::size_t r = random.below(rows);
    Rows<T> alone(1, cols);
    power_transform<T>(p.one(r), alone, op);
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
    normalize_density<T>(p, w, q, result, op);
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
      if (of.status == GammaStatus::kOk) report.expect_at_most(std::abs(of.entropy - op.entropy), slack, r, "target missed");
      if (op.entropy > of.least + slack && op.entropy < of.most - slack)
        report.expect(of.status == GammaStatus::kOk, r, "in reach, and not ok");
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
    const Normalized of = normalize_joint<T>(p, table, op);
    if (!check_distribution<T>(report, p.data, table.data, 0)) continue;
    const double goal = op.joint      ? *op.joint
                        : op.marginal ? *op.marginal
                                      : *op.conditional,
                 slack = 1e-12 * std::max(1.0, goal);
    report.expect(of.gamma >= 0, 0, "gamma below 0", of.gamma);
    if (of.status == GammaStatus::kOk) report.expect_at_most(std::abs(of.entropy - goal), slack, 0, "target missed");
    if (goal > of.least + slack && goal < of.most - slack)
      report.expect(of.status == GammaStatus::kOk, 0, "in reach, and not ok");
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
    mean_field_entropy<T>(x, estimate, op);
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

// Sampling.

template <class T>
void soak_sampling(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const Rows<T> x = rows_of_scores<T>(random, 100000);
    const std::size_t rows = x.rows, cols = x.cols, count = 1 + random.below(3);
    std::vector<Step> steps;
    for (std::size_t k = random.below(5); k-- > 0;)
      steps.push_back(support::random_of<Step>(random, random.below(std::variant_size_v<Step>), cols));
    const Noise noise = {random.bits(), random.bits(), random.bits()};
    const Sampler sampler(steps, noise.seed);
    const Sample plain = random_op<Sample>(random, cols);
    GumbelSoftmax relaxed = random_op<GumbelSoftmax>(random, cols);
    relaxed.hard = random.chance(0.3);
    report.next(rows, cols, [&](std::size_t r) {
      std::string text;
      for (const Step& step : steps) text += text_of(step) + " ";
      return fmt::format("seed {} stream {} position {}, {}, {}, {}{}", noise.seed, noise.stream + r, noise.position,
                         text_of(plain), text_of(relaxed), text, text_of(x.row(r)));
    });
    Rows<T> p(rows, cols), q(rows, cols);
    Rows<std::int64_t> chain(rows, count), direct(rows, count);
    sampler.probs<T>(x, p);
    sampler.sample<T>(MatrixView<const T>(x), chain, noise);
    sample<T>(MatrixView<const T>(x), direct, plain, noise);
    gumbel_softmax<T>(x, q, relaxed, noise);
    // Of scores that a step has made equal the next cuts by index; one step alone keeps the order.
    const bool ordered = steps.size() < 2 && std::none_of(steps.begin(), steps.end(), [](const Step& step) {
                           return std::holds_alternative<step::TypicalP>(step);
                         });
    Description law = TopKSoftmax::kDescription;
    law.order = ordered;
    for (std::size_t r = 0; r < rows; ++r) {
      if (!check_distribution(report, x.row(r), std::as_const(p).row(r), r)) continue;
      check_order(report, law, x.row(r), std::as_const(p).row(r), r);
      check_distribution(report, x.row(r), std::as_const(q).row(r), r);
      for (const std::int64_t index : chain.row(r)) {
        const bool valid = index >= 0 && index < static_cast<std::int64_t>(cols);
        if (report.expect(valid, r, "drew no index", static_cast<double>(index)))
          report.expect(p.row(r)[static_cast<std::size_t>(index)] > 0, r, "drew what has no mass", static_cast<double>(index));
      }
      for (const std::int64_t index : direct.row(r)) {
        const bool valid = index >= 0 && index < static_cast<std::int64_t>(cols);
        if (report.expect(valid, r, "drew no index", static_cast<double>(index)))
          report.expect(x.row(r)[static_cast<std::size_t>(index)] > -kInf, r, "drew -inf", static_cast<double>(index));
      }
      if (relaxed.hard) report.expect(largest_of(std::as_const(q).row(r)) == 1, r, "hard, and no 1");
    }
    const std::size_t r = random.below(rows);
    Rows<std::int64_t> one(1, count);
    Rows<T> alone(1, cols);
    Noise own = noise;
    own.stream += r;
    sampler.sample<T>(x.one(r), one, own);
    report.expect(std::ranges::equal(one.row(0), chain.row(r)), r, "other draws in a batch");
    sampler.probs<T>(x.one(r), alone);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(p).row(r)), r, "other bits in a batch");
    gumbel_softmax<T>(x.one(r), alone, relaxed, own);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(q).row(r)), r, "other relaxed draw in a batch");
  }
}

// Attention.

template <class T>
struct Heads {
  std::vector<T> data;
  HeadsView<T> view;

  Heads(std::size_t batch, std::size_t heads, std::size_t rows, std::size_t cols)
      : data(batch * heads * rows * cols, T(-7)), view(data.data(), batch, heads, rows, cols) {}
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;
  void fill(Random& random, double scale) {
    for (T& entry : data) entry = static_cast<T>(scale * random.normal());
  }
  bool finite() const {
    return std::all_of(data.begin(), data.end(), [](T entry) { return std::isfinite(entry); });
  }
};

template <class T>
void soak_attention(Random& random, Report& report, std::size_t wanted, bool linear) {
  while (report.rows() < wanted) {
    const std::size_t batch = 1 + random.below(2), kv_heads = 1 + random.below(2), heads = kv_heads * (1 + random.below(2));
    const std::size_t n = 1 + random.below(random.chance(0.1) ? 300 : 40), d = 1 + random.below(20), dv = 1 + random.below(20);
    const bool causal = random.chance(0.4);
    const std::size_t m = 1 + random.below(causal ? n : 40);
    Heads<T> q(batch, heads, m, d), k(batch, kv_heads, n, d), v(batch, kv_heads, n, dv), out(batch, heads, m, dv),
        g(batch, heads, m, dv);
    Heads<T> dq(batch, heads, m, d), dk(batch, kv_heads, n, d), dvalue(batch, kv_heads, n, dv), weights(batch, heads, m, n);
    const double scale = random.power_of_10(-3, linear ? 1 : 2);
    q.fill(random, scale), k.fill(random, random.power_of_10(-3, 1)), v.fill(random, 1), g.fill(random, 1);
    std::size_t map_index = random.below(std::variant_size_v<Map>);
    if (std::holds_alternative<PerturbMax>(support::random_of<Map>(random, map_index, 1)) && !random.chance(0.1)) map_index = 0;
    Attention op = random_op<Attention>(random, n);
    op.map = support::random_of<Map>(random, map_index, n);
    op.causal = causal;
    if (std::abs(op.number) > 10) op.number = 10;
    if (op.kappa && *op.kappa > 1e3) op.kappa = 1;
    // Gradients of maps that are steep are large.
    const double steep = unit_of_gradient(op.map, std::vector<double>(1, 0.0), {});
    if (steep > 1e3 || steep < 1e-6) continue;
    LinearAttention simple = {.scale = {}, .causal = causal};
    std::vector<char> visible(n);
    for (char& seen : visible) seen = random.chance(0.8);
    const bool masked = !linear && random.chance(0.4);
    AttentionMask<T> mask;
    if (masked) mask.visible = {reinterpret_cast<const bool*>(visible.data()), 0, 0, 0, 1};
    report.next(batch * heads * m, m * n, [&](std::size_t) {
      return fmt::format("batch {}, heads {} of {}, queries {}, keys {}, d {}, dv {}, causal {}, masked {}, scale {}: {}",
                         batch, heads, kv_heads, m, n, d, dv, causal, masked, scale, linear ? "" : text_of(op));
    });
    std::vector<T> h(batch * heads * m);
    if (linear) {
      linear_attention<T>(q.view, k.view, v.view, out.view, simple);
      linear_attention_vjp<T>(q.view, k.view, v.view, g.view, dq.view, dk.view, dvalue.view, simple);
    } else {
      attention<T>(q.view, k.view, v.view, out.view, op, mask, {}, {weights.view, h});
      attention_vjp<T>(q.view, k.view, v.view, g.view, dq.view, dk.view, dvalue.view, op, mask);
    }
    report.expect(out.finite(), 0, "not finite");
    const bool steep_map = !linear && std::visit(
                                          [](const auto& o) {
                                            if constexpr (requires { o.alpha; }) return o.alpha > 2;
                                            return o.kDescription.entropy_target;
                                          },
                                          op.map);
    const auto numbers = [](const Heads<T>& heads) {
      return std::none_of(heads.data.begin(), heads.data.end(), [](T entry) { return std::isnan(entry); });
    };
    report.expect(steep_map ? numbers(dq) && numbers(dk) && numbers(dvalue) : dq.finite() && dk.finite() && dvalue.finite(), 0,
                  "gradient is not finite");
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t i = 0; i < m; ++i) {
          const std::size_t at = (b * heads + head) * m + i, seen_up_to = causal ? i + n - m + 1 : n,
                            kv = head / (heads / kv_heads);
          std::size_t seen = 0;
          for (std::size_t j = 0; j < seen_up_to; ++j) seen += !masked || visible[j];
          for (std::size_t c = 0; c < dv; ++c) {  // between the least and the largest value that is seen
            double low = seen == 0 ? 0 : kInf, high = seen == 0 ? 0 : -kInf;
            for (std::size_t j = 0; j < seen_up_to; ++j) {
              if (masked && !visible[j]) continue;
              low = std::min<double>(low, v.view.row(b, kv, j)[c]), high = std::max<double>(high, v.view.row(b, kv, j)[c]);
            }
            const double got = out.view.row(b, head, i)[c],
                         slack = seen == 0 ? 0 : 6 * (sum_bound<T>(n) + 64 * kEps<T>)*(linear ? 1e3 : 1);
            report.expect(got >= low - slack && got <= high + slack, 0, "out of the range of values", got);
          }
          if (linear) continue;
          const std::span<const T> row(weights.view.row(b, head, i), n);
          const double sum = sum_of(row);
          if (seen > 0) report.sum(std::abs(sum - 1), sum_bound<T>(n), 0);
          if (seen == 0) report.expect(sum == 0 && h[at] == 0, 0, "a query that sees nothing has weights", sum);
          report.expect(h[at] >= 0 && h[at] <= std::log(static_cast<double>(std::max<std::size_t>(seen, 1))) * (1 + 1e-5) +
                                                   (kWide<T> ? 1e-12 : 1e-6),
                        0, "entropy out of range", h[at]);
        }
      }
    }
  }
}

// Transport.

template <class T>
std::vector<T> masses(Random& random, std::size_t n) {
  const std::vector<double> p = support::random_distribution(random, n);
  return {p.begin(), p.end()};
}

template <class T>
void soak_transport(Random& random, Report& report, std::size_t wanted) {
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
    Sinkhorn entropic = {
        .epsilon = scale * random.power_of_10(-2, 1), .tolerance = 1e-6, .max_iterations = 1000, .mass_tolerance = {}};
    report.next(1, n * m, [&](std::size_t) {
      return fmt::format("epsilon {}, a {}, b {}, cost {}", entropic.epsilon, text_of(std::span<const T>(a)),
                         text_of(std::span<const T>(b)), text_of(std::span<const T>(cost)));
    });
    TransportResult exact;
    const MatrixView<const T> costs(cost.data(), n, m);
    optimal_transport<T>({a.data(), 1, n}, {b.data(), 1, m}, costs, {plan.data(), n, m}, MatrixView<T>(f.data(), 1, n),
                         MatrixView<T>(g.data(), 1, m), std::span(&exact, 1), {.mass_tolerance = 1e-3});
    report.expect(exact.status != TransportStatus::kPivotLimit, 0, "pivot limit");
    report.expect(forbidden > 0 || exact.status == TransportStatus::kOptimal, 0, "infeasible without forbidden arcs");
    double mass_a = 0, mass_b = 0;
    for (const T mass : a) mass_a += mass;
    for (const T mass : b) mass_b += mass;
    if (exact.status == TransportStatus::kOptimal) {
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
      sinkhorn<T>({a.data(), 1, n}, {b.data(), 1, m}, costs, {plan.data(), n, m}, MatrixView<T>(f.data(), 1, n),
                  MatrixView<T>(g.data(), 1, m), std::span(&soft, 1), [&] {
                    Sinkhorn o = entropic;
                    o.mass_tolerance = 1e-3;
                    return o;
                  }());
      bool good = true;
      for (const T mass : plan) good &= mass >= 0;
      if (exact.status == TransportStatus::kOptimal) {
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
    wasserstein_1d<T>(MatrixView<const T>(u), MatrixView<const T>(v), wa, wb, w, op, du, dv);
    wasserstein_1d<T>(MatrixView<const T>(v), MatrixView<const T>(u), wb, wa, back, op);
    wasserstein_1d<T>(MatrixView<const T>(u), MatrixView<const T>(u), wa, wa, self, op);
    wasserstein_1d<T>(MatrixView<const T>(u), MatrixView<const T>(v), wa, wb, mean);
    for (std::size_t r = 0; r < rows; ++r) {
      const Present x = present(std::as_const(u).row(r)), y = present(std::as_const(v).row(r));
      const double most = std::max(x.high, y.high) - std::min(x.low, y.low);
      if (!report.expect(!std::isnan(w[r]), r, "NaN")) continue;
      report.expect(w[r] >= 0, r, "below 0", w[r]);
      report.expect(w[r] <= most * (1 + 1e-14), r, "above the range of the samples", w[r] / most);
      report.expect(self[r] == 0, r, "to itself not 0", self[r]);
      report.expect(w[r] >= mean[r] * (1 - 1e-9) - 1e-300 || mean[r] == kInf, r, "below that of order 1", w[r] / mean[r]);
      // The rounding of weights, of which a high order makes much.
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
    const double w = wasserstein<T>(xs, ys, a, b, {.order = order}), self = wasserstein<T>(xs, xs, a, a, {.order = order});
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
    const double s = sinkhorn_divergence<T>(xs, ys, a, b, smooth);
    report.expect(s >= 0 && s < kInf, 0, "sinkhorn divergence below 0", s);
    report.expect(sinkhorn_divergence<T>(xs, xs, a, a, smooth) == 0, 0, "sinkhorn divergence to itself");
  }
}

// Calibration.

template <class T>
void soak_calibration(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const std::size_t rows = 1 + random.below(60), cols = 1 + random.below(20);
    Rows<T> x(rows, cols), p(rows, cols);
    std::vector<std::int64_t> labels(rows);
    const double scale = random.power_of_10(-3, 3);
    for (std::size_t r = 0; r < rows; ++r) {
      for (T& score : x.row(r)) score = static_cast<T>(scale * random.normal());
      labels[r] = static_cast<std::int64_t>(random.below(cols));
      if (random.chance(0.5)) x.row(r)[static_cast<std::size_t>(labels[r])] += static_cast<T>(scale);
    }
    apply<T>(Softmax{}, x, p);
    report.next(rows, cols, [&](std::size_t r) {
      return fmt::format("{} rows, row {} label {} {}", rows, r, labels[r], text_of(std::as_const(x).row(r)));
    });
    const MatrixView<const T> view(x);
    const FittedTemperature fitted = fit_temperature<T>(view, labels);
    report.expect(fitted.temperature >= kLeastTemperature && fitted.temperature <= kLargestTemperature, 0,
                  "temperature out of range", fitted.temperature);
    const double most = std::log(static_cast<double>(cols)), h = fit_target_entropy<T>(view, labels),
                 mean = match_entropy<T>(view);
    report.expect(h >= 0 && h <= most, 0, "target entropy out of range", h);
    report.expect(mean >= 0 && mean <= most * (1 + 1e-14), 0, "mean entropy out of range", mean);
    ExpectedCalibrationError bins = random_op<ExpectedCalibrationError>(random, cols);
    bins.sum_tolerance = {};
    const double error = expected_calibration_error<T>(MatrixView<const T>(p), labels, bins);
    report.expect(error >= 0 && error <= 1 + 1e-6, 0, "calibration error out of range", error);
  }
}

// Calls soak(random, report) of the operation `name` for the types, each with random numbers that depend on no other.
class Soak {
 public:
  Soak(std::size_t rows, std::uint64_t seed, std::string_view only) : rows_(rows), seed_(seed), only_(only) {}

  template <class... T, class F>
  void run(std::string_view name, F&& soak) {
    if (name.starts_with(only_)) (one<T>(name, soak), ...);
  }
  bool clean() const { return clean_; }
  std::size_t rows() const { return rows_; }

 private:
  template <class T, class F>
  void one(std::string_view name, F& soak) {
    std::vector<std::uint64_t> key = {seed_};
    for (const char c : fmt::format("{} {}", name, kTypeName<T>)) key.push_back(static_cast<std::uint64_t>(c));
    std::seed_seq seeds(key.begin(), key.end());
    Random random{std::mt19937_64(seeds)};
    Report report(name, kTypeName<T>);
    soak(T{}, random, report);
    clean_ &= report.print();
  }

  std::size_t rows_;
  std::uint64_t seed_;
  std::string_view only_;
  bool clean_ = true;
};

bool soak_everything(std::size_t rows, std::uint64_t seed, std::string_view only) {
  Soak soak(rows, seed, only);
  std::size_t index = 0;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    soak.run<float, double, float16, bfloat16>(
        Op::kDescription.name, [&]<class T>(T, Random& random, Report& report) { soak_map<T>(random, report, index, rows); });
    ++index;
  });
  soak.run<float, double, float16, bfloat16>(
      "log_softmax", [&]<class T>(T, Random& random, Report& report) { soak_log_softmax<T>(random, report, rows); });
  soak.run<float, double, float16, bfloat16>(
      "logsumexp", [&]<class T>(T, Random& random, Report& report) { soak_logsumexp<T>(random, report, rows); });
  index = 0;
  for_each_operation<Loss>([&]<class Op>(std::type_identity<Op>) {
    soak.run<float, double, float16, bfloat16>(
        Op::kDescription.name, [&]<class T>(T, Random& random, Report& report) { soak_loss<T>(random, report, index, rows); });
    ++index;
  });
  for_each_operation<Measure>([&]<class Op>(std::type_identity<Op> op) {
    soak.run<float, double, float16, bfloat16>(
        Op::kDescription.name, [&]<class T>(T, Random& random, Report& report) { soak_measure<T>(random, report, op, rows); });
  });
  for_each_operation<Divergence>([&]<class Op>(std::type_identity<Op> op) {
    soak.run<float, double, float16, bfloat16>(Op::kDescription.name, [&]<class T>(T, Random& random, Report& report) {
      soak_divergence<T>(random, report, op, rows);
    });
  });
  soak.run<float, double, float16, bfloat16>(
      "tables", [&]<class T>(T, Random& random, Report& report) { soak_tables<T>(random, report, rows); });
  soak.run<float, double, float16, bfloat16>(
      "entries", [&]<class T>(T, Random& random, Report& report) { soak_entries<T>(random, report, rows); });
  soak.run<float, double>("gamma_for_entropy",
                          [&]<class T>(T, Random& random, Report& report) { soak_gamma<T>(random, report, rows); });
  soak.run<float, double>("power_transform",
                          [&]<class T>(T, Random& random, Report& report) { soak_power<T>(random, report, rows); });
  soak.run<float, double>("normalize_density",
                          [&]<class T>(T, Random& random, Report& report) { soak_density<T>(random, report, rows); });
  soak.run<float, double>("normalize_joint",
                          [&]<class T>(T, Random& random, Report& report) { soak_joint<T>(random, report, rows); });
  soak.run<float, double>("mean_field_entropy",
                          [&]<class T>(T, Random& random, Report& report) { soak_mean_field<T>(random, report, rows); });
  soak.run<float, double>("sampling",
                          [&]<class T>(T, Random& random, Report& report) { soak_sampling<T>(random, report, rows); });
  soak.run<float, double>("attention",
                          [&]<class T>(T, Random& random, Report& report) { soak_attention<T>(random, report, rows, false); });
  soak.run<float, double>("linear_attention",
                          [&]<class T>(T, Random& random, Report& report) { soak_attention<T>(random, report, rows, true); });
  soak.run<float, double>("wasserstein_1d",
                          [&]<class T>(T, Random& random, Report& report) { soak_wasserstein<T>(random, report, rows / 10); });
  // Problems, of which each takes as long as many rows.
  soak.run<float, double>("transport",
                          [&]<class T>(T, Random& random, Report& report) { soak_transport<T>(random, report, rows / 100); });
  soak.run<float, double>("points",
                          [&]<class T>(T, Random& random, Report& report) { soak_points<T>(random, report, rows / 100); });
  soak.run<float, double>("calibration",
                          [&]<class T>(T, Random& random, Report& report) { soak_calibration<T>(random, report, rows / 10); });
  return soak.clean();
}

}  // namespace
}  // namespace entropic

int main(int argc, char** argv) {
  std::signal(SIGALRM, entropic::Report::give_up);
  const std::size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  return entropic::soak_everything(rows, seed, argc > 3 ? argv[3] : "") ? 0 : 1;
}

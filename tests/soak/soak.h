// The part that all families of soak share: a report, rows, and the properties of every distribution and gradient.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "isentropic/isentropic.h"
#include "tests/support/random.h"

namespace isentropic {

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

// The largest distance from 1 of the sum of a distribution of T.
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
    } else if constexpr (std::is_same_v<Value, Map>) {
      text += std::visit([](const auto& map) { return text_of(map); }, value);
    } else {
      text += fmt::format("{}", value);
    }
  });
  return fmt::format("{}({})", Described<Op>::kDescription.name, text);
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

// The findings for one operation and type.
class Report {
 public:
  Report(std::string_view name, std::string_view type) : name_(name), type_(type) {}

  // `describe(row)` describes the next rows, of `cols` numbers.
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

  // Prints the findings, and returns whether there were none.
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

// Rows of equal length, perhaps with gaps between them, into which nothing may be written.
template <class T>
struct Rows {
  std::size_t rows, cols, stride;
  std::vector<T> data;

  Rows(std::size_t row_count, std::size_t col_count, std::size_t row_stride)
      : rows(row_count), cols(col_count), stride(row_stride), data(rows * stride, to<T>(-7)) {}
  Rows(std::size_t row_count, std::size_t col_count) : Rows(row_count, col_count, col_count) {}
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
inline bool same_bits(double a, double b) { return same_bits<double>({&a, 1}, {&b, 1}); }

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

// Checks the properties of every distribution, such as a map's row. Returns false if it is none, and needs no further checks.
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
void check_order(Report& report, const Laws& laws, std::span<const T> x, std::span<const T> p, std::size_t r) {
  if (!laws.order) return;
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
    ties &= laws.ties_by_index || number(x[order[k - 1]]) != number(x[order[k]]) || low == high;
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

template <class T>
std::pair<std::size_t, std::size_t> shape_of_batch(Random& random) {
  const std::size_t cols = support::random_length(random, 20000);
  return {std::min<std::size_t>(1 + random.below(std::max<std::size_t>(8192 / cols, 1)), 40), cols};
}

// From maps.cc: the size of the terms of a map's gradient, for a g of 1.
double unit_of_gradient(const Map& map, std::span<const double> x, std::span<const double> p);

// Calls soak(random, report) of the operation `name` for each type, with independent random numbers.
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

// One file for each family.
void soak_maps(Soak& soak);
void soak_losses(Soak& soak);
void soak_measures(Soak& soak);
void soak_entropy_control(Soak& soak);
void soak_sampling(Soak& soak);
void soak_attention(Soak& soak);
void soak_transport(Soak& soak);
void soak_calibration(Soak& soak);

}  // namespace isentropic

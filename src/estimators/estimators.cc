// Estimators of entropy and mutual information from counts.

#include "isentropic/estimators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/check.h"
#include "src/estimators/nsb.h"
#include "src/estimators/special.h"
#include "src/half.h"
#include "src/parallel.h"
#include "src/per_thread.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// n log(n / N) / N, without cancellation where n is nearly N.
double log_term(double n, double total) {
  const double rest = total - n;
  return n / total * (rest < n ? std::log1p(-rest / total) : std::log(n / total));
}

// sum of term(count) over the classes that were seen.
template <class Term>
double sum_of(const Counted& counted, const Term& term) {
  double sum = 0;
  for (const auto& [count, classes] : counted.distinct) sum += classes * term(count);
  return sum;
}

double plugin(const Counted& counted) {
  return 0 - sum_of(counted, [&](double n) { return log_term(n, counted.total); });
}

// N plugin - (N - 1) / N sum of plugin without one draw = g(N) - sum n g(n) / N, g(n) = n log n - (n - 1) log(n - 1).
double jackknife(const Counted& counted) {
  if (counted.total == 1) return kNaN;
  const auto g = [](double n) { return n == 1 ? 0 : std::log(n) - (n - 1) * std::log1p(-1 / n); };
  return g(counted.total) - sum_of(counted, [&](double n) { return n / counted.total * g(n); });
}

double grassberger(const Counted& counted) {
  const auto g = [](double n) {
    const double half = (psi((n + 1) / 2) - psi(n / 2)) / 2;
    return psi(n) + (std::fmod(n, 2) == 0 ? half : -half);
  };
  return std::log(counted.total) - sum_of(counted, [&](double n) { return n / counted.total * g(n); });
}

double chao_shen(const Counted& counted) {
  const double total = counted.total;
  double once = counted.distinct[0].count == 1 ? counted.distinct[0].classes : 0;
  if (once == total) once -= 1;
  const double coverage = 1 - once / total;
  return 0 - sum_of(counted, [&](double n) {
           const double p = coverage * n / total, log = once == 0 ? log_term(n, total) / p : std::log(p);
           return p * log / -std::expm1(total * std::log1p(-p));
         });
}

// The share of the uniform law in frequencies that are shrunk to it.
double shrinkage(const Counted& counted, double classes) {
  const double total = counted.total, uniform = 1 / classes;
  const double squares = sum_of(counted, [&](double n) { return n / total * (n / total); });
  const double apart = sum_of(counted, [&](double n) { return (n / total - uniform) * (n / total - uniform); }) +
                       (classes - counted.seen) * uniform * uniform;
  const double share = (1 - squares) / ((total - 1) * apart);
  return total == 1 || apart == 0 ? 1 : std::clamp(share, 0.0, 1.0);
}

double james_stein(const Counted& counted, double classes) {
  const double share = shrinkage(counted, classes), uniform = share / classes;
  const auto term = [](double p) { return p > 0 ? p * std::log(p) : 0; };
  return 0 - (sum_of(counted, [&](double n) { return term(uniform + (1 - share) * n / counted.total); }) +
              (classes - counted.seen) * term(uniform));
}

struct Estimate {
  double value = kNaN, deviation = kNaN;
};

Estimate estimate(Estimator estimator, const Counted& counted, double classes) {
  if (counted.total == 0) return {};
  switch (estimator) {
    case Estimator::plugin:
      return {plugin(counted)};
    case Estimator::miller_madow:
      return {plugin(counted) + (counted.seen - 1) / (2 * counted.total)};
    case Estimator::jackknife:
      return {jackknife(counted)};
    case Estimator::grassberger:
      return {grassberger(counted)};
    case Estimator::chao_shen:
      return {chao_shen(counted)};
    case Estimator::james_stein:
      return {james_stein(counted, classes)};
    case Estimator::nsb: {
      if (classes == 1) return {0, 0};
      const auto [mean, deviation] = Nsb(counted, classes)();
      return {mean, deviation};
    }
  }
  return {};
}

// Sorts counts into distinct ones. Small ones, which are most, are counted in a table.
class Counter {
 public:
  void add(double count) {
    if (count == 0) return;
    total_ += count;
    seen_ += 1;
    if (count < kSmall) {
      ++small_[static_cast<std::size_t>(count)];
      largest_ = std::max(largest_, static_cast<std::size_t>(count));
    } else {
      large_.push_back(count);
    }
  }

  // Returns what was added, valid until the next call of add, and forgets it.
  Counted take() {
    distinct_.clear();
    for (std::size_t n = 1; n <= largest_; ++n) {
      if (small_[n] > 0) distinct_.push_back({static_cast<double>(n), static_cast<double>(small_[n])});
      small_[n] = 0;
    }
    std::sort(large_.begin(), large_.end());
    for (const double count : large_) {
      if (distinct_.empty() || distinct_.back().count != count) distinct_.push_back({count, 0});
      distinct_.back().classes += 1;
    }
    const Counted counted = {total_, seen_, distinct_};
    total_ = seen_ = 0, largest_ = 0;
    large_.clear();
    return counted;
  }

 private:
  static constexpr std::size_t kSmall = 1024;
  double total_ = 0, seen_ = 0;
  std::size_t largest_ = 0;
  std::vector<std::uint32_t> small_ = std::vector<std::uint32_t>(kSmall);
  std::vector<double> large_;
  std::vector<Distinct> distinct_;
};

template <class T>
double to_double(T number) {
  return static_cast<double>(static_cast<Working<T>>(number));
}

template <class T>
void check_counts(std::string_view operation, std::string_view name, MatrixView<const T> counts, std::string_view place) {
  for (std::size_t r = 0; r < counts.rows; ++r) {
    for (std::size_t i = 0; i < counts.cols; ++i) {
      const double n = to_double(counts.row(r)[i]);
      if (n >= 0 && n <= std::numeric_limits<double>::max() && n == std::floor(n)) continue;
      throw RowError(operation, name, formatted("{} must be whole numbers of at least 0, got {}", name, n), r, {}, i, place);
    }
  }
}

double log_base(const std::optional<double>& base) { return base ? std::log(*base) : 1; }

}  // namespace

template <class T>
void entropy_of_counts(const EntropyOfCounts& op, MatrixView<const T> counts, std::span<double> value,
                       std::span<double> deviation) {
  constexpr std::string_view kName = Described<EntropyOfCounts>::kDescription.name;
  check_params(op);
  check_layout(kName, "counts", counts);
  check_size(kName, "value", value.size(), counts.rows);
  if (!deviation.empty()) check_size(kName, "deviation", deviation.size(), counts.rows);
  check_counts(kName, "counts", counts, " at entry ");
  const auto most = static_cast<double>(counts.cols);
  if (op.classes && *op.classes < most) {
    for (std::size_t r = 0; r < counts.rows; ++r) {
      const T* const row = counts.row(r);
      const auto seen = std::count_if(row, row + counts.cols, [](T n) { return to_double(n) > 0; });
      if (static_cast<double>(seen) > *op.classes) {
        throw RowError(kName, "classes", fmt::format("classes must be at least the {} seen, got {}", seen, *op.classes), r);
      }
    }
  }
  const double unit = log_base(op.base);
  const std::size_t cost = op.estimator == Estimator::nsb ? 100 : 4;
  parallel_rows(counts.rows, cost * counts.cols, [&](std::size_t begin, std::size_t end) {
    auto& counter = per_thread<Counter>();
    for (std::size_t r = begin; r < end; ++r) {
      const T* const row = counts.row(r);
      for (std::size_t i = 0; i < counts.cols; ++i) counter.add(to_double(row[i]));
      const Counted counted = counter.take();
      const Estimate found = estimate(op.estimator, counted, op.classes.value_or(most));
      value[r] = found.value / unit;
      if (!deviation.empty()) deviation[r] = found.deviation / unit;
    }
  });
}

template <class T>
double mutual_information_of_counts(const MutualInformationOfCounts& op, MatrixView<const T> table) {
  constexpr std::string_view kName = Described<MutualInformationOfCounts>::kDescription.name;
  check_params(op);
  check_layout(kName, "table", table);
  check_counts(kName, "table", table, " at column ");
  const std::size_t rows = table.rows, cols = table.cols;
  const std::size_t cells = rows * cols;
  const CallMemory<Counter> of_call(Arena::room<double>(rows) + Arena::room<double>(cols) + Arena::room<double>(cells));
  Arena memory = of_call.arena();
  const std::span x(memory.take<double>(rows), rows), y(memory.take<double>(cols), cols),
      all(memory.take<double>(cells), cells);
  std::ranges::fill(x, 0.0);
  std::ranges::fill(y, 0.0);
  auto& counter = per_thread<Counter>();
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const double n = all[r * cols + c] = to_double(table.row(r)[c]);
      x[r] += n, y[c] += n;
      counter.add(n);
    }
  }
  const Counted joint = counter.take();
  if (joint.total == 0) return kNaN;
  const double unit = log_base(op.base);
  if (op.estimator == Estimator::james_stein) {
    const double share = shrinkage(joint, static_cast<double>(all.size()));
    for (double& n : all) n = share / static_cast<double>(all.size()) + (1 - share) * n / joint.total;
    return measure(TableMeasure(MutualInformation{.normalize = true}), MatrixView<const double>(all.data(), rows, cols)) / unit;
  }
  // The counter reuses its memory, so each entropy is computed before the next is counted.
  const auto entropy = [&](std::span<const double> counts) {
    for (const double n : counts) counter.add(n);
    return estimate(op.estimator, counter.take(), static_cast<double>(counts.size())).value;
  };
  const double of_x = entropy(x), of_y = entropy(y), of_both = entropy(all);
  return (of_x + of_y - of_both) / unit;
}

#define ISENTROPIC_COUNTS_OF(T)                                                                                       \
  template void entropy_of_counts(const EntropyOfCounts&, MatrixView<const T>, std::span<double>, std::span<double>); \
  template double mutual_information_of_counts(const MutualInformationOfCounts&, MatrixView<const T>);
ISENTROPIC_COUNTS_OF(float)
ISENTROPIC_COUNTS_OF(double)
ISENTROPIC_COUNTS_OF(float16)
ISENTROPIC_COUNTS_OF(bfloat16)
ISENTROPIC_COUNTS_OF(std::int64_t)
#undef ISENTROPIC_COUNTS_OF

}  // namespace isentropic::inline ISENTROPIC_ABI

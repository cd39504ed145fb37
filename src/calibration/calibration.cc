// Fits to labels, a reference or a length: one-dimensional minimisation over blocks of rows, with softmax and gamma from the
// library's own maps.

#include "isentropic/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "isentropic/entropy_control.h"
#include "isentropic/maps.h"
#include "src/calibration/labels.h"
#include "src/calibration/scale.h"
#include "src/calibration/search.h"
#include "src/check.h"
#include "src/parallel.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Mean and variance under p of numbers z, which may be -inf where p = 0.
struct Moments {
  double mean, variance;
};

template <class Z>
Moments moments(const double* p, std::size_t n, const Z& z) {
  const double mean = sum_of(n, [&](std::size_t i) { return p[i] == 0 ? 0 : p[i] * z(i); });
  const double variance = sum_of(n, [&](std::size_t i) {
    const double d = z(i) - mean;
    return p[i] == 0 ? 0 : p[i] * d * d;
  });
  return {mean, variance};
}

template <class T>
std::vector<RowFacts> facts_of(MatrixView<const T> x) {
  std::vector<RowFacts> result(x.rows);
  parallel_rows(x.rows, 2 * x.cols, [&](std::size_t begin, std::size_t end) {
    constexpr T kLowest = -std::numeric_limits<T>::infinity();
    for (std::size_t r = begin; r < end; ++r) {
      const T* row = x.row(r);
      T max = kLowest;
      bool nan = false;
      std::size_t ties = 0, present = 0;
      for (std::size_t i = 0; i < x.cols; ++i) {
        max = row[i] > max ? row[i] : max;
        nan |= row[i] != row[i];
      }
      for (std::size_t i = 0; i < x.cols; ++i) {
        ties += row[i] == max;
        present += row[i] > kLowest;
      }
      result[r] = {nan ? std::numeric_limits<double>::quiet_NaN() : max, ties, present, 0};
    }
  });
  return result;
}

// Labelled rows in the memory of the host, and blocks of them in float64.
template <class T>
class Labelled {
 public:
  Labelled(std::string_view name, MatrixView<const T> x, std::span<const std::int64_t> labels,
           std::span<const double> sample_weight)
      : x_(x), rows_(checked(name, x, labels, sample_weight)) {
    make_block();
  }

  const LabelledRows& rows() const { return rows_; }

  Slopes slopes(double beta) {
    return sum<Slopes>(
        1 / beta, [](std::size_t, MatrixView<double>) {},
        [&](std::size_t r, const double* p) -> Slopes {
          const auto [mean, variance] = moments(p, x_.cols, row(r));
          const double label = rows_.facts(r).label;
          return {mean - label, variance, -mean - label};
        });
  }

  // With u = gamma z, d log p_y / d gamma = z_y - E z and d gamma / dH = -1 / (gamma Var z) give d loss / dH = (u_y - E u) /
  // Var u, which does not depend on the scale of the scores.
  LossOfTarget losses(double entropy) {
    std::vector<double> gamma, reached;
    std::vector<GammaStatus> status;
    std::size_t first = 0;
    const auto prepare = [&](std::size_t begin, MatrixView<double> block) {
      first = begin;
      gamma.resize(block.rows), reached.resize(block.rows), status.resize(block.rows);
      gamma_for_entropy({.entropy = entropy}, MatrixView<const double>(block), gamma, reached, status);
      for_rows(block.rows, [&](std::size_t r) {
        // If gamma is 0 or infinite, p is not used.
        const double factor = std::isinf(gamma[r]) || gamma[r] == 0 ? 1 : gamma[r];
        for (std::size_t i = 0; i < x_.cols; ++i) block.row(r)[i] *= factor;
      });
    };
    return sum<LossOfTarget>(1, prepare, [&](std::size_t r, const double* p) -> LossOfTarget {
      const double scale = gamma[r - first];
      const bool uniform = scale == 0 || status[r - first] == GammaStatus::constant;
      const bool at_top = rows_.facts(r).label == 0;
      // The distribution does not move with the target: uniform over all scores, or over the largest.
      if (uniform || (std::isinf(scale) && at_top)) return {reached[r - first], 0};
      if (std::isinf(scale)) return {kInfinity, -kInfinity};
      const double label = scale * rows_.facts(r).label;
      const auto [mean, variance] = moments(p, x_.cols, [scale, z = row(r)](std::size_t i) { return scale * z(i); });
      const double largest = *std::max_element(p, p + x_.cols);
      // Var u = 0: the probabilities below the top have underflowed.
      const double slope = variance > 0 ? (label - mean) / variance : at_top ? 0 : -kInfinity;
      return {-(label + std::log(largest)), slope};
    });
  }

  std::optional<Labelled> survey() const {
    constexpr std::size_t kRows = 4096;
    if (rows_.size() <= 2 * kRows) return {};
    return Labelled(x_, rows_.sample(kRows));
  }

 private:
  static constexpr std::size_t kBlock = 1 << 17;  // numbers: enough for several threads, few enough for the cache

  Labelled(MatrixView<const T> x, LabelledRows rows) : x_(x), rows_(std::move(rows)) { make_block(); }

  static LabelledRows checked(std::string_view name, MatrixView<const T> x, std::span<const std::int64_t> labels,
                              std::span<const double> sample_weight) {
    const SampleWeights weights = check_labels(name, "x", x, labels, sample_weight);
    std::vector<RowFacts> facts = facts_of(x);
    for (std::size_t r = 0; r < x.rows; ++r) {
      if (weights[r] > 0) facts[r].label = Row(x.row(r), facts[r].max)(static_cast<std::size_t>(labels[r]));
    }
    return {name, x.cols, weights, labels, std::move(facts)};
  }

  void make_block() {
    block_rows_ = std::clamp<std::size_t>(kBlock / x_.cols, 1, rows_.size());
    block_.resize(block_rows_ * x_.cols);
  }

  // The scores of a row minus the largest. If that could overflow, everything is halved: this changes no entropy, and at such
  // distances every temperature of the range gives the same result.
  struct Row {
    Row(const T* scores, double largest) : x(scores), half(largest > 1e290 ? 0.5 : 1), max(half * largest) {}
    double operator()(std::size_t i) const { return half * static_cast<double>(x[i]) - max; }
    const T* x;
    double half, max;
  };
  Row row(std::size_t r) const { return {x_.row(rows_.at(r)), rows_.facts(r).max}; }

  // The sum over all rows of weight times term(r, p of the row), where p is the softmax at this temperature of the scores that
  // prepare(first row, block) puts into a block. The sum adds rows in their order, within each block first.
  template <class Sum, class Prepare, class Term>
  Sum sum(double temperature, const Prepare& prepare, const Term& term) {
    Sum total{};
    std::vector<Sum> terms(block_rows_);
    for (std::size_t begin = 0; begin < rows_.size(); begin += block_rows_) {
      const std::size_t count = std::min(block_rows_, rows_.size() - begin);
      const MatrixView<double> block(block_.data(), count, x_.cols);
      for_rows(count, [&](std::size_t r) {
        const Row z = row(begin + r);
        for (std::size_t i = 0; i < x_.cols; ++i) block.row(r)[i] = z(i);
      });
      prepare(begin, block);
      apply(Softmax{.temperature = temperature}, block, block);
      for_rows(count, [&](std::size_t r) { terms[r] = term(begin + r, block.row(r)); });
      Sum part{};
      for (std::size_t r = 0; r < count; ++r) part += terms[r].times(rows_.weight(begin + r));
      total += part;
    }
    return total;
  }

  template <class Work>
  void for_rows(std::size_t count, const Work& work) const {
    parallel_rows(count, x_.cols, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) work(r);
    });
  }

  MatrixView<const T> x_;
  LabelledRows rows_;
  std::size_t block_rows_ = 0;
  std::vector<double> block_;
};

}  // namespace

template <class T>
FittedTemperature fit_temperature(MatrixView<const T> x, std::span<const std::int64_t> labels,
                                  std::span<const double> sample_weight) {
  Labelled<T> data("fit_temperature", x, labels, sample_weight);
  return find_temperature(data);
}

template <class T>
double fit_target_entropy(MatrixView<const T> x, std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  Labelled<T> data("fit_target_entropy", x, labels, sample_weight);
  return find_target_entropy(data);
}

template <class T>
double match_entropy(MatrixView<const T> x_reference, std::span<const double> sample_weight) {
  const MatrixView<const T>& x = x_reference;
  check_layout("match_entropy", "x_reference", x);
  const SampleWeights weights("match_entropy", "x_reference", x.rows, sample_weight);
  const std::vector<RowFacts> facts = facts_of(x);
  for (std::size_t r = 0; r < x.rows; ++r) {
    if (weights[r] == 0) continue;
    if (std::isnan(facts[r].max)) fail_in_row("match_entropy", "x_reference", r, "scores must not be NaN, got one");
    if (facts[r].max == -kInfinity)
      fail_in_row("match_entropy", "x_reference", r, "scores must not all be -inf, got nothing else");
  }
  // H = log sum exp(z) - E z with z = x - max x; the sum is 1 / max p of softmax.
  std::vector<double> entropies(x.rows);
  parallel_rows(x.rows, 4 * x.cols, [&](std::size_t begin, std::size_t end) {
    std::vector<double> p(x.cols);
    for (std::size_t r = begin; r < end; ++r) {
      if (weights[r] == 0) continue;
      if (facts[r].max == kInfinity) {
        entropies[r] = std::log(static_cast<double>(facts[r].ties));
        continue;
      }
      const auto z = [&](std::size_t i) { return static_cast<double>(x.row(r)[i]) - facts[r].max; };
      for (std::size_t i = 0; i < x.cols; ++i) p[i] = z(i);
      const MatrixView<double> row(p.data(), 1, x.cols);
      apply(Softmax{}, row, row);
      const double log_sum = -std::log(*std::max_element(p.begin(), p.end()));
      entropies[r] = std::max(0.0, log_sum - moments(p.data(), x.cols, z).mean);
    }
  });
  return sum_of(x.rows, [&](std::size_t r) { return weights[r] * entropies[r]; }) /
         sum_of(x.rows, [&](std::size_t r) { return weights[r]; });
}

double entropy_invariant_scale(const EntropyInvariantScale& options, double n, double d) {
  double scale = 0;
  entropy_invariant_scale(options, {&n, 1}, d, {&scale, 1});
  return scale;
}

void entropy_invariant_scale(const EntropyInvariantScale& options, std::span<const double> n, double d,
                             std::span<double> scale) {
  check_params(options);
  if (!(d > 0 && d < kInfinity)) fail("entropy_invariant_scale: d must be above 0 and finite, got {}", d);
  if (scale.size() != n.size()) {
    fail("entropy_invariant_scale: scale must have the size of n, {}, got {}", n.size(), scale.size());
  }
  for (const double length : n) {
    if (!(length >= 1 && length < kInfinity)) {
      fail("entropy_invariant_scale: n must be at least 1 and finite, got {}", length);
    }
  }
  for (std::size_t i = 0; i < n.size(); ++i) scale[i] = scale_of_length(n[i], d, options);
}

template FittedTemperature fit_temperature(MatrixView<const float>, std::span<const std::int64_t>, std::span<const double>);
template double fit_target_entropy(MatrixView<const float>, std::span<const std::int64_t>, std::span<const double>);
template double match_entropy(MatrixView<const float>, std::span<const double>);
template FittedTemperature fit_temperature(MatrixView<const double>, std::span<const std::int64_t>, std::span<const double>);
template double fit_target_entropy(MatrixView<const double>, std::span<const std::int64_t>, std::span<const double>);
template double match_entropy(MatrixView<const double>, std::span<const double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

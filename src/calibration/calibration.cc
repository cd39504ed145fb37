// Fits to labels, a reference or a length: one-dimensional minimisation over blocks of rows, with softmax and gamma from the
// library's own maps.

#include "entropic/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "entropic/entropy_control.h"
#include "entropic/maps.h"
#include "src/calibration/labels.h"
#include "src/calibration/scale.h"
#include "src/check.h"
#include "src/parallel.h"

namespace entropic::inline ENTROPIC_ABI {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

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

// Properties of a row that do not depend on the temperature.
struct Top {
  double max = -kInfinity;
  bool nan = false;
  std::size_t ties = 0;     // entries that are the maximum
  std::size_t present = 0;  // entries above -inf
};

template <class T>
std::vector<Top> tops(MatrixView<const T> x) {
  std::vector<Top> result(x.rows);
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
      result[r] = {max, nan, ties, present};
    }
  });
  return result;
}

// Scores and their labels, all with finite loss; and blocks of them in float64.
template <class T>
class Labelled {
 public:
  Labelled(std::string_view name, MatrixView<const T> x, std::span<const std::int64_t> labels,
           std::span<const double> sample_weight)
      : x_(x), labels_(labels), weights_(check_labels(name, "x", x, labels, sample_weight)) {
    tops_ = tops(x);
    for (std::size_t r = 0; r < x.rows; ++r) {
      if (weights_[r] > 0) chosen_.push_back(r);
    }
    for (const std::size_t r : chosen_) {
      if (tops_[r].nan) fail_in_row(name, "x", r, "scores must not be NaN, got one");
      if (tops_[r].max == kInfinity) fail_in_row(name, "x", r, "scores must be finite or -inf, got +inf");
      if (x.row(r)[labels[r]] == -std::numeric_limits<T>::infinity()) {
        fail_in_row(name, "labels", r, "labels must be classes with a score above -inf, otherwise the loss is infinite, got {}",
                    labels[r]);
      }
    }
    make_block();
  }

  // A sample of the rows, evenly spread: it uses multiples of the golden ratio, which match no period of the rows.
  Labelled sample(std::size_t count) const {
    Labelled part = *this;
    part.chosen_.clear();
    for (std::size_t k = 0; k < count; ++k) {
      const double turn = static_cast<double>(k) * std::numbers::phi;
      part.chosen_.push_back(chosen_[static_cast<std::size_t>((turn - std::floor(turn)) * static_cast<double>(rows()))]);
    }
    part.make_block();
    return part;
  }

  std::size_t rows() const { return chosen_.size(); }
  std::size_t cols() const { return x_.cols; }
  bool constant() const {
    return std::ranges::all_of(chosen_, [&](std::size_t r) { return tops_[r].ties == tops_[r].present; });
  }
  bool all_right() const {
    for (std::size_t r = 0; r < rows(); ++r) {
      if (label_score(r) < 0) return false;
    }
    return true;
  }

  // The entropies at which the loss may have a kink. A row stops following the target where it is uniform over its largest
  // scores or over all. If k scores are far above the others, it almost stops at log k. If there are very many such entropies,
  // only some are returned.
  std::vector<double> kinks() const {
    std::vector<std::size_t> counts;
    for (std::size_t k = 1; k <= std::min<std::size_t>(16, x_.cols); ++k) counts.push_back(k);
    for (const std::size_t r : chosen_) counts.push_back(tops_[r].ties), counts.push_back(tops_[r].present);
    std::ranges::sort(counts);
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    std::vector<double> result;
    const std::size_t every = counts.size() / 64 + 1;
    for (std::size_t i = 0; i < counts.size(); i += every) result.push_back(std::log(static_cast<double>(counts[i])));
    return result;
  }

  // The scores of a row minus the largest. If that could overflow, everything is halved: this changes no entropy, and at such
  // distances every temperature of the range gives the same result.
  struct Row {
    const T* x;
    double half, max;
    double operator()(std::size_t i) const { return half * static_cast<double>(x[i]) - max; }
  };
  Row row(std::size_t r) const {
    const double max = tops_[chosen_[r]].max, half = max > 1e290 ? 0.5 : 1;
    return {x_.row(chosen_[r]), half, half * max};
  }
  double label_score(std::size_t r) const { return row(r)(static_cast<std::size_t>(labels_[chosen_[r]])); }

  // The sum over all rows of weight times term(r, p of the row), where p is the softmax at this temperature of the scores that
  // prepare(first row, block) puts into a block. The sum adds rows in their order, within each block first.
  template <class Sum, class Prepare, class Term>
  Sum sum(double temperature, const Prepare& prepare, const Term& term) {
    Sum total{};
    std::vector<Sum> terms(block_rows_);
    for (std::size_t begin = 0; begin < rows(); begin += block_rows_) {
      const std::size_t count = std::min(block_rows_, rows() - begin);
      const MatrixView<double> block(block_.data(), count, x_.cols);
      for_rows(count, [&](std::size_t r) {
        const Row z = row(begin + r);
        for (std::size_t i = 0; i < x_.cols; ++i) block.row(r)[i] = z(i);
      });
      prepare(begin, block);
      apply(Softmax{.temperature = temperature}, block, block);
      for_rows(count, [&](std::size_t r) { terms[r] = term(begin + r, block.row(r)); });
      Sum part{};
      for (std::size_t r = 0; r < count; ++r) part += terms[r].times(weights_[chosen_[begin + r]]);
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

  double mean(double sum) const {
    double total = 0;
    for (const std::size_t r : chosen_) total += weights_[r];
    return sum / total;
  }

 private:
  static constexpr std::size_t kBlock = 1 << 17;  // numbers: enough for several threads, few enough for the cache

  void make_block() {
    block_rows_ = std::clamp<std::size_t>(kBlock / x_.cols, 1, rows());
    block_.resize(block_rows_ * x_.cols);
  }

  MatrixView<const T> x_;
  std::span<const std::int64_t> labels_;
  SampleWeights weights_;
  std::vector<Top> tops_;
  std::vector<std::size_t> chosen_;  // the rows that count
  std::size_t block_rows_ = 0;
  std::vector<double> block_;
};

// The loss as a function of the inverse temperature beta = 1/T: sums over rows of its first two derivatives, E z - z_y and Var
// z, and of the size of the terms in the first.
struct Slopes {
  double first = 0, second = 0, size = 0;
  Slopes& operator+=(const Slopes& other) {
    first += other.first, second += other.second, size += other.size;
    return *this;
  }
  Slopes times(double weight) const { return {weight * first, weight * second, weight * size}; }
};

template <class T>
Slopes slopes_at(Labelled<T>& data, double beta) {
  return data.template sum<Slopes>(
      1 / beta, [](std::size_t, MatrixView<double>) {},
      [&](std::size_t r, const double* p) -> Slopes {
        const auto [mean, variance] = moments(p, data.cols(), data.row(r));
        const double label = data.label_score(r);
        return {mean - label, variance, -mean - label};
      });
}

// Sums over rows of the loss and of its derivative in the target entropy.
struct LossOfTarget {
  double loss = 0, slope = 0;
  LossOfTarget& operator+=(const LossOfTarget& other) {
    loss += other.loss, slope += other.slope;
    return *this;
  }
  LossOfTarget times(double weight) const { return {weight * loss, weight * slope}; }
};

struct Point {
  double entropy, loss, slope;
};

// With u = gamma z, d log p_y / d gamma = z_y - E z and d gamma / dH = -1 / (gamma Var z) give d loss / dH = (u_y - E u) / Var
// u, which does not depend on the scale of the scores.
template <class T>
Point point_at(Labelled<T>& data, double entropy) {
  std::vector<double> gamma, reached;
  std::vector<GammaStatus> status;
  std::size_t first = 0;
  const auto prepare = [&](std::size_t begin, MatrixView<double> block) {
    first = begin;
    gamma.resize(block.rows), reached.resize(block.rows), status.resize(block.rows);
    gamma_for_entropy({.entropy = entropy}, MatrixView<const double>(block), gamma, reached, status);
    data.for_rows(block.rows, [&](std::size_t r) {
      // If gamma is 0 or infinite, p is not used.
      const double factor = std::isinf(gamma[r]) || gamma[r] == 0 ? 1 : gamma[r];
      for (std::size_t i = 0; i < data.cols(); ++i) block.row(r)[i] *= factor;
    });
  };
  const auto sum = data.template sum<LossOfTarget>(1, prepare, [&](std::size_t r, const double* p) -> LossOfTarget {
    const double scale = gamma[r - first];
    const bool uniform = scale == 0 || status[r - first] == GammaStatus::constant;
    const bool at_top = data.label_score(r) == 0;
    // The distribution does not move with the target: uniform over all scores, or over the largest.
    if (uniform || (std::isinf(scale) && at_top)) return {reached[r - first], 0};
    if (std::isinf(scale)) return {kInfinity, -kInfinity};
    const double label = scale * data.label_score(r);
    const auto [mean, variance] = moments(p, data.cols(), [scale, z = data.row(r)](std::size_t i) { return scale * z(i); });
    const double largest = *std::max_element(p, p + data.cols());
    // Var u = 0: the probabilities below the top have underflowed.
    const double slope = variance > 0 ? (label - mean) / variance : at_top ? 0 : -kInfinity;
    return {-(label + std::log(largest)), slope};
  });
  return {entropy, data.mean(sum.loss), data.mean(sum.slope)};
}

// Number of rows in the survey of the loss at a hundred entropies.
constexpr std::size_t kSurveyRows = 4096;

// Whether a has the smaller loss or, at equal loss, the larger entropy.
bool better(const Point& a, const Point& b) { return a.loss < b.loss || (a.loss == b.loss && a.entropy > b.entropy); }

// The point between low and high where the slope turns from not positive to positive, within the tolerance: by inverse
// quadratic interpolation if three points allow it, otherwise by bisection (Chandrupatla 1997).
template <class At>
Point turning_point(const At& at, const Point& low, const Point& high, double tolerance) {
  Point a = high, b = low, c = low;
  double share = 0.5;
  for (int step = 0; step < 200; ++step) {
    const Point next = at(a.entropy + share * (b.entropy - a.entropy));
    if ((next.slope > 0) == (a.slope > 0)) {
      c = a;
    } else {
      c = b;
      b = a;
    }
    a = next;
    const double limit = tolerance / std::abs(b.entropy - a.entropy);
    if (!(limit < 0.5)) break;
    const double xi = (a.entropy - b.entropy) / (c.entropy - b.entropy), phi = (a.slope - b.slope) / (c.slope - b.slope);
    share = 0.5;
    // A slope of exactly 0 means a flat loss, which has no root to aim at.
    if (a.slope != 0 && b.slope != 0 && phi * phi < xi && (1 - phi) * (1 - phi) < 1 - xi) {
      share = a.slope / (b.slope - a.slope) * c.slope / (b.slope - c.slope) +
              (c.entropy - a.entropy) / (b.entropy - a.entropy) * a.slope / (c.slope - a.slope) * b.slope / (c.slope - b.slope);
      share = std::clamp(share, limit, 1 - limit);
    }
  }
  return better(a, b) ? a : b;
}

}  // namespace

template <class T>
FittedTemperature fit_temperature(MatrixView<const T> x, std::span<const std::int64_t> labels,
                                  std::span<const double> sample_weight) {
  Labelled<T> data("fit_temperature", x, labels, sample_weight);
  if (data.constant()) return {1, false};
  // Every label has a largest score: the loss falls in beta without end, at large beta by less than float64 resolves.
  if (data.all_right()) return {kLeastTemperature, true};
  double low = 1 / kLargestTemperature, high = 1 / kLeastTemperature;
  if (slopes_at(data, low).first >= 0) return {kLargestTemperature, true};
  if (slopes_at(data, high).first <= 0) return {kLeastTemperature, true};

  double beta = 1, step = high - low, last_step = step;
  for (int i = 0; i < 200; ++i) {
    const Slopes slopes = slopes_at(data, beta);
    if (std::abs(slopes.first) <= kEpsilon * slopes.size) break;
    (slopes.first > 0 ? high : low) = beta;
    // A Newton step if it stays in the interval and is at most half the step before the last one; otherwise the geometric mean
    // of the ends.
    double next = beta - slopes.first / slopes.second;
    const bool fast = std::abs(next - beta) <= 0.5 * std::abs(last_step);
    if (!(next > low && next < high && fast)) next = std::sqrt(low) * std::sqrt(high);
    last_step = step;
    step = next - beta;
    beta = next;
    if (std::abs(step) <= 2 * kEpsilon * beta) break;
  }
  return {std::clamp(1 / beta, kLeastTemperature, kLargestTemperature), false};
}

template <class T>
double fit_target_entropy(MatrixView<const T> x, std::span<const std::int64_t> labels, std::span<const double> sample_weight) {
  Labelled<T> data("fit_target_entropy", x, labels, sample_weight);
  const double largest = std::log(static_cast<double>(x.cols));
  if (x.cols == 1) return 0;
  const auto at = [&](double entropy) { return point_at(data, entropy); };
  // Points are close together at both ends: near 0 rows move to their largest score, and near log n gamma behaves like sqrt(log
  // n - H). A point just below each entropy at which rows become uniform shows the slope of the loss there.
  constexpr int kIntervals = 64;
  std::vector<double> entropies = {largest, largest * (1 - 1e-9)};
  for (int k = 0; k < kIntervals; ++k) entropies.push_back(0.5 * largest * (1 - std::cos(std::numbers::pi * k / kIntervals)));
  for (const double kink : data.kinks()) entropies.push_back(kink), entropies.push_back(kink * (1 - 1e-9));
  std::ranges::sort(entropies);
  entropies.erase(std::unique(entropies.begin(), entropies.end()), entropies.end());

  // If there are many rows, a sample of them decides near which entropies to search; the search itself uses all rows.
  const bool many = data.rows() > 2 * kSurveyRows;
  Labelled<T> part = data.sample(many ? kSurveyRows : 1);
  std::vector<Point> survey;
  for (const double entropy : entropies) survey.push_back(point_at(many ? part : data, entropy));
  std::vector<std::optional<Point>> known(survey.size());
  if (!many) known.assign(survey.begin(), survey.end());
  const auto at_grid = [&](std::size_t k) {
    if (!known[k]) known[k] = at(entropies[k]);
    return *known[k];
  };

  // The left ends of intervals with a valley, and the lowest point. After a survey of a sample, only those with the least loss.
  std::vector<std::size_t> starts = {0};
  for (std::size_t k = 1; k < survey.size(); ++k) starts[0] = better(survey[k], survey[starts[0]]) ? k : starts[0];
  for (std::size_t k = 0; k + 1 < survey.size(); ++k) {
    if (!(survey[k].slope > 0) && survey[k + 1].slope > 0) starts.push_back(k);
  }
  const auto loss = [&](std::size_t k) { return std::min(survey[k].loss, survey[std::min(k + 1, survey.size() - 1)].loss); };
  std::ranges::stable_sort(starts, {}, loss);
  if (many) starts.resize(std::min<std::size_t>(starts.size(), 4));

  std::vector<bool> done(survey.size());
  std::optional<Point> best;
  const auto consider = [&](const Point& point) { best = !best || better(point, *best) ? point : best; };
  for (std::size_t k : starts) {
    // Go downhill until the loss falls at k and rises at k + 1.
    while (at_grid(k).slope > 0) --k;
    while (k + 1 < survey.size() && !(at_grid(k + 1).slope > 0)) ++k;
    if (k + 1 < survey.size() && !done[k]) consider(turning_point(at, at_grid(k), at_grid(k + 1), 1e-13 * largest));
    done[k] = true;
  }
  for (const std::optional<Point>& point : known) {
    if (point) consider(*point);
  }
  return best->entropy;
}

template <class T>
double match_entropy(MatrixView<const T> x_reference, std::span<const double> sample_weight) {
  const MatrixView<const T>& x = x_reference;
  check_layout("match_entropy", "x_reference", x);
  const SampleWeights weights("match_entropy", "x_reference", x.rows, sample_weight);
  const std::vector<Top> top = tops(x);
  for (std::size_t r = 0; r < x.rows; ++r) {
    if (weights[r] == 0) continue;
    if (top[r].nan) fail_in_row("match_entropy", "x_reference", r, "scores must not be NaN, got one");
    if (top[r].max == -kInfinity)
      fail_in_row("match_entropy", "x_reference", r, "scores must not all be -inf, got nothing else");
  }
  // H = log sum exp(z) - E z with z = x - max x; the sum is 1 / max p of softmax.
  std::vector<double> entropies(x.rows);
  parallel_rows(x.rows, 4 * x.cols, [&](std::size_t begin, std::size_t end) {
    std::vector<double> p(x.cols);
    for (std::size_t r = begin; r < end; ++r) {
      if (weights[r] == 0) continue;
      if (top[r].max == kInfinity) {
        entropies[r] = std::log(static_cast<double>(top[r].ties));
        continue;
      }
      const auto z = [&](std::size_t i) { return static_cast<double>(x.row(r)[i]) - top[r].max; };
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

}  // namespace entropic::inline ENTROPIC_ABI

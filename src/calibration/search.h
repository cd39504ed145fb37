// The searches for the temperature and for the entropy at which labels have the least loss. They ask an object for sums over
// its rows, which may be in any memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "isentropic/calibration.h"
#include "src/calibration/labels.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Properties of a row that depend on neither the temperature nor the entropy.
struct RowFacts {
  double max = 0;           // NaN if a score is NaN
  std::size_t ties = 0;     // scores that are the maximum
  std::size_t present = 0;  // scores above -inf
  double label = 0;         // the score of the label minus the maximum
};

// The rows of labelled scores that count, all with finite loss.
class LabelledRows {
 public:
  LabelledRows(std::string_view name, std::size_t cols, const SampleWeights& weights, std::span<const std::int64_t> labels,
               std::vector<RowFacts> facts)
      : cols_(cols), weights_(weights), facts_(std::move(facts)) {
    for (std::size_t r = 0; r < facts_.size(); ++r) {
      if (weights[r] > 0) chosen_.push_back(r);
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const std::size_t r : chosen_) {
      if (std::isnan(facts_[r].max)) fail_in_row(name, "x", r, "scores must not be NaN, got one");
      if (facts_[r].max == kInfinity) fail_in_row(name, "x", r, "scores must be finite or -inf, got +inf");
      if (!(facts_[r].label > -kInfinity)) {
        fail_in_row(name, "labels", r, "labels must be classes with a score above -inf, otherwise the loss is infinite, got {}",
                    labels[r]);
      }
    }
  }

  // A sample of the rows, evenly spread: it uses multiples of the golden ratio, which match no period of the rows.
  LabelledRows sample(std::size_t count) const {
    LabelledRows part = *this;
    part.chosen_.clear();
    for (std::size_t k = 0; k < count; ++k) {
      const double turn = static_cast<double>(k) * std::numbers::phi;
      part.chosen_.push_back(chosen_[static_cast<std::size_t>((turn - std::floor(turn)) * static_cast<double>(size()))]);
    }
    return part;
  }

  std::size_t size() const { return chosen_.size(); }
  std::size_t cols() const { return cols_; }
  // The k-th row that counts: its number in x, what is known of it, and its weight.
  std::size_t at(std::size_t k) const { return chosen_[k]; }
  const RowFacts& facts(std::size_t k) const { return facts_[chosen_[k]]; }
  double weight(std::size_t k) const { return weights_[chosen_[k]]; }

  // No row has two different scores above -inf.
  bool constant() const {
    return std::ranges::all_of(chosen_, [&](std::size_t r) { return facts_[r].ties == facts_[r].present; });
  }
  // Every label has the largest score of its row.
  bool all_right() const {
    return std::ranges::all_of(chosen_, [&](std::size_t r) { return !(facts_[r].label < 0); });
  }

  // The entropies at which the loss may have a kink. A row stops following the target where it is uniform over its largest
  // scores or over all. If k scores are far above the others, it almost stops at log k. If there are very many such entropies,
  // only some are returned.
  std::vector<double> kinks() const {
    std::vector<std::size_t> counts;
    for (std::size_t k = 1; k <= std::min<std::size_t>(16, cols_); ++k) counts.push_back(k);
    for (const std::size_t r : chosen_) counts.push_back(facts_[r].ties), counts.push_back(facts_[r].present);
    std::ranges::sort(counts);
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    std::vector<double> result;
    const std::size_t every = counts.size() / 64 + 1;
    for (std::size_t i = 0; i < counts.size(); i += every) result.push_back(std::log(static_cast<double>(counts[i])));
    return result;
  }

  double mean(double sum) const {
    double total = 0;
    for (const std::size_t r : chosen_) total += weights_[r];
    return sum / total;
  }

 private:
  std::size_t cols_;
  SampleWeights weights_;
  std::vector<RowFacts> facts_;
  std::vector<std::size_t> chosen_;
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

// Sums over rows of the loss and of its derivative in the target entropy.
struct LossOfTarget {
  double loss = 0, slope = 0;
  LossOfTarget& operator+=(const LossOfTarget& other) {
    loss += other.loss, slope += other.slope;
    return *this;
  }
  LossOfTarget times(double weight) const { return {weight * loss, weight * slope}; }
};

// `data` has rows(), the LabelledRows, and slopes(beta), the sum over them.
template <class Data>
FittedTemperature find_temperature(Data& data) {
  if (data.rows().constant()) return {1, false};
  // Every label has a largest score: the loss falls in beta without end, at large beta by less than float64 resolves.
  if (data.rows().all_right()) return {kLeastTemperature, true};
  double low = 1 / kLargestTemperature, high = 1 / kLeastTemperature;
  if (data.slopes(low).first >= 0) return {kLargestTemperature, true};
  if (data.slopes(high).first <= 0) return {kLeastTemperature, true};

  double beta = 1, step = high - low, last_step = step;
  for (int i = 0; i < 200; ++i) {
    const Slopes slopes = data.slopes(beta);
    if (std::abs(slopes.first) <= std::numeric_limits<double>::epsilon() * slopes.size) break;
    (slopes.first > 0 ? high : low) = beta;
    // A Newton step if it stays in the interval and is at most half the step before the last one; otherwise the geometric mean
    // of the ends.
    double next = beta - slopes.first / slopes.second;
    const bool fast = std::abs(next - beta) <= 0.5 * std::abs(last_step);
    if (!(next > low && next < high && fast)) next = std::sqrt(low) * std::sqrt(high);
    last_step = step;
    step = next - beta;
    beta = next;
    if (std::abs(step) <= 2 * std::numeric_limits<double>::epsilon() * beta) break;
  }
  return {std::clamp(1 / beta, kLeastTemperature, kLargestTemperature), false};
}

// The loss at an entropy and its slope, as means over rows.
struct Point {
  double entropy, loss, slope;
};

// Whether a has the smaller loss or, at equal loss, the larger entropy.
inline bool better(const Point& a, const Point& b) { return a.loss < b.loss || (a.loss == b.loss && a.entropy > b.entropy); }

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

// `data` has rows(), the LabelledRows; losses(entropy), the sum over them; and survey(): a pointer to a sample of them, or
// std::optional with one, if they are so many that a survey of the loss at a hundred entropies should use fewer.
template <class Data>
double find_target_entropy(Data& data) {
  const std::size_t cols = data.rows().cols();
  if (cols == 1) return 0;
  const double largest = std::log(static_cast<double>(cols));
  const auto point_of = [](Data& rows, double entropy) -> Point {
    const LossOfTarget sum = rows.losses(entropy);
    return {entropy, rows.rows().mean(sum.loss), rows.rows().mean(sum.slope)};
  };
  const auto at = [&](double entropy) { return point_of(data, entropy); };
  // Points are close together at both ends: near 0 rows move to their largest score, and near log n gamma behaves like sqrt(log
  // n - H). A point just below each entropy at which rows become uniform shows the slope of the loss there.
  constexpr int kIntervals = 64;
  std::vector<double> entropies = {largest, largest * (1 - 1e-9)};
  for (int k = 0; k < kIntervals; ++k) entropies.push_back(0.5 * largest * (1 - std::cos(std::numbers::pi * k / kIntervals)));
  for (const double kink : data.rows().kinks()) entropies.push_back(kink), entropies.push_back(kink * (1 - 1e-9));
  std::ranges::sort(entropies);
  entropies.erase(std::unique(entropies.begin(), entropies.end()), entropies.end());

  // If there are many rows, a sample of them decides near which entropies to search; the search itself uses all rows.
  auto part = data.survey();
  const bool many = static_cast<bool>(part);
  std::vector<Point> survey;
  for (const double entropy : entropies) survey.push_back(point_of(many ? *part : data, entropy));
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

}  // namespace isentropic::inline ISENTROPIC_ABI

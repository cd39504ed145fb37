// The comparison as text: bars side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compare.h"
#include "files/formatted.h"
#include "terminal.h"

namespace {

constexpr std::size_t kMostClasses = 20;  // in a text; of more classes, those with the largest scores
constexpr std::size_t kMostBar = 24;
constexpr std::size_t kLeastBar = 8;
constexpr std::size_t kNumber = 6;  // columns of a probability
constexpr std::size_t kGap = 2;

std::string probability_text(double p) {
  if (p == 0 || p == 1 || std::isnan(p)) return files::formatted("{}", p);
  return p < 0.00005 ? fmt::format("{:.0e}", p) : fmt::format("{:.4f}", p);
}

// The lines of the text: the classes and their scores at the left, then one column for each map of a block.
class Layout {
 public:
  Layout(const Comparison& comparison, std::size_t width, bool utf8)
      : comparison_(comparison), utf8_(utf8), shown_(shown_classes(comparison.x)) {
    for (const std::size_t i : shown_) {
      class_width_ = std::max(class_width_, display_width(comparison.classes[i]));
      score_width_ = std::max(score_width_, score_text(i).size());
    }
    class_width_ = std::min<std::size_t>(class_width_, 24);
    left_ = std::max(class_width_ + kGap + score_width_, std::string_view("effective support").size());
    class_width_ = left_ - kGap - score_width_;

    std::size_t name_width = 0;
    for (const auto& column : comparison.columns) {
      name_width = std::max(name_width, column.map.size());
      for (const std::size_t i : shown_) {
        if (column.p[i] > full_bar_) full_bar_ = column.p[i];
      }
    }
    const std::size_t room = width - std::min(width, left_);
    const std::size_t least = kGap + std::max(name_width, kNumber + 1 + kLeastBar);
    const std::size_t maps = std::max<std::size_t>(comparison.columns.size(), 1);
    const std::size_t most_at_once = std::clamp<std::size_t>(room / least, 1, maps);
    const std::size_t blocks = (maps + most_at_once - 1) / most_at_once;
    at_once_ = (maps + blocks - 1) / blocks;
    column_ = std::max(room / at_once_, least);
    bar_ = std::min(column_ - kGap - kNumber - 1, kMostBar);
    column_ = kGap + std::max(name_width, kNumber + 1 + bar_);
  }

  std::string text() {
    const std::string label = comparison_.label.empty() ? "" : fmt::format(" ({})", on_one_line(comparison_.label));
    const std::string file = on_one_line(comparison_.file);
    const auto& token = comparison_.token;
    const std::string of = token ? fmt::format(", reply {}, position {}", token->reply, token->position) : "";
    text_ = fmt::format("{}, row {}{}{}: {} classes\n", file, comparison_.before + comparison_.row, label, of,
                        comparison_.x.size());
    for (std::size_t begin = 0; begin < comparison_.columns.size(); begin += at_once_) {
      text_ += '\n';
      block(begin, std::min(begin + at_once_, comparison_.columns.size()));
    }
    if (full_bar_ > 0) text_ += fmt::format("\nA full bar is {}.\n", probability_text(full_bar_));
    for (const auto& column : comparison_.columns) {
      if (!column.parameters.empty()) text_ += fmt::format("{} is shown with {}.\n", column.map, column.parameters);
    }
    return text_;
  }

 private:
  static std::string on_one_line(std::string_view text) { return fit(text, display_width(text)); }

  std::string score_text(std::size_t i) const {
    const double x = comparison_.x[i];
    return files::formatted("{:.4g}", x);
  }

  // One line: `left` and, for each column of the block, cell(column).
  template <class Cell>
  void line(std::size_t begin, std::size_t end, std::string_view left, Cell cell) {
    std::string result = fit(left, left_);
    for (std::size_t c = begin; c < end; ++c) {
      result += std::string(kGap, ' ') + fit(cell(comparison_.columns[c]), column_ - kGap);
    }
    text_ += result.substr(0, result.find_last_not_of(' ') + 1) + '\n';
  }

  void block(std::size_t begin, std::size_t end) {
    using Column = Comparison::Column;
    const std::size_t score_column = kGap + score_width_;
    line(begin, end, fit("class", class_width_) + fmt::format("{:>{}}", "score", score_column),
         [](const Column& c) { return c.map; });
    for (const std::size_t i : shown_) {
      line(begin, end, fit(comparison_.classes[i], class_width_) + fmt::format("{:>{}}", score_text(i), score_column),
           [&](const Column& c) {
             return fmt::format("{:>{}} {}", probability_text(c.p[i]), kNumber, bar(c.p[i] / full_bar_, bar_, utf8_));
           });
    }
    if (shown_.size() < comparison_.x.size()) {
      line(begin, end, fmt::format("{} more", comparison_.x.size() - shown_.size()),
           [&](const Column& c) { return fmt::format("{:>{}} together", probability_text(rest_of(c, shown_)), kNumber); });
    }
    text_ += '\n';
    line(begin, end, "entropy (nats)", [](const Column& c) { return files::formatted("{:>{}.4f}", c.entropy, kNumber); });
    line(begin, end, "effective support", [](const Column& c) {
      return files::formatted("{:>{}.{}f}", c.effective_support, kNumber, c.effective_support < 100 ? 2 : 0);
    });
    line(begin, end, "zeros", [](const Column& c) { return fmt::format("{:>{}}", c.zeros, kNumber); });
    line(begin, end, "maximum", [](const Column& c) { return fmt::format("{:>{}}", probability_text(c.maximum), kNumber); });
  }

  const Comparison& comparison_;
  bool utf8_;
  std::vector<std::size_t> shown_;
  std::size_t class_width_ = 5;
  std::size_t score_width_ = 5;
  std::size_t left_ = 0;
  std::size_t at_once_ = 1;
  std::size_t column_ = 0;  // with the gap before it
  std::size_t bar_ = 0;
  double full_bar_ = 0;
  std::string text_;
};

}  // namespace

std::vector<std::size_t> shown_classes(const std::vector<double>& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (x.size() <= kMostClasses) return order;
  const auto rank = [&](std::size_t i) { return std::isnan(x[i]) ? std::numeric_limits<double>::infinity() : x[i]; };
  const auto before = [&](std::size_t a, std::size_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; };
  std::partial_sort(order.begin(), order.begin() + kMostClasses, order.end(), before);
  order.resize(kMostClasses);
  return order;
}

double rest_of(const Comparison::Column& column, const std::vector<std::size_t>& shown) {
  double rest = std::accumulate(column.p.begin(), column.p.end(), 0.0);
  std::size_t above_zero = 0;
  for (const std::size_t i : shown) {
    rest -= column.p[i];
    above_zero += column.p[i] != 0;
  }
  return column.zeros + above_zero == column.p.size() || rest < 0 ? 0 : rest;  // rounding may leave a little
}

std::string comparison_text(const Comparison& comparison, std::size_t width, bool utf8) {
  return Layout(comparison, width, utf8).text();
}

// The comparison: computing it, and laying it out as bars or as JSON.
#include "compare.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "commands.h"
#include "families.h"
#include "files/text.h"
#include "rows.h"
#include "terminal.h"

namespace {

constexpr std::size_t kMostClasses = 20;  // shown in a text, the largest scores if there are more
constexpr std::size_t kMostBar = 24;
constexpr std::size_t kLeastBar = 8;
constexpr std::size_t kNumber = 6;  // columns of a probability
constexpr std::size_t kGap = 2;

std::string_view name_of(const entropic::Map& map) {
  return std::visit([]<class Op>(const Op&) { return Op::kDescription.name; }, map);
}

// The parameters that differ from their defaults: what they are is nowhere else to be seen.
std::string chosen_parameters(const entropic::Map& map) {
  std::string text;
  std::visit(
      [&]<class Op>(const Op& op) {
        const Op defaults;
        entropic::for_each_param<Op>([&]<class Value>(const entropic::Param<Op, Value>& param) {
          const Value& value = op.*param.member;
          if (value == defaults.*param.member) return;
          text += fmt::format("{}{} = ", text.empty() ? "" : ", ", param.name);
          if constexpr (std::is_enum_v<Value>) {
            text += param.names[static_cast<std::size_t>(value)];
          } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
            text += value ? fmt::format("{}", *value) : "none";
          } else {
            text += fmt::format("{}", value);
          }
        });
      },
      map);
  return text;
}

std::vector<entropic::Map> every_map() {
  std::vector<entropic::Map> maps;
  entropic::for_each_operation<entropic::Map>(
      [&]<class Op>(std::type_identity<Op>) { maps.emplace_back(entropic::typical<Op>()); });
  return maps;
}

// In nats, of a map's result: NaN where the row is.
double entropy_of(const std::vector<double>& p) {
  double entropy = std::numeric_limits<double>::quiet_NaN();
  if (p.empty()) return 0;
  if (std::isnan(p[0]) || *std::max_element(p.begin(), p.end()) == 0) return entropy;  // half types round small ones to 0
  entropic::measure(entropic::Entropy{.normalize = true}, entropic::MatrixView<const double>(p.data(), 1, p.size()),
                    std::span<double>(&entropy, 1));
  return entropy;
}

Comparison::Column measured(const entropic::Map& map, std::vector<double> p) {
  Comparison::Column column{std::string(name_of(map)), chosen_parameters(map), std::move(p), 0, 0, 0, 0};
  column.entropy = entropy_of(column.p);
  for (const double value : column.p) {
    column.zeros += value == 0;
    // A NaN, once found, stays.
    if (!(value <= column.maximum)) column.maximum = std::isnan(column.maximum) ? column.maximum : value;
  }
  column.effective_support = column.p.empty() ? 0 : std::exp(column.entropy);
  return column;
}

std::string probability_text(double p) {
  if (p == 0 || p == 1 || std::isnan(p)) return fmt::format("{}", std::isnan(p) ? std::abs(p) : p);
  return p < 0.00005 ? fmt::format("{:.0e}", p) : fmt::format("{:.4f}", p);
}

// The lines of the text: at the left the classes and their scores, then one column for each map of a block.
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
    text_ = fmt::format("{}, row {}{}: {} classes\n", file, comparison_.row, label, comparison_.x.size());
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
    return fmt::format("{:.4g}", std::isnan(x) ? std::abs(x) : x);
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
    line(begin, end, "entropy (nats)", [](const Column& c) { return fmt::format("{:>{}.4f}", c.entropy, kNumber); });
    line(begin, end, "effective support", [](const Column& c) {
      return fmt::format("{:>{}.{}f}", c.effective_support, kNumber, c.effective_support < 100 ? 2 : 0);
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
  std::size_t column_ = 0;  // the gap before it included
  std::size_t bar_ = 0;
  double full_bar_ = 0;
  std::string text_;
};

std::string json_number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  return std::isinf(value) ? fmt::format("\"{}\"", value) : fmt::format("{}", value);
}

template <class Range, class F>
std::string json_array(const Range& range, F element) {
  std::string json = "[";
  for (const auto& item : range) json += (json.size() > 1 ? ", " : "") + element(item);
  return json + "]";
}

}  // namespace

std::vector<entropic::Map> maps_by_name(const std::string& names, std::optional<double> entropy) {
  std::vector<entropic::Map> every = every_map();
  const entropic::Map normalized = entropic::EntropyNormalize{.entropy = entropy};
  const auto is_normalized = [&](const entropic::Map& map) { return map.index() == normalized.index(); };
  if (entropy) std::replace_if(every.begin(), every.end(), is_normalized, normalized);
  if (names.empty()) return every;
  std::vector<entropic::Map> chosen;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const auto found = std::find_if(every.begin(), every.end(), [&](const entropic::Map& map) { return name_of(map) == name; });
    if (found == every.end()) {
      std::vector<std::string_view> known;
      for (const entropic::Map& map : every) known.push_back(name_of(map));
      bad_input("compare: --maps must be among {}, got '{}'", fmt::join(known, ", "), name);
    }
    chosen.push_back(*found);
    begin = end + 1;
  }
  if (entropy && std::none_of(chosen.begin(), chosen.end(), is_normalized)) chosen.push_back(normalized);
  return chosen;
}

Comparison compare(const Table& table, std::string_view file, std::size_t row, const std::vector<entropic::Map>& maps) {
  if (table.rows == 0) bad_input("{}: there are no rows to compare", file);
  if (row >= table.rows) bad_input("{}: there is no row {}; the rows are 0 to {}", file, row, table.rows - 1);
  Comparison comparison;
  comparison.file = file;
  comparison.row = row;
  if (!table.labels.empty()) comparison.label = table.labels[row];
  comparison.classes = table.header;
  if (comparison.classes.empty()) {
    for (std::size_t i = 0; i < table.cols; ++i) comparison.classes.push_back(fmt::format("{}", i));
  }
  comparison.x = scores_of(table, row);
  comparison.columns = columns_of(table, row, maps);
  return comparison;
}

std::vector<double> scores_of(const Table& table, std::size_t row) {
  std::vector<double> x;
  std::visit(
      [&](const auto& values) {
        for (std::size_t i = 0; i < table.cols; ++i) x.push_back(as_double(values[row * table.cols + i]));
      },
      table.values);
  return x;
}

std::vector<Comparison::Column> columns_of(const Table& table, std::size_t row, const std::vector<entropic::Map>& maps) {
  std::vector<Comparison::Column> columns;
  std::visit(
      [&]<class T>(const std::vector<T>& values) {
        const entropic::MatrixView<const T> x(values.data() + row * table.cols, 1, table.cols);
        std::vector<T> p(table.cols);
        for (const entropic::Map& map : maps) {
          entropic::apply(map, x, entropic::MatrixView<T>(p.data(), 1, p.size()));
          std::vector<double> numbers(p.size());
          std::transform(p.begin(), p.end(), numbers.begin(), as_double<T>);
          columns.push_back(measured(map, std::move(numbers)));
        }
      },
      table.values);
  return columns;
}

std::vector<Histogram> entropy_histograms(const Table& table, const std::vector<entropic::Map>& maps) {
  constexpr std::size_t kBins = 24;
  std::vector<Histogram> histograms;
  std::visit(
      [&]<class T>(const std::vector<T>& values) {
        const std::size_t at_once = std::max<std::size_t>(1, (std::size_t{1} << 20) / std::max<std::size_t>(1, table.cols));
        std::vector<T> p;
        std::vector<double> numbers;
        for (const entropic::Map& map : maps) {
          Histogram histogram;
          histogram.top = std::log(static_cast<double>(std::max<std::size_t>(table.cols, 1)));
          histogram.counts.resize(kBins);
          for (std::size_t begin = 0; begin < table.rows; begin += at_once) {
            const std::size_t rows = std::min(at_once, table.rows - begin);
            p.resize(rows * table.cols);
            entropic::apply(map, entropic::MatrixView<const T>(values.data() + begin * table.cols, rows, table.cols),
                            view(p, rows, table.cols));
            for (std::size_t r = 0; r < rows; ++r) {
              numbers.resize(table.cols);
              std::transform(p.begin() + static_cast<std::ptrdiff_t>(r * table.cols),
                             p.begin() + static_cast<std::ptrdiff_t>((r + 1) * table.cols), numbers.begin(), as_double<T>);
              const double entropy = entropy_of(numbers);
              if (std::isnan(entropy)) {
                ++histogram.undefined;
              } else {
                const double place = histogram.top > 0 ? entropy / histogram.top * kBins : 0;
                ++histogram.counts[static_cast<std::size_t>(std::clamp(place, 0.0, kBins - 1.0))];
              }
            }
          }
          histograms.push_back(std::move(histogram));
        }
      },
      table.values);
  return histograms;
}

std::vector<Distances> row_distances(const Table& table, std::size_t row, const std::vector<entropic::Map>& maps) {
  constexpr std::size_t kMostRows = 40;
  constexpr double kMostWork = 4e8;  // about a second
  const std::size_t n = table.cols;
  const double affordable = std::sqrt(kMostWork / static_cast<double>(std::max<std::size_t>(1, maps.size() * n)));
  const std::size_t count = std::min(table.rows, static_cast<std::size_t>(std::clamp<double>(affordable, 2, kMostRows)));
  const std::size_t first = std::min(row - std::min(row, count / 2), table.rows - count);
  std::vector<double> support(n);
  std::iota(support.begin(), support.end(), 0.0);
  std::vector<Distances> all;
  for (const entropic::Map& map : maps) {
    std::vector<std::size_t> defined;
    std::vector<double> p;  // of those, one after the other
    for (std::size_t r = 0; r < count; ++r) {
      const std::vector<double> one = std::move(columns_of(table, first + r, {map})[0].p);
      if (n == 0 || std::any_of(one.begin(), one.end(), [](double value) { return std::isnan(value); })) continue;
      defined.push_back(r);
      p.insert(p.end(), one.begin(), one.end());
    }
    const std::size_t rows = defined.size();
    const std::vector<double> nothing(count * count, std::numeric_limits<double>::quiet_NaN());
    Distances distances{first, count, nothing, nothing, nothing};
    std::vector<double> js(rows), wasserstein(rows), repeated(rows * n);
    const entropic::MatrixView<const double> every(p.data(), rows, n);
    for (std::size_t r = 0; r < rows; ++r) {
      const double* const q = p.data() + r * n;
      for (std::size_t s = 0; s < rows; ++s) std::copy(q, q + n, repeated.begin() + static_cast<std::ptrdiff_t>(s * n));
      entropic::measure(entropic::JsDistance{.normalize = true}, every, {q, 1, n}, std::span<double>(js));
      entropic::wasserstein_histogram<double>(every, {repeated.data(), rows, n}, support, wasserstein, {.sum_tolerance = 1});
      for (std::size_t s = 0; s < rows; ++s) {
        double apart = 0;
        for (std::size_t i = 0; i < n; ++i) apart += std::abs(p[s * n + i] - q[i]);
        const std::size_t at = defined[r] * count + defined[s];
        distances.js_distance[at] = js[s];
        distances.total_variation[at] = apart / 2;
        distances.wasserstein[at] = wasserstein[s];
      }
    }
    all.push_back(std::move(distances));
  }
  return all;
}

std::vector<std::size_t> shown_classes(const std::vector<double>& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (x.size() <= kMostClasses) return order;
  const auto rank = [&](std::size_t i) { return std::isnan(x[i]) ? std::numeric_limits<double>::infinity() : x[i]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
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

std::string comparison_json(const Comparison& comparison) {
  const auto text = [](const std::string& value) { return files::json_string(value); };
  std::string json = "{\n";
  json += fmt::format("  \"file\": {},\n  \"row\": {},\n", files::json_string(comparison.file), comparison.row);
  if (!comparison.label.empty()) json += fmt::format("  \"label\": {},\n", files::json_string(comparison.label));
  json += fmt::format("  \"classes\": {},\n", json_array(comparison.classes, text));
  json += fmt::format("  \"scores\": {},\n  \"maps\": [", json_array(comparison.x, json_number));
  std::string_view separator = "\n";
  for (std::size_t c = 0; c < comparison.columns.size(); ++c) {
    const Comparison::Column& column = comparison.columns[c];
    json += fmt::format(
        "{}    {{\n      \"name\": {},\n      \"probabilities\": {},\n"
        "      \"entropy\": {},\n      \"effective_support\": {},\n"
        "      \"zeros\": {},\n      \"maximum\": {}",
        separator, files::json_string(column.map), json_array(column.p, json_number), json_number(column.entropy),
        json_number(column.effective_support), column.zeros, json_number(column.maximum));
    if (!comparison.histograms.empty()) {
      const Histogram& histogram = comparison.histograms[c];
      json += fmt::format(",\n      \"entropy_histogram\": {{\"from\": 0, \"to\": {}, \"counts\": [{}], \"undefined\": {}}}",
                          json_number(histogram.top), fmt::join(histogram.counts, ", "), histogram.undefined);
    }
    if (!comparison.distances.empty()) {
      const Distances& distances = comparison.distances[c];
      const auto from_row = [&](const std::vector<double>& matrix) {
        const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>((comparison.row - distances.first) * distances.count);
        return json_array(std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(distances.count)), json_number);
      };
      json += fmt::format(
          ",\n      \"distances\": {{\"first_row\": {},\n        \"js_distance\": {},\n"
          "        \"total_variation\": {},\n        \"wasserstein\": {}}}",
          distances.first, from_row(distances.js_distance), from_row(distances.total_variation),
          from_row(distances.wasserstein));
    }
    json += "\n    }";
    separator = ",\n";
  }
  return json + "\n  ]\n}\n";
}

namespace {

// The format of a report by the name of its file.
std::string format_of(const std::string& out) {
  for (const std::string& name : files::format_names()) {
    if (out.ends_with("." + name)) bad_input("compare: -o must end in .txt, .json or .html, got '{}'; or say --format", out);
  }
  return out.ends_with(".html") ? "html" : out.ends_with(".json") ? "json" : "text";
}

// The row of this number or else of this label.
std::size_t row_of(const Table& table, std::string_view file, const std::string& text) {
  const bool number = text.find_first_not_of("+-.0123456789") == text.npos;
  const auto found = std::find(table.labels.begin(), table.labels.end(), text);
  if (!number && found != table.labels.end()) return static_cast<std::size_t>(found - table.labels.begin());
  if (!number && !table.labels.empty()) bad_input("{}: there is no row with the label {}", file, files::in_quotes(text));
  std::size_t row = 0;
  set_number(row, "--row", text);
  return row;
}

}  // namespace

void add_compare(CLI::App& app, Program& program) {
  struct Options {
    std::string row = "0";
    std::string maps;
    std::optional<double> entropy;
    std::string format;
  };
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("compare", "One row of scores under the maps side by side, as bars.");
  add_input_options(command, program.files);
  command.add_option("--row", options->row, "The row, counted from 0, or its label (default 0)")->option_text("ROW");
  command.add_option("--maps", options->maps, "Names of maps, separated by commas (default: all)")->option_text("NAME,...");
  add_number(command, "--entropy", options->entropy, "Show entropy_normalize at this entropy, in nats");
  add_choice(
      command, "--format", options->format, {"text", "json", "html"},
      "Bars to read, the numbers to process, or a page that steps through the rows (default: by the name of OUT, else text)");
  add_output_option(command, program.files, "File to write: .txt, .json, .html (default: standard output)");
  command.footer(
      "Example: entropic compare scores.csv --row 3 --maps softmax,sparsemax\n"
      "         entropic compare scores.csv -o report.html\n" +
      std::string(kEverywhere));
  command.callback([options, &program] {
    program.action = [options, &files = program.files] {
      if (options->format.empty()) options->format = format_of(files.out);
      const std::vector<entropic::Map> maps = maps_by_name(options->maps, options->entropy);
      const Table table = read_table(files);
      const std::size_t row = row_of(table, files::input_name(files.in), options->row);
      Comparison comparison = compare(table, files::input_name(files.in), row, maps);
      if (options->format != "text") {
        comparison.histograms = entropy_histograms(table, maps);
        comparison.distances = row_distances(table, row, maps);
      }
      const std::size_t width = files::is_standard(files.out) ? terminal_width() : 80;
      const std::string report = options->format == "json"   ? comparison_json(comparison)
                                 : options->format == "html" ? comparison_html(comparison, table, maps)
                                                             : comparison_text(comparison, width, locale_is_utf8());
      const bool colored = options->format == "text" && files::is_standard(files.out) && wants_color(STDOUT_FILENO);
      files::write_output(files.out, colored ? with_colored_bars(report) : report);
    };
  });
}

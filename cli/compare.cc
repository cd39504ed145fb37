// The comparison: what it computes, and its command.
#include "compare.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "commands.h"
#include "files/text.h"
#include "rows.h"
#include "terminal.h"

namespace {

std::string_view name_of(const entropic::Map& map) { return description_of(map).name; }

// The parameters that differ from their defaults: what they are is nowhere else to be seen.
std::string chosen_parameters(const entropic::Map& map) {
  std::string text;
  const entropic::OperationInfo& info = entropic::family_info<entropic::Map>().operations[map.index()];
  const std::vector<entropic::ParamValue> values = values_of(map);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string value = entropic::to_text(values[i]);
    if (value == entropic::to_text(info.params[i].initial)) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", info.params[i].name, value);
  }
  return text;
}

std::vector<entropic::Map> every_map() {
  std::vector<entropic::Map> maps;
  for (const entropic::OperationInfo& info : entropic::family_info<entropic::Map>().operations) {
    maps.push_back(entropic::make<entropic::Map>(info, typical_values(info)));
  }
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
      entropic::wasserstein_histogram<double>({.sum_tolerance = 1}, every, {repeated.data(), rows, n}, support, wasserstein);
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
      const Table table = widened(read_table(files));
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

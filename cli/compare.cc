// The comparison: what it computes, and its command.
#include "compare.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>

#include "commands.h"
#include "files/system.h"
#include "files/text.h"
#include "page.h"
#include "rows.h"
#include "terminal.h"

namespace {

std::string_view name_of(const isentropic::Map& map) { return description_of(map).name; }

// The parameters that differ from their defaults. The comparison shows them nowhere else.
std::string chosen_parameters(const isentropic::Map& map) {
  std::string text;
  const isentropic::OperationInfo& info = isentropic::family_info<isentropic::Map>().operations[map.index()];
  const std::vector<isentropic::ParamValue> values = values_of(map);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string value = isentropic::to_text(values[i]);
    if (value == isentropic::to_text(info.params[i].initial)) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", info.params[i].name, value);
  }
  return text;
}

std::string values_json(const isentropic::Map& map) {
  std::string json = "{";
  const isentropic::OperationInfo& info = isentropic::family_info<isentropic::Map>().operations[map.index()];
  const std::vector<isentropic::ParamValue> values = values_of(map);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::holds_alternative<std::monostate>(values[i])) continue;
    const std::string value = isentropic::to_text(values[i]);
    const bool word = std::holds_alternative<std::string>(values[i]);
    json += fmt::format("{}\"{}\":{}", json.size() > 1 ? "," : "", info.params[i].name, word ? inert_json(value) : value);
  }
  return json + "}";
}

std::vector<isentropic::Map> every_map() {
  std::vector<isentropic::Map> maps;
  for (const isentropic::OperationInfo& info : isentropic::family_info<isentropic::Map>().operations) {
    maps.push_back(isentropic::make<isentropic::Map>(info, typical_values(info)));
  }
  return maps;
}

// The entropy in nats of a map's result; NaN if the result is NaN.
double entropy_of(const std::vector<double>& p) {
  double entropy = std::numeric_limits<double>::quiet_NaN();
  if (p.empty()) return 0;
  if (std::isnan(p[0]) || *std::max_element(p.begin(), p.end()) == 0) return entropy;  // half types round small ones to 0
  isentropic::measure(isentropic::Entropy{.normalize = true}, isentropic::MatrixView<const double>(p.data(), 1, p.size()),
                      std::span<double>(&entropy, 1));
  return entropy;
}

Comparison::Column measured(const isentropic::Map& map, std::vector<double> p) {
  Comparison::Column column{std::string(name_of(map)), chosen_parameters(map), std::move(p), 0, 0, 0, 0};
  column.values = values_json(map);
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

std::vector<isentropic::Map> maps_by_name(const std::string& names, std::optional<double> entropy) {
  std::vector<isentropic::Map> every = every_map();
  const isentropic::Map normalized = isentropic::EntropyNormalize{.entropy = entropy};
  const auto is_normalized = [&](const isentropic::Map& map) { return map.index() == normalized.index(); };
  if (entropy) std::replace_if(every.begin(), every.end(), is_normalized, normalized);
  if (names.empty()) return every;
  std::vector<isentropic::Map> chosen;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const auto found =
        std::find_if(every.begin(), every.end(), [&](const isentropic::Map& map) { return name_of(map) == name; });
    if (found == every.end()) {
      std::vector<std::string_view> known;
      for (const isentropic::Map& map : every) known.push_back(name_of(map));
      bad_input("compare: --maps must be among {}, got '{}'", fmt::join(known, ", "), name);
    }
    chosen.push_back(*found);
    begin = end + 1;
  }
  if (entropy && std::none_of(chosen.begin(), chosen.end(), is_normalized)) chosen.push_back(normalized);
  return chosen;
}

Comparison compare(const Table& table, std::string_view file, std::size_t before, std::size_t row,
                   const std::vector<isentropic::Map>& maps) {
  if (table.rows == 0) bad_input("{}: there are no rows to compare", file);
  if (row < before || row - before >= table.rows) {
    bad_input("{}: there is no row {}; the rows are {} to {}", file, row, before, before + table.rows - 1);
  }
  row -= before;
  Comparison comparison;
  comparison.file = file;
  comparison.row = row;
  comparison.before = before;
  if (!table.labels.empty()) comparison.label = table.labels[row];
  if (!table.tokens.empty()) comparison.token = table.tokens[row];
  comparison.classes = class_names(table, row);
  comparison.x = scores_of(table, row);
  comparison.columns = columns_of(table, row, maps);
  return comparison;
}

std::vector<std::string> class_names(const Table& table, std::size_t row) {
  std::vector<std::string> names = table.tokens.empty() ? table.header : table.tokens[row].candidates;
  if (!table.tokens.empty()) names.resize(table.cols);  // "" where the row has fewer candidates
  if (!names.empty()) return names;
  for (std::size_t i = 0; i < table.cols; ++i) names.push_back(fmt::format("{}", i));
  return names;
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

std::vector<Comparison::Column> columns_of(const Table& table, std::size_t row, const std::vector<isentropic::Map>& maps) {
  std::vector<Comparison::Column> columns;
  std::visit(
      [&]<class T>(const std::vector<T>& values) {
        const isentropic::MatrixView<const T> x(values.data() + row * table.cols, 1, table.cols);
        std::vector<T> p(table.cols);
        for (const isentropic::Map& map : maps) {
          isentropic::apply(map, x, isentropic::MatrixView<T>(p.data(), 1, p.size()));
          std::vector<double> numbers(p.size());
          std::transform(p.begin(), p.end(), numbers.begin(), as_double<T>);
          columns.push_back(measured(map, std::move(numbers)));
        }
      },
      table.values);
  return columns;
}

namespace {

// Shows how many rows are done, in a line on the terminal, once the comparison takes longer than a second.
class RowProgress {
 public:
  RowProgress(std::size_t rows, bool wanted)
      : rows_(rows), wanted_(wanted && files::sys::is_terminal(files::sys::standard_error)) {}
  RowProgress(const RowProgress&) = delete;
  RowProgress& operator=(const RowProgress&) = delete;
  ~RowProgress() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
  }

  void update(std::size_t done) {
    using Seconds = std::chrono::duration<double>;
    const Clock::time_point now = Clock::now();
    if (!wanted_ || Seconds(now - start_).count() < 1 || Seconds(now - last_).count() < 0.1) return;
    last_ = now;
    shown_ = true;
    fmt::print(stderr, "\r\x1b[K{} of {} rows", done, rows_);
    std::fflush(stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t rows_;
  bool wanted_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

// Calls run(first, end) for pieces of [0, count) on several threads.
template <class F>
void in_parallel(std::size_t count, F&& run) {
  tbb::task_arena(static_cast<int>(isentropic::get_num_threads())).execute([&] {
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, count),
                      [&](const tbb::blocked_range<std::size_t>& range) { run(range.begin(), range.end()); });
  });
}

// Stores what the page shows of one row. The thread that has the row calls it.
template <class T>
void summarise(const isentropic::Map& map, const isentropic::MatrixView<const T>& x, std::vector<T>& p, std::vector<T>& support,
               std::size_t row, std::size_t m, std::size_t maps, Overview& all) {
  const std::size_t n = x.cols, at = row * maps + m;
  isentropic::apply(map, x, isentropic::MatrixView<T>(p.data(), 1, n));
  T most = n == 0 ? T(0) : p[0];
  double sum = 0;
  std::size_t count = 0;  // zeros add nothing to an entropy, and sparse rows are nearly all zeros
  for (std::size_t i = 0; i < n; ++i) {
    most = std::max(most, p[i]);
    support[count] = p[i];
    count += p[i] != 0;
    sum += static_cast<double>(p[i]);
  }
  const auto zeros = static_cast<std::uint32_t>(n - count);
  const bool defined = !std::isnan(sum);
  double entropy = n == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  if (defined && most > 0) {
    isentropic::measure(isentropic::Entropy{.normalize = true}, isentropic::MatrixView<const T>(support.data(), 1, count),
                        std::span<double>(&entropy, 1));
  }
  all.entropy[at] = entropy;
  if (row < all.first || row >= all.first + all.rows) return;
  const std::size_t kept = row - all.first;
  auto& [scores, probabilities, rest, maximum] = std::get<Overview::Numbers<T>>(all.numbers);
  std::uint32_t above_zero = 0;
  for (std::size_t k = 0; k < all.shown; ++k) {
    const T value = p[all.classes[kept * all.shown + k]];
    probabilities[(kept * maps + m) * all.shown + k] = value;
    sum -= static_cast<double>(value);
    above_zero += value != 0;
  }
  // Rounding may leave a little where nothing should be left.
  rest[kept * maps + m] = static_cast<T>(!defined ? sum : zeros + above_zero == n || sum < 0 ? 0.0 : sum);
  maximum[kept * maps + m] = defined ? most : std::numeric_limits<T>::quiet_NaN();
  all.zeros[kept * maps + m] = zeros;
}

}  // namespace

Overview overview(const Table& table, std::size_t row, const std::vector<isentropic::Map>& maps, bool quiet) {
  Overview all;
  all.shown = shown_classes(scores_of(table, row)).size();
  const std::size_t bytes = sizeof_number(table) * (all.shown + maps.size() * (all.shown + 2)) + 4 * (all.shown + maps.size());
  all.rows = std::min(table.rows, std::max<std::size_t>(Overview::kMostBytes / std::max<std::size_t>(1, bytes), 1));
  all.first = std::min(row - std::min(row, all.rows / 2), table.rows - all.rows);
  all.entropy.resize(table.rows * maps.size());
  all.classes.resize(all.rows * all.shown);
  all.zeros.resize(all.rows * maps.size());
  RowProgress progress(table.rows, !quiet);
  std::atomic<std::size_t> done{0};
  std::mutex line;
  std::visit(
      [&]<class T>(const std::vector<T>& values) {
        if constexpr (!isentropic::kIsHalf<T>) {
          Overview::Numbers<T>& numbers = all.numbers.emplace<Overview::Numbers<T>>();
          numbers.scores.resize(all.rows * all.shown);
          numbers.p.resize(all.rows * maps.size() * all.shown);
          numbers.rest.resize(all.rows * maps.size());
          numbers.maximum.resize(all.rows * maps.size());
          in_parallel(table.rows, [&](std::size_t begin, std::size_t end) {
            std::vector<T> p(table.cols), support(table.cols);
            for (std::size_t r = begin; r < end; ++r) {
              if (r >= all.first && r < all.first + all.rows) {
                const std::vector<double> x = scores_of(table, r);
                const std::vector<std::size_t> shown = shown_classes(x);
                for (std::size_t k = 0; k < shown.size(); ++k) {
                  all.classes[(r - all.first) * all.shown + k] = static_cast<std::uint32_t>(shown[k]);
                  numbers.scores[(r - all.first) * all.shown + k] = static_cast<T>(x[shown[k]]);
                }
              }
              const isentropic::MatrixView<const T> x(values.data() + r * table.cols, 1, table.cols);
              for (std::size_t m = 0; m < maps.size(); ++m) summarise<T>(maps[m], x, p, support, r, m, maps.size(), all);
              ++done;
              if (const std::unique_lock lock(line, std::try_to_lock); lock) progress.update(done);
            }
          });
        }
      },
      table.values);

  constexpr std::size_t kBins = 24;
  for (std::size_t m = 0; m < maps.size(); ++m) {
    Histogram histogram;
    histogram.top = std::log(static_cast<double>(std::max<std::size_t>(table.cols, 1)));
    histogram.counts.resize(kBins);
    for (std::size_t r = 0; r < table.rows; ++r) {
      const double entropy = all.entropy[r * maps.size() + m];
      if (std::isnan(entropy)) {
        ++histogram.undefined;
      } else {
        const double place = histogram.top > 0 ? entropy / histogram.top * kBins : 0;
        ++histogram.counts[static_cast<std::size_t>(std::clamp(place, 0.0, kBins - 1.0))];
      }
    }
    all.histograms.push_back(std::move(histogram));
  }
  return all;
}

std::vector<Distances> row_distances(const Table& table, std::size_t row, const std::vector<isentropic::Map>& maps) {
  constexpr std::size_t kMostRows = 40;
  constexpr double kMostWork = 1.5e8;  // about a second
  const std::size_t n = table.cols;
  const double affordable = std::sqrt(kMostWork / static_cast<double>(std::max<std::size_t>(1, maps.size() * n)));
  const std::size_t count = std::min(table.rows, static_cast<std::size_t>(std::clamp<double>(affordable, 2, kMostRows)));
  const std::size_t first = std::min(row - std::min(row, count / 2), table.rows - count);
  std::vector<Distances> all;
  for (const isentropic::Map& map : maps) {
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
    in_parallel(rows, [&](std::size_t begin, std::size_t end) {
      std::vector<double> p_support(n), q_support(n);
      for (std::size_t r = begin; r < end; ++r) {
        const double* const q = p.data() + r * n;
        for (std::size_t s = r; s < rows; ++s) {  // each pair once: all three are symmetric
          const double* const other = p.data() + s * n;
          double apart = 0, ahead = 0, moved = 0, js = 0;
          std::size_t either = 0;  // classes that one of both has
          for (std::size_t i = 0; i < n; ++i) {
            const double difference = other[i] - q[i];
            apart += std::abs(difference);
            moved += std::abs(ahead);
            ahead += difference;
            p_support[either] = other[i];
            q_support[either] = q[i];
            either += other[i] + q[i] != 0;
          }
          isentropic::measure(isentropic::JsDistance{.normalize = true},
                              isentropic::MatrixView<const double>(p_support.data(), 1, either), {q_support.data(), 1, either},
                              std::span<double>(&js, 1));
          for (const std::size_t at : {defined[r] * count + defined[s], defined[s] * count + defined[r]}) {
            distances.js_distance[at] = js;
            distances.total_variation[at] = apart / 2;
            distances.wasserstein[at] = moved;
          }
        }
      }
    });
    all.push_back(std::move(distances));
  }
  return all;
}

namespace {

// The format of a report, from the name of its file.
std::string format_of(const std::string& out) {
  if (files::is_stream(out)) return "text";
  std::string name = out;
  if (const files::Packing* packing = files::packing_of(name)) name.resize(name.size() - packing->ending.size());
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool no_ending = name.find('.', name.rfind('/') + 1) == name.npos;  // rfind gives npos, which is -1, without a slash
  if (name.ends_with(".txt") || no_ending) return "text";
  if (name.ends_with(".json")) return "json";
  if (name.ends_with(".html")) return "html";
  bad_input("compare: -o must end in .txt, .json or .html, got '{}'; --format names the format", out);
}

// The row of the file with this number or, if `text` is not a number, with this label; the first one that was read without it.
std::size_t row_of(const Table& table, std::string_view file, std::size_t before, const std::optional<std::string>& wanted) {
  if (!wanted) return before;
  const std::string& text = *wanted;
  const bool number = text.find_first_not_of("+-.0123456789") == text.npos;
  const auto found = std::find(table.labels.begin(), table.labels.end(), text);
  if (!number && found != table.labels.end()) return before + static_cast<std::size_t>(found - table.labels.begin());
  if (!number && !table.labels.empty()) bad_input("{}: there is no row with the label {}", file, files::in_quotes(text));
  std::size_t row = 0;
  set_number(row, "--row", text);
  return row;
}

}  // namespace

void add_compare(CLI::App& app, Program& program) {
  struct Options {
    std::optional<std::string> row;
    std::string maps;
    std::optional<double> entropy;
    std::string format;
    bool still = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("compare", "One row of scores under several maps, side by side as bars.");
  add_input_options(command, program.files);
  command.add_option("--row", options->row, "The row of FILE, counted from 0, or its label (default: the first)")
      ->option_text("ROW");
  command
      .add_option_function<std::string>(
          "--maps",
          [options](const std::string& text) {
            if (text.empty()) bad_input("compare: --maps must not be empty");
            options->maps = text;
          },
          "Names of maps, separated by commas (default: all)")
      ->option_text("NAME,...");
  add_number(command, "--entropy", options->entropy, "Show entropy_normalize at this entropy, in nats");
  add_choice(
      command, "--format", options->format, {"text", "json", "html"},
      "text: bars to read; json: numbers to process; html: a page for all rows (default: by the name of OUT, else text)");
  add_flag(command, "--static", options->still,
           "Leave the library out of the page: it is 0.7 MB smaller, and its maps cannot be changed");
  add_output_option(command, program.files, "File to write: .txt, .json, .html (default: standard output)");
  command.footer(
      "Example: isentropic compare scores.csv --row 3 --maps softmax,sparsemax\n"
      "         isentropic compare scores.csv -o report.html\n" +
      std::string(kEverywhere));
  command.callback([options, &program] {
    program.action = [options, &files = program.files] {
      if (options->format.empty()) options->format = format_of(files.out);
      if (options->still && options->format != "html") bad_input("compare: --static is for pages, --format html");
      const std::vector<isentropic::Map> maps = maps_by_name(options->maps, options->entropy);
      const Table table = widened(read_table(files));
      const std::string name = files::input_name(files.in);
      const std::size_t before = files.reading.first_row;
      Comparison comparison = compare(table, name, before, row_of(table, name, before, options->row), maps);
      Overview all;
      if (options->format != "text") {
        all = overview(table, comparison.row, maps, files.quiet);
        comparison.histograms = all.histograms;
        comparison.distances = row_distances(table, comparison.row, maps);
      }
      const std::size_t width = files::is_standard(files.out) ? terminal_width() : 80;
      const std::string report = options->format == "json" ? comparison_json(comparison)
                                 : options->format == "html"
                                     ? comparison_html(comparison, table, all, options->still ? std::nullopt : explorer_page())
                                     : comparison_text(comparison, width, locale_is_utf8());
      const bool colored =
          options->format == "text" && files::is_standard(files.out) && wants_color(files::sys::standard_output);
      files::write_output(files.out, colored ? with_colored_bars(report) : report);
    };
  });
}

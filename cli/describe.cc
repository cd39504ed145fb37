// isentropic describe: several measures of each row in one pass, beside the columns of the file.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "operation.h"
#include "replies.h"

namespace {

using isentropic::Input;
using isentropic::Measure;

// A statistic that is not a measure of the registry. It is computed from the probabilities, whose sum may be any, or if `given`
// from those in FILE, which are not divided by their sum.
struct Statistic {
  std::string_view name, meaning;
  double (*of)(std::span<const double> p);
  bool given = false;
};

double largest(std::span<const double> p) { return *std::max_element(p.begin(), p.end()); }

double margin(std::span<const double> p) {
  double first = 0, second = 0;
  for (const double one : p) {
    second = std::max(second, std::min(one, first));
    first = std::max(first, one);
  }
  return first - second;
}

double support(std::span<const double> p) {
  return static_cast<double>(std::count_if(p.begin(), p.end(), [](double one) { return one > 0; }));
}

double argmax(std::span<const double> p) { return static_cast<double>(std::max_element(p.begin(), p.end()) - p.begin()); }

double mass(std::span<const double> p) { return std::accumulate(p.begin(), p.end(), 0.0); }

constexpr Statistic kStatistics[] = {
    {"max_probability", "the largest probability", largest},     {"margin", "the difference of the two largest", margin},
    {"support", "the number of those above 0", support},         {"argmax", "the index of the largest, from 0", argmax},
    {"mass", "the sum, before it is divided by it", mass, true},
};

// The measures without --measures.
constexpr const char* kUsual[] = {"entropy", "perplexity", "max_probability", "margin", "effective_support"};

struct Options {
  std::string measures;
  std::string input;
  std::string by;
  bool normalize = false;
  bool replies = false;  // the rows are log-probabilities of candidates, which need not sum to 1
};

// Below this mass of a token's candidates, the measures say little of its distribution.
constexpr double kMostOfIt = 0.9;

// A column of the result.
struct Column {
  std::string name;
  const Statistic* statistic = nullptr;  // or a measure
  Measure measure;
};

std::string known_names() {
  std::string names = "effective_support";
  for (const isentropic::OperationInfo& info : isentropic::family_info<Measure>().operations) {
    const bool required = std::ranges::any_of(info.params, [](const isentropic::ParamInfo& param) { return param.required; });
    names += fmt::format(", {}{}", info.name, required ? "=ALPHA" : "");
  }
  for (const Statistic& one : kStatistics) names += fmt::format(", {}", one.name);
  return names;
}

// The number of equal probabilities with the same entropy: the perplexity, in any base.
constexpr std::string_view kEffectiveSupport = "effective_support";

Measure measure_of(const std::string& item, const std::string& name, const Options& options) {
  const std::string of = name == kEffectiveSupport ? "perplexity" : name;
  const isentropic::OperationInfo* const info = find_operation(isentropic::family_info<Measure>(), of);
  if (info == nullptr) bad_input("describe: --measures must be among {}, got '{}'", known_names(), name);
  Arguments arguments(*info);
  const bool takes_value = std::ranges::any_of(info->params, [](const isentropic::ParamInfo& param) { return param.required; });
  if (!takes_value && item.size() != name.size()) bad_input("describe: --measures: {} takes no value", name);
  const std::pair<std::string_view, isentropic::ParamValue> shared_values[] = {{"input", options.input},
                                                                               {"normalize", options.normalize}};
  for (std::size_t i = 0; i < info->params.size(); ++i) {
    const isentropic::ParamInfo& param = info->params[i];
    for (const auto& [shared, value] : shared_values) {
      if (param.name == shared) arguments.values[i] = value;
    }
    if (!param.required) continue;
    if (item.size() == name.size()) bad_input("describe: --measures: {} needs a value, as in {}=2", name, name);
    set_number(arguments.values[i].emplace<double>(), fmt::format("describe: --measures: {} of {}", param.name, name),
               item.substr(name.size() + 1));
  }
  return made<Measure>(arguments);
}

std::vector<Column> columns_of(const Options& options) {
  std::vector<Column> columns;
  for (std::size_t at = 0; at <= options.measures.size();) {
    const std::string item = options.measures.substr(at, options.measures.find(',', at) - at);
    at += item.size() + 1;
    const std::string name = item.substr(0, item.find('='));
    const auto* const statistic =
        std::find_if(std::begin(kStatistics), std::end(kStatistics), [&](const Statistic& one) { return one.name == name; });
    if (statistic != std::end(kStatistics)) {
      if (name != item) bad_input("describe: --measures: {} takes no value", name);
      if (statistic->given && options.input == "scores" && !options.replies) {
        bad_input("describe: --measures: {} is of probabilities, and --input scores has none", name);
      }
      columns.push_back({item, statistic, {}});
    } else {
      columns.push_back({item, nullptr, measure_of(item, name, options)});
    }
  }
  return columns;
}

// The probabilities that FILE holds.
std::vector<double> given_probabilities(const Options& options, const Table& table) {
  std::vector<double> p = as_doubles(table);
  if (options.input != "probs") {
    for (double& one : p) one = std::exp(one);
  }
  return p;
}

// The rows as probabilities. The entropy checks them and refuses a row that is not a distribution.
std::vector<double> probabilities(const Options& options, const Table& table) {
  std::vector<double> p = as_doubles(table);
  const isentropic::MatrixView<double> rows = view(p, table.rows, table.cols);
  if (options.input == "probs") {
    for (std::size_t r = 0; options.normalize && r < table.rows; ++r) {
      double* const row = p.data() + r * table.cols;
      double sum = std::accumulate(row, row + table.cols, 0.0);
      if (std::isinf(sum)) {  // of finite entries it is not beyond the range if they are smaller
        for (std::size_t c = 0; c < table.cols; ++c) row[c] *= 0x1p-64;
        sum = std::accumulate(row, row + table.cols, 0.0);
      }
      for (std::size_t c = 0; c < table.cols; ++c) row[c] /= sum;
    }
  } else if (options.input == "log_probs" && !options.normalize) {
    for (double& one : p) one = std::exp(one);
  } else {
    isentropic::apply(isentropic::Map(isentropic::Softmax{}), isentropic::MatrixView<const double>(rows), rows);
  }
  return p;
}

// How many tokens have candidates, and of how many these have little of the probability.
struct Counts {
  std::atomic<std::size_t> tokens = 0, sparse = 0;
};

Table described(const Options& options, const std::vector<Column>& columns, Counts& counts, Table table) {
  const std::size_t n = table.rows;
  std::vector<double> result(n * columns.size()), value(n);
  std::vector<double> p, given;
  const bool statistics = std::ranges::any_of(columns, [](const Column& column) { return column.statistic != nullptr; });
  const auto measured = [&](const Measure& op) {
    std::visit(
        [&]<class T>(const std::vector<T>& values) {
          isentropic::measure(op, isentropic::MatrixView<const T>(values.data(), n, table.cols), std::span<double>(value));
        },
        table.values);
  };
  if (statistics) {
    measured(measure_of("entropy", "entropy", options));
    p = probabilities(options, table);
  }
  if (statistics || options.replies) given = given_probabilities(options, table);
  for (std::size_t r = 0; r < n && options.replies; ++r) {
    ++counts.tokens;
    counts.sparse += mass({given.data() + r * table.cols, table.cols}) < kMostOfIt;
  }
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].statistic == nullptr) measured(columns[c].measure);
    for (std::size_t r = 0; r < n; ++r) {
      double& to = result[r * columns.size() + c];
      to = value[r];
      if (columns[c].statistic == nullptr) continue;
      const std::vector<double>& of = columns[c].statistic->given ? given : p;
      const std::span<const double> row(of.data() + r * table.cols, table.cols);
      const bool undefined = row.empty() || std::ranges::any_of(row, [](double one) { return std::isnan(one); });
      to = undefined ? std::numeric_limits<double>::quiet_NaN() : columns[c].statistic->of(row);
    }
  }
  if (sizeof_number(table) == sizeof(double)) {
    table.values = std::move(result);
  } else {
    table.values = std::vector<float>(result.begin(), result.end());
  }
  table.cols = table.shape.back() = columns.size();
  if (table.header.empty() && table.label_column && table.label_header.empty()) table.label_header = "label";
  table.header.clear();
  for (const Column& column : columns) table.header.push_back(column.name);
  // The measures follow the kept columns.
  if (table.label_column) table.label_column = 0;
  return table;
}

bool is_page(const Files& files) {
  std::string name = files.out;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return files.out_format.empty() && name.ends_with(".html");
}

void run(Options options, const Files& files) {
  const bool tokens = files.in_format == "logprobs", grouped = !options.by.empty(), page = is_page(files);
  options.replies = tokens && options.input.empty();
  if (!tokens && grouped) bad_input("describe: --by reply is for replies of servers, --format-in logprobs");
  if (!tokens && page) {
    bad_input("{}: a page is of the text of replies, --format-in logprobs; compare -o {} draws rows of scores", files.out,
              files.out);
  }
  if (grouped && page) bad_input("{}: the page shows the tokens of all replies; --by reply is for tables", files.out);
  if (options.measures.empty()) options.measures = grouped ? kUsual[0] : fmt::format("{}", fmt::join(kUsual, ","));
  // log_probs, normalized, where NaN is a missing row
  if (options.input.empty()) options.input = options.replies ? "scores" : "probs";
  const std::vector<Column> columns = columns_of(options);
  Counts counts;
  const auto at_end = [&](std::size_t) {
    if (counts.sparse == 0) return;
    note(files, fmt::format("for {} of {} tokens the candidates have less than {} of the probability; the measures are of the "
                            "candidates alone (--measures mass is their probability)",
                            counts.sparse.load(), counts.tokens.load(), kMostOfIt));
  };
  if (page) {
    const Table table = read_table(files);
    files::write_output(files.out,
                        replies_html(files::input_name(files.in), table, described(options, columns, counts, table)));
    return at_end(table.rows);
  }
  stream_rows(
      files,
      [&](Table table) {
        Table result = described(options, columns, counts, std::move(table));
        if (grouped) return by_reply(std::move(result));
        if (tokens) keep_tokens(result, files.digits);
        return result;
      },
      at_end);
}

}  // namespace

void add_describe(CLI::App& app, Program& program) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("describe", "Several measures of each row in one pass, beside its columns.");
  command
      .add_option_function<std::string>(
          "--measures",
          [options](const std::string& text) {
            if (text.empty()) bad_input("describe: --measures must be among {}, got ''", known_names());
            options->measures = text;
          },
          fmt::format("From {} (default {}; with --by reply, entropy)", known_names(), fmt::join(kUsual, ", ")))
      ->option_text("LIST");
  command
      .add_option_function<std::string>(
          "--keep", [&program](const std::string& text) { program.files.reading.keep = text; },
          "Columns of a .csv or .tsv to copy to the result, as in a,c-f; they do not count as scores; labels are kept anyway")
      ->option_text("COLUMNS");
  add_choice(command, "--input", options->input, {"probs", "log_probs", "scores"},
             "What FILE holds (default probs; with --format-in logprobs: log_probs, normalized)");
  add_flag(command, "--normalize", options->normalize, "Divide each row by its sum first");
  add_choice(command, "--by", options->by, {"reply"},
             "One row for each reply of --format-in logprobs: its number of tokens, the mean and the lowest of their logprobs, "
             "the means of --measures");
  add_input_options(command, program.files, "Probabilities");
  add_more_files(command, program.files);
  add_output_option(command, program.files);
  command.footer(fmt::format(
      "margin is the difference of the two largest probabilities, effective_support is e^entropy.\n"
      "With --format-in logprobs each token has a row: reply and position, both counted from 0; logprob, the log-probability "
      "of this token, which was drawn; rank, its place among all tokens by probability, from 1. A cell of logprob or rank is "
      "empty if the server does not give it, as for the rank of a token that is not among the listed candidates.\n"
      "-o page.html writes the text as a page, each token coloured by its surprise, -logprob, with its candidates.\n"
      "Example: isentropic describe reply.json --format-in logprobs\n"
      "Example: isentropic describe reply.json --format-in logprobs --by reply\n"
      "Example: isentropic describe scores.csv --input scores --measures entropy,margin,renyi_entropy=2 --keep id\n{}",
      kEverywhere));
  command.callback([options, &program] { program.action = [options, &files = program.files] { run(*options, files); }; });
}

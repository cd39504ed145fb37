// The command line: which command, on which file, with which parameters.

#include <entropic/entropic.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>

#include "compare.h"
#include "families.h"
#include "file.h"
#include "format.h"
#include "list.h"
#include "terminal.h"

namespace {

// Where a command reads and writes.
struct Files {
  std::string in;
  std::string in_format;
  std::string out;
  ReadOptions reading;
  bool quiet = false;
};

// The format that the name of a file ends in, or nullptr.
const Format* format_by_ending(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == path.npos) return nullptr;
  std::string ending(path.substr(dot + 1));
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.name == ending; });
  return found == std::end(kFormats) ? nullptr : found;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::string format_endings() { return fmt::format(".{}", fmt::join(format_names(), ", .")); }

const Format& output_format(const Files& files) {
  if (is_stream(files.out)) return kFormats[0];
  const Format* format = format_by_ending(files.out);
  if (format == nullptr) bad_input("{}: the name must end in one of {}", files.out, format_endings());
  return *format;
}

Table read_table(const Files& files) {
  if (is_standard(files.in) && !files.quiet && ::isatty(STDIN_FILENO)) {
    fmt::print(stderr, "entropic: reading scores from the keyboard; Ctrl-D ends them\n");
  }
  const std::string bytes = read_bytes(files.in);
  const Format* format = !files.in_format.empty() ? format_by_ending("." + files.in_format) : format_by_ending(files.in);
  if (format == nullptr && is_stream(files.in)) format = &kFormats[0];
  if (format == nullptr) {
    bad_input("{}: the name ends in none of {}; say which it is with --format-in", files.in, format_endings());
  }
  return format->read(bytes, input_name(files.in), files.reading);
}

template <class T>
entropic::MatrixView<T> view(std::vector<T>& values, std::size_t rows, std::size_t cols) {
  return {values.data(), rows, cols};
}

// The table with its rows x replaced by what calculate(x, x) puts there.
Table in_place(Table table, const auto& calculate) {
  std::visit(
      [&](auto& values) {
        const auto x = view(values, table.rows, table.cols);
        calculate(x, x);
      },
      table.values);
  return table;
}

// What each kind of operation makes of a table. Results stand where the scores stood, unless they have another shape.
Table evaluated(const entropic::Map& map, Table table) {
  return in_place(std::move(table), [&](auto x, auto p) { entropic::apply(map, x, p); });
}

Table evaluated(const entropic::LogSoftmax& options, Table table) {
  return in_place(std::move(table), [&](auto x, auto y) { entropic::log_softmax(x, y, options); });
}

Table evaluated(const entropic::PowerTransform& options, Table table) {
  return in_place(std::move(table), [&](auto p, auto q) { entropic::power_transform(p, q, options); });
}

Table evaluated(const entropic::LogSumExp& options, Table table) {
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        std::vector<T> y(table.rows);
        entropic::logsumexp(view(values, table.rows, table.cols), view(y, table.rows, 1), options);
        values = std::move(y);
      },
      table.values);
  table.cols = 1;
  table.shape.pop_back();
  if (!table.header.empty()) table.header = {std::string(entropic::LogSumExp::kDescription.name)};
  return table;
}

// gamma, the entropy reached and the status, with a header whether or not the scores have one.
Table evaluated(const entropic::GammaForEntropy& options, Table table) {
  std::vector<double> gamma(table.rows), entropy(table.rows), columns;
  std::vector<entropic::GammaStatus> status(table.rows);
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        const entropic::MatrixView<const T> x = view(values, table.rows, table.cols);
        entropic::gamma_for_entropy(x, gamma, entropy, status, options);
      },
      table.values);
  for (std::size_t r = 0; r < table.rows; ++r) {
    columns.push_back(gamma[r]);
    columns.push_back(entropy[r]);
    table.notes.emplace_back(entropic::kGammaStatusNames[static_cast<std::size_t>(status[r])]);
  }
  table.values = std::move(columns);
  table.cols = table.shape.back() = 2;
  if (table.header.empty() && table.label_column) table.label_header = "label";
  table.header = {"gamma", "entropy"};
  table.note_header = "status";
  return table;
}

void set_number(std::size_t& value, std::string_view option, const std::string& text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    bad_input("{} must be a whole number of at least 0, got '{}'", option, text);
  }
}

void set_number(std::int64_t& value, std::string_view option, const std::string& text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) bad_input("{} must be a whole number, got '{}'", option, text);
}

void set_number(double& value, std::string_view option, const std::string& text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) bad_input("{} must be a number, got '{}'", option, text);
}

void set_number(std::optional<double>& value, std::string_view option, const std::string& text) {
  set_number(value.emplace(), option, text);
}

// The name of an option and, where it has underscores, the same with dashes.
std::string spellings(const std::string& name) {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed == name ? name : name + "," + dashed;
}

// An option that takes a number. CLI11's own conversion lets -2 wrap around and reads 010 as eight.
template <class Value>
CLI::Option* add_number(CLI::App& command, const std::string& name, Value& value, const std::string& meaning) {
  return command
      .add_option_function<std::string>(
          spellings(name), [&value, name](const std::string& text) { set_number(value, name, text); }, meaning)
      ->option_text("NUMBER");
}

// An option that takes one of some words: choose(index of the word).
CLI::Option* add_choice(CLI::App& command, const std::string& name, const std::vector<std::string>& choices,
                        const std::string& meaning, std::function<void(std::size_t)> choose) {
  const std::string of_command = command.get_parent() == nullptr ? "" : command.get_name() + ": ";
  const auto set = [choose, name, choices, of_command](const std::string& text) {
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found == choices.end()) {
      const auto last = choices.end() - 1;
      const std::string all_but_last = fmt::format("{}", fmt::join(choices.begin(), last, ", "));
      bad_input("{}{} must be {}{}{}, got '{}'", of_command, name, all_but_last, all_but_last.empty() ? "" : " or ", *last,
                text);
    }
    choose(static_cast<std::size_t>(found - choices.begin()));
  };
  return command.add_option_function<std::string>(name, set, meaning)->option_text(fmt::format("{}", fmt::join(choices, "|")));
}

// The same where the word itself is wanted.
CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value, const std::vector<std::string>& choices,
                        const std::string& meaning) {
  return add_choice(command, name, choices, meaning, [&value, choices](std::size_t i) { value = choices[i]; });
}

// An option for a parameter of an operation.
template <class Op, class Value>
CLI::Option* add_param(CLI::App& command, const entropic::Param<Op, Value>& param, Value& value) {
  const std::string name = fmt::format("--{}", param.name);
  if constexpr (std::is_enum_v<Value>) {
    return add_choice(command, name, {param.names.begin(), param.names.end()},
                      fmt::format("{} (default {})", param.meaning, default_text(param)),
                      [&value](std::size_t i) { value = static_cast<Value>(i); });
  } else {
    return add_number(command, name, value,
                      fmt::format("{} ({}; default {})", param.meaning, range_text(param), default_text(param)));
  }
}

// An option that takes the name of a file, or - for `standard`. An empty name is what a forgotten variable in a script gives.
CLI::Option* add_path(CLI::App& command, const std::string& name, std::string& path, std::string_view standard,
                      const std::string& meaning) {
  const auto set = [&path, &command, name, standard](const std::string& text) {
    if (text.empty()) bad_input("{}: {} must be the name of a file, or - for {}, got ''", command.get_name(), name, standard);
    path = text;
  };
  return command.add_option_function<std::string>(name, set, meaning);
}

void add_input_options(CLI::App& command, Files& files) {
  add_path(command, "FILE", files.in, "standard input",
           fmt::format("Scores: {}; - or nothing is standard input, as CSV", format_endings()))
      ->option_text(" ");
  add_choice(command, "--format-in", files.in_format, format_names(), "What FILE is, whatever its name");
  command
      .add_option_function<std::string>(
          "--labels",
          [&files](const std::string& text) {
            set_number(files.reading.labels, "--labels", text);
            if (files.reading.labels == 0) bad_input("--labels counts columns from 1, got 0");
          },
          "Column of labels, counted from 1 (default: the one without a number in the first row of scores)")
      ->option_text("NUMBER");
}

constexpr std::string_view kEverywhere = "--threads, --simd and --quiet work here too: entropic --help";

// What the parsed arguments ask for.
using Action = std::function<void()>;

// What must be given besides the file, for the example.
template <class Op>
std::string example_parameters() {
  std::string text;
  entropic::for_each_param<Op>([&]<class Value>(const entropic::Param<Op, Value>& param) {
    if constexpr (!std::is_enum_v<Value>) {
      if (param.typical) text += fmt::format(" --{} {}", param.name, *param.typical);
    }
  });
  return text;
}

template <class Op>
void add_operation(CLI::App& app, std::string_view family, Files& files, Action& action) {
  const auto op = std::make_shared<Op>();
  const entropic::Description& description = Op::kDescription;
  CLI::App& command = *app.add_subcommand(command_name<Op>(), std::string(description.summary));
  if (command.get_name() != description.name) command.alias(std::string(description.name));
  command.group(std::string(family));
  entropic::for_each_param<Op>([&](const auto& param) {
    add_param(command, param, (*op).*(param.member))->group("Parameters")->required(param.required);
  });
  add_input_options(command, files);
  add_path(command, "-o", files.out, "standard output",
           fmt::format("File to write: {} (default: standard output, as CSV); .npy drops header and labels", format_endings()))
      ->option_text("OUT");
  constexpr bool kPowers = std::is_same_v<Op, entropic::PowerTransform>,
                 kGammas = std::is_same_v<Op, entropic::GammaForEntropy>;
  command.footer(
      fmt::format("{}\n{}\nExample: entropic {} {}.csv{} -o result.{}\n{}", description.formula,
                  kGammas ? "Out come gamma, the entropy reached and a status; an .npy has no place for the status.\n" : "",
                  command.get_name(), kPowers ? "probabilities" : "scores", example_parameters<Op>(), kGammas ? "csv" : "npy",
                  kEverywhere));
  command.callback([op, &files, &action] {
    action = [op, &files] {
      const Format& format = output_format(files);
      const Table result = evaluated(*op, read_table(files));
      write_output(files.out, [&](const Sink& sink) { format.write(result, sink); });
    };
  });
}

void add_list(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("list", "Every operation with its parameters.");
  const auto markdown = std::make_shared<bool>(false);
  command.add_flag("--markdown", *markdown, "As docs/operations.md has it");
  command.footer("Example: entropic list");
  command.callback([markdown, &action] {
    action = [markdown] { write_output("", [&](const Sink& sink) { sink(*markdown ? list_markdown() : list_text()); }); };
  });
}

void add_compare(CLI::App& app, Files& files, Action& action) {
  struct Options {
    std::size_t row = 0;
    std::string maps;
    std::optional<double> entropy;
    std::string format = "text";
  };
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("compare", "One row of scores under the maps side by side, as bars.");
  add_input_options(command, files);
  add_number(command, "--row", options->row, "The row, counted from 0 (default 0)");
  command.add_option("--maps", options->maps, "Names of maps, separated by commas (default: all)")->option_text("NAME,...");
  add_number(command, "--entropy", options->entropy, "Show entropy_normalize at this entropy, in nats");
  add_choice(command, "--format", options->format, {"text", "json"}, "Bars to read, or the numbers to process (default text)");
  add_path(command, "-o", files.out, "standard output", "File to write (default: standard output)")->option_text("OUT");
  command.footer("Example: entropic compare scores.csv --row 3 --maps softmax,sparsemax\n" + std::string(kEverywhere));
  command.callback([options, &files, &action] {
    action = [options, &files] {
      const std::vector<entropic::Map> maps = maps_by_name(options->maps, options->entropy);
      const Comparison comparison = compare(read_table(files), input_name(files.in), options->row, maps);
      const std::size_t width = is_standard(files.out) ? terminal_width() : 80;
      const std::string report =
          options->format == "json" ? comparison_json(comparison) : comparison_text(comparison, width, locale_is_utf8());
      write_output(files.out, [&](const Sink& sink) { sink(report); });
    };
  });
}

// Turns what the parser found into a sentence that names the argument.
[[noreturn]] void explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const std::string help = commands.empty() ? "entropic --help" : fmt::format("entropic {} --help", commands[0]->get_name());
  // CLI11's words start with the option's name and a colon.
  const std::string_view what = error.what();
  const std::string option(what.substr(0, what.find(':')));
  const std::string of_command = commands.empty() ? "" : commands[0]->get_name() + ": ";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const CLI::Option* found = commands.empty() ? nullptr : commands[0]->get_option_no_throw(option);
    if (found == nullptr) found = app.get_option_no_throw(option);
    const bool repeated = found != nullptr && found->count() > 1;
    bad_input("{}{} {}; see {}", of_command, option, repeated ? "is given more than once" : "needs a value", help);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    bad_input("{}flags such as --quiet take no value; see {}", of_command, help);  // all else converts by itself
  }
  std::vector<std::string> rest = app.remaining(true);
  std::stable_partition(rest.begin(), rest.end(), [](const std::string& argument) { return argument.starts_with("--"); });
  if (commands.empty()) {
    if (rest.empty()) bad_input("which command? See {}", help);
    bad_input("there is no command '{}'; see {}", rest[0], help);
  }
  if (!rest.empty()) bad_input("{}: unexpected argument '{}'; see {}", commands[0]->get_name(), rest[0], help);
  bad_input("{}; see {}", error.what(), help);
}

int run(int argc, char** argv) {
  CLI::App app("Scores to distributions: softmax, sparsemax and other maps over the rows of a file.", "entropic");
  app.set_version_flag("--version", "entropic " ENTROPIC_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.get_formatter()->column_width(28);
  app.footer(
      "Examples:\n"
      "  entropic softmax scores.csv --temperature 0.5 -o probabilities.csv\n"
      "  entropic compare scores.npy --row 3\n"
      "  cat scores.csv | entropic sparsemax | head\n\n"
      "A row is the last axis of an .npy, a line of a .csv or .tsv. Messages name a place as file:line:cell, from 1.\n"
      "Exit status: 0 done, 1 impossible with this data, 2 bad input or usage.");

  Files files;
  Action action;
  std::size_t threads = 0;
  std::string simd;
  add_number(app, "--threads", threads, "At most so many threads; 0: one per processor. Results do not depend on it");
  add_choice(app, "--simd", simd, entropic::simd_targets(), "Run on this SIMD target, for comparing");
  app.add_flag("--quiet", files.quiet, "Nothing but errors on standard error");

  add_list(app, action);
  add_compare(app, files, action);
  for_each_family([&]<class Family>(FamilyTitle title, std::type_identity<Family>) {
    entropic::for_each_operation<Family>(
        [&]<class Op>(std::type_identity<Op>) { add_operation<Op>(app, title.name, files, action); });
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    explain(app, error);
  }
  if (threads > 0) entropic::set_num_threads(threads);
  if (!simd.empty()) entropic::force_simd_target(simd);
  action();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const BadInput& error) {
    fmt::print(stderr, "entropic: {}\n", error.what());
    return 2;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "entropic: {}\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "entropic: not enough memory\n");
  } catch (const std::length_error&) {  // a size beyond what a container can hold
    fmt::print(stderr, "entropic: not enough memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "entropic: {}\n", error.what());
  }
  return 1;
}

// Losses and calibration as commands: scores against targets. The targets are the labels in the file or a second file.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "commands.h"
#include "files/formatted.h"
#include "files/packed.h"
#include "files/text.h"
#include "operation.h"
#include "reliability_html.h"

namespace {

using isentropic::MatrixView;
using isentropic::TargetKind;

// The targets of the rows.
struct Targets {
  SecondFile file{"TARGET"};
  std::vector<double> numbers = {};          // all numbers of TARGET
  std::optional<std::int64_t> ignored = {};  // rows with this class have the loss 0
};

bool may_be_classes(TargetKind kind) { return kind == TargetKind::classes || kind == TargetKind::classes_or_distributions; }

// All rows of TARGET.
const Table& table_of(Targets& targets, const Files& files, const Table& scores, TargetKind kind) try {
  const Table& all = targets.file.table(files, scores, [&](Table& table) {
    // An array without the last axis of the scores holds one class for each row.
    const std::vector<std::size_t> lead(scores.shape.begin(), scores.shape.end() - 1);
    if (table.shape.size() == 1 || (lead.size() > 1 && table.shape == lead)) {
      table.rows = std::accumulate(table.shape.begin(), table.shape.end(), std::size_t{1}, std::multiplies<>());
      table.cols = 1;
    }
    // The library checks distributions with the tolerance of the scores' type; those of another type have their own.
    const bool soft = kind == TargetKind::classes_or_distributions;
    const bool converted = soft && table.cols > 1 && table.values.index() != scores.values.index();
    targets.numbers = converted ? as_distributions(table) : as_doubles(table);
  });
  targets.file.check_missing(files);
  return all;
} catch (const files::BadInput& error) {
  const std::string message = error.what();
  if (!may_be_classes(kind) || !message.ends_with("is not a number")) throw;
  bad_input("{} (TARGET has class numbers, from 0; names of classes can be the label column of FILE)", message);
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  double number = 0;
  const bool is_number = files::read_number(text, number) == files::Reading::number;
  if (!is_number || !(std::abs(number) < 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// Whether a label such as 1 means different classes as a name and as a number: some column is called by another's number.
bool names_are_other_numbers(const Table& scores) {
  for (std::size_t c = 0; c < scores.header.size(); ++c) {
    const std::optional<std::int64_t> number = whole_number(scores.header[c]);
    const auto place = static_cast<std::int64_t>(c);
    if (number && *number >= 0 && *number < static_cast<std::int64_t>(scores.cols) && *number != place) return true;
  }
  return false;
}

// The class of a label, which is the name of a column or a class number from 0. Where these differ all labels are names.
std::int64_t class_of(const Table& scores, std::size_t row, const Files& files, bool names_only) {
  const std::string& label = scores.labels[row];
  const auto refuse = [&](const std::string& what) {
    Origin(scores, files.in).refuse(what, {.row = row}, "; give a file of targets as TARGET", true);
  };
  const auto named = std::find(scores.header.begin(), scores.header.end(), label);
  if (named != scores.header.end()) {
    if (std::find(named + 1, scores.header.end(), label) != scores.header.end()) {
      refuse(fmt::format("several columns have the name '{}' of the label", label));
    }
    return named - scores.header.begin();
  }
  const std::optional<std::int64_t> number = whole_number(label);
  if (number && (!names_only || *number < 0 || *number >= static_cast<std::int64_t>(scores.cols))) return *number;
  refuse(number ? fmt::format(
                      "the label '{}' is not the name of a column; a class number counted from 0 would mean another column "
                      "than the same name",
                      label)
                : fmt::format("the label '{}' is neither the name of a column nor a class counted from 0", label));
  return 0;
}

// The classes of these rows: their labels, or the one column of TARGET.
std::vector<std::int64_t> classes_of(Targets& targets, const Table& scores, const Files& files, std::string_view name) {
  std::vector<std::int64_t> classes(scores.rows);
  if (targets.file.path.empty()) {
    if (!scores.label_column) {
      bad_input("{}: {} has no labels; give a file of targets as TARGET, --labels COLUMN, or --target-key NAME of an array",
                name, files::input_name(files.in));
    }
    const bool names_only = names_are_other_numbers(scores);
    for (std::size_t r = 0; r < scores.rows; ++r) classes[r] = class_of(scores, r, files, names_only);
    return classes;
  }
  table_of(targets, files, scores, TargetKind::classes);
  targets.file.check_rows(files, scores);
  for (std::size_t r = 0; r < scores.rows; ++r) {
    const double number = targets.numbers[scores.first_row + r];
    if (!(std::abs(number) < 0x1p53) || number != std::floor(number)) {
      Origin(targets.file.all(), targets.file.path)
          .refuse(files::formatted("a class must be a whole number, got {}", number), {.row = scores.first_row + r});
    }
    classes[r] = static_cast<std::int64_t>(number);
  }
  return classes;
}

struct Losses {
  std::shared_ptr<Targets> targets;
  const Files& files;

  Table evaluated(const isentropic::OperationInfo& info, std::span<const isentropic::ParamValue> values, Table scores) const;
};

Table Losses::evaluated(const isentropic::OperationInfo& info, std::span<const isentropic::ParamValue> values,
                        Table scores) const {
  const std::string_view name = info.name;
  const TargetKind kind = *info.target;
  const bool given = !targets->file.path.empty();
  if (!given && !may_be_classes(kind)) {
    bad_input("{}: TARGET is missing; it is a file with a row of {} for each row", name,
              kind == TargetKind::labels ? "0 and 1" : "the teacher's scores");
  }
  const Table* const target = given ? &table_of(*targets, files, scores, kind) : nullptr;
  const bool of_classes = may_be_classes(kind) && (!given || target->cols == 1 || kind == TargetKind::classes);
  if (of_classes && given && target->cols != 1) {
    bad_input("{}: it has {} columns, and {} takes one class for each row", files::input_name(targets->file.path), target->cols,
              name);
  }
  if (!of_classes && targets->ignored) bad_input("{}: --ignore_index needs classes, and TARGET has several columns", name);
  std::vector<std::int64_t> classes;
  if (of_classes) {
    classes = classes_of(*targets, scores, files, name);
  } else {
    targets->file.check_columns(files, scores);
    targets->file.check_rows(files, scores);
  }
  const std::size_t first_row = scores.first_row;
  const Origin labels(scores, files.in), targeted = given ? Origin(targets->file.all(), targets->file.path) : labels;
  // A TARGET with more digits than 16-bit scores keeps them.
  if (!of_classes && scores.values.index() != target->values.index()) scores = widened(std::move(scores));
  return one_per_row(std::move(scores), name, [&]<class T>(MatrixView<const T> x, auto y) {
    const std::size_t cols = of_classes ? 0 : x.cols;
    const double* const rows = targets->numbers.data() + first_row * cols;
    std::vector<T> converted(x.rows * cols);
    std::transform(rows, rows + converted.size(), converted.begin(), [](double q) { return static_cast<T>(q); });
    const ArrayOf wanted = of_classes ? column_of(view(classes, x.rows, 1)) : numbers_of(view(converted, x.rows, cols));
    try {
      call(info, values, {{numbers_of(x), wanted, column_of(y)}}, targets->ignored);
    } catch (const isentropic::RowError& error) {
      if (!error.argument().starts_with("target")) throw;
      if (!given) labels.refuse(error, error.row(), true);
      targeted.refuse(error, first_row + error.row());
    }
  });
}

// Takes the targets from an array of FILE, which --target-key names.
void take_key(Targets& targets, const Files& files) {
  if (!targets.file.key.empty() && targets.file.path.empty()) targets.file.path = files.in;
}

CLI::Option* add_target(CLI::App& command, Targets& targets, const std::string& holds) {
  command
      .add_option_function<std::string>(
          "--target-key", [&targets](const std::string& name) { targets.file.key = name; },
          "The array with the targets, if an .npz or .safetensors has several: in TARGET, or in FILE without TARGET")
      ->option_text("NAME");
  return add_path(command, "TARGET", targets.file.path, "standard input", holds)->option_text(" ");
}

// The option for a page with reliability diagrams.
void add_report(CLI::App& command, std::string& report) {
  add_path(command, "--report", report, "standard output",
           "Write a page with the reliability diagram to this file, whose name ends in .html")
      ->option_text("FILE");
}

// Refuses a name for the page with another ending, or that of another file.
void check_report(std::string_view command, const std::string& report, const Files& files, const Targets& targets) {
  if (report.empty()) return;
  if (files::is_standard(report) && files::is_standard(files.out)) {
    bad_input("{}: the result and --report are both standard output; name a file with -o or --report", command);
  }
  if (files::is_stream(report)) return;
  std::string name = report;
  if (const files::Packing* packing = files::packing_of(name)) name.resize(name.size() - packing->ending.size());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!name.ends_with(".html") && !name.ends_with(".htm")) {
    bad_input("{}: --report must end in .html, got '{}'", command, report);
  }
  for (const std::string& other : {files.in, targets.file.path, files.out}) {
    if (files::is_standard(other) || !files::same_file(report, other)) continue;
    bad_input("{}: --report {} is the same file as {}", command, report,
              other == files.out ? "-o " + other : files::input_name(other));
  }
}

Reliability reliability_of(std::string title, const isentropic::ExpectedCalibrationError& op, MatrixView<const double> p,
                           const std::vector<std::int64_t>& classes) {
  return {std::move(title), isentropic::expected_calibration_error<double>(op, p, classes),
          isentropic::reliability_bins<double>(op, p, classes)};
}

// The reliability diagrams of softmax and of the fitted map.
template <class T>
std::vector<Reliability> before_and_after(const isentropic::Map& fitted, const std::string& title, MatrixView<const T> x,
                                          const std::vector<std::int64_t>& classes) {
  const std::vector<double> scores(x.data, x.data + x.rows * x.cols);
  std::vector<double> p(scores.size());
  std::vector<Reliability> diagrams;
  const auto add = [&](const isentropic::Map& map, const std::string& name) {
    isentropic::apply(map, MatrixView<const double>(scores.data(), x.rows, x.cols), view(p, x.rows, x.cols));
    diagrams.push_back(reliability_of(name, {}, {p.data(), x.rows, x.cols}, classes));
  };
  add(isentropic::Softmax{}, "softmax");
  add(fitted, title);
  return diagrams;
}

// A table of one number, which was calculated from all rows.
Table one_number(std::string_view name, double value) {
  Table table;
  table.values = std::vector<double>{value};
  table.rows = table.cols = 1;
  table.shape = {1};
  table.header = {std::string(name)};
  return table;
}

// evaluate(all rows, their classes) as a table of one number called `result`.
template <class Evaluate>
Table of_all(Targets& targets, const Files& files, std::string_view name, std::string_view result, bool labelled, Table rows,
             Evaluate evaluate) {
  rows = widened(std::move(rows));
  rows.first_row = files.reading.first_row;
  std::vector<std::int64_t> classes;
  if (labelled) classes = classes_of(targets, rows, files, name);
  targets.file.check_end(files, rows.rows);
  double value = 0;
  try {
    std::visit(
        [&]<class T>(std::vector<T>& values) {
          if constexpr (!isentropic::kIsHalf<T>) {
            value = evaluate(MatrixView<const T>(values.data(), rows.rows, rows.cols), classes);
          }
        },
        rows.values);
  } catch (const isentropic::RowError& error) {
    const bool of_label = error.argument().starts_with("label");
    if (!of_label || targets.file.path.empty()) Origin(rows, files.in).refuse(error, error.row(), of_label);
    Origin(targets.file.all(), targets.file.path).refuse(error, rows.first_row + error.row());
  }
  return one_number(result, value);
}

// Whether the scores seem to be probabilities. What fits them does not fit the scores that they came from.
bool seem_probabilities(const Table& table) {
  if (table.cols < 2 || table.rows == 0) return false;
  const std::vector<double> numbers = as_doubles(table);
  const double tolerance = sum_tolerance(table);
  bool fractions = false;
  for (std::size_t r = 0; r < table.rows; ++r) {
    double sum = 0;
    for (const double x : std::span(numbers).subspan(r * table.cols, table.cols)) {
      if (!(x >= 0 && x <= 1)) return false;
      fractions |= x != std::floor(x);
      sum += x;
    }
    if (!(std::abs(sum - 1) <= tolerance)) return false;
  }
  return fractions;
}

// A command that calculates one number from all rows and their labels. `fitted` makes the map with that number; without it the
// command takes no labels.
template <class Evaluate>
void add_fit(CLI::App& app, Program& program, const std::string& name, const std::string& result, const std::string& meaning,
             std::function<isentropic::Map(double)> fitted, Evaluate evaluate) {
  const bool labelled = static_cast<bool>(fitted);
  const auto report = std::make_shared<std::string>();
  CLI::App& command = *app.add_subcommand(name, meaning);
  command.group(group_of("calibration"));
  add_input_options(command, program.files);
  const auto targets = std::make_shared<Targets>();
  if (labelled) {
    add_target(command, *targets,
               "The class of each row, counted from 0 (default: FILE's labels, names of columns or numbers)");
    add_report(command, *report);
  }
  add_output_option(command, program.files);
  command.footer(
      fmt::format("Example: isentropic {} {}\n{}", name, labelled ? "labelled_scores.csv" : "scores.csv", kEverywhere));
  command.callback([=, &program] {
    program.action = [=, &files = program.files] {
      take_key(*targets, files);
      check_report(name, *report, files, *targets);
      std::string page;
      const auto reported = [&](auto x, const std::vector<std::int64_t>& classes) {
        const double value = evaluate(x, classes);
        if (report->empty()) return value;
        const std::string said = files::formatted("{} {:.4g}", result, value);
        page = reliability_html(fmt::format("{} of {}", name, files::input_name(files.in)),
                                fmt::format("{} rows of {} scores; {}", x.rows, x.cols, said),
                                before_and_after(fitted(value), said, x, classes));
        return value;
      };
      Table rows = read_table(files);
      const bool warns = !files.quiet && seem_probabilities(rows);
      Table value = of_all(*targets, files, name, result, labelled, std::move(rows), reported);
      if (warns) {
        fmt::print(stderr, "isentropic: {}: each row of {} sums to 1; if these are probabilities, give their logarithms\n",
                   name, files::input_name(files.in));
      }
      std::optional<files::Output> page_file;  // in its place once the result is
      if (!report->empty()) page_file.emplace(*report).write(page);
      write_table(files, std::move(value));
      if (page_file) page_file->finish();
    };
  });
}

}  // namespace

void add_losses(CLI::App& app, Program& program) {
  for (const isentropic::OperationInfo& info : isentropic::family_info<isentropic::Loss>().operations) {
    const auto targets = std::make_shared<Targets>();
    const auto evaluate = [targets, &program](const Arguments& arguments) -> Evaluation {
      take_key(*targets, program.files);
      const Losses losses = {targets, program.files};
      const auto values = isentropic::values_of(made<isentropic::Loss>(arguments));
      return {
          [losses, values, &info = arguments.info](Table scores) { return losses.evaluated(info, values, std::move(scores)); },
          [losses](std::size_t rows) { losses.targets->file.check_end(losses.files, rows); }};
    };
    const TargetKind kind = *info.target;
    if (!may_be_classes(kind)) {
      const bool of_labels = kind == TargetKind::labels;
      targets->file.holds = Holds::same;  // it has FILE's columns
      CLI::App& command = add_operation(
          app, program, info, evaluate,
          {.input = of_labels ? "scores.csv labels" : "scores.csv teacher_scores", .output = "result.csv", .second = true});
      add_target(command, *targets, of_labels ? "A row of 0 and 1 for each row" : "The teacher's scores, a row for each row")
          ->option_text(std::string(kRequired));
      continue;
    }
    CLI::App& command =
        add_operation(app, program, info, evaluate,
                      {.input = "labelled_scores",
                       .output = "result.csv",
                       .remark = "Without TARGET the labels of FILE are the classes: names of columns, or numbers from 0.\n",
                       .second = true});
    add_target(command, *targets,
               kind == TargetKind::classes ? "The class of each row, counted from 0"
                                           : "The class of each row, counted from 0, or a row of probabilities for each row");
    add_number<std::int64_t>(command, "--ignore_index", "Rows with this class have the loss 0",
                             [targets](std::int64_t ignored) { targets->ignored = ignored; });
  }
}

void add_calibration(CLI::App& app, Program& program) {
  using Classes = const std::vector<std::int64_t>&;
  add_fit(
      app, program, "fit_temperature", "temperature", "The temperature at which softmax of the scores fits the labels best.",
      [](double temperature) { return isentropic::Softmax{.temperature = temperature}; },
      [&files = program.files](auto x, Classes labels) {
        const isentropic::FittedTemperature fitted = isentropic::fit_temperature(x, labels);
        if (fitted.clamped) {
          note(files, files::formatted(
                          "fit_temperature: T = {} is an end of the allowed range, and the loss still falls beyond it: {}",
                          fitted.temperature,
                          fitted.temperature < 1 ? "(nearly) every label has the largest score of its row"
                                                 : "the scores do not favour the labels"));
        }
        return fitted.temperature;
      });
  add_fit(
      app, program, "fit_target_entropy", "entropy", "The entropy, in nats, at which entropy_normalize fits the labels best.",
      [](double entropy) { return isentropic::EntropyNormalize{.entropy = entropy}; },
      [](auto x, Classes labels) { return isentropic::fit_target_entropy(x, labels); });
  add_fit(app, program, "match_entropy", "entropy", "The mean entropy of softmax of the scores, in nats.", {},
          [](auto x, Classes) { return isentropic::match_entropy(x); });

  const isentropic::OperationInfo& info =
      *find_operation(isentropic::family_info<isentropic::Calibration>(), "expected_calibration_error");
  const auto targets = std::make_shared<Targets>();
  const auto report = std::make_shared<std::string>();
  const auto evaluate = [targets, report, &program](const Arguments& arguments) -> Evaluation {
    const auto asked = std::get<isentropic::ExpectedCalibrationError>(made<isentropic::Calibration>(arguments));
    take_key(*targets, program.files);
    check_report(arguments.info.name, *report, program.files, *targets);
    const auto page_file = std::make_shared<std::optional<files::Output>>();  // in its place once the result is
    const auto result = [targets, asked, report, page_file, &files = program.files, name = arguments.info.name](Table p) {
      auto op = asked;
      op.sum_tolerance = asked.sum_tolerance.value_or(sum_tolerance(p));  // of the file's type, which is widened below
      std::string page;
      const auto reported = [&](auto rows, Classes classes) {
        if (!report->empty()) {
          const std::vector<double> given(rows.data, rows.data + rows.rows * rows.cols);
          auto shown = op;  // its bins are the same
          shown.norm = isentropic::ExpectedCalibrationError::Norm::l1, shown.classwise = shown.debiased = false;
          page = reliability_html(fmt::format("Calibration of {}", files::input_name(files.in)),
                                  fmt::format("{} rows of {} probabilities", rows.rows, rows.cols),
                                  {reliability_of("as given", shown, {given.data(), rows.rows, rows.cols}, classes)});
        }
        return isentropic::expected_calibration_error(op, rows, classes);
      };
      Table value = of_all(*targets, files, name, name, true, std::move(p), reported);
      if (!report->empty()) page_file->emplace(*report).write(page);
      return value;
    };
    return {result, [page_file](std::size_t) {
              if (*page_file) (*page_file)->finish();
            }};
  };
  CLI::App& command =
      add_operation(app, program, info, evaluate,
                    {.input = "labelled_probabilities", .holds = "Probabilities", .output = "result.csv", .whole = true});
  add_target(command, *targets, "The class of each row, counted from 0 (default: FILE's labels, names of columns or numbers)");
  add_report(command, *report);
}

// isentropic sample: draws indices from each row after a chain of steps, or writes the distribution after the chain.
#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "commands.h"
#include "operation.h"
#include "rows.h"
#include "texts.h"

namespace {

using isentropic::Step;

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

struct SampleOptions {
  std::vector<Step> steps;
  std::size_t seed = 0, count = 1, stream = 0, position = 0;
  bool probs = false;
  std::string tokens;
};

// What a chain of steps asks of the command line.
void check_tokens(const SampleOptions& options) {
  const auto reads = [](const Step& step) { return isentropic::reads_text(isentropic::description_of(step)); };
  const auto reader = std::ranges::find_if(options.steps, reads);
  if (reader != options.steps.end() && options.tokens.empty()) {
    bad_input("sample: the step {} reads the text so far: --tokens names a file or a column with its tokens",
              isentropic::description_of(*reader).name);
  }
  if (reader == options.steps.end() && !options.tokens.empty()) {
    bad_input("sample: --tokens: no step reads the text so far; penalties and dry do");
  }
}

// The texts of a table's rows for the steps that read them; `tokens` keeps them.
isentropic::Texts texts_of(TextsSoFar& texts, const Files& files, const Table& table, std::vector<std::int64_t>& tokens) {
  if (!texts.given() || table.rows == 0) return {};
  tokens = texts.of(files, table);
  return {.tokens = {tokens.data(), table.rows, tokens.size() / table.rows}};
}

// The parts of text between separators.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// How a step is written: name, name=VALUE, or name=FIRST:SECOND.
std::string spelling_of(const isentropic::OperationInfo& info) {
  std::string text(info.name);
  for (const isentropic::ParamInfo& param : info.params) {
    text += fmt::format("{}{}", &param == info.params.data() ? '=' : ':', info.params.size() == 1 ? "VALUE" : param.name);
  }
  return text;
}

std::string step_names() {
  std::vector<std::string> names;
  for (const isentropic::OperationInfo& step : isentropic::family_info<Step>().operations) names.push_back(spelling_of(step));
  return fmt::format("{}", fmt::join(names, ", "));
}

// The step with these values of its parameters; an empty value keeps the default.
Step to_step(const isentropic::OperationInfo& info, const std::vector<std::string>& given) {
  if (given.size() != info.params.size()) {
    bad_input("sample: --steps: {} takes {} value{}, {}, got {}", info.name, info.params.size(),
              info.params.size() == 1 ? "" : "s", spelling_of(info), given.size());
  }
  Arguments arguments(info);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const isentropic::ParamInfo& param = info.params[i];
    if (given[i].empty() && !param.required) continue;
    const std::string what = fmt::format("sample: --steps: {} of {}", param.name, info.name);
    if (param.kind == isentropic::ParamKind::integer) {
      set_number(arguments.values[i].emplace<std::int64_t>(), what, given[i]);
    } else if (param.kind == isentropic::ParamKind::integers) {
      auto& integers = arguments.values[i].emplace<std::vector<std::int64_t>>();
      for (const std::string& one : split(given[i], '+')) set_number(integers.emplace_back(), what, one);
    } else {
      set_number(arguments.values[i].emplace<double>(), what, given[i]);
    }
  }
  return isentropic::make<Step>(info, arguments.values);
}

// The steps of a text such as "temperature=0.8,top_p=0.95".
std::vector<Step> to_steps(const std::string& text) {
  std::vector<Step> steps;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const isentropic::OperationInfo* const info = find_operation(isentropic::family_info<Step>(), name);
    if (info == nullptr) bad_input("sample: --steps {}", unknown_name(isentropic::family_info<Step>(), name));
    if (equals == part.npos && !info->params.empty()) {
      bad_input("sample: --steps: {} needs a value, {}", name, spelling_of(*info));
    }
    if (equals != part.npos && info->params.empty()) bad_input("sample: --steps: {} takes no value", name);
    steps.push_back(to_step(*info, info->params.empty() ? std::vector<std::string>() : split(part.substr(equals + 1), ':')));
  }
  return steps;
}

// A column of indices for each draw. Row r of the file has the stream `stream` + r, however the file is split.
Table drawn(const isentropic::Sampler& sampler, const SampleOptions& options, const isentropic::Texts& texts, Table table) {
  std::vector<std::int64_t> indices;
  if (table.rows > 0 && options.count > indices.max_size() / table.rows) throw std::bad_alloc();
  indices.resize(table.rows * options.count);
  const isentropic::Noise noise = {.stream = options.stream + table.first_row, .position = options.position};
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        const isentropic::MatrixView<const T> x = view(values, table.rows, table.cols);
        sampler.sample(x, view(indices, table.rows, options.count), noise, texts);
      },
      table.values);
  table.values = std::vector<double>(indices.begin(), indices.end());
  table.whole = true;
  table.cols = options.count;
  if (options.count == 1) {
    table.shape.pop_back();
  } else {
    table.shape.back() = options.count;
  }
  if (!table.header.empty()) {
    table.header.clear();
    for (std::size_t c = 0; c < options.count; ++c) table.header.push_back(fmt::format("draw{}", c + 1));
  }
  return table;
}

}  // namespace

void add_sample(CLI::App& app, Program& program) {
  const auto options = std::make_shared<SampleOptions>();
  CLI::App& command = *app.add_subcommand("sample", "Indices drawn from each row's softmax, after a chain of steps.");
  command.group(group_of("sampling"));
  command
      .add_option_function<std::string>(
          "--steps", [options](const std::string& text) { options->steps = to_steps(text); },
          fmt::format(
              "Steps that change the distribution before the draw, in this order: STEP,... among {}; several breakers are "
              "joined by +, as in 13+198",
              step_names()))
      ->option_text("STEPS");
  CLI::Option* const seed =
      add_number(command, "--seed", options->seed, "The same seed gives the same draws; required unless --probs is given");
  CLI::Option* const of_draws[] = {
      command
          .add_option_function<std::string>(
              "--count", [options](const std::string& text) { set_number(options->count, "--count", text, 1); },
              "Number of draws from each row (default 1)")
          ->option_text("NUMBER"),
      add_number(command, "--stream", options->stream, "Row r, counted from 0, uses random stream r + NUMBER (default 0)"),
      add_number(command, "--position", options->position, "Position of the first draw in its random stream (default 0)")};
  command
      .add_option_function<std::string>(
          "--tokens",
          [options](const std::string& text) {
            if (text.empty()) bad_input("sample: --tokens must be the name of a file or of a column, got ''");
            options->tokens = text;
          },
          "The text so far of each row, for penalties and dry: a column of FILE with the numbers of its tokens, as in \"3 17 "
          "5\", "
          "a file with a line of them for each row (.txt, .csv, .jsonl), or an array (.npy) that is padded with -1")
      ->option_text("FILE|COLUMN");
  CLI::Option* const probs = add_flag(command, "--probs", options->probs, "Write the distribution instead of drawing from it");
  for (CLI::Option* const option : of_draws) probs->excludes(option);
  add_input_options(command, program.files);
  add_more_files(command, program.files);
  add_output_option(command, program.files);
  command.footer(fmt::format(
      "The output has indices counted from 0, and -1 for a row with NaN or without a score above -inf.\n"
      "Example: isentropic sample scores.csv --steps temperature=0.8,top_p=0.95 --seed 1\n"
      "Example: isentropic sample scores.csv --steps penalties=1.1:0:0:64,min_p=0.05 --tokens texts.txt --seed 1\n{}",
      kEverywhere));
  command.callback([options, seed, &program] {
    if (seed->count() == 0 && !options->probs) throw CLI::RequiredError("--seed");
    program.action = [options, &files = program.files] {
      if (const std::size_t last = options->count - 1; !options->probs && options->position > kMost - last) {
        bad_input("sample: --position must be at most {} with --count {}, got {}", kMost - last, options->count,
                  options->position);
      }
      const isentropic::Sampler sampler(options->steps, options->seed);
      check_tokens(*options);
      TextsSoFar texts;
      if (!options->tokens.empty()) texts.open(files, options->tokens);
      const auto probs = [&](auto x, auto p, const isentropic::Texts& so_far) {
        try {
          sampler.probs(x, p, so_far);
        } catch (const std::invalid_argument& error) {
          // The library's advice is for those who call it.
          constexpr std::string_view kFunction = "Sampler::probs: ", kAdvice = ": ask sample";
          const std::string_view said = error.what();
          const std::size_t advice = said.find(kAdvice);
          if (!said.starts_with(kFunction) || advice == said.npos) throw;
          bad_input("sample: --probs: {}; leave the step out", said.substr(kFunction.size(), advice - kFunction.size()));
        }
      };
      stream_rows(
          files,
          [&](Table table) {
            table.result = "sample";
            std::vector<std::int64_t> tokens;
            const isentropic::Texts so_far = texts_of(texts, files, table, tokens);
            if (!options->probs) return drawn(sampler, *options, so_far, std::move(table));
            return in_place(std::move(table), [&](auto x, auto p) { probs(x, p, so_far); });
          },
          [&](std::size_t rows) { texts.check_end(files, rows); });
    };
  });
}

// Commands made from the registry: their options, their help, and how they treat rows.
#include "operation.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace {

using isentropic::ParamInfo;
using isentropic::ParamKind;
using isentropic::ParamValue;

// The parameters without a default, for the example.
std::string example_parameters(const isentropic::OperationInfo& info) {
  std::string text;
  for (const ParamInfo& param : info.params) {
    if (!std::holds_alternative<std::monostate>(param.typical)) {
      text += fmt::format(" --{} {}", param.name, isentropic::to_text(param.typical));
    }
  }
  return text;
}

}  // namespace

CLI::Option* add_param(CLI::App& command, const ParamInfo& param, ParamValue& value) {
  const std::string name = fmt::format("--{}", param.name);
  const std::string meaning = fmt::format("{} ({}; default {})", param.meaning, param.allowed, default_text(param));
  switch (param.kind) {
    case ParamKind::choice: {
      const std::vector<std::string> choices(param.choices.begin(), param.choices.end());
      return add_choice(command, name, choices, fmt::format("{} (default {})", param.meaning, default_text(param)),
                        [&value, choices](std::size_t i) { value = choices[i]; });
    }
    case ParamKind::map: {
      std::vector<std::string> names;
      for (const isentropic::OperationInfo& map : isentropic::family_info<isentropic::Map>().operations)
        names.emplace_back(map.name);
      const std::string of_names =
          fmt::format("{}: {} (default {})", param.meaning, fmt::join(names, ", "), default_text(param));
      return add_choice(command, name, names, of_names, [&value, names](std::size_t i) { value = names[i]; })
          ->option_text("MAP");
    }
    case ParamKind::flag:
      return command
          .add_flag_callback(
              spellings(name), [&value] { value = true; }, std::string(param.meaning))
          ->disable_flag_override();
    case ParamKind::integer:
      return add_number<std::int64_t>(command, name, meaning, [&value](std::int64_t number) { value = number; });
    case ParamKind::integers:  // of steps, which are not commands
      throw std::logic_error(std::string(param.name) + ": there is no option of a list of integers");
    case ParamKind::number:
    case ParamKind::optional_number:
      break;
  }
  return add_number<double>(command, name, meaning, [&value](double number) { value = number; });
}

std::string default_text(const ParamInfo& param) {
  return param.required ? "none, required" : isentropic::to_text(param.initial);
}

namespace {

// The library's message about an operation without the operation's name, with parameters as they are typed.
std::string as_typed(const isentropic::OperationInfo& info, std::string_view what) {
  const std::size_t colon = what.find(": ");
  std::string text;
  for (std::string_view rest = colon == what.npos ? what : what.substr(colon + 2); !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find_first_of(" ,"));
    const auto is_word = [&](const ParamInfo& param) { return param.name == word; };
    text += std::ranges::any_of(info.params, is_word) ? fmt::format("--{}", word) : std::string(word);
    rest.remove_prefix(word.size());
    if (rest.empty()) break;
    text += rest[0];
    rest.remove_prefix(1);
  }
  return text;
}

// The options for the parameters of all maps, for an operation that takes a map.
void add_map_params(CLI::App& command, Arguments& arguments) {
  const auto& maps = isentropic::family_info<isentropic::Map>().operations;
  for (const isentropic::OperationInfo& map : maps) {
    for (const ParamInfo& param : map.params) {
      const auto same = [&](const auto& other) { return other.name == param.name; };
      if (std::ranges::any_of(arguments.of_map, same)) continue;
      std::vector<std::string_view> with;
      for (const isentropic::OperationInfo& other : maps) {
        if (std::ranges::any_of(other.params, same)) with.push_back(other.name);
      }
      add_param(command, param, arguments.of_map.emplace_back(isentropic::Argument{param.name, {}}).value)
          ->description(with.size() == maps.size() ? fmt::format("Of the map: {}", param.meaning)
                                                   : fmt::format("Of {}", fmt::join(with, ", ")))
          ->group("Parameters");
    }
  }
}

}  // namespace

void refuse(const isentropic::OperationInfo& info, std::string_view what) {
  const std::string name = command_name(info);
  bad_input("{}: {}", name.substr(0, name.find(' ')), as_typed(info, what));
}

ParamValue map_of(const Arguments& arguments, const ParamInfo& param, const ParamValue& value) {
  const auto* const named = std::get_if<std::string>(&value);
  const std::string name = named != nullptr ? *named : isentropic::to_text(param.initial);
  std::vector<isentropic::Argument> given;
  for (const isentropic::Argument& one : arguments.of_map) {
    if (!std::holds_alternative<std::monostate>(one.value)) given.push_back(one);
  }
  try {
    return isentropic::make_map(name, given);
  } catch (const std::invalid_argument& error) {
    const isentropic::OperationInfo& map = *find_operation(isentropic::family_info<isentropic::Map>(), name);
    bad_input("{}: --{} {}: {}", arguments.info.name, param.name, name, as_typed(map, error.what()));
  }
}

CLI::App& add_command(CLI::App& app, Program& program, const std::shared_ptr<Arguments>& arguments, std::string_view holds,
                      std::string_view remark, std::string_view example, bool more_files) {
  const isentropic::OperationInfo& info = arguments->info;
  CLI::App& command = *app.add_subcommand(command_name(info), std::string(info.summary));
  if (command.get_name() != info.name) command.alias(std::string(info.name));
  command.group(group_of(info.family));
  for (std::size_t i = 0; i < info.params.size(); ++i) {
    add_param(command, info.params[i], arguments->values[i])->group("Parameters")->required(info.params[i].required);
  }
  if (std::ranges::any_of(info.params, [](const ParamInfo& param) { return param.kind == ParamKind::map; })) {
    add_map_params(command, *arguments);
  }
  add_input_options(command, program.files, holds);
  if (more_files) add_more_files(command, program.files);
  add_output_option(command, program.files);
  command.footer(
      fmt::format("{}\n{}\nExample: isentropic {} {}\n{}", info.formula, remark, command.get_name(), example, kEverywhere));
  return command;
}

Evaluation of_rows(const isentropic::OperationInfo& info, std::vector<ParamValue> values, bool wide) {
  using isentropic::ArrayKind;
  const ArrayKind kind = std::ranges::find_if(info.arrays, &isentropic::ArrayInfo::output)->kind;
  return {[&info, values = std::move(values), wide = wide || kind == ArrayKind::entry, kind](Table table) {
    if (wide) table = widened(std::move(table));
    if (kind == ArrayKind::row) {
      return in_place(std::move(table), [&](auto x, auto y) { call(info, values, {{numbers_of(x), numbers_of(y)}}); });
    }
    return one_per_row(std::move(table), info.name, [&](auto x, auto y) {
      call(info, values, {{numbers_of(x), column_of(y)}});
    });
  }};
}

CLI::App& add_operation(CLI::App& app, Program& program, const isentropic::OperationInfo& info,
                        std::function<Evaluation(const Arguments&)> evaluate, Footnotes footnotes) {
  const auto arguments = std::make_shared<Arguments>(info);
  CLI::App& command = add_command(app, program, arguments, footnotes.holds, footnotes.remark,
                                  fmt::format("{}.csv{} -o {}", footnotes.input, example_parameters(info), footnotes.output),
                                  !footnotes.whole && !footnotes.second);
  command.callback([arguments, evaluate = std::move(evaluate), &program, whole = footnotes.whole] {
    program.action = [arguments, evaluation = evaluate(*arguments), &files = program.files, whole] {
      const auto result = [&](Table table) {
        table = evaluation.result(std::move(table));
        table.result = arguments->info.name;
        return table;
      };
      if (!whole) return stream_rows(files, result, evaluation.at_end);
      Table table = read_table(files);
      const Origin origin(table, files.in);
      try {
        table = evaluation.result(std::move(table));
      } catch (const isentropic::RowError& error) {
        origin.refuse(error, error.row());
      }
      const std::size_t rows = table.rows;
      write_table(files, std::move(table));
      if (evaluation.at_end) evaluation.at_end(rows);
    };
  });
  return command;
}

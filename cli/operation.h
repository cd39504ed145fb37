// A command for an operation that describes itself.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "families.h"
#include "options.h"
#include "rows.h"

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

// What is wrong with the parameters together, in the words of the command line, or nothing.
template <class Op>
std::string wrong_together(const Op& op) {
  std::string text;
  if constexpr (requires { op.check(); }) {
    for (std::string_view rest = op.check(); !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      entropic::for_each_param<Op>([&](const auto& param) { text += word == param.name ? "--" : ""; });
      text += word;
      rest.remove_prefix(word.size());
      if (rest.empty()) break;
      text += ' ';
      rest.remove_prefix(1);
    }
  }
  return text;
}

// What an operation's help says besides its formula and an example.
struct Footnotes {
  std::string_view input = "scores";  // the name of the example's file
  std::string_view holds = "Scores";  // what FILE is to the help
  std::string_view output = "result.npy";
  std::string_view remark = "";  // ends with a new line
  bool whole = false;            // the file at once: its rows belong together
};

// The command of Op, listed under `group`, with the parameters of `op`, FILE and -o. `example` is what may follow its name.
template <class Op>
CLI::App& add_command(CLI::App& app, std::string_view group, Program& program, Op& op, std::string_view holds,
                      std::string_view remark, std::string_view example) {
  const entropic::Description& description = Op::kDescription;
  CLI::App& command = *app.add_subcommand(command_name<Op>(), std::string(description.summary));
  if (command.get_name() != description.name) command.alias(std::string(description.name));
  command.group(std::string(group));
  entropic::for_each_param<Op>(
      [&](const auto& param) { add_param(command, param, op.*(param.member))->group("Parameters")->required(param.required); });
  add_input_options(command, program.files, holds);
  add_output_option(command, program.files);
  command.footer(fmt::format("{}\n{}\nExample: entropic {} {}\n{}", description.formula, remark, command.get_name(), example,
                             kEverywhere));
  return command;
}

// The same of a command that writes evaluate(op, table) for the rows of FILE, by stream_rows, whose at_end is evaluate.at_end
// where it has one.
template <class Op, class Evaluate>
CLI::App& add_operation(CLI::App& app, std::string_view group, Program& program, Evaluate evaluate, Footnotes footnotes = {}) {
  const auto op = std::make_shared<Op>();
  CLI::App& command = add_command(app, group, program, *op, footnotes.holds, footnotes.remark,
                                  fmt::format("{}.csv{} -o {}", footnotes.input, example_parameters<Op>(), footnotes.output));
  command.callback([op, evaluate, &program, whole = footnotes.whole] {
    if (const std::string wrong = wrong_together(*op); !wrong.empty()) bad_input("{}: {}", command_name<Op>(), wrong);
    program.action = [op, evaluate, &files = program.files, whole] {
      if (whole) {
        Table table = read_table(files);
        try {
          table = evaluate(*op, std::move(table));
        } catch (const entropic::RowError& error) {
          refuse_row(files.in, error, error.row());
        }
        return write_table(files.out, std::move(table));
      }
      std::function<void(std::size_t)> at_end;
      if constexpr (requires { evaluate.at_end(std::size_t{}); }) at_end = [&](std::size_t rows) { evaluate.at_end(rows); };
      stream_rows(
          files, [&](Table table) { return evaluate(*op, std::move(table)); }, at_end);
    };
  });
  return command;
}

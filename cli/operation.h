// A command for an operation of the registry.
#pragma once

#include <isentropic/operation.h>

#include <functional>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "call.h"
#include "families.h"
#include "options.h"
#include "rows.h"

// An operation and the values that the command line gives its parameters, in their order; monostate for no value.
struct Arguments {
  const isentropic::OperationInfo& info;
  std::vector<isentropic::ParamValue> values;
  std::list<isentropic::Argument> of_map;  // for an operation with a map: the parameters of all maps, by name

  explicit Arguments(const isentropic::OperationInfo& operation) : info(operation), values(operation.params.size()) {}
};

// Refuses arguments with the library's message, in which parameters are written as they are typed: --alpha.
[[noreturn]] void refuse(const isentropic::OperationInfo& info, std::string_view what);

// The value of the parameter `param` of an operation with a map: the map with the parameters that were given for it.
isentropic::ParamValue map_of(const Arguments& arguments, const isentropic::ParamInfo& param,
                              const isentropic::ParamValue& value);

// The operation of these arguments. Throws BadInput.
template <class Family>
Family made(const Arguments& arguments) {
  std::vector<isentropic::Argument> given;
  for (std::size_t i = 0; i < arguments.values.size(); ++i) {
    const isentropic::ParamInfo& param = arguments.info.params[i];
    const bool is_map = param.kind == isentropic::ParamKind::map;
    given.push_back({param.name, is_map ? map_of(arguments, param, arguments.values[i]) : arguments.values[i]});
  }
  try {
    return isentropic::make<Family>(arguments.info.name, given);
  } catch (const std::invalid_argument& error) {
    refuse(arguments.info, error.what());
  }
}

// Further texts of an operation's help.
struct Footnotes {
  std::string_view input = "scores";  // the name of the example's file
  std::string_view holds = "Scores";  // what FILE holds, for the help
  std::string_view output = "result.npy";
  std::string_view remark = "";  // ends with a new line
  bool whole = false;            // read the whole file at once: its rows belong together
  bool second = false;           // it takes a second file
};

// The command of an operation, with its parameters, FILE, MORE if wanted, and -o. `example` shows what may follow its name.
CLI::App& add_command(CLI::App& app, Program& program, const std::shared_ptr<Arguments>& arguments, std::string_view holds,
                      std::string_view remark, std::string_view example, bool more_files = false);

// How a command treats rows, and what it checks after the last one: see stream_rows.
struct Evaluation {
  std::function<Table(Table)> result;
  std::function<void(std::size_t rows)> at_end = {};
};

// A command that applies evaluate(arguments) to the rows of FILE and writes the results. `evaluate` is called before FILE is
// opened.
CLI::App& add_operation(CLI::App& app, Program& program, const isentropic::OperationInfo& info,
                        std::function<Evaluation(const Arguments&)> evaluate, Footnotes footnotes = {});

// Rows of numbers take the place of the rows, and numbers become a column, by the call of `info` with these values of its
// parameters. `wide`: float16 and bfloat16 as float.
Evaluation of_rows(const isentropic::OperationInfo& info, std::vector<isentropic::ParamValue> values, bool wide);

// Such a command for each operation of a family: evaluate(operation) is its Evaluation.
template <class Family, class Evaluate>
void add_family(CLI::App& app, Program& program, Evaluate evaluate, const Footnotes& footnotes = {}) {
  for (const isentropic::OperationInfo& info : isentropic::family_info<Family>().operations) {
    add_operation(
        app, program, info,
        [evaluate](const Arguments& arguments) { return evaluate(made<Family>(arguments), arguments.info); }, footnotes);
  }
}

// The commands of a family of operations on rows alone.
template <class Family>
void add_rows(CLI::App& app, Program& program, const Footnotes& footnotes = {}, bool wide = false) {
  const auto evaluate = [wide](const Family& op, const isentropic::OperationInfo& info) {
    return of_rows(info, isentropic::values_of(op), wide);
  };
  add_family<Family>(app, program, evaluate, footnotes);
}

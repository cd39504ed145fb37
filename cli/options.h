// The options that commands share: numbers, words, files, and the parameters of an operation.
#pragma once

#include <fmt/format.h>
#include <isentropic/isentropic.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/format.h"

using files::bad_input;
using files::BadInput;
using files::Table;

// The files that a command reads and writes.
struct Files {
  std::string in;
  std::vector<std::string> more;  // files whose rows follow those of `in`
  std::string in_format;
  std::string out;
  std::string out_format;
  int digits = 0;  // digits of numbers in text; 0: as many as each needs
  files::ReadOptions reading;
  bool quiet = false;
};

// The program that the arguments describe: the options of every command, and the action to run once all are parsed.
struct Program {
  Files files;
  std::function<void()> action;
};

// Read all of `text` as a number. Throw BadInput, with the name `option`, if it is none, or less than `least`.
void set_number(std::size_t& value, std::string_view option, const std::string& text, std::size_t least = 0);
void set_number(std::int64_t& value, std::string_view option, const std::string& text);
void set_number(double& value, std::string_view option, const std::string& text);
void set_number(std::optional<double>& value, std::string_view option, const std::string& text);

// The name of an option and, if it has underscores, its spelling with dashes.
std::string spellings(const std::string& name);

// An option that takes a number, set(number). CLI11's own conversion lets -2 wrap around and reads 010 as eight.
template <class Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, const std::string& meaning,
                        std::function<void(Number)> set) {
  return command
      .add_option_function<std::string>(
          spellings(name),
          [set, name](const std::string& text) {
            Number number;
            set_number(number, name, text);
            set(number);
          },
          meaning)
      ->option_text("NUMBER");
}

// An option that stores its number in `value`.
template <class Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& value, const std::string& meaning) {
  return add_number<Number>(command, name, meaning, [&value](Number number) { value = number; });
}

// An option that takes one of some words: choose(index of the word).
CLI::Option* add_choice(CLI::App& command, const std::string& name, const std::vector<std::string>& choices,
                        const std::string& meaning, std::function<void(std::size_t)> choose);

// An option that stores one of some words in `value`.
CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value, const std::vector<std::string>& choices,
                        const std::string& meaning);

// An option without a value. CLI11's own would take --quiet=3.
CLI::Option* add_flag(CLI::App& command, const std::string& name, bool& value, const std::string& meaning);

// An option for a parameter of an operation; it stores the parameter in `value`.
CLI::Option* add_param(CLI::App& command, const isentropic::ParamInfo& param, isentropic::ParamValue& value);

// A parameter's default: "none, required", "none", "0.5".
std::string default_text(const isentropic::ParamInfo& param);

// An option that takes the name of a file, or - for `standard`. It refuses an empty name, the value of an unset variable in a
// script.
CLI::Option* add_path(CLI::App& command, const std::string& name, std::string& path, std::string_view standard,
                      const std::string& meaning);

// The help's word for a second file that is required. The command itself reports it as missing, because CLI11 would take a
// single argument for that file.
inline constexpr std::string_view kRequired = "REQUIRED";

// The argument FILE, which holds `holds`, and the options for reading it.
void add_input_options(CLI::App& command, Files& files, std::string_view holds = "Scores");

// The argument MORE, for commands that take rows one by one: further files, whose rows follow.
void add_more_files(CLI::App& command, Files& files);

// The options for the form of results: --format-out and --precision.
void add_form_options(CLI::App& command, Files& files);

// The options --header and --no-header. `what` describes a first line that is not a header.
void add_header_options(CLI::App& command, Files& files, std::string_view what);

// The option -o: the first with the options for the form of a table, the second for other results.
void add_output_option(CLI::App& command, Files& files);
CLI::Option* add_output_option(CLI::App& command, Files& files, const std::string& meaning);

// The last line of every command's help.
inline constexpr std::string_view kEverywhere = "--threads, --simd and --quiet work here too: isentropic --help";

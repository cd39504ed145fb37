// The options that do not depend on an operation.
#include "options.h"

#include <algorithm>
#include <charconv>

#include "files/format.h"

using files::format_endings;
using files::format_names;

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

std::string spellings(const std::string& name) {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed == name ? name : name + "," + dashed;
}

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

CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value, const std::vector<std::string>& choices,
                        const std::string& meaning) {
  return add_choice(command, name, choices, meaning, [&value, choices](std::size_t i) { value = choices[i]; });
}

CLI::Option* add_path(CLI::App& command, const std::string& name, std::string& path, std::string_view standard,
                      const std::string& meaning) {
  const auto set = [&path, &command, name, standard](const std::string& text) {
    if (text.empty()) {
      const std::string shown = name.substr(0, name.find(','));
      bad_input("{}: {} must be the name of a file, or - for {}, got ''", command.get_name(), shown, standard);
    }
    path = text;
  };
  return command.add_option_function<std::string>(name, set, meaning);
}

CLI::Option* add_flag(CLI::App& command, const std::string& name, bool& value, const std::string& meaning) {
  return command.add_flag(name, value, meaning)->disable_flag_override();
}

void add_input_options(CLI::App& command, Files& files, std::string_view holds) {
  add_path(command, "FILE", files.in, "standard input",
           fmt::format("{}: {}; - or nothing is standard input, as CSV", holds, format_endings()))
      ->option_text(" ");
  add_choice(command, "--format-in", files.in_format, format_names(), "What FILE is, whatever its name");
  command
      .add_option_function<std::string>(
          "--key", [&files](const std::string& text) { files.reading.key = text; },
          "Which array of FILE, where an .npz, .jsonl or .safetensors has several")
      ->option_text("NAME");
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

void add_output_option(CLI::App& command, Files& files) {
  add_output_option(
      command, files,
      fmt::format("File to write: {} (default: standard output, as CSV); arrays drop header and labels", format_endings()));
}

CLI::Option* add_output_option(CLI::App& command, Files& files, const std::string& meaning) {
  return add_path(command, "-o,--output", files.out, "standard output", meaning)->option_text("OUT");
}

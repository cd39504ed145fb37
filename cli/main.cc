// The command line: finds the command, runs it, and says in one sentence what was wrong.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isentropic/isentropic.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.h"
#include "families.h"
#include "files/file.h"
#include "files/system.h"
#include "files/text.h"
#include "terminal.h"

namespace {

// The distance of two words: the fewest letters to insert, remove, replace or swap with the next.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      d[i][j] = i == 0   ? j
                : j == 0 ? i
                         : std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// "; did you mean softmax? See" if known words start with the typed one or resemble it, otherwise "; see".
std::string meant(std::string typed, const std::vector<std::string>& known) {
  const auto plain = [](std::string word) {
    std::erase_if(word, [](char c) { return c == '_' || c == '-'; });
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    return word;
  };
  typed = plain(typed.substr(0, typed.find('=')));
  std::vector<std::string> found;
  std::size_t nearest = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string& word : known) {
    const std::string like = plain(word);
    const std::size_t away = typed.size() > 1 && like.starts_with(typed) ? 0 : distance(typed, like);
    if (away < nearest) found.clear();
    if (away <= nearest && away < std::max<std::size_t>(1, typed.size() / 3) + 1) found.push_back(word);
    nearest = std::min(nearest, away);
  }
  if (found.empty()) return "; see";
  return fmt::format("; did you mean {}? See", fmt::join(found, " or "));
}

// `what` is CLI11's sentence, which begins with the name.
[[noreturn]] void no_value(std::string_view of_command, std::string_view what, std::string_view help) {
  bad_input("{}--{} takes no value; see {}", of_command, what.substr(0, what.find_first_of(" :")), help);
}

// The first example in a command's help.
std::string example_of(const CLI::App& command) {
  static constexpr std::string_view kExample = "Example: ";
  const std::string footer = command.get_footer();
  const std::size_t start = footer.find(kExample) + kExample.size();
  return footer.substr(start, footer.find('\n', start) - start);
}

// Help in lines no wider than the terminal.
class Formatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return folded(CLI::Formatter::make_help(app, std::move(name), mode));
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    return option->get_option_text() == kRequired ? option->get_name(true) : CLI::Formatter::make_option_usage(option);
  }
};

// Turns what the parser found into a sentence that names the argument.
[[noreturn]] void explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const std::string help =
      commands.empty() ? "isentropic --help" : fmt::format("isentropic {} --help", commands[0]->get_name());
  // CLI11's words start with the option's name and a colon.
  const std::string_view what = error.what();
  const std::string option(what.substr(0, what.find(':')));
  const std::string of_command = commands.empty() ? "" : commands[0]->get_name() + ": ";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const CLI::Option* found = commands.empty() ? nullptr : commands[0]->get_option_no_throw(option);
    if (found == nullptr) found = app.get_option_no_throw(option);
    const bool repeated = found != nullptr && found->count() > 1;
    if (what.find("flag override") != what.npos) no_value(of_command, what, help);
    bad_input("{}{} {}; see {}", of_command, option, repeated ? "is given more than once" : "needs a value", help);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    no_value(of_command, what, help);  // every other option converts its own text
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty()) {
    bad_input("{}, as in {}", what, example_of(*commands[0]));
  }
  std::vector<std::string> rest = app.remaining(true);
  const auto is_option = [](const std::string& argument) { return argument.starts_with("--"); };
  if (commands.empty()) {
    std::stable_partition(rest.begin(), rest.end(), [&](const std::string& argument) { return !is_option(argument); });
    if (rest.empty()) bad_input("which command? See {}", help);
    if (rest[0].starts_with('-')) bad_input("unexpected argument '{}'; see {}", rest[0], help);
    if (rest[0].find('.') != rest[0].npos) {
      bad_input("there is no command '{}'; the command comes before the file, as in isentropic softmax {}", rest[0], rest[0]);
    }
    for (const isentropic::FamilyInfo& family : isentropic::families()) {
      for (const isentropic::OperationInfo& one : family.operations) {
        if (one.name != rest[0]) continue;
        if (one.command.empty()) bad_input("there is no command '{}', only a function in C++ and Python", one.name);
        bad_input("there is no command '{}'; it is isentropic {}", one.name, command_name(one));
      }
    }
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(command->get_name());
    bad_input("there is no command '{}'{} {}", rest[0], meant(rest[0], names), help);
  }
  std::stable_partition(rest.begin(), rest.end(), is_option);
  if (!rest.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* known : {static_cast<const CLI::App*>(commands[0]), &app}) {
      for (const CLI::Option* one : known->get_options()) {
        for (const std::string& name : one->get_lnames()) names.push_back("--" + name);
      }
    }
    const CLI::Option* const file = commands[0]->get_option_no_throw("FILE");
    if (file != nullptr && file->count() == 0 && rest[0].starts_with('-') && !is_option(rest[0])) {
      bad_input("{}: unexpected argument '{}'; a file of that name is ./{}", commands[0]->get_name(), rest[0], rest[0]);
    }
    if (!is_option(rest[0]) && file != nullptr && file->count() == 0) {
      bad_input("the command comes before the file: isentropic {} {}", commands[0]->get_name(), rest[0]);
    }
    std::string hint = is_option(rest[0]) ? meant(rest[0], names) : "; see";
    for (const isentropic::OperationInfo& step : isentropic::family_info<isentropic::Step>().operations) {
      if (commands[0]->get_name() == "sample" && rest[0] == fmt::format("--{}", step.name)) {
        hint = fmt::format("; {} is a step: --steps {}=NUMBER; see", step.name, step.name);
      }
    }
    bad_input("{}: unexpected argument '{}'{} {}", commands[0]->get_name(), rest[0], hint, help);
  }
  bad_input("{}; see {}", error.what(), help);
}

int run(int argc, char** argv) {
  CLI::App app("Scores to distributions: softmax, sparsemax and other maps over the rows of a file.", "isentropic");
  app.set_version_flag("--version", "isentropic " ISENTROPIC_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.formatter(std::make_shared<Formatter>());
  app.get_formatter()->column_width(28);
  app.footer(
      "Examples:\n"
      "  isentropic softmax scores.csv --temperature 0.5 -o probabilities.csv\n"
      "  isentropic compare scores.npy --row 3\n"
      "  cat scores.csv | isentropic sparsemax | head\n"
      "  # the reply of a language model's server to a request with top_logprobs\n"
      "  isentropic describe reply.json --format-in logprobs\n\n"
      "A row is a line of a .csv, .tsv or .jsonl, the last axis of an .npy, .npz or .safetensors.\n"
      "Messages name a place as file:line:cell, from 1; rows of arrays count from 0.\n"
      "In replies with top_logprobs the cell is a column of the text.\n"
      "Exit status: 0 done, 1 impossible with this data or on this machine, 2 bad input or usage.\n"
      "Colours are only used on a terminal; NO_COLOR=1 turns them off.");

  Program program;
  std::size_t threads = 0;
  std::string simd;
  add_number(app, "--threads", threads, "Use at most this many threads; 0: one per processor. Results do not depend on it");
  add_choice(app, "--simd", simd, isentropic::simd_targets(), "Use this SIMD instruction set, to compare results or speed");
  add_flag(app, "--quiet", program.files.quiet, "Write only errors to standard error");

  add_list(app, program);
  add_compare(app, program);
  add_explore(app, program);
  add_describe(app, program);
  add_maps(app, program);
  add_entropy_control(app, program);
  add_table_maps(app, program);
  add_measures(app, program);
  add_losses(app, program);
  add_calibration(app, program);
  add_sample(app, program);
  add_transport(app, program);
  add_distances(app, program);
  add_shell(app, program);

  try {
    // "help softmax" means "softmax --help", and "help" without a command means "--help".
    std::vector<std::string> arguments = files::sys::arguments(argc, argv);
    const auto word = std::ranges::find_if(arguments, [](const std::string& argument) { return argument != "--quiet"; });
    if (word != arguments.end() && *word == "help") {
      arguments.erase(word);
      arguments.push_back("--help");
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the last argument first
    app.parse(arguments);
  } catch (const CLI::Success& asked) {  // --help, --version
    const int status = app.exit(asked);
    if (!std::cout.flush()) throw files::SystemFailure("standard output", errno);
    return status;
  } catch (const CLI::ParseError& error) {
    explain(app, error);
  }
  if (threads > 0) isentropic::set_num_threads(threads);
  if (!simd.empty()) isentropic::force_simd_target(simd);
  files::clean_up_on_signals();
  program.action();
  return 0;
}

// Whether the system's error says that the machine cannot do it, rather than that a file is wrong.
bool is_of_machine(int error) {
#ifdef EDQUOT
  if (error == EDQUOT) return true;
#endif
  return error == ENOSPC || error == EFBIG || error == EIO;
}

void complain(std::string_view what) {
  const bool colored = wants_color(files::sys::standard_error);
  try {
    fmt::print(stderr, "{}isentropic:{} {}\n", colored ? "\x1b[1;31m" : "", colored ? "\x1b[0m" : "", files::printable(what));
  } catch (const std::system_error&) {  // standard error is closed or full
  }
}

}  // namespace

int main(int argc, char** argv) {
  files::sys::keep_standard_error();
  try {
    return run(argc, argv);
  } catch (const files::SystemFailure& error) {
    complain(error.what());
    return is_of_machine(error.number) ? 1 : 2;
  } catch (const BadInput& error) {
    complain(error.what());
    return 2;
  } catch (const std::invalid_argument& error) {
    complain(error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    complain("not enough memory");
  } catch (const std::length_error&) {  // a size beyond what a container can hold
    complain("not enough memory");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return 1;
}

// The table of operations as text, as Markdown and as JSON.
#include <algorithm>
#include <cctype>
#include <memory>

#include "commands.h"
#include "families.h"
#include "files/file.h"
#include "files/text.h"
#include "options.h"
#include "terminal.h"

namespace {

using isentropic::FamilyInfo;
using isentropic::OperationInfo;
using isentropic::ParamInfo;

std::string laws_text(const isentropic::Laws& held) {
  std::string laws;
  const auto add = [&](bool holds, std::string_view law) {
    if (holds) laws += fmt::format("{}{}", laws.empty() ? "" : "; ", law);
  };
  add(held.shift, "shift: adding a constant to all scores changes nothing");
  add(held.order, "order: a higher score never gets a lower probability");
  add(held.ties_by_index, "of equal scores, truncation keeps those with the lower index");
  add(held.sparse, "sparse: low scores may get exactly 0");
  return laws.empty() ? "none" : laws;
}

// A cell of a table, in which | is escaped: it would end the cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

std::string lower(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  return small;
}

// Whether what is said of an operation has a word, in any case; - and a blank are as _.
bool has_word(const FamilyInfo& family, const OperationInfo& info, std::string_view word) {
  const auto plain = [](std::string_view text) {
    std::string found = lower(text);
    std::ranges::replace(found, '-', ' ');
    std::ranges::replace(found, '_', ' ');
    return found;
  };
  const std::string wanted = plain(word);
  const auto has = [&](std::string_view text) { return plain(text).find(wanted) != std::string::npos; };
  if (has(info.name) || has(command_name(info)) || has(info.summary) || has(info.source) || has(family.title)) return true;
  return std::ranges::any_of(info.params, [&](const ParamInfo& param) { return has(param.name) || has(param.meaning); });
}

// The list for a terminal: all operations, or those that have a word.
std::string list_text(std::string_view word) {
  std::string text;
  const auto add = [&]<class... Args>(fmt::format_string<Args...> line, Args&&... args) {
    fmt::format_to(std::back_inserter(text), line, std::forward<Args>(args)...);
  };
  bool any = false;
  for (const FamilyInfo& family : isentropic::families()) {
    const auto wanted = [&](const OperationInfo& info) { return word.empty() || has_word(family, info, word); };
    if (std::ranges::none_of(family.operations, wanted)) continue;
    any = true;
    add("{}: {}\n", family.title, family.meaning);
    for (const OperationInfo& info : family.operations) {
      if (!wanted(info)) continue;
      add("\n  {}\n", command_name(info));
      add("      {}\n", info.summary);
      add("      {}\n", info.formula);
      for (const ParamInfo& param : info.params) {
        add("      {}{:<16} {} ({}; default {})\n", !info.command.empty() ? "--" : "  ", param.name, param.meaning,
            param.allowed, default_text(param));
      }
    }
    add("\n");
  }
  if (!any) bad_input("list: no operation has the word {}; isentropic list shows all", files::in_quotes(word));
  add("isentropic NAME --help shows how to run one.\n");
  return text;
}

// The text of docs/operations.md.
std::string list_markdown() {
  std::string text =
      "# Operations\n\n"
      "Every operation with its definition, as `isentropic list --markdown` prints it from the library's own descriptions.\n"
      "The symbols are:\n\n"
      "- x: scores; T: the temperature that divides them; p and q: probabilities; H: the entropy; y: other results\n"
      "- g: the gradient in the result of a map, from which the line \"Gradient\" computes the gradient in the scores\n"
      "- `<a,b>`: the sum of a_i b_i; `1[...]`: 1 if the condition holds, otherwise 0; J: the matrix of derivatives\n"
      "- tau: a threshold; support: the entries above 0; t: the true class; e_t: the distribution with 1 at t\n"
      "- in transport, P: the plan, C: its costs, a and b: the masses, f and g: the potentials\n\n"
      "The [glossary](glossary.md) explains these terms.\n\n"
      "The parameters are those of C++ and of the commands. Python has `gamma_range=(min_gamma, max_gamma)` instead of the "
      "two\n"
      "parameters, and no `sum_tolerance`: the tolerance is that of the numbers' type.\n";
  const auto add = [&]<class... Args>(fmt::format_string<Args...> line, Args&&... args) {
    fmt::format_to(std::back_inserter(text), line, std::forward<Args>(args)...);
  };
  for (const FamilyInfo& family : isentropic::families()) {
    add("\n## {}: {}\n", family.title, family.meaning);
    for (const OperationInfo& info : family.operations) {
      add("\n### `{}`\n\n{}\n\n", info.name, info.summary);
      if (info.command.empty()) {
        add("- In C++ and Python\n");
      } else if (command_name(info) != info.name) {
        add("- Command: `isentropic {}`\n", command_name(info));
      }
      add("- Formula: `{}`\n", info.formula);
      add("- Gradient: `{}`\n", info.gradient);
      if (info.laws != nullptr) add("- Laws: {}\n", laws_text(*info.laws));
      add("- Source: {}\n", info.source);
      if (!info.params.empty()) add("\n| parameter | default | range | meaning |\n|---|---|---|---|\n");
      for (const ParamInfo& param : info.params) {
        add("| `{}` | {} | {} | {} |\n", param.name, default_text(param), param.allowed, cell(param.meaning));
      }
    }
  }
  return text;
}

}  // namespace

void add_list(CLI::App& app, Program& program) {
  CLI::App& command = *app.add_subcommand("list", "Every operation with its parameters, or those with a word.");
  const auto word = std::make_shared<std::string>();
  CLI::Option* const search =
      command
          .add_option_function<std::string>(
              "WORD",
              [word](const std::string& text) {
                if (text.empty()) bad_input("list: WORD must not be empty");
                *word = text;
              },
              "Only operations that have it in their name, summary, source or parameters, in capitals or not")
          ->option_text(" ");
  const auto markdown = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  add_flag(command, "--markdown", *markdown, "The text of docs/operations.md")->excludes(search);
  add_flag(command, "--json", *json, "All descriptions as JSON, for programs")->excludes("--markdown")->excludes(search);
  command.footer("Example: isentropic list\nExample: isentropic list temperature");
  command.callback([markdown, json, word, &program] {
    program.action = [markdown, json, word] {
      files::write_output("", *json ? isentropic::operations_json() : *markdown ? list_markdown() : folded(list_text(*word)));
    };
  });
}

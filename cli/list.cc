// The table of operations as text and as Markdown.
#include <memory>
#include <utility>

#include "commands.h"
#include "families.h"
#include "files/file.h"
#include "terminal.h"

namespace {

using entropic::for_each_operation;
using entropic::for_each_param;

std::string laws_text(const entropic::Description& description) {
  std::string laws;
  const auto add = [&](bool holds, std::string_view law) {
    if (holds) laws += fmt::format("{}{}", laws.empty() ? "" : "; ", law);
  };
  add(description.shift, "shift: adding a constant to all scores changes nothing");
  add(description.order, "order: a higher score never gets less");
  add(description.ties_by_index, "equal scores may be cut apart, the lower index first");
  add(description.sparse, "sparse: low scores may get exactly 0");
  return laws.empty() ? "none" : laws;
}

// A cell of a table: | would end it.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

// For a terminal.
std::string list_text() {
  std::string text;
  const auto add = [&]<class... Args>(fmt::format_string<Args...> line, Args&&... args) {
    fmt::format_to(std::back_inserter(text), line, std::forward<Args>(args)...);
  };
  for_each_family([&]<class Family>(FamilyTitle title, std::type_identity<Family>) {
    add("{}: {}\n", title.name, title.meaning);
    for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
      add("\n  {}\n", command_name<Op>());
      add("      {}\n", Op::kDescription.summary);
      add("      {}\n", Op::kDescription.formula);
      for_each_param<Op>([&](const auto& param) {
        const std::string_view dashes = kHasCommands<Family> ? "--" : "  ";
        add("      {}{:<16} {} ({}; default {})\n", dashes, param.name, param.meaning, allowed_values(param),
            default_text(param));
      });
    });
    add("\n");
  });
  add("entropic NAME --help shows how to run one.\n");
  return text;
}

// docs/operations.md.
std::string list_markdown() {
  std::string text =
      "# Operations\n\n"
      "Every operation with its definition, as `entropic list --markdown` prints it from the library's own descriptions.\n"
      "x are scores, p probabilities, y other results, g the gradient that comes back; T is the temperature.\n";
  const auto add = [&]<class... Args>(fmt::format_string<Args...> line, Args&&... args) {
    fmt::format_to(std::back_inserter(text), line, std::forward<Args>(args)...);
  };
  for_each_family([&]<class Family>(FamilyTitle title, std::type_identity<Family>) {
    add("\n## {}: {}\n", title.name, title.meaning);
    for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
      const entropic::Description& description = Op::kDescription;
      add("\n### `{}`\n\n{}\n\n", description.name, description.summary);
      if (command_name<Op>() != description.name) add("- Command: `entropic {}`\n", command_name<Op>());
      add("- Formula: `{}`\n", description.formula);
      add("- Gradient: `{}`\n", description.gradient);
      add("- Laws: {}\n", laws_text(description));
      add("- Source: {}\n", description.source);
      bool first = true;
      for_each_param<Op>([&](const auto& param) {
        if (std::exchange(first, false)) add("\n| parameter | default | range | meaning |\n|---|---|---|---|\n");
        add("| `{}` | {} | {} | {} |\n", param.name, default_text(param), allowed_values(param), cell(param.meaning));
      });
    });
  });
  return text;
}

}  // namespace

void add_list(CLI::App& app, Program& program) {
  CLI::App& command = *app.add_subcommand("list", "Every operation with its parameters.");
  const auto markdown = std::make_shared<bool>(false);
  add_flag(command, "--markdown", *markdown, "As docs/operations.md has it");
  command.footer("Example: entropic list");
  command.callback([markdown, &program] {
    program.action = [markdown] { files::write_output("", *markdown ? list_markdown() : folded(list_text())); };
  });
}

// Completion for bash, zsh and fish and a manual page, made from the commands themselves.
#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "families.h"
#include "files/file.h"

namespace {

using Options = std::vector<const CLI::Option*>;
using Commands = std::vector<const CLI::App*>;

Commands commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

Options options_of(const CLI::App& command, bool positional) {
  return command.get_options(
      [=](const CLI::Option* option) { return !option->get_group().empty() && positional == option->get_positional(); });
}

// --row, or -o if the option has no longer name.
std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? "-" + option.get_snames()[0] : "--" + option.get_lnames()[0];
}

// The value of an option: none, a file, one word of a list, several words with commas between them, or a value that no shell
// can guess.
enum class Value { none, file, word, list, other };

struct Takes {
  Value value;
  std::string words;
};

Takes value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {Value::none, ""};
  std::string text = option.get_option_text();
  if (text == "FILE" || text == "OUT") return {Value::file, ""};
  if (name_of(option) == "--maps") {
    std::string names;
    for (const isentropic::OperationInfo& map : isentropic::family_info<isentropic::Map>().operations) {
      names += (names.empty() ? "" : " ") + std::string(map.name);
    }
    return {Value::list, names};
  }
  // NAME|N is a name or a number.
  if (text.find('|') == text.npos || text.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != text.npos) return {Value::other, ""};
  std::replace(text.begin(), text.end(), '|', ' ');
  return {Value::word, text};
}

std::string joined(const auto& range, const auto& text) {
  std::string result;
  for (const auto& item : range) result += (result.empty() ? std::string() : std::string(" ")) + text(item);
  return result;
}

// Text in single quotes for a shell. A colon would end a name in zsh's descriptions.
std::string in_shell_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

// Calls f(name of the command or "", its options) for the program and each command.
void for_each_command(const CLI::App& app, const auto& f) {
  f(std::string(), options_of(app, false));
  for (const CLI::App* command : commands_of(app)) {
    Options options = options_of(*command, false);
    const Options everywhere = options_of(app, false);
    for (const CLI::Option* option : everywhere) {
      if (option != app.get_help_ptr() && name_of(*option) != "--version") options.push_back(option);
    }
    f(command->get_name(), options);
  }
}

std::string bash_completion(const CLI::App& app) {
  const std::string names = joined(commands_of(app), [](const CLI::App* command) { return command->get_name(); });
  std::string options, words;
  for_each_command(app, [&](const std::string& command, const Options& of_command) {
    options += fmt::format("    '{}') options='{}' ;;\n", command,
                           joined(of_command, [](const CLI::Option* option) { return name_of(*option); }));
    for (const CLI::Option* option : of_command) {
      const Takes takes = value_of(*option);
      if (takes.value == Value::none || takes.value == Value::file) continue;
      const char* const kind = takes.value == Value::other ? "other" : takes.value == Value::list ? "list" : "word";
      words += fmt::format("    '{} {}') kind={} words='{}' ;;\n", command, name_of(*option), kind, takes.words);
    }
  });
  return fmt::format(R"(# bash completion for isentropic: source <(isentropic completion bash)
_isentropic() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local commands='{}' command='' options='' kind='' words='' word before=''
  if [[ $current == = ]]; then
    current=''
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " $commands " in *" $word "*) command=$word; break ;; esac
  done
  case "$command $previous" in
{}  esac
  case "$command" in
{}  esac
  COMPREPLY=()
  if [[ -z $kind && $current != -* && -n $command ]]; then
    return  # to files, which readline offers itself: it knows how to quote their names
  fi
  compopt +o default 2>/dev/null
  case "$kind" in
    other) ;;
    word) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    list)
      [[ $current == *,* ]] && before=${{current%,*}},
      COMPREPLY=($(compgen -P "$before" -W "$words" -- "${{current##*,}}"))
      compopt -o nospace 2>/dev/null ;;
    *)
      [[ $current == -* ]] && commands=$options
      COMPREPLY=($(compgen -W "$commands" -- "$current")) ;;
  esac
}}
complete -o default -F _isentropic isentropic
)",
                     names, words, options);
}

std::string zsh_completion(const CLI::App& app) {
  std::string commands, options, words;
  for (const CLI::App* command : commands_of(app)) {
    commands += fmt::format("    {}\n", in_shell_quotes(command->get_name() + ":" + command->get_description()));
  }
  for_each_command(app, [&](const std::string& command, const Options& of_command) {
    options += fmt::format("    '{}')\n      options=(\n", command);
    for (const CLI::Option* option : of_command) {
      options += fmt::format("        {}\n", in_shell_quotes(name_of(*option) + ":" + option->get_description()));
      const Takes takes = value_of(*option);
      if (takes.value == Value::none || takes.value == Value::file) continue;
      const std::string add = takes.value == Value::other  ? ""
                              : takes.value == Value::list ? fmt::format("compset -P '*,'; compadd -S '' {}; ", takes.words)
                                                           : fmt::format("compadd {}; ", takes.words);
      words += fmt::format("    '{} {}') {}return ;;\n", command, name_of(*option), add);
    }
    options += "      ) ;;\n";
  });
  return fmt::format(R"(#compdef isentropic
# zsh completion for isentropic: isentropic completion zsh > "${{fpath[1]}}/_isentropic"
_isentropic() {{
  local -a commands options
  local command word
  commands=(
{}  )
  for word in ${{words[2,CURRENT-1]}}; do
    if (( ${{commands[(I)$word:*]}} )); then
      command=$word
      break
    fi
  done
  case "$command $words[CURRENT-1]" in
{}  esac
  case "$command" in
{}  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe option options
  elif [[ -z $command ]]; then
    _describe command commands
  else
    _files
  fi
}}
if [[ $funcstack[1] == _isentropic ]]; then
  _isentropic "$@"
else
  compdef _isentropic isentropic
fi
)",
                     commands, words, options);
}

std::string in_fish_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string fish_completion(const CLI::App& app) {
  std::string text =
      "# fish completion for isentropic: isentropic completion fish > ~/.config/fish/completions/isentropic.fish\n"
      "complete -c isentropic -n __fish_use_subcommand -f\n";
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format("complete -c isentropic -n __fish_use_subcommand -a {} -d {}\n", command->get_name(),
                        in_fish_quotes(command->get_description()));
  }
  for_each_command(app, [&](const std::string& command, const Options& of_command) {
    const std::string where = command.empty() ? "__fish_use_subcommand" : "'__fish_seen_subcommand_from " + command + "'";
    for (const CLI::Option* option : of_command) {
      text += "complete -c isentropic -n " + where;
      for (const std::string& name : option->get_snames()) text += " -s " + name;
      for (const std::string& name : option->get_lnames()) text += " -l " + name;
      const Takes takes = value_of(*option);
      if (takes.value == Value::file) text += " -r -F";
      if (takes.value == Value::other) text += " -x";
      if (takes.value == Value::word) text += " -x -a " + in_fish_quotes(takes.words);
      if (takes.value == Value::list) text += " -x -a " + in_fish_quotes("(__fish_append , " + takes.words + ")");
      text += " -d " + in_fish_quotes(option->get_description()) + "\n";
    }
  });
  return text;
}

// Text for troff: a - stays a minus sign, and no line looks like a request.
std::string roff(std::string_view text) {
  std::string result;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) result += "\\&";
    at_start = c == '\n';
    if (c == '-' || c == '\\') {
      result += c == '-' ? "\\-" : "\\e";
    } else {
      result += c;
    }
  }
  return result;
}

std::string roff_option(const CLI::Option& option, bool positional) {
  const std::string text = option.get_option_text();
  const std::string alone = option.get_name(positional, !positional);
  const std::string name = positional && !option.get_required() ? "[" + alone + "]" : alone;
  const bool takes = !positional && text.find_first_not_of(' ') != text.npos;
  return fmt::format(".TP\n.B {}{}\n{}\n", roff(name), takes ? " \\fI" + roff(text) + "\\fR" : "",
                     roff(option.get_description()));
}

std::string manual(const CLI::App& app) {
  std::string page = fmt::format(
      ".TH ISENTROPIC 1 \"\" \"isentropic {}\" \"User Commands\"\n.SH NAME\nisentropic \\- scores to distributions\n"
      ".SH SYNOPSIS\n.B isentropic\n\\fICOMMAND\\fR [\\fIFILE\\fR] [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n{}\n"
      ".SH OPTIONS OF EVERY COMMAND\n",
      ISENTROPIC_VERSION, roff(app.get_description()));
  for (const CLI::Option* option : options_of(app, false)) page += roff_option(*option, false);
  std::string group;
  for (const CLI::App* command : commands_of(app)) {
    const std::string of_command = command->get_group() == "Subcommands" ? "Commands" : command->get_group();
    if (of_command != group) {
      group = of_command;
      std::string title = group;
      std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
      page += fmt::format(".SH {}\n", roff(title));
    }
    page += fmt::format(".SS isentropic {}\n{}\n", roff(command->get_name()), roff(command->get_description()));
    for (const bool positional : {true, false}) {
      for (const CLI::Option* option : options_of(*command, positional)) {
        if (option != command->get_help_ptr()) page += roff_option(*option, positional);
      }
    }
    std::string footer = command->get_footer();
    footer = footer.substr(0, footer.find(kEverywhere));
    page += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(footer.substr(0, footer.find_last_not_of('\n') + 1)));
  }
  page += fmt::format(
      ".SH EXAMPLES AND EXIT STATUS\n.nf\n{}\n.fi\n.SH ENVIRONMENT\n"
      ".TP\n.B NO_COLOR\nIf it is set to anything, nothing is coloured; otherwise only output to a terminal is.\n"
      ".TP\n.B COLUMNS\nThe width of the terminal.\n"
      ".TP\n.B LC_ALL, LC_CTYPE, LANG\nThey decide whether bars are made of block characters (UTF\\-8) or of #.\n",
      roff(app.get_footer()));
  return page;
}

}  // namespace

void add_shell(CLI::App& app, Program& program) {
  CLI::App& completion = *app.add_subcommand("completion", "Completion of commands and options for a shell.");
  const auto shell = std::make_shared<std::string>();
  add_choice(completion, "SHELL", *shell, {"bash", "zsh", "fish"}, "bash, zsh or fish")->required()->option_text(" ");
  completion.footer(
      "Example: isentropic completion bash > ~/.local/share/bash-completion/completions/isentropic\n"
      "         isentropic completion zsh > \"${fpath[1]}/_isentropic\"\n"
      "         isentropic completion fish > ~/.config/fish/completions/isentropic.fish");
  completion.callback([shell, &app, &program] {
    program.action = [shell, &app] {
      const auto text = *shell == "bash" ? bash_completion : *shell == "zsh" ? zsh_completion : fish_completion;
      files::write_output("", text(app));
    };
  });
  CLI::App& man = *app.add_subcommand("man", "This help as a manual page.");
  man.footer("Example: isentropic man | man -l -");
  man.callback([&app, &program] { program.action = [&app] { files::write_output("", manual(app)); }; });
}

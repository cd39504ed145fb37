// The options that do not depend on an operation.
#include "options.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "files/format.h"
#include "src/from_chars.h"

using files::format_endings;
using files::format_names;

namespace {

// Refuses a number that its type cannot hold.
template <class Number>
void check_range(std::errc error, std::string_view option, const std::string& text) {
  if (error != std::errc::result_out_of_range) return;
  using Limits = std::numeric_limits<Number>;
  if (text.starts_with('-')) bad_input("{} is too small: it must be at least {}, got '{}'", option, Limits::lowest(), text);
  bad_input("{} is too large: it must be at most {}, got '{}'", option, Limits::max(), text);
}

}  // namespace

void set_number(std::size_t& value, std::string_view option, const std::string& text, std::size_t least) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end == text.data() + text.size()) check_range<std::size_t>(error, option, text);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    bad_input("{} must be a whole number of at least {}, got '{}'", option, least, text);
  }
}

void set_number(std::int64_t& value, std::string_view option, const std::string& text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end == text.data() + text.size()) check_range<std::int64_t>(error, option, text);
  if (error != std::errc() || end != text.data() + text.size()) bad_input("{} must be a whole number, got '{}'", option, text);
}

void set_number(double& value, std::string_view option, const std::string& text) {
  const auto [end, error] = isentropic::double_from_chars(text.data(), text.data() + text.size(), value);
  if (end == text.data() + text.size() && error == std::errc::result_out_of_range) {
    bad_input("{} is out of range: its size must be 0 or from 5e-324 to 1.8e308, got '{}'", option, text);
  }
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

void add_header_options(CLI::App& command, Files& files, std::string_view what) {
  files::ReadOptions& reading = files.reading;
  const auto add = [&](const std::string& name, bool value, const std::string& meaning) {
    return command
        .add_flag_callback(
            name, [&reading, value] { reading.header = value; }, meaning)
        ->disable_flag_override();
  };
  CLI::Option* const header = add("--header", true, "The first line holds names, even if they look like numbers");
  add("--no-header", false, fmt::format("The first line holds {}", what))->excludes(header);
}

void add_input_options(CLI::App& command, Files& files, std::string_view holds) {
  add_path(command, "FILE", files.in, "standard input",
           fmt::format("{}: {}, also with .gz or .zst; - or nothing is standard input, as CSV", holds, format_endings()))
      ->option_text(" ");
  add_choice(command, "--format-in", files.in_format, format_names(), "The format of FILE (default: by its name)");
  command
      .add_option_function<std::string>(
          "--key", [&files](const std::string& text) { files.reading.key = text; },
          "Which array of FILE to read, if an .npz, .jsonl or .safetensors has several")
      ->option_text("NAME");
  const auto add_text = [&](const std::string& name, std::string& text, const std::string& meaning, const std::string& form) {
    const auto set = [&text, &command, name](const std::string& given) {
      if (given.empty()) bad_input("{}: {} must not be empty", command.get_name(), name);
      text = given;
    };
    command.add_option_function<std::string>(name, set, meaning)->option_text(form);
  };
  files::ReadOptions& reading = files.reading;
  add_header_options(command, files, "scores");
  command
      .add_option_function<std::string>(
          "--labels",
          [&reading](const std::string& text) {
            if (text == "0") bad_input("--labels counts columns from 1, got 0");
            if (text.empty()) bad_input("--labels must be a column's name or number, got ''");
            reading.label = text;
          },
          "Column of labels, by name or counted from 1 (default: the one that has no number in the first row of scores); "
          "of a .jsonl, the field")
      ->option_text("NAME|N");
  add_text(
      "--columns", reading.columns,
      "Columns of scores, as in a,c-f or 2-5 (default: all but labels; one that may not be scores, such as y_true or id, is an "
      "error)",
      "LIST");
  add_text("--exclude", reading.exclude, "Columns to leave out", "LIST");
  command
      .add_option_function<std::string>(
          "--delimiter",
          [&reading](const std::string& text) {
            static constexpr std::pair<std::string_view, char> kNames[] = {
                {"tab", '\t'}, {"\\t", '\t'}, {"comma", ','}, {"semicolon", ';'}, {"space", ' '}};
            reading.delimiter = text.size() == 1 ? text[0] : '\0';
            for (const auto& [name, character] : kNames) {
              if (text == name) reading.delimiter = character;
            }
            const bool taken = std::string_view("0123456789.+-\"\r\n").find(reading.delimiter) != std::string_view::npos;
            if (reading.delimiter == '\0' || taken) {
              bad_input("--delimiter must be tab or one character that is in no number, got '{}'", text);
            }
          },
          "Character between cells (default: , or, in a .tsv, a tab); with ; numbers may have decimal commas")
      ->option_text("CHARACTER");
  command
      .add_option_function<std::string>(
          "--thousands",
          [&reading](const std::string& text) {
            static constexpr std::pair<std::string_view, char> kNames[] = {{"comma", ','}, {"point", '.'}, {"space", ' '}};
            reading.thousands = text.size() == 1 ? text[0] : '\0';
            for (const auto& [name, character] : kNames) {
              if (text == name) reading.thousands = character;
            }
            if (std::string_view(",. '_").find(reading.thousands) == std::string_view::npos || reading.thousands == '\0') {
              bad_input("--thousands must be one of , . ' _ and space, got '{}'", text);
            }
          },
          "Character between groups of three digits in a .csv or .tsv, as in 1,234.5: , . ' _ or space; without it such "
          "numbers "
          "are errors")
      ->option_text("CHARACTER");
  command
      .add_option_function<std::string>(
          "--na",
          [&reading](const std::string& text) {
            reading.na.clear();
            for (std::size_t at = 0; at <= text.size();) {
              const std::string word = text.substr(at, text.find(',', at) - at);
              if (word.empty()) bad_input("--na must be words with commas between them, got '{}'", text);
              reading.na.push_back(word);
              at += word.size() + 1;
            }
          },
          "Words or numbers that also mean a missing value, as in -,?,-999 (empty cells, NA, N/A, #N/A, NULL, None always do)")
      ->option_text("WORD,...");
  command
      .add_option_function<std::string>(
          "--rows",
          [&reading](const std::string& text) {
            const std::size_t colon = text.find(':');
            if (colon == text.npos) bad_input("--rows must be A:B, from row A up to row B, counted from 0, got '{}'", text);
            const std::string first = text.substr(0, colon), end = text.substr(colon + 1);
            reading.first_row = 0;
            reading.end_row = files::kAllRows;
            if (!first.empty()) set_number(reading.first_row, "A of --rows A:B", first);
            if (!end.empty()) set_number(reading.end_row, "B of --rows A:B", end);
            if (reading.first_row >= reading.end_row) bad_input("--rows must be A:B with A below B, got '{}'", text);
          },
          "Rows from A up to B without B, counted from 0; a row has the same draws as in the whole file")
      ->option_text("A:B");
  add_choice(command, "--missing", {"error", "nan", "skip"},
             "How to treat an empty cell, NA or null: as an error, as NaN, or by skipping its row (default error)",
             [&reading](std::size_t i) { reading.missing = static_cast<files::Missing>(i); });
}

void add_more_files(CLI::App& command, Files& files) {
  command
      .add_option_function<std::vector<std::string>>(
          "MORE",
          [&files, &command](const std::vector<std::string>& paths) {
            for (const std::string& path : paths) {
              if (path.empty()) bad_input("{}: MORE must be names of files, got ''", command.get_name());
            }
            files.more = paths;
          },
          "More files of the same kind: their rows follow those of FILE, with one header and one count")
      ->option_text("...");
}

void add_form_options(CLI::App& command, Files& files) {
  add_choice(command, "--format-out", files.out_format, files::output_format_names(),
             "The format of OUT (default: by its name)");
  command
      .add_option_function<std::string>(
          "--precision",
          [&files](const std::string& text) {
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), files.digits);
            const bool whole = error == std::errc() && end == text.data() + text.size();
            if (!whole || files.digits < 1 || files.digits > 17) bad_input("--precision must be from 1 to 17, got {}", text);
          },
          "Significant digits of numbers in text, 1 to 17 (default: as many as each number needs)")
      ->option_text("NUMBER");
}

void add_output_option(CLI::App& command, Files& files) {
  add_output_option(
      command, files,
      fmt::format(
          "File to write: {}, also with .gz or .zst (default: standard output, as CSV); arrays leave out the header and labels",
          format_endings()));
  add_form_options(command, files);
}

CLI::Option* add_output_option(CLI::App& command, Files& files, const std::string& meaning) {
  return add_path(command, "-o,--output", files.out, "standard output", meaning)->option_text("OUT");
}

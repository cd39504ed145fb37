// Comma- and tab-separated values. Numbers are read as float64 and written with the fewest digits that give the same number.
//
// A header is a first line without a number (except in the cell above the labels), or one that begins with an empty cell. A
// label column is one under an empty or missing corner, one without a number in any data row, or the one that the caller names.
// A number in quotes beside numbers without is a word: so are labels and names written that look like numbers.
// If a line or column may be either, the error says which option decides. Positions in messages are line:cell, both counted
// from 1.

#include <algorithm>
#include <atomic>
#include <charconv>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "columns.h"
#include "csv_lines.h"
#include "format.h"
#include "src/from_chars.h"
#include "text.h"

namespace files {
namespace {

using csv::Cell, csv::Lines, csv::count_outside_quotes, csv::first_row, csv::is_blank, csv::trimmed;

std::string separator_name(char separator) { return separator == '\t' ? "tab" : fmt::format("'{}'", separator); }

class CsvReader {
 public:
  CsvReader(std::shared_ptr<Input> input, char separator, const ReadOptions& options)
      : name_(input->name()),
        text_(
            input, separator == '\t' ? " \r" : " \t\r", [this](std::string_view text) { return first_row(text, separator_); },
            options),
        separator_(separator),
        options_(options) {
    text_.names_separator = [this](char named) {
      named_separator_ = true;
      if (options_.delimiter == 0) separator_ = named;
    };
    if (!options.key.empty()) bad_input("{}: only .npz, .jsonl and .safetensors files have a key", name_);
  }

  bool take(Piece& piece, std::size_t numbers) {
    if (!text_.next(piece, text_size(numbers))) {
      refuse_whole_columns();
      return false;
    }
    if (!std::exchange(begun_, true)) begin(piece);
    look_at_whole_columns(piece);
    Table& table = piece.table;
    table.first_row = rows_;
    rows_ += table.rows;
    table.width = roles_.size();
    table.cols = static_cast<std::size_t>(std::count(roles_.begin(), roles_.end(), Role::number));
    table.shape = {table.rows, table.cols};
    table.header = header_;
    table.label_column = label_place_;
    table.label_header = label_header_;
    table.quoted_words = quoted_words_;
    table.kept.clear();
    for (const std::string& name : kept_) table.kept.push_back({name, {}, {}});
    return true;
  }

  void parse(Piece& piece) const {
    Table& table = piece.table;
    std::vector<double> values = reused<double>(table);
    values.clear();
    table.labels.clear();
    table.missing.clear();
    table.places = std::make_shared<Places>();
    table.places->rows.reserve(table.rows);
    for (std::size_t c = 0; c < roles_.size(); ++c) {
      if (roles_[c] == Role::number) table.places->cells.push_back(c + 1);
    }
    if (label_column_) table.places->cells.push_back(*label_column_ + 1);
    Lines lines(piece.text, piece.line, separator_, name_);
    std::vector<Cell> cells;
    std::string_view label;
    for (std::size_t r = 0; r < table.rows; ++r) {
      table.places->rows.push_back({lines.line(), 0});
      if (r < piece.begin || r >= piece.end) {
        lines.skip();
        add_nothing(table, values);
        continue;
      }
      if (plain_ && lines.next_plain(roles_.size(), label_column_, !found_label_ && !no_corner_, values, label)) {
        if (label_column_) table.labels.emplace_back(label);
      } else {
        lines.next(cells);
        if (!add_row(cells, values, table)) table.missing.push_back(r);
      }
    }
    table.values = std::move(values);
    if (!piece.mistake.empty()) throw BadInput(piece.mistake);
  }

 private:
  enum class Role : char { number, label, keep, none };

  [[noreturn]] void not_a_number(const Cell& cell, std::size_t column, std::string_view hint = "") const {
    if (is_missing(cell.text()) && hint.empty() && options_.advised.missing) hint = kOnMissing;
    const std::string advice = hint.empty() ? advice_for(cell, column) : "";
    if (hint.empty()) hint = advice;
    if (cell.text().empty()) {
      const bool blanks = separator_ == ' ' && options_.advised.delimiter;
      bad_input("{}:{}:{}: empty cell{}{}", name_, cell.line, column + 1, hint,
                blanks ? "; where several blanks are one, tr -s ' ' makes it so" : "");
    }
    bad_input("{}:{}:{}: {} is not a number{}{}", name_, cell.line, column + 1, in_quotes(cell.text()), typeset(cell.text()),
              hint);
  }

  // Whether people write the word where a number is missing.
  static bool may_be_missing(std::string_view text) {
    constexpr std::string_view kWords[] = {"-",    "--",   ".",       "..",      "?",     "n.a.",  "N.A.",
                                           "n.d.", "N.D.", "missing", "nodata",  "na",    "Na",    "None",
                                           "none", "nil",  "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"};
    return std::ranges::find(kWords, text) != std::end(kWords);
  }

  // What reads a number with groups of digits or a decimal comma, or nothing.
  std::string groups_advice(std::string_view text) const {
    if (options_.advised.delimiter && options_.thousands == 0) {
      for (const auto& [between, name] :
           {std::pair(',', ","), std::pair('.', "."), std::pair(' ', "space"), std::pair('_', "_"), std::pair('\'', "\\'")}) {
        double number = 0;
        const std::optional<std::string> plain = without_groups(text, between);
        if (plain && number_of(*plain, number) == Reading::number) return fmt::format(" (--thousands {} reads it)", name);
      }
    }
    if (const std::size_t comma = text.find(','); separator_ != ';' && comma != text.npos) {
      std::string pointed(text);
      pointed[comma] = '.';
      if (is_number(pointed)) return " (decimal commas are read only in files with semicolons between cells)";
    }
    return "";
  }

  // What helps where a cell is not a number.
  std::string advice_for(const Cell& cell, std::size_t column) const {
    const std::string_view text = cell.text();
    if (std::string advice = groups_advice(text); !advice.empty()) return advice;
    if (options_.advised.missing && may_be_missing(text)) {
      return fmt::format(" (if it is a missing value: --na '{}' --missing nan)", text);
    }
    if (text.ends_with('%')) return " (numbers with % are not read: save the cells as numbers)";
    if (roles_.size() == 1 && text.find(' ') != text.npos && options_.advised.delimiter) {
      return " (--delimiter space separates cells at blanks)";
    }
    const bool beside = label_column_ && *label_column_ != column && cell.line == first_data_line_;
    if (beside && options_.advised.columns && !resembles_number(text)) {
      return fmt::format("; column {0} has the labels: --exclude {1} leaves column {1} out, --labels {1} takes it instead",
                         *label_column_ + 1, column + 1);
    }
    return "";
  }

  // Refuses a line that is longer than the header or the first row.
  [[noreturn]] void too_long(const std::vector<Cell>& cells, std::size_t width) const {
    bad_input("{}:{}:{}: the line has {} cells, and the first one has {}{}", name_, cells.front().line, width + 1, cells.size(),
              width, comment_ ? "; it begins with #, but comments are not skipped" : "");
  }

  bool is_missing(std::string_view text) const {
    if (files::is_missing(text, options_.na)) return true;
    double number = 0;  // also with a decimal comma and between groups of digits
    return !options_.na.empty() && any_number(text, number) == Reading::number && files::is_missing(number, options_.na);
  }

  // A cell as a number, unless it says that there is none.
  Reading number_of(std::string_view text, double& number) const {
    if (!options_.na.empty() && is_missing(text)) return Reading::not_number;
    return any_number(text, number);
  }

  // With semicolons between cells a comma is a decimal point, unless it is between groups of digits.
  Reading any_number(std::string_view text, double& number) const {
    if (options_.thousands != 0) {
      const std::optional<std::string> plain = without_groups(text, options_.thousands);
      if (!plain && text.find(options_.thousands) != text.npos) return Reading::not_number;
      if (plain && *plain != text) return any_number(*plain, number);
      if (options_.thousands == ',') return read_number(text, number);
    }
    if (separator_ == ';' && text.find(',') != text.npos && text.find('.') == text.npos) {
      std::string pointed(text);
      pointed[pointed.find(',')] = '.';
      return read_number(pointed, number);
    }
    return read_number(text, number);
  }

  bool is_number(std::string_view text) const {
    double number = 0;
    return number_of(text, number) != Reading::not_number;
  }

  // Whether a cell may stand in a column of scores.
  bool is_value(std::string_view text) const {
    return is_number(text) || (options_.missing != Missing::error && is_missing(text));
  }

  // The column that `text` names, by the header or by its number.
  std::size_t column_of(std::string_view text, std::string_view option, const std::vector<std::string>& names) const {
    const auto named = std::find(names.begin(), names.end(), text);
    if (named != names.end() && std::find(named + 1, names.end(), text) != names.end()) {
      bad_input("{}: --{}: several columns are called {}; their numbers, counted from 1, tell them apart", name_, option,
                in_quotes(text));
    }
    if (named != names.end()) return static_cast<std::size_t>(named - names.begin());
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::size_t width = roles_.size();
    if (error != std::errc() || end != text.data() + text.size()) {
      bad_input("{}: --{}: there is no column called {}{}", name_, option, in_quotes(text),
                names.empty() ? ", as the file has no header (--header says that it has)" : "");
    }
    if (number == 0) bad_input("{}: --{} counts columns from 1, got 0", name_, option);
    if (number > width) {
      bad_input("{}: --{} names column {}, but there are only {} columns", name_, option, number, width);
    }
    return number - 1;
  }

  // Which columns a list such as "a,c-f" names. A name may have dashes.
  std::vector<bool> columns_of(std::string_view list, std::string_view option, const std::vector<std::string>& names) const {
    std::vector<bool> chosen(roles_.size());
    const auto known = [&](std::string_view text) {
      return std::find(names.begin(), names.end(), text) != names.end() ||
             (!text.empty() && text.find_first_not_of("0123456789") == text.npos);
    };
    while (!list.empty()) {
      const std::string_view item = list.substr(0, list.find(','));
      list.remove_prefix(std::min(item.size() + 1, list.size()));
      std::size_t dash = known(item) ? item.npos : item.find('-', 1);
      while (dash != item.npos && !(known(item.substr(0, dash)) && known(item.substr(dash + 1))))
        dash = item.find('-', dash + 1);
      const std::size_t first = column_of(item.substr(0, dash), option, names);
      const std::size_t last = dash == item.npos ? first : column_of(item.substr(dash + 1), option, names);
      if (first > last) bad_input("{}: --{}: {} goes backwards", name_, option, in_quotes(item));
      std::fill(chosen.begin() + static_cast<std::ptrdiff_t>(first), chosen.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                true);
    }
    return chosen;
  }

  // "1,234.5" may be in quotes only for its comma, or because everything is.
  void unquote_groups(std::vector<Cell>& cells) const {
    for (Cell& cell : cells) {
      cell.grouped = options_.thousands != 0 && cell.quoted && without_groups(cell.text(), options_.thousands);
      if (cell.grouped) cell.quoted = false;
    }
  }

  // Finds names and labels in the first row or two, and removes a header from the piece.
  void begin(Piece& piece) {
    std::vector<Cell> first, second;
    Lines lines(piece.text, piece.line, separator_, name_);
    lines.next(first);
    for (Cell& cell : first) cell.keep();
    unquote_groups(first);
    const std::size_t header_size = lines.at(), second_line = lines.line();

    Piece more;
    // A first line that settles everything is parsed at once: the next line may be the reply to its result.
    const bool alone = options_.header != true && without_number(first).empty() &&
                       (options_.header == false || counted(first) < 2) && std::ranges::none_of(first, &Cell::quoted);
    if (piece.table.rows == 1 && !alone && text_.next(more, 1)) {
      piece.text += more.text;
      piece.table.rows += more.table.rows;
      piece.mistake = more.mistake;
    }
    const bool has_second = piece.table.rows > 1;
    if (has_second) Lines(std::string_view(piece.text).substr(header_size), second_line, separator_, name_).next(second);
    unquote_groups(second);
    check_separator(std::string_view(piece.text).substr(0, header_size), second);
    check_line_end(std::string_view(piece.text).substr(0, header_size), piece.line);

    if (options_.shared || !options_.first_label.empty()) {
      std::vector<std::string> names;
      for (const Cell& cell : first) names.emplace_back(is_number(cell.text()) ? "" : cell.text());
      if (options_.header == false) names.clear();
      fit(options_, names, has_second ? second.size() : first.size());
    }

    // R leaves out the corner; pandas leaves it empty.
    comment_ = piece.text.starts_with('#');
    const bool named = counted_label() == 0;  // by the caller, who may have any labels
    no_corner_ = has_second && first.size() + 1 == second.size() && options_.header != false &&
                 (options_.header == true || words_of(first, second).size() == first.size()) && !comment_ &&
                 (named || names_row(second[0]));
    if (no_corner_) {
      first.insert(first.begin(), Cell());
      first[0].line = first[1].line;
      no_corner_ = !named;
    }
    roles_.assign(first.size(), Role::number);
    const bool corner = has_second && has_corner(first, second);
    const bool has_header = options_.header ? *options_.header : corner || find_header(first, second);
    if (!has_header && has_second && !options_.header) check_first_line(first, second);

    std::vector<std::string> names;
    if (has_header) {
      for (const Cell& cell : first) names.emplace_back(cell.text());
    }
    names_ = names;
    const std::vector<Cell>& first_data = has_header ? second : first;
    first_data_line_ = first_data.empty() ? 0 : first_data[0].line;
    choose_columns(names, first_data, corner, !has_header || has_second, has_second);
    const auto is_quoted_number = [&](const Cell& cell) { return cell.quoted && is_number(cell.text()); };
    quoted_words_ = (has_header && std::ranges::any_of(first, is_quoted_number)) ||
                    (found_label_ && !no_corner_ && is_quoted_number(first_data[*label_column_]));
    if (has_header) {
      for (std::size_t c = 0; c < roles_.size(); ++c) {
        if (roles_[c] != Role::number) continue;
        if (names[c].empty()) not_a_number(first[c], c, " (a header names every column)");
        header_.push_back(names[c]);
      }
      piece.text.erase(0, header_size);
      piece.line = second_line;
      --piece.table.rows;
    }
  }

  // A file of an old Mac, whose lines end with CR alone, would be one long line: a header without rows.
  void check_line_end(std::string_view first_line, std::size_t line) const {
    if (first_line.ends_with("\r\n")) first_line.remove_suffix(2);
    if (count_outside_quotes(first_line, '\r') == 0) return;
    bad_input("{}:{}: a carriage return (CR) is not followed by a line feed; lines end with LF or CR LF", name_, line);
  }

  // With the wrong separator a whole line would be one word, and a word would be taken for a label.
  void check_separator(std::string_view first_line, const std::vector<Cell>& second) const {
    if (options_.delimiter != 0 || named_separator_) return;
    // A name may have a semicolon: then the next line has none.
    const std::size_t separators = count_outside_quotes(first_line, separator_);
    const bool agree = separators > 0 && second.size() == separators + 1 && std::ranges::none_of(second, [](const Cell& cell) {
                         return cell.text().find(';') != std::string::npos;
                       });
    for (const char other : {';', '\t', ',', '|'}) {
      if (other == separator_ || count_outside_quotes(first_line, other) == 0) continue;
      if (other == ';' ? agree : separators > 0) continue;
      const std::string_view others = other == ';' ? "semicolons" : other == ',' ? "commas" : other == '|' ? "'|'" : "tabs";
      if (!options_.advised.delimiter) {
        bad_input("{}:1: the cells look separated by {} instead of {}", name_, others, separator_ == ',' ? "commas" : "tabs");
      }
      bad_input("{}:1: the cells look separated by {}; if they are, give --delimiter {}{}, otherwise --delimiter {}", name_,
                others, separator_name(other), other == ';' ? " (numbers may have decimal commas then)" : "",
                separator_name(separator_));
    }
  }

  // Finds the role of each column.
  void choose_columns(const std::vector<std::string>& names, const std::vector<Cell>& first_data, bool corner, bool has_data,
                      bool has_second) {
    const std::size_t width = roles_.size();
    std::vector<bool> chosen, excluded(width), kept(width);
    if (!options_.columns.empty()) chosen = columns_of(options_.columns, "columns", names);
    if (!options_.exclude.empty()) excluded = columns_of(options_.exclude, "exclude", names);
    if (!options_.keep.empty()) kept = columns_of(options_.keep, options_.keep_option, names);
    for (std::size_t c = 0; c < width; ++c) {
      if (kept[c]) roles_[c] = Role::keep;
      if (excluded[c] || (!chosen.empty() && !chosen[c] && !kept[c])) roles_[c] = Role::none;
    }
    const auto twice = [&](std::size_t c, std::string_view first, std::string_view second) {
      bad_input("{}: column {} is in both --{} and --{}", name_, names.empty() ? fmt::format("{}", c + 1) : in_quotes(names[c]),
                first, second);
    };
    for (std::size_t c = 0; c < width; ++c) {
      if (excluded[c] && kept[c]) twice(c, "exclude", options_.keep_option);
      if (!chosen.empty() && chosen[c] && (kept[c] || excluded[c])) {
        twice(c, "columns", kept[c] ? options_.keep_option : "exclude");
      }
    }
    if (!options_.label.empty()) {
      label_column_ = column_of(options_.label, "labels", names);
      const std::size_t c = *label_column_;
      if (excluded[c]) twice(c, "labels", "exclude");
      if (!chosen.empty() && chosen[c]) twice(c, "labels", "columns");
    } else if (corner && !excluded[0] && !kept[0] && (chosen.empty() || !chosen[0])) {
      label_column_ = 0;
    } else if (has_data && first_data.size() == width) {
      label_column_ = find_labels(first_data, chosen, excluded, kept, has_second);
      found_label_ = label_column_.has_value();
      if (found_label_) {
        first_label_line_ = first_data.front().line;
        first_label_ = first_data[*label_column_].text();
        label_hint_ = names.empty() ? "; a header holds no numbers" : "";
      }
    }
    if (label_column_) {
      roles_[*label_column_] = Role::label;
      if (!names.empty()) label_header_ = names[*label_column_];
      label_place_ = static_cast<std::size_t>(
          std::count(roles_.begin(), roles_.begin() + static_cast<std::ptrdiff_t>(*label_column_), Role::number));
    }
    for (std::size_t c = 0; c < width; ++c) {
      if (roles_[c] == Role::keep) kept_.push_back(names.empty() ? fmt::format("column{}", c + 1) : names[c]);
    }
    const bool numbers = std::find(roles_.begin(), roles_.end(), Role::number) != roles_.end();
    if (!numbers && width == 1 && label_column_) {
      bad_input("{}: the only column holds labels, so there are no scores", name_);
    }
    if (!numbers) bad_input("{}: no column of scores is left", name_);
    const auto is_plain = [](Role role) { return role == Role::number || role == Role::label; };
    plain_ = separator_ != ';' && options_.na.empty() && options_.thousands == 0 &&
             std::all_of(roles_.begin(), roles_.end(), is_plain);
    if (!chosen.empty() || width == 1) return;
    if (!names.empty() && has_data && first_data.size() == width) check_names(names, first_data);
    if (options_.advised.columns && options_.scores) whole_columns_.emplace();
  }

  // The columns of numbers.
  std::vector<std::size_t> score_columns() const {
    std::vector<std::size_t> columns;
    for (std::size_t c = 0; c < roles_.size(); ++c) {
      if (roles_[c] == Role::number) columns.push_back(c);
    }
    return columns;
  }

  // How the numbers of a row are written.
  std::vector<Written> written(const std::vector<Cell>& row, std::vector<double>& values) const {
    std::vector<Written> all;
    values.clear();
    for (const std::size_t c : score_columns()) {
      double& number = values.emplace_back(0);
      const std::string_view text = row[c].text();
      const bool read = number_of(text, number) == Reading::number;
      const std::optional<std::string> plain =
          options_.thousands == 0 ? std::nullopt : without_groups(text, options_.thousands);
      all.push_back(read ? written_as(plain ? *plain : text, number) : Written::other);
    }
    return all;
  }

  // Refuses to take labels and names of rows for scores.
  void refuse(const Doubt& doubt, const std::vector<std::string>& names) const {
    if (doubt.columns.empty()) return;
    const std::vector<std::size_t> scores = score_columns();
    std::vector<std::size_t> columns;
    std::vector<std::string> called;
    for (const std::size_t i : doubt.columns) {
      columns.push_back(scores[i]);
      if (!names.empty()) called.push_back(names[scores[i]]);
    }
    const bool one = columns.size() == 1;
    const std::string which = fmt::format("{}:1:{}: column{} {}", name_, columns[0] + 1, one ? "" : "s",
                                          names.empty() ? as_ranges(columns) : in_words(called));
    if (!options_.advised.columns) bad_input("{} may be numbers or the rows' names; leave it out of the file", which);
    bad_input(
        "{} may be scores or the rows' names{}: --labels {} takes {} as names, --exclude {} leaves {} out, --columns {} takes "
        "{} as scores",
        which, doubt.reason, columns[0] + 1, one ? "it" : "the first", as_ranges(columns), one ? "it" : "them",
        as_ranges(scores), one ? "it" : "them");
  }

  void check_names(const std::vector<std::string>& names, const std::vector<Cell>& first_data) const {
    const std::vector<std::size_t> scores = score_columns();
    std::vector<std::string> called;
    for (const std::size_t c : scores) called.push_back(names[c]);
    if (std::ranges::find(called, "") != called.end()) return;  // an empty name is refused elsewhere
    std::vector<double> values;
    // A file of targets may be of classes.
    refuse(doubt_by_names(called, written(first_data, values), !options_.advised.columns), names);
  }

  void look_at_whole_columns(Piece& piece) {
    std::size_t row = 0;
    const auto look = [&] {
      Lines lines(piece.text, piece.line, separator_, name_);
      std::vector<Cell> cells;
      std::vector<double> values;
      for (std::size_t r = 0; r < piece.table.rows && !whole_columns_->done(); ++r) {
        try {
          lines.next(cells);
        } catch (const BadInput&) {  // it is thrown again if the row is wanted
          break;
        }
        if (r < row || cells.size() != roles_.size()) continue;
        const std::vector<Written> row_written = written(cells, values);
        whole_columns_->add(row_written, values);
      }
      row = piece.table.rows;
    };
    if (whole_columns_) look();
    // More rows may settle it, and none is to come out before. But a table without names may be one whose writer waits for the
    // reply to each row.
    Piece more;
    while (whole_columns_ && !whole_columns_->done() && !header_.empty() && piece.mistake.empty() &&
           !whole_columns_->doubt(!names_.empty()).columns.empty() && text_.next(more, 1)) {
      piece.text += more.text;
      piece.table.rows += more.table.rows;
      piece.mistake = more.mistake;
      look();
    }
    if (whole_columns_ && (whole_columns_->done() || text_.ended())) refuse_whole_columns();
  }

  void refuse_whole_columns() {
    if (!whole_columns_) return;
    const Doubt doubt = whole_columns_->doubt(!names_.empty());
    whole_columns_.reset();
    refuse(doubt, names_);
  }

  std::vector<std::size_t> without_number(const std::vector<Cell>& cells) const {
    std::vector<std::size_t> found;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (!is_number(cells[c].text())) found.push_back(c);
    }
    return found;
  }

  // Whether some number of the row is not in quotes. Beside it, one in quotes is a word.
  bool has_bare_number(const std::vector<Cell>& cells) const {
    return std::ranges::any_of(cells,
                               [&](const Cell& cell) { return !cell.quoted && !cell.grouped && is_number(cell.text()); });
  }

  // The cells of the first row that are words: those that are not numbers and, if all words or the only one among numbers are
  // found so, those in quotes above or beside numbers without.
  std::vector<std::size_t> words_of(const std::vector<Cell>& first, const std::vector<Cell>& second) const {
    std::vector<std::size_t> words = without_number(first), quoted;
    if (!has_bare_number(second) && !has_bare_number(first)) return words;
    for (std::size_t c = 0; c < first.size(); ++c) {
      if (first[c].quoted || !is_number(first[c].text())) quoted.push_back(c);
    }
    return quoted.size() == first.size() || quoted.size() == 1 ? quoted : words;
  }

  // Whether a cell may be a label below a header without a corner. R's are in quotes, or count the rows. Below a title, a
  // number is a score.
  bool names_row(const Cell& cell) const {
    const std::string_view text = cell.text();
    const bool whole = text.find_first_not_of("0123456789") == text.npos;
    return cell.quoted || (!is_missing(text) && (whole || (!is_number(text) && !resembles_number(text))));
  }

  // The column that --labels names by number, if it does.
  std::optional<std::size_t> counted_label() const {
    std::size_t number = 0;
    const std::string& text = options_.label;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || number == 0) return std::nullopt;
    return number - 1;
  }

  bool find_header(const std::vector<Cell>& first, const std::vector<Cell>& second) const {
    const auto is_label = [&](const Cell& cell) { return cell.text() == options_.label; };
    const std::optional<std::size_t> label = counted_label();
    if (!options_.label.empty() && !label && std::any_of(first.begin(), first.end(), is_label)) return true;
    std::vector<std::size_t> words = words_of(first, second);
    // A row whose numbers are all missing, with or without a label, is not a header: as one it would be lost silently.
    const bool bare = has_bare_number(second);
    const auto lacks = [&](const Cell& cell) {
      return !cell.text().empty() && is_missing(cell.text()) && !(cell.quoted && bare);
    };
    const auto lacking = static_cast<std::size_t>(std::ranges::count_if(first, lacks));
    if (lacking > 0 && lacking + 1 >= first.size()) return false;
    if (options_.missing != Missing::error && words.size() < first.size()) {
      std::erase_if(words, [&](std::size_t c) { return is_missing(first[c].text()); });
    }
    std::size_t width = first.size();
    if (label && *label < width) {
      std::erase(words, *label);
      --width;
    }
    if (words.size() == width) {
      // A line of mistyped numbers, or in another format, is a row, and would be lost as a header. Its first cell may be above
      // or of the labels. Some names look like numbers, such as 25% beside mean.
      const auto mistyped = [&](std::size_t c) { return !is_number(first[c].text()) && resembles_number(first[c].text()); };
      const bool row = std::all_of(words.begin() + (words.size() > 1 ? 1 : 0), words.end(), mistyped);
      for (const std::size_t c : words) {
        const std::string_view text = first[c].text();
        if (c == words[0] && !first[c].quoted && (text.starts_with('{') || text.starts_with('['))) {
          bad_input("{}:{}:{}: {} looks like JSON{}{}", name_, first[c].line, c + 1, in_quotes(text),
                    options_.advised.format ? "; --format-in jsonl reads lines of it" : "",
                    options_.advised.header ? " (if it is a name: --header)" : "");
        }
        if (!mistyped(c) || !(row || is_number(without_typesetting(text)))) continue;
        const bool spaced = width == 1 && text.find(' ') != text.npos && options_.advised.delimiter;
        std::string hint = spaced ? "--delimiter space separates cells at blanks" : "";
        if (options_.advised.header) hint += spaced ? "; if it is a name: --header" : "if it is a name: --header";
        not_a_number(first[c], c, groups_advice(text) + (hint.empty() ? "" : fmt::format(" ({})", hint)));
      }
      return true;
    }
    if (words.empty()) return false;
    if (options_.label.empty()) {
      if (words.size() == 1) return false;  // the only word is the label
      // The cell above the labels may be a number, such as a year.
      if (words.size() + 1 == width && second.size() == first.size()) {
        const std::vector<std::size_t> labels = without_number(second);
        if (labels.size() == 1 && is_number(first[labels[0]].text())) return true;
      }
    }
    if (!options_.columns.empty() || !options_.exclude.empty() || !options_.keep.empty()) return false;
    const std::size_t bad = options_.label.empty() && words[0] == 0 ? words[1] : words[0];
    not_a_number(first[bad], bad,
                 fmt::format(", though other cells of this first line are numbers (a header holds none{})",
                             options_.advised.header ? "; --header and --no-header decide" : ""));
  }

  // Whether the first line is a header that begins with an empty cell, above labels. If its other cells are numbers, the empty
  // one may be a missing score. They are names if they are whole, such as years, or if no score may be missing and a label
  // stands below.
  bool has_corner(const std::vector<Cell>& first, const std::vector<Cell>& second) const {
    if (options_.header == false || first.size() < 2 || !first[0].text().empty() || second[0].text().empty()) return false;
    const auto has_only_digits = [](const Cell& cell) {
      return !cell.text().empty() && cell.text().find_first_not_of("0123456789") == std::string_view::npos;
    };
    const bool bare = has_bare_number(second);
    const auto may_be_score = [&](const Cell& cell) { return is_value(cell.text()) && !(cell.quoted && bare); };
    const bool names = !std::all_of(first.begin() + 1, first.end(), may_be_score) ||
                       std::all_of(first.begin() + 1, first.end(), has_only_digits);
    const bool label = !may_be_score(second[0]) || (has_only_digits(second[0]) && options_.missing == Missing::error);
    if (!names && !label && !options_.header && counted_label() != 0) {
      bad_input("{}:1: the first line, with an empty cell before numbers, may be names or scores{}", name_, header_advice());
    }
    return true;
  }

  std::string_view header_advice() const {
    return options_.advised.header ? ": --header takes it as names, --no-header as scores" : "; names need a letter";
  }

  // Some programs number columns without names. If this line counts columns from 0, their number; otherwise 0.
  std::size_t counted(const std::vector<Cell>& first) const {
    const std::optional<std::size_t> label = counted_label();
    std::size_t count = 0;
    for (std::size_t c = 0; c < first.size(); ++c) {
      if (c == label || (c == 0 && (first[c].quoted || !is_number(first[c].text())))) continue;
      if (first[c].text() != fmt::format("{}", count)) return 0;
      ++count;
    }
    return count;
  }

  // Above whole numbers it is one more row of them.
  void check_first_line(const std::vector<Cell>& first, const std::vector<Cell>& second) const {
    const std::size_t count = counted(first);
    const auto is_whole = [](const Cell& cell) {
      const std::string_view digits = cell.text().substr(cell.text().starts_with('-') ? 1 : 0);
      return !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
    };
    // Names of two columns, 0 and 1, are also a distribution.
    if (count < 3 || std::ranges::all_of(second, is_whole)) return;
    bad_input("{}:1: the first line, 0 to {}, may be names or scores{}", name_, count - 1, header_advice());
  }

  std::optional<std::size_t> find_labels(const std::vector<Cell>& first_data, const std::vector<bool>& chosen,
                                         const std::vector<bool>& excluded, const std::vector<bool>& kept,
                                         bool has_second) const {
    if (first_data.size() == 1) return std::nullopt;
    std::size_t c = 0;
    while (c < first_data.size() &&
           (excluded[c] || kept[c] || (!chosen.empty() && chosen[c]) || is_value(first_data[c].text()))) {
      ++c;
    }
    if (has_bare_number(first_data)) {  // then a word in quotes is one, whatever it looks like
      const auto quoted = [&](std::size_t i) {
        const std::string_view text = first_data[i].text();
        return first_data[i].quoted && (is_number(text) || !resembles_number(text)) && !excluded[i] && !kept[i] &&
               (chosen.empty() || !chosen[i]);
      };
      if (c < first_data.size() && quoted(c)) return c;
      std::vector<std::size_t> all;
      for (std::size_t i = 0; i < first_data.size(); ++i) {
        if (quoted(i)) all.push_back(i);
      }
      if (c == first_data.size() && all.size() == 1) return all[0];
    }
    if (c == first_data.size()) return std::nullopt;
    const Cell& cell = first_data[c];
    if (!chosen.empty() && cell.text().empty()) return std::nullopt;
    if (cell.text().empty() || (is_missing(cell.text()) && chosen.empty())) not_a_number(cell, c);
    // In a file of one line a label cannot be told from a typing error, unless it stands where labels usually do.
    if ((resembles_number(cell.text()) && chosen.empty()) || (!has_second && c != 0)) {
      const std::string helps = advice_for(cell, c);
      not_a_number(cell, c, options_.advised.columns ? fmt::format("{} (if it is a label: --labels {})", helps, c + 1) : helps);
    }
    return c;
  }

  // Adds a row that is not wanted. Its mistakes do not matter.
  static void add_nothing(Table& table, std::vector<double>& values) {
    values.resize(values.size() + table.cols);
    if (table.label_column) table.labels.emplace_back();
    for (Table::Kept& column : table.kept) {
      column.cells.emplace_back();
      column.words.push_back(true);
    }
  }

  // Adds the row, and returns whether it lacks no number.
  bool add_row(const std::vector<Cell>& cells, std::vector<double>& values, Table& table) const {
    const std::size_t line = cells.front().line, width = roles_.size();
    if (cells.size() < width) {
      bad_input("{}:{}:{}: the line ends after {} of {} cells", name_, line, cells.size() + 1, cells.size(), width);
    }
    if (cells.size() > width) too_long(cells, width);
    if (no_corner_ && is_number(cells[0].text()) && !names_row(cells[0])) too_long(cells, width - 1);
    if (cells.back().line != line) {  // quotes with line breaks
      std::vector<Place>& places = table.places->others[line];
      for (const std::size_t cell : table.places->cells) places.push_back({cells[cell - 1].line, cell});
    }
    bool complete = true;
    std::size_t kept = 0;
    for (std::size_t c = 0; c < width; ++c) {
      const Cell& cell = cells[c];
      double number = 0;
      switch (roles_[c]) {
        case Role::none:
          continue;
        case Role::keep: {
          Table::Kept& column = table.kept[kept++];
          column.cells.emplace_back(cell.text());
          column.words.push_back(!is_json_number(cell.text()));
          continue;
        }
        case Role::label:
          // A typing error in the first row or a header with numbers must not turn a column of scores into labels.
          if (found_label_ && !cell.quoted && is_number(cell.text())) {
            std::string advice =
                options_.advised.columns ? fmt::format(" (if these are labels: --labels {}{})", c + 1, label_hint_) : "";
            if (options_.advised.missing && may_be_missing(first_label_))
              advice += fmt::format(" (if it is missing: --na '{}')", first_label_);
            bad_input("{}:{}:{}: {} is not a number, but line {} has one there{}", name_, first_label_line_, c + 1,
                      in_quotes(first_label_), cell.line, advice);
          }
          table.labels.emplace_back(cell.text());
          continue;
        case Role::number:
          break;
      }
      if (options_.missing != Missing::error && is_missing(cell.text())) {
        values.push_back(std::numeric_limits<double>::quiet_NaN());
        complete = false;
        continue;
      }
      switch (number_of(cell.text(), number)) {
        case Reading::number:
          values.push_back(number);
          if (separator_ == ';' && options_.thousands == 0) check_point(cell, c);
          break;
        case Reading::not_number:
          not_a_number(cell, c);
        case Reading::too_large:
          bad_input("{}:{}:{}: {} is too large for float64", name_, cell.line, c + 1, in_quotes(cell.text()));
      }
    }
    return complete;
  }

  // Where some numbers have decimal commas, the point of 12.500 stands between groups of digits.
  void check_point(const Cell& cell, std::size_t column) const {
    const std::string_view text = cell.text();
    const char point = text.find(',') != text.npos ? ',' : text.find('.') != text.npos ? '.' : '\0';
    if (point == '\0') return;
    char before = point_.load(std::memory_order_relaxed);
    if (before == point || (before == '\0' && point_.compare_exchange_strong(before, point)) || before == point) return;
    bad_input("{}:{}:{}: {} has a decimal {}, and other numbers of the file have {}{}", name_, cell.line, column + 1,
              in_quotes(text), point == ',' ? "comma" : "point", before == ',' ? "commas" : "points",
              options_.advised.delimiter ? " (--thousands . reads points between groups of three digits)" : "");
  }

  std::string name_;
  mutable std::atomic<char> point_ = '\0';  // the decimal point or comma of the first number that has one
  RowText text_;
  char separator_;
  ReadOptions options_;
  bool begun_ = false;
  bool named_separator_ = false;               // by a first line sep=;
  bool plain_ = false;                         // nothing but numbers and labels
  bool comment_ = false;                       // the first line begins with #
  bool no_corner_ = false;                     // the header has no cell above the labels, which are the reader's guess
  std::vector<std::string> names_;             // of all columns, or none
  std::optional<WholeColumns> whole_columns_;  // until the first rows have been seen
  std::size_t rows_ = 0;
  std::vector<Role> roles_;                  // the role of each column
  std::optional<std::size_t> label_column_;  // among all columns
  std::optional<std::size_t> label_place_;   // among the columns of numbers
  std::string label_header_;
  std::vector<std::string> header_, kept_;
  bool found_label_ = false;  // found by the reader, not named by the caller
  std::size_t first_data_line_ = 0, first_label_line_ = 0;
  std::string first_label_;
  std::string_view label_hint_;
  bool quoted_words_ = false;  // a label or name that looks like a number is in quotes
};

Reader open_separated(std::shared_ptr<Input> input, char separator, const ReadOptions& options) {
  if (options.delimiter != 0) separator = options.delimiter;
  const auto reader = std::make_shared<CsvReader>(std::move(input), separator, options);
  return {.take = [reader](Piece& piece, std::size_t numbers) { return reader->take(piece, numbers); },
          .parse = [reader](Piece& piece) { reader->parse(piece); }};
}

// Whether a name or label without quotes would be read as a number or a missing one.
bool needs_quotes(std::string_view text) {
  double number = 0;
  return read_number(text, number) != Reading::not_number || is_missing(text);
}

// `word`: of a name or label, which is to be read as one again.
void append_text(fmt::memory_buffer& out, std::string_view text, char separator, bool word = false) {
  // Some bytes at the start of a file mean another format.
  const bool magic = static_cast<unsigned char>(text.empty() ? 0 : text[0]) >= 0xEF || text.starts_with('\x93') ||
                     text.starts_with('\x1F') || text.starts_with("\x28\xB5") || text.starts_with("PK\x03\x04");
  const bool plain = !text.empty() && text == trimmed(text) && text.find_first_of("\"\r\n") == text.npos &&
                     text.find(separator) == text.npos && !magic && !(word && needs_quotes(text));
  if (plain) {
    out.append(text);
    return;
  }
  out.push_back('"');
  for (const char c : text) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  out.push_back('"');
}

// Writes one line, of `names` or of a row: `append_cell(c)` for each column of numbers, the label at its old place among them,
// and the note at the end.
template <class AppendCell>
void append_line(fmt::memory_buffer& out, const Table& table, bool names, const std::string* label, const std::string* note,
                 char separator, const auto& kept, AppendCell append_cell) {
  bool first = true;
  const auto separate = [&] {
    if (!std::exchange(first, false)) out.push_back(separator);
  };
  for (std::size_t c = 0; c <= table.cols; ++c) {
    // A result of one number per row may have fewer columns than the old place needs.
    if (label && c == std::min(*table.label_column, table.cols)) {
      separate();
      append_text(out, *label, separator, table.quoted_words);
    }
    if (c == 0 && !table.header.empty()) {  // without a name it would look like a score
      for (const Table::Kept& column : table.kept) {
        separate();
        if (const std::string_view cell = kept(column); !cell.empty() || names) append_text(out, cell, separator);
      }
    }
    if (c < table.cols) {
      separate();
      append_cell(c);
    }
  }
  if (note) {
    separate();
    append_text(out, *note, separator);
  }
  out.push_back('\n');
}

std::string_view encode_separated(const Table& table, char separator, fmt::memory_buffer& out) {
  out.clear();
  if (table.cols == 0) return "";
  const bool labelled = table.label_column.has_value(), noted = !table.note_header.empty();
  const std::size_t to_point = rows_to_point(table);
  std::visit(
      [&](const auto& values) {
        for (std::size_t r = 0; r < table.rows; ++r) {
          append_line(
              out, table, false, labelled ? &table.labels[r] : nullptr, noted ? &table.notes[r] : nullptr, separator,
              [&](const Table::Kept& column) -> std::string_view { return column.cells[r]; },
              [&](std::size_t c) {
                const std::size_t begin = out.size();
                append_number(out, values[r * table.cols + c], table.digits);
                if (r < to_point) add_point(out, begin);
              });
        }
      },
      table.values);
  return {out.data(), out.size()};
}

Writer create_separated(Output& output, const Table& first, char separator) {
  if (!first.header.empty()) {
    fmt::memory_buffer out;
    append_line(
        out, first, true, first.label_column ? &first.label_header : nullptr,
        first.note_header.empty() ? nullptr : &first.note_header, separator,
        [](const Table::Kept& column) -> std::string_view { return column.name; },
        [&](std::size_t c) { append_text(out, first.header[c], separator, first.quoted_words); });
    output.write({out.data(), out.size()});
  }
  return {.append = [&output](std::string_view encoded) { output.write(encoded); }};
}

}  // namespace

Reader open_csv(std::shared_ptr<Input> input, const ReadOptions& options) { return open_separated(input, ',', options); }

Reader open_tsv(std::shared_ptr<Input> input, const ReadOptions& options) { return open_separated(input, '\t', options); }

std::string_view encode_csv(const Table& table, fmt::memory_buffer& memory) { return encode_separated(table, ',', memory); }

std::string_view encode_tsv(const Table& table, fmt::memory_buffer& memory) { return encode_separated(table, '\t', memory); }

Writer create_csv(Output& output, const Table& first, bool) { return create_separated(output, first, ','); }

Writer create_tsv(Output& output, const Table& first, bool) { return create_separated(output, first, '\t'); }

}  // namespace files

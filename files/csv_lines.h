// The lines of a .csv or .tsv, and their cells.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "format.h"
#include "src/from_chars.h"
#include "text.h"

namespace files::csv {

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

struct Cell {
  std::string_view plain;  // without surrounding blanks or quotes
  std::string unescaped;   // used instead of plain if quotes inside had to be undoubled
  bool escaped = false;
  bool quoted = false;
  bool grouped = false;  // a number such as "1,234.5", whose quotes say nothing: `quoted` is false
  std::size_t line = 0;

  std::string_view text() const { return escaped ? std::string_view(unescaped) : plain; }

  // Copies the text, so that the cell may outlive it.
  void keep() {
    if (!std::exchange(escaped, true)) unescaped = plain;
  }
};

// The cells of a piece of text, line by line.
class Lines {
 public:
  Lines(std::string_view text, std::size_t first_line, char separator, std::string_view name)
      : bytes_(text), line_(first_line), separator_(separator), name_(name) {}

  // Where the next line begins, and its number.
  std::size_t at() const { return at_; }
  std::size_t line() const { return line_; }

  // Reads the next line. The cells are valid until the next call.
  void next(std::vector<Cell>& cells) {
    std::size_t count = 0;
    while (true) {
      if (cells.size() == count) cells.emplace_back();
      read_cell(cells[count], count + 1);
      ++count;
      if (at_line_end()) break;
      ++at_;  // the separator
    }
    cells.resize(count);
    skip_line_end();
  }

  // Skips the next line.
  void skip();

  // Reads the next line if it has `width` numbers and, if there is a column for it, a label, all without blanks, signs or
  // quotes before them. Nearly all lines of nearly all files have this form. Otherwise it does nothing. The label is valid
  // until the next call. Twice as fast as `next`.
  bool next_plain(std::size_t width, std::optional<std::size_t> label_column, bool label_may_be_number,
                  std::vector<double>& numbers, std::string_view& label) {
    const char* at = bytes_.data() + at_;
    const char* const end = bytes_.data() + bytes_.size();
    const std::size_t before = numbers.size();
    const auto plain = [&] {
      for (std::size_t c = 0; c < width; ++c) {
        double number = 0;
        if (c == label_column) {
          const char* const start = at;
          while (at != end && *at != separator_ && *at != '\n' && *at != '\r' && *at != '"') ++at;
          label = {start, static_cast<std::size_t>(at - start)};
          if (label.empty() || is_blank(label.front()) || is_blank(label.back())) return false;
          if (!label_may_be_number && read_number(label, number) != Reading::not_number) return false;
        } else {
          const auto [behind, error] = isentropic::double_from_chars(at, end, number);
          if (error != std::errc() || behind[-1] == ')') return false;  // nan(1)
          numbers.push_back(number);
          at = behind;
        }
        if (c + 1 == width) break;
        if (at == end || *at != separator_) return false;
        ++at;
      }
      if (at != end && *at == '\r') ++at;
      if (at == end || *at != '\n') return false;
      return true;
    };
    if (!plain()) {
      numbers.resize(before);
      return false;
    }
    at_ = static_cast<std::size_t>(at + 1 - bytes_.data());
    ++line_;
    return true;
  }

 private:
  bool at_line_end() const { return at_ == bytes_.size() || bytes_[at_] == '\n' || bytes_.substr(at_, 2) == "\r\n"; }

  void skip_line_end() {
    at_ += at_ == bytes_.size() ? 0 : bytes_[at_] == '\n' ? 1 : 2;
    ++line_;
  }

  // In a .tsv a tab is a separator, not a blank.
  void skip_blanks() {
    while (at_ < bytes_.size() && is_blank(bytes_[at_]) && bytes_[at_] != separator_) ++at_;
  }

  void read_cell(Cell& cell, std::size_t column) {
    cell.line = line_;
    cell.escaped = false;
    skip_blanks();
    cell.quoted = at_ < bytes_.size() && bytes_[at_] == '"';
    if (cell.quoted) return read_quoted(cell, column);
    const std::size_t start = at_;
    while (!at_line_end() && bytes_[at_] != separator_) ++at_;
    cell.plain = trimmed(bytes_.substr(start, at_ - start));
  }

  void read_quoted(Cell& cell, std::size_t column) {
    const std::size_t start = ++at_;
    bool doubled = false;
    while (true) {
      if (at_ == bytes_.size()) bad_input("{}:{}:{}: a quote is opened and never closed", name_, cell.line, column);
      if (bytes_[at_] == '"') {
        if (bytes_.substr(at_, 2) != "\"\"") break;
        doubled = true;
        ++at_;
      } else if (bytes_[at_] == '\n') {
        ++line_;
      }
      ++at_;
    }
    cell.plain = bytes_.substr(start, at_ - start);
    ++at_;
    skip_blanks();
    if (!at_line_end() && bytes_[at_] != separator_) {
      const bool other = std::string_view(";\t|,").find(bytes_[at_]) != std::string_view::npos;
      bad_input("{}:{}:{}: there is text after the closing quote{}", name_, cell.line, column,
                !other                ? ""
                : bytes_[at_] == '\t' ? "; if cells are separated by tabs: --delimiter tab"
                                      : fmt::format("; if cells are separated by it: --delimiter '{}'", bytes_[at_]));
    }
    if (!doubled) return;
    cell.escaped = true;
    cell.unescaped.clear();
    for (std::size_t i = 0; i < cell.plain.size(); ++i) {
      cell.unescaped += cell.plain[i];
      if (cell.plain[i] == '"') ++i;
    }
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t line_;
  char separator_;
  std::string_view name_;
};

// The first row of a text: a line, or more if a cell in quotes continues in the next line.
inline std::optional<RowText::Extent> first_row(std::string_view text, char separator) {
  const std::optional<RowText::Extent> line = first_line(text);
  const std::size_t quote = text.substr(0, line ? line->bytes : text.npos).find('"');
  if (quote == text.npos) return line;
  std::size_t lines = 1;
  bool at_start = true, quoted = false;  // at the start of a cell, the only place where quotes open; inside quotes
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\n') ++lines;
      if (c == '"' && text.substr(at, 2) == "\"\"") {
        ++at;
      } else if (c == '"') {
        quoted = false;
      }
    } else if (c == '\n') {
      return RowText::Extent{at + 1, lines};
    } else if (c == separator) {
      at_start = true;
    } else if (at_start && !is_blank(c)) {
      at_start = false;
      quoted = c == '"';
    }
  }
  return std::nullopt;
}

inline void Lines::skip() {
  const std::string_view ahead = bytes_.substr(at_);
  const RowText::Extent row = first_row(ahead, separator_).value_or(RowText::Extent{ahead.size(), 1});
  at_ += row.bytes;
  line_ += row.lines;
}

// The number of times that `c` is in the text outside quotes.
inline std::size_t count_outside_quotes(std::string_view text, char c) {
  bool quoted = false;
  std::size_t count = 0;
  for (const char one : text) {
    if (one == '"') quoted = !quoted;
    if (one == c && !quoted) ++count;
  }
  return count;
}

}  // namespace files::csv

// Comma- and tab-separated values: float64 in, the fewest digits that give the same number back out.
//
// A header is a first line without a number (its cell above the labels aside). A label column is one that is not a number
// in the first data row nor in any other, or the one the caller names. Positions in messages are line:cell, both counted
// from 1.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "format.h"

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

struct Cell {
  std::string_view plain;  // without surrounding blanks or quotes
  std::string unescaped;   // instead of plain where quotes inside had to be undoubled
  bool escaped = false;
  std::size_t line = 0;

  std::string_view text() const { return escaped ? std::string_view(unescaped) : plain; }
};

// The cells of a file, line by line.
class Lines {
 public:
  Lines(std::string_view bytes, std::string_view name, char separator) : bytes_(bytes), name_(name), separator_(separator) {}

  // Reads the next line that is not blank; false at the end. Lines of blanks are allowed at the end only.
  bool next(std::vector<Cell>& cells) {
    std::size_t first_blank_line = 0;
    while (at_ < bytes_.size()) {
      if (!skip_blank_line()) {
        if (first_blank_line != 0) bad_input("{}:{}:1: empty line", name_, first_blank_line);
        read_line(cells);
        return true;
      }
      if (first_blank_line == 0) first_blank_line = line_ - 1;
    }
    return false;
  }

 private:
  bool at_line_end() const { return at_ == bytes_.size() || bytes_[at_] == '\n' || bytes_.substr(at_, 2) == "\r\n"; }

  void skip_line_end() {
    at_ += at_ == bytes_.size() ? 0 : bytes_[at_] == '\n' ? 1 : 2;
    ++line_;
  }

  // A tab separates in a .tsv, and a line of separators is one of empty cells.
  void skip_blanks() {
    while (at_ < bytes_.size() && is_blank(bytes_[at_]) && bytes_[at_] != separator_) ++at_;
  }

  bool skip_blank_line() {
    const std::size_t start = at_;
    skip_blanks();
    if (at_line_end()) {
      skip_line_end();
      return true;
    }
    at_ = start;
    return false;
  }

  void read_line(std::vector<Cell>& cells) {
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

  void read_cell(Cell& cell, std::size_t column) {
    cell.line = line_;
    cell.escaped = false;
    skip_blanks();
    if (at_ < bytes_.size() && bytes_[at_] == '"') return read_quoted(cell, column);
    const std::size_t start = at_;
    while (!at_line_end() && bytes_[at_] != separator_) ++at_;
    cell.plain = trimmed(bytes_.substr(start, at_ - start));
  }

  void read_quoted(Cell& cell, std::size_t column) {
    const std::size_t start = ++at_;
    while (true) {
      if (at_ == bytes_.size()) bad_input("{}:{}:{}: a quote is opened and never closed", name_, cell.line, column);
      if (bytes_[at_] == '"') {
        if (bytes_.substr(at_, 2) != "\"\"") break;
        cell.escaped = true;
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
      bad_input("{}:{}:{}: there is text after the closing quote", name_, cell.line, column);
    }
    if (!cell.escaped) return;
    cell.unescaped.clear();
    for (std::size_t i = 0; i < cell.plain.size(); ++i) {
      cell.unescaped += cell.plain[i];
      if (cell.plain[i] == '"') ++i;
    }
  }

  std::string_view bytes_;
  std::string_view name_;
  char separator_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

enum class Reading { kNumber, kNotNumber, kTooLarge };

Reading read_number(std::string_view text, double& number) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return Reading::kNotNumber;
  }
  if (text.ends_with(')')) return Reading::kNotNumber;  // from_chars knows nan(1)
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return Reading::kNotNumber;
  if (error == std::errc::result_out_of_range) {
    number = std::strtod(std::string(text).c_str(), nullptr);
    if (std::isinf(number)) return Reading::kTooLarge;
  }
  return Reading::kNumber;
}

bool is_number(std::string_view text) {
  double number = 0;
  return read_number(text, number) != Reading::kNotNumber;
}

// A cell as a message shows it: one line, not too long, not cut inside a UTF-8 character.
std::string quoted(std::string_view text) {
  std::size_t end = std::min<std::size_t>(text.size(), 40);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;
  std::string shown = "'";
  for (const char c : text.substr(0, end)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    shown += control ? fmt::format("\\x{:02x}", c) : std::string(1, c);
  }
  return shown + (end < text.size() ? "...'" : "'");
}

class CsvReader {
 public:
  CsvReader(std::string_view bytes, std::string_view name, char separator, const ReadOptions& options)
      : name_(name), lines_(bytes, name, separator), options_(options) {}

  Table read() {
    std::vector<Cell> cells;
    if (!lines_.next(cells)) bad_input("{}: the file is empty", name_);
    width_ = cells.size();
    if (options_.labels > width_) {
      bad_input("{}: labels are to be in column {}, but there are only {} columns", name_, options_.labels, width_);
    }
    if (options_.labels == 1 && width_ == 1) bad_input("{}: the only column holds labels, so there are no scores", name_);

    const std::vector<Cell> first = std::exchange(cells, {});
    const bool has_second = lines_.next(cells);
    const bool has_header = find_header(first, has_second ? &cells : nullptr);
    const std::vector<Cell>& first_data = has_header ? cells : first;
    if (options_.labels > 0) {
      table_.label_column = options_.labels - 1;
    } else if (!has_header || has_second) {
      table_.label_column = find_labels(first_data, has_second);
      first_label_line_ = first_data.front().line;
      first_label_ = table_.label_column ? first_data[*table_.label_column].text() : "";
      label_hint_ = has_header ? "" : "; a header holds no numbers";
    }

    table_.cols = width_ - (table_.label_column ? 1 : 0);
    if (has_header) {
      for (std::size_t c = 0; c < width_; ++c) {
        if (c == table_.label_column) {
          table_.label_header = first[c].text();
        } else {
          if (first[c].text().empty()) not_a_number(first[c], c);
          table_.header.emplace_back(first[c].text());
        }
      }
    } else {
      add_row(first);
    }
    if (has_second) {
      do {
        add_row(cells);
      } while (lines_.next(cells));
    }
    table_.shape = {table_.rows, table_.cols};
    table_.values = std::move(values_);
    return std::move(table_);
  }

 private:
  [[noreturn]] void not_a_number(const Cell& cell, std::size_t column, std::string_view hint = "") const {
    if (cell.text().empty()) bad_input("{}:{}:{}: empty cell{}", name_, cell.line, column + 1, hint);
    bad_input("{}:{}:{}: {} is not a number{}", name_, cell.line, column + 1, quoted(cell.text()), hint);
  }

  std::vector<std::size_t> columns_without_number(const std::vector<Cell>& cells) const {
    std::vector<std::size_t> found;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (!is_number(cells[c].text())) found.push_back(c);
    }
    return found;
  }

  bool find_header(const std::vector<Cell>& first, const std::vector<Cell>* second) const {
    std::vector<std::size_t> words = columns_without_number(first);
    std::size_t width = width_;
    if (options_.labels > 0) {
      std::erase(words, options_.labels - 1);
      --width;
    }
    if (words.size() == width) return true;
    if (words.empty()) return false;
    if (options_.labels == 0) {
      if (words.size() == 1) return false;  // that one is the label
      // The cell above the labels may be a number, such as a year.
      if (words.size() + 1 == width && second != nullptr && second->size() == width_) {
        const std::vector<std::size_t> labels = columns_without_number(*second);
        if (labels.size() == 1 && is_number(first[labels[0]].text())) return true;
      }
    }
    const std::size_t bad = options_.labels == 0 && words[0] == 0 ? words[1] : words[0];
    not_a_number(first[bad], bad, ", though other cells of this first line are (a header holds no numbers)");
  }

  std::optional<std::size_t> find_labels(const std::vector<Cell>& first_data, bool has_second) const {
    const std::vector<std::size_t> words = columns_without_number(first_data);
    if (words.empty() || width_ == 1) return std::nullopt;
    const Cell& cell = first_data[words[0]];
    if (cell.text().empty()) not_a_number(cell, words[0]);
    // Nothing else in a file of one line tells a label from a typing error, unless it stands where labels usually do.
    if (!has_second && words[0] != 0) {
      not_a_number(cell, words[0], fmt::format(" (if it is a label: --labels {})", words[0] + 1));
    }
    return words[0];
  }

  void add_row(const std::vector<Cell>& cells) {
    const std::size_t line = cells.front().line;
    if (cells.size() < width_) {
      bad_input("{}:{}:{}: the line ends after {} of {} cells", name_, line, cells.size() + 1, cells.size(), width_);
    }
    if (cells.size() > width_) {
      bad_input("{}:{}:{}: the line has {} cells, the first one has {}", name_, line, width_ + 1, cells.size(), width_);
    }
    for (std::size_t c = 0; c < width_; ++c) {
      const Cell& cell = cells[c];
      if (c == table_.label_column) {
        // Neither a typing error in the first row nor a header with numbers may turn a column of scores into labels.
        if (options_.labels == 0 && is_number(cell.text())) {
          bad_input("{}:{}:{}: {} is not a number, but line {} has one there (if these are labels: --labels {}{})", name_,
                    first_label_line_, c + 1, quoted(first_label_), cell.line, c + 1, label_hint_);
        }
        table_.labels.emplace_back(cell.text());
        continue;
      }
      double number = 0;
      switch (read_number(cell.text(), number)) {
        case Reading::kNumber:
          values_.push_back(number);
          break;
        case Reading::kNotNumber:
          not_a_number(cell, c);
        case Reading::kTooLarge:
          bad_input("{}:{}:{}: {} is too large for float64", name_, cell.line, c + 1, quoted(cell.text()));
      }
    }
    ++table_.rows;
  }

  std::string_view name_;
  Lines lines_;
  ReadOptions options_;
  std::size_t width_ = 0;
  std::size_t first_label_line_ = 0;  // of a label column that was found, not named
  std::string first_label_;
  std::string_view label_hint_;
  std::vector<double> values_;
  Table table_;
};

Table read_separated(std::string_view bytes, std::string_view name, char separator, const ReadOptions& options) {
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) {
    bad_input("{}: this is UTF-16 text; save it as UTF-8", name);
  }
  if (bytes.starts_with("\x93NUMPY")) bad_input("{}: this is a NumPy file; read it with --format-in npy", name);
  if (bytes.find('\0') != bytes.npos) bad_input("{}: this is not text", name);
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  return CsvReader(bytes, name, separator, options).read();
}

void append_text(fmt::memory_buffer& out, std::string_view text, char separator) {
  const bool plain = !text.empty() && text == trimmed(text) && text.find_first_of("\"\r\n") == text.npos &&
                     text.find(separator) == text.npos && static_cast<unsigned char>(text[0]) < 0xEF &&
                     text[0] != '\x93';  // at the start of a file those mean something else
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

template <class T>
void append_number(fmt::memory_buffer& out, T number) {
  if (std::isnan(number)) {
    out.append(std::string_view("nan"));  // whatever its sign
  } else {
    fmt::format_to(std::back_inserter(out), "{}", number);
  }
}

// One line: `append_cell(c)` for each column of numbers, the label at its old place among them, and at the end the note.
template <class AppendCell>
void append_line(fmt::memory_buffer& out, const Table& table, const std::string* label, const std::string* note, char separator,
                 AppendCell append_cell) {
  bool first = true;
  const auto separate = [&] {
    if (!std::exchange(first, false)) out.push_back(separator);
  };
  for (std::size_t c = 0; c <= table.cols; ++c) {
    // A result of one number per row may have too few columns for the old place.
    if (label && c == std::min(*table.label_column, table.cols)) {
      separate();
      append_text(out, *label, separator);
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

void write_separated(const Table& table, const Sink& sink, char separator) {
  constexpr std::size_t kFlushAt = 1 << 16;
  fmt::memory_buffer out;
  const auto flush = [&] {
    sink({out.data(), out.size()});
    out.clear();
  };
  const bool labelled = table.label_column.has_value(), noted = !table.note_header.empty();
  if (!table.header.empty()) {
    append_line(out, table, labelled ? &table.label_header : nullptr, noted ? &table.note_header : nullptr, separator,
                [&](std::size_t c) { append_text(out, table.header[c], separator); });
  }
  if (table.cols > 0) {
    std::visit(
        [&](const auto& values) {
          for (std::size_t r = 0; r < table.rows; ++r) {
            append_line(out, table, labelled ? &table.labels[r] : nullptr, noted ? &table.notes[r] : nullptr, separator,
                        [&](std::size_t c) { append_number(out, values[r * table.cols + c]); });
            if (out.size() >= kFlushAt) flush();
          }
        },
        table.values);
  }
  flush();
}

}  // namespace

Table read_csv(std::string_view bytes, std::string_view name, const ReadOptions& options) {
  return read_separated(bytes, name, ',', options);
}

Table read_tsv(std::string_view bytes, std::string_view name, const ReadOptions& options) {
  return read_separated(bytes, name, '\t', options);
}

void write_csv(const Table& table, const Sink& sink) { write_separated(table, sink, ','); }

void write_tsv(const Table& table, const Sink& sink) { write_separated(table, sink, '\t'); }

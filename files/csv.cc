// Comma- and tab-separated values: float64 in, the fewest digits that give the same number back out.
//
// A header is a first line without a number (its cell above the labels aside). A label column is one that is not a number
// in the first data row nor in any other, or the one the caller names. Positions in messages are line:cell, both counted
// from 1.

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format.h"
#include "text.h"

namespace files {
namespace {

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

  // Lets the cell outlive the text that it was read from.
  void keep() {
    if (!std::exchange(escaped, true)) unescaped = plain;
  }
};

// The cells of a file, line by line.
class Lines {
 public:
  Lines(std::shared_ptr<Input> input, char separator) : text_(std::move(input)), separator_(separator) {}

  // Reads the next line that is not blank; false at the end. Lines of blanks are allowed at the end only. The cells are valid
  // until the next call.
  bool next(std::vector<Cell>& cells) {
    std::size_t first_blank_line = 0;
    while (true) {
      if (at_ == bytes_.size() && !more()) return false;
      if (!skip_blank_line()) {
        if (first_blank_line != 0) bad_input("{}:{}:1: empty line", text_.name(), first_blank_line);
        // A quoted cell may go on behind the lines that are in memory.
        const std::size_t at = at_, line = line_;
        while (!read_line(cells)) {
          at_ = at;
          line_ = line;
          if (!more()) bad_input("{}:{}:{}: a quote is opened and never closed", text_.name(), quote_line_, quote_column_);
          at_ = 0;
        }
        return true;
      }
      if (first_blank_line == 0) first_blank_line = line_ - 1;
    }
  }

  // Reads the next line if it is one of `width` numbers and, where there is a column for it, a label, all without blanks, signs
  // or quotes before them, as nearly all lines of nearly all files are. Otherwise nothing has happened. The label is valid
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
          if (!label_may_be_number && read_number(label, number) != Reading::kNotNumber) return false;
        } else {
          const auto [behind, error] = std::from_chars(at, end, number);
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
  // More text behind the place at_, which then is 0.
  bool more() {
    text_.skip(at_);
    const bool got = text_.more();
    bytes_ = text_.ahead();
    at_ = 0;
    return got;
  }

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

  // These three return whether the text was enough.
  bool read_line(std::vector<Cell>& cells) {
    std::size_t count = 0;
    while (true) {
      if (cells.size() == count) cells.emplace_back();
      if (!read_cell(cells[count], count + 1)) return false;
      ++count;
      if (at_line_end()) break;
      ++at_;  // the separator
    }
    cells.resize(count);
    skip_line_end();
    return true;
  }

  bool read_cell(Cell& cell, std::size_t column) {
    cell.line = line_;
    cell.escaped = false;
    skip_blanks();
    if (at_ < bytes_.size() && bytes_[at_] == '"') return read_quoted(cell, column);
    const std::size_t start = at_;
    while (!at_line_end() && bytes_[at_] != separator_) ++at_;
    cell.plain = trimmed(bytes_.substr(start, at_ - start));
    return true;
  }

  bool read_quoted(Cell& cell, std::size_t column) {
    const std::size_t start = ++at_;
    bool doubled = false;
    while (true) {
      if (at_ == bytes_.size()) {
        quote_line_ = cell.line;
        quote_column_ = column;
        return false;
      }
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
      bad_input("{}:{}:{}: there is text after the closing quote", text_.name(), cell.line, column);
    }
    if (!doubled) return true;
    cell.escaped = true;
    cell.unescaped.clear();
    for (std::size_t i = 0; i < cell.plain.size(); ++i) {
      cell.unescaped += cell.plain[i];
      if (cell.plain[i] == '"') ++i;
    }
    return true;
  }

  Text text_;
  std::string_view bytes_;  // text_.ahead()
  char separator_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t quote_line_ = 0;  // where the quote is that was not closed
  std::size_t quote_column_ = 0;
};

bool is_number(std::string_view text) {
  double number = 0;
  return read_number(text, number) != Reading::kNotNumber;
}

class CsvReader {
 public:
  CsvReader(std::shared_ptr<Input> input, char separator, const ReadOptions& options)
      : name_(input->name()), lines_(input, separator), options_(options) {
    if (!options.key.empty()) bad_input("{}: only .npz, .jsonl and .safetensors files have a key", name_);
  }

  bool next(Table& table, std::size_t numbers) {
    table.first_row = rows_;
    if (!std::holds_alternative<std::vector<double>>(table.values)) table.values = std::vector<double>();
    std::get<std::vector<double>>(table.values).clear();
    table.labels.clear();
    table.rows = 0;
    if (!begun_) {
      begin(table);
      begun_ = true;
    } else if (!lines_.next(cells_)) {
      return false;
    } else {
      add_row(table, cells_);
    }
    std::vector<double>& values = std::get<std::vector<double>>(table.values);
    while (table.rows < std::max<std::size_t>(1, numbers / width_)) {
      if (lines_.next_plain(width_, label_column_, options_.labels > 0, values, label_)) {
        if (label_column_) table.labels.emplace_back(label_);
        ++table.rows;
      } else if (lines_.next(cells_)) {
        add_row(table, cells_);
      } else {
        break;
      }
    }
    rows_ += table.rows;
    names_on(table);
    return true;
  }

 private:
  [[noreturn]] void not_a_number(const Cell& cell, std::size_t column, std::string_view hint = "") const {
    if (cell.text().empty()) bad_input("{}:{}:{}: empty cell{}", name_, cell.line, column + 1, hint);
    bad_input("{}:{}:{}: {} is not a number{}", name_, cell.line, column + 1, in_quotes(cell.text()), hint);
  }

  // The first line or two, and what they say about names and labels.
  void begin(Table& table) {
    std::vector<Cell> first;
    if (!lines_.next(first)) bad_input("{}: the file is empty", name_);
    for (Cell& cell : first) cell.keep();
    width_ = first.size();
    if (options_.labels > width_) {
      bad_input("{}: labels are to be in column {}, but there are only {} columns", name_, options_.labels, width_);
    }
    if (options_.labels == 1 && width_ == 1) bad_input("{}: the only column holds labels, so there are no scores", name_);

    const bool has_second = lines_.next(cells_);
    const bool has_header = find_header(first, has_second ? &cells_ : nullptr);
    const std::vector<Cell>& first_data = has_header ? cells_ : first;
    if (options_.labels > 0) {
      label_column_ = options_.labels - 1;
    } else if (!has_header || has_second) {
      label_column_ = find_labels(first_data, has_second);
      first_label_line_ = first_data.front().line;
      first_label_ = label_column_ ? first_data[*label_column_].text() : "";
      label_hint_ = has_header ? "" : "; a header holds no numbers";
    }

    if (has_header) {
      for (std::size_t c = 0; c < width_; ++c) {
        if (c == label_column_) {
          label_header_ = first[c].text();
        } else {
          if (first[c].text().empty()) not_a_number(first[c], c);
          header_.emplace_back(first[c].text());
        }
      }
    } else {
      add_row(table, first);
    }
    if (has_second) add_row(table, cells_);
  }

  void names_on(Table& table) const {
    table.cols = width_ - (label_column_ ? 1 : 0);
    table.shape = {table.rows, table.cols};
    table.header = header_;
    table.label_column = label_column_;
    table.label_header = label_header_;
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

  void add_row(Table& table, const std::vector<Cell>& cells) {
    std::vector<double>& values = std::get<std::vector<double>>(table.values);
    const std::size_t line = cells.front().line;
    if (cells.size() < width_) {
      bad_input("{}:{}:{}: the line ends after {} of {} cells", name_, line, cells.size() + 1, cells.size(), width_);
    }
    if (cells.size() > width_) {
      bad_input("{}:{}:{}: the line has {} cells, the first one has {}", name_, line, width_ + 1, cells.size(), width_);
    }
    for (std::size_t c = 0; c < width_; ++c) {
      const Cell& cell = cells[c];
      if (c == label_column_) {
        // Neither a typing error in the first row nor a header with numbers may turn a column of scores into labels.
        if (options_.labels == 0 && is_number(cell.text())) {
          bad_input("{}:{}:{}: {} is not a number, but line {} has one there (if these are labels: --labels {}{})", name_,
                    first_label_line_, c + 1, in_quotes(first_label_), cell.line, c + 1, label_hint_);
        }
        table.labels.emplace_back(cell.text());
        continue;
      }
      double number = 0;
      switch (read_number(cell.text(), number)) {
        case Reading::kNumber:
          values.push_back(number);
          break;
        case Reading::kNotNumber:
          not_a_number(cell, c);
        case Reading::kTooLarge:
          bad_input("{}:{}:{}: {} is too large for float64", name_, cell.line, c + 1, in_quotes(cell.text()));
      }
    }
    ++table.rows;
  }

  std::string name_;
  Lines lines_;
  ReadOptions options_;
  bool begun_ = false;
  std::vector<Cell> cells_;
  std::string_view label_;
  std::size_t width_ = 0;
  std::size_t rows_ = 0;
  std::optional<std::size_t> label_column_;
  std::string label_header_;
  std::vector<std::string> header_;
  std::size_t first_label_line_ = 0;  // of a label column that was found, not named
  std::string first_label_;
  std::string_view label_hint_;
};

Reader open_separated(std::shared_ptr<Input> input, char separator, const ReadOptions& options) {
  const auto reader = std::make_shared<CsvReader>(std::move(input), separator, options);
  return {.next = [reader](Table& table, std::size_t numbers) { return reader->next(table, numbers); }};
}

void append_text(fmt::memory_buffer& out, std::string_view text, char separator) {
  // At the start of a file some bytes mean another format.
  const bool magic = static_cast<unsigned char>(text.empty() ? 0 : text[0]) >= 0xEF || text.starts_with('\x93') ||
                     text.starts_with("PK\x03\x04");
  const bool plain = !text.empty() && text == trimmed(text) && text.find_first_of("\"\r\n") == text.npos &&
                     text.find(separator) == text.npos && !magic;
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

std::string_view encode_separated(const Table& table, char separator, fmt::memory_buffer& out) {
  out.clear();
  if (table.cols == 0) return "";
  const bool labelled = table.label_column.has_value(), noted = !table.note_header.empty();
  std::visit(
      [&](const auto& values) {
        for (std::size_t r = 0; r < table.rows; ++r) {
          append_line(out, table, labelled ? &table.labels[r] : nullptr, noted ? &table.notes[r] : nullptr, separator,
                      [&](std::size_t c) { append_number(out, values[r * table.cols + c]); });
        }
      },
      table.values);
  return {out.data(), out.size()};
}

Writer create_separated(Output& output, const Table& first, char separator) {
  if (!first.header.empty()) {
    fmt::memory_buffer out;
    append_line(out, first, first.label_column ? &first.label_header : nullptr,
                first.note_header.empty() ? nullptr : &first.note_header, separator,
                [&](std::size_t c) { append_text(out, first.header[c], separator); });
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

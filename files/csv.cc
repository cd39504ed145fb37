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

// The cells of a piece of text, line by line.
class Lines {
 public:
  Lines(std::string_view text, std::size_t first_line, char separator, std::string_view name)
      : bytes_(text), line_(first_line), separator_(separator), name_(name) {}

  // Where the next line begins, and which it is.
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
          if (!label_may_be_number && read_number(label, number) != Reading::not_number) return false;
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
  bool at_line_end() const { return at_ == bytes_.size() || bytes_[at_] == '\n' || bytes_.substr(at_, 2) == "\r\n"; }

  void skip_line_end() {
    at_ += at_ == bytes_.size() ? 0 : bytes_[at_] == '\n' ? 1 : 2;
    ++line_;
  }

  // A tab separates in a .tsv.
  void skip_blanks() {
    while (at_ < bytes_.size() && is_blank(bytes_[at_]) && bytes_[at_] != separator_) ++at_;
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
      bad_input("{}:{}:{}: there is text after the closing quote", name_, cell.line, column);
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

// The first row of a text: a line, or more where a cell in quotes goes on behind its end.
std::optional<RowText::Extent> first_row(std::string_view text, char separator) {
  const std::optional<RowText::Extent> line = first_line(text);
  const std::size_t quote = text.substr(0, line ? line->bytes : text.npos).find('"');
  if (quote == text.npos) return line;
  std::size_t lines = 1;
  bool at_start = true, quoted = false;  // of a cell; in quotes, which open only there
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

bool is_number(std::string_view text) {
  double number = 0;
  return read_number(text, number) != Reading::not_number;
}

class CsvReader {
 public:
  CsvReader(std::shared_ptr<Input> input, char separator, const ReadOptions& options)
      : name_(input->name()),
        text_(input, separator == '\t' ? " \r" : " \t\r",
              [separator](std::string_view text) { return first_row(text, separator); }),
        separator_(separator),
        options_(options) {
    if (!options.key.empty()) bad_input("{}: only .npz, .jsonl and .safetensors files have a key", name_);
  }

  bool take(Piece& piece, std::size_t numbers) {
    if (!text_.next(piece, text_size(numbers))) return false;
    if (!std::exchange(begun_, true)) begin(piece);
    Table& table = piece.table;
    table.first_row = rows_;
    rows_ += table.rows;
    table.cols = width_ - (label_column_ ? 1 : 0);
    table.shape = {table.rows, table.cols};
    table.header = header_;
    table.label_column = label_column_;
    table.label_header = label_header_;
    return true;
  }

  void parse(Piece& piece) const {
    std::vector<double> values = reused<double>(piece.table);
    std::vector<std::string>& labels = piece.table.labels;
    values.clear();
    labels.clear();
    Lines lines(piece.text, piece.line, separator_, name_);
    std::vector<Cell> cells;
    std::string_view label;
    for (std::size_t r = 0; r < piece.table.rows; ++r) {
      if (lines.next_plain(width_, label_column_, options_.labels > 0, values, label)) {
        if (label_column_) labels.emplace_back(label);
      } else {
        lines.next(cells);
        add_row(cells, values, labels);
      }
    }
    piece.table.values = std::move(values);
    if (!piece.mistake.empty()) throw BadInput(piece.mistake);
  }

 private:
  [[noreturn]] void not_a_number(const Cell& cell, std::size_t column, std::string_view hint = "") const {
    if (cell.text().empty()) bad_input("{}:{}:{}: empty cell{}", name_, cell.line, column + 1, hint);
    bad_input("{}:{}:{}: {} is not a number{}", name_, cell.line, column + 1, in_quotes(cell.text()), hint);
  }

  // The first row or two, and what they say about names and labels. A header is taken from the piece.
  void begin(Piece& piece) {
    std::vector<Cell> first, second;
    Lines lines(piece.text, piece.line, separator_, name_);
    lines.next(first);
    for (Cell& cell : first) cell.keep();
    width_ = first.size();
    if (options_.labels > width_) {
      bad_input("{}: labels are to be in column {}, but there are only {} columns", name_, options_.labels, width_);
    }
    if (options_.labels == 1 && width_ == 1) bad_input("{}: the only column holds labels, so there are no scores", name_);

    Piece more;
    if (piece.table.rows == 1 && text_.next(more, 1)) {
      piece.text += more.text;
      piece.table.rows += more.table.rows;
      piece.mistake = more.mistake;
    }
    const bool has_second = piece.table.rows > 1;
    const std::size_t header_size = lines.at(), second_line = lines.line();
    if (has_second) Lines(std::string_view(piece.text).substr(header_size), second_line, separator_, name_).next(second);
    const bool has_header = find_header(first, has_second ? &second : nullptr);
    const std::vector<Cell>& first_data = has_header ? second : first;
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
      piece.text.erase(0, header_size);
      piece.line = second_line;
      --piece.table.rows;
    }
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

  void add_row(const std::vector<Cell>& cells, std::vector<double>& values, std::vector<std::string>& labels) const {
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
        labels.emplace_back(cell.text());
        continue;
      }
      double number = 0;
      switch (read_number(cell.text(), number)) {
        case Reading::number:
          values.push_back(number);
          break;
        case Reading::not_number:
          not_a_number(cell, c);
        case Reading::too_large:
          bad_input("{}:{}:{}: {} is too large for float64", name_, cell.line, c + 1, in_quotes(cell.text()));
      }
    }
  }

  std::string name_;
  RowText text_;
  char separator_;
  ReadOptions options_;
  bool begun_ = false;
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
  return {.take = [reader](Piece& piece, std::size_t numbers) { return reader->take(piece, numbers); },
          .parse = [reader](Piece& piece) { reader->parse(piece); }};
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

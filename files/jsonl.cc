// JSON Lines: a row of scores in each line, by simdjson. A line is
//   [2, 1.5, -1]                          an array of numbers, or
//   {"id": "a17", "scores": [2, 1.5]}     an object with an array, the array to read (--key where there are several), or
//   {"cat": 2, "dog": 1.5, "name": "x"}   an object of numbers, whose keys are the names of the columns.
// The label of a row is the field that --labels names, or the first string of the object. Strings and numbers beside an array
// are kept. --key a.b is the array "b" of the object "a". null is a missing number; NaN, Infinity, "nan", "inf" and "-inf" are
// read, and the last three are written, because JSON has no such numbers. Lines of blanks are skipped.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "columns.h"
#include "format.h"
#include "jsonl_lines.h"
#include "text.h"

namespace files {
namespace {

using jsonl::Form, jsonl::Layout, jsonl::Lines;

bool is_blank_line(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

class JsonlReader {
 public:
  JsonlReader(std::shared_ptr<Input> input, const ReadOptions& options)
      : text_(std::move(input), " \t\r", first_line, options, true), options_(options) {
    if (options.header || options.delimiter != 0) refuse_columns(options, text_.name(), "a .jsonl file");
    if (options.thousands != 0) bad_input("{}: --thousands is for .csv and .tsv; numbers of JSON have no groups", text_.name());
  }

  bool take(Piece& piece, std::size_t numbers) {
    if (!text_.next(piece, text_size(numbers))) {
      refuse_whole_columns();
      return false;
    }
    if (!layout_) {
      std::size_t at = 0, line = piece.line;
      for (; is_blank_line(line_at(piece.text, at)); ++line) at += line_at(piece.text, at).size() + 1;
      if (options_.shared || !options_.first_label.empty()) {
        fit(options_, Lines(text_.name(), line, options_).names_of(line_at(piece.text, at)), 0);
      }
      first_line_ = line;
      layout_ = Lines(text_.name(), line, options_).layout_of(line_at(piece.text, at));
      const bool named = layout_->form == Form::named && options_.columns.empty();
      if (named && options_.advised.columns && options_.scores) whole_columns_.emplace();
    }
    look_at_whole_columns(piece);
    Table& table = piece.table;
    table.first_row = rows_;
    table.shape = {table.rows};
    table.shape.insert(table.shape.end(), layout_->nested.begin(), layout_->nested.end());
    table.nested = layout_->nested;
    table.rows *= rows_of_line(table.nested);
    rows_ += table.rows;
    table.cols = *layout_->width;
    table.shape.push_back(table.cols);
    table.header = layout_->header;
    table.label_header = layout_->label_key;
    table.label_column = layout_->label_column;
    table.number_labels = layout_->number_labels;
    if (layout_->form == Form::keyed) table.key = layout_->key;
    return true;
  }

  void parse(Piece& piece) const {
    Lines lines(text_.name(), piece.line, options_);
    lines.values = reused<double>(piece.table);
    lines.values.clear();
    const std::size_t rows_each = rows_of_line(layout_->nested);
    for (std::size_t at = 0, row = 0; at < piece.text.size();) {
      const std::string_view line = line_at(piece.text, at);
      if (is_blank_line(line)) {
        lines.skip();
      } else {
        const bool wanted = row + rows_each > piece.begin && row < piece.end;
        if (wanted) lines.next(line, *layout_);
        if (!wanted) lines.pass(*layout_);
        row += rows_each;
      }
      at += line.size() + 1;
    }
    piece.table.values = std::move(lines.values);
    piece.table.labels = std::move(lines.labels);
    for (std::size_t c = 0; c < lines.kept.size(); ++c) lines.kept[c].name = layout_->kept[c];
    piece.table.kept = std::move(lines.kept);
    piece.table.missing = std::move(lines.missing);
    piece.table.places = std::make_shared<Places>(std::move(lines.places));
    piece.table.places->cells = layout_->cells;
    if (!piece.mistake.empty()) throw BadInput(piece.mistake);
  }

 private:
  void look_at_whole_columns(Piece& piece) {
    std::size_t at = 0;
    const auto look = [&] {
      for (; at < piece.text.size() && !whole_columns_->done(); at += line_at(piece.text, at).size() + 1) {
        const std::string_view line = line_at(piece.text, at);
        if (is_blank_line(line)) continue;
        try {
          Lines(text_.name(), piece.line, options_).look(line, *layout_, *whole_columns_);
        } catch (const BadInput&) {  // it is thrown again if the line is wanted
        }
      }
    };
    if (whole_columns_) look();
    // More lines may settle it, and none is to come out before.
    Piece more;
    while (whole_columns_ && !whole_columns_->done() && !whole_columns_->doubt(true).columns.empty() && text_.next(more, 1)) {
      piece.text += more.text;
      piece.table.rows += more.table.rows;
      look();
    }
    if (whole_columns_ && (whole_columns_->done() || text_.ended())) refuse_whole_columns();
  }

  void refuse_whole_columns() {
    if (!whole_columns_) return;
    const Doubt doubt = whole_columns_->doubt(true);
    whole_columns_.reset();
    Lines(text_.name(), first_line_, options_).refuse(doubt, layout_->header);
  }

  // The line that begins at `at`. simdjson may read bytes beyond its end.
  static std::string_view line_at(std::string& text, std::size_t at) {
    text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    return std::string_view(text).substr(at, text.find('\n', at) - at);
  }

  RowText text_;
  ReadOptions options_;
  std::optional<Layout> layout_;
  std::optional<WholeColumns> whole_columns_;  // until the first lines have been seen
  std::size_t first_line_ = 1;
  std::size_t rows_ = 0;
};

template <class T>
void append_json_number(fmt::memory_buffer& out, T number, int digits) {
  const bool finite = std::isfinite(static_cast<double>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(number)));
  if (!finite) out.push_back('"');
  append_number(out, number, digits);
  if (!finite) out.push_back('"');
}

}  // namespace

Reader open_jsonl(std::shared_ptr<Input> input, const ReadOptions& options) {
  const auto reader = std::make_shared<JsonlReader>(std::move(input), options);
  return {.take = [reader](Piece& piece, std::size_t numbers) { return reader->take(piece, numbers); },
          .parse = [reader](Piece& piece) { reader->parse(piece); }};
}

namespace {

// Writes the rows of one line, as arrays in arrays if the line had them. `scalar`: each row is one number.
template <class T>
void append_rows(fmt::memory_buffer& out, const Table& table, const std::vector<T>& values, std::size_t begin, std::size_t rows,
                 bool scalar) {
  for (std::size_t r = 0; r < rows; ++r) {
    if (r > 0) out.append(std::string_view(", "));
    const auto brackets = [&](std::size_t row, char bracket) {
      std::size_t each = rows;
      for (std::size_t axis = 0; rows > 1 || !table.nested.empty(); ++axis) {
        if (axis == table.nested.size()) break;
        if (row % each == 0) out.push_back(bracket);
        each /= table.nested[axis];
      }
    };
    brackets(r, '[');
    if (!scalar) out.push_back('[');
    for (std::size_t c = 0; c < table.cols; ++c) {
      if (c > 0) out.append(std::string_view(", "));
      append_json_number(out, values[(begin + r) * table.cols + c], table.digits);
    }
    if (!scalar) out.push_back(']');
    brackets(r + 1, ']');
  }
}

// An array without a name gets one that the labels do not have.
std::string key_of_array(const Table& table) {
  const std::string& wanted = table.result.empty() ? table.key : table.result;
  if (!wanted.empty()) return wanted;
  return table.label_column && table.label_header == "values" ? "scores" : "values";
}

}  // namespace

std::vector<std::string> result_keys(const Table& table) {
  std::vector<std::string> keys = table.header;
  if (keys.empty()) keys.push_back(key_of_array(table));
  if (!table.note_header.empty()) keys.push_back(table.note_header);
  return keys;
}

// A word of the input as JSON, which must be UTF-8: two words in another encoding may become one.
std::string json_word(std::string_view word) {
  for (std::string_view rest = word; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    if (length == 0) {
      bad_input("{} is not UTF-8, which JSON needs; iconv -f latin1 -t utf-8 converts a file in Latin-1", in_quotes(word));
    }
    rest.remove_prefix(length);
  }
  return json_string(word);
}

std::string_view encode_jsonl(const Table& table, fmt::memory_buffer& out) {
  out.clear();
  const bool named = !table.header.empty(), labelled = table.label_column.has_value(), noted = !table.note_header.empty();
  const bool object = named || labelled || noted || !table.kept.empty() || !table.key.empty();
  std::vector<std::string> names;
  for (const std::string& name : table.header) names.push_back(json_word(name) + ": ");
  const std::string label_name = json_word(table.label_header.empty() ? "label" : table.label_header) + ": ";
  const std::string note_name = json_string(table.note_header) + ": ";
  // One number for each row is written as a number, not as an array of one.
  const bool scalar = !named && table.cols == 1 && table.shape.size() == 1 + table.nested.size() && !table.result.empty();
  const bool nested = !table.nested.empty() && !named && !noted;
  const std::size_t together = nested ? rows_of_line(table.nested) : 1;
  const std::string key = json_string(key_of_array(table)) + ": ";
  const std::vector<std::string> taken = result_keys(table);
  const std::size_t to_point = rows_to_point(table);
  std::visit(
      [&](const auto& values) {
        for (std::size_t r = 0; r < table.rows; r += together) {
          bool first = true;
          const auto separate = [&] {
            if (!std::exchange(first, false)) out.append(std::string_view(", "));
          };
          bool to_label = labelled;
          const auto add_label = [&] {
            if (!std::exchange(to_label, false)) return;
            separate();
            out.append(label_name);
            const std::string& label = table.labels[r];
            out.append(table.number_labels && is_json_number(label) ? label : json_word(label));
          };
          if (object) out.push_back('{');
          for (const Table::Kept& column : table.kept) {
            if (std::find(taken.begin(), taken.end(), column.name) != taken.end()) continue;
            if (column.words[r]) add_label();  // readers take the first string of an object for the label
            separate();
            out.append(json_word(column.name));
            out.append(std::string_view(": "));
            out.append(column.words[r] ? json_word(column.cells[r]) : column.cells[r].empty() ? "null" : column.cells[r]);
          }
          if (object && !named) {
            add_label();
            separate();
            out.append(key);
          }
          if (!named) append_rows(out, table, values, r, together, scalar);
          for (std::size_t c = 0; named && c <= table.cols; ++c) {
            if (labelled && c == std::min(*table.label_column, table.cols)) add_label();
            if (c == table.cols) break;
            separate();
            out.append(names[c]);
            const std::size_t begin = out.size();
            append_json_number(out, values[r * table.cols + c], table.digits);
            if (r < to_point) add_point(out, begin);
          }
          if (noted) {
            first = false;
            separate();
            out.append(note_name);
            out.append(json_string(table.notes[r]));
          }
          out.append(std::string_view(object ? "}\n" : "\n"));
        }
      },
      table.values);
  return {out.data(), out.size()};
}

Writer create_jsonl(Output& output, const Table&, bool) {
  return {.append = [&output](std::string_view encoded) { output.write(encoded); }};
}

}  // namespace files

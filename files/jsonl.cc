// JSON Lines: a row of scores in each line, by simdjson. A line is
//   [2, 1.5, -1]                          an array of numbers, or
//   {"id": "a17", "scores": [2, 1.5]}     an object with an array, the array to read (--key where there are several), or
//   {"cat": 2, "dog": 1.5, "name": "x"}   an object of numbers, whose keys are the names of the columns.
// The first string in an object is the row's label. null is NaN; NaN, Infinity, "nan", "inf" and "-inf" are read, and the last
// three written, as JSON has no such numbers.

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format.h"
#include "text.h"

namespace files {
namespace {

namespace json = simdjson::ondemand;

// NaN and Infinity, as Python writes them, in quotes.
std::string with_quoted_numbers(std::string_view line) {
  std::string result;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (in_string && line[i] == '\\') {
      result += line.substr(i++, 2);
      continue;
    }
    if (line[i] == '"') in_string = !in_string;
    bool found = false;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (in_string || line.substr(i, word.size()) != word) continue;
      result.append("\"").append(word).append("\"");
      i += word.size() - 1;
      found = true;
      break;
    }
    if (!found) result += line[i];
  }
  return result;
}

enum class Form { array, keyed, named };

// What the first line says about all.
struct Layout {
  Form form = Form::array;
  std::string key;                   // of the array
  std::optional<std::size_t> width;  // how many numbers, once the line is read
  std::vector<std::string> header;
  std::unordered_map<std::string, std::size_t> places;  // of the header
  std::string label_key;
  std::optional<std::size_t> label_column;
};

// Reads one line after the other.
class Lines {
 public:
  Lines(std::string_view name, std::size_t first_line) : name_(name), line_(first_line) {}

  // The layout of a file with this first line and, of the arrays there, `key`.
  Layout layout_of(std::string_view line, const std::string& key) {
    Layout layout;
    on_document(line, [&](json::document document) {
      layout = {};
      layout.key = key;
      if (type_of(document) == json::json_type::object) look_at_object(document.get_object(), layout);
    });
    next(line, layout);
    layout.width = values.size();
    return layout;
  }

  // Reads a line, behind which simdjson may read on.
  void next(std::string_view line, const Layout& layout) {
    const std::size_t numbers_before = values.size(), labels_before = labels.size();
    on_document(line, [&](json::document document) {
      values.resize(numbers_before);
      labels.resize(labels_before);
      read_row(std::move(document), layout);
    });
    ++line_;
  }

  std::vector<double> values;
  std::vector<std::string> labels;

 private:
  // Calls f(the line as JSON), if that fails once more with NaN and Infinity in quotes.
  template <class F>
  void on_document(std::string_view line, F f) {
    try {
      f(parser_.iterate(line.data(), line.size(), line.size() + simdjson::SIMDJSON_PADDING));
    } catch (const simdjson::simdjson_error& error) {
      const std::string changed = with_quoted_numbers(line);
      if (changed == line) not_json(error);
      try {
        const simdjson::padded_string padded(changed);
        f(parser_.iterate(padded));
      } catch (const simdjson::simdjson_error& again) {
        not_json(again);
      }
    }
  }

  [[noreturn]] void not_json(const simdjson::simdjson_error& error) const {
    if (error.error() == simdjson::MEMALLOC) throw std::bad_alloc();
    wrong("this is not a line of JSON: {}", error.what());
  }

  // Throws with the line, and with the cell.
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> what, Args&&... args) const {
    bad_input("{}:{}: {}", name_, line_, fmt::format(what, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void wrong_cell(std::size_t cell, fmt::format_string<Args...> what, Args&&... args) const {
    bad_input("{}:{}:{}: {}", name_, line_, cell, fmt::format(what, std::forward<Args>(args)...));
  }

  json::json_type type_of(json::document& line) const {
    const json::json_type type = line.type();
    if (type != json::json_type::array && type != json::json_type::object) {
      wrong("a line must be an array of numbers or an object");
    }
    return type;
  }

  void read_row(json::document line, const Layout& layout) {
    const bool is_array = type_of(line) == json::json_type::array;
    if ((layout.form == Form::array) != is_array) {
      wrong("the line is an {}, the first one is none", is_array ? "array" : "object");
    }
    switch (layout.form) {
      case Form::array:
        read_array(line.get_array(), layout);
        break;
      case Form::keyed:
        read_keyed(line.get_object(), layout);
        break;
      case Form::named:
        read_named(line.get_object(), layout);
    }
    const char* rest = nullptr;
    if (line.current_location().get(rest) == simdjson::SUCCESS) wrong("there is text behind the row");
  }

  // What the first line says about all.
  void look_at_object(json::object object, Layout& layout) const {
    std::vector<std::string> arrays, names;
    std::optional<std::size_t> label;
    std::string other_word;  // the second string
    std::size_t cell = 0;
    for (json::field field : object) {
      ++cell;
      std::string name(std::string_view(field.unescaped_key()));
      json::value value = field.value();
      const json::json_type type = value.type();
      if (type == json::json_type::array) arrays.push_back(name);
      double number = 0;
      const bool word = type == json::json_type::string && !read_special(std::string_view(value.get_string()), number);
      if (word && !label) {
        label = cell - 1;
        layout.label_key = name;
      } else {
        if (word && other_word.empty()) other_word = name;
        names.push_back(name);
      }
    }
    if (!arrays.empty() || !layout.key.empty()) {
      layout.form = Form::keyed;
      if (layout.key.empty() && arrays.size() > 1) {
        wrong("there are several arrays: {}, {}{}; choose one with --key", in_quotes(arrays[0]), in_quotes(arrays[1]),
              arrays.size() > 2 ? ", ..." : "");
      }
      if (layout.key.empty()) layout.key = arrays[0];  // which may be called ""
      if (label) layout.label_column = 0;
      return;
    }
    if (!other_word.empty()) {
      wrong("{} is not a number, nor the label, which is {}; to read an array and nothing else: --key", in_quotes(other_word),
            in_quotes(layout.label_key));
    }
    layout.form = Form::named;
    layout.header = std::move(names);
    layout.label_column = label;
    for (std::size_t c = 0; c < layout.header.size(); ++c) {
      if (!layout.places.emplace(layout.header[c], c).second) wrong("{} is there twice", in_quotes(layout.header[c]));
    }
    if (layout.header.empty()) wrong("there are no numbers");
  }

  void read_array(json::array array, const Layout& layout) {
    const std::size_t before = values.size();
    std::size_t cell = 0;
    for (json::value value : array) values.push_back(number_of(value, ++cell));
    const std::size_t count = values.size() - before;
    if (layout.width && count != layout.width) {
      wrong("the line has {} number{}, the first one has {}", count, count == 1 ? "" : "s", *layout.width);
    }
  }

  void read_keyed(json::object object, const Layout& layout) {
    bool found = false, labelled = false;
    for (json::field field : object) {
      const std::string_view name = field.unescaped_key();
      if (name == layout.key) {
        if (std::exchange(found, true)) wrong("{} is there twice", in_quotes(layout.key));
        json::value value = field.value();
        if (value.type() != json::json_type::array) {
          wrong("{} is not an array of numbers", in_quotes(layout.key));
        }
        read_array(value.get_array(), layout);
      } else if (layout.label_column && name == layout.label_key && !labelled) {
        read_label(field.value(), layout);
        labelled = true;
      }
    }
    if (!found) wrong("{} is missing", in_quotes(layout.key));
    if (layout.label_column && !labelled) wrong("{} is missing", in_quotes(layout.label_key));
  }

  void read_named(json::object object, const Layout& layout) {
    const std::size_t before = values.size(), width = layout.header.size();
    values.resize(before + width);
    seen_.assign(width, false);
    bool labelled = false;
    std::size_t cell = 0, count = 0;
    for (json::field field : object) {
      ++cell;
      const std::string_view name = field.unescaped_key();
      if (layout.label_column && name == layout.label_key && !labelled) {
        read_label(field.value(), layout);
        labelled = true;
        continue;
      }
      // Nearly always the order of the first line.
      std::size_t place = count;
      if (place >= width || layout.header[place] != name) {
        const auto known = layout.places.find(std::string(name));
        if (known == layout.places.end()) wrong("{} is not in the first line", in_quotes(name));
        place = known->second;
      }
      if (seen_[place]) wrong("{} is there twice", in_quotes(name));
      seen_[place] = true;
      values[before + place] = number_of(field.value(), cell);
      ++count;
    }
    if (count < width) {
      const auto missing = static_cast<std::size_t>(std::find(seen_.begin(), seen_.end(), false) - seen_.begin());
      wrong("{} is missing", in_quotes(layout.header[missing]));
    }
    if (layout.label_column && !labelled) wrong("{} is missing", in_quotes(layout.label_key));
  }

  void read_label(json::value value, const Layout& layout) {
    if (value.type() != json::json_type::string) {
      wrong("{} is a string in the first line and none here", in_quotes(layout.label_key));
    }
    labels.emplace_back(std::string_view(value.get_string()));
  }

  // The words that stand for numbers which JSON cannot write.
  static bool read_special(std::string_view text, double& number) {
    return read_number(text, number) == Reading::number && !std::isfinite(number);
  }

  double number_of(json::value value, std::size_t cell) const {
    double number = 0;
    switch (value.type()) {
      case json::json_type::number:
        if (value.get_double().get(number) == simdjson::SUCCESS) return number;
        {
          // simdjson refuses what is too large, and what is no number at all.
          std::string_view token = value.raw_json_token();
          token = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
          const Reading reading = read_number(token, number);
          if (reading == Reading::number) return number;  // such as -Infinity
          wrong_cell(cell, "{} is {}", in_quotes(token),
                     reading == Reading::too_large ? "too large for float64" : "not a number");
        }
      case json::json_type::null:
        if (!value.is_null()) wrong_cell(cell, "this is not a number");
        return std::numeric_limits<double>::quiet_NaN();
      case json::json_type::string: {
        const std::string_view text = value.get_string();
        if (!read_special(text, number)) wrong_cell(cell, "{} is not a number", in_quotes(text));
        return number;
      }
      default:
        wrong_cell(cell, "this is not a number");
    }
  }

  std::string_view name_;
  std::size_t line_;
  json::parser parser_;
  std::vector<bool> seen_;
};

class JsonlReader {
 public:
  JsonlReader(std::shared_ptr<Input> input, const ReadOptions& options)
      : text_(std::move(input), " \t\r", first_line), key_(options.key) {
    if (options.labels > 0 || !options.label.empty()) {
      bad_input("{}: the labels of a .jsonl are its strings; --labels is for .csv and .tsv", text_.name());
    }
    refuse_columns(options, text_.name(), "a .jsonl file");
    if (options.missing == Missing::skip) bad_input("{}: --missing skip is for .csv and .tsv; null is nan", text_.name());
  }

  bool take(Piece& piece, std::size_t numbers) {
    if (!text_.next(piece, text_size(numbers))) return false;
    if (!layout_) layout_ = Lines(text_.name(), piece.line).layout_of(line_at(piece.text, 0), key_);
    Table& table = piece.table;
    table.first_row = rows_;
    rows_ += table.rows;
    table.cols = *layout_->width;
    table.shape = {table.rows, table.cols};
    table.header = layout_->header;
    table.label_header = layout_->label_key;
    table.label_column = layout_->label_column;
    if (layout_->form == Form::keyed) table.key = layout_->key;
    return true;
  }

  void parse(Piece& piece) const {
    Lines lines(text_.name(), piece.line);
    lines.values = reused<double>(piece.table);
    lines.values.clear();
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::string_view line = line_at(piece.text, at);
      lines.next(line, *layout_);
      at += line.size() + 1;
    }
    piece.table.values = std::move(lines.values);
    piece.table.labels = std::move(lines.labels);
    if (!piece.mistake.empty()) throw BadInput(piece.mistake);
  }

 private:
  // The line that begins at `at`, behind which simdjson may read on.
  static std::string_view line_at(std::string& text, std::size_t at) {
    text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    return std::string_view(text).substr(at, text.find('\n', at) - at);
  }

  RowText text_;
  std::string key_;
  std::optional<Layout> layout_;
  std::size_t rows_ = 0;
};

template <class T>
void append_json_number(fmt::memory_buffer& out, T number) {
  const bool finite = std::isfinite(static_cast<double>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(number)));
  if (!finite) out.push_back('"');
  append_number(out, number);
  if (!finite) out.push_back('"');
}

}  // namespace

Reader open_jsonl(std::shared_ptr<Input> input, const ReadOptions& options) {
  const auto reader = std::make_shared<JsonlReader>(std::move(input), options);
  return {.take = [reader](Piece& piece, std::size_t numbers) { return reader->take(piece, numbers); },
          .parse = [reader](Piece& piece) { reader->parse(piece); }};
}

std::string_view encode_jsonl(const Table& table, fmt::memory_buffer& out) {
  out.clear();
  const bool named = !table.header.empty(), labelled = table.label_column.has_value(), noted = !table.note_header.empty();
  const bool object = named || labelled || noted || !table.kept.empty() || !table.key.empty();
  std::vector<std::string> names;
  for (const std::string& name : table.header) names.push_back(json_string(name) + ": ");
  const std::string label_name = json_string(table.label_header.empty() ? "label" : table.label_header) + ": ";
  const std::string note_name = json_string(table.note_header) + ": ";
  const std::string key = json_string(table.key.empty() ? "values" : table.key) + ": [";
  std::visit(
      [&](const auto& values) {
        for (std::size_t r = 0; r < table.rows; ++r) {
          bool first = true;
          const auto separate = [&] {
            if (!std::exchange(first, false)) out.append(std::string_view(", "));
          };
          const auto add_label = [&] {
            separate();
            out.append(label_name);
            out.append(json_string(table.labels[r]));
          };
          out.push_back(object ? '{' : '[');
          for (const Table::Kept& column : table.kept) {
            separate();
            out.append(json_string(column.name));
            out.append(std::string_view(": "));
            out.append(column.words[r] ? json_string(column.cells[r]) : column.cells[r]);
          }
          if (object && !named) {
            if (labelled) add_label();
            separate();
            out.append(key);
            first = true;
          }
          for (std::size_t c = 0; c <= table.cols; ++c) {
            if (named && labelled && c == std::min(*table.label_column, table.cols)) add_label();
            if (c == table.cols) break;
            separate();
            if (named) out.append(names[c]);
            append_json_number(out, values[r * table.cols + c]);
          }
          if (object && !named) out.push_back(']');
          if (noted) {
            first = false;
            separate();
            out.append(note_name);
            out.append(json_string(table.notes[r]));
          }
          out.append(std::string_view(object ? "}\n" : "]\n"));
        }
      },
      table.values);
  return {out.data(), out.size()};
}

Writer create_jsonl(Output& output, const Table&, bool) {
  return {.append = [&output](std::string_view encoded) { output.write(encoded); }};
}

}  // namespace files

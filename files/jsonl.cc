// JSON Lines: a row of scores in each line, by simdjson. A line is
//   [2, 1.5, -1]                          an array of numbers, or
//   {"id": "a17", "scores": [2, 1.5]}     an object with an array, the array to read (--key where there are several), or
//   {"cat": 2, "dog": 1.5, "name": "x"}   an object of numbers, whose keys are the names of the columns.
// The label of a row is the field that --labels names, or the first string of the object. Strings and numbers beside an array
// are kept. --key a.b is the array "b" of the object "a". null is a missing number; NaN, Infinity, "nan", "inf" and "-inf" are
// read, and the last three are written, because JSON has no such numbers. Lines of blanks are skipped.

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

// The line with NaN and Infinity, which Python writes, in quotes.
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

// The form of all lines, which the first line shows.
struct Layout {
  Form form = Form::array;
  std::string key;                   // of the array
  bool literal = false;              // the key is one name, though it has dots
  std::optional<std::size_t> width;  // numbers in a row, once the first line is read
  std::vector<std::size_t> nested;   // axes between line and row: Table::nested
  std::vector<std::string> header;
  std::unordered_map<std::string, std::size_t> places;  // the place of each name of the header
  std::vector<std::string> ignored;                     // other fields of the first line, if columns are chosen
  std::vector<std::string> kept;                        // fields beside the array
  std::string label_key;
  std::optional<std::size_t> label_column;
};

// The names that a list such as "a,c" selects. Throws BadInput for unknown ones.
std::vector<bool> chosen_of(std::string_view list, std::string_view option, const std::vector<std::string>& names,
                            std::string_view file) {
  std::vector<bool> chosen(names.size());
  for (std::size_t at = 0; at <= list.size();) {
    const std::string_view item = list.substr(at, list.find(',', at) - at);
    at += item.size() + 1;
    const auto found = std::find(names.begin(), names.end(), item);
    if (found == names.end()) bad_input("{}: --{}: there is no field called {} with a number", file, option, in_quotes(item));
    chosen[static_cast<std::size_t>(found - names.begin())] = true;
  }
  return chosen;
}

// Reads lines one after the other.
class Lines {
 public:
  Lines(std::string_view name, std::size_t first_line, const ReadOptions& options)
      : name_(name), line_(first_line), options_(options) {}

  // The layout of a file with this first line.
  Layout layout_of(std::string_view line) {
    Layout layout;
    on_document(line, [&](json::document document) {
      layout = {};
      layout.key = options_.key;
      if (type_of(document) == json::json_type::object) look_at_object(document.get_object(), layout);
    });
    if (layout.form == Form::array && !layout.key.empty())
      wrong("an array has no field that could be {}", in_quotes(layout.key));
    if (layout.form == Form::array && !options_.label.empty()) wrong("an array has no field that could be a label");
    ReadOptions others = options_;
    others.label.clear();
    if (layout.form != Form::named) refuse_columns(others, name_, "an array");
    next(line, layout);
    layout.width = layout.form == Form::named ? values.size() : shape_.back();
    if (layout.form != Form::named) layout.nested.assign(shape_.begin(), shape_.end() - 1);
    return layout;
  }

  // Reads a line. simdjson may read bytes behind it.
  void next(std::string_view line, const Layout& layout) {
    const std::size_t numbers_before = values.size(), labels_before = labels.size();
    kept.resize(layout.kept.size());
    const std::size_t kept_before = kept.empty() ? 0 : kept[0].cells.size();
    on_document(line, [&](json::document document) {
      values.resize(numbers_before);
      labels.resize(labels_before);
      for (Table::Kept& column : kept) {
        column.cells.resize(kept_before);
        column.words.resize(kept_before);
        column.cells.emplace_back("null");  // a field that a later line lacks
        column.words.push_back(false);
      }
      nulls_.clear();
      begin_ = numbers_before;
      read_row(std::move(document), layout);
    });
    ++line_;
    // Each row of a line has the line's label and kept fields.
    const std::size_t rows = rows_of_line(layout.nested);
    for (std::size_t r = 1; r < rows; ++r) {
      if (layout.label_column) labels.push_back(labels.back());
      for (Table::Kept& column : kept) {
        column.cells.push_back(column.cells.back());
        column.words.push_back(column.words.back());
      }
    }
    for (const std::size_t at : nulls_) {
      const std::size_t row = rows_ + (rows > 1 ? at / *layout.width : 0);
      if (missing.empty() || missing.back() != row) missing.push_back(row);
    }
    rows_ += rows;
  }

  void skip() { ++line_; }

  std::vector<double> values;
  std::vector<std::string> labels;
  std::vector<Table::Kept> kept;
  std::vector<std::size_t> missing;  // rows that lack a number

 private:
  // Calls f(the line as JSON). If that fails, calls it once more with NaN and Infinity in quotes.
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
    if (error.error() == simdjson::TRAILING_CONTENT) wrong("there is text behind the row");
    if (error.error() == simdjson::INCOMPLETE_ARRAY_OR_OBJECT) wrong("the line is cut short, or there is text behind the row");
    wrong("this is not a line of JSON: {}", error.what());
  }

  // Throw a message that names the line, or the line and the cell.
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
      wrong("the line is an {}, and the first one is not", is_array ? "array" : "object");
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
    std::vector<std::string> arrays, names, words, plains;
    std::optional<std::size_t> label;
    std::size_t cell = 0;
    for (json::field field : object) {
      ++cell;
      std::string name(std::string_view(field.unescaped_key()));
      json::value value = field.value();
      const json::json_type type = value.type();
      double number = 0;
      const bool word = type == json::json_type::string && !read_special(std::string_view(value.get_string()), number);
      if (options_.label.empty() ? word && !label : name == options_.label) {
        if (type == json::json_type::array || type == json::json_type::object) {
          wrong("--labels: {} is neither a string nor a number", in_quotes(name));
        }
        if (label) wrong("{} is there twice", in_quotes(name));
        label = cell - 1;
        layout.label_key = name;
        continue;
      }
      if (label && name == layout.label_key) wrong("{} is there twice", in_quotes(name));
      if (type == json::json_type::array) arrays.push_back(name);
      if (word) words.push_back(name);
      const bool plain = type != json::json_type::array && type != json::json_type::object;
      if (plain && std::find(plains.begin(), plains.end(), name) != plains.end()) wrong("{} is there twice", in_quotes(name));
      if (plain) plains.push_back(name);
      names.push_back(name);
    }
    if (!options_.label.empty() && !label) wrong("--labels: there is no field called {}", in_quotes(options_.label));
    if (!arrays.empty() || !layout.key.empty()) {
      layout.form = Form::keyed;
      if (layout.key.empty() && arrays.size() > 1) {
        wrong("there are several arrays: {}, {}{}; choose one with --key", in_quotes(arrays[0]), in_quotes(arrays[1]),
              arrays.size() > 2 ? ", ..." : "");
      }
      if (layout.key.empty()) layout.key = arrays[0];  // which may be called ""
      if (label) layout.label_column = 0;
      layout.literal = std::find(names.begin(), names.end(), layout.key) != names.end();
      std::erase(plains, layout.key);
      layout.kept = std::move(plains);
      return;
    }
    choose_columns(words, names, layout);
    if (layout.header.empty()) wrong("there are no numbers");
    layout.form = Form::named;
    layout.label_column = label;
    for (std::size_t c = 0; c < layout.header.size(); ++c) {
      if (!layout.places.emplace(layout.header[c], c).second) wrong("{} is there twice", in_quotes(layout.header[c]));
    }
  }

  static bool taken_for_rows(const std::string& name, const Layout& layout) {
    return names_rows(name) && std::find(layout.header.begin(), layout.header.end(), name) != layout.header.end();
  }

  // Finds the fields with scores if they are not in an array: the chosen ones, or all.
  void choose_columns(const std::vector<std::string>& words, const std::vector<std::string>& names, Layout& layout) const {
    std::vector<bool> taken(names.size(), true), left_out(names.size());
    if (!options_.columns.empty()) taken = chosen_of(options_.columns, "columns", names, name_);
    if (!options_.exclude.empty()) left_out = chosen_of(options_.exclude, "exclude", names, name_);
    std::vector<bool> kept_beside(names.size());
    if (!options_.keep.empty()) kept_beside = chosen_of(options_.keep, "keep", names, name_);
    for (std::size_t c = 0; c < names.size(); ++c) {
      (kept_beside[c] ? layout.kept : taken[c] && !left_out[c] ? layout.header : layout.ignored).push_back(names[c]);
    }
    for (const std::string& name : names) {
      if (options_.columns.empty() && taken_for_rows(name, layout)) {
        wrong("{} looks like a name for rows; --labels {} takes it as the label, --exclude {} leaves it out, --columns chooses",
              in_quotes(name), name, name);
      }
    }
    for (const std::string& word : words) {
      if (std::find(layout.header.begin(), layout.header.end(), word) == layout.header.end()) continue;
      wrong("{} is neither a number nor the label, which is {}; --columns chooses fields, --key chooses an array",
            in_quotes(word), in_quotes(layout.label_key));
    }
  }

  void read_array(json::array array, const Layout& layout) {
    shape_.clear();
    depth_.reset();
    std::size_t cell = 0;
    read_axis(array, 0, cell);
    if (!layout.width) return;
    const std::size_t count = shape_.back();
    if (shape_.size() == 1 && layout.nested.empty()) {
      if (count == layout.width) return;
      wrong("the line has {} number{}, and the first one has {}", count, count == 1 ? "" : "s", *layout.width);
    }
    std::vector<std::size_t> first = layout.nested;
    first.push_back(*layout.width);
    if (shape_ == first) return;
    wrong("the array has shape ({}), and that of the first line has ({})", fmt::join(shape_, ", "), fmt::join(first, ", "));
  }

  // Reads the numbers of an array and of the arrays in it, which must have equal lengths as in NumPy.
  void read_axis(json::array array, std::size_t axis, std::size_t& cell) {
    std::size_t count = 0;
    for (json::value value : array) {
      ++count;
      if (value.type() == json::json_type::array) {
        read_axis(value.get_array(), axis + 1, cell);
      } else {
        if (depth_.value_or(axis) != axis) wrong_cell(cell + 1, "numbers stand beside arrays");
        depth_ = axis;
        values.push_back(number_of(value, ++cell));
      }
    }
    constexpr std::size_t kUnknown = static_cast<std::size_t>(-1);
    if (shape_.size() <= axis) shape_.resize(axis + 1, kUnknown);
    if (depth_.value_or(axis) < axis) wrong_cell(cell + 1, "numbers stand beside arrays");
    if (shape_[axis] != kUnknown && shape_[axis] != count) {
      wrong_cell(cell, "the array has rows of {} and of {}", shape_[axis], count);
    }
    shape_[axis] = count;
  }

  void read_keyed(json::object object, const Layout& layout) {
    bool found = false, labelled = false;
    // "a.b" is the field of this name or, if the first line has none, "b" of "a".
    const std::size_t dot = layout.literal ? layout.key.npos : layout.key.find('.');
    const std::string_view outer = dot == layout.key.npos ? std::string_view() : std::string_view(layout.key).substr(0, dot);
    for (json::field field : object) {
      const std::string_view name = field.unescaped_key();
      if (name == layout.key && (layout.literal || dot == layout.key.npos)) {
        take_array(field.value(), layout, found);
      } else if (layout.label_column && name == layout.label_key) {
        if (std::exchange(labelled, true)) wrong("{} is there twice", in_quotes(name));
        read_label(field.value(), layout);
      } else if (dot != layout.key.npos && name == outer) {
        json::value value = field.value();
        if (value.type() == json::json_type::object) {
          read_nested(value.get_object(), std::string_view(layout.key).substr(dot + 1), layout, found);
        }
      } else {
        keep(name, field.value(), layout);
      }
    }
    if (!found) wrong("{} is missing", in_quotes(layout.key));
    if (layout.label_column && !labelled) wrong("{} is missing", in_quotes(layout.label_key));
  }

  // Stores a kept field beside the row, and returns whether the field is kept.
  bool keep(std::string_view name, json::value value, const Layout& layout) {
    const auto place = std::find(layout.kept.begin(), layout.kept.end(), name);
    if (place == layout.kept.end()) return false;
    Table::Kept& column = kept[static_cast<std::size_t>(place - layout.kept.begin())];
    const json::json_type type = value.type();
    if (type == json::json_type::string) {
      column.cells.back() = std::string(std::string_view(value.get_string()));
      column.words.back() = true;
    } else if (type == json::json_type::number) {
      column.cells.back() = token_of(value);
    } else if (type == json::json_type::boolean) {
      column.cells.back() = value.get_bool() ? "true" : "false";
    }
    return true;
  }

  // The array at `path`, "b" or "b.c", of an object.
  void read_nested(json::object object, std::string_view path, const Layout& layout, bool& found) {
    const std::size_t dot = path.find('.');
    for (json::field field : object) {
      const std::string_view name = field.unescaped_key();
      if (name == path) {
        take_array(field.value(), layout, found);
      } else if (dot != path.npos && name == path.substr(0, dot)) {
        json::value value = field.value();
        if (value.type() == json::json_type::object) read_nested(value.get_object(), path.substr(dot + 1), layout, found);
      }
    }
  }

  void take_array(json::value value, const Layout& layout, bool& found) {
    if (std::exchange(found, true)) wrong("{} is there twice", in_quotes(layout.key));
    if (value.type() != json::json_type::array) wrong("{} is not an array of numbers", in_quotes(layout.key));
    read_array(value.get_array(), layout);
  }

  // The text of a number.
  std::string token_of(json::value value) const {
    std::string_view token = value.raw_json_token();
    token = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
    if (!is_json_number(token)) wrong("{} is not a number", in_quotes(token));
    return std::string(token);
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
      if (layout.label_column && name == layout.label_key) {
        if (std::exchange(labelled, true)) wrong("{} is there twice", in_quotes(name));
        read_label(field.value(), layout);
        continue;
      }
      // The order is nearly always that of the first line.
      std::size_t place = count;
      if (place >= width || layout.header[place] != name) {
        const auto known = layout.places.find(std::string(name));
        if (known == layout.places.end()) {
          if (std::find(layout.ignored.begin(), layout.ignored.end(), name) != layout.ignored.end()) continue;
          if (keep(name, field.value(), layout)) continue;
          wrong("{} is not in the first line", in_quotes(name));
        }
        place = known->second;
      }
      if (seen_[place]) wrong("{} is there twice", in_quotes(name));
      seen_[place] = true;
      values[before + place] = number_of(field.value(), cell);
      ++count;
    }
    if (count < width) {
      const auto absent = static_cast<std::size_t>(std::find(seen_.begin(), seen_.end(), false) - seen_.begin());
      wrong("{} is missing", in_quotes(layout.header[absent]));
    }
    if (layout.label_column && !labelled) wrong("{} is missing", in_quotes(layout.label_key));
  }

  void read_label(json::value value, const Layout& layout) {
    const json::json_type type = value.type();
    if (type == json::json_type::number && !options_.label.empty()) {
      labels.push_back(token_of(value));
      return;
    }
    if (type != json::json_type::string) {
      wrong("{} is a string in the first line, but not here", in_quotes(layout.label_key));
    }
    labels.emplace_back(std::string_view(value.get_string()));
  }

  // Reads the words for numbers that JSON cannot write.
  static bool read_special(std::string_view text, double& number) {
    return read_number(text, number) == Reading::number && !std::isfinite(number);
  }

  double number_of(json::value value, std::size_t cell) {
    double number = 0;
    switch (value.type()) {
      case json::json_type::number:
        if (value.get_double().get(number) == simdjson::SUCCESS) return number;
        {
          // simdjson refuses a number that is too large, and a word that is no number.
          std::string_view token = value.raw_json_token();
          token = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
          const Reading reading = read_number(token, number);
          if (reading == Reading::number) return number;  // such as -Infinity
          wrong_cell(cell, "{} is {}", in_quotes(token),
                     reading == Reading::too_large ? "too large for float64" : "not a number");
        }
      case json::json_type::null:
        if (!value.is_null()) wrong_cell(cell, "this is not a number");
        if (options_.missing == Missing::error) wrong_cell(cell, "null is not a number{}", kOnMissing);
        nulls_.push_back(values.size() - begin_);
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
  const ReadOptions& options_;
  json::parser parser_;
  std::vector<bool> seen_;
  std::size_t rows_ = 0;
  std::vector<std::size_t> nulls_;  // for each null of the line, how many numbers come before it
  std::size_t begin_ = 0;           // where the line's numbers begin
  std::vector<std::size_t> shape_;  // shape of the line's array
  std::optional<std::size_t> depth_;
};

bool is_blank_line(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

class JsonlReader {
 public:
  JsonlReader(std::shared_ptr<Input> input, const ReadOptions& options)
      : text_(std::move(input), " \t\r", first_line, true), options_(options) {
    if (options_.label.empty() && options.labels > 0) {
      bad_input("{}: the labels of a .jsonl are a field; name it with --labels NAME", text_.name());
    }
    if (options.header || options.delimiter != 0) refuse_columns(options, text_.name(), "a .jsonl file");
  }

  bool take(Piece& piece, std::size_t numbers) {
    if (!text_.next(piece, text_size(numbers))) return false;
    if (!layout_) {
      std::size_t at = 0, line = piece.line;
      for (; is_blank_line(line_at(piece.text, at)); ++line) at += line_at(piece.text, at).size() + 1;
      layout_ = Lines(text_.name(), line, options_).layout_of(line_at(piece.text, at));
    }
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
    if (layout_->form == Form::keyed) table.key = layout_->key;
    return true;
  }

  void parse(Piece& piece) const {
    Lines lines(text_.name(), piece.line, options_);
    lines.values = reused<double>(piece.table);
    lines.values.clear();
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::string_view line = line_at(piece.text, at);
      if (is_blank_line(line)) {
        lines.skip();
      } else {
        lines.next(line, *layout_);
      }
      at += line.size() + 1;
    }
    piece.table.values = std::move(lines.values);
    piece.table.labels = std::move(lines.labels);
    for (std::size_t c = 0; c < lines.kept.size(); ++c) lines.kept[c].name = layout_->kept[c];
    piece.table.kept = std::move(lines.kept);
    piece.table.missing = std::move(lines.missing);
    if (!piece.mistake.empty()) throw BadInput(piece.mistake);
  }

 private:
  // The line that begins at `at`. simdjson may read bytes behind it.
  static std::string_view line_at(std::string& text, std::size_t at) {
    text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    return std::string_view(text).substr(at, text.find('\n', at) - at);
  }

  RowText text_;
  ReadOptions options_;
  std::optional<Layout> layout_;
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

}  // namespace

std::string_view encode_jsonl(const Table& table, fmt::memory_buffer& out) {
  out.clear();
  const bool named = !table.header.empty(), labelled = table.label_column.has_value(), noted = !table.note_header.empty();
  const bool object = named || labelled || noted || !table.kept.empty() || !table.key.empty();
  std::vector<std::string> names;
  for (const std::string& name : table.header) names.push_back(json_string(name) + ": ");
  const std::string label_name = json_string(table.label_header.empty() ? "label" : table.label_header) + ": ";
  const std::string note_name = json_string(table.note_header) + ": ";
  // One number for each row is written as a number, not as an array of one.
  const bool scalar = !named && table.cols == 1 && table.shape.size() == 1 + table.nested.size() && !table.result.empty();
  const bool nested = !table.nested.empty() && !named && !noted;
  const std::size_t together = nested ? rows_of_line(table.nested) : 1;
  const std::string& called = table.result.empty() ? table.key : table.result;
  const std::string key = json_string(called.empty() ? "values" : called) + ": ";
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
            out.append(json_string(table.labels[r]));
          };
          if (object) out.push_back('{');
          for (const Table::Kept& column : table.kept) {
            // The result replaces a field of the same name.
            if (column.name == called ||
                std::find(table.header.begin(), table.header.end(), column.name) != table.header.end()) {
              continue;
            }
            if (column.words[r]) add_label();  // readers take the first string of an object for the label
            separate();
            out.append(json_string(column.name));
            out.append(std::string_view(": "));
            out.append(column.words[r] ? json_string(column.cells[r]) : column.cells[r]);
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
            append_json_number(out, values[r * table.cols + c], table.digits);
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

// The lines of a .jsonl as rows of numbers, by simdjson.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "columns.h"
#include "format.h"
#include "text.h"

namespace files::jsonl {

namespace json = simdjson::ondemand;

// Arrays and objects inside each other that are read, as many as simdjson's other parser allows: each takes space on the stack.
inline constexpr std::size_t kMaxDepth = simdjson::DEFAULT_MAX_DEPTH;

// Whether a number may have 20 significant digits or more, for which simdjson 3.0.1 gives wrong values below 1.
inline bool has_many_digits(std::string_view number) {
  constexpr std::size_t kFew = 19;
  if (number.size() <= kFew) return false;
  number.remove_prefix(std::min(number.find_first_not_of("-0."), number.size()));
  return number.size() > kFew && number.substr(0, number.find_first_of("eE")).size() > kFew;
}

// The line with NaN and Infinity, which Python writes, in quotes.
inline std::string with_quoted_numbers(std::string_view line) {
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
  std::vector<std::size_t> cells;                       // Places::cells of named numbers
  std::unordered_map<std::string, std::size_t> places;  // the place of each name of the header
  std::vector<std::string> ignored;                     // other fields of the first line, if columns are chosen
  std::vector<std::string> kept;                        // fields beside the array
  std::string label_key;
  std::optional<std::size_t> label_column;
  bool number_labels = false;  // the first line's label is a number
};

// The names that a list such as "a,c" selects. Throws BadInput for unknown ones.
inline std::vector<bool> chosen_of(std::string_view list, std::string_view option, const std::vector<std::string>& names,
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

  // The names of this line's fields, if it is an object.
  std::vector<std::string> names_of(std::string_view line) {
    std::vector<std::string> names;
    on_document(line, [&](json::document document) {
      names.clear();
      if (type_of(document) != json::json_type::object) return;
      for (json::field field : document.get_object()) names.emplace_back(std::string_view(field.unescaped_key()));
    });
    return names;
  }

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
    others.na.clear();
    if (layout.form == Form::keyed && std::find(layout.kept.begin(), layout.kept.end(), options_.keep) != layout.kept.end()) {
      others.keep.clear();  // all fields beside the array are kept
    }
    if (layout.form != Form::named) refuse_columns(others, name_, "an array");
    next(line, layout);
    layout.width = layout.form == Form::named ? values.size() : shape_.back();
    if (layout.form == Form::named) layout.cells = cells_;
    if (layout.form != Form::named) layout.nested.assign(shape_.begin(), shape_.end() - 1);
    return layout;
  }

  // How the numbers of a line of this layout are written, in the order of the header.
  void look(std::string_view line, const Layout& layout, WholeColumns& columns) {
    std::vector<Written> written;
    std::vector<double> numbers;
    on_document(line, [&](json::document document) {
      written.assign(layout.header.size(), Written::other);
      numbers.assign(layout.header.size(), 0);
      if (type_of(document) != json::json_type::object) return;
      for (json::field field : document.get_object()) {
        const auto place = layout.places.find(std::string(std::string_view(field.unescaped_key())));
        json::value value = field.value();
        if (place == layout.places.end()) continue;
        written[place->second] = written_in(value, numbers[place->second]);
      }
    });
    columns.add(written, numbers);
  }

  // Refuses to take labels and names of rows for scores.
  void refuse(const Doubt& doubt, const std::vector<std::string>& header) const {
    if (doubt.columns.empty()) return;
    std::vector<std::string> names;
    for (const std::size_t c : doubt.columns) names.push_back(header[c]);
    const bool one = names.size() == 1;
    const std::string which = in_words(names), what = one ? "looks like a name for rows" : "look like names for rows";
    if (!options_.advised.columns) wrong("{} {}; leave {} out of the file", which, what, one ? "it" : "them");
    if (names[0].empty()) wrong("{} {}; --columns chooses", which, what);
    wrong("{} {}{}; --labels {} takes {} as the label, --exclude {} leaves {} out, --columns chooses", which, what,
          doubt.reason, names[0], one ? "it" : "the first", fmt::join(names, ","), one ? "it" : "them");
  }

  // Reads a line. simdjson may read bytes beyond its end.
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
    if (layout.form == Form::named && cells_ != layout.cells) {
      std::vector<Place>& in_line = places.others[line_];
      for (const std::size_t cell : cells_) in_line.push_back({line_, cell});
    }
    // Each row of a line has the line's label and kept fields.
    const std::size_t rows = rows_of_line(layout.nested);
    for (std::size_t r = 0; r < rows; ++r) places.rows.push_back({line_, r * layout.width.value_or(0)});
    ++line_;
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

  // Adds the rows of a line that is not wanted. Its mistakes do not matter.
  void pass(const Layout& layout) {
    const std::size_t rows = rows_of_line(layout.nested);
    values.resize(values.size() + rows * layout.width.value_or(0));
    if (layout.label_column) labels.resize(labels.size() + rows);
    kept.resize(layout.kept.size());
    for (Table::Kept& column : kept) {
      column.cells.resize(column.cells.size() + rows);
      column.words.resize(column.words.size() + rows);
    }
    places.rows.resize(places.rows.size() + rows, {line_, 0});
    rows_ += rows;
    ++line_;
  }

  void skip() { ++line_; }

  std::vector<double> values;
  std::vector<std::string> labels;
  std::vector<Table::Kept> kept;
  std::vector<std::size_t> missing;  // rows that lack a number
  Places places;

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
    if (error.error() == simdjson::TRAILING_CONTENT) wrong("there is text after the row");
    if (error.error() == simdjson::INCOMPLETE_ARRAY_OR_OBJECT) wrong("the line is cut short, or there is text after the row");
    wrong("this is not a line of JSON: {}", error.what());
  }

  // Throw a message that names the line, or the line and the cell.
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> what, Args&&... args) const {
    bad_input("{}:{}: {}", name_, line_, formatted(what, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void wrong_cell(std::size_t cell, fmt::format_string<Args...> what, Args&&... args) const {
    bad_input("{}:{}:{}: {}", name_, line_, cell, formatted(what, std::forward<Args>(args)...));
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
    if (line.current_location().get(rest) == simdjson::SUCCESS) wrong("there is text after the row");
  }

  // What the first line says about all.
  void look_at_object(json::object object, Layout& layout) const {
    std::vector<std::string> arrays, names, words, plains;
    std::vector<Written> written;
    std::string outer, inner;  // the first field that is an object with an array in it, and the key of that array
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
        if (label) wrong("{} appears twice", in_quotes(name));
        label = cell - 1;
        layout.label_key = name;
        layout.number_labels = type == json::json_type::number;
        continue;
      }
      if (label && name == layout.label_key) wrong("{} appears twice", in_quotes(name));
      if (type == json::json_type::array && std::find(arrays.begin(), arrays.end(), name) != arrays.end()) {
        wrong("{} appears twice", in_quotes(name));
      }
      if (type == json::json_type::array && name == options_.keep) {
        plains.push_back(name);
        continue;
      }
      if (type == json::json_type::array) arrays.push_back(name);
      if (type == json::json_type::object && inner.empty()) {
        inner = array_in(value.get_object(), name);
        if (!inner.empty()) outer = name;
      }
      if (word) words.push_back(name);
      const bool plain = type != json::json_type::array && type != json::json_type::object;
      if (plain && std::find(plains.begin(), plains.end(), name) != plains.end()) wrong("{} appears twice", in_quotes(name));
      if (plain) plains.push_back(name);
      names.push_back(name);
      written.push_back(type == json::json_type::number ? written_in(value, number) : Written::other);
    }
    if (!options_.label.empty() && !label) wrong("--labels: there is no field called {}", in_quotes(options_.label));
    if (!arrays.empty() || !layout.key.empty()) {
      layout.form = Form::keyed;
      if (layout.key.empty() && arrays.size() > 1) {
        wrong("there are several arrays: {}, {}{}{}", in_quotes(arrays[0]), in_quotes(arrays[1]),
              arrays.size() > 2 ? ", ..." : "", options_.advised.key ? "; choose one with --key" : "");
      }
      if (layout.key.empty() && options_.scores && names_no_scores(arrays[0])) {
        wrong("the array {} looks like labels or identifiers{}", in_quotes(arrays[0]),
              options_.advised.key ? "; --key " + arrays[0] + " takes it as scores" : "");
      }
      if (layout.key.empty()) layout.key = arrays[0];  // which may be called ""
      if (label) layout.label_column = 0;
      layout.literal = std::find(names.begin(), names.end(), layout.key) != names.end();
      std::erase(plains, layout.key);
      layout.kept = std::move(plains);
      return;
    }
    choose_columns(words, names, written, layout);
    if (std::find(layout.header.begin(), layout.header.end(), outer) != layout.header.end() && !inner.empty()) {
      wrong("{} is an object with an array in it{}", in_quotes(outer),
            options_.advised.key ? "; choose that with --key " + inner : "");
    }
    if (layout.header.empty()) wrong("there are no numbers");
    layout.form = Form::named;
    layout.label_column = label;
    for (std::size_t c = 0; c < layout.header.size(); ++c) {
      if (!layout.places.emplace(layout.header[c], c).second) wrong("{} appears twice", in_quotes(layout.header[c]));
    }
  }

  void check_depth(std::size_t depth) const {
    if (depth > kMaxDepth)
      wrong("the line is nested too deeply: at most {} arrays and objects inside each other are read", kMaxDepth);
  }

  // The key of the first array in an object that has this key, or nothing.
  std::string array_in(json::object object, const std::string& key, std::size_t depth = 2) const {
    check_depth(depth);
    for (json::field field : object) {
      const std::string name = key + "." + std::string(std::string_view(field.unescaped_key()));
      json::value value = field.value();
      const json::json_type type = value.type();
      if (type == json::json_type::array) return name;
      if (type != json::json_type::object) continue;
      if (std::string found = array_in(value.get_object(), name, depth + 1); !found.empty()) return found;
    }
    return "";
  }

  // How a value is written, if it is a number. It is not read by this.
  static Written written_in(json::value& value, double& number) {
    if (value.type() != json::json_type::number) return Written::other;
    std::string_view token = value.raw_json_token();
    token = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
    return read_number(token, number) == Reading::number ? written_as(token, number) : Written::other;
  }

  // Finds the fields with scores if they are not in an array: the chosen ones, or all.
  void choose_columns(const std::vector<std::string>& words, const std::vector<std::string>& names,
                      const std::vector<Written>& written, Layout& layout) const {
    std::vector<bool> taken(names.size(), true), left_out(names.size());
    if (!options_.columns.empty()) taken = chosen_of(options_.columns, "columns", names, name_);
    if (!options_.exclude.empty()) left_out = chosen_of(options_.exclude, "exclude", names, name_);
    std::vector<bool> kept_beside(names.size());
    if (!options_.keep.empty()) kept_beside = chosen_of(options_.keep, options_.keep_option, names, name_);
    std::vector<Written> of_header;
    for (std::size_t c = 0; c < names.size(); ++c) {
      if (!kept_beside[c] && taken[c] && !left_out[c]) of_header.push_back(written[c]);
      (kept_beside[c] ? layout.kept : taken[c] && !left_out[c] ? layout.header : layout.ignored).push_back(names[c]);
    }
    if (options_.columns.empty()) {
      refuse(doubt_by_names(layout.header, of_header, !options_.advised.columns), layout.header);
    }
    for (const std::string& word : words) {
      if (std::find(layout.header.begin(), layout.header.end(), word) == layout.header.end()) continue;
      wrong("{} is neither a number nor the label, which is {}{}{}", in_quotes(word), in_quotes(layout.label_key),
            options_.advised.columns ? "; --columns chooses fields" : "",
            options_.advised.columns && options_.advised.key ? ", --key chooses an array" : "");
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
    check_depth(axis + 1);
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
        if (std::exchange(labelled, true)) wrong("{} appears twice", in_quotes(name));
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
    } else if (type == json::json_type::array && name == options_.keep) {
      json::array array = value.get_array();
      column.cells.back() = std::string(std::string_view(simdjson::to_json_string(array)));
    }
    return true;
  }

  // The array at `path`, "b" or "b.c", of an object.
  void read_nested(json::object object, std::string_view path, const Layout& layout, bool& found, std::size_t depth = 2) {
    check_depth(depth);
    const std::size_t dot = path.find('.');
    for (json::field field : object) {
      const std::string_view name = field.unescaped_key();
      if (name == path) {
        take_array(field.value(), layout, found);
      } else if (dot != path.npos && name == path.substr(0, dot)) {
        json::value value = field.value();
        if (value.type() == json::json_type::object) {
          read_nested(value.get_object(), path.substr(dot + 1), layout, found, depth + 1);
        }
      }
    }
  }

  void take_array(json::value value, const Layout& layout, bool& found) {
    if (std::exchange(found, true)) wrong("{} appears twice", in_quotes(layout.key));
    if (value.type() == json::json_type::null) {
      if (!value.is_null()) wrong("{} is not an array of numbers", in_quotes(layout.key));
      const bool helps = layout.width && options_.advised.missing;  // the first line shows how many numbers a row has
      if (!layout.width || options_.missing == Missing::error) {
        wrong("{} is null, not an array of numbers{}", in_quotes(layout.key), helps ? kOnMissing : "; leave out the line");
      }
      const std::size_t rows = rows_of_line(layout.nested);
      for (std::size_t r = 0; r < rows; ++r) nulls_.push_back(r * *layout.width);
      values.resize(values.size() + rows * *layout.width, std::numeric_limits<double>::quiet_NaN());
      return;
    }
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
    cells_.resize(width + (layout.label_column ? 1 : 0));
    bool labelled = false;
    std::size_t cell = 0, count = 0;
    for (json::field field : object) {
      ++cell;
      const std::string_view name = field.unescaped_key();
      if (layout.label_column && name == layout.label_key) {
        if (std::exchange(labelled, true)) wrong("{} appears twice", in_quotes(name));
        read_label(field.value(), layout);
        cells_[width] = cell;
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
      if (seen_[place]) wrong("{} appears twice", in_quotes(name));
      seen_[place] = true;
      cells_[place] = cell;
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

  // A value that is missing, as `text` says.
  double without_number(std::size_t cell, std::string_view text) {
    if (options_.missing == Missing::error) {
      wrong_cell(cell, "{} is not a number{}", text, options_.advised.missing ? kOnMissing : "");
    }
    nulls_.push_back(values.size() - begin_);
    return std::numeric_limits<double>::quiet_NaN();
  }

  double number_of(json::value value, std::size_t cell) {
    double number = 0;
    switch (value.type()) {
      case json::json_type::number: {
        std::string_view token = value.raw_json_token();
        if (!options_.na.empty() && is_missing(token.substr(0, token.find_last_not_of(" \t\r\n") + 1), options_.na)) {
          return without_number(cell, in_quotes(token));
        }
        // simdjson reads 01 as 1, and refuses a number that is too large and a word that is not a number.
        const bool is_sure = !has_many_digits(token) && !has_leading_zero(token);
        if (is_sure && value.get_double().get(number) == simdjson::SUCCESS) return number;
        token = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
        const Reading reading = read_number(token, number);
        if (reading == Reading::number && (!std::isfinite(number) || is_json_number(token))) return number;  // or -Infinity
        wrong_cell(cell, "{} is {}", in_quotes(token),
                   reading == Reading::too_large ? "too large for float64" : "not a number");
      }
      case json::json_type::null:
        if (!value.is_null()) wrong_cell(cell, "this is not a number");
        return without_number(cell, "null");
      case json::json_type::string: {
        const std::string_view text = value.get_string();
        if (is_missing(text, options_.na)) return without_number(cell, in_quotes(text));
        if (!read_special(text, number)) wrong_cell(cell, "{} is not a number", in_quotes(text));
        return number;
      }
      case json::json_type::object:
        wrong_cell(cell, "this is an object, not a number; jq makes rows of numbers, as in jq -c '[.[].score]'");
      case json::json_type::array:
        wrong_cell(cell, "this is an array, but in the first line it was a number or null");
      default:
        wrong_cell(cell, "this is not a number");
    }
  }

  std::string_view name_;
  std::size_t line_;
  const ReadOptions& options_;
  json::parser parser_;
  std::vector<bool> seen_;
  std::vector<std::size_t> cells_;  // those of the line
  std::size_t rows_ = 0;
  std::vector<std::size_t> nulls_;  // for each null of the line, how many numbers come before it
  std::size_t begin_ = 0;           // where the line's numbers begin
  std::vector<std::size_t> shape_;  // shape of the line's array
  std::optional<std::size_t> depth_;
};

}  // namespace files::jsonl

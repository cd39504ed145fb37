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

static_assert(simdjson::SIMDJSON_PADDING <= 64, "Text promises 64 readable bytes");

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

class JsonlReader {
 public:
  JsonlReader(std::shared_ptr<Input> input, const ReadOptions& options)
      : text_(std::move(input)), wanted_key_(options.key), key_(options.key) {
    if (options.labels > 0) bad_input("{}: the labels of a .jsonl are the first string of each object", text_.name());
  }

  bool next(Table& table, std::size_t numbers) {
    table.first_row = rows_;
    table.rows = 0;
    table.labels.clear();
    auto* last = std::get_if<std::vector<double>>(&table.values);
    values_ = last ? std::move(*last) : std::vector<double>();
    values_.clear();
    while (table.rows == 0 || table.rows < numbers / std::max<std::size_t>(1, width_)) {
      std::string_view line;
      if (!next_line(line)) break;
      read_line(line, table);
      ++table.rows;
    }
    if (rows_ + table.rows == 0) bad_input("{}: the file is empty", text_.name());
    rows_ += table.rows;
    table.values = std::move(values_);
    table.cols = width_;
    table.shape = {table.rows, width_};
    table.header = header_;
    table.label_header = label_key_;
    table.label_column = label_column_;
    if (form_ == Form::kKeyed) table.key = key_;
    return table.rows > 0;
  }

 private:
  enum class Form { kUnknown, kArray, kKeyed, kNamed };

  // The next line that is not blank; blank ones are allowed at the end only.
  bool next_line(std::string_view& line) {
    std::size_t first_blank = 0;
    while (true) {
      std::string_view ahead = text_.ahead();
      if (ahead.empty()) {
        if (!text_.more()) return false;
        ahead = text_.ahead();
      }
      const std::size_t end = std::min(ahead.find('\n'), ahead.size());
      text_.skip(std::min(end + 1, ahead.size()));
      ++line_;
      line = ahead.substr(0, end);
      if (line.find_first_not_of(" \t\r") != line.npos) break;
      if (first_blank == 0) first_blank = line_;
    }
    if (first_blank != 0) bad_input("{}:{}: empty line", text_.name(), first_blank);
    return true;
  }

  void read_line(std::string_view line, Table& table) {
    const std::size_t have = values_.size();
    try {
      // Text keeps readable bytes behind the line.
      read_row(parser_.iterate(line.data(), line.size(), line.size() + simdjson::SIMDJSON_PADDING), table);
      return;
    } catch (const simdjson::simdjson_error& error) {
      const std::string changed = with_quoted_numbers(line);
      if (changed == line) not_json(error);
      values_.resize(have);
      table.labels.resize(label_column_ ? table.rows : 0);
      if (rows_ + table.rows == 0) forget_first_line();
      try {
        const simdjson::padded_string padded(changed);
        read_row(parser_.iterate(padded), table);
      } catch (const simdjson::simdjson_error& again) {
        not_json(again);
      }
    }
  }

  [[noreturn]] void not_json(const simdjson::simdjson_error& error) const {
    if (error.error() == simdjson::MEMALLOC) throw std::bad_alloc();
    bad_input("{}:{}: this is not a line of JSON: {}", text_.name(), line_, error.what());
  }

  void forget_first_line() {
    form_ = Form::kUnknown;
    key_ = wanted_key_;
    has_width_ = false;
    width_ = 0;
    header_.clear();
    places_.clear();
    label_key_.clear();
    label_column_.reset();
  }

  void read_row(json::document document, Table& table) {
    json::document& line = document;
    const json::json_type type = line.type();
    if (type != json::json_type::array && type != json::json_type::object) {
      bad_input("{}:{}: a line must be an array of numbers or an object", text_.name(), line_);
    }
    if (form_ == Form::kUnknown) {
      form_ = Form::kArray;
      if (type == json::json_type::object) look_at_object(line.get_object());
      line.rewind();
    }
    if ((form_ == Form::kArray) != (type == json::json_type::array)) {
      bad_input("{}:{}: the line is an {}, the first one is none", text_.name(), line_,
                type == json::json_type::array ? "array" : "object");
    }
    switch (form_) {
      case Form::kUnknown:
      case Form::kArray:
        read_array(line.get_array());
        break;
      case Form::kKeyed:
        read_keyed(line.get_object(), table);
        break;
      case Form::kNamed:
        read_named(line.get_object(), table);
    }
    const char* rest = nullptr;
    if (line.current_location().get(rest) == simdjson::SUCCESS)
      bad_input("{}:{}: there is text behind the row", text_.name(), line_);
  }

  // What the first line says about all.
  void look_at_object(json::object object) {
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
        label_key_ = name;
      } else {
        if (word && other_word.empty()) other_word = name;
        names.push_back(name);
      }
    }
    if (!arrays.empty() || !key_.empty()) {
      form_ = Form::kKeyed;
      if (key_.empty() && arrays.size() > 1) {
        bad_input("{}:{}: there are several arrays: {}; choose one with --key", text_.name(), line_,
                  fmt::format("{}, {}{}", in_quotes(arrays[0]), in_quotes(arrays[1]), arrays.size() > 2 ? ", ..." : ""));
      }
      if (key_.empty()) key_ = arrays[0];  // which may be called ""
      if (label) label_column_ = 0;
      return;
    }
    if (!other_word.empty()) {
      bad_input("{}:{}: {} is not a number, nor the label, which is {}; to read an array and nothing else: --key", text_.name(),
                line_, in_quotes(other_word), in_quotes(label_key_));
    }
    form_ = Form::kNamed;
    header_ = std::move(names);
    width_ = header_.size();
    label_column_ = label;
    for (std::size_t c = 0; c < header_.size(); ++c) {
      if (!places_.emplace(header_[c], c).second)
        bad_input("{}:{}: {} is there twice", text_.name(), line_, in_quotes(header_[c]));
    }
    if (header_.empty()) bad_input("{}:{}: there are no numbers", text_.name(), line_);
  }

  void read_array(json::array array) {
    const std::size_t before = values_.size();
    std::size_t cell = 0;
    for (json::value value : array) values_.push_back(number_of(value, ++cell));
    const std::size_t count = values_.size() - before;
    if (!std::exchange(has_width_, true)) width_ = count;
    if (count != width_) {
      bad_input("{}:{}: the line has {} number{}, the first one has {}", text_.name(), line_, count, count == 1 ? "" : "s",
                width_);
    }
  }

  void read_keyed(json::object object, Table& table) {
    bool found = false, labelled = false;
    for (json::field field : object) {
      const std::string_view name = field.unescaped_key();
      if (name == key_) {
        if (std::exchange(found, true)) bad_input("{}:{}: {} is there twice", text_.name(), line_, in_quotes(key_));
        json::value value = field.value();
        if (value.type() != json::json_type::array) {
          bad_input("{}:{}: {} is not an array of numbers", text_.name(), line_, in_quotes(key_));
        }
        read_array(value.get_array());
      } else if (label_column_ && name == label_key_ && !labelled) {
        read_label(field.value(), table);
        labelled = true;
      }
    }
    if (!found) bad_input("{}:{}: {} is missing", text_.name(), line_, in_quotes(key_));
    if (label_column_ && !labelled) bad_input("{}:{}: {} is missing", text_.name(), line_, in_quotes(label_key_));
  }

  void read_named(json::object object, Table& table) {
    const std::size_t before = values_.size();
    values_.resize(before + width_);
    seen_.assign(width_, false);
    bool labelled = false;
    std::size_t cell = 0, count = 0;
    for (json::field field : object) {
      ++cell;
      const std::string_view name = field.unescaped_key();
      if (label_column_ && name == label_key_ && !labelled) {
        read_label(field.value(), table);
        labelled = true;
        continue;
      }
      // Nearly always the order of the first line.
      std::size_t place = count;
      if (place >= width_ || header_[place] != name) {
        const auto known = places_.find(std::string(name));
        if (known == places_.end()) bad_input("{}:{}: {} is not in the first line", text_.name(), line_, in_quotes(name));
        place = known->second;
      }
      if (seen_[place]) bad_input("{}:{}: {} is there twice", text_.name(), line_, in_quotes(name));
      seen_[place] = true;
      values_[before + place] = number_of(field.value(), cell);
      ++count;
    }
    if (count < width_) {
      const auto missing = static_cast<std::size_t>(std::find(seen_.begin(), seen_.end(), false) - seen_.begin());
      bad_input("{}:{}: {} is missing", text_.name(), line_, in_quotes(header_[missing]));
    }
    if (label_column_ && !labelled) bad_input("{}:{}: {} is missing", text_.name(), line_, in_quotes(label_key_));
  }

  void read_label(json::value value, Table& table) {
    if (value.type() != json::json_type::string) {
      bad_input("{}:{}: {} is a string in the first line and none here", text_.name(), line_, in_quotes(label_key_));
    }
    table.labels.emplace_back(std::string_view(value.get_string()));
  }

  // The words that stand for numbers which JSON cannot write.
  static bool read_special(std::string_view text, double& number) {
    return read_number(text, number) == Reading::kNumber && !std::isfinite(number);
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
          if (reading == Reading::kNumber) return number;  // such as -Infinity
          bad_input("{}:{}:{}: {} is {}", text_.name(), line_, cell, in_quotes(token),
                    reading == Reading::kTooLarge ? "too large for float64" : "not a number");
        }
      case json::json_type::null:
        if (!value.is_null()) bad_input("{}:{}:{}: this is not a number", text_.name(), line_, cell);
        return std::numeric_limits<double>::quiet_NaN();
      case json::json_type::string: {
        const std::string_view text = value.get_string();
        if (!read_special(text, number)) bad_input("{}:{}:{}: {} is not a number", text_.name(), line_, cell, in_quotes(text));
        return number;
      }
      default:
        bad_input("{}:{}:{}: this is not a number", text_.name(), line_, cell);
    }
  }

  Text text_;
  std::string wanted_key_;
  std::string key_;
  json::parser parser_;
  Form form_ = Form::kUnknown;
  std::size_t line_ = 0;
  std::size_t rows_ = 0;
  std::size_t width_ = 0;
  bool has_width_ = false;  // of arrays
  std::vector<double> values_;
  std::vector<std::string> header_;
  std::unordered_map<std::string, std::size_t> places_;  // of the header
  std::vector<bool> seen_;
  std::string label_key_;
  std::optional<std::size_t> label_column_;
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
  return {.next = [reader](Table& table, std::size_t numbers) { return reader->next(table, numbers); }};
}

std::string_view encode_jsonl(const Table& table, fmt::memory_buffer& out) {
  out.clear();
  const bool named = !table.header.empty(), labelled = table.label_column.has_value(), noted = !table.note_header.empty();
  const bool object = named || labelled || noted || !table.key.empty();
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

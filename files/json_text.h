// A text of JSON documents, one after the other, with the place of each value: simdjson's values do not know where they stand.
// A stream of server-sent events is such a text too: what is not JSON in it becomes blanks.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "table.h"
#include "text.h"

namespace files {

class JsonText {
 public:
  // `name` is the file's name in messages.
  JsonText(std::string name, std::string text);

  // Calls f(document, its position) for each. Throws BadInput if the text is not JSON.
  void each_document(const std::function<void(const simdjson::dom::element&, std::size_t)>& f);

  // Whether the text is a stream of events, and how many of the streams in it end before a position ("data: [DONE]").
  bool events() const { return events_; }
  std::size_t streams_before(std::size_t at) const;

  // Calls f(value, its position) for the values of an array that begins at `at`.
  template <class F>
  void each_of(const simdjson::dom::array& array, std::size_t at, F f) const {
    ++at;
    for (const simdjson::dom::element one : array) {
      at = start(at);
      f(one, at);
      at = behind(at);
    }
  }

  // Calls f(field, the position of its value) for the fields of an object that begins at `at`.
  template <class F>
  void each_of(const simdjson::dom::object& object, std::size_t at, F f) const {
    ++at;
    for (const simdjson::dom::key_value_pair field : object) {
      at = start(behind(start(at)));
      f(field, at);
      at = behind(at);
    }
  }

  // The positions of the values of an array that begins at `at`.
  std::vector<std::size_t> positions(const simdjson::dom::array& array, std::size_t at) const;

  // The line and the column of a position. A position after the last one asked for is found faster.
  Place place_of(std::size_t at);

  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void not_json(simdjson::error_code error, std::size_t at);
  void blank_events();

  // The first position at or after `at` where a value or a key begins, and the position after the one that begins at `at`.
  std::size_t start(std::size_t at) const { return std::min(text_.find_first_not_of(" \t\r\n,:", at), text_.size()); }
  std::size_t behind(std::size_t at) const;

  std::string name_, text_;
  bool events_ = false;
  std::vector<std::size_t> ends_;  // of streams of events
  std::size_t documents_ = 0;
  Place place_ = {1, 1};  // of the position counted_
  std::size_t counted_ = 0;
};

}  // namespace files

#include "json_text.h"

#include <new>
#include <utility>

namespace files {
namespace {

namespace dom = simdjson::dom;

// The fields of an event. A line that begins with a colon is a comment.
constexpr std::string_view kFields[] = {"data:", "event:", "id:", "retry:", ":"};

bool is_event_line(std::string_view line) {
  return std::ranges::any_of(kFields, [&](std::string_view field) { return line.starts_with(field); });
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == text.npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

}  // namespace

JsonText::JsonText(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {
  const std::size_t first = std::min(text_.find_first_not_of(" \t\r\n"), text_.size());
  events_ = is_event_line(std::string_view(text_).substr(first));
  if (events_) blank_events();
}

void JsonText::blank_events() {
  std::size_t number = 1;
  for (std::size_t begin = 0, end; begin < text_.size(); begin = end + 1, ++number) {
    end = std::min(text_.find('\n', begin), text_.size());
    const std::string_view line = std::string_view(text_).substr(begin, end - begin), words = trimmed(line);
    if (words.empty()) continue;
    if (!is_event_line(words)) {
      bad_input("{}:{}: {} is no line of a stream of events, which begins with data:, event:, id:, retry: or a colon", name_,
                number, in_quotes(words));
    }
    std::size_t blanks = line.size();
    if (words.starts_with(kFields[0])) {
      const std::string_view value = trimmed(words.substr(kFields[0].size()));
      if (value == "[DONE]") {
        ends_.push_back(begin);
      } else {
        blanks = line.find(kFields[0]) + kFields[0].size();
      }
    }
    std::fill_n(text_.begin() + static_cast<std::ptrdiff_t>(begin), blanks, ' ');
  }
}

std::size_t JsonText::streams_before(std::size_t at) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(ends_, at) - ends_.begin());
}

void JsonText::each_document(const std::function<void(const dom::element&, std::size_t)>& f) {
  const simdjson::padded_string padded(text_);
  dom::parser parser;
  dom::document_stream documents;
  std::size_t at = 0;
  if (const auto error = parser.parse_many(padded, std::max<std::size_t>(padded.size(), 1 << 10)).get(documents))
    not_json(error, at);
  for (auto document : documents) {
    dom::element element;
    if (const auto error = document.get(element)) not_json(error, at);
    at = start(at);
    f(element, at);
    at = behind(at);
    ++documents_;
  }
  if (documents.truncated_bytes() > 0) {
    const Place place = place_of(start(at));
    bad_input("{}:{}:{}: reply {}, which begins here, is cut short", name_, place.line, place.cell, documents_ + 1);
  }
}

// Refuses the text from the document at or after `at` on. simdjson does not say where the mistake is: it is the first word
// that JSON does not have. If there is none, the mistake is between words, and the place is that of the document.
void JsonText::not_json(simdjson::error_code error, std::size_t at) {
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();
  const std::size_t begin = start(at);
  dom::parser parser;
  for (std::size_t next = begin, end; next < text_.size(); next = std::max(end, next + 1)) {
    end = std::min(text_[next] == '"' ? behind(next) : text_.find_first_of(" \t\r\n,:[]{}\"", next), text_.size());
    const std::string_view word = std::string_view(text_).substr(next, end - next);
    if (word.empty()) continue;
    const simdjson::error_code wrong = parser.parse(simdjson::padded_string(word)).error();
    if (wrong == simdjson::SUCCESS) continue;
    const Place place = place_of(next);
    const std::string why = word[0] == '"' ? fmt::format(": {}", simdjson::error_message(wrong)) : "";
    bad_input("{}:{}:{}: this is not JSON: {} {}{}", name_, place.line, place.cell, in_quotes(word),
              is_json_number(word) ? "is too large" : "is no value of JSON", why);
  }
  const Place place = place_of(begin);
  bad_input("{}:{}:{}: reply {}, which begins here, is not JSON: {}", name_, place.line, place.cell, documents_ + 1,
            simdjson::error_message(error));
}

std::size_t JsonText::behind(std::size_t at) const {
  std::size_t depth = 0;
  do {
    if (at >= text_.size()) return text_.size();
    const char c = text_[at];
    if (c == '"') {
      for (++at; at < text_.size() && text_[at] != '"'; ++at) at += text_[at] == '\\';
      ++at;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at;
    } else if (c == '}' || c == ']') {
      --depth;
      ++at;
    } else {
      at = std::min(text_.find_first_of(depth > 0 ? "\"{}[]" : " \t\r\n,:]}", at), text_.size());
    }
  } while (depth > 0);
  return at;
}

std::vector<std::size_t> JsonText::positions(const dom::array& array, std::size_t at) const {
  std::vector<std::size_t> all;
  each_of(array, at, [&](const dom::element&, std::size_t at_one) { all.push_back(at_one); });
  return all;
}

Place JsonText::place_of(std::size_t at) {
  if (at < counted_) {
    counted_ = 0;
    place_ = {1, 1};
  }
  for (; counted_ < std::min(at, text_.size()); ++counted_) {
    const auto c = static_cast<unsigned char>(text_[counted_]);
    if (c == '\n') {
      ++place_.line;
      place_.cell = 1;
    } else if ((c & 0xC0) != 0x80) {  // the first byte of a character
      ++place_.cell;
    }
  }
  return place_;
}

}  // namespace files

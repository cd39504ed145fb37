// Replies of language model servers with log-probabilities: OpenAI's chat, completions and responses, vLLM, llama.cpp's server.
// Each generated token is a row: its candidates, the most probable first, with the token as the label. Rows with fewer
// candidates end in -inf for absent scores. A token whose alternatives are not there, only its own probability or less, has no
// distribution: it is a missing row.
//
// The reader finds these objects anywhere in a reply:
//   {"token": "a", "top_logprobs": [{"token": "a", "logprob": -0.1}, ...]}       a list; llama.cpp has top_probs with prob too
//   {"tokens": ["a", ...], "top_logprobs": [{"a": -0.1, "b": -2.4}, ...]}        dictionaries; also {"logprob": -0.1} for a
//   number
//   {"content": "a", "probs": [{"tok_str": "a", "prob": 0.9}, ...]}              llama.cpp before 2025
// Beside "tokens", "token_logprobs" has the log-probability of each token. -9999 stands for -inf, which JSON lacks.
// A file holds one reply, several one after the other or a line each, or an array of them.

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "format.h"
#include "text.h"

namespace files {
namespace {

namespace dom = simdjson::dom;

constexpr double kAbsent = -std::numeric_limits<double>::infinity();

// What the probabilities of servers are rounded by, at most.
constexpr double kRounding = 1e-3;

// Probabilities that sum to more than 1 by more than this are not those of one distribution.
constexpr double kMostOver = 0.05;

struct Row {
  std::string token;
  std::vector<double> logprobs;
  Place place;
};

std::optional<std::string_view> text_of(const dom::object& object, std::string_view key) {
  std::string_view text;
  if (object[key].get(text) != simdjson::SUCCESS) return std::nullopt;
  return text;
}

class Replies {
 public:
  Replies(std::string_view name, std::string_view text) : name_(name), text_(text) {
    const simdjson::padded_string padded(text);
    dom::parser parser;
    dom::document_stream documents;
    std::size_t at = 0;
    if (const auto error = parser.parse_many(padded, std::max<std::size_t>(padded.size(), 1 << 10)).get(documents))
      not_json(error, at);
    for (auto document : documents) {
      dom::element element;
      if (const auto error = document.get(element)) not_json(error, at);
      at = start(at);
      visit(element, at);
      at = behind(at);
      ++replies_;
    }
    if (documents.truncated_bytes() > 0) bad_input("{}: the JSON is cut short", name_);
  }

  std::vector<Row> rows;

 private:
  // Refuses the text from the reply at or behind `at` on. simdjson does not say where the mistake is: it is the first word that
  // JSON does not have. If there is none, the mistake is between words, and the place is that of the reply.
  [[noreturn]] void not_json(simdjson::error_code error, std::size_t at) {
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    const std::size_t begin = start(at);
    dom::parser parser;
    for (std::size_t next = begin, end; next < text_.size(); next = std::max(end, next + 1)) {
      end = std::min(text_[next] == '"' ? behind(next) : text_.find_first_of(" \t\r\n,:[]{}\"", next), text_.size());
      const std::string_view word = text_.substr(next, end - next);
      if (word.empty()) continue;
      const simdjson::error_code wrong = parser.parse(simdjson::padded_string(word)).error();
      if (wrong == simdjson::SUCCESS) continue;
      const Place place = place_of(next);
      const std::string why = word[0] == '"' ? fmt::format(": {}", simdjson::error_message(wrong)) : "";
      bad_input("{}:{}:{}: this is not JSON: {} {}{}", name_, place.line, place.cell, in_quotes(word),
                is_json_number(word) ? "is too large" : "is no value of JSON", why);
    }
    const Place place = place_of(begin);
    bad_input("{}:{}:{}: reply {}, which begins here, is not JSON: {}", name_, place.line, place.cell, replies_ + 1,
              simdjson::error_message(error));
  }

  // simdjson's values do not know where they stand in the text. So a position in the text goes along with them. It is
  // the first at or behind `at` where a value or a key begins.
  std::size_t start(std::size_t at) const { return std::min(text_.find_first_not_of(" \t\r\n,:", at), text_.size()); }

  // The position behind the value or key that begins at `at`.
  std::size_t behind(std::size_t at) const {
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

  // Calls f(value, its position) for the values of an array that begins at `at`.
  template <class F>
  void each_of(const dom::array& array, std::size_t at, F f) {
    ++at;
    for (const dom::element one : array) {
      at = start(at);
      f(one, at);
      at = behind(at);
    }
  }

  // Calls f(field, the position of its value) for the fields of an object that begins at `at`.
  template <class F>
  void each_of(const dom::object& object, std::size_t at, F f) {
    ++at;
    for (const dom::key_value_pair field : object) {
      at = start(behind(start(at)));
      f(field, at);
      at = behind(at);
    }
  }

  // The line and the column of a position, not before that of the last call.
  Place place_of(std::size_t at) {
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

  template <class... Args>
  [[noreturn]] void wrong(std::size_t at, fmt::format_string<Args...> what, Args&&... args) {
    const Place place = place_of(at);
    bad_input("{}:{}:{}: token {}: {}", name_, place.line, place.cell, rows.size() + 1,
              formatted(what, std::forward<Args>(args)...));
  }

  // The log-probability in a number or an object.
  double logprob_of(const dom::element& value, std::size_t at) {
    dom::object object;
    if (value.get(object) == simdjson::SUCCESS) return logprob_in(object, at);
    return checked(value, at);
  }

  double logprob_in(const dom::object& object, std::size_t at) {
    dom::element value;
    if (object["logprob"].get(value) == simdjson::SUCCESS) return checked(value, at);
    double number = 0;
    if (object["prob"].get(number) == simdjson::SUCCESS && number >= 0) return checked(std::log(number), at);
    wrong(at, "a candidate has no logprob");
  }

  double checked(const dom::element& value, std::size_t at) {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS) wrong(at, "the logprob {} is not a number", in_quotes(simdjson::minify(value)));
    return checked(number, at);
  }

  double checked(double logprob, std::size_t at) {
    if (logprob > kRounding) wrong(at, "{} is not a log-probability", logprob);
    return logprob <= -9999 ? kAbsent : logprob;
  }

  void add(std::string token, std::vector<double> logprobs, const Place& place) {
    double mass = 0;
    for (const double one : logprobs) mass += std::exp(one);
    if (mass > 1 + kMostOver) {
      bad_input("{}:{}:{}: token {}: the candidates have the probability {:.3g} together; is one of them given twice?", name_,
                place.line, place.cell, rows.size() + 1, mass);
    }
    std::stable_sort(logprobs.begin(), logprobs.end(), std::greater<>());
    rows.push_back({std::move(token), std::move(logprobs), place});
  }

  // Adds candidates from a list, if there is one. The drawn token may not be among the most probable ones.
  void add_list(const dom::object& object, std::size_t at, const std::optional<dom::array>& candidates = {},
                std::size_t at_candidates = 0) {
    const Place place = place_of(at);
    const std::string token(text_of(object, "token").value_or(text_of(object, "content").value_or("")));
    const bool has_own = object["logprob"].error() == simdjson::SUCCESS || object["prob"].error() == simdjson::SUCCESS;
    const double own = has_own ? logprob_in(object, at) : kAbsent;
    std::vector<double> logprobs;
    std::vector<std::pair<std::string, double>> named;  // candidates that were there; one that comes twice counts once
    bool found = false;
    const auto add_candidate = [&](const dom::element& candidate, std::size_t at_candidate) {
      const double logprob = logprob_of(candidate, at_candidate);
      dom::object fields;
      if (candidate.get(fields) == simdjson::SUCCESS) {
        const auto text = text_of(fields, "token") ? text_of(fields, "token") : text_of(fields, "tok_str");
        if (text) {
          const std::pair<std::string, double> one(*text, logprob);
          if (std::ranges::find(named, one) != named.end()) return;
          named.push_back(one);
        }
        found = found || text == token || (has_own && logprob == own);  // a token may be written in two ways
      }
      logprobs.push_back(logprob);
    };
    if (candidates) each_of(*candidates, at_candidates, add_candidate);
    if (!found && has_own) logprobs.push_back(own);
    add(token, std::move(logprobs), place);
  }

  // Adds a dictionary of candidates for each token. null stands for the first token of the prompt, which nothing precedes, or
  // for candidates that are not there.
  void add_dictionaries(const dom::object& object, const dom::array& positions, std::size_t at_positions) {
    dom::array tokens, drawn;
    const bool named = object["tokens"].get(tokens) == simdjson::SUCCESS;
    const bool known = object["token_logprobs"].get(drawn) == simdjson::SUCCESS;
    for (const auto& [has, all, key] : {std::tuple(named, tokens, "tokens"), std::tuple(known, drawn, "token_logprobs")}) {
      if (has && all.size() != positions.size()) {
        wrong(at_positions, "there are {} {} and {} candidates for them", all.size(), key, positions.size());
      }
    }
    std::size_t position = 0;
    each_of(positions, at_positions, [&](const dom::element& one, std::size_t at) {
      std::string_view token;
      if (named && tokens.at(position).get(token) != simdjson::SUCCESS) token = "";
      double own = 0;
      const bool owned = known && drawn.at(position).get(own) == simdjson::SUCCESS;
      ++position;
      if (one.is_null() && !owned) return;
      const Place place = place_of(at);
      if (owned) own = checked(own, at);
      std::vector<double> logprobs;
      dom::object candidates;
      bool found = false;
      if (one.get(candidates) == simdjson::SUCCESS) {
        each_of(candidates, at, [&](const dom::key_value_pair& candidate, std::size_t at_candidate) {
          logprobs.push_back(logprob_of(candidate.value, at_candidate));
          found = found || candidate.key == token || logprobs.back() == own;  // a token may be written in two ways
        });
      } else if (!one.is_null()) {
        wrong(at, "the candidates are not a dictionary");
      }
      if (owned && !found) logprobs.push_back(own);
      add(std::string(token), std::move(logprobs), place);
    });
  }

  // Adds the tokens of a reply that has nothing but their own probabilities.
  void add_drawn(const dom::object& object, const dom::array& drawn, std::size_t at_drawn) {
    dom::array tokens;
    const bool named = object["tokens"].get(tokens) == simdjson::SUCCESS;
    std::size_t position = 0;
    each_of(drawn, at_drawn, [&](const dom::element& one, std::size_t at) {
      std::string_view token;
      if (named && tokens.at(position).get(token) != simdjson::SUCCESS) token = "";
      ++position;
      if (!one.is_null()) add(std::string(token), {checked(one, at)}, place_of(at));
    });
  }

  void visit(const dom::element& element, std::size_t at) {
    dom::array array;
    dom::object object;
    const auto visit_each = [&](const dom::element& one, std::size_t at_one) { visit(one, at_one); };
    if (element.get(array) == simdjson::SUCCESS) return each_of(array, at, visit_each);
    if (element.get(object) != simdjson::SUCCESS) return;
    const auto place_in = [&](std::string_view key) {
      std::optional<std::size_t> at_array;
      each_of(object, at, [&](const dom::key_value_pair& field, std::size_t at_field) {
        if (field.key == key && !at_array) at_array = at_field;
      });
      return at_array.value_or(at);
    };
    for (const std::string_view key : {"top_logprobs", "top_probs", "probs"}) {
      if (object[key].get(array) != simdjson::SUCCESS) continue;
      if (object["tokens"].error() == simdjson::SUCCESS || object["token_logprobs"].error() == simdjson::SUCCESS) {
        return add_dictionaries(object, array, place_in(key));
      }
      return add_list(object, at, array, place_in(key));
    }
    if (object["token_logprobs"].get(array) == simdjson::SUCCESS) return add_drawn(object, array, place_in("token_logprobs"));
    const bool own = object["logprob"].error() == simdjson::SUCCESS || object["prob"].error() == simdjson::SUCCESS;
    if (own && text_of(object, "token")) return add_list(object, at);
    each_of(object, at, [&](const dom::key_value_pair& field, std::size_t at_field) { visit(field.value, at_field); });
  }

  std::string_view name_, text_;
  std::size_t replies_ = 0;
  Place place_ = {1, 1};  // of the position counted_
  std::size_t counted_ = 0;
};

std::string read_text(Input& input) {
  std::string text;
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + std::max(before, kPiece));
    const std::size_t got = input.read(text.data() + before, text.size() - before);
    const bool ended = before + got < text.size();
    text.resize(before + got);
    if (ended) return text;
  }
}

}  // namespace

Reader open_logprobs(std::shared_ptr<Input> input, const ReadOptions& options) {
  const std::string name = input->name();
  if (!options.key.empty()) bad_input("{}: --key is not for replies", name);
  refuse_columns(options, name, "a reply");
  std::string text = read_text(*input);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.find_first_not_of(" \t\r\n") == text.npos) bad_input("{}: the file is empty", name);
  std::vector<Row> rows = Replies(name, text).rows;
  if (rows.empty()) {
    bad_input("{}: there are no log-probabilities in the reply; ask the server for logprobs and top_logprobs", name);
  }
  const auto table = std::make_shared<Table>();
  for (const Row& row : rows) table->cols = std::max(table->cols, row.logprobs.size());
  if (table->cols == 0) bad_input("{}: no token has candidates; ask the server for top_logprobs", name);
  // What is known of the distribution of a token without alternatives is this token's probability. Unless that is 1, measures
  // of it would be certain from nothing.
  const auto is_known = [](const Row& row) {
    const auto above_zero = std::ranges::count_if(row.logprobs, [](double one) { return one > kAbsent; });
    return above_zero > 1 || (above_zero == 1 && row.logprobs[0] >= std::log1p(-kRounding));
  };
  for (std::size_t r = 0; r < rows.size() && options.missing == Missing::error; ++r) {
    if (is_known(rows[r])) continue;
    bad_input("{}:{}:{}: token {}: no alternatives are known, so its distribution is not; ask the server for top_logprobs{}",
              name, rows[r].place.line, rows[r].place.cell, r + 1, options.advised.missing ? kOnMissing : "");
  }
  if (options.missing == Missing::skip) std::erase_if(rows, [&](const Row& row) { return !is_known(row); });
  table->rows = rows.size();
  if (table->rows == 0) bad_input("{}: no alternatives of any token are known; ask the server for top_logprobs", name);
  if (table->cols > std::vector<double>().max_size() / table->rows) throw std::bad_alloc();
  std::vector<double> values(table->rows * table->cols, kAbsent);
  const auto places = std::make_shared<Places>();
  places->columns = true;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto to = values.begin() + static_cast<std::ptrdiff_t>(r * table->cols);
    if (is_known(rows[r])) {
      std::ranges::copy(rows[r].logprobs, to);
    } else {
      std::fill_n(to, table->cols, std::numeric_limits<double>::quiet_NaN());
    }
    table->labels.push_back(std::move(rows[r].token));
    places->rows.push_back(rows[r].place);
  }
  table->places = places;
  table->values = std::move(values);
  table->shape = {table->rows, table->cols};
  table->label_column = 0;
  table->quoted_words = true;  // a token may be a number
  table->label_header = "token";
  for (std::size_t c = 0; c < table->cols; ++c) table->header.push_back(fmt::format("top{}", c + 1));
  return {.counted = true, .take = [table, given = false](Piece& piece, std::size_t) mutable {
            if (std::exchange(given, true)) return false;
            piece.table = std::move(*table);
            return true;
          }};
}

}  // namespace files

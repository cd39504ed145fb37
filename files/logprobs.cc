// Replies of language model servers with log-probabilities: OpenAI's chat, completions and responses, vLLM, llama.cpp's server.
// Each generated token is a row: its candidates, the most probable first, with the token as the label. Rows with fewer
// candidates end in -inf for absent scores.
//
// The reader finds these objects anywhere in a reply:
//   {"token": "a", "top_logprobs": [{"token": "a", "logprob": -0.1}, ...]}       a list; llama.cpp has top_probs with prob too
//   {"tokens": ["a", ...], "top_logprobs": [{"a": -0.1, "b": -2.4}, ...]}        dictionaries; also {"logprob": -0.1} for a
//   number
//   {"content": "a", "probs": [{"tok_str": "a", "prob": 0.9}, ...]}              llama.cpp before 2025
// A file holds one reply, several one after the other or a line each, or an array of them.

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format.h"
#include "text.h"

namespace files {
namespace {

namespace dom = simdjson::dom;

constexpr double kAbsent = -std::numeric_limits<double>::infinity();

struct Row {
  std::string token;
  std::vector<double> logprobs;
};

std::optional<std::string_view> text_of(const dom::object& object, std::string_view key) {
  std::string_view text;
  if (object[key].get(text) != simdjson::SUCCESS) return std::nullopt;
  return text;
}

class Replies {
 public:
  Replies(std::string_view name, std::string_view text) : name_(name) {
    const simdjson::padded_string padded(text);
    dom::parser parser;
    dom::document_stream documents;
    if (const auto error = parser.parse_many(padded, std::max<std::size_t>(padded.size(), 1 << 10)).get(documents))
      not_json(error);
    for (auto document : documents) {
      dom::element element;
      if (const auto error = document.get(element)) not_json(error);
      visit(element);
      ++replies_;
    }
    if (documents.truncated_bytes() > 0) bad_input("{}: the JSON is cut short", name_);
  }

  std::vector<Row> rows;

 private:
  [[noreturn]] void not_json(simdjson::error_code error) const {
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    bad_input("{}: reply {} is not JSON: {}", name_, replies_ + 1, simdjson::error_message(error));
  }

  // The log-probability in a number or an object. null means that it is absent.
  double logprob_of(const dom::element& value) const {
    double number = 0;
    dom::object object;
    if (value.is_null()) return kAbsent;
    if (value.get(object) == simdjson::SUCCESS) return logprob_in(object);
    if (value.get(number) == simdjson::SUCCESS) return checked(number);
    no_logprob();
  }

  double logprob_in(const dom::object& object) const {
    double number = 0;
    if (object["logprob"].get(number) == simdjson::SUCCESS) return checked(number);
    if (object["prob"].get(number) == simdjson::SUCCESS && number >= 0) return checked(std::log(number));
    if (object["logprob"].error() == simdjson::SUCCESS) return kAbsent;
    no_logprob();
  }

  [[noreturn]] void no_logprob() const { bad_input("{}: token {}: a candidate has no logprob", name_, rows.size() + 1); }

  double checked(double logprob) const {
    // The float of a server may be rounded to a little more than 0.
    if (logprob > 1e-3) bad_input("{}: token {}: {} is not a log-probability", name_, rows.size() + 1, logprob);
    return logprob;
  }

  void add(std::string token, std::vector<double> logprobs) {
    std::stable_sort(logprobs.begin(), logprobs.end(), std::greater<>());
    rows.push_back({std::move(token), std::move(logprobs)});
  }

  // Adds candidates from a list. The drawn token may not be among the most probable ones.
  void add_list(const dom::object& object, const dom::array& candidates) {
    const std::string token(text_of(object, "token").value_or(text_of(object, "content").value_or("")));
    std::vector<double> logprobs;
    bool found = false;
    for (const dom::element candidate : candidates) {
      logprobs.push_back(logprob_of(candidate));
      dom::object fields;
      if (candidate.get(fields) != simdjson::SUCCESS) continue;
      found = found || text_of(fields, "token") == token || text_of(fields, "tok_str") == token;
    }
    const bool has_own = object["logprob"].error() == simdjson::SUCCESS || object["prob"].error() == simdjson::SUCCESS;
    if (!found && has_own) logprobs.push_back(logprob_in(object));
    add(token, std::move(logprobs));
  }

  // Adds a dictionary of candidates for each token. null stands for the first token of the prompt, which nothing precedes.
  void add_dictionaries(const dom::object& object, const dom::array& positions) {
    dom::array tokens;
    const bool named = object["tokens"].get(tokens) == simdjson::SUCCESS;
    std::size_t position = 0;
    for (const dom::element one : positions) {
      std::string_view token;
      if (named && tokens.at(position).get(token) != simdjson::SUCCESS) token = "";
      ++position;
      dom::object candidates;
      if (one.is_null()) continue;
      if (one.get(candidates) != simdjson::SUCCESS)
        bad_input("{}: token {}: the candidates are not a dictionary", name_, position);
      std::vector<double> logprobs;
      for (const dom::key_value_pair candidate : candidates) logprobs.push_back(logprob_of(candidate.value));
      add(std::string(token), std::move(logprobs));
    }
  }

  void visit(const dom::element& element) {
    dom::array array;
    dom::object object;
    if (element.get(array) == simdjson::SUCCESS) {
      for (const dom::element one : array) visit(one);
      return;
    }
    if (element.get(object) != simdjson::SUCCESS) return;
    for (const std::string_view key : {"top_logprobs", "top_probs", "probs"}) {
      if (object[key].get(array) != simdjson::SUCCESS) continue;
      if (object["tokens"].error() == simdjson::SUCCESS || object["token_logprobs"].error() == simdjson::SUCCESS) {
        return add_dictionaries(object, array);
      }
      return add_list(object, array);
    }
    for (const dom::key_value_pair field : object) visit(field.value);
  }

  std::string_view name_;
  std::size_t replies_ = 0;
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
  const std::string text = read_text(*input);
  if (text.find_first_not_of(" \t\r\n") == text.npos) bad_input("{}: the file is empty", name);
  std::vector<Row> rows = Replies(name, text).rows;
  if (rows.empty()) {
    bad_input("{}: there are no log-probabilities in the reply; ask the server for logprobs and top_logprobs", name);
  }
  const auto table = std::make_shared<Table>();
  table->rows = rows.size();
  for (const Row& row : rows) table->cols = std::max(table->cols, row.logprobs.size());
  if (table->cols == 0) bad_input("{}: no token has candidates; ask the server for top_logprobs", name);
  if (table->cols > std::vector<double>().max_size() / table->rows) throw std::bad_alloc();
  std::vector<double> values(table->rows * table->cols, kAbsent);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::copy(rows[r].logprobs.begin(), rows[r].logprobs.end(), values.begin() + static_cast<std::ptrdiff_t>(r * table->cols));
    table->labels.push_back(std::move(rows[r].token));
  }
  table->values = std::move(values);
  table->shape = {table->rows, table->cols};
  table->label_column = 0;
  table->label_header = "token";
  for (std::size_t c = 0; c < table->cols; ++c) table->header.push_back(fmt::format("top{}", c + 1));
  return {.counted = true, .take = [table, given = false](Piece& piece, std::size_t) mutable {
            if (std::exchange(given, true)) return false;
            piece.table = std::move(*table);
            return true;
          }};
}

}  // namespace files

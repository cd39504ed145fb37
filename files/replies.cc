// The forms of replies. The reader finds these objects anywhere in a document:
//   {"token": "a", "logprob": -0.1, "top_logprobs": [{"token": "a", "logprob": -0.1}, ...]}     OpenAI's chat and responses;
//                                                              llama.cpp has top_probs with prob too, watsonx text and
//                                                              top_tokens
//   {"tokens": ["a", ...], "token_logprobs": [...], "top_logprobs": [{"a": -0.1, "b": -2.4}, ...]}   OpenAI's completions
//   {"content": "a", "probs": [{"tok_str": "a", "prob": 0.9}, ...]}                              llama.cpp before 2025
//   {"tokens": [{"text": "a", "logprob": -0.1}, ...], "top_tokens": [[{"text": "a", "logprob": -0.1}, ...], ...]}
//                                                              text-generation-inference; "prefill" is the prompt; events of
//                                                              its streams have one "token" and its "top_tokens"
//   {"chosenCandidates": [{"token": "a", "logProbability": -0.1}, ...], "topCandidates": [{"candidates": [...]}, ...]}   Gemini
//   {"prompt_logprobs": [null, {"17": {"logprob": -0.1, "rank": 1, "decoded_token": "a"}, ...}, ...]}    vLLM, the prompt's
//                                                              token first; "logprobs" in its "outputs" is the same
// Objects in "choices", "candidates", "outputs" and "best_of_sequences" are replies of their own. A reply in parts, as streams
// have, is put together by its id and index.

#include "replies.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "json_text.h"
#include "reply_tokens.h"

namespace files {
namespace {

namespace dom = simdjson::dom;

constexpr double kAbsent = -std::numeric_limits<double>::infinity();

using Keys = std::span<const std::string_view>;

// Python's packages write Gemini's keys with underscores.
constexpr auto kNames = std::to_array<std::string_view>({"token", "text", "decoded_token", "tok_str", "content"});
constexpr auto kLogprobs = std::to_array<std::string_view>({"logprob", "logProbability", "log_probability"});
constexpr auto kLists = std::to_array<std::string_view>({"top_logprobs", "top_probs", "probs", "top_tokens"});
constexpr auto kChosen = std::to_array<std::string_view>({"chosenCandidates", "chosen_candidates"});
constexpr auto kTop = std::to_array<std::string_view>({"topCandidates", "top_candidates"});
constexpr auto kReplies = std::to_array<std::string_view>({"choices", "candidates", "outputs"});
constexpr auto kFinish = std::to_array<std::string_view>({"finish_reason", "finishReason"});
constexpr auto kResponseIds = std::to_array<std::string_view>({"responseId", "response_id"});
constexpr auto kIds = std::to_array<std::string_view>({"id", "responseId", "response_id"});

template <class T>
std::optional<T> get(const dom::object& object, std::string_view key) {
  T value;
  if (object[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

// The value of the first of these keys that has one of this type.
template <class T>
std::optional<T> get(const dom::object& object, Keys keys) {
  for (const std::string_view key : keys) {
    if (const auto value = get<T>(object, key)) return value;
  }
  return std::nullopt;
}

bool has(const dom::object& object, std::string_view key) { return object[key].error() == simdjson::SUCCESS; }
bool has(const dom::object& object, Keys keys) {
  return std::ranges::any_of(keys, [&](std::string_view key) { return has(object, key); });
}

bool is_null(const dom::object& object, std::string_view key) { return has(object, key) && object[key].is_null(); }

std::optional<std::string_view> name_in(const dom::object& object) { return get<std::string_view>(object, kNames); }

std::optional<std::string_view> string_in(const dom::element& value) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  return text;
}

bool has_logprob(const dom::object& object) { return has(object, kLogprobs) || has(object, "prob"); }

// Whether an object is one token with its log-probability.
bool is_token(const dom::object& object) {
  return (has_logprob(object) && name_in(object)) ||
         (has(object, kLists) && !has(object, "tokens") && !has(object, "token_logprobs"));
}

// Whether an array has objects like {"logprob": -0.1}, keyed by token, as vLLM writes them.
bool is_ranked(const dom::array& array) {
  for (const dom::element one : array) {
    dom::object object;
    if (one.get(object) != simdjson::SUCCESS) continue;
    for (const dom::key_value_pair field : object) {
      dom::object candidate;
      return field.value.get(candidate) == simdjson::SUCCESS && has_logprob(candidate);
    }
  }
  return false;
}

class ReplyReader {
 public:
  ReplyReader(std::string name, std::string text) : text_(std::move(name), std::move(text)), found_(text_) {
    text_.each_document([this](const dom::element& element, std::size_t at) {
      dom::array all;
      if (element.get(all) == simdjson::SUCCESS) {
        text_.each_of(all, at, [this](const dom::element& one, std::size_t at_one) { document(one, at_one); });
      } else {
        document(element, at);
      }
    });
  }

  Replies take(const std::string& key) { return found_.take(key); }

 private:
  using Scope = ReplyScope;

  template <class... Args>
  [[noreturn]] void wrong(const Scope& scope, std::size_t at, fmt::format_string<Args...> what, Args&&... args) {
    found_.wrong(scope, at, what, std::forward<Args>(args)...);
  }

  // A document of the file: a reply, a part of one, several, or one token of a reply that is given token by token.
  void document(const dom::element& element, std::size_t at) {
    dom::object object;
    Scope scope = {at};
    const bool alone = std::exchange(alone_, false);
    if (element.get(object) != simdjson::SUCCESS) return visit(element, at, scope);
    const auto type = get<std::string_view>(object, "type").value_or("");
    if (type.starts_with("response.") && !type.ends_with(".delta")) {
      // OpenAI's responses: the events at the end repeat the tokens of the deltas.
      const bool whole = type == "response.completed" || type == "response.incomplete";
      if (!whole || found_.is_open(stream_key(at))) return;
    }
    scope.key = key_of_part(object, at);
    if (scope.key.empty() && is_token(object)) {
      if (alone) scope.reply = found_.replies() - 1;
      alone_ = true;
    }
    visit(object, at, scope);
    const bool ended = get<bool>(object, "stop") == true || get<bool>(object, "done") == true ||
                       get<std::string_view>(object, "generated_text").has_value();
    if (ended) found_.close(scope.key);
    if (scope.found) return;
    const std::optional<std::string> failure = failure_in(object);
    if (failure || scope.key.empty()) found_.add_empty(at, failure);
  }

  std::string stream_key(std::size_t at) const { return fmt::format("stream {} ", text_.streams_before(at)); }

  // The key of the reply of which a document without "choices" is a part, or nothing: an event, or a line of llama.cpp ("stop")
  // or Ollama ("done").
  std::string key_of_part(const dom::object& object, std::size_t at) const {
    const std::optional<bool> stop = get<bool>(object, "stop"), done = get<bool>(object, "done");
    if (text_.events()) {
      const auto index = stop ? get<std::uint64_t>(object, "index") : std::nullopt;
      return stream_key(at) + (index ? fmt::format("{}", *index) : "");
    }
    const std::string lines = "lines";
    const bool part = stop == false || done == false || ((stop || done) && found_.is_open(lines));
    return part ? lines : "";
  }

  static std::optional<std::string> failure_in(const dom::object& object) {
    if (!has(object, "error") || is_null(object, "error")) return std::nullopt;
    dom::object error;
    std::optional<std::string_view> message = get<std::string_view>(object, "error");
    if (object["error"].get(error) == simdjson::SUCCESS) message = get<std::string_view>(error, "message");
    return fmt::format("this is no reply but an error of the server{}", message ? ": " + in_quotes(*message) : "");
  }

  // The replies in "choices" and the like. Those of streams, which may be saved as lines without "data:", go on in other
  // documents until their finish_reason.
  void visit_replies(const dom::object& holder, const dom::array& choices, std::size_t at, Scope& scope) {
    const auto id = get<std::string_view>(holder, kIds);
    const auto object = get<std::string_view>(holder, "object").value_or("");
    std::size_t number = 0;
    scope.found = true;
    text_.each_of(choices, at, [&](const dom::element& choice, std::size_t at_choice) {
      Scope of_choice = {at_choice};
      dom::object fields;
      if (choice.get(fields) != simdjson::SUCCESS) return;
      const std::uint64_t index = get<std::uint64_t>(fields, "index").value_or(number++);
      const bool finished = get<std::string_view>(fields, kFinish).has_value();
      const std::string key = fmt::format("{}{} {}", text_.events() ? stream_key(at_choice) : "", id.value_or(""), index);
      const bool begins = text_.events() || object.ends_with(".chunk") || is_null(fields, "finish_reason") ||
                          (get<std::string_view>(holder, kResponseIds) && !finished);
      if (begins || (object != "chat.completion" && found_.is_open(key))) of_choice.key = key;
      found_.number_of(of_choice);
      visit(fields, at_choice, of_choice);
      if (finished && !text_.events()) found_.close(key);
    });
  }

  // The log-probability in a number or an object.
  double logprob_of(Scope& scope, const dom::element& value, std::size_t at) {
    dom::object object;
    if (value.get(object) == simdjson::SUCCESS) return logprob_in(scope, object, at);
    return checked(scope, value, at);
  }

  double logprob_in(Scope& scope, const dom::object& object, std::size_t at) {
    for (const std::string_view key : kLogprobs) {
      dom::element value;
      if (object[key].get(value) == simdjson::SUCCESS) return checked(scope, value, at);
    }
    const auto number = get<double>(object, "prob");
    if (number && *number >= 0) return checked(scope, std::log(*number), at);
    wrong(scope, at, "a candidate has no logprob");
  }

  double checked(Scope& scope, const dom::element& value, std::size_t at) {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS) {
      wrong(scope, at, "the logprob {} is not a number", in_quotes(simdjson::minify(value)));
    }
    return checked(scope, number, at);
  }

  double checked(Scope& scope, double logprob, std::size_t at) {
    if (logprob > kReplyRounding) wrong(scope, at, "{} is not a log-probability", logprob);
    return logprob <= -9999 ? kAbsent : logprob;
  }

  // Adds one token, with candidates from a list, if there is one. The drawn token may not be among the most probable ones.
  void add_token(Scope& scope, const dom::object& object, std::size_t at, const std::optional<dom::array>& candidates = {},
                 std::size_t at_candidates = 0) {
    FoundToken token;
    if (const auto text = name_in(object)) token.text = std::string(*text);
    if (has_logprob(object)) token.logprob = logprob_in(scope, object, at);
    std::vector<std::string> written;
    const auto add_candidate = [&](const dom::element& candidate, std::size_t at_candidate) {
      ReplyToken::Candidate one = {"", logprob_of(scope, candidate, at_candidate)};
      dom::object fields;
      const bool named = candidate.get(fields) == simdjson::SUCCESS && name_in(fields);
      if (named) one.text = std::string(*name_in(fields));
      if (named) {
        // Parts of a character are all written as U+FFFD; their bytes or numbers tell them apart.
        std::string whole = fmt::format("{} {}", one.logprob, one.text);
        for (const std::string_view key : {"bytes", "id", "token_id"}) {
          dom::element value;
          if (fields[key].get(value) == simdjson::SUCCESS) whole += fmt::format(" {} {}", key, simdjson::minify(value));
        }
        if (std::ranges::find(written, whole) != written.end()) return;  // it appears twice
        written.push_back(std::move(whole));
      }
      token.candidates.push_back(std::move(one));
    };
    if (candidates) text_.each_of(*candidates, at_candidates, add_candidate);
    // vLLM writes the drawn token before the others, in place of the last of them if it is none of them.
    const std::vector<ReplyToken::Candidate>& all = token.candidates;
    token.with_drawn = !all.empty() && all[0].text == token.text &&
                       std::ranges::all_of(all, [&](const auto& one) { return one.logprob >= all[0].logprob; });
    found_.add(scope, at, std::move(token));
  }

  // The elements of an array that has one for each of `count` others, which are called `what`.
  std::vector<dom::element> all_of(Scope& scope, const dom::object& object, std::string_view key, std::size_t count,
                                   std::size_t at, std::string_view what) {
    const auto array = get<dom::array>(object, key);
    if (!array) return {};
    std::vector<dom::element> all;
    for (const dom::element one : *array) all.push_back(one);
    if (all.size() != count) wrong(scope, at, "there are {} {} and {} {}", all.size(), key, count, what);
    return all;
  }

  // Adds a dictionary of candidates for each token. null stands for the first token of the prompt, which nothing precedes, or
  // for candidates that are not there.
  void add_dictionaries(Scope& scope, const dom::object& object, const dom::array& dictionaries, std::size_t at_dictionaries) {
    const auto beside = [&](std::string_view key) {
      return all_of(scope, object, key, dictionaries.size(), at_dictionaries, "candidates for them");
    };
    const std::vector<dom::element> names = beside("tokens"), logprobs = beside("token_logprobs");
    const std::size_t first = found_.tokens(scope).size();
    std::vector<bool> is_last;
    std::size_t at_token = 0;
    text_.each_of(dictionaries, at_dictionaries, [&](const dom::element& one, std::size_t at) {
      FoundToken token = {.with_drawn = true};
      if (!names.empty()) token.text = std::string(string_in(names[at_token]).value_or(""));
      const bool owned = !logprobs.empty() && logprobs[at_token].is_number();
      if (owned) token.logprob = checked(scope, logprobs[at_token], at);
      ++at_token;
      dom::object candidates;
      if (one.is_null()) {
        if (!owned) return void(found_.next_position(scope));
      } else if (one.get(candidates) != simdjson::SUCCESS) {
        wrong(scope, at, "the candidates are not a dictionary");
      } else {
        text_.each_of(candidates, at, [&](const dom::key_value_pair& candidate, std::size_t at_candidate) {
          token.candidates.push_back({std::string(candidate.key), logprob_of(scope, candidate.value, at_candidate)});
          dom::object fields;
          if (candidate.key == token.text && candidate.value.get(fields) == simdjson::SUCCESS) {
            token.rank = get<std::uint64_t>(fields, "rank").value_or(0);
          }
        });
      }
      is_last.push_back(found_.add(scope, at, std::move(token)));
    });
    // The drawn token is in the dictionary, beside the most probable ones if it is none of them. So where it is not the last,
    // there are as many as were asked for.
    std::size_t most = 0;
    const std::span<ReplyToken> added = std::span(found_.tokens(scope)).subspan(first);
    for (std::size_t i = 0; i < added.size(); ++i) {
      if (!is_last[i] && added[i].rank > 0) most = std::max(most, added[i].candidates.size());
    }
    for (std::size_t i = 0; i < added.size(); ++i) {
      if (is_last[i] && added[i].rank == 0 && added[i].candidates.size() <= most) added[i].rank = added[i].candidates.size();
    }
  }

  // Adds the tokens of a reply that has nothing but their own probabilities.
  void add_drawn(Scope& scope, const dom::object& object, const dom::array& logprobs, std::size_t at_logprobs) {
    const std::vector<dom::element> names = all_of(scope, object, "tokens", logprobs.size(), at_logprobs, "logprobs of them");
    std::size_t at_token = 0;
    text_.each_of(logprobs, at_logprobs, [&](const dom::element& one, std::size_t at) {
      FoundToken token;
      if (!names.empty()) token.text = std::string(string_in(names[at_token]).value_or(""));
      ++at_token;
      if (one.is_null()) return void(found_.next_position(scope));
      token.logprob = checked(scope, one, at);
      found_.add(scope, at, std::move(token));
    });
  }

  // Adds tokens that are objects, each with a list of candidates in `lists`, or in the field `inside` of its elements.
  void add_tokens(Scope& scope, const dom::array& tokens, std::size_t at_tokens, const std::optional<dom::array>& lists,
                  std::size_t at_lists, std::string_view inside = "") {
    std::vector<std::optional<dom::array>> candidates(tokens.size());
    std::vector<std::size_t> places(tokens.size(), 0);
    if (lists && lists->size() > 0) {
      if (lists->size() != tokens.size()) {
        wrong(scope, at_lists, "there are {} tokens and {} lists of candidates for them", tokens.size(), lists->size());
      }
      std::size_t token = 0;
      text_.each_of(*lists, at_lists, [&](const dom::element& one, std::size_t at) {
        dom::object fields;
        dom::array list;
        places[token] = at;
        if (!inside.empty() && one.get(fields) == simdjson::SUCCESS) {
          candidates[token] = get<dom::array>(fields, inside);
          places[token] = place_in(fields, inside, at);
        } else if (one.get(list) == simdjson::SUCCESS) {
          candidates[token] = list;
        }
        ++token;
      });
    }
    std::size_t token = 0;
    text_.each_of(tokens, at_tokens, [&](const dom::element& one, std::size_t at) {
      const std::size_t i = token++;
      dom::object fields;
      const bool is_known = one.get(fields) == simdjson::SUCCESS;
      // Nothing precedes the first token of a prompt.
      if (scope.of_prompt && (one.is_null() || (is_known && is_null(fields, "logprob"))))
        return void(found_.next_position(scope));
      if (!is_known) wrong(scope, at, "it is not an object");
      add_token(scope, fields, at, candidates[i], places[i]);
    });
  }

  // Adds a dictionary from the tokens' numbers to {"logprob": -0.1, "rank": 3, "decoded_token": "a"} for each token, the drawn
  // one first.
  void add_ranked(Scope& scope, const dom::array& dictionaries, std::size_t at_dictionaries) {
    text_.each_of(dictionaries, at_dictionaries, [&](const dom::element& one, std::size_t at) {
      if (one.is_null()) return void(found_.next_position(scope));
      dom::object candidates;
      if (one.get(candidates) != simdjson::SUCCESS) wrong(scope, at, "the candidates are not a dictionary");
      FoundToken token = {.with_drawn = true};
      text_.each_of(candidates, at, [&](const dom::key_value_pair& candidate, std::size_t at_candidate) {
        dom::object fields;
        if (candidate.value.get(fields) != simdjson::SUCCESS) wrong(scope, at_candidate, "a candidate has no logprob");
        const auto name = name_in(fields);
        const std::string text = name ? std::string(*name) : fmt::format("token_id:{}", candidate.key);
        token.candidates.push_back({text, logprob_in(scope, fields, at_candidate)});
        if (token.candidates.size() > 1) return;
        token.text = text;
        token.logprob = token.candidates[0].logprob;
        token.rank = get<std::uint64_t>(fields, "rank").value_or(0);
      });
      found_.add(scope, at, std::move(token));
    });
  }

  // The position of the value of a key in an object that begins at `at`.
  std::size_t place_in(const dom::object& object, std::string_view key, std::size_t at) const {
    std::optional<std::size_t> found;
    text_.each_of(object, at, [&](const dom::key_value_pair& field, std::size_t at_field) {
      if (field.key == key && !found) found = at_field;
    });
    return found.value_or(at);
  }

  void visit(const dom::element& element, std::size_t at, Scope& scope) {
    dom::array array;
    dom::object object;
    if (element.get(array) == simdjson::SUCCESS) {
      text_.each_of(array, at, [&](const dom::element& one, std::size_t at_one) { visit(one, at_one, scope); });
    } else if (element.get(object) == simdjson::SUCCESS) {
      visit(object, at, scope);
    }
  }

  void visit(const dom::object& object, std::size_t at, Scope& scope) {
    for (const std::string_view key : {"prompt_logprobs", "prefill"}) {
      const auto array = get<dom::array>(object, key);
      if (!array) continue;
      scope.of_prompt = true;
      if (is_ranked(*array)) {
        add_ranked(scope, *array, place_in(object, key, at));
      } else {
        add_tokens(scope, *array, place_in(object, key, at), std::nullopt, 0);
      }
      scope.of_prompt = false;
    }
    if (add_known(object, at, scope)) return;
    text_.each_of(object, at, [&](const dom::key_value_pair& field, std::size_t at_field) {
      dom::array array;
      const bool is_array = field.value.get(array) == simdjson::SUCCESS;
      if (field.key == "prompt_logprobs" || field.key == "prefill") return;
      if (field.key == "output_token_logprobs") {
        wrong(scope, at_field,
              "output_token_logprobs is a form of SGLang's that is not read; its /v1/completions has top_logprobs");
      }
      if (is_array && std::ranges::find(kReplies, field.key) != kReplies.end()) {
        visit_replies(object, array, at_field, scope);
      } else if (is_array && field.key == "logprobs" && is_ranked(array)) {
        add_ranked(scope, array, at_field);
      } else {
        visit(field.value, at_field, scope);
      }
    });
  }

  // Adds the tokens of an object that has one of the forms, and returns whether it has.
  bool add_known(const dom::object& object, std::size_t at, Scope& scope) {
    const auto list = [&](Keys keys) {
      for (const std::string_view key : keys) {
        if (const auto array = get<dom::array>(object, key)) return std::tuple(array, place_in(object, key, at), key);
      }
      return std::tuple(std::optional<dom::array>(), at, std::string_view());
    };
    if (const auto [chosen, at_chosen, key] = list(kChosen); chosen) {
      const auto [top, at_top, top_key] = list(kTop);
      add_tokens(scope, *chosen, at_chosen, top, at_top, "candidates");
      return true;
    }
    if (const auto [top, at_top, key] = list(kTop); top) {
      wrong(scope, at_top, "{} without chosenCandidates does not say which token was drawn", key);
    }
    const auto [candidates, at_candidates, key] = list(kLists);
    if (const auto tokens = get<dom::array>(object, "tokens"); tokens && tokens->size() > 0 && is_object(*tokens->begin())) {
      add_tokens(scope, *tokens, place_in(object, "tokens", at), candidates, at_candidates);
      if (const auto others = get<dom::array>(object, "best_of_sequences")) {
        visit_replies(object, *others, place_in(object, "best_of_sequences", at), scope);
      }
      return true;
    }
    if (const auto token = get<dom::object>(object, "token"); token && has_logprob(*token)) {
      add_token(scope, *token, place_in(object, "token", at), candidates, at_candidates);
      return true;
    }
    const bool many = has(object, "tokens") || has(object, "token_logprobs");
    if (candidates && many) {
      add_dictionaries(scope, object, *candidates, at_candidates);
      return true;
    }
    if (const auto drawn = get<dom::array>(object, "token_logprobs")) {
      add_drawn(scope, object, *drawn, place_in(object, "token_logprobs", at));
      return true;
    }
    if (!candidates && !(has_logprob(object) && name_in(object))) return false;
    add_token(scope, object, at, candidates, at_candidates);
    return true;
  }

  static bool is_object(const dom::element& element) {
    dom::object object;
    return element.get(object) == simdjson::SUCCESS;
  }

  JsonText text_;
  ReplyTokens found_;
  bool alone_ = false;  // whether the last document was one token alone
};

}  // namespace

Replies replies_in(std::string name, std::string text, const std::string& key) {
  return ReplyReader(std::move(name), std::move(text)).take(key);
}

}  // namespace files

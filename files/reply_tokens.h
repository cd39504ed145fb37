// The tokens that a reader of replies finds: which reply each belongs to, and where its candidates leave it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "json_text.h"
#include "replies.h"

namespace files {

// What the tokens of an object belong to. A reply is counted when its first token is found.
struct ReplyScope {
  std::size_t at;                                      // where it begins
  std::string key = {};                                // of a reply that goes on in another document, or nothing
  std::optional<std::size_t> reply = {}, prompt = {};  // their numbers
  bool of_prompt = false;
  bool found = false;  // whether anything was
};

// What a server says of a token.
struct FoundToken {
  std::optional<std::string> text = {};
  std::optional<double> logprob = {};
  std::size_t rank = 0;  // as the server says, or 0
  std::vector<ReplyToken::Candidate> candidates = {};
  bool with_drawn = false;  // the drawn one may be among the candidates without being one of the most probable
};

class ReplyTokens {
 public:
  explicit ReplyTokens(JsonText& text) : text_(text) {}

  // Adds a token. Returns whether the drawn one is the last of its candidates.
  bool add(ReplyScope& scope, std::size_t at, FoundToken token);

  // Counts a token of the scope's reply, of which nothing may be known, and returns its position there.
  std::size_t next_position(ReplyScope& scope);

  // The number of the scope's reply, which it opens unless it goes on.
  std::size_t number_of(ReplyScope& scope);

  // Replies that may go on in another document.
  bool is_open(const std::string& key) const { return open_.contains(key); }
  void close(const std::string& key) { open_.erase(key); }

  // A reply without tokens that began at a position. `failure`: what the server said instead.
  void add_empty(std::size_t at, const std::optional<std::string>& failure = {});
  std::size_t replies() const { return parts_[0].replies.size(); }

  // The tokens added so far in the scope's part, replies or prompts.
  std::vector<ReplyToken>& tokens(const ReplyScope& scope) { return part_of(scope).tokens; }

  // Refuses the next token at its place.
  template <class... Args>
  [[noreturn]] void wrong(const ReplyScope& scope, std::size_t at, fmt::format_string<Args...> what, Args&&... args) {
    const Place place = text_.place_of(at);
    bad_input("{}:{}:{}: token {}: {}", text_.name(), place.line, place.cell, tokens(scope).size() + 1,
              formatted(what, std::forward<Args>(args)...));
  }

  // What was found: of the replies, or of the prompts (replies_in).
  Replies take(const std::string& key);

 private:
  struct Reply {
    std::size_t at;          // where it begins
    std::size_t tokens = 0;  // with those of which nothing is known
    std::string reason = "this reply has no log-probabilities";
    bool failure = false;
  };

  struct Part {
    std::vector<ReplyToken> tokens;
    std::vector<Reply> replies;
  };

  Part& part_of(const ReplyScope& scope) { return parts_[scope.of_prompt ? 1 : 0]; }

  JsonText& text_;
  Part parts_[2];                            // replies, prompts
  std::map<std::string, std::size_t> open_;  // numbers of the replies that may go on
};

}  // namespace files

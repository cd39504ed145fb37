#include "reply_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace files {
namespace {

// Probabilities that sum to more than 1 by more than this are not those of one distribution.
constexpr double kMostOver = 0.05;

}  // namespace

bool ReplyTokens::add(ReplyScope& scope, std::size_t at, FoundToken token) {
  const Place place = text_.place_of(at);
  std::vector<ReplyToken::Candidate>& all = token.candidates;
  double mass = 0;
  for (const ReplyToken::Candidate& one : all) mass += std::exp(one.logprob);
  const double left = 1 - mass;  // more than what any other token has
  // Two candidates may have one text, and a token may be written in two ways.
  const auto find = [&](const auto& is) { return std::ranges::find_if(all, is); };
  auto drawn = find([&](const auto& one) { return one.text == token.text && one.logprob == token.logprob; });
  if (drawn == all.end()) drawn = find([&](const auto& one) { return one.text == token.text; });
  if (drawn == all.end() && token.logprob && std::isfinite(*token.logprob)) {
    drawn = find([&](const auto& one) { return one.logprob == token.logprob; });
  }
  const bool listed = drawn != all.end();
  if (listed && !token.logprob) token.logprob = drawn->logprob;
  if (!listed && token.logprob) {
    mass += std::exp(*token.logprob);
    drawn = all.insert(all.end(), {token.text.value_or(""), *token.logprob});
  }
  if (mass > 1 + kMostOver) {
    wrong(scope, at, "the candidates have the probability {:.3g} together; is one of them given twice?", mass);
  }
  const auto above = std::ranges::count_if(all, [&](const auto& one) {
    return listed && (one.logprob > drawn->logprob || (one.logprob == drawn->logprob && &one < &*drawn));
  });
  std::size_t rank = listed ? static_cast<std::size_t>(above) + 1 : 0;
  const bool last = listed && rank == all.size();
  // The server's word counts, unless more candidates are before the token; otherwise another token may be, if it has room.
  if (token.rank > 0) {
    rank = std::max(token.rank, rank);
  } else if (token.with_drawn && last && std::exp(drawn->logprob) <= left) {
    rank = 0;
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &ReplyToken::Candidate::logprob);
  const std::size_t position = next_position(scope);
  tokens(scope).push_back({number_of(scope), position, token.text.value_or(""),
                           token.logprob.value_or(std::numeric_limits<double>::quiet_NaN()), rank, std::move(all), place});
  return last;
}

std::size_t ReplyTokens::next_position(ReplyScope& scope) {
  const std::size_t number = number_of(scope);
  return part_of(scope).replies[number].tokens++;
}

std::size_t ReplyTokens::number_of(ReplyScope& scope) {
  std::vector<Reply>& replies = part_of(scope).replies;
  std::optional<std::size_t>& number = scope.of_prompt ? scope.prompt : scope.reply;
  scope.found = true;
  if (!number && !scope.of_prompt && !scope.key.empty()) {
    const auto [open, is_new] = open_.try_emplace(scope.key, replies.size());
    if (!is_new) number = open->second;
  }
  if (!number) {
    number = replies.size();
    replies.push_back({scope.at});
  }
  return *number;
}

void ReplyTokens::add_empty(std::size_t at, const std::optional<std::string>& failure) {
  Reply& reply = parts_[0].replies.emplace_back(Reply{at});
  if (failure) reply.reason = *failure;
  reply.failure = failure.has_value();
}

Replies ReplyTokens::take(const std::string& key) {
  Part& reply = parts_[0];
  Part& prompt = parts_[1];
  if (key.empty() && !reply.tokens.empty() && !prompt.tokens.empty()) {
    const Place place = prompt.tokens.front().place;
    bad_input(
        "{}:{}:{}: the prompt's tokens have log-probabilities here, beside those of the reply; --key reply takes the "
        "generated "
        "tokens, --key prompt the prompt's",
        text_.name(), place.line, place.cell);
  }
  Part& part = key == "prompt" || (key.empty() && reply.tokens.empty() && !prompt.tokens.empty()) ? prompt : reply;
  Replies replies;
  std::ranges::stable_sort(part.tokens, {}, &ReplyToken::reply);
  replies.tokens = std::move(part.tokens);
  for (Reply& one : part.replies) {
    if (one.tokens == 0) replies.empty.push_back({text_.place_of(one.at), std::move(one.reason), one.failure});
  }
  return replies;
}

}  // namespace files

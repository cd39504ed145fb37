// Replies of language model servers with log-probabilities (replies.h). Each generated token is a row: its candidates, the most
// probable first, with the token as the label. Rows with fewer candidates end in -inf for absent scores. A token whose
// alternatives are not there, only its own probability or less, has no distribution: it is a missing row.
//
// A file holds one reply, several one after the other or a line each, or an array of them; or what a server streams.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format.h"
#include "replies.h"
#include "text.h"

namespace files {
namespace {

constexpr double kAbsent = -std::numeric_limits<double>::infinity();

// What is known of the distribution of a token without alternatives is this token's probability. Unless that is 1, measures of
// it would be certain from nothing.
bool is_known(const ReplyToken& token) {
  const auto& all = token.candidates;
  const auto above_zero = std::ranges::count_if(all, [](const auto& one) { return one.logprob > kAbsent; });
  return above_zero > 1 || (above_zero == 1 && all[0].logprob >= std::log1p(-kReplyRounding));
}

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
  if (!options.key.empty() && options.key != "reply" && options.key != "prompt") {
    bad_input("{}: --key of replies is reply, for the generated tokens, or prompt, for those of the prompt, got {}", name,
              in_quotes(options.key));
  }
  refuse_columns(options, name, "a reply");
  std::string text = read_text(*input);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.find_first_not_of(" \t\r\n") == text.npos) bad_input("{}: the file is empty", name);
  auto [tokens, empty] = replies_in(name, std::move(text), options.key);
  if (tokens.empty()) {
    const auto failure = std::ranges::find_if(empty, &Replies::Empty::failure);
    if (failure != empty.end()) bad_input("{}:{}:{}: {}", name, failure->place.line, failure->place.cell, failure->reason);
    if (options.key == "prompt") {
      bad_input("{}: there are no log-probabilities of the prompt; ask the server for prompt_logprobs", name);
    }
    bad_input("{}: there are no log-probabilities in the reply; ask the server for logprobs and top_logprobs", name);
  }
  if (!empty.empty() && options.missing != Missing::skip) {
    const Replies::Empty& one = empty.front();
    bad_input("{}:{}:{}: {}, and others have some{}", name, one.place.line, one.place.cell, one.reason,
              options.advised.missing ? " (--missing skip leaves it out)" : "");
  }
  const auto table = std::make_shared<Table>();
  for (const ReplyToken& token : tokens) table->cols = std::max(table->cols, token.candidates.size());
  if (table->cols == 0) bad_input("{}: no token has candidates; ask the server for top_logprobs", name);
  for (std::size_t r = 0; r < tokens.size() && options.missing == Missing::error; ++r) {
    if (is_known(tokens[r])) continue;
    bad_input("{}:{}:{}: token {}: no alternatives are known, so its distribution is not; ask the server for top_logprobs{}",
              name, tokens[r].place.line, tokens[r].place.cell, r + 1, options.advised.missing ? kOnMissing : "");
  }
  if (options.missing == Missing::skip) std::erase_if(tokens, [](const ReplyToken& token) { return !is_known(token); });
  table->rows = tokens.size();
  if (table->rows == 0) bad_input("{}: no alternatives of any token are known; ask the server for top_logprobs", name);
  if (table->cols > std::vector<double>().max_size() / table->rows) throw std::bad_alloc();
  std::vector<double> values(table->rows * table->cols, kAbsent);
  const auto places = std::make_shared<Places>();
  places->columns = true;
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    ReplyToken& token = tokens[r];
    const auto to = values.begin() + static_cast<std::ptrdiff_t>(r * table->cols);
    if (is_known(token)) {
      std::ranges::transform(token.candidates, to, &ReplyToken::Candidate::logprob);
    } else {
      std::fill_n(to, table->cols, std::numeric_limits<double>::quiet_NaN());
    }
    Table::Token drawn = {token.reply, token.position, token.logprob, token.rank};
    for (ReplyToken::Candidate& candidate : token.candidates) drawn.candidates.push_back(std::move(candidate.text));
    table->tokens.push_back(std::move(drawn));
    table->labels.push_back(std::move(token.text));
    places->rows.push_back(token.place);
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

// The generated tokens in replies of language models' servers, with the log-probabilities of their candidates.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "table.h"

namespace files {

// What the probabilities of servers are rounded by, at most.
inline constexpr double kReplyRounding = 1e-3;

// A token of a reply, or of its prompt.
struct ReplyToken {
  struct Candidate {
    std::string text;
    double logprob;  // -inf: the server says so, or -9999
  };

  std::size_t reply, position;  // both counted from 0; the position is that in the reply
  std::string text;
  double logprob;    // of this token, the one that was drawn; NaN: the server does not say it
  std::size_t rank;  // among all tokens, from 1; 0: not known, as it is none of the candidates that the server lists
  std::vector<Candidate> candidates;  // the most probable first; with the drawn one, if its logprob is known
  Place place;
};

struct Replies {
  // A reply without a token, and why.
  struct Empty {
    Place place;
    std::string reason;
    bool failure;  // the server said that it failed
  };

  std::vector<ReplyToken> tokens;  // of one reply after the other
  std::vector<Empty> empty;
};

// Reads JSON, or a stream of server-sent events, called `name` in messages. `key` says which tokens are wanted: those of the
// "reply", those of the "prompt", or "" for those that are there. Throws BadInput.
Replies replies_in(std::string name, std::string text, const std::string& key);

}  // namespace files

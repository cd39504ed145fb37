// Chains of steps as samplers of llama.cpp. Header only: include it beside llama.cpp's own llama.h, and link both libraries.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "isentropic/export.h"
#include "isentropic/sampling.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Steps with values in the sense of llama.cpp's own samplers: temperature 0 or less, top_p 0 or less and min_p above 1 keep
// only the largest score, the first of equal ones; top_k, min_p, top_n_sigma, epsilon and eta 0 or less, top_p and typical_p
// above 1, dry's multiplier 0, and xtc's probability 0 or less, are off.
inline std::vector<Step> steps_in_llama_values(const std::vector<Step>& steps) {
  std::vector<Step> found;
  for (const Step& one : steps) {
    const auto* temperature = std::get_if<step::Temperature>(&one);
    const auto* top_k = std::get_if<step::TopK>(&one);
    const auto* top_p = std::get_if<step::TopP>(&one);
    const auto* min_p = std::get_if<step::MinP>(&one);
    const bool greedy = (temperature && temperature->temperature <= 0) || (top_p && top_p->p <= 0) || (min_p && min_p->p > 1);
    const auto* typical_p = std::get_if<step::TypicalP>(&one);
    const auto* top_n_sigma = std::get_if<step::TopNSigma>(&one);
    const auto* epsilon = std::get_if<step::Epsilon>(&one);
    const auto* eta = std::get_if<step::Eta>(&one);
    const auto* dry = std::get_if<step::Dry>(&one);
    const auto* xtc = std::get_if<step::Xtc>(&one);
    const bool off = (top_k && top_k->k <= 0) || (top_p && top_p->p > 1) || (min_p && min_p->p <= 0) ||
                     (typical_p && typical_p->p > 1) || (top_n_sigma && top_n_sigma->n <= 0) ||
                     (epsilon && epsilon->epsilon <= 0) || (eta && eta->epsilon <= 0) || (dry && dry->multiplier == 0) ||
                     (xtc && xtc->probability <= 0);
    if (!off) found.push_back(greedy ? Step(step::TopK{1}) : one);
  }
  return found;
}

// The state of a sampler of llama.cpp. Its candidates are a row of scores by token: their order has no effect, and a draw does
// not depend on whether earlier samplers sorted or dropped candidates.
class LlamaChain {
 public:
  LlamaChain(const std::vector<Step>& steps, std::uint64_t seed, std::uint64_t stream, bool draws)
      : sampler_(steps_in_llama_values(steps), seed), stream_(stream), draws_(draws) {
    for (const Step& step : sampler_.steps()) {
      const Description& description = description_of(step);
      reads_text_ |= reads_text(description);
      adjusts_ |= std::holds_alternative<step::Mirostat>(step);
      if (description.drawn && !draws) {
        throw std::invalid_argument(std::string(description.name) + " draws: use llama_sampler_init_draw");
      }
    }
  }

  void accept(llama_token token) {
    text_.push_back(token);
    if (reads_text_) most_of_text_ = std::max<std::int64_t>(most_of_text_, token);
  }

  void apply(llama_token_data_array* candidates) {
    // Tokens of the text that earlier samplers dropped have a place too: their score is -inf.
    std::int64_t most = most_of_text_;
    for (std::size_t i = 0; i < candidates->size; ++i) most = std::max<std::int64_t>(most, candidates->data[i].id);
    const std::size_t n = static_cast<std::size_t>(most + 1);
    const auto at = [](const llama_token_data& candidate) { return static_cast<std::size_t>(candidate.id); };
    scores_.assign(n, -std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; i < candidates->size; ++i) scores_[at(candidates->data[i])] = candidates->data[i].logit;
    left_.resize(n);
    const MatrixView<const float> row(scores_.data(), 1, n);
    const MatrixView<float> left(left_.data(), 1, n);
    Texts texts;
    if (reads_text_) texts.tokens = {text_.data(), 1, text_.size()};
    if (adjusts_) texts.bounds = {&bound_, 1};
    std::int64_t drawn = -1;
    if (draws_) {
      sampler_.sample(row, MatrixView<std::int64_t>(&drawn, 1, 1), {.stream = stream_, .position = position_++}, texts, left);
      candidates->selected = -1;
    } else {
      sampler_.log_probs(row, left, texts);
    }
    if (n == 0 || std::isnan(left_[0])) return;  // no distribution: nothing is dropped or drawn

    std::size_t kept = 0;
    for (std::size_t i = 0; i < candidates->size; ++i) {
      llama_token_data candidate = candidates->data[i];
      const float found = left_[at(candidate)];
      candidate.p = draws_ ? found : std::exp(found);
      candidate.logit = std::max(draws_ ? std::log(found) : found, std::numeric_limits<float>::lowest());
      if (found == (draws_ ? 0 : -std::numeric_limits<float>::infinity()) && candidate.id != drawn) continue;
      if (candidate.id == drawn) candidates->selected = static_cast<std::int64_t>(kept);
      candidates->data[kept++] = candidate;
    }
    candidates->size = kept;
    // Steps such as penalties change the order.
    const auto is_larger = [](const llama_token_data& a, const llama_token_data& b) { return a.logit > b.logit; };
    candidates->sorted = candidates->sorted && std::is_sorted(candidates->data, candidates->data + kept, is_larger);
  }

  void reset() {
    position_ = 0;
    text_.clear();
    most_of_text_ = -1;
    bound_ = std::numeric_limits<double>::quiet_NaN();
  }

 private:
  Sampler sampler_;
  std::uint64_t stream_, position_ = 0;
  bool draws_, reads_text_ = false, adjusts_ = false;
  std::vector<std::int64_t> text_;  // the tokens accepted since the last reset
  double bound_ = std::numeric_limits<double>::quiet_NaN();
  std::int64_t most_of_text_ = -1;  // the largest of them, if a step reads them
  // What the steps leave: probabilities beside a draw, otherwise their logarithms, which are floats where those are too small.
  std::vector<float> scores_, left_;
};

inline llama_sampler* llama_sampler_of(LlamaChain* chain) {
  // Fields are set by name: later versions of the interface have more, and null pointers mean that they are not used.
  static llama_sampler_i interface = [] {
    llama_sampler_i calls = {};
    calls.name = [](const llama_sampler*) { return "isentropic"; };
    calls.apply = [](llama_sampler* self, llama_token_data_array* candidates) {
      static_cast<LlamaChain*>(self->ctx)->apply(candidates);
    };
    calls.accept = [](llama_sampler* self, llama_token token) { static_cast<LlamaChain*>(self->ctx)->accept(token); };
    calls.reset = [](llama_sampler* self) { static_cast<LlamaChain*>(self->ctx)->reset(); };
    calls.clone = [](const llama_sampler* self) {
      return llama_sampler_of(new LlamaChain(*static_cast<const LlamaChain*>(self->ctx)));
    };
    calls.free = [](llama_sampler* self) { delete static_cast<LlamaChain*>(self->ctx); };
    return calls;
  }();
  return llama_sampler_init(&interface, chain);
}

// A sampler that applies steps: it removes the tokens that the steps drop, and the logits of the others become their
// log-probabilities. A sampler that draws must come after it, such as llama_sampler_init_dist. Candidates without a
// distribution, as with a NaN, stay as they are.
//
// Throws: std::invalid_argument if a parameter is out of its range.
inline llama_sampler* llama_sampler_init_steps(const std::vector<Step>& steps) {
  return llama_sampler_of(new LlamaChain(steps, 0, 0, false));
}

// A sampler that applies steps and draws; it is the last of a chain. It selects the token that Sampler::sample draws with this
// seed and stream, at a position that counts the draws since the last reset. Without a distribution it selects none.
inline llama_sampler* llama_sampler_init_draw(const std::vector<Step>& steps, std::uint64_t seed, std::uint64_t stream = 0) {
  return llama_sampler_of(new LlamaChain(steps, seed, stream, true));
}

}  // namespace isentropic::inline ISENTROPIC_ABI

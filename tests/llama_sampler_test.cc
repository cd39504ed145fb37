// include/isentropic/llama_sampler.h without llama.cpp: candidates that other samplers have sorted or dropped. llama_sampler.cc
// tests it inside llama.cpp.

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wsign-conversion"
#include "isentropic/llama_sampler.h"
#pragma GCC diagnostic pop

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace isentropic {
namespace {

// A sampler as llama.cpp calls it, by its interface.
class Sampling {
 public:
  explicit Sampling(llama_sampler* sampler) : sampler_(sampler) {}
  ~Sampling() {
    sampler_->iface->free(sampler_);
    delete sampler_;
  }
  Sampling(const Sampling&) = delete;
  Sampling& operator=(const Sampling&) = delete;

  void accept(const std::vector<llama_token>& text) {
    for (const llama_token token : text) sampler_->iface->accept(sampler_, token);
  }
  llama_token_data_array apply(std::vector<llama_token_data>& data, bool sorted) {
    llama_token_data_array array = {data.data(), data.size(), -1, sorted};
    sampler_->iface->apply(sampler_, &array);
    return array;
  }

 private:
  llama_sampler* sampler_;
};

std::map<llama_token, float> logits(const llama_token_data_array& array) {
  std::map<llama_token, float> found;
  for (std::size_t i = 0; i < array.size; ++i) found[array.data[i].id] = array.data[i].logit;
  return found;
}

TEST(LlamaSampler, TokensOfTheTextWithoutACandidateCountForNothing) {
  const std::vector<llama_token_data> left = {{2, 3, 0}, {0, 2, 0}, {1, 1, 0}};
  const std::vector<llama_token> text = {9, 0};
  for (const bool draws : {false, true}) {
    const std::vector<Step> steps = {step::Penalties{.presence = 5, .last = -1}};
    Sampling some(draws ? llama_sampler_init_draw(steps, 1) : llama_sampler_init_steps(steps));
    some.accept(text);
    std::vector<llama_token_data> data = left;
    const llama_token_data_array array = some.apply(data, true);
    ASSERT_EQ(array.size, 3u);
    EXPECT_EQ(array.selected >= 0, draws);
    const std::map<llama_token, float> found = logits(array);
    EXPECT_NEAR(found.at(2) - found.at(1), 2, 1e-5);
    EXPECT_NEAR(found.at(2) - found.at(0), 6, 1e-5);
  }
}

// In the text 9 1 9 the 1 continues a repetition; in 9 1 8 nothing does.
TEST(LlamaSampler, SequencesHaveTheTokensWithoutACandidate) {
  const auto difference = [](const std::vector<llama_token>& text) {
    Sampling dry(llama_sampler_init_steps({step::Dry{.multiplier = 1, .base = 2, .allowed_length = 1}}));
    dry.accept(text);
    std::vector<llama_token_data> data = {{0, 1, 0}, {1, 1, 0}};
    const std::map<llama_token, float> found = logits(dry.apply(data, false));
    return found.at(0) - found.at(1);
  };
  EXPECT_NEAR(difference({9, 1, 9}), 1, 1e-6);
  EXPECT_NEAR(difference({9, 1, 8}), 0, 1e-6);
  EXPECT_NEAR(difference({8, 9, 1, 8, 9}), 2, 1e-6);
}

TEST(LlamaSampler, SortedIsTrueOnlyOfSortedCandidates) {
  Sampling penalties(llama_sampler_init_steps({step::Penalties{.presence = 5}}));
  std::vector<llama_token_data> data = {{2, 3, 0}, {0, 2, 0}, {1, 1, 0}};
  EXPECT_TRUE(penalties.apply(data, true).sorted);
  penalties.accept({2});
  data = {{2, 3, 0}, {0, 2, 0}, {1, 1, 0}};
  EXPECT_FALSE(penalties.apply(data, true).sorted);
  data = {{0, 3, 0}, {1, 2, 0}, {2, 1, 0}};
  EXPECT_FALSE(penalties.apply(data, false).sorted);
}

TEST(LlamaSampler, KeepsTheLogarithmsOfUnlikelyTokens) {
  std::vector<llama_token_data> data = {{0, 0, 0}, {1, -90, 0}, {2, -110, 0}, {3, -700, 0}};
  const std::map<llama_token, float> want = {{0, 0.0f}, {1, -90.0f}, {2, -110.0f}, {3, -700.0f}};
  EXPECT_EQ(logits(Sampling(llama_sampler_init_steps({step::TopK{40}})).apply(data, true)), want);
}

TEST(LlamaSampler, XtcThatIsOffNeedsNoDraw) {
  std::vector<llama_token_data> data = {{0, 1, 0}, {1, 1, 0}};
  Sampling off(llama_sampler_init_steps({step::Xtc{.probability = 0}}));
  EXPECT_EQ(off.apply(data, false).size, 2u);
  EXPECT_THROW(llama_sampler_init_steps({step::Xtc{.probability = 0.5}}), std::invalid_argument);
}

}  // namespace
}  // namespace isentropic

// include/isentropic/llama_sampler.h inside llama.cpp's own chains; tests/python/test_adapters.py builds and runs this where
// llama.cpp's headers and library are at hand. Prints what is wrong and returns 1.
#include "isentropic/llama_sampler.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>

using isentropic::MatrixView;
namespace step = isentropic::step;

namespace {

int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  std::printf("%s\n", what);
  ++failures;
}

struct Candidates {
  std::vector<llama_token_data> data;
  llama_token_data_array array;

  explicit Candidates(const std::vector<float>& scores) {
    for (std::size_t i = 0; i < scores.size(); ++i) data.push_back({static_cast<llama_token>(i), scores[i], 0});
    array = {data.data(), data.size(), -1, false};
  }
  Candidates(const Candidates&) = delete;
};

std::int64_t expected_draw(const std::vector<isentropic::Step>& steps, const std::vector<float>& scores,
                           isentropic::Noise noise) {
  std::int64_t index;
  isentropic::Sampler(steps, 7).sample(MatrixView<const float>(scores.data(), 1, scores.size()),
                                       MatrixView<std::int64_t>(&index, 1, 1), noise);
  return index;
}

llama_token drawn(llama_sampler* sampler, Candidates& candidates) {
  llama_sampler_apply(sampler, &candidates.array);
  const auto& array = candidates.array;
  return array.selected < 0 ? -1 : array.data[array.selected].id;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> scores(5000);
  for (float& score : scores) score = normal(random);
  const std::vector<isentropic::Step> steps = {step::TopK{40}, step::Entropy{2}};

  std::vector<float> p(scores.size());
  isentropic::Sampler(steps).probs(MatrixView<const float>(scores.data(), 1, scores.size()),
                                   MatrixView<float>(p.data(), 1, p.size()));

  // In llama.cpp's chain, before its own draw.
  llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
  llama_sampler_chain_add(chain, isentropic::llama_sampler_init_steps(steps));
  llama_sampler_chain_add(chain, llama_sampler_init_dist(3));
  expect(std::string(llama_sampler_name(llama_sampler_chain_get(chain, 0))) == "isentropic", "name");
  {
    Candidates candidates(scores);
    const llama_token token = drawn(chain, candidates);
    expect(candidates.array.size == 40, "40 candidates are left");
    expect(token >= 0 && p[static_cast<std::size_t>(token)] > 0, "llama.cpp draws one of them");
    double entropy = 0;
    for (std::size_t i = 0; i < candidates.array.size; ++i) {
      const llama_token_data& candidate = candidates.array.data[i];
      const float want = p[static_cast<std::size_t>(candidate.id)];
      expect(std::abs(candidate.p - want) < 1e-5f && std::abs(std::exp(candidate.logit) - want) < 1e-6f, "p and logit");
      entropy -= candidate.p * std::log(candidate.p);
    }
    expect(std::abs(entropy - 2) < 1e-4, "the entropy is met");
  }
  llama_sampler_free(chain);

  // llama.cpp's values for off and for only the largest.
  for (const isentropic::Step& greedy :
       {isentropic::Step(step::Temperature{0}), isentropic::Step(step::TopP{0}), isentropic::Step(step::MinP{1.5})}) {
    llama_sampler* sampler = isentropic::llama_sampler_init_steps({greedy});
    Candidates candidates(scores);
    llama_sampler_apply(sampler, &candidates.array);
    const auto largest = std::max_element(scores.begin(), scores.end()) - scores.begin();
    expect(candidates.array.size == 1 && candidates.array.data[0].id == largest, "the largest alone");
    llama_sampler_free(sampler);
  }
  for (const isentropic::Step& off :
       {isentropic::Step(step::TopK{0}), isentropic::Step(step::TopP{1.5}), isentropic::Step(step::MinP{0})}) {
    llama_sampler* sampler = isentropic::llama_sampler_init_steps({off});
    Candidates candidates(scores);
    llama_sampler_apply(sampler, &candidates.array);
    expect(candidates.array.size == scores.size(), "a step that is off");
    llama_sampler_free(sampler);
  }

  // Draws by itself: the draws of Sampler, position by position, for any order of candidates.
  llama_sampler* draw = isentropic::llama_sampler_init_draw(steps, 7, 5);
  llama_sampler* copy = nullptr;
  std::vector<llama_token> first;
  for (std::uint64_t position = 0; position < 20; ++position) {
    if (position == 10) copy = llama_sampler_clone(draw);
    Candidates candidates(scores);
    std::shuffle(candidates.data.begin(), candidates.data.end(), random);
    first.push_back(drawn(draw, candidates));
    expect(first.back() == expected_draw(steps, scores, {.stream = 5, .position = position}), "draws are the library's");
  }
  for (std::size_t position = 10; position < 20; ++position) {
    Candidates candidates(scores);
    expect(drawn(copy, candidates) == first[position], "a clone goes on from there");
  }
  llama_sampler_reset(draw);
  Candidates again(scores);
  expect(drawn(draw, again) == first[0], "reset begins again");

  // Without a distribution nothing is drawn or dropped.
  std::vector<float> broken = scores;
  broken[17] = std::nanf("");
  Candidates candidates(broken);
  expect(drawn(draw, candidates) == -1 && candidates.array.size == broken.size(), "NaN");
  llama_sampler_free(draw);
  llama_sampler_free(copy);

  bool refused = false;
  try {
    isentropic::llama_sampler_init_steps({step::TypicalP{0}});
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  expect(refused, "typical_p = 0 is refused");
  return failures > 0;
}

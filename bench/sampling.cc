// Times draws through chains of steps beside softmax of the same row, in one run; the result is the ratio to softmax.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "isentropic/isentropic.h"

namespace {

using isentropic::MatrixView;
using isentropic::Step;
namespace step = isentropic::step;

constexpr std::size_t kCols = 131072;

std::vector<float> normal_scores(double scale) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  std::vector<float> x(kCols);
  for (float& score : x) score = normal(generator);
  return x;
}

// Scores like those of a language model for its vocabulary: few large ones and a long tail. Softmax of them is about rank^-1.2.
std::vector<float> language_scores() {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.5f);
  std::vector<float> x(kCols);
  for (std::size_t i = 0; i < kCols; ++i) x[i] = normal(generator) - 1.2f * std::log(static_cast<float>(i + 1));
  std::shuffle(x.begin(), x.end(), generator);
  return x;
}

// A text of 1,000 tokens, for steps that read one.
isentropic::Texts texts_of(const isentropic::Sampler& sampler) {
  static const std::vector<std::int64_t> kText = [] {
    std::vector<std::int64_t> text(1000);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int64_t>(i * i % 701);
    return text;
  }();
  for (const Step& step : sampler.steps()) {
    if (isentropic::reads_text(isentropic::description_of(step))) return {.tokens = {kText.data(), 1, kText.size()}};
  }
  return {};
}

// A benchmark of wrong draws is worthless: checks that drawn indices have mass, and often the most.
void check(const isentropic::Sampler& sampler, const std::vector<float>& x) {
  std::vector<float> p(kCols);
  std::vector<std::int64_t> drawn(64);
  const MatrixView<const float> in(x.data(), 1, kCols);
  for (std::size_t c = 0; c < drawn.size(); ++c) {
    const isentropic::Noise noise = {.position = c};
    const MatrixView<float> left(p.data(), 1, kCols);
    sampler.sample(in, MatrixView<std::int64_t>(&drawn[c], 1, 1), noise, texts_of(sampler), left);
    const std::int64_t i = drawn[c];
    if (i >= 0 && p[static_cast<std::size_t>(i)] > 0) continue;
    std::fprintf(stderr, "drawn without mass: %ld\n", static_cast<long>(i));
    std::exit(1);
  }
}

void add(const std::string& name, const std::vector<float>& x, const std::vector<Step>& steps) {
  const isentropic::Sampler sampler(steps, 1);
  check(sampler, x);
  benchmark::RegisterBenchmark(name.c_str(), [&x, sampler](benchmark::State& state) {
    std::uint64_t position = 0;
    std::int64_t index;
    for (auto _ : state) {
      sampler.sample(MatrixView<const float>(x.data(), 1, kCols), MatrixView<std::int64_t>(&index, 1, 1),
                     {.position = position++}, texts_of(sampler));
      benchmark::DoNotOptimize(index);
    }
  });
}

void add_map(const std::string& name, const std::vector<float>& x, const isentropic::Map& map) {
  benchmark::RegisterBenchmark(name.c_str(), [&x, map](benchmark::State& state) {
    std::vector<float> p(kCols);
    for (auto _ : state) {
      isentropic::apply(map, MatrixView<const float>(x.data(), 1, kCols), MatrixView<float>(p.data(), 1, kCols));
      benchmark::DoNotOptimize(p.data());
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  isentropic::set_num_threads(1);
  const std::pair<std::string, std::vector<float>> rows[] = {
      {"language", language_scores()}, {"normal2", normal_scores(2)}, {"normal6", normal_scores(6)}};
  for (const auto& row : rows) {
    const std::vector<float>& x = row.second;
    const auto name = [&row](const std::string& of) { return of + "/" + row.first; };
    add_map(name("softmax"), x, isentropic::Softmax{});
    add(name("sample"), x, {});
    add(name("temperature,top_k50,top_p.95"), x, {step::Temperature{0.8}, step::TopK{50}, step::TopP{0.95}});
    add(name("top_k50"), x, {step::TopK{50}});
    add(name("top_p.95"), x, {step::TopP{0.95}});
    add(name("min_p.05"), x, {step::MinP{0.05}});
    add(name("typical_p.9"), x, {step::TypicalP{0.9}});
    add(name("entropy3.4"), x, {step::Entropy{3.4}});
    add_map(name("entropy_normalize3.4"), x, isentropic::EntropyNormalize{.entropy = 3.4});
    add(name("min_p.01,entropy2"), x, {step::MinP{0.01}, step::Entropy{2}});
    add(name("entropy_clip1-3"), x, {step::EntropyClip{1, 3}});
    add(name("epsilon3e-4"), x, {step::Epsilon{3e-4}});
    add(name("eta3e-4"), x, {step::Eta{3e-4}});
    add(name("top_n_sigma1"), x, {step::TopNSigma{1}});
    add(name("top_h.4"), x, {step::TopH{0.4}});
    add(name("p_less"), x, {step::PLess{}});
    add(name("xtc1,.01"), x, {step::Xtc{1, 0.01}});
    add(name("mirostat3"), x, {step::Mirostat{3}});
    add(name("penalties64"), x, {step::Penalties{1.1}});
    add(name("dry"), x, {step::Dry{}});
  }
  benchmark::Initialize(&argc, argv);
  if (argc > 1) isentropic::force_simd_target(argv[1]);
  benchmark::RunSpecifiedBenchmarks();
}

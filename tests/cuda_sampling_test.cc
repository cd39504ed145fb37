// Tests of draws on devices, emulated: they are those of the CPU, however threads share a row.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isentropic/cuda.h"
#include "isentropic/isentropic.h"
#include "tests/support/device.h"
#include "tests/support/expect_error.h"

namespace {

using namespace isentropic;
using namespace support::device;

struct Chained {
  std::string name;
  std::vector<Step> steps;
};

std::vector<Chained> chains() {
  return {{"nothing", {}},
          {"temperature", {step::Temperature{0.7}}},
          {"extreme temperature", {step::Temperature{1e-40}}},
          {"top k", {step::TopK{5}}},
          {"top k of many", {step::TopK{290}}},
          {"top p", {step::TopP{0.8}}},
          {"min p", {step::MinP{0.05}}},
          {"typical p", {step::TypicalP{0.7}}},
          {"entropy", {step::Entropy{1.2}}},
          {"entropy beyond", {step::Entropy{20}}},
          {"entropy clip", {step::EntropyClip{1, 2}}},
          {"epsilon", {step::Epsilon{0.01}}},
          {"eta", {step::Eta{0.05}}},
          {"top n sigma", {step::TopNSigma{1.2}}},
          {"top h", {step::TopH{0.5}}},
          {"p less", {step::PLess{}}},
          {"all", {step::Temperature{1.3}, step::TopK{40}, step::TypicalP{0.95}, step::TopP{0.9}, step::MinP{0.01}}},
          {"and more", {step::MinP{0.001}, step::TopK{280}, step::Entropy{2}, step::TopP{0.95}, step::Temperature{0.5}}}};
}

template <class T>
class CudaSampling : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaSampling, Types);

TYPED_TEST(CudaSampling, DrawsAndDistributionsAreTheCpus) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  compared = 0;
  std::size_t drawn = 0;
  unsigned turn = 0;
  for (const std::size_t n : {1, 40, 300, 1100}) {
    if (kIsHalf<T> && n != 40) continue;  // copies of float rows
    const Grid<T> x = scores<T>(n, static_cast<unsigned>(n));
    for (const Chained& chain : chains()) {
      ++turn;
      if (n > 1000 && turn % 3 != 0) continue;
      const Shape shape = turn % 3 == 0 ? kShapes[1 + turn / 3 % 5] : kByLength;
      const Forced forced(shape, turn % 2 == 0);
      const Memory memory(cuda::memory_for<T>(chain.steps, x.rows, n));
      const std::string what = chain.name + ", rows of " + std::to_string(n) + ", " + std::to_string(shape.blocks) + " x " +
                               std::to_string(shape.threads) + " threads";
      const Sampler sampler(chain.steps, 7);
      Grid<T> host(x.rows, n), device(x.rows, n);
      sampler.probs<T>(x, host);
      cuda::probs<T>(chain.steps, x, device, memory);
      expect_same(device.numbers, host.numbers, what);
      const Noise noise = {.seed = 7, .stream = 11, .position = 5};
      const std::size_t draws = n > 1000 ? 2 : 6;
      Grid<std::int64_t> indices(x.rows, draws), indices_device(x.rows, draws);
      sampler.sample<T>(x, indices, noise);
      cuda::sample<T>(chain.steps, x, indices_device, {noise}, memory);
      ASSERT_EQ(indices_device.numbers, indices.numbers) << what;
      drawn += x.rows * draws;
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  std::printf("%zu numbers compared, %zu draws\n", compared, drawn);
}

// Of long rows, only the blocks that can have one of the k largest scores are read again. In float64, because the order of sums
// shows in its last digits.
TEST(CudaSampling, TheLargestOfLongRowsAreTheCpus) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  constexpr std::size_t n = 3000, blocks = (n + 63) / 64;
  Grid<double> x(6, n);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < n; ++i) {
    x.row(0)[i] = normal(random);
    x.row(1)[i] = std::round(3 * normal(random));                                              // ties
    x.row(2)[i] = i % 700 == 5 ? normal(random) : -std::numeric_limits<double>::infinity();    // fewer scores than k
    x.row(3)[i] = i / 64 == 7 ? 9 + normal(random) : normal(random);                           // the largest in one block
    x.row(4)[i] = i % 150 == 3 ? 1 + std::abs(normal(random)) : i / 64 % 2 == 0 ? 1.0 : -5.0;  // ties in half of the blocks
    x.row(5)[i] = i % 64 == 9 ? 5 + normal(random) : normal(random) - 5;                       // one large score in each block
  }
  std::size_t turn = 0;
  for (const std::int64_t k :
       {std::size_t{1}, std::size_t{20}, blocks / 2, blocks / 2 + 1, blocks - 1, blocks, std::size_t{400}}) {
    for (const std::vector<Step>& steps : std::vector<std::vector<Step>>{
             {step::TopK{k}}, {step::TopK{k}, step::TopP{0.9}}, {step::MinP{0.02}}, {step::MinP{0.5}, step::TopK{k}}}) {
      const Forced forced(kShapes[1 + turn % 5], turn % 2 == 0);
      ++turn;
      const Memory memory(cuda::memory_for<double>(steps, x.rows, n));
      const Sampler sampler(steps, 7);
      Grid<double> host(x.rows, n), device(x.rows, n);
      sampler.probs<double>(x, host);
      cuda::probs<double>(steps, x, device, memory);
      expect_same(device.numbers, host.numbers, "k = " + std::to_string(k));
      Grid<std::int64_t> indices(x.rows, 3), indices_device(x.rows, 3);
      sampler.sample<double>(x, indices, {.seed = 7});
      cuda::sample<double>(steps, x, indices_device, {{.seed = 7}}, memory);
      ASSERT_EQ(indices_device.numbers, indices.numbers) << k;
    }
  }
}

// Many survivors are packed; a temperature that is no normal number's inverse then moves their scores.
TEST(CudaSampling, AnExtremeTemperatureAfterTopKKeepsTheIndices) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  constexpr std::size_t n = 3000;
  Grid<float> x(8, n);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (float& score : x.numbers) score = normal(random);
  const std::vector<Step> steps = {step::TopK{300}, step::Temperature{1e33}};
  for (const Shape& shape : {kByLength, Shape{1, 64, 1}, Shape{2, 64, 1}}) {
    const Forced forced(shape, shape.blocks == 2);
    const Memory memory(cuda::memory_for<float>(steps, x.rows, n));
    Grid<std::int64_t> indices(x.rows, 4), indices_device(x.rows, 4);
    Sampler(steps, 7).sample<float>(x, indices, {.seed = 7});
    cuda::sample<float>(steps, x, indices_device, {{.seed = 7}}, memory);
    ASSERT_EQ(indices_device.numbers, indices.numbers) << shape.threads << " threads";
  }
}

TYPED_TEST(CudaSampling, NoiseAndRelaxedDrawsAreTheCpus) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  for (const Shape& shape : {kByLength, Shape{2, 64, 1}}) {
    const Forced forced(shape, false);
    for (const std::size_t n : {1, 60, 300}) {
      const Grid<T> x = scores<T>(n, 3);
      const Memory memory(cuda::memory_for<T>(GumbelSoftmax{}, x.rows, n));
      const std::vector<std::uint64_t> streams = {9, 8, 7, 6, 5, 4, 3, 2, 1};
      const Noise noise = {.seed = 3, .position = 1, .streams = streams};
      for (const bool hard : {false, true}) {
        const GumbelSoftmax options = {.temperature = 0.7, .hard = hard};
        Grid<T> host(x.rows, n), device(x.rows, n);
        gumbel_softmax<T>(options, x, host, noise);
        cuda::gumbel_softmax<T>(options, x, device, {noise}, memory);
        expect_same(device.numbers, host.numbers, "gumbel_softmax of " + std::to_string(n));
      }
      if constexpr (!kIsHalf<T>) {
        Grid<T> host(x.rows, n), device(x.rows, n);
        gumbel_noise<T>(host, noise);
        cuda::gumbel_noise<T>(device, {noise}, memory);
        expect_same(device.numbers, host.numbers, "gumbel_noise of " + std::to_string(n));
      }
    }
  }
}

// A replayed graph reads them in this way.
TEST(CudaSampling, SeedAndPositionMayBeInDeviceMemory) {
  const Grid<float> x = scores<float>(50, 4);
  const Memory memory(cuda::memory_for<float>(Sample{}, x.rows, 50));
  Grid<std::int64_t> numbers(x.rows, 3), addresses(x.rows, 3);
  const std::uint64_t seed = 21, position = 40;
  cuda::sample<float>(Sample{}, x, numbers, {{.seed = seed, .position = position}}, memory);
  cuda::sample<float>(Sample{}, x, addresses, {{}, &seed, &position}, memory);
  EXPECT_EQ(addresses.numbers, numbers.numbers);
}

TEST(CudaSampling, EachRowMayHaveItsPosition) {
  const Grid<float> x = scores<float>(50, 4);
  const Memory memory(cuda::memory_for<float>(Sample{}, x.rows, 50));
  std::vector<std::uint64_t> positions(x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) positions[r] = 7 * r;
  Grid<std::int64_t> each(x.rows, 2), all(x.rows, 2);
  cuda::sample<float>(Sample{}, x, each, {{.seed = 21, .stream = 3}, nullptr, nullptr, positions}, memory);
  for (std::size_t r = 0; r < x.rows; ++r) {
    cuda::sample<float>(Sample{}, x, all, {{.seed = 21, .stream = 3, .position = positions[r]}}, memory);
    EXPECT_EQ(each.row(r)[0], all.row(r)[0]) << r;
    EXPECT_EQ(each.row(r)[1], all.row(r)[1]) << r;
  }
  const std::vector<std::uint64_t> few(2);
  support::expect_error("sample: positions must have one entry for each of " + std::to_string(x.rows) + " rows, got 2", [&] {
    cuda::sample<float>(Sample{}, x, all, {{}, nullptr, nullptr, few}, memory);
  });
}

// A plain draw needs the survivors' places only; each step what it sorts or searches.
TEST(CudaSampling, MemoryIsThatOfTheSteps) {
  const std::size_t rows = 256, n = 131072;
  const auto of = [&](const std::vector<Step>& steps) { return cuda::memory_for<float>(steps, rows, n); };
  const std::size_t plain = cuda::memory_for<float>(Sample{}, rows, n);
  EXPECT_LT(plain, of({step::Temperature{0.7}}));
  EXPECT_EQ(of({step::TopK{5}}), of({step::Temperature{0.7}}));
  EXPECT_LT(of({step::TopK{5}}), of({step::TopK{5}, step::TypicalP{0.8}}));
  EXPECT_LT(plain, 5 * rows * n * sizeof(float));  // for each row that is worked on at a time
}

TEST(CudaSampling, RefusesWhatTheCpuRefuses) {
  Grid<float> x(2, 8);
  Grid<std::int64_t> indices(3, 1);
  const Memory memory(cuda::memory_for<float>(Sample{}, 2, 8));
  support::expect_error("sample: indices must have a row for each of 2 rows, got 3",
                        [&] { cuda::sample<float>(Sample{}, x, indices, {}, memory); });
  const std::vector<Step> steps(17, step::TopK{3});
  Grid<std::int64_t> two(2, 1);
  support::expect_error("Sampler::sample: steps must be at most 16 on a device, got 17",
                        [&] { cuda::sample<float>(steps, x, two, {}, memory); });
}

}  // namespace

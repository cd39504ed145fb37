// Tests of the measures' kernels for devices, emulated: that they have the bits of the CPU's.

#include <algorithm>
#include <cstdio>
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

// Scores, or their softmax, without rows that the host refuses.
template <class T>
Grid<T> rows_for(Input input, bool normalize, std::size_t n, unsigned seed) {
  Grid<T> x = scores<T>(n, seed);
  if (input == Input::scores) return x;
  for (const std::size_t r : {1, 2, 3}) {
    for (std::size_t i = 0; i < n; ++i) x.row(r)[i] = x.row(8)[i];
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    std::vector<double> row(n), p(n);
    for (std::size_t i = 0; i < n; ++i) row[i] = static_cast<double>(static_cast<float>(x.row(r)[i]));
    if (r == 3 && n > 1) row[0] = -INFINITY;
    apply(Softmax{}, row, p);
    for (std::size_t i = 0; i < n; ++i) {
      const double value = (input == Input::probs ? p[i] : std::log(p[i])) * (normalize && input == Input::probs ? 3 : 1);
      x.row(r)[i] = static_cast<T>(static_cast<float>(value));
    }
  }
  return x;
}

std::string what_of(std::string_view name, Input input, bool normalize, std::size_t n, Shape shape) {
  return std::string(name) + " of " + std::string(kInputs[static_cast<std::size_t>(input)]) +
         (normalize ? ", normalized" : "") + ", rows of " + std::to_string(n) + ", " + std::to_string(shape.blocks) + " x " +
         std::to_string(shape.threads) + " threads";
}

// Sets the input, the unit and whether it divides by the sum.
template <class Family>
Family with(Family family, Input input, bool normalize, bool bits) {
  std::visit(
      [&](auto& op) {
        op.input = input, op.normalize = normalize;
        if constexpr (requires { op.base; }) {
          if (bits) op.base = 2;
        }
      },
      family);
  return family;
}

constexpr std::pair<Input, bool> kInputsOf[] = {
    {Input::scores, false}, {Input::probs, false}, {Input::probs, true}, {Input::log_probs, false}, {Input::log_probs, true}};

template <class T>
class CudaMeasures : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaMeasures, Types);

TYPED_TEST(CudaMeasures, ValuesAndGradientsHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  compared = 0;
  unsigned turn = 0;
  const Measure kMeasures[] = {Entropy{},
                               Perplexity{},
                               RenyiEntropy{.alpha = 0},
                               RenyiEntropy{.alpha = 0.5},
                               RenyiEntropy{.alpha = 1},
                               RenyiEntropy{.alpha = 1.0001},
                               RenyiEntropy{.alpha = 3},
                               RenyiEntropy{.alpha = INFINITY},
                               TsallisEntropy{.alpha = 0},
                               TsallisEntropy{.alpha = 0.999},
                               TsallisEntropy{.alpha = 2},
                               TsallisEntropy{.alpha = INFINITY}};
  for (const std::size_t n : {1, 10, 65, 300, 1100}) {
    if (kIsHalf<T> && n != 10 && n != 65) continue;  // copies of float rows
    for (const auto& [input, normalize] : kInputsOf) {
      if (kIsHalf<T> && input == Input::log_probs && !normalize) continue;  // rounded, they do not sum to 1
      const Grid<T> p = rows_for<T>(input, normalize, n, static_cast<unsigned>(n));
      for (const Measure& plain : kMeasures) {
        ++turn;
        if (turn % 2 == 0 && n > 100 && sizeof(T) == 8) continue;
        const bool gradient = turn % 3 != 0;
        const Measure op = with(plain, input, normalize, turn % 4 == 0);
        const Shape shape = turn % 5 == 0 ? kShapes[1 + turn / 5 % 5] : kByLength;
        const std::string what = what_of(description_of(op).name, input, normalize, n, shape);
        const Forced forced(shape, turn % 2 == 0);
        const Memory memory(cuda::memory_for<T>(op, p.rows, n));
        std::vector<double> host(p.rows), device(p.rows), slope_host(p.rows), slope_device(p.rows);
        Grid<T> dp_host(p.rows, n), dp_device(p.rows, n);
        std::vector<ParamGradient> asked_host, asked_device;
        if (gradient && std::visit(
                            [](const auto& one) {
                              return requires { one.alpha; };
                            },
                            op)) {
          asked_host.push_back({"alpha", slope_host}), asked_device.push_back({"alpha", slope_device});
        }
        measure<T>(op, p, host, gradient ? MatrixView<T>(dp_host) : MatrixView<T>(), {}, asked_host);
        cuda::measure<T>(op, p, device, gradient ? MatrixView<T>(dp_device) : MatrixView<T>(), memory, {}, {}, asked_device);
        expect_same(device, host, what);
        expect_same(dp_device.numbers, dp_host.numbers, what + ", gradient");
        expect_same(slope_device, slope_host, what + ", gradient in alpha");
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  std::printf("%zu numbers compared\n", compared);
}

TYPED_TEST(CudaMeasures, DivergencesAndTheirGradientsHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  compared = 0;
  unsigned turn = 0;
  const Divergence kDivergences[] = {CrossEntropy{}, KlDivergence{}, JsDivergence{}, JsDistance{}};
  for (const std::size_t n : {1, 10, 65, 300, 1100}) {
    if (kIsHalf<T> && n != 10 && n != 65) continue;
    for (const auto& [input, normalize] : kInputsOf) {
      if (kIsHalf<T> && input == Input::log_probs && !normalize) continue;  // rounded, they do not sum to 1
      Grid<T> p = rows_for<T>(input, normalize, n, static_cast<unsigned>(n));
      Grid<T> q = rows_for<T>(input, normalize, n, 40);
      for (const std::size_t r : {0, 5}) {  // the same, and nearly the same
        for (std::size_t i = 0; i < n; ++i) q.row(r)[i] = p.row(r)[i];
      }
      if (input == Input::scores) q.row(5)[n / 2] = T(static_cast<float>(q.row(5)[n / 2]) + 0.01f);
      Grid<T> one(1, n);
      for (std::size_t i = 0; i < n; ++i) one.row(0)[i] = q.row(8)[i];
      for (const Divergence& plain : kDivergences) {
        ++turn;
        const bool gradients = turn % 3 != 0, one_for_all = turn % 5 == 0;
        const Divergence op = with(plain, input, normalize, turn % 4 == 0);
        const Shape shape = turn % 3 == 0 ? kShapes[1 + turn / 3 % 5] : kByLength;
        const std::string what = what_of(description_of(op).name, input, normalize, n, shape);
        const Forced forced(shape, turn % 2 == 0);
        const Memory memory(cuda::memory_for<T>(op, p.rows, n));
        const MatrixView<const T> second = one_for_all ? MatrixView<const T>(one) : MatrixView<const T>(q);
        std::vector<double> host(p.rows), device(p.rows);
        Grid<T> dp_host(p.rows, n), dp_device(p.rows, n), dq_host(p.rows, n), dq_device(p.rows, n);
        const auto wanted = [&](Grid<T>& to) { return gradients ? MatrixView<T>(to) : MatrixView<T>(); };
        measure<T>(op, p, second, host, wanted(dp_host), wanted(dq_host));
        cuda::measure<T>(op, p, second, device, wanted(dp_device), wanted(dq_device), memory);
        expect_same(device, host, what);
        expect_same(dp_device.numbers, dp_host.numbers, what + ", gradient");
        expect_same(dq_device.numbers, dq_host.numbers, what + ", second gradient");
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  std::printf("%zu numbers compared\n", compared);
}

// Rows that the host would refuse, but only the device sees.
TEST(CudaMeasures, RowsThatAreNoDistributionsAreNaN) {
  const std::size_t n = 20;
  Grid<float> p(3, n), dp(3, n), dq(3, n);
  for (std::size_t i = 0; i < 3 * (n + 3); ++i) p.numbers[i] = 0.05f;
  p.row(1)[4] = -0.05f, p.row(1)[5] = 0.15f, p.row(2)[0] = 0.5f;
  const Memory memory(
      std::max(cuda::memory_for<float>(Measure(Entropy{}), 3, n), cuda::memory_for<float>(Divergence(KlDivergence{}), 3, n)));
  std::vector<double> value(3);
  cuda::measure<float>(Entropy{}, p, value, dp, memory);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(std::isnan(value[r]), r > 0) << r;
    EXPECT_EQ(std::isnan(dp.row(r)[7]), r > 0) << r;
  }
  cuda::measure<float>(KlDivergence{}, p, p, value, dp, dq, memory);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(std::isnan(value[r]), r > 0) << r;
    EXPECT_EQ(std::isnan(dq.row(r)[7]), r > 0) << r;
  }
}

TEST(CudaMeasures, OrdersMayHaveAValueForEachRow) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  const Grid<float> p = rows_for<float>(Input::probs, false, 40, 3);
  const std::vector<double> alpha = {0, 0.5, 1, 1.0001, 1.5, 2, 3, 10, INFINITY};
  const PerRow per_row = {"alpha", alpha};
  const Memory memory(cuda::memory_for<float>(Measure(RenyiEntropy{}), p.rows, 40));
  for (const Measure& op : {Measure(RenyiEntropy{}), Measure(TsallisEntropy{})}) {
    std::vector<double> host(p.rows), device(p.rows);
    measure<float>(op, p, host, {}, {&per_row, 1});
    cuda::measure<float>(op, p, device, {}, memory, {}, {&per_row, 1});
    expect_same(device, host, "orders");
  }
}

TEST(CudaMeasures, RefuseWhatTheCpuRefuses) {
  Grid<float> p(2, 8), narrow(2, 7);
  std::vector<double> value(2), short_value(1);
  const Memory memory(
      std::max(cuda::memory_for<float>(Measure(Entropy{}), 2, 8), cuda::memory_for<float>(Divergence(KlDivergence{}), 2, 8)));
  support::expect_error("entropy: value must have one entry for each of 2 rows, got 1",
                        [&] { cuda::measure<float>(Entropy{}, p, short_value, {}, memory); });
  support::expect_error("kl_divergence: q must have the shape of p, or one row for all, 2 x 8, got 2 x 7",
                        [&] { cuda::measure<float>(KlDivergence{}, p, narrow, value, {}, {}, memory); });
}

}  // namespace

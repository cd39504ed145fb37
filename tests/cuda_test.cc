// Tests of the kernels for devices, emulated: they have the CPU's bits, however threads share a row and in whatever order these
// run.

#include "isentropic/cuda.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "isentropic/isentropic.h"
#include "tests/support/cases.h"
#include "tests/support/device.h"
#include "tests/support/expect_error.h"

namespace {

using namespace isentropic;
using namespace support::device;

struct Named {
  std::string name;
  Map map;
};

std::vector<Named> maps() {
  return {{"softmax", Softmax{}},
          {"softmax 0.7", Softmax{.temperature = 0.7}},
          {"softmax 1e-40", Softmax{.temperature = 1e-40}},
          {"sigsoftmax", SigSoftmax{}},
          {"taylor_softmax 4", TaylorSoftmax{.order = 4}},
          {"sparsemax", Sparsemax{}},
          {"sparsemax 3", Sparsemax{.temperature = 3}},
          {"entmax 1.5", Entmax{}},
          {"entmax 1.3", Entmax{.alpha = 1.3, .temperature = 2}},
          {"entmax 1.1", Entmax{.alpha = 1.1}},
          {"entmax 1.02", Entmax{.alpha = 1.02}},
          {"entmax 0.7", Entmax{.alpha = 0.7}},
          {"entmax 1.7", Entmax{.alpha = 1.7}},
          {"entmax 2", Entmax{.alpha = 2}},
          {"entmax 3.5", Entmax{.alpha = 3.5}},
          {"top_k_softmax 1", TopKSoftmax{.k = 1}},
          {"top_k_softmax 7", TopKSoftmax{.k = 7}},
          {"top_p_softmax 0.9", TopPSoftmax{.p = 0.9}},
          {"top_p_softmax 0.3", TopPSoftmax{.p = 0.3, .temperature = 1.5}},
          {"min_p_softmax 0.1", MinPSoftmax{.p = 0.1}},
          {"entropy_normalize 0.4", EntropyNormalize{.entropy = 0.4}},
          {"entropy_normalize 1.9", EntropyNormalize{.perplexity = 6.7}},
          {"entropy_clip", EntropyClip{.min_entropy = 1, .max_entropy = 3}}};
}

// One map on one batch, and its gradient with those in its parameters.
template <class T>
void check_map(const Named& named, std::size_t n, Shape shape, bool last_first, bool in_place, bool to_the_bit = true) {
  const Map& map = named.map;
  const std::string what = named.name + ", rows of " + std::to_string(n) + ", " + std::to_string(shape.blocks) + " x " +
                           std::to_string(shape.threads) + " threads";
  const Forced forced(shape, last_first);
  const Grid<T> x = scores<T>(n, static_cast<unsigned>(n)), g = scores<T>(n, 77);
  const Memory memory(cuda::memory_for<T>(map, x.rows, n));

  Grid<T> on_host(x.rows, n), on_device = in_place ? x : Grid<T>(x.rows, n);
  apply<T>(map, x, on_host);
  if (in_place) {
    Grid<T> same = x;
    apply<T>(map, same, same);
    on_host = same;
    cuda::apply<T>(map, on_device, on_device, memory);
  } else {
    cuda::apply<T>(map, x, on_device, memory);
  }
  if (to_the_bit) {
    expect_same(on_device.numbers, on_host.numbers, what);
  } else {
    expect_near(on_device.numbers, on_host.numbers, what);
  }

  const Grid<T>& p = on_host;
  Grid<T> dx_host(x.rows, n), dx_device(x.rows, n);
  std::vector<std::vector<double>> slopes_host, slopes_device;
  std::vector<std::string> names;
  std::visit(
      [&]<class Op>(const Op&) {
        for_each_param<Op>([&](const auto& param) {
          if (param.per_row) names.emplace_back(param.name);
        });
      },
      map);
  slopes_host.resize(names.size(), std::vector<double>(x.rows));
  slopes_device = slopes_host;
  std::vector<ParamGradient> asked_host, asked_device;
  for (std::size_t k = 0; k < names.size(); ++k) {
    asked_host.push_back({names[k], slopes_host[k]});
    asked_device.push_back({names[k], slopes_device[k]});
  }
  apply_vjp<T>(map, x, p, g, dx_host, {}, asked_host);
  cuda::apply_vjp<T>(map, x, p, g, dx_device, memory, {}, {}, asked_device);
  expect_same(dx_device.numbers, dx_host.numbers, what + ", gradient");
  for (std::size_t k = 0; k < names.size(); ++k) {
    expect_same(slopes_device[k], slopes_host[k], what + ", gradient in " + names[k]);
  }
  if (!in_place) return;
  for (const std::string over : {"x", "p", "g"}) {
    dx_device = over == "x" ? x : over == "p" ? p : g;
    const auto or_dx = [&](const std::string& name, const Grid<T>& values) -> MatrixView<const T> {
      return name == over ? dx_device : values;
    };
    cuda::apply_vjp<T>(map, or_dx("x", x), or_dx("p", p), or_dx("g", g), dx_device, memory);
    expect_same(dx_device.numbers, dx_host.numbers, what + ", gradient over " + over);
  }
}

template <class T>
class CudaOf : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaOf, Types);

// Lengths around each change: of lanes, of blocks, of short rows.
TYPED_TEST(CudaOf, MapsAndTheirGradientsHaveTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  compared = 0;
  unsigned turn = 0;
  for (const std::size_t n : {1, 64, 65, 600, 2, 15, 16, 17, 63, 255, 257, 1500}) {
    if (kIsHalf<TypeParam> && n == 2) break;                                                          // copies of float rows
    if (sizeof(TypeParam) == 8 && (n == 15 || n == 16 || n == 63 || n == 255 || n == 600)) continue;  // float32 has them too
    for (const Named& named : maps()) {
      // Each length and map with the threads that the length wants, and some with another share of threads.
      check_map<TypeParam>(named, n, kByLength, turn % 2 == 0, turn % 3 == 0);
      if (turn % 4 == 0) check_map<TypeParam>(named, n, kShapes[1 + turn / 4 % 5], turn % 8 == 0, false);
      ++turn;
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  std::printf("%zu numbers compared\n", compared);
}

// Quadrature: each point of the line is a walk along the row. 1040 entries are more than one group of factors.
TYPED_TEST(CudaOf, PerturbMaxHasTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  compared = 0;
  unsigned turn = 0;
  for (const std::size_t n : {1, 20, 70, 300, 1040}) {
    if (kIsHalf<TypeParam> && n != 20) continue;  // copies of float rows
    for (std::size_t noise = 0; noise < std::size(Described<PerturbMax>::kNoises); ++noise) {
      // Of the longest rows, which take most of the time, each type has half of the noises.
      if (n > 1000 && noise % 2 != sizeof(TypeParam) / 8) continue;
      const PerturbMax op = {.noise = PerturbMax::Noise(noise), .scale = turn % 3 == 0 ? 1 : 0.4};
      const Named named = {"perturb_max with " + std::string(Described<PerturbMax>::kNoises[noise]) + " noise", op};
      // The host takes long rows with normal noise by a few points for all scores.
      const bool to_the_bit = op.noise != PerturbMax::Noise::normal || n < 70;
      if (n < 1000) check_map<TypeParam>(named, n, kByLength, turn % 2 == 0, turn % 3 == 0, to_the_bit);
      if (n > 1) check_map<TypeParam>(named, n, kShapes[1 + turn % 5], turn % 2 == 1, false, to_the_bit);
      ++turn;
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  std::printf("%zu numbers compared\n", compared);
}

// A row over several blocks, as for the longest rows; condensed, and cut by a sample.
TEST(Cuda, LongRowsHaveTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  const Map kMaps[] = {Softmax{},
                       Sparsemax{},
                       Entmax{.alpha = 1.3},
                       TopKSoftmax{.k = 50},
                       TopPSoftmax{.p = 0.9},
                       EntropyNormalize{.entropy = 3}};
  for (const Map& map : kMaps) {
    const std::string name(description_of(map).name);
    for (const std::size_t n : {std::size_t{9001}, std::size_t{16640}, std::size_t{40001}}) {
      const Forced forced(n == 16640 ? Shape{2, 64, 1} : Shape{1, 64, 1}, false);
      Grid<float> x(1, n), on_host(1, n), on_device(1, n);
      x.numbers = support::normal_row<float>(n + 3, 2, 0, 5);
      const Memory memory(cuda::memory_for<float>(map, 1, n));
      apply<float>(map, x, on_host);
      cuda::apply<float>(map, x, on_device, memory);
      expect_same(on_device.numbers, on_host.numbers, name + " of " + std::to_string(n));
    }
  }
}

// Rows that a warp, a block of any number of warps, or a cluster keeps in registers.
TYPED_TEST(CudaOf, RowsInRegistersHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  if constexpr (sizeof(T) < 8) {
    for (const std::size_t n : {257, 700, 1025, 2300, 5001, 16384, 16385, 40001, 131069}) {
      if (n > 100000 && kIsHalf<T>) continue;
      const Forced forced(kByLength, n % 2 == 0);
      const Softmax op = {.temperature = n % 3 == 0 ? 1 : 0.7};
      const Grid<T> x = scores<T>(n, static_cast<unsigned>(n));
      const Memory memory(cuda::memory_for<T>(op, x.rows, n));
      Grid<T> host(x.rows, n), device = x;
      apply<T>(op, x, host);
      cuda::apply<T>(op, device, device, memory);
      expect_same(device.numbers, host.numbers, "softmax of " + std::to_string(n));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Rows of a cluster that begin and end at multiples of 16 bytes, on a device that runs only one or two clusters: each asks for
// its next row while it works on one. Some have no finite maximum.
TYPED_TEST(CudaOf, StreamedRowsHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  if constexpr (sizeof(T) < 8) {
    unsigned turn = 0;
    for (const std::size_t n : {16392, 32768, 40000, 65528, 131072}) {
      if (n > 100000 && kIsHalf<T>) continue;
      for (const std::size_t clusters : {1, 2}) {
        const Forced forced(kByLength, ++turn % 2 == 0);
        const FewTeams few(clusters * 512 * ((n + 16383) / 16384));
        const Softmax op = {.temperature = turn % 3 == 0 ? 1 : 0.7};
        const Grid<T> x(scores<T>(n, static_cast<unsigned>(n)), 8);
        const Memory memory(cuda::memory_for<T>(op, x.rows, n));
        Grid<T> host(x.rows, n, 8), device = x;
        apply<T>(op, x, host);
        cuda::apply<T>(op, device, device, memory);
        expect_same(device.numbers, host.numbers, "softmax of " + std::to_string(n) + ", case " + std::to_string(turn));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Rows of which registers hold all scores, and shared memory the few with mass; or the workspace where these are many. Half of
// the cases have a device that runs only two rows at once, so that each asks for the next. A third of them leaves four rows at
// once to the kernel that searches.
TYPED_TEST(CudaOf, SparseRowsInRegistersHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  if constexpr (sizeof(T) < 8) {
    const Map kMaps[] = {Sparsemax{.temperature = 0.8}, Entmax{.alpha = 1.5}, Entmax{.alpha = 1.3, .temperature = 1.3},
                         Entmax{.alpha = 1.75}, Entmax{.alpha = 2}};
    unsigned turn = 0;
    for (const Map& map : kMaps) {
      for (const std::size_t n : {1025, 2300, 2301, 4093, 16385, 32768}) {
        const Forced forced(kByLength, ++turn % 2 == 0);
        const FewTeams few(turn % 2 == 0 ? 4 * 32 * std::max((n + 2047) / 2048, std::size_t{2}) : std::size_t{1} << 17,
                           turn % 3 == 0 ? 4 : 4096);
        Grid<T> x = scores<T>(n, static_cast<unsigned>(n));
        const Memory memory(cuda::memory_for<T>(map, x.rows, n));
        Grid<T> host(x.rows, n), device = x;
        apply<T>(map, x, host);
        cuda::apply<T>(map, device, device, memory);
        expect_same(device.numbers, host.numbers,
                    std::string(description_of(map).name) + " of " + std::to_string(n) + ", case " + std::to_string(turn));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Rows that stay in registers while the first warp searches; from 8192 scores on, few scores are searched before. Only rows
// without a finite maximum, with NaN or without an entropy to reach are left to the other kernel, and those of several blocks
// of which only a part matters.
TYPED_TEST(CudaOf, EntropyRowsInRegistersHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  if constexpr (sizeof(T) < 8) {
    const Map kMaps[] = {EntropyNormalize{.entropy = 3.5}, EntropyNormalize{.perplexity = 2.5},
                         EntropyNormalize{.entropy = 6.5}, EntropyClip{.min_entropy = 4, .max_entropy = 6},
                         EntropyClip{.max_entropy = 40}};
    unsigned turn = 0;
    for (const std::size_t n : {1025, 2301, 4093, 8191, 8192, 9001, 16384, 16385, 40000, 40001, 131072}) {
      turn += kIsHalf<T> ? 1 : 0;  // so that not always the same is left out
      for (const Map& map : kMaps) {
        ++turn;
        if (n >= 8192 && turn % (kIsHalf<T> ? 5 : 3) != 0) continue;
        const Forced forced(kByLength, turn % 2 == 0);
        Grid<T> x(scores<T>(n, static_cast<unsigned>(n)), 8);
        const auto number = [](T v) { return static_cast<float>(v); };
        std::copy_n(x.row(0), n, x.row(7));
        std::sort(x.row(7), x.row(7) + n, [&](T a, T b) { return number(a) < number(b); });  // the largest are in one block
        for (std::size_t i = 0; i < n; ++i) x.row(8)[i] = T(9 * number(x.row(0)[i]) * std::abs(number(x.row(0)[i])));
        const Memory memory(cuda::memory_for<T>(map, x.rows, n));
        Grid<T> host(x.rows, n, 8), device = x;
        apply<T>(map, x, host);
        cuda::apply<T>(map, device, device, memory);
        const std::string what =
            std::string(description_of(map).name) + " of " + std::to_string(n) + ", case " + std::to_string(turn);
        expect_same(device.numbers, host.numbers, what);
        const auto* const done = reinterpret_cast<const std::uint8_t*>(memory.data.get());
        EXPECT_TRUE(done[0] == 1 && done[4] == 1 && done[7] == 1 && (n > 16384 || done[8] == 1)) << what;
        EXPECT_TRUE(done[1] == 0 && done[2] == 0 && done[3] == 0) << what;
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Scores far below the others, which the search leaves out.
TYPED_TEST(CudaOf, EntropyRowsWithMaskedScoresHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  if constexpr (!kIsHalf<T>) {
    for (const std::size_t n : {60, 700, 3001, 9001, 40001}) {
      Grid<T> x(4, n), host(4, n), device(4, n);
      x.numbers = support::normal_row<T>(4 * (n + 3), 1, -3, 4);
      const T masks[] = {T(-1e5), T(-1e9), T(-1e30), std::numeric_limits<T>::lowest()};
      for (std::size_t r = 0; r < 4; ++r) {
        for (std::size_t i = r; i < n; i += 2 + i % 3) x.row(r)[i] = masks[r];
      }
      for (const Map& map : {Map(EntropyNormalize{.entropy = 2.5}), Map(EntropyClip{.max_entropy = 3})}) {
        const Memory memory(cuda::memory_for<T>(map, x.rows, n));
        apply<T>(map, x, host);
        cuda::apply<T>(map, x, device, memory);
        expect_same(device.numbers, host.numbers, std::string(description_of(map).name) + " of " + std::to_string(n));
      }
    }
  }
}

// Rows whose top is too large for a sample to represent the rest; and half of the scores, none in the first block of a cluster,
// do not matter, which the search finds out. A block packs the others; a cluster leaves the row to the other kernel. In the
// last row most of the top is in one block, which has not enough room for it.
TEST(Cuda, EntropyRowsWithALargeTopHaveTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  for (const std::size_t n : {9001, 16384, 40001}) {
    for (const bool last_first : {false, true}) {
      const Forced forced(kByLength, last_first);
      Grid<float> x(3, n), host(3, n), device(3, n);
      x.numbers = support::normal_row<float>(3 * (n + 3), 1, -3, 4);
      for (std::size_t i = 0; i < n; ++i) {
        const float far = i >= (n > 16384 ? 16384 : n / 8) && i % 10 < 9 ? 1000 : 0;
        x.row(0)[i] = i % 10 < 3 ? 0 : x.row(0)[i] - far;
        x.row(1)[i] = i % 10 < 3 ? 0 : x.row(1)[i];
        x.row(2)[i] = i / 5000 == 1 ? 0 : i / 10000 == 2 && i % 16 < 4 ? 0.5f : x.row(2)[i];
      }
      const EntropyNormalize op = {.entropy = std::log(0.3 * static_cast<double>(n)) + 0.15};
      const Memory memory(cuda::memory_for<float>(op, 3, n));
      apply<float>(op, x, host);
      cuda::apply<float>(op, x, device, memory);
      expect_same(device.numbers, host.numbers, "a large top of " + std::to_string(n));
      const auto* const done = reinterpret_cast<const std::uint8_t*>(memory.data.get());
      EXPECT_EQ(done[0], n <= 16384);
      EXPECT_EQ(done[1], 1);
      EXPECT_EQ(done[2], n <= 16384);
    }
  }
}

// Devices on which a block has 99 KB of shared memory: longer rows have no room there.
TEST(Cuda, RowsWithoutRoomInSharedMemoryHaveTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  const SmallDevice small;
  for (const std::size_t n : {12000, 16000}) {
    const Forced forced(kByLength, false);
    Grid<float> x(2, n), host(2, n), device(2, n);
    x.numbers = support::normal_row<float>(2 * (n + 3), 2, 0, 4);
    const EntropyNormalize op = {.entropy = 3};
    const Memory memory(cuda::memory_for<float>(op, 2, n));
    apply<float>(op, x, host);
    cuda::apply<float>(op, x, device, memory);
    expect_same(device.numbers, host.numbers, "a small device, rows of " + std::to_string(n));
    EXPECT_EQ(*reinterpret_cast<const std::uint8_t*>(memory.data.get()) == 1, n == 12000) << "done";
  }
}

// Five groups: their sums are added as the CPU adds them. float64 shows the last bit of the sum.
TEST(Cuda, GroupsAreAddedInTheOrderOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  constexpr std::size_t kCols = 5 * 16384 - 300;
  const Memory memory(cuda::memory_for<double>(Softmax{}, 1, kCols));
  for (const Shape& shape : {Shape{1, 32, 1}, Shape{2, 64, 1}}) {
    const Forced forced(shape, false);
    for (const unsigned seed : {1, 2, 3, 4}) {
      Grid<double> x(1, kCols), on_host(1, kCols), on_device(1, kCols);
      x.numbers = support::normal_row<double>(kCols, 2, 0, seed);
      apply<double>(Softmax{}, x, on_host);
      cuda::apply<double>(Softmax{}, x, on_device, memory);
      expect_same(on_device.numbers, on_host.numbers, "softmax of " + std::to_string(shape.blocks) + " blocks");
    }
  }
}

template <class T>
void check_logs(std::size_t n, double temperature) {
  const std::string what = "rows of " + std::to_string(n);
  const Grid<T> x = scores<T>(n, 3), g = scores<T>(n, 78);
  const Memory memory(std::max(cuda::memory_for<T>(LogSoftmax{}, x.rows, n), cuda::memory_for<T>(LogSumExp{}, x.rows, n)));
  Grid<T> host(x.rows, n), device(x.rows, n), dx_host(x.rows, n), dx_device(x.rows, n);
  std::vector<double> slope_host(x.rows), slope_device(x.rows);
  const ParamGradient asked_host = {"temperature", slope_host}, asked_device = {"temperature", slope_device};

  const LogSoftmax log = {.temperature = temperature};
  log_softmax<T>(log, x, host);
  cuda::log_softmax<T>(log, x, device, memory);
  expect_same(device.numbers, host.numbers, "log_softmax, " + what);
  log_softmax_vjp<T>(log, x, host, g, dx_host, {}, {&asked_host, 1});
  cuda::log_softmax_vjp<T>(log, x, host, g, dx_device, memory, {}, {}, {&asked_device, 1});
  expect_same(dx_device.numbers, dx_host.numbers, "log_softmax's gradient, " + what);
  expect_same(slope_device, slope_host, "log_softmax's gradient in temperature, " + what);

  const LogSumExp sum = {.temperature = temperature};
  Grid<T> y_host(x.rows, 1), y_device(x.rows, 1);
  const Grid<T> gy = scores<T>(1, 79);
  logsumexp<T>(sum, x, y_host);
  cuda::logsumexp<T>(sum, x, y_device, memory);
  expect_same(y_device.numbers, y_host.numbers, "logsumexp, " + what);
  logsumexp_vjp<T>(sum, x, y_host, gy, dx_host, {}, {&asked_host, 1});
  cuda::logsumexp_vjp<T>(sum, x, gy, dx_device, memory, {}, {}, {&asked_device, 1});
  expect_same(dx_device.numbers, dx_host.numbers, "logsumexp's gradient, " + what);
  expect_same(slope_device, slope_host, "logsumexp's gradient in temperature, " + what);
}

TYPED_TEST(CudaOf, LogSoftmaxAndLogSumExpHaveTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  for (const Shape& shape : {kByLength, Shape{2, 64, 1}}) {
    const Forced forced(shape, shape.blocks == 2);
    for (const std::size_t n : {1, 5, 64, 257, 1100}) {
      for (const double temperature : {1.0, 0.6, 1e40}) check_logs<TypeParam>(n, temperature);
    }
  }
}

TEST(Cuda, GammaForEntropyHasTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  for (const Shape& shape : {kByLength, Shape{2, 64, 1}}) {
    const Forced forced(shape, false);
    for (const std::size_t n : {1, 2, 40, 300, 1100}) {
      const Grid<float> x = scores<float>(n, 6);
      std::vector<double> targets(x.rows);
      for (std::size_t r = 0; r < x.rows; ++r) targets[r] = 0.3 * static_cast<double>(r);
      const PerRow per_row = {"entropy", targets};
      const GammaForEntropy options = {.entropy = 1};
      std::vector<double> gamma(x.rows), entropy(x.rows), gamma_device(x.rows), entropy_device(x.rows);
      std::vector<GammaStatus> status(x.rows);
      std::vector<int> status_device(x.rows), expected;
      gamma_for_entropy<float>(options, x, gamma, entropy, status, {&per_row, 1});
      const Memory memory(cuda::memory_for<float>(options, x.rows, n));
      cuda::gamma_for_entropy<float>(options, x, gamma_device, entropy_device, status_device, memory, {}, {&per_row, 1});
      expect_same(gamma_device, gamma, "gamma");
      expect_same(entropy_device, entropy, "entropy");
      for (const GammaStatus s : status) expected.push_back(static_cast<int>(s));
      EXPECT_EQ(status_device, expected);
    }
  }
}

// Parameters with a value for each row; one out of its range, which the host cannot see, makes its row NaN.
TEST(Cuda, ParametersMayHaveAValueForEachRow) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  for (const std::size_t n : {20, 300}) {
    const Grid<float> x = scores<float>(n, 8);
    std::vector<double> alpha = {1, 1.2, 1.5, 1.5, 1.7, 2, 2.5, 1, 1.1};
    const PerRow per_row = {"alpha", alpha};
    Grid<float> host(x.rows, n), device(x.rows, n);
    const Memory memory(cuda::memory_for<float>(Entmax{}, x.rows, n));
    apply<float>(Entmax{}, x, host, {&per_row, 1});
    cuda::apply<float>(Entmax{}, x, device, memory, {}, {&per_row, 1});
    expect_same(device.numbers, host.numbers, "entmax by rows of " + std::to_string(n));

    alpha[4] = -1;
    cuda::apply<float>(Entmax{}, x, device, memory, {}, {&per_row, 1});
    for (std::size_t i = 0; i < n; ++i) host.row(4)[i] = NAN;
    expect_same(device.numbers, host.numbers, "entmax with an alpha that is none");
  }
  for (const std::size_t n : {2301, 9001}) {
    const Grid<float> x = scores<float>(n, 8);
    std::vector<double> entropy = {3, 4, 5, 6, 1, 2, 3, 4, 7};
    const PerRow per_row = {"entropy", entropy};
    Grid<float> host(x.rows, n), device(x.rows, n);
    const EntropyNormalize op = {.entropy = 1};
    const Memory memory(cuda::memory_for<float>(op, x.rows, n));
    apply<float>(op, x, host, {&per_row, 1});
    cuda::apply<float>(op, x, device, memory, {}, {&per_row, 1});
    expect_same(device.numbers, host.numbers, "entropy_normalize by rows of " + std::to_string(n));

    entropy[0] = -1;
    cuda::apply<float>(op, x, device, memory, {}, {&per_row, 1});
    for (std::size_t i = 0; i < n; ++i) host.row(0)[i] = NAN;
    expect_same(device.numbers, host.numbers, "entropy_normalize to an entropy that is none");
  }
}

// A batch larger than the grid: each team goes on to further rows.
TEST(Cuda, ATeamTakesManyRows) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  constexpr std::size_t kRows = (1 << 16) + 77;
  Grid<float> x(kRows, 2), host(kRows, 2), device(kRows, 2);
  x.numbers = support::normal_row<float>(x.numbers.size(), 2, 0, 5);
  const Memory memory(cuda::memory_for<float>(Softmax{}, kRows, 2));
  EXPECT_EQ(memory.size, cuda::memory_for<float>(Softmax{}, 2 * kRows, 2));
  apply<float>(Softmax{}, x, host);
  cuda::apply<float>(Softmax{}, x, device, memory);
  expect_same(device.numbers, host.numbers, "softmax");
}

// Many rows are shared otherwise than few: what suffices for them suffices for fewer.
TEST(Cuda, MoreRowsNeedNoLessMemory) {
  for (const std::size_t n : {30, 1000, 20000, 100000}) {
    std::size_t before = 0;
    for (const std::size_t rows : {1, 63, 64, 65, 95, 96, 127, 128, 129, 1000}) {
      const std::size_t memory = cuda::memory_for<float>(EntropyNormalize{.entropy = 3}, rows, n);
      EXPECT_GE(memory, before) << rows << " x " << n;
      before = memory;
    }
  }
}

TEST(Cuda, EmptyBatchesAreNoError) {
  const Memory memory(0);
  MatrixView<float> none;
  cuda::apply<float>(Softmax{}, none, none, memory);
  cuda::apply<float>(Softmax{}, MatrixView<const float>(nullptr, 3, 0), MatrixView<float>(nullptr, 3, 0), memory);
}

TEST(Cuda, RefusesWhatTheCpuRefusesAndTooLittleMemory) {
  Grid<float> x(2, 8), p(2, 8), narrow(2, 7);
  const std::vector<float> before = p.numbers;
  const Memory memory(cuda::memory_for<float>(Softmax{}, 2, 8));
  const auto refused = [&](const std::string& text, const Map& map, MatrixView<float> out, std::span<std::byte> memory_given,
                           std::span<const PerRow> per_row) {
    support::expect_error(text, [&] { cuda::apply<float>(map, x, out, memory_given, {}, per_row); });
  };
  refused("softmax: temperature must be above 0 and finite, got 0", Softmax{.temperature = 0}, p, memory, {});
  refused("softmax: p must have the shape of x, 2 x 8, got 2 x 7", Softmax{}, narrow, memory, {});
  const std::span<std::byte> all = memory;
  const std::string wanted = std::to_string(all.size()), given = std::to_string(all.size() - 1);
  refused("softmax: memory must have " + wanted + " bytes, as memory_for() says, got " + given, Softmax{}, p,
          all.first(all.size() - 1), {});
  const std::vector<double> three(3, 1.0);
  const PerRow per_row = {"temperature", three};
  refused("softmax: temperature must have one value for each of 2 rows, got 3", Softmax{}, p, memory, {&per_row, 1});
  EXPECT_EQ(p.numbers, before);
}

// Threads that leave others waiting at a barrier are reported, not waited for.
TEST(CudaDeathTest, TheEmulatorReportsADeadlock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto kernel = [] { threadIdx.x < 32 ? __syncthreads() : isentropic_emulate::wait(isentropic_emulate::Wait::cluster); };
  EXPECT_DEATH(isentropic_emulate::launch(1, {64, 1, 1}, 1, 0, kernel), "waits for its block");
}

}  // namespace

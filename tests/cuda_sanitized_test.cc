// Kernels under sanitizers, of addresses or of threads, for teams of every shape: softmax and its gradient, which are compiled
// with them. Bits are the host's here too.

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isentropic/cuda.h"
#include "isentropic/isentropic.h"
#include "tests/support/device.h"

namespace {

using namespace isentropic;
using namespace support::device;

template <class T>
void check(const Map& map, std::size_t n, Shape shape) {
  const Forced forced(shape, n % 2 == 0);
  const std::string what = std::string(description_of(map).name) + " of " + std::to_string(n);
  const Grid<T> x = scores<T>(n, 3), g = scores<T>(n, 77);
  const Memory memory(cuda::memory_for<T>(map, x.rows, n));
  Grid<T> host(x.rows, n), device(x.rows, n), dx_host(x.rows, n), dx_device(x.rows, n);
  std::vector<double> slope_host(x.rows), slope_device(x.rows);
  const ParamGradient asked_host = {"temperature", slope_host}, asked_device = {"temperature", slope_device};
  apply<T>(map, x, host);
  cuda::apply<T>(map, x, device, memory);
  expect_same(device.numbers, host.numbers, what);
  apply_vjp<T>(map, x, host, g, dx_host, {}, {&asked_host, 1});
  cuda::apply_vjp<T>(map, x, host, g, dx_device, memory, {}, {}, {&asked_device, 1});
  expect_same(dx_device.numbers, dx_host.numbers, what + ", gradient");
  expect_same(slope_device, slope_host, what + ", gradient in temperature");
}

TEST(CudaSanitized, KernelsTouchOnlyTheirMemory) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  for (const Shape& shape : kShapes) {
    for (const std::size_t n : {1, 17, 64, 65, 257}) {
      check<float>(Softmax{.temperature = 0.7}, n, shape);
      if (shape.threads <= 32) check<bfloat16>(Softmax{}, n, shape);
    }
  }
}

#ifdef __SANITIZE_THREAD__
// In shared memory, for which there is a barrier of the warp, and for which a shuffle is none; and between blocks.
void run(void (*kernel)(), unsigned blocks, unsigned cluster) {
  isentropic_emulate::launch(blocks, {32, 1, 1}, cluster, 64 * sizeof(float), kernel);
  std::exit(0);
}
float* shared() { return reinterpret_cast<float*>(isentropic_emulate::cluster().shared[0].get()); }
void put(float v) { shared()[threadIdx.x] = v; }
void ordered() {
  put(1);
  __syncwarp();
  put(shared()[threadIdx.x]);
}
void by_barrier() {
  put(1);
  __syncwarp();
  shared()[32 + threadIdx.x] = shared()[31 - threadIdx.x];
}
void by_shuffle() {
  put(__shfl_sync(0xffffffff, 1.0f, 0));
  shared()[32 + threadIdx.x] = __shfl_sync(0xffffffff, shared()[31 - threadIdx.x], 0);
}

TEST(CudaSanitizedDeathTest, AnAccessThatNothingOrdersIsSeen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run(ordered, 1, 1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(by_barrier, 1, 1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(by_shuffle, 1, 1), testing::ExitedWithCode(66), "data race");
  EXPECT_EXIT(run(ordered, 2, 2), testing::ExitedWithCode(66), "data race");
}
#else
// The sanitizer sees what threads do on their own stacks and on the heap, and which kernel it was.
TEST(CudaSanitizedDeathTest, AWriteBeyondIsSeen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::unique_ptr<float[]> row(new float[64]);
  const auto kernel = [&] {
    __syncwarp();
    row[33 + threadIdx.x] = 1;
  };
  EXPECT_DEATH(isentropic_emulate::launch(1, {32, 1, 1}, 1, 0, kernel), "heap-buffer-overflow");
  const auto on_stack = [] {
    float lane[4] = {};
    float* volatile end = lane + 4;
    __syncwarp();  // the switch to another thread and back keeps what is known of this stack
    *end = 1;
  };
  EXPECT_DEATH(isentropic_emulate::launch(1, {32, 1, 1}, 1, 0, on_stack), "stack-buffer-overflow");
}
#endif

}  // namespace

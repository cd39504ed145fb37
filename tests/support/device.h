// Helpers for tests of emulated kernels: memory that stands for a device's, and rows of every kind.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isentropic/cuda.h"
#include "isentropic/simd.h"
#include "src/cuda/kernels.h"
#include "src/device/emulate.h"

namespace support::device {

using namespace isentropic;
using cuda::Shape;

// Bits are those of targets with FMA.
inline bool has_fma() { return simd_target() == "AVX2" || simd_target().substr(0, 4) == "AVX3" || simd_target() == "NEON"; }

// The shape for the row's length; one thread; warps; blocks; clusters.
constexpr Shape kByLength = {0, 0, 0};
constexpr Shape kShapes[] = {kByLength, {1, 1, 3}, {1, 32, 2}, {1, 64, 1}, {2, 64, 1}, {3, 96, 1}};

// Forces the threads of a row, and the order in which they run, as long as this object lives.
struct Forced {
  Forced(Shape shape, bool last_first) {
    cuda::forced_shape = shape;
    isentropic_emulate::device.last_first = last_first;
  }
  ~Forced() {
    cuda::forced_shape = kByLength;
    isentropic_emulate::device.last_first = false;
  }
};

// A device that runs no more threads at once, as long as this object lives: then a team takes several rows.
struct FewTeams {
  explicit FewTeams(std::size_t threads, std::size_t apart = cuda::rows_apart)
      : threads_before(cuda::threads_at_once), apart_before(cuda::rows_apart) {
    cuda::threads_at_once = threads, cuda::rows_apart = apart;
  }
  ~FewTeams() { cuda::threads_at_once = threads_before, cuda::rows_apart = apart_before; }
  std::size_t threads_before, apart_before;
};

// A device with less shared memory, as long as this object lives.
struct SmallDevice {
  SmallDevice() { cuda::shared_at_most = 101376; }
  ~SmallDevice() { cuda::shared_at_most = before; }
  std::size_t before = cuda::shared_at_most;
};

struct Memory {
  // Not a byte more, so that a sanitizer sees what goes beyond.
  explicit Memory(std::size_t bytes) : data(aligned(bytes), std::free), size(bytes) {
    std::memset(data.get(), 0xff, bytes);  // NaN
  }
  static std::byte* aligned(std::size_t bytes) {
    void* found = nullptr;
    if (posix_memalign(&found, 128, bytes) != 0) throw std::bad_alloc();
    return static_cast<std::byte*>(found);
  }
  operator std::span<std::byte>() const { return {data.get(), size}; }

  std::unique_ptr<std::byte, void (*)(void*)> data;
  std::size_t size;
};

// rows x cols numbers with a gap after each row.
template <class T>
struct Grid {
  Grid(std::size_t row_count, std::size_t col_count, std::size_t gap = 3)
      : rows(row_count), cols(col_count), stride(cols + gap), numbers(rows * stride, T(-7.0f)) {}
  // The same rows with another gap.
  Grid(const Grid& other, std::size_t gap) : Grid(other.rows, other.cols, gap) {
    for (std::size_t r = 0; r < rows; ++r) std::copy_n(other.numbers.data() + r * other.stride, cols, row(r));
  }
  operator MatrixView<T>() { return {numbers.data(), rows, cols, stride}; }
  operator MatrixView<const T>() const { return {numbers.data(), rows, cols, stride}; }
  T* row(std::size_t r) { return numbers.data() + r * stride; }

  std::size_t rows, cols, stride;
  std::vector<T> numbers;
};

template <class T>
bool is_nan(T v) {
  if constexpr (kIsHalf<T>)
    return std::isnan(static_cast<float>(v));
  else
    return std::isnan(v);
}

inline std::size_t compared = 0;

// Compares every bit, also in the gaps; all NaN are equal.
template <class T>
void expect_same(const std::vector<T>& device, const std::vector<T>& host, const std::string& what) {
  ASSERT_EQ(device.size(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    const bool same = std::memcmp(&device[i], &host[i], sizeof(T)) == 0 || (is_nan(device[i]) && is_nan(host[i]));
    ASSERT_TRUE(same) << what << ", number " << i << " of " << host.size() << ": "
                      << static_cast<double>(static_cast<float>(device[i])) << " on the device, "
                      << static_cast<double>(static_cast<float>(host[i])) << " on the host";
  }
  compared += host.size();
}

// What two ways of a quadrature may differ by: 1e-9 (in float64 1e-13) and two units of the last place.
template <class T>
void expect_near(const std::vector<T>& device, const std::vector<T>& host, const std::string& what) {
  constexpr double kEnds = sizeof(T) == 8 ? 1e-13 : 1e-9;
  constexpr double kPart = sizeof(T) == 8 ? 0x1p-51 : sizeof(T) == 4 ? 0x1p-22 : std::is_same_v<T, float16> ? 0x1p-9 : 0x1p-6;
  ASSERT_EQ(device.size(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (is_nan(device[i]) && is_nan(host[i])) continue;
    const auto number = [](T v) {
      if constexpr (kIsHalf<T>)
        return static_cast<double>(static_cast<float>(v));
      else
        return static_cast<double>(v);
    };
    const double got = number(device[i]), want = number(host[i]);
    ASSERT_LE(std::abs(got - want), kPart * std::abs(want) + kEnds)
        << what << ", number " << i << " of " << host.size() << ": " << got << " on the device, " << want << " on the host";
  }
  compared += host.size();
}

// Rows of every kind: normal, +inf, NaN, all -inf, some -inf, ties, equal, far off, spread wide.
template <class T>
Grid<T> scores(std::size_t n, unsigned seed) {
  constexpr std::size_t kRows = 9;
  Grid<T> x(kRows, n);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  const auto set = [&](std::size_t r, std::size_t i, float v) { x.row(r)[i] = T(v); };
  for (std::size_t i = 0; i < n; ++i) {
    for (const std::size_t r : {0, 1, 2}) set(r, i, normal(generator));
    set(3, i, -INFINITY);
    set(4, i, i % 3 == 1 ? -INFINITY : 2 * normal(generator));
    set(5, i, std::round(2 * normal(generator)));
    set(6, i, 2.5f);
    set(7, i, 3e4f + 30 * normal(generator));
    set(8, i, 0.01f * normal(generator));
  }
  set(1, n / 3, INFINITY), set(1, n - 1, INFINITY);
  set(2, n / 2, NAN);
  return x;
}

}  // namespace support::device

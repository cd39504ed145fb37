// Tests of the losses' kernels for devices, emulated: that they have the bits of the CPU's.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isentropic/cuda.h"
#include "isentropic/isentropic.h"
#include "tests/support/cases.h"
#include "tests/support/device.h"
#include "tests/support/expect_error.h"

namespace {

using namespace isentropic;
using namespace support::device;

std::vector<Loss> losses() {
  return {SoftmaxLoss{},
          SoftmaxLoss{.label_smoothing = 0.1},
          SparsemaxLoss{},
          EntmaxLoss{},
          EntmaxLoss{.alpha = 1.3},
          TopKSoftmaxLoss{.k = 3},
          TopPSoftmaxLoss{.p = 0.9},
          SmoothAccuracyLoss{.map = Softmax{}},
          SmoothAccuracyLoss{.map = Sparsemax{.temperature = 2}},
          MarginSoftmaxLoss{},
          MarginSoftmaxLoss{.kind = MarginSoftmaxLoss::Kind::arc, .scale = 16},
          MarginSoftmaxLoss{.kind = MarginSoftmaxLoss::Kind::sphere},
          MultilabelSoftmaxLoss{},
          SurrogateLoss{.map = TopKSoftmax{.k = 5}},
          SurrogateLoss{.map = Softmax{}},
          DistillationLoss{.temperature = 2},
          JsdLoss{.beta = 0.3}};
}

// Scores, or cosines; a target of each kind.
template <class T>
Grid<T> scores_for(const Loss& loss, std::size_t n) {
  Grid<T> x = scores<T>(n, static_cast<unsigned>(n));
  if (!std::holds_alternative<MarginSoftmaxLoss>(loss)) return x;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const float v = static_cast<float>(x.row(r)[i]);
      if (std::isfinite(v)) x.row(r)[i] = T(std::sin(v));
      if (v == INFINITY) x.row(r)[i] = T(1.0f);
    }
  }
  return x;
}

template <class T>
Grid<T> matrix_for(TargetKind kind, std::size_t n) {
  Grid<T> q = scores<T>(n, 99);
  if (kind == TargetKind::scores) return q;
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const float label = (i + r) % 4 == 0 ? 1.0f : 0.0f;
      // Powers of two, so that the sum is 1 in every type.
      const float share = i + 1 < n ? std::ldexp(1.0f, -static_cast<int>(i) - 1) : std::ldexp(1.0f, 1 - static_cast<int>(n));
      q.row(r)[i] = T(kind == TargetKind::labels ? label : r % 3 == 0 ? (i == r % n ? 1.0f : 0.0f) : share);
    }
  }
  return q;
}

// The parameters with gradients.
std::vector<std::string> asked_of(const Loss& loss) {
  std::vector<std::string> names;
  const auto add = [&]<class Op>(const Op&) {
    for_each_param<Op>([&](const auto& param) {
      if (param.per_row) names.emplace_back(param.name);
    });
  };
  std::visit(
      [&]<class Op>(const Op& op) {
        if constexpr (std::is_same_v<Op, SurrogateLoss>) return;
        if constexpr (requires { op.map; }) {
          std::visit(add, op.map);
        } else {
          add(op);
        }
        if constexpr (std::is_same_v<Op, MarginSoftmaxLoss>) {
          if (op.kind == MarginSoftmaxLoss::Kind::sphere) std::erase(names, "margin");
        }
      },
      loss);
  return names;
}

template <class T>
void check_loss(const Loss& op, std::size_t n, Shape shape, bool last_first, bool classes, bool in_place, bool gradient) {
  const std::string what = std::string(description_of(op).name) + (classes ? " of classes" : " of a matrix") + ", rows of " +
                           std::to_string(n) + ", " + std::to_string(shape.blocks) + " x " + std::to_string(shape.threads) +
                           " threads" + (in_place ? ", in place" : "");
  const Forced forced(shape, last_first);
  const Grid<T> x = scores_for<T>(op, n), q = matrix_for<T>(std::visit([](const auto&o) { return o.kTarget; }, op), n);
  const Memory memory(cuda::memory_for<T>(op, x.rows, n));
  std::vector<std::int64_t> t(x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) t[r] = static_cast<std::int64_t>(r * 7 % n);
  t[6] = -100;

  Grid<T> dx_host = in_place ? x : Grid<T>(x.rows, n), dx_device = dx_host;
  std::vector<double> value_host(x.rows), value_device(x.rows);
  const std::vector<std::string> names = gradient ? asked_of(op) : std::vector<std::string>();
  std::vector<std::vector<double>> slopes_host(names.size(), std::vector<double>(x.rows)), slopes_device = slopes_host;
  std::vector<ParamGradient> asked_host, asked_device;
  for (std::size_t k = 0; k < names.size(); ++k) {
    asked_host.push_back({names[k], slopes_host[k]});
    asked_device.push_back({names[k], slopes_device[k]});
  }
  const MatrixView<const T> x_host = in_place ? MatrixView<const T>(dx_host) : MatrixView<const T>(x);
  const MatrixView<const T> x_device = in_place ? MatrixView<const T>(dx_device) : MatrixView<const T>(x);
  const MatrixView<T> out_host = gradient ? MatrixView<T>(dx_host) : MatrixView<T>();
  const MatrixView<T> out_device = gradient ? MatrixView<T>(dx_device) : MatrixView<T>();
  if (classes) {
    loss<T>(op, x_host, t, value_host, out_host, {}, asked_host, -100);
    cuda::loss<T>(op, x_device, t, value_device, out_device, memory, {}, {}, asked_device, -100);
  } else {
    loss<T>(op, x_host, q, value_host, out_host, {}, asked_host);
    cuda::loss<T>(op, x_device, q, value_device, out_device, memory, {}, {}, asked_device);
  }
  expect_same(value_device, value_host, what);
  expect_same(dx_device.numbers, dx_host.numbers, what + ", gradient");
  for (std::size_t k = 0; k < names.size(); ++k) {
    expect_same(slopes_device[k], slopes_host[k], what + ", gradient in " + names[k]);
  }
}

template <class T>
class CudaLosses : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaLosses, Types);

TYPED_TEST(CudaLosses, ValuesAndGradientsHaveTheBitsOfTheCpu) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  compared = 0;
  unsigned turn = 0;
  for (const std::size_t n : {1, 10, 64, 65, 300, 1100}) {
    if (kIsHalf<TypeParam> && n != 10) continue;  // copies of float rows
    for (const Loss& op : losses()) {
      const TargetKind kind = std::visit([](const auto& o) { return o.kTarget; }, op);
      for (const bool classes : {true, false}) {
        if (classes && kind != TargetKind::classes && kind != TargetKind::classes_or_distributions) continue;
        if (!classes && kind == TargetKind::classes) continue;
        ++turn;
        check_loss<TypeParam>(op, n, turn % 3 == 0 ? kShapes[1 + turn / 3 % 5] : kByLength, turn % 2 == 0, classes,
                              turn % 5 == 0, turn % 7 != 0);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  std::printf("%zu numbers compared\n", compared);
}

// Cross-entropy against classes, without a gradient in its parameter: rows that stay in registers.
TYPED_TEST(CudaLosses, RowsInRegistersHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  if constexpr (sizeof(T) < 8) {
    for (const std::size_t n : {65, 257, 700, 1025, 2300, 5000, 16384, 16385, 32768, 40000, 65528}) {
      const Forced forced(kByLength, n % 16 == 0);
      // From 32768 on one or two clusters have all rows, one after the other.
      const FewTeams few(n < 32768 ? std::size_t{1} << 17 : (n == 32768 ? 2 : 1) * 512 * ((n + 16383) / 16384));
      const Grid<T> x(scores<T>(n, static_cast<unsigned>(n)), 8);
      std::vector<std::int64_t> t(x.rows);
      for (std::size_t r = 0; r < x.rows; ++r) t[r] = static_cast<std::int64_t>((r + 1) * n * 7 / 64 % n);
      t[5] = -100, t[6] = -1;
      for (std::size_t r = 0; r < 2; ++r) t[r] = static_cast<std::int64_t>(n / 3);  // +inf in row 1
      const Memory memory(cuda::memory_for<T>(SoftmaxLoss{}, x.rows, n));
      std::vector<double> value_host(x.rows), value_device(x.rows), alone(x.rows);
      Grid<T> host(x.rows, n, 8), device = x;
      cuda::loss<T>(SoftmaxLoss{}, device, t, alone, {}, memory, {}, {}, {}, -100);
      cuda::loss<T>(SoftmaxLoss{}, device, t, value_device, device, memory, {}, {}, {}, -100);
      EXPECT_TRUE(std::isnan(value_device[6]) && std::isnan(static_cast<float>(device.row(6)[0])));  // the host refuses it
      t[6] = -100, value_device[6] = alone[6] = 0;
      for (std::size_t i = 0; i < n; ++i) device.row(6)[i] = T(0.0f);
      loss<T>(SoftmaxLoss{}, x, t, value_host, host, {}, {}, -100);
      expect_same(value_device, value_host, "softmax_loss of " + std::to_string(n));
      expect_same(alone, value_host, "softmax_loss without a gradient, of " + std::to_string(n));
      expect_same(device.numbers, host.numbers, "its gradient, of " + std::to_string(n));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// jsd_loss. The rows of scores(); nearly equal ones; equal ones; rows whose student, teacher or
// both are sure of a class, with and without absent scores; and one whose differences need more than 53 bits.
template <class T>
struct JsdRows {
  static constexpr std::size_t kAdded = 9;
  JsdRows(std::size_t n, std::size_t gap) : x(9 + kAdded, n, gap), target(9 + kAdded, n, gap) {
    const Grid<T> some = scores<T>(n, static_cast<unsigned>(n)), others = scores<T>(n, static_cast<unsigned>(n) + 1);
    const auto at = [&](Grid<T>& grid, std::size_t r, std::size_t i, float v) { grid.row(r)[i] = T(v); };
    for (std::size_t i = 0; i < n; ++i) {
      const auto normal = [&](const Grid<T>& grid, std::size_t r) {
        return static_cast<float>(grid.numbers[r * grid.stride + i]);
      };
      for (std::size_t r = 0; r < 9; ++r) at(x, r, i, normal(some, r)), at(target, r, i, normal(others, r < 4 ? 0 : r));
      const float a = normal(some, 0), b = normal(others, 0);
      at(x, 9, i, a), at(target, 9, i, a * (1 + (i % 16 == 0 ? 0x1p-7f : 0)));
      at(x, 10, i, a), at(target, 10, i, a);
      const bool none = i % 9 == 3 && i != n / 2;
      at(x, 11, i, i == n / 2 ? 40.0f : none ? -INFINITY : a), at(target, 11, i, none ? -INFINITY : b);
      at(x, 12, i, a), at(target, 12, i, i == n / 2 ? 40.0f : b);
      at(x, 13, i, i == n - 1 ? 30.0f : a), at(target, 13, i, i == n - 1 ? 28.0f : b);
      at(x, 14, i, i % 5 == 0 ? -INFINITY : a), at(target, 14, i, i % 5 == 0 || i % 3 == 0 ? -INFINITY : a);
      at(x, 15, i, i == 7 ? 100.0f : none ? -INFINITY : a - 100), at(target, 15, i, i == 7 ? 100.0f : none ? -INFINITY : b);
      at(x, 16, i, i % 7 == 0 ? 10.0f : 0.0f), at(target, 16, i, i % 7 == 0 ? -INFINITY : a);
      at(x, 17, i, 1), at(target, 17, i, a * 1e-12f);
    }
    at(target, 3, n / 2, INFINITY);
    for (const std::size_t r : {4, 14}) at(x, r, 0, 2), at(target, r, 0, 2);
  }
  Grid<T> x, target;
};

TYPED_TEST(CudaLosses, JsdRowsHaveTheBitsOfTheCpu) {
  using T = TypeParam;
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  if constexpr (sizeof(T) < 8) {
    compared = 0;
    unsigned turn = 0;
    for (const std::size_t n : {1025, 2043, 16384, 16387, 20000, 32768}) {
      if (kIsHalf<T> && (n == 2043 || n == 16387)) continue;
      const Forced forced(kByLength, ++turn % 2 == 0);
      JsdRows<T> rows(n, turn % 3);
      const double betas[] = {0.5, 0.1, 0.9};
      const JsdLoss op = {.beta = betas[turn % 3]};
      std::vector<double> of_rows(rows.x.rows);
      for (std::size_t r = 0; r < of_rows.size(); ++r) of_rows[r] = r == 5 ? 1e-20 : betas[r % 3];
      const PerRow beta = {"beta", of_rows};
      const std::span<const PerRow> per_row(&beta, n == 2043 || n == 20000);
      const Memory memory(cuda::memory_for<T>(op, rows.x.rows, n));
      std::vector<double> value_host(rows.x.rows), value_device(rows.x.rows), alone(rows.x.rows);
      Grid<T> host(rows.x.rows, n), device = host;
      const std::string what = "jsd_loss of " + std::to_string(n);
      loss<T>(op, rows.x, rows.target, value_host, host, per_row);
      cuda::loss<T>(op, rows.x, rows.target, alone, {}, memory, {}, per_row);
      expect_same(alone, value_host, what + ", without a gradient");
      cuda::loss<T>(op, rows.x, rows.target, value_device, device, memory, {}, per_row);
      expect_same(value_device, value_host, what);
      expect_same(device.numbers, host.numbers, what + ", gradient");
      if (n < 3000) {
        cuda::loss<T>(op, rows.x, rows.target, value_device, rows.x, memory, {}, per_row);
        for (std::size_t r = 0; r < rows.x.rows; ++r) std::copy_n(rows.x.row(r), n, device.row(r));
        expect_same(device.numbers, host.numbers, what + ", in place");
      }
      if (testing::Test::HasFailure()) return;
    }
    std::printf("%zu numbers compared\n", compared);
  }
}

// Rows that the host would refuse, but only the device sees.
TEST(CudaLosses, TargetsThatAreNoneAreNaN) {
  const Grid<float> x = scores<float>(20, 5);
  Grid<float> dx(x.rows, 20);
  std::vector<std::int64_t> t(x.rows, 3);
  t[5] = 20, t[8] = -1;
  Grid<float> q(x.rows, 20);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < 20; ++i) q.row(r)[i] = 0.05f;
  }
  q.row(5)[2] = -0.05f, q.row(5)[3] = 0.15f, q.row(8)[0] = 0.5f;
  std::vector<double> value(x.rows);
  for (const Loss& op : {Loss(SoftmaxLoss{}), Loss(EntmaxLoss{})}) {
    const Memory memory(cuda::memory_for<float>(op, x.rows, 20));
    for (const bool classes : {true, false}) {
      if (classes) {
        cuda::loss<float>(op, x, t, value, dx, memory);
      } else {
        cuda::loss<float>(op, x, q, value, dx, memory);
      }
      for (const std::size_t r : {0, 5, 6, 8}) {
        EXPECT_EQ(std::isnan(value[r]), r == 5 || r == 8) << r;
        EXPECT_EQ(std::isnan(dx.row(r)[19]), r == 5 || r == 8) << r;
      }
    }
  }
}

TEST(CudaLosses, ParametersMayHaveAValueForEachRow) {
  if (!has_fma()) GTEST_SKIP() << "the target " << simd_target() << " has no FMA";
  for (const std::size_t n : {20, 300}) {
    const Grid<float> x = scores<float>(n, 8);
    const std::vector<std::int64_t> t(x.rows, 3);
    const auto check = [&](const Loss& op, const std::string& name, std::vector<double> values, bool in_range) {
      const PerRow per_row = {name, values};
      Grid<float> host(x.rows, n), device(x.rows, n);
      std::vector<double> value(x.rows), value_device(x.rows);
      const Memory memory(cuda::memory_for<float>(op, x.rows, n));
      loss<float>(op, x, t, value, host, {&per_row, 1});
      if (!in_range) values[4] = -1, value[4] = NAN, std::fill(host.row(4), host.row(4) + n, NAN);
      cuda::loss<float>(op, x, t, value_device, device, memory, {}, {&per_row, 1});
      expect_same(value_device, value, name);
      expect_same(device.numbers, host.numbers, name + ", gradient");
    };
    for (const bool in_range : {true, false}) {
      check(SoftmaxLoss{}, "label_smoothing", {0, 0.1, 0.2, 0, 0.4, 0, 1, 0.5, 0}, in_range);
      check(EntmaxLoss{}, "alpha", {1, 1.2, 1.5, 1.5, 1.7, 2, 2.5, 1, 1.1}, in_range);
      check(SmoothAccuracyLoss{.map = Softmax{}}, "temperature", {1, 2, 0.5, 1, 1, 3, 1, 1, 2}, in_range);
    }
  }
}

TEST(CudaLosses, RefuseWhatTheCpuRefuses) {
  Grid<float> x(2, 8), dx(2, 8);
  std::vector<double> value(2);
  const std::vector<std::int64_t> t = {1, 2, 3};
  const Loss op = SoftmaxLoss{};
  const Memory memory(cuda::memory_for<float>(op, 2, 8));
  const std::span<std::byte> all = memory;
  support::expect_error("softmax_loss: target must have one class for each of 2 rows, got 3",
                        [&] { cuda::loss<float>(op, x, t, value, dx, memory); });
  support::expect_error("distillation_loss: target must be a matrix of x's shape, got a class for each row",
                        [&] { cuda::loss<float>(DistillationLoss{}, x, std::span(t).first(2), value, dx, memory); });
  const std::string wanted = std::to_string(all.size()), given = std::to_string(all.size() - 1);
  support::expect_error("softmax_loss: memory must have " + wanted + " bytes, as memory_for() says, got " + given,
                        [&] { cuda::loss<float>(op, x, std::span(t).first(2), value, dx, all.first(all.size() - 1)); });
  support::expect_error("margin_softmax_loss: target must be a class for each row, got a matrix",
                        [&] { cuda::loss<float>(MarginSoftmaxLoss{}, x, x, value, dx, memory); });
}

}  // namespace

// The 16-bit types: their rounding; and their maps are the maps of float between two conversions.

#include "isentropic/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "isentropic/isentropic.h"
#include "src/half.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class H>
H from_bits(unsigned bits) {
  H half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

// The number for these bits by the standard's definition.
template <class H>
double meaning(unsigned bits) {
  constexpr int kFraction = std::is_same_v<H, float16> ? 10 : 7, kBias = std::is_same_v<H, float16> ? 15 : 127;
  const int exponent = static_cast<int>((bits & 0x7fff) >> kFraction),
            fraction = static_cast<int>(bits & ((1 << kFraction) - 1));
  double magnitude = std::ldexp((exponent == 0 ? 0 : 1 << kFraction) + fraction, std::max(exponent, 1) - kBias - kFraction);
  if (exponent == 2 * kBias + 1) magnitude = fraction == 0 ? HUGE_VAL : std::nan("");
  return bits >> 15 ? -magnitude : magnitude;
}

template <class H>
class Half : public testing::Test {};
using Halves = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(Half, Halves);

TYPED_TEST(Half, WidensExactlyAndBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto half = from_bits<TypeParam>(bits);
    const float wide = static_cast<float>(half);
    if (std::isnan(meaning<TypeParam>(bits))) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(wide)))) << bits;
    } else {
      ASSERT_EQ(wide, meaning<TypeParam>(bits)) << bits;
      ASSERT_EQ(TypeParam(wide).bits, bits);
    }
  }
}

// Between neighbours a and b: below the middle a, above it b, in the middle the even one.
TYPED_TEST(Half, RoundsToTheNearest) {
  for (unsigned bits = 0; !std::isinf(meaning<TypeParam>(bits)); ++bits) {
    const double a = meaning<TypeParam>(bits), next = meaning<TypeParam>(bits + 1);
    // Infinity stands for the number one step beyond the largest.
    const double b = std::isinf(next) ? a + (a - meaning<TypeParam>(bits - 1)) : next;
    const auto middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(middle, (a + b) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      const unsigned sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(TypeParam(sign * middle).bits, (bits + (bits & 1)) | sign_bit) << a;
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, 0.0f)).bits, bits | sign_bit) << a;
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, kInfinity)).bits, (bits + 1) | sign_bit) << a;
    }
  }
  EXPECT_EQ(static_cast<float>(TypeParam(kInfinity)), kInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(-kInfinity)), -kInfinity);
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
}

// Arrays are converted by instructions where there are any: the same bits for every number, at every place of a vector.
TYPED_TEST(Half, ArraysAreConvertedAsNumbers) {
  support::for_each_target([](const std::string& target) {
    std::vector<TypeParam> halves;
    std::vector<float> floats;
    for (unsigned bits = 0; bits < 65536; ++bits) {
      halves.push_back(from_bits<TypeParam>(bits));
      const auto one = static_cast<float>(halves.back());
      floats.insert(floats.end(), {one, std::nextafter(one, kInfinity), std::nextafter(one, -kInfinity)});
    }
    for (std::uint32_t bits = 0; bits < 0xff800000; bits += 65521) floats.push_back(std::bit_cast<float>(bits));
    std::vector<float> wide(halves.size() - 1);
    widen(halves.data() + 1, wide.size(), wide.data());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const auto want = static_cast<float>(halves[i + 1]);
      ASSERT_TRUE(std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(want) ||
                  (std::isnan(wide[i]) && std::isnan(want)))
          << target << " " << i;
    }
    std::vector<TypeParam> narrowed(floats.size());
    narrow(floats.data(), floats.size(), narrowed.data());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i])) {
        ASSERT_TRUE(std::isnan(static_cast<float>(narrowed[i])));
      } else {
        ASSERT_EQ(narrowed[i].bits, TypeParam(floats[i]).bits) << target << " " << floats[i];
      }
    }
  });
}

template <class H>
struct Batch {
  std::size_t rows, cols;
  std::vector<H> halves;
  std::vector<float> floats;

  Batch(std::size_t row_count, std::size_t col_count, unsigned seed) : rows(row_count), cols(col_count) {
    std::mt19937 generator(seed);
    for (std::size_t i = 0; i < rows * cols; ++i) {
      halves.emplace_back(H(std::normal_distribution<float>(0, 3)(generator)));
      if (i % 11 == 10) halves.back() = H(-kInfinity);
      if (i == 2 * cols + 1) halves.back() = H(std::nanf(""));
      if (i == 3 * cols) halves.back() = H(kInfinity);
      floats.push_back(static_cast<float>(halves.back()));
    }
  }
  MatrixView<const H> narrow() const { return {halves.data(), rows, cols}; }
  MatrixView<const float> wide() const { return {floats.data(), rows, cols}; }
};

template <class H>
void expect_rounded(const std::vector<float>& want, const std::vector<H>& got, std::string_view name) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(static_cast<float>(got[i]))) continue;  // of either sign
    ASSERT_EQ(H(want[i]).bits, got[i].bits)
        << name << " entry " << i << " is " << static_cast<float>(got[i]) << ", float " << want[i];
  }
}

TYPED_TEST(Half, MapsAreThoseOfFloatRounded) {
  support::for_each_target([](const std::string&) {
    for (const auto& [rows, cols] : {std::pair{5, 1}, {7, 3}, {40, 64}, {9, 1000}, {4, 40000}}) {
      const Batch<TypeParam> x(rows, cols, 1), g(rows, cols, 2);
      std::vector<TypeParam> p(x.halves.size()), dx = g.halves;
      std::vector<float> want(p.size()), want_dx(p.size());
      for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
        if (Described<Op>::kDescription.cost > 1 && x.cols > 1000) return;
        const Op op = typical<Op>();
        apply(op, x.narrow(), MatrixView<TypeParam>(p.data(), x.rows, x.cols));
        apply(op, x.wide(), MatrixView<float>(want.data(), x.rows, x.cols));
        expect_rounded(want, p, Described<Op>::kDescription.name);
        // In place of g, and whatever p holds.
        dx = g.halves;
        const MatrixView<TypeParam> view(dx.data(), x.rows, x.cols);
        apply_vjp(op, x.narrow(), x.narrow(), MatrixView<const TypeParam>(view), view);
        apply_vjp(op, x.wide(), MatrixView<const float>(want.data(), x.rows, x.cols), g.wide(),
                  MatrixView<float>(want_dx.data(), x.rows, x.cols));
        expect_rounded(want_dx, dx, Described<Op>::kDescription.name);
      });
    }
  });
}

TYPED_TEST(Half, LogarithmsAreThoseOfFloatRounded) {
  const Batch<TypeParam> x(40, 700, 3), g(40, 700, 4), gr(40, 1, 5);
  std::vector<TypeParam> y(x.halves.size()), dx(y.size()), sums(40);
  std::vector<float> want(y.size()), want_dx(y.size()), want_sums(40);
  log_softmax(LogSoftmax{}, x.narrow(), MatrixView<TypeParam>(y.data(), 40, 700));
  log_softmax(LogSoftmax{}, x.wide(), MatrixView<float>(want.data(), 40, 700));
  expect_rounded(want, y, "log_softmax");
  log_softmax_vjp(LogSoftmax{}, x.narrow(), MatrixView<const TypeParam>(y.data(), 40, 700), g.narrow(),
                  MatrixView<TypeParam>(dx.data(), 40, 700));
  log_softmax_vjp(LogSoftmax{}, x.wide(), MatrixView<const float>(want.data(), 40, 700), g.wide(),
                  MatrixView<float>(want_dx.data(), 40, 700));
  expect_rounded(want_dx, dx, "log_softmax_vjp");
  logsumexp(LogSumExp{}, x.narrow(), MatrixView<TypeParam>(sums.data(), 40, 1));
  logsumexp(LogSumExp{}, x.wide(), MatrixView<float>(want_sums.data(), 40, 1));
  expect_rounded(want_sums, sums, "logsumexp");
  logsumexp_vjp(LogSumExp{}, x.narrow(), MatrixView<const TypeParam>(sums.data(), 40, 1), gr.narrow(),
                MatrixView<TypeParam>(dx.data(), 40, 700));
  logsumexp_vjp(LogSumExp{}, x.wide(), MatrixView<const float>(want_sums.data(), 40, 1), gr.wide(),
                MatrixView<float>(want_dx.data(), 40, 700));
  expect_rounded(want_dx, dx, "logsumexp_vjp");
}

// Rows are converted a block at a time, each with its own parameters.
TYPED_TEST(Half, RowsKeepTheirParameters) {
  const std::size_t rows = 300, cols = 256;
  const Batch<TypeParam> x(rows, cols, 6), g(rows, cols, 7);
  std::vector<double> alpha(rows), got(rows), want(rows);
  for (std::size_t r = 0; r < rows; ++r) alpha[r] = 1.1 + 0.01 * static_cast<double>(r);
  const PerRow given[] = {{"alpha", alpha}};
  std::vector<TypeParam> p(x.halves.size());
  std::vector<float> wide(p.size()), dx(p.size());
  apply(Entmax{}, x.narrow(), MatrixView<TypeParam>(p.data(), rows, cols), given);
  apply(Entmax{}, x.wide(), MatrixView<float>(wide.data(), rows, cols), given);
  expect_rounded(wide, p, "entmax");
  const ParamGradient asked[] = {{"alpha", got}}, asked_wide[] = {{"alpha", want}};
  apply_vjp(Entmax{}, x.narrow(), MatrixView<const TypeParam>(p.data(), rows, cols), g.narrow(),
            MatrixView<TypeParam>(p.data(), rows, cols), given, asked);
  apply_vjp(Entmax{}, x.wide(), MatrixView<const float>(wide.data(), rows, cols), g.wide(),
            MatrixView<float>(dx.data(), rows, cols), given, asked_wide);
  expect_rounded(dx, p, "entmax_vjp");
  EXPECT_EQ(std::memcmp(got.data(), want.data(), rows * sizeof(double)), 0);
}

TYPED_TEST(Half, RefusesBadArguments) {
  std::vector<TypeParam> memory(64);
  const MatrixView<TypeParam> x(memory.data(), 2, 4), p(memory.data() + 1, 2, 4);
  EXPECT_THROW(apply(Softmax{.temperature = 0}, x, x), std::invalid_argument);
  EXPECT_THROW(apply(Softmax{}, x, p), std::invalid_argument);
}

}  // namespace
}  // namespace isentropic

// Maps along any axis of arrays of any strides give the bits that they give of the same rows in a matrix.

#include "entropic/array_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "entropic/strided_rows.h"
#include "tests/support/expect_error.h"

namespace entropic {
namespace {

using support::expect_error;
using Sizes = std::vector<std::ptrdiff_t>;

// An array with memory of its own, laid out as a test wants it.
template <class T>
struct Owned {
  std::vector<T> memory;
  ArrayView<T> view;
};

std::ptrdiff_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::ptrdiff_t{1}, std::multiplies<>());
}

// Ways to lay an array out. `order` lists its axes from the slowest to the fastest; each axis has `gap` numbers between its
// own and may run backwards.
template <class T>
Owned<T> laid_out(const Sizes& shape, const std::vector<std::size_t>& order, std::ptrdiff_t gap, bool backwards) {
  Owned<T> a;
  a.view.shape = shape;
  a.view.strides.resize(shape.size());
  std::ptrdiff_t stride = 1 + gap, first = 0;
  for (std::size_t d = order.size(); d-- > 0;) {
    const std::size_t axis = order[d];
    a.view.strides[axis] = backwards ? -stride : stride;
    if (backwards) first += stride * std::max<std::ptrdiff_t>(shape[axis] - 1, 0);
    stride = stride * shape[axis] + gap;
  }
  a.memory.assign(static_cast<std::size_t>(std::max<std::ptrdiff_t>(stride, 1)), T(-77.0F));
  a.view.data = a.memory.data() + first;
  return a;
}

template <class T>
T& at(const ArrayView<T>& a, const Sizes& index) {
  return a.data[std::inner_product(index.begin(), index.end(), a.strides.begin(), std::ptrdiff_t{0})];
}

// Calls f(index, row, column) for all indices, rows counted with the last of the other axes running fastest.
template <class F>
void for_each_index(const Sizes& shape, std::size_t axis, const F& f) {
  Sizes index(shape.size());
  for (std::ptrdiff_t i = 0; i < product(shape); ++i) {
    std::ptrdiff_t rest = i, row = 0;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
    for (std::size_t d = 0; d < shape.size(); ++d) row = d == axis ? row : row * shape[d] + index[d];
    f(index, static_cast<std::size_t>(row), static_cast<std::size_t>(index[axis]));
  }
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
class Arrays : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(Arrays, Types);

// apply and apply_vjp of arrays laid out differently, against those of matrices.
template <class T>
void compare(const Map& map, const Sizes& shape, std::size_t axis, bool with_alpha) {
  std::mt19937 random(static_cast<unsigned>(product(shape)) + static_cast<unsigned>(axis));
  std::normal_distribution<float> normal;
  Sizes others = shape;
  others[axis] = 1;
  const auto cols = static_cast<std::size_t>(shape[axis]), rows = static_cast<std::size_t>(product(others));
  std::vector<T> x(rows * cols), g(rows * cols), p(rows * cols), dx(rows * cols);
  for (T& one : x) one = T(3 * normal(random));
  for (T& one : g) one = T(normal(random));
  std::vector<double> alpha(with_alpha ? rows : 0), slope(alpha.size()), slope_of_arrays(alpha.size());
  for (std::size_t r = 0; r < alpha.size(); ++r) alpha[r] = 1.1 + 0.8 * static_cast<double>(r) / static_cast<double>(rows);
  std::vector<PerRow> per_row;
  std::vector<ParamGradient> gradients, gradients_of_arrays;
  if (with_alpha) {
    per_row = {{"alpha", alpha}};
    gradients = {{"alpha", slope}};
    gradients_of_arrays = {{"alpha", slope_of_arrays}};
  }
  const auto matrix = [&](std::vector<T>& a) { return MatrixView<T>(a.data(), rows, cols); };
  apply<T>(map, matrix(x), matrix(p), per_row);
  apply_vjp<T>(map, matrix(x), matrix(p), matrix(g), matrix(dx), per_row, gradients);

  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int layout = 0; layout < 6; ++layout) {
    std::vector<Owned<T>> arrays;
    for (int k = 0; k < 4; ++k) {
      arrays.push_back(laid_out<T>(shape, order, (layout + k) % 3, (layout + k) % 2 == 1));
      if (layout > 2) std::shuffle(order.begin(), order.end(), random);
    }
    const auto &ax = arrays[0].view, &ag = arrays[1].view, &ap = arrays[2].view, &adx = arrays[3].view;
    for_each_index(shape, axis, [&](const Sizes& index, std::size_t row, std::size_t col) {
      at(ax, index) = x[row * cols + col];
      at(ag, index) = g[row * cols + col];
    });
    const auto given = static_cast<std::ptrdiff_t>(axis) - (layout % 2 == 0 ? 0 : static_cast<std::ptrdiff_t>(shape.size()));
    apply<T>(map, ax, ap, given, per_row);
    apply_vjp<T>(map, ax, ap, ag, adx, given, per_row, gradients_of_arrays);
    for_each_index(shape, axis, [&](const Sizes& index, std::size_t row, std::size_t col) {
      ASSERT_TRUE(same_bits(at(ap, index), p[row * cols + col])) << "p, row " << row << " layout " << layout;
      ASSERT_TRUE(same_bits(at(adx, index), dx[row * cols + col])) << "dx, row " << row << " layout " << layout;
    });
    ASSERT_EQ(slope, slope_of_arrays);
    // Nothing between the numbers was touched.
    for (const Owned<T>* a : {&arrays[2], &arrays[3]}) {
      std::size_t untouched = 0;
      for (const T& one : a->memory) untouched += same_bits(one, T(-77.0F)) ? 1 : 0;
      ASSERT_EQ(untouched, a->memory.size() - rows * cols);
    }
    // In place.
    apply<T>(map, ax, ax, given, per_row);
    for_each_index(shape, axis, [&](const Sizes& index, std::size_t row, std::size_t col) {
      ASSERT_TRUE(same_bits(at(ax, index), p[row * cols + col])) << "in place, row " << row << " layout " << layout;
    });
  }
}

TYPED_TEST(Arrays, HaveTheBitsOfMatrices) {
  const std::vector<Sizes> shapes = {{7}, {1}, {4, 5}, {3, 1, 6}, {2, 3, 4, 5}, {3, 0, 2}, {2, 1, 70}};
  for (const Sizes& shape : shapes) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      compare<TypeParam>(Softmax{.temperature = 0.7}, shape, axis, false);
      compare<TypeParam>(Sparsemax{}, shape, axis, false);
      compare<TypeParam>(Entmax{}, shape, axis, true);
    }
  }
}

// More than one block of rows is copied.
TYPED_TEST(Arrays, MayBeLarge) {
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    compare<TypeParam>(Sparsemax{}, {60, 40, 70}, axis, false);
  }
}

TEST(Array, InputsMayRepeat) {
  const std::vector<float> row = {1, 2, 4};
  std::vector<float> p(12), of_row(3);
  apply<float>(Softmax{}, {row.data(), 1, 3}, MatrixView<float>(of_row.data(), 1, 3));
  apply(Softmax{}, ArrayView<const float>(row.data(), {4, 3}, {0, 1}), ArrayView<float>(p.data(), {4, 3}), -1);
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_EQ(p[i], of_row[i % 3]);
  apply(Softmax{}, ArrayView<const float>(row.data(), {3, 4}, {1, 0}), ArrayView<float>(p.data(), {3, 4}), 0);
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_EQ(p[i], of_row[i / 4]);
  // Equal scores along the axis that repeats.
  apply(Softmax{}, ArrayView<const float>(row.data(), {3, 4}, {1, 0}), ArrayView<float>(p.data(), {3, 4}), 1);
  for (const float one : p) EXPECT_EQ(one, 0.25F);
}

TEST(Array, MayLieInTheGapsOfAnother) {
  std::vector<double> memory(40), p(10);
  for (std::size_t i = 0; i < 40; ++i) memory[i] = 0.3 * static_cast<double>(i * i % 11);
  const ArrayView<const double> x(memory.data(), {2, 5}, {20, 2});
  apply(Softmax{}, x, ArrayView<double>(p.data(), {2, 5}), 1);
  const ArrayView<double> between(memory.data() + 1, {2, 5}, {20, 2});
  apply(Softmax{}, x, between, 1);
  for_each_index({2, 5}, 1, [&](const Sizes& index, std::size_t row, std::size_t col) {
    EXPECT_EQ(at(between, index), p[row * 5 + col]);
  });
}

TEST(Array, RefusesWhatDoesNotFit) {
  std::vector<float> memory(64, 1), out(64, -7);
  const ArrayView<float> x(memory.data(), {2, 3}), p(out.data(), {2, 3});
  const auto refused = [&](const std::string& text, const auto& call) {
    expect_error(text, call);
    for (const float one : out) ASSERT_EQ(one, -7);
  };
  refused("softmax: axis must be in [-2, 1], got 2", [&] { apply(Softmax{}, x, p, 2); });
  refused("softmax: x must have at least one axis, got a single number",
          [&] { apply(Softmax{}, ArrayView<const float>(memory.data(), Sizes()), ArrayView<float>(out.data(), Sizes()), 0); });
  refused("softmax: p must have the shape of x, where x is (2, 3), got (3, 2)", [&] {
    apply(Softmax{}, x, ArrayView<float>(out.data(), {3, 2}), 0);
  });
  refused("softmax: x must have as many strides as axes, 2, got 1", [&] {
    apply(Softmax{}, ArrayView<const float>(memory.data(), {2, 3}, {3}), p, 0);
  });
  refused("softmax: x must point to numbers of shape (2, 3), got a null pointer", [&] {
    apply(Softmax{}, ArrayView<const float>(nullptr, {2, 3}), p, 0);
  });
  refused("softmax: x must have sizes of at least 0, got -2", [&] {
    apply(Softmax{}, ArrayView<const float>(memory.data(), {-2, 3}), p, 0);
  });
  refused("softmax: x must have at most 64 axes, got 65",
          [&] { apply(Softmax{}, ArrayView<const float>(memory.data(), Sizes(65, 1)), p, 0); });
  refused("softmax: temperature must be above 0 and finite, got 0", [&] { apply(Softmax{.temperature = 0}, x, p, 0); });
  const std::vector<double> alpha = {1.5, 1.5, -1};
  const PerRow given[] = {{"alpha", alpha}};
  refused("entmax: alpha of row 2 must be above 0 and finite, got -1", [&] { apply(Entmax{}, x, p, 0, given); });
  refused("entmax: alpha must have one value for each of 2 rows, got 3", [&] { apply(Entmax{}, x, p, 1, given); });
}

TEST(Array, RefusesOverlap) {
  std::vector<float> memory(64, 1);
  const std::string text = "softmax: p must be x itself or share no memory with it, got arrays that overlap in part";
  const ArrayView<float> x(memory.data(), {3, 4});
  const auto refused = [&](const ArrayView<float>& p) {
    const std::vector<float> before = memory;
    expect_error(text, [&] { apply(Softmax{}, x, p, 0); });
    EXPECT_EQ(memory, before);
  };
  refused({memory.data() + 1, {3, 4}});
  refused({memory.data() + 11, {3, 4}});
  refused({memory.data(), {3, 4}, {1, 3}});         // the same memory, another order
  refused({memory.data() + 11, {3, 4}, {-4, -1}});  // backwards
  apply(Softmax{}, x, ArrayView<float>(memory.data() + 12, {3, 4}), 0);
  apply(Softmax{}, x, x, 0);
  expect_error("softmax: p must have a place for each of its numbers, got strides that meet", [&] {
    apply(Softmax{}, x, ArrayView<float>(memory.data() + 20, {3, 4}, {0, 1}), 0);
  });
  expect_error("softmax_vjp: dx must be g itself or share no memory with it, got arrays that overlap in part", [&] {
    const ArrayView<float> g(memory.data() + 24, {3, 4});
    apply_vjp(Softmax{}, x, x, g, ArrayView<float>(memory.data() + 30, {3, 4}), 1);
  });
}

// What functions that name rows say, whatever the blocks and the order in which rows were taken.
TEST(StridedRows, NameRowsByTheirIndex) {
  std::vector<double> memory(std::size_t{300} * 40 * 50, 1);
  const Sizes shape = {300, 40, 50}, strides = {1, 300, 12000};  // the last axis is the slowest
  const StridedArray array = {reinterpret_cast<char*>(memory.data()), shape, strides, sizeof(double), sizeof(double)};
  const RowArgument arguments[] = {{.name = "x", .array = array}};
  memory[200 + 300 * 7 + 12000 * 3] = memory[250 + 300 * 2] = -1;
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    for (const RowOrder order : {RowOrder::by_index, RowOrder::free}) {
      const std::size_t expected = axis == 0 ? 2 * 50 : axis == 1 ? 200 * 50 + 3 : 200 * 40 + 7;
      const StridedRows rows("test", arguments, axis, order);
      try {
        rows.for_blocks([](const RowBlock* blocks, std::size_t) {
          for (std::size_t r = 0; r < blocks[0].rows; ++r) {
            const auto x = blocks[0].matrix<const double>();
            if (*std::min_element(x.row(r), x.row(r) + x.cols) < 0) throw std::invalid_argument(std::to_string(r));
          }
        });
        FAIL() << "accepted";
      } catch (const std::invalid_argument& error) {
        EXPECT_EQ(error.what(), std::to_string(expected)) << axis;
      }
    }
  }
}

// Arrays that a kernel can read are not copied.
TEST(StridedRows, AreReadInPlace) {
  std::vector<float> memory(2 * 3 * 4 * 5);
  const auto calls = [&](const Sizes& shape, const Sizes& strides, std::size_t axis, RowOrder order) {
    const StridedArray array = {reinterpret_cast<char*>(memory.data()), shape, strides, sizeof(float), sizeof(float)};
    const RowArgument arguments[] = {{.name = "x", .array = array}};
    bool inside = true;
    StridedRows("test", arguments, axis, order).for_blocks([&](const RowBlock* blocks, std::size_t) {
      const auto* const data = static_cast<const float*>(blocks[0].data);
      inside &= std::less_equal<>()(memory.data(), data) && std::less<>()(data, memory.data() + memory.size());
    });
    return inside;
  };
  EXPECT_TRUE(calls({2, 3, 4, 5}, {60, 20, 5, 1}, 3, RowOrder::by_index));
  EXPECT_TRUE(calls({2, 3, 4, 4}, {60, 20, 5, 1}, 3, RowOrder::by_index));  // a column is left out
  EXPECT_TRUE(calls({4, 3, 2, 5}, {5, 20, 60, 1}, 3, RowOrder::free));      // rows in another order
  EXPECT_FALSE(calls({4, 3, 2, 5}, {5, 20, 60, 1}, 3, RowOrder::by_index));
  EXPECT_TRUE(calls({5, 24}, {1, 5}, 0, RowOrder::by_index));  // transposed
  EXPECT_FALSE(calls({24, 5}, {5, 1}, 0, RowOrder::by_index));
  EXPECT_FALSE(calls({24, 5}, {0, 1}, 1, RowOrder::by_index));  // one row for all
}

}  // namespace
}  // namespace entropic

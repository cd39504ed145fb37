// Maps, measures and losses along any axis of arrays with any strides give the same bits as for these rows in a matrix.

#include "isentropic/array_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "isentropic/strided_rows.h"
#include "tests/support/expect_error.h"

namespace isentropic {
namespace {

using support::expect_error;
using Sizes = std::vector<std::ptrdiff_t>;

// An array with its own memory and a given layout.
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

// So large that more than one block of rows is copied.
TYPED_TEST(Arrays, MayBeLarge) {
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    compare<TypeParam>(Sparsemax{}, {60, 40, 70}, axis, false);
  }
}

// Measures and losses of arrays laid out differently, against those of matrices.
template <class T>
class Reduced {
 public:
  Reduced(const Sizes& shape, std::size_t axis)
      : shape_(shape), axis_(axis), random_(static_cast<unsigned>(product(shape)) + static_cast<unsigned>(axis)) {
    lead_ = shape;
    lead_.erase(lead_.begin() + static_cast<std::ptrdiff_t>(axis));
    cols_ = static_cast<std::size_t>(shape[axis]), rows_ = static_cast<std::size_t>(product(lead_));
  }

  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  std::vector<T> scores() {
    std::normal_distribution<float> normal;
    std::vector<T> x(rows_ * cols_);
    for (T& one : x) one = T(3 * normal(random_));
    return x;
  }
  MatrixView<T> matrix(std::vector<T>& a) const { return {a.data(), rows_, cols_}; }

  // Calls of_arrays(in, classes, value, dx, dy), whose outputs must be those given. `in` are laid out as they come.
  template <class Call>
  void check(const std::vector<std::vector<T>>& in, const std::vector<std::int64_t>& classes, const std::vector<double>& value,
             const std::vector<T>& dx, const std::vector<T>& dy, const Call& of_arrays) {
    for (int layout = 0; layout < 6; ++layout) {
      std::vector<Owned<T>> arrays;
      for (int k = 0; k < 4; ++k)
        arrays.push_back(laid_out<T>(shape_, order(shape_.size(), layout), (layout + k) % 3, k % 2 == layout % 2));
      auto numbers = laid_out<double>(lead_, order(lead_.size(), layout), layout % 2, layout == 3);
      auto labels = laid_out<std::int64_t>(lead_, order(lead_.size(), layout), layout % 3, layout == 4);
      const auto each = [&](const auto& f) { for_each_index(shape_, axis_, f); };
      const auto of_row = [&](const auto& array, Sizes index) -> auto& {
        index.erase(index.begin() + static_cast<std::ptrdiff_t>(axis_));
        return at(array.view, index);
      };
      each([&](const Sizes& index, std::size_t row, std::size_t col) {
        for (std::size_t k = 0; k < in.size(); ++k) at(arrays[k].view, index) = in[k][row * cols_ + col];
        if (!classes.empty()) of_row(labels, index) = classes[row];
      });
      of_arrays(std::array{arrays[0].view, arrays[1].view}, labels.view, numbers.view, arrays[2].view, arrays[3].view);
      each([&](const Sizes& index, std::size_t row, std::size_t col) {
        ASSERT_TRUE(same_bits(of_row(numbers, index), value[row])) << "row " << row << " layout " << layout;
        if (!dx.empty()) {
          ASSERT_TRUE(same_bits(at(arrays[2].view, index), dx[row * cols_ + col])) << row << " layout " << layout;
        }
        if (!dy.empty()) {
          ASSERT_TRUE(same_bits(at(arrays[3].view, index), dy[row * cols_ + col])) << row << " layout " << layout;
        }
      });
    }
  }

 private:
  std::vector<std::size_t> order(std::size_t axes, int layout) {
    std::vector<std::size_t> all(axes);
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (layout > 1) std::shuffle(all.begin(), all.end(), random_);
    return all;
  }

  Sizes shape_, lead_;
  std::size_t axis_, rows_, cols_;
  std::mt19937 random_;
};

template <class T>
void compare_reductions(const Sizes& shape, std::size_t axis) {
  Reduced<T> a(shape, axis);
  const auto along = static_cast<std::ptrdiff_t>(axis);
  const std::size_t rows = a.rows(), count = rows * a.cols();
  std::vector<T> x = a.scores(), y = a.scores(), dx(count), dy(count);
  std::vector<double> value(rows), alpha(rows), slope(rows), slope_of_arrays(rows);
  for (std::size_t r = 0; r < rows; ++r) alpha[r] = 1.1 + 0.8 * static_cast<double>(r) / static_cast<double>(rows);
  std::vector<std::int64_t> classes(rows);
  for (std::size_t r = 0; r < rows && a.cols() > 0; ++r) classes[r] = static_cast<std::int64_t>(r * 5 % a.cols());
  const PerRow per_row[] = {{"alpha", alpha}};
  const ParamGradient asked[] = {{"alpha", slope}}, asked_of_arrays[] = {{"alpha", slope_of_arrays}};

  const Measure renyi = RenyiEntropy{.input = Input::scores}, entropy = Entropy{.input = Input::scores};
  measure<T>(renyi, a.matrix(x), value, a.matrix(dx), per_row, asked);
  a.check({x}, {}, value, dx, {}, [&](const auto& in, const auto&, const auto& to, const auto& to_dx, const auto&) {
    measure<T>(renyi, in[0], to, along, to_dx, per_row, asked_of_arrays);
    for (std::size_t r = 0; r < rows; ++r) ASSERT_TRUE(same_bits(slope[r], slope_of_arrays[r]));  // NaN without a column
  });
  measure<T>(entropy, a.matrix(x), value);
  a.check({x}, {}, value, {}, {}, [&](const auto& in, const auto&, const auto& to, const auto&, const auto&) {
    measure<T>(entropy, in[0], to, along - static_cast<std::ptrdiff_t>(shape.size()));
  });
  const Divergence kl = KlDivergence{.input = Input::scores};
  measure<T>(kl, a.matrix(x), a.matrix(y), value, a.matrix(dx), a.matrix(dy));
  a.check({x, y}, {}, value, dx, dy, [&](const auto& in, const auto&, const auto& to, const auto& to_dx, const auto& to_dy) {
    measure<T>(kl, in[0], in[1], to, along, to_dx, to_dy);
  });
  if (a.cols() == 0) return;
  const Loss entmax = EntmaxLoss{}, jsd = JsdLoss{};
  loss<T>(entmax, a.matrix(x), classes, value, a.matrix(dx), per_row, asked, 0);
  a.check({x}, classes, value, dx, {}, [&](const auto& in, const auto& labels, const auto& to, const auto& to_dx, const auto&) {
    loss<T>(entmax, in[0], labels, to, along, to_dx, per_row, asked_of_arrays, 0);
    ASSERT_EQ(slope, slope_of_arrays);
  });
  loss<T>(jsd, a.matrix(x), a.matrix(y), value, a.matrix(dx));
  a.check({x, y}, {}, value, dx, {}, [&](const auto& in, const auto&, const auto& to, const auto& to_dx, const auto&) {
    loss<T>(jsd, in[0], in[1], to, along, to_dx);
  });
}

TYPED_TEST(Arrays, HaveTheMeasuresAndLossesOfMatrices) {
  const std::vector<Sizes> shapes = {{7}, {1}, {4, 5}, {3, 1, 6}, {2, 3, 4, 5}, {3, 0, 2}};
  for (const Sizes& shape : shapes) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) compare_reductions<TypeParam>(shape, axis);
  }
  compare_reductions<TypeParam>({60, 40, 70}, 1);
}

TEST(Array, EntriesHaveAMeasureEach) {
  const std::vector<double> p = {0.5, 0.25, 0.25, 0.125, 0.5, 0.375};
  std::vector<double> value(6), expected(6);
  measure<double>(SelfInformation{}, {p.data(), 2, 3}, {expected.data(), 2, 3});
  measure<double>(SelfInformation{}, ArrayView<const double>(p.data(), {3, 2}, {1, 3}),
                  ArrayView<double>(value.data(), {3, 2}, {1, 3}), 0);
  EXPECT_EQ(value, expected);
}

// One q for all rows of p, along any axis.
TEST(Array, OneRowIsComparedWithAll) {
  const std::vector<float> p = {0.5, 0.25, 0.25, 0.125, 0.5, 0.375}, q = {0.25, 0.5, 0.25};
  std::vector<double> expected(2), value(2);
  measure<float>(KlDivergence{}, {p.data(), 2, 3}, {q.data(), 1, 3}, expected);
  measure<float>(KlDivergence{}, ArrayView<const float>(p.data(), {2, 3}), ArrayView<const float>(q.data(), {2, 3}, {0, 1}),
                 ArrayView<double>(value.data(), {2}), -1);
  EXPECT_EQ(value, expected);
  measure<float>(KlDivergence{}, ArrayView<const float>(p.data(), {3, 2}, {1, 3}),
                 ArrayView<const float>(q.data(), {3, 2}, {1, 0}), ArrayView<double>(value.data(), {1, 2}), 0);
  EXPECT_EQ(value, expected);
}

TEST(Array, MeasuresAndLossesRefuseWhatDoesNotFit) {
  std::vector<double> memory(24, 0.5), numbers(8);
  const ArrayView<const double> p(memory.data(), {4, 2});
  const ArrayView<double> value(numbers.data(), {4}), dp(memory.data() + 8, {4, 2});
  const std::vector<std::int64_t> targets = {0, 1, 2, 0};
  const ArrayView<const std::int64_t> classes(targets.data(), {4});
  expect_error("entropy: p must have at least one axis, got a single number", [&] {
    measure<double>(Entropy{}, ArrayView<const double>(memory.data(), Sizes()), ArrayView<double>(numbers.data(), Sizes()), 0);
  });
  expect_error("entropy: value must have the shape of p without axis 1, where p is (4, 2), got (3,)",
               [&] { measure<double>(Entropy{}, p, ArrayView<double>(numbers.data(), {3}), 1); });
  expect_error("entropy: dp must share no memory with p, got arrays that overlap", [&] {
    measure<double>(Entropy{}, p, value, 1, ArrayView<double>(memory.data(), {4, 2}));
  });
  expect_error("kl_divergence: dp must share no memory with dq, got arrays that overlap",
               [&] { measure<double>(KlDivergence{}, p, p, value, 1, dp, dp); });
  expect_error("softmax_loss: target must be a class from 0 to 1, got 2 in row 2",
               [&] { loss<double>(SoftmaxLoss{}, p, classes, value, 1); });
  const ParamGradient asked[] = {{"alpha", std::span(numbers).first(3)}};
  expect_error("entmax_loss: alpha must have one entry for each of 4 rows, got 3",
               [&] { loss<double>(EntmaxLoss{}, p, p, value, 1, dp, {}, asked); });
  memory[2 * 2 + 1] = 0.75;
  expect_error("entropy: p must sum to 1 within 1e-06, got 1.25 in row 2 (normalize divides by the sum)",
               [&] { measure<double>(Entropy{}, p, value, 1); });
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
  expect_error("softmax: p must have a separate place for each of its numbers, got strides that overlap", [&] {
    apply(Softmax{}, x, ArrayView<float>(memory.data() + 20, {3, 4}, {0, 1}), 0);
  });
  expect_error("softmax_vjp: dx must be g itself or share no memory with it, got arrays that overlap in part", [&] {
    const ArrayView<float> g(memory.data() + 24, {3, 4});
    apply_vjp(Softmax{}, x, x, g, ArrayView<float>(memory.data() + 30, {3, 4}), 1);
  });
}

// Values of a parameter for each row, and gradients in it, in the outputs; of matrices and of arrays.
TEST(PerRow, RefusesOverlap) {
  std::vector<double> memory(40, 1.5);
  const std::vector<double> before = memory;
  const auto rows = [&](std::size_t first) { return MatrixView<double>(memory.data() + first, 2, 3); };
  const auto column = [&](std::size_t first) { return std::span(memory).subspan(first, 2); };
  const PerRow inside[] = {{"alpha", column(7)}}, apart[] = {{"alpha", column(24)}};
  expect_error("entmax: p must share no memory with alpha, got views that overlap",
               [&] { apply(Entmax{}, rows(0), rows(6), inside); });
  expect_error("entmax: p must share no memory with alpha, got arrays that overlap", [&] {
    apply(Entmax{}, ArrayView<double>(memory.data(), {2, 3}), ArrayView<double>(memory.data() + 6, {2, 3}), 1, inside);
  });
  for (const auto& [first, name] : {std::pair(std::size_t{19}, "dx"), std::pair(std::size_t{1}, "x")}) {
    const ParamGradient asked[] = {{"alpha", column(first)}};
    expect_error("entmax: d_alpha must share no memory with " + std::string(name) + ", got views that overlap",
                 [&] { apply_vjp(Entmax{}, rows(0), rows(6), rows(12), rows(18), apart, asked); });
  }
  EXPECT_EQ(memory, before);
  apply(Entmax{}, rows(0), rows(6), apart);
}

TEST(Array, RefusesAShapeBeyondMemory) {
  std::vector<float> numbers(6);
  constexpr std::ptrdiff_t kLarge = std::ptrdiff_t{1} << 62;
  EXPECT_THROW(ArrayView<float>(numbers, {kLarge, 8}), std::invalid_argument);
  EXPECT_THROW(ArrayView<float>(numbers, {8, kLarge, 1}), std::invalid_argument);
  EXPECT_NO_THROW(ArrayView<float>(numbers, {kLarge, 8, 0}));
  EXPECT_NO_THROW(ArrayView<float>(numbers, {2, 3}));
}

// Messages name rows by their index, for any blocks and any order of processing.
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
}  // namespace isentropic

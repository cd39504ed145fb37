// Attention against its definition: every map, mask, scale and shape; gradients by differences; properties that must not change
// the bits.

#include "isentropic/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "isentropic/threads.h"
#include "tests/oracle/attention.h"
#include "tests/support/expect_error.h"
#include "tests/support/share.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

using support::expect_error;

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr double kEps = std::numeric_limits<T>::epsilon() / 2;

// Numbers with a gap after each row, to test strides.
template <class T>
struct Heads {
  std::size_t batch, heads, rows, cols, gap = 3;
  std::vector<T> values;

  Heads(std::size_t batch_count, std::size_t head_count, std::size_t row_count, std::size_t col_count)
      : batch(batch_count),
        heads(head_count),
        rows(row_count),
        cols(col_count),
        values(batch * heads * (rows + 1) * (cols + gap), T(-77)) {}
  template <class U>
  HeadsView<U> view_as(U* data) const {
    HeadsView<U> view(data, batch, heads, rows, cols);
    view.row_stride = static_cast<std::ptrdiff_t>(cols + gap);
    view.head_stride = view.row_stride * static_cast<std::ptrdiff_t>(rows + 1);
    view.batch_stride = view.head_stride * static_cast<std::ptrdiff_t>(heads);
    return view;
  }
  HeadsView<T> view() { return view_as(values.data()); }
  HeadsView<const T> view() const { return view_as(values.data()); }
  T& at(std::size_t b, std::size_t h, std::size_t r, std::size_t c) { return view().row(b, h, r)[c]; }
  T at(std::size_t b, std::size_t h, std::size_t r, std::size_t c) const { return view().row(b, h, r)[c]; }
  template <class F>
  void for_each(F&& f) {
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t c = 0; c < cols; ++c) f(b, h, r, c);
        }
      }
    }
  }
  oracle::Heads exact() const {
    oracle::Heads result(batch, heads, rows, cols);
    const_cast<Heads*>(this)->for_each(
        [&](auto b, auto h, auto r, auto c) { result.at(b, h, r, c) = static_cast<long double>(at(b, h, r, c)); });
    return result;
  }
};

template <class T>
Heads<T> normal(std::size_t batch, std::size_t heads, std::size_t rows, std::size_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Heads<T> x(batch, heads, rows, cols);
  x.for_each([&](auto b, auto h, auto r, auto c) { x.at(b, h, r, c) = static_cast<T>(normal(random)); });
  return x;
}

// bool has no vector of its own memory.
struct Visible {
  std::unique_ptr<bool[]> values;
  MaskView<bool> view;
};

template <class T>
struct Problem {
  Heads<T> q, k, v;
  Attention options;
  AttentionMask<T> mask;
  oracle::AttentionMask exact_mask;
  Visible visible;
  std::vector<T> additive, sinks;
  std::vector<double> values;  // of number or kappa
  oracle::AttentionQueries exact_queries;
  std::vector<PerRow> per_row;

  Problem(std::size_t batch, std::size_t heads, std::size_t kv_heads, std::size_t m, std::size_t n, std::size_t d,
          std::size_t dv, unsigned seed)
      : q(normal<T>(batch, heads, m, d, seed)),
        k(normal<T>(batch, kv_heads, n, d, seed + 1)),
        v(normal<T>(batch, kv_heads, n, dv, seed + 2)) {}

  // Each key seen with probability 0.7, the first query of each head sees none. Repeated along heads where shared.
  void add_visible(bool shared, unsigned seed) {
    std::mt19937 random(seed);
    const std::size_t b = q.batch, h = shared ? 1 : q.heads, m = q.rows, n = k.rows;
    visible.values = std::make_unique<bool[]>(b * h * m * n);
    for (std::size_t i = 0; i < b * h * m * n; ++i) visible.values[i] = random() % 10 < 7 && i / n % m != 0;
    const auto size = static_cast<std::ptrdiff_t>(m * n);
    mask.visible = {visible.values.get(), size * static_cast<std::ptrdiff_t>(h), shared ? 0 : size,
                    static_cast<std::ptrdiff_t>(n), 1};
    exact_mask.visible.emplace(b, q.heads, m, n);
    q.for_each([&](auto bi, auto hi, auto i, auto) {
      for (std::size_t j = 0; j < n; ++j) exact_mask.visible->at(bi, hi, i, j) = mask.visible.row(bi, hi, i)[j];
    });
  }

  // One row of numbers for all queries of a head, some -inf: key padding and a bias.
  void add_additive(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const std::size_t n = k.rows;
    additive.resize(q.batch * q.heads * n * 2);  // columns two apart
    for (T& a : additive) a = random() % 5 == 0 ? -kInfinity<T> : static_cast<T>(normal(random));
    const auto row = static_cast<std::ptrdiff_t>(2 * n);
    mask.additive = {additive.data(), row * static_cast<std::ptrdiff_t>(q.heads), row, 0, 2};
    exact_mask.additive.emplace(q.batch, q.heads, q.rows, n);
    q.for_each([&](auto b, auto h, auto i, auto) {
      for (std::size_t j = 0; j < n; ++j) {
        exact_mask.additive->at(b, h, i, j) = static_cast<long double>(mask.additive.row(b, h, i)[2 * j]);
      }
    });
  }

  std::size_t queries() const { return q.batch * q.heads * q.rows; }

  // A sink for each query; some are -inf.
  void add_sinks(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < queries(); ++i) {
      sinks.push_back(random() % 7 == 0 ? -kInfinity<T> : static_cast<T>(normal(random)));
      exact_queries.sinks.push_back(static_cast<long double>(sinks.back()));
    }
  }

  // A number for each query in the parameter "number" or "kappa", whichever the scale has.
  void add_values() {
    const bool number = options.scale == Attention::Scale::number;
    for (std::size_t i = 0; i < queries(); ++i) {
      values.push_back(0.3 + 0.4 * static_cast<double>(i % 5) / 5);
      (number ? exact_queries.numbers : exact_queries.kappas).push_back(values.back());
    }
    per_row = {{number ? "number" : "kappa", values}};
  }

  Heads<T> out() const { return {q.batch, q.heads, q.rows, v.cols}; }
  Heads<T> attend(const AttentionDetails<T>& details = {}) const {
    Heads<T> result = out();
    attention(options, q.view(), k.view(), v.view(), result.view(), mask, per_row, details, sinks);
    return result;
  }
  oracle::AttentionScores exact_scores() const {
    return oracle::attention_scores(options, q.exact(), k.exact(), exact_mask, exact_queries);
  }
};

template <class T>
void expect_near(Heads<T>& got, const oracle::Heads& want, double bound, const std::string& what) {
  double worst = 0;
  got.for_each([&](auto b, auto h, auto r, auto c) {
    const double error = std::fabs(static_cast<double>(static_cast<long double>(got.at(b, h, r, c)) - want.at(b, h, r, c)));
    worst = error <= worst ? worst : error;  // NaN stays
  });
  EXPECT_LE(worst, bound) << what;
  const auto gap = got.view().row(0, 0, 0) + got.cols;
  if (got.rows > 0) {
    EXPECT_EQ(*gap, T(-77)) << what << ": wrote between rows";
  }
}

struct Shape {
  std::size_t batch, heads, kv_heads, m, n, d, dv;
};

const Shape kShapes[] = {{1, 1, 1, 1, 1, 1, 1},    {2, 2, 1, 5, 7, 3, 2},     {1, 4, 2, 3, 130, 16, 5},
                         {1, 1, 1, 50, 50, 8, 17}, {1, 2, 2, 49, 65, 64, 64}, {1, 1, 1, 100, 131, 33, 70},
                         {1, 2, 1, 7, 3, 4, 4},    {1, 1, 1, 6, 64, 20, 48}};

// The factor by which a map magnifies an error of its scores; it is larger for maps that solve for a parameter.
template <class Op>
double sensitivity() {
  return Described<Op>::kLaws.entropy_target ? 30 : 2;
}

template <class T>
class AttentionTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionTest, Types);

TYPED_TEST(AttentionTest, EveryMapMaskScaleAndShape) {
  using T = TypeParam;
  unsigned seed = 0;
  for (const Shape& shape : kShapes) {
    for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
      for (int kind = 0; kind < 10; ++kind, ++seed) {
        if (shape.m * shape.n > 1000 && (seed / 10 + static_cast<unsigned>(kind)) % 4 != 0) continue;  // the oracle takes long
        Problem<T> problem(shape.batch, shape.heads, shape.kv_heads, shape.m, shape.n, shape.d, shape.dv, seed);
        problem.options.map = typical<Op>();
        problem.options.causal = kind % 2 == 1;
        problem.options.scale = static_cast<Attention::Scale>(kind % 4);
        problem.options.number = 0.3;
        problem.options.train_length = 20;
        if (kind == 5 || kind == 6) problem.options.kappa = 0.9;
        if (kind == 2 || kind == 3 || kind == 9) problem.add_visible(kind == 3, seed);
        if (kind == 3 || kind == 4 || kind == 7) problem.add_additive(seed);
        if (kind >= 6) problem.add_sinks(seed);
        if (kind == 4 || kind == 7 || kind == 8) problem.options.softcap = 1.5;
        if (kind == 3 || kind == 7 || kind >= 9) problem.add_values();
        // Maps that are discontinuous in the scores: a cut that changes by rounding is not an error.
        constexpr bool kCuts =
            std::is_same_v<Op, TopKSoftmax> || std::is_same_v<Op, TopPSoftmax> || std::is_same_v<Op, MinPSoftmax>;
        if (kCuts && sizeof(T) == 4 && shape.n > 60) continue;
        const auto exact = problem.exact_scores();
        const oracle::Heads want = oracle::attention(exact, problem.v.exact());
        // Scores up to 4 sqrt(d), each a sum of d products.
        const double scores = kEps<T> * static_cast<double>(shape.d + 8) * 4;
        const double own = sizeof(T) == 4 ? Described<Op>::kLaws.float_error : Described<Op>::kLaws.double_error;
        const double bound = 4 * (scores * sensitivity<Op>() + 40 * kEps<T>)+8 * own;
        const std::string what = std::string(Described<Op>::kDescription.name) + " kind " + std::to_string(kind) + " n " +
                                 std::to_string(shape.n) + " m " + std::to_string(shape.m) + " d " + std::to_string(shape.d);
        support::for_each_target([&](const std::string&) {
          Heads<T> got = problem.attend();
          expect_near(got, want, bound, what);
          Heads<T> weights(shape.batch, shape.heads, shape.m, shape.n);
          std::vector<T> entropy(shape.batch * shape.heads * shape.m);
          const Heads<T> again = problem.attend({weights.view(), entropy});
          EXPECT_EQ(got.values, again.values) << what;
          expect_near(weights, exact.p, bound, what + " weights");
          for (std::size_t i = 0; i < entropy.size(); ++i) {
            EXPECT_NEAR(entropy[i], static_cast<double>(exact.entropy.values[i]), 20 * bound) << what;
          }
        });
      }
    });
  }
}

// <g, out> + <g_entropy, entropy> by central differences in long double, against the gradient.
TYPED_TEST(AttentionTest, GradientsByDifferences) {
  using T = TypeParam;
  unsigned seed = 1000;
  for (const Shape& shape : {Shape{2, 2, 1, 5, 6, 3, 2}, Shape{1, 1, 1, 50, 5, 4, 3}}) {
    for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
      for (int kind = 0; kind < 8; ++kind, ++seed) {
        if (shape.m > 10 && kind != 2 && kind != 6) continue;
        Problem<T> problem(shape.batch, shape.heads, shape.kv_heads, shape.m, shape.n, shape.d, shape.dv, seed);
        problem.options.map = typical<Op>();
        problem.options.causal = kind == 1;
        if (kind == 2 || kind == 7) problem.options.scale = Attention::Scale::entropy_invariant;
        if (kind == 5) problem.options.scale = Attention::Scale::number;
        if (kind == 6) problem.options.scale = Attention::Scale::log_n;
        if (kind == 2 || kind == 6) problem.add_visible(false, seed);
        if (kind == 3 || kind == 7) problem.add_additive(seed);
        if (kind == 3 || kind == 6) problem.options.softcap = 0.8;
        if (kind >= 4 && kind <= 6) problem.add_sinks(seed);
        if (kind >= 5) problem.add_values();
        const std::size_t queries = problem.queries();
        std::vector<T> dsinks(problem.sinks.size());
        std::vector<double> dvalues(problem.values.size());
        std::vector<ParamGradient> gradients;
        if (kind >= 5) gradients.push_back({problem.per_row[0].parameter, dvalues});
        const Heads<T> g = normal<T>(shape.batch, shape.heads, shape.m, shape.dv, seed + 3);
        Heads<T> dq(shape.batch, shape.heads, shape.m, shape.d), dk(shape.batch, shape.kv_heads, shape.n, shape.d),
            dv(shape.batch, shape.kv_heads, shape.n, shape.dv);
        const Heads<T> of_entropy = normal<T>(shape.batch, shape.heads, shape.m, 1, seed + 4);
        std::vector<T> g_entropy;
        for (std::size_t i = 0; i < queries; ++i) {
          g_entropy.push_back(of_entropy.at(i / shape.m / shape.heads, i / shape.m % shape.heads, i % shape.m, 0));
        }
        attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), dq.view(), dk.view(),
                      dv.view(), problem.mask, problem.per_row, gradients, g_entropy, problem.sinks, dsinks);
        oracle::Heads q = problem.q.exact(), k = problem.k.exact(), v = problem.v.exact();
        const oracle::Heads weight = g.exact();
        oracle::AttentionQueries of_queries = problem.exact_queries;
        const auto value = [&] {
          const auto scores = oracle::attention_scores(problem.options, q, k, problem.exact_mask, of_queries);
          const oracle::Heads out = oracle::attention(scores, v);
          long double sum = 0;
          for (std::size_t i = 0; i < out.values.size(); ++i) sum += out.values[i] * weight.values[i];
          for (std::size_t i = 0; i < g_entropy.size(); ++i) {
            sum += scores.entropy.values[i] * static_cast<long double>(g_entropy[i]);
          }
          return sum;
        };
        const auto check_entry = [&](long double& entry, double slope, const std::string& name) {
          const long double before = entry, step = 1e-6L;
          entry = before + step;
          const long double above = value();
          entry = before - step;
          const long double below = value();
          entry = before;
          const double want = static_cast<double>((above - below) / (2 * step));
          EXPECT_NEAR(slope, want, (sizeof(T) == 4 ? 2e-4 : 2e-7) * (1 + std::fabs(want)))
              << Described<Op>::kDescription.name << " " << name << " kind " << kind << " m " << shape.m;
        };
        const auto check = [&](oracle::Heads& x, Heads<T>& dx, const char* name) {
          std::mt19937 random(seed);
          for (int sample = 0; sample < 3; ++sample) {
            const std::size_t b = random() % dx.batch, h = random() % dx.heads, r = random() % dx.rows, c = random() % dx.cols;
            check_entry(x.at(b, h, r, c), dx.at(b, h, r, c), name);
          }
        };
        check(q, dq, "dq"), check(k, dk, "dk"), check(v, dv, "dv");
        for (std::size_t i = 0; i < queries; i += 1 + queries / 3) {
          if (!problem.sinks.empty()) check_entry(of_queries.sinks[i], static_cast<double>(dsinks[i]), "dsinks");
          if (kind == 5) check_entry(of_queries.numbers[i], dvalues[i], "dnumber");
          if (kind > 5) check_entry(of_queries.kappas[i], dvalues[i], "dkappa");
        }
      }
    });
  }
}

TYPED_TEST(AttentionTest, AlphaForEachQueryAndItsGradient) {
  using T = TypeParam;
  Problem<T> problem(1, 2, 1, 60, 9, 4, 3, 5);
  problem.options.map = Entmax{};
  std::vector<double> alpha(120), dalpha(120);
  for (std::size_t i = 0; i < alpha.size(); ++i) alpha[i] = 1.1 + 0.007 * static_cast<double>(i);
  const std::vector<PerRow> per_row = {{"alpha", alpha}};
  Heads<T> out = problem.out();
  attention(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), out.view(), problem.mask, per_row);
  const Heads<T> g = normal<T>(1, 2, 60, 3, 6);
  Heads<T> dq(1, 2, 60, 4), dk(1, 1, 9, 4), dv(1, 1, 9, 3);
  const std::vector<ParamGradient> gradients = {{"alpha", dalpha}};
  attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), dq.view(), dk.view(),
                dv.view(), problem.mask, per_row, gradients);
  for (const std::size_t i : {0u, 7u, 47u, 48u, 61u, 119u}) {
    const std::size_t h = i / 60, r = i % 60;
    const auto value = [&](double a) {
      Attention options = problem.options;
      options.map = Entmax{.alpha = a};
      const auto exact = oracle::attention_scores(options, problem.q.exact(), problem.k.exact(), {});
      return oracle::attention(exact, problem.v.exact());
    };
    const auto here = value(alpha[i]), above = value(alpha[i] + 1e-6), below = value(alpha[i] - 1e-6);
    long double want = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(out.at(0, h, r, c), static_cast<double>(here.at(0, h, r, c)), 200 * kEps<T>);
      want += (above.at(0, h, r, c) - below.at(0, h, r, c)) / 2e-6L * static_cast<long double>(g.at(0, h, r, c));
    }
    EXPECT_NEAR(dalpha[i], static_cast<double>(want), sizeof(T) == 4 ? 1e-4 : 1e-6);
  }
}

// What is hidden may hold anything, and a NaN stays with its query: other results have the same bits.
TYPED_TEST(AttentionTest, HiddenKeysAndNaN) {
  using T = TypeParam;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    Problem<T> problem(1, 1, 1, 60, 60, 5, 6, 9);
    problem.options.map = typical<Op>();
    problem.options.causal = true;
    Heads<T> g = normal<T>(1, 1, 60, 6, 10);
    const auto gradients = [&] {
      std::vector<Heads<T>> d = {{1, 1, 60, 5}, {1, 1, 60, 5}, {1, 1, 60, 6}};
      attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), d[0].view(), d[1].view(),
                    d[2].view(), problem.mask);
      return d;
    };
    const Heads<T> clean = problem.attend();
    const auto clean_gradients = gradients();
    const auto expect_same = [](const Heads<T>& got, const Heads<T>& want, std::size_t r, std::size_t c) {
      EXPECT_EQ(got.at(0, 0, r, c), want.at(0, 0, r, c)) << Described<Op>::kDescription.name << " row " << r << " column " << c;
    };
    // A query that is NaN, or has a gradient that is, reaches the gradients of the keys that it sees, and no others.
    for (Heads<T>* const input : {&problem.q, &g}) {
      const T kept = input->at(0, 0, 20, 3);
      input->at(0, 0, 20, 3) = kNaN<T>;
      const auto got = gradients();
      input->at(0, 0, 20, 3) = kept;
      for (std::size_t r = 0; r < 60; ++r) {
        for (std::size_t c = 0; c < 5 && r != 20; ++c) expect_same(got[0], clean_gradients[0], r, c);
        for (const std::size_t k : {1, 2}) {
          for (std::size_t c = 0; c < got[k].cols && r > 20; ++c) expect_same(got[k], clean_gradients[k], r, c);
          if (r <= 20 && input == &problem.q)
            EXPECT_TRUE(std::isnan(got[k].at(0, 0, r, 1))) << Described<Op>::kDescription.name << r;
        }
      }
    }
    // A value that is NaN reaches the column of the queries that see it.
    const T kept = problem.v.at(0, 0, 40, 0);
    for (const T value : {kNaN<T>, -kInfinity<T>}) {
      problem.v.at(0, 0, 40, 0) = value;
      const Heads<T> got = problem.attend();
      const auto of_a_value = gradients();
      problem.v.at(0, 0, 40, 0) = kept;
      for (std::size_t r = 0; r < 60; ++r) {
        for (std::size_t c = r < 40 ? 0 : 1; c < 6; ++c) expect_same(got, clean, r, c);
        for (std::size_t c = 0; c < 5 && r < 40; ++c) expect_same(of_a_value[0], clean_gradients[0], r, c);
        for (std::size_t c = 0; c < 6; ++c) expect_same(of_a_value[2], clean_gradients[2], r, c);
      }
    }
    for (std::size_t c = 0; c < 5; ++c) problem.k.at(0, 0, 40, c) = kNaN<T>;
    for (std::size_t c = 0; c < 6; ++c) problem.v.at(0, 0, 40, c) = c % 2 == 0 ? kNaN<T> : kInfinity<T>;
    Heads<T> got = problem.attend();
    const auto got_gradients = gradients();
    got.for_each([&](auto, auto, auto r, auto c) {
      if (r >= 40) {
        EXPECT_TRUE(std::isnan(got.at(0, 0, r, c))) << Described<Op>::kDescription.name << r;
      } else {
        expect_same(got, clean, r, c);
        if (c < 5) expect_same(got_gradients[0], clean_gradients[0], r, c);
      }
    });
    // Key 59 is seen by a query that is NaN, key 39 too.
    EXPECT_TRUE(std::isnan(got_gradients[2].at(0, 0, 39, 0)));
  });
}

// Gradients that are NaN because a query sees a value that is, stay with the keys that it sees.
TYPED_TEST(AttentionTest, GradientsBesideValuesThatAreNaN) {
  using T = TypeParam;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    Problem<T> problem(1, 1, 1, 4, 30, 5, 6, 9);
    problem.options.map = typical<Op>();
    const Heads<T> g = normal<T>(1, 1, 4, 6, 10);
    // Query 2 sees the keys up to 14, the others those from 15 on.
    bool visible[4 * 30];
    for (std::size_t i = 0; i < 4 * 30; ++i) visible[i] = (i / 30 == 2) == (i % 30 < 15);
    problem.mask.visible = {visible, 0, 0, 30, 1};
    const auto results = [&] {
      std::vector<Heads<T>> d = {problem.attend(), {1, 1, 4, 5}, {1, 1, 30, 5}, {1, 1, 30, 6}};
      attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), d[1].view(), d[2].view(),
                    d[3].view(), problem.mask);
      return d;
    };
    const auto want = results();
    for (std::size_t j = 0; j < 15; ++j) problem.v.at(0, 0, j, 1) = kNaN<T>;
    const auto got = results();
    EXPECT_TRUE(std::isnan(got[0].at(0, 0, 2, 1)));
    for (std::size_t k = 0; k < 4; ++k) {
      for (std::size_t r = 0; r < got[k].rows; ++r) {
        for (std::size_t c = 0; c < got[k].cols; ++c) {
          if (k < 2 ? r != 2 : r >= 15)
            EXPECT_EQ(got[k].at(0, 0, r, c), want[k].at(0, 0, r, c))
                << Described<Op>::kDescription.name << " " << k << " row " << r;
        }
      }
    }
  });
}

// A key that a mask hides from every query may hold anything: it changes nothing and gets no gradient.
TYPED_TEST(AttentionTest, KeysThatAMaskHides) {
  using T = TypeParam;
  constexpr std::size_t m = 7, n = 70, d = 5, dv = 6;
  const auto is_hidden = [](std::size_t j) { return j % 6 == 2; };
  bool visible[n];
  T additive[n];
  for (std::size_t j = 0; j < n; ++j) visible[j] = !is_hidden(j), additive[j] = is_hidden(j) ? -kInfinity<T> : T(0.5);
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    for (const bool by_number : {false, true}) {
      Problem<T> problem(1, 1, 1, m, n, d, dv, 9);
      problem.options.map = typical<Op>();
      if (by_number) {
        problem.mask.additive = {additive, 0, 0, 0, 1};
      } else {
        problem.mask.visible = {visible, 0, 0, 0, 1};
      }
      const Heads<T> g = normal<T>(1, 1, m, dv, 10);
      const auto results = [&](T hidden) {
        for (std::size_t j = 0; j < n; ++j) {
          for (std::size_t c = 0; is_hidden(j) && c < d; ++c) problem.k.at(0, 0, j, c) = hidden;
          for (std::size_t c = 0; is_hidden(j) && c < dv; ++c) problem.v.at(0, 0, j, c) = hidden;
        }
        std::vector<Heads<T>> all = {{1, 1, m, d}, {1, 1, n, d}, {1, 1, n, dv}, problem.attend()};
        attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), all[0].view(),
                      all[1].view(), all[2].view(), problem.mask);
        return all;
      };
      auto want = results(0);
      for (const T hidden : {kNaN<T>, kInfinity<T>, -kInfinity<T>, std::numeric_limits<T>::max()}) {
        auto got = results(hidden);
        for (std::size_t k = 0; k < got.size(); ++k) {
          got[k].for_each([&](auto, auto, auto r, auto c) {
            const T found = got[k].at(0, 0, r, c), expected = want[k].at(0, 0, r, c);
            if ((k == 1 || k == 2) && is_hidden(r)) {
              EXPECT_EQ(found, 0) << Described<Op>::kDescription.name << " " << k << " key " << r;
            } else {
              EXPECT_EQ(found, expected) << Described<Op>::kDescription.name << " " << k << " row " << r << " " << hidden;
            }
          });
        }
      }
    }
  });
}

// Blocks of keys in which no query of a tile has mass are left out of products. The first query sees all keys, and has mass in
// all of them: without it the others, which have mass in few blocks, have the same bits.
TYPED_TEST(AttentionTest, BlocksWithoutMass) {
  using T = TypeParam;
  constexpr std::size_t m = 6, n = 700, d = 8, dv = 5;
  bool visible[m * n];
  for (std::size_t i = 0; i < m * n; ++i) {
    const std::size_t first = 90 * (i / n) + 30;
    visible[i] = i < n || (i % n >= first && i % n < first + 60);
  }
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    for (const bool masked : {false, true}) {
      Problem<T> problem(1, 1, 1, m, n, d, dv, 9);
      problem.options.map = typical<Op>();
      problem.options.softcap = 50;
      problem.add_sinks(9);
      Heads<T> g = normal<T>(1, 1, m, dv, 10);
      problem.q.for_each([&](auto, auto, auto r, auto c) { problem.q.at(0, 0, r, c) *= r == 0 ? T(0) : T(10); });
      for (std::size_t c = 0; c < dv; ++c) g.at(0, 0, 0, c) = 0;
      const auto results = [&](std::size_t first) {
        const std::size_t queries = m - first;
        const auto rest = [&](const Heads<T>& x) {
          HeadsView<const T> view = x.view();
          view.data = view.row(0, 0, first), view.rows = queries;
          return view;
        };
        AttentionMask<T> mask;
        if (masked) mask.visible = {visible + first * n, 0, 0, static_cast<std::ptrdiff_t>(n), 1};
        const auto sinks = std::span<const T>(problem.sinks).subspan(first);
        std::vector<Heads<T>> all = {{1, 1, queries, dv}, {1, 1, queries, d}, {1, 1, n, d}, {1, 1, n, dv}};
        attention(problem.options, rest(problem.q), problem.k.view(), problem.v.view(), all[0].view(), mask, {}, {}, sinks);
        attention_vjp(problem.options, rest(problem.q), problem.k.view(), problem.v.view(), rest(g), all[1].view(),
                      all[2].view(), all[3].view(), mask, {}, {}, {}, sinks);
        return all;
      };
      const auto want = results(0);
      auto got = results(1);
      for (std::size_t k = 0; k < got.size(); ++k) {
        got[k].for_each([&](auto, auto, auto r, auto c) {
          EXPECT_EQ(got[k].at(0, 0, r, c), want[k].at(0, 0, r + (k < 2 ? 1 : 0), c))
              << Described<Op>::kDescription.name << " " << k;
        });
      }
    }
  });
}

TYPED_TEST(AttentionTest, QueriesThatSeeNothing) {
  using T = TypeParam;
  Problem<T> problem(1, 1, 1, 3, 4, 2, 2, 1);
  const T hidden[4] = {-kInfinity<T>, -kInfinity<T>, -kInfinity<T>, -kInfinity<T>};
  problem.mask.additive = {hidden, 0, 0, 0, 1};
  problem.q.at(0, 0, 1, 0) = kNaN<T>;
  problem.v.at(0, 0, 2, 1) = kNaN<T>;
  const Heads<T> got = problem.attend();
  Heads<T> g = normal<T>(1, 1, 3, 2, 3), dq(1, 1, 3, 2), dk(1, 1, 4, 2), dv(1, 1, 4, 2);
  g.at(0, 0, 0, 0) = kInfinity<T>;
  problem.options.map = Entmax{};
  const std::vector<double> alpha = {1.3, 1.5, 2};
  std::vector<double> dalpha(3, 7);
  const std::vector<PerRow> per_row = {{"alpha", alpha}};
  const std::vector<ParamGradient> gradients = {{"alpha", dalpha}};
  attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), dq.view(), dk.view(),
                dv.view(), problem.mask, per_row, gradients);
  EXPECT_EQ(dalpha, std::vector<double>(3, 0));
  for (const auto* x :
       {&got, static_cast<const Heads<T>*>(&dq), static_cast<const Heads<T>*>(&dk), static_cast<const Heads<T>*>(&dv)}) {
    for (std::size_t r = 0; r < x->rows; ++r) {
      for (std::size_t c = 0; c < x->cols; ++c) EXPECT_EQ(x->at(0, 0, r, c), 0);
    }
  }
  // More queries than keys: the first see nothing.
  Problem<T> causal(1, 1, 1, 5, 2, 2, 2, 1);
  causal.options.causal = true;
  const Heads<T> few = causal.attend();
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(few.at(0, 0, r, 0), 0);
  EXPECT_EQ(few.at(0, 0, 3, 0), causal.v.at(0, 0, 0, 0));
  // No keys, no queries, no columns.
  Problem<T> none(1, 2, 1, 2, 0, 3, 2, 1);
  EXPECT_EQ(none.attend().at(0, 1, 1, 1), 0);
  Problem<T>(1, 2, 1, 0, 3, 3, 2, 1).attend();
  Problem<T>(0, 2, 1, 2, 3, 3, 2, 1).attend();
  Problem<T>(1, 2, 1, 2, 3, 3, 0, 1).attend();
}

// One key has weight 1 for any scale; the scale is 0 because log 1 is.
TYPED_TEST(AttentionTest, OneKey) {
  using T = TypeParam;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    Problem<T> problem(1, 1, 1, 4, 1, 3, 2, 1);
    problem.options.map = typical<Op>();
    for (const auto scale : {Attention::Scale::entropy_invariant, Attention::Scale::log_n}) {
      problem.options.scale = scale;
      const Heads<T> got = problem.attend();
      for (std::size_t r = 0; r < 4; ++r)
        EXPECT_EQ(got.at(0, 0, r, 1), problem.v.at(0, 0, 0, 1)) << Described<Op>::kDescription.name;
    }
  });
}

// A sink of -inf is none, one of +inf takes all mass, a NaN makes its query NaN, and a query that sees no key gives zeros.
TYPED_TEST(AttentionTest, SpecialSinks) {
  using T = TypeParam;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    Problem<T> problem(1, 1, 1, 4, 9, 3, 2, 1);
    problem.options.map = typical<Op>();
    const Heads<T> g = normal<T>(1, 1, 4, 2, 8);
    bool visible[4 * 9];
    for (std::size_t i = 0; i < 4 * 9; ++i) visible[i] = i / 9 != 3;
    problem.mask.visible = {visible, 0, 0, 9, 1};
    Heads<T> weights(1, 1, 4, 9);
    std::vector<T> entropy(4), dsinks(4);
    const auto all = [&] {
      std::vector<Heads<T>> d = {{1, 1, 4, 3}, {1, 1, 9, 3}, {1, 1, 9, 2}, problem.attend({weights.view(), entropy})};
      attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), d[0].view(), d[1].view(),
                    d[2].view(), problem.mask, {}, {}, {}, problem.sinks,
                    std::span(dsinks).first(problem.sinks.empty() ? 0 : 4));
      return d;
    };
    const auto without = all();
    const std::vector<T> entropy_without = entropy;
    problem.sinks = {-kInfinity<T>, kInfinity<T>, kNaN<T>, kNaN<T>};
    const auto got = all();
    const char* const name = Described<Op>::kDescription.name.data();
    for (std::size_t c = 0; c < 2; ++c) {
      EXPECT_EQ(got[3].at(0, 0, 0, c), without[3].at(0, 0, 0, c)) << name;
      EXPECT_EQ(got[3].at(0, 0, 1, c), 0) << name;
      EXPECT_TRUE(std::isnan(got[3].at(0, 0, 2, c))) << name;
      EXPECT_EQ(got[3].at(0, 0, 3, c), 0) << name;
    }
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(got[0].at(0, 0, 0, c), without[0].at(0, 0, 0, c)) << name;
      EXPECT_EQ(got[0].at(0, 0, 1, c), 0) << name;
      EXPECT_EQ(got[0].at(0, 0, 3, c), 0) << name;
    }
    for (std::size_t c = 0; c < 9; ++c) EXPECT_TRUE(std::isnan(weights.at(0, 0, 2, c))) << name;
    EXPECT_EQ(entropy[0], entropy_without[0]) << name;
    EXPECT_EQ(entropy[1], 0) << name;
    EXPECT_TRUE(std::isnan(entropy[2])) << name;
    EXPECT_EQ(entropy[3], 0) << name;
    EXPECT_EQ(dsinks[0], 0) << name;
    EXPECT_EQ(dsinks[1], 0) << name;
    EXPECT_EQ(dsinks[3], 0) << name;
  });
}

// The sink loses against keys of the same score where a map cuts by index.
TYPED_TEST(AttentionTest, SinksCompeteInCuts) {
  using T = TypeParam;
  Problem<T> problem(1, 1, 1, 1, 3, 1, 1, 1);
  problem.options.scale = Attention::Scale::number;
  problem.options.map = TopKSoftmax{.k = 2};
  problem.q.at(0, 0, 0, 0) = 1;
  const auto weights = [&](std::vector<T> scores, T sink) {
    for (std::size_t j = 0; j < 3; ++j) problem.k.at(0, 0, j, 0) = scores[j];
    problem.sinks = {sink};
    Heads<T> found(1, 1, 1, 3);
    problem.attend({found.view(), {}});
    return std::vector<T>{found.at(0, 0, 0, 0), found.at(0, 0, 0, 1), found.at(0, 0, 0, 2)};
  };
  EXPECT_EQ(weights({1, 1, 0}, 1), (std::vector<T>{T(0.5), T(0.5), 0}));
  EXPECT_EQ(weights({1, 0, 0}, 1), (std::vector<T>{T(0.5), 0, 0}));
}

// Scores far below and far above the cap, and caps beyond float.
TYPED_TEST(AttentionTest, SoftcapOfAnySize) {
  using T = TypeParam;
  for (const double cap : {1e-300, 1e-40, 1e-3, 0.7, 50.0, 1e20, 1e300}) {
    Problem<T> problem(1, 1, 1, 5, 40, 7, 3, 4);
    for (std::size_t j = 0; j < 40; ++j) {
      for (std::size_t c = 0; c < 7; ++c)
        problem.k.at(0, 0, j, c) *= static_cast<T>(std::pow(10.0, static_cast<double>(j % 12) - 8));
    }
    problem.options.softcap = cap;
    Heads<T> got = problem.attend();
    expect_near(got, oracle::attention(problem.exact_scores(), problem.v.exact()), 400 * kEps<T>, std::to_string(cap));
  }
}

TYPED_TEST(AttentionTest, SameBits) {
  using T = TypeParam;
  for (const Map& map : {Map(Softmax{}), Map(Entmax{}), Map(EntropyNormalize{.entropy = 2.0})}) {
    if (support::kShare > 1 && !std::holds_alternative<Entmax>(map)) continue;
    Problem<T> problem(2, 4, 2, 150, 170, 40, 50, 2);
    problem.options.map = map;
    problem.options.causal = true;
    problem.options.scale = Attention::Scale::log_n;
    problem.options.softcap = 4;
    problem.add_visible(false, 3);
    problem.add_sinks(3);
    problem.add_values();
    const Heads<T> g = normal<T>(2, 4, 150, 50, 8);
    const auto all = [&] {
      std::vector<Heads<T>> d = {{2, 4, 150, 40}, {2, 2, 170, 40}, {2, 2, 170, 50}, problem.attend(), problem.out(),
                                 problem.out(),   {2, 4, 150, 40}, {2, 2, 170, 40}, {2, 2, 170, 50},  {1, 1, 1, 1200}};
      std::vector<double> dkappa(1200);
      const std::vector<ParamGradient> gradients = {{"kappa", dkappa}};
      attention_vjp(problem.options, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), d[0].view(), d[1].view(),
                    d[2].view(), problem.mask, problem.per_row, gradients, {}, problem.sinks,
                    std::span(d[9].values).first(1200));
      for (double& slope : dkappa) d[9].values.push_back(static_cast<T>(slope));
      linear_attention({.causal = true}, problem.q.view(), problem.k.view(), problem.v.view(), d[4].view());
      linear_attention(LinearAttention{}, problem.q.view(), problem.k.view(), problem.v.view(), d[5].view());
      linear_attention_vjp({.causal = true}, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), d[6].view(),
                           d[7].view(), d[8].view());
      return d;
    };
    const auto want = all();
    const auto expect_same = [&](const std::string& what) {
      const auto got = all();
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(std::memcmp(got[i].values.data(), want[i].values.data(), want[i].values.size() * sizeof(T)), 0)
            << what << ", result " << i;
      }
    };
    for (const std::string& target : support::fma_targets()) {
      force_simd_target(target);
      expect_same("target " + target);
    }
    force_simd_target("");
    for (const std::size_t threads : {1, 2, 3}) {
      set_num_threads(threads);
      expect_same("threads " + std::to_string(threads));
    }
    set_num_threads(0);
    // Only one of the heads.
    Heads<T> out(1, 1, 150, 50);
    const auto one = [&](const Heads<T>& x, std::size_t h) {
      HeadsView<const T> view = x.view();
      view.data = view.row(1, h, 0), view.batch = view.heads = 1;
      return view;
    };
    AttentionMask<T> mask = problem.mask;
    mask.visible.data = mask.visible.row(1, 3, 0);
    const std::vector<PerRow> per_row = {{"kappa", std::span(problem.values).subspan(7 * 150)}};
    attention(problem.options, one(problem.q, 3), one(problem.k, 1), one(problem.v, 1), out.view(), mask, per_row, {},
              std::span(problem.sinks).subspan(7 * 150));
    for (std::size_t r = 0; r < 150; ++r) {
      for (std::size_t c = 0; c < 50; ++c) EXPECT_EQ(out.at(0, 0, r, c), want[3].at(1, 3, r, c));
    }
  }
}

// Maps that take several rows at once do so in the memory provided for this.
TYPED_TEST(AttentionTest, ManyKeysAndQueriesAsOneQuery) {
  using T = TypeParam;
  for (const Map& map : {Map(Entmax{}), Map(Entmax{.alpha = 1.7}), Map(EntropyNormalize{.entropy = 2.0})}) {
    Problem<T> problem(1, 1, 1, 50, 1000, 16, 8, 4);
    problem.options.map = map;
    const Heads<T> all = problem.attend();
    for (std::size_t r = 0; r < 50; ++r) {
      HeadsView<const T> q = std::as_const(problem.q).view();
      q.data = q.row(0, 0, r), q.rows = 1;
      Heads<T> one(1, 1, 1, 8);
      attention(problem.options, q, std::as_const(problem.k).view(), std::as_const(problem.v).view(), one.view());
      for (std::size_t c = 0; c < 8; ++c) ASSERT_EQ(one.at(0, 0, 0, c), all.at(0, 0, r, c)) << "query " << r;
    }
  }
}

// Around blocks of 64 and 256 and chunks of 1024 and 2048; more keys than queries, fewer, and none of either.
const Shape kLinearShapes[] = {{1, 1, 1, 1, 1, 1, 1},       {2, 4, 2, 5, 7, 3, 2},       {1, 2, 1, 300, 600, 8, 5},
                               {1, 1, 1, 257, 257, 20, 33}, {1, 1, 1, 9, 4, 3, 3},       {1, 1, 1, 4, 0, 3, 3},
                               {1, 1, 1, 30, 1000, 64, 64}, {1, 1, 1, 1300, 2100, 4, 3}, {1, 1, 1, 2100, 2100, 3, 4},
                               {1, 1, 1, 0, 5, 3, 3}};

TYPED_TEST(AttentionTest, LinearIsTaylorSoftmax) {
  using T = TypeParam;
  support::for_each_target([&](const std::string& target) {
    unsigned seed = 0;
    for (const Shape& shape : kLinearShapes) {
      if (shape.m > 1000) continue;  // by the definition they take seconds
      if (target != simd_targets()[0] && shape.n > 300) continue;
      for (const bool causal : {false, true}) {
        for (const std::optional<double> scale : {std::optional<double>(), std::optional<double>(-0.7)}) {
          Problem<T> problem(shape.batch, shape.heads, shape.kv_heads, shape.m, shape.n, shape.d, shape.dv, ++seed);
          problem.options.map = TaylorSoftmax{};
          problem.options.causal = causal;
          if (scale) problem.options.scale = Attention::Scale::number, problem.options.number = *scale;
          const auto exact = oracle::attention_scores(problem.options, problem.q.exact(), problem.k.exact(), {});
          Heads<T> got = problem.out();
          linear_attention({.scale = scale, .causal = causal}, problem.q.view(), problem.k.view(), problem.v.view(),
                           got.view());
          // t of the header, for normal q and k.
          const double t = (scale ? 0.7 : 1 / std::sqrt(shape.d)) * static_cast<double>(shape.d) * 0.64 + 1;
          expect_near(got, oracle::attention(exact, problem.v.exact()), 60 * kEps<T> * (1 + t + t * t),
                      "n " + std::to_string(shape.n) + " d " + std::to_string(shape.d) + (causal ? " causal" : ""));
        }
      }
    }
  });
}

// Against attention's gradient in float64, which other tests compare with differences.
TYPED_TEST(AttentionTest, LinearGradientIsThatOfTaylorSoftmax) {
  using T = TypeParam;
  support::for_each_target([&](const std::string& target) {
    unsigned seed = 50;
    for (const Shape& shape : kLinearShapes) {
      if ((target != simd_targets()[0] || support::kShare > 1) && shape.n > 300) continue;
      for (const bool causal : {false, true}) {
        const double scale = causal ? 0.4 : -0.3;
        const Problem<T> problem(shape.batch, shape.heads, shape.kv_heads, shape.m, shape.n, shape.d, shape.dv, ++seed);
        const Heads<T> g = normal<T>(shape.batch, shape.heads, shape.m, shape.dv, ++seed);
        Heads<T> dq = problem.q, dk = problem.k, dv = problem.v;
        linear_attention_vjp({.scale = scale, .causal = causal}, problem.q.view(), problem.k.view(), problem.v.view(), g.view(),
                             dq.view(), dk.view(), dv.view());

        const auto wide = [](const Heads<T>& x) {
          Heads<double> result(x.batch, x.heads, x.rows, x.cols);
          result.for_each(
              [&](auto b, auto h, auto r, auto c) { result.at(b, h, r, c) = static_cast<double>(x.at(b, h, r, c)); });
          return result;
        };
        const Heads<double> q = wide(problem.q), k = wide(problem.k), v = wide(problem.v), g64 = wide(g);
        Heads<double> dq64 = q, dk64 = k, dv64 = v;
        const Attention options = {
            .map = TaylorSoftmax{}, .scale = Attention::Scale::number, .number = scale, .causal = causal};
        attention_vjp(options, q.view(), k.view(), v.view(), g64.view(), dq64.view(), dk64.view(), dv64.view());
        Heads<T> out = problem.out();
        Heads<double> out64(shape.batch, shape.heads, shape.m, shape.dv);
        linear_attention({.scale = scale, .causal = causal}, problem.q.view(), problem.k.view(), problem.v.view(), out.view());
        attention(options, q.view(), k.view(), v.view(), out64.view());
        const double t = std::abs(scale) * static_cast<double>(shape.d) * 0.64 + 1;
        const std::string where = "n " + std::to_string(shape.n) + " d " + std::to_string(shape.d) + (causal ? " causal" : "");
        for (auto [got, want] : {std::pair(out, out64), std::pair(dq, dq64), std::pair(dk, dk64), std::pair(dv, dv64)}) {
          double largest = 0;
          for (const double x : want.values) largest = std::max(largest, std::abs(x));
          expect_near(got, want.exact(), 60 * kEps<T> * (1 + t + t * t) * largest, where);
        }
      }
    }
  });
}

template <class T>
Heads<T> heads_of(const std::vector<std::vector<T>>& rows) {
  Heads<T> x(1, 1, rows.size(), rows[0].size());
  x.for_each([&](auto, auto, auto r, auto c) { x.at(0, 0, r, c) = rows[r][c]; });
  return x;
}

// Products of features that cancel or overflow: one query, whose result is known.
TYPED_TEST(AttentionTest, LinearWhereFeaturesCancel) {
  using T = TypeParam;
  struct Case {
    std::vector<T> q;
    std::vector<std::vector<T>> k;
    std::vector<T> v;
    double want;
  };
  const T big = std::sqrt(std::sqrt(std::numeric_limits<T>::max())), most = std::numeric_limits<T>::max() / 2;
  const T inf = kInfinity<T>;
  std::vector<Case> cases = {
      {{big, 0}, {{big, 0}, {2 * big, 1}}, {1, 2}, 1.8},
      {{big, 0}, {{big * big, 0}, {0, 1}}, {1, 2}, 1},
      {{1, 0}, {{inf, 0}, {2, 1}}, {1, 2}, 1},
      {{1, 0}, {{-inf, 0}, {2, 1}}, {1, 2}, 2},
      {{1, 0}, {{-inf, 0}, {2, 1}}, {kNaN<T>, 2}, 2},
      {{1, 0}, {{1, 0}, {1, 1}, {1, 0}, {1, 1}}, {most, most, most, most}, static_cast<double>(most)},
      // 1/mass is no normal number.
      {{big, 0}, {{T(1.5) * big, 1}, {T(1.5) * big, 2}}, {1 / big / big, 3 / big / big}, 2.0 / big / big}};
  for (const T b : {1, 10, 30, 100, 1000, 10000, 100000}) {
    cases.push_back({{b, b}, {{b, -b}, {b, -b}}, {1, 2}, 1.5});
    if (b > 10000) continue;  // the scores would not be exact
    cases.push_back({{3 * b, 4 * b}, {{4 * b, -3 * b}, {8 * b, -6 * b}, {4 * b, -3 * b}, {8 * b, -6 * b}}, {1, 2, 1, 2}, 1.5});
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& one = cases[i];
    std::vector<std::vector<T>> rows;
    for (const T x : one.v) rows.push_back({x});
    const Heads<T> q = heads_of<T>({one.q}), k = heads_of<T>(one.k), v = heads_of<T>(rows), g = heads_of<T>({{2}});
    for (const bool causal : {false, true}) {
      Heads<T> out(1, 1, 1, 1);
      linear_attention({.scale = 1.0, .causal = causal}, q.view(), k.view(), v.view(), out.view());
      EXPECT_NEAR(out.at(0, 0, 0, 0), one.want, 8 * kEps<T> * one.want) << i << (causal ? " causal" : "");
      // Its gradient is that of the quadratic form.
      const Attention options = {.map = TaylorSoftmax{}, .scale = Attention::Scale::number, .number = 1, .causal = causal};
      Heads<T> dq = q, dk = k, dv = v, dq_want = q, dk_want = k, dv_want = v;
      linear_attention_vjp({.scale = 1.0, .causal = causal}, q.view(), k.view(), v.view(), g.view(), dq.view(), dk.view(),
                           dv.view());
      attention_vjp(options, q.view(), k.view(), v.view(), g.view(), dq_want.view(), dk_want.view(), dv_want.view());
      for (const auto& [got, want] : {std::pair(&dq, &dq_want), std::pair(&dk, &dk_want), std::pair(&dv, &dv_want)}) {
        got->for_each([&, got = got, want = want](auto, auto, auto r, auto c) {
          const T found = got->at(0, 0, r, c), expected = want->at(0, 0, r, c);
          // Terms of dq and dk cancel too, in units of the largest.
          const T bound = 100 * static_cast<T>(kEps<T>) * (1 + std::abs(expected));
          EXPECT_TRUE(found == expected || std::abs(found - expected) <= bound || (std::isnan(found) && std::isnan(expected)))
              << i << ": " << found << " " << expected << (causal ? " causal" : "");
        });
      }
    }
  }
}

// Some queries cancel, some are ordinary: each has its own way, which depends on nothing else.
TYPED_TEST(AttentionTest, LinearBesideQueriesThatCancel) {
  using T = TypeParam;
  for (const bool causal : {false, true}) {
    const std::size_t m = 300, n = 900, d = 8, width = 5;
    Problem<T> problem(1, 2, 1, m, n, d, width, 9);
    const Heads<T> g = normal<T>(1, 2, m, width, 10);
    // All keys have a large part in one direction, to which some queries are orthogonal.
    for (std::size_t j = 0; j < n; ++j) problem.k.at(0, 0, j, 0) = 100, problem.k.at(0, 0, j, 1) = -100;
    const auto cancels = [](std::size_t h, std::size_t i) { return i % 7 == h || (i > 100 && i < 170); };
    Heads<T> calm = problem.q;
    for (std::size_t i = 0; i < 2 * m; ++i) {
      const std::size_t h = i / m, r = i % m;
      calm.at(0, h, r, 0) = calm.at(0, h, r, 1) = T(0.01);
      problem.q.at(0, h, r, 0) = problem.q.at(0, h, r, 1) = cancels(h, r) ? T(100) : T(0.01);
    }
    const auto run = [&](const Heads<T>& q) {
      std::vector<Heads<T>> r = {{1, 2, m, width}, {1, 2, m, d}, {1, 1, n, d}, {1, 1, n, width}};
      linear_attention({.scale = 0.4, .causal = causal}, q.view(), problem.k.view(), problem.v.view(), r[0].view());
      linear_attention_vjp({.scale = 0.4, .causal = causal}, q.view(), problem.k.view(), problem.v.view(), g.view(),
                           r[1].view(), r[2].view(), r[3].view());
      return r;
    };
    const auto got = run(problem.q), without = run(calm);
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t c = 0; c < d && !cancels(h, i); ++c) {
          if (c < width) EXPECT_EQ(got[0].at(0, h, i, c), without[0].at(0, h, i, c)) << h << " " << i;
          EXPECT_EQ(got[1].at(0, h, i, c), without[1].at(0, h, i, c)) << h << " " << i;
        }
      }
    }
    const auto wide = [](const Heads<T>& x) {
      Heads<double> result(x.batch, x.heads, x.rows, x.cols);
      result.for_each([&](auto b, auto h, auto r, auto c) { result.at(b, h, r, c) = static_cast<double>(x.at(b, h, r, c)); });
      return result;
    };
    const Heads<double> q = wide(problem.q), k = wide(problem.k), v = wide(problem.v), g64 = wide(g);
    std::vector<Heads<double>> want = {{1, 2, m, width}, q, k, v};
    const Attention options = {.map = TaylorSoftmax{}, .scale = Attention::Scale::number, .number = 0.4, .causal = causal};
    attention(options, q.view(), k.view(), v.view(), want[0].view());
    attention_vjp(options, q.view(), k.view(), v.view(), g64.view(), want[1].view(), want[2].view(), want[3].view());
    for (std::size_t r = 0; r < 4; ++r) {
      double largest = 0;
      for (const double x : want[r].values) largest = x == -77 ? largest : std::max(largest, std::abs(x));
      Heads<T> found = got[r];
      expect_near(found, want[r].exact(), 2000 * kEps<T> * largest, "result " + std::to_string(r));
    }
    const auto expect_same = [&](const std::string& what) {
      const auto again = run(problem.q);
      for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(again[r].values, got[r].values) << what << ", result " << r;
    };
    for (const std::string& target : support::fma_targets()) {
      force_simd_target(target);
      expect_same("target " + target);
    }
    force_simd_target("");
    for (const std::size_t threads : {1, 3}) {
      set_num_threads(threads);
      expect_same("threads " + std::to_string(threads));
    }
    set_num_threads(0);
  }
}

// Later keys may hold anything too, and a NaN stays with its query: other results have the same bits.
TYPED_TEST(AttentionTest, LinearHiddenKeysAndNaN) {
  using T = TypeParam;
  for (const bool many_keys : {false, true}) {
    const std::size_t n = many_keys ? 900 : 300, at = n - 10, first = n - 300;  // query i sees the keys up to i + first
    Problem<T> problem(1, 1, 1, 300, n, 3, 4, 9);
    Heads<T> g = normal<T>(1, 1, 300, 4, 10);
    const auto results = [&] {
      std::vector<Heads<T>> d = {problem.out(), {1, 1, 300, 3}, {1, 1, n, 3}, {1, 1, n, 4}};
      linear_attention({.causal = true}, problem.q.view(), problem.k.view(), problem.v.view(), d[0].view());
      linear_attention_vjp({.causal = true}, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), d[1].view(),
                           d[2].view(), d[3].view());
      return d;
    };
    const auto clean = results();
    const auto expect_same = [&](const Heads<T>& got, std::size_t k, std::size_t r) {
      for (std::size_t c = 0; c < got.cols; ++c) {
        EXPECT_EQ(got.at(0, 0, r, c), clean[k].at(0, 0, r, c)) << "result " << k << " row " << r << " column " << c;
      }
    };
    for (Heads<T>* const input : {&problem.k, &problem.v}) {
      for (const T value : {kNaN<T>, kInfinity<T>}) {
        const T kept = input->at(0, 0, at, 1);
        input->at(0, 0, at, 1) = value;
        const auto got = results();
        input->at(0, 0, at, 1) = kept;
        for (std::size_t r = 0; r < 300; ++r) {
          if (r + first < at) {
            expect_same(got[0], 0, r), expect_same(got[1], 1, r);
          } else if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(got[0].at(0, 0, r, 1))) << r;
            EXPECT_TRUE(std::isnan(got[1].at(0, 0, r, 1))) << r;
          }
        }
      }
    }
    // A query that is NaN, or has a gradient that is, reaches the keys that it sees.
    for (Heads<T>* const input : {&problem.q, &g}) {
      const std::size_t query = 130;
      const T kept = input->at(0, 0, query, 1);
      input->at(0, 0, query, 1) = kNaN<T>;
      const auto got = results();
      input->at(0, 0, query, 1) = kept;
      for (std::size_t r = 0; r < 300; ++r) {
        if (r != query) expect_same(got[0], 0, r), expect_same(got[1], 1, r);
      }
      for (std::size_t j = 0; j < n; ++j) {
        if (j > query + first) {
          expect_same(got[2], 2, j), expect_same(got[3], 3, j);
        } else {
          EXPECT_TRUE(std::isnan(got[2].at(0, 0, j, 1))) << j;
          EXPECT_TRUE(std::isnan(got[3].at(0, 0, j, 1))) << j;
        }
      }
    }
  }
}

TEST(Attention, RefusesBadArguments) {
  Problem<float> problem(1, 4, 2, 3, 5, 2, 2, 1);
  Heads<float> out = problem.out();
  const std::vector<float> before = out.values;
  const auto call = [&](auto change) {
    return [&, change] {
      Problem<float> changed(1, 4, 2, 3, 5, 2, 2, 1);
      Heads<float> to = changed.out();
      HeadsView<float> view = to.view();
      AttentionDetails<float> details;
      change(changed, view, details);
      attention(changed.options, changed.q.view(), changed.k.view(), changed.v.view(), view, changed.mask, changed.per_row,
                details, changed.sinks);
    };
  };
  expect_error("attention: k must have the columns of q, 2, got 3",
               call([](auto& p, auto&, auto&) { p.k = normal<float>(1, 2, 5, 3, 1); }));
  expect_error("attention: q must have a multiple of the heads of k, 3, got 4", call([](auto& p, auto&, auto&) {
                 p.k = normal<float>(1, 3, 5, 2, 1);
                 p.v = normal<float>(1, 3, 5, 2, 1);
               }));
  expect_error("attention: v must be 1 x 2 x 5 x 2, with the batch, the heads and the rows of k, got 1 x 2 x 4 x 2",
               call([](auto& p, auto&, auto&) { p.v = normal<float>(1, 2, 4, 2, 1); }));
  expect_error("attention: out must be 1 x 4 x 3 x 2, as q with the columns of v, got 1 x 4 x 2 x 2",
               call([](auto&, auto& view, auto&) { view.rows = 2; }));
  expect_error("attention: train_length must be above 1 and finite, got 1",
               call([](auto& p, auto&, auto&) { p.options.train_length = 1; }));
  expect_error("attention: number must be finite, got nan",
               call([](auto& p, auto&, auto&) { p.options.number = std::nan(""); }));
  expect_error("attention: softcap must be above 0 and finite, got 0",
               call([](auto& p, auto&, auto&) { p.options.softcap = 0; }));
  expect_error("attention: kappa must not be given unless scale is entropy_invariant or log_n, got scale sqrt, kappa 2",
               call([](auto& p, auto&, auto&) { p.options.kappa = 2; }));
  expect_error("attention: kappa must have one value for each of 12 rows, got 5", call([](auto& p, auto&, auto&) {
                 p.options.scale = Attention::Scale::log_n, p.values.resize(5, 1), p.per_row = {{"kappa", p.values}};
               }));
  expect_error("attention: kappa of row 3 must be above 0 and finite, got nan", call([](auto& p, auto&, auto&) {
                 p.options.scale = Attention::Scale::log_n, p.values.resize(12, 1), p.per_row = {{"kappa", p.values}};
                 p.values[3] = std::nan("");
               }));
  expect_error("attention: number must not have values unless scale is number, got scale sqrt", call([](auto& p, auto&, auto&) {
                 p.values.resize(12, 1), p.per_row = {{"number", p.values}};
               }));
  expect_error("attention: sinks must have one entry for each of 12 queries, got 4",
               call([](auto& p, auto&, auto&) { p.sinks.resize(4); }));
  expect_error("entmax: alpha must be above 0 and finite, got 0",
               call([](auto& p, auto&, auto&) { p.options.map = Entmax{.alpha = 0}; }));
  std::vector<float> entropy(3);
  expect_error("attention: entropy must have one entry for each of 12 queries, got 3",
               call([&](auto&, auto&, auto& details) { details.entropy = entropy; }));
  expect_error("attention: out must share no memory with q, got views that overlap",
               [&] { attention(Attention{}, problem.q.view(), problem.k.view(), problem.v.view(), problem.q.view()); });
  expect_error("attention: weights must share no memory with q, got views that overlap",
               call([](auto& p, auto&, auto& details) {
                 p.q.values.resize(12 * 5);
                 details.weights = HeadsView<float>(p.q.values.data(), 1, 4, 3, 5);
               }));
  expect_error("attention: out must have a separate place for each of its numbers, got strides that overlap",
               call([](auto&, auto& view, auto&) { view.row_stride = 1; }));
  expect_error("attention: entropy must share no memory with out, got views that overlap",
               call([](auto&, auto& view, auto& details) {
                 details.entropy = {view.data, 12};
               }));
  expect_error("attention: out must point to 1 x 4 x 3 x 2 numbers, got a null pointer",
               call([](auto&, auto& view, auto&) { view.data = nullptr; }));
  expect_error("attention_vjp: g_entropy must have one entry for each of 12 queries, got 3", [&] {
    const Heads<float> g = out;
    Heads<float> dq = problem.q, dk = problem.k, dv = problem.v;
    attention_vjp(Attention{}, problem.q.view(), problem.k.view(), problem.v.view(), g.view(), dq.view(), dk.view(), dv.view(),
                  {}, {}, {}, entropy);
  });
  expect_error("linear_attention: scale must be finite, got inf", [&] {
    linear_attention({.scale = INFINITY}, problem.q.view(), problem.k.view(), problem.v.view(), out.view());
  });
  EXPECT_EQ(out.values, before);
}

}  // namespace
}  // namespace isentropic

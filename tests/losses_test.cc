// Losses: values and gradients of every loss against the definitions, on every target; equal bits; refused arguments.

#include "isentropic/losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "isentropic/maps.h"
#include "isentropic/threads.h"
#include "tests/oracle/losses.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/guarded.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

using support::expect_error;

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr double kEps = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// Every loss with its typical parameters, and some with others.
std::vector<Loss> variants() {
  std::vector<Loss> all;
  for_each_operation<Loss>([&]<class Op>(std::type_identity<Op>) { all.push_back(typical<Op>()); });
  all.push_back(SoftmaxLoss{.label_smoothing = 0.1});
  for (const double alpha : {0.7, 1.0, 1.2, 1.7, 2.0, 3.0}) all.push_back(EntmaxLoss{.alpha = alpha});
  all.push_back(TopKSoftmaxLoss{.k = 1});
  all.push_back(SmoothAccuracyLoss{.map = Sparsemax{}});
  all.push_back(SurrogateLoss{.map = Entmax{.alpha = 1.5}});
  all.push_back(MarginSoftmaxLoss{.kind = MarginSoftmaxLoss::Kind::arc, .scale = 8});
  all.push_back(MarginSoftmaxLoss{.kind = MarginSoftmaxLoss::Kind::sphere, .margin = 3, .scale = 8});
  all.push_back(DistillationLoss{.temperature = 3});
  all.push_back(DistillationLoss{.divergence = TeacherDivergence::reverse_kl});
  all.push_back(DistillationLoss{.temperature = 0.7, .divergence = TeacherDivergence::jsd, .beta = 0.2});
  all.push_back(DistillationLoss{.temperature = 2, .divergence = TeacherDivergence::total_variation});
  all.push_back(JsdLoss{.beta = 0.1});
  return all;
}

std::string_view name_of(const Loss& loss) { return description_of(loss).name; }
TargetKind kind_of(const Loss& loss) {
  return std::visit([](const auto& op) { return op.kTarget; }, loss);
}

// Rows of scores with a matrix of targets or a class for each.
template <class T>
struct Batch {
  std::size_t rows, cols;
  std::vector<T> x, target;
  std::vector<std::int64_t> classes;
};

// `soft`: distributions for losses that take both kinds.
template <class T>
Batch<T> random_batch(const Loss& loss, std::size_t rows, std::size_t cols, bool soft, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const bool cosines = kind_of(loss) == TargetKind::classes;
  Batch<T> batch = {rows, cols, std::vector<T>(rows * cols), {}, {}};
  for (T& score : batch.x) score = static_cast<T>(cosines ? std::tanh(normal(random)) : 2 * normal(random));
  const TargetKind kind = kind_of(loss);
  if (kind == TargetKind::classes || (kind == TargetKind::classes_or_distributions && !soft)) {
    for (std::size_t r = 0; r < rows; ++r) batch.classes.push_back(static_cast<std::int64_t>(random() % cols));
    return batch;
  }
  batch.target.resize(rows * cols);
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    std::vector<double> values(cols);
    for (double& value : values) {
      value = kind == TargetKind::labels   ? static_cast<double>(random() % 2)
              : kind == TargetKind::scores ? normal(random)
                                           : std::max(0.0, normal(random));
      sum += value;
    }
    if (kind == TargetKind::classes_or_distributions && sum == 0) sum = values[0] = 1;
    for (std::size_t i = 0; i < cols; ++i) {
      batch.target[r * cols + i] = static_cast<T>(kind == TargetKind::classes_or_distributions ? values[i] / sum : values[i]);
    }
  }
  return batch;
}

template <class T>
struct Result {
  std::vector<double> value;
  std::vector<T> dx;
  bool operator==(const Result&) const = default;
};

template <class T>
void run(const Loss& op, const Batch<T>& batch, MatrixView<const T> x, std::span<double> value, MatrixView<T> dx) {
  if (batch.target.empty()) {
    loss<T>(op, x, batch.classes, value, dx);
  } else {
    loss<T>(op, x, MatrixView<const T>(batch.target.data(), batch.rows, batch.cols), value, dx);
  }
}

template <class T>
Result<T> run(const Loss& op, const Batch<T>& batch) {
  Result<T> result = {std::vector<double>(batch.rows), std::vector<T>(batch.x.size())};
  run<T>(op, batch, {batch.x.data(), batch.rows, batch.cols}, result.value, {result.dx.data(), batch.rows, batch.cols});
  return result;
}

template <class T>
oracle::Row target_row(const Batch<T>& batch, std::size_t r) {
  if (!batch.target.empty()) {
    const auto begin = batch.target.begin() + static_cast<std::ptrdiff_t>(r * batch.cols);
    return oracle::Row(begin, begin + static_cast<std::ptrdiff_t>(batch.cols));
  }
  oracle::Row q(batch.cols, 0);
  q[static_cast<std::size_t>(batch.classes[r])] = 1;
  return q;
}

template <class T>
void check_against_oracle(const Loss& op, const Batch<T>& batch, const std::string& what) {
  const Result<T> got = run(op, batch);
  for (std::size_t r = 0; r < batch.rows; ++r) {
    const T* const row = batch.x.data() + r * batch.cols;
    const oracle::Row x(row, row + batch.cols), q = target_row(batch, r);
    const oracle::LossResult want = std::visit([&](const auto& loss_op) { return oracle::loss(loss_op, x, q); }, op);
    long double low = HUGE_VALL, high = -HUGE_VALL, largest = 1;
    for (const long double score : x) {
      if (!std::isinf(score)) low = std::min(low, score), high = std::max(high, score);
    }
    for (const long double d : want.dx) largest = std::max(largest, std::abs(d));
    const auto* const margin = std::get_if<MarginSoftmaxLoss>(&op);
    const auto* const entmax = std::get_if<EntmaxLoss>(&op);
    const double slack = (margin != nullptr ? margin->scale : 1) * (entmax != nullptr && entmax->alpha > 2 ? 1e3 : 1);
    const double eps = kEps<T> * slack * static_cast<double>(40 + 10 * std::min(high - low, 100.0L));
    ASSERT_LE(std::abs(got.value[r] - want.value), eps * (1 + std::abs(want.value)))
        << name_of(op) << " " << what << " row " << r << ": " << got.value[r] << ", not " << static_cast<double>(want.value);
    for (std::size_t i = 0; i < batch.cols; ++i) {
      ASSERT_LE(std::abs(got.dx[r * batch.cols + i] - want.dx[i]), eps * largest)
          << name_of(op) << " " << what << " row " << r << " entry " << i << ": "
          << static_cast<double>(got.dx[r * batch.cols + i]) << ", not " << static_cast<double>(want.dx[i]);
    }
  }
}

template <class T>
class Losses : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Losses, Types);

TYPED_TEST(Losses, AgreeWithTheDefinitions) {
  support::for_each_target([&](const std::string&) {
    for (const Loss& op : variants()) {
      for (const std::size_t cols : {1, 2, 3, 7, 16, 33, 64, 65, 100, 257}) {
        for (const bool soft : {false, true}) {
          check_against_oracle(op, random_batch<TypeParam>(op, 4, cols, soft, static_cast<unsigned>(cols)),
                               std::to_string(cols));
        }
      }
    }
  });
}

// Scores of every kind, against a class and against probabilities: masked, tied, far apart, far from 0.
TYPED_TEST(Losses, AgreeOnHardRows) {
  for (const Loss& op : variants()) {
    if (kind_of(op) != TargetKind::classes_or_distributions) continue;
    if (std::holds_alternative<TopPSoftmaxLoss>(op)) continue;  // equal scores at its cut: rounding decides
    for (const auto& given : support::finite_cases<TypeParam>()) {
      const std::size_t n = given.x.size();
      if (n > 130 || n % 2 == 0 || given.name.starts_with("largest")) continue;
      Batch<TypeParam> batch = {1, n, given.x, {}, {}};
      std::vector<std::size_t> present;
      for (std::size_t i = 0; i < n; ++i) {
        if (given.x[i] > -kInfinity<TypeParam>) present.push_back(i);
      }
      for (const std::size_t t : {present.front(), present[present.size() / 2], present.back()}) {
        batch.classes = {static_cast<std::int64_t>(t)};
        check_against_oracle(op, batch, given.name);
      }
      batch.classes.clear();
      batch.target.assign(n, 0);
      batch.target[present.front()] += TypeParam(0.75);
      batch.target[present.back()] += TypeParam(0.25);
      check_against_oracle(op, batch, given.name + " soft");
    }
  }
}

TYPED_TEST(Losses, AreTheSameBitsHoweverCalled) {
  using T = TypeParam;
  for (const Loss& op : variants()) {
    // Short rows are mapped in groups, long ones a few at a time.
    struct Case {
      std::size_t rows, cols;
      bool soft;
    };
    for (const Case& given : {Case{37, 50, false}, Case{37, 50, true}, Case{9, 1000, false}, Case{9, 1000, true}}) {
      const std::size_t rows = given.rows, cols = given.cols;
      const bool soft = given.soft;
      const Batch<T> batch = random_batch<T>(op, rows, cols, soft, 5);
      const Result<T> want = run(op, batch);
      for (const std::string& target : support::fma_targets()) {
        force_simd_target(target);
        for (const std::size_t threads : {1, 3}) {
          set_num_threads(threads);
          ASSERT_EQ(run(op, batch), want) << name_of(op) << " on " << target;
        }
      }
      force_simd_target("");
      set_num_threads(0);

      // In place; without a gradient; padded, the padding untouched; row by row.
      std::vector<T> inout = batch.x;
      std::vector<double> value(rows);
      run<T>(op, batch, {inout.data(), rows, cols}, value, {inout.data(), rows, cols});
      ASSERT_EQ((Result<T>{value, inout}), want) << name_of(op) << " in place";
      run<T>(op, batch, {batch.x.data(), rows, cols}, value, {});
      ASSERT_EQ(value, want.value) << name_of(op) << " without a gradient";
      std::vector<T> padded(rows * (cols + 3), T(77));
      run<T>(op, batch, {batch.x.data(), rows, cols}, value, {padded.data(), rows, cols, cols + 3});
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < cols + 3; ++i) {
          ASSERT_EQ(padded[r * (cols + 3) + i], i < cols ? want.dx[r * cols + i] : T(77)) << name_of(op);
        }
        const auto begin = static_cast<std::ptrdiff_t>(r * cols), end = begin + static_cast<std::ptrdiff_t>(cols);
        Batch<T> one = {1, cols, {batch.x.begin() + begin, batch.x.begin() + end}, {}, {}};
        if (batch.target.empty()) {
          one.classes = {batch.classes[r]};
        } else {
          one.target = {batch.target.begin() + begin, batch.target.begin() + end};
        }
        const Result<T> alone = run(op, one);
        ASSERT_EQ(alone.value[0], want.value[r]) << name_of(op);
        ASSERT_TRUE(std::equal(alone.dx.begin(), alone.dx.end(), want.dx.begin() + begin)) << name_of(op);
      }
    }
  }
}

// Which zero is the maximum of zeros of both signs depends on the processor. The loss does not.
TYPED_TEST(Losses, OfZerosHaveTheSignOfThoseOfPositiveZeros) {
  using T = TypeParam;
  for (const Loss& op : variants()) {
    for (const std::size_t cols : {3, 50, 300}) {
      for (const bool soft : {false, true}) {
        Batch<T> batch = random_batch<T>(op, 8, cols, soft, 5);
        std::fill(batch.x.begin(), batch.x.end(), T(0));
        const Result<T> want = run(op, batch);
        for (std::size_t i = 0; i < batch.x.size(); ++i) {
          if (i * 2654435761u >> 7 & 1) batch.x[i] = -T(0);
        }
        const Result<T> got = run(op, batch);
        for (std::size_t r = 0; r < batch.rows; ++r) {
          EXPECT_EQ(std::signbit(got.value[r]), std::signbit(want.value[r])) << name_of(op) << ", " << cols;
        }
      }
    }
  }
}

TYPED_TEST(Losses, StayInsideTheirMemory) {
  using T = TypeParam;
  support::for_each_target([&](const std::string&) {
    for (const Loss& op : variants()) {
      for (const std::size_t cols : {1, 13, 70}) {
        const Batch<T> batch = random_batch<T>(op, 2, cols, true, 3);
        const support::Guarded<T> x(2 * cols), dx(2 * cols), target(2 * cols);
        std::copy(batch.x.begin(), batch.x.end(), x.data());
        std::copy(batch.target.begin(), batch.target.end(), target.data());
        std::vector<double> value(2);
        if (batch.target.empty()) {
          loss<T>(op, {x.data(), 2, cols}, batch.classes, value, {dx.data(), 2, cols});
        } else {
          loss<T>(op, {x.data(), 2, cols}, MatrixView<const T>(target.data(), 2, cols), value, {dx.data(), 2, cols});
        }
        ASSERT_TRUE(std::isfinite(value[1])) << name_of(op);
      }
    }
  });
}

// A long row uses separate sweeps: the sum in blocks, and the maps' code for few survivors.
TYPED_TEST(Losses, AgreeOnLongRows) {
  for (const Loss& op : {Loss(SoftmaxLoss{}), Loss(SparsemaxLoss{}), Loss(EntmaxLoss{}), Loss(EntmaxLoss{.alpha = 1.2}),
                         Loss(TopKSoftmaxLoss{.k = 50}), Loss(MultilabelSoftmaxLoss{}), Loss(JsdLoss{})}) {
    check_against_oracle(op, random_batch<TypeParam>(op, 2, 5000, false, 1), "long");
    check_against_oracle(op, random_batch<TypeParam>(op, 1, 5000, true, 2), "long soft");
  }
}

// A leading target: log(1 + rest) and its gradient -rest / (1 + rest), with small relative errors.
TYPED_TEST(Losses, OfSoftmaxKeepTheDigitsOfSmallOnes) {
  using T = TypeParam;
  for (const std::size_t cols : {2, 10, 64, 65, 300}) {
    for (const double lead : {8.0, 25.0, 60.0}) {
      std::vector<T> x(cols, T(0)), dx(cols);
      for (std::size_t i = 0; i < cols; ++i) x[i] = static_cast<T>(0.01 * static_cast<double>(i));
      x[1] = static_cast<T>(lead);
      long double rest = 0;
      for (std::size_t i = 0; i < cols; ++i) rest += i == 1 ? 0 : std::exp(static_cast<long double>(x[i]) - x[1]);
      std::vector<double> value(1);
      loss<T>(SoftmaxLoss{}, {x.data(), 1, cols}, std::vector<std::int64_t>{1}, value, {dx.data(), 1, cols});
      const double small = static_cast<double>(std::log1p(rest)), tolerance = kEps<T> * (16 + 4 * lead);
      EXPECT_NEAR(value[0] / small, 1, tolerance) << cols << " led by " << lead;
      EXPECT_NEAR(dx[1] / static_cast<double>(-rest / (1 + rest)), 1, tolerance) << cols << " led by " << lead;
    }
  }
}

template <class Half>
void check_halves() {
  for (const Loss& op : variants()) {
    for (const bool soft : {false, true}) {
      const std::size_t rows = 5, cols = 40;
      Batch<float> wide = random_batch<float>(op, rows, cols, soft, 8);
      Batch<Half> batch = {rows, cols, {}, {}, wide.classes};
      for (float& v : wide.x) batch.x.push_back(Half(v)), v = static_cast<float>(batch.x.back());
      for (float& v : wide.target) batch.target.push_back(Half(v)), v = static_cast<float>(batch.target.back());
      if (kind_of(op) == TargetKind::classes_or_distributions && soft) {
        // A sum that float would refuse.
        std::vector<double> value(rows);
        EXPECT_NO_THROW(run<Half>(op, batch, {batch.x.data(), rows, cols}, value, {}));
        continue;
      }
      std::vector<Half> dx(rows * cols);
      std::vector<double> value(rows);
      run<Half>(op, batch, {batch.x.data(), rows, cols}, value, {dx.data(), rows, cols});
      const Result<float> want = run(op, wide);
      EXPECT_EQ(value, want.value) << name_of(op);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        ASSERT_EQ(static_cast<float>(dx[i]), static_cast<float>(Half(want.dx[i]))) << name_of(op);
      }
    }
  }
}

TEST(LossesOfHalves, AreThoseOfFloatRounded) {
  check_halves<float16>();
  check_halves<bfloat16>();
}

TEST(LossesWithValuesPerRow, HaveTheirOwn) {
  const std::vector<double> x = {1, 0.5, -1, 1, 0.5, -1}, alpha = {1.2, 2};
  const std::vector<std::int64_t> classes = {1, 1};
  std::vector<double> value(2), dx(6), slope(2), alone(1), alone_dx(3);
  const PerRow per_row[] = {{"alpha", alpha}};
  const ParamGradient gradients[] = {{"alpha", slope}};
  loss<double>(EntmaxLoss{}, {x.data(), 2, 3}, classes, value, {dx.data(), 2, 3}, per_row, gradients);
  for (std::size_t r = 0; r < 2; ++r) {
    loss<double>(EntmaxLoss{.alpha = alpha[r]}, {x.data(), 1, 3}, std::span(classes).first(1), alone, {alone_dx.data(), 1, 3});
    EXPECT_EQ(value[r], alone[0]);
    const double step = 1e-6;
    double ends[2];
    for (const int side : {0, 1}) {
      loss<double>(EntmaxLoss{.alpha = alpha[r] + (side == 0 ? -step : step)}, {x.data(), 1, 3}, std::span(classes).first(1),
                   alone, {});
      ends[side] = alone[0];
    }
    EXPECT_NEAR(slope[r], (ends[1] - ends[0]) / (2 * step), 1e-9);
  }
  // With probabilities as targets, their entropy has a slope too.
  const std::vector<double> q = {0.2, 0.7, 0.1, 0.2, 0.7, 0.1};
  const MatrixView<const double> scores(x.data(), 2, 3), target(q.data(), 2, 3);
  loss<double>(EntmaxLoss{}, scores, target, value, {}, per_row, gradients);
  std::vector<double> ends[2] = {std::vector<double>(2), std::vector<double>(2)};
  for (const int side : {0, 1}) {
    const std::vector<double> moved = {alpha[0] + (side == 0 ? -1e-6 : 1e-6), alpha[1] + (side == 0 ? -1e-6 : 1e-6)};
    const PerRow moved_alpha[] = {{"alpha", moved}};
    loss<double>(EntmaxLoss{}, scores, target, ends[side], {}, moved_alpha);
  }
  for (std::size_t r = 0; r < 2; ++r) EXPECT_NEAR(slope[r], (ends[1][r] - ends[0][r]) / 2e-6, 1e-9);
  // A parameter of the map.
  loss<double>(SurrogateLoss{.map = Entmax{}}, {x.data(), 2, 3}, classes, value, {dx.data(), 2, 3}, per_row);
  std::vector<double> p(6);
  apply<double>(Entmax{}, {x.data(), 2, 3}, {p.data(), 2, 3}, per_row);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(dx[i], p[i] - (i % 3 == 1));
}

// The value of a loss from its definition, at one row.
long double defined_value(const Loss& op, const oracle::Row& x, const oracle::Row& q) {
  return std::visit([&](const auto& one) { return oracle::loss(one, x, q).value; }, op);
}

// Gradients in all parameters at once, each row with its own values: against differences of the definition, and with the same
// bits as for each parameter alone and for each row alone.
template <class T>
void check_param_gradients(const Loss& common, const Batch<T>& batch, const std::string& what) {
  std::visit(
      [&]<class Op>(const Op& op) {
        std::vector<std::string_view> names;
        std::vector<std::vector<double>> values;
        for_each_param<Op>([&](const auto& param) {
          if constexpr (
              requires { op.*param.member + 0.0; } || requires { *(op.*param.member) + 0.0; }) {
            if (!param.per_row) return;
            if constexpr (std::is_same_v<Op, MarginSoftmaxLoss>) {
              if (op.kind == MarginSoftmaxLoss::Kind::sphere && param.name == "margin") return;
            }
            double base;
            if constexpr (std::is_same_v<Op, MarginSoftmaxLoss>) {
              base = param.name == "margin" ? MarginSoftmaxLoss::kMargins[static_cast<std::size_t>(op.kind)] : op.scale;
            } else if constexpr (requires { *(op.*param.member); }) {
              if (!(op.*param.member)) return;
              base = *(op.*param.member);
            } else {
              base = static_cast<double>(op.*param.member);
            }
            names.push_back(param.name);
            values.emplace_back();
            for (std::size_t r = 0; r < batch.rows; ++r) {
              values.back().push_back(r % 2 == 0 ? base : base == 0 ? 0.3 : base * 0.75);
            }
          }
        });
        if (names.empty()) return;
        const auto rows_of = [&](const Batch<T>& of, const std::vector<PerRow>& per_row, std::vector<ParamGradient> asked,
                                 std::vector<double>& value, MatrixView<T> dx) {
          const MatrixView<const T> x(of.x.data(), of.rows, of.cols);
          if (of.target.empty()) {
            loss<T>(op, x, of.classes, value, dx, per_row, asked);
          } else {
            loss<T>(op, x, MatrixView<const T>(of.target.data(), of.rows, of.cols), value, dx, per_row, asked);
          }
        };
        std::vector<std::vector<double>> slopes(names.size(), std::vector<double>(batch.rows, -7)), alone = slopes;
        std::vector<PerRow> per_row;
        std::vector<ParamGradient> asked;
        std::vector<double> value(batch.rows);
        for (std::size_t k = 0; k < names.size(); ++k) {
          per_row.push_back({names[k], values[k]});
          asked.push_back({names[k], slopes[k]});
        }
        std::vector<T> dx(batch.x.size());
        rows_of(batch, per_row, asked, value, {dx.data(), batch.rows, batch.cols});
        for (std::size_t k = 0; k < names.size(); ++k) {
          std::vector<double> again(batch.rows);
          rows_of(batch, per_row, {{names[k], alone[k]}}, again, {});
          ASSERT_EQ(alone[k], slopes[k]) << name_of(common) << " " << names[k] << " alone, " << what;
          ASSERT_EQ(again, value);
        }
        for (std::size_t r = 0; r < batch.rows; ++r) {
          const T* const row = batch.x.data() + r * batch.cols;
          const oracle::Row x(row, row + batch.cols), q = target_row(batch, r);
          Op own = op;
          for_each_param<Op>([&](const auto& param) {
            for (std::size_t k = 0; k < names.size(); ++k) {
              if constexpr (requires { own.*param.member = 1.0; }) {
                if (param.name == names[k]) own.*param.member = values[k][r];
              }
            }
          });
          Batch<T> one = {1, batch.cols, {row, row + batch.cols}, {}, {}};
          if (batch.target.empty()) {
            one.classes = {batch.classes[r]};
          } else {
            one.target.assign(batch.target.data() + r * batch.cols, batch.target.data() + (r + 1) * batch.cols);
          }
          const Result<T> by_itself = run<T>(own, one);
          ASSERT_EQ(by_itself.value[0], value[r]) << name_of(common) << " " << what;
          ASSERT_TRUE(std::equal(by_itself.dx.begin(), by_itself.dx.end(), dx.data() + r * batch.cols)) << name_of(common);
          if (std::isinf(value[r])) {
            for (std::size_t k = 0; k < names.size(); ++k) ASSERT_EQ(slopes[k][r], 0);
            continue;
          }
          long double low = HUGE_VALL, high = -HUGE_VALL;
          for (const long double score : x) {
            if (!std::isinf(score)) low = std::min(low, score), high = std::max(high, score);
          }
          for (std::size_t k = 0; k < names.size(); ++k) {
            // Richardson's two steps, with an error of the fourth power of the step.
            long double differences[2];
            for (const int half : {0, 1}) {
              const double step = std::ldexp(std::max(1e-3, values[k][r]), -12 - half);
              long double ends[2];
              for (const int side : {0, 1}) {
                Op moved = own;
                for_each_param<Op>([&](const auto& param) {
                  if constexpr (requires { moved.*param.member = 1.0; }) {
                    if (param.name == names[k]) moved.*param.member = values[k][r] + (side == 0 ? -step : step);
                  }
                });
                ends[side] = defined_value(moved, x, q);
              }
              differences[half] = (ends[1] - ends[0]) / (2 * static_cast<long double>(step));
            }
            const long double want = (4 * differences[1] - differences[0]) / 3;
            const double slack = names[k] == "margin" ? 30 : 1;
            const double eps = kEps<T> * slack * static_cast<double>(40 + 10 * std::min(high - low, 100.0L)) + 1e-9;
            ASSERT_LE(std::abs(slopes[k][r] - want), eps * static_cast<double>(1 + std::abs(want)))
                << name_of(common) << " in " << names[k] << " = " << values[k][r] << ", " << what << " row " << r << ": "
                << slopes[k][r] << ", not " << static_cast<double>(want);
          }
        }
      },
      common);
}

TYPED_TEST(Losses, HaveGradientsInTheirParameters) {
  support::for_each_target([&](const std::string&) {
    for (const Loss& op : variants()) {
      for (const std::size_t cols : {1, 2, 7, 33, 100}) {
        for (const bool soft : {false, true}) {
          Batch<TypeParam> batch = random_batch<TypeParam>(op, 4, cols, soft, static_cast<unsigned>(cols));
          check_param_gradients(op, batch, std::to_string(cols));
          if (cols < 7) continue;
          // Masked, tied, and for pairs a student near its teacher.
          for (std::size_t r = 0; r < batch.rows; ++r) {
            for (std::size_t i = 0; i < cols; ++i) {
              TypeParam& score = batch.x[r * cols + i];
              const bool has_class = !batch.classes.empty() && static_cast<std::size_t>(batch.classes[r]) == i;
              const bool has_mass = !batch.target.empty() && batch.target[r * cols + i] != 0;
              if (kind_of(op) == TargetKind::scores && r % 2 == 0) {
                score = batch.target[r * cols + i] + TypeParam(1e-3) * score;
              } else if (i % 5 == 3 && !has_class && (!has_mass || kind_of(op) == TargetKind::scores)) {
                if (kind_of(op) == TargetKind::scores) batch.target[r * cols + i] = -kInfinity<TypeParam>;
                score = -kInfinity<TypeParam>;
              } else if (kind_of(op) != TargetKind::classes && !std::holds_alternative<EntmaxLoss>(op)) {
                score = std::round(score);  // of entmax a score at the threshold, where differences say little
              }
            }
          }
          check_param_gradients(op, batch, std::to_string(cols) + " hard");
        }
      }
    }
  });
}

TEST(GradientsInParameters, OfRowsThatHaveNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), absent = -kInfinity<double>;
  const std::vector<double> x = {1, 0.5, -1, nan, 0.5, -1, 1, absent, -1, 1, 0.5, -1};
  const std::vector<std::int64_t> classes = {1, 1, 1, 2};
  std::vector<double> value(4), slope(4, -7);
  loss<double>(SoftmaxLoss{.label_smoothing = 0.25}, {x.data(), 4, 3}, classes, value, {}, {},
               std::vector<ParamGradient>{{"label_smoothing", slope}}, 2);
  EXPECT_NEAR(slope[0], 0.5 - 0.5 / 3, 1e-15);
  EXPECT_TRUE(std::isnan(slope[1]));
  EXPECT_EQ(slope[2], 0);  // the value is infinite
  EXPECT_EQ(slope[3], 0);  // ignored

  // Parameters of a map: by its own gradient, whose difference this is.
  const std::vector<double> alpha = {1.25, 1.5};
  const std::vector<std::int64_t> two = {1, 0};
  const PerRow per_row[] = {{"alpha", alpha}};
  std::vector<double> values(2), ends[2] = {std::vector<double>(2), std::vector<double>(2)}, slopes(2);
  const std::vector<double> scores = {1, 0.5, -1, 0.25, 0.5, 0};
  const SmoothAccuracyLoss accuracy = {.map = Entmax{}};
  loss<double>(accuracy, {scores.data(), 2, 3}, two, values, {}, per_row, std::vector<ParamGradient>{{"alpha", slopes}});
  for (const int side : {0, 1}) {
    const double step = side == 0 ? -1e-6 : 1e-6;
    const std::vector<double> moved = {alpha[0] + step, alpha[1] + step};
    loss<double>(accuracy, {scores.data(), 2, 3}, two, ends[side], {}, std::vector<PerRow>{{"alpha", moved}});
  }
  for (std::size_t r = 0; r < 2; ++r) EXPECT_NEAR(slopes[r], (ends[1][r] - ends[0][r]) / 2e-6, 1e-8);

  const std::vector<ParamGradient> asked = {{"alpha", slopes}}, of_p = {{"p", slopes}}, of_margin = {{"margin", slopes}};
  const MatrixView<const double> view(scores.data(), 2, 3);
  expect_error("surrogate_loss: there is no gradient in alpha, because the value only stands for a gradient",
               [&] { loss<double>(SurrogateLoss{.map = Entmax{}}, view, two, values, {}, {}, asked); });
  expect_error("top_p_softmax_loss: there is no parameter 'p' with a value for each row",
               [&] { loss<double>(TopPSoftmaxLoss{.p = 0.5}, view, two, values, {}, {}, of_p); });
  expect_error("margin_softmax_loss: there is no gradient in margin of kind sphere, which is an integer", [&] {
    loss<double>(MarginSoftmaxLoss{.kind = MarginSoftmaxLoss::Kind::sphere}, view, two, values, {}, {}, of_margin);
  });
}

// Where theta's derivative is infinite: psi agrees with the definition, its slope is finite, and rounding beyond 1 has no
// effect.
template <class T>
void check_ends_of_margins() {
  using Kind = MarginSoftmaxLoss::Kind;
  const double floor = sizeof(T) == 4 ? 0x1p-10 : 0x1p-24;
  struct Case {
    Kind kind;
    double margin, cosine, psi, slope;
  };
  const Case cases[] = {
      {Kind::arc, 0.5, 1, std::cos(0.5), std::sin(0.5) / floor},
      {Kind::arc, 0.5, -1, -2 + std::cos(0.5), std::sin(0.5) / floor},
      {Kind::arc, 0, 1, 1, 0},
      {Kind::sphere, 4, 1, 1, 16},
      {Kind::sphere, 4, -1, -7, 16},
      {Kind::sphere, 3, 1, 1, 9},
      {Kind::sphere, 3, -1, -5, 9},
  };
  for (const Case& given : cases) {
    const MarginSoftmaxLoss op = {.kind = given.kind, .margin = given.margin, .scale = 2};
    for (const double beyond : {0.0, 1e-3}) {
      const std::vector<T> x = {static_cast<T>(given.cosine * (1 + beyond)), T(0.25)};
      std::vector<double> value(1);
      std::vector<T> dx(2);
      loss<T>(op, {x.data(), 1, 2}, std::vector<std::int64_t>{0}, value, {dx.data(), 1, 2});
      const double ahead = 2 * (0.25 - given.psi), missing = 1 / (1 + std::exp(-ahead));
      EXPECT_NEAR(value[0], std::log1p(std::exp(ahead)), 1e-6) << given.margin << " at " << given.cosine;
      EXPECT_NEAR(dx[0], -2 * given.slope * missing, 1e-5 * (1 + given.slope)) << given.margin << " at " << given.cosine;
      EXPECT_NEAR(dx[1], 2 * missing, 1e-6);
    }
  }
}

TEST(LossesOfMargins, AreExactAtTheEnds) {
  check_ends_of_margins<float>();
  check_ends_of_margins<double>();
}

// The divergence of distributions without a common class is the entropy of beta, for the smallest beta too: m/t is beta there,
// which 1 + (m/t - 1) would lose.
TEST(LossesOfPairs, ReachTheEntropyOfBeta) {
  const std::vector<double> student = {0, -2000, -2000, 1}, teacher = {-2000, 0, 0, -3000};
  for (const double beta : {1e-300, 1e-17, 1e-15, 1e-9, 1e-3, 0.5, 0.9, 1 - 0x1p-40}) {
    std::vector<double> value(2);
    loss<double>(JsdLoss{.beta = beta}, {student.data(), 2, 2}, MatrixView<const double>(teacher.data(), 2, 2), value, {});
    const double expected = -beta * std::log(beta) - (1 - beta) * std::log1p(-beta);
    for (const double v : value) EXPECT_NEAR(v, expected, 1e-14 * expected) << beta;
  }
}

// float32 keeps the digits that float64 has for the same scores: however near student and teacher are, for weights and
// temperatures of any size, and where one class has nearly all of the mass.
TEST(LossesOfPairs, OfFloatsAreThoseOfDoubles) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<Loss> losses;
  for (const double t : {1e-9, 0.3, 1.0, 50.0, 1e9}) {
    for (const auto divergence : {TeacherDivergence::forward_kl, TeacherDivergence::reverse_kl, TeacherDivergence::jsd,
                                  TeacherDivergence::total_variation}) {
      losses.push_back(DistillationLoss{.temperature = t, .divergence = divergence});
    }
  }
  for (const double beta : {1e-300, 1e-17, 1e-9, 0.1, 0.5, 1 - 0x1p-20, 1 - 0x1p-50}) losses.push_back(JsdLoss{.beta = beta});
  for (const double distance : {2.0, 0.3, 1e-2, 1e-4, 1e-6}) {
    for (const double first : {0.0, 12.0}) {
      for (const std::size_t n : {2, 7, 150}) {
        Batch<float> batch = {1, n, {}, {}, {}};
        for (std::size_t i = 0; i < n; ++i) {
          batch.x.push_back(static_cast<float>(normal(random) + (i == 0 ? first : 0)));
          batch.target.push_back(static_cast<float>(batch.x[i] + distance * normal(random)));
        }
        // A class that nearly only the teacher has: log(s/m) is nearly the same for all others.
        if (n == 7) batch.x[3] = -18, batch.target[3] = 18;
        const Batch<double> wide = {1, n, {batch.x.begin(), batch.x.end()}, {batch.target.begin(), batch.target.end()}, {}};
        const double range = std::ranges::max(wide.x) - std::ranges::min(wide.x);
        for (const Loss& op : losses) {
          const Result<float> got = run(op, batch);
          const Result<double> want = run(op, wide);
          // A mass e^-z has a relative error of some z eps.
          const auto* const distillation = std::get_if<DistillationLoss>(&op);
          const double z = range / (distillation == nullptr ? 1 : std::max(distillation->temperature, 0.1));
          // A teacher that has less than e^-40 of the student's mass at its largest score counts as one that has this much.
          const bool jsd = distillation != nullptr && distillation->divergence == TeacherDivergence::jsd;
          const double bound = (20 + 2 * z) * kEps<float>, least = jsd ? 1e-17 : std::numeric_limits<float>::min();
          const std::string what = std::string(name_of(op)) + " " + std::to_string(distance) + " " + std::to_string(n);
          EXPECT_NEAR(got.value[0], want.value[0], bound * want.value[0]) << what;
          double largest = 0;
          for (const double g : want.dx) largest = std::max(largest, std::abs(g));
          for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(got.dx[i], want.dx[i], bound * largest + least) << what;
        }
      }
    }
  }
}

// Scores at the type's end: value and gradient grow with the teacher's scores as long as these are in range.
TYPED_TEST(Losses, ReverseKlAtTheEndOfTheRange) {
  using T = TypeParam;
  const DistillationLoss op = {.divergence = TeacherDivergence::reverse_kl};
  constexpr std::size_t kCols = 68;  // equal ones, whose sums leave the range
  const auto at = [&](T size) {
    std::vector<T> teacher;
    while (teacher.size() < kCols) teacher.insert(teacher.end(), {size / 64, -size / 4, size / 4 * 3, -size / 8});
    Result<T> result = run(op, Batch<T>{1, kCols, std::vector<T>(kCols), teacher, {}});
    result.value[0] /= size;
    for (T& g : result.dx) g /= size;
    return result;
  };
  const T most = std::numeric_limits<T>::max();
  const Result<T> want = at(most / (1 << 20)), got = at(most);
  EXPECT_NEAR(got.value[0], want.value[0], 4 * std::numeric_limits<T>::epsilon());
  for (std::size_t i = 0; i < kCols; ++i) EXPECT_NEAR(got.dx[i], want.dx[i], std::numeric_limits<T>::epsilon()) << i;
}

TYPED_TEST(Losses, OfPairsWithInfiniteScores) {
  using T = TypeParam;
  const T infinity = kInfinity<T>, nan = std::numeric_limits<T>::quiet_NaN();
  for (const Loss& op :
       {Loss(DistillationLoss{.temperature = 2}), Loss(DistillationLoss{.divergence = TeacherDivergence::reverse_kl}),
        Loss(DistillationLoss{.divergence = TeacherDivergence::total_variation}), Loss(JsdLoss{.beta = 0.3})}) {
    // Scores of +inf share the mass.
    const Result<T> shared = run(op, Batch<T>{1, 3, {infinity, 1, infinity}, {5, -infinity, 5}, {}});
    EXPECT_EQ(shared.value[0], 0) << name_of(op);
    EXPECT_EQ(shared.dx, std::vector<T>(3)) << name_of(op);
    for (const std::vector<T>& row : {std::vector<T>{infinity, nan, 1}, std::vector<T>{nan, 1, infinity}}) {
      for (const bool student : {true, false}) {
        const std::vector<T> other = {0, 1, 2};
        const Result<T> got = run(op, Batch<T>{1, 3, student ? row : other, student ? other : row, {}});
        EXPECT_TRUE(std::isnan(got.value[0])) << name_of(op) << student;
        for (const T g : got.dx) EXPECT_TRUE(std::isnan(g)) << name_of(op) << student;
      }
    }
  }
}

// A loss that is a number is one, though log s - log t or T^2 are none of the scores' type.
TEST(LossesOfPairs, OfExtremeTemperatures) {
  const float lowest = std::numeric_limits<float>::lowest();
  const Result<float> masked = run(DistillationLoss{.temperature = 0.5}, Batch<float>{1, 3, {0, 1, lowest}, {0, 1, 2}, {}});
  const double mass = 1 / (1 + std::exp(-2.0) + std::exp(-4.0));
  EXPECT_NEAR(masked.value[0], 0.5 * mass * std::numeric_limits<float>::max(), 1e-5 * masked.value[0]);
  for (const double t : {1e-308, 1e-300}) {
    const Result<double> got = run(DistillationLoss{.temperature = t}, Batch<double>{1, 2, {0, 1e9}, {1e9, 0}, {}});
    EXPECT_NEAR(got.value[0], t * 1e9, 1e-14 * t * 1e9);
  }
}

// A target that is an absent class has the value infinity, if the loss can be infinite, and no gradient there.
TEST(LossesOfAbsentClasses, AreInfiniteWithoutAGradient) {
  const double absent = -kInfinity<double>;
  const std::vector<double> x = {1, absent, 0.5, 1, absent, 0.5}, q = {0.25, 0.75, 0, 0, 1, 0};
  const std::vector<std::int64_t> classes = {1, 1};
  for (const Loss& op : variants()) {
    if (kind_of(op) != TargetKind::classes_or_distributions) continue;
    for (const bool soft : {false, true}) {
      Batch<double> batch = {2, 3, x, {}, classes};
      if (soft) batch.target = q, batch.classes.clear();
      const Result<double> got = run(op, batch);
      const bool bounded = name_of(op) == "smooth_accuracy_loss";
      for (std::size_t r = 0; r < 2; ++r) {
        if (name_of(op) != "surrogate_loss") {
          EXPECT_EQ(std::isinf(got.value[r]), !bounded) << name_of(op) << soft << r;
        }
        EXPECT_EQ(got.dx[3 * r + 1], 0) << name_of(op) << soft << r;
        EXPECT_TRUE(std::isfinite(got.dx[3 * r]) && std::isfinite(got.dx[3 * r + 2])) << name_of(op) << soft << r;
      }
    }
  }
  // Even for a very small probability of the teacher.
  const Batch<double> batch = {2, 3, x, {0, -1e4, 0, 0, absent, 0}, {}};
  const Result<double> got = run(DistillationLoss{}, batch);
  EXPECT_TRUE(std::isinf(got.value[0]));
  EXPECT_TRUE(std::isfinite(got.value[1]));
  EXPECT_EQ(got.dx[1], 0);
  // A label that is absent.
  const Result<double> labelled = run(MultilabelSoftmaxLoss{}, Batch<double>{1, 3, {1, absent, 0.5}, {1, 1, 0}, {}});
  EXPECT_EQ(labelled.value[0], kInfinity<double>);
  EXPECT_EQ(labelled.dx[1], 0);
  EXPECT_TRUE(labelled.dx[0] < 0 && labelled.dx[2] > 0);
}

// Differences of scores beyond the largest number: the value may be infinite, nothing is NaN.
TYPED_TEST(Losses, OfScoresFartherApartThanNumbersAre) {
  using T = TypeParam;
  const T most = std::numeric_limits<T>::max();
  for (const Loss& op : variants()) {
    if (kind_of(op) != TargetKind::classes_or_distributions) continue;
    for (const bool soft : {false, true}) {
      Batch<T> batch = {2, 4, {most, T(0.9) * most, -most, 0, -most, -most, T(-0.5) * most, most}, {}, {}};
      if (soft) {
        batch.target = {0, T(0.25), T(0.5), T(0.25), T(0.5), 0, T(0.5), 0};
      } else {
        batch.classes = {2, 1};
      }
      const Result<T> got = run(op, batch);
      for (const double value : got.value) EXPECT_FALSE(std::isnan(value)) << name_of(op) << " soft " << soft;
      for (const T slope : got.dx) EXPECT_TRUE(std::isfinite(slope)) << name_of(op) << " soft " << soft;
    }
  }
}

// Far from ties such losses are about max x - <q, x>, which is a number if the q of far classes are small.
TYPED_TEST(Losses, OfFarScoresWithSmallWeights) {
  using T = TypeParam;
  const T far = T(0.75) * std::numeric_limits<T>::max();
  for (const Loss& op : variants()) {
    if (kind_of(op) != TargetKind::classes_or_distributions || name_of(op) == "smooth_accuracy_loss") continue;
    const Result<T> got = run(op, Batch<T>{1, 3, {far, -far, 0}, {T(0.875), T(0.125), 0}, {}});
    const oracle::LossResult want = oracle::loss(op, {far, -far, 0}, {0.875L, 0.125L, 0});
    EXPECT_NEAR(static_cast<double>(got.value[0] / want.value), 1, 1e-6) << name_of(op);
  }
  Batch<T> of_class = {1, 3, {far, -far, 0}, {}, {0}};
  EXPECT_NEAR(run(SoftmaxLoss{.label_smoothing = 0.25}, of_class).value[0] / (0.25 * static_cast<double>(far)), 1, 1e-6);
}

TEST(LossesIgnore, Rows) {
  const double nan = std::nan("");
  const std::vector<double> x = {nan, 7, 0.5, 0.25};  // 7 is no cosine
  const std::vector<std::int64_t> classes = {-100, 0};
  for (const Loss& op : variants()) {
    if (kind_of(op) != TargetKind::classes_or_distributions && kind_of(op) != TargetKind::classes) continue;
    std::vector<double> value(2, 7), dx(4, 7);
    loss<double>(op, {x.data(), 2, 2}, classes, value, {dx.data(), 2, 2}, {}, {}, -100);
    EXPECT_EQ(value[0], 0) << name_of(op);
    EXPECT_EQ(dx[0], 0) << name_of(op);
    EXPECT_EQ(dx[1], 0) << name_of(op);
    EXPECT_TRUE(std::isfinite(value[1]));
  }
}

TEST(LossesOfMaps, AreThoseOfTheirMap) {
  std::vector<Map> maps;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) { maps.push_back(typical<Op>()); });
  for (std::size_t noise = 0; noise < std::size(Described<PerturbMax>::kNoises); ++noise) {
    maps.push_back(PerturbMax{.noise = static_cast<PerturbMax::Noise>(noise), .scale = 0.7});
  }
  const std::vector<double> x = support::normal_row<double>(9, 1, 0, 5);
  const std::vector<std::int64_t> target = {4};
  for (const Map& map : maps) {
    std::vector<double> p(9), g(9), want(9), value(1), dx(9);
    g[4] = -1;
    apply<double>(map, {x.data(), 1, 9}, {p.data(), 1, 9});
    apply_vjp<double>(map, {x.data(), 1, 9}, {p.data(), 1, 9}, {g.data(), 1, 9}, {want.data(), 1, 9});
    loss<double>(SmoothAccuracyLoss{.map = map}, {x.data(), 1, 9}, target, value, {dx.data(), 1, 9});
    EXPECT_EQ(value[0], -p[4]) << map.index();
    EXPECT_EQ(dx, want) << map.index();
    loss<double>(SurrogateLoss{.map = map}, {x.data(), 1, 9}, target, value, {dx.data(), 1, 9});
    for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(dx[i], p[i] - (i == 4), 1e-15) << map.index();
  }
}

// Exceptional rows among others, some of which share vectors with them: each row is as if alone, also in place.
TYPED_TEST(Losses, OfOddRowsDisturbNoOther) {
  using T = TypeParam;
  const T inf = kInfinity<T>, nan = std::numeric_limits<T>::quiet_NaN();
  for (const Loss& op : variants()) {
    if (kind_of(op) != TargetKind::classes_or_distributions) continue;
    for (const std::size_t cols : {1, 3, 10, 64, 65}) {
      Batch<T> batch = random_batch<T>(op, 11, cols, false, 4);
      T* const x = batch.x.data();
      x[1 * cols] = nan;
      x[2 * cols + cols - 1] = inf;
      std::fill(x + 4 * cols, x + 5 * cols, -inf);
      x[6 * cols + static_cast<std::size_t>(batch.classes[6])] = -inf;
      x[7 * cols] = -inf;
      std::fill(x + 8 * cols, x + 9 * cols, nan);
      batch.classes[8] = batch.classes[9] = -100;
      std::vector<double> value(11), value_alone(1);
      std::vector<T> dx = batch.x, alone(cols);
      loss<T>(op, {dx.data(), 11, cols}, batch.classes, value, {dx.data(), 11, cols}, {}, {}, -100);
      for (std::size_t r = 0; r < 11; ++r) {
        loss<T>(op, {x + r * cols, 1, cols}, std::span(batch.classes).subspan(r, 1), value_alone, {alone.data(), 1, cols}, {},
                {}, -100);
        const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
        EXPECT_TRUE(same(value[r], value_alone[0])) << name_of(op) << " " << cols << " row " << r;
        for (std::size_t i = 0; i < cols; ++i) {
          EXPECT_TRUE(same(dx[r * cols + i], alone[i])) << name_of(op) << " " << cols << " row " << r << " entry " << i;
        }
      }
      EXPECT_TRUE(std::isnan(value[1]) && std::isnan(dx[1 * cols])) << name_of(op);
      EXPECT_TRUE(std::isnan(value[4]) && std::isnan(dx[4 * cols])) << name_of(op);
      EXPECT_EQ(value[8], 0);
    }
  }
}

TEST(LossesRefuse, WhatTheyCannotTake) {
  const std::vector<double> x = {0.5, 0.25, 0.25, 0, 0, 0}, far = {0, 2, 0};
  std::vector<double> value(2, 7), dx(6, 7);
  const MatrixView<const double> scores(x.data(), 2, 3);
  const MatrixView<double> gradient(dx.data(), 2, 3);
  const std::vector<std::int64_t> good = {0, 1}, bad = {0, 3}, one = {0};
  const auto fails = [&](const std::string& text, const Loss& op, const std::vector<std::int64_t>& classes) {
    expect_error(text, [&] { loss<double>(op, scores, classes, value, gradient); });
  };
  fails("softmax_loss: target must be a class from 0 to 2, got 3 in row 1", SoftmaxLoss{}, bad);
  fails("softmax_loss: target must have one class for each of 2 rows, got 1", SoftmaxLoss{}, one);
  fails("softmax_loss: label_smoothing must be at least 0 and at most 1, got -1", SoftmaxLoss{.label_smoothing = -1}, good);
  fails("top_k_softmax_loss: k must be above 0, got 0", TopKSoftmaxLoss{}, good);
  fails("margin_softmax_loss: margin must be an integer of at least 1 for kind sphere, got kind sphere, margin 1.5",
        MarginSoftmaxLoss{.kind = MarginSoftmaxLoss::Kind::sphere, .margin = 1.5}, good);
  fails("margin_softmax_loss: margin must be at most pi for kind arc, got kind arc, margin 4",
        MarginSoftmaxLoss{.kind = MarginSoftmaxLoss::Kind::arc, .margin = 4}, good);
  fails("jsd_loss: beta must be below 1, where the loss is always 0; its limit is reverse_kl of distillation_loss, got beta 1",
        JsdLoss{.beta = 1}, good);
  fails("jsd_loss: beta must be above 0, where the loss is always 0; its limit is forward_kl of distillation_loss, got beta 0",
        JsdLoss{.beta = 0}, good);
  fails("distillation_loss: beta must be left out unless divergence is jsd, got divergence forward_kl, beta 0.5",
        DistillationLoss{.beta = 0.5}, good);
  fails("jsd_loss: target must be a matrix of x's shape, got a class for each row", JsdLoss{}, good);
  fails("entmax: alpha must be above 0 and finite, got 0", SurrogateLoss{.map = Entmax{.alpha = 0}}, good);
  expect_error("softmax_loss: target must be a distribution in every row, got a sum of 0 in row 1",
               [&] { loss<double>(SoftmaxLoss{}, scores, scores, value, gradient); });
  expect_error("multilabel_softmax_loss: target must be 0 or 1 in every entry, got 0.5 at entry 0 in row 0",
               [&] { loss<double>(MultilabelSoftmaxLoss{}, scores, scores, value, gradient); });
  expect_error("margin_softmax_loss: target must be a class for each row, got a matrix",
               [&] { loss<double>(MarginSoftmaxLoss{}, scores, scores, value, gradient); });
  expect_error("margin_softmax_loss: cosines must be from -1 to 1, got 2 at entry 1 in row 0", [&] {
    loss<double>(MarginSoftmaxLoss{}, {far.data(), 1, 3}, std::span(good).first(1), std::span(value).first(1));
  });
  expect_error("margin_softmax_loss: target must have one class for each of 2 rows, got 1",
               [&] { loss<double>(MarginSoftmaxLoss{}, scores, one, value, gradient, {}, {}, 0); });
  expect_error("softmax_loss: value must have one entry for each of 2 rows, got 1",
               [&] { loss<double>(SoftmaxLoss{}, scores, good, std::span(value).first(1), gradient); });
  expect_error("softmax_loss: dx must have the shape of x, 2 x 3, got 1 x 3", [&] {
    loss<double>(SoftmaxLoss{}, scores, good, value, {dx.data(), 1, 3});
  });
  expect_error("jsd_loss: dx must share no memory with target, got views that overlap",
               [&] { loss<double>(JsdLoss{}, scores, MatrixView<const double>(dx.data(), 2, 3), value, gradient); });
  for (const double v : dx) EXPECT_EQ(v, 7);
  for (const double v : value) EXPECT_EQ(v, 7);
}

}  // namespace
}  // namespace isentropic

// Measures, dispatched: for every SIMD target the loops over rows; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/measures/measures.cc"
#include "entropic/measures.h"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/measures/entries-inl.h"
#include "src/measures/tables-inl.h"
#include "src/measures/values-inl.h"

#ifndef ENTROPIC_MEASURES_CC_
#define ENTROPIC_MEASURES_CC_

namespace entropic {

// One thread's share of a batch: rows [begin, end), and 4 (n + 16) numbers of working memory.
struct MeasureShare {
  std::size_t begin, end;
  double* scratch;
};

// What one SIMD target has for one element type. `sums` are the rows' GivenSum, null for scores; gradients without data are
// not wanted. Where nothing but values is, `one` and `two` sum the rows themselves, while they have them at hand.
template <class T>
struct MeasureKernels {
  void (*sums)(Input, bool normalize, MatrixView<const T> p, double* sums, MeasureShare);
  void (*one)(const Measure&, MatrixView<const T> p, double* sums, double* value, MatrixView<T> dp, MeasureShare);
  void (*two)(const Divergence&, MatrixView<const T> p, MatrixView<const T> q, double* p_sums, double* q_sums, double* value,
              MatrixView<T> dp, MatrixView<T> dq, MeasureShare);
  double (*table)(const TableMeasure&, const T* pxy, TableShape, double sum, double* scratch, T* dp);
  void (*entries)(const EntryMeasure&, MatrixView<const T> p, const double* sums, MatrixView<T> value, MatrixView<T> dp,
                  MeasureShare);
};

}  // namespace entropic

#endif  // ENTROPIC_MEASURES_CC_

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

template <class T>
void SumRows(Input input, bool normalize, MatrixView<const T> p, double* sums, MeasureShare share) {
  for (size_t r = share.begin; r < share.end; ++r) sums[r] = GivenSum(input, normalize, p.row(r), p.cols);
}

inline double UnitOf(const std::optional<double>& base) { return base ? 1 / LogOne(*base) : 1; }
// A division, so that log 2 is 1 in base 2.
inline double InUnit(double nats, const std::optional<double>& base) { return base ? nats / LogOne(*base) : nats; }

template <class Op, class T>
void OneRow(const Op& op, const Distribution& row, double* value, T* dp) {
  constexpr bool kPerplexity = std::is_same_v<Op, Perplexity>;
  constexpr bool kPowers = std::is_same_v<Op, RenyiEntropy>;
  using Kernel = std::conditional_t<kPerplexity, Entropy, Op>;
  Kernel kernel;
  if constexpr (!kPerplexity) kernel = op;
  double nats = std::numeric_limits<double>::quiet_NaN(), factor = UnitOf(op.base);
  if (row.exists) nats = ValueOf(kernel, row);
  *value = InUnit(nats, op.base);
  if constexpr (kPerplexity) *value = factor = hn::GetLane(Exp(Wide(), hn::Set(Wide(), nats)));
  if (dp == nullptr) return;
  const Through through = ThroughOf(op.input, op.normalize);
  if constexpr (kPowers) {
    const Powers powers = row.exists && op.alpha > 0 ? PowersOf(op.alpha, row) : Powers{0, 0};
    WriteGradient(
        through, row, factor, 0, [&](size_t i, size_t count) HWY_ATTR { return PartialOf(op, row, nats, powers, i, count); },
        dp);
  } else {
    const double lacking = std::is_same_v<Kernel, Entropy> ? -1 : 0;
    WriteGradient(
        through, row, factor, lacking, [&](size_t i, size_t count) HWY_ATTR { return PartialOf(kernel, row, nats, i, count); },
        dp);
  }
}

// Shannon's entropy of floats from terms in float, or 0 where that does not serve or would lose what is small.
template <class Op, class T>
double EntropyInFloat(const Op& op, const T* p, size_t n) {
  if constexpr (std::is_same_v<Op, Entropy> && sizeof(T) == 4) {
    const double nats = op.input == Input::probs && !op.normalize ? FloatEntropy(p, n) : 0;
    if (nats > 0x1p-60) return nats;
  }
  (void)op, (void)p, (void)n;
  return 0;
}

template <class T>
void OneRows(const Measure& measure, MatrixView<const T> p, double* sums, double* value, MatrixView<T> dp, MeasureShare share) {
  const size_t n = p.cols;
  std::visit(
      [&]<class Op>(const Op& op) {
        for (size_t r = share.begin; r < share.end; ++r) {
          if (sums != nullptr && dp.data == nullptr && p.rows > 1) sums[r] = GivenSum(op.input, op.normalize, p.row(r), n);
          if (const double nats = dp.data == nullptr ? EntropyInFloat(op, p.row(r), n) : 0; nats > 0) {
            value[r] = InUnit(nats, op.base);
            continue;
          }
          const double sum = sums == nullptr ? 1 : sums[r];
          OneRow(op, DistributionOf(op.input, op.normalize, p.row(r), n, sum, true, share.scratch, share.scratch + n + 16),
                 value + r, dp.data == nullptr ? nullptr : dp.row(r));
        }
      },
      measure);
}

// What a divergence is computed as: the distance by what it is the root of.
template <class Op>
using Rooted = std::conditional_t<std::is_same_v<Op, JsDistance>, JsDivergence, Op>;

template <class Op, class T>
void TwoRow(const Op& op, const Pair& rows, double* value, T* dp, T* dq) {
  constexpr bool kDistance = std::is_same_v<Op, JsDistance>;
  const bool exists = rows.p.exists && rows.q.exists;
  const double nats = exists ? ValueOf(Rooted<Op>{}, rows) : std::numeric_limits<double>::quiet_NaN();
  *value = InUnit(nats, op.base);
  double factor = UnitOf(op.base);
  if constexpr (kDistance) {
    *value = std::sqrt(*value);
    factor = *value > 0 ? factor / (2 * *value) : 0;
  }
  const Through through = ThroughOf(op.input, op.normalize);
  Distribution p = rows.p, q = rows.q;
  p.exists = q.exists = exists;
  if (dp != nullptr) {
    WriteGradient(
        through, p, factor, 0, [&](size_t i, size_t count) HWY_ATTR { return FirstPartialOf(Rooted<Op>{}, rows, i, count); },
        dp);
  }
  if (dq != nullptr) {
    WriteGradient(
        through, q, factor, 0, [&](size_t i, size_t count) HWY_ATTR { return SecondPartialOf(Rooted<Op>{}, rows, i, count); },
        dq);
  }
}

// The same in p, away from x, so that a gradient may be written over x.
inline Distribution Apart(Distribution row, double* p) {
  if (row.p != p) std::copy(row.p, row.p + row.n, p);
  row.p = p;
  return row;
}

template <class T>
void TwoRows(const Divergence& divergence, MatrixView<const T> p, MatrixView<const T> q, double* p_sums, double* q_sums,
             double* value, MatrixView<T> dp, MatrixView<T> dq, MeasureShare share) {
  const size_t n = p.cols, step = n + 16;
  double* const s = share.scratch;
  const bool gradients = dp.data != nullptr || dq.data != nullptr;
  std::visit(
      [&]<class Op>(const Op& op) {
        constexpr bool kLogs = std::is_same_v<Op, CrossEntropy>;
        const auto distribution = [&](MatrixView<const T> x, double* sums, size_t r, double* to) {
          if (sums != nullptr && !gradients && x.rows > 1) sums[r] = GivenSum(op.input, op.normalize, x.row(r), n);
          const double sum = sums == nullptr ? 1 : sums[r];
          const Distribution row = DistributionOf(op.input, op.normalize, x.row(r), n, sum, kLogs, to, to + step);
          return gradients ? Apart(row, to) : row;
        };
        Distribution second = {};
        for (size_t r = share.begin; r < share.end; ++r) {
          const Distribution first = distribution(p, p_sums, r, s);
          if (q.rows > 1 || r == share.begin) second = distribution(q, q_sums, q.rows > 1 ? r : 0, s + 2 * step);
          TwoRow(op, Pair{first, second}, value + r, dp.data == nullptr ? nullptr : dp.row(r),
                 dq.data == nullptr ? nullptr : dq.row(r));
        }
      },
      divergence);
}

template <class T>
double TableOf(const TableMeasure& measure, const T* pxy, TableShape shape, double sum, double* scratch, T* dp) {
  const size_t n = shape.rows * shape.cols;
  return std::visit(
      [&]<class Op>(const Op& op) {
        constexpr bool kJoint = std::is_same_v<Op, JointEntropy>;
        const Distribution all = DistributionOf(op.input, op.normalize, pxy, n, sum, kJoint, scratch, scratch + n + 16);
        double* const rest = scratch + 2 * (n + 16);
        double value = std::numeric_limits<double>::quiet_NaN();
        if constexpr (kJoint) {
          OneRow(Entropy{op.base, op.input, op.normalize}, all, &value, dp);
        } else {
          Marginals marginals;
          if (all.exists) value = ValueOf(op, all, shape, rest, &marginals);
          const Through through = ThroughOf(op.input, op.normalize);
          value = InUnit(value, op.base);
          if (dp != nullptr) {
            WriteGradient(
                through, all, UnitOf(op.base), 0,
                [&](size_t i, size_t count) HWY_ATTR { return PartialOf(op, all, shape, marginals, i, count); }, dp);
          }
        }
        return value;
      },
      measure);
}

template <class T>
void EntryRows(const EntryMeasure& measure, MatrixView<const T> p, const double* sums, MatrixView<T> value, MatrixView<T> dp,
               MeasureShare share) {
  const size_t n = p.cols;
  std::visit(
      [&](const auto& op) {
        for (size_t r = share.begin; r < share.end; ++r) {
          EntryRow(op, p.row(r), n, sums == nullptr ? 1 : sums[r], op.base ? LogOne(*op.base) : 1, value.row(r),
                   dp.data == nullptr ? nullptr : dp.row(r), share.scratch);
        }
      },
      measure);
}

// One exported name for each element type: Highway's tables hold functions, not templates.
MeasureKernels<float> MeasureF32() {
  return {SumRows<float>, OneRows<float>, TwoRows<float>, TableOf<float>, EntryRows<float>};
}
MeasureKernels<double> MeasureF64() {
  return {SumRows<double>, OneRows<double>, TwoRows<double>, TableOf<double>, EntryRows<double>};
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <vector>

#include "src/check.h"
#include "src/half.h"
#include "src/parallel.h"
#include "src/scratch.h"

namespace entropic {
namespace {

HWY_EXPORT(MeasureF32);
HWY_EXPORT(MeasureF64);

template <class T>
MeasureKernels<T> kernels() {
  if constexpr (sizeof(T) == 4) {
    return HWY_DYNAMIC_DISPATCH(MeasureF32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(MeasureF64)();
  }
}

// Runs work(share) for pieces of [0, rows).
template <class Work>
void for_shares(std::size_t rows, std::size_t cols, std::size_t cost, Work&& work) {
  parallel_rows(rows, cost * cols, [&](std::size_t begin, std::size_t end) {
    work(MeasureShare{begin, end, scratch(4 * (cols + 16))});
  });
}

template <class T>
double to_double(T number) {
  return static_cast<Working<T>>(number);
}

// Not above what the measure can be, where rounding to T would go beyond: the next T below it.
template <class T>
void keep_bound(const Divergence& op, std::span<double> value) {
  double bound = 0x1.62e42fefa39efp-1;
  std::visit([&](const auto& one) { bound /= one.base ? std::log(*one.base) : 1; }, op);
  if (std::holds_alternative<JsDistance>(op)) {
    bound = std::sqrt(bound);
  } else if (!std::holds_alternative<JsDivergence>(op)) {
    return;
  }
  for (double& one : value) {
    T rounded = static_cast<T>(one);
    if (!(to_double(rounded) > bound)) continue;
    if constexpr (kIsHalf<T>) {
      --rounded.bits;
    } else {
      rounded = std::nextafter(rounded, T(0));
    }
    one = to_double(rounded);
  }
}

std::string place(bool table, std::size_t row, std::size_t entry) {
  return table ? fmt::format("row {}, column {}", row, entry) : fmt::format("row {}, entry {}", row, entry);
}

// Refuses the first entry of the row that is no probability, or no logarithm of one.
template <class T>
void refuse_entry(std::string_view operation, std::string_view name, Input input, const T* row, std::size_t n, bool table,
                  std::size_t r) {
  for (std::size_t i = 0; i < n; ++i) {
    const double entry = to_double(row[i]);
    if (input == Input::probs && !(entry >= 0 && entry <= std::numeric_limits<double>::max())) {
      fail("{}: {} must be at least 0 and finite, got {} at {}", operation, name, entry, place(table, r, i));
    }
    if (input == Input::log_probs && !(entry <= std::numeric_limits<double>::max())) {
      fail("{}: {} must be a logarithm below inf, got {} at {}", operation, name, entry, place(table, r, i));
    }
  }
}

// `sum` is that of a row, or with `table` that of all.
void check_sum(std::string_view operation, std::string_view name, Input input, bool normalize, double sum, double tolerance,
               std::optional<std::size_t> row = {}) {
  if (normalize ? sum > 0 : std::abs(sum - 1) <= tolerance) return;
  const std::string where = row ? fmt::format(" in row {}", *row) : "";
  const bool logs = input == Input::log_probs;
  if (normalize) fail("{}: {} must have an entry above {}{}, got none", operation, name, logs ? "-inf" : "0", where);
  fail("{}: {}{} must sum to 1 within {}{}, got {} (normalize divides by the sum)", operation, logs ? "exp of " : "", name,
       tolerance, where, sum);
}

// Refuses the first row that is no distribution.
template <class T>
void check_sums(std::string_view operation, std::string_view name, Input input, bool normalize, MatrixView<const T> p,
                const std::vector<double>& sums, double tolerance) {
  for (std::size_t r = 0; r < sums.size(); ++r) {
    if (sums[r] != sums[r]) refuse_entry(operation, name, input, p.row(r), p.cols, false, r);
    check_sum(operation, name, input, normalize, sums[r], tolerance, r);
  }
}

// Room for the sums of rows; none for scores, of which nothing is refused.
template <class T>
std::vector<double> room_for_sums(Input input, MatrixView<const T> p) {
  return std::vector<double>(input == Input::scores || p.cols == 0 ? 0 : p.rows);
}

// The sums of rows, all of them distributions.
template <class T>
std::vector<double> checked_sums(std::string_view operation, std::string_view name, Input input, bool normalize,
                                 MatrixView<const T> p, double tolerance) {
  std::vector<double> sums = room_for_sums(input, p);
  if (sums.empty()) return sums;
  const auto run = kernels<T>().sums;
  for_shares(p.rows, p.cols, 1, [&](MeasureShare share) { run(input, normalize, p, sums.data(), share); });
  check_sums(operation, name, input, normalize, p, sums, tolerance);
  return sums;
}

double* data_of(std::vector<double>& sums) { return sums.empty() ? nullptr : sums.data(); }

// The gradient, where it is wanted, in p's shape and at most in p's place.
// One that points nowhere is not wanted, whatever its shape.
template <class T>
void check_gradient(std::string_view operation, std::string_view name, MatrixView<T>& dp, std::size_t rows, std::size_t cols) {
  if (dp.data == nullptr) dp = {};
  if (dp.data != nullptr) check_shape(operation, name, dp, "p", rows, cols);
}

void check_values(std::string_view operation, std::size_t size, std::size_t rows) {
  if (size != rows) fail("{}: value must have one entry for each of {} rows, got {}", operation, rows, size);
}

template <class Family>
auto common(const Family& family) {
  struct Common {
    std::string_view name;
    Input input;
    bool normalize;
  };
  return std::visit(
      [](const auto& op) {
        check_params(op);
        bool normalize = false;
        if constexpr (requires { op.normalize; }) normalize = op.normalize;
        return Common{op.kDescription.name, op.input, normalize};
      },
      family);
}

// Rows of 16 bits as float, contiguous, with a gradient to be narrowed if wanted.
template <class T>
struct Widened {
  explicit Widened(MatrixView<const T> x, bool read = true) : values(x.rows * x.cols), rows(x.rows), cols(x.cols) {
    for (std::size_t r = 0; read && r < rows; ++r) widen(x.row(r), cols, values.data() + r * cols);
  }
  MatrixView<float> view() { return {values.data(), rows, cols}; }
  MatrixView<const float> read() const { return {values.data(), rows, cols}; }
  void back(MatrixView<T> y) const {
    for (std::size_t r = 0; r < rows; ++r) narrow(values.data() + r * cols, cols, y.row(r));
  }

  std::vector<float> values;
  std::size_t rows, cols;
};

// run(x as the type to compute in, gradients in that type) for rows of any type. Gradients without data stay so.
template <class T, std::size_t N, std::size_t M, class Run>
void computed(const std::array<MatrixView<const T>, N>& in, const std::array<MatrixView<T>, M>& out, Run&& run) {
  if constexpr (kIsHalf<T>) {
    std::vector<Widened<T>> wide_in, wide_out;
    std::array<MatrixView<const float>, N> views_in;
    std::array<MatrixView<float>, M> views_out;
    for (const auto& x : in) wide_in.emplace_back(x);
    for (const auto& y : out) wide_out.emplace_back(MatrixView<const T>(y), false);
    for (std::size_t k = 0; k < N; ++k) views_in[k] = wide_in[k].read();
    for (std::size_t k = 0; k < M; ++k) {
      if (out[k].data != nullptr) views_out[k] = wide_out[k].view();
    }
    run(views_in, views_out);
    for (std::size_t k = 0; k < M; ++k) {
      if (out[k].data != nullptr) wide_out[k].back(out[k]);
    }
  } else {
    run(in, out);
  }
}

}  // namespace

template <class T>
void measure(const Measure& op, MatrixView<const T> p, std::span<double> value, MatrixView<std::type_identity_t<T>> dp) {
  const auto [name, input, normalize] = common(op);
  check_layout(name, "p", p);
  check_values(name, value.size(), p.rows);
  check_gradient(name, "dp", dp, p.rows, p.cols);
  check_overlap(name, "dp", dp, "p", p);
  computed<T, 1, 1>({p}, {dp}, [&, name = name, input = input, normalize = normalize](const auto& in, const auto& out) {
    const bool ahead = dp.data != nullptr || p.rows == 1;
    auto sums = ahead ? checked_sums(name, "p", input, normalize, in[0], kSumTolerance<T>) : room_for_sums(input, in[0]);
    std::vector<double> found(p.rows);
    const auto run = kernels<Working<T>>().one;
    for_shares(p.rows, p.cols, 4, [&](MeasureShare share) { run(op, in[0], data_of(sums), found.data(), out[0], share); });
    check_sums(name, "p", input, normalize, in[0], sums, kSumTolerance<T>);
    std::copy(found.begin(), found.end(), value.begin());
  });
}

template <class T>
void measure(const Divergence& op, MatrixView<const T> p, MatrixView<const std::type_identity_t<T>> q, std::span<double> value,
             MatrixView<std::type_identity_t<T>> dp, MatrixView<std::type_identity_t<T>> dq) {
  const auto [name, input, normalize] = common(op);
  check_layout(name, "p", p);
  check_shape(name, "q", q, "p, or one row for all", q.rows == 1 ? 1 : p.rows, p.cols);
  check_values(name, value.size(), p.rows);
  check_gradient(name, "dp", dp, p.rows, p.cols);
  check_gradient(name, "dq", dq, p.rows, p.cols);
  check_overlap(name, "dp", dp, "p", p);
  check_apart(name, "dp", dp, "q", q);
  check_apart(name, "dq", dq, "p", p);
  if (q.rows == p.rows) {
    check_overlap(name, "dq", dq, "q", q);
  } else {
    check_apart(name, "dq", dq, "q", q);
  }
  check_apart(name, "dp", dp, "dq", MatrixView<const T>(dq));
  computed<T, 2, 2>({p, q}, {dp, dq}, [&, name = name, input = input, normalize = normalize](const auto& in, const auto& out) {
    const bool ahead = dp.data != nullptr || dq.data != nullptr;
    const auto sums = [&](std::string_view which, const auto& x) {
      return ahead || x.rows == 1 ? checked_sums(name, which, input, normalize, x, kSumTolerance<T>) : room_for_sums(input, x);
    };
    auto p_sums = sums("p", in[0]), q_sums = sums("q", in[1]);
    std::vector<double> found(p.rows);
    const auto run = kernels<Working<T>>().two;
    for_shares(p.rows, p.cols, 6, [&](MeasureShare share) {
      run(op, in[0], in[1], data_of(p_sums), data_of(q_sums), found.data(), out[0], out[1], share);
    });
    check_sums(name, "p", input, normalize, in[0], p_sums, kSumTolerance<T>);
    check_sums(name, "q", input, normalize, in[1], q_sums, kSumTolerance<T>);
    std::copy(found.begin(), found.end(), value.begin());
  });
  keep_bound<T>(op, value);
}

template <class T>
double measure(const TableMeasure& op, MatrixView<const T> pxy, MatrixView<std::type_identity_t<T>> dp) {
  const auto [name, input, normalize] = common(op);
  check_layout(name, "pxy", pxy);
  if (dp.data == nullptr) dp = {};
  if (dp.data != nullptr) check_shape(name, "dp", dp, "pxy", pxy.rows, pxy.cols);
  check_overlap(name, "dp", dp, "pxy", pxy);
  using C = Working<T>;
  const std::size_t rows = pxy.rows, cols = pxy.cols, n = rows * cols;
  if (n == 0) return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  computed<T, 1, 1>({pxy}, {dp}, [&, name = name, input = input, normalize = normalize](const auto& in, const auto& out) {
    std::vector<C> table(n), gradient(out[0].data != nullptr ? n : 0);
    for (std::size_t r = 0; r < rows; ++r) std::copy(in[0].row(r), in[0].row(r) + cols, table.data() + r * cols);
    double sum = 1;
    if (input != Input::scores) {
      kernels<C>().sums(input, normalize, {table.data(), 1, n}, &sum, {0, 1, nullptr});
      for (std::size_t r = 0; sum != sum && r < rows; ++r) refuse_entry(name, "pxy", input, in[0].row(r), cols, true, r);
      check_sum(name, "pxy", input, normalize, sum, kSumTolerance<T>);
    }
    std::vector<double> memory(4 * n + 4 * (rows + cols) + 256);
    value =
        kernels<C>().table(op, table.data(), {rows, cols}, sum, memory.data(), gradient.empty() ? nullptr : gradient.data());
    for (std::size_t r = 0; r < rows && !gradient.empty(); ++r) {
      std::copy(gradient.data() + r * cols, gradient.data() + (r + 1) * cols, out[0].row(r));
    }
  });
  return value;
}

template <class T>
void measure(const EntryMeasure& op, MatrixView<const T> p, MatrixView<std::type_identity_t<T>> value,
             MatrixView<std::type_identity_t<T>> dp) {
  const auto [name, input, normalize] = common(op);
  check_layout(name, "p", p);
  check_shape(name, "value", value, "p", p.rows, p.cols);
  check_gradient(name, "dp", dp, p.rows, p.cols);
  check_overlap(name, "value", value, "p", p);
  check_overlap(name, "dp", dp, "p", p);
  check_apart(name, "dp", dp, "value", MatrixView<const T>(value));
  const bool binary = std::holds_alternative<BinaryEntropy>(op);
  const bool of_rows = !binary && (normalize || input == Input::scores);
  if (of_rows && dp.data != nullptr) fail("{}: dp must not be asked for where value depends on the whole row", name);
  if (p.cols == 0) return;
  // An entry of a distribution whose sum may be a little above 1 may be that too.
  const double most = binary ? 1 : 1 + kSumTolerance<T>;
  for (std::size_t r = 0; !of_rows && input != Input::scores && r < p.rows; ++r) {
    for (std::size_t i = 0; i < p.cols; ++i) {
      const double entry = to_double(p.row(r)[i]);
      const bool good = input == Input::probs ? entry >= 0 && entry <= most : entry <= most - 1;
      if (good) continue;
      fail("{}: p must be {}, got {} at {}", name, input == Input::probs ? "in [0, 1]" : "at most 0, the logarithm of 1", entry,
           place(false, r, i));
    }
  }
  computed<T, 1, 2>({p}, {value, dp}, [&, name = name, input = input, normalize = normalize](const auto& in, const auto& out) {
    auto sums = of_rows ? checked_sums(name, "p", input, normalize, in[0], kSumTolerance<T>) : std::vector<double>();
    const auto run = kernels<Working<T>>().entries;
    for_shares(p.rows, p.cols, 4, [&](MeasureShare share) { run(op, in[0], data_of(sums), out[0], out[1], share); });
  });
}

template void measure(const Measure&, MatrixView<const float>, std::span<double>, MatrixView<float>);
template void measure(const Measure&, MatrixView<const double>, std::span<double>, MatrixView<double>);
template void measure(const Measure&, MatrixView<const float16>, std::span<double>, MatrixView<float16>);
template void measure(const Measure&, MatrixView<const bfloat16>, std::span<double>, MatrixView<bfloat16>);
template void measure(const Divergence&, MatrixView<const float>, MatrixView<const float>, std::span<double>, MatrixView<float>,
                      MatrixView<float>);
template void measure(const Divergence&, MatrixView<const double>, MatrixView<const double>, std::span<double>,
                      MatrixView<double>, MatrixView<double>);
template void measure(const Divergence&, MatrixView<const float16>, MatrixView<const float16>, std::span<double>,
                      MatrixView<float16>, MatrixView<float16>);
template void measure(const Divergence&, MatrixView<const bfloat16>, MatrixView<const bfloat16>, std::span<double>,
                      MatrixView<bfloat16>, MatrixView<bfloat16>);
template double measure(const TableMeasure&, MatrixView<const float>, MatrixView<float>);
template double measure(const TableMeasure&, MatrixView<const double>, MatrixView<double>);
template double measure(const TableMeasure&, MatrixView<const float16>, MatrixView<float16>);
template double measure(const TableMeasure&, MatrixView<const bfloat16>, MatrixView<bfloat16>);
template void measure(const EntryMeasure&, MatrixView<const float>, MatrixView<float>, MatrixView<float>);
template void measure(const EntryMeasure&, MatrixView<const double>, MatrixView<double>, MatrixView<double>);
template void measure(const EntryMeasure&, MatrixView<const float16>, MatrixView<float16>, MatrixView<float16>);
template void measure(const EntryMeasure&, MatrixView<const bfloat16>, MatrixView<bfloat16>, MatrixView<bfloat16>);

}  // namespace entropic

#endif  // HWY_ONCE

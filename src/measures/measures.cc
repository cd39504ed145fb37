// Measures, dispatched: for every SIMD target the loops over rows; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/measures/measures.cc"
#include "isentropic/measures.h"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/measures/check.h"
#include "src/measures/entries-inl.h"
#include "src/measures/lanes-inl.h"
#include "src/measures/row-inl.h"
#include "src/measures/tables-inl.h"
#include "src/per_row.h"
#include "src/scratch.h"

#ifndef ISENTROPIC_MEASURES_CC_
#define ISENTROPIC_MEASURES_CC_

namespace isentropic::inline ISENTROPIC_ABI {

// The sums of rows (see GivenSum): none for scores; otherwise known sums, or room for them.
struct GivenSums {
  double* sums = nullptr;
  bool known = true;

  GivenSums from(std::size_t row) const { return {sums == nullptr ? nullptr : sums + row, known}; }
};

// The kernels of one SIMD target for rows of one element type. Gradients without data are not wanted. If sums are not known,
// `one` and `two` find them while they read the rows.
template <class T>
struct MeasureKernels {
  // Memory for rows of n. Each distribution takes two rows in float64, a pair one more; a table has its own memory.
  static constexpr std::size_t room(std::size_t n) { return 5 * Arena::room<double>(n); }

  void (*sums)(Input, bool normalize, MatrixView<const T> p, double* sums);
  void (*one)(const Measure&, MatrixView<const T> p, GivenSums, double* value, MatrixView<T> dp, RowsOf<PerRow>,
              RowsOf<ParamGradient>, Arena memory);
  void (*two)(const Divergence&, MatrixView<const T> p, MatrixView<const T> q, GivenSums of_p, GivenSums of_q, double* value,
              MatrixView<T> dp, MatrixView<T> dq, Arena memory);
  double (*table)(const TableMeasure&, const T* pxy, TableShape, double sum, Arena memory, T* dp);
  std::size_t (*table_room)(TableShape);
  void (*entries)(const EntryMeasure&, MatrixView<const T> p, GivenSums, MatrixView<T> value, MatrixView<T> dp, Arena memory);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // ISENTROPIC_MEASURES_CC_

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void SumRows(Input input, bool normalize, MatrixView<const T> p, double* sums) {
  for (size_t r = 0; r < p.rows; ++r) sums[r] = GivenSum(input, normalize, p.row(r), p.cols);
}

// The sum of row r of x.
template <class Op, class T>
double SumOfRow(const Op& op, MatrixView<const T> x, GivenSums given, size_t r) {
  if (given.sums == nullptr) return 1;
  if (!given.known) given.sums[r] = GivenSum(op.input, op.normalize, x.row(r), x.cols);
  return given.sums[r];
}

// Whether these rows are measured side by side: short rows of probabilities. Their sums are not known yet if only values are
// wanted, and of several rows.
template <class Op, class T>
bool InLanes(const Op& op, MatrixView<const T> x, GivenSums given) {
  return op.input == Input::probs && !op.normalize && x.cols <= RowsInLanes::kLongest && given.sums != nullptr && !given.known;
}

template <class T>
void OneRows(const Measure& measure, MatrixView<const T> p, GivenSums given, double* value, MatrixView<T> dp,
             RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients, Arena memory) {
  const size_t n = p.cols;
  double *const own = memory.take<double>(n), *const logs = memory.take<double>(n);
  std::visit(
      [&]<class Op>(const Op& common) {
        if constexpr (sizeof(T) == 8 && (std::is_same_v<Op, Entropy> || std::is_same_v<Op, Perplexity>)) {
          if (InLanes(common, p, given)) {
            MeasureInLanes(common, p, given.sums, value);
            for (size_t r = 0; r < p.rows; ++r) {
              if constexpr (std::is_same_v<Op, Perplexity>) {
                value[r] = ExpNumber(value[r]);
              } else {
                value[r] = InUnit(value[r], common.base);
              }
            }
            return;
          }
        }
        for (size_t r = 0; r < p.rows; ++r) {
          const Op op = at_row(common, per_row, r);
          const double sum = SumOfRow(op, p, given, r);
          if (const double nats = dp.data == nullptr ? EntropyInFloat(op, p.row(r), n) : 0; nats > 0) {
            value[r] = InUnit(nats, op.base);
            continue;
          }
          double slope = 0;
          OneRow(op, DistributionOf(op.input, op.normalize, p.row(r), n, sum, Logs::inaccurate, own, logs), value + r,
                 dp.data == nullptr ? nullptr : dp.row(r), gradients.empty() ? nullptr : &slope);
          for (const ParamGradient& gradient : gradients) gradient.values[r] = slope;  // alpha's, the only one
        }
      },
      measure);
}

template <class T>
void TwoRows(const Divergence& divergence, MatrixView<const T> p, MatrixView<const T> q, GivenSums of_p, GivenSums of_q,
             double* value, MatrixView<T> dp, MatrixView<T> dq, Arena memory) {
  const size_t n = p.cols;
  struct Place {
    double *p, *z;
  };
  const auto place = [&]() -> Place {
    double* const own = memory.take<double>(n);
    return {own, memory.take<double>(n)};
  };
  const Place p_place = place(), q_place = place();
  double* const ratios = memory.take<double>(n);
  const bool gradients = dp.data != nullptr || dq.data != nullptr;
  std::visit(
      [&]<class Op>(const Op& op) {
        if (InLanes(op, p, of_p) && InLanes(op, q, of_q)) {
          MeasureInLanes(Rooted<Op>{}, p, q, of_p.sums, of_q.sums, value);
          for (size_t r = 0; r < p.rows; ++r) value[r] = OfNats(op, value[r]);
          return;
        }
        const auto distribution = [&](MatrixView<const T> x, size_t r, double sum, Place to, Logs logs = kLogsOf<Op>) {
          const Distribution row = DistributionOf(op.input, op.normalize, x.row(r), n, sum, logs, to.p, to.z);
          return gradients ? Apart(row, to.p) : row;
        };
        Distribution second = {};
        double second_sum = 1;
        bool has_second = false;
        for (size_t r = 0; r < p.rows; ++r) {
          const size_t r_of_q = q.rows > 1 ? r : 0;
          T *const dp_row = dp.data == nullptr ? nullptr : dp.row(r), *const dq_row = dq.data == nullptr ? nullptr : dq.row(r);
          const double first_sum = SumOfRow(op, p, of_p, r);
          if (r_of_q == r) second_sum = SumOfRow(op, q, of_q, r);
          // A row that all others are compared with is not written over, should dq be q.
          const bool keeps_q = dq_row == nullptr || q.rows == p.rows || dq.data != q.data;
          const double nats = keeps_q ? KlInFloat(op, p.row(r), q.row(r_of_q), n, dp_row, dq_row, p_place.p, p_place.z) : 0;
          if (nats > 0) {
            value[r] = InUnit(nats, op.base);
            continue;
          }
          Distribution first = distribution(p, r, first_sum, p_place);
          if (r_of_q == r || !has_second) second = distribution(q, r_of_q, second_sum, q_place);
          has_second = !NeedLogs(first, second);
          if (!has_second) {
            first = distribution(p, r, first_sum, p_place, Logs::all);
            second = distribution(q, r_of_q, second_sum, q_place, Logs::all);
          }
          Pair rows = {first, second};
          if (kLogsOf<Op> == Logs::none && IsNearSoftmax(rows, p.row(r), q.row(r_of_q), ratios)) rows.ratios = ratios;
          TwoRow(op, rows, value + r, dp_row, dq_row);
        }
      },
      divergence);
}

template <class T>
double TableOf(const TableMeasure& measure, const T* pxy, TableShape shape, double sum, Arena memory, T* dp) {
  const size_t n = shape.rows * shape.cols;
  double *const own = memory.take<double>(n), *const logs = memory.take<double>(n);
  const TableMemory rest(memory, shape);
  return std::visit(
      [&]<class Op>(const Op& op) {
        constexpr bool kJoint = std::is_same_v<Op, JointEntropy>;
        const Distribution all =
            DistributionOf(op.input, op.normalize, pxy, n, sum, kJoint ? Logs::inaccurate : Logs::none, own, logs);
        double value = kNaN<double>;
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

inline size_t TableRoom(TableShape shape) {
  return 2 * Arena::room<double>(shape.rows * shape.cols) + room_of<TableMemory>(shape);
}

template <class T>
void EntryRows(const EntryMeasure& measure, MatrixView<const T> p, GivenSums given, MatrixView<T> value, MatrixView<T> dp,
               Arena memory) {
  const size_t n = p.cols;
  std::visit(
      [&](const auto& op) {
        for (size_t r = 0; r < p.rows; ++r) {
          EntryRow(op, p.row(r), n, given.sums == nullptr ? 1 : given.sums[r], op.base ? LogNumber(*op.base) : 1, value.row(r),
                   dp.data == nullptr ? nullptr : dp.row(r), memory);
        }
      },
      measure);
}

template <class T>
MeasureKernels<T> MakeMeasures() {
  return {SumRows<T>, OneRows<T>, TwoRows<T>, TableOf<T>, TableRoom, EntryRows<T>};
}
ISENTROPIC_KERNELS(MakeMeasures);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "src/check.h"
#include "src/half.h"
#include "src/parallel.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

template <class T>
MeasureKernels<T> measure_kernels();
ISENTROPIC_KERNELS_BY(measure_kernels, MakeMeasures);

// Distributes rows of n numbers of T: calls work(first, count, memory, wide) for some rows at a time, with the kernels'
// workspace and room for `views` views of these rows as float.
template <class T, class Work>
void for_blocks(std::size_t rows, std::size_t n, std::size_t views, std::size_t cost, const Work& work) {
  parallel_rows(rows, cost * n, [&](std::size_t begin, std::size_t end) {
    const std::size_t block = rows_at_once<T>(end - begin, views * n), wide_size = kIsHalf<T> ? block * views * n : 0;
    Arena memory = scratch(Arena::room<float>(wide_size) + MeasureKernels<Working<T>>::room(n));
    float* const wide = memory.take<float>(wide_size);
    for (std::size_t first = begin; first < end; first += block) {
      work(first, std::min(block, end - first), memory, wide);
    }
  });
}

template <class T>
double to_double(T number) {
  return static_cast<Working<T>>(number);
}

// Values that exceed the upper bound when they are rounded to T, or to float for halves, become the largest number up to it.
template <class T>
void keep_bound(const Divergence& op, std::span<double> value) {
  using W = Working<T>;
  const double bound = std::visit([](const auto&one) { return bound_of(one); }, op), stored = stored_up_to<W>(bound);
  for (double& one : value) {
    if (static_cast<double>(static_cast<W>(one)) > bound) one = stored;
  }
}

// Refuses the first entry of a row that is no probability, or no logarithm of one, with refuse(entry, what is wrong).
template <class T, class Refuse>
void find_wrong_entry(Input input, const T* row, std::size_t n, const Refuse& refuse) {
  for (std::size_t i = 0; i < n; ++i) {
    const double entry = to_double(row[i]);
    if (input == Input::probs && !(entry >= 0 && entry <= std::numeric_limits<double>::max())) {
      refuse(i, formatted("must be at least 0 and finite, got {}", entry));
    }
    if (input == Input::log_probs && !(entry <= std::numeric_limits<double>::max())) {
      refuse(i, formatted("must be a logarithm below inf, got {}", entry));
    }
  }
}

// The error message for a sum, or an empty text.
std::string wrong_sum(Input input, std::string_view name, bool normalize, double sum, double tolerance) {
  if (normalize ? sum > 0 : std::abs(sum - 1) <= tolerance) return {};
  const bool logs = input == Input::log_probs;
  if (normalize) return fmt::format("{} must have an entry above {}, got none", name, logs ? "-inf" : "0");
  return formatted("{}{} must sum to 1 within {}, got {}", logs ? "exp of " : "", name, tolerance, sum);
}
constexpr std::string_view advice_on_sum(bool normalize) { return normalize ? "" : " (normalize divides by the sum)"; }

// Refuses the first row that is no distribution.
template <class T>
void check_sums(std::string_view operation, std::string_view name, Input input, bool normalize, MatrixView<const T> p,
                const double* sums) {
  for (std::size_t r = 0; sums != nullptr && r < p.rows; ++r) {
    if (sums[r] != sums[r]) {
      find_wrong_entry(input, p.row(r), p.cols, [&](std::size_t i, const std::string& wrong) {
        const std::string_view advice = input == Input::probs ? " (input scores takes scores)" : "";
        throw RowError(operation, name, fmt::format("{} {}", name, wrong), r, advice, i);
      });
    }
    const std::string wrong = wrong_sum(input, name, normalize, sums[r], kSumTolerance<T>);
    if (!wrong.empty()) throw RowError(operation, name, wrong, r, advice_on_sum(normalize));
  }
}

// Keeps the memory of a call: the values, which are written when all rows are known to be good, and the sums.
class MeasureCall;

// The sums of rows, in `memory`; none for scores, which are never refused. If they are to be `known`, it checks that all rows
// are distributions; otherwise there is room for them.
template <class T>
GivenSums sums_of(std::string_view operation, std::string_view name, Input input, bool normalize, MatrixView<const T> p,
                  bool known, Arena& memory) {
  if (input == Input::scores || p.cols == 0) return {};
  double* const sums = memory.take<double>(p.rows);
  if (known) {
    const auto run = measure_kernels<Working<T>>().sums;
    for_blocks<T>(p.rows, p.cols, 1, 1, [&](std::size_t first, std::size_t count, Arena /*memory*/, float* wide) {
      run(input, normalize, working_rows(p, first, count, wide), sums + first);
    });
    check_sums(operation, name, input, normalize, p, sums);
  }
  return {sums, known};
}

template <class Family>
auto common(const Family& family, std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {},
            std::size_t rows = 0) {
  struct Common {
    std::string_view name;
    Input input;
    bool normalize;
  };
  return std::visit(
      [&]<class Op>(const Op& op) {
        check_params(op, per_row, rows);
        for (const ParamGradient& asked : gradients) check_per_row<Op>(asked.parameter, asked.values.size(), rows);
        bool normalize = false;
        if constexpr (requires { op.normalize; }) normalize = op.normalize;
        return Common{op.kDescription.name, op.input, normalize};
      },
      family);
}

}  // namespace

template <class T>
void measure(const Measure& op, MatrixView<const T> p, std::span<double> value, MatrixView<std::type_identity_t<T>> dp,
             std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  const auto [name, input, normalize] = common(op, per_row, gradients, p.rows);
  check_measure(name, p, value, dp);
  const bool known = dp.data != nullptr || !gradients.empty() || p.rows == 1;
  const CallMemory<MeasureCall> of_call(2 * Arena::room<double>(p.rows));
  Arena rows_memory = of_call.arena();
  const GivenSums sums = sums_of(name, "p", input, normalize, p, known, rows_memory);
  double* const found = rows_memory.take<double>(p.rows);
  const auto run = measure_kernels<Working<T>>().one;
  for_blocks<T>(p.rows, p.cols, 2, 4, [&](std::size_t first, std::size_t count, Arena memory, float* wide) {
    const auto rows = working_rows(p, first, count, wide);
    const auto gradient = result_rows(dp, first, count, wide);
    run(op, rows, sums.from(first), found + first, gradient, RowsOf(per_row, first), RowsOf(gradients, first), memory);
    finish_rows(gradient, dp, first);
  });
  if (!known) check_sums(name, "p", input, normalize, p, sums.sums);
  std::copy(found, found + p.rows, value.begin());
}

template <class T>
void measure(const Divergence& op, MatrixView<const T> p, MatrixView<const std::type_identity_t<T>> q, std::span<double> value,
             MatrixView<std::type_identity_t<T>> dp, MatrixView<std::type_identity_t<T>> dq) {
  const auto [name, input, normalize] = common(op);
  check_divergence(name, p, q, value, dp, dq);
  const bool known = dp.data != nullptr || dq.data != nullptr, p_known = known || p.rows == 1, q_known = known || q.rows == 1;
  const CallMemory<MeasureCall> of_call(2 * Arena::room<double>(p.rows) + Arena::room<double>(q.rows));
  Arena rows_memory = of_call.arena();
  const GivenSums p_sums = sums_of(name, "p", input, normalize, p, p_known, rows_memory);
  const GivenSums q_sums = sums_of(name, "q", input, normalize, q, q_known, rows_memory);
  double* const found = rows_memory.take<double>(p.rows);
  const auto run = measure_kernels<Working<T>>().two;
  for_blocks<T>(p.rows, p.cols, 4, 6, [&](std::size_t first, std::size_t count, Arena memory, float* wide) {
    const bool one_for_all = q.rows == 1;
    const auto p_rows = working_rows(p, first, count, wide);
    const auto q_rows = working_rows(q, one_for_all ? 0 : first, one_for_all ? 1 : count, wide);
    const auto p_gradient = result_rows(dp, first, count, wide), q_gradient = result_rows(dq, first, count, wide);
    run(op, p_rows, q_rows, p_sums.from(first), q_sums.from(one_for_all ? 0 : first), found + first, p_gradient, q_gradient,
        memory);
    finish_rows(p_gradient, dp, first);
    finish_rows(q_gradient, dq, first);
  });
  if (!p_known) check_sums(name, "p", input, normalize, p, p_sums.sums);
  if (!q_known) check_sums(name, "q", input, normalize, q, q_sums.sums);
  std::copy(found, found + p.rows, value.begin());
  keep_bound<T>(op, value);
}

template <class T>
double measure(const TableMeasure& op, MatrixView<const T> pxy, MatrixView<std::type_identity_t<T>> dp) {
  const auto [name, input, normalize] = common(op);
  check_layout(name, "pxy", pxy);
  check_gradient(name, "dp", dp, "pxy", pxy);
  check_overlap(name, "dp", dp, "pxy", pxy);
  using W = Working<T>;
  const std::size_t rows = pxy.rows, cols = pxy.cols, n = rows * cols;
  if (n == 0) return std::numeric_limits<double>::quiet_NaN();
  const auto kernels = measure_kernels<W>();
  const TableShape shape = {rows, cols};
  Arena memory = scratch(2 * Arena::room<W>(n) + kernels.table_room(shape));
  W *const table = memory.take<W>(n), *const gradient = memory.take<W>(n);
  for (std::size_t r = 0; r < rows; ++r) {
    std::transform(pxy.row(r), pxy.row(r) + cols, table + r * cols, [](T p) { return static_cast<W>(p); });
  }
  double sum = 1;
  if (input != Input::scores) {
    kernels.sums(input, normalize, {table, 1, n}, &sum);
    if (sum != sum) {
      find_wrong_entry(input, table, n, [&, name = name](std::size_t i, const std::string& wrong) {
        throw RowError(name, "pxy", fmt::format("pxy {}", wrong), i / cols, {}, i % cols, " at column ");
      });
    }
    const std::string wrong = wrong_sum(input, "pxy", normalize, sum, kSumTolerance<T>);
    if (!wrong.empty()) throw ArgumentError(name, "pxy", wrong, {}, advice_on_sum(normalize));
  }
  const double value = kernels.table(op, table, shape, sum, memory, dp.data == nullptr ? nullptr : gradient);
  for (std::size_t r = 0; r < dp.rows; ++r) {
    const W* const row = gradient + r * cols;
    std::transform(row, row + cols, dp.row(r), [](W g) { return static_cast<T>(g); });
  }
  return value;
}

template <class T>
void measure(const EntryMeasure& op, MatrixView<const T> p, MatrixView<std::type_identity_t<T>> value,
             MatrixView<std::type_identity_t<T>> dp) {
  const auto [name, input, normalize] = common(op);
  check_layout(name, "p", p);
  check_shape(name, "value", value, "p", p.rows, p.cols);
  check_gradient(name, "dp", dp, "p", p);
  check_overlap(name, "value", value, "p", p);
  check_overlap(name, "dp", dp, "p", p);
  check_apart(name, "dp", dp, "value", value);
  const bool binary = std::holds_alternative<BinaryEntropy>(op);
  const bool of_rows = !binary && (normalize || input == Input::scores);
  if (of_rows && dp.data != nullptr)
    fail("{}: there is no gradient with input scores or normalize, because a value depends on the whole row", name);
  if (p.cols == 0) return;
  // The sum of a distribution may be a little above 1, and so may an entry.
  const double most = binary ? 1 : 1 + kSumTolerance<T>;
  for (std::size_t r = 0; !of_rows && input != Input::scores && r < p.rows; ++r) {
    for (std::size_t i = 0; i < p.cols; ++i) {
      const double entry = to_double(p.row(r)[i]);
      const bool good = input == Input::probs ? entry >= 0 && entry <= most : entry <= most - 1;
      if (good) continue;
      fail_in_row(name, "p", r, i, "p must be {}, got {}",
                  input == Input::probs ? "in [0, 1]" : "at most 0, the logarithm of 1", entry);
    }
  }
  const CallMemory<MeasureCall> of_call(of_rows ? Arena::room<double>(p.rows) : 0);
  Arena rows_memory = of_call.arena();
  const GivenSums sums = of_rows ? sums_of(name, "p", input, normalize, p, true, rows_memory) : GivenSums();
  const auto run = measure_kernels<Working<T>>().entries;
  for_blocks<T>(p.rows, p.cols, 3, 4, [&](std::size_t first, std::size_t count, Arena memory, float* wide) {
    const auto rows = working_rows(p, first, count, wide);
    const auto values = result_rows(value, first, count, wide), gradient = result_rows(dp, first, count, wide);
    run(op, rows, sums.from(first), values, gradient, memory);
    finish_rows(values, value, first);
    finish_rows(gradient, dp, first);
  });
}

template void measure(const Measure&, MatrixView<const float>, std::span<double>, MatrixView<float>, std::span<const PerRow>,
                      std::span<const ParamGradient>);
template void measure(const Measure&, MatrixView<const double>, std::span<double>, MatrixView<double>, std::span<const PerRow>,
                      std::span<const ParamGradient>);
template void measure(const Measure&, MatrixView<const float16>, std::span<double>, MatrixView<float16>,
                      std::span<const PerRow>, std::span<const ParamGradient>);
template void measure(const Measure&, MatrixView<const bfloat16>, std::span<double>, MatrixView<bfloat16>,
                      std::span<const PerRow>, std::span<const ParamGradient>);
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

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

// Measures, dispatched: the kernels for every SIMD target; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/measures/measures.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/measures/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS(MakeMeasures);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "src/check.h"
#include "src/half.h"
#include "src/measures/check.h"
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

// Refuses the first entry of a row that is not a probability, or not a logarithm of one, with refuse(entry, what is wrong).
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

// Refuses the first row that is not a distribution.
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
        return Common{description_of(op).name, op.input, normalize};
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
             MatrixView<std::type_identity_t<T>> dp, MatrixView<std::type_identity_t<T>> dq, std::span<const PerRow> per_row,
             std::span<const ParamGradient> gradients) {
  const auto [name, input, normalize] = common(op, per_row, gradients, p.rows);
  check_divergence(name, p, q, value, dp, dq);
  const bool known = dp.data != nullptr || dq.data != nullptr || !gradients.empty();
  const bool p_known = known || p.rows == 1, q_known = known || q.rows == 1;
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
        RowsOf(per_row, first), RowsOf(gradients, first), memory);
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
                      MatrixView<float>, std::span<const PerRow>, std::span<const ParamGradient>);
template void measure(const Divergence&, MatrixView<const double>, MatrixView<const double>, std::span<double>,
                      MatrixView<double>, MatrixView<double>, std::span<const PerRow>, std::span<const ParamGradient>);
template void measure(const Divergence&, MatrixView<const float16>, MatrixView<const float16>, std::span<double>,
                      MatrixView<float16>, MatrixView<float16>, std::span<const PerRow>, std::span<const ParamGradient>);
template void measure(const Divergence&, MatrixView<const bfloat16>, MatrixView<const bfloat16>, std::span<double>,
                      MatrixView<bfloat16>, MatrixView<bfloat16>, std::span<const PerRow>, std::span<const ParamGradient>);
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

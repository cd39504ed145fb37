// Losses, dispatched: the kernels for every SIMD target; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/losses/losses.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/losses/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS(MakeLosses);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "src/check.h"
#include "src/half.h"
#include "src/losses/check.h"
#include "src/parallel.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

template <class T>
LossKernels<T> loss_kernels();
ISENTROPIC_KERNELS_BY(loss_kernels, MakeLosses);

template <class Op>
void check_loss(const Op& op, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, std::size_t rows) {
  if constexpr (requires { op.map; }) {
    std::visit([&](const auto& map) { check_params(map, per_row, rows); }, op.map);
  } else {
    check_params(op, per_row, rows);
  }
  check_gradients(op, gradients, rows);
}

// Whether every entry of a row is good, as a number 0 or 1 without branches, so that the compiler can vectorise it.
template <class T, class Good>
bool all_of_row(const T* row, std::size_t n, const Good& good) {
  int all = 1;
  for (std::size_t i = 0; i < n; ++i) all &= good(static_cast<Working<T>>(row[i]));
  return all != 0;
}

// Refuses the first entry that is not good; `wanted` describes good entries.
template <class T, class Good>
void check_row(std::string_view name, std::string_view argument, std::string_view wanted, const MatrixView<const T>& a,
               std::size_t r, const Good& good) {
  if (all_of_row(a.row(r), a.cols, good)) return;
  for (std::size_t i = 0; i < a.cols; ++i) {
    const auto value = static_cast<Working<T>>(a.row(r)[i]);
    if (good(value) == 0) fail_in_row(name, argument, r, i, "{} must be {}, got {}", argument, wanted, value);
  }
}

template <class T, class Good>
void check_target_entries(std::string_view name, std::string_view wanted, const MatrixView<const T>& target, const Good& good) {
  for (std::size_t r = 0; r < target.rows; ++r) check_row(name, "target", wanted, target, r, good);
}

// Cosines are at most 1, up to rounding. -inf is an absent class, and NaN only affects its row.
template <class T>
void check_cosines(std::string_view name, const LossBatch<T>& batch) {
  const auto good = [](auto c) {
    constexpr decltype(c) kMost = 1.01f;
    return static_cast<int>(!(std::abs(c) > kMost)) | static_cast<int>(c == -std::numeric_limits<decltype(c)>::infinity());
  };
  for (std::size_t r = 0; r < batch.x.rows; ++r) {
    if (!batch.is_ignored(r)) check_row(name, "cosines", "from -1 to 1", batch.x, r, good);
  }
}

void check_classes(std::string_view name, std::span<const std::int64_t> classes, std::size_t rows, std::size_t cols,
                   std::optional<std::int64_t> ignored) {
  if (classes.size() != rows) fail("{}: target must have one class for each of {} rows, got {}", name, rows, classes.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int64_t t = classes[r];
    if (ignored && t == *ignored) continue;
    if (t < 0 || static_cast<std::uint64_t>(t) >= cols) {
      fail_in_row(name, "target", r, "target must be a class from 0 to {}, got {}", static_cast<std::int64_t>(cols) - 1, t);
    }
  }
}

// Checks that rows are non-negative with sum 1. The sum has 8 accumulators, so that additions overlap.
template <class T>
void check_distributions(std::string_view name, const MatrixView<const T>& q) {
  check_target_entries(name, "at least 0 in every entry", q, [](auto value) { return static_cast<int>(value >= 0); });
  for (std::size_t r = 0; r < q.rows && q.cols > 0; ++r) {
    const T* const row = q.row(r);
    double sums[8] = {};
    std::size_t i = 0;
    for (; i + 8 <= q.cols; i += 8) {
      for (std::size_t k = 0; k < 8; ++k) sums[k] += static_cast<double>(static_cast<Working<T>>(row[i + k]));
    }
    for (; i < q.cols; ++i) sums[0] += static_cast<double>(static_cast<Working<T>>(row[i]));
    const double sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
    if (!(std::abs(sum - 1) <= kSumTolerance<T>)) {
      fail_in_row(name, "target", r, "target must be a distribution in every row, got a sum of {}", sum);
    }
  }
}

template <class T>
void check_labels(std::string_view name, const MatrixView<const T>& labels) {
  check_target_entries(name, "0 or 1 in every entry", labels,
                       [](auto value) { return static_cast<int>(value == 0) | static_cast<int>(value == 1); });
}

// Checks everything but the target.
template <class T>
void check_batch(const Loss& loss, const LossBatch<T>& batch, std::span<const PerRow> per_row,
                 std::span<const ParamGradient> gradients) {
  const std::string_view name = description_of(loss).name;
  const std::size_t rows = batch.x.rows, cols = batch.x.cols;
  std::visit([&](const auto& op) { check_loss(op, per_row, gradients, rows); }, loss);
  check_layout(name, "x", batch.x);
  check_size(name, "value", batch.value.size(), rows);
  if (batch.dx.data != nullptr || batch.dx.rows != 0 || batch.dx.cols != 0) {
    check_shape(name, "dx", batch.dx, "x", rows, cols);
    check_overlap(name, "dx", batch.dx, "x", batch.x);
  }
}

// The cost of an entry, in units of softmax's.
std::size_t cost_of(const Loss& loss) {
  return std::visit(
      [](const auto& op) -> std::size_t {
        if constexpr (requires { map_of(op); }) {
          return 1 + std::visit([](const auto& map) { return description_of(map).cost; }, map_of(op));
        } else {
          return op.kTarget == TargetKind::scores ? 8 : 1;
        }
      },
      loss);
}

// `batch` is checked.
template <class T>
void run(const Loss& loss, const LossBatch<T>& batch) {
  using W = Working<T>;
  const std::size_t rows = batch.x.rows, n = batch.x.cols;
  if (n == 0) {
    const double empty = std::holds_alternative<MultilabelSoftmaxLoss>(loss) ? 0 : std::numeric_limits<double>::quiet_NaN();
    for (std::size_t r = 0; r < rows; ++r) batch.value[r] = batch.is_ignored(r) ? 0 : empty;
    for (const ParamGradient& gradient : batch.gradients) std::fill(gradient.values.begin(), gradient.values.end(), 0.0);
    return;
  }
  const LossKernels<W> kernel = loss_kernels<W>();
  const MapKernels<W> maps = map_kernels<W>();
  // A map's result for a block of rows is still in the cache when the loss reads it.
  const std::size_t block_rows = rows_in_cache(rows, n);
  const std::size_t room = Arena::room<W>(block_rows * n) + kernel.memory(loss, maps, n);
  const std::size_t wide_size = 3 * n;  // for halves: x, target and gradient
  parallel_rows(rows, n * cost_of(loss), [&](std::size_t begin, std::size_t end) {
    const std::size_t at_once = rows_at_once<T>(end - begin, wide_size);
    const std::size_t wide_rows = kIsHalf<T> ? at_once : 0;
    Arena memory = scratch(Arena::room<float>(wide_rows * wide_size) + room);
    float* const wide_memory = memory.take<float>(wide_rows * wide_size);
    W* const block = memory.take<W>(block_rows * n);
    for (std::size_t first = begin; first < end; first += at_once) {
      const LossBatch<T> part = batch.rows(first, std::min(at_once, end - first));
      float* wide = wide_memory;
      LossBatch<W> work = {working_rows(part.x, 0, part.x.rows, wide),
                           part.classes,
                           {},
                           part.value,
                           {},
                           part.per_row,
                           part.gradients,
                           part.ignored};
      if (part.target.data != nullptr) work.target = working_rows(part.target, 0, part.x.rows, wide);
      work.dx = result_rows(part.dx, 0, part.x.rows, wide);
      kernel.rows(loss, work, {maps, memory, block, block_rows});
      finish_rows(work.dx, part.dx, 0);
    }
  });
}

}  // namespace

template <class T>
void loss(const Loss& loss, MatrixView<const T> x, std::span<const std::int64_t> classes, std::span<double> value,
          MatrixView<std::type_identity_t<T>> dx, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients,
          std::optional<std::int64_t> ignored) {
  const LossBatch<T> batch = {x, classes, {}, value, dx, per_row, gradients, ignored};
  check_batch(loss, batch, per_row, gradients);
  check_takes_classes(loss);
  const std::string_view name = description_of(loss).name;
  check_classes(name, classes, x.rows, x.cols, ignored);
  if (std::holds_alternative<MarginSoftmaxLoss>(loss)) check_cosines(name, batch);
  run(loss, batch);
}

template <class T>
void loss(const Loss& loss, MatrixView<const T> x, MatrixView<const std::type_identity_t<T>> target, std::span<double> value,
          MatrixView<std::type_identity_t<T>> dx, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  const LossBatch<T> batch = {x, {}, target, value, dx, per_row, gradients, {}};
  check_batch(loss, batch, per_row, gradients);
  const std::string_view name = description_of(loss).name;
  const TargetKind kind = check_takes_matrix(loss, x, target, dx);
  if (kind == TargetKind::classes_or_distributions) check_distributions(name, target);
  if (kind == TargetKind::labels) check_labels(name, target);
  run(loss, batch);
}

#define ISENTROPIC_LOSSES(T)                                                                                            \
  template void loss(const Loss&, MatrixView<const T>, std::span<const std::int64_t>, std::span<double>, MatrixView<T>, \
                     std::span<const PerRow>, std::span<const ParamGradient>, std::optional<std::int64_t>);             \
  template void loss(const Loss&, MatrixView<const T>, MatrixView<const T>, std::span<double>, MatrixView<T>,           \
                     std::span<const PerRow>, std::span<const ParamGradient>)
ISENTROPIC_LOSSES(float);
ISENTROPIC_LOSSES(double);
ISENTROPIC_LOSSES(float16);
ISENTROPIC_LOSSES(bfloat16);
#undef ISENTROPIC_LOSSES

namespace {

// Checks the teacher's rows, and returns its logarithms as float64.
template <class L>
std::vector<double> checked_teacher(const SparseDistillationLoss& op, std::size_t cols,
                                    const MatrixView<const std::int64_t>& indices, const MatrixView<const L>& log_probs) {
  using Tail = SparseDistillationLoss::Tail;
  constexpr std::string_view kName = Described<SparseDistillationLoss>::kDescription.name;
  const std::size_t listed = indices.cols;
  std::vector<double> logs(indices.rows * listed);
  std::vector<std::pair<std::int64_t, std::size_t>> seen;
  for (std::size_t r = 0; r < indices.rows; ++r) {
    seen.clear();
    double mass = 0;
    for (std::size_t k = 0; k < listed; ++k) {
      const std::int64_t t = indices.row(r)[k];
      if (t == -1) continue;
      if (t < 0 || static_cast<std::uint64_t>(t) >= cols) {
        fail_in_row(kName, "indices", r, k, "indices must be classes from 0 to {}, or -1 for none, got {}",
                    static_cast<std::int64_t>(cols) - 1, t);
      }
      const auto log_p = static_cast<double>(static_cast<Working<L>>(log_probs.row(r)[k]));
      mass += std::exp(log_p);
      if (!(mass <= 1 + kSumTolerance<L>)) {
        const std::string_view what =
            log_p <= 0 ? "log_probs must have a mass of at most 1 in every row, got" : "log_probs must be at most 0, got";
        fail_in_row(kName, "log_probs", r, k, "{} {}", what, log_p <= 0 ? mass : log_p);
      }
      logs[r * listed + k] = log_p;
      seen.emplace_back(t, k);
    }
    std::ranges::sort(seen);
    const auto twice = std::ranges::adjacent_find(seen, {}, &std::pair<std::int64_t, std::size_t>::first);
    if (twice != seen.end()) {
      fail_in_row(kName, "indices", r, (twice + 1)->second, "indices must have a class once in every row, got class {} twice",
                  twice->first);
    }
    if (op.tail == Tail::bin && seen.size() == cols && !seen.empty() && !(mass >= 1 - kSumTolerance<L>)) {
      fail_in_row(kName, "log_probs", r, "log_probs must have a mass of 1 where all classes are listed, got {}", mass);
    }
    if (op.tail == Tail::renormalize && mass == 0 && !seen.empty()) {
      fail_in_row(kName, "log_probs", r, "log_probs must have a mass above 0 in every row with tail renormalize, got 0");
    }
  }
  return logs;
}

}  // namespace

template <class T, class L>
void loss(const SparseLoss& loss, MatrixView<const T> x, MatrixView<const std::int64_t> indices, MatrixView<const L> log_probs,
          std::span<double> value, MatrixView<std::type_identity_t<T>> dx, std::span<const PerRow> per_row,
          std::span<const ParamGradient> gradients) {
  using W = Working<T>;
  const auto& op = std::get<SparseDistillationLoss>(loss);
  const std::string_view name = description_of(op).name;
  const std::size_t rows = x.rows, n = x.cols, listed = indices.cols;
  check_params(op, per_row, rows);
  check_gradients(op, gradients, rows);
  check_layout(name, "student", x);
  check_size(name, "value", value.size(), rows);
  if (dx.data != nullptr || dx.rows != 0 || dx.cols != 0) {
    check_shape(name, "dx", dx, "student", rows, n);
    check_overlap(name, "dx", dx, "student", x);
  }
  if (indices.rows != rows)
    fail("{}: indices must have one row for each of {} rows of student, got {}", name, rows, indices.rows);
  check_has_columns(name, "indices", indices);
  check_layout(name, "indices", indices);
  check_shape(name, "log_probs", log_probs, "indices", rows, listed);
  check_apart(name, "dx", dx, "indices", indices);
  check_apart(name, "dx", dx, "log_probs", log_probs);
  const std::vector<double> logs = checked_teacher(op, n, indices, log_probs);
  const LossKernels<W> kernel = loss_kernels<W>();
  const std::size_t room = kernel.sparse_memory(n, listed), wide_size = 2 * n;
  parallel_rows(rows, 2 * n + 8 * listed, [&](std::size_t begin, std::size_t end) {
    const std::size_t at_once = rows_at_once<T>(end - begin, wide_size);
    Arena memory = scratch(Arena::room<float>(kIsHalf<T> ? at_once * wide_size : 0) + room);
    float* const wide_memory = memory.take<float>(kIsHalf<T> ? at_once * wide_size : 0);
    for (std::size_t first = begin; first < end; first += at_once) {
      const std::size_t count = std::min(at_once, end - first);
      const auto part = [&](const auto& a) {
        return std::remove_cvref_t<decltype(a)>(a.row(first), count, a.cols, a.row_stride);
      };
      float* wide = wide_memory;
      SparseBatch<W> work = {working_rows(x, first, count, wide),
                             part(indices),
                             {logs.data() + first * listed, count, listed},
                             value.subspan(first, count),
                             {},
                             RowsOf<PerRow>(per_row, first),
                             RowsOf<ParamGradient>(gradients, first)};
      work.dx = result_rows(dx, first, count, wide);
      kernel.sparse_rows(op, work, memory);
      finish_rows(work.dx, dx, first);
    }
  });
}

#define ISENTROPIC_SPARSE_LOSSES(T, L)                                                                            \
  template void loss(const SparseLoss&, MatrixView<const T>, MatrixView<const std::int64_t>, MatrixView<const L>, \
                     std::span<double>, MatrixView<T>, std::span<const PerRow>, std::span<const ParamGradient>)
#define ISENTROPIC_SPARSE_LOSSES_OF(T)  \
  ISENTROPIC_SPARSE_LOSSES(T, float);   \
  ISENTROPIC_SPARSE_LOSSES(T, double);  \
  ISENTROPIC_SPARSE_LOSSES(T, float16); \
  ISENTROPIC_SPARSE_LOSSES(T, bfloat16)
ISENTROPIC_SPARSE_LOSSES_OF(float);
ISENTROPIC_SPARSE_LOSSES_OF(double);
ISENTROPIC_SPARSE_LOSSES_OF(float16);
ISENTROPIC_SPARSE_LOSSES_OF(bfloat16);
#undef ISENTROPIC_SPARSE_LOSSES_OF
#undef ISENTROPIC_SPARSE_LOSSES

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

// Maps, called: checks, threads and memory for the kernels.

#include "isentropic/maps.h"

#include <algorithm>
#include <array>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

#include "isentropic/perturb_max.h"
#include "src/check.h"
#include "src/half.h"
#include "src/maps/check.h"
#include "src/maps/cost.h"
#include "src/maps/kernels.h"
#include "src/parallel.h"
#include "src/per_row.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

struct Caches {
  std::size_t own, last;  // bytes of the second level, which belongs to a core, and of the last, which the cores share
};

// A guess where the system does not say.
const Caches& caches() {
  static const Caches found = [] {
    Caches sizes = {std::size_t{512} << 10, std::size_t{32} << 20};
#ifdef _SC_LEVEL2_CACHE_SIZE
    if (const long own = sysconf(_SC_LEVEL2_CACHE_SIZE); own > 0) sizes.own = static_cast<std::size_t>(own);
    if (const long last = sysconf(_SC_LEVEL3_CACHE_SIZE); last > 0) sizes.last = static_cast<std::size_t>(last);
#endif
    return sizes;
  }();
  return found;
}

// A batch of at least this many bytes bypasses the caches when written: it is more than a core's share of the last level.
std::size_t streamed_bytes() { return std::clamp(caches().last / 8, std::size_t{16} << 20, std::size_t{32} << 20); }

// Distributes the rows of in[0] and calls rows(in, out, first, share) for each piece, in the types of the computation; its rows
// count from `first`. `cost` is the operation's (see Description), `room` the memory that it needs.
template <class T, std::size_t N, class Rows>
void for_shares(const std::array<MatrixView<const T>, N>& in, MatrixView<T> out, std::size_t cost, std::size_t room,
                const Rows& rows) {
  using W = Working<T>;
  const auto& x = in[0];
  if (x.cols == 0) return;
  std::size_t row_size = out.cols;
  for (const auto& view : in) row_size += view.cols;
  // Do not stream over the input, whose lines are already in the cache.
  const std::size_t row = x.cols * sizeof(T), batch = x.rows * row;
  const bool stream = !kIsHalf<T> && out.data != x.data && batch >= streamed_bytes();
  const bool fetch = !kIsHalf<T> && batch >= caches().own && 3 * row <= caches().own;
  parallel_rows(x.rows, x.cols * cost, [&](std::size_t begin, std::size_t end) {
    const std::size_t block = rows_at_once<T>(end - begin, row_size);
    const std::size_t wide_size = kIsHalf<T> ? block * row_size : 0;
    Arena memory = scratch(Arena::room<float>(wide_size) + room);
    float* const wide_rows = memory.take<float>(wide_size);
    for (std::size_t first = begin; first < end; first += block) {
      const std::size_t count = std::min(block, end - first);
      float* wide = wide_rows;
      std::array<MatrixView<const W>, N> views;
      for (std::size_t k = 0; k < N; ++k) views[k] = working_rows(in[k], first, count, wide);
      const MatrixView<W> result = result_rows(out, first, count, wide);
      rows(views, result, first, Share<W>{0, count, memory, stream, fetch});
      finish_rows(result, out, first);
    }
  });
}

// Checks the parameters of a gradient.
template <class Op, class T>
void check_slopes(const Op& op, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients,
                  const MatrixView<const T>& x) {
  check_params(op, per_row, x.rows);
  for (const ParamGradient& asked : gradients) check_per_row<Op>(asked.parameter, asked.values.size(), x.rows);
}

// Rows without entries have a gradient of 0 in the parameters. Called after all checks.
template <class T>
void settle_empty_rows(const MatrixView<const T>& x, std::span<const ParamGradient> gradients) {
  if (x.cols > 0) return;
  for (const ParamGradient& asked : gradients) std::fill(asked.values.begin(), asked.values.end(), 0.0);
}

}  // namespace

template <class T>
void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p, std::span<const PerRow> per_row) {
  std::visit([&](const auto& op) { check_params(op, per_row, x.rows); }, map);
  check_map(description_of(map).name, x, "p", p, per_row);
  const MapKernels kernel = map_kernels<Working<T>>();
  for_shares<T, 1>({x}, p, cost_of(map), kernel.memory(map, x.cols),
                   [&](const auto& in, auto out, std::size_t first, auto share) {
                     kernel.map(map, in[0], out, RowsOf(per_row, first), share);
                   });
}

template <class T>
void apply_vjp(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> p,
               MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, std::span<const PerRow> per_row,
               std::span<const ParamGradient> gradients) {
  std::visit([&](const auto& op) { check_slopes(op, per_row, gradients, x); }, map);
  check_vjp(description_of(map).name, x, "p", p, g, dx, per_row, gradients);
  settle_empty_rows(x, gradients);
  const MapKernels kernel = map_kernels<Working<T>>();
  const std::size_t cost = cost_of(map), room = kernel.memory(map, x.cols);
  if constexpr (kIsHalf<T>) {
    // p is computed again, because rounding lost its entropy and its small entries.
    for_shares<T, 2>({x, g}, dx, 2 * cost, room, [&](const auto& in, auto out, std::size_t first, auto share) {
      const RowsOf values(per_row, first);
      kernel.map(map, in[0], out, values, share);
      kernel.vjp(map, in[0], out, in[1], out, values, RowsOf(gradients, first), share);
    });
  } else {
    for_shares<T, 3>({x, p, g}, dx, cost, room, [&](const auto& in, auto out, std::size_t first, auto share) {
      kernel.vjp(map, in[0], in[1], in[2], out, RowsOf(per_row, first), RowsOf(gradients, first), share);
    });
  }
}

template <class T>
void perturb_max(const NoiseFunctions& noise, double scale, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p) {
  const CustomPerturbMax op = {noise, scale};
  check_params(op);
  check_map(description_of(op).name, x, "p", p);
  const MapKernels kernel = map_kernels<T>();
  for_shares<T, 1>({x}, p, description_of(op).cost, kernel.perturb_max_memory(x.cols),
                   [&](const auto& in, auto out, std::size_t, auto share) { kernel.perturb_max(op, in[0], out, {}, share); });
}

template <class T>
void perturb_max_vjp(const NoiseFunctions& noise, double scale, MatrixView<const std::type_identity_t<T>> x,
                     MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                     MatrixView<T> dx) {
  const CustomPerturbMax op = {noise, scale};
  check_params(op);
  check_vjp(description_of(op).name, x, "p", p, g, dx);
  const MapKernels kernel = map_kernels<T>();
  for_shares<T, 3>({x, p, g}, dx, description_of(op).cost, kernel.perturb_max_memory(x.cols),
                   [&](const auto& in, auto out, std::size_t, auto share) {
                     kernel.perturb_max_vjp(op, in[0], in[1], in[2], out, {}, {}, share);
                   });
}

template <class T>
void log_softmax(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                 std::span<const PerRow> per_row) {
  check_params(options, per_row, x.rows);
  check_map("log_softmax", x, "y", y, per_row);
  const MapKernels kernel = map_kernels<Working<T>>();
  for_shares<T, 1>({x}, y, 1, kernel.logsumexp_memory(x.cols), [&](const auto& in, auto out, std::size_t first, auto share) {
    kernel.log_softmax(options, in[0], out, RowsOf(per_row, first), share);
  });
}

template <class T>
void log_softmax_vjp(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x,
                     MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx,
                     std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  check_slopes(options, per_row, gradients, x);
  check_vjp("log_softmax", x, "y", y, g, dx, per_row, gradients);
  settle_empty_rows(x, gradients);
  const MapKernels kernel = map_kernels<Working<T>>();
  const std::size_t room = kernel.logsumexp_memory(x.cols);
  if constexpr (kIsHalf<T>) {
    for_shares<T, 2>({x, g}, dx, 2, room, [&](const auto& in, auto out, std::size_t first, auto share) {
      const RowsOf values(per_row, first);
      kernel.log_softmax(options, in[0], out, values, share);
      kernel.log_softmax_vjp(options, in[0], out, in[1], out, values, RowsOf(gradients, first), share);
    });
  } else {
    for_shares<T, 3>({x, y, g}, dx, 1, room, [&](const auto& in, auto out, std::size_t first, auto share) {
      kernel.log_softmax_vjp(options, in[0], in[1], in[2], out, RowsOf(per_row, first), RowsOf(gradients, first), share);
    });
  }
}

template <class T>
void logsumexp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
               std::span<const PerRow> per_row) {
  check_params(options, per_row, x.rows);
  check_layout("logsumexp", "x", x);
  check_shape("logsumexp", "y", y, "a column with x's rows", x.rows, std::size_t{1});
  check_apart("logsumexp", "y", y, "x", x);
  check_apart("logsumexp", "y", y, per_row);
  // An empty sum is 0; there are no rows to distribute.
  if (x.cols == 0) {
    for (std::size_t r = 0; r < y.rows; ++r) *y.row(r) = T(-std::numeric_limits<Working<T>>::infinity());
  }
  const MapKernels kernel = map_kernels<Working<T>>();
  for_shares<T, 1>({x}, y, 1, kernel.logsumexp_memory(x.cols), [&](const auto& in, auto out, std::size_t first, auto share) {
    kernel.logsumexp(options, in[0], out, RowsOf(per_row, first), share);
  });
}

template <class T>
void logsumexp_vjp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x,
                   MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx,
                   std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  check_slopes(options, per_row, gradients, x);
  check_map("logsumexp", x, "dx", dx, per_row);
  check_shape("logsumexp", "y", y, "a column with x's rows", x.rows, std::size_t{1});
  check_shape("logsumexp", "g", g, "a column with x's rows", x.rows, std::size_t{1});
  check_apart("logsumexp", "dx", dx, "g", g);
  check_apart("logsumexp", "dx", dx, "y", y);
  check_gradients_apart<T>("logsumexp", gradients, {{"dx", dx}, {"x", x}, {"y", y}, {"g", g}});
  settle_empty_rows(x, gradients);
  const MapKernels kernel = map_kernels<Working<T>>();
  for_shares<T, 2>({x, g}, dx, 1, kernel.logsumexp_memory(x.cols),
                   [&](const auto& in, auto out, std::size_t first, auto share) {
                     kernel.logsumexp_vjp(options, in[0], in[1], out, RowsOf(per_row, first), RowsOf(gradients, first), share);
                   });
}

template <class T>
void soft_top_k(const SoftTopK& op, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                std::span<const PerRow> per_row) {
  check_params(op, per_row, x.rows);
  check_map("soft_top_k", x, "p", p, per_row);
  const MapKernels kernel = map_kernels<Working<T>>();
  for_shares<T, 1>({x}, p, description_of(op).cost, kernel.soft_top_k_memory(x.cols),
                   [&](const auto& in, auto out, std::size_t first, auto share) {
                     kernel.soft_top_k(op, in[0], out, RowsOf(per_row, first), share);
                   });
}

template <class T>
void soft_top_k_vjp(const SoftTopK& op, MatrixView<const std::type_identity_t<T>> x,
                    MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx,
                    std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  check_slopes(op, per_row, gradients, x);
  check_vjp("soft_top_k", x, "p", p, g, dx, per_row, gradients);
  settle_empty_rows(x, gradients);
  const MapKernels kernel = map_kernels<Working<T>>();
  for_shares<T, 2>({x, g}, dx, description_of(op).cost, kernel.soft_top_k_memory(x.cols),
                   [&](const auto& in, auto out, std::size_t first, auto share) {
                     kernel.soft_top_k_vjp(op, in[0], in[1], out, RowsOf(per_row, first), RowsOf(gradients, first), share);
                   });
}

#define ISENTROPIC_MAPS(T)                                                                                                    \
  template void apply(const Map&, MatrixView<const T>, MatrixView<T>, std::span<const PerRow>);                               \
  template void apply_vjp(const Map&, MatrixView<const T>, MatrixView<const T>, MatrixView<const T>, MatrixView<T>,           \
                          std::span<const PerRow>, std::span<const ParamGradient>);                                           \
  template void log_softmax(const LogSoftmax&, MatrixView<const T>, MatrixView<T>, std::span<const PerRow>);                  \
  template void log_softmax_vjp(const LogSoftmax&, MatrixView<const T>, MatrixView<const T>, MatrixView<const T>,             \
                                MatrixView<T>, std::span<const PerRow>, std::span<const ParamGradient>);                      \
  template void soft_top_k(const SoftTopK&, MatrixView<const T>, MatrixView<T>, std::span<const PerRow>);                     \
  template void soft_top_k_vjp(const SoftTopK&, MatrixView<const T>, MatrixView<const T>, MatrixView<const T>, MatrixView<T>, \
                               std::span<const PerRow>, std::span<const ParamGradient>);                                      \
  template void logsumexp(const LogSumExp&, MatrixView<const T>, MatrixView<T>, std::span<const PerRow>);                     \
  template void logsumexp_vjp(const LogSumExp&, MatrixView<const T>, MatrixView<const T>, MatrixView<const T>, MatrixView<T>, \
                              std::span<const PerRow>, std::span<const ParamGradient>)
ISENTROPIC_MAPS(float);
ISENTROPIC_MAPS(double);
ISENTROPIC_MAPS(float16);
ISENTROPIC_MAPS(bfloat16);
#undef ISENTROPIC_MAPS
template void perturb_max(const NoiseFunctions&, double, MatrixView<const float>, MatrixView<float>);
template void perturb_max(const NoiseFunctions&, double, MatrixView<const double>, MatrixView<double>);
template void perturb_max_vjp(const NoiseFunctions&, double, MatrixView<const float>, MatrixView<const float>,
                              MatrixView<const float>, MatrixView<float>);
template void perturb_max_vjp(const NoiseFunctions&, double, MatrixView<const double>, MatrixView<const double>,
                              MatrixView<const double>, MatrixView<double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

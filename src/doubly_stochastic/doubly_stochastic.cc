// Doubly stochastic tables, dispatched: the kernels for every SIMD target; then, once, checks, threads, tables that are too
// large for a lane, and those for which sums of products are not enough.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/doubly_stochastic/doubly_stochastic.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/doubly_stochastic/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS(MakeTables);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "isentropic/doubly_stochastic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/check.h"
#include "src/doubly_stochastic/logarithms.h"
#include "src/doubly_stochastic/products.h"
#include "src/parallel.h"
#include "src/scratch.h"
#include "src/transport/laplacian.h"

namespace isentropic::inline ISENTROPIC_ABI {

ISENTROPIC_KERNELS_BY(table_kernels, MakeTables);

namespace {

constexpr std::string_view kName = Described<DoublyStochastic>::kDescription.name;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Numbers of a table that lanes have side by side: eight lanes of them stay in the second level of cache.
constexpr std::size_t kSmallTable = 256;

Sweeps sweeps_of(const DoublyStochastic& op, std::size_t n, std::size_t m) {
  // A sum of k numbers may be off by as many roundings.
  const double rounding = 0x1p-52 * static_cast<double>(n + m);
  const double tolerance = std::max(op.tolerance.value_or(DoublyStochastic::kTolerance), rounding);
  return {n, m, op.temperature, static_cast<std::size_t>(op.iterations), std::exp(-tolerance), std::exp(tolerance)};
}

template <class T>
MatrixView<T> tables_of(const MatrixView<T>& all, std::size_t t, std::size_t count, std::size_t n) {
  return {all.data + t * n * all.row_stride, count * n, all.cols, all.row_stride};
}
template <class T>
MatrixView<T> table_of(const MatrixView<T>& all, std::size_t t, std::size_t n) {
  return tables_of(all, t, 1, n);
}

// Calls run(t, count, done) for groups of tables, then one(t) for each table that is not done.
template <class Run, class One>
void in_lanes(std::size_t begin, std::size_t end, const Run& run, const One& one) {
  constexpr std::size_t kAtOnce = 64;
  bool done[kAtOnce];
  for (std::size_t t = begin; t < end; t += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, end - t);
    run(t, count, done);
    for (std::size_t k = 0; k < count; ++k) {
      if (!done[k]) one(t + k);
    }
  }
}
struct Lanes;  // whose memory a thread keeps

template <class T>
void fill(MatrixView<T> y, double value) {
  for (std::size_t i = 0; i < y.rows; ++i) std::fill(y.row(i), y.row(i) + y.cols, static_cast<T>(value));
}

// A table that lanes did not do.
template <class T>
void one_table(const Sweeps& s, MatrixView<const T> x, MatrixView<T> y) {
  const auto by_products = [&](Products products) {
    const bool done = products.run(false);
    if (done) products.write(y);
    return done;
  };
  if (s.iterations > 0 && by_products({s, x})) return;
  Logarithms logs(s, x);
  if (!logs.good()) return fill(y, kNaN);
  if (s.iterations > 0) {
    for (std::size_t t = 0; t < s.iterations; ++t) logs.row_step(), logs.column_step();
    return logs.write(y);
  }
  if (logs.forbids()) {
    if (!logs.restrict_to_support()) return fill(y, kNaN);
    Sweeps scaled = s;
    scaled.temperature = 1;
    if (by_products({scaled, logs.scores()})) return;
  } else if (by_products({s, x})) {
    return;
  }
  logs.solve();
  logs.write(y);
}

template <class T>
void one_table_vjp(const Sweeps& s, MatrixView<const T> x, MatrixView<const T> g, MatrixView<T> dx) {
  {
    Products products(s, x);
    if (products.run(true)) return products.vjp(g, dx);
  }
  Logarithms logs(s, x);
  if (!logs.good()) return fill(dx, kNaN);
  logs.vjp(g, dx);
}

// dx = y (g - u_i - v_j) / T with r_i u_i + sum_j y_ij v_j = sum_j y_ij g_ij and sum_i y_ij u_i + c_j v_j = sum_i y_ij g_ij, r
// and c the sums of y. Without u it is a Laplacian of the columns, with weights w_jk = sum_i y_ij y_ik / r_i, in which nothing
// cancels where parts of the table hardly touch. The smaller side is kept.
template <class T>
void limit_vjp(double temperature, MatrixView<const T> y, MatrixView<const T> g, MatrixView<T> dx) {
  const bool turned = y.rows < y.cols;
  const std::size_t n = turned ? y.cols : y.rows, m = turned ? y.rows : y.cols;
  const auto at = [&](const MatrixView<const T>& of, std::size_t i, std::size_t j) {
    return static_cast<double>(turned ? of.row(j)[i] : of.row(i)[j]);
  };
  std::vector<double> w(m * m), right(m), means(n), sums(n), row(m);
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0, mean = 0;
    for (std::size_t j = 0; j < m; ++j) {
      row[j] = at(y, i, j), sum += row[j];
      if (row[j] > 0) mean += row[j] * at(g, i, j);
    }
    if (sum != sum) return fill(dx, kNaN);
    sums[i] = sum, means[i] = mean / sum;
    for (std::size_t j = 0; j < m; ++j) {
      if (row[j] > 0) right[j] += row[j] * (at(g, i, j) - means[i]);
    }
    add_products(row, sum, sum, some, w);
  }
  const std::vector<double> v = solve_laplacian(std::move(w), std::move(right), std::vector<double>(m), true);
  for (std::size_t i = 0; i < n; ++i) {
    double mean = 0;
    for (std::size_t j = 0; j < m; ++j) mean += at(y, i, j) * v[j];
    mean /= sums[i];
    for (std::size_t j = 0; j < m; ++j) {
      const double yij = at(y, i, j);
      const double slope = yij > 0 ? yij * (at(g, i, j) - means[i] - (v[j] - mean)) / temperature : 0;
      (turned ? dx.row(j)[i] : dx.row(i)[j]) = static_cast<T>(slope);
    }
  }
}

template <class T>
std::size_t check_tables(const DoublyStochastic& op, std::string_view name, const MatrixView<const T>& x, std::size_t tables) {
  check_params(op);
  check_layout(name, "x", x);
  if (tables == 0 ? x.rows > 0 : x.rows % tables != 0) {
    fail("{}: x must have equally many rows for each of {} tables, got {}", name, tables, x.rows);
  }
  return tables == 0 ? 0 : x.rows / tables;
}

}  // namespace

template <class T>
void doubly_stochastic(const DoublyStochastic& op, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                       std::size_t tables) {
  const std::size_t n = check_tables(op, kName, x, tables), m = x.cols;
  check_shape(kName, "y", y, "x", x.rows, m);
  check_overlap(kName, "y", y, "x", x);
  if (n == 0 || m == 0) return;
  const Sweeps s = sweeps_of(op, n, m);
  const TableKernels<T> kernels = table_kernels<T>();
  parallel_rows(tables, 40 * n * m, [&](std::size_t begin, std::size_t end) {
    if (n * m > kSmallTable) {
      for (std::size_t t = begin; t < end; ++t) one_table(s, table_of(x, t, n), table_of(y, t, n));
      return;
    }
    const CallMemory<Lanes> memory(kernels.lanes_room(s, false));
    in_lanes(
        begin, end,
        [&](std::size_t t, std::size_t count, bool* done) {
          kernels.lanes(s, tables_of(x, t, count, n), tables_of(y, t, count, n), count, done, memory.arena());
        },
        [&](std::size_t t) { one_table(s, table_of(x, t, n), table_of(y, t, n)); });
  });
}

template <class T>
void doubly_stochastic_vjp(const DoublyStochastic& op, MatrixView<const std::type_identity_t<T>> x,
                           MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g,
                           MatrixView<T> dx, std::size_t tables) {
  constexpr std::string_view name = "doubly_stochastic_vjp";
  const std::size_t n = check_tables(op, name, x, tables), m = x.cols;
  check_shape(name, "y", y, "x", x.rows, m);
  check_shape(name, "g", g, "x", x.rows, m);
  check_shape(name, "dx", dx, "x", x.rows, m);
  check_overlap(name, "dx", dx, "x", x);
  check_overlap(name, "dx", dx, "y", y);
  check_overlap(name, "dx", dx, "g", g);
  if (n == 0 || m == 0) return;
  const Sweeps s = sweeps_of(op, n, m);
  const TableKernels<T> kernels = table_kernels<T>();
  parallel_rows(tables, 100 * n * m, [&](std::size_t begin, std::size_t end) {
    const auto one = [&](std::size_t t) {
      if (s.iterations > 0) return one_table_vjp(s, table_of(x, t, n), table_of(g, t, n), table_of(dx, t, n));
      limit_vjp(s.temperature, table_of(y, t, n), table_of(g, t, n), table_of(dx, t, n));
    };
    if (n * m > kSmallTable || s.iterations == 0) {
      for (std::size_t t = begin; t < end; ++t) one(t);
      return;
    }
    const CallMemory<Lanes> memory(kernels.lanes_room(s, true));
    in_lanes(
        begin, end,
        [&](std::size_t t, std::size_t count, bool* done) {
          kernels.lanes_vjp(s, tables_of(x, t, count, n), tables_of(g, t, count, n), tables_of(dx, t, count, n), count, done,
                            memory.arena());
        },
        one);
  });
}

template void doubly_stochastic(const DoublyStochastic&, MatrixView<const float>, MatrixView<float>, std::size_t);
template void doubly_stochastic(const DoublyStochastic&, MatrixView<const double>, MatrixView<double>, std::size_t);
template void doubly_stochastic_vjp(const DoublyStochastic&, MatrixView<const float>, MatrixView<const float>,
                                    MatrixView<const float>, MatrixView<float>, std::size_t);
template void doubly_stochastic_vjp(const DoublyStochastic&, MatrixView<const double>, MatrixView<const double>,
                                    MatrixView<const double>, MatrixView<double>, std::size_t);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

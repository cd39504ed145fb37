// What the kernels of doubly stochastic tables are handed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isentropic/matrix_view.h"
#include "isentropic/version.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Beyond it exp(x / T) of a row may leave the range in which sums of products neither overflow nor vanish.
constexpr double kWidest = 300;  // of max_j x_ij - x_ij, in units of T
// Sums of rows and columns that are further from 1 are a reason to calculate with logarithms.
constexpr double kFarthest = 1e200;
// Sweeps in search of the limit, after which Newton's method takes over.
constexpr std::size_t kMostSweeps = 500;

// Sinkhorn's sweeps of tables of n x m.
struct Sweeps {
  std::size_t n, m;
  double temperature;
  std::size_t iterations;  // 0: until rows have their sums
  double low, high;        // of a row's sum that is right

  double column_sum() const { return static_cast<double>(n) / static_cast<double>(m); }
};

template <class T>
struct TableKernels {
  // Bytes of memory for the tables of all lanes.
  std::size_t (*lanes_room)(const Sweeps&, bool vjp);
  // y of `count` tables, side by side in the lanes. done[t] is false for a table that is left to others: it has numbers that
  // are not finite or far apart, or it needs more sweeps.
  void (*lanes)(const Sweeps&, MatrixView<const T> x, MatrixView<T> y, std::size_t count, bool* done, Arena memory);
  // dx of a number of iterations.
  void (*lanes_vjp)(const Sweeps&, MatrixView<const T> x, MatrixView<const T> g, MatrixView<T> dx, std::size_t count,
                    bool* done, Arena memory);
  // e_j = exp((x_j - max x) / T); false if a number is NaN or +inf, all are -inf, or finite ones are too far apart.
  bool (*exponentials)(const T* x, std::size_t m, double temperature, double* e);
};

// The functions of the best target, or of the forced one.
template <class T>
TableKernels<T> table_kernels();

}  // namespace isentropic::inline ISENTROPIC_ABI

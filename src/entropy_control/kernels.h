// The interface between the kernels of entropy control and the code that dispatches them.
#pragma once

#include <cstddef>
#include <span>

#include "isentropic/entropy_control.h"
#include "src/per_row.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {

// One thread's share of a batch: rows [begin, end), and memory to compute in.
struct ControlShare {
  std::size_t begin, end;
  Arena memory;
};

struct GammaResult {
  std::span<double> gamma, entropy;
  std::span<GammaStatus> status;
};

// The kernels of one SIMD target for one element type.
template <class T>
struct ControlKernels {
  // Memory for rows of n: each kernel needs at most two of them in float64.
  static constexpr std::size_t room(std::size_t n) { return 2 * Arena::room<double>(n); }

  void (*gamma)(const GammaForEntropy&, RowsOf<PerRow>, MatrixView<const T> x, GammaResult, ControlShare);
  void (*power)(const PowerTransform&, RowsOf<PerRow>, MatrixView<const T> p, MatrixView<T> q, ControlShare);
  void (*density)(const NormalizeDensity&, RowsOf<PerRow>, MatrixView<const T> p, MatrixView<const double> weights,
                  MatrixView<T> q, std::span<Normalized> result, ControlShare);
  void (*mean_field)(const MeanFieldEntropy&, MatrixView<const T> x, std::span<double> estimate, ControlShare);
  Normalized (*table)(const NormalizeJoint&, std::size_t rows, std::size_t cols, double* table, double* marginal);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

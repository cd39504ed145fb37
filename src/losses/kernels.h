// The interface between the kernels of the losses and the code that dispatches them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "isentropic/losses.h"
#include "src/maps/kernels.h"
#include "src/per_row.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A batch for the kernels: classes or a matrix of targets; dx has no data if no gradient is wanted.
template <class T>
struct LossBatch {
  MatrixView<const T> x;
  std::span<const std::int64_t> classes;
  MatrixView<const T> target;
  std::span<double> value;
  MatrixView<T> dx;
  RowsOf<PerRow> per_row;
  RowsOf<ParamGradient> gradients;
  std::optional<std::int64_t> ignored;

  bool is_ignored(std::size_t r) const { return ignored && !classes.empty() && classes[r] == *ignored; }

  // Rows [begin, begin + count).
  LossBatch rows(std::size_t begin, std::size_t count) const {
    LossBatch part = *this;
    part.x = {x.row(begin), count, x.cols, x.row_stride};
    if (!classes.empty()) part.classes = classes.subspan(begin, count);
    if (target.data != nullptr) part.target = {target.row(begin), count, target.cols, target.row_stride};
    part.value = value.subspan(begin, count);
    if (dx.data != nullptr) part.dx = {dx.row(begin), count, dx.cols, dx.row_stride};
    part.per_row = per_row.from(begin);
    part.gradients = gradients.from(begin);
    return part;
  }
};

// A batch against sparse teachers, whose logarithms have been checked and widened.
template <class T>
struct SparseBatch {
  MatrixView<const T> x;
  MatrixView<const std::int64_t> indices;
  MatrixView<const double> log_probs;
  std::span<double> value;
  MatrixView<T> dx;
  RowsOf<PerRow> per_row;
  RowsOf<ParamGradient> gradients;
};

// Workspace: the loss's memory for rows of n, and a block of rows for distributions.
template <class T>
struct LossScratch {
  const MapKernels<T>& maps;
  Arena memory;
  T* block;  // block_rows x n
  std::size_t block_rows;
};

// The kernels of one SIMD target for one element type.
template <class T>
struct LossKernels {
  void (*rows)(const Loss&, const LossBatch<T>&, LossScratch<T>);
  // Bytes of memory that the loss needs for rows of n.
  std::size_t (*memory)(const Loss&, const MapKernels<T>&, std::size_t n);

  void (*sparse_rows)(const SparseDistillationLoss&, const SparseBatch<T>&, Arena memory);
  std::size_t (*sparse_memory)(std::size_t n, std::size_t listed);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

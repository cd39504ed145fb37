// The interface between the kernels of the measures and the code that dispatches them.
#pragma once

#include <cstddef>

#include "isentropic/measures.h"
#include "src/per_row.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {

struct TableShape {
  std::size_t rows, cols;
};

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
  // Memory for rows of n. Each distribution takes three rows in float64, a pair three more; a table has its own memory.
  static constexpr std::size_t room(std::size_t n) { return 9 * Arena::room<double>(n); }

  void (*sums)(Input, bool normalize, MatrixView<const T> p, double* sums);
  void (*one)(const Measure&, MatrixView<const T> p, GivenSums, double* value, MatrixView<T> dp, RowsOf<PerRow>,
              RowsOf<ParamGradient>, Arena memory);
  void (*two)(const Divergence&, MatrixView<const T> p, MatrixView<const T> q, GivenSums of_p, GivenSums of_q, double* value,
              MatrixView<T> dp, MatrixView<T> dq, RowsOf<PerRow>, RowsOf<ParamGradient>, Arena memory);
  double (*table)(const TableMeasure&, const T* pxy, TableShape, double sum, Arena memory, T* dp);
  std::size_t (*table_room)(TableShape);
  void (*entries)(const EntryMeasure&, MatrixView<const T> p, GivenSums, MatrixView<T> value, MatrixView<T> dp, Arena memory);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

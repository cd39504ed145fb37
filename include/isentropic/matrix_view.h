// A view of a batch of rows; it does not own their memory.
#pragma once

#include <cstddef>
#include <type_traits>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// rows x cols numbers; row r starts at data + r * row_stride and its entries are contiguous. row_stride counts elements, not
// bytes, and is at least cols if there is more than one row.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t row_stride = 0;

  MatrixView() = default;
  MatrixView(T* numbers, std::size_t row_count, std::size_t col_count, std::size_t stride)
      : data(numbers), rows(row_count), cols(col_count), row_stride(stride) {}
  MatrixView(T* numbers, std::size_t row_count, std::size_t col_count) : MatrixView(numbers, row_count, col_count, col_count) {}

  // A view that may write converts to one that only reads.
  template <class U, class = std::enable_if_t<std::is_same_v<T, const U>>>
  MatrixView(const MatrixView<U>& other)  // NOLINT(google-explicit-constructor)
      : MatrixView(other.data, other.rows, other.cols, other.row_stride) {}

  T* row(std::size_t r) const { return data + r * row_stride; }
};

}  // namespace isentropic::inline ISENTROPIC_ABI

// Conversion of 16-bit numbers to float and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "isentropic/half.h"
#include "isentropic/matrix_view.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The type in which rows of T are computed.
template <class T>
using Working = std::conditional_t<kIsHalf<T>, float, T>;

void widen(const float16* x, std::size_t n, float* y);
void widen(const bfloat16* x, std::size_t n, float* y);
void narrow(const float* x, std::size_t n, float16* y);
void narrow(const float* x, std::size_t n, bfloat16* y);

// The number of whole rows that stay in the cache together.
inline std::size_t rows_in_cache(std::size_t rows, std::size_t numbers_per_row) {
  constexpr std::size_t kNumbers = 32768;
  return std::clamp<std::size_t>(kNumbers / std::max<std::size_t>(numbers_per_row, 1), 1, std::max<std::size_t>(rows, 1));
}

// The rows of a block: for halves as many as stay in the cache as float, for other types all rows.
template <class T>
std::size_t rows_at_once(std::size_t rows, std::size_t numbers_per_row) {
  return kIsHalf<T> ? rows_in_cache(rows, numbers_per_row) : rows;
}

// Rows [first, first + count) of x for a kernel: the rows themselves or, for halves, copies in `memory`, which is moved past
// them.
template <class T>
MatrixView<const Working<T>> working_rows(const MatrixView<const T>& x, std::size_t first, std::size_t count, float*& memory) {
  if constexpr (kIsHalf<T>) {
    const MatrixView<float> wide(memory, count, x.cols);
    for (std::size_t r = 0; r < count; ++r) widen(x.row(first + r), x.cols, wide.row(r));
    memory += count * x.cols;
    return wide;
  } else {
    (void)memory;
    return {x.row(first), count, x.cols, x.row_stride};
  }
}

// The memory for the results of these rows of `out`, until finish_rows() puts them in their place; no memory if `out` has no
// data.
template <class T>
MatrixView<Working<T>> result_rows(const MatrixView<T>& out, std::size_t first, std::size_t count, float*& memory) {
  if (out.data == nullptr) return {};
  if constexpr (kIsHalf<T>) {
    const MatrixView<float> wide(memory, count, out.cols);
    memory += count * out.cols;
    return wide;
  } else {
    (void)memory;
    return {out.row(first), count, out.cols, out.row_stride};
  }
}
template <class T>
void finish_rows(const MatrixView<Working<T>>& result, const MatrixView<T>& out, std::size_t first) {
  if constexpr (kIsHalf<T>) {
    for (std::size_t r = 0; r < result.rows; ++r) narrow(result.row(r), result.cols, out.row(first + r));
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI

// A view of a batch of rows; it does not own their memory.
//
//   std::vector<float> numbers(6);
//   isentropic::MatrixView x(numbers, 2, 3);     // two rows of three; of a const vector a MatrixView<const float>
//   isentropic::MatrixView<float> row = numbers;  // one row of six
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <ranges>
#include <type_traits>
#include <utility>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A std::vector, std::span, std::array or another contiguous range of which a MatrixView<T> can be made: it is no temporary,
// except for an argument that is only read.
template <class Numbers, class T>
concept NumbersOf = std::ranges::contiguous_range<Numbers> && std::ranges::sized_range<Numbers> &&
    std::is_convertible_v<decltype(std::ranges::data(std::declval<Numbers&>())), T*> &&
    (std::is_const_v<T> || std::ranges::borrowed_range<Numbers>);

// Throws: std::invalid_argument unless `size` numbers hold rows x cols with this stride.
ISENTROPIC_API void check_holds(std::size_t size, std::size_t rows, std::size_t cols, std::size_t row_stride);

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

  // Of numbers in a container. Throws: std::invalid_argument if it has too few.
  template <NumbersOf<T> Numbers>
  MatrixView(Numbers&& numbers, std::size_t row_count, std::size_t col_count, std::size_t stride)
      : MatrixView(std::ranges::data(numbers), row_count, col_count, stride) {
    check_holds(std::ranges::size(numbers), rows, cols, row_stride);
  }
  template <NumbersOf<T> Numbers>
  MatrixView(Numbers&& numbers, std::size_t row_count, std::size_t col_count)
      : MatrixView(numbers, row_count, col_count, col_count) {}

  // One row in a container.
  template <NumbersOf<T> Row>
  MatrixView(Row&& row)  // NOLINT(google-explicit-constructor)
      : MatrixView(std::ranges::data(row), 1, std::ranges::size(row)) {}

  // A view that may write converts to one that only reads.
  template <class U, class = std::enable_if_t<std::is_same_v<T, const U>>>
  MatrixView(const MatrixView<U>& other)  // NOLINT(google-explicit-constructor)
      : MatrixView(other.data, other.rows, other.cols, other.row_stride) {}

  T* row(std::size_t r) const { return data + r * row_stride; }
};

template <std::ranges::contiguous_range Numbers, class... Sizes>
MatrixView(Numbers&&, Sizes...) -> MatrixView<std::remove_reference_t<std::ranges::range_reference_t<Numbers>>>;

// A view that may write, for an argument that is only read: a template cannot deduce the type of that argument from it.
template <class View>
inline constexpr bool kIsWritable = false;
template <class T>
inline constexpr bool kIsWritable<MatrixView<T>> = !std::is_const_v<T>;
template <class View>
concept WritableView = kIsWritable<View>;

// The type of a view's numbers.
template <class View>
using NumberIn = std::remove_const_t<std::remove_pointer_t<decltype(View::data)>>;

template <class T>
MatrixView<const T> read_only(const MatrixView<T>& view) {
  return view;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

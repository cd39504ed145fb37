// One row in a container.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <ranges>
#include <type_traits>

#include "isentropic/export.h"
#include "isentropic/half.h"
#include "isentropic/matrix_view.h"

namespace isentropic::inline ISENTROPIC_ABI {

// std::span, std::vector, std::array and every other contiguous range of float, double, float16 or bfloat16.
template <class Row>
concept RowOfNumbers = std::ranges::contiguous_range<Row> && std::ranges::sized_range<Row> &&
    (std::is_same_v<std::ranges::range_value_t<Row>, float> || std::is_same_v<std::ranges::range_value_t<Row>, double> ||
     kIsHalf<std::ranges::range_value_t<Row>>);

// The type of the row's numbers.
template <RowOfNumbers Row>
using NumberOfRow = std::ranges::range_value_t<Row>;

// The row as a batch of one.
template <RowOfNumbers Row>
auto row_view(Row&& row) {
  return MatrixView<std::remove_reference_t<std::ranges::range_reference_t<Row>>>(std::ranges::data(row), 1,
                                                                                  std::ranges::size(row));
}

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

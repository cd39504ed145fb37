// One row in a container.
#pragma once

#include "entropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <ranges>
#include <type_traits>

#include "entropic/export.h"
#include "entropic/half.h"
#include "entropic/matrix_view.h"

namespace entropic::inline ENTROPIC_ABI {

// std::span, std::vector, std::array and every other contiguous range of float, double, float16 or bfloat16.
template <class Row>
concept RowOfNumbers = std::ranges::contiguous_range<Row> && std::ranges::sized_range<Row> &&
    (std::is_same_v<std::ranges::range_value_t<Row>, float> || std::is_same_v<std::ranges::range_value_t<Row>, double> ||
     kIsHalf<std::ranges::range_value_t<Row>>);

// The row as a batch of one.
template <RowOfNumbers Row>
auto row_view(Row&& row) {
  return MatrixView<std::remove_reference_t<std::ranges::range_reference_t<Row>>>(std::ranges::data(row), 1,
                                                                                  std::ranges::size(row));
}

}  // namespace entropic::inline ENTROPIC_ABI

#endif

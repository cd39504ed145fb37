// Rows along an axis of arrays from Python, as the library takes them.
#pragma once

#include <entropic/strided_rows.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "params.h"

namespace entropic {

inline StridedArray strided(const Array& a) {
  const auto ndim = static_cast<std::size_t>(a.ndim);
  return {a.data, {a.shape, ndim}, {a.strides, ndim}, static_cast<std::size_t>(a.item_size())};
}

// An axis of an array with `dims` of them, or NumPy's own error.
std::size_t to_axis(std::string_view where, nb::handle axis, int dims);

// One value for each row of x, by index, from an array that broadcasts with x and has size 1 along its axis.
std::vector<double> spread(std::string_view where, std::string_view name, const Array& a, const Array& x, std::size_t axis);

// An array of this type.
RowArgument row_argument(std::string_view where, std::string_view name, const Array& a, Type type, bool output);

}  // namespace entropic

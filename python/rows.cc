// Rows along an axis of arrays from Python.
#include "rows.h"

#include <array>
#include <cstring>

namespace isentropic {

std::size_t to_axis(std::string_view where, nb::handle axis, int dims, std::string_view name) {
  constexpr std::string_view kOne = "one integer (to map over several axes at once, reshape them into one first)";
  if (nb::isinstance<nb::bool_>(axis)) wrong_type(where, "axis", kOne, axis);
  const std::int64_t given = to_int(where, "axis", axis, kOne);
  if (dims == 0) {
    throw nb::value_error(
        (std::string(where) + ": " + std::string(name) + " must have at least one axis, got a single number").c_str());
  }
  if (given < -dims || given >= dims) {
    const nb::object type = nb::module_::import_("numpy.exceptions").attr("AxisError");
    const nb::object error = type(axis, dims, nb::str(where.data(), where.size()));
    PyErr_SetObject(type.ptr(), error.ptr());
    throw nb::python_error();
  }
  return static_cast<std::size_t>(given < 0 ? given + dims : given);
}

std::vector<double> spread(std::string_view where, std::string_view name, const Array& a, std::string_view x_name,
                           const Array& x, std::size_t axis) {
  const int missing = x.ndim - a.ndim;
  bool fits = missing >= 0;
  std::size_t rows = 1;
  std::array<std::ptrdiff_t, kMaxDims> size, stride;
  for (int d = 0; fits && d < x.ndim; ++d) {
    size[d] = d == static_cast<int>(axis) ? 1 : x.shape[d];
    const std::ptrdiff_t own_size = d < missing ? 1 : a.shape[d - missing];
    fits = own_size == 1 || own_size == size[d];
    stride[d] = own_size == 1 ? 0 : a.strides[d - missing];
    rows *= static_cast<std::size_t>(size[d]);
  }
  if (!fits) {
    std::vector<std::ptrdiff_t> wanted(x.shape, x.shape + x.ndim);
    wanted[axis] = 1;
    throw nb::value_error((std::string(where) + ": " + std::string(name) + " must be a number or an array that broadcasts to " +
                           shape_text(wanted) + ", " + std::string(x_name) + "'s shape with 1 for axis " +
                           std::to_string(axis) + ", got shape " + shape_text(strided(a).shape))
                              .c_str());
  }
  std::vector<double> values(rows);
  std::array<std::ptrdiff_t, kMaxDims> index{};
  const char* from = a.data;
  for (double& value : values) {
    std::memcpy(&value, from, sizeof(double));
    for (int d = x.ndim - 1; d >= 0; --d) {
      from += stride[d];
      if (++index[d] < size[d]) break;
      from -= stride[d] * size[d];
      index[d] = 0;
    }
  }
  return values;
}

}  // namespace isentropic

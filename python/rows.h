// Rows along an axis of arrays from Python, in the form that the library takes.
#pragma once

#include <isentropic/strided_rows.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "params.h"

namespace isentropic {

inline StridedArray strided(const Array& a) {
  const auto ndim = static_cast<std::size_t>(a.ndim);
  return {a.data, {a.shape, ndim}, {a.strides, ndim}, static_cast<std::size_t>(a.item_size())};
}

// An axis of the array `name`, which has `dims` axes, or NumPy's own error.
std::size_t to_axis(std::string_view where, nb::handle axis, int dims, std::string_view name = "x");

// One value for each row of x, by index, from an array that broadcasts with x and has size 1 along its axis.
std::vector<double> spread(std::string_view where, std::string_view name, const Array& a, std::string_view x_name,
                           const Array& x, std::size_t axis);

// An array of a call; None means that it is absent.
struct GivenArray {
  std::string_view name;
  nb::handle array;
  bool output = false;
  bool one_per_row = false;
  bool one_for_all = false;
  bool own_type = false;  // may have another type than the first array
};

// The arrays of a call as rows along an axis. Parameters given as arrays get a value for each of these rows, by index.
template <std::size_t N>
class GivenRows {
 public:
  GivenRows(std::string_view where, const GivenArray (&given)[N], nb::handle axis, ParamValues& params,
            bool has_gradients = false)
      : GivenRows(where, given, axis, params, has_gradients, std::make_index_sequence<N>()) {}
  GivenRows(const GivenRows&) = delete;
  GivenRows& operator=(const GivenRows&) = delete;

  const StridedRows& rows() const { return rows_; }
  Type type(std::size_t k = 0) const { return buffers_[k]->type; }

 private:
  template <std::size_t... k>
  GivenRows(std::string_view where, const GivenArray (&given)[N], nb::handle axis, ParamValues& params, bool has_gradients,
            std::index_sequence<k...>)
      : buffers_{Buffer(where, given[k].array, given[k].output)...},
        axis_(to_axis(where, axis, buffers_[0]->ndim, given[0].name)),
        arguments_{argument(where, given[k], *buffers_[k], buffers_[0]->type)...},
        rows_(where, arguments_, axis_, params.arrays.empty() && !has_gradients ? RowOrder::free : RowOrder::by_index) {
    for (ParamValues::Array& array : params.arrays) {
      array.values = spread(where, array.parameter, *array.buffer, given[0].name, *buffers_[0], axis_);
      params.per_row.push_back({array.parameter, array.values});
    }
  }

  static RowArgument argument(std::string_view where, const GivenArray& given, const Array& a, Type type) {
    const bool absent = given.array.is_none();
    if (!absent && !given.own_type && a.type != type) {
      throw nb::value_error(
          (std::string(where) + ": " + std::string(given.name) + " must be of the type of the first array").c_str());
    }
    return {.name = given.name,
            .array = absent ? StridedArray() : strided(a),
            .output = given.output,
            .one_per_row = given.one_per_row,
            .one_for_all = given.one_for_all,
            .absent = absent};
  }

  std::array<Buffer, N> buffers_;
  std::size_t axis_;
  std::array<RowArgument, N> arguments_;
  StridedRows rows_;
};

// Calls run(numbers) for a block with one number for each row: the library calculates float64, and the result may be wanted in
// float32.
template <class Run>
void as_double(const RowBlock& block, Type type, const Run& run) {
  if (type == Type::float64) return run(block.numbers<double>());
  std::vector<double> wide(block.rows);
  run(std::span<double>(wide));
  std::ranges::transform(wide, block.numbers<float>().begin(), [](double one) { return static_cast<float>(one); });
}

}  // namespace isentropic

// Calls by description, on numbers of tables.
#include "call.h"

void call(const isentropic::OperationInfo& info, std::span<const isentropic::ParamValue> values,
          std::span<const ArrayOf> arrays, std::optional<std::int64_t> ignored) {
  struct Layout {
    std::ptrdiff_t shape[2], strides[2];
  };
  static std::int64_t none = 0;  // the place of an array without numbers
  std::vector<Layout> layouts(arrays.size());
  std::vector<isentropic::CallArray> given(info.arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ArrayOf& one = arrays[i];
    const auto cols = static_cast<std::ptrdiff_t>(one.cols);
    layouts[i] = {{static_cast<std::ptrdiff_t>(one.rows), cols}, {one.is_one_row ? 0 : one.is_column ? 1 : cols, 1}};
    const std::size_t axes = one.is_column ? 1 : 2;
    given[i].data = static_cast<char*>(one.rows * one.cols == 0 ? &none : one.data);
    given[i].shape = {layouts[i].shape, axes};
    given[i].strides = {layouts[i].strides, axes};
    given[i].item_size = size_of(one.type);
    given[i].unit = static_cast<std::ptrdiff_t>(given[i].item_size);
    given[i].type = one.type;
  }
  isentropic::runner_of(info,
                        false)({.operation = info, .values = values, .arrays = given, .axis = 1, .ignore_index = ignored});
}

// Calls by description (isentropic/call.h) on numbers of tables.
#pragma once

#include <isentropic/call.h>
#include <isentropic/matrix_view.h>

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

// One array of a call: rows of numbers without gaps, or one number for each row.
struct ArrayOf {
  void* data;
  isentropic::NumberType type;
  std::size_t rows, cols;
  bool is_column = false;
  bool is_one_row = false;  // for all rows
};

template <class T>
ArrayOf numbers_of(isentropic::MatrixView<T> x) {
  using Number = std::remove_const_t<T>;
  return {const_cast<Number*>(x.data), isentropic::kTypeOf<Number>, x.rows, x.cols};
}
// y has one column.
template <class T>
ArrayOf column_of(isentropic::MatrixView<T> y) {
  return {y.data, isentropic::kTypeOf<T>, y.rows, 1, true};
}

// Calls the operation on arrays in the order of its description; those after the last are left out. Throws as the library
// does.
void call(const isentropic::OperationInfo& info, std::span<const isentropic::ParamValue> values,
          std::span<const ArrayOf> arrays, std::optional<std::int64_t> ignored = {});

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
  void* data = nullptr;  // null: the array is left out
  isentropic::NumberType type = isentropic::NumberType::float64;
  std::size_t rows = 0, cols = 0;
  bool is_column = false;
  bool is_one_row = false;  // for all rows
};

template <class T>
constexpr isentropic::NumberType type_of() {
  using isentropic::NumberType;
  if constexpr (std::is_same_v<T, float>) return NumberType::float32;
  if constexpr (std::is_same_v<T, isentropic::float16>) return NumberType::float16;
  if constexpr (std::is_same_v<T, isentropic::bfloat16>) return NumberType::bfloat16;
  if constexpr (std::is_same_v<T, std::int64_t>) return NumberType::int64;
  return NumberType::float64;
}

template <class T>
ArrayOf numbers_of(isentropic::MatrixView<T> x) {
  using Number = std::remove_const_t<T>;
  return {const_cast<Number*>(x.data), type_of<Number>(), x.rows, x.cols};
}
// y has one column.
template <class T>
ArrayOf column_of(isentropic::MatrixView<T> y) {
  return {y.data, type_of<T>(), y.rows, 1, true};
}

// Calls the operation on arrays in the order of its description; those behind the last are left out. Throws as the library
// does.
void call(const isentropic::OperationInfo& info, std::span<const isentropic::ParamValue> values,
          std::span<const ArrayOf> arrays, std::optional<std::int64_t> ignored = {});

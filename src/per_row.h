// Parameters with a value for each row.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "isentropic/describe.h"

namespace isentropic::inline ISENTROPIC_ABI {

// op with the values of row r.
template <class Op>
inline Op at_row(Op op, std::span<const PerRow> per_row, std::size_t r) {
  for_each_param<Op>([&](const auto& param) {
    if constexpr (requires { op.*param.member = 1.0; }) {
      for (const PerRow& given : per_row) {
        if (given.parameter == param.name) op.*param.member = given.values[r];
      }
    }
  });
  return op;
}

// One number for each parameter of Op, in their order.
template <class Op>
using ParamValues = std::array<double, std::tuple_size_v<decltype(Op::kParams)>>;

// The number of the parameter with this name.
template <class Op>
inline double value_of(const ParamValues<Op>& values, std::string_view name) {
  double value = 0;
  std::size_t i = 0;
  for_each_param<Op>([&](const auto& param) {
    if (param.name == name) value = values[i];
    ++i;
  });
  return value;
}

// The name of the parameter with this member.
template <class Op>
inline std::string_view name_of(double Op::*member) {
  std::string_view name;
  for_each_param<Op>([&](const auto& param) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(param)>, Param<Op>>) {
      if (param.member == member) name = param.name;
    }
  });
  return name;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

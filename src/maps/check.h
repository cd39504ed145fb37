// Checks of a map's arrays, for all devices.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class T>
void check_map(std::string_view name, const MatrixView<const T>& x, std::string_view out_name, const MatrixView<T>& out,
               std::span<const PerRow> per_row = {}) {
  check_layout(name, "x", x);
  check_shape(name, out_name, out, "x", x.rows, x.cols);
  check_overlap(name, out_name, out, "x", x);
  check_apart(name, out_name, out, per_row);
}

// Checks that gradients in parameters share no memory with the arrays of rows.
template <class T>
void check_gradients_apart(std::string_view name, std::span<const ParamGradient> gradients,
                           std::initializer_list<std::pair<std::string_view, MatrixView<const T>>> rows) {
  for (const ParamGradient& one : gradients) {
    const MatrixView<double> column(one.values.data(), one.values.size(), 1);
    for (const auto& [row_name, row] : rows) check_apart(name, "d_" + std::string(one.parameter), column, row_name, row);
  }
}

template <class T>
void check_vjp(std::string_view name, const MatrixView<const T>& x, std::string_view y_name, const MatrixView<const T>& y,
               const MatrixView<const T>& g, const MatrixView<T>& dx, std::span<const PerRow> per_row = {},
               std::span<const ParamGradient> gradients = {}) {
  check_map(name, x, "dx", dx, per_row);
  check_shape(name, y_name, y, "x", x.rows, x.cols);
  check_shape(name, "g", g, "x", x.rows, x.cols);
  check_overlap(name, "dx", dx, y_name, y);
  check_overlap(name, "dx", dx, "g", g);
  check_gradients_apart<T>(name, gradients, {{"dx", dx}, {"x", x}, {y_name, y}, {"g", g}});
}

}  // namespace isentropic::inline ISENTROPIC_ABI

// Checks of a map's arrays, for all devices.
#pragma once

#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class T>
void check_map(std::string_view name, const MatrixView<const T>& x, std::string_view out_name, const MatrixView<T>& out) {
  check_layout(name, "x", x);
  check_shape(name, out_name, out, "x", x.rows, x.cols);
  check_overlap(name, out_name, out, "x", x);
}

template <class T>
void check_vjp(std::string_view name, const MatrixView<const T>& x, std::string_view y_name, const MatrixView<const T>& y,
               const MatrixView<const T>& g, const MatrixView<T>& dx) {
  check_map(name, x, "dx", dx);
  check_shape(name, y_name, y, "x", x.rows, x.cols);
  check_shape(name, "g", g, "x", x.rows, x.cols);
  check_overlap(name, "dx", dx, y_name, y);
  check_overlap(name, "dx", dx, "g", g);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

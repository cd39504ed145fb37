// Checks of a measure's arrays and the bound of its value, for all devices.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <string_view>
#include <type_traits>

#include "isentropic/measures.h"
#include "src/check.h"
#include "src/half.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Checks that the gradient, if wanted, has the shape of p. A gradient without data is not wanted, and may have any shape.
template <class T, class P>
void check_gradient(std::string_view operation, std::string_view name, MatrixView<T>& dp, std::string_view p_name,
                    const MatrixView<P>& p) {
  if (dp.data == nullptr) dp = {};
  if (dp.data != nullptr) check_shape(operation, name, dp, p_name, p.rows, p.cols);
}

template <class T>
void check_measure(std::string_view name, const MatrixView<const T>& p, std::span<double> value, MatrixView<T>& dp) {
  check_layout(name, "p", p);
  check_size(name, "value", value.size(), p.rows);
  check_gradient(name, "dp", dp, "p", p);
  check_overlap(name, "dp", dp, "p", p);
}

// q has one row for all rows of p, or a row for each.
template <class T>
void check_divergence(std::string_view name, const MatrixView<const T>& p, const MatrixView<const T>& q,
                      std::span<double> value, MatrixView<T>& dp, MatrixView<T>& dq) {
  check_measure(name, p, value, dp);
  check_shape(name, "q", q, "p, or one row for all", q.rows == 1 ? 1 : p.rows, p.cols);
  check_gradient(name, "dq", dq, "p", p);
  check_apart(name, "dp", dp, "q", q);
  check_apart(name, "dq", dq, "p", p);
  if (q.rows == p.rows) {
    check_overlap(name, "dq", dq, "q", q);
  } else {
    check_apart(name, "dq", dq, "q", q);
  }
  check_apart(name, "dp", dp, "dq", dq);
}

// The upper bound of a divergence: log 2 of Jensen and Shannon's, and its root; 1 of those without a unit.
template <class Op>
double bound_of(const Op& op) {
  if constexpr (std::is_same_v<Op, TotalVariation> || std::is_same_v<Op, HellingerDistance>) {
    return 1;
  } else if constexpr (std::is_same_v<Op, JsDivergence> || std::is_same_v<Op, JsDistance>) {
    const double bound = std::numbers::ln2 / (op.base ? std::log(*op.base) : 1);
    return std::is_same_v<Op, JsDistance> ? std::sqrt(bound) : bound;
  } else {
    return std::numeric_limits<double>::infinity();
  }
}

// The largest T up to a bound above 0. A value that exceeds the bound when it is rounded to T is stored as this.
template <class T>
double stored_up_to(double bound) {
  const T rounded = static_cast<T>(bound);
  return static_cast<double>(static_cast<double>(rounded) > bound ? std::nextafter(rounded, T(0)) : rounded);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

// Argument checks. All of them refuse with fail(), fail_in_row() or fail_at(): errors as fields, which only row_error.h puts
// into words.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "isentropic/describe.h"
#include "isentropic/maps.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row_error.h"
#include "src/formatted.h"
#include "src/per_row.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw std::invalid_argument(formatted(text, std::forward<Args>(args)...));
}

// Refuses an entry of a row of an argument, or the row as a whole.
// The message ends with the place.
template <class... Args>
[[noreturn]] void fail_in_row(std::string_view operation, std::string_view argument, std::size_t row, std::size_t entry,
                              fmt::format_string<Args...> text, Args&&... args) {
  throw RowError(operation, argument, formatted(text, std::forward<Args>(args)...), row, {}, entry);
}
template <class... Args>
[[noreturn]] void fail_in_row(std::string_view operation, std::string_view argument, std::size_t row,
                              fmt::format_string<Args...> text, Args&&... args) {
  throw RowError(operation, argument, formatted(text, std::forward<Args>(args)...), row);
}

// The values of the parameters that a rule names, as the end of its message.
template <class Op>
std::string values_in(const Op& op, std::string_view rule) {
  std::string all;
  for_each_param<Op>([&]<class Value>(const Param<Op, Value>& param) {
    if (rule.find(param.name) == std::string_view::npos) return;
    const auto add = [&](const auto& value) { all += formatted("{}{} {}", all.empty() ? ", got " : ", ", param.name, value); };
    const Value value = op.*param.member;
    if constexpr (std::is_enum_v<Value>) {
      add(param.names[static_cast<std::size_t>(value)]);
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      if (value) add(*value);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      add(value);
    }
  });
  return all;
}

// Refuses an argument at a place, or as a whole.
template <class... Args>
[[noreturn]] void fail_at(std::string_view operation, std::string_view argument, const ErrorPlace& place,
                          fmt::format_string<Args...> text, Args&&... args) {
  throw ArgumentError(operation, argument, formatted(text, std::forward<Args>(args)...), place);
}

inline ErrorPlace in_matrix(std::size_t row, std::size_t column) { return {row, column, " at row ", ", column ", true}; }

// Checks that every parameter of op is in its declared range, and that they satisfy op's own rules. If the values belong to one
// row, the message names it: `row`.
template <class Op>
void check_params(const Op& op, std::optional<std::size_t> row = {}) {
  for_each_param<Op>([&]<class Value>(const Param<Op, Value>& param) {
    using Bound = typename Param<Op, Value>::Bound;
    const Value& value = op.*param.member;
    if constexpr (std::is_enum_v<Value>) {
      const auto index = static_cast<std::size_t>(value);
      if (index >= param.names.size()) {
        fail("{}: {} must be {}, got number {}", Described<Op>::kDescription.name, param.name, allowed_values(param), index);
      }
    } else if constexpr (!std::is_same_v<Value, bool> && !std::is_same_v<Value, std::vector<std::int64_t>> &&
                         !std::is_same_v<Value, Map>) {  // the parameters of a map are checked with its rows
      Bound number = {};
      if constexpr (std::is_same_v<Value, std::optional<double>>) {
        if (!value) return;
        number = *value;
      } else {
        number = value;
      }
      // This form refuses NaN.
      bool good = number > param.above && number >= param.at_least && number <= param.up_to;
      if constexpr (std::is_integral_v<Bound>) good &= param.multiple_of == 0 || number % param.multiple_of == 0;
      if (good) return;
      fail("{}: {}{} must be {}, got {}", Described<Op>::kDescription.name, param.name,
           row ? fmt::format(" of row {}", *row) : "", allowed_values(param), number);
    }
  });
  if constexpr (requires { op.check(); }) {
    if (const std::string_view wrong = op.check(); !wrong.empty()) {
      fail("{}: {}{}{}", Described<Op>::kDescription.name, wrong, row ? fmt::format(" in row {}", *row) : "",
           values_in(op, wrong));
    }
  }
}

// Checks that the parameter may be per_row and has one number for each row.
template <class Op>
void check_per_row(std::string_view parameter, std::size_t count, std::size_t rows) {
  bool found = false;
  for_each_param<Op>([&](const auto& param) { found |= param.per_row && param.name == parameter; });
  if (!found) fail("{}: there is no parameter '{}' with a value for each row", Described<Op>::kDescription.name, parameter);
  if (count != rows)
    fail("{}: {} must have one value for each of {} rows, got {}", Described<Op>::kDescription.name, parameter, rows, count);
}

template <class Op>
void check_params(const Op& op, std::span<const PerRow> per_row, std::size_t rows) {
  for (const PerRow& given : per_row) check_per_row<Op>(given.parameter, given.values.size(), rows);
  if (per_row.empty()) return check_params(op);
  for (std::size_t r = 0; r < rows; ++r) check_params(at_row(op, per_row, r), r);
}

// Checks an array with one entry for each row.
inline void check_size(std::string_view operation, std::string_view name, std::size_t size, std::size_t rows) {
  if (size != rows) fail_at(operation, name, {}, "{} must have one entry for each of {} rows, got {}", name, rows, size);
}

template <class T>
void check_layout(std::string_view operation, std::string_view name, const MatrixView<T>& a) {
  if (a.rows > 1 && a.row_stride < a.cols) {
    fail("{}: row_stride of {} must be at least its cols, {}, got {}", operation, name, a.cols, a.row_stride);
  }
  if (a.data == nullptr && a.rows > 0 && a.cols > 0) {
    fail("{}: {} must point to {} x {} numbers, got a null pointer", operation, name, a.rows, a.cols);
  }
}

// Checks that the view has the rows and cols of the reference argument.
template <class T>
void check_shape(std::string_view operation, std::string_view name, const MatrixView<T>& a, std::string_view reference_name,
                 std::size_t rows, std::size_t cols) {
  check_layout(operation, name, a);
  if (a.rows != rows || a.cols != cols) {
    fail_at(operation, name, {}, "{} must have the shape of {}, {} x {}, got {} x {}", name, reference_name, rows, cols, a.rows,
            a.cols);
  }
}

// Refuses rows without entries.
template <class T>
void check_has_columns(std::string_view operation, std::string_view name, const MatrixView<T>& a) {
  if (a.cols == 0 && a.rows > 0) fail_at(operation, name, {}, "{} must have at least one column, got {} x 0", name, a.rows);
}

// Whether two views share a number. Views with equal strides and disjoint columns do not, although they interleave.
template <class A, class B>
bool overlap(const MatrixView<A>& a, const MatrixView<B>& b) {
  if (a.rows == 0 || a.cols == 0 || b.rows == 0 || b.cols == 0) return false;
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  const auto end_a = reinterpret_cast<std::uintptr_t>(a.row(a.rows - 1) + a.cols);
  const auto end_b = reinterpret_cast<std::uintptr_t>(b.row(b.rows - 1) + b.cols);
  if (end_a <= begin_b || end_b <= begin_a) return false;
  const std::size_t stride = a.row_stride * sizeof(A);
  if (a.rows == 1 || b.rows == 1 || stride != b.row_stride * sizeof(B)) return true;
  const std::size_t offset =
      begin_a <= begin_b ? (begin_b - begin_a) % stride : (stride - (begin_a - begin_b) % stride) % stride;
  return offset < a.cols * sizeof(A) || offset + b.cols * sizeof(B) > stride;
}

// Checks that the output is the input itself or shares no memory with it.
template <class T>
void check_overlap(std::string_view operation, std::string_view out_name, const MatrixView<T>& out, std::string_view in_name,
                   const MatrixView<const T>& in) {
  const bool same =
      out.data == in.data && out.rows == in.rows && out.cols == in.cols && (out.row_stride == in.row_stride || out.rows <= 1);
  if (!same && overlap(in, out)) {
    fail("{}: {} must be {} itself or share no memory with it, got views that overlap in part", operation, out_name, in_name);
  }
}

// Checks that the output shares no memory with this input.
template <class Out, class In>
void check_apart(std::string_view operation, std::string_view out_name, const MatrixView<Out>& out, std::string_view in_name,
                 const MatrixView<In>& in) {
  if (overlap(in, out)) {
    fail("{}: {} must share no memory with {}, got views that overlap", operation, out_name, in_name);
  }
}

// Checks that the output shares no memory with parameters that have a value for each row.
template <class Out>
void check_apart(std::string_view operation, std::string_view out_name, const MatrixView<Out>& out,
                 std::span<const PerRow> per_row) {
  for (const PerRow& one : per_row) {
    check_apart(operation, out_name, out, one.parameter, MatrixView<const double>(one.values.data(), one.values.size(), 1));
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI

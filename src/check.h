// Argument checks of every public function, and the only place that throws.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "entropic/matrix_view.h"
#include "entropic/operation.h"

namespace entropic {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw std::invalid_argument(fmt::format(text, std::forward<Args>(args)...));
}

// Every parameter of op inside the range that it declares.
template <class Op>
void check_params(const Op& op) {
  for_each_param<Op>([&]<class Value>(const Param<Op, Value>& param) {
    const Value value = op.*param.member;
    // Written so that NaN fails.
    bool good = value > param.above && value <= param.up_to;
    if constexpr (std::is_integral_v<Value>) good &= param.multiple_of == 0 || value % param.multiple_of == 0;
    if (good) return;
    std::string allowed;
    if (param.above != std::numeric_limits<Value>::lowest()) allowed = fmt::format("above {}", param.above);
    if (param.up_to != std::numeric_limits<Value>::max()) {
      allowed += fmt::format("{}at most {}", allowed.empty() ? "" : " and ", param.up_to);
    } else if (!std::is_integral_v<Value>) {
      allowed += allowed.empty() ? "finite" : " and finite";
    }
    if (param.multiple_of != Value{}) allowed += fmt::format(" and a multiple of {}", param.multiple_of);
    fail("{}: {} must be {}, got {}", Op::kDescription.name, param.name, allowed, value);
  });
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

// Same rows and cols as the reference argument.
template <class T>
void check_shape(std::string_view operation, std::string_view name, const MatrixView<T>& a, std::string_view reference_name,
                 std::size_t rows, std::size_t cols) {
  check_layout(operation, name, a);
  if (a.rows != rows || a.cols != cols) {
    fail("{}: {} must have the shape of {}, {} x {}, got {} x {}", operation, name, reference_name, rows, cols, a.rows, a.cols);
  }
}

// Whether two views share a number. Views of one stride whose columns are disjoint do not, although they interleave.
template <class A, class B>
bool overlap(const MatrixView<A>& a, const MatrixView<B>& b) {
  if (a.rows == 0 || a.cols == 0 || b.rows == 0 || b.cols == 0) return false;
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  const auto end_a = reinterpret_cast<std::uintptr_t>(a.row(a.rows - 1) + a.cols);
  const auto end_b = reinterpret_cast<std::uintptr_t>(b.row(b.rows - 1) + b.cols);
  if (end_a <= begin_b || end_b <= begin_a) return false;
  if (a.rows == 1 || b.rows == 1 || a.row_stride != b.row_stride) return true;
  const std::size_t stride = a.row_stride * sizeof(A);
  const std::size_t offset =
      begin_a <= begin_b ? (begin_b - begin_a) % stride : (stride - (begin_a - begin_b) % stride) % stride;
  return offset < a.cols * sizeof(A) || offset + b.cols * sizeof(B) > stride;
}

// The output may be an input as it stands, and may share no memory with it otherwise.
template <class T>
void check_overlap(std::string_view operation, std::string_view out_name, const MatrixView<T>& out, std::string_view in_name,
                   const MatrixView<const T>& in) {
  const bool same =
      out.data == in.data && out.rows == in.rows && out.cols == in.cols && (out.row_stride == in.row_stride || out.rows <= 1);
  if (!same && overlap(in, MatrixView<const T>(out))) {
    fail("{}: {} must be {} itself or share no memory with it, got views that overlap in part", operation, out_name, in_name);
  }
}

}  // namespace entropic

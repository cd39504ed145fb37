// Checks of attention's arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "isentropic/attention.h"
#include "src/arrays/apart.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class T>
std::string shape_text(const HeadsView<T>& a) {
  return fmt::format("{} x {} x {} x {}", a.batch, a.heads, a.rows, a.cols);
}

template <class T>
void check_heads(std::string_view name, std::string_view argument, const HeadsView<T>& a, std::size_t batch, std::size_t heads,
                 std::size_t rows, std::size_t cols, std::string_view like) {
  if (a.batch != batch || a.heads != heads || a.rows != rows || a.cols != cols) {
    fail("{}: {} must be {} x {} x {} x {}, {}, got {}", name, argument, batch, heads, rows, cols, like, shape_text(a));
  }
  if (a.data == nullptr && batch * heads * rows * cols > 0) {
    fail("{}: {} must point to {} numbers, got a null pointer", name, argument, shape_text(a));
  }
}

// The addresses of the first and of the last number.
template <class T>
std::pair<std::uintptr_t, std::uintptr_t> extent(const HeadsView<T>& a) {
  if (a.batch * a.heads * a.rows * a.cols == 0) return {0, 0};
  std::ptrdiff_t low = 0, high = static_cast<std::ptrdiff_t>(a.cols);
  for (const auto& [size, stride] :
       {std::pair(a.batch, a.batch_stride), std::pair(a.heads, a.head_stride), std::pair(a.rows, a.row_stride)}) {
    const std::ptrdiff_t reach = static_cast<std::ptrdiff_t>(size - 1) * stride;
    (reach < 0 ? low : high) += reach;
  }
  const auto at = reinterpret_cast<std::uintptr_t>(a.data);
  return {at + static_cast<std::uintptr_t>(low * static_cast<std::ptrdiff_t>(sizeof(T))),
          at + static_cast<std::uintptr_t>(high * static_cast<std::ptrdiff_t>(sizeof(T)))};
}

template <class Out, class In>
void check_apart(std::string_view name, std::string_view out_name, const HeadsView<Out>& out, std::string_view in_name,
                 const HeadsView<In>& in) {
  const auto [out_begin, out_end] = extent(out);
  const auto [in_begin, in_end] = extent(in);
  if (out_begin < in_end && in_begin < out_end) {
    fail("{}: {} must share no memory with {}, got views that overlap", name, out_name, in_name);
  }
}

template <class T>
void check_room(std::string_view name, std::string_view out_name, const HeadsView<T>& out) {
  const auto size = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
  const std::ptrdiff_t shape[] = {size(out.batch), size(out.heads), size(out.rows), size(out.cols)};
  const std::ptrdiff_t strides[] = {out.batch_stride, out.head_stride, out.row_stride, 1};
  const bool empty = out.batch * out.heads * out.rows * out.cols == 0;
  if (empty || has_room({reinterpret_cast<char*>(out.data), shape, strides, sizeof(T), sizeof(T)})) return;
  fail("{}: {} must have a separate place for each of its numbers, got strides that overlap", name, out_name);
}

template <class T>
void check_inputs(std::string_view name, const HeadsView<const T>& q, const HeadsView<const T>& k,
                  const HeadsView<const T>& v) {
  check_heads(name, "q", q, q.batch, q.heads, q.rows, q.cols, "");
  if (k.cols != q.cols) fail("{}: k must have the columns of q, {}, got {}", name, q.cols, k.cols);
  check_heads(name, "k", k, q.batch, k.heads, k.rows, q.cols, "with the batch and the columns of q");
  check_heads(name, "v", v, q.batch, k.heads, k.rows, v.cols, "with the batch, the heads and the rows of k");
  if (q.heads > 0 && (k.heads == 0 || q.heads % k.heads != 0)) {
    fail("{}: q must have a multiple of the heads of k, {}, got {}", name, k.heads, q.heads);
  }
}

// Checks g and the outputs dq, dk and dv, once the other inputs are checked.
template <class T>
void check_gradients(std::string_view name, const HeadsView<const T>& q, const HeadsView<const T>& k,
                     const HeadsView<const T>& v, const HeadsView<const T>& g, const HeadsView<T>& dq, const HeadsView<T>& dk,
                     const HeadsView<T>& dv) {
  check_heads(name, "g", g, q.batch, q.heads, q.rows, v.cols, "as q with the columns of v");
  check_heads(name, "dq", dq, q.batch, q.heads, q.rows, q.cols, "as q");
  check_heads(name, "dk", dk, k.batch, k.heads, k.rows, k.cols, "as k");
  check_heads(name, "dv", dv, v.batch, v.heads, v.rows, v.cols, "as v");
  for (const auto& [out_name, d] : {std::pair("dq", dq), std::pair("dk", dk), std::pair("dv", dv)}) {
    check_room(name, out_name, d);
    for (const auto& [in_name, x] : {std::pair("q", q), std::pair("k", k), std::pair("v", v), std::pair("g", g)}) {
      check_apart(name, out_name, d, in_name, x);
    }
  }
  check_apart(name, "dk", dk, "dq", dq);
  check_apart(name, "dv", dv, "dq", dq);
  check_apart(name, "dv", dv, "dk", dk);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

// Maps for Python: every registered one as a dict with a forward and a vjp function, on rows along any axis of any strides.
// Arrays arrive all of one type, one that the library has; entropic/_arrays.py and torch/ bring others to that.

#include <entropic/entropic.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings.h"
#include "params.h"

namespace entropic {
namespace {

// Called like maps, although what they give is no distribution.
using LogMap = std::variant<LogSoftmax>;
using Reduction = std::variant<LogSumExp>;

template <class Op>
constexpr bool kReduces = std::is_same_v<Op, LogSumExp>;

template <class Op, class T>
void forward(const Op& op, const std::array<MatrixView<T>, 2>& a, std::span<const PerRow> per_row) {
  const auto& [x, y] = a;
  if constexpr (std::is_same_v<Op, LogSoftmax>) {
    log_softmax<T>(x, y, op);
  } else if constexpr (std::is_same_v<Op, LogSumExp>) {
    logsumexp<T>(x, y, op);
  } else {
    apply<T>(op, x, y, per_row);
  }
}

template <class Op, class T>
void vjp(const Op& op, const std::array<MatrixView<T>, 4>& a, std::span<const PerRow> per_row,
         std::span<const ParamGradient> gradients) {
  const auto& [x, y, g, dx] = a;
  if constexpr (std::is_same_v<Op, LogSoftmax>) {
    log_softmax_vjp<T>(x, y, g, dx, op);
  } else if constexpr (std::is_same_v<Op, LogSumExp>) {
    logsumexp_vjp<T>(x, y, g, dx, op);
  } else {
    apply_vjp<T>(op, x, y, g, dx, per_row, gradients);
  }
}

// N arrays of the same batch axes, each with its rows along one axis or with one number per row. Strides are in bytes.
template <std::size_t N>
struct Rows {
  struct Axis {
    std::size_t size;
    std::array<std::ptrdiff_t, N> stride;
  };
  std::array<char*, N> data;
  std::array<std::size_t, N> cols;
  std::array<std::ptrdiff_t, N> col_stride;
  std::size_t rows = 1;
  std::array<Axis, kMaxDims> batch;  // what is left of the other axes when those that continue each other are joined
  int batch_dims = 0;
};

// In which order the rows of x are taken.
enum class Order { kByStride, kByIndex };

std::string shape_text(std::span<const std::ptrdiff_t> shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    text += std::to_string(shape[d]) + (d + 1 < shape.size() ? ", " : shape.size() == 1 ? "," : "");
  }
  return text + ")";
}

std::span<const std::ptrdiff_t> shape_of(const Array& a) { return {a.shape, static_cast<std::size_t>(a.ndim)}; }

int to_axis(std::string_view where, nb::handle axis, int dims) {
  constexpr std::string_view kOne = "one integer (to map over several axes at once, reshape them into one first)";
  if (nb::isinstance<nb::bool_>(axis)) wrong_type(where, "axis", kOne, axis);
  const std::int64_t given = to_int(where, "axis", axis, kOne);
  if (dims == 0) {
    throw nb::value_error((std::string(where) + ": x must have at least one axis, got a single number").c_str());
  }
  if (given < -dims || given >= dims) {
    const nb::object type = nb::module_::import_("numpy.exceptions").attr("AxisError");
    const nb::object error = type(axis, dims, nb::str(where.data(), where.size()));
    PyErr_SetObject(type.ptr(), error.ptr());
    throw nb::python_error();
  }
  return static_cast<int>(given < 0 ? given + dims : given);
}

// arrays[0] is x; the others have its shape or, where reduced, its shape without the axis or with 1 for it.
template <std::size_t N>
Rows<N> to_rows(std::string_view where, const std::array<const Array*, N>& arrays, const std::array<std::string_view, N>& names,
                const std::array<bool, N>& reduced, int axis, Order order) {
  const Array& x = *arrays[0];
  Rows<N> rows;
  for (int d = 0; d < x.ndim; ++d) {
    if (d == axis) continue;
    rows.rows *= static_cast<std::size_t>(x.shape[d]);
    if (x.shape[d] != 1) rows.batch[rows.batch_dims++].size = static_cast<std::size_t>(x.shape[d]);
  }
  for (std::size_t k = 0; k < N; ++k) {
    const Array& a = *arrays[k];
    const bool removed = reduced[k] && a.ndim == x.ndim - 1;
    bool same = a.type == x.type && a.ndim == x.ndim - removed;
    for (int d = 0, e = 0, b = 0; same && d < x.ndim; ++d) {
      if (d == axis && removed) continue;
      same = a.shape[e] == (d == axis && reduced[k] ? 1 : x.shape[d]);
      if (d != axis && x.shape[d] != 1) rows.batch[b++].stride[k] = a.strides[e];
      ++e;
    }
    if (!same) {
      throw nb::value_error((std::string(where) + ": " + std::string(names[k]) + " must have the shape of x" +
                             (reduced[k] ? " without axis " + std::to_string(axis) : "") + ", where x is " +
                             shape_text(shape_of(x)) + ", got " + shape_text(shape_of(a)))
                                .c_str());
    }
    rows.data[k] = a.data;
    rows.cols[k] = reduced[k] ? 1 : static_cast<std::size_t>(x.shape[axis]);
    rows.col_stride[k] = removed ? a.item_size() : a.strides[axis];
  }

  // Where the order of the rows is free: slowest axis of x first, then joins are found whatever the layout.
  const auto end = rows.batch.begin() + rows.batch_dims;
  if (order == Order::kByStride) {
    std::stable_sort(rows.batch.begin(), end,
                     [](const auto& a, const auto& b) { return std::abs(a.stride[0]) > std::abs(b.stride[0]); });
  }
  int joined = 0;
  for (auto next = rows.batch.begin(); next != end; ++next) {
    bool continues = joined > 0;
    for (std::size_t k = 0; continues && k < N; ++k) {
      continues = rows.batch[joined - 1].stride[k] == next->stride[k] * static_cast<std::ptrdiff_t>(next->size);
    }
    if (continues) {
      rows.batch[joined - 1] = {rows.batch[joined - 1].size * next->size, next->stride};
    } else {
      rows.batch[joined++] = *next;
    }
  }
  rows.batch_dims = joined;
  return rows;
}

// One value for each row of x, by index, from an array that broadcasts with x and has size 1 along its axis.
std::vector<double> spread(std::string_view where, std::string_view name, const Array& a, const Array& x, int axis) {
  const int missing = x.ndim - a.ndim;
  bool fits = missing >= 0;
  std::size_t rows = 1;
  std::array<std::ptrdiff_t, kMaxDims> size, stride;
  for (int d = 0; fits && d < x.ndim; ++d) {
    size[d] = d == axis ? 1 : x.shape[d];
    const std::ptrdiff_t own_size = d < missing ? 1 : a.shape[d - missing];
    fits = own_size == 1 || own_size == size[d];
    stride[d] = own_size == 1 ? 0 : a.strides[d - missing];
    rows *= static_cast<std::size_t>(size[d]);
  }
  if (!fits) {
    std::vector<std::ptrdiff_t> wanted(x.shape, x.shape + x.ndim);
    wanted[axis] = 1;
    throw nb::value_error((std::string(where) + ": " + std::string(name) + " must be a number or an array that broadcasts to " +
                           shape_text(wanted) + ", x's shape with 1 for axis " + std::to_string(axis) + ", got shape " +
                           shape_text(shape_of(a)))
                              .c_str());
  }
  std::vector<double> values(rows);
  std::array<std::ptrdiff_t, kMaxDims> index{};
  const char* from = a.data;
  for (double& value : values) {
    std::memcpy(&value, from, sizeof(double));
    for (int d = x.ndim - 1; d >= 0; --d) {
      from += stride[d];
      if (++index[d] < size[d]) break;
      from -= stride[d] * size[d];
      index[d] = 0;
    }
  }
  return values;
}

// Whether the library can be handed array k as it lies.
template <class T, std::size_t N>
bool is_matrix(const Rows<N>& rows, std::size_t k) {
  constexpr std::ptrdiff_t kSize = sizeof(T);
  if (reinterpret_cast<std::uintptr_t>(rows.data[k]) % alignof(T) != 0) return false;
  if (rows.cols[k] > 1 && rows.col_stride[k] != kSize) return false;
  if (rows.rows <= 1) return true;
  const std::ptrdiff_t stride = rows.batch[0].stride[k];
  return rows.batch_dims == 1 && stride % kSize == 0 && stride >= static_cast<std::ptrdiff_t>(rows.cols[k]) * kSize;
}

// Copies between rows anywhere, each entry col_stride bytes after the last, and a block of contiguous ones.
// Where the rows are columns of memory, a few side by side use what one cache line brings.
template <bool kGather, class T>
void copy_rows(const std::vector<std::ptrdiff_t>& offset, char* data, std::size_t rows, std::size_t cols,
               std::ptrdiff_t col_stride, T* block, std::size_t block_stride) {
  constexpr std::size_t kSideBySide = 16;
  const auto copy = [](char* outside, T* inside, std::size_t n) {
    if constexpr (kGather) {
      std::memcpy(inside, outside, n * sizeof(T));
    } else {
      std::memcpy(outside, inside, n * sizeof(T));
    }
  };
  if (cols == 0) return;
  if (col_stride == static_cast<std::ptrdiff_t>(sizeof(T))) {
    for (std::size_t r = 0; r < rows; ++r) copy(data + offset[r], block + r * block_stride, cols);
    return;
  }
  for (std::size_t begin = 0; begin < rows; begin += kSideBySide) {
    const std::size_t end = std::min(rows, begin + kSideBySide);
    for (std::size_t c = 0; c < cols; ++c) {
      for (std::size_t r = begin; r < end; ++r) {
        copy(data + offset[r] + static_cast<std::ptrdiff_t>(c) * col_stride, block + r * block_stride + c, 1);
      }
    }
  }
}

// Calls run(views, 0) once where every array is a matrix in memory; otherwise run(views, first row) for blocks of rows, those
// arrays that are not copied to and fro. The last array is the output.
template <class T, std::size_t N, class Run>
void for_blocks(const Rows<N>& rows, const Run& run) {
  constexpr std::size_t kBlock = 1 << 17;  // entries: enough for several threads, little enough for the cache
  std::array<MatrixView<T>, N> views;
  std::array<bool, N> direct;
  for (std::size_t k = 0; k < N; ++k) {
    direct[k] = rows.rows == 0 || is_matrix<T>(rows, k);
    const bool has_stride = rows.rows > 1 && direct[k];
    views[k] = {reinterpret_cast<T*>(rows.data[k]), rows.rows, rows.cols[k],
                has_stride ? static_cast<std::size_t>(rows.batch[0].stride[k]) / sizeof(T) : rows.cols[k]};
  }
  if (std::ranges::all_of(direct, std::identity())) return run(views, 0);

  // Not a multiple of a power of two: rows side by side would compete for the same cache sets.
  const std::size_t cols = rows.cols[0];
  const std::size_t block_stride = cols + 16;
  const std::size_t block_rows = std::clamp<std::size_t>(kBlock / block_stride, 1, rows.rows);
  std::array<std::unique_ptr<T[]>, N> blocks;
  std::array<std::vector<std::ptrdiff_t>, N> offsets;
  for (std::size_t k = 0; k < N; ++k) {
    if (direct[k]) continue;
    blocks[k] = std::make_unique_for_overwrite<T[]>(block_rows * block_stride);
    offsets[k].resize(block_rows);
  }
  std::array<std::size_t, kMaxDims> index{};
  std::array<std::ptrdiff_t, N> position{};
  for (std::size_t begin = 0; begin < rows.rows; begin += block_rows) {
    const std::size_t count = std::min(block_rows, rows.rows - begin);
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t k = 0; k < N; ++k) {
        if (!direct[k]) offsets[k][r] = position[k];
      }
      for (int d = rows.batch_dims - 1; d >= 0; --d) {
        const bool wraps = ++index[d] == rows.batch[d].size;
        const auto steps = wraps ? 1 - static_cast<std::ptrdiff_t>(rows.batch[d].size) : 1;
        for (std::size_t k = 0; k < N; ++k) position[k] += steps * rows.batch[d].stride[k];
        if (!wraps) break;
        index[d] = 0;
      }
    }
    std::array<MatrixView<T>, N> part;
    for (std::size_t k = 0; k < N; ++k) {
      part[k] = direct[k] ? MatrixView<T>(views[k].row(begin), count, views[k].cols, views[k].row_stride)
                          : MatrixView<T>(blocks[k].get(), count, rows.cols[k], block_stride);
      if (!direct[k] && k + 1 < N) {
        copy_rows<true>(offsets[k], rows.data[k], count, rows.cols[k], rows.col_stride[k], blocks[k].get(), block_stride);
      }
    }
    run(part, begin);
    if (!direct[N - 1]) {
      copy_rows<false>(offsets[N - 1], rows.data[N - 1], count, rows.cols[N - 1], rows.col_stride[N - 1], blocks[N - 1].get(),
                       block_stride);
    }
  }
}

// run(views, first row), views of the type of x, without the GIL. Fills in params.per_row.
template <std::size_t N, class Op, class Run>
void on_rows(std::string_view where, Params<Op>& params, bool has_gradients, const std::array<nb::handle, N>& arrays,
             const std::array<std::string_view, N>& names, const std::array<bool, N>& reduced, nb::handle given_axis,
             const Run& run) {
  const auto acquire = [&]<std::size_t... k>(std::index_sequence<k...>) {
    return std::array<Buffer, N>{Buffer(where, arrays[k], k + 1 == N)...};
  };
  const std::array<Buffer, N> buffers = acquire(std::make_index_sequence<N>{});
  std::array<const Array*, N> raw;
  for (std::size_t k = 0; k < N; ++k) raw[k] = &*buffers[k];
  const int axis = to_axis(where, given_axis, raw[0]->ndim);
  for (auto& array : params.arrays) {
    array.values = spread(where, array.parameter, *array.buffer, *raw[0], axis);
    params.per_row.push_back({array.parameter, array.values});
  }
  const Order order = params.arrays.empty() && !has_gradients ? Order::kByStride : Order::kByIndex;
  const Rows<N> rows = to_rows(where, raw, names, reduced, axis, order);
  const nb::gil_scoped_release release;
  // Checks all rows before any is written, and with the numbers that the caller knows them by, not those in a block.
  if (!params.per_row.empty()) {
    if constexpr (has_per_row<Op>()) {
      apply<float>(params.op, {nullptr, rows.rows, 0}, {nullptr, rows.rows, 0}, params.per_row);
    }
  }
  on_type(raw[0]->type, [&]<class T>(std::type_identity<T>) { for_blocks<T>(rows, run); });
}

template <class Op>
void run_vjp(const std::array<nb::handle, 4>& arrays, nb::handle axis, nb::tuple values,
             const std::vector<ParamGradient>& gradients) {
  Params<Op> params = to_params<Op>(values);
  on_rows<4>(std::string(Op::kDescription.name) + "_vjp", params, !gradients.empty(), arrays, {"x", "y", "grad", "dx"},
             {false, kReduces<Op>, kReduces<Op>, false}, axis,
             [&]<class T>(const std::array<MatrixView<T>, 4>& views, std::size_t begin) {
               const std::size_t count = views[0].rows;
               vjp(params.op, views, of_rows<PerRow>(params.per_row, begin, count),
                   of_rows<ParamGradient>(gradients, begin, count));
             });
}

template <class Op>
nb::dict describe(const char* family) {
  constexpr const Description& kText = Op::kDescription;
  nb::dict d = describe_operation<Op>();
  d["family"] = family;
  d["reduces"] = kReduces<Op>;
  nb::dict laws;
  laws["shift"] = kText.shift;
  laws["order"] = kText.order;
  laws["ties_by_index"] = kText.ties_by_index;
  laws["sparse"] = kText.sparse;
  d["laws"] = laws;

  d["forward"] = nb::cpp_function(
      [](nb::handle x, nb::handle y, nb::handle axis, nb::tuple values) {
        Params<Op> params = to_params<Op>(values);
        on_rows<2>(Op::kDescription.name, params, false, {x, y}, {"x", "out"}, {false, kReduces<Op>}, axis,
                   [&]<class T>(const std::array<MatrixView<T>, 2>& views, std::size_t begin) {
                     forward(params.op, views, of_rows<PerRow>(params.per_row, begin, views[0].rows));
                   });
      },
      nb::arg("x"), nb::arg("y"), nb::arg("axis").none(), nb::arg("params"));
  d["vjp"] = nb::cpp_function(
      [](nb::handle x, nb::handle y, nb::handle g, nb::handle dx, nb::handle axis, nb::tuple values) {
        run_vjp<Op>({x, y, g, dx}, axis, values, {});
      },
      nb::arg("x"), nb::arg("y"), nb::arg("grad"), nb::arg("dx"), nb::arg("axis").none(), nb::arg("params"));
  // gradients: for each parameter whose gradient is asked for, its name and an array of float64, one number for each row.
  d["param_vjp"] = nb::cpp_function(
      [](nb::handle x, nb::handle y, nb::handle g, nb::handle dx, nb::handle axis, nb::tuple values, nb::tuple asked) {
        std::list<Buffer> arrays;
        std::vector<ParamGradient> gradients;
        for (const nb::handle pair : asked) {
          const Buffer& array = arrays.emplace_back(Op::kDescription.name, pair[1], true);
          const std::span numbers(reinterpret_cast<double*>(array->data), array->count());
          gradients.push_back({nb::cast<std::string_view>(pair[0]), numbers});
        }
        run_vjp<Op>({x, y, g, dx}, axis, values, gradients);
      },
      nb::arg("x"), nb::arg("y"), nb::arg("grad"), nb::arg("dx"), nb::arg("axis").none(), nb::arg("params"),
      nb::arg("gradients"));
  return d;
}

nb::list operations() {
  nb::list all;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) { all.append(describe<Op>("map")); });
  for_each_operation<LogMap>([&]<class Op>(std::type_identity<Op>) { all.append(describe<Op>("log_map")); });
  for_each_operation<Reduction>([&]<class Op>(std::type_identity<Op>) { all.append(describe<Op>("reduction")); });
  return all;
}

}  // namespace

void bind_maps(nb::module_& m) {
  m.def("operations", &operations);
  m.def(
      "normalize_axis", [](const std::string& where, nb::handle axis, int dims) { return to_axis(where, axis, dims); },
      nb::arg("where"), nb::arg("axis").none(), nb::arg("dims"));
}

}  // namespace entropic

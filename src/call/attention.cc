// Calls of attention: arrays of (batch, heads, rows, columns), of which the first two axes may be absent. All arrays but a mask
// of bools have one type, float32 or float64.

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "src/call/arguments.h"

namespace isentropic::inline ISENTROPIC_ABI::call {
namespace {

// The sizes of all four axes, and their strides in numbers.
struct Axes {
  std::array<std::size_t, 4> size{1, 1, 1, 1};
  std::array<std::ptrdiff_t, 4> stride{};

  Axes(const Arguments& call, std::string_view name, const CallArray& a) {
    const std::size_t axes = a.shape.size();
    if (axes < 2 || axes > size.size()) fail("{}: {} must have two to four axes, got {}", call.where(), name, axes);
    const auto item = static_cast<std::ptrdiff_t>(a.item_size);
    for (std::size_t d = 0; d < axes; ++d) {
      size[size.size() - axes + d] = static_cast<std::size_t>(a.shape[d]);
      stride[size.size() - axes + d] = a.strides[d] * a.unit / item;
    }
  }
};

template <class T>
HeadsView<T> heads(const Arguments& call, std::string_view name) {
  const CallArray* const a = call.find(name);
  if (a == nullptr) return {};
  call.check_type_of_first(name, *a);
  const Axes axes(call, name, *a);
  if (axes.size[3] > 1 && axes.stride[3] != 1) {
    fail("{}: {} must have a col_stride of 1, got {}", call.where(), name, axes.stride[3]);
  }
  HeadsView<T> view(reinterpret_cast<T*>(a->data), axes.size[0], axes.size[1], axes.size[2], axes.size[3]);
  view.batch_stride = axes.stride[0], view.head_stride = axes.stride[1], view.row_stride = axes.stride[2];
  return view;
}

// A mask of bools shows keys; one of numbers is added to the scaled scores. Axes of size 1 repeat.
template <class T>
AttentionMask<T> mask(const Arguments& call, const HeadsView<const T>& q, std::size_t keys) {
  const CallArray* const a = call.find("mask");
  if (a == nullptr) return {};
  const Axes axes(call, "mask", *a);
  const std::array<std::size_t, 4>& size = axes.size;
  std::array<std::ptrdiff_t, 4> stride = axes.stride;
  const std::size_t wanted[] = {q.batch, q.heads, q.rows, keys};
  for (std::size_t d = 0; d < size.size(); ++d) {
    if (size[d] != wanted[d] && (size[d] != 1 || d == 3)) {
      fail("{}: mask must have shape ({}, {}, {}, {}), or 1 in place of the first three, got {}", call.where(), q.batch,
           q.heads, q.rows, keys, shape_text(a->shape));
    }
    if (size[d] == 1 && d != 3) stride[d] = 0;
  }
  const auto view = [&]<class Number>(std::type_identity<Number>) {
    return MaskView<Number>{reinterpret_cast<const Number*>(a->data), stride[0], stride[1], stride[2], stride[3]};
  };
  if (a->type == NumberType::boolean) return {view(std::type_identity<bool>()), {}};
  call.check_type_of_first("mask", *a);
  return {{}, view(std::type_identity<T>())};
}

// One number for each query, in the type of the rows: the array itself, or a copy.
template <class T>
struct Queries {
  const CallArray* array;
  std::vector<T> copy;
  std::span<T> numbers;

  Queries(const Arguments& call, std::string_view name, std::size_t rows) : array(call.find(name)) {
    if (array == nullptr) return;
    call.check_numbers(name, *array);
    if (count_of(*array) != rows) {
      fail("{}: {} must have one number for each of {} queries, got shape {}", call.where(), name, rows,
           shape_text(array->shape));
    }
    if (in_place()) {
      numbers = {reinterpret_cast<T*>(array->data), rows};
    } else {
      copy.resize(rows), numbers = copy;
    }
  }
  bool in_place() const { return array->type == kTypeOf<T> && without_gaps(*array); }
  const Queries& loaded() {
    if (array == nullptr || in_place()) return *this;
    std::vector<double> wide(copy.size());
    load<double>(*array, wide);
    std::ranges::transform(wide, copy.begin(), [](double one) { return static_cast<T>(one); });
    return *this;
  }
  void stored() const {
    if (array == nullptr || in_place()) return;
    const std::vector<double> wide(copy.begin(), copy.end());
    store<double>(*array, wide);
  }
};

template <class T>
void attend(Arguments& call) {
  const auto op = call.make<AttentionOperation>();
  const auto* const linear = std::get_if<LinearAttention>(&op);
  const auto q = heads<const T>(call, "q"), k = heads<const T>(call, "k"), v = heads<const T>(call, "v");
  const std::size_t rows = q.batch * q.heads * q.rows;
  if (!call.call().vjp) {
    const auto out = heads<T>(call, "out");
    if (linear != nullptr) return linear_attention<T>(*linear, q, k, v, out);
    call.read_rows(rows, true);
    const Queries<T> entropy(call, "entropy", rows);
    Queries<T> sinks(call, "sinks", rows);
    attention<T>(std::get<Attention>(op), q, k, v, out, mask<T>(call, q, k.rows), call.per_row(0, rows),
                 {.weights = heads<T>(call, "weights"), .entropy = entropy.numbers}, sinks.loaded().numbers);
    return entropy.stored();
  }
  const auto g = heads<const T>(call, "grad");
  const auto dq = heads<T>(call, "dq"), dk = heads<T>(call, "dk"), dv = heads<T>(call, "dv");
  if (linear != nullptr) return linear_attention_vjp<T>(*linear, q, k, v, g, dq, dk, dv);
  call.read_rows(rows, true);
  Queries<T> entropy_grad(call, "entropy_grad", rows), sinks(call, "sinks", rows);
  const Queries<T> dsinks(call, "dsinks", rows);
  attention_vjp<T>(std::get<Attention>(op), q, k, v, g, dq, dk, dv, mask<T>(call, q, k.rows), call.per_row(0, rows),
                   call.gradients(0, rows), entropy_grad.loaded().numbers, sinks.loaded().numbers, dsinks.numbers);
  dsinks.stored();
  call.store_gradients();
}

}  // namespace

void run_attention(Arguments& call) {
  on_type<true, false>(call, call.name(0), call.first(), [&]<class T>(std::type_identity<T>) { attend<T>(call); });
}

}  // namespace isentropic::inline ISENTROPIC_ABI::call

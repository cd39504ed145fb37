// Attention for Python: functions on arrays of (batch, heads, rows, columns), which isentropic/_attention.py and
// isentropic/torch/_attention.py make. The first two axes may be absent, and the last has no gaps. All arrays of a call but
// masks of bools have one type, float32 or float64.

#include <isentropic/isentropic.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "params.h"

namespace isentropic {
namespace {

// The sizes of all four axes, and their strides in items.
struct Axes {
  std::array<std::size_t, 4> size{1, 1, 1, 1};
  std::array<std::ptrdiff_t, 4> stride{};

  explicit Axes(const Array& a) {
    const auto ndim = static_cast<std::size_t>(a.ndim);
    if (ndim < 2 || ndim > size.size()) throw nb::value_error("an array of attention must have two to four axes");
    for (std::size_t d = 0; d < ndim; ++d) {
      size[size.size() - ndim + d] = static_cast<std::size_t>(a.shape[d]);
      stride[size.size() - ndim + d] = a.strides[d] / a.item_size();
    }
  }
};

template <class T>
HeadsView<T> heads(const Buffer& a) {
  if (a->ndim == 0) return {};
  const Axes axes(*a);
  HeadsView<T> view(reinterpret_cast<T*>(a->data), axes.size[0], axes.size[1], axes.size[2], axes.size[3]);
  view.batch_stride = axes.stride[0], view.head_stride = axes.stride[1], view.row_stride = axes.stride[2];
  return view;
}

template <class T>
MaskView<T> mask_view(const Buffer& a) {
  if (a->ndim == 0) return {};
  const Axes axes(*a);
  return {reinterpret_cast<const T*>(a->data), axes.stride[0], axes.stride[1], axes.stride[2], axes.stride[3]};
}

template <class T>
std::span<T> all(const Buffer& a) {
  if (a->ndim == 0) return {};
  return {reinterpret_cast<T*>(a->data), a->count()};
}

// Calls run(std::type_identity<T>{}) for the type of q.
template <class Run>
void on_float(const Buffer& q, const Run& run) {
  const nb::gil_scoped_release release;
  if (q->type == Type::float64) return run(std::type_identity<double>{});
  run(std::type_identity<float>{});
}

// The values of attention's parameters; the first one is the map, which is given separately.
nb::tuple with_map_first(nb::handle name, nb::handle map_values, nb::handle values) {
  return nb::tuple(nb::make_tuple(nb::make_tuple(name, map_values)) + nb::borrow<nb::tuple>(values));
}

void run(nb::handle q_array, nb::handle k_array, nb::handle v_array, nb::handle out_array, nb::handle visible_array,
         nb::handle additive_array, nb::handle weights_array, nb::handle entropy_array, nb::str map, nb::tuple map_values,
         nb::tuple values) {
  constexpr std::string_view kWhere = "attention";
  const RowParams<Attention> params(with_map_first(map, map_values, values));
  const Buffer q(kWhere, q_array, false), k(kWhere, k_array, false), v(kWhere, v_array, false), out(kWhere, out_array, true),
      visible(kWhere, visible_array, false), additive(kWhere, additive_array, false), weights(kWhere, weights_array, true),
      entropy(kWhere, entropy_array, true);
  on_float(q, [&]<class T>(std::type_identity<T>) {
    const AttentionMask<T> mask = {mask_view<bool>(visible), mask_view<T>(additive)};
    attention<T>(params.op, heads<const T>(q), heads<const T>(k), heads<const T>(v), heads<T>(out), mask, params.per_row,
                 {heads<T>(weights), all<T>(entropy)});
  });
}

// gradients: (name, array of one number for each query) for each parameter of the map whose gradient is wanted.
void run_vjp(nb::handle q_array, nb::handle k_array, nb::handle v_array, nb::handle g_array, nb::handle dq_array,
             nb::handle dk_array, nb::handle dv_array, nb::handle visible_array, nb::handle additive_array, nb::str map,
             nb::tuple map_values, nb::tuple values, nb::handle asked, nb::handle g_entropy_array) {
  constexpr std::string_view kWhere = "attention_vjp";
  const RowParams<Attention> params(with_map_first(map, map_values, values));
  const ParamSlopes slopes(kWhere, asked);
  const Buffer q(kWhere, q_array, false), k(kWhere, k_array, false), v(kWhere, v_array, false), g(kWhere, g_array, false),
      dq(kWhere, dq_array, true), dk(kWhere, dk_array, true), dv(kWhere, dv_array, true), visible(kWhere, visible_array, false),
      additive(kWhere, additive_array, false), g_entropy(kWhere, g_entropy_array, false);
  on_float(q, [&]<class T>(std::type_identity<T>) {
    const AttentionMask<T> mask = {mask_view<bool>(visible), mask_view<T>(additive)};
    attention_vjp<T>(params.op, heads<const T>(q), heads<const T>(k), heads<const T>(v), heads<const T>(g), heads<T>(dq),
                     heads<T>(dk), heads<T>(dv), mask, params.per_row, slopes.asked, all<const T>(g_entropy));
  });
}

void run_linear(nb::handle q_array, nb::handle k_array, nb::handle v_array, nb::handle out_array, nb::tuple values) {
  constexpr std::string_view kWhere = "linear_attention";
  const LinearAttention options = to_params<LinearAttention>(values).op;
  const Buffer q(kWhere, q_array, false), k(kWhere, k_array, false), v(kWhere, v_array, false), out(kWhere, out_array, true);
  on_float(q, [&]<class T>(std::type_identity<T>) {
    linear_attention<T>(options, heads<const T>(q), heads<const T>(k), heads<const T>(v), heads<T>(out));
  });
}

void run_linear_vjp(nb::handle q_array, nb::handle k_array, nb::handle v_array, nb::handle g_array, nb::handle dq_array,
                    nb::handle dk_array, nb::handle dv_array, nb::tuple values) {
  constexpr std::string_view kWhere = "linear_attention_vjp";
  const LinearAttention options = to_params<LinearAttention>(values).op;
  const Buffer q(kWhere, q_array, false), k(kWhere, k_array, false), v(kWhere, v_array, false), g(kWhere, g_array, false),
      dq(kWhere, dq_array, true), dk(kWhere, dk_array, true), dv(kWhere, dv_array, true);
  on_float(q, [&]<class T>(std::type_identity<T>) {
    linear_attention_vjp<T>(options, heads<const T>(q), heads<const T>(k), heads<const T>(v), heads<const T>(g), heads<T>(dq),
                            heads<T>(dk), heads<T>(dv));
  });
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention_operations", [] { return describe(family_info<AttentionOperation>()); });
  m.def("attention", &run, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"), nb::arg("visible").none(),
        nb::arg("additive").none(), nb::arg("weights").none(), nb::arg("entropy").none(), nb::arg("map"), nb::arg("map_params"),
        nb::arg("params"));
  m.def("attention_vjp", &run_vjp, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("grad"), nb::arg("dq"), nb::arg("dk"),
        nb::arg("dv"), nb::arg("visible").none(), nb::arg("additive").none(), nb::arg("map"), nb::arg("map_params"),
        nb::arg("params"), nb::arg("gradients") = nb::none(), nb::arg("entropy_grad") = nb::none());
  m.def("linear_attention", &run_linear, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"), nb::arg("params"));
  m.def("linear_attention_vjp", &run_linear_vjp, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("grad"), nb::arg("dq"),
        nb::arg("dk"), nb::arg("dv"), nb::arg("params"));
}

}  // namespace isentropic

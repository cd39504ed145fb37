// Attention for Python: functions on arrays of four axes, the last without gaps, that entropic/_attention.py and
// entropic/torch/_attention.py make.

#include <entropic/entropic.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"

namespace entropic {
namespace {

template <class T>
using Heads = nb::ndarray<T, nb::ndim<4>, nb::device::cpu>;
template <class T>
using Optional = std::optional<Heads<T>>;

template <class T>
HeadsView<T> view(const Heads<T>& a) {
  HeadsView<T> view(a.data(), a.shape(0), a.shape(1), a.shape(2), a.shape(3));
  view.batch_stride = a.stride(0), view.head_stride = a.stride(1), view.row_stride = a.stride(2);
  return view;
}

template <class T>
MaskView<T> mask_view(const Optional<const T>& a) {
  if (!a) return {};
  return {a->data(), a->stride(0), a->stride(1), a->stride(2), a->stride(3)};
}

// Attention's values, of which the map, given apart, is the first.
nb::tuple with_map_first(const std::string& name, nb::tuple map_values, nb::tuple values) {
  return nb::tuple(nb::make_tuple(nb::make_tuple(name, map_values)) + values);
}

template <class T>
void run(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, const std::string& name, nb::tuple map_values,
         nb::tuple values, Optional<const bool> visible, Optional<const T> additive, Optional<T> weights,
         std::optional<Vector<T>> entropy) {
  const RowParams<Attention> params(with_map_first(name, map_values, values));
  AttentionDetails<T> details;
  if (weights) details.weights = view(*weights);
  if (entropy) details.entropy = span(*entropy);
  const AttentionMask<T> mask = {mask_view(visible), mask_view(additive)};
  const nb::gil_scoped_release release;
  attention<T>(params.op, view(q), view(k), view(v), view(out), mask, params.per_row, details);
}

// gradients: (name, array of one number for each query) for each parameter of the map whose gradient is asked for.
template <class T>
void run_vjp(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<const T> g, Heads<T> dq, Heads<T> dk, Heads<T> dv,
             const std::string& name, nb::tuple map_values, nb::tuple values, Optional<const bool> visible,
             Optional<const T> additive, nb::tuple asked) {
  const RowParams<Attention> params(with_map_first(name, map_values, values));
  std::vector<ParamGradient> gradients;
  std::vector<std::string> names;
  names.reserve(asked.size());
  for (const nb::handle pair : asked) {
    names.push_back(nb::cast<std::string>(pair[0]));
    const auto numbers = nb::cast<Vector<double>>(pair[1]);
    gradients.push_back({names.back(), {numbers.data(), numbers.shape(0)}});
  }
  const AttentionMask<T> mask = {mask_view(visible), mask_view(additive)};
  const nb::gil_scoped_release release;
  attention_vjp<T>(params.op, view(q), view(k), view(v), view(g), view(dq), view(dk), view(dv), mask, params.per_row,
                   gradients);
}

template <class T>
void run_linear(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, nb::tuple values) {
  const LinearAttention options = to_params<LinearAttention>(values).op;
  const nb::gil_scoped_release release;
  linear_attention<T>(options, view(q), view(k), view(v), view(out));
}

template <class T>
void run_linear_vjp(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<const T> g, Heads<T> dq, Heads<T> dk,
                    Heads<T> dv, nb::tuple values) {
  const LinearAttention options = to_params<LinearAttention>(values).op;
  const nb::gil_scoped_release release;
  linear_attention_vjp<T>(options, view(q), view(k), view(v), view(g), view(dq), view(dk), view(dv));
}

template <class T>
void bind(nb::module_& m) {
  m.def("attention", &run<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
        nb::arg("out").noconvert(), nb::arg("map"), nb::arg("map_params"), nb::arg("params"),
        nb::arg("visible").noconvert().none(), nb::arg("additive").noconvert().none(), nb::arg("weights").noconvert().none(),
        nb::arg("entropy").noconvert().none());
  m.def("attention_vjp", &run_vjp<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
        nb::arg("grad").noconvert(), nb::arg("dq").noconvert(), nb::arg("dk").noconvert(), nb::arg("dv").noconvert(),
        nb::arg("map"), nb::arg("map_params"), nb::arg("params"), nb::arg("visible").noconvert().none(),
        nb::arg("additive").noconvert().none(), nb::arg("gradients"));
  m.def("linear_attention", &run_linear<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
        nb::arg("out").noconvert(), nb::arg("params"));
  m.def("linear_attention_vjp", &run_linear_vjp<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("grad").noconvert(), nb::arg("dq").noconvert(), nb::arg("dk").noconvert(),
        nb::arg("dv").noconvert(), nb::arg("params"));
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention_operations", [] { return describe(family_info<AttentionOperation>()); });
  bind<float>(m);
  bind<double>(m);
}

}  // namespace entropic

// Attention for Python: functions on arrays of four axes, the last without gaps, that entropic/_attention.py and
// entropic/torch/_attention.py make.

#include "attention.h"

#include <entropic/entropic.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

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

// A map by name and values in the order of its parameters; arrays have a number for each query.
struct MapOf {
  Map map;
  std::vector<std::vector<double>> values;
  std::vector<PerRow> per_row;
};

MapOf to_map(const std::string& name, nb::tuple values) {
  MapOf result;
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    if (Op::kDescription.name != name) return;
    const Params<Op> params = to_params<Op>(values);
    result.map = params.op;
    for (const auto& array : params.arrays) {
      const auto* const data = reinterpret_cast<const double*>(array.buffer->data);
      result.values.emplace_back(data, data + array.buffer->count());
      result.per_row.push_back({array.parameter, {}});
    }
  });
  for (std::size_t i = 0; i < result.values.size(); ++i) result.per_row[i].values = result.values[i];
  return result;
}

Attention to_options(const MapOf& map, nb::tuple values, bool causal) {
  Attention options = to_params<Attention>(values).op;
  options.map = map.map;
  options.causal = causal;
  return options;
}

template <class T>
void run(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, const std::string& name, nb::tuple map_values,
         nb::tuple values, bool causal, Optional<const bool> visible, Optional<const T> additive, Optional<T> weights,
         std::optional<Vector<T>> entropy) {
  const MapOf map = to_map(name, map_values);
  const Attention options = to_options(map, values, causal);
  AttentionDetails<T> details;
  if (weights) details.weights = view(*weights);
  if (entropy) details.entropy = span(*entropy);
  const AttentionMask<T> mask = {mask_view(visible), mask_view(additive)};
  const nb::gil_scoped_release release;
  attention<T>(view(q), view(k), view(v), view(out), options, mask, map.per_row, details);
}

// gradients: (name, array of one number for each query) for each parameter of the map whose gradient is asked for.
template <class T>
void run_vjp(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<const T> g, Heads<T> dq, Heads<T> dk, Heads<T> dv,
             const std::string& name, nb::tuple map_values, nb::tuple values, bool causal, Optional<const bool> visible,
             Optional<const T> additive, nb::tuple asked) {
  const MapOf map = to_map(name, map_values);
  const Attention options = to_options(map, values, causal);
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
  attention_vjp<T>(view(q), view(k), view(v), view(g), view(dq), view(dk), view(dv), options, mask, map.per_row, gradients);
}

template <class T>
void run_linear(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, nb::tuple values, bool causal) {
  LinearAttention options = to_params<LinearAttention>(values).op;
  options.causal = causal;
  const nb::gil_scoped_release release;
  linear_attention<T>(view(q), view(k), view(v), view(out), options);
}

template <class T>
void run_linear_vjp(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<const T> g, Heads<T> dq, Heads<T> dk,
                    Heads<T> dv, nb::tuple values, bool causal) {
  LinearAttention options = to_params<LinearAttention>(values).op;
  options.causal = causal;
  const nb::gil_scoped_release release;
  linear_attention_vjp<T>(view(q), view(k), view(v), view(g), view(dq), view(dk), view(dv), options);
}

template <class T>
void bind(nb::module_& m) {
  m.def("attention", &run<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
        nb::arg("out").noconvert(), nb::arg("map"), nb::arg("map_params"), nb::arg("params"), nb::arg("causal"),
        nb::arg("visible").noconvert().none(), nb::arg("additive").noconvert().none(), nb::arg("weights").noconvert().none(),
        nb::arg("entropy").noconvert().none());
  m.def("attention_vjp", &run_vjp<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
        nb::arg("grad").noconvert(), nb::arg("dq").noconvert(), nb::arg("dk").noconvert(), nb::arg("dv").noconvert(),
        nb::arg("map"), nb::arg("map_params"), nb::arg("params"), nb::arg("causal"), nb::arg("visible").noconvert().none(),
        nb::arg("additive").noconvert().none(), nb::arg("gradients"));
  m.def("linear_attention", &run_linear<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
        nb::arg("out").noconvert(), nb::arg("params"), nb::arg("causal"));
  m.def("linear_attention_vjp", &run_linear_vjp<T>, nb::arg("q").noconvert(), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("grad").noconvert(), nb::arg("dq").noconvert(), nb::arg("dk").noconvert(),
        nb::arg("dv").noconvert(), nb::arg("params"), nb::arg("causal"));
}

}  // namespace

void bind_attention(nb::module_& m) {
  bind<float>(m);
  bind<double>(m);
}

}  // namespace entropic

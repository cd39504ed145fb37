// Entropy control for Python: functions on arrays that entropic/_layout.py has brought to rows without gaps.

#include <entropic/entropic.h>

#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"

namespace entropic {
namespace {

template <class T>
void gamma(Matrix<const T> x, Vector<double> gamma, Vector<double> entropy, Vector<std::uint8_t> status, nb::tuple values) {
  const RowParams<GammaForEntropy> params(values);
  const nb::gil_scoped_release release;
  std::vector<GammaStatus> found(status.shape(0));
  gamma_for_entropy(params.op, view(x), span(gamma), span(entropy), found, params.per_row);
  for (std::size_t r = 0; r < found.size(); ++r) status.data()[r] = static_cast<std::uint8_t>(found[r]);
}

template <class T>
void power(Matrix<const T> p, Matrix<T> q, nb::tuple values) {
  const RowParams<PowerTransform> params(values);
  const nb::gil_scoped_release release;
  power_transform(params.op, view(p), view(q), params.per_row);
}

template <class T>
void mean_field(Matrix<const T> x, Vector<double> estimate, nb::tuple values) {
  const RowParams<MeanFieldEntropy> params(values);
  const nb::gil_scoped_release release;
  mean_field_entropy(params.op, view(x), span(estimate));
}

// (gamma, entropy, least, most, name of the status).
nb::tuple to_tuple(const Normalized& result) {
  const auto status = kGammaStatusNames[static_cast<std::size_t>(result.status)];
  return nb::make_tuple(result.gamma, result.entropy, result.least, result.most, to_str(status));
}

template <class T>
nb::list density(Matrix<const T> p, Matrix<const double> weights, Matrix<T> q, nb::tuple values) {
  const RowParams<NormalizeDensity> params(values);
  std::vector<Normalized> found(p.shape(0));
  {
    const nb::gil_scoped_release release;
    normalize_density(params.op, view(p), view(weights), view(q), found, params.per_row);
  }
  nb::list results;
  for (const Normalized& result : found) results.append(to_tuple(result));
  return results;
}

template <class T>
nb::tuple joint(Matrix<const T> pxy, Matrix<T> table, nb::tuple values) {
  const RowParams<NormalizeJoint> params(values);
  Normalized result;
  {
    const nb::gil_scoped_release release;
    result = normalize_joint(params.op, view(pxy), view(table));
  }
  return to_tuple(result);
}

template <class T>
void bind(nb::module_& m) {
  m.def("gamma_for_entropy", &gamma<T>, nb::arg("x").noconvert(), nb::arg("gamma").noconvert(), nb::arg("entropy").noconvert(),
        nb::arg("status").noconvert(), nb::arg("params"));
  m.def("power_transform", &power<T>, nb::arg("p").noconvert(), nb::arg("q").noconvert(), nb::arg("params"));
  m.def("normalize_density", &density<T>, nb::arg("p").noconvert(), nb::arg("weights").noconvert(), nb::arg("q").noconvert(),
        nb::arg("params"));
  m.def("normalize_joint", &joint<T>, nb::arg("pxy").noconvert(), nb::arg("table").noconvert(), nb::arg("params"));
  m.def("mean_field_entropy", &mean_field<T>, nb::arg("x").noconvert(), nb::arg("estimate").noconvert(), nb::arg("params"));
}

}  // namespace

void bind_entropy_control(nb::module_& m) {
  bind<float>(m);
  bind<double>(m);
  nb::list names;
  for (const std::string_view name : kGammaStatusNames) names.append(to_str(name));
  m.attr("gamma_status_names") = nb::tuple(names);
  m.def("control_operations", [] { return describe(family_info<EntropyControl>()); });
}

}  // namespace entropic

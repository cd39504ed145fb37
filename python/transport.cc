// Transport for Python: functions on arrays that entropic/_transport.py has brought to float32 or float64 without gaps.

#include "transport.h"

#include <entropic/entropic.h>
#include <nanobind/ndarray.h>

#include <span>
#include <vector>

#include "params.h"

namespace entropic {
namespace {

template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
MatrixView<T> view(const Matrix<T>& a) {
  return {a.data(), a.shape(0), a.shape(1)};
}

template <class T>
std::span<T> span(const Vector<T>& a) {
  return {a.data(), a.shape(0)};
}

template <class T>
void exact(Matrix<const T> a, Matrix<const T> b, Matrix<const T> cost, Matrix<T> plan, Matrix<T> f, Matrix<T> g,
           Vector<double> costs, Vector<double> gaps, Vector<std::uint8_t> status, nb::tuple values) {
  const OptimalTransport options = to_params<OptimalTransport>(values).op;
  const nb::gil_scoped_release release;
  std::vector<TransportResult> results(a.shape(0));
  optimal_transport<T>(view(a), view(b), view(cost), view(plan), view(f), view(g), results, options);
  for (std::size_t k = 0; k < results.size(); ++k) {
    costs.data()[k] = results[k].cost;
    gaps.data()[k] = results[k].gap;
    status.data()[k] = static_cast<std::uint8_t>(results[k].status);
  }
}

template <class T>
void bind(nb::module_& m) {
  m.def("optimal_transport", &exact<T>, nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("plan").noconvert(), nb::arg("f").noconvert(), nb::arg("g").noconvert(), nb::arg("costs").noconvert(),
        nb::arg("gaps").noconvert(), nb::arg("status").noconvert(), nb::arg("params"));
}

}  // namespace

void bind_transport(nb::module_& m) {
  bind<float>(m);
  bind<double>(m);
  nb::list names;
  for (const std::string_view name : kTransportStatusNames) names.append(to_str(name));
  m.attr("transport_status_names") = nb::tuple(names);
}

}  // namespace entropic

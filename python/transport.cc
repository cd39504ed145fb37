// Transport for Python: functions on arrays without gaps in float32 or float64, to which isentropic/_transport.py converts
// others.

#include <isentropic/isentropic.h>

#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"

namespace isentropic {
namespace {

template <class T>
void exact(Matrix<const T> a, Matrix<const T> b, Matrix<const T> cost, Matrix<T> plan, Matrix<T> f, Matrix<T> g,
           Vector<double> costs, Vector<double> gaps, Vector<std::uint8_t> status, nb::tuple values) {
  const OptimalTransport options = to_params<OptimalTransport>(values).op;
  const nb::gil_scoped_release release;
  std::vector<TransportResult> results(a.shape(0));
  optimal_transport<T>(options, view(a), view(b), view(cost), view(plan), view(f), view(g), results);
  for (std::size_t k = 0; k < results.size(); ++k) {
    costs.data()[k] = results[k].cost;
    gaps.data()[k] = results[k].gap;
    status.data()[k] = static_cast<std::uint8_t>(results[k].status);
  }
}

template <class T>
void of_a_part(Matrix<const T> a, Matrix<const T> b, Matrix<const T> cost, Matrix<T> plan, Matrix<T> f, Matrix<T> g,
               Matrix<double> numbers, Vector<std::uint8_t> status, nb::tuple values) {
  const PartialTransport options = to_params<PartialTransport>(values).op;
  const nb::gil_scoped_release release;
  std::vector<PartialTransportResult> results(a.shape(0));
  partial_transport<T>(options, view(a), view(b), view(cost), view(plan), view(f), view(g), results);
  for (std::size_t k = 0; k < results.size(); ++k) {
    const PartialTransportResult& r = results[k];
    double* const row = numbers.data() + 3 * k;
    row[0] = r.cost, row[1] = r.multiplier, row[2] = r.gap;
    status.data()[k] = static_cast<std::uint8_t>(r.status);
  }
}

template <class T>
void isentropic_plan(Matrix<const T> a, Matrix<const T> b, Matrix<const T> cost, Matrix<T> plan, Matrix<T> f, Matrix<T> g,
                     Matrix<double> numbers, Vector<std::int64_t> iterations, Vector<bool> converged, nb::tuple values) {
  const Sinkhorn options = to_params<Sinkhorn>(values).op;
  const nb::gil_scoped_release release;
  std::vector<SinkhornResult> results(a.shape(0));
  sinkhorn<T>(options, view(a), view(b), view(cost), view(plan), view(f), view(g), results);
  for (std::size_t k = 0; k < results.size(); ++k) {
    const SinkhornResult& r = results[k];
    double* const row = numbers.data() + 4 * k;
    row[0] = r.cost, row[1] = r.marginal_error, row[2] = r.lower_bound, row[3] = r.upper_bound;
    iterations.data()[k] = r.iterations;
    converged.data()[k] = r.converged;
  }
}

template <class T>
void unbalanced_plan(Matrix<const T> a, Matrix<const T> b, Matrix<const T> cost, Matrix<T> plan, Matrix<T> f, Matrix<T> g,
                     Matrix<double> numbers, Vector<std::int64_t> iterations, Vector<bool> converged, nb::tuple values) {
  const UnbalancedSinkhorn options = to_params<UnbalancedSinkhorn>(values).op;
  const nb::gil_scoped_release release;
  std::vector<UnbalancedSinkhornResult> results(a.shape(0));
  unbalanced_sinkhorn<T>(options, view(a), view(b), view(cost), view(plan), view(f), view(g), results);
  for (std::size_t k = 0; k < results.size(); ++k) {
    numbers.data()[2 * k] = results[k].value;
    numbers.data()[2 * k + 1] = results[k].gap;
    iterations.data()[k] = results[k].iterations;
    converged.data()[k] = results[k].converged;
  }
}

template <class T>
nb::tuple of_many(Matrix<const T> p, Vector<const T> weights, Matrix<const T> cost, Vector<T> barycenter, Matrix<T> f,
                  Matrix<T> g, nb::tuple values) {
  const SinkhornBarycenter options = to_params<SinkhornBarycenter>(values).op;
  SinkhornBarycenterResult result;
  {
    const nb::gil_scoped_release release;
    result = sinkhorn_barycenter<T>(options, view(p), span(weights), view(cost), span(barycenter), view(f), view(g));
  }
  return nb::make_tuple(result.marginal_error, result.iterations, result.converged);
}

template <class T>
nb::tuple along_directions(Matrix<const T> x, Matrix<const T> y, Vector<const T> a, Vector<const T> b,
                           Matrix<const double> directions, nb::tuple values) {
  const SlicedWasserstein options = to_params<SlicedWasserstein>(values).op;
  SlicedWassersteinResult result;
  {
    const nb::gil_scoped_release release;
    result = sliced_wasserstein<T>(options, view(x), view(y), span(a), span(b), view(directions));
  }
  return nb::make_tuple(result.distance, result.error);
}

template <class T>
void on_the_line(Matrix<const T> u, Matrix<const T> v, Matrix<const T> u_weights, Matrix<const T> v_weights,
                 Vector<double> distance, Matrix<T> du, Matrix<T> dv, nb::tuple values) {
  const Wasserstein1d options = to_params<Wasserstein1d>(values).op;
  const nb::gil_scoped_release release;
  wasserstein_1d<T>(options, view(u), view(v), view(u_weights), view(v_weights), span(distance), view(du), view(dv));
}

template <class T>
void of_histograms(Matrix<const T> p, Matrix<const T> q, Vector<const double> support, Vector<double> distance, Matrix<T> dp,
                   Matrix<T> dq, nb::tuple values) {
  const WassersteinHistogram options = to_params<WassersteinHistogram>(values).op;
  const nb::gil_scoped_release release;
  wasserstein_histogram<T>(options, view(p), view(q), span(support), span(distance), view(dp), view(dq));
}

template <class T>
double of_points(Matrix<const T> x, Matrix<const T> y, Vector<const T> a, Vector<const T> b, Matrix<T> plan, nb::tuple values) {
  const Wasserstein options = to_params<Wasserstein>(values).op;
  const nb::gil_scoped_release release;
  return wasserstein<T>(options, view(x), view(y), span(a), span(b), view(plan));
}

template <class T>
double divergence(Matrix<const T> x, Matrix<const T> y, Vector<const T> a, Vector<const T> b, nb::tuple values) {
  const SinkhornDivergence options = to_params<SinkhornDivergence>(values).op;
  const nb::gil_scoped_release release;
  return sinkhorn_divergence<T>(options, view(x), view(y), span(a), span(b));
}

template <class T>
void bind(nb::module_& m) {
  m.def("partial_transport", &of_a_part<T>, nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("plan").noconvert(), nb::arg("f").noconvert(), nb::arg("g").noconvert(), nb::arg("numbers").noconvert(),
        nb::arg("status").noconvert(), nb::arg("params"));
  m.def("sinkhorn", &isentropic_plan<T>, nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("plan").noconvert(), nb::arg("f").noconvert(), nb::arg("g").noconvert(), nb::arg("numbers").noconvert(),
        nb::arg("iterations").noconvert(), nb::arg("converged").noconvert(), nb::arg("params"));
  m.def("unbalanced_sinkhorn", &unbalanced_plan<T>, nb::arg("a").noconvert(), nb::arg("b").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("plan").noconvert(), nb::arg("f").noconvert(), nb::arg("g").noconvert(),
        nb::arg("numbers").noconvert(), nb::arg("iterations").noconvert(), nb::arg("converged").noconvert(), nb::arg("params"));
  m.def("sinkhorn_barycenter", &of_many<T>, nb::arg("p").noconvert(), nb::arg("weights").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("barycenter").noconvert(), nb::arg("f").noconvert(), nb::arg("g").noconvert(),
        nb::arg("params"));
  m.def("sliced_wasserstein", &along_directions<T>, nb::arg("x").noconvert(), nb::arg("y").noconvert(),
        nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("directions").noconvert(), nb::arg("params"));
  m.def("wasserstein_1d", &on_the_line<T>, nb::arg("u").noconvert(), nb::arg("v").noconvert(), nb::arg("u_weights").noconvert(),
        nb::arg("v_weights").noconvert(), nb::arg("distance").noconvert(), nb::arg("du").noconvert(), nb::arg("dv").noconvert(),
        nb::arg("params"));
  m.def("wasserstein_histogram", &of_histograms<T>, nb::arg("p").noconvert(), nb::arg("q").noconvert(),
        nb::arg("support").noconvert(), nb::arg("distance").noconvert(), nb::arg("dp").noconvert(), nb::arg("dq").noconvert(),
        nb::arg("params"));
  m.def("wasserstein", &of_points<T>, nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("a").noconvert(),
        nb::arg("b").noconvert(), nb::arg("plan").noconvert(), nb::arg("params"));
  m.def("sinkhorn_divergence", &divergence<T>, nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("a").noconvert(),
        nb::arg("b").noconvert(), nb::arg("params"));
  m.def(
      "c_transform",
      [](Vector<const T> f, Matrix<const T> cost, Vector<T> g) {
        const nb::gil_scoped_release release;
        c_transform<T>(span(f), view(cost), span(g));
      },
      nb::arg("f").noconvert(), nb::arg("cost").noconvert(), nb::arg("g").noconvert());
  m.def(
      "dual_value",
      [](Vector<const T> f, Vector<const T> g, Vector<const T> a, Vector<const T> b) {
        return dual_value<T>(span(f), span(g), span(a), span(b));
      },
      nb::arg("f").noconvert(), nb::arg("g").noconvert(), nb::arg("a").noconvert(), nb::arg("b").noconvert());
  m.def(
      "lipschitz_constant",
      [](Vector<const T> f, Matrix<const T> distance) {
        const nb::gil_scoped_release release;
        return lipschitz_constant<T>(span(f), view(distance));
      },
      nb::arg("f").noconvert(), nb::arg("distance").noconvert());
  m.def("optimal_transport", &exact<T>, nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("plan").noconvert(), nb::arg("f").noconvert(), nb::arg("g").noconvert(), nb::arg("costs").noconvert(),
        nb::arg("gaps").noconvert(), nb::arg("status").noconvert(), nb::arg("params"));
}

}  // namespace

void bind_transport(nb::module_& m) {
  m.def("transport_operations", [] { return describe(family_info<Transport>()); });
  bind<float>(m);
  bind<double>(m);
  m.def(
      "random_directions", [](Matrix<double> directions, std::uint64_t seed) { random_directions(view(directions), seed); },
      nb::arg("directions").noconvert(), nb::arg("seed"));
  nb::list names;
  for (const std::string_view name : kTransportStatusNames) names.append(to_str(name));
  m.attr("transport_status_names") = nb::tuple(names);
}

}  // namespace isentropic

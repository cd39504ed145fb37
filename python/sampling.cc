// Sampling for Python: functions on arrays that entropic/_layout.py has brought to rows without gaps, and chains of steps.

#include <entropic/entropic.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"

namespace entropic {
namespace {

using Streams = Vector<const std::uint64_t>;

// streams: one for each row.
Noise noise_of(std::uint64_t seed, const Streams& streams, std::uint64_t position) {
  return {.seed = seed, .position = position, .streams = span(streams)};
}

template <class T>
void draw(Matrix<const T> x, Matrix<std::int64_t> indices, nb::tuple values, std::uint64_t seed, Streams streams,
          std::uint64_t position) {
  const Params<Sample> params = to_params<Sample>(values);
  const nb::gil_scoped_release release;
  sample(params.op, view(x), view(indices), noise_of(seed, streams, position));
}

template <class T>
void gumbel(Matrix<const T> x, Matrix<T> p, nb::tuple values, std::uint64_t seed, Streams streams) {
  const GumbelSoftmax op = to_params<GumbelSoftmax>(values).op;
  const nb::gil_scoped_release release;
  gumbel_softmax<T>(op, view(x), view(p), noise_of(seed, streams, 0));
}

template <class T>
void noise(Matrix<T> g, std::uint64_t seed, Streams streams) {
  const nb::gil_scoped_release release;
  gumbel_noise(view(g), noise_of(seed, streams, 0));
}

// A step from its name and the values of its parameters.
Step to_step(const std::string& name, nb::tuple values) {
  const FamilyInfo& steps = family_info<Step>();
  if (const OperationInfo* const info = find_operation(steps, name))
    return make<Step>(*info, ParamValues(*info, values).values);
  std::string names;
  for (const OperationInfo& step : steps.operations) names += (names.empty() ? "" : ", ") + std::string(step.name);
  throw nb::value_error(("Sampler: a step must be one of " + names + ", got '" + name + "'").c_str());
}

Sampler to_sampler(const nb::list& steps, std::uint64_t seed) {
  std::vector<Step> chain;
  for (const nb::handle step : steps) {
    const nb::tuple pair = nb::cast<nb::tuple>(step);
    chain.push_back(to_step(nb::cast<std::string>(pair[0]), nb::cast<nb::tuple>(pair[1])));
  }
  return Sampler(std::move(chain), seed);
}

template <class T>
void bind(nb::module_& m, nb::class_<Sampler>& sampler) {
  m.def("sample", &draw<T>, nb::arg("x").noconvert(), nb::arg("indices").noconvert(), nb::arg("params"), nb::arg("seed"),
        nb::arg("streams").noconvert(), nb::arg("position"));
  m.def("gumbel_softmax", &gumbel<T>, nb::arg("x").noconvert(), nb::arg("p").noconvert(), nb::arg("params"), nb::arg("seed"),
        nb::arg("streams").noconvert());
  m.def("gumbel_noise", &noise<T>, nb::arg("g").noconvert(), nb::arg("seed"), nb::arg("streams").noconvert());
  sampler.def(
      "probs",
      [](const Sampler& self, Matrix<const T> x, Matrix<T> p) {
        const nb::gil_scoped_release release;
        self.probs<T>(view(x), view(p));
      },
      nb::arg("x").noconvert(), nb::arg("p").noconvert());
  sampler.def(
      "sample",
      [](const Sampler& self, Matrix<const T> x, Matrix<std::int64_t> indices, Streams streams, std::uint64_t position) {
        const nb::gil_scoped_release release;
        self.sample(view(x), view(indices), noise_of(0, streams, position));
      },
      nb::arg("x").noconvert(), nb::arg("indices").noconvert(), nb::arg("streams").noconvert(), nb::arg("position"));
}

}  // namespace

void bind_sampling(nb::module_& m) {
  m.def("sampling_operations", [] { return describe(family_info<Sampling>()); });
  nb::class_<Sampler> sampler(m, "Sampler");
  sampler.def(
      "__init__", [](Sampler* self, const nb::list& steps, std::uint64_t seed) { new (self) Sampler(to_sampler(steps, seed)); },
      nb::arg("steps"), nb::arg("seed"));
  bind<float>(m, sampler);
  bind<double>(m, sampler);
  m.def("sampling_steps", [] { return describe(family_info<Step>()); });
}

}  // namespace entropic

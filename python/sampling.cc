// Sampling for Python: functions on rows along any axis of any strides, and chains of steps.

#include <isentropic/isentropic.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"
#include "rows.h"

namespace isentropic {
namespace {

using Streams = Vector<const std::uint64_t>;

// Calls run(blocks, noise) with type T, without the GIL. streams: one for each row, by index.
template <class Run>
void with_noise(std::string_view where, const GivenArray& x, const GivenArray& result, nb::handle axis, std::uint64_t seed,
                const Streams& streams, std::uint64_t position, const Run& run) {
  ParamValues none;
  const GivenArray arrays[] = {x, result};
  const GivenRows given(where, arrays, axis, none, true);
  const nb::gil_scoped_release release;
  on_type(given.type(), [&]<class T>(std::type_identity<T> type) {
    if constexpr (kIsHalf<T>) {
      throw nb::type_error("an array of float32 or float64 is wanted, got halves");
    } else {
      given.rows().for_blocks([&](const RowBlock* blocks, std::size_t first) {
        run(type, blocks, first,
            Noise{.seed = seed, .position = position, .streams = span(streams).subspan(first, blocks[0].rows)});
      });
    }
  });
}

// The rows of `indices` for a block of rows.
MatrixView<std::int64_t> indices_of(const Matrix<std::int64_t>& indices, std::size_t first, std::size_t rows) {
  return {indices.data() + first * indices.shape(1), rows, indices.shape(1)};
}

// indices: rows by index, x draws.
void draw(nb::handle x, Matrix<std::int64_t> indices, nb::handle axis, nb::tuple values, std::uint64_t seed, Streams streams,
          std::uint64_t position) {
  const Sample op = to_params<Sample>(values).op;
  with_noise("sample", {"x", x}, {"", nb::none()}, axis, seed, streams, position,
             [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t first, const Noise& noise) {
               sample(op, blocks[0].matrix<const T>(), indices_of(indices, first, blocks[0].rows), noise);
             });
}

void gumbel(nb::handle x, nb::handle p, nb::handle axis, nb::tuple values, std::uint64_t seed, Streams streams) {
  const GumbelSoftmax op = to_params<GumbelSoftmax>(values).op;
  with_noise("gumbel_softmax", {"x", x}, {.name = "p", .array = p, .output = true}, axis, seed, streams, 0,
             [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t /*first*/, const Noise& noise) {
               gumbel_softmax<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<T>(), noise);
             });
}

void noise(nb::handle g, nb::handle axis, std::uint64_t seed, Streams streams) {
  with_noise("gumbel_noise", {.name = "g", .array = g, .output = true}, {"", nb::none()}, axis, seed, streams, 0,
             [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t /*first*/, const Noise& given) {
               gumbel_noise(blocks[0].matrix<T>(), given);
             });
}

void probs(const Sampler& sampler, nb::handle x, nb::handle p, nb::handle axis) {
  ParamValues none;
  const GivenArray arrays[] = {{"x", x}, {.name = "p", .array = p, .output = true}};
  const GivenRows given("Sampler.probs", arrays, axis, none);
  const nb::gil_scoped_release release;
  on_type(given.type(), [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsHalf<T>) {
      throw nb::type_error("an array of float32 or float64 is wanted, got halves");
    } else {
      given.rows().for_blocks([&](const RowBlock* blocks, std::size_t /*first*/) {
        sampler.probs<T>(blocks[0].matrix<const T>(), blocks[1].matrix<T>());
      });
    }
  });
}

void draw_by(const Sampler& sampler, nb::handle x, Matrix<std::int64_t> indices, nb::handle axis, Streams streams,
             std::uint64_t position) {
  with_noise("Sampler.sample", {"x", x}, {"", nb::none()}, axis, 0, streams, position,
             [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t first, const Noise& given) {
               sampler.sample(blocks[0].matrix<const T>(), indices_of(indices, first, blocks[0].rows), given);
             });
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

}  // namespace

void bind_sampling(nb::module_& m) {
  m.def("sampling_operations", [] { return describe(family_info<Sampling>()); });
  m.def("sample", &draw, nb::arg("x"), nb::arg("indices").noconvert(), nb::arg("axis").none(), nb::arg("params"),
        nb::arg("seed"), nb::arg("streams").noconvert(), nb::arg("position"));
  m.def("gumbel_softmax", &gumbel, nb::arg("x"), nb::arg("p"), nb::arg("axis").none(), nb::arg("params"), nb::arg("seed"),
        nb::arg("streams").noconvert());
  m.def("gumbel_noise", &noise, nb::arg("g"), nb::arg("axis").none(), nb::arg("seed"), nb::arg("streams").noconvert());
  nb::class_<Sampler>(m, "Sampler")
      .def(
          "__init__",
          [](Sampler* self, const nb::list& steps, std::uint64_t seed) { new (self) Sampler(to_sampler(steps, seed)); },
          nb::arg("steps"), nb::arg("seed"))
      .def("probs", &probs, nb::arg("x"), nb::arg("p"), nb::arg("axis").none())
      .def("sample", &draw_by, nb::arg("x"), nb::arg("indices").noconvert(), nb::arg("axis").none(),
           nb::arg("streams").noconvert(), nb::arg("position"));
  m.def("sampling_steps", [] { return describe(family_info<Step>()); });
}

}  // namespace isentropic

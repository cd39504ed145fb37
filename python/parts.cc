// Parts of rows for Python: questions and answers are arrays of int64, which the caller joins.

#include <isentropic/isentropic.h>
#include <isentropic/parts.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"

namespace isentropic {
namespace {

constexpr const char* kJoins[] = {"none", "maximum", "sum", "gather"};

template <class T>
void bind_part(nb::module_& m, const char* name) {
  using P = Part<T>;
  nb::class_<P>(m, name)
      .def("question",
           [](const P& part) {
             const Question asked = part.question();
             return std::pair(kJoins[static_cast<int>(asked.join)], asked.words);
           })
      .def(
          "answer",
          [](P& part, Vector<std::int64_t> words) {
            const nb::gil_scoped_release release;
            part.answer(span(words));
          },
          nb::arg("words").noconvert())
      .def(
          "take",
          [](P& part, Vector<const std::int64_t> joined) {
            const nb::gil_scoped_release release;
            part.take(span(joined));
          },
          nb::arg("joined").noconvert())
      .def(
          "write",
          [](const P& part, Matrix<T> y) {
            const nb::gil_scoped_release release;
            part.write(view(y));
          },
          nb::arg("y").noconvert())
      .def(
          "keeps", [](const P& part, Vector<std::uint8_t> kept) { part.keeps(span(kept)); }, nb::arg("kept").noconvert())
      .def("value_count", [](const P& part) { return part.values().cols; })
      .def(
          "values",
          [](const P& part, Matrix<double> values) {
            const MatrixView<const double> all = part.values();
            for (std::size_t r = 0; r < all.rows; ++r) std::copy_n(all.row(r), all.cols, values.data() + r * all.cols);
          },
          nb::arg("values").noconvert())
      .def(
          "indices",
          [](const P& part, Vector<std::int64_t> indices) {
            std::copy(part.indices().begin(), part.indices().end(), indices.data());
          },
          nb::arg("indices").noconvert());

  // The part keeps the arrays, because it reads them until the result is written.
  m.def(
      "part_of_map",
      [](const std::string& map, nb::tuple values, Matrix<const T> x, std::uint64_t first, std::uint64_t n) {
        const OperationInfo* const info = find_operation(family_info<Map>(), map);
        if (info == nullptr) throw nb::value_error(("there is no map '" + map + "'").c_str());
        return part_of<T>(make<Map>(*info, ParamValues(*info, values).values), view(x), {first, n});
      },
      nb::arg("map"), nb::arg("params"), nb::arg("x").noconvert(), nb::arg("first"), nb::arg("n"), nb::keep_alive<0, 3>());
  m.def(
      "part_of_gamma",
      [](double entropy, double low, double high, std::int64_t iterations, Matrix<const T> x, std::uint64_t first,
         std::uint64_t n) {
        return part_of<T>(
            GammaForEntropy{.entropy = entropy, .min_gamma = low, .max_gamma = high, .max_iterations = iterations}, view(x),
            {first, n});
      },
      nb::arg("entropy"), nb::arg("low"), nb::arg("high"), nb::arg("iterations"), nb::arg("x").noconvert(), nb::arg("first"),
      nb::arg("n"), nb::keep_alive<0, 5>());
  m.def(
      "part_of_statistics",
      [](double temperature, bool entropy, Vector<const std::int64_t> classes, Matrix<const T> x, std::uint64_t first,
         std::uint64_t n) {
        return part_of<T>(RowStatistics{.temperature = temperature, .entropy = entropy}, view(x), {first, n}, span(classes));
      },
      nb::arg("temperature"), nb::arg("entropy"), nb::arg("classes").noconvert(), nb::arg("x").noconvert(), nb::arg("first"),
      nb::arg("n"), nb::keep_alive<0, 4>());
  m.def(
      "part_of_typical",
      [](double p, double temperature, Matrix<const T> x, std::uint64_t first, std::uint64_t n) {
        return part_of<T>(step::TypicalP{p}, temperature, view(x), {first, n});
      },
      nb::arg("p"), nb::arg("temperature"), nb::arg("x").noconvert(), nb::arg("first"), nb::arg("n"), nb::keep_alive<0, 3>());
  m.def(
      "part_of_sample",
      [](double temperature, std::uint64_t seed, Vector<const std::uint64_t> streams, std::uint64_t position, std::size_t draws,
         Matrix<const T> x, std::uint64_t first, std::uint64_t n) {
        return part_of<T>(Sample{temperature}, view(x), {first, n},
                          Noise{.seed = seed, .position = position, .streams = span(streams)}, draws);
      },
      nb::arg("temperature"), nb::arg("seed"), nb::arg("streams").noconvert(), nb::arg("position"), nb::arg("draws"),
      nb::arg("x").noconvert(), nb::arg("first"), nb::arg("n"), nb::keep_alive<0, 6>());
}

template <class F>
auto elementwise(const F& f) {
  return [f](Vector<const double> a, Vector<double> y) { f(span(a), span(y)); };
}

}  // namespace

void bind_parts(nb::module_& m) {
  bind_part<float>(m, "PartOfFloat");
  bind_part<double>(m, "PartOfDouble");
  m.def(
      "part_of_sum",
      [](bool bounded, Matrix<const double> terms, std::uint64_t first, std::uint64_t n) {
        return part_of(RowSum{.bounded = bounded}, view(terms), {first, n});
      },
      nb::arg("bounded"), nb::arg("terms").noconvert(), nb::arg("first"), nb::arg("n"), nb::keep_alive<0, 2>());
  m.def("divergence_terms", [](Vector<const double> log_p, Vector<const double> log_q, Vector<double> terms) {
    divergence_terms(span(log_p), span(log_q), span(terms));
  });
  m.def("entropy_terms", elementwise(entropy_terms));
  m.def("logarithms", elementwise(logarithms));
  m.def("exponentials", elementwise(exponentials));
}

}  // namespace isentropic

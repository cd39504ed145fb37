// The extension module isentropic._core.

#include <isentropic/isentropic.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "params.h"

NB_MODULE(_core, m) {
  m.attr("__version__") = ISENTROPIC_VERSION;
  isentropic::bind_calls(m);
  isentropic::bind_files(m);
  isentropic::bind_functions(m);
  isentropic::bind_jax(m);
  // The largest distance from 1 of the sum of a distribution, by the size of its numbers in bytes.
  nb::dict tolerance;
  tolerance[nb::int_(sizeof(isentropic::float16))] = isentropic::kSumTolerance<isentropic::float16>;
  tolerance[nb::int_(sizeof(float))] = isentropic::kSumTolerance<float>;
  tolerance[nb::int_(sizeof(double))] = isentropic::kSumTolerance<double>;
  m.attr("sum_tolerance") = tolerance;
  m.def("simd_targets", &isentropic::simd_targets);
  m.def("simd_target", &isentropic::simd_target);
  m.def("force_simd_target", &isentropic::force_simd_target);
  m.def(
      "set_num_threads",
      [](nb::handle n) {
        const std::int64_t count = isentropic::to_int("set_num_threads", "n", n);
        if (count < 0) throw nb::value_error(("set_num_threads: n must be 0 or more, got " + std::to_string(count)).c_str());
        isentropic::set_num_threads(static_cast<std::size_t>(count));
      },
      nb::arg("n").none());
  m.def("get_num_threads", &isentropic::get_num_threads);
}

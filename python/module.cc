// The extension module entropic._core: the families, one by one, and their common functions.

#include <entropic/entropic.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "params.h"

NB_MODULE(_core, m) {
  m.attr("__version__") = ENTROPIC_VERSION;
  entropic::bind_attention(m);
  entropic::bind_calibration(m);
  entropic::bind_entropy_control(m);
  entropic::bind_files(m);
  entropic::bind_jax(m);
  entropic::bind_losses(m);
  entropic::bind_maps(m);
  entropic::bind_measures(m);
  entropic::bind_parts(m);
  entropic::bind_sampling(m);
  entropic::bind_transport(m);
  // The largest distance from 1 of the sum of a distribution, by the size of its numbers in bytes.
  nb::dict tolerance;
  tolerance[nb::int_(sizeof(entropic::float16))] = entropic::kSumTolerance<entropic::float16>;
  tolerance[nb::int_(sizeof(float))] = entropic::kSumTolerance<float>;
  tolerance[nb::int_(sizeof(double))] = entropic::kSumTolerance<double>;
  m.attr("sum_tolerance") = tolerance;
  m.def("simd_targets", &entropic::simd_targets);
  m.def("simd_target", &entropic::simd_target);
  m.def("force_simd_target", &entropic::force_simd_target);
  m.def(
      "set_num_threads",
      [](nb::handle n) {
        const std::int64_t count = entropic::to_int("set_num_threads", "n", n);
        if (count < 0) throw nb::value_error(("set_num_threads: n must be 0 or more, got " + std::to_string(count)).c_str());
        entropic::set_num_threads(static_cast<std::size_t>(count));
      },
      nb::arg("n").none());
  m.def("get_num_threads", &entropic::get_num_threads);
}

// The parts of the module: each function adds its family, in the file of that name.
#pragma once

#include <nanobind/nanobind.h>

namespace isentropic {

void bind_attention(nanobind::module_& m);
void bind_calibration(nanobind::module_& m);
void bind_entropy_control(nanobind::module_& m);
void bind_files(nanobind::module_& m);
void bind_jax(nanobind::module_& m);
void bind_losses(nanobind::module_& m);
void bind_maps(nanobind::module_& m);
void bind_measures(nanobind::module_& m);
void bind_parts(nanobind::module_& m);
void bind_sampling(nanobind::module_& m);
void bind_transport(nanobind::module_& m);

}  // namespace isentropic

// The parts of the module: each function adds what its file has.
#pragma once

#include <nanobind/nanobind.h>

namespace isentropic {

void bind_calls(nanobind::module_& m);
void bind_files(nanobind::module_& m);
void bind_functions(nanobind::module_& m);
void bind_jax(nanobind::module_& m);

}  // namespace isentropic

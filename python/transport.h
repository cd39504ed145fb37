// Transport for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace entropic {

// Adds the functions of transport.h to the module, on arrays without gaps.
void bind_transport(nanobind::module_& m);

}  // namespace entropic

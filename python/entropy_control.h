// Entropy control for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace entropic {

// Adds the functions of entropy_control.h to the module, on rows without gaps, and control_operations(), which lists them.
void bind_entropy_control(nanobind::module_& m);

}  // namespace entropic

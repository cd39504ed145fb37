// Losses for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace entropic {

// Adds losses and loss to the module.
void bind_losses(nanobind::module_& m);

}  // namespace entropic

// Sampling for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace entropic {

// Adds the functions of sampling.h to the module, on rows without gaps, the class Sampler, and sampling_steps(), which lists
// its steps.
void bind_sampling(nanobind::module_& m);

}  // namespace entropic

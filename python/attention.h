// Attention for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace entropic {

void bind_attention(nanobind::module_& m);

}  // namespace entropic

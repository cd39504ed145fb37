// Files and Arrow arrays for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace entropic {

// Adds to the module what entropic/_files.py calls: files as the command line reads and writes them, and arrays of Arrow.
void bind_files(nanobind::module_& m);

}  // namespace entropic

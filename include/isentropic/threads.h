// The number of threads that work on a batch. Threads share the rows, and the parts of very long rows; results do not depend on
// their number.
#pragma once

#include <cstddef>

#include "entropic/export.h"

namespace entropic::inline ENTROPIC_ABI {

// Limits every later call to n threads; 0 restores the default, one per processor that this process may use.
ENTROPIC_API void set_num_threads(std::size_t n);
ENTROPIC_API std::size_t get_num_threads();

}  // namespace entropic::inline ENTROPIC_ABI

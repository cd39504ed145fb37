// How many threads work on a batch. Rows are shared out, and very long ones in parts: results do not depend on the number.
#pragma once

#include <cstddef>

#include "entropic/export.h"

namespace entropic::inline ENTROPIC_ABI {

// At most n threads for every later call; 0 returns to the default, one per processor this process may use.
ENTROPIC_API void set_num_threads(std::size_t n);
ENTROPIC_API std::size_t get_num_threads();

}  // namespace entropic::inline ENTROPIC_ABI

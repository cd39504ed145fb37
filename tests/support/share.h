// How much of what tests generate is run.
#pragma once

#include <cstddef>

namespace support {

// Sanitizers look for what every row that takes the same way through the code shows, and take ten times as long: one of five.
#ifdef ENTROPIC_SANITIZED
inline constexpr std::size_t kShare = 5;
#else
inline constexpr std::size_t kShare = 1;
#endif

}  // namespace support

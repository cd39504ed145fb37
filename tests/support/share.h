// The part of the generated cases that is run.
#pragma once

#include <cstddef>

namespace support {

// Under sanitizers only one case of five is run: they take ten times as long, and rows that use the same code show the same
// errors.
#ifdef ISENTROPIC_SANITIZED
inline constexpr std::size_t kShare = 5;
#else
inline constexpr std::size_t kShare = 1;
#endif

}  // namespace support

// Checks of a call's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI::cuda {

// Checks the memory of a call; the function `says` says how much it needs.
inline void check_memory(std::string_view operation, std::span<std::byte> memory, std::size_t wanted,
                         std::string_view says = "memory_for()") {
  if (memory.size() < wanted) {
    fail("{}: memory must have {} bytes, as {} says, got {}", operation, wanted, says, memory.size());
  }
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % 128 != 0) {
    fail("{}: memory must be aligned to 128 bytes, got {}", operation, static_cast<const void*>(memory.data()));
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI::cuda

// Whether the arrays of a call are apart in memory.
#pragma once

#include <span>
#include <string_view>

#include "isentropic/strided_rows.h"

namespace isentropic::inline ISENTROPIC_ABI {

// An array of a call; it has no initial values, because there is room for many.
struct Placed {
  std::string_view name;
  const StridedArray* array;
  bool output;
};

// Whether every number has its own place.
bool has_room(const StridedArray& a);

// Refuses an output that has one place for two numbers, or shares memory with another array, unless it is an input itself and
// that is allowed.
void check_apart(std::string_view operation, std::span<const Placed> arrays, bool output_may_be_input);

}  // namespace isentropic::inline ISENTROPIC_ABI

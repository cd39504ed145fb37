// The place of an array, for C++ code that calls the functions of _core: a capsule of this name holds a pointer to a Place,
// which lives as long as the call.
#pragma once

#include <cstdint>

namespace isentropic {

inline constexpr char kPlace[] = "isentropic.place";

struct Place {
  void* data = nullptr;
  int dims = 0;
  const std::int64_t* shape = nullptr;
  const std::int64_t* strides = nullptr;  // in items
  int type = 0;                           // the number of a Type (params.h)
};

}  // namespace isentropic

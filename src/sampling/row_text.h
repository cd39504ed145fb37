// What steps may know of a row beside its scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

struct RowText {
  const std::int64_t* tokens = nullptr;  // the text so far, without padding
  std::size_t length = 0;
  std::uint32_t* room = nullptr;                            // for as many numbers
  double bound = std::numeric_limits<double>::quiet_NaN();  // mirostat's; NaN: the text is new
};

}  // namespace isentropic::inline ISENTROPIC_ABI

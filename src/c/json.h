// As much JSON as parameters are: an object of numbers, strings, true, false and null, and for a map an object with its name.
#pragma once

#include <string_view>
#include <vector>

#include "entropic/operation.h"

namespace entropic::inline ENTROPIC_ABI {

// The members of an object; names point into `text`. Throws: std::invalid_argument.
std::vector<Argument> parse_parameters(std::string_view operation, std::string_view text);

}  // namespace entropic::inline ENTROPIC_ABI

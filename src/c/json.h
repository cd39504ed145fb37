// The part of JSON that parameters need: an object of numbers, strings, true, false and null; a map is an object with its name,
// and a chain a list of such objects.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isentropic/operation.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The members of an object; names point into `text`. If `steps` is given, it gets the member "steps", a list of objects with
// names; `of_maps` gets the names of the parameters that maps have in the text. Throws: std::invalid_argument.
std::vector<Argument> parse_parameters(std::string_view operation, std::string_view text,
                                       std::optional<std::vector<Step>>* steps = nullptr,
                                       std::vector<std::string>* of_maps = nullptr);

// Refuses null for a parameter that has a default: it is how JavaScript writes infinity and NaN. No operation: nothing is
// refused.
void refuse_nulls(const OperationInfo* info, const std::vector<Argument>& given);

}  // namespace isentropic::inline ISENTROPIC_ABI

// What a parameter may be, in words.

#include "entropic/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace entropic {

std::string allowed_values(std::span<const std::string_view> names) { return fmt::format("one of {}", fmt::join(names, ", ")); }

std::string allowed_values(double above, double at_least, double up_to, std::int64_t multiple_of, bool is_integer) {
  std::vector<std::string> all;
  if (above != std::numeric_limits<double>::lowest()) all.push_back(fmt::format("above {}", above));
  if (at_least != std::numeric_limits<double>::lowest()) all.push_back(fmt::format("at least {}", at_least));
  if (up_to != std::numeric_limits<double>::max()) {
    all.push_back(fmt::format("at most {}", up_to));
  } else if (!is_integer) {
    all.emplace_back("finite");
  }
  if (multiple_of != 0) all.push_back(fmt::format("a multiple of {}", multiple_of));
  return all.empty() ? "any integer" : fmt::format("{}", fmt::join(all, " and "));
}

}  // namespace entropic

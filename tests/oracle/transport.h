// Optimal transport by LEMON's network simplex in whole numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace oracle {

// The least cost, or nothing if there is no plan; a cost below 0 means a forbidden entry.
std::optional<std::int64_t> transport(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b,
                                      const std::vector<std::int64_t>& cost);

}  // namespace oracle

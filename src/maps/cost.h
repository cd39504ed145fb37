// The cost of a map.
#pragma once

#include <cstddef>

#include "isentropic/maps.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The cost of an entry, in units of softmax's.
inline std::size_t cost_of(const Map& map) {
  // The largest of scores with Gumbel noise has softmax's law, so softmax's kernels calculate it.
  const auto* const op = std::get_if<PerturbMax>(&map);
  const bool is_softmax = op != nullptr && op->noise == PerturbMax::Noise::gumbel;
  return is_softmax ? Described<Softmax>::kDescription.cost : description_of(map).cost;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

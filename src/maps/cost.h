// What a map costs.
#pragma once

#include <cstddef>

#include "entropic/maps.h"

namespace entropic::inline ENTROPIC_ABI {

// Of an entry, in units of softmax's.
inline std::size_t cost_of(const Map& map) {
  // The largest of scores with gumbel noise has softmax's law, and softmax's kernels find it.
  const auto* const op = std::get_if<PerturbMax>(&map);
  const bool is_softmax = op != nullptr && op->noise == PerturbMax::Noise::gumbel;
  return is_softmax ? Softmax::kDescription.cost : description_of(map).cost;
}

}  // namespace entropic::inline ENTROPIC_ABI

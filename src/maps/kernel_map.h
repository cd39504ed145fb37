// Which kernel a map has.
#pragma once

#include "entropic/maps.h"

namespace entropic {

// What has two names has one kernel: the largest of scores with gumbel noise has softmax's law.
inline Map kernel_map(const Map& map) {
  const auto* const op = std::get_if<PerturbMax>(&map);
  if (op != nullptr && op->noise == PerturbMax::Noise::gumbel) return Softmax{.temperature = op->scale};
  return map;
}

}  // namespace entropic

// perturb_max with the caller's noise, for the kernels.
#pragma once

#include "isentropic/maps.h"
#include "isentropic/perturb_max.h"

namespace isentropic::inline ISENTROPIC_ABI {

struct CustomPerturbMax {
  NoiseFunctions noise;
  double scale;
};

template <>
struct Described<CustomPerturbMax> {
  static constexpr Description kDescription = Described<PerturbMax>::kDescription;
  static constexpr auto kParams = Params{Param<CustomPerturbMax>{
      .name = "scale", .meaning = "multiplies the noise", .member = &CustomPerturbMax::scale, .above = 0}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

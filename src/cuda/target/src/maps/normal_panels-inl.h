// On a device: perturb_max with normal noise takes every score at every point of the line. The few points of the host's panels
// would leave most of a team's threads without work. Results differ in the last digits.
#pragma once

#include "src/rows/loop-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T, class LineOf>
HWY_INLINE bool MassesByPanels(const double* /*keys*/, size_t /*n*/, const LineOf& /*line_of*/, double /*cut*/,
                               double* /*mass*/, Arena /*memory*/) {
  return false;
}

template <class T>
HWY_INLINE size_t PanelsMemory() {
  return 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

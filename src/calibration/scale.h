// The entropy-invariant scale for one number of keys, for callers that have checked their arguments: attention calculates it
// for each query.
#pragma once

#include <cmath>

#include "isentropic/calibration.h"

namespace isentropic::inline ISENTROPIC_ABI {

inline double scale_of_length(double n, double d, const EntropyInvariantScale& options) {
  const double log_n = std::log(n);
  return options.kappa ? *options.kappa * log_n / d : log_n / std::log(options.train_length) / std::sqrt(d);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

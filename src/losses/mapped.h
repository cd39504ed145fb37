// The losses that start from a map's result.
#pragma once

#include "isentropic/losses.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The map that a loss starts from.
inline Map map_of(const SparsemaxLoss& /*op*/) { return Sparsemax{}; }
inline Map map_of(const EntmaxLoss& op) { return Entmax{.alpha = op.alpha}; }
inline Map map_of(const TopKSoftmaxLoss& op) { return TopKSoftmax{.k = op.k}; }
inline Map map_of(const TopPSoftmaxLoss& op) { return TopPSoftmax{.p = op.p}; }
inline Map map_of(const SmoothAccuracyLoss& op) { return op.map; }
inline Map map_of(const SurrogateLoss& op) { return op.map; }

}  // namespace isentropic::inline ISENTROPIC_ABI

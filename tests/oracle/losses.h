// The losses from their definitions, in long double. A class is given as its one-hot distribution; rows hold finite scores and
// -inf.
#pragma once

#include "isentropic/losses.h"
#include "tests/oracle/maps.h"

namespace oracle {

struct LossResult {
  long double value;
  Row dx;
};

// The loss of a row of scores against a target: a distribution, labels or a teacher's scores.
LossResult loss(const isentropic::Loss& op, const Row& x, const Row& target);

}  // namespace oracle

// The losses from their definitions, in long double. A class is the distribution that has it; rows hold finite scores and -inf.
#pragma once

#include "entropic/losses.h"
#include "tests/oracle/maps.h"

namespace oracle {

struct LossResult {
  long double value;
  Row dx;
};

// Of a row of scores, and of what it is compared with: a distribution, labels or a teacher's scores.
LossResult loss(const entropic::Loss& op, const Row& x, const Row& target);

}  // namespace oracle

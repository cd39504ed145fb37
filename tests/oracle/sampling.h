// The steps of a chain from their definitions, in long double, one after the other on whole rows; and the noise.
#pragma once

#include <cstdint>
#include <vector>

#include "isentropic/sampling.h"
#include "src/sampling/philox.h"
#include "tests/oracle/maps.h"

namespace oracle {

// The distribution after the steps on softmax(x), of a new text: mirostat's bound is the first one.
Row chain(const std::vector<isentropic::Step>& steps, Row x, const std::vector<std::int64_t>& text = {});

// Exp(1) of an index: docs/math/sampling.md.
long double exponential(isentropic::NoiseKey key, std::uint64_t index);

}  // namespace oracle

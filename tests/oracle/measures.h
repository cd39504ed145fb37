// Measures straight from their definitions, in long double.
#pragma once

#include <cstddef>
#include <vector>

#include "entropic/measures.h"

namespace oracle {

using Numbers = std::vector<long double>;

// What a row of numbers says, as a distribution.
Numbers distribution(entropic::Input input, bool normalize, Numbers x);

// The measure of rows that hold what op.input says.
long double value(const entropic::Measure& op, const Numbers& x);
long double value(const entropic::Divergence& op, const Numbers& x, const Numbers& y);
long double table_value(const entropic::TableMeasure& op, const Numbers& x, std::size_t cols);
long double value(const entropic::EntryMeasure& op, long double x);

}  // namespace oracle

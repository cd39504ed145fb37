// Measures straight from their definitions, in long double.
#pragma once

#include <cstddef>
#include <vector>

#include "isentropic/measures.h"

namespace oracle {

using Numbers = std::vector<long double>;

// The distribution that a row of numbers stands for.
Numbers distribution(isentropic::Input input, bool normalize, Numbers x);

// The measure of rows of the kind op.input.
long double value(const isentropic::Measure& op, const Numbers& x);
long double value(const isentropic::Divergence& op, const Numbers& x, const Numbers& y);
long double table_value(const isentropic::TableMeasure& op, const Numbers& x, std::size_t cols);
long double value(const isentropic::EntryMeasure& op, long double x);

}  // namespace oracle

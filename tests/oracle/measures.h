// Measures straight from their definitions, in long double.
#pragma once

#include <cstddef>
#include <vector>

#include "entropic/measures.h"

namespace oracle {

using Numbers = std::vector<long double>;

// The distribution that a row of numbers stands for.
Numbers distribution(entropic::Input input, bool normalize, Numbers x);

// The measure of rows of the kind op.input.
long double value(const entropic::Measure& op, const Numbers& x);
long double value(const entropic::Divergence& op, const Numbers& x, const Numbers& y);
long double table_value(const entropic::TableMeasure& op, const Numbers& x, std::size_t cols);
long double value(const entropic::EntryMeasure& op, long double x);

}  // namespace oracle

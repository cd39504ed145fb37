// A sum that loses nearly nothing to rounding.
#pragma once

#include <cmath>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A sum in twice the precision: Neumaier 1974.
class CompensatedSum {
 public:
  void add(double term) {
    const double next = sum_ + term;
    if (std::isfinite(next)) low_ += std::abs(sum_) >= std::abs(term) ? (sum_ - next) + term : (term - next) + sum_;
    sum_ = next;
  }
  void add_product(double x, double y) {
    const double product = x * y;
    add(product);
    if (std::isfinite(product)) low_ += std::fma(x, y, -product);
  }
  double value() const { return sum_ + low_; }

 private:
  double sum_ = 0, low_ = 0;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

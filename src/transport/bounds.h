// Bounds that hold for the returned numbers: the possible rounding error is added to them or subtracted from them.
#pragma once

#include <cmath>
#include <limits>

#include "isentropic/version.h"
#include "src/transport/compensated_sum.h"

namespace isentropic::inline ISENTROPIC_ABI {

constexpr double kRounding = 0x1p-53;  // the largest relative error of one operation

// The next number, unless x is exactly 0: then nothing was rounded.
inline double above(double x) { return x == 0 ? x : std::nextafter(x, std::numeric_limits<double>::infinity()); }
inline double below(double x) { return x == 0 ? x : std::nextafter(x, -std::numeric_limits<double>::infinity()); }

// A sum and the sum of the sizes of its terms. If each of their factors has a relative error of some kRounding, the sum has an
// error of as many kRounding times the size.
class SizedSum {
 public:
  void add_product(double x, double y) {
    sum_.add_product(x, y);
    size_ += std::abs(x * y);
  }
  double value() const { return sum_.value(); }
  double size() const { return size_; }

 private:
  CompensatedSum sum_;
  double size_ = 0;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

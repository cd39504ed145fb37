// Numbers as integers, which the parts join.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// An integer in the order of the numbers; that of NaN is larger than that of +inf. There is room above NaN for error codes.
inline std::int64_t KeyOf(double v) {
  if (v != v) return 0x7ff8000000000000;
  const auto bits = std::bit_cast<std::int64_t>(v + 0.0);
  return bits >= 0 ? bits : bits ^ 0x7fffffffffffffff;
}
inline double OfKey(std::int64_t key) { return std::bit_cast<double>(key >= 0 ? key : key ^ 0x7fffffffffffffff); }
inline std::int32_t NarrowKeyOf(float v) {
  if (v != v) return 0x7fc00000;
  const auto bits = std::bit_cast<std::int32_t>(v + 0.0f);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}
inline float OfNarrowKey(std::int32_t key) { return std::bit_cast<float>(key >= 0 ? key : key ^ 0x7fffffff); }

// Terms below 2 in fixed point: n of them do not overflow 63 bits, and each fits the 51 bits below.
class Fixed {
 public:
  explicit Fixed(std::uint64_t n)
      : bits_(std::min(50, 61 - static_cast<int>(std::bit_width(std::max<std::uint64_t>(n, 2) - 1)))),
        scale_(std::ldexp(1.0, bits_)),
        inverse_(std::ldexp(1.0, -bits_)) {}

  // words[0] += the term; with two words, the second takes the rest of the term.
  template <std::size_t kWords>
  void Add(double term, std::int64_t* words) const {
    const double scaled = term * scale_, whole = (scaled + kMagic) - kMagic;
    words[0] += static_cast<std::int64_t>(whole);
    if constexpr (kWords == 2) words[1] += static_cast<std::int64_t>(((scaled - whole) * scale_ + kMagic) - kMagic);
  }
  // Adds many terms, in any order, so that the compiler can vectorise.
  template <std::size_t kWords, class T>
  void AddRow(const T* terms, std::size_t n, std::int64_t* words) const {
    std::int64_t high = 0, low = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double scaled = static_cast<double>(terms[i]) * scale_, shifted = scaled + kMagic;
      high += std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kMagic);
      if constexpr (kWords == 2) {
        const double rest = (scaled - (shifted - kMagic)) * scale_ + kMagic;
        low += std::bit_cast<std::int64_t>(rest) - std::bit_cast<std::int64_t>(kMagic);
      }
    }
    words[0] += high;
    if constexpr (kWords == 2) words[1] += low;
  }
  template <std::size_t kWords>
  double Total(const std::int64_t* words) const {
    double total = static_cast<double>(words[0]) * inverse_;
    if constexpr (kWords == 2) {
      // The second word gets the bits of the first word below the 53 bits of a number.
      const std::int64_t upper = words[0] & ~std::int64_t{0x3ff};
      const double rest = static_cast<double>(words[0] - upper) * inverse_;
      total = static_cast<double>(upper) * inverse_ + (rest + static_cast<double>(words[1]) * inverse_ * inverse_);
    }
    return total;
  }
  double scale() const { return scale_; }

 private:
  static constexpr double kMagic = 0x1.8p52;
  int bits_;
  double scale_, inverse_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

// The two 16-bit floating-point types. Rows of them are read and written in these types and computed in float.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <bit>
#include <cstdint>
#include <type_traits>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// IEEE 754 binary16: 11 significant bits, largest number 65504.
struct ISENTROPIC_API float16 {
  std::uint16_t bits;

  float16() = default;
  // Rounds to the nearest, ties to even; infinity from 65520 on.
  constexpr explicit float16(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = all & 0x7fffffff;
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Below 2^-14 a unit is 2^-24, as for float in [1/2, 1), so the sum rounds correctly.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
    std::uint32_t half = magnitude < 113u << 23 ? subnormal : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : half;
    bits = static_cast<std::uint16_t>(half | (all >> 16 & 0x8000));
  }
  constexpr explicit operator float() const {
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    std::uint32_t wide = magnitude + (112u << 23);
    // A subnormal: its bits follow those of 2^-14, and then 2^-14 is subtracted.
    const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f);
    wide = magnitude < 1u << 23 ? subnormal : wide;
    wide = magnitude >= 31u << 23 ? magnitude | 0x7f800000 : wide;
    return std::bit_cast<float>(wide | (bits & 0x8000u) << 16);
  }
};

// The upper half of a float: its range, 8 significant bits.
struct ISENTROPIC_API bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  // Rounds to the nearest, ties to even.
  constexpr explicit bfloat16(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16;
    bits = static_cast<std::uint16_t>((all & 0x7fffffff) > 0x7f800000 ? all >> 16 | 0x40 : rounded);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// What calls on the host and on a device have in common.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "isentropic/call.h"
#include "isentropic/half.h"

namespace isentropic::inline ISENTROPIC_ABI::call {

template <class T>
inline constexpr NumberType kTypeOf = std::is_same_v<T, float>            ? NumberType::float32
                                      : std::is_same_v<T, double>         ? NumberType::float64
                                      : std::is_same_v<T, float16>        ? NumberType::float16
                                      : std::is_same_v<T, bfloat16>       ? NumberType::bfloat16
                                      : sizeof(T) == sizeof(std::int32_t) ? NumberType::int32
                                                                          : NumberType::int64;

// Values of parameters for each row, or gradients in them. No operation and its map have more of them.
template <class Numbers>
struct Few {
  static constexpr std::size_t kMost = 4;
  std::array<Numbers, kMost> all;
  std::size_t count = 0;

  operator std::span<const Numbers>() const { return std::span(all).first(count); }
  void add(const Numbers& one) { all[count++] = one; }
  Few part(std::size_t first, std::size_t rows) const {
    Few some = *this;
    for (std::size_t i = 0; i < count; ++i) some.all[i].values = some.all[i].values.subspan(first, rows);
    return some;
  }
};

}  // namespace isentropic::inline ISENTROPIC_ABI::call

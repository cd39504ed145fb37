// What calls on the host and on a device have in common.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "isentropic/call.h"
#include "isentropic/half.h"

namespace isentropic::inline ISENTROPIC_ABI::call {

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

// Text with numbers in it, for messages and what is printed. A NaN is nan there: its sign, which fmt would write, says nothing.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <limits>
#include <string>
#include <type_traits>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class T>
decltype(auto) without_sign_of_nan(const T& value) {
  if constexpr (std::floating_point<T>) {
    return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
  } else {
    return value;
  }
}

template <class... Args>
std::string formatted(fmt::format_string<Args...> text, Args&&... args) {
  const auto format = [&](const auto&... shown) { return fmt::vformat(text, fmt::make_format_args(shown...)); };
  return format(without_sign_of_nan(args)...);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

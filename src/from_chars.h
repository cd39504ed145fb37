// std::from_chars for double, which libc++ only has from version 20 on.
#pragma once

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "isentropic/version.h"

#ifndef _WIN32
#include <locale.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif
#endif

namespace isentropic::inline ISENTROPIC_ABI {

#ifndef _WIN32
// from_chars by strtod in C's locale. strtod also takes blanks, a plus and hexadecimal numbers, so characters that from_chars
// refuses are cut off first.
inline std::from_chars_result from_chars_by_strtod(const char* first, const char* last, double& value) {
  const auto at_word = [&](const char* at, std::string_view word) {
    if (static_cast<std::size_t>(last - at) < word.size()) return false;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (std::tolower(static_cast<unsigned char>(at[i])) != word[i]) return false;
    }
    return true;
  };
  const auto skip_digits = [&](const char* at) {
    while (at != last && *at >= '0' && *at <= '9') ++at;
    return at;
  };
  const char* at = first;
  if (at != last && *at == '-') ++at;
  if (at_word(at, "infinity")) {
    at += 8;
  } else if (at_word(at, "inf")) {
    at += 3;
  } else if (at_word(at, "nan")) {
    at += 3;
    const char* close = at;
    while (close != last && (close == at ? *close == '(' : std::isalnum(static_cast<unsigned char>(*close)) || *close == '_'))
      ++close;
    if (close != at && close != last && *close == ')') at = close + 1;
  } else {
    const char* const digits = at;
    at = skip_digits(at);
    std::ptrdiff_t count = at - digits;
    if (at != last && *at == '.') {
      const char* const fraction = at + 1;
      const char* const behind = skip_digits(fraction);
      count += behind - fraction;
      at = behind;
    }
    if (count == 0) return {first, std::errc::invalid_argument};
    if (at != last && (*at == 'e' || *at == 'E')) {
      const char* exponent = at + 1;
      if (exponent != last && (*exponent == '-' || *exponent == '+')) ++exponent;
      if (const char* const behind = skip_digits(exponent); behind != exponent) at = behind;
    }
  }
  static const locale_t c_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string text(first, at);
  const int before = errno;
  errno = 0;
  const double number = ::strtod_l(text.c_str(), nullptr, c_locale);
  const bool out_of_range = errno == ERANGE && (std::isinf(number) || number == 0);
  errno = before;
  if (out_of_range) return {at, std::errc::result_out_of_range};
  value = number;
  return {at, std::errc()};
}
#endif

inline std::from_chars_result double_from_chars(const char* first, const char* last, double& value) {
#if defined(__cpp_lib_to_chars) || defined(_WIN32)
  return std::from_chars(first, last, value);
#else
  return from_chars_by_strtod(first, last, value);
#endif
}

}  // namespace isentropic::inline ISENTROPIC_ABI

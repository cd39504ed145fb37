// Reading doubles without the C++ library's std::from_chars gives the same as std::from_chars, which exists where this is
// tested.
#include "src/from_chars.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cstring>
#include <random>
#include <string>

namespace {

void expect_the_same([[maybe_unused]] const std::string& text) {
#if defined(__cpp_lib_to_chars) && !defined(_WIN32)  // Windows always has std::from_chars
  double expected = 7, number = 7;
  const char* const begin = text.data();
  const auto wanted = std::from_chars(begin, begin + text.size(), expected);
  const auto got = isentropic::from_chars_by_strtod(begin, begin + text.size(), number);
  EXPECT_EQ(got.ptr - begin, wanted.ptr - begin) << text;
  EXPECT_EQ(got.ec, wanted.ec) << text;
  EXPECT_EQ(std::memcmp(&number, &expected, sizeof number), 0) << text << ": " << number << ", not " << expected;
#endif
}

TEST(FromChars, IsThatOfTheStandard) {
  for (const char* text : {"1",
                           "-",
                           "",
                           "1e308",
                           "1e309",
                           "-1e-400",
                           "4.9e-324",
                           "2e-324",
                           "1e-310",
                           "infinity",
                           "-INF",
                           "infinit",
                           "nan",
                           "nan()",
                           "nan(ab_1)",
                           "nan(",
                           "nan(a",
                           "0x10",
                           "1e",
                           "1e+",
                           "1.e5",
                           ".5",
                           ".",
                           "-.5e-3",
                           "+1",
                           " 1",
                           "1.7976931348623159e308",
                           "9007199254740993"}) {
    expect_the_same(text);
  }
  constexpr std::string_view kAlphabet = "0123456789.eE+-infatyN()_ x";
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    std::string text(random() % 9, ' ');
    for (char& c : text) c = kAlphabet[random() % (i % 2 == 0 ? 15 : kAlphabet.size())];
    expect_the_same(text);
  }
}

}  // namespace

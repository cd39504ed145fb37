// The message of a call that refuses its arguments.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace support {

template <class Call>
void expect_error(const std::string& text, Call call) {
  try {
    call();
    FAIL() << "accepted, expected: " << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), text);
  }
}

}  // namespace support

// Runs a test on every SIMD target that was compiled and that this processor has.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isentropic/simd.h"

namespace support {

// The name is asserted: a target that was never compiled would silently test as the fallback.
template <class Body>
void for_each_target(Body&& body) {
  for (const std::string& target : isentropic::simd_targets()) {
    isentropic::force_simd_target(target);
    ASSERT_EQ(isentropic::simd_target(), target);
    SCOPED_TRACE("target " + target);
    body(target);
    if (::testing::Test::HasFatalFailure()) break;
  }
  isentropic::force_simd_target("");
}

// Targets that promise the same bits.
inline std::vector<std::string> fma_targets() {
  std::vector<std::string> names;
  for (const std::string& target : isentropic::simd_targets()) {
    const bool without_fma = target == "SSE4" || target == "SCALAR" || target == "EMU128";
    if (!without_fma) names.push_back(target);
  }
  return names;
}

}  // namespace support

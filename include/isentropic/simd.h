// SIMD targets: list those that this machine can run, name the active one, force one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Compiled in and supported by this processor, best first; for example {"AVX3", "AVX2", "SSE4", "SCALAR"}.
ISENTROPIC_API std::vector<std::string> simd_targets();

// The target of the next call.
ISENTROPIC_API std::string simd_target();

// Makes every later call run on `name`, for reproducing a report or measuring; "" returns to the best.
// Targets with FMA (AVX2, AVX3, NEON and better) give the same bits; the others differ in the last digits.
// Throws: std::invalid_argument if `name` is not in simd_targets().
ISENTROPIC_API void force_simd_target(std::string_view name);

}  // namespace isentropic::inline ISENTROPIC_ABI

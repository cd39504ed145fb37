// The meaning of a row's numbers, for operations that take distributions as well as scores.
#pragma once

#include <string_view>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Scores x; a distribution p, whose scores are log p, so that a zero is a score of -inf; or log p, which are scores already.
// Each operation says whether the sum must be 1, and whether an invalid row (an entry that is negative, NaN or +inf) gives NaN
// or is refused.
enum class Input { scores, probs, log_probs };
inline constexpr std::string_view kInputs[] = {"scores", "probs", "log_probs"};

// The largest distance from 1 of the sum of a distribution in T.
template <class T>
inline constexpr double kSumTolerance = sizeof(T) == 8   ? 1e-6
                                        : sizeof(T) == 4 ? 1e-4
                                                         : 1e-2;

}  // namespace isentropic::inline ISENTROPIC_ABI

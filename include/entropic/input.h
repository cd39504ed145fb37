// What the numbers of a row are, for operations that take distributions as well as scores.
#pragma once

#include <string_view>

#include "entropic/export.h"

namespace entropic::inline ENTROPIC_ABI {

// Scores x; the logarithms of a distribution, which are scores as they stand; or the distribution itself, whose scores are
// log p: a zero is a score of -inf. Whether its sum must be 1, and whether an invalid row (an entry that is negative, NaN or
// +inf) gives NaN or is refused, each operation says.
enum class Input { scores, probs, log_probs };
inline constexpr std::string_view kInputs[] = {"scores", "probs", "log_probs"};

// How far from 1 the sum of a distribution that is given as T may be.
template <class T>
inline constexpr double kSumTolerance = sizeof(T) == 8   ? 1e-6
                                        : sizeof(T) == 4 ? 1e-4
                                                         : 1e-2;

}  // namespace entropic::inline ENTROPIC_ABI

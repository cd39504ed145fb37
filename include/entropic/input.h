// What the numbers of a row are, for operations that take distributions as well as scores.
#pragma once

#include <string_view>

namespace entropic {

// Scores x; the logarithms of a distribution, which are scores as they stand; or the distribution itself, whose scores are
// log p: a zero is a score of -inf, an entry that is negative, NaN or +inf makes the row invalid. Its sum need not be 1.
enum class Input { scores, probs, log_probs };
inline constexpr std::string_view kInputs[] = {"scores", "probs", "log_probs"};

}  // namespace entropic

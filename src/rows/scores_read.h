// How much of their rows searches read: a number for benchmarks.
#pragma once

#include <cstdint>

namespace entropic {

// The scores that this thread's searches for an entropy have read, all evaluations together: the passes over a row are these
// over its length. The maximum and the survey before a search are not counted.
inline thread_local std::uint64_t scores_read = 0;

}  // namespace entropic

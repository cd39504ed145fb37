// Numbers of 16 bits to float and back.
#pragma once

#include <cstddef>
#include <type_traits>

#include "entropic/half.h"

namespace entropic {

// What rows of T are computed in.
template <class T>
using Working = std::conditional_t<kIsHalf<T>, float, T>;

// How far from 1 the sum of a distribution that is given as T may be.
template <class T>
constexpr double kSumTolerance = sizeof(T) == 8   ? 1e-6
                                 : sizeof(T) == 4 ? 1e-4
                                                  : 1e-2;

void widen(const float16* x, std::size_t n, float* y);
void widen(const bfloat16* x, std::size_t n, float* y);
void narrow(const float* x, std::size_t n, float16* y);
void narrow(const float* x, std::size_t n, bfloat16* y);

}  // namespace entropic

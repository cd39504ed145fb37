// Numbers of 16 bits to float and back.
#pragma once

#include <cstddef>

#include "entropic/half.h"

namespace entropic {

void widen(const float16* x, std::size_t n, float* y);
void widen(const bfloat16* x, std::size_t n, float* y);
void narrow(const float* x, std::size_t n, float16* y);
void narrow(const float* x, std::size_t n, bfloat16* y);

}  // namespace entropic

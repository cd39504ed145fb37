// Conversion of 16-bit numbers to float and back, for every SIMD target: the compiler vectorises these loops.

#include "src/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/half.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

void WidenFloat16(const float16* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT y) {
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}
void WidenBfloat16(const bfloat16* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT y) {
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}
void NarrowFloat16(const float* HWY_RESTRICT x, size_t n, float16* HWY_RESTRICT y) {
  for (size_t i = 0; i < n; ++i) y[i] = float16(x[i]);
}
void NarrowBfloat16(const float* HWY_RESTRICT x, size_t n, bfloat16* HWY_RESTRICT y) {
  for (size_t i = 0; i < n; ++i) y[i] = bfloat16(x[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isentropic::inline ISENTROPIC_ABI {

HWY_EXPORT(WidenFloat16);
HWY_EXPORT(WidenBfloat16);
HWY_EXPORT(NarrowFloat16);
HWY_EXPORT(NarrowBfloat16);

void widen(const float16* x, std::size_t n, float* y) { HWY_DYNAMIC_DISPATCH(WidenFloat16)(x, n, y); }
void widen(const bfloat16* x, std::size_t n, float* y) { HWY_DYNAMIC_DISPATCH(WidenBfloat16)(x, n, y); }
void narrow(const float* x, std::size_t n, float16* y) { HWY_DYNAMIC_DISPATCH(NarrowFloat16)(x, n, y); }
void narrow(const float* x, std::size_t n, bfloat16* y) { HWY_DYNAMIC_DISPATCH(NarrowBfloat16)(x, n, y); }

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

// Conversion of 16-bit numbers to float and back, for every SIMD target: by its instructions where it has them, otherwise the
// compiler vectorises these loops. The bits are the same.

#include "src/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/half.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Whether the target converts float16 by an instruction, a vector at a time.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
inline constexpr bool kConverts = true;
#else
inline constexpr bool kConverts = false;
#endif

// Calls of_vector(i) for whole vectors of `lanes` numbers, and of_one(i) for those that are left.
template <class OfVector, class OfOne>
HWY_INLINE void ForEach(size_t lanes, size_t n, const OfVector& of_vector, const OfOne& of_one) {
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) of_vector(i);
  for (; i < n; ++i) of_one(i);
}

void WidenFloat16(const float16* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT y) {
  const auto one = [&](size_t i) HWY_ATTR { y[i] = static_cast<float>(x[i]); };
  if constexpr (kConverts) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> half;
    const auto* const from = reinterpret_cast<const hwy::float16_t*>(x);
    ForEach(
        hn::Lanes(d), n, [&](size_t i) HWY_ATTR { hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, from + i)), d, y + i); }, one);
  } else {
    for (size_t i = 0; i < n; ++i) one(i);
  }
}
void WidenBfloat16(const bfloat16* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT y) {
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}
void NarrowFloat16(const float* HWY_RESTRICT x, size_t n, float16* HWY_RESTRICT y) {
  const auto one = [&](size_t i) HWY_ATTR { y[i] = float16(x[i]); };
  if constexpr (kConverts) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> half;
    auto* const to = reinterpret_cast<hwy::float16_t*>(y);
    ForEach(
        hn::Lanes(d), n, [&](size_t i) HWY_ATTR { hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, x + i)), half, to + i); }, one);
  } else {
    for (size_t i = 0; i < n; ++i) one(i);
  }
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

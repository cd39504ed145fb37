// Kernels for every SIMD target, and the choice of one at run time. A family's target part makes a table of its kernels,
// Make<T>(); Highway's own tables hold functions, not templates, so that each T has one:
//
//   ISENTROPIC_KERNELS(Make);               in HWY_NAMESPACE, after Make
//   ISENTROPIC_KERNELS_BY(choose, Make);    once, after the declaration of the template choose<T>()
#pragma once

#include "hwy/highway.h"

#define ISENTROPIC_KERNELS_OF(Make, T)    \
  auto Make##_##T() { return Make<T>(); } \
  static_assert(true)

// choose<T>() returns the table of the best target, or of the forced one.
#define ISENTROPIC_KERNELS_BY_OF(choose, Make, T)                 \
  HWY_EXPORT(Make##_##T);                                         \
  template <>                                                     \
  auto choose<T>()->decltype(HWY_STATIC_DISPATCH(Make##_##T)()) { \
    return HWY_DYNAMIC_DISPATCH(Make##_##T)();                    \
  }                                                               \
  static_assert(true)

#define ISENTROPIC_KERNELS(Make)      \
  ISENTROPIC_KERNELS_OF(Make, float); \
  ISENTROPIC_KERNELS_OF(Make, double)
#define ISENTROPIC_KERNELS_BY(choose, Make)      \
  ISENTROPIC_KERNELS_BY_OF(choose, Make, float); \
  ISENTROPIC_KERNELS_BY_OF(choose, Make, double)

// Every kernel of sampling.

#if defined(ISENTROPIC_SAMPLING_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_ALL_INL_H_
#undef ISENTROPIC_SAMPLING_ALL_INL_H_
#else
#define ISENTROPIC_SAMPLING_ALL_INL_H_
#endif

#include "src/sampling/chain-inl.h"
#include "src/sampling/draw-inl.h"
#include "src/sampling/noise-inl.h"

#endif  // ISENTROPIC_SAMPLING_ALL_INL_H_

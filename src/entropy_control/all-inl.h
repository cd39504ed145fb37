// Every kernel of entropy control.

#if defined(ISENTROPIC_ENTROPY_CONTROL_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ENTROPY_CONTROL_ALL_INL_H_
#undef ISENTROPIC_ENTROPY_CONTROL_ALL_INL_H_
#else
#define ISENTROPIC_ENTROPY_CONTROL_ALL_INL_H_
#endif

#include "src/entropy_control/gamma-inl.h"
#include "src/entropy_control/power-inl.h"

#endif  // ISENTROPIC_ENTROPY_CONTROL_ALL_INL_H_

// Every kernel of attention.

#if defined(ISENTROPIC_ATTENTION_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ATTENTION_ALL_INL_H_
#undef ISENTROPIC_ATTENTION_ALL_INL_H_
#else
#define ISENTROPIC_ATTENTION_ALL_INL_H_
#endif

#include "src/attention/attention-inl.h"
#include "src/attention/linear_attention-inl.h"
#include "src/attention/linear_attention_vjp-inl.h"

#endif  // ISENTROPIC_ATTENTION_ALL_INL_H_

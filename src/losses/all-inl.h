// Every loss's kernels.

#if defined(ISENTROPIC_LOSSES_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_ALL_INL_H_
#undef ISENTROPIC_LOSSES_ALL_INL_H_
#else
#define ISENTROPIC_LOSSES_ALL_INL_H_
#endif

#include "src/losses/divergence-inl.h"
#include "src/losses/fenchel_young-inl.h"
#include "src/losses/margin_softmax-inl.h"
#include "src/losses/multilabel_softmax-inl.h"
#include "src/losses/softmax-inl.h"

#endif  // ISENTROPIC_LOSSES_ALL_INL_H_

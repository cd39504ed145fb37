// Every loss's kernels.

#if defined(ENTROPIC_LOSSES_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_LOSSES_ALL_INL_H_
#undef ENTROPIC_LOSSES_ALL_INL_H_
#else
#define ENTROPIC_LOSSES_ALL_INL_H_
#endif

#include "src/losses/divergence-inl.h"
#include "src/losses/fenchel_young-inl.h"
#include "src/losses/margin_softmax-inl.h"
#include "src/losses/multilabel_softmax-inl.h"
#include "src/losses/softmax-inl.h"

#endif  // ENTROPIC_LOSSES_ALL_INL_H_

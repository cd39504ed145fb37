// Every map's kernels.

#if defined(ISENTROPIC_MAPS_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_ALL_INL_H_
#undef ISENTROPIC_MAPS_ALL_INL_H_
#else
#define ISENTROPIC_MAPS_ALL_INL_H_
#endif

#include "src/maps/cut_softmax-inl.h"
#include "src/maps/entmax-inl.h"
#include "src/maps/entropy_normalize-inl.h"
#include "src/maps/perturb_max-inl.h"
#include "src/maps/sigsoftmax-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/maps/sparsemax-inl.h"
#include "src/maps/taylor_softmax-inl.h"

#endif  // ISENTROPIC_MAPS_ALL_INL_H_

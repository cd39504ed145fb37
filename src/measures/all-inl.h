// Every measure's kernels.

#if defined(ISENTROPIC_MEASURES_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_ALL_INL_H_
#undef ISENTROPIC_MEASURES_ALL_INL_H_
#else
#define ISENTROPIC_MEASURES_ALL_INL_H_
#endif

#include "src/measures/divergences-inl.h"
#include "src/measures/entries-inl.h"
#include "src/measures/entropies-inl.h"
#include "src/measures/tables-inl.h"

#endif  // ISENTROPIC_MEASURES_ALL_INL_H_

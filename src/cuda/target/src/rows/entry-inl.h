// On a device: operations on single entries of a row.
#pragma once

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void CopyRow(const T* x, size_t n, T* out) {
  ForEachVector(RowTag<T>(), n, [&](size_t i, size_t) HWY_ATTR { out[i] = x[i]; });
}

// Writes after all threads have read the old number, and before any reads further.
template <class T>
HWY_INLINE void SetEntry(T* row, size_t i, T value) {
  Team::Barrier();
  if (Team::Rank() == 0) row[i] = value;
  Team::Barrier();
}

template <class T>
HWY_INLINE size_t FindEntry(const T* x, size_t n, T value) {
  size_t first = n - 1;
  for (size_t i = Team::Rank(); i < first; i += Team::Size()) first = x[i] == value ? i : first;
  return Team::Fold(first, n - 1, [](size_t a, size_t b) { return a < b ? a : b; });
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// On a device: operations on single entries of a row.
#pragma once

#include "src/rows/device/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
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

template <class D, class Which>
HWY_INLINE bool AnyEntry(D /*d*/, size_t n, Which&& which) {
  size_t any = 0;
  for (size_t i = Team::Rank(); i < n; i += Team::Size()) any |= which(i, size_t{1}).raw ? 1 : 0;
  return Team::Fold(any, size_t{0}, [](size_t a, size_t b) { return a | b; }) != 0;
}

template <class Chosen, class Put>
HWY_INLINE size_t PackEntries(size_t n, const Chosen& chosen, const Put& put) {
  return Team::Pack(n, chosen, put);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

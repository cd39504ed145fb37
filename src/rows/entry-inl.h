// Operations on single entries of a row; devices have their own file for these.

#if defined(ENTROPIC_ROWS_ENTRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_ENTRY_INL_H_
#undef ENTROPIC_ROWS_ENTRY_INL_H_
#else
#define ENTROPIC_ROWS_ENTRY_INL_H_
#endif

#include <algorithm>

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void CopyRow(const T* x, size_t n, T* out) {
  std::copy(x, x + n, out);
}

template <class T>
HWY_INLINE void SetEntry(T* row, size_t i, T value) {
  row[i] = value;
}

// The first i with x[i] == value; undefined if there is none.
template <class T>
HWY_INLINE size_t FindEntry(const T* x, size_t n, T value) {
  size_t i = 0;
  while (i + 1 < n && x[i] != value) ++i;
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_ENTRY_INL_H_

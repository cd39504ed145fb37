// Operations on single entries of a row.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/entry-inl.h"
#elif defined(ISENTROPIC_ROWS_ENTRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_ENTRY_INL_H_
#undef ISENTROPIC_ROWS_ENTRY_INL_H_
#else
#define ISENTROPIC_ROWS_ENTRY_INL_H_
#endif

#include <algorithm>

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
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

// Whether any entry satisfies a condition: which(i, count) is its mask for the entries from i on, false beyond them.
template <class D, class Which>
HWY_INLINE bool AnyEntry(D d, size_t n, Which&& which) {
  auto any = hn::MaskFromVec(hn::Zero(d));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR { any = hn::Or(any, which(i, count)); });
  return !hn::AllFalse(d, any);
}

// Calls put(place, i) for each i < n with chosen(i), in order, and returns their number. place is at most i; so put may write
// into what is read, but not on a device, where threads share the row.
template <class Chosen, class Put>
HWY_INLINE size_t PackEntries(size_t n, const Chosen& chosen, const Put& put) {
  size_t place = 0;
  for (size_t i = 0; i < n; ++i) {
    if (chosen(i)) put(place++, i);
  }
  return place;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_ENTRY_INL_H_

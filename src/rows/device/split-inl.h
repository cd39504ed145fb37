// On a device a team of threads has a row of any length.
#pragma once

#include "src/rows/device/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class D, class T = hn::TFromD<D>>
HWY_INLINE T SplitRowMax(D d, const T* x, size_t n) {
  return RowMax(d, x, n);
}

template <class D, class Term>
HWY_INLINE double SplitSum(D d, size_t n, const Term& term) {
  return Sum(d, n, term);
}

template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void SplitWriteRow(D d, bool stream, size_t n, T* p, const Value& value) {
  WriteRow(d, stream, n, p, value);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// On a device: the losses' operations on a row of a batch that are not walks along it.
#pragma once

#include <string_view>

#include "isentropic/losses.h"
#include "src/maps/scores-inl.h"
#include "src/rows/entry-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {

// The host's batches; a device sees one row at a time.
template <class T>
struct LossBatch;
template <class T>
struct LossScratch;

namespace HWY_NAMESPACE {

template <class T>
struct TargetOfRow {
  const T* q;
  size_t t;
};
template <class T>
TargetOfRow<T> TargetOf(const LossBatch<T>& batch, size_t r);
template <class T>
void FillGradient(const LossBatch<T>& batch, size_t r, T value);
template <class T>
void Settle(const LossBatch<T>& batch, size_t r, double value);
template <class T>
void PutSlope(const LossBatch<T>& batch, size_t r, std::string_view parameter, double slope);

template <class T>
HWY_INLINE void Canonical(const T* x, size_t n, T* out) {
  ForEachVector(RowTag<T>(), n, [&](size_t i, size_t) HWY_ATTR { out[i] = x[i] == kInfinity<T> ? T(0) : -kInfinity<T>; });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

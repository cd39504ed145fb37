// Functions for the rows of a batch that all losses share.

#if defined(ISENTROPIC_LOSSES_BATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_BATCH_INL_H_
#undef ISENTROPIC_LOSSES_BATCH_INL_H_
#else
#define ISENTROPIC_LOSSES_BATCH_INL_H_
#endif

#include <string_view>

#include "isentropic/losses.h"
#include "src/maps/scores-inl.h"
#include "src/rows/entry-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {

// The host's, of kernels.h. A device sees one row at a time and calls none of what has a batch.
template <class T>
struct LossBatch;
template <class T>
struct LossScratch;

namespace HWY_NAMESPACE {

// The target of a row: probabilities q or, without them, the class t.
template <class T>
struct TargetOfRow {
  const T* q;
  size_t t;
};

template <class T>
void FillGradient(const LossBatch<T>& batch, size_t r, T value) {
  if (batch.dx.data != nullptr) FillRow(RowTag<T>(), value, batch.x.cols, batch.dx.row(r));
}

// Sets value and gradient of an ignored row to 0, or of a row without a loss to NaN.
template <class T>
void Settle(const LossBatch<T>& batch, size_t r, double value) {
  batch.value[r] = value;
  FillGradient(batch, r, static_cast<T>(value));
}

template <class T>
TargetOfRow<T> TargetOf(const LossBatch<T>& batch, size_t r) {
  return {batch.target.data == nullptr ? nullptr : batch.target.row(r),
          batch.classes.empty() ? 0 : static_cast<size_t>(batch.classes[r])};
}

// Replaces +inf scores of a row by 0 and all others by absent entries.
template <class T>
HWY_INLINE void Canonical(const T* x, size_t n, T* out) {
  ForEachEntry(n, [&](size_t i) HWY_ATTR { out[i] = x[i] == kInfinity<T> ? T(0) : -kInfinity<T>; });
}

// Stores the derivative of row r's value in a parameter, if it is wanted. SettleSlopes comes last.
template <class T>
void PutSlope(const LossBatch<T>& batch, size_t r, std::string_view parameter, double slope) {
  for (const ParamGradient& gradient : batch.gradients) {
    if (gradient.parameter == parameter) gradient.values[r] = slope;
  }
}

// Sets the derivatives of rows that have none in a parameter.
template <class T>
void SettleSlopes(const LossBatch<T>& batch) {
  for (const ParamGradient& gradient : batch.gradients) {
    for (size_t r = 0; r < batch.x.rows; ++r) {
      const double value = batch.value[r];
      if (value != value) gradient.values[r] = value;
      if (value == kInfinity<double> || batch.is_ignored(r)) gradient.values[r] = 0;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_BATCH_INL_H_

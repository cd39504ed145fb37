// The kernels of a tile of queries and of a head.

#if defined(ISENTROPIC_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ATTENTION_ROWS_INL_H_
#undef ISENTROPIC_ATTENTION_ROWS_INL_H_
#else
#define ISENTROPIC_ATTENTION_ROWS_INL_H_
#endif

#include "src/attention/all-inl.h"
#include "src/attention/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
AttentionKernels<T> MakeAttention() {
  return {PackHead<T>,       AttentionTile<T>, AttentionVjpTile<T>, LinearRoom<T>,
          LinearHeadRows<T>, LinearVjpRoom<T>, LinearVjpRows<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ATTENTION_ROWS_INL_H_

// The loops over rows that call the losses' kernels.

#if defined(ISENTROPIC_LOSSES_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_ROWS_INL_H_
#undef ISENTROPIC_LOSSES_ROWS_INL_H_
#else
#define ISENTROPIC_LOSSES_ROWS_INL_H_
#endif

#include "src/losses/all-inl.h"
#include "src/losses/kernels.h"
#include "src/losses/mapped.h"
#include "src/losses/sparse-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The memory of each loss. A map's loss: a row and the map's memory. Softmax: two rows, and short rows without
// their class.
template <class T>
size_t LossMemory(const Loss& loss, const MapKernels<T>& maps, size_t n) {
  return std::visit(
      [&]<class Op>(const Op& op) -> size_t {
        if constexpr (requires { map_of(op); }) return Arena::room<T>(n) + maps.memory(map_of(op), n);
        if constexpr (Op::kTarget == TargetKind::scores) return PairMemory<T>(n);
        const size_t copies = n <= ShortRows<T>::kLongest ? Arena::room<T>(ShortRows<T>::kRows * n) : 0;
        return 2 * Arena::room<T>(n) + copies;
      },
      loss);
}

template <class T>
void LossRows(const Loss& loss, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const size_t rows = batch.x.rows, n = batch.x.cols;
  // p goes to the place of the gradient, unless the scores are still there.
  const bool in_dx = batch.dx.data != nullptr && batch.dx.data != batch.x.data;
  std::visit(
      [&](const auto& op) {
        if constexpr (requires { map_of(op); }) {
          const Map map = map_of(op);
          for (size_t begin = 0; begin < rows; begin += scratch.block_rows) {
            const LossBatch<T> part = batch.rows(begin, HWY_MIN(scratch.block_rows, rows - begin));
            const MatrixView<T> p = in_dx ? part.dx : MatrixView<T>(scratch.block, part.x.rows, n);
            scratch.maps.map(map, part.x, p, part.per_row, {0, part.x.rows, scratch.memory, false});
            MappedRows(op, part, p, scratch);
          }
        } else {
          FusedRows(op, batch, scratch);
        }
      },
      loss);
  SettleSlopes(batch);
}

template <class T>
LossKernels<T> MakeLosses() {
  return {LossRows<T>, LossMemory<T>, SparseRows<T>, SparseMemory<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_ROWS_INL_H_

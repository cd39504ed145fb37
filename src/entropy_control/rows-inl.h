// The loops over rows that call the kernels of entropy control.

#if defined(ISENTROPIC_ENTROPY_CONTROL_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ENTROPY_CONTROL_ROWS_INL_H_
#undef ISENTROPIC_ENTROPY_CONTROL_ROWS_INL_H_
#else
#define ISENTROPIC_ENTROPY_CONTROL_ROWS_INL_H_
#endif

#include "src/entropy_control/all-inl.h"
#include "src/entropy_control/kernels.h"
#include "src/rows/input-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void GammaRows(const GammaForEntropy& common, RowsOf<PerRow> per_row, MatrixView<const T> x, GammaResult result,
               ControlShare share) {
  double *const e = share.memory.take<double>(x.cols), *const scores = share.memory.take<double>(x.cols);
  for (size_t r = share.begin; r < share.end; ++r) {
    const GammaForEntropy op = at_row(common, per_row, r);
    GammaOfRow row;
    if (op.input == Input::probs) {
      ScoresOfProbs(x.row(r), x.cols, scores);
      row = GammaRow(op, scores, x.cols, e);
    } else {
      row = GammaRow(op, x.row(r), x.cols, e);
    }
    result.gamma[r] = row.gamma;
    result.entropy[r] = row.entropy;
    result.status[r] = row.status;
  }
}

template <class T>
void PowerRows(const PowerTransform& common, RowsOf<PerRow> per_row, MatrixView<const T> p, MatrixView<T> q,
               ControlShare share) {
  double* const z = share.memory.take<double>(p.cols);
  for (size_t r = share.begin; r < share.end; ++r) {
    PowerRow(at_row(common, per_row, r).gamma, p.row(r), p.cols, q.row(r), z);
  }
}

template <class T>
void DensityRows(const NormalizeDensity& common, RowsOf<PerRow> per_row, MatrixView<const T> p,
                 MatrixView<const double> weights, MatrixView<T> q, std::span<Normalized> result, ControlShare share) {
  for (size_t r = share.begin; r < share.end; ++r) {
    const double* const w = weights.row(weights.rows == 1 ? 0 : r);
    result[r] = DensityRow(at_row(common, per_row, r).entropy, p.row(r), w, p.cols, q.row(r), share.memory);
  }
}

template <class T>
void MeanFieldRows(const MeanFieldEntropy& op, MatrixView<const T> x, std::span<double> estimate, ControlShare share) {
  for (size_t r = share.begin; r < share.end; ++r) estimate[r] = MeanFieldRow(op.gamma, x.row(r), x.cols);
}

template <class T>
ControlKernels<T> MakeControl() {
#ifdef __wasm__
  return {GammaRows<T>, nullptr, nullptr, MeanFieldRows<T>, nullptr};  // a page loads every kernel that is named here
#else
  return {GammaRows<T>, PowerRows<T>, DensityRows<T>, MeanFieldRows<T>, NormalizeTable};
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ENTROPY_CONTROL_ROWS_INL_H_

// log_softmax and logsumexp of rows.

#if defined(ISENTROPIC_MAPS_LOG_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_LOG_ROWS_INL_H_
#undef ISENTROPIC_MAPS_LOG_ROWS_INL_H_
#else
#define ISENTROPIC_MAPS_LOG_ROWS_INL_H_
#endif

#include "src/maps/rows-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/rows/entropy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void CompiledLogs<T>::LogSoftmax(const isentropic::LogSoftmax& common, In x, Out y, RowsOf<PerRow> per_row, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  T* const prepared = share.memory.template take<T>(n);
  for (size_t r = share.begin; r < share.end; ++r) {
    const isentropic::LogSoftmax op = at_row(common, per_row, r);
    const auto row = PrepareRow(d, kLogSoftmaxScores, op, x.row(r), n, prepared);
    if (IsFinite(row.max)) {
      LogSoftmaxRow(d, row.op, row.x, n, row.max, y.row(r), share.stream, RowToFetch(x, r, share));
    } else {
      NonFiniteRow(d, x.row(r), n, n, y.row(r));
      ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
        StoreUpTo(Log(d, LoadUpTo(d, y.row(r) + i, count, T(1))), d, count, y.row(r) + i);
      });
    }
  }
  if (share.stream) hwy::FlushStream();
}

template <class T>
void CompiledLogs<T>::LogSoftmaxVjp(const isentropic::LogSoftmax& common, In x, In y, In g, Out dx, RowsOf<PerRow> per_row,
                                    RowsOf<ParamGradient> gradients, Share<T> share) {
  const RowTag<T> d;
  for (size_t r = share.begin; r < share.end; ++r) {
    const isentropic::LogSoftmax op = at_row(common, per_row, r);
    if (HasInfiniteScore(x.row(r), y.row(r), x.cols, -kInfinity<T>)) {
      for (const ParamGradient& gradient : gradients) gradient.values[r] = 0;
      FillRow(d, T(0), x.cols, dx.row(r));
    } else {
      for (const ParamGradient& gradient : gradients) {  // T is the only parameter
        // In units of 1/T, which may overflow.
        Arena memory = share.memory;
        T* const slopes_in_x = memory.take<T>(x.cols);
        LogSoftmaxVjpRow(d, isentropic::LogSoftmax{}, x.row(r), y.row(r), g.row(r), x.cols, slopes_in_x, false);
        const T max = RowMax(d, x.row(r), x.cols);
        gradient.values[r] = SlopeInDivisor(x.row(r), max, slopes_in_x, x.cols) / op.temperature / op.temperature;
      }
      LogSoftmaxVjpRow(d, op, x.row(r), y.row(r), g.row(r), x.cols, dx.row(r), share.stream);
    }
  }
  if (share.stream) hwy::FlushStream();
}

template <class T>
void CompiledLogs<T>::LogSumExp(const isentropic::LogSumExp& common, In x, Out y, RowsOf<PerRow> per_row, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  T* const prepared = share.memory.template take<T>(n);
  for (size_t r = share.begin; r < share.end; ++r) {
    const isentropic::LogSumExp op = at_row(common, per_row, r);
    const auto row = PrepareRow(d, kLogSumExpScores, op, x.row(r), n, prepared);
    *y.row(r) = IsFinite(row.max)
                    ? static_cast<T>(static_cast<double>(row.original_max) +
                                     op.temperature * LogSumExpRow(d, row.op, row.x, n, row.max, RowToFetch(x, r, share)))
                    : NonFiniteLogSumExp(x.row(r), n);
  }
}

// dx = g softmax(x/T): the map itself, into dx, then the factor. The gradient in T is g times the entropy of that softmax.
template <class T>
void CompiledLogs<T>::LogSumExpVjp(const isentropic::LogSumExp& common, In x, In g, Out dx, RowsOf<PerRow> per_row,
                                   RowsOf<ParamGradient> gradients, Share<T> share) {
  using Kernels = KernelsOf<Softmax, T>;
  const RowTag<T> d;
  const size_t n = x.cols;
  T* const prepared = share.memory.template take<T>(n);
  for (size_t r = share.begin; r < share.end; ++r) {
    const isentropic::LogSumExp op = at_row(common, per_row, r);
    const auto row = PrepareRow(d, Kernels::kScores, {.temperature = op.temperature}, x.row(r), n, prepared);
    if (IsFinite(row.max)) {
      Kernels::MapRow(row.op, row.x, n, row.max, dx.row(r), {share.memory, false});
      for (const ParamGradient& gradient : gradients) {
        gradient.values[r] = static_cast<double>(*g.row(r)) * RowEntropy(D64(), dx.row(r), n);
      }
      ScaleRow(d, *g.row(r), n, dx.row(r));
    } else {
      // The gradient is 0 at -inf scores and in rows with +inf.
      const T slope = NonFiniteLogSumExp(x.row(r), n) == row.max ? T(0) : kNaN<T>;
      for (const ParamGradient& gradient : gradients) gradient.values[r] = slope;
      FillRow(d, slope, n, dx.row(r));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_LOG_ROWS_INL_H_

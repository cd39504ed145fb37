// The loops over rows that call the maps' kernels.

#if defined(ENTROPIC_MAPS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_ROWS_INL_H_
#undef ENTROPIC_MAPS_ROWS_INL_H_
#else
#define ENTROPIC_MAPS_ROWS_INL_H_
#endif

#include "hwy/cache_control.h"
#include "src/maps/all-inl.h"
#include "src/maps/kernel_map.h"
#include "src/maps/kernels.h"
#include "src/per_row.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Whether Op has a kernel for short rows.
template <class Op, class T>
constexpr bool HasShortKernel() {
  return requires(const Op& op, hn::Vec<RowTag<T>> max, ShortRows<T>& rows, T* const* out) {
    MapShortRows(op, max, rows, out, size_t{});
  }
  || requires(const Op& op, hn::Vec<RowTag<T>>* max, ShortRows<T>* rows, T* const* out) {
    MapShortRows(op, max, rows, out, size_t{});
  };
}

// Rows of at most ShortRows::kLongest, a few groups at a time.
template <class Op, class T>
HWY_INLINE void MapShortGroups(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  constexpr size_t kGroups = kShortGroups<Op>, kRows = ShortRows<T>::kRows;
  const RowTag<T> d;
  const size_t most = kGroups * kRows;
  for (size_t begin = share.begin; begin < share.end; begin += most) {
    const size_t count = HWY_MIN(most, share.end - begin);
    T* out[kGroups * kRows];
    ShortRows<T> rows[kGroups];
    hn::Vec<RowTag<T>> max[kGroups];
    for (size_t first = 0; first < count; first += kRows) {
      const T* in[kRows];
      for (size_t r = 0; r < kRows; ++r) {
        const size_t row = begin + HWY_MIN(first + r, count - 1);
        in[r] = x.row(row);
        out[first + r] = p.row(row);
      }
      const size_t g = first / kRows;
      rows[g].Resize(x.cols);
      max[g] = rows[g].Load(in, -kInfinity<T>);
      if (HWY_UNLIKELY(!hn::AllTrue(d, hn::IsFinite(max[g])))) {
        HWY_ALIGN T row_max[ShortRows<T>::kLanes];
        hn::Store(max[g], d, row_max);
        for (size_t r = 0; r < HWY_MIN(kRows, count - first); ++r) {
          if (IsFinite(row_max[r])) continue;
          NonFiniteRow(d, in[r], x.cols, x.cols, out[first + r]);
          out[first + r] = share.rescaled;  // takes what the kernel makes of it
        }
      }
    }
    if constexpr (kGroups == 1) {
      MapShortRows(op, max[0], rows[0], out, count);
    } else {
      MapShortRows(op, max, rows, out, count);
    }
  }
}

// Whether Op has a kernel for several rows at once that are not short.
template <class Op, class T>
constexpr bool HasKernelForRowsAtOnce() {
  return requires(const Op& op, const T* const* x, const T* max, T* const* p, Workspace workspace) {
    MapRowsAtOnce(op, x, size_t{}, max, p, size_t{}, workspace);
  };
}

// The rows from share.begin on, up to RowsAtOnce, that have finite maxima, where p is not x; returns how many there were.
template <class Op, class T>
HWY_INLINE size_t MapSomeRows(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  constexpr size_t kMost = 16;
  if (x.data == p.data) return 0;
  const size_t n = x.cols, most = HWY_MIN(RowsAtOnce<T>(op, n), kMost);
  const T* in[kMost];
  T* out[kMost];
  T max[kMost];
  size_t count = 0;
  for (; count < HWY_MIN(most, share.end - share.begin); ++count) {
    in[count] = x.row(share.begin + count), out[count] = p.row(share.begin + count);
    max[count] = RowMax(RowTag<T>(), in[count], n);
    if (!IsFinite(max[count])) break;
  }
  if (count > 1) MapRowsAtOnce(op, in, n, max, out, count, {share.scratch, share.stream});
  return count > 1 ? count : 0;
}

// Rows [share.begin, share.end) by one op. Flattened, for what the compiler ceases to inline in a large function is half of
// its time; a function of its own, for to flatten it into both of its callers takes minutes.
template <class Op, class T>
HWY_NOINLINE HWY_FLATTEN void MapRowsBy(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  if constexpr (HasShortKernel<Op, T>()) {
    if (n <= ShortRows<T>::kLongest && HasShortRows(op) && !HasExtremeTemperature<T>(op)) {
      return MapShortGroups(op, x, p, share);
    }
  }
  for (size_t r = share.begin; r < share.end; ++r) {
    if constexpr (HasKernelForRowsAtOnce<Op, T>()) {
      Share<T> rest = share;
      rest.begin = r;
      if (const size_t count = MapSomeRows(op, x, p, rest); count > 0) {
        r += count - 1;
        continue;
      }
    }
    const auto row = PrepareRow(d, op, x.row(r), n, share.rescaled);
    if (IsFinite(row.max)) {
      MapRow(d, row.op, row.x, n, row.max, p.row(r), {share.scratch, share.stream});
    } else {
      NonFiniteRow(d, row.x, n, MostInfinite(op, FindNonFinite(row.x, n).infinite), p.row(r));
    }
  }
}

// All rows by one op, or each by its own.
template <class Op, class T>
void MapRows(const Op& op, MatrixView<const T> x, MatrixView<T> p, std::span<const PerRow> per_row, Share<T> share) {
  if (per_row.empty()) {
    MapRowsBy(op, x, p, share);
  } else {
    for (Share<T> row = share; row.begin < share.end; ++row.begin) {
      row.end = row.begin + 1;
      MapRowsBy(at_row(op, per_row, row.begin), x, p, row);
    }
  }
  if (share.stream) hwy::FlushStream();
}

template <class Op, class T>
void VjpRows(const Op& common, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, MatrixView<T> dx,
             std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const Op op = at_row(common, per_row, r);
    const bool infinite = HasInfiniteScore(x.row(r), p.row(r), n, T(0));
    // Before dx, which may stand where an input does.
    ParamValues<Op> dparams = {};
    if constexpr (has_per_row<Op>()) {
      if (!gradients.empty() && !infinite) {
        dparams = ParamVjpRow(d, op, x.row(r), p.row(r), g.row(r), n, {share.scratch, share.stream});
      }
    }
    if (infinite) {
      FillRow(d, T(0), n, dx.row(r));
    } else {
      VjpRow(d, op, x.row(r), p.row(r), g.row(r), n, dx.row(r), {share.scratch, share.stream});
    }
    for (const ParamGradient& gradient : gradients) gradient.values[r] = value_of<Op>(dparams, gradient.parameter);
  }
  if (share.stream) hwy::FlushStream();
}

template <class T>
void AnyMapRows(const Map& map, MatrixView<const T> x, MatrixView<T> p, std::span<const PerRow> per_row, Share<T> share) {
  std::visit([&](const auto& op) { MapRows(op, x, p, per_row, share); }, kernel_map(map));
}

template <class T>
void AnyVjpRows(const Map& map, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, MatrixView<T> dx,
                std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, Share<T> share) {
  std::visit([&](const auto& op) { VjpRows(op, x, p, g, dx, per_row, gradients, share); }, kernel_map(map));
}

template <class T>
void CustomPerturbMaxRows(const CustomPerturbMax& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  MapRows(op, x, p, {}, share);
}

template <class T>
void CustomPerturbMaxVjpRows(const CustomPerturbMax& op, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g,
                             MatrixView<T> dx, Share<T> share) {
  VjpRows(op, x, p, g, dx, {}, {}, share);
}

template <class T>
void LogSoftmaxRows(const LogSoftmax& op, MatrixView<const T> x, MatrixView<T> y, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const auto row = PrepareRow(d, op, x.row(r), n, share.rescaled);
    if (IsFinite(row.max)) {
      LogSoftmaxRow(d, row.op, row.x, n, row.max, y.row(r));
    } else {
      NonFiniteRow(d, x.row(r), n, n, y.row(r));
      ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
        StoreUpTo(Log(d, LoadUpTo(d, y.row(r) + i, count, T(1))), d, count, y.row(r) + i);
      });
    }
  }
}

template <class T>
void LogSoftmaxVjpRows(const LogSoftmax& op, MatrixView<const T> x, MatrixView<const T> y, MatrixView<const T> g,
                       MatrixView<T> dx, Share<T> share) {
  const RowTag<T> d;
  for (size_t r = share.begin; r < share.end; ++r) {
    if (HasInfiniteScore(x.row(r), y.row(r), x.cols, -kInfinity<T>)) {
      FillRow(d, T(0), x.cols, dx.row(r));
    } else {
      LogSoftmaxVjpRow(d, op, x.row(r), y.row(r), g.row(r), x.cols, dx.row(r));
    }
  }
}

template <class T>
void LogSumExpRows(const LogSumExp& op, MatrixView<const T> x, MatrixView<T> y, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const auto row = PrepareRow(d, op, x.row(r), n, share.rescaled);
    *y.row(r) = IsFinite(row.max) ? static_cast<T>(static_cast<double>(row.original_max) +
                                                   op.temperature * LogSumExpRow(d, row.op, row.x, n, row.max))
                                  : NonFiniteLogSumExp(x.row(r), n);
  }
}

// dx = g softmax(x/T): the map itself, into dx, then the factor.
template <class T>
void LogSumExpVjpRows(const LogSumExp& op, MatrixView<const T> x, MatrixView<const T> g, MatrixView<T> dx, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const auto row = PrepareRow(d, Softmax{.temperature = op.temperature}, x.row(r), n, share.rescaled);
    if (IsFinite(row.max)) {
      MapRow(d, row.op, row.x, n, row.max, dx.row(r), {share.scratch, false});
      ScaleRow(d, *g.row(r), n, dx.row(r));
    } else {
      // The gradient is 0 at -inf scores and in rows with +inf.
      FillRow(d, NonFiniteLogSumExp(x.row(r), n) == row.max ? T(0) : kNaN<T>, n, dx.row(r));
    }
  }
}

template <class T>
MapKernels<T> Kernels() {
  return {AnyMapRows<T>,     AnyVjpRows<T>,        CustomPerturbMaxRows<T>, CustomPerturbMaxVjpRows<T>,
          LogSoftmaxRows<T>, LogSoftmaxVjpRows<T>, LogSumExpRows<T>,        LogSumExpVjpRows<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_ROWS_INL_H_

// The loops over rows that call a map's kernels, for the file that compiles the map.

#if defined(ISENTROPIC_MAPS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_ROWS_INL_H_
#undef ISENTROPIC_MAPS_ROWS_INL_H_
#else
#define ISENTROPIC_MAPS_ROWS_INL_H_
#endif

#include "hwy/cache_control.h"
#include "src/maps/compiled-inl.h"
#include "src/maps/contract-inl.h"
#include "src/per_row.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The row after r, if prefetching it while r is computed pays, otherwise null.
template <class T>
HWY_INLINE const T* RowToFetch(MatrixView<const T> x, size_t r, const Share<T>& share) {
  return share.fetch && r + 1 < share.end ? x.row(r + 1) : nullptr;
}

// Rows of at most ShortRows::kLongest, a few groups at a time.
template <class Op, class T>
HWY_INLINE void MapShortGroups(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  using Short = typename KernelsOf<Op, T>::Short;
  constexpr size_t kGroups = Short::kGroups, kRows = ShortRows<T>::kRows;
  const RowTag<T> d;
  const size_t most = kGroups * kRows;
  T* const nowhere = share.memory.template take<T>(x.cols);
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
          NonFiniteRow(d, in[r], x.cols, MostInfinite<Op>(op, in[r], x.cols), out[first + r]);
          out[first + r] = nowhere;  // a place for a result that is not used
        }
      }
    }
    Short::Map(op, max, rows, out, count);
  }
}

// Processes the rows from share.begin on, up to Several::Count, that have finite maxima, if p is not x; returns their number.
template <class Op, class T>
HWY_INLINE size_t MapSomeRows(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  using Several = typename KernelsOf<Op, T>::Several;
  if (x.data == p.data || NeedsPreparing<T>(KernelsOf<Op, T>::kScores, op)) return 0;
  const size_t n = x.cols, most = Several::Count(op, n);
  const T* in[Several::kMost];
  T* out[Several::kMost];
  T max[Several::kMost];
  size_t count = 0;
  for (; count < HWY_MIN(most, share.end - share.begin); ++count) {
    in[count] = x.row(share.begin + count), out[count] = p.row(share.begin + count);
    max[count] = RowMax(RowTag<T>(), in[count], n);
    if (!IsFinite(max[count])) break;
  }
  if (count > 1) Several::Map(op, in, n, max, out, count, {share.memory, share.stream});
  return count > 1 ? count : 0;
}

// Rows [share.begin, share.end) by one op. It is flattened, because the calls that the compiler stops inlining in a large
// function take half of its time. It is a separate function, because flattening it into both callers takes minutes to compile.
template <class Op, class T>
HWY_NOINLINE HWY_FLATTEN void MapRowsBy(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  using Kernels = KernelsOf<Op, T>;
  using Contract = MapContract<Op, T>;
  const RowTag<T> d;
  const size_t n = x.cols;
  if constexpr (Contract::kHasShort) {
    if (n <= ShortRows<T>::kLongest && Kernels::Short::Takes(op) && !NeedsPreparing<T>(Kernels::kScores, op)) {
      return MapShortGroups(op, x, p, share);
    }
  }
  T* const prepared = share.memory.template take<T>(n);
  for (size_t r = share.begin; r < share.end; ++r) {
    if constexpr (Contract::kHasSeveral) {
      Share<T> rest = share;
      rest.begin = r;
      if (const size_t count = MapSomeRows(op, x, p, rest); count > 0) {
        r += count - 1;
        continue;
      }
    }
    const auto row = PrepareRow(d, Kernels::kScores, op, x.row(r), n, prepared);
    if (IsFinite(row.max)) {
      Kernels::MapRow(row.op, row.x, n, row.max, p.row(r), {share.memory, share.stream, RowToFetch(x, r, share)});
    } else {
      NonFiniteRow(d, row.x, n, MostInfinite<Op>(op, row.x, n), p.row(r));
    }
  }
}

// Processes all rows with one op, or each with its own.
template <class Op, class T>
void MapRows(const Op& op, MatrixView<const T> x, MatrixView<T> p, RowsOf<PerRow> per_row, Share<T> share) {
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

// Whether the parameter is T in x/T.
template <class Op, class T>
HWY_INLINE bool IsDivisor(std::string_view parameter) {
  constexpr auto kDivisor = KernelsOf<Op, T>::kScores.divisor;
  if constexpr (kDivisor != nullptr) return parameter == name_of(kDivisor);
  return false;
}

// The map's gradient of one row: one copy of it for all that call it.
template <class Op, class T>
HWY_NOINLINE void VjpRowOf(const Op& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Op>* slopes,
                           Workspace workspace) {
  KernelsOf<Op, T>::VjpRow(op, x, p, g, n, dx, slopes, workspace);
}

// The gradient in T of x/T for one row.
template <class Op, class T>
double DivisorGradientOfRow(const Op& op, const T* x, const T* p, const T* g, size_t n, Arena memory) {
  using Kernels = KernelsOf<Op, T>;
  if constexpr (Kernels::kScores.divisor != nullptr) {
    // dx may overflow at an extreme T. So it is calculated for the row that is prepared for the map.
    T* const prepared = memory.take<T>(n);
    T* const slopes_in_x = memory.take<T>(n);
    const auto row = PrepareRow(RowTag<T>(), Kernels::kScores, op, x, n, prepared);
    VjpRowOf(row.op, row.x, p, g, n, slopes_in_x, static_cast<ParamValues<Op>*>(nullptr), {memory, false});
    return SlopeInDivisor(row.x, row.max, slopes_in_x, n) / (op.*Kernels::kScores.divisor);
  }
  return 0;
}

// dx of one row, if it is not null, and the gradients in its parameters.
template <class Op, class T>
void VjpRowWith(const Op& op, const T* x, const T* p, const T* g, size_t n, T* dx, RowsOf<ParamGradient> gradients, size_t r,
                Share<T> share) {
  ParamValues<Op> slopes = {};
  bool wanted = false;
  // dx may overwrite what this reads.
  for (const ParamGradient& gradient : gradients) {
    if (IsDivisor<Op, T>(gradient.parameter)) {
      gradient.values[r] = DivisorGradientOfRow(op, x, p, g, n, share.memory);
    } else {
      wanted = true;
    }
  }
  if (dx != nullptr || wanted) {
    VjpRowOf(op, x, p, g, n, dx, wanted ? &slopes : nullptr, {share.memory, share.stream});
  }
  for (const ParamGradient& gradient : gradients) {
    if (!IsDivisor<Op, T>(gradient.parameter)) gradient.values[r] = value_of<Op>(slopes, gradient.parameter);
  }
}

// Whether the row has +inf. Then its distribution moves with no score: all its gradients are set to 0.
template <class T>
bool VjpOfInfiniteRow(MatrixView<const T> x, MatrixView<const T> p, size_t r, MatrixView<T> dx,
                      RowsOf<ParamGradient> gradients) {
  if (HWY_LIKELY(!HasInfiniteScore(x.row(r), p.row(r), x.cols, T(0)))) return false;
  for (const ParamGradient& gradient : gradients) gradient.values[r] = 0;
  FillRow(RowTag<T>(), T(0), x.cols, dx.row(r));
  return true;
}

// dx of rows of at most ShortRows::kLongest, a few groups at a time.
template <class Op, class T>
HWY_NOINLINE HWY_FLATTEN void VjpShortGroups(const Op& op, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g,
                                             MatrixView<T> dx, RowsOf<ParamGradient> gradients, Share<T> share) {
  using Short = typename KernelsOf<Op, T>::Short;
  constexpr size_t kGroups = Short::kGroups, kRows = ShortRows<T>::kRows;
  const size_t n = x.cols, most = kGroups * kRows;
  T* const nowhere = share.memory.template take<T>(n);
  for (size_t begin = share.begin; begin < share.end; begin += most) {
    const size_t count = HWY_MIN(most, share.end - begin);
    T* out[kGroups * kRows];
    ShortRows<T> p_rows[kGroups], g_rows[kGroups];
    for (size_t first = 0; first < count; first += kRows) {
      const T *p_in[kRows], *g_in[kRows];
      for (size_t r = 0; r < kRows; ++r) {
        const size_t row = begin + HWY_MIN(first + r, count - 1);
        p_in[r] = p.row(row), g_in[r] = g.row(row), out[first + r] = dx.row(row);
      }
      p_rows[first / kRows].Resize(n), g_rows[first / kRows].Resize(n);
      p_rows[first / kRows].Load(p_in, T(0)), g_rows[first / kRows].Load(g_in, T(0));
    }
    for (size_t i = 0; i < count; ++i) {
      const size_t r = begin + i;
      if (VjpOfInfiniteRow(x, p, r, dx, gradients)) {
        out[i] = nowhere;
      } else if (!gradients.empty()) {
        VjpRowWith<Op, T>(op, x.row(r), p.row(r), g.row(r), n, nullptr, gradients, r, share);
      }
    }
    Short::Vjp(op, p_rows, g_rows, out, count);
  }
}

// dx of the four rows from `begin` on. False, and nothing is written, if a row has +inf or the kernel does not take them.
template <class Op, class T>
HWY_INLINE bool VjpOfFourRows(const Op& op, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, size_t begin,
                              MatrixView<T> dx) {
  const T *p_rows[4], *g_rows[4];
  T* dx_rows[4];
  for (size_t r = 0; r < 4; ++r) {
    p_rows[r] = p.row(begin + r), g_rows[r] = g.row(begin + r), dx_rows[r] = dx.row(begin + r);
    if (HWY_UNLIKELY(HasInfiniteScore(x.row(begin + r), p_rows[r], x.cols, T(0)))) return false;
  }
  return KernelsOf<Op, T>::VjpFour(op, p_rows, g_rows, x.cols, dx_rows);
}

// The gradients of rows [share.begin, share.end) by one op.
template <class Op, class T>
void VjpRowsBy(const Op& op, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, MatrixView<T> dx,
               RowsOf<ParamGradient> gradients, Share<T> share) {
  const size_t n = x.cols;
  if constexpr (MapContract<Op, T>::kHasShortVjp) {
    if (n <= ShortRows<T>::kLongest && KernelsOf<Op, T>::Short::TakesVjp(op)) {
      return VjpShortGroups(op, x, p, g, dx, gradients, share);
    }
  }
  for (size_t begin = share.begin; begin < share.end; begin += 4) {
    const size_t end = HWY_MIN(begin + 4, share.end);
    if constexpr (MapContract<Op, T>::kHasVjpFour) {
      if (n <= ShortRows<T>::kLongest && end - begin == 4 && gradients.empty() && VjpOfFourRows(op, x, p, g, begin, dx))
        continue;
    }
    for (size_t r = begin; r < end; ++r) {
      if (VjpOfInfiniteRow(x, p, r, dx, gradients)) continue;
      VjpRowWith(op, x.row(r), p.row(r), g.row(r), n, dx.row(r), gradients, r, share);
    }
  }
}

// The gradients of all rows with one op, or each with its own.
template <class Op, class T>
void VjpRows(const Op& common, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, MatrixView<T> dx,
             RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients, Share<T> share) {
  if (per_row.empty()) {
    VjpRowsBy(common, x, p, g, dx, gradients, share);
  } else {
    for (Share<T> row = share; row.begin < share.end; ++row.begin) {
      row.end = row.begin + 1;
      VjpRowsBy(at_row(common, per_row, row.begin), x, p, g, dx, gradients, row);
    }
  }
  if (share.stream) hwy::FlushStream();
}

template <class Op, class T>
void Compiled<Op, T>::Map(const Op& op, In x, Out p, RowsOf<PerRow> per_row, Share<T> share) {
  MapRows(op, x, p, per_row, share);
}

template <class Op, class T>
void Compiled<Op, T>::Vjp(const Op& op, In x, In p, In g, Out dx, RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients,
                          Share<T> share) {
  VjpRows(op, x, p, g, dx, per_row, gradients, share);
}

// Memory for a prepared row, for the gradient in x from which the one in T follows, and for the map's kernels.
template <class Op, class T>
size_t Compiled<Op, T>::Memory(size_t n) {
  return 2 * Arena::room<T>(n) + MapContract<Op, T>::Memory(n);
}

template <class Op, class T>
bool Compiled<Op, T>::TakesSeveral(const Op& op, size_t n) {
  if constexpr (MapContract<Op, T>::kHasSeveral) return KernelsOf<Op, T>::Several::Count(op, n) > 1;
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_ROWS_INL_H_

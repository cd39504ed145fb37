// What the file that compiles a map offers to the table of all maps. Maps are half of the library's code, so that a few of them
// share a file, and the table, in kernels.cc, sees declarations alone: a map that no file compiles does not link.

#if defined(ISENTROPIC_MAPS_COMPILED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_COMPILED_INL_H_
#undef ISENTROPIC_MAPS_COMPILED_INL_H_
#else
#define ISENTROPIC_MAPS_COMPILED_INL_H_
#endif

#include "hwy/highway.h"
#include "src/maps/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class Op, class T>
struct Compiled {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  static void Map(const Op& op, In x, Out p, RowsOf<PerRow> per_row, Share<T> share);
  static void Vjp(const Op& op, In x, In p, In g, Out dx, RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients,
                  Share<T> share);
  static size_t Memory(size_t n);
  static bool TakesSeveral(const Op& op, size_t n);
};

// log_softmax and logsumexp, whose results are not distributions.
template <class T>
struct CompiledLogs {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  static void LogSoftmax(const isentropic::LogSoftmax& op, In x, Out y, RowsOf<PerRow> per_row, Share<T> share);
  static void LogSoftmaxVjp(const isentropic::LogSoftmax& op, In x, In y, In g, Out dx, RowsOf<PerRow> per_row,
                            RowsOf<ParamGradient> gradients, Share<T> share);
  static void LogSumExp(const isentropic::LogSumExp& op, In x, Out y, RowsOf<PerRow> per_row, Share<T> share);
  static void LogSumExpVjp(const isentropic::LogSumExp& op, In x, In g, Out dx, RowsOf<PerRow> per_row,
                           RowsOf<ParamGradient> gradients, Share<T> share);
};

// soft_top_k, whose results add up to k.
template <class T>
struct CompiledSelection {
  static void Map(const SoftTopK& op, MatrixView<const T> x, MatrixView<T> p, RowsOf<PerRow> per_row, Share<T> share);
  static void Vjp(const SoftTopK& op, MatrixView<const T> x, MatrixView<const T> g, MatrixView<T> dx, RowsOf<PerRow> per_row,
                  RowsOf<ParamGradient> gradients, Share<T> share);
  static size_t Memory(size_t n);
};

// In the file that compiles it, after the map's kernels and rows-inl.h.
#undef ISENTROPIC_COMPILE_MAP
#define ISENTROPIC_COMPILE_MAP(Op)     \
  template struct Compiled<Op, float>; \
  template struct Compiled<Op, double>

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_COMPILED_INL_H_

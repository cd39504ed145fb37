// The interface between the kernels of the maps and the code that dispatches them.
#pragma once

#include <cstddef>

#include "isentropic/maps.h"
#include "src/maps/custom_perturb_max.h"
#include "src/per_row.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {

// One thread's share of a batch: rows [begin, end), and its workspace.
template <class T>
struct Share {
  std::size_t begin, end;
  Arena memory;        // of the size that the kernel needs
  bool stream;         // the output is too large for the cache
  bool fetch = false;  // the rows are not in the core's own cache, which can hold three of them
};

// The kernels of one SIMD target for one element type.
template <class T>
struct MapKernels {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  void (*map)(const Map&, In x, Out p, RowsOf<PerRow>, Share<T>);
  void (*vjp)(const Map&, In x, In p, In g, Out dx, RowsOf<PerRow>, RowsOf<ParamGradient>, Share<T>);
  void (*perturb_max)(const CustomPerturbMax&, In x, Out p, RowsOf<PerRow>, Share<T>);
  void (*perturb_max_vjp)(const CustomPerturbMax&, In x, In p, In g, Out dx, RowsOf<PerRow>, RowsOf<ParamGradient>, Share<T>);
  void (*log_softmax)(const LogSoftmax&, In x, Out y, RowsOf<PerRow>, Share<T>);
  void (*log_softmax_vjp)(const LogSoftmax&, In x, In y, In g, Out dx, RowsOf<PerRow>, RowsOf<ParamGradient>, Share<T>);
  void (*logsumexp)(const LogSumExp&, In x, Out y, RowsOf<PerRow>, Share<T>);
  void (*logsumexp_vjp)(const LogSumExp&, In x, In g, Out dx, RowsOf<PerRow>, RowsOf<ParamGradient>, Share<T>);
  void (*soft_top_k)(const SoftTopK&, In x, Out p, RowsOf<PerRow>, Share<T>);
  void (*soft_top_k_vjp)(const SoftTopK&, In x, In g, Out dx, RowsOf<PerRow>, RowsOf<ParamGradient>, Share<T>);
  // Bytes of memory that these need for rows of n.
  std::size_t (*memory)(const Map&, std::size_t n);
  std::size_t (*perturb_max_memory)(std::size_t n);
  std::size_t (*logsumexp_memory)(std::size_t n);  // and log_softmax
  std::size_t (*soft_top_k_memory)(std::size_t n);
  // Whether the map takes several rows of n at once, if p is not x.
  bool (*takes_several)(const Map&, std::size_t n);
};

// The kernels of the best target, or of the forced one.
template <class T>
MapKernels<T> map_kernels();
template <>
MapKernels<float> map_kernels<float>();
template <>
MapKernels<double> map_kernels<double>();

}  // namespace isentropic::inline ISENTROPIC_ABI

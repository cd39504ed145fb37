// What the targets' part of the maps offers to the dispatching part.
#pragma once

#include <cstddef>
#include <span>

#include "entropic/maps.h"
#include "src/maps/custom_perturb_max.h"

namespace entropic::inline ENTROPIC_ABI {

// Numbers of working memory that a kernel wants for rows of n, also for the few that it takes at once.
constexpr std::size_t kernel_memory(std::size_t n) { return (5 * n + 271) / 16 * 16; }

// One thread's share of a batch: rows [begin, end), and working memory.
template <class T>
struct Share {
  std::size_t begin, end;
  double* scratch;  // of the kernel: kernel_memory(n)
  T* rescaled;      // of PrepareRow: n
  bool stream;      // the output is too large for the cache
};

// What one SIMD target has for one element type.
template <class T>
struct MapKernels {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  void (*map)(const Map&, In x, Out p, std::span<const PerRow>, Share<T>);
  void (*vjp)(const Map&, In x, In p, In g, Out dx, std::span<const PerRow>, std::span<const ParamGradient>, Share<T>);
  void (*perturb_max)(const CustomPerturbMax&, In x, Out p, Share<T>);
  void (*perturb_max_vjp)(const CustomPerturbMax&, In x, In p, In g, Out dx, Share<T>);
  void (*log_softmax)(const LogSoftmax&, In x, Out y, Share<T>);
  void (*log_softmax_vjp)(const LogSoftmax&, In x, In y, In g, Out dx, Share<T>);
  void (*logsumexp)(const LogSumExp&, In x, Out y, Share<T>);
  void (*logsumexp_vjp)(const LogSumExp&, In x, In g, Out dx, Share<T>);
};

// Those of the best target, or the one that is forced.
template <class T>
MapKernels<T> map_kernels();
template <>
MapKernels<float> map_kernels();
template <>
MapKernels<double> map_kernels();

}  // namespace entropic::inline ENTROPIC_ABI

// The table of every map's kernels.

#if defined(ISENTROPIC_MAPS_ALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_ALL_INL_H_
#undef ISENTROPIC_MAPS_ALL_INL_H_
#else
#define ISENTROPIC_MAPS_ALL_INL_H_
#endif

#include <variant>

#include "src/maps/compiled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void MapRows(const Map& map, MatrixView<const T> x, MatrixView<T> p, RowsOf<PerRow> per_row, Share<T> share) {
  std::visit([&]<class Op>(const Op& op) { Compiled<Op, T>::Map(op, x, p, per_row, share); }, map);
}

template <class T>
void VjpRows(const Map& map, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, MatrixView<T> dx,
             RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients, Share<T> share) {
  std::visit([&]<class Op>(const Op& op) { Compiled<Op, T>::Vjp(op, x, p, g, dx, per_row, gradients, share); }, map);
}

template <class T>
size_t MapMemory(const Map& map, size_t n) {
  return std::visit([&]<class Op>(const Op& /*op*/) { return Compiled<Op, T>::Memory(n); }, map);
}

template <class T>
bool TakesSeveral(const Map& map, size_t n) {
  return std::visit([&]<class Op>(const Op& op) { return Compiled<Op, T>::TakesSeveral(op, n); }, map);
}

template <class T>
MapKernels<T> MakeMaps() {
  using Logs = CompiledLogs<T>;
  MapKernels<T> kernels = {};
  kernels.map = MapRows<T>;
  kernels.log_softmax = Logs::LogSoftmax;
  kernels.logsumexp = Logs::LogSumExp;
  kernels.memory = MapMemory<T>;
  kernels.logsumexp_memory = Compiled<Softmax, T>::Memory;
  kernels.takes_several = TakesSeveral<T>;
#ifdef __wasm__
  // A page loads every kernel that is named here. It has gradients of float64, and no noise of its own.
  constexpr bool kHasVjp = sizeof(T) == 8, kHasAll = false;
#else
  constexpr bool kHasVjp = true, kHasAll = true;
#endif
  if constexpr (kHasVjp) {
    kernels.vjp = VjpRows<T>;
    kernels.log_softmax_vjp = Logs::LogSoftmaxVjp;
    kernels.logsumexp_vjp = Logs::LogSumExpVjp;
  }
  if constexpr (kHasAll) {
    kernels.soft_top_k = CompiledSelection<T>::Map;
    kernels.soft_top_k_vjp = CompiledSelection<T>::Vjp;
    kernels.soft_top_k_memory = CompiledSelection<T>::Memory;
    kernels.perturb_max = Compiled<CustomPerturbMax, T>::Map;
    kernels.perturb_max_vjp = Compiled<CustomPerturbMax, T>::Vjp;
    kernels.perturb_max_memory = Compiled<CustomPerturbMax, T>::Memory;
  }
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_ALL_INL_H_

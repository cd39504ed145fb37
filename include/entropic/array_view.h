// Numbers along any number of axes, and maps along one of them.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "entropic/export.h"
#include "entropic/maps.h"

namespace entropic::inline ENTROPIC_ABI {

// Numbers in memory that somebody else owns: that with indices i is data[sum of i[d] * strides[d]]. At most 64 axes. Strides
// count numbers; they may be negative, and 0 where an input repeats.
template <class T>
struct ArrayView {
  T* data = nullptr;
  std::vector<std::ptrdiff_t> shape;
  std::vector<std::ptrdiff_t> strides;

  ArrayView() = default;
  ArrayView(T* numbers, std::vector<std::ptrdiff_t> sizes, std::vector<std::ptrdiff_t> steps)
      : data(numbers), shape(std::move(sizes)), strides(std::move(steps)) {}
  // Without gaps, the last axis running fastest.
  ArrayView(T* numbers, std::vector<std::ptrdiff_t> sizes) : data(numbers), shape(std::move(sizes)), strides(shape.size()) {
    std::ptrdiff_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  }

  // A view that may write is also one that may read.
  template <class U, class = std::enable_if_t<std::is_same_v<T, const U>>>
  ArrayView(const ArrayView<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}
};

// p = map(x) along an axis, counted from the end where it is negative; the other axes count rows. The bits are those of the
// same rows in a matrix, however the arrays lie.
//
// Shapes: p as x; p may be x itself, and may otherwise not lie among the numbers of x. Values of per_row: one for each row, the
// last of the other axes running fastest.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ENTROPIC_API void apply(const Map& map, const ArrayView<const std::type_identity_t<T>>& x, const ArrayView<T>& p,
                        std::ptrdiff_t axis, std::span<const PerRow> per_row = {});

// dx = J^T g at the scores x, where p = map(x), as apply_vjp of matrices. Shapes: all as x; dx may be x, p or g.
template <class T>
ENTROPIC_API void apply_vjp(const Map& map, const ArrayView<const std::type_identity_t<T>>& x,
                            const ArrayView<const std::type_identity_t<T>>& p,
                            const ArrayView<const std::type_identity_t<T>>& g, const ArrayView<T>& dx, std::ptrdiff_t axis,
                            std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

}  // namespace entropic::inline ENTROPIC_ABI

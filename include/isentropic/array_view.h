// Numbers along any number of axes, and maps, measures and losses along one of them.
//
//   std::vector<float> x(2 * 3 * 4);
//   const isentropic::ArrayView array(x, {2, 3, 4});
//   isentropic::apply(isentropic::Softmax{}, array, array, 1);  // x[0] = 0.33
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "isentropic/export.h"
#include "isentropic/losses.h"
#include "isentropic/maps.h"
#include "isentropic/measures.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A view of numbers: the one with indices i is data[sum of i[d] * strides[d]]. At most 64 axes. Strides count numbers; they may
// be negative, and 0 where an input repeats. The view does not own its memory.
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
    for (std::size_t d = shape.size(); d-- > 0;) {
      strides[d] = stride;
      stride = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(stride) * static_cast<std::size_t>(shape[d]));
    }
  }

  // The numbers of a container, without gaps. Throws: std::invalid_argument if it has too few.
  template <NumbersOf<T> Numbers>
  ArrayView(Numbers&& numbers, std::vector<std::ptrdiff_t> sizes) : ArrayView(std::ranges::data(numbers), std::move(sizes)) {
    constexpr std::size_t kMost = static_cast<std::size_t>(-1);  // a product that is larger
    std::size_t count = 1;
    for (const std::ptrdiff_t one : shape) {
      const auto size = static_cast<std::size_t>(one);
      count = size != 0 && count > kMost / size ? kMost : count * size;
    }
    check_holds(std::ranges::size(numbers), 1, count, count);
  }

  // A view that may write converts to one that only reads.
  template <class U, class = std::enable_if_t<std::is_same_v<T, const U>>>
  ArrayView(const ArrayView<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}
};

template <std::ranges::contiguous_range Numbers>
ArrayView(Numbers&&, std::vector<std::ptrdiff_t>)
    -> ArrayView<std::remove_reference_t<std::ranges::range_reference_t<Numbers>>>;

template <class T>
inline constexpr bool kIsWritable<ArrayView<T>> = !std::is_const_v<T>;
template <class T>
ArrayView<const T> read_only(const ArrayView<T>& view) {
  return view;
}

// p = map(x) along an axis; a negative axis counts from the end, and the other axes count rows. The result has the same bits as
// for these rows in a matrix, whatever the strides.
//
// Shapes: p as x; p may be x itself, but must otherwise not overlap x. Values of per_row: one for each row, the last of the
// other axes running fastest.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void apply(const Map& map, const ArrayView<const std::type_identity_t<T>>& x, const ArrayView<T>& p,
                          std::ptrdiff_t axis, std::span<const PerRow> per_row = {});

// dx = J^T g at the scores x, where p = map(x), as apply_vjp of matrices. Shapes: all as x; dx may be x, p or g.
template <class T>
ISENTROPIC_API void apply_vjp(const Map& map, const ArrayView<const std::type_identity_t<T>>& x,
                              const ArrayView<const std::type_identity_t<T>>& p,
                              const ArrayView<const std::type_identity_t<T>>& g, const ArrayView<T>& dx, std::ptrdiff_t axis,
                              std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

// The functions below calculate one number for each row, like the functions of the same name for matrices, where the details
// are.
//
// Shapes: value in p's (or x's) without the axis, or with 1 for it; everything else as p (or x), classes as value. A gradient
//         without data is not calculated. Outputs share no memory with other arrays. To compare all rows with one row, use
//         strides of 0 along the other axes.
// Throws: std::invalid_argument naming the argument and the refused row (rows are counted with the last of the other axes
//         running fastest); the outputs are then undefined.

template <class T>
ISENTROPIC_API void measure(const Measure& op, const ArrayView<const T>& p, const ArrayView<double>& value, std::ptrdiff_t axis,
                            const ArrayView<std::type_identity_t<T>>& dp = {}, std::span<const PerRow> per_row = {},
                            std::span<const ParamGradient> gradients = {});
template <class T>
ISENTROPIC_API void measure(const Divergence& op, const ArrayView<const T>& p,
                            const ArrayView<const std::type_identity_t<T>>& q, const ArrayView<double>& value,
                            std::ptrdiff_t axis, const ArrayView<std::type_identity_t<T>>& dp = {},
                            const ArrayView<std::type_identity_t<T>>& dq = {}, std::span<const PerRow> per_row = {},
                            std::span<const ParamGradient> gradients = {});

// The measures of entries: value has the shape of p.
template <class T>
ISENTROPIC_API void measure(const EntryMeasure& op, const ArrayView<const T>& p,
                            const ArrayView<std::type_identity_t<T>>& value, std::ptrdiff_t axis,
                            const ArrayView<std::type_identity_t<T>>& dp = {});

template <class T>
ISENTROPIC_API void loss(const Loss& op, const ArrayView<const T>& x, const ArrayView<const std::int64_t>& classes,
                         const ArrayView<double>& value, std::ptrdiff_t axis, const ArrayView<std::type_identity_t<T>>& dx = {},
                         std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {},
                         std::optional<std::int64_t> ignored = {});
template <class T>
ISENTROPIC_API void loss(const Loss& op, const ArrayView<const T>& x, const ArrayView<const std::type_identity_t<T>>& target,
                         const ArrayView<double>& value, std::ptrdiff_t axis, const ArrayView<std::type_identity_t<T>>& dx = {},
                         std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

// The same for views that may write.
template <WritableView P>
void measure(const Measure& op, const P& p, const ArrayView<double>& value, std::ptrdiff_t axis,
             const ArrayView<NumberIn<P>>& dp = {}, std::span<const PerRow> per_row = {},
             std::span<const ParamGradient> gradients = {}) {
  measure(op, read_only(p), value, axis, dp, per_row, gradients);
}
template <WritableView P>
void measure(const Divergence& op, const P& p, const ArrayView<const NumberIn<P>>& q, const ArrayView<double>& value,
             std::ptrdiff_t axis, const ArrayView<NumberIn<P>>& dp = {}, const ArrayView<NumberIn<P>>& dq = {},
             std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {}) {
  measure(op, read_only(p), q, value, axis, dp, dq, per_row, gradients);
}
template <WritableView P>
void measure(const EntryMeasure& op, const P& p, const ArrayView<NumberIn<P>>& value, std::ptrdiff_t axis,
             const ArrayView<NumberIn<P>>& dp = {}) {
  measure(op, read_only(p), value, axis, dp);
}
template <WritableView X>
void loss(const Loss& op, const X& x, const ArrayView<const std::int64_t>& classes, const ArrayView<double>& value,
          std::ptrdiff_t axis, const ArrayView<NumberIn<X>>& dx = {}, std::span<const PerRow> per_row = {},
          std::span<const ParamGradient> gradients = {}, std::optional<std::int64_t> ignored = {}) {
  loss(op, read_only(x), classes, value, axis, dx, per_row, gradients, ignored);
}
template <WritableView X>
void loss(const Loss& op, const X& x, const ArrayView<const NumberIn<X>>& target, const ArrayView<double>& value,
          std::ptrdiff_t axis, const ArrayView<NumberIn<X>>& dx = {}, std::span<const PerRow> per_row = {},
          std::span<const ParamGradient> gradients = {}) {
  loss(op, read_only(x), target, value, axis, dx, per_row, gradients);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

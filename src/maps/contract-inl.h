// What a map's kernels offer to the loops over rows, as the compiler checks it.

#if defined(ENTROPIC_MAPS_CONTRACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_MAPS_CONTRACT_INL_H_
#undef ENTROPIC_MAPS_CONTRACT_INL_H_
#else
#define ENTROPIC_MAPS_CONTRACT_INL_H_
#endif

#include <type_traits>

#include "src/maps/scores-inl.h"
#include "src/per_row.h"
#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// In the place of what a map does not have.
struct NotOffered {};

// The kernels of the map Op for rows of T, specialised beside them. It has every member that MapContract names; some may be
// NotOffered, none may be missing. So a slip of the pen does not make a map slow: a member with a wrong name is a missing one.
template <class Op, class T>
struct KernelsOf;

// Whether a member that may be NotOffered is there. One that is neither does not compile.
template <class Member, class Kernel>
constexpr bool Offers() {
  constexpr bool kDenied = std::is_same_v<Member, const NotOffered>;
  static_assert(kDenied || std::is_same_v<Member, Kernel>, "a member of KernelsOf has not the type that MapContract says");
  return !kDenied;
}

// The same of one that must be there.
template <class Member, class Kernel>
constexpr bool Has() {
  static_assert(std::is_same_v<Member, Kernel>, "a member of KernelsOf has not the type that MapContract says");
  return true;
}

template <class Op, class T>
struct MapContract {
  using Kernels = KernelsOf<Op, T>;

  // Which parameters say what the scores are.
  static_assert(Has<decltype(Kernels::kScores), const ScoreParams<Op>>());
  // p of one row as PrepareRow leaves it, whose maximum is finite; p may be x. A row with NaN becomes NaN.
  static_assert(Has<decltype(Kernels::MapRow), void(const Op&, const T* x, size_t n, T max, T* p, Workspace)>());
  // dx = J^T g of any row without +inf; dx may be x, p or g.
  static_assert(
      Has<decltype(Kernels::VjpRow), void(const Op&, const T* x, const T* p, const T* g, size_t n, T* dx, Workspace)>());

  // Bytes that the kernels take of a workspace for rows of n, the most that any of them does; not offered: none.
  static constexpr bool kHasMemory = Offers<decltype(Kernels::Memory), size_t(size_t n)>();
  static size_t Memory(size_t n) {
    if constexpr (kHasMemory) return Kernels::Memory(n);
    return 0;
  }

  // The gradients in the parameters, in their order; 0 for those that are not per_row.
  static constexpr bool kHasParamVjp =
      Offers<decltype(Kernels::ParamVjpRow),
             ParamValues<Op>(const Op&, const T* x, const T* p, const T* g, size_t n, Workspace)>();
  // How many of a row's +inf scores share the mass, the first ones; not offered: all.
  static constexpr bool kHasMostInfinite = Offers<decltype(Kernels::MostInfinite), size_t(const Op&, size_t infinite)>();

  // Rows of at most ShortRows::kLongest side by side.
  template <class Short>
  static constexpr bool OffersShort() {
    constexpr bool kOffered = !std::is_same_v<Short, NotOffered>;
    if constexpr (kOffered) {
      // How many groups of rows it wants at once: more than one where a group's own results are waited for.
      static_assert(Has<decltype(Short::kGroups), const size_t>());
      // Whether it takes this op.
      static_assert(Has<decltype(Short::Takes), bool(const Op&)>());
      // p of `count` rows in all, given their maxima in the lanes of each group. The groups may be used up.
      using Map = void(const Op&, const hn::Vec<RowTag<T>>* max, ShortRows<T>*, T* const* p, size_t count);
      static_assert(Has<decltype(Short::Map), Map>());
    }
    return kOffered;
  }
  static constexpr bool kHasShort = OffersShort<typename Kernels::Short>();

  // Longer rows, several at once, for x that is not p.
  template <class Several>
  static constexpr bool OffersSeveral() {
    constexpr bool kOffered = !std::is_same_v<Several, NotOffered>;
    if constexpr (kOffered) {
      // How many it wants, at most kMost; 1 where a row gains nothing by others.
      static_assert(Has<decltype(Several::kMost), const size_t>());
      static_assert(Has<decltype(Several::Count), size_t(const Op&, size_t n)>());
      using Map = void(const Op&, const T* const* x, size_t n, const T* max, T* const* p, size_t count, Workspace);
      static_assert(Has<decltype(Several::Map), Map>());
    }
    return kOffered;
  }
  static constexpr bool kHasSeveral = OffersSeveral<typename Kernels::Several>();
};

// How many of a row's +inf scores share the mass.
template <class Op, class T>
HWY_INLINE size_t MostInfinite(const Op& op, const T* x, size_t n) {
  if constexpr (MapContract<Op, T>::kHasMostInfinite) return KernelsOf<Op, T>::MostInfinite(op, FindNonFinite(x, n).infinite);
  return n;
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_MAPS_CONTRACT_INL_H_

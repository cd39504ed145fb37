// The interface of a map's kernels to the loops over rows, which the compiler checks.

#if defined(ISENTROPIC_MAPS_CONTRACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_CONTRACT_INL_H_
#undef ISENTROPIC_MAPS_CONTRACT_INL_H_
#else
#define ISENTROPIC_MAPS_CONTRACT_INL_H_
#endif

#include <type_traits>

#include "src/maps/scores-inl.h"
#include "src/per_row.h"
#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Stands for a member that a map does not have.
struct NotOffered {};

// The kernels of the map Op for rows of T, specialised beside them. It has every member that MapContract names; some may be
// NotOffered, none may be missing. So a typing error cannot make a map slow: a member with a wrong name is a missing one.
template <class Op, class T>
struct KernelsOf;

// Whether the kernel has a member that may be NotOffered. A member of any other type does not compile.
template <class Member, class Kernel>
constexpr bool Offers() {
  constexpr bool kDenied = std::is_same_v<Member, const NotOffered>;
  static_assert(kDenied || std::is_same_v<Member, Kernel>,
                "a member of KernelsOf does not have the type that MapContract says");
  return !kDenied;
}

// Whether the kernel has a required member.
template <class Member, class Kernel>
constexpr bool Has() {
  static_assert(std::is_same_v<Member, Kernel>, "a member of KernelsOf does not have the type that MapContract says");
  return true;
}

template <class Op, class T>
struct MapContract {
  using Kernels = KernelsOf<Op, T>;

  // The parameters that define the scores.
  static_assert(Has<decltype(Kernels::kScores), const ScoreParams<Op>>());
  // p of one row after PrepareRow, with a finite maximum; p may be x. A row with NaN becomes NaN.
  static_assert(Has<decltype(Kernels::MapRow), void(const Op&, const T* x, size_t n, T max, T* p, Workspace)>());
  // dx = J^T g of any row without +inf; dx may be x, p or g. If `slopes` is not null, also the gradients in the parameters, in
  // their order, which are 0 on entry: each that is per_row except the divisor, whose gradient follows from dx.
  static_assert(Has<decltype(Kernels::VjpRow), void(const Op&, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                    ParamValues<Op>* slopes, Workspace)>());

  // dx of four rows without +inf, of a map whose gradient takes no memory: false, and nothing is written, if VjpRow must take
  // them. Not offered: VjpRow takes all.
  using VjpFour = bool(const Op&, const T* const (&p)[4], const T* const (&g)[4], size_t n, T* const (&dx)[4]);
  static constexpr bool kHasVjpFour = Offers<decltype(Kernels::VjpFour), VjpFour>();

  // The most bytes of workspace that any of the kernels takes for rows of n; not offered: none.
  static constexpr bool kHasMemory = Offers<decltype(Kernels::Memory), size_t(size_t n)>();
  static size_t Memory(size_t n) {
    if constexpr (kHasMemory) return Kernels::Memory(n);
    return 0;
  }

  // How many of a row's +inf scores, from the first one on, share the mass; not offered: all.
  static constexpr bool kHasMostInfinite = Offers<decltype(Kernels::MostInfinite), size_t(const Op&, size_t infinite)>();

  // Kernels for several rows of at most ShortRows::kLongest side by side.
  template <class Short>
  static constexpr bool OffersShort() {
    constexpr bool kOffered = !std::is_same_v<Short, NotOffered>;
    if constexpr (kOffered) {
      // The number of groups of rows at once: more than one if a group has to wait for its own results.
      static_assert(Has<decltype(Short::kGroups), const size_t>());
      // Whether the kernels take this op.
      static_assert(Has<decltype(Short::Takes), bool(const Op&)>());
      // p of `count` rows, given their maxima in the lanes of each group. The groups may be overwritten.
      using Map = void(const Op&, const hn::Vec<RowTag<T>>* max, ShortRows<T>*, T* const* p, size_t count);
      static_assert(Has<decltype(Short::Map), Map>());
    }
    return kOffered;
  }
  static constexpr bool kHasShort = OffersShort<typename Kernels::Short>();

  // Short::Vjp: dx of `count` rows without +inf, given p and g, which it may overwrite. VjpRow of its map takes null for dx,
  // if only slopes are wanted. Not offered: VjpRow serves short rows.
  template <class Short>
  static constexpr bool OffersShortVjp() {
    if constexpr (!std::is_same_v<Short, NotOffered>) {
      using Vjp = void(const Op&, ShortRows<T>* p, ShortRows<T>* g, T* const* dx, size_t count);
      if constexpr (Offers<decltype(Short::Vjp), Vjp>()) return Has<decltype(Short::TakesVjp), bool(const Op&)>();
    }
    return false;
  }
  static constexpr bool kHasShortVjp = OffersShortVjp<typename Kernels::Short>();

  // Kernels for several longer rows at once, if x is not p.
  template <class Several>
  static constexpr bool OffersSeveral() {
    constexpr bool kOffered = !std::is_same_v<Several, NotOffered>;
    if constexpr (kOffered) {
      // The number of rows at once, at most kMost; 1 if several are not faster.
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
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_CONTRACT_INL_H_

// The largest entries of short rows, side by side, by a sorting network: the order costs half of a softmax.

#if defined(ISENTROPIC_ROWS_SHORT_LARGEST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_SHORT_LARGEST_INL_H_
#undef ISENTROPIC_ROWS_SHORT_LARGEST_INL_H_
#else
#define ISENTROPIC_ROWS_SHORT_LARGEST_INL_H_
#endif

#include <utility>

#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The larger in each lane goes to a.
template <class V>
HWY_INLINE void OrderLanes(V& a, V& b) {
  const V larger = hn::Max(a, b);
  b = hn::Min(a, b);
  a = larger;
}

// Batcher's odd-even merge sort of kCount, a power of 2: the pairs that it orders.
template <size_t kCount>
struct SortingNetwork {
  uint8_t first[kCount * kCount / 2] = {}, second[kCount * kCount / 2] = {};
  size_t count = 0;

  constexpr SortingNetwork() {
    for (size_t sorted = 1; sorted < kCount; sorted *= 2) {
      for (size_t apart = sorted; apart > 0; apart /= 2) {
        for (size_t i = apart % sorted; i + apart < kCount; ++i) {
          if ((i - apart % sorted) / apart % 2 == 0 && i / (2 * sorted) == (i + apart) / (2 * sorted)) {
            first[count] = static_cast<uint8_t>(i), second[count++] = static_cast<uint8_t>(i + apart);
          }
        }
      }
    }
  }
};
template <size_t kCount>
inline constexpr SortingNetwork<kCount> kSortingNetwork = {};

template <size_t kCount, class V, size_t... kPair>
HWY_INLINE void SortByPairs(V* v, std::index_sequence<kPair...>) {
  (OrderLanes(v[std::integral_constant<size_t, kSortingNetwork<kCount>.first[kPair]>::value],
              v[std::integral_constant<size_t, kSortingNetwork<kCount>.second[kPair]>::value]),
   ...);
}
// Each lane of kCount vectors in falling order. Without loops, so that the entries stay in registers.
template <size_t kCount, class V>
HWY_INLINE void SortLanes(V* v) {
  SortByPairs<kCount>(v, std::make_index_sequence<kSortingNetwork<kCount>.count>());
}

// The 16 largest entries of each row, in order, or with kNegated the 16 smallest, negated.
template <bool kNegated = false>
class LargestOfShort {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  static constexpr size_t kCount = 16;

  HWY_INLINE LargestOfShort() {}  // NEON's vectors have constructors, for which the compiler needs to know the target
  HWY_INLINE void Take(const ShortRows<float>& rows) {
    const D d;
    nan_ = hn::Zero(d);
    const size_t vectors = rows.vectors();
    ReadAndSort(rows, 0, largest_, kAll);
    for (size_t first = kCount; first < vectors; first += kCount) {
      V next[kCount];
      ReadAndSort(rows, first, next, kAll);
      Merge([&](size_t i) HWY_ATTR { return next[i]; }, kAll);
    }
    // The lanes of a row; each has some columns.
#if HWY_TARGET != HWY_SCALAR
    constexpr size_t kBlocks = ShortRows<float>::kLanes / ShortRows<float>::kRows;
    if constexpr (kBlocks >= 4) {
      Merge([&](size_t i) HWY_ATTR { return hn::ConcatLowerUpper(d, largest_[i], largest_[i]); }, kAll);
      nan_ = hn::Add(nan_, hn::ConcatLowerUpper(d, nan_, nan_));
    }
    if constexpr (kBlocks >= 2) {
      Merge([&](size_t i) HWY_ATTR { return hn::SwapAdjacentBlocks(largest_[i]); }, kAll);
      nan_ = hn::Add(nan_, hn::SwapAdjacentBlocks(nan_));
    }
#endif
  }

  HWY_INLINE V operator[](size_t i) const { return largest_[i]; }
  // NaN for a row with one, whose order means nothing; otherwise 0.
  HWY_INLINE V nan() const { return nan_; }

 private:
  // Without loops, so that the entries stay in registers.
  template <size_t... kIndex>
  HWY_INLINE void ReadAndSort(const ShortRows<float>& rows, size_t first, V* v, std::index_sequence<kIndex...>) {
    const size_t count = rows.vectors() - first;
    if (HWY_LIKELY(count >= kCount)) {
      ((v[kIndex] = Read(rows, first + kIndex)), ...);
    } else {
      ((v[kIndex] = kIndex < count ? Read(rows, first + kIndex) : hn::Set(D(), -kInfinity<float>)), ...);
    }
    SortLanes<kCount>(v);
  }
  HWY_INLINE V Read(const ShortRows<float>& rows, size_t v) {
    const V entries = kNegated ? hn::Neg(rows.Vector(v)) : rows.Vector(v);
    nan_ = hn::IfThenElse(hn::IsNaN(entries), entries, nan_);
    return entries;
  }

  // The largest of these and of `other`, which is in order as well: bitonic.
  template <class Other, size_t... kIndex>
  HWY_INLINE void Merge(const Other& other, std::index_sequence<kIndex...>) {
    V both[kCount];
    ((both[kIndex] = hn::Max(largest_[kIndex], other(kCount - 1 - kIndex))), ...);
    (OrderApart<8, kIndex>(both), ...);
    (OrderApart<4, kIndex>(both), ...);
    (OrderApart<2, kIndex>(both), ...);
    (OrderApart<1, kIndex>(both), ...);
    ((largest_[kIndex] = both[kIndex]), ...);
  }
  template <size_t kApart, size_t kIndex>
  static HWY_INLINE void OrderApart(V* v) {
    if constexpr (kIndex / kApart % 2 == 0) OrderLanes(v[kIndex], v[kIndex + kApart]);
  }

  static constexpr std::make_index_sequence<kCount> kAll = {};

  V largest_[kCount], nan_;
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_SHORT_LARGEST_INL_H_

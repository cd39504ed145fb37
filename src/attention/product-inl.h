// Products of small matrices, which attention uses before and after the map of each row of scores.

#if defined(ISENTROPIC_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ATTENTION_PRODUCT_INL_H_
#undef ISENTROPIC_ATTENTION_PRODUCT_INL_H_
#else
#define ISENTROPIC_ATTENTION_PRODUCT_INL_H_
#endif

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// A block of C has kBlockRows x kBlockVectors vectors, all in registers: 24 of 32, or 12 of 16.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
inline constexpr size_t kBlockVectors = 2;
#else
inline constexpr size_t kBlockVectors = 4;
#endif
inline constexpr size_t kBlockRows = 6;

// The number of terms that are summed one after the other before the sum is added to C.
inline constexpr size_t kTermsAtOnce = 128;

// A matrix whose entry (i, k) is data[i * row + k * col].
template <class T>
struct Factor {
  const T* data;
  ptrdiff_t row, col;

  HWY_INLINE Factor At(size_t i, size_t k) const {
    return {data + static_cast<ptrdiff_t>(i) * row + static_cast<ptrdiff_t>(k) * col, row, col};
  }
};

// One block: C = A B or C += A B, each entry one sum over k in order, by FMA: the bits do not depend on the vector width.
// count: the number of lanes in use of the last vector.
template <size_t kRows, size_t kVectors, bool kAdd, class D, class T = hn::TFromD<D>>
HWY_INLINE void ProductBlock(D d, Factor<T> a, const T* HWY_RESTRICT b, ptrdiff_t b_row, size_t terms, T* HWY_RESTRICT c,
                             ptrdiff_t c_row, size_t count) {
  const size_t N = hn::Lanes(d);
  if constexpr (kAdd) {  // C may come from far; the sums take longer
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kVectors * N * sizeof(T); j += 64) {
        __builtin_prefetch(reinterpret_cast<const char*>(c + static_cast<ptrdiff_t>(i) * c_row) + j, 1);
      }
    }
  }
  hn::Vec<D> sum[kRows][kVectors];
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kVectors; ++j) sum[i][j] = hn::Zero(d);
  }
  for (size_t k = 0; k < terms; ++k) {
    hn::Vec<D> bk[kVectors];
    for (size_t j = 0; j + 1 < kVectors; ++j) bk[j] = hn::LoadU(d, b + j * N);
    bk[kVectors - 1] = LoadUpTo(d, b + (kVectors - 1) * N, count, T(0));
    for (size_t i = 0; i < kRows; ++i) {
      const auto ai = hn::Set(d, a.data[static_cast<ptrdiff_t>(i) * a.row]);
      for (size_t j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(ai, bk[j], sum[i][j]);
    }
    a.data += a.col;
    b += b_row;
  }
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kVectors; ++j) {
      T* const to = c + static_cast<ptrdiff_t>(i) * c_row + j * N;
      const size_t lanes = j + 1 < kVectors ? N : count;
      StoreUpTo(kAdd ? hn::Add(LoadUpTo(d, to, lanes, T(0)), sum[i][j]) : sum[i][j], d, lanes, to);
    }
  }
}

template <size_t kVectors, bool kAdd, class D, class T = hn::TFromD<D>>
HWY_INLINE void ProductColumns(D d, Factor<T> a, size_t rows, const T* b, ptrdiff_t b_row, size_t terms, T* c, ptrdiff_t c_row,
                               size_t count) {
  size_t i = 0;
  const auto at = [&](size_t row) { return c + static_cast<ptrdiff_t>(row) * c_row; };
  for (; i + kBlockRows <= rows; i += kBlockRows) {
    ProductBlock<kBlockRows, kVectors, kAdd>(d, a.At(i, 0), b, b_row, terms, at(i), c_row, count);
  }
  for (; i + 2 <= rows; i += 2) ProductBlock<2, kVectors, kAdd>(d, a.At(i, 0), b, b_row, terms, at(i), c_row, count);
  if (i < rows) ProductBlock<1, kVectors, kAdd>(d, a.At(i, 0), b, b_row, terms, at(i), c_row, count);
}

// C = A B or C += A B, rows x cols, over `terms` terms. B's and C's rows are contiguous.
template <bool kAdd, class T>
HWY_INLINE void ProductPart(Factor<T> a, size_t rows, const T* b, ptrdiff_t b_row, size_t terms, T* c, ptrdiff_t c_row,
                            size_t cols) {
  const RowTag<T> d;
  const size_t N = hn::Lanes(d), block = kBlockVectors * N;
  size_t j = 0;
  for (; j + block <= cols; j += block) {
    ProductColumns<kBlockVectors, kAdd>(d, a, rows, b + j, b_row, terms, c + j, c_row, N);
  }
  for (; j < cols; j += N) {
    ProductColumns<1, kAdd>(d, a, rows, b + j, b_row, terms, c + j, c_row, HWY_MIN(N, cols - j));
  }
}

// C = A B or C += A B in blocks of terms, so that the error only grows with the number of blocks and B's block stays in the
// cache.
template <class T>
HWY_NOINLINE void Product(bool add, Factor<T> a, size_t rows, const T* b, ptrdiff_t b_row, size_t terms, T* c, ptrdiff_t c_row,
                          size_t cols) {
  if (terms == 0 && !add) {
    for (size_t i = 0; i < rows; ++i) FillRow(RowTag<T>(), T(0), cols, c + static_cast<ptrdiff_t>(i) * c_row);
  }
  for (size_t k = 0; k < terms; k += kTermsAtOnce) {
    const size_t count = HWY_MIN(kTermsAtOnce, terms - k);
    const T* const part = b + static_cast<ptrdiff_t>(k) * b_row;
    if (add || k > 0) {
      ProductPart<true>(a.At(0, k), rows, part, b_row, count, c, c_row, cols);
    } else {
      ProductPart<false>(a.At(0, k), rows, part, b_row, count, c, c_row, cols);
    }
  }
}

// Whether all numbers are finite. An infinite one times the weight 0 would reach queries that do not see it.
template <class T>
HWY_INLINE bool AreFinite(const T* x, ptrdiff_t stride, size_t rows, size_t cols) {
  const RowTag<T> d;
  auto nothing = hn::Zero(d);
  for (size_t r = 0; r < rows; ++r) {
    const T* const row = x + static_cast<ptrdiff_t>(r) * stride;
    QuickForEachVector(d, cols, [&](size_t i, size_t count) HWY_ATTR {
      const auto xi = LoadUpTo(d, row + i, count, T(0));
      nothing = hn::Or(nothing, hn::Sub(xi, xi));  // the bits of 0, or of a NaN
    });
  }
  return hn::AllTrue(d, hn::Eq(nothing, hn::Zero(d)));
}

// Product, but a weight of 0 in A hides what it multiplies: numbers of B that are not finite are 0 there. Every entry adds the
// same terms in the same order as Product, so an entry that sees only finite numbers has the same bits, whatever is hidden.
template <class T>
HWY_NOINLINE void ProductOfSeen(bool add, Factor<T> a, size_t rows, const T* b, ptrdiff_t b_row, size_t terms, T* c,
                                ptrdiff_t c_row, size_t cols) {
  const RowTag<T> d;
  for (size_t i = 0; i < rows; ++i) {
    T* const to = c + static_cast<ptrdiff_t>(i) * c_row;
    if (terms == 0 && !add) FillRow(d, T(0), cols, to);
    QuickForEachVector(d, cols, [&](size_t j, size_t count) HWY_ATTR {
      for (size_t begin = 0; begin < terms; begin += kTermsAtOnce) {
        auto sum = hn::Zero(d);
        for (size_t k = begin; k < HWY_MIN(begin + kTermsAtOnce, terms); ++k) {
          const T weight = *a.At(i, k).data;
          auto bk = LoadUpTo(d, b + static_cast<ptrdiff_t>(k) * b_row + j, count, T(0));
          if (weight == 0) bk = hn::IfThenElseZero(hn::Eq(hn::Sub(bk, bk), hn::Zero(d)), bk);
          sum = hn::MulAdd(hn::Set(d, weight), bk, sum);
        }
        StoreUpTo(add || begin > 0 ? hn::Add(LoadUpTo(d, to + j, count, T(0)), sum) : sum, d, count, to + j);
      }
    });
  }
}

// C += A B. `hides`: whether numbers of B that are not finite may be hidden.
template <class T>
HWY_INLINE void AddProduct(bool hides, Factor<T> a, size_t rows, const T* b, ptrdiff_t b_row, size_t terms, T* c,
                           ptrdiff_t c_row, size_t cols) {
  (hides ? ProductOfSeen<T> : Product<T>)(true, a, rows, b, b_row, terms, c, c_row, cols);
}

// Columns of a block of B: a block of terms of one panel is one piece of memory.
template <class T>
inline constexpr size_t kPanel = kBlockVectors* hn::MaxLanes(RowTag<T>());

// The transpose of x, n x d, in panels of kPanel<T> columns: panel j / kPanel<T> has d rows of kPanel<T>, zeros beyond n.
template <class T>
HWY_NOINLINE void PackTransposed(const T* x, ptrdiff_t x_row, size_t n, size_t d, T* packed) {
  for (size_t j0 = 0; j0 < n; j0 += kPanel<T>, packed += d * kPanel<T>) {
    const size_t cols = HWY_MIN(kPanel<T>, n - j0);
    // A few entries of each row at a time: they share a cache line.
    for (size_t c0 = 0; c0 < d; c0 += 16) {
      const size_t c1 = HWY_MIN(c0 + 16, d);
      for (size_t j = 0; j < cols; ++j) {
        const T* const from = x + static_cast<ptrdiff_t>(j0 + j) * x_row;
        for (size_t c = c0; c < c1; ++c) packed[c * kPanel<T> + j] = from[c];
      }
    }
    for (size_t c = 0; c < d && cols < kPanel<T>; ++c) {
      for (size_t j = cols; j < kPanel<T>; ++j) packed[c * kPanel<T> + j] = T(0);
    }
  }
}

// C = A x^T for x in panels: rows x n, with room for whole panels.
template <class T>
HWY_INLINE void ProductWithPanels(Factor<T> a, size_t rows, const T* packed, size_t d, size_t n, T* c, ptrdiff_t c_row) {
  for (size_t j = 0; j < n; j += kPanel<T>, packed += d * kPanel<T>) {
    Product(false, a, rows, packed, static_cast<ptrdiff_t>(kPanel<T>), d, c + j, c_row, kPanel<T>);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ATTENTION_PRODUCT_INL_H_

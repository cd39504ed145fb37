// Short rows, several side by side in the lanes.
//
// A row of 64 is four vectors. By itself it would spend most of its time in sums across lanes and in waiting for them. Here, as
// many rows as a 128-bit block has lanes (4 of float32, 2 of float64) are transposed inside the blocks, so that every lane
// belongs to one row and a sum over a row is a sum of vectors; across blocks it is folded once for all rows.
//
// Column i of a row is in block (i mod 16) / rows, vector i mod rows; a sum adds the columns of equal i mod 16 in order, then
// folds these 16. The layout, and so every bit, depends only on n: the last group is filled with copies.

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/short-inl.h"
#elif defined(ISENTROPIC_ROWS_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_SHORT_INL_H_
#undef ISENTROPIC_ROWS_SHORT_INL_H_
#else
#define ISENTROPIC_ROWS_SHORT_INL_H_
#endif

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Transposes the 128-bit blocks of 4 (float32) or 2 (float64) vectors. Its own inverse.
HWY_INLINE void TransposeBlocks(RowTag<float> d, hn::Vec<RowTag<float>>* v) {
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)v;
#else
  const auto t0 = hn::InterleaveLower(d, v[0], v[2]);
  const auto t1 = hn::InterleaveLower(d, v[1], v[3]);
  const auto t2 = hn::InterleaveUpper(d, v[0], v[2]);
  const auto t3 = hn::InterleaveUpper(d, v[1], v[3]);
  v[0] = hn::InterleaveLower(d, t0, t1);
  v[1] = hn::InterleaveUpper(d, t0, t1);
  v[2] = hn::InterleaveLower(d, t2, t3);
  v[3] = hn::InterleaveUpper(d, t2, t3);
#endif
}
HWY_INLINE void TransposeBlocks(D64 d, V64* v) {
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)v;
#else
  const auto t = hn::InterleaveLower(d, v[0], v[1]);
  v[1] = hn::InterleaveUpper(d, v[0], v[1]);
  v[0] = t;
#endif
}

template <class T>
class ShortRows {
 public:
  using D = RowTag<T>;
  using V = hn::Vec<D>;
  static constexpr size_t kLongest = 64;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kLanes64 = hn::MaxLanes(D64());
  // Rows in a group. The scalar target has lanes for one.
  static constexpr size_t kRows = HWY_MIN(16 / sizeof(T), kLanes);
  // A chunk is 16 columns of all rows; a span of it, kRows vectors, has kLanes columns.
  static constexpr size_t kSpans = 16 / kLanes;
  static constexpr size_t kVectors = kSpans * kRows;
  static constexpr size_t kWide = 16 * kRows / kLanes64;  // float64 vectors in a chunk

  HWY_INLINE ShortRows() = default;
  HWY_INLINE explicit ShortRows(size_t n) : n_(n), chunks_((n + 15) / 16) {}

  HWY_INLINE size_t size() const { return n_; }
  HWY_INLINE void Resize(size_t n) { n_ = n, chunks_ = (n + 15) / 16; }

  // rows[i] for i < kRows may repeat. Columns beyond n become `fill`, a lower bound. Returns the maximum of each row in all its
  // lanes, with NaN as in RowMax.
  HWY_INLINE V Load(const T* const* rows, T fill) {
    V max = hn::Set(d_, fill);
    for (size_t column = 0; column < chunks_ * 16; column += kLanes) {
      V v[kRows];
      for (size_t r = 0; r < kRows; ++r) {
        v[r] = column + kLanes <= n_ ? hn::LoadU(d_, rows[r] + column)
               : column < n_         ? LoadUpTo(d_, rows[r] + column, n_ - column, fill)
                                     : hn::Set(d_, fill);
      }
      TransposeBlocks(d_, v);
      for (size_t j = 0; j < kRows; ++j) {
        max = hn::Max(v[j], max);
        hn::Store(v[j], d_, entries_ + column * kRows + j * kLanes);
      }
    }
    return SpreadMax(max);
  }

  // Writes f(entry) to the first `count` rows.
  template <class F>
  HWY_INLINE void Store(T* const* rows, size_t count, F&& f) const {
    for (size_t column = 0; column < n_; column += kLanes) {
      V v[kRows];
      for (size_t j = 0; j < kRows; ++j) v[j] = f(hn::Load(d_, entries_ + column * kRows + j * kLanes));
      TransposeBlocks(d_, v);
      if (column + kLanes <= n_ && count == kRows) {
        for (size_t r = 0; r < kRows; ++r) hn::StoreU(v[r], d_, rows[r] + column);
      } else {
        for (size_t r = 0; r < count; ++r) StoreUpTo(v[r], d_, n_ - column, rows[r] + column);
      }
    }
  }

  // Writes f(entry, the entry of `other` at its place) to the first `count` rows.
  template <class F>
  HWY_INLINE void Store(T* const* rows, size_t count, const ShortRows& other, F&& f) const {
    size_t at = 0;
    Store(rows, count, [&](V entry) HWY_ATTR {
      const V result = f(entry, hn::Load(d_, other.entries_ + at));
      at += kLanes;
      return result;
    });
  }

  // entry = f(entry) for all.
  template <class F>
  HWY_INLINE void Transform(F&& f) {
    for (size_t at = 0; at < chunks_ * kVectors * kLanes; at += kLanes) {
      hn::Store(f(hn::Load(d_, entries_ + at)), d_, entries_ + at);
    }
  }

  // entry = f(entry) for all, and sums[r] = the sum of the results in row r.
  template <class F>
  HWY_INLINE void TransformAndSum(double* sums, F&& f) {
    V acc[1][kVectors];
    AddColumns(acc, [&](size_t at, V(&sum)[1]) HWY_ATTR {
      const V y = f(hn::Load(d_, entries_ + at));
      hn::Store(y, d_, entries_ + at);
      sum[0] = hn::Add(sum[0], y);
    });
    Fold(acc[0], sums);
  }

  // sums[k] = in every lane of a row the sum over the row of term k, in T: visit(entries, terms) gives K vectors of terms.
  template <size_t K, class Visit>
  HWY_INLINE void Sums(V (&sums)[K], Visit&& visit) const {
    FusedSums(sums, [&](V entry, V(&sum)[K]) HWY_ATTR {
      V terms[K];
      visit(entry, terms);
      for (size_t k = 0; k < K; ++k) sum[k] = hn::Add(sum[k], terms[k]);
    });
  }

  // The same sums, but add(entries, acc) adds the terms to the K accumulators itself, by fused operations if a term is a
  // product.
  template <size_t K, class Add>
  HWY_INLINE void FusedSums(V (&sums)[K], Add&& add) const {
    V acc[K][kVectors];
    AddColumns(acc, [&](size_t at, V(&sum)[K]) HWY_ATTR { add(hn::Load(d_, entries_ + at), sum); });
    for (size_t k = 0; k < K; ++k) sums[k] = FoldSpread(acc[k]);
  }

  // FusedSums in which add(entries, acc) returns what becomes the entries of `first`.
  template <size_t K, class Add>
  HWY_INLINE void SumsInto(ShortRows& first, V (&sums)[K], Add&& add) const {
    V acc[K][kVectors];
    AddColumns(acc, [&](size_t at, V(&sum)[K])
                        HWY_ATTR { hn::Store(add(hn::Load(d_, entries_ + at), sum), d_, first.entries_ + at); });
    for (size_t k = 0; k < K; ++k) sums[k] = FoldSpread(acc[k]);
  }

  // sums[k][r] = the sum over row r of term k, added in float64 across columns of different i mod 16; the first terms become
  // the entries of `first`, which may be this.
  template <size_t K, class Visit>
  HWY_INLINE void SumsInto(ShortRows& first, double (&sums)[K][16], Visit&& visit) const {
    SumsInto(*this, first, sums, [&](V entry, V /*other*/, V(&terms)[K]) HWY_ATTR { visit(entry, terms); });
  }

  // SumsInto in which visit gets the entry of `other` as well.
  template <size_t K, class Visit>
  HWY_INLINE void SumsInto(const ShortRows& other, ShortRows& first, double (&sums)[K][16], Visit&& visit) const {
    V acc[K][kVectors];
    AddColumns(acc, [&](size_t at, V(&sum)[K]) HWY_ATTR {
      V terms[K];
      visit(hn::Load(d_, entries_ + at), hn::Load(d_, other.entries_ + at), terms);
      hn::Store(terms[0], d_, first.entries_ + at);
      for (size_t k = 0; k < K; ++k) sum[k] = hn::Add(sum[k], terms[k]);
    });
    for (size_t k = 0; k < K; ++k) Fold(acc[k], sums[k]);
  }

  // The largest f(entry) of each row in all its lanes.
  template <class F>
  HWY_INLINE V Largest(F&& f) const {
    V max = f(hn::Load(d_, entries_));
    for (size_t v = 1; v < chunks_ * kVectors; ++v) max = hn::Max(f(hn::Load(d_, entries_ + v * kLanes)), max);
    return SpreadMax(max);
  }

  // The largest f(entry, the entry of `other` at its place) of each row in all its lanes.
  template <class F>
  HWY_INLINE V Largest(const ShortRows& other, F&& f) const {
    size_t at = 0;
    return Largest([&](V entry) HWY_ATTR {
      const V value = f(entry, hn::Load(d_, other.entries_ + at));
      at += kLanes;
      return value;
    });
  }

  // The vectors of entries; kRows of them have kLanes columns.
  HWY_INLINE size_t vectors() const { return chunks_ * kVectors; }
  HWY_INLINE V Vector(size_t v) const { return hn::Load(d_, entries_ + v * kLanes); }

  // Entry i of row r.
  HWY_INLINE T At(size_t r, size_t i) const {
    const size_t in_span = i % kLanes;
    return entries_[i / kLanes * kLanes * kRows + in_span % kRows * kLanes + in_span / kRows * kRows + r];
  }

  // The smallest of a row's lanes, in all of these lanes.
  static HWY_INLINE V SpreadMin(V min) { return hn::Neg(SpreadMax(hn::Neg(min))); }

  // One number for each row, in the lanes of that row.
  HWY_INLINE V Spread(const T* per_row) const {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d_, per_row[0]);
#else
    return hn::LoadDup128(d_, per_row);
#endif
  }

 private:
  // add(at, sum) adds the terms of the entries at `at` to the K sums. It takes one vector of a chunk after the other, with one
  // accumulator for each term.
  template <size_t K, class Add>
  HWY_INLINE void AddColumns(V (&acc)[K][kVectors], Add&& add) const {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 1
#endif
    for (size_t v = 0; v < kVectors; ++v) {
      V sum[K];
      for (size_t k = 0; k < K; ++k) sum[k] = hn::Zero(d_);
      for (size_t chunk = 0; chunk < chunks_; ++chunk) add((chunk * kVectors + v) * kLanes, sum);
      for (size_t k = 0; k < K; ++k) acc[k][v] = sum[k];
    }
  }

  // The maximum of a row's lanes, in all of these lanes.
  static HWY_INLINE V SpreadMax(V max) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kLanes / kRows >= 4) max = hn::Max(max, hn::ConcatLowerUpper(D(), max, max));
    if constexpr (kLanes / kRows >= 2) max = hn::Max(max, hn::SwapAdjacentBlocks(max));
#endif
    return max;
  }

  // Folds the 16 columns of a chunk, with the result in every lane of the row: first the vectors of a span, then spans, then
  // blocks, whose halves are swapped rather than dropped. Every target folds the same pairs.
  static HWY_INLINE V FoldSpread(const V* acc) {
    V span[kSpans];
    for (size_t g = 0; g < kSpans; ++g) span[g] = FoldSpan(acc + g * kRows);
    for (size_t half = kSpans / 2; half > 0; half /= 2) {
      for (size_t g = 0; g < half; ++g) span[g] = hn::Add(span[g], span[g + half]);
    }
    V sum = span[0];
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kLanes / kRows >= 4) sum = hn::Add(sum, hn::ConcatLowerUpper(D(), sum, sum));
    if constexpr (kLanes / kRows >= 2) sum = hn::Add(sum, hn::SwapAdjacentBlocks(sum));
#endif
    return sum;
  }

  template <class W>
  static HWY_INLINE W FoldSpan(const W* v) {
    if constexpr (kRows == 4) {
      return hn::Add(hn::Add(v[0], v[2]), hn::Add(v[1], v[3]));
    } else if constexpr (kRows == 2) {
      return hn::Add(v[0], v[1]);
    } else {
      return v[0];
    }
  }

  static HWY_INLINE void Fold(const V* acc, double* sums) {
    V64 wide[kWide];
    for (size_t v = 0; v < kVectors; ++v) {
      if constexpr (sizeof(T) == 8) {
        wide[v] = acc[v];
      } else {
#if HWY_TARGET == HWY_SCALAR
        wide[v] = hn::PromoteTo(D64(), acc[v]);
#else
        const hn::Half<D> half;
        wide[2 * v] = hn::PromoteTo(D64(), hn::LowerHalf(half, acc[v]));
        wide[2 * v + 1] = hn::PromoteTo(D64(), hn::UpperHalf(half, acc[v]));
#endif
      }
    }
    FoldWide(wide, sums);
  }

  // The fold in float64, where a vector of T is one or two vectors. The result is one number for each row.
  static HWY_INLINE void FoldWide(const V64* wide, double* sums) {
    constexpr size_t kParts = kWide / kVectors;
    V64 part[kSpans * kParts];
    for (size_t g = 0; g < kSpans; ++g) {
      for (size_t i = 0; i < kParts; ++i) {
        V64 v[kRows];
        for (size_t j = 0; j < kRows; ++j) v[j] = wide[(g * kRows + j) * kParts + i];
        part[g * kParts + i] = FoldSpan(v);
      }
    }
    size_t parts = kSpans * kParts;
    for (; parts > 1 && parts * kLanes64 > kRows; parts /= 2) {
      for (size_t i = 0; i < parts / 2; ++i) part[i] = hn::Add(part[i], part[i + parts / 2]);
    }
    for (size_t i = 0; i < parts; ++i) FoldBlocks(D64(), part[i], sums + i * kLanes64);
  }

  template <class DD>
  static HWY_INLINE void FoldBlocks(DD d, hn::Vec<DD> v, double* out) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (hn::MaxLanes(DD()) > kRows) {
      const hn::Half<DD> half;
      return FoldBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), out);
    } else
#endif
    {
      hn::StoreU(v, d, out);
    }
  }

  D d_;
  size_t n_ = 0, chunks_ = 0;
  HWY_ALIGN T entries_[kLongest * kRows];
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_SHORT_INL_H_

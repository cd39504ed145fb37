// On a device: one thread has a short row, and its neighbours have the rows beside it.
#pragma once

#include "src/rows/device/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
class ShortRows {
 public:
  using D = RowTag<T>;
  using V = hn::Vec<D>;
  static constexpr size_t kLongest = 64, kLanes = 1, kLanes64 = 1, kRows = 1;

  ShortRows() = default;
  HWY_INLINE explicit ShortRows(size_t n) { Resize(n); }

  HWY_INLINE size_t size() const { return n_; }
  HWY_INLINE void Resize(size_t n) { n_ = n, padded_ = (n + 15) / 16 * 16; }

  HWY_INLINE V Load(const T* const* rows, T fill) {
    T max = fill;
    for (size_t i = 0; i < padded_; ++i) {
      entries_[i] = i < n_ ? rows[0][i] : fill;
      max = entries_[i] > max ? entries_[i] : max;
    }
    return hn::Set(D(), max);
  }

  static HWY_INLINE V SpreadMin(V min) { return min; }

  template <class F>
  HWY_INLINE void Store(T* const* rows, size_t /*count*/, F&& f) const {
    for (size_t i = 0; i < n_; ++i) rows[0][i] = hn::GetLane(f(At(i)));
  }

  template <class F>
  HWY_INLINE void Store(T* const* rows, size_t /*count*/, const ShortRows& other, F&& f) const {
    for (size_t i = 0; i < n_; ++i) rows[0][i] = hn::GetLane(f(At(i), other.At(i)));
  }

  template <class F>
  HWY_INLINE void Transform(F&& f) {
    for (size_t i = 0; i < padded_; ++i) entries_[i] = hn::GetLane(f(At(i)));
  }

  template <class F>
  HWY_INLINE void TransformAndSum(double* sums, F&& f) {
    T acc[16] = {};
    for (size_t i = 0; i < padded_; ++i) {
      entries_[i] = hn::GetLane(f(At(i)));
      acc[i % 16] = acc[i % 16] + entries_[i];
    }
    sums[0] = Fold<double>(acc);
  }

  template <size_t K, class Visit>
  HWY_INLINE void Sums(V (&sums)[K], Visit&& visit) const {
    FusedSums(sums, [&](V entry, V* acc) HWY_ATTR {
      V terms[K];
      visit(entry, terms);
      for (size_t k = 0; k < K; ++k) acc[k] = hn::Add(acc[k], terms[k]);
    });
  }

  template <size_t K, class Add>
  HWY_INLINE void FusedSums(V (&sums)[K], Add&& add) const {
    T acc[K][16];
    for (size_t column = 0; column < 16; ++column) {
      V sum[K];
      for (size_t k = 0; k < K; ++k) sum[k] = hn::Zero(D());
      for (size_t i = column; i < padded_; i += 16) add(At(i), sum);
      for (size_t k = 0; k < K; ++k) acc[k][column] = hn::GetLane(sum[k]);
    }
    for (size_t k = 0; k < K; ++k) sums[k] = hn::Set(D(), Fold<T>(acc[k]));
  }

  template <size_t K, class Visit>
  HWY_INLINE void SumsInto(ShortRows& first, double (&sums)[K][16], Visit&& visit) const {
    SumsInto(*this, first, sums, [&](V entry, V /*other*/, V(&terms)[K]) HWY_ATTR { visit(entry, terms); });
  }

  template <size_t K, class Visit>
  HWY_INLINE void SumsInto(const ShortRows& other, ShortRows& first, double (&sums)[K][16], Visit&& visit) const {
    T acc[K][16] = {};
    for (size_t i = 0; i < padded_; ++i) {
      V terms[K];
      visit(At(i), other.At(i), terms);
      first.entries_[i] = hn::GetLane(terms[0]);
      for (size_t k = 0; k < K; ++k) acc[k][i % 16] = acc[k][i % 16] + hn::GetLane(terms[k]);
    }
    for (size_t k = 0; k < K; ++k) sums[k][0] = Fold<double>(acc[k]);
  }

  template <size_t K, class Add>
  HWY_INLINE void SumsInto(ShortRows& first, V (&sums)[K], Add&& add) const {
    T acc[K][16];
    for (size_t column = 0; column < 16; ++column) {
      V sum[K];
      for (size_t k = 0; k < K; ++k) sum[k] = hn::Zero(D());
      for (size_t i = column; i < padded_; i += 16) first.entries_[i] = hn::GetLane(add(At(i), sum));
      for (size_t k = 0; k < K; ++k) acc[k][column] = hn::GetLane(sum[k]);
    }
    for (size_t k = 0; k < K; ++k) sums[k] = hn::Set(D(), Fold<T>(acc[k]));
  }

  template <class F>
  HWY_INLINE V Largest(F&& f) const {
    return Largest(*this, [&](V entry, V /*other*/) HWY_ATTR { return f(entry); });
  }

  template <class F>
  HWY_INLINE V Largest(const ShortRows& other, F&& f) const {
    V max = f(At(0), other.At(0));
    for (size_t i = 1; i < padded_; ++i) max = hn::Max(f(At(i), other.At(i)), max);
    return max;
  }

  HWY_INLINE size_t vectors() const { return padded_; }
  HWY_INLINE V Vector(size_t v) const { return At(v); }

  HWY_INLINE T At(size_t /*r*/, size_t i) const { return entries_[i]; }
  HWY_INLINE V Spread(const T* per_row) const { return hn::Set(D(), per_row[0]); }

 private:
  HWY_INLINE V At(size_t i) const { return hn::Set(D(), entries_[i]); }

  // Folds the 16 columns in the host's order: first inside the 128-bit blocks of its vectors, then block b with block b + half.
  template <class N>
  static HWY_INLINE N Fold(const T* acc) {
    constexpr size_t kInBlock = 16 / sizeof(T), kBlocks = 16 / kInBlock;
    N block[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b) {
      const T* const v = acc + b * kInBlock;
      if constexpr (kInBlock == 4) {
        block[b] = (static_cast<N>(v[0]) + static_cast<N>(v[2])) + (static_cast<N>(v[1]) + static_cast<N>(v[3]));
      } else {
        block[b] = static_cast<N>(v[0]) + static_cast<N>(v[1]);
      }
    }
    for (size_t half = kBlocks / 2; half > 0; half /= 2) {
      for (size_t b = 0; b < half; ++b) block[b] = block[b] + block[b + half];
    }
    return block[0];
  }

  size_t n_ = 0, padded_ = 0;
  T entries_[kLongest];
};

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

// Rows of which only the scores that may have mass are left, for entmax with alpha above 1.

#if defined(ISENTROPIC_MAPS_FILTERED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_FILTERED_ROWS_INL_H_
#undef ISENTROPIC_MAPS_FILTERED_ROWS_INL_H_
#else
#define ISENTROPIC_MAPS_FILTERED_ROWS_INL_H_
#endif

#include "src/maps/threshold_start-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Rows that go side by side: the search of one alone waits for its own results.
template <class T>
inline constexpr size_t kSearches = 16 / sizeof(T);

// A row of which only the scores above a bound are left, as u = b (x - max)/T.
template <class T>
struct Filtered {
  T least;  // the bound: -c is not below it
  Survivors<T> survivors;
  size_t kept;
};

// The relative scores u of a row.
template <class T>
HWY_INLINE RelativeScores<RowTag<T>> Bent(double b, double temperature, T max) {
  return RelativeScores<RowTag<T>>(hn::Set(RowTag<T>(), max), temperature / b);
}

// Filters rows by the bounds bound(relative, x) of each, all bounds first: one does not wait for another.
template <bool kPlaces, class T, class Bound>
HWY_INLINE void FilterRows(double b, double temperature, const T* const* x, size_t n, const T* max, size_t rows, Arena memory,
                           Filtered<T>* filtered, Bound&& bound) {
  const RowTag<T> d;
  for (size_t r = 0; r < rows; ++r) filtered[r].least = bound(Bent(b, temperature, max[r]), x[r]);
  for (size_t r = 0; r < rows; ++r) {
    filtered[r].survivors = Survivors<T>(memory, n);
    filtered[r].kept = FilterAbove<kPlaces>(d, Bent(b, temperature, max[r]), x[r], n, filtered[r].least, filtered[r].survivors);
  }
}

template <bool kPlaces, class T>
HWY_INLINE void FilterRows(double b, double temperature, const T* const* x, size_t n, const T* max, size_t rows, Arena memory,
                           Filtered<T>* filtered) {
  FilterRows<kPlaces>(b, temperature, x, n, max, rows, memory, filtered, [&](const auto& relative, const T* row) HWY_ATTR {
    return LeastThreshold(RowTag<T>(), b, relative, row, n);
  });
}

template <class T>
HWY_INLINE size_t MostKept(const Filtered<T>* filtered, size_t rows) {
  size_t most = 0;
  for (size_t r = 0; r < rows; ++r) most = HWY_MAX(most, filtered[r].kept);
  return most;
}

// p = the masses of the survivors at their places, divided by `sum`, and 0 elsewhere.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void Scatter(D d, const T* masses, const hwy::MakeSigned<T>* places, size_t kept, double sum, size_t n, T* p,
                        bool stream) {
  QuickWriteRow(d, stream, n, p, [&](size_t /*i*/, size_t /*count*/) HWY_ATTR { return hn::Zero(d); });
  const T factor = static_cast<T>(1 / sum);
  ForEachVector(d, kept, [&](size_t i, size_t count) HWY_ATTR {
    for (size_t k = i; k < i + count; ++k) p[places[k]] = masses[k] * factor;
  });
}

// For masses that cost some 20 operations, which those of alpha = 1.5 do not: the few survivors' are taken once each and put in
// their places.
template <class T>
HWY_INLINE void WriteFew(const Filtered<T>& row, T sum, size_t n, T* p, bool stream) {
  const RowTag<T> d;
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  Scatter(d, row.survivors.z, row.survivors.places, row.kept, static_cast<double>(sum), n, p, stream);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_FILTERED_ROWS_INL_H_

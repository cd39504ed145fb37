// The sums that the search for a sparse map's threshold needs, and a start value from a part of the row.

#if defined(ISENTROPIC_MAPS_THRESHOLD_START_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_THRESHOLD_START_INL_H_
#undef ISENTROPIC_MAPS_THRESHOLD_START_INL_H_
#else
#define ISENTROPIC_MAPS_THRESHOLD_START_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/few-inl.h"
#include "src/rows/filter-inl.h"
#include "src/rows/threshold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// q^(1/b) for q > 0, otherwise 0. It rises because Log and ExpScaled do. b = 1/2 and b = 1 need neither. For alpha = 3, the
// one that people take above 2, b = 2: a square root, by a branch that is always predicted.
template <class D>
class RootOf {
 public:
  HWY_INLINE RootOf(D d, double b) : exp_(d, b), b_(hn::Set(d, static_cast<hn::TFromD<D>>(b))), square_(b == 2) {}
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> q) const {
    if (square_) return hn::IfThenZeroElse(hn::Le(q, hn::Zero(d)), hn::Sqrt(q));
    return hn::IfThenZeroElse(hn::Le(q, hn::Zero(d)), exp_(d, Log(d, q)));
  }
  // The q of a root.
  HWY_INLINE hn::Vec<D> Inverse(D d, hn::Vec<D> root) const {
    if (square_) return hn::IfThenZeroElse(hn::Le(root, hn::Zero(d)), hn::Mul(root, root));
    return hn::IfThenZeroElse(hn::Le(root, hn::Zero(d)), Exp(d, hn::Mul(b_, Log(d, root))));
  }

 private:
  ExpScaled<D> exp_;
  hn::Vec<D> b_;
  bool square_;
};

// q^(1/b) and q^(1/b - 1) of b = 1, 1/2, ... 1/16, by squaring.
template <class D>
class RepeatedSquare {
 public:
  HWY_INLINE explicit RepeatedSquare(double b) : exponent_(static_cast<int>(1 / b)) {}
  HWY_INLINE void operator()(D d, hn::Vec<D> q, hn::Vec<D>* terms) const {
    terms[0] = MaxKeepNaN(hn::Zero(d), q);
    terms[1] = hn::IfThenElseZero(hn::Gt(q, hn::Zero(d)), hn::Set(d, hn::TFromD<D>(1)));
    for (int power = 1; power < exponent_; power *= 2) {
      terms[1] = hn::Mul(terms[1], terms[0]);
      terms[0] = hn::Mul(terms[0], terms[0]);
    }
  }

 private:
  int exponent_;
};

// As Sums, where terms[0] are masses, whose sum is 1 at the root. In float64 each is cut at 2^-30: the upper parts have an
// exact sum, the lower ones, of at most 2^-31, a small one. Otherwise each of many small masses might be rounded where it meets
// a sum near 1. For float32 the sums are float64 already.
template <bool kQuick = false, size_t K, class D, class Visit, class T = hn::TFromD<D>>
HWY_INLINE void MassSums(D d, size_t n, double (&sums)[K], const Visit& visit) {
  if constexpr (sizeof(T) == 4) {
    return kQuick ? QuickSums(d, n, sums, visit) : Sums(d, n, sums, visit);
  } else {
    double parts[K + 1];
    const auto cut = hn::Set(d, T(0x1.8p22));
    const auto in_parts = [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
      visit(i, count, terms);
      terms[K] = hn::Sub(hn::Add(terms[0], cut), cut);
      terms[0] = hn::Sub(terms[0], terms[K]);
    };
    kQuick ? QuickSums(d, n, parts, in_parts) : Sums(d, n, parts, in_parts);
    for (size_t k = 0; k < K; ++k) sums[k] = parts[k];
    sums[0] += parts[K];
  }
}

// LeastThreshold from the maxima of the 64 parts, which load(i) gives.
template <class D, class Load, class T = hn::TFromD<D>>
HWY_INLINE T LeastThresholdOf64(D d, double b, const Load& load) {
  const double power_of_2 = b >= 1 ? 1 : b >= 0.5 ? 0.5 : b >= 0.25 ? 0.25 : b >= 0.125 ? 0.125 : 0.0625;
  const RepeatedSquare<D> root(power_of_2);
  T c = 1;
  for (int steps = 0; steps < 2; ++steps) {
    const auto at = hn::Set(d, c);
    T sums[2];
    PowerSumsOf<64>(
        d, [&](size_t i, hn::Vec<D>* terms) HWY_ATTR { root(d, hn::Add(load(i), at), terms); }, sums);
    c -= BoundNorm::Step(power_of_2, sums[0], sums[1]);
  }
  return -HWY_MIN(c * T(1 + 0x1p-12), T(1));
}

// A lower bound of -c, at least -1. The sum over a part of the row is less than the sum over all, so the c that makes it 1 is
// larger. The part consists of the maxima of 64 parts, which hold most of the mass if that is in few scores. c is raised by
// more than the rounding error of their sums. For 1/16 <= b <= 1; between powers of 2 the next lower one is used, because for
// terms c + u <= 1 a higher power is less.
template <class D, class Relative, class T = hn::TFromD<D>>
HWY_INLINE T LeastThreshold(D d, double b, const Relative& relative, const T* x, size_t n) {
  if (n < 256) return T(-1);
  HWY_ALIGN T u[64];
  PartMaxima(d, x, n, relative, u);
  return LeastThresholdOf64(d, b, [&](size_t i) HWY_ATTR { return hn::LoadU(d, u + i); });
}

// Rows of float32 that go side by side: the search of one alone waits for its own results. In float64 it gains nothing.
template <class T>
inline constexpr size_t kSearches = sizeof(T) == 4 ? 4 : 1;

// The scores of a row above a bound, as u = b (x - max)/T.
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

// Puts the masses of the few survivors, computed once each, in their places. This is for masses that cost some 20 operations,
// which those of alpha = 1.5 do not.
template <class T>
HWY_INLINE void WriteFew(const Filtered<T>& row, T sum, size_t n, T* p, bool stream) {
  const RowTag<T> d;
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  Scatter(d, row.survivors.z, row.survivors.places, row.kept, static_cast<double>(sum), n, p, stream);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_THRESHOLD_START_INL_H_

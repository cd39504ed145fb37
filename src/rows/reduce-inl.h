// Sums and maxima along a row. The order of sums depends only on n.
//
// The order is defined on 16 virtual lanes, for every vector width: element i belongs to lane i mod 16 and, inside a block of
// 256, to one of four accumulators, (i / 16) mod 4. Each accumulator takes at most four terms in the element type, the four are
// folded as (0 + 2) + (1 + 3), and the 16 lanes are added to 16 float64 totals; these are folded last, lane i with lane i +
// half. A float32 sum thus rounds five times at most before it is in float64, for any n, and every target with FMA gets the
// same bits. On AVX-512 the 16 lanes are one register, on AVX2 two, and so on.
//
// A row longer than a group, of 16384, is summed in groups, each as if it were a row. The sum of group g is added to total
// g mod 16 of 16 others, which are folded alike. Groups can be summed in any order, and at the same time (split-inl.h).

#ifdef ISENTROPIC_DEVICE
#include "src/rows/device/reduce-inl.h"
#elif defined(ISENTROPIC_ROWS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_REDUCE_INL_H_
#undef ISENTROPIC_ROWS_REDUCE_INL_H_
#else
#define ISENTROPIC_ROWS_REDUCE_INL_H_
#endif

#include "src/rows/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Folds all lanes in a fixed tree, lane i with lane i + half. The order is defined, which SumOfLanes leaves to the target, and
// -inf counts, which MaxOfLanes of the emulated target ignores.
template <class D, class Fold>
HWY_INLINE hn::TFromD<D> FoldLanes(D d, hn::Vec<D> v, Fold&& fold) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return FoldLanes(half, fold(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), fold);
  } else
#endif
  {
    (void)d, (void)fold;
    return hn::GetLane(v);
  }
}

template <class D>
HWY_INLINE hn::TFromD<D> MaxLane(D d, hn::Vec<D> v) {
  return FoldLanes(d, v, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
}

template <class D>
HWY_INLINE hn::TFromD<D> MinLane(D d, hn::Vec<D> v) {
  return FoldLanes(d, v, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
}

// The largest entry, or -inf if n = 0. If the row has a NaN, the result is NaN or the maximum of some other entries; callers
// find the NaN later (in an exp or a sum).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T RowMax(D d, const T* HWY_RESTRICT x, size_t n) {
  constexpr T kLowest = -kInfinity<T>;
  const size_t N = hn::Lanes(d);
  const auto lowest = hn::Set(d, kLowest);
  auto m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  size_t i = 0;
  // On x86 Max returns its second argument if either is NaN, which drops NaN here.
  for (; i + 4 * N <= n; i += 4 * N) {
    m0 = hn::Max(hn::LoadU(d, x + i), m0);
    m1 = hn::Max(hn::LoadU(d, x + i + N), m1);
    m2 = hn::Max(hn::LoadU(d, x + i + 2 * N), m2);
    m3 = hn::Max(hn::LoadU(d, x + i + 3 * N), m3);
  }
  for (; i + N <= n; i += N) m0 = hn::Max(hn::LoadU(d, x + i), m0);
  if (i < n) m1 = hn::Max(LoadUpTo(d, x + i, n - i, kLowest), m1);
  return MaxLane(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
}

// The 16 float64 lanes, as vectors.
struct Totals {
  using D = D64;
  static constexpr size_t kVectors = 16 / hn::MaxLanes(D());
  hn::Vec<D> v[kVectors];

  HWY_INLINE Totals() { Clear(); }
  HWY_INLINE void Clear() {
    for (auto& lane : v) lane = hn::Zero(D());
  }

  // Adds the terms of virtual lanes [N g, N (g + 1)).
  HWY_INLINE void Add(D64 d, size_t g, V64 terms) {
    (void)d;
    v[g] = hn::Add(v[g], terms);
  }
  HWY_INLINE void Add(RowTag<float> d, size_t g, hn::Vec<RowTag<float>> terms) {
#if HWY_TARGET == HWY_SCALAR
    (void)d;
    v[g] = hn::Add(v[g], hn::PromoteTo(D(), terms));
#else
    const hn::Half<decltype(d)> half;
    v[2 * g] = hn::Add(v[2 * g], hn::PromoteTo(D(), hn::LowerHalf(half, terms)));
    v[2 * g + 1] = hn::Add(v[2 * g + 1], hn::PromoteTo(D(), hn::UpperHalf(half, terms)));
#endif
  }

  HWY_INLINE hn::Vec<D> FoldVectors() const {
    hn::Vec<D> folded[kVectors];
    for (size_t i = 0; i < kVectors; ++i) folded[i] = v[i];
    for (size_t half = kVectors / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) folded[i] = hn::Add(folded[i], folded[i + half]);
    }
    return folded[0];
  }
  HWY_INLINE double Fold() const {
    return FoldLanes(D(), FoldVectors(), [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
  }
#if HWY_MAX_BYTES >= 32
  HWY_INLINE hn::Vec<hn::FixedTag<double, 4>> FoldToFour() const {
    const auto folded = FoldVectors();
#if HWY_MAX_BYTES >= 64
    const hn::Half<D> half;
    return hn::Add(hn::LowerHalf(half, folded), hn::UpperHalf(half, folded));
#else
    return folded;
#endif
  }
#endif
};

// The sums of one row or of four. The last two steps of four rows are done at once.
HWY_INLINE void FoldTotals(const Totals (&totals)[1], double (&sums)[1]) { sums[0] = totals[0].Fold(); }
HWY_INLINE void FoldTotals(const Totals (&totals)[4], double (&sums)[4]) {
#if HWY_MAX_BYTES >= 32
  const hn::FixedTag<double, 4> d;
  const auto t0 = totals[0].FoldToFour(), t1 = totals[1].FoldToFour(), t2 = totals[2].FoldToFour(), t3 = totals[3].FoldToFour();
  const auto t01 = hn::Add(hn::ConcatLowerLower(d, t1, t0), hn::ConcatUpperUpper(d, t1, t0));
  const auto t23 = hn::Add(hn::ConcatLowerLower(d, t3, t2), hn::ConcatUpperUpper(d, t3, t2));
  HWY_ALIGN double folded[4];  // of rows 0, 2, 1, 3
  hn::Store(hn::Add(hn::InterleaveLower(d, t01, t23), hn::InterleaveUpper(d, t01, t23)), d, folded);
  for (size_t r = 0; r < 4; ++r) sums[r] = folded[r % 2 * 2 + r / 2];
#else
  for (size_t r = 0; r < 4; ++r) sums[r] = totals[r].Fold();
#endif
}

// The sums of kCount rows of kVectors vectors, at most 64 elements, in the order of all rows; term(r, i, count) returns the
// terms of row r, which are 0 beyond count. The code has no loops; loops for any n take twice the time.
template <size_t kVectors, size_t kCount, class D, class Term>
HWY_INLINE void SumsOfFewVectors(D d, size_t n, double (&sums)[kCount], const Term& term) {
  constexpr size_t N = hn::MaxLanes(D()), kGroups = HWY_MIN(16 / N, kVectors);
  Totals totals[kCount];
  for (size_t r = 0; r < kCount; ++r) {
    hn::Vec<D> acc[4][kGroups];
    for (auto& of_groups : acc) {
      for (auto& one : of_groups) one = hn::Zero(d);
    }
    for (size_t v = 0; v < kVectors; ++v) {
      acc[v / kGroups][v % kGroups] = term(r, v * N, v + 1 < kVectors ? N : n - (kVectors - 1) * N);
    }
    for (size_t g = 0; g < kGroups; ++g) {
      totals[r].Add(d, g, hn::Add(hn::Add(acc[0][g], acc[2][g]), hn::Add(acc[1][g], acc[3][g])));
    }
  }
  FoldTotals(totals, sums);
}

// The number of elements that are summed as one row, a multiple of 256.
inline constexpr size_t kGroup = 16384;

// The sum of a long row's groups. It is not initialised before Clear, because that would cost a short row a tenth of its time.
class GroupTotals {
 public:
  HWY_INLINE void Clear() {
    for (double& lane : lanes_) lane = 0;
  }
  HWY_INLINE void Add(size_t group, double sum) { lanes_[group % 16] += sum; }
  // Folds the totals, and overwrites them.
  HWY_INLINE double Fold() {
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes_[i] += lanes_[i + half];
    }
    return lanes_[0];
  }

 private:
  double lanes_[16];
};

// Adds `count` terms, at most 256 and a multiple of 64, to the totals.
template <class D>
HWY_NOINLINE void AddTerms(D d, const hn::TFromD<D>* terms, size_t count, Totals& totals) {
  constexpr size_t N = hn::MaxLanes(D());
  for (size_t g = 0; g < 16 / N; ++g) {
    hn::Vec<D> acc[4];
    for (auto& one : acc) one = hn::Zero(d);
    for (size_t i = g * N; i < count; i += 64) {
      for (size_t a = 0; a < 4; ++a) acc[a] = hn::Add(acc[a], hn::Load(d, terms + i + a * 16));
    }
    totals.Add(d, g, hn::Add(hn::Add(acc[0], acc[2]), hn::Add(acc[1], acc[3])));
  }
}

// Adds the terms of the `count` elements from `base` on, at most 256, to the totals. They are stored first, so that
// there are only two copies of the visitor's code.
template <size_t K, class D, class Visit>
HWY_INLINE void AddBlock(D d, size_t base, size_t count, Totals (&totals)[K], const Visit& visit) {
  constexpr size_t N = hn::MaxLanes(D());
  HWY_ALIGN hn::TFromD<D> terms[K][256];
  hn::Vec<D> t[K];
  size_t i = 0;
  for (; i + N <= count; i += N) {
    visit(base + i, N, t);
    for (size_t k = 0; k < K; ++k) hn::Store(t[k], d, terms[k] + i);
  }
  if (count % N != 0) {
    visit(base + i, count - i, t);
    const auto exists = hn::FirstN(d, count - i);
    for (size_t k = 0; k < K; ++k) hn::Store(hn::IfThenElseZero(exists, t[k]), d, terms[k] + i);
    i += N;
  }
  for (; i % 64 != 0; i += N) {
    for (size_t k = 0; k < K; ++k) hn::Store(hn::Zero(d), d, terms[k] + i);
  }
  for (size_t k = 0; k < K; ++k) AddTerms(d, terms[k], i, totals[k]);
}

// sums[k] = sum over the row of term k, in the fixed order. visit(i, count, terms) computes the K terms of the elements
// i .. i + count - 1; it sees each element once. Lanes beyond count are ignored.
//
// Terms of few operations would wait for being stored and loaded: with kQuick those of whole blocks stay in registers, with
// up to 18 copies of the visitor's code.
template <bool kQuick, size_t K, class D, class Visit>
HWY_INLINE void SumsBy(D d, size_t n, double (&sums)[K], const Visit& visit) {
  using V = hn::Vec<D>;
  constexpr size_t N = hn::MaxLanes(D());
  Totals totals[K];
  GroupTotals groups[K];
  const bool grouped = n > kGroup;
  if (HWY_UNLIKELY(grouped)) {
    for (GroupTotals& group : groups) group.Clear();
  }
  for (size_t base = 0; base < n; base += 256) {
    if (!kQuick || n - base < 256) {
      AddBlock(d, base, HWY_MIN(size_t{256}, n - base), totals, visit);
    } else {
      for (size_t g = 0; g < 16 / N; ++g) {
        V acc[4][K];
        for (auto& of_terms : acc) {
          for (V& one : of_terms) one = hn::Zero(d);
        }
        for (size_t i = base + g * N; i < base + 256; i += 64) {
          for (size_t a = 0; a < 4; ++a) {
            V t[K];
            visit(i + a * 16, N, t);
            for (size_t k = 0; k < K; ++k) acc[a][k] = hn::Add(acc[a][k], t[k]);
          }
        }
        for (size_t k = 0; k < K; ++k) {
          totals[k].Add(d, g, hn::Add(hn::Add(acc[0][k], acc[2][k]), hn::Add(acc[1][k], acc[3][k])));
        }
      }
    }
    if (HWY_UNLIKELY(grouped) && ((base + 256) % kGroup == 0 || base + 256 >= n)) {
      for (size_t k = 0; k < K; ++k) groups[k].Add(base / kGroup, totals[k].Fold()), totals[k].Clear();
    }
  }
  for (size_t k = 0; k < K; ++k) sums[k] = grouped ? groups[k].Fold() : totals[k].Fold();
}

template <size_t K, class D, class Visit>
HWY_INLINE void Sums(D d, size_t n, double (&sums)[K], const Visit& visit) {
  SumsBy<false>(d, n, sums, visit);
}
template <size_t K, class D, class Visit>
HWY_INLINE void QuickSums(D d, size_t n, double (&sums)[K], const Visit& visit) {
  SumsBy<true>(d, n, sums, visit);
}

// As Sums, for terms of the numbers of x: visit(i, count, x_i, terms). Those beyond the end are `fill`.
template <size_t K, class D, class Visit, class T = hn::TFromD<D>>
HWY_INLINE void SumsOfRow(D d, const T* x, size_t n, T fill, double (&sums)[K], Visit&& visit) {
  Sums(d, n, sums,
       [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR { visit(i, count, LoadUpTo(d, x + i, count, fill), terms); });
}

// A single sum: term(i, count) returns the terms.
template <class D, class Term>
HWY_INLINE double Sum(D d, size_t n, const Term& term) {
  double sums[1];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* t) HWY_ATTR { t[0] = term(i, count); });
  return sums[0];
}
template <class D, class Term>
HWY_INLINE double QuickSum(D d, size_t n, const Term& term) {
  double sums[1];
  QuickSums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* t) HWY_ATTR { t[0] = term(i, count); });
  return sums[0];
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE double SumRow(D d, const T* x, size_t n) {
  return QuickSum(d, n, [&](size_t i, size_t count) HWY_ATTR { return LoadUpTo(d, x + i, count, T(0)); });
}

// The sum of a row of zeros and of m terms, not negative, at increasing places. Zeros change no sum.
template <class D, class Place, class T = hn::TFromD<D>>
HWY_INLINE double SumOfFew(D d, const T* terms, const Place* places, size_t m, size_t n) {
  constexpr size_t N = hn::MaxLanes(D());
  HWY_ALIGN T acc[64];
  Totals totals;
  GroupTotals groups;
  groups.Clear();
  for (size_t j = 0; j < m;) {
    const size_t base = static_cast<size_t>(places[j]) / 256 * 256;
    for (size_t i = 0; i < 64; i += N) hn::Store(hn::Zero(d), d, acc + i);
    for (; j < m && static_cast<size_t>(places[j]) < base + 256; ++j) acc[places[j] % 64] += terms[j];
    for (size_t g = 0; g < 16 / N; ++g) {
      const T* const at = acc + g * N;
      totals.Add(d, g,
                 hn::Add(hn::Add(hn::Load(d, at), hn::Load(d, at + 32)), hn::Add(hn::Load(d, at + 16), hn::Load(d, at + 48))));
    }
    if (n > kGroup && (j == m || static_cast<size_t>(places[j]) / kGroup != base / kGroup)) {
      groups.Add(base / kGroup, totals.Fold());
      totals.Clear();
    }
  }
  return n > kGroup ? groups.Fold() : totals.Fold();
}

// The contents of a row without a finite maximum.
struct NonFinite {
  size_t infinite;  // number of scores of +inf
  bool nan;
};

template <class T>
HWY_NOINLINE NonFinite FindNonFinite(const T* x, size_t n) {
  NonFinite found = {0, false};
  for (size_t i = 0; i < n; ++i) {
    found.infinite += x[i] == kInfinity<T>;
    found.nan |= x[i] != x[i];
  }
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_REDUCE_INL_H_

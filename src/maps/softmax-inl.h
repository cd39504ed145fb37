// softmax, log_softmax and logsumexp of one row.

#if defined(ISENTROPIC_MAPS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SOFTMAX_INL_H_
#undef ISENTROPIC_MAPS_SOFTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_SOFTMAX_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/contract-inl.h"
#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct KernelsOf<Softmax, T> {
  static constexpr ScoreParams<Softmax> kScores = {.divisor = &Softmax::temperature};
  static void MapRow(const Softmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const Softmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Softmax>* slopes,
                     Workspace workspace);
  static bool VjpFour(const Softmax& op, const T* const (&p)[4], const T* const (&g)[4], size_t n, T* const (&dx)[4]);
  static size_t Memory(size_t n) { return Arena::room<T>(n); }
  static constexpr NotOffered MostInfinite = {};
  struct Short {
    static constexpr size_t kGroups = 1;
    static HWY_INLINE bool Takes(const Softmax& /*op*/) { return true; }
    static void Map(const Softmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
    static constexpr NotOffered Vjp = {};
  };
  using Several = NotOffered;
};

// The terms e^(x - max) in e, and their sum.
template <bool kFetch, class Exp, class T>
HWY_INLINE double SoftmaxTerms(const Exp& exp, const T* x, size_t n, T max, T* e, const T* next) {
  const RowTag<T> d;
  const auto shift = hn::Set(d, max);
  return SplitSum(d, n, [=](size_t i, size_t count) HWY_ATTR {
    if constexpr (kFetch) FetchLine(next, i);
    const auto term = exp(d, hn::Sub(LoadUpTo(d, x + i, count, max), shift));
    StoreUpTo(term, d, count, e + i);
    return term;
  });
}

// Three sweeps over a row that is in cache after the first: maximum, exp and sum, scale. The terms are at most 1 and the
// largest is 1, so the sum is in [1, n]: no overflow, no division by 0. A NaN score makes it NaN. The next row is prefetched
// during the second sweep, when memory is nearly idle. A streamed result keeps its terms elsewhere, because storing them in p
// would first read p's lines; without prefetching this would gain nothing, because each sweep would wait for memory.
template <class T>
HWY_NOINLINE HWY_FLATTEN void KernelsOf<Softmax, T>::MapRow(const Softmax& op, const T* x, size_t n, T max, T* p,
                                                            Workspace workspace) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  const T* const next = static_cast<const T*>(workspace.next);
  const bool stream = next != nullptr && workspace.stream;
  T* const e = stream ? workspace.memory.take<T>(n) : p;
  const double sum =
      next != nullptr ? SoftmaxTerms<true>(exp, x, n, max, e, next) : SoftmaxTerms<false>(exp, x, n, max, e, next);
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  const auto inverse = hn::Set(d, static_cast<T>(1 / sum));
  SplitWriteRow(d, stream, n, p,
                [=](size_t i, size_t count) HWY_ATTR { return hn::Mul(LoadUpTo(d, e + i, count, T(0)), inverse); });
}

// Divides the terms in `rows` by their sums.
template <class T>
HWY_INLINE void StoreQuotients(const ShortRows<T>& rows, const double* sums, T* const* p, size_t count) {
  HWY_ALIGN T inverse[ShortRows<T>::kRows];
  for (size_t r = 0; r < ShortRows<T>::kRows; ++r) inverse[r] = static_cast<T>(1 / sums[r]);
  const auto factor = rows.Spread(inverse);
  rows.Store(p, count, [&](hn::Vec<RowTag<T>> e) HWY_ATTR { return hn::Mul(e, factor); });
}

// softmax of a group of rows of at most ShortRows::kLongest. A NaN score makes the sum NaN, and with it every product.
template <class T>
HWY_NOINLINE HWY_FLATTEN void KernelsOf<Softmax, T>::Short::Map(const Softmax& op, const hn::Vec<RowTag<T>>* group_max,
                                                                ShortRows<T>* group, T* const* p, size_t count) {
  const RowTag<T> d;
  const auto max = *group_max;
  ShortRows<T>& rows = *group;
  const ExpScaled<RowTag<T>> exp(d, op.temperature);
  double sums[ShortRows<T>::kRows];
  rows.TransformAndSum(sums, [&](hn::Vec<RowTag<T>> x) HWY_ATTR { return exp(d, hn::Sub(x, max)); });
  StoreQuotients(rows, sums, p, count);
}

// <g, p>. Products with p = 0 count as 0, so g may hold anything there. Only an infinite or NaN sum shows such entries.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double DotWithDistribution(D d, const T* p, const T* g, size_t n) {
  const double sum = SplitSum(d, n, [=](size_t i, size_t count) HWY_ATTR {
    return hn::Mul(LoadUpTo(d, p + i, count, T(0)), LoadUpTo(d, g + i, count, T(0)));
  });
  if (HWY_LIKELY(IsFinite(sum))) return sum;
  return SplitSum(d, n, [=](size_t i, size_t count) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    return hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d)), hn::Mul(pi, LoadUpTo(d, g + i, count, T(0))));
  });
}

// dx = p (g - mean) / T, 0 where p is 0. The difference may overflow.
template <class D, class Divide>
HWY_INLINE hn::Vec<D> SoftmaxSlope(D d, hn::Vec<D> p, hn::Vec<D> g, hn::Vec<D> mean, const Divide& divide) {
  return hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), divide(hn::Mul(p, hn::Sub(g, mean))));
}

// The gradients of kCount rows of kVectors vectors, the last of which may be partial. The sums have the bits of
// DotWithDistribution. False, and nothing is written, if one is not finite.
template <size_t kVectors, size_t kCount, class D, class T = hn::TFromD<D>>
HWY_INLINE bool SoftmaxVjpFewVectors(D d, const T* const (&p)[kCount], const T* const (&g)[kCount], size_t n,
                                     T inverse_temperature, T* const (&dx)[kCount]) {
  constexpr size_t N = hn::MaxLanes(D());
  const size_t rest = n - (kVectors - 1) * N;
  double dots[kCount];
  SumsOfFewVectors<kVectors>(d, n, dots, [&](size_t r, size_t i, size_t count) HWY_ATTR {
    return hn::Mul(LoadUpTo(d, p[r] + i, count, T(0)), LoadUpTo(d, g[r] + i, count, T(0)));
  });
  bool finite = true;
  for (const double dot : dots) finite &= IsFinite(dot);
  if (HWY_UNLIKELY(!finite)) return false;
  const auto factor = hn::Set(d, inverse_temperature);
  for (size_t r = 0; r < kCount; ++r) {
    const auto mean = hn::Set(d, static_cast<T>(dots[r]));
    const T *const p_row = p[r], *const g_row = g[r];
    T* const to = dx[r];
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t count = v + 1 < kVectors ? N : rest;
      const auto slope = SoftmaxSlope(d, LoadUpTo(d, p_row + v * N, count, T(0)), LoadUpTo(d, g_row + v * N, count, T(0)), mean,
                                      [=](hn::Vec<D> s) HWY_ATTR { return hn::Mul(s, factor); });
      StoreUpTo(slope, d, count, to + v * N);
    }
  }
  return true;
}

// The gradients of kCount rows of kVectors to kMost vectors; also false if they have more.
template <size_t kVectors, size_t kMost, size_t kCount, class D, class T = hn::TFromD<D>>
HWY_INLINE bool SoftmaxVjpShort(D d, const T* const (&p)[kCount], const T* const (&g)[kCount], size_t n, T inverse_temperature,
                                T* const (&dx)[kCount]) {
  if (n <= kVectors * hn::MaxLanes(d)) return SoftmaxVjpFewVectors<kVectors>(d, p, g, n, inverse_temperature, dx);
  if constexpr (kVectors < kMost) return SoftmaxVjpShort<kVectors + 1, kMost>(d, p, g, n, inverse_temperature, dx);
  return false;
}

// The gradients of kCount short rows. False, and nothing is written, if they are for the loops of any row.
template <size_t kCount, class T>
HWY_INLINE bool SoftmaxVjpOfShortRows(const Softmax& op, const T* const (&p)[kCount], const T* const (&g)[kCount], size_t n,
                                      T* const (&dx)[kCount]) {
  const RowTag<T> d;
  constexpr size_t kMost = HWY_MIN(64 / hn::MaxLanes(d), 8);  // vectors in a row of 64, limited by the registers
  // With fewer lanes it takes more vectors, and too much code for WebAssembly. On a GPU, threads share a row.
  if constexpr (hn::MaxLanes(d) >= 8) {
    const bool is_one = op.temperature == 1;  // the quotient takes a third of a short row's time
    if (n <= 64 && (is_one || !IsExtremeTemperature<T>(op.temperature))) {
      return SoftmaxVjpShort<1, kMost>(d, p, g, n, is_one ? T(1) : static_cast<T>(1 / op.temperature), dx);
    }
  }
  return false;
}

// A short row alone waits for each step of its sum. Four side by side take half of the time; the bits are the same.
template <class T>
HWY_NOINLINE HWY_FLATTEN bool KernelsOf<Softmax, T>::VjpFour(const Softmax& op, const T* const (&p)[4], const T* const (&g)[4],
                                                             size_t n, T* const (&dx)[4]) {
  return SoftmaxVjpOfShortRows(op, p, g, n, dx);
}

// dx = p (g - <g, p>) / T. It is also the gradient of the maps that keep some of the scores.
template <class T>
HWY_NOINLINE HWY_FLATTEN void KernelsOf<Softmax, T>::VjpRow(const Softmax& op, const T* /*x*/, const T* p, const T* g, size_t n,
                                                            T* dx, ParamValues<Softmax>* /*slopes*/, Workspace workspace) {
  if (SoftmaxVjpOfShortRows<1, T>(op, {p}, {g}, n, {dx})) return;
  const RowTag<T> d;
  const auto mean = hn::Set(d, static_cast<T>(DotWithDistribution(d, p, g, n)));
  const auto write = [&](const auto& divide) HWY_ATTR {
    SplitWriteRow(d, workspace.stream, n, dx, [=](size_t i, size_t count) HWY_ATTR {
      return SoftmaxSlope(d, LoadUpTo(d, p + i, count, T(0)), LoadUpTo(d, g + i, count, T(0)), mean, divide);
    });
  };
  if (op.temperature == 1) {
    write([](hn::Vec<RowTag<T>> slope) HWY_ATTR { return slope; });
  } else {
    write(DividedBy<RowTag<T>>(op.temperature));
  }
}

// log sum exp(z) for z = (x - max)/T, with a small relative error even if the maximum has most of the mass: log(1 + rest), with
// a separate sum of the rest, keeps the digits that 1 + rest would round away. Meanwhile the row `next`, if not null, is
// prefetched.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double LogSum(D d, double temperature, const T* x, size_t n, T max, const T* next) {
  const ExpScaled<D> exp(d, temperature);
  const auto shift = hn::Set(d, max);
  const auto term = [=](size_t i, size_t count) HWY_ATTR { return exp(d, hn::Sub(LoadUpTo(d, x + i, count, max), shift)); };
  const double sum = next == nullptr ? SplitSum(d, n, term) : SplitSum(d, n, [=](size_t i, size_t count) HWY_ATTR {
    FetchLine(next, i);
    return term(i, count);
  });
  if (!(sum < 2)) return LogNumber(sum);
  // Below 2 there is only one maximum.
  const double rest = SplitSum(d, n, [=](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max);
    return hn::IfThenZeroElse(hn::Eq(xi, shift), exp(d, hn::Sub(xi, shift)));
  });
  // log(u) for the rounded u = 1 + rest, plus the part of rest that u lost, to first order.
  const double u = 1 + rest;
  return LogNumber(u) + (rest - (u - 1)) / u;
}

inline constexpr ScoreParams<LogSoftmax> kLogSoftmaxScores = {.divisor = &LogSoftmax::temperature};
inline constexpr ScoreParams<LogSumExp> kLogSumExpScores = {.divisor = &LogSumExp::temperature};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void LogSoftmaxRow(D d, const LogSoftmax& op, const T* x, size_t n, T max, T* y, bool stream, const T* next) {
  const RelativeScores<D> relative(hn::Set(d, max), op.temperature);
  const double log_sum = LogSum(d, op.temperature, x, n, max, next);
  if (log_sum != log_sum) return FillRow(d, kNaN<T>, n, y);
  const auto shift = hn::Set(d, static_cast<T>(log_sum));
  // From here on x - max may overflow, and with T > 1 the quotient by T may not. The halves of such numbers are exact.
  constexpr T kHuge = T(sizeof(T) == 4 ? 0x1p103 : 0x1p970);
  if (HWY_UNLIKELY(max >= kHuge && op.temperature > 1)) {
    const RelativeScores<D> relative_half(hn::Set(d, max / 2), op.temperature / 2);
    return SplitWriteRow(d, stream, n, y, [=](size_t i, size_t count) HWY_ATTR {
      return hn::Sub(relative_half(hn::Mul(LoadUpTo(d, x + i, count, max), hn::Set(d, T(0.5)))), shift);
    });
  }
  SplitWriteRow(d, stream, n, y,
                [=](size_t i, size_t count) HWY_ATTR { return hn::Sub(relative(LoadUpTo(d, x + i, count, max)), shift); });
}

// log sum exp((x - max)/T).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double LogSumExpRow(D d, const LogSumExp& op, const T* x, size_t n, T max, const T* next) {
  return LogSum(d, op.temperature, x, n, max, next);
}

// dx = (g - p sum g) / T with p = exp(y), g left out of the sum and dx = 0 where x = -inf.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void LogSoftmaxVjpRow(D d, const LogSoftmax& op, const T* x, const T* y, const T* g, size_t n, T* dx, bool stream) {
  const auto absent = hn::Set(d, -kInfinity<T>);
  const double total = SplitSum(d, n, [=](size_t i, size_t count) HWY_ATTR {
    return hn::IfThenZeroElse(hn::Eq(LoadUpTo(d, x + i, count, T(0)), absent), LoadUpTo(d, g + i, count, T(0)));
  });
  const ExpScaled<D> exp(d, 1);
  const auto sum = hn::Set(d, static_cast<T>(total));
  const DividedBy<D> divided(op.temperature);
  SplitWriteRow(d, stream, n, dx, [=](size_t i, size_t count) HWY_ATTR {
    const auto yi = LoadUpTo(d, y + i, count, T(0));
    const auto gi = LoadUpTo(d, g + i, count, T(0));
    const auto v = divided(hn::NegMulAdd(exp(d, yi), sum, gi));
    const auto out = hn::Eq(LoadUpTo(d, x + i, count, T(0)), absent);
    return hn::IfThenZeroElse(out, v);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SOFTMAX_INL_H_

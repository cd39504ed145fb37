// entmax of one row, for every alpha.
//
// With b = alpha - 1, z = (x - max)/T <= 0 and c = p_max^b, all cases are p = (c + b z)^(1/b), 0 where the base is negative;
// c is the root of sum p = 1. Three ways to it:
//   alpha >= 1.25  the terms u = b z above a bound of -c are packed and c solved on those few; where they are few indeed each
//                  power is taken once, and the masses put in their places in a row of zeros. In float32 from alpha = 1.2 on.
//   alpha > 2      the same, but (c + u)^(1/b) is infinitely steep at the edge of the support: edge_entmax-inl.h.
//   alpha < 1.25   where b is small, c is near 1 and the rounding of c + u would be magnified by 1/b. Hence
//                  p = p_max (1 + v)^(1/b), v = b z/c, by log(1 + v) of a small v, divided by its sum as softmax is:
//                  a softmax at inverse temperature 1/c whose exp is bent by b. Also for alpha < 1, where all have mass.
// alpha = 1 and alpha = 2 are softmax and sparsemax themselves. For float32, alpha <= 0.8 is in heavy_entmax-inl.h, and short
// rows are in short_entmax-inl.h and short_edge-inl.h.

#if defined(ISENTROPIC_MAPS_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_ENTMAX_INL_H_
#undef ISENTROPIC_MAPS_ENTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_ENTMAX_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/edge_entmax-inl.h"
#include "src/maps/heavy_entmax-inl.h"
#include "src/maps/short_edge-inl.h"
#include "src/maps/short_entmax-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/maps/sparsemax-inl.h"
#include "src/maps/whole_powers-inl.h"
#include "src/rows/entry-inl.h"
#include "src/rows/expm1-inl.h"
#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The longest rows of which several go: longer ones gain nothing by others.
inline constexpr size_t kLongestOfSeveral = 4096;

// Below, b is so small that the rounding of c + u matters. For float32 UnitPower sets the limit.
template <class T>
inline constexpr double kLeastAlpha = sizeof(T) == 4 ? 1.2 : 1.25;

// Above, 1/b is too large for WholePowers and UnitPower, which float32 uses for alpha < 1.
inline constexpr double kMostHeavyAlpha = 0.8;

template <class T>
struct KernelsOf<Entmax, T> {
  static constexpr ScoreParams<Entmax> kScores = {.divisor = &Entmax::temperature};
  static void MapRow(const Entmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const Entmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Entmax>* slopes,
                     Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  // The scores with mass of the rows that go together; of a gradient those of one, and a row in float64.
  static size_t Memory(size_t n) {
    return HWY_MAX((n <= kLongestOfSeveral ? kSearches<T> : 1) * room_of<Survivors<T>>(n),
                   room_of<Survivors<T>>(n) + Arena::room<T>(n) + Arena::room<double>(n));
  }
  struct Short {
    // Groups share what is computed of alpha.
    static constexpr size_t kGroups = sizeof(T) == 4 && hn::MaxLanes(RowTag<T>()) > 1 ? 4 : 1;
    static HWY_INLINE bool Takes(const Entmax& op) {
      return op.alpha == 1 || op.alpha == 1.5 || op.alpha == 2 ||
             (sizeof(T) == 4 && (op.alpha >= kLeastAlpha<T> || op.alpha <= kMostHeavyAlpha));
    }
    static void Map(const Entmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
    static HWY_INLINE bool TakesVjp(const Entmax& op);
    static void Vjp(const Entmax& op, ShortRows<T>* p, ShortRows<T>* g, T* const* dx, size_t count);
  };
  struct Several {
    static constexpr size_t kMost = kSearches<T>;
    static size_t Count(const Entmax& op, size_t n);
    static void Map(const Entmax& op, const T* const* x, size_t n, const T* max, T* const* p, size_t count,
                    Workspace workspace);
  };
};

// b = alpha - 1. Nearer to 0 than 2^-26 (2^-55) entmax differs from softmax by less than a tenth of eps, and b/T is a normal
// number for every T that PrepareRow lets through. Beyond 2^26 (2^60) only scores that share the maximum's last bits have mass.
template <class T>
HWY_INLINE double EntmaxPower(const Entmax& op) {
  const double b = op.alpha - 1;
  if (std::abs(b) <= (sizeof(T) == 4 ? 0x1p-26 : 0x1p-55)) return 0;
  return HWY_MIN(b, sizeof(T) == 4 ? 0x1p26 : 0x1p60);
}

// What SmallStep has of sums that are rounded to T.
template <class T>
inline constexpr double kSumError = sizeof(T) == 4 ? 0x1p-24 : 0x1p-52;

// A start near the root. u has n numbers and then 64 times -inf. If there are many u, steps on a sample of them come first.
template <class T>
HWY_NOINLINE HWY_FLATTEN T StartByWholePowers(double b, T c, const T* u, size_t n) {
  const WholePowers whole_powers(b);
  const auto take_steps = [&](const T* of, size_t count, double weight) HWY_ATTR {
    const auto load = [&](size_t i, size_t) HWY_ATTR { return hn::LoadU(RowTag<T>(), of + i); };
    c = WholePowerSteps<true>(whole_powers, c, count, weight, load);
  };
  constexpr size_t kSample = 128;
  if (n >= 4 * kSample) {
    HWY_ALIGN T sample[kSample];
    for (size_t k = 0; k < kSample; ++k) sample[k] = u[k * (n / kSample)];
    take_steps(sample, kSample, static_cast<double>(n) / static_cast<double>(kSample));
  }
  take_steps(u, n, 1);
  return c;
}

// alpha = 1.5: c as high + low, from one that is not below it, with -inf 64 times behind u. The steps are taken in T, sums in
// float64.
template <class T>
HWY_NOINLINE HWY_FLATTEN Threshold SquareThreshold(const Filtered<T>& row) {
  const RowTag<T> d;
  const Square<RowTag<T>> square(d, 0.5);
  NormSearch<double, SquareNorm, UntilStep, T> search;
  search.Begin(0.5, -row.least, {SmallStep(0.5, static_cast<double>(row.kept), kSumError<T>)});
  while (search.asks()) {
    double sums[2];
    const auto at = hn::Set(d, search.c());
    MassSums<true>(d, row.kept, sums, [&](size_t i, size_t /*count*/, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
      square.WithDerivative(d, hn::Add(hn::LoadU(d, row.survivors.z + i), at), terms);
    });
    search.Take(sums[0], sums[1]);
  }
  return {static_cast<double>(search.c()), -search.step()};
}

// SquareThreshold for rows of at most kCount survivors, with sums in T too. While others go on, a row whose c is found is
// summed again: no row's depends on another's.
template <size_t kCount, class T>
HWY_NOINLINE HWY_FLATTEN void FewThresholds(const Filtered<T>* filtered, size_t rows, Threshold* found) {
  const RowTag<T> d;
  constexpr double b = 0.5;
  const Square<RowTag<T>> square(d, b);
  NormSearch<T, BoundNorm, UntilStep> search[kSearches<T>];
  for (size_t r = 0; r < rows; ++r) {
    search[r].Begin(b, -filtered[r].least, {SmallStep(b, static_cast<double>(filtered[r].kept), kSumError<T>)});
  }
  for (bool far = true; far;) {
    far = false;
    for (size_t r = 0; r < rows; ++r) {
      const T* const u = filtered[r].survivors.z;
      const auto at = hn::Set(d, search[r].c());
      T sums[2];
      PowerSumsOf<kCount>(
          d,
          [&](size_t i, hn::Vec<RowTag<T>>* terms)
              HWY_ATTR { square.WithDerivative(d, hn::Add(hn::LoadU(d, u + i), at), terms); },
          sums);
      search[r].Take(sums[0], sums[1]);
      far |= search[r].asks();
    }
  }
  for (size_t r = 0; r < rows; ++r) found[r] = {static_cast<double>(search[r].c()), -static_cast<double>(search[r].step())};
}

// (c + u)^2 from c's upper part, exact in T, and the rest: near the edge the first sum is exact.
template <class D, class T = hn::TFromD<D>>
class SquareAbove {
 public:
  HWY_INLINE SquareAbove(D d, Threshold c) : square_(d, 0.5), high_(hn::Set(d, static_cast<T>(c.high))) {
    const double high = static_cast<double>(static_cast<T>(c.high));
    low_ = hn::Set(d, static_cast<T>((c.high - high) + c.low));
  }
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> u) const { return square_(d, hn::Add(hn::Add(u, high_), low_)); }

 private:
  Square<D> square_;
  hn::Vec<D> high_, low_;
};

// The thresholds of rows, in registers if the survivors are few.
template <class T>
HWY_INLINE void SquareThresholds(const Filtered<T>* filtered, size_t rows, Threshold* c) {
  if (MostKept(filtered, rows) <= 32) return FewThresholds<32>(filtered, rows, c);
  for (size_t r = 0; r < rows; ++r) {
    if (filtered[r].kept <= 64) {
      FewThresholds<64>(filtered + r, 1, c + r);
    } else {
      c[r] = SquareThreshold(filtered[r]);
    }
  }
}

// alpha = 1.5: a mass is a few operations, so a row is written as if all scores had some.
template <class T>
HWY_NOINLINE HWY_FLATTEN void MapRowsBySquares(double temperature, const T* const* x, size_t n, const T* max, T* const* p,
                                               size_t rows, Workspace workspace) {
  const RowTag<T> d;
  Filtered<T> filtered[kSearches<T>] = {};
  FilterRows<false>(0.5, temperature, x, n, max, rows, workspace.memory, filtered);
  Threshold c[kSearches<T>];
  SquareThresholds(filtered, rows, c);
  for (size_t r = 0; r < rows; ++r) {
    if (c[r].low != c[r].low) {
      FillRow(d, kNaN<T>, n, p[r]);
      continue;
    }
    const auto relative = Bent(0.5, temperature, max[r]);
    const SquareAbove<RowTag<T>> mass(d, c[r]);
    QuickWriteRow(d, workspace.stream, n, p[r],
                  [&](size_t i, size_t count) HWY_ATTR { return mass(d, relative(LoadUpTo(d, x[r] + i, count, max[r]))); });
  }
}

// For rows of at most kCount survivors: u becomes (c + u)^(1/b), and their sum, 1 but for rounding, is left in `sums`. As in
// FewThresholds no row's depends on another's. c is rounded to T, and many masses together may move by more than one of them
// may be off: so each makes the last step, which is smaller than c's rounding, along its own slope. To divide all by their sum
// instead would take from the large ones what the many small ones have too much.
template <size_t kCount, class T>
HWY_NOINLINE HWY_FLATTEN void PowerMasses(double b, const Filtered<T>* filtered, size_t rows, T* sums) {
  const RowTag<T> d;
  const UnitRootOf<RowTag<T>> root(d, b);
  HWY_ALIGN T masses[kSearches<T>][kCount], slopes[kSearches<T>][kCount];
  constexpr T kEnough = T(sizeof(T) == 4 ? 0x1p-22 : 0x1p-51);
  NormSearch<T, BoundNorm, UntilSum<T>> search[kSearches<T>];
  for (size_t r = 0; r < rows; ++r) search[r].Begin(b, -filtered[r].least, {kEnough});
  for (bool far = true; far;) {
    far = false;
    for (size_t r = 0; r < rows; ++r) {
      const T* const u = filtered[r].survivors.z;
      T *const row = masses[r], *const row_slopes = slopes[r];
      const auto at = hn::Set(d, search[r].c());
      T both[2];
      PowerSumsOf<kCount>(
          d,
          [&](size_t i, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
            const auto q = hn::Add(hn::LoadU(d, u + i), at);
            root.WithDerivative(d, q, terms);
            hn::Store(terms[0], d, row + i);
            hn::Store(terms[1], d, row_slopes + i);
          },
          both);
      search[r].Take(both[0], both[1]);
      sums[r] = both[0] - search[r].step() / static_cast<T>(b) * both[1];
      far |= search[r].asks();
    }
  }
  AwaitReaders();
  for (size_t r = 0; r < rows; ++r) {
    const auto step = hn::Set(d, search[r].step() / static_cast<T>(b));
    ForEachVector(d, kCount, [&](size_t i, size_t count) HWY_ATTR {
      const auto mass = hn::NegMulAdd(step, hn::LoadU(d, slopes[r] + i), hn::LoadU(d, masses[r] + i));
      StoreUpTo(MaxKeepNaN(hn::Zero(d), mass), d, count, filtered[r].survivors.z + i);
    });
  }
}

// The end of a search: c - step is the root up to terms of the order of step^2, and `sum` that of the masses there.
struct LastStep {
  double c, step, sum;
};

// From a start near the root, which may be below it, for n scores of which `most` can have mass; load(i, count) gives u, -inf
// beyond. Leaves (c + u)^(1/b - 1) in `slopes`. The steps are taken in T, sums in float64.
template <class T, class Load>
HWY_NOINLINE HWY_FLATTEN LastStep ThresholdAndSlopes(double b, T start, size_t n, size_t most, const Load& load, T* slopes) {
  const RowTag<T> d;
  const UnitRootOf<RowTag<T>> root(d, b);
  NormSearch<double, PowerNorm, UntilStep, T> search;
  search.Begin(b, start, {SmallStep(b, static_cast<double>(most), kSumError<T>)});
  double sums[2] = {};
  while (search.asks()) {
    const auto c = hn::Set(d, search.c());
    MassSums(d, n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
      root.WithDerivative(d, hn::Add(load(i, count), c), terms);
      StoreUpTo(terms[1], d, count, slopes + i);
    });
    search.Take(sums[0], sums[1]);
  }
  return {static_cast<double>(search.c()), search.step(), sums[0] - search.step() / b * sums[1]};
}

// (q - step)^(1/b) up to terms of the order of step^2, from the slope q^(1/b - 1) at q = c + u.
template <class D, class T = hn::TFromD<D>>
class MassAfterStep {
 public:
  HWY_INLINE MassAfterStep(D d, double b, const LastStep& last)
      : c_(hn::Set(d, static_cast<T>(last.c))), step_(hn::Set(d, static_cast<T>(last.step / b))) {}
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> u, hn::Vec<D> slope) const {
    const auto zero = hn::Zero(d);
    const auto q = MaxKeepNaN(zero, hn::Add(u, c_));
    return hn::Mul(slope, MaxKeepNaN(zero, hn::Sub(q, step_)));
  }

 private:
  hn::Vec<D> c_, step_;
};

// The survivors' u of a row with at most n/2 of them become their masses, but for the factor 1/sum; returns the sum. `slopes`
// has room for as many numbers.
template <class T>
HWY_INLINE double SurvivorMasses(double b, const Filtered<T>& row, T* slopes) {
  const RowTag<T> d;
  T* const u = row.survivors.z;
  if (row.kept <= 64) {
    T sum;
    if (row.kept <= 16) {
      PowerMasses<16>(b, &row, 1, &sum);
    } else if (row.kept <= 32) {
      PowerMasses<32>(b, &row, 1, &sum);
    } else {
      PowerMasses<64>(b, &row, 1, &sum);
    }
    return static_cast<double>(sum);
  }
  const T start = StartByWholePowers(b, -row.least, u, row.kept);
  const auto load = [&](size_t i, size_t /*count*/) HWY_ATTR { return hn::LoadU(d, u + i); };
  const LastStep last = ThresholdAndSlopes(b, start, row.kept, row.kept, load, slopes);
  const MassAfterStep<RowTag<T>> mass(d, b, last);
  ForEachVector(d, row.kept, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(mass(d, load(i, count), LoadUpTo(d, slopes + i, count, T(0))), d, count, u + i);
  });
  return last.sum;
}

// p of a row of which most scores may have mass; load(i, count) gives their u, -inf beyond the end. The packed scores are not
// needed any more when their memory gets the slopes. In write(p_at, nan), p_at(i, count) gives p; nan: the row becomes NaN.
template <class T, class Load, class Write>
HWY_INLINE void MapDenseRow(double b, const Filtered<T>& row, size_t n, const Load& load, const Write& write) {
  const RowTag<T> d;
  T* const slopes = row.survivors.z;
  const T start = StartByWholePowers(b, -row.least, slopes, row.kept);
  const LastStep last = ThresholdAndSlopes(b, start, n, row.kept, load, slopes);
  const MassAfterStep<RowTag<T>> mass(d, b, last);
  write([&](size_t i, size_t count) HWY_ATTR { return mass(d, load(i, count), LoadUpTo(d, slopes + i, count, T(0))); },
        last.sum != last.sum);
}

template <class T>
HWY_INLINE void MapFilteredRow(double b, double temperature, const Filtered<T>& row, const T* x, size_t n, T max, T* p,
                               Workspace workspace) {
  const RowTag<T> d;
  if (row.kept > 64 && row.kept > n / 2) {
    const auto relative = Bent(b, temperature, max);
    const auto load = [&](size_t i, size_t count) HWY_ATTR { return relative(LoadUpTo(d, x + i, count, -kInfinity<T>)); };
    return MapDenseRow(b, row, n, load, [&](const auto& p_at, bool nan) HWY_ATTR {
      if (nan) return FillRow(d, kNaN<T>, n, p);
      WriteRow(d, workspace.stream, n, p, p_at);
    });
  }
  const double sum = SurvivorMasses(b, row, p);  // so many of p are free until it is written
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  Scatter(d, row.survivors.z, row.survivors.places, row.kept, sum, n, p, workspace.stream);
}

template <class T>
HWY_NOINLINE HWY_FLATTEN void MapRowsByThreshold(double b, double temperature, const T* const* x, size_t n, const T* max,
                                                 T* const* p, size_t rows, Workspace workspace) {
  Filtered<T> filtered[kSearches<T>] = {};
  FilterRows<true>(b, temperature, x, n, max, rows, workspace.memory, filtered);
  const size_t most = MostKept(filtered, rows);
  if (most <= 32) {
    T sums[kSearches<T>];
    if (most <= 16) {
      PowerMasses<16>(b, filtered, rows, sums);
    } else {
      PowerMasses<32>(b, filtered, rows, sums);
    }
    for (size_t r = 0; r < rows; ++r) WriteFew(filtered[r], sums[r], n, p[r], workspace.stream);
  } else {
    for (size_t r = 0; r < rows; ++r) MapFilteredRow(b, temperature, filtered[r], x[r], n, max[r], p[r], workspace);
  }
}

// (1 + v)^(1/b), v = b (x - max)/(T c), for b < 1/4: exp bent by b, with its value 1 at the maximum. 0 where v <= -1 and at
// -inf. b/(T c) goes as two numbers: its rounding would be the same for all scores and move as much mass as they have.
//
// Of two scores the higher gets no less: z high + z low is rounded once, but for z low, whose rounding is far below what
// z high gains; and neither Log1p nor ExpScaled ever falls.
template <class D, class T = hn::TFromD<D>>
class BentExp {
 public:
  // For c/(1 + tau).
  HWY_INLINE BentExp(D d, double b, double temperature, double c, T max, double tau = 0)
      : exp_(d, std::abs(b)), exp_slope_(d, std::abs(b) / (1 - b)), max_(hn::Set(d, max)), rising_(b > 0) {
    // With the roundings of T c, of the quotient, and of the sum.
    const double divisor = temperature * c, quotient = b / divisor;
    const double residue = MulSub(quotient, divisor, b) + quotient * MulSub(temperature, c, divisor);
    const double rest = IsFinite(divisor) ? -residue / divisor : 0;  // a first c may be as large as numbers are
    const double step = quotient * tau, factor = quotient + step;
    const T high = static_cast<T>(factor);
    high_ = hn::Set(d, high);
    low_ = hn::Set(d, static_cast<T>((factor - static_cast<double>(high)) + ((quotient - factor) + step + rest)));
    // Farther scores are out of the support, or at the end of the type's range: no infinity meets one of the other sign.
    constexpr double kFar = static_cast<double>(std::numeric_limits<T>::max()) / 4;
    lowest_ = hn::Set(d, static_cast<T>(rising_ ? -HWY_MIN(2 / factor, kFar) : -kFar / HWY_MAX(-factor, 1.0)));
  }

  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const { return Raise(d, x, V(d, x), exp_); }

  // (1 + v)^(1/b) and (1 + v)^(1/b - 1).
  HWY_INLINE void WithDerivative(D d, hn::Vec<D> x, hn::Vec<D>* terms) const {
    const auto v = V(d, x);
    terms[1] = Raise(d, x, v, exp_slope_);
    const auto base = hn::Add(v, hn::Set(d, T(1)));
    terms[0] = hn::IfThenZeroElse(hn::Eq(terms[1], hn::Zero(d)), hn::Mul(terms[1], base));
  }

  // v/(1 + v).
  HWY_INLINE hn::Vec<D> Part(D d, hn::Vec<D> x) const {
    const auto v = V(d, x);
    return hn::Div(v, hn::Add(v, hn::Set(d, T(1))));
  }

 private:
  HWY_INLINE hn::Vec<D> V(D /*d*/, hn::Vec<D> x) const {
    const auto z = MaxKeepNaN(lowest_, hn::Sub(x, max_));
    return hn::MulAdd(z, high_, hn::Mul(z, low_));
  }

  HWY_INLINE hn::Vec<D> Raise(D d, hn::Vec<D> x, hn::Vec<D> v, const ExpScaled<D>& exp) const {
    if (rising_) {
      const auto out = hn::Le(v, hn::Set(d, T(-1)));
      if (hn::AllTrue(d, out)) return hn::Zero(d);
      return hn::IfThenZeroElse(out, exp(d, Log1p(d, v)));
    }
    const auto out = hn::Eq(x, hn::Set(d, -kInfinity<T>));
    return hn::IfThenZeroElse(out, exp(d, hn::Neg(Log1p(d, v))));
  }

  ExpScaled<D> exp_, exp_slope_;
  hn::Vec<D> max_, high_, low_, lowest_;
  bool rising_;
};

// S and S1 of BentSearch.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE HWY_FLATTEN void BentSums(D d, double b, double temperature, double c, const T* x, size_t n, T max,
                                       double (&sums)[2]) {
  const BentExp<D> exp(d, b, temperature, c, max);
  MassSums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    exp.WithDerivative(d, LoadUpTo(d, x + i, count, -kInfinity<T>), terms);
  });
}

// From a start to where one more step would not be seen. `weight`: each score counts so often.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double FindC(D d, double b, double temperature, double start, const T* x, size_t n, T max, double weight,
                        double enough) {
  BentSearch search;
  search.Begin(b, start, weight, enough);
  while (search.asks()) {
    double sums[2];
    BentSums(d, b, temperature, search.c(), x, n, max, sums);
    search.Take(sums[0], sums[1]);
  }
  return search.c();
}

// Writes exp of n scores to `masses` and returns their sum.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE HWY_FLATTEN double BentMasses(D d, const BentExp<D>& exp, const T* x, size_t n, T* masses) {
  double sum[1];
  MassSums(d, n, sum, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    terms[0] = exp(d, LoadUpTo(d, x + i, count, -kInfinity<T>));
    StoreUpTo(terms[0], d, count, masses + i);
  });
  return sum[0];
}

// A change of c by this part is not seen.
template <class T>
inline constexpr double kUnseen = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

inline constexpr size_t kMostSampled = 2048;

// The sums of s w^k for k = 0 to 3, see BentSeries.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE HWY_FLATTEN void BentMoments(D d, double b, const BentExp<D>& exp, const T* x, size_t n, double (&sums)[4]) {
  const auto inverse = hn::Set(d, static_cast<T>(1 / b));
  MassSums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    terms[0] = exp(d, xi);
    const auto w = hn::IfThenZeroElse(hn::Eq(terms[0], hn::Zero(d)), hn::Mul(exp.Part(d, xi), inverse));
    for (size_t k = 1; k < 4; ++k) terms[k] = hn::Mul(terms[k - 1], w);
  });
}

// p = exp times `scale`.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE HWY_FLATTEN void WriteBentRow(D d, const BentExp<D>& exp, double scale, const T* x, size_t n, T* p, bool stream) {
  const auto factor = hn::Set(d, static_cast<T>(scale));
  WriteRow(d, stream, n, p,
           [&](size_t i, size_t count) HWY_ATTR { return hn::Mul(exp(d, LoadUpTo(d, x + i, count, -kInfinity<T>)), factor); });
}

// The row by its c: Newton's steps, each a pass over it, until what one pass says of its surroundings is all that is needed.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapBentRow(D d, double b, double temperature, double start, const T* x, size_t n, T max, T* p, bool stream) {
  BentSeries series;
  series.Begin(b, static_cast<double>(n), start, sizeof(T) == 4 ? 0x1p-25 : 0x1p-54);
  while (series.asks()) {
    double sums[4];
    BentMoments(d, b, BentExp<D>(d, b, temperature, series.c(), max), x, n, sums);
    series.Take(sums[0], sums[1], sums[2], sums[3]);
  }
  if (!(series.sum() > 0)) return FillRow(d, kNaN<T>, n, p);
  WriteBentRow(d, BentExp<D>(d, b, temperature, series.c(), max, series.tau()), 1 / series.sum(), x, n, p, stream);
}

// A first c from the mean m and the variance s^2 of z = (x - max)/T: with q = c + b m the sum of (q + b (z - m))^(1/b) is
// n q^(1/b) times about exp((1 - b) s^2/(2 q^2)), and it is to be 1. It is good where b < 0.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE double BentStart(D d, double b, double temperature, const T* x, size_t n, T max) {
  const RelativeScores<D> relative(hn::Set(d, max), temperature);
  const auto one = hn::Set(d, T(1)), none = hn::Set(d, -kInfinity<T>);
  double sums[3];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto z = relative(LoadUpTo(d, x + i, count, -kInfinity<T>));
    const auto in = hn::Gt(z, none);
    terms[0] = hn::IfThenElseZero(in, one);
    terms[1] = hn::IfThenElseZero(in, z);
    terms[2] = hn::Mul(terms[1], terms[1]);
  });
  const double mean = sums[1] / sums[0], variance = HWY_MAX(sums[2] / sums[0] - mean * mean, 0.0);
  const double flat = Power(sums[0], -b);
  double q = flat;
  for (int k = 0; k < 3; ++k) q = flat * ExpNumber(-b * (1 - b) / 2 * variance / (q * q));
  const double c = q - b * mean;
  return (b > 0 ? c > 0 && c < 1 : c > 1) && IsFinite(c) ? c : 1;
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRowNearSoftmax(D d, double b, double temperature, const T* x, size_t n, T max, T* p, Workspace workspace) {
  double start = 1;
  // Where few have mass, they are solved alone.
  if (b >= 0.0625) {
    Arena memory = workspace.memory;
    const RelativeScores<D> relative(hn::Set(d, max), temperature / b);
    const T least = LeastThreshold(d, b, relative, x, n);
    const Survivors<T> survivors(memory, n);
    const size_t kept = FilterAbove<true>(d, relative, x, n, least, survivors);
    start = -static_cast<double>(least);
    if (kept <= n / 4) {
      T* const masses = survivors.z;
      ForEachVector(d, kept, [&](size_t i, size_t count) HWY_ATTR {
        for (size_t k = i; k < i + count; ++k) masses[k] = x[survivors.places[k]];
      });
      const double c = FindC(d, b, temperature, start, masses, kept, max, 1, kUnseen<T>);
      if (c != c) return FillRow(d, kNaN<T>, n, p);
      const double sum = BentMasses(d, BentExp<D>(d, b, temperature, c, max), masses, kept, masses);
      return Scatter(d, masses, survivors.places, kept, sum, n, p, workspace.stream);
    }
  }
  if (b > 0 && n < 512) {
    const double c = FindC(d, b, temperature, start, x, n, max, 1, kUnseen<T>);
    if (c != c) return FillRow(d, kNaN<T>, n, p);
    const double sum = BentMasses(d, BentExp<D>(d, b, temperature, c, max), x, n, p);
    return ScaleRow(d, static_cast<T>(1 / sum), n, p);
  }
  // Each step is a pass over the row: it starts near the root. For b > 0 a few of the scores stand for the others.
  Arena memory = workspace.memory;
  if (b < 0) {
    start = BentStart(d, b, temperature, x, n, max);
  } else {
    const size_t size = HWY_MIN(n / 8, kMostSampled), stride = n / size;
    T* const sample = memory.take<T>(size);
    ForEachVector(d, size, [&](size_t i, size_t count) HWY_ATTR {
      for (size_t k = i; k < i + count; ++k) sample[k] = x[k * stride];
    });
    const double weight = static_cast<double>(n) / static_cast<double>(size);
    const double c = FindC(d, b, temperature, start, sample, size, max, weight, 0x1p-10);
    // A sample without a score near the maximum says nothing.
    if (c > 0 && IsFinite(c)) start = c;
  }
  MapBentRow(d, b, temperature, start, x, n, max, p, workspace.stream);
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::MapRow(const Entmax& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  const RowTag<T> d;
  const double b = EntmaxPower<T>(op);
  if (b == 0) return KernelsOf<Softmax, T>::MapRow({.temperature = op.temperature}, x, n, max, p, workspace);
  if (b == 1) return KernelsOf<Sparsemax, T>::MapRow({.temperature = op.temperature}, x, n, max, p, workspace);
  if constexpr (sizeof(T) == 4) {
    if (op.alpha <= kMostHeavyAlpha) return MapHeavyRow(b, op.temperature, x, n, max, p, workspace);
  }
  if (op.alpha < kLeastAlpha<T>) return MapRowNearSoftmax(d, b, op.temperature, x, n, max, p, workspace);

  if (b > 1) {
    MapRowsByEdge(b, op.temperature, &x, n, &max, &p, 1, workspace);
  } else if (b == 0.5) {
    MapRowsBySquares(op.temperature, &x, n, &max, &p, 1, workspace);
  } else {
    MapRowsByThreshold(b, op.temperature, &x, n, &max, &p, 1, workspace);
  }
}

template <class T>
HWY_INLINE size_t KernelsOf<Entmax, T>::Several::Count(const Entmax& op, size_t n) {
  const bool quick = op.alpha < kLeastAlpha<T> || op.alpha == 2 || (op.alpha > 2 && sizeof(T) == 8);
  return !quick && n >= 256 && n <= kLongestOfSeveral ? kMost : 1;
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::Several::Map(const Entmax& op, const T* const* x, size_t n, const T* max, T* const* p,
                                                   size_t count, Workspace workspace) {
  if (op.alpha == 1.5) {
    MapRowsBySquares(op.temperature, x, n, max, p, count, workspace);
  } else if (op.alpha > 2) {
    MapRowsByEdge(EntmaxPower<T>(op), op.temperature, x, n, max, p, count, workspace);
  } else {
    MapRowsByThreshold(op.alpha - 1, op.temperature, x, n, max, p, count, workspace);
  }
}

// alpha = 1.5 for a group of rows of at most ShortRows::kLongest, all entries taken as survivors.
template <class T>
HWY_INLINE void MapShortBySquares(double temperature, hn::Vec<RowTag<T>> max, ShortRows<T>* group, T* const* p, size_t count) {
  using V = hn::Vec<RowTag<T>>;
  const RowTag<T> d;
  ShortRows<T>& rows = *group;
  const RelativeScores<RowTag<T>> relative(max, temperature * 2);
  rows.Transform([&](V x) HWY_ATTR { return relative(x); });

  const V zero = hn::Zero(d);
  using L = Lanes<RowTag<T>>;
  NormSearch<L, QuickSquareNorm, UntilPart<L>> search;
  // 64 squares of it are below the error of the sum.
  search.Begin(0.5, T(1), {T(sizeof(T) == 4 ? 0x1p-14 : 0x1p-29)});
  while (!AllFalse(search.asks())) {
    V sums[2];
    const V c = search.c().v;
    rows.template Sums<2>(sums, [&](V u, V* terms) HWY_ATTR {
      terms[1] = MaxKeepNaN(zero, hn::Add(u, c));
      terms[0] = hn::Mul(terms[1], terms[1]);
    });
    search.Take(sums[0], sums[1]);
  }

  HWY_ALIGN T high[ShortRows<T>::kLanes], low[ShortRows<T>::kLanes];
  hn::Store(search.c().v, d, high);
  hn::Store(search.step().v, d, low);
  const auto c_high = rows.Spread(high), c_low = rows.Spread(low);
  rows.Store(p, count, [&](V u) HWY_ATTR {
    const V q = MaxKeepNaN(hn::Zero(d), hn::Sub(hn::Add(u, c_high), c_low));
    return hn::Mul(q, q);
  });
}

// alpha > 2 for groups of rows of at most ShortRows::kLongest.
HWY_INLINE void MapShortByEdge(const Entmax& op, const hn::Vec<RowTag<float>>* max, ShortRows<float>* group, float* const* p,
                               size_t count) {
  constexpr size_t kRows = ShortRows<float>::kRows, kLongest = ShortRows<float>::kLongest;
  const double b = EntmaxPower<float>(op);
  for (size_t g = 0; g * kRows < count; ++g) {
    const RelativeScores<RowTag<float>> relative(max[g], op.temperature / b);
    group[g].Transform([&](hn::Vec<RowTag<float>> x) HWY_ATTR { return relative(x); });
  }
  // The scores u at the temperature b are u again.
  const auto alone = [&](size_t g, size_t r) HWY_ATTR {
    HWY_ALIGN float u[kLongest];
    HWY_ALIGN uint8_t memory[16 * kLongest + 1024];
    const size_t n = group[g].size();
    for (size_t i = 0; i < n; ++i) u[i] = group[g].At(r, i);
    KernelsOf<Entmax, float>::MapRow({.alpha = op.alpha, .temperature = b}, u, n, 0, p[g * kRows + r],
                                     {Arena(memory, sizeof(memory)), false});
  };
  ShortByEdge(b, group, p, count, alone);
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::Short::Map(const Entmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group,
                                                 T* const* p, size_t count) {
  if constexpr (sizeof(T) == 4) {
    if (op.alpha > 2) return MapShortByEdge(op, max, group, p, count);
    if (op.alpha != 1 && op.alpha != 1.5 && op.alpha != 2) {
      const double b = op.alpha - 1;
      return b > 0 ? ShortEntmax<true>(RowTag<T>(), b, op.temperature, max, group, p, count)
                   : ShortEntmax<false>(RowTag<T>(), b, op.temperature, max, group, p, count);
    }
  }
  constexpr size_t kRows = ShortRows<T>::kRows;
  for (size_t g = 0; g * kRows < count; ++g) {
    T* const* const out = p + g * kRows;
    const size_t rows = HWY_MIN(kRows, count - g * kRows);
    if (op.alpha == 1) {
      KernelsOf<Softmax, T>::Short::Map({.temperature = op.temperature}, max + g, group + g, out, rows);
    } else if (op.alpha == 2) {
      KernelsOf<Sparsemax, T>::Short::Map({.temperature = op.temperature}, max + g, group + g, out, rows);
    } else {
      MapShortBySquares(op.temperature, max[g], group + g, out, rows);
    }
  }
}

// The entries of a row that a gradient reads. If at most half of the row has mass, only those with mass are packed, with their
// places; otherwise it is the row itself. An entry costs powers and logarithms, and to pack it a fraction of their time.
template <class T>
struct Support {
  const T *p, *g;
  size_t n;
  // Only of packed entries: their places in the row, and memory for their gradient, which may be g.
  const hwy::MakeSigned<T>* places = nullptr;
  T* dx = nullptr;
};

template <class T>
HWY_NOINLINE Support<T> SupportOf(const T* p, const T* g, size_t n, Arena& memory) {
  const RowTag<T> d;
  const auto one = hn::Set(d, T(1));
  const double zeros = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    return hn::IfThenElseZero(hn::Eq(LoadUpTo(d, p + i, count, T(1)), hn::Zero(d)), one);
  });
  if (2 * zeros < static_cast<double>(n)) return {p, g, n};
  const Survivors<T> with_mass(memory, n);
  const size_t kept = FilterAbove<true>(
      d, [](auto pi) HWY_ATTR { return pi; }, p, n, T(0), with_mass);
  T* const packed_g = memory.take<T>(n);
  ForEachVector(d, kept, [&](size_t i, size_t count) HWY_ATTR {
    for (size_t k = i; k < i + count; ++k) packed_g[k] = g[with_mass.places[k]];
  });
  return {with_mass.z, packed_g, kept, with_mass.places, packed_g};
}

// Writes the gradient that write(dx, stream) gives for the support to its places, and 0 elsewhere.
template <class T, class Write>
HWY_INLINE void WriteOnSupport(const Support<T>& support, size_t n, T* dx, bool stream, const Write& write) {
  const RowTag<T> d;
  if (support.places == nullptr) return write(dx, stream);
  write(support.dx, false);
  QuickWriteRow(d, stream, n, dx, [&](size_t /*i*/, size_t /*count*/) HWY_ATTR { return hn::Zero(d); });
  ForEachVector(d, support.n, [&](size_t i, size_t count) HWY_ATTR {
    for (size_t k = i; k < i + count; ++k) dx[support.places[k]] = support.dx[k];
  });
}

// <g, dp/d alpha>. With L = log p, h = -p L, y = -b L and r = 2 p L^2 phi_2(y), phi_2(y) = (e^y - 1 - y)/y^2, the formula of
// Correia, Niculae and Martins, which divides differences by b and b^2, is without any rest
//   dp/d alpha = (p R - r + b (h R - r H)) / (2 sum s),   R = sum r, H = sum h, s = p e^y = p^(2 - alpha):
// nothing cancels as alpha goes through 1.
struct AlphaSums {
  double s, h, r, gp, gh, gr;
  HWY_INLINE double Slope(double b) const { return (r * (gp + b * gh) - gr * (1 + b * h)) / (2 * s); }
};

// p e^y, h, r, g p, g h and g r.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AlphaTerms(D d, V p, V g, V log_p, V y, V exp_y, V* terms) {
  terms[0] = hn::Mul(p, exp_y);
  terms[1] = hn::Neg(hn::Mul(p, log_p));
  terms[2] = hn::Neg(hn::Mul(hn::Add(terms[1], terms[1]), hn::Mul(log_p, Phi2(d, y, exp_y))));
  terms[3] = hn::Mul(g, p);
  terms[4] = hn::Mul(g, terms[1]);
  terms[5] = hn::Mul(g, terms[2]);
}

template <class D, class T>
HWY_NOINLINE HWY_FLATTEN AlphaSums SumForAlpha(D d, double b, const T* p, const T* g, size_t n) {
  using W = hn::TFromD<D>;
  using V = hn::Vec<D>;
  const V minus_b = hn::Set(d, static_cast<W>(-b)), zero = hn::Zero(d);
  // e^600 and its sums are numbers; where y is larger, alpha moves nothing that is left.
  const V most = hn::Set(d, W(sizeof(W) == 4 ? 80 : 600));
  double sums[6];
  Sums(d, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    V pi, gi;
    if constexpr (sizeof(W) == sizeof(T)) {
      pi = LoadUpTo(d, p + i, count, T(0)), gi = LoadUpTo(d, g + i, count, T(0));
    } else {
      pi = LoadWide(d, p + i, count, T(0)), gi = LoadWide(d, g + i, count, T(0));
    }
    const auto out = hn::Eq(pi, zero);
    for (size_t k = 0; k < 6; ++k) terms[k] = zero;
    if (hn::AllTrue(d, out)) return;
    const V log_p = Log(d, pi), y = hn::Min(hn::Mul(log_p, minus_b), most);
    V values[6];
    AlphaTerms(d, pi, gi, log_p, y, Exp(d, y), values);
    for (size_t k = 0; k < 6; ++k) terms[k] = hn::IfThenZeroElse(out, values[k]);
  });
  return {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
}

// Up to this b no s or r is far above 1, and terms in float serve; a gradient near the type's end would still be too much.
inline constexpr double kMostInOwnType = 0.75;

// The slope in alpha.
template <class T>
HWY_INLINE double AlphaSlope(double b, const T* p, const T* g, size_t n) {
  if (b <= kMostInOwnType) {
    const AlphaSums own = SumForAlpha(RowTag<T>(), b, p, g, n);
    if (std::isfinite(own.gp + own.gh + own.gr)) return own.Slope(b);
  }
  return SumForAlpha(D64(), b, p, g, n).Slope(b);
}

// dx = s (g - mean) / T; 0 where s is.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void WriteCentred(D d, double temperature, const T* s, const T* g, double mean_g, size_t n, T* dx, bool stream) {
  const auto mean = hn::Set(d, static_cast<T>(mean_g));
  const DividedBy<D> divided(temperature);
  QuickWriteRow(d, stream, n, dx, [&](size_t i, size_t count) HWY_ATTR {
    const auto si = LoadUpTo(d, s + i, count, T(0));
    const auto v = divided(hn::Mul(si, hn::Sub(LoadUpTo(d, g + i, count, T(0)), mean)));
    return hn::IfThenZeroElse(hn::Eq(si, hn::Zero(d)), v);
  });
}

// s (g - <s,g> / sum s) / T with s = slope(p) in [0, 1]: nothing is lost in the row's own type. 0 where p is.
template <bool kQuick, class D, class Slope, class T = hn::TFromD<D>>
HWY_INLINE void VjpRowBySlope(D d, double temperature, const T* p, const T* g, size_t n, T* dx, Workspace workspace,
                              const Slope& slope) {
  T* const s = workspace.memory.take<T>(n);
  double sums[2];
  const auto visit = [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    const auto out = hn::Eq(pi, hn::Zero(d));
    terms[0] = terms[1] = hn::Zero(d);
    if (!hn::AllTrue(d, out)) {
      terms[0] = hn::IfThenZeroElse(out, slope(pi));
      terms[1] = hn::IfThenZeroElse(out, hn::Mul(terms[0], LoadUpTo(d, g + i, count, T(0))));
    }
    StoreUpTo(terms[0], d, count, s + i);
  };
  kQuick ? QuickSums(d, n, sums, visit) : Sums(d, n, sums, visit);
  WriteCentred(d, temperature, s, g, sums[1] / sums[0], n, dx, workspace.stream);
}

// SlopePower in float64.
template <class T>
class SlopePowerByExp {
 public:
  HWY_INLINE explicit SlopePowerByExp(double b) : exponent_(hn::Set(RowTag<T>(), static_cast<T>(1 - b))) {}
  HWY_INLINE hn::Vec<RowTag<T>> operator()(hn::Vec<RowTag<T>> p) const {
    const RowTag<T> d;
    return Exp(d, hn::Mul(exponent_, Log(d, p)));
  }

 private:
  hn::Vec<RowTag<T>> exponent_;
};
template <class T>
using SlopeOfMass = std::conditional_t<sizeof(T) == 4, SlopePower, SlopePowerByExp<T>>;

// s = p^(2 - alpha) for alpha > 2. It may differ by more than all numbers do, and rightly the gradient with it. So, in float64,
// s enters the mean relative to its largest, each entry by the two halves of its own, and g as its difference to g at the
// largest; what that entry itself gets, where it outweighs the rest, is all that the others lose.
template <class T>
HWY_NOINLINE HWY_FLATTEN void VjpRowByPowers(double b, double temperature, const T* p, const T* g, size_t n, T* dx,
                                             Workspace workspace) {
  const RowTag<T> d;
  const D64 d64;
  auto least = hn::Set(d, kInfinity<T>);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    least = hn::Min(hn::IfThenElse(hn::Gt(pi, hn::Zero(d)), pi, least), least);
  });
  const T smallest = MinLane(d, least);
  const size_t pivot = smallest < kInfinity<T> ? EndOfFirst(d, p, n, smallest, 1) - 1 : 0;
  const V64 log_pivot = Log(d64, hn::Set(d64, static_cast<double>(p[pivot]))), power = hn::Set(d64, 1 - b);
  const V64 pivot_g = hn::Set(d64, static_cast<double>(g[pivot]));
  double* const dx64 = workspace.memory.take<double>(n);
  double sums[2];
  Sums(d64, n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 pi = LoadWide(d64, p + i, count, T(0));
    const auto out = hn::Eq(pi, hn::Zero(d64));
    terms[0] = terms[1] = hn::Zero(d64);
    V64 log_p = terms[0];
    if (!hn::AllTrue(d64, out)) {
      log_p = Log(d64, pi);
      terms[0] = hn::IfThenZeroElse(out, Exp(d64, hn::Mul(power, hn::Sub(log_p, log_pivot))));
      const V64 difference = hn::Sub(LoadWide(d64, g + i, count, T(0)), pivot_g);
      terms[1] = hn::IfThenZeroElse(out, hn::Mul(terms[0], difference));
    }
    StoreUpTo(log_p, d64, count, dx64 + i);
  });
  const V64 mean = hn::Set(d64, sums[1] / sums[0]);
  const DividedBy<D64> divided(temperature);
  const bool dominates = sums[0] < 2;
  const double others = Sum(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto out = hn::Eq(LoadWide(d64, p + i, count, T(0)), hn::Zero(d64));
    V64 v = hn::Zero(d64);
    if (!hn::AllTrue(d64, out)) {
      const V64 half = Exp(d64, hn::Mul(hn::Set(d64, 0.5 * (1 - b)), LoadUpTo(d64, dx64 + i, count, 0.0)));
      const V64 difference = hn::Sub(LoadWide(d64, g + i, count, T(0)), pivot_g);
      // s may be infinite, and 0 times it is none.
      const V64 centred = hn::Sub(difference, mean);
      v = hn::IfThenZeroElse(hn::Or(out, hn::Eq(centred, hn::Zero(d64))), divided(hn::Mul(hn::Mul(centred, half), half)));
      if (dominates) {
        const V64 index = hn::Iota(d64, static_cast<double>(i));
        v = hn::IfThenZeroElse(hn::Eq(index, hn::Set(d64, static_cast<double>(pivot))), v);
      }
    }
    StoreUpTo(v, d64, count, dx64 + i);
    return v;
  });
  ForEachVector(d64, n,
                [&](size_t i, size_t count) HWY_ATTR { StoreNarrow(LoadUpTo(d64, dx64 + i, count, 0.0), d64, count, dx + i); });
  if (!dominates) return;
  // Infinite numbers of both signs among the others: less than what the largest s makes of the mean.
  const double own = sums[1] == 0 ? 0 : -sums[1] * kInfinity<double>;
  SetEntry(dx, pivot, static_cast<T>(others == others ? -others : own));
}

// The gradient for alpha > 2 of groups of rows of at most ShortRows::kLongest.
HWY_NOINLINE HWY_FLATTEN inline void ShortVjpAboveTwo(double b, double temperature, ShortRows<float>* p, ShortRows<float>* g,
                                                      float* const* dx, size_t count) {
  using V = hn::Vec<RowTag<float>>;
  const RowTag<float> d;
  const auto alone = [&](size_t group, size_t r, float* to) HWY_ATTR {
    HWY_ALIGN float p_row[ShortRows<float>::kLongest], g_row[ShortRows<float>::kLongest];
    HWY_ALIGN uint8_t memory[8 * ShortRows<float>::kLongest];
    const size_t n = p[group].size();
    for (size_t i = 0; i < n; ++i) p_row[i] = p[group].At(r, i), g_row[i] = g[group].At(r, i);
    VjpRowByPowers(b, temperature, p_row, g_row, n, to, {Arena(memory, sizeof(memory)), false});
  };
  if (b == 2) {
    const auto relative = [](V pi, V lowest) HWY_ATTR { return hn::Div(lowest, pi); };
    return ShortVjpByPivot(b, temperature, p, g, dx, count, relative, alone);
  }
  const V power = hn::Set(d, static_cast<float>(b - 1));
  const auto relative = [&](V pi, V lowest) HWY_ATTR {
    if (hn::AllTrue(d, hn::Eq(pi, hn::Zero(d)))) return pi;
    return Exp(d, hn::Mul(power, Log(d, hn::Div(lowest, pi))));
  };
  ShortVjpByPivot(b, temperature, p, g, dx, count, relative, alone);
}

template <class T>
HWY_INLINE bool KernelsOf<Entmax, T>::Short::TakesVjp(const Entmax& op) {
  const double b = EntmaxPower<T>(op);
  return b == 0.5 || b == 1 || (sizeof(T) == 4 && b != 0);
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::Short::Vjp(const Entmax& op, ShortRows<T>* p, ShortRows<T>* g, T* const* dx,
                                                 size_t count) {
  const double b = EntmaxPower<T>(op);
  if (b == 1) return KernelsOf<Sparsemax, T>::Short::Vjp({.temperature = op.temperature}, p, g, dx, count);
  if (b == 0.5) {
    return ShortVjpBySlope(op.temperature, p, g, dx, count, [](auto pi) HWY_ATTR { return hn::Sqrt(pi); });
  }
  if constexpr (sizeof(T) == 4) {
    return b > 1 ? ShortVjpAboveTwo(b, op.temperature, p, g, dx, count) : ShortEntmaxVjp(b, op.temperature, p, g, dx, count);
  }
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::VjpRow(const Entmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                             ParamValues<Entmax>* slopes, Workspace workspace) {
  const RowTag<T> d;
  const double b = EntmaxPower<T>(op);
  const bool is_quick = b == 0 || b == 0.5 || b == 1;
  Arena memory = workspace.memory;
  const Support<T> support = is_quick && slopes == nullptr ? Support<T>{p, g, n} : SupportOf(p, g, n, memory);
  if (slopes != nullptr) (*slopes)[0] = AlphaSlope(op.alpha - 1, support.p, support.g, support.n);
  if (dx == nullptr) return;
  if (b == 0) return KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
  if (b == 1) return KernelsOf<Sparsemax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
  if (b == 0.5) {
    return VjpRowBySlope<true>(d, op.temperature, p, g, n, dx, workspace, [](auto pi) HWY_ATTR { return hn::Sqrt(pi); });
  }
  WriteOnSupport(support, n, dx, workspace.stream, [&](T* to, bool stream) HWY_ATTR {
    const Workspace rest = {memory, stream};
    if (b > 1) return VjpRowByPowers(b, op.temperature, support.p, support.g, support.n, to, rest);
    const SlopeOfMass<T> slope(b);
    // 0 p carries a NaN row into the slope.
    VjpRowBySlope<false>(d, op.temperature, support.p, support.g, support.n, to, rest,
                         [&](auto pi) HWY_ATTR { return hn::MulAdd(pi, hn::Zero(d), slope(pi)); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_ENTMAX_INL_H_

// entmax of rows for small b = alpha - 1.
//
// There c = p_max^b is near 1, and the rounding of c + u would be magnified by 1/b. Hence p = p_max (1 + v)^(1/b), v = b z/c
// with z = (x - max)/T, by log(1 + v) of a small v, divided by its sum as softmax is: a softmax at inverse temperature 1/c
// whose exp is bent by b. Also for alpha < 1, where all have mass.

#if defined(ISENTROPIC_MAPS_BENT_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_BENT_ENTMAX_INL_H_
#undef ISENTROPIC_MAPS_BENT_ENTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_BENT_ENTMAX_INL_H_
#endif

#include "src/maps/threshold_start-inl.h"
#include "src/rows/entry-inl.h"
#include "src/rows/expm1-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// (1 + v)^(1/b), v = b (x - max)/(T c), for b < 1/4: exp bent by b, with its value 1 at the maximum. 0 where v <= -1 and at
// -inf. b/(T c) is split into two numbers: its rounding would be the same for all scores and move as much mass as they have.
//
// The higher of two scores gets no less: z high + z low is rounded once, but for z low, whose rounding is far below what
// z high gains; and neither Log1p nor ExpScaled ever falls.
template <class D, class T = hn::TFromD<D>>
class BentExp {
 public:
  // The powers at c/(1 + tau) in place of c.
  HWY_INLINE BentExp(D d, double b, double temperature, double c, T max, double tau = 0)
      : exp_(d, std::abs(b)), max_(hn::Set(d, max)), rising_(b > 0) {
    // The low part makes up for the rounding of T c, of the quotient, and of the sum.
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

  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    const auto v = V(d, x);
    if (rising_) {
      const auto out = hn::Le(v, hn::Set(d, T(-1)));
      if (hn::AllTrue(d, out)) return hn::Zero(d);
      return hn::IfThenZeroElse(out, exp_(d, Log1p(d, v)));
    }
    const auto out = hn::Eq(x, hn::Set(d, -kInfinity<T>));
    return hn::IfThenZeroElse(out, exp_(d, hn::Neg(Log1p(d, v))));
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

  ExpScaled<D> exp_;
  hn::Vec<D> max_, high_, low_, lowest_;
  bool rising_;
};

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

// The search for c: Newton's steps, each a pass over the scores, until what one pass says of its surroundings is all that is
// needed. `weight`: how often each score counts.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE BentSeries FindBent(D d, double b, double temperature, double start, const T* x, size_t n, T max, double weight,
                               double enough) {
  BentSeries series;
  series.Begin(b, weight * static_cast<double>(n), start, enough);
  while (series.asks()) {
    double sums[4];
    BentMoments(d, b, BentExp<D>(d, b, temperature, series.c(), max), x, n, sums);
    series.Take(weight * sums[0], weight * sums[1], weight * sums[2], weight * sums[3]);
  }
  return series;
}

// p of n scores, from a start of c, or false if they have NaN. p may be x.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE HWY_FLATTEN bool MapBentRow(D d, double b, double temperature, double start, const T* x, size_t n, T max, T* p,
                                         bool stream) {
  const BentSeries series = FindBent(d, b, temperature, start, x, n, max, 1, sizeof(T) == 4 ? 0x1p-25 : 0x1p-54);
  if (!(series.sum() > 0)) return false;
  const BentExp<D> exp(d, b, temperature, series.c(), max, series.tau());
  const auto factor = hn::Set(d, static_cast<T>(1 / series.sum()));
  WriteRow(d, stream, n, p,
           [&](size_t i, size_t count) HWY_ATTR { return hn::Mul(exp(d, LoadUpTo(d, x + i, count, -kInfinity<T>)), factor); });
  return true;
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

// Each step is a pass over the row: it starts near the root. For b > 0 a few of the scores stand for the others. Where few have
// mass, they are solved alone.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MapRowNearSoftmax(D d, double b, double temperature, const T* x, size_t n, T max, T* p, Workspace workspace) {
  Arena memory = workspace.memory;
  double start = 1;
  if (b >= 0.0625) {
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
      if (!MapBentRow(d, b, temperature, start, masses, kept, max, masses, false)) return FillRow(d, kNaN<T>, n, p);
      return Scatter(d, masses, survivors.places, kept, 1, n, p, workspace.stream);
    }
  }
  if (b < 0) {
    start = BentStart(d, b, temperature, x, n, max);
  } else if (n >= 512) {
    const size_t size = HWY_MIN(n / 8, kMostSampled), stride = n / size;
    T* const sample = memory.take<T>(size);
    ForEachVector(d, size, [&](size_t i, size_t count) HWY_ATTR {
      for (size_t k = i; k < i + count; ++k) sample[k] = x[k * stride];
    });
    const double weight = static_cast<double>(n) / static_cast<double>(size);
    const BentSeries found = FindBent(d, b, temperature, start, sample, size, max, weight, 0x1p-10);
    const double c = found.c() / (1 + found.tau());
    // A sample without a score near the maximum says nothing.
    if (c > 0 && c <= 1) start = c;
  }
  if (!MapBentRow(d, b, temperature, start, x, n, max, p, workspace.stream)) FillRow(d, kNaN<T>, n, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_BENT_ENTMAX_INL_H_

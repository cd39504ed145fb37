// The gamma at which softmax(gamma x) has a given entropy.
#include <cstdio>
#include <cstdlib>
//
// With a = gamma (x - max), e = exp(a) and the mean, variance v and third central moment of a under p = e / sum e:
// H = log sum e - mean, dH / d log gamma = -v, d^2H / d (log gamma)^2 = -(2 v + third).

#if defined(ENTROPIC_ROWS_ENTROPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_ENTROPY_INL_H_
#undef ENTROPIC_ROWS_ENTROPY_INL_H_
#else
#define ENTROPIC_ROWS_ENTROPY_INL_H_
#endif

#include <cmath>
#include <limits>

#include "src/rows/exp_log-inl.h"
#include "src/rows/reduce-inl.h"

#ifndef ENTROPIC_ROWS_ENTROPY_STATUS_
#define ENTROPIC_ROWS_ENTROPY_STATUS_
namespace entropic {
// How a row met a target.
enum class EntropyStatus { kOk, kClampedLow, kClampedHigh, kConstant, kInvalid };
}  // namespace entropic
#endif

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

HWY_INLINE double LogOf(double x) { return hn::GetLane(Log(RowTag<double>(), hn::Set(RowTag<double>(), x))); }

// The search for the root, a row in each lane; the arithmetic is the same in every lane and on every target.
//
// Newton's iteration on H itself is slow where H is nearly flat, and leaves the bracket. Near log n the distance log n - H
// grows as gamma^2, near the entropy of the ties H falls as exp(-gamma): their logarithms are nearly straight lines, in
// log gamma and in gamma. The nearer of the two, with Halley's third order step, needs 3 to 5 evaluations from the first
// guess, which is exact for normal scores: H = log n - gamma^2 variance / 2. A bracket catches every other case.
class EntropySearch {
 public:
  using D = RowTag<double>;
  using V = hn::Vec<D>;

  // The target lies inside (log_ties, log_n).
  HWY_INLINE EntropySearch(V target, V log_ties, V log_n)
      : target_(target),
        log_ties_(log_ties),
        log_n_(log_n),
        near_n_(hn::Lt(hn::Sub(log_n, target), hn::Sub(target, log_ties))),
        goal_(hn::IfThenElse(near_n_, hn::Sub(log_n, target), hn::Sub(target, log_ties))) {}

  // The first gamma to try, for scores of this variance.
  HWY_INLINE V Start(V variance) const {
    const D d;
    return hn::Sqrt(hn::Div(hn::Mul(hn::Set(d, 2.0), hn::Sub(log_n_, target_)), variance));
  }

  // Takes the sums of e, e a, e a^2, e a^3 at gamma; the entropy there is then entropy(). Returns the next gamma.
  HWY_INLINE V Next(V gamma, const V (&sums)[4]) {
    const D d;
    const V one = hn::Set(d, 1.0), two = hn::Set(d, 2.0);
    const V inverse = hn::Div(one, sums[0]);
    const V mean = hn::Mul(sums[1], inverse), square = hn::Mul(sums[2], inverse), cube = hn::Mul(sums[3], inverse);
    const V v = hn::NegMulAdd(mean, mean, square);
    const V third = hn::NegMulAdd(mean, hn::NegMulAdd(hn::Mul(two, mean), mean, hn::Mul(hn::Set(d, 3.0), square)), cube);
    entropy_ = hn::Sub(Log(d, sums[0]), mean);

    const auto above = hn::Gt(entropy_, target_);
    low_ = hn::IfThenElse(above, gamma, low_);
    high_ = hn::IfThenElse(above, high_, gamma);

    // log(rest / goal) = 0 for rest = log n - H, a function of log gamma, or H - log ties, one of gamma.
    const V rest = hn::Max(hn::IfThenElse(near_n_, hn::Sub(log_n_, entropy_), hn::Sub(entropy_, log_ties_)),
                           hn::Set(d, std::numeric_limits<double>::min()));
    const V f = Log(d, hn::Div(rest, goal_));
    const V slope = hn::Div(rest, v);  // 1 over that of f
    const V curvature = hn::Div(hn::Mul(hn::Add(hn::IfThenElse(near_n_, hn::Add(v, v), v), third), slope), v);
    const V signed_f = hn::IfThenElse(near_n_, hn::Neg(f), f);
    const V bend =
        hn::MulAdd(hn::Mul(hn::Set(d, 0.5), signed_f), hn::Add(curvature, hn::IfThenElse(near_n_, hn::Neg(one), one)), one);
    const V step = hn::Div(hn::Mul(signed_f, slope), hn::Max(hn::Min(bend, hn::Set(d, 3.0)), hn::Set(d, 0.3)));
    // exp(step) to second order, all that a third order step needs.
    const V size = hn::Abs(step);
    const V grown = hn::MulAdd(hn::MulAdd(hn::Set(d, 0.5), size, one), size, one);
    const V scaled = hn::Mul(gamma, hn::IfThenElse(hn::Gt(step, hn::Zero(d)), grown, hn::Div(one, grown)));
    const V moved = hn::Mul(gamma, hn::Max(hn::Add(one, step), hn::Set(d, 0.1)));
    const V next = hn::IfThenElse(near_n_, scaled, moved);

    // Outside the bracket, or NaN, or too slow: halve it, in log gamma, or look for its end.
    ++steps_;
    const auto inside = hn::And(hn::Gt(next, low_), hn::Lt(next, high_));
    const auto bounded = hn::And(hn::Gt(low_, hn::Zero(d)), hn::Lt(high_, hn::Set(d, std::numeric_limits<double>::max())));
    const V middle = hn::Mul(hn::Sqrt(low_), hn::Sqrt(high_));
    const V search = hn::Mul(gamma, hn::IfThenElse(above, hn::Set(d, 0x1p20), hn::Set(d, 0x1p-20)));
    const bool slow = steps_ > 12 && steps_ % 2 == 0;
    return hn::IfThenElse(slow ? hn::And(inside, hn::Not(bounded)) : inside, next, hn::IfThenElse(bounded, middle, search));
  }

  HWY_INLINE V entropy() const { return entropy_; }

 private:
  V target_, log_ties_, log_n_;
  hn::Mask<D> near_n_;
  V goal_, entropy_ = hn::Zero(D());
  V low_ = hn::Zero(D()), high_ = hn::Set(D(), std::numeric_limits<double>::max());
  int steps_ = 0;
};

// x[0, count) in float64, `fill` beyond.
template <class T>
HWY_INLINE hn::Vec<RowTag<double>> LoadWide(const T* x, size_t count, T fill) {
  const RowTag<double> d;
  const hn::Rebind<T, RowTag<double>> narrow;
  if constexpr (sizeof(T) == 8) {
    return LoadUpTo(d, x, count, fill);
  } else {
    return hn::PromoteTo(d, LoadUpTo(narrow, x, count, fill));
  }
}

// z = x - max in float64, times 2^-exponent so that the smallest finite one is in (-2, -1]: neither a difference beyond the
// largest number nor one below the smallest normal is lost. Never rounds but where T is double. -inf stays.
template <class T>
class WideScores {
 public:
  using D = RowTag<double>;
  using V = hn::Vec<D>;

  // least < max.
  HWY_INLINE WideScores(T max, T least) {
    const D d;
    // Where the difference overflows, half of each score is taken, exactly.
    const double range = static_cast<double>(max) - static_cast<double>(least);
    const bool large = range > std::numeric_limits<double>::max();
    const double factor = large ? 0.5 : 1.0;
    const int rest = std::ilogb(large ? static_cast<double>(max) * 0.5 - static_cast<double>(least) * 0.5 : range);
    exponent = rest + large;
    factor_ = hn::Set(d, factor);
    max_ = hn::Set(d, static_cast<double>(max) * factor);
    // 2^-exponent itself may be no number.
    first_ = hn::Set(d, std::ldexp(1.0, -(rest / 2)));
    second_ = hn::Set(d, std::ldexp(1.0, rest / 2 - rest));
  }

  HWY_INLINE V operator()(V x) const { return hn::Mul(hn::Mul(hn::Sub(hn::Mul(x, factor_), max_), first_), second_); }

  // v 2^-exponent.
  HWY_INLINE V Scale(V v) const { return hn::Mul(hn::Mul(v, first_), hn::Mul(second_, factor_)); }

  int exponent;

 private:
  V factor_, max_, first_, second_;
};

// What is asked of softmax(gamma x): an entropy in [low, high], by gamma = 1 if that has it, else the nearer end.
struct EntropyTarget {
  double low, high;
};

// gamma stays in [low, high], and the search ends after so many evaluations.
struct GammaLimits {
  double low = 0, high = std::numeric_limits<double>::infinity();
  int evaluations = 100;

  // Of gamma 2^exponent, and inside numbers whose products with scores overflow nowhere.
  HWY_INLINE GammaLimits Scaled(int exponent) const {
    return {HWY_MAX(std::ldexp(low, exponent), 0x1p-1000), HWY_MIN(std::ldexp(high, exponent), 0x1p1000), evaluations};
  }
};

struct GammaOfRow {
  double gamma, entropy;
  EntropyStatus status;
  int evaluations;
};

// Calls evaluate(gamma, sums) until the entropy is the target's. The last call is at the gamma that is returned, in the
// units of `one`, the gamma that stands for 1. The target can be reached: high > log_ties, low < log_n.
//
// An error below `met` ends the search, and so does one below `noise` after one below `near`: the third order step between
// them leaves nothing but the rounding of the sums.
struct EntropyTolerance {
  double met, near, noise;
};

template <class Evaluate>
HWY_INLINE GammaOfRow FindGamma(EntropyTarget target, GammaLimits limits, EntropyTolerance tolerance, double log_ties,
                                double log_n, double variance, double one, Evaluate&& evaluate) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  double sums[4], goal = target.low;
  int used = 0;
  if (target.low < target.high) {
    evaluate(one, sums);
    ++used;
    const double entropy = LogOf(sums[0]) - sums[1] / sums[0];
    if (entropy >= target.low && entropy <= target.high) return {one, entropy, EntropyStatus::kOk, used};
    if (entropy > target.high) goal = target.high;
  }
  const double scale = HWY_MAX(1.0, goal);
  EntropySearch search(hn::Set(d, goal), hn::Set(d, log_ties), hn::Set(d, log_n));
  double gamma = hn::GetLane(search.Start(hn::Set(d, variance)));
  double last = std::numeric_limits<double>::infinity();
  for (;;) {
    // The limits are normal numbers: 0 or NaN becomes one of them.
    gamma = gamma > limits.low ? HWY_MIN(gamma, limits.high) : limits.low;
    evaluate(gamma, sums);
    ++used;
    const V at[4] = {hn::Set(d, sums[0]), hn::Set(d, sums[1]), hn::Set(d, sums[2]), hn::Set(d, sums[3])};
    const double next = hn::GetLane(search.Next(hn::Set(d, gamma), at));
    const double entropy = hn::GetLane(search.entropy());
    const double error = std::abs(entropy - goal) / scale;
    if (getenv("DBG")) fprintf(stderr, "gamma %g H %g goal %g next %g sums %g %g %g %g\n", gamma, entropy, goal, next, sums[0], sums[1], sums[2], sums[3]);
    const auto result = [&](EntropyStatus status) { return GammaOfRow{gamma, entropy, status, used}; };
    if (error <= tolerance.met || (error <= tolerance.noise && last <= tolerance.near) || used >= limits.evaluations ||
        next == gamma) {
      return result(EntropyStatus::kOk);
    }
    if (gamma >= limits.high && entropy > goal) return result(EntropyStatus::kClampedLow);
    if (gamma <= limits.low && entropy < goal) return result(EntropyStatus::kClampedHigh);
    last = error;
    gamma = next;
  }
}

// What a first sweep over a row with a finite maximum finds.
template <class T>
struct RowSurvey {
  T max, least;         // of the finite scores
  double finite, ties;  // how many there are, and how many equal the maximum
  double variance;      // of the finite scores; not finite where their squares overflow T
  bool nan;
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE RowSurvey<T> Survey(D d, const T* x, size_t n, T max) {
  const auto absent = hn::Set(d, -std::numeric_limits<T>::infinity()), top = hn::Set(d, max), one = hn::Set(d, T(1));
  auto least = top;
  double sums[4];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, max);
    const auto out = hn::Eq(xi, absent);
    const auto score = hn::IfThenElse(out, top, xi);
    least = hn::Min(score, least);
    terms[0] = hn::Sub(score, top);
    terms[1] = hn::Mul(terms[0], terms[0]);
    terms[2] = hn::IfThenZeroElse(out, one);
    terms[3] = hn::IfThenElseZero(hn::Eq(xi, top), one);
  });
  const double mean = sums[0] / sums[2];
  const T smallest = FoldLanes(d, least, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
  return {max, smallest, sums[2], sums[3], sums[1] / sums[2] - mean * mean, sums[0] != sums[0]};
}

// gamma of a row of scores with a finite maximum, all in float64: for any scores there are. e has room for n and takes
// exp(gamma (x - max)), `sum` their sum.
template <class T>
HWY_INLINE GammaOfRow FindGammaWide(const RowSurvey<T>& row, const T* x, size_t n, EntropyTarget target, GammaLimits limits,
                                    double* e, double* sum) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  const WideScores<T> relative(row.max, row.least);
  const V absent = hn::Set(d, -std::numeric_limits<double>::infinity());
  double moments[2];
  Sums(d, n, moments, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V z = relative(LoadWide(x + i, count, row.max));
    terms[0] = hn::IfThenZeroElse(hn::Eq(z, absent), z);
    terms[1] = hn::Mul(terms[0], terms[0]);
  });
  const double mean = moments[0] / row.finite;
  const double variance = moments[1] / row.finite - mean * mean;
  const ExpScaled<RowTag<double>> exp(d, 1);
  const auto evaluate = [&](double gamma, double(&sums)[4]) HWY_ATTR {
    const V factor = hn::Set(d, gamma), lowest = hn::Set(d, -800.0);
    Sums(d, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
      // Below -800 exp is 0, and 0 times the bound is 0.
      const V a = hn::Max(hn::Mul(relative(LoadWide(x + i, count, row.max)), factor), lowest);
      terms[0] = exp(d, a);
      StoreUpTo(terms[0], d, count, e + i);
      terms[1] = hn::Mul(terms[0], a);
      terms[2] = hn::Mul(terms[1], a);
      terms[3] = hn::Mul(terms[2], a);
    });
    *sum = sums[0];
  };
  const double one = HWY_MIN(std::ldexp(1.0, relative.exponent), std::numeric_limits<double>::max());
  GammaOfRow found = FindGamma(target, limits.Scaled(relative.exponent), {2e-15, 1e-5, 2e-13}, LogOf(row.ties),
                               LogOf(row.finite), variance, one, evaluate);
  found.gamma = std::ldexp(found.gamma, -relative.exponent);
  return found;
}

// exp(gamma z) in float32 for z <= 0, gamma > 0 known to more digits than float32 has, and the exponent itself, exactly the
// one taken, so that an entropy computed from the two is that of the results. Results below 2^-126 are 0.
//
// As ExpScaled, with gamma log2(e) in two parts. The upper is rounded towards 0, so that both have one sign: z high + z low,
// each rounded, then never falls as z rises. r lies a little below -1/2 at times, and in steps of 2^-22: 3 + r is in [2, 4).
class ExpOfGamma {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;

  HWY_INLINE explicit ExpOfGamma(double gamma) {
    const D d;
    const double c = gamma * 0x1.71547652b82fep+0;
    float high = static_cast<float>(c);
    if (static_cast<double>(high) > c) high = std::nextafter(high, 0.0f);
    high_ = hn::Set(d, high);
    low_ = hn::Set(d, static_cast<float>(c - static_cast<double>(high)));
    lowest_ = hn::Set(d, static_cast<float>(-ExpConstants<float>::kBias / c));
  }

  // log2 of the result goes to `exponent`.
  HWY_INLINE V operator()(V z, V* exponent) const {
    using C = ExpConstants<float>;
    const D d;
    const hn::RebindToSigned<D> di;
    z = hn::Max(z, lowest_);
    const V magic = hn::Set(d, C::kMagic + C::kBias), grid = hn::Set(d, 3.0f);
    const V t = hn::MulAdd(z, high_, magic);
    const V k = hn::Sub(t, magic);
    const V r = hn::Sub(hn::MulAdd(z, low_, hn::MulAdd(z, high_, hn::Sub(grid, k))), grid);
    *exponent = hn::Add(k, r);
    const V power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, r), power);
  }

 private:
  V high_, low_, lowest_;
};

// Whether FindGammaNarrow may be tried: no difference of scores overflows, and so few terms that float32 ones will do.
HWY_INLINE bool IsNarrow(const RowSurvey<float>& row, size_t n) {
  return n <= size_t{1} << 18 && row.max - row.least <= std::numeric_limits<float>::max() && row.variance < 0x1p80 &&
         row.variance > 0x1p-80;
}

// The same in float32, with sums in float64, for the rows that there are. Fails, with kInvalid, where gamma comes near the
// ends of float32's range.
HWY_INLINE GammaOfRow FindGammaNarrow(const RowSurvey<float>& row, const float* x, size_t n, EntropyTarget target, float* e,
                                      double* sum) {
  const RowTag<float> d;
  using V = hn::Vec<RowTag<float>>;
  const V top = hn::Set(d, row.max);
  const auto evaluate = [&](double gamma, double(&sums)[4]) HWY_ATTR {
    const ExpOfGamma exp(gamma);
    Sums(d, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
      V exponent;
      terms[0] = exp(hn::Sub(LoadUpTo(d, x + i, count, row.max), top), &exponent);
      StoreUpTo(terms[0], d, count, e + i);
      terms[1] = hn::Mul(terms[0], exponent);
      terms[2] = hn::Mul(terms[1], exponent);
      terms[3] = hn::Mul(terms[2], exponent);
    });
    *sum = sums[0];
    constexpr double kLn2 = 0x1.62e42fefa39efp-1;
    sums[1] *= kLn2, sums[2] *= kLn2 * kLn2, sums[3] *= kLn2 * kLn2 * kLn2;
  };
  constexpr GammaLimits kNormal = {0x1p-90, 0x1p90};
  GammaOfRow found = FindGamma(target, kNormal, {1e-7, 0, 0}, LogOf(row.ties), LogOf(row.finite), row.variance, 1, evaluate);
  if (found.status != EntropyStatus::kOk) found.status = EntropyStatus::kInvalid;
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_ENTROPY_INL_H_

// The gamma at which softmax(gamma x) has a given entropy.
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

#include "entropic/entropy_control.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/reduce-inl.h"
#include "src/rows/scores_read.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

HWY_INLINE double LogOf(double x) { return hn::GetLane(Log(RowTag<double>(), hn::Set(RowTag<double>(), x))); }

// The search for the root, a row in each lane; the arithmetic is the same in every lane and on every target.
//
// Newton's iteration on H itself is slow where H is nearly flat, and leaves the bracket. Near log n the distance log n - H
// grows as gamma^2, near the entropy of the ties H falls as exp(-gamma): their logarithms are nearly straight lines, in
// log gamma and in gamma. The nearer of the two, with Halley's third order step, needs 2 to 5 evaluations from the first
// guess, which is exact for many normal scores: H = log n - gamma^2 variance / 2. A bracket catches every other case.
class EntropySearch {
 public:
  using D = RowTag<double>;
  using V = hn::Vec<D>;

  HWY_INLINE EntropySearch() = default;
  // The target lies inside (log_ties, log_n).
  HWY_INLINE EntropySearch(V target, V log_ties, V log_n)
      : target_(target),
        log_ties_(log_ties),
        log_n_(log_n),
        near_n_(hn::Lt(hn::Sub(log_n, target), hn::Sub(target, log_ties))),
        goal_(hn::IfThenElse(near_n_, hn::Sub(log_n, target), hn::Sub(target, log_ties))) {}

  // The first gamma to try, for scores of these cumulants: where log n - H = gamma^2 variance / 2 + gamma^3 third / 3, the
  // beginning of its series, if the long tail is above and matters; by the variance alone otherwise.
  HWY_INLINE V Start(V variance, V third) const {
    const D d;
    const V one = hn::Set(d, 1.0), distance = hn::Sub(log_n_, target_);
    const V by_variance = hn::Sqrt(hn::Div(hn::Add(distance, distance), variance));
    // In units of that gamma: x^2 + c x^3 = 1.
    const V cube = hn::Mul(hn::Mul(by_variance, by_variance), by_variance);
    const V c = hn::Div(hn::Mul(third, cube), hn::Mul(hn::Set(d, 3.0), distance));
    V x = hn::Div(one, hn::Sqrt(hn::Add(one, c)));
    for (int i = 0; i < 2; ++i) {
      const V slope = hn::Mul(x, hn::MulAdd(hn::Mul(hn::Set(d, 3.0), c), x, hn::Set(d, 2.0)));
      x = hn::Sub(x, hn::Div(hn::MulSub(hn::Mul(x, x), hn::MulAdd(c, x, one), one), slope));
    }
    return hn::IfThenElse(hn::Gt(c, hn::Zero(d)), hn::Mul(by_variance, x), by_variance);
  }

  // Takes the sums of e, e a, e a^2, e a^3 at gamma; the entropy there is then entropy(). Returns the next gamma.
  HWY_INLINE V Next(V gamma, const V (&sums)[4]) {
    const D d;
    const V one = hn::Set(d, 1.0), two = hn::Set(d, 2.0);
    const V inverse = hn::Div(one, sums[0]);
    const V mean = hn::Mul(sums[1], inverse), square = hn::Mul(sums[2], inverse), cube = hn::Mul(sums[3], inverse);
    const V v = hn::NegMulAdd(mean, mean, square);
    const V inverse_v = hn::Div(one, v);
    mean_ = mean, variance_ = v;
    const V third = third_ =
        hn::NegMulAdd(mean, hn::NegMulAdd(hn::Mul(two, mean), mean, hn::Mul(hn::Set(d, 3.0), square)), cube);
    log_sum_ = Log(d, sums[0]);
    entropy_ = hn::Sub(log_sum_, mean);

    const auto above = hn::Gt(entropy_, target_);
    low_ = hn::IfThenElse(above, gamma, low_);
    high_ = hn::IfThenElse(above, high_, gamma);

    // log(rest / goal) = 0 for rest = log n - H, a function of log gamma, or H - log ties, one of gamma.
    const V rest = hn::Max(hn::IfThenElse(near_n_, hn::Sub(log_n_, entropy_), hn::Sub(entropy_, log_ties_)),
                           hn::Set(d, std::numeric_limits<double>::min()));
    const V ratio = hn::Div(hn::Sub(rest, goal_), hn::Add(rest, goal_)), ratio2 = hn::Mul(ratio, ratio);
    V f = LogOfQuotient(ratio, ratio2);
    const auto close = hn::Lt(ratio2, hn::Set(d, 0.1));
    if (!hn::AllTrue(d, close)) f = hn::IfThenElse(close, f, Log(d, hn::Div(rest, goal_)));
    residual_ = f;
    const V slope = hn::Mul(rest, inverse_v);  // 1 over that of f
    const V curvature = hn::Mul(hn::Mul(hn::Add(hn::IfThenElse(near_n_, hn::Add(v, v), v), third), slope), inverse_v);
    const V signed_f = hn::IfThenElse(near_n_, hn::Neg(f), f);
    const V bend =
        hn::MulAdd(hn::Mul(hn::Set(d, 0.5), signed_f), hn::Add(curvature, hn::IfThenElse(near_n_, hn::Neg(one), one)), one);
    V step = hn::Div(hn::Mul(signed_f, slope), hn::Max(hn::Min(bend, hn::Set(d, 3.0)), hn::Set(d, 0.3)));
    step = hn::Add(step, Correction(gamma, f, hn::Mul(v, hn::Div(one, rest)), curvature, step));
    // exp(step) to fourth order where it is small; what only grows with it elsewhere.
    const V cubic = hn::MulAdd(hn::Set(d, 1.0 / 24), step, hn::Set(d, 1.0 / 6));
    V scaled = hn::MulAdd(hn::MulAdd(hn::MulAdd(cubic, step, hn::Set(d, 0.5)), step, one), step, one);
    const V size = hn::Abs(step);
    const auto small = hn::Lt(size, one);
    if (!hn::AllTrue(d, small)) {
      const V grown = hn::MulAdd(hn::MulAdd(hn::Set(d, 0.5), size, one), size, one);
      scaled = hn::IfThenElse(small, scaled, hn::IfThenElse(hn::Gt(step, hn::Zero(d)), grown, hn::Div(one, grown)));
    }
    const V moved = hn::Max(hn::Add(one, step), hn::Set(d, 0.1));
    // Where H is flat, below or above a sudden fall, a step means nothing: the first go 8 times as far at most, each of the
    // next the square of that.
    const double far = std::ldexp(1.0, 3 << HWY_MIN(steps_, 8));
    const V most = hn::Set(d, far), least = hn::Set(d, 1 / far);
    const V next = hn::Mul(gamma, hn::Max(hn::Min(hn::IfThenElse(near_n_, scaled, moved), most), least));

    // Outside the bracket, or NaN, or too slow: halve it, in log gamma, or look for its end.
    ++steps_;
    const auto inside = hn::And(hn::Gt(next, low_), hn::Lt(next, high_));
    const auto bounded = hn::And(hn::Gt(low_, hn::Zero(d)), hn::Lt(high_, hn::Set(d, std::numeric_limits<double>::max())));
    const V middle = hn::Mul(hn::Sqrt(low_), hn::Sqrt(high_));
    const V search = hn::Mul(gamma, hn::IfThenElse(above, most, least));
    const V elsewhere = hn::IfThenElse(bounded, middle, search);
    return steps_ > 12 && steps_ % 2 == 0 ? elsewhere : hn::IfThenElse(inside, next, elsewhere);
  }

  // Forgets the bracket of a row, of a lane where `which` is not 0: what was evaluated so far stood for the row only.
  HWY_INLINE void Restart(V which) {
    const auto same = hn::Eq(which, hn::Zero(D()));
    low_ = hn::IfThenElseZero(same, low_);
    high_ = hn::IfThenElse(same, high_, hn::Set(D(), std::numeric_limits<double>::max()));
    last_gamma_ = hn::IfThenElseZero(same, last_gamma_);
  }

  // At the gamma that Next was given: the entropy, log(rest / goal), and the first three cumulants of a.
  HWY_INLINE V entropy() const { return entropy_; }
  HWY_INLINE V residual() const { return residual_; }
  HWY_INLINE V variance() const { return variance_; }
  HWY_INLINE V log_sum() const { return log_sum_; }

  // Where H is as near as float32 sums tell, but they do not tell how far it is from an end of its reach: there the next gamma
  // would be noise.
  HWY_INLINE hn::Mask<D> IsLost() const {
    const D d;
    return hn::Le(hn::Abs(hn::Sub(entropy_, target_)), hn::Mul(hn::Set(d, 1e-7), hn::Max(target_, hn::Set(d, 1.0))));
  }

  // log sum e at gamma (1 + step).
  HWY_INLINE V LogSumAfter(V step) const {
    const D d;
    const V terms =
        hn::MulAdd(hn::MulAdd(hn::Mul(third_, hn::Set(d, 1.0 / 3)), step, variance_), hn::Mul(hn::Set(d, 0.5), step), mean_);
    return hn::MulAdd(terms, step, log_sum_);
  }

 private:
  // log((1 + w) / (1 - w)) = 2 w + 2 w^3/3 + 2 w^5/5 + .., near 0.
  static HWY_INLINE V LogOfQuotient(V w, V w2) {
    const D d;
    const V cubic = hn::MulAdd(hn::MulAdd(hn::Set(d, 1.0 / 7), w2, hn::Set(d, 0.2)), w2, hn::Set(d, 1.0 / 3));
    return hn::Mul(hn::Add(w, w), hn::MulAdd(cubic, w2, hn::Set(d, 1.0)));
  }

  // What the third derivative of f adds to Halley's step, whose own model of f has one of 3 f''^2 / (2 f'). The polynomial of
  // degree 5 through f, f' and f'' here and at the gamma before has it nearly; after a restart the last one stands in. With it
  // one more evaluation is seldom needed: what is left of a step from f = 0.03 is 1e-6 and not 1e-5.
  HWY_INLINE V Correction(V gamma, V f, V size, V curvature, V step) {
    const D d;
    const V one = hn::Set(d, 1.0);
    // Of f in log gamma, or in gamma over its present value.
    const V first = hn::IfThenElse(near_n_, size, hn::Neg(size));
    const V bend = hn::IfThenElse(near_n_, hn::Sub(curvature, one), hn::Neg(hn::Add(curvature, one)));
    const V second = hn::Mul(hn::Mul(first, first), bend);

    if (steps_ == 0) {
      last_gamma_ = gamma, last_f_ = f, last_first_ = first, last_second_ = second;
      return hn::Zero(d);
    }
    const V ratio = hn::Div(gamma, last_gamma_);
    const auto usable = hn::And(hn::And(hn::Gt(ratio, hn::Set(d, 0.4)), hn::Lt(ratio, hn::Set(d, 2.5))),
                                hn::Gt(hn::Abs(hn::Sub(ratio, one)), hn::Set(d, 1e-4)));
    const V w = hn::Div(hn::Sub(ratio, one), hn::Add(ratio, one));
    const V step_before = hn::IfThenElse(near_n_, LogOfQuotient(w, hn::Mul(w, w)), hn::Sub(one, hn::Div(one, ratio)));
    const V inverse_h = hn::Div(one, step_before);
    const V unit = hn::IfThenElse(near_n_, one, ratio);
    const V last_first = hn::Mul(last_first_, unit), last_second = hn::Mul(hn::Mul(last_second_, unit), unit);
    const V rise = hn::Mul(hn::Mul(hn::Set(d, 60.0), hn::Sub(f, last_f_)), inverse_h);
    const V slopes = hn::MulAdd(hn::Set(d, 36.0), first, hn::Mul(hn::Set(d, 24.0), last_first));
    const V bends = hn::NegMulAdd(hn::Set(d, 3.0), last_second, hn::Mul(hn::Set(d, 9.0), second));
    const V found = hn::Mul(hn::MulAdd(hn::Sub(rise, slopes), inverse_h, bends), inverse_h);
    third_derivative_ = hn::IfThenElse(usable, found, third_derivative_);
    last_gamma_ = gamma, last_f_ = f, last_first_ = first, last_second_ = second;

    const V implied = hn::Mul(hn::Mul(hn::Set(d, 1.5), second), hn::Mul(bend, first));
    const V size2 = hn::Mul(step, step);
    const V part = hn::Mul(hn::Div(hn::Sub(implied, third_derivative_), hn::Mul(hn::Set(d, 6.0), first)), size2);
    const V limit = hn::Set(d, 0.25);
    const V bounded = hn::Max(hn::Min(part, limit), hn::Neg(limit));
    // No third derivative yet: NaN.
    return hn::IfThenElse(hn::Eq(part, part), hn::Mul(bounded, step), hn::Zero(d));
  }

  V target_, log_ties_, log_n_;
  hn::Mask<D> near_n_;
  V goal_, entropy_, residual_, log_sum_, mean_, variance_, third_;
  V low_ = hn::Zero(D()), high_ = hn::Set(D(), std::numeric_limits<double>::max());
  V last_gamma_ = hn::Zero(D()), last_f_ = hn::Zero(D()), last_first_ = hn::Zero(D()), last_second_ = hn::Zero(D());
  V third_derivative_ = hn::Set(D(), std::numeric_limits<double>::quiet_NaN());
  int steps_ = 0;
};

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
  GammaStatus status;
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
                                double log_n, double variance, double third, double one, Evaluate&& evaluate) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  double sums[4], goal = target.low;
  int used = 0;
  if (target.low < target.high) {
    evaluate(one, sums);
    ++used;
    const double entropy = LogOf(sums[0]) - sums[1] / sums[0];
    if (entropy >= target.low && entropy <= target.high) return {one, entropy, GammaStatus::kOk, used};
    if (entropy > target.high) goal = target.high;
  }
  const double scale = HWY_MAX(1.0, goal);
  EntropySearch search(hn::Set(d, goal), hn::Set(d, log_ties), hn::Set(d, log_n));
  double gamma = hn::GetLane(search.Start(hn::Set(d, variance), hn::Set(d, third)));
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
    const auto result = [&](GammaStatus status) { return GammaOfRow{gamma, entropy, status, used}; };
    if (error <= tolerance.met || (error <= tolerance.noise && last <= tolerance.near) || used >= limits.evaluations ||
        next == gamma) {
      return result(GammaStatus::kOk);
    }
    if (gamma >= limits.high && entropy > goal) return result(GammaStatus::kClampedLow);
    if (gamma <= limits.low && entropy < goal) return result(GammaStatus::kClampedHigh);
    last = error;
    gamma = next;
  }
}

// sums[k] = a sum over the row, for many k: one accumulator for each sum and lane, as few registers as there are, takes 16
// terms before it is added in float64, where Sums has four that take four each. The order is that of 16 lanes on every
// target. add(i, count, acc) adds the terms of the elements i .. i + count - 1 to the K accumulators, by fused operations
// where a term is a product; lanes beyond count are ignored. What it finds is a start, or is confirmed later.
template <size_t K, class D, class Add>
HWY_INLINE void RoughSums(D d, size_t n, double (&sums)[K], Add&& add) {
  using V = hn::Vec<D>;
  constexpr size_t N = hn::MaxLanes(D());
  Totals totals[K];
  for (size_t base = 0; base < n; base += 256) {
    const size_t rest = HWY_MIN(n - base, size_t{256});
    for (size_t g = 0; g < 16 / N; ++g) {
      V acc[K];
      for (size_t k = 0; k < K; ++k) acc[k] = hn::Zero(d);
      size_t i = g * N;
      for (; i + N <= rest; i += 16) add(base + i, N, acc);
      if (i < rest) {
        V more[K];
        for (size_t k = 0; k < K; ++k) more[k] = acc[k];
        add(base + i, rest - i, more);
        const auto exists = hn::FirstN(d, rest - i);
        for (size_t k = 0; k < K; ++k) acc[k] = hn::IfThenElse(exists, more[k], acc[k]);
      }
      for (size_t k = 0; k < K; ++k) totals[k].Add(d, g, acc[k]);
    }
  }
  for (size_t k = 0; k < K; ++k) sums[k] = totals[k].Fold();
}

// What a first sweep over a row with a finite maximum finds.
template <class T>
struct RowSurvey {
  T max, least;            // of the finite scores
  double finite, ties;     // how many there are, and how many equal the maximum
  double variance, third;  // central moments of the finite scores; not finite where powers overflow T
  bool nan;
};

// kAbsent: there may be scores of -inf.
template <bool kAbsent, class D, class T = hn::TFromD<D>>
HWY_NOINLINE RowSurvey<T> SurveyRow(D d, const T* x, size_t n, T max) {
  const auto absent = hn::Set(d, -std::numeric_limits<T>::infinity()), top = hn::Set(d, max), one = hn::Set(d, T(1));
  auto least = top;
  double sums[kAbsent ? 5 : 4];
  RoughSums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* acc) HWY_ATTR {
    auto xi = LoadUpTo(d, x + i, count, max);
    if constexpr (kAbsent) {
      const auto out = hn::Eq(xi, absent);
      xi = hn::IfThenElse(out, top, xi);
      acc[4] = hn::Add(acc[4], hn::IfThenElseZero(out, one));
    }
    least = hn::Min(xi, least);
    const auto z = hn::Sub(xi, top), z2 = hn::Mul(z, z);
    acc[0] = hn::Add(acc[0], z);
    acc[1] = hn::Add(acc[1], z2);
    acc[2] = hn::MulAdd(z2, z, acc[2]);
    acc[3] = hn::Add(acc[3], hn::IfThenElseZero(hn::Eq(xi, top), one));
  });
  const double out = kAbsent ? sums[kAbsent ? 4 : 0] : 0, finite = static_cast<double>(n) - out;
  const double mean = sums[0] / finite, square = sums[1] / finite;
  const T smallest = FoldLanes(d, least, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
  // The absent ones were counted as the maximum.
  return {max,
          smallest,
          finite,
          sums[3] - out,
          square - mean * mean,
          sums[2] / finite - mean * (3 * square - 2 * mean * mean),
          sums[0] != sums[0]};
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE RowSurvey<T> Survey(D d, const T* x, size_t n, T max) {
  const RowSurvey<T> row = SurveyRow<false>(d, x, n, max);
  return row.least == -std::numeric_limits<T>::infinity() ? SurveyRow<true>(d, x, n, max) : row;
}

// gamma of a row of scores with a finite maximum, all in float64: for any scores there are. e has room for n and takes
// exp(gamma (x - max)), `sum` their sum.
template <class T>
HWY_NOINLINE GammaOfRow FindGammaWide(const RowSurvey<T>& row, const T* x, size_t n, EntropyTarget target, GammaLimits limits,
                                      double* e, double* sum) {
  const RowTag<double> d;
  using V = hn::Vec<RowTag<double>>;
  const WideScores<T> relative(row.max, row.least);
  const V absent = hn::Set(d, -std::numeric_limits<double>::infinity());
  double moments[3];
  Sums(d, n, moments, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V z = relative(LoadWide(RowTag<double>(), x + i, count, row.max));
    terms[0] = hn::IfThenZeroElse(hn::Eq(z, absent), z);
    terms[1] = hn::Mul(terms[0], terms[0]);
    terms[2] = hn::Mul(terms[1], terms[0]);
  });
  const double mean = moments[0] / row.finite, square = moments[1] / row.finite;
  const double variance = square - mean * mean, third = moments[2] / row.finite - mean * (3 * square - 2 * mean * mean);
  const ExpScaled<RowTag<double>> exp(d, 1);
  const auto evaluate = [&](double gamma, double(&sums)[4]) HWY_ATTR {
    const V factor = hn::Set(d, gamma), lowest = hn::Set(d, -800.0);
    Sums(d, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
      // Below -800 exp is 0, and 0 times the bound is 0.
      const V a = hn::Max(hn::Mul(relative(LoadWide(RowTag<double>(), x + i, count, row.max)), factor), lowest);
      terms[0] = exp(d, a);
      StoreUpTo(terms[0], d, count, e + i);
      terms[1] = hn::Mul(terms[0], a);
      terms[2] = hn::Mul(terms[1], a);
      terms[3] = hn::Mul(terms[2], a);
    });
    *sum = sums[0];
    scores_read += n;
  };
  const double one = HWY_MIN(std::ldexp(1.0, relative.exponent), std::numeric_limits<double>::max());
  GammaOfRow found = FindGamma(target, limits.Scaled(relative.exponent), {2e-15, 1e-5, 2e-13}, LogOf(row.ties),
                               LogOf(row.finite), variance, third, one, evaluate);
  found.gamma = std::ldexp(found.gamma, -relative.exponent);
  return found;
}

// exp(gamma z) in float32 for z <= 0 and gamma known to more digits than float32 has.
//
// As ExpScaled, with gamma log2(e) in two parts. The upper is rounded towards 0, so that both have one sign: z high + z low,
// each rounded, then never falls as z rises. r lies a little below -1/2 at times, and in steps of 2^-22: 3 + r is in [2, 4).
// From one k to the next the result may fall only where r is 6 such steps below, which needs |z gamma| > 8, where two z
// differ by more.
class ExpOfGamma {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;

  HWY_INLINE explicit ExpOfGamma(double gamma) {
    float high, low;
    Split(gamma, &high, &low);
    high_ = hn::Set(D(), high);
    low_ = hn::Set(D(), low);
  }
  // A gamma for each lane, as Split has it.
  HWY_INLINE ExpOfGamma(V high, V low) : high_(high), low_(low) {}

  // gamma log2(e) = high + low, rounded towards 0: a little less rounds to no more.
  static HWY_INLINE void Split(double gamma, float* high, float* low) {
    const double c = gamma * 0x1.71547652b82fep+0;
    *high = static_cast<float>(c * (1 - 0x1p-24));
    *low = static_cast<float>(c - static_cast<double>(*high));
  }

  // For z gamma > -87, where the result is a normal number.
  HWY_INLINE V operator()(V z) const {
    using C = ExpConstants<float>;
    const D d;
    const hn::RebindToSigned<D> di;
    const V magic = hn::Set(d, C::kMagic + C::kBias), grid = hn::Set(d, 3.0f);
    const V t = hn::MulAdd(z, high_, magic);
    const V r = hn::Sub(hn::MulAdd(z, low_, hn::MulAdd(z, high_, hn::Sub(grid, hn::Sub(t, magic)))), grid);
    const V power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, r), power);
  }

  // The same by the upper part alone, and not in order.
  HWY_INLINE V Rough(V z) const {
    using C = ExpConstants<float>;
    const D d;
    const hn::RebindToSigned<D> di;
    const V magic = hn::Set(d, C::kMagic + C::kBias);
    const V t = hn::MulAdd(z, high_, magic);
    const V r = hn::MulSub(z, high_, hn::Sub(t, magic));
    const V power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, r), power);
  }

  // gamma as Rough has it.
  HWY_INLINE double RoughGamma() const { return static_cast<double>(hn::GetLane(high_)) * 0x1.62e42fefa39efp-1; }

 private:
  V high_, low_;
};

// 2^-126 = exp(-87.33654...).
inline constexpr double kSmallestNormal = 87.33654;

// From here on a row is condensed before its first pass.
inline constexpr size_t kLongRow = 8192;

// The error of the entropy that will do in float32, of what the contract allows: a fifth, so that large entries keep their
// last digits; half where another pass would cost much and entries are small.
HWY_INLINE double NarrowTolerance(double goal, size_t n) { return (n < kLongRow ? 2e-7 : 5e-7) * HWY_MAX(1.0, goal); }

// The largest |gamma z| there may be for MomentsNarrow and WriteNarrow to leave out the comparison with their bounds.
inline constexpr double kNearReach = 69;

// sums[k] = sum of e a^k for scores z = x - shift; gamma is rounded to what they are taken at. kFar: gamma z may be below -69:
// there e is taken as 2^-100, nothing beside 1. Smaller ones have subnormal products, which slow the processor down.
template <bool kFar>
HWY_NOINLINE void MomentsNarrow(const float* x, size_t n, float shift, double& gamma, double (&sums)[4]) {
  const RowTag<float> d;
  using V = hn::Vec<RowTag<float>>;
  const V top = hn::Set(d, shift), lowest = hn::Set(d, static_cast<float>(-kNearReach / gamma));
  const ExpOfGamma exp(gamma);
  RoughSums(d, n, sums, [&](size_t i, size_t count, V* acc) HWY_ATTR {
    V z = hn::Sub(LoadUpTo(d, x + i, count, shift), top);
    if constexpr (kFar) z = MaxKeepNaN(lowest, z);
    const V e = exp.Rough(z), ez = hn::Mul(e, z), z2 = hn::Mul(z, z);
    acc[0] = hn::Add(acc[0], e);
    acc[1] = hn::Add(acc[1], ez);
    acc[2] = hn::MulAdd(e, z2, acc[2]);
    acc[3] = hn::MulAdd(ez, z2, acc[3]);
  });
  gamma = exp.RoughGamma();
  double power = 1;
  for (size_t k = 0; k < 4; ++k, power *= gamma) sums[k] *= power;
}

// p = e / s, for an s and its logarithm, and the sums of e and e a. kFar: gamma z may be below -69: where p would be no normal
// number it is 0.
template <bool kFar>
HWY_NOINLINE void WriteNarrow(const float* x, size_t n, float shift, double gamma, double inverse_s, double log_s, float* p,
                              double (&sums)[4]) {
  const RowTag<float> d;
  using V = hn::Vec<RowTag<float>>;
  // There e / s = 2^-126.
  const double reach = kSmallestNormal - log_s;
  const V top = hn::Set(d, shift), scale = hn::Set(d, static_cast<float>(inverse_s));
  const V lowest = hn::Set(d, static_cast<float>(-reach / gamma));
  const ExpOfGamma exp(gamma);
  double found[2];
  Sums(d, n, found, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    V z = hn::Sub(LoadUpTo(d, x + i, count, shift), top);
    if constexpr (kFar) {
      const auto out = hn::Lt(z, lowest);
      z = MaxKeepNaN(lowest, z);
      terms[0] = hn::IfThenZeroElse(out, exp(z));
    } else {
      terms[0] = exp(z);
    }
    StoreUpTo(hn::Mul(terms[0], scale), d, count, p + i);
    terms[1] = hn::Mul(terms[0], z);
  });
  sums[0] = found[0], sums[1] = found[1] * gamma;
}

// A few scores that stand for a row, to find nearly its gamma: all those that matter most, and a sample of the others, each
// with a weight. Scores relative to the maximum.
struct Condensed {
  float* top;
  size_t top_count;
  float* bulk;
  size_t bulk_count;
  double weight;

  // gamma is rounded to what the sums are taken at, the same for both.
  HWY_INLINE void Moments(double& gamma, double (&sums)[4]) const {
    MomentsNarrow<true>(top, top_count, 0, gamma, sums);
    if (bulk_count == 0) return;
    double rest[4];
    MomentsNarrow<true>(bulk, bulk_count, 0, gamma, rest);
    for (int k = 0; k < 4; ++k) sums[k] += weight * rest[k];
  }
};

// Packs x - shift for the scores x >= least, at most `most` of them and a vector more; returns how many there are, or what
// made it more than `most`. `lowest` becomes the least of all scores.
inline HWY_NOINLINE size_t PackAbove(const float* x, size_t n, float least, float shift, size_t most, float* packed,
                                     float* lowest) {
  const RowTag<float> d;
  const auto limit = hn::Set(d, least), top = hn::Set(d, shift);
  auto min = top;
  size_t kept = 0;
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, shift);
    min = hn::Min(xi, min);
    auto in = hn::Ge(xi, limit);
    if (hn::AllFalse(d, in) || kept > most) return;
    if (count < hn::Lanes(d)) in = hn::And(in, hn::FirstN(d, count));
    hn::StoreU(CompressLanes(d, hn::Sub(xi, top), in), d, packed + kept);
    kept += hn::CountTrue(d, in);
  });
  *lowest = FoldLanes(d, min, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
  return kept;
}

// The 8th largest of 16.
HWY_INLINE float MiddleOf16(const float* v) {
  for (size_t i = 0; i < 16; ++i) {
    size_t above = 0, equal = 0;
    for (size_t j = 0; j < 16; ++j) above += v[j] > v[i], equal += v[j] == v[i];
    if (above < 8 && above + equal >= 8) return v[i];
  }
  return v[0];
}

// A long row condensed, and its survey. A sample of every 16th score or fewer, in vectors of 16, stands for the bulk. The
// threshold of the top is the median of the 16 maxima that the sample's columns have: with m scores in a column about
// 0.7 / m of the row is above. Empty where that is more than a quarter of the row.
inline HWY_NOINLINE Condensed Condense(const float* x, size_t n, float max, float* memory, RowSurvey<float>* row) {
  const RowTag<float> d;
  constexpr size_t N = hn::MaxLanes(RowTag<float>());
  constexpr float kAbsent = -std::numeric_limits<float>::infinity();
  const size_t blocks = HWY_MIN(n / 256, size_t{256}), bulk_count = 16 * blocks;
  float* const bulk = memory;
  HWY_ALIGN float column_max[16];
  for (size_t i = 0; i < 16; ++i) column_max[i] = kAbsent;
  for (size_t b = 0; b < blocks; ++b) {
    const float* const from = x + b * (n / 16) / blocks * 16;
    for (size_t i = 0; i < 16; i += N) {
      const auto xi = hn::LoadU(d, from + i);
      hn::StoreU(xi, d, bulk + b * 16 + i);
      hn::Store(hn::Max(xi, hn::Load(d, column_max + i)), d, column_max + i);
    }
  }
  const float least = MiddleOf16(column_max);
  Condensed few = {bulk + bulk_count, 0, bulk, bulk_count, 0};
  const size_t most = n / 4;
  few.top_count = PackAbove(x, n, HWY_MAX(least, -std::numeric_limits<float>::max()), max, most, few.top, &row->least);

  // What the top holds already is absent from the bulk.
  const auto limit = hn::Set(d, least), top = hn::Set(d, max), absent = hn::Set(d, kAbsent), one = hn::Set(d, 1.0f);
  double sums[4];
  Sums(d, bulk_count, sums, [&](size_t i, size_t count, hn::Vec<RowTag<float>>* terms) HWY_ATTR {
    const auto xi = LoadUpTo(d, bulk + i, count, max);
    const auto z = hn::Sub(xi, top);
    const auto finite = hn::Ne(xi, absent), below = hn::Lt(xi, limit);
    terms[0] = hn::IfThenElseZero(below, one);
    terms[1] = hn::IfThenElseZero(finite, one);
    terms[2] = hn::IfThenElseZero(finite, z);
    terms[3] = hn::Mul(terms[2], terms[2]);
    StoreUpTo(hn::IfThenElse(below, z, absent), d, count, bulk + i);
  });
  const double mean = sums[2] / sums[1];
  row->max = max;
  row->variance = sums[3] / sums[1] - mean * mean;
  row->third = 0;
  row->nan = sums[2] != sums[2];
  row->ties = 0;
  row->finite = static_cast<double>(n);
  if (few.top_count > most || few.top_count == 0) return {memory, 0, nullptr, 0, 0};
  few.weight = sums[0] > 0 ? static_cast<double>(n - few.top_count) / sums[0] : 0;
  row->ties = Sum(d, few.top_count, [&](size_t i, size_t count) HWY_ATTR {
    return hn::IfThenElseZero(hn::Eq(LoadUpTo(d, few.top + i, count, -1.0f), hn::Zero(d)), one);
  });
  if (row->least == kAbsent) {
    row->finite = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      return hn::IfThenElseZero(hn::Ne(LoadUpTo(d, x + i, count, kAbsent), absent), one);
    });
  }
  return few;
}

// One row on its way to its entropy.
struct NarrowRow {
  // What the next evaluation is of: gamma = 1, to see whether that has the entropy; the few that stand for the row; all scores;
  // those that matter; all scores, for the result.
  enum class Stage { kTry, kFew, kAll, kRest, kWrite, kDone, kFailed };

  const float* x;
  float *p, *memory;  // the distribution, which is not x; room for what is condensed, or n / 2 + 16 scores: if n > 32, may be p
  RowSurvey<float> survey;
  Condensed few;
  double range;
  Stage stage;
  int evaluations;
};

// Distributions of a given entropy in float32, with sums in float64, for rows where no difference of scores overflows and
// gamma stays in float32's range; kFailed elsewhere.
//
// What costs is a pass over a row, and, where rows are short, the search between two passes: a chain of divisions and
// logarithms that takes as long as a pass over 300 scores. A few rows therefore wait for it together, each in a lane, and each
// as if it were alone. gamma is found on a few scores first where the row is long; then comes a pass for the moments, whose
// third order step leaves the third power of what was wrong, perhaps more of them, over the scores that matter where these are
// few; and one that writes p and confirms its entropy.
class NarrowRows {
 public:
  static constexpr size_t kRows = 8;
  using Stage = NarrowRow::Stage;

  HWY_INLINE NarrowRows(NarrowRow* rows, size_t count, size_t n) : rows_(rows), count_(count), n_(n) {}

  // Rows have x, p, memory, survey and few.
  HWY_NOINLINE void Map(EntropyTarget target) {
    Begin(target);
    for (size_t r = 0; r < kRows; ++r) gamma_[r] = 1, log_s_[r] = 0;
    if (target.low < target.high) Try(target);
    Start();
    while (Evaluate()) {
      if (writing_) AfterWriting();
      if (searching_) AfterMoments();
    }
  }

 private:
  using D = RowTag<double>;
  using V = hn::Vec<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D()), kSearches = (kRows + kLanes - 1) / kLanes;

  static HWY_INLINE V At(const double* values, size_t s) { return hn::Load(D(), values + s * kLanes); }
  static HWY_INLINE void Put(V v, double* values, size_t s) { hn::Store(v, D(), values + s * kLanes); }

  HWY_INLINE void Begin(EntropyTarget target) {
    for (size_t r = 0; r < kRows; ++r) {
      finite_[r] = static_cast<double>(n_), ties_[r] = 1, goal_[r] = target.low, variance_[r] = third_[r] = 1;
      sums_[0][r] = 1, sums_[1][r] = sums_[2][r] = sums_[3][r] = 0;
    }
    for (size_t r = 0; r < count_; ++r) {
      NarrowRow& row = rows_[r];
      const RowSurvey<float>& survey = row.survey;
      const bool all_finite = survey.finite == static_cast<double>(n_);
      const float lowest = all_finite ? survey.least : 0;
      finite_[r] = survey.finite, ties_[r] = survey.ties, variance_[r] = survey.variance, third_[r] = survey.third;
      row.range = all_finite ? static_cast<double>(survey.max - survey.least) : std::numeric_limits<double>::infinity();
      row.evaluations = 0;
      const bool ordinary = n_ <= size_t{1} << 18 && survey.max - lowest <= std::numeric_limits<float>::max() &&
                            survey.variance < 0x1p60 && survey.variance > 0x1p-60;
      row.stage = ordinary ? (row.few.top_count > 0 ? Stage::kFew : Stage::kAll) : Stage::kFailed;
    }
    const D d;
    for (size_t s = 0; s < kSearches; ++s) {
      Put(Log(d, At(finite_, s)), log_n_, s);
      Put(Log(d, At(ties_, s)), log_ties_, s);
    }
    for (size_t r = 0; r < count_; ++r) {
      if (!(target.low < log_n_[r] && target.high > log_ties_[r])) rows_[r].stage = Stage::kFailed;
    }
  }

  // What has an entropy in the interval as it is, is done.
  HWY_INLINE void Try(EntropyTarget target) {
    for (size_t r = 0; r < count_; ++r) {
      NarrowRow& row = rows_[r];
      if (row.stage == Stage::kFailed) continue;
      Write(row, r, 1);
      const double entropy = LogOf(sums_[0][r]) - sums_[1][r] / sums_[0][r];
      if (entropy >= target.low && entropy <= target.high) {
        ScaleBy(row, 1 / sums_[0][r]);
        row.stage = Stage::kDone;
      } else if (entropy > target.high) {
        goal_[r] = target.high;
      }
    }
  }

  HWY_INLINE void Start() {
    for (size_t s = 0; s < kSearches; ++s) {
      search_[s] = EntropySearch(At(goal_, s), At(log_ties_, s), At(log_n_, s));
      Put(search_[s].Start(At(variance_, s), At(third_, s)), gamma_, s);
    }
  }

  // One evaluation of each row that goes on; false if none does.
  HWY_INLINE bool Evaluate() {
    constexpr double kLeast = 0x1p-30, kMost = 0x1p30;
    writing_ = searching_ = false;
    for (size_t r = 0; r < count_; ++r) {
      NarrowRow& row = rows_[r];
      if (row.stage == Stage::kDone || row.stage == Stage::kFailed) continue;
      if (!(gamma_[r] > kLeast && gamma_[r] < kMost)) {
        row.stage = Stage::kFailed;
        continue;
      }
      ++row.evaluations;
      (row.stage == Stage::kWrite ? writing_ : searching_) = true;
    }
    if (writing_) {
      for (size_t s = 0; s < kSearches; ++s) Put(Exp(D(), hn::Neg(At(log_s_, s))), inverse_s_, s);
    }
    for (size_t r = 0; r < count_; ++r) {
      NarrowRow& row = rows_[r];
      double sums[4];
      switch (row.stage) {
        case Stage::kFew:
        case Stage::kRest:
          row.few.Moments(gamma_[r], sums);
          scores_read += row.few.top_count + row.few.bulk_count;
          break;
        case Stage::kAll:
          gamma_[r] * row.range < kNearReach ? MomentsNarrow<false>(row.x, n_, row.survey.max, gamma_[r], sums)
                                             : MomentsNarrow<true>(row.x, n_, row.survey.max, gamma_[r], sums);
          scores_read += n_;
          break;
        case Stage::kWrite:
          Write(row, r, inverse_s_[r]);
          continue;
        default:
          continue;
      }
      for (size_t k = 0; k < 4; ++k) sums_[k][r] = sums[k];
    }
    return writing_ || searching_;
  }

  HWY_INLINE void Write(const NarrowRow& row, size_t r, double inverse_s) {
    double sums[4];
    gamma_[r] * row.range < kNearReach
        ? WriteNarrow<false>(row.x, n_, row.survey.max, gamma_[r], inverse_s, log_s_[r], row.p, sums)
        : WriteNarrow<true>(row.x, n_, row.survey.max, gamma_[r], inverse_s, log_s_[r], row.p, sums);
    sums_[0][r] = sums[0], sums_[1][r] = sums[1];
    scores_read += n_;
  }

  HWY_INLINE void ScaleBy(const NarrowRow& row, double factor) const {
    const RowTag<float> d;
    const auto f = hn::Set(d, static_cast<float>(factor));
    ForEachVector(d, n_, [&](size_t i, size_t count) HWY_ATTR {
      StoreUpTo(hn::Mul(LoadUpTo(d, row.p + i, count, 0.0f), f), d, count, row.p + i);
    });
  }

  // Accepts what is written, or takes a last small step.
  HWY_INLINE void AfterWriting() {
    const D d;
    for (size_t s = 0; s < kSearches; ++s) {
      const V sum = At(sums_[0], s), mean = hn::Div(At(sums_[1], s), sum), log_sum = Log(d, sum);
      const V excess = hn::Sub(hn::Sub(log_sum, mean), At(goal_, s)), step = hn::Div(excess, At(variance_, s));
      Put(excess, excess_, s);
      Put(step, step_, s);
      Put(hn::MulAdd(At(gamma_, s), step, At(gamma_, s)), next_, s);
      Put(hn::MulAdd(step, mean, log_sum), next_log_s_, s);
    }
    for (size_t r = 0; r < count_; ++r) {
      NarrowRow& row = rows_[r];
      if (row.stage != Stage::kWrite) continue;
      if (std::abs(excess_[r]) <= NarrowTolerance(goal_[r], n_)) {
        const double total = sums_[0][r] * inverse_s_[r];
        if (std::abs(total - 1) > 1e-7) ScaleBy(row, 1 / total);
        row.stage = Stage::kDone;
      } else if (!(std::abs(step_[r]) < 0.5) || row.evaluations > 60) {
        row.stage = Stage::kFailed;
      } else {
        gamma_[r] = next_[r], log_s_[r] = next_log_s_[r];
      }
    }
  }

  // The next gamma, and what it is for.
  HWY_INLINE void AfterMoments() {
    const double near = n_ < kLongRow ? 0.03 : 0.1;
    HWY_ALIGN double residual[kRows], restart[kRows] = {};
    for (size_t s = 0; s < kSearches; ++s) {
      const V at[4] = {At(sums_[0], s), At(sums_[1], s), At(sums_[2], s), At(sums_[3], s)};
      const V gamma = At(gamma_, s), next = search_[s].Next(gamma, at), off = hn::Abs(search_[s].residual());
      const V log_sum = search_[s].LogSumAfter(hn::Sub(hn::Div(next, gamma), hn::Set(D(), 1.0)));
      const auto stays = hn::And(hn::Gt(off, hn::Set(D(), near)), search_[s].IsLost());
      Put(hn::IfThenElse(stays, gamma, next), next_, s);
      Put(hn::IfThenElse(stays, search_[s].log_sum(), log_sum), next_log_s_, s);
      Put(hn::IfThenZeroElse(stays, off), residual, s);
      Put(search_[s].variance(), excess_, s);
    }
    bool restarts = false;
    for (size_t r = 0; r < count_; ++r) {
      NarrowRow& row = rows_[r];
      if (row.stage != Stage::kFew && row.stage != Stage::kAll && row.stage != Stage::kRest) continue;
      gamma_[r] = next_[r], log_s_[r] = next_log_s_[r], variance_[r] = excess_[r];
      if (row.stage == Stage::kFew) {
        if (residual[r] > 0.03 && row.evaluations < 12) continue;
        row.stage = Stage::kAll;
        restart[r] = 1, restarts = true;
      } else if (!(residual[r] > near) || row.evaluations > 40) {
        row.stage = Stage::kWrite;
      } else if (row.stage == Stage::kAll && PackRest(row, r)) {
        row.stage = Stage::kRest;
        restart[r] = 1, restarts = true;
      }
    }
    if (!restarts) return;
    for (size_t s = 0; s < kSearches; ++s) search_[s].Restart(At(restart, s));
  }

  // What has less than e^-17 / n of the largest mass can wait for the end, if that is most of the row.
  HWY_INLINE bool PackRest(NarrowRow& row, size_t r) {
    const double reach = (log_n_[r] + 17) / gamma_[r];
    if (!(reach < 0.6 * row.range)) return false;
    float lowest;
    row.few = {row.memory, 0, nullptr, 0, 0};
    row.few.top_count =
        PackAbove(row.x, n_, static_cast<float>(row.survey.max - reach), row.survey.max, n_ / 2, row.few.top, &lowest);
    scores_read += n_;
    return row.few.top_count > row.survey.ties && row.few.top_count <= n_ / 2;
  }

  NarrowRow* rows_;
  size_t count_, n_;
  bool writing_, searching_;
  EntropySearch search_[kSearches];
  HWY_ALIGN double finite_[kRows], ties_[kRows], log_n_[kRows], log_ties_[kRows], goal_[kRows], third_[kRows];
  HWY_ALIGN double gamma_[kRows], log_s_[kRows], inverse_s_[kRows], variance_[kRows], sums_[4][kRows];
  HWY_ALIGN double next_[kRows], next_log_s_[kRows], excess_[kRows], step_[kRows];
};

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_ENTROPY_INL_H_

// The entropy of a distribution, and the gamma at which softmax(gamma x) has a given one.
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
#include <type_traits>

#include "entropic/entropy_control.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/reduce-inl.h"
#include "src/rows/scores_read.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// -sum p log p in nats, by terms of d's type, T or double; 0, not -0, where all mass is in one place.
template <class D, class T>
HWY_INLINE double RowEntropy(D d, const T* p, size_t n) {
  return 0 - Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
           hn::Vec<D> pi;
           if constexpr (std::is_same_v<hn::TFromD<D>, T>) {
             pi = LoadUpTo(d, p + i, count, T(0));
           } else {
             pi = LoadWide(d, p + i, count, T(0));
           }
           return hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d)), hn::Mul(pi, Log(d, pi)));
         });
}

// The search for the root, a row in each lane; the arithmetic is the same in every lane and on every target.
//
// Newton's iteration on H itself is slow where H is nearly flat, and leaves the bracket. Near log n the distance log n - H
// grows as gamma^2, near the entropy of the ties H falls as exp(-gamma): their logarithms are nearly straight lines, in
// log gamma and in gamma. The nearer of the two, with Halley's third order step, needs 2 to 5 evaluations from the first
// guess, which is exact for many normal scores: H = log n - gamma^2 variance / 2. A bracket catches every other case.
class EntropySearch {
 public:
  using D = D64;
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
  V third_derivative_ = hn::Set(D(), kNaN<double>);
  int steps_ = 0;
};

// z = x - max in float64, times 2^-exponent so that the smallest finite one is in (-2, -1]: neither a difference beyond the
// largest number nor one below the smallest normal is lost. Never rounds but where T is double. -inf stays.
template <class T>
class WideScores {
 public:
  using D = D64;
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
  double low = 0, high = kInfinity<double>;
  int evaluations = 100;

  // Of gamma 2^exponent, and inside numbers whose products with scores overflow nowhere.
  HWY_INLINE GammaLimits Scaled(int exponent) const {
    const auto bounded = [&](double gamma) { return HWY_MIN(HWY_MAX(std::ldexp(gamma, exponent), 0x1p-1000), 0x1p1000); };
    return {bounded(low), bounded(high), evaluations};
  }
};

struct GammaOfRow {
  double gamma, entropy;
  GammaStatus status;
  int evaluations;
};

// An error below `met` ends the search, and so does one below `noise` after one below `near`: the third order step between
// them leaves nothing but the rounding of the sums.
struct EntropyTolerance {
  double met, near, noise;
};

// Calls evaluate(gamma, sums) until the entropy is the target's. The last call is at the gamma that is returned, in the
// units of `one`, the gamma that stands for 1. The target can be reached: high > log_ties, low < log_n.
template <class Evaluate>
HWY_INLINE GammaOfRow FindGamma(EntropyTarget target, GammaLimits limits, EntropyTolerance tolerance, double log_ties,
                                double log_n, double variance, double third, double one, Evaluate&& evaluate) {
  const D64 d;
  double sums[4], goal = target.low;
  int used = 0;
  if (target.low < target.high) {
    evaluate(one, sums);
    ++used;
    const double entropy = LogNumber(sums[0]) - sums[1] / sums[0];
    if (entropy >= target.low && entropy <= target.high) return {one, entropy, GammaStatus::kOk, used};
    if (entropy > target.high) goal = target.high;
  }
  const double scale = HWY_MAX(1.0, goal);
  EntropySearch search(hn::Set(d, goal), hn::Set(d, log_ties), hn::Set(d, log_n));
  double gamma = hn::GetLane(search.Start(hn::Set(d, variance), hn::Set(d, third)));
  double last = kInfinity<double>;
  for (;;) {
    // The limits are normal numbers: 0 or NaN becomes one of them.
    gamma = gamma > limits.low ? HWY_MIN(gamma, limits.high) : limits.low;
    evaluate(gamma, sums);
    ++used;
    const V64 at[4] = {hn::Set(d, sums[0]), hn::Set(d, sums[1]), hn::Set(d, sums[2]), hn::Set(d, sums[3])};
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
  const auto absent = hn::Set(d, -kInfinity<T>), top = hn::Set(d, max), one = hn::Set(d, T(1));
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
  const T smallest = MinLane(d, least);
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
  return row.least == -kInfinity<T> ? SurveyRow<true>(d, x, n, max) : row;
}

// gamma of a row of scores with a finite maximum, all in float64: for any scores there are. e has room for n and takes
// exp(gamma (x - max)), `sum` their sum.
template <class T>
HWY_NOINLINE GammaOfRow FindGammaWide(const RowSurvey<T>& row, const T* x, size_t n, EntropyTarget target, GammaLimits limits,
                                      double* e, double* sum) {
  const D64 d;
  const WideScores<T> relative(row.max, row.least);
  const V64 absent = hn::Set(d, -kInfinity<double>);
  double moments[3];
  Sums(d, n, moments, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 z = relative(LoadWide(D64(), x + i, count, row.max));
    terms[0] = hn::IfThenZeroElse(hn::Eq(z, absent), z);
    terms[1] = hn::Mul(terms[0], terms[0]);
    terms[2] = hn::Mul(terms[1], terms[0]);
  });
  const double mean = moments[0] / row.finite, square = moments[1] / row.finite;
  const double variance = square - mean * mean, third = moments[2] / row.finite - mean * (3 * square - 2 * mean * mean);
  const ExpScaled<D64> exp(d, 1);
  const auto evaluate = [&](double gamma, double(&sums)[4]) HWY_ATTR {
    const V64 factor = hn::Set(d, gamma), lowest = hn::Set(d, -800.0);
    Sums(d, n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
      // Below -800 exp is 0, and 0 times the bound is 0.
      const V64 a = hn::Max(hn::Mul(relative(LoadWide(D64(), x + i, count, row.max)), factor), lowest);
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
  GammaOfRow found = FindGamma(target, limits.Scaled(relative.exponent), {2e-15, 1e-5, 2e-13}, LogNumber(row.ties),
                               LogNumber(row.finite), variance, third, one, evaluate);
  // Bounds that were moved, or lost digits as subnormal numbers, are moved back.
  found.gamma = HWY_MAX(limits.low, HWY_MIN(std::ldexp(found.gamma, -relative.exponent), limits.high));
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_ENTROPY_INL_H_

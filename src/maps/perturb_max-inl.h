// perturb_max of one row by quadrature. With z = (x - max)/scale, F the noise's CDF, f its density, h = f/F and
// e^G(u) = prod_j F(u - z_j), the CDF of the largest perturbed score:
//
//   p_i = int h(u - z_i) e^G(u) du,   vjp_j = (1/scale) int h(u - z_j) (g_j R - S) e^G du,  R = sum_i h_i, S = sum_i g_i h_i.
//
// All entries share the points u, so a point costs one sweep over the row for e^G and one for h. The mass left of a and right
// of b is at most e^G(a) + 1 - e^G(b); the line is truncated there. e^G is a plain product: its factors are at most 1 and at
// any point that counts it is above the cut, so no part of it underflows.
//
// The order of the scores is kept to the bit: each entry's mass is a sum, in one order, of positive multiples of h, and every h
// here is a computed function that never falls as z rises. If the operations do not guarantee this (each one rounds
// monotonically), z is first rounded to multiples of 2^-40: from one multiple to the next h grows by more than its rounding
// error.

#if defined(ISENTROPIC_MAPS_PERTURB_MAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_PERTURB_MAX_INL_H_
#undef ISENTROPIC_MAPS_PERTURB_MAX_INL_H_
#else
#define ISENTROPIC_MAPS_PERTURB_MAX_INL_H_
#endif

#include <array>
#include <cmath>

#include "src/maps/custom_perturb_max.h"
#include "src/maps/normal_panels-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/rows/gauss_legendre.h"
#include "src/rows/normal-inl.h"
#include "src/rows/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

HWY_INLINE size_t PaddedTo16(size_t n) { return (n + 15) / 16 * 16; }
// The keys and two more rows, and what the panels of normal noise need.
template <class T>
HWY_INLINE size_t PerturbMemory(size_t n) {
  return 3 * Arena::room<double>(PaddedTo16(n)) + PanelsMemory(sizeof(T) == 8);
}

template <class T>
struct KernelsOf<PerturbMax, T> {
  static constexpr ScoreParams<PerturbMax> kScores = {.divisor = &PerturbMax::scale};
  static void MapRow(const PerturbMax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const PerturbMax& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<PerturbMax>* slopes,
                     Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  static size_t Memory(size_t n) { return PerturbMemory<T>(n); }
  struct Short {
    static constexpr size_t kGroups = KernelsOf<Softmax, T>::Short::kGroups;
    static HWY_INLINE bool Takes(const PerturbMax& op) { return op.noise == PerturbMax::Noise::gumbel; }
    static void Map(const PerturbMax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
    static constexpr NotOffered Vjp = {};
  };
  using Several = NotOffered;
};

template <class T>
struct KernelsOf<CustomPerturbMax, T> {
  static constexpr ScoreParams<CustomPerturbMax> kScores = {.divisor = &CustomPerturbMax::scale};
  static void MapRow(const CustomPerturbMax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const CustomPerturbMax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<CustomPerturbMax>* slopes, Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  static size_t Memory(size_t n) { return PerturbMemory<T>(n); }
  using Short = NotOffered;
  using Several = NotOffered;
};

// Points of the line with their weights in the integral. Each noise chooses how `at` represents u.
struct Nodes {
  static constexpr size_t kMost = 16;
  size_t count = 0;  // a multiple of 4
  double at[kMost], weight[kMost], cdf[kMost];

  HWY_INLINE void Add(double where, double times) {
    at[count] = where;
    weight[count++] = times;
  }

  // The Gauss-Legendre nodes of [begin, end], 2, 4 or 16, from begin to end.
  template <class Place>
  HWY_INLINE void AddGauss(size_t nodes, double begin, double end, Place&& place) {
    // Local copies: a device cannot read the host's tables.
    constexpr auto k2 = std::to_array(kGauss2);
    constexpr auto k4 = std::to_array(kGauss4);
    constexpr auto k16 = std::to_array(kGauss16);
    const double middle = 0.5 * (begin + end), reach = 0.5 * (end - begin);
    const auto add = [&](const auto& points, size_t half) HWY_ATTR {
      for (size_t i = 0; i < half; ++i) place(middle - reach * points[i].node, reach * points[i].weight);
      for (size_t i = half; i-- > 0;) place(middle + reach * points[i].node, reach * points[i].weight);
    };
    nodes == 2 ? add(k2, 1) : nodes == 4 ? add(k4, 2) : add(k16, 8);
  }
};

// The accuracy of a row: all is computed in float64, but float32 needs fewer points.
struct Accuracy {
  double cut;      // mass that may be lost at either end of the line
  double log_cut;  // -log(cut)
  double length;   // length of an interval, for laplace noise
  double few;      // 4 Gauss points are enough if log e^G falls by less than this in the interval
  bool gradient;
  // For uniform noise with m keys inside an interval of width w: the limit of m w^2, for the gradient of m w; and the number of
  // scores from which keys inside are allowed.
  double merged;
  double merged_from;
  bool of_float64;
};

template <class T>
HWY_INLINE Accuracy AccuracyOf(bool gradient) {
  const double merged = gradient ? 5e-5 : 4e-7;
  if (sizeof(T) == 4) return {1e-8, 18.420680743952367, 4, 1, gradient, merged, 0, false};
  return {1e-12, 27.631021115928547, 2, 0.3, gradient, merged, 1001, true};
}

// The products over the row of F at each node.
template <class Noise>
HWY_NOINLINE void CdfOfMaximum(const Noise& noise, const double* keys, size_t n, Nodes& nodes) {
  const D64 d;
  for (size_t q = 0; q < nodes.count; q += 4) {
    const V64 at[4] = {hn::Set(d, nodes.at[q]), hn::Set(d, nodes.at[q + 1]), hn::Set(d, nodes.at[q + 2]),
                       hn::Set(d, nodes.at[q + 3])};
    double products[4];
    FourProducts(n, products, [&](size_t i, V64* factors) HWY_ATTR {
      const V64 key = hn::Load(d, keys + i);
      for (size_t k = 0; k < 4; ++k) factors[k] = noise.Cdf(key, at[k]);
    });
    for (size_t k = 0; k < 4; ++k) nodes.cdf[q + k] = products[k];
  }
}

// mass_i += sum over the nodes of factor h_i.
template <class Noise>
HWY_NOINLINE void AddHazards(const Noise& noise, const double* keys, size_t n, const Nodes& nodes, double* mass) {
  const D64 d;
  double factor[Nodes::kMost];
  for (size_t q = 0; q < nodes.count; ++q) factor[q] = nodes.weight[q] * nodes.cdf[q];
  ForEachVector(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR {
    const V64 key = hn::Load(d, keys + i);
    V64 sum = hn::Load(d, mass + i);
    for (size_t q = 0; q < nodes.count; ++q) {
      sum = hn::MulAdd(noise.Hazard(key, hn::Set(d, nodes.at[q])), hn::Set(d, factor[q]), sum);
    }
    hn::Store(sum, d, mass + i);
  });
}

// dx_j += sum over the nodes of weight e^G h_j (g_j R - S). Returns the nodes' part of the sum of p: weight e^G R.
template <class Noise>
HWY_NOINLINE double AddGradients(const Noise& noise, const double* keys, const double* g, size_t n, const Nodes& nodes,
                                 double* dx) {
  const D64 d;
  double times_g[Nodes::kMost], constant[Nodes::kMost], mass = 0;
  for (size_t q = 0; q < nodes.count; ++q) {
    const V64 at = hn::Set(d, nodes.at[q]);
    double sums[2];
    Sums(d, n, sums, [&](size_t i, size_t /*count*/, V64* terms) HWY_ATTR {
      terms[0] = noise.Hazard(hn::Load(d, keys + i), at);
      terms[1] = hn::Mul(terms[0], hn::Load(d, g + i));
    });
    const double weight = nodes.weight[q] * nodes.cdf[q];
    times_g[q] = weight * sums[0];
    constant[q] = weight * sums[1];
    mass += times_g[q];
  }
  ForEachVector(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR {
    const V64 key = hn::Load(d, keys + i), gi = hn::Load(d, g + i);
    V64 sum = hn::Load(d, dx + i);
    for (size_t q = 0; q < nodes.count; ++q) {
      const V64 slope = hn::MulSub(gi, hn::Set(d, times_g[q]), hn::Set(d, constant[q]));
      sum = hn::MulAdd(noise.Hazard(key, hn::Set(d, nodes.at[q])), slope, sum);
    }
    hn::Store(sum, d, dx + i);
  });
  return mass;
}

// What is integrated over the line: the masses p, or with g the gradient and the sum of p.
struct Integral {
  double* sums;
  const double* g = nullptr;
  double mass = 0;

  template <class Noise>
  HWY_INLINE void Add(const Noise& noise, const double* keys, size_t n, const Nodes& nodes) {
    if (g == nullptr) {
      AddHazards(noise, keys, n, nodes, sums);
    } else {
      mass += AddGradients(noise, keys, g, n, nodes, sums);
    }
  }
};

// z to the nearest multiple of 2^-40, from -1024 on: adding 6144 leaves 40 bits after the binary point. Below -1024 none of the
// noises that use this rounding has mass in float64.
HWY_INLINE V64 OnGrid(V64 z) {
  const D64 d;
  const V64 magic = hn::Set(d, 6144.0);
  return hn::Sub(hn::Add(hn::Max(z, hn::Set(d, -1024.0)), magic), magic);
}
HWY_INLINE double OnGrid(double z) { return (z + 6144.0) - 6144.0; }

// The noises. The key of an entry is Key(z); it is -inf for an absent entry (F = 1, h = 0). Integrate adds the nodes of each
// interval of the relevant part of the line, with their cdf set, to the integral.

// Equally spaced points converge geometrically where the integrand is analytic in a strip of half-width w and decays: the error
// is exp(-2 pi w / step). They run from right to left: from the b where sum_j (1 - F(b - z_j)) equals the cut, to the point
// where e^G does.
template <class Noise, class Place>
HWY_INLINE void AddTrapezoids(const Noise& noise, const double* keys, size_t n, const Accuracy& accuracy, double b, double step,
                              Place&& place, Integral& integral) {
  for (size_t k = 0;; k += 8) {
    Nodes nodes;
    for (size_t q = 0; q < 8; ++q) nodes.Add(place(b - static_cast<double>(k + q) * step), step);
    CdfOfMaximum(noise, keys, n, nodes);
    integral.Add(noise, keys, n, nodes);
    if (!(nodes.cdf[7] > accuracy.cut)) return;
  }
}

struct NormalNoise {
  HWY_INLINE V64 Key(V64 z) const { return OnGrid(z); }
  HWY_INLINE V64 Cdf(V64 key, V64 u) const {
    const D64 d;
    const V64 t = hn::Sub(u, key);
    // From here on F rounds to 1.
    if (hn::AllTrue(d, hn::Gt(t, hn::Set(d, 9.0)))) return hn::Set(d, 1.0);
    return NormalCdf(d, t);
  }
  HWY_INLINE V64 Hazard(V64 key, V64 u) const {
    const D64 d;
    const V64 t = hn::Sub(u, key);
    if (hn::AllTrue(d, hn::Gt(t, hn::Set(d, kInverseMillsEnd)))) return hn::Zero(d);
    return InverseMills(d, t);
  }

  // The points of the trapezoidal rule: b, b - step and so on.
  struct Line {
    double b, step;
  };

  // In the strip |Im u| <= w, log F(t + iy) is about -Q(t) e^(y^2/2) e^(-i t y), Q = 1 - F, whose real part turns positive at t
  // y = pi/2: scores with t above sqrt(2 log n) have n Q(t) < 1 and do no harm, so w = pi / (2 sqrt(2 log n)). The 1 keeps w
  // below that of phi itself for small n.
  HWY_INLINE Line LineOf(const double* keys, size_t n, const Accuracy& accuracy) const {
    const D64 d;
    const ExpScaled<D64> exp(d, 1);
    double sums[2];
    Sums(d, n, sums, [&](size_t i, size_t /*count*/, V64* terms) HWY_ATTR {
      const V64 key = hn::Load(d, keys + i);
      terms[0] = exp(d, key);
      terms[1] = hn::IfThenElseZero(hn::Gt(key, hn::Set(d, -20.0)), hn::Set(d, 1.0));
    });
    // Q(b - z) <= Q(b) e^z for b >= 1, and Q(b) < phi(b)/b.
    const double exponent = accuracy.log_cut + LogNumber(sums[0]);
    double b = std::sqrt(2 * exponent);
    b = std::sqrt(2 * (exponent - LogNumber(2.5 * b)));
    const double step = 9.8696044010893586 / (accuracy.log_cut * std::sqrt(2 * LogNumber(sums[1]) + 1));
    return {OnGrid(b), OnGrid(step)};
  }

  HWY_INLINE void Integrate(const double* keys, size_t n, const Accuracy& accuracy, Integral& integral) const {
    const Line line = LineOf(keys, n, accuracy);
    AddTrapezoids(
        *this, keys, n, accuracy, line.b, line.step, [](double u) HWY_ATTR { return u; }, integral);
  }
};

// The key is e^-z, a node e^u, and h = 1 - F = 1 / (1 + e^(u - z)).
struct LogisticNoise {
  HWY_INLINE V64 Key(V64 z) const {
    const D64 d;
    return hn::Div(hn::Set(d, 1.0), ExpScaled<D64>(d, 1)(d, z));
  }
  HWY_INLINE V64 Cdf(V64 key, V64 node) const {
    const D64 d;
    return hn::Sub(hn::Set(d, 1.0), Hazard(key, node));
  }
  HWY_INLINE V64 Hazard(V64 key, V64 node) const {
    const D64 d;
    const V64 one = hn::Set(d, 1.0);
    return hn::Div(one, hn::MulAdd(key, node, one));
  }

  // Where |Im u| <= pi/2, |1 + e^-t| >= 1, so no product of F is above 1, for any n and any scores.
  HWY_INLINE void Integrate(const double* keys, size_t n, const Accuracy& accuracy, Integral& integral) const {
    const D64 d;
    const double total =
        Sum(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR { return hn::Div(hn::Set(d, 1.0), hn::Load(d, keys + i)); });
    // 1 - F(b - z) <= e^z e^-b.
    const double b = accuracy.log_cut + LogNumber(total), step = 9.8696044010893586 / accuracy.log_cut;
    AddTrapezoids(
        *this, keys, n, accuracy, b, step, [](double u) HWY_ATTR { return ExpNumber(u); }, integral);
  }
};

// Noise whose right tail is c e^-t: with v = e^-u, a node, and w = e^z, the key, e^G is a polynomial in v there. 16 Gauss
// points integrate it to the point where it is below the cut: it is less than e^(-c v W), W = sum w, and grows no faster than
// e^(c |v| W) in the complex plane, so their error is that for an exponential, 1e-14 over e^-28.
struct ExponentialTail {
  HWY_INLINE V64 Key(V64 z) const {
    const D64 d;
    return ExpScaled<D64>(d, 1)(d, z);
  }

  // Integrates from u = -log(min(1, .)) to infinity. Returns whether this was the whole line.
  template <class Noise>
  HWY_INLINE bool IntegrateTail(const Noise& noise, double c, const double* keys, size_t n, const Accuracy& accuracy,
                                Integral& integral) const {
    const D64 d;
    const double total = Sum(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR { return hn::Load(d, keys + i); });
    const double end = accuracy.log_cut / (c * total);
    Nodes nodes;
    // du = dv / v.
    nodes.AddGauss(16, 0, HWY_MIN(end, 1.0), [&](double v, double weight) HWY_ATTR { nodes.Add(v, weight / v); });
    CdfOfMaximum(noise, keys, n, nodes);
    integral.Add(noise, keys, n, nodes);
    return end < 1;
  }
};

// F = 1 - r with r = e^-t = w v, for t >= 0.
struct ExponentialNoise : ExponentialTail {
  HWY_INLINE V64 Cdf(V64 key, V64 node) const {
    const D64 d;
    return hn::NegMulAdd(key, node, hn::Set(d, 1.0));
  }
  HWY_INLINE V64 Hazard(V64 key, V64 node) const {
    const D64 d;
    const V64 r = hn::Mul(key, node);
    return hn::Div(r, hn::Sub(hn::Set(d, 1.0), r));
  }

  // Left of the largest score e^G is 0.
  HWY_INLINE void Integrate(const double* keys, size_t n, const Accuracy& accuracy, Integral& integral) const {
    IntegrateTail(*this, 1.0, keys, n, accuracy, integral);
  }
};

// F = 1 - r/2 for t >= 0, 1/(2 r) below; h = r/(2 - r) and 1.
struct LaplaceNoise : ExponentialTail {
  HWY_INLINE V64 Cdf(V64 key, V64 node) const {
    const D64 d;
    const V64 one = hn::Set(d, 1.0), r = hn::Mul(key, node);
    return hn::Div(hn::NegMulAdd(hn::Min(r, one), hn::Set(d, 0.5), one), hn::Max(r, one));
  }
  HWY_INLINE V64 Hazard(V64 key, V64 node) const {
    const D64 d;
    const V64 r = hn::Min(hn::Mul(key, node), hn::Set(d, 1.0));
    return hn::Div(r, hn::Sub(hn::Set(d, 2.0), r));
  }

  // Right of the largest score there are no kinks. To its left there is one at each score, but few matter: each score that u
  // has passed at least halves e^G, so that the cut comes before the 40th. Between kinks the integrand is entire.
  HWY_INLINE void Integrate(const double* keys, size_t n, const Accuracy& accuracy, Integral& integral) const {
    if (IntegrateTail(*this, 0.5, keys, n, accuracy, integral)) return;
    double upper = 0, kink_key = 1;
    while (upper > -accuracy.log_cut) {
      kink_key = LargestBelow(keys, n, kink_key);
      const double kink = kink_key > 0 ? HWY_MAX(LogNumber(kink_key), -accuracy.log_cut) : -accuracy.log_cut;
      while (upper > kink) {
        const double lower = HWY_MAX(kink, upper - accuracy.length);
        Nodes nodes;
        // u runs downwards, so that the last node has the smallest e^G, whose logarithm has a slope below 100 here.
        nodes.AddGauss(upper - lower < 0.01 ? 4 : 16, upper, lower,
                       [&](double u, double weight) HWY_ATTR { nodes.Add(ExpNumber(-u), -weight); });
        CdfOfMaximum(*this, keys, n, nodes);
        integral.Add(*this, keys, n, nodes);
        if (!(nodes.cdf[nodes.count - 1] > accuracy.cut)) return;
        upper = lower;
      }
    }
  }

 private:
  static HWY_INLINE double LargestBelow(const double* keys, size_t n, double bound) {
    const D64 d;
    V64 best = hn::Zero(d);
    ForEachVector(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR {
      const V64 key = hn::Load(d, keys + i);
      best = hn::Max(best, hn::IfThenElseZero(hn::Lt(key, hn::Set(d, bound)), key));
    });
    return MaxLane(d, best);
  }
};

// With s = 1 - u in [0, 1], a node, and the key c = -z: F = 1 - (s - c) and h = 1/F where s >= c, F = 1 and h = 0 elsewhere.
// The density jumps, so that the integral for an entry starts at s = c.
//
// If many keys are close together, some may be inside an interval [begin, end]. The share of such an entry is int_c^end e^G
// over int_begin^end e^G, with e^G taken as linear; m keys inside change it by at most m (end - begin)^2 / 8. The share falls
// from 1 at begin to 0 at end, so the order is kept. All uses of h agree on it, so sums are kept too.
struct UniformNoise {
  HWY_INLINE V64 Key(V64 z) const {
    const D64 d;
    return hn::Neg(OnGrid(hn::Max(z, hn::Set(d, -2.0))));
  }
  HWY_INLINE V64 Cdf(V64 key, V64 s) const {
    const D64 d;
    return hn::Sub(hn::Set(d, 1.0), hn::Max(hn::Sub(s, key), hn::Zero(d)));
  }
  HWY_INLINE V64 Hazard(V64 key, V64 s) const {
    const D64 d;
    const V64 one = hn::Set(d, 1.0), first = hn::Set(d, begin_);
    const V64 rate = hn::Div(one, hn::Sub(one, hn::Sub(s, hn::Min(key, first))));
    const auto active = hn::Le(key, first);
    if (!merged_) return hn::IfThenElseZero(active, rate);
    const V64 left = hn::Max(hn::Sub(hn::Set(d, end_), key), hn::Zero(d));
    const V64 share = hn::Mul(left, hn::MulAdd(left, hn::Set(d, slope_), hn::Set(d, level_)));
    return hn::Mul(hn::IfThenElse(active, one, share), rate);
  }

  HWY_INLINE void Integrate(const double* keys, size_t n, const Accuracy& accuracy, Integral& integral) {
    const bool merges = Look(keys, n, 1.0, 1.0).up_to >= accuracy.merged_from;
    for (begin_ = 0; begin_ < 1; begin_ = end_) {
      const Near near = Look(keys, n, begin_, begin_);
      // e^G falls at least like exp(-active (s - begin)), so nothing is left beyond `reach`.
      const double active = near.up_to, reach = HWY_MIN(1.0, begin_ + accuracy.log_cut / active);
      const double slope = active;
      end_ = HWY_MIN(near.next, reach);
      merged_ = false;
      if (merges) {
        double width = 0.05 / active;
        const double inside = Look(keys, n, begin_, begin_ + width).between;
        if (inside > 0) {
          width = HWY_MIN(width, accuracy.gradient ? accuracy.merged / inside : std::sqrt(accuracy.merged / inside));
          merged_ = begin_ + width > end_ && end_ < reach;
          if (merged_) end_ = HWY_MIN(begin_ + width, 1.0);
        }
      }
      Nodes nodes;
      const size_t count = merged_ ? 2 : (end_ - begin_) * slope < accuracy.few ? 4 : 16;
      nodes.AddGauss(count, begin_, end_, [&](double s, double weight) HWY_ATTR { nodes.Add(s, weight); });
      if (merged_) {
        nodes.Add(begin_, 0);
        nodes.Add(end_, 0);
      }
      CdfOfMaximum(*this, keys, n, nodes);
      if (merged_) {
        const double at_begin = nodes.cdf[count], at_end = nodes.cdf[count + 1], width = end_ - begin_;
        const double whole = width * (at_begin + at_end);
        level_ = 2 * at_end / whole;
        slope_ = (at_begin - at_end) / width / whole;
        nodes.count = count;
      }
      integral.Add(*this, keys, n, nodes);
      if (!(nodes.cdf[count - 1] > accuracy.cut)) return;
    }
  }

 private:
  // The number of keys up to `begin`, the number between `begin` and `end`, and the next key after `begin`.
  struct Near {
    double up_to, between, next;
  };
  static HWY_INLINE Near Look(const double* keys, size_t n, double begin, double end) {
    const D64 d;
    size_t up_to = 0, between = 0;
    V64 next = hn::Set(d, 2.0);
    ForEachVector(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR {
      const V64 key = hn::Load(d, keys + i);
      const auto reached = hn::Le(key, hn::Set(d, begin));
      up_to += hn::CountTrue(d, reached);
      between += hn::CountTrue(d, hn::Lt(key, hn::Set(d, end)));
      next = hn::Min(next, hn::IfThenElse(reached, next, key));
    });
    const double least = MinLane(d, next);
    up_to = TotalCount(up_to), between = TotalCount(between);
    return {static_cast<double>(up_to), between > up_to ? static_cast<double>(between - up_to) : 0, least};
  }

  double begin_ = 0, end_ = 0;
  bool merged_ = false;
  double level_ = 0, slope_ = 0;
};

// The caller's noise: its functions are called with a vector at a time. The order of the scores cannot be guaranteed.
class CustomNoise {
 public:
  HWY_INLINE explicit CustomNoise(const NoiseFunctions& functions) : functions_(functions) {}

  HWY_INLINE V64 Key(V64 z) const { return z; }
  HWY_INLINE V64 Cdf(V64 key, V64 u) const {
    const D64 d;
    const V64 cdf = Exp(d, Values(functions_.log_cdf, hn::Sub(u, key)));
    return hn::IfThenElse(Absent(key), hn::Set(d, 1.0), cdf);
  }
  HWY_INLINE V64 Hazard(V64 key, V64 u) const {
    const D64 d;
    const V64 t = hn::Sub(u, key), cdf = Exp(d, Values(functions_.log_cdf, t));
    // If F is 0, so is e^G.
    const auto none = hn::Or(hn::Eq(cdf, hn::Zero(d)), Absent(key));
    return hn::IfThenZeroElse(none, hn::Div(Values(functions_.pdf, t), cdf));
  }

  // Finds the relevant part of the line.
  void Fit(const double* keys, size_t n, const Accuracy& accuracy) { FindEnds(keys, n, accuracy); }

  // Intervals end at kinks: there is one in u at each z + kink. If there are many, those just after the last end do not
  // count. The integrals of all entries together are the change of e^G, which is known at the ends. So an interval is halved
  // until its points give that change, which finds peaks and tails of any width. The tolerance grows slowly with the number of
  // intervals, because the rounding errors of the caller's functions are not known.
  HWY_INLINE void Integrate(const double* keys, size_t n, const Accuracy& accuracy, Integral& integral) const {
    const bool many = n * functions_.kinks.size() > kMostKinks;
    const double apart = many ? (last_ - first_) / static_cast<double>(kMostKinks) : 0;
    // The ends of the intervals to the right, the next one last, with e^G there.
    double ends[kDeepest], cdfs[kDeepest];
    size_t open = 0;
    const auto push = [&](double end) HWY_ATTR {
      ends[open] = end, cdfs[open] = CdfAt(keys, n, end);
      ++open;
    };
    push(last_);
    double tolerance = accuracy.cut / 16 + static_cast<double>(n) * 0x1p-52;
    for (double begin = first_, cdf = CdfAt(keys, n, first_); open > 0;) {
      double kink_end = ends[open - 1];
      for (const double kink : functions_.kinks) {
        for (size_t i = 0; i < n; ++i) {
          const double place = keys[i] + kink;
          if (place > begin + HWY_MAX(apart, 0x1p-48 * std::abs(place)) && place < kink_end) kink_end = place;
        }
      }
      if (kink_end < ends[open - 1] && open < kDeepest) push(kink_end);
      const double end = ends[open - 1], change = cdfs[open - 1] - cdf;
      Nodes nodes;
      nodes.AddGauss(16, begin, end, [&](double u, double weight) HWY_ATTR { nodes.Add(u, weight); });
      CdfOfMaximum(*this, keys, n, nodes);
      if (std::abs(MassOf(keys, n, nodes) - change) > tolerance && open < kDeepest) {
        push(0.5 * (begin + end));
        tolerance *= kSlower;
        continue;
      }
      integral.Add(*this, keys, n, nodes);
      begin = end, cdf = cdfs[open - 1];
      --open;
    }
  }

 private:
  static constexpr size_t kMostKinks = 4096, kDeepest = 128;
  static constexpr double kSlower = 1.003;  // 10 times the tolerance after 770 intervals

  static HWY_INLINE hn::Mask<D64> Absent(V64 key) { return hn::Eq(key, hn::Set(D64(), -kInfinity<double>)); }

  HWY_INLINE V64 Values(void (*function)(const void*, const double*, size_t, double*), V64 t) const {
    const D64 d;
    HWY_ALIGN double in[hn::MaxLanes(D64())], out[hn::MaxLanes(D64())];
    hn::Store(t, d, in);
    function(functions_.noise, in, hn::Lanes(d), out);
    return hn::Load(d, out);
  }

  HWY_INLINE double CdfAt(const double* keys, size_t n, double u) const {
    Nodes nodes;
    for (int k = 0; k < 4; ++k) nodes.Add(u, 0);
    CdfOfMaximum(*this, keys, n, nodes);
    return nodes.cdf[0];
  }

  // The sum over entries of the integrals.
  HWY_INLINE double MassOf(const double* keys, size_t n, const Nodes& nodes) const {
    const D64 d;
    double mass = 0;
    for (size_t q = 0; q < nodes.count; ++q) {
      const V64 at = hn::Set(d, nodes.at[q]);
      const double hazards = Sum(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR { return Hazard(hn::Load(d, keys + i), at); });
      mass += nodes.weight[q] * nodes.cdf[q] * hazards;
    }
    return mass;
  }

  // Finds first_ and last_ from the values of e^G: outwards by doubling, then each between the last two points, four points at
  // a time.
  void FindEnds(const double* keys, size_t n, const Accuracy& accuracy) {
    const auto inside = [&](double cdf, bool right) { return right ? 1 - cdf > accuracy.cut : cdf > accuracy.cut; };
    double in[2], out[2];
    for (const bool right : {false, true}) {
      const double sign = right ? 1 : -1;
      double distance = 1;
      in[right] = -sign, out[right] = sign;
      for (size_t round = 0; round < 64; ++round) {
        Nodes nodes;
        for (; nodes.count < 4; distance *= 2) nodes.Add(sign * distance, 0);
        CdfOfMaximum(*this, keys, n, nodes);
        size_t k = 0;
        for (; k < 4 && inside(nodes.cdf[k], right); ++k) in[right] = nodes.at[k];
        out[right] = nodes.at[HWY_MIN(k, size_t{3})];
        if (k < 4) break;
      }
      // If the search never left a bracket, its inner end need not be inside: search back over the line.
      if (out[right] == sign) {
        distance = 1;
        for (size_t round = 0; round < 64; ++round) {
          Nodes nodes;
          for (; nodes.count < 4; distance *= 2) nodes.Add(-sign * distance, 0);
          CdfOfMaximum(*this, keys, n, nodes);
          size_t k = 0;
          for (; k < 4 && !inside(nodes.cdf[k], right); ++k) out[right] = nodes.at[k];
          in[right] = nodes.at[HWY_MIN(k, size_t{3})];
          if (k < 4) break;
        }
      }
    }
    for (size_t round = 0; round < 400; ++round) {
      const double line = out[1] - out[0];
      const bool right = std::abs(out[1] - in[1]) > std::abs(out[0] - in[0]);
      const double step = (out[right] - in[right]) / 5;
      if (std::abs(step) < 2e-3 * line) break;
      Nodes nodes;
      for (size_t k = 1; k <= 4; ++k) nodes.Add(in[right] + static_cast<double>(k) * step, 0);
      CdfOfMaximum(*this, keys, n, nodes);
      size_t k = 0;
      for (; k < 4 && inside(nodes.cdf[k], right); ++k) in[right] = nodes.at[k];
      if (k < 4) out[right] = nodes.at[k];
    }
    first_ = out[0], last_ = out[1];
  }

  const NoiseFunctions& functions_;
  double first_ = 0, last_ = 0;
};

// z = (x - max)/scale, padded with absent entries to a multiple of 16. Returns whether there is no NaN.
//
// The difference in float64 loses no digits of the scores. A scale above 1 is halved together with the scores, so that the
// difference of the largest and the smallest number does not overflow. Infinite quotients correctly become absent entries.
template <class T>
HWY_NOINLINE bool Relative(double scale, const T* x, size_t n, T max, double* z) {
  const D64 d;
  const double half = scale > 1 ? 0.5 : 1, divisor = scale * half, shift = static_cast<double>(max) * half;
  size_t nan = 0;
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 xi = LoadWide(d, x + i, count, T(0));
    nan += hn::CountTrue(d, hn::IsNaN(xi));
    StoreUpTo(hn::Div(hn::Sub(hn::Mul(xi, hn::Set(d, half)), hn::Set(d, shift)), hn::Set(d, divisor)), d, count, z + i);
  });
  FillRow(d, -kInfinity<double>, PaddedTo16(n) - n, z + n);
  return TotalCount(nan) == 0;
}

// The integral for n keys, a multiple of 16, which are z before. It is one function for every type and for p and its gradient:
// a second one would be of the same speed.
template <class Noise>
HWY_NOINLINE void IntegrateRow(Noise noise, double* keys, size_t n, const Accuracy& accuracy, Integral& integral,
                               Arena memory) {
  const D64 d;
  ForEachVector(d, n, [&](size_t i, size_t /*count*/) HWY_ATTR { hn::Store(noise.Key(hn::Load(d, keys + i)), d, keys + i); });
  if constexpr (requires { noise.Fit(keys, n, accuracy); }) noise.Fit(keys, n, accuracy);
  FillRow(d, 0.0, n, integral.sums);
  if constexpr (std::is_same_v<Noise, NormalNoise>) {
    const auto line = [&]() HWY_ATTR { return noise.LineOf(keys, n, accuracy); };
    if (!accuracy.gradient && MassesByPanels(accuracy.of_float64, keys, n, line, accuracy.cut, integral.sums, memory)) return;
  }
  noise.Integrate(keys, n, accuracy, integral);
}

// Gumbel noise has no type, because the largest of scores with it has softmax's law.
HWY_INLINE void IntegrateRow(PerturbMax::Noise noise, double* keys, size_t n, const Accuracy& accuracy, Integral& integral,
                             Arena memory) {
  switch (noise) {
    case PerturbMax::Noise::normal:
      return IntegrateRow(NormalNoise(), keys, n, accuracy, integral, memory);
    case PerturbMax::Noise::logistic:
      return IntegrateRow(LogisticNoise(), keys, n, accuracy, integral, memory);
    case PerturbMax::Noise::laplace:
      return IntegrateRow(LaplaceNoise(), keys, n, accuracy, integral, memory);
    case PerturbMax::Noise::exponential:
      return IntegrateRow(ExponentialNoise(), keys, n, accuracy, integral, memory);
    case PerturbMax::Noise::uniform:
      return IntegrateRow(UniformNoise(), keys, n, accuracy, integral, memory);
    case PerturbMax::Noise::gumbel:
      HWY_DASSERT(false);
  }
}

// `noise` is a type of noise or the name of one.
template <class Noise, class T>
HWY_NOINLINE void PerturbRow(const Noise& noise, double scale, const T* x, size_t n, T max, T* p, Arena memory) {
  const D64 d;
  const size_t padded = PaddedTo16(n);
  double* const keys = memory.take<double>(padded);
  double* const mass = memory.take<double>(padded);
  if (!Relative(scale, x, n, max, keys)) return FillRow(RowTag<T>(), kNaN<T>, n, p);
  Integral integral = {mass};
  IntegrateRow(noise, keys, padded, AccuracyOf<T>(false), integral, memory);
  const double sum = Sum(d, padded, [&](size_t i, size_t /*count*/) HWY_ATTR { return hn::Load(d, mass + i); });
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreNarrow(hn::Div(LoadUpTo(d, mass + i, count, 0.0), hn::Set(d, sum)), d, count, p + i);
  });
}

// The slopes that Integral takes, g relative to its mean under p: this does not change the gradient, and a large common part of
// g cannot swamp it. Returns whether there is no NaN.
template <class T>
HWY_NOINLINE bool SlopesOf(const T* p, const T* g, size_t n, double* slopes) {
  const D64 d64;
  if (FindNonFinite(p, n).nan) return false;
  const V64 mean = hn::Set(d64, DotWithDistribution(RowTag<T>(), p, g, n));
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 pi = LoadWide(d64, p + i, count, T(0)), gi = LoadWide(d64, g + i, count, T(0));
    StoreUpTo(hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d64)), hn::Sub(gi, mean)), d64, count, slopes + i);
  });
  FillRow(d64, 0.0, PaddedTo16(n) - n, slopes + n);
  return true;
}

template <class Noise, class T>
HWY_NOINLINE void PerturbVjpRow(const Noise& noise, double scale, const T* x, const T* p, const T* g, size_t n, T* dx,
                                Arena memory) {
  const RowTag<T> d;
  const D64 d64;
  const size_t padded = PaddedTo16(n);
  double* const keys = memory.take<double>(padded);
  double* const slopes = memory.take<double>(padded);
  double* const gradient = memory.take<double>(padded);
  const T max = RowMax(d, x, n);
  if (!IsFinite(max) || !Relative(scale, x, n, max, keys) || !SlopesOf(p, g, n, slopes)) return FillRow(d, kNaN<T>, n, dx);
  Integral integral = {gradient, slopes};
  IntegrateRow(noise, keys, padded, AccuracyOf<T>(true), integral, memory);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 pi = LoadWide(d64, p + i, count, T(0)), slope = LoadUpTo(d64, gradient + i, count, 0.0);
    const V64 di = hn::Div(hn::Div(slope, hn::Set(d64, integral.mass)), hn::Set(d64, scale));
    StoreNarrow(hn::IfThenZeroElse(hn::Eq(pi, hn::Zero(d64)), di), d64, count, dx + i);
  });
}

template <class T>
HWY_INLINE void KernelsOf<PerturbMax, T>::MapRow(const PerturbMax& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  if (op.noise == PerturbMax::Noise::gumbel) {
    return KernelsOf<Softmax, T>::MapRow({.temperature = op.scale}, x, n, max, p, workspace);
  }
  PerturbRow(op.noise, op.scale, x, n, max, p, workspace.memory);
}

template <class T>
HWY_INLINE void KernelsOf<PerturbMax, T>::Short::Map(const PerturbMax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group,
                                                     T* const* p, size_t count) {
  KernelsOf<Softmax, T>::Short::Map({.temperature = op.scale}, max, group, p, count);
}

template <class T>
HWY_INLINE void KernelsOf<PerturbMax, T>::VjpRow(const PerturbMax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                                 ParamValues<PerturbMax>* /*slopes*/, Workspace workspace) {
  if (op.noise == PerturbMax::Noise::gumbel) {
    return KernelsOf<Softmax, T>::VjpRow({.temperature = op.scale}, x, p, g, n, dx, nullptr, workspace);
  }
  PerturbVjpRow(op.noise, op.scale, x, p, g, n, dx, workspace.memory);
}

template <class T>
HWY_INLINE void KernelsOf<CustomPerturbMax, T>::MapRow(const CustomPerturbMax& op, const T* x, size_t n, T max, T* p,
                                                       Workspace workspace) {
  PerturbRow(CustomNoise(op.noise), op.scale, x, n, max, p, workspace.memory);
}

template <class T>
HWY_INLINE void KernelsOf<CustomPerturbMax, T>::VjpRow(const CustomPerturbMax& op, const T* x, const T* p, const T* g, size_t n,
                                                       T* dx, ParamValues<CustomPerturbMax>* /*slopes*/, Workspace workspace) {
  PerturbVjpRow(CustomNoise(op.noise), op.scale, x, p, g, n, dx, workspace.memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_PERTURB_MAX_INL_H_

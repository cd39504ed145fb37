// perturb_max of long rows with normal noise, by a few points for all scores.
//
// A score acts only through functions of z: it adds log F(u - z) to G(u), and its mass is P(z) =
// int h(u - z) e^G(u) du. Both functions are analytic except at the complex zeros of F, which are at least 2.8 from the real
// line. So on each panel, an interval of length 1 of the z, they are polynomials of low degree: their values at kNodes
// Chebyshev points of the panel are enough, and a row of n costs as much as a row of these points, and two short sums a score.
//
// G is a sum over scores of interpolated values, so a sum over Chebyshev points t of w(t) log F(u - t). The weights follow from
// the sums of the Chebyshev polynomials T_k(s) over the scores in the panel, s in [-1, 1]. For P its logarithm is interpolated,
// because P falls by many orders of magnitude: log P is nearly quadratic.
//
// The order of the scores is kept, because z are multiples of 2^-40: from one multiple of 2^-40 to the next log P rises by more
// than 1e-13, while it is computed to some 1e-14. Neighbouring panels share the point between them and agree there to this
// error.

#if defined(ISENTROPIC_MAPS_NORMAL_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_NORMAL_PANELS_INL_H_
#undef ISENTROPIC_MAPS_NORMAL_PANELS_INL_H_
#else
#define ISENTROPIC_MAPS_NORMAL_PANELS_INL_H_
#endif

#include "src/rows/normal-inl.h"
#include "src/rows/reduce-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

#ifdef ISENTROPIC_DEVICE
// A device takes every score at every point of the line: the few points of panels would leave most of a team's threads without
// work. Results differ in the last digits.
template <class LineOf>
HWY_INLINE bool MassesByPanels(bool, const double*, size_t, const LineOf&, double, double*, Arena) {
  return false;
}

HWY_INLINE size_t PanelsMemory(bool) { return 0; }
#else

// With 8 and 14 points the errors are 1e-9 and 1e-13.
template <size_t kNodes>
struct NormalPanels {
  static constexpr size_t kPanels = 48;  // no mass in float64 beyond
  static constexpr size_t kMost = (kPanels * kNodes + 15) / 16 * 16;
  static constexpr size_t kAtOnce = 4;
  // The sums of T_k in each panel, and later the coefficients of log P. The panel after the last has no mass.
  double* series;
  // For each Chebyshev point: its place t, its weight in G, its mass, and h at the current u.
  double *points, *weights, *mass, *hazards;
  size_t panels = 0, padded = 0;
  size_t panel[kPanels];  // those that have scores

  explicit NormalPanels(Arena& memory)
      : series(memory.take<double>((kPanels + 1) * kNodes)),
        points(memory.take<double>(kMost)),
        weights(memory.take<double>(kMost)),
        mass(memory.take<double>(kMost)),
        hazards(memory.take<double>(kAtOnce * kMost)) {}

  // T_k at point m, which is T_m at point k.
  struct Chebyshev {
    double at[kNodes][kNodes];
  };
  static constexpr Chebyshev Points() {
    // cos(pi m / (kNodes - 1)).
    constexpr double kOf8[] = {1, 0x1.cd4bca9cb5c71p-1, 0x1.3f3a0e28bedd1p-1, 0x1.c7b90e3024582p-3};
    constexpr double kOf14[] = {1,
                                0x1.f11f493053d00p-1,
                                0x1.c55a7e00740e9p-1,
                                0x1.7f3ccd0032e0cp-1,
                                0x1.22d961ea71119p-1,
                                0x1.6b1d8b2365da1p-2,
                                0x1.edb7debaa3ed8p-4};
    Chebyshev values = {};
    for (size_t m = 0; m < kNodes; ++m) {
      const size_t from_end = m < kNodes / 2 ? m : kNodes - 1 - m;
      const double size = kNodes == 8 ? kOf8[from_end % 4] : kOf14[from_end % 7];
      const double s = m < kNodes / 2 ? size : -size;
      values.at[0][m] = 1, values.at[1][m] = s;
      for (size_t k = 2; k < kNodes; ++k) values.at[k][m] = 2 * s * values.at[k - 1][m] - values.at[k - 2][m];
    }
    return values;
  }

  // Between the values at the points and the coefficients, or the sums of T_k and the weights of the points: the cosine
  // transform, with half of the first and the last.
  static HWY_INLINE void Transform(const double* from, double* to) {
    static constexpr Chebyshev kAt = Points();
    for (size_t k = 0; k < kNodes; ++k) {
      double sum = 0.5 * (kAt.at[k][0] * from[0] + kAt.at[k][kNodes - 1] * from[kNodes - 1]);
      for (size_t m = 1; m + 1 < kNodes; ++m) sum += kAt.at[k][m] * from[m];
      to[k] = (k == 0 || k + 1 == kNodes ? 1.0 : 2.0) / (kNodes - 1) * sum;
    }
  }

  // Distributes the scores to panels. Returns whether these have so few points that it pays.
  HWY_INLINE bool Distribute(const double* keys, size_t n) {
    static constexpr Chebyshev kAt = Points();
    for (size_t k = 0; k < (kPanels + 1) * kNodes; ++k) series[k] = 0;
    for (size_t i = 0; i < n; ++i) {
      const size_t a = static_cast<size_t>(HWY_MIN(-keys[i], static_cast<double>(kPanels)));
      double* const sums = series + a * kNodes;
      double last = 1, s = -2 * (keys[i] + static_cast<double>(a)) - 1;
      const double twice = 2 * s;
      sums[0] += last;
      for (size_t k = 1; k < kNodes; ++k) {
        sums[k] += s;
        const double next = twice * s - last;
        last = s, s = next;
      }
    }
    double scores = 0;
    for (size_t a = 0; a < kPanels; ++a) {
      if (series[a * kNodes] > 0) panel[panels++] = a;  // the sum of T_0 is the number of scores
      scores += series[a * kNodes];
    }
    // Only scores that can have mass count: -inf changes nothing.
    if (static_cast<double>(2 * panels * kNodes + 24) > scores) return false;
    for (size_t a = 0; a < panels; ++a) {
      Transform(series + panel[a] * kNodes, weights + a * kNodes);
      for (size_t m = 0; m < kNodes; ++m) {
        points[a * kNodes + m] = -(static_cast<double>(panel[a]) + 0.5 * (kAt.at[1][m] + 1));
      }
    }
    padded = (panels * kNodes + 15) / 16 * 16;
    for (size_t i = panels * kNodes; i < padded; ++i) points[i] = -1024, weights[i] = 0;
    for (size_t i = 0; i < padded; ++i) mass[i] = 0;
    return true;
  }

  // The masses of the points, then the coefficients of their logarithms. Four u at a time wait for their results together.
  template <class Line>
  HWY_INLINE void Integrate(const Line& line, double cut) {
    const D64 d;
    double cdf[kAtOnce] = {1};
    for (size_t k = 0; cdf[kAtOnce - 1] > cut || k == 0; k += kAtOnce) {
      double u[kAtOnce];
      for (size_t q = 0; q < kAtOnce; ++q) u[q] = line.b - static_cast<double>(k + q) * line.step;
      Sums(d, padded, cdf, [&](size_t i, size_t /*count*/, V64* terms) HWY_ATTR {
        const V64 t = hn::Load(d, points + i), weight = hn::Load(d, weights + i);
        for (size_t q = 0; q < kAtOnce; ++q) {
          const NormalLogCdf of = NormalLogCdfOf(d, hn::Sub(hn::Set(d, u[q]), t));
          hn::Store(of.inverse_mills, d, hazards + q * kMost + i);
          terms[q] = hn::Mul(of.log_cdf, weight);
        }
      });
      for (double& one : cdf) one = ExpNumber(one);
      for (size_t i = 0; i < padded; i += hn::Lanes(d)) {
        V64 sum = hn::Load(d, mass + i);
        for (size_t q = 0; q < kAtOnce; ++q) {
          sum = hn::MulAdd(hn::Load(d, hazards + q * kMost + i), hn::Set(d, line.step * cdf[q]), sum);
        }
        hn::Store(sum, d, mass + i);
      }
    }
    for (size_t i = 0; i < padded; i += hn::Lanes(d)) hn::Store(Log(d, hn::Load(d, mass + i)), d, hazards + i);
    for (size_t k = 0; k < kNodes; ++k) series[kPanels * kNodes + k] = k == 0 ? kNothing : 0;
    for (size_t a = 0; a < panels; ++a) {
      double* const of = series + panel[a] * kNodes;
      Transform(hazards + a * kNodes, of);
      // The lowest point. Below this its mass would not be a normal number.
      if (hazards[a * kNodes] > -690) continue;
      for (size_t k = 0; k < kNodes; ++k) of[k] = k == 0 ? kNothing : 0;
    }
  }

  // The masses of n scores.
  HWY_INLINE void MassesOf(const double* keys, size_t n, double* of_scores) const {
    const D64 d;
    const hn::RebindToSigned<D64> di;
    const ExpScaled<D64> exp(d, 1);
    const V64 most = hn::Set(d, static_cast<double>(kPanels)), one = hn::Set(d, 1.0), two = hn::Set(d, 2.0);
    const V64 magic = hn::Set(d, 0x1p52), nodes = hn::Set(d, static_cast<double>(kNodes));
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      const V64 depth = hn::Neg(hn::Load(d, keys + i)), a = hn::Min(hn::Floor(depth), most);
      const V64 s = hn::Min(hn::MulSub(two, hn::Sub(depth, a), one), one), twice = hn::Add(s, s);
      const auto at = hn::And(hn::BitCast(di, hn::MulAdd(a, nodes, magic)), hn::Set(di, 0xffff));
      // Clenshaw's recurrence.
      V64 later = hn::Zero(d), last = hn::GatherIndex(d, series + kNodes - 1, at);
      for (size_t k = kNodes - 2; k > 0; --k) {
        const V64 next = hn::Sub(hn::MulAdd(twice, last, hn::GatherIndex(d, series + k, at)), later);
        later = last, last = next;
      }
      const V64 log = hn::Sub(hn::MulAdd(s, last, hn::GatherIndex(d, series, at)), later);
      hn::Store(exp(d, log), d, of_scores + i);
    }
  }

 private:
  static constexpr double kNothing = -1e4;  // the logarithm of 0
};

template <size_t kNodes, class LineOf>
HWY_NOINLINE bool MassesByPanelsOf(const double* keys, size_t n, const LineOf& line_of, double cut, double* mass,
                                   Arena memory) {
  NormalPanels<kNodes> panels(memory);
  if (!panels.Distribute(keys, n)) return false;
  panels.Integrate(line_of(), cut);
  panels.MassesOf(keys, n, mass);
  return true;
}

// The masses of n keys, a multiple of 16 of them, for float32 or float64, or false if panels are not faster. line_of() gives
// the points of the trapezoidal rule: b, b - step and so on, until less than `cut` is left.
template <class LineOf>
HWY_INLINE bool MassesByPanels(bool of_float64, const double* keys, size_t n, const LineOf& line_of, double cut, double* mass,
                               Arena memory) {
  return of_float64 ? MassesByPanelsOf<14>(keys, n, line_of, cut, mass, memory)
                    : MassesByPanelsOf<8>(keys, n, line_of, cut, mass, memory);
}

HWY_INLINE size_t PanelsMemory(bool of_float64) {
  return of_float64 ? room_of<NormalPanels<14>>() : room_of<NormalPanels<8>>();
}

#endif  // ISENTROPIC_DEVICE

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_NORMAL_PANELS_INL_H_

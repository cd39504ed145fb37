// Powers of densities and tables: the gamma at which they have a given entropy.
//
// With u the weight of an entry and z = log(p / top) its logarithm, p^gamma is exp(gamma z) up to a factor, and the entropy of
// p^gamma / sum u p^gamma under u is log sum u e - mean of a, for e = exp(a) and a = gamma z. This is the entropy of
// entropy-inl.h with weights; log sum u over p > 0 replaces log n there, and the same sum over the ties of the maximum replaces
// log_ties.

#if defined(ISENTROPIC_ENTROPY_CONTROL_POWER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ENTROPY_CONTROL_POWER_INL_H_
#undef ISENTROPIC_ENTROPY_CONTROL_POWER_INL_H_
#else
#define ISENTROPIC_ENTROPY_CONTROL_POWER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "isentropic/entropy_control.h"
#include "src/rows/entropy-inl.h"
#include "src/rows/input-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// exp(gamma z) for z <= 0: 0 at z = -inf even for gamma = 0, and 1 at z = 0 even for gamma = inf. It never falls as z rises.
class ExpOfLogRatio {
 public:
  using D = D64;
  using V = hn::Vec<D>;

  HWY_INLINE explicit ExpOfLogRatio(double gamma)
      : exp_(D(), 1), gamma_(hn::Set(D(), HWY_MIN(gamma, std::numeric_limits<double>::max()))) {}

  HWY_INLINE V operator()(V z) const {
    const D d;
    const V e = exp_(d, hn::Max(hn::Mul(gamma_, z), hn::Set(d, -800.0)));
    return hn::IfThenZeroElse(hn::Eq(z, hn::Set(d, -kInfinity<double>)), e);
  }

 private:
  ExpScaled<D> exp_;
  V gamma_;
};

// Logarithms of a row relative to its maximum, with their weights.
struct LogRow {
  const double* z;
  const double* weights;  // nullptr: all 1
  size_t n;

  HWY_INLINE V64 Weights(size_t i, size_t count) const {
    const D64 d;
    return weights == nullptr ? hn::Set(d, 1.0) : LoadUpTo(d, weights + i, count, 0.0);
  }
};

// An entropy and its derivative, from the central moments of a: dH / d log gamma = -variance.
struct PowerMoments {
  double entropy, variance, third;

  HWY_INLINE void Add(double weight, const PowerMoments& other) {
    entropy += weight * other.entropy, variance += weight * other.variance, third += weight * other.third;
  }
};

// a = gamma z, but at least -800, where exp is 0. So absent entries, z = -inf, cause no 0 times infinity.
HWY_INLINE V64 Scaled(V64 z, double gamma) {
  const D64 d;
  return hn::Max(hn::Mul(z, hn::Set(d, gamma)), hn::Set(d, -800.0));
}

// The moments of p^gamma, in two sweeps: if the maximum has little weight, raw moments of a would be dominated by its mean.
HWY_INLINE PowerMoments MomentsOfPower(const LogRow& row, double gamma) {
  const D64 d;
  const ExpScaled<D64> exp(d, 1);
  double sums[2], central[2];
  Sums(d, row.n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 a = Scaled(LoadUpTo(d, row.z + i, count, 0.0), gamma);
    terms[0] = hn::Mul(exp(d, a), row.Weights(i, count));
    terms[1] = hn::Mul(terms[0], a);
  });
  const double inverse = 1 / sums[0], mean = sums[1] * inverse;
  const V64 middle = hn::Set(d, mean);
  Sums(d, row.n, central, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 a = Scaled(LoadUpTo(d, row.z + i, count, 0.0), gamma), difference = hn::Sub(a, middle);
    terms[0] = hn::Mul(hn::Mul(exp(d, a), row.Weights(i, count)), hn::Mul(difference, difference));
    terms[1] = hn::Mul(terms[0], difference);
  });
  return {LogNumber(sums[0]) - mean, central[0] * inverse, central[1] * inverse};
}

// The reach of a row: its entropies at gamma = infinity and 0.
struct PowerReach {
  double least = 0, most = 0;          // entropies
  double farthest = 0, nearest = 800;  // largest and least |z| of entries below the maximum
  PowerMoments at_zero = {0, 0, 0};    // moments of z in place of a
  bool equal = true;                   // only the maximum has mass
};

HWY_INLINE PowerReach ReachOfPower(const LogRow& row) {
  const D64 d;
  const V64 zero = hn::Zero(d), absent = hn::Set(d, -kInfinity<double>);
  const auto weights = [&](V64 z, size_t i, size_t count)
                           HWY_ATTR { return hn::IfThenZeroElse(hn::Eq(z, absent), row.Weights(i, count)); };
  const auto finite = [&](V64 z) HWY_ATTR { return hn::IfThenZeroElse(hn::Eq(z, absent), z); };
  PowerReach reach;
  double sums[3], central[2];
  Sums(d, row.n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 z = LoadUpTo(d, row.z + i, count, 0.0);
    terms[0] = weights(z, i, count);
    terms[1] = hn::IfThenElseZero(hn::Eq(z, zero), terms[0]);
    terms[2] = hn::Mul(terms[0], finite(z));
  });
  const double mean = sums[2] / sums[0];
  Sums(d, row.n, central, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 z = LoadUpTo(d, row.z + i, count, 0.0), difference = hn::Sub(finite(z), hn::Set(d, mean));
    terms[0] = hn::Mul(weights(z, i, count), hn::Mul(difference, difference));
    terms[1] = hn::Mul(terms[0], difference);
  });
  for (size_t i = 0; i < row.n; ++i) {
    const double size = -row.z[i];
    if (!(size > 0 && size <= std::numeric_limits<double>::max())) continue;
    reach.farthest = HWY_MAX(reach.farthest, size);
    reach.nearest = HWY_MIN(reach.nearest, size);
    reach.equal = false;
  }
  reach.least = LogNumber(sums[1]), reach.most = LogNumber(sums[0]);
  reach.at_zero = {reach.most, central[0] / sums[0], central[1] / sums[0]};
  return reach;
}

// Finds the gamma for `target`, or takes the nearer end of the reach; moments(gamma) returns PowerMoments. Entropies are
// smaller than the caller's by `unit`.
template <class Moments>
HWY_INLINE Normalized FindPower(double target, const PowerReach& reach, Moments&& moments, double unit = 0) {
  const double least = reach.least, most = reach.most;
  // The promised error is relative to the caller's entropy. A rounding error of gamma changes the entropy by eps times the
  // variance of a, which may be about the square of the entropy here.
  const double scale = HWY_MAX(1.0, std::abs(target)), promised = HWY_MAX(1.0, std::abs(target + unit));
  const double rounding = 1e-15 * scale * scale;
  // A target within the promised error of an end counts as met there.
  const double near = HWY_MAX(1e-12 * promised, 5 * rounding);
  const auto status = [&](double entropy) {
    return entropy > target + near   ? GammaStatus::clamped_low
           : entropy < target - near ? GammaStatus::clamped_high
                                     : GammaStatus::ok;
  };
  if (reach.equal) return {1, most, most, most, GammaStatus::constant};
  if (target >= most) return {0, most, least, most, status(most)};
  if (target <= least) return {kInfinity<double>, least, least, most, status(least)};
  // The search takes the sums of a row. These sums describe a row with that variance and third moment and mean 0. Its entropy
  // is log(sums[0]), taken relative to the target so that nothing cancels.
  double entropy = 0;
  const auto sums_of_row = [&](double gamma, double(&sums)[4]) HWY_ATTR {
    const PowerMoments at = moments(gamma);
    entropy = at.entropy;
    sums[0] = ExpNumber(HWY_MAX(-600.0, HWY_MIN(entropy - target, 600.0)));
    sums[1] = 0;
    sums[2] = at.variance * sums[0];
    sums[3] = at.third * sums[0];
  };
  // Beyond these limits all a, or all e, are 0 to the last bit.
  const GammaLimits limits = {0x1p-80 / reach.farthest, 0x1p12 / reach.nearest, 200};
  const double gamma = FindGamma({0, 0}, limits, {2e-15 * scale, 1e-5 * scale, HWY_MAX(2e-13 * promised, rounding)},
                                 {least - target, most - target, reach.at_zero.variance, reach.at_zero.third}, 1, sums_of_row)
                           .gamma;
  return {gamma, entropy, least, most, status(entropy)};
}

inline constexpr Normalized kNotNormalized = {kNaN<double>, kNaN<double>, kNaN<double>, kNaN<double>, GammaStatus::invalid};

// It needs memory for two rows.
template <class T>
Normalized DensityRow(double target, const T* p, const double* w, size_t n, T* q, Arena memory) {
  double top = 0, heaviest = 0;
  bool valid = true;
  for (size_t i = 0; i < n; ++i) {
    valid &= p[i] >= T(0) && p[i] <= std::numeric_limits<T>::max();
    if (w[i] > 0) top = HWY_MAX(top, static_cast<double>(p[i]));
    heaviest = HWY_MAX(heaviest, w[i]);
  }
  if (!valid || !(top > 0)) {
    std::fill(q, q + n, kNaN<T>);
    return kNotNormalized;
  }
  // Weights are in units of a power of two, so that products with them do not overflow; entropies are smaller by `unit`.
  const int exponent = std::ilogb(heaviest);
  const double unit = exponent * 0x1.62e42fefa39efp-1;
  double *const z = memory.take<double>(n), *const u = memory.take<double>(n);
  LogsOfRatios(p, n, top, z);
  for (size_t i = 0; i < n; ++i) {
    u[i] = std::ldexp(w[i], -exponent);
    if (w[i] == 0) z[i] = -kInfinity<double>;
  }
  const LogRow row = {z, u, n};
  Normalized found = FindPower(
      target - unit, ReachOfPower(row), [&](double gamma) HWY_ATTR { return MomentsOfPower(row, gamma); }, unit);
  found.entropy += unit, found.least += unit, found.most += unit;

  const D64 d;
  const ExpOfLogRatio exp(found.gamma);
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    return hn::Mul(exp(LoadUpTo(d, z + i, count, 0.0)), LoadUpTo(d, u + i, count, 0.0));
  });
  const auto scale = hn::Set(d, std::ldexp(1 / sum, -exponent));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreNarrow(hn::Mul(exp(LoadUpTo(d, z + i, count, 0.0)), scale), d, count, q + i);
  });
  return found;
}

// Replaces z by exp(gamma z), scaled to the sum `mass`.
HWY_INLINE void ExpToMass(double gamma, double mass, size_t n, double* z) {
  const D64 d;
  const ExpOfLogRatio exp(gamma);
  const double sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto e = exp(LoadUpTo(d, z + i, count, 0.0));
    StoreUpTo(e, d, count, z + i);
    return e;
  });
  ScaleRow(d, mass / sum, n, z);
}

// p^gamma = exp(gamma log(p / max p)), in float64.
template <class T>
void PowerRow(double gamma, const T* p, size_t n, T* q, double* z) {
  bool valid = true;
  for (size_t i = 0; i < n; ++i) valid &= p[i] >= T(0) && p[i] <= std::numeric_limits<T>::max();
  const double top = valid ? static_cast<double>(RowMax(RowTag<T>(), p, n)) : 0;
  if (!(top > 0)) {
    std::fill(q, q + n, kNaN<T>);
    return;
  }
  LogsOfRatios(p, n, top, z);
  ExpToMass(gamma, 1, n, z);
  for (size_t i = 0; i < n; ++i) q[i] = static_cast<T>(z[i]);
}

HWY_INLINE Normalized NormalizeWhole(double target, size_t n, double* table) {
  const double top = RowMax(D64(), table, n);
  LogsOfRatios(table, n, top, table);
  const LogRow row = {table, nullptr, n};
  const Normalized found =
      FindPower(target, ReachOfPower(row), [&](double gamma) HWY_ATTR { return MomentsOfPower(row, gamma); });
  ExpToMass(found.gamma, 1, n, table);
  return found;
}

// `marginal` holds the masses of the rows; the reciprocal of a mass may overflow.
HWY_INLINE Normalized NormalizeMarginal(double target, size_t rows, size_t cols, double* table, double* marginal) {
  for (size_t x = 0; x < rows; ++x) {
    if (!(marginal[x] > 0)) continue;
    for (size_t y = 0; y < cols; ++y) table[x * cols + y] /= marginal[x];
  }
  const Normalized found = NormalizeWhole(target, rows, marginal);
  for (size_t x = 0; x < rows; ++x) ScaleRow(D64(), marginal[x], cols, table + x * cols);
  return found;
}

// H(Y|X) = sum p(x) H_x falls in gamma because each H_x does; its derivatives are sums with the same weights p(x).
HWY_INLINE Normalized NormalizeConditional(double target, size_t rows, size_t cols, double* table, double* marginal) {
  const D64 d;
  ScaleRow(d, 1 / SumRow(d, marginal, rows), rows, marginal);
  PowerReach reach;
  const auto row = [&](size_t x) { return LogRow{table + x * cols, nullptr, cols}; };
  for (size_t x = 0; x < rows; ++x) {
    if (!(marginal[x] > 0)) continue;
    double* const z = table + x * cols;
    LogsOfRatios(z, cols, RowMax(d, z, cols), z);
    const PowerReach of_row = ReachOfPower(row(x));
    reach.least += marginal[x] * of_row.least;
    reach.most += marginal[x] * of_row.most;
    reach.farthest = HWY_MAX(reach.farthest, of_row.farthest);
    reach.nearest = HWY_MIN(reach.nearest, of_row.nearest);
    reach.at_zero.Add(marginal[x], of_row.at_zero);
    reach.equal &= of_row.equal;
  }
  const Normalized found = FindPower(target, reach, [&](double gamma) HWY_ATTR {
    PowerMoments mean = {0, 0, 0};
    for (size_t x = 0; x < rows; ++x) {
      if (marginal[x] > 0) mean.Add(marginal[x], MomentsOfPower(row(x), gamma));
    }
    return mean;
  });
  for (size_t x = 0; x < rows; ++x) {
    double* const z = table + x * cols;
    if (marginal[x] > 0) {
      ExpToMass(found.gamma, marginal[x], cols, z);
    } else {
      std::fill(z, z + cols, 0.0);
    }
  }
  return found;
}

// table: rows x cols without gaps, non-negative, finite, with some mass; it becomes the result. marginal has room for one
// number for each row.
inline Normalized NormalizeTable(const NormalizeJoint& op, size_t rows, size_t cols, double* table, double* marginal) {
  if (op.joint) return NormalizeWhole(*op.joint, rows * cols, table);
  // Sums of rows may overflow, or be too small to divide by. A factor of the whole table does not matter.
  const double top = RowMax(D64(), table, rows * cols);
  if (top > 0x1p800) ScaleRow(D64(), 0x1p-200, rows * cols, table);
  if (top < 0x1p-800) ScaleRow(D64(), 0x1p200, rows * cols, table);
  for (size_t x = 0; x < rows; ++x) marginal[x] = SumRow(D64(), table + x * cols, cols);
  return op.marginal ? NormalizeMarginal(*op.marginal, rows, cols, table, marginal)
                     : NormalizeConditional(*op.conditional, rows, cols, table, marginal);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ENTROPY_CONTROL_POWER_INL_H_

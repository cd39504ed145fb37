// perturb_max and its gradient from the integrals that define them, by Gauss-Legendre quadrature between all kinks.

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tests/oracle/maps.h"

namespace oracle {
namespace {

// The noises by CDF and density. Below kLow the CDF, and above kHigh 1 - CDF, is less than 1e-20.
struct Gumbel {
  static constexpr long double kLow = -4, kHigh = 47;
  static constexpr std::array<long double, 0> kKinks = {};
  static auto cdf(auto t) { return std::exp(-std::exp(-t)); }
  static auto density(auto t) { return std::exp(-t - std::exp(-t)); }
};
struct Normal {
  static constexpr long double kLow = -9.5, kHigh = 9.5;
  static constexpr std::array<long double, 0> kKinks = {};
  template <class Real>
  static Real cdf(Real t) {
    return std::erfc(-t * std::sqrt(Real(0.5))) / 2;
  }
  template <class Real>
  static Real density(Real t) {
    return std::exp(-t * t / 2) * Real(0.398942280401432677939946059934L);
  }
};
struct Logistic {
  static constexpr long double kLow = -47, kHigh = 47;
  static constexpr std::array<long double, 0> kKinks = {};
  static auto cdf(auto t) { return 1 / (1 + std::exp(-t)); }
  static auto density(auto t) {
    const auto e = std::exp(-std::abs(t));
    return e / ((1 + e) * (1 + e));
  }
};
struct Laplace {
  static constexpr long double kLow = -47, kHigh = 47;
  static constexpr std::array<long double, 1> kKinks = {0};
  static auto cdf(auto t) { return t < 0 ? std::exp(t) / 2 : 1 - std::exp(-t) / 2; }
  static auto density(auto t) { return std::exp(-std::abs(t)) / 2; }
};
struct Exponential {
  static constexpr long double kLow = 0, kHigh = 47;
  static constexpr std::array<long double, 1> kKinks = {0};
  template <class Real>
  static Real cdf(Real t) {
    return t < 0 ? Real(0) : -std::expm1(-t);
  }
  template <class Real>
  static Real density(Real t) {
    return t < 0 ? Real(0) : std::exp(-t);
  }
};
struct Uniform {
  static constexpr long double kLow = 0, kHigh = 1;
  static constexpr std::array<long double, 2> kKinks = {0, 1};
  template <class Real>
  static Real cdf(Real t) {
    return std::clamp(t, Real(0), Real(1));
  }
  template <class Real>
  static Real density(Real t) {
    return t < 0 || t > 1 ? Real(0) : Real(1);
  }
};

// Nodes and weights of n points on [-1, 1], by Newton's method on the Legendre polynomial.
template <class Real>
std::vector<std::pair<Real, Real>> gauss_points(int n) {
  std::vector<std::pair<Real, Real>> points;
  for (int i = 0; i < n; ++i) {
    long double x = std::cos(3.14159265358979323846L * (i + 0.75L) / (n + 0.5L)), slope = 0;
    for (int step = 0; step < 100; ++step) {
      long double before = 1, value = x;
      for (int k = 2; k <= n; ++k) {
        const long double next = ((2 * k - 1) * x * value - (k - 1) * before) / k;
        before = value, value = next;
      }
      slope = n * (x * value - before) / (x * x - 1);
      x -= value / slope;
    }
    points.emplace_back(static_cast<Real>(x), static_cast<Real>(2 / ((1 - x * x) * slope * slope)));
  }
  return points;
}

// p and, in units of 1/scale, the gradient of <g, p>: sums over points u of weight times
//   f_i prod_{j != i} F_j   and   h_j (g_j sum_i h_i - sum_i g_i h_i) prod_k F_k,  h = f/F.
template <class Real, class Noise>
void perturb_max_integrals(Noise noise, double scale, const Row& x, const Row& g, Row& p, Row& dx) {
  const long double max = *std::max_element(x.begin(), x.end());

  // Equal scores have equal integrals. An entry is a score with its integrals and its count, from the largest down.
  struct Entry {
    Real z, count, sum_g, p = 0, per_g = 0, constant = 0, cdf = 0, h = 0;
  };
  std::map<long double, Entry, std::greater<>> groups;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double z = (x[i] - max) / scale;
    if (z < -1e4L) continue;
    Entry& entry = groups.try_emplace(z, Entry{static_cast<Real>(z), 0, 0}).first->second;
    entry.count += 1;
    entry.sum_g += static_cast<Real>(g[i]);
  }
  std::vector<Entry> entries;
  for (const auto& group : groups) entries.push_back(group.second);

  // Only entries up to high below u differ from F = 1, h = 0.
  const auto prepare = [&](Real u, std::size_t& end) {
    Real product = 1;
    for (end = 0; end < entries.size() && u - entries[end].z <= Real(noise.kHigh); ++end) {
      Entry& entry = entries[end];
      entry.cdf = noise.cdf(u - entry.z);
      product *= entry.count == 1 ? entry.cdf : std::pow(entry.cdf, entry.count);
      if (product < (sizeof(Real) == 8 ? Real(1e-16L) : Real(1e-22L))) return Real(0);
    }
    return product;
  };

  const Real top = Real(noise.kHigh) + (Real(noise.kHigh) > 10 ? std::log(static_cast<Real>(x.size())) : 0);
  std::vector<Real> ends = {Real(noise.kLow), top};
  for (const long double kink : noise.kKinks) {
    for (const Entry& entry : entries) ends.push_back(entry.z + static_cast<Real>(kink));
  }
  std::sort(ends.begin(), ends.end(), std::greater<>());

  static const auto kMany = gauss_points<Real>(14), kFew = gauss_points<Real>(4);
  Real upper = top;
  for (std::size_t next = 0; next < ends.size() && upper > Real(noise.kLow);) {
    std::size_t end;
    if (prepare(upper, end) == 0) break;
    while (next < ends.size() && ends[next] > upper - Real(1e-13L)) ++next;
    if (next == ends.size()) break;
    // The width is such that the logarithm of the product changes by at most a few units.
    const auto slope = [&](Real u) {
      if (prepare(u, end) == 0) return Real(HUGE_VAL);
      Real sum = 0;
      for (std::size_t i = 0; i < end; ++i) sum += entries[i].count * noise.density(u - entries[i].z) / entries[i].cdf;
      return sum;
    };
    // Where several kinks are taken as one, below all of them. At the left end the logarithm is infinite.
    const Real steepness = slope(upper - Real(2e-13L));
    Real width = 2;
    while (width > Real(1e-9L)) {
      const Real at_lower = slope(upper - width);
      if (std::isinf(at_lower) ? width * steepness <= Real(0.05L) : width * at_lower <= 4) break;
      width /= 2;
    }
    const Real lower = std::max(ends[next], upper - width);
    const bool few = (upper - lower) * (steepness + 1) < Real(0.05L);
    for (const auto& [node, weight] : few ? kFew : kMany) {
      const Real u = (upper + lower) / 2 + node * (upper - lower) / 2;
      const Real product = prepare(u, end) * weight * (upper - lower) / 2;
      if (product == 0) continue;
      Real all = 0, all_g = 0;
      for (std::size_t i = 0; i < end; ++i) {
        Entry& entry = entries[i];
        entry.h = noise.density(u - entry.z) / entry.cdf;
        all += entry.count * entry.h;
        all_g += entry.sum_g * entry.h;
      }
      for (std::size_t i = 0; i < end; ++i) {
        Entry& entry = entries[i];
        entry.p += product * entry.h;
        entry.per_g += product * entry.h * all;
        entry.constant += product * entry.h * all_g;
      }
    }
    upper = lower;
  }

  std::size_t next = 0;
  for (auto& group : groups) group.second = entries[next++];
  p.assign(x.size(), 0);
  dx.assign(x.size(), 0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto found = groups.find((x[i] - max) / scale);
    if (found == groups.end()) continue;
    p[i] = found->second.p;
    dx[i] = g[i] * found->second.per_g - found->second.constant;
  }
}

}  // namespace

// Long rows are calculated in float64: rounding then adds 1e-13.
void perturb_max(const isentropic::PerturbMax& op, const Row& x, Row g, Row& p, Row& dx) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isinf(x[i])) g[i] = 0;
  }
  const auto with = [&](auto noise) {
    if (x.size() > 100) {
      perturb_max_integrals<double>(noise, op.scale, x, g, p, dx);
    } else {
      perturb_max_integrals<long double>(noise, op.scale, x, g, p, dx);
    }
  };
  switch (op.noise) {
    case isentropic::PerturbMax::Noise::gumbel:
      return with(Gumbel());
    case isentropic::PerturbMax::Noise::normal:
      return with(Normal());
    case isentropic::PerturbMax::Noise::logistic:
      return with(Logistic());
    case isentropic::PerturbMax::Noise::laplace:
      return with(Laplace());
    case isentropic::PerturbMax::Noise::exponential:
      return with(Exponential());
    case isentropic::PerturbMax::Noise::uniform:
      return with(Uniform());
  }
}

}  // namespace oracle

// perturb_max and its gradient from the integrals that define them, by Gauss-Legendre quadrature between all kinks.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "entropic/maps.h"

namespace oracle {

using Row = std::vector<long double>;

// A noise by its CDF and density. Below `low` the CDF, beyond `high` what it lacks of 1, is under 1e-20.
template <class Real>
struct Noise {
  Real (*cdf)(Real);
  Real (*density)(Real);
  std::vector<Real> kinks;
  Real low, high;
};

template <class Real>
Noise<Real> noise_of(entropic::PerturbMax::Noise noise) {
  using Kind = entropic::PerturbMax::Noise;
  switch (noise) {
    case Kind::gumbel:
      return {[](Real t) { return std::exp(-std::exp(-t)); }, [](Real t) { return std::exp(-t - std::exp(-t)); }, {}, -4, 47};
    case Kind::normal:
      return {[](Real t) { return std::erfc(-t * std::sqrt(Real(0.5))) / 2; },
              [](Real t) { return std::exp(-t * t / 2) * Real(0.398942280401432677939946059934L); },
              {},
              -9.5,
              9.5};
    case Kind::logistic:
      return {[](Real t) { return 1 / (1 + std::exp(-t)); },
              [](Real t) { return std::exp(-std::abs(t)) / std::pow(1 + std::exp(-std::abs(t)), Real(2)); },
              {},
              -47,
              47};
    case Kind::laplace:
      return {[](Real t) { return t < 0 ? std::exp(t) / 2 : 1 - std::exp(-t) / 2; },
              [](Real t) { return std::exp(-std::abs(t)) / 2; },
              {0},
              -47,
              47};
    case Kind::exponential:
      return {[](Real t) { return t < 0 ? Real(0) : -std::expm1(-t); },
              [](Real t) { return t < 0 ? Real(0) : std::exp(-t); },
              {0},
              0,
              47};
    default:
      return {[](Real t) { return std::clamp(t, Real(0), Real(1)); },
              [](Real t) { return t < 0 || t > 1 ? Real(0) : Real(1); },
              {0, 1},
              0,
              1};
  }
}

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
template <class Real>
void perturb_max_integrals(const entropic::PerturbMax& op, const Row& x, const Row& g, Row& p, Row& dx) {
  const Noise<Real> noise = noise_of<Real>(op.noise);
  const long double max = *std::max_element(x.begin(), x.end());

  // Equal scores have equal integrals: those of a score, and how many there are, from the largest down.
  struct Entry {
    Real z, count, sum_g, p = 0, per_g = 0, constant = 0, cdf = 0, h = 0;
  };
  std::map<long double, Entry, std::greater<>> groups;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double z = (x[i] - max) / op.scale;
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
    for (end = 0; end < entries.size() && u - entries[end].z <= noise.high; ++end) {
      Entry& entry = entries[end];
      entry.cdf = noise.cdf(u - entry.z);
      product *= entry.count == 1 ? entry.cdf : std::pow(entry.cdf, entry.count);
      if (product < Real(1e-22L)) return Real(0);
    }
    return product;
  };

  const Real top = noise.high + (noise.high > 10 ? std::log(static_cast<Real>(x.size())) : 0);
  std::vector<Real> ends = {noise.low, top};
  for (const Real kink : noise.kinks) {
    for (const Entry& entry : entries) ends.push_back(entry.z + kink);
  }
  std::sort(ends.begin(), ends.end(), std::greater<>());

  static const auto kMany = gauss_points<Real>(14), kFew = gauss_points<Real>(3);
  Real upper = top;
  for (std::size_t next = 0; next < ends.size() && upper > noise.low;) {
    std::size_t end;
    if (prepare(upper, end) == 0) break;
    while (next < ends.size() && ends[next] > upper - Real(1e-13L)) ++next;
    if (next == ends.size()) break;
    // So wide that the logarithm of the product changes by a few at most.
    const auto slope = [&](Real u) {
      if (prepare(u, end) == 0) return Real(HUGE_VAL);
      Real sum = 0;
      for (std::size_t i = 0; i < end; ++i) sum += entries[i].count * noise.density(u - entries[i].z) / entries[i].cdf;
      return sum;
    };
    // Where several kinks are taken as one, below all of them.
    const Real steepness = slope(upper - Real(2e-13L));
    Real width = 2;
    while (width > Real(1e-9L) && width * steepness > 1 && width * slope(upper - width) > 4) width /= 2;
    const Real lower = std::max(ends[next], upper - width);
    const bool few = (upper - lower) * (steepness + 1) < Real(1e-3L);
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
    const auto found = groups.find((x[i] - max) / op.scale);
    if (found == groups.end()) continue;
    p[i] = found->second.p;
    dx[i] = g[i] * found->second.per_g - found->second.constant;
  }
}

// In float64 where the row is long: rounding then adds 1e-13.
inline void perturb_max(const entropic::PerturbMax& op, const Row& x, Row g, Row& p, Row& dx) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isinf(x[i])) g[i] = 0;
  }
  if (x.size() > 300) {
    perturb_max_integrals<double>(op, x, g, p, dx);
  } else {
    perturb_max_integrals<long double>(op, x, g, p, dx);
  }
}

}  // namespace oracle

// The maps from their definitions, in long double: no SIMD, no cleverness. Rows hold finite scores and -inf.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "entropic/maps.h"

namespace oracle {

using Row = std::vector<long double>;

inline Row map(const entropic::Softmax& op, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  Row p;
  long double sum = 0;
  for (const long double score : x) {
    p.push_back(std::exp((score - max) / op.temperature));
    sum += p.back();
  }
  for (long double& mass : p) mass /= sum;
  return p;
}

// Terms that are to be divided by their sum.
inline Row normalized(Row terms) {
  long double sum = 0;
  for (const long double term : terms) sum += term;
  for (long double& term : terms) term /= sum;
  return terms;
}

// sum_{m <= degree} x^m / m!, in steps that add what the rounding of the last one lost.
inline long double taylor(long double x, std::int64_t degree) {
  long double term = 1, sum = 1, lost = 0;
  for (std::int64_t m = 1; m <= degree; ++m) {
    term *= x / static_cast<long double>(m);
    const long double next = sum + term, part = next - sum;
    lost += (sum - (next - part)) + (term - part);
    sum = next;
  }
  return sum + lost;
}

inline Row map(const entropic::TaylorSoftmax& op, const Row& x) {
  Row terms;
  for (const long double score : x) terms.push_back(std::isinf(score) ? 0 : taylor(score, op.order));
  return normalized(terms);
}

inline Row map(const entropic::SigSoftmax&, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  const auto log_sigmoid_rest = [](long double score) { return -std::log1p(std::exp(-std::abs(score))); };
  Row terms;
  for (const long double score : x) {
    // log of exp(x) s(x), less that of the maximum.
    const long double log_term = (score - max) + (std::min(score, 0.0L) - std::min(max, 0.0L)) + log_sigmoid_rest(score);
    terms.push_back(std::exp(log_term));
  }
  return normalized(terms);
}

inline Row map(const entropic::TopKSoftmax& op, const Row& x) {
  std::vector<std::size_t> order(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return x[i] > x[j]; });
  Row kept = x;
  for (std::size_t i = static_cast<std::size_t>(op.k); i < x.size(); ++i) kept[order[i]] = -HUGE_VALL;
  return map(entropic::Softmax{.temperature = op.temperature}, kept);
}

inline Row map(const entropic::MinPSoftmax& op, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  Row kept = x;
  for (long double& score : kept) {
    if (score - max < op.temperature * std::log(static_cast<long double>(op.p))) score = -HUGE_VALL;
  }
  return map(entropic::Softmax{.temperature = op.temperature}, kept);
}

inline Row map(const entropic::Sparsemax& op, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  Row z;
  for (const long double score : x) z.push_back((score - max) / op.temperature);
  Row sorted = z;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  long double tau = 0, sum = 0;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    sum += sorted[k];
    const long double candidate = (sum - 1) / static_cast<long double>(k + 1);
    if (sorted[k] > candidate) tau = candidate;
  }
  for (long double& mass : z) mass = std::max(mass - tau, 0.0L);
  return z;
}

// softmax(gamma x) of a given entropy, in reach or at the nearest end of it.
struct EntropyNormalized {
  Row p;
  long double gamma;  // 0 where p does not change with x
};

inline long double entropy(const Row& p) {
  long double sum = 0;
  for (const long double mass : p) sum -= mass > 0 ? mass * std::log(mass) : 0;
  return sum;
}

inline EntropyNormalized normalize_entropy(const Row& x, long double target) {
  const long double max = *std::max_element(x.begin(), x.end());
  Row z;
  long double ties = 0, finite = 0, least = 0, gap = HUGE_VALL;
  for (const long double score : x) {
    z.push_back(score - max);
    ties += z.back() == 0;
    if (std::isinf(score)) continue;
    finite += 1;
    least = std::min(least, z.back());
    if (z.back() < 0) gap = std::min(gap, -z.back());
  }
  EntropyNormalized result{Row(x.size()), 0};
  if (target <= std::log(ties) || target >= std::log(finite) || ties == finite) {
    const bool all = ties == finite || target >= std::log(finite);
    for (std::size_t i = 0; i < x.size(); ++i) {
      result.p[i] = all ? (std::isinf(x[i]) ? 0 : 1 / finite) : z[i] == 0 ? 1 / ties : 0;
    }
    return result;
  }
  // Newton's iteration for log gamma where it stays in the bracket and gains on halving it.
  long double low = std::log(1e-12L / -least), high = std::log(1e5L / gap), t = (low + high) / 2, last = high - low;
  for (int step = 0; step < 300; ++step) {
    const long double gamma = std::exp(t);
    long double sum = 0, mean = 0, variance = 0;
    for (std::size_t i = 0; i < z.size(); ++i) sum += result.p[i] = std::exp(gamma * z[i]);
    for (std::size_t i = 0; i < z.size(); ++i) {
      result.p[i] /= sum;
      if (result.p[i] > 0) mean += result.p[i] * gamma * z[i];
    }
    for (std::size_t i = 0; i < z.size(); ++i) {
      if (result.p[i] > 0) variance += result.p[i] * (gamma * z[i] - mean) * (gamma * z[i] - mean);
    }
    result.gamma = gamma;
    const long double excess = std::log(sum) - mean - target;
    (excess > 0 ? low : high) = t;
    long double next = t + excess / variance;
    const bool newton = next > low && next < high && std::abs(next - t) < last / 2;
    if (!newton) next = (low + high) / 2;
    last = newton ? std::abs(next - t) : high - low;
    if (last < 1e-18L) break;
    t = next;
  }
  return result;
}

inline EntropyNormalized solve(const entropic::EntropyNormalize& op, const Row& x) {
  return normalize_entropy(x, op.entropy ? *op.entropy : std::log(static_cast<long double>(*op.perplexity)));
}

inline EntropyNormalized solve(const entropic::EntropyClip& op, const Row& x) {
  const Row p = map(entropic::Softmax{}, x);
  const long double h = entropy(p);
  if (op.min_entropy && h < *op.min_entropy) return normalize_entropy(x, *op.min_entropy);
  if (op.max_entropy && h > *op.max_entropy) return normalize_entropy(x, *op.max_entropy);
  return {p, 1};
}

inline Row map(const entropic::EntropyNormalize& op, const Row& x) { return solve(op, x).p; }
inline Row map(const entropic::EntropyClip& op, const Row& x) { return solve(op, x).p; }

// The factor of the scores in an exponential, which gradients are proportional to.
template <class Op>
long double gamma(const Op& op, const Row& x) {
  if constexpr (requires { solve(op, x); }) {
    return std::max(solve(op, x).gamma, 1e-300L);
  } else if constexpr (requires { op.temperature; }) {
    return 1 / op.temperature;
  } else {
    return 1;
  }
}

// J^T g, from the oracle's own p.

// p (g - <g, p>) with every entry multiplied by factor(i).
template <class Factor>
Row softmax_like_vjp(Row p, const Row& g, const Factor& factor) {
  long double dot = 0;
  for (std::size_t i = 0; i < p.size(); ++i) dot += p[i] * g[i];
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = p[i] > 0 ? p[i] * (g[i] - dot) * factor(i) : 0;
  return p;
}

inline Row vjp(const entropic::Softmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t) { return 1 / op.temperature; });
}

inline Row vjp(const entropic::Sparsemax& op, const Row& x, const Row& g) {
  Row p = map(op, x);
  long double sum = 0, support = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) sum += g[i], support += 1;
  }
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = p[i] > 0 ? (g[i] - sum / support) / op.temperature : 0;
  return p;
}

inline Row vjp(const entropic::TaylorSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t i) { return taylor(x[i], op.order - 1) / taylor(x[i], op.order); });
}

inline Row vjp(const entropic::SigSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t i) { return 1 + 1 / (1 + std::exp(x[i])); });
}

inline Row vjp(const entropic::TopKSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t) { return 1 / op.temperature; });
}

inline Row vjp(const entropic::MinPSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t) { return 1 / op.temperature; });
}

// gamma p (g - mean g - (a - mean a) cov(g, a) / var a), a = gamma x.
inline Row entropy_held_vjp(const EntropyNormalized& row, const Row& x, const Row& g) {
  const Row& p = row.p;
  const long double max = *std::max_element(x.begin(), x.end());
  long double mean_a = 0, mean_g = 0, variance = 0, covariance = 0;
  const auto a = [&](std::size_t i) { return row.gamma * (x[i] - max); };
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) mean_a += p[i] * a(i), mean_g += p[i] * g[i];
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) {
      variance += p[i] * (a(i) - mean_a) * (a(i) - mean_a);
      covariance += p[i] * (a(i) - mean_a) * (g[i] - mean_g);
    }
  }
  Row dx(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0 && variance > 0) dx[i] = row.gamma * p[i] * (g[i] - mean_g - (a(i) - mean_a) * covariance / variance);
  }
  return dx;
}

inline Row vjp(const entropic::EntropyNormalize& op, const Row& x, const Row& g) {
  return entropy_held_vjp(solve(op, x), x, g);
}

inline Row vjp(const entropic::EntropyClip& op, const Row& x, const Row& g) {
  const EntropyNormalized row = solve(op, x);
  const bool inside = row.gamma == 1;
  return inside ? vjp(entropic::Softmax{}, x, g) : entropy_held_vjp(row, x, g);
}

inline long double logsumexp(const entropic::LogSumExp& op, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  long double rest = 0;
  bool skipped = false;
  for (const long double score : x) {
    if (score == max && !skipped) {
      skipped = true;
    } else {
      rest += std::exp((score - max) / op.temperature);
    }
  }
  return max + op.temperature * std::log1p(rest);
}

inline Row log_softmax(const entropic::LogSoftmax& op, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  Row shifted;
  for (const long double score : x) shifted.push_back(score - max);
  const long double log_sum = logsumexp({.temperature = op.temperature}, shifted) / op.temperature;
  for (long double& y : shifted) y = y / op.temperature - log_sum;
  return shifted;
}

}  // namespace oracle

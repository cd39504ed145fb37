// The maps from their definitions, in long double: no SIMD, no cleverness. Rows hold finite scores and -inf.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "entropic/maps.h"
#include "tests/oracle/perturb_max.h"

namespace oracle {

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

// In long rows gumbel noise is taken at its closed form, softmax; in short ones by its definition, like the others.
inline bool is_softmax(const entropic::PerturbMax& op, const Row& x) {
  return op.noise == entropic::PerturbMax::Noise::gumbel && x.size() > 300;
}

inline Row map(const entropic::PerturbMax& op, const Row& x) {
  if (is_softmax(op, x)) return map(entropic::Softmax{.temperature = op.scale}, x);
  Row p, dx;
  perturb_max(op, x, Row(x.size(), 0), p, dx);
  return p;
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

inline Row vjp(const entropic::PerturbMax& op, const Row& x, const Row& g) {
  if (is_softmax(op, x)) return vjp(entropic::Softmax{.temperature = op.scale}, x, g);
  Row p, dx;
  perturb_max(op, x, g, p, dx);
  for (long double& slope : dx) slope /= op.scale;
  return dx;
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

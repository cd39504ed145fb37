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
inline Row vjp(const entropic::Softmax& op, const Row& x, const Row& g) {
  Row p = map(op, x);
  long double dot = 0;
  for (std::size_t i = 0; i < p.size(); ++i) dot += p[i] * g[i];
  for (std::size_t i = 0; i < p.size(); ++i) p[i] *= (g[i] - dot) / op.temperature;
  return p;
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

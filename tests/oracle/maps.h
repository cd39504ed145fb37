// The maps from their definitions, in long double: without SIMD or optimisations. Rows hold finite scores and -inf.
#pragma once

#include <cstddef>
#include <vector>

#include "isentropic/maps.h"

namespace oracle {

using Row = std::vector<long double>;

Row map(const isentropic::Map& op, const Row& x);

// J^T g, from the oracle's own p or from a given one: beyond alpha = 2 the rounding of p matters.
Row vjp(const isentropic::Map& op, const Row& x, const Row& g);
Row vjp(const isentropic::Map& op, const Row& x, const Row& p, const Row& g);

// p of perturb_max and, in units of 1/scale, its gradient.
void perturb_max(const isentropic::PerturbMax& op, const Row& x, Row g, Row& p, Row& dx);

// The factor of the scores in an exponential, which gradients are proportional to.
long double gamma(const isentropic::Map& op, const Row& x);

// All results that agree with the definition. `ambiguity` is the allowed error of a comparison of masses.
std::vector<Row> conforming(const isentropic::Map& op, const Row& x, long double ambiguity);

// The change of each entry if every score has an error of 8 eps (1 + its distance from the maximum): the allowed error of a map
// whose definition is too steep for its own stated error.
Row spread(const isentropic::Map& op, const Row& x, long double eps);

long double entropy(const Row& p);

// softmax(gamma x) with a given entropy, or with the nearest one in reach.
struct EntropyNormalized {
  Row p;
  long double gamma;  // 0 if p does not change with x
};
EntropyNormalized normalize_entropy(const Row& x, long double target);
EntropyNormalized solve(const isentropic::EntropyNormalize& op, const Row& x);

// Indices by falling score, of equal ones the lower first.
std::vector<std::size_t> falling(const Row& x);

long double logsumexp(const isentropic::LogSumExp& op, const Row& x);
Row log_softmax(const isentropic::LogSoftmax& op, const Row& x);

// p of soft_top_k, and p (1 - p).
struct SoftTopK {
  Row p, slopes;
};
SoftTopK soft_top_k(const isentropic::SoftTopK& op, const Row& x);

}  // namespace oracle

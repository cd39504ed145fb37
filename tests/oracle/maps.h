// The maps from their definitions, in long double: no SIMD, no cleverness. Rows hold finite scores and -inf.
#pragma once

#include <cstddef>
#include <vector>

#include "entropic/maps.h"

namespace oracle {

using Row = std::vector<long double>;

Row map(const entropic::Map& op, const Row& x);

// J^T g, from the oracle's own p, or from one that is given: beyond alpha = 2 the rounding of p shows.
Row vjp(const entropic::Map& op, const Row& x, const Row& g);
Row vjp(const entropic::Map& op, const Row& x, const Row& p, const Row& g);

// p of perturb_max and, in units of 1/scale, its gradient.
void perturb_max(const entropic::PerturbMax& op, const Row& x, Row g, Row& p, Row& dx);

// The factor of the scores in an exponential, which gradients are proportional to.
long double gamma(const entropic::Map& op, const Row& x);

// Every result that agrees with the definition. `ambiguity` is how far a comparison of masses may be off.
std::vector<Row> conforming(const entropic::Map& op, const Row& x, long double ambiguity);

// How far each entry moves where every score is off by 8 eps (1 + its distance from the maximum): what a map may be off by
// whose definition is too steep for a stated error of its own.
Row spread(const entropic::Map& op, const Row& x, long double eps);

long double entropy(const Row& p);

// softmax(gamma x) of a given entropy, in reach or at the nearest end of it.
struct EntropyNormalized {
  Row p;
  long double gamma;  // 0 where p does not change with x
};
EntropyNormalized normalize_entropy(const Row& x, long double target);
EntropyNormalized solve(const entropic::EntropyNormalize& op, const Row& x);

// Indices by falling score, of equal ones the lower first.
std::vector<std::size_t> falling(const Row& x);

long double logsumexp(const entropic::LogSumExp& op, const Row& x);
Row log_softmax(const entropic::LogSoftmax& op, const Row& x);

}  // namespace oracle

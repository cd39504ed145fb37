// Each map as the overloads `map` and `vjp` in namespace definition. The overloads see each other but not oracle::map of any
// map, so a missing one does not compile.

#include "tests/oracle/maps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <variant>

namespace oracle {

std::vector<std::size_t> falling(const Row& x) {
  std::vector<std::size_t> order(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return x[i] > x[j]; });
  return order;
}

long double entropy(const Row& p) {
  long double sum = 0;
  for (const long double mass : p) sum -= mass > 0 ? mass * std::log(mass) : 0;
  return sum;
}

EntropyNormalized normalize_entropy(const Row& x, long double target) {
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
  // Newton's iteration for log gamma, if it stays in the bracket and is faster than halving it.
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

namespace {

// The scores of a row up to a common shift: log(q / max q) if it holds a distribution q. They keep q's digits even if all are
// nearly equal.
Row scores_of(isentropic::Input input, const Row& x) {
  if (input != isentropic::Input::probs) return x;
  const long double max = *std::max_element(x.begin(), x.end());
  Row z;
  for (const long double q : x) z.push_back(q > max / 2 ? std::log1p((q - max) / max) : std::log(q) - std::log(max));
  return z;
}

}  // namespace

EntropyNormalized solve(const isentropic::EntropyNormalize& op, const Row& x) {
  return normalize_entropy(scores_of(op.input, x),
                           op.entropy ? *op.entropy : std::log(static_cast<long double>(*op.perplexity)));
}

long double logsumexp(const isentropic::LogSumExp& op, const Row& x) {
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

Row log_softmax(const isentropic::LogSoftmax& op, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  Row shifted;
  for (const long double score : x) shifted.push_back(score - max);
  const long double log_sum = logsumexp({.temperature = op.temperature}, shifted) / op.temperature;
  for (long double& y : shifted) y = y / op.temperature - log_sum;
  return shifted;
}

// By bisection of tau, relative to the score of rank ceil(k), of sum p - k without cancellation: of a score above tau its rest
// counts.
SoftTopK soft_top_k(const isentropic::SoftTopK& op, const Row& x) {
  Row finite;
  std::copy_if(x.begin(), x.end(), std::back_inserter(finite), [](long double score) { return std::isfinite(score); });
  std::sort(finite.begin(), finite.end(), std::greater<>());
  const std::size_t count = finite.size();
  SoftTopK found = {Row(x.size()), Row(x.size())};
  if (op.k >= static_cast<double>(count)) {
    for (std::size_t i = 0; i < x.size(); ++i) found.p[i] = std::isfinite(x[i]) ? 1 : 0;
    return found;
  }
  Row z;
  const long double pivot = finite[static_cast<std::size_t>(std::ceil(op.k)) - 1];
  for (const long double score : x) z.push_back((score - pivot) / op.temperature);
  const auto rest = [](long double v) { return 1 / (1 + std::exp(std::abs(v))); };
  // Further from the score of rank ceil(k), or below the next one if k is a whole number, one side of the equation is too
  // small.
  const long double far = 50 + std::log(static_cast<long double>(count) / std::min(op.k, 1.0));
  const bool whole_k = std::ceil(op.k) == op.k;
  long double low = (whole_k ? (finite[static_cast<std::size_t>(op.k)] - pivot) / op.temperature : 0) - far, high = far;
  long double tau = std::numeric_limits<long double>::quiet_NaN();
  for (int step = 0; step < 400; ++step) {
    if (tau == low / 2 + high / 2) break;
    tau = low / 2 + high / 2;
    long double whole = -op.k, rests = 0;
    for (const long double one : z) {
      if (!std::isfinite(one)) continue;
      if (one > tau) whole += 1;
      rests += one > tau ? -rest(one - tau) : rest(one - tau);
    }
    if (whole + rests == 0) break;
    (whole + rests > 0 ? low : high) = tau;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) continue;
    const long double v = z[i] - tau, less = rest(v);
    found.p[i] = v > 0 ? 1 - less : less;
    found.slopes[i] = less * (1 - less);
  }
  return found;
}

namespace definition {
namespace {

Row map(const isentropic::Softmax& op, const Row& x) {
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

// Divides terms by their sum.
Row normalized(Row terms) {
  long double sum = 0;
  for (const long double term : terms) sum += term;
  for (long double& term : terms) term /= sum;
  return terms;
}

// sum_{m <= degree} x^m / m!, with compensation of the rounding errors.
long double taylor(long double x, std::int64_t degree) {
  long double term = 1, sum = 1, lost = 0;
  for (std::int64_t m = 1; m <= degree; ++m) {
    term *= x / static_cast<long double>(m);
    const long double next = sum + term, part = next - sum;
    lost += (sum - (next - part)) + (term - part);
    sum = next;
  }
  return sum + lost;
}

Row map(const isentropic::TaylorSoftmax& op, const Row& x) {
  Row terms;
  for (const long double score : x) terms.push_back(std::isinf(score) ? 0 : taylor(score, op.order));
  return normalized(terms);
}

Row map(const isentropic::SigSoftmax&, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  const auto log_sigmoid_rest = [](long double score) { return -std::log1p(std::exp(-std::abs(score))); };
  Row terms;
  for (const long double score : x) {
    // log of exp(x) s(x), minus that of the maximum.
    const long double log_term = (score - max) + (std::min(score, 0.0L) - std::min(max, 0.0L)) + log_sigmoid_rest(score);
    terms.push_back(std::exp(log_term));
  }
  return normalized(terms);
}

Row map(const isentropic::TopKSoftmax& op, const Row& x) {
  const std::vector<std::size_t> order = falling(x);
  Row kept = x;
  for (std::size_t i = static_cast<std::size_t>(op.k); i < x.size(); ++i) kept[order[i]] = -HUGE_VALL;
  return map(isentropic::Softmax{.temperature = op.temperature}, kept);
}

// The number of largest scores that have the part p of the mass.
std::int64_t count_to_reach(long double p, double temperature, const Row& x) {
  const Row mass = map(isentropic::Softmax{.temperature = temperature}, x);
  std::int64_t count = 0;
  long double sum = 0;
  for (const std::size_t i : falling(x)) {
    if (sum >= p) break;
    sum += mass[i], ++count;
  }
  return std::max<std::int64_t>(count, 1);
}

Row map(const isentropic::TopPSoftmax& op, const Row& x) {
  if (op.p == 1) return map(isentropic::Softmax{.temperature = op.temperature}, x);
  return map(isentropic::TopKSoftmax{.k = count_to_reach(op.p, op.temperature, x), .temperature = op.temperature}, x);
}

Row map(const isentropic::MinPSoftmax& op, const Row& x) {
  const long double max = *std::max_element(x.begin(), x.end());
  Row kept = x;
  for (long double& score : kept) {
    if (score - max < op.temperature * std::log(static_cast<long double>(op.p))) score = -HUGE_VALL;
  }
  return map(isentropic::Softmax{.temperature = op.temperature}, kept);
}

// In long rows Gumbel noise uses its closed form, softmax; in short ones its definition, like the other noises.
bool is_softmax(const isentropic::PerturbMax& op, const Row& x) {
  return op.noise == isentropic::PerturbMax::Noise::gumbel && x.size() > 300;
}

Row map(const isentropic::PerturbMax& op, const Row& x) {
  if (is_softmax(op, x)) return map(isentropic::Softmax{.temperature = op.scale}, x);
  Row p, dx;
  perturb_max(op, x, Row(x.size(), 0), p, dx);
  return p;
}

Row map(const isentropic::Sparsemax& op, const Row& x) {
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

// For b > 1: p = (u - edge + t^b)^(1/b), u = b x/T, where t is the mass of the lowest entry with mass. A c instead of t would
// not work: beside u it could not represent the t^b of, say, t = 0.01.
Row map_beyond_2(const isentropic::Entmax& op, const Row& x) {
  const long double b = static_cast<long double>(op.alpha) - 1, max = *std::max_element(x.begin(), x.end());
  Row u, sorted;
  for (const long double score : x) u.push_back(b * ((score - max) / op.temperature));
  sorted = u;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto sum_above = [&](std::size_t k, long double t) {  // the first k + 1 with the last of them at t
    long double sum = 0;
    for (std::size_t j = 0; j <= k; ++j) sum += std::pow(sorted[j] - sorted[k] + std::pow(t, b), 1 / b);
    return sum;
  };
  // The sum at t = 0 rises with k.
  std::size_t low_k = 0, high_k = sorted.size();
  while (high_k - low_k > 1) {
    const std::size_t middle = (low_k + high_k) / 2;
    (sum_above(middle, 0) <= 1 ? low_k : high_k) = middle;
  }
  long double low = 0, high = 1;
  for (int step = 0; step < 70; ++step) {
    const long double t = (low + high) / 2;
    (sum_above(low_k, t) <= 1 ? low : high) = t;
  }
  for (long double& mass : u) {
    mass = mass < sorted[low_k] ? 0 : mass == sorted[low_k] ? low : std::pow(mass - sorted[low_k] + std::pow(low, b), 1 / b);
  }
  return u;
}

// p = (c + b z)^(1/b) with c = p_max^b, by bisection of p_max's logarithm: one formula for every alpha > 0, (1 + b z/c)^(1/b)
// p_max, whose limit at b = 0 is softmax.
Row map(const isentropic::Entmax& op, const Row& x) {
  if (op.alpha > 2) return map_beyond_2(op, x);
  const long double max = *std::max_element(x.begin(), x.end());
  const long double b = static_cast<long double>(op.alpha) - 1;
  const auto probabilities = [&](long double s) {  // s = -log p_max
    Row p;
    for (const long double score : x) {
      const long double z = (score - max) / op.temperature;
      const long double v = z == 0 ? 0 : b * z * std::exp(b * s);
      const long double log_ratio = b == 0 ? z : v <= -1 ? -HUGE_VALL : std::log1p(v) / b;
      p.push_back(std::isinf(score) ? 0 : std::exp(log_ratio - s));
    }
    return p;
  };
  const auto log_sum = [&](long double s) {
    long double total = 0;
    for (const long double mass : probabilities(s)) total += mass;
    return std::log(total);
  };
  // False position between s with a sum of at least and at most 1; a bisection if an end has not moved for three steps.
  long double low = 0, high = std::log(static_cast<long double>(x.size())) + 1;
  long double at_low = log_sum(low), at_high = log_sum(high);
  bool was_low = false;
  for (int stayed = 0; at_low > 0 && high - low > 0x1p-63L * high;) {
    long double middle = at_low > at_high ? low + (high - low) * (at_low / (at_low - at_high)) : low;
    if (stayed >= 3 || !(middle > low && middle < high)) middle = (low + high) / 2, stayed = 0;
    if (middle == low || middle == high) break;
    const long double value = log_sum(middle);
    const bool is_low = value > 0;
    stayed = is_low == was_low ? stayed + 1 : 0;
    was_low = is_low;
    (is_low ? low : high) = middle;
    (is_low ? at_low : at_high) = value;
    if (value == 0) low = high = middle;
  }
  return normalized(probabilities(high));
}

using oracle::solve;  // of entropy_normalize
EntropyNormalized solve(const isentropic::EntropyClip& op, const Row& given) {
  const Row x = scores_of(op.input, given), p = map(isentropic::Softmax{}, x);
  const long double h = entropy(p);
  if (op.min_entropy && h < *op.min_entropy) return normalize_entropy(x, *op.min_entropy);
  if (op.max_entropy && h > *op.max_entropy) return normalize_entropy(x, *op.max_entropy);
  return {p, 1};
}

Row map(const isentropic::EntropyNormalize& op, const Row& x) { return solve(op, x).p; }
Row map(const isentropic::EntropyClip& op, const Row& x) { return solve(op, x).p; }

std::vector<Row> conforming(const isentropic::TopPSoftmax& op, const Row& x, long double ambiguity) {
  std::vector<Row> rows = {map(op, x)};
  if (op.p == 1) return rows;
  const std::int64_t least = count_to_reach(op.p - ambiguity, op.temperature, x);
  const std::int64_t most = count_to_reach(op.p + ambiguity, op.temperature, x);
  for (std::int64_t k = least; k <= most && least < most; ++k) {
    rows.push_back(map(isentropic::TopKSoftmax{.k = k, .temperature = op.temperature}, x));
  }
  return rows;
}

// Beyond alpha = 2 p rises with infinite slope at the edge of the support. With tau of the scores all moved down and all moved
// up, (b (x + error)/T - tau)^(1/b) bounds p from either side.
Row spread(const isentropic::Entmax& op, const Row& x, long double eps) {
  if (op.alpha <= 2) return Row(x.size(), 0);
  const long double b = static_cast<long double>(op.alpha) - 1, max = *std::max_element(x.begin(), x.end());
  const Row p = map(op, x);
  Row result(x.size(), 0);
  for (const int sign : {-1, 1}) {
    Row moved = x, other = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double error = 8 * eps * (op.temperature + max - x[i]);
      moved[i] += static_cast<long double>(sign) * error;
      other[i] -= static_cast<long double>(sign) * error;
    }
    const Row q = map(op, other);
    // tau from any entry that has mass, best from the least of them.
    std::size_t edge = std::max_element(q.begin(), q.end()) - q.begin();
    for (std::size_t i = 0; i < q.size(); ++i) edge = q[i] > 0 && q[i] < q[edge] ? i : edge;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double base = b * ((moved[i] - other[edge]) / op.temperature) + std::pow(q[edge], b);
      result[i] = std::max(result[i], std::abs((base > 0 ? std::pow(base, 1 / b) : 0) - p[i]));
    }
  }
  return result;
}

// p (g - <g, p>), with every entry multiplied by factor(i).
template <class Factor>
Row softmax_like_vjp(Row p, const Row& g, const Factor& factor) {
  long double dot = 0;
  for (std::size_t i = 0; i < p.size(); ++i) dot += p[i] * g[i];
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = p[i] > 0 ? p[i] * (g[i] - dot) * factor(i) : 0;
  return p;
}

Row vjp(const isentropic::Softmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t) { return 1 / op.temperature; });
}

Row vjp(const isentropic::Sparsemax& op, const Row& x, const Row& g) {
  Row p = map(op, x);
  long double sum = 0, support = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) sum += g[i], support += 1;
  }
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = p[i] > 0 ? (g[i] - sum / support) / op.temperature : 0;
  return p;
}

Row vjp(const isentropic::Entmax& op, const Row& /*x*/, const Row& p, const Row& g) {
  Row s;
  std::size_t pivot = 0;  // where s is largest: there g is taken as 0, so that nothing is lost beside it
  for (const long double mass : p) {
    s.push_back(mass > 0 ? std::pow(mass, 2 - static_cast<long double>(op.alpha)) : 0);
    if (s.back() > s[pivot]) pivot = s.size() - 1;
  }
  long double dot = 0, total = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) dot += s[i] * (g[i] - g[pivot]), total += s[i];
  }
  for (std::size_t i = 0; i < p.size(); ++i) s[i] = p[i] > 0 ? s[i] * ((g[i] - g[pivot]) - dot / total) / op.temperature : 0;
  return s;
}

Row vjp(const isentropic::TaylorSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t i) { return taylor(x[i], op.order - 1) / taylor(x[i], op.order); });
}

Row vjp(const isentropic::SigSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t i) { return 1 + 1 / (1 + std::exp(x[i])); });
}

Row vjp(const isentropic::TopKSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t) { return 1 / op.temperature; });
}

Row vjp(const isentropic::TopPSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t) { return 1 / op.temperature; });
}

Row vjp(const isentropic::MinPSoftmax& op, const Row& x, const Row& g) {
  return softmax_like_vjp(map(op, x), g, [&](std::size_t) { return 1 / op.temperature; });
}

// gamma p (g - mean g - (a - mean a) cov(g, a) / var a), a = gamma x.
Row entropy_held_vjp(const EntropyNormalized& row, const Row& x, const Row& g) {
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

// d log q = dq / q.
Row gradient_in_input(isentropic::Input input, const Row& x, Row dx) {
  for (std::size_t i = 0; i < x.size() && input == isentropic::Input::probs; ++i) dx[i] = x[i] > 0 ? dx[i] / x[i] : 0;
  return dx;
}

Row vjp(const isentropic::EntropyNormalize& op, const Row& x, const Row& g) {
  return gradient_in_input(op.input, x, entropy_held_vjp(solve(op, x), scores_of(op.input, x), g));
}

Row vjp(const isentropic::EntropyClip& op, const Row& x, const Row& g) {
  const EntropyNormalized row = solve(op, x);
  const Row scores = scores_of(op.input, x);
  const bool inside = row.gamma == 1;
  return gradient_in_input(op.input, x, inside ? vjp(isentropic::Softmax{}, scores, g) : entropy_held_vjp(row, scores, g));
}

Row vjp(const isentropic::PerturbMax& op, const Row& x, const Row& g) {
  if (is_softmax(op, x)) return vjp(isentropic::Softmax{.temperature = op.scale}, x, g);
  Row p, dx;
  perturb_max(op, x, g, p, dx);
  for (long double& slope : dx) slope /= op.scale;
  return dx;
}

Row vjp(const isentropic::Entmax& op, const Row& x, const Row& g) { return vjp(op, x, map(op, x), g); }

template <class Op>
long double gamma(const Op& op, const Row& x) {
  if constexpr (requires { solve(op, x); }) {
    return std::max(solve(op, x).gamma, 1e-300L);
  } else if constexpr (requires { op.temperature; }) {
    return 1 / op.temperature;
  } else if constexpr (requires { op.scale; }) {
    return 1 / op.scale;
  } else {
    return 1;
  }
}

template <class Op>
std::vector<Row> conforming(const Op& op, const Row& x, long double /*ambiguity*/) {
  return {map(op, x)};
}

template <class Op>
Row spread(const Op&, const Row& x, long double /*eps*/) {
  return Row(x.size(), 0);
}

}  // namespace
}  // namespace definition

Row map(const isentropic::Map& op, const Row& x) {
  return std::visit([&](const auto& one) { return definition::map(one, x); }, op);
}

Row vjp(const isentropic::Map& op, const Row& x, const Row& g) {
  return std::visit([&](const auto& one) { return definition::vjp(one, x, g); }, op);
}

Row vjp(const isentropic::Map& op, const Row& x, const Row& p, const Row& g) {
  const auto* const entmax = std::get_if<isentropic::Entmax>(&op);
  return entmax ? definition::vjp(*entmax, x, p, g) : vjp(op, x, g);
}

long double gamma(const isentropic::Map& op, const Row& x) {
  return std::visit([&](const auto& one) { return definition::gamma(one, x); }, op);
}

std::vector<Row> conforming(const isentropic::Map& op, const Row& x, long double ambiguity) {
  return std::visit([&](const auto& one) { return definition::conforming(one, x, ambiguity); }, op);
}

Row spread(const isentropic::Map& op, const Row& x, long double eps) {
  return std::visit([&](const auto& one) { return definition::spread(one, x, eps); }, op);
}

}  // namespace oracle

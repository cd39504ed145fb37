#include "tests/oracle/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

namespace oracle {
namespace {

// The distribution after a step on softmax(x), as scores: -inf for no mass.
Row after(const isentropic::step::Temperature& op, Row x) {
  for (long double& score : x) score /= op.temperature;
  return x;
}

Row keep_first(const Row& x, const std::vector<std::size_t>& order, std::size_t count) {
  Row kept(x.size(), -HUGE_VALL);
  for (std::size_t i = 0; i < std::min(count, order.size()); ++i) kept[order[i]] = x[order[i]];
  return kept;
}

Row after(const isentropic::step::TopK& op, const Row& x) { return keep_first(x, falling(x), static_cast<std::size_t>(op.k)); }

// The number of entries of `order`, from the first one, that have the part p of the mass.
std::size_t count_to_mass(const Row& x, const std::vector<std::size_t>& order, long double p) {
  const Row mass = map(isentropic::Softmax{}, x);
  long double sum = 0;
  std::size_t count = 0;
  while (count < order.size() && sum < p) sum += mass[order[count++]];
  return count;
}

Row after(const isentropic::step::TopP& op, const Row& x) {
  if (op.p == 1) return x;
  return keep_first(x, falling(x), count_to_mass(x, falling(x), op.p));
}

Row after(const isentropic::step::MinP& op, Row x) {
  const long double max = *std::max_element(x.begin(), x.end());
  for (long double& score : x) score = std::exp(score - max) >= op.p ? score : -HUGE_VALL;
  return x;
}

Row after(const isentropic::step::TypicalP& op, const Row& x) {
  if (op.p == 1) return x;
  const Row p = map(isentropic::Softmax{}, x);
  const long double h = entropy(p);
  std::vector<std::size_t> order(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return std::abs(-std::log(p[i]) - h) < std::abs(-std::log(p[j]) - h); });
  return keep_first(x, order, count_to_mass(x, order, op.p));
}

// gamma x; where no gamma gives the entropy, the limit: 0 for all, or the largest scores alone.
Row with_entropy(const Row& x, long double target) {
  const EntropyNormalized found = normalize_entropy(x, target);
  const long double max = *std::max_element(x.begin(), x.end());
  long double left = 0;
  for (const long double p : found.p) left += p > 0;
  const bool largest_alone = left == static_cast<long double>(std::count(x.begin(), x.end(), max));
  Row scores;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double limit = found.p[i] == 0 ? -HUGE_VALL : largest_alone ? x[i] : 0;
    scores.push_back(x[i] == -HUGE_VALL ? x[i] : found.gamma > 0 ? found.gamma * x[i] : limit);
  }
  return scores;
}

Row after(const isentropic::step::Entropy& op, const Row& x) { return with_entropy(x, op.entropy); }

Row after(const isentropic::step::EntropyClip& op, const Row& x) {
  const long double h = entropy(map(isentropic::Softmax{}, x));
  if (h < op.min_entropy) return with_entropy(x, op.min_entropy);
  return h > op.max_entropy ? with_entropy(x, op.max_entropy) : x;
}

// Keeps the scores whose probability reaches a bound, or the largest.
Row keep_above(Row x, long double bound) {
  const Row p = map(isentropic::Softmax{}, x);
  bound = std::min(bound, *std::max_element(p.begin(), p.end()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = p[i] >= bound ? x[i] : -HUGE_VALL;
  return x;
}

Row after(const isentropic::step::Epsilon& op, const Row& x) { return keep_above(x, op.epsilon); }

Row after(const isentropic::step::Eta& op, const Row& x) {
  const long double e = op.epsilon;
  return keep_above(x, std::min(e, std::sqrt(e) * std::exp(-entropy(map(isentropic::Softmax{}, x)))));
}

Row after(const isentropic::step::PLess& /*op*/, const Row& x) {
  long double equal = 0;
  for (const long double p : map(isentropic::Softmax{}, x)) equal += p * p;
  return keep_above(x, equal * (1 - 1e-15L));
}

Row after(const isentropic::step::TopNSigma& op, Row x) {
  long double count = 0, mean = 0, square = 0;
  for (const long double score : x) {
    if (score > -HUGE_VALL) count += 1, mean += score;
  }
  mean /= count;
  for (const long double score : x) {
    if (score > -HUGE_VALL) square += (score - mean) * (score - mean);
  }
  const long double least = *std::max_element(x.begin(), x.end()) - op.n * std::sqrt(square / count);
  for (long double& score : x) score = score >= least ? score : -HUGE_VALL;
  return x;
}

Row after(const isentropic::step::TopH& op, const Row& x) {
  const Row p = map(isentropic::Softmax{}, x);
  const std::vector<std::size_t> order = falling(x);
  const long double target = op.share * entropy(p);
  std::size_t kept = 0;
  long double mass = 0, moment = 0;
  while (kept < order.size()) {
    const long double next = p[order[kept]];
    mass += next, moment += next > 0 ? next * std::log(next) : 0;
    if (kept > 0 && std::log(mass) - moment / mass > target) break;
    ++kept;
  }
  return keep_first(x, order, kept);
}

Row after(const isentropic::step::Xtc& op, Row x) {
  if (op.probability < 1) return x;  // the draw decides; the tests give 0 or 1
  const Row p = map(isentropic::Softmax{}, x);
  const std::vector<std::size_t> order = falling(x);
  std::size_t top = 0;
  while (top < order.size() && p[order[top]] >= op.threshold) ++top;
  for (std::size_t i = 0; i + 1 < top; ++i) x[order[i]] = -HUGE_VALL;
  return x;
}

Row after(const isentropic::step::Mirostat& op, const Row& x) { return keep_above(x, std::exp(-2.0L * op.surprise)); }

// Of steps that read a text.
std::vector<std::int64_t> last_of(const std::vector<std::int64_t>& text, std::int64_t last) {
  const std::size_t count = last < 0 ? text.size() : std::min(text.size(), static_cast<std::size_t>(last));
  return {text.end() - static_cast<std::ptrdiff_t>(count), text.end()};
}

Row after(const isentropic::step::Penalties& op, Row x, const std::vector<std::int64_t>& text) {
  const std::vector<std::int64_t> last = last_of(text, op.last);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto count = std::count(last.begin(), last.end(), static_cast<std::int64_t>(i));
    if (count == 0 || x[i] == -HUGE_VALL) continue;
    x[i] =
        (x[i] > 0 ? x[i] / op.repetition : x[i] * op.repetition) - op.presence - static_cast<long double>(count) * op.frequency;
  }
  return x;
}

Row after(const isentropic::step::Dry& op, Row x, const std::vector<std::int64_t>& text) {
  const std::vector<std::int64_t> last = last_of(text, op.last);
  const auto is_breaker = [&](std::int64_t token) {
    return std::find(op.breakers.begin(), op.breakers.end(), token) != op.breakers.end();
  };
  std::vector<std::int64_t> longest(x.size());
  for (std::size_t at = 0; at + 1 < last.size(); ++at) {
    std::int64_t length = 0;
    for (std::size_t k = 0; k <= at && last[at - k] == last[last.size() - 1 - k] && !is_breaker(last[at - k]); ++k) ++length;
    const std::int64_t token = last[at + 1];
    if (token < 0 || token >= static_cast<std::int64_t>(x.size()) || is_breaker(token)) continue;
    longest[static_cast<std::size_t>(token)] = std::max(longest[static_cast<std::size_t>(token)], length);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (longest[i] == 0 || longest[i] < op.allowed_length) continue;
    x[i] -= std::min(op.multiplier * std::pow(op.base, static_cast<double>(longest[i] - op.allowed_length)), 1e30);
  }
  return x;
}

}  // namespace

Row chain(const std::vector<isentropic::Step>& steps, Row x, const std::vector<std::int64_t>& text) {
  for (const isentropic::Step& step : steps) {
    x = std::visit(
        [&](const auto& op) {
          if constexpr (requires { after(op, x, text); }) {
            return after(op, x, text);
          } else {
            return after(op, x);
          }
        },
        step);
  }
  return map(isentropic::Softmax{}, x);
}

long double exponential(isentropic::NoiseKey key, std::uint64_t index) {
  const auto bits = [&](std::uint64_t counter) {
    return isentropic::Philox::Bits(
        {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), key.upper0, key.upper1}, key.key);
  };
  const auto exponential = [](std::uint32_t low, std::uint32_t high) {
    const long double w = (static_cast<long double>(high) * 0x1p32L + static_cast<long double>(low) + 0.5L) * 0x1p-64L;
    return -std::log1p(-std::min(static_cast<double>(w), 1 - 0x1p-53));
  };
  const auto block = bits(index / 64 | std::uint64_t{1} << 63), pair = bits(index / 2);
  const double smallest = exponential(block[0], block[1]) / 64;
  if (block[3] >> 26 == index % 64) return smallest;
  return smallest + exponential(pair[index % 2 * 2], pair[index % 2 * 2 + 1]);
}

}  // namespace oracle

#include "tests/oracle/sampling.h"

#include <algorithm>
#include <cmath>
#include <variant>

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

Row with_entropy(const Row& x, long double target) {
  const long double max = *std::max_element(x.begin(), x.end());
  const EntropyNormalized found = normalize_entropy(x, target);
  Row scores;
  for (std::size_t i = 0; i < x.size(); ++i) {
    scores.push_back(found.gamma > 0 ? found.gamma * (x[i] - max) : std::log(found.p[i]));
  }
  return scores;
}

Row after(const isentropic::step::Entropy& op, const Row& x) { return with_entropy(x, op.entropy); }

Row after(const isentropic::step::EntropyClip& op, const Row& x) {
  const long double h = entropy(map(isentropic::Softmax{}, x));
  if (h < op.min_entropy) return with_entropy(x, op.min_entropy);
  return h > op.max_entropy ? with_entropy(x, op.max_entropy) : x;
}

}  // namespace

Row chain(const std::vector<isentropic::Step>& steps, Row x) {
  for (const isentropic::Step& step : steps) x = std::visit([&](const auto& op) { return after(op, x); }, step);
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

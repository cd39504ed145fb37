// Random rows of scores and random operations, of every allowed kind and value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "isentropic/describe.h"
#include "isentropic/half.h"
#include "isentropic/input.h"

namespace support {

struct Random {
  std::mt19937_64 bits;

  double uniform(double low = 0, double high = 1) { return std::uniform_real_distribution<double>(low, high)(bits); }
  double normal() { return std::normal_distribution<double>()(bits); }
  double power_of_10(double low, double high) { return std::pow(10, uniform(low, high)); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::size_t>(high - low) + 1));
  }
  bool chance(double p) { return uniform() < p; }
  template <class Values>
  auto one_of(const Values& values) {
    return *(std::begin(values) + below(std::size(values)));
  }
};

// The largest number of T, as double.
template <class T>
double largest() {
  if constexpr (std::is_same_v<T, isentropic::float16>) return 65504;
  if constexpr (std::is_same_v<T, isentropic::bfloat16>) return 0x1.fep127;
  if constexpr (!isentropic::kIsHalf<T>) return std::numeric_limits<T>::max();
}

template <class T>
T to(double value) {
  if constexpr (isentropic::kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
double number(T value) {
  if constexpr (isentropic::kIsHalf<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

// Mostly up to 300, where all kinds of kernels are; a few up to `longest`.
inline std::size_t random_length(Random& random, std::size_t longest) {
  const double kind = random.uniform();
  if (kind < 0.6) return 1 + random.below(64);
  if (kind < 0.998 || longest <= 300) return 65 + random.below(236);
  return static_cast<std::size_t>(300 * std::pow(static_cast<double>(longest) / 300, random.uniform()));
}

// n scores of one of the kinds below, finite but for masks; at least one is above -inf.
template <class T>
void random_scores(Random& random, T* x, std::size_t n) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> row(n);
  const auto fill = [&](auto&& score) {
    for (double& value : row) value = score();
  };
  const auto normal = [&] { return random.normal(); };
  switch (random.below(14)) {
    case 0:
      fill(normal);
      break;
    case 1:
    case 2: {
      const double scale = random.power_of_10(-6, 6);
      fill([&] { return scale * random.normal(); });
      break;
    }
    case 3: {  // far from 0: what is left of the scale
      const double scale = random.power_of_10(-6, 6), offset = random.power_of_10(0, 30) * (random.chance(0.5) ? 1 : -1);
      fill([&] { return offset + scale * random.normal(); });
      break;
    }
    case 4: {  // ties
      const double step = random.one_of(std::vector{0.25, 1.0, 4.0});
      fill([&] { return std::round(2 * random.normal() / step) * step; });
      break;
    }
    case 5:  // equal
      std::fill(row.begin(), row.end(), random.chance(0.5) ? 0 : random.power_of_10(-30, 30) * random.normal());
      break;
    case 6: {  // subnormal, or as small as scores that are not
      const double unit = random.chance(0.5) ? 0x1p-149 : number(std::is_same_v<T, double> ? 5e-324 : 0x1p-126);
      fill([&] { return unit * static_cast<double>(random.integer(-9, 9)); });
      break;
    }
    case 7:  // nearly as large as numbers are
      fill([&] { return largest<T>() * (random.chance(0.2) ? random.one_of(std::vector{-1.0, 1.0}) : random.uniform(-1, 1)); });
      break;
    case 8:  // every size at once
      fill([&] { return random.normal() * random.power_of_10(-40, 37); });
      break;
    case 9: {  // one far above the rest
      fill(normal);
      row[random.below(n)] += random.power_of_10(0, 5);
      break;
    }
    case 10:  // one-hot
      row[random.below(n)] = random.power_of_10(-3, 3);
      break;
    case 11: {  // logarithms of ranks, in some order
      std::iota(row.begin(), row.end(), 1.0);
      std::shuffle(row.begin(), row.end(), random.bits);
      for (double& value : row) value = -std::log(value);
      break;
    }
    case 12: {  // neighbours
      double value = random.normal();
      for (double& score : row) {
        score = value;
        const double next = number(to<T>(value));
        value = next - (random.chance(0.3) ? 0
                                           : std::abs(next) * (sizeof(T) == 8   ? 0x1p-52
                                                               : sizeof(T) == 4 ? 0x1p-23
                                                                                : 0x1p-7));
      }
      break;
    }
    default:  // two levels
      fill([&] { return random.chance(0.3) ? -random.power_of_10(-2, 3) : 0; });
  }
  if (random.chance(0.25)) {
    const double masked = random.uniform();
    const std::size_t kept = random.below(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (i != kept && random.chance(masked)) row[i] = -kInfinity;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = to<T>(row[i] == -kInfinity ? row[i] : std::clamp(row[i], -largest<T>(), largest<T>()));
  }
}

// n numbers of sum 1 to the rounding of double, of every kind: nearly uniform, with zeros, one-hot, of very different sizes.
inline std::vector<double> random_distribution(Random& random, std::size_t n) {
  std::vector<double> p(n);
  const std::size_t kind = random.below(5);
  const double spread = random.power_of_10(-8, 2), zeros = random.chance(0.5) ? random.uniform() : 0;
  for (double& mass : p) {
    mass = kind == 0   ? 1 + std::min(spread, 0.5) * random.uniform(-1, 1)
           : kind == 1 ? random.power_of_10(-30, 0)
           : kind == 2 ? 1
                       : std::exp(std::min(spread, 30.0) * random.normal());
    if (random.chance(zeros)) mass = 0;
  }
  if (kind == 4) std::fill(p.begin(), p.end(), 0);
  p[random.below(n)] += 1;
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& mass : p) mass /= sum;
  return p;
}

// A number in the range of a parameter, for rows of n entries: what tends to matter, and any size now and then.
inline double any_number(Random& random, std::string_view name, double above, double at_least, double up_to, std::size_t n) {
  const double most = std::log(static_cast<double>(n));
  if (name.ends_with("entropy") || name == "joint" || name == "marginal" || name == "conditional" || name == "perplexity") {
    const double h = random.chance(0.1)   ? 0
                     : random.chance(0.1) ? most
                     : random.chance(0.1) ? random.power_of_10(-9, 0)
                                          : random.uniform(0, 1.1) * most;
    return name == "perplexity" ? std::exp(h) : h;
  }
  const double lowest = std::numeric_limits<double>::lowest(), low = std::max(above, at_least);
  if (low == lowest) return random.normal() * random.power_of_10(-2, 2);
  if (up_to < std::numeric_limits<double>::max()) {
    const double width = up_to - low;
    if (random.chance(0.1)) return up_to;
    if (random.chance(0.1) && at_least > lowest) return low;
    if (random.chance(0.2)) return low + width * random.power_of_10(-9, 0);
    if (random.chance(0.2)) return up_to - width * random.power_of_10(-9, -0.01);
    return low + width * random.uniform(1e-3, 1);
  }
  if (random.chance(0.05) && std::isinf(up_to)) return up_to;
  if (random.chance(0.1) && at_least > lowest) return low;
  const double known = random.one_of(std::vector{0.5, 1.0, 1.5, 2.0, 3.0});
  if (random.chance(0.3) && known > low) return known;
  if (random.chance(0.1) && known > low + 0.2) return known + random.power_of_10(-14, -1) * random.one_of(std::vector{-1, 1});
  return low + (random.chance(0.1) ? random.power_of_10(-30, 30) : random.power_of_10(-2, 2));
}

inline double random_number(Random& random, std::string_view name, double above, double at_least, double up_to, std::size_t n) {
  for (;;) {
    const double number = any_number(random, name, above, at_least, up_to, n);
    if (number > above && number >= at_least && number <= up_to) return number;
  }
}

template <class Op, class Value>
Value random_value(Random& random, const isentropic::Param<Op, Value>& param, std::size_t n) {
  if constexpr (std::is_enum_v<Value>) {
    // Rows are scores unless the caller makes others.
    return std::is_same_v<Value, isentropic::Input> ? Value{} : static_cast<Value>(random.below(param.names.size()));
  } else if constexpr (std::is_same_v<Value, bool>) {
    return random.chance(0.5);
  } else if constexpr (std::is_integral_v<Value>) {
    const Value step = std::max<Value>(param.multiple_of, 1), low = std::max(param.above + 1, param.at_least);
    const Value high = std::min<Value>(param.up_to, low + static_cast<Value>(2 * n));
    return step * static_cast<Value>(random.integer((low + step - 1) / step, std::max(high / step, (low + step - 1) / step)));
  } else if constexpr (std::is_same_v<Value, double>) {
    return random_number(random, param.name, param.above, param.at_least, param.up_to, n);
  } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    return {random.integer(0, 9)};
  } else if constexpr (std::is_same_v<Value, isentropic::Map>) {
    return {};  // the test of the operation chooses it
  } else {
    if (random.chance(0.5)) return {};
    return random_number(random, param.name, param.above, param.at_least, param.up_to, n);
  }
}

// An operation with its parameters at random.
template <class Op>
Op random_op(Random& random, std::size_t n) {
  for (;;) {
    Op op;
    isentropic::for_each_param<Op>([&](const auto& param) { op.*param.member = random_value(random, param, n); });
    if constexpr (requires { op.check(); }) {
      if (!op.check().empty()) continue;
    }
    return op;
  }
}

// The alternative `index` of a family, with its parameters at random.
template <class Family>
Family random_of(Random& random, std::size_t index, std::size_t n) {
  Family result;
  std::size_t i = 0;
  isentropic::for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
    if (i++ == index) result = random_op<Op>(random, n);
  });
  return result;
}

}  // namespace support

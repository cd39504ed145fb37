#include "tests/oracle/measures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

namespace oracle {

Numbers distribution(isentropic::Input input, bool normalize, Numbers x) {
  constexpr long double kInfinity = std::numeric_limits<long double>::infinity();
  if (input != isentropic::Input::probs) {
    const long double max = *std::max_element(x.begin(), x.end());
    const bool as_given = input == isentropic::Input::log_probs && !normalize;
    for (long double& number : x) {
      number = max == kInfinity ? number == max : std::exp(as_given ? number : number - max);
    }
    if (as_given) return x;
    normalize = true;
  }
  long double sum = 0;
  for (const long double p : x) sum += p;
  if (normalize) {
    for (long double& p : x) p /= sum;
  }
  return x;
}

namespace definition {
namespace {

long double times_log(long double p, long double x) { return p == 0 ? 0 : p * std::log(x); }

long double nats(const isentropic::Entropy&, const Numbers& p) {
  long double h = 0;
  for (const long double pi : p) h -= times_log(pi, pi);
  return h;
}
long double nats(const isentropic::Perplexity&, const Numbers& p) { return std::exp(nats(isentropic::Entropy{}, p)); }

long double sum_of_powers(long double alpha, const Numbers& p) {
  long double sum = 0;
  for (const long double pi : p) sum += pi == 0 ? 0 : std::pow(pi, alpha);
  return sum;
}
// Near alpha = 1, as if p summed to 1.
long double total(long double alpha, const Numbers& p) {
  long double sum = 0;
  for (const long double pi : p) sum += pi;
  return std::abs(alpha - 1) < 0x1p-10L ? sum : 1;
}
long double nats(const isentropic::RenyiEntropy& op, const Numbers& p) {
  if (op.alpha == 1) return nats(isentropic::Entropy{}, p);
  if (std::isinf(op.alpha)) return -std::log(*std::max_element(p.begin(), p.end()));
  const long double sum = sum_of_powers(op.alpha, p), rest = 1 - static_cast<long double>(op.alpha);
  return (std::abs(rest) < 0x1p-10L ? std::log1p(sum - total(op.alpha, p)) : std::log(sum)) / rest;
}
long double nats(const isentropic::TsallisEntropy& op, const Numbers& p) {
  if (op.alpha == 1) return nats(isentropic::Entropy{}, p);
  if (std::isinf(op.alpha)) return 0;
  return (total(op.alpha, p) - sum_of_powers(op.alpha, p)) / (static_cast<long double>(op.alpha) - 1);
}

long double nats(const isentropic::CrossEntropy&, const Numbers& p, const Numbers& q) {
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum -= times_log(p[i], q[i]);
  return sum;
}
// t - log(1 + t).
long double lacking(long double t) {
  if (std::abs(t) > 1e-2L) return t - std::log1p(t);
  long double sum = 0;
  for (int k = 12; k >= 2; --k) sum = (k % 2 == 0 ? 1.0L : -1.0L) / k + t * sum;
  return t * t * sum;
}
long double nats(const isentropic::KlDivergence&, const Numbers& p, const Numbers& q) {
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const long double t = (q[i] - p[i]) / p[i];
    sum += p[i] == 0 ? q[i] : std::abs(t) < 0.5L ? p[i] * lacking(t) : times_log(p[i], p[i] / q[i]) - p[i] + q[i];
  }
  return sum;
}
long double nats(const isentropic::JsDivergence&, const Numbers& p, const Numbers& q) {
  Numbers m(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) m[i] = (p[i] + q[i]) / 2;
  return (nats(isentropic::KlDivergence{}, p, m) + nats(isentropic::KlDivergence{}, q, m)) / 2;
}
long double nats(const isentropic::JsDistance&, const Numbers& p, const Numbers& q) {
  return std::sqrt(nats(isentropic::JsDivergence{}, p, q));
}

long double nats(const isentropic::JointEntropy&, const Numbers& p, std::size_t) { return nats(isentropic::Entropy{}, p); }

Numbers marginal(isentropic::Given of, const Numbers& p, std::size_t cols) {
  Numbers sums(of == isentropic::Given::x ? p.size() / cols : cols);
  for (std::size_t i = 0; i < p.size(); ++i) sums[of == isentropic::Given::x ? i / cols : i % cols] += p[i];
  return sums;
}
long double nats(const isentropic::ConditionalEntropy& op, const Numbers& p, std::size_t cols) {
  const Numbers given = marginal(op.given, p, cols);
  long double h = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    h -= times_log(p[i], p[i] / given[op.given == isentropic::Given::x ? i / cols : i % cols]);
  }
  return h;
}
long double nats(const isentropic::MutualInformation&, const Numbers& p, std::size_t cols) {
  const Numbers x = marginal(isentropic::Given::x, p, cols), y = marginal(isentropic::Given::y, p, cols);
  long double sum = 0;
  for (const long double pi : p) sum += pi;
  Numbers product(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) product[i] = x[i / cols] * (y[i % cols] / sum);
  return nats(isentropic::KlDivergence{}, p, product);
}

template <class Op>
long double in_unit(const Op& op, long double nats) {
  if (std::is_same_v<Op, isentropic::Perplexity> || !op.base) return nats;
  const long double unit = std::log(static_cast<long double>(*op.base));
  return std::is_same_v<Op, isentropic::JsDistance> ? nats / std::sqrt(unit) : nats / unit;
}

long double value(const isentropic::SelfInformation& op, long double p) {
  return in_unit(op, op.input == isentropic::Input::log_probs ? -p : -std::log(p));
}
long double value(const isentropic::BinaryEntropy& op, long double x) {
  switch (op.input) {
    case isentropic::Input::probs:
      return in_unit(op, -times_log(x, x) - (x == 1 ? 0 : (1 - x) * std::log1p(-x)));
    case isentropic::Input::log_probs: {
      const long double rest = -std::expm1(x);
      return in_unit(op, -(std::isinf(x) ? 0 : std::exp(x) * x) - (rest == 0 ? 0 : rest * std::log1p(-std::exp(x))));
    }
    default: {
      const long double e = std::exp(-std::abs(x));
      return in_unit(op, std::log1p(e) + std::abs(x) * e / (1 + e));
    }
  }
}

}  // namespace
}  // namespace definition

long double value(const isentropic::Measure& op, const Numbers& x) {
  const auto of = [&](const auto& one) {
    return definition::in_unit(one, definition::nats(one, distribution(one.input, one.normalize, x)));
  };
  return std::visit(of, op);
}

long double value(const isentropic::Divergence& op, const Numbers& x, const Numbers& y) {
  const auto of = [&](const auto& one) {
    const Numbers p = distribution(one.input, one.normalize, x), q = distribution(one.input, one.normalize, y);
    return definition::in_unit(one, definition::nats(one, p, q));
  };
  return std::visit(of, op);
}

long double table_value(const isentropic::TableMeasure& op, const Numbers& x, std::size_t cols) {
  const auto of = [&](const auto& one) {
    return definition::in_unit(one, definition::nats(one, distribution(one.input, one.normalize, x), cols));
  };
  return std::visit(of, op);
}

long double value(const isentropic::EntryMeasure& op, long double x) {
  return std::visit([&](const auto& one) { return definition::value(one, x); }, op);
}

}  // namespace oracle

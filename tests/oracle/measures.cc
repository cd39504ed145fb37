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

long double nats(const isentropic::Varentropy&, const Numbers& p) {
  const long double h = nats(isentropic::Entropy{}, p);
  long double sum = 0;
  for (const long double pi : p) sum += pi == 0 ? 0 : pi * (std::log(pi) + h) * (std::log(pi) + h);
  return sum;
}

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
long double nats(const isentropic::HillNumber& op, const Numbers& p) {
  return std::exp(nats(isentropic::RenyiEntropy{.alpha = op.order}, p));
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

long double nats(const isentropic::TotalVariation&, const Numbers& p, const Numbers& q) {
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::abs(p[i] - q[i]);
  return sum / 2;
}
long double nats(const isentropic::HellingerDistance&, const Numbers& p, const Numbers& q) {
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const long double roots = std::sqrt(p[i]) + std::sqrt(q[i]), difference = p[i] - q[i];
    sum += roots == 0 ? 0 : difference * difference / (roots * roots);
  }
  return std::sqrt(sum / 2);
}
long double nats(const isentropic::ChiSquaredDivergence&, const Numbers& p, const Numbers& q) {
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] == q[i] ? 0 : (p[i] - q[i]) * (p[i] - q[i]) / q[i];
  return sum;
}
long double nats(const isentropic::JeffreysDivergence&, const Numbers& p, const Numbers& q) {
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const long double t = (p[i] - q[i]) / q[i];
    sum += p[i] == q[i] ? 0 : (p[i] - q[i]) * (std::abs(t) < 0.5L ? std::log1p(t) : std::log(p[i] / q[i]));
  }
  return sum;
}
long double log_ratio(long double p, long double q) {
  return std::abs(p - q) < q / 2 ? std::log1p((p - q) / q) : std::log(p / q);
}
// With p + t p = q the term is p sum over k from 2 of t^k (b - 2) ... (b - k + 1) / k!, b = 1 - alpha.
long double amari_term(long double alpha, long double b, long double p, long double q) {
  if (alpha < 0.5L) return amari_term(b, alpha, q, p);
  const long double t = (q - p) / p;
  if (p == 0) return q / alpha;
  if (q == 0) return b > 0 ? p / b : std::numeric_limits<long double>::infinity();
  if (std::abs(t) * std::max(1.0L, std::abs(b)) < 0.01L) {
    long double sum = 0, term = t * t / 2;
    for (int k = 3; k < 20; ++k) sum += term, term *= t * (b - k + 1) / k;
    return p * sum;
  }
  const long double z = std::log(q / p);
  return p * (t - (b == 0 ? z : std::expm1(b * z) / b)) / alpha;
}
long double nats(const isentropic::AlphaDivergence& op, const Numbers& p, const Numbers& q) {
  const long double alpha = op.alpha;
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] == q[i] ? 0 : amari_term(alpha, 1 - alpha, p[i], q[i]);
  return sum;
}
long double nats(const isentropic::RenyiDivergence& op, const Numbers& p, const Numbers& q) {
  const long double alpha = op.alpha, b = 1 - alpha;
  if (op.alpha == 1) return nats(isentropic::KlDivergence{}, p, q);
  long double missing = 0, sum = 0, most = -std::numeric_limits<long double>::infinity();
  for (std::size_t i = 0; i < p.size(); ++i) (p[i] == 0 ? missing : sum) += q[i];
  if (op.alpha == 0) return missing > 0.5L ? -std::log(sum) : -std::log1p(-missing);
  const auto term = [&](std::size_t i) {
    return std::isinf(op.alpha) ? log_ratio(p[i], q[i]) : alpha * std::log(p[i]) + b * std::log(q[i]);
  };
  for (std::size_t i = 0; i < p.size(); ++i) most = p[i] == 0 ? most : std::max(most, term(i));
  if (std::isinf(op.alpha)) return std::max(most, 0.0L);
  const long double lack = alpha * b * nats(isentropic::AlphaDivergence{.alpha = op.alpha}, p, q);
  if (lack <= 0.5L && lack >= -1e200L) return -std::log1p(-lack) / b;
  if (std::isinf(most)) return -most / b;
  sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] == 0 ? 0 : std::exp(term(i) - most);
  return -(most + std::log(sum)) / b;
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

long double nats(const isentropic::VariationOfInformation&, const Numbers& p, std::size_t cols) {
  return nats(isentropic::ConditionalEntropy{.given = isentropic::Given::x}, p, cols) +
         nats(isentropic::ConditionalEntropy{.given = isentropic::Given::y}, p, cols);
}
long double nats(const isentropic::NormalizedMutualInformation& op, const Numbers& p, std::size_t cols) {
  const long double x = nats(isentropic::Entropy{}, marginal(isentropic::Given::x, p, cols));
  const long double y = nats(isentropic::Entropy{}, marginal(isentropic::Given::y, p, cols));
  const long double means[] = {(x + y) / 2, std::sqrt(x * y), std::min(x, y), std::max(x, y)};
  const long double mean = means[static_cast<std::size_t>(op.average)];
  return mean > 0 ? nats(isentropic::MutualInformation{}, p, cols) / mean : 0;
}

template <class Op>
long double in_unit(const Op& op, long double nats) {
  if constexpr (requires { op.base; } && !std::is_same_v<Op, isentropic::Perplexity>) {
    const long double unit = op.base ? std::log(static_cast<long double>(*op.base)) : 1;
    if (std::is_same_v<Op, isentropic::Varentropy>) return nats / unit / unit;
    return std::is_same_v<Op, isentropic::JsDistance> ? nats / std::sqrt(unit) : nats / unit;
  }
  return nats;
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

// Rows with `smoothing` added to every class and divided by their sums.
template <class Op>
Numbers smoothed(const Op& op, const Numbers& x) {
  if constexpr (requires { op.smoothing; }) {
    if (op.smoothing > 0) {
      Numbers p = distribution(op.input, op.input == isentropic::Input::scores, x);
      for (long double& pi : p) pi += op.smoothing;
      return distribution(isentropic::Input::probs, true, p);
    }
  }
  return distribution(op.input, op.normalize, x);
}

long double value(const isentropic::Divergence& op, const Numbers& x, const Numbers& y) {
  const auto of = [&](const auto& one) {
    const Numbers p = smoothed(one, x), q = smoothed(one, y);
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

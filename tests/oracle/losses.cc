#include "tests/oracle/losses.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace oracle {
namespace definition {
namespace {

// 0 times -inf is 0.
long double dot(const Row& q, const Row& x) {
  long double sum = 0;
  for (std::size_t i = 0; i < q.size(); ++i) sum += q[i] == 0 ? 0 : q[i] * x[i];
  return sum;
}

Row minus(Row p, const Row& q, const Row& x) {
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::isinf(x[i]) ? 0 : p[i] - q[i];
  return p;
}

// x minus its maximum, which changes no loss of a distribution. There are no +inf scores.
Row relative(Row x) {
  const long double max = *std::max_element(x.begin(), x.end());
  for (long double& score : x) score -= max;
  return x;
}

LossResult loss(const isentropic::SoftmaxLoss& op, const Row& scores, Row q) {
  const Row x = relative(scores);
  const long double e = op.label_smoothing;
  const auto present = std::count_if(x.begin(), x.end(), [](long double score) { return !std::isinf(score); });
  for (std::size_t i = 0; i < x.size(); ++i) {
    q[i] = (1 - e) * q[i] + (std::isinf(x[i]) ? 0 : e / static_cast<long double>(present));
  }
  return {logsumexp(isentropic::LogSumExp{}, x) - dot(q, x), minus(map(isentropic::Softmax{}, x), q, x)};
}

long double tsallis_entropy(const Row& p, long double alpha) {
  long double sum = 0;
  for (const long double mass : p) {
    if (mass > 0)
      sum -= alpha == 1 ? mass * std::log(mass) : mass * std::expm1((alpha - 1) * std::log(mass)) / (alpha * (alpha - 1));
  }
  return sum;
}

LossResult loss(const isentropic::EntmaxLoss& op, const Row& scores, const Row& q) {
  const Row x = relative(scores), p = map(isentropic::Entmax{.alpha = op.alpha}, x);
  return {dot(p, x) + tsallis_entropy(p, op.alpha) - tsallis_entropy(q, op.alpha) - dot(q, x), minus(p, q, x)};
}

LossResult loss(const isentropic::SparsemaxLoss& /*op*/, const Row& scores, const Row& q) {
  const Row x = relative(scores), p = map(isentropic::Sparsemax{}, x);
  long double sum = 0, squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double tau = x[i] - p[i];
    if (p[i] > 0) sum += x[i] * x[i] - tau * tau;
    squares += q[i] * q[i];
  }
  return {squares / 2 - dot(q, x) + sum / 2, minus(p, q, x)};
}

// Softmax over the entries where p is not 0.
LossResult cut_loss(const Row& scores, const Row& p, const Row& q) {
  const Row x = relative(scores);
  Row kept = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (p[i] == 0) kept[i] = -HUGE_VALL;
  }
  return {logsumexp(isentropic::LogSumExp{}, kept) - dot(q, x), minus(p, q, x)};
}

LossResult loss(const isentropic::TopKSoftmaxLoss& op, const Row& x, const Row& q) {
  return cut_loss(x, map(isentropic::TopKSoftmax{.k = op.k}, x), q);
}

LossResult loss(const isentropic::TopPSoftmaxLoss& op, const Row& x, const Row& q) {
  return cut_loss(x, map(isentropic::TopPSoftmax{.p = op.p}, x), q);
}

LossResult loss(const isentropic::SmoothAccuracyLoss& op, const Row& x, const Row& q) {
  Row g = q;
  for (long double& weight : g) weight = -weight;
  return {-dot(q, map(op.map, x)), vjp(op.map, x, g)};
}

LossResult loss(const isentropic::SurrogateLoss& op, const Row& scores, const Row& q) {
  const Row x = relative(scores), p = map(op.map, scores);
  return {dot(p, x) - dot(q, x), minus(p, q, x)};
}

LossResult loss(const isentropic::MarginSoftmaxLoss& op, const Row& x, const Row& q) {
  using Kind = isentropic::MarginSoftmaxLoss::Kind;
  const std::size_t t = static_cast<std::size_t>(std::find(q.begin(), q.end(), 1.0L) - q.begin());
  const long double pi = std::acos(-1.0L), c = x[t], theta = std::acos(std::clamp(c, -1.0L, 1.0L));
  const long double m = op.margin.value_or(isentropic::MarginSoftmaxLoss::kMargins[static_cast<int>(op.kind)]);
  long double psi = c - m, slope = 1;
  if (op.kind == Kind::arc) {
    psi = theta <= pi - m ? std::cos(theta + m) : -2 - std::cos(theta + m);
    slope = std::abs(std::sin(theta + m) / std::sin(theta));
  } else if (op.kind == Kind::sphere) {
    const long double k = std::min(std::floor(m * theta / pi), m - 1);
    psi = (std::fmod(k, 2.0L) == 0 ? 1 : -1) * std::cos(m * theta) - 2 * k;
    slope = std::abs(c) == 1 ? m * m : m * std::abs(std::sin(m * theta) / std::sin(theta));
  }
  Row y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(op.scale * (i == t ? psi : x[i]));
  LossResult result = {logsumexp(isentropic::LogSumExp{}, y) - y[t], map(isentropic::Softmax{}, y)};
  result.dx[t] = slope * (result.dx[t] - 1);
  for (long double& d : result.dx) d *= op.scale;
  return result;
}

LossResult loss(const isentropic::MultilabelSoftmaxLoss& /*op*/, const Row& x, const Row& labels) {
  Row sides[2] = {{0}, {0}};
  for (std::size_t i = 0; i < x.size(); ++i) sides[labels[i] != 0].push_back(labels[i] != 0 ? -x[i] : x[i]);
  const long double totals[2] = {logsumexp(isentropic::LogSumExp{}, sides[0]), logsumexp(isentropic::LogSumExp{}, sides[1])};
  Row dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    dx.push_back(labels[i] != 0 ? -std::exp(-x[i] - totals[1]) : std::exp(x[i] - totals[0]));
  }
  return {totals[0] + totals[1], dx};
}

LossResult loss(const isentropic::DistillationLoss& op, const Row& x, const Row& teacher) {
  const isentropic::LogSoftmax log_map = {.temperature = op.temperature};
  const Row log_s = log_softmax(log_map, x), log_t = log_softmax(log_map, teacher);
  const long double temperature = op.temperature;
  const long double beta = op.beta.value_or(0.5);
  // A class's term of the divergence, and l, of which s (l - <s, l>) is the gradient.
  const auto class_of = [&](long double log_of_s, long double log_of_t) -> std::pair<long double, long double> {
    const long double s = std::exp(log_of_s), t = std::exp(log_of_t), ratio = log_of_s - log_of_t;
    const long double m = beta * t + (1 - beta) * s;
    switch (op.divergence) {
      case isentropic::TeacherDivergence::forward_kl:
        return {t > 0 ? -t * ratio - t + s : s, s > 0 ? -t / s : 0};
      case isentropic::TeacherDivergence::reverse_kl:
        return {s > 0 ? s * ratio - s + t : t, s > 0 ? ratio : 0};
      case isentropic::TeacherDivergence::jsd:
        return {(s > 0 ? (1 - beta) * s * std::log(s / m) : 0) + (t > 0 ? beta * t * std::log(t / m) : 0),
                s > 0 ? (1 - beta) * std::log(s / m) : 0};
      case isentropic::TeacherDivergence::total_variation:
        return {std::abs(s - t) / 2, s == t ? 0 : s > t ? 0.5L : -0.5L};
    }
    return {};
  };
  LossResult result = {0, {}};
  long double mean = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto [value, l] = class_of(log_s[i], log_t[i]);
    result.value += temperature * temperature * value;
    const long double s = std::exp(log_s[i]);
    if (s > 0) mean += s * l;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double s = std::exp(log_s[i]);
    if (op.divergence == isentropic::TeacherDivergence::forward_kl) {
      result.dx.push_back(std::isinf(x[i]) ? 0 : temperature * (s - std::exp(log_t[i])));
    } else {
      const bool nothing = std::isinf(x[i]) || s == 0 || std::isinf(result.value);
      result.dx.push_back(nothing ? 0 : temperature * s * (class_of(log_s[i], log_t[i]).second - mean));
    }
  }
  return result;
}

LossResult loss(const isentropic::JsdLoss& op, const Row& x, const Row& teacher) {
  const Row s = map(isentropic::Softmax{}, x), t = map(isentropic::Softmax{}, teacher);
  const long double beta = op.beta;
  long double of_s = 0, of_t = 0;
  Row ratio;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double m = beta * t[i] + (1 - beta) * s[i];
    ratio.push_back(s[i] > 0 ? std::log(s[i] / m) : 0);
    of_s += s[i] * ratio[i];
    of_t += t[i] > 0 ? t[i] * std::log(t[i] / m) : 0;
  }
  LossResult result = {beta * of_t + (1 - beta) * of_s, {}};
  for (std::size_t i = 0; i < x.size(); ++i) result.dx.push_back((1 - beta) * s[i] * (ratio[i] - of_s));
  return result;
}

}  // namespace
}  // namespace definition

LossResult loss(const isentropic::Loss& op, const Row& x, const Row& target) {
  return std::visit([&](const auto& one) { return definition::loss(one, x, target); }, op);
}

}  // namespace oracle

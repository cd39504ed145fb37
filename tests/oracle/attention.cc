#include "tests/oracle/attention.h"

#include <cmath>
#include <limits>

#include "tests/oracle/maps.h"

namespace oracle {

AttentionScores attention_scores(const isentropic::Attention& op, const Heads& q, const Heads& k, const AttentionMask& mask,
                                 const AttentionQueries& queries) {
  const std::size_t m = q.rows, n = k.rows, d = q.cols, group = q.heads / k.heads;
  constexpr long double kInfinity = std::numeric_limits<long double>::infinity();
  AttentionScores result = {{q.batch, q.heads, m, n}, {q.batch, q.heads, m, n}, {q.batch, q.heads, m, 1}, {}};
  for (std::size_t b = 0; b < q.batch; ++b) {
    for (std::size_t h = 0; h < q.heads; ++h) {
      for (std::size_t i = 0; i < m; ++i) {
        std::vector<bool> seen(n);
        long double count = 0;
        for (std::size_t j = 0; j < n; ++j) {
          seen[j] = (!op.causal || j + m <= i + n) && (!mask.visible || mask.visible->at(b, h, i, j) != 0) &&
                    (!mask.additive || mask.additive->at(b, h, i, j) != -kInfinity);
          count += seen[j];
        }
        using Scale = isentropic::Attention::Scale;
        const std::size_t query = (b * q.heads + h) * m + i;
        const long double root = std::sqrt(static_cast<long double>(d));
        long double scale = 1 / root;
        if (op.scale == Scale::number) scale = queries.numbers.empty() ? op.number : queries.numbers[query];
        if (op.scale == Scale::entropy_invariant || op.scale == Scale::log_n) {
          long double kappa = (op.scale == Scale::log_n ? 1 : root) / std::log(static_cast<long double>(op.train_length));
          if (op.kappa) kappa = *op.kappa;
          if (!queries.kappas.empty()) kappa = queries.kappas[query];
          scale = kappa * std::log(count) / (op.scale == Scale::log_n ? root : root * root);
        }
        result.scale.push_back(scale);
        if (count == 0) continue;
        Row s(n, -kInfinity);
        for (std::size_t j = 0; j < n; ++j) {
          if (!seen[j]) continue;
          long double dot = 0;
          for (std::size_t c = 0; c < d; ++c) dot += q.at(b, h, i, c) * k.at(b, h / group, j, c);
          const long double scaled = scale * dot, cap = op.softcap.value_or(1);
          s[j] = (op.softcap ? cap * std::tanh(scaled / cap) : scaled) + (mask.additive ? mask.additive->at(b, h, i, j) : 0);
        }
        if (!queries.sinks.empty()) s.push_back(queries.sinks[query]);
        const Row p = map(op.map, s);
        for (std::size_t j = 0; j < p.size(); ++j) {
          if (j < n) result.s.at(b, h, i, j) = s[j], result.p.at(b, h, i, j) = p[j];
          if (p[j] > 0) result.entropy.at(b, h, i, 0) -= p[j] * std::log(p[j]);
        }
      }
    }
  }
  return result;
}

Heads attention(const AttentionScores& scores, const Heads& v) {
  const Heads& p = scores.p;
  Heads out(p.batch, p.heads, p.rows, v.cols);
  for (std::size_t b = 0; b < p.batch; ++b) {
    for (std::size_t h = 0; h < p.heads; ++h) {
      for (std::size_t i = 0; i < p.rows; ++i) {
        for (std::size_t j = 0; j < p.cols; ++j) {
          if (p.at(b, h, i, j) == 0) continue;
          for (std::size_t c = 0; c < v.cols; ++c) {
            out.at(b, h, i, c) += p.at(b, h, i, j) * v.at(b, h / (p.heads / v.heads), j, c);
          }
        }
      }
    }
  }
  return out;
}

}  // namespace oracle

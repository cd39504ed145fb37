// Attention from its definition, in long double.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "isentropic/attention.h"

namespace oracle {

// batch x heads x rows x cols numbers.
struct Heads {
  std::size_t batch, heads, rows, cols;
  std::vector<long double> values;

  Heads(std::size_t batch_count, std::size_t head_count, std::size_t row_count, std::size_t col_count)
      : batch(batch_count), heads(head_count), rows(row_count), cols(col_count), values(batch * heads * rows * cols) {}
  long double& at(std::size_t b, std::size_t h, std::size_t r, std::size_t c) {
    return values[((b * heads + h) * rows + r) * cols + c];
  }
  long double at(std::size_t b, std::size_t h, std::size_t r, std::size_t c) const {
    return values[((b * heads + h) * rows + r) * cols + c];
  }
};

// Masks of batch x heads x m x n, or none.
struct AttentionMask {
  std::optional<Heads> visible, additive;
};

// Numbers for each query of batch x heads x m, or none.
struct AttentionQueries {
  std::vector<long double> numbers, kappas, sinks;
};

struct AttentionScores {
  Heads s, p, entropy;
  std::vector<long double> scale;  // of each query
};

AttentionScores attention_scores(const isentropic::Attention& op, const Heads& q, const Heads& k, const AttentionMask& mask,
                                 const AttentionQueries& queries = {});
Heads attention(const AttentionScores& scores, const Heads& v);

}  // namespace oracle

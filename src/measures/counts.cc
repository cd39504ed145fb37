// Counts of outcomes, the only state that measures of streams need.
#include <algorithm>

#include "isentropic/measures.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

void check_outcomes(std::string_view name, std::span<const std::int64_t> outcomes, std::size_t number) {
  for (const std::int64_t outcome : outcomes) {
    if (outcome < 0 || static_cast<std::uint64_t>(outcome) >= number) {
      fail("Counts: {} must be at least 0 and below {}, got {}", name, number, outcome);
    }
  }
}

}  // namespace

Counts::Counts(std::size_t x_outcomes, std::size_t y_outcomes) : rows_(x_outcomes), cols_(y_outcomes) {
  if (y_outcomes != 0 && x_outcomes > weights_.max_size() / y_outcomes) {
    fail("Counts: x_outcomes times y_outcomes must be at most {}, got {} times {}", weights_.max_size(), x_outcomes,
         y_outcomes);
  }
  weights_.resize(x_outcomes * y_outcomes);
}

void Counts::add(std::span<const std::int64_t> outcomes) {
  if (rows_ != 1) fail("Counts: outcomes must be given for x and y, got those of one variable");
  check_outcomes("outcomes", outcomes, cols_);
  for (const std::int64_t outcome : outcomes) ++weights_[static_cast<std::size_t>(outcome)];
}

void Counts::add(std::span<const std::int64_t> x, std::span<const std::int64_t> y) {
  if (x.size() != y.size()) fail("Counts: y must have as many outcomes as x, {}, got {}", x.size(), y.size());
  check_outcomes("x", x, rows_);
  check_outcomes("y", y, cols_);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ++weights_[static_cast<std::size_t>(x[i]) * cols_ + static_cast<std::size_t>(y[i])];
  }
}

void Counts::merge(const Counts& other) {
  if (other.rows_ != rows_ || other.cols_ != cols_) {
    fail("Counts: other must have the same outcomes, {} x {}, got {} x {}", rows_, cols_, other.rows_, other.cols_);
  }
  std::transform(weights_.begin(), weights_.end(), other.weights_.begin(), weights_.begin(), std::plus<>());
}

}  // namespace isentropic::inline ISENTROPIC_ABI

// Newton's method for potentials of columns, for problems in which alternating rows and columns is slow: the terms of its
// Hessian, and the linear equations.
#pragma once

#include <cstddef>
#include <vector>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

constexpr std::size_t kNewtonColumns = 1024;  // at most this many columns, because the Hessian is a full matrix
constexpr double kNegligible = 0x1p-70;       // of a row's sum: smaller entries do not enter the Hessian
constexpr int kStalled = 50;                  // steps without a smaller error, after which only rounding is left

// Adds mass q q^T, q the row over its sum, below the diagonal of a matrix; `some` is a workspace.
inline void add_products(std::vector<double>& q, double sum, double mass, std::vector<std::size_t>& some,
                         std::vector<double>& to) {
  const std::size_t m = q.size();
  some.clear();
  for (std::size_t j = 0; j < m; ++j) {
    q[j] /= sum;
    if (q[j] > kNegligible) some.push_back(j);
  }
  for (std::size_t k = 0; k < some.size(); ++k) {
    double* const row = to.data() + some[k] * m;
    for (std::size_t j = 0; j < k; ++j) row[some[j]] += mass * q[some[k]] * q[some[j]];
  }
}

// Solves (D - W + diag(leak)) x = r, where W has the weights below the diagonal and D their sums. Each unknown is eliminated
// with sums of non-negative numbers only, so that even weak connections keep their digits (Grassmann, Taksar and Heyman).
// up_to_constant: the first unknown is 0; the leaks only connect separate components then.
inline std::vector<double> solve_laplacian(std::vector<double> w, std::vector<double> r, std::vector<double> leak,
                                           bool up_to_constant) {
  const std::size_t m = r.size();
  std::vector<double> degree(m);
  for (std::size_t k = m; k-- > 0;) {
    const double* const row = w.data() + k * m;
    double sum = leak[k];
    for (std::size_t j = 0; j < k; ++j) sum += row[j];
    degree[k] = sum;
    if (sum == 0) continue;
    for (std::size_t i = 0; i < k; ++i) {
      if (row[i] == 0) continue;
      const double share = row[i] / sum;
      r[i] += share * r[k];
      leak[i] += share * leak[k];
      double* const into = w.data() + i * m;
      for (std::size_t j = 0; j < i; ++j) into[j] += share * row[j];
    }
  }
  std::vector<double> x(m);
  for (std::size_t k = 0; k < m; ++k) {
    if (degree[k] == 0) continue;
    double sum = r[k];
    for (std::size_t j = 0; j < k; ++j) sum += w[k * m + j] * x[j];
    x[k] = k == 0 && up_to_constant ? 0 : sum / degree[k];
  }
  return x;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

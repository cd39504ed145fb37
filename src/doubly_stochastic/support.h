// Which entries of a table with given zeros a table with given sums may use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Rows of n x m cells have the sum m and columns the sum n: then all numbers are whole. A flow from rows to columns is such a
// table (Dinic's method). It can be changed along cycles of the residual graph only, in which a row leads to each column that
// it may use, and a column to the rows from which it gets something: so a cell can be above 0 if it is, or if its row and its
// column are strongly connected there.
class Support {
 public:
  // allowed(i, j): whether the cell may be above 0.
  template <class Allowed>
  Support(std::size_t n, std::size_t m, const Allowed& allowed) : n_(n), m_(m), cells_(n * m), flow_(n * m) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < m; ++j) cells_[i * m + j] = allowed(i, j);
    }
    left_.assign(n + m, 0);
    std::fill(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(n), m);
    std::fill(left_.begin() + static_cast<std::ptrdiff_t>(n), left_.end(), n);
    while (find_levels()) {
      next_.assign(n + m, 0);
      for (std::size_t i = 0; i < n; ++i) {
        while (left_[i] > 0 && push(i)) {
        }
      }
    }
    feasible_ = std::all_of(left_.begin(), left_.end(), [](std::size_t left) { return left == 0; });
    if (feasible_) find_components();
  }

  bool feasible() const { return feasible_; }
  bool usable(std::size_t i, std::size_t j) const { return cells_[i * m_ + j] && component_[i] == component_[n_ + j]; }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  // Whether one step leads from one node to another. Nodes are rows, then columns.
  bool leads(std::size_t from, std::size_t to) const {
    return from < n_ ? cells_[from * m_ + (to - n_)] : flow_[to * m_ + (from - n_)] > 0;
  }
  std::size_t first_of_others(std::size_t node) const { return node < n_ ? n_ : 0; }
  std::size_t others(std::size_t node) const { return node < n_ ? m_ : n_; }

  // Steps from rows that have something left; whether they reach a column that lacks something.
  bool find_levels() {
    level_.assign(n_ + m_, kNone);
    std::vector<std::size_t> queue;
    for (std::size_t i = 0; i < n_; ++i) {
      if (left_[i] > 0) level_[i] = 0, queue.push_back(i);
    }
    bool reached = false;
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const std::size_t node = queue[at], first = first_of_others(node);
      for (std::size_t k = 0; k < others(node); ++k) {
        if (level_[first + k] != kNone || !leads(node, first + k)) continue;
        level_[first + k] = level_[node] + 1;
        reached |= first + k >= n_ && left_[first + k] > 0;
        queue.push_back(first + k);
      }
    }
    return reached;
  }

  // Sends something from a row along levels; whether it could.
  bool push(std::size_t row) {
    std::vector<std::size_t> path = {row};
    while (!path.empty()) {
      const std::size_t node = path.back();
      if (node >= n_ && left_[node] > 0) break;
      const std::size_t first = first_of_others(node);
      std::size_t& k = next_[node];
      while (k < others(node) && (level_[first + k] != level_[node] + 1 || !leads(node, first + k))) ++k;
      if (k < others(node)) {
        path.push_back(first + k);
      } else {
        path.pop_back();
        if (!path.empty()) ++next_[path.back()];
      }
    }
    if (path.empty()) return false;
    std::size_t amount = std::min(left_[row], left_[path.back()]);
    for (std::size_t s = 1; s + 1 < path.size(); s += 2) {  // from a column back to a row
      amount = std::min(amount, flow_[path[s + 1] * m_ + (path[s] - n_)]);
    }
    for (std::size_t s = 0; s + 1 < path.size(); ++s) {
      const bool forward = path[s] < n_;
      std::size_t& flow = forward ? flow_[path[s] * m_ + (path[s + 1] - n_)] : flow_[path[s + 1] * m_ + (path[s] - n_)];
      forward ? flow += amount : flow -= amount;
    }
    left_[row] -= amount, left_[path.back()] -= amount;
    return true;
  }

  // Kosaraju's method: nodes in the order in which a search leaves them, then the same backwards.
  void find_components() {
    std::vector<std::size_t> order;
    std::vector<char> seen(n_ + m_);
    next_.assign(n_ + m_, 0);
    for (std::size_t root = 0; root < n_ + m_; ++root) {
      if (seen[root]) continue;
      std::vector<std::size_t> path = {root};
      seen[root] = true;
      while (!path.empty()) {
        const std::size_t node = path.back(), first = first_of_others(node);
        std::size_t& k = next_[node];
        while (k < others(node) && (seen[first + k] || !leads(node, first + k))) ++k;
        if (k < others(node)) {
          seen[first + k] = true;
          path.push_back(first + k);
        } else {
          order.push_back(node);
          path.pop_back();
        }
      }
    }
    component_.assign(n_ + m_, kNone);
    for (std::size_t at = order.size(); at-- > 0;) {
      if (component_[order[at]] != kNone) continue;
      std::vector<std::size_t> stack = {order[at]};
      component_[order[at]] = at;
      while (!stack.empty()) {
        const std::size_t node = stack.back(), first = first_of_others(node);
        stack.pop_back();
        for (std::size_t k = 0; k < others(node); ++k) {
          if (component_[first + k] != kNone || !leads(first + k, node)) continue;
          component_[first + k] = at;
          stack.push_back(first + k);
        }
      }
    }
  }

  std::size_t n_, m_;
  std::vector<char> cells_;
  std::vector<std::size_t> flow_, left_, level_, next_, component_;
  bool feasible_ = false;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

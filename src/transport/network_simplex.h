// The network simplex for one transportation problem: flows and potentials of a dense cost matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isentropic/matrix_view.h"
#include "src/transport/cost_rows.h"
#include "src/transport/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {

// An amount in units so small that every mass is a whole number of them. So flows are exact, and it is certain whether an arc
// is empty.
__extension__ typedef __int128 Mass;

// The method: Dantzig 1951; the tree that cannot cycle: Cunningham, Math. Programming 11, 1976; pricing of a short list for
// each row: Gottschlich and Schuhmacher, PLoS ONE 9(10), 2014.
//
// A basis is a tree that joins rows and columns; an arc belongs to its lower node. Potentials are kept as f_i for rows and
// -g_j for columns, so that a subtree moves by one number; the reduced cost of an arc is c_ij - f_i + (-g_j) >= 0 at the
// optimum. The tree is strongly feasible: an arc without flow always points from a row up to a column, which makes endless
// sequences of pivots without flow impossible.
//
// An object is a workspace that many problems can use one after the other.
template <class T>
class NetworkSimplex {
 public:
  enum class Status { optimal, infeasible, pivot_limit };

  // The masses of rows and of columns must have equal sums above 0; costs must be finite or +inf.
  Status solve(const CostRows<T>& cost, std::span<const Mass> row_masses, std::span<const Mass> column_masses);

  // For the statuses optimal and pivot_limit: potentials with f_i + g_j <= c_ij up to rounding, also of nodes without mass.
  std::span<const double> f() const { return f_; }
  std::span<const double> g() const { return g_; }

  // Calls visit(i, j, flow) for each arc with flow.
  template <class Visit>
  void for_each_flow(Visit&& visit) const {
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const int v = order_[k];
      if (parent_[v] < 0 || flow_[v] == 0) continue;
      const int up = parent_[v];
      visit(static_cast<std::size_t>(v < rows_ ? v : up), static_cast<std::size_t>((v < rows_ ? up : v) - rows_), flow_[v]);
    }
  }

 private:
  struct Arc {
    double cost;
    int row, column;
  };
  struct Edge {
    int row, column;
    Mass flow;
  };

  const T* row(int i) const { return cost_.row(static_cast<std::size_t>(i)); }
  double at(int i, int j) const { return cost_.at(static_cast<std::size_t>(i), static_cast<std::size_t>(j)); }
  Pricing pricing(int i) const;
  double tree_cost(int i, int j) const;

  void start(std::span<const Mass> row_masses, std::span<const Mass> column_masses);
  bool start_along_a_line(std::span<const Mass> row_masses, std::span<const Mass> column_masses);
  void choose_shortlist(int i);
  void refresh_shortlist(int i, double limit);
  void set_shortlist_costs(bool nothing);
  void link_components();
  void grow_tree();
  std::vector<double> cost_gaps() const;

  void recompute_potentials();
  void pivot(int i, int j, double reduced);
  bool optimize();
  bool scan_all();
  bool restrict_to(double limit, bool strictly);
  void finish();
  void complete_potentials();
  void shortest_potentials();
  bool is_exact(std::span<const Mass> row_masses, std::span<const Mass> column_masses) const;
  bool refine();
  int find(std::vector<int>& sets, int v);
  void join(int before, int after) {
    next_[before] = after;
    prev_[after] = before;
  }

  TransportKernels<T> kernels_;
  CostRows<T> cost_;
  int rows_ = 0, columns_ = 0, nodes_ = 0;  // nodes_: nodes of the tree, which have mass
  Pricing rule_;
  double tolerance_ = 0;
  std::int64_t pivots_left_ = 0;
  int moved_ = 0;  // recent average of the nodes whose potential a pivot changes

  // The tree. Nodes of a subtree follow each other in the circle next_, from v to last_[v].
  int root_ = 0;
  std::vector<int> parent_, next_, prev_, last_, size_;
  std::vector<Mass> flow_;  // flow of the arc to the parent
  std::vector<double> potential_;
  std::vector<int> order_;  // the nodes, in the order at the time when the tree was made

  std::vector<double> list_cost_;
  std::vector<int> list_column_;
  std::size_t list_length_ = 0;

  std::vector<double> f_, g_, levels_, sums_, ceiling_;
  std::vector<int> columns_found_, row_list_, column_list_, stem_, component_, sets_, begin_, fill_, neighbour_, mark_;
  std::vector<Arc> arcs_, candidates_;
  std::vector<Edge> edges_;
  std::vector<Mass> row_rest_, column_rest_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

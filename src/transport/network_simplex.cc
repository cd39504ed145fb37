// The network simplex: a good start, short lists that are priced first, and full scans at the end.

#include "src/transport/network_simplex.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/transport/compensated_sum.h"
#include "src/transport/line_orders.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Pieces of short lists that are searched together for one arc: with more pieces the arc is better, but takes longer to find.
// If pivots move many nodes, the search may take longer: one piece for this many nodes.
constexpr std::size_t kLeastPieces = 8, kMovedForPiece = 16;
// Arcs in the short lists, for each row or column.
constexpr std::size_t kListed = Shortlists::kPiece;
// Arcs of each row from which the start is made.
constexpr std::size_t kStartArcs = 10;

}  // namespace

template <class T>
Pricing NetworkSimplex<T>::pricing(int i) const {
  Pricing rule = rule_;
  if (rule.kind == Pricing::Kind::masked) {
    rule.levels = levels_.data() + rows_;
    rule.level = levels_[i];
  }
  return rule;
}

// The cost of an arc of the basis under the rule. The basis may have arcs without flow that may not enter.
template <class T>
double NetworkSimplex<T>::tree_cost(int i, int j) const {
  const double cost = at(i, j);
  switch (rule_.kind) {
    case Pricing::Kind::feasibility:
      return cost > rule_.limit ? 1 : 0;
    case Pricing::Kind::masked:
      return cost > rule_.limit ? 0 : cost;
    default:
      return cost;
  }
}

template <class T>
int NetworkSimplex<T>::find(std::vector<int>& sets, int v) {
  while (sets[v] != v) v = sets[v] = sets[sets[v]];
  return v;
}

// The row's arcs of least c_ij - min_i c_ij, and the first few of them for the start.
template <class T>
void NetworkSimplex<T>::choose_shortlist(int i) {
  const double* const p = potential_.data() + rows_;
  const T* const c = row(i);
  const auto m = static_cast<std::size_t>(columns_);
  const std::size_t wanted = std::min(list_length_, m);
  const auto below = [&](double limit) { return kernels_.below({}, c, p, m, limit, sums_.data(), columns_found_.data()); };
  // A sample gives a limit below which there are about twice as many as wanted.
  std::size_t found = 0;
  if (m > 4 * wanted) {
    const std::size_t step = std::max<std::size_t>(1, m / 256);
    f_.clear();
    for (std::size_t j = static_cast<std::size_t>(i) % step; j < m; j += step) f_.push_back(c[j] + p[j]);
    const auto nth = f_.begin() + static_cast<std::ptrdiff_t>(std::min(f_.size() - 1, 2 * wanted * f_.size() / m + 2));
    std::nth_element(f_.begin(), nth, f_.end());
    if (*nth < kInfinity) found = below(*nth);
  }
  if (found < wanted) found = below(std::numeric_limits<double>::max());

  candidates_.clear();
  for (std::size_t k = 0; k < found; ++k) candidates_.push_back({sums_[k], i, columns_found_[k]});
  const auto less = [](const Arc& x, const Arc& y) { return x.cost < y.cost || (x.cost == y.cost && x.column < y.column); };
  const std::size_t kept = std::min(wanted, found);
  if (kept < found) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept), candidates_.end(), less);
  }
  const std::size_t starts = std::min(kept, kStartArcs * list_length_ / kListed);
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(starts),
                    candidates_.begin() + static_cast<std::ptrdiff_t>(kept), less);
  for (std::size_t k = 0; k < starts; ++k) {
    arcs_.push_back({candidates_[k].cost - candidates_[0].cost, i, candidates_[k].column});
  }
  double* const cost = list_cost_.data() + static_cast<std::size_t>(i) * list_length_;
  int* const column = list_column_.data() + static_cast<std::size_t>(i) * list_length_;
  for (std::size_t k = 0; k < list_length_; ++k) {
    column[k] = k < kept ? candidates_[k].column : 0;
    cost[k] = k < kept ? static_cast<double>(c[column[k]]) : kInfinity;
  }
}

// Puts the row's arcs with a reduced cost below the limit into its short list, where they replace the worst.
template <class T>
void NetworkSimplex<T>::refresh_shortlist(int i, double limit) {
  const double* const p = potential_.data() + rows_;
  double* const cost = list_cost_.data() + static_cast<std::size_t>(i) * list_length_;
  int* const column = list_column_.data() + static_cast<std::size_t>(i) * list_length_;
  candidates_.clear();
  for (std::size_t k = 0; k < list_length_; ++k) {
    if (cost[k] == kInfinity) continue;
    candidates_.push_back({cost[k] + p[column[k]], i, column[k]});
    mark_[column[k]] = i;
  }
  const std::size_t found =
      kernels_.below(pricing(i), row(i), p, static_cast<std::size_t>(columns_), limit, sums_.data(), columns_found_.data());
  for (std::size_t k = 0; k < found; ++k) {
    if (mark_[columns_found_[k]] != i) candidates_.push_back({sums_[k], i, columns_found_[k]});
  }
  for (std::size_t k = 0; k < list_length_; ++k) mark_[column[k]] = -1;
  const std::size_t kept = std::min(list_length_, candidates_.size());
  if (kept < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept), candidates_.end(),
                     [](const Arc& x, const Arc& y) { return x.cost < y.cost || (x.cost == y.cost && x.column < y.column); });
  }
  for (std::size_t k = 0; k < kept; ++k) {
    column[k] = candidates_[k].column;
    cost[k] = rule_.kind == Pricing::Kind::feasibility ? 0 : at(i, column[k]);
  }
}

// Sets the costs in the short lists: those of the arcs, or 0; +inf for arcs that may not enter.
template <class T>
void NetworkSimplex<T>::set_shortlist_costs(bool nothing) {
  for (const int i : row_list_) {
    const Pricing rule = pricing(i);
    double* const cost = list_cost_.data() + static_cast<std::size_t>(i) * list_length_;
    const int* const column = list_column_.data() + static_cast<std::size_t>(i) * list_length_;
    for (std::size_t k = 0; k < list_length_; ++k) {
      const double own = at(i, column[k]);
      bool allowed = own <= rule.limit;
      if (rule.kind == Pricing::Kind::masked) allowed &= rule.levels[column[k]] == rule.level;
      if (rule.kind == Pricing::Kind::cost) allowed = own < kInfinity;
      cost[k] = !allowed ? kInfinity : nothing ? 0 : own;
    }
  }
}

// A tree with flows that meet the masses. It takes arcs in the order of their cost minus the least of their row and column, and
// gives each all the flow that it can take.
template <class T>
void NetworkSimplex<T>::start(std::span<const Mass> row_masses, std::span<const Mass> column_masses) {
  const auto n = static_cast<std::size_t>(rows_), m = static_cast<std::size_t>(columns_);
  list_length_ = (std::min(m, kListed * std::max<std::size_t>(1, m / n)) + kListed - 1) / kListed * kListed;
  list_cost_.assign(n * list_length_, kInfinity);
  list_column_.assign(n * list_length_, 0);
  sums_.resize(m + 1);
  columns_found_.resize(m + 1);
  mark_.assign(m, -1);

  potential_.assign(n + m, 0);
  double* const p = potential_.data() + n;
  std::fill(p, p + m, kInfinity);
  for (const int i : row_list_) kernels_.column_minima(row(i), 0, m, p);
  for (std::size_t j = 0; j < m; ++j) p[j] = column_masses[j] == 0 ? kInfinity : p[j] == kInfinity ? 0 : -p[j];

  arcs_.clear();
  for (const int i : row_list_) choose_shortlist(i);
  std::sort(arcs_.begin(), arcs_.end(), [](const Arc& x, const Arc& y) {
    return x.cost != y.cost ? x.cost < y.cost : x.row != y.row ? x.row < y.row : x.column < y.column;
  });

  row_rest_.assign(row_masses.begin(), row_masses.end());
  column_rest_.assign(column_masses.begin(), column_masses.end());
  component_.resize(n + m);
  std::iota(component_.begin(), component_.end(), 0);
  edges_.clear();
  ceiling_.assign(p, p + m);  // +inf where a column is full
  const auto fill = [&](int i, int j) {
    const Mass flow = std::min(row_rest_[i], column_rest_[j]);
    row_rest_[i] -= flow;
    column_rest_[j] -= flow;
    if (column_rest_[j] == 0) ceiling_[j] = kInfinity;
    edges_.push_back({i, j, flow});
    component_[find(component_, i)] = find(component_, rows_ + j);
  };
  for (const Arc& arc : arcs_) {
    if (row_rest_[arc.row] != 0 && column_rest_[arc.column] != 0) fill(arc.row, arc.column);
  }
  int open = 0;  // the first column with room
  for (const int i : row_list_) {
    while (row_rest_[i] != 0) {
      const double least = kernels_.least({}, row(i), ceiling_.data(), m);
      int j = static_cast<int>(least == kInfinity ? m : kernels_.find({}, row(i), ceiling_.data(), m, least));
      if (least == kInfinity) {  // only forbidden arcs are left
        while (column_rest_[open] == 0) ++open;
        j = open;
      }
      fill(i, j);
    }
  }
  if (start_along_a_line(row_masses, column_masses)) return;
  link_components();
  grow_tree();
}

// The same for costs that are nearly those of points on a line, if it costs less: rows and columns in their orders, each filled
// from the first on. Where both are full at once, an arc without flow from the next row leads back up. The short lists are then
// those of this tree's potentials.
template <class T>
bool NetworkSimplex<T>::start_along_a_line(std::span<const Mass> row_masses, std::span<const Mass> column_masses) {
  const auto paid = [&](const std::vector<Edge>& edges) {
    CompensatedSum sum;
    for (const Edge& edge : edges) {
      if (edge.flow != 0) sum.add_product(static_cast<double>(edge.flow), at(edge.row, edge.column));
    }
    return sum.value();
  };
  const LineOrders orders = line_orders(cost_, std::span<const int>(row_list_), std::span<const int>(column_list_));
  if (orders.rows.empty()) return false;
  std::vector<Edge> edges;
  row_rest_.assign(row_masses.begin(), row_masses.end());
  column_rest_.assign(column_masses.begin(), column_masses.end());
  for (std::size_t r = 0, c = 0; r < orders.rows.size() && c < orders.columns.size();) {
    const int i = orders.rows[r], j = orders.columns[c];
    const Mass flow = std::min(row_rest_[i], column_rest_[j]);
    row_rest_[i] -= flow, column_rest_[j] -= flow;
    edges.push_back({i, j, flow});
    const bool next_row = row_rest_[i] == 0, next_column = column_rest_[j] == 0;
    r += next_row, c += next_column;
    if (next_row && next_column && r < orders.rows.size()) edges.push_back({orders.rows[r], j, 0});
  }
  if (!(paid(edges) < paid(edges_))) return false;
  edges_.swap(edges);
  // One component, whose root is the first column.
  std::swap(column_list_.front(), *std::find(column_list_.begin(), column_list_.end(), orders.columns.front()));
  std::fill(component_.begin(), component_.end(), 0);
  sets_.assign(component_.size(), 0);
  grow_tree();
  std::sort(column_list_.begin(), column_list_.end());
  rule_ = {};
  recompute_potentials();
  double* const p = potential_.data() + rows_;
  for (int j = 0; j < columns_; ++j) {
    if (column_masses[j] == 0) p[j] = kInfinity;
  }
  for (const int i : row_list_) choose_shortlist(i);
  return true;
}

// Joins the components of the flows to one tree, by arcs without flow from a row of the lower component to a column of the
// upper one.
template <class T>
void NetworkSimplex<T>::link_components() {
  const auto m = static_cast<std::size_t>(columns_);
  const double* const p = potential_.data() + rows_;
  for (const int i : row_list_) component_[i] = find(component_, i);
  for (const int j : column_list_) component_[rows_ + j] = find(component_, rows_ + j);
  // sets_ joins components; the set's name is the one that has no upper part yet.
  sets_.resize(component_.size());
  std::iota(sets_.begin(), sets_.end(), 0);
  int parts = nodes_ - static_cast<int>(edges_.size());
  const auto link = [&](int i, int j) {
    sets_[component_[i]] = find(sets_, component_[rows_ + j]);
    edges_.push_back({i, j, 0});
    --parts;
  };
  for (const Arc& arc : arcs_) {
    if (parts == 1) break;
    const int own = component_[arc.row];
    if (sets_[own] == own && find(sets_, component_[rows_ + arc.column]) != own) link(arc.row, arc.column);
  }
  for (const int i : row_list_) {
    if (parts == 1) break;
    const int own = component_[i];
    if (sets_[own] != own) continue;
    int other = -1;
    for (const int j : column_list_) {
      const bool outside = find(sets_, component_[rows_ + j]) != own;
      ceiling_[j] = outside ? p[j] : kInfinity;
      if (outside) other = j;
    }
    const double least = kernels_.least({}, row(i), ceiling_.data(), m);
    link(i, least == kInfinity ? other : static_cast<int>(kernels_.find({}, row(i), ceiling_.data(), m, least)));
  }
}

// Makes the tree from edges_; its root is a column of the component that has none above it.
template <class T>
void NetworkSimplex<T>::grow_tree() {
  const auto all = static_cast<std::size_t>(rows_) + static_cast<std::size_t>(columns_);
  root_ = -1;
  for (const int j : column_list_) {
    const int own = component_[rows_ + j];
    if (sets_[own] == own) {
      root_ = rows_ + j;
      break;
    }
  }
  // The edges at each node: neighbour_ holds their numbers.
  begin_.assign(all + 1, 0);
  for (const Edge& edge : edges_) ++begin_[edge.row + 1], ++begin_[rows_ + edge.column + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  fill_.assign(begin_.begin(), begin_.end() - 1);
  neighbour_.resize(2 * edges_.size());
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    neighbour_[fill_[edges_[e].row]++] = static_cast<int>(e);
    neighbour_[fill_[rows_ + edges_[e].column]++] = static_cast<int>(e);
  }

  parent_.assign(all, -1);
  next_.assign(all, 0);
  prev_.assign(all, 0);
  last_.assign(all, 0);
  size_.assign(all, 1);
  flow_.assign(all, 0);
  order_.clear();
  stem_.assign(1, root_);
  while (!stem_.empty()) {
    const int v = stem_.back();
    stem_.pop_back();
    order_.push_back(v);
    for (int k = begin_[v]; k < begin_[v + 1]; ++k) {
      const Edge& edge = edges_[neighbour_[k]];
      const int other = v == edge.row ? rows_ + edge.column : edge.row;
      if (other == parent_[v]) continue;
      parent_[other] = v;
      flow_[other] = edge.flow;
      stem_.push_back(other);
    }
  }
  const std::size_t count = order_.size();
  for (std::size_t k = 0; k < count; ++k) join(order_[k], order_[k + 1 == count ? 0 : k + 1]);
  for (std::size_t k = count; --k > 0;) size_[parent_[order_[k]]] += size_[order_[k]];
  for (std::size_t k = 0; k < count; ++k) last_[order_[k]] = order_[k + size_[order_[k]] - 1];
}

// Calculates potentials from the tree's costs, from its root down, which is the most exact way. Less than the rounding error is
// no reason for a pivot.
template <class T>
void NetworkSimplex<T>::recompute_potentials() {
  potential_[root_] = 0;
  double largest = 0;
  int v = root_;
  for (int k = 1; k < nodes_; ++k) {
    v = next_[v];
    const int up = parent_[v];
    const double cost = v < rows_ ? tree_cost(v, up - rows_) : -tree_cost(up, v - rows_);
    potential_[v] = potential_[up] + cost;
    largest = std::max({largest, std::abs(potential_[v]), std::abs(cost)});
  }
  tolerance_ = 0x1p-46 * largest;
}

// Puts the arc from row i to column j into the tree, and removes the arc that it empties.
template <class T>
void NetworkSimplex<T>::pivot(int i, int j, double reduced) {
  const int column = rows_ + j;
  int u = i, v = column;
  while (u != v) {  // a smaller subtree cannot contain the top of the larger one
    if (size_[u] <= size_[v]) {
      u = parent_[u];
    } else {
      v = parent_[v];
    }
  }
  const int top = u;

  // Along the cycle the flow falls on arcs up from rows on i's side and from columns on j's side. Of the arcs that become empty
  // first, the last one in the direction of the entering arc, seen from the top, leaves. So the tree stays strongly feasible.
  Mass change = 0;
  int out = -1;
  bool row_side = true;
  for (u = i; u != top; u = parent_[u]) {
    if (u < rows_ && (out < 0 || flow_[u] < change)) change = flow_[u], out = u;
  }
  for (v = column; v != top; v = parent_[v]) {
    if (v >= rows_ && (out < 0 || flow_[v] <= change)) change = flow_[v], out = v, row_side = false;
  }
  if (change != 0) {
    for (u = i; u != top; u = parent_[u]) flow_[u] += u < rows_ ? -change : change;
    for (v = column; v != top; v = parent_[v]) flow_[v] += v >= rows_ ? -change : change;
  }

  // The subtree below the leaving arc is reversed and attached to the entering arc.
  const int in = row_side ? i : column, above = row_side ? column : i;
  const int moved = size_[out];
  for (u = parent_[out]; u != top; u = parent_[u]) size_[u] -= moved;
  for (u = above; u != top; u = parent_[u]) size_[u] += moved;
  {
    const int before = prev_[out], end = last_[out];
    join(before, next_[end]);
    for (u = parent_[out]; u >= 0 && last_[u] == end; u = parent_[u]) last_[u] = before;
  }
  // From `in` up to `out` each node becomes its parent's parent. The new order has first the subtree of `in`, and then, for
  // each further node up to `out`, the node itself and the rest of its subtree without that of the node before.
  int tail = last_[in];      // end of the new order so far
  int lower_end = tail;      // the end of the old subtree of v
  int behind = next_[tail];  // the node after that end
  int ahead = prev_[in];     // the node before v
  int lower_size = size_[in];
  int up = parent_[in];
  Mass lower_flow = flow_[in];
  parent_[in] = above;
  flow_[in] = change;
  size_[in] = moved;
  stem_.assign(1, in);
  for (v = in; v != out;) {
    const int node = up;
    up = parent_[node];
    const int first_part_end = ahead;
    ahead = prev_[node];
    join(tail, node);
    const int end = last_[node];
    if (end != lower_end) {
      join(first_part_end, behind);
      tail = lower_end = end;
      behind = next_[end];
    } else {
      tail = first_part_end;
    }
    parent_[node] = v;
    std::swap(flow_[node], lower_flow);
    const int size = size_[node];
    size_[node] = moved - lower_size;
    lower_size = size;
    stem_.push_back(node);
    v = node;
  }
  for (const int node : stem_) last_[node] = tail;
  const int follows = next_[above];
  if (last_[above] == above) {
    for (u = above; u >= 0 && last_[u] == above; u = parent_[u]) last_[u] = tail;
  }
  join(above, in);
  join(tail, follows);

  // Only differences of potentials matter, so the smaller part moves.
  double by = row_side ? reduced : -reduced;
  int count = moved;
  v = in;
  if (2 * moved > nodes_) {
    by = -by;
    count = nodes_ - moved;
    v = follows;
  }
  moved_ += (count - moved_) / 16;
  for (; count > 0; --count) {
    potential_[v] += by;
    v = next_[v];
  }
}

// Scans every row once and enters its best arc; returns true if there was none.
template <class T>
bool NetworkSimplex<T>::scan_all() {
  const double* const p = potential_.data() + rows_;
  const auto m = static_cast<std::size_t>(columns_);
  bool optimal = true;
  for (const int i : row_list_) {
    const double least = kernels_.least(pricing(i), row(i), p, m);
    if (!(least - potential_[i] < -tolerance_)) continue;
    optimal = false;
    if (pivots_left_-- <= 0) return false;
    const int j = static_cast<int>(kernels_.find(pricing(i), row(i), p, m, least));
    refresh_shortlist(i, potential_[i] - tolerance_);
    pivot(i, j, least - potential_[i]);
  }
  return optimal;
}

// Pivots until no arc that may enter has a negative reduced cost; returns false if that takes too many pivots.
template <class T>
bool NetworkSimplex<T>::optimize() {
  const double* const p = potential_.data() + rows_;
  const Shortlists lists = {list_cost_.data(), list_column_.data(), list_length_ / Shortlists::kPiece};
  const std::size_t pieces = static_cast<std::size_t>(rows_) * lists.pieces;
  do {
    recompute_potentials();
    std::size_t piece = 0;
    int until_recomputed = 4 * nodes_;
    for (std::size_t clean = 0; clean < pieces;) {
      const std::size_t end = std::min(pieces, piece + kLeastPieces + static_cast<std::size_t>(moved_) / kMovedForPiece);
      const EnteringArc arc = kernels_.price(lists, potential_.data(), p, piece, end, tolerance_);
      clean += end - piece;
      piece = end == pieces ? 0 : end;
      if (arc.row < 0) continue;
      if (pivots_left_-- <= 0) return false;
      pivot(arc.row, arc.column, arc.reduced);
      clean = 0;
      if (--until_recomputed == 0) {
        recompute_potentials();
        until_recomputed = 4 * nodes_;
      }
    }
    recompute_potentials();
    if (pivots_left_ <= 0) return false;
  } while (!scan_all());
  return true;
}

// Costs, in rising order, above which there is no other cost for a factor of 16 (rows + columns); then the largest finite cost.
// If the arcs up to such a cost can carry the masses, no more expensive arc has flow at the optimum, because a cycle of cheaper
// arcs costs less. Potentials that never use expensive arcs keep their accuracy.
template <class T>
std::vector<double> NetworkSimplex<T>::cost_gaps() const {
  double largest = 0, in_tree = 0, needed = 0;
  for (const int i : row_list_) {
    largest = std::max(largest, kernels_.largest_size(row(i), static_cast<std::size_t>(columns_)));
    const double* const list = list_cost_.data() + static_cast<std::size_t>(i) * list_length_;
    const double least = *std::min_element(list, list + list_length_);
    if (least < kInfinity) needed = std::max(needed, std::abs(least));
  }
  for (const int v : order_) {
    if (parent_[v] < 0) continue;
    const double cost = v < rows_ ? at(v, parent_[v] - rows_) : at(parent_[v], v - rows_);
    if (cost < kInfinity) in_tree = std::max(in_tree, std::abs(cost));
  }
  std::vector<double> gaps;
  const int factor = 5 + std::ilogb(static_cast<double>(nodes_));  // as an exponent of 2
  // Every row pays at least its least cost, so a gap below that does not help. If the start needs no expensive arcs, neither
  // does the rest.
  if (in_tree > std::ldexp(needed, factor)) {
    constexpr int kBias = 1076, kExponents = 2102;
    std::vector<char> positive(kExponents), negative(kExponents);
    for (const int i : row_list_) {
      const T* const c = row(i);
      for (int j = 0; j < columns_; ++j) {
        const double cost = c[j];
        if (cost != 0 && cost < kInfinity) (cost > 0 ? positive : negative)[std::ilogb(cost) + kBias] = 1;
      }
    }
    int below = -1;
    for (int e = 0; e < kExponents; ++e) {
      if (positive[e] && below >= 0 && e - below > factor + 1) gaps.push_back(std::ldexp(1.0, below + 1 - kBias));
      if (positive[e] || negative[e]) below = e;
    }
    if (!gaps.empty() && negative[below]) gaps.clear();
  }
  gaps.push_back(largest);
  return gaps;
}

// Potentials with f_i + g_j <= c_ij for all rows and columns, also those without mass.
template <class T>
void NetworkSimplex<T>::finish() {
  recompute_potentials();
  if (rule_.kind == Pricing::Kind::masked) {
    // Arcs from a lower level to a higher one were kept out because they cannot have flow. Adding one multiple of the levels,
    // whose sum under the masses is 0, makes the potentials valid for these arcs too.
    double factor = 0;
    for (const int i : row_list_) {
      const T* const c = row(i);
      for (const int j : column_list_) {
        const double cost = c[j], apart = levels_[rows_ + j] - levels_[i];
        if (cost <= rule_.limit && apart > 0) {
          factor = std::max(factor, (potential_[i] - potential_[rows_ + j] - cost) / apart);
        }
      }
    }
    for (const int i : row_list_) potential_[i] += factor * levels_[i];
    for (const int j : column_list_) potential_[rows_ + j] += factor * levels_[rows_ + j];
  }
  complete_potentials();
}

// f and g of all rows and columns, from the potentials of those with mass.
template <class T>
void NetworkSimplex<T>::complete_potentials() {
  const auto n = static_cast<std::size_t>(rows_), m = static_cast<std::size_t>(columns_);
  const double* const p = potential_.data() + rows_;
  g_.assign(m, kInfinity);
  if (static_cast<std::size_t>(nodes_) < n + m) {
    for (const int i : row_list_) kernels_.column_minima(row(i), potential_[i], m, g_.data());
  }
  double largest = std::numeric_limits<double>::lowest();
  for (const int j : column_list_) largest = std::max(largest, -p[j]);
  for (std::size_t j = 0; j < m; ++j) {
    // A column without mass may have a lower potential: that of an expensive column would cost digits of f below.
    g_[j] = p[j] < kInfinity ? -p[j] : std::min(g_[j], largest);
    ceiling_[j] = -g_[j];
  }
  f_.resize(n);
  for (int i = 0; i < rows_; ++i) {
    const double least = kernels_.least({}, row(i), ceiling_.data(), m);
    f_[i] = least == kInfinity ? 0 : least;
  }
}

template <class T>
typename NetworkSimplex<T>::Status NetworkSimplex<T>::solve(const CostRows<T>& cost, std::span<const Mass> row_masses,
                                                            std::span<const Mass> column_masses) {
  kernels_ = transport_kernels<T>();
  cost_ = cost;
  rows_ = static_cast<int>(cost.rows());
  columns_ = static_cast<int>(cost.cols());
  row_list_.clear();
  column_list_.clear();
  for (int i = 0; i < rows_; ++i) {
    if (row_masses[i] != 0) row_list_.push_back(i);
  }
  for (int j = 0; j < columns_; ++j) {
    if (column_masses[j] != 0) column_list_.push_back(j);
  }
  nodes_ = static_cast<int>(row_list_.size() + column_list_.size());
  // The limit is far above what is needed in practice, about seven pivots for each node.
  pivots_left_ = std::int64_t{1000} * nodes_ + std::int64_t{rows_} * columns_;
  rule_ = {};
  moved_ = 0;
  start(row_masses, column_masses);
  for (int i = 0; i < rows_; ++i) {
    if (row_masses[i] == 0) potential_[i] = -kInfinity;  // its arcs have reduced cost +inf, like those of a column without mass
  }

  const std::vector<double> limits = cost_gaps();
  const auto carries = [&](double limit) { return restrict_to(limit, false); };
  if (std::none_of(limits.begin(), limits.end(), carries)) return Status::infeasible;
  set_shortlist_costs(false);
  bool optimal = optimize();
  finish();
  if (optimal && !is_exact(row_masses, column_masses)) optimal = refine();
  return optimal ? Status::optimal : Status::pivot_limit;
}

// Whether the potentials prove that the plan is optimal up to a part of the largest cost that is paid. Costs of very different
// size may prevent that: the tree joins the nodes by arcs without flow too, and rounding of expensive ones hides the others.
template <class T>
bool NetworkSimplex<T>::is_exact(std::span<const Mass> row_masses, std::span<const Mass> column_masses) const {
  constexpr double kGap = 0x1p-34, kLargestPotential = 0x1p+18;
  CompensatedSum gap;
  double used = 0, total = 0, largest = 0;
  for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
    const double cost = cost_.at(i, j), amount = static_cast<double>(flow);
    gap.add_product(amount, cost);
    total += amount;
    used = std::max(used, std::abs(cost));
  });
  const auto prove = [&](Mass mass, double potential) {
    if (mass == 0) return;
    gap.add_product(-static_cast<double>(mass), potential);
    largest = std::max(largest, std::abs(potential));
  };
  for (std::size_t i = 0; i < f_.size(); ++i) prove(row_masses[i], f_[i]);
  for (std::size_t j = 0; j < g_.size(); ++j) prove(column_masses[j], g_[j]);
  return gap.value() <= kGap * used * total && largest <= kLargestPotential * used;
}

// Whether arcs of cost up to the limit can carry the masses. Then the rule and the tree are those to go on with, without the
// more expensive arcs if the tree has some, or always.
template <class T>
bool NetworkSimplex<T>::restrict_to(double limit, bool strictly) {
  const auto dear = [&] {
    return std::any_of(order_.begin(), order_.end(), [&](int v) {
      const int up = parent_[v];
      return up >= 0 && at(v < rows_ ? v : up, (v < rows_ ? up : v) - rows_) > limit;
    });
  };
  rule_ = {strictly ? Pricing::Kind::masked : Pricing::Kind::cost, limit, nullptr, 0};
  if (!dear()) {
    levels_.assign(potential_.size(), 0);
    return true;
  }
  // First without the expensive arcs, if they are not needed. Running out of pivots here would look like infeasibility.
  rule_.kind = Pricing::Kind::feasibility;
  set_shortlist_costs(true);
  optimize();
  bool feasible = true;
  for_each_flow([&](std::size_t i, std::size_t j, Mass) { feasible &= cost_.at(i, j) <= limit; });
  rule_.kind = strictly || dear() ? Pricing::Kind::masked : Pricing::Kind::cost;
  levels_ = potential_;
  return feasible;
}

// If some plan pays at most u for a unit, no optimal plan has an arc dearer than (u + u') (rows + columns), where -u' is the
// least cost below 0: on a cycle of the difference of both plans the arcs that lose flow cost at least as much as those that
// gain it. Without these arcs the optimum has a lower u, and so on. Returns false if that takes too many pivots.
template <class T>
bool NetworkSimplex<T>::refine() {
  double least = 0, limit = kInfinity;
  for (const int i : row_list_) {
    const T* const c = row(i);
    for (const int j : column_list_) least = std::min(least, static_cast<double>(c[j]));
  }
  bool narrowed = false;
  while (true) {
    double used = 0;
    for_each_flow([&](std::size_t i, std::size_t j, Mass) { used = std::max(used, std::abs(cost_.at(i, j))); });
    const double next = (used - least) * nodes_;
    pivots_left_ = std::int64_t{1000} * nodes_ + std::int64_t{rows_} * columns_;
    if (!(next < limit / 2) || !restrict_to(next, true)) break;
    narrowed = true;
    limit = next;
    set_shortlist_costs(false);
    if (!optimize()) return false;
  }
  if (narrowed) shortest_potentials();
  return true;
}

// Potentials for the flows as they are, which may be optimal: the greatest f and -g up to 0 with f_i + g_j <= c_ij, and = on
// arcs with flow, by Bellman and Ford. They are sums of costs that are paid, however large the others are.
template <class T>
void NetworkSimplex<T>::shortest_potentials() {
  double* const p = potential_.data() + rows_;
  for (const int i : row_list_) potential_[i] = 0;
  for (const int j : column_list_) p[j] = 0;
  bool changed = true;
  for (int round = 0; changed && round < nodes_; ++round) {
    changed = false;
    for (const int i : row_list_) {
      const double least = kernels_.least({}, row(i), p, static_cast<std::size_t>(columns_));
      if (least < potential_[i] - tolerance_) potential_[i] = least, changed = true;
    }
    for_each_flow([&](std::size_t i, std::size_t j, Mass) {
      const double least = potential_[i] - cost_.at(i, j);
      if (least < p[j] - tolerance_) p[j] = least, changed = true;
    });
  }
  complete_potentials();
}

template class NetworkSimplex<float>;
template class NetworkSimplex<double>;

}  // namespace isentropic::inline ISENTROPIC_ABI

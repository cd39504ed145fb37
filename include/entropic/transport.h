// Optimal transport: how far one distribution is from another, and what goes where.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "entropic/matrix_view.h"
#include "entropic/operation.h"

namespace entropic {

enum class TransportStatus {
  kOptimal,
  kInfeasible,  // every plan needs a forbidden arc
  kPivotLimit,  // a feasible plan whose gap says how far from the optimum it may be; not seen to happen
};
inline constexpr std::array<std::string_view, 3> kTransportStatusNames = {"optimal", "infeasible", "pivot_limit"};

struct OptimalTransport {
  std::optional<double> mass_tolerance = {};

  static constexpr Description kDescription = {
      .name = "optimal_transport",
      .summary = "The cheapest plan that moves the masses a to the masses b, exactly.",
      .formula = "min <P, C> over P >= 0 with row sums a and column sums b = max <a, f> + <b, g> over f_i + g_j <= C_ij",
      .gradient = "d cost / d C = P, d cost / d a = f and d cost / d b = g up to constants",
      .source = "Dantzig 1951; Cunningham, Math. Programming 11, 1976",
  };
  static constexpr auto kParams = std::tuple{Param<OptimalTransport, std::optional<double>>{
      .name = "mass_tolerance",
      .meaning = "how far the sums of a and b may differ, relative; 1e-4 for float, 1e-6 for double",
      .member = &OptimalTransport::mass_tolerance,
      .at_least = 0,
      .up_to = 1}};
};

struct TransportResult {
  double cost;  // <P, C>; +inf where infeasible
  double gap;   // cost - <a, f> - <b, g>, at least 0: the optimum is at most so far below cost
  TransportStatus status;
};

// For each problem the plan P >= 0 with row sums a and column sums b of least cost <P, C>, potentials f and g with f_i + g_j <=
// C_ij that prove it, centred to <a, f> = <b, g>, and the gap between the two. b is scaled to the sum of a where they differ by
// no more than the tolerance. C_ij = +inf forbids the arc; masses may be 0, costs negative. Infeasible problems leave their
// plan and potentials NaN.
//
// Shapes, for k problems of n x m: a is k x n, b k x m; cost is n x m, the same for all, or (k n) x m, one below the other;
// plan (k n) x m, or of no rows where it is not wanted; f k x n, g k x m; result k.
// Units: f, g, gap of the cost, plan of the masses.
// Error: gap at most 1e-9 times the largest finite cost that carries mass, times the sum of a; the cost may be of any scale
// from 1e-300 to 1e300. Masses below 1e-30 of the sum count as 0. Memory: O(n + m) numbers for each thread beside cost and
// plan, and 24 arcs for each row or column. Throws: std::invalid_argument naming problem and entry: a mass that is negative,
// NaN or infinite, no mass, sums that differ, a cost that is NaN or -inf; before anything is written.
template <class T>
void optimal_transport(MatrixView<const std::type_identity_t<T>> a, MatrixView<const std::type_identity_t<T>> b,
                       MatrixView<const std::type_identity_t<T>> cost, MatrixView<std::type_identity_t<T>> plan,
                       MatrixView<T> f, MatrixView<T> g, std::span<TransportResult> result,
                       const OptimalTransport& options = {});

}  // namespace entropic

// Optimal transport: the distance of one distribution from another, and plans that move one to the other.
//
//   const std::vector<double> a = {0.5, 0.5}, b = {0.25, 0.75}, cost = {0, 1, 1, 0};
//   std::vector<double> plan(4), f(2), g(2);
//   const isentropic::MatrixView costs(cost, 2, 2);
//   const auto found = isentropic::optimal_transport({}, a, b, costs, isentropic::MatrixView(plan, 2, 2), f, g);
//   // found.cost = 0.25
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

//   (int_0^1 |F_u^-1(t) - F_v^-1(t)|^order dt)^(1/order)
struct Wasserstein1d {
  double order = 1;  // the power of distances; inf is their maximum
};

// W_p = (int_0^1 |F_u^-1(t) - F_v^-1(t)|^p dt)^(1/p) for each row of samples, by merging their quantile functions: W_p, not its
// power. Weights are scaled to sum 1; without weights all samples weigh the same. A sample of +-inf is infinitely far from all
// others and at distance 0 from its equal; a row with NaN gives NaN, also in du and dv.
//
// du and dv, if wanted, get the gradient in the samples; where the distance is 0 or samples coincide, one of the possible
// gradients.
//
// Shapes: u k x n, v k x m, n and m above 0; weights of the same shape, of one row for all, or of none; distance k; du as u, dv
// as v, or of no rows. Units: those of the samples. Error: 4 eps of float64, relative, and masses as in optimal_transport.
// Throws: std::invalid_argument naming row and entry of a weight that is negative, NaN or infinite, or of a row without weight.
template <class T>
ISENTROPIC_API void wasserstein_1d(const Wasserstein1d& options, MatrixView<const T> u,
                                   MatrixView<const std::type_identity_t<T>> v,
                                   std::type_identity_t<MatrixView<const T>> u_weights,
                                   std::type_identity_t<MatrixView<const T>> v_weights, std::span<double> distance,
                                   std::type_identity_t<MatrixView<T>> du = {}, std::type_identity_t<MatrixView<T>> dv = {});

//   (int_0^1 |F_p^-1(t) - F_q^-1(t)|^order dt)^(1/order); order 1: int |F_p - F_q|
struct WassersteinHistogram {
  double order = 1;                          // the power of distances; inf is their maximum
  std::optional<double> sum_tolerance = {};  // how far a row's sum may be from 1; 1e-4 for float, 1e-6 for double
};

// W_p of distributions over one support, whose points may come in any order: p and q are masses, scaled to sum 1. dp and dq, if
// wanted, get the gradient of the distance with that scaling, <p, dp> = <q, dq> = 0. At a kink, such as p = q, the gradient is
// the mean of both sides; it is 0 for order inf, and for order > 1 if the distance is 0.
//
// Shapes: p, q k x n; support n; distance k; dp, dq as p, or of no rows.
// Throws: std::invalid_argument naming row and entry: a mass that is negative, NaN or infinite, a row without mass, or a sum
// that is not 1 within 1e-6 (double), 1e-4 (float) or sum_tolerance; a point of the support that is not finite.
template <class T>
ISENTROPIC_API void wasserstein_histogram(const WassersteinHistogram& options, MatrixView<const T> p,
                                          MatrixView<const std::type_identity_t<T>> q, std::span<const double> support,
                                          std::span<double> distance, std::type_identity_t<MatrixView<T>> dp = {},
                                          std::type_identity_t<MatrixView<T>> dq = {});

enum class Metric { euclidean, sqeuclidean, cosine, cityblock };

//   (min <P, d(x_i, y_j)^order> over plans P from a to b)^(1/order)
struct Wasserstein {
  double order = 1;                   // the power of distances
  Metric metric = Metric::euclidean;  // the distance d: |x - y|, its square, 1 - <x, y> / (|x| |y|), or sum_k |x_k - y_k|
};

// W_p between points with weights a and b, which are scaled to sum 1: the root of the optimal cost for distances to the power
// p. One dimension uses wasserstein_1d, but for cosines; more use optimal_transport's method, with n m numbers of memory,
// and beyond 2^24 pairs with none of them: costs are then made again in each pass.
// Powers of distances are scaled by the relevant ones, so that nothing overflows. A point at 0 has no cosine, and is refused.
//
// Shapes: x n x d, y m x d; a n and b m, or empty for equal weights; plan n x m, or of no rows.
// Error: as optimal_transport, of the cost before the root.
// Throws: std::invalid_argument naming the entry: a coordinate that is not finite, a weight as in wasserstein_1d.
template <class T>
ISENTROPIC_API double wasserstein(const Wasserstein& options, MatrixView<const T> x,
                                  MatrixView<const std::type_identity_t<T>> y, std::span<const std::type_identity_t<T>> a = {},
                                  std::span<const std::type_identity_t<T>> b = {},
                                  std::type_identity_t<MatrixView<T>> plan = {});

//   (mean_theta W_order(<theta, x>, <theta, y>)^order)^(1/order)
struct SlicedWasserstein {
  double order = 2;  // the power of distances
};

struct SlicedWassersteinResult {
  double distance;
  double error;  // the standard error from the choice of directions: 0 in one dimension, NaN for a single direction
};

// The mean over directions, which are the rows of a matrix and may have any length but 0. Each direction takes a sort of the
// points, which are centred first, so that what is common to all does not round their differences away.
//
// Shapes: x n x d, y m x d; a n and b m, or empty for equal weights; directions any number x d, at least one.
// Units: as wasserstein. Error: as wasserstein_1d, plus the random error, estimated by `error`.
// Throws: as wasserstein; a direction that is 0 or not finite.
template <class T>
ISENTROPIC_API SlicedWassersteinResult sliced_wasserstein(const SlicedWasserstein& options, MatrixView<const T> x,
                                                          MatrixView<const std::type_identity_t<T>> y,
                                                          std::span<const std::type_identity_t<T>> a,
                                                          std::span<const std::type_identity_t<T>> b,
                                                          MatrixView<const double> directions);

// Unit vectors in the rows of a matrix, uniform on the sphere. Row r depends only on (seed, r) and the number of columns.
ISENTROPIC_API void random_directions(MatrixView<double> directions, std::uint64_t seed);

enum class TransportStatus {
  optimal,
  infeasible,   // every plan needs an entry of cost inf
  pivot_limit,  // a feasible plan whose gap bounds its distance from the optimum; no case is known
};
inline constexpr std::array<std::string_view, 3> kTransportStatusNames = {"optimal", "infeasible", "pivot_limit"};

//   min <P, C> over P >= 0 with row sums a and column sums b = max <a, f> + <b, g> over f_i + g_j <= C_ij
struct OptimalTransport {
  // how far the sums of a and b may differ, relative; 1e-4 for float, 1e-6 for double
  std::optional<double> mass_tolerance = {};
};

struct TransportResult {
  double cost;  // <P, C>; +inf if infeasible
  double gap;   // cost - <a, f> - <b, g>, at least 0, and what rounding may have changed: the optimum is at most so far off
  TransportStatus status;
};

// For each problem the plan P >= 0 with row sums a and column sums b of least cost <P, C>, and potentials f and g with f_i +
// g_j <= C_ij that prove this up to the gap, centred to <a, f> = <b, g>. b is scaled to the sum of a if the sums differ by at
// most the tolerance. C_ij = +inf forbids the entry; masses may be 0, costs negative. An infeasible problem has NaN in its plan
// and potentials. Mass that only forbidden entries could move is left out if it is no more than rounding in float64.
//
// Shapes, for k problems of n x m: a is k x n, b k x m; cost is n x m, the same for all, or (k n) x m, one below the other;
// plan (k n) x m, or of no rows if it is not wanted; f k x n, g k x m; result k.
// Units: f, g and gap have those of the cost, plan those of the masses.
// Error: gap at most 1e-9 times the largest finite cost that carries mass, times the sum of a; the cost may be of any scale
// from 1e-300 to 1e300. Masses below 1e-30 of the sum count as 0. Memory: besides cost and plan, O(n + m) numbers and 24 arcs
// of the network for each row or column, for each thread. Throws: std::invalid_argument naming problem and entry: a mass that
// is negative, NaN or infinite, no mass, sums that differ, a cost that is NaN or -inf; before anything is written. And if the
// cost of the plan overflows.
template <class T>
ISENTROPIC_API void optimal_transport(const OptimalTransport& options, MatrixView<const std::type_identity_t<T>> a,
                                      MatrixView<const std::type_identity_t<T>> b,
                                      MatrixView<const std::type_identity_t<T>> cost, MatrixView<std::type_identity_t<T>> plan,
                                      MatrixView<T> f, MatrixView<T> g, std::span<TransportResult> result);

//   min <P, C> over P >= 0 with row sums <= a, column sums <= b and sum P = mass
struct PartialTransport {
  double mass = std::numeric_limits<double>::quiet_NaN();  // how much is moved
};

struct PartialTransportResult {
  double cost;        // <P, C>; +inf where infeasible
  double multiplier;  // cost of a further unit of mass, for a small amount
  double gap;         // cost - <a, f> - <b, g> - multiplier mass, at least 0, and what rounding may have changed
  TransportStatus status;
};

// The cheapest plan that moves only the mass `mass`, which is at most the lesser sum of a and b; an excess of at most
// kSumTolerance<T> of that sum is cut off. The sums of a and b may differ. f and g are at most 0 and f_i + g_j + multiplier <=
// C_ij, which proves the cost.
//
// Shapes, Units, Error: as optimal_transport, with (n + 1) (m + 1) numbers more of memory for each thread.
// Throws: as optimal_transport, and for a mass above the lesser sum.
template <class T>
ISENTROPIC_API void partial_transport(const PartialTransport& options, MatrixView<const std::type_identity_t<T>> a,
                                      MatrixView<const std::type_identity_t<T>> b,
                                      MatrixView<const std::type_identity_t<T>> cost, MatrixView<std::type_identity_t<T>> plan,
                                      MatrixView<T> f, MatrixView<T> g, std::span<PartialTransportResult> result);

//   argmin <P, C> + epsilon KL(P, a b^T); P_ij = a_i b_j exp((f_i + g_j - C_ij) / epsilon)
struct Sinkhorn {
  double epsilon = std::numeric_limits<double>::quiet_NaN();  // weight of the entropy, in units of the cost
  // stops when the errors of P's column sums add up to at most this, relative to the mass; row sums are exact
  double tolerance = 1e-6;
  std::int64_t max_iterations = 10000;  // passes over the matrix
  // how far the sums of a and b may differ, relative; 1e-4 for float, 1e-6 for double
  std::optional<double> mass_tolerance = {};
};

struct SinkhornResult {
  double cost;            // <P, C>
  double value;           // <a, f> + <b, g>: at convergence the minimum, <P, C> + epsilon KL(P, a b^T)
  double marginal_error;  // sum of |column sum - b| over the sum of a
  double lower_bound;     // of the optimum without entropy: the value of potentials with f_i + g_j <= C_ij, rounded down
  double upper_bound;     // the cost of a plan with exactly these masses, rounded up; +inf if there is none
  std::int64_t iterations;
  bool converged;
};

// Sinkhorn's iteration on potentials, in the log domain, so that nothing underflows for any epsilon. It lowers epsilon from a
// larger one. Each pass makes the row sums exact and then corrects the columns. Here KL(P, Q) is sum P log(P / Q).
//
// Shapes: as optimal_transport. C_ij = +inf forbids the entry. Both bounds hold for the numbers as they are: upper_bound is
// raised by (n + m + 20) eps of the largest cost times the mass, lower_bound lowered by some eps of the potentials. Only what
// rounding in float64 lacks at forbidden entries is not counted.
// Throws: as optimal_transport; also if all entries of a row or column with mass are forbidden.
template <class T>
ISENTROPIC_API void sinkhorn(const Sinkhorn& options, MatrixView<const std::type_identity_t<T>> a,
                             MatrixView<const std::type_identity_t<T>> b, MatrixView<const std::type_identity_t<T>> cost,
                             MatrixView<std::type_identity_t<T>> plan, MatrixView<T> f, MatrixView<T> g,
                             std::span<SinkhornResult> result);

//   min <P, C> + epsilon KL(P | a b^T) + penalty (KL(P 1 | a) + KL(P^T 1 | b)), KL(p | q) = sum p log(p / q) - p + q
struct UnbalancedSinkhorn {
  double epsilon = std::numeric_limits<double>::quiet_NaN();  // weight of the entropy, in units of the cost
  // weight of the marginals' error; the larger, the nearer the marginals are to a and b
  double penalty = std::numeric_limits<double>::quiet_NaN();
  double tolerance = 1e-9;              // stops at a gap of at most this, relative to the sizes of the terms
  std::int64_t max_iterations = 10000;  // passes over the matrix
};

struct UnbalancedSinkhornResult {
  double value;  // value of the plan: all terms of the formula
  double gap;    // value minus that of the dual, at least 0, and what rounding may have changed in value
  std::int64_t iterations;
  bool converged;
};

// Sinkhorn's iteration in the log domain, from a larger epsilon down; each step is followed by the best shift of f against g.
// P_ij = a_i b_j exp((f_i + g_j - C_ij) / epsilon). Mass whose entries are all forbidden stays, with a potential of +inf.
//
// Shapes: as optimal_transport. The gap is a sum of terms that are not negative, which tells convergence far below the rounding
// error of value, and that error. Throws: as optimal_transport, except that sums may differ but their product must be finite.
template <class T>
ISENTROPIC_API void unbalanced_sinkhorn(const UnbalancedSinkhorn& options, MatrixView<const std::type_identity_t<T>> a,
                                        MatrixView<const std::type_identity_t<T>> b,
                                        MatrixView<const std::type_identity_t<T>> cost,
                                        MatrixView<std::type_identity_t<T>> plan, MatrixView<T> f, MatrixView<T> g,
                                        std::span<UnbalancedSinkhornResult> result);

//   argmin_q sum_k weights_k min_P <P, C> - epsilon H(P) over plans P from p_k to q
struct SinkhornBarycenter {
  // weight of the entropy, which also blurs the result, in units of the cost
  double epsilon = std::numeric_limits<double>::quiet_NaN();
  double tolerance = 1e-9;              // stops at a marginal error of at most this
  std::int64_t max_iterations = 10000;  // passes over the matrices
};

struct SinkhornBarycenterResult {
  double marginal_error;  // the largest, over k, sum of errors of plan k's row sums; its column sums are the barycenter
  std::int64_t iterations;
  bool converged;
};

// Iterative Bregman projections in the log domain, from a larger epsilon down. Rows of p and the weights are scaled to sum 1. f
// and g, if wanted, are the plans' potentials, P_k = exp((f_k + g_k - C) / epsilon), sum_k weights_k g_k = 0.
//
// Shapes: p k x n; weights k, or empty for equal ones; cost n x m; barycenter m; f k x n, g k x m, or of no rows.
// Throws: std::invalid_argument: a mass or a weight that is negative, NaN or infinite, a row without mass, weights that are all
// 0, a cost that is not finite.
template <class T>
ISENTROPIC_API SinkhornBarycenterResult sinkhorn_barycenter(const SinkhornBarycenter& options, MatrixView<const T> p,
                                                            std::span<const std::type_identity_t<T>> weights,
                                                            std::type_identity_t<MatrixView<const T>> cost,
                                                            std::span<std::type_identity_t<T>> barycenter,
                                                            std::type_identity_t<MatrixView<T>> f = {},
                                                            std::type_identity_t<MatrixView<T>> g = {});

//   S(x, y) - (S(x, x) + S(y, y)) / 2, S(x, y) = min <P, |x_i - y_j|^order> + epsilon KL(P, a b^T)
struct SinkhornDivergence {
  double epsilon = std::numeric_limits<double>::quiet_NaN();  // weight of the entropy, in units of distance to the power
  double order = 2;                                           // the power of distances
  double tolerance = 1e-9;                                    // stops when the errors of column sums add up to at most this
  std::int64_t max_iterations = 10000;                        // passes over each matrix
};

// It is 0 if x = y and a = b, and at least 0 for an order up to 2, where exp(-|x - y|^order / epsilon) is positive definite
// (Feydy et al. 2019). For a larger order it may be negative. Units: distance to the power `order`; no root is taken.
// Shapes, Throws: as wasserstein.
template <class T>
ISENTROPIC_API double sinkhorn_divergence(const SinkhornDivergence& options, MatrixView<const T> x,
                                          MatrixView<const std::type_identity_t<T>> y,
                                          std::span<const std::type_identity_t<T>> a = {},
                                          std::span<const std::type_identity_t<T>> b = {});

//   U(x, y) - (U(x, x) + U(y, y)) / 2 + epsilon (sum a - sum b)^2 / 2, U the minimum of unbalanced_sinkhorn with costs |x_i -
//   y_j|^order
struct UnbalancedSinkhornDivergence {
  double epsilon = std::numeric_limits<double>::quiet_NaN();  // weight of the entropy, in units of distance to the power
  double penalty = std::numeric_limits<double>::quiet_NaN();  // weight of the marginals' error, in these units
  double order = 2;                                           // the power of distances
  double tolerance = 1e-9;                                    // as unbalanced_sinkhorn's
  std::int64_t max_iterations = 10000;                        // passes over each matrix
};

// a and b are masses: they are not scaled, and 1/n and 1/m if left out. It is 0 if x = y and a = b, and at least 0 for an order
// up to 2. Shapes, Throws: as sinkhorn_divergence.
template <class T>
ISENTROPIC_API double unbalanced_sinkhorn_divergence(const UnbalancedSinkhornDivergence& options, MatrixView<const T> x,
                                                     MatrixView<const std::type_identity_t<T>> y,
                                                     std::span<const std::type_identity_t<T>> a = {},
                                                     std::span<const std::type_identity_t<T>> b = {});

// g_j = min_i (C_ij - f_i): the largest g with f_i + g_j <= C_ij. g_j is +inf if all its C_ij are, and f_i = -inf counts as
// absent.
//
// Shapes: f n, cost n x m, g m. Throws: std::invalid_argument on NaN, a cost of -inf, f of +inf.
template <class T>
ISENTROPIC_API void c_transform(std::span<const std::type_identity_t<T>> f, MatrixView<const T> cost,
                                std::span<std::type_identity_t<T>> g);

// <a, f> + <b, g>: no more than the cost of any plan, if f_i + g_j <= C_ij. A mass of 0 adds 0 for any potential. Shapes: f and
// a n, g and b m.
template <class T>
ISENTROPIC_API double dual_value(std::span<const T> f, std::span<const std::type_identity_t<T>> g,
                                 std::span<const std::type_identity_t<T>> a, std::span<const std::type_identity_t<T>> b);

// max |f_i - f_j| / D_ij over i != j: the Lipschitz constant of f on points at these distances. +inf if two points at distance
// 0 have different values; 0 for one point. W_1 >= |<a - b, f>| / it.
//
// Shapes: f n, distance n x n. Throws: std::invalid_argument: a distance that is negative or NaN, an f that is not finite.
template <class T>
ISENTROPIC_API double lipschitz_constant(std::span<const std::type_identity_t<T>> f, MatrixView<const T> distance);

// One problem, with masses and potentials in containers: plan, f and g are filled.
template <RowOfNumbers F>
TransportResult optimal_transport(const OptimalTransport& options, MatrixView<const NumberOfRow<F>> a,
                                  MatrixView<const NumberOfRow<F>> b, MatrixView<const NumberOfRow<F>> cost,
                                  MatrixView<NumberOfRow<F>> plan, F&& f, MatrixView<NumberOfRow<F>> g) {
  TransportResult result;
  optimal_transport(options, a, b, cost, plan, row_view(f), g, std::span(&result, 1));
  return result;
}
template <RowOfNumbers F>
PartialTransportResult partial_transport(const PartialTransport& options, MatrixView<const NumberOfRow<F>> a,
                                         MatrixView<const NumberOfRow<F>> b, MatrixView<const NumberOfRow<F>> cost,
                                         MatrixView<NumberOfRow<F>> plan, F&& f, MatrixView<NumberOfRow<F>> g) {
  PartialTransportResult result;
  partial_transport(options, a, b, cost, plan, row_view(f), g, std::span(&result, 1));
  return result;
}
template <RowOfNumbers F>
SinkhornResult sinkhorn(const Sinkhorn& options, MatrixView<const NumberOfRow<F>> a, MatrixView<const NumberOfRow<F>> b,
                        MatrixView<const NumberOfRow<F>> cost, MatrixView<NumberOfRow<F>> plan, F&& f,
                        MatrixView<NumberOfRow<F>> g) {
  SinkhornResult result;
  sinkhorn(options, a, b, cost, plan, row_view(f), g, std::span(&result, 1));
  return result;
}
template <RowOfNumbers F>
UnbalancedSinkhornResult unbalanced_sinkhorn(const UnbalancedSinkhorn& options, MatrixView<const NumberOfRow<F>> a,
                                             MatrixView<const NumberOfRow<F>> b, MatrixView<const NumberOfRow<F>> cost,
                                             MatrixView<NumberOfRow<F>> plan, F&& f, MatrixView<NumberOfRow<F>> g) {
  UnbalancedSinkhornResult result;
  unbalanced_sinkhorn(options, a, b, cost, plan, row_view(f), g, std::span(&result, 1));
  return result;
}

// The distance of two rows.
template <RowOfNumbers U>
double wasserstein_1d(const Wasserstein1d& options, const U& u, MatrixView<const NumberOfRow<U>> v,
                      MatrixView<const NumberOfRow<U>> u_weights = {}, MatrixView<const NumberOfRow<U>> v_weights = {}) {
  double distance;
  wasserstein_1d(options, read_only(row_view(u)), v, u_weights, v_weights, std::span(&distance, 1));
  return distance;
}
template <RowOfNumbers P>
double wasserstein_histogram(const WassersteinHistogram& options, const P& p, MatrixView<const NumberOfRow<P>> q,
                             std::span<const double> support) {
  double distance;
  wasserstein_histogram(options, read_only(row_view(p)), q, support, std::span(&distance, 1));
  return distance;
}

// The functions above for views that may write, and for potentials in containers.
template <WritableView U>
void wasserstein_1d(const Wasserstein1d& options, const U& u, MatrixView<const NumberIn<U>> v,
                    MatrixView<const NumberIn<U>> u_weights, MatrixView<const NumberIn<U>> v_weights,
                    std::span<double> distance, MatrixView<NumberIn<U>> du = {}, MatrixView<NumberIn<U>> dv = {}) {
  wasserstein_1d(options, read_only(u), v, u_weights, v_weights, distance, du, dv);
}
template <WritableView P>
void wasserstein_histogram(const WassersteinHistogram& options, const P& p, MatrixView<const NumberIn<P>> q,
                           std::span<const double> support, std::span<double> distance, MatrixView<NumberIn<P>> dp = {},
                           MatrixView<NumberIn<P>> dq = {}) {
  wasserstein_histogram(options, read_only(p), q, support, distance, dp, dq);
}
template <WritableView X>
double wasserstein(const Wasserstein& options, const X& x, MatrixView<const NumberIn<X>> y, std::span<const NumberIn<X>> a = {},
                   std::span<const NumberIn<X>> b = {}, MatrixView<NumberIn<X>> plan = {}) {
  return wasserstein(options, read_only(x), y, a, b, plan);
}
template <WritableView X>
SlicedWassersteinResult sliced_wasserstein(const SlicedWasserstein& options, const X& x, MatrixView<const NumberIn<X>> y,
                                           std::span<const NumberIn<X>> a, std::span<const NumberIn<X>> b,
                                           MatrixView<const double> directions) {
  return sliced_wasserstein(options, read_only(x), y, a, b, directions);
}
template <WritableView P>
SinkhornBarycenterResult sinkhorn_barycenter(const SinkhornBarycenter& options, const P& p,
                                             std::span<const NumberIn<P>> weights, MatrixView<const NumberIn<P>> cost,
                                             std::span<NumberIn<P>> barycenter, MatrixView<NumberIn<P>> f = {},
                                             MatrixView<NumberIn<P>> g = {}) {
  return sinkhorn_barycenter(options, read_only(p), weights, cost, barycenter, f, g);
}
template <WritableView X>
double sinkhorn_divergence(const SinkhornDivergence& options, const X& x, MatrixView<const NumberIn<X>> y,
                           std::span<const NumberIn<X>> a = {}, std::span<const NumberIn<X>> b = {}) {
  return sinkhorn_divergence(options, read_only(x), y, a, b);
}
template <WritableView X>
double unbalanced_sinkhorn_divergence(const UnbalancedSinkhornDivergence& options, const X& x, MatrixView<const NumberIn<X>> y,
                                      std::span<const NumberIn<X>> a = {}, std::span<const NumberIn<X>> b = {}) {
  return unbalanced_sinkhorn_divergence(options, read_only(x), y, a, b);
}
template <WritableView C>
void c_transform(std::span<const NumberIn<C>> f, const C& cost, std::span<NumberIn<C>> g) {
  c_transform(f, read_only(cost), g);
}
template <WritableView D>
double lipschitz_constant(std::span<const NumberIn<D>> f, const D& distance) {
  return lipschitz_constant(f, read_only(distance));
}
template <RowOfNumbers F>
double dual_value(const F& f, std::span<const NumberOfRow<F>> g, std::span<const NumberOfRow<F>> a,
                  std::span<const NumberOfRow<F>> b) {
  return dual_value<NumberOfRow<F>>(std::span<const NumberOfRow<F>>(f), g, a, b);
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

inline constexpr Absence kTransportNotIn[] = {{Door::device, "on a device it is composed of row kernels and torch's products"},
                                              {Door::ranks, "masses are not split"},
                                              {Door::web, "left out, because each page loads the library"}};
// Those that the page shows.
inline constexpr std::span<const Absence> kShownTransportNotIn = std::span(kTransportNotIn).first(2);
inline constexpr ArrayInfo kLineArrays[] = {{.name = "u"},
                                            {.name = "v"},
                                            {.name = "u_weights", .optional = true},
                                            {.name = "v_weights", .optional = true},
                                            {.name = "value", .kind = ArrayKind::number, .output = true},
                                            {.name = "du", .output = true, .optional = true},
                                            {.name = "dv", .output = true, .optional = true}};
inline constexpr ArrayInfo kHistogramArrays[] = {{.name = "p"},
                                                 {.name = "q"},
                                                 {.name = "support", .kind = ArrayKind::vector, .optional = true},
                                                 {.name = "value", .kind = ArrayKind::number, .output = true},
                                                 {.name = "dp", .output = true, .optional = true},
                                                 {.name = "dq", .output = true, .optional = true}};
inline constexpr ArrayInfo kSlicedArrays[] = {{.name = "x", .kind = ArrayKind::points},
                                              {.name = "y", .kind = ArrayKind::points},
                                              {.name = "a", .kind = ArrayKind::vector, .optional = true},
                                              {.name = "b", .kind = ArrayKind::vector, .optional = true},
                                              {.name = "directions", .kind = ArrayKind::points},
                                              {.name = "value", .kind = ArrayKind::scalar, .output = true},
                                              {.name = "error", .kind = ArrayKind::scalar, .output = true, .optional = true}};
inline constexpr ArrayInfo kPointsArrays[] = {{.name = "x", .kind = ArrayKind::points},
                                              {.name = "y", .kind = ArrayKind::points},
                                              {.name = "a", .kind = ArrayKind::vector, .optional = true},
                                              {.name = "b", .kind = ArrayKind::vector, .optional = true},
                                              {.name = "value", .kind = ArrayKind::scalar, .output = true},
                                              {.name = "plan", .kind = ArrayKind::points, .output = true, .optional = true}};
inline constexpr std::span<const ArrayInfo> kPointsWithoutPlan = std::span(kPointsArrays).first(5);
inline constexpr ArrayInfo kBarycenterArrays[] = {
    {.name = "p"},
    {.name = "weights", .kind = ArrayKind::vector, .optional = true},
    {.name = "cost", .kind = ArrayKind::points},
    {.name = "q", .kind = ArrayKind::points, .output = true},
    {.name = "f", .kind = ArrayKind::points, .output = true, .optional = true},
    {.name = "g", .kind = ArrayKind::points, .output = true, .optional = true},
    {.name = "marginal_error", .kind = ArrayKind::scalar, .output = true, .optional = true},
    {.name = "iterations", .kind = ArrayKind::count, .output = true, .optional = true},
    {.name = "converged", .kind = ArrayKind::count, .output = true, .optional = true}};
inline constexpr ArrayInfo kExactArrays[] = {{.name = "a"},
                                             {.name = "b"},
                                             {.name = "cost", .kind = ArrayKind::points},
                                             {.name = "value", .kind = ArrayKind::number, .output = true},
                                             {.name = "plan", .kind = ArrayKind::points, .output = true, .optional = true},
                                             {.name = "f", .output = true, .optional = true},
                                             {.name = "g", .output = true, .optional = true},
                                             {.name = "gap", .kind = ArrayKind::number, .output = true, .optional = true},
                                             {.name = "status", .kind = ArrayKind::integer, .output = true, .optional = true}};
inline constexpr ArrayInfo kPartialArrays[] = {
    {.name = "a"},
    {.name = "b"},
    {.name = "cost", .kind = ArrayKind::points},
    {.name = "value", .kind = ArrayKind::number, .output = true},
    {.name = "plan", .kind = ArrayKind::points, .output = true, .optional = true},
    {.name = "f", .output = true, .optional = true},
    {.name = "g", .output = true, .optional = true},
    {.name = "multiplier", .kind = ArrayKind::number, .output = true, .optional = true},
    {.name = "gap", .kind = ArrayKind::number, .output = true, .optional = true},
    {.name = "status", .kind = ArrayKind::integer, .output = true, .optional = true}};
inline constexpr ArrayInfo kSinkhornArrays[] = {
    {.name = "a"},
    {.name = "b"},
    {.name = "cost", .kind = ArrayKind::points},
    {.name = "value", .kind = ArrayKind::number, .output = true},
    {.name = "plan", .kind = ArrayKind::points, .output = true, .optional = true},
    {.name = "f", .output = true, .optional = true},
    {.name = "g", .output = true, .optional = true},
    {.name = "marginal_error", .kind = ArrayKind::number, .output = true, .optional = true},
    {.name = "lower_bound", .kind = ArrayKind::number, .output = true, .optional = true},
    {.name = "upper_bound", .kind = ArrayKind::number, .output = true, .optional = true},
    {.name = "iterations", .kind = ArrayKind::integer, .output = true, .optional = true},
    {.name = "converged", .kind = ArrayKind::integer, .output = true, .optional = true}};
inline constexpr ArrayInfo kUnbalancedArrays[] = {
    {.name = "a"},
    {.name = "b"},
    {.name = "cost", .kind = ArrayKind::points},
    {.name = "value", .kind = ArrayKind::number, .output = true},
    {.name = "plan", .kind = ArrayKind::points, .output = true, .optional = true},
    {.name = "f", .output = true, .optional = true},
    {.name = "g", .output = true, .optional = true},
    {.name = "gap", .kind = ArrayKind::number, .output = true, .optional = true},
    {.name = "iterations", .kind = ArrayKind::integer, .output = true, .optional = true},
    {.name = "converged", .kind = ArrayKind::integer, .output = true, .optional = true}};
inline constexpr std::string_view kMetrics[] = {"euclidean", "sqeuclidean", "cosine", "cityblock"};

template <>
struct Described<Wasserstein1d> {
  static constexpr Description kDescription = {
      .name = "wasserstein_1d",
      .summary = "The Wasserstein distance of samples on the line, from their quantile functions: W_p, not its power.",
      .formula = "(int_0^1 |F_u^-1(t) - F_v^-1(t)|^order dt)^(1/order)",
      .gradient =
          "in u_i: W^(1-order) sum_j P_ij |u_i - v_j|^(order-1) sign(u_i - v_j), P the optimal plan; at inf that of the "
          "largest distance",
      .source = "Vallender 1974; Santambrogio, Optimal Transport for Applied Mathematicians, 2015, 2.1",
      .arrays = kLineArrays,
      .not_in = kShownTransportNotIn,
  };
  static constexpr auto kParams = Params{Param<Wasserstein1d>{.name = "order",
                                                              .meaning = "the power of distances; inf is their maximum",
                                                              .member = &Wasserstein1d::order,
                                                              .at_least = 1,
                                                              .up_to = std::numeric_limits<double>::infinity()}};
};

template <>
struct Described<WassersteinHistogram> {
  static constexpr Description kDescription = {
      .name = "wasserstein_histogram",
      .summary = "The Wasserstein distance of distributions over one support on the line.",
      .formula = "(int_0^1 |F_p^-1(t) - F_q^-1(t)|^order dt)^(1/order); order 1: int |F_p - F_q|",
      .gradient = "W^(1-order) / order times the Kantorovich potentials, less their mean under p and q; at inf 0",
      .source = "as wasserstein_1d",
      .arrays = kHistogramArrays,
      .not_in = kShownTransportNotIn,
  };
  static constexpr auto kParams = Params{Param<WassersteinHistogram>{.name = "order",
                                                                     .meaning = "the power of distances; inf is their maximum",
                                                                     .member = &WassersteinHistogram::order,
                                                                     .at_least = 1,
                                                                     .up_to = std::numeric_limits<double>::infinity()},
                                         Param<WassersteinHistogram, std::optional<double>>{
                                             .name = "sum_tolerance",
                                             .meaning = "how far a row's sum may be from 1; 1e-4 for float, 1e-6 for double",
                                             .member = &WassersteinHistogram::sum_tolerance,
                                             .at_least = 0}};
};

template <>
struct Described<Wasserstein> {
  static constexpr Description kDescription = {
      .name = "wasserstein",
      .summary = "The exact Wasserstein distance of weighted points in any dimension: W_p, not its power.",
      .formula = "(min <P, d(x_i, y_j)^order> over plans P from a to b)^(1/order)",
      .gradient = "in x_i: W^(1-order) sum_j P_ij d(x_i, y_j)^(order-1) times the gradient of d",
      .source = "Villani, Optimal Transport, 2009",
      .arrays = kPointsArrays,
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams = Params{
      Param<Wasserstein>{.name = "order", .meaning = "the power of distances", .member = &Wasserstein::order, .at_least = 1},
      Param<Wasserstein, Metric>{.name = "metric",
                                 .meaning = "the distance d: |x - y|, its square, 1 - <x, y> / (|x| |y|), or sum_k |x_k - y_k|",
                                 .member = &Wasserstein::metric,
                                 .names = kMetrics}};
};

template <>
struct Described<SlicedWasserstein> {
  static constexpr Description kDescription = {
      .name = "sliced_wasserstein",
      .summary = "The Wasserstein distance of weighted points projected on a line, averaged over directions.",
      .formula = "(mean_theta W_order(<theta, x>, <theta, y>)^order)^(1/order)",
      .gradient = "that of the distances on the line, along their directions",
      .source = "Bonneel, Rabin, Peyre, Pfister, J. Math. Imaging Vis. 2015",
      .arrays = kSlicedArrays,
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams = Params{Param<SlicedWasserstein>{
      .name = "order", .meaning = "the power of distances", .member = &SlicedWasserstein::order, .at_least = 1}};
};

template <>
struct Described<OptimalTransport> {
  static constexpr Description kDescription = {
      .name = "optimal_transport",
      .summary = "The exact plan of least cost that moves the masses a to the masses b, and the potentials that prove it.",
      .formula = "min <P, C> over P >= 0 with row sums a and column sums b = max <a, f> + <b, g> over f_i + g_j <= C_ij",
      .gradient = "d cost / d C = P, d cost / d a = f and d cost / d b = g up to constants",
      .source = "Dantzig 1951; Cunningham, Math. Programming 11, 1976",
      .arrays = kExactArrays,
      .command = "transport",
      .not_in = kShownTransportNotIn,
  };
  static constexpr auto kParams = Params{Param<OptimalTransport, std::optional<double>>{
      .name = "mass_tolerance",
      .meaning = "how far the sums of a and b may differ, relative; 1e-4 for float, 1e-6 for double",
      .member = &OptimalTransport::mass_tolerance,
      .at_least = 0,
      .up_to = 1}};
};

template <>
struct Described<PartialTransport> {
  static constexpr Description kDescription = {
      .name = "partial_transport",
      .summary = "Exact optimal transport of a given part of the masses, the part that costs least.",
      .formula = "min <P, C> over P >= 0 with row sums <= a, column sums <= b and sum P = mass",
      .gradient = "d cost / d C = P, d cost / d a = f, d cost / d b = g and d cost / d mass = multiplier",
      .source = "Caffarelli, McCann, Annals of Mathematics 2010; Chapel, Alaya, Gasso, NeurIPS 2020",
      .arrays = kPartialArrays,
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams = Params{Param<PartialTransport>{.name = "mass",
                                                                 .meaning = "how much is moved",
                                                                 .member = &PartialTransport::mass,
                                                                 .at_least = 0,
                                                                 .required = true,
                                                                 .typical = 0.5}};
};

template <>
struct Described<Sinkhorn> {
  static constexpr Description kDescription = {
      .name = "sinkhorn",
      .summary = "Optimal transport with an entropy term, which gives a smooth plan, and bounds of the exact optimum.",
      .formula = "argmin <P, C> + epsilon KL(P, a b^T); P_ij = a_i b_j exp((f_i + g_j - C_ij) / epsilon)",
      .gradient = "of the minimum: P in C, f and g in a and b up to constants",
      .source =
          "Cuturi, NeurIPS 2013; Altschuler, Weed, Rigollet, NeurIPS 2017, for the rounding; Schmitzer 2019 for the scaling",
      .arrays = kSinkhornArrays,
      .command = "transport --epsilon",
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams = Params{
      Param<Sinkhorn>{.name = "epsilon",
                      .meaning = "weight of the entropy, in units of the cost",
                      .member = &Sinkhorn::epsilon,
                      .above = 0,
                      .required = true,
                      .typical = 0.1},
      Param<Sinkhorn>{
          .name = "tolerance",
          .meaning =
              "stops when the errors of P's column sums add up to at most this, relative to the mass; row sums are exact",
          .member = &Sinkhorn::tolerance,
          .at_least = 0},
      Param<Sinkhorn, std::int64_t>{
          .name = "max_iterations", .meaning = "passes over the matrix", .member = &Sinkhorn::max_iterations, .above = 0},
      Param<Sinkhorn, std::optional<double>>{
          .name = "mass_tolerance",
          .meaning = "how far the sums of a and b may differ, relative; 1e-4 for float, 1e-6 for double",
          .member = &Sinkhorn::mass_tolerance,
          .at_least = 0,
          .up_to = 1}};
};

template <>
struct Described<UnbalancedSinkhorn> {
  static constexpr Description kDescription = {
      .name = "unbalanced_sinkhorn",
      .summary = "Entropy-regularised transport of masses that need not be equal: a penalty replaces the exact marginals.",
      .formula =
          "min <P, C> + epsilon KL(P | a b^T) + penalty (KL(P 1 | a) + KL(P^T 1 | b)), KL(p | q) = sum p log(p / q) - p + q",
      .gradient = "of the minimum: P in C, penalty (1 - s) + epsilon (sum b - s) in a_i, s = exp(-f_i / penalty), and so in b",
      .source = "Chizat, Peyre, Schmitzer, Vialard, Math. Comp. 2018; Sejourne, Vialard, Peyre, AISTATS 2022, for the shift",
      .arrays = kUnbalancedArrays,
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams =
      Params{Param<UnbalancedSinkhorn>{.name = "epsilon",
                                       .meaning = "weight of the entropy, in units of the cost",
                                       .member = &UnbalancedSinkhorn::epsilon,
                                       .above = 0,
                                       .required = true,
                                       .typical = 0.1},
             Param<UnbalancedSinkhorn>{
                 .name = "penalty",
                 .meaning = "weight of the marginals' error; the larger, the nearer the marginals are to a and b",
                 .member = &UnbalancedSinkhorn::penalty,
                 .above = 0,
                 .required = true,
                 .typical = 1},
             Param<UnbalancedSinkhorn>{.name = "tolerance",
                                       .meaning = "stops at a gap of at most this, relative to the sizes of the terms",
                                       .member = &UnbalancedSinkhorn::tolerance,
                                       .at_least = 0},
             Param<UnbalancedSinkhorn, std::int64_t>{.name = "max_iterations",
                                                     .meaning = "passes over the matrix",
                                                     .member = &UnbalancedSinkhorn::max_iterations,
                                                     .above = 0}};
};

template <>
struct Described<SinkhornBarycenter> {
  static constexpr Description kDescription = {
      .name = "sinkhorn_barycenter",
      .summary =
          "The distribution nearest to several distributions on one support: a mean that moves mass instead of mixing it.",
      .formula = "argmin_q sum_k weights_k min_P <P, C> - epsilon H(P) over plans P from p_k to q",
      .gradient = "of q by the implicit function theorem",
      .source = "Benamou, Carlier, Cuturi, Nenna, Peyre, SIAM J. Sci. Comput. 2015",
      .arrays = kBarycenterArrays,
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams =
      Params{Param<SinkhornBarycenter>{.name = "epsilon",
                                       .meaning = "weight of the entropy, which also blurs the result, in units of the cost",
                                       .member = &SinkhornBarycenter::epsilon,
                                       .above = 0,
                                       .required = true,
                                       .typical = 0.1},
             Param<SinkhornBarycenter>{.name = "tolerance",
                                       .meaning = "stops at a marginal error of at most this",
                                       .member = &SinkhornBarycenter::tolerance,
                                       .at_least = 0},
             Param<SinkhornBarycenter, std::int64_t>{.name = "max_iterations",
                                                     .meaning = "passes over the matrices",
                                                     .member = &SinkhornBarycenter::max_iterations,
                                                     .above = 0}};
};

template <>
struct Described<SinkhornDivergence> {
  static constexpr Description kDescription = {
      .name = "sinkhorn_divergence",
      .summary = "A smooth distance of weighted points: entropy-regularised transport without its bias.",
      .formula = "S(x, y) - (S(x, x) + S(y, y)) / 2, S(x, y) = min <P, |x_i - y_j|^order> + epsilon KL(P, a b^T)",
      .gradient = "by the envelope theorem that of the costs under the three plans",
      .source = "Genevay, Peyre, Cuturi, AISTATS 2018; Feydy et al., AISTATS 2019",
      .arrays = kPointsWithoutPlan,
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams =
      Params{Param<SinkhornDivergence>{.name = "epsilon",
                                       .meaning = "weight of the entropy, in units of distance to the power",
                                       .member = &SinkhornDivergence::epsilon,
                                       .above = 0,
                                       .required = true,
                                       .typical = 0.1},
             Param<SinkhornDivergence>{
                 .name = "order", .meaning = "the power of distances", .member = &SinkhornDivergence::order, .at_least = 1},
             Param<SinkhornDivergence>{.name = "tolerance",
                                       .meaning = "stops when the errors of column sums add up to at most this",
                                       .member = &SinkhornDivergence::tolerance,
                                       .at_least = 0},
             Param<SinkhornDivergence, std::int64_t>{.name = "max_iterations",
                                                     .meaning = "passes over each matrix",
                                                     .member = &SinkhornDivergence::max_iterations,
                                                     .above = 0}};
};

template <>
struct Described<UnbalancedSinkhornDivergence> {
  static constexpr Description kDescription = {
      .name = "unbalanced_sinkhorn_divergence",
      .summary = "A smooth distance of weighted points whose masses differ: unbalanced_sinkhorn's minimum without its bias.",
      .formula =
          "U(x, y) - (U(x, x) + U(y, y)) / 2 + epsilon (sum a - sum b)^2 / 2, U the minimum of unbalanced_sinkhorn with "
          "costs |x_i - y_j|^order",
      .gradient = "by the envelope theorem that of the minima under the three plans",
      .source = "Sejourne, Feydy, Vialard, Trouve, Peyre, arXiv:1910.12958",
      .arrays = kPointsWithoutPlan,
      .not_in = kTransportNotIn,
  };
  static constexpr auto kParams = Params{
      Param<UnbalancedSinkhornDivergence>{.name = "epsilon",
                                          .meaning = "weight of the entropy, in units of distance to the power",
                                          .member = &UnbalancedSinkhornDivergence::epsilon,
                                          .above = 0,
                                          .required = true,
                                          .typical = 0.1},
      Param<UnbalancedSinkhornDivergence>{.name = "penalty",
                                          .meaning = "weight of the marginals' error, in these units",
                                          .member = &UnbalancedSinkhornDivergence::penalty,
                                          .above = 0,
                                          .required = true,
                                          .typical = 1},
      Param<UnbalancedSinkhornDivergence>{
          .name = "order", .meaning = "the power of distances", .member = &UnbalancedSinkhornDivergence::order, .at_least = 1},
      Param<UnbalancedSinkhornDivergence>{.name = "tolerance",
                                          .meaning = "as unbalanced_sinkhorn's",
                                          .member = &UnbalancedSinkhornDivergence::tolerance,
                                          .at_least = 0},
      Param<UnbalancedSinkhornDivergence, std::int64_t>{.name = "max_iterations",
                                                        .meaning = "passes over each matrix",
                                                        .member = &UnbalancedSinkhornDivergence::max_iterations,
                                                        .above = 0}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

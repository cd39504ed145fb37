// The kernels of every SIMD target for transport: passes over the rows of a cost matrix.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "isentropic/matrix_view.h"
#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The arcs that may enter the basis of the network simplex, and their costs.
struct Pricing {
  enum class Kind {
    cost,         // every arc at its cost; +inf never enters
    feasibility,  // arcs of cost at most `limit`, at cost 0
    masked,       // those of these arcs that join nodes of one level, at their cost
  };
  Kind kind = Kind::cost;
  double limit = 0;
  const double* levels = nullptr;  // levels of the columns
  double level = 0;                // level of this row
};

// Arcs that are likely to enter, in pieces of kPiece; each row has `pieces` of them.
struct Shortlists {
  static constexpr std::size_t kPiece = 24;
  const double* cost;
  const std::int32_t* column;
  std::size_t pieces;
};

struct EnteringArc {
  double reduced;
  std::int32_t row, column;  // row -1: none
};

template <class T>
struct TransportKernels {
  // The least c_j + p_j, +inf if there is none.
  double (*least)(const Pricing&, const T* c, const double* p, std::size_t m);
  // The first j with c_j + p_j = sum, or m.
  std::size_t (*find)(const Pricing&, const T* c, const double* p, std::size_t m, double sum);
  // Stores each j with c_j + p_j <= limit and its sum, in order; returns their number.
  std::size_t (*below)(const Pricing&, const T* c, const double* p, std::size_t m, double limit, double* sums,
                       std::int32_t* columns);
  // The smallest reduced cost, if below -tolerance, in pieces [begin, end).
  EnteringArc (*price)(const Shortlists&, const double* row_potentials, const double* p, std::size_t begin, std::size_t end,
                       double tolerance);
  // minima_j = min(minima_j, c_j - shift).
  void (*column_minima)(const T* c, double shift, std::size_t m, double* minima);
  // The largest |c_j| below +inf, or 0.
  double (*largest_size)(const T* c, std::size_t m);
  // exponentials_j = exp((p_j - c_j - max) / epsilon) and their sum; returns the maximum of p_j - c_j, which must be finite.
  double (*exponentials)(const T* c, const double* p, std::size_t m, double epsilon, double* exponentials, double* sum);
  // to_j += factor from_j.
  void (*accumulate)(const double* from, double factor, std::size_t m, double* to);
  // For four rows of m numbers, one after the other: products_r = <row_r, v>, and to_j += sum_r factors_r row_r[j].
  void (*four_products)(const double* rows, const double* v, std::size_t m, double* products);
  void (*accumulate_four)(const double* rows, const double* factors, std::size_t m, double* to);
  // The first c_j that is NaN or -inf, or m.
  std::size_t (*find_invalid)(const T* c, std::size_t m);
};

// The functions of the best target, or of the forced one.
template <class T>
TransportKernels<T> transport_kernels();

// The largest |c_ij| below +inf, or 0.
template <class T>
double largest_size(const TransportKernels<T>& kernels, const MatrixView<const T>& cost) {
  double largest = 0;
  for (std::size_t i = 0; i < cost.rows; ++i) largest = std::max(largest, kernels.largest_size(cost.row(i), cost.cols));
  return largest;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

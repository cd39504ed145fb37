// A call of attention as its kernels see it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "isentropic/attention.h"
#include "src/calibration/scale.h"
#include "src/maps/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {

inline double sqrt_scale(std::size_t d) { return 1 / std::sqrt(static_cast<double>(d)); }

template <class T>
struct AttentionCall {
  HeadsView<const T> q, k, v;
  HeadsView<T> out;
  const Attention& options;
  const AttentionMask<T>& mask;
  const AttentionDetails<T>& details;
  MapKernels<T> map;
  std::size_t group;                                  // number of heads of q that share a head of k
  std::span<const double> numbers = {}, kappas = {};  // empty, or one for each query
  std::span<const T> sinks = {};                      // the same

  // The number of scores of a query besides those of keys.
  std::size_t further() const { return sinks.empty() ? 0 : 1; }
  std::size_t query(std::size_t b, std::size_t h, std::size_t r) const { return (b * q.heads + h) * q.rows + r; }

  // The largest number of keys that the queries below `query` see.
  std::size_t keys_before(std::size_t query) const {
    const std::size_t m = q.rows, n = k.rows;
    if (!options.causal) return n;
    return query + n < m ? 0 : query + n - m;
  }

  // The factor of <q, k> for a query that sees `seen` keys, by the query's number.
  double scale_of(std::size_t seen, std::size_t at) const {
    switch (options.scale) {
      case Attention::Scale::number:
        return numbers.empty() ? options.number : numbers[at];
      case Attention::Scale::entropy_invariant:
      case Attention::Scale::log_n: {
        if (seen == 0 || q.cols == 0) return 0;
        const std::optional<double> kappa = kappas.empty() ? options.kappa : kappas[at];
        const auto n = static_cast<double>(seen), d = static_cast<double>(q.cols);
        if (kappa && options.scale == Attention::Scale::log_n) return *kappa * std::log(n) / std::sqrt(d);
        return scale_of_length(n, d, {options.train_length, kappa});
      }
      default:
        return sqrt_scale(q.cols);
    }
  }
  // The derivative of this factor in kappa.
  double slope_in_kappa(std::size_t seen) const {
    if (seen == 0 || q.cols == 0) return 0;
    const auto d = static_cast<double>(q.cols);
    return std::log(static_cast<double>(seen)) / (options.scale == Attention::Scale::log_n ? std::sqrt(d) : d);
  }
};

template <class T>
struct VjpCall {
  HeadsView<const T> g;
  HeadsView<T> dq, dk, dv;
  std::span<const T> g_entropy;  // empty, or a number for each query; so are the others
  std::span<T> dsinks = {};
  std::span<double> dnumbers = {}, dkappas = {};
};

// Consecutive queries of one head, and memory to compute them in.
template <class T>
struct Tile {
  std::size_t batch, head, first, count;
  std::size_t cols;        // keys that any of the queries may see
  std::size_t stride;      // stride of rows of scores: whole panels
  const T *keys, *values;  // of this head, in panels
  T *q, *out;              // count rows of d and of dv
  T *s, *p, *g;            // count rows of scores, of distributions (perhaps the same) and of gradients
  T* slopes;               // of softcap in each score, or null
  bool* blocks;            // of kTermsAtOnce keys: whether a query of the tile may have mass there
  std::size_t* seen;
  double* scale;
  Arena memory;            // the map's
  RowsOf<PerRow> per_row;  // for these queries
  RowsOf<ParamGradient> gradients;
};

// One head of linear attention.
template <class T>
struct LinearHead {
  std::size_t m, n, d, dv;
  double scale;
  bool causal;
  const T *q, *k, *v;
  std::ptrdiff_t q_row, k_row, v_row;
  bool* cancels;  // m: set for the queries whose results are left to the quadratic form
  T* out = nullptr;
  std::ptrdiff_t out_row = 0;
};

// The gradient of one head of linear attention.
template <class T>
struct LinearVjp {
  const T* g;
  T *dq, *dk, *dv;
  std::ptrdiff_t g_row, dq_row, dk_row, dv_row;
};

template <class T>
struct AttentionKernels {
  void (*pack)(HeadsView<const T>, std::size_t b, std::size_t h, T* packed);
  void (*tile)(const AttentionCall<T>&, const Tile<T>&);
  void (*vjp_tile)(const AttentionCall<T>&, const VjpCall<T>&, const Tile<T>&);
  std::size_t (*linear_room)(std::size_t m, std::size_t d, std::size_t dv);  // of memory
  void (*linear)(const LinearHead<T>&, Arena memory);
  std::size_t (*linear_vjp_room)(std::size_t m, std::size_t d, std::size_t dv);
  void (*linear_vjp)(const LinearHead<T>&, const LinearVjp<T>&, Arena memory);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

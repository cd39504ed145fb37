// Maps from scores x to distributions p: every row of a batch becomes non-negative numbers of sum 1.
//
// Rules for every map:
//   a NaN anywhere in a row    that row is all NaN, no other row changes
//   -inf score                 probability exactly 0, gradient exactly 0: as if the entry were absent
//   +inf scores                they share the mass equally, everything else gets 0, the gradient is 0
//   all scores -inf            no distribution exists: the row is NaN
//   rows = 0 or cols = 0       nothing happens
//   sum                        |sum p - 1| <= 1e-6 (float), 1e-14 max(1, log2 n) (double)
//   reproducible               the same bits for any number of threads, any batch, any SIMD target with FMA
#pragma once

#include <variant>

#include "entropic/matrix_view.h"
#include "entropic/operation.h"

namespace entropic {

struct Softmax {
  double temperature = 1;

  static constexpr Description kDescription = {
      .name = "softmax",
      .summary = "The distribution of largest entropy for a given mean score.",
      .formula = "p_i = exp(x_i/T) / sum_j exp(x_j/T)",
      .gradient = "p (g - <g,p>) / T",
      .source = "Boltzmann 1868; Bridle, NATO ASI F68, 1990",
  };
  static constexpr auto kParams = std::tuple{
      Param<Softmax>{.name = "temperature", .meaning = "T, divides the scores", .member = &Softmax::temperature, .above = 0}};
};

struct Sparsemax {
  double temperature = 1;

  static constexpr Description kDescription = {
      .name = "sparsemax",
      .summary = "The distribution nearest to the scores in Euclidean distance; low scores get exactly 0.",
      .formula = "p = argmin_p |p - x/T|^2 = max(x/T - tau, 0), tau such that sum p = 1",
      .gradient = "(g - mean of g over the support) / T on the support, 0 elsewhere",
      .source = "Martins, Astudillo, ICML 2016",
      .sparse = true,
  };
  static constexpr auto kParams = std::tuple{Param<Sparsemax>{
      .name = "temperature", .meaning = "T, divides the scores", .member = &Sparsemax::temperature, .above = 0}};
};

// Every map there is.
using Map = std::variant<Softmax, Sparsemax>;

// p = map(x), row by row.
//
// Shapes: x and p rows x cols; p may be x itself, other overlaps are refused.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p);

// dx = J^T g at the scores x, where p = map(x): the gradient of <g, p> in x.
//
// Shapes: all rows x cols; dx may be x, p or g, other overlaps are refused. Where p is 0 by a -inf score, g is not read.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
void apply_vjp(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> p,
               MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx);

// The two below are not distributions and so not maps, but share softmax's arithmetic.

struct LogSoftmax {
  double temperature = 1;

  static constexpr Description kDescription = {
      .name = "log_softmax",
      .summary = "The logarithm of softmax, accurate where softmax underflows.",
      .formula = "y_i = x_i/T - log sum_j exp(x_j/T)",
      .gradient = "(g - exp(y) sum g) / T",
      .source = "see softmax",
  };
  static constexpr auto kParams = std::tuple{Param<LogSoftmax>{
      .name = "temperature", .meaning = "T, divides the scores", .member = &LogSoftmax::temperature, .above = 0}};
};

struct LogSumExp {
  double temperature = 1;

  static constexpr Description kDescription = {
      .name = "logsumexp",
      .summary = "The smooth maximum of a row; its gradient is softmax.",
      .formula = "y = T log sum_i exp(x_i/T)",
      .gradient = "g softmax(x/T)",
      .source = "see softmax",
      .shift = false,
      .order = false,
  };
  static constexpr auto kParams = std::tuple{Param<LogSumExp>{
      .name = "temperature", .meaning = "T, divides the scores", .member = &LogSumExp::temperature, .above = 0}};
};

// y = log softmax(x / T). -inf scores give -inf, their gradient is 0 and their g is left out of the sum.
template <class T>
void log_softmax(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y, const LogSoftmax& options = {});
template <class T>
void log_softmax_vjp(MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> y,
                     MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, const LogSoftmax& options = {});

// y = T log sum exp(x / T), one number per row: y and g are rows x 1. An empty or all -inf row gives -inf.
template <class T>
void logsumexp(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y, const LogSumExp& options = {});
template <class T>
void logsumexp_vjp(MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> y,
                   MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, const LogSumExp& options = {});

}  // namespace entropic

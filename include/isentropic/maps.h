// Maps from scores x to distributions p: every row of a batch becomes non-negative numbers of sum 1.
//
//   std::vector<double> x = {2, 1, 0.1}, p(3);
//   isentropic::apply(isentropic::Entmax{.alpha = 1.5}, x, p);  // p = 0.83, 0.17, 0
//   std::vector<double> batch = {2, 1, 0.1, 1, 2, 3};
//   const isentropic::MatrixView rows(batch, 2, 3);
//   isentropic::apply(isentropic::Softmax{}, rows, rows);  // batch = 0.66, 0.24, 0.10, 0.09, 0.24, 0.67
//
// Rules for every map:
//   a NaN anywhere in a row    that row is all NaN, no other row changes
//   -inf score                 probability exactly 0, gradient exactly 0: as if the entry were absent
//   +inf scores                they share the mass equally (top_k_softmax: the first k of them, top_p_softmax: the first
//                              ceil(p m) of m), everything else gets 0, the gradient is 0
//   all scores -inf            no distribution exists: the row is NaN
//   rows = 0 or cols = 0       nothing happens
//   sum                        |sum p - 1| <= 1e-6 (float), 1e-14 max(1, log2 n) (double)
//   reproducible               the same bits for any number of threads, any batch, any SIMD target with FMA
//   float16, bfloat16          the float result, rounded; gradients recompute p in float and ignore the rounded p
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/half.h"
#include "isentropic/input.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

//   p_i = exp(x_i/T) / sum_j exp(x_j/T)
struct Softmax {
  double temperature = 1;  // T, divides the scores
};

//   p = argmin_p |p - x/T|^2 = max(x/T - tau, 0), tau such that sum p = 1
struct Sparsemax {
  double temperature = 1;  // T, divides the scores
};

//   p = argmax_p <p, x/T> + (1 - sum p^alpha) / (alpha (alpha - 1)) = max((alpha - 1) x/T - tau, 0)^(1/(alpha - 1))
struct Entmax {
  double alpha = 1.5;      // order of the entropy: 1 is softmax, 2 sparsemax, larger sparser
  double temperature = 1;  // T, divides the scores
};

//   p_i = f(x_i) / sum_j f(x_j), f(x) = sum_{m <= order} x^m / m!
struct TaylorSoftmax {
  std::int64_t order = 2;  // degree of the polynomial, even
};

//   p_i = exp(x_i) s(x_i) / sum_j exp(x_j) s(x_j), s(x) = 1 / (1 + exp(-x))
struct SigSoftmax {};

//   p_i = exp(x_i/T) / sum_{j in K} exp(x_j/T) for i in K, K the k largest
struct TopKSoftmax {
  std::int64_t k = 0;      // number of scores that keep mass; a k above the number of scores keeps all
  double temperature = 1;  // T, divides the scores
};

//   p_i = exp(x_i/T) / sum_{j in K} exp(x_j/T) for i in K, K the fewest largest with softmax mass >= p
// If the mass of the largest scores is within 2^-20 (float) or 2^-40 (double) of p, rounding decides whether one more is kept.
struct TopPSoftmax {
  double p = 0;            // sum of probabilities to reach; 1 keeps all
  double temperature = 1;  // T, divides the scores
};

//   p_i = exp(x_i/T) / sum_{j in K} exp(x_j/T) for i in K = {x_i/T >= max x/T + log p}
struct MinPSoftmax {
  double p = 0;            // least share of the largest probability that keeps mass
  double temperature = 1;  // T, divides the scores
};

//   p_i = P(argmax_j (x_j + scale e_j) = i), e_j independent; softmax if gumbel
// perturb_max.h takes noise of any other kind.
struct PerturbMax {
  enum class Noise { gumbel, normal, logistic, laplace, exponential, uniform };

  Noise noise = Noise::gumbel;  // distribution of the noise, in its standard form; uniform is on [0, 1]
  double scale = 1;             // multiplies the noise
};

//   p = softmax(gamma x), gamma > 0 such that -sum p log p is the entropy, or exp of it the perplexity
struct EntropyNormalize {
  // in nats; if it cannot be reached, the nearest: uniform over the largest scores, or over all
  std::optional<double> entropy = {};
  std::optional<double> perplexity = {};  // exp(entropy), the number of equal scores that have it
  Input input = Input::scores;

  constexpr std::string_view check() const {
    return entropy.has_value() == perplexity.has_value() ? "exactly one of entropy and perplexity must be given" : "";
  }
};

//   p = softmax(gamma x), gamma = 1 where min_entropy <= -sum p log p <= max_entropy for that p
struct EntropyClip {
  std::optional<double> min_entropy = {};  // least entropy, in nats
  std::optional<double> max_entropy = {};  // largest entropy, in nats
  Input input = Input::scores;

  constexpr std::string_view check() const {
    return min_entropy && max_entropy && !(*min_entropy <= *max_entropy) ? "min_entropy must be at most max_entropy" : "";
  }
};

// Every map.
using Map = std::variant<Softmax, Sparsemax, Entmax, TaylorSoftmax, SigSoftmax, TopKSoftmax, TopPSoftmax, MinPSoftmax,
                         PerturbMax, EntropyNormalize, EntropyClip>;

// p = map(x), row by row. `per_row` gives per_row parameters a value for each row, which replaces the map's own.
//
// Shapes: x and p rows x cols; p may be x itself, other overlaps are refused. Values of per_row: rows.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                          std::span<const PerRow> per_row = {});

// dx = J^T g at the scores x, where p = map(x): the gradient of <g, p> in x. `gradients` takes the gradients in parameters.
//
// Shapes: all rows x cols; dx may be x, p or g, other overlaps are refused. g is not read at -inf scores.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void apply_vjp(const Map& map, MatrixView<const std::type_identity_t<T>> x,
                              MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                              MatrixView<T> dx, std::span<const PerRow> per_row = {},
                              std::span<const ParamGradient> gradients = {});

// p = map(x) and dx = J^T g for one row.
template <RowOfNumbers X, RowOfNumbers P>
void apply(const Map& map, const X& x, P&& p) {
  apply(map, row_view(x), row_view(p));
}
template <RowOfNumbers X, RowOfNumbers P, RowOfNumbers G, RowOfNumbers Dx>
void apply_vjp(const Map& map, const X& x, const P& p, const G& g, Dx&& dx) {
  apply_vjp(map, row_view(x), row_view(p), row_view(g), row_view(dx));
}

// log_softmax and logsumexp are not distributions and so not maps, but share softmax's arithmetic.

//   y_i = x_i/T - log sum_j exp(x_j/T)
struct LogSoftmax {
  double temperature = 1;  // T, divides the scores
};

//   y = T log sum_i exp(x_i/T)
struct LogSumExp {
  double temperature = 1;  // T, divides the scores
};

// Nor are the shares of soft_top_k, which add up to k.

//   p_i = s((x_i - tau) / T), s(v) = 1 / (1 + exp(-v)), tau such that sum p = k
struct SoftTopK {
  double k = 0;            // sum of the shares; it need not be a whole number
  double temperature = 1;  // T, divides the scores: the smaller, the nearer to 0 and 1
};

// y = log softmax(x / T). -inf scores give -inf, their gradient is 0 and their g is left out of the sum.
template <class T>
ISENTROPIC_API void log_softmax(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                                std::span<const PerRow> per_row = {});
template <class T>
ISENTROPIC_API void log_softmax_vjp(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x,
                                    MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g,
                                    MatrixView<T> dx, std::span<const PerRow> per_row = {},
                                    std::span<const ParamGradient> gradients = {});

// y = T log sum exp(x / T), one number per row: y and g are rows x 1. An empty or all -inf row gives -inf.
template <class T>
ISENTROPIC_API void logsumexp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                              std::span<const PerRow> per_row = {});
template <class T>
ISENTROPIC_API void logsumexp_vjp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x,
                                  MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g,
                                  MatrixView<T> dx, std::span<const PerRow> per_row = {},
                                  std::span<const ParamGradient> gradients = {});

// Shares between 0 and 1 of sum k: those of <p, x> + T sum_i H(p_i) at its largest, H the entropy of p_i and 1 - p_i.
//
// A score of -inf has no share. Where k is at least the number of finite scores, these get 1; +inf scores get 1, or equal
// shares if they are more than k. A row with NaN is NaN.
//
// Shapes: as those of apply. Error of p: 4 eps. Throws: as apply.
template <class T>
ISENTROPIC_API void soft_top_k(const SoftTopK& op, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                               std::span<const PerRow> per_row = {});

// dx = J^T g from the scores alone: p is not read. Scores that are not finite have a gradient of 0.
template <class T>
ISENTROPIC_API void soft_top_k_vjp(const SoftTopK& op, MatrixView<const std::type_identity_t<T>> x,
                                   MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                                   MatrixView<T> dx, std::span<const PerRow> per_row = {},
                                   std::span<const ParamGradient> gradients = {});

// log_softmax, logsumexp, soft_top_k and their gradients for one row.
template <RowOfNumbers X, RowOfNumbers Y>
void log_softmax(const LogSoftmax& options, const X& x, Y&& y) {
  log_softmax(options, row_view(x), row_view(y));
}
template <RowOfNumbers X, RowOfNumbers Y, RowOfNumbers G, RowOfNumbers Dx>
void log_softmax_vjp(const LogSoftmax& options, const X& x, const Y& y, const G& g, Dx&& dx) {
  log_softmax_vjp(options, row_view(x), row_view(y), row_view(g), row_view(dx));
}
template <RowOfNumbers X, RowOfNumbers P>
void soft_top_k(const SoftTopK& op, const X& x, P&& p) {
  soft_top_k(op, row_view(x), row_view(p));
}
template <RowOfNumbers X, RowOfNumbers P, RowOfNumbers G, RowOfNumbers Dx>
void soft_top_k_vjp(const SoftTopK& op, const X& x, const P& p, const G& g, Dx&& dx) {
  soft_top_k_vjp(op, row_view(x), row_view(p), row_view(g), row_view(dx));
}
template <RowOfNumbers X>
auto logsumexp(const LogSumExp& options, const X& x) {
  std::ranges::range_value_t<X> y;
  logsumexp(options, row_view(x), MatrixView(&y, 1, 1));
  return y;
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

// The arrays of a map and of its gradient.
inline constexpr ArrayInfo kMapArrays[] = {{.name = "x"}, {.name = "y", .output = true}};
inline constexpr ArrayInfo kMapGradient[] = {{.name = "x"}, {.name = "y"}, {.name = "grad"}, {.name = "dx", .output = true}};
inline constexpr ArrayInfo kLogSumExpArrays[] = {{.name = "x"}, {.name = "y", .kind = ArrayKind::entry, .output = true}};
inline constexpr ArrayInfo kLogSumExpGradient[] = {{.name = "x"},
                                                   {.name = "y", .kind = ArrayKind::entry},
                                                   {.name = "grad", .kind = ArrayKind::entry},
                                                   {.name = "dx", .output = true}};
inline constexpr Absence kSoftTopKNotIn[] = {{Door::device, "on a device it is composed of torch's operations"},
                                             {Door::web, "left out, because each page loads the library"},
                                             {Door::ranks, "it is not written in sums over parts of a row"}};

template <>
struct Described<Softmax> {
  static constexpr Description kDescription = {
      .name = "softmax",
      .summary = "Exponentials of the scores, divided by their sum: the distribution of largest entropy for its mean score.",
      .formula = "p_i = exp(x_i/T) / sum_j exp(x_j/T)",
      .gradient = "p (g - <g,p>) / T",
      .source = "Boltzmann 1868; Bridle, NATO ASI F68, 1990",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true, .of_result = true},
  };
  static constexpr Laws kLaws = {};
  static constexpr auto kParams = Params{Param<Softmax>{
      .name = "temperature", .meaning = "T, divides the scores", .member = &Softmax::temperature, .above = 0, .per_row = true}};
};

template <>
struct Described<Sparsemax> {
  static constexpr Description kDescription = {
      .name = "sparsemax",
      .summary = "The distribution nearest to the scores in Euclidean distance; low scores get exactly 0.",
      .formula = "p = argmin_p |p - x/T|^2 = max(x/T - tau, 0), tau such that sum p = 1",
      .gradient = "(g - mean of g over the support) / T on the support, 0 elsewhere",
      .source = "Martins, Astudillo, ICML 2016",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true, .of_result = true},
  };
  static constexpr Laws kLaws = {.sparse = true, .absolute_error = 4};
  static constexpr auto kParams = Params{Param<Sparsemax>{.name = "temperature",
                                                          .meaning = "T, divides the scores",
                                                          .member = &Sparsemax::temperature,
                                                          .above = 0,
                                                          .per_row = true}};
};

template <>
struct Described<Entmax> {
  static constexpr Description kDescription = {
      .name = "entmax",
      .summary =
          "A family from softmax (alpha = 1) to sparsemax (alpha = 2) and beyond; low scores get exactly 0 where alpha is "
          "above 1.",
      .formula =
          "p = argmax_p <p, x/T> + (1 - sum p^alpha) / (alpha (alpha - 1)) = max((alpha - 1) x/T - tau, 0)^(1/(alpha - 1))",
      .gradient = "s (g - <s,g> / sum s) / T, s = p^(2 - alpha) on the support",
      .source = "Peters, Niculae, Martins, ACL 2019; alpha's gradient: Correia, Niculae, Martins, EMNLP 2019",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true, .of_result = true},
  };
  static constexpr Laws kLaws = {.sparse = true, .absolute_error = 8};
  static constexpr auto kParams =
      Params{Param<Entmax>{.name = "alpha",
                           .meaning = "order of the entropy: 1 is softmax, 2 sparsemax, larger sparser",
                           .member = &Entmax::alpha,
                           .above = 0,
                           .per_row = true},
             Param<Entmax>{.name = "temperature",
                           .meaning = "T, divides the scores",
                           .member = &Entmax::temperature,
                           .above = 0,
                           .per_row = true}};
};

template <>
struct Described<TaylorSoftmax> {
  static constexpr Description kDescription = {
      .name = "taylor_softmax",
      .summary =
          "Softmax with the Taylor polynomial of exp: the tail is longer, and below x = -1 (order 2) a lower score gets more "
          "mass.",
      .formula = "p_i = f(x_i) / sum_j f(x_j), f(x) = sum_{m <= order} x^m / m!",
      .gradient = "r p (g - <g,p>), r = f'(x) / f(x)",
      .source = "de Brebisson, Vincent, ICLR 2016",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient},
      .not_in = kNotSplit,
  };
  static constexpr Laws kLaws = {.shift = false, .order = false};
  static constexpr auto kParams = Params{Param<TaylorSoftmax, std::int64_t>{.name = "order",
                                                                            .meaning = "degree of the polynomial, even",
                                                                            .member = &TaylorSoftmax::order,
                                                                            .above = 0,
                                                                            .up_to = 64,
                                                                            .multiple_of = 2}};
};

template <>
struct Described<SigSoftmax> {
  static constexpr Description kDescription = {
      .name = "sigsoftmax",
      .summary =
          "Softmax with each term multiplied by the logistic function s; it avoids the softmax bottleneck of low-rank scores.",
      .formula = "p_i = exp(x_i) s(x_i) / sum_j exp(x_j) s(x_j), s(x) = 1 / (1 + exp(-x))",
      .gradient = "(2 - s(x)) p (g - <g,p>)",
      .source = "Kanai, Fujiwara, Yamanaka, Adachi, NeurIPS 2018",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient},
      .not_in = kNotSplit,
  };
  static constexpr Laws kLaws = {.shift = false};
  static constexpr auto kParams = Params{};
};

template <>
struct Described<TopKSoftmax> {
  static constexpr Description kDescription = {
      .name = "top_k_softmax",
      .summary = "Softmax over the k largest scores, 0 elsewhere; of equal scores at the cut, the lower index stays.",
      .formula = "p_i = exp(x_i/T) / sum_{j in K} exp(x_j/T) for i in K, K the k largest",
      .gradient = "p (g - <g,p>) / T",
      .source = "Fan, Lewis, Dauphin, ACL 2018",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true, .of_result = true},
  };
  static constexpr Laws kLaws = {.ties_by_index = true, .sparse = true};
  static constexpr auto kParams = Params{
      Param<TopKSoftmax, std::int64_t>{.name = "k",
                                       .meaning = "number of scores that keep mass; a k above the number of scores keeps all",
                                       .member = &TopKSoftmax::k,
                                       .above = 0,
                                       .required = true,
                                       .typical = 3},
      Param<TopKSoftmax>{.name = "temperature",
                         .meaning = "T, divides the scores",
                         .member = &TopKSoftmax::temperature,
                         .above = 0,
                         .per_row = true}};
};

template <>
struct Described<TopPSoftmax> {
  static constexpr Description kDescription = {
      .name = "top_p_softmax",
      .summary =
          "Softmax over the fewest largest scores whose probabilities sum to at least p; of equal scores the lower index "
          "stays.",
      .formula = "p_i = exp(x_i/T) / sum_{j in K} exp(x_j/T) for i in K, K the fewest largest with softmax mass >= p",
      .gradient = "p (g - <g,p>) / T",
      .source = "Holtzman et al., ICLR 2020",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true, .of_result = true},
  };
  static constexpr Laws kLaws = {.ties_by_index = true, .sparse = true};
  static constexpr auto kParams = Params{Param<TopPSoftmax>{.name = "p",
                                                            .meaning = "sum of probabilities to reach; 1 keeps all",
                                                            .member = &TopPSoftmax::p,
                                                            .above = 0,
                                                            .up_to = 1,
                                                            .required = true,
                                                            .typical = 0.9},
                                         Param<TopPSoftmax>{.name = "temperature",
                                                            .meaning = "T, divides the scores",
                                                            .member = &TopPSoftmax::temperature,
                                                            .above = 0,
                                                            .per_row = true}};
};

template <>
struct Described<MinPSoftmax> {
  static constexpr Description kDescription = {
      .name = "min_p_softmax",
      .summary = "Softmax over the scores whose softmax probability is at least p times the largest, 0 elsewhere.",
      .formula = "p_i = exp(x_i/T) / sum_{j in K} exp(x_j/T) for i in K = {x_i/T >= max x/T + log p}",
      .gradient = "p (g - <g,p>) / T",
      .source = "Nguyen et al., ICLR 2025",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true, .of_result = true},
  };
  static constexpr Laws kLaws = {.sparse = true};
  static constexpr auto kParams = Params{Param<MinPSoftmax>{.name = "p",
                                                            .meaning = "least share of the largest probability that keeps mass",
                                                            .member = &MinPSoftmax::p,
                                                            .above = 0,
                                                            .up_to = 1,
                                                            .required = true,
                                                            .typical = 0.1},
                                         Param<MinPSoftmax>{.name = "temperature",
                                                            .meaning = "T, divides the scores",
                                                            .member = &MinPSoftmax::temperature,
                                                            .above = 0,
                                                            .per_row = true}};
};

template <>
struct Described<PerturbMax> {
  static constexpr std::string_view kNoises[] = {"gumbel", "normal", "logistic", "laplace", "exponential", "uniform"};
  static constexpr Description kDescription = {
      .name = "perturb_max",
      .summary =
          "The probability that each score is the largest after noise is added to all; computed by quadrature, without "
          "sampling.",
      .formula = "p_i = P(argmax_j (x_j + scale e_j) = i), e_j independent; softmax if gumbel",
      .gradient = "(1/scale) int h_j (g_j sum h - <g,h>) prod F du, h = f/F at u - x/scale",
      .source = "McFadden 1974; Papandreou, Yuille, ICCV 2011",
      .cost = 100,
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true},
      .not_in = kNotSplit,
  };
  static constexpr Laws kLaws = {.sparse = true, .float_error = 1e-6, .double_error = 1e-10};
  static constexpr auto kParams = Params{
      Param<PerturbMax, PerturbMax::Noise>{.name = "noise",
                                           .meaning = "distribution of the noise, in its standard form; uniform is on [0, 1]",
                                           .member = &PerturbMax::noise,
                                           .names = kNoises},
      Param<PerturbMax>{
          .name = "scale", .meaning = "multiplies the noise", .member = &PerturbMax::scale, .above = 0, .per_row = true}};
};

template <>
struct Described<EntropyNormalize> {
  static constexpr Description kDescription = {
      .name = "entropy_normalize",
      .summary =
          "Softmax at the temperature that gives the distribution a chosen entropy; the scale of the scores has no effect.",
      .formula = "p = softmax(gamma x), gamma > 0 such that -sum p log p is the entropy, or exp of it the perplexity",
      .gradient = "gamma (p (g - <g,p>) - u <g,u> / <u,x>), u = p (x - <x,p>)",
      .source = "Su, kexue.fm 8829, 2021; the perplexity of Hinton, Roweis, NIPS 2002",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true},
  };
  static constexpr Laws kLaws = {.entropy_target = true};
  static constexpr auto kParams = Params{
      Param<EntropyNormalize, std::optional<double>>{
          .name = "entropy",
          .meaning = "in nats; if it cannot be reached, the nearest: uniform over the largest scores, or over all",
          .member = &EntropyNormalize::entropy,
          .at_least = 0,
          .typical = 1,
          .per_row = true},
      Param<EntropyNormalize, std::optional<double>>{.name = "perplexity",
                                                     .meaning = "exp(entropy), the number of equal scores that have it",
                                                     .member = &EntropyNormalize::perplexity,
                                                     .at_least = 1,
                                                     .per_row = true},
      Param<EntropyNormalize, Input>{
          .name = "input",
          .meaning = "what x holds; probabilities q stand for scores log q, and a gradient in q is that in log q divided by q",
          .member = &EntropyNormalize::input,
          .names = kInputs}};
};

template <>
struct Described<EntropyClip> {
  static constexpr Description kDescription = {
      .name = "entropy_clip",
      .summary = "Softmax where its entropy lies in an interval, else entropy_normalize to the nearer end of the interval.",
      .formula = "p = softmax(gamma x), gamma = 1 where min_entropy <= -sum p log p <= max_entropy for that p",
      .gradient = "softmax's inside the interval, entropy_normalize's outside",
      .source = "see entropy_normalize",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true},
  };
  static constexpr Laws kLaws = {.entropy_target = true};
  static constexpr auto kParams = Params{
      Param<EntropyClip, std::optional<double>>{.name = "min_entropy",
                                                .meaning = "least entropy, in nats",
                                                .member = &EntropyClip::min_entropy,
                                                .at_least = 0,
                                                .typical = 1,
                                                .per_row = true},
      Param<EntropyClip, std::optional<double>>{.name = "max_entropy",
                                                .meaning = "largest entropy, in nats",
                                                .member = &EntropyClip::max_entropy,
                                                .at_least = 0,
                                                .typical = 2,
                                                .per_row = true},
      Param<EntropyClip, Input>{
          .name = "input",
          .meaning = "what x holds; probabilities q stand for scores log q, and a gradient in q is that in log q divided by q",
          .member = &EntropyClip::input,
          .names = kInputs}};
};

template <>
struct Described<LogSoftmax> {
  static constexpr Description kDescription = {
      .name = "log_softmax",
      .summary = "The logarithm of softmax, accurate where softmax underflows.",
      .formula = "y_i = x_i/T - log sum_j exp(x_j/T)",
      .gradient = "(g - exp(y) sum g) / T",
      .source = "see softmax",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .of_result = true},
  };
  static constexpr auto kParams = Params{Param<LogSoftmax>{.name = "temperature",
                                                           .meaning = "T, divides the scores",
                                                           .member = &LogSoftmax::temperature,
                                                           .above = 0,
                                                           .per_row = true}};
};

template <>
struct Described<LogSumExp> {
  static constexpr Description kDescription = {
      .name = "logsumexp",
      .summary = "The smooth maximum of a row; its gradient is softmax.",
      .formula = "y = T log sum_i exp(x_i/T)",
      .gradient = "g softmax(x/T)",
      .source = "see softmax",
      .arrays = kLogSumExpArrays,
      .jacobian = {.arrays = kLogSumExpGradient},
  };
  static constexpr auto kParams = Params{Param<LogSumExp>{.name = "temperature",
                                                          .meaning = "T, divides the scores",
                                                          .member = &LogSumExp::temperature,
                                                          .above = 0,
                                                          .per_row = true}};
};

template <>
struct Described<SoftTopK> {
  static constexpr Description kDescription = {
      .name = "soft_top_k",
      .summary = "A smooth choice of the k largest scores: each gets a share between 0 and 1, and the shares add up to k.",
      .formula = "p_i = s((x_i - tau) / T), s(v) = 1 / (1 + exp(-v)), tau such that sum p = k",
      .gradient = "w (g - <w,g> / sum w), w = p (1 - p) / T",
      .source = "Amos, Koltun, Kolter, The Limited Multi-Label Projection Layer, 2019",
      .cost = 20,
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true},
      .not_in = kSoftTopKNotIn,
  };
  static constexpr auto kParams = Params{Param<SoftTopK>{.name = "k",
                                                         .meaning = "sum of the shares; it need not be a whole number",
                                                         .member = &SoftTopK::k,
                                                         .above = 0,
                                                         .required = true,
                                                         .typical = 2,
                                                         .per_row = true},
                                         Param<SoftTopK>{.name = "temperature",
                                                         .meaning = "T, divides the scores: the smaller, the nearer to 0 and 1",
                                                         .member = &SoftTopK::temperature,
                                                         .above = 0,
                                                         .per_row = true}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// perturb_max with your own noise: any type with a log_cdf and a pdf.
//
//   struct Logistic {
//     double log_cdf(double t) const { return -std::log1p(std::exp(-t)); }
//     double pdf(double t) const { return 1 / (2 + std::exp(t) + std::exp(-t)); }
//   };
//   std::vector<double> x = {2, 1, 0.1}, p(3);
//   isentropic::perturb_max(Logistic{}, 1, x, p);  // p = 0.58, 0.28, 0.14
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <concepts>
#include <cstddef>
#include <span>

#include "isentropic/export.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A distribution on the line. log_cdf(-infinity) is -infinity. It may also have `kinks`, a range of doubles: the points where
// the density is not smooth, with the ends of its support.
template <class Noise>
concept NoiseDistribution = requires(const Noise& noise, double t) {
  { noise.log_cdf(t) } -> std::convertible_to<double>;
  { noise.pdf(t) } -> std::convertible_to<double>;
};

// A noise of any type for the library: functions of n points at a time.
struct NoiseFunctions {
  const void* noise;
  void (*log_cdf)(const void* noise, const double* t, std::size_t n, double* y);
  void (*pdf)(const void* noise, const double* t, std::size_t n, double* y);
  std::span<const double> kinks;
};

template <NoiseDistribution Noise>
NoiseFunctions functions_of(const Noise& noise) {
  NoiseFunctions functions = {&noise,
                              [](const void* self, const double* t, std::size_t n, double* y) {
                                for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<const Noise*>(self)->log_cdf(t[i]);
                              },
                              [](const void* self, const double* t, std::size_t n, double* y) {
                                for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<const Noise*>(self)->pdf(t[i]);
                              },
                              {}};
  if constexpr (requires { std::span<const double>(noise.kinks); }) functions.kinks = noise.kinks;
  return functions;
}

template <class T>
ISENTROPIC_API void perturb_max(const NoiseFunctions& noise, double scale, MatrixView<const std::type_identity_t<T>> x,
                                MatrixView<T> p);
template <class T>
ISENTROPIC_API void perturb_max_vjp(const NoiseFunctions& noise, double scale, MatrixView<const std::type_identity_t<T>> x,
                                    MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                                    MatrixView<T> dx);

// p_i = P(argmax_j (x_j + scale e_j) = i) for independent draws e_j of `noise`, by quadrature, without drawing.
//
// Shapes: x and p rows x cols; p may be x itself.
// Error: 1e-6 (float), 1e-10 (double), if log_cdf and pdf have as many digits. Intervals are halved until they contain all of
//     the mass, so tails may be long. They end at kinks, which costs less than finding these. If a row has more than 4096
//     kinks, one that follows another within a 4096th of the relevant line does not count.
// Threads: several threads call the noise at once; it must not throw.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <NoiseDistribution Noise, class T>
void perturb_max(const Noise& noise, double scale, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p) {
  perturb_max(functions_of(noise), scale, MatrixView<const T>(x), p);
}

// dx = J^T g at the scores x, where p = perturb_max(noise, scale, x). dx may be x, p or g.
template <NoiseDistribution Noise, class T>
void perturb_max_vjp(const Noise& noise, double scale, MatrixView<const std::type_identity_t<T>> x,
                     MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                     MatrixView<T> dx) {
  perturb_max_vjp(functions_of(noise), scale, MatrixView<const T>(x), MatrixView<const T>(p), MatrixView<const T>(g), dx);
}

// The same for one row.
template <NoiseDistribution Noise, RowOfNumbers X, RowOfNumbers P>
void perturb_max(const Noise& noise, double scale, const X& x, P&& p) {
  perturb_max(noise, scale, row_view(x), row_view(p));
}
template <NoiseDistribution Noise, RowOfNumbers X, RowOfNumbers P, RowOfNumbers G, RowOfNumbers Dx>
void perturb_max_vjp(const Noise& noise, double scale, const X& x, const P& p, const G& g, Dx&& dx) {
  perturb_max_vjp(noise, scale, row_view(x), row_view(p), row_view(g), row_view(dx));
}

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// Potentials as functions: c-transform, dual value, Lipschitz constant.

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "isentropic/transport.h"
#include "src/check.h"
#include "src/transport/kernels.h"
#include "src/transport/masses.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_count(std::string_view operation, std::string_view name, std::size_t size, std::string_view of, std::size_t count) {
  if (size != count) fail_at(operation, name, {}, "{} must have one entry for each {}, {}, got {}", name, of, count, size);
}

}  // namespace

template <class T>
void c_transform(std::span<const std::type_identity_t<T>> f, MatrixView<const T> cost, std::span<std::type_identity_t<T>> g) {
  constexpr std::string_view kName = "c_transform";
  check_layout(kName, "cost", cost);
  check_count(kName, "f", f.size(), "row of cost", cost.rows);
  check_count(kName, "g", g.size(), "column of cost", cost.cols);
  const TransportKernels<T> kernels = transport_kernels<T>();
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (!(f[i] <= std::numeric_limits<T>::max())) fail_at(kName, "f", {}, "f must be finite or -inf, got {} at {}", f[i], i);
    const std::size_t wrong = kernels.find_invalid(cost.row(i), cost.cols);
    if (wrong != cost.cols) {
      fail_at(kName, "cost", in_matrix(i, wrong), "cost must be finite or +inf, got {}", cost.row(i)[wrong]);
    }
  }
  std::vector<double> minima(cost.cols, kInfinity);
  for (std::size_t i = 0; i < f.size(); ++i) kernels.column_minima(cost.row(i), f[i], cost.cols, minima.data());
  for (std::size_t j = 0; j < g.size(); ++j) g[j] = static_cast<T>(minima[j]);
}

template <class T>
double dual_value(std::span<const T> f, std::span<const std::type_identity_t<T>> g, std::span<const std::type_identity_t<T>> a,
                  std::span<const std::type_identity_t<T>> b) {
  constexpr std::string_view kName = "dual_value";
  check_count(kName, "f", f.size(), "mass of a", a.size());
  check_count(kName, "g", g.size(), "mass of b", b.size());
  CompensatedSum sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != 0) sum.add_product(a[i], f[i]);
  }
  for (std::size_t j = 0; j < b.size(); ++j) {
    if (b[j] != 0) sum.add_product(b[j], g[j]);
  }
  return sum.value();
}

template <class T>
double lipschitz_constant(std::span<const std::type_identity_t<T>> f, MatrixView<const T> distance) {
  constexpr std::string_view kName = "lipschitz_constant";
  const std::size_t n = f.size();
  check_shape(kName, "distance", distance, "pairs of f", n, n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(f[i])) fail_at(kName, "f", {}, "f must be finite, got {} at {}", f[i], i);
    for (std::size_t j = 0; j < n; ++j) {
      if (i != j && !(distance.row(i)[j] >= 0)) {
        fail_at(kName, "distance", in_matrix(i, j), "distance must be at least 0, got {}", distance.row(i)[j]);
      }
    }
  }
  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      // Halves: their difference does not overflow.
      const double rise = std::abs(0.5 * f[i] - 0.5 * f[j]);
      if (i != j && rise > 0) largest = std::max(largest, rise / (0.5 * distance.row(i)[j]));
    }
  }
  return largest;
}

template void c_transform(std::span<const float>, MatrixView<const float>, std::span<float>);
template void c_transform(std::span<const double>, MatrixView<const double>, std::span<double>);
template double dual_value(std::span<const float>, std::span<const float>, std::span<const float>, std::span<const float>);
template double dual_value(std::span<const double>, std::span<const double>, std::span<const double>, std::span<const double>);
template double lipschitz_constant(std::span<const float>, MatrixView<const float>);
template double lipschitz_constant(std::span<const double>, MatrixView<const double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

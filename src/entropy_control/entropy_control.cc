// Entropy control, dispatched: the kernels for every SIMD target; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/entropy_control/entropy_control.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/entropy_control/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS(MakeControl);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "src/check.h"
#include "src/parallel.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

template <class T>
ControlKernels<T> control_kernels();
ISENTROPIC_KERNELS_BY(control_kernels, MakeControl);

// Checks that weights are finite, not negative, and not all 0.
void check_weights(std::string_view operation, const MatrixView<const double>& weights) {
  for (std::size_t r = 0; r < weights.rows; ++r) {
    const auto where = [&] { return weights.rows == 1 ? "" : fmt::format(" in row {}", r); };
    double largest = weights.cols == 0;
    for (std::size_t i = 0; i < weights.cols; ++i) {
      const double w = weights.row(r)[i];
      if (!(w >= 0 && w <= std::numeric_limits<double>::max())) {
        fail("{}: weights must be at least 0 and finite, got {} at entry {}{}", operation, w, i, where());
      }
      largest = std::max(largest, w);
    }
    if (largest == 0) fail("{}: weights must not all be 0, got 0 everywhere{}", operation, where());
  }
}

}  // namespace

template <class T>
void gamma_for_entropy(const GammaForEntropy& options, MatrixView<const T> x, std::span<double> gamma,
                       std::span<double> entropy, std::span<GammaStatus> status, std::span<const PerRow> per_row) {
  check_params(options, per_row, x.rows);
  check_layout("gamma_for_entropy", "x", x);
  check_size("gamma_for_entropy", "gamma", gamma.size(), x.rows);
  check_size("gamma_for_entropy", "entropy", entropy.size(), x.rows);
  check_size("gamma_for_entropy", "status", status.size(), x.rows);
  const ControlKernels kernel = control_kernels<T>();
  parallel_rows(x.rows, x.cols, [&](std::size_t begin, std::size_t end) {
    kernel.gamma(options, per_row, x, {gamma, entropy, status}, {begin, end, scratch(kernel.room(x.cols))});
  });
}

template <class T>
void power_transform(const PowerTransform& options, MatrixView<const std::type_identity_t<T>> p, MatrixView<T> q,
                     std::span<const PerRow> per_row) {
  check_params(options, per_row, p.rows);
  check_layout("power_transform", "p", p);
  check_shape("power_transform", "q", q, "p", p.rows, p.cols);
  check_overlap("power_transform", "q", q, "p", p);
  if (p.cols == 0) return;
  const ControlKernels kernel = control_kernels<T>();
  parallel_rows(p.rows, p.cols, [&](std::size_t begin, std::size_t end) {
    kernel.power(options, per_row, p, q, {begin, end, scratch(kernel.room(p.cols))});
  });
}

template <class T>
void normalize_density(const NormalizeDensity& options, MatrixView<const std::type_identity_t<T>> p,
                       MatrixView<const double> weights, MatrixView<T> q, std::span<Normalized> result,
                       std::span<const PerRow> per_row) {
  constexpr std::string_view kName = Described<NormalizeDensity>::kDescription.name;
  check_params(options, per_row, p.rows);
  check_layout(kName, "p", p);
  check_shape(kName, "weights", weights, "p, or one row for all", weights.rows == 1 ? 1 : p.rows, p.cols);
  check_shape(kName, "q", q, "p", p.rows, p.cols);
  check_overlap(kName, "q", q, "p", p);
  check_apart(kName, "q", q, "weights", weights);
  check_size(kName, "result", result.size(), p.rows);
  check_weights(kName, weights);
  const ControlKernels kernel = control_kernels<T>();
  parallel_rows(p.rows, 4 * p.cols, [&](std::size_t begin, std::size_t end) {
    kernel.density(options, per_row, p, weights, q, result, {begin, end, scratch(kernel.room(p.cols))});
  });
}

template <class T>
Normalized normalize_joint(const NormalizeJoint& options, MatrixView<const std::type_identity_t<T>> pxy, MatrixView<T> table) {
  constexpr std::string_view kName = Described<NormalizeJoint>::kDescription.name;
  check_params(options);
  check_layout(kName, "pxy", pxy);
  check_shape(kName, "table", table, "pxy", pxy.rows, pxy.cols);
  check_overlap(kName, "table", table, "pxy", pxy);
  const std::size_t rows = pxy.rows, cols = pxy.cols;
  Arena memory = scratch(Arena::room<double>(rows * cols) + Arena::room<double>(rows));
  double *const values = memory.take<double>(rows * cols), *const marginal = memory.take<double>(rows);
  bool valid = true, mass = false;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const double value = values[r * cols + c] = pxy.row(r)[c];
      valid &= value >= 0 && value <= std::numeric_limits<double>::max();
      mass |= value > 0;
    }
  }
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Normalized result = {kNaN, kNaN, kNaN, kNaN, GammaStatus::invalid};
  if (valid && mass) {
    result = control_kernels<T>().table(options, rows, cols, values, marginal);
  } else {
    std::fill(values, values + rows * cols, kNaN);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) table.row(r)[c] = static_cast<T>(values[r * cols + c]);
  }
  return result;
}

template <class T>
void mean_field_entropy(const MeanFieldEntropy& options, MatrixView<const T> x, std::span<double> estimate) {
  check_params(options);
  check_layout("mean_field_entropy", "x", x);
  check_size("mean_field_entropy", "estimate", estimate.size(), x.rows);
  const auto rows = control_kernels<T>().mean_field;
  parallel_rows(x.rows, x.cols, [&](std::size_t begin, std::size_t end) { rows(options, x, estimate, {begin, end, {}}); });
}

template void gamma_for_entropy(const GammaForEntropy&, MatrixView<const float>, std::span<double>, std::span<double>,
                                std::span<GammaStatus>, std::span<const PerRow>);
template void gamma_for_entropy(const GammaForEntropy&, MatrixView<const double>, std::span<double>, std::span<double>,
                                std::span<GammaStatus>, std::span<const PerRow>);
template void power_transform(const PowerTransform&, MatrixView<const float>, MatrixView<float>, std::span<const PerRow>);
template void normalize_density(const NormalizeDensity&, MatrixView<const float>, MatrixView<const double>, MatrixView<float>,
                                std::span<Normalized>, std::span<const PerRow>);
template Normalized normalize_joint(const NormalizeJoint&, MatrixView<const float>, MatrixView<float>);
template void mean_field_entropy(const MeanFieldEntropy&, MatrixView<const float>, std::span<double>);
template void power_transform(const PowerTransform&, MatrixView<const double>, MatrixView<double>, std::span<const PerRow>);
template void normalize_density(const NormalizeDensity&, MatrixView<const double>, MatrixView<const double>, MatrixView<double>,
                                std::span<Normalized>, std::span<const PerRow>);
template Normalized normalize_joint(const NormalizeJoint&, MatrixView<const double>, MatrixView<double>);
template void mean_field_entropy(const MeanFieldEntropy&, MatrixView<const double>, std::span<double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

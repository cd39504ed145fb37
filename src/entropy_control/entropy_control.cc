// Entropy control, dispatched: for every SIMD target the loops over rows; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/entropy_control/entropy_control.cc"
#include "entropic/entropy_control.h"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/per_row.h"
#include "src/rows/entropy-inl.h"
#include "src/rows/input-inl.h"

#ifndef ENTROPIC_ENTROPY_CONTROL_CC_
#define ENTROPIC_ENTROPY_CONTROL_CC_

namespace entropic {

// One thread's share of a batch: rows [begin, end), and 2 n + 32 numbers of working memory.
struct ControlShare {
  std::size_t begin, end;
  double* scratch;
};

struct GammaResult {
  std::span<double> gamma, entropy;
  std::span<GammaStatus> status;
};

// What one SIMD target has for one element type.
template <class T>
struct ControlKernels {
  void (*gamma)(const GammaForEntropy&, std::span<const PerRow>, MatrixView<const T> x, GammaResult, ControlShare);
  void (*power)(const PowerTransform&, MatrixView<const T> p, MatrixView<T> q, ControlShare);
};

}  // namespace entropic

#endif  // ENTROPIC_ENTROPY_CONTROL_CC_

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

template <class T>
GammaOfRow GammaRow(const GammaForEntropy& op, const T* x, size_t n, double* scratch) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const RowTag<T> d;
  const GammaOfRow invalid = {kNaN, kNaN, GammaStatus::kInvalid, 0};
  const T max = RowMax(d, x, n);
  if (!(max - max == T(0))) {
    double infinite = 0;
    for (size_t i = 0; i < n; ++i) {
      if (x[i] != x[i]) return invalid;
      infinite += x[i] == std::numeric_limits<T>::infinity();
    }
    return infinite == 0 ? invalid : GammaOfRow{1, LogOf(infinite), GammaStatus::kConstant, 0};
  }
  const RowSurvey<T> row = Survey(d, x, n, max);
  if (row.nan) return invalid;
  const double log_ties = LogOf(row.ties), log_n = LogOf(row.finite);
  if (row.ties == row.finite) return {1, log_n, GammaStatus::kConstant, 0};

  const double target = op.entropy ? *op.entropy : LogOf(*op.perplexity);
  double sum;
  const auto at = [&](double gamma) HWY_ATTR {
    const double middle = 0.5 * (log_ties + log_n);
    return FindGammaWide(row, x, n, {middle, middle}, {gamma, gamma, 1}, scratch, &sum).entropy;
  };
  // The ends of the reach, met to rounding, are no clamps.
  constexpr double kRounding = 1e-14;
  if (target >= log_n) {
    const auto status = target > log_n + kRounding ? GammaStatus::kClampedHigh : GammaStatus::kOk;
    if (op.min_gamma == 0) return {0, log_n, status, 0};
    return {op.min_gamma, at(op.min_gamma), GammaStatus::kClampedHigh, 1};
  }
  if (target <= log_ties) {
    const auto status = target < log_ties - kRounding ? GammaStatus::kClampedLow : GammaStatus::kOk;
    if (op.max_gamma == kInfinity) return {kInfinity, log_ties, status, 0};
    return {op.max_gamma, at(op.max_gamma), GammaStatus::kClampedLow, 1};
  }
  return FindGammaWide(row, x, n, {target, target}, {op.min_gamma, op.max_gamma, static_cast<int>(op.max_iterations)}, scratch,
                       &sum);
}

template <class T>
void GammaRows(const GammaForEntropy& common, std::span<const PerRow> per_row, MatrixView<const T> x, GammaResult result,
               ControlShare share) {
  for (size_t r = share.begin; r < share.end; ++r) {
    const GammaForEntropy op = at_row(common, per_row, r);
    GammaOfRow row;
    if (op.input == Input::probs) {
      double* const scores = share.scratch + x.cols + 16;
      ScoresOfProbs(x.row(r), x.cols, scores);
      row = GammaRow(op, scores, x.cols, share.scratch);
    } else {
      row = GammaRow(op, x.row(r), x.cols, share.scratch);
    }
    result.gamma[r] = row.gamma;
    result.entropy[r] = row.entropy;
    result.status[r] = row.status;
  }
}

// p^gamma = exp(gamma (log p - log max p)), in float64.
template <class T>
void PowerRow(double gamma, const T* p, size_t n, T* q, double* scratch) {
  const RowTag<T> d;
  const RowTag<double> d64;
  using V = hn::Vec<RowTag<double>>;
  const V zero = hn::Zero(d64), largest = hn::Set(d64, std::numeric_limits<double>::max());
  const V most = hn::Set(d64, static_cast<double>(RowMax(d, p, n)));
  const V log_most = Log(d64, most), exponent = hn::Set(d64, gamma), lowest = hn::Set(d64, -800.0);
  const ExpScaled<RowTag<double>> exp(d64, 1);
  double sums[2];
  Sums(d64, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    const V pi = LoadWide(RowTag<double>(), p + i, count, T(0));
    const auto absent = hn::Eq(pi, zero);
    // -inf where gamma is infinite times less than the maximum; at the maximum 0.
    const V log_ratio = hn::IfThenElse(absent, zero, hn::Sub(Log(d64, pi), log_most));
    const V e = hn::IfThenZeroElse(absent, exp(d64, MaxKeepNaN(lowest, hn::Mul(log_ratio, exponent))));
    StoreUpTo(e, d64, count, scratch + i);
    terms[0] = e;
    terms[1] = hn::IfThenElseZero(hn::And(hn::Ge(pi, zero), hn::Le(pi, largest)), hn::Set(d64, 1.0));
  });
  const bool valid = sums[1] == static_cast<double>(n) && sums[0] > 0;
  const double inverse = 1 / sums[0];
  for (size_t i = 0; i < n; ++i) {
    q[i] = valid ? static_cast<T>(scratch[i] * inverse) : std::numeric_limits<T>::quiet_NaN();
  }
}

template <class T>
void PowerRows(const PowerTransform& op, MatrixView<const T> p, MatrixView<T> q, ControlShare share) {
  for (size_t r = share.begin; r < share.end; ++r) PowerRow(op.gamma, p.row(r), p.cols, q.row(r), share.scratch);
}

// One exported name for each element type: Highway's tables hold functions, not templates.
ControlKernels<float> ControlF32() { return {GammaRows<float>, PowerRows<float>}; }
ControlKernels<double> ControlF64() { return {GammaRows<double>, PowerRows<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "src/check.h"
#include "src/parallel.h"
#include "src/scratch.h"

namespace entropic {
namespace {

HWY_EXPORT(ControlF32);
HWY_EXPORT(ControlF64);

template <class T>
ControlKernels<T> kernels() {
  if constexpr (sizeof(T) == 4) {
    return HWY_DYNAMIC_DISPATCH(ControlF32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(ControlF64)();
  }
}

void check_rows(std::string_view name, std::size_t size, std::size_t rows) {
  if (size != rows) fail("gamma_for_entropy: {} must have one entry for each of {} rows, got {}", name, rows, size);
}

}  // namespace

template <class T>
void gamma_for_entropy(MatrixView<const T> x, std::span<double> gamma, std::span<double> entropy, std::span<GammaStatus> status,
                       const GammaForEntropy& options, std::span<const PerRow> per_row) {
  check_params(options, per_row, x.rows);
  check_layout("gamma_for_entropy", "x", x);
  check_rows("gamma", gamma.size(), x.rows);
  check_rows("entropy", entropy.size(), x.rows);
  check_rows("status", status.size(), x.rows);
  const auto rows = kernels<T>().gamma;
  parallel_rows(x.rows, x.cols, [&](std::size_t begin, std::size_t end) {
    rows(options, per_row, x, {gamma, entropy, status}, {begin, end, scratch(2 * x.cols + 32)});
  });
}

template <class T>
void power_transform(MatrixView<const std::type_identity_t<T>> p, MatrixView<T> q, const PowerTransform& options) {
  check_params(options);
  check_layout("power_transform", "p", p);
  check_shape("power_transform", "q", q, "p", p.rows, p.cols);
  check_overlap("power_transform", "q", q, "p", p);
  if (p.cols == 0) return;
  const auto rows = kernels<T>().power;
  parallel_rows(p.rows, p.cols, [&](std::size_t begin, std::size_t end) {
    rows(options, p, q, {begin, end, scratch(2 * p.cols + 32)});
  });
}

template void gamma_for_entropy(MatrixView<const float>, std::span<double>, std::span<double>, std::span<GammaStatus>,
                                const GammaForEntropy&, std::span<const PerRow>);
template void gamma_for_entropy(MatrixView<const double>, std::span<double>, std::span<double>, std::span<GammaStatus>,
                                const GammaForEntropy&, std::span<const PerRow>);
template void power_transform(MatrixView<const float>, MatrixView<float>, const PowerTransform&);
template void power_transform(MatrixView<const double>, MatrixView<double>, const PowerTransform&);

}  // namespace entropic

#endif  // HWY_ONCE

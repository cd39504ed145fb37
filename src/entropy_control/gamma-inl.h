// For a row of scores: the gamma that reaches an entropy, and an estimate of the entropy at a gamma.

#if defined(ISENTROPIC_ENTROPY_CONTROL_GAMMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ENTROPY_CONTROL_GAMMA_INL_H_
#undef ISENTROPIC_ENTROPY_CONTROL_GAMMA_INL_H_
#else
#define ISENTROPIC_ENTROPY_CONTROL_GAMMA_INL_H_
#endif

#include <cmath>

#include "isentropic/entropy_control.h"
#include "src/rows/entropy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE GammaOfRow GammaRow(const GammaForEntropy& op, const T* x, size_t n, double* scratch) {
  const RowTag<T> d;
  const GammaOfRow invalid = {kNaN<double>, kNaN<double>, GammaStatus::invalid, 0};
  const T max = RowMax(d, x, n);
  if (!IsFinite(max)) {
    const auto [infinite, nan] = FindNonFinite(x, n);
    return infinite > 0 && !nan ? GammaOfRow{1, LogNumber(static_cast<double>(infinite)), GammaStatus::constant, 0} : invalid;
  }
  RowSurvey<T> row = Survey(d, x, n, max);
  if (row.nan) return invalid;
  const double log_ties = LogNumber(row.ties), log_n = LogNumber(row.finite);
  if (row.ties == row.finite) return {1, log_n, GammaStatus::constant, 0};

  const double target = op.entropy ? *op.entropy : LogNumber(*op.perplexity);
  double sum;
  const auto at = [&](double gamma) HWY_ATTR {
    const double middle = 0.5 * (log_ties + log_n);
    return FindGammaWide(row, x, n, {middle, middle}, {gamma, gamma, 1}, scratch, &sum).entropy;
  };
  // A target at an end of the reach, up to rounding, is not clamped.
  constexpr double kRounding = 1e-14;
  if (target >= log_n) {
    const auto status = target > log_n + kRounding ? GammaStatus::clamped_high : GammaStatus::ok;
    if (op.min_gamma == 0) return {0, log_n, status, 0};
    return {op.min_gamma, at(op.min_gamma), GammaStatus::clamped_high, 1};
  }
  if (target <= log_ties) {
    const auto status = target < log_ties - kRounding ? GammaStatus::clamped_low : GammaStatus::ok;
    if (op.max_gamma == kInfinity<double>) return {kInfinity<double>, log_ties, status, 0};
    return {op.max_gamma, at(op.max_gamma), GammaStatus::clamped_low, 1};
  }
  LeaveOutFar(d, x, n, {target, target}, op.max_gamma, &row);
  return FindGammaWide(row, x, n, {target, target}, {op.min_gamma, op.max_gamma, static_cast<int>(op.max_iterations)}, scratch,
                       &sum);
}

// The estimate of a row of scores.
template <class T>
double MeanFieldRow(double gamma, const T* x, size_t n) {
  const RowTag<T> d;
  const D64 d64;
  const T max = RowMax(d, x, n);
  if (!IsFinite(max)) {
    const auto [infinite, nan] = FindNonFinite(x, n);
    return infinite > 0 && !nan ? LogNumber(static_cast<double>(infinite)) : kNaN<double>;
  }
  const RowSurvey<T> row = Survey(d, x, n, max);
  if (row.nan) return kNaN<double>;
  const double log_n = LogNumber(row.finite);
  if (row.ties == row.finite) return log_n;
  const WideScores<T> relative(max, row.least);
  const auto absent = hn::Set(d64, -kInfinity<double>);
  const double sum = Sum(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto z = relative(LoadWide(d64, x + i, count, max));
    return hn::IfThenZeroElse(hn::Eq(z, absent), z);
  });
  return log_n + std::ldexp(gamma * (sum / row.finite), relative.exponent);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ENTROPY_CONTROL_GAMMA_INL_H_

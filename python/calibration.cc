// Bindings of calibration.h. Arrays arrive contiguous, scores as float32 or float64 and labels as int64:
// entropic/calibration.py brings others to that.

#include <entropic/entropic.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <optional>
#include <utility>
#include <vector>

#include "matrices.h"

namespace entropic {
namespace {

using Labels = Vector<const std::int64_t>;
using Numbers = Vector<const double>;
using Output = Vector<double>;

template <class T>
void bind(nb::module_& m) {
  m.def("fit_temperature", [](const Matrix<const T>& x, const Labels& labels) {
    const nb::gil_scoped_release release;
    const FittedTemperature fitted = fit_temperature(view(x), span(labels));
    return std::pair(fitted.temperature, fitted.clamped);
  });
  m.def("fit_target_entropy", [](const Matrix<const T>& x, const Labels& labels) {
    const nb::gil_scoped_release release;
    return fit_target_entropy(view(x), span(labels));
  });
  m.def("match_entropy", [](const Matrix<const T>& x) {
    const nb::gil_scoped_release release;
    return match_entropy(view(x));
  });
  m.def("expected_calibration_error", [](const Matrix<const T>& p, const Labels& labels, std::int64_t bins, bool quantile,
                                         std::optional<double> sum_tolerance) {
    using Strategy = ExpectedCalibrationError::Strategy;
    const nb::gil_scoped_release release;
    return expected_calibration_error(
        view(p), span(labels),
        {.bins = bins, .strategy = quantile ? Strategy::quantile : Strategy::uniform, .sum_tolerance = sum_tolerance});
  });
}

}  // namespace

void bind_calibration(nb::module_& m) {
  bind<float>(m);
  bind<double>(m);
  m.def(
      "entropy_invariant_scale",
      [](const Numbers& n, double d, const Output& scale, double train_length, std::optional<double> kappa) {
        entropy_invariant_scale(span(n), d, span(scale), {.train_length = train_length, .kappa = kappa});
      },
      nb::arg("n"), nb::arg("d"), nb::arg("scale"), nb::arg("train_length"), nb::arg("kappa").none());
  // The gamma of each row for one entropy, for EntropyScaler.transform.
  m.def("calibrated_gamma", [](const Matrix<const double>& x, double entropy, const Output& gamma) {
    const nb::gil_scoped_release release;
    std::vector<double> reached(x.shape(0));
    std::vector<GammaStatus> status(x.shape(0));
    gamma_for_entropy(view(x), span(gamma), reached, status, {.entropy = entropy});
  });
}

}  // namespace entropic

// Bindings of calibration.h. Arrays are contiguous, with scores in float32 or float64 and labels in int64;
// isentropic/calibration.py converts others.

#include <isentropic/isentropic.h>
#include <nanobind/stl/pair.h>

#include <utility>
#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"

namespace isentropic {
namespace {

using Labels = Vector<const std::int64_t>;
using Numbers = Vector<const double>;
using Output = Vector<double>;

// The options, with a tolerance for p's original type, which may differ from the library's own.
ExpectedCalibrationError options_of(nb::tuple values) { return to_params<ExpectedCalibrationError>(values).op; }

template <class T>
void bind(nb::module_& m) {
  m.def("fit_temperature", [](const Matrix<const T>& x, const Labels& labels, const Numbers& weights) {
    const nb::gil_scoped_release release;
    const FittedTemperature fitted = fit_temperature(view(x), span(labels), span(weights));
    return std::pair(fitted.temperature, fitted.clamped);
  });
  m.def("fit_target_entropy", [](const Matrix<const T>& x, const Labels& labels, const Numbers& weights) {
    const nb::gil_scoped_release release;
    return fit_target_entropy(view(x), span(labels), span(weights));
  });
  m.def("match_entropy", [](const Matrix<const T>& x, const Numbers& weights) {
    const nb::gil_scoped_release release;
    return match_entropy(view(x), span(weights));
  });
  m.def("expected_calibration_error",
        [](const Matrix<const T>& p, const Labels& labels, const Numbers& weights, nb::tuple values) {
          const ExpectedCalibrationError options = options_of(values);
          const nb::gil_scoped_release release;
          return expected_calibration_error(options, view(p), span(labels), span(weights));
        });
  m.def("reliability_bins", [](const Matrix<const T>& p, const Labels& labels, const Numbers& weights, nb::tuple values) {
    nb::list found;
    for (const ReliabilityBin& bin : reliability_bins(options_of(values), view(p), span(labels), span(weights))) {
      found.append(nb::make_tuple(bin.lower, bin.upper, bin.weight, bin.confidence, bin.accuracy));
    }
    return found;
  });
  m.def("brier_score", [](const Matrix<const T>& p, const Labels& labels, const Numbers& weights, double sum_tolerance) {
    const nb::gil_scoped_release release;
    return brier_score(view(p), span(labels), span(weights), sum_tolerance);
  });
}

}  // namespace

void bind_calibration(nb::module_& m) {
  m.def("calibration_operations", [] { return describe(family_info<Calibration>()); });
  bind<float>(m);
  bind<double>(m);
  m.def("entropy_invariant_scale", [](const Numbers& n, double d, const Output& scale, nb::tuple values) {
    entropy_invariant_scale(to_params<EntropyInvariantScale>(values).op, span(n), d, span(scale));
  });
  // The gamma of each row for one entropy, for EntropyScaler.transform.
  m.def("calibrated_gamma", [](const Matrix<const double>& x, double entropy, const Output& gamma) {
    const nb::gil_scoped_release release;
    std::vector<double> reached(x.shape(0));
    std::vector<GammaStatus> status(x.shape(0));
    gamma_for_entropy({.entropy = entropy}, view(x), span(gamma), reached, status);
  });
}

}  // namespace isentropic

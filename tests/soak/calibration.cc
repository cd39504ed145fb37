// Calibration.

#include "tests/soak/soak.h"

namespace isentropic {
namespace {

template <class T>
void soak_bins(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const std::size_t rows = 1 + random.below(60), cols = 1 + random.below(20);
    Rows<T> x(rows, cols), p(rows, cols);
    std::vector<std::int64_t> labels(rows);
    const double scale = random.power_of_10(-3, 3);
    for (std::size_t r = 0; r < rows; ++r) {
      for (T& score : x.row(r)) score = static_cast<T>(scale * random.normal());
      labels[r] = static_cast<std::int64_t>(random.below(cols));
      if (random.chance(0.5)) x.row(r)[static_cast<std::size_t>(labels[r])] += static_cast<T>(scale);
    }
    apply<T>(Softmax{}, x, p);
    report.next(rows, cols, [&](std::size_t r) {
      return fmt::format("{} rows, row {} label {} {}", rows, r, labels[r], text_of(std::as_const(x).row(r)));
    });
    const MatrixView<const T> view(x);
    const FittedTemperature fitted = fit_temperature<T>(view, labels);
    report.expect(fitted.temperature >= kLeastTemperature && fitted.temperature <= kLargestTemperature, 0,
                  "temperature out of range", fitted.temperature);
    const double most = std::log(static_cast<double>(cols)), h = fit_target_entropy<T>(view, labels),
                 mean = match_entropy<T>(view);
    report.expect(h >= 0 && h <= most, 0, "target entropy out of range", h);
    report.expect(mean >= 0 && mean <= most * (1 + 1e-14), 0, "mean entropy out of range", mean);
    ExpectedCalibrationError bins = random_op<ExpectedCalibrationError>(random, cols);
    bins.sum_tolerance = {};
    MatrixView<const T> probs(p);
    Rows<T> of_first(rows, 1);
    if (bins.binary) {  // whether it is the first class
      for (std::size_t r = 0; r < rows; ++r) of_first.row(r)[0] = p.row(r)[0], labels[r] = labels[r] == 0;
      probs = of_first;
    }
    const double error = expected_calibration_error<T>(bins, probs, labels);
    report.expect(error >= 0 && error <= 1 + 1e-6, 0, "calibration error out of range", error);
  }
}

}  // namespace

void soak_calibration(Soak& soak) {
  soak.run<float, double>("calibration",
                          [&]<class T>(T, Random& random, Report& report) { soak_bins<T>(random, report, soak.rows() / 10); });
}

}  // namespace isentropic

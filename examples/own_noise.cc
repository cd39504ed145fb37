// perturb_max with your own noise: Student's t with 2 degrees of freedom, whose heavy tails give every score a chance.
#include <isentropic/isentropic.h>

#include <cmath>
#include <cstdio>
#include <vector>

struct StudentT2 {
  // F(t) = (1 + t / sqrt(2 + t^2)) / 2; below 0 without cancellation.
  double log_cdf(double t) const {
    const double root = std::sqrt(2 + t * t);
    return std::log(t < 0 ? 1 / (root * (root - t)) : (1 + t / root) / 2);
  }
  double pdf(double t) const { return 1 / std::pow(2 + t * t, 1.5); }
};

int main() {
  const std::vector<double> x = {2.0, 1.0, 0.1, -1.0, 1.8};
  std::vector<double> p(x.size());
  const isentropic::MatrixView<const double> scores(x.data(), 1, x.size());
  const isentropic::MatrixView<double> masses(p.data(), 1, p.size());

  isentropic::perturb_max(StudentT2(), 0.5, scores, masses);
  for (const double mass : p) std::printf("%.4f ", mass);
  std::printf("\n");
}

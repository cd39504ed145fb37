// Scores in, distributions out, and the gradient back.
#include <entropic/entropic.h>

#include <cstdio>
#include <vector>

int main() {
  const std::vector<double> x = {2.0, 1.0, 0.1, -1.0, 1.8};
  std::vector<double> p(x.size()), dx(x.size());
  const entropic::MatrixView<const double> scores(x.data(), 1, x.size());
  const entropic::MatrixView<double> masses(p.data(), 1, p.size()), gradient(dx.data(), 1, dx.size());

  entropic::apply(entropic::Softmax{.temperature = 0.5}, scores, masses);
  for (const double mass : p) std::printf("%.4f ", mass);
  std::printf("\n");

  entropic::apply(entropic::Sparsemax{}, scores, masses);
  for (const double mass : p) std::printf("%.4f ", mass);
  std::printf("\n");

  const std::vector<double> g = {1, 0, 0, 0, 0};
  entropic::apply_vjp(entropic::Sparsemax{}, scores, masses, {g.data(), 1, g.size()}, gradient);
  for (const double slope : dx) std::printf("%.4f ", slope);
  std::printf("\n");
}

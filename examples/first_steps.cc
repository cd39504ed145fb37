// Scores in, distributions out, and the gradient back.
#include <isentropic/isentropic.h>

#include <cstdio>
#include <vector>

void print(const std::vector<double>& row) {
  for (const double number : row) std::printf("%.4f ", number);
  std::printf("\n");
}

int main() {
  std::vector<double> x = {2.0, 1.0, 0.1, -1.0, 1.8}, p(5), g = {1, 0, 0, 0, 0}, dx(5);
  isentropic::apply(isentropic::Softmax{.temperature = 0.5}, x, p);
  print(p);

  isentropic::apply(isentropic::Sparsemax{}, x, p);
  print(p);

  isentropic::apply_vjp(isentropic::Sparsemax{}, x, p, g, dx);
  print(dx);
}

// Scores in, distributions out, and the gradient back.
#include <entropic/entropic.h>

#include <cstdio>
#include <vector>

void print(const std::vector<double>& row) {
  for (const double number : row) std::printf("%.4f ", number);
  std::printf("\n");
}

int main() {
  std::vector<double> x = {2.0, 1.0, 0.1, -1.0, 1.8}, p(5), g = {1, 0, 0, 0, 0}, dx(5);
  auto row = [](std::vector<double>& v) { return entropic::MatrixView<double>(v.data(), 1, v.size()); };
  entropic::apply(entropic::Softmax{.temperature = 0.5}, row(x), row(p));
  print(p);

  entropic::apply(entropic::Sparsemax{}, row(x), row(p));
  print(p);

  entropic::apply_vjp(entropic::Sparsemax{}, row(x), row(p), row(g), row(dx));
  print(dx);
}

// Uses the installed library: exits 0 if softmax of three scores is correct.

#include <isentropic/isentropic.h>

#include <cmath>

int main() {
  const float x[3] = {1, 2, 3};
  float p[3];
  isentropic::apply(isentropic::Softmax{.temperature = 0.5}, isentropic::MatrixView<const float>(x, 1, 3),
                    isentropic::MatrixView<float>(p, 1, 3));
  return std::abs(p[2] - 0.866814f) < 1e-6f ? 0 : 1;
}

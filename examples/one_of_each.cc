// One call of each family, on rows that a program already has.
#include <isentropic/isentropic.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

template <class T>
void print(const char* name, const std::vector<T>& numbers) {
  std::printf("%-9s", name);
  for (const T number : numbers) std::printf(" %.4g", static_cast<double>(number));
  std::printf("\n");
}

int main() {
  // Two rows of three scores, in a buffer whose rows are four apart.
  const std::vector<float> buffer = {2.0f, 1.0f, 0.1f, -1, 0.5f, 0.4f, 3.0f, -1};
  const isentropic::MatrixView x(buffer, 2, 3, 4);
  std::vector<float> numbers(6);
  const isentropic::MatrixView p(numbers, 2, 3);
  isentropic::apply(isentropic::Entmax{.alpha = 1.3}, x, p);
  print("entmax", numbers);

  // A parameter with a value for each row.
  const std::vector<double> alphas = {1.0, 2.0};
  const isentropic::PerRow each[] = {{"alpha", alphas}};
  isentropic::apply(isentropic::Entmax{}, x, p, each);
  print("per row", numbers);

  // A chosen entropy, in nats, and the scale that gives it.
  isentropic::apply(isentropic::EntropyNormalize{.entropy = 0.5}, x, p);
  std::vector<double> gamma(2), entropy(2);
  std::vector<isentropic::GammaStatus> status(2);
  isentropic::gamma_for_entropy({.entropy = 0.5}, x, gamma, entropy, status);
  print("gamma", gamma);

  // Measures of the rows: one number each.
  std::vector<double> value(2);
  isentropic::measure(isentropic::Entropy{}, p, value);
  print("entropy", value);

  // A loss against a class for each row, and its gradient.
  const std::vector<std::int64_t> classes = {0, 1};
  std::vector<float> gradient(6);
  const isentropic::MatrixView dx(gradient, 2, 3);
  isentropic::loss(isentropic::SoftmaxLoss{}, x, classes, value, dx);
  print("loss", value);
  print("dx", gradient);

  // Three draws from each row, through a chain of steps.
  const isentropic::Sampler chain({isentropic::step::TopK{2}, isentropic::step::Temperature{0.7}}, /*seed=*/1);
  std::vector<std::int64_t> drawn(6);
  chain.sample(x, isentropic::MatrixView(drawn, 2, 3));
  print("drawn", drawn);

  // The distance between two sets of points: W_2 in the plane, with equal weights.
  const std::vector<double> a = {0, 0, 1, 0}, b = {0, 1, 1, 1, 2, 1};
  const isentropic::MatrixView here(a, 2, 2), there(b, 3, 2);
  std::printf("W_2       %.4g\n", isentropic::wasserstein({.order = 2}, here, there));

  // Invalid arguments are refused before anything is written.
  try {
    isentropic::apply(isentropic::Softmax{.temperature = 0}, x, p);
  } catch (const std::invalid_argument& error) {
    std::printf("%s\n", error.what());
  }
}

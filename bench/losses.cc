// Times every loss with its gradient beside softmax, in one run; prints the table itself.
//
// Rows of float, one thread, a class as target if the loss takes one. Each result is compared with its definition first.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "isentropic/isentropic.h"
#include "tests/oracle/losses.h"

namespace {

using isentropic::MatrixView;

struct Timed {
  std::string name;
  std::function<void()> run;
  std::vector<double> times;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The processor time of this thread only: waiting for a processor does not count.
double processor_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Rounds of all in turn, so that other work on the machine affects all alike.
void time_all(std::vector<Timed>& all, int rounds) {
  for (int round = -1; round < rounds; ++round) {
    for (Timed& one : all) {
      const double begin = processor_time();
      one.run();
      if (round >= 0) one.times.push_back(processor_time() - begin);
    }
  }
}

void bench(std::size_t rows, std::size_t cols) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * cols), cosines(rows * cols), labels(rows * cols), teacher(rows * cols), q(rows * cols, 0.0f);
  std::vector<std::int64_t> classes(rows);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(random), teacher[i] = normal(random), cosines[i] = std::tanh(x[i]);
    labels[i] = static_cast<float>(random() % 8 == 0);
  }
  for (std::size_t r = 0; r < rows; ++r) classes[r] = static_cast<std::int64_t>(random() % cols);
  std::vector<float> p(rows * cols), dx(rows * cols);
  std::vector<double> value(rows);
  const auto view = [&](const std::vector<float>& v) { return MatrixView<const float>(v.data(), rows, cols); };
  const MatrixView<float> gradient(dx.data(), rows, cols);

  std::vector<Timed> all;
  all.push_back({"softmax", [&] { isentropic::apply<float>(isentropic::Softmax{}, view(x), {p.data(), rows, cols}); }, {}});
  const auto add = [&](const std::string& name, const isentropic::Loss& op) {
    const isentropic::TargetKind kind = std::visit([](const auto& loss) { return loss.kTarget; }, op);
    const bool has_class = kind == isentropic::TargetKind::classes || kind == isentropic::TargetKind::classes_or_distributions;
    const std::vector<float>& scores = kind == isentropic::TargetKind::classes ? cosines : x;
    const std::vector<float>& matrix = kind == isentropic::TargetKind::labels ? labels : teacher;
    const auto run = [&, op, has_class] {
      if (has_class) {
        isentropic::loss<float>(op, view(scores), classes, value, gradient);
      } else {
        isentropic::loss<float>(op, view(scores), view(matrix), value, gradient);
      }
    };
    run();
    oracle::Row target(cols, 0);
    if (has_class) {
      target[static_cast<std::size_t>(classes[0])] = 1;
    } else {
      target.assign(matrix.begin(), matrix.begin() + static_cast<std::ptrdiff_t>(cols));
    }
    const oracle::Row row(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(cols));
    const oracle::LossResult want = std::visit([&](const auto& loss) { return oracle::loss(loss, row, target); }, op);
    bool right = std::abs(value[0] - want.value) <= 1e-4L * (1 + std::abs(want.value));
    for (std::size_t i = 0; i < cols; ++i) right &= std::abs(dx[i] - want.dx[i]) <= 3e-4L;
    if (!right) {
      std::fprintf(stderr, "%s: %g, should be %Lg\n", name.c_str(), value[0], want.value);
      std::exit(1);
    }
    all.push_back({name, run, {}});
  };
  isentropic::for_each_operation<isentropic::Loss>([&]<class Op>(std::type_identity<Op>) {
    add(std::string(isentropic::Described<Op>::kDescription.name), isentropic::typical<Op>());
  });
  add("softmax_loss, smoothing", isentropic::SoftmaxLoss{.label_smoothing = 0.1});
  add("entmax_loss, alpha 1.2", isentropic::EntmaxLoss{.alpha = 1.2});
  all.push_back(
      {"softmax_loss, no gradient", [&] { isentropic::loss<float>(isentropic::SoftmaxLoss{}, view(x), classes, value); }, {}});
  time_all(all, 41);
  for (const Timed& one : all) {
    std::printf("| %zu x %zu | %s | %.3g | %.2f |\n", rows, cols, one.name.c_str(),
                median(one.times) * 1e9 / static_cast<double>(rows * cols), median(one.times) / median(all[0].times));
  }
}

}  // namespace

int main(int argc, char** argv) {
  isentropic::set_num_threads(1);
  std::printf("| rows x n | operation | ns/entry | of softmax |\n|---|---|---|---|\n");
  // As in the other programs: with this option results are checked, and nothing is timed for long.
  const bool only_check = argc > 1 && std::string(argv[1]) == "--benchmark_list_tests";
  bench(64, 1024);
  if (only_check) return 0;
  bench(1024, 64);
  bench(1, 131072);
}

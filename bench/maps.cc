// Times every map and its gradient beside oneDNN's softmax and memcpy, in one run; bench/report.py makes the table.
//
// Names are operation/scores/rows x cols. An argument names the SIMD target. One thread. The shapes keep a batch in cache but
// for 256 x 131072.

#include <benchmark/benchmark.h>
#include <omp.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/baselines/onednn.h"
#include "isentropic/isentropic.h"
#include "tests/oracle/maps.h"

namespace {

using isentropic::MatrixView;

struct Shape {
  std::size_t rows, cols;
};
constexpr Shape kShapes[] = {{1024, 64}, {64, 1024}, {2, 32768}, {1, 131072}, {256, 131072}};

// Memory for a batch, aligned to cache lines as PyTorch aligns; kept until the program ends.
MatrixView<float> allocate(Shape shape) {
  void* memory = std::aligned_alloc(64, (shape.rows * shape.cols * sizeof(float) + 63) / 64 * 64);
  std::memset(memory, 0, shape.rows * shape.cols * sizeof(float));
  return {static_cast<float*>(memory), shape.rows, shape.cols};
}

MatrixView<float> normal_scores(Shape shape, double scale) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  const auto x = allocate(shape);
  for (std::size_t i = 0; i < shape.rows * shape.cols; ++i) x.data[i] = normal(generator);
  return x;
}

// Scores like those of a language model for its vocabulary: few large ones and a long tail. Softmax of them is about rank^-1.2.
MatrixView<float> language_scores(Shape shape) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.5f);
  const auto x = allocate(shape);
  for (std::size_t r = 0; r < shape.rows; ++r) {
    for (std::size_t i = 0; i < shape.cols; ++i) {
      x.row(r)[i] = normal(generator) - 1.2f * std::log(static_cast<float>(i + 1));
    }
    std::shuffle(x.row(r), x.row(r) + shape.cols, generator);
  }
  return x;
}

// A benchmark of a wrong result is worthless: compares the first row with the definition.
void check(const std::string& name, const oracle::Row& want, const float* got) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!(std::abs(want[i] - got[i]) <= 1e-5L)) {
      std::fprintf(stderr, "%s: entry %zu is %g, should be %Lg\n", name.c_str(), i, static_cast<double>(got[i]), want[i]);
      std::exit(1);
    }
  }
}

template <class Run>
void add(const std::string& name, Shape shape, Run run) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    for (auto _ : state) {
      run();
      benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * shape.rows * shape.cols));
  });
}

void add_shape(const std::string& scores, MatrixView<const float> x) {
  // All benchmarks of the shape share it, so that all have the same state of the cache.
  const Shape shape = {x.rows, x.cols};
  const MatrixView<const float> g = normal_scores(shape, 1);
  const MatrixView<float> p = allocate(shape), dx = allocate(shape);
  const std::string where = "/" + scores + "/" + std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
  const oracle::Row row(x.data, x.data + shape.cols), gradient(g.data, g.data + shape.cols);

  add("memcpy" + where, shape, [=] { std::memcpy(p.data, x.data, shape.rows * shape.cols * sizeof(float)); });
  auto* onednn = new baseline::OneDnnSoftmax(shape.rows, shape.cols);
  onednn->forward(x.data, p.data);
  check("onednn" + where, oracle::map(isentropic::Softmax{}, row), p.data);
  add("onednn" + where, shape, [=] { onednn->forward(x.data, p.data); });

  isentropic::for_each_operation<isentropic::Map>([&]<class Op>(std::type_identity<Op>) {
    const std::string name(isentropic::Described<Op>::kDescription.name);
    const Op op = isentropic::typical<Op>();
    isentropic::apply(op, x, p);
    check(name + where, oracle::map(op, row), p.data);
    add(name + where, shape, [=] { isentropic::apply(op, x, p); });

    // The gradient reads p, so every map has its own.
    const MatrixView<float> y = allocate(shape);
    isentropic::apply(op, x, y);
    isentropic::apply_vjp(op, x, y, g, dx);
    check(name + "_vjp" + where, oracle::vjp(op, row, gradient), dx.data);
    add(name + "_vjp" + where, shape, [=] { isentropic::apply_vjp(op, x, y, g, dx); });
  });
  // Maps with other parameters, under their own names.
  const auto add_named = [&](const std::string& name, const auto& op) {
    isentropic::apply(op, x, p);
    check(name + where, oracle::map(op, row), p.data);
    add(name + where, shape, [=] { isentropic::apply(op, x, p); });
  };
  add_named("top_50_softmax", isentropic::TopKSoftmax{.k = 50});
  add_named("entmax_1.2", isentropic::Entmax{.alpha = 1.2});
  add_named("entmax_1.7", isentropic::Entmax{.alpha = 1.7});
  add_named("entmax_1.05", isentropic::Entmax{.alpha = 1.05});
  add_named("entmax_0.8", isentropic::Entmax{.alpha = 0.8});
  add_named("entmax_3", isentropic::Entmax{.alpha = 3});
  // Targets far below softmax's own entropy, near it and above, halfway to the largest.
  const double own = static_cast<double>(oracle::entropy(oracle::map(isentropic::Softmax{}, row))), most = std::log(shape.cols);
  add_named("entropy_normalize_0.3", isentropic::EntropyNormalize{.entropy = 0.3});
  add_named("entropy_normalize_half", isentropic::EntropyNormalize{.entropy = 0.5 * own});
  add_named("entropy_normalize_near", isentropic::EntropyNormalize{.entropy = 0.95 * own});
  add_named("entropy_normalize_above", isentropic::EntropyNormalize{.entropy = 0.5 * (own + most)});
  add("log_softmax" + where, shape, [=] { isentropic::log_softmax(isentropic::LogSoftmax{}, x, p); });
}

// One batch in cache on one thread and on two.
void add_threads() {
  const Shape shape = {256, 1024};
  const MatrixView<const float> x = normal_scores(shape, 1);
  const MatrixView<float> p = allocate(shape);
  for (const std::size_t threads : {1, 2}) {
    add("softmax_" + std::to_string(threads) + "_threads/normal/256x1024", shape, [=] {
      isentropic::set_num_threads(threads);
      isentropic::apply(isentropic::Softmax{}, x, p);
      isentropic::set_num_threads(1);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  omp_set_num_threads(1);  // oneDNN's
  benchmark::Initialize(&argc, argv);
  if (argc > 1) isentropic::force_simd_target(argv[1]);
  isentropic::set_num_threads(1);
  for (const Shape shape : kShapes) {
    add_shape("normal", normal_scores(shape, 1));
    if (shape.rows * shape.cols < (1u << 20)) add_shape("flat", normal_scores(shape, 0.01));
  }
  for (const Shape shape : {Shape{1024, 64}, Shape{64, 1024}, Shape{1, 131072}}) add_shape("language", language_scores(shape));
  add_threads();
  benchmark::RunSpecifiedBenchmarks();
}

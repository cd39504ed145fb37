// The product of attention (src/attention/product-inl.h) beside the libraries that were not chosen: OpenBLAS and oneDNN, one
// thread each, 48 queries, interleaved. Results are compared before they are timed. Compiled for one SIMD target only.
//
// bench_products   prints the table of docs/internals.md

#define HWY_COMPILE_ONLY_STATIC
#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "src/attention/product-inl.h"

// As in cblas.h; a machine may have several of these.
extern "C" void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                            int lda, const float* b, int ldb, float beta, float* c, int ldc);
extern "C" void openblas_set_num_threads(int n);

namespace {

using namespace isentropic::HWY_NAMESPACE;  // NOLINT

constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;

void table_row(int n, int d) {
  const int m = 48;
  const auto size = [](int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); };
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-0.5, 0.5);
  std::vector<float> q(size(m, d)), k(size(n, d)), v(size(n, d)), packed(size(n + 64, d)), s[3], out[3];
  for (auto* x : {&q, &k, &v}) std::generate(x->begin(), x->end(), [&] { return uniform(random); });
  for (int i = 0; i < 3; ++i) s[i].resize(size(m, n)), out[i].resize(size(m, d));
  PackTransposed(k.data(), d, static_cast<size_t>(n), static_cast<size_t>(d), packed.data());
  const auto rows = static_cast<size_t>(m), cols = static_cast<size_t>(n), width = static_cast<size_t>(d);
  const std::function<void()> calls[] = {
      [&] {
        ProductWithPanels(Factor<float>{q.data(), d, 1}, rows, packed.data(), width, cols, s[0].data(), n);
      },
      [&] { cblas_sgemm(kRowMajor, kPlain, kTransposed, m, n, d, 1, q.data(), d, k.data(), d, 0, s[1].data(), n); },
      [&] { dnnl_sgemm('N', 'T', m, n, d, 1, q.data(), d, k.data(), d, 0, s[2].data(), n); },
      [&] {
        Product(false, Factor<float>{s[0].data(), n, 1}, rows, v.data(), d, cols, out[0].data(), d, width);
      },
      [&] { cblas_sgemm(kRowMajor, kPlain, kPlain, m, d, n, 1, s[0].data(), n, v.data(), d, 0, out[1].data(), d); },
      [&] { dnnl_sgemm('N', 'N', m, d, n, 1, s[0].data(), n, v.data(), d, 0, out[2].data(), d); },
  };
  for (const auto& call : calls) call();
  for (int i = 1; i < 3; ++i) {
    for (std::size_t j = 0; j < s[0].size(); ++j) {
      if (!(std::fabs(s[i][j] - s[0][j]) < 1e-4f)) std::abort();
    }
    for (std::size_t j = 0; j < out[0].size(); ++j) {
      if (!(std::fabs(out[i][j] - out[0][j]) < 1e-3f)) std::abort();
    }
  }
  std::vector<double> seconds[6];
  for (int repeat = 0; repeat < 101; ++repeat) {
    for (int i = 0; i < 6; ++i) {
      const auto start = std::chrono::steady_clock::now();
      calls[i]();
      seconds[i].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  fmt::print("| {}, {} |", n, d);
  for (auto& times : seconds) {
    std::nth_element(times.begin(), times.begin() + 10, times.end());  // the calls that a busy machine did not disturb
    fmt::print(" {:.0f} |", 2e-9 * m * n * d / times[10]);
  }
  fmt::print("\n");
}

}  // namespace

int main() {
  openblas_set_num_threads(1);
  omp_set_num_threads(1);
  fmt::print("GFLOP/s, {}\n| keys, columns | scores: own | OpenBLAS | oneDNN | values: own | OpenBLAS | oneDNN |\n",
             hwy::TargetName(HWY_TARGET));
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const int n : {256, 1024, 4096}) {
    for (const int d : {64, 128}) table_row(n, d);
  }
}

// Maps, called: checks, threads and memory for the kernels.

#include "entropic/maps.h"

#include <algorithm>

#include "entropic/perturb_max.h"
#include "src/check.h"
#include "src/maps/kernels.h"
#include "src/parallel.h"
#include "src/scratch.h"

namespace entropic {
namespace {

// A batch of at least this many bytes is written around the caches: more than a core's share of the last level.
constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;

// Shares the rows of x out and calls rows(share) for each piece. `cost` is the operation's, see Description.
template <class T, class Rows>
void for_shares(MatrixView<const T> x, const T* out, const Rows& rows, std::size_t cost = 1) {
  if (x.cols == 0) return;
  // Not over the input: its lines are in cache already.
  const bool stream = out != x.data && x.rows * x.cols * sizeof(T) >= kStreamedBytes;
  parallel_rows(x.rows, x.cols * cost, [&](std::size_t begin, std::size_t end) {
    const std::size_t kernel = (3 * x.cols + 79) / 16 * 16;
    double* memory = scratch(kernel + x.cols);
    rows(Share<T>{begin, end, memory, reinterpret_cast<T*>(memory + kernel), stream});
  });
}

template <class T>
void check_map(std::string_view name, const MatrixView<const T>& x, std::string_view out_name, const MatrixView<T>& out) {
  check_layout(name, "x", x);
  check_shape(name, out_name, out, "x", x.rows, x.cols);
  check_overlap(name, out_name, out, "x", x);
}

template <class T>
void check_vjp(std::string_view name, const MatrixView<const T>& x, std::string_view y_name, const MatrixView<const T>& y,
               const MatrixView<const T>& g, const MatrixView<T>& dx) {
  check_map(name, x, "dx", dx);
  check_shape(name, y_name, y, "x", x.rows, x.cols);
  check_shape(name, "g", g, "x", x.rows, x.cols);
  check_overlap(name, "dx", dx, y_name, y);
  check_overlap(name, "dx", dx, "g", g);
}

const Description& description_of(const Map& map) {
  return std::visit([](const auto& op) -> const Description& { return op.kDescription; }, map);
}

// What has two names has one kernel: the largest of scores with gumbel noise has softmax's law.
Map kernel_map(const Map& map) {
  const auto* const op = std::get_if<PerturbMax>(&map);
  if (op != nullptr && op->noise == PerturbMax::Noise::gumbel) return Softmax{.temperature = op->scale};
  return map;
}

}  // namespace

template <class T>
void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p, std::span<const PerRow> per_row) {
  std::visit([&](const auto& op) { check_params(op, per_row, x.rows); }, map);
  check_map(description_of(map).name, x, "p", p);
  const auto rows = kernels<T>().map;
  const Map same = kernel_map(map);
  for_shares<T>(
      x, p.data, [&](Share<T> share) { rows(same, x, p, per_row, share); }, description_of(same).cost);
}

template <class T>
void apply_vjp(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> p,
               MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, std::span<const PerRow> per_row,
               std::span<const ParamGradient> gradients) {
  std::visit(
      [&]<class Op>(const Op& op) {
        check_params(op, per_row, x.rows);
        for (const ParamGradient& asked : gradients) check_per_row<Op>(asked.parameter, asked.values.size(), x.rows);
      },
      map);
  check_vjp(description_of(map).name, x, "p", p, g, dx);
  if (x.cols == 0) {
    for (const ParamGradient& asked : gradients) std::fill(asked.values.begin(), asked.values.end(), 0.0);
  }
  const auto rows = kernels<T>().vjp;
  const Map same = kernel_map(map);
  for_shares<T>(
      x, dx.data, [&](Share<T> share) { rows(same, x, p, g, dx, per_row, gradients, share); }, description_of(same).cost);
}

template <class T>
void perturb_max(const NoiseFunctions& noise, double scale, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p) {
  const CustomPerturbMax op = {noise, scale};
  check_params(op);
  check_map(op.kDescription.name, x, "p", p);
  const auto rows = kernels<T>().perturb_max;
  for_shares<T>(
      x, p.data, [&](Share<T> share) { rows(op, x, p, share); }, op.kDescription.cost);
}

template <class T>
void perturb_max_vjp(const NoiseFunctions& noise, double scale, MatrixView<const std::type_identity_t<T>> x,
                     MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                     MatrixView<T> dx) {
  const CustomPerturbMax op = {noise, scale};
  check_params(op);
  check_vjp(op.kDescription.name, x, "p", p, g, dx);
  const auto rows = kernels<T>().perturb_max_vjp;
  for_shares<T>(
      x, dx.data, [&](Share<T> share) { rows(op, x, p, g, dx, share); }, op.kDescription.cost);
}

template <class T>
void log_softmax(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y, const LogSoftmax& options) {
  check_params(options);
  check_map("log_softmax", x, "y", y);
  const auto rows = kernels<T>().log_softmax;
  for_shares<T>(x, y.data, [&](Share<T> share) { rows(options, x, y, share); });
}

template <class T>
void log_softmax_vjp(MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> y,
                     MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, const LogSoftmax& options) {
  check_params(options);
  check_vjp("log_softmax", x, "y", y, g, dx);
  const auto rows = kernels<T>().log_softmax_vjp;
  for_shares<T>(x, dx.data, [&](Share<T> share) { rows(options, x, y, g, dx, share); });
}

template <class T>
void logsumexp(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y, const LogSumExp& options) {
  check_params(options);
  check_layout("logsumexp", "x", x);
  check_shape("logsumexp", "y", y, "a column with x's rows", x.rows, std::size_t{1});
  if (overlap(x, MatrixView<const T>(y))) fail("logsumexp: y must share no memory with x");
  // The sum of nothing is 0; there are no rows to share out.
  if (x.cols == 0) {
    for (std::size_t r = 0; r < y.rows; ++r) *y.row(r) = -std::numeric_limits<T>::infinity();
  }
  const auto rows = kernels<T>().logsumexp;
  for_shares<T>(x, y.data, [&](Share<T> share) { rows(options, x, y, share); });
}

template <class T>
void logsumexp_vjp(MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> y,
                   MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, const LogSumExp& options) {
  check_params(options);
  check_map("logsumexp", x, "dx", dx);
  check_shape("logsumexp", "y", y, "a column with x's rows", x.rows, std::size_t{1});
  check_shape("logsumexp", "g", g, "a column with x's rows", x.rows, std::size_t{1});
  if (overlap(g, MatrixView<const T>(dx))) fail("logsumexp: dx must share no memory with g");
  if (overlap(y, MatrixView<const T>(dx))) fail("logsumexp: dx must share no memory with y");
  const auto rows = kernels<T>().logsumexp_vjp;
  for_shares<T>(x, dx.data, [&](Share<T> share) { rows(options, x, g, dx, share); });
}

template void apply(const Map&, MatrixView<const float>, MatrixView<float>, std::span<const PerRow>);
template void apply(const Map&, MatrixView<const double>, MatrixView<double>, std::span<const PerRow>);
template void apply_vjp(const Map&, MatrixView<const float>, MatrixView<const float>, MatrixView<const float>,
                        MatrixView<float>, std::span<const PerRow>, std::span<const ParamGradient>);
template void apply_vjp(const Map&, MatrixView<const double>, MatrixView<const double>, MatrixView<const double>,
                        MatrixView<double>, std::span<const PerRow>, std::span<const ParamGradient>);
template void perturb_max(const NoiseFunctions&, double, MatrixView<const float>, MatrixView<float>);
template void perturb_max(const NoiseFunctions&, double, MatrixView<const double>, MatrixView<double>);
template void perturb_max_vjp(const NoiseFunctions&, double, MatrixView<const float>, MatrixView<const float>,
                              MatrixView<const float>, MatrixView<float>);
template void perturb_max_vjp(const NoiseFunctions&, double, MatrixView<const double>, MatrixView<const double>,
                              MatrixView<const double>, MatrixView<double>);
template void log_softmax(MatrixView<const float>, MatrixView<float>, const LogSoftmax&);
template void log_softmax(MatrixView<const double>, MatrixView<double>, const LogSoftmax&);
template void log_softmax_vjp(MatrixView<const float>, MatrixView<const float>, MatrixView<const float>, MatrixView<float>,
                              const LogSoftmax&);
template void log_softmax_vjp(MatrixView<const double>, MatrixView<const double>, MatrixView<const double>, MatrixView<double>,
                              const LogSoftmax&);
template void logsumexp(MatrixView<const float>, MatrixView<float>, const LogSumExp&);
template void logsumexp(MatrixView<const double>, MatrixView<double>, const LogSumExp&);
template void logsumexp_vjp(MatrixView<const float>, MatrixView<const float>, MatrixView<const float>, MatrixView<float>,
                            const LogSumExp&);
template void logsumexp_vjp(MatrixView<const double>, MatrixView<const double>, MatrixView<const double>, MatrixView<double>,
                            const LogSumExp&);

}  // namespace entropic

// Maps, dispatched: for every SIMD target the loops over rows that call the kernels; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/maps/maps.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/maps/all-inl.h"
#include "src/maps/custom_perturb_max.h"
#include "src/per_row.h"

#ifndef ENTROPIC_MAPS_MAPS_CC_
#define ENTROPIC_MAPS_MAPS_CC_

namespace entropic {

// One thread's share of a batch: rows [begin, end), and working memory for one row at a time.
template <class T>
struct Share {
  std::size_t begin, end;
  double* scratch;  // of the kernel: 3 n + 64
  T* rescaled;      // of PrepareRow: n
  bool stream;      // the output is too large for the cache
};

// What one SIMD target has for one element type.
template <class T>
struct MapKernels {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  void (*map)(const Map&, In x, Out p, std::span<const PerRow>, Share<T>);
  void (*vjp)(const Map&, In x, In p, In g, Out dx, std::span<const PerRow>, std::span<const ParamGradient>, Share<T>);
  void (*perturb_max)(const CustomPerturbMax&, In x, Out p, Share<T>);
  void (*perturb_max_vjp)(const CustomPerturbMax&, In x, In p, In g, Out dx, Share<T>);
  void (*log_softmax)(const LogSoftmax&, In x, Out y, Share<T>);
  void (*log_softmax_vjp)(const LogSoftmax&, In x, In y, In g, Out dx, Share<T>);
  void (*logsumexp)(const LogSumExp&, In x, Out y, Share<T>);
  void (*logsumexp_vjp)(const LogSumExp&, In x, In g, Out dx, Share<T>);
};

}  // namespace entropic

#endif  // ENTROPIC_MAPS_MAPS_CC_

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Whether Op has a kernel for short rows.
template <class Op, class T>
constexpr bool HasShortKernel() {
  return requires(const Op& op, hn::Vec<RowTag<T>> max, ShortRows<T>& rows, T* const* out) {
    MapShortRows(op, max, rows, out, size_t{});
  }
  || requires(const Op& op, hn::Vec<RowTag<T>>* max, ShortRows<T>* rows, T* const* out) {
    MapShortRows(op, max, rows, out, size_t{});
  };
}

// Rows of at most ShortRows::kLongest, a few groups at a time.
template <class Op, class T>
HWY_INLINE void MapShortGroups(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  constexpr size_t kGroups = kShortGroups<Op>, kRows = ShortRows<T>::kRows;
  const RowTag<T> d;
  const size_t most = kGroups * kRows;
  for (size_t begin = share.begin; begin < share.end; begin += most) {
    const size_t count = HWY_MIN(most, share.end - begin);
    T* out[kGroups * kRows];
    ShortRows<T> rows[kGroups];
    hn::Vec<RowTag<T>> max[kGroups];
    for (size_t first = 0; first < count; first += kRows) {
      const T* in[kRows];
      for (size_t r = 0; r < kRows; ++r) {
        const size_t row = begin + HWY_MIN(first + r, count - 1);
        in[r] = x.row(row);
        out[first + r] = p.row(row);
      }
      const size_t g = first / kRows;
      rows[g].Resize(x.cols);
      max[g] = rows[g].Load(in, -kInfinity<T>);
      if (HWY_UNLIKELY(!hn::AllTrue(d, hn::IsFinite(max[g])))) {
        HWY_ALIGN T row_max[ShortRows<T>::kLanes];
        hn::Store(max[g], d, row_max);
        for (size_t r = 0; r < HWY_MIN(kRows, count - first); ++r) {
          if (IsFinite(row_max[r])) continue;
          NonFiniteRow(d, in[r], x.cols, x.cols, out[first + r]);
          out[first + r] = share.rescaled;  // takes what the kernel makes of it
        }
      }
    }
    if constexpr (kGroups == 1) {
      MapShortRows(op, max[0], rows[0], out, count);
    } else {
      MapShortRows(op, max, rows, out, count);
    }
  }
}

// Rows [share.begin, share.end) by one op.
template <class Op, class T>
HWY_INLINE void MapRowsBy(const Op& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  if constexpr (HasShortKernel<Op, T>()) {
    if (n <= ShortRows<T>::kLongest && HasShortRows(op) && !HasExtremeTemperature<T>(op)) {
      return MapShortGroups(op, x, p, share);
    }
  }
  for (size_t r = share.begin; r < share.end; ++r) {
    const auto row = PrepareRow(d, op, x.row(r), n, share.rescaled);
    if (IsFinite(row.max)) {
      MapRow(d, row.op, row.x, n, row.max, p.row(r), {share.scratch, share.stream});
    } else {
      NonFiniteRow(d, x.row(r), n, MostInfinite(op, CountInfinite(x.row(r), n)), p.row(r));
    }
  }
}

// All rows by one op, or each by its own.
template <class Op, class T>
void MapRows(const Op& op, MatrixView<const T> x, MatrixView<T> p, std::span<const PerRow> per_row, Share<T> share) {
  if (per_row.empty()) {
    MapRowsBy(op, x, p, share);
  } else {
    for (Share<T> row = share; row.begin < share.end; ++row.begin) {
      row.end = row.begin + 1;
      MapRowsBy(at_row(op, per_row, row.begin), x, p, row);
    }
  }
  if (share.stream) hwy::FlushStream();
}

template <class Op, class T>
void VjpRows(const Op& common, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, MatrixView<T> dx,
             std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const Op op = at_row(common, per_row, r);
    const bool infinite = HasInfiniteScore(x.row(r), p.row(r), n, T(0));
    // Before dx, which may stand where an input does.
    ParamValues<Op> dparams = {};
    if constexpr (has_per_row<Op>()) {
      if (!gradients.empty() && !infinite) {
        dparams = ParamVjpRow(d, op, x.row(r), p.row(r), g.row(r), n, {share.scratch, share.stream});
      }
    }
    if (infinite) {
      FillRow(d, T(0), n, dx.row(r));
    } else {
      VjpRow(d, op, x.row(r), p.row(r), g.row(r), n, dx.row(r), {share.scratch, share.stream});
    }
    for (const ParamGradient& gradient : gradients) gradient.values[r] = value_of<Op>(dparams, gradient.parameter);
  }
  if (share.stream) hwy::FlushStream();
}

template <class T>
void AnyMapRows(const Map& map, MatrixView<const T> x, MatrixView<T> p, std::span<const PerRow> per_row, Share<T> share) {
  std::visit([&](const auto& op) { MapRows(op, x, p, per_row, share); }, map);
}

template <class T>
void AnyVjpRows(const Map& map, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g, MatrixView<T> dx,
                std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, Share<T> share) {
  std::visit([&](const auto& op) { VjpRows(op, x, p, g, dx, per_row, gradients, share); }, map);
}

template <class T>
void CustomPerturbMaxRows(const CustomPerturbMax& op, MatrixView<const T> x, MatrixView<T> p, Share<T> share) {
  MapRows(op, x, p, {}, share);
}

template <class T>
void CustomPerturbMaxVjpRows(const CustomPerturbMax& op, MatrixView<const T> x, MatrixView<const T> p, MatrixView<const T> g,
                             MatrixView<T> dx, Share<T> share) {
  VjpRows(op, x, p, g, dx, {}, {}, share);
}

template <class T>
void LogSoftmaxRows(const LogSoftmax& op, MatrixView<const T> x, MatrixView<T> y, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const auto row = PrepareRow(d, op, x.row(r), n, share.rescaled);
    if (IsFinite(row.max)) {
      LogSoftmaxRow(d, row.op, row.x, n, row.max, y.row(r));
    } else {
      NonFiniteRow(d, x.row(r), n, n, y.row(r));
      ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
        StoreUpTo(Log(d, LoadUpTo(d, y.row(r) + i, count, T(1))), d, count, y.row(r) + i);
      });
    }
  }
}

template <class T>
void LogSoftmaxVjpRows(const LogSoftmax& op, MatrixView<const T> x, MatrixView<const T> y, MatrixView<const T> g,
                       MatrixView<T> dx, Share<T> share) {
  const RowTag<T> d;
  for (size_t r = share.begin; r < share.end; ++r) {
    if (HasInfiniteScore(x.row(r), y.row(r), x.cols, -kInfinity<T>)) {
      FillRow(d, T(0), x.cols, dx.row(r));
    } else {
      LogSoftmaxVjpRow(d, op, x.row(r), y.row(r), g.row(r), x.cols, dx.row(r));
    }
  }
}

template <class T>
void LogSumExpRows(const LogSumExp& op, MatrixView<const T> x, MatrixView<T> y, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const auto row = PrepareRow(d, op, x.row(r), n, share.rescaled);
    *y.row(r) = IsFinite(row.max) ? static_cast<T>(static_cast<double>(row.original_max) +
                                                   op.temperature * LogSumExpRow(d, row.op, row.x, n, row.max))
                                  : NonFiniteLogSumExp(x.row(r), n);
  }
}

// dx = g softmax(x/T): the map itself, into dx, then the factor.
template <class T>
void LogSumExpVjpRows(const LogSumExp& op, MatrixView<const T> x, MatrixView<const T> g, MatrixView<T> dx, Share<T> share) {
  const RowTag<T> d;
  const size_t n = x.cols;
  for (size_t r = share.begin; r < share.end; ++r) {
    const auto row = PrepareRow(d, Softmax{.temperature = op.temperature}, x.row(r), n, share.rescaled);
    if (IsFinite(row.max)) {
      MapRow(d, row.op, row.x, n, row.max, dx.row(r), {share.scratch, false});
      ScaleRow(d, *g.row(r), n, dx.row(r));
    } else {
      // The gradient is 0 at -inf scores and in rows with +inf.
      FillRow(d, NonFiniteLogSumExp(x.row(r), n) == row.max ? T(0) : kNaN<T>, n, dx.row(r));
    }
  }
}

template <class T>
MapKernels<T> Kernels() {
  return {AnyMapRows<T>,     AnyVjpRows<T>,        CustomPerturbMaxRows<T>, CustomPerturbMaxVjpRows<T>,
          LogSoftmaxRows<T>, LogSoftmaxVjpRows<T>, LogSumExpRows<T>,        LogSumExpVjpRows<T>};
}

// One exported name for each element type: Highway's tables hold functions, not templates.
MapKernels<float> KernelsF32() { return Kernels<float>(); }
MapKernels<double> KernelsF64() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "src/check.h"
#include "src/parallel.h"
#include "src/scratch.h"

namespace entropic {
namespace {

HWY_EXPORT(KernelsF32);
HWY_EXPORT(KernelsF64);

template <class T>
MapKernels<T> kernels() {
  if constexpr (sizeof(T) == 4) {
    return HWY_DYNAMIC_DISPATCH(KernelsF32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(KernelsF64)();
  }
}

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

#endif  // HWY_ONCE

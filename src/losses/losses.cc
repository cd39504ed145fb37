// Losses, dispatched: for every SIMD target the loops over rows; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/losses/losses.cc"
#include "entropic/losses.h"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/losses/divergence-inl.h"
#include "src/losses/fenchel_young-inl.h"
#include "src/losses/softmax-inl.h"
#include "src/maps/kernels.h"
#include "src/per_row.h"

#ifndef ENTROPIC_LOSSES_CC_
#define ENTROPIC_LOSSES_CC_

#include <algorithm>
#include <vector>

namespace entropic::inline ENTROPIC_ABI {

// A batch as its kernels get it: classes or a matrix of targets; dx has no data where no gradient is wanted.
template <class T>
struct LossBatch {
  MatrixView<const T> x;
  std::span<const std::int64_t> classes;
  MatrixView<const T> target;
  std::span<double> value;
  MatrixView<T> dx;
  std::vector<PerRow> per_row;
  std::vector<ParamGradient> gradients;
  std::optional<std::int64_t> ignored;

  bool is_ignored(std::size_t r) const { return ignored && !classes.empty() && classes[r] == *ignored; }

  // Rows [begin, begin + count).
  LossBatch rows(std::size_t begin, std::size_t count) const {
    LossBatch part = *this;
    part.x = {x.row(begin), count, x.cols, x.row_stride};
    if (!classes.empty()) part.classes = classes.subspan(begin, count);
    if (target.data != nullptr) part.target = {target.row(begin), count, target.cols, target.row_stride};
    part.value = value.subspan(begin, count);
    if (dx.data != nullptr) part.dx = {dx.row(begin), count, dx.cols, dx.row_stride};
    part.per_row = of_rows(std::span<const PerRow>(per_row), begin, count);
    part.gradients = of_rows(std::span<const ParamGradient>(gradients), begin, count);
    return part;
  }
};

// Working memory: what the loss wants for rows of n, and a block of rows for their distributions.
template <class T>
struct LossScratch {
  const MapKernels<T>& maps;
  Arena memory;
  T* block;  // block_rows x n
  std::size_t block_rows;
};

// The map that a loss starts from.
inline Map map_of(const SparsemaxLoss& /*op*/) { return Sparsemax{}; }
inline Map map_of(const EntmaxLoss& op) { return Entmax{.alpha = op.alpha}; }
inline Map map_of(const TopKSoftmaxLoss& op) { return TopKSoftmax{.k = op.k}; }
inline Map map_of(const TopPSoftmaxLoss& op) { return TopPSoftmax{.p = op.p}; }
inline Map map_of(const SmoothAccuracyLoss& op) { return op.map; }
inline Map map_of(const SurrogateLoss& op) { return op.map; }

// What one SIMD target has for one element type.
template <class T>
struct LossKernels {
  void (*rows)(const Loss&, const LossBatch<T>&, LossScratch<T>);
  // Bytes of memory that it wants for rows of n.
  std::size_t (*memory)(const Loss&, const MapKernels<T>&, std::size_t n);
};

}  // namespace entropic::inline ENTROPIC_ABI

#endif  // ENTROPIC_LOSSES_CC_

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void FillGradient(const LossBatch<T>& batch, size_t r, T value) {
  if (batch.dx.data != nullptr) FillRow(RowTag<T>(), value, batch.x.cols, batch.dx.row(r));
}

// A row whose value, 0 or NaN, is its gradient's too: one that is ignored, or has no loss.
template <class T>
void Settle(const LossBatch<T>& batch, size_t r, double value) {
  batch.value[r] = value;
  FillGradient(batch, r, static_cast<T>(value));
}

template <class T>
TargetOfRow<T> TargetOf(const LossBatch<T>& batch, size_t r) {
  return {batch.target.data == nullptr ? nullptr : batch.target.row(r),
          batch.classes.empty() ? 0 : static_cast<size_t>(batch.classes[r])};
}

// A row of +inf scores as one without: these at 0, all else absent.
template <class T>
void Canonical(const T* x, size_t n, T* out) {
  for (size_t i = 0; i < n; ++i) out[i] = x[i] == kInfinity<T> ? T(0) : -kInfinity<T>;
}

// The value of one row, whose maximum is finite; its gradient goes to dx, where there is one.

template <class T>
double LossRow(const SoftmaxLoss& op, const T* x, size_t n, T max, TargetOfRow<T> target, T* dx) {
  const RowTag<T> d;
  if (target.q != nullptr) return SoftmaxDistributionRow(d, op.label_smoothing, x, n, max, target.q, dx);
  if (op.label_smoothing == 0) return SoftmaxClassRow<false>(d, 0, x, n, max, target.t, dx);
  return SoftmaxClassRow<true>(d, op.label_smoothing, x, n, max, target.t, dx);
}

// The derivative of row r's value in a parameter, to where it is asked for. SettleSlopes comes last.
template <class T>
void PutSlope(const LossBatch<T>& batch, size_t r, std::string_view parameter, double slope) {
  for (const ParamGradient& gradient : batch.gradients) {
    if (gradient.parameter == parameter) gradient.values[r] = slope;
  }
}

// Rows that have no derivative in a parameter, whatever was put there.
template <class T>
void SettleSlopes(const LossBatch<T>& batch) {
  for (const ParamGradient& gradient : batch.gradients) {
    for (size_t r = 0; r < batch.x.rows; ++r) {
      const double value = batch.value[r];
      if (value != value) gradient.values[r] = value;
      if (value == kInfinity<double> || batch.is_ignored(r)) gradient.values[r] = 0;
    }
  }
}

// One row of any kind, whose maximum was taken.
template <class T>
void SoftmaxLossRow(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch, size_t r, T max) {
  const size_t n = batch.x.cols;
  const T* const x = batch.x.row(r);
  if (batch.is_ignored(r)) {
    Settle(batch, r, 0);
    return;
  }
  const TargetOfRow<T> target = TargetOf(batch, r);
  if (IsFinite(max)) {
    batch.value[r] = LossRow(op, x, n, max, target, batch.dx.data == nullptr ? nullptr : batch.dx.row(r));
  } else if (NonFiniteLogSumExp(x, n) == kInfinity<T>) {
    T* const canonical = scratch.memory.template take<T>(n);
    Canonical(x, n, canonical);
    batch.value[r] = LossRow<T>(op, canonical, n, T(0), target, nullptr);
    FillGradient(batch, r, T(0));
  } else {
    Settle(batch, r, kNaN<double>);
  }
}

// Short rows against a class, a group at a time. Those that are ignored or have no finite maximum are dealt with first, and
// take part without a result.
template <class T>
void SoftmaxLossShortRows(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  constexpr size_t kRows = ShortRows<T>::kRows;
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  const bool gradient = batch.dx.data != nullptr;
  ShortRows<T> others(n);
  T *const copies = scratch.memory.template take<T>(kRows * n), *const nowhere = scratch.memory.template take<T>(n);
  for (size_t begin = 0; begin < batch.x.rows; begin += kRows) {
    const size_t count = HWY_MIN(kRows, batch.x.rows - begin);
    const T* in[kRows];
    T* out[kRows];
    size_t t[kRows];
    HWY_ALIGN T own[kRows], row_max[ShortRows<T>::kLanes];
    for (size_t i = 0; i < kRows; ++i) {
      const size_t r = begin + HWY_MIN(i, count - 1);
      T* const copy = copies + i * n;
      std::copy(batch.x.row(r), batch.x.row(r) + n, copy);
      t[i] = batch.is_ignored(r) ? 0 : static_cast<size_t>(batch.classes[r]);
      own[i] = copy[t[i]];
      copy[t[i]] = -kInfinity<T>;
      in[i] = copy;
      out[i] = gradient ? batch.dx.row(r) : nowhere;
    }
    const auto max = hn::Max(others.Load(in, -kInfinity<T>), others.Spread(own));
    hn::Store(max, d, row_max);
    bool done[kRows] = {};
    for (size_t i = 0; i < count; ++i) {
      if (IsFinite(row_max[i]) && !batch.is_ignored(begin + i)) continue;
      SoftmaxLossRow(op, batch, scratch, begin + i, row_max[i]);
      done[i] = true, out[i] = nowhere;
    }
    double value[kRows];
    SoftmaxClassShortRows(others, t, own, max, value, gradient ? out : nullptr, count);
    for (size_t i = 0; i < count; ++i) {
      if (!done[i]) batch.value[begin + i] = value[i];
    }
  }
}

template <class T>
void SoftmaxLossRows(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const size_t n = batch.x.cols;
  if (n <= ShortRows<T>::kLongest && op.label_smoothing == 0 && batch.target.data == nullptr) {
    return SoftmaxLossShortRows(op, batch, scratch);
  }
  for (size_t r = 0; r < batch.x.rows; ++r) {
    SoftmaxLossRow(op, batch, scratch, r, batch.is_ignored(r) ? T(0) : RowMax(RowTag<T>(), batch.x.row(r), n));
  }
}

// Rows of scores with a softmax of their own: no map is called.
template <class T>
void FusedRows(const SoftmaxLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  Arena memory = scratch.memory;
  T* const canonical = memory.take<T>(n);
  for (size_t r = 0; !batch.gradients.empty() && r < batch.x.rows; ++r) {  // before dx is written over x
    if (batch.is_ignored(r)) continue;
    const T* x = batch.x.row(r);
    T max = RowMax(d, x, n);
    if (max == kInfinity<T>) {
      Canonical(x, n, canonical);
      x = canonical, max = T(0);
    }
    PutSlope(batch, r, "label_smoothing", SmoothingSlope(d, x, n, max, TargetOf(batch, r)));
  }
  if (batch.per_row.empty()) return SoftmaxLossRows(op, batch, scratch);
  for (size_t r = 0; r < batch.x.rows; ++r) SoftmaxLossRows(at_row(op, batch.per_row, r), batch.rows(r, 1), scratch);
}

template <class T>
void FusedRows(const MarginSoftmaxLoss& common, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const RowTag<T> d;
  T* const terms = scratch.memory.template take<T>(batch.x.cols);
  for (size_t r = 0; r < batch.x.rows; ++r) {
    if (batch.is_ignored(r)) {
      Settle(batch, r, 0);
      continue;
    }
    const bool gradient = batch.dx.data != nullptr;
    T* const row = gradient ? batch.dx.row(r) : terms;
    MarginSlopes slopes;
    batch.value[r] =
        MarginRow(d, at_row(common, batch.per_row, r), batch.x.row(r), batch.x.cols, static_cast<size_t>(batch.classes[r]), row,
                  gradient, batch.gradients.empty() ? nullptr : &slopes);
    PutSlope(batch, r, "margin", slopes.margin);
    PutSlope(batch, r, "scale", slopes.scale);
  }
}

template <class T>
void FusedRows(const MultilabelSoftmaxLoss& /*op*/, const LossBatch<T>& batch, LossScratch<T> /*scratch*/) {
  const RowTag<T> d;
  for (size_t r = 0; r < batch.x.rows; ++r) {
    T* const dx = batch.dx.data == nullptr ? nullptr : batch.dx.row(r);
    batch.value[r] = MultilabelRow(d, batch.x.row(r), batch.x.cols, batch.target.row(r), dx);
  }
}

HWY_INLINE double PairRow(const DistillationLoss& op, const StudentAndTeacher& rows, double* dx) {
  return DistillationRow(op.temperature, rows, dx);
}
HWY_INLINE double PairRow(const JsdLoss& op, const StudentAndTeacher& rows, double* dx) { return JsdRow(op.beta, rows, dx); }
template <class T>
void PutPairSlopes(const DistillationLoss& op, const StudentAndTeacher& rows, const LossBatch<T>& batch, size_t r) {
  PutSlope(batch, r, "temperature", DistillationSlope(op.temperature, rows));
}
template <class T>
void PutPairSlopes(const JsdLoss& op, const StudentAndTeacher& rows, const LossBatch<T>& batch, size_t r) {
  PutSlope(batch, r, "beta", JsdSlope(op.beta, rows));
}
HWY_INLINE double TemperatureOf(const DistillationLoss& op) { return op.temperature; }
HWY_INLINE double TemperatureOf(const JsdLoss& /*op*/) { return 1; }

template <class Op, class T>
void PairRows(const Op& common, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const D64 d;
  const size_t n = batch.x.cols;
  Arena& memory = scratch.memory;
  double *const zs = memory.take<double>(n), *const zt = memory.take<double>(n);
  double *const ratios = memory.take<double>(n), *const dx = memory.take<double>(n);
  for (size_t r = 0; r < batch.x.rows; ++r) {
    const Op op = at_row(common, batch.per_row, r);
    const T *const x = batch.x.row(r), *const target = batch.target.row(r);
    const double log_s = LogTermsRow(TemperatureOf(op), x, n, zs);
    const double log_t = LogTermsRow(TemperatureOf(op), target, n, zt);
    if (log_s != log_s || log_t != log_t) {
      Settle(batch, r, kNaN<double>);
      continue;
    }
    const bool gradient = batch.dx.data != nullptr, infinite = RowMax(RowTag<T>(), x, n) == kInfinity<T>;
    const V64 shift = hn::Set(d, log_t);
    const auto teacher = [&](size_t i, size_t count)
                             HWY_ATTR { return Exp(d, hn::Sub(LoadUpTo(d, zt + i, count, -kInfinity<double>), shift)); };
    const bool near = !infinite && LogRatiosOfNearSoftmax(TemperatureOf(op), x, target, n, log_s - log_t, teacher, ratios);
    const StudentAndTeacher rows = {zs, zt, log_s, log_t, near ? ratios : nullptr, n};
    batch.value[r] = PairRow(op, rows, gradient ? dx : nullptr);
    if (!batch.gradients.empty()) PutPairSlopes(op, rows, batch, r);
    if (infinite) {
      FillGradient(batch, r, T(0));
    } else if (gradient) {
      ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
        StoreNarrow(LoadUpTo(d, dx + i, count, 0.0), d, count, batch.dx.row(r) + i);
      });
    }
  }
}

template <class T>
void FusedRows(const DistillationLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  PairRows(op, batch, scratch);
}
template <class T>
void FusedRows(const JsdLoss& op, const LossBatch<T>& batch, LossScratch<T> scratch) {
  PairRows(op, batch, scratch);
}

// The value of one row from its map's p. Against a class p becomes the gradient; against probabilities it stays.

template <class T>
double MappedRow(const EntmaxLoss& op, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  if (target.q != nullptr) return EntmaxDistributionRow(op.alpha, x, n, max, target.q, p);
  return EntmaxClassRow(RowTag<T>(), op.alpha, x, n, max, target.t, p);
}

template <class T>
double MappedRow(const SparsemaxLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  return MappedRow(EntmaxLoss{.alpha = 2}, x, n, max, target, p);
}

template <class T>
double CutRow(const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  const RowTag<T> d;
  return target.q != nullptr ? CutDistributionRow(d, x, n, max, target.q, p) : CutClassRow(d, x, n, max, target.t, p);
}

template <class T>
double MappedRow(const TopKSoftmaxLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  return CutRow(x, n, max, target, p);
}

template <class T>
double MappedRow(const TopPSoftmaxLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  return CutRow(x, n, max, target, p);
}

template <class T>
double MappedRow(const SurrogateLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  const RowTag<T> d;
  const double own = HalfMeanBelow(d, x, n, max, p);
  if (target.q != nullptr) return 2 * (HalfMeanBelow(d, x, n, max, target.q) - own);
  const bool is_absent = x[target.t] == -kInfinity<T>;
  p[target.t] = is_absent ? T(0) : p[target.t] - T(1);
  return 2 * ((0.5 * static_cast<double>(max) - 0.5 * static_cast<double>(x[target.t])) - own);
}

// Rows whose p their map has made, in `p`.
template <class Op, class T>
void MappedRows(const Op& common, const LossBatch<T>& batch, MatrixView<T> p, LossScratch<T> scratch) {
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  T* const canonical = scratch.memory.template take<T>(n);
  for (size_t r = 0; r < batch.x.rows; ++r) {
    const Op op = at_row(common, batch.per_row, r);
    const T* const x = batch.x.row(r);
    T* const pr = p.row(r);
    const TargetOfRow<T> target = TargetOf(batch, r);
    if (batch.is_ignored(r)) {
      Settle(batch, r, 0);
    } else if (pr[0] != pr[0]) {
      Settle(batch, r, kNaN<double>);
    } else {
      const T max = RowMax(d, x, n);
      const bool infinite = !IsFinite(max);
      if (infinite) Canonical(x, n, canonical);
      if constexpr (std::is_same_v<Op, EntmaxLoss>) {
        if (!batch.gradients.empty()) {
          const double slope = EntropySlope(op.alpha, pr, n) - (target.q == nullptr ? 0 : EntropySlope(op.alpha, target.q, n));
          PutSlope(batch, r, "alpha", infinite ? 0 : slope);
        }
      }
      batch.value[r] = MappedRow(op, infinite ? canonical : x, n, infinite ? T(0) : max, target, pr);
      if (infinite) {
        FillGradient(batch, r, T(0));
      } else if (batch.dx.data != nullptr) {
        T* const dx = batch.dx.row(r);
        if (target.q != nullptr) {
          SubtractTarget(d, x, n, target.q, pr, dx);
        } else if (dx != pr) {
          std::copy(pr, pr + n, dx);
        }
      }
    }
  }
}

// -<q, p>, and by the map's vjp the gradient. g waits in scratch.
template <class T>
void MappedRows(const SmoothAccuracyLoss& op, const LossBatch<T>& batch, MatrixView<T> p, LossScratch<T> scratch) {
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  T* const g = scratch.memory.template take<T>(n);
  const bool gradient = batch.dx.data != nullptr || !batch.gradients.empty();
  for (size_t r = 0; r < batch.x.rows; ++r) {
    T* const pr = p.row(r);
    if (batch.is_ignored(r)) {
      Settle(batch, r, 0);
      continue;
    }
    if (pr[0] != pr[0]) {
      Settle(batch, r, kNaN<double>);
      continue;
    }
    if (batch.target.data != nullptr) {
      const T* const q = batch.target.row(r);
      batch.value[r] = 0 - Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
                         return hn::Mul(LoadUpTo(d, pr + i, count, T(0)), LoadUpTo(d, q + i, count, T(0)));
                       });
      for (size_t i = 0; gradient && i < n; ++i) g[i] = -q[i];
    } else {
      const size_t t = static_cast<size_t>(batch.classes[r]);
      batch.value[r] = 0 - static_cast<double>(pr[t]);
      if (gradient) {
        std::fill(g, g + n, T(0));
        g[t] = T(-1);
      }
    }
    if (!gradient) continue;
    const LossBatch<T> row = batch.rows(r, 1);
    const MatrixView<T> dx = row.dx.data == nullptr ? MatrixView<T>(pr, 1, n) : row.dx;
    scratch.maps.vjp(op.map, row.x, {pr, 1, n}, {g, 1, n}, dx, row.per_row, row.gradients, {0, 1, scratch.memory, false});
  }
}

// A row beside what its map wants; four rows of logarithms; one row, and short ones with their largest taken out.
template <class T>
size_t LossMemory(const Loss& loss, const MapKernels<T>& maps, size_t n) {
  return std::visit(
      [&]<class Op>(const Op& op) -> size_t {
        if constexpr (requires { map_of(op); }) return Arena::room<T>(n) + maps.memory(map_of(op), n);
        if constexpr (Op::kTarget == TargetKind::scores) return 4 * Arena::room<double>(n);
        const size_t copies = n <= ShortRows<T>::kLongest ? Arena::room<T>(ShortRows<T>::kRows * n) : 0;
        return 2 * Arena::room<T>(n) + copies;
      },
      loss);
}

template <class T>
void LossRows(const Loss& loss, const LossBatch<T>& batch, LossScratch<T> scratch) {
  const size_t rows = batch.x.rows, n = batch.x.cols;
  // p goes where the gradient will be, unless the scores are there still.
  const bool in_dx = batch.dx.data != nullptr && batch.dx.data != batch.x.data;
  std::visit(
      [&](const auto& op) {
        if constexpr (requires { map_of(op); }) {
          const Map map = map_of(op);
          for (size_t begin = 0; begin < rows; begin += scratch.block_rows) {
            const LossBatch<T> part = batch.rows(begin, HWY_MIN(scratch.block_rows, rows - begin));
            const MatrixView<T> p = in_dx ? part.dx : MatrixView<T>(scratch.block, part.x.rows, n);
            scratch.maps.map(map, part.x, p, part.per_row, {0, part.x.rows, scratch.memory, false});
            MappedRows(op, part, p, scratch);
          }
        } else {
          FusedRows(op, batch, scratch);
        }
      },
      loss);
  SettleSlopes(batch);
}

template <class T>
LossKernels<T> MakeLosses() {
  return {LossRows<T>, LossMemory<T>};
}
ENTROPIC_KERNELS(MakeLosses);

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "src/check.h"
#include "src/half.h"
#include "src/parallel.h"

namespace entropic::inline ENTROPIC_ABI {
namespace {

template <class T>
LossKernels<T> loss_kernels();
ENTROPIC_KERNELS_BY(loss_kernels, MakeLosses);

// What gradients in parameters are asked for: those of the loss, or of its map.
template <class Op>
void check_gradients(const Op& op, std::span<const ParamGradient> gradients, std::size_t rows) {
  constexpr std::string_view kName = Op::kDescription.name;
  for (const ParamGradient& asked : gradients) {
    if constexpr (std::is_same_v<Op, SurrogateLoss>) {
      fail("{}: there is no gradient in {}, since the value means nothing", kName, asked.parameter);
    } else if constexpr (requires { op.map; }) {
      std::visit([&]<class M>(const M&) { check_per_row<M>(asked.parameter, asked.values.size(), rows); }, op.map);
    } else {
      check_per_row<Op>(asked.parameter, asked.values.size(), rows);
    }
    if constexpr (std::is_same_v<Op, MarginSoftmaxLoss>) {
      if (op.kind == MarginSoftmaxLoss::Kind::sphere && asked.parameter == "margin") {
        fail("{}: there is no gradient in margin of kind sphere, which is an integer", kName);
      }
    }
  }
}

template <class Op>
void check_loss(const Op& op, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, std::size_t rows) {
  if constexpr (requires { op.map; }) {
    std::visit([&](const auto& map) { check_params(map, per_row, rows); }, op.map);
  } else {
    check_params(op, per_row, rows);
  }
  check_gradients(op, gradients, rows);
}

// Whether every entry of a row is good, as numbers 0 and 1 and without a branch for each: the compiler makes vectors of it.
template <class T, class Good>
bool all_of_row(const T* row, std::size_t n, const Good& good) {
  int all = 1;
  for (std::size_t i = 0; i < n; ++i) all &= good(static_cast<Working<T>>(row[i]));
  return all != 0;
}

// Refuses the first entry that is not good: `wanted` is what it must be.
template <class T, class Good>
void check_row(std::string_view name, std::string_view argument, std::string_view wanted, const MatrixView<const T>& a,
               std::size_t r, const Good& good) {
  if (all_of_row(a.row(r), a.cols, good)) return;
  for (std::size_t i = 0; i < a.cols; ++i) {
    const auto value = static_cast<Working<T>>(a.row(r)[i]);
    if (good(value) == 0) fail_in_row(name, argument, r, "{} must be {}, got {} at entry {}", argument, wanted, value, i);
  }
}

template <class T, class Good>
void check_target_entries(std::string_view name, std::string_view wanted, const MatrixView<const T>& target, const Good& good) {
  for (std::size_t r = 0; r < target.rows; ++r) check_row(name, "target", wanted, target, r, good);
}

// Entries of a cosine are at most 1 but for rounding; -inf is an absent class, NaN the row's own affair.
template <class T>
void check_cosines(std::string_view name, const LossBatch<T>& batch) {
  const auto good = [](auto c) {
    constexpr decltype(c) kMost = 1.01f;
    return static_cast<int>(!(std::abs(c) > kMost)) | static_cast<int>(c == -std::numeric_limits<decltype(c)>::infinity());
  };
  for (std::size_t r = 0; r < batch.x.rows; ++r) {
    if (!batch.is_ignored(r)) check_row(name, "cosines", "from -1 to 1", batch.x, r, good);
  }
}

void check_classes(std::string_view name, std::span<const std::int64_t> classes, std::size_t rows, std::size_t cols,
                   std::optional<std::int64_t> ignored) {
  if (classes.size() != rows) fail("{}: target must have one class for each of {} rows, got {}", name, rows, classes.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int64_t t = classes[r];
    if (ignored && t == *ignored) continue;
    if (t < 0 || static_cast<std::uint64_t>(t) >= cols) {
      fail_in_row(name, "target", r, "target must be a class from 0 to {}, got {}", static_cast<std::int64_t>(cols) - 1, t);
    }
  }
}

// Non-negative, of sum 1. The sum in 8 parts, so that it is no chain of additions.
template <class T>
void check_distributions(std::string_view name, const MatrixView<const T>& q) {
  check_target_entries(name, "at least 0 in every entry", q, [](auto value) { return static_cast<int>(value >= 0); });
  for (std::size_t r = 0; r < q.rows && q.cols > 0; ++r) {
    const T* const row = q.row(r);
    double sums[8] = {};
    std::size_t i = 0;
    for (; i + 8 <= q.cols; i += 8) {
      for (std::size_t k = 0; k < 8; ++k) sums[k] += static_cast<double>(static_cast<Working<T>>(row[i + k]));
    }
    for (; i < q.cols; ++i) sums[0] += static_cast<double>(static_cast<Working<T>>(row[i]));
    const double sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
    if (!(std::abs(sum - 1) <= kSumTolerance<T>)) {
      fail_in_row(name, "target", r, "target must be a distribution in every row, got a sum of {}", sum);
    }
  }
}

template <class T>
void check_labels(std::string_view name, const MatrixView<const T>& labels) {
  check_target_entries(name, "0 or 1 in every entry", labels,
                       [](auto value) { return static_cast<int>(value == 0) | static_cast<int>(value == 1); });
}

// Everything but the target.
template <class T>
void check_batch(const Loss& loss, const LossBatch<T>& batch) {
  const std::string_view name = description_of(loss).name;
  const std::size_t rows = batch.x.rows, cols = batch.x.cols;
  std::visit([&](const auto& op) { check_loss(op, batch.per_row, batch.gradients, rows); }, loss);
  check_layout(name, "x", batch.x);
  check_size(name, "value", batch.value.size(), rows);
  if (batch.dx.data != nullptr || batch.dx.rows != 0 || batch.dx.cols != 0) {
    check_shape(name, "dx", batch.dx, "x", rows, cols);
    check_overlap(name, "dx", batch.dx, "x", batch.x);
  }
}

// In units of softmax's time for an entry.
std::size_t cost_of(const Loss& loss) {
  return std::visit(
      [](const auto& op) -> std::size_t {
        if constexpr (requires { map_of(op); }) {
          return 1 + std::visit([](const auto& map) { return map.kDescription.cost; }, map_of(op));
        } else {
          return op.kTarget == TargetKind::scores ? 8 : 1;
        }
      },
      loss);
}

// `batch` is checked.
template <class T>
void run(const Loss& loss, const LossBatch<T>& batch) {
  using W = Working<T>;
  const std::size_t rows = batch.x.rows, n = batch.x.cols;
  if (n == 0) {
    const double empty = std::holds_alternative<MultilabelSoftmaxLoss>(loss) ? 0 : std::numeric_limits<double>::quiet_NaN();
    for (std::size_t r = 0; r < rows; ++r) batch.value[r] = batch.is_ignored(r) ? 0 : empty;
    for (const ParamGradient& gradient : batch.gradients) std::fill(gradient.values.begin(), gradient.values.end(), 0.0);
    return;
  }
  const LossKernels<W> kernel = loss_kernels<W>();
  const MapKernels<W> maps = map_kernels<W>();
  // What a map gives a block of rows is in cache when the loss reads it.
  const std::size_t block_rows = rows_in_cache(rows, n);
  const std::size_t room = Arena::room<W>(block_rows * n) + kernel.memory(loss, maps, n);
  const std::size_t wide_size = 3 * n;  // of halves: x, target and gradient
  parallel_rows(rows, n * cost_of(loss), [&](std::size_t begin, std::size_t end) {
    const std::size_t at_once = rows_at_once<T>(end - begin, wide_size);
    const std::size_t wide_rows = kIsHalf<T> ? at_once : 0;
    Arena memory = scratch(Arena::room<float>(wide_rows * wide_size) + room);
    float* const wide_memory = memory.take<float>(wide_rows * wide_size);
    W* const block = memory.take<W>(block_rows * n);
    for (std::size_t first = begin; first < end; first += at_once) {
      const LossBatch<T> part = batch.rows(first, std::min(at_once, end - first));
      float* wide = wide_memory;
      LossBatch<W> work = {working_rows(part.x, 0, part.x.rows, wide),
                           part.classes,
                           {},
                           part.value,
                           {},
                           part.per_row,
                           part.gradients,
                           part.ignored};
      if (part.target.data != nullptr) work.target = working_rows(part.target, 0, part.x.rows, wide);
      work.dx = result_rows(part.dx, 0, part.x.rows, wide);
      kernel.rows(loss, work, {maps, memory, block, block_rows});
      finish_rows(work.dx, part.dx, 0);
    }
  });
}

template <class Numbers>
std::vector<Numbers> to_vector(std::span<const Numbers> numbers) {
  return {numbers.begin(), numbers.end()};
}

}  // namespace

template <class T>
void loss(const Loss& loss, MatrixView<const T> x, std::span<const std::int64_t> classes, std::span<double> value,
          MatrixView<std::type_identity_t<T>> dx, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients,
          std::optional<std::int64_t> ignored) {
  const LossBatch<T> batch = {x, classes, {}, value, dx, to_vector(per_row), to_vector(gradients), ignored};
  check_batch(loss, batch);
  const std::string_view name = description_of(loss).name;
  const TargetKind kind = std::visit([](const auto& op) { return op.kTarget; }, loss);
  if (kind != TargetKind::classes && kind != TargetKind::classes_or_distributions) {
    fail("{}: target must be a matrix of x's shape, got a class for each row", name);
  }
  check_classes(name, classes, x.rows, x.cols, ignored);
  if (std::holds_alternative<MarginSoftmaxLoss>(loss)) check_cosines(name, batch);
  run(loss, batch);
}

template <class T>
void loss(const Loss& loss, MatrixView<const T> x, MatrixView<const std::type_identity_t<T>> target, std::span<double> value,
          MatrixView<std::type_identity_t<T>> dx, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  const LossBatch<T> batch = {x, {}, target, value, dx, to_vector(per_row), to_vector(gradients), {}};
  check_batch(loss, batch);
  const std::string_view name = description_of(loss).name;
  check_shape(name, "target", target, "x", x.rows, x.cols);
  check_apart(name, "dx", dx, "target", target);
  switch (std::visit([](const auto& op) { return op.kTarget; }, loss)) {
    case TargetKind::classes:
      fail("{}: target must be a class for each row, got a matrix", name);
    case TargetKind::classes_or_distributions:
      check_distributions(name, target);
      break;
    case TargetKind::labels:
      check_labels(name, target);
      break;
    case TargetKind::scores:
      break;
  }
  run(loss, batch);
}

template void loss(const Loss&, MatrixView<const float>, std::span<const std::int64_t>, std::span<double>, MatrixView<float>,
                   std::span<const PerRow>, std::span<const ParamGradient>, std::optional<std::int64_t>);
template void loss(const Loss&, MatrixView<const double>, std::span<const std::int64_t>, std::span<double>, MatrixView<double>,
                   std::span<const PerRow>, std::span<const ParamGradient>, std::optional<std::int64_t>);
template void loss(const Loss&, MatrixView<const float16>, std::span<const std::int64_t>, std::span<double>,
                   MatrixView<float16>, std::span<const PerRow>, std::span<const ParamGradient>, std::optional<std::int64_t>);
template void loss(const Loss&, MatrixView<const bfloat16>, std::span<const std::int64_t>, std::span<double>,
                   MatrixView<bfloat16>, std::span<const PerRow>, std::span<const ParamGradient>, std::optional<std::int64_t>);
template void loss(const Loss&, MatrixView<const float>, MatrixView<const float>, std::span<double>, MatrixView<float>,
                   std::span<const PerRow>, std::span<const ParamGradient>);
template void loss(const Loss&, MatrixView<const double>, MatrixView<const double>, std::span<double>, MatrixView<double>,
                   std::span<const PerRow>, std::span<const ParamGradient>);
template void loss(const Loss&, MatrixView<const float16>, MatrixView<const float16>, std::span<double>, MatrixView<float16>,
                   std::span<const PerRow>, std::span<const ParamGradient>);
template void loss(const Loss&, MatrixView<const bfloat16>, MatrixView<const bfloat16>, std::span<double>, MatrixView<bfloat16>,
                   std::span<const PerRow>, std::span<const ParamGradient>);

}  // namespace entropic::inline ENTROPIC_ABI

#endif  // HWY_ONCE

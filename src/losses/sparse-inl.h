// The loss between a student's softmax and a teacher with a few known classes. A row becomes one of a few bins, in float64,
// and the loss is distillation_loss of these.

#if defined(ISENTROPIC_LOSSES_SPARSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_SPARSE_INL_H_
#undef ISENTROPIC_LOSSES_SPARSE_INL_H_
#else
#define ISENTROPIC_LOSSES_SPARSE_INL_H_
#endif

#include <cmath>

#include "src/losses/divergence-inl.h"
#include "src/losses/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
size_t SparseMemory(size_t n, size_t listed) {
  return Arena::room<T>(n) + 3 * Arena::room<double>(listed + 1) + PairMemory<double>(listed + 1);
}

// The classes that are not listed, as one: the largest of their scores, e^(x - max) in `terms`, and the sum of these.
template <class T>
struct TailOfRow {
  T max = -kInfinity<T>;
  double sum = 0;

  // Reads the scores in `terms`, which has -inf for listed classes.
  HWY_INLINE void Read(T* terms, size_t n) {
    const RowTag<T> d;
    max = RowMax(d, terms, n);
    if (!IsFinite(max)) return;
    const ExpScaled<RowTag<T>> exp(d, 1);
    const auto shift = hn::Set(d, max);
    sum = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
      // A teacher may be near, so what the difference a rounds off, b, counts: e^(a + b) = e^a (1 + b).
      const auto xi = LoadUpTo(d, terms + i, count, -kInfinity<T>), below = hn::Sub(xi, shift);
      const auto rest = hn::Sub(xi, hn::Add(below, shift)), e = exp(d, below);
      const auto term = hn::MulAdd(e, hn::IfThenElseZero(hn::IsFinite(rest), rest), e);
      StoreUpTo(term, d, count, terms + i);
      return term;
    });
  }
  // The score that has the mass of all of them.
  HWY_INLINE double Score() const {
    return IsFinite(max) ? static_cast<double>(max) + LogNumber(sum) : static_cast<double>(max);
  }
};

// One row; its gradient goes to dx, which may be x, if it is wanted, its derivatives in the parameters to slopes, likewise.
template <class T>
HWY_INLINE double SparseRow(const SparseDistillationLoss& op, const T* x, size_t n, const int64_t* indices,
                            const double* log_probs, size_t listed, Arena memory, T* dx, double* slopes) {
  using Tail = SparseDistillationLoss::Tail;
  const RowTag<T> d;
  double* const student = memory.take<double>(listed + 1);
  double* const teacher = memory.take<double>(listed + 1);
  double* const gradient = dx == nullptr ? nullptr : memory.take<double>(listed + 1);
  size_t bins = 0;
  double mass = 0;
  bool infinite = false;
  for (size_t k = 0; k < listed; ++k) {
    if (indices[k] < 0) continue;
    student[bins] = static_cast<double>(x[indices[k]]), teacher[bins] = log_probs[k];
    infinite |= student[bins] == kInfinity<double>;
    mass += ExpNumber(teacher[bins++]);
  }
  if (bins == 0) {
    if (dx != nullptr) FillRow(d, T(0), n, dx);
    return 0;
  }
  if (FindNonFinite(x, n).nan) {
    if (dx != nullptr) FillRow(d, kNaN<T>, n, dx);
    for (size_t i = 0; slopes != nullptr && i < count_of(Described<SparseDistillationLoss>::kParams); ++i) {
      slopes[i] = kNaN<double>;
    }
    return kNaN<double>;
  }
  T* const rest = dx == nullptr ? memory.take<T>(n) : dx;
  const bool has_tail = op.tail == Tail::bin && bins < n;
  TailOfRow<T> tail;
  if (has_tail) {
    if (rest != x) std::copy(x, x + n, rest);
    for (size_t k = 0; k < listed; ++k) {
      if (indices[k] >= 0) rest[indices[k]] = -kInfinity<T>;
    }
    tail.Read(rest, n);
    student[bins] = tail.Score(), teacher[bins] = mass < 1 ? Log1pNumber(-mass) : -kInfinity<double>;
    if (tail.max == kInfinity<T>) {  // several may be equal, and share equally
      infinite = true;
      const double ties = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
        return hn::IfThenElseZero(hn::Eq(LoadUpTo(d, rest + i, count, T(0)), hn::Set(d, kInfinity<T>)), hn::Set(d, T(1)));
      });
      for (size_t k = 0; k < bins; ++k) student[k] = student[k] == kInfinity<double> ? 0 : -kInfinity<double>;
      student[bins] = LogNumber(ties);
    }
    ++bins;
  }
  const DistillationLoss dense = {.temperature = op.temperature, .divergence = op.divergence, .beta = op.beta};
  const double value = PairRowOf(dense, student, teacher, bins, memory, gradient, slopes);
  if (dx == nullptr) return value;
  if (infinite || value != value) {
    FillRow(d, infinite ? T(0) : kNaN<T>, n, dx);
    return value;
  }
  if (has_tail && tail.sum > 0) {
    const auto factor = hn::Set(d, static_cast<T>(gradient[--bins] / tail.sum));
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      StoreUpTo(hn::Mul(LoadUpTo(d, dx + i, count, T(0)), factor), d, count, dx + i);
    });
  } else {
    FillRow(d, T(0), n, dx);
  }
  for (size_t k = 0, bin = 0; k < listed; ++k) {
    if (indices[k] >= 0) dx[indices[k]] = static_cast<T>(gradient[bin++]);
  }
  return value;
}

template <class T>
void SparseRows(const SparseDistillationLoss& common, const SparseBatch<T>& batch, Arena memory) {
  for (size_t r = 0; r < batch.x.rows; ++r) {
    const auto op = at_row(common, batch.per_row, r);
    ParamValues<SparseDistillationLoss> slopes = {};
    const double value =
        SparseRow(op, batch.x.row(r), batch.x.cols, batch.indices.row(r), batch.log_probs.row(r), batch.indices.cols, memory,
                  batch.dx.data == nullptr ? nullptr : batch.dx.row(r), batch.gradients.empty() ? nullptr : slopes.data());
    batch.value[r] = value;
    for (const ParamGradient& gradient : batch.gradients) {
      const double slope = value_of<SparseDistillationLoss>(slopes, gradient.parameter);
      gradient.values[r] = value == kInfinity<double> ? 0 : slope;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_SPARSE_INL_H_

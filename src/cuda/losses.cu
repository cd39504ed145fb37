// Kernels of the losses, each with its gradient in the same pass.

#include "src/cuda/losses-inl.h"
#include "src/cuda/streamed-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// -<q, p>; stores the vector for the map's gradient in g, if g is given.
template <class T>
HWY_INLINE double AccuracyOneRow(const T* p, size_t n, TargetOfRow<T> target, T* g) {
  const RowTag<T> d;
  const double value = target.q == nullptr
                           ? 0 - static_cast<double>(p[target.t])
                           : 0 - Sum(d, n, [&](size_t i, size_t) HWY_ATTR { return hn::Set(d, p[i] * target.q[i]); });
  if (g == nullptr) return value;
  ForEachVector(d, n, [&](size_t i, size_t) HWY_ATTR {
    g[i] = target.q != nullptr ? -target.q[i] : i == target.t ? T(-1) : T(0);
  });
  return value;
}

// The loss from p of the map. p is overwritten and may be the place of the gradient. Smooth accuracy writes g instead of a
// gradient; `settle` later sets entries that must be 0 or NaN.
template <class T>
__global__ void __launch_bounds__(512, 1)
    MappedLossKernel(const __grid_constant__ cuda::LossCall<EntmaxLoss> call, cuda::FromMap kind) {
  const size_t n = call.cols;
  const RowTag<T> d;
  ForTeamRows(call, [&](size_t r, const EntmaxLoss& op, bool /*good*/, Arena memory) HWY_ATTR {
    const CheckedTarget<T> target = CheckedTargetOf<EntmaxLoss, T>(call, r, memory);
    T* const p = static_cast<T*>(call.in[2].data) + r * call.in[2].stride;
    if (kind == cuda::FromMap::settle) {
      const double value = call.value[r];
      Team::Barrier();
      if (!target.ignored && value == value) return;
      for (double* const slopes : call.of_map) {
        if (slopes != nullptr && Team::Rank() == 0) slopes[r] = value;
      }
      return SettleRow<EntmaxLoss, T>(call, r, value, memory);
    }
    const bool nan = p[0] != p[0];
    Team::Barrier();
    if (target.ignored) return SettleRow<EntmaxLoss, T>(call, r, 0, memory);
    if (nan || !target.good) return SettleRow<EntmaxLoss, T>(call, r, kNaN<double>, memory);
    if (kind == cuda::FromMap::smooth_accuracy) {
      const double value =
          AccuracyOneRow(p, n, target.of, call.out.data == nullptr ? nullptr : ResultRow<T>(call.out, r, n, memory));
      WriteLoss(call, r, value, false, {});
      Team::Barrier();
      return;
    }
    const T* x = ReadRow<T>(call.in[0], r, n, memory);
    const bool infinite = !IsFinite(RowMax(d, x, n));
    if (infinite) {
      T* const canonical = memory.take<T>(n);
      Canonical(x, n, canonical);
      x = canonical;
    }
    const T max = RowMax(d, x, n);
    ParamValues<EntmaxLoss> slopes = {};
    double value;
    if (kind == cuda::FromMap::entmax) {
      if (WantsSlopes(call) && !infinite) {
        slopes[0] = EntropySlope(op.alpha, p, n) - (target.of.q == nullptr ? 0 : EntropySlope(op.alpha, target.of.q, n));
      }
      value = MappedRow(op, x, n, max, target.of, p);
    } else {
      value = kind == cuda::FromMap::cut ? CutRow(x, n, max, target.of, p) : SurrogateRow(x, n, max, target.of, p);
    }
    WriteLoss(call, r, value, false, slopes);
    if (call.out.data == nullptr) return Team::Barrier();
    T* const dx = ResultRow<T>(call.out, r, n, memory);
    if (infinite) {
      FillRow(d, T(0), n, dx);
    } else if (target.of.q != nullptr) {
      SubtractTarget(d, x, n, target.of.q, p, dx);
    } else if (dx != p) {
      CopyRow(p, n, dx);
    }
    FinishRow(dx, call.out, r, n);
    Team::Barrier();
  });
}

// softmax_loss of a row in registers against its class without smoothing, as SoftmaxClassRow.
class LossOfRow {
 public:
  // `given`: the row's class. Called before the row is loaded into registers, so that the load of the class's score overlaps.
  template <class S>
  HWY_INLINE LossOfRow(const cuda::LossCall<SoftmaxLoss>& call, size_t r, int64_t given, S) : r_(r) {
    ignored_ = call.ignores && given == call.ignored;
    good_ = given >= 0 && static_cast<uint64_t>(given) < call.cols;
    t_ = good_ ? static_cast<unsigned>(given) : 0;
    // dx may be x, and nothing waits for the readers of a row that is ignored.
    own_ = ignored_ || !good_ ? 0 : EntriesOf<S>(call.in[0], r)(t_);
  }

  // What the loss is calculated from: the sums of the terms, without that of the class and with it.
  struct Parts {
    double others, total;
    float max, own;
    size_t row;

    HWY_INLINE double Value() const {
      const double below = own == max ? Log1pNumber(others) : LogNumber(total);
      return static_cast<double>(max) - static_cast<double>(own) + below;
    }
  };

  // tell(parts): called by one warp for a loss that is to be calculated.
  template <class Row, class Tell>
  HWY_INLINE void Finish(const cuda::LossCall<SoftmaxLoss>& call, float max, Row& row, const Tell& tell) const {
    const RowTag<float> d;
    const ExpScaled<RowTag<float>> exp(d, 1);
    const auto term = [&](float below) HWY_ATTR { return hn::GetLane(exp(d, hn::Set(d, below))); };
    const auto settle = [&](double value, float slope) HWY_ATTR {
      if (Team::Rank() == 0) call.value[r_] = value;
      if (call.out.data != nullptr) row.Write(call.out, r_, [=](float, unsigned) { return slope; });
    };
    if (ignored_ || !good_) {
      settle(ignored_ ? 0 : kNaN<double>, ignored_ ? 0 : kNaN<float>);
      return;
    }
    if (!IsFinite(max)) {
      const auto [infinite, nan] = row.FindNonFinite();
      const bool shared = !nan && infinite > 0;
      const double others = static_cast<double>(infinite) - 1;
      const double value = own_ == kInfinity<float> ? Log1pNumber(others) : kInfinity<double>;
      settle(shared ? value : kNaN<double>, shared ? 0 : kNaN<float>);
      return;
    }
    row.Replace([&](float v) HWY_ATTR { return term(v - max); });
    // This comes before the thread publishes its part of the sum: dx may be x, and another block overwrites the source of own_ as
    // soon as it has all parts.
    float own_term = term(own_ - max);
    Team::Forget(own_term);
    const double others = row.Sum([this](float v, unsigned i) { return i == t_ ? 0.0f : v; });
    const double total = others + static_cast<double>(own_term);
    if (total != total) {
      settle(kNaN<double>, kNaN<float>);
      return;
    }
    const float inverse = static_cast<float>(1 / total);
    const float of_own = own_ == -kInfinity<float> ? 0.0f : static_cast<float>(0 - others / total);
    if (call.out.data != nullptr) {
      row.Write(call.out, r_, [=, this](float v, unsigned i) { return i == t_ ? of_own : v * inverse; });
    }
    // The last warp tells it, because the first one has added the sums.
    if (Team::BlockRank() == 0 && Team::Thread() + 32 >= Team::BlockThreads()) tell(Parts{others, total, max, own_, r_});
  }

 private:
  size_t r_;
  unsigned t_;
  float own_;
  bool ignored_, good_;
};

template <class S, unsigned kEach>
__global__ void __launch_bounds__(512, 2) ResidentSoftmaxLossKernel(const __grid_constant__ cuda::LossCall<SoftmaxLoss> call) {
  ResidentRow<S, kEach> row(call.in[0], static_cast<unsigned>(call.cols));
  Team::Begin();
  const size_t r = Team::Number();
  if (r >= call.rows) return;
  row.Load(call.in[0], r);
  const LossOfRow loss(call, r, call.classes[r], S());
  if (Team::IsWarp()) Team::Barrier();  // dx may be x; for more than a warp the maximum has a barrier
  loss.Finish(call, row.Max(), row, [&](const LossOfRow::Parts& parts) HWY_ATTR {
    if (Team::Lane() == 0) call.value[r] = parts.Value();
  });
}

// dx may be x, so a row is written only after all warps have published their sums. All warps wait for the one that computes losses,
// so it computes those of 32 rows at once, one in each thread.
template <class S>
__global__ void __launch_bounds__(512, 2) StreamedSoftmaxLossKernel(const __grid_constant__ cuda::LossCall<SoftmaxLoss> call) {
  StreamedRow<S> row(call.in[0], call.rows, call.cols);
  Team::Begin();
  row.Begin();
  auto* const told = reinterpret_cast<LossOfRow::Parts*>(StreamMemory::Of().kept);
  static_assert(32 * sizeof(LossOfRow::Parts) <= sizeof(StreamMemory::kept));
  unsigned count = 0;
  // The class is prefetched a row ahead, because the load of its score depends on it.
  int64_t next = call.classes[HWY_MIN(Team::Number(), call.rows - 1)];
  for (size_t r = Team::Number(); r < call.rows; r += Team::Teams()) {
    const LossOfRow loss(call, r, next, S());
    const size_t after = r + Team::Teams();
    next = call.classes[HWY_MIN(after, call.rows - 1)];
    loss.Finish(call, row.Take(), row, [&](const LossOfRow::Parts& parts) HWY_ATTR {
      if (Team::Lane() == 0) told[count] = parts;
      ++count;
    });
    if (count < 32 && after < call.rows) continue;
    Team::WarpBarrier();
    if (Team::Lane() < count) call.value[told[Team::Lane()].row] = told[Team::Lane()].Value();
    Team::WarpBarrier();
    count = 0;
  }
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class Op, class T>
std::size_t LossKernels<Op, T>::memory(std::size_t rows, std::size_t n) {
  const std::size_t team = HWY_NAMESPACE::TeamMemoryOfLosses<T>(n);
  return std::max(memory_of_grid(rows, n, team, false), memory_of_grid(rows, n, team, true));
}

// One thread has each short row of softmax_loss against classes, because these sums have their own order.
template <class Op, class T>
void LossKernels<Op, T>::run(LossCall<Op> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamMemoryOfLosses<T>(call.cols);
  if constexpr (std::is_same_v<Op, SoftmaxLoss>) {
    if (call.classes != nullptr && call.cols <= ShortRows<T>::kLongest) {
      return ShortLossKernels<Op, T>::run(call, stream);
    }
    if constexpr (sizeof(T) == 4) {
      const bool plain = call.classes != nullptr && call.op.label_smoothing == 0 && call.slopes.of[0] == nullptr &&
                         call.per_row.of[0] == nullptr;
      if (plain && use_resident(call, [&](auto s, auto each) {
            using S = decltype(s);
            if (launch_streamed<S, StreamedSoftmaxLossKernel<S>>(call, stream)) return;
            launch_resident(ResidentSoftmaxLossKernel<S, each()>, call, stream);
          })) {
        return;
      }
    }
  }
  launch(LossKernel<Op, T, false>, call, false, stream);
}

template <class T>
std::size_t MappedLossKernels<T>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfLosses<T>(n), false);
}

template <class T>
void MappedLossKernels<T>::run(LossCall<EntmaxLoss> call, FromMap kind, Stream stream) {
  call.memory_of_team = HWY_NAMESPACE::TeamMemoryOfLosses<T>(call.cols);
  launch(HWY_NAMESPACE::MappedLossKernel<T>, call, false, stream, kind);
}

template struct LossKernels<SoftmaxLoss, float>;
template struct LossKernels<SoftmaxLoss, double>;
template struct LossKernels<MarginSoftmaxLoss, float>;
template struct LossKernels<MarginSoftmaxLoss, double>;
template struct LossKernels<MultilabelSoftmaxLoss, float>;
template struct LossKernels<MultilabelSoftmaxLoss, double>;
template struct LossKernels<DistillationLoss, float>;
template struct LossKernels<DistillationLoss, double>;
template struct LossKernels<JsdLoss, float>;
template struct LossKernels<JsdLoss, double>;
template struct MappedLossKernels<float>;
template struct MappedLossKernels<double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

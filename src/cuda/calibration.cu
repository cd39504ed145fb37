// Kernels of calibration: what the searches of fit_temperature and fit_target_entropy ask of each row.

#include "src/cuda/launch.h"
#include "src/entropy_control/gamma-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Scores minus the largest, in float64. If that could overflow everything is halved: at such distances every temperature gives
// the same result.
template <class S>
class Distances {
 public:
  HWY_INLINE Distances(const EntriesOf<S>& row, double max) : row_(row), half_(max > 1e290 ? 0.5 : 1), max_(half_ * max) {}
  HWY_INLINE double operator()(size_t i) const { return half_ * static_cast<double>(row_(i)) - max_; }

 private:
  const EntriesOf<S>& row_;
  double half_, max_;
};

struct MomentsOfRow {
  double sum, mean, variance;  // of e = exp(scale z), and of u = scale z under e / sum
};

// Two walks: squares of distances from the mean keep their digits.
template <class Z>
HWY_INLINE MomentsOfRow MomentsAt(const Z& z, size_t n, double scale) {
  const D64 d;
  const ExpScaled<D64> exp(d, 1);
  const auto e_of = [&](double u) HWY_ATTR { return hn::GetLane(exp(d, hn::Set(d, u))); };
  double sums[2];
  Sums(d, n, sums, [&](size_t i, size_t, V64* terms) HWY_ATTR {
    const double u = scale * z(i), e = e_of(u);
    terms[0] = {e}, terms[1] = {e == 0 ? 0 : e * u};
  });
  const double mean = sums[1] / sums[0];
  const double squares = Sum(d, n, [&](size_t i, size_t) HWY_ATTR {
    const double u = scale * z(i), e = e_of(u), away = u - mean;
    return V64{e == 0 ? 0 : e * away * away};
  });
  return {sums[0], mean, squares / sums[0]};
}

template <class S>
HWY_INLINE double LargestOf(const EntriesOf<S>& row, size_t n) {
  using T = Working<S>;
  T max = -kInfinity<T>;
  for (size_t i = Team::Rank(); i < n; i += Team::Size()) max = row(i) > max ? row(i) : max;
  return static_cast<double>(MaxLane(RowTag<T>(), {max}));
}

// found: the largest score, how many scores equal it, how many are above -inf, and the score of the label minus the largest.
template <class S>
HWY_INLINE void FindFacts(const EntriesOf<S>& row, size_t n, size_t label, double (&found)[4]) {
  using T = Working<S>;
  const T max = static_cast<T>(LargestOf(row, n));
  size_t ties = 0, present = 0, nan = 0;
  for (size_t i = Team::Rank(); i < n; i += Team::Size()) {
    const T x = row(i);
    ties += x == max, present += x > -kInfinity<T>, nan += x != x;
  }
  const bool any = Team::Sum(nan) > 0;
  found[0] = any ? kNaN<double> : static_cast<double>(max);
  found[1] = static_cast<double>(Team::Sum(ties)), found[2] = static_cast<double>(Team::Sum(present));
  found[3] = Distances<S>(row, static_cast<double>(max))(label);
}

// found: the slope of the loss in beta = 1/T, its second derivative, and the size of the terms of the first.
template <class S>
HWY_INLINE void FindSlopes(const EntriesOf<S>& row, size_t n, size_t label, double beta, double (&found)[4]) {
  const Distances<S> z(row, LargestOf(row, n));
  const MomentsOfRow of = MomentsAt(z, n, beta);
  const double mean = of.mean / beta, own = z(label);
  found[0] = mean - own, found[1] = of.variance / (beta * beta), found[2] = 0 - mean - own, found[3] = 0;
}

// found: the loss at the entropy, and its slope.
template <class S>
HWY_INLINE void FindLoss(const EntriesOf<S>& row, size_t n, size_t label, double entropy, double (&found)[4], Arena memory) {
  const Distances<S> z(row, LargestOf(row, n));
  double *const scores = memory.take<double>(n), *const scratch = memory.take<double>(n);
  ForEachVector(D64(), n, [&](size_t i, size_t) HWY_ATTR { scores[i] = z(i); });
  GammaForEntropy op;
  op.entropy = entropy;
  const GammaOfRow reached = GammaRow(op, scores, n, scratch);
  const double gamma = reached.gamma, own = z(label);
  const bool top = own == 0, endless = gamma == kInfinity<double>;
  found[0] = reached.entropy, found[1] = found[2] = found[3] = 0;
  // The distribution does not move with the target: uniform over all scores, or over the largest.
  if (gamma == 0 || reached.status == GammaStatus::constant || (endless && top)) return;
  if (endless) {
    found[0] = kInfinity<double>, found[1] = -kInfinity<double>;
    return;
  }
  const MomentsOfRow of = MomentsAt(z, n, gamma);
  const double label_score = gamma * own;
  // Without variance the probabilities below the top have underflowed.
  found[0] = LogNumber(of.sum) - label_score;
  found[1] = of.variance > 0 ? (label_score - of.mean) / of.variance : top ? 0 : -kInfinity<double>;
}

template <class S>
__global__ void __launch_bounds__(512, 1) CalibrationKernel(const __grid_constant__ cuda::CalibrationCall call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const GammaForEntropy&, bool, Arena memory) HWY_ATTR {
    const EntriesOf<S> row(call.in[0], r);
    const int64_t label = call.labels[r];
    const bool there = label >= 0 && static_cast<uint64_t>(label) < n;
    const size_t own = there ? static_cast<size_t>(label) : 0;
    double found[4];
    switch (call.asked) {
      case cuda::CalibrationCall::facts:
        FindFacts(row, n, own, found);
        break;
      case cuda::CalibrationCall::slopes:
        FindSlopes(row, n, own, call.at, found);
        break;
      case cuda::CalibrationCall::loss:
        FindLoss(row, n, own, call.at, found, memory);
    }
    if (Team::Rank() == 0) {
      for (size_t k = 0; k < 4; ++k) call.found[r * 4 + k] = there ? found[k] : kNaN<double>;
    }
    Team::Barrier();
  });
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class S>
std::size_t CalibrationKernels<S>::memory(std::size_t rows, std::size_t n) {
  return memory_of_grid(rows, n, 2 * HWY_NAMESPACE::Arena::room<double>(n), false);
}
template <class S>
void CalibrationKernels<S>::run(CalibrationCall call, Stream stream) {
  call.memory_of_team = 2 * HWY_NAMESPACE::Arena::room<double>(call.cols);
  launch(HWY_NAMESPACE::CalibrationKernel<S>, call, false, stream);
}

template struct CalibrationKernels<float>;
template struct CalibrationKernels<double>;
template struct CalibrationKernels<float16>;
template struct CalibrationKernels<bfloat16>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

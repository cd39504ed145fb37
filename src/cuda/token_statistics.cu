// Kernels of token_statistics.
//
// A warp reads 256 logits and sums their exponentials relative to their own maximum. The sums of all such parts are then
// brought to the maximum of the row. So the logits are read once, and the order of the sums does not depend on the number of
// threads. The largest logit is counted and not summed: S - 1, the sum of the others, keeps its digits if it is small.

#include "src/cuda/launch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The parts of a row: the largest logit of each, how many logits equal it, and of the others sum e and sum e (x - max), with
// e = exp((x - max) / T). A NaN makes `rest` NaN.
template <class T>
struct Parts {
  static constexpr size_t kSize = 256;

  size_t count;
  double *rest, *mean;
  T* max;
  uint32_t* ties;

  HWY_INLINE Parts(Arena& memory, size_t n)
      : count((n + kSize - 1) / kSize),
        rest(memory.take<double>(count)),
        mean(memory.take<double>(count)),
        max(memory.take<T>(count)),
        ties(memory.take<uint32_t>(count)) {}
};

template <class T, class Row>
HWY_INLINE void SumPart(const Row& row, size_t n, const ExpScaled<RowTag<T>>& exp, size_t part, const Parts<T>& parts) {
  const RowTag<T> d;
  constexpr size_t kEach = Parts<T>::kSize / 32;
  T x[kEach], max = -kInfinity<T>, rest[2] = {}, mean[2] = {};
  bool nan = false;
  unsigned ties = 0;
  for (size_t k = 0; k < kEach; ++k) {
    const size_t i = part * Parts<T>::kSize + 32 * k + Team::Lane();
    x[k] = i < n ? row(i) : -kInfinity<T>;
    max = x[k] > max ? x[k] : max;
    nan = nan || x[k] != x[k];
  }
  for (unsigned mask = 16; mask > 0; mask /= 2) {
    const T other = Team::FromXor(max, mask);
    max = other > max ? other : max;
  }
  for (size_t k = 0; k < kEach; ++k) {
    const T z = x[k] < max ? x[k] - max : -kInfinity<T>, e = hn::GetLane(exp(d, hn::Set(d, z)));
    ties += x[k] == max;
    rest[k % 2] = rest[k % 2] + e;
    mean[k % 2] = mean[k % 2] + (e == T(0) ? T(0) : e * z);
  }
  double of_rest = static_cast<double>(rest[0]) + static_cast<double>(rest[1]);
  double of_mean = static_cast<double>(mean[0]) + static_cast<double>(mean[1]);
  for (unsigned mask = 16; mask > 0; mask /= 2) {
    of_rest = of_rest + Team::FromXor(of_rest, mask), of_mean = of_mean + Team::FromXor(of_mean, mask);
    ties += Team::FromXor(ties, mask);
  }
  const bool any = Team::Ballot(nan) != 0;
  if (Team::Lane() != 0) return;
  parts.rest[part] = any ? kNaN<double> : of_rest, parts.mean[part] = of_mean;
  parts.max[part] = max, parts.ties[part] = ties;
}

// The statistics of one row: log p of the target, entropy, largest probability.
template <class T, class Row>
HWY_INLINE void FindStatistics(const Row& row, size_t n, double temperature, size_t target, const Parts<T>& parts,
                               double (&found)[3]) {
  const ExpScaled<RowTag<T>> exp(RowTag<T>(), temperature);
  for (size_t part = Team::Warp(); part < parts.count; part += Team::Warps()) SumPart(row, n, exp, part, parts);
  Team::Barrier();
  const T max = RowMax(RowTag<T>(), parts.max, parts.count);
  const ExpScaled<D64> exp64(D64(), temperature);
  double sums[3];
  Sums(D64(), parts.count, sums, [&](size_t i, size_t, V64* terms) HWY_ATTR {
    const double ties = static_cast<double>(parts.ties[i]), rest = parts.rest[i];
    const bool highest = parts.max[i] == max;
    const double away = highest ? 0 : static_cast<double>(parts.max[i]) - static_cast<double>(max);
    const double factor = highest ? 1 : hn::GetLane(exp64(D64(), hn::Set(D64(), away)));
    terms[0] = {highest ? ties : 0};
    terms[1] = {highest ? rest : factor * (ties + rest)};
    terms[2] = {factor == 0 ? 0 : factor * (parts.mean[i] + (highest ? 0 : away * (ties + rest)))};
  });
  const double own = static_cast<double>(row(target));
  if (sums[1] != sums[1] || max == -kInfinity<T>) {
    found[0] = found[1] = found[2] = kNaN<double>;
  } else if (max == kInfinity<T>) {  // these logits share the mass
    found[1] = LogNumber(sums[0]), found[2] = 1 / sums[0];
    found[0] = own == kInfinity<double> ? 0 - found[1] : -kInfinity<double>;
  } else {
    const double others = sums[0] - 1 + sums[1], log = Log1pNumber(others);
    found[0] = (own - static_cast<double>(max)) / temperature - log;
    found[1] = log - sums[2] / (temperature * (1 + others));
    found[2] = 1 / (1 + others);
  }
}

// For a temperature whose inverse is not a normal number of type T.
template <class T>
HWY_NOINLINE void FindExtremeStatistics(const cuda::TokenCall& call, size_t r, double temperature, size_t target,
                                        double (&found)[3], Arena memory) {
  const size_t n = call.cols;
  const T* const x = ReadRow<T>(call.in[0], r, n, memory);
  T* const scaled = memory.take<T>(n);
  constexpr auto kScores = KernelsOf<Softmax, T>::kScores;
  const auto row = PrepareRow(RowTag<T>(), kScores, Softmax{.temperature = temperature}, x, n, scaled);
  const Parts<T> parts(memory, n);
  FindStatistics([&](size_t i) HWY_ATTR { return row.x[i]; }, n, row.op.temperature, target, parts, found);
}

// The indices of the `top` largest logits in falling order, of equal ones the lowest index first; NaN is as large as +inf. Only
// parts with a large maximum are read again.
template <class S, class T>
HWY_NOINLINE void FindTop(const EntriesOf<S>& row, size_t n, size_t top, const Parts<T>& parts, int64_t* indices,
                          Arena memory) {
  const RowTag<T> d;
  T* const packed = memory.take<T>(n);
  uint32_t *const index = memory.take<uint32_t>(n), *const chosen = memory.take<uint32_t>(top);
  size_t nan = 0;
  for (size_t i = Team::Rank(); i < parts.count; i += Team::Size()) nan += parts.rest[i] != parts.rest[i];
  T bound = -kInfinity<T>;
  if (Team::Sum(nan) == 0 && top <= parts.count) {
    bound = KthLargest(d, parts.max, parts.count, top, -kInfinity<T>, RowMax(d, parts.max, parts.count));
  }
  const auto at = [&](size_t i) HWY_ATTR {
    const T x = row(i);
    return x != x ? kInfinity<T> : x;
  };
  const size_t left = Team::Pack(
      n, [&](size_t i) HWY_ATTR { return parts.max[i / Parts<T>::kSize] >= bound && at(i) >= bound; },
      [&](size_t place, size_t i) HWY_ATTR { packed[place] = at(i), index[place] = static_cast<uint32_t>(i); });
  const T last = KthLargest(d, packed, left, top, -kInfinity<T>, RowMax(d, packed, left));
  size_t above = 0;
  for (size_t i = Team::Rank(); i < left; i += Team::Size()) above += packed[i] > last;
  const size_t end = EndOfFirst(d, packed, left, last, top - Team::Sum(above));
  Team::Pack(
      left, [&](size_t i) HWY_ATTR { return packed[i] > last || (packed[i] == last && i < end); },
      [&](size_t place, size_t i) HWY_ATTR { chosen[place] = static_cast<uint32_t>(i); });
  for (size_t j = Team::Rank(); j < top; j += Team::Size()) {
    const T own = packed[chosen[j]];
    size_t before = 0;
    for (size_t k = 0; k < top; ++k) {
      const T other = packed[chosen[k]];
      before += other > own || (other == own && k < j);
    }
    indices[before] = index[chosen[j]];
  }
  Team::Barrier();
}

template <class S>
__global__ void __launch_bounds__(512, 1) TokenStatisticsKernel(const __grid_constant__ cuda::TokenCall call) {
  using T = Working<S>;
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const cuda::TokenStatistics& op, bool good, Arena memory) HWY_ATTR {
    const Parts<T> parts(memory, n);
    const EntriesOf<S> row(call.in[0], r);
    const int64_t target = call.target[r];
    const bool there = target >= 0 && static_cast<uint64_t>(target) < n;
    const size_t t = there ? static_cast<size_t>(target) : 0;
    const bool extreme = good && IsExtremeTemperature<T>(op.temperature);
    double found[3];
    FindStatistics(row, n, good && !extreme ? op.temperature : 1, t, parts, found);
    if (extreme) FindExtremeStatistics<T>(call, r, op.temperature, t, found, memory);
    const T max = RowMax(RowTag<T>(), parts.max, parts.count);
    const bool nan = !good || !there || found[2] != found[2];
    if (Team::Rank() == 0) {
      T* const to = static_cast<T*>(call.out.data) + r * call.out.stride;
      for (size_t k = 0; k < 3; ++k) to[k] = nan ? kNaN<T> : static_cast<T>(found[k]);
      to[3] = nan ? kNaN<T> : max;
    }
    if (call.tops > 0) FindTop<S>(row, n, call.tops, parts, call.top + r * call.top_stride, memory);
    Team::Barrier();
  });
}

// dx = (a (onehot - p) - b p (log p + H)) / T for the gradients a and b in log p and H, in one pass. in: x, the statistics,
// their gradients.
template <class T, class Row, class Put>
HWY_INLINE double WriteGradient(const Row& row, size_t n, double temperature, const DividedBy<RowTag<T>>& divided, T max,
                                const T* known, const T* grad, size_t target, const Put& put) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, temperature);
  const T a = grad[0], b = grad[1], p_max = known[2], inverse = static_cast<T>(1 / temperature);
  const T shift = static_cast<T>(static_cast<double>(a) + static_cast<double>(b) * (static_cast<double>(known[1]) +
                                                                                    LogNumber(static_cast<double>(p_max))));
  return 0 - Sum(d, n, [&](size_t i, size_t) HWY_ATTR {
           const T x = row(i), z = x - max, e = hn::GetLane(exp(d, hn::Set(d, z)));
           const bool none = e == T(0);
           T slope =
               none ? T(0) : -p_max * (e * hn::GetLane(hn::MulAdd(hn::Set(d, b), hn::Set(d, z * inverse), hn::Set(d, shift))));
           slope = slope + (i == target && x > -kInfinity<T> ? a : T(0));
           put(i, hn::GetLane(divided(hn::Set(d, slope))));
           return hn::Set(d, slope == T(0) ? T(0) : slope * (z * inverse));
         });
}

template <class S>
__global__ void __launch_bounds__(512, 1) TokenStatisticsVjpKernel(const __grid_constant__ cuda::TokenCall call) {
  using T = Working<S>;
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const cuda::TokenStatistics& op, bool good, Arena memory) HWY_ATTR {
    const EntriesOf<S> row(call.in[0], r), dx(call.out, r);
    const T* const known = static_cast<const T*>(call.in[1].data) + r * call.in[1].stride;
    const T* const grad = static_cast<const T*>(call.in[2].data) + r * call.in[2].stride;
    const bool nan = !good || known[2] != known[2];
    double slope = nan ? kNaN<double> : 0;
    if (nan || known[3] == kInfinity<T>) {
      ForEachVector(RowTag<T>(), n, [&](size_t i, size_t) HWY_ATTR { dx.Put(i, static_cast<T>(slope)); });
    } else {
      const size_t t = static_cast<size_t>(call.target[r]);
      const DividedBy<RowTag<T>> divided(op.temperature);
      const auto put = [&](size_t i, T value) HWY_ATTR { dx.Put(i, value); };
      if (IsExtremeTemperature<T>(op.temperature)) {
        T* const scaled = memory.take<T>(n);
        const T* const x = ReadRow<T>(call.in[0], r, n, memory);
        constexpr auto kScores = KernelsOf<Softmax, T>::kScores;
        const auto ready = PrepareRow(RowTag<T>(), kScores, Softmax{.temperature = op.temperature}, x, n, scaled);
        const auto at = [&](size_t i) HWY_ATTR { return ready.x[i]; };
        slope = WriteGradient(at, n, ready.op.temperature, divided, ready.max, known, grad, t, put);
      } else {
        slope = WriteGradient(row, n, op.temperature, divided, known[3], known, grad, t, put);
      }
      slope = slope / op.temperature;
    }
    if (call.slopes.of[0] != nullptr && Team::Rank() == 0) call.slopes.of[0][r] = slope;
    Team::Barrier();
  });
}

template <class T>
size_t TeamMemoryOfTokens(size_t n, size_t top) {
  return 2 * room_of<Parts<T>>(n) + 2 * Arena::room<T>(n) +
         (top > 0 ? Arena::room<T>(n) + Arena::room<uint32_t>(n) + Arena::room<uint32_t>(top) : 0);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class S>
std::size_t TokenKernels<S>::memory(std::size_t rows, std::size_t n, std::size_t top) {
  return memory_of_grid(rows, n, HWY_NAMESPACE::TeamMemoryOfTokens<Working<S>>(n, top), false);
}
template <class S>
void TokenKernels<S>::map(TokenCall call, Stream stream) {
  call.memory_of_team = HWY_NAMESPACE::TeamMemoryOfTokens<Working<S>>(call.cols, call.tops);
  launch(HWY_NAMESPACE::TokenStatisticsKernel<S>, call, false, stream);
}
template <class S>
void TokenKernels<S>::vjp(TokenCall call, Stream stream) {
  call.memory_of_team = HWY_NAMESPACE::TeamMemoryOfTokens<Working<S>>(call.cols, 0);
  launch(HWY_NAMESPACE::TokenStatisticsVjpKernel<S>, call, false, stream);
}

template struct TokenKernels<float>;
template struct TokenKernels<double>;
template struct TokenKernels<float16>;
template struct TokenKernels<bfloat16>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

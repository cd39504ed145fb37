// Parts of rows: for every SIMD target the kernels; then, once, questions, answers and results.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/parts/parts.cc"
#include "isentropic/parts.h"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/reduce-inl.h"
#include "src/sampling/noise-inl.h"

#ifndef ISENTROPIC_PARTS_CC_
#define ISENTROPIC_PARTS_CC_

namespace isentropic::inline ISENTROPIC_ABI {

struct DrawnKey {
  double key;
  std::int64_t index;
};

// The kernels of one SIMD target for one element type. Each number depends only on its own score, not on the place in the part.
template <class T>
struct PartKernels {
  // The largest score, -inf without scores; NaN if there is a NaN.
  double (*max)(const T* x, std::size_t n);
  // exp((x - max) / temperature).
  void (*exp)(const T* x, std::size_t n, T max, double temperature, T* e);
  // a = gamma (x - max), at least -700, and exp(a); both are 0 for a score of -inf.
  void (*wide)(const T* x, std::size_t n, double max, double gamma, double* a, double* e);
  // The best of (x - top) / T - log E, for scores that begin at index `first` of a row; -1 if all are -inf.
  DrawnKey (*draw)(const T* x, std::size_t n, double top, double inverse_temperature, std::uint64_t first, NoiseKey key);
  void (*log)(const T* x, std::size_t n, T* y);
  void (*plain_exp)(const T* x, std::size_t n, T* y);
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // ISENTROPIC_PARTS_CC_

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
double PartMax(const T* x, size_t n) {
  const RowTag<T> d;
  auto max = hn::Set(d, -kInfinity<T>);
  auto nan = hn::Lt(hn::Zero(d), hn::Zero(d));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadUpTo(d, x + i, count, -kInfinity<T>);
    nan = hn::Or(nan, hn::IsNaN(xi));
    max = hn::Max(xi, max);
  });
  return hn::AllFalse(d, nan) ? static_cast<double>(MaxLane(d, max)) : kNaN<double>;
}

template <class T>
void PartExp(const T* x, size_t n, T max, double temperature, T* e) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, temperature);
  const auto shift = hn::Set(d, max);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(exp(d, hn::Sub(LoadUpTo(d, x + i, count, max), shift)), d, count, e + i);
  });
}

template <class T>
void PartWide(const T* x, size_t n, double max, double gamma, double* a, double* e) {
  const D64 d;
  const ExpScaled<D64> exp(d, 1);
  const V64 scale = hn::Set(d, gamma), top = hn::Set(d, max), low = hn::Set(d, -700.0);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 xi = LoadWide(d, x + i, count, -kInfinity<T>);
    const auto there = hn::Gt(xi, hn::Set(d, -kInfinity<double>));
    const V64 ai = hn::IfThenElseZero(there, hn::Max(hn::Mul(hn::Sub(xi, top), scale), low));
    StoreUpTo(ai, d, count, a + i);
    StoreUpTo(hn::IfThenElseZero(there, exp(d, ai)), d, count, e + i);
  });
}

// Blocks of noise belong to the whole row; the part may have only some of the indices of a block.
template <class T>
DrawnKey PartDraw(const T* x, size_t n, double top, double inverse_temperature, uint64_t first, NoiseKey noise_key) {
  const D64 d;
  const RowTag<T> dx;
  const DrawNoise noise(noise_key);
  const hn::RebindToUnsigned<D64> u;
  const V64 scale = hn::Set(d, inverse_temperature), shift = hn::Set(d, top);
  // 0 for the top at any T, also one whose inverse is infinite.
  const auto scaled = [=](V64 v) HWY_ATTR { return hn::IfThenZeroElse(hn::Eq(v, shift), hn::Mul(hn::Sub(v, shift), scale)); };
  DrawnKey best = {-kInfinity<double>, -1};
  const auto look = [&](size_t begin, size_t end) HWY_ATTR {
    ForEachVector(d, end - begin, [&](size_t offset, size_t count) HWY_ATTR {
      const size_t i = begin + offset;
      const V64 z = scaled(LoadWide(d, x + i, count, -kInfinity<T>));
      HWY_ALIGN double keys[hn::MaxLanes(D64())];
      hn::Store(hn::Sub(z, Log(d, noise.Of(hn::Add(hn::Iota(u, 0), hn::Set(u, first + i))))), d, keys);
      for (size_t k = 0; k < count; ++k) {
        const auto at = static_cast<int64_t>(first + i + k);
        if (keys[k] > best.key || (keys[k] == best.key && keys[k] > -kInfinity<double> && at < best.index)) {
          best = {keys[k], at};
        }
      }
    });
  };
  if (n == 0) return best;
  const uint64_t first_block = first / kNoiseBlock, blocks = (first + n - 1) / kNoiseBlock - first_block + 1;
  constexpr size_t kMost = 64;
  const auto begin_of = [&](uint64_t block) {
    const uint64_t begin = (first_block + block) * kNoiseBlock;
    return static_cast<size_t>(begin <= first ? 0 : HWY_MIN(begin - first, n));
  };
  for (uint64_t b0 = 0; b0 < blocks; b0 += kMost) {
    const size_t several = static_cast<size_t>(HWY_MIN(kMost, blocks - b0));
    HWY_ALIGN double bounds[kMost];
    for (size_t b = 0; b < several; ++b) {
      auto max = hn::Set(dx, -kInfinity<T>);
      const size_t begin = begin_of(b0 + b), end = begin_of(b0 + b + 1);
      ForEachVector(dx, end - begin, [&](size_t i, size_t count) HWY_ATTR {
        max = hn::Max(LoadUpTo(dx, x + begin + i, count, -kInfinity<T>), max);
      });
      bounds[b] = static_cast<double>(MaxLane(dx, max));
    }
    ForEachVector(d, several, [&](size_t i, size_t count) HWY_ATTR {
      const auto block = hn::Add(hn::Iota(u, 0), hn::Set(u, first_block + b0 + i));
      const V64 z = scaled(LoadUpTo(d, bounds + i, count, -kInfinity<double>));
      StoreUpTo(hn::Sub(z, Log(d, noise.SmallestOf(block))), d, count, bounds + i);
    });
    // The most promising block comes first: it leaves few others.
    size_t most = 0;
    for (size_t b = 1; b < several; ++b) {
      if (bounds[b] > bounds[most]) most = b;
    }
    // Logarithms are rounded, so a bound that is a little too low must not decide.
    const auto may_win = [&](double bound) {
      return bound > -kInfinity<double> && bound >= best.key - 1e-12 * (1 + std::abs(best.key));
    };
    if (best.index < 0 ? bounds[most] > -kInfinity<double> : may_win(bounds[most])) {
      look(begin_of(b0 + most), begin_of(b0 + most + 1));
    }
    for (size_t b = 0; b < several; ++b) {
      if (b != most && best.index >= 0 && may_win(bounds[b])) look(begin_of(b0 + b), begin_of(b0 + b + 1));
    }
  }
  return best;
}

template <class T>
void PartLog(const T* x, size_t n, T* y) {
  const RowTag<T> d;
  ForEachVector(d, n,
                [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(Log(d, LoadUpTo(d, x + i, count, T(1))), d, count, y + i); });
}

template <class T>
void PartPlainExp(const T* x, size_t n, T* y) {
  const RowTag<T> d;
  ForEachVector(d, n,
                [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(Exp(d, LoadUpTo(d, x + i, count, T(0))), d, count, y + i); });
}

template <class T>
PartKernels<T> MakePart() {
  return {PartMax<T>, PartExp<T>, PartWide<T>, PartDraw<T>, PartLog<T>, PartPlainExp<T>};
}
ISENTROPIC_KERNELS(MakePart);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "src/check.h"
#include "src/parallel.h"
#include "src/parts/words.h"
#include "src/search/search.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

template <class T>
PartKernels<T> part_kernels();
ISENTROPIC_KERNELS_BY(part_kernels, MakePart);

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

// The rows, the current question, and the results so far.
template <class T>
class Part<T>::Work {
 public:
  Work(std::string_view name, MatrixView<const T> x, Extent extent, std::size_t values)
      : name_(name), x_(x), extent_(extent), fixed_(extent.n), value_count_(values), values_(x.rows * values) {
    check_layout(name, "x", x);
    if (extent.first > extent.n || x.cols > extent.n - extent.first) {
      fail("{}: a part of {} entries that begins at {} must lie in a row of n, got n = {}", name, x.cols, extent.first,
           extent.n);
    }
    if (extent.n >= std::uint64_t{1} << 32) fail("{}: n must be below 2^32, got {}", name, extent.n);
  }
  virtual ~Work() = default;
  Work(const Work&) = delete;

  Question question() const { return question_; }
  virtual void Answer(std::size_t r, std::int64_t* words) = 0;
  virtual void Take(const std::int64_t* joined, std::size_t parts) = 0;
  virtual void Write(std::size_t, T*) const { throw std::logic_error("isentropic::Part: this operation writes nothing"); }
  virtual bool Keeps(std::size_t, std::size_t) const {
    throw std::logic_error("isentropic::Part: this operation cuts nothing");
  }

  std::size_t rows() const { return x_.rows; }
  std::size_t cols() const { return x_.cols; }
  std::string_view name() const { return name_; }
  MatrixView<const double> values() const { return {values_.data(), x_.rows, value_count_}; }
  std::span<const std::int64_t> indices() const { return indices_; }

 protected:
  // Words of a sum: float64 needs two.
  static constexpr std::size_t kWords = sizeof(T) == 4 ? 1 : 2;
  double* value(std::size_t r) { return values_.data() + r * value_count_; }
  void Done() { question_ = {Join::none, 0}; }

  // A row whose maximum is +inf counts as a row of equal scores; its other scores are absent.
  static bool IsFlat(double top) { return top == kInfinity; }
  static void Flatten(const T* x, std::size_t n, std::vector<T>& y) {
    y.resize(n);
    for (std::size_t i = 0; i < n; ++i) y[i] = x[i] == std::numeric_limits<T>::infinity() ? T(0) : T(-kInfinity);
  }
  // (x - top) / temperature, also where the difference or 1 / temperature would leave the range.
  static double Quotient(double x, double top, double temperature) {
    const double below = x - top;
    if (below == -kInfinity && x > -kInfinity) return 2 * ((0.5 * x - 0.5 * top) / temperature);
    return below / temperature;
  }
  // Scores, a maximum and a temperature with the same quotients, whose 1 / temperature is a normal number of type T. PrepareRow
  // makes them of a whole row; here the maximum is that of all parts.
  struct Prepared {
    const T* x;
    double top, temperature;
  };
  static Prepared Prepare(const T* x, std::size_t n, double top, double temperature, std::vector<T>& memory) {
    constexpr double kLimit = sizeof(T) == 4 ? 0x1p100 : 0x1p900;  // kExtremeTemperature
    const bool hot = temperature > kLimit;
    if (!hot && temperature >= 1 / kLimit) return {x, top, temperature};
    const T s = static_cast<T>(hot ? 1 / kLimit : kLimit), max = static_cast<T>(top);
    memory.resize(n);
    for (std::size_t i = 0; i < n; ++i) memory[i] = hot ? x[i] * s : (x[i] - max) * s;
    if (hot) return {memory.data(), static_cast<double>(max * s), std::min(temperature / kLimit, kLimit)};
    return {memory.data(), 0, std::max(temperature * kLimit, 1 / kLimit)};
  }
  // The terms exp((x - top) / temperature) of a row that has a distribution.
  void Terms(const T* x, std::size_t n, double top, double temperature, T* e) const {
    if (!IsFlat(top)) {
      std::vector<T> memory;
      const Prepared row = Prepare(x, n, top, temperature, memory);
      return kernels_.exp(row.x, n, static_cast<T>(row.top), row.temperature, e);
    }
    for (std::size_t i = 0; i < n; ++i) e[i] = x[i] == std::numeric_limits<T>::infinity() ? T(1) : T(0);
  }
  static bool Exists(double top) { return top > -kInfinity; }  // false for NaN

  std::string_view name_;
  MatrixView<const T> x_;
  Extent extent_;
  Fixed fixed_;
  PartKernels<T> kernels_ = part_kernels<T>();
  Question question_ = {Join::maximum, 1};
  std::size_t value_count_;
  std::vector<double> values_;
  std::vector<std::int64_t> indices_;
};

namespace {

#include "src/parts/cut.inc"
#include "src/parts/draw.inc"
#include "src/parts/gamma.inc"
#include "src/parts/softmax.inc"
#include "src/parts/sum.inc"
#include "src/parts/threshold.inc"

}  // namespace

template <class T>
Part<T>::Part(std::unique_ptr<Work> work) : work_(std::move(work)) {}
template <class T>
Part<T>::Part(Part&&) noexcept = default;
template <class T>
Part<T>& Part<T>::operator=(Part&&) noexcept = default;
template <class T>
Part<T>::~Part() = default;

template <class T>
Question Part<T>::question() const {
  return work_->question();
}

template <class T>
void Part<T>::answer(std::span<std::int64_t> words) {
  const Question asked = question();
  if (asked.join == Join::none || words.size() != work_->rows() * asked.words) {
    throw std::logic_error("isentropic::Part: answer() needs question().words integers for each row");
  }
  std::fill(words.begin(), words.end(), 0);
  parallel_rows(work_->rows(), 4 * work_->cols() + asked.words, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) work_->Answer(r, words.data() + r * asked.words);
  });
}

template <class T>
void Part<T>::take(std::span<const std::int64_t> joined) {
  const Question asked = question();
  const std::size_t each = work_->rows() * asked.words;
  const std::size_t parts = each == 0 ? 1 : joined.size() / each;
  if (asked.join == Join::none || joined.size() != parts * each || (parts != 1 && asked.join != Join::gather)) {
    throw std::logic_error(
        "isentropic::Part: take() needs question().words integers for each row, of all parts if they are gathered");
  }
  work_->Take(joined.data(), parts);
}

template <class T>
void Part<T>::write(MatrixView<T> y) const {
  check_shape(work_->name(), "y", y, "x", work_->rows(), work_->cols());
  if (question().join != Join::none)
    throw std::logic_error("isentropic::Part: write() came before the last question was answered");
  parallel_rows(work_->rows(), 2 * work_->cols(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) work_->Write(r, y.row(r));
  });
}

template <class T>
void Part<T>::keeps(std::span<std::uint8_t> kept) const {
  check_size(work_->name(), "kept", kept.size(), work_->rows() * work_->cols());
  for (std::size_t r = 0; r < work_->rows(); ++r) {
    for (std::size_t i = 0; i < work_->cols(); ++i) kept[r * work_->cols() + i] = work_->Keeps(r, i) ? 1 : 0;
  }
}

template <class T>
MatrixView<const double> Part<T>::values() const {
  return work_->values();
}

template <class T>
std::span<const std::int64_t> Part<T>::indices() const {
  return work_->indices();
}

template <class T>
Part<T> part_of(const Map& map, MatrixView<const T> x, Extent extent) {
  return std::visit(
      [&]<class Op>(const Op& op) -> Part<T> {
        check_params(op);
        if constexpr (requires { op.input; }) {
          if (op.input != Input::scores) fail("{}: input must be scores for parts of rows", Op::kDescription.name);
        }
        if constexpr (std::is_same_v<Op, Softmax>) {
          return Part<T>(std::make_unique<SoftmaxWork<T>>("softmax", op.temperature, x, extent));
        } else if constexpr (std::is_same_v<Op, MinPSoftmax>) {
          return Part<T>(std::make_unique<SoftmaxWork<T>>("min_p_softmax", op.temperature, x, extent, op.p));
        } else if constexpr (std::is_same_v<Op, TopKSoftmax>) {
          return Part<T>(std::make_unique<TopKWork<T>>(op, x, extent));
        } else if constexpr (std::is_same_v<Op, TopPSoftmax>) {
          return Part<T>(std::make_unique<MassWork<T>>("top_p_softmax", op.p, op.temperature, false, x, extent));
        } else if constexpr (std::is_same_v<Op, Sparsemax>) {
          return Part<T>(std::make_unique<ThresholdWork<T>>("sparsemax", 2.0, op.temperature, x, extent));
        } else if constexpr (std::is_same_v<Op, Entmax>) {
          if (std::abs(op.alpha - 1) <= (sizeof(T) == 4 ? 0x1p-26 : 0x1p-55)) {
            return Part<T>(std::make_unique<SoftmaxWork<T>>("entmax", op.temperature, x, extent));
          }
          return Part<T>(std::make_unique<ThresholdWork<T>>("entmax", op.alpha, op.temperature, x, extent));
        } else if constexpr (std::is_same_v<Op, EntropyNormalize>) {
          const double goal = op.entropy ? *op.entropy : std::log(*op.perplexity);
          return Part<T>(std::make_unique<GammaWork<T>>("entropy_normalize", goal, goal, GammaForEntropy{}, x, extent));
        } else if constexpr (std::is_same_v<Op, EntropyClip>) {
          return Part<T>(std::make_unique<GammaWork<T>>("entropy_clip", op.min_entropy.value_or(0),
                                                        op.max_entropy.value_or(kInfinity), GammaForEntropy{}, x, extent));
        } else {
          fail("{}: there is no such map for parts of rows", Op::kDescription.name);
        }
      },
      map);
}

template <class T>
Part<T> part_of(const GammaForEntropy& op, MatrixView<const T> x, Extent extent) {
  check_params(op);
  const double goal = op.entropy ? *op.entropy : std::log(*op.perplexity);
  return Part<T>(std::make_unique<GammaWork<T>>("gamma_for_entropy", goal, goal, op, x, extent));
}

template <class T>
Part<T> part_of(const RowStatistics& op, MatrixView<const T> x, Extent extent, std::span<const std::int64_t> classes) {
  if (!(op.temperature > 0 && op.temperature < kInfinity))
    fail("row_statistics: temperature must be above 0 and finite, got {}", op.temperature);
  if (!classes.empty()) check_size("row_statistics", "classes", classes.size(), x.rows);
  for (const std::int64_t one : classes) {
    if (one >= 0 && static_cast<std::uint64_t>(one) >= extent.n)
      fail("row_statistics: classes must be below {}, got {}", extent.n, one);
  }
  return Part<T>(std::make_unique<SoftmaxWork<T>>(op, x, extent, classes));
}

template <class T>
Part<T> part_of(const step::TypicalP& op, double temperature, MatrixView<const T> x, Extent extent) {
  check_params(op);
  return Part<T>(std::make_unique<MassWork<T>>("typical_p", op.p, temperature, true, x, extent));
}

template <class T>
Part<T> part_of(const Sample& op, MatrixView<const T> x, Extent extent, const Noise& noise, std::size_t draws) {
  check_params(op);
  if (!noise.streams.empty()) check_size("sample", "streams", noise.streams.size(), x.rows);
  return Part<T>(std::make_unique<DrawWork<T>>(op, x, extent, noise, draws));
}

Part<double> part_of(const RowSum& op, MatrixView<const double> terms, Extent extent) {
  return Part<double>(std::make_unique<SumWork>(op, terms, extent));
}

void divergence_terms(std::span<const double> log_p, std::span<const double> log_q, std::span<double> terms) {
  check_size("divergence_terms", "log_q", log_q.size(), log_p.size());
  check_size("divergence_terms", "terms", terms.size(), log_p.size());
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = DivergenceTerm(log_p[i], log_q[i]);
}

void entropy_terms(std::span<const double> log_p, std::span<double> terms) {
  check_size("entropy_terms", "terms", terms.size(), log_p.size());
  for (std::size_t i = 0; i < terms.size(); ++i) {
    terms[i] = log_p[i] == -kInfinity ? 0.0 : -log_p[i] * search::Exp(log_p[i]);
  }
}

void logarithms(std::span<const double> p, std::span<double> log_p) {
  check_size("logarithms", "log_p", log_p.size(), p.size());
  part_kernels<double>().log(p.data(), p.size(), log_p.data());
}

void exponentials(std::span<const double> log_p, std::span<double> p) {
  check_size("exponentials", "p", p.size(), log_p.size());
  part_kernels<double>().plain_exp(log_p.data(), log_p.size(), p.data());
}

#define ISENTROPIC_PART_OF(T)                                                                                 \
  template class Part<T>;                                                                                     \
  template Part<T> part_of(const Map&, MatrixView<const T>, Extent);                                          \
  template Part<T> part_of(const GammaForEntropy&, MatrixView<const T>, Extent);                              \
  template Part<T> part_of(const RowStatistics&, MatrixView<const T>, Extent, std::span<const std::int64_t>); \
  template Part<T> part_of(const step::TypicalP&, double, MatrixView<const T>, Extent);                       \
  template Part<T> part_of(const Sample&, MatrixView<const T>, Extent, const Noise&, std::size_t)
ISENTROPIC_PART_OF(float);
ISENTROPIC_PART_OF(double);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

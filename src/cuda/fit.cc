// Fits of calibration to rows in device memory: the host's searches, which ask the kernels for numbers of each row.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "isentropic/cuda.h"
#include "src/calibration/labels.h"
#include "src/calibration/search.h"
#include "src/check.h"
#include "src/cuda/check.h"
#include "src/cuda/kernels.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {
namespace {

template <class Number>
std::vector<Number> on_host(const Number* device, std::size_t count, Stream stream) {
  std::vector<Number> numbers(count);
  if (count > 0) copy_to_host(numbers.data(), device, count * sizeof(Number), stream);
  return numbers;
}

// The weights of rows on the host: 0 for those with the label that is left out.
std::vector<double> weights_of(std::string_view name, std::span<const std::int64_t> labels, std::vector<double> weights,
                               std::optional<std::int64_t> ignore_index) {
  if (!ignore_index || labels.empty()) return weights;
  if (weights.empty()) weights.assign(labels.size(), 1);
  std::size_t kept = 0, counted = 0;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] == *ignore_index) weights[r] = 0;
    kept += labels[r] != *ignore_index;
    counted += weights[r] != 0;
  }
  if (kept == 0) {
    fail("{}: some label must be other than ignore_index, got {} in all {} rows", name, *ignore_index, labels.size());
  }
  if (counted == 0) {
    fail("{}: sample_weight must be above 0 in some row that ignore_index keeps, got 0 in all {}", name, kept);
  }
  return weights;
}

// The memory of the kernels, followed by that of some numbers for each row.
struct Memory {
  std::span<std::byte> of_kernels;
  double* of_rows;

  template <class T>
  Memory(std::string_view name, const MatrixView<const T>& x, std::size_t numbers, std::span<std::byte> memory) {
    const std::size_t wanted = memory_for_calibration<T>(x.rows, x.cols);
    check_memory(name, memory, wanted, "memory_for_calibration()");
    of_kernels = memory.first((memory.size() - x.rows * numbers * sizeof(double)) / 128 * 128);
    of_rows = reinterpret_cast<double*>(memory.data() + of_kernels.size());
  }
};

// Labelled rows in the memory of a device, as the searches ask for them.
template <class T>
class LabelledOnDevice {
 public:
  LabelledOnDevice(std::string_view name, MatrixView<const T> x, std::span<const std::int64_t> labels,
                   std::span<std::byte> memory, Stream stream, std::span<const double> sample_weight,
                   std::optional<std::int64_t> ignore_index)
      : x_(x), labels_(labels), stream_(stream) {
    check_layout(name, "x", x);
    check_size(name, "labels", labels.size(), x.rows);
    if (!sample_weight.empty()) check_size(name, "sample_weight", sample_weight.size(), x.rows);
    const std::vector<std::int64_t> classes = on_host(labels.data(), labels.size(), stream);
    weights_ = weights_of(name, classes, on_host(sample_weight.data(), sample_weight.size(), stream), ignore_index);
    const SampleWeights weights = check_labels<T>(name, "x", x, classes, weights_);
    const Memory parts(name, x, 4, memory);
    memory_ = parts.of_kernels, found_ = parts.of_rows;
    std::vector<RowFacts> facts(x.rows);
    calibration_facts<T>(x, labels, to(), memory_, stream);
    const std::vector<double> found = on_host(found_, 4 * x.rows, stream);
    for (std::size_t r = 0; r < x.rows; ++r) {
      if (weights[r] == 0) continue;
      const double* const of = &found[4 * r];
      facts[r] = {of[0], static_cast<std::size_t>(of[1]), static_cast<std::size_t>(of[2]), of[3]};
    }
    rows_.emplace(name, x.cols, weights, classes, std::move(facts));
  }
  LabelledOnDevice(const LabelledOnDevice&) = delete;  // rows_ refers to weights_

  const LabelledRows& rows() const { return *rows_; }

  Slopes slopes(double beta) {
    temperature_slopes<T>(beta, x_, labels_, to(), memory_, stream_);
    return sum<Slopes>([](const double* of) -> Slopes { return {of[0], of[1], of[2]}; });
  }
  LossOfTarget losses(double entropy) {
    target_entropy_losses<T>(entropy, x_, labels_, to(), memory_, stream_);
    return sum<LossOfTarget>([](const double* of) -> LossOfTarget { return {of[0], of[1]}; });
  }
  // A device has the rows at hand: the survey uses all.
  LabelledOnDevice* survey() const { return nullptr; }

 private:
  MatrixView<double> to() const { return {found_, x_.rows, 4}; }

  // In blocks, so that rounding errors do not grow with the number of rows.
  template <class Sum, class Term>
  Sum sum(const Term& term) const {
    constexpr std::size_t kBlock = 1024;
    const std::vector<double> found = on_host(found_, 4 * x_.rows, stream_);
    Sum total{};
    for (std::size_t begin = 0; begin < rows_->size(); begin += kBlock) {
      Sum part{};
      const std::size_t end = std::min(begin + kBlock, rows_->size());
      for (std::size_t k = begin; k < end; ++k) part += term(&found[4 * rows_->at(k)]).times(rows_->weight(k));
      total += part;
    }
    return total;
  }

  MatrixView<const T> x_;
  std::span<const std::int64_t> labels_;
  Stream stream_;
  std::vector<double> weights_;
  std::span<std::byte> memory_;
  double* found_ = nullptr;
  std::optional<LabelledRows> rows_;
};

}  // namespace

template <class T>
FittedTemperature fit_temperature(MatrixView<const T> x, std::span<const std::int64_t> labels, std::span<std::byte> memory,
                                  Stream stream, std::span<const double> sample_weight,
                                  std::optional<std::int64_t> ignore_index) {
  LabelledOnDevice<T> data("fit_temperature", x, labels, memory, stream, sample_weight, ignore_index);
  return find_temperature(data);
}

template <class T>
double fit_target_entropy(MatrixView<const T> x, std::span<const std::int64_t> labels, std::span<std::byte> memory,
                          Stream stream, std::span<const double> sample_weight, std::optional<std::int64_t> ignore_index) {
  LabelledOnDevice<T> data("fit_target_entropy", x, labels, memory, stream, sample_weight, ignore_index);
  return find_target_entropy(data);
}

template <class T>
double match_entropy(MatrixView<const T> x_reference, std::span<std::byte> memory, Stream stream,
                     std::span<const double> sample_weight) {
  constexpr std::string_view kName = "match_entropy";
  const MatrixView<const T>& x = x_reference;
  check_layout(kName, "x_reference", x);
  const std::vector<double> given = on_host(sample_weight.data(), sample_weight.size(), stream);
  const SampleWeights weights(kName, "x_reference", x.rows, given);
  std::vector<double> entropies(x.rows, std::numeric_limits<double>::quiet_NaN());
  if (x.cols > 0) {
    const Memory parts(kName, x, 1, memory);
    measure<T>(Entropy{.input = Input::scores}, x, {parts.of_rows, x.rows}, {}, parts.of_kernels, stream);
    entropies = on_host(parts.of_rows, x.rows, stream);
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    if (weights[r] == 0 || !std::isnan(entropies[r])) continue;
    const std::vector<T> row = on_host(x.row(r), x.cols, stream);
    if (std::any_of(row.begin(), row.end(), [](T score) { return std::isnan(static_cast<float>(score)); })) {
      fail_in_row(kName, "x_reference", r, "scores must not be NaN, got one");
    }
    fail_in_row(kName, "x_reference", r, "scores must not all be -inf, got nothing else");
  }
  return sum_of(x.rows, [&](std::size_t r) { return weights[r] > 0 ? weights[r] * entropies[r] : 0; }) /
         sum_of(x.rows, [&](std::size_t r) { return weights[r]; });
}

#define ISENTROPIC_CUDA_FIT(T)                                                                                                 \
  template FittedTemperature fit_temperature(MatrixView<const T>, std::span<const std::int64_t>, std::span<std::byte>, Stream, \
                                             std::span<const double>, std::optional<std::int64_t>);                            \
  template double fit_target_entropy(MatrixView<const T>, std::span<const std::int64_t>, std::span<std::byte>, Stream,         \
                                     std::span<const double>, std::optional<std::int64_t>);                                    \
  template double match_entropy(MatrixView<const T>, std::span<std::byte>, Stream, std::span<const double>)
ISENTROPIC_CUDA_FIT(float);
ISENTROPIC_CUDA_FIT(double);
ISENTROPIC_CUDA_FIT(float16);
ISENTROPIC_CUDA_FIT(bfloat16);
#undef ISENTROPIC_CUDA_FIT

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// Maps, losses, measures, statistics and draws of rows in a GPU's memory: the library isentropic_cuda.
//
// Arguments, errors and results are those of the function with the same name in maps.h, losses.h, measures.h and
// entropy_control.h. The results have the same bits as on CPUs with FMA, except where docs/howto/gpu.md says otherwise.
// Differences:
//
// - Views, values of parameters for each row and gradients in them are in device memory, of the device that is current. A row
//   whose own parameter is out of range becomes NaN, since the host cannot look there.
// - A call puts its kernel on a stream and returns. It allocates nothing and waits for nothing, so that it may be captured in a
//   graph; only the fits of calibration wait. Working memory is the caller's: memory_for() says how much. Another call may not
//   use it at the same time.
//
// Attention, linear attention, Sinkhorn and transport on the line are not here. They consist mostly of products of matrices and
// of sorting. A caller has a library for these: isentropic.torch composes torch's products and sorts with the row kernels of
// this header, as docs/howto/gpu.md says.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "isentropic/calibration.h"
#include "isentropic/entropy_control.h"
#include "isentropic/half.h"
#include "isentropic/losses.h"
#include "isentropic/maps.h"
#include "isentropic/measures.h"
#include "isentropic/sampling.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// A cudaStream_t; null is the default stream.
struct Stream {
  void* handle = nullptr;
};

// The most bytes, aligned to 128, that a function with this operation needs for a batch of rows x cols of T, with or without
// gradients. The only parameters that matter are a loss's map, and steps.
template <class T>
ISENTROPIC_API std::size_t memory_for(const Map& map, std::size_t rows, std::size_t cols);
template <class T>
ISENTROPIC_API std::size_t memory_for(const LogSoftmax& options, std::size_t rows, std::size_t cols);
template <class T>
ISENTROPIC_API std::size_t memory_for(const LogSumExp& options, std::size_t rows, std::size_t cols);
template <class T>
ISENTROPIC_API std::size_t memory_for(const Loss& loss, std::size_t rows, std::size_t cols);
template <class T>
ISENTROPIC_API std::size_t memory_for(const Measure& measure, std::size_t rows, std::size_t cols);
template <class T>
ISENTROPIC_API std::size_t memory_for(const Divergence& divergence, std::size_t rows, std::size_t cols);
template <class T>
ISENTROPIC_API std::size_t memory_for(const GammaForEntropy& options, std::size_t rows, std::size_t cols);
template <class T>
ISENTROPIC_API std::size_t memory_for(const Sample& options, std::size_t rows, std::size_t cols);
// For sample and probs.
template <class T>
ISENTROPIC_API std::size_t memory_for(std::span<const Step> steps, std::size_t rows, std::size_t cols);
// For gumbel_softmax and gumbel_noise.
template <class T>
ISENTROPIC_API std::size_t memory_for(const GumbelSoftmax& options, std::size_t rows, std::size_t cols);
// For fit_temperature, fit_target_entropy, match_entropy, and what the first two ask of the rows.
template <class T>
ISENTROPIC_API std::size_t memory_for_calibration(std::size_t rows, std::size_t cols);

// T: float, double, float16, bfloat16.
template <class T>
ISENTROPIC_API void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                          std::span<std::byte> memory, Stream stream = {}, std::span<const PerRow> per_row = {});
template <class T>
ISENTROPIC_API void apply_vjp(const Map& map, MatrixView<const std::type_identity_t<T>> x,
                              MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                              MatrixView<T> dx, std::span<std::byte> memory, Stream stream = {},
                              std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

template <class T>
ISENTROPIC_API void log_softmax(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                                std::span<std::byte> memory, Stream stream = {}, std::span<const PerRow> per_row = {});
template <class T>
ISENTROPIC_API void log_softmax_vjp(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x,
                                    MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g,
                                    MatrixView<T> dx, std::span<std::byte> memory, Stream stream = {},
                                    std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});
template <class T>
ISENTROPIC_API void logsumexp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                              std::span<std::byte> memory, Stream stream = {}, std::span<const PerRow> per_row = {});
template <class T>
ISENTROPIC_API void logsumexp_vjp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x,
                                  MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, std::span<std::byte> memory,
                                  Stream stream = {}, std::span<const PerRow> per_row = {},
                                  std::span<const ParamGradient> gradients = {});

// The value of each row, and dx, if it has data. Rows have at least one column. A row with an invalid target, such as a class
// out of range, becomes NaN; cosines are not checked.
template <class T>
ISENTROPIC_API void loss(const Loss& loss, MatrixView<const T> x, std::span<const std::int64_t> classes,
                         std::span<double> value, MatrixView<std::type_identity_t<T>> dx, std::span<std::byte> memory,
                         Stream stream = {}, std::span<const PerRow> per_row = {},
                         std::span<const ParamGradient> gradients = {}, std::optional<std::int64_t> ignored = {});
template <class T>
ISENTROPIC_API void loss(const Loss& loss, MatrixView<const T> x, MatrixView<const std::type_identity_t<T>> target,
                         std::span<double> value, MatrixView<std::type_identity_t<T>> dx, std::span<std::byte> memory,
                         Stream stream = {}, std::span<const PerRow> per_row = {},
                         std::span<const ParamGradient> gradients = {});

// The value of each row, and gradients, if they have data. Rows have at least one column. A row that is no distribution becomes
// NaN.
template <class T>
ISENTROPIC_API void measure(const Measure& op, MatrixView<const T> p, std::span<double> value,
                            MatrixView<std::type_identity_t<T>> dp, std::span<std::byte> memory, Stream stream = {},
                            std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});
template <class T>
ISENTROPIC_API void measure(const Divergence& op, MatrixView<const T> p, MatrixView<const std::type_identity_t<T>> q,
                            std::span<double> value, MatrixView<std::type_identity_t<T>> dp,
                            MatrixView<std::type_identity_t<T>> dq, std::span<std::byte> memory, Stream stream = {});

//   p = softmax(x/T): log p_target, -sum p log p, max p
// Statistics of a token from its logits, as isentropic.torch.token_statistics calculates them.
struct TokenStatistics {
  double temperature = 1;  // T, divides the scores
};

// The type of the statistics of rows of T.
template <class T>
using StatisticsOf = std::conditional_t<kIsHalf<T>, float, T>;

// Bytes that token_statistics needs to find `top` indices, and token_statistics_vjp, for which top is 0.
template <class T>
ISENTROPIC_API std::size_t memory_for(const TokenStatistics& options, std::size_t rows, std::size_t cols, std::size_t top);

// statistics, rows x 4: log p of the target, the entropy in nats, the largest probability, the largest logit. top, rows x k or
// without data: the indices of the k largest logits in falling order, of equal ones the lowest first; NaN counts as +inf, and
// the work grows with k^2. A row is NaN if its target is no index, or if it has a NaN or no logit above -inf.
template <class T>
ISENTROPIC_API void token_statistics(const TokenStatistics& options, MatrixView<const T> x,
                                     std::span<const std::int64_t> target, MatrixView<StatisticsOf<T>> statistics,
                                     MatrixView<std::int64_t> top, std::span<std::byte> memory, Stream stream = {},
                                     std::span<const PerRow> per_row = {});
// g, rows x 4: gradients in the statistics, of which the first two are read.
template <class T>
ISENTROPIC_API void token_statistics_vjp(const TokenStatistics& options, MatrixView<const T> x,
                                         std::span<const std::int64_t> target, MatrixView<const StatisticsOf<T>> statistics,
                                         MatrixView<const StatisticsOf<T>> g, MatrixView<std::type_identity_t<T>> dx,
                                         std::span<std::byte> memory, Stream stream = {}, std::span<const PerRow> per_row = {},
                                         std::span<const ParamGradient> gradients = {});

// What the searches of fit_temperature and fit_target_entropy ask of each row of labelled scores. Four numbers of float64 for
// each row, NaN if its label is no class:
//   calibration_facts      the largest score, or NaN if there is one; how many scores equal it; how many are above -inf; z of
//                          the label, where z are the scores minus the largest
//   temperature_slopes     at beta = 1/T the first two derivatives of -log softmax(beta x)_label in beta; |E z| + |z of the
//                          label|
//   target_entropy_losses  -log of the label's probability in entropy_normalize(x, entropy), and its slope in the entropy
// Scores are at most finite. Sums are in the order of the library's rows, in which the host's search does not add: results
// differ from its own by rounding errors of float64.
template <class T>
ISENTROPIC_API void calibration_facts(MatrixView<const T> x, std::span<const std::int64_t> labels, MatrixView<double> found,
                                      std::span<std::byte> memory, Stream stream = {});
template <class T>
ISENTROPIC_API void temperature_slopes(double beta, MatrixView<const T> x, std::span<const std::int64_t> labels,
                                       MatrixView<double> found, std::span<std::byte> memory, Stream stream = {});
template <class T>
ISENTROPIC_API void target_entropy_losses(double entropy, MatrixView<const T> x, std::span<const std::int64_t> labels,
                                          MatrixView<double> found, std::span<std::byte> memory, Stream stream = {});

// The functions of calibration.h for scores, labels and weights on the device. They wait for the device at every step of the
// search, so they cannot be part of a graph. Of each row only the four numbers above are copied to the host, and labels and
// weights once. Rows with the label ignore_index are left out. fit_target_entropy uses all rows in its survey. Results differ
// from the host's by the rounding errors of the sums; errors of arguments are the same.
template <class T>
ISENTROPIC_API FittedTemperature fit_temperature(MatrixView<const T> x, std::span<const std::int64_t> labels,
                                                 std::span<std::byte> memory, Stream stream = {},
                                                 std::span<const double> sample_weight = {},
                                                 std::optional<std::int64_t> ignore_index = {});
template <class T>
ISENTROPIC_API double fit_target_entropy(MatrixView<const T> x, std::span<const std::int64_t> labels,
                                         std::span<std::byte> memory, Stream stream = {},
                                         std::span<const double> sample_weight = {},
                                         std::optional<std::int64_t> ignore_index = {});
template <class T>
ISENTROPIC_API double match_entropy(MatrixView<const T> x_reference, std::span<std::byte> memory, Stream stream = {},
                                    std::span<const double> sample_weight = {});

// The noise of a call, as isentropic::Noise; `streams` are on the device. If `seed_at` or `position_at` points to a number on
// the device, that number replaces seed or position, so that a replayed graph can draw anew. `positions` are one for each row,
// on the device too: rows of texts of different lengths.
struct DeviceNoise : Noise {
  const std::uint64_t* seed_at = nullptr;
  const std::uint64_t* position_at = nullptr;
  std::span<const std::uint64_t> positions = {};
};

// The draws of Sampler::sample with these steps, at most 16.
template <class T>
ISENTROPIC_API void sample(const Sample& options, MatrixView<const T> x, MatrixView<std::int64_t> indices, DeviceNoise noise,
                           std::span<std::byte> memory, Stream stream = {});
template <class T>
ISENTROPIC_API void sample(std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::int64_t> indices,
                           DeviceNoise noise, std::span<std::byte> memory, Stream stream = {});
// The distribution after the steps.
template <class T>
ISENTROPIC_API void probs(std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::type_identity_t<T>> p,
                          std::span<std::byte> memory, Stream stream = {});
template <class T>
ISENTROPIC_API void gumbel_softmax(const GumbelSoftmax& options, MatrixView<const T> x, MatrixView<std::type_identity_t<T>> p,
                                   DeviceNoise noise, std::span<std::byte> memory, Stream stream = {});
// T: float or double.
template <class T>
ISENTROPIC_API void gumbel_noise(MatrixView<T> g, DeviceNoise noise, std::span<std::byte> memory, Stream stream = {});

// T: float or double; scores only. `status` holds numbers of GammaStatus.
template <class T>
ISENTROPIC_API void gamma_for_entropy(const GammaForEntropy& options, MatrixView<const T> x, std::span<double> gamma,
                                      std::span<double> entropy, std::span<int> status, std::span<std::byte> memory,
                                      Stream stream = {}, std::span<const PerRow> per_row = {});

}  // namespace cuda
// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

template <>
struct Described<cuda::TokenStatistics> {
  static constexpr Description kDescription = {
      .name = "token_statistics",
      .summary = "Log-probability of a token, entropy and largest probability of its distribution, from one reading.",
      .formula = "p = softmax(x/T): log p_target, -sum p log p, max p",
      .gradient = "of log p_target: (onehot - p)/T; of the entropy H: -p (log p + H)/T",
      .source = "see entropy",
  };
  static constexpr auto kParams = Params{Param<cuda::TokenStatistics>{.name = "temperature",
                                                                      .meaning = "T, divides the scores",
                                                                      .member = &cuda::TokenStatistics::temperature,
                                                                      .above = 0,
                                                                      .per_row = true}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// Maps, losses, measures and draws of rows in a GPU's memory: the library entropic_cuda.
//
// Arguments, errors and results are those of the function with the same name in maps.h, losses.h, measures.h and
// entropy_control.h. The results have the same bits as on CPUs with FMA, except where docs/howto/gpu.md says otherwise.
// Differences:
//
// - Views, values of parameters for each row and gradients in them are in device memory, of the device that is current. A row
//   whose own parameter is out of range becomes NaN, since the host cannot look there.
// - A call puts its kernel on a stream and returns. It allocates nothing and waits for nothing, so that it may be captured in a
//   graph. Working memory is the caller's: memory_for() says how much, and what another call may not use at the same time.
// - PerturbMax has no kernel and is refused.
#pragma once

#include "entropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <span>
#include <type_traits>

#include "entropic/entropy_control.h"
#include "entropic/half.h"
#include "entropic/losses.h"
#include "entropic/maps.h"
#include "entropic/measures.h"
#include "entropic/sampling.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {

// A cudaStream_t; null is the default stream.
struct Stream {
  void* handle = nullptr;
};

// Whether a map has kernels for devices.
ENTROPIC_API bool has_kernels(const Map& map);

// The most bytes that apply and apply_vjp need for a batch of rows x cols of T, aligned to 128.
template <class T>
ENTROPIC_API std::size_t memory_for(const Map& map, std::size_t rows, std::size_t cols);
// The most bytes that any other function of this header needs.
template <class T>
ENTROPIC_API std::size_t memory_for(std::size_t rows, std::size_t cols);

// T: float, double, float16, bfloat16.
template <class T>
ENTROPIC_API void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                        std::span<std::byte> memory, Stream stream = {}, std::span<const PerRow> per_row = {});
template <class T>
ENTROPIC_API void apply_vjp(const Map& map, MatrixView<const std::type_identity_t<T>> x,
                            MatrixView<const std::type_identity_t<T>> p, MatrixView<const std::type_identity_t<T>> g,
                            MatrixView<T> dx, std::span<std::byte> memory, Stream stream = {},
                            std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

template <class T>
ENTROPIC_API void log_softmax(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                              std::span<std::byte> memory, Stream stream = {}, std::span<const PerRow> per_row = {});
template <class T>
ENTROPIC_API void log_softmax_vjp(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x,
                                  MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g,
                                  MatrixView<T> dx, std::span<std::byte> memory, Stream stream = {},
                                  std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});
template <class T>
ENTROPIC_API void logsumexp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                            std::span<std::byte> memory, Stream stream = {}, std::span<const PerRow> per_row = {});
template <class T>
ENTROPIC_API void logsumexp_vjp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x,
                                MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, std::span<std::byte> memory,
                                Stream stream = {}, std::span<const PerRow> per_row = {},
                                std::span<const ParamGradient> gradients = {});

// Bytes that loss() needs, with or without a gradient.
template <class T>
ENTROPIC_API std::size_t memory_for(const Loss& loss, std::size_t rows, std::size_t cols);

// The value of each row, and dx, if it has data. Rows have at least one column. A row with an invalid target, such as a class
// out of range, becomes NaN; cosines are not checked.
template <class T>
ENTROPIC_API void loss(const Loss& loss, MatrixView<const T> x, std::span<const std::int64_t> classes, std::span<double> value,
                       MatrixView<std::type_identity_t<T>> dx, std::span<std::byte> memory, Stream stream = {},
                       std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {},
                       std::optional<std::int64_t> ignored = {});
template <class T>
ENTROPIC_API void loss(const Loss& loss, MatrixView<const T> x, MatrixView<const std::type_identity_t<T>> target,
                       std::span<double> value, MatrixView<std::type_identity_t<T>> dx, std::span<std::byte> memory,
                       Stream stream = {}, std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

// The value of each row, and gradients, if they have data. Rows have at least one column. A row that is no distribution becomes
// NaN.
template <class T>
ENTROPIC_API void measure(const Measure& op, MatrixView<const T> p, std::span<double> value,
                          MatrixView<std::type_identity_t<T>> dp, std::span<std::byte> memory, Stream stream = {},
                          std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});
template <class T>
ENTROPIC_API void measure(const Divergence& op, MatrixView<const T> p, MatrixView<const std::type_identity_t<T>> q,
                          std::span<double> value, MatrixView<std::type_identity_t<T>> dp,
                          MatrixView<std::type_identity_t<T>> dq, std::span<std::byte> memory, Stream stream = {});

// The noise of a call, as entropic::Noise; `streams` are on the device. If `seed_at` or `position_at` points to a number on the
// device, that number replaces seed or position, so that a replayed graph can draw anew.
struct DeviceNoise : Noise {
  const std::uint64_t* seed_at = nullptr;
  const std::uint64_t* position_at = nullptr;
};

// The draws of Sampler::sample with these steps, at most 16.
template <class T>
ENTROPIC_API void sample(const Sample& options, MatrixView<const T> x, MatrixView<std::int64_t> indices, DeviceNoise noise,
                         std::span<std::byte> memory, Stream stream = {});
template <class T>
ENTROPIC_API void sample(std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::int64_t> indices,
                         DeviceNoise noise, std::span<std::byte> memory, Stream stream = {});
// The distribution after the steps.
template <class T>
ENTROPIC_API void probs(std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::type_identity_t<T>> p,
                        std::span<std::byte> memory, Stream stream = {});
template <class T>
ENTROPIC_API void gumbel_softmax(const GumbelSoftmax& options, MatrixView<const T> x, MatrixView<std::type_identity_t<T>> p,
                                 DeviceNoise noise, std::span<std::byte> memory, Stream stream = {});
// T: float or double.
template <class T>
ENTROPIC_API void gumbel_noise(MatrixView<T> g, DeviceNoise noise, std::span<std::byte> memory, Stream stream = {});

// T: float or double; scores only. `status` holds numbers of GammaStatus.
template <class T>
ENTROPIC_API void gamma_for_entropy(const GammaForEntropy& options, MatrixView<const T> x, std::span<double> gamma,
                                    std::span<double> entropy, std::span<int> status, std::span<std::byte> memory,
                                    Stream stream = {}, std::span<const PerRow> per_row = {});

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

#endif

// Sampling, dispatched: the kernels for every SIMD target; then, once, checks and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/sampling/sampling.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/dispatch.h"
#include "src/sampling/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS(MakeSampling);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "isentropic/maps.h"
#include "src/check.h"
#include "src/half.h"
#include "src/parallel.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

template <class T>
SamplingKernels<T> sampling_kernels();
ISENTROPIC_KERNELS_BY(sampling_kernels, MakeSampling);

void check_noise(std::string_view name, const Noise& noise, std::size_t rows) {
  if (!noise.streams.empty()) check_size(name, "streams", noise.streams.size(), rows);
}

// Indices are packed with the width of a score.
template <class T>
void check_scores(std::string_view name, const MatrixView<const T>& x) {
  check_layout(name, "x", x);
  if (x.cols > 0xffffffff) fail("{}: x must have fewer than 2^32 columns, got {}", name, x.cols);
}

std::uint64_t stream_of(const Noise& noise, std::size_t r) {
  return noise.streams.empty() ? noise.stream + r : noise.streams[r];
}

// Calls work(r, row r of x in the type of the computation, memory) for each row.
template <class T, class Work>
void for_rows(MatrixView<const T> x, std::size_t cost, const Work& work) {
  const std::size_t room = sampling_kernels<Working<T>>().memory(x.cols);
  parallel_rows(x.rows, x.cols * cost, [&](std::size_t begin, std::size_t end) {
    const std::size_t wide_size = kIsHalf<T> ? x.cols : 0;
    Arena memory = scratch(Arena::room<float>(wide_size) + room);
    float* const wide_row = memory.take<float>(wide_size);
    for (std::size_t r = begin; r < end; ++r) {
      float* wide = wide_row;
      work(r, working_rows(x, r, 1, wide).row(0), memory);
    }
  });
}

template <class T>
void draw(std::string_view name, std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::int64_t> indices,
          const Noise& noise) {
  check_scores(name, x);
  check_layout(name, "indices", indices);
  if (indices.rows != x.rows) fail("{}: indices must have a row for each of {} rows, got {}", name, x.rows, indices.rows);
  check_noise(name, noise, x.rows);
  const auto row = sampling_kernels<Working<T>>().draw;
  for_rows(x, 1, [&](std::size_t r, const auto* scores, Arena memory) {
    row(steps, scores, x.cols, noise.seed, stream_of(noise, r), noise.position, indices.row(r), indices.cols, memory);
  });
}

template <class T>
void add_noise(MatrixView<const T> x, MatrixView<T> y, const Noise& noise) {
  const auto row = sampling_kernels<T>().add_noise;
  parallel_rows(y.rows, 8 * y.cols, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const NoiseKey key = NoiseKey::Of(noise.seed, stream_of(noise, r), noise.position);
      row(x.data == nullptr ? nullptr : x.row(r), y.cols, key, y.row(r));
    }
  });
}

}  // namespace

template <class T>
void sample(const Sample& options, MatrixView<const T> x, MatrixView<std::int64_t> indices, const Noise& noise) {
  check_params(options);
  const Step step = step::Temperature{options.temperature};
  draw(Sample::kDescription.name, std::span(&step, 1), x, indices, noise);
}

Sampler::Sampler(std::vector<Step> steps, std::uint64_t seed) : steps_(std::move(steps)), seed_(seed) {
  for (const Step& step : steps_) std::visit([](const auto& op) { check_params(op); }, step);
}

template <class T>
void Sampler::probs(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p) const {
  constexpr std::string_view kName = "Sampler::probs";
  check_scores(kName, x);
  check_shape(kName, "p", p, "x", x.rows, x.cols);
  check_overlap(kName, "p", p, "x", x);
  const auto row = sampling_kernels<Working<T>>().probs;
  for_rows(x, 2, [&](std::size_t r, const auto* scores, Arena memory) {
    if constexpr (kIsHalf<T>) {
      float* const wide = const_cast<float*>(scores);  // its own copy
      row(steps_, scores, x.cols, wide, memory);
      narrow(wide, x.cols, p.row(r));
    } else {
      row(steps_, scores, x.cols, p.row(r), memory);
    }
  });
}

template <class T>
void Sampler::sample(MatrixView<const T> x, MatrixView<std::int64_t> indices, Noise noise) const {
  noise.seed = seed_;
  draw("Sampler::sample", steps_, x, indices, noise);
}

template <class T>
void gumbel_softmax(const GumbelSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                    const Noise& noise) {
  constexpr std::string_view kName = GumbelSoftmax::kDescription.name;
  check_params(options);
  check_scores(kName, x);
  check_shape(kName, "p", p, "x", x.rows, x.cols);
  check_overlap(kName, "p", p, "x", x);
  check_noise(kName, noise, x.rows);
  if (options.hard) {
    const Step step = step::Temperature{1};
    const auto draw_row = sampling_kernels<Working<T>>().draw;
    for_rows(x, 1, [&](std::size_t r, const auto* scores, Arena memory) {
      std::int64_t index;
      draw_row(std::span(&step, 1), scores, x.cols, noise.seed, stream_of(noise, r), noise.position, &index, 1, memory);
      const float elsewhere = index < 0 ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
      std::fill(p.row(r), p.row(r) + p.cols, static_cast<T>(elsewhere));
      if (index >= 0) p.row(r)[index] = static_cast<T>(1.0f);
    });
  } else if constexpr (kIsHalf<T>) {
    constexpr std::size_t kBlock = std::size_t{1} << 17;  // numbers: enough for several threads, few enough for the cache
    const std::size_t most =
        std::clamp<std::size_t>(kBlock / std::max<std::size_t>(x.cols, 1), 1, std::max<std::size_t>(x.rows, 1));
    const CallMemory<GumbelSoftmax> memory(Arena::room<float>(most * x.cols));
    for (std::size_t first = 0; first < x.rows; first += most) {
      const std::size_t count = std::min(most, x.rows - first);
      const MatrixView<float> rows(memory.arena().take<float>(count * x.cols), count, x.cols);
      for (std::size_t r = 0; r < count; ++r) widen(x.row(first + r), x.cols, rows.row(r));
      Noise part = noise;
      part.stream += first;
      if (!noise.streams.empty()) part.streams = noise.streams.subspan(first, count);
      gumbel_softmax<float>(options, rows, rows, part);
      for (std::size_t r = 0; r < count; ++r) narrow(rows.row(r), x.cols, p.row(first + r));
    }
  } else {
    add_noise<T>(x, p, noise);
    apply<T>(Softmax{.temperature = options.temperature}, p, p);
  }
}

template <class T>
void gumbel_noise(MatrixView<T> g, const Noise& noise) {
  constexpr std::string_view kName = "gumbel_noise";
  check_layout(kName, "g", g);
  check_noise(kName, noise, g.rows);
  add_noise<T>({}, g, noise);
}

template void sample(const Sample&, MatrixView<const float>, MatrixView<std::int64_t>, const Noise&);
template void sample(const Sample&, MatrixView<const double>, MatrixView<std::int64_t>, const Noise&);
template void sample(const Sample&, MatrixView<const float16>, MatrixView<std::int64_t>, const Noise&);
template void sample(const Sample&, MatrixView<const bfloat16>, MatrixView<std::int64_t>, const Noise&);
template void Sampler::probs(MatrixView<const float>, MatrixView<float>) const;
template void Sampler::probs(MatrixView<const double>, MatrixView<double>) const;
template void Sampler::probs(MatrixView<const float16>, MatrixView<float16>) const;
template void Sampler::probs(MatrixView<const bfloat16>, MatrixView<bfloat16>) const;
template void Sampler::sample(MatrixView<const float>, MatrixView<std::int64_t>, Noise) const;
template void Sampler::sample(MatrixView<const double>, MatrixView<std::int64_t>, Noise) const;
template void Sampler::sample(MatrixView<const float16>, MatrixView<std::int64_t>, Noise) const;
template void Sampler::sample(MatrixView<const bfloat16>, MatrixView<std::int64_t>, Noise) const;
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const float>, MatrixView<float>, const Noise&);
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const double>, MatrixView<double>, const Noise&);
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const float16>, MatrixView<float16>, const Noise&);
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const bfloat16>, MatrixView<bfloat16>, const Noise&);
template void gumbel_noise(MatrixView<float>, const Noise&);
template void gumbel_noise(MatrixView<double>, const Noise&);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

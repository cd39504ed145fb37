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

#include <algorithm>

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

// Calls work(r, row r of x in the type of the computation, its text, memory) for each row. more: bytes of memory beyond those
// of chains.
template <class T, class Work>
void for_rows(MatrixView<const T> x, std::size_t cost, const Texts& texts, std::size_t more, const Work& work) {
  const std::size_t room = sampling_kernels<Working<T>>().memory(x.cols) + more;
  const std::size_t longest = texts.tokens.cols;
  parallel_rows(x.rows, x.cols * cost, [&](std::size_t begin, std::size_t end) {
    const std::size_t wide_size = kIsHalf<T> ? x.cols : 0;
    Arena memory = scratch(Arena::room<float>(wide_size) + Arena::room<std::int64_t>(longest) +
                           Arena::room<std::uint32_t>(longest) + room);
    float* const wide_row = memory.take<float>(wide_size);
    auto* const tokens = memory.take<std::int64_t>(longest);
    RowText text = {.tokens = texts.tokens.data == nullptr ? nullptr : tokens, .room = memory.take<std::uint32_t>(longest)};
    for (std::size_t r = begin; r < end; ++r) {
      float* wide = wide_row;
      if (text.tokens != nullptr) {
        const std::int64_t* const row = texts.tokens.row(r);
        const auto is_token = [](std::int64_t token) { return token >= 0; };
        text.length = static_cast<std::size_t>(std::copy_if(row, row + longest, tokens, is_token) - tokens);
      }
      if (!texts.bounds.empty()) text.bound = texts.bounds[r];
      work(r, working_rows(x, r, 1, wide).row(0), text, memory);
    }
  });
}
template <class T, class Work>
void for_rows(MatrixView<const T> x, std::size_t cost, const Work& work) {
  for_rows(x, cost, {}, 0, [&](std::size_t r, const auto* scores, const RowText&, Arena memory) { work(r, scores, memory); });
}

// Calls write(row of p as numbers of the computation) and stores it: `scores` may be overwritten.
template <class T, class W, class Write>
void write_probs(const W* scores, T* p, std::size_t n, const Write& write) {
  if constexpr (kIsHalf<T>) {
    float* const wide = const_cast<float*>(scores);  // its own copy
    write(wide);
    narrow(wide, n, p);
  } else {
    write(p);
  }
}

template <class T>
void check_draws(std::string_view name, const MatrixView<const T>& x, const MatrixView<std::int64_t>& indices,
                 const Noise& noise) {
  check_scores(name, x);
  check_layout(name, "indices", indices);
  if (indices.rows != x.rows) fail("{}: indices must have a row for each of {} rows, got {}", name, x.rows, indices.rows);
  check_noise(name, noise, x.rows);
  check_apart(name, "indices", indices, "x", x);
  // Draws may take the place of their streams.
  const MatrixView<const std::uint64_t> streams(noise.streams.data(), noise.streams.size(), 1);
  const bool same = static_cast<const void*>(streams.data) == indices.data && indices.cols == 1 && indices.row_stride == 1;
  if (!same) check_apart(name, "indices", indices, "streams", streams);
}

// Checks what steps read beside scores.
void check_texts(std::string_view name, std::span<const Step> steps, std::size_t rows, std::size_t cols, const Texts& texts) {
  const MatrixView<const std::int64_t>& tokens = texts.tokens;
  check_layout(name, "tokens", tokens);
  const auto reads = [](const Step& step) { return reads_text(description_of(step)); };
  const auto reader = std::ranges::find_if(steps, reads);
  const bool given = tokens.data != nullptr || tokens.rows > 0;
  if (reader == steps.end() && given) fail("{}: tokens must not be given: no step reads them", name);
  if (reader != steps.end() && !given && rows > 0) {
    fail("{}: tokens must be given: {} reads the text so far", name, description_of(*reader).name);
  }
  if (given && tokens.rows != rows) fail("{}: tokens must have a row for each of {} rows, got {}", name, rows, tokens.rows);
  for (std::size_t r = 0; r < tokens.rows; ++r) {
    const std::int64_t* const row = tokens.row(r);
    for (std::size_t i = 0; i < tokens.cols; ++i) {
      if (row[i] >= 0 && static_cast<std::size_t>(row[i]) >= cols) {
        fail_in_row(name, "tokens", r, i, "tokens must be below {}, the number of scores of a row, got {}", cols, row[i]);
      }
    }
  }
  const bool bounded = !steps.empty() && std::holds_alternative<step::Mirostat>(steps.back());
  if (texts.bounds.empty()) return;
  if (!bounded) fail("{}: bounds must not be given: they are mirostat's", name);
  check_size(name, "bounds", texts.bounds.size(), rows);
}

// A step whose result depends on the draw, or the end. Whether xtc with the probability 0 or 1 acts is certain.
auto find_drawn(std::span<const Step> steps) {
  return std::ranges::find_if(steps, [](const Step& step) {
    const auto* const xtc = std::get_if<step::Xtc>(&step);
    return description_of(step).drawn && !(xtc != nullptr && (xtc->probability == 0 || xtc->probability == 1));
  });
}

template <class T>
void draw(std::string_view name, std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::int64_t> indices,
          const Noise& noise, const Texts& texts = {}, MatrixView<T> p = {}) {
  check_draws(name, x, indices, noise);
  check_texts(name, steps, x.rows, x.cols, texts);
  const bool wanted = p.data != nullptr;
  if (wanted) {
    check_shape(name, "p", p, "x", x.rows, x.cols);
    check_overlap(name, "p", p, "x", x);
    if (indices.cols == 0) fail("{}: p must not be given where there is no draw", name);
    if (const auto drawn = find_drawn(steps); indices.cols > 1 && drawn != steps.end()) {
      fail("{}: p must be of one draw: that of {} depends on the draw", name, description_of(*drawn).name);
    }
  }
  const auto row = sampling_kernels<Working<T>>().draw;
  for_rows(x, 1, texts, 0, [&](std::size_t r, const auto* scores, const RowText& text, Arena memory) {
    double* const bound = texts.bounds.empty() ? nullptr : &texts.bounds[r];
    const auto run = [&](Working<T>* to) {
      row(steps, scores, x.cols, noise.seed, stream_of(noise, r), noise.position, indices.row(r), indices.cols, text, bound, to,
          memory);
    };
    if (!wanted) return run(nullptr);
    write_probs(scores, p.row(r), x.cols, run);
  });
}

template <class T>
void draw_different(std::string_view name, const Step& step, MatrixView<const T> x, MatrixView<std::int64_t> indices,
                    const Noise& noise) {
  check_draws(name, x, indices, noise);
  const SamplingKernels<Working<T>> kernels = sampling_kernels<Working<T>>();
  const std::size_t more = kernels.memory_of_different(x.cols, indices.cols) - kernels.memory(x.cols);
  for_rows(x, 1, {}, more, [&](std::size_t r, const auto* scores, const RowText&, Arena memory) {
    const NoiseKey key = NoiseKey::Of(noise.seed, stream_of(noise, r), noise.position);
    kernels.draw_different(std::span(&step, 1), scores, x.cols, key, indices.row(r), indices.cols, memory);
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
  if (!options.replace) return draw_different(Described<Sample>::kDescription.name, step, x, indices, noise);
  draw(Described<Sample>::kDescription.name, std::span(&step, 1), x, indices, noise);
}

Sampler::Sampler(std::vector<Step> steps, std::uint64_t seed) : steps_(std::move(steps)), seed_(seed) {
  for (const Step& step : steps_) {
    std::visit([](const auto& op) { check_params(op); }, step);
    if (std::holds_alternative<step::Mirostat>(step) && &step != &steps_.back())
      fail("Sampler: mirostat must be the last step");
  }
}

template <class T>
void Sampler::probs(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p, const Texts& texts) const {
  write("Sampler::probs", false, x, p, texts);
}
template <class T>
void Sampler::log_probs(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y, const Texts& texts) const {
  write("Sampler::log_probs", true, x, y, texts);
}

template <class T>
void Sampler::write(std::string_view name, bool logarithm, MatrixView<const T> x, MatrixView<T> y, const Texts& texts) const {
  check_scores(name, x);
  check_shape(name, logarithm ? "y" : "p", y, "x", x.rows, x.cols);
  check_overlap(name, logarithm ? "y" : "p", y, "x", x);
  check_texts(name, steps_, x.rows, x.cols, texts);
  if (const auto drawn = find_drawn(steps_); drawn != std::span(steps_).end()) {
    fail("{}: what {} leaves depends on the draw: ask sample for the distribution", name, description_of(*drawn).name);
  }
  const auto row = sampling_kernels<Working<T>>().probs;
  for_rows(x, 2, texts, 0, [&](std::size_t r, const auto* scores, const RowText& text, Arena memory) {
    write_probs(scores, y.row(r), x.cols, [&](Working<T>* to) { row(steps_, scores, x.cols, text, logarithm, to, memory); });
  });
}

template <class T>
void Sampler::sample(MatrixView<const T> x, MatrixView<std::int64_t> indices, Noise noise, const Texts& texts,
                     MatrixView<std::type_identity_t<T>> p) const {
  noise.seed = seed_;
  draw("Sampler::sample", steps_, x, indices, noise, texts, p);
}

template <class T>
void gumbel_softmax(const GumbelSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                    const Noise& noise) {
  constexpr std::string_view kName = Described<GumbelSoftmax>::kDescription.name;
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
      draw_row(std::span(&step, 1), scores, x.cols, noise.seed, stream_of(noise, r), noise.position, &index, 1, {}, nullptr,
               nullptr, memory);
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
template void Sampler::probs(MatrixView<const float>, MatrixView<float>, const Texts&) const;
template void Sampler::log_probs(MatrixView<const float>, MatrixView<float>, const Texts&) const;
template void Sampler::probs(MatrixView<const double>, MatrixView<double>, const Texts&) const;
template void Sampler::log_probs(MatrixView<const double>, MatrixView<double>, const Texts&) const;
template void Sampler::probs(MatrixView<const float16>, MatrixView<float16>, const Texts&) const;
template void Sampler::log_probs(MatrixView<const float16>, MatrixView<float16>, const Texts&) const;
template void Sampler::probs(MatrixView<const bfloat16>, MatrixView<bfloat16>, const Texts&) const;
template void Sampler::log_probs(MatrixView<const bfloat16>, MatrixView<bfloat16>, const Texts&) const;
template void Sampler::sample(MatrixView<const float>, MatrixView<std::int64_t>, Noise, const Texts&, MatrixView<float>) const;
template void Sampler::sample(MatrixView<const double>, MatrixView<std::int64_t>, Noise, const Texts&,
                              MatrixView<double>) const;
template void Sampler::sample(MatrixView<const float16>, MatrixView<std::int64_t>, Noise, const Texts&,
                              MatrixView<float16>) const;
template void Sampler::sample(MatrixView<const bfloat16>, MatrixView<std::int64_t>, Noise, const Texts&,
                              MatrixView<bfloat16>) const;
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const float>, MatrixView<float>, const Noise&);
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const double>, MatrixView<double>, const Noise&);
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const float16>, MatrixView<float16>, const Noise&);
template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const bfloat16>, MatrixView<bfloat16>, const Noise&);
template void gumbel_noise(MatrixView<float>, const Noise&);
template void gumbel_noise(MatrixView<double>, const Noise&);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

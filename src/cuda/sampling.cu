// Kernels of chains of steps and draws, and of the noise itself.

#include "src/cuda/chain-inl.h"
#include "src/cuda/launch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

HWY_INLINE NoiseKey KeyOf(const cuda::SampleCall& call, size_t r, uint64_t draw) {
  const uint64_t seed = call.seed_at == nullptr ? call.seed : *call.seed_at;
  const uint64_t of_all = call.position_at == nullptr ? call.position : *call.position_at;
  const uint64_t position = call.positions == nullptr ? of_all : call.positions[r];
  const uint64_t stream = call.streams == nullptr ? call.stream + r : call.streams[r];
  return NoiseKey::Of(seed, stream, position + draw);
}

// kSteps: any steps; without it only a temperature, which needs far fewer registers.
template <class T, bool kSteps>
__global__ void __launch_bounds__(512, 1) SampleKernel(const __grid_constant__ cuda::SampleCall call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Sample&, bool, Arena memory) HWY_ATTR {
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    T* const p = call.out.data == nullptr ? nullptr : ResultRow<T>(call.out, r, n, memory);
    // With steps the draw is from a few scores, whose noise is soon found.
    Chain<T> left = kSteps || call.draws == 0 ? Chain<T>(x, n, memory) : Chain<T>(x, n, memory, DrawNoise(KeyOf(call, r, 0)));
    if constexpr (kSteps) {
      for (int s = 0; s < call.steps && left.exist(); ++s) left.Apply(call.step[s]);
    } else {
      if (left.exist()) left.ApplyTemperature(call.step[0].first);
    }
    if (p != nullptr && !call.hard) {
      if (left.exist()) {
        left.Write(n, p);
      } else {
        FillRow(RowTag<T>(), kNaN<T>, n, p);
      }
    }
    if (left.exist()) left.FindBlocks();
    for (size_t c = 0; c < call.draws; ++c) {
      const int64_t index = left.exist() ? left.Draw(DrawNoise(KeyOf(call, r, c)), c == 0) : -1;
      if (call.indices != nullptr && Team::Rank() == 0) call.indices[r * call.indices_stride + c] = index;
      if (p != nullptr && call.hard) {
        ForEachVector(RowTag<T>(), n, [&](size_t i, size_t) HWY_ATTR {
          p[i] = index < 0 ? kNaN<T> : i == static_cast<size_t>(index) ? T(1) : T(0);
        });
      }
    }
    if (p != nullptr) FinishRow(p, call.out, r, n);
    Team::Barrier();
  });
}

// y = x - max x + G, or only G.
template <class T>
__global__ void __launch_bounds__(512, 1) NoiseKernel(const __grid_constant__ cuda::SampleCall call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Sample&, bool, Arena memory) HWY_ATTR {
    const T* const x = call.in[0].data == nullptr ? nullptr : ReadRow<T>(call.in[0], r, n, memory);
    T* const y = ResultRow<T>(call.out, r, n, memory);
    AddNoiseRow(x, n, KeyOf(call, r, 0), y);
    FinishRow(y, call.out, r, n);
    Team::Barrier();
  });
}

// Memory: the chain's, and copies of 16-bit rows and of their results.
template <class T>
size_t TeamMemoryOfSampling(const cuda::SampleCall& call) {
  const bool copies = call.in[0].stored != cuda::Stored::as_worked_on;
  return (copies ? 2 * Arena::room<T>(call.cols) : 0) + Chain<T>::Memory(call);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <class T>
std::size_t SamplingKernels<T>::memory(const SampleCall& call) {
  return memory_of_grid(draw_shape(call.rows, call.cols), call.rows, HWY_NAMESPACE::TeamMemoryOfSampling<T>(call));
}

template <class T>
void SamplingKernels<T>::sample(SampleCall call, Stream stream) {
  using namespace HWY_NAMESPACE;
  call.memory_of_team = TeamMemoryOfSampling<T>(call);
  const bool scaled = call.steps == 1 && call.step[0].kind == ChainStep::temperature;
  const Shape shape = draw_shape(call.rows, call.cols);
  launch_as(shape, clusters_of(shape, call.rows), shared_bytes_of(shape, call.memory_of_team, call.cols),
            scaled ? SampleKernel<T, false> : SampleKernel<T, true>, call, stream);
}

template <class T>
void SamplingKernels<T>::add_noise(SampleCall call, Stream stream) {
  call.memory_of_team = 2 * HWY_NAMESPACE::Arena::room<T>(call.cols);  // less than a draw's
  launch(HWY_NAMESPACE::NoiseKernel<T>, call, false, stream);
}

template struct SamplingKernels<float>;
template struct SamplingKernels<double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

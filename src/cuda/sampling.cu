// Kernels of chains of steps and draws, and of the noise itself.

#include "src/cuda/draw-inl.h"
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

// Calls visit(step) for a step of a call as one of isentropic::step.
template <class Visit>
HWY_INLINE void VisitStep(const cuda::ChainStep& of_call, const Visit& visit) {
  switch (of_call.kind) {
    case cuda::ChainStep::temperature:
      return visit(step::Temperature{of_call.first});
    case cuda::ChainStep::top_k:
      return visit(step::TopK{of_call.count});
    case cuda::ChainStep::top_p:
      return visit(step::TopP{of_call.first});
    case cuda::ChainStep::min_p:
      return visit(step::MinP{of_call.first});
    case cuda::ChainStep::typical_p:
      return visit(step::TypicalP{of_call.first});
    case cuda::ChainStep::entropy:
      return visit(step::Entropy{of_call.first});
    case cuda::ChainStep::entropy_clip:
      return visit(step::EntropyClip{of_call.first, of_call.second});
    case cuda::ChainStep::epsilon:
      return visit(step::Epsilon{of_call.first});
    case cuda::ChainStep::eta:
      return visit(step::Eta{of_call.first});
    case cuda::ChainStep::top_n_sigma:
      return visit(step::TopNSigma{of_call.first});
    case cuda::ChainStep::top_h:
      return visit(step::TopH{of_call.first});
    case cuda::ChainStep::p_less:
      return visit(step::PLess{});
  }
}

// kSteps: any steps; without it only a temperature, which needs far fewer registers.
template <class T, bool kSteps>
__global__ void __launch_bounds__(512, 1) SampleKernel(const __grid_constant__ cuda::SampleCall call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Sample&, bool, Arena memory) HWY_ATTR {
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    T* const p = call.out.data == nullptr ? nullptr : ResultRow<T>(call.out, r, n, memory);
    // The noise of the first draw is computed while the row is loaded: it does not depend on the scores, and the threads would
    // otherwise wait. With steps the draw is from a few scores, whose noise is computed quickly.
    NoiseAhead<T, typename Chain<T>::Index> ahead = {};
    const bool is_ahead = !kSteps && call.draws > 0 && n > kFewScores;
    if (is_ahead) {
      const size_t blocks = NoiseBlocks(n);
      ahead = {memory.take<double>(blocks), memory.take<T>(blocks), memory.take<typename Chain<T>::Index>(blocks), x};
    }
    Chain<T> chain(x, n, memory, [&](const T* row, size_t size, T* block_max) HWY_ATTR {
      if constexpr (!kSteps) {
        if (is_ahead) return BlockMaxima<true>(row, size, block_max, ahead, DrawNoise(KeyOf(call, r, 0)));
      }
      return BlockMaxima(row, size, block_max);
    });
    if constexpr (kSteps) {
      for (int s = 0; s < call.steps && chain.exist(); ++s) {
        VisitStep(call.step[s], [&](const auto& op) HWY_ATTR { chain.Apply(op); });
      }
    } else {
      if (chain.exist()) chain.Apply(step::Temperature{call.step[0].first});
    }
    if (p != nullptr && !call.hard) {
      if (chain.exist()) {
        chain.Write(n, p);
      } else {
        FillRow(RowTag<T>(), kNaN<T>, n, p);
      }
    }
    LeftScores<T> left;
    if (chain.exist()) left = chain.Left();
    for (size_t c = 0; c < call.draws; ++c) {
      const DrawNoise noise(KeyOf(call, r, c));
      const int64_t index = chain.exist() ? Draw(left, noise, is_ahead && c == 0 ? &ahead : nullptr) : -1;
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

template <class T>
HWY_INLINE size_t MemoryOfSteps(const cuda::SampleCall& call) {
  size_t most = 0;
  for (int s = 0; s < call.steps; ++s) {
    VisitStep(call.step[s], [&](const auto& op) HWY_ATTR { most = HWY_MAX(most, Chain<T>::MemoryOf(op, call.cols)); });
  }
  return most;
}

// Memory: the chain's, noise that is found ahead, and copies of 16-bit rows and of their results.
template <class T>
size_t TeamMemoryOfSampling(const cuda::SampleCall& call) {
  const size_t n = call.cols, blocks = NoiseBlocks(n);
  const size_t copies = call.in[0].stored != cuda::Stored::as_worked_on ? 2 * Arena::room<T>(n) : 0;
  const size_t ahead = Arena::room<double>(blocks) + 2 * Arena::room<T>(blocks);
  const size_t steps = MemoryOfSteps<T>(call), write = call.out.data == nullptr || call.hard ? 0 : Chain<T>::MemoryOfWrite(n);
  return copies + ahead + Chain<T>::Memory(n, HWY_MAX(steps, write));
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

// What sampling does with a row.

#if defined(ISENTROPIC_SAMPLING_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_ROWS_INL_H_
#undef ISENTROPIC_SAMPLING_ROWS_INL_H_
#else
#define ISENTROPIC_SAMPLING_ROWS_INL_H_
#endif

#include <algorithm>

#include "src/sampling/all-inl.h"
#include "src/sampling/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE Chain<T> ChainOf(std::span<const Step> steps, const T* x, size_t n, Arena memory) {
  Chain<T> chain(x, n, memory,
                 [](const T* row, size_t size, T* block_max) HWY_ATTR { return BlockMaxima(row, size, block_max); });
  for (const Step& step : steps) {
    if (!chain.exist()) break;
    std::visit([&](const auto& op) HWY_ATTR { chain.Apply(op); }, step);
  }
  return chain;
}

template <class T>
void DrawRow(std::span<const Step> steps, const T* x, size_t n, uint64_t seed, uint64_t stream, uint64_t position,
             int64_t* indices, size_t count, Arena memory) {
  Chain<T> chain = ChainOf(steps, x, n, memory);
  if (!chain.exist()) {
    std::fill(indices, indices + count, -1);
    return;
  }
  const LeftScores<T> left = chain.Left();
  for (size_t c = 0; c < count; ++c) indices[c] = Draw(left, NoiseKey::Of(seed, stream, position + c));
}

template <class T>
void ProbsRow(std::span<const Step> steps, const T* x, size_t n, T* p, Arena memory) {
  Chain<T> chain = ChainOf(steps, x, n, memory);
  if (chain.exist()) {
    chain.Write(n, p);
  } else {
    FillRow(RowTag<T>(), kNaN<T>, n, p);
  }
}

// The memory of any chain for a row of n.
template <class T>
size_t ChainMemory(size_t n) {
  size_t most = Chain<T>::MemoryOfWrite(n);
  const auto find = [&]<class... Steps>(std::type_identity<std::variant<Steps...>>) {
    ((most = HWY_MAX(most, Chain<T>::MemoryOf(Steps(), n))), ...);
  };
  find(std::type_identity<Step>());
  return Chain<T>::Memory(n, most);
}

template <class T>
SamplingKernels<T> MakeSampling() {
  return {DrawRow<T>, ProbsRow<T>, ChainMemory<T>, AddNoiseRow<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_ROWS_INL_H_

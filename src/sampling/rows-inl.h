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

// The seed of what steps draw: whether xtc acts is independent of the drawn token.
inline constexpr uint64_t kStepSeed = 0x585443;

// The chain over all n scores of a row, before its steps.
template <class T>
HWY_INLINE Chain<T> ChainOf(const T* x, size_t n, Arena memory) {
  return Chain<T>(x, n, memory,
                  [](const T* row, size_t size, T* block_max) HWY_ATTR { return BlockMaxima(row, size, block_max); });
}
template <class T>
HWY_INLINE void ApplySteps(std::span<const Step> steps, Chain<T>& chain) {
  for (const Step& step : steps) {
    if (!chain.exist()) break;
    std::visit([&](const auto& op) HWY_ATTR { chain.Apply(op); }, step);
  }
}

HWY_INLINE bool DependOnDraw(std::span<const Step> steps) {
  return std::ranges::any_of(steps, [](const Step& step) { return description_of(step).drawn; });
}

template <class T>
void DrawRow(std::span<const Step> steps, const T* x, size_t n, uint64_t seed, uint64_t stream, uint64_t position,
             int64_t* indices, size_t count, const RowText& text, double* bound, T* p, Arena memory) {
  const bool anew = DependOnDraw(steps);
  const auto* const mirostat = steps.empty() ? nullptr : std::get_if<step::Mirostat>(&steps.back());
  RowText now = text;
  for (size_t c = 0; c < count;) {
    Chain<T> chain = ChainOf(x, n, memory);
    if (anew || text.tokens != nullptr) chain.Know(now, NoiseKey::Of(seed ^ kStepSeed, stream, position + c));
    ApplySteps(steps, chain);
    if (!chain.exist()) {
      std::fill(indices, indices + count, -1);
      if (p != nullptr) FillRow(RowTag<T>(), kNaN<T>, n, p);
      return;
    }
    const LeftScores<T> left = chain.Left();
    do {
      indices[c] = Draw(left, NoiseKey::Of(seed, stream, position + c));
      ++c;
    } while (!anew && c < count);
    if (mirostat != nullptr) now.bound = chain.Learnt(*mirostat, static_cast<size_t>(indices[c - 1]));
    if (p != nullptr) chain.Write(n, p);
  }
  if (bound != nullptr) *bound = now.bound;
}

template <class T>
void DrawDifferentRow(std::span<const Step> steps, const T* x, size_t n, NoiseKey key, int64_t* indices, size_t count,
                      Arena memory) {
  Chain<T> chain = ChainOf(x, n, memory);
  ApplySteps(steps, chain);
  size_t found = 0;
  if (chain.exist()) {
    LeftScores<T> left = chain.Left();
    found = DrawDifferent(left, x, key, indices, count);
  }
  std::fill(indices + found, indices + count, -1);
}

template <class T>
void ProbsRow(std::span<const Step> steps, const T* x, size_t n, const RowText& text, bool logarithm, T* p, Arena memory) {
  Chain<T> chain = ChainOf(x, n, memory);
  chain.Know(text, {});
  ApplySteps(steps, chain);
  if (!chain.exist()) {
    FillRow(RowTag<T>(), kNaN<T>, n, p);
  } else if (logarithm) {
    chain.WriteLogarithms(n, p);
  } else {
    chain.Write(n, p);
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
size_t MemoryOfDifferent(size_t n, size_t count) {
  return ChainMemory<T>(n) + Arena::room<size_t>(NoiseBlocks(n)) + Arena::room<KeyAndNoise>(HWY_MIN(n, count));
}

template <class T>
SamplingKernels<T> MakeSampling() {
  return {DrawRow<T>, DrawDifferentRow<T>, ProbsRow<T>, ChainMemory<T>, MemoryOfDifferent<T>, AddNoiseRow<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_ROWS_INL_H_

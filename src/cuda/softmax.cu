// Kernels of softmax, sigsoftmax and taylor_softmax.

#include "src/cuda/launch.h"
#include "src/cuda/resident-inl.h"
#include "src/maps/sigsoftmax-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/maps/taylor_softmax-inl.h"

namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// As MapKernel, for one temperature that needs no preparing.
template <class S, unsigned kEach>
__global__ void __launch_bounds__(512, 2) ResidentSoftmaxKernel(cuda::Call<Softmax> call) {
  const RowTag<float> d;
  const ExpScaled<RowTag<float>> exp(d, call.op.temperature);
  ResidentRow<S, kEach> row(call.in[0], static_cast<unsigned>(call.cols));
  Team::Begin();
  const size_t r = Team::Number();
  if (r >= call.rows) return;
  row.Load(call.in[0], r);
  const float max = row.Max();
  if (!IsFinite(max)) return row.WriteNonFinite(call.out, r);
  row.Replace([&](float v) HWY_ATTR { return hn::GetLane(exp(d, hn::Set(d, v - max))); });
  // NaN if a score is NaN, and with it every product.
  const double sum = row.Sum([](float v, unsigned) { return v; });
  const float inverse = static_cast<float>(1 / sum);
  row.Write(call.out, r, [&](float v, unsigned) HWY_ATTR { return v * inverse; });
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <>
void Kernels<Softmax, float>::map(Call<Softmax> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  const bool plain = !SideBySide<Softmax, float>(call.cols) && call.per_row.of[0] == nullptr &&
                     !IsExtremeTemperature<float>(call.op.temperature);
  const bool resident = plain && use_resident(call, [&](auto s, auto each) {
                          launch_resident(ResidentSoftmaxKernel<decltype(s), each()>, call, stream);
                        });
  if (!resident) launch_map<Softmax, float>(call, stream);
}

template struct Kernels<Softmax, float>;
template struct Kernels<Softmax, double>;
template struct Kernels<SigSoftmax, float>;
template struct Kernels<SigSoftmax, double>;
template struct Kernels<TaylorSoftmax, float>;
template struct Kernels<TaylorSoftmax, double>;

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

// Kernels of softmax, sigsoftmax and taylor_softmax.

#include "src/cuda/launch.h"
#include "src/cuda/streamed-inl.h"
#include "src/maps/sigsoftmax-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/maps/taylor_softmax-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// p of a row in registers.
template <class Row>
HWY_INLINE void SoftmaxOfRow(const cuda::Call<Softmax>& call, size_t r, float max, Row& row) {
  const RowTag<float> d;
  if (!IsFinite(max)) return row.WriteNonFinite(call.out, r);
  const ExpScaled<RowTag<float>> exp(d, call.op.temperature);
  row.Replace([&](float v) HWY_ATTR { return hn::GetLane(exp(d, hn::Set(d, v - max))); });
  // NaN if a score is NaN, and with it every product.
  const double sum = row.Sum([](float v, unsigned) { return v; });
  const float inverse = static_cast<float>(1 / sum);
  row.Write(call.out, r, [&](float v, unsigned) HWY_ATTR { return v * inverse; });
}

// As MapKernel, for one temperature that needs no preparing.
template <class S, unsigned kEach>
__global__ void __launch_bounds__(512, 2) ResidentSoftmaxKernel(const __grid_constant__ cuda::Call<Softmax> call) {
  ResidentRow<S, kEach> row(call.in[0], static_cast<unsigned>(call.cols));
  Team::Begin();
  const size_t r = Team::Number();
  if (r >= call.rows) return;
  row.Load(call.in[0], r);
  SoftmaxOfRow(call, r, row.Max(), row);
}

template <class S>
__global__ void __launch_bounds__(512, 2) StreamedSoftmaxKernel(const __grid_constant__ cuda::Call<Softmax> call) {
  StreamedRow<S> row(call.in[0], call.rows, call.cols);
  Team::Begin();
  row.Begin();
  for (size_t r = Team::Number(); r < call.rows; r += Team::Teams()) SoftmaxOfRow(call, r, row.Take(), row);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

template <>
void Kernels<Softmax, float>::map(Call<Softmax> call, Stream stream) {
  using namespace HWY_NAMESPACE;
  const bool plain = !SideBySide<Softmax, float>(call.cols) && call.per_row.of[0] == nullptr &&
                     !IsExtremeTemperature<float>(call.op.temperature);
  const bool resident = plain && use_resident(call, [&](auto s, auto each) {
                          using S = decltype(s);
                          if (launch_streamed<S, StreamedSoftmaxKernel<S>>(call, stream)) return;
                          launch_resident(ResidentSoftmaxKernel<S, each()>, call, stream);
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
}  // namespace isentropic::inline ISENTROPIC_ABI

// Kernels of sparsemax and entmax for short rows.

#include "src/cuda/short_rows.h"
#include "src/maps/entmax-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

template struct ShortKernels<Sparsemax, float>;
template struct ShortKernels<Sparsemax, double>;
template struct ShortKernels<Entmax, float>;
template struct ShortKernels<Entmax, double>;

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

// Gauss-Legendre quadrature: the positive half of the nodes and weights on [-1, 1].
#pragma once

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

struct GaussPoint {
  double node, weight;
};

inline constexpr GaussPoint kGauss2[1] = {{0x1.279a74590331dp-1, 1}};
inline constexpr GaussPoint kGauss4[2] = {{0x1.b8e6dbcf63985p-1, 0x1.64340f7e7b66bp-2},
                                          {0x1.5c23fd9dd3dfcp-2, 0x1.4de5f840c24cap-1}};
inline constexpr GaussPoint kGauss16[8] = {
    {0x1.fa92c264d787ep-1, 0x1.bcddab4b7c211p-6}, {0x1.e39f56616f9b0p-1, 0x1.fdfb1a2c1265dp-5},
    {0x1.bb3403514e483p-1, 0x1.85c4ee79cc258p-4}, {0x1.82c45dda4726bp-1, 0x1.fe7af2bad386ap-4},
    {0x1.3c5a466d5e8b8p-1, 0x1.325f61bca3cbfp-3}, {0x1.d50259a43a772p-2, 0x1.5a6ebbb5a75fcp-3},
    {0x1.205cae642337cp-2, 0x1.75f8c77e0c00fp-3}, {0x1.852bd6676a9f9p-4, 0x1.83feae80e4dfcp-3}};

}  // namespace isentropic::inline ISENTROPIC_ABI

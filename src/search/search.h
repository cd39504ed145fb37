// The searches as plain code, for the host and, with nvcc, for the device. Other code calculates the moments and sums, such as
// processes with a part of a row each, or a GPU. The results have the bits of SIMD targets with FMA.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "isentropic/version.h"

#ifdef __CUDACC__
#define ISENTROPIC_SEARCH __host__ __device__ inline
#else
#define ISENTROPIC_SEARCH inline
#endif

namespace isentropic::inline ISENTROPIC_ABI {
namespace search {

ISENTROPIC_SEARCH double MulAdd(double a, double b, double c) { return fma(a, b, c); }
ISENTROPIC_SEARCH double NegMulAdd(double a, double b, double c) { return fma(-a, b, c); }
ISENTROPIC_SEARCH double MulSub(double a, double b, double c) { return fma(a, b, -c); }
// Returns the second operand if either is NaN, like the instructions.
ISENTROPIC_SEARCH double Min(double a, double b) { return a < b ? a : b; }
ISENTROPIC_SEARCH double Max(double a, double b) { return a > b ? a : b; }
ISENTROPIC_SEARCH double Abs(double a) { return fabs(a); }
ISENTROPIC_SEARCH float Abs(float a) { return fabsf(a); }
ISENTROPIC_SEARCH double Sqrt(double a) { return sqrt(a); }
ISENTROPIC_SEARCH float Sqrt(float a) { return sqrtf(a); }
ISENTROPIC_SEARCH double Select(bool chosen, double a, double b) { return chosen ? a : b; }
ISENTROPIC_SEARCH float Select(bool chosen, float a, float b) { return chosen ? a : b; }
ISENTROPIC_SEARCH bool All(bool chosen) { return chosen; }

// Log of one number, as in src/rows/exp_log-inl.h, which explains it.
ISENTROPIC_SEARCH double Log(double x) {
  if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
  if (!(x <= DBL_MAX)) return x;
  constexpr int64_t kSqrtHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000, kMantissa = 0x000fffffffffffff;
  const bool subnormal = x < DBL_MIN;
  const double normal = subnormal ? x * 0x1p52 : x;
  int64_t bits;
  memcpy(&bits, &normal, sizeof bits);
  bits += kOne - kSqrtHalf;
  const double k = static_cast<double>((bits >> 52) - (subnormal ? 1023 + 52 : 1023));
  bits = (bits & kMantissa) + kSqrtHalf;
  double m;
  memcpy(&m, &bits, sizeof m);
  const double f = m - 1, s = f / (f + 2), z = s * s, half_square = 0.5 * f * f;
  double q = 0x1.101e9893d4cedp-3;
  q = fma(q, z, 0x1.0f4a9b2809151p-3);
  q = fma(q, z, 0x1.3b2153daf11dbp-3);
  q = fma(q, z, 0x1.745cdb900e522p-3);
  q = fma(q, z, 0x1.c71c725c1a37p-3);
  q = fma(q, z, 0x1.249249242f0a2p-2);
  q = fma(q, z, 0x1.9999999999d58p-2);
  q = fma(q, z, 0x1.5555555555555p-1);
  const double tail = fma(s, fma(z, q, half_square), -half_square);
  return fma(k, 0x1.62e42fefa38p-1, f + fma(k, 0x1.ef35793c7673p-45, tail));
}

// Exp of one number, as in src/rows/exp_log-inl.h.
ISENTROPIC_SEARCH double Exp(double x) {
  if (x != x) return x;
  constexpr double kMagic = 0x1.8p52;
  const double clamped = Max(Min(x, 710.0), -746.0);
  const double k = fma(clamped, 0x1.71547652b82fep+0, kMagic) - kMagic;
  const double r = fma(-k, 0x1.ef35793c7673p-45, fma(-k, 0x1.62e42fefa38p-1, clamped));
  double q = 0x1.ad92c5db98d61p-26;
  q = fma(q, r, 0x1.28adf7b4c048cp-22);
  q = fma(q, r, 0x1.71df18fd0c532p-19);
  q = fma(q, r, 0x1.a0199963bc125p-16);
  q = fma(q, r, 0x1.a01a012febae3p-13);
  q = fma(q, r, 0x1.6c16c18475a3ep-10);
  q = fma(q, r, 0x1.1111111126b38p-7);
  q = fma(q, r, 0x1.55555555506cp-5);
  q = fma(q, r, 0x1.55555555554fep-3);
  q = fma(q, r, 0x1.000000000000ap-1);
  const double y = fma(r * r, q, r) + 1;
  // 2^k in two factors.
  const int64_t whole = static_cast<int64_t>(k), half = static_cast<int64_t>(fma(k, 0.5, kMagic) - kMagic);
  const int64_t exponents[2] = {(half + 1023) << 52, (whole - half + 1023) << 52};
  double powers[2];
  memcpy(powers, exponents, sizeof powers);
  return y * powers[0] * powers[1];
}

// base^exponent for base > 0.
ISENTROPIC_SEARCH double Power(double base, double exponent) { return Exp(exponent * Log(base)); }

#include "src/search/gamma.inc"
#include "src/search/threshold.inc"

}  // namespace search
}  // namespace isentropic::inline ISENTROPIC_ABI

#undef ISENTROPIC_SEARCH

// Highway's operations on vectors of one lane, for a device and for the host: the operations that the kernels of src/ need.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#ifdef __CUDACC__
#define ISENTROPIC_BOTH __host__ __device__
#define ISENTROPIC_CALLED __noinline__
#else
#define ISENTROPIC_BOTH
#define ISENTROPIC_CALLED
#endif
#define HWY_INLINE inline ISENTROPIC_BOTH __attribute__((always_inline))
// A function that the host does not inline is called on a device too, and so are those of team.h that all sums share: ptxas
// takes far longer than in proportion for one large function, and the calls are few beside the entries of a row.
#define HWY_NOINLINE ISENTROPIC_BOTH ISENTROPIC_CALLED
#define HWY_FLATTEN
#define HWY_ATTR
#define HWY_RESTRICT __restrict__
#define HWY_ALIGN alignas(16)
#define HWY_ASSUME(holds) ((holds) ? (void)0 : __builtin_unreachable())
#define HWY_LIKELY(x) (x)
#define HWY_UNLIKELY(x) (x)
#define HWY_MIN(a, b) ((a) < (b) ? (a) : (b))
#define HWY_MAX(a, b) ((a) > (b) ? (a) : (b))
#define HWY_BEFORE_NAMESPACE() static_assert(true, "")
#define HWY_AFTER_NAMESPACE() static_assert(true, "")
#define HWY_NAMESPACE N_CUDA
#define HWY_SCALAR 1
#define HWY_EMU128 2
#define HWY_AVX2 3
#define HWY_SSSE3 4
#define HWY_TARGET HWY_SCALAR
#define HWY_NATIVE_FMA 1
#define HWY_ARCH_X86 0
#ifdef __CUDA_ARCH__
#define HWY_ASSERT(holds) ((holds) ? (void)0 : __trap())
#else
#define HWY_ASSERT(holds) ((holds) ? (void)0 : abort())
#endif
#define HWY_DASSERT(holds) ((void)0)
namespace hwy {
template <size_t S>
struct Types;
template <>
struct Types<4> {
  using I = int32_t;
  using U = uint32_t;
  using F = float;
};
template <>
struct Types<8> {
  using I = int64_t;
  using U = uint64_t;
  using F = double;
};
template <>
struct Types<1> {
  using I = int8_t;
  using U = uint8_t;
};
template <class T>
using MakeSigned = typename Types<sizeof(T)>::I;
template <class T>
using MakeUnsigned = typename Types<sizeof(T)>::U;
namespace HWY_NAMESPACE {
template <class T_>
struct Tag {
  using T = T_;
};
template <class T, size_t N>
using CappedTag = Tag<T>;
template <class D>
using TFromD = typename D::T;
template <class T>
struct V1 {
  T raw;
};
template <class D>
using Vec = V1<TFromD<D>>;
struct M1 {
  bool raw;
  M1() = default;
  ISENTROPIC_BOTH constexpr M1(bool b) : raw(b) {}
};
template <class D>
using Mask = M1;
template <class T, class D>
using Rebind = Tag<T>;
template <class D>
using RebindToSigned = Tag<MakeSigned<TFromD<D>>>;
template <class D>
using RebindToUnsigned = Tag<MakeUnsigned<TFromD<D>>>;
template <class T, class D>
using Repartition = Tag<T>;
template <class D>
using Half = D;
template <class D>
HWY_INLINE constexpr size_t Lanes(D) {
  return 1;
}
template <class D>
HWY_INLINE constexpr size_t MaxLanes(D) {
  return 1;
}
// Integers wrap.
template <class T>
HWY_INLINE T Plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<MakeUnsigned<T>>(a) + static_cast<MakeUnsigned<T>>(b));
  } else {
    return a + b;
  }
}
template <class T>
HWY_INLINE T Minus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<MakeUnsigned<T>>(a) - static_cast<MakeUnsigned<T>>(b));
  } else {
    return a - b;
  }
}

// Operations on each lane of the operands, from an expression; a use ends with a semicolon.
#define ISENTROPIC_UNARY(name, expression) \
  template <class T>                       \
  HWY_INLINE V1<T> name(V1<T> a) {         \
    return {static_cast<T>(expression)};   \
  }                                        \
  static_assert(true, "")
#define ISENTROPIC_BINARY(name, expression) \
  template <class T>                        \
  HWY_INLINE V1<T> name(V1<T> a, V1<T> b) { \
    return {static_cast<T>(expression)};    \
  }                                         \
  static_assert(true, "")
#define ISENTROPIC_COMPARISON(name, sign) \
  template <class T>                      \
  HWY_INLINE M1 name(V1<T> a, V1<T> b) {  \
    return M1(a.raw sign b.raw);          \
  }                                       \
  static_assert(true, "")

ISENTROPIC_UNARY(Neg, -a.raw);
ISENTROPIC_BINARY(Add, Plus(a.raw, b.raw));
ISENTROPIC_BINARY(Sub, Minus(a.raw, b.raw));
ISENTROPIC_BINARY(Mul, a.raw* b.raw);
ISENTROPIC_BINARY(Div, a.raw / b.raw);
ISENTROPIC_BINARY(Xor, a.raw ^ b.raw);
// Returns the second operand if either is NaN, as on x86.
ISENTROPIC_BINARY(Min, a.raw < b.raw ? a.raw : b.raw);
ISENTROPIC_BINARY(Max, a.raw > b.raw ? a.raw : b.raw);
ISENTROPIC_COMPARISON(Lt, <);
ISENTROPIC_COMPARISON(Le, <=);
ISENTROPIC_COMPARISON(Gt, >);
ISENTROPIC_COMPARISON(Ge, >=);
ISENTROPIC_COMPARISON(Eq, ==);
ISENTROPIC_COMPARISON(Ne, !=);

HWY_INLINE float Fma(float a, float b, float c) { return fmaf(a, b, c); }
HWY_INLINE double Fma(double a, double b, double c) { return fma(a, b, c); }
template <class T>
HWY_INLINE V1<T> MulAdd(V1<T> a, V1<T> b, V1<T> c) {
  return {Fma(a.raw, b.raw, c.raw)};
}
template <class T>
HWY_INLINE V1<T> NegMulAdd(V1<T> a, V1<T> b, V1<T> c) {
  return {Fma(-a.raw, b.raw, c.raw)};
}
template <class T>
HWY_INLINE V1<T> MulSub(V1<T> a, V1<T> b, V1<T> c) {
  return {Fma(a.raw, b.raw, -c.raw)};
}
HWY_INLINE float Root(float a) { return sqrtf(a); }
HWY_INLINE double Root(double a) { return sqrt(a); }
template <class T>
HWY_INLINE V1<T> Sqrt(V1<T> a) {
  return {Root(a.raw)};
}
HWY_INLINE M1 And(M1 a, M1 b) { return M1(a.raw && b.raw); }
HWY_INLINE M1 Or(M1 a, M1 b) { return M1(a.raw || b.raw); }
HWY_INLINE M1 Not(M1 a) { return M1(!a.raw); }
HWY_INLINE M1 AndNot(M1 a, M1 b) { return M1(!a.raw && b.raw); }
template <class B, class A>
HWY_INLINE B Bits(A a) {
  B b;
  static_assert(sizeof(A) == sizeof(B));
  memcpy(&b, &a, sizeof(B));
  return b;
}
template <class D, class T>
HWY_INLINE V1<TFromD<D>> BitCast(D, V1<T> a) {
  return {Bits<TFromD<D>>(a.raw)};
}
template <class T>
HWY_INLINE V1<T> And(V1<T> a, V1<T> b) {
  using U = MakeUnsigned<T>;
  return {Bits<T>(static_cast<U>(Bits<U>(a.raw) & Bits<U>(b.raw)))};
}
template <class T>
HWY_INLINE V1<T> Or(V1<T> a, V1<T> b) {
  using U = MakeUnsigned<T>;
  return {Bits<T>(static_cast<U>(Bits<U>(a.raw) | Bits<U>(b.raw)))};
}
template <class T>
HWY_INLINE V1<T> Abs(V1<T> a) {
  return {static_cast<T>(fabs(a.raw))};
}
template <int k, class T>
HWY_INLINE V1<T> ShiftLeft(V1<T> a) {
  using U = MakeUnsigned<T>;
  return {static_cast<T>(static_cast<U>(a.raw) << k)};
}
template <int k, class T>
HWY_INLINE V1<T> ShiftRight(V1<T> a) {
  return {static_cast<T>(a.raw >> k)};
}
template <class D, class T>
HWY_INLINE Vec<D> Set(D, T v) {
  return {static_cast<TFromD<D>>(v)};
}
template <class D>
HWY_INLINE Vec<D> Zero(D) {
  return {TFromD<D>(0)};
}
template <class D>
HWY_INLINE Vec<D> Iota(D, TFromD<D> v) {
  return {v};
}
template <class D>
HWY_INLINE Vec<D> Iota(D, size_t v) requires(!std::is_same_v<TFromD<D>, size_t>) {
  return {static_cast<TFromD<D>>(v)};
}
template <class T>
HWY_INLINE T GetLane(V1<T> a) {
  return a.raw;
}
template <class T>
HWY_INLINE M1 IsNaN(V1<T> a) {
  return M1(a.raw != a.raw);
}
template <class T>
HWY_INLINE M1 IsFinite(V1<T> a) {
  return M1(a.raw - a.raw == T(0));
}
template <class T>
HWY_INLINE V1<T> IfThenElse(M1 m, V1<T> a, V1<T> b) {
  return m.raw ? a : b;
}
template <class T>
HWY_INLINE V1<T> IfThenElseZero(M1 m, V1<T> a) {
  return {m.raw ? a.raw : T(0)};
}
template <class T>
HWY_INLINE V1<T> IfThenZeroElse(M1 m, V1<T> a) {
  return {m.raw ? T(0) : a.raw};
}
template <class D, class M>
HWY_INLINE M1 RebindMask(D, M m) {
  return m;
}
template <class D>
HWY_INLINE Vec<D> LoadU(D, const TFromD<D>* p) {
  return {*p};
}
template <class D>
HWY_INLINE Vec<D> Load(D, const TFromD<D>* p) {
  return {*p};
}
template <class D>
HWY_INLINE void StoreU(Vec<D> v, D, TFromD<D>* p) {
  *p = v.raw;
}
template <class D>
HWY_INLINE void Store(Vec<D> v, D, TFromD<D>* p) {
  *p = v.raw;
}
template <class D>
HWY_INLINE void Stream(Vec<D> v, D, TFromD<D>* p) {
  *p = v.raw;
}
template <class D, class T>
HWY_INLINE Vec<D> PromoteTo(D, V1<T> a) {
  return {static_cast<TFromD<D>>(a.raw)};
}
template <class D, class T>
HWY_INLINE Vec<D> DemoteTo(D, V1<T> a) {
  return {static_cast<TFromD<D>>(a.raw)};
}
template <class D>
HWY_INLINE M1 FirstN(D, size_t n) {
  return M1(n > 0);
}
template <class T>
HWY_INLINE V1<T> Compress(V1<T> a, M1) {
  return a;
}
template <class D>
HWY_INLINE size_t CountTrue(D, M1 m) {
  return m.raw;
}
template <class D>
HWY_INLINE bool AllTrue(D, M1 m) {
  return m.raw;
}
template <class D>
HWY_INLINE bool AllFalse(D, M1 m) {
  return !m.raw;
}
#undef ISENTROPIC_UNARY
#undef ISENTROPIC_BINARY
#undef ISENTROPIC_COMPARISON
}  // namespace HWY_NAMESPACE
}  // namespace hwy

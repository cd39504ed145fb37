// The searches for a SIMD target, and the arithmetic of their types: double, float, and vectors with a row in each lane.

#if defined(ISENTROPIC_SEARCH_SEARCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SEARCH_SEARCH_INL_H_
#undef ISENTROPIC_SEARCH_SEARCH_INL_H_
#else
#define ISENTROPIC_SEARCH_SEARCH_INL_H_
#endif

#include <cfloat>
#include <cmath>

#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Fused if vectors have a fused operation, so that a number gives the same results as a lane.
HWY_INLINE double MulAdd(double a, double b, double c) {
#if HWY_NATIVE_FMA
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}
HWY_INLINE double NegMulAdd(double a, double b, double c) { return MulAdd(-a, b, c); }
HWY_INLINE double MulSub(double a, double b, double c) { return MulAdd(a, b, -c); }
// Returns the second operand if either is NaN, like the instructions.
HWY_INLINE double Min(double a, double b) { return a < b ? a : b; }
HWY_INLINE double Max(double a, double b) { return a > b ? a : b; }
HWY_INLINE double Abs(double a) { return std::abs(a); }
HWY_INLINE float Abs(float a) { return std::abs(a); }
HWY_INLINE double Sqrt(double a) { return std::sqrt(a); }
HWY_INLINE double Log(double a) { return LogNumber(a); }
HWY_INLINE float Sqrt(float a) { return std::sqrt(a); }
HWY_INLINE double Select(bool chosen, double a, double b) { return chosen ? a : b; }
HWY_INLINE float Select(bool chosen, float a, float b) { return chosen ? a : b; }
HWY_INLINE bool All(bool chosen) { return chosen; }

// A vector as a number.
template <class D>
class Lanes {
 public:
  class Mask {
   public:
    Mask() = default;
    HWY_INLINE Mask(hn::Mask<D> m) : m_(m) {}
    friend HWY_INLINE Mask operator&(Mask a, Mask b) { return hn::And(a.m_, b.m_); }
    friend HWY_INLINE Mask operator|(Mask a, Mask b) { return hn::Or(a.m_, b.m_); }
    friend HWY_INLINE Mask operator!(Mask a) { return hn::Not(a.m_); }
    friend HWY_INLINE bool All(Mask a) { return hn::AllTrue(D(), a.m_); }
    friend HWY_INLINE bool AllFalse(Mask a) { return hn::AllFalse(D(), a.m_); }
    friend HWY_INLINE Lanes Select(Mask chosen, Lanes a, Lanes b) { return hn::IfThenElse(chosen.m_, a.v, b.v); }

   private:
    hn::Mask<D> m_;
  };

  Lanes() = default;
  HWY_INLINE Lanes(hn::Vec<D> x) : v(x) {}
  HWY_INLINE Lanes(hn::TFromD<D> x) : v(hn::Set(D(), x)) {}
  friend HWY_INLINE Lanes operator+(Lanes a, Lanes b) { return hn::Add(a.v, b.v); }
  friend HWY_INLINE Lanes operator-(Lanes a, Lanes b) { return hn::Sub(a.v, b.v); }
  friend HWY_INLINE Lanes operator*(Lanes a, Lanes b) { return hn::Mul(a.v, b.v); }
  friend HWY_INLINE Lanes operator/(Lanes a, Lanes b) { return hn::Div(a.v, b.v); }
  friend HWY_INLINE Lanes operator-(Lanes a) { return hn::Neg(a.v); }
  friend HWY_INLINE Mask operator<(Lanes a, Lanes b) { return hn::Lt(a.v, b.v); }
  friend HWY_INLINE Mask operator>(Lanes a, Lanes b) { return hn::Gt(a.v, b.v); }
  friend HWY_INLINE Mask operator<=(Lanes a, Lanes b) { return hn::Le(a.v, b.v); }
  friend HWY_INLINE Mask operator>=(Lanes a, Lanes b) { return hn::Ge(a.v, b.v); }
  friend HWY_INLINE Mask operator==(Lanes a, Lanes b) { return hn::Eq(a.v, b.v); }
  friend HWY_INLINE Lanes MulAdd(Lanes a, Lanes b, Lanes c) { return hn::MulAdd(a.v, b.v, c.v); }
  friend HWY_INLINE Lanes NegMulAdd(Lanes a, Lanes b, Lanes c) { return hn::NegMulAdd(a.v, b.v, c.v); }
  friend HWY_INLINE Lanes MulSub(Lanes a, Lanes b, Lanes c) { return hn::MulSub(a.v, b.v, c.v); }
  friend HWY_INLINE Lanes Min(Lanes a, Lanes b) { return hn::Min(a.v, b.v); }
  friend HWY_INLINE Lanes Max(Lanes a, Lanes b) { return hn::Max(a.v, b.v); }
  friend HWY_INLINE Lanes Abs(Lanes a) { return hn::Abs(a.v); }
  friend HWY_INLINE Lanes Sqrt(Lanes a) { return hn::Sqrt(a.v); }
  friend HWY_INLINE Lanes Log(Lanes a) { return HWY_NAMESPACE::Log(D(), a.v); }

  hn::Vec<D> v;
};

#define ISENTROPIC_SEARCH HWY_INLINE
#include "src/search/gamma.inc"
#include "src/search/threshold.inc"
#undef ISENTROPIC_SEARCH

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SEARCH_SEARCH_INL_H_

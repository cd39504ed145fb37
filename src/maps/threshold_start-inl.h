// The sums that the search for a sparse map's threshold needs, and a start value from a part of the row.

#if defined(ISENTROPIC_MAPS_THRESHOLD_START_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_THRESHOLD_START_INL_H_
#undef ISENTROPIC_MAPS_THRESHOLD_START_INL_H_
#else
#define ISENTROPIC_MAPS_THRESHOLD_START_INL_H_
#endif

#include "src/maps/scores-inl.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/few-inl.h"
#include "src/rows/filter-inl.h"
#include "src/rows/threshold-inl.h"
#include "src/rows/unit_power-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// q^(1/b) for q > 0, otherwise 0. It rises because Log and ExpScaled do. b = 1/2 and b = 1 need neither.
template <class D>
class RootOf {
 public:
  HWY_INLINE RootOf(D d, double b)
      : exp_(d, b), exp_slope_(d, b < 1 ? b / (1 - b) : 1), b_(hn::Set(d, static_cast<hn::TFromD<D>>(b))) {}
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> q) const {
    return hn::IfThenZeroElse(hn::Le(q, hn::Zero(d)), exp_(d, Log(d, q)));
  }
  // The q of a root.
  HWY_INLINE hn::Vec<D> Inverse(D d, hn::Vec<D> root) const {
    return hn::IfThenZeroElse(hn::Le(root, hn::Zero(d)), Exp(d, hn::Mul(b_, Log(d, root))));
  }
  // q^(1/b), equal up to rounding, and q^(1/b - 1), for b < 1.
  HWY_INLINE void WithDerivative(D d, hn::Vec<D> q, hn::Vec<D>* terms) const {
    const auto out = hn::Le(q, hn::Zero(d));
    terms[1] = hn::IfThenZeroElse(out, exp_slope_(d, Log(d, q)));
    terms[0] = hn::IfThenZeroElse(out, hn::Mul(terms[1], q));
  }

 private:
  ExpScaled<D> exp_, exp_slope_;
  hn::Vec<D> b_;
};

// RootOf for q up to 1 and 1/5 <= b < 1, in float32 with less than half of its operations. Powers of q < 2^-49 are 0.
template <class D>
class UnitRootOf {
 public:
  HWY_INLINE UnitRootOf(D d, double b) : power_(1 / b - 1), least_(hn::Set(d, UnitPower::kLeast)) {}
  HWY_INLINE void WithDerivative(D /*d*/, hn::Vec<D> q, hn::Vec<D>* terms) const {
    q = MaxKeepNaN(least_, q);
    terms[1] = power_(q);
    terms[0] = hn::Mul(terms[1], q);
  }

 private:
  UnitPower power_;
  hn::Vec<D> least_;
};
template <>
class UnitRootOf<D64> : public RootOf<D64> {
 public:
  HWY_INLINE UnitRootOf(D64 d, double b) : RootOf<D64>(d, b) {}
};

template <class D>
class Square {
 public:
  HWY_INLINE Square(D /*d*/, double /*b*/) {}
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> q) const {
    q = MaxKeepNaN(hn::Zero(d), q);
    return hn::Mul(q, q);
  }
  HWY_INLINE void WithDerivative(D d, hn::Vec<D> q, hn::Vec<D>* terms) const {
    terms[1] = MaxKeepNaN(hn::Zero(d), q);
    terms[0] = hn::Mul(terms[1], terms[1]);
  }
};

// b = 1/2, 1/4, ... 1/16, by squaring.
template <class D>
class RepeatedSquare {
 public:
  HWY_INLINE RepeatedSquare(D /*d*/, double b) : exponent_(static_cast<int>(1 / b)) {}
  HWY_INLINE void WithDerivative(D d, hn::Vec<D> q, hn::Vec<D>* terms) const {
    terms[0] = terms[1] = MaxKeepNaN(hn::Zero(d), q);
    for (int power = 2;; power *= 2) {
      terms[0] = hn::Mul(terms[0], terms[0]);
      if (power == exponent_) break;
      terms[1] = hn::Mul(terms[1], terms[0]);
    }
  }

 private:
  int exponent_;
};

template <class D>
class Linear {
 public:
  HWY_INLINE Linear(D /*d*/, double /*b*/) {}
  HWY_INLINE void WithDerivative(D d, hn::Vec<D> q, hn::Vec<D>* terms) const {
    terms[0] = MaxKeepNaN(hn::Zero(d), q);
    terms[1] = hn::IfThenElseZero(hn::Gt(q, hn::Zero(d)), hn::Set(d, hn::TFromD<D>(1)));
  }
};

// As Sums, where terms[0] are masses, whose sum is 1 at the root. In float64 each is cut at 2^-30: the upper parts have an
// exact sum, the lower ones, of at most 2^-31, a small one. Otherwise each of many small masses might be rounded where it meets
// a sum near 1. For float32 the sums are float64 already.
template <bool kQuick = false, size_t K, class D, class Visit, class T = hn::TFromD<D>>
HWY_INLINE void MassSums(D d, size_t n, double (&sums)[K], const Visit& visit) {
  if constexpr (sizeof(T) == 4) {
    return kQuick ? QuickSums(d, n, sums, visit) : Sums(d, n, sums, visit);
  } else {
    double parts[K + 1];
    const auto cut = hn::Set(d, T(0x1.8p22));
    const auto in_parts = [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
      visit(i, count, terms);
      terms[K] = hn::Sub(hn::Add(terms[0], cut), cut);
      terms[0] = hn::Sub(terms[0], terms[K]);
    };
    kQuick ? QuickSums(d, n, parts, in_parts) : Sums(d, n, parts, in_parts);
    for (size_t k = 0; k < K; ++k) sums[k] = parts[k];
    sums[0] += parts[K];
  }
}

// The step by which c falls for 64 numbers u, which load(i) gives.
template <template <class> class Root, class D, class Load, class T = hn::TFromD<D>>
HWY_INLINE T StepOf64(D d, double b, T c, const Load& load) {
  const Root<D> root(d, b);
  const auto at = hn::Set(d, c);
  T sums[2];
  PowerSumsOf<64>(
      d, [&](size_t i, hn::Vec<D>* terms) HWY_ATTR { root.WithDerivative(d, hn::Add(load(i), at), terms); }, sums);
  return BoundNorm::Step(b, sums[0], sums[1]);
}

// LeastThreshold from the maxima of the 64 parts.
template <class D, class Load, class T = hn::TFromD<D>>
HWY_INLINE T LeastThresholdOf64(D d, double b, const Load& load) {
  T c = 1;
  for (int i = 0; i < 2; ++i) {
    if (b == 1) {
      c -= StepOf64<Linear>(d, 1, c, load);
    } else {
      c -= StepOf64<RepeatedSquare>(d, b >= 0.5 ? 0.5 : b >= 0.25 ? 0.25 : b >= 0.125 ? 0.125 : 0.0625, c, load);
    }
  }
  return -HWY_MIN(c * T(1 + 0x1p-12), T(1));
}

// A lower bound of -c, at least -1. The sum over a part of the row is less than the sum over all, so the c that makes it 1 is
// larger. The part consists of the maxima of 64 parts, which hold most of the mass if that is in few scores. c is raised by
// more than the rounding error of their sums. For 1/16 <= b <= 1; between powers of 2 the next lower one is used, because for
// terms c + u <= 1 a higher power is less.
template <class D, class Relative, class T = hn::TFromD<D>>
HWY_INLINE T LeastThreshold(D d, double b, const Relative& relative, const T* x, size_t n) {
  if (n < 256) return T(-1);
  HWY_ALIGN T u[64];
  PartMaxima(d, x, n, relative, u);
  return LeastThresholdOf64(d, b, [&](size_t i) HWY_ATTR { return hn::LoadU(d, u + i); });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_THRESHOLD_START_INL_H_

// taylor_softmax of one row.

#if defined(ISENTROPIC_MAPS_TAYLOR_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_TAYLOR_SOFTMAX_INL_H_
#undef ISENTROPIC_MAPS_TAYLOR_SOFTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_TAYLOR_SOFTMAX_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct KernelsOf<TaylorSoftmax, T> {
  static constexpr ScoreParams<TaylorSoftmax> kScores = {};
  static void MapRow(const TaylorSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const TaylorSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<TaylorSoftmax>* slopes, Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  static size_t Memory(size_t n) { return Arena::room<double>(n); }
  using Short = NotOffered;
  using Several = NotOffered;
};

// f(x) = sum_{m <= order} x^m / m!, and f' the same without the last term, divided by one power of two that keeps every term
// of the row finite: with |x| <= s = 2^e, f(x) / s^order = sum c_m y^m, y = x/s, c_m = s^(m - order) / m!.
//
// For x < 0 the terms alternate and may cancel, from exp(|x|) down to exp(-|x|). So Horner's scheme also sums the rounding
// errors of its steps (Graillat, Langlois, Louvet 2009); the result is as if it were computed in twice float64's precision and
// then rounded.
class TaylorPolynomial {
 public:
  using D = D64;
  using V = hn::Vec<D>;

  HWY_INLINE TaylorPolynomial(int order, double largest) : order_(order) {
    // Below 2^8 no x^order of order <= 64 overflows.
    int e = 0;
    if (largest > 256) std::frexp(largest, &e);
    scale_ = std::ldexp(1.0, -e);
    // 1/m! as the sum of two numbers, each quotient with its remainder: m! itself is not a float64 from m = 23 on.
    double inverse = 1, rest = 0;
    for (int m = 0; m <= order; ++m) {
      if (m > 1) {
        const double divisor = m, quotient = inverse / divisor;
        const double part = (std::fma(-quotient, divisor, inverse) + rest) / divisor;
        inverse = quotient + part;
        rest = part - (inverse - quotient);
      }
      coefficient_[m] = std::ldexp(inverse, e * (m - order));
      rest_[m] = std::ldexp(rest, e * (m - order));
    }
  }

  HWY_INLINE V operator()(V x) const { return Evaluate(x, coefficient_[order_], rest_[order_]); }
  // f'(x), which is f without its term of the highest order.
  HWY_INLINE V Derivative(V x) const { return Evaluate(x, 0, 0); }

 private:
  HWY_INLINE V Evaluate(V x, double first, double first_rest) const {
    const D d;
    const V y = hn::Mul(x, hn::Set(d, scale_));
    V sum = hn::Set(d, first), error = hn::Set(d, first_rest);
    for (int m = order_ - 1; m >= 0; --m) {
      const V c = hn::Set(d, coefficient_[m]);
      const V product = hn::Mul(sum, y);
      const V product_error = hn::MulSub(sum, y, product);
      const V next = hn::Add(product, c);
      // The exact rounding error of the addition, whichever operand is larger (Knuth).
      const V c_part = hn::Sub(next, product);
      const V sum_error = hn::Add(hn::Sub(product, hn::Sub(next, c_part)), hn::Sub(c, c_part));
      error = hn::MulAdd(error, y, hn::Add(hn::Add(product_error, sum_error), hn::Set(d, rest_[m])));
      sum = next;
    }
    return hn::Add(sum, error);
  }

  int order_;
  double scale_;
  double coefficient_[65], rest_[65];
};

// The largest |x| among finite scores.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double LargestMagnitude(D d, const T* x, size_t n) {
  auto largest = hn::Zero(d);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = hn::Abs(LoadUpTo(d, x + i, count, T(0)));
    largest = hn::Max(hn::IfThenZeroElse(hn::Eq(xi, hn::Set(d, kInfinity<T>)), xi), largest);
  });
  return MaxLane(d, largest);
}

template <class T>
HWY_INLINE void KernelsOf<TaylorSoftmax, T>::MapRow(const TaylorSoftmax& op, const T* x, size_t n, T /*max*/, T* p,
                                                    Workspace workspace) {
  const RowTag<T> d;
  const D64 d64;
  const TaylorPolynomial f(static_cast<int>(op.order), LargestMagnitude(d, x, n));
  const auto absent = hn::Set(d64, -kInfinity<double>);
  double* const values = workspace.memory.take<double>(n);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadWide(d64, x + i, count, T(0));
    const auto v = hn::IfThenZeroElse(hn::Eq(xi, absent), f(xi));
    StoreUpTo(v, d64, count, values + i);
  });
  const double sum = SumRow(d64, values, n);
  if (sum != sum) return FillRow(d, kNaN<T>, n, p);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreNarrow(hn::Div(LoadUpTo(d64, values + i, count, 0.0), hn::Set(d64, sum)), d64, count, p + i);
  });
}

template <class T>
HWY_INLINE void KernelsOf<TaylorSoftmax, T>::VjpRow(const TaylorSoftmax& op, const T* x, const T* p, const T* g, size_t n,
                                                    T* dx, ParamValues<TaylorSoftmax>* /*slopes*/, Workspace workspace) {
  const RowTag<T> d;
  const D64 d64;
  const TaylorPolynomial f(static_cast<int>(op.order), LargestMagnitude(d, x, n));
  const double mean = DotWithDistribution(d, p, g, n);
  double* const slopes = workspace.memory.take<double>(n);
  ForEachVector(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto xi = LoadWide(d64, x + i, count, T(0));
    StoreUpTo(hn::Div(f.Derivative(xi), f(xi)), d64, count, slopes + i);
  });
  ForEachVector(d64, n, [&](size_t begin, size_t count) HWY_ATTR {
    for (size_t i = begin; i < begin + count; ++i) {
      const double v = slopes[i] * (static_cast<double>(p[i]) * (static_cast<double>(g[i]) - mean));
      dx[i] = p[i] == T(0) ? T(0) : static_cast<T>(v);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_TAYLOR_SOFTMAX_INL_H_

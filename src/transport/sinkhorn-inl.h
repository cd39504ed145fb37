// One row of Sinkhorn's iteration: one exponential for each entry is used in its row's sum and in its column's.

#if defined(ISENTROPIC_TRANSPORT_SINKHORN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_TRANSPORT_SINKHORN_INL_H_
#undef ISENTROPIC_TRANSPORT_SINKHORN_INL_H_
#else
#define ISENTROPIC_TRANSPORT_SINKHORN_INL_H_
#endif

#include "src/rows/exp_log-inl.h"
#include "src/rows/loop-inl.h"
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
double Exponentials(const T* c, const double* p, size_t m, double epsilon, double* exponentials, double* sum) {
  const D64 d;
  const auto lowest = hn::Set(d, -kInfinity<double>);
  auto m0 = lowest, m1 = lowest;
  const auto difference = [&](size_t j, size_t count) HWY_ATTR {
    return hn::Sub(LoadUpTo(d, p + j, count, -kInfinity<double>), LoadWide(d, c + j, count, T(0)));
  };
  bool odd = false;
  QuickForEachVector(d, m, [&](size_t j, size_t count) HWY_ATTR {
    auto& largest = odd ? m1 : m0;
    odd = !odd;
    largest = hn::Max(largest, difference(j, count));
  });
  const double max = MaxLane(d, hn::Max(m0, m1));
  const ExpScaled<D64> exp(d, epsilon);
  const auto top = hn::Set(d, max);
  *sum = Sum(d, m, [&](size_t j, size_t count) HWY_ATTR {
    const auto e = exp(d, hn::Sub(difference(j, count), top));
    StoreUpTo(e, d, count, exponentials + j);
    return e;
  });
  return max;
}

inline void Accumulate(const double* from, double factor, size_t m, double* to) {
  const D64 d;
  const auto f = hn::Set(d, factor);
  QuickForEachVector(d, m, [&](size_t j, size_t count) HWY_ATTR {
    StoreUpTo(hn::MulAdd(f, LoadUpTo(d, from + j, count, 0.0), LoadUpTo(d, to + j, count, 0.0)), d, count, to + j);
  });
}

// A number of `v` or `to` serves four rows: these are passes over memory near the processor.
inline void FourProducts(const double* rows, const double* v, size_t m, double* products) {
  const D64 d;
  double sums[4];
  QuickSums(d, m, sums, [&](size_t j, size_t count, hn::Vec<D64>* terms) HWY_ATTR {
    const auto vj = LoadUpTo(d, v + j, count, 0.0);
    for (size_t r = 0; r < 4; ++r) terms[r] = hn::Mul(vj, LoadUpTo(d, rows + r * m + j, count, 0.0));
  });
  for (size_t r = 0; r < 4; ++r) products[r] = sums[r];
}

inline void AccumulateFour(const double* rows, const double* factors, size_t m, double* to) {
  const D64 d;
  const auto a = hn::Set(d, factors[0]), b = hn::Set(d, factors[1]), c = hn::Set(d, factors[2]), e = hn::Set(d, factors[3]);
  QuickForEachVector(d, m, [&](size_t j, size_t count) HWY_ATTR {
    auto sum = hn::MulAdd(a, LoadUpTo(d, rows + j, count, 0.0), LoadUpTo(d, to + j, count, 0.0));
    sum = hn::MulAdd(b, LoadUpTo(d, rows + m + j, count, 0.0), sum);
    sum = hn::MulAdd(c, LoadUpTo(d, rows + 2 * m + j, count, 0.0), sum);
    StoreUpTo(hn::MulAdd(e, LoadUpTo(d, rows + 3 * m + j, count, 0.0), sum), d, count, to + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_TRANSPORT_SINKHORN_INL_H_

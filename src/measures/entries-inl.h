// Measures of each entry by itself.

#if defined(ISENTROPIC_MEASURES_ENTRIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_ENTRIES_INL_H_
#undef ISENTROPIC_MEASURES_ENTRIES_INL_H_
#else
#define ISENTROPIC_MEASURES_ENTRIES_INL_H_
#endif

#include <algorithm>

#include "src/measures/gradient-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void EntryRow(const SelfInformation& op, const T* x, size_t n, double sum, double unit, T* value, T* dp, Arena memory) {
  const D64 d;
  const V64 scale = hn::Set(d, unit);
  if (op.input == Input::scores || op.normalize) {
    double *const p = memory.take<double>(n), *const z = memory.take<double>(n);
    const Distribution row = DistributionOf(op.input, op.normalize, x, n, sum, Logs::inaccurate, p, z);
    if (!row.exists) return std::fill(value, value + n, kNaN<T>);
    ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
      StoreNarrow(hn::Div(hn::Sub(hn::Zero(d), row.LogP(d, i, count)), scale), d, count, value + i);
    });
    return;
  }
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 xi = LoadWide(d, x + i, count, T(0));
    const bool probs = op.input == Input::probs;
    const V64 nats = hn::Sub(hn::Zero(d), probs ? Log(d, xi) : xi);
    const V64 slope = probs ? hn::Div(hn::Set(d, -1.0), hn::Abs(xi)) : hn::Set(d, -1.0);
    StoreNarrow(hn::Div(nats, scale), d, count, value + i);
    if (dp != nullptr) StoreNarrow(hn::Div(slope, scale), d, count, dp + i);
  });
}

// log((1 - p) / p). Near 1/2 it uses (1 - 2 p) / p, whose numerator is exact there.
HWY_INLINE V64 LogOdds(D64 d, V64 p) {
  const V64 one = hn::Set(d, 1.0);
  const V64 near = Log1p(d, hn::Div(hn::Sub(hn::Sub(one, p), p), p));
  const auto middle = hn::Le(hn::Abs(hn::Sub(p, hn::Set(d, 0.5))), hn::Set(d, 0.25));
  return hn::IfThenElse(middle, near, hn::Sub(Log(d, hn::Sub(one, p)), Log(d, p)));
}

template <class T>
void EntryRow(const BinaryEntropy& op, const T* x, size_t n, double, double unit, T* value, T* dp, Arena /*memory*/) {
  const D64 d;
  const V64 scale = hn::Set(d, unit), one = hn::Set(d, 1.0), zero = hn::Zero(d);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 xi = LoadWide(d, x + i, count, T(0));
    V64 nats, slope;
    if (op.input == Input::scores) {
      // p and 1 - p are e / (1 + e) and 1 / (1 + e) in some order, e = exp(-|x|).
      const V64 size = hn::Abs(xi), e = Exp(d, hn::Neg(size)), less = hn::Div(e, hn::Add(one, e));
      const V64 part = ZeroWhere(hn::Eq(e, zero), hn::Mul(size, less));
      nats = hn::Add(Log1p(d, e), part);
      slope = hn::Neg(ZeroWhere(hn::Eq(e, zero), hn::Mul(hn::Mul(xi, less), hn::Div(one, hn::Add(one, e)))));
    } else {
      const bool logs = op.input == Input::log_probs;
      const V64 p = logs ? Exp(d, xi) : xi;
      const V64 log_p = logs ? xi : Log(d, p);
      const V64 rest = logs ? hn::Sub(zero, Expm1(d, xi, p)) : hn::Sub(one, p);
      // log(1 - p). For small p it is calculated from p itself.
      const V64 log_rest =
          hn::IfThenElse(hn::Lt(p, hn::Set(d, 0.5)), Log1p(d, hn::Neg(hn::Min(p, hn::Set(d, 0.5)))), Log(d, rest));
      nats = hn::Sub(
          zero, hn::Add(ZeroWhere(hn::Eq(p, zero), hn::Mul(p, log_p)), ZeroWhere(hn::Eq(rest, zero), hn::Mul(rest, log_rest))));
      slope = logs ? ZeroWhere(hn::Eq(p, zero), hn::Mul(p, hn::Sub(log_rest, log_p))) : LogOdds(d, p);
    }
    StoreNarrow(hn::Div(nats, scale), d, count, value + i);
    if (dp != nullptr) StoreNarrow(hn::Div(slope, scale), d, count, dp + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_ENTRIES_INL_H_

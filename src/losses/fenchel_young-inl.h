// Losses from a map's result p: those of sparsemax and entmax, of softmax after truncation, and the surrogate.
//
// With phi(t) = (t^alpha - t) / (alpha b), b = alpha - 1, and z = x - max, entmax's p has p^b = c + b z where it is not 0, and
// c = (max p)^b. Its loss is then a sum of non-negative terms,
//   phi(q) - phi(p) - phi'(p) (q - p)     over all entries, and
//   q (-c/b - z)                          over those with p = 0, which lie that far below the threshold,
// so that no small loss is a difference of large numbers. For b = 0 it is KL's sum q log(q/p) - q + p.

#if defined(ISENTROPIC_LOSSES_FENCHEL_YOUNG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_LOSSES_FENCHEL_YOUNG_INL_H_
#undef ISENTROPIC_LOSSES_FENCHEL_YOUNG_INL_H_
#else
#define ISENTROPIC_LOSSES_FENCHEL_YOUNG_INL_H_
#endif

#include "src/losses/mapped.h"
#include "src/losses/softmax-inl.h"
#include "src/rows/expm1-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// (y e^y - e^y + 1) / y^2 from y and e^y, which is e^y phi_2(-y).
HWY_INLINE V64 PhiSlope(D64 d, V64 y, V64 exp_y) {
  const V64 closed = hn::Div(hn::Add(hn::MulSub(y, exp_y, exp_y), hn::Set(d, 1.0)), hn::Mul(y, y));
  return hn::IfThenElse(IsNearZero(d, y), hn::Mul(exp_y, Phi2NearZero(d, hn::Neg(y))), closed);
}

// (t^b - 1) / b, the logarithm at b = 0, from log t.
HWY_INLINE V64 TsallisLog(D64 d, double b, V64 log_t) {
  const V64 y = hn::Mul(log_t, hn::Set(d, b));
  return hn::Mul(log_t, Phi1(d, y, Exp(d, y)));
}
HWY_INLINE double TsallisLogNumber(double b, double log_t) { return hn::GetLane(TsallisLog(D64(), b, hn::Set(D64(), log_t))); }

// p^alpha, 0 where p is 0.
template <class D>
HWY_INLINE hn::Vec<D> PowerOf(D d, double alpha, hn::Vec<D> p) {
  if (alpha == 1) return p;
  if (alpha == 2) return hn::Mul(p, p);
  const auto out = hn::Eq(p, hn::Zero(d));
  if (hn::AllTrue(d, out)) return p;
  if (alpha == 1.5) return hn::Mul(p, hn::Sqrt(p));
  return hn::IfThenZeroElse(out, Exp(d, hn::Mul(hn::Set(d, static_cast<hn::TFromD<D>>(alpha)), Log(d, p))));
}

// entmax's loss against the class t, from p. p becomes the gradient, with -(sum of the others) at t.
//
// The target's term is an integral over w = 1 - p_t: int_0^w s (1 - s)^(b - 1) ds, by its series if w is small.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double EntmaxClassRow(D d, double alpha, const T* x, size_t n, T max, size_t t, T* p) {
  const double b = alpha - 1, z = static_cast<double>(x[t]) - static_cast<double>(max);
  const T own = p[t];
  SetEntry(p, t, T(0));
  auto top = hn::Set(d, own);
  double sums[2];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    terms[0] = LoadUpTo(d, p + i, count, T(0));
    terms[1] = PowerOf(d, alpha, terms[0]);
    top = hn::Max(top, terms[0]);
  });
  const double most = static_cast<double>(MaxLane(d, top));
  const double w = sums[0];
  SetEntry(p, t, x[t] == -kInfinity<T> ? T(0) : static_cast<T>(-w));
  if (z == -kInfinity<double>) return kInfinity<double>;  // also if the difference overflows
  double target;
  if (w * std::max(1.0, std::abs(b)) < 0.25) {
    double term = 1, sum = 0.5;
    for (int k = 1; k < 40; ++k) {
      term *= (k - b) / k * w;
      sum += term / (k + 2);
    }
    return sums[1] / alpha + w * w * sum;
  }
  const double log_most = LogNumber(most), lead = -TsallisLogNumber(b, log_most);  // (1 - c) / b
  const double power = (1 - b * lead) + b * z;                                     // p_t^b, or the distance below the threshold
  if (b > 0 && power <= 0) {
    target = 1 / (alpha * b) - power / b;
  } else {
    target = ((lead - z) - power * w) / alpha;
  }
  return sums[1] / alpha + std::max(target, 0.0);
}

// entmax's loss against probabilities q, from p. For q near p, t = (q - p)/p, the term is p^alpha (t^2/2 + ...), by its series.
// z = x - max and all terms go by halves: a whole z may overflow although its share of the loss does not.
template <class T>
HWY_INLINE double EntmaxDistributionRow(double alpha, const T* x, size_t n, T max, const T* q, const T* p) {
  const D64 d;
  const double b = alpha - 1;
  const double log_most = LogNumber(static_cast<double>(RowMax(RowTag<T>(), p, n)));
  const double lead = -TsallisLogNumber(b, log_most);
  const V64 zero = hn::Zero(d), one = hn::Set(d, 1.0), half = hn::Set(d, 0.5);
  const V64 half_shift = hn::Set(d, 0.5 * static_cast<double>(max));
  const V64 vb = hn::Set(d, b), c = hn::Set(d, 1 - b * lead), va = hn::Set(d, alpha);
  const V64 inverse_alpha = hn::Set(d, 1 / alpha), near = hn::Set(d, 0.25 / std::max(1.0, std::abs(alpha - 2)));
  return 2 * Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
           const V64 xi = LoadWide(d, x + i, count, -kInfinity<T>), pi = LoadWide(d, p + i, count, T(0));
           const V64 qi = LoadWide(d, q + i, count, T(0));
           const auto no_target = hn::Eq(qi, zero), no_mass = hn::Eq(pi, zero);
           if (hn::AllTrue(d, hn::And(no_target, no_mass))) return zero;
           const V64 p_safe = hn::IfThenElse(no_mass, one, pi), q_safe = hn::IfThenElse(no_target, one, qi);
           const auto absent = hn::Eq(xi, hn::Set(d, -kInfinity<double>));
           const V64 z = hn::IfThenZeroElse(absent, hn::MulSub(xi, half, half_shift));  // half of it
           const V64 p_power = hn::IfThenZeroElse(no_mass, Exp(d, hn::Mul(va, Log(d, p_safe))));

           const V64 above = hn::MulAdd(hn::Add(vb, vb), z, c);  // p^b
           const V64 log_q = Log(d, q_safe), y = hn::Mul(log_q, vb), q_to_b = Exp(d, y);
           const V64 log_b = hn::Mul(log_q, Phi1(d, y, q_to_b));
           const auto inside = hn::Gt(above, zero);
           // (q^b - p^b) / b
           const V64 difference = hn::IfThenElse(inside, hn::MulAdd(half, log_b, hn::Sub(hn::Set(d, 0.5 * lead), z)),
                                                 b == 0 ? zero : hn::Mul(half, hn::Div(q_to_b, vb)));
           const V64 p_to_b = hn::Mul(half, hn::Max(above, zero));
           V64 term = hn::Mul(inverse_alpha, hn::Sub(hn::Mul(qi, difference), hn::Mul(p_to_b, hn::Sub(qi, pi))));
           if (b > 0)
             term = hn::IfThenElse(inside, term, hn::NegMulAdd(qi, hn::Add(z, hn::Set(d, 0.5 * (1 / b - lead))), term));
           term = hn::IfThenElse(no_target, hn::Mul(hn::Mul(half, inverse_alpha), p_power), hn::Max(term, zero));
           term = hn::IfThenElse(hn::AndNot(no_target, absent), hn::Set(d, kInfinity<double>), term);

           const V64 t = hn::Div(hn::Sub(qi, p_safe), p_safe);
           const auto is_near = hn::AndNot(no_mass, hn::Le(hn::Abs(t), near));
           if (!hn::AllFalse(d, is_near)) {
             // sum_k C(alpha, k) t^k / (alpha b) from k = 2 on, over t^2/2.
             // The factor from one term to the next is (alpha - k)/(k + 1) t.
             V64 series = one;
             for (int k = 28; k >= 2; --k) {
               series = hn::MulAdd(series, hn::Mul(t, hn::Set(d, (alpha - k) / (k + 1))), one);
             }
             const V64 half_value = hn::Mul(p_power, hn::Mul(hn::Mul(hn::Set(d, 0.25), hn::Mul(t, t)), series));
             term = hn::IfThenElse(is_near, half_value, term);
           }
           return term;
         });
}

// d H(p) / d alpha of Tsallis' entropy at a fixed p: with L = log p it is sum p L (e^y - 1)/(y alpha^2) - p L^2 (y e^y - e^y +
// 1)/(y^2 alpha), y = b L, in which nothing cancels.
template <class T>
HWY_INLINE double EntropySlope(double alpha, const T* p, size_t n) {
  const D64 d;
  const V64 zero = hn::Zero(d), vb = hn::Set(d, alpha - 1), first = hn::Set(d, 1 / (alpha * alpha));
  const V64 second = hn::Set(d, 1 / alpha);
  return Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 pi = LoadWide(d, p + i, count, T(0));
    const auto out = hn::Eq(pi, zero);
    if (hn::AllTrue(d, out)) return zero;
    const V64 log_p = Log(d, hn::IfThenElse(out, hn::Set(d, 1.0), pi)), y = hn::Mul(log_p, vb), exp_y = Exp(d, y);
    const V64 p_log = hn::Mul(pi, log_p);
    const V64 one_term = hn::Mul(first, hn::Mul(p_log, Phi1(d, y, exp_y)));
    return hn::NegMulAdd(hn::Mul(second, hn::Mul(p_log, log_p)), PhiSlope(d, y, exp_y), one_term);
  });
}

// Half of sum q (max - x), over q above 0: a whole difference may overflow.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double HalfMeanBelow(D d, const T* x, size_t n, T max, const T* q) {
  const auto half = hn::Set(d, T(0.5)), shift = hn::Set(d, max * T(0.5));
  return Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto qi = LoadUpTo(d, q + i, count, T(0)), below = hn::NegMulAdd(LoadUpTo(d, x + i, count, max), half, shift);
    return hn::IfThenZeroElse(hn::Eq(qi, hn::Zero(d)), hn::Mul(qi, below));
  });
}

// Cross-entropy of softmax over some of the scores, from its p; the sum of their e^(x - max) is 1 / max p.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE double CutClassRow(D d, const T* x, size_t n, T max, size_t t, T* p) {
  const T own = p[t], score = x[t];  // before the barriers of SetEntry: after them another thread may go on, and dx may be x
  SetEntry(p, t, T(0));
  const double others = SumRow(d, p, n);
  const T most = HWY_MAX(RowMax(d, p, n), own);
  if (score == -kInfinity<T>) return kInfinity<double>;
  SetEntry(p, t, own == T(0) ? T(-1) : static_cast<T>(-others));
  const double log_sum = own > T(0.5) ? -Log1pNumber(-others) : -LogNumber(static_cast<double>(most));
  return log_sum + (static_cast<double>(max) - static_cast<double>(score));
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE double CutDistributionRow(D d, const T* x, size_t n, T max, const T* q, const T* p) {
  const T most = RowMax(d, p, n);
  const auto top = hn::Set(d, most);
  double sums[2];
  Sums(d, n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    const auto tie = hn::Eq(pi, top);
    terms[0] = hn::IfThenZeroElse(tie, pi);
    terms[1] = hn::IfThenElseZero(tie, hn::Set(d, T(1)));
  });
  return LogOfTies(sums[1], sums[0] / static_cast<double>(most)) + 2 * HalfMeanBelow(d, x, n, max, q);
}

// p - q at all present classes.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void SubtractTarget(D d, const T* x, size_t n, const T* q, const T* p, T* dx) {
  const auto absent = hn::Set(d, -kInfinity<T>);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto v = hn::Sub(LoadUpTo(d, p + i, count, T(0)), LoadUpTo(d, q + i, count, T(0)));
    StoreUpTo(hn::IfThenZeroElse(hn::Eq(LoadUpTo(d, x + i, count, T(0)), absent), v), d, count, dx + i);
  });
}

// The value of one row from its map's p. With a class as the target, p becomes the gradient; with probabilities p does not
// change.

template <class T>
HWY_INLINE double MappedRow(const EntmaxLoss& op, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  if (target.q != nullptr) return EntmaxDistributionRow(op.alpha, x, n, max, target.q, p);
  return EntmaxClassRow(RowTag<T>(), op.alpha, x, n, max, target.t, p);
}

template <class T>
HWY_INLINE double MappedRow(const SparsemaxLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  return MappedRow(EntmaxLoss{.alpha = 2}, x, n, max, target, p);
}

template <class T>
HWY_INLINE double CutRow(const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  const RowTag<T> d;
  return target.q != nullptr ? CutDistributionRow(d, x, n, max, target.q, p) : CutClassRow(d, x, n, max, target.t, p);
}

template <class T>
HWY_INLINE double MappedRow(const TopKSoftmaxLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  return CutRow(x, n, max, target, p);
}

template <class T>
HWY_INLINE double MappedRow(const TopPSoftmaxLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  return CutRow(x, n, max, target, p);
}

template <class T>
HWY_INLINE double SurrogateRow(const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  const RowTag<T> d;
  const double own = HalfMeanBelow(d, x, n, max, p);
  if (target.q != nullptr) return 2 * (HalfMeanBelow(d, x, n, max, target.q) - own);
  const T score = x[target.t];
  SetEntry(p, target.t, score == -kInfinity<T> ? T(0) : p[target.t] - T(1));
  return 2 * ((0.5 * static_cast<double>(max) - 0.5 * static_cast<double>(score)) - own);
}

template <class T>
HWY_INLINE double MappedRow(const SurrogateLoss& /*op*/, const T* x, size_t n, T max, TargetOfRow<T> target, T* p) {
  return SurrogateRow(x, n, max, target, p);
}

// Rows with p of their map in `p`.
template <class Op, class T>
void MappedRows(const Op& common, const LossBatch<T>& batch, MatrixView<T> p, LossScratch<T> scratch) {
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  T* const canonical = scratch.memory.template take<T>(n);
  for (size_t r = 0; r < batch.x.rows; ++r) {
    const Op op = at_row(common, batch.per_row, r);
    const T* const x = batch.x.row(r);
    T* const pr = p.row(r);
    const TargetOfRow<T> target = TargetOf(batch, r);
    if (batch.is_ignored(r)) {
      Settle(batch, r, 0);
    } else if (pr[0] != pr[0]) {
      Settle(batch, r, kNaN<double>);
    } else {
      // Never -0: which zero is the maximum of both depends on the processor, and a loss of 0 would have its sign.
      const T max = RowMax(d, x, n) + T(0);
      const bool infinite = !IsFinite(max);
      if (infinite) Canonical(x, n, canonical);
      if constexpr (std::is_same_v<Op, EntmaxLoss>) {
        if (!batch.gradients.empty()) {
          const double slope = EntropySlope(op.alpha, pr, n) - (target.q == nullptr ? 0 : EntropySlope(op.alpha, target.q, n));
          PutSlope(batch, r, "alpha", infinite ? 0 : slope);
        }
      }
      batch.value[r] = MappedRow(op, infinite ? canonical : x, n, infinite ? T(0) : max, target, pr);
      if (infinite) {
        FillGradient(batch, r, T(0));
      } else if (batch.dx.data != nullptr) {
        T* const dx = batch.dx.row(r);
        if (target.q != nullptr) {
          SubtractTarget(d, x, n, target.q, pr, dx);
        } else if (dx != pr) {
          std::copy(pr, pr + n, dx);
        }
      }
    }
  }
}

// -<q, p>, and the gradient by the map's vjp. g is kept in scratch.
template <class T>
void MappedRows(const SmoothAccuracyLoss& op, const LossBatch<T>& batch, MatrixView<T> p, LossScratch<T> scratch) {
  const RowTag<T> d;
  const size_t n = batch.x.cols;
  T* const g = scratch.memory.template take<T>(n);
  const bool gradient = batch.dx.data != nullptr || !batch.gradients.empty();
  for (size_t r = 0; r < batch.x.rows; ++r) {
    T* const pr = p.row(r);
    if (batch.is_ignored(r)) {
      Settle(batch, r, 0);
      continue;
    }
    if (pr[0] != pr[0]) {
      Settle(batch, r, kNaN<double>);
      continue;
    }
    if (batch.target.data != nullptr) {
      const T* const q = batch.target.row(r);
      batch.value[r] = 0 - Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
                         return hn::Mul(LoadUpTo(d, pr + i, count, T(0)), LoadUpTo(d, q + i, count, T(0)));
                       });
      for (size_t i = 0; gradient && i < n; ++i) g[i] = -q[i];
    } else {
      const size_t t = static_cast<size_t>(batch.classes[r]);
      batch.value[r] = 0 - static_cast<double>(pr[t]);
      if (gradient) {
        std::fill(g, g + n, T(0));
        g[t] = T(-1);
      }
    }
    if (!gradient) continue;
    const LossBatch<T> row = batch.rows(r, 1);
    const MatrixView<T> dx = row.dx.data == nullptr ? MatrixView<T>(pr, 1, n) : row.dx;
    scratch.maps.vjp(op.map, row.x, {pr, 1, n}, {g, 1, n}, dx, row.per_row, row.gradients, {0, 1, scratch.memory, false});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_LOSSES_FENCHEL_YOUNG_INL_H_

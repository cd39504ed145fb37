// soft_top_k of rows: p_i = s(u_i - t), s(v) = 1 / (1 + exp(-v)), u = (x - pivot) / T, t such that sum p = k. In float64.
//
// With N scores above t, a the sum of p over those below, and b that of 1 - p over those above, it is a + N = k + b. All terms
// are positive once the smaller of N and k is taken from both sides. So nothing cancels where every p is nearly 0 or 1; and
// where t is far from all scores, or between two that are far apart, the logarithms of both sides are linear in t: Newton's
// method on their difference h needs two or three steps.

#if defined(ISENTROPIC_MAPS_SOFT_TOP_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_SOFT_TOP_K_INL_H_
#undef ISENTROPIC_MAPS_SOFT_TOP_K_INL_H_
#else
#define ISENTROPIC_MAPS_SOFT_TOP_K_INL_H_
#endif

#include <cmath>

#include "src/maps/compiled-inl.h"
#include "src/per_row.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// s and 1 - s of v, the smaller of them exactly: it is `less`, and that of s where v is at most 0.
struct Logistic {
  V64 less, more;
  hn::Mask<D64> above;

  HWY_INLINE Logistic(const ExpScaled<D64>& exp, V64 v) {
    const D64 d;
    const V64 one = hn::Set(d, 1.0), e = exp(d, hn::Neg(hn::Abs(v)));
    more = hn::Div(one, hn::Add(one, e));
    less = hn::Mul(e, more);
    above = hn::Gt(v, hn::Zero(d));
  }
  HWY_INLINE V64 Value() const { return hn::IfThenElse(above, more, less); }
  HWY_INLINE V64 Slope() const { return hn::Mul(less, more); }
};

// The scores of a row as u, -inf where they are not finite, and what is left of k for them.
struct SoftTopKRow {
  double* u;
  size_t n;
  double left, infinite;
  double t = 0;
  double nearest = 0;                             // the least |u - t| of a row whose shares are all 0 and 1 to rounding
  enum class Kind { nan, none, all, some } kind;  // which of the finite scores have a share: none, all of them 1, or p

  // It needs LargestKScratch(n) numbers.
  template <class T>
  HWY_INLINE SoftTopKRow(const SoftTopK& op, const T* x, size_t size, double* room, double* scratch) : u(room), n(size) {
    const D64 d;
    const V64 none = hn::Set(d, -kInfinity<double>), most = hn::Set(d, kInfinity<double>);
    size_t nans = 0, infinities = 0, count = 0;
    QuickForEachVector(d, n, [&](size_t i, size_t c) HWY_ATTR {
      const V64 xi = LoadWide(d, x + i, c, -kInfinity<T>);
      const auto finite = hn::IsFinite(xi);
      nans += hn::CountTrue(d, hn::IsNaN(xi));
      infinities += hn::CountTrue(d, hn::Eq(xi, most));
      count += hn::CountTrue(d, finite);
      StoreUpTo(hn::IfThenElse(finite, xi, none), d, c, u + i);
    });
    infinite = static_cast<double>(infinities);
    left = op.k - infinite;
    kind = nans > 0 ? Kind::nan : !(left > 0) ? Kind::none : left >= static_cast<double>(count) ? Kind::all : Kind::some;
    if (kind == Kind::some) Solve(op.temperature, scratch);
  }

 private:
  // The bounds of t, with u of rank K = ceil(k) as origin (the pivot) and part = k - floor(k). The K - 1 first scores have
  // shares below 1, so those from rank K on add up to more than part, or to more than 1 if k is whole. Each of these is at most
  // e^-t: t < log n - log part. The K first scores (K + 1 if k is whole) together lack more than 1 - part of K (of K + 1). Each
  // lacks at most e^(t - u), u the least of them: t > u - log n + log(1 - part).
  HWY_INLINE void Solve(double temperature, double* scratch) {
    const D64 d;
    const double whole = std::floor(left), part = left - whole, log_n = LogNumber(static_cast<double>(n) + 1);
    const Cut<double> cut = LargestK(d, u, n, static_cast<size_t>(std::ceil(left)), scratch);
    V64 least = hn::Set(d, kInfinity<double>), next = hn::Set(d, -kInfinity<double>);
    QuickForEachVector(d, n, [&](size_t i, size_t c) HWY_ATTR {
      const V64 ui = LoadUpTo(d, u + i, c, -kInfinity<double>);
      const auto kept = hn::And(cut.Keeps(d, ui, i), hn::IsFinite(ui));
      least = hn::Min(least, hn::IfThenElse(kept, ui, least));
      next = hn::Max(next, hn::IfThenElse(kept, next, ui));
    });
    const double pivot = MinLane(d, least), below = part > 0 ? pivot : MaxLane(d, next);
    // Differences that overflow, or their quotients, are far.
    const auto scaled = [&](double x) { return HWY_MAX(-1e300, HWY_MIN((x - pivot) / temperature, 1e300)); };
    const V64 middle = hn::Set(d, pivot), far = hn::Set(d, 1e300), divisor = hn::Set(d, temperature);
    QuickForEachVector(d, n, [&](size_t i, size_t c) HWY_ATTR {
      const V64 ui = LoadUpTo(d, u + i, c, pivot), v = hn::Div(hn::Sub(ui, middle), divisor);
      const V64 clamped = hn::Max(hn::Neg(far), hn::Min(v, far));
      StoreUpTo(hn::IfThenElse(hn::IsFinite(ui), clamped, ui), d, c, u + i);
    });
    if (part == 0 && scaled(below) < -100) {
      SolveGap(scaled(below));
      return;
    }
    double low = scaled(below) - log_n + LogNumber(1 - part), high = log_n - LogNumber(part > 0 ? part : 1);
    t = part > 0 ? LogNumber((1 - part) / part) : scaled(below) / 2;
    const ExpScaled<D64> exp(d, 1);
    for (int step = 0; step < 100; ++step) {
      if (!(t > low && t < high)) t = low / 2 + high / 2;
      double sums[5];  // a, b, their slopes, N
      const V64 at = hn::Set(d, t), one = hn::Set(d, 1.0);
      Sums(d, n, sums, [&](size_t i, size_t c, V64* terms) HWY_ATTR {
        const Logistic s(exp, hn::Sub(LoadUpTo(d, u + i, c, -kInfinity<double>), at));
        const V64 slope = s.Slope();
        terms[0] = hn::IfThenZeroElse(s.above, s.less);
        terms[1] = hn::IfThenElseZero(s.above, s.less);
        terms[2] = hn::IfThenZeroElse(s.above, slope);
        terms[3] = hn::IfThenElseZero(s.above, slope);
        terms[4] = hn::IfThenElseZero(s.above, one);
      });
      const double more = sums[0] + HWY_MAX(sums[4] - left, 0.0), less = sums[1] + HWY_MAX(left - sums[4], 0.0);
      if (more == less) return;
      (more > less ? low : high) = t;
      // Infinite or NaN where a side is 0: then the middle is next.
      const double move = LogNumber(more / less) / (sums[2] / more + sums[3] / less);
      const double from = t;
      t += move;
      if (std::abs(move) < 1e-8 || !(high > low) || t == from) return;
    }
  }

  // Where scores of rank k and k + 1 are far from each other, what those below have is sum exp(u - t), and what those above
  // lack sum exp(t - u). Either may underflow.
  HWY_INLINE void SolveGap(double below) {
    const D64 d;
    const ExpScaled<D64> exp(d, 1);
    const V64 zero = hn::Zero(d), next = hn::Set(d, below);
    double sums[2];
    Sums(d, n, sums, [&](size_t i, size_t c, V64* terms) HWY_ATTR {
      const V64 ui = LoadUpTo(d, u + i, c, -kInfinity<double>);
      const auto above = hn::Ge(ui, zero);
      const V64 e = exp(d, hn::IfThenElse(above, hn::Neg(ui), hn::Sub(ui, next)));
      terms[0] = hn::IfThenZeroElse(above, e);
      terms[1] = hn::IfThenElseZero(above, e);
    });
    t = below / 2 + (LogNumber(sums[0]) - LogNumber(sums[1])) / 2;
    nearest = HWY_MIN(-t, t - below);
  }
};

template <class T>
void CompiledSelection<T>::Map(const SoftTopK& common, MatrixView<const T> x, MatrixView<T> p, RowsOf<PerRow> per_row,
                               Share<T> share) {
  using Kind = SoftTopKRow::Kind;
  const D64 d;
  const size_t n = x.cols;
  double* const u = share.memory.template take<double>(n);
  double* const scratch = share.memory.template take<double>(LargestKScratch(n));
  const ExpScaled<D64> exp(d, 1);
  for (size_t r = share.begin; r < share.end; ++r) {
    const SoftTopK op = at_row(common, per_row, r);
    const SoftTopKRow row(op, x.row(r), n, u, scratch);
    if (row.kind == Kind::nan) {
      FillRow(RowTag<T>(), kNaN<T>, n, p.row(r));
      continue;
    }
    const V64 t = hn::Set(d, row.t), all = hn::Set(d, row.kind == Kind::all ? 1.0 : 0.0), zero = hn::Zero(d);
    const V64 infinite = hn::Set(d, row.left > 0 ? 1.0 : op.k / row.infinite), most = hn::Set(d, kInfinity<double>);
    ForEachVector(d, n, [&](size_t i, size_t c) HWY_ATTR {
      const V64 ui = LoadUpTo(d, u + i, c, 0.0);
      V64 share_of = row.kind == Kind::some ? Logistic(exp, hn::Sub(ui, t)).Value() : all;
      share_of = hn::IfThenElse(hn::IsFinite(ui), share_of, zero);
      const auto at_most = hn::Eq(LoadWide(d, x.row(r) + i, c, T(0)), most);
      StoreNarrow(hn::IfThenElse(at_most, infinite, share_of), d, c, p.row(r) + i);
    });
  }
}

// dx = w (g - <w, g> / sum w) / T with w = s (1 - s); d/dk = <w, g> / sum w; d/dT = -<dx, v>, v = u - t. In a gap w is relative
// to its largest, exp(-nearest).
template <class T>
void CompiledSelection<T>::Vjp(const SoftTopK& common, MatrixView<const T> x, MatrixView<const T> g, MatrixView<T> dx,
                               RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients, Share<T> share) {
  const D64 d;
  const size_t n = x.cols;
  double* const u = share.memory.template take<double>(n);
  double* const scratch = share.memory.template take<double>(LargestKScratch(n));
  const ExpScaled<D64> exp(d, 1);
  for (size_t r = share.begin; r < share.end; ++r) {
    const SoftTopK op = at_row(common, per_row, r);
    const SoftTopKRow row(op, x.row(r), n, u, scratch);
    const T* const of_row = g.row(r);
    double by_k = 0, by_temperature = 0;
    if (row.kind == SoftTopKRow::Kind::nan) {
      by_k = by_temperature = kNaN<double>;
      FillRow(RowTag<T>(), kNaN<T>, n, dx.row(r));
    } else if (row.kind == SoftTopKRow::Kind::some) {
      const V64 t = hn::Set(d, row.t), zero = hn::Zero(d), nearest = hn::Set(d, row.nearest);
      const auto slopes = [&](size_t i, size_t c, V64& v) HWY_ATTR {
        v = hn::Sub(LoadUpTo(d, u + i, c, -kInfinity<double>), t);
        return row.nearest > 0 ? exp(d, hn::Min(zero, hn::Sub(nearest, hn::Abs(v)))) : Logistic(exp, v).Slope();
      };
      double sums[2];
      Sums(d, n, sums, [&](size_t i, size_t c, V64* terms) HWY_ATTR {
        V64 v;
        const V64 w = slopes(i, c, v), gi = LoadWide(d, of_row + i, c, T(0));
        terms[0] = w;
        terms[1] = hn::IfThenZeroElse(hn::Eq(w, zero), hn::Mul(w, gi));
      });
      by_k = sums[0] > 0 ? sums[1] / sums[0] : 0;
      const V64 mean = hn::Set(d, by_k), divisor = hn::Set(d, op.temperature), unit = hn::Set(d, ExpNumber(-row.nearest));
      by_temperature = -Sum(d, n, [&](size_t i, size_t c) HWY_ATTR {
        V64 v;
        const V64 w = hn::Mul(unit, slopes(i, c, v)), gi = LoadWide(d, of_row + i, c, T(0));
        const V64 slope = hn::IfThenZeroElse(hn::Eq(w, zero), hn::Div(hn::Mul(w, hn::Sub(gi, mean)), divisor));
        StoreNarrow(slope, d, c, dx.row(r) + i);
        return hn::IfThenZeroElse(hn::Eq(slope, zero), hn::Mul(slope, v));
      });
    } else {
      if (!(row.left > 0)) {  // +inf scores share k
        by_k = Sum(d, n,
                   [&](size_t i, size_t c) HWY_ATTR {
                     const auto at_most = hn::Eq(LoadWide(d, x.row(r) + i, c, T(0)), hn::Set(d, kInfinity<double>));
                     return hn::IfThenElseZero(at_most, LoadWide(d, of_row + i, c, T(0)));
                   }) /
               row.infinite;
      }
      FillRow(RowTag<T>(), T(0), n, dx.row(r));
    }
    for (const ParamGradient& gradient : gradients) {
      gradient.values[r] = gradient.parameter == "k" ? by_k : by_temperature;
    }
  }
}

template <class T>
size_t CompiledSelection<T>::Memory(size_t n) {
  return Arena::room<double>(n) + Arena::room<double>(LargestKScratch(n));
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_SOFT_TOP_K_INL_H_

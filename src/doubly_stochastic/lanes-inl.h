// Small tables, one in each lane: Sinkhorn's sweeps, and the gradient of a number of them.

#if defined(ISENTROPIC_DOUBLY_STOCHASTIC_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_DOUBLY_STOCHASTIC_LANES_INL_H_
#undef ISENTROPIC_DOUBLY_STOCHASTIC_LANES_INL_H_
#else
#define ISENTROPIC_DOUBLY_STOCHASTIC_LANES_INL_H_
#endif

#include <cmath>
#include <limits>

#include "src/doubly_stochastic/kernels.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/loop-inl.h"
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Arrays of vectors, with one table in each lane.
struct LaneArrays {
  LaneArrays(Arena& memory, const Sweeps& s, bool vjp) {
    const size_t N = hn::Lanes(D64()), cells = s.n * s.m * N, kept = vjp ? s.iterations : 1;
    k = memory.take<double>(cells);
    r = memory.take<double>(kept * s.n * N);
    c = memory.take<double>((kept + 1) * s.m * N);
    sums = memory.take<double>(HWY_MAX(s.n, s.m) * N);
    if (!vjp) return;
    g = memory.take<double>(cells);
    b = memory.take<double>(cells);
    of_rows = memory.take<double>(s.n * N);
    of_columns = memory.take<double>(s.m * N);
  }
  double *k, *r, *c, *sums;
  double *g = nullptr, *b = nullptr, *of_rows = nullptr, *of_columns = nullptr;
};

inline size_t LanesRoom(const Sweeps& s, bool vjp) { return room_of<LaneArrays>(s, vjp); }

template <class T>
HWY_INLINE void ToLanes(const Sweeps& s, MatrixView<const T> x, size_t first, size_t count, double* to) {
  const size_t N = hn::Lanes(D64());
  for (size_t lane = 0; lane < N; ++lane) {
    for (size_t i = 0; i < s.n; ++i) {
      const T* const row = lane < count ? x.row((first + lane) * s.n + i) : nullptr;
      double* const cells = to + i * s.m * N + lane;
      for (size_t j = 0; j < s.m; ++j) cells[j * N] = row == nullptr ? 0.0 : static_cast<double>(row[j]);
    }
  }
}

template <class T>
HWY_INLINE void FromLanes(const Sweeps& s, const double* from, size_t first, size_t count, const bool* done, MatrixView<T> y) {
  const size_t N = hn::Lanes(D64());
  for (size_t lane = 0; lane < count; ++lane) {
    if (!done[lane]) continue;
    for (size_t i = 0; i < s.n; ++i) {
      T* const row = y.row((first + lane) * s.n + i);
      const double* const cells = from + i * s.m * N + lane;
      for (size_t j = 0; j < s.m; ++j) row[j] = static_cast<T>(cells[j * N]);
    }
  }
}

// Replaces scores by exp((x - max of the row) / T); returns the lanes whose tables must be left to others.
HWY_INLINE hn::Mask<D64> Exponentials(const Sweeps& s, double* k) {
  const D64 d;
  const size_t N = hn::Lanes(d);
  const ExpScaled<D64> exp(d, s.temperature);
  const auto none = hn::Set(d, -kInfinity<double>), widest = hn::Set(d, -kWidest * s.temperature);
  auto others = hn::FirstN(d, 0);
  for (size_t i = 0; i < s.n; ++i) {
    double* const row = k + i * s.m * N;
    auto max = none;
    for (size_t j = 0; j < s.m; ++j) max = hn::Max(max, hn::LoadU(d, row + j * N));
    for (size_t j = 0; j < s.m; ++j) {
      const auto x = hn::LoadU(d, row + j * N), apart = hn::Sub(x, max);
      // Forbidden entries: in search of a limit the others may be impossible too.
      const auto forbidden = hn::Eq(x, none);
      const auto wide =
          s.iterations == 0 ? hn::Not(hn::Ge(apart, widest)) : hn::AndNot(forbidden, hn::Not(hn::Ge(apart, widest)));
      others = hn::Or(others, hn::Or(wide, hn::IsNaN(apart)));
      hn::StoreU(exp(d, apart), d, row + j * N);
    }
  }
  return others;
}

// The products of each row with c, or of each column with r.
HWY_INLINE void RowSums(const Sweeps& s, const double* k, const double* c, double* sums) {
  const D64 d;
  const size_t N = hn::Lanes(d);
  for (size_t i = 0; i < s.n; ++i) {
    const double* const row = k + i * s.m * N;
    auto sum = hn::Mul(hn::LoadU(d, row), hn::LoadU(d, c));
    for (size_t j = 1; j < s.m; ++j) sum = hn::MulAdd(hn::LoadU(d, row + j * N), hn::LoadU(d, c + j * N), sum);
    hn::StoreU(sum, d, sums + i * N);
  }
}
HWY_INLINE void ColumnSums(const Sweeps& s, const double* k, const double* r, double* sums) {
  const D64 d;
  const size_t N = hn::Lanes(d);
  for (size_t j = 0; j < s.m; ++j) {
    const double* const column = k + j * N;
    auto sum = hn::Mul(hn::LoadU(d, column), hn::LoadU(d, r));
    for (size_t i = 1; i < s.n; ++i) sum = hn::MulAdd(hn::LoadU(d, column + i * s.m * N), hn::LoadU(d, r + i * N), sum);
    hn::StoreU(sum, d, sums + j * N);
  }
}

// Lanes with a number that is not between 1 / kFarthest and kFarthest.
HWY_INLINE hn::Mask<D64> FarFromOne(const double* numbers, size_t count) {
  const D64 d;
  auto far = hn::FirstN(d, 0);
  for (size_t i = 0; i < count; ++i) {
    const auto x = hn::LoadU(d, numbers + i * hn::Lanes(d));
    far = hn::Or(far, hn::Not(hn::And(hn::Ge(x, hn::Set(d, 1 / kFarthest)), hn::Le(x, hn::Set(d, kFarthest)))));
  }
  return far;
}

// All factors of all iterations, those of sweep t at r + t n and c + (t + 1) m; c begins with ones. Returns the lanes in which
// it failed.
HWY_INLINE hn::Mask<D64> AllSweeps(const Sweeps& s, const LaneArrays& a, bool keep) {
  const D64 d;
  const size_t N = hn::Lanes(d);
  const auto one = hn::Set(d, 1.0), column_sum = hn::Set(d, s.column_sum());
  auto failed = hn::FirstN(d, 0);
  for (size_t j = 0; j < s.m; ++j) hn::StoreU(one, d, a.c + j * N);
  for (size_t t = 0; t < s.iterations; ++t) {
    double* const r = a.r + (keep ? t * s.n * N : 0);
    const double* const before = a.c + (keep ? t * s.m * N : 0);
    double* const c = a.c + (keep ? (t + 1) * s.m * N : 0);
    RowSums(s, a.k, before, a.sums);
    failed = hn::Or(failed, FarFromOne(a.sums, s.n));
    for (size_t i = 0; i < s.n; ++i) hn::StoreU(hn::Div(one, hn::LoadU(d, a.sums + i * N)), d, r + i * N);
    ColumnSums(s, a.k, r, a.sums);
    failed = hn::Or(failed, FarFromOne(a.sums, s.m));
    for (size_t j = 0; j < s.m; ++j) hn::StoreU(hn::Div(column_sum, hn::LoadU(d, a.sums + j * N)), d, c + j * N);
  }
  return failed;
}

// Sweeps until the rows of a lane have their sums: its factors then stay, whatever its neighbours need. Returns the lanes where
// they do not.
HWY_INLINE hn::Mask<D64> SweepsToLimit(const Sweeps& s, const LaneArrays& a, hn::Mask<D64> others) {
  const D64 d;
  const size_t N = hn::Lanes(d);
  const auto one = hn::Set(d, 1.0), column_sum = hn::Set(d, s.column_sum());
  const auto low = hn::Set(d, s.low), high = hn::Set(d, s.high);
  for (size_t j = 0; j < s.m; ++j) hn::StoreU(one, d, a.c + j * N);
  for (size_t i = 0; i < s.n; ++i) hn::StoreU(hn::Zero(d), d, a.r + i * N);
  auto stays = others;
  for (size_t t = 0; t < kMostSweeps; ++t) {
    RowSums(s, a.k, a.c, a.sums);
    auto right = hn::Not(hn::FirstN(d, 0));
    for (size_t i = 0; i < s.n; ++i) {
      const auto sum = hn::Mul(hn::LoadU(d, a.sums + i * N), hn::LoadU(d, a.r + i * N));
      right = hn::And(right, hn::And(hn::Ge(sum, low), hn::Le(sum, high)));
    }
    stays = hn::Or(stays, right);
    if (hn::AllTrue(d, stays)) break;
    for (size_t i = 0; i < s.n; ++i) {
      double* const r = a.r + i * N;
      hn::StoreU(hn::IfThenElse(stays, hn::LoadU(d, r), hn::Div(one, hn::LoadU(d, a.sums + i * N))), d, r);
    }
    ColumnSums(s, a.k, a.r, a.sums);
    for (size_t j = 0; j < s.m; ++j) hn::StoreU(hn::Div(column_sum, hn::LoadU(d, a.sums + j * N)), d, a.c + j * N);
  }
  return hn::Or(others, hn::Not(stays));
}

// Stores in `done` which of the first lanes are not in `failed`.
HWY_INLINE void Done(hn::Mask<D64> failed, size_t count, bool* done) {
  const D64 d;
  HWY_ALIGN double flags[hn::MaxLanes(D64())];
  hn::Store(hn::IfThenElseZero(failed, hn::Set(d, 1.0)), d, flags);
  for (size_t lane = 0; lane < count; ++lane) done[lane] = flags[lane] == 0;
}

template <class T>
HWY_FLATTEN void Lanes(const Sweeps& s, MatrixView<const T> x, MatrixView<T> y, size_t count, bool* done, Arena memory) {
  const D64 d;
  const size_t N = hn::Lanes(d);
  const LaneArrays a(memory, s, false);
  for (size_t first = 0; first < count; first += N) {
    const size_t tables = HWY_MIN(N, count - first);
    ToLanes(s, x, first, tables, a.k);
    auto failed = Exponentials(s, a.k);
    failed = s.iterations == 0 ? SweepsToLimit(s, a, failed) : hn::Or(failed, AllSweeps(s, a, false));
    for (size_t i = 0; i < s.n; ++i) {
      const auto r = hn::LoadU(d, a.r + i * N);
      for (size_t j = 0; j < s.m; ++j) {
        double* const cell = a.k + (i * s.m + j) * N;
        hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, cell), r), hn::LoadU(d, a.c + j * N)), d, cell);
      }
    }
    Done(failed, tables, done + first);
    FromLanes(s, a.k, first, tables, done + first, y);
  }
}

// With the slopes F_i and G_j in log r_i and log c_j of the last sweep, from which earlier ones follow:
//   column step: log c_j = log sum - log sum_i K_ij r_i, so h_j = G_j c_j / sum, F_i -= r_i sum_j K_ij h_j, and the slope in
//   log K_ij loses K_ij r_i h_j;
//   row step: log r_i = -log sum_j K_ij c'_j, so q_i = F_i r_i, G'_j = -c'_j sum_i K_ij q_i, and it loses K_ij q_i c'_j.
template <class T>
HWY_FLATTEN void LanesVjp(const Sweeps& s, MatrixView<const T> x, MatrixView<const T> g, MatrixView<T> dx, size_t count,
                          bool* done, Arena memory) {
  const D64 d;
  const size_t N = hn::Lanes(d), n = s.n, m = s.m;
  const LaneArrays a(memory, s, true);
  const auto over_sum = hn::Set(d, 1 / s.column_sum()), over_t = hn::Set(d, 1 / s.temperature);
  for (size_t first = 0; first < count; first += N) {
    const size_t tables = HWY_MIN(N, count - first);
    ToLanes(s, x, first, tables, a.k);
    ToLanes(s, g, first, tables, a.g);
    auto failed = Exponentials(s, a.k);
    failed = hn::Or(failed, AllSweeps(s, a, true));

    const double* r = a.r + (s.iterations - 1) * n * N;
    const double* c = a.c + s.iterations * m * N;
    for (size_t j = 0; j < m; ++j) hn::StoreU(hn::Zero(d), d, a.of_columns + j * N);
    for (size_t i = 0; i < n; ++i) {
      const auto ri = hn::LoadU(d, r + i * N);
      auto row = hn::Zero(d);
      for (size_t j = 0; j < m; ++j) {
        const size_t at = (i * m + j) * N;
        const auto y = hn::Mul(hn::Mul(hn::LoadU(d, a.k + at), ri), hn::LoadU(d, c + j * N));
        const auto gy = hn::Mul(y, hn::LoadU(d, a.g + at));
        hn::StoreU(gy, d, a.g + at);
        hn::StoreU(hn::Zero(d), d, a.b + at);
        row = hn::Add(row, gy);
        hn::StoreU(hn::Add(hn::LoadU(d, a.of_columns + j * N), gy), d, a.of_columns + j * N);
      }
      hn::StoreU(row, d, a.of_rows + i * N);
    }
    for (size_t t = s.iterations; t-- > 0;) {
      r = a.r + t * n * N, c = a.c + (t + 1) * m * N;
      const double* const before = a.c + t * m * N;
      double *const h = a.of_columns, *const q = a.of_rows;
      for (size_t j = 0; j < m; ++j) {
        const auto scaled = hn::Mul(hn::LoadU(d, c + j * N), over_sum);
        hn::StoreU(hn::Mul(hn::LoadU(d, h + j * N), scaled), d, h + j * N);
      }
      RowSums(s, a.k, h, a.sums);
      for (size_t i = 0; i < n; ++i) {
        const auto ri = hn::LoadU(d, r + i * N);
        const auto slope = hn::NegMulAdd(ri, hn::LoadU(d, a.sums + i * N), hn::LoadU(d, q + i * N));
        hn::StoreU(hn::Mul(slope, ri), d, q + i * N);
      }
      for (size_t i = 0; i < n; ++i) {
        const auto ri = hn::LoadU(d, r + i * N), qi = hn::LoadU(d, q + i * N);
        double* const b = a.b + i * m * N;
        for (size_t j = 0; j < m; ++j) {
          auto lost = hn::MulAdd(ri, hn::LoadU(d, h + j * N), hn::LoadU(d, b + j * N));
          lost = hn::MulAdd(qi, hn::LoadU(d, before + j * N), lost);
          hn::StoreU(lost, d, b + j * N);
        }
      }
      ColumnSums(s, a.k, q, a.sums);
      for (size_t j = 0; j < m; ++j) {
        hn::StoreU(hn::Neg(hn::Mul(hn::LoadU(d, before + j * N), hn::LoadU(d, a.sums + j * N))), d, h + j * N);
      }
      for (size_t i = 0; i < n; ++i) hn::StoreU(hn::Zero(d), d, q + i * N);
    }
    for (size_t at = 0; at < n * m * N; at += N) {
      const auto slope = hn::NegMulAdd(hn::LoadU(d, a.k + at), hn::LoadU(d, a.b + at), hn::LoadU(d, a.g + at));
      hn::StoreU(hn::Mul(slope, over_t), d, a.g + at);
    }
    Done(failed, tables, done + first);
    FromLanes(s, a.g, first, tables, done + first, dx);
  }
}

template <class T>
HWY_FLATTEN bool TableRow(const T* x, size_t m, double temperature, double* e) {
  const D64 d;
  auto max = hn::Set(d, -kInfinity<double>);
  QuickForEachVector(d, m,
                     [&](size_t j, size_t count) HWY_ATTR { max = hn::Max(max, LoadWide(d, x + j, count, -kInfinity<T>)); });
  const double largest = MaxLane(d, max);
  if (!std::isfinite(largest)) return false;
  const auto top = hn::Set(d, largest), widest = hn::Set(d, -kWidest * temperature);
  const ExpScaled<D64> exp(d, temperature);
  bool good = true;
  QuickForEachVector(d, m, [&](size_t j, size_t count) HWY_ATTR {
    const auto xj = LoadWide(d, x + j, count, -kInfinity<T>), apart = hn::Sub(xj, top);
    good &= hn::AllTrue(d, hn::Or(hn::Ge(apart, widest), hn::Lt(xj, hn::Set(d, -std::numeric_limits<double>::max()))));
    StoreUpTo(exp(d, apart), d, count, e + j);
  });
  return good;
}

template <class T>
TableKernels<T> MakeTables() {
  return {LanesRoom, Lanes<T>, LanesVjp<T>, TableRow<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_DOUBLY_STOCHASTIC_LANES_INL_H_

// Scans of cost rows for the least reduced costs and their places. The lowest index wins a tie, so that every target, with or
// without FMA, makes the same pivots.

#if defined(ISENTROPIC_TRANSPORT_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_TRANSPORT_SCAN_INL_H_
#undef ISENTROPIC_TRANSPORT_SCAN_INL_H_
#else
#define ISENTROPIC_TRANSPORT_SCAN_INL_H_
#endif

#include <limits>

#include "src/rows/loop-inl.h"
#include "src/rows/reduce-inl.h"
#include "src/transport/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Calls scan(sum), where sum(j, count) computes c + p for the entries j .. j + count - 1, or +inf for arcs that the rule leaves
// out.
template <class T, class Scan>
HWY_INLINE auto WithSums(const Pricing& rule, const T* HWY_RESTRICT c, const double* HWY_RESTRICT p, Scan&& scan) {
  constexpr T kAbsent = kInfinity<T>;
  const D64 d;
  const auto infinity = hn::Set(d, kInfinity<double>);
  const auto limit = hn::Set(d, rule.limit);
  const double* const levels = rule.levels;
  const auto level = hn::Set(d, rule.level);
  switch (rule.kind) {
    case Pricing::Kind::feasibility:
      return scan([=](size_t j, size_t count) HWY_ATTR {
        return hn::IfThenElse(hn::Le(LoadWide(d, c + j, count, kAbsent), limit), LoadUpTo(d, p + j, count, 0.0), infinity);
      });
    case Pricing::Kind::masked:
      return scan([=](size_t j, size_t count) HWY_ATTR {
        const auto cost = LoadWide(d, c + j, count, kAbsent);
        const auto allowed = hn::And(hn::Le(cost, limit), hn::Eq(LoadUpTo(d, levels + j, count, 0.0), level));
        return hn::IfThenElse(allowed, hn::Add(cost, LoadUpTo(d, p + j, count, 0.0)), infinity);
      });
    default:
      return scan([=](size_t j, size_t count)
                      HWY_ATTR { return hn::Add(LoadWide(d, c + j, count, kAbsent), LoadUpTo(d, p + j, count, 0.0)); });
  }
}

template <class T>
double LeastSum(const Pricing& rule, const T* c, const double* p, size_t m) {
  return WithSums(rule, c, p, [&](const auto& sum) HWY_ATTR {
    const D64 d;
    const size_t N = hn::Lanes(d);
    auto m0 = hn::Set(d, kInfinity<double>);
    auto m1 = m0, m2 = m0, m3 = m0;
    size_t j = 0;
    for (; j + 4 * N <= m; j += 4 * N) {
      m0 = hn::Min(m0, sum(j, N));
      m1 = hn::Min(m1, sum(j + N, N));
      m2 = hn::Min(m2, sum(j + 2 * N, N));
      m3 = hn::Min(m3, sum(j + 3 * N, N));
    }
    for (; j + N <= m; j += N) m0 = hn::Min(m0, sum(j, N));
    if (j < m) m1 = hn::Min(m1, sum(j, m - j));
    return MinLane(d, hn::Min(hn::Min(m0, m1), hn::Min(m2, m3)));
  });
}

template <class T>
size_t FindSum(const Pricing& rule, const T* c, const double* p, size_t m, double wanted) {
  return WithSums(rule, c, p, [&](const auto& sum) HWY_ATTR {
    const D64 d;
    const size_t N = hn::Lanes(d);
    const auto target = hn::Set(d, wanted);
    for (size_t j = 0; j < m; j += N) {
      const size_t count = HWY_MIN(N, m - j);
      const auto found = hn::And(hn::Eq(sum(j, count), target), hn::FirstN(d, count));
      if (!hn::AllFalse(d, found)) return j + static_cast<size_t>(hn::FindFirstTrue(d, found));
    }
    return m;
  });
}

template <class T>
size_t SumsBelow(const Pricing& rule, const T* c, const double* p, size_t m, double limit, double* sums, int32_t* columns) {
  return WithSums(rule, c, p, [&](const auto& sum) HWY_ATTR {
    const D64 d;
    const size_t N = hn::Lanes(d);
    const auto top = hn::Set(d, limit);
    HWY_ALIGN double lanes[hn::MaxLanes(D64())];
    size_t found = 0;
    for (size_t j = 0; j < m; j += N) {
      const size_t count = HWY_MIN(N, m - j);
      const auto v = sum(j, count);
      if (hn::AllFalse(d, hn::Le(v, top))) continue;
      hn::Store(v, d, lanes);
      for (size_t k = 0; k < count; ++k) {
        sums[found] = lanes[k];
        columns[found] = static_cast<int32_t>(j + k);
        found += lanes[k] <= limit;
      }
    }
    return found;
  });
}

inline EnteringArc Price(const Shortlists& lists, const double* row_potentials, const double* p, size_t begin, size_t end,
                         double tolerance) {
  const D64 d;
  const hn::RebindToSigned<D64> di;
  const hn::Rebind<int32_t, D64> d32;
  const size_t N = hn::Lanes(d);
  static_assert(Shortlists::kPiece % hn::MaxLanes(D64()) == 0);
  EnteringArc best = {-tolerance, -1, -1};
  const auto sum = [&](size_t k) HWY_ATTR {
    const auto columns = hn::PromoteTo(di, hn::LoadU(d32, lists.column + k));
    return hn::Add(hn::LoadU(d, lists.cost + k), hn::GatherIndex(d, p, columns));
  };
  size_t best_piece = 0;
  for (size_t piece = begin; piece < end; ++piece) {
    const size_t first = piece * Shortlists::kPiece;
    auto least = sum(first);
    for (size_t k = N; k < Shortlists::kPiece; k += N) least = hn::Min(least, sum(first + k));
    const size_t i = piece / lists.pieces;
    const double reduced = MinLane(d, least) - row_potentials[i];
    if (reduced < best.reduced) {
      best = {reduced, static_cast<int32_t>(i), -1};
      best_piece = piece;
    }
  }
  if (best.row < 0) return best;
  for (size_t k = best_piece * Shortlists::kPiece;; ++k) {
    if (lists.cost[k] + p[lists.column[k]] - row_potentials[best.row] == best.reduced) {
      best.column = lists.column[k];
      return best;
    }
  }
}

template <class T>
void ColumnMinima(const T* c, double shift, size_t m, double* minima) {
  const D64 d;
  const auto by = hn::Set(d, shift);
  QuickForEachVector(d, m, [&](size_t j, size_t count) HWY_ATTR {
    const auto cost = hn::Sub(LoadWide(d, c + j, count, T(0)), by);
    StoreUpTo(hn::Min(cost, LoadUpTo(d, minima + j, count, 0.0)), d, count, minima + j);
  });
}

template <class T>
double LargestSize(const T* c, size_t m) {
  const RowTag<T> d;
  const auto infinity = hn::Set(d, kInfinity<T>);
  auto largest = hn::Zero(d);
  QuickForEachVector(d, m, [&](size_t j, size_t count) HWY_ATTR {
    const auto size = hn::Abs(LoadUpTo(d, c + j, count, T(0)));
    largest = hn::Max(largest, hn::IfThenElseZero(hn::Lt(size, infinity), size));
  });
  return MaxLane(d, largest);
}

template <class T>
size_t FindInvalid(const T* c, size_t m) {
  const RowTag<T> d;
  const size_t N = hn::Lanes(d);
  const auto lowest = hn::Set(d, std::numeric_limits<T>::lowest());
  for (size_t j = 0; j < m; j += N) {
    const auto cost = LoadUpTo(d, c + j, HWY_MIN(N, m - j), T(0));
    const auto invalid = hn::Not(hn::Ge(cost, lowest));  // comparisons with NaN are false
    if (!hn::AllFalse(d, invalid)) return j + static_cast<size_t>(hn::FindFirstTrue(d, invalid));
  }
  return m;
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_TRANSPORT_SCAN_INL_H_

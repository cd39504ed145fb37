// Walks along a row. On the host threads share a long row by groups, whose sums may come in any order (reduce-inl.h), so that
// the number of threads changes no bit. The visitor must not use the thread's own memory (scratch.h), and should capture by
// value: a variable that other threads can see stays in memory, even for rows of one thread.

#if defined(ISENTROPIC_ROWS_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_SPLIT_INL_H_
#undef ISENTROPIC_ROWS_SPLIT_INL_H_
#else
#define ISENTROPIC_ROWS_SPLIT_INL_H_
#endif

#include "src/rows/reduce-inl.h"
#if !defined(ISENTROPIC_DEVICE) && !defined(__wasm__)
#include "hwy/cache_control.h"
#include "src/parallel.h"
#include "src/scratch.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

#if defined(ISENTROPIC_DEVICE) || defined(__wasm__)
// A team of a device's threads has a row of any length, and a page has no threads.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T SplitRowMax(D d, const T* x, size_t n) {
  return RowMax(d, x, n);
}
template <class D, class Term>
HWY_INLINE double SplitSum(D d, size_t n, const Term& term) {
  return Sum(d, n, term);
}
template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void SplitWriteRow(D d, bool stream, size_t n, T* p, const Value& value) {
  WriteRow(d, stream, n, p, value);
}
#else
// Shorter rows do not use a second thread in a walk.
inline constexpr size_t kLeastSplit = 16 * kGroup;

// Calls visit(group, begin, end) for each group, on any thread.
template <class Visit>
HWY_NOINLINE void ForEachGroup(size_t n, const Visit& visit) {
  parallel_groups((n + kGroup - 1) / kGroup, kGroup, [&](size_t first, size_t last) HWY_ATTR {
    for (size_t group = first; group < last; ++group) visit(group, group * kGroup, HWY_MIN(n, (group + 1) * kGroup));
  });
}

// Keeps the memory for one number of each group of a row.
class NumbersOfGroups;

template <class D, class T>
HWY_NOINLINE T RowMaxByGroups(D d, const T* x, size_t n) {
  const size_t groups = (n + kGroup - 1) / kGroup;
  const CallMemory<NumbersOfGroups> memory(Arena::room<T>(groups));
  T* const maxima = memory.arena().template take<T>(groups);
  ForEachGroup(n, [&](size_t group, size_t begin, size_t end) HWY_ATTR { maxima[group] = RowMax(d, x + begin, end - begin); });
  return RowMax(d, maxima, groups);
}

template <class D, class Term>
HWY_NOINLINE double SumByGroups(D d, size_t n, Term term) {
  const size_t groups = (n + kGroup - 1) / kGroup;
  const CallMemory<NumbersOfGroups> memory(Arena::room<double>(groups));
  double* const sums = memory.arena().template take<double>(groups);
  ForEachGroup(n, [&](size_t group, size_t begin, size_t end) HWY_ATTR {
    sums[group] = Sum(d, end - begin, [&](size_t i, size_t count) HWY_ATTR { return term(begin + i, count); });
  });
  GroupTotals totals;
  totals.Clear();
  for (size_t group = 0; group < groups; ++group) totals.Add(group, sums[group]);
  return totals.Fold();
}

template <class D, class T, class Value>
HWY_NOINLINE void WriteByGroups(D d, bool stream, size_t n, T* p, Value value) {
  ForEachGroup(n, [&](size_t /*group*/, size_t begin, size_t end) HWY_ATTR {
    WriteRow(d, stream, end - begin, p + begin, [&](size_t i, size_t count) HWY_ATTR { return value(begin + i, count); });
    if (stream) hwy::FlushStream();
  });
}

// RowMax, Sum and WriteRow, of a row that threads may share.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T SplitRowMax(D d, const T* x, size_t n) {
  return HWY_LIKELY(n < kLeastSplit) ? RowMax(d, x, n) : RowMaxByGroups(d, x, n);
}
template <class D, class Term>
HWY_INLINE double SplitSum(D d, size_t n, const Term& term) {
  return HWY_LIKELY(n < kLeastSplit) ? QuickSum(d, n, term) : SumByGroups(d, n, term);
}
template <class D, class T = hn::TFromD<D>, class Value>
HWY_INLINE void SplitWriteRow(D d, bool stream, size_t n, T* p, const Value& value) {
  if (HWY_LIKELY(n < kLeastSplit)) return WriteRow(d, stream, n, p, value);
  WriteByGroups(d, stream, n, p, value);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_SPLIT_INL_H_

// The loops over rows for teams of threads, like those of src/maps/rows-inl.h for the host. Both call kernels of the same
// source.
#pragma once

#include <tuple>

#include "src/cuda/calls.h"
#include "src/half.h"
#include "src/maps/contract-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/rows/entropy-inl.h"
#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Parameter i of its description, without the names of a choice: they are an array of the host, which a device cannot read.
template <size_t i, class Op>
constexpr auto ParamAt() {
  auto param = Described<Op>::kParams.with([](const auto&... all) { return std::get<i>(std::tuple(all...)); });
  param.names = {};
  return param;
}

// Gives op the values of row r; returns false if one of them is out of range, which the host cannot check.
template <size_t i, class Op>
HWY_INLINE bool SetParam(Op& op, const double* values, size_t r) {
  constexpr auto kParam = ParamAt<i, Op>();
  if constexpr (kParam.per_row) {
    constexpr auto kMember = kParam.member;
    constexpr double kAbove = kParam.above, kAtLeast = kParam.at_least, kUpTo = kParam.up_to;
    if (values == nullptr) return true;
    const double value = values[r];
    op.*kMember = value;
    return value > kAbove && value >= kAtLeast && value <= kUpTo;
  }
  return true;
}
template <class Op>
HWY_INLINE bool AtRow(Op& op, const cuda::ForParams<Op, const double>& per_row, size_t r) {
  return [&]<size_t... i>(std::index_sequence<i...>) HWY_ATTR { return (SetParam<i>(op, per_row.of[i], r) && ...); }
  (std::make_index_sequence<cuda::ForParams<Op, double>::kCount>());
}

// Two neighbours of a row, which a thread reads and writes at once.
template <class S>
struct alignas(2 * sizeof(S)) Neighbours {
  S of[2];
} __attribute__((may_alias));

// The entries of a row in the type of the computation, one at a time, without a copy of the row. A device converts float16 by
// one instruction; except for NaN's payload it has the bits of the host's conversion.
template <class S>
class EntriesOf {
 public:
  using T = Working<S>;
  HWY_INLINE EntriesOf(const cuda::Rows& rows, size_t r) : entries_(static_cast<S*>(rows.data) + r * rows.stride) {}
  // The entries from i on.
  HWY_INLINE EntriesOf From(size_t i) const {
    EntriesOf rest = *this;
    rest.entries_ += i;
    return rest;
  }
  HWY_INLINE T operator()(size_t i) const { return Widened(entries_[i]); }
  HWY_INLINE const S* AddressOf(size_t i) const { return entries_ + i; }
  static HWY_INLINE T Widened(S entry) {
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<S, float16>) {
      float wide;
      asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(entry.bits));
      return wide;
    } else
#endif
      return static_cast<T>(entry);
  }
  HWY_INLINE void Put(size_t i, T value) const {
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<S, float16>) {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(entries_[i].bits) : "f"(value));
    } else if constexpr (std::is_same_v<S, bfloat16>) {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(entries_[i].bits) : "f"(value));
    } else
#endif
      entries_[i] = static_cast<S>(value);
  }
  // The entries i and i + 1, of which the first begins at a multiple of both.
  HWY_INLINE Neighbours<S>* NeighboursAt(size_t i) const { return reinterpret_cast<Neighbours<S>*>(entries_ + i); }
  static HWY_INLINE Neighbours<S> Narrowed(T first, T second) {
#ifdef __CUDA_ARCH__
    Neighbours<S> both;
    uint32_t bits;
    if constexpr (std::is_same_v<S, float16>) {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
      memcpy(&both, &bits, sizeof both);
      return both;
    } else if constexpr (std::is_same_v<S, bfloat16>) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
      memcpy(&both, &bits, sizeof both);
      return both;
    } else
#endif
      return {{static_cast<S>(first), static_cast<S>(second)}};
  }
  // The larger of both first and of both second entries; NaN is left out.
  static HWY_INLINE Neighbours<S> LargerOf(Neighbours<S> a, Neighbours<S> b) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(S) == 2) {
      uint32_t bits_a, bits_b;
      memcpy(&bits_a, &a, sizeof a), memcpy(&bits_b, &b, sizeof b);
      if constexpr (std::is_same_v<S, float16>) {
        asm("max.f16x2 %0, %0, %1;" : "+r"(bits_a) : "r"(bits_b));
      } else {
        asm("max.bf16x2 %0, %0, %1;" : "+r"(bits_a) : "r"(bits_b));
      }
      memcpy(&a, &bits_a, sizeof a);
    } else
#endif
      for (unsigned e = 0; e < 2; ++e) a.of[e] = static_cast<S>(fmaxf(Widened(a.of[e]), Widened(b.of[e])));
    return a;
  }
  // The row as pieces of 16 bytes; null if it does not begin at a multiple of 16.
  HWY_INLINE const Quad* Quads() const {
    return reinterpret_cast<uintptr_t>(entries_) % 16 == 0 ? reinterpret_cast<const Quad*>(entries_) : nullptr;
  }

 private:
  S* entries_;
};

// Copies a row to a place that is aligned to 16 bytes. Each thread issues many loads before its stores, which keeps memory
// busy.
template <class S, class T>
HWY_INLINE void Stage(const EntriesOf<S>& row, size_t n, T* to) {
  constexpr size_t kAtOnce = 4, kEach = 16 / sizeof(S);
  const size_t quads = row.Quads() == nullptr ? 0 : n / kEach;
  for (size_t first = Team::Rank(); first < quads; first += kAtOnce * Team::Size()) {
    Quad read[kAtOnce];
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kAtOnce; ++k) {
      const size_t q = first + k * Team::Size();
      if (q < quads) read[k] = row.Quads()[q];
    }
    ISENTROPIC_UNROLL
    for (size_t k = 0; k < kAtOnce; ++k) {
      const size_t q = first + k * Team::Size();
      if (q >= quads) continue;
      S entries[kEach];
      memcpy(entries, &read[k], 16);
      alignas(16) T wide[kEach];
      ISENTROPIC_UNROLL
      for (size_t e = 0; e < kEach; ++e) wide[e] = EntriesOf<S>::Widened(entries[e]);
      ISENTROPIC_UNROLL
      for (size_t e = 0; e < kEach; e += 16 / sizeof(T)) {
        memcpy(&read[k], wide + e, 16);
        reinterpret_cast<Quad*>(to + q * kEach)[e / (16 / sizeof(T))] = read[k];
      }
    }
  }
  for (size_t i = quads * kEach + Team::Rank(); i < n; i += Team::Size()) to[i] = row(i);
  Team::Barrier();
}

// Row r in the type of the computation: in place, or a copy. A block copies it into its shared memory if that has room.
template <class T>
HWY_INLINE const T* ReadRow(const cuda::Rows& rows, size_t r, size_t n, Arena& memory) {
  if (T* const near = memory.take_near<T>(n)) {
    Team::Barrier();  // a thread may still read the row before
    if constexpr (sizeof(T) == 4) {
      if (rows.stored == cuda::Stored::float16) return Stage(EntriesOf<float16>(rows, r), n, near), near;
      if (rows.stored == cuda::Stored::bfloat16) return Stage(EntriesOf<bfloat16>(rows, r), n, near), near;
    }
    return Stage(EntriesOf<T>(rows, r), n, near), near;
  }
  if constexpr (sizeof(T) == 4) {
    if (rows.stored != cuda::Stored::as_worked_on) {
      T* const copy = memory.take<T>(n);
      if (rows.stored == cuda::Stored::float16) {
        Stage(EntriesOf<float16>(rows, r), n, copy);
      } else {
        Stage(EntriesOf<bfloat16>(rows, r), n, copy);
      }
      return copy;
    }
  }
  return static_cast<const T*>(rows.data) + r * rows.stride;
}
template <class T>
HWY_INLINE T* ResultRow(const cuda::Rows& rows, size_t r, size_t n, Arena& memory) {
  if (rows.stored != cuda::Stored::as_worked_on) return memory.take<T>(n);
  return static_cast<T*>(rows.data) + r * rows.stride;
}
template <class T>
HWY_INLINE void FinishRow(const T* result, const cuda::Rows& rows, size_t r, size_t n) {
  if constexpr (sizeof(T) == 4) {
    if (rows.stored == cuda::Stored::as_worked_on) return;
    auto* const bits = static_cast<uint16_t*>(rows.data) + r * rows.stride;
    ForEachVector(RowTag<T>(), n, [&](size_t i, size_t) HWY_ATTR {
      bits[i] = rows.stored == cuda::Stored::float16 ? float16(result[i]).bits : bfloat16(result[i]).bits;
    });
  }
}

// As NonFiniteRow; p may be x.
template <class T>
HWY_INLINE void WriteNonFinite(const T* x, size_t n, size_t most, T* p) {
  const RowTag<T> d;
  const auto [infinite, nan] = FindNonFinite(x, n);
  if (nan || infinite == 0) return FillRow(d, kNaN<T>, n, p);
  const size_t left = HWY_MIN(infinite, most), end = EndOfFirst(d, x, n, kInfinity<T>, left);
  const T share = static_cast<T>(1.0 / static_cast<double>(left));
  ForEachVector(d, n, [&](size_t i, size_t) HWY_ATTR { p[i] = x[i] == kInfinity<T> && i < end ? share : T(0); });
}

// The first i with y[i] != value, n if there is none.
template <class T>
HWY_INLINE size_t FirstOther(const T* y, size_t n, T value) {
  size_t first = n;
  for (size_t i = Team::Rank(); i < n && first == n; i += Team::Size()) first = y[i] != value ? i : n;
  return Team::Fold(first, n, [](size_t a, size_t b) { return a < b ? a : b; });
}

// As HasInfiniteScore.
template <class T>
HWY_INLINE bool IsInfiniteRow(const T* x, const T* y, size_t n, T no_mass) {
  const size_t first = FirstOther(y, n, no_mass);
  const bool infinite = first < n && x[first] == kInfinity<T> && y[first] == y[first];
  Team::Barrier();  // what is written next may be y
  return infinite;
}

// p of one row.
template <class Op, class T>
HWY_NOINLINE void MapOneRow(const Op& op, const T* x, size_t n, T* p, Arena memory) {
  using Kernels = KernelsOf<Op, T>;
  constexpr auto kScores = Kernels::kScores;
  T* const prepared = memory.take<T>(n);
  const auto row = PrepareRow(RowTag<T>(), kScores, op, x, n, prepared);
  if (IsFinite(row.max)) {
    Kernels::MapRow(row.op, row.x, n, row.max, p, {memory, false});
  } else {
    WriteNonFinite(row.x, n, MostInfinite<Op>(op, row.x, n), p);
  }
}

// p of one row of at most ShortRows::kLongest entries, by one thread.
template <class Op, class T>
HWY_INLINE void MapShortRow(const Op& op, const T* x, size_t n, T* p, Arena memory) {
  using Short = typename KernelsOf<Op, T>::Short;
  constexpr auto kScores = KernelsOf<Op, T>::kScores;
  if (!Short::Takes(op) || NeedsPreparing<T>(kScores, op)) return MapOneRow(op, x, n, p, memory);
  ShortRows<T> row(n);
  const auto max = row.Load(&x, -kInfinity<T>);
  if (!IsFinite(hn::GetLane(max))) return WriteNonFinite(x, n, MostInfinite<Op>(op, x, n), p);
  Short::Map(op, &max, &row, &p, 1);
}

// Stores the gradients in the parameters; one thread writes.
template <class Op>
HWY_INLINE void WriteSlopes(const cuda::Call<Op>& call, const ParamValues<Op>& slopes, size_t r) {
  if (Team::Rank() != 0) return;
  for (size_t k = 0; k < slopes.size(); ++k) {
    if (call.slopes.of[k] != nullptr) call.slopes.of[k][r] = slopes[k];
  }
}

template <class Op>
constexpr bool IsDivisor(double Op::*divisor, double Op::*member) {
  return divisor == member;
}
template <class Op, class Other>
constexpr bool IsDivisor(double Op::*, Other) {
  return false;
}
// The index of the parameter that is T in x/T; the number of parameters if there is none.
template <class Op>
constexpr size_t DivisorOf(double Op::*divisor) {
  size_t found = cuda::ForParams<Op, double>::kCount, i = 0;
  for_each_param<Op>([&](const auto& param) { IsDivisor<Op>(divisor, param.member) ? found = i++ : i++; });
  return found;
}

// As the map's VjpRow.
template <class Op, class T>
HWY_NOINLINE void CalledVjpRow(const Op& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Op>* slopes,
                               Workspace workspace) {
  KernelsOf<Op, T>::VjpRow(op, x, p, g, n, dx, slopes, workspace);
}

// CalledVjpRow, or if kShort the kernels of short rows where they take op.
template <bool kShort, class Op, class T>
HWY_INLINE void VjpByKernels(const Op& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Op>* slopes,
                             Arena memory) {
  if constexpr (kShort && MapContract<Op, T>::kHasShortVjp) {
    if (KernelsOf<Op, T>::Short::TakesVjp(op)) {
      if (slopes != nullptr) CalledVjpRow<Op>(op, x, p, g, n, static_cast<T*>(nullptr), slopes, {memory, false});
      ShortRows<T> p_row(n), g_row(n);
      p_row.Load(&p, T(0)), g_row.Load(&g, T(0));
      return KernelsOf<Op, T>::Short::Vjp(op, &p_row, &g_row, &dx, 1);
    }
  }
  CalledVjpRow<Op>(op, x, p, g, n, dx, slopes, {memory, false});
}

// dx of one row, and the gradients in the parameters; p may be dx. kShort: one thread has the row.
template <class Op, class T, bool kShort>
HWY_INLINE void VjpOneRow(const cuda::Call<Op>& call, const Op& op, size_t r, const T* x, const T* p, const T* g, T* dx,
                          Arena memory) {
  constexpr auto kScores = KernelsOf<Op, T>::kScores;
  const RowTag<T> d;
  const size_t n = call.cols;
  ParamValues<Op> slopes = {};
  if (IsInfiniteRow(x, p, n, T(0))) {
    WriteSlopes(call, slopes, r);
    return FillRow(d, T(0), n, dx);
  }
  constexpr size_t kDivisor = DivisorOf<Op>(kScores.divisor);
  double in_divisor = 0;
  bool wanted = false;
  for (size_t k = 0; k < slopes.size(); ++k) wanted |= k != kDivisor && call.slopes.of[k] != nullptr;
  if constexpr (kScores.divisor != nullptr) {
    // Before dx, which may overwrite p. dx may overflow at an extreme T. So it is calculated for the row that is prepared for
    // the map.
    if (call.slopes.of[kDivisor] != nullptr) {
      Arena rest = memory;
      T* const prepared = rest.take<T>(n);
      T* const slopes_in_x = rest.take<T>(n);
      const auto row = PrepareRow(d, kScores, op, x, n, prepared);
      CalledVjpRow<Op>(row.op, row.x, p, g, n, slopes_in_x, nullptr, {rest, false});
      in_divisor = SlopeInDivisor(row.x, row.max, slopes_in_x, n) / (op.*kScores.divisor);
    }
  }
  VjpByKernels<kShort>(op, x, p, g, n, dx, wanted ? &slopes : nullptr, memory);
  if constexpr (kScores.divisor != nullptr) slopes[kDivisor] = in_divisor;
  WriteSlopes(call, slopes, r);
}

// Calls visit(r, op, good, memory) for each row of this team. good: every parameter of the row is in its range, which only the
// device can check.
template <class Op, class Visit>
HWY_INLINE void ForTeamRows(const cuda::Call<Op>& call, const Visit& visit) {
  const size_t team = Team::Number(), teams = Team::Teams();
  const Team::Bytes near = Team::Near();
  Team::Begin();
  for (size_t r = team; r < call.rows; r += teams) {
    Op op = call.op;
    const bool good = AtRow(op, call.per_row, r);
    visit(r, op, good, Arena(call.memory + team * call.memory_of_team, call.memory_of_team, near.begin, near.count));
  }
}

template <class T>
HWY_INLINE void FillResult(const cuda::Rows& out, size_t r, size_t n, T value, Arena memory) {
  T* const result = ResultRow<T>(out, r, n, memory);
  FillRow(RowTag<T>(), value, n, result);
  FinishRow(result, out, r, n);
}

template <class Op, class T, bool kShort>
HWY_INLINE void MapTeamRows(const cuda::Call<Op>& call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Op& op, bool good, Arena memory) HWY_ATTR {
    if constexpr (std::is_same_v<Op, EntropyNormalize> || std::is_same_v<Op, EntropyClip>) {
      if (call.done != nullptr && call.done[r]) return;
    }
    if (!good) return FillResult(call.out, r, n, kNaN<T>, memory);
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    T* const p = ResultRow<T>(call.out, r, n, memory);
    if constexpr (kShort) {
      MapShortRow(op, x, n, p, memory);
    } else {
      MapOneRow(op, x, n, p, memory);
    }
    FinishRow(p, call.out, r, n);
  });
}

// in: x, p, g. A 16-bit p is computed again, because rounding lost its digits.
template <class Op, class T, bool kShort>
HWY_INLINE void VjpTeamRows(const cuda::Call<Op>& call) {
  const size_t n = call.cols;
  ForTeamRows(call, [&](size_t r, const Op& op, bool good, Arena memory) HWY_ATTR {
    if (!good) {
      ParamValues<Op> none = {};
      for (double& slope : none) slope = kNaN<double>;
      WriteSlopes(call, none, r);
      return FillResult(call.out, r, n, kNaN<T>, memory);
    }
    const T* const x = ReadRow<T>(call.in[0], r, n, memory);
    const T* const g = ReadRow<T>(call.in[2], r, n, memory);
    T* const dx = ResultRow<T>(call.out, r, n, memory);
    const T* p = dx;
    if (sizeof(T) == 8 || call.in[1].stored == cuda::Stored::as_worked_on) {
      p = static_cast<const T*>(call.in[1].data) + r * call.in[1].stride;
    } else if constexpr (kShort) {
      MapShortRow(op, x, n, dx, memory);
    } else if constexpr (sizeof(T) == 4) {
      MapOneRow(op, x, n, dx, memory);
    }
    VjpOneRow<Op, T, kShort>(call, op, r, x, p, g, dx, memory);
    FinishRow(dx, call.out, r, n);
  });
}

// Bytes of memory that a team needs for rows of n: copies of 16-bit rows and of their result, a prepared row, the gradient in x
// from which the one in T follows, and the memory of the map's kernels.
template <class Op, class T>
size_t TeamBytes(size_t n) {
  return 5 * Arena::room<T>(n) + MapContract<Op, T>::Memory(n);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

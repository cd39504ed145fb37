// Linear attention of one head.
//
// With y = (1, k) and x = (1, scale q): 1 + s + s^2/2 = (1 + <x, y>^2) / 2, and <x, y>^2 = sum_{a <= b} c_ab x_a x_b y_a y_b
// with c_ab = 1 if a = b, otherwise 2. Queries need three sums over all keys: sum_j y_a y_b v_j for a <= b, the Gram matrix
// sum_j y_a y_b, and sum_j v_j.
//
// The terms x_a x_b y_a y_b have either sign: they may cancel, which leaves their rounding errors, or overflow. A query for
// which this matters uses the quadratic form. The decision depends only on what this query sees.

#if defined(ISENTROPIC_ATTENTION_LINEAR_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ATTENTION_LINEAR_ATTENTION_INL_H_
#undef ISENTROPIC_ATTENTION_LINEAR_ATTENTION_INL_H_
#else
#define ISENTROPIC_ATTENTION_LINEAR_ATTENTION_INL_H_
#endif

#include "src/attention/kernels.h"
#include "src/attention/product-inl.h"
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// Keys enter a state and queries read it in blocks of kLinearBlock. Blocks are large because each one moves the state through
// the cache once. The quadratic form takes kLinearTile queries at a time.
inline constexpr size_t kLinearBlock = 256, kLinearTile = 64;

// The number of queries of a causal chunk, in whole panels. A chunk and its own keys use the quadratic form; for d = 64 that
// costs less than the state up to about 2000 keys.
HWY_INLINE size_t LinearChunk(size_t queries) {
  return queries <= 2048 ? HWY_MAX((queries + 63) / 64 * 64, kLinearBlock) : 1024;
}

// A query reads the state if sum_a x_a^2 sum_j y_ja^2 is at most kLinearCancels times sum_j (1 + <x, y_j>^2). For independent
// queries and keys it is about once this, or less. The terms' magnitudes sum to at most e times as much (Cauchy-Schwarz), so
// that the relative error is at most e kLinearCancels roundings.
inline constexpr double kLinearCancels = 8;

// The least number of products x_a x_b at a time, for whole a.
inline constexpr size_t kLinearFeatures = 128;

// The state: sums over rows y with weights and vectors v of y_a y_b v for a <= b, weight y y^T, and v.
template <class T>
struct LinearState {
  T *products, *lost;  // pairs x dv, and their rounding errors
  double *gram, *sum;
};

// The memory of one head. Rows of x and y have room for one more vector.
template <class T>
struct LinearMemory {
  size_t e, dv, pairs, row;  // e = d + 1; row: stride of x and y
  size_t chunk, stride;      // queries; stride of scores
  LinearState<T> keys;
  T* gram;        // the Gram matrix of a state, rounded to T
  T *x, *y;       // chunks of (1, scale q) and (1, k)
  T* features;    // products of a block
  T* part;        // the part of a state that a block adds
  T *packed, *s;  // keys of the chunk in panels; scores of a tile
  // For a chunk of queries: sums of weights, and sum_a x_a^2 sum_j y_ja^2 over the keys of the state.
  double *mass, *terms;

  LinearMemory(Arena& arena, size_t m, size_t d, size_t dv_) : chunk(LinearChunk(m)), stride(chunk + 16) {
    e = d + 1, dv = dv_, pairs = e * (e + 1) / 2, row = (e + 31) / 16 * 16;
    const size_t most = kLinearFeatures + e;
    keys = State(arena);
    gram = arena.take<T>(e * e);
    x = arena.take<T>(chunk * row), y = arena.take<T>(chunk * row);
    features = arena.take<T>(kLinearBlock * most + 16), part = arena.take<T>(most * HWY_MAX(e, dv));
    packed = arena.take<T>(chunk * e), s = arena.take<T>(kLinearTile * stride);
    mass = arena.take<double>(chunk), terms = arena.take<double>(chunk);
  }

  LinearState<T> State(Arena& arena) const {
    T *const products = arena.take<T>(pairs * dv), *const lost = arena.take<T>(pairs * dv);
    double *const squares = arena.take<double>(e * e), *const sum = arena.take<double>(dv);
    return {products, lost, squares, sum};
  }
};

template <class T>
HWY_INLINE void Clear(const LinearMemory<T>& memory, const LinearState<T>& state) {
  std::fill(state.products, state.products + memory.pairs * memory.dv, T(0));
  std::fill(state.lost, state.lost + memory.pairs * memory.dv, T(0));
  std::fill(state.gram, state.gram + memory.e * memory.e, 0.0);
  std::fill(state.sum, state.sum + memory.dv, 0.0);
}

template <class T>
HWY_INLINE T* RowAt(T* data, ptrdiff_t stride, size_t r) {
  return data + static_cast<ptrdiff_t>(r) * stride;
}

// Rows (1, factor x) of a chunk.
template <class T>
HWY_NOINLINE HWY_FLATTEN void Augment(const LinearMemory<T>& memory, const T* x, ptrdiff_t x_row, size_t rows, T factor,
                                      T* out) {
  for (size_t r = 0; r < rows; ++r, out += memory.row) {
    const T* const from = x + static_cast<ptrdiff_t>(r) * x_row;
    out[0] = T(1);
    for (size_t c = 0; c + 1 < memory.e; ++c) out[c + 1] = factor * from[c];
    for (size_t c = memory.e; c < memory.row; ++c) out[c] = T(0);
  }
}

// x_a x_b for a <= b and the next a from *first on, contiguous for each row; times c_ab for rows that read a state. Returns the
// number of products.
template <bool kReads, class T>
HWY_NOINLINE HWY_FLATTEN size_t Features(const LinearMemory<T>& memory, const T* x, size_t rows, size_t* first) {
  const RowTag<T> d;
  const size_t e = memory.e, N = hn::Lanes(d), begin = *first;
  size_t count = 0;
  for (; *first < e && count < kLinearFeatures; ++*first) count += e - *first;
  for (size_t r = 0; r < rows; ++r, x += memory.row) {
    T* to = memory.features + r * count;
    for (size_t a = begin; a < *first; to += e - a, ++a) {
      const auto xa = hn::Set(d, kReads ? T(2) * x[a] : x[a]);
      // Whole vectors: the next a overwrites the excess.
      for (size_t b = 0; b < e - a; b += N) hn::StoreU(hn::Mul(xa, hn::LoadU(d, x + a + b)), d, to + b);
      if (kReads) to[0] = x[a] * x[a];
    }
  }
  return count;
}

// to += part; rounding errors are kept for the next addition (Kahan).
template <class T>
HWY_INLINE void AddTo(T* HWY_RESTRICT to, T* HWY_RESTRICT lost, const T* HWY_RESTRICT part, size_t n) {
  const RowTag<T> d;
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto old = LoadUpTo(d, to + i, count, T(0));
    const auto more = hn::Add(LoadUpTo(d, part + i, count, T(0)), LoadUpTo(d, lost + i, count, T(0)));
    const auto sum = hn::Add(old, more);
    StoreUpTo(sum, d, count, to + i);
    StoreUpTo(hn::Sub(more, hn::Sub(sum, old)), d, count, lost + i);
  });
}

// Adds a block of rows y, weighted_y = weight y, and vectors v to a state.
template <class T>
HWY_NOINLINE HWY_FLATTEN void AddRows(const LinearMemory<T>& memory, const LinearState<T>& state, const T* y,
                                      const T* weighted_y, size_t rows, const T* v, ptrdiff_t v_row) {
  const size_t e = memory.e, dv = memory.dv;
  const auto width = static_cast<ptrdiff_t>(dv);
  for (size_t a = 0, at = 0; a < e;) {
    const size_t count = Features<false>(memory, y, rows, &a);
    Product(false, Factor<T>{memory.features, 1, static_cast<ptrdiff_t>(count)}, count, v, v_row, rows, memory.part, width, dv);
    AddTo(state.products + at, state.lost + at, memory.part, count * dv);
    at += count * dv;
  }
  const auto row = static_cast<ptrdiff_t>(memory.row);
  Product(false, Factor<T>{weighted_y, 1, row}, e, y, row, rows, memory.part, static_cast<ptrdiff_t>(e), e);
  for (size_t i = 0; i < e * e; ++i) state.gram[i] += static_cast<double>(memory.part[i]);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < dv; ++c) state.sum[c] += static_cast<double>(RowAt(v, v_row, r)[c]);
  }
}

// For a block of rows x: stores the sum of (1 + <x, y>^2) v in out.
template <class T>
HWY_NOINLINE HWY_FLATTEN void ReadState(const LinearMemory<T>& memory, const LinearState<T>& state, const T* x, size_t rows,
                                        T* out, ptrdiff_t out_row) {
  const size_t e = memory.e, dv = memory.dv;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < dv; ++c) RowAt(out, out_row, r)[c] = static_cast<T>(state.sum[c]);
  }
  const T* products = state.products;
  for (size_t a = 0; a < e;) {
    const size_t count = Features<true>(memory, x, rows, &a);
    Product(true, Factor<T>{memory.features, static_cast<ptrdiff_t>(count), 1}, rows, products, static_cast<ptrdiff_t>(dv),
            count, out, out_row, dv);
    products += count * dv;
  }
}

// For a block of rows x: the sum of 1 + <x, y>^2 over `count` rows y of weight 1, and of x_a^2 y_a^2 over all a.
template <class T>
HWY_NOINLINE HWY_FLATTEN void ReadMass(const LinearMemory<T>& memory, const LinearState<T>& state, size_t count, const T* x,
                                       size_t rows, double* mass, double* terms) {
  const size_t e = memory.e;
  for (size_t i = 0; i < e * e; ++i) memory.gram[i] = static_cast<T>(state.gram[i]);
  const auto step = static_cast<ptrdiff_t>(e);
  Product(false, Factor<T>{x, static_cast<ptrdiff_t>(memory.row), 1}, rows, memory.gram, step, e, memory.features, step, e);
  for (size_t r = 0; r < rows; ++r) {
    mass[r] = static_cast<double>(count);
    terms[r] = 0;
    for (size_t b = 0; b < e; ++b) {
      const auto xb = static_cast<double>(x[r * memory.row + b]);
      mass[r] += static_cast<double>(memory.features[r * e + b]) * xb;
      terms[r] += xb * state.gram[b * e + b] * xb;
    }
  }
}

// Calculates tiles of scores <x, y> of a causal chunk's queries and its own keys, in memory.s, and calls visit(first, count,
// cols) for each: `count` queries from `first` on, and all keys up to the last of these.
template <class T, class Visit>
HWY_INLINE void ForEachDiagonalTile(const LinearMemory<T>& memory, size_t rows, Visit&& visit) {
  const auto row = static_cast<ptrdiff_t>(memory.row);
  PackTransposed(memory.y, row, rows, memory.e, memory.packed);
  for (size_t first = 0, count; first < rows; first += count) {
    count = HWY_MIN(kLinearTile, rows - first);
    ProductWithPanels(Factor<T>{memory.x + first * memory.row, row, 1}, count, memory.packed, memory.e, first + count, memory.s,
                      static_cast<ptrdiff_t>(memory.stride));
    visit(first, count, first + count);
  }
}

// Adds the part of a chunk's own keys: query r sees those up to r.
template <class T>
HWY_NOINLINE HWY_FLATTEN void AddDiagonal(const LinearMemory<T>& memory, size_t rows, const T* v, ptrdiff_t v_row, T* out,
                                          ptrdiff_t out_row, double* mass) {
  const RowTag<T> d;
  const size_t stride = memory.stride;
  ForEachDiagonalTile(memory, rows, [&](size_t first, size_t count, size_t cols) HWY_ATTR {
    for (size_t r = 0; r < count; ++r) {
      T* const s = memory.s + r * stride;
      const size_t seen = first + r + 1;
      mass[first + r] += Sum(d, seen, [&](size_t j, size_t lanes) HWY_ATTR {
        const auto sj = LoadUpTo(d, s + j, lanes, T(0));
        const auto weight = hn::MulAdd(sj, sj, hn::Set(d, T(1)));
        StoreUpTo(weight, d, lanes, s + j);
        return weight;
      });
      FillRow(d, T(0), cols - seen, s + seen);
    }
    // All queries of the tile see the keys before it.
    const bool hides = !AreFinite(RowAt(v, v_row, first), v_row, count, memory.dv);
    AddProduct(hides, Factor<T>{memory.s, static_cast<ptrdiff_t>(stride), 1}, count, v, v_row, cols,
               out + static_cast<ptrdiff_t>(first) * out_row, out_row, memory.dv);
  });
}

// The keys that the queries of a head see. All queries see the first `common` keys; in a causal head the first `none` queries
// see none, and query `none` + i those up to common + i.
struct LinearSight {
  template <class T>
  HWY_INLINE explicit LinearSight(const LinearHead<T>& head)
      : none(head.causal && head.m > head.n ? head.m - head.n
             : head.n == 0                  ? head.m
                                            : 0),
        common(head.causal ? head.n - (head.m - none) : head.n) {}

  size_t none, common;
};

// Adds keys [first, first + count) of a head, at most memory.chunk, to the state.
template <class T>
HWY_INLINE void AddKeys(const LinearMemory<T>& memory, const LinearHead<T>& head, size_t first, size_t count) {
  Augment(memory, RowAt(head.k, head.k_row, first), head.k_row, count, T(1), memory.y);
  for (size_t r = 0; r < count; r += kLinearBlock) {
    const T* const y = memory.y + r * memory.row;
    AddRows(memory, memory.keys, y, y, HWY_MIN(kLinearBlock, count - r), RowAt(head.v, head.v_row, first + r), head.v_row);
  }
}

// For queries [first, first + count) of a head, at most memory.chunk, when the state holds the `keys` keys before their chunk:
// stores twice the sum of weighted values in out, and twice the sum of weights; sets head.cancels. Leaves the queries in
// memory.x and, if causal, the keys in memory.y.
template <class T>
HWY_INLINE void QueryChunk(const LinearMemory<T>& memory, const LinearHead<T>& head, size_t first, size_t count, size_t keys,
                           T* out, ptrdiff_t out_row, double* mass) {
  Augment(memory, RowAt(head.q, head.q_row, first), head.q_row, count, static_cast<T>(head.scale), memory.x);
  for (size_t r = 0; r < count; r += kLinearBlock) {
    const size_t rows = HWY_MIN(kLinearBlock, count - r);
    const T* const x = memory.x + r * memory.row;
    if (keys == 0) {
      for (size_t i = r; i < r + rows; ++i) FillRow(RowTag<T>(), T(0), memory.dv, RowAt(out, out_row, i));
      std::fill(mass + r, mass + r + rows, 0.0);
      std::fill(memory.terms + r, memory.terms + r + rows, 0.0);
    } else {
      ReadState(memory, memory.keys, x, rows, RowAt(out, out_row, r), out_row);
      ReadMass(memory, memory.keys, keys, x, rows, mass + r, memory.terms + r);
    }
  }
  if (head.causal) {
    Augment(memory, RowAt(head.k, head.k_row, keys), head.k_row, count, T(1), memory.y);
    AddDiagonal(memory, count, RowAt(head.v, head.v_row, keys), head.v_row, out, out_row, mass);
  }
  // The keys of the chunk do not count: their <x, y> are summed before they are squared.
  for (size_t r = 0; r < count; ++r) {
    // NaN fulfils no comparison. 1/mass must be a normal number.
    const bool good =
        memory.terms[r] <= kLinearCancels * mass[r] && mass[r] * static_cast<double>(std::numeric_limits<T>::min()) <= 1;
    head.cancels[first + r] = !good || !AreFinite(RowAt(out, out_row, r), 0, 1, memory.dv);
  }
}

template <class T>
size_t LinearRoom(size_t m, size_t d, size_t dv) {
  return room_of<LinearMemory<T>>(m, d, dv);
}

template <class T>
HWY_FLATTEN void LinearHeadRows(const LinearHead<T>& head, Arena arena) {
  const LinearMemory<T> memory(arena, head.m, head.d, head.dv);
  Clear(memory, memory.keys);
  const LinearSight sight(head);
  std::fill(head.cancels, head.cancels + sight.none, false);
  for (size_t r = 0; r < sight.none; ++r) FillRow(RowTag<T>(), T(0), head.dv, RowAt(head.out, head.out_row, r));

  for (size_t j = 0; j < sight.common; j += memory.chunk) AddKeys(memory, head, j, HWY_MIN(memory.chunk, sight.common - j));
  for (size_t i = sight.none; i < head.m; i += memory.chunk) {
    const size_t count = HWY_MIN(memory.chunk, head.m - i);
    const size_t keys = head.causal ? sight.common + (i - sight.none) : head.n;
    T* const out = RowAt(head.out, head.out_row, i);
    QueryChunk(memory, head, i, count, keys, out, head.out_row, memory.mass);
    if (head.causal && i + count < head.m) AddKeys(memory, head, keys, count);
    for (size_t r = 0; r < count; ++r) {
      const T inverse = static_cast<T>(1 / memory.mass[r]);
      for (size_t c = 0; c < head.dv; ++c) RowAt(out, head.out_row, r)[c] *= inverse;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ATTENTION_LINEAR_ATTENTION_INL_H_

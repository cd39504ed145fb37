// The gradient of linear attention of one head, in time linear in the length.
//
// With w = 1 + <x, y>^2, Z_i = sum_j w_ij and g the gradient in out: a_i = g_i/Z_i and c_i = -<g_i, out_i>/Z_i give
//   dv_j = sum_i w_ij a_i,   dw_ij = <a_i, v_j> + c_i,
//   dx_i = 2 sum_j <x_i, y_j> dw_ij y_j,   dy_j = 2 sum_i <x_i, y_j> dw_ij x_i.
// So dx_i = 2 M_i x_i, where M_i = sum_j dw_ij y_j y_j^T is a product of a_i and the state of keys. Keys need the same from a
// state of queries, with rows x, vectors a and weights c. A causal query sees the keys before it, and a key is seen by the
// queries after it: one pass over the chunks runs forwards with the state of keys, the other backwards with the state of
// queries.

#if defined(ISENTROPIC_ATTENTION_LINEAR_ATTENTION_VJP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ATTENTION_LINEAR_ATTENTION_VJP_INL_H_
#undef ISENTROPIC_ATTENTION_LINEAR_ATTENTION_VJP_INL_H_
#else
#define ISENTROPIC_ATTENTION_LINEAR_ATTENTION_VJP_INL_H_
#endif

#include "src/attention/linear_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
struct LinearVjpMemory : LinearMemory<T> {
  LinearState<T> queries;
  T *a, *c;         // for all queries
  T* weighted;      // a block of c x
  T *dx, *dy;       // for a chunk
  T *ut, *xt, *mt;  // for a block, transposed: vectors, rows, and M x
  T *values, *dw;   // values of the chunk in panels; a tile of dw, then of ds

  LinearVjpMemory(Arena& arena, size_t m, size_t d, size_t dv_) : LinearMemory<T>(arena, m, d, dv_) {
    queries = this->State(arena);
    a = arena.take<T>(m * this->dv), c = arena.take<T>(m);
    weighted = arena.take<T>(kLinearBlock * this->row);
    dx = arena.take<T>(this->chunk * this->row), dy = arena.take<T>(this->chunk * this->row);
    ut = arena.take<T>(this->dv * kLinearBlock);
    xt = arena.take<T>(this->e * kLinearBlock), mt = arena.take<T>(this->e * kLinearBlock);
    values = arena.take<T>(this->chunk * this->dv), dw = arena.take<T>(kLinearTile * this->stride);
  }
};

// Transposes a block of rows: each entry goes to a row of kLinearBlock.
template <class T>
HWY_INLINE void TransposeBlock(const T* x, ptrdiff_t x_row, size_t rows, size_t cols, T* out) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) out[c * kLinearBlock + r] = RowAt(x, x_row, r)[c];
  }
}

// For a block of rows x with vectors u and weights (1 without): dx = 2 M x, M = sum (<u, v> + weight) y y^T over the state's y
// and v. Each lane has one row, so the order of every sum does not depend on the vector width.
template <class T>
HWY_NOINLINE HWY_FLATTEN void Slopes(const LinearVjpMemory<T>& memory, const LinearState<T>& state, const T* x, size_t rows,
                                     const T* u, ptrdiff_t u_row, const T* weights, T* dx) {
  const RowTag<T> d;
  const size_t e = memory.e, dv = memory.dv;
  const auto block = static_cast<ptrdiff_t>(kLinearBlock), row = static_cast<ptrdiff_t>(memory.row);
  TransposeBlock(u, u_row, rows, dv, memory.ut);
  TransposeBlock(x, row, rows, e, memory.xt);
  for (size_t i = 0; i < e * e; ++i) memory.gram[i] = static_cast<T>(state.gram[i]);
  Product(false, Factor<T>{memory.gram, static_cast<ptrdiff_t>(e), 1}, e, memory.xt, block, e, memory.mt, block, rows);
  for (size_t b = 0; b < e && weights != nullptr; ++b) {
    for (size_t r = 0; r < rows; ++r) memory.mt[b * kLinearBlock + r] *= weights[r];
  }

  const T* products = state.products;
  for (size_t a = 0; a < e;) {
    const size_t begin = a;
    size_t count = 0;
    for (; a < e && count < kLinearFeatures; ++a) count += e - a;
    Product(false, Factor<T>{products, static_cast<ptrdiff_t>(dv), 1}, count, memory.ut, block, dv, memory.features, block,
            rows);
    const T* entries = memory.features;  // entries of M, row by row
    for (size_t i = begin; i < a; ++i) {
      const T* const xi = memory.xt + i * kLinearBlock;
      T* const mi = memory.mt + i * kLinearBlock;
      for (size_t j = i; j < e; ++j, entries += kLinearBlock) {
        const T* const xj = memory.xt + j * kLinearBlock;
        T* const mj = memory.mt + j * kLinearBlock;
        ForEachVector(d, rows, [&](size_t r, size_t lanes) HWY_ATTR {
          const auto entry = LoadUpTo(d, entries + r, lanes, T(0));
          const auto to_i = hn::MulAdd(entry, LoadUpTo(d, xj + r, lanes, T(0)), LoadUpTo(d, mi + r, lanes, T(0)));
          StoreUpTo(to_i, d, lanes, mi + r);
          if (i == j) return;
          const auto to_j = hn::MulAdd(entry, LoadUpTo(d, xi + r, lanes, T(0)), LoadUpTo(d, mj + r, lanes, T(0)));
          StoreUpTo(to_j, d, lanes, mj + r);
        });
      }
    }
    products += count * dv;
  }
  for (size_t r = 0; r < rows; ++r) {
    for (size_t b = 0; b < e; ++b) RowAt(dx, row, r)[b] = T(2) * memory.mt[b * kLinearBlock + r];
  }
}

// Adds to dx, dy and dv the part from a causal chunk's queries, in memory.x, and its own keys, in memory.y.
template <class T>
HWY_NOINLINE HWY_FLATTEN void DiagonalSlopes(const LinearVjpMemory<T>& memory, size_t rows, const T* v, ptrdiff_t v_row,
                                             const T* a, const T* c, const bool* cancels, T* dv, ptrdiff_t dv_row) {
  const RowTag<T> d;
  const size_t e = memory.e, stride = memory.stride;
  const auto row = static_cast<ptrdiff_t>(memory.row), width = static_cast<ptrdiff_t>(memory.dv);
  const auto step = static_cast<ptrdiff_t>(stride);
  PackTransposed(v, v_row, rows, memory.dv, memory.values);
  ForEachDiagonalTile(memory, rows, [&](size_t first, size_t count, size_t cols) HWY_ATTR {
    const T *const x = memory.x + first * memory.row, *const a_tile = a + first * memory.dv;
    ProductWithPanels(Factor<T>{a_tile, width, 1}, count, memory.values, memory.dv, cols, memory.dw, step);
    for (size_t r = 0; r < count; ++r) {
      T *const s = memory.s + r * stride, *const dw = memory.dw + r * stride;
      const size_t seen = cancels[first + r] ? 0 : first + r + 1;
      const auto weight = hn::Set(d, c[first + r]);
      ForEachVector(d, seen, [&](size_t j, size_t lanes) HWY_ATTR {
        const auto sj = LoadUpTo(d, s + j, lanes, T(0));
        const auto ds = hn::Mul(hn::Add(sj, sj), hn::Add(LoadUpTo(d, dw + j, lanes, T(0)), weight));
        StoreUpTo(ds, d, lanes, dw + j);
        StoreUpTo(hn::MulAdd(sj, sj, hn::Set(d, T(1))), d, lanes, s + j);
      });
      FillRow(d, T(0), cols - seen, s + seen);
      FillRow(d, T(0), cols - seen, dw + seen);
    }
    // All queries of the tile see the keys before it.
    AddProduct(!AreFinite(memory.y + first * memory.row, row, count, e), Factor<T>{memory.dw, step, 1}, count, memory.y, row,
               cols, memory.dx + first * memory.row, row, e);
    Product(true, Factor<T>{memory.dw, 1, step}, cols, x, row, count, memory.dy, row, e);
    Product(true, Factor<T>{memory.s, 1, step}, cols, a_tile, width, count, dv, dv_row, memory.dv);
  });
}

// Adds the part of a chunk of keys, in memory.y, from the state of queries.
template <class T>
HWY_NOINLINE HWY_FLATTEN void KeyChunk(const LinearVjpMemory<T>& memory, const LinearHead<T>& head, const LinearVjp<T>& vjp,
                                       size_t first, size_t count) {
  const auto width = static_cast<ptrdiff_t>(memory.dv);
  for (size_t r = 0; r < count; r += kLinearBlock) {
    const size_t rows = HWY_MIN(kLinearBlock, count - r);
    const T* const y = memory.y + r * memory.row;
    Slopes<T>(memory, memory.queries, y, rows, RowAt(head.v, head.v_row, first + r), head.v_row, nullptr, memory.dy);
    ReadState(memory, memory.queries, y, rows, memory.values, width);
    for (size_t i = 0; i < rows; ++i) {
      T *const dk = RowAt(vjp.dk, vjp.dk_row, first + r + i), *const dv = RowAt(vjp.dv, vjp.dv_row, first + r + i);
      for (size_t b = 1; b < memory.e; ++b) dk[b - 1] += memory.dy[i * memory.row + b];
      for (size_t b = 0; b < memory.dv; ++b) dv[b] += memory.values[i * memory.dv + b];
    }
  }
}

// Rows (1, scale q) of a chunk, but 0 for queries that are left to the quadratic form.
template <class T>
HWY_INLINE void AugmentQueries(const LinearMemory<T>& memory, const LinearHead<T>& head, size_t first, size_t count) {
  Augment(memory, RowAt(head.q, head.q_row, first), head.q_row, count, static_cast<T>(head.scale), memory.x);
  for (size_t r = 0; r < count; ++r) {
    if (head.cancels[first + r]) FillRow(RowTag<T>(), T(0), memory.row, memory.x + r * memory.row);
  }
}

template <class T>
size_t LinearVjpRoom(size_t m, size_t d, size_t dv) {
  return room_of<LinearVjpMemory<T>>(m, d, dv);
}

// Sets dq, and adds to dk and dv, which several heads may share. Queries that are left to the quadratic form have x, a and c of
// 0, so that they add nothing.
template <class T>
HWY_FLATTEN void LinearVjpRows(const LinearHead<T>& head, const LinearVjp<T>& vjp, Arena arena) {
  const LinearVjpMemory<T> memory(arena, head.m, head.d, head.dv);
  const LinearSight sight(head);
  const auto width = static_cast<ptrdiff_t>(head.dv);
  std::fill(head.cancels, head.cancels + sight.none, false);
  for (size_t r = 0; r < sight.none; ++r) FillRow(RowTag<T>(), T(0), head.d, RowAt(vjp.dq, vjp.dq_row, r));
  const auto keys_before = [&](size_t query) { return head.causal ? sight.common + (query - sight.none) : head.n; };

  Clear(memory, memory.keys);
  for (size_t j = 0; j < sight.common; j += memory.chunk) AddKeys(memory, head, j, HWY_MIN(memory.chunk, sight.common - j));
  for (size_t i = sight.none; i < head.m; i += memory.chunk) {
    const size_t count = HWY_MIN(memory.chunk, head.m - i), keys = keys_before(i);
    T *const a = memory.a + i * head.dv, *const c = memory.c + i;
    QueryChunk(memory, head, i, count, keys, a, width, memory.mass);
    for (size_t r = 0; r < count; ++r) {
      const T* const g = RowAt(vjp.g, vjp.g_row, i + r);
      T* const ar = a + r * head.dv;
      const T inverse = static_cast<T>(1 / memory.mass[r]);
      double product = 0;
      for (size_t b = 0; b < head.dv; ++b) {
        product += static_cast<double>(g[b]) * static_cast<double>(ar[b] * inverse);
        ar[b] = g[b] * inverse;
      }
      c[r] = static_cast<T>(-product / memory.mass[r]);
      bool& cancels = head.cancels[i + r];
      cancels = cancels || !AreFinite(ar, 0, 1, head.dv) || !IsFinite(c[r]);
      if (cancels) FillRow(RowTag<T>(), T(0), head.dv, ar), c[r] = 0;
    }
    AugmentQueries(memory, head, i, count);
    for (size_t r = 0; r < count; r += kLinearBlock) {
      const size_t rows = HWY_MIN(kLinearBlock, count - r);
      T* const dx = memory.dx + r * memory.row;
      if (keys == 0) {
        std::fill(dx, dx + rows * memory.row, T(0));
      } else {
        Slopes(memory, memory.keys, memory.x + r * memory.row, rows, a + r * head.dv, width, c + r, dx);
      }
    }
    if (head.causal) {
      std::fill(memory.dy, memory.dy + count * memory.row, T(0));
      DiagonalSlopes(memory, count, RowAt(head.v, head.v_row, keys), head.v_row, a, c, head.cancels + i,
                     RowAt(vjp.dv, vjp.dv_row, keys), vjp.dv_row);
      for (size_t r = 0; r < count; ++r) {
        for (size_t b = 1; b < memory.e; ++b) RowAt(vjp.dk, vjp.dk_row, keys + r)[b - 1] += memory.dy[r * memory.row + b];
      }
      if (i + count < head.m) AddKeys(memory, head, keys, count);
    }
    for (size_t r = 0; r < count; ++r) {
      for (size_t b = 1; b < memory.e; ++b) {
        RowAt(vjp.dq, vjp.dq_row, i + r)[b - 1] = static_cast<T>(head.scale) * memory.dx[r * memory.row + b];
      }
    }
  }

  if (sight.none == head.m) return;
  Clear(memory, memory.queries);
  // Whether the state has a query. Otherwise it is 0, but times a key, which may hold anything, that may be NaN.
  bool read = false;
  const size_t last = sight.none + (head.m - 1 - sight.none) / memory.chunk * memory.chunk;
  for (size_t i = last;; i -= memory.chunk) {
    const size_t count = HWY_MIN(memory.chunk, head.m - i), keys = keys_before(i);
    if (head.causal && i < last) {
      Augment(memory, RowAt(head.k, head.k_row, keys), head.k_row, count, T(1), memory.y);
      if (read) KeyChunk(memory, head, vjp, keys, count);
    }
    read = read || std::find(head.cancels + i, head.cancels + i + count, false) != head.cancels + i + count;
    if (i > sight.none || sight.common > 0) {
      AugmentQueries(memory, head, i, count);
      for (size_t r = 0; r < count; r += kLinearBlock) {
        const size_t rows = HWY_MIN(kLinearBlock, count - r);
        const T* const x = memory.x + r * memory.row;
        for (size_t k = 0; k < rows * memory.row; ++k) memory.weighted[k] = memory.c[i + r + k / memory.row] * x[k];
        AddRows(memory, memory.queries, x, memory.weighted, rows, memory.a + (i + r) * head.dv, width);
      }
    }
    if (i == sight.none) break;
  }
  for (size_t j = 0; read && j < sight.common; j += memory.chunk) {
    const size_t count = HWY_MIN(memory.chunk, sight.common - j);
    Augment(memory, RowAt(head.k, head.k_row, j), head.k_row, count, T(1), memory.y);
    KeyChunk(memory, head, vjp, j, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ATTENTION_LINEAR_ATTENTION_VJP_INL_H_

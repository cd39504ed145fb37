// Linear attention of one head.
//
// With y = (1, k) and x = (1, scale q): 1 + s + s^2/2 = (1 + <x, y>^2) / 2, and <x, y>^2 = sum_{a <= b} c_ab x_a x_b y_a y_b
// with c_ab = 1 where a = b, 2 elsewhere. What queries need of all keys is the state sum_j y_a y_b v_j for a <= b, the Gram
// matrix sum_j y_a y_b, and sum_j v_j; nothing is as large as phi itself.

#if defined(ENTROPIC_ATTENTION_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ATTENTION_LINEAR_INL_H_
#undef ENTROPIC_ATTENTION_LINEAR_INL_H_
#else
#define ENTROPIC_ATTENTION_LINEAR_INL_H_
#endif

#include "src/attention/kernels.h"
#include "src/attention/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Keys or queries at a time. Many, as the state passes through the cache once for each chunk; the part below the diagonal of
// a causal chunk takes kLinearTile queries at a time.
inline constexpr size_t kLinearChunk = 256, kLinearTile = 64;

// The memory of one head, carved from doubles.
template <class T>
struct LinearMemory {
  size_t e, dv, pairs;  // e = d + 1
  double *state, *gram, *sum;
  T *state_t, *gram_t;  // rounded to T, for queries
  T *x, *y;             // chunks of (1, scale q) and (1, k)
  T* weighted;          // chunk rows of dv or e
  T* part;              // e rows of dv or e
  T *packed, *s;        // keys of the chunk in panels; scores of a tile

  static size_t Doubles(size_t e, size_t dv) {
    LinearMemory memory;
    return memory.Carve(e, dv, nullptr);
  }

  // Returns how much is needed; null: only that.
  size_t Carve(size_t e_, size_t dv_, double* at) {
    size_t used = 0;
    e = e_, dv = dv_, pairs = e * (e + 1) / 2;
    const auto take = [&](size_t count, size_t size) {
      double* const begin = at == nullptr ? nullptr : at + used;
      used += (count * size / sizeof(double) + 8) / 8 * 8;
      return begin;
    };
    const auto numbers = [&](size_t count) { return reinterpret_cast<T*>(take(count, sizeof(T))); };
    const size_t wide = HWY_MAX(e, dv);
    state = take(pairs * dv, sizeof(double)), gram = take(e * e, sizeof(double)), sum = take(dv, sizeof(double));
    state_t = numbers(pairs * dv), gram_t = numbers(e * e);
    x = numbers(kLinearChunk * e), y = numbers(kLinearChunk * e);
    weighted = numbers(kLinearChunk * wide), part = numbers(e * wide);
    packed = numbers(kLinearChunk * e), s = numbers(kLinearTile * (kLinearChunk + 16));
    return used;
  }
};

// Rows (1, factor x) of a chunk.
template <class T>
HWY_INLINE void Augment(const T* x, ptrdiff_t x_row, size_t rows, size_t d, T factor, T* out) {
  for (size_t r = 0; r < rows; ++r, out += d + 1) {
    const T* const from = x + static_cast<ptrdiff_t>(r) * x_row;
    out[0] = T(1);
    for (size_t c = 0; c < d; ++c) out[c + 1] = factor * from[c];
  }
}

template <class T>
HWY_INLINE void AddTo(double* to, const T* part, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += static_cast<double>(part[i]);
}

// The keys of a chunk, in memory.y, and their values into the state.
template <class T>
HWY_INLINE void AddKeys(const LinearMemory<T>& memory, size_t rows, const T* v, ptrdiff_t v_row) {
  const size_t e = memory.e, dv = memory.dv;
  const auto step = static_cast<ptrdiff_t>(e), width = static_cast<ptrdiff_t>(dv);
  double* state = memory.state;
  for (size_t a = 0; a < e; ++a) {
    for (size_t r = 0; r < rows; ++r) {
      const T factor = memory.y[r * e + a];
      for (size_t c = 0; c < dv; ++c)
        memory.weighted[r * dv + c] = factor * v[static_cast<ptrdiff_t>(r) * v_row + static_cast<ptrdiff_t>(c)];
    }
    Product(false, Factor<T>{memory.y + a, 1, step}, e - a, memory.weighted, width, rows, memory.part, width, dv);
    AddTo(state, memory.part, (e - a) * dv);
    state += (e - a) * dv;
  }
  Product(false, Factor<T>{memory.y, 1, step}, e, memory.y, step, rows, memory.part, step, e);
  AddTo(memory.gram, memory.part, e * e);
  for (size_t r = 0; r < rows; ++r) AddTo(memory.sum, v + static_cast<ptrdiff_t>(r) * v_row, dv);
}

// The state as queries read it, with c_ab in it.
template <class T>
HWY_INLINE void RoundState(const LinearMemory<T>& memory) {
  const size_t e = memory.e, dv = memory.dv;
  size_t i = 0;
  for (size_t a = 0; a < e; ++a) {
    for (size_t b = a; b < e; ++b) {
      const double factor = a == b ? 1 : 2;
      for (const size_t end = i + dv; i < end; ++i) memory.state_t[i] = static_cast<T>(factor * memory.state[i]);
    }
  }
  for (size_t j = 0; j < e * e; ++j) memory.gram_t[j] = static_cast<T>(memory.gram[j]);
}

// For the queries of a chunk, in memory.x: twice the sum of weighted values, into out, and twice that of weights, of `keys`
// keys in the state.
template <class T>
HWY_INLINE void ReadState(const LinearMemory<T>& memory, size_t rows, double keys, T* out, ptrdiff_t out_row, double* mass) {
  const size_t e = memory.e, dv = memory.dv;
  const auto step = static_cast<ptrdiff_t>(e), width = static_cast<ptrdiff_t>(dv);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < dv; ++c)
      out[static_cast<ptrdiff_t>(r) * out_row + static_cast<ptrdiff_t>(c)] = static_cast<T>(memory.sum[c]);
  }
  const T* state = memory.state_t;
  for (size_t a = 0; a < e; ++a) {
    const size_t terms = e - a;
    for (size_t r = 0; r < rows; ++r) {
      const T* const x = memory.x + r * e;
      for (size_t b = 0; b < terms; ++b) memory.weighted[r * terms + b] = x[a] * x[a + b];
    }
    Product(true, Factor<T>{memory.weighted, static_cast<ptrdiff_t>(terms), 1}, rows, state, width, terms, out, out_row, dv);
    state += terms * dv;
  }
  Product(false, Factor<T>{memory.x, step, 1}, rows, memory.gram_t, step, e, memory.weighted, step, e);
  for (size_t r = 0; r < rows; ++r) {
    mass[r] = keys;
    for (size_t b = 0; b < e; ++b)
      mass[r] += static_cast<double>(memory.weighted[r * e + b]) * static_cast<double>(memory.x[r * e + b]);
  }
}

// Adds what the queries of a chunk see of its own keys: query r those up to r.
template <class T>
HWY_INLINE void AddDiagonal(const LinearMemory<T>& memory, size_t rows, const T* v, ptrdiff_t v_row, T* out, ptrdiff_t out_row,
                            double* mass) {
  const size_t e = memory.e, stride = kLinearChunk + 16;
  PackTransposed(memory.y, static_cast<ptrdiff_t>(e), rows, e, memory.packed);
  for (size_t first = 0; first < rows; first += kLinearTile) {
    const size_t count = HWY_MIN(kLinearTile, rows - first), cols = first + count;
    ProductWithPanels(Factor<T>{memory.x + first * e, static_cast<ptrdiff_t>(e), 1}, count, memory.packed, e, cols, memory.s,
                      static_cast<ptrdiff_t>(stride));
    for (size_t r = 0; r < count; ++r) {
      T* const s = memory.s + r * stride;
      double total = 0;
      for (size_t j = 0; j <= first + r; ++j) {
        s[j] = T(1) + s[j] * s[j];
        total += static_cast<double>(s[j]);
      }
      for (size_t j = first + r + 1; j < cols; ++j) s[j] = 0;
      mass[first + r] += total;
    }
    Product(true, Factor<T>{memory.s, static_cast<ptrdiff_t>(stride), 1}, count, v, v_row, cols,
            out + static_cast<ptrdiff_t>(first) * out_row, out_row, memory.dv);
  }
}

template <class T>
size_t LinearDoubles(size_t d, size_t dv) {
  return LinearMemory<T>::Doubles(d + 1, dv);
}

template <class T>
HWY_FLATTEN void LinearHeadRows(const LinearHead<T>& head, double* at) {
  LinearMemory<T> memory;
  memory.Carve(head.d + 1, head.dv, at);
  const auto row = [](auto* data, ptrdiff_t stride, size_t r) { return data + static_cast<ptrdiff_t>(r) * stride; };
  std::fill(memory.state, memory.state + memory.pairs * head.dv, 0.0);
  std::fill(memory.gram, memory.gram + memory.e * memory.e, 0.0);
  std::fill(memory.sum, memory.sum + head.dv, 0.0);
  // A query that sees nothing, of more queries than keys.
  const size_t none = head.causal && head.m > head.n ? head.m - head.n : head.n == 0 ? head.m : 0;
  for (size_t r = 0; r < none; ++r) FillRow(RowTag<T>(), T(0), head.dv, row(head.out, head.out_row, r));

  // Keys that every query sees, then for causal those of each chunk after its queries.
  const size_t common = head.causal ? head.n - (head.m - none) : head.n;
  const auto add_keys = [&](size_t first, size_t count) {
    Augment(row(head.k, head.k_row, first), head.k_row, count, head.d, T(1), memory.y);
    AddKeys(memory, count, row(head.v, head.v_row, first), head.v_row);
  };
  for (size_t j = 0; j < common; j += kLinearChunk) add_keys(j, HWY_MIN(kLinearChunk, common - j));
  if (!head.causal) RoundState(memory);
  for (size_t i = none; i < head.m; i += kLinearChunk) {
    const size_t count = HWY_MIN(kLinearChunk, head.m - i);
    const size_t key = common + (i - none);  // of a causal chunk its first
    if (head.causal) RoundState(memory);
    Augment(row(head.q, head.q_row, i), head.q_row, count, head.d, static_cast<T>(head.scale), memory.x);
    T* const out = row(head.out, head.out_row, i);
    double mass[kLinearChunk];
    ReadState(memory, count, static_cast<double>(head.causal ? key : head.n), out, head.out_row, mass);
    if (head.causal) {
      Augment(row(head.k, head.k_row, key), head.k_row, count, head.d, T(1), memory.y);
      const T* const v = row(head.v, head.v_row, key);
      AddDiagonal(memory, count, v, head.v_row, out, head.out_row, mass);
      if (i + count < head.m) AddKeys(memory, count, v, head.v_row);
    }
    for (size_t r = 0; r < count; ++r) {
      T* const to = row(out, head.out_row, r);
      const T inverse = static_cast<T>(1 / mass[r]);
      for (size_t c = 0; c < head.dv; ++c) to[c] *= inverse;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace entropic
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ATTENTION_LINEAR_INL_H_

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
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic {
namespace HWY_NAMESPACE {

// Queries of a causal chunk: between themselves and its keys they take the quadratic form, kLinearTile at a time, which for
// d = 64 costs less than the state up to some 2000 keys. Keys into the state and queries from it go kLinearBlock at a time:
// many, as the state passes through the cache once for each block.
inline constexpr size_t kLinearChunk = 1024, kLinearBlock = 256, kLinearTile = 64;

// At least so many products x_a x_b at a time, for whole a.
inline constexpr size_t kLinearFeatures = 128;

// The memory of one head, carved from doubles. Rows of x and y have room for one more vector.
template <class T>
struct LinearMemory {
  size_t e, dv, pairs, row;  // e = d + 1; row: from one of x or y to the next
  T *state, *lost;           // pairs x dv, and what rounding has kept from it
  double *gram, *sum;
  T* gram_t;      // rounded to T, for queries
  T *x, *y;       // chunks of (1, scale q) and (1, k)
  T* features;    // of a block
  T* part;        // of the state
  T *packed, *s;  // keys of the chunk in panels; scores of a tile

  // Returns how much is needed; null: only that.
  size_t Carve(size_t e_, size_t dv_, double* at) {
    size_t used = 0;
    e = e_, dv = dv_, pairs = e * (e + 1) / 2, row = (e + 31) / 16 * 16;
    const auto take = [&](size_t count, size_t size) {
      double* const begin = at == nullptr ? nullptr : at + used;
      used += (count * size / sizeof(double) + 8) / 8 * 8;
      return begin;
    };
    const auto numbers = [&](size_t count) { return reinterpret_cast<T*>(take(count, sizeof(T))); };
    const size_t most = kLinearFeatures + e;
    state = numbers(pairs * dv), lost = numbers(pairs * dv);
    gram = take(e * e, sizeof(double)), sum = take(dv, sizeof(double)), gram_t = numbers(e * e);
    x = numbers(kLinearChunk * row), y = numbers(kLinearChunk * row);
    features = numbers(kLinearBlock * most + 16), part = numbers(most * HWY_MAX(e, dv));
    packed = numbers(kLinearChunk * e), s = numbers(kLinearTile * (kLinearChunk + 16));
    return used;
  }
};

// Rows (1, factor x) of a chunk.
template <class T>
HWY_INLINE void Augment(const LinearMemory<T>& memory, const T* x, ptrdiff_t x_row, size_t rows, T factor, T* out) {
  for (size_t r = 0; r < rows; ++r, out += memory.row) {
    const T* const from = x + static_cast<ptrdiff_t>(r) * x_row;
    out[0] = T(1);
    for (size_t c = 0; c + 1 < memory.e; ++c) out[c + 1] = factor * from[c];
    for (size_t c = memory.e; c < memory.row; ++c) out[c] = T(0);
  }
}

// x_a x_b for a <= b of the next a from *first on, side by side for each row, times c_ab for queries. Returns how many.
template <bool kQueries, class T>
HWY_INLINE size_t Features(const LinearMemory<T>& memory, const T* x, size_t rows, size_t* first) {
  const RowTag<T> d;
  const size_t e = memory.e, N = hn::Lanes(d), begin = *first;
  size_t count = 0;
  for (; *first < e && count < kLinearFeatures; ++*first) count += e - *first;
  for (size_t r = 0; r < rows; ++r, x += memory.row) {
    T* to = memory.features + r * count;
    for (size_t a = begin; a < *first; to += e - a, ++a) {
      const auto xa = hn::Set(d, kQueries ? T(2) * x[a] : x[a]);
      // Whole vectors: the next a writes over what is too much.
      for (size_t b = 0; b < e - a; b += N) hn::StoreU(hn::Mul(xa, hn::LoadU(d, x + a + b)), d, to + b);
      if (kQueries) to[0] = x[a] * x[a];
    }
  }
  return count;
}

// to += part, with the rounding errors carried on to the next time (Kahan).
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

// A block of the keys in memory.y, from `first` on, and their values into the state.
template <class T>
HWY_INLINE void AddKeys(const LinearMemory<T>& memory, size_t first, size_t rows, const T* v, ptrdiff_t v_row) {
  const size_t e = memory.e, dv = memory.dv;
  const T* const y = memory.y + first * memory.row;
  const auto width = static_cast<ptrdiff_t>(dv);
  for (size_t a = 0, at = 0; a < e;) {
    const size_t count = Features<false>(memory, y, rows, &a);
    Product(false, Factor<T>{memory.features, 1, static_cast<ptrdiff_t>(count)}, count, v, v_row, rows, memory.part, width, dv);
    AddTo(memory.state + at, memory.lost + at, memory.part, count * dv);
    at += count * dv;
  }
  const auto row = static_cast<ptrdiff_t>(memory.row);
  Product(false, Factor<T>{y, 1, row}, e, y, row, rows, memory.part, static_cast<ptrdiff_t>(e), e);
  for (size_t i = 0; i < e * e; ++i) memory.gram[i] += static_cast<double>(memory.part[i]);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < dv; ++c) memory.sum[c] += static_cast<double>((v + static_cast<ptrdiff_t>(r) * v_row)[c]);
  }
}

// For a block of the queries in memory.x, from `first` on: twice the sum of weighted values, into out, and twice that of
// weights, of `keys` keys in the state.
template <class T>
HWY_INLINE void ReadState(const LinearMemory<T>& memory, size_t first, size_t rows, double keys, T* out, ptrdiff_t out_row,
                          double* mass) {
  const size_t e = memory.e, dv = memory.dv;
  const T* const x = memory.x + first * memory.row;
  for (size_t r = 0; r < rows; ++r) {
    T* const to = out + static_cast<ptrdiff_t>(r) * out_row;
    for (size_t c = 0; c < dv; ++c) to[c] = static_cast<T>(memory.sum[c]);
  }
  const T* state = memory.state;
  for (size_t a = 0; a < e;) {
    const size_t count = Features<true>(memory, x, rows, &a);
    Product(true, Factor<T>{memory.features, static_cast<ptrdiff_t>(count), 1}, rows, state, static_cast<ptrdiff_t>(dv), count,
            out, out_row, dv);
    state += count * dv;
  }
  // <x, G x>
  for (size_t i = 0; i < e * e; ++i) memory.gram_t[i] = static_cast<T>(memory.gram[i]);
  const auto step = static_cast<ptrdiff_t>(e);
  Product(false, Factor<T>{x, static_cast<ptrdiff_t>(memory.row), 1}, rows, memory.gram_t, step, e, memory.features, step, e);
  for (size_t r = 0; r < rows; ++r) {
    mass[r] = keys;
    for (size_t b = 0; b < e; ++b) {
      mass[r] += static_cast<double>(memory.features[r * e + b]) * static_cast<double>(x[r * memory.row + b]);
    }
  }
}

// Adds what the queries of a chunk see of its own keys: query r those up to r.
template <class T>
HWY_INLINE void AddDiagonal(const LinearMemory<T>& memory, size_t rows, const T* v, ptrdiff_t v_row, T* out, ptrdiff_t out_row,
                            double* mass) {
  const RowTag<T> d;
  const size_t e = memory.e, stride = kLinearChunk + 16;
  PackTransposed(memory.y, static_cast<ptrdiff_t>(memory.row), rows, e, memory.packed);
  for (size_t first = 0; first < rows; first += kLinearTile) {
    const size_t count = HWY_MIN(kLinearTile, rows - first), cols = first + count;
    ProductWithPanels(Factor<T>{memory.x + first * memory.row, static_cast<ptrdiff_t>(memory.row), 1}, count, memory.packed, e,
                      cols, memory.s, static_cast<ptrdiff_t>(stride));
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
    Product(true, Factor<T>{memory.s, static_cast<ptrdiff_t>(stride), 1}, count, v, v_row, cols,
            out + static_cast<ptrdiff_t>(first) * out_row, out_row, memory.dv);
  }
}

template <class T>
size_t LinearDoubles(size_t d, size_t dv) {
  LinearMemory<T> memory;
  return memory.Carve(d + 1, dv, nullptr);
}

template <class T>
HWY_FLATTEN void LinearHeadRows(const LinearHead<T>& head, double* at) {
  LinearMemory<T> memory;
  memory.Carve(head.d + 1, head.dv, at);
  const auto row = [](auto* data, ptrdiff_t stride, size_t r) { return data + static_cast<ptrdiff_t>(r) * stride; };
  std::fill(memory.state, memory.state + memory.pairs * head.dv, T(0));
  std::fill(memory.lost, memory.lost + memory.pairs * head.dv, T(0));
  std::fill(memory.gram, memory.gram + memory.e * memory.e, 0.0);
  std::fill(memory.sum, memory.sum + head.dv, 0.0);
  // A query that sees nothing, of more queries than keys.
  const size_t none = head.causal && head.m > head.n ? head.m - head.n : head.n == 0 ? head.m : 0;
  for (size_t r = 0; r < none; ++r) FillRow(RowTag<T>(), T(0), head.dv, row(head.out, head.out_row, r));

  // Keys that every query sees, then for causal those of each chunk after its queries.
  const size_t common = head.causal ? head.n - (head.m - none) : head.n;
  for (size_t j = 0; j < common; j += kLinearBlock) {
    const size_t count = HWY_MIN(kLinearBlock, common - j);
    Augment(memory, row(head.k, head.k_row, j), head.k_row, count, T(1), memory.y);
    AddKeys(memory, 0, count, row(head.v, head.v_row, j), head.v_row);
  }
  for (size_t i = none; i < head.m; i += kLinearChunk) {
    const size_t count = HWY_MIN(kLinearChunk, head.m - i);
    const size_t key = common + (i - none);  // of a causal chunk its first
    Augment(memory, row(head.q, head.q_row, i), head.q_row, count, static_cast<T>(head.scale), memory.x);
    T* const out = row(head.out, head.out_row, i);
    double mass[kLinearChunk];
    for (size_t r = 0; r < count; r += kLinearBlock) {
      ReadState(memory, r, HWY_MIN(kLinearBlock, count - r), static_cast<double>(head.causal ? key : head.n),
                row(out, head.out_row, r), head.out_row, mass + r);
    }
    if (head.causal) {
      Augment(memory, row(head.k, head.k_row, key), head.k_row, count, T(1), memory.y);
      const T* const v = row(head.v, head.v_row, key);
      AddDiagonal(memory, count, v, head.v_row, out, head.out_row, mass);
      for (size_t r = 0; i + count < head.m && r < count; r += kLinearBlock) {
        AddKeys(memory, r, HWY_MIN(kLinearBlock, count - r), row(v, head.v_row, r), head.v_row);
      }
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

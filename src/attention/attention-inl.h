// Attention of a tile of queries: scores, their map, the mean of the values, and the gradients.

#if defined(ISENTROPIC_ATTENTION_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ATTENTION_ATTENTION_INL_H_
#undef ISENTROPIC_ATTENTION_ATTENTION_INL_H_
#else
#define ISENTROPIC_ATTENTION_ATTENTION_INL_H_
#endif

#include <utility>

#include "src/attention/kernels.h"
#include "src/attention/product-inl.h"
#include "src/rows/entropy-inl.h"
#include "src/rows/exp_log-inl.h"
#include "src/rows/expm1-inl.h"
#include "src/rows/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
inline constexpr T kHidden = -kInfinity<T>;

// Returns how many of the first n keys the masks leave, and marks the blocks that have some.
template <class T>
HWY_INLINE size_t CountSeen(const AttentionMask<T>& mask, size_t b, size_t h, size_t query, size_t n, bool* blocks) {
  const bool* const visible = mask.visible.data == nullptr ? nullptr : mask.visible.row(b, h, query);
  const T* const additive = mask.additive.data == nullptr ? nullptr : mask.additive.row(b, h, query);
  const ptrdiff_t visible_step = mask.visible.col_stride, additive_step = mask.additive.col_stride;
  if (visible == nullptr && additive == nullptr) {
    std::fill_n(blocks, hwy::DivCeil(n, kTermsAtOnce), true);
    return n;
  }
  size_t count = 0;
  for (size_t begin = 0; begin < n; begin += kTermsAtOnce, ++blocks) {
    const size_t end = HWY_MIN(n, begin + kTermsAtOnce);
    static_assert(kTermsAtOnce <= 255);
    uint8_t seen = 0;  // a narrow sum takes many keys at once
    if (additive == nullptr && visible_step == 1) {
      for (size_t j = begin; j < end; ++j) seen = static_cast<uint8_t>(seen + visible[j]);
    } else if (visible == nullptr && additive_step == 1) {
      for (size_t j = begin; j < end; ++j) seen = static_cast<uint8_t>(seen + (additive[j] != kHidden<T>));
    } else {
      for (size_t j = begin; j < end; ++j) {
        const auto at = static_cast<ptrdiff_t>(j);
        const bool hidden = (visible != nullptr && !visible[at * visible_step]) ||
                            (additive != nullptr && additive[at * additive_step] == kHidden<T>);
        seen = static_cast<uint8_t>(seen + !hidden);
      }
    }
    count += seen;
    *blocks = *blocks || seen > 0;
  }
  return count;
}

// Calls visit(begin, end) for each run of marked blocks among the first n keys. Sums skip only whole blocks of terms that are
// 0, so skipping changes no bit.
template <class Visit>
HWY_INLINE void ForEachRun(const bool* blocks, size_t n, const Visit& visit) {
  for (size_t j = 0; j < n;) {
    const size_t begin = j;
    while (j < n && blocks[j / kTermsAtOnce]) j += kTermsAtOnce;
    if (j > begin) visit(begin, HWY_MIN(j, n));
    while (j < n && !blocks[j / kTermsAtOnce]) j += kTermsAtOnce;
  }
}

// Unmarks the blocks in which a sparse map left no mass: the gradient is 0 there. (That of perturb_max is small.)
template <class T>
HWY_INLINE void KeepBlocksWithMass(const AttentionCall<T>& call, const Tile<T>& tile) {
  if (!laws_of(call.options.map).sparse || std::holds_alternative<PerturbMax>(call.options.map)) return;
  const RowTag<T> d;
  for (size_t begin = 0; begin < tile.cols; begin += kTermsAtOnce) {
    bool& block = tile.blocks[begin / kTermsAtOnce];
    const size_t n = HWY_MIN(kTermsAtOnce, tile.cols - begin);
    bool some = false;
    for (size_t r = 0; r < tile.count && block && !some; ++r) {
      const T* const p = tile.p + r * tile.stride + begin;
      auto bits = hn::Zero(d);
      QuickForEachVector(d, n, [&](size_t j, size_t lanes) HWY_ATTR { bits = hn::Or(bits, LoadUpTo(d, p + j, lanes, T(0))); });
      some = !hn::AllTrue(d, hn::Eq(bits, hn::Zero(d)));  // a NaN is some
    }
    block = some;
  }
}

// Applies masks to the scores of one query. A hidden score becomes -inf, whatever it was.
template <class T>
HWY_INLINE void MaskRow(const AttentionMask<T>& mask, size_t b, size_t h, size_t query, size_t n, T* s) {
  if (mask.additive.data != nullptr) {
    const T* const a = mask.additive.row(b, h, query);
    const ptrdiff_t step = mask.additive.col_stride;
    const auto at = [&](size_t j, T value) { s[j] = value == kHidden<T> ? value : s[j] + value; };
    if (step == 1) {
      for (size_t j = 0; j < n; ++j) at(j, a[j]);
    } else {
      for (size_t j = 0; j < n; ++j) at(j, a[static_cast<ptrdiff_t>(j) * step]);
    }
  }
  if (mask.visible.data != nullptr) {
    const bool* const seen = mask.visible.row(b, h, query);
    const ptrdiff_t step = mask.visible.col_stride;
    if (step == 1) {
      for (size_t j = 0; j < n; ++j) s[j] = seen[j] ? s[j] : kHidden<T>;
    } else {
      for (size_t j = 0; j < n; ++j) s[j] = seen[static_cast<ptrdiff_t>(j) * step] ? s[j] : kHidden<T>;
    }
  }
}

// Sets tile.blocks, sets tile.seen and tile.scale for each query, and multiplies the queries by their scale. A query that sees
// no key becomes 0.
template <class T>
HWY_INLINE void ScaleQueries(const AttentionCall<T>& call, const Tile<T>& tile) {
  const size_t d = call.q.cols;
  std::fill_n(tile.blocks, hwy::DivCeil(tile.cols, kTermsAtOnce), false);
  for (size_t r = 0; r < tile.count; ++r) {
    const size_t query = tile.first + r;
    tile.seen[r] = CountSeen(call.mask, tile.batch, tile.head, query, call.keys_before(query + 1), tile.blocks);
    tile.scale[r] = call.scale_of(tile.seen[r], call.query(tile.batch, tile.head, query));
    const T scale = static_cast<T>(tile.scale[r]);
    const T* const from = call.q.row(tile.batch, tile.head, query);
    for (size_t c = 0; c < d; ++c) tile.q[r * d + c] = tile.seen[r] == 0 ? T(0) : scale * from[c];
  }
}

// Scores s become cap tanh(s / cap), and slopes, unless it is null, has the derivative, 1 - tanh^2.
//
// With e = exp(-2t), tanh t is (1 - e) / (1 + e) and its derivative 4e / (1 + e)^2, which do not cancel. Where t^2 / 3 is below
// half an ulp, s stays: s / cap may be subnormal there.
template <class T>
HWY_INLINE void CapRow(double softcap, size_t n, T* s, T* slopes) {
  const RowTag<T> d;
  constexpr T kSmall = sizeof(T) == 4 ? T(0x1p-13) : T(0x1p-27);
  const auto cap = hn::Set(d, static_cast<T>(HWY_MAX(softcap, double{std::numeric_limits<T>::min()})));
  const auto one = hn::Set(d, T(1));
  ForEachVector(d, n, [&](size_t j, size_t lanes) HWY_ATTR {
    const auto sj = LoadUpTo(d, s + j, lanes, T(0));
    const auto t = hn::Div(hn::Abs(sj), cap), twice = hn::Neg(hn::Add(t, t));
    const auto e = Exp(d, twice), sum = hn::Add(one, e);
    const auto capped = hn::Mul(cap, hn::Div(hn::Neg(Expm1(d, twice, e)), sum));
    StoreUpTo(hn::IfThenElse(hn::Lt(t, hn::Set(d, kSmall)), sj, hn::CopySign(capped, sj)), d, lanes, s + j);
    if (slopes != nullptr) {
      StoreUpTo(hn::Div(hn::Mul(hn::Set(d, T(4)), e), hn::Mul(sum, sum)), d, lanes, slopes + j);
    }
  });
}

// Computes the masked scores of the tile, the sink's after those of the keys, and the distributions.
template <class T>
HWY_INLINE void MapTile(const AttentionCall<T>& call, const Tile<T>& tile) {
  const size_t d = call.q.cols, stride = tile.stride, n = tile.cols + call.further();
  ScaleQueries(call, tile);
  ForEachRun(tile.blocks, tile.cols, [&](size_t begin, size_t end) HWY_ATTR {  // masks set the other scores
    ProductWithPanels(Factor<T>{tile.q, static_cast<ptrdiff_t>(d), 1}, tile.count, tile.keys + begin * d, d, end - begin,
                      tile.s + begin, static_cast<ptrdiff_t>(stride));
  });
  for (size_t r = 0; r < tile.count; ++r) {
    const size_t before = call.keys_before(tile.first + r + 1);
    T* const s = tile.s + r * stride;
    if (call.options.softcap) {
      CapRow(*call.options.softcap, before, s, tile.slopes == nullptr ? nullptr : tile.slopes + r * stride);
    }
    MaskRow(call.mask, tile.batch, tile.head, tile.first + r, before, s);
    FillRow(RowTag<T>(), kHidden<T>, tile.cols - before, s + before);
    if (!call.sinks.empty()) s[tile.cols] = call.sinks[call.query(tile.batch, tile.head, tile.first + r)];
  }
  call.map.map(call.options.map, {tile.s, tile.count, n, stride}, {tile.p, tile.count, n, stride}, tile.per_row,
               {0, tile.count, tile.memory, false});
  for (size_t r = 0; r < tile.count; ++r) {
    if (tile.seen[r] == 0) FillRow(RowTag<T>(), T(0), n, tile.p + r * stride);
  }
  KeepBlocksWithMass(call, tile);
}

// Rows of out = weights x, where x may hold anything for keys that are not seen. A row that is not finite is computed again
// without the hidden keys, in the same order: hidden keys change no bit.
//
// also(begin, end) may use each block of weights while it is in the cache.
template <class T, class Also>
HWY_INLINE void WeightedSums(const Tile<T>& tile, const T* weights, const T* x, ptrdiff_t x_row, size_t cols, T* out,
                             ptrdiff_t out_row, const Also& also) {
  const size_t stride = tile.stride, count = tile.count, n = tile.cols;
  const auto add = [&](bool further, size_t begin, size_t end) HWY_ATTR {
    Product(further, Factor<T>{weights + begin, static_cast<ptrdiff_t>(stride), 1}, count,
            x + static_cast<ptrdiff_t>(begin) * x_row, x_row, end - begin, out, out_row, cols);
  };
  bool some = false;
  ForEachRun(tile.blocks, n, [&](size_t begin, size_t end) HWY_ATTR {
    for (size_t k = begin; k < end; k += kTermsAtOnce) {
      const size_t next = HWY_MIN(k + kTermsAtOnce, end);
      add(std::exchange(some, true), k, next);
      also(k, next);
    }
  });
  if (!some) add(false, 0, 0);
  for (size_t r = 0; r < count; ++r) {
    T* const to = out + static_cast<ptrdiff_t>(r) * out_row;
    if (AreFinite(to, 0, 1, cols)) continue;
    const T* const w = weights + r * stride;
    ProductOfSeen(false, Factor<T>{w, 0, 1}, 1, x, x_row, n, to, 0, cols);
    for (size_t c = 0; c < cols; ++c) {
      if (IsFinite(to[c])) continue;
      double sum = 0;  // of float32 numbers it is finite where a sum in float32 is not
      for (size_t j = 0; j < n; ++j) {
        if (w[j] != 0)
          sum +=
              static_cast<double>(w[j]) * static_cast<double>(x[static_cast<ptrdiff_t>(j) * x_row + static_cast<ptrdiff_t>(c)]);
      }
      to[c] = static_cast<T>(sum);
    }
  }
}

template <class T>
HWY_FLATTEN void PackHead(HeadsView<const T> x, size_t b, size_t h, T* packed) {
  PackTransposed(x.row(b, h, 0), x.row_stride, x.rows, x.cols, packed);
}

template <class T>
HWY_FLATTEN void AttentionTile(const AttentionCall<T>& call, const Tile<T>& tile) {
  MapTile(call, tile);
  const size_t b = tile.batch, h = tile.head;
  WeightedSums(tile, tile.p, call.v.row(b, h / call.group, 0), call.v.row_stride, call.v.cols, call.out.row(b, h, tile.first),
               call.out.row_stride, [](size_t, size_t) {});
  for (size_t r = 0; r < tile.count; ++r) {
    const T* const p = tile.p + r * tile.stride;
    if (call.details.weights.data != nullptr) {
      T* const to = call.details.weights.row(b, h, tile.first + r);
      std::copy(p, p + tile.cols, to);
      std::fill(to + tile.cols, to + call.k.rows, tile.cols > 0 && p[0] != p[0] ? p[0] : T(0));
    }
    if (!call.details.entropy.empty()) {
      call.details.entropy[call.query(b, h, tile.first + r)] =
          static_cast<T>(RowEntropy(RowTag<T>(), p, tile.cols + call.further()));
    }
  }
}

// Adds the gradient of <g_entropy, entropy> in the distributions of the tile, -g_entropy (log p + 1), to that in tile.g.
//
// The 1 is left out: every distribution sums to 1, so a map's gradient of a constant is 0. Where p is 0 it is left out as well:
// no map's gradient reads it there.
template <class T>
HWY_INLINE void AddEntropySlopes(const Tile<T>& tile, size_t n, const T* g_entropy) {
  const RowTag<T> d;
  for (size_t r = 0; r < tile.count; ++r) {
    const T* const p = tile.p + r * tile.stride;
    T* const g = tile.g + r * tile.stride;
    const auto weight = hn::Set(d, g_entropy[r]);
    if (g_entropy[r] == 0) continue;
    ForEachVector(d, n, [&](size_t j, size_t lanes) HWY_ATTR {
      const auto pj = LoadUpTo(d, p + j, lanes, T(0));
      const auto log = hn::IfThenZeroElse(hn::Eq(pj, hn::Zero(d)), Log(d, pj));
      StoreUpTo(hn::NegMulAdd(weight, log, LoadUpTo(d, g + j, lanes, T(0))), d, lanes, g + j);
    });
  }
}

// The tile's part of the gradients: it writes dq, and adds to dk and dv. tile.g has as many rows as the scores.
template <class T>
HWY_FLATTEN void AttentionVjpTile(const AttentionCall<T>& call, const VjpCall<T>& vjp, const Tile<T>& tile) {
  const size_t d = call.q.cols, dv = call.v.cols, b = tile.batch, h = tile.head, kv = h / call.group, stride = tile.stride;
  const size_t n = tile.cols + call.further(), first = call.query(b, h, tile.first);
  const auto step = static_cast<ptrdiff_t>(stride);
  MapTile(call, tile);
  for (size_t r = 0; r < tile.count; ++r) {
    const T* const g = vjp.g.row(b, h, tile.first + r);
    for (size_t c = 0; c < dv; ++c) tile.out[r * dv + c] = tile.seen[r] == 0 ? T(0) : g[c];
  }
  for (size_t r = 0; r < tile.count; ++r) {
    for (size_t j = 0; j < tile.cols; j += kTermsAtOnce) {
      if (!tile.blocks[j / kTermsAtOnce])
        FillRow(RowTag<T>(), T(0), HWY_MIN(kTermsAtOnce, tile.cols - j), tile.g + r * stride + j);
    }
  }
  ForEachRun(tile.blocks, tile.cols, [&](size_t begin, size_t end) HWY_ATTR {
    ProductWithPanels(Factor<T>{tile.out, static_cast<ptrdiff_t>(dv), 1}, tile.count, tile.values + begin * dv, dv, end - begin,
                      tile.g + begin, step);
  });
  for (size_t r = 0; r < tile.count && n > tile.cols; ++r) tile.g[r * stride + tile.cols] = 0;  // the value of a sink
  if (!vjp.g_entropy.empty()) AddEntropySlopes(tile, n, vjp.g_entropy.data() + first);
  const MatrixView<T> ds(tile.g, tile.count, n, stride);
  call.map.vjp(call.options.map, {tile.s, tile.count, n, stride}, {tile.p, tile.count, n, stride}, ds, ds, tile.per_row,
               tile.gradients, {0, tile.count, tile.memory, false});
  for (size_t r = 0; r < tile.count; ++r) {
    T *const p = tile.p + r * stride, *const g = tile.g + r * stride;
    if (tile.seen[r] == 0) {
      FillRow(RowTag<T>(), T(0), n, g);
      for (const ParamGradient& gradient : tile.gradients) gradient.values[r] = 0;
    } else if (p[0] != p[0]) {  // the NaN of a query must not reach keys that it does not see
      for (size_t j = 0; j < tile.cols; ++j) {
        if (tile.s[r * stride + j] == kHidden<T>) p[j] = g[j] = 0;
      }
    }
    if (!vjp.dsinks.empty()) vjp.dsinks[first + r] = g[tile.cols];
    if (tile.slopes != nullptr) {
      const T* const slopes = tile.slopes + r * stride;  // of hidden keys they may be NaN
      for (size_t j = 0; j < tile.cols; ++j) g[j] = g[j] == 0 ? T(0) : g[j] * slopes[j];
    }
  }

  const auto hides = [&](const T* x, size_t cols)
                         HWY_ATTR { return !AreFinite(x, static_cast<ptrdiff_t>(cols), tile.count, cols); };
  const bool hides_q = hides(tile.q, d), hides_g = hides(tile.out, dv);
  T* const dq = vjp.dq.row(b, h, tile.first);
  WeightedSums(tile, tile.g, call.k.row(b, kv, 0), call.k.row_stride, d, dq, vjp.dq.row_stride,
               [&](size_t begin, size_t end) HWY_ATTR {
                 AddProduct(hides_q, Factor<T>{tile.g + begin, 1, step}, end - begin, tile.q, static_cast<ptrdiff_t>(d),
                            tile.count, vjp.dk.row(b, kv, begin), vjp.dk.row_stride, d);
                 AddProduct(hides_g, Factor<T>{tile.p + begin, 1, step}, end - begin, tile.out, static_cast<ptrdiff_t>(dv),
                            tile.count, vjp.dv.row(b, kv, begin), vjp.dv.row_stride, dv);
               });
  for (size_t r = 0; r < tile.count; ++r) {
    T* const row = vjp.dq.row(b, h, tile.first + r);
    if (!vjp.dnumbers.empty() || !vjp.dkappas.empty()) {
      const T* const q = call.q.row(b, h, tile.first + r);
      double slope = 0;  // in the scale
      for (size_t c = 0; c < d && tile.seen[r] > 0; ++c) slope += static_cast<double>(q[c]) * static_cast<double>(row[c]);
      if (!vjp.dnumbers.empty()) vjp.dnumbers[first + r] = slope;
      if (!vjp.dkappas.empty()) vjp.dkappas[first + r] = slope * call.slope_in_kappa(tile.seen[r]);
    }
    const T scale = static_cast<T>(tile.scale[r]);
    for (size_t c = 0; c < d; ++c) row[c] = tile.seen[r] == 0 ? T(0) : scale * row[c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ATTENTION_ATTENTION_INL_H_

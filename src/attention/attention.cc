// Attention, dispatched: the kernels for every SIMD target; then, once, checks, memory and threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/attention.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/attention/rows-inl.h"
#include "src/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

ISENTROPIC_KERNELS(MakeAttention);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <array>

#include "src/attention/check.h"
#include "src/check.h"
#include "src/maps/cost.h"
#include "src/parallel.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

template <class T>
AttentionKernels<T> attention_kernels();
ISENTROPIC_KERNELS_BY(attention_kernels, MakeAttention);

// The largest tile, in whole blocks of the product's rows. Long rows have fewer queries in a tile, so that scores stay in the
// cache.
constexpr std::size_t kTileRows = 48, kTileBytes = std::size_t{768} << 10, kPanelCols = 64;
// The same for gradients: for each key of each tile they read and write a row of keys, values and their gradients.
constexpr std::size_t kVjpTileBytes = std::size_t{1536} << 10;

template <class T>
std::size_t group_of(const HeadsView<T>& q, const HeadsView<T>& k) {
  return k.heads == 0 ? 1 : q.heads / k.heads;
}

// Splits parameters with a value for each query, or gradients in them, into attention's own and those of its map.
template <class Numbers>
class Split {
 public:
  explicit Split(std::span<const Numbers> all) {
    for (const Numbers& one : all) {
      const bool own = one.parameter == kNumber || one.parameter == kKappa;
      Part& part = own ? own_ : map_;
      if (part.count == part.all.size()) fail("attention: too many parameters have a value for each query");
      part.all[part.count++] = one;
    }
  }
  std::span<const Numbers> own() const { return std::span(own_.all).first(own_.count); }
  std::span<const Numbers> of_map() const { return std::span(map_.all).first(map_.count); }
  // Empty if there is none.
  auto number() const { return find(kNumber); }
  auto kappa() const { return find(kKappa); }

 private:
  static constexpr std::string_view kNumber = "number", kKappa = "kappa";
  struct Part {
    std::array<Numbers, 4> all;
    std::size_t count = 0;
  };

  decltype(Numbers::values) find(std::string_view name) const {
    for (const Numbers& one : own()) {
      if (one.parameter == name) return one.values;
    }
    return {};
  }

  Part own_, map_;
};

void check_map(const Attention& options, const Split<PerRow>& rows, const Split<ParamGradient>& gradients,
               std::size_t queries) {
  check_params(options, rows.own(), queries);
  if (!rows.number().empty() && options.scale != Attention::Scale::number) {
    fail("attention: number must not have values unless scale is number, got scale {}",
         Described<Attention>::kScales[static_cast<std::size_t>(options.scale)]);
  }
  for (const ParamGradient& asked : gradients.own()) check_per_row<Attention>(asked.parameter, asked.values.size(), queries);
  const bool by_n = options.scale == Attention::Scale::entropy_invariant || options.scale == Attention::Scale::log_n;
  if ((!gradients.kappa().empty() && !by_n) || (!gradients.number().empty() && options.scale != Attention::Scale::number)) {
    fail("attention: there is no gradient in {} where scale is {}", gradients.own()[0].parameter,
         Described<Attention>::kScales[static_cast<std::size_t>(options.scale)]);
  }
  std::visit(
      [&]<class Op>(const Op& op) {
        check_params(op, rows.of_map(), queries);
        for (const ParamGradient& asked : gradients.of_map()) check_per_row<Op>(asked.parameter, asked.values.size(), queries);
      },
      options.map);
}

template <class T>
void check_for_queries(std::string_view name, std::string_view argument, std::span<T> numbers, std::size_t queries) {
  if (!numbers.empty() && numbers.size() != queries) {
    fail("{}: {} must have one entry for each of {} queries, got {}", name, argument, queries, numbers.size());
  }
}

// Whether distributions need memory of their own beside the scores, as a map that takes several rows at once does. Causal
// queries see half of the keys on average.
template <class T>
bool wants_two_tiles(const AttentionCall<T>& call) {
  const std::size_t n = call.k.rows + call.further();
  return call.map.takes_several(call.options.map, call.options.causal ? n / 2 : n);
}

// The memory of one thread, from which tiles are made.
template <class T>
class Workplace {
 public:
  Workplace(Arena& arena, const AttentionCall<T>& call, std::size_t tile_rows, bool vjp, bool two_tiles) {
    const std::size_t d = call.q.cols, n = call.k.rows, dv = call.v.cols;
    const std::size_t panels = (n + kPanelCols - 1) / kPanelCols * kPanelCols;
    stride_ = panels + 16;  // not a multiple of a large power of two: rows would compete for the same cache sets
    const std::size_t scores = tile_rows * stride_;
    keys_ = arena.take<T>(panels * d);
    values_ = arena.take<T>(vjp ? panels * dv : 0);
    q_ = arena.take<T>(tile_rows * d);
    out_ = arena.take<T>(vjp ? tile_rows * dv : 0);
    s_ = arena.take<T>(scores);
    p_ = vjp || two_tiles ? arena.take<T>(scores) : s_;
    g_ = arena.take<T>(vjp ? scores : 0);
    slopes_ = vjp && call.options.softcap ? arena.take<T>(scores) : nullptr;
    blocks_ = arena.take<bool>(panels / kPanelCols);  // more than enough
    seen_ = arena.take<std::size_t>(tile_rows);
    scale_ = arena.take<double>(tile_rows);
    const std::size_t of_map = call.map.memory(call.options.map, n + call.further());
    map_ = {arena.take<std::uint8_t>(of_map), of_map};
  }

  // The tile of queries [first, first + count) of a head whose keys and values are packed.
  Tile<T> tile(const AttentionCall<T>& call, std::size_t b, std::size_t h, std::size_t first, std::size_t count) const {
    return {b,       h,      first,   count,   call.keys_before(first + count),
            stride_, keys_,  values_, q_,      out_,
            s_,      p_,     g_,      slopes_, blocks_,
            seen_,   scale_, map_,    {},      {}};
  }

  T* keys() const { return keys_; }
  T* values() const { return values_; }

 private:
  std::size_t stride_;
  T *keys_, *values_, *q_, *out_, *s_, *p_, *g_, *slopes_;
  bool* blocks_;
  std::size_t* seen_;
  double* scale_;
  Arena map_;
};

template <class T>
std::size_t tile_rows_for(const AttentionCall<T>& call, std::size_t tiles, std::size_t bytes) {
  const std::size_t row = (call.k.rows + 80) * sizeof(T) * tiles;
  return std::clamp<std::size_t>(bytes / row / 6 * 6, 6, kTileRows);
}

// The cost of a query, in units of the time to read one number.
template <class T>
std::size_t cost_of_query(const AttentionCall<T>& call) {
  return call.k.rows * ((call.q.cols + call.v.cols) / 16 + cost_of(call.options.map)) + 1;
}

template <class T>
void clear_head(const HeadsView<T>& x, std::size_t b, std::size_t h) {
  for (std::size_t r = 0; r < x.rows; ++r) std::fill_n(x.row(b, h, r), x.cols, T(0));
}

}  // namespace

template <class T>
void attention(const Attention& options, HeadsView<const std::type_identity_t<T>> q, HeadsView<const std::type_identity_t<T>> k,
               HeadsView<const std::type_identity_t<T>> v, HeadsView<T> out, const AttentionMask<T>& mask,
               std::span<const PerRow> per_row, const AttentionDetails<T>& details,
               std::span<const std::type_identity_t<T>> sinks) {
  constexpr std::string_view kName = Described<Attention>::kDescription.name;
  const std::size_t queries = q.batch * q.heads * q.rows;
  const Split<PerRow> given(per_row);
  check_map(options, given, Split<ParamGradient>({}), queries);
  check_inputs(kName, q, k, v);
  check_heads(kName, "out", out, q.batch, q.heads, q.rows, v.cols, "as q with the columns of v");
  if (details.weights.data != nullptr) {
    check_heads(kName, "weights", details.weights, q.batch, q.heads, q.rows, k.rows, "as q with a column for each key");
  }
  check_for_queries(kName, "entropy", details.entropy, queries);
  check_for_queries(kName, "sinks", sinks, queries);
  const HeadsView<T> entropy(details.entropy.data(), 1, 1, details.entropy.size(), 1);
  check_room(kName, "out", out);
  check_room(kName, "weights", details.weights);
  for (const auto& [in_name, in] : {std::pair("q", q), std::pair("k", k), std::pair("v", v)}) {
    check_apart(kName, "out", out, in_name, in);
    check_apart(kName, "weights", details.weights, in_name, in);
    check_apart(kName, "entropy", entropy, in_name, in);
  }
  check_apart(kName, "weights", details.weights, "out", out);
  check_apart(kName, "entropy", entropy, "out", out);
  check_apart(kName, "entropy", entropy, "weights", details.weights);

  const auto kernel = attention_kernels<T>();
  AttentionCall<T> call = {q, k, v, out, options, mask, details, map_kernels<T>(), group_of(q, k)};
  call.numbers = given.number(), call.kappas = given.kappa(), call.sinks = sinks;
  const bool two_tiles = wants_two_tiles(call);
  const std::size_t rows = tile_rows_for(call, two_tiles ? 2 : 1, kTileBytes), tiles = (q.rows + rows - 1) / rows;
  const std::size_t room = room_of<Workplace<T>>(call, rows, false, two_tiles);
  parallel_rows(q.batch * q.heads * tiles, rows * cost_of_query(call), [&](std::size_t begin, std::size_t end) {
    Arena memory = scratch(room);
    const Workplace<T> workplace(memory, call, rows, false, two_tiles);
    std::size_t packed = q.batch * q.heads;  // the head whose keys are packed; at first none
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t b = i / tiles / q.heads, h = i / tiles % q.heads, first = i % tiles * rows;
      const std::size_t count = std::min(rows, q.rows - first), kv = b * k.heads + h / call.group;
      if (packed != kv) kernel.pack(k, b, h / call.group, workplace.keys());
      packed = kv;
      Tile<T> tile = workplace.tile(call, b, h, first, count);
      tile.per_row = {given.of_map(), call.query(b, h, first)};
      kernel.tile(call, tile);
    }
  });
}

template <class T>
void attention_vjp(const Attention& options, HeadsView<const std::type_identity_t<T>> q,
                   HeadsView<const std::type_identity_t<T>> k, HeadsView<const std::type_identity_t<T>> v,
                   HeadsView<const std::type_identity_t<T>> g, HeadsView<T> dq, HeadsView<T> dk, HeadsView<T> dv,
                   const AttentionMask<T>& mask, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients,
                   std::span<const std::type_identity_t<T>> g_entropy, std::span<const std::type_identity_t<T>> sinks,
                   std::span<std::type_identity_t<T>> dsinks) {
  constexpr std::string_view kName = "attention_vjp";
  const std::size_t queries = q.batch * q.heads * q.rows;
  const Split<PerRow> given(per_row);
  const Split<ParamGradient> asked(gradients);
  check_map(options, given, asked, queries);
  check_inputs(kName, q, k, v);
  check_gradients(kName, q, k, v, g, dq, dk, dv);
  check_for_queries(kName, "g_entropy", g_entropy, queries);
  check_for_queries(kName, "sinks", sinks, queries);
  check_for_queries(kName, "dsinks", dsinks, queries);
  if (!dsinks.empty() && sinks.empty()) fail("{}: dsinks must not be given without sinks", kName);

  const auto kernel = attention_kernels<T>();
  const AttentionDetails<T> none;
  AttentionCall<T> call = {q, k, v, {}, options, mask, none, map_kernels<T>(), group_of(q, k)};
  call.numbers = given.number(), call.kappas = given.kappa(), call.sinks = sinks;
  const VjpCall<T> vjp = {g, dq, dk, dv, g_entropy, dsinks, asked.number(), asked.kappa()};
  const std::size_t rows = tile_rows_for(call, options.softcap ? 4 : 3, kVjpTileBytes);
  const std::size_t room = room_of<Workplace<T>>(call, rows, true, true);
  // All queries of a head add to the same dk and dv, so one thread computes the whole head.
  parallel_rows(k.batch * k.heads, 4 * q.rows * call.group * cost_of_query(call), [&](std::size_t begin, std::size_t end) {
    Arena memory = scratch(room);
    const Workplace<T> workplace(memory, call, rows, true, true);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t b = i / k.heads, kv = i % k.heads;
      clear_head(dk, b, kv);
      clear_head(dv, b, kv);
      kernel.pack(k, b, kv, workplace.keys());
      kernel.pack(v, b, kv, workplace.values());
      for (std::size_t h = kv * call.group; h < (kv + 1) * call.group; ++h) {
        for (std::size_t first = 0; first < q.rows; first += rows) {
          const std::size_t count = std::min(rows, q.rows - first), query = call.query(b, h, first);
          Tile<T> tile = workplace.tile(call, b, h, first, count);
          tile.per_row = {given.of_map(), query};
          tile.gradients = {asked.of_map(), query};
          kernel.vjp_tile(call, vjp, tile);
        }
      }
    }
  });
}

namespace {

template <class T>
LinearHead<T> linear_head(const HeadsView<const T>& q, const HeadsView<const T>& k, const HeadsView<const T>& v, std::size_t b,
                          std::size_t h, const LinearAttention& options, bool* cancels) {
  const std::size_t kv = h / (q.heads / k.heads);
  return {q.rows,         k.rows,         q.cols,          v.cols,          options.scale ? *options.scale : sqrt_scale(q.cols),
          options.causal, q.row(b, h, 0), k.row(b, kv, 0), v.row(b, kv, 0), q.row_stride,
          k.row_stride,   v.row_stride,   cancels};
}

// The quadratic form of linear attention.
Attention quadratic_form(const LinearAttention& options) {
  return {.map = TaylorSoftmax{},
          .scale = options.scale ? Attention::Scale::number : Attention::Scale::sqrt,
          .number = options.scale.value_or(1),
          .causal = options.causal};
}

// Calls visit(first, count) for the runs of chosen queries, in tiles of at most `rows`.
template <class Visit>
void for_each_tile(const bool* chosen, std::size_t queries, std::size_t rows, Visit&& visit) {
  for (std::size_t first = 0, count; first < queries; first += std::max<std::size_t>(count, 1)) {
    for (count = 0; count < rows && first + count < queries && chosen[first + count];) ++count;
    if (count > 0) visit(first, count);
  }
}

// The cost of a head, in units of the time to read one number.
template <class T>
std::size_t cost_of_linear(const HeadsView<const T>& q, const HeadsView<const T>& k, const HeadsView<const T>& v) {
  return (q.rows + k.rows) * (q.cols * q.cols * v.cols / 64 + 1);
}

}  // namespace

template <class T>
void linear_attention(const LinearAttention& options, HeadsView<const std::type_identity_t<T>> q,
                      HeadsView<const std::type_identity_t<T>> k, HeadsView<const std::type_identity_t<T>> v,
                      HeadsView<T> out) {
  constexpr std::string_view kName = Described<LinearAttention>::kDescription.name;
  check_params(options);
  check_inputs(kName, q, k, v);
  check_heads(kName, "out", out, q.batch, q.heads, q.rows, v.cols, "as q with the columns of v");
  check_room(kName, "out", out);
  for (const auto& [in_name, in] : {std::pair("q", q), std::pair("k", k), std::pair("v", v)}) {
    check_apart(kName, "out", out, in_name, in);
  }
  const auto kernel = attention_kernels<T>();
  const Attention quadratic = quadratic_form(options);
  const AttentionMask<T> mask;
  const AttentionDetails<T> none;
  const AttentionCall<T> call = {q, k, v, out, quadratic, mask, none, map_kernels<T>(), group_of(q, k)};
  const bool two_tiles = wants_two_tiles(call);
  const std::size_t rows = tile_rows_for(call, two_tiles ? 2 : 1, kTileBytes);
  const std::size_t room = Arena::room<bool>(q.rows) + std::max(kernel.linear_room(q.rows, q.cols, v.cols),
                                                                room_of<Workplace<T>>(call, rows, false, two_tiles));
  parallel_rows(q.batch * q.heads, cost_of_linear(q, k, v), [&](std::size_t begin, std::size_t end) {
    Arena memory = scratch(room);
    bool* const cancels = memory.take<bool>(q.rows);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t b = i / q.heads, h = i % q.heads;
      LinearHead<T> head = linear_head(q, k, v, b, h, options, cancels);
      head.out = out.row(b, h, 0), head.out_row = out.row_stride;
      kernel.linear(head, memory);
      if (std::find(cancels, cancels + q.rows, true) == cancels + q.rows) continue;
      Arena rest = memory;
      const Workplace<T> workplace(rest, call, rows, false, two_tiles);
      kernel.pack(k, b, h / call.group, workplace.keys());
      for_each_tile(cancels, q.rows, rows,
                    [&](std::size_t first, std::size_t count) { kernel.tile(call, workplace.tile(call, b, h, first, count)); });
    }
  });
}

template <class T>
void linear_attention_vjp(const LinearAttention& options, HeadsView<const std::type_identity_t<T>> q,
                          HeadsView<const std::type_identity_t<T>> k, HeadsView<const std::type_identity_t<T>> v,
                          HeadsView<const std::type_identity_t<T>> g, HeadsView<T> dq, HeadsView<T> dk, HeadsView<T> dv) {
  constexpr std::string_view kName = "linear_attention_vjp";
  check_params(options);
  check_inputs(kName, q, k, v);
  check_gradients(kName, q, k, v, g, dq, dk, dv);
  const auto kernel = attention_kernels<T>();
  const Attention quadratic = quadratic_form(options);
  const AttentionMask<T> mask;
  const AttentionDetails<T> none;
  const AttentionCall<T> call = {q, k, v, {}, quadratic, mask, none, map_kernels<T>(), group_of(q, k)};
  const VjpCall<T> vjp = {g, dq, dk, dv, {}};
  const std::size_t rows = tile_rows_for(call, 3, kVjpTileBytes);
  const std::size_t room = Arena::room<bool>(q.rows) + std::max(kernel.linear_vjp_room(q.rows, q.cols, v.cols),
                                                                room_of<Workplace<T>>(call, rows, true, true));
  // All queries of a head add to the same dk and dv, so one thread computes the whole head.
  parallel_rows(k.batch * k.heads, 4 * call.group * cost_of_linear(q, k, v), [&](std::size_t begin, std::size_t end) {
    Arena memory = scratch(room);
    bool* const cancels = memory.take<bool>(q.rows);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t b = i / k.heads, kv = i % k.heads;
      clear_head(dk, b, kv);
      clear_head(dv, b, kv);
      for (std::size_t h = kv * call.group; h < (kv + 1) * call.group; ++h) {
        kernel.linear_vjp(linear_head(q, k, v, b, h, options, cancels),
                          {g.row(b, h, 0), dq.row(b, h, 0), dk.row(b, kv, 0), dv.row(b, kv, 0), g.row_stride, dq.row_stride,
                           dk.row_stride, dv.row_stride},
                          memory);
        if (std::find(cancels, cancels + q.rows, true) == cancels + q.rows) continue;
        Arena rest = memory;
        const Workplace<T> workplace(rest, call, rows, true, true);
        kernel.pack(k, b, kv, workplace.keys());
        kernel.pack(v, b, kv, workplace.values());
        for_each_tile(cancels, q.rows, rows, [&](std::size_t first, std::size_t count) {
          kernel.vjp_tile(call, vjp, workplace.tile(call, b, h, first, count));
        });
      }
    }
  });
}

template void attention(const Attention&, HeadsView<const float>, HeadsView<const float>, HeadsView<const float>,
                        HeadsView<float>, const AttentionMask<float>&, std::span<const PerRow>, const AttentionDetails<float>&,
                        std::span<const float>);
template void attention(const Attention&, HeadsView<const double>, HeadsView<const double>, HeadsView<const double>,
                        HeadsView<double>, const AttentionMask<double>&, std::span<const PerRow>,
                        const AttentionDetails<double>&, std::span<const double>);
template void attention_vjp(const Attention&, HeadsView<const float>, HeadsView<const float>, HeadsView<const float>,
                            HeadsView<const float>, HeadsView<float>, HeadsView<float>, HeadsView<float>,
                            const AttentionMask<float>&, std::span<const PerRow>, std::span<const ParamGradient>,
                            std::span<const float>, std::span<const float>, std::span<float>);
template void attention_vjp(const Attention&, HeadsView<const double>, HeadsView<const double>, HeadsView<const double>,
                            HeadsView<const double>, HeadsView<double>, HeadsView<double>, HeadsView<double>,
                            const AttentionMask<double>&, std::span<const PerRow>, std::span<const ParamGradient>,
                            std::span<const double>, std::span<const double>, std::span<double>);
template void linear_attention(const LinearAttention&, HeadsView<const float>, HeadsView<const float>, HeadsView<const float>,
                               HeadsView<float>);
template void linear_attention(const LinearAttention&, HeadsView<const double>, HeadsView<const double>,
                               HeadsView<const double>, HeadsView<double>);
template void linear_attention_vjp(const LinearAttention&, HeadsView<const float>, HeadsView<const float>,
                                   HeadsView<const float>, HeadsView<const float>, HeadsView<float>, HeadsView<float>,
                                   HeadsView<float>);
template void linear_attention_vjp(const LinearAttention&, HeadsView<const double>, HeadsView<const double>,
                                   HeadsView<const double>, HeadsView<const double>, HeadsView<double>, HeadsView<double>,
                                   HeadsView<double>);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE

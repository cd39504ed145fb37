// Attention with any map in place of softmax, and attention in time linear in the length.
//
//   const std::vector<double> q = {1, 0, 0, 1}, k = {1, 0, 0, 1}, v = {1, 2, 3, 4};  // two queries, two keys, of two numbers
//   std::vector<double> out(4);
//   const auto heads = [](auto& numbers) { return isentropic::HeadsView(numbers, 1, 1, 2, 2); };
//   isentropic::attention({.map = isentropic::Softmax{}, .causal = true}, heads(q), heads(k), heads(v), heads(out));
//   // out = 1, 2, 2.34, 3.34
//
// out_i = sum_j p_ij v_j,  p_i = map(cap(scale_i <q_i, k_j>) + additive_ij over the keys j that query i sees, sink_i)
//
// Rules:
//   a query that sees no key   out, weights, entropy and gradients are 0, with a sink too
//   a key that is not seen     is as if absent, whatever it and its value hold, NaN too
//   a NaN among seen scores    that query's out is all NaN; a sink is a score
//   a sink                     a score without a key: it takes mass, and its value is 0. It is neither scaled nor counted among
//                              the keys that a query sees, and the last of equal scores. -inf: there is none
//   heads                      q has a multiple of the heads of k and v: consecutive ones share theirs
//   reproducible               the same bits for any number of threads, any batch and heads, any SIMD target with FMA
//   memory                     each thread holds one head of k and v and 48 rows of scores, two to four of each for
//                              gradients, entropy_normalize and entropy_clip, never all scores
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/maps.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A view of batch x heads x rows x cols numbers. The numbers of a row are contiguous; strides count elements. The view does not
// own its memory.
template <class T>
struct HeadsView {
  T* data = nullptr;
  std::size_t batch = 0, heads = 0, rows = 0, cols = 0;
  std::ptrdiff_t batch_stride = 0, head_stride = 0, row_stride = 0;

  HeadsView() = default;
  HeadsView(T* numbers, std::size_t batch_count, std::size_t head_count, std::size_t row_count, std::size_t col_count)
      : data(numbers), batch(batch_count), heads(head_count), rows(row_count), cols(col_count) {
    row_stride = static_cast<std::ptrdiff_t>(cols);
    head_stride = row_stride * static_cast<std::ptrdiff_t>(rows);
    batch_stride = head_stride * static_cast<std::ptrdiff_t>(heads);
  }

  // Of numbers in a container, without gaps. Throws: std::invalid_argument if it has too few.
  template <NumbersOf<T> Numbers>
  HeadsView(Numbers&& numbers, std::size_t batch_count, std::size_t head_count, std::size_t row_count, std::size_t col_count)
      : HeadsView(std::ranges::data(numbers), batch_count, head_count, row_count, col_count) {
    check_holds(std::ranges::size(numbers), batch * heads * rows, cols, cols);
  }

  // A view that may write converts to one that only reads.
  template <class U, class = std::enable_if_t<std::is_same_v<T, const U>>>
  HeadsView(const HeadsView<U>& other)  // NOLINT(google-explicit-constructor)
      : HeadsView(other.data, other.batch, other.heads, other.rows, other.cols) {
    batch_stride = other.batch_stride, head_stride = other.head_stride, row_stride = other.row_stride;
  }

  T* row(std::size_t b, std::size_t h, std::size_t r) const {
    return data + static_cast<std::ptrdiff_t>(b) * batch_stride + static_cast<std::ptrdiff_t>(h) * head_stride +
           static_cast<std::ptrdiff_t>(r) * row_stride;
  }
};

template <std::ranges::contiguous_range Numbers, class... Sizes>
HeadsView(Numbers&&, Sizes...) -> HeadsView<std::remove_reference_t<std::ranges::range_reference_t<Numbers>>>;

// A number for every (batch, head, query, key): a stride of 0 repeats it along an axis.
template <class T>
struct MaskView {
  const T* data = nullptr;  // null: no mask
  std::ptrdiff_t batch_stride = 0, head_stride = 0, row_stride = 0, col_stride = 0;

  const T* row(std::size_t b, std::size_t h, std::size_t r) const {
    return data + static_cast<std::ptrdiff_t>(b) * batch_stride + static_cast<std::ptrdiff_t>(h) * head_stride +
           static_cast<std::ptrdiff_t>(r) * row_stride;
  }
};

// Masks besides `causal`: a key is seen if `visible` is true and `additive`, which is added to its score, is not -inf.
template <class T>
struct AttentionMask {
  MaskView<bool> visible;
  MaskView<T> additive;
};

// Further results, if wanted.
template <class T>
struct AttentionDetails {
  HeadsView<T> weights = {};  // p: batch x heads x queries x keys; with sinks a row's sum may be below 1
  std::span<T> entropy = {};  // -sum p log p of each query, over the sink too, in nats: batch x heads x queries
};

//   out_i = sum_j p_ij v_j, p_i = map(scale_i <q_i, k_j> + mask_ij over the keys j that query i sees)
struct Attention {
  enum class Scale { sqrt, entropy_invariant, log_n, number };

  Map map = Softmax{};  // what turns a query's scores into weights
  // 1/sqrt(d); by the number n of keys that the query sees: log n / (log(train_length) sqrt(d)), or with kappa: kappa log n / d
  // (entropy_invariant), kappa log n / sqrt(d) (log_n); or a number
  Scale scale = Scale::sqrt;
  double number = 1;                   // the scale where it is a number
  double train_length = 512;           // the n at which a scale by n is 1/sqrt(d) without kappa
  std::optional<double> kappa = {};    // the factor of log n in a scale by n
  bool causal = false;                 // query i of m sees only the keys j <= i + n - m: the queries are the last m positions
  std::optional<double> softcap = {};  // scaled scores s become softcap tanh(s / softcap) before the mask

  constexpr std::string_view check() const {
    if (!kappa || scale == Scale::entropy_invariant || scale == Scale::log_n) return {};
    return "kappa must not be given unless scale is entropy_invariant or log_n";
  }
};

// out = the sum of values weighted by p, and the further results in `details`. `per_row` gives parameters of the map, number or
// kappa a value for each of the batch x heads x queries, and `sinks`, if it is not empty, a sink for each.
//
// Shapes: q batch x heads x m x d; k batch x kv_heads x n x d, v batch x kv_heads x n x dv; out batch x heads x m x dv.
// Causal: query i sees the keys up to i + n - m; where m > n the first m - n queries see none, and their out is 0.
// Units: scores have none; entropy is in nats.
// Error: for a score that of a product of d terms in T, for p that of the map, for out that of a product of n terms in T (added
// in blocks of 128).
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void attention(const Attention& options, HeadsView<const std::type_identity_t<T>> q,
                              HeadsView<const std::type_identity_t<T>> k, HeadsView<const std::type_identity_t<T>> v,
                              HeadsView<T> out, const AttentionMask<T>& mask = {}, std::span<const PerRow> per_row = {},
                              const AttentionDetails<T>& details = {}, std::span<const std::type_identity_t<T>> sinks = {});

// The gradient of sum <g, out> in q, k and v, and of <g_entropy, entropy> too if that is not empty; scores are computed again.
// `gradients` takes the gradients in the map's parameters, in number and kappa, batch x heads x queries numbers each; dsinks,
// if it is not empty, that in sinks.
//
// Shapes: g as out; g_entropy, sinks, dsinks one number for each query; dq, dk, dv as q, k, v. Throws: as attention.
template <class T>
ISENTROPIC_API void attention_vjp(const Attention& options, HeadsView<const std::type_identity_t<T>> q,
                                  HeadsView<const std::type_identity_t<T>> k, HeadsView<const std::type_identity_t<T>> v,
                                  HeadsView<const std::type_identity_t<T>> g, HeadsView<T> dq, HeadsView<T> dk, HeadsView<T> dv,
                                  const AttentionMask<T>& mask = {}, std::span<const PerRow> per_row = {},
                                  std::span<const ParamGradient> gradients = {},
                                  std::span<const std::type_identity_t<T>> g_entropy = {},
                                  std::span<const std::type_identity_t<T>> sinks = {},
                                  std::span<std::type_identity_t<T>> dsinks = {});

//   out_i = sum_j f(s_ij) v_j / sum_j f(s_ij), f(s) = 1 + s + s^2/2, s_ij = scale <q_i, k_j>
struct LinearAttention {
  std::optional<double> scale = {};  // factor of <q, k>; 1/sqrt(d) where it is not given
  bool causal = false;               // query i of m sees only the keys j <= i + n - m
};

// attention with the map taylor_softmax of order 2, calculated with phi(x) = (1, x, x_a x_b for a < b, x_a^2 / sqrt 2), which
// has (d + 1) (d + 2) / 2 entries: O(n d^2 dv) time. Rounding errors add up in the sums over keys. A query for which these sums
// cancel or overflow is calculated as by attention, in O(n (d + dv)) time: with x = (1, scale q) and y = (1, k), one for which
// sum_a x_a^2 sum_j y_ja^2 is above 8 sum_j (1 + <x, y_j>^2), or a number is not finite. Its bits do not depend on other
// queries.
//
// Shapes, Throws: as attention without masks.
// Error: as attention's, in units of sum_j (1 + t + t^2/2) |v_j| with t = scale sum_c |q_c k_c| in place of s,
// which are at most 8 (d + 1) times sum_j f(s_j) max |v|, and mostly about once this.
template <class T>
ISENTROPIC_API void linear_attention(const LinearAttention& options, HeadsView<const std::type_identity_t<T>> q,
                                     HeadsView<const std::type_identity_t<T>> k, HeadsView<const std::type_identity_t<T>> v,
                                     HeadsView<T> out);

// The gradient of sum <g, out> in q, k and v, also in time linear in the length but for the same queries, and those for which g
// or a factor of it is not finite.
//
// Shapes: g as out; dq, dk, dv as q, k, v. Throws: as linear_attention.
template <class T>
ISENTROPIC_API void linear_attention_vjp(const LinearAttention& options, HeadsView<const std::type_identity_t<T>> q,
                                         HeadsView<const std::type_identity_t<T>> k, HeadsView<const std::type_identity_t<T>> v,
                                         HeadsView<const std::type_identity_t<T>> g, HeadsView<T> dq, HeadsView<T> dk,
                                         HeadsView<T> dv);

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

inline constexpr ArrayInfo kAttentionArrays[] = {
    {.name = "q", .kind = ArrayKind::heads},
    {.name = "k", .kind = ArrayKind::kv_heads},
    {.name = "v", .kind = ArrayKind::kv_heads},
    {.name = "mask", .kind = ArrayKind::mask, .optional = true},
    {.name = "sinks", .kind = ArrayKind::number, .optional = true},
    {.name = "out", .kind = ArrayKind::heads, .output = true},
    {.name = "weights", .kind = ArrayKind::heads, .output = true, .optional = true},
    {.name = "entropy", .kind = ArrayKind::number, .output = true, .optional = true}};
inline constexpr ArrayInfo kAttentionGradient[] = {
    {.name = "q", .kind = ArrayKind::heads},
    {.name = "k", .kind = ArrayKind::kv_heads},
    {.name = "v", .kind = ArrayKind::kv_heads},
    {.name = "grad", .kind = ArrayKind::heads},
    {.name = "mask", .kind = ArrayKind::mask, .optional = true},
    {.name = "sinks", .kind = ArrayKind::number, .optional = true},
    {.name = "entropy_grad", .kind = ArrayKind::number, .optional = true},
    {.name = "dq", .kind = ArrayKind::heads, .output = true},
    {.name = "dk", .kind = ArrayKind::kv_heads, .output = true},
    {.name = "dv", .kind = ArrayKind::kv_heads, .output = true},
    {.name = "dsinks", .kind = ArrayKind::number, .output = true, .optional = true}};
inline constexpr ArrayInfo kLinearAttentionArrays[] = {{.name = "q", .kind = ArrayKind::heads},
                                                       {.name = "k", .kind = ArrayKind::kv_heads},
                                                       {.name = "v", .kind = ArrayKind::kv_heads},
                                                       {.name = "out", .kind = ArrayKind::heads, .output = true}};
inline constexpr ArrayInfo kLinearAttentionGradient[] = {{.name = "q", .kind = ArrayKind::heads},
                                                         {.name = "k", .kind = ArrayKind::kv_heads},
                                                         {.name = "v", .kind = ArrayKind::kv_heads},
                                                         {.name = "grad", .kind = ArrayKind::heads},
                                                         {.name = "dq", .kind = ArrayKind::heads, .output = true},
                                                         {.name = "dk", .kind = ArrayKind::kv_heads, .output = true},
                                                         {.name = "dv", .kind = ArrayKind::kv_heads, .output = true}};
inline constexpr Absence kAttentionNotIn[] = {{Door::command_line, "its arrays have heads, which a file of rows does not have"},
                                              {Door::device, "on a device it is composed of row kernels and torch's products"},
                                              {Door::ranks, "heads are split, not rows"},
                                              {Door::web, "left out, because each page loads the library"}};

template <>
struct Described<Attention> {
  static constexpr std::string_view kScales[] = {"sqrt", "entropy_invariant", "log_n", "number"};
  static constexpr Description kDescription = {
      .name = "attention",
      .summary =
          "Attention with any map in place of softmax, and a scale that may depend on the number of keys that a query sees.",
      .formula = "out_i = sum_j p_ij v_j, p_i = map(scale_i <q_i, k_j> + mask_ij over the keys j that query i sees)",
      .gradient =
          "dv_j = sum_i p_ij g_i; with ds_i the map's gradient of p_i for <g_i, v_j>: dq_i = scale_i sum_j ds_ij k_j, "
          "dk_j = sum_i scale_i ds_ij q_i",
      .source =
          "Vaswani et al., NeurIPS 2017; scales: Su, kexue.fm 8823, 2021, and Vasylenko et al., 2025 (ASEntmax); sinks: "
          "Xiao et al., ICLR 2024",
      .arrays = kAttentionArrays,
      .jacobian = {.arrays = kAttentionGradient},
      .not_in = kAttentionNotIn,
  };
  static constexpr auto kParams = Params{
      Param<Attention, Map>{.name = "map", .meaning = "what turns a query's scores into weights", .member = &Attention::map},
      Param<Attention, Attention::Scale>{
          .name = "scale",
          .meaning = "1/sqrt(d); by the number n of keys that the query sees: log n / (log(train_length) "
                     "sqrt(d)), or with kappa: kappa log n / d (entropy_invariant), kappa log n / sqrt(d) "
                     "(log_n); or a number",
          .member = &Attention::scale,
          .names = kScales},
      Param<Attention>{
          .name = "number", .meaning = "the scale where it is a number", .member = &Attention::number, .per_row = true},
      Param<Attention>{.name = "train_length",
                       .meaning = "the n at which a scale by n is 1/sqrt(d) without kappa",
                       .member = &Attention::train_length,
                       .above = 1},
      Param<Attention, std::optional<double>>{.name = "kappa",
                                              .meaning = "the factor of log n in a scale by n",
                                              .member = &Attention::kappa,
                                              .above = 0,
                                              .per_row = true},
      Param<Attention, bool>{.name = "causal",
                             .meaning = "query i of m sees only the keys j <= i + n - m: the queries are the last m positions",
                             .member = &Attention::causal},
      Param<Attention, std::optional<double>>{.name = "softcap",
                                              .meaning = "scaled scores s become softcap tanh(s / softcap) before the mask",
                                              .member = &Attention::softcap,
                                              .above = 0}};
};

template <>
struct Described<LinearAttention> {
  static constexpr Description kDescription = {
      .name = "linear_attention",
      .summary = "Attention with taylor_softmax of order 2, in time linear in the number of keys.",
      .formula = "out_i = sum_j f(s_ij) v_j / sum_j f(s_ij), f(s) = 1 + s + s^2/2, s_ij = scale <q_i, k_j>",
      .gradient = "as attention with taylor_softmax",
      .source = "Arora et al., ICML 2024 (Based); Katharopoulos et al., ICML 2020",
      .arrays = kLinearAttentionArrays,
      .jacobian = {.arrays = kLinearAttentionGradient},
      .not_in = kAttentionNotIn,
  };
  static constexpr auto kParams = Params{
      Param<LinearAttention, std::optional<double>>{
          .name = "scale", .meaning = "factor of <q, k>; 1/sqrt(d) where it is not given", .member = &LinearAttention::scale},
      Param<LinearAttention, bool>{
          .name = "causal", .meaning = "query i of m sees only the keys j <= i + n - m", .member = &LinearAttention::causal}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

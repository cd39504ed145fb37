// Draws from distributions over scores, through a chain of steps: reproducible, and from exactly the law that `probs` gives.
//
//   const std::vector<double> x = {2, 1, 0.1};
//   const isentropic::Sampler sampler({isentropic::step::TopK{.k = 2}, isentropic::step::Temperature{.temperature = 0.7}}, 1);
//   const std::int64_t first = sampler.sample(x);                    // an index; equal calls draw the same
//   const std::int64_t second = sampler.sample(x, {.position = 1});  // the next draw of this row
//
// A draw is the index of the largest x_i/T + G_i with independent Gumbel noise G, which has softmax's law (Gumbel 1954). The
// noise of a score depends only on (seed, stream, position, index): not on the batch, the order of rows, the number of threads,
// the other scores or the SIMD target. Equal rows have different draws, because each row has its own stream; successive draws
// from one row have successive positions.
//
// Rules for every draw:
//   NaN in a row               index -1; probs: NaN throughout
//   all scores -inf, cols = 0  index -1; probs: NaN
//   -inf score                 never drawn
//   +inf scores                equally likely, everything else is never drawn; steps cut among them
//   equal scores at a cut      the lower index is kept
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The steps of a chain. The first acts on softmax(x), each other on the renormalised result of the steps before it. Each keeps
// at least one token. Steps with `tokens` among their arrays read the text so far (Texts), and the result of those that are
// `drawn` depends on the draw's noise or on draws before.
namespace step {

//   q_i = p_i^(1/T) / sum_j p_j^(1/T)
struct Temperature {
  double temperature = 1;  // T, divides the scores
};

//   q_i = p_i / sum_{j in K} p_j for i in K, K the k largest
struct TopK {
  std::int64_t k = 0;  // number of tokens that stay; a k above their number keeps all
};

//   q_i = p_i / sum_{j in K} p_j for i in K, K the fewest largest with mass >= p
// If the mass of the largest is within 2^-20 (float) or 2^-40 (double) of p, rounding decides whether one more is kept.
struct TopP {
  double p = 0;  // sum of probabilities to reach; 1 keeps all
};

//   q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= p max p}
struct MinP {
  double p = 0;  // least share of the largest probability that stays
};

//   q_i = p_i / sum_{j in K} p_j for i in K, K the fewest by |-log p - H| with mass >= p
struct TypicalP {
  double p = 0;  // sum of probabilities to reach; 1 keeps all
};

//   q_i = p_i^gamma / sum_j p_j^gamma, gamma > 0 such that -sum q log q is the entropy
struct Entropy {
  double entropy = std::numeric_limits<double>::quiet_NaN();  // in nats
};

//   as entropy where -sum p log p is outside [min_entropy, max_entropy]
struct EntropyClip {
  double min_entropy = 0;                                        // least entropy, in nats
  double max_entropy = std::numeric_limits<double>::infinity();  // largest entropy, in nats

  constexpr std::string_view check() const {
    return min_entropy <= max_entropy ? "" : "min_entropy must be at most max_entropy";
  }
};

//   q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= min(epsilon, max p)}
struct Epsilon {
  double epsilon = 0;  // least probability that stays
};

//   q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= min(epsilon, sqrt(epsilon) exp(-H), max p)}
struct Eta {
  double epsilon = 0;  // the bound where the entropy is low
};

//   q_i = p_i / sum_{j in K} p_j for i in K = {x_i >= max x - n sigma}, sigma^2 the mean of (x - mean x)^2
struct TopNSigma {
  double n = 0;  // number of standard deviations of the finite scores
};

//   q_i = p_i / sum_{j in K} p_j for i in K, K as many of the largest as have -sum q log q <= share H(p)
// The entropy of the j most probable, renormalised, rises with j.
struct TopH {
  double share = 0;  // share of the entropy; 1 keeps all
};

//   q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= sum_j p_j^2}
struct PLess {};

//   q_i = p_i / sum_{j in K} p_j for i in K = {p_i < threshold} and the last of p_i >= threshold by p, then index
// Whether it acts is drawn by the noise of (seed, stream, position), apart from that of the token.
struct Xtc {
  double probability = 0;  // probability that the step acts
  double threshold = 0.1;  // probability that makes a token a top choice
};

//   x_i - presence - count_i frequency for the tokens of the text, x_i first divided by repetition, or multiplied where it is
//   at most 0
struct Penalties {
  double repetition = 1;   // divides positive scores, multiplies others
  double presence = 0;     // subtracted from each token of the text
  double frequency = 0;    // subtracted for each occurrence
  std::int64_t last = 64;  // number of tokens at the text's end that count; 0: none, -1: all
};

//   x_i - multiplier base^(L_i - allowed_length) where the L_i >= allowed_length tokens before an earlier i equal the text's
//   end
// The ending of the text is looked for in the text: of a token that once followed its last L tokens, L the largest, the score
// falls by multiplier base^(L - allowed_length). The ending does not reach over a breaker.
struct Dry {
  double multiplier = 0.8;                  // subtracted from a token that repeats allowed_length tokens
  double base = 1.75;                       // factor for each further token
  std::int64_t allowed_length = 2;          // shortest repetition that counts
  std::vector<std::int64_t> breakers = {};  // tokens at which a repetition ends
  std::int64_t last = -1;                   // number of tokens at the text's end that count; 0: none, -1: all
};

//   q_i = p_i / sum_{j in K} p_j for i in K = {-log p_i <= mu}; then mu - rate (-log q_drawn - surprise)
// Each text has a bound mu, at first twice the target. Tokens whose surprise -log p is at most mu stay. After the draw mu falls
// by rate times the excess of -log q of the drawn token over the target, where q is renormalised over the tokens that stayed.
// It must be the last step.
struct Mirostat {
  double surprise = 0;  // target for the mean of -log q of the drawn tokens, in nats
  double rate = 0.1;    // how fast the bound moves
};

}  // namespace step

// Every step.
using Step = std::variant<step::Temperature, step::TopK, step::TopP, step::MinP, step::TypicalP, step::Entropy,
                          step::EntropyClip, step::Epsilon, step::Eta, step::TopNSigma, step::TopH, step::PLess, step::Xtc,
                          step::Penalties, step::Dry, step::Mirostat>;

// Whether a step reads the text so far.
constexpr bool reads_text(const Description& step) { return step.arrays.size() > 2; }

// What steps may know of rows beside their scores.
struct Texts {
  // The text so far of each row, its first token first; numbers below 0 are no tokens, others are below the number of scores.
  // For penalties and dry.
  MatrixView<const std::int64_t> tokens = {};
  // mirostat's bound of each row, which a draw replaces by the one for the next position; NaN: the text is new. Without bounds
  // every text is new.
  std::span<double> bounds = {};
};

// The noise of the draws from a batch: row r has the stream streams[r] or, without streams, stream + r (modulo 2^64); column c
// of the draws has the position `position` + c.
struct Noise {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t position = 0;
  std::span<const std::uint64_t> streams = {};
};

//   argmax_i x_i/T + G_i, G_i = -log(-log u_i) the noise of (seed, stream, position, index)
struct Sample {
  double temperature = 1;  // T, divides the scores
  bool replace = true;     // draw with replacement; otherwise a row's indices are distinct, as drawn without replacement
};

// Draws from each row: indices(r, c) is the draw at noise.position + c from row r, or -1 if the row has no distribution.
//
// Without `replace` the indices of a row are those of the largest x/T + G at noise.position, in falling order, which is the law
// of draws one after the other, without replacement (Yellott 1977; Vieira 2014); -1 where no score above -inf is left.
//
// Shapes: x rows x cols, fewer than 2^32 columns; indices rows x any number; noise.streams rows, or none.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void sample(const Sample& options, MatrixView<const T> x, MatrixView<std::int64_t> indices, const Noise& noise);

template <WritableView X>
void sample(const Sample& options, const X& x, MatrixView<std::int64_t> indices, const Noise& noise) {
  sample(options, read_only(x), indices, noise);
}

// One draw from one row.
template <RowOfNumbers X>
std::int64_t sample(const Sample& options, const X& x, const Noise& noise) {
  std::int64_t index;
  sample(options, MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), MatrixView(&index, 1, 1), noise);
  return index;
}

// A chain of steps, and draws from the distribution after them.
class ISENTROPIC_API Sampler {
 public:
  // Throws: std::invalid_argument if a parameter is out of its range, or a step follows mirostat.
  explicit Sampler(std::vector<Step> steps, std::uint64_t seed = 0);

  const std::vector<Step>& steps() const { return steps_; }
  std::uint64_t seed() const { return seed_; }

  // The distribution that `sample` draws from, row by row.
  //
  // Shapes: x and p rows x cols; p may be x itself, other overlaps are refused.
  // Throws: std::invalid_argument naming the argument, before anything is written; also if a step's result depends on the draw,
  // as that of mirostat, and of xtc with a probability between 0 and 1.
  template <class T>
  void probs(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p, const Texts& texts = {}) const;

  // log p: in its own precision where p itself would be 0. -inf for what the steps dropped.
  template <class T>
  void log_probs(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y, const Texts& texts = {}) const;

  // As the function sample, which has a temperature as its only step. The sampler's seed is used, noise.seed is not. A chain
  // knows nothing of draws before: for the next token of a growing text give the next position.
  //
  // p, if given, gets the distribution that was drawn from; where that depends on the draw, for one draw only. It may be x
  // itself.
  template <class T>
  void sample(MatrixView<const T> x, MatrixView<std::int64_t> indices, Noise noise = {}, const Texts& texts = {},
              MatrixView<std::type_identity_t<T>> p = {}) const;

  template <WritableView X>
  void sample(const X& x, MatrixView<std::int64_t> indices, Noise noise = {}, const Texts& texts = {},
              MatrixView<NumberIn<X>> p = {}) const {
    sample(read_only(x), indices, noise, texts, p);
  }

  // The distribution of one row, and one draw from it.
  template <RowOfNumbers X, RowOfNumbers P>
  void probs(const X& x, P&& p, const Texts& texts = {}) const {
    probs(row_view(x), row_view(p), texts);
  }
  template <RowOfNumbers X, RowOfNumbers Y>
  void log_probs(const X& x, Y&& y, const Texts& texts = {}) const {
    log_probs(row_view(x), row_view(y), texts);
  }
  template <RowOfNumbers X>
  std::int64_t sample(const X& x, const Noise& noise = {}, const Texts& texts = {}) const {
    std::int64_t index;
    sample(MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), MatrixView(&index, 1, 1), noise, texts);
    return index;
  }

 private:
  template <class T>
  void write(std::string_view name, bool logarithm, MatrixView<const T> x, MatrixView<T> y, const Texts& texts) const;

  std::vector<Step> steps_;
  std::uint64_t seed_;
};

//   p = softmax((x + G) / T), G the noise of sample
struct GumbelSoftmax {
  double temperature = 1;  // T, divides the noisy scores
  bool hard = false;       // the row's largest entry becomes 1 and the others 0
};

// p = softmax((x + G) / T) for each row, where G is the noise at noise.position. With `hard`, p is 1 at the index that sample
// draws at temperature 1 with this noise, and 0 elsewhere. A row without a distribution is NaN.
//
// Shapes: x and p rows x cols; p may be x itself, other overlaps are refused.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void gumbel_softmax(const GumbelSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p,
                                   const Noise& noise);
template <RowOfNumbers X, RowOfNumbers P>
void gumbel_softmax(const GumbelSoftmax& options, const X& x, P&& p, const Noise& noise) {
  gumbel_softmax(options, row_view(x), row_view(p), noise);
}

// The noise itself: g(r, i) = -log(-log u) for index i of row r.
template <class T>
ISENTROPIC_API void gumbel_noise(MatrixView<T> g, const Noise& noise);
template <RowOfNumbers G>
void gumbel_noise(G&& g, const Noise& noise) {
  gumbel_noise(row_view(g), noise);
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

// The allowed values of a list of integers, in words.
template <class Op>
std::string allowed_values(const Param<Op, std::vector<std::int64_t>>& /*param*/) {
  return "integers";
}

inline constexpr ArrayInfo kStepArrays[] = {{.name = "x"}, {.name = "y", .output = true}};
inline constexpr ArrayInfo kTextStepArrays[] = {
    {.name = "x"}, {.name = "tokens", .kind = ArrayKind::indices}, {.name = "y", .output = true}};
inline constexpr ArrayInfo kChainProbsArrays[] = {
    {.name = "x"}, {.name = "y", .output = true}, {.name = "tokens", .kind = ArrayKind::indices, .optional = true}};
inline constexpr ArrayInfo kChainSampleArrays[] = {
    {.name = "x"},
    {.name = "indices", .kind = ArrayKind::indices, .output = true},
    {.name = "tokens", .kind = ArrayKind::indices, .optional = true},
    {.name = "bounds", .kind = ArrayKind::number, .output = true, .optional = true},
    {.name = "y", .output = true, .optional = true}};
inline constexpr Absence kStepNotIn[] = {{Door::c, "a chain of steps is an operation: sampler_probs, sampler_sample"},
                                         {Door::command_line, "a chain of steps is an option: sample --steps"}};
inline constexpr Absence kStepNotSplit[] = {{Door::c, "a chain of steps is an operation: sampler_probs, sampler_sample"},
                                            {Door::command_line, "a chain of steps is an option: sample --steps"},
                                            {Door::ranks, "it is not written in sums over parts of a row"}};
inline constexpr Absence kTextStepNotIn[] = {{Door::c, "a chain of steps is an operation: sampler_probs, sampler_sample"},
                                             {Door::command_line, "a chain of steps is an option: sample --steps"},
                                             {Door::device, "a text is read on the host"},
                                             {Door::ranks, "a text is read on one host"}};
inline constexpr Absence kXtcNotIn[] = {{Door::c, "a chain of steps is an operation: sampler_probs, sampler_sample"},
                                        {Door::command_line, "a chain of steps is an option: sample --steps"},
                                        {Door::device, "a kernel has one chain for all draws from a row"},
                                        {Door::ranks, "it is not written in sums over parts of a row"}};
inline constexpr Absence kStateStepNotIn[] = {{Door::c, "a chain of steps is an operation: sampler_probs, sampler_sample"},
                                              {Door::command_line, "a chain of steps is an option: sample --steps"},
                                              {Door::device, "its bound is kept on the host"},
                                              {Door::ranks, "its bound is kept on one host"}};
inline constexpr ArrayInfo kSampleArrays[] = {{.name = "x"}, {.name = "indices", .kind = ArrayKind::indices, .output = true}};
inline constexpr ArrayInfo kRelaxedArrays[] = {{.name = "x"}, {.name = "y", .output = true}};
inline constexpr Absence kRelaxedNotIn[] = {{Door::command_line, "a relaxed draw is for training"},
                                            {Door::ranks, "it is not written in sums over parts of a row"}};

template <>
struct Described<step::Temperature> {
  static constexpr Description kDescription = {
      .name = "temperature",
      .summary = "Flattens (T > 1) or sharpens (T < 1) the distribution over the tokens that are left.",
      .formula = "q_i = p_i^(1/T) / sum_j p_j^(1/T)",
      .gradient = "none: it is for drawing",
      .source = "Ackley, Hinton, Sejnowski, Cognitive Science 9, 1985",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::Temperature>{.name = "temperature",
                                                                  .meaning = "T, divides the scores",
                                                                  .member = &step::Temperature::temperature,
                                                                  .above = 0,
                                                                  .required = true,
                                                                  .typical = 0.8}};
};

template <>
struct Described<step::TopK> {
  static constexpr Description kDescription = {
      .name = "top_k",
      .summary = "Keeps the k most likely tokens.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K, K the k largest",
      .gradient = "none: it is for drawing",
      .source = "Fan, Lewis, Dauphin, ACL 2018",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams =
      Params{Param<step::TopK, std::int64_t>{.name = "k",
                                             .meaning = "number of tokens that stay; a k above their number keeps all",
                                             .member = &step::TopK::k,
                                             .above = 0,
                                             .required = true,
                                             .typical = 50}};
};

template <>
struct Described<step::TopP> {
  static constexpr Description kDescription = {
      .name = "top_p",
      .summary = "Keeps the fewest most likely tokens whose probabilities sum to at least p.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K, K the fewest largest with mass >= p",
      .gradient = "none: it is for drawing",
      .source = "Holtzman et al., ICLR 2020",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::TopP>{.name = "p",
                                                           .meaning = "sum of probabilities to reach; 1 keeps all",
                                                           .member = &step::TopP::p,
                                                           .above = 0,
                                                           .up_to = 1,
                                                           .required = true,
                                                           .typical = 0.95}};
};

template <>
struct Described<step::MinP> {
  static constexpr Description kDescription = {
      .name = "min_p",
      .summary = "Keeps the tokens at least p times as likely as the most likely one.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= p max p}",
      .gradient = "none: it is for drawing",
      .source = "Nguyen et al., ICLR 2025",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::MinP>{.name = "p",
                                                           .meaning = "least share of the largest probability that stays",
                                                           .member = &step::MinP::p,
                                                           .above = 0,
                                                           .up_to = 1,
                                                           .required = true,
                                                           .typical = 0.05}};
};

template <>
struct Described<step::TypicalP> {
  static constexpr Description kDescription = {
      .name = "typical_p",
      .summary =
          "Keeps the fewest tokens with a surprise near the entropy whose probabilities sum to at least p, the nearest first.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K, K the fewest by |-log p - H| with mass >= p",
      .gradient = "none: it is for drawing",
      .source = "Meister, Pimentel, Wiher, Cotterell, TACL 2023",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::TypicalP>{.name = "p",
                                                               .meaning = "sum of probabilities to reach; 1 keeps all",
                                                               .member = &step::TypicalP::p,
                                                               .above = 0,
                                                               .up_to = 1,
                                                               .required = true,
                                                               .typical = 0.9}};
};

template <>
struct Described<step::Entropy> {
  static constexpr Description kDescription = {
      .name = "entropy",
      .summary =
          "Sets the temperature at which the tokens that are left have a chosen entropy, or the nearest that can be reached.",
      .formula = "q_i = p_i^gamma / sum_j p_j^gamma, gamma > 0 such that -sum q log q is the entropy",
      .gradient = "none: it is for drawing",
      .source = "Su, kexue.fm 8829, 2021",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::Entropy>{.name = "entropy",
                                                              .meaning = "in nats",
                                                              .member = &step::Entropy::entropy,
                                                              .at_least = 0,
                                                              .required = true,
                                                              .typical = 2}};
};

template <>
struct Described<step::EntropyClip> {
  static constexpr Description kDescription = {
      .name = "entropy_clip",
      .summary = "Leaves a distribution whose entropy lies in an interval, and brings any other to the nearer end.",
      .formula = "as entropy where -sum p log p is outside [min_entropy, max_entropy]",
      .gradient = "none: it is for drawing",
      .source = "see entropy",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::EntropyClip>{.name = "min_entropy",
                                                                  .meaning = "least entropy, in nats",
                                                                  .member = &step::EntropyClip::min_entropy,
                                                                  .at_least = 0,
                                                                  .typical = 1},
                                         Param<step::EntropyClip>{.name = "max_entropy",
                                                                  .meaning = "largest entropy, in nats",
                                                                  .member = &step::EntropyClip::max_entropy,
                                                                  .at_least = 0,
                                                                  .up_to = std::numeric_limits<double>::infinity(),
                                                                  .typical = 3}};
};

template <>
struct Described<step::Epsilon> {
  static constexpr Description kDescription = {
      .name = "epsilon",
      .summary = "Keeps the tokens whose probability is at least epsilon, or else the most likely ones.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= min(epsilon, max p)}",
      .gradient = "none: it is for drawing",
      .source = "Hewitt, Manning, Liang, EMNLP Findings 2022",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::Epsilon>{.name = "epsilon",
                                                              .meaning = "least probability that stays",
                                                              .member = &step::Epsilon::epsilon,
                                                              .above = 0,
                                                              .up_to = 1,
                                                              .required = true,
                                                              .typical = 3e-4}};
};

template <>
struct Described<step::Eta> {
  static constexpr Description kDescription = {
      .name = "eta",
      .summary =
          "Keeps the tokens whose probability reaches a bound that falls with the entropy, or else the most likely ones.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= min(epsilon, sqrt(epsilon) exp(-H), max p)}",
      .gradient = "none: it is for drawing",
      .source = "Hewitt, Manning, Liang, EMNLP Findings 2022",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::Eta>{.name = "epsilon",
                                                          .meaning = "the bound where the entropy is low",
                                                          .member = &step::Eta::epsilon,
                                                          .above = 0,
                                                          .up_to = 1,
                                                          .required = true,
                                                          .typical = 3e-4}};
};

template <>
struct Described<step::TopNSigma> {
  static constexpr Description kDescription = {
      .name = "top_n_sigma",
      .summary = "Keeps the scores within n standard deviations of the largest, the same ones at any temperature.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K = {x_i >= max x - n sigma}, sigma^2 the mean of (x - mean x)^2",
      .gradient = "none: it is for drawing",
      .source = "Tang et al., ACL 2025",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{Param<step::TopNSigma>{.name = "n",
                                                                .meaning = "number of standard deviations of the finite scores",
                                                                .member = &step::TopNSigma::n,
                                                                .above = 0,
                                                                .required = true,
                                                                .typical = 1}};
};

template <>
struct Described<step::TopH> {
  static constexpr Description kDescription = {
      .name = "top_h",
      .summary = "Keeps as many of the most likely tokens as have, renormalised, at most a share of the entropy.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K, K as many of the largest as have -sum q log q <= share H(p)",
      .gradient = "none: it is for drawing",
      .source = "Potraghloo et al., NeurIPS 2025",
      .arrays = kStepArrays,
      .not_in = kStepNotSplit,
  };
  static constexpr auto kParams = Params{Param<step::TopH>{.name = "share",
                                                           .meaning = "share of the entropy; 1 keeps all",
                                                           .member = &step::TopH::share,
                                                           .above = 0,
                                                           .up_to = 1,
                                                           .required = true,
                                                           .typical = 0.4}};
};

template <>
struct Described<step::PLess> {
  static constexpr Description kDescription = {
      .name = "p_less",
      .summary = "Keeps the tokens whose probability is at least the probability that two draws are equal.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= sum_j p_j^2}",
      .gradient = "none: it is for drawing",
      .source = "Tan, Wu, Howard, p-less sampling, arXiv 2509.23234",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = Params{};
};

template <>
struct Described<step::Xtc> {
  static constexpr Description kDescription = {
      .name = "xtc",
      .summary = "With a probability, removes all tokens that reach a threshold but the least likely of them.",
      .formula =
          "q_i = p_i / sum_{j in K} p_j for i in K = {p_i < threshold} and the last of p_i >= threshold by p, then index",
      .gradient = "none: it is for drawing",
      .source = "p-e-w, text-generation-webui #6335, 2024; llama.cpp",
      .arrays = kStepArrays,
      .drawn = true,
      .not_in = kXtcNotIn,
  };
  static constexpr auto kParams = Params{Param<step::Xtc>{.name = "probability",
                                                          .meaning = "probability that the step acts",
                                                          .member = &step::Xtc::probability,
                                                          .at_least = 0,
                                                          .up_to = 1,
                                                          .required = true,
                                                          .typical = 0.5},
                                         Param<step::Xtc>{.name = "threshold",
                                                          .meaning = "probability that makes a token a top choice",
                                                          .member = &step::Xtc::threshold,
                                                          .above = 0,
                                                          .up_to = 1}};
};

template <>
struct Described<step::Penalties> {
  static constexpr Description kDescription = {
      .name = "penalties",
      .summary = "Lowers the scores of tokens that the text already has.",
      .formula =
          "x_i - presence - count_i frequency for the tokens of the text, x_i first divided by repetition, or multiplied "
          "where it is at most 0",
      .gradient = "none: it is for drawing",
      .source = "Keskar et al., CTRL, 2019 (repetition); llama.cpp, vLLM",
      .arrays = kTextStepArrays,
      .not_in = kTextStepNotIn,
  };
  static constexpr auto kParams =
      Params{Param<step::Penalties>{.name = "repetition",
                                    .meaning = "divides positive scores, multiplies others",
                                    .member = &step::Penalties::repetition,
                                    .above = 0},
             Param<step::Penalties>{
                 .name = "presence", .meaning = "subtracted from each token of the text", .member = &step::Penalties::presence},
             Param<step::Penalties>{
                 .name = "frequency", .meaning = "subtracted for each occurrence", .member = &step::Penalties::frequency},
             Param<step::Penalties, std::int64_t>{.name = "last",
                                                  .meaning = "number of tokens at the text's end that count; 0: none, -1: all",
                                                  .member = &step::Penalties::last,
                                                  .at_least = -1}};
};

template <>
struct Described<step::Dry> {
  static constexpr Description kDescription = {
      .name = "dry",
      .summary = "Lowers the scores of tokens that would repeat a sequence of the text: the longer the sequence, the more.",
      .formula =
          "x_i - multiplier base^(L_i - allowed_length) where the L_i >= allowed_length tokens before an earlier i equal the "
          "text's end",
      .gradient = "none: it is for drawing",
      .source = "p-e-w, text-generation-webui #5677, 2024; llama.cpp",
      .arrays = kTextStepArrays,
      .not_in = kTextStepNotIn,
  };
  static constexpr auto kParams = Params{
      Param<step::Dry>{.name = "multiplier",
                       .meaning = "subtracted from a token that repeats allowed_length tokens",
                       .member = &step::Dry::multiplier,
                       .above = 0},
      Param<step::Dry>{.name = "base", .meaning = "factor for each further token", .member = &step::Dry::base, .above = 0},
      Param<step::Dry, std::int64_t>{.name = "allowed_length",
                                     .meaning = "shortest repetition that counts",
                                     .member = &step::Dry::allowed_length,
                                     .above = 0},
      Param<step::Dry, std::vector<std::int64_t>>{
          .name = "breakers", .meaning = "tokens at which a repetition ends", .member = &step::Dry::breakers},
      Param<step::Dry, std::int64_t>{.name = "last",
                                     .meaning = "number of tokens at the text's end that count; 0: none, -1: all",
                                     .member = &step::Dry::last,
                                     .at_least = -1}};
};

template <>
struct Described<step::Mirostat> {
  static constexpr Description kDescription = {
      .name = "mirostat",
      .summary =
          "Keeps the tokens whose surprise is below a bound, which each draw adjusts so that the mean surprise meets a target.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K = {-log p_i <= mu}; then mu - rate (-log q_drawn - surprise)",
      .gradient = "none: it is for drawing",
      .source = "Basu et al., ICLR 2021; its second version in llama.cpp",
      .arrays = kStepArrays,
      .drawn = true,
      .not_in = kStateStepNotIn,
  };
  static constexpr auto kParams =
      Params{Param<step::Mirostat>{.name = "surprise",
                                   .meaning = "target for the mean of -log q of the drawn tokens, in nats",
                                   .member = &step::Mirostat::surprise,
                                   .above = 0,
                                   .required = true,
                                   .typical = 3},
             Param<step::Mirostat>{
                 .name = "rate", .meaning = "how fast the bound moves", .member = &step::Mirostat::rate, .above = 0}};
};

template <>
struct Described<Sample> {
  static constexpr Description kDescription = {
      .name = "sample",
      .summary = "Indices drawn from softmax(x/T).",
      .formula = "argmax_i x_i/T + G_i, G_i = -log(-log u_i) the noise of (seed, stream, position, index)",
      .gradient = "none: it is for drawing",
      .source = "Gumbel 1954; Yellott 1977",
      .arrays = kSampleArrays,
      .drawn = true,
  };
  static constexpr auto kParams = Params{
      Param<Sample>{.name = "temperature", .meaning = "T, divides the scores", .member = &Sample::temperature, .above = 0},
      Param<Sample, bool>{
          .name = "replace",
          .meaning = "draw with replacement; otherwise a row's indices are distinct, as drawn without replacement",
          .member = &Sample::replace}};
};

template <>
struct Described<GumbelSoftmax> {
  static constexpr Description kDescription = {
      .name = "gumbel_softmax",
      .summary =
          "A relaxed (soft) draw from softmax(x): a distribution that approaches a one-hot draw as the temperature falls.",
      .formula = "p = softmax((x + G) / T), G the noise of sample",
      .gradient = "softmax's at (x + G) / T; hard: the same, straight through",
      .source = "Jang, Gu, Poole, ICLR 2017; Maddison, Mnih, Teh, ICLR 2017",
      .arrays = kRelaxedArrays,
      .drawn = true,
      .not_in = kRelaxedNotIn,
  };
  static constexpr auto kParams = Params{
      Param<GumbelSoftmax>{
          .name = "temperature", .meaning = "T, divides the noisy scores", .member = &GumbelSoftmax::temperature, .above = 0},
      Param<GumbelSoftmax, bool>{
          .name = "hard", .meaning = "the row's largest entry becomes 1 and the others 0", .member = &GumbelSoftmax::hard}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

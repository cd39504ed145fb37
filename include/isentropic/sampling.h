// Draws from distributions over scores, through a chain of steps: reproducible, and from exactly the law that `probs` gives.
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
#include <string_view>
#include <variant>
#include <vector>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

inline constexpr ArrayInfo kStepArrays[] = {{.name = "x"}, {.name = "y", .output = true}};
inline constexpr Absence kStepNotIn[] = {{Door::c, "a chain of steps is an operation: sampler_probs, sampler_sample"},
                                         {Door::command_line, "a chain of steps is an option: sample --steps"}};
inline constexpr ArrayInfo kSampleArrays[] = {{.name = "x"}, {.name = "indices", .kind = ArrayKind::indices, .output = true}};
inline constexpr ArrayInfo kRelaxedArrays[] = {{.name = "x"}, {.name = "y", .output = true}};
inline constexpr Absence kRelaxedNotIn[] = {{Door::command_line, "a relaxed draw is for training"},
                                            {Door::ranks, "it is not written in sums over parts of a row"}};

// The steps of a chain. The first acts on softmax(x), each other on the renormalised result of the steps before it.
namespace step {

struct Temperature {
  double temperature = 1;

  static constexpr Description kDescription = {
      .name = "temperature",
      .summary = "Flattens (T > 1) or sharpens (T < 1) the distribution over the tokens that are left.",
      .formula = "q_i = p_i^(1/T) / sum_j p_j^(1/T)",
      .gradient = "none: it is for drawing",
      .source = "Ackley, Hinton, Sejnowski, Cognitive Science 9, 1985",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = std::tuple{Param<Temperature>{.name = "temperature",
                                                                .meaning = "T, divides the scores",
                                                                .member = &Temperature::temperature,
                                                                .above = 0,
                                                                .required = true,
                                                                .typical = 0.8}};
};

struct TopK {
  std::int64_t k = 0;

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
      std::tuple{Param<TopK, std::int64_t>{.name = "k",
                                           .meaning = "number of tokens that stay; a k above their number keeps all",
                                           .member = &TopK::k,
                                           .above = 0,
                                           .required = true,
                                           .typical = 50}};
};

// If the mass of the largest is within 2^-20 (float) or 2^-40 (double) of p, rounding decides whether one more is kept.
struct TopP {
  double p = 0;

  static constexpr Description kDescription = {
      .name = "top_p",
      .summary = "Keeps the fewest most likely tokens whose probabilities sum to at least p.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K, K the fewest largest with mass >= p",
      .gradient = "none: it is for drawing",
      .source = "Holtzman et al., ICLR 2020",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = std::tuple{Param<TopP>{.name = "p",
                                                         .meaning = "sum of probabilities to reach; 1 keeps all",
                                                         .member = &TopP::p,
                                                         .above = 0,
                                                         .up_to = 1,
                                                         .required = true,
                                                         .typical = 0.95}};
};

struct MinP {
  double p = 0;

  static constexpr Description kDescription = {
      .name = "min_p",
      .summary = "Keeps the tokens at least p times as likely as the most likely one.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K = {p_i >= p max p}",
      .gradient = "none: it is for drawing",
      .source = "Nguyen et al., ICLR 2025",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = std::tuple{Param<MinP>{.name = "p",
                                                         .meaning = "least share of the largest probability that stays",
                                                         .member = &MinP::p,
                                                         .above = 0,
                                                         .up_to = 1,
                                                         .required = true,
                                                         .typical = 0.05}};
};

struct TypicalP {
  double p = 0;

  static constexpr Description kDescription = {
      .name = "typical_p",
      .summary = "Keeps the tokens whose surprise is nearest to the entropy, the fewest whose probabilities sum to at least p.",
      .formula = "q_i = p_i / sum_{j in K} p_j for i in K, K the fewest by |-log p - H| with mass >= p",
      .gradient = "none: it is for drawing",
      .source = "Meister, Pimentel, Wiher, Cotterell, TACL 2023",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = std::tuple{Param<TypicalP>{.name = "p",
                                                             .meaning = "sum of probabilities to reach; 1 keeps all",
                                                             .member = &TypicalP::p,
                                                             .above = 0,
                                                             .up_to = 1,
                                                             .required = true,
                                                             .typical = 0.9}};
};

struct Entropy {
  double entropy = std::numeric_limits<double>::quiet_NaN();

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
  static constexpr auto kParams = std::tuple{Param<Entropy>{
      .name = "entropy", .meaning = "in nats", .member = &Entropy::entropy, .at_least = 0, .required = true, .typical = 2}};
};

struct EntropyClip {
  double min_entropy = 0;
  double max_entropy = std::numeric_limits<double>::infinity();

  static constexpr Description kDescription = {
      .name = "entropy_clip",
      .summary = "Leaves a distribution whose entropy lies in an interval, and brings any other to the nearer end.",
      .formula = "as entropy where -sum p log p is outside [min_entropy, max_entropy]",
      .gradient = "none: it is for drawing",
      .source = "see entropy",
      .arrays = kStepArrays,
      .not_in = kStepNotIn,
  };
  static constexpr auto kParams = std::tuple{
      Param<EntropyClip>{
          .name = "min_entropy", .meaning = "in nats", .member = &EntropyClip::min_entropy, .at_least = 0, .typical = 1},
      Param<EntropyClip>{.name = "max_entropy",
                         .meaning = "in nats",
                         .member = &EntropyClip::max_entropy,
                         .at_least = 0,
                         .up_to = std::numeric_limits<double>::infinity(),
                         .typical = 3}};
  constexpr std::string_view check() const {
    return min_entropy <= max_entropy ? "" : "min_entropy must be at most max_entropy";
  }
};

}  // namespace step

// Every step.
using Step =
    std::variant<step::Temperature, step::TopK, step::TopP, step::MinP, step::TypicalP, step::Entropy, step::EntropyClip>;

// The noise of the draws from a batch: row r has the stream streams[r] or, without streams, stream + r (modulo 2^64); column c
// of the draws has the position `position` + c.
struct Noise {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t position = 0;
  std::span<const std::uint64_t> streams = {};
};

struct Sample {
  double temperature = 1;

  static constexpr Description kDescription = {
      .name = "sample",
      .summary = "Indices drawn from softmax(x/T).",
      .formula = "argmax_i x_i/T + G_i, G_i = -log(-log u_i) the noise of (seed, stream, position, index)",
      .gradient = "none: it is for drawing",
      .source = "Gumbel 1954; Yellott 1977",
      .arrays = kSampleArrays,
      .drawn = true,
  };
  static constexpr auto kParams = std::tuple{
      Param<Sample>{.name = "temperature", .meaning = "T, divides the scores", .member = &Sample::temperature, .above = 0}};
};

// Draws from each row: indices(r, c) is the draw at noise.position + c from row r, or -1 if the row has no distribution.
//
// Shapes: x rows x cols, fewer than 2^32 columns; indices rows x any number; noise.streams rows, or none.
// Throws: std::invalid_argument naming the argument, before anything is written.
template <class T>
ISENTROPIC_API void sample(const Sample& options, MatrixView<const T> x, MatrixView<std::int64_t> indices, const Noise& noise);

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
  // Throws: std::invalid_argument if a parameter is out of its range.
  explicit Sampler(std::vector<Step> steps, std::uint64_t seed = 0);

  const std::vector<Step>& steps() const { return steps_; }
  std::uint64_t seed() const { return seed_; }

  // The distribution that `sample` draws from, row by row.
  //
  // Shapes: x and p rows x cols; p may be x itself, other overlaps are refused.
  // Throws: std::invalid_argument naming the argument, before anything is written.
  template <class T>
  void probs(MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p) const;

  // As the function sample, which has a temperature as its only step. The sampler's seed is used, noise.seed is not.
  template <class T>
  void sample(MatrixView<const T> x, MatrixView<std::int64_t> indices, Noise noise = {}) const;

  // The distribution of one row, and one draw from it.
  template <RowOfNumbers X, RowOfNumbers P>
  void probs(const X& x, P&& p) const {
    probs(row_view(x), row_view(p));
  }
  template <RowOfNumbers X>
  std::int64_t sample(const X& x, const Noise& noise = {}) const {
    std::int64_t index;
    sample(MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), MatrixView(&index, 1, 1), noise);
    return index;
  }

 private:
  std::vector<Step> steps_;
  std::uint64_t seed_;
};

struct GumbelSoftmax {
  double temperature = 1;
  bool hard = false;

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
  static constexpr auto kParams = std::tuple{
      Param<GumbelSoftmax>{
          .name = "temperature", .meaning = "T, divides the noisy scores", .member = &GumbelSoftmax::temperature, .above = 0},
      Param<GumbelSoftmax, bool>{
          .name = "hard", .meaning = "the row's largest entry becomes 1 and the others 0", .member = &GumbelSoftmax::hard}};
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

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

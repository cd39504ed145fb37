// Measures of distributions: how uncertain one is, how far two are apart, how much two variables tell about each other.
//
//   const std::vector<double> p = {0.5, 0.25, 0.25}, q = {0.25, 0.25, 0.5};
//   const double bits = isentropic::measure(isentropic::Entropy{.base = 2}, p);  // bits = 1.5
//   const double nats = isentropic::measure(isentropic::KlDivergence{}, p, q);   // nats = 0.17
//
// Rules for every measure:
//   0 log 0             is 0
//   units               nats; `base` b divides by log b
//   input               what rows hold: `probs` p, `log_probs` log p, or `scores` x of p = softmax(x)
//   probs, log_probs    taken as given, not renormalised; an entry that is negative, NaN or infinite, or a sum further from 1
//                       than 1e-6 (double), 1e-4 (float) or 1e-2 (float16, bfloat16) is refused by its row and entry
//   normalize           divides by the sum instead: any non-negative row with a positive sum is a distribution
//   scores              NaN gives NaN, -inf is an absent entry, +inf scores share the mass; nothing is refused
//   no entries          NaN
//   gradients           partial derivatives of the formula in the numbers that were given: in p for probs, in log p for
//                       log_probs, in the scores through the softmax, and with normalize through the division by the sum.
//                       Infinite where the derivative is, as that of entropy at p = 0; where both p and q are 0 they are 0.
//                       Of the scores always finite, -inf and +inf have 0; where the value is infinite there is none (NaN).
//   precision           computed in double, whatever the type; entropy of float adds up terms in float: 2e-6 relative
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/half.h"
#include "isentropic/input.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Measures of one distribution.

//   H = -sum p log p
struct Entropy {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   H = log(sum p^alpha) / (1 - alpha); at 1 -sum p log p, at inf -log max p
struct RenyiEntropy {
  double alpha = 1;  // order
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   H = (1 - sum p^alpha) / (alpha - 1); at 1 -sum p log p, at inf 0
struct TsallisEntropy {
  double alpha = 1;  // order
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   exp(-sum p log p)
struct Perplexity {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   Var_p[-log p] = sum p (log p + H)^2
struct Varentropy {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   (sum p^order)^(1 / (1 - order)) = exp(renyi_entropy(p, alpha=order))
struct HillNumber {
  double order = 1;  // order
  Input input = Input::probs;
  bool normalize = false;
};

using Measure = std::variant<Entropy, RenyiEntropy, TsallisEntropy, Perplexity, Varentropy, HillNumber>;

// Measures of two distributions.

//   -sum p log q
struct CrossEntropy {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   KL(p, q) = sum (p log(p/q) - p + q), each term at least 0
struct KlDivergence {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   (KL(p, m) + KL(q, m)) / 2, m = (p + q) / 2
struct JsDivergence {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   sqrt((KL(p, m) + KL(q, m)) / 2), m = (p + q) / 2
struct JsDistance {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   sum |p - q| / 2
struct TotalVariation {
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   sqrt(sum (sqrt p - sqrt q)^2 / 2)
struct HellingerDistance {
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   sum (p - q)^2 / q
struct ChiSquaredDivergence {
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   sum (p - q) log(p/q)
struct JeffreysDivergence {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   log(sum p^alpha q^(1 - alpha)) / (alpha - 1); at 1 KL(p, q), at 0 -log q(p > 0), at inf log max p/q
struct RenyiDivergence {
  double alpha = 1;  // order
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

//   sum (alpha p + (1 - alpha) q - p^alpha q^(1 - alpha)) / (alpha (1 - alpha)), each term at least 0
struct AlphaDivergence {
  double alpha = 1;  // order, any finite number
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
  double smoothing = 0;
};

using Divergence = std::variant<CrossEntropy, KlDivergence, JsDivergence, JsDistance, TotalVariation, HellingerDistance,
                                ChiSquaredDivergence, JeffreysDivergence, RenyiDivergence, AlphaDivergence>;

// Measures of a table p(x, y), x in rows, which is one distribution.

enum class Given { x, y };

//   H(X, Y) = -sum p(x,y) log p(x,y)
struct JointEntropy {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   given x: H(Y|X) = -sum p(x,y) log(p(x,y) / p(x)); given y: H(X|Y)
struct ConditionalEntropy {
  Given given = Given::x;  // the variable that is known
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   I(X; Y) = KL(p(x,y), p(x) p(y)) = H(X) - H(X|Y) = H(Y) - H(Y|X)
struct MutualInformation {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

enum class Average { arithmetic, geometric, min, max };

//   I(X; Y) / mean(H(X), H(Y))
struct NormalizedMutualInformation {
  Average average = Average::arithmetic;  // the mean of the entropies
  Input input = Input::probs;
  bool normalize = false;
};

//   H(X|Y) + H(Y|X)
struct VariationOfInformation {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

using TableMeasure =
    std::variant<JointEntropy, ConditionalEntropy, MutualInformation, NormalizedMutualInformation, VariationOfInformation>;

// Measures of each entry by itself.

//   -log p
struct SelfInformation {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

//   -p log p - (1 - p) log(1 - p)
struct BinaryEntropy {
  std::optional<double> base = {};
  Input input = Input::probs;
};

using EntryMeasure = std::variant<SelfInformation, BinaryEntropy>;

// value = measure(p) for each row; dp, if given, takes its gradient. `per_row` gives per_row parameters a value for each row,
// and `gradients` takes the gradients in them: at alpha 0 the one from above, at inf the limit, 0.
//
// Shapes: p and dp rows x cols, value rows; dp may be p itself, other overlaps are refused.
// Error: a few units in the last place of a double, relative, also for a row that is nearly certain; 2e-6 for entropy of float.
// Throws: std::invalid_argument naming the argument, or the row and entry that is no probability, before anything is written.
template <class T>
ISENTROPIC_API void measure(const Measure& op, MatrixView<const T> p, std::span<double> value,
                            MatrixView<std::type_identity_t<T>> dp = {}, std::span<const PerRow> per_row = {},
                            std::span<const ParamGradient> gradients = {});

// value = measure(p, q) for each row, and its gradients. All but cross_entropy are sums of terms that are not negative, and
// small where p and q are near. So they are never negative, exactly 0 for equal rows, and have a small relative error for
// nearly equal ones. `per_row` and `gradients` are those of the orders, as above; at alpha 0 the gradient of renyi_divergence
// is the one from above, at inf the limit, 0, and where a divergence is infinite it is 0.
//
// Shapes: p, dp and dq rows x cols; q the same, or 1 x cols to compare every row of p with; value rows. dp may be p itself, and
// dq may be q itself if q has as many rows as p; other overlaps are refused.
template <class T>
ISENTROPIC_API void measure(const Divergence& op, MatrixView<const T> p, MatrixView<const std::type_identity_t<T>> q,
                            std::span<double> value, MatrixView<std::type_identity_t<T>> dp = {},
                            MatrixView<std::type_identity_t<T>> dq = {}, std::span<const PerRow> per_row = {},
                            std::span<const ParamGradient> gradients = {});

// The measure of one row, or of two rows.
template <RowOfNumbers P>
double measure(const Measure& op, const P& p) {
  double value;
  measure(op, MatrixView<const std::ranges::range_value_t<P>>(row_view(p)), std::span(&value, 1));
  return value;
}
template <RowOfNumbers P, RowOfNumbers Q>
double measure(const Divergence& op, const P& p, const Q& q) {
  double value;
  measure(op, MatrixView<const std::ranges::range_value_t<P>>(row_view(p)), row_view(q), std::span(&value, 1));
  return value;
}

// The measure of a table, all of whose entries together are a distribution (sum 1, softmax over all of them).
// mutual_information is computed as a divergence: it is never negative, and below 1e-28 for a table that is a product up to
// rounding.
//
// Shapes: pxy and dp rows (x) x cols (y).
template <class T>
ISENTROPIC_API double measure(const TableMeasure& op, MatrixView<const T> pxy, MatrixView<std::type_identity_t<T>> dp = {});

// The measure of each entry. self_information of scores is that of the softmax of the row, and normalize divides by the sum of
// the row. Otherwise each entry is a probability by itself and need only be in [0, 1].
//
// Shapes: p, value and dp rows x cols; value and dp may be p itself, other overlaps are refused. dp holds d value_i / d p_i.
// self_information has no dp for scores and with normalize, where each value depends on all entries of the row.
template <class T>
ISENTROPIC_API void measure(const EntryMeasure& op, MatrixView<const T> p, MatrixView<std::type_identity_t<T>> value,
                            MatrixView<std::type_identity_t<T>> dp = {});
template <RowOfNumbers P, RowOfNumbers V>
void measure(const EntryMeasure& op, const P& p, V&& value) {
  measure(op, read_only(row_view(p)), row_view(value));
}

// Counts of outcomes that arrive in chunks, of one variable, or of two as a table with x in rows. Counts of separate parts can
// be merged. weights() are one row, or the table, for measures with `normalize`: measure(Entropy{.normalize = true}, ...).
//
// Throws: std::invalid_argument for outcomes outside 0 .. outcomes - 1, before any is counted.
class ISENTROPIC_API Counts {
 public:
  explicit Counts(std::size_t outcomes) : Counts(1, outcomes) {}
  Counts(std::size_t x_outcomes, std::size_t y_outcomes);

  void add(std::span<const std::int64_t> outcomes);  // outcomes of one variable
  void add(std::span<const std::int64_t> x, std::span<const std::int64_t> y);
  void merge(const Counts& other);

  // The counts, each exact up to 2^53.
  MatrixView<const double> weights() const { return {weights_.data(), rows_, cols_}; }

 private:
  std::size_t rows_, cols_;
  std::vector<double> weights_;
};

// The same for views that may write.
template <WritableView P>
void measure(const Measure& op, const P& p, std::span<double> value, MatrixView<NumberIn<P>> dp = {},
             std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {}) {
  measure(op, read_only(p), value, dp, per_row, gradients);
}
template <WritableView P>
void measure(const Divergence& op, const P& p, MatrixView<const NumberIn<P>> q, std::span<double> value,
             MatrixView<NumberIn<P>> dp = {}, MatrixView<NumberIn<P>> dq = {}, std::span<const PerRow> per_row = {},
             std::span<const ParamGradient> gradients = {}) {
  measure(op, read_only(p), q, value, dp, dq, per_row, gradients);
}
template <WritableView P>
double measure(const TableMeasure& op, const P& pxy, MatrixView<NumberIn<P>> dp = {}) {
  return measure(op, read_only(pxy), dp);
}
template <WritableView P>
void measure(const EntryMeasure& op, const P& p, MatrixView<NumberIn<P>> value, MatrixView<NumberIn<P>> dp = {}) {
  measure(op, read_only(p), value, dp);
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

// The parameters that nearly every measure has.
template <class Op>
constexpr auto base_param(std::optional<double> Op::*base) {
  return Param<Op, std::optional<double>>{
      .name = "base", .meaning = "base of the logarithm: 2 gives bits; not given, nats", .member = base, .above = 1};
}
template <class Op>
constexpr auto input_param(Input Op::*input, std::string_view meaning = "what the rows hold") {
  return Param<Op, Input>{.name = "input", .meaning = meaning, .member = input, .names = kInputs};
}
template <class Op>
constexpr auto normalize_param(bool Op::*normalize, std::string_view meaning = "divide each row by its sum first") {
  return Param<Op, bool>{.name = "normalize", .meaning = meaning, .member = normalize};
}
template <class Op>
constexpr auto measure_params(std::optional<double> Op::*base, Input Op::*input, bool Op::*normalize) {
  return Params{base_param(base), input_param(input), normalize_param(normalize)};
}
// A table is one distribution, whose rows are not divided by sums of their own.
inline constexpr std::string_view kTableHolds = "what the table holds",
                                  kTableDivided = "divide the whole table by its sum first";
template <class Op>
constexpr auto table_params(std::optional<double> Op::*base, Input Op::*input, bool Op::*normalize) {
  return Params{base_param(base), input_param(input, kTableHolds), normalize_param(normalize, kTableDivided)};
}

template <class Op>
constexpr auto smoothing_param(double Op::*smoothing) {
  return Param<Op>{.name = "smoothing",
                   .meaning = "added to every class of both, which are then divided by their sums",
                   .member = smoothing,
                   .at_least = 0};
}
template <class Op>
constexpr auto divergence_params(std::optional<double> Op::*base, Input Op::*input, bool Op::*normalize,
                                 double Op::*smoothing) {
  return measure_params(base, input, normalize) + Params{smoothing_param(smoothing)};
}
// For divergences without a logarithm, and so without a unit.
template <class Op>
constexpr auto divergence_params(Input Op::*input, bool Op::*normalize, double Op::*smoothing) {
  return Params{input_param(input), normalize_param(normalize), smoothing_param(smoothing)};
}

// The arrays of measures of rows, of two rows, of a table, of entries. Gradients are outputs.
inline constexpr ArrayInfo kMeasureArrays[] = {{.name = "p"},
                                               {.name = "value", .kind = ArrayKind::number, .output = true},
                                               {.name = "dp", .output = true, .optional = true}};
inline constexpr ArrayInfo kDivergenceArrays[] = {{.name = "p"},
                                                  {.name = "q", .one_for_all = true},
                                                  {.name = "value", .kind = ArrayKind::number, .output = true},
                                                  {.name = "dp", .output = true, .optional = true},
                                                  {.name = "dq", .output = true, .optional = true}};
inline constexpr ArrayInfo kTableArrays[] = {{.name = "pxy", .kind = ArrayKind::table},
                                             {.name = "value", .kind = ArrayKind::scalar, .output = true},
                                             {.name = "dp", .kind = ArrayKind::table, .output = true, .optional = true}};
inline constexpr ArrayInfo kEntryArrays[] = {
    {.name = "p"}, {.name = "value", .output = true}, {.name = "dp", .output = true, .optional = true}};
inline constexpr Absence kHostRows[] = {{Door::device, "there is no kernel for it"},
                                        {Door::ranks, "it is not written in sums over parts of a row"}};
inline constexpr Absence kRowsOnly[] = {{Door::device, "there are kernels for rows alone"},
                                        {Door::ranks, "only rows are split"},
                                        {Door::web, "left out, because each page loads the library"}};
inline constexpr std::string_view kGiven[] = {"x", "y"};
inline constexpr std::string_view kAverages[] = {"arithmetic", "geometric", "min", "max"};

template <>
struct Described<Entropy> {
  static constexpr Description kDescription = {
      .name = "entropy",
      .summary = "Shannon's entropy: the expected surprise.",
      .formula = "H = -sum p log p",
      .gradient = "-log p - 1; in scores -p (log p + H)",
      .source = "Shannon, 1948",
      .arrays = kMeasureArrays,
  };
  static constexpr auto kParams = measure_params(&Entropy::base, &Entropy::input, &Entropy::normalize);
};

template <>
struct Described<RenyiEntropy> {
  static constexpr Description kDescription = {
      .name = "renyi_entropy",
      .summary =
          "Renyi's entropy of order alpha: 0 is the log of the support's size, 1 Shannon's entropy, infinity the surprise of "
          "the mode.",
      .formula = "H = log(sum p^alpha) / (1 - alpha); at 1 -sum p log p, at inf -log max p",
      .gradient =
          "alpha p^(alpha - 1) / ((1 - alpha) sum p^alpha); for alpha within 2^-10 of 1: the gradient of "
          "log(sum p^alpha - sum p + 1) / (1 - alpha), which is H where sum p = 1"
          "; in alpha: -KL(p^alpha / sum p^alpha, p) / (1 - alpha)^2, at 1 -Var log p / 2",
      .source = "Renyi, Berkeley Symposium, 1961",
      .arrays = kMeasureArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = Params{Param<RenyiEntropy>{.name = "alpha",
                                                             .meaning = "order",
                                                             .member = &RenyiEntropy::alpha,
                                                             .at_least = 0,
                                                             .up_to = std::numeric_limits<double>::infinity(),
                                                             .required = true,
                                                             .typical = 2,
                                                             .per_row = true}} +
                                  measure_params(&RenyiEntropy::base, &RenyiEntropy::input, &RenyiEntropy::normalize);
};

template <>
struct Described<TsallisEntropy> {
  static constexpr Description kDescription = {
      .name = "tsallis_entropy",
      .summary =
          "Tsallis' entropy of order alpha, alpha times that of entmax; at 2 it is half the L1 norm of softmax's Jacobian.",
      .formula = "H = (1 - sum p^alpha) / (alpha - 1); at 1 -sum p log p, at inf 0",
      .gradient =
          "-alpha p^(alpha - 1) / (alpha - 1); for alpha within 2^-10 of 1: the gradient of "
          "(sum p - sum p^alpha) / (alpha - 1), which is H where sum p = 1"
          "; in alpha: -sum (p^alpha ((alpha - 1) log p - 1) + p) / (alpha - 1)^2, at 1 -sum p log^2 p / 2",
      .source = "Tsallis, J. Stat. Phys. 52, 1988; Havrda, Charvat, 1967",
      .arrays = kMeasureArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = Params{Param<TsallisEntropy>{.name = "alpha",
                                                               .meaning = "order",
                                                               .member = &TsallisEntropy::alpha,
                                                               .at_least = 0,
                                                               .up_to = std::numeric_limits<double>::infinity(),
                                                               .required = true,
                                                               .typical = 2,
                                                               .per_row = true}} +
                                  measure_params(&TsallisEntropy::base, &TsallisEntropy::input, &TsallisEntropy::normalize);
};

template <>
struct Described<Perplexity> {
  static constexpr Description kDescription = {
      .name = "perplexity",
      .summary =
          "The number of equally likely outcomes that has the same entropy (the effective support); it does not depend on the "
          "base.",
      .formula = "exp(-sum p log p)",
      .gradient = "-(log p + 1) perplexity; in scores -p (log p + H) perplexity",
      .source = "Jelinek, Mercer, Bahl, Baker, J. Acoust. Soc. Am. 62, 1977",
      .arrays = kMeasureArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = measure_params(&Perplexity::base, &Perplexity::input, &Perplexity::normalize);
};

template <>
struct Described<Varentropy> {
  static constexpr Description kDescription = {
      .name = "varentropy",
      .summary = "The variance of the surprise, of which entropy is the mean; base b divides it by log(b)^2.",
      .formula = "Var_p[-log p] = sum p (log p + H)^2",
      .gradient = "c^2 + 2 c with c = log p + H; in scores p (c^2 + 2 c - V)",
      .source = "Kontoyiannis, Verdu, IEEE Trans. Inf. Theory 60, 2014",
      .arrays = kMeasureArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams = measure_params(&Varentropy::base, &Varentropy::input, &Varentropy::normalize);
};

template <>
struct Described<HillNumber> {
  static constexpr Description kDescription = {
      .name = "hill_number",
      .summary =
          "The number of equally likely outcomes that has the same Renyi entropy: order 0 counts the support, 1 is the "
          "perplexity, 2 one over Simpson's index, infinity one over the largest probability.",
      .formula = "(sum p^order)^(1 / (1 - order)) = exp(renyi_entropy(p, alpha=order))",
      .gradient = "that of renyi_entropy, times the number; in order likewise",
      .source = "Hill, Ecology 54, 1973",
      .arrays = kMeasureArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams = Params{Param<HillNumber>{.name = "order",
                                                           .meaning = "order",
                                                           .member = &HillNumber::order,
                                                           .at_least = 0,
                                                           .up_to = std::numeric_limits<double>::infinity(),
                                                           .required = true,
                                                           .typical = 2},
                                         input_param(&HillNumber::input), normalize_param(&HillNumber::normalize)};
};

template <>
struct Described<CrossEntropy> {
  static constexpr Description kDescription = {
      .name = "cross_entropy",
      .summary = "The expected surprise under q of outcomes drawn from p: entropy(p) + kl_divergence(p, q).",
      .formula = "-sum p log q",
      .gradient = "dp: -log q; dq: -p / q, in scores q - p",
      .source = "Shannon, 1948; Kerridge, J. R. Stat. Soc. B 23, 1961",
      .arrays = kDivergenceArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = measure_params(&CrossEntropy::base, &CrossEntropy::input, &CrossEntropy::normalize);
};

template <>
struct Described<KlDivergence> {
  static constexpr Description kDescription = {
      .name = "kl_divergence",
      .summary = "The Kullback-Leibler divergence of p from q: not symmetric, infinite where p > 0 and q = 0.",
      .formula = "KL(p, q) = sum (p log(p/q) - p + q), each term at least 0",
      .gradient = "dp: log(p/q), in scores p (log(p/q) - KL); dq: 1 - p/q, in scores q - p",
      .source = "Kullback, Leibler, Ann. Math. Stat. 22, 1951",
      .arrays = kDivergenceArrays,
  };
  static constexpr auto kParams =
      divergence_params(&KlDivergence::base, &KlDivergence::input, &KlDivergence::normalize, &KlDivergence::smoothing);
};

template <>
struct Described<JsDivergence> {
  static constexpr Description kDescription = {
      .name = "js_divergence",
      .summary = "The Jensen-Shannon divergence: symmetric, finite, at most log 2 (1 in base 2).",
      .formula = "(KL(p, m) + KL(q, m)) / 2, m = (p + q) / 2",
      .gradient = "dp: log(p/m) / 2; dq: log(q/m) / 2",
      .source = "Lin, IEEE Trans. Inf. Theory 37, 1991",
      .arrays = kDivergenceArrays,
  };
  static constexpr auto kParams =
      divergence_params(&JsDivergence::base, &JsDivergence::input, &JsDivergence::normalize, &JsDivergence::smoothing);
};

template <>
struct Described<JsDistance> {
  static constexpr Description kDescription = {
      .name = "js_distance",
      .summary = "The square root of js_divergence, a metric.",
      .formula = "sqrt((KL(p, m) + KL(q, m)) / 2), m = (p + q) / 2",
      .gradient = "dp: log(p/m) / (4 distance); dq: log(q/m) / (4 distance); 0 at p = q, where there is none",
      .source = "Endres, Schindelin, IEEE Trans. Inf. Theory 49, 2003",
      .arrays = kDivergenceArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams =
      divergence_params(&JsDistance::base, &JsDistance::input, &JsDistance::normalize, &JsDistance::smoothing);
};

template <>
struct Described<TotalVariation> {
  static constexpr Description kDescription = {
      .name = "total_variation",
      .summary = "Half the L1 distance: the largest difference of the probabilities of an event; a metric, at most 1.",
      .formula = "sum |p - q| / 2",
      .gradient = "dp: sign(p - q) / 2; dq: sign(q - p) / 2; 0 where p = q, where there is none",
      .source = "Levin, Peres, Wilmer, Markov Chains and Mixing Times, 2009",
      .arrays = kDivergenceArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams =
      divergence_params(&TotalVariation::input, &TotalVariation::normalize, &TotalVariation::smoothing);
};

template <>
struct Described<HellingerDistance> {
  static constexpr Description kDescription = {
      .name = "hellinger_distance",
      .summary = "The distance of the roots of the probabilities: a metric, at most 1.",
      .formula = "sqrt(sum (sqrt p - sqrt q)^2 / 2)",
      .gradient = "dp: (1 - sqrt(q/p)) / (4 distance); dq: (1 - sqrt(p/q)) / (4 distance); 0 at p = q, where there is none",
      .source = "Hellinger, J. reine angew. Math. 136, 1909",
      .arrays = kDivergenceArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams =
      divergence_params(&HellingerDistance::input, &HellingerDistance::normalize, &HellingerDistance::smoothing);
};

template <>
struct Described<ChiSquaredDivergence> {
  static constexpr Description kDescription = {
      .name = "chi_squared_divergence",
      .summary = "Pearson's divergence: not symmetric, infinite where p > 0 and q = 0.",
      .formula = "sum (p - q)^2 / q",
      .gradient = "dp: 2 (p/q - 1); dq: 1 - (p/q)^2",
      .source = "Pearson, Phil. Mag. 50, 1900",
      .arrays = kDivergenceArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams =
      divergence_params(&ChiSquaredDivergence::input, &ChiSquaredDivergence::normalize, &ChiSquaredDivergence::smoothing);
};

template <>
struct Described<JeffreysDivergence> {
  static constexpr Description kDescription = {
      .name = "jeffreys_divergence",
      .summary = "KL(p, q) + KL(q, p): symmetric, infinite where one alone is 0; the population stability index.",
      .formula = "sum (p - q) log(p/q)",
      .gradient = "dp: log(p/q) + 1 - q/p; dq: log(q/p) + 1 - p/q",
      .source = "Jeffreys, Proc. R. Soc. A 186, 1946",
      .arrays = kDivergenceArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams = divergence_params(&JeffreysDivergence::base, &JeffreysDivergence::input,
                                                    &JeffreysDivergence::normalize, &JeffreysDivergence::smoothing);
};

template <>
struct Described<RenyiDivergence> {
  static constexpr Description kDescription = {
      .name = "renyi_divergence",
      .summary =
          "Renyi's divergence of order alpha: 1 is KL, 0 -log of the mass of q where p > 0, infinity the largest log(p/q).",
      .formula = "log(sum p^alpha q^(1 - alpha)) / (alpha - 1); at 1 KL(p, q), at 0 -log q(p > 0), at inf log max p/q",
      .gradient =
          "with S = sum p^alpha q^(1 - alpha), dp: alpha (1 - (q/p)^(1 - alpha)) / ((1 - alpha) S); dq: (1 - (p/q)^alpha) / S; "
          "without the 1 where S < 1/2, which no row that sums to 1 can tell"
          "; in alpha: KL(p^alpha q^(1 - alpha) / S, p) / (1 - alpha)^2, at 1 Var_p[log(p/q)] / 2; 0 where the value is "
          "infinite",
      .source = "Renyi, Berkeley Symposium, 1961; van Erven, Harremoes, IEEE Trans. Inf. Theory 60, 2014",
      .arrays = kDivergenceArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams = Params{Param<RenyiDivergence>{.name = "alpha",
                                                                .meaning = "order",
                                                                .member = &RenyiDivergence::alpha,
                                                                .at_least = 0,
                                                                .up_to = std::numeric_limits<double>::infinity(),
                                                                .required = true,
                                                                .typical = 2,
                                                                .per_row = true}} +
                                  divergence_params(&RenyiDivergence::base, &RenyiDivergence::input,
                                                    &RenyiDivergence::normalize, &RenyiDivergence::smoothing);
};

template <>
struct Described<AlphaDivergence> {
  static constexpr Description kDescription = {
      .name = "alpha_divergence",
      .summary =
          "Amari's divergence of any real order: 1 is KL(p, q), 0 KL(q, p), 1/2 four times the square of hellinger_distance, 2 "
          "half of chi_squared_divergence.",
      .formula = "sum (alpha p + (1 - alpha) q - p^alpha q^(1 - alpha)) / (alpha (1 - alpha)), each term at least 0",
      .gradient =
          "dp: (1 - (q/p)^(1 - alpha)) / (1 - alpha), at 1 log(p/q); dq: (1 - (p/q)^alpha) / alpha, at 0 log(q/p)"
          "; in alpha, A the value: (sum (p - q - p^alpha q^(1 - alpha) log(p/q)) - (1 - 2 alpha) A) / (alpha (1 - alpha)), at "
          "1 "
          "sum p log^2(p/q) / 2 - A, at 0 A - sum q log^2(q/p) / 2; 0 where the value is infinite",
      .source = "Amari, Ann. Stat. 10, 1982; Cichocki, Amari, Entropy 12, 2010",
      .arrays = kDivergenceArrays,
      .not_in = kHostRows,
  };
  static constexpr auto kParams = Params{Param<AlphaDivergence>{.name = "alpha",
                                                                .meaning = "order, any finite number",
                                                                .member = &AlphaDivergence::alpha,
                                                                .required = true,
                                                                .typical = 2,
                                                                .per_row = true}} +
                                  divergence_params(&AlphaDivergence::base, &AlphaDivergence::input,
                                                    &AlphaDivergence::normalize, &AlphaDivergence::smoothing);
};

template <>
struct Described<JointEntropy> {
  static constexpr Description kDescription = {
      .name = "joint_entropy",
      .summary = "The entropy of the two variables of a joint table together.",
      .formula = "H(X, Y) = -sum p(x,y) log p(x,y)",
      .gradient = "-log p(x,y) - 1; in scores -p (log p + H)",
      .source = "Shannon, 1948",
      .arrays = kTableArrays,
      .not_in = kRowsOnly,
  };
  static constexpr auto kParams = table_params(&JointEntropy::base, &JointEntropy::input, &JointEntropy::normalize);
};

template <>
struct Described<ConditionalEntropy> {
  static constexpr Description kDescription = {
      .name = "conditional_entropy",
      .summary = "The expected entropy of one variable once the other, the given one, is known.",
      .formula = "given x: H(Y|X) = -sum p(x,y) log(p(x,y) / p(x)); given y: H(X|Y)",
      .gradient = "-log(p(x,y) / p(x)); in scores p (that - H(Y|X))",
      .source = "Shannon, 1948",
      .arrays = kTableArrays,
      .not_in = kRowsOnly,
  };
  static constexpr auto kParams =
      Params{Param<ConditionalEntropy, Given>{
          .name = "given", .meaning = "the variable that is known", .member = &ConditionalEntropy::given, .names = kGiven}} +
      table_params(&ConditionalEntropy::base, &ConditionalEntropy::input, &ConditionalEntropy::normalize);
};

template <>
struct Described<MutualInformation> {
  static constexpr Description kDescription = {
      .name = "mutual_information",
      .summary = "How much one variable of a joint table tells about the other; also called information gain.",
      .formula = "I(X; Y) = KL(p(x,y), p(x) p(y)) = H(X) - H(X|Y) = H(Y) - H(Y|X)",
      .gradient = "log(p(x,y) / (p(x) p(y))); in scores p (that - I)",
      .source = "Shannon, 1948",
      .arrays = kTableArrays,
      .not_in = kRowsOnly,
  };
  static constexpr auto kParams =
      table_params(&MutualInformation::base, &MutualInformation::input, &MutualInformation::normalize);
};

template <>
struct Described<NormalizedMutualInformation> {
  static constexpr Description kDescription = {
      .name = "normalized_mutual_information",
      .summary =
          "Mutual information as a share of the mean of both entropies: 1 if each variable determines the other, 0 if they "
          "are independent or the mean is 0.",
      .formula = "I(X; Y) / mean(H(X), H(Y))",
      .gradient = "that of the quotient; of two equal entropies under min and max the mean of both",
      .source = "Vinh, Epps, Bailey, JMLR 11, 2010",
      .arrays = kTableArrays,
      .not_in = kRowsOnly,
  };
  static constexpr auto kParams =
      Params{Param<NormalizedMutualInformation, Average>{.name = "average",
                                                         .meaning = "the mean of the entropies",
                                                         .member = &NormalizedMutualInformation::average,
                                                         .names = kAverages},
             input_param(&NormalizedMutualInformation::input, kTableHolds),
             normalize_param(&NormalizedMutualInformation::normalize, kTableDivided)};
};

template <>
struct Described<VariationOfInformation> {
  static constexpr Description kDescription = {
      .name = "variation_of_information",
      .summary = "What two variables do not tell about each other: a metric of partitions, 0 if each determines the other.",
      .formula = "H(X|Y) + H(Y|X)",
      .gradient = "-log(p(x,y) / p(x)) - log(p(x,y) / p(y)); in scores p (that - VI)",
      .source = "Meila, J. Multivar. Anal. 98, 2007",
      .arrays = kTableArrays,
      .not_in = kRowsOnly,
  };
  static constexpr auto kParams =
      table_params(&VariationOfInformation::base, &VariationOfInformation::input, &VariationOfInformation::normalize);
};

template <>
struct Described<SelfInformation> {
  static constexpr Description kDescription = {
      .name = "self_information",
      .summary = "The surprise of an outcome of probability p; entropy is its mean.",
      .formula = "-log p",
      .gradient = "-1 / p",
      .source = "Shannon, 1948",
      .arrays = kEntryArrays,
      .not_in = kRowsOnly,
  };
  static constexpr auto kParams = measure_params(&SelfInformation::base, &SelfInformation::input, &SelfInformation::normalize);
};

template <>
struct Described<BinaryEntropy> {
  static constexpr Description kDescription = {
      .name = "binary_entropy",
      .summary = "The entropy of a coin that shows heads with probability p; for a score x, p = 1 / (1 + exp(-x)).",
      .formula = "-p log p - (1 - p) log(1 - p)",
      .gradient = "log((1 - p) / p); in a score -x p (1 - p)",
      .source = "Shannon, 1948",
      .arrays = kEntryArrays,
      .not_in = kRowsOnly,
  };
  static constexpr auto kParams = Params{base_param(&BinaryEntropy::base), input_param(&BinaryEntropy::input)};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

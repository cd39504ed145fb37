// Losses: one number for each row of scores x against a target, and its gradient in x, both in one pass.
//
//   std::vector<double> x = {2, 1, 0.1}, dx(3);
//   const double value = isentropic::loss(isentropic::SoftmaxLoss{}, x, 0, dx);  // value = 0.42
//   isentropic::loss(isentropic::EntmaxLoss{.alpha = 1.5}, x, 0, dx);            // dx = -0.17, 0.17, 0
//
// The target of a row is the index of a class or a distribution q over the classes; e_t is q for the class t. p is the map of x
// that belongs to the loss. Rules for every loss:
//   a NaN anywhere in a row    value and gradient of that row are NaN
//   -inf score (no class)      contributes nothing, gradient 0; as the target: value +inf, unless the loss is bounded
//   +inf scores                they share the mass equally, as if all else were -inf; the gradient is 0
//   all scores -inf            no distribution exists: value and gradient are NaN
//   ignored rows               value 0, gradient 0, whatever the row holds
//   offset                     the maximum is subtracted first, and q counts as summing to 1: a common offset changes nothing
//   reproducible               the same bits for any number of threads, any batch, any SIMD target with FMA
//   float16, bfloat16          read and written as such, computed in float
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstdint>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/half.h"
#include "isentropic/maps.h"
#include "isentropic/matrix_view.h"
#include "isentropic/row.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The kind of target of a loss.
enum class TargetKind {
  classes_or_distributions,  // an index for each row, or a row of probabilities
  classes,                   // an index for each row
  labels,                    // a row of 0 and 1
  scores,                    // a row of a teacher's scores
};

//   log sum_j exp(x_j) - x_t; of a distribution q: log sum_j exp(x_j) - <q,x>
struct SoftmaxLoss {
  double label_smoothing = 0;  // share of the target that is spread evenly over all classes with a score above -inf

  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

//   |q|^2/2 - <q,x> + sum_{p > 0} (x_i^2 - tau^2)/2, p = sparsemax(x); q = e_t for a class
struct SparsemaxLoss {
  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

//   max_p (<x,p> + H(p)) - <x,q> - H(q), H(p) = (1 - sum p^alpha) / (alpha (alpha - 1))
struct EntmaxLoss {
  double alpha = 1.5;  // order of the entropy: 1 is softmax, 2 sparsemax, larger sparser

  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

//   log sum_{j in K} exp(x_j) - <q,x>, K the k largest; q = e_t for a class
// If the target is not among the kept classes, the value may be negative. It stays finite, and its gradient raises the target's
// score.
struct TopKSoftmaxLoss {
  std::int64_t k = 0;  // number of scores that keep mass; a k above the number of scores keeps all

  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

//   log sum_{j in K} exp(x_j) - <q,x>, K the fewest largest with softmax mass >= p; q = e_t for a class
struct TopPSoftmaxLoss {
  double p = 0;  // sum of probabilities to reach; 1 keeps all

  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

//   -<q,p>, p = map(x); -p_t for a class
// Minus the accuracy of drawing from p. It is bounded: a target of -inf gives 0.
struct SmoothAccuracyLoss {
  Map map = Softmax{};  // the map whose probability of the target is the accuracy

  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

//   -log softmax(scale psi(c))_t, psi of the target: am c - m; arc cos(theta + m), from theta = pi - m on -2 - cos(theta + m);
//   sphere (-1)^k cos(m theta) - 2k, k = floor(m theta / pi)
// psi is the target's cosine c after the margin. It falls as c falls, down to c = -1, so that the gradient never has the wrong
// sign; it is 0 at single angles, theta = pi - m of arc and the multiples of pi / m between 0 and pi of sphere. The gradient is
// exact, except that for arc sin(theta) is at least 2^-10 (float) or 2^-24 (double). Cosines above 1.01 in size are refused.
struct MarginSoftmaxLoss {
  enum class Kind { am, arc, sphere };
  static constexpr double kMargins[] = {0.35, 0.5, 4};

  Kind kind = Kind::am;               // am lowers the cosine, arc adds to the angle, sphere multiplies it
  std::optional<double> margin = {};  // m; not given: 0.35 of am, 0.5 of arc (radians, at most pi), 4 of sphere (an integer)
  double scale = 30;                  // multiplies the cosines

  static constexpr TargetKind kTarget = TargetKind::classes;
  constexpr std::string_view check() const {
    if (margin && kind == Kind::arc && *margin > std::numbers::pi) return "margin must be at most pi for kind arc";
    // Above 2^53 all numbers are whole.
    const bool is_whole = margin && (*margin >= 0x1p53 || *margin == static_cast<double>(static_cast<std::int64_t>(*margin)));
    if (margin && kind == Kind::sphere && !(*margin >= 1 && is_whole)) {
      return "margin must be an integer of at least 1 for kind sphere";
    }
    return "";
  }
};

//   log(1 + sum_{no label} exp(x)) + log(1 + sum_{label} exp(-x))
struct MultilabelSoftmaxLoss {
  static constexpr TargetKind kTarget = TargetKind::labels;
};

//   <p - q, x> with x held fixed, p = map(x); q = e_t for a class
// The gradient that the loss of any map would have, for maps whose loss is not known.
struct SurrogateLoss {
  Map map = Softmax{};  // the map whose p makes the gradient

  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

// How far a student's distribution q is from a teacher's p. Each is at least 0, and 0 only where p = q.
enum class TeacherDivergence { forward_kl, reverse_kl, jsd, total_variation };

// What is wrong with beta, the teacher's weight in jsd, or an empty text.
constexpr std::string_view check_beta(TeacherDivergence divergence, const std::optional<double>& beta) {
  if (beta && divergence != TeacherDivergence::jsd) return "beta must be left out unless divergence is jsd";
  return beta && !(*beta < 1) ? "beta must be below 1, where the loss is always 0" : "";
}

//   T^2 D(p, q), p = softmax(teacher/T), q = softmax(student/T); forward_kl: KL(p, q); reverse_kl: KL(q, p); jsd: beta KL(p, m)
//   + (1 - beta) KL(q, m), m = beta p + (1 - beta) q; total_variation: sum |p - q| / 2
// An infinite value, such as reverse_kl of a class that the teacher does not have, has gradient 0.
struct DistillationLoss {
  double temperature = 1;                                        // T, divides both scores
  TeacherDivergence divergence = TeacherDivergence::forward_kl;  // D, how far the student is from the teacher
  std::optional<double> beta = {};  // weight of the teacher in jsd, below 1; not given: 0.5; refused with other divergences

  static constexpr TargetKind kTarget = TargetKind::scores;
  constexpr std::string_view check() const { return check_beta(divergence, beta); }
};

//   beta KL(t, m) + (1 - beta) KL(s, m), m = beta t + (1 - beta) s, t and s the softmax of teacher and student
struct JsdLoss {
  double beta = 0.5;  // weight of the teacher; 0 and 1, where the loss is always 0, are refused

  static constexpr TargetKind kTarget = TargetKind::scores;
  constexpr std::string_view check() const {
    if (beta <= 0) return "beta must be above 0, where the loss is always 0; its limit is forward_kl of distillation_loss";
    return beta < 1 ? "" : "beta must be below 1, where the loss is always 0; its limit is reverse_kl of distillation_loss";
  }
};

//   T^2 D(p, q); bin: p = (exp(log_probs), 1 - their sum), q = softmax(student) of these classes and of all others together;
//   renormalize: p = softmax(log_probs/T), q = softmax(student/T), of these classes
// Each row of the teacher has k classes and the logarithms of their probabilities, whose sum P is at most 1.
struct SparseDistillationLoss {
  // bin: all other classes together are one more class, of probability 1 - P. renormalize: the listed classes alone.
  enum class Tail { bin, renormalize };

  double temperature = 1;                                        // T, divides log_probs and scores; must be 1 if tail is bin
  TeacherDivergence divergence = TeacherDivergence::forward_kl;  // D, how far the student is from the teacher
  std::optional<double> beta = {};  // weight of the teacher in jsd, below 1; not given: 0.5; refused with other divergences
  Tail tail = Tail::bin;            // bin: all other classes are one class more; renormalize: only the listed classes count

  constexpr std::string_view check() const {
    if (tail == Tail::bin && temperature != 1)
      return "temperature must be 1 with tail bin, because the bin has no scores of its classes";
    return check_beta(divergence, beta);
  }
};

// Losses whose target is two tables.
using SparseLoss = std::variant<SparseDistillationLoss>;

// Every loss of one target.
using Loss = std::variant<SoftmaxLoss, SparsemaxLoss, EntmaxLoss, TopKSoftmaxLoss, TopPSoftmaxLoss, SmoothAccuracyLoss,
                          MarginSoftmaxLoss, MultilabelSoftmaxLoss, SurrogateLoss, DistillationLoss, JsdLoss>;

// value = loss(x, target) and dx its gradient in x, row by row. `per_row` gives per_row parameters of the loss or of its map a
// value for each row; `gradients` takes the gradients in the named ones. These are 0 in rows that are ignored or whose value is
// +inf, and NaN where the value is. surrogate_loss, whose value means nothing, has none.
//
// Shapes: x and dx rows x cols; dx may be x itself, or is left out; value: rows. Classes: one index for each row; rows whose
//         index is `ignored` have value 0 and gradient 0. A matrix of targets, rows x cols, shares no memory with dx:
//         distributions (sums within 1e-6 of 1 for double, 1e-4 for float, 1e-2 for halves), labels, or scores, as the loss
//         says in kTarget.
// Units: nats.
// Throws: std::invalid_argument naming the argument, and the row and entry of an invalid target, before anything is written.
template <class T>
ISENTROPIC_API void loss(const Loss& loss, MatrixView<const T> x, std::span<const std::int64_t> classes,
                         std::span<double> value, MatrixView<std::type_identity_t<T>> dx = {},
                         std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {},
                         std::optional<std::int64_t> ignored = {});
template <class T>
ISENTROPIC_API void loss(const Loss& loss, MatrixView<const T> x, MatrixView<const std::type_identity_t<T>> target,
                         std::span<double> value, MatrixView<std::type_identity_t<T>> dx = {},
                         std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

// The same for a sparse teacher: indices and log_probs are rows x k. An index of -1 is no class, and its logarithm is not read.
// log_probs may be of any type. A row without any class is ignored.
//
// Throws: std::invalid_argument for k = 0; and with row and entry for
//         an index that is no class or appears twice in a row, a logarithm that is NaN,
//         a mass above 1, a mass below 1 where tail is bin and all classes are listed,
//         or a mass of 0 where tail is renormalize.
template <class T, class L>
ISENTROPIC_API void loss(const SparseLoss& loss, MatrixView<const T> x, MatrixView<const std::int64_t> indices,
                         MatrixView<const L> log_probs, std::span<double> value, MatrixView<std::type_identity_t<T>> dx = {},
                         std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {});

// The loss of one row against the class `target`, or against one row of targets; and dx, if wanted.
template <RowOfNumbers X>
double loss(const Loss& op, const X& x, std::int64_t target) {
  double value;
  loss(op, MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), std::span<const std::int64_t>(&target, 1),
       std::span(&value, 1));
  return value;
}
template <RowOfNumbers X, RowOfNumbers Dx>
double loss(const Loss& op, const X& x, std::int64_t target, Dx&& dx) {
  double value;
  loss(op, MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), std::span<const std::int64_t>(&target, 1),
       std::span(&value, 1), row_view(dx));
  return value;
}
template <RowOfNumbers X, RowOfNumbers Q>
double loss(const Loss& op, const X& x, const Q& target) {
  double value;
  loss(op, MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), row_view(target), std::span(&value, 1));
  return value;
}
template <RowOfNumbers X, RowOfNumbers Q, RowOfNumbers Dx>
double loss(const Loss& op, const X& x, const Q& target, Dx&& dx) {
  double value;
  loss(op, MatrixView<const std::ranges::range_value_t<X>>(row_view(x)), row_view(target), std::span(&value, 1), row_view(dx));
  return value;
}

// The same for views that may write.
template <WritableView X>
void loss(const Loss& op, const X& x, std::span<const std::int64_t> classes, std::span<double> value,
          MatrixView<NumberIn<X>> dx = {}, std::span<const PerRow> per_row = {}, std::span<const ParamGradient> gradients = {},
          std::optional<std::int64_t> ignored = {}) {
  loss(op, read_only(x), classes, value, dx, per_row, gradients, ignored);
}
template <WritableView X>
void loss(const Loss& op, const X& x, MatrixView<const NumberIn<X>> target, std::span<double> value,
          MatrixView<NumberIn<X>> dx = {}, std::span<const PerRow> per_row = {},
          std::span<const ParamGradient> gradients = {}) {
  loss(op, read_only(x), target, value, dx, per_row, gradients);
}
template <class T, class L>
requires(!std::is_const_v<T> ||
         !std::is_const_v<L>) void loss(const SparseLoss& op, MatrixView<T> x, MatrixView<const std::int64_t> indices,
                                        MatrixView<L> log_probs, std::span<double> value,
                                        MatrixView<std::remove_const_t<T>> dx = {}, std::span<const PerRow> per_row = {},
                                        std::span<const ParamGradient> gradients = {}) {
  loss(op, read_only(x), indices, read_only(log_probs), value, dx, per_row, gradients);
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

inline constexpr ArrayInfo kLossArrays[] = {{.name = "x"},
                                            {.name = "target", .kind = ArrayKind::target},
                                            {.name = "value", .kind = ArrayKind::number, .output = true},
                                            {.name = "dx", .output = true, .optional = true}};
inline constexpr std::string_view kTeacherDivergences[] = {"forward_kl", "reverse_kl", "jsd", "total_variation"};

template <>
struct Described<SoftmaxLoss> {
  static constexpr Description kDescription = {
      .name = "softmax_loss",
      .summary = "Cross-entropy of softmax and the target, in nats.",
      .formula = "log sum_j exp(x_j) - x_t; of a distribution q: log sum_j exp(x_j) - <q,x>",
      .gradient = "p - q; in label_smoothing: <q,x> less the mean of x",
      .source = "Bridle, NATO ASI F68, 1990; label smoothing: Szegedy et al., CVPR 2016",
      .arrays = kLossArrays,
  };
  static constexpr auto kParams =
      Params{Param<SoftmaxLoss>{.name = "label_smoothing",
                                .meaning = "share of the target that is spread evenly over all classes with a score above -inf",
                                .member = &SoftmaxLoss::label_smoothing,
                                .at_least = 0,
                                .up_to = 1,
                                .per_row = true}};
};

template <>
struct Described<SparsemaxLoss> {
  static constexpr Description kDescription = {
      .name = "sparsemax_loss",
      .summary = "The loss whose gradient is sparsemax minus the target: 0 once the target leads all other classes by 1.",
      .formula = "|q|^2/2 - <q,x> + sum_{p > 0} (x_i^2 - tau^2)/2, p = sparsemax(x); q = e_t for a class",
      .gradient = "p - q",
      .source = "Martins, Astudillo, ICML 2016",
      .arrays = kLossArrays,
  };
  static constexpr auto kParams = Params{};
};

template <>
struct Described<EntmaxLoss> {
  static constexpr Description kDescription = {
      .name = "entmax_loss",
      .summary =
          "The Fenchel-Young loss of entmax: 0 only where p = q; alpha = 1 is the KL divergence, alpha = 2 sparsemax_loss.",
      .formula = "max_p (<x,p> + H(p)) - <x,q> - H(q), H(p) = (1 - sum p^alpha) / (alpha (alpha - 1))",
      .gradient = "p - q, p = entmax(x); in alpha: d H(p) / d alpha - d H(q) / d alpha at fixed p and q",
      .source = "Peters, Niculae, Martins, ACL 2019; Blondel, Martins, Niculae, JMLR 2020",
      .arrays = kLossArrays,
  };
  static constexpr auto kParams =
      Params{Param<EntmaxLoss>{.name = "alpha",
                               .meaning = "order of the entropy: 1 is softmax, 2 sparsemax, larger sparser",
                               .member = &EntmaxLoss::alpha,
                               .above = 0,
                               .per_row = true}};
};

template <>
struct Described<TopKSoftmaxLoss> {
  static constexpr Description kDescription = {
      .name = "top_k_softmax_loss",
      .summary = "Cross-entropy over the k largest scores; finite, perhaps negative, where the target is not among them.",
      .formula = "log sum_{j in K} exp(x_j) - <q,x>, K the k largest; q = e_t for a class",
      .gradient = "p - q, p = top_k_softmax(x)",
      .source = "Su, kexue.fm 10145, 2024",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = Params{Param<TopKSoftmaxLoss, std::int64_t>{
      .name = "k",
      .meaning = "number of scores that keep mass; a k above the number of scores keeps all",
      .member = &TopKSoftmaxLoss::k,
      .above = 0,
      .required = true,
      .typical = 3}};
};

template <>
struct Described<TopPSoftmaxLoss> {
  static constexpr Description kDescription = {
      .name = "top_p_softmax_loss",
      .summary =
          "Cross-entropy over the fewest largest scores whose probabilities sum to at least p; the target as in "
          "top_k_softmax_loss.",
      .formula = "log sum_{j in K} exp(x_j) - <q,x>, K the fewest largest with softmax mass >= p; q = e_t for a class",
      .gradient = "p - q, p = top_p_softmax(x)",
      .source = "Su, kexue.fm 10145, 2024",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = Params{Param<TopPSoftmaxLoss>{.name = "p",
                                                                .meaning = "sum of probabilities to reach; 1 keeps all",
                                                                .member = &TopPSoftmaxLoss::p,
                                                                .above = 0,
                                                                .up_to = 1,
                                                                .required = true,
                                                                .typical = 0.9}};
};

template <>
struct Described<SmoothAccuracyLoss> {
  static constexpr Description kDescription = {
      .name = "smooth_accuracy_loss",
      .summary = "Minus the probability that a map gives to the target: a smooth version of accuracy.",
      .formula = "-<q,p>, p = map(x); -p_t for a class",
      .gradient = "-J^T q; of softmax -p_t (1[i = t] - p_i)",
      .source = "Su, kexue.fm 6620, 2019",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = Params{Param<SmoothAccuracyLoss, Map>{
      .name = "map", .meaning = "the map whose probability of the target is the accuracy", .member = &SmoothAccuracyLoss::map}};
};

template <>
struct Described<MarginSoftmaxLoss> {
  static constexpr std::string_view kKinds[] = {"am", "arc", "sphere"};
  static constexpr Description kDescription = {
      .name = "margin_softmax_loss",
      .summary =
          "Cross-entropy of scaled cosines, where a margin lowers the target's cosine, so that the target has to lead by more "
          "to have a small loss.",
      .formula =
          "-log softmax(scale psi(c))_t, psi of the target: am c - m; arc cos(theta + m), from theta = pi - m on "
          "-2 - cos(theta + m); sphere (-1)^k cos(m theta) - 2k, k = floor(m theta / pi)",
      .gradient =
          "scale p_i; of the target scale psi'(c) (p_t - 1); in scale: <p,x'> - psi(c), x' the x with psi(c); in margin: "
          "scale (p_t - 1) d psi / d m, none of sphere",
      .source = "Wang et al., SPL 2018 (am); Deng et al., CVPR 2019 (arc); Liu et al., CVPR 2017 (sphere)",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams =
      Params{Param<MarginSoftmaxLoss, MarginSoftmaxLoss::Kind>{
                 .name = "kind",
                 .meaning = "am lowers the cosine, arc adds to the angle, sphere multiplies it",
                 .member = &MarginSoftmaxLoss::kind,
                 .names = kKinds},
             Param<MarginSoftmaxLoss, std::optional<double>>{
                 .name = "margin",
                 .meaning = "m; not given: 0.35 of am, 0.5 of arc (radians, at most pi), 4 of sphere (an integer)",
                 .member = &MarginSoftmaxLoss::margin,
                 .at_least = 0,
                 .per_row = true,
                 .still_with = "sphere"},
             Param<MarginSoftmaxLoss>{.name = "scale",
                                      .meaning = "multiplies the cosines",
                                      .member = &MarginSoftmaxLoss::scale,
                                      .above = 0,
                                      .per_row = true}};
};

template <>
struct Described<MultilabelSoftmaxLoss> {
  static constexpr Description kDescription = {
      .name = "multilabel_softmax_loss",
      .summary = "A loss for rows with several labels: it pushes each label's score above 0 and every other score below 0.",
      .formula = "log(1 + sum_{no label} exp(x)) + log(1 + sum_{label} exp(-x))",
      .gradient = "exp(x) / (1 + sum_{no label} exp(x)); of a label -exp(-x) / (1 + sum_{label} exp(-x))",
      .source = "Su, kexue.fm 7359, 2020; Su et al., arXiv 2208.02955, 2022",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = Params{};
};

template <>
struct Described<SurrogateLoss> {
  static constexpr Description kDescription = {
      .name = "surrogate_loss",
      .summary = "A loss for any map whose gradient is p - q; its value has no meaning of its own.",
      .formula = "<p - q, x> with x held fixed, p = map(x); q = e_t for a class",
      .gradient = "p - q",
      .source = "Su, kexue.fm 10145, 2024",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams = Params{
      Param<SurrogateLoss, Map>{.name = "map", .meaning = "the map whose p makes the gradient", .member = &SurrogateLoss::map}};
};

template <>
struct Described<DistillationLoss> {
  static constexpr Description kDescription = {
      .name = "distillation_loss",
      .summary = "Divergence of a student's softmax from a teacher's, both at temperature T, times T^2.",
      .formula =
          "T^2 D(p, q), p = softmax(teacher/T), q = softmax(student/T); forward_kl: KL(p, q); reverse_kl: KL(q, p); jsd: beta "
          "KL(p, m) + (1 - beta) KL(q, m), m = beta p + (1 - beta) q; total_variation: sum |p - q| / 2",
      .gradient =
          "in the student: T q (l - <q, l>), l = log(q/p) of reverse_kl, (1 - beta) log(q/m) of jsd, sign(q - p) / 2 of "
          "total_variation; T (q - p) of forward_kl; in beta: T^2 (KL(p, m) - KL(q, m)); also in T",
      .source = "Hinton, Vinyals, Dean, arXiv 1503.02531, 2015; Agarwal et al., ICLR 2024",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams =
      Params{Param<DistillationLoss>{.name = "temperature",
                                     .meaning = "T, divides both scores",
                                     .member = &DistillationLoss::temperature,
                                     .above = 0,
                                     .per_row = true},
             Param<DistillationLoss, TeacherDivergence>{.name = "divergence",
                                                        .meaning = "D, how far the student is from the teacher",
                                                        .member = &DistillationLoss::divergence,
                                                        .names = kTeacherDivergences},
             Param<DistillationLoss, std::optional<double>>{
                 .name = "beta",
                 .meaning = "weight of the teacher in jsd, below 1; not given: 0.5; refused with other divergences",
                 .member = &DistillationLoss::beta,
                 .above = 0,
                 .per_row = true}};
};

template <>
struct Described<JsdLoss> {
  static constexpr Description kDescription = {
      .name = "jsd_loss",
      .summary = "Generalised Jensen-Shannon divergence of a student's softmax and a teacher's; it is bounded.",
      .formula = "beta KL(t, m) + (1 - beta) KL(s, m), m = beta t + (1 - beta) s, t and s the softmax of teacher and student",
      .gradient = "(1 - beta) s (log(s/m) - KL(s, m)), in the student; in beta: KL(t, m) - KL(s, m)",
      .source = "Lin, IEEE TIT 1991; Agarwal et al., ICLR 2024",
      .arrays = kLossArrays,
      .not_in = kNotSplit,
  };
  static constexpr auto kParams =
      Params{Param<JsdLoss>{.name = "beta",
                            .meaning = "weight of the teacher; 0 and 1, where the loss is always 0, are refused",
                            .member = &JsdLoss::beta,
                            .at_least = 0,
                            .up_to = 1,
                            .per_row = true}};
};

template <>
struct Described<SparseDistillationLoss> {
  static constexpr std::string_view kTails[] = {"bin", "renormalize"};
  static constexpr ArrayInfo kArrays[] = {{.name = "student"},
                                          {.name = "indices", .kind = ArrayKind::indices},
                                          {.name = "log_probs", .kind = ArrayKind::points},
                                          {.name = "value", .kind = ArrayKind::number, .output = true},
                                          {.name = "dx", .output = true, .optional = true}};
  static constexpr Absence kNotIn[] = {
      {Door::command_line, "its teacher is two tables"},
      {Door::device, "a row's few classes are sorted and searched on the host"},
      {Door::ranks, "it is not written in sums over parts of a row"},
      {Door::web, "a page has no teacher"},
  };
  static constexpr Description kDescription = {
      .name = "sparse_distillation_loss",
      .summary = "distillation_loss for a teacher of which only a few classes are known.",
      .formula =
          "T^2 D(p, q); bin: p = (exp(log_probs), 1 - their sum), q = softmax(student) of these classes and of all others "
          "together; renormalize: p = softmax(log_probs/T), q = softmax(student/T), of these classes",
      .gradient =
          "in the student: that of distillation_loss for a listed class, and of all others together times softmax among them; "
          "also in T and beta",
      .source = "Anshumann et al., ACL 2025 (bins); Hinton, Vinyals, Dean, arXiv 1503.02531, 2015",
      .cost = 2,
      .arrays = kArrays,
      .not_in = kNotIn,
  };
  static constexpr auto kParams =
      Params{Param<SparseDistillationLoss>{.name = "temperature",
                                           .meaning = "T, divides log_probs and scores; must be 1 if tail is bin",
                                           .member = &SparseDistillationLoss::temperature,
                                           .above = 0,
                                           .per_row = true,
                                           .still_with = "bin"},
             Param<SparseDistillationLoss, TeacherDivergence>{.name = "divergence",
                                                              .meaning = "D, how far the student is from the teacher",
                                                              .member = &SparseDistillationLoss::divergence,
                                                              .names = kTeacherDivergences},
             Param<SparseDistillationLoss, std::optional<double>>{
                 .name = "beta",
                 .meaning = "weight of the teacher in jsd, below 1; not given: 0.5; refused with other divergences",
                 .member = &SparseDistillationLoss::beta,
                 .above = 0,
                 .per_row = true},
             Param<SparseDistillationLoss, SparseDistillationLoss::Tail>{
                 .name = "tail",
                 .meaning = "bin: all other classes are one class more; renormalize: only the listed classes count",
                 .member = &SparseDistillationLoss::tail,
                 .names = kTails}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// Estimators of the entropy and the mutual information of a distribution that is known only by counts of outcomes.
//
//   const std::vector<std::int64_t> counts = {30, 12, 8, 0};
//   const double nats = isentropic::entropy_of_counts({}, counts);  // nats = 0.94
//
// The entropy of the frequencies is biased: on average it is below that of the distribution by about (classes - 1) / (2 N) nats
// for N draws, if N is large. The estimators differ in how they correct this bias. Counts are whole numbers of any type of
// rows, or std::int64_t; a row without any has no estimate (NaN). `classes` that were never seen matter to james_stein and nsb
// alone.
//
//   plugin         the entropy of the frequencies
//   miller_madow   plugin + (m - 1) / (2 N), m the number of classes seen
//   jackknife      N plugin - (N - 1) / N sum of plugin without one draw; NaN for N = 1
//   grassberger    log N - sum n G(n) / N, G(n) = psi(n) + (-1)^n (psi((n + 1) / 2) - psi(n / 2)) / 2
//   chao_shen      -sum c log c / (1 - (1 - c)^N), c = C n / N, C = 1 - f1 / N the coverage, f1 the classes seen once (N counts
//                  as N - 1)
//   james_stein    the entropy of frequencies that are shrunk to the uniform distribution over all classes
//   nsb            the mean under the prior of Nemenman, Shafee and Bialek, which is nearly flat in the entropy; it alone has a
//                  standard deviation
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/matrix_view.h"
#include "isentropic/measures.h"

namespace isentropic::inline ISENTROPIC_ABI {

enum class Estimator { plugin, miller_madow, jackknife, grassberger, chao_shen, james_stein, nsb };

//   plugin: H(n / N); the others reduce its bias
struct EntropyOfCounts {
  Estimator estimator = Estimator::grassberger;  // the estimator
  // number of classes, seen or not, for james_stein and nsb; not given, the length of the row
  std::optional<double> classes = {};
  std::optional<double> base = {};

  std::string_view check() const {
    if (!classes) return {};
    if (estimator != Estimator::james_stein && estimator != Estimator::nsb) {
      return "classes must not be given, it is for estimators james_stein and nsb";
    }
    const auto whole = static_cast<std::int64_t>(*classes);
    return static_cast<double>(whole) == *classes ? "" : "classes must be a whole number";
  }
};

//   H(X) + H(Y) - H(X, Y), each by the estimator; james_stein: of the table shrunk to the uniform one
struct MutualInformationOfCounts {
  Estimator estimator = Estimator::miller_madow;  // the estimator
  std::optional<double> base = {};
};

using CountMeasure = std::variant<EntropyOfCounts>;
using CountTableMeasure = std::variant<MutualInformationOfCounts>;

// value = the estimate for each row of counts, and in `deviation`, if that is not empty, its standard deviation: of nsb, NaN
// for the others, which have none. The order of the classes does not change a bit.
//
// Throws: std::invalid_argument naming the row and entry that is no whole number of at least 0, before anything is written; for
// fewer classes than were seen.
template <class T>
ISENTROPIC_API void entropy_of_counts(const EntropyOfCounts& op, MatrixView<const T> counts, std::span<double> value,
                                      std::span<double> deviation = {});

// The estimate for a table of counts, x in rows. Where H(X) + H(Y) - H(X, Y) is below 0 it stays so.
template <class T>
ISENTROPIC_API double mutual_information_of_counts(const MutualInformationOfCounts& op, MatrixView<const T> table);

// The same for views that may write, and the estimate for one row in a container.
template <WritableView N>
void entropy_of_counts(const EntropyOfCounts& op, const N& counts, std::span<double> value, std::span<double> deviation = {}) {
  entropy_of_counts(op, read_only(counts), value, deviation);
}
template <std::ranges::contiguous_range Row>
double entropy_of_counts(const EntropyOfCounts& op, const Row& counts) {
  double value;
  entropy_of_counts(op, MatrixView<const std::ranges::range_value_t<Row>>(counts), std::span(&value, 1));
  return value;
}
template <WritableView N>
double mutual_information_of_counts(const MutualInformationOfCounts& op, const N& table) {
  return mutual_information_of_counts(op, read_only(table));
}

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

inline constexpr std::string_view kEstimators[] = {"plugin",    "miller_madow", "jackknife", "grassberger",
                                                   "chao_shen", "james_stein",  "nsb"};
inline constexpr Absence kEstimatorNotIn[] = {{Door::device, "there is no kernel for it"},
                                              {Door::ranks, "it is not written in sums over parts of a row"},
                                              {Door::web, "left out, because each page loads the library"}};
inline constexpr ArrayInfo kCountArrays[] = {
    {.name = "counts"},
    {.name = "value", .kind = ArrayKind::number, .output = true},
    {.name = "deviation", .kind = ArrayKind::number, .output = true, .optional = true}};
inline constexpr ArrayInfo kCountTableArrays[] = {{.name = "table", .kind = ArrayKind::table},
                                                  {.name = "value", .kind = ArrayKind::scalar, .output = true}};

template <>
struct Described<EntropyOfCounts> {
  static constexpr Description kDescription = {
      .name = "entropy_of_counts",
      .summary = "The entropy of a distribution, estimated from how often each outcome was drawn.",
      .formula = "plugin: H(n / N); the others reduce its bias",
      .gradient = "none",
      .source =
          "Grassberger, arXiv:physics/0307138; Chao, Shen, Environ. Ecol. Stat. 10, 2003; Hausser, Strimmer, JMLR 10, 2009; "
          "Nemenman, Shafee, Bialek, NIPS 2001",
      .arrays = kCountArrays,
      .not_in = kEstimatorNotIn,
  };
  static constexpr auto kParams =
      Params{Param<EntropyOfCounts, Estimator>{
                 .name = "estimator", .meaning = "the estimator", .member = &EntropyOfCounts::estimator, .names = kEstimators},
             Param<EntropyOfCounts, std::optional<double>>{
                 .name = "classes",
                 .meaning = "number of classes, seen or not, for james_stein and nsb; not given, the length of the row",
                 .member = &EntropyOfCounts::classes,
                 .at_least = 1,
                 .up_to = 0x1p53},
             base_param(&EntropyOfCounts::base)};
};

template <>
struct Described<MutualInformationOfCounts> {
  static constexpr Description kDescription = {
      .name = "mutual_information_of_counts",
      .summary = "How much one variable tells about another, estimated from a table of counts of their outcomes.",
      .formula = "H(X) + H(Y) - H(X, Y), each by the estimator; james_stein: of the table shrunk to the uniform one",
      .gradient = "none",
      .source = "Miller, 1955; Hausser, Strimmer, JMLR 10, 2009",
      .arrays = kCountTableArrays,
      .not_in = kEstimatorNotIn,
  };
  static constexpr auto kParams =
      Params{Param<MutualInformationOfCounts, Estimator>{.name = "estimator",
                                                         .meaning = "the estimator",
                                                         .member = &MutualInformationOfCounts::estimator,
                                                         .names = kEstimators},
             base_param(&MutualInformationOfCounts::base)};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

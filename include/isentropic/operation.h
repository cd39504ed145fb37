// Operations at run time: the description of each struct (describe.h) as plain tables, and operations made by name.
//
//   const isentropic::Map map = isentropic::make_map("entmax", {{"alpha", 1.3}});
//   std::vector<double> x = {2, 1, 0.1}, p(3);
//   isentropic::apply(map, x, p);
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "isentropic/attention.h"
#include "isentropic/calibration.h"
#include "isentropic/describe.h"
#include "isentropic/doubly_stochastic.h"
#include "isentropic/entropy_control.h"
#include "isentropic/estimators.h"
#include "isentropic/export.h"
#include "isentropic/losses.h"
#include "isentropic/maps.h"
#include "isentropic/measures.h"
#include "isentropic/sampling.h"
#include "isentropic/transport.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The families that have no variant in their own header.
using Logarithm = std::variant<LogSoftmax, LogSumExp>;
using Selection = std::variant<SoftTopK>;
using EntropyControl = std::variant<GammaForEntropy, PowerTransform, NormalizeDensity, NormalizeJoint, MeanFieldEntropy>;
using Transport =
    std::variant<OptimalTransport, PartialTransport, Sinkhorn, UnbalancedSinkhorn, SinkhornBarycenter, Wasserstein1d,
                 WassersteinHistogram, Wasserstein, SlicedWasserstein, SinkhornDivergence, UnbalancedSinkhornDivergence>;
using Sampling = std::variant<Sample, GumbelSoftmax>;
using Calibration = std::variant<ExpectedCalibrationError, EntropyInvariantScale>;
using AttentionOperation = std::variant<Attention, LinearAttention>;

// Every family, in the order in which they are listed.
template <class... Family>
struct FamilyList {};
using Families =
    FamilyList<Map, Logarithm, Selection, EntropyControl, Measure, Divergence, TableMeasure, EntryMeasure, CountMeasure,
               CountTableMeasure, Transport, TableMap, Loss, SparseLoss, Sampling, Step, Calibration, AttentionOperation>;

// A parameter's value; monostate means no value, that is the default if there is one.
using ParamValue = std::variant<std::monostate, double, std::int64_t, bool, std::string, Map, std::vector<std::int64_t>>;

enum class ParamKind { number, optional_number, integer, flag, choice, map, integers };

// A Param without its types. No bound is lowest() or max() of double; the values of a choice are strings.
struct ParamInfo {
  std::string_view name, meaning;
  ParamKind kind;
  bool required, per_row;
  double above, at_least, up_to;
  std::int64_t multiple_of;
  std::span<const std::string_view> choices;
  ParamValue initial;   // the default; monostate for a required parameter, or one that is not set by default
  ParamValue typical;   // for examples, if it has no default; otherwise monostate
  std::string allowed;  // the allowed values in words
  std::string_view still_with = {};
};

// The value as text: "0.5", "gumbel", "softmax"; "none" for no value.
ISENTROPIC_API std::string to_text(const ParamValue& value);

struct OperationInfo {
  std::string_view family, name, summary, formula, gradient, source;
  std::span<const ArrayInfo> arrays;
  GradientInfo jacobian;
  bool drawn;                       // it takes a seed, a stream and a position
  std::string_view command;         // its command; empty if it has none
  std::span<const Absence> not_in;  // doors that do not have the operation
  const Laws* laws;                 // of a map; otherwise null
  const TargetKind* target;         // of a loss; otherwise null
  std::span<const ParamInfo> params;
  std::size_t index;  // index in its family
};

// Whether a door has the operation.
inline bool has(const OperationInfo& info, Door door) {
  for (const Absence& one : info.not_in) {
    if (one.door == door) return false;
  }
  return true;
}

// Whether the result is one number for each row, where that of others is a row.
inline bool reduces(const OperationInfo& info) {
  for (const ArrayInfo& array : info.arrays) {
    if (array.output) return array.kind != ArrayKind::row;
  }
  return false;
}

struct FamilyInfo {
  std::string_view name;     // "map", "table"
  std::string_view title;    // "Measures of tables"
  std::string_view meaning;  // in a few words
  std::span<const OperationInfo> operations;
};

ISENTROPIC_API std::span<const FamilyInfo> families();

// Chains of steps as operations: sampler_probs and sampler_sample. They are no family of the registry, because their parameter
// is a list of steps.
ISENTROPIC_API const FamilyInfo& chains();

// All that is known of every operation, as JSON: a list of objects. docs/howto/other_languages.md says what they hold.
ISENTROPIC_API std::string operations_json();

// One family of Families.
template <class Family>
ISENTROPIC_API const FamilyInfo& family_info();

// The operation of this name in a family, or null.
ISENTROPIC_API const OperationInfo* find_operation(const FamilyInfo& family, std::string_view name);

// "must be one of entmax, ..., got 'entmx': did you mean entmax?" for a name that is not in the family.
ISENTROPIC_API std::string unknown_name(const FamilyInfo& family, std::string_view name);

// The operation of Family that `info` describes, with a value for each of its parameters, in the order of `info`.
//
// Throws: std::invalid_argument for a value of the wrong kind. Ranges are not checked here: the function that takes the
// operation checks them, row by row if rows have their own values.
template <class Family>
ISENTROPIC_API Family make(const OperationInfo& info, std::span<const ParamValue> values);

// The values of an operation's parameters in their order, as make() takes them; monostate for an optional one that is not set.
template <class Family>
ISENTROPIC_API std::vector<ParamValue> values_of(const Family& operation);

// A value for each parameter, for examples: its default or, without one, a typical value.
ISENTROPIC_API std::vector<ParamValue> typical_values(const OperationInfo& info);

// One argument of an operation by name, as {"alpha", 1.3} or {"map", "sparsemax"}.
struct Argument {
  std::string_view name;
  ParamValue value;
};

// An operation by name, with the checks that every function makes.
//
// Throws: std::invalid_argument that lists the family's operations or the operation's parameters if a name is none of them, or
// that names the argument whose value is missing, of the wrong kind or out of range.
template <class Family>
ISENTROPIC_API Family make(std::string_view name, std::span<const Argument> arguments);

// make_map("entmax", {{"alpha", 1.3}}) is Entmax{.alpha = 1.3}.
inline Map make_map(std::string_view name, std::initializer_list<Argument> arguments = {}) {
  return make<Map>(name, std::span(arguments.begin(), arguments.size()));
}
inline Map make_map(std::string_view name, std::span<const Argument> arguments) { return make<Map>(name, arguments); }

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

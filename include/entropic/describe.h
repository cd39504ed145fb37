// How an operation describes itself: the one place from which argument checks, the tables of operation.h, and with them the
// command line, Python, documentation, benchmarks and property tests, are derived.
#pragma once

#include "entropic/version.h"

#if __cplusplus >= 202002L  // else version.h has said it

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "entropic/export.h"

namespace entropic::inline ENTROPIC_ABI {

struct Description {
  std::string_view name;     // what users type in C++, Python and on the command line
  std::string_view summary;  // one sentence
  std::string_view formula;
  std::string_view gradient;  // J^T g
  std::string_view source;    // the paper to read

  std::size_t cost = 1;  // roughly, what an entry takes in units of softmax's: when is another thread worth its while
};

// What holds for a map: its member kLaws.
struct Laws {
  // Laws that hold exactly; the property tests assert each that is true.
  bool shift = true;           // p(x + c) = p(x)
  bool order = true;           // x_i > x_j implies p_i >= p_j
  bool ties_by_index = false;  // equal scores may be cut apart, the lower index first
  bool sparse = false;         // p may hold exact zeros for finite scores

  // Largest error of an entry in eps (2^-24 for float, 2^-53 for double): absolute, or where 0 relative to p,
  // 8 + 3 (d + mean of d under p) with d = log(max p / p).
  double absolute_error = 0;

  // A target fixes the entropy, met to 1e-6 (float) or 1e-12 (double) of max(1, H); what that leaves open of the scale of
  // the scores comes on top of the error above.
  bool entropy_target = false;

  // Largest absolute error of an entry where it is a method's own, the same whatever the type could hold: of float, and of
  // double in rows of at most 1000 scores. 0: as above.
  double float_error = 0;
  double double_error = 0;
};

// One parameter of the operation Op: a data member with its name and its range, (above, up_to] or [at_least, up_to].
// Rules across parameters are the operation's member `std::string_view check() const`: what is wrong, empty if nothing is.
// Value is double, std::int64_t, bool, std::optional<double> (not given unless set), an enum, whose values are named in
// order, or Map: a map that the operation makes use of.
template <class Op, class Value = double>
struct Param {
  using Bound = std::conditional_t<std::is_arithmetic_v<Value> || std::is_enum_v<Value>, Value, double>;

  std::string_view name;
  std::string_view meaning;
  Value Op::*member;
  Bound above = std::numeric_limits<Bound>::lowest();  // exclusive
  Bound at_least = std::numeric_limits<Bound>::lowest();
  Bound up_to = std::numeric_limits<Bound>::max();  // inclusive
  Bound multiple_of = {};                           // of an integer; 0: of anything
  std::span<const std::string_view> names = {};     // of an enum
  bool required = false;                            // the member's initial value is no value
  std::optional<Bound> typical = {};                // to show and to test the operation with, where it has no default
  bool per_row = false;                             // each row may have its own value, and there is a gradient in it
};

// Values of a parameter that is per_row, one for each row.
struct PerRow {
  std::string_view parameter;
  std::span<const double> values;
};

// Where to put the gradient in a parameter that is per_row, one number for each row.
struct ParamGradient {
  std::string_view parameter;
  std::span<double> values;
};

// What a parameter may be, as a reader says it: "one of uniform, quantile", "above 0 and at most 1". Bounds of lowest() and
// max() do not bind.
ENTROPIC_API std::string allowed_values(std::span<const std::string_view> names);
ENTROPIC_API std::string allowed_values(double above, double at_least, double up_to, std::int64_t multiple_of, bool is_integer);

// A bound as a double, in which those that do not bind are lowest() and max() too.
template <class Bound>
constexpr double wide_bound(Bound bound) {
  if (bound == std::numeric_limits<Bound>::lowest()) return std::numeric_limits<double>::lowest();
  if (bound == std::numeric_limits<Bound>::max()) return std::numeric_limits<double>::max();
  return static_cast<double>(bound);
}
template <class Op, class Value>
std::string allowed_values(const Param<Op, Value>& param) {
  if constexpr (std::is_enum_v<Value>) {
    return allowed_values(param.names);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return "true or false";
  } else if constexpr (std::is_class_v<Value> && !std::is_same_v<Value, std::optional<double>>) {
    return "any map";
  } else {
    using Bound = typename Param<Op, Value>::Bound;
    return allowed_values(wide_bound(param.above), wide_bound(param.at_least), wide_bound(param.up_to),
                          static_cast<std::int64_t>(param.multiple_of), std::is_integral_v<Bound>);
  }
}

// Calls f(param) for each parameter that Op declares.
template <class Op, class F>
constexpr void for_each_param(F&& f) {
  std::apply([&](const auto&... param) { (f(param), ...); }, Op::kParams);
}

// Whether a parameter of Op may have a value for each row.
template <class Op>
constexpr bool has_per_row() {
  bool found = false;
  for_each_param<Op>([&](const auto& param) { found |= param.per_row; });
  return found;
}

// Those of `count` rows from `first` on, of PerRow or ParamGradient.
template <class Numbers>
std::vector<Numbers> of_rows(std::span<const Numbers> all, std::size_t first, std::size_t count) {
  std::vector<Numbers> parts(all.begin(), all.end());
  for (Numbers& numbers : parts) numbers.values = numbers.values.subspan(first, count);
  return parts;
}

// The operation with its defaults, and typical values where it has none.
template <class Op>
constexpr Op typical() {
  Op op;
  for_each_param<Op>([&](const auto& param) {
    if constexpr (requires { op.*param.member = *param.typical; }) {
      if (param.typical) op.*param.member = *param.typical;
    }
  });
  return op;
}

// Of an operation of a family such as Map.
template <class... Op>
constexpr const Description& description_of(const std::variant<Op...>& op) {
  return std::visit([](const auto& one) -> const Description& { return one.kDescription; }, op);
}

template <class... Op>
constexpr const Laws& laws_of(const std::variant<Op...>& map) {
  return std::visit([](const auto& one) -> const Laws& { return one.kLaws; }, map);
}

// Calls f(std::type_identity<Op>{}) for each alternative of a family such as Map.
template <class Family, class F>
constexpr void for_each_operation(F&& f) {
  [&]<std::size_t... i>(std::index_sequence<i...>) { (f(std::type_identity<std::variant_alternative_t<i, Family>>{}), ...); }
  (std::make_index_sequence<std::variant_size_v<Family>>{});
}

}  // namespace entropic::inline ENTROPIC_ABI

#endif

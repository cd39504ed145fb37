// How an operation describes itself. Argument checks and the tables of operation.h are derived from these descriptions, and
// from those tables the command line, Python, documentation, benchmarks and property tests.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// What an array of an operation holds.
enum class ArrayKind {
  row,       // a row of entries, for each row of the call
  entry,     // one number for each row, of the type of the rows
  number,    // one number for each row
  integer,   // one integer for each row
  indices,   // a row of integers for each row, of any length
  target,    // a row of entries like that of the first array, or the class of each row
  table,     // one table
  vector,    // numbers for the whole call, in one row or in one column
  scalar,    // one number for the whole call
  count,     // one integer for the whole call
  points,    // rows that belong together: points, costs, a plan, directions
  heads,     // rows of batch x heads x rows of a head
  kv_heads,  // the same of keys or values, whose number of heads may be smaller
  mask,      // of queries x keys, or of all heads
};

inline constexpr std::string_view kArrayKindNames[] = {"row",    "entry",  "number", "integer", "indices", "target",   "table",
                                                       "vector", "scalar", "count",  "points",  "heads",   "kv_heads", "mask"};

// One array of an operation.
struct ArrayInfo {
  std::string_view name;
  ArrayKind kind = ArrayKind::row;
  bool output = false;
  bool optional = false;
  bool one_for_all = false;  // a single row may stand for all
};

// A way to an operation that some operations do not have. C++ and Python have all.
enum class Door {
  c,             // isentropic/c.h, and so JAX
  command_line,  // a command of its own
  device,        // kernels for a GPU, isentropic/cuda.h
  ranks,         // rows that are split over processes
  web,           // the library in WebAssembly, which each page loads
};

inline constexpr std::string_view kDoorNames[] = {"c", "command_line", "device", "ranks", "web"};

// A door that does not have the operation, and why.
struct Absence {
  Door door;
  std::string_view why;
};

inline constexpr Absence kNotSplit[] = {{Door::ranks, "it is not written in sums over parts of a row"}};

// The arrays of a call for a gradient, and which derivatives follow from which numbers.
struct GradientInfo {
  std::span<const ArrayInfo> arrays = {};  // of the call for J^T g; none: there is no such call, or its results are outputs
  bool symmetric = false;                  // J is symmetric, but where `input` is probs
  bool of_result = false;                  // J is a function of the result and the parameters; rows with +inf excepted
};

struct Description {
  std::string_view name;     // the name in C++, in Python and on the command line
  std::string_view summary;  // one sentence
  std::string_view formula;
  std::string_view gradient;  // J^T g
  std::string_view source;    // the paper to read

  std::size_t cost = 1;  // rough cost of an entry in units of softmax's; it decides when another thread pays

  std::span<const ArrayInfo> arrays = {};  // inputs, then outputs; an operation without any does not compile
  GradientInfo jacobian = {};
  bool drawn = false;                    // it takes a seed, a stream and a position
  std::string_view command = {};         // the command's name, if it is another one
  std::span<const Absence> not_in = {};  // doors that do not have the operation
};

// The laws of a map.
struct Laws {
  // Laws that hold exactly. The property tests check each law that is true.
  bool shift = true;           // p(x + c) = p(x)
  bool order = true;           // x_i > x_j implies p_i >= p_j
  bool ties_by_index = false;  // of equal scores, truncation keeps those with the lower index
  bool sparse = false;         // p may hold exact zeros for finite scores

  // Largest absolute error of an entry in eps (2^-24 for float, 2^-53 for double). If it is 0, the bound is relative to p: 8 +
  // 3 (d + mean of d under p) with d = log(max p / p).
  double absolute_error = 0;

  // A target fixes the entropy, within 1e-6 (float) or 1e-12 (double) of max(1, H). The resulting error of the scale of the
  // scores adds to the error above.
  bool entropy_target = false;

  // Largest absolute error of an entry if the method limits it and not the type: for float, and for double in rows of at most
  // 1000 scores. 0: the error above holds.
  double float_error = 0;
  double double_error = 0;
};

// What describes the operation Op: kDescription and kParams, and of a map kLaws. It stands at the end of Op's header, because a
// caller does not need it.
template <class Op>
struct Described;

// One parameter of the operation Op: a data member with its name and its range, (above, up_to] or [at_least, up_to]. Rules
// across parameters are in the operation's member `std::string_view check() const`, which says what is wrong or returns an
// empty text. Value is double, std::int64_t, bool, std::optional<double> (not given unless set), an enum, whose values are
// named in order, or Map: a map that the operation uses.
template <class Op, class Value = double>
struct Param {
  using Bound = std::conditional_t<std::is_arithmetic_v<Value> || std::is_enum_v<Value>, Value, double>;

  std::string_view name;
  std::string_view meaning;
  Value Op::*member;
  Bound above = std::numeric_limits<Bound>::lowest();  // exclusive
  Bound at_least = std::numeric_limits<Bound>::lowest();
  Bound up_to = std::numeric_limits<Bound>::max();  // inclusive
  Bound multiple_of = {};                           // for an integer; 0: no restriction
  std::span<const std::string_view> names = {};     // the values of an enum
  bool required = false;                            // the initial value of the member is not valid
  std::optional<Bound> typical = {};                // for examples and tests, if there is no default
  bool per_row = false;                             // each row may have its own value, and there is a gradient in the parameter
  std::string_view still_with = {};                 // the value of a choice with which there is no gradient in this parameter
};

// Values of a parameter that is per_row, one for each row.
struct PerRow {
  std::string_view parameter;
  std::span<const double> values;
};

// The output for the gradient in a parameter that is per_row, one number for each row.
struct ParamGradient {
  std::string_view parameter;
  std::span<double> values;
};

// The allowed values of a parameter in words: "one of uniform, quantile", "above 0 and at most 1". Bounds of lowest() and max()
// mean no bound.
ISENTROPIC_API std::string allowed_values(std::span<const std::string_view> names);
ISENTROPIC_API std::string allowed_values(double above, double at_least, double up_to, std::int64_t multiple_of,
                                          bool is_integer);

// A bound as a double. No bound is lowest() or max() there too.
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

// The parameters of an operation, in their order. A std::tuple would take each file that includes this a second to compile.
template <class... P>
struct Params;
template <>
struct Params<> {
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use();
  }
};
template <class A>
struct Params<A> {
  A a;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a);
  }
};
template <class A, class B>
struct Params<A, B> {
  A a;
  B b;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a, b);
  }
};
template <class A, class B, class C>
struct Params<A, B, C> {
  A a;
  B b;
  C c;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a, b, c);
  }
};
template <class A, class B, class C, class D>
struct Params<A, B, C, D> {
  A a;
  B b;
  C c;
  D d;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a, b, c, d);
  }
};
template <class A, class B, class C, class D, class E>
struct Params<A, B, C, D, E> {
  A a;
  B b;
  C c;
  D d;
  E e;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a, b, c, d, e);
  }
};
template <class A, class B, class C, class D, class E, class F>
struct Params<A, B, C, D, E, F> {
  A a;
  B b;
  C c;
  D d;
  E e;
  F f;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a, b, c, d, e, f);
  }
};
template <class A, class B, class C, class D, class E, class F, class G>
struct Params<A, B, C, D, E, F, G> {
  A a;
  B b;
  C c;
  D d;
  E e;
  F f;
  G g;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a, b, c, d, e, f, g);
  }
};
template <class A, class B, class C, class D, class E, class F, class G, class H>
struct Params<A, B, C, D, E, F, G, H> {
  A a;
  B b;
  C c;
  D d;
  E e;
  F f;
  G g;
  H h;
  template <class Use>
  constexpr decltype(auto) with(Use&& use) const {
    return use(a, b, c, d, e, f, g, h);
  }
};
template <class... P>
Params(P...) -> Params<P...>;

template <class... P>
constexpr std::size_t count_of(const Params<P...>& /*params*/) {
  return sizeof...(P);
}

// Those of `a`, then those of `b`.
template <class... A, class... B>
constexpr auto operator+(const Params<A...>& a, const Params<B...>& b) {
  return a.with([&](const auto&... first) {
    return b.with([&](const auto&... second) { return Params{first..., second...}; });
  });
}

// Calls f(param) for each parameter that Op declares.
template <class Op, class F>
constexpr void for_each_param(F&& f) {
  Described<Op>::kParams.with([&](const auto&... param) { (f(param), ...); });
}

// The numbers of `count` rows from `first` on, of PerRow or ParamGradient.
template <class Numbers>
std::vector<Numbers> of_rows(std::span<const Numbers> all, std::size_t first, std::size_t count) {
  std::vector<Numbers> parts(all.begin(), all.end());
  for (Numbers& numbers : parts) numbers.values = numbers.values.subspan(first, count);
  return parts;
}

// The operation with its defaults, and with typical values for parameters without one.
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

// The description of an operation, or of the one that a family such as Map holds.
template <class Op>
constexpr const Description& description_of(const Op& /*op*/) {
  return Described<Op>::kDescription;
}
template <class... Op>
constexpr const Description& description_of(const std::variant<Op...>& op) {
  return std::visit([](const auto& one) -> const Description& { return Described<std::decay_t<decltype(one)>>::kDescription; },
                    op);
}

template <class... Op>
constexpr const Laws& laws_of(const std::variant<Op...>& map) {
  return std::visit([](const auto& one) -> const Laws& { return Described<std::decay_t<decltype(one)>>::kLaws; }, map);
}

// Calls f(std::type_identity<Op>{}) for each alternative of a family such as Map.
template <class Family, class F>
constexpr void for_each_operation(F&& f) {
  [&]<std::size_t... i>(std::index_sequence<i...>) { (f(std::type_identity<std::variant_alternative_t<i, Family>>{}), ...); }
  (std::make_index_sequence<std::variant_size_v<Family>>{});
}

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// The tables of operations, made once from the descriptions in the structs, and operations by name.

#include "isentropic/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

std::string allowed_values(std::span<const std::string_view> names) { return fmt::format("one of {}", fmt::join(names, ", ")); }

std::string allowed_values(double above, double at_least, double up_to, std::int64_t multiple_of, bool is_integer) {
  std::vector<std::string> all;
  if (above != std::numeric_limits<double>::lowest()) all.push_back(fmt::format("above {}", above));
  if (at_least != std::numeric_limits<double>::lowest()) all.push_back(fmt::format("at least {}", at_least));
  const bool takes_infinity = up_to == std::numeric_limits<double>::infinity();
  if (up_to != std::numeric_limits<double>::max() && !takes_infinity) {
    all.push_back(fmt::format("at most {}", up_to));
  } else if (!is_integer && !takes_infinity) {
    all.emplace_back("finite");
  }
  if (multiple_of != 0) all.push_back(fmt::format("a multiple of {}", multiple_of));
  return all.empty() ? "any integer" : fmt::format("{}{}", fmt::join(all, " and "), takes_infinity ? " (inf is allowed)" : "");
}

namespace {

struct Title {
  std::string_view name, title, meaning;
};

template <class Family>
constexpr Title kTitle = {};
template <>
constexpr Title kTitle<Map> = {"map", "Maps", "rows of scores in, rows of probabilities out"};
template <>
constexpr Title kTitle<Logarithm> = {"logarithm", "Logarithms", "the logarithm of softmax, and of its sum"};
template <>
constexpr Title kTitle<Selection> = {"selection", "Selections",
                                     "rows of scores in, shares between 0 and 1 that add up to k out"};
template <>
constexpr Title kTitle<EntropyControl> = {
    "entropy_control", "Entropy control",
    "the scale of scores that gives a chosen entropy, powers of distributions, densities and tables, an estimate"};
template <>
constexpr Title kTitle<Measure> = {"measure", "Measures", "how uncertain a distribution is"};
template <>
constexpr Title kTitle<Divergence> = {"divergence", "Measures of two", "how far distributions p and q are apart"};
template <>
constexpr Title kTitle<TableMeasure> = {"table", "Measures of tables",
                                        "what the variables x, in rows, and y tell about each other"};
template <>
constexpr Title kTitle<EntryMeasure> = {"entry", "Measures of entries", "of each probability by itself"};
template <>
constexpr Title kTitle<CountMeasure> = {"counts", "Estimators", "what counts of outcomes say of their distribution"};
template <>
constexpr Title kTitle<CountTableMeasure> = {"count_table", "Estimators of tables",
                                             "what counts of pairs of outcomes, x in rows, say of their distribution"};
template <>
constexpr Title kTitle<Transport> = {"transport", "Transport", "how far masses are apart, and what goes where"};
template <>
constexpr Title kTitle<TableMap> = {"table_map", "Maps of tables",
                                    "tables of scores in, tables with fixed sums of rows and columns out"};
template <>
constexpr Title kTitle<Loss> = {"loss", "Losses", "one number for each row of scores against a target"};
template <>
constexpr Title kTitle<SparseLoss> = {"sparse_loss", "Losses of sparse targets",
                                      "scores against a few classes of each row and their log-probabilities"};
template <>
constexpr Title kTitle<Sampling> = {"sampling", "Sampling", "indices drawn from rows of scores, and relaxed draws"};
template <>
constexpr Title kTitle<Step> = {"step", "Steps of a sampler", "each acts on what the steps before it left"};
template <>
constexpr Title kTitle<Calibration> = {"calibration", "Calibration",
                                       "whether confidence equals accuracy, and a scale for a length"};
template <>
constexpr Title kTitle<AttentionOperation> = {"attention", "Attention", "values weighted by a map of scores"};

template <class Value>
constexpr ParamKind kKindOf = std::is_enum_v<Value>                              ? ParamKind::choice
                              : std::is_same_v<Value, Map>                       ? ParamKind::map
                              : std::is_same_v<Value, std::vector<std::int64_t>> ? ParamKind::integers
                              : std::is_same_v<Value, bool>                      ? ParamKind::flag
                              : std::is_integral_v<Value>                        ? ParamKind::integer
                              : std::is_same_v<Value, std::optional<double>>     ? ParamKind::optional_number
                                                                                 : ParamKind::number;

// A table whose addresses do not change.
template <class Entry>
std::span<const Entry> keep(std::vector<Entry> entries) {
  static std::deque<std::vector<Entry>> all;
  return all.emplace_back(std::move(entries));
}

// A parameter's value without its type.
template <class Op, class Value>
ParamValue value_of(const Param<Op, Value>& param, const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return std::string(param.names[static_cast<std::size_t>(value)]);
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    return value ? ParamValue(*value) : ParamValue();
  } else {
    return value;
  }
}

template <class Op, class Value>
ParamInfo info_of(const Param<Op, Value>& param) {
  using Bound = typename Param<Op, Value>::Bound;
  const Value value = Op{}.*param.member;
  ParamInfo info = {.name = param.name,
                    .meaning = param.meaning,
                    .kind = kKindOf<Value>,
                    .required = param.required,
                    .per_row = param.per_row,
                    .above = std::numeric_limits<double>::lowest(),
                    .at_least = std::numeric_limits<double>::lowest(),
                    .up_to = std::numeric_limits<double>::max(),
                    .multiple_of = 0,
                    .choices = param.names,
                    .initial = {},
                    .typical = {},
                    .allowed = allowed_values(param),
                    .still_with = param.still_with};
  if constexpr (std::is_arithmetic_v<Bound> && !std::is_same_v<Value, bool> &&
                !std::is_same_v<Value, std::vector<std::int64_t>>) {
    info.above = wide_bound(param.above), info.at_least = wide_bound(param.at_least), info.up_to = wide_bound(param.up_to);
    info.multiple_of = static_cast<std::int64_t>(param.multiple_of);
    if (param.typical) info.typical = *param.typical;
  }
  if (!param.required) info.initial = value_of(param, value);
  return info;
}

template <class Family>
FamilyInfo make_family() {
  std::vector<OperationInfo> operations;
  for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
    std::vector<ParamInfo> params;
    for_each_param<Op>([&](const auto& param) { params.push_back(info_of(param)); });
    constexpr const Description& kText = Described<Op>::kDescription;
    static_assert(!kText.arrays.empty(), "an operation says in its description which arrays it has");
    OperationInfo info = {.family = kTitle<Family>.name,
                          .name = kText.name,
                          .summary = kText.summary,
                          .formula = kText.formula,
                          .gradient = kText.gradient,
                          .source = kText.source,
                          .arrays = kText.arrays,
                          .jacobian = kText.jacobian,
                          .drawn = kText.drawn,
                          .command = {},
                          .not_in = kText.not_in,
                          .laws = nullptr,
                          .target = nullptr,
                          .params = keep(std::move(params)),
                          .index = operations.size()};
    if (has(info, Door::command_line)) info.command = kText.command.empty() ? kText.name : kText.command;
    if constexpr (requires { Described<Op>::kLaws; }) info.laws = &Described<Op>::kLaws;
    if constexpr (requires { Op::kTarget; }) info.target = &Op::kTarget;
    operations.push_back(info);
  });
  return {kTitle<Family>.name, kTitle<Family>.title, kTitle<Family>.meaning, keep(std::move(operations))};
}

template <class... Family>
std::vector<FamilyInfo> make_families(FamilyList<Family...> /*all*/) {
  return {family_info<Family>()...};
}

std::string_view kind_in_words(ParamKind kind) {
  switch (kind) {
    case ParamKind::number:
      return "a number";
    case ParamKind::optional_number:
      return "a number or not given";
    case ParamKind::integer:
      return "an integer";
    case ParamKind::flag:
      return "true or false";
    case ParamKind::choice:
      return "a string";
    case ParamKind::map:
      return "a map or the name of one";
    case ParamKind::integers:
      return "a list of integers";
  }
  return "";
}

// Sets a parameter of op to the given value.
template <class Op, class Value>
void set(Op& op, const Param<Op, Value>& param, const ParamValue& given) {
  Value& member = op.*param.member;
  if (std::holds_alternative<std::monostate>(given)) return;  // keep the default
  const auto* const number = std::get_if<double>(&given);
  const auto* const integer = std::get_if<std::int64_t>(&given);
  const auto* const text = std::get_if<std::string>(&given);
  if constexpr (std::is_enum_v<Value>) {
    if (text != nullptr) {
      for (std::size_t i = 0; i < param.names.size(); ++i) {
        if (param.names[i] != *text) continue;
        member = static_cast<Value>(i);
        return;
      }
      fail("{}: {} must be {}, got '{}'", Described<Op>::kDescription.name, param.name, allowed_values(param), *text);
    }
  } else if constexpr (std::is_same_v<Value, Map>) {
    if (const auto* const map = std::get_if<Map>(&given)) {
      member = *map;
      return;
    }
    if (text != nullptr) {
      member = make_map(*text);
      return;
    }
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (const auto* const flag = std::get_if<bool>(&given)) {
      member = *flag;
      return;
    }
  } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    if (const auto* const list = std::get_if<Value>(&given)) {
      member = *list;
      return;
    }
  } else if constexpr (std::is_integral_v<Value>) {
    if (integer != nullptr) {
      member = *integer;
      return;
    }
  } else {
    if (number != nullptr || integer != nullptr) {
      member = number != nullptr ? *number : static_cast<double>(*integer);
      return;
    }
  }
  fail("{}: {} must be {}, got {}", Described<Op>::kDescription.name, param.name, kind_in_words(kKindOf<Value>),
       std::holds_alternative<std::string>(given) ? fmt::format("'{}'", *text) : to_text(given));
}

template <class Family, class Op>
Family from_values(std::span<const ParamValue> values) {
  Op op;
  std::size_t i = 0;
  for_each_param<Op>([&](const auto& param) { set(op, param, values[i++]); });
  return op;
}

// The makers of a family's operations, by index.
template <class Family>
struct Makers;
template <class... Op>
struct Makers<std::variant<Op...>> {
  using Maker = std::variant<Op...> (*)(std::span<const ParamValue>);
  static constexpr Maker kAll[] = {from_values<std::variant<Op...>, Op>...};
};

}  // namespace

std::string to_text(const ParamValue& value) {
  return std::visit(
      []<class Value>(const Value& one) -> std::string {
        if constexpr (std::is_same_v<Value, std::monostate>) {
          return "none";
        } else if constexpr (std::is_same_v<Value, Map>) {
          return std::string(description_of(one).name);
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          return fmt::format("[{}]", fmt::join(one, ", "));
        } else {
          return formatted("{}", one);
        }
      },
      value);
}

template <class Family>
const FamilyInfo& family_info() {
  static const FamilyInfo info = make_family<Family>();
  return info;
}

const FamilyInfo& chains() {
  static constexpr Absence kHostAlone[] = {{Door::device, "a device has log(sampler_probs)"}};
  const auto chain = [](std::string_view name, std::string_view summary, std::string_view formula,
                        std::span<const ArrayInfo> arrays, std::size_t index, std::span<const Absence> not_in = {}) {
    return OperationInfo{.family = "sampler",
                         .name = name,
                         .summary = summary,
                         .formula = formula,
                         .gradient = "none: it is for drawing",
                         .source = "see the steps",
                         .arrays = arrays,
                         .jacobian = {},
                         .drawn = index == 1,
                         .command = {},
                         .not_in = not_in,
                         .laws = nullptr,
                         .target = nullptr,
                         .params = {},
                         .index = index};
  };
  static const OperationInfo kAll[] = {
      chain("sampler_probs", "The distribution after a chain of steps.",
            "the first step acts on softmax(x), each other step on the result of the one before", kChainProbsArrays, 0),
      chain("sampler_sample", "Indices drawn from the distribution after a chain of steps.", "as sample, from sampler_probs",
            kChainSampleArrays, 1),
      chain("sampler_log_probs", "The logarithm of the distribution after a chain of steps.", "log of sampler_probs",
            kChainProbsArrays, 2, kHostAlone)};
  static const FamilyInfo kFamily = {"sampler", "Chains of steps", "draws through steps", kAll};
  return kFamily;
}

std::span<const FamilyInfo> families() {
  static const std::vector<FamilyInfo> all = make_families(Families{});
  return all;
}

const OperationInfo* find_operation(const FamilyInfo& family, std::string_view name) {
  for (const OperationInfo& operation : family.operations) {
    if (operation.name == name) return &operation;
  }
  return nullptr;
}

namespace {

// The number of letters to change, to add, to leave out or to swap with the next so that a becomes b, without _ and case.
std::size_t edits(std::string_view a, std::string_view b) {
  const auto letters = [](std::string_view text) {
    std::string all;
    for (const char c : text) {
      if (c != '_' && c != '-' && c != ' ') all += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return all;
  };
  const std::string from = letters(a), to = letters(b);
  std::vector<std::vector<std::size_t>> cost(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      std::size_t& here = cost[i][j] = std::max(i, j);
      if (i == 0 || j == 0) continue;
      here = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (from[i - 1] != to[j - 1])});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) here = std::min(here, cost[i - 2][j - 2] + 1);
    }
  }
  return cost.back().back();
}

}  // namespace

std::string unknown_name(const FamilyInfo& family, std::string_view name) {
  std::string names, nearest;
  std::size_t least = name.size() / 3 + 1;
  for (const OperationInfo& one : family.operations) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
    const std::size_t distance = name.size() > 100 ? least : edits(name, one.name);
    if (distance < least) least = distance, nearest = fmt::format(": did you mean {}?", one.name);
  }
  return fmt::format("must be one of {}, got '{}'{}", names, name, nearest);
}

template <class Family>
Family make(const OperationInfo& info, std::span<const ParamValue> values) {
  return Makers<Family>::kAll[info.index](values);
}

template <class Family>
std::vector<ParamValue> values_of(const Family& operation) {
  std::vector<ParamValue> values;
  std::visit(
      [&]<class Op>(const Op& op) {
        for_each_param<Op>([&](const auto& param) { values.push_back(value_of(param, op.*param.member)); });
      },
      operation);
  return values;
}

std::vector<ParamValue> typical_values(const OperationInfo& info) {
  std::vector<ParamValue> values;
  for (const ParamInfo& param : info.params) {
    values.push_back(std::holds_alternative<std::monostate>(param.initial) ? param.typical : param.initial);
  }
  return values;
}

template <class Family>
Family make(std::string_view name, std::span<const Argument> arguments) {
  const FamilyInfo& family = family_info<Family>();
  const OperationInfo* const info = find_operation(family, name);
  const auto names = [](const auto& entries) {
    std::string all;
    for (const auto& entry : entries) all += fmt::format("{}{}", all.empty() ? "" : ", ", entry.name);
    return all;
  };
  if (info == nullptr) fail("{} {}", family.name, unknown_name(family, name));
  std::vector<ParamValue> values(info->params.size());
  for (const Argument& argument : arguments) {
    std::size_t i = 0;
    while (i < values.size() && info->params[i].name != argument.name) ++i;
    if (i == values.size()) {
      fail("{}: there is no parameter '{}'{}{}", name, argument.name, values.empty() ? "" : "; it has ", names(info->params));
    }
    const auto same = [&](const Argument& other) { return other.name == argument.name; };
    if (std::ranges::count_if(arguments, same) > 1) fail("{}: parameters has '{}' twice", name, argument.name);
    values[i] = argument.value;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (info->params[i].required && std::holds_alternative<std::monostate>(values[i])) {
      fail("{}: {} is required", name, info->params[i].name);
    }
  }
  const Family operation = make<Family>(*info, values);
  std::visit([](const auto& op) { check_params(op); }, operation);
  return operation;
}

#define ISENTROPIC_FAMILY(Family)                                                         \
  template ISENTROPIC_API const FamilyInfo& family_info<Family>();                        \
  template ISENTROPIC_API Family make(const OperationInfo&, std::span<const ParamValue>); \
  template ISENTROPIC_API Family make(std::string_view, std::span<const Argument>);       \
  template ISENTROPIC_API std::vector<ParamValue> values_of(const Family&)
ISENTROPIC_FAMILY(Map);
ISENTROPIC_FAMILY(Logarithm);
ISENTROPIC_FAMILY(Selection);
ISENTROPIC_FAMILY(EntropyControl);
ISENTROPIC_FAMILY(Measure);
ISENTROPIC_FAMILY(Divergence);
ISENTROPIC_FAMILY(CountMeasure);
ISENTROPIC_FAMILY(CountTableMeasure);
ISENTROPIC_FAMILY(TableMeasure);
ISENTROPIC_FAMILY(EntryMeasure);
ISENTROPIC_FAMILY(Transport);
ISENTROPIC_FAMILY(TableMap);
ISENTROPIC_FAMILY(Loss);
ISENTROPIC_FAMILY(SparseLoss);
ISENTROPIC_FAMILY(Sampling);
ISENTROPIC_FAMILY(Step);
ISENTROPIC_FAMILY(Calibration);
ISENTROPIC_FAMILY(AttentionOperation);
#undef ISENTROPIC_FAMILY

}  // namespace isentropic::inline ISENTROPIC_ABI

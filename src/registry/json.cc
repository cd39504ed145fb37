// The descriptions as JSON, for the C interface and `isentropic list --json`.

#include "src/registry/json.h"

#include <fmt/format.h>

#include <cmath>

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

std::string quoted(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    all += c;
  }
  return all + '"';
}
std::string_view boolean(bool value) { return value ? "true" : "false"; }
std::string json(const ParamValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return "null";
  if (const auto* const number = std::get_if<double>(&value))
    return std::isfinite(*number) ? fmt::format("{}", *number) : "null";
  if (std::holds_alternative<std::string>(value) || std::holds_alternative<Map>(value)) return quoted(to_text(value));
  return to_text(value);
}
template <class Range, class Write>
std::string list(const Range& range, const Write& write) {
  std::string all;
  for (const auto& one : range) all += (all.empty() ? "" : ", ") + write(one);
  return "[" + all + "]";
}
std::string_view kind_name(ParamKind kind) {
  static constexpr std::string_view kNames[] = {"number", "optional_number", "integer", "flag", "choice", "map", "integers"};
  return kNames[static_cast<std::size_t>(kind)];
}
std::string json(const ParamInfo& param) {
  return fmt::format(R"({{"name": {}, "meaning": {}, "kind": "{}", "required": {}, "per_row": {}, "still_with": {}, )"
                     R"("allowed": {}, "default": {}, "choices": {}}})",
                     quoted(param.name), quoted(param.meaning), kind_name(param.kind), boolean(param.required),
                     boolean(param.per_row), param.still_with.empty() ? "null" : quoted(param.still_with),
                     quoted(param.allowed), json(param.initial), list(param.choices, quoted));
}
std::string json(std::span<const ArrayInfo> arrays) {
  return list(arrays, [](const ArrayInfo& one) {
    return fmt::format(R"({{"name": {}, "kind": "{}", "output": {}, "optional": {}}})", quoted(one.name),
                       kArrayKindNames[static_cast<std::size_t>(one.kind)], boolean(one.output), boolean(one.optional));
  });
}
std::string json(std::span<const Absence> absences) {
  std::string all;
  for (const Absence& one : absences) {
    all +=
        fmt::format(R"({}"{}": {})", all.empty() ? "" : ", ", kDoorNames[static_cast<std::size_t>(one.door)], quoted(one.why));
  }
  return "{" + all + "}";
}
// The description of the parameter `steps`: a list of objects, each with a step's name and parameters.
std::string steps_json() {
  const auto step = [](const OperationInfo& info) {
    return fmt::format(R"({{"name": {}, "summary": {}, "parameters": {}}})", quoted(info.name), quoted(info.summary),
                       list(info.params, [](const ParamInfo& one) { return json(one); }));
  };
  const std::span<const OperationInfo> all = family_info<Step>().operations;
  return fmt::format(
      R"([{{"name": "steps", "meaning": "in the order applied", "kind": "steps", "required": true, "per_row": false, )"
      R"("allowed": "a list of objects with a name", "default": null, "choices": {}, "steps": {}}}])",
      list(all, [](const OperationInfo& info) { return quoted(info.name); }), list(all, step));
}

// A chain of steps is not of a family of the registry.
bool takes_steps(const OperationInfo& info) { return info.family == "sampler"; }

std::string_view target_name(TargetKind kind) {
  static constexpr std::string_view kNames[] = {"classes_or_distributions", "classes", "labels", "scores"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace

std::string operation_json(const OperationInfo& info) {
  const GradientInfo& jacobian = info.jacobian;
  return fmt::format(
      R"({{"family": {}, "name": {}, "summary": {}, "formula": {}, "gradient": {}, "source": {}, "arrays": {}, "vjp": {}, )"
      R"("symmetric": {}, "of_result": {}, "target": {}, "sparse": {}, "command": {}, "not_in": {}, "parameters": {}}})",
      quoted(info.family), quoted(info.name), quoted(info.summary), quoted(info.formula), quoted(info.gradient),
      quoted(info.source), json(info.arrays), jacobian.arrays.empty() ? "null" : json(jacobian.arrays),
      boolean(jacobian.symmetric), boolean(jacobian.of_result),
      info.target == nullptr ? "null" : quoted(target_name(*info.target)),
      info.laws == nullptr ? "null" : boolean(info.laws->sparse), info.command.empty() ? "null" : quoted(info.command),
      json(info.not_in), takes_steps(info) ? steps_json() : list(info.params, [](const ParamInfo& one) { return json(one); }));
}

std::string operations_json() {
  std::string all;
  for (const FamilyInfo& family : families()) {
    for (const OperationInfo& info : family.operations) all += (all.empty() ? "[" : ",\n") + operation_json(info);
  }
  return all + "]\n";
}

}  // namespace isentropic::inline ISENTROPIC_ABI

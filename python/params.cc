// Parameters of the registry's operations from Python and back.
#include "params.h"

#include <algorithm>
#include <limits>

namespace isentropic {
namespace {

// Whether this is an array. A number, also one of NumPy's, has no axes.
bool is_array(nb::handle value) {
  if (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr())) return false;
  Py_buffer view;
  if (PyObject_GetBuffer(value.ptr(), &view, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  const bool result = view.ndim > 0 && view.format != nullptr && std::string_view(view.format) == "d";
  PyBuffer_Release(&view);
  return result;
}

std::string_view expected_number(const ParamInfo& param) {
  return param.per_row ? "a number or an array of numbers" : "a number";
}

std::string to_choice(const OperationInfo& info, const ParamInfo& param, nb::handle value) {
  if (!nb::isinstance<nb::str>(value)) wrong_type(info.name, param.name, "a string", value);
  std::string given = nb::cast<std::string>(value);
  for (const std::string_view name : param.choices) {
    if (name == given) return given;
  }
  throw nb::value_error(
      (std::string(info.name) + ": " + std::string(param.name) + " must be " + param.allowed + ", got '" + given + "'")
          .c_str());
}

ParamValue to_value(const OperationInfo& info, const ParamInfo& param, nb::handle value) {
  switch (param.kind) {
    case ParamKind::optional_number:
      if (value.is_none()) return {};
      [[fallthrough]];
    case ParamKind::number:
      return to_double(info.name, param.name, value, expected_number(param));
    case ParamKind::integer:
      return to_int(info.name, param.name, value);
    case ParamKind::flag: {
      const bool is_bool = PyBool_Check(value.ptr()) || kind_of(value).starts_with("numpy.bool");
      if (!is_bool) wrong_type(info.name, param.name, "a bool", value);
      return PyObject_IsTrue(value.ptr()) == 1;
    }
    case ParamKind::choice:
      return to_choice(info, param, value);
    case ParamKind::integers: {
      if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) || PyDict_Check(value.ptr())) {
        wrong_type(info.name, param.name, "a list of integers", value);
      }
      const nb::object all = nb::steal(PySequence_List(value.ptr()));
      if (!all.is_valid()) {
        PyErr_Clear();
        wrong_type(info.name, param.name, "a list of integers", value);
      }
      std::vector<std::int64_t> integers;
      for (Py_ssize_t i = 0; i < PyList_Size(all.ptr()); ++i) {
        integers.push_back(to_int(info.name, param.name, PyList_GetItem(all.ptr(), i), "a list of integers"));
      }
      return integers;
    }
    case ParamKind::map:
      break;
  }
  return {};
}

// A bound as a Python number; None for no bound.
nb::object bound(const ParamInfo& param, double number) {
  const bool binds = number != std::numeric_limits<double>::lowest() && number != std::numeric_limits<double>::max();
  if (!binds) return nb::none();
  return param.kind == ParamKind::integer ? nb::object(nb::int_(static_cast<std::int64_t>(number)))
                                          : nb::object(nb::float_(number));
}

nb::object to_object(const ParamValue& value) {
  return std::visit(
      []<class Value>(const Value& one) -> nb::object {
        if constexpr (std::is_same_v<Value, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<Value, Map>) {
          return to_str(description_of(one).name);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return to_str(one);
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          nb::list all;
          for (const std::int64_t integer : one) all.append(integer);
          return nb::tuple(all);
        } else {
          return nb::cast(one);
        }
      },
      value);
}

constexpr std::string_view kKinds[] = {"float", "optional float", "int", "bool", "name", "map", "ints"};

nb::dict describe_param(const ParamInfo& param) {
  nb::dict d;
  d["name"] = to_str(param.name);
  d["meaning"] = to_str(param.meaning);
  d["kind"] = to_str(kKinds[static_cast<std::size_t>(param.kind)]);
  d["required"] = param.required;
  d["per_row"] = param.per_row;
  d["still_with"] = param.still_with.empty() ? nb::object(nb::none()) : nb::object(to_str(param.still_with));
  d["default"] = to_object(param.initial);
  d["typical"] = to_object(param.typical);
  d["above"] = bound(param, param.above);
  d["at_least"] = bound(param, param.at_least);
  d["up_to"] = bound(param, param.up_to);
  d["multiple_of"] = bound(param, static_cast<double>(param.multiple_of));
  d["allowed"] = to_str(param.allowed);
  nb::list names;
  for (const std::string_view name : param.choices) names.append(to_str(name));
  d["names"] = names;
  return d;
}

}  // namespace

ParamValues::ParamValues(const OperationInfo& info, nb::handle given) {
  values.resize(info.params.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ParamInfo& param = info.params[i];
    const nb::handle value = NB_TUPLE_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    if (param.per_row && is_array(value)) {
      arrays.emplace_back(info.name, param.name, value);
    } else if (param.kind == ParamKind::map) {
      const OperationInfo& map = *find_operation(family_info<Map>(), nb::cast<std::string>(value[0]));
      ParamValues of_map(map, value[1]);
      values[i] = make<Map>(map, of_map.values);
      arrays.splice(arrays.end(), of_map.arrays);
    } else {
      values[i] = to_value(info, param, value);
    }
  }
}

std::size_t to_axis(std::string_view where, nb::handle axis, int dims, std::string_view name) {
  constexpr std::string_view kOne = "one integer (to map over several axes at once, reshape them into one first)";
  if (nb::isinstance<nb::bool_>(axis)) wrong_type(where, "axis", kOne, axis);
  const std::int64_t given = to_int(where, "axis", axis, kOne);
  if (dims == 0) {
    throw nb::value_error(
        (std::string(where) + ": " + std::string(name) + " must have at least one axis, got a single number").c_str());
  }
  if (given < -dims || given >= dims) {
    const nb::object type = nb::module_::import_("numpy.exceptions").attr("AxisError");
    const nb::object error = type(axis, dims, nb::str(where.data(), where.size()));
    PyErr_SetObject(type.ptr(), error.ptr());
    throw nb::python_error();
  }
  return static_cast<std::size_t>(given < 0 ? given + dims : given);
}

nb::dict describe(const OperationInfo& info) {
  nb::dict d;
  d["family"] = to_str(info.family);
  d["name"] = to_str(info.name);
  d["summary"] = to_str(info.summary);
  d["formula"] = to_str(info.formula);
  d["gradient"] = to_str(info.gradient);
  d["source"] = to_str(info.source);
  d["reduces"] = reduces(info);
  d["symmetric"] = info.jacobian.symmetric;
  d["of_result"] = info.jacobian.of_result;
  d["drawn"] = info.drawn;
  d["reads_text"] =
      std::ranges::any_of(info.arrays, [](const ArrayInfo& one) { return one.kind == ArrayKind::indices && !one.output; });
  nb::dict absent;
  for (const Absence& one : info.not_in) absent[to_str(kDoorNames[static_cast<std::size_t>(one.door)])] = to_str(one.why);
  d["not_in"] = absent;
  nb::list params;
  for (const ParamInfo& param : info.params) params.append(describe_param(param));
  d["params"] = params;
  if (info.laws != nullptr) {
    nb::dict laws;
    laws["shift"] = info.laws->shift;
    laws["order"] = info.laws->order;
    laws["ties_by_index"] = info.laws->ties_by_index;
    laws["sparse"] = info.laws->sparse;
    d["laws"] = laws;
  }
  d["in_their_types"] = nb::cpp_function(
      [&info](nb::tuple values) {
        nb::list typed;
        for (std::size_t i = 0; i < info.params.size(); ++i) typed.append(to_object(to_value(info, info.params[i], values[i])));
        return nb::tuple(typed);
      },
      nb::arg("values"));
  return d;
}

nb::list describe(const FamilyInfo& family) {
  nb::list all;
  for (const OperationInfo& info : family.operations) all.append(describe(info));
  return all;
}

}  // namespace isentropic

// Parameters of an operation from Python and back: what Python gives becomes the members of its struct, and what the struct
// says about them a dict.
#pragma once

#include <entropic/entropic.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nb = nanobind;

namespace entropic {

[[noreturn]] inline void wrong_type(std::string_view where, std::string_view what, std::string_view expected, nb::handle got) {
  throw nb::type_error((std::string(where) + ": " + std::string(what) + " must be " + std::string(expected) + ", got " +
                        Py_TYPE(got.ptr())->tp_name)
                           .c_str());
}

constexpr std::string_view expected_number(bool per_row) { return per_row ? "a number or an array of numbers" : "a number"; }

inline double to_double(std::string_view where, std::string_view what, nb::handle value, std::string_view expected) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred()) {
    const bool overflow = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (!overflow) wrong_type(where, what, expected, value);
    return std::numeric_limits<double>::infinity();  // the library says what is allowed
  }
  return number;
}

// Beyond 64 bits: the nearest that there is.
inline std::int64_t to_int(std::string_view where, std::string_view what, nb::handle value,
                           std::string_view expected = "an integer") {
  const nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) {
    PyErr_Clear();
    wrong_type(where, what, expected, value);
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow > 0) return std::numeric_limits<std::int64_t>::max();
  if (overflow < 0) return std::numeric_limits<std::int64_t>::min();
  return number;
}

template <class Value>
constexpr bool kIsOptional = std::is_same_v<Value, std::optional<double>>;

template <class Op, class Param>
using ValueOf = std::remove_cvref_t<decltype(std::declval<Op&>().*std::declval<const Param&>().member)>;

template <class Op, class Param>
ValueOf<Op, Param> to_value(const Param& param, nb::handle value) {
  using Value = ValueOf<Op, Param>;
  constexpr std::string_view kWhere = Op::kDescription.name;
  if constexpr (kIsOptional<Value>) {
    if (value.is_none()) return std::nullopt;
    return to_double(kWhere, param.name, value, expected_number(param.per_row));
  } else if constexpr (std::is_enum_v<Value>) {
    std::string names;
    std::size_t i = 0;
    const bool is_string = nb::isinstance<nb::str>(value);
    if (!is_string) wrong_type(kWhere, param.name, "a string", value);
    const std::string given = nb::cast<std::string>(value);
    for (const std::string_view name : param.names) {
      if (name == given) return static_cast<Value>(i);
      names += (i++ == 0 ? "" : ", ") + std::string(name);
    }
    throw nb::value_error(
        (std::string(kWhere) + ": " + std::string(param.name) + " must be one of " + names + ", got '" + given + "'").c_str());
  } else if constexpr (std::floating_point<Value>) {
    return to_double(kWhere, param.name, value, expected_number(param.per_row));
  } else if constexpr (std::is_same_v<Value, bool>) {
    const bool is_bool = PyBool_Check(value.ptr()) || std::string_view(Py_TYPE(value.ptr())->tp_name).starts_with("numpy.bool");
    if (!is_bool) wrong_type(kWhere, param.name, "a bool", value);
    return PyObject_IsTrue(value.ptr()) == 1;
  } else {
    return to_int(kWhere, param.name, value);
  }
}

constexpr int kMaxDims = 64;  // NumPy's own limit

enum class Type { kFloat32, kFloat64, kFloat16, kBfloat16 };
constexpr std::ptrdiff_t kItemSize[] = {4, 8, 2, 2};

// An array of somebody else's: an object with the buffer protocol or, what a torch tensor has more quickly than that, a tuple
// (address, shape, strides in items, number of its Type). Strides here are in bytes.
struct Array {
  char* data;
  int ndim;
  const std::ptrdiff_t* shape;
  const std::ptrdiff_t* strides;
  Type type;

  std::ptrdiff_t item_size() const { return kItemSize[static_cast<int>(type)]; }
  std::size_t count() const {
    std::size_t product = 1;
    for (int d = 0; d < ndim; ++d) product *= static_cast<std::size_t>(shape[d]);
    return product;
  }
};

// All numbers of an array of float64 without gaps.
inline std::span<double> numbers(const Array& a) { return {reinterpret_cast<double*>(a.data), a.count()}; }

// run(std::type_identity<T>{}) for the type of an array.
template <class Run>
void on_type(Type type, const Run& run) {
  switch (type) {
    case Type::kFloat32:
      return run(std::type_identity<float>{});
    case Type::kFloat64:
      return run(std::type_identity<double>{});
    case Type::kFloat16:
      return run(std::type_identity<float16>{});
    case Type::kBfloat16:
      return run(std::type_identity<bfloat16>{});
  }
}

class Buffer {
 public:
  Buffer(std::string_view where, nb::handle array, bool writable) {
    if (PyTuple_Check(array.ptr())) {
      read_tuple(array.ptr());
      return;
    }
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0)) != 0) {
      PyErr_Clear();
      throw nb::value_error((std::string(where) + ": out must be writable, got a read-only array").c_str());
    }
    const char letter = view_.format[std::strlen(view_.format) - 1];
    const Type type = letter == 'd' ? Type::kFloat64 : letter == 'e' ? Type::kFloat16 : Type::kFloat32;
    array_ = {static_cast<char*>(view_.buf), view_.ndim, view_.shape, view_.strides, type};
  }
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const Array* operator->() const { return &array_; }
  const Array& operator*() const { return array_; }

 private:
  void read_tuple(PyObject* tuple) {
    PyObject* const shape = PyTuple_GET_ITEM(tuple, 1);
    PyObject* const strides = PyTuple_GET_ITEM(tuple, 2);
    const int ndim = static_cast<int>(PyTuple_GET_SIZE(shape));
    if (ndim > kMaxDims) throw nb::value_error("an array must have at most 64 axes");
    array_ = {static_cast<char*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(tuple, 0))), ndim, shape_, strides_,
              static_cast<Type>(PyLong_AsLong(PyTuple_GET_ITEM(tuple, 3)))};
    for (int d = 0; d < ndim; ++d) {
      shape_[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d));
      strides_[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, d)) * array_.item_size();
    }
  }

  Py_buffer view_{};
  std::ptrdiff_t shape_[kMaxDims], strides_[kMaxDims];
  Array array_;
};

// The parameters of one call. Those given as arrays keep the operation's default beside a value for each row of x.
template <class Op>
struct Params {
  struct Array {
    Array(std::string_view parameter, nb::handle array) : parameter(parameter), buffer(Op::kDescription.name, array, false) {}

    std::string_view parameter;
    Buffer buffer;
    std::vector<double> values;
  };
  Op op;
  std::list<Array> arrays;
  std::vector<PerRow> per_row;
};

// An array of float64; a number, also NumPy's, has no axes.
inline bool is_array(nb::handle value) {
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

// Values in the order of kParams.
template <class Op>
Params<Op> to_params(nb::tuple values) {
  Params<Op> params;
  std::size_t i = 0;
  for_each_param<Op>([&]<class Param>(const Param& param) {
    const nb::handle value = values[i++];
    if (param.per_row && is_array(value)) {
      params.arrays.emplace_back(param.name, value);
    } else {
      params.op.*param.member = to_value<Op>(param, value);
    }
  });
  return params;
}

// Parameters as Python gives them, where arrays have one number for each row already.
template <class Op>
struct RowParams : Params<Op> {
  explicit RowParams(nb::tuple values) : Params<Op>(to_params<Op>(values)) {
    for (const auto& array : this->arrays) this->per_row.push_back({array.parameter, numbers(*array.buffer)});
  }
};

// Calls f(params) with those of the map of this name, a RowParams.
template <class F>
void with_map(std::string_view name, nb::tuple values, F&& f) {
  for_each_operation<Map>([&]<class Op>(std::type_identity<Op>) {
    if (Op::kDescription.name != name) return;
    f(RowParams<Op>(values));
  });
}

inline nb::str to_str(std::string_view text) { return nb::str(text.data(), text.size()); }

// A number as Python knows it; None for no value and for a bound that does not bind.
template <class Value>
nb::object to_object(const Value& value) {
  if constexpr (requires { value.has_value(); }) {
    return value ? to_object(*value) : nb::none();
  } else {
    const bool binds = value != std::numeric_limits<Value>::lowest() && value != std::numeric_limits<Value>::max();
    return binds ? nb::cast(value) : nb::none();
  }
}

template <class Op, class Param>
nb::dict describe_param(const Param& param) {
  using Value = ValueOf<Op, Param>;
  nb::dict d;
  d["name"] = to_str(param.name);
  d["meaning"] = to_str(param.meaning);
  d["required"] = param.required;
  d["per_row"] = param.per_row;
  const Value value = Op{}.*param.member;
  if constexpr (std::is_enum_v<Value>) {
    d["kind"] = "name";
    nb::list names;
    for (const std::string_view name : param.names) names.append(to_str(name));
    d["names"] = names;
    d["typical"] = nb::none();
    d["default"] = names[static_cast<std::size_t>(value)];
  } else if constexpr (std::is_same_v<Value, bool>) {
    d["kind"] = "bool";
    d["default"] = value;
    d["typical"] = nb::none();
  } else {
    d["kind"] = kIsOptional<Value> ? "optional float" : std::floating_point<Value> ? "float" : "int";
    d["default"] = to_object(value);
    d["typical"] = to_object(param.typical);
    d["above"] = to_object(param.above);
    d["at_least"] = to_object(param.at_least);
    d["up_to"] = to_object(param.up_to);
    d["multiple_of"] = to_object(param.multiple_of);
    d["allowed"] = allowed_values(param);
  }
  return d;
}

// The values of an operation's parameters, each a number, a string, a bool or None: in its own type, or the TypeError or
// ValueError of a call. Ranges are checked by the call.
template <class Op>
nb::tuple in_their_types(nb::tuple values) {
  nb::list typed;
  std::size_t i = 0;
  for_each_param<Op>([&]<class Param>(const Param& param) {
    using Value = ValueOf<Op, Param>;
    const Value value = to_value<Op>(param, values[i++]);
    if constexpr (kIsOptional<Value>) {
      typed.append(value ? nb::object(nb::float_(*value)) : nb::object(nb::none()));
    } else if constexpr (std::is_enum_v<Value>) {
      typed.append(to_str(param.names[static_cast<std::size_t>(value)]));
    } else {
      typed.append(value);
    }
  });
  return nb::tuple(typed);
}

// What an operation says of itself, with its parameters in the order in which calls give their values.
template <class Op>
nb::dict describe_operation() {
  constexpr const Description& kText = Op::kDescription;
  nb::dict d;
  d["name"] = to_str(kText.name);
  d["summary"] = to_str(kText.summary);
  d["formula"] = to_str(kText.formula);
  d["gradient"] = to_str(kText.gradient);
  d["source"] = to_str(kText.source);
  nb::list params;
  for_each_param<Op>([&](const auto& param) { params.append(describe_param<Op>(param)); });
  d["params"] = params;
  d["in_their_types"] = nb::cpp_function(&in_their_types<Op>, nb::arg("values"));
  return d;
}

template <class... Op>
nb::list describe_operations() {
  nb::list all;
  (all.append(describe_operation<Op>()), ...);
  return all;
}

}  // namespace entropic

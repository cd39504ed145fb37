// Parameters of an operation from Python and back: Python's values become members of the operation's struct, and the struct's
// descriptions become a dict.
#pragma once

#include <isentropic/isentropic.h>
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
#include <tuple>
#include <vector>

namespace nb = nanobind;

namespace isentropic {

// The name of the type in messages: "str", "numpy.ndarray".
inline std::string kind_of(nb::handle value) {
  const nb::handle type = value.type();
  const auto module = nb::cast<std::string>(type.attr("__module__"));
  const auto name = nb::cast<std::string>(type.attr("__qualname__"));
  return module == "builtins" ? name : module + "." + name;
}

[[noreturn]] inline void wrong_type(std::string_view where, std::string_view what, std::string_view expected, nb::handle got) {
  throw nb::type_error(
      (std::string(where) + ": " + std::string(what) + " must be " + std::string(expected) + ", got " + kind_of(got)).c_str());
}

constexpr std::string_view expected_number(bool per_row) { return per_row ? "a number or an array of numbers" : "a number"; }

inline double to_double(std::string_view where, std::string_view what, nb::handle value, std::string_view expected) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred()) {
    const bool overflow = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (!overflow) wrong_type(where, what, expected, value);
    return std::numeric_limits<double>::infinity();  // the library's message says what is allowed
  }
  return number;
}

// An integer beyond 64 bits becomes the nearest one.
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

constexpr int kMaxDims = 64;  // NumPy's own limit

enum class Type { float32, float64, float16, bfloat16, int64, int32, boolean };
constexpr std::ptrdiff_t kItemSize[] = {4, 8, 2, 2, 8, 4, 1};

// An array from outside: an object with the buffer protocol; or a tuple (address, shape, strides in items, number of its Type),
// which is faster for a torch tensor; or None, which has neither axes nor data. Strides here are in bytes.
struct Array {
  char* data;
  int ndim;
  const std::ptrdiff_t* shape;
  const std::ptrdiff_t* strides;
  Type type;

  std::ptrdiff_t item_size() const { return kItemSize[static_cast<int>(type)]; }
};

// All numbers of an array of float64 without gaps.
inline std::span<double> numbers(const Array& a) {
  std::size_t count = 1;
  for (int d = 0; d < a.ndim; ++d) count *= static_cast<std::size_t>(a.shape[d]);
  return {reinterpret_cast<double*>(a.data), count};
}

class Buffer {
 public:
  Buffer() = default;
  Buffer(std::string_view where, nb::handle array, bool writable) { read(where, array, writable); }
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void read(std::string_view where, nb::handle array, bool writable) {
    given_ = !array.is_none();
    if (!given_) return;
    if (PyTuple_Check(array.ptr())) {
      read_tuple(array.ptr());
      return;
    }
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0)) != 0) {
      PyErr_Clear();
      throw nb::value_error((std::string(where) + ": out must be writable, got a read-only array").c_str());
    }
    array_ = {static_cast<char*>(view_.buf), view_.ndim, view_.shape, view_.strides,
              type_of(where, view_.format[std::strlen(view_.format) - 1], view_.itemsize)};
  }
  bool given() const { return given_; }  // None is not an array
  const Array* operator->() const { return &array_; }
  const Array& operator*() const { return array_; }

 private:
  // The type, from the last letter of the format in the buffer protocol. Streams are the bits of unsigned numbers.
  static Type type_of(std::string_view where, char letter, std::ptrdiff_t item_size) {
    constexpr std::tuple<char, std::ptrdiff_t, Type> kTypes[] = {
        {'d', 8, Type::float64}, {'f', 4, Type::float32}, {'e', 2, Type::float16}, {'?', 1, Type::boolean},
        {'i', 4, Type::int32},   {'l', 4, Type::int32},   {'l', 8, Type::int64},   {'q', 8, Type::int64},
        {'L', 8, Type::int64},   {'Q', 8, Type::int64}};
    for (const auto& [format, size, type] : kTypes) {
      if (letter == format && item_size == size) return type;
    }
    throw nb::type_error((std::string(where) + ": there is no array of numbers of format '" + letter + "'").c_str());
  }

  void read_tuple(PyObject* tuple) {
    PyObject* const shape = NB_TUPLE_GET_ITEM(tuple, 1);
    PyObject* const strides = NB_TUPLE_GET_ITEM(tuple, 2);
    const int ndim = static_cast<int>(NB_TUPLE_GET_SIZE(shape));
    if (ndim > kMaxDims) throw nb::value_error(("an array must have at most 64 axes, got " + std::to_string(ndim)).c_str());
    array_ = {static_cast<char*>(PyLong_AsVoidPtr(NB_TUPLE_GET_ITEM(tuple, 0))), ndim, shape_, strides_,
              static_cast<Type>(PyLong_AsLong(NB_TUPLE_GET_ITEM(tuple, 3)))};
    for (int d = 0; d < ndim; ++d) {
      shape_[d] = PyLong_AsSsize_t(NB_TUPLE_GET_ITEM(shape, d));
      strides_[d] = PyLong_AsSsize_t(NB_TUPLE_GET_ITEM(strides, d)) * array_.item_size();
    }
  }

  bool given_ = false;
  Py_buffer view_{};
  std::ptrdiff_t shape_[kMaxDims], strides_[kMaxDims];
  Array array_{};
};

// The parameters of one call, in the operation's order. Those given as arrays only have values for each row.
struct ParamValues {
  struct Array {
    Array(std::string_view where, std::string_view name, nb::handle array) : parameter(name), buffer(where, array, false) {}

    std::string_view parameter;
    Buffer buffer;
  };
  std::vector<ParamValue> values;
  std::list<Array> arrays;

  ParamValues() = default;
  // `given` has a value of each parameter. A map is (name, values of its parameters).
  ParamValues(const OperationInfo& info, nb::handle given);
};

// The family of an operation.
template <class Op, class... Family>
auto family_of(FamilyList<Family...>) {
  constexpr auto has = []<class... Ops>(std::type_identity<std::variant<Ops...>>) { return (std::is_same_v<Op, Ops> || ...); };
  return std::get<0>(std::tuple_cat(
      std::conditional_t<has(std::type_identity<Family>{}), std::tuple<std::type_identity<Family>>, std::tuple<>>{}...));
}
template <class Op>
using FamilyOf = typename decltype(family_of<Op>(Families{}))::type;

// The description of an operation that is known at compile time.
template <class Op>
struct GivenParams : ParamValues {
  Op op;

  explicit GivenParams(nb::handle given) : ParamValues(info(), given), op(std::get<Op>(make<FamilyOf<Op>>(info(), values))) {}
  static const OperationInfo& info() { return *find_operation(family_info<FamilyOf<Op>>(), Described<Op>::kDescription.name); }
};
template <class Op>
GivenParams<Op> to_params(nb::tuple given) {
  return GivenParams<Op>(given);
}

inline nb::str to_str(std::string_view text) { return nb::str(text.data(), text.size()); }

// An axis of the array `name`, which has `dims` axes, or NumPy's own error.
std::size_t to_axis(std::string_view where, nb::handle axis, int dims, std::string_view name = "x");

// The description of an operation, with its parameters in the order of the values in calls, and the function
// in_their_types(values). This function converts values, each a number, a string, a bool or None, to the parameters' types, or
// raises the error of a call. The call itself checks ranges.
nb::dict describe(const OperationInfo& info);

// The operations of a family.
nb::list describe(const FamilyInfo& family);

}  // namespace isentropic

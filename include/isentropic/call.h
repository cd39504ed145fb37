// Calls by description: an operation that is chosen at run time (operation.h), on arrays in the order of its description. The C
// interface, Python's module and JAX's calls are this call.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "isentropic/export.h"
#include "isentropic/half.h"
#include "isentropic/operation.h"
#include "isentropic/strided_rows.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The numbers are those of c.h.
enum class NumberType : std::int32_t { float32 = 1, float64, float16, bfloat16, int32, int64, boolean };

// The size of a number in bytes; 0 for what is no NumberType.
constexpr std::size_t size_of(NumberType type) {
  constexpr std::size_t kSizes[] = {0, 4, 8, 2, 2, 4, 8, 1};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(kSizes) ? kSizes[index] : 0;
}
constexpr std::string_view name_of(NumberType type) {
  constexpr std::string_view kNames[] = {"", "float32", "float64", "float16", "bfloat16", "int32", "int64", "boolean"};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(kNames) && index > 0 ? kNames[index] : "of an unknown type";
}
// The type of T.
template <class T>
inline constexpr NumberType kTypeOf = std::is_same_v<T, float>            ? NumberType::float32
                                      : std::is_same_v<T, double>         ? NumberType::float64
                                      : std::is_same_v<T, float16>        ? NumberType::float16
                                      : std::is_same_v<T, bfloat16>       ? NumberType::bfloat16
                                      : sizeof(T) == sizeof(std::int32_t) ? NumberType::int32
                                                                          : NumberType::int64;
constexpr bool is_integer(NumberType type) { return type == NumberType::int32 || type == NumberType::int64; }

// One array of a call. It is left out if it has no item_size.
struct CallArray : StridedArray {
  NumberType type = NumberType::float64;
  std::string_view name = {};  // in messages, if it is not the description's

  bool given() const { return item_size != 0; }
};

// A parameter with a value for each row: numbers that broadcast with the first array, with 1 for its axis; for attention one
// for each query. The gradient in it, if given, has one number for each row.
struct RowParameter {
  std::string_view name;
  CallArray values;    // float32 or float64
  CallArray gradient;  // float32 or float64
};

struct Call {
  const OperationInfo& operation;
  bool vjp = false;  // the call for the gradient, with the arrays of operation.jacobian
  std::span<const ParamValue> values;
  std::span<const CallArray> arrays;
  std::size_t axis = 0;  // of the first array: rows run along it
  std::span<const RowParameter> row_parameters = {};
  std::optional<std::int64_t> ignore_index = {};
  std::uint64_t seed = 0, stream = 0, position = 0;  // of what is drawn
  CallArray streams = {};                            // an integer for each row, instead of stream + row
  CallArray positions = {}, seeds = {};              // on a device: integers for each row, or one, instead of the numbers
  std::span<const Step> steps = {};                  // of an operation of chains(): on a device these,
  const Sampler* sampler = nullptr;                  // on the host the sampler that has them
  std::string_view where = {};                       // the function's name in messages, if it is not the operation's
  bool check_apart = false;                          // refuse an output that overlaps with another array in part
};

// What runs calls of an operation, or of its gradient; null if there is none: a library for WebAssembly has some operations
// alone. Throws: std::invalid_argument that names the function and the array or the parameter; RowError for an invalid row.
using Runner = void (*)(const Call& call);
ISENTROPIC_API Runner runner_of(const OperationInfo& operation, bool vjp);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

// The part of XLA's foreign function interface that isentropic.jax speaks: a call comes as a frame with arguments, results and
// attributes, and its answer is a null pointer or an error that XLA makes. These are the layouts and numbers of the ABI,
// version 0.1, that of jaxlib 0.5.3; later versions of XLA accept handlers of 0.1, not the reverse. They are declared here so
// that the package builds where there is no jaxlib. tests/python/test_xla_ffi.py compares them with xla/ffi/api/c_api.h, the
// header in which jaxlib declares all of the interface.
//
// Most structs start with their size, by which they can grow at their end, and with a list of extensions. Members after the
// last one that is used here are left out, and a pointer that has no use here is one to void.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isentropic::xla {

inline constexpr int kMajorVersion = 0, kMinorVersion = 1;

enum class ExtensionKind : std::int32_t { metadata = 1 };
enum class ErrorCode : std::int32_t { invalid_argument = 3, unimplemented = 12, internal = 13 };
enum class Type : std::int32_t { boolean = 1, int32 = 4, int64 = 5, float16 = 10, float32 = 11, float64 = 12, bfloat16 = 16 };
enum class ArrayKind : std::int32_t { buffer = 1 };
enum class AttributeKind : std::int32_t { scalar = 3, text = 4 };
enum class Stage : std::int32_t { execute = 3 };

struct Extension {
  std::size_t size;
  ExtensionKind kind;
  Extension* next;
};

struct Version {
  std::size_t size;
  Extension* extensions;
  int major_number;  // major and minor are macros of some systems
  int minor_number;
};

// What XLA asks of a handler when it is registered: a call whose frame has this extension and nothing else.
struct Metadata {
  std::size_t size;
  Version version;
  std::uint32_t traits;
};

struct MetadataExtension {
  Extension head;
  Metadata* answer;
};

struct Error;

struct ErrorRequest {
  std::size_t size;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};

// What XLA offers.
struct Api {
  std::size_t size;
  Extension* extensions;
  Version version;
  void* internals;
  Error* (*make_error)(ErrorRequest*);
};

struct Buffer {
  std::size_t size;
  Extension* extensions;
  Type type;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

// Arguments and results, for which the ABI has two structs of one layout.
struct Arrays {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  ArrayKind* kinds;
  void** values;  // Buffer if its kind is buffer
};

struct Text {
  const char* data;
  std::size_t length;
};

struct Scalar {
  Type type;
  void* value;
};

struct Attributes {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  AttributeKind* kinds;
  Text** names;
  void** values;  // Scalar or Text
};

struct Frame {
  std::size_t size;
  Extension* extensions;
  const Api* api;
  void* context;
  Stage stage;
  Arrays arguments;
  Arrays results;
  Attributes attributes;
};

}  // namespace isentropic::xla

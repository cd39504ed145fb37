// What Arrow's C data and stream interfaces fix of an array's description, its memory, and a stream of arrays: layouts that any
// library can declare for itself (https://arrow.apache.org/docs/format/CDataInterface.html). Whoever takes one moves it out of
// the producer's memory, so all members are here; tests/python/test_layouts.py compares them with pyarrow's header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isentropic::arrow {

// The type. Types of types, such as lists and columns, have children.
struct Schema {
  const char* format;  // the type in letters: "f" is float32, "+s" are columns
  const char* name;    // may be null
  const void* metadata;
  std::int64_t flags;
  std::int64_t child_count;
  Schema** children;
  Schema* dictionary;        // if not null, entries are places in this dictionary
  void (*release)(Schema*);  // null: there is nothing, or it was moved
  void* owner;
};

// The memory of an array whose type is a schema's.
struct Array {
  std::int64_t length;
  std::int64_t null_count;  // -1: not counted
  std::int64_t offset;      // where it begins in its buffers
  std::int64_t buffer_count;
  std::int64_t child_count;
  const void** buffers;  // of numbers: bits that are 0 at nulls, or null if there are none; the numbers
  Array** children;
  Array* dictionary;
  void (*release)(Array*);
  void* owner;
};

// Functions that return a number return 0 or a number of errno.
struct Stream {
  int (*schema)(Stream*, Schema*);
  int (*next)(Stream*, Array*);        // at the end an array without release
  const char* (*last_error)(Stream*);  // may be null
  void (*release)(Stream*);
  void* owner;
};

// Whether T has this size in words of 8 bytes, if pointers have 64 bits: then each member is a word.
template <class T>
constexpr bool takes(std::size_t words) {
  return sizeof(void*) != 8 || sizeof(T) == 8 * words;
}
static_assert(takes<Schema>(9) && takes<Array>(10) && takes<Stream>(5));
static_assert(sizeof(void*) != 8 || (offsetof(Schema, children) == 40 && offsetof(Schema, release) == 56));
static_assert(sizeof(void*) != 8 || (offsetof(Array, buffers) == 40 && offsetof(Array, release) == 64));
static_assert(offsetof(Stream, release) == 3 * sizeof(void*));

}  // namespace isentropic::arrow

// Arrays of numbers as bytes: the part that .npy, .npz and .safetensors share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format.h"

namespace files {

// The types of numbers that a file may have. float64, float32, float16 and bfloat16 are kept, others become float64.
enum class Stored { float64, float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, boolean };

struct Array {
  Stored type = Stored::float64;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::size_t> shape;
  std::string key;
};

// The next bytes of an array; fewer than asked for only at its end.
using ReadBytes = std::function<std::size_t(char* to, std::size_t count)>;

// The rows of an array whose bytes `read` gives; there are `available` bytes, if that is known. A shape is only trusted once
// the bytes agree with it.
Reader array_reader(Array array, std::string name, ReadBytes read, std::optional<std::uint64_t> available);

// The rows of a .npy whose bytes, header first, `read` gives.
Reader npy_reader(std::string key, std::string name, ReadBytes read, std::optional<std::uint64_t> available);

// A table of the same type and shape without numbers, from which a header can be written.
Table without_numbers(const Table& table);

// The header of an .npy for a table's array, with `rows` in place of the first length if given. Its length does not depend on
// `rows`.
std::string npy_header(const Table& table, std::optional<std::size_t> rows);

// The index of the chosen array: the one that the options name or, without a key, the only one.
std::size_t chosen_key(const std::vector<std::string_view>& keys, const ReadOptions& options, std::string_view name);

// The table's shape, with `rows` in place of the first length if given.
std::vector<std::size_t> final_shape(const Table& table, std::optional<std::size_t> rows);

}  // namespace files

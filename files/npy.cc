// NumPy's .npy, versions 1 to 3: any number of dimensions, with rows along the last. NumPy lacks bfloat16. It is written as
// '<V2', two bytes without a type, as the ml_dtypes package has it.

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "array.h"

namespace files {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostDimensions = 64;  // NumPy's own limit

// The header: a Python dictionary with exactly the keys descr, fortran_order and shape.
class Header {
 public:
  std::string dtype;
  bool fortran_order = false;
  std::vector<std::size_t> shape;

  Header(std::string_view text, std::string_view name) : rest_(text), name_(name) {
    bool has_dtype = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !std::exchange(has_dtype, true)) {
        if (peek() == '[') bad_input("{}: the array holds records; plain numbers are needed", name_);
        dtype = string();
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        fortran_order = boolean();
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        read_shape();
      } else {
        broken("has an unexpected or repeated key");
      }
      if (!accept(',') && peek() != '}') broken("is not a Python dictionary");
    }
    if (peek() != '\0') broken("goes on after its end");
    if (!has_dtype || !has_order || !has_shape) broken("lacks descr, fortran_order or shape");
  }

 private:
  [[noreturn]] void broken(std::string_view how) const { bad_input("{}: the header {}", name_, how); }

  char peek() {
    const std::size_t start = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(std::min(start, rest_.size()));
    return rest_.empty() ? '\0' : rest_.front();
  }

  bool accept(char c) {
    if (peek() != c || rest_.empty()) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) broken("is not a Python dictionary");
  }

  std::string_view string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') broken("is not a Python dictionary");
    const std::size_t end = rest_.find(quote, 1);
    if (end == rest_.npos) broken("is not a Python dictionary");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    }
    broken("has a fortran_order other than True or False");
  }

  void read_shape() {
    if (!accept('(')) broken("has a shape that is not a tuple");
    while (!accept(')')) {
      if (peek() == '-') broken("has a negative length in its shape");
      std::uint64_t length = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), length);
      if (error == std::errc::result_out_of_range || length > std::uint64_t(std::numeric_limits<std::int64_t>::max())) {
        broken("has a length of 2^63 or more in its shape");
      }
      if (error != std::errc()) broken("has a shape that is not a tuple of numbers");
      rest_.remove_prefix(end - rest_.data());
      accept('L');  // Python 2 wrote long integers with an L
      shape.push_back(length);
      if (shape.size() > kMostDimensions) broken("has more than 64 dimensions");
      if (!accept(',') && peek() != ')') broken("has a shape that is not a tuple of numbers");
    }
  }

  std::string_view rest_;
  std::string_view name_;
};

Stored type_of(const Header& header, std::string_view name, bool& big_endian) {
  std::string_view type = header.dtype;
  if (!type.empty() && std::string_view("<>|=").find(type[0]) != std::string_view::npos) {
    big_endian = type[0] == '>';
    type.remove_prefix(1);
  }
  static constexpr std::pair<std::string_view, Stored> kTypes[] = {
      {"f8", Stored::float64}, {"f4", Stored::float32}, {"f2", Stored::float16}, {"V2", Stored::bfloat16},
      {"b1", Stored::boolean}, {"i1", Stored::int8},    {"i2", Stored::int16},   {"i4", Stored::int32},
      {"i8", Stored::int64},   {"u1", Stored::uint8},   {"u2", Stored::uint16},  {"u4", Stored::uint32},
      {"u8", Stored::uint64}};
  for (const auto& [known, stored] : kTypes) {
    if (type == known) return stored;
  }
  if (type.starts_with('O')) bad_input("{}: the array holds Python objects; numbers are needed", name);
  std::string shown = header.dtype.substr(0, 20);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7E; }, '?');
  bad_input("{}: the array's type is '{}'; floats of 16, 32 and 64 bits, integers and booleans can be read", name, shown);
}

}  // namespace

Reader npy_reader(std::string key, std::string name, ReadBytes read, std::optional<std::uint64_t> available) {
  const auto exactly = [&](char* to, std::size_t count) {
    const std::size_t got = read(to, count);
    if (got < count) bad_input("{}: the file is cut short within its header", name);
  };
  char start[12];
  const std::size_t got = read(start, kMagic.size());
  if (got == 0) bad_input("{}: the file is empty", name);
  if (std::string_view(start, got) != kMagic) bad_input("{}: this is not an .npy file", name);
  exactly(start + 6, 2);
  const int version = static_cast<unsigned char>(start[6]);
  if (version < 1 || version > 3) bad_input("{}: .npy version {} is not known; only 1, 2 and 3 are", name, version);
  const std::size_t length_size = version == 1 ? 2 : 4;
  exactly(start + 8, length_size);
  std::uint32_t header_size = 0;
  std::memcpy(&header_size, start + 8, length_size);
  const std::size_t before = 8 + length_size + header_size;
  if (available && *available < before) bad_input("{}: the file is cut short within its header", name);
  constexpr std::uint32_t kLongest = 1 << 20;  // NumPy itself refuses more than 10,000 bytes
  if (header_size > kLongest) bad_input("{}: the header says that it has {} bytes", name, header_size);
  std::string text(header_size, ' ');
  exactly(text.data(), header_size);

  const Header header(text, name);
  Array array{.fortran_order = header.fortran_order, .shape = header.shape, .key = std::move(key)};
  array.type = type_of(header, name, array.big_endian);
  if (available) *available -= before;
  return array_reader(std::move(array), std::move(name), std::move(read), available);
}

std::string npy_header(const Table& table, std::optional<std::size_t> rows) {
  static constexpr std::string_view kTypes[] = {"<f4", "<f8", "<f2", "<V2"};  // in the order of Table::values
  const std::vector<std::size_t> shape = final_shape(table, rows);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  table.whole ? "<i8" : kTypes[table.values.index()], fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // The header has room for any first length, which may not be known yet. It ends with a new line, and the numbers start at a
  // multiple of 64 bytes.
  constexpr std::size_t kBefore = 10, kLongestLength = 20;
  std::size_t size = kBefore + header.size() + 1;
  if (!shape.empty()) size += kLongestLength - fmt::formatted_size("{}", shape[0]);
  size = (size + 63) / 64 * 64 - kBefore;
  header.append(size - 1 - header.size(), ' ');
  header += '\n';
  return fmt::format("{}\x01{}{}{}{}", kMagic, '\0', char(size & 0xFF), char(size >> 8), header);
}

Reader open_npy(std::shared_ptr<Input> input, const ReadOptions& options) {
  refuse_columns(options, input->name(), "an .npy file");
  if (!options.key.empty()) bad_input("{}: only .npz, .jsonl and .safetensors files have a key", input->name());
  return npy_reader(
      "", input->name(), [input](char* to, std::size_t count) { return input->read(to, count); }, input->size());
}

Writer create_npy(Output& output, const Table& first, bool counted) {
  if (!counted) output.allow_changes();
  output.write(npy_header(first, std::nullopt));
  const auto append = [&output](std::string_view encoded) { output.write(encoded); };
  if (counted) return {.append = append};
  return {.append = append,
          .end = [&output, like = without_numbers(first)](std::size_t rows) { output.change(0, npy_header(like, rows)); }};
}

}  // namespace files

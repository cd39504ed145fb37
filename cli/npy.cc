// NumPy's .npy, versions 1 to 3: any number of dimensions, rows along the last; float32 and float64 stay what they are,
// integers and booleans become float64. A header is not believed until the bytes behind it agree.

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "format.h"

namespace {

static_assert(std::endian::native == std::endian::little, "npy.cc reads and writes little-endian numbers by copying them");

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
      accept('L');  // Python 2 wrote long integers so
      shape.push_back(length);
      if (shape.size() > kMostDimensions) broken("has more than 64 dimensions");
      if (!accept(',') && peek() != ')') broken("has a shape that is not a tuple of numbers");
    }
  }

  std::string_view rest_;
  std::string_view name_;
};

// Product of the lengths, zeros left out: what has no elements must still have a shape that can be counted, also after it was
// read, when an element takes item_size bytes.
std::size_t checked_product(const std::vector<std::size_t>& shape, std::size_t item_size, std::string_view name) {
  const std::size_t most = std::size_t(std::numeric_limits<std::int64_t>::max()) / item_size;
  std::size_t product = 1;
  for (const std::size_t length : shape) {
    if (length == 0) continue;
    if (product > most / length) bad_input("{}: the shape ({}) is larger than any memory", name, fmt::join(shape, ", "));
    product *= length;
  }
  return product;
}

// Calls f(from, to) for each element: its index in the file and in rows without gaps.
template <class F>
void for_each_element(const std::vector<std::size_t>& shape, std::size_t count, bool fortran_order, F f) {
  if (!fortran_order) {
    for (std::size_t i = 0; i < count; ++i) f(i, i);
    return;
  }
  if (count == 0) return;
  std::vector<std::size_t> step(shape.size());  // of each index in the file
  std::exclusive_scan(shape.begin(), shape.end(), step.begin(), std::size_t{1}, std::multiplies<>());
  std::vector<std::size_t> index(shape.size());
  std::size_t from = 0;
  for (std::size_t to = 0; to < count; ++to) {
    f(from, to);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      from += step[axis];
      if (++index[axis] < shape[axis]) break;
      from -= step[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

template <class Stored>
Stored load(const char* at, bool big_endian) {
  char bytes[sizeof(Stored)];
  std::memcpy(bytes, at, sizeof(Stored));
  if (big_endian) std::reverse(bytes, bytes + sizeof(Stored));
  Stored value;
  std::memcpy(&value, bytes, sizeof(Stored));
  return value;
}

struct Body {
  std::string_view bytes;
  std::string_view name;
  bool big_endian;
};

// The numbers behind the header, stored as Stored, for the library as Number.
template <class Stored, class Number>
std::vector<Number> read_values(const Header& header, const Body& body) {
  const std::size_t product = checked_product(header.shape, std::max(sizeof(Stored), sizeof(Number)), body.name);
  const bool empty = std::find(header.shape.begin(), header.shape.end(), std::size_t{0}) != header.shape.end();
  const std::size_t count = empty ? 0 : product, expected = count * sizeof(Stored);
  if (body.bytes.size() != expected) {
    const std::string_view how = body.bytes.size() < expected ? "cut short" : "longer than its header says";
    bad_input("{}: the file is {}: shape ({}) needs {} bytes of numbers, there are {}", body.name, how,
              fmt::join(header.shape, ", "), expected, body.bytes.size());
  }
  std::vector<Number> values(count);
  for_each_element(header.shape, count, header.fortran_order, [&](std::size_t from, std::size_t to) {
    values[to] = static_cast<Number>(load<Stored>(body.bytes.data() + from * sizeof(Stored), body.big_endian));
  });
  return values;
}

// A byte that is not 0 is true, whatever else it is.
template <>
std::vector<double> read_values<bool, double>(const Header& header, const Body& body) {
  std::vector<double> values = read_values<std::uint8_t, double>(header, body);
  for (double& value : values) value = value != 0;
  return values;
}

std::variant<std::vector<float>, std::vector<double>> read_any(const Header& header, Body body) {
  std::string_view type = header.dtype;
  if (!type.empty() && std::string_view("<>|=").find(type[0]) != std::string_view::npos) {
    body.big_endian = type[0] == '>';
    type.remove_prefix(1);
  }
  if (type == "f4") return read_values<float, float>(header, body);
  if (type == "f8") return read_values<double, double>(header, body);
  if (type == "b1") return read_values<bool, double>(header, body);
  if (type == "i1") return read_values<std::int8_t, double>(header, body);
  if (type == "i2") return read_values<std::int16_t, double>(header, body);
  if (type == "i4") return read_values<std::int32_t, double>(header, body);
  if (type == "i8") return read_values<std::int64_t, double>(header, body);
  if (type == "u1") return read_values<std::uint8_t, double>(header, body);
  if (type == "u2") return read_values<std::uint16_t, double>(header, body);
  if (type == "u4") return read_values<std::uint32_t, double>(header, body);
  if (type == "u8") return read_values<std::uint64_t, double>(header, body);
  if (type.starts_with('O')) bad_input("{}: the array holds Python objects; numbers are needed", body.name);
  std::string shown = header.dtype.substr(0, 20);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7E; }, '?');
  bad_input("{}: the array's type is '{}'; float32, float64, integers and booleans can be read", body.name, shown);
}

}  // namespace

Table read_npy(std::string_view bytes, std::string_view name, const ReadOptions& options) {
  if (options.labels > 0) bad_input("{}: an .npy file has no label column", name);
  if (bytes.empty()) bad_input("{}: the file is empty", name);
  if (!bytes.starts_with(kMagic)) bad_input("{}: this is not an .npy file", name);
  if (bytes.size() < 8) bad_input("{}: the file is cut short within its header", name);
  const int version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3) bad_input("{}: .npy version {} is not known; 1, 2 and 3 are", name, version);
  const std::size_t start = version == 1 ? 10 : 12;
  if (bytes.size() < start) bad_input("{}: the file is cut short within its header", name);
  const std::size_t header_size =
      version == 1 ? load<std::uint16_t>(bytes.data() + 8, false) : load<std::uint32_t>(bytes.data() + 8, false);
  if (bytes.size() - start < header_size) bad_input("{}: the file is cut short within its header", name);

  const Header header(bytes.substr(start, header_size), name);
  if (header.shape.empty()) bad_input("{}: the array is a single number; rows of scores are needed", name);
  Table table;
  table.values = read_any(header, {.bytes = bytes.substr(start + header_size), .name = name, .big_endian = false});
  table.shape = header.shape;
  table.cols = header.shape.back();
  table.rows = 1;
  for (std::size_t axis = 0; axis + 1 < header.shape.size(); ++axis) table.rows *= header.shape[axis];
  return table;
}

void write_npy(const Table& table, const Sink& sink) {
  std::visit(
      [&](const auto& values) {
        const std::string_view dtype = sizeof(values[0]) == sizeof(float) ? "<f4" : "<f8";
        std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", dtype,
                                         fmt::join(table.shape, ", "), table.shape.size() == 1 ? "," : "");
        // The numbers start at a multiple of 64 bytes, the header ends with a new line.
        constexpr std::size_t kBefore = 10;
        header.append(63 - (kBefore + header.size()) % 64, ' ');
        header += '\n';
        const auto size = static_cast<std::uint16_t>(header.size());
        sink(fmt::format("{}\x01{}{}{}{}", kMagic, '\0', char(size & 0xFF), char(size >> 8), header));
        sink({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])});
      },
      table.values);
}

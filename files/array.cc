// Arrays of numbers as bytes, a block of rows at a time.
#include "array.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "text.h"

namespace files {
namespace {

static_assert(std::endian::native == std::endian::little, "little-endian numbers are read and written by copying them");

constexpr std::size_t kPiece = std::size_t{1} << 24;

// The product of the lengths other than zero. An array without elements must have a countable shape too, also once it is read
// and an element takes item_size bytes.
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

// Calls f(from, to) for each element: its index in the file and its index in rows without gaps.
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

struct Bool {
  std::uint8_t byte;
  explicit operator double() const { return byte != 0; }  // whatever else it is
};

// Calls f(Stored{}, Number{}): the type of the numbers in the file, and the type that the library gets.
template <class F>
auto with_types(Stored type, F f) {
  switch (type) {
    case Stored::float64:
      return f(double{}, double{});
    case Stored::float32:
      return f(float{}, float{});
    case Stored::float16:
      return f(isentropic::float16{}, isentropic::float16{});
    case Stored::bfloat16:
      return f(isentropic::bfloat16{}, isentropic::bfloat16{});
    case Stored::int8:
      return f(std::int8_t{}, double{});
    case Stored::int16:
      return f(std::int16_t{}, double{});
    case Stored::int32:
      return f(std::int32_t{}, double{});
    case Stored::int64:
      return f(std::int64_t{}, double{});
    case Stored::uint8:
      return f(std::uint8_t{}, double{});
    case Stored::uint16:
      return f(std::uint16_t{}, double{});
    case Stored::uint32:
      return f(std::uint32_t{}, double{});
    case Stored::uint64:
      return f(std::uint64_t{}, double{});
    case Stored::boolean:
      return f(Bool{}, double{});
  }
  std::abort();
}

// Reverses the bytes of each number.
template <class T>
void swap_bytes(std::vector<T>& numbers) {
  auto* bytes = reinterpret_cast<char*>(numbers.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) std::reverse(bytes + i * sizeof(T), bytes + (i + 1) * sizeof(T));
}

class ArrayReader {
 public:
  ArrayReader(Array array, std::string name, ReadBytes read, std::optional<std::uint64_t> available)
      : array_(std::move(array)), name_(std::move(name)), read_(std::move(read)) {
    if (array_.shape.empty()) bad_input("{}: the array is a single number; rows of scores are needed", name_);
    item_size_ = with_types(array_.type, [](auto stored, auto) { return sizeof(stored); });
    const std::size_t largest = with_types(array_.type, [](auto, auto number) { return sizeof(number); });
    const std::size_t product = checked_product(array_.shape, std::max(item_size_, largest), name_);
    const bool empty = std::find(array_.shape.begin(), array_.shape.end(), std::size_t{0}) != array_.shape.end();
    count_ = empty ? 0 : product;
    cols_ = array_.shape.back();
    for (std::size_t axis = 0; axis + 1 < array_.shape.size(); ++axis) rows_ *= array_.shape[axis];
    if (available && *available != count_ * item_size_) wrong_size(*available);
    known_ = available.has_value();
  }

  bool take(Table& table, std::size_t numbers) {
    if (std::exchange(begun_, true) && at_ == rows_) return false;
    std::size_t rows = rows_ - at_;
    // Rows without numbers take no bytes, and in Fortran's order the numbers of a row are spread over the file.
    const bool in_order = !array_.fortran_order || array_.shape.size() == 1;
    if (cols_ > 0 && in_order) rows = std::min(rows, std::max<std::size_t>(1, numbers / cols_));
    table.rows = rows;
    table.cols = cols_;
    table.first_row = at_;
    table.shape = array_.shape;
    table.key = array_.key;
    with_types(array_.type, [&]<class In, class Out>(In, Out) { read_rows<In, Out>(table, in_order); });
    at_ += rows;
    if (at_ == rows_ && !known_) check_end();
    return true;
  }

 private:
  [[noreturn]] void wrong_size(std::uint64_t found) const {
    const std::size_t expected = count_ * item_size_;
    const std::string_view how = found < expected ? "cut short" : "longer than its header says";
    bad_input("{}: the file is {}: shape ({}) needs {} bytes of numbers, there are {}", name_, how,
              fmt::join(array_.shape, ", "), expected, found);
  }

  void check_end() {
    std::vector<char> rest(1 << 16);
    std::uint64_t found = bytes_read_;
    while (const std::size_t got = read_(rest.data(), rest.size())) found += got;
    if (found != bytes_read_) wrong_size(found);
  }

  // Reads `count` numbers. Memory grows with the bytes that are there, not with what the header says.
  template <class In>
  std::vector<In> read_numbers(std::vector<In> numbers, std::size_t count) {
    numbers.resize(known_ ? count : std::min(count, kPiece));
    for (std::size_t have = 0; have < count;) {
      if (numbers.size() == have) numbers.resize(std::min(count, 2 * have));
      const std::size_t wanted = (numbers.size() - have) * sizeof(In);
      const std::size_t got = read_(reinterpret_cast<char*>(numbers.data() + have), wanted);
      bytes_read_ += got;
      if (got < wanted) wrong_size(bytes_read_);
      have = numbers.size();
    }
    if (array_.big_endian) swap_bytes(numbers);
    return numbers;
  }

  template <class In, class Out>
  void read_rows(Table& table, bool in_order) {
    const std::size_t count = table.rows * table.cols;
    if constexpr (std::is_same_v<In, Out>) {
      std::vector<In> numbers = read_numbers<In>(reused<In>(table), count);
      if (!in_order) {
        std::vector<Out> ordered(count);
        for_each_element(array_.shape, count, true, [&](std::size_t from, std::size_t to) { ordered[to] = numbers[from]; });
        numbers = std::move(ordered);
      }
      table.values = std::move(numbers);
    } else {
      const std::vector<In> numbers = read_numbers<In>({}, count);
      std::vector<Out> values(count);
      for_each_element(array_.shape, count, !in_order,
                       [&](std::size_t from, std::size_t to) { values[to] = static_cast<Out>(numbers[from]); });
      table.values = std::move(values);
    }
  }

  Array array_;
  std::string name_;
  ReadBytes read_;
  bool known_ = false;
  bool begun_ = false;
  std::size_t item_size_ = 0, count_ = 0, rows_ = 1, cols_ = 0;
  std::size_t at_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace

Reader array_reader(Array array, std::string name, ReadBytes read, std::optional<std::uint64_t> available) {
  const auto reader = std::make_shared<ArrayReader>(std::move(array), std::move(name), std::move(read), available);
  return {.counted = true, .take = [reader](Piece& piece, std::size_t numbers) { return reader->take(piece.table, numbers); }};
}

void refuse_columns(const ReadOptions& options, std::string_view name, std::string_view what) {
  if (!options.label.empty()) bad_input("{}: {} has no label column", name, what);
  if (options.header) bad_input("{}: {} has no header", name, what);
  if (options.delimiter != 0) bad_input("{}: --delimiter is not for {}", name, what);
  if (options.thousands != 0) bad_input("{}: --thousands is not for {}", name, what);
  if (!options.na.empty()) bad_input("{}: --na is not for {}", name, what);
  const std::string_view option = !options.columns.empty()   ? "columns"
                                  : !options.exclude.empty() ? "exclude"
                                                             : options.keep_option;
  if (options.columns.empty() && options.exclude.empty() && options.keep.empty()) return;
  bad_input("{}: --{} is for columns of .csv and .tsv; {} has none with names", name, option, what);
}

std::size_t chosen_key(const std::vector<std::string_view>& keys, const ReadOptions& options, std::string_view name) {
  const std::string& key = options.key;
  if (keys.empty()) bad_input("{}: there is no array in the file", name);
  if (key.empty() && keys.size() == 1) return 0;
  std::string shown;
  for (const std::string_view known : keys) {
    if (shown.size() > 200) {
      shown += ", ...";
      break;
    }
    shown += (shown.empty() ? "" : ", ") + in_quotes(known);
  }
  if (key.empty()) {
    bad_input("{}: there are several arrays: {}{}", name, shown, options.advised.key ? "; choose one with --key" : "");
  }
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found == keys.end()) bad_input("{}: there is no array {}; the file has {}", name, in_quotes(key), shown);
  return static_cast<std::size_t>(found - keys.begin());
}

std::vector<std::size_t> final_shape(const Table& table, std::optional<std::size_t> rows) {
  std::vector<std::size_t> shape = table.shape;
  if (rows) shape[0] = *rows / rows_of_line(table.nested);
  return shape;
}

Table without_numbers(const Table& table) {
  Table same;
  std::visit([&]<class T>(const std::vector<T>&) { same.values = std::vector<T>(); }, table.values);
  same.whole = table.whole;
  same.shape = table.shape;
  same.nested = table.nested;
  return same;
}

std::string_view encode_binary(const Table& table, fmt::memory_buffer& memory) {
  if (table.whole) {
    const auto& numbers = std::get<std::vector<double>>(table.values);
    const std::vector<std::int64_t> whole(numbers.begin(), numbers.end());
    const auto* const bytes = reinterpret_cast<const char*>(whole.data());
    memory.clear();
    memory.append(bytes, bytes + whole.size() * sizeof(whole[0]));
    return {memory.data(), memory.size()};
  }
  return std::visit(
      [](const auto& values) {
        return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
      },
      table.values);
}

}  // namespace files

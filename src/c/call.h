// One call of the C interface: its arrays by name, checked, and its parameters.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "isentropic/c.h"
#include "isentropic/isentropic.h"
#include "src/c/json.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI::by_name {

// Each page loads the WebAssembly, so it is small. It has maps and gamma_for_entropy in float32 and float64; and gradients of
// maps, losses, measures of rows, draws, transport on a line and between histograms in float64.
#ifdef __wasm__
constexpr bool kSmall = true;
#else
constexpr bool kSmall = false;
#endif

// The arrays of an operation, or of its gradient, without those for parameters; none if the interface does not have the
// operation.
std::span<const ArrayInfo> arrays_of(const OperationInfo& info, bool vjp);

inline std::size_t size_of(std::int32_t type) {
  switch (type) {
    case ISENTROPIC_FLOAT32:
    case ISENTROPIC_INT32:
      return 4;
    case ISENTROPIC_FLOAT64:
    case ISENTROPIC_INT64:
      return 8;
    case ISENTROPIC_FLOAT16:
    case ISENTROPIC_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

// One array of a call, its strides in bytes.
struct Given {
  std::string_view name;
  char* data;
  std::ptrdiff_t shape[2];
  std::ptrdiff_t strides[2];
  std::int32_t type;

  StridedArray strided() const { return {data, shape, strides, size_of(type)}; }
  std::size_t rows() const { return static_cast<std::size_t>(shape[0]); }
  std::size_t cols() const { return static_cast<std::size_t>(shape[1]); }
  char* at(std::size_t row, std::size_t col = 0) const {
    return data + static_cast<std::ptrdiff_t>(row) * strides[0] + static_cast<std::ptrdiff_t>(col) * strides[1];
  }
};

template <class T>
T read(const char* from) {
  T number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

// One number for each row, in the form that the library's functions take.
template <class T>
class Column {
 public:
  Column(std::string_view operation, const Given& given, std::size_t rows) : given_(given), numbers_(rows) {
    constexpr bool kWhole = std::is_integral_v<T>;
    if (given.rows() != rows || given.cols() != 1) {
      fail("{}: {} must have shape ({}, 1), one for each row, got {}", operation, given.name, rows, shape_text(given.shape));
    }
    const bool good = kWhole ? given.type == ISENTROPIC_INT32 || given.type == ISENTROPIC_INT64
                             : given.type == ISENTROPIC_FLOAT32 || given.type == ISENTROPIC_FLOAT64;
    if (!good) {
      fail("{}: {} must be {}", operation, given.name, kWhole ? "integers of 32 or 64 bits" : "float32 or float64");
    }
  }

  Column& load() {
    using Narrow = std::conditional_t<std::is_integral_v<T>, std::int32_t, float>;
    for (std::size_t r = 0; r < numbers_.size(); ++r) {
      numbers_[r] = narrow() ? static_cast<T>(read<Narrow>(given_.at(r))) : read<T>(given_.at(r));
    }
    return *this;
  }
  // toward: -1 rounds lower bounds, and 1 upper ones, so that they hold in float32 too.
  void store(int toward = 0) const {
    using Narrow = std::conditional_t<std::is_integral_v<T>, std::int32_t, float>;
    for (std::size_t r = 0; r < numbers_.size(); ++r) {
      auto small = static_cast<Narrow>(numbers_[r]);
      if constexpr (std::is_floating_point_v<T>) {
        if (toward * (numbers_[r] - small) > 0) small = std::nextafter(small, toward * std::numeric_limits<float>::infinity());
      }
      std::memcpy(given_.at(r), narrow() ? static_cast<const void*>(&small) : &numbers_[r],
                  narrow() ? sizeof small : sizeof(T));
    }
  }
  std::span<T> part(std::size_t first, std::size_t count) { return std::span(numbers_).subspan(first, count); }
  std::span<T> all() { return numbers_; }

 private:
  bool narrow() const { return size_of(given_.type) == 4; }

  const Given& given_;
  std::vector<T> numbers_;
};

// The arguments of one call, with names and types checked.
class Call {
 public:
  Call(const OperationInfo& info, const char* parameters, const isentropic_array* arrays, std::size_t count, bool vjp)
      : info_(info),
        arrays_(arrays_of(info, vjp)),
        where_(std::string(info.name) + (vjp ? "_vjp" : "")),
        values_(info.params.size()) {
    read_arrays(arrays, count);
    for (const ArrayInfo& array : arrays_) {
      const Given* const given = find(array.name);
      if (given == nullptr && !array.optional) fail("{}: the array '{}' is missing", where_, array.name);
      known_.push_back(array.name);
    }
    if (parameters != nullptr) {
      for (const Argument& one : parse_parameters(where_, parameters, is_chain() ? &steps_ : nullptr)) set(one);
      if (is_chain() && !steps_) fail("{}: steps is required", where_);
    }
    const std::size_t rows = first().rows();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const ParamInfo& param = info.params[i];
      if (!param.per_row) continue;
      if (const Given* const values = find(param.name); values != nullptr) {
        if (!std::holds_alternative<std::monostate>(values_[i])) {
          fail("{}: {} must be a parameter or an array, got both", where_, param.name);
        }
        columns_.emplace_back(where_, *values, rows).load();
        per_row_.push_back({param.name, columns_.back().all()});
        known_.push_back(param.name);
        const std::string slope = "d_" + std::string(param.name);
        if (const Given* const to = find(slope); to != nullptr) {
          slopes_.emplace_back(where_, *to, rows);
          gradients_.push_back({param.name, slopes_.back().all()});
          known_.push_back(to->name);
        }
      }
    }
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const ParamInfo& param = info.params[i];
      bool given = !std::holds_alternative<std::monostate>(values_[i]);
      for (const PerRow& one : per_row_) given |= one.parameter == param.name;
      if (param.required && !given) fail("{}: {} is required", where_, param.name);
    }
    if (info_.drawn) {
      if (const Given* const streams = find("stream"); streams != nullptr) {
        streams_.emplace(where_, *streams, rows).load();
        known_.emplace_back("stream");
      }
    }
    for (const Given& one : given_) {
      bool known = false;
      for (const std::string_view name : known_) known |= name == one.name;
      if (!known) fail("{}: there is no array '{}'; it has {}", where_, one.name, fmt::join(known_, ", "));
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const OperationInfo& info() const { return info_; }
  std::span<const ArrayInfo> arrays() const { return arrays_; }
  // The first array, whose type is that of the call.
  const Given& first() const { return *find(arrays_[0].name); }
  std::string_view where() const { return where_; }
  std::span<const ParamValue> values() const { return values_; }
  const Given& operator[](std::string_view name) const { return *find(name); }
  const Given* find(std::string_view name) const {
    for (const Given& one : given_) {
      if (one.name == name) return &one;
    }
    return nullptr;
  }

  std::vector<PerRow> per_row(std::size_t first, std::size_t count) const { return part(per_row_, first, count); }
  std::vector<ParamGradient> gradients(std::size_t first, std::size_t count) const { return part(gradients_, first, count); }
  void store_gradients() const {
    for (const Column<double>& one : slopes_) one.store();
  }
  // The noise of rows from `first` on.
  Noise noise(std::size_t first, std::size_t count, std::vector<std::uint64_t>& streams) {
    Noise noise = {
        seed(), static_cast<std::uint64_t>(noise_[1].second) + first, static_cast<std::uint64_t>(noise_[2].second), {}};
    if (streams_) {
      const auto given = streams_->part(first, count);
      streams.assign(given.begin(), given.end());
      noise.streams = streams;
    }
    return noise;
  }
  const std::optional<std::int64_t>& ignored() const { return ignored_; }
  // The steps of a chain.
  const std::vector<Step>& steps() const { return *steps_; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(noise_[0].second); }
  // The numbers of heads in the rows of q, and of k and v.
  std::size_t batch() const { return static_cast<std::size_t>(counts_[0].second.value_or(1)); }
  std::size_t heads() const { return static_cast<std::size_t>(counts_[1].second.value_or(1)); }
  std::size_t kv_heads() const { return counts_[2].second ? static_cast<std::size_t>(*counts_[2].second) : heads(); }

 private:
  template <class Entry>
  static std::vector<Entry> part(const std::vector<Entry>& all, std::size_t first, std::size_t count) {
    std::vector<Entry> some = all;
    for (Entry& one : some) one.values = one.values.subspan(first, count);
    return some;
  }

  // A chain of steps is not of a family of the registry: it has no parameters but a list of steps.
  bool is_chain() const { return info_.family == "sampler"; }

  void read_arrays(const isentropic_array* arrays, std::size_t count) {
    if (count > 0 && arrays == nullptr) fail("{}: arrays must not be null where count is {}", where_, count);
    // The first field is the distance to the next array; later headers may add fields to the struct.
    const std::size_t size = count > 0 ? arrays->struct_size : 0;
    if (count > 0 && size < sizeof(isentropic_array)) {
      fail("{}: struct_size must be sizeof(isentropic_array), at least {}, got {}", where_, sizeof(isentropic_array), size);
    }
    const char* at = reinterpret_cast<const char*>(arrays);
    for (std::size_t i = 0; i < count; ++i, at += size) {
      const auto& one = *reinterpret_cast<const isentropic_array*>(at);
      if (one.struct_size != size) fail("{}: struct_size must be the same of all arrays", where_);
      if (one.name == nullptr) fail("{}: array {} has no name", where_, i);
      const std::size_t item = size_of(one.type);
      if (item == 0)
        fail("{}: type of {} must be ISENTROPIC_FLOAT32 to ISENTROPIC_INT64, 1 to 6, got {}", where_, one.name, one.type);
      if (one.data == nullptr && one.rows != 0 && one.cols != 0) fail("{}: data of {} must not be null", where_, one.name);
      if (find(one.name) != nullptr) fail("{}: the array '{}' is given twice", where_, one.name);
      constexpr auto kMost = static_cast<std::size_t>(PTRDIFF_MAX);
      if (one.rows > kMost || one.cols > kMost) fail("{}: {} has too many rows or cols", where_, one.name);
      const auto cols = static_cast<std::ptrdiff_t>(one.cols);
      const std::ptrdiff_t step = one.col_stride == 0 ? 1 : one.col_stride;
      const std::ptrdiff_t row_step = one.row_stride == 0 ? cols * step : one.row_stride;
      const auto bytes = static_cast<std::ptrdiff_t>(item);
      given_.push_back({one.name,
                        static_cast<char*>(one.data),
                        {static_cast<std::ptrdiff_t>(one.rows), cols},
                        {row_step * bytes, step * bytes},
                        one.type});
    }
  }

  void set(const Argument& one) {
    const auto whole = [&](std::int64_t& to) {
      const auto* const number = std::get_if<std::int64_t>(&one.value);
      if (number == nullptr) fail("{}: {} must be an integer, got {}", where_, one.name, to_text(one.value));
      to = *number;
    };
    if (info_.drawn) {
      for (auto& [name, number] : noise_) {
        if (one.name == name) return whole(number);
      }
    }
    if (arrays_[0].kind == ArrayKind::heads) {
      for (auto& [name, number] : counts_) {
        if (one.name != name) continue;
        whole(number.emplace());
        if (*number < 1) fail("{}: {} must be above 0, got {}", where_, one.name, *number);
        return;
      }
    }
    if (info_.target != nullptr && one.name == kIgnoreIndex) return whole(ignored_.emplace());
    std::string names;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      names += (names.empty() ? "" : ", ") + std::string(info_.params[i].name);
      if (info_.params[i].name != one.name) continue;
      values_[i] = one.value;
      return;
    }
    fail("{}: there is no parameter '{}'{}{}", where_, one.name, names.empty() ? "" : "; it has ", names);
  }

  const OperationInfo& info_;
  std::span<const ArrayInfo> arrays_;
  std::string where_;
  std::vector<ParamValue> values_;
  std::vector<Given> given_;
  std::vector<std::string_view> known_;
  std::deque<Column<double>> columns_, slopes_;  // a deque, because addresses must not change
  std::vector<PerRow> per_row_;
  std::vector<ParamGradient> gradients_;
  std::optional<Column<std::int64_t>> streams_;
  // Further integers that a call may have by name.
  static constexpr std::string_view kIgnoreIndex = "ignore_index";
  std::pair<std::string_view, std::int64_t> noise_[3] = {{"seed", 0}, {"stream", 0}, {"position", 0}};
  std::pair<std::string_view, std::optional<std::int64_t>> counts_[3] = {{"batch", {}}, {"heads", {}}, {"kv_heads", {}}};
  std::optional<std::int64_t> ignored_;
  std::optional<std::vector<Step>> steps_;
};

template <bool kFloat32 = true, class Run>
void on_type(const Call& call, const Given& first, const Run& run) {
  switch (first.type) {
    case ISENTROPIC_FLOAT32:
      if constexpr (kFloat32) return run(std::type_identity<float>{});
      break;
    case ISENTROPIC_FLOAT64:
      return run(std::type_identity<double>{});
    case ISENTROPIC_FLOAT16:
      if constexpr (!kSmall) return run(std::type_identity<float16>{});
      break;
    case ISENTROPIC_BFLOAT16:
      if constexpr (!kSmall) return run(std::type_identity<bfloat16>{});
      break;
    default:
      break;
  }
  fail("{}: {} must be {}{}float64", call.where(), first.name, kSmall ? "" : "float16, bfloat16, ",
       kFloat32 ? "float32 or " : "");
}

// Whether an array has rows of the call's type: a target is classes if it has integers.
inline bool has_rows(const ArrayInfo& array, const Given* given) {
  if (array.kind == ArrayKind::target) return given->type != ISENTROPIC_INT32 && given->type != ISENTROPIC_INT64;
  return array.kind == ArrayKind::row || array.kind == ArrayKind::entry;
}

// Calls run(type, blocks, first row) with the rows of the arrays that have rows, in the order of the description, which must
// all have the type of the first. An array that was left out has blocks without data.
template <bool kFloat32 = true, class Run>
void on_rows(const Call& call, const Run& run) {
  const Given& first = call.first();
  std::vector<RowArgument> arguments;
  std::ptrdiff_t repeated_shape[2], repeated_strides[2];  // of a single row that stands for all
  for (const ArrayInfo& array : call.arrays()) {
    const Given* const given = call.find(array.name);
    if (!has_rows(array, given)) continue;
    RowArgument argument = {.name = array.name, .array = {}, .output = array.output, .absent = given == nullptr};
    if (given != nullptr) {
      if (given->type != first.type) fail("{}: {} must be of the type of {}", call.where(), given->name, first.name);
      argument.array = given->strided();
      argument.one_per_row = array.kind == ArrayKind::entry;
      argument.one_for_all = array.one_for_all;
      if (argument.one_for_all && given->rows() == 1) {
        repeated_shape[0] = first.shape[0], repeated_shape[1] = given->shape[1];
        repeated_strides[0] = 0, repeated_strides[1] = given->strides[1];
        argument.array.shape = repeated_shape, argument.array.strides = repeated_strides;
      }
    }
    arguments.push_back(argument);
  }
  const StridedRows rows(call.where(), arguments, 1, RowOrder::by_index);
  rows.check_apart();
  on_type<kFloat32>(call, first, [&]<class T>(std::type_identity<T> type) {
    rows.for_blocks([&](const RowBlock* blocks, std::size_t begin) { run(type, blocks, begin); });
  });
}

// Refuses 16-bit types, for functions that do not take them.
inline void refuse_halves(const Call& call, const Given& first) {
  if (first.type == ISENTROPIC_FLOAT16 || first.type == ISENTROPIC_BFLOAT16) {
    fail("{}: {} must be float32 or float64", call.where(), first.name);
  }
}
template <class Run>
void on_wide_rows(const Call& call, const Run& run) {
  refuse_halves(call, call.first());
  on_rows(call, [&]<class T>(std::type_identity<T> type, const RowBlock* blocks, std::size_t begin) {
    if constexpr (!kIsHalf<T>) run(type, blocks, begin);
  });
}

// The array of this name in place; it must have the type of another one. No rows if it was left out.
template <class T>
MatrixView<T> matrix_of(const Call& call, std::string_view name, const Given& first) {
  const Given* const given = call.find(name);
  if (given == nullptr) return {};
  if (given->type != first.type) fail("{}: {} must be of the type of {}", call.where(), name, first.name);
  constexpr auto kItem = static_cast<std::ptrdiff_t>(sizeof(T));
  if (given->strides[1] != kItem || given->strides[0] < 0) {
    fail("{}: {} must have a col_stride of 1 and a row_stride that is not negative", call.where(), name);
  }
  return {reinterpret_cast<T*>(given->data), given->rows(), given->cols(), static_cast<std::size_t>(given->strides[0] / kItem)};
}

// Functions of more.cc.
void store_integers(const Given& to, std::span<const std::int64_t> from);
const Given& checked_indices(const Call& call);
void run_sampler(Call& call);
void run_attention(Call& call, bool vjp);
void run_transport(Call& call);

}  // namespace isentropic::inline ISENTROPIC_ABI::by_name

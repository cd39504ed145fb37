// The arrays of one call (isentropic/call.h), checked once, in the forms that the library's functions take.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isentropic/call.h"
#include "isentropic/isentropic.h"
#include "src/arrays/apart.h"
#include "src/call/few.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI::call {

// Each page loads the WebAssembly, so it is small. It has maps and gamma_for_entropy in float32 and float64; and gradients of
// maps, losses, measures of rows, draws, transport on a line and between histograms in float64.
#ifdef __wasm__
inline constexpr bool kSmall = true;
#else
inline constexpr bool kSmall = false;
#endif

inline std::span<const ArrayInfo> arrays_of(const OperationInfo& info, bool vjp) {
  return vjp ? info.jacobian.arrays : info.arrays;
}

// Calls visit(address) for each number, by index: the last axis runs fastest.
template <class Visit>
void for_each_number(const StridedArray& a, const Visit& visit) {
  std::array<std::ptrdiff_t, kMaxAxes> index{};
  if (std::ranges::any_of(a.shape, [](std::ptrdiff_t size) { return size == 0; })) return;
  char* at = a.data;
  while (true) {
    visit(at);
    std::size_t d = a.shape.size();
    for (; d-- > 0;) {
      at += a.strides[d] * a.unit;
      if (++index[d] < a.shape[d]) break;
      at -= a.strides[d] * a.unit * a.shape[d];
      index[d] = 0;
    }
    if (d > a.shape.size()) return;  // every axis is at its end
  }
}
inline std::size_t count_of(const StridedArray& a) {
  std::size_t count = 1;
  for (const std::ptrdiff_t size : a.shape) count *= static_cast<std::size_t>(size);
  return count;
}
inline bool without_gaps(const StridedArray& a) {
  auto step = static_cast<std::ptrdiff_t>(a.item_size);
  for (std::size_t d = a.shape.size(); d-- > 0;) {
    if (a.shape[d] > 1 && a.strides[d] * a.unit != step) return false;
    step *= a.shape[d];
  }
  return reinterpret_cast<std::uintptr_t>(a.data) % a.item_size == 0;
}

// Copies numbers of an array, by index: whole ones as int64, others as double.
template <class Number>
void load(const CallArray& from, std::span<Number> to) {
  using Narrow = std::conditional_t<std::is_integral_v<Number>, std::int32_t, float>;
  std::size_t i = 0;
  for_each_number(from, [&](const char* at) {
    if (from.item_size == sizeof(Narrow)) {
      Narrow number;
      std::memcpy(&number, at, sizeof number);
      to[i++] = static_cast<Number>(number);
    } else {
      std::memcpy(&to[i++], at, sizeof(Number));
    }
  });
}
// toward: -1 rounds lower bounds, and 1 upper ones, so that they hold in float32 too.
template <class Number>
void store(const CallArray& to, std::span<const Number> from, int toward = 0) {
  using Narrow = std::conditional_t<std::is_integral_v<Number>, std::int32_t, float>;
  std::size_t i = 0;
  for_each_number(to, [&](char* at) {
    const Number number = from[i++];
    if (to.item_size == 1) {
      *at = number != 0;
      return;
    }
    if (to.item_size != sizeof(Narrow)) {
      std::memcpy(at, &number, sizeof number);
      return;
    }
    auto small = static_cast<Narrow>(number);
    if constexpr (std::is_floating_point_v<Number>) {
      if (toward * (number - small) > 0) small = std::nextafter(small, toward * std::numeric_limits<float>::infinity());
    }
    std::memcpy(at, &small, sizeof small);
  });
}

class Arguments {
 public:
  explicit Arguments(const Call& call) : call_(call), infos_(arrays_of(call.operation, call.vjp)), where_(call.where) {
    if (where_.empty()) where_ = call.operation.name;
    if (call.vjp && call.where.empty()) {  // a std::string would ask for memory in every call
      constexpr std::string_view kVjp = "_vjp";
      const std::size_t size = std::min(where_.size(), name_.size() - kVjp.size());
      std::ranges::copy(kVjp, std::copy_n(where_.begin(), size, name_.begin()));
      where_ = {name_.data(), size + kVjp.size()};
    }
    if (call.arrays.size() != infos_.size())
      fail("{}: there must be {} arrays, got {}", where_, infos_.size(), call.arrays.size());
    for (std::size_t i = 0; i < infos_.size(); ++i) {
      if (!call.arrays[i].given() && !infos_[i].optional) fail("{}: the array '{}' is missing", where_, infos_[i].name);
    }
    if (call.row_parameters.size() > Few<PerRow>::kMost) fail("{}: too many parameters have a value for each row", where_);
    if (call.check_apart) check_all_apart();
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const Call& call() const { return call_; }
  std::string_view where() const { return where_; }
  template <class Family>
  Family make() const {
    return isentropic::make<Family>(call_.operation, call_.values);
  }

  std::span<const ArrayInfo> infos() const { return infos_; }
  const CallArray& array(std::size_t i) const { return call_.arrays[i]; }
  const CallArray& first() const { return call_.arrays[0]; }
  std::string_view name(std::size_t i) const { return array(i).name.empty() ? infos_[i].name : array(i).name; }
  // Null if it was left out.
  const CallArray* find(std::string_view name) const {
    for (std::size_t i = 0; i < infos_.size(); ++i) {
      if (infos_[i].name == name) return array(i).given() ? &array(i) : nullptr;
    }
    return nullptr;
  }
  const CallArray& operator[](std::string_view name) const { return *find(name); }

  void check_numbers(std::string_view name, const CallArray& a) const {
    if (a.type != NumberType::float32 && a.type != NumberType::float64) {
      fail("{}: {} must be float32 or float64, got {}", where_, name, name_of(a.type));
    }
  }
  void check_integers(std::string_view name, const CallArray& a) const {
    if (!is_integer(a.type)) fail("{}: {} must be integers of 32 or 64 bits, got {}", where_, name, name_of(a.type));
  }
  void check_type_of_first(std::string_view name, const CallArray& a) const {
    if (a.type == first().type) return;
    fail("{}: {} must be of the type of {}, {}, got {}", where_, name, this->name(0), name_of(first().type), name_of(a.type));
  }
  template <class Number>
  void check_type(std::string_view name, const CallArray& a) const {
    if constexpr (std::is_integral_v<Number>) {
      check_integers(name, a);
    } else {
      check_numbers(name, a);
    }
  }

  // Reads the parameters with a value for each of `rows` rows. by_index: the values are those of the rows, one after the other;
  // otherwise they broadcast with the first array.
  void read_rows(std::size_t rows, bool by_index) {
    for (const RowParameter& param : call_.row_parameters) {
      if (param.values.given()) {
        check_numbers(param.name, param.values);
        per_row_.add({param.name, values_of(param, rows, by_index)});
      }
      if (!param.gradient.given()) continue;
      const std::string name = "d_" + std::string(param.name);
      check_numbers(name, param.gradient);
      if (count_of(param.gradient) != rows) {
        fail("{}: {} must have one number for each of {} rows, got shape {}", where_, name, rows,
             shape_text(param.gradient.shape));
      }
      gradients_.add({param.name, room<double>(param.gradient, rows)});
    }
    if (call_.positions.given() || call_.seeds.given()) {
      fail("{}: there is no array '{}'; on the host it is a number", where_, call_.positions.given() ? "position" : "seed");
    }
    if (call_.streams.given()) {
      check_integers("stream", call_.streams);
      if (count_of(call_.streams) != rows) {
        fail("{}: stream must have one integer for each of {} rows, got shape {}", where_, rows,
             shape_text(call_.streams.shape));
      }
      const std::span<std::int64_t> numbers = room<std::int64_t>(call_.streams, rows);
      if (!in_place<std::int64_t>(call_.streams)) load(call_.streams, numbers);
      streams_ = {reinterpret_cast<const std::uint64_t*>(numbers.data()), rows};
    }
  }
  Few<PerRow> per_row(std::size_t first, std::size_t count) const { return per_row_.part(first, count); }
  Few<ParamGradient> gradients(std::size_t first, std::size_t count) const { return gradients_.part(first, count); }
  void store_gradients() const {
    std::size_t i = 0;
    for (const RowParameter& param : call_.row_parameters) {
      if (!param.gradient.given()) continue;
      const std::span<const double> numbers = gradients_.all[i++].values;
      if (!in_place<double>(param.gradient)) store(param.gradient, numbers);
    }
  }
  // The noise of rows from `first` on.
  Noise noise(std::size_t first, std::size_t count) const {
    return {call_.seed, call_.stream + first, call_.position,
            streams_.empty() ? std::span<const std::uint64_t>() : streams_.subspan(first, count)};
  }

  // Whether the numbers are where functions can read and write them.
  template <class Number>
  static bool in_place(const CallArray& a) {
    return a.type == kTypeOf<Number> && without_gaps(a);
  }
  // Memory for numbers that are taken out of an array or put into one, or the array itself.
  template <class Number>
  std::span<Number> room(const CallArray& a, std::size_t count) {
    if (in_place<Number>(a)) return {reinterpret_cast<Number*>(a.data), count};
    auto& own = kept_.emplace_back(std::make_unique_for_overwrite<std::int64_t[]>(count));
    static_assert(sizeof(Number) == sizeof(std::int64_t));
    return {reinterpret_cast<Number*>(own.get()), count};
  }

 private:
  std::span<const double> values_of(const RowParameter& param, std::size_t rows, bool by_index) {
    const CallArray& given = param.values;
    CallArray spread = given;
    std::array<std::ptrdiff_t, kMaxAxes> shape, strides;
    const std::span<const std::ptrdiff_t> x = first().shape;
    if (by_index) {
      if (count_of(given) != rows) {
        fail("{}: {} must have one value for each of {} rows, got {}", where_, param.name, rows, count_of(given));
      }
    } else {
      bool fits = given.shape.size() <= x.size();
      const std::size_t missing = x.size() - given.shape.size();
      for (std::size_t d = 0; fits && d < x.size(); ++d) {
        const std::ptrdiff_t own = d < missing ? 1 : given.shape[d - missing];
        shape[d] = d == call_.axis ? 1 : x[d];
        strides[d] = own == 1 ? 0 : given.strides[d - missing];
        fits = own == 1 || own == shape[d];
      }
      if (!fits) {
        std::vector<std::ptrdiff_t> wanted(x.begin(), x.end());
        wanted[call_.axis] = 1;
        fail("{}: {} must be a number or an array that broadcasts to {}, {}'s shape with 1 for axis {}, got shape {}", where_,
             param.name, shape_text(wanted), name(0), call_.axis, shape_text(given.shape));
      }
      spread.shape = std::span(shape).first(x.size()), spread.strides = std::span(strides).first(x.size());
    }
    const std::span<double> numbers = room<double>(spread, rows);
    if (!in_place<double>(spread)) load(spread, numbers);
    return numbers;
  }

  // Of all arrays, those with a number for each row too. Attention reads a row for many others, so its outputs are no inputs.
  void check_all_apart() const {
    constexpr std::size_t kMost = 24;
    std::array<Placed, kMost> all;
    std::size_t count = 0;
    const auto add = [&](std::string_view name, const CallArray& a, bool output) {
      if (!a.given()) return;
      if (count == kMost) fail("{}: there are at most {} arrays, got more", where_, kMost);
      all[count++] = {name, &a, output};
    };
    for (std::size_t i = 0; i < infos_.size(); ++i) add(name(i), array(i), infos_[i].output);
    for (const RowParameter& param : call_.row_parameters) {
      add(param.name, param.values, false);
      add(param.gradient.name, param.gradient, true);
    }
    add("stream", call_.streams, false);
    isentropic::check_apart(where_, std::span(all).first(count), infos_[0].kind != ArrayKind::heads);
  }

  const Call& call_;
  std::span<const ArrayInfo> infos_;
  std::array<char, 64> name_;
  std::string_view where_;
  Few<PerRow> per_row_;
  Few<ParamGradient> gradients_;
  std::span<const std::uint64_t> streams_;
  std::vector<std::unique_ptr<std::int64_t[]>> kept_;
};

// Calls run(type) for the type of an array.
template <bool kFloat32 = true, bool kHalves = !kSmall, class Run>
void on_type(const Arguments& call, std::string_view name, const CallArray& array, const Run& run) {
  switch (array.type) {
    case NumberType::float32:
      if constexpr (kFloat32) return run(std::type_identity<float>{});
      break;
    case NumberType::float64:
      return run(std::type_identity<double>{});
    case NumberType::float16:
      if constexpr (kHalves) return run(std::type_identity<float16>{});
      break;
    case NumberType::bfloat16:
      if constexpr (kHalves) return run(std::type_identity<bfloat16>{});
      break;
    default:
      break;
  }
  fail("{}: {} must be {}{}float64, got {}", call.where(), name, kHalves ? "float16, bfloat16, " : "",
       kFloat32 ? "float32 or " : "", name_of(array.type));
}

// The calls of families in other files than rows.cc: attention.cc, transport.cc and tables.cc.
void run_attention(Arguments& call);
void run_transport(Arguments& call);
void run_table_measure(Arguments& call);
void run_count_table(Arguments& call);
void run_table_map(Arguments& call);

}  // namespace isentropic::inline ISENTROPIC_ABI::call

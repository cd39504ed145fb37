// A call of a C interface: an operation by name, parameters as JSON, and arrays of rows x cols by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isentropic/c.h"
#include "isentropic/call.h"
#include "src/c/json.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI::by_name {

// The operations of a library with this interface.
struct Library {
  std::span<const FamilyInfo* const> further;  // families besides those of the registry
  bool (*has)(const OperationInfo& info, bool vjp);
  std::string_view list;  // what lists the names, for messages
};

inline const OperationInfo& operation_of(const Library& library, const char* name, bool vjp) {
  if (name == nullptr) fail("operation must not be null");
  const auto look = [&](const FamilyInfo& family) -> const OperationInfo* {
    const OperationInfo* const info = find_operation(family, name);
    return info != nullptr && library.has(*info, vjp) ? info : nullptr;
  };
  for (const FamilyInfo& family : families()) {
    if (const OperationInfo* const info = look(family)) return *info;
  }
  for (const FamilyInfo* const family : library.further) {
    if (const OperationInfo* const info = look(*family)) return *info;
  }
  fail("operation must be a name in {}{}, got '{}'", library.list, vjp ? " with a vjp" : "", name);
}

// Further integers that a call may have by name.
enum Whole : std::size_t { seed, stream, position, ignore_index, batch, heads, kv_heads };
inline constexpr std::string_view kWhole[] = {"seed", "stream", "position", "ignore_index", "batch", "heads", "kv_heads"};

inline bool takes(const OperationInfo& info, Whole which) {
  if (which <= position) return info.drawn;
  if (which == ignore_index) return info.target != nullptr;
  return info.arrays[0].kind == ArrayKind::heads;
}

}  // namespace isentropic::inline ISENTROPIC_ABI::by_name

// An operation with its parameters.
struct isentropic_call {
  const isentropic::OperationInfo& info;
  bool vjp;
  std::string where;
  std::vector<isentropic::ParamValue> values;
  std::array<std::optional<std::int64_t>, std::size(isentropic::by_name::kWhole)> whole;
  std::vector<std::string> of_maps;                    // the parameters of maps that are given
  std::optional<std::vector<isentropic::Step>> steps;  // of a chain
  std::shared_ptr<const isentropic::Sampler> sampler;  // the same, where the library has it
  isentropic::Runner runner = nullptr;                 // on the host

  isentropic_call(const isentropic::by_name::Library& library, const char* operation, const char* parameters, bool of_vjp)
      : info(isentropic::by_name::operation_of(library, operation, of_vjp)),
        vjp(of_vjp),
        where(std::string(info.name) + (of_vjp ? "_vjp" : "")),
        values(info.params.size()) {
    using namespace isentropic;
    const bool chain = info.family == chains().name;
    if (parameters != nullptr) {
      const std::vector<Argument> given = parse_parameters(where, parameters, chain ? &steps : nullptr, &of_maps);
      refuse_nulls(&info, given);
      for (const Argument& one : given) set(one);
    }
    if (chain && !steps) fail("{}: steps is required", where);
  }

  std::int64_t number(isentropic::by_name::Whole which, std::int64_t otherwise = 0) const {
    return whole[which].value_or(otherwise);
  }

 private:
  void set(const isentropic::Argument& one) {
    using namespace isentropic;
    for (std::size_t k = 0; k < whole.size(); ++k) {
      if (by_name::kWhole[k] != one.name || !takes(info, static_cast<by_name::Whole>(k))) continue;
      const auto* const integer = std::get_if<std::int64_t>(&one.value);
      if (integer == nullptr) fail("{}: {} must be an integer, got {}", where, one.name, to_text(one.value));
      if (k >= by_name::batch && *integer < 1) fail("{}: {} must be above 0, got {}", where, one.name, *integer);
      whole[k] = *integer;
      return;
    }
    std::string names;
    for (std::size_t i = 0; i < values.size(); ++i) {
      names += (names.empty() ? "" : ", ") + std::string(info.params[i].name);
      if (info.params[i].name != one.name) continue;
      const auto* const map = std::get_if<std::string>(&one.value);
      const bool named = info.params[i].kind == isentropic::ParamKind::map && map != nullptr;
      values[i] = named ? isentropic::ParamValue(make_map(*map)) : one.value;
      return;
    }
    fail("{}: there is no parameter '{}'{}{}", where, one.name, names.empty() ? "" : "; it has ", names);
  }
};

namespace isentropic::inline ISENTROPIC_ABI::by_name {

// An array of C as one of a call, with the axes that the operation's kind of array has.
struct Axes {
  std::array<std::ptrdiff_t, 4> shape, strides;
  std::size_t count = 2;

  void set(CallArray& to) const { to.shape = std::span(shape).first(count), to.strides = std::span(strides).first(count); }
};

class Arrays {
 public:
  static constexpr std::size_t kMost = 24;

  Arrays(const isentropic_call& prepared, const isentropic_array* arrays, std::size_t count)
      : prepared_(prepared), where_(prepared.where), count_(count) {
    if (count > kMost) fail("{}: there are at most {} arrays, got {}", where_, kMost, count);
    read(arrays);
    const OperationInfo& info = prepared.info;
    const std::span<const ArrayInfo> wanted = prepared.vjp ? info.jacobian.arrays : info.arrays;
    for (const ArrayInfo& one : wanted) {
      const std::size_t i = take(one.name);
      if (i == kMost && !one.optional) fail("{}: the array '{}' is missing", where_, one.name);
      if (i != kMost) in_order_[of_description_] = given_[i], axes_in_order_[of_description_] = i;
      ++of_description_;
    }
    const std::ptrdiff_t rows = in_order_[0].shape[0];
    for (std::size_t i = 0; i < info.params.size(); ++i) read_rows_of(info.params[i], prepared.values[i], rows);
    if (info.drawn) {
      if (const std::size_t i = take("stream"); i != kMost) streams_ = checked_column("stream", given_[i], rows, true);
      if (const std::size_t i = take("position"); i != kMost) positions_ = given_[i];
      if (const std::size_t i = take("seed"); i != kMost) seeds_ = given_[i];
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!used_[i]) refuse(given_[i].name, wanted);
    }
    for (std::size_t i = 0; i < of_description_; ++i) {
      if (in_order_[i].given()) give_axes(wanted[i], i);
      in_order_[i].name = {};
    }
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  std::span<const CallArray> of_description() const { return std::span(in_order_).first(of_description_); }
  std::span<const RowParameter> row_parameters() const { return std::span(row_parameters_).first(row_parameter_count_); }
  const CallArray& streams() const { return streams_; }
  const CallArray& positions() const { return positions_; }
  const CallArray& seeds() const { return seeds_; }

 private:
  void read(const isentropic_array* arrays) {
    if (count_ > 0 && arrays == nullptr) fail("{}: arrays must not be null where count is {}", where_, count_);
    // The first field is the distance to the next array; later headers may add fields to the struct.
    const std::size_t size = count_ > 0 ? arrays->struct_size : 0;
    if (count_ > 0 && size < sizeof(isentropic_array)) {
      fail("{}: struct_size must be sizeof(isentropic_array), at least {}, got {}", where_, sizeof(isentropic_array), size);
    }
    const char* at = reinterpret_cast<const char*>(arrays);
    for (std::size_t i = 0; i < count_; ++i, at += size) {
      const auto& one = *reinterpret_cast<const isentropic_array*>(at);
      if (one.struct_size != size) {
        fail("{}: struct_size must be the same for all arrays, got {} and {}", where_, size, one.struct_size);
      }
      if (one.name == nullptr) fail("{}: array {} has no name", where_, i);
      const auto type = static_cast<NumberType>(one.type);
      const std::size_t item = type == NumberType::boolean ? 0 : size_of(type);
      if (item == 0)
        fail("{}: type of {} must be ISENTROPIC_FLOAT32 to ISENTROPIC_INT64, 1 to 6, got {}", where_, one.name, one.type);
      if (one.data == nullptr && one.rows != 0 && one.cols != 0) fail("{}: data of {} must not be null", where_, one.name);
      for (std::size_t k = 0; k < i; ++k) {
        if (given_[k].name == one.name) fail("{}: the array '{}' is given twice", where_, one.name);
      }
      // No array has more bytes, and strides in bytes must not overflow.
      const std::size_t most = static_cast<std::size_t>(PTRDIFF_MAX) / item;
      const auto fits = [&](std::size_t count, std::ptrdiff_t stride) {
        const std::size_t reach = stride < 0 ? 0 - static_cast<std::size_t>(stride) : static_cast<std::size_t>(stride);
        return count <= most / std::max<std::size_t>(reach, 1);
      };
      const std::ptrdiff_t step = one.col_stride == 0 ? 1 : one.col_stride;
      const auto cols = static_cast<std::ptrdiff_t>(one.cols), bytes = static_cast<std::ptrdiff_t>(item);
      // Without a sign, a product that is too large is not undefined: it is refused.
      const auto whole = static_cast<std::ptrdiff_t>(one.cols * static_cast<std::size_t>(step));
      const std::ptrdiff_t row_step = one.row_stride == 0 ? whole : one.row_stride;
      if (!fits(one.cols, step) || !fits(one.rows, row_step) || !fits(one.rows, cols)) {
        fail("{}: {} must fit in memory, got {} x {} with the strides {} and {}", where_, one.name, one.rows, one.cols,
             one.row_stride, one.col_stride);
      }
      axes_[i] = {{static_cast<std::ptrdiff_t>(one.rows), cols}, {row_step * bytes, step * bytes}, 2};
      given_[i].data = static_cast<char*>(one.data), given_[i].item_size = item;
      given_[i].type = type, given_[i].name = one.name;
      axes_[i].set(given_[i]);
    }
  }

  // The number of the array of this name, which counts as used; kMost if there is none.
  std::size_t take(std::string_view name) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (given_[i].name != name) continue;
      used_[i] = true;
      return i;
    }
    return kMost;
  }

  CallArray checked_column(std::string_view name, const CallArray& a, std::ptrdiff_t rows, bool whole) const {
    if (a.shape[0] != rows || a.shape[1] != 1) {
      fail("{}: {} must have shape ({}, 1), one for each row, got {}", where_, name, rows, shape_text(a.shape));
    }
    if (whole ? !is_integer(a.type) : a.type != NumberType::float32 && a.type != NumberType::float64) {
      fail("{}: {} must be {}, got {}", where_, name, whole ? "integers of 32 or 64 bits" : "float32 or float64",
           name_of(a.type));
    }
    return a;
  }

  // A parameter with a value for each row, or those of a map.
  void read_rows_of(const ParamInfo& param, const ParamValue& value, std::ptrdiff_t rows) {
    if (const Map* const map = std::get_if<Map>(&value)) {
      const OperationInfo& info = *find_operation(family_info<Map>(), description_of(*map).name);
      for (const ParamInfo& own : info.params) {
        const bool given = std::ranges::find(prepared_.of_maps, own.name) != prepared_.of_maps.end();
        read_rows_of(own, given ? ParamValue(true) : ParamValue(), rows, false);
      }
    } else {
      read_rows_of(param, value, rows, param.required);
    }
  }
  void read_rows_of(const ParamInfo& param, const ParamValue& value, std::ptrdiff_t rows, bool required) {
    const bool given = !std::holds_alternative<std::monostate>(value);
    const std::size_t i = param.per_row ? take(param.name) : kMost;
    if (i == kMost && required && !given) fail("{}: {} is required", where_, param.name);
    if (i != kMost && given) fail("{}: {} must be a parameter or an array, got both", where_, param.name);
    RowParameter one = {.name = param.name, .values = {}, .gradient = {}};
    if (i != kMost) one.values = checked_column(param.name, given_[i], rows, false);
    for (std::size_t k = 0; param.per_row && k < count_; ++k) {
      if (!given_[k].name.starts_with("d_") || given_[k].name.substr(2) != param.name) continue;
      if (!gives_gradients()) {
        if (prepared_.info.jacobian.arrays.empty()) continue;
        fail("{}: {} is an array of isentropic_apply_vjp, which calculates it", where_, given_[k].name);
      }
      used_[k] = true;
      one.gradient = checked_column(given_[k].name, given_[k], rows, false);
    }
    if (!one.values.given() && !one.gradient.given()) return;
    if (row_parameter_count_ == row_parameters_.size()) fail("{}: too many parameters have a value for each row", where_);
    row_parameters_[row_parameter_count_++] = one;
  }

  // Whether the call calculates gradients in parameters: that of a gradient does, and losses and measures of rows do.
  bool gives_gradients() const {
    const std::string_view family = prepared_.info.family;
    return prepared_.vjp || family == family_info<Measure>().name || family == family_info<Divergence>().name ||
           family == family_info<Loss>().name || family == family_info<SparseLoss>().name;
  }

  [[noreturn]] void refuse(std::string_view name, std::span<const ArrayInfo> wanted) const {
    std::string known;
    const auto add = [&](std::string_view one) { known += (known.empty() ? "" : ", ") + std::string(one); };
    for (const ArrayInfo& one : wanted) add(one.name);
    for (const RowParameter& one : row_parameters()) {
      if (one.values.given()) add(one.name);
      if (one.gradient.given()) add(one.gradient.name);
    }
    if (streams_.given()) add("stream");
    fail("{}: there is no array '{}'; it has {}", where_, name, known);
  }

  // Heads lie one below the other; a single row may stand for all.
  void give_axes(const ArrayInfo& info, std::size_t i) {
    Axes& axes = axes_[axes_in_order_[i]];
    CallArray& a = in_order_[i];
    const CallArray& x = in_order_[0];
    if (info.one_for_all && a.shape[0] == 1) axes.shape[0] = x.shape[0], axes.strides[0] = 0;
    if (info.kind == ArrayKind::heads) split(info.name, axes, heads());
    if (info.kind == ArrayKind::kv_heads) split(info.name, axes, kv_heads());
    if (info.kind == ArrayKind::mask) {
      const std::ptrdiff_t all = queries();
      const std::ptrdiff_t queries_of_head = all / heads() / batch();
      if (axes.shape[0] != all && axes.shape[0] != queries_of_head) {
        fail("{}: mask must have a row for each of {} queries, the same for all heads, or for each of {}, got {}", where_,
             queries_of_head, all, shape_text(a.shape));
      }
      if (axes.shape[0] == all) split(info.name, axes, heads());
    }
    axes.set(a);
  }
  void split(std::string_view name, Axes& axes, std::ptrdiff_t heads) const {
    const std::ptrdiff_t rows = axes.shape[0] / heads / batch();
    if (rows * heads * batch() != axes.shape[0]) {
      fail("{}: {} must have a multiple of batch x heads = {} x {} rows, got {}", where_, name, batch(), heads, axes.shape[0]);
    }
    const std::ptrdiff_t step = axes.strides[0];
    axes = {{batch(), heads, rows, axes.shape[1]}, {step * rows * heads, step * rows, step, axes.strides[1]}, 4};
  }
  std::ptrdiff_t batch() const { return prepared_.number(by_name::batch, 1); }
  std::ptrdiff_t heads() const { return prepared_.number(by_name::heads, 1); }
  std::ptrdiff_t kv_heads() const { return prepared_.number(by_name::kv_heads, heads()); }
  std::ptrdiff_t queries() const {
    const CallArray& q = in_order_[0];
    return q.shape.size() == 4 ? q.shape[0] * q.shape[1] * q.shape[2] : q.shape[0];
  }

  const isentropic_call& prepared_;
  std::string_view where_;
  std::size_t count_, of_description_ = 0, row_parameter_count_ = 0;
  std::array<CallArray, kMost> given_, in_order_;
  std::array<Axes, kMost> axes_;
  std::array<std::size_t, kMost> axes_in_order_{};
  std::array<bool, kMost> used_{};
  std::array<RowParameter, 4> row_parameters_;
  CallArray streams_, positions_, seeds_;
};

// The call of a prepared operation on these arrays, which must outlive it.
inline Call call_of(const isentropic_call& prepared, const Arrays& given) {
  const auto unsigned_number = [&](Whole which) { return static_cast<std::uint64_t>(prepared.number(which)); };
  return {.operation = prepared.info,
          .vjp = prepared.vjp,
          .values = prepared.values,
          .arrays = given.of_description(),
          .axis = 1,
          .row_parameters = given.row_parameters(),
          .ignore_index = prepared.whole[ignore_index],
          .seed = unsigned_number(seed),
          .stream = unsigned_number(stream),
          .position = unsigned_number(position),
          .streams = given.streams(),
          .positions = given.positions(),
          .seeds = given.seeds(),
          .steps = prepared.steps ? std::span<const Step>(*prepared.steps) : std::span<const Step>(),
          .sampler = prepared.sampler.get(),
          .where = {},
          .check_apart = true};
}

}  // namespace isentropic::inline ISENTROPIC_ABI::by_name

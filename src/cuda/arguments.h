// One call of isentropic_cuda's C interface: its arrays by name, checked, and its parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "isentropic/c.h"
#include "isentropic/cuda.h"
#include "isentropic/operation.h"
#include "src/c/json.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI::cuda {

// The arguments of one call, by name. After all arrays of the operation were asked for, check_all_used() refuses the others:
// call it before anything is written.
class Arguments {
 public:
  // The type of the call is that of the first array. Only a chain has the parameter steps.
  Arguments(std::string_view operation, const char* parameters, const isentropic_array* arrays, std::size_t count, bool chain)
      : operation_(operation), arrays_(arrays, count), used_(count), type_(arrays[0].type) {
    for (std::size_t i = 0; i < count; ++i) {
      if (arrays[i].struct_size != sizeof(isentropic_array)) {
        fail("{}: struct_size must be {}, got {}", operation_, sizeof(isentropic_array), arrays[i].struct_size);
      }
      if (arrays[i].name == nullptr) fail("{}: array {} has no name", operation_, i);
      if (arrays[i].col_stride > 1 || arrays[i].col_stride < 0 || arrays[i].row_stride < 0) {
        fail("{}: col_stride of {} must be 1 and row_stride at least 0 on a device", operation_, arrays[i].name);
      }
    }
    if (parameters != nullptr) given_ = parse_parameters(operation_, parameters, chain ? &steps_ : nullptr);
  }

  std::string_view operation() const { return operation_; }

  const isentropic_array* find(std::string_view name) {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (name != arrays_[i].name) continue;
      used_[i] = true;
      return &arrays_[i];
    }
    return nullptr;
  }
  const isentropic_array& at(std::string_view name) {
    const isentropic_array* const found = find(name);
    if (found == nullptr) fail("{}: the array '{}' is missing", operation_, name);
    return *found;
  }

  // Rows of T; none if the array was left out. Their type is that of the call, if it is not given.
  template <class T>
  MatrixView<T> matrix(std::string_view name, bool required = true, std::int32_t type = 0) {
    const isentropic_array* const found = required ? &at(name) : find(name);
    if (found == nullptr) return {};
    check_type(*found, type == 0 ? type_ : type);
    const std::size_t stride = found->row_stride == 0 ? found->cols : static_cast<std::size_t>(found->row_stride);
    return {static_cast<T*>(found->data), found->rows, found->cols, stride};
  }
  template <class Number>
  std::span<Number> column(const isentropic_array& array, std::int32_t type) {
    check_type(array, type);
    if (array.cols != 1 || array.row_stride > 1) fail("{}: {} must be one number for each row", operation_, array.name);
    return {static_cast<Number*>(array.data), array.rows};
  }
  std::span<double> value() { return column<double>(at("value"), ISENTROPIC_FLOAT64); }

  // The operation of this family with these parameters. A parameter with a value for each row takes any number here.
  template <class Family>
  Family make(const OperationInfo& info) {
    const std::vector<ParamValue> typical = typical_values(info);
    for (std::size_t i = 0; i < info.params.size(); ++i)
      add_per_row(info.params[i].name, info.params[i].per_row, typical[i], true);
    return isentropic::make<Family>(info.name, given_);
  }
  // Adds the parameters of the loss's map, if it has one.
  void add_of_map(const Map& map) {
    const OperationInfo& info = *find_operation(family_info<Map>(), description_of(map).name);
    for (const ParamInfo& param : info.params) add_per_row(param.name, param.per_row, {}, false);
  }
  std::span<const PerRow> per_row() const { return per_row_; }
  std::span<const ParamGradient> gradients() const { return gradients_; }

  // A parameter that does not belong to an operation of the registry.
  std::optional<std::int64_t> whole(std::string_view name) {
    const std::optional<ParamValue> value = taken(name);
    if (!value) return {};
    if (const auto* const number = std::get_if<std::int64_t>(&*value)) return *number;
    fail("{}: {} must be an integer", operation_, name);
  }
  std::optional<double> number(std::string_view name) {
    const std::optional<ParamValue> value = taken(name);
    if (!value) return {};
    if (const auto* const number = std::get_if<double>(&*value)) return *number;
    if (const auto* const number = std::get_if<std::int64_t>(&*value)) return static_cast<double>(*number);
    fail("{}: {} must be a number", operation_, name);
  }
  template <class Op>
  void add_per_row_of() {
    for_each_param<Op>([&](const auto& param) {
      if constexpr (requires { Op{}.*param.member + 1.0; }) add_per_row(param.name, param.per_row, {}, false);
    });
  }
  void check_no_more_parameters() const {
    if (!given_.empty()) fail("{}: there is no parameter '{}'", operation_, given_[0].name);
  }
  DeviceNoise noise() {
    DeviceNoise noise;
    const auto number = [&](std::string_view name) { return static_cast<std::uint64_t>(whole(name).value_or(0)); };
    noise.seed = number("seed"), noise.stream = number("stream"), noise.position = number("position");
    const auto numbers = [&](std::string_view name) -> std::span<const std::uint64_t> {
      const isentropic_array* const found = find(name);
      if (found == nullptr) return {};
      return column<const std::uint64_t>(*found, ISENTROPIC_INT64);
    };
    noise.streams = numbers("stream");
    const std::span<const std::uint64_t> seed = numbers("seed"), positions = numbers("position");
    if (!seed.empty()) noise.seed_at = seed.data();
    if (positions.size() == 1) {
      noise.position_at = positions.data();
    } else {
      noise.positions = positions;
    }
    return noise;
  }
  std::span<const Step> steps() const {
    if (!steps_) fail("{}: steps is required", operation_);
    return *steps_;
  }

  std::int32_t type() const { return type_; }
  void check_all_used() const {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (!used_[i]) fail("{}: there is no array '{}'", operation_, arrays_[i].name);
    }
  }

 private:
  static std::string_view type_name(std::int32_t type) {
    constexpr std::string_view kNames[] = {"float32", "float64", "float16", "bfloat16", "int32", "int64"};
    return type >= 1 && type <= 6 ? kNames[type - 1] : "of an unknown type";
  }
  void check_type(const isentropic_array& array, std::int32_t type) const {
    if (array.type == type) return;
    fail("{}: {} must be {}, got {}", operation_, array.name, type_name(type), type_name(array.type));
  }
  // Removes a parameter from those given.
  std::optional<ParamValue> taken(std::string_view name) {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (given_[i].name != name) continue;
      ParamValue value = std::move(given_[i].value);
      given_.erase(given_.begin() + static_cast<std::ptrdiff_t>(i));
      return value;
    }
    return {};
  }
  void add_per_row(std::string_view name, bool per_row, const ParamValue& typical, bool beside) {
    if (!per_row) return;
    const isentropic_array* const found = find(name);
    if (found != nullptr) {
      per_row_.push_back({name, column<const double>(*found, ISENTROPIC_FLOAT64)});
      if (beside) given_.push_back({name, typical});
    }
    names_.push_back("d_" + std::string(name));
    const isentropic_array* const slope = find(names_.back());
    if (slope != nullptr) gradients_.push_back({name, column<double>(*slope, ISENTROPIC_FLOAT64)});
  }

  std::string operation_;
  std::span<const isentropic_array> arrays_;
  std::vector<bool> used_;
  std::vector<Argument> given_;
  std::optional<std::vector<Step>> steps_;
  std::vector<PerRow> per_row_;
  std::vector<ParamGradient> gradients_;
  std::vector<std::string> names_;
  std::int32_t type_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI::cuda

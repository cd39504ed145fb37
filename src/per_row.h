// Parameters with a value for each row.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "isentropic/describe.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The numbers of the rows from `first` on, of PerRow or ParamGradient: a range of them that copies nothing.
template <class Numbers>
class RowsOf {
 public:
  class Iterator {
   public:
    Iterator(const Numbers* numbers, std::size_t first) : numbers_(numbers), first_(first) {}
    Numbers operator*() const { return {numbers_->parameter, numbers_->values.subspan(first_)}; }
    Iterator& operator++() {
      ++numbers_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return numbers_ == other.numbers_; }

   private:
    const Numbers* numbers_;
    std::size_t first_;
  };

  RowsOf() = default;
  RowsOf(std::span<const Numbers> all, std::size_t first = 0)  // NOLINT(google-explicit-constructor)
      : all_(all), first_(first) {}

  RowsOf from(std::size_t row) const { return {all_, first_ + row}; }
  bool empty() const { return all_.empty(); }
  Iterator begin() const { return {all_.data(), first_}; }
  Iterator end() const { return {all_.data() + all_.size(), first_}; }

 private:
  std::span<const Numbers> all_;
  std::size_t first_ = 0;
};

// op with the values of row r.
template <class Op>
inline Op at_row(Op op, RowsOf<PerRow> per_row, std::size_t r) {
  for_each_param<Op>([&](const auto& param) {
    if constexpr (requires { op.*param.member = 1.0; }) {
      for (const PerRow& given : per_row) {
        if (given.parameter == param.name) op.*param.member = given.values[r];
      }
    }
  });
  return op;
}

// One number for each parameter of Op, in their order.
template <class Op>
using ParamValues = std::array<double, count_of(Described<Op>::kParams)>;

// The number of the parameter with this name.
template <class Op>
inline double value_of(const ParamValues<Op>& values, std::string_view name) {
  double value = 0;
  std::size_t i = 0;
  for_each_param<Op>([&](const auto& param) {
    if (param.name == name) value = values[i];
    ++i;
  });
  return value;
}

// The name of the parameter with this member.
template <class Op>
inline std::string_view name_of(double Op::*member) {
  std::string_view name;
  for_each_param<Op>([&](const auto& param) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(param)>, Param<Op>>) {
      if (param.member == member) name = param.name;
    }
  });
  return name;
}

}  // namespace isentropic::inline ISENTROPIC_ABI

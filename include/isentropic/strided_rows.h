// Rows along any axis of arrays with any strides, for code that passes them to functions of matrices. Such a function reads an
// array in place if it can; otherwise it gets copies of some rows at a time.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "isentropic/export.h"
#include "isentropic/matrix_view.h"

namespace isentropic::inline ISENTROPIC_ABI {

inline constexpr std::size_t kMaxAxes = 64;

// A view of numbers of any type, which it does not own. A stride is the distance from one index of its axis to the next, in
// units of `unit` bytes: any integer, 0 where an input repeats.
struct StridedArray {
  char* data = nullptr;
  std::span<const std::ptrdiff_t> shape;
  std::span<const std::ptrdiff_t> strides;
  std::size_t item_size = 0;  // in bytes: 2, 4 or 8
  std::ptrdiff_t unit = 1;
};

// The shape as in messages: "(2, 3)".
ISENTROPIC_API std::string shape_text(std::span<const std::ptrdiff_t> shape);

// One of several arrays whose rows belong together. The first array defines the rows; an unwanted output is absent.
// `one_per_row`: one number for each row, in the shape of the first array without the axis or with 1 for it. `one_for_all`: the
// function also takes a single row instead of rows that are all equal.
struct RowArgument {
  std::string_view name;
  StridedArray array;
  bool output = false;
  bool one_per_row = false;
  bool one_for_all = false;
  bool absent = false;
};

// Some rows of an argument, with the numbers of a row one after the other; without data if it is absent. Arguments with one
// number for each row have no gaps.
struct RowBlock {
  void* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t row_stride = 0;  // in numbers

  template <class T>
  MatrixView<T> matrix() const {
    return {static_cast<T*>(data), rows, cols, row_stride};
  }
  template <class T>
  std::span<T> numbers() const {
    return {static_cast<T*>(data), rows};
  }
};

// by_index: the last axis runs fastest, for callers with a number for each row. free: in the order of memory.
enum class RowOrder { by_index, free };

// An axis of the array `name`; a negative one counts from the end. Throws: std::invalid_argument.
ISENTROPIC_API std::size_t to_axis(std::string_view operation, std::ptrdiff_t axis, std::size_t axes,
                                   std::string_view name = "x");

class ISENTROPIC_API StridedRows {
 public:
  static constexpr std::size_t kMaxArguments = 6;

  // `arguments`, and the data that they point to, must live as long as this object.
  // Throws: std::invalid_argument naming the operation and the argument whose shape does not fit.
  StridedRows(std::string_view operation, std::span<const RowArgument> arguments, std::size_t axis, RowOrder order);

  std::size_t count() const { return rows_; }

  // Throws std::invalid_argument if an output has one place for two numbers, or shares memory with another array, unless it is
  // that array and that is allowed. Interleaved arrays count as sharing memory, unless both have the same strides.
  void check_apart(bool output_may_be_input = true) const;

  // Calls run(blocks, first row) until all rows are done: once if every array can be read in place. blocks[k] belongs to
  // arguments[k]; results in blocks of outputs are copied to their place. A std::invalid_argument of run names rows by their
  // index among all rows, even if run was called for some of them.
  template <class Run>
  void for_blocks(const Run& run) const {
    visit([](const void* context, const RowBlock* blocks,
             std::size_t first) { (*static_cast<const Run*>(context))(blocks, first); },
          &run);
  }

 private:
  using Visitor = void (*)(const void* context, const RowBlock* blocks, std::size_t first);

  struct Axis {
    std::size_t size;
    std::array<std::ptrdiff_t, kMaxArguments> stride;  // in bytes
  };

  void visit(Visitor visitor, const void* context) const;
  void visit_blocks(Visitor visitor, const void* context, std::size_t rows_of_block) const;
  bool in_place(std::size_t k) const;

  std::string_view operation_;
  std::span<const RowArgument> arguments_;
  std::size_t axis_;
  RowOrder order_;
  std::size_t rows_ = 1;
  std::array<std::size_t, kMaxArguments> cols_;
  std::array<std::ptrdiff_t, kMaxArguments> col_stride_;  // in bytes
  std::array<bool, kMaxArguments> single_;                // a single row is used for all rows
  std::array<bool, kMaxArguments> in_place_;
  std::array<Axis, kMaxAxes> batch_;  // the other axes, after adjacent ones are merged
  std::size_t batch_axes_ = 0;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif

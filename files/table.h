// What a file of scores holds once it is in memory, all of it or some of its rows: numbers, and the names that came with them.
#pragma once

#include <entropic/half.h>

#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace files {

struct Table {
  // rows x cols without gaps, in the precision of the file.
  std::variant<std::vector<float>, std::vector<double>, std::vector<entropic::float16>, std::vector<entropic::bfloat16>> values;
  bool whole = false;  // float64 that are whole numbers: arrays are written as int64
  int digits = 0;      // significant ones in text, at most; 0: the fewest that give the same number back
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t first_row = 0;  // of these rows, in the file

  // Where several files are read as one: that which these rows are from, and how many rows the files before it have.
  std::string file;
  std::size_t rows_before = 0;

  // The array as its file has it: the product of all but the last is the number of rows there. Results of one number per row
  // lack the last. Files that do not say how many rows they have, such as a .csv, have two axes and here the rows so far known.
  std::vector<std::size_t> shape;

  // Of a .jsonl whose lines hold arrays of arrays: the lengths of all axes between line and row. Empty where rows are counted
  // one by one.
  std::vector<std::size_t> nested;

  std::string key;                  // what the file calls the array, or nothing
  std::string result;               // what objects call it where it was calculated, or nothing
  std::vector<std::string> header;  // a name for each column of numbers, or empty: the file has no header

  // Text beside each row, where the file has such a column: its place among all columns, its name if there is a header.
  std::optional<std::size_t> label_column;
  std::string label_header;
  std::vector<std::string> labels;

  // Other columns that stay beside the rows: text, and whether it is a word rather than a number to formats that tell them
  // apart.
  struct Kept {
    std::string name;
    std::vector<std::string> cells;
    std::vector<bool> words;
  };
  std::vector<Kept> kept;

  std::vector<std::size_t> missing;  // rows of this table, in order, that lack a number

  // A word for each row of a result, after its numbers: what a command says about the row.
  std::string note_header;
  std::vector<std::string> notes;
};

// How many rows stand in a line together.
inline std::size_t rows_of_line(const std::vector<std::size_t>& nested) {
  return std::accumulate(nested.begin(), nested.end(), std::size_t{1}, std::multiplies<>());
}

// The memory of a table's numbers for others of type T, as far as they were of this type.
template <class T>
std::vector<T> reused(Table& table) {
  auto* const values = std::get_if<std::vector<T>>(&table.values);
  return values ? std::move(*values) : std::vector<T>();
}

}  // namespace files

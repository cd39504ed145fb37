// What a file of scores holds once it is in memory: numbers in rows, and the names that came with them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

struct Table {
  // rows x cols without gaps, in the precision of the file.
  std::variant<std::vector<float>, std::vector<double>> values;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t first_row = 0;  // of these rows, in the file

  // The array as its file had it: rows is the product of all but the last. Results of one number per row lack the last.
  std::vector<std::size_t> shape;

  std::vector<std::string> header;  // a name for each column of numbers, or empty: the file has no header

  // Text beside each row, where the file has such a column: its place among all columns, its name if there is a header.
  std::optional<std::size_t> label_column;
  std::string label_header;
  std::vector<std::string> labels;

  // A word for each row of a result, after its numbers: what a command says about the row.
  std::string note_header;
  std::vector<std::string> notes;
};
